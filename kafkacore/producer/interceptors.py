"""The interceptors of a producer: they see each record before it is sent, and what became of it.

Source: org.apache.kafka.clients.producer.internals.ProducerInterceptors; KIP-42.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from kafkacore.epoch import Time
from kafkacore.errors import KafkaError
from kafkacore.types import ProducerRecord, RecordMetadata

log = logging.getLogger("kafkacore.producer")


class Interceptors:
    """The interceptors, in their order. What one raises is logged and stops nothing.

    Args:
        given: the objects.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        self._given = tuple(given)

    def __bool__(self) -> bool:
        return bool(self._given)

    def on_send(
        self, topic: Any, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: Time | None, on_delivery: Any
    ) -> tuple[ProducerRecord, Any]:
        """The record as the interceptors leave it, and the callback that serves them as well."""
        if isinstance(topic, ProducerRecord):
            record = topic
        elif isinstance(topic, str):
            record = ProducerRecord(topic, value, key, headers or (), partition, timestamp_ms)
        else:
            raise TypeError(f"topic must be a str or a ProducerRecord, not {type(topic).__name__}")
        for interceptor in self._given:
            try:
                changed = interceptor.on_send(record)
            except Exception:
                log.exception("on_send of %r failed; the record goes on as it was", interceptor)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                log.error("on_send of %r returned %r, no ProducerRecord; the record goes on as it was", interceptor, changed)
        return record, on_delivery if not self._given else self._acknowledge(on_delivery)

    def not_queued(self, error: BaseException) -> None:
        """A record that they saw did not get as far as the queue."""
        for interceptor in self._given:
            _notify(interceptor, None, error)

    def _acknowledge(self, on_delivery: Callable[[Any, Any], object] | None) -> Callable[[Any, Any], None]:
        def acknowledged(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            for interceptor in self._given:
                _notify(interceptor, metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return acknowledged


def _notify(interceptor: Any, metadata: RecordMetadata | None, error: BaseException | None) -> None:
    try:
        interceptor.on_acknowledgement(metadata, error)
    except Exception:
        log.exception("on_acknowledgement of %r failed", interceptor)
