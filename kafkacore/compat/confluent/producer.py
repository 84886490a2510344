"""confluent-kafka's Producer over the engine's.

Delivery callbacks run in `poll` and `flush` only, on the thread that calls these. The engine puts each finished record's future into a
queue (`_ready`); what its callback needs waits in `_reports`.

Source: confluent_kafka.Producer, confluent-kafka 2.16.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kafkacore import errors as ours
from kafkacore import types
from kafkacore._codec import RecordFuture
from kafkacore.admin import KafkaAdminClient
from kafkacore.compat.confluent.client_settings import DEFAULTS, INT32_MAX, PRODUCER_SETTINGS, engine_settings, flag, joined
from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException, local, of, translated
from kafkacore.compat.confluent.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from kafkacore.compat.confluent.metadata import ClusterMetadata, cluster_of
from kafkacore.compat.confluent.partitions import engines, engines_offset, listed
from kafkacore.config import AdminConfig
from kafkacore.producer import KafkaProducer as Engine

NO_LIMIT_S = 1_000_000.0
CLOSE_S = 30.0
_done: Any = RecordFuture.add_done_callback


def seconds(timeout: Any) -> float | None:
    """A time-out as confluent-kafka takes it: None and below 0 are without limit."""
    if timeout is None or timeout < 0:
        return None
    return float(timeout)


def limited(timeout: Any) -> float:
    """The same for calls that need a number."""
    found = seconds(timeout)
    return NO_LIMIT_S if found is None else found


def list_topics(settings: dict[str, Any], topic: Any, timeout: Any) -> ClusterMetadata:
    """What a broker says of the cluster, asked by a client of its own.

    Args:
        settings: the engine's, of any client.
        topic: one topic; None for all.
        timeout: seconds.

    Raises:
        KafkaException: no answer in time.
    """
    found = seconds(timeout)
    limit_ms = INT32_MAX if found is None else round(found * 1000)
    known = set(AdminConfig.names())
    with translated("Failed to get metadata"), KafkaAdminClient({k: v for k, v in settings.items() if k in known}) as admin:
        return cluster_of(admin._metadata(None if topic is None else [topic], limit_ms), ours.from_code)


class Producer:
    """Sends messages; threads may share one.

    Args:
        config: settings under librdkafka's names, and callbacks.
        **kwargs: more of them, which count more.

    Raises:
        KafkaException: a setting is unknown, wrong or refused.
    """

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._closed = True
        given = joined(config, kwargs)
        settings = engine_settings(PRODUCER_SETTINGS, given)
        transactional = settings.get("transactional_id") is not None
        idempotent = flag(given, "enable.idempotence") or transactional
        in_flight = int(given.get("max.in.flight.requests.per.connection", DEFAULTS["max.in.flight.requests.per.connection"]))
        if idempotent and str(settings["acks"]) not in ("-1", "all"):
            raise local("_INVALID_ARG", "Failed to create producer: `acks` must be set to `all` when `enable.idempotence` is true")
        settings |= {
            "enable_idempotence": idempotent,
            "max_in_flight_requests_per_connection": min(in_flight, 5) if idempotent else in_flight,
            "partitioner_ignore_keys": given.get("partitioner") == "random",
            "max_block_ms": 0,  # a full queue is a BufferError at once; what else takes time is given its own
        }
        level = int(given.get("compression.level", -1))
        if level >= 0 and settings["compression_type"] in ("gzip", "lz4", "zstd"):
            settings[f"compression_{settings['compression_type']}_level"] = level
        # The engine wants a record's time to hold a request; librdkafka cuts the request's time down.
        life_ms = int(settings["delivery_timeout_ms"])
        settings["linger_ms"] = min(int(settings["linger_ms"]), life_ms - 1)
        settings["request_timeout_ms"] = max(1, min(int(settings["request_timeout_ms"]), life_ms - settings["linger_ms"]))
        self._settings = settings
        self._on_delivery: Callable[..., Any] | None = given.get("on_delivery")
        self._only_errors = flag(given, "delivery.report.only.error")
        self._most = int(given.get("queue.buffering.max.messages", DEFAULTS["queue.buffering.max.messages"])) or INT32_MAX
        self._topic_wait_ms = int(given.get("topic.metadata.propagation.max.ms", DEFAULTS["topic.metadata.propagation.max.ms"]))
        self._since = 0  # messages since they were counted last, and how many there were then
        self._counted = 0
        self._reports: dict[RecordFuture, tuple[Any, Any, Any, float]] = {}
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._put = self._ready.put
        with translated("Failed to create producer"):
            self._producer = Engine(**settings)
        self._send = self._producer.send
        self._closed = False

    # -- sending ------------------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queues a message.

        Args:
            topic: topic name. A topic that the producer does not know yet is asked for, which may take topic.metadata.propagation.max.ms.
            value, key: bytes or str.
            partition: number; -1 lets the partitioner choose.
            callback, on_delivery: called as f(error, message) by `poll` or `flush`.
            timestamp: epoch milliseconds; 0 is now.
            headers: a dict or a list of pairs; values bytes, str or None.

        Raises:
            BufferError: the queue is full: call `poll`.
            KafkaException: unknown topic or partition, a message that is too large, a wrong state of the transaction.
            RuntimeError: the producer is closed.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        self._since += 1
        if self._counted + self._since > self._most:
            self._count()
        report = on_delivery or callback or self._on_delivery
        pairs = _pairs(headers) if headers else None
        number, at_ms = (None if partition == -1 else partition), timestamp or None
        try:
            future = self._send(topic, value, key, headers=pairs, partition=number, timestamp_ms=at_ms)
        except Exception as error:
            try:
                future = self._again(error, topic, value, key, pairs, number, at_ms)
            except BaseException:
                self._since -= 1
                raise
        if report is not None:
            self._reports[future] = report, value, key, time.perf_counter()
            _done(future, self._put)

    def _count(self) -> None:
        """Counts what is queued once more; refuses one message too many."""
        self._counted, waiting = len(self), self._since - 1
        self._since = 1
        if self._counted >= self._most:
            self._since, self._counted = waiting, max(0, self._counted - waiting)
            raise BufferError("Local: Queue full")

    def _again(self, error: Exception, topic: Any, value: Any, key: Any, headers: Any, partition: Any, at_ms: Any) -> RecordFuture:
        """What did not go: a topic is waited for, everything else is raised in confluent-kafka's way."""
        if isinstance(error, TypeError) or not isinstance(error, ours.KafkaError):
            raise error
        if isinstance(error, ours.BufferFullError):
            raise BufferError("Local: Queue full") from error
        try:
            if isinstance(error, ours.KafkaTimeoutError) and topic not in self._producer._topics:
                self._producer._await_topic(topic, self._topic_wait_ms)
                return self._send(topic, value, key, headers=headers, partition=partition, timestamp_ms=at_ms)
        except ours.KafkaTimeoutError as late:
            unknown = any(isinstance(each, ours.UnknownTopicOrPartition) for each in late.attempts)
            raise KafkaException(_unable("_UNKNOWN_TOPIC" if unknown else "_TIMED_OUT", late)) from late
        except ours.KafkaError as failed:
            error = failed
        if type(error) is ours.UsageError and partition is not None:
            raise KafkaException(_unable("_UNKNOWN_PARTITION", error)) from error
        raise KafkaException(of(error, "Unable to produce message")) from error

    def produce_batch(
        self, topic: str, messages: list[dict[str, Any]], partition: int = -1, callback: Any = None, on_delivery: Any = None
    ) -> int:
        """Queues messages that are dicts with value, key, partition, timestamp and callback.

        Returns:
            How many were queued; the others have their KafkaError under `_error`.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        queued = 0
        for each in messages:
            if not isinstance(each, dict):
                raise TypeError("each message must be a dict")
            try:
                self.produce(
                    topic,
                    each.get("value"),
                    each.get("key"),
                    each.get("partition", partition),
                    each.get("callback"),
                    None if each.get("callback") else on_delivery or callback,
                    each.get("timestamp", 0),
                )
                queued += 1
            except KafkaException as error:
                each["_error"] = error.args[0]
            except BufferError as full:
                each["_error"] = KafkaError(KafkaError._QUEUE_FULL, str(full))  # type: ignore[attr-defined]
        return queued

    # -- reports ------------------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> int:
        """Runs the callbacks of messages that have an outcome.

        Args:
            timeout: seconds to wait for one; None and below 0 without limit.

        Returns:
            How many events were served.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        return self._poll(seconds(timeout))

    def _poll(self, timeout: float | None) -> int:
        if self._ready.empty() and timeout != 0:
            if not self._reports:  # messages without a callback end a wait, too
                for batch in self._producer._accumulator.incomplete():
                    batch.delivery.root.add_done_callback(None, self._put)
            try:
                first = self._ready.get(timeout=timeout)
            except queue.Empty:
                return 0
            self._serve(first)
            return 1 + self._poll(0)
        served = 0
        for _ in range(self._ready.qsize()):
            self._serve(self._ready.get())
            served += 1
        return served

    def _serve(self, future: RecordFuture | None) -> None:
        if future is None:
            return
        report, value, key, began = self._reports.pop(future)
        error = future.exception(0)
        if error is None:
            if self._only_errors:
                return
            topic, partition, offset, timestamp_ms, _, _ = future.result(0)
            stamp = (TIMESTAMP_CREATE_TIME, timestamp_ms) if timestamp_ms >= 0 else (TIMESTAMP_NOT_AVAILABLE, 0)
            place = offset if offset >= 0 else None
            report(None, Message(topic, partition, place, _bytes(key), _bytes(value), timestamp=stamp, latency=time.perf_counter() - began))
            return
        failed = _outcome(error)
        where = error.topic, error.partition
        report(failed, Message(*where, None, _bytes(key), _bytes(value), error=failed))

    def flush(self, timeout: float | None = None) -> int:
        """Waits until every message has an outcome and its callback has run.

        Args:
            timeout: seconds; None and below 0 without limit.

        Returns:
            How many messages are still waiting.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        limit = seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                self._producer.flush(left)
            except (ours.DeliveryError, ours.KafkaTimeoutError):
                pass  # outcomes are the callbacks' affair, and what is left is counted below
            self._poll(0)
            waiting = len(self)
            if not waiting or left == 0:
                return waiting

    def __len__(self) -> int:
        if self._closed:
            return 0
        queued: int = sum(batch.count for batch in self._producer._accumulator.incomplete())
        return queued + self._ready.qsize()

    def __bool__(self) -> bool:
        return True

    # -- transactions -------------------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Gets the producer ready for transactions; called once, first.

        Args:
            timeout: seconds.

        Raises:
            KafkaException: `args[0]` says whether to try again (`retriable`) or to close the producer (`fatal`).
        """
        self._transactional()
        with translated():
            self._producer.init_transactions(limited(timeout))

    def begin_transaction(self) -> None:
        """Opens a transaction: what is produced from now on belongs to it."""
        self._transactional()
        with translated():
            self._producer.begin_transaction()

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float | None = None) -> None:
        """Commits a group's offsets with the transaction.

        Args:
            positions: the next offsets to read; those below 0 are left out.
            group_metadata: `consumer.consumer_group_metadata()`.
            timeout: seconds.
        """
        self._transactional()
        offsets = {engines(each): engines_offset(each) for each in listed(positions) if each.offset >= 0}
        if not isinstance(group_metadata, types.ConsumerGroupMetadata):
            raise TypeError("group_metadata must be what Consumer.consumer_group_metadata() gives")
        with translated():
            if offsets:
                self._producer.send_offsets_to_transaction(offsets, group_metadata, limited(timeout))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Waits until all messages of the transaction are delivered, runs their callbacks and commits."""
        self._transactional()
        try:
            with translated():
                self._producer.commit_transaction(limited(timeout))
        finally:
            self._poll(0)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Aborts; messages that are not on their way fail with _PURGE_QUEUE."""
        self._transactional()
        try:
            with translated():
                self._producer.abort_transaction(limited(timeout))
        finally:
            self._poll(0)

    def _transactional(self) -> None:
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if self._producer.config.transactional_id is None:
            raise local("_NOT_CONFIGURED", "The Transactional API requires transactional.id to be configured")

    # -- looking in ---------------------------------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """What a broker says of the cluster: all topics, or one."""
        return list_topics(self._settings, topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id."""
        return list_topics(self._settings, None, timeout).cluster_id

    def close(self) -> bool:
        """Aborts an open transaction, delivers what is queued, and closes; again does nothing."""
        if not self._closed:
            self.flush(CLOSE_S)
            self._closed = True
            self._producer._close(CLOSE_S)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        self.close()


def _outcome(error: BaseException) -> KafkaError:
    """Why a message failed."""
    if isinstance(error, ours.KafkaTimeoutError) and not isinstance(error, ours.TransportError):
        return KafkaError(KafkaError._MSG_TIMED_OUT, str(error))  # type: ignore[attr-defined]
    return of(error)


def _unable(name: str, error: Exception) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), f"Unable to produce message: {error}")


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    found = []
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if value is not None and not isinstance(value, (bytes, bytearray, str)):
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
        found.append((name, _bytes(value)))
    return found
