"""Kafka clients for Spark's processes: what the driver asks about offsets, and what a task reads.

Python workers live longer than tasks, so consumers are kept in the process and lent out; a task that fails does not give its consumer back.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from kafkacore import errors
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import AdminConfig
from kafkacore.consumer import KafkaConsumer
from kafkacore.spark import secrets, workers
from kafkacore.spark.offsets import EARLIEST, LATEST, OffsetRange, Offsets, Partition
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.rows import RowBuilder
from kafkacore.spark.topics import CONFIRM_PAUSES_S, Topics

if TYPE_CHECKING:                                               # a task that needs them loads them: together half of a worker's start
    from kafkacore.admin import KafkaAdminClient
    from kafkacore.spark.decoded import DecodedRows

T = TypeVar("T")
log = logging.getLogger(__name__)

KEPT_CONSUMERS = 8
RETRIES = 3
OUTAGE_PAUSE_MS = 1_000
WARN_EVERY_MS = 30_000

_kept: dict[tuple[tuple[str, str], ...], list[KafkaConsumer]] = {}
_lock = threading.Lock()


def _settings(client: Mapping[str, str]) -> dict[str, Any]:
    return {**secrets.resolve_all(client), "auto.offset.reset": "none", "allow.auto.create.topics": False}


class Lent:
    """A consumer of this process for the time of a `with` block; kept for the next one unless the block fails."""

    def __init__(self, client: Mapping[str, str]) -> None:
        """Names the settings; nothing is opened yet."""
        self._client = dict(client)
        self._key = tuple(sorted(client.items()))
        self._consumer: KafkaConsumer | None = None

    def __enter__(self) -> KafkaConsumer:
        with _lock:
            kept = _kept.get(self._key)
            self._consumer = kept.pop() if kept else None
        if self._consumer is None:
            self._consumer = KafkaConsumer(_settings(self._client))
        return self._consumer

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        consumer, self._consumer = self._consumer, None
        assert consumer is not None
        if kind is None:
            consumer.unsubscribe()
            with _lock:
                if sum(map(len, _kept.values())) < KEPT_CONSUMERS:
                    _kept.setdefault(self._key, []).append(consumer)
                    return
        consumer.close()


def read(options: SourceOptions, wanted: OffsetRange, columns_wanted: tuple[str, ...] | pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range: what a task does.

    Args:
        options: of the read.
        wanted: which offsets.
        columns_wanted: the names of Kafka's columns, in order; or, of a decoded read, the schema of its rows.

    Raises:
        errors.KafkaError: with topic, partition and offset; OffsetOutOfRange says what has been lost.
    """
    if isinstance(columns_wanted, pa.Schema):
        from kafkacore.spark.decoded import DecodedRows

        with DecodedRows(options, wanted.topic, wanted.partition, columns_wanted) as rows:
            yield from _read(options, wanted, rows)
    else:
        yield from _read(options, wanted, RowBuilder(wanted.topic, wanted.partition, columns_wanted))


def _read(options: SourceOptions, wanted: OffsetRange, builder: RowBuilder | DecodedRows) -> Iterator[pa.RecordBatch]:
    at = wanted.start
    with Lent(options.client) as consumer:
        while at < wanted.end:
            fetched = consumer.read_range((wanted.topic, wanted.partition), at, wanted.end, options.poll_timeout_ms / 1000)
            while True:
                try:                                            # of fetching alone: what decoding raises is not about these offsets
                    columns = next(fetched, None)
                except (
                    errors.OffsetOutOfRange,
                    errors.LogTruncationError,
                    errors.KafkaTimeoutError,
                    errors.UnknownTopicOrPartition,
                    errors.UnknownTopicId,
                ) as error:
                    at = _behind_loss(consumer, options, wanted, at, error)
                    break
                if columns is None:
                    at = wanted.end
                    break
                yield from builder.batches(columns, wanted.end)
                at = columns.next_offset
    workers.settle()


