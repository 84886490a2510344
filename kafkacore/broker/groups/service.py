"""The group coordinator as the handlers see it: finds the shard, checks what needs no state, and gives every error its place.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kafkacore import errors
from kafkacore.broker.cluster import ClusterImage, ImageDelta, ImageListener, Topic
from kafkacore.broker.configs import Resource
from kafkacore.broker.coordinator import TIMER_RETRY_MS, CoordinatorRuntime, ShardTimers
from kafkacore.broker.coordinator_shard import CoordinatorResult, partition_for
from kafkacore.broker.delayed_groups import GroupPurgatories
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.groups.consumer_membership import TopicInfo, check_request
from kafkacore.broker.groups.membership import Nothing, RequestContext, join_error, sync_error
from kafkacore.broker.groups.regex_resolver import RegexResolver
from kafkacore.broker.groups.shard import GroupShard, Timers
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeletableGroupResult,
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupResponse,
    WritableTxnMarker,
)
from kafkacore.timer import LoopTimer

logger = logging.getLogger(__name__)

FIRST_FETCH_WITH_GROUP_ERROR = 2
T = TypeVar("T")


def code_of(error: KafkaError) -> int:
    """What an answer says of an error."""
    return error.code if error.code is not None else Code.UNKNOWN_SERVER_ERROR


class ImageTopics:
    """The topics of a broker's image, as groups see them.

    Attributes:
        version: counted here.
    """

    def __init__(self, image: ClusterImage) -> None:
        """Looks at an image, which may change."""
        self._image = image
        self.version = 0

    def by_name(self, name: str) -> TopicInfo | None:
        """A topic by name."""
        return _info(self._image.topics.get(name))

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """A topic by id."""
        return _info(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        """All names."""
        return self._image.topics


def _info(topic: Topic | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))


class GroupCoordinator(ImageListener):
    """The groups of the partitions that one broker leads."""

    def __init__(self, config: BrokerConfig, replicas: ReplicaManager, image: ClusterImage, timer: LoopTimer, clock: Clock) -> None:
        """Serves what `replicas` says it leads.

        Args:
            config: of the broker.
            replicas: where the partitions of __consumer_offsets are.
            image: the broker's view of the cluster and its topics.
            timer: of the broker's loop.
            clock: the time.
        """
        self._config = config
        self._clock = clock
        self._image = image
        self._topics = ImageTopics(image)
        self._resolver = RegexResolver(clock.now_ms, self._topics.names)
        self.purgatories = GroupPurgatories(clock)
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            GROUP_TOPIC, replicas, self._make_shard, timer, clock, config.offsets_commit_timeout_ms
        )

    def set_config(self, config: BrokerConfig) -> None:
        """Other settings of the broker.

        Args:
            config: from now on.
        """
        self._config = config
        for shard in self.runtime.shards():
            shard.config = config

    def _make_shard(self, partition: int, timers: ShardTimers[GroupShard]) -> GroupShard:
        def submit(operation: Callable[[], Nothing]) -> None:
            def run(current: GroupShard) -> Nothing:
                # A shard that has been replaced in the meantime has nothing to say any more.
                return operation() if current is shard else CoordinatorResult([], None)

            def done(outcome: KafkaError | None) -> None:
                if isinstance(outcome, KafkaError) and not isinstance(outcome, errors.NotCoordinator):
                    logger.warning("%s-%d: a group's operation failed: %s", GROUP_TOPIC, partition, outcome)

            self.runtime.write(partition, run, done)

        def schedule(key: str, delay_ms: int, operation: Callable[[], Nothing]) -> None:
            timers.schedule(key, delay_ms, lambda _: operation())

        shard = GroupShard(
            self._config,
            self.purgatories,
            Timers(schedule, timers.cancel, timers.is_scheduled),
            self._topics,
            self._clock.wall_ms,
            submit,
            self._resolver,
            lambda group_id: self._image.configs.get((Resource.GROUP, group_id), {}),
        )
        return shard

    def partition_of(self, group_id: str) -> int:
        """The partition that keeps a group."""
        topic = self._image.topics.get(GROUP_TOPIC)
        return partition_for(group_id, self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions))

    def _write(
        self, group_id: str, operation: Callable[[GroupShard], CoordinatorResult[T]], done: Callable[[T | KafkaError], None]
    ) -> None:
        self.runtime.write(self.partition_of(group_id), operation, done, group_id)

    # ---- classic members

    def join(self, context: RequestContext, request: JoinGroupRequest, respond: Callable[[JoinGroupResponse], None]) -> None:
        """JoinGroup; answered when the member's generation begins."""
        if not request.group_id:
            respond(join_error(Code.INVALID_GROUP_ID, request.member_id))
            return
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            respond(join_error(Code.INVALID_SESSION_TIMEOUT, request.member_id))
            return
        self._write(
            request.group_id,
            lambda shard: shard.join(context, request, respond),
            lambda outcome: respond(join_error(code_of(outcome))) if isinstance(outcome, KafkaError) else None,
        )

    def sync(self, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]) -> None:
        """SyncGroup; answered when the leader has brought the assignment."""
        if not request.group_id:
            respond(sync_error(Code.INVALID_GROUP_ID))
            return
        self._write(
            request.group_id,
            lambda shard: shard.sync(request, respond),
            lambda outcome: respond(sync_error(code_of(outcome))) if isinstance(outcome, KafkaError) else None,
        )

    def heartbeat(self, request: HeartbeatRequest, respond: Callable[[HeartbeatResponse], None]) -> None:
        """Heartbeat. While the group is being loaded members hear that all is well: they need do nothing."""

        def done(outcome: HeartbeatResponse | KafkaError) -> None:
            if isinstance(outcome, errors.CoordinatorLoadInProgress):
                outcome = HeartbeatResponse(error_code=Code.NONE)
            respond(HeartbeatResponse(error_code=code_of(outcome)) if isinstance(outcome, KafkaError) else outcome)

        if not request.group_id:
            respond(HeartbeatResponse(error_code=Code.INVALID_GROUP_ID))
            return
        self._write(request.group_id, lambda shard: shard.heartbeat(request), done)

    def leave(self, request: LeaveGroupRequest, respond: Callable[[LeaveGroupResponse], None]) -> None:
        """LeaveGroup, in its form for several members."""

        def done(outcome: LeaveGroupResponse | KafkaError) -> None:
            if isinstance(outcome, errors.UnknownMemberId):
                unknown = [
                    MemberResponse(
                        member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=Code.UNKNOWN_MEMBER_ID
                    )
                    for each in request.members
                ]
                respond(LeaveGroupResponse(error_code=Code.NONE, members=unknown))
            else:
                respond(LeaveGroupResponse(error_code=code_of(outcome)) if isinstance(outcome, KafkaError) else outcome)

        if not request.group_id:
            respond(LeaveGroupResponse(error_code=Code.INVALID_GROUP_ID))
            return
        self._write(request.group_id, lambda shard: shard.leave(request), done)

    # ---- members of consumer groups

    def consumer_heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest, respond: Callable[[ConsumerGroupHeartbeatResponse], None]
    ) -> None:
        """ConsumerGroupHeartbeat."""

        def done(outcome: ConsumerGroupHeartbeatResponse | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                outcome = ConsumerGroupHeartbeatResponse(error_code=code_of(outcome), error_message=outcome.message)
            respond(outcome)

        try:
            check_request(request, context.version)
        except KafkaError as error:
            done(error)
            return
        self._write(request.group_id, lambda shard: shard.consumer_heartbeat(context, request), done)

    def describe_consumer_group(self, group_id: str, respond: Callable[[ConsumerGroupDescribeDescribedGroup], None]) -> None:
        """ConsumerGroupDescribe for one group."""

        def done(outcome: ConsumerGroupDescribeDescribedGroup | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                shown = outcome.message if isinstance(outcome, errors.GroupIdNotFound) else None
                outcome = ConsumerGroupDescribeDescribedGroup(error_code=code_of(outcome), error_message=shown, group_id=group_id)
            respond(outcome)

        if not group_id:
            respond(ConsumerGroupDescribeDescribedGroup(error_code=Code.INVALID_GROUP_ID, group_id=""))
            return
        self.runtime.read(self.partition_of(group_id), lambda shard: shard.describe_consumer_group(group_id), done, group_id)

    # ---- offsets

    def commit(self, version: int, request: OffsetCommitRequest, done: Callable[[OffsetCommitResponse | KafkaError], None]) -> None:
        """OffsetCommit of topics that exist. The empty group id is allowed, for the sake of very old clients."""
        self._write(request.group_id, lambda shard: shard.commit(version, request), done)

    def write_marker(self, partition: int, marker: WritableTxnMarker, done: Callable[[KafkaError | None], None]) -> None:
        """Ends a producer's transaction in a partition of __consumer_offsets: its offsets come into force, or are forgotten."""
        self.runtime.complete_transaction(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            done,
            marker.transaction_version,
            self._config.request_timeout_ms,
        )

    def fetch_offsets(
        self,
        version: int,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
        respond: Callable[[OffsetFetchResponseGroup], None],
    ) -> None:
        """OffsetFetch for one group, at once: the offsets of the last committed records. With require_stable it waits for those that are
        not committed yet. Consumers before Kafka 3.9 do not know COORDINATOR_NOT_AVAILABLE here, and ask again after NOT_COORDINATOR."""

        def done(outcome: OffsetFetchResponseGroup | KafkaError) -> None:
            if isinstance(outcome, errors.CoordinatorNotAvailable):
                outcome = errors.NotCoordinator(outcome.message)
            respond(fetch_error(version, request, code_of(outcome)) if isinstance(outcome, KafkaError) else outcome)

        partition = self.partition_of(request.group_id)
        if require_stable:
            self.runtime.read(partition, lambda shard: shard.fetch_offsets(request, True), done, request.group_id)
        else:
            self.runtime.read_committed(partition, lambda shard: shard.fetch_offsets(request, False), done)

    def delete_offsets(self, request: OffsetDeleteRequest, respond: Callable[[OffsetDeleteResponse], None]) -> None:
        """OffsetDelete."""

        def done(outcome: OffsetDeleteResponse | KafkaError) -> None:
            respond(OffsetDeleteResponse(error_code=code_of(outcome)) if isinstance(outcome, KafkaError) else outcome)

        if not request.group_id:
            respond(OffsetDeleteResponse(error_code=Code.INVALID_GROUP_ID))
            return
        self._write(request.group_id, lambda shard: shard.delete_offsets(request), done)

    def image_changed(self, delta: ImageDelta) -> None:
        """Forgets the offsets committed for deleted topics; consumer groups look at their topics with their next heartbeats."""
        if delta.created_topics or delta.deleted_topics or any(change.before is None for change in delta.partitions):
            self._topics.version += 1
        for topic in delta.deleted_topics:
            for partition in self.runtime.held():
                with contained("the offsets of deleted topic %s in %s-%d", topic.name, GROUP_TOPIC, partition):
                    self._topic_deleted(topic, partition)

    def _topic_deleted(self, topic: Topic, partition: int) -> None:
        end_offset = self.runtime.end_offset(partition)

        def forget(shard: GroupShard) -> Nothing:
            return shard.topic_deleted(topic.name, topic.topic_id, end_offset)

        def done(outcome: KafkaError | None) -> None:
            if isinstance(outcome, KafkaError) and not isinstance(outcome, errors.NotCoordinator):
                logger.warning("%s-%d: offsets of deleted topic %s stay for now: %s", GROUP_TOPIC, partition, topic.name, outcome)
                self.runtime.schedule(partition, f"deleted-{topic.topic_id.hex()}", TIMER_RETRY_MS, forget)

        self.runtime.write(partition, forget, done)

    # ---- looking at and removing groups

    def list_groups(self, request: ListGroupsRequest, respond: Callable[[ListGroupsResponse], None]) -> None:
        """ListGroups: what this broker coordinates, at once: a group's state is in memory between its records anyway. While one of its
        partitions is being loaded the list cannot be complete."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}

        def done(outcomes: list[list[ListedGroup] | KafkaError]) -> None:
            groups: list[ListedGroup] = []
            for outcome in outcomes:
                if not isinstance(outcome, KafkaError):
                    groups.extend(outcome)
                elif not isinstance(outcome, errors.NotCoordinator):
                    respond(ListGroupsResponse(error_code=code_of(outcome), groups=[]))
                    return
            respond(ListGroupsResponse(error_code=Code.NONE, groups=groups))

        partitions = self.runtime.held()
        gather(
            [
                lambda each, index=index: self.runtime.read_committed(  # type: ignore[misc]
                    index, lambda shard: shard.list_groups(states, types), each
                )
                for index in partitions
            ],
            done,
        )

    def describe(self, version: int, group_id: str, respond: Callable[[DescribedGroup], None]) -> None:
        """DescribeGroups for one group; waits for records of the group that are not committed yet, not for those of others."""

        def done(outcome: DescribedGroup | KafkaError) -> None:
            respond(DescribedGroup(error_code=code_of(outcome), group_id=group_id) if isinstance(outcome, KafkaError) else outcome)

        self.runtime.read(self.partition_of(group_id), lambda shard: shard.describe(version, group_id), done, group_id)

    def delete_groups(self, group_ids: Sequence[str], respond: Callable[[list[DeletableGroupResult]], None]) -> None:
        """DeleteGroups."""
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_partition.setdefault(self.partition_of(group_id), []).append(group_id)

        def ask(partition: int, ids: list[str]) -> Callable[[Callable[[Any], None]], None]:
            return lambda each: self.runtime.write(partition, lambda shard: shard.delete_groups(ids), each)

        def done(outcomes: list[list[DeletableGroupResult] | KafkaError]) -> None:
            results: list[DeletableGroupResult] = []
            for ids, outcome in zip(by_partition.values(), outcomes, strict=True):
                if isinstance(outcome, KafkaError):
                    results.extend(DeletableGroupResult(group_id=group_id, error_code=code_of(outcome)) for group_id in ids)
                else:
                    results.extend(outcome)
            respond(results)

        gather([ask(partition, ids) for partition, ids in by_partition.items()], done)

    def close(self) -> None:
        """Drops all shards."""
        self.runtime.close()


def gather(questions: Iterable[Callable[[Callable[[Any], None]], None]], done: Callable[[list[Any]], None]) -> None:
    """Asks several questions and calls `done` with their answers in order, when the last one is there."""
    asked = list(questions)
    answers: list[Any] = [None] * len(asked)
    left = len(asked)
    if not asked:
        done([])

    def answered(nth: int) -> Callable[[Any], None]:
        def note(answer: Any) -> None:
            nonlocal left
            answers[nth] = answer
            left -= 1
            if left == 0:
                done(answers)

        return note

    for nth, question in enumerate(asked):
        question(answered(nth))


def fetch_error(version: int, request: OffsetFetchRequestGroup, code: int) -> OffsetFetchResponseGroup:
    """The answer for a group whose offsets cannot be given. Version 1 has no place for it but the partitions."""
    topics = []
    if version < FIRST_FETCH_WITH_GROUP_ERROR:
        for topic in request.topics or []:
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics, error_code=code)
