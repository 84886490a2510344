"""Keys and values become what the application wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacore import errors
from kafkacore.config import Deserializer, TopicDeserializer
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.subscription import SubscriptionState
from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord


def _with_topic(deserializer: Deserializer | TopicDeserializer | None) -> Callable[[str, bytes], Any] | None:
    """Both kinds of deserializer as a function of topic and data."""
    if deserializer is None:
        return None
    if isinstance(deserializer, TopicDeserializer):
        return deserializer.deserialize
    plain = deserializer
    return lambda _, data: plain(data)


class Deserializers:
    """A consumer's key_deserializer and value_deserializer. False without both.

    Args:
        key, value: the settings.
        subscription: whose positions go back to a record that cannot be deserialized.
        fetcher: hears of that.
    """

    def __init__(
        self,
        key: Deserializer | TopicDeserializer | None,
        value: Deserializer | TopicDeserializer | None,
        subscription: SubscriptionState,
        fetcher: Fetcher,
    ) -> None:
        self._key_of, self._value_of = _with_topic(key), _with_topic(value)
        self._subscription = subscription
        self._fetcher = fetcher

    def __bool__(self) -> bool:
        return self._key_of is not None or self._value_of is not None

    def run(self, polled: dict[TopicPartition, list[ConsumerRecord]]) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The records with keys and values deserialized.

        On a failure the records before it are handed out first, and the position moves back to it: the next poll raises.

        Raises:
            errors.SerializationError: the first record of all cannot be deserialized.
        """
        key_of, value_of = self._key_of, self._value_of
        done: dict[TopicPartition, list[ConsumerRecord]] = {}
        failed: errors.SerializationError | None = None
        for tp, records in polled.items():
            if failed is not None:
                self._subscription.rewind(tp, records[0].offset)
                continue
            topic = tp.topic
            ready: list[ConsumerRecord] = []
            for record in records:
                try:
                    key, value = record.key, record.value
                    if key_of is not None and key is not None:
                        key = key_of(topic, key)
                    if value_of is not None and value is not None:
                        value = value_of(topic, value)
                    ready.append(record.replace(key=key, value=value))
                except Exception as error:
                    failed = errors.SerializationError(
                        f"a deserializer failed: {error!r}; seek past the record to go on without it",
                        topic=topic,
                        partition=tp.partition,
                        offset=record.offset,
                    )
                    failed.__cause__ = error
                    self._subscription.rewind(tp, record.offset)
                    break
            if ready:
                done[tp] = ready
        if failed is not None:
            self._fetcher.retain()
            if not done:
                raise failed
        return done
