"""Kafka clients for Spark's processes: what the driver asks about offsets, and what a task reads.

Python workers live longer than tasks, so consumers are kept in the process and lent out; a task that fails does not give its consumer back.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.clock import SystemClock
from kafkacore.config import ClientConfig
from kafkacore.consumer import KafkaConsumer
from kafkacore.spark import secrets, workers
from kafkacore.spark.decoded import DecodedRows
from kafkacore.spark.offsets import EARLIEST, LATEST, OffsetRange, Offsets, Partition
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.rows import RowBuilder

T = TypeVar("T")

KEPT_CONSUMERS = 8

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
        with DecodedRows(options, wanted.topic, wanted.partition, columns_wanted) as rows:
            yield from _read(options, wanted, rows)
    else:
        yield from _read(options, wanted, RowBuilder(wanted.topic, wanted.partition, columns_wanted))


def _read(options: SourceOptions, wanted: OffsetRange, builder: RowBuilder | DecodedRows) -> Iterator[pa.RecordBatch]:
    with Lent(options.client) as consumer:
        try:
            for columns in consumer.read_range((wanted.topic, wanted.partition), wanted.start, wanted.end, options.poll_timeout_ms / 1000):
                yield from builder.batches(columns, wanted.end)
        except errors.OffsetOutOfRange as error:
            raise errors.OffsetOutOfRange(
                f"the offsets {wanted.start} to {wanted.end - 1} were to be read, and some are not there any more: they aged out, were "
                "deleted, or the topic was created anew while the query ran",
                topic=wanted.topic,
                partition=wanted.partition,
                offset=error.offset,
            ) from error
    workers.settle()


class OffsetSource:
    """What a query's driver asks Kafka: which partitions there are, and their offsets. Connects when first asked.

    Attributes:
        renewed: topics that were deleted and created again since they were first looked at.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Prepares; constructors that Spark calls must not do I/O.

        Args:
            options: of the read.
        """
        self._options = options
        self._consumer: KafkaConsumer | None = None
        self._admin: KafkaAdminClient | None = None
        self._partitions: list[Partition] | None = None
        self._asked_ms = 0
        self._topic_ids: dict[str, bytes] = {}
        self.renewed: set[str] = set()
        self._clock = SystemClock()

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
            known = set(ClientConfig.names())
            settings = {name: value for name, value in self._options.client.items() if name.replace(".", "_") in known}
            self._admin = KafkaAdminClient(secrets.resolve_all(settings))
        return self._admin

    def _retrying(self, ask: Callable[[], T]) -> T:
        """Asks again as fetchOffset.numRetries says; after that the last error is the answer."""
        for left in range(self._options.retries, -1, -1):
            try:
                return ask()
            except errors.KafkaError as error:
                if not (error.retriable and left):
                    raise
            time.sleep(self._options.retry_interval_ms / 1000)
        raise AssertionError

    def partitions(self) -> list[Partition]:
        """The partitions that are read now, sorted.

        Raises:
            errors.UnknownTopicOrPartition: a topic named by subscribe or assign does not exist.
        """
        now_ms = self._clock.now_ms()
        if self._partitions is None or now_ms - self._asked_ms >= self._options.metadata_ttl_ms:
            self._partitions = self._retrying(self._look_up)
            self._asked_ms = now_ms
        return self._partitions

    def _look_up(self) -> list[Partition]:
        options = self._options
        if options.assign:
            names = sorted({topic for topic, _ in options.assign})
        elif options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = [name for name in self.admin().list_topics(include_internal=True) if pattern.fullmatch(name)]
        else:
            names = sorted(set(options.subscribe))
        described = self.admin().describe_topics(names)
        if options.pattern is None and not (self._topic_ids and options.on_data_loss != "fail"):
            described.check()
        for name, topic in described.succeeded.items():
            if self._topic_ids.setdefault(name, topic.topic_id) != topic.topic_id:
                self.renewed.add(name)
                self._topic_ids[name] = topic.topic_id
        found = [(name, index) for name, topic in described.succeeded.items() for index in sorted(each.index for each in topic.partitions)]
        if options.assign:
            absent = sorted(set(options.assign) - set(found))
            if absent and options.on_data_loss == "fail":
                raise errors.UnknownTopicOrPartition("named by the option assign", topic=absent[0][0], partition=absent[0][1])
            return sorted(set(options.assign) & set(found))
        return sorted(found)

    def earliest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """First offsets."""
        return self._offsets(partitions, lambda: self.consumer().beginning_offsets(partitions))

    def latest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """End offsets: the high watermark, or the last stable offset with isolation.level=read_committed."""
        return self._offsets(partitions, lambda: self.consumer().end_offsets(partitions))

    def _offsets(self, partitions: list[Partition], ask: Callable[[], Mapping[Any, int]]) -> dict[Partition, int]:
        return {(tp[0], tp[1]): offset for tp, offset in self._retrying(ask).items()} if partitions else {}

    def starting(self) -> dict[Partition, int]:
        """Where a new query begins, by the options."""
        options = self._options
        parts = self.partitions()
        if options.starting_timestamps_ms is not None:
            return self._by_timestamp(parts, options.starting_timestamps_ms, options.timestamp_strategy, "starting")
        return self._resolved(parts, options.starting, "startingOffsets")

    def ending(self) -> dict[Partition, int]:
        """Where a batch read ends, by the options."""
        options = self._options
        parts = self.partitions()
        if options.ending_timestamps_ms is not None:
            return self._by_timestamp(parts, options.ending_timestamps_ms, "latest", "ending")
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
    ) -> dict[Partition, int]:
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
            raise errors.NoOffsetForPartition(
                f"no record is as young as timestamp {times[topic, partition]}; "
                "startingOffsetsByTimestampStrategy=latest would begin at the end instead",
                topic=topic,
                partition=partition,
            )
        out.update(self.latest(absent))
        return out


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
