"""ManyCall: one call of send_many, its columns checked and brought into the form that the compiled loop takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np

from kafkacore import _codec
from kafkacore._codec import ColumnSource, HeaderColumn, ManyProgress, TopicQueue
from kafkacore.epoch import epoch_column_ms, epoch_ms
from kafkacore.errors import KafkaError, UsageError
from kafkacore.plurals import counted
from kafkacore.producer.futures import BatchFuture


class ManyCall:
    """A call under way: what is to be appended, and how far it came.

    Args:
        queue: of the topic.
        values, keys, headers, timestamps_ms: as send_many takes them.
        waited_ms: what the call has waited for the topic's metadata.

    Attributes:
        count: records of the call.
        progress: the first `progress.done` records are queued.
        numbers: one partition per record, -1 where the partitioner is to choose, or None; set by the producer.

    Raises:
        ValueError: columns differ in length; a time stamp is negative, NaT or null.
        TypeError: values or keys are no column, timestamps_ms no times.
    """

    __slots__ = (
        "_common", "_each", "_items", "_key_items", "column", "count", "each_ms", "key_column", "numbers", "one_ms", "progress", "queue",
        "waited_ms",
    )  # fmt: skip

    def __init__(self, queue: TopicQueue, values: Any, keys: Any, headers: Any, timestamps_ms: Any, waited_ms: int) -> None:
        self.queue = queue
        self.column = _column(values, "values")
        self.key_column = None if keys is None else _column(keys, "keys")
        self.count = count = len(self.column)
        if self.key_column is not None and len(self.key_column) != count:
            raise ValueError(f"columns differ in length: {count} values, {len(self.key_column)} keys")
        self.numbers: Any = None
        self.one_ms, self.each_ms = -1, None
        if timestamps_ms is not None:
            if not hasattr(timestamps_ms, "__len__") or (isinstance(timestamps_ms, np.ndarray) and not timestamps_ms.ndim):
                self.one_ms = lowest = epoch_ms(timestamps_ms, "timestamps_ms")
            else:
                self.each_ms = epoch_column_ms(timestamps_ms, "timestamps_ms")
                if len(self.each_ms) != count:
                    raise ValueError(f"columns differ in length: {count} values, {len(self.each_ms)} timestamps")
                lowest = int(self.each_ms.min()) if count else 0
            if lowest < 0:
                raise ValueError(f"timestamps_ms must not be negative, got {lowest} (topic {queue.topic})")
        self._common, self._each = _headers_of_many(headers, count)
        self._items: Any = None
        self._key_items: Any = None
        self.waited_ms = waited_ms
        self.progress = ManyProgress()

    def encoded_headers(self) -> Any:
        """The headers as the compiled loop takes them."""
        if self._each is None:
            return _record_headers(self._common)
        return self._each if isinstance(self._each, HeaderColumn) else [_record_headers(headers) for headers in self._each]

    def record(self, i: int) -> tuple[Any, ...]:
        """Record number `i`, as the arguments of `_send_general`."""
        if self._items is None:
            self._items = self.column.objects or self.column
            self._key_items = None if self.key_column is None else self.key_column.objects or self.key_column
        return (
            self.queue.topic,
            self._items[i],
            None if self._key_items is None else self._key_items[i],
            self._common if self._each is None else self._each[i],
            None if self.numbers is None or self.numbers[i] < 0 else int(self.numbers[i]),
            int(self.each_ms[i]) if self.each_ms is not None else None if self.one_ms < 0 else self.one_ms,
            None,
            0 if i else self.waited_ms,
        )

    def future(self) -> BatchFuture:
        """The outcome of what is queued."""
        return BatchFuture(self.queue.topic, self.progress)

    def _culprit(self) -> str | None:
        """What the first record that is not queued has that is not bytes-like; None where it is something else."""
        i = self.progress.done
        for column, plural in ((self.column, "values"), (self.key_column, "keys")):
            items = None if column is None else column.objects
            if items is not None and i < len(items) and not isinstance(items[i], (str, NoneType)):
                try:
                    memoryview(items[i])
                except TypeError:
                    return (
                        f"{plural}[{i}] must be bytes-like, str or None, not {type(items[i]).__name__};"
                        f" give a {plural[:-1]}_serializer for other types"
                    )
        return None

    def cut_short(self, error: BaseException) -> None:
        """Says in an error how much of the call is queued."""
        error.appended = self.progress.done  # type: ignore[attr-defined]
        error.future = self.future()  # type: ignore[attr-defined]
        if isinstance(error, TypeError) and str(error).startswith("expected bytes-like") and (culprit := self._culprit()):
            error.args = (culprit,)
        if isinstance(error, KafkaError):
            error.message += f" ({self.progress.done:,} of {counted(self.count, 'record')} {'was' if self.count == 1 else 'were'} queued)"


def partition_numbers(given: Any) -> tuple[Any, Any]:
    """The partitions of send_many as int32, -1 where nulls leave them to the partitioner; and those that are named, None without any.

    Both are copies: the caller may change the array while records wait for memory.

    Raises:
        TypeError: they are no whole numbers.
        UsageError: one does not fit 32 bits.
    """
    missing = None
    if hasattr(given, "is_null") or hasattr(given, "isna"):  # Arrow, polars; pandas
        missing = np.asarray(given.is_null() if hasattr(given, "is_null") else given.isna())
        if missing.any():
            given = given.fill_null(-1) if hasattr(given, "fill_null") else given.fillna(-1)
    given = np.asarray(given)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"partitions must be whole numbers, not {given.ravel()[0]!r:.60}")
    if given.size and not -(1 << 31) <= int(given.min()) <= int(given.max()) < 1 << 31:
        raise UsageError(f"partitions have 31 bits; asked for {given.min()}..{given.max()}")
    numbers = np.array(given, np.int32)
    if missing is None or not missing.any():
        return numbers, numbers
    named = numbers[~missing]
    return (numbers, named) if len(named) else (None, None)


def _column(given: Any, name: str) -> ColumnSource:
    try:
        return ColumnSource(one_array(given))
    except TypeError as error:
        is_text = getattr(getattr(given, "dtype", None), "kind", "") == "U"
        hint = ": np.char.encode(...) makes bytes of it, .tolist() a list" if is_text else ""
        raise TypeError(f"{name}: {error}{hint}") from None


def none_queued(error: BaseException, topic: str) -> None:
    """Says in an error of send_many that nothing is queued."""
    error.appended = 0  # type: ignore[attr-defined]
    error.future = BatchFuture(topic, ManyProgress())  # type: ignore[attr-defined]


def one_array(source: Any) -> Any:
    """A column that comes in chunks (pandas, polars, a column of a table) as one Arrow array; anything else as it is.

    Raises:
        TypeError: it is a data frame, or pyarrow is not there to read it.
    """
    if isinstance(source, (list, tuple)) or not hasattr(source, "__arrow_c_stream__"):
        return source
    try:
        import pyarrow as pa
    except ImportError:
        if hasattr(source, "__arrow_c_array__"):
            return source
        raise TypeError(f"reading a {type(source).__name__} takes pyarrow: pip install pyarrow, or pass a list") from None
    column = pa.chunked_array(source)
    if pa.types.is_struct(column.type):
        raise TypeError(f"a {type(source).__name__} has several columns: pass one of them")
    if pa.types.is_dictionary(column.type):
        kind = column.type.value_type
        kind = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)  # which Arrow cannot take from
        column = pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks], kind)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _headers_of_many(headers: Any, count: int) -> tuple[Any, Any]:
    """(headers of every record, None), or (None, headers by record)."""
    if headers is None:
        return None, None
    if isinstance(headers, Mapping):
        return list(headers.items()), None
    if not isinstance(headers, HeaderColumn):
        headers = list(headers)
        if all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], (str, bytes)) for pair in headers):
            return headers, None
    if len(headers) != count:
        raise ValueError(f"columns differ in length: {count} values, {len(headers)} lists of headers")
    return None, headers


def _record_headers(headers: Any) -> bytes | None:
    if not headers:
        return None
    return _codec.record_headers(headers.items() if isinstance(headers, Mapping) else headers)
