"""`send_frame`: the rows of a table become records, a slice of rows at a time. It takes pyarrow.

    frame -> record batches -> slices of rows -> columns of send_many -> a BatchFuture each, in one FrameFuture

Rules
1. What a slice is encoded to is about SLICE_BYTES, and an eighth more where the batch ends then. The next slice is made when `send_many`
   has taken this one, which waits while buffer.memory is full. So memory holds a batch of the frame, a slice and the buffer, however long
   the frame is. [test_memory_holds_a_batch_and_not_the_frame, test_slices_grow_and_shrink_with_the_rows,
   test_no_slice_of_a_few_rows_is_left_for_the_end]
2. Rows are sent in their order. The first row that is known to have failed ends the call before the next slice: what could not be written
   once mostly cannot be written the next time either. [test_many_slices_keep_order_and_say_where_they_are,
   test_a_row_that_was_not_delivered_ends_the_call]
3. An error says how many rows are queued and how many of them are delivered; nothing is taken back.
   [test_an_error_in_the_middle_says_what_is_queued]
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, Never

from kafkacore.epoch import Time, epoch_column_ms
from kafkacore.errors import DeliveryError, KafkaError, UsageError
from kafkacore.plurals import counted
from kafkacore.producer.frame_future import FrameFuture
from kafkacore.producer.frame_json import json_column
from kafkacore.producer.futures import BatchFuture
from kafkacore.records import HeaderColumn

SLICE_BYTES = 8 * 1024 * 1024       # half of it takes 2 to 5 % more CPU for small rows: a slice costs 0.1 ms beside its rows
SLICE_ROWS = 131_072
FIRST_ROWS = 64                     # nothing is known of the size of a row


class FrameRows:
    """How rows of one schema become the arguments of `send_many`.

    Args:
        topic: for errors.
        schema: of the frame.
        key, value, value_format, key_format, value_schema, registry, headers, partition, timestamp, null_keys, null_fields, keep: as
            `send_frame` of a producer has them.

    Attributes:
        encoded_bytes: of the values and keys that the last call of `arguments` made.

    Raises:
        UsageError: a column is not there, or cannot be what it is to be.
    """

    def __init__(
        self,
        topic: str,
        schema: Any,
        *,
        key: str | list[str] | None = None,
        value: str | list[str] | None = None,
        value_format: str | None = None,
        key_format: str | None = None,
        value_schema: Any = None,
        registry: Any = None,
        headers: str | Mapping[str, str] | None = None,
        partition: str | int | None = None,
        timestamp: str | Time | None = None,
        null_keys: bool = False,
        null_fields: bool = True,
        keep: bool | list[str] = False,
    ) -> None:
        self._topic = topic
        self._schema = schema
        self._null_keys = null_keys
        self._null_fields = null_fields
        self._partition = partition
        self._timestamp = timestamp
        self._headers = headers
        self.encoded_bytes = 0
        if value_format not in (None, "json", "avro"):
            self._refuse(f"value_format is json, avro, or None for a column of text or bytes, not {value_format!r}")
        if key_format not in (None, "json"):
            self._refuse(f"key_format is json, or None for a column of text or bytes, not {key_format!r}")
        if value_format != "avro" and not value_schema is registry is None:
            self._refuse("value_schema and registry are for value_format='avro'")
        checked: tuple[tuple[str, Any, tuple[type, ...], str], ...] = (
            ("key", key, (str, list, tuple), "a column's name, or with key_format='json' a list of names"),
            ("value", value, (str, list, tuple), "a column's name, or with value_format a list of names"),
            ("headers", headers, (str, Mapping), "{header: column's name}, or the name of a column of lists"),
            ("partition", partition, (str, Integral), "a column's name or a number"),
        )
        for role, given, takes, what in checked:
            if given is not None and (not isinstance(given, takes) or isinstance(given, bool)):
                self._refuse(f"{role} is {what}, not {given!r:.100}")
        if isinstance(timestamp, (list, tuple, Mapping)):
            self._refuse(f"timestamp is a column's name or one time for all, not {timestamp!r:.100}")
        taken: list[str] = []
        for names in (key, partition, timestamp, headers):
            for name in self._names(names):
                if name not in taken:
                    taken.append(name)
        kept = self._kept(keep, taken, value)
        self._key_format, self._value_format = key_format, value_format
        self._key = None if key is None else self._source(key, key_format, "key")
        if value is None:
            if value_format is None:
                self._refuse("say which column is the value, or value_format='json' for one of all other columns")
            value = [name for name in schema.names if name not in taken or name in kept]
            if not value:
                self._refuse("no column is left for the value: name those that it is to hold, value=[...]")
        self._value = self._source(value, value_format, "value")
        if isinstance(headers, Mapping):
            for header, name in headers.items():
                if not isinstance(header, str):
                    self._refuse(f"a header's name is text, not {header!r:.100}")
                self._check_bytes(name, "header")
        elif headers is not None:
            self._check_header_lists(headers)
        for name in self._names(timestamp) + (self._names(value) if value_format == "avro" else []):
            self._check_no_periods(name)
        self._avro = self._avro_rows(value_schema, registry) if value_format == "avro" else None

    def _kept(self, keep: Any, taken: list[str], value: Any) -> list[str]:
        """The columns that stay in the value, of those that another argument names."""
        if keep is False:
            return []
        if value is not None:
            self._refuse("value says which columns it holds: leave keep out")
        if keep is True:
            return taken
        if not isinstance(keep, (list, tuple)):
            self._refuse(f"keep is a list of columns, or True for all that other arguments name, not {keep!r:.100}")
        for name in self._names(keep):
            if name not in taken:
                self._refuse(f"keep names column {name!r}, which is in the value anyway: no other argument names it")
        return list(keep)

    def _refuse(self, why: str) -> Never:
        raise UsageError(why, topic=self._topic)

    def _names(self, given: Any) -> list[str]:
        """The columns that an argument names; all of them are there, once."""
        if isinstance(given, str):
            names = [given]
        elif isinstance(given, Mapping):
            names = list(given.values())
        elif isinstance(given, (list, tuple)):
            names = list(given)
        else:
            return []
        for name in names:
            found = len(self._schema.get_all_field_indices(name)) if isinstance(name, str) else 0
            if not found:
                self._refuse(f"the frame has no column {name!r}: there are {', '.join(self._schema.names)}")
            if found > 1:
                self._refuse(f"the frame has {found} columns {name!r}")
        return names

    def _source(self, given: str | list[str], form: str | None, role: str) -> str | list[str]:
        """A column, or several for one object."""
        names = self._names(given)
        if isinstance(given, str):
            if form is None:
                self._check_bytes(given, role)
            return given
        if form is None:
            self._refuse(f"several columns make one {role} with {role}_format='json'")
        if len(set(names)) < len(names):
            self._refuse(f"a column is named twice in {role}")
        return names

    def _check_bytes(self, name: str, role: str) -> None:
        kind = self._schema.field(name).type
        if not is_bytes(kind):
            other = "" if role == "header" else f", or write it with {role}_format='json'"
            self._refuse(f"column {name!r} holds {kind}, and a {role} is text or bytes: cast it{other}")

    def _check_no_periods(self, name: str) -> None:
        """Periods of pandas are kept as counts of months and the like since 1970, which look like other numbers."""
        if getattr(self._schema.field(name).type, "extension_name", "") == "pandas.period":
            self._refuse(f"column {name!r} holds periods of pandas: make it text, astype(str), or times, .dt.to_timestamp()")

    def _check_header_lists(self, name: str) -> None:
        import pyarrow as pa

        kind = self._schema.field(name).type
        listed = (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type)
        fields = list(kind.value_type) if listed else []
        if len(fields) != 2 or not all(is_bytes(field.type) for field in fields):
            self._refuse(f"column {name!r} holds {kind}, and headers are a list of (key, value) structs of text or bytes")

    def _avro_rows(self, schema: Any, registry: Any) -> Any:
        import pyarrow as pa

        from kafkacore.decode import registry as schemas
        from kafkacore.producer.frame_avro import AvroRows

        if isinstance(self._value, str):
            columns = self._schema.field(self._value).type
            if not pa.types.is_struct(columns):
                name = self._value
                self._refuse(f"column {name!r} holds {columns}, and an Avro value is a record: name columns, value=[{name!r}]")
        else:
            columns = pa.struct([self._schema.field(name) for name in self._value])
        by_id = isinstance(schema, int) and not isinstance(schema, bool)
        if registry is None:
            if by_id:
                self._refuse(f"value_schema={schema} is an id in a registry: say where it is, registry='https://...'")
            return AvroRows(schema, columns)
        if schema is not None and not by_id:
            self._refuse(f"with a registry the schema is the one of the subject {self._topic}-value, or an id of one: value_schema=7")
        known = schemas.shared(registry if isinstance(registry, schemas.RegistryOptions) else schemas.RegistryOptions(registry))
        if by_id:
            number, found = schema, known.by_id(schema, "AVRO")
        else:
            number, found = known.latest_with_id(f"{self._topic}-value", "AVRO", ": register it, or leave the registry out")
        return AvroRows(found.text, columns, schemas.prefix_of(number), _texts(found))

    def arguments(self, batch: Any, first_row: int) -> dict[str, Any]:
        """What `send_many` takes beside the topic.

        Args:
            batch: the rows.
            first_row: number of the first one in the frame, for errors.

        Raises:
            UsageError: a row cannot be a record.
        """
        self.encoded_bytes = 0
        found: dict[str, Any] = {"values": self._column(batch, self._value, self._value_format, first_row)}
        if self._key is not None:
            keys = self._column(batch, self._key, self._key_format, first_row)
            if keys.null_count and not self._null_keys:
                row = first_row + _first_null(keys)
                self._refuse(f"row {row:,} has no key (column {self._key!r}): null_keys=True sends such rows as records without a key")
            found["keys"] = keys
        if isinstance(self._timestamp, str):
            found["timestamps_ms"] = self._times(batch.column(self._timestamp), first_row)
        elif self._timestamp is not None:
            found["timestamps_ms"] = self._timestamp
        if isinstance(self._partition, str):
            found["partitions"] = self._numbers(batch.column(self._partition))
        elif self._partition is not None:
            found["partitions"] = self._partition
        if self._headers is not None:
            found["headers"] = self._header_column(batch)
        return found

    def _column(self, batch: Any, source: str | list[str], form: str | None, first_row: int) -> Any:
        if isinstance(source, str):
            column = batch.column(source)
            if form is None:
                return _bytes_of(column)
        else:
            column = batch.select(source).to_struct_array()
        try:
            if form == "avro" and self._avro is not None:
                made = self._avro.column(column, first_row)
            else:
                made = json_column(column, self._null_fields, first_row)
        except KafkaError as error:
            error.topic = self._topic
            raise
        self.encoded_bytes += made.nbytes
        return made

    def _times(self, column: Any, first_row: int) -> Any:
        name = f"column {self._timestamp!r}"
        if column.null_count:
            self._refuse(f"row {first_row + _first_null(column):,} has no time ({name} is null): fill it, or leave timestamp out for now")
        try:
            times = epoch_column_ms(column, name)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{error} (within the {len(column):,} rows from {first_row:,} on)", topic=self._topic) from None
        if len(times) and times.min() < 0:
            row = int(times.argmin())
            self._refuse(f"row {first_row + row:,} has a time before 1970, which Kafka cannot keep ({name}: {column[row]})")
        return times

    def _numbers(self, column: Any) -> Any:
        import pyarrow as pa

        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            self._refuse(f"column {self._partition!r} holds {column.type}, and partitions are whole numbers")
        return column.cast(pa.int32()) if pa.types.is_null(column.type) else column

    def _header_column(self, batch: Any) -> Any:
        import numpy
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(self._headers, str):                       # as `consumer.read` has them
            column = batch.column(self._headers)
            names, values = (_bytes_of(each) for each in column.flatten().flatten())
            if names.null_count:
                self._refuse(f"a header in column {self._headers!r} has no name")
            return HeaderColumn(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), names, values)
        assert self._headers is not None
        columns = [_bytes_of(batch.column(name)).cast(pa.large_binary()) for name in self._headers.values()]
        there = numpy.column_stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        rows, which = numpy.nonzero(there)                       # row by row
        values = pa.concat_arrays(columns).take(pa.array(rows + which * len(batch)))
        names = pa.array([name.encode() for name in self._headers], pa.binary()).take(pa.array(which))
        return HeaderColumn(there.sum(axis=1), names, values)


def _texts(schema: Any) -> tuple[str, ...]:
    """The schemas that a registered one uses, each after those that it uses itself."""
    return tuple(text for _, used in schema.references for text in (*_texts(used), used.text))


def is_bytes(kind: Any) -> bool:
    """Whether a column of this Arrow type is text or bytes."""
    import pyarrow.types as is_

    if is_.is_dictionary(kind):
        return is_bytes(kind.value_type)
    checks = (
        is_.is_string, is_.is_large_string, is_.is_string_view, is_.is_binary, is_.is_large_binary, is_.is_binary_view,
        is_.is_fixed_size_binary, is_.is_null,
    )  # fmt: skip
    return any(check(kind) for check in checks)


def _bytes_of(column: Any) -> Any:
    """A column of text or bytes as `send_many` takes it."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return column.dictionary.cast(pa.large_binary()).take(column.indices)
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _without_runs(given: Any) -> Any:
    """A schema or a batch whose run-end encoded columns are plain ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_schema = isinstance(given, pa.Schema)
    schema = given if is_schema else given.schema
    if not any(pa.types.is_run_end_encoded(field.type) for field in schema):
        return given
    plain = pa.schema([field.with_type(field.type.value_type) if pa.types.is_run_end_encoded(field.type) else field for field in schema])
    if is_schema:
        return plain
    columns = [pc.run_end_decode(each) if pa.types.is_run_end_encoded(each.type) else each for each in given.columns]
    return pa.RecordBatch.from_arrays(columns, schema=plain)


def _first_null(column: Any) -> int:
    return int(column.is_null().index(True).as_py())


# ---- batches of a frame ----------------------------------------------------------------------------------------------------------------


def batches_of(frame: Any, nan_is_null: bool = True) -> tuple[Any, Iterator[Any]]:
    """The schema of a frame, and its record batches.

    Args:
        frame: a table of any library.
        nan_is_null: False lets NaN be in numpy's floats of a pandas frame: who writes them as null anyway need not have them looked for.

    Raises:
        TypeError: it is no table.
        ImportError: pyarrow is not installed.
    """
    import pyarrow as pa

    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _of_pandas(frame, nan_is_null)
    kind = type(frame).__name__
    # These two without Arrow's C interface, through which an exception would come as a text of Arrow's
    if isinstance(frame, pa.RecordBatchReader):
        return frame.schema, iter(frame)
    if callable(getattr(frame, "batches", None)) and callable(getattr(frame, "schema", None)):     # what `read` of a consumer returns
        return frame.schema(True), frame.batches(True)
    if hasattr(frame, "__arrow_c_stream__"):
        _check_polars(frame)
        try:
            reader = pa.RecordBatchReader.from_stream(frame)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TypeError(f"a {kind} is no table of columns ({error}): send_many takes a single column") from None
        return reader.schema, iter(reader)
    if hasattr(frame, "__arrow_c_array__"):
        try:
            batch = pa.record_batch(frame)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise TypeError(f"a {kind} is no table of columns ({error}): send_many takes a single column") from None
        return batch.schema, iter([batch])
    hint = ": collect() it" if hasattr(frame, "collect") else ": a polars or pandas frame, an Arrow table, a DuckDB relation"
    raise TypeError(f"a {kind} has no Arrow interface (__arrow_c_stream__){hint}")


def _check_polars(frame: Any) -> None:
    """Refuses columns of polars that Arrow does not have: of objects it would get their addresses."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(frame, polars.DataFrame):
        return
    for name, kind in frame.schema.items():
        found = str(kind)
        if any(other in found for other in ("Object", "Int128", "UInt128")):
            raise UsageError(f"column {name!r} holds polars' {found}, which Arrow does not have: cast it")


