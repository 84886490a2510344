"""`KafkaConsumer.read`: stretches of partitions, from where to where, as a stream of columns."""

from __future__ import annotations

import datetime
import operator
import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, Literal

from kafkacore import errors
from kafkacore.consumer.arguments import partition_of
from kafkacore.consumer.batches import ArrowTypes
from kafkacore.consumer.decoding import Decoding
from kafkacore.plurals import counted
from kafkacore.records import ArrowBatch, arrow_stream, arrow_stream_of
from kafkacore.types import TopicPartition

Where = int | datetime.datetime | Literal["beginning", "end"] | None
NO_END = 2**63 - 1


def stretches_of(
    consumer: Any, what: Any, start: Where, end: Where, timeout: float | None
) -> dict[TopicPartition, tuple[int, int]]:
    """Where a read begins and ends in each partition, in offsets.

    Args:
        consumer: the `KafkaConsumer` that asks.
        what, start, end, timeout: as `KafkaConsumer.read` takes them.

    Raises:
        errors.UsageError: an argument that does not fit.
        errors.OffsetOutOfRange: a stretch of given offsets is not there.
    """
    if isinstance(what, Mapping):
        if start is not None or end is not None:
            raise errors.UsageError("a mapping says where each partition begins and ends: leave out start and end")
        given = {partition_of(tp): _bounds(stretch) for tp, stretch in what.items()}
        wanted = {tp: (first, 0 if last is None else last) for tp, (first, last) in given.items()}
    else:
        topics = [what] if isinstance(what, str) else list(what)
        wanted = {TopicPartition(topic, p): (0, 0) for topic in topics for p in consumer.partitions_for(topic, timeout)}
    firsts, lasts = consumer.beginning_offsets(wanted, timeout), consumer.end_offsets(wanted, timeout)
    if isinstance(what, Mapping):
        for tp, (_, no_end) in given.items():
            if no_end is None:
                wanted[tp] = wanted[tp][0], max(wanted[tp][0], lasts[tp])
        for tp, (first, last) in wanted.items():
            if not firsts[tp] <= first <= last <= lasts[tp]:
                raise errors.OffsetOutOfRange(
                    f"offsets {first} to {last} were asked for, and there are {firsts[tp]} to {lasts[tp]}",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=first,
                )
        return wanted
    begins, ends = _places(consumer, start, firsts, firsts, lasts, timeout), _places(consumer, end, lasts, firsts, lasts, timeout)
    return {tp: (begins[tp], max(begins[tp], ends[tp])) for tp in wanted}


def _bounds(stretch: Any) -> tuple[int, int | None]:
    try:
        first, last = stretch
        return operator.index(first), None if last is None else operator.index(last)
    except (TypeError, ValueError):
        raise errors.UsageError(f"a partition is read from an offset to another, or to None, (first, end), not {stretch!r:.100}") from None


def _places(
    consumer: Any,
    where: Any,
    default: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    timeout: float | None,
) -> dict[TopicPartition, int]:
    """An offset for each partition, within its log."""
    if where is None:
        return dict(default)
    if where in ("beginning", "end"):
        return dict(firsts if where == "beginning" else lasts)
    if isinstance(where, datetime.datetime):
        if where.tzinfo is None:
            raise errors.UsageError(f"{where!r} has no time zone: say which, as in datetime(..., tzinfo=timezone.utc)")
        found = consumer.offsets_for_times(dict.fromkeys(lasts, int(where.timestamp() * 1000)), timeout)
        return {tp: lasts[tp] if at is None else at.offset for tp, at in found.items()}
    if isinstance(where, bool) or not isinstance(where, Integral):
        raise errors.UsageError(
            f"start and end are an offset, minus a number of records from the end, 'beginning', 'end' or a datetime, not {where!r}"
        )
    offset = int(where)
    return {tp: min(max(offset if offset >= 0 else lasts[tp] + offset, firsts[tp]), lasts[tp]) for tp in lasts}


class Layout:
    """Which columns undecoded batches have.

    Args:
        key, value: "binary" or "string".
        headers: there is a column of them.

    Raises:
        errors.UsageError: key or value is something else.
    """

    def __init__(self, key: str, value: str, headers: bool) -> None:
        for name, kind in (("key", key), ("value", value)):
            if kind not in ("binary", "string"):
                raise errors.UsageError(f"{name} is read as binary or string, not {kind!r}")
        self._kinds = key, value
        self._headers = headers

    def of(self, view: bool) -> tuple[str, str, bool]:
        """Key, value and headers as `records.arrow_stream` takes them.

        Args:
            view: keys and values are views of the fetched bytes instead of a copy.
        """
        views = {"binary": "view", "string": "string view"}
        key, value = (views[each] if view else each for each in self._kinds)
        return key, value, self._headers


