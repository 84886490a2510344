"""confluent-kafka's Consumer over the engine's.

`poll` hands out one message at a time from a list that the engine gave to the loop over it (consumer/chunks.py): the engine takes back what
was not reached when something else is done with the consumer. Errors of the engine come as messages with `error()`.

Source: confluent_kafka.Consumer, confluent-kafka 2.16.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Any, Self

from kafkacore import errors as ours
from kafkacore import types
from kafkacore._codec import MessagesInHand, poll_method, recast_records
from kafkacore.compat.confluent import statistics
from kafkacore.compat.confluent.client_settings import CONSUMER_SETTINGS, engine_settings, flag, joined, number
from kafkacore.compat.confluent.events import Events, Watch, set_credentials
from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException, local, of, translated
from kafkacore.compat.confluent.logs import log_to
from kafkacore.compat.confluent.message import Message, record_offset
from kafkacore.compat.confluent.metadata import ClusterMetadata
from kafkacore.compat.confluent.partitions import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    engines,
    engines_offset,
    listed,
    of_committed,
    of_offset,
)
from kafkacore.compat.confluent.producer import limited, list_topics, seconds
from kafkacore.compat.confluent.statistics import Statistics
from kafkacore.consumer import KafkaConsumer as Engine
from kafkacore.consumer.chunks import Chunk
from kafkacore.consumer.group.listener import RebalanceListener
from kafkacore.consumer.subscription import Mode
from kafkacore.consumer.weakly import weakly

log = logging.getLogger("kafkacore.compat")

LOOK_MS = 100
"""A program that takes so long over the messages in hand lets the group have its turn between two of them."""
AT_ONCE = 2_000
"""Messages that are taken in hand at once, at most."""
SETTLING_MS = 1_000
"""So long `assign` waits for the positions of partitions: a round trip or two, unless brokers are away."""
MOST_MESSAGES = 1_000_000


class _Listener(RebalanceListener):
    """Hands the engine's rebalances to a program's callbacks; offsets are stored for what is given up."""

    def __init__(self, consumer: Consumer, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self._consumer = consumer
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost

    def on_partitions_assigned(self, partitions: Collection[types.TopicPartition]) -> None:
        self._consumer._not_at_end.update(dict.fromkeys(partitions))
        self._call(self._on_assign, partitions)

    def on_partitions_revoked(self, partitions: Collection[types.TopicPartition]) -> None:
        try:
            self._call(self._on_revoke, partitions)
        finally:
            self._consumer._gave_up(partitions, committed=True)

    def on_partitions_lost(self, partitions: Collection[types.TopicPartition]) -> None:
        try:
            self._call(self._on_lost or self._on_revoke, partitions)
        finally:
            self._consumer._gave_up(partitions, committed=False)

    def _call(self, callback: Any, partitions: Collection[types.TopicPartition]) -> None:
        if callback is not None:
            self._consumer._inside = True
            try:
                callback(self._consumer, [TopicPartition(*tp) for tp in sorted(partitions)])
            finally:
                self._consumer._inside = False


class _Chunk(Chunk):
    """Messages in hand: their offset is a method, so the record's own is asked."""

    __slots__ = ()

    def next_offset(self) -> int | None:
        left: int = self.iterator.__length_hint__()
        return int(record_offset(self.records[-left])) if left else None

    def current_offset(self) -> int:
        left: int = self.iterator.__length_hint__()
        return int(record_offset(self.records[max(0, len(self.records) - left - 1)]))


