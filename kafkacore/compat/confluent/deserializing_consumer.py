"""confluent-kafka's DeserializingConsumer.

Source: confluent_kafka.deserializing_consumer, confluent-kafka 2.16.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Generic, TypeVar

from kafkacore.compat.confluent.consumer import Consumer
from kafkacore.compat.confluent.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
from kafkacore.compat.confluent.serdes import Serdes
from kafkacore.compat.confluent.serialization import MessageField, SerializationContext

K = TypeVar("K")
V = TypeVar("V")


class DeserializingConsumer(Consumer, Generic[K, V]):
    """Reads objects.

    Args:
        conf: a Consumer's settings, and key.deserializer, value.deserializer: called as f(bytes, SerializationContext); or
            key.deserializer.builder, value.deserializer.builder, whose deserializers are closed with the consumer.

    Raises:
        ValueError: a deserializer and a builder of the same part.
        KafkaException: a setting is unknown, wrong or refused.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        self._serdes = Serdes(conf, "deserializer")
        try:
            super().__init__(self._serdes.conf)
            self._serdes.know(self.cluster_id)
        except BaseException:
            with contextlib.suppress(Exception):
                self._serdes.close()
            raise

    def poll(self, timeout: float = -1) -> Any:  # type: ignore[override]
        """The next message, with objects as key and value; None without a message in time.

        Args:
            timeout: seconds; -1 waits as long as it takes.

        Raises:
            KeyDeserializationError, ValueDeserializationError: what a deserializer raised, with the message as it was read.
            ConsumeError: a message that is an error.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        if (failed := message.error()) is not None:
            raise ConsumeError(failed, kafka_message=message)
        context = SerializationContext(message.topic(), MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._serdes.key is not None:
            try:
                key = self._serdes.key(key, context)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        if self._serdes.value is not None:
            context.field = MessageField.VALUE
            try:
                value = self._serdes.value(value, context)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:  # type: ignore[override]
        """Is not there, as in confluent-kafka: use `poll`.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("DeserializingConsumer has poll(), not consume()")

    def close(self) -> None:
        """Leaves the group and closes the consumer, then the deserializers that builders made."""
        super().close()
        self._serdes.close()

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        self.close()
