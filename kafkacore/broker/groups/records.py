"""What lies in __consumer_offsets: making it, and telling the kinds apart.

A key's version says what kind of record it is. Values are written in the versions Kafka 4.3 writes.

Source: org.apache.kafka.coordinator.group.{GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde}.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.broker.coordinator_shard import CoordinatorRecord, ReplayedRecord
from kafkacore.broker.groups.classic import ClassicGroup
from kafkacore.broker.groups.consumer import ConsumerGroup, ConsumerMember, Owned, Partitions, ResolvedRegex
from kafkacore.errors import CorruptDataError
from kafkacore.protocol import stored
from kafkacore.protocol.schema import Message

GROUP_METADATA_VALUE_VERSION = 3
NO_TOPIC_ID = bytes(16)

KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (stored.OffsetCommitKey, stored.OffsetCommitValue),
    1: (stored.OffsetCommitKey, stored.OffsetCommitValue),
    2: (stored.GroupMetadataKey, stored.GroupMetadataValue),
    3: (stored.ConsumerGroupMetadataKey, stored.ConsumerGroupMetadataValue),
    5: (stored.ConsumerGroupMemberMetadataKey, stored.ConsumerGroupMemberMetadataValue),
    6: (stored.ConsumerGroupTargetAssignmentMetadataKey, stored.ConsumerGroupTargetAssignmentMetadataValue),
    7: (stored.ConsumerGroupTargetAssignmentMemberKey, stored.ConsumerGroupTargetAssignmentMemberValue),
    8: (stored.ConsumerGroupCurrentMemberAssignmentKey, stored.ConsumerGroupCurrentMemberAssignmentValue),
    16: (stored.ConsumerGroupRegularExpressionKey, stored.ConsumerGroupRegularExpressionValue),
}
"""Key and value of each kind that means something here."""

OTHER_KINDS = frozenset({4, *range(9, 16), *range(17, 24)})
"""What Kafka before 4.1 noted of topics (4), and records of share and streams groups, which are not served: they are passed over."""

_KIND = struct.Struct(">h")


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the next record to read.
        leader_epoch: of the record before it; -1 if unknown.
        metadata: the client's.
        commit_ms: when it was committed.
        expire_ms: when it expires by itself; -1 unless an old client said so.
        topic_id: of the topic it was committed for; zero if the client did not say.
        record_offset: where its record lies.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID
    record_offset: int = -1


def read_record(record: ReplayedRecord) -> tuple[Message, Message | None]:
    """Key and value of a record; None as value of one that deletes.

    Raises:
        CorruptDataError: no such kind is known, or the bytes are not what the kind says.
    """
    if record.key is None or len(record.key) < _KIND.size:
        raise CorruptDataError("a record of __consumer_offsets has a key of at least 2 bytes")
    (kind,) = _KIND.unpack_from(record.key)
    if kind not in KINDS:
        raise CorruptDataError(f"records of kind {kind} are not known")
    key_type, value_type = KINDS[kind]
    return stored.decode_stored(key_type, record.key), None if record.value is None else stored.decode_stored(value_type, record.value)


def is_passed_over(record: ReplayedRecord) -> bool:
    """Whether a record of Kafka's means nothing here."""
    return record.key is not None and len(record.key) >= _KIND.size and _KIND.unpack_from(record.key)[0] in OTHER_KINDS


def make(key: Message, value: Message | None, value_version: int = 0) -> CoordinatorRecord:
    """A record of the newest kind of its key; without a value it deletes."""
    return CoordinatorRecord(
        stored.encode_stored(key, type(key).MAX_VERSION), None if value is None else stored.encode_stored(value, value_version)
    )


def offset_record(group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> CoordinatorRecord:
    """A committed offset. Version 1 of the value is the only one that can expire by itself."""
    value = stored.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
        topic_id=committed.topic_id,
    )
    return make(stored.OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, 4 if committed.expire_ms < 0 else 1)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Forgets an offset."""
    return make(stored.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes], rebalances: bool = False) -> CoordinatorRecord:
    """A classic group with what its members get. Without a leader, if a rebalance is due that the log would else know nothing of."""
    name = group.protocol_name or ""
    value = stored.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=None if rebalances else group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            stored.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[name],
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return make(stored.GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VALUE_VERSION)


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A classic group that has just come into being."""
    value = stored.GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms, members=[]
    )
    return make(stored.GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VALUE_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Forgets a classic group."""
    return make(stored.GroupMetadataKey(group=group_id), None)


# ---- KIP-848 groups


def new_member_id() -> str:
    """An id for a member that lets the broker choose, as Kafka writes UUIDs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The epoch of a consumer group."""
    value = stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return make(stored.ConsumerGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What a member wants."""
    value = stored.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return make(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    """What a member is to have."""
    topics = [stored.TargetTopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()]
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return make(key, stored.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The target is that of a group epoch."""
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    return make(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """What a member has."""
    value = stored.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    return make(stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def _with_epochs(owned: Owned) -> list[stored.CurrentTopicPartitions]:
    return [
        stored.CurrentTopicPartitions(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The topics an expression matches."""
    key = stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = stored.ConsumerGroupRegularExpressionValue(topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.wall_ms)
    return make(key, value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """No member subscribes to an expression any more."""
    return make(stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Forgets a member."""
    return [
        make(stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        make(stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        make(stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def replacement(group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember) -> list[CoordinatorRecord]:
    """A static member goes on under another id, with what it had and was to have."""
    return [
        *member_tombstones(group.group_id, old.member_id),
        member_record(group.group_id, new),
        target_record(group.group_id, new.member_id, group.target.get(old.member_id, {})),
        current_record(group.group_id, new),
    ]


def consumer_group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Forgets a consumer group with its members."""
    group_id = group.group_id
    return [
        *(record for member_id in group.members for record in member_tombstones(group_id, member_id)),
        make(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(regex_tombstone(group_id, regex) for regex in group.regexes),
        make(stored.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