def _behind_loss(consumer: KafkaConsumer, options: SourceOptions, wanted: OffsetRange, at: int, error: errors.KafkaError) -> int:
    """Where a task goes on after a read failed because records are gone.

    Raises:
        errors.OffsetOutOfRange: they are gone, and the query does not tolerate it.
        errors.KafkaError: what failed had another reason.
    """
    key = wanted.topic, wanted.partition
    error.topic, error.partition = key
    timeout = min(options.poll_timeout_ms / 1000, 10)
    first = last = -1
    try:
        if _exists(options, wanted):
            [first], [last] = consumer.beginning_offsets([key], timeout).values(), consumer.end_offsets([key], timeout).values()
    except errors.KafkaError:
        raise error from None
    if last < 0:
        fault = "the partition no longer exists: the topic was deleted"
    elif at < first:
        fault = f"offsets before {first} aged out or were deleted, or the topic was created again"
    elif last < wanted.end:
        fault = f"the log ends at {last}: the topic was created again, or lost records"
    elif isinstance(error, errors.LogTruncationError):
        fault = "an election lost records: the ones that were read are no longer part of the log, and others have their offsets"
    else:
        raise error
    text = f"the offsets {wanted.start} to {wanted.end - 1} were to be read, and from {at} on some are not there: {fault}"
    if options.on_data_loss == "fail":
        raise errors.OffsetOutOfRange(text, topic=wanted.topic, partition=wanted.partition, offset=at) from error
    log.warning("%s-%d: %s; the task goes on with what there is", *key, text)
    if at < first:
        return first
    return wanted.end if last < wanted.end else at


def _exists(options: SourceOptions, wanted: OffsetRange) -> bool:
    """Whether there is a partition that the driver has planned to read.

    Raises:
        errors.KafkaError: brokers do not answer, or refuse to.
    """
    source = OffsetSource(options)
    try:
        found, failed = Topics(source.admin).look([wanted.topic], {wanted.topic: wanted.partition + 1})
    finally:
        source.close()
    for error in failed.values():
        if not isinstance(error, errors.UnknownTopicOrPartition):
            raise error
    return wanted.partition < found.get(wanted.topic, 0)


