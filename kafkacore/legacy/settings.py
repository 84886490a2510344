"""Settings of the old clients: Kafka 0.8's names and defaults, besides those of every client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkacore.bounds import UNPACKED_BYTES
from kafkacore.compress import NAMES
from kafkacore.config import ClientConfig, Serializer, TopicSerializer
from kafkacore.errors import ConfigError
from kafkacore.legacy.message_set import codec_id

MessagePartitioner = Callable[[Any, int], int]
"""`partitioner(key, num_partitions) -> partition`."""


@dataclass(frozen=True, kw_only=True)
class EventHandlerConfig(ClientConfig):
    """Settings of `DefaultEventHandler` and `SyncProducer`.

    Attributes:
        partitioner: `f(key, num_partitions) -> partition`, for messages with a partition key; None for `default_partitioner`.
        serializer, key_serializer: `f(value) -> bytes`, or an object with `serialize(topic, value)`; None takes bytes-like and str (UTF-8).
        compression_codec: none, gzip, snappy or lz4, or their numbers 0 to 3.
        compressed_topics: the topics that are compressed; empty for all.
        request_required_acks: 0 no answer, 1 the leader has written, -1 all in-sync replicas have.
        request_timeout_ms: how long a request may take, and how long the leader may wait for the replicas.
        message_send_max_retries: how often what failed is sent again.
        retry_backoff_ms: pause before each retry, and before the metadata refresh that belongs to it.
        topic_metadata_refresh_interval_ms: metadata are refreshed after so long, and messages without key go to another partition; 0 with
            every batch, negative only after failures.
        max_request_size: bytes of one record batch, where messages are sent as such; a larger set goes in several requests.
        allow_auto_create_topics: brokers may create a topic that is sent to and does not exist, if their own settings allow that too.
    """

    request_timeout_ms: int = 10_000
    partitioner: MessagePartitioner | None = None
    serializer: Serializer | TopicSerializer | None = None
    key_serializer: Serializer | TopicSerializer | None = None
    compression_codec: str | int = "none"
    compressed_topics: tuple[str, ...] = ()
    request_required_acks: int = 1
    message_send_max_retries: int = 3
    topic_metadata_refresh_interval_ms: int = 600_000
    max_request_size: int = 1_048_576
    allow_auto_create_topics: bool = True

    def _check(self) -> None:
        super()._check()
        codec = int(self.compression_codec) if str(self.compression_codec).isdecimal() else self.compression_codec
        object.__setattr__(self, "compression_codec", NAMES[codec_id(codec)])
        if self.request_required_acks not in (-1, 0, 1):
            raise ConfigError(f"request_required_acks must be -1, 0 or 1, not {self.request_required_acks}")
        self._check_least(request_timeout_ms=1, message_send_max_retries=0, max_request_size=1)

    def _check_least(self, **least: int) -> None:
        for name, low in least.items():
            if (value := getattr(self, name)) < low:
                raise ConfigError(f"{name} must be at least {low}, not {value}")


@dataclass(frozen=True, kw_only=True)
class AsyncProducerConfig(EventHandlerConfig):
    """Settings of `AsyncProducer`, besides those of `EventHandlerConfig`.

    Attributes:
        queue_buffering_max_ms: a message waits for others in the queue no longer.
        queue_buffering_max_messages: so many messages may wait in the queue.
        queue_enqueue_timeout_ms: how long `send` waits for room in the queue: -1 without limit, 0 not at all.
        batch_num_messages: so many messages are sent together.
    """

    queue_buffering_max_ms: int = 5_000
    queue_buffering_max_messages: int = 10_000
    queue_enqueue_timeout_ms: int = -1
    batch_num_messages: int = 200

    def _check(self) -> None:
        super()._check()
        self._check_least(queue_buffering_max_ms=0, queue_buffering_max_messages=1, queue_enqueue_timeout_ms=-1, batch_num_messages=1)


@dataclass(frozen=True, kw_only=True)
class SimpleConsumerConfig(ClientConfig):
    """Settings of `SimpleConsumer`.

    Attributes:
        fetch_min_bytes: a broker answers once it has so many bytes,
        fetch_max_wait_ms: or after so long.
        default_api_timeout_ms: bound of a call.
        max_decompressed_bytes: the most bytes that one compressed set may hold uncompressed; no further set is unpacked beside as many.
    """

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 100
    default_api_timeout_ms: int = 30_000
    max_decompressed_bytes: int = UNPACKED_BYTES

    def _check(self) -> None:
        super()._check()
        for name in ("fetch_min_bytes", "fetch_max_wait_ms", "default_api_timeout_ms", "max_decompressed_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative")
