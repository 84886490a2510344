"""Columns of any Arrow type out of JSON: what `send_frame` writes, `json=schema` reads back.

The JSON decoder knows a few types (`ddl`). A column of another type is read as one of those and made what it is to be a batch at a time:

    unsigned            bigint, or decimal for 64 bits
    categories          their values
    times of day        text: "12:00:00.123456789"
    timestamps          text for nanoseconds; else timestamp, with digits beyond the unit cut, and the zone as its name
    date64, float16     date, float
    other decimals      decimal, or text beyond 38 digits
    fixed sizes         binary, array; another size is a fault
    maps                with text as keys, of which each key is read
    UUID, bool8         text, boolean; other extension types as what they are stored as
    null, runs          text, of which there is none; their values

Text, bytes and lists have one layout, see `wanted`.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from kafkacore.decode import values as v
from kafkacore.decode.base import Decoder, RowFailed
from kafkacore.decode.ddl import SIMPLE, spark_list, spark_map
from kafkacore.decode.jsons import JsonDecoder
from kafkacore.errors import ConfigError

_PIECES = 16

Finish = Callable[[Any], Any]
"""Makes an array of the wanted type of one as it was read. Raises one of `values.FAULTS` where an item does not fit."""


class Plan(NamedTuple):
    """How a column is read.

    Attributes:
        read: the type that the decoder makes.
        finish: makes the wanted one of it; None where it is the same.
    """

    read: pa.DataType
    finish: Finish | None


def plan(kind: pa.DataType, path: str) -> Plan:
    """How a type is read.

    Raises:
        ConfigError: JSON has nothing that could be read as it.
    """
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(kind, path)
    if is_.is_struct(kind):
        return _struct(kind, path)
    if is_.is_list(kind) or is_.is_fixed_size_list(kind):
        return _list(kind, path)
    if is_.is_map(kind):
        return _map(kind, path)
    if kind in SIMPLE.values() or is_.is_decimal128(kind):
        return Plan(kind, None)
    if is_.is_uint64(kind):
        # Places after the point, so that a fraction is not rounded: it is no whole number. With more of them Arrow does not cast 2^64 - 1.
        return Plan(pa.decimal128(36, 16), lambda array: array.cast(kind))
    if is_.is_unsigned_integer(kind):
        return Plan(pa.int64(), lambda array: array.cast(kind))
    if is_.is_float16(kind):
        return Plan(pa.float32(), lambda array: array.cast(kind))
    if is_.is_date64(kind):
        return Plan(pa.date32(), lambda array: array.cast(kind))
    if is_.is_timestamp(kind):
        return _timestamp(kind, path)
    if is_.is_time(kind):
        return Plan(pa.string(), lambda array: _times(array, kind))
    if is_.is_decimal(kind):
        if kind.precision <= SIMPLE_DIGITS:
            return Plan(pa.decimal128(kind.precision, kind.scale), lambda array: array.cast(kind))
        return Plan(pa.string(), lambda array: _long_decimals(array, path, kind))
    if is_.is_fixed_size_binary(kind):
        return Plan(pa.binary(), lambda array: array.cast(kind))
    if is_.is_dictionary(kind):
        read, finish = plan(kind.value_type, path)
        return Plan(read, lambda array: _categories(array if finish is None else finish(array), path, kind))
    if is_.is_run_end_encoded(kind):
        read, finish = plan(kind.value_type, path)
        return Plan(read, lambda array: pc.run_end_encode(array if finish is None else finish(array), kind.run_end_type))
    if is_.is_null(kind):
        return Plan(pa.string(), _nothing)
    raise ConfigError(f"column {path} is {kind}, and JSON has nothing that could be read as that: make it another type")


SIMPLE_DIGITS = 38


def _extension(kind: Any, path: str) -> Plan:
    name = kind.extension_name
    if name == "arrow.uuid":
        return Plan(pa.string(), lambda array: _uuids(array, kind))
    if name == "arrow.bool8":
        return Plan(pa.bool_(), lambda array: _stored(array.cast(pa.int8()), kind))
    if name in ("arrow.json", "pandas.period"):
        raise ConfigError(f"column {path} is {kind}, which is read as text: make it string")
    read, finish = plan(kind.storage_type, path)
    return Plan(read, lambda array: _stored(array if finish is None else finish(array), kind))


def _uuids(texts: Any, kind: Any) -> Any:
    return _stored(pa.array([None if each is None else uuid.UUID(each).bytes for each in texts.to_pylist()], kind.storage_type), kind)


def _stored(array: Any, kind: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, array)


def _struct(kind: Any, path: str) -> Plan:
    plans = [plan(field.type, f"{path}.{field.name}") for field in kind]
    read = pa.struct([field.with_type(each.read).with_nullable(True) for field, each in zip(kind, plans, strict=True)])
    if all(each.finish is None for each in plans):
        return Plan(read, None)

    def finish(array: Any) -> Any:
        columns = [each if how.finish is None else how.finish(each) for each, how in zip(array.flatten(), plans, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())

    return Plan(read, finish)


def _list(kind: Any, path: str) -> Plan:
    items = plan(kind.value_type, f"{path}[]")
    read = spark_list(items.read)
    if pa.types.is_list(kind) and items.finish is None:
        return Plan(read, None)

    def finish(array: Any) -> Any:
        found = array.flatten() if items.finish is None else items.finish(array.flatten())
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(_offsets(array), found, type=kind, mask=array.is_null())
        return _of_one_size(array, found, kind)

    return Plan(read, finish)


def _of_one_size(array: Any, items: Any, kind: Any) -> Any:
    """Lists that all have one size; Arrow's own cast leaves memory of others under nulls."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    if not pc.all(pc.equal(pc.list_value_length(array), kind.list_size), min_count=0).as_py():
        raise v.Undecodable(f"an array has not {kind.list_size} items")
    absent = numpy.repeat(~there, kind.list_size)
    index = numpy.zeros(len(absent), numpy.int64)
    index[~absent] = numpy.arange(len(items))
    return pa.FixedSizeListArray.from_arrays(items.take(pa.array(index, mask=absent)), type=kind, mask=array.is_null())