class OffsetSource:
    """What a query's driver asks Kafka: which partitions there are, and their offsets. Connects when first asked.

    Attributes:
        topics: what is known of the topics that are read.
    """

    def __init__(self, options: SourceOptions, *, clock: Clock | None = None, pause: Callable[[float], object] = time.sleep) -> None:
        """Prepares; constructors that Spark calls must not do I/O.

        Args:
            options: of the read.
            clock: the system's by default.
            pause: waits for so many seconds between two tries.
        """
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._pause = pause
        self._has_answered = False
        self._consumer: KafkaConsumer | None = None
        self._admin: KafkaAdminClient | None = None
        self._partitions: list[Partition] | None = None
        self._asked_ms = 0
        self._seen: set[str] = set()
        self._with_id: set[str] = set()
        self.topics = Topics(self.admin)

    def close(self) -> None:
        """Lets go of the connections."""
        for client in (self._consumer, self._admin):
            if client is not None:
                client.close()
        self._consumer = self._admin = None

    def consumer(self) -> KafkaConsumer:
        """The driver's own consumer."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(_settings(self._options.client))
        return self._consumer

    def admin(self) -> KafkaAdminClient:
        """An admin client on the same brokers."""
        if self._admin is None:
            from kafkacore.admin import KafkaAdminClient

            known = set(AdminConfig.names())
            settings = {name: value for name, value in self._options.client.items() if name.replace(".", "_") in known}
            self._admin = KafkaAdminClient(secrets.resolve_all(settings))
        return self._admin

    def _retrying(self, ask: Callable[[], T]) -> T:
        """Asks again as fetchOffset.numRetries says, and where Kafka has answered before for as long as fetchOffset.outageTimeoutMs.

        Without a number what took its full time is not repeated at a query's start: its addresses may be wrong.

        Raises:
            errors.KafkaError: the last one.
        """
        options, began_ms, warned_ms, tries = self._options, self._clock.now_ms(), None, 0
        while True:
            try:
                found = ask()
                break
            except errors.KafkaError as error:
                tries += 1
                now_ms = self._clock.now_ms()
                is_timeout = isinstance(error, errors.KafkaTimeoutError)
                retries = (0 if is_timeout else RETRIES) if options.retries is None else options.retries
                is_outage = isinstance(error, (errors.KafkaTimeoutError, errors.TransportError))
                may_wait = is_outage and self._has_answered and now_ms - began_ms < options.outage_timeout_ms
                if not error.retriable or (tries > retries and not may_wait):
                    if tries > 1:
                        error.add_note(f"asked {tries} times in {(now_ms - began_ms) / 1000:.0f} s")
                    raise
                if may_wait and (is_timeout or tries > retries) and (warned_ms is None or now_ms - warned_ms >= WARN_EVERY_MS):
                    warned_ms = now_ms
                    log.warning(
                        "Kafka does not answer, and the query waits for it: %.0f s so far, up to %.0f s (fetchOffset.outageTimeoutMs): %s",
                        *((now_ms - began_ms) / 1000, options.outage_timeout_ms / 1000, error),
                    )
            self._pause((options.retry_interval_ms if tries <= retries else max(options.retry_interval_ms, OUTAGE_PAUSE_MS)) / 1000)
        if warned_ms is not None:
            log.warning("Kafka answers again, and the query goes on after %.0f s", (self._clock.now_ms() - began_ms) / 1000)
        self._has_answered = True
        return found

    def partitions(self, known: Collection[Partition] = (), topic_ids: Mapping[str, bytes] | None = None) -> list[Partition]:
        """The partitions that are read now, sorted.

        Args:
            known: partitions that the query has read; they may be deleted, and others too if it tolerates loss.
            topic_ids: the ids of their topics, as far as the query's offsets have them.

        Raises:
            errors.UnknownTopicOrPartition: a topic or partition named by subscribe or assign does not exist.
        """
        now_ms = self._clock.now_ms()
        has_new_ids = topic_ids is not None and not topic_ids.keys() <= self._with_id
        if self._partitions is None or has_new_ids or now_ms - self._asked_ms >= self._options.metadata_ttl_ms:
            self._seen.update(topic for topic, _ in known)
            self._partitions = self._retrying(lambda: self._look_up(known, topic_ids))
            self._with_id.update(topic_ids or ())
            self._seen.update(topic for topic, _ in self._partitions)
            self._asked_ms = now_ms
        return self._partitions

    def _look_up(self, known: Collection[Partition], topic_ids: Mapping[str, bytes] | None) -> list[Partition]:
        options = self._options
        option = "assign" if options.assign else "subscribe"
        in_offsets: dict[str, int] = {}
        for topic, partition in known:
            if options.names(topic, partition):
                in_offsets[topic] = max(in_offsets.get(topic, 0), partition + 1)
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            listed = [name for name in self.admin().list_topics() if pattern.fullmatch(name)]
            names = sorted({*listed, *in_offsets, *self.topics.known()})         # what the list lacks is asked for by name
        else:
            names = sorted(set(options.subscribe) or {topic for topic, _ in options.assign})
        counts, failed = self.topics.look(names, in_offsets, topic_ids)
        for name, error in failed.items():
            if options.pattern is not None and options.on_data_loss != "fail" and isinstance(error, errors.TopicAuthorization):
                continue                                        # for a pattern, what may not be seen does not exist
            if not isinstance(error, errors.UnknownTopicOrPartition):
                raise error
            if options.pattern is None and not self._tolerated(name):
                raise errors.UnknownTopicOrPartition(f"the option {option} names a topic that does not exist", topic=name)
        found = {(name, partition) for name, count in counts.items() for partition in range(count)}
        if options.assign:
            for topic_name, partition in sorted(set(options.assign) - found):
                if not self._tolerated(topic_name):
                    fault = "the option assign names a partition that does not exist"
                    raise errors.UnknownTopicOrPartition(fault, topic=topic_name, partition=partition)
            found &= set(options.assign)
        return sorted(found)

    def _tolerated(self, topic: str) -> bool:
        """Whether a topic may be gone without its name being a mistake: that it is a loss is said where the query's offsets are known."""
        return bool(self._seen) and (topic in self._seen or self._options.on_data_loss != "fail")

    def earliest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """First offsets."""
        return self._offsets(partitions, lambda: self.consumer().beginning_offsets(partitions))

    def latest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """End offsets: the high watermark, or the last stable offset with isolation.level=read_committed."""
        return self._offsets(partitions, lambda: self.consumer().end_offsets(partitions))

    def latest_behind(self, partitions: list[Partition], begin: Offsets) -> dict[Partition, int]:
        """End offsets. An end before the offset where a query stands is asked for again: a leader that was replaced may have given it."""
        found = self.latest(partitions)
        short = [each for each, end in found.items() if end < begin.get(each, 0) and each[0] not in self.topics.renewed]
        for pause_s in CONFIRM_PAUSES_S if short else ():
            time.sleep(pause_s)
            found.update(self.latest(short))
            short = [each for each in short if found[each] < begin[each]]
            if not short:
                break
        return found

    def _offsets(self, partitions: list[Partition], ask: Callable[[], Mapping[Any, int]]) -> dict[Partition, int]:
        return {(tp[0], tp[1]): offset for tp, offset in self._retrying(ask).items()} if partitions else {}

    def starting(self, parts: list[Partition]) -> tuple[dict[Partition, int], set[Partition]]:
        """Where a new query begins, by the options, and the partitions that begin at their end of this moment."""
        options = self._options
        if options.starting_timestamps_ms is not None:
            return self._by_timestamp(parts, options.starting_timestamps_ms, options.timestamp_strategy, "starting")
        wanted = options.starting
        latest = [each for each in parts if (wanted if isinstance(wanted, str) else wanted.get(each)) in ("latest", LATEST)]
        return self._resolved(parts, wanted, "startingOffsets"), set(latest)

    def ending(self, parts: list[Partition]) -> dict[Partition, int]:
        """Where a batch read ends, by the options."""
        options = self._options
        if options.ending_timestamps_ms is not None:
            return self._by_timestamp(parts, options.ending_timestamps_ms, "latest", "ending")[0]
        return self._resolved(parts, options.ending, "endingOffsets")

    def _resolved(self, parts: list[Partition], wanted: str | Mapping[Partition, int], option: str) -> dict[Partition, int]:
        if wanted == "earliest":
            return self.earliest(parts)
        if wanted == "latest":
            return self.latest(parts)
        assert isinstance(wanted, Mapping)
        _check_same(parts, wanted, option)
        out = dict(wanted)
        for mark, ask in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            out.update(ask([each for each in parts if wanted[each] == mark]))
        return out

    def _by_timestamp(
        self, parts: list[Partition], wanted: int | Mapping[Partition, int], strategy: str, which: str
    ) -> tuple[dict[Partition, int], set[Partition]]:
        if isinstance(wanted, Mapping):
            _check_same(parts, wanted, f"{which}OffsetsByTimestamp")
            times = dict(wanted)
        else:
            times = dict.fromkeys(parts, wanted)
        found = self._retrying(lambda: self.consumer().offsets_for_times(times)) if times else {}
        out = {each: hit.offset for each in parts if (hit := found.get(each)) is not None}  # type: ignore[call-overload]
        absent = [each for each in parts if each not in out]
        if absent and strategy == "error":
            topic, partition = absent[0]
            empty = self.earliest(absent[:1]) == self.latest(absent[:1])
            why = "the partition is empty, so " if empty else ""
            raise errors.NoOffsetForPartition(
                f"{why}no record is as young as timestamp {times[topic, partition]}; "
                "startingOffsetsByTimestampStrategy=latest would begin at the end instead",
                topic=topic,
                partition=partition,
            )
        out.update(self.latest(absent))
        return out, set(absent)


