"""Records of topics that a producer does not know yet, for faces whose `send` never waits.

`send` of the engine waits for a topic's metadata. A face that must not wait has its records held here, in the order of their sends. They
are appended when the topic is known. They fail when their time is over, or when the brokers refuse the topic for good.

A topic is held here or is in the producer's table, never both, so that no later record goes ahead of a held one: `lock` is held while a
topic changes over. The thread that drives the I/O calls `step` and `fail`; the other calls are for any thread.

Source: rd_kafka_topic_assign_uas and rd_kafka_topic_propagate_notexists, librdkafka 2.16.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from kafkacore._codec import NEVER_MS, Delivery, TopicQueue
from kafkacore.errors import BufferFullError, ClosedError, KafkaError, KafkaTimeoutError, UnknownTopicOrPartition
from kafkacore.metadata import TopicInfo
from kafkacore.plurals import counted
from kafkacore.producer.sender import Sender
from kafkacore.producer.topic_queues import follow, new_queue

MEMORY_PAUSE_MS = 5
"""Until the rest of a topic's records is tried once more, where memory was full."""


class HeldRecord(NamedTuple):
    """A record that waits for its topic; `ReportedSend.place` knows the order of the fields.

    Attributes:
        value, key: bytes or None.
        headers: pairs of name and value, or None.
        partition: number, or None.
        timestamp_ms: epoch milliseconds.
        report: what the face does with the outcome.
        began_s: when it was sent, on the clock of latencies.
        until_ms: when it fails.
        nbytes: what counts against the bound of memory.
    """

    value: bytes | None
    key: bytes | None
    headers: Any
    partition: int | None
    timestamp_ms: int
    report: Any
    began_s: float
    until_ms: int
    nbytes: int


class Face(Protocol):
    """What a face does with held records."""

    def place(self, queue: TopicQueue, records: deque[HeldRecord]) -> None:
        """Appends the first record and takes it out of `records`, in one step that Ctrl+C cannot cut in two. What it raises, but for
        BufferFullError, is the record's outcome."""

    def lost(self, topic: str, record: HeldRecord, error: BaseException) -> None:
        """Reports a record that failed."""


class _Held:
    """The records of a topic.

    Attributes:
        records: oldest first.
        before: what was known of the topic when the first of them came.
        started: requests for metadata by then.
        refused_ms: when a topic that the brokers do not have is given up.
        queue: where they go, once the topic is known.
    """

    def __init__(self, before: TopicInfo | None, started: int, refused_ms: int) -> None:
        self.records: deque[HeldRecord] = deque()
        self.before = before
        self.started = started
        self.refused_ms = refused_ms
        self.queue: TopicQueue | None = None