def _of_pandas(frame: Any, nan_is_null: bool) -> tuple[Any, Iterator[Any]]:
    """Slices of a pandas frame: what is not Arrow in it becomes so a slice at a time. An index with a name is a column, another is not."""
    import pyarrow as pa

    keep = any(name is not None for name in frame.index.names)
    try:
        schema = pa.Schema.from_pandas(frame, preserve_index=keep).remove_metadata()
    except Exception as error:  # pyarrow has many, and few of them name the column
        raise _unfit(frame, error) from None
    # Those that share their memory with Arrow are cut out of it; `from_pandas` takes longer for a slice than its rows take
    near = {i: made for i in range(frame.shape[1]) if (made := _shared_column(frame.iloc[:, i], schema.field(i).type, nan_is_null))}
    others = [i for i in range(len(schema)) if i not in near]
    rest = frame.iloc[:, [i for i in others if i < frame.shape[1]]] if near else frame
    rest_schema = pa.schema([schema.field(i) for i in others])

    def slices() -> Iterator[Any]:
        for at in range(0, len(frame), SLICE_ROWS):
            columns = {i: made(at, at + SLICE_ROWS) for i, made in near.items()}
            if others:
                part = pa.RecordBatch.from_pandas(rest.iloc[at : at + SLICE_ROWS], schema=rest_schema, preserve_index=keep)
                columns.update(zip(others, part.columns, strict=True))
            yield pa.RecordBatch.from_arrays([columns[i] for i in range(len(schema))], schema=schema)

    return schema, slices()


