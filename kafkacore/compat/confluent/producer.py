"""confluent-kafka's Producer over the engine's.

Delivery callbacks run in `poll` and `flush` only, on the thread that calls these. `produce` has a compiled short cut (`ReportedSend`,
native/reports.pxi), which also holds what is reported: the engine puts the reports of each finished batch into `_events`.

Source: confluent_kafka.Producer, confluent-kafka 2.16.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import time
from types import TracebackType
from typing import Any, Self

from kafkacore import errors as ours
from kafkacore import types
from kafkacore._codec import ReportedSend, send_method
from kafkacore.admin import KafkaAdminClient
from kafkacore.compat.confluent import statistics
from kafkacore.compat.confluent.client_settings import DEFAULTS, INT32_MAX, PRODUCER_SETTINGS, engine_settings, flag, joined, number
from kafkacore.compat.confluent.events import Events, Watch, set_credentials
from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException, local, of, translated
from kafkacore.compat.confluent.logs import log_to
from kafkacore.compat.confluent.message import Message
from kafkacore.compat.confluent.metadata import ClusterMetadata, cluster_of
from kafkacore.compat.confluent.partitions import engines, engines_offset, listed
from kafkacore.compat.confluent.statistics import Statistics
from kafkacore.compat.confluent.unknown_topics import UnknownTopics, outcome
from kafkacore.config import AdminConfig
from kafkacore.producer import KafkaProducer as Engine
from kafkacore.producer.purge import purge

NO_LIMIT_S = 1_000_000.0
CLOSE_S = 30.0
AGAIN_S = 0.1
"""How long a flush waits at once while another thread serves the last reports."""

log = logging.getLogger("kafkacore.compat")


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

    __slots__ = ("__dict__", "__weakref__", "_short_send")
    _closed = True  # of a subclass that skips __init__, too

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
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
        self._events = self._make_events()
        log_to(self, given)
        with translated("Failed to create producer"):
            self._producer = Engine(**settings)
        most = int(given.get("queue.buffering.max.messages", DEFAULTS["queue.buffering.max.messages"])) or INT32_MAX
        only_errors = flag(given, "delivery.report.only.error")
        self._sends = ReportedSend(
            self._producer, Message, given.get("on_delivery"), most, only_errors, self._again, self._events.put, outcome
        )
        self._events.serve_reports = self._sends.serve
        patience_ms = int(given.get("topic.metadata.propagation.max.ms", DEFAULTS["topic.metadata.propagation.max.ms"]))
        self._unknown = UnknownTopics(self._producer, self._sends, self._events, given.get("on_delivery"), patience_ms)
        sender = self._producer._sender
        Watch(self._events, lambda: sender.client, given)
        if (interval_ms := number(given, "statistics.interval.ms")) > 0 and (tell := given.get("stats_cb")) is not None:
            more = functools.partial(statistics.of_producer, self._producer, self._sends, most)
            client_id = str(settings["client_id"])
            self._events.statistics = Statistics("producer", client_id, tell, interval_ms, lambda: sender.client, more)
        self._short_send: ReportedSend | None = self._sends
        self._closed = False

    def _make_events(self) -> Events:
        return Events()

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
            topic: topic name. Messages of a topic that the producer does not know yet wait in the queue, as long as others: one that the
                brokers do not have fails them after topic.metadata.propagation.max.ms.
            value, key: bytes or str.
            partition: number; -1 lets the partitioner choose.
            callback, on_delivery: called as f(error, message) by `poll` or `flush`.
            timestamp: epoch milliseconds; 0 is now.
            headers: a dict or a list of pairs; values bytes, str or None.

        Raises:
            BufferError: the queue is full: call `poll`.
            KafkaException: a message that is too large, a topic or partition that is known to be absent, a wrong state of the transaction.
            RuntimeError: the producer is closed.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if self._sends.full:
            raise BufferError("Local: Queue full")
        report = on_delivery if callback is None else callback
        try:
            if not (_is_plain(value) and _is_plain(key)):
                raise TypeError("a message's value and key are bytes, str or None")
            pairs = _pairs(headers) if headers else None
            number, at_ms = (None if partition == -1 else operator.index(partition)), operator.index(timestamp) or None
        except Exception as error:
            self._producer._refuse(error)
            raise
        try:
            self._sends.append(topic, value, key, pairs, number, at_ms, report)
        except Exception as error:
            self._again(error, topic, value, key, pairs, number, at_ms, report)

    def _again(self, error: Exception, topic: Any, value: Any, key: Any, headers: Any, partition: Any, at_ms: Any, report: Any) -> None:
        """What did not go: a topic is waited for, everything else is raised in confluent-kafka's way."""
        if isinstance(error, ours.BufferFullError):
            raise BufferError("Local: Queue full") from error  # the one refusal after which a program calls again
        if isinstance(error, TypeError) or not isinstance(error, ours.KafkaError):
            self._producer._refuse(error)
            raise error
        try:
            while isinstance(error, ours.KafkaTimeoutError):
                if self._unknown.hold(topic, value, key, headers, partition, at_ms, report):
                    return
                try:  # it has become known
                    self._sends.append(topic, value, key, headers, partition, at_ms, report)
                    return
                except ours.BufferFullError:
                    raise
                except ours.KafkaTimeoutError as early:  # another thread's message waits for the topic
                    error = early
        except ours.BufferFullError as full:
            raise BufferError("Local: Queue full") from full
        except (ours.UnknownTopicOrPartition, ours.InvalidTopic) as absent:
            self._producer._refuse(absent)
            raise KafkaException(_unable("_UNKNOWN_TOPIC", absent)) from absent
        except ours.KafkaError as failed:
            error = failed
        self._producer._refuse(error)
        if type(error) is ours.UsageError and partition is not None:
            raise KafkaException(_unable("_UNKNOWN_PARTITION", error)) from error
        raise KafkaException(of(error, "Unable to produce message")) from error

    produce = send_method(produce, ReportedSend)

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
        return self._events.serve(seconds(timeout))

    def flush(self, timeout: float | None = None) -> int:
        """Waits until every message has an outcome and its callback has run; what a callback raises is raised at the end, the last of them.

        Args:
            timeout: seconds; None and below 0 without limit.

        Returns:
            How many messages are still waiting; in a callback those of its own batch are among them.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        limit = seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        raised: Exception | None = None
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            with translated("Failed to flush"):
                try:
                    self._producer.flush(left)
                    self._unknown.wait(None if end is None else max(0.0, end - time.monotonic()))
                except ours.DeliveryError as lost:
                    log.warning("%s", lost)  # of messages without a callback
                except ours.KafkaTimeoutError:
                    pass  # what is left is counted below
            raised = self._events.serve_all() or raised
            waiting = len(self)
            if not waiting or left == 0 or self._events.being_served:
                if raised is not None:
                    raise raised
                return waiting
            if not self._producer._accumulator.has_incomplete and not self._unknown.any:  # another thread runs the last callbacks
                raised = self._events.serve_all(AGAIN_S if left is None else min(left, AGAIN_S)) or raised

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Gives up messages: their callbacks get _PURGE_QUEUE or _PURGE_INFLIGHT. `poll` or `flush` is to be called afterwards.

        Args:
            in_queue: those that are not on their way.
            in_flight: those on their way; they may be delivered all the same.
            blocking: waits until it is done.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        sender = self._producer._sender
        if in_queue:
            sender.do_first(functools.partial(self._unknown.purge, ours.PurgedError))
        done = sender.do_first(functools.partial(purge, sender, queued=bool(in_queue), in_flight=bool(in_flight)))
        if blocking:
            sender.wait(done, None)

    def __len__(self) -> int:
        return 0 if self._closed else self._sends.waiting + len(self._events)

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
        end = time.monotonic() + limited(timeout)
        try:
            with translated():
                self._unknown.wait(limited(timeout))
                self._producer.commit_transaction(max(0.0, end - time.monotonic()))
        finally:
            self._events.serve()

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Aborts; messages that are not on their way fail with _PURGE_QUEUE."""
        self._transactional()
        end = time.monotonic() + limited(timeout)
        sender = self._producer._sender
        try:
            with translated():
                sender.wait(sender.do_first(functools.partial(self._unknown.purge, ours.TransactionAborted)), limited(timeout))
                self._producer.abort_transaction(max(0.0, end - time.monotonic()))
        finally:
            self._events.serve()

    def _transactional(self) -> None:
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if self._producer.config.transactional_id is None:
            raise local("_NOT_CONFIGURED", "The Transactional API requires transactional.id to be configured")

    # -- looking in ---------------------------------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """What a broker says of the cluster: all topics, or one, which `produce` knows from then on."""
        if self._closed:
            raise RuntimeError("Handle has been closed")
        found = list_topics(self._settings, topic, timeout)
        if topic in found.topics and found.topics[topic].partitions:
            limit = seconds(timeout)
            with contextlib.suppress(ours.KafkaError):  # then `produce` asks once more
                self._producer._await_topic(topic, INT32_MAX if limit is None else round(limit * 1000))
        return found

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id."""
        return self.list_topics(timeout=timeout).cluster_id

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Connections from now on authenticate with these."""
        if self._closed:
            raise RuntimeError("Handle has been closed")
        set_credentials(self._producer._sender.client, username, password)

    def close(self) -> bool:
        """Aborts an open transaction, delivers what is queued, and closes; again does nothing."""
        if not self._closed:
            self.flush(CLOSE_S)
            self._closed, self._short_send = True, None
            self._producer._close(CLOSE_S)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        self.close()


def _unable(name: str, error: Exception) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), f"Unable to produce message: {error}")


def _is_plain(data: Any) -> bool:
    return data is None or isinstance(data, (bytes, str))


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    found = []
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if value is not None and not isinstance(value, (bytes, bytearray, str)):
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
        found.append((name, _bytes(value)))
    return found