def _check_same(parts: list[Partition], wanted: Mapping[Partition, int], option: str) -> None:
    absent, foreign = sorted(set(parts) - set(wanted)), sorted(set(wanted) - set(parts))
    if absent or foreign:
        faults = [f"lacks {', '.join(f'{t}-{p}' for t, p in absent)}"] if absent else []
        faults += [f"names {', '.join(f'{t}-{p}' for t, p in foreign)}, which are not read"] if foreign else []
        raise errors.ConfigError(f"option {option} must name exactly the partitions that are read: it {' and '.join(faults)}")


def check_range(start: Offsets, end: Offsets, latest: Offsets) -> list[OffsetRange]:
    """The ranges of a batch read.

    Raises:
        errors.OffsetOutOfRange: a range ends before it begins, or after the log.
    """
    ranges = []
    for topic, partition in sorted(start):
        low, high, there = start[topic, partition], end[topic, partition], latest[topic, partition]
        if low > high:
            raise errors.OffsetOutOfRange(
                f"the read would begin at offset {low} and end at {high}", topic=topic, partition=partition, offset=low
            )
        if high > there:
            raise errors.OffsetOutOfRange(
                f"the read would end at offset {high}, and the log ends at {there}", topic=topic, partition=partition, offset=high
            )
        ranges.append(OffsetRange(topic, partition, low, high))
    return ranges
