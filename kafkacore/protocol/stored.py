"""Messages that live in logs and inside other messages, each after an int16 version of its own.

The consumer protocol travels in JoinGroup and SyncGroup, a principal in Envelope; the others are keys and values of __consumer_offsets
and __transaction_state, where a key's version says what kind of record it is and a null value deletes. The first and last record of a
metadata snapshot have their version in a field.

Source: Kafka's definitions in clients/, group-coordinator/ and transaction-coordinator/src/main/resources/common/message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from kafkacore.errors import CorruptDataError
from kafkacore.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, F, Message, Struct

if TYPE_CHECKING:
    from kafkacore._codec import Buffer

M = TypeVar("M", bound=Message)
_VERSION = struct.Struct(">h")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """First record of a snapshot of the metadata log: when the last record that it replaces was written."""

    version: int = F(INT16)
    last_contained_log_timestamp: int = F(INT64)


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Last record of a snapshot: without it the snapshot is torn."""

    version: int = F(INT16)


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """Who a client is, as brokers say it to the controller (KIP-590)."""

    type: str = F(STRING)
    name: str = F(STRING)
    token_authenticated: bool = F(BOOL)


class ConsumerProtocolTopicPartition(Struct):
    topic: str = F(STRING)
    partitions: list[int] = F([INT32])


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a member of a classic group wants, and from version 1 on what it still owns (cooperative rebalancing)."""

    topics: list[str] = F([STRING])
    user_data: bytes | None = F(BYTES, nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolTopicPartition] = F([ConsumerProtocolTopicPartition], "1+", ignorable=True)
    generation_id: int = F(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = F(STRING, "3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What a member of a classic group gets."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = F([ConsumerProtocolTopicPartition])
    user_data: bytes | None = F(BYTES, nullable="0+", default=None)


class StickyAssignorUserData(Message, versions="0-1"):
    """What a member of a classic group adds to its subscription for the sticky assignor. No version is before it: a reader
    tries the newest first.
    """

    previous_assignment: list[ConsumerProtocolTopicPartition] = F([ConsumerProtocolTopicPartition])
    generation: int = F(INT32, "1+", default=-1, ignorable=True)


class CooperativeStickyAssignorUserData(Message, versions="0"):
    """The same for the cooperative sticky assignor, without a version as well; what the member owns is in its subscription."""

    generation: int = F(INT32)


class OffsetCommitKey(Message, versions="0-1"):
    """Key of a committed offset."""

    group: str = F(STRING)
    topic: str = F(STRING)
    partition: int = F(INT32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset; version 1 could expire on its own."""

    offset: int = F(INT64)
    leader_epoch: int = F(INT32, "3+", default=-1, ignorable=True)
    metadata: str = F(STRING)
    commit_timestamp: int = F(INT64)
    expire_timestamp: int = F(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = F(UUID, "4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """Key of a classic group's state."""

    group: str = F(STRING)


class MemberMetadata(Struct):
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    rebalance_timeout: int = F(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = F(INT32)
    subscription: bytes = F(BYTES)
    assignment: bytes = F(BYTES)


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A classic group after a complete rebalance."""

    protocol_type: str = F(STRING)
    generation: int = F(INT32)
    protocol: str | None = F(STRING, nullable="0+")
    leader: str | None = F(STRING, nullable="0+")
    current_state_timestamp: int = F(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = F([MemberMetadata])


# KIP-848 groups. The version of a key says what kind of record it is.


class ConsumerGroupMetadataKey(Message, versions="3"):
    """Key of a consumer group's epoch."""

    group_id: str = F(STRING)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of a group, which rises with every change of its members, their subscriptions or their topics."""

    epoch: int = F(INT32)
    metadata_hash: int = F(INT64, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    """Key of what Kafka before 4.1 noted of a group's topics."""

    group_id: str = F(STRING)


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    """Key of a member and what it wants."""

    group_id: str = F(STRING)
    member_id: str = F(STRING)


class ClassicProtocol(Struct):
    name: str = F(STRING)
    metadata: bytes = F(BYTES)


class ClassicMemberMetadata(Struct):
    """Of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int = F(INT32)
    supported_protocols: list[ClassicProtocol] = F([ClassicProtocol])


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member and what it wants.

    classic_member_metadata: None for a member that speaks the consumer protocol; left out it is an empty one, as Kafka's definition has it.
    """

    instance_id: str | None = F(STRING, nullable="0+")
    rack_id: str | None = F(STRING, nullable="0+")
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    subscribed_topic_names: list[str] = F([STRING])
    subscribed_topic_regex: str | None = F(STRING, nullable="0+")
    rebalance_timeout_ms: int = F(INT32, default=-1)
    server_assignor: str | None = F(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = F(ClassicMemberMetadata, nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    """Key of the epoch of a group's target assignment."""

    group_id: str = F(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """The group epoch for which the target assignment was made, and when."""

    assignment_epoch: int = F(INT32)
    assignment_timestamp: int = F(INT64, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    """Key of what a member is to have."""

    group_id: str = F(STRING)
    member_id: str = F(STRING)


class TargetTopicPartition(Struct):
    topic_id: bytes = F(UUID)
    partitions: list[int] = F([INT32])


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """What a member is to have in the end."""

    topic_partitions: list[TargetTopicPartition] = F([TargetTopicPartition])


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    """Key of what a member has now."""

    group_id: str = F(STRING)
    member_id: str = F(STRING)


class CurrentTopicPartitions(Struct):
    """assignment_epochs: the epoch in which each of the partitions was given to the member."""

    topic_id: bytes = F(UUID)
    partitions: list[int] = F([INT32])
    assignment_epochs: list[int] | None = F([INT32], nullable="0+", tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """What a member has now, and what it has to give up before it gets more.

    state: 0 stable, 1 has partitions to give up, 2 waits for partitions that others have to give up, 127 unknown.
    """

    member_epoch: int = F(INT32)
    previous_member_epoch: int = F(INT32)
    state: int = F(INT8)
    assigned_partitions: list[CurrentTopicPartitions] = F([CurrentTopicPartitions])
    partitions_pending_revocation: list[CurrentTopicPartitions] = F([CurrentTopicPartitions])


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    """Key of the topics that a regular expression of a group's members matches."""

    group_id: str = F(STRING)
    regular_expression: str = F(STRING)


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    """The topics it matched, in which version of the metadata, and when."""

    topics: list[str] = F([STRING])
    version: int = F(INT64)
    timestamp: int = F(INT64)


class TransactionLogKey(Message, versions="0"):
    """Key of a transactional id's state."""

    transactional_id: str = F(STRING)


class PartitionsSchema(Struct):
    topic: str = F(STRING)
    partition_ids: list[int] = F([INT32])


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """A transactional id's state.

    transaction_status: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6 dead,
    7 prepare epoch fence.
    """

    producer_id: int = F(INT64)
    previous_producer_id: int = F(INT64, "1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = F(INT64, "1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = F(INT16)
    next_producer_epoch: int = F(INT16, "1+", default=-1, tag=3, ignorable=True)
    transaction_timeout_ms: int = F(INT32)
    transaction_status: int = F(INT8)
    transaction_partitions: list[PartitionsSchema] | None = F([PartitionsSchema], nullable="0+")
    transaction_last_update_timestamp_ms: int = F(INT64)
    transaction_start_timestamp_ms: int = F(INT64)
    client_transaction_version: int = F(INT16, "1+", tag=2, ignorable=True)


def encode_stored(message: Message, version: int) -> bytes:
    """The message after its version.

    Raises:
        UsageError: A value does not fit the version.
    """
    return b"".join([_VERSION.pack(version), *message.encode(version)])


def decode_stored(kind: type[M], buffer: Buffer) -> M:
    """Reads a version and the message after it.

    The consumer protocol only ever grows at its end, so a newer version of it is read as the newest known one and the rest is left.

    Raises:
        CorruptDataError: The version is unknown, or the bytes are not such a message.
    """
    view = memoryview(buffer)
    if len(view) < 2:
        raise CorruptDataError(f"{kind.__name__}: 2 bytes of version needed, {len(view)} left")
    (version,) = _VERSION.unpack_from(view)
    if version > kind.MAX_VERSION and issubclass(kind, (ConsumerProtocolSubscription, ConsumerProtocolAssignment)):
        message: M = kind.plan(kind.MAX_VERSION).decode_prefix(buffer, 2)[0]
        return message
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise CorruptDataError(f"{kind.__name__}: version {version}, known are {kind.MIN_VERSION}-{kind.MAX_VERSION}")
    return kind.decode(version, buffer, 2)
