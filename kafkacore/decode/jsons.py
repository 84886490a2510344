"""JSON objects as columns.

Where all columns are plain ones, or dates and times, a compiled pass takes the values about which there is no doubt: one object each of
strict JSON whose fields are what the columns hold. It decides nothing else. The rest, and all values for other columns, goes the long way:

Arrow reads a whole batch at once, from text that is joined first. It does not care where one value ends and the next begins, so a value
like `{"a":1}{"a":2}` would shift all that follow, to other offsets. Each value is therefore put into an object of its own under a name
that nobody outside this process can know: as many rows as values, and each with something under that name, means that row i is value i.
(It also keeps a top-level null from Arrow, which crashes there.)

What Arrow refuses, or reads as no Spark would, goes row by row through Python's json and `_convert`, which say what is right for the types.

With mode=permissive such a row keeps its good fields as `from_json` does (spark.sql.json.enablePartialResults): a bad field is null, also
within structs; an array or map with a bad item is null, unless the item is a struct, of which the good fields stay; of a name that is there
twice the last good value counts; what follows the first value is not looked at. Text that is no JSON has no good fields.

Source: org.apache.spark.sql.catalyst.json.JacksonParser.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from kafkacore._codec import json_columns
from kafkacore.decode import values as v
from kafkacore.decode.base import BlockDecoder
from kafkacore.decode.ddl import name_of
from kafkacore.errors import ConfigError

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "+INF": "inf", "-Infinity": "-inf", "-INF": "-inf"}
INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
PLAIN = dict(zip([*INTEGERS, pa.float32(), pa.float64(), pa.bool_(), pa.string()], "csilfgbu", strict=True))
"""Columns of the compiled pass: the letters of Arrow's C interface."""
MAX_PLAIN = 256
"""The compiled pass compares a field that is no column with every column."""

_ROW = re.compile(r"in row (\d+)$")
_NO_PLAIN_DECIMAL = r'[:,\[]\s*"?[+-]?[0-9.]+[eE]|[0-9]{20}|\.[0-9]{19}|\\u'
"""Where a decimal may be one that Arrow must not get (see `values.ARROW_SCALE`): also in a string, also written by escapes."""


class _Number(str):
    """A number with a point or an exponent, as it was written."""


class _Repeating(dict[str, Any]):
    """An object in which a name is there twice."""

    pairs: list[tuple[str, Any]]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        made = _Repeating(made)
        made.pairs = pairs
    return made


def _pairs(value: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    return value.pairs if isinstance(value, _Repeating) else value.items()


_FIRST_VALUE = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Number)
_BLANK = " \t\n\r"