def _unfit(frame: Any, error: Exception) -> UsageError:
    """Why pyarrow does not take a pandas frame, with the column that it does not take."""
    import pyarrow as pa

    for i, name in enumerate(frame.columns):
        try:
            pa.Schema.from_pandas(frame.iloc[:, [i]], preserve_index=False)
        except Exception as own:
            why = f"{type(own).__name__}: {own}"
            return UsageError(f"column {name!r} cannot be a column of Arrow ({why}): cast it, or give its values one type")
    return UsageError(f"the frame cannot be a table of Arrow ({type(error).__name__}: {error})")


def _shared_column(column: Any, kind: Any, nan_is_null: bool) -> Callable[[int, int], Any] | None:
    """Gives rows of a pandas column as Arrow has them: for numpy's numbers and times, and for what pandas keeps in Arrow; else None."""
    import pyarrow as pa

    pd: Any = sys.modules["pandas"]
    dtype = column.dtype
    if dtype.kind in "iufM" and not isinstance(dtype, pd.api.extensions.ExtensionDtype):
        numbers = column.to_numpy()
        missing = nan_is_null or dtype.kind != "f"
        native = dtype.newbyteorder("=")
        return lambda at, end: pa.array(numbers[at:end].astype(native, copy=False), kind, from_pandas=missing)
    if isinstance(dtype, pd.ArrowDtype) or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        chunks = column.array.__arrow_array__()
        if isinstance(chunks, pa.ChunkedArray) and chunks.type == kind:
            return lambda at, end: _joined(chunks.slice(at, end - at))
    return None


