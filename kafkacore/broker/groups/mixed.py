"""Members of both protocols in one group, so that an application can be moved from one to the other a member at a time.

    classic group     --first member of the consumer protocol--> consumer group, whose other members still speak the classic one
    consumer group    --last member of the consumer protocol leaves--> classic group

A classic member of a consumer group has no leader and waits for no other: JoinGroup is its heartbeat with news, answered at once with its
epoch as generation; SyncGroup fetches what it has; Heartbeat tells it (REBALANCE_IN_PROGRESS) when it should join again.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager: convertToConsumerGroup, convertToClassicGroup, and its methods named
classicGroup...ToConsumerGroup; KIP-848.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult
from kafkacore.broker.groups import records as make
from kafkacore.broker.groups.classic import CONSUMER_PROTOCOL_TYPE, STABLE, ClassicGroup, ClassicMember
from kafkacore.broker.groups.consumer import JOINING_EPOCH, ConsumerGroup, ConsumerMember, MemberState, Partitions
from kafkacore.broker.groups.consumer_membership import ConsumerMembership, Timers, Topics, check_instance, join_key, sync_key
from kafkacore.broker.groups.membership import (
    FIRST_JOIN_WITH_KNOWN_ID,
    NOTHING,
    ClassicMembership,
    Nothing,
    RequestContext,
    assignments_of,
    join_error,
    rebalance_timeout_ms,
    sync_error,
)
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, CorruptDataError, KafkaError
from kafkacore.protocol import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkacore.protocol.stored import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_stored,
    encode_stored,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
_UPGRADES, _DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")


class Owner(Protocol):
    """What mixed groups need of their shard."""

    config: BrokerConfig
    topics: Topics
    membership: ClassicMembership
    consumers: ConsumerMembership

    @property
    def timers(self) -> Timers: ...

    def wall_ms(self) -> int:
        """The time now."""

    def replace_group(self, group_id: str, group: ClassicGroup | ConsumerGroup) -> None:
        """Puts a group in another's place."""


