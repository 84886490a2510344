"""confluent-kafka's SerializingProducer.

Source: confluent_kafka.serializing_producer, confluent-kafka 2.16.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Generic, TypeVar

from kafkacore.compat.confluent.error import KeySerializationError, ValueSerializationError
from kafkacore.compat.confluent.producer import Producer
from kafkacore.compat.confluent.serdes import Serdes
from kafkacore.compat.confluent.serialization import MessageField, SerializationContext

K = TypeVar("K")
V = TypeVar("V")


class SerializingProducer(Producer, Generic[K, V]):
    """Sends objects.

    Args:
        conf: a Producer's settings, and key.serializer, value.serializer: called as f(object, SerializationContext); or
            key.serializer.builder, value.serializer.builder, whose serializers are closed with the producer.

    Raises:
        ValueError: a serializer and a builder of the same part.
        KafkaException: a setting is unknown, wrong or refused.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        self._serdes = Serdes(conf, "serializer")
        self._gone = False
        try:
            super().__init__(self._serdes.conf)
            self._serdes.know(self.cluster_id)
        except BaseException:
            with contextlib.suppress(Exception):
                self._serdes.close()
            raise

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serializes and queues a message.

        Args:
            topic: topic name.
            key, value: objects.
            partition: number; -1 lets the partitioner choose.
            on_delivery: called as f(error, message) by `poll` or `flush`.
            timestamp: epoch milliseconds; 0 is now.
            headers: a dict or a list of pairs; serializers see them.

        Raises:
            KeySerializationError, ValueSerializationError: what a serializer raised.
            BufferError: the queue is full: call `poll`.
            KafkaException: as `Producer.produce`.
            RuntimeError: the producer is closed; TypeError: the topic is no str. Then no serializer has run.
        """
        if self._gone:
            raise RuntimeError("Producer has been closed")
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        key_bytes: Any = key
        value_bytes: Any = value
        if self._serdes.key is not None:
            try:
                key_bytes = self._serdes.key(key, context)
            except Exception as error:
                self._producer._refuse(error)
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value_bytes = self._serdes.value(value, context)
            except Exception as error:
                self._producer._refuse(error)
                raise ValueSerializationError(error) from error
        super().produce(topic, value_bytes, key_bytes, partition, on_delivery=on_delivery, timestamp=timestamp, headers=headers)

    def close(self) -> bool:
        """Sends what is queued and closes the producer, then the serializers that builders made."""
        result = super().close()
        self._gone = True
        self._serdes.close()
        return result

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        self.close()
