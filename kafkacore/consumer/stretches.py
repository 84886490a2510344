"""`KafkaConsumer.read`: stretches of partitions, from where to where, as a stream of columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafkacore import errors
from kafkacore.consumer.arguments import partition_of
from kafkacore.consumer.batches import arrow_schema
from kafkacore.consumer.subscription import ResetStrategy
from kafkacore.plurals import counted
from kafkacore.types import TopicPartition

Where = int | datetime.datetime | None


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
        wanted = {partition_of(tp): (int(first), int(last)) for tp, (first, last) in what.items()}
    else:
        topics = [what] if isinstance(what, str) else list(what)
        wanted = {TopicPartition(topic, p): (0, 0) for topic in topics for p in consumer.partitions_for(topic, timeout)}
    firsts, lasts = consumer.beginning_offsets(wanted, timeout), consumer.end_offsets(wanted, timeout)
    if isinstance(what, Mapping):
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


def _places(
    consumer: Any,
    where: Where,
    default: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    timeout: float | None,
) -> dict[TopicPartition, int]:
    """An offset for each partition, within its log."""
    if where is None:
        return dict(default)
    if isinstance(where, datetime.datetime):
        if where.tzinfo is None:
            raise errors.UsageError(f"{where!r} has no time zone: say which, as in datetime(..., tzinfo=timezone.utc)")
        found = consumer.offsets_for_times(dict.fromkeys(lasts, int(where.timestamp() * 1000)), timeout)
        return {tp: lasts[tp] if at is None else at.offset for tp, at in found.items()}
    if isinstance(where, bool) or not isinstance(where, int):
        raise errors.UsageError(f"start and end are an offset, minus a number of records from the end, or a datetime, not {where!r}")
    return {tp: min(max(where if where >= 0 else lasts[tp] + where, firsts[tp]), lasts[tp]) for tp in lasts}


def text_columns(key: str, value: str) -> tuple[str, ...]:
    """The byte columns that are wanted as text."""
    for name, kind in (("key", key), ("value", value)):
        if kind not in ("binary", "string"):
            raise errors.UsageError(f"{name} is read as binary or string, not {kind!r}")
    return tuple(name for name, kind in (("key", key), ("value", value)) if kind == "string")


def arrow_batch(columns: Any, end: int, view: bool, text: Iterable[str]) -> Any:
    """Columns as a `pyarrow.RecordBatch` without the records from `end` on, some of its byte columns as text.

    Raises:
        errors.SerializationError: one that is to be text is not UTF-8; it names the record.
    """
    import numpy
    import pyarrow as pa

    batch = columns.to_arrow(view=view)
    if len(columns) and columns.offsets[-1] >= end:
        batch = batch.slice(0, int(numpy.searchsorted(columns.offsets, end)))
    for name in text:
        column = batch.column(name)
        try:
            made = column.cast(pa.string_view() if view else pa.string())
        except pa.ArrowInvalid:
            made = _first_that_is_no_text(columns, name, len(batch))
        batch = batch.set_column(batch.schema.get_field_index(name), name, made)
    return batch


def _first_that_is_no_text(columns: Any, name: str, count: int) -> Any:
    for row, each in enumerate((columns.keys if name == "key" else columns.values)[:count]):
        try:
            str(each or b"", "utf-8")
        except UnicodeDecodeError as error:
            raise errors.SerializationError(
                f"the {name} is not UTF-8: byte {error.start} of {len(each)}",
                topic=columns.topic,
                partition=columns.partition,
                offset=int(columns.offsets[row]),
            ) from None
    raise errors.InternalError("text was refused as text")


class ColumnStream:
    """What `KafkaConsumer.read` returns: Arrow batches as they are fetched, so that memory holds an answer and not the topic.

    Iterating it gives `pyarrow.RecordBatch`es; polars, pandas, pyarrow and DuckDB take it as a table. Each use reads from the start of the
    stretches again, with the consumer it was made by, which does nothing else meanwhile.

    Attributes:
        stretches: {partition: (first offset, offset after the last)}.
    """

    def __init__(
        self, consumer: Any, stretches: dict[TopicPartition, tuple[int, int]], text: tuple[str, ...], timeout: float | None
    ) -> None:
        self.stretches = stretches
        self._consumer = consumer
        self._text = text
        self._timeout = timeout

    def schema(self, view: bool = False) -> Any:
        """The batches' `pyarrow.Schema`.

        Args:
            view: of the batches in a capsule, whose keys and values are views of the fetched bytes.
        """
        import pyarrow as pa

        found = arrow_schema(view)
        for name in self._text:
            found = found.set(found.get_field_index(name), pa.field(name, pa.string_view() if view else pa.string()))
        return found

    def batches(self, view: bool = False) -> Iterator[Any]:
        """The record batches, partition after partition, in offset order.

        Args:
            view: keys and values are views of the fetched bytes instead of a copy.

        Raises:
            errors.OffsetOutOfRange: records were deleted before they were read.
            errors.SerializationError: a key or value that is to be text is not UTF-8.
            errors.KafkaError: as `KafkaConsumer.read_range`.
        """
        subscription = self._consumer._subscription
        before, subscription.default_reset = subscription.default_reset, ResetStrategy("none")    # what is gone is an error here
        try:
            for tp, (first, last) in self.stretches.items():
                for columns in self._consumer.read_range(tp, first, last, self._timeout):
                    if len(batch := arrow_batch(columns, last, view, self._text)):
                        yield batch
        finally:
            subscription.default_reset = before

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def __arrow_c_schema__(self) -> Any:
        """Arrow's PyCapsule interface."""
        return self.schema(True).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The batches as a capsule; nothing is read before the first is asked for."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema(True), self.batches(True)).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        offsets = sum(last - first for first, last in self.stretches.values())
        return f"ColumnStream({counted(offsets, 'offset')} of {counted(len(self.stretches), 'partition')})"