def rows_before(columns: Any, end: int) -> int:
    """How many of fetched records are below an offset."""
    if not len(columns) or columns.offsets[-1] < end:
        return len(columns)
    return int(columns.offsets.searchsorted(end))


class ColumnStream:
    """What `KafkaConsumer.read` returns: Arrow batches as they are fetched, so that memory holds an answer and not the topic.

    Iterating it gives `pyarrow.RecordBatch`es; polars, pandas, pyarrow and DuckDB take it as a table. Each use reads from the start of the
    stretches again, with the consumer it was made by, which does nothing else meanwhile: a use during which another begins ends with an
    error. An endless stream goes on with what comes, from all partitions as it comes, until the loop is left or the consumer is closed.

    Attributes:
        stretches: {partition: (first offset, offset after the last)}; of an endless stream the ends are where it goes on beyond.
        endless: it does not end where the partitions end now.
    """

    def __init__(
        self,
        consumer: Any,
        stretches: dict[TopicPartition, tuple[int, int]],
        layout: Layout,
        timeout: float | None,
        *,
        decoding: Decoding | None = None,
        endless: bool = False,
    ) -> None:
        self.stretches = stretches
        self.endless = endless
        self._consumer = consumer
        self._layout = layout
        self._timeout = timeout
        self._decoding = decoding
        self._schema: Any = None

    @property
    def skipped(self) -> int:
        """Values that could not be decoded and were left out, by `on_error="skip"`, in all uses together."""
        return 0 if self._decoding is None else self._decoding.skipped

    def schema(self, view: bool = False) -> Any:
        """The batches' `pyarrow.Schema`. With `json="infer"` this reads the first records.

        Args:
            view: of the batches in a capsule, whose keys and values are views of the fetched bytes; decoded ones are not.
        """
        import pyarrow as pa

        decoding = self._decoding
        if decoding is not None and not decoding.ready:
            self._infer()
        if decoding is None:
            return pa.schema(ArrowTypes(*self._layout.of(view)))
        if self._schema is None:
            self._schema = self._decoded_schema(None)
        return self._schema

    def _decoded_schema(self, requested: Any) -> Any:
        """That of decoded batches, with text as a `pyarrow.Schema` requests it."""
        import pyarrow as pa

        assert self._decoding is not None
        return self._decoding.schema(pa.schema(ArrowTypes(*self._layout.of(False))), requested)

    def batches(self, view: bool = False) -> Generator[Any, None, None]:
        """The record batches in offset order, partition after partition; those of an endless stream as they come.

        Args:
            view: keys and values are views of the fetched bytes instead of a copy; decoded ones are copied.

        Raises:
            errors.OffsetOutOfRange: records were deleted before they were read.
            errors.SerializationError: a key or value that is to be text is not UTF-8, or a value cannot be decoded.
            errors.KafkaError: as `KafkaConsumer.read_range`.
        """
        if self._decoding is not None and not self._decoding.ready:
            self._infer()
        for columns, end in self._fetched():
            if len(batch := self.batch(columns, end, view)):
                yield batch

    def _exported(self, schema: Any) -> Iterator[Any]:
        """Decoded batches of a schema, as what has `__arrow_c_array__`."""
        for columns, end in self._fetched():
            if len(batch := self._decoded(columns, rows_before(columns, end), schema)):
                yield batch

    def batch(self, columns: Any, end: int = NO_END, view: bool = False) -> Any:
        """Fetched columns as one of the batches, perhaps without rows; its records from `end` on are left out."""
        import pyarrow as pa

        rows = rows_before(columns, end)
        if self._decoding is None:
            return pa.record_batch(ArrowBatch(columns, rows, *self._layout.of(view)))
        made = self._decoded(columns, rows, self.schema())
        return made if isinstance(made, pa.RecordBatch) else pa.record_batch(made)

    def _decoded(self, columns: Any, rows: int, schema: Any) -> Any:
        """The first rows of fetched columns, decoded, as what has `__arrow_c_array__`."""
        import pyarrow as pa

        decoding = self._decoding
        assert decoding is not None
        key, value, headers = self._layout.of(False)
        if not decoding.keys:
            key = "binary"                                     # the result does not show whether it is text
        made = decoding.plain(columns, rows, key, schema)
        return decoding.batch(columns, pa.record_batch(ArrowBatch(columns, rows, key, value, headers)), schema) if made is None else made

    def begin(self) -> object:
        """Has the consumer read an endless stream from its beginning. Returns what `end` takes."""
        consumer = self._consumer
        consumer.assign(self.stretches)
        consumer.resume(*self.stretches)
        for tp, (first, _) in self.stretches.items():
            consumer.seek(tp, first)
        return consumer._subscription.begin_stretches()

    def check(self, token: object) -> None:
        """Raises IllegalStateError if another read has begun since."""
        self._consumer._subscription.check_stretches(token)

    def end(self, token: object) -> None:
        """The reading that `begin` began is over."""
        self._consumer._subscription.end_stretches(token)

    def _fetched(self) -> Iterator[tuple[Any, int]]:
        """Columns as they are fetched, each with the offset from which on records are left out."""
        if not self.stretches:
            return
        token = self.begin() if self.endless else self._consumer._subscription.begin_stretches()
        try:
            while self.endless and not self._consumer.closed:
                self.check(token)
                for columns in self._consumer.poll_batch(None):
                    yield columns, NO_END
            for tp, (first, last) in () if self.endless else self.stretches.items():
                self.check(token)
                for columns in self._consumer.read_range(tp, first, last, self._timeout):
                    yield columns, last
                    self.check(token)
        finally:
            self.end(token)

    @property
    def ready(self) -> bool:
        """Whether the columns are known; otherwise they come out of the first values."""
        return self._decoding is None or self._decoding.ready

    def infer(self, fetched: Iterable[tuple[Any, int]]) -> bool:
        """Takes the columns from the first values of fetched columns. Returns whether they are known now.

        Of an endless stream the first answer with a value is enough, and without a value nothing is known.
        """
        from kafkacore.decode.infer import SAMPLE

        assert self._decoding is not None
        found: list[bytes] = []
        for columns, end in fetched:
            for row in range(len(columns)):
                if columns.offsets[row] >= end or len(found) >= SAMPLE:
                    break
                if (value := columns.values[row]) is not None:
                    found.append(value)
            if len(found) >= SAMPLE or (found and self.endless):
                break
        if found or not self.endless:
            self._decoding.infer(found)
        return self.ready

    def _infer(self) -> None:
        fetched = self._fetched()
        try:
            self.infer(fetched)
        finally:
            fetched.close()  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def write_parquet(self, file: str | os.PathLike[str], **options: Any) -> int:
        """Writes the batches into a Parquet file, some of them as a row group. A thread writes one while the next is read, so memory holds
        two; the file has its name when it is complete.

        Args:
            file: its path. A file that is there is replaced.
            options: of `pyarrow.parquet.ParquetWriter`, such as `compression`, which is "zstd" if it is not given.

        Returns:
            How many rows it has.

        Raises:
            errors.UsageError: the stream has no end, and a Parquet file is none before it; the path is of no regular file; the file is
                being written already.
            errors.KafkaError: as `batches`.
            OSError: the file cannot be written.
        """
        from kafkacore.consumer.parquet import write_parquet

        if self.endless:
            raise errors.UsageError("a Parquet file is complete when its stream ends: read with until_end=True")
        return write_parquet(self.batches(), self.schema(), file, {"compression": "zstd", **options})

    def __arrow_c_schema__(self) -> Any:
        """The columns' types, as a capsule; Arrow's PyCapsule interface."""
        return ArrowTypes(*self._layout.of(True)).__arrow_c_schema__() if self._decoding is None else self.schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The batches as a capsule; nothing is read before the first is asked for, apart from what the schema takes.

        Args:
            requested_schema: a schema's capsule; undecoded keys and values become binary, strings or views of either if it says so, and
                text of decoded values strings, large strings or string views.
        """
        if self._decoding is None:
            parts = ((columns, rows) for columns, end in self._fetched() if (rows := rows_before(columns, end)))
            return arrow_stream(parts, *self._layout.of(True), requested_schema)
        schema = self.schema()
        if requested_schema is not None:
            import pyarrow as pa

            schema = self._decoded_schema(pa.Schema._import_from_c_capsule(requested_schema))
        return arrow_stream_of(self._exported(schema), schema)

    def __repr__(self) -> str:
        if self.endless:
            return f"ColumnStream({counted(len(self.stretches), 'partition')}, without end)"
        offsets = sum(last - first for first, last in self.stretches.values())
        return f"ColumnStream({counted(offsets, 'offset')} of {counted(len(self.stretches), 'partition')})"