class Consumer:
    """Reads messages; one thread at a time may use it.

    Args:
        config: settings under librdkafka's names, with group.id, and callbacks.
        **kwargs: more of them, which count more.

    Raises:
        KafkaException: a setting is unknown, wrong or refused.
        ValueError: there is no group.id.
    """

    __slots__ = ("__dict__", "__weakref__", "_short_poll")
    _closed = True  # of a subclass that skips __init__, too

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        given = joined(config, kwargs)
        if given.get("group.id") is None:
            raise ValueError("Failed to create consumer: group.id must be set")
        settings = engine_settings(CONSUMER_SETTINGS, given)
        self._auto_commit = flag(given, "enable.auto.commit") and int(settings["auto_commit_interval_ms"]) > 0
        self._auto_store = flag(given, "enable.auto.offset.store")
        self._eof = flag(given, "enable.partition.eof")
        self._on_commit: Callable[..., Any] | None = given.get("on_commit")
        settings |= {
            "allow_auto_create_topics": flag(given, "allow.auto.create.topics"),
            "enable_auto_commit": self._auto_commit and self._auto_store,
        }
        if settings["group_protocol"] == "consumer":
            for name in ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"):
                del settings[name]
        elif int(settings["heartbeat_interval_ms"]) >= int(settings["session_timeout_ms"]):
            settings["heartbeat_interval_ms"] = max(1, int(settings["session_timeout_ms"]) // 3)
        interval_ms = number(given, "statistics.interval.ms")
        regular = interval_ms > 0 and given.get("stats_cb") is not None
        if self._on_commit is not None or regular:
            settings["interceptors"] = (_Watch(self),)
        self._settings = settings
        self._interval_s = int(settings["auto_commit_interval_ms"]) / 1000
        self._commit_at = time.monotonic() + self._interval_s
        self._short_poll = MessagesInHand()
        self._handed: dict[types.TopicPartition, None] = {}  # partitions of which a message was handed out
        self._stored: dict[types.TopicPartition, types.OffsetAndMetadata] = {}
        self._committed: dict[types.TopicPartition, int] = {}
        self._seen: dict[types.TopicPartition, int] = {}  # commits, for statistics
        self._not_at_end: dict[types.TopicPartition, None] = {}
        self._ends: list[Message] = []  # messages that are events
        self._inside = False
        self._waited_for: dict[types.TopicPartition, types.OffsetAndMetadata] | None = None  # what commit() commits now
        log_to(self, given)
        with translated("Failed to create consumer"):
            self._consumer = Engine({name.replace("_", "."): value for name, value in settings.items()})
        self._events = Events()
        self._consumer._topics.on_missing = weakly(self._no_topic)
        driver = self._consumer._driver
        Watch(self._events, lambda: driver.client, given)
        if regular:
            this, client_id = weakref.ref(self), str(settings["client_id"])
            more = lambda: {} if (me := this()) is None else me._counted()  # noqa: E731
            self._events.statistics = Statistics("consumer", client_id, given["stats_cb"], interval_ms, lambda: driver.client, more)
        self._closed = False

    def _open(self) -> Engine:
        if self._closed:
            raise RuntimeError("Consumer closed")
        return self._consumer

    # -- what to read -------------------------------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], on_assign: Any = None, on_revoke: Any = None, on_lost: Any = None) -> None:
        """Reads these topics; names that begin with ^ are regular expressions.

        Args:
            topics: names.
            on_assign, on_revoke, on_lost: called as f(consumer, partitions) by `poll`, `consume` and `close`.
        """
        engine = self._open()
        if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
            raise TypeError("expected list of topic unicode strings")
        for callback in (on_assign, on_revoke, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError("on_assign, on_revoke and on_lost expect callables")
        if not topics:
            raise local("_INVALID_ARG", "Failed to set subscription: no topics")
        listener = _Listener(self, on_assign, on_revoke, on_lost)
        with translated("Failed to set subscription"):
            if engine._subscription.mode is Mode.MANUAL:  # topics take the place of partitions
                if self._auto_commit and (reached := self._to_commit()):
                    engine.commit(reached)
                engine.unsubscribe()
                for known in (self._handed, self._stored, self._committed, self._not_at_end):
                    known.clear()
            if any(each.startswith("^") for each in topics):
                names = "|".join(f"(?:{each}).*" if each.startswith("^") else re.escape(each) for each in topics)
                engine.subscribe(pattern=re.compile(names), listener=listener)
            else:
                engine.subscribe(topics, listener=listener)

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        with translated():
            self._open().unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Reads exactly these partitions, from their offsets; in on_assign it says where the new ones begin."""
        engine = self._open()
        wanted = _once(listed(partitions))
        with translated("Failed to set assignment"):
            if not self._inside:
                self._let_go(engine.assignment())
                engine.assign(())
                engine.assign([engines(each) for each in wanted])
            self._begin_at(wanted)
            self._settle()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Reads these partitions as well."""
        engine = self._open()
        wanted = _once(listed(partitions))
        with translated("Failed to set assignment"):
            if not self._inside:
                assigned = engine.assignment()
                if there := [each for each in wanted if engines(each) in assigned]:
                    raise local("_CONFLICT", f"Failed to set assignment: {there[0].topic}-{there[0].partition} is assigned already")
                engine.assign([*engine.assignment(), *(engines(each) for each in wanted)])
            self._begin_at(wanted)
            self._settle()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Reads these partitions no longer; in on_revoke and on_lost they go anyway."""
        engine = self._open()
        if not self._inside:
            gone = {engines(each) for each in listed(partitions)}
            if missing := sorted(gone - engine.assignment()):
                raise local("_INVALID_ARG", f"Failed to remove assignment: {missing[0].topic}-{missing[0].partition} is not assigned")
            with translated("Failed to remove assignment"):
                self._let_go(gone)
                engine.assign(engine.assignment() - gone)

    def unassign(self) -> None:
        """Reads nothing any more; in on_revoke and on_lost the partitions go anyway."""
        if not self._inside:
            engine = self._open()
            with translated("Failed to remove assignment"):
                self._let_go(engine.assignment())
                engine.assign(())

    def _settle(self) -> None:
        """What is sent after an assignment is read, also from the end: librdkafka looks positions up in the background."""
        engine = self._open()
        if self._inside or not engine.assignment():
            return
        with engine._driver, contextlib.suppress(ours.KafkaError):  # a poll meets it again, and makes a message of it
            engine._loop.settle(SETTLING_MS)

    def _begin_at(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._not_at_end[engines(each)] = None
            if each.offset not in (OFFSET_INVALID, OFFSET_STORED):
                self._move(each)

    def _move(self, to: TopicPartition) -> None:
        tp, engine = engines(to), self._consumer
        if to.offset == OFFSET_BEGINNING:
            engine.seek_to_beginning(tp)
        elif to.offset == OFFSET_END:
            engine.seek_to_end(tp)
        elif to.offset >= 0:
            engine.seek(tp, to.offset if to.leader_epoch is None else engines_offset(to))
        else:
            raise ours.UsageError(f"offset {to.offset} is not a place in the log", topic=tp.topic, partition=tp.partition)

    def assignment(self) -> list[TopicPartition]:
        """The partitions being read."""
        return [TopicPartition(*tp) for tp in sorted(self._open().assignment())]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hands out nothing of these partitions until `resume`; those that are not assigned are left out."""
        engine = self._open()
        assigned = engine.assignment()
        engine.pause(*(tp for tp in map(engines, listed(partitions)) if tp in assigned))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Undoes `pause`."""
        engine = self._open()
        assigned = engine.assignment()
        engine.resume(*(tp for tp in map(engines, listed(partitions)) if tp in assigned))

    # -- reading ------------------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Any:
        """The next message or event; None when nothing came.

        Args:
            timeout: seconds; None and below 0 without limit.
        """
        return self._next(seconds(timeout))

    poll = poll_method(poll)

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Any]:
        """Up to so many messages and events; fewer when the time is up, or when they were unpacked from as much as one batch may hold.

        Args:
            num_messages: 0 to 1,000,000.
            timeout: seconds; None and below 0 without limit.
        """
        self._open()
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        limit = seconds(timeout)
        end = None if limit is None else time.monotonic() + limit
        found: list[Any] = []
        queue = self._consumer._fetcher.queue
        most = queue.unpacked_bytes + queue.max_decompressed_bytes
        while len(found) < num_messages:
            if found and queue.unpacked_bytes >= most and not self._consumer._unread.next():
                break
            if self._short_poll.in_time and (more := self._consumer._unread.take(num_messages - len(found))):
                found = found + more if found else more
                continue
            message = self._next(None if end is None else max(0.0, end - time.monotonic()))
            if message is None:
                break
            found.append(message)
        return found

    def _next(self, timeout: float | None) -> Any:
        """What is next when there is nothing in hand, or when it is time to let the group have its turn."""
        self._open()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._events.serve()
            left = None if end is None else max(0.0, end - time.monotonic())
            found = self._step(self._events.until_statistics(left))
            if found is not None or not (self._events.look_at_statistics() or self._events.any):
                return found

    def _counted(self) -> dict[str, Any]:
        """What statistics say of this consumer."""
        reached = {tp: self._reached(tp) for tp in self._consumer._subscription.partitions if tp in self._handed}
        return statistics.of_consumer(self._consumer, reached.get, self._stored, self._seen)

    def _step(self, timeout: float | None) -> Any:
        """What is next; ends early for events that are to be served."""
        engine = self._open()
        if self._ends:
            return self._ends.pop(0)
        self._commit_stored()
        group, loop = engine._group, engine._loop
        try:
            with engine._driver:
                if not self._reads_anything():
                    engine._driver.run(lambda now_ms: None, self._has_work, None if timeout is None else int(timeout * 1000))
                    return None
                if group is not None and (group.has_news or group.gives_up):
                    engine._out.rewind()  # a rebalance comes before what is in hand
                found = engine._unread.next()
                if found is None:
                    try:
                        polled = loop.wait(self._collect, {}, timeout)
                        if polled is not True:
                            engine._out._begin_chunks(polled)
                            self._take(polled)
                    except BaseException:
                        loop.give_back()
                        raise
                    found = engine._unread.next()
                elif group is not None:
                    group.still_polling(engine._clock.now_ms())
        except ours.ClosedError:
            raise RuntimeError("Consumer closed") from None
        except ours.KafkaError as error:
            return self._event(error)
        if found is not None:
            self._short_poll.begin(found, LOOK_MS)
            for message in found:
                return message
        return self._ends.pop(0) if self._ends else None

    def _has_work(self) -> bool:
        return self._events.any or self._reads_anything()

    def _reads_anything(self) -> bool:
        subscription = self._open()._subscription
        return bool(subscription.partitions) or subscription.mode.value != "none"

    def _take(self, polled: dict[Any, list[Any]]) -> None:
        """Records become messages."""
        self._consumer._unread.chunks = deque([_Chunk(tp, records) for tp, records in polled.items()])
        for tp, records in polled.items():
            recast_records(records, Message)
            self._handed[tp] = None
            if self._eof:
                self._not_at_end[tp] = None

    def _collect(self) -> Any:
        """Records, or True when there are other messages or events."""
        found = self._consumer._fetcher.collect(AT_ONCE)
        if found or self._ends or self._events.any:
            return found or True
        if not self._eof:
            return found
        for tp in list(self._not_at_end):
            state = self._consumer._subscription.partitions.get(tp)
            if state is None:
                del self._not_at_end[tp]
            elif self._consumer.lag(tp) == 0:
                del self._not_at_end[tp]
                self._ends.append(_end_of(tp, state.offset))
        return True if self._ends else found

    def _no_topic(self, name: str) -> None:
        text = f"topic {name} does not exist"
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, text)  # type: ignore[attr-defined]
        self._ends.append(Message(name, None, None, value=text.encode(), error=error, timestamp=(0, -1)))

    def _event(self, error: ours.KafkaError) -> Message | None:
        """An error as a message. What the engine goes on with by itself is logged."""
        if isinstance(error, (ours.TransportError, ours.AuthenticationFailedError)):
            log.warning("%s", error)
            return None
        failed = of(error)
        if isinstance(error, ours.NoOffsetForPartition):  # a message of each partition
            text = failed.str()
            self._ends += [Message(topic, nth, error.offset, value=text.encode(), error=failed) for topic, nth in error.partitions[1:]]
        return Message(error.topic, error.partition, error.offset, value=failed.str().encode(), error=failed)

    # -- positions ----------------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Continues at an offset or place of an assigned partition."""
        tp = engines(partition)
        if tp not in self._open().assignment():
            raise local("_STATE", f"Failed to seek to offset {partition.offset}: {tp.topic}-{tp.partition} is not assigned")
        with translated(f"Failed to seek to offset {partition.offset}"):
            self._move(partition)
        self._not_at_end[tp] = None

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offset behind the last message that was handed out; OFFSET_INVALID where there was none."""
        engine = self._open()
        found = []
        for each in listed(partitions):
            tp = engines(each)
            at = self._reached(tp) if tp in self._handed and tp in engine._subscription.partitions else None
            found.append(of_offset(tp, at))
        return found

    def _reached(self, tp: types.TopicPartition) -> types.OffsetAndMetadata:
        engine = self._consumer
        state = engine._subscription.state_of(tp)
        unread = engine._unread.next_offset(tp)
        offset = state.offset if unread is None else unread
        epoch = state.epoch_before(offset) if unread is not None else state.offset_epoch
        return types.OffsetAndMetadata(offset, epoch if epoch >= 0 else None)

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float | None = None, cached: bool = False) -> Any:
        """(first offset, offset behind the last), None when there was no answer in time.

        Args:
            partition: it need not be assigned.
            timeout: seconds.
            cached: asks no broker: both as of the last answer, OFFSET_INVALID where nothing is known.
        """
        engine, tp = self._open(), engines(partition)
        if cached:
            state = engine._subscription.partitions.get(tp)
            known = (-1, -1) if state is None else (state.log_start_offset, state.high_watermark)
            return tuple(OFFSET_INVALID if offset < 0 else offset for offset in known)
        try:
            with _of_a_partition("Failed to get watermark offsets"):
                low = engine.beginning_offsets([tp], limited(timeout))[tp]
                return low, engine.end_offsets([tp], limited(timeout))[tp]
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:  # type: ignore[attr-defined]
                return None
            raise

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """The first offset at or after the time (epoch milliseconds) that stands in each partition's offset; OFFSET_END without any."""
        wanted: dict[tuple[str, int], int] = {engines(each): each.offset for each in listed(partitions)}
        with _of_a_partition("Failed to get offsets"):
            found = self._open().offsets_for_times(wanted, limited(timeout))
        answers = ((tp, found[tp]) for tp in map(engines, partitions))
        return [TopicPartition(*tp, OFFSET_END if at is None else at.offset) for tp, at in answers]

    def committed(self, partitions: list[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """What the group has committed; OFFSET_INVALID where there is nothing."""
        wanted = [engines(each) for each in listed(partitions)]
        with translated("Failed to get committed offsets"):
            found = self._open().committed(wanted, limited(timeout))
        return [of_committed(tp, found[tp]) for tp in wanted]

    # -- commits ------------------------------------------------------------------------------------------------------------------

    def store_offsets(self, message: Any = None, offsets: Any = None) -> None:
        """Says what the next commit without offsets commits; needs enable.auto.offset.store=False.

        Args:
            message: the offset behind it; or
            offsets: of TopicPartition. Those of partitions that are not assigned are left out.

        Raises:
            KafkaException: _STATE or _UNKNOWN_PARTITION when none of them is assigned.
        """
        engine = self._open()
        wanted = _one_of(message, offsets)
        if wanted is None:
            raise ValueError("expected either message or offsets")
        if self._auto_store:
            raise local("_INVALID_ARG", "StoreOffsets failed: enable.auto.offset.store must be set to False")
        assigned = engine.assignment()
        stored = {tp: engines_offset(each) for each in wanted if (tp := engines(each)) in assigned}
        if wanted and not stored:
            topic, partition = engines(wanted[0])
            known = topic in engine._driver.client.metadata.snapshot.topics or any(tp.topic == topic for tp in assigned)
            name = "_STATE" if known else "_UNKNOWN_PARTITION"
            raise local(name, f"StoreOffsets failed: {topic}-{partition} is not assigned")
        self._stored |= stored

    def commit(self, message: Any = None, offsets: Any = None, asynchronous: bool = True) -> Any:
        """Commits the offset behind a message, offsets, or what is stored.

        Args:
            message, offsets: one of them, or none.
            asynchronous: does not wait; `on_commit` of the settings is called by a later poll.

        Returns:
            The committed offsets; None when asynchronous.

        Raises:
            KafkaException: _NO_OFFSET when there is nothing to wait for, or the commit failed.
        """
        engine = self._open()
        given = _one_of(message, offsets)
        wanted: Any = self._to_commit() if given is None else {engines(each): engines_offset(each) for each in given if each.offset >= 0}
        if not wanted and asynchronous and given is None:
            return None
        if not wanted:
            raise local("_NO_OFFSET", "Commit failed: Local: No offset stored")
        with translated("Commit failed"):
            if asynchronous:
                engine.commit_async(wanted, functools.partial(self._ended))
                return None
            absent = self._absent(engine, {tp.topic for tp in wanted})
            self._waited_for = there = {tp: each for tp, each in wanted.items() if tp.topic not in absent}
            try:
                if there:
                    engine.commit(there)
            finally:
                self._waited_for = None
            self._committed |= {tp: each.offset for tp, each in there.items()}
            if absent:
                raise next(iter(absent.values()))
        return [of_offset(tp, each) for tp, each in wanted.items()]

    def _absent(self, engine: Any, topics: set[str]) -> dict[str, ours.KafkaError]:
        """Topics that there are not, with the error: librdkafka takes it from the coordinator, the engine tries again as Java does."""
        found: dict[str, ours.KafkaError] = {}
        for topic in sorted(topics.difference(engine._driver.client.metadata.snapshot.topics)):
            try:
                engine.partitions_for(topic)
            except ours.UnknownTopicOrPartition as error:
                found[topic] = error
        return found

    def _to_commit(self) -> Any:
        """What is stored and not committed yet."""
        if self._auto_store:
            assigned = self._consumer._subscription.partitions
            found = {tp: self._reached(tp) for tp in self._handed if tp in assigned}
        else:
            found = dict(self._stored)
        return {tp: each for tp, each in found.items() if self._committed.get(tp) != each.offset}

    def _ended(self, offsets: Any, error: ours.KafkaError | None) -> None:
        """A commit without waiting has ended."""
        if error is None:
            self._committed |= {tp: each.offset for tp, each in offsets.items()}
        elif self._on_commit is not None:
            self._on_commit(of(error), [of_offset(tp, each).failed(of(error)) for tp, each in offsets.items()])
        else:
            log.warning("a commit failed: %s", error)

    def _commit_stored(self, *, now: bool = False) -> None:
        """Automatic commits of what the program stored."""
        if not self._auto_commit or self._auto_store or (not now and time.monotonic() < self._commit_at):
            return
        self._commit_at = time.monotonic() + self._interval_s
        wanted = self._to_commit()
        if wanted and now:
            self._consumer.commit(wanted)
            self._committed |= {tp: each.offset for tp, each in wanted.items()}
        elif wanted:
            with translated():
                self._consumer.commit_async(wanted, self._ended)

    def _gave_up(self, partitions: Collection[types.TopicPartition], *, committed: bool) -> None:
        if committed:
            try:
                self._commit_stored(now=True)
            except ours.KafkaError as error:
                log.warning("stored offsets were not committed: %s", error)
        self._forget(partitions)

    def _let_go(self, partitions: Collection[types.TopicPartition]) -> None:
        """The program takes partitions away itself: automatic commits have what was reached in them, and later commits do not name them."""
        reached = {tp: each for tp, each in self._to_commit().items() if tp in partitions} if self._auto_commit else {}
        if reached:
            self._consumer.commit_async(reached, lambda offsets, error: None if error is None else self._ended(offsets, error))
        self._forget(partitions)

    def _forget(self, partitions: Collection[types.TopicPartition]) -> None:
        for known in (self._handed, self._stored, self._committed, self._not_at_end):
            for tp in partitions:
                known.pop(tp, None)

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Connections from now on authenticate with these."""
        set_credentials(self._open()._driver.client, username, password)

    def memberid(self) -> str | None:
        """This member's id; None outside of a group."""
        return self._open().consumer_group_metadata().member_id or None

    def consumer_group_metadata(self) -> Any:
        """The group and this member, for `Producer.send_offsets_to_transaction`."""
        return self._open().consumer_group_metadata()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """What a broker says of the cluster: all topics, or one."""
        if self._closed:
            raise RuntimeError("Handle has been closed")
        return list_topics(self._settings, topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str | None:
        """The cluster's id."""
        return self.list_topics(timeout=timeout).cluster_id

    def close(self) -> None:
        """Commits what is stored, leaves the group and closes; again does nothing."""
        if self._closed:
            return
        try:
            with translated():
                if self._stored:
                    self._commit_stored(now=True)
                self._consumer.close()
        finally:
            self._closed = True
            self._short_poll.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: TracebackType | None) -> None:
        self.close()


class _Watch:
    """The engine's interceptor: commits that worked and that nothing waited for, for the callback on_commit."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def on_commit(self, offsets: Any) -> None:
        self._consumer._seen |= {tp: each.offset for tp, each in offsets.items()}
        callback = self._consumer._on_commit
        if callback is not None and offsets != self._consumer._waited_for:  # the program has that outcome from commit()
            callback(None, [of_offset(tp, each) for tp, each in offsets.items()])


def _one_of(message: Any, offsets: Any) -> list[TopicPartition] | None:
    """What a program names by a message or by offsets; None when by neither."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is None:
        return None if offsets is None else listed(offsets)
    if not isinstance(message, Message):
        raise TypeError("expected confluent_kafka.Message")
    if (error := message.error()) is not None:
        raise KafkaException(error)
    return [TopicPartition(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0) + 1)]


def _once(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The same list, in which no partition is twice."""
    if len({engines(each) for each in partitions}) < len(partitions):
        raise local("_INVALID_ARG", "Failed to set assignment: a partition is in the list twice")
    return partitions


@contextlib.contextmanager
def _of_a_partition(what: str) -> Iterator[None]:
    """As `translated`; a time-out because brokers did not know the partition says so."""
    try:
        with translated(what):
            yield
    except KafkaException as error:
        attempts = getattr(error.__cause__, "attempts", ())
        if error.args[0].code() == KafkaError._TIMED_OUT and any(isinstance(each, ours.UnknownTopicOrPartition) for each in attempts):  # type: ignore[attr-defined]
            raise local("_UNKNOWN_PARTITION", error.args[0].str()) from error.__cause__
        raise


def _end_of(tp: types.TopicPartition, offset: int) -> Message:
    text = f"{tp.topic}-{tp.partition} has no message at offset {offset} yet"
    error = KafkaError(KafkaError._PARTITION_EOF, text)  # type: ignore[attr-defined]
    return Message(tp.topic, tp.partition, offset, value=text.encode(), error=error, timestamp=(0, -1))
