"""kafka-python's tuples. TopicPartition is the engine's own; the others have kafka-python's fields in its order.

Source: kafka.structs, kafka.consumer.fetcher.ConsumerRecord, kafka.producer.future.RecordMetadata, kafka-python 3.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkacore import types
from kafkacore._codec import recastable
from kafkacore.records import ConsumerRecord as EngineRecord
from kafkacore.types import TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
    "TopicPartitionReplica",
]


class TopicPartitionReplica(NamedTuple):
    """A partition as one broker holds it."""

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, a note, the leader epoch of the last record read (-1: unknown)."""

    offset: int | None = None
    metadata: str = ""
    leader_epoch: int | None = -1

    def engines(self) -> types.OffsetAndMetadata:
        """The engine's tuple of the same."""
        epoch = self.leader_epoch
        return types.OffsetAndMetadata(int(self.offset or 0), None if epoch is None or epoch < 0 else epoch, self.metadata or "")

    @classmethod
    def of(cls, found: types.OffsetAndMetadata) -> OffsetAndMetadata:
        """From the engine's tuple."""
        return cls(found.offset, found.metadata, -1 if found.leader_epoch is None else found.leader_epoch)


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time (epoch milliseconds)."""

    offset: int
    timestamp: int
    leader_epoch: int


class MemberState:
    """How a member stands in its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group, for `KafkaProducer.send_offsets_to_transaction`."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED


class RecordMetadata(NamedTuple):
    """Where a record went; sizes are in bytes, -1 for null. `checksum` is None since records have none of their own (magic 2)."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


_FIELDS = (
    "topic",
    "partition",
    "leader_epoch",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
)


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


@recastable
class ConsumerRecord(EngineRecord):
    """A record as it was read, with kafka-python's names; it can be unpacked and indexed like the tuple that kafka-python gives.

    The engine's records become these in place (native/recast.pxi), so that they cost nothing until a field is asked for.
    """

    __slots__ = ()
    _fields = _FIELDS

    timestamp = EngineRecord.timestamp_ms

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:  # type: ignore[override]
        """Pairs of name and value."""
        return list(_engine_headers(self))

    @property
    def checksum(self) -> None:
        """None: records have no checksum of their own since magic 2."""
        return None

    @property
    def serialized_key_size(self) -> int:
        """Bytes, -1 for null."""
        return _size(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes, -1 for null."""
        return _size(self.value)

    @property
    def serialized_header_size(self) -> int:
        """Bytes of names and values, -1 without headers."""
        headers = _engine_headers(self)
        return sum(len(name.encode()) + len(value or b"") for name, value in headers) if headers else -1

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in _FIELDS)

    def __len__(self) -> int:
        return len(_FIELDS)

    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, (ConsumerRecord, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash((*tuple(self)[:8], _engine_headers(self)))

    def __repr__(self) -> str:
        return f"ConsumerRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._asdict())

    def _asdict(self) -> dict[str, Any]:
        """Fields by name."""
        return {name: getattr(self, name) for name in _FIELDS}


class DeserializedRecord(ConsumerRecord):
    """A record whose key and value are what deserializers gave; its sizes are those of the bytes."""

    __slots__ = ("_sizes",)
    _sizes: tuple[int, int]

    @property
    def serialized_key_size(self) -> int:
        """Bytes, -1 for null."""
        return self._sizes[0]

    @property
    def serialized_value_size(self) -> int:
        """Bytes, -1 for null."""
        return self._sizes[1]

    @classmethod
    def of(cls, record: EngineRecord, key: Any, value: Any) -> DeserializedRecord:
        """The record with another key and value."""
        made = cls(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=record.timestamp_type,
            key=key,
            value=value,
            headers=_engine_headers(record),
            leader_epoch=record.leader_epoch,
        )
        made._sizes = _size(record.key), _size(record.value)
        return made


_engine_headers: Any = EngineRecord.headers.__get__  # the tuple itself: `headers` of the classes above makes a list


def _restored(cls: type[ConsumerRecord], fields: dict[str, Any]) -> ConsumerRecord:
    names = ("topic", "partition", "offset", "timestamp_type", "key", "value", "headers", "leader_epoch")
    made = cls(timestamp_ms=fields["timestamp"], **{name: fields[name] for name in names})
    if isinstance(made, DeserializedRecord):
        made._sizes = fields["serialized_key_size"], fields["serialized_value_size"]
    return made
