"""aiokafka's tuples and records. TopicPartition is the engine's own; the others have aiokafka's fields in its order.

Source: aiokafka.structs, aiokafka 0.14.
"""

from __future__ import annotations

import dataclasses
import types as python_types
from typing import Any, NamedTuple

from kafkacore import types
from kafkacore._codec import recastable
from kafkacore.compat.aiokafka.errors import KafkaError
from kafkacore.records import ConsumerRecord as EngineRecord
from kafkacore.types import TopicPartition

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class BrokerMetadata(NamedTuple):
    """A broker of the cluster."""

    nodeId: int | str
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition: its leader, its replicas, and which of them are in sync."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A committed position: the offset of the next record to read, and a note."""

    offset: int
    metadata: str

    def engines(self) -> types.OffsetAndMetadata:
        """The engine's tuple of the same."""
        return types.OffsetAndMetadata(self.offset, None, self.metadata)


class RecordMetadata(NamedTuple):
    """Where a record went. `timestamp_type` is 1 where the broker stamped it; `log_start_offset` is None: the engine does not keep it."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time (epoch milliseconds)."""

    offset: int
    timestamp: int | None


@dataclasses.dataclass
class _Fields:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Any


_NAMES = tuple(field.name for field in dataclasses.fields(_Fields))


def size_of(data: Any) -> int:
    """Bytes, -1 for null."""
    return -1 if data is None else len(data)


def _make(cls: type, *args: Any, **kwargs: Any) -> Any:
    return EngineRecord.__new__(WholeRecord if cls is ConsumerRecord else cls)  # whose constructor Python calls next


@recastable
class ConsumerRecord(EngineRecord):
    """A record as it was read, with aiokafka's names; `dataclasses` works on it as on aiokafka's, but it cannot be changed.

    The engine's records become these in place (native/recast.pxi), so that they cost nothing until a field is asked for. One that a program
    makes itself is a `WholeRecord`.
    """

    __slots__ = ()
    __dataclass_fields__ = _Fields.__dataclass_fields__
    __match_args__: Any = _NAMES
    __class_getitem__: Any = classmethod(python_types.GenericAlias)
    __new__ = _make

    timestamp = EngineRecord.timestamp_ms

    @property
    def checksum(self) -> int | None:
        """None: records have no checksum of their own since magic 2."""
        return None

    @property
    def serialized_key_size(self) -> int:
        """Bytes, -1 for null."""
        return size_of(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes, -1 for null."""
        return size_of(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _NAMES)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConsumerRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in _NAMES)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return WholeRecord, tuple(getattr(self, name) for name in _NAMES)


class WholeRecord(ConsumerRecord):
    """A record that a program has made: its sizes are what the program says."""

    __slots__ = ("_own",)
    _own: tuple[int | None, int, int]

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: Any,
        value: Any,
        checksum: int | None,
        serialized_key_size: int,
        serialized_value_size: int,
        headers: Any,
    ) -> None:
        EngineRecord.__init__(
            self,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp,
            timestamp_type=timestamp_type,
            key=key,
            value=value,
            headers=headers,
        )
        self._own = checksum, serialized_key_size, serialized_value_size

    @property
    def checksum(self) -> int | None:
        """As it was given."""
        return self._own[0]

    @property
    def serialized_key_size(self) -> int:
        """Bytes, -1 for null."""
        return self._own[1]

    @property
    def serialized_value_size(self) -> int:
        """Bytes, -1 for null."""
        return self._own[2]


class DeserializedRecord(ConsumerRecord):
    """A record with the key and value that deserializers gave; all else is that of the record as it was read. `deserialized` makes them."""

    __slots__ = ("_read", "key", "value")
    _read: EngineRecord

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """As ConsumerRecord: `dataclasses.replace` calls it."""
        return WholeRecord(*args, **kwargs)

    @property
    def topic(self) -> str:
        return self._read.topic

    @property
    def partition(self) -> int:
        return self._read.partition

    @property
    def offset(self) -> int:
        return self._read.offset

    @property
    def timestamp(self) -> int:
        return self._read.timestamp_ms

    timestamp_ms = timestamp

    @property
    def timestamp_type(self) -> int:
        return self._read.timestamp_type

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._read.headers

    @property
    def leader_epoch(self) -> int:
        return self._read.leader_epoch

    @property
    def serialized_key_size(self) -> int:
        """Bytes, -1 for null."""
        return size_of(self._read.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes, -1 for null."""
        return size_of(self._read.value)


def deserialized(record: EngineRecord, key: Any, value: Any) -> DeserializedRecord:
    """A record with another key and value."""
    made: Any = _new(DeserializedRecord)
    made._read, made.key, made.value = record, key, value
    return made  # type: ignore[no-any-return]


_new = EngineRecord.__new__
