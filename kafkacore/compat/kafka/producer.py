"""kafka-python's KafkaProducer over the engine's.

`send` has a compiled short cut for records of plain bytes (`RecastSend`, native/recast.pxi).

Source: kafka.producer.kafka, kafka-python 3.0.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from kafkacore import errors as ours
from kafkacore import types
from kafkacore._codec import RecastSend, RecordFuture, send_method
from kafkacore.compat.kafka import errors
from kafkacore.compat.kafka.common_settings import COMMON, COMMON_DEFAULTS, SSL_CIPHERS, engine_settings
from kafkacore.compat.kafka.future import Future, HeldRecord, QueuedRecord
from kafkacore.compat.kafka.partitioner import Cluster, DefaultPartitioner
from kafkacore.compat.kafka.structs import OffsetAndMetadata
from kafkacore.compat.settings import Kind, Ours, Own
from kafkacore.config_values import INT32_MAX
from kafkacore.producer import KafkaProducer as Engine
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.compat")

COMPRESSION_TYPES = (None, "gzip", "snappy", "lz4", "zstd")
_CLIENT_NUMBERS = itertools.count(1)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _retries(retries: float) -> int:
    return int(min(retries, INT32_MAX))


PRODUCER_SETTINGS: dict[str, Kind] = {
    **COMMON,
    "key_serializer": Own("send"),
    "value_serializer": Own("send"),
    "partitioner": Own("send; DefaultPartitioner and StickyPartitioner mean the engine's own"),
    "bootstrap_timeout_ms": Own("making a producer without api_version waits so long for a broker"),
    "metrics_enabled": Own("metrics() gives None without it"),
    "enable_idempotence": Ours(),
    "transactional_id": Ours(),
    "transaction_timeout_ms": Ours(),
    "delivery_timeout_ms": Ours(),
    "acks": Ours(),
    "compression_type": Ours(convert=lambda codec: codec or "none"),
    "retries": Ours(convert=_retries),
    "batch_size": Ours(),
    "linger_ms": Ours(),
    "max_block_ms": Ours(),
    "max_request_size": Ours(),
    "max_in_flight_requests_per_connection": Ours(),
    "allow_auto_create_topics": Ours(),
    "ssl_ciphers": SSL_CIPHERS,
}


class KafkaProducer:
    """Sends records; threads may share one.

    Takes kafka-python's settings as keywords (`DEFAULT_CONFIG`), with its defaults.

    Raises:
        ValueError: an unknown setting, or an unknown codec.
        KafkaConfigurationError: a setting that contradicts another, or is not supported here.
        KafkaTimeoutError: no broker within bootstrap_timeout_ms; not with `api_version`, which kafka-python takes for not asking.
    """

    __slots__ = ("__dict__", "__weakref__", "_short_send")

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {
        **COMMON_DEFAULTS,
        "client_id": None,
        "key_serializer": None,
        "value_serializer": None,
        "enable_idempotence": True,
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "delivery_timeout_ms": 120_000,
        "acks": -1,
        "compression_type": None,
        "retries": float("inf"),
        "batch_size": 16_384,
        "linger_ms": 0,
        "partitioner": DefaultPartitioner(),
        "max_block_ms": 60_000,
        "max_request_size": 1_048_576,
        "allow_auto_create_topics": True,
        "metrics_enabled": True,
        "ssl_ciphers": None,
    }

    def __init__(self, **configs: Any) -> None:
        unknown = set(configs) - set(self.DEFAULT_CONFIG)
        if unknown:
            raise ValueError(f"Unrecognized configs: { ({name: configs[name] for name in unknown}) }")
        if configs.get("compression_type") not in COMPRESSION_TYPES:
            raise ValueError(f"Not supported codec: {configs['compression_type']}")
        self.config = {**self.DEFAULT_CONFIG, **configs}
        if self.config["client_id"] is None:
            self.config["client_id"] = f"kafka-python-producer-{next(_CLIENT_NUMBERS)}"
        settings = engine_settings(PRODUCER_SETTINGS, self.DEFAULT_CONFIG, {**configs, "client_id": self.config["client_id"]})
        if "enable_idempotence" not in configs:  # left open, it follows from the others in both
            del settings["enable_idempotence"]
        self._closed = False
        with errors.translated():
            self._producer = Engine(**settings)
        self.config["acks"] = self._producer.config.acks
        self.config["enable_idempotence"] = self._producer.config.enable_idempotence
        self._partitioner = None if isinstance(self.config["partitioner"], DefaultPartitioner) else self.config["partitioner"]
        self._serializes = self.config["key_serializer"] is not None or self.config["value_serializer"] is not None
        plain = self._partitioner is None and not self._serializes
        self._short_send = RecastSend(self._producer, QueuedRecord, functools.partial(_failed, self._producer)) if plain else None
        if self.config["api_version"] is None:
            try:
                self._bootstrap(self.config["bootstrap_timeout_ms"])
            except BaseException:
                self._producer.close(0)
                raise

    def _bootstrap(self, timeout_ms: int) -> None:
        metadata, sender = self._producer._metadata, self._producer._sender
        with errors.translated():
            if metadata.snapshot.is_bootstrap:
                version = metadata.request_update()
                sender.wake(-1, True)
                metadata.await_update(version, timeout_ms)
        if metadata.snapshot.is_bootstrap:
            tried = "; ".join(map(str, metadata.attempts))
            raise errors.KafkaTimeoutError(f"no broker of {self.config['bootstrap_servers']} answered within {timeout_ms} ms: {tried}")

    def bootstrap_connected(self) -> bool:
        """True once a broker has described the cluster."""
        return not self._producer._metadata.snapshot.is_bootstrap

    # -- sending ------------------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Queues one record and returns at once.

        Args:
            topic: topic name.
            value: bytes, bytearray, memoryview, None, or what value_serializer turns into that.
            key: as value, with key_serializer. Records of one key go to one partition. One of key and value is not None.
            headers: list of (str, bytes).
            partition: number; None lets the partitioner choose.
            timestamp_ms: epoch milliseconds; None is now.

        Returns:
            FutureRecordMetadata.

        Raises:
            KafkaTimeoutError: no metadata or no memory within max_block_ms.
            MessageSizeTooLargeError: more than max_request_size.
            TypeError, ValueError: arguments that are none of these.
            IllegalStateError: the producer is closed.
        """
        if self._closed:
            raise errors.IllegalStateError("KafkaProducer already closed!")
        key_bytes = value_bytes = None
        try:
            if value is None and key is None:
                raise ValueError("Need at least one: key or value")
            if headers is None:
                headers = []
            if not isinstance(headers, list):
                raise TypeError("headers must be list-type")
            if not all(isinstance(h, tuple) and len(h) == 2 and isinstance(h[0], str) and isinstance(h[1], bytes) for h in headers):
                raise TypeError("All headers items must be (str, bytes) tuples")
            _check_topic(topic)
            key_bytes = _serialized(self.config["key_serializer"], topic, headers, key, "key")
            value_bytes = _serialized(self.config["value_serializer"], topic, headers, value, "value")
            if partition is None and self._partitioner is not None:
                self._producer.partitions_for(topic)
                cluster = Cluster(self._producer._metadata.snapshot)
                partition = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, cluster)
                if partition is None:
                    raise ValueError(f"Partitioner did not assign a partition for topic {topic}!")
            future = self._producer.send(topic, value_bytes, key_bytes, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        except ours.KafkaError as error:
            return _failed(self._producer, error, topic, value_bytes, key_bytes, headers, partition)
        except Exception as error:
            self._producer._refuse(error)
            raise
        return HeldRecord(future, sum(len(name.encode()) + len(data) for name, data in headers) if headers else -1)

    _send_general = send
    send = send_method(send, RecastSend)

    def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic; waits for them up to max_block_ms.

        Raises:
            KafkaTimeoutError: no answer in time.
        """
        _check_topic(topic)
        with errors.translated():
            return self._producer.partitions_for(topic)

    def flush(self, timeout: float | None = None) -> None:
        """Sends what is queued and waits until every record has an outcome; which one, the futures say.

        Args:
            timeout: seconds, None = no limit.

        Raises:
            KafkaTimeoutError: the time has passed.
        """
        if self._closed:
            return
        with errors.translated():
            try:
                self._producer.flush(timeout)
            except ours.DeliveryError as lost:
                log.warning("%s", lost)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Delivers what is queued and closes the connections; calling it again does nothing.

        Args:
            timeout: seconds for a graceful end, None = delivery_timeout_ms; then the rest fails.
            null_logger: nothing is logged about records that were lost.
        """
        if timeout is not None and not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"Invalid timeout: {timeout}")
        if self._closed:
            return
        self._closed, self._short_send = True, None
        if null_logger:
            self._producer._close(timeout)
        else:
            self._producer.close(timeout)
        for name in ("key_serializer", "value_serializer"):
            if (close := getattr(self.config[name], "close", None)) is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None) -> None:
        self.close()

    # -- transactions -------------------------------------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Gets the producer ready for transactions; called once, first.

        Raises:
            IllegalStateError: there is no transactional_id.
            KafkaTimeoutError: not done within max_block_ms; calling it again waits for its end.
            KafkaError: refused.
        """
        with errors.translated():
            self._producer.init_transactions()

    def begin_transaction(self) -> None:
        """Opens a transaction: what is sent from now on belongs to it.

        Raises:
            IllegalStateError: one is open, or init_transactions() was not called.
        """
        with errors.translated():
            self._producer.begin_transaction()

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: Any) -> None:
        """Commits a group's offsets with the transaction.

        Args:
            offsets: the next offset to read, by partition.
            group_metadata: `consumer.group_metadata()`, or a group id alone.

        Raises:
            KafkaError: call abort_transaction(), or close the producer where it is fatal.
        """
        group: Any = group_metadata
        if not isinstance(group, str):
            group = types.ConsumerGroupMetadata(group[0] or "", *group[1:4])
        with errors.translated():
            found = {TopicPartition(*tp): OffsetAndMetadata(*offset).engines() for tp, offset in offsets.items()}
            self._producer.send_offsets_to_transaction(found, group)

    def commit_transaction(self) -> None:
        """Waits until all records of the transaction are delivered, and commits.

        Raises:
            KafkaTimeoutError: how it ends is not known after max_block_ms: call it again.
            KafkaError: nothing is committed: call abort_transaction(), or close the producer where it is fatal.
        """
        with errors.translated():
            self._producer.commit_transaction()

    def abort_transaction(self) -> None:
        """Aborts: readers of committed data see nothing of the transaction.

        Raises:
            KafkaError: refused.
        """
        with errors.translated():
            self._producer.abort_transaction()

    # -- looking in ---------------------------------------------------------------------------------------------------------------

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]] | None:
        """Figures by group and name, Kafka's names; None with metrics_enabled=False.

        Args:
            raw: kafka-python's own metric objects, which are not there.

        Raises:
            IllegalArgumentError: `raw` is set.
        """
        if raw:
            raise errors.IllegalArgumentError("the engine has no KafkaMetric objects: metrics() gives their values")
        return self._producer.metrics(detail=True) if self.config["metrics_enabled"] else None

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """The format of records that a broker of this release takes; the engine writes magic 2."""
        return 2 if api_version >= (0, 11) else 1 if api_version >= (0, 10, 0) else 0

    def __str__(self) -> str:
        return f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"


def _failed(engine: Engine, error: Exception, topic: Any, value: Any, key: Any, headers: Any, partition: Any) -> Any:
    """What kafka-python does with an error in `send`: a broker's refusal of the topic is the outcome of the record."""
    engine._refuse(error)
    if isinstance(error, ours.InvalidTopic):
        _check_topic(topic)
    if isinstance(error, ours.BrokerError) and not isinstance(error, ours.RecordTooLarge) and error.topic is not None:
        return Future().failure(errors.of(error))
    if type(error) is ours.UsageError and partition is not None:
        raise ValueError(
            "partition must be >= 0" if partition < 0 else f"Unrecognized partition {partition} for topic {topic}"
        ) from error
    raise errors.of(error) from (error if isinstance(error, ours.KafkaError) else None)


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError("All topics must be strings")
    if topic in (".", "..") or not _TOPIC_NAME.fullmatch(topic):
        raise ValueError(
            f"Topic name {topic!r} is illegal: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'"
        )


def _serialized(serializer: Any, topic: str, headers: Any, data: Any, what: str) -> Any:
    if serializer is not None:
        data = serializer.serialize(topic, headers, data) if hasattr(serializer, "serialize") else serializer(data)
    if data is not None and type(data) not in (bytes, bytearray, memoryview):
        raise TypeError(f"Unsupported type for serialized {what}: {type(data)}")
    return data


__all__ = ["KafkaProducer", "RecordFuture"]