def _text(value: Any) -> str:
    """JSON text of a part of a value: what a string column gets when there is no string."""
    if type(value) is _Number:
        return str.__str__(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _load(value: bytes) -> Any:
    return json.loads(value.decode("utf-8"), parse_float=_Number)


class JsonDecoder(BlockDecoder):
    """Values that are JSON objects.

    Attributes:
        plain: names and kinds of all columns for the compiled pass; None if there are columns that it does not make.
    """

    def __init__(self, fields: Sequence[Any], *, keeps_good_fields: bool = False) -> None:
        """Plans the columns.

        Args:
            fields: the columns wanted.
            keeps_good_fields: a value of which a field is bad is a row with the others; otherwise a row of nulls.

        Raises:
            ConfigError: a column's type has no meaning in JSON.
        """
        super().__init__(fields)
        self._converts = [_convert(field.name, field.type) for field in fields]
        self._good_fields = {field.name: _convert(field.name, field.type, True) for field in fields} if keeps_good_fields else None
        self._has_decimals = any(_holds_decimals(field.type) for field in fields)
        self.by_arrow = all(_arrow_reads(field.type) for field in fields)
        self._name = secrets.token_urlsafe(12)                 # short: Arrow reads it with every value
        whole = pa.struct([pa.field(field.name, v.raw_type(field.type)) for field in fields])
        self._parsing = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(self._name, whole)]), newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        self._around = (pa.scalar(f'{{"{self._name}":'.encode(), pa.binary()), pa.scalar(b"}\n", pa.binary()), pa.scalar(b"", pa.binary()))
        self._kind = pa.struct(self.fields)
        self.plain = self._plain_columns([field.type for field in fields])
        self._raw = [v.raw_type(field.type) for field in fields]
        self._compiled = self._plain_columns(self._raw)        # dates and times as text first

    def _plain_columns(self, kinds: Sequence[pa.DataType]) -> tuple[tuple[bytes, ...], str] | None:
        """Names and kinds for the compiled pass; None if there are columns that it does not make."""
        names = tuple(field.name.encode() for field in self.fields)
        letters = "".join(PLAIN.get(kind, "") for kind, field in zip(kinds, self.fields, strict=True) if field.nullable)
        return (names, letters) if len(names) == len(set(names)) == len(letters) <= MAX_PLAIN and names else None

    def _structs(self, values: Any, faults: dict[int, str]) -> Any:
        if self._compiled is None or values.type != pa.binary():
            return super()._structs(values, faults)
        found, doubtful = json_columns(values, *self._compiled)
        count = len(values)
        columns = [
            pa.Array.from_buffers(kind, count, [None if each is None else pa.py_buffer(each) for each in buffers], nulls)
            for kind, (nulls, buffers) in zip(self._raw, found, strict=True)
        ]
        try:
            columns = [v.typed(column, field.type) for column, field in zip(columns, self.fields, strict=True)]
        except v.FAULTS:                                       # a text is no time, or they have several forms: the long way says which
            return super()._structs(values, faults)
        if doubtful is not None:
            here: dict[int, str] = {}
            mask = pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(doubtful)])
            rest = super()._structs(values.filter(mask), here).flatten()
            if here:
                flags = numpy.unpackbits(numpy.frombuffer(memoryview(doubtful), numpy.uint8), bitorder="little")
                where = numpy.flatnonzero(flags)
                faults.update((int(where[row]), why) for row, why in here.items())
            columns = [pc.replace_with_mask(column, mask, others) for column, others in zip(columns, rest, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=self.fields)

    def _block(self, values: Any) -> Any:
        if not self.by_arrow:
            raise v.Undecodable("not by Arrow")
        text = values.cast(pa.string())                        # is it UTF-8
        if self._has_decimals:
            doubtful = pc.index(pc.match_substring_regex(text, _NO_PLAIN_DECIMAL), True).as_py()
            if doubtful >= 0:
                raise pa.ArrowInvalid(f"perhaps a number that Arrow cannot take in row {doubtful}")
        before, after, between = self._around
        text = pc.binary_join_element_wise(before, values, after, between).buffers()[2]
        reading = arrow_json.ReadOptions(use_threads=False, block_size=text.size)
        column = arrow_json.read_json(pa.BufferReader(text), read_options=reading, parse_options=self._parsing).column(self._name)
        if len(column) != len(values) or column.null_count or column.num_chunks != 1:
            raise v.Undecodable("some values are not one object each")
        if self._has_decimals:
            column.chunk(0).validate(full=True)                # Arrow does not look whether a decimal fits
        return v.typed(column.chunk(0), self._kind)

    @staticmethod
    def _row_of(error: BaseException) -> int | None:
        match = _ROW.search(str(error)) if isinstance(error, pa.ArrowInvalid) else None
        return None if match is None else int(match[1])

    def _row(self, value: bytes) -> Sequence[Any] | None:
        follows = ""
        try:
            if self._good_fields is None:
                data = _load(value)
            else:
                text = value.decode("utf-8").lstrip(_BLANK)
                data, end = _FIRST_VALUE.raw_decode(text)
                follows = text[end:].strip(_BLANK)
        except ValueError:
            if b"Inf" not in value:
                raise
            try:                                               # Arrow alone reads Inf as a number
                row = self._block(pa.array([value], pa.binary()))
                return [row.field(at)[0].as_py() for at in range(len(self.fields))]
            except v.FAULTS:             # its text would tell the name
                pass
            raise
        if data is None:
            return None
        if not isinstance(data, dict):
            raise v.Undecodable(f"a JSON object is expected, not {type(data).__name__}")
        if self._good_fields is not None:
            rest, why = _good_fields(data, self._good_fields)
            if follows and why is None:
                why = f"something follows the JSON object: {follows[:60]!r}"
            row = [rest[field.name] for field in self.fields]
            if why is not None:
                raise v.PartlyDecodable(why, row)
            return row
        get = data.get
        return [
            None if (each := get(field.name)) is None else convert(each) for field, convert in zip(self.fields, self._converts, strict=True)
        ]


def _arrow_reads(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_arrow_reads(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _arrow_reads(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or (pa.types.is_decimal(kind) and kind.scale > v.ARROW_SCALE))


def _holds_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_decimals(each.type) for each in kind)
    return _holds_decimals(kind.value_type) if pa.types.is_list(kind) else pa.types.is_decimal(kind)


def _good_fields(data: dict[str, Any], converts: dict[str, v.Convert]) -> tuple[dict[str, Any], str | None]:
    """The fields of an object that are what they should be, null for the others; and why the first of those is not."""
    rest: dict[str, Any] = dict.fromkeys(converts)
    why = None
    for name, each in _pairs(data):
        convert = converts.get(name)
        if convert is None:
            continue
        try:
            rest[name] = None if each is None else convert(each)
        except v.PartlyDecodable as error:
            rest[name], why = error.rest, why or v.reason(error)
        except v.FAULTS as error:
            why = why or v.reason(error)
    return rest, why


def _good_items(items: Iterable[Any], convert: v.Convert) -> tuple[list[Any], str | None]:
    """Items converted, structs in part if need be; and why the first of those is not whole.

    Raises:
        v.Undecodable: an item that has no fields is bad.
    """
    rest, why = [], None
    for each in items:
        try:
            rest.append(None if each is None else convert(each))
        except v.PartlyDecodable as error:
            rest.append(error.rest)
            why = why or v.reason(error)
    return rest, why


def _convert(path: str, kind: pa.DataType, keeps: bool = False) -> v.Convert:
    """The conversion of one JSON value, not null, to what Arrow takes for a type.

    Args:
        path: of the field, for messages.
        kind: the type.
        keeps: of a value that is bad in part, v.PartlyDecodable has the rest.
    """
    for test, nested in ((pa.types.is_struct, _structs), (pa.types.is_list, _lists), (pa.types.is_map, _maps)):
        if test(kind):
            return nested(path, kind, keeps)
    for test, make in (
        (pa.types.is_integer, _integers),
        (pa.types.is_floating, _floats),
        (pa.types.is_decimal, _decimals),
        (pa.types.is_timestamp, _timestamps),
    ):
        if test(kind):
            return make(path, kind)
    if pa.types.is_string(kind):
        return _sound_text if keeps else lambda value: value if type(value) is str else _text(value)
    if pa.types.is_boolean(kind):
        return lambda value: value if type(value) is bool else v.refuse(path, value, "boolean")
    if pa.types.is_date32(kind):
        return lambda value: v.day(path, value) if type(value) is str else v.refuse(path, value, "date")
    if pa.types.is_binary(kind):
        return lambda value: _from_base64(path, value)
    raise ConfigError(f"column {path}: JSON has nothing that could be read as {name_of(kind)}")


def _sound_text(value: Any) -> str:
    """Text that Arrow takes: half of a surrogate pair alone is none, and would cost the whole row."""
    text = value if type(value) is str else _text(value)
    text.encode()
    return text


def _from_base64(path: str, value: Any) -> bytes:
    try:
        if type(value) is str:
            return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        pass
    v.refuse(path, value, "binary in base 64")


def _integers(path: str, kind: pa.DataType) -> v.Convert:
    limit, name = 1 << INTEGERS.get(kind, 0), name_of(kind)
    if limit == 1:
        raise ConfigError(f"column {path}: Spark has no type {kind}")
    return lambda value: value if type(value) is int and -limit <= value < limit else v.refuse(path, value, name)


def _floats(path: str, kind: pa.DataType) -> v.Convert:
    def convert(value: Any) -> float:
        if type(value) is str:
            return float(NOT_FINITE.get(value) or v.refuse(path, value, name_of(kind)))
        if type(value) is int:
            return float(str(value))                           # infinite beyond the range, as with an exponent; float(value) would raise
        return float(value) if type(value) in (float, _Number) else v.refuse(path, value, name_of(kind))

    return convert


def _decimals(path: str, kind: pa.DataType) -> v.Convert:
    return lambda value: v.scaled(path, value, kind) if type(value) in (int, str, _Number) else v.refuse(path, value, name_of(kind))


def _timestamps(path: str, kind: pa.DataType) -> v.Convert:
    zoned = kind.tz is not None

    def convert(value: Any) -> int:
        if type(value) is str:
            return v.instant_us(path, value, zoned)
        return v.seconds_us(path, value) if zoned and type(value) is int else v.refuse(path, value, name_of(kind))

    return convert


def _structs(path: str, kind: pa.DataType, keeps: bool) -> v.Convert:
    parts = {each.name: _convert(f"{path}.{each.name}", each.type, keeps) for each in kind}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            v.refuse(path, value, "struct")
        if not keeps:
            return {name: None if (each := value.get(name)) is None else make(each) for name, make in parts.items()}
        rest, why = _good_fields(value, parts)
        if why is not None:
            raise v.PartlyDecodable(why, rest)
        return rest

    return convert


def _lists(path: str, kind: pa.DataType, keeps: bool) -> v.Convert:
    make = _convert(f"{path}[]", kind.value_type, keeps)

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            v.refuse(path, value, "array")
        if not keeps:
            return [None if each is None else make(each) for each in value]
        rest, why = _good_items(value, make)
        if why is not None:
            raise v.PartlyDecodable(why, rest)
        return rest

    return convert


def _maps(path: str, kind: pa.DataType, keeps: bool) -> v.Convert:
    if not pa.types.is_string(kind.key_type):
        raise ConfigError(f"column {path}: the keys of JSON objects are strings, not {name_of(kind.key_type)}")
    make = _convert(f"{path}{{}}", kind.item_type, keeps)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            v.refuse(path, value, "map")
        if not keeps:
            return [(key, None if each is None else make(each)) for key, each in value.items()]
        keys = [_sound_text(key) for key, _ in _pairs(value)]
        items, why = _good_items((each for _, each in _pairs(value)), make)
        rest = list(dict(zip(keys, items, strict=True)).items())
        if why is not None:
            raise v.PartlyDecodable(why, rest)
        return rest

    return convert