def _offsets(array: Any) -> Any:
    """Those of the items that `flatten` returns, which leaves out what lies under nulls and outside of a slice."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(numpy.concatenate([[0], numpy.cumsum(lengths)]), pa.int32())


def _map(kind: Any, path: str) -> Plan:
    items = plan(kind.item_type, f"{path}{{}}")
    read = spark_map(pa.string(), items.read)
    keys = None if pa.types.is_string(kind.key_type) else _keys(kind.key_type, path)
    if keys is None and items.finish is None:
        return Plan(read, None)

    def finish(array: Any) -> Any:
        entries = array.cast(pa.list_(pa.struct([("key", pa.string()), ("value", items.read)])))
        texts, values = entries.flatten().flatten()
        made = values if items.finish is None else items.finish(values)
        found = texts if keys is None else keys(texts)
        return pa.MapArray.from_arrays(_offsets(entries), found, made, type=kind, mask=array.is_null())

    return Plan(read, finish)


def _keys(kind: pa.DataType, path: str) -> Finish:
    """What makes keys of the texts that they have in JSON."""
    read, finish = plan(kind, f"{path}{{}}")
    if pa.types.is_nested(read):
        raise ConfigError(f"column {path} is a map with keys of {kind}, which have no text in JSON")

    def made(texts: Any) -> Any:
        if pa.types.is_binary(read):
            array = pa.array([base64.b64decode(each, validate=True) for each in texts.to_pylist()], read)
        elif pa.types.is_decimal(read):
            array = v.decimals(path, texts, read)
        else:
            array = v.typed(texts, read)
        return array if finish is None else finish(array)

    return made


def _timestamp(kind: Any, path: str) -> Plan:
    zoned = kind.tz is not None
    if kind.unit == "ns":
        return Plan(pa.string(), lambda array: _nanoseconds(array, path, zoned).cast(kind))
    read = v.UTC_US if zoned else v.NAIVE_US
    if kind.unit == "us":
        return Plan(read, lambda array: array.cast(kind))
    return Plan(read, lambda array: v.floored(array, kind))


def _nanoseconds(texts: Any, path: str, zoned: bool) -> Any:
    wanted = pa.timestamp("ns", "UTC" if zoned else None)
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        if zoned:
            try:
                return texts.cast(pa.timestamp("ns")).view(wanted)
            except pa.ArrowInvalid:
                pass
        half = len(texts) // 2
        if half:  # a row's list may hold many: those that pyarrow does not read are found by halves
            return pa.concat_arrays([_nanoseconds(texts[:half], path, zoned), _nanoseconds(texts[half:], path, zoned)])
    return pa.array([v.instant_ns(path, texts[0].as_py(), zoned)], pa.int64()).view(wanted)


def _times(texts: Any, kind: pa.DataType) -> Any:
    moments = pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("ns"))
    return moments.cast(pa.time64("ns")).cast(kind, safe=False)


def _long_decimals(texts: Any, path: str, kind: pa.DataType) -> Any:
    """With the column's scale already: Arrow crashes where it has to move the point far."""
    return pa.array([None if each is None else v.scaled(path, each.strip(), kind) for each in texts.to_pylist()], kind)


