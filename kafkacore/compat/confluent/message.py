"""confluent-kafka's Message: what consumers read, what delivery reports are about, and events of a consumer, with methods for the fields.

The engine's records become messages in place (native/recast.pxi), so a message costs nothing until a field is asked for. Such a record has
no room for an error: `set_error` puts it beside the key (`_Failed`).

Source: confluent_kafka.Message, confluent-kafka 2.16.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from kafkacore._codec import recastable
from kafkacore.compat.confluent.kafka_error import KafkaError
from kafkacore.records import ConsumerRecord

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2


class Message(metaclass=ABCMeta):  # noqa: B024 - read messages are registered with it
    """A message or an event; every argument is optional.

    Args:
        topic, partition, offset: where it is.
        key, value: bytes, or what deserializers gave.
        headers: pairs of name and value.
        error: what the event is; None for a message.
        timestamp: (type, epoch milliseconds).
        latency: seconds from produce() to the report.
        leader_epoch: of the batch.
        delivery_count: of a share consumer.
    """

    __slots__ = (
        "_delivery_count", "_error", "_headers", "_key", "_latency", "_leader_epoch", "_offset", "_partition", "_timestamp", "_topic",
        "_value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp or (TIMESTAMP_NOT_AVAILABLE, 0)
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    def error(self) -> KafkaError | None:
        """What the event is; None for a message."""
        return self._error

    def topic(self) -> str | None:
        """The topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """The partition's number."""
        return self._partition

    def offset(self) -> int | None:
        """The offset; None where there is none."""
        return self._offset

    def key(self) -> Any:
        """The key."""
        return self._key

    def value(self) -> Any:
        """The value; of an event its text."""
        return self._value

    def deserialized_key(self) -> Any:
        """The same as `key`."""
        return self._key

    def deserialized_value(self) -> Any:
        """The same as `value`."""
        return self._value

    def headers(self) -> Any:
        """A list of (name, value), None without headers."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """One of the TIMESTAMP_ constants, and epoch milliseconds."""
        return self._timestamp

    def latency(self) -> float | None:
        """Seconds from produce() to the report, of a message that was delivered."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Leader epoch of the batch that was read."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """None: there are no share consumers."""
        return self._delivery_count

    def set_topic(self, topic: Any) -> None:
        """Replaces the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replaces the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replaces the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replaces the headers."""
        self._headers = headers

    def set_error(self, error: Any) -> None:
        """Replaces the error."""
        self._error = error

    def __len__(self) -> int:
        return _length(self._value)

    def __bool__(self) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, Message) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _fields(self)


def _fields(m: Any) -> tuple[Any, ...]:
    return (
        m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.error(), m.timestamp(), m.latency(), m.leader_epoch(),
        m.delivery_count(),
    )  # fmt: skip


def _length(value: Any) -> int:
    return 0 if value is None else len(value)


class _Failed:
    """A key with the error of its message."""

    __slots__ = ("error", "key")

    def __init__(self, key: Any, error: Any) -> None:
        self.key, self.error = key, error


_same: Any = object()
_topic: Any = ConsumerRecord.topic.__get__
_partition: Any = ConsumerRecord.partition.__get__
record_offset: Any = ConsumerRecord.offset.__get__
_key: Any = ConsumerRecord.key.__get__
_value: Any = ConsumerRecord.value.__get__
_headers: Any = ConsumerRecord.headers.__get__
_timestamp_ms: Any = ConsumerRecord.timestamp_ms.__get__
_timestamp_type: Any = ConsumerRecord.timestamp_type.__get__
_leader_epoch: Any = ConsumerRecord.leader_epoch.__get__


def _replace(m: Any, *, topic: Any = _same, key: Any = _same, value: Any = _same, headers: Any = _same) -> None:
    """Fills the record once more: its fields cannot be set one by one."""
    ConsumerRecord.__init__(
        m,
        topic=_topic(m) if topic is _same else topic,
        partition=_partition(m),
        offset=record_offset(m),
        timestamp_ms=_timestamp_ms(m),
        timestamp_type=_timestamp_type(m),
        key=_key(m) if key is _same else key,
        value=_value(m) if value is _same else value,
        headers=_headers(m) if headers is _same else headers or (),
        leader_epoch=_leader_epoch(m),
    )


@recastable
class ReadMessage(ConsumerRecord):
    """A message as a consumer reads it: the engine's record under another class. `isinstance(message, Message)` holds."""

    __slots__ = ()

    def error(self) -> Any:
        key = _key(self)
        return key.error if type(key) is _Failed else None

    def topic(self) -> Any:  # type: ignore[override]
        return _topic(self)

    def partition(self) -> Any:  # type: ignore[override]
        return _partition(self)

    def offset(self) -> Any:  # type: ignore[override]
        return record_offset(self)

    def key(self) -> Any:
        key = _key(self)
        return key.key if type(key) is _Failed else key

    def value(self) -> Any:
        return _value(self)

    def deserialized_key(self) -> Any:
        return self.key()

    def deserialized_value(self) -> Any:
        return _value(self)

    def headers(self) -> Any:  # type: ignore[override]
        headers = _headers(self)
        return list(headers) if headers else None

    def timestamp(self) -> tuple[int, int]:
        return _timestamp_type(self) + 1, _timestamp_ms(self)

    def latency(self) -> None:
        return None

    def leader_epoch(self) -> Any:  # type: ignore[override]
        epoch = _leader_epoch(self)
        return epoch if epoch >= 0 else None

    def delivery_count(self) -> None:
        return None

    def set_topic(self, topic: Any) -> None:
        _replace(self, topic=topic)

    def set_key(self, key: Any) -> None:
        error = self.error()
        _replace(self, key=key if error is None else _Failed(key, error))

    def set_value(self, value: Any) -> None:
        _replace(self, value=value)

    def set_headers(self, headers: Any) -> None:
        _replace(self, headers=headers.items() if isinstance(headers, dict) else headers)

    def set_error(self, error: Any) -> None:
        key = self.key()
        _replace(self, key=key if error is None else _Failed(key, error))

    def __len__(self) -> int:
        return _length(_value(self))

    def __bool__(self) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, Message) else NotImplemented

    def __repr__(self) -> str:
        return f"<Message {_topic(self)}-{_partition(self)} at offset {record_offset(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _fields(self)


Message.register(ReadMessage)
