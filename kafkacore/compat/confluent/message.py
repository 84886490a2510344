"""confluent-kafka's Message: what consumers read, what delivery reports are about, and events of a consumer, with methods for the fields.

The engine's records become messages in place, and the methods that ask for a field are compiled (native/message.pxi, which also says where
an error or a latency is kept), so a message costs what a record costs.

Source: confluent_kafka.Message, confluent-kafka 2.16.
"""

from __future__ import annotations

from typing import Any

from kafkacore._codec import change_message, fill_message, message_method, recastable
from kafkacore.records import ConsumerRecord

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

record_offset: Any = ConsumerRecord.offset.__get__


@recastable
class Message(ConsumerRecord):
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

    __slots__ = ()

    def __init__(
        self,
        topic: Any = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: Any = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        stamp = timestamp or (TIMESTAMP_NOT_AVAILABLE, 0)
        fill_message(self, topic, partition, offset, key, value, headers, error, stamp, latency, leader_epoch, delivery_count)

    error: Any = message_method("error", "What the event is, a KafkaError; None for a message.")
    topic: Any = message_method("topic", "The topic's name.")
    partition: Any = message_method("partition", "The partition's number; None where there is no such thing.")
    offset: Any = message_method("offset", "The offset; None where there is no such thing.")
    key: Any = message_method("key", "The key.")
    value: Any = message_method("value", "The value; of an event its text.")
    deserialized_key: Any = message_method("key", "The same as `key`.")
    deserialized_value: Any = message_method("value", "The same as `value`.")
    headers: Any = message_method("headers", "A list of (name, value), None without headers.")
    timestamp: Any = message_method("timestamp", "One of the TIMESTAMP_ constants, and epoch milliseconds.")
    latency: Any = message_method("latency", "Seconds from produce() to the report, of a message that was delivered.")
    leader_epoch: Any = message_method("leader_epoch", "Leader epoch of the batch that was read.")
    delivery_count: Any = message_method("delivery_count", "None: there are no share consumers.")

    def set_topic(self, topic: Any) -> None:
        """Replaces the topic."""
        change_message(self, "topic", topic)

    def set_key(self, key: Any) -> None:
        """Replaces the key."""
        change_message(self, "key", key)

    def set_value(self, value: Any) -> None:
        """Replaces the value."""
        change_message(self, "value", value)

    def set_headers(self, headers: Any) -> None:
        """Replaces the headers."""
        change_message(self, "headers", headers)

    def set_error(self, error: Any) -> None:
        """Replaces the error."""
        change_message(self, "error", error)

    def __len__(self) -> int:
        value = self.value()
        return 0 if value is None else len(value)

    def __bool__(self) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if isinstance(other, Message) else NotImplemented

    def __repr__(self) -> str:
        return f"<Message {self.topic()}-{self.partition()} at offset {self.offset()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, _fields(self)


def _fields(m: Any) -> tuple[Any, ...]:
    return (
        m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.error(), m.timestamp(), m.latency(), m.leader_epoch(),
        m.delivery_count(),
    )  # fmt: skip