def _categories(array: Any, path: str, kind: Any) -> Any:
    found = array.dictionary_encode()
    index = kind.index_type
    most = 1 << (index.bit_width - pa.types.is_signed_integer(index))
    if len(found.dictionary) > most:
        why = f"column {path} has more than {most:,} categories, which {index} cannot count: make it a larger type"
        raise RowFailed(0, ConfigError(why))
    return pa.DictionaryArray.from_arrays(found.indices.cast(kind.index_type), found.dictionary, ordered=kind.ordered)


def _nothing(array: Any) -> Any:
    if array.null_count < len(array):
        raise v.Undecodable("a value stands where the column holds none")
    return pa.nulls(len(array))


def json_decoder(fields: Sequence[Any], *, keeps_good_fields: bool = False) -> tuple[Decoder, tuple[tuple[bytes, ...], str] | None]:
    """A decoder of JSON objects for columns of any type.

    Args:
        fields, keeps_good_fields: as of `JsonDecoder`.

    Returns:
        It, and `JsonDecoder.plain` where its columns are those that are wanted.

    Raises:
        ConfigError: a column's type has no meaning in JSON.
    """
    plans = [plan(field.type, field.name) for field in fields]
    read = [field.with_type(how.read) for field, how in zip(fields, plans, strict=True)]
    made = JsonDecoder(read, keeps_good_fields=keeps_good_fields)
    if all(how.finish is None for how in plans):
        return made, made.plain
    return TypedDecoder(made, fields, plans), None


class TypedDecoder(Decoder):
    """Gives the columns of another decoder the types that are wanted."""

    def __init__(self, inner: Decoder, fields: Sequence[Any], plans: Sequence[Plan]) -> None:
        """Prepares.

        Args:
            inner: makes columns of the plans' types.
            fields: of the columns as they are wanted.
            plans: theirs.
        """
        super().__init__(fields)
        self._inner, self._plans = inner, plans

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        structs = self._inner._structs(values, faults)
        columns = structs.flatten()
        made = [
            column if each.finish is None else _finished(column, each.finish, field, faults, 0)
            for column, field, each in zip(columns, self.fields, self._plans, strict=True)
        ]
        return pa.StructArray.from_arrays(made, fields=self.fields)


def _finished(array: Any, finish: Finish, field: Any, faults: dict[int, str], base: int) -> Any:
    """A column as it is wanted. Where items do not fit, these are null and noted; the others are found by trying smaller parts."""
    try:
        return finish(array)
    except v.FAULTS as error:
        if len(array) == 1:
            faults.setdefault(base, f"field {field.name}: {v.reason(error)}")
            return finish(pa.nulls(1, array.type))
    step = -(-len(array) // _PIECES)
    parts = [_finished(array.slice(at, step), finish, field, faults, base + at) for at in range(0, len(array), step)]
    return pa.concat_arrays([part.cast(field.type) if part.type != field.type else part for part in parts])