class Unplaced:
    """Holds records until their topics are known.

    Args:
        sender: of the producer.
        topics: the producer's table of topics.
        face: appends and reports; held weakly, since the Sender must not keep a producer alive.
        life_ms: how long a record may wait.
        patience_ms: how long a topic that the brokers do not have may still appear.

    Attributes:
        lock: held while a topic changes over.
    """

    def __init__(self, sender: Sender, topics: dict[str, TopicQueue], face: Face, *, life_ms: int, patience_ms: int) -> None:
        self.lock = threading.RLock()
        self._sender = sender
        self._metadata = sender.metadata
        self._topics = topics
        self._face = weakref.ref(face)
        self._life_ms, self._patience_ms = life_ms, patience_ms
        self._held: dict[str, _Held] = {}
        self._refused: dict[str, KafkaError] = {}
        self._nbytes = 0
        self._version = -1
        self._next_ms = NEVER_MS
        self._waiters: list[Delivery] = []
        sender.unplaced = self

    def __bool__(self) -> bool:
        return bool(self._held)

    @contextlib.contextmanager
    def change_over(self, topic: str) -> Iterator[None]:
        """A block that puts a topic into the producer's table.

        Raises:
            KafkaTimeoutError: records of the topic are held.
        """
        with self.lock:
            if topic in self._held:
                raise KafkaTimeoutError("earlier records wait for the topic's metadata", topic=topic)
            yield

    def hold(self, topic: str, record: HeldRecord, now_ms: int, count: Callable[[int], object]) -> bool:
        """Takes a record, unless its topic is known by now. Where Ctrl+C comes in between, it is held and counted, or neither.

        Args:
            topic: name.
            record: its `until_ms` and `nbytes` are set here.
            now_ms: the time.
            count: called with 1 for the record, and with -1 where it is not held after all.

        Returns:
            False: the topic is known, and nothing was done.

        Raises:
            BufferFullError: no memory for it.
            KafkaError: the brokers have refused the topic, and nothing else is known of it.
        """
        nbytes = len(record.value or b"") + len(record.key or b"")
        pool = self._sender.accumulator.pool
        with self.lock:
            held, info = self._held.get(topic), self._metadata.snapshot.topics.get(topic)
            if held is None and (topic in self._topics or (info is not None and info.partition_count)):
                self._refused.pop(topic, None)
                return False
            if held is None and topic in self._refused:
                if info is not None and info.error is not None:
                    self._metadata.request_topic(topic)
                    raise copy.copy(self._refused[topic])  # each with a traceback of its own
                del self._refused[topic]
            if self._nbytes + nbytes > pool.available_bytes:
                raise BufferFullError(f"{nbytes} bytes are needed, {max(0, pool.available_bytes - self._nbytes)} are free", topic=topic)
            if held is None:
                self._metadata.add_topic(topic, now_ms, create=True)
                held = self._held[topic] = _Held(info, self._metadata.started, now_ms + self._patience_ms)
                self._metadata.request_topic(topic)
                self._version = -1
            record = record._replace(until_ms=now_ms + self._life_ms, nbytes=nbytes)
            try:
                count(1)
                held.records.append(record)
                self._nbytes += nbytes
            except BaseException:
                if held.records and held.records[-1] is record:
                    held.records.pop()
                count(-1)
                raise
            hurry = self._version < 0
        if hurry:
            self._sender.wake(now_ms, True)
        return True

    def emptied(self) -> Delivery | None:
        """What `Sender.wait` waits for until nothing is held any more; None when that is so."""
        with self.lock:
            if not self._held:
                return None
            waiter = Delivery(None, self._sender)
            self._waiters.append(waiter)
            return waiter

    def step(self, now_ms: int) -> int:
        """Does what the time and the newest metadata ask for.

        Returns:
            Milliseconds until there is more to do.
        """
        if not self._held:
            return NEVER_MS
        if self._metadata.version != self._version or now_ms >= self._next_ms:
            with self.lock:
                news = self._metadata.version != self._version
                self._version = self._metadata.version
                known = self._metadata.snapshot.topics
                self._next_ms = min([self._look(topic, known.get(topic), now_ms, news) for topic in list(self._held)], default=NEVER_MS)
            self._tell()
        return max(0, self._next_ms - now_ms)

    def fail(self, why: Callable[[str, int], KafkaError]) -> None:
        """Gives up every record; on the thread that drives the I/O.

        Args:
            why: called as f(topic, number of records).
        """
        with self.lock:
            for topic, held in list(self._held.items()):
                self._lose(topic, held, len(held.records), why(topic, len(held.records)))
                self._leave(topic, held)
        self._tell()

    def close(self) -> None:
        """The I/O has ended."""
        self.fail(lambda topic, count: ClosedError(f"the producer was closed while {counted(count, 'record')} waited", topic=topic))

    def _tell(self) -> None:
        with self.lock:  # a caller of `emptied` may be between its look and its entry
            if self._held:
                return
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.resolve(-1, -1, None)

    def _look(self, topic: str, info: TopicInfo | None, now_ms: int, news: bool) -> int:
        """What becomes of a topic's records; returns when to look again (lock held)."""
        held = self._held[topic]
        if info is not None and info.partition_count:
            return self._place(topic, held, info, now_ms)
        records, error = held.records, None if info is None else info.error
        late = next((at for at, record in enumerate(records) if record.until_ms > now_ms), len(records))
        if late:
            self._lose(topic, held, late, self._too_late(topic, late))
        fresh = info is not None and info is not held.before
        absent = isinstance(error, UnknownTopicOrPartition)
        if error is not None and ((fresh and not error.retriable) or (absent and now_ms >= held.refused_ms and self._answered(held))):
            self._refused[topic] = error
            self._lose(topic, held, len(records), error)
        if not records:
            self._leave(topic, held)
            return NEVER_MS
        if news:
            self._metadata.add_topic(topic, now_ms, create=True)
            self._metadata.request_topic(topic)
        return min(records[0].until_ms, held.refused_ms if absent and now_ms < held.refused_ms else NEVER_MS)

    def _answered(self, held: _Held) -> bool:
        """Whether a request was answered that was made after the first record came: an earlier answer may be from before the topic."""
        answered: bool = self._metadata.answered > held.started
        return answered

    def _too_late(self, topic: str, count: int) -> KafkaError:
        attempts = list(self._metadata.attempts)
        info = self._metadata.snapshot.topics.get(topic)
        if info is not None and info.error is not None:
            attempts.append(info.error)
        text = f"{counted(count, 'record')} not delivered within delivery_timeout_ms={self._life_ms} (no metadata of the topic)"
        return KafkaTimeoutError(text, topic=topic, attempts=attempts)

    def _place(self, topic: str, held: _Held, info: TopicInfo, now_ms: int) -> int:
        face = self._face()
        if held.queue is None:
            held.queue = new_queue(topic, info)
        while held.records and face is not None:
            count, nbytes = len(held.records), held.records[0].nbytes
            try:
                face.place(held.queue, held.records)
            except BufferFullError:
                return now_ms + MEMORY_PAUSE_MS
            except Exception as error:
                self._lose(topic, held, 1, error)
                continue
            finally:
                if len(held.records) < count:
                    self._nbytes -= nbytes
        self._leave(topic, held)
        return NEVER_MS

    def _leave(self, topic: str, held: _Held) -> None:
        """Nothing of a topic is held any more."""
        if held.queue is not None:
            follow(held.queue, self._metadata.snapshot.topics.get(topic))
            self._topics.setdefault(topic, held.queue)
        del self._held[topic]

    def _lose(self, topic: str, held: _Held, count: int, error: BaseException) -> None:
        face = self._face()
        if isinstance(error, KafkaError) and count and self._sender.transactional is not None:
            self._sender.transactional.engine.batch_failed(error, False)
        for _ in range(count):
            record = held.records.popleft()
            self._nbytes -= record.nbytes
            if face is not None:
                face.lost(topic, record, error)