def _joined(chunks: Any) -> Any:
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


class FrameCall:
    """One call of `send_frame` under way: what is sent next, and what became of the rest.

    Args:
        topic: where to.
        how: as `FrameRows` takes it.

    Attributes:
        future: of all rows so far.
    """

    def __init__(self, topic: str, **how: Any) -> None:
        self._topic = topic
        self._how = how
        self._schema: Any                        # with the next two: of `open`
        self._has_runs: bool
        self._rows: FrameRows
        self._room = FIRST_ROWS
        self._row = 0                            # the first one that is not sent
        self.future = FrameFuture(topic)

    def open(self, schema: Any) -> None:
        """Looks at the columns.

        Raises:
            UsageError: as `FrameRows`.
        """
        self._schema = schema
        plain = _without_runs(schema)
        self._has_runs = plain is not schema
        self._rows = FrameRows(self._topic, plain, **self._how)

    def _take(self, schema: Any) -> None:
        """Goes on with batches whose columns have other types: a column may be null at first. Other columns would be left out silently."""
        before, now = set(self._schema.names), set(schema.names)
        if changed := sorted(before ^ now):
            how = "a new column" if changed[0] in now else "no column"
            why = f"from row {self._row:,} on the frame has {how} {changed[0]!r}: its batches have one schema"
            raise UsageError(why, topic=self._topic)
        if self._how.get("value_format") != "avro":    # rows become what the first schema says
            self.open(schema)

    def slices(self, batch: Any) -> Iterator[dict[str, Any]]:
        """What `send_many` takes for the rows of a batch, slice by slice.

        Raises:
            DeliveryError: a row of an earlier slice is known to have failed.
            UsageError: a row cannot be a record, or the batch has other columns than the one before it.
        """
        other = not batch.schema.equals(self._schema)
        if other:
            self._take(batch.schema)
        at = 0
        while at < len(batch):
            self._check()
            left = len(batch) - at               # no slice of a few rows at the end, which costs what a long one costs beside its rows
            part = batch.slice(at, self._room if left > self._room + self._room // 8 else left)
            if self._has_runs or other:
                part = _without_runs(part)
            arguments = self._rows.arguments(part, self._row)
            used = max(1, self._rows.encoded_bytes)
            at += len(part)
            self._row += len(part)
            self._room = max(1, min(SLICE_ROWS, 32 * self._room, SLICE_BYTES * len(part) // used))
            yield arguments

    def _check(self) -> None:
        known = self.future.so_far()
        if known.errors:
            row = min(known.errors)
            first = known.errors[row]
            causes = list({type(error): error for error in known.errors.values()}.values())
            raise DeliveryError(
                f"row {row:,} of the frame was not delivered: {first}", failed=len(known.errors), causes=causes, topic=self._topic
            ) from first

    def cut_short(self, error: BaseException) -> None:
        """Says in an error how far the call came."""
        part = getattr(error, "future", None)
        if isinstance(part, BatchFuture):
            self.future.add(part)
        error.appended = len(self.future)  # type: ignore[attr-defined]
        error.future = self.future  # type: ignore[attr-defined]
        if not len(self.future):
            return
        known = self.future.so_far()
        how_far = f"{counted(len(self.future), 'row')} of the frame queued, {known.delivered:,} of them delivered so far"
        if isinstance(error, KafkaError):
            error.message += f" ({how_far})"
        elif isinstance(error, Exception):
            error.add_note(how_far)


def send_frame(producer: Any, topic: str, frame: Any, **how: Any) -> FrameFuture:
    """Sends a frame; `KafkaProducer.send_frame` says what it takes, returns and raises."""
    call = FrameCall(topic, **how)
    schema, batches = batches_of(frame, how.get("value_format") == "avro")
    try:
        call.open(schema)
        for batch in batches:
            for arguments in call.slices(batch):
                call.future.add(producer.send_many(topic, **arguments))
    except BaseException as error:
        call.cut_short(error)
        raise
    return call.future


async def send_frame_in_loop(producer: Any, topic: str, frame: Any, on_a_thread: Any, **how: Any) -> FrameFuture:
    """The same for an event loop: batches are fetched and encoded by a thread, records queued in the loop.

    Args:
        producer: the asyncio one.
        topic, frame, how: as above; the frame may be an asynchronous iterator of record batches.
        on_a_thread: awaits a call made by a thread.
    """
    call = FrameCall(topic, **how)
    iterated: AsyncIterator[Any] | None = aiter(frame) if hasattr(frame, "__aiter__") else None
    batches: Iterator[Any] = iter(())
    opened = False
    try:
        if iterated is None:
            schema, batches = await on_a_thread(lambda: batches_of(frame, how.get("value_format") == "avro"))
            call.open(schema)
            opened = True
        while True:
            batch = await on_a_thread(lambda: next(batches, None)) if iterated is None else await anext(iterated, None)
            if batch is None:
                return call.future
            if not opened:
                call.open(batch.schema)
                opened = True
            slices = call.slices(batch)
            while (arguments := await on_a_thread(lambda: next(slices, None))) is not None:  # noqa: B023 - awaited before it changes
                call.future.add(await producer.send_many(topic, **arguments))
    except BaseException as error:
        call.cut_short(error)
        raise


