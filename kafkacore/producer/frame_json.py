"""Rows of Arrow columns as JSON texts: `json_column`. It takes pyarrow.

How values are written:

    integers, booleans    as JSON has them
    floats                the shortest digits that read back as the same number (of 32 bits: as the same float32); NaN and infinities, which
                          JSON cannot hold, as null, as JSON.stringify, orjson, polars and pandas do (Spark's to_json: the text "NaN")
    decimals              as numbers, with all digits of their scale
    text                  escaped as RFC 8259 asks for, else as it is, in UTF-8
    bytes                 base64, as Spark's to_json
    dates                 "2026-05-01"
    timestamps            "2026-05-01T12:00:00.123": ISO 8601 with no, 3, 6 or 9 digits of the second, the fewest that hold the value. With
                          a time zone in UTC and with a Z: the same instant, whatever the zone is
    times                 "12:00:00.123", likewise
    lists, structs, maps  arrays; objects; objects, whose keys are text: that of the key's own JSON
    dictionary columns    their values, as those of columns of runs
    UUIDs, JSON           "6ba7b810-..."; what arrow.json columns hold, as it is
    pandas' periods       their text: "2026-05", "2026Q2"; other extension types as what they are stored as
    null                  null, or left out where it is a field

Two ways lead to the same bytes: the compiled one (`native/json_write.pxi`) for the types it knows, and `texts_of` for all. A struct's odd
columns go the second way alone; the compiled writer puts their texts in.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import math
import uuid
from collections.abc import Iterable
from typing import Any

from kafkacore._codec import json_rows
from kafkacore.errors import SerializationError

_EPOCH = datetime.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_MS = 86_400_000
_quoted = functools.partial(json.dumps, ensure_ascii=False)


def json_column(array: Any, null_fields: bool = True, first_row: int = 0) -> Any:
    """Each item as JSON.

    Args:
        array: of structs for objects; any Arrow array.
        null_fields: False leaves fields out that are null (and floats that are NaN or infinite).
        first_row: number of the first item, for errors.

    Returns:
        A large_binary array: UTF-8, null where the item is null.

    Raises:
        SerializationError: a value has no form in JSON: the type is unknown here, a time is outside the years 1 to 9999, text is not UTF-8.
    """
    import numpy
    import pyarrow as pa

    ready: tuple[int, ...] = ()
    rows = array
    if is_odd(array.type):
        if pa.types.is_struct(array.type) and not _is_cut(array.type):
            ready = tuple(i for i, field in enumerate(array.type) if is_odd(field.type))
        if not ready or isinstance(array, pa.ExtensionArray):        # nothing of it is for the compiled writer
            return pa.array([None if each is None else each.encode() for each in texts_of(array, null_fields)], pa.large_binary())
        fields = array.flatten()
        for i in ready:
            try:
                fields[i] = pa.array(texts_of(fields[i], null_fields), pa.large_string())
            except SerializationError as error:
                error.message = f"column {_quoted(array.type[i].name)}: {error.message}"
                raise
        rows = pa.StructArray.from_arrays(fields, array.type.names, mask=array.is_null() if array.null_count else None)
    try:
        data, offsets, nulls = json_rows(rows, ready, null_fields)
    except ValueError as error:
        what, row, name = error.args
        raise SerializationError(f"row {first_row + row:,}{', column ' if name else ''}{name}: {what}") from None
    validity = numpy.packbits(numpy.diff(offsets) > 0, bitorder="little") if nulls else None      # no JSON is empty
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(array), buffers, nulls)


def _is_cut(kind: Any) -> bool:
    """Whether a field's name has a NUL, where names end in Arrow's C interface."""
    return any("\0" in kind.field(i).name for i in range(kind.num_fields))


@functools.lru_cache(1_000)
def is_odd(kind: Any) -> bool:
    """Whether the compiled writer knows nothing of a type."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return True
    if pa.types.is_nested(kind) and (_is_cut(kind) or any(is_odd(kind.field(i).type) for i in range(kind.num_fields))):
        return True
    try:
        json_rows(pa.nulls(0, kind))
    except TypeError:
        return True
    return False


