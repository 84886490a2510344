"""The groups of one partition of __consumer_offsets.

Source: org.apache.kafka.coordinator.group.{GroupCoordinatorShard, GroupMetadataManager, OffsetMetadataManager}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult, ReplayedRecord
from kafkacore.broker.delayed_groups import GroupPurgatories
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.groups.assignors import DEFAULT_ASSIGNOR
from kafkacore.broker.groups.classic import DEAD, EMPTY, STABLE, ClassicGroup, ClassicMember
from kafkacore.broker.groups.consumer import ConsumerGroup, ConsumerMember, Owned, ResolvedRegex
from kafkacore.broker.groups.consumer_membership import ConsumerMembership, Topics
from kafkacore.broker.groups.membership import NOTHING, ClassicMembership, Nothing, RequestContext, join_error, sync_error
from kafkacore.broker.groups.mixed import MixedMembership
from kafkacore.broker.groups.offsets import OffsetStore
from kafkacore.broker.groups.records import (
    NO_TOPIC_ID,
    OffsetAndMetadata,
    consumer_group_tombstones,
    group_tombstone,
    is_passed_over,
    offset_record,
    offset_tombstone,
    read_record,
)
from kafkacore.broker.groups.regex_resolver import RegexResolver
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeletableGroupResult,
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkacore.protocol.schema import Message
from kafkacore.protocol.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

EXPIRATION_KEY = "expire-offsets"
FIRST_COMMIT_WITH_GROUP_ERRORS = 9
FIRST_DESCRIBE_WITH_GROUP_ERRORS = 6

Group = ClassicGroup | ConsumerGroup
T = TypeVar("T")


class Timers:
    """What the shard needs of `coordinator.ShardTimers`, for its own type."""

    def __init__(
        self,
        schedule: Callable[[str, int, Callable[[], Nothing]], None],
        cancel: Callable[[str], None],
        is_scheduled: Callable[[str], bool],
    ) -> None:
        self.schedule = schedule
        self.cancel = cancel
        self.is_scheduled = is_scheduled


class GroupShard:
    """Groups and their offsets."""

    def __init__(
        self,
        config: BrokerConfig,
        purgatories: GroupPurgatories,
        timers: Timers,
        topics: Topics,
        wall_ms: Callable[[], int],
        submit: Callable[[Callable[[], Nothing]], None],
        resolver: RegexResolver,
        group_settings: Callable[[str], Mapping[str, str]] = lambda group_id: {},
    ) -> None:
        """Empty.

        Args:
            config: of the broker.
            purgatories: where its classic groups wait.
            timers: of this shard.
            topics: of the cluster.
            wall_ms: the time.
            submit: runs an operation after the one that runs now.
            resolver: finds the topics of expressions, for all groups of the broker.
            group_settings: a group's own settings, by Kafka's names.
        """
        self.config = config
        self.group_settings = group_settings
        self.purgatories = purgatories
        self.timers = timers
        self.topics = topics
        self.wall_ms = wall_ms
        self.submit = submit
        self.resolver = resolver
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.membership = ClassicMembership(self)
        self.consumers = ConsumerMembership(self)
        self.mixed = MixedMembership(self)

    # ---- replay

    def replay(self, record: ReplayedRecord) -> None:
        """Takes in a record of the log.

        Raises:
            CorruptDataError: it is of no kind that is known.
        """
        if is_passed_over(record):
            return
        key, value = read_record(record)
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, EMPTY, self.wall_ms())
            self.offsets.replay(record.offset, record.producer_id, key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        else:
            self._replay_consumer(key, value)

    def replay_end_marker(self, offset: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A producer's transaction ended: its offsets are in force, or forgotten."""
        self.offsets.replay_end_marker(offset, producer_id, committed)

    def committed_to(self, offset: int) -> None:
        """All records below an offset are committed."""
        self.offsets.committed_to(offset)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        before = self.groups.pop(group_id, None)
        if isinstance(before, ClassicGroup):
            self.membership.forget(before, Code.UNKNOWN_MEMBER_ID)
        if value is None:
            return
        group = ClassicGroup(group_id, STABLE if value.members else EMPTY, value.current_state_timestamp)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader = value.leader
        group.rebalance_is_due = value.leader is None and bool(value.members)
        for member in value.members:
            protocol = JoinGroupRequestProtocol(name=value.protocol or "", metadata=bytes(member.subscription))
            group.add(
                ClassicMember(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout,
                    member.session_timeout,
                    value.protocol_type,
                    [protocol],
                    bytes(member.assignment),
                )
            )
        group.subscribed_topics = group.compute_subscribed_topics()
        self.groups[group_id] = group

    def _replay_consumer(self, key: Message, value: Message | None) -> None:
        """A record of a consumer group. It replaces a group that only its offsets had brought into being."""
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self.consumer_group(group_id)
        if group is None:
            if value is None:
                return
            before = self.groups.get(group_id)
            if isinstance(before, ClassicGroup):
                self.membership.forget(before, Code.UNKNOWN_MEMBER_ID)
            group = self.groups[group_id] = ConsumerGroup(group_id)
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupMetadataKey(), _:
                del self.groups[group_id]
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                group.put_member(group.members.get(key.member_id, ConsumerMember(key.member_id)).with_metadata(value))
            case ConsumerGroupMemberMetadataKey(), _:
                group.drop_member(key.member_id)
            case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
                group.assignment_epoch, group.assignment_wall_ms = value.assignment_epoch, value.assignment_timestamp
            case ConsumerGroupTargetAssignmentMetadataKey(), _:
                group.assignment_epoch, group.assignment_wall_ms = -1, 0
            case ConsumerGroupTargetAssignmentMemberKey(), ConsumerGroupTargetAssignmentMemberValue():
                target = {bytes(topic.topic_id): frozenset(topic.partitions) for topic in value.topic_partitions}
                group.target[key.member_id] = target
            case ConsumerGroupTargetAssignmentMemberKey(), _:
                group.target.pop(key.member_id, None)
            case ConsumerGroupCurrentMemberAssignmentKey(), ConsumerGroupCurrentMemberAssignmentValue():
                group.put_member(group.members.get(key.member_id, ConsumerMember(key.member_id)).with_assignment(value))
            case ConsumerGroupCurrentMemberAssignmentKey(), _:
                if key.member_id in group.members:
                    group.put_member(group.members[key.member_id]._replace(epoch=-1, previous_epoch=-1, assigned={}, pending_revocation={}))
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                group.regexes_version = -1
                group.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            case ConsumerGroupRegularExpressionKey(), _:
                group.regexes_version = -1
                group.regexes.pop(key.regular_expression, None)

    def loaded(self) -> None:
        """Begins to serve: every member gets a session's time to be heard of, and offsets begin to age."""
        for group in list(self.groups.values()):
            with contained("the loaded group %s", group.group_id):
                if isinstance(group, ConsumerGroup):
                    # Versions of the metadata are counted by each broker for itself.
                    group.regexes_version = -1
                    group.regexes = {regex: resolved._replace(version=-1) for regex, resolved in group.regexes.items()}
                    self.consumers.watch_all(group)
                else:
                    self.membership.watch_all_sessions(group)
                    if group.rebalance_is_due:
                        self.membership.prepare_rebalance(group, "it was due when the coordinator moved")
        self._schedule_expiration()

    def unloaded(self) -> None:
        """Members that wait are answered NOT_COORDINATOR: they look for the new one."""
        for group in list(self.groups.values()):
            if isinstance(group, ClassicGroup):
                with contained("the end of group %s in its old coordinator", group.group_id):
                    self.membership.forget(group, Code.NOT_COORDINATOR)
        self.groups.clear()

    # ---- groups by name

    def group(self, group_id: str) -> Group:
        """A group.

        Raises:
            GroupIdNotFound: no group has that name.
        """
        found = self.groups.get(group_id)
        if found is None:
            raise errors.GroupIdNotFound(f"Group {group_id} not found.")
        return found

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None if no group has that name."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ClassicGroup) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group; None if no group has that name."""
        found = self.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def consumer_group_to_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group a member joins. A classic group without members makes room for it, one with members becomes a consumer group.

        Raises:
            GroupIdNotFound: the classic group cannot become one.
        """
        found = self.groups.get(group_id)
        if isinstance(found, ClassicGroup):
            if not found.is_empty:
                return self.mixed.upgrade(found, records)
            records.append(group_tombstone(group_id))
            return ConsumerGroup(group_id)
        return found or ConsumerGroup(group_id)

    def downgrade_without(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], response: T) -> CoordinatorResult[T] | None:
        """The group as a classic one, if no member is left that speaks the consumer protocol."""
        return self.mixed.downgrade_without(group, leaving, response)

    def replace_group(self, group_id: str, group: Group) -> None:
        """Puts a group in another's place."""
        self.groups[group_id] = group

    def _member_group(self, group_id: str) -> ClassicGroup:
        group = self.classic_group(group_id)
        if group is None:
            raise errors.UnknownMemberId(f"Group {group_id} not found.")
        return group

    # ---- classic members

    def join(self, context: RequestContext, request: JoinGroupRequest, respond: Callable[[JoinGroupResponse], None]) -> Nothing:
        """JoinGroup. A group comes into being with a first member that has no id yet."""
        found = self.groups.get(request.group_id)
        if isinstance(found, ClassicGroup):
            return self.membership.join(found, False, context, request, respond)
        if found is not None and not found.is_empty:
            return self.mixed.join(found, context, request, respond)
        if request.member_id:
            respond(join_error(Code.UNKNOWN_MEMBER_ID, request.member_id))
            return NOTHING
        group = self.groups[request.group_id] = ClassicGroup(request.group_id, EMPTY, self.wall_ms())
        result = self.membership.join(group, True, context, request, respond)
        if found is not None:  # a consumer group without members makes room
            result = result._replace(records=[*consumer_group_tombstones(found), *result.records], replay=False)

        def appended(error: KafkaError | None) -> None:
            if error is None:
                return
            self.membership.forget(group, error.code or Code.UNKNOWN_SERVER_ERROR)  # no member came: the client tries again
            if found is None:
                del self.groups[request.group_id]
            else:
                self.groups[request.group_id] = found

        return result._replace(appended=appended)

    def sync(self, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]) -> Nothing:
        """SyncGroup."""
        try:
            mixed = self.consumer_group(request.group_id)
            if mixed is not None and not mixed.is_empty:
                return self.mixed.sync(mixed, request, respond)
            return self.membership.sync(self._member_group(request.group_id), request, respond)
        except KafkaError as error:
            respond(sync_error(error.code or Code.UNKNOWN_SERVER_ERROR))
            return NOTHING

    def heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Heartbeat."""
        mixed = self.consumer_group(request.group_id)
        if mixed is not None:
            return self.mixed.heartbeat(mixed, request)
        return self.membership.heartbeat(self._member_group(request.group_id), request)

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """LeaveGroup."""
        mixed = self.consumer_group(request.group_id)
        if mixed is not None:
            return self.mixed.leave(mixed, request)
        return self.membership.leave(self._member_group(request.group_id), request)

    # ---- members of consumer groups

    def consumer_heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> CoordinatorResult[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat."""
        return self.consumers.heartbeat(context, request)

    # ---- offsets

    def commit(self, version: int, request: OffsetCommitRequest) -> CoordinatorResult[OffsetCommitResponse]:
        """OffsetCommit, also from outside a group (generation -1), which makes one without members."""
        group = self.groups.get(request.group_id)
        check = None
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                if version >= FIRST_COMMIT_WITH_GROUP_ERRORS:
                    raise errors.GroupIdNotFound(f"Group {request.group_id} not found.")
                raise errors.IllegalGeneration(f"group {request.group_id} does not exist, so it has no generation")
        elif isinstance(group, ConsumerGroup):
            check = group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, False, version
            )
        else:
            member = group.validate_offset_commit(
                request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, False
            )
            if member is not None:
                self.membership.heard_of(group, member)
        now_ms = self.wall_ms()
        expire_ms = -1 if request.retention_time_ms < 0 else min(now_ms + request.retention_time_ms, 2**63 - 1)
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                if check is not None:
                    check(topic.name, bytes(topic.topic_id), partition.partition_index)
                commit_ms = now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp  # of v1
                code = self._commit_one(records, request.group_id, topic.name, bytes(topic.topic_id), partition, commit_ms, expire_ms)
                partitions.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return CoordinatorResult(records, OffsetCommitResponse(topics=topics))

    def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> CoordinatorResult[TxnOffsetCommitResponse]:
        """TxnOffsetCommit: offsets that come into force when their transaction is committed. A commit of no member (generation -1) may come
        from anywhere, and makes the group where it does not exist."""
        group = self.groups.get(request.group_id)
        check = None
        try:
            if isinstance(group, ConsumerGroup):
                check = group.validate_offset_commit(request.member_id, request.group_instance_id, request.generation_id, True)
            elif group is not None:
                group.validate_offset_commit(request.member_id, request.group_instance_id, request.generation_id, True)
            elif request.generation_id >= 0:
                raise errors.IllegalGeneration(f"group {request.group_id} does not exist, so it has no generation")
            if check is not None:
                for topic in request.topics:
                    known = self.topics.by_name(topic.name)
                    for partition in topic.partitions:
                        check(topic.name, NO_TOPIC_ID if known is None else known.topic_id, partition.partition_index)
        except errors.StaleMemberEpoch as error:
            raise errors.IllegalGeneration(error.message) from None
        now_ms = self.wall_ms()
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                code = self._commit_one(records, request.group_id, topic.name, NO_TOPIC_ID, partition, now_ms, -1)
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(records, TxnOffsetCommitResponse(topics=topics))

    def _commit_one(
        self,
        records: list[CoordinatorRecord],
        group_id: str,
        topic: str,
        topic_id: bytes,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        now_ms: int,
        expire_ms: int,
    ) -> int:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self.config.offset_metadata_max_bytes:
            return Code.OFFSET_METADATA_TOO_LARGE
        committed = OffsetAndMetadata(
            partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
        )
        records.append(offset_record(group_id, topic, partition.partition_index, committed))
        return Code.NONE

    def fetch_offsets(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """OffsetFetch for one group: with require_stable the offsets as they are, else those that are committed. A group that does not
        exist has no offsets, which is no error."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.validate_offset_fetch(request.member_id, request.member_epoch)
        if require_stable:
            offsets = {} if group is None else self.offsets.of_group(request.group_id)
        else:
            offsets = self.offsets.committed_of_group(request.group_id, group is not None)
        wanted = request.topics
        if wanted is None:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in offsets:
                by_topic.setdefault(topic, []).append(partition)
            wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in by_topic.items()]
        topics = []
        for each in wanted:
            partitions = [
                self._offset_of(request.group_id, each.name, bytes(each.topic_id), index, offsets, require_stable)
                for index in each.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=each.name, topic_id=each.topic_id, partitions=partitions))
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics, error_code=Code.NONE)

    def _offset_of(
        self,
        group_id: str,
        topic: str,
        topic_id: bytes,
        index: int,
        offsets: dict[tuple[str, int], OffsetAndMetadata],
        require_stable: bool,
    ) -> OffsetFetchResponsePartitions:
        code = Code.NONE
        committed = offsets.get((topic, index))
        if require_stable and self.offsets.is_pending(group_id, topic, index):
            code, committed = Code.UNSTABLE_OFFSET_COMMIT, None
        elif committed is not None and NO_TOPIC_ID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id:
            committed = None  # of another topic of that name
        if committed is None:
            return OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
            )
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> CoordinatorResult[OffsetDeleteResponse]:
        """OffsetDelete: refused for topics that members read."""
        group = self.group(request.group_id)
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            code = Code.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else Code.NONE
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
                known = self.offsets.get(request.group_id, topic.name, index) is not None
                if code == Code.NONE and (known or self.offsets.is_pending(request.group_id, topic.name, index)):
                    records.append(offset_tombstone(request.group_id, topic.name, index))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return CoordinatorResult(records, OffsetDeleteResponse(error_code=Code.NONE, topics=topics))

    def topic_deleted(self, topic: str, topic_id: bytes, end_offset: int) -> Nothing:
        """A topic was deleted, and with it the offsets committed for it.

        Args:
            topic, topic_id: the topic.
            end_offset: of this shard's log at that time: if this comes late, offsets behind it may be those of a newer topic of that name.
        """
        doomed = dict.fromkeys(
            (group_id, index)
            for group_id, index, committed in self.offsets.groups_with(topic)
            if committed.topic_id == topic_id or (committed.topic_id == NO_TOPIC_ID and committed.record_offset < end_offset)
        )
        return CoordinatorResult([offset_tombstone(group_id, topic, index) for group_id, index in doomed], None, is_atomic=False)

    # ---- the end of offsets and groups

    def _schedule_expiration(self) -> None:
        self.timers.schedule(EXPIRATION_KEY, self.config.offsets_retention_check_interval_ms, self.clean_up)

    def clean_up(self) -> Nothing:
        """Forgets offsets that are too old, and groups without members and offsets."""
        self._schedule_expiration()
        now_ms = self.wall_ms()
        records: list[CoordinatorRecord] = []
        for group_id, group in list(self.groups.items()):
            with contained("the expiry of group %s", group_id):
                if self._expire_offsets(group_id, group, now_ms, records) and group.is_empty:
                    records.extend(self._tombstones(group))
        return CoordinatorResult(records, None, is_atomic=False)

    def _expire_offsets(self, group_id: str, group: Group, now_ms: int, records: list[CoordinatorRecord]) -> bool:
        """Adds the tombstones of what is too old; returns whether nothing is left."""
        held = self.offsets.of_group(group_id)
        if held:
            since = group.offsets_expire_since()
            if since is None:
                return False
            retention_ms = self.config.offsets_retention_minutes * 60_000

            def is_expired(committed: OffsetAndMetadata) -> bool:
                if committed.expire_ms >= 0:
                    return now_ms >= committed.expire_ms
                return now_ms - since(committed.commit_ms) >= retention_ms

            expired = self.offsets.expired(group_id, group.is_subscribed_to, is_expired)
            records.extend(offset_tombstone(group_id, *key) for key in expired)
            if len(expired) < len(held):
                return False
        return not self.offsets.has_pending(group_id)

    def _tombstones(self, group: Group) -> list[CoordinatorRecord]:
        return consumer_group_tombstones(group) if isinstance(group, ConsumerGroup) else [group_tombstone(group.group_id)]

    def delete_groups(self, group_ids: Sequence[str]) -> CoordinatorResult[list[DeletableGroupResult]]:
        """DeleteGroups: those without members, with their offsets."""
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in group_ids:
            try:
                group = self.group(group_id)
                group.validate_delete()
            except KafkaError as error:
                results.append(DeletableGroupResult(group_id=group_id, error_code=error.code or Code.UNKNOWN_SERVER_ERROR))
                continue
            records.extend(offset_tombstone(group_id, topic, index) for topic, index in self.offsets.known_partitions(group_id))
            records.extend(self._tombstones(group))
            results.append(DeletableGroupResult(group_id=group_id, error_code=Code.NONE))
        return CoordinatorResult(records, results, is_atomic=False)

    # ---- looking

    def list_groups(self, states: set[str], types: set[str]) -> list[ListedGroup]:
        """Groups in these states and of these types, in lower case; empty sets mean all."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.kind.lower() in types)
        ]

    def describe(self, version: int, group_id: str) -> DescribedGroup:
        """DescribeGroups for one group. What is not a classic group is dead; from v6 on that is an error."""
        group = self.classic_group(group_id)
        if group is None:
            known = group_id in self.groups
            message = f"Group {group_id} is not a classic group." if known else f"Group {group_id} not found."
            with_error = version >= FIRST_DESCRIBE_WITH_GROUP_ERRORS
            return DescribedGroup(
                error_code=Code.GROUP_ID_NOT_FOUND if with_error else Code.NONE,
                error_message=message if with_error else None,
                group_id=group_id,
                group_state=DEAD.value,
            )
        stable = group.state is STABLE
        name = group.protocol_name or ""
        return DescribedGroup(
            error_code=Code.NONE,
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=name if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols.get(name, b"") if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribeDescribedGroup:
        """ConsumerGroupDescribe for one group.

        Raises:
            GroupIdNotFound: there is no such group, or it is a classic one.
        """
        group = self.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise errors.GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return ConsumerGroupDescribeDescribedGroup(
            error_code=Code.NONE,
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(group.members.values()) or DEFAULT_ASSIGNOR,
            members=[
                ConsumerGroupDescribeMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topic_names),
                    subscribed_topic_regex=member.topic_regex,
                    assignment=self._described(member.assigned, member.pending_revocation),
                    target_assignment=self._described(
                        {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in group.target.get(member.member_id, {}).items()}
                    ),
                    member_type=0 if member.uses_classic_protocol else 1,
                )
                for member in group.members.values()
            ],
        )

    def _described(self, *owned: Owned) -> ConsumerGroupDescribeAssignment:
        partitions: dict[bytes, set[int]] = {}
        for each in owned:
            for topic_id, indexes in each.items():
                partitions.setdefault(topic_id, set()).update(indexes)
        found = []
        for topic_id, indexes_of in partitions.items():
            topic = self.topics.by_id(topic_id)
            if topic is not None:
                found.append(
                    ConsumerGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes_of))
                )
        return ConsumerGroupDescribeAssignment(topic_partitions=found)
