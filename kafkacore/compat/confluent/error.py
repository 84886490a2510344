"""confluent-kafka's exceptions of serializing clients.

Source: confluent_kafka.error, confluent-kafka 2.16.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException
from kafkacore.compat.confluent.message import Message
from kafkacore.compat.confluent.serialization import SerializationError

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "Message",
    "ProduceError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _KafkaClientError(KafkaException):
    """An error of a client, with what caused it and the message that it is about."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None, kafka_message: Any = None) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The number."""
        found: int = self.args[0].code()
        return found

    @property
    def name(self) -> str:
        """The number's name."""
        found: str = self.args[0].name()
        return found


class ConsumeError(_KafkaClientError):
    """A message that could not be read; `kafka_message` has what there is."""


class KeyDeserializationError(ConsumeError, SerializationError):
    """A key that is no object."""

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        super().__init__(_local("_KEY_DESERIALIZATION", exception), exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """A value that is no object."""

    def __init__(self, exception: Exception | None = None, kafka_message: Any = None) -> None:
        super().__init__(_local("_VALUE_DESERIALIZATION", exception), exception, kafka_message)


class ProduceError(_KafkaClientError):
    """A message that could not be sent."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception, None)


class KeySerializationError(ProduceError, SerializationError):
    """A key that has no bytes."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(_local("_KEY_SERIALIZATION", exception), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """A value that has no bytes."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(_local("_VALUE_SERIALIZATION", exception), exception)


def _local(name: str, exception: Exception | None) -> KafkaError:
    code: int = getattr(KafkaError, name)
    return KafkaError(code, str(exception))