def texts_of(array: Any, null_fields: bool) -> list[str | None]:
    """The general way: each item's text, None for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    is_ = pa.types
    if isinstance(array, pa.ExtensionArray):
        return _of_extension(array, null_fields)
    if is_.is_null(kind):
        return [None] * len(array)
    if is_.is_dictionary(kind):
        texts = texts_of(array.dictionary, null_fields)
        return [None if i is None else texts[i] for i in array.indices.to_pylist()]
    if is_.is_boolean(kind):
        return [None if each is None else "true" if each else "false" for each in array.to_pylist()]
    if is_.is_integer(kind):
        return [None if each is None else str(each) for each in array.to_pylist()]
    if is_.is_floating(kind):
        return _of_floats(array)
    if is_.is_decimal(kind):
        return [None if each is None else format(each, "f") for each in array.to_pylist()]
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        try:
            return [None if each is None else _quoted(each) for each in array.to_pylist()]
        except UnicodeDecodeError as error:
            raise SerializationError(f"a text is not UTF-8: {error}") from None
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind) or is_.is_fixed_size_binary(kind):
        return [None if each is None else f'"{base64.b64encode(each).decode()}"' for each in array.to_pylist()]
    if is_.is_temporal(kind):
        return _of_times(array)
    if is_.is_struct(kind):
        return _of_structs(array, null_fields)
    if is_.is_map(kind):
        return _of_maps(array, null_fields)
    listed = (is_.is_list, is_.is_large_list, is_.is_fixed_size_list, is_.is_list_view, is_.is_large_list_view)
    if any(check(kind) for check in listed):
        return _of_lists(array, null_fields)
    if is_.is_run_end_encoded(kind):
        return texts_of(pc.run_end_decode(array), null_fields)
    raise SerializationError(f"{kind} has no form in JSON: cast the column")


def _of_extension(array: Any, null_fields: bool) -> list[str | None]:
    name, stored = array.type.extension_name, array.storage
    if name == "arrow.json":
        return [None if each is None else str(each) for each in stored.to_pylist()]
    if name == "arrow.uuid":
        return [None if each is None else f'"{uuid.UUID(bytes=each)}"' for each in stored.to_pylist()]
    if name == "arrow.bool8":
        return texts_of(stored.cast("bool"), null_fields)
    if name == "pandas.period":
        there = array.is_valid().to_pylist()
        return [f'"{each}"' if is_there else None for each, is_there in zip(array.to_pandas(), there, strict=True)]
    return texts_of(stored, null_fields)


def _of_floats(array: Any) -> list[str | None]:
    import numpy
    import pyarrow as pa

    if not pa.types.is_float64(array.type):  # what is longer than float32's own digits is an accident of the 64 bits
        array = array.cast(pa.float32())
        values = [None if each is None else float(str(numpy.float32(each))) for each in array.to_pylist()]
    else:
        values = array.to_pylist()
    return [None if each is None or not math.isfinite(each) else repr(each) for each in values]


def _of_times(array: Any) -> list[str | None]:
    import pyarrow as pa

    kind, is_ = array.type, pa.types
    if is_.is_duration(kind) or is_.is_interval(kind):
        raise SerializationError(f"{kind} has no form in JSON: cast the column to a number")
    wide = array.cast(pa.int32()).cast(pa.int64()) if kind.bit_width == 32 else array.cast(pa.int64())
    numbers = wide.to_pylist()
    try:
        if is_.is_date(kind):
            days = numbers if is_.is_date32(kind) else [None if each is None else each // _DAY_MS for each in numbers]
            return [None if each is None else f'"{(_EPOCH + datetime.timedelta(each)).date()}"' for each in days]
        if is_.is_time(kind):
            return [None if each is None else f'"{_moment(each, kind.unit)[11:]}"' for each in numbers]
        end = '"' if kind.tz is None else 'Z"'
        return [None if each is None else f'"{_moment(each, kind.unit)}{end}' for each in numbers]
    except OverflowError:
        raise SerializationError("a time is outside the years 1 to 9999, which ISO 8601 has") from None


def _moment(since: int, unit: str) -> str:
    seconds, fraction = divmod(since, _PER_SECOND[unit])
    text = (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
    if not fraction:
        return text
    digits = f"{fraction:0{len(str(_PER_SECOND[unit])) - 1}d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}"


def _joined(names: Iterable[str], texts: Iterable[str | None], null_fields: bool) -> str:
    pairs = zip(names, texts, strict=True)
    return "{" + ",".join(f"{name}:{text or 'null'}" for name, text in pairs if null_fields or text is not None) + "}"


def _of_structs(array: Any, null_fields: bool) -> list[str | None]:
    names = [_quoted(field.name) for field in array.type]
    if not names:
        return [None if gone else "{}" for gone in array.is_null().to_pylist()]
    rows = zip(*(texts_of(column, null_fields) for column in array.flatten()), strict=True)
    return [None if gone else _joined(names, row, null_fields) for gone, row in zip(array.is_null().to_pylist(), rows, strict=True)]


def _lengths(array: Any) -> list[int | None]:
    import pyarrow.compute as pc

    return pc.list_value_length(array).to_pylist()  # type: ignore[no-any-return]


def _of_lists(array: Any, null_fields: bool) -> list[str | None]:
    items = iter(texts_of(array.flatten(), null_fields))  # without what lies under nulls
    return [
        None if length is None else "[" + ",".join("null" if text is None else text for text in (next(items) for _ in range(length))) + "]"
        for length in _lengths(array)
    ]


def _of_maps(array: Any, null_fields: bool) -> list[str | None]:
    import pyarrow as pa

    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    keys, values = (iter(texts_of(column, null_fields)) for column in entries.flatten().flatten())
    keys = iter([text if text is not None and text.startswith('"') else _quoted(text) for text in keys])
    found: list[str | None] = []
    for length in _lengths(entries):
        pairs = [(next(keys), next(values)) for _ in range(length or 0)]
        found.append(None if length is None else _joined((str(key) for key, _ in pairs), (value for _, value in pairs), null_fields))
    return found
