"""Messages of topics that a Producer does not know yet: `produce` never waits, so the engine holds them.

Source: the unassigned messages of a topic, librdkafka 2.16.
"""

from __future__ import annotations

import functools
import logging
import operator
import time
from collections import deque
from typing import Any

from kafkacore import errors as ours
from kafkacore._codec import ReportedSend, TopicQueue
from kafkacore.compat.confluent.events import Events
from kafkacore.compat.confluent.kafka_error import KafkaError, of
from kafkacore.compat.confluent.message import TIMESTAMP_NOT_AVAILABLE, Message
from kafkacore.producer import KafkaProducer as Engine
from kafkacore.producer.sender import Sender
from kafkacore.producer.unplaced import HeldRecord, Unplaced

log = logging.getLogger("kafkacore.compat")


class UnknownTopics:
    """Holds messages until their topics are known, and reports those that fail.

    Args:
        engine: the producer.
        sends: queues messages, and counts those without a served report.
        events: where reports go.
        report: called as f(error, message) for messages that name no callback of their own; or None.
        patience_ms: how long a topic that the brokers do not have may still appear.
    """

    def __init__(self, engine: Engine, sends: ReportedSend, events: Events, report: Any, patience_ms: int) -> None:
        self._sends, self._events, self._report = sends, events, report
        self._said: BaseException | None = None
        self._clock = engine._clock
        self._most_bytes = engine.config.max_request_size
        self._sender: Sender = engine._sender
        life_ms = engine.config.delivery_timeout_ms
        self._unplaced = Unplaced(self._sender, engine._topics, self, life_ms=life_ms, patience_ms=min(patience_ms, life_ms))

    def hold(self, topic: str, value: Any, key: Any, headers: Any, partition: Any, at_ms: Any, report: Any) -> bool:
        """Takes a message of an unknown topic.

        Returns:
            False: the topic is known by now.

        Raises:
            BufferFullError: the queue is full.
            KafkaError: the message is too large, or the brokers do not have the topic.
        """
        value, key = _bytes(value), _bytes(key)
        nbytes = len(value or b"") + len(key or b"")
        if nbytes > self._most_bytes:
            raise ours.RecordTooLarge(f"a record of {nbytes} bytes is larger than max_request_size ({self._most_bytes})", topic=topic)
        number = None if partition is None else operator.index(partition)
        stamp = self._clock.wall_ms() if at_ms is None else at_ms
        began_s = time.monotonic()
        record = HeldRecord(value, key, headers, number, stamp, self._report if report is None else report, began_s, 0, 0)
        return self._unplaced.hold(topic, record, self._clock.now_ms(), self._sends.held)

    def place(self, queue: TopicQueue, records: deque[HeldRecord]) -> None:
        """Queues the first one; see `unplaced.Face`."""
        self._sends.place(queue, records)

    def lost(self, topic: str, record: HeldRecord, error: BaseException) -> None:
        """Reports a message that failed; see `unplaced.Face`."""
        if record.report is None:
            if error is not self._said:  # messages that fail together share it
                self._said = error
                log.warning("messages of topic %s were not delivered: %s", topic, error)
            self._sends.held(-1)
        else:
            self._events.put(functools.partial(self._serve, topic, record, error))

    def _serve(self, topic: str, record: HeldRecord, error: BaseException) -> None:
        failure = outcome(error)
        if type(error) is ours.UsageError and record.partition is not None:
            failure = KafkaError(KafkaError._UNKNOWN_PARTITION, str(error))  # type: ignore[attr-defined]
        latency = time.monotonic() - record.began_s
        stamp = (TIMESTAMP_NOT_AVAILABLE, -1)
        message = Message(topic, record.partition, None, record.key, record.value, None, failure, stamp, latency)
        try:
            record.report(failure, message)
        finally:
            self._sends.held(-1)

    @property
    def any(self) -> bool:
        """True while messages wait for their topics."""
        return bool(self._unplaced)

    def wait(self, timeout: float | None) -> None:
        """Waits until no message waits for its topic.

        Args:
            timeout: seconds, None = no limit.

        Raises:
            KafkaTimeoutError: the time has passed.
        """
        done = self._unplaced.emptied()
        if done is not None:
            self._sender.wait(done, timeout)

    def purge(self, error: type[ours.KafkaError]) -> None:
        """Gives them up; on the thread that drives the I/O."""
        self._unplaced.fail(lambda topic, count: error(f"given up before topic {topic} was known", topic=topic))


def outcome(error: BaseException) -> KafkaError:
    """Why a message failed."""
    if isinstance(error, ours.KafkaTimeoutError) and not isinstance(error, ours.TransportError):
        return KafkaError(KafkaError._MSG_TIMED_OUT, str(error))  # type: ignore[attr-defined]
    if isinstance(error, ours.PurgedError):
        return KafkaError(KafkaError._PURGE_INFLIGHT if error.in_flight else KafkaError._PURGE_QUEUE, str(error))  # type: ignore[attr-defined]
    return of(error)


def _bytes(data: Any) -> Any:
    return data.encode() if isinstance(data, str) else data