class MixedMembership:
    """The conversions of one shard's groups, and classic members of its consumer groups."""

    def __init__(self, owner: Owner) -> None:
        """For a shard."""
        self._owner = owner

    # ---- classic -> consumer

    def upgrade(self, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """A classic group with members becomes a consumer group: who waits joins again, everybody keeps what it has.

        Raises:
            GroupIdNotFound: that is not possible, or not allowed.
        """
        group_id, config = classic.group_id, self._owner.config
        prefix = f"Cannot upgrade classic group {group_id} to consumer group because"
        if config.migration_policy() not in _UPGRADES:
            raise errors.GroupIdNotFound(f"{prefix} online upgrade is disabled.")
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise errors.GroupIdNotFound(f"{prefix} the group does not use the consumer embedded protocol.")
        if len(classic.members) > config.group_consumer_max_size:
            raise errors.GroupIdNotFound(f"{prefix} the group size exceeds the consumer group maximum size.")
        group = ConsumerGroup(group_id)
        group.epoch = group.assignment_epoch = classic.generation
        try:
            for each in classic.members.values():
                member, target = self._upgraded(classic, each)
                group.put_member(member)
                group.target[member.member_id] = target
        except CorruptDataError:
            raise errors.GroupIdNotFound(f"{prefix} the embedded consumer protocol is malformed.") from None
        group.metadata_hash = self._owner.consumers.hash_of(group.subscribed_names())
        for each in classic.members.values():
            classic.complete_join(each, join_error(Code.REBALANCE_IN_PROGRESS, each.member_id))
            classic.complete_sync(each, sync_error(Code.REBALANCE_IN_PROGRESS))
            self._owner.consumers.watch_session(group_id, each.member_id, each.session_timeout_ms)
        records.append(make.group_tombstone(group_id))
        records.extend(make.member_record(group_id, member) for member in group.members.values())
        records.append(make.group_epoch_record(group_id, group.epoch, group.metadata_hash))
        records.extend(make.target_record(group_id, member_id, target) for member_id, target in group.target.items())
        records.append(make.target_epoch_record(group_id, group.assignment_epoch, 0))
        records.extend(make.current_record(group_id, member) for member in group.members.values())
        logger.info("classic group %s becomes a consumer group", group_id)
        return group

    def _upgraded(self, classic: ClassicGroup, member: ClassicMember) -> tuple[ConsumerMember, Partitions]:
        name = classic.protocol_name if classic.protocol_name in member.protocols else next(iter(member.protocols))
        subscription = decode_stored(ConsumerProtocolSubscription, member.protocols[name or ""])
        target: Partitions = {}
        if member.assignment:
            assignment = decode_stored(ConsumerProtocolAssignment, member.assignment)
            if assignment.user_data:
                raise errors.GroupIdNotFound(
                    f"Cannot upgrade classic group {classic.group_id} to consumer group because an unsupported custom assignor is in use. "
                    "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
                )
            target = self._by_id(assignment.assigned_partitions)
        generation = classic.generation
        return (
            ConsumerMember(
                member.member_id,
                epoch=generation,
                previous_epoch=generation,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=frozenset(subscription.topics),
                assigned={topic_id: dict.fromkeys(sorted(partitions), generation) for topic_id, partitions in target.items()},
                classic=_metadata(member.session_timeout_ms, member.protocols),
            ),
            target,
        )

    def _by_id(self, topics: Sequence[ConsumerProtocolTopicPartition]) -> Partitions:
        found = ((self._owner.topics.by_name(each.topic), each.partitions) for each in topics)
        return {topic.topic_id: frozenset(partitions) for topic, partitions in found if topic is not None and partitions}

    # ---- consumer -> classic

    def downgrade_without(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], response: T) -> CoordinatorResult[T] | None:
        """If no member is left that speaks the consumer protocol, the group becomes a classic one; else None."""
        if group.consumer_count > len(leaving):
            return None
        gone = {member.member_id for member in leaving}
        left = [member for member in group.members.values() if member.member_id not in gone]
        if not left or not all(member.uses_classic_protocol for member in left) or not self._may_downgrade(len(left)):
            return None
        return self._downgrade(group, left, {member.member_id: member.member_id for member in left}, response, True)

    def _may_downgrade(self, members: int) -> bool:
        config = self._owner.config
        return config.migration_policy() in _DOWNGRADES and members <= config.group_max_size

    def _downgrade(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        targets: Mapping[str, str],
        response: T,
        rebalance: bool,
        committed: Callable[[KafkaError | None], None] | None = None,
    ) -> CoordinatorResult[T]:
        """The group as a classic one; targets says under whose id each member's target is."""
        owner, group_id = self._owner, group.group_id
        classic = ClassicGroup(group_id, STABLE, owner.wall_ms())
        classic.generation = group.epoch
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        for member in members:
            metadata = member.classic or ClassicMemberMetadata()
            classic.add(
                ClassicMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    metadata.session_timeout_ms,
                    CONSUMER_PROTOCOL_TYPE,
                    [JoinGroupRequestProtocol(name=each.name, metadata=each.metadata) for each in metadata.supported_protocols],
                    self._assignment(member, group.target.get(targets[member.member_id], {})),
                )
            )
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for member_id in group.members:
            owner.consumers.forget(group_id, member_id)
        records = [*make.consumer_group_tombstones(group), make.group_record(classic, assignments_of(classic), rebalance)]
        owner.replace_group(group_id, classic)
        owner.membership.watch_all_sessions(classic)
        if rebalance:
            owner.membership.prepare_rebalance(classic, "the last member of the consumer protocol has left")
        logger.info("consumer group %s becomes a classic group", group_id)

        def appended(error: KafkaError | None) -> None:
            if error is not None:  # nothing was written, so it is what it was
                owner.membership.forget(classic, error.code or Code.UNKNOWN_SERVER_ERROR)
                owner.replace_group(group_id, group)
                owner.consumers.watch_all(group)

        return CoordinatorResult(records, response, False, appended, committed)

    def _assignment(self, member: ConsumerMember, partitions: Mapping[bytes, frozenset[int]]) -> bytes:
        """What a classic member is given, in the version it speaks."""
        topics = []
        for topic_id, indexes in partitions.items():
            topic = self._owner.topics.by_id(topic_id)
            if topic is not None:
                topics.append(ConsumerProtocolTopicPartition(topic=topic.name, partitions=sorted(indexes)))
        version = int.from_bytes(_first_protocol(member).metadata[:2], "big", signed=True)
        version = min(max(version, ConsumerProtocolAssignment.MIN_VERSION), ConsumerProtocolAssignment.MAX_VERSION)
        return encode_stored(ConsumerProtocolAssignment(assigned_partitions=topics), version)

    # ---- classic members of a consumer group

    def join(
        self, group: ConsumerGroup, context: RequestContext, request: JoinGroupRequest, respond: Callable[[JoinGroupResponse], None]
    ) -> Nothing:
        """JoinGroup, answered at once: no member is waited for.

        Raises:
            BrokerError: why the member is not let in.
        """
        owner, group_id = self._owner, group.group_id
        if owner.config.migration_policy() == "disabled":
            raise errors.InconsistentGroupProtocol(f"group {group_id} takes no members of the classic protocol")
        unknown = not request.member_id
        member_id = request.member_id or make.new_member_id()
        if len(group.members) >= owner.config.group_consumer_max_size and member_id not in group.members:
            raise errors.GroupMaxSizeReached(f"consumer group {group_id} is full")
        self._check_protocols(group, request)
        instance_id = request.group_instance_id
        if unknown and instance_id is None and context.version >= FIRST_JOIN_WITH_KNOWN_ID:
            respond(join_error(Code.MEMBER_ID_REQUIRED, member_id))
            return NOTHING
        try:
            subscription = decode_stored(ConsumerProtocolSubscription, request.protocols[0].metadata)
        except CorruptDataError as error:
            raise errors.UnknownServer(f"the subscription cannot be read: {error.message}") from None
        records: list[CoordinatorRecord] = []
        replaced = group.static_member(instance_id) if instance_id is not None else None
        member = self._joining(group, member_id, instance_id, unknown, replaced, records)
        downgrade = (
            replaced is not None
            and not replaced.uses_classic_protocol
            and group.consumer_count == 1
            and self._may_downgrade(len(group.members))
        )
        updated = member._replace(
            instance_id=instance_id if instance_id is not None else member.instance_id,
            rack_id=subscription.rack_id if subscription.rack_id is not None else member.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            topic_names=frozenset(subscription.topics),
            topic_regex="",
            client_id=context.client_id,
            client_host=context.client_host,
            classic=_metadata(request.session_timeout_ms, {each.name: bytes(each.metadata) for each in request.protocols}),
        )
        if downgrade and replaced is not None:
            news = updated.topic_names != member.topic_names or updated.topic_regex != member.topic_regex
            others = [each for each in group.members.values() if each.member_id != replaced.member_id]
            return self._downgrade_by_joining(group, [*others, updated], updated, replaced, news, respond)
        owned = self._by_id(subscription.owned_partitions)
        after = owner.consumers.advance(context, group, member, updated, owned, records)
        response = self._joined(updated, after.epoch)

        def committed(error: KafkaError | None) -> None:
            if error is None:
                owner.timers.cancel(join_key(group_id, member_id))
                owner.consumers.watch_session(group_id, member_id, request.session_timeout_ms)
                self._watch(sync_key(group_id, member_id), group_id, member_id, updated.rebalance_timeout_ms, "did not sync in time")
                respond(response)

        return CoordinatorResult(records, None, committed=committed)

    def _downgrade_by_joining(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        joining: ConsumerMember,
        replaced: ConsumerMember,
        news: bool,
        respond: Callable[[JoinGroupResponse], None],
    ) -> Nothing:
        """A static member comes back with the classic protocol, and was the last of the other. If the target is not made for what the
        members want now, they join once more; the member's epoch, which is not the generation's, then sends it back to that."""
        targets = {each.member_id: each.member_id for each in members} | {joining.member_id: replaced.member_id}
        names = group.subscribed_names(group.replaced_by(joining), joining)
        stale = news or group.assignment_epoch < group.epoch or self._owner.consumers.hash_of(names) != group.metadata_hash
        response = self._joined(joining, joining.epoch if stale else group.epoch)

        def committed(error: KafkaError | None) -> None:
            if error is None:
                respond(response)

        return self._downgrade(group, members, targets, None, stale, committed)

    @staticmethod
    def _joined(member: ConsumerMember, epoch: int) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=Code.NONE,
            generation_id=epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_first_protocol(member).name,
            member_id=member.member_id,
        )

    def _check_protocols(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        classic = [member.classic for member in group.members.values() if member.classic is not None]
        known = [{each.name for each in metadata.supported_protocols} for metadata in classic]
        fits = any(all(protocol.name in names for names in known) for protocol in request.protocols)
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not fits:
            raise errors.InconsistentGroupProtocol(f"the protocols do not fit those of the other classic members of group {group.group_id}")

    def _joining(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        unknown: bool,
        existing: ConsumerMember | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        if instance_id is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        if not unknown:
            if existing is None:
                raise errors.UnknownMemberId(f"Instance id {instance_id} is unknown.")
            check_instance(existing, member_id, instance_id)
            return existing
        if existing is None:
            return ConsumerMember(member_id)
        replacement = existing._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        records.extend(make.replacement(group, existing, replacement))
        return replacement

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]) -> Nothing:
        """SyncGroup: what the member has.

        Raises:
            BrokerError: why it is refused.
        """
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, _first_protocol(member).name):
            raise errors.InconsistentGroupProtocol("type or name of the protocol are not those of the answer to JoinGroup")
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group.group_id, member)
            raise errors.RebalanceInProgress(f"member {member.member_id} should join again")
        assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        metadata = member.classic or ClassicMemberMetadata()

        def committed(error: KafkaError | None) -> None:
            if error is None:
                self._owner.timers.cancel(sync_key(group.group_id, member.member_id))
                self._owner.consumers.watch_session(group.group_id, member.member_id, metadata.session_timeout_ms)
                respond(
                    SyncGroupResponse(
                        error_code=Code.NONE,
                        protocol_type=request.protocol_type,
                        protocol_name=request.protocol_name,
                        assignment=self._assignment(member, assigned),
                    )
                )

        return CoordinatorResult([], None, committed=committed)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """Heartbeat: REBALANCE_IN_PROGRESS if joining again would change something.

        Raises:
            BrokerError: it is no such member, or not in this generation.
        """
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        metadata = member.classic or ClassicMemberMetadata()
        self._owner.consumers.watch_session(group.group_id, member.member_id, metadata.session_timeout_ms)
        behind = member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS
        released = member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(group, member)
        if not (behind or released):
            return CoordinatorResult([], HeartbeatResponse(error_code=Code.NONE))
        self._expect_join(group.group_id, member)
        return CoordinatorResult([], HeartbeatResponse(error_code=Code.REBALANCE_IN_PROGRESS))

    @staticmethod
    def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
        target = group.target.get(member.member_id, {})
        return any(
            partition not in member.assigned.get(topic_id, {}) and group.holder(topic_id, partition) is not None
            for topic_id, partitions in target.items()
            for partition in partitions
        )

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """LeaveGroup, also of members that speak the consumer protocol: an admin may remove them."""
        answers: list[MemberResponse] = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in request.members:
            code: int = Code.NONE
            try:
                member = self._leaving(group, identity)
            except KafkaError as error:
                code = error.code or Code.UNKNOWN_SERVER_ERROR
            else:
                leaving[member.member_id] = member
            answers.append(
                MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            )
        return self._owner.consumers.removal(group, list(leaving.values()), LeaveGroupResponse(error_code=Code.NONE, members=answers))

    @staticmethod
    def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        if identity.group_instance_id is None:
            return group.member(identity.member_id)
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {identity.group_instance_id} is unknown.")
        if identity.member_id:
            check_instance(member, identity.member_id, identity.group_instance_id)
        return member

    def _classic_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            found = group.static_member(instance_id)
            if found is None:
                raise errors.UnknownMemberId(f"Member with instance id {instance_id} is not a member of group {group.group_id}.")
            check_instance(found, member_id, instance_id)
            member = found
        if not member.uses_classic_protocol:
            raise errors.UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        return member

    def _expect_join(self, group_id: str, member: ConsumerMember) -> None:
        key = join_key(group_id, member.member_id)
        if not self._owner.timers.is_scheduled(key):
            self._watch(key, group_id, member.member_id, member.rebalance_timeout_ms, "did not join again in time")

    def _watch(self, key: str, group_id: str, member_id: str, timeout_ms: int, why: str) -> None:
        self._owner.timers.schedule(key, timeout_ms, lambda: self._owner.consumers.expire(group_id, member_id, None, why))


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise errors.IllegalGeneration(f"member {member.member_id} is in epoch {member.epoch}, not {generation}")


def _first_protocol(member: ConsumerMember) -> ClassicProtocol:
    protocols = member.classic.supported_protocols if member.classic is not None else []
    return protocols[0] if protocols else ClassicProtocol()


def _metadata(session_timeout_ms: int, protocols: Mapping[str, bytes]) -> ClassicMemberMetadata:
    supported = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols.items()]
    return ClassicMemberMetadata(session_timeout_ms=session_timeout_ms, supported_protocols=supported)
