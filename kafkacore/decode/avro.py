"""Avro values as columns, by fastavro and the writer's schema.

fastavro reads row by row. Dates and times are read as the numbers they are written as, since Arrow takes those: no object is made for them.
Columns are found by name in whatever schema a value was written with; one that it does not have is null.

A union of several types becomes what Spark makes of it: int and long a long, float and double a double, anything else a struct of member0,
member1, ..., of which one is there. fastavro does not say of which type a value was, so each type is read as a record with that one field,
which is the same bytes.

Refused, since bytes could then make a reader allocate or recurse without bound: schemas that contain themselves, and arrays whose items may
take no bytes.

Source: org.apache.spark.sql.avro.{SchemaConverters, AvroDeserializer}.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafkacore.bounds import SCHEMA_TYPES
from kafkacore.decode import registry
from kafkacore.decode import values as v
from kafkacore.decode.base import SchemaDecoder
from kafkacore.decode.column_count import ColumnCount
from kafkacore.decode.ddl import name_of, spark_list, spark_map
from kafkacore.errors import ConfigError

PRIMITIVE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: dict[tuple[str, str], tuple[pa.DataType, int]] = {
    ("int", "date"): (pa.date32(), 1),
    ("long", "timestamp-millis"): (v.UTC_US, 1_000),
    ("long", "timestamp-micros"): (v.UTC_US, 1),
    ("long", "local-timestamp-millis"): (v.NAIVE_US, 1_000),
    ("long", "local-timestamp-micros"): (v.NAIVE_US, 1),
}
"""What whole numbers mean, and how many of Arrow's units one is."""


class AvroSchema:
    """A writer's schema, ready to read with.

    Attributes:
        names: of the record's fields.
        columns: the Arrow types of those that have one.
    """

    def __init__(self, text: str, references: Sequence[tuple[str, registry.Schema]], what: str) -> None:
        """Reads a schema.

        Args:
            text: JSON.
            references: named schemas that it uses.
            what: whose it is, for messages.

        Raises:
            ConfigError: it is none, or cannot be read safely.
        """
        import fastavro

        self.what = what
        self._named: dict[str, Any] = {}
        self._types = 0
        known: dict[str, Any] = {}
        numbers = itertools.count()
        try:
            for _, each in flat(references):
                fastavro.parse_schema(_plain(json.loads(each.text), numbers), known)
            self.parsed = fastavro.parse_schema(_plain(json.loads(text), numbers), known, expand=False)
        except (*v.FAULTS, fastavro.schema.SchemaParseException) as error:
            raise ConfigError(f"{what} is no Avro schema: {v.reason(error)}") from None
        self._named = known
        try:
            self._safe(self.parsed, ())
        except RecursionError:
            raise ConfigError(f"{what} is too deep to be read") from None
        top = self._named.get(self.parsed, self.parsed) if isinstance(self.parsed, str) else self.parsed
        if not isinstance(top, dict) or top.get("type") not in ("record", "error"):
            raise ConfigError(f"{what}: a value must be a record, and this is {json.dumps(top)[:80]}")
        self.fields: dict[str, Any] = {each["name"]: each["type"] for each in top["fields"]}

    def derived(self) -> pa.Schema:
        """The columns that a read has when no schema is named.

        Raises:
            ConfigError: a field's type has no column.
        """
        count = ColumnCount(self.what)
        return pa.schema([pa.field(name, self._arrow(kind, name, count)) for name, kind in self.fields.items()])

    def reader(self, fields: Sequence[Any]) -> Callable[[bytes], Sequence[Any]]:
        """What makes a row of a value's data.

        Raises:
            ConfigError: a field cannot become the column of that name.
        """
        from fastavro import schemaless_reader

        parsed = self.parsed
        types = self.fields
        plan = [(each.name, self._convert(types[each.name], each.type, each.name) if each.name in types else None) for each in fields]
        plain = all(convert is None for _, convert in plan)
        names = [name for name, _ in plan]

        def read(data: bytes) -> Sequence[Any]:
            file = io.BytesIO(data)
            record: Any = schemaless_reader(file, parsed, None)
            if file.tell() != len(data):
                raise v.Undecodable(f"{len(data) - file.tell()} bytes too many for {self.what}")
            if plain:
                return [record.get(name) for name in names]
            return [
                each if (each := record.get(name)) is None or convert is None else convert(each) for name, convert in plan
            ]

        return read

    def _type(self, kind: Any) -> Any:
        """A schema with names looked up and {"type": {...}} opened."""
        while isinstance(kind, str) and kind not in PRIMITIVE:
            kind = self._named[kind]
        while isinstance(kind, dict) and isinstance(kind.get("type"), (dict, list)):
            kind = kind["type"]
        return kind

    def _safe(self, kind: Any, above: tuple[str, ...]) -> bool:
        """Whether a value of this type takes a byte at least; refuses what is not safe to read."""
        self._types += 1
        if self._types > SCHEMA_TYPES:
            raise ConfigError(f"{self.what} has more than {SCHEMA_TYPES:,} types, with names replaced by their types: such are not read")
        kind = self._type(kind)
        if isinstance(kind, list):
            return len([self._safe(each, above) for each in kind]) > 0
        name = kind if isinstance(kind, str) else kind["type"]
        if name in ("record", "error"):
            if kind["name"] in above:
                raise ConfigError(f"{self.what} contains itself in {kind['name']}, and columns have an end: such are not read")
            return sum(self._safe(each["type"], (*above, kind["name"])) for each in kind["fields"]) > 0       # all are looked at
        if name == "array" and not self._safe(kind["items"], above):
            raise ConfigError(f"{self.what} has an array of items that take no bytes: a few bytes could claim any number of them")
        if name == "map":
            self._safe(kind["values"], above)
        return bool(name != "null" and (name != "fixed" or kind["size"] > 0))

    def _arrow(self, kind: Any, path: str, count: ColumnCount) -> pa.DataType:
        with count.one():
            return self._column(kind, path, count)

    def _column(self, kind: Any, path: str, count: ColumnCount) -> pa.DataType:
        kind = self._type(kind)
        if isinstance(kind, list):
            branches = [each for each in map(self._type, kind) if each != "null"]
            if any(map(_is_member, branches)):
                return pa.struct([member for each in branches for member in self._arrow(each, path, count)])
            if len(branches) == 1:
                return self._column(branches[0], path, count)
            kind = {frozenset(): "null", INTEGERS: "long", REALS: "double"}[frozenset(map(_raw, branches))]
        name = kind if isinstance(kind, str) else kind["type"]
        logical = kind.get("logicalType") if isinstance(kind, dict) else None
        if logical == "decimal":
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        if (name, kind.get(MEANING) if isinstance(kind, dict) else None) in LOGICAL:
            return LOGICAL[name, kind[MEANING]][0]
        if name == "enum":
            return pa.string()
        if name == "fixed":
            return pa.binary()
        if name == "array":
            return spark_list(self._arrow(kind["items"], f"{path}[]", count))
        if name == "map":
            return spark_map(pa.string(), self._arrow(kind["values"], f"{path}{{}}", count))
        if name in ("record", "error"):
            fields = kind["fields"]
            return pa.struct([pa.field(each["name"], self._arrow(each["type"], f"{path}.{each['name']}", count)) for each in fields])
        if name == "null":
            raise ConfigError(f"{self.what}: field {path} is always null, and no column is: name the other columns")
        return PRIMITIVE[name]

    def _convert(self, kind: Any, wanted: pa.DataType, path: str) -> v.Convert | None:
        """The conversion of what fastavro gives for a type to what Arrow takes for another; None when there is nothing to do.

        Raises:
            ConfigError: the one cannot become the other.
        """
        kind = self._type(kind)
        if isinstance(kind, list):
            branches = [each for each in map(self._type, kind) if each != "null"]
            members = any(map(_is_member, branches))
            if members and pa.types.is_struct(wanted) and {each.name for each in wanted} <= {f"member{at}" for at in range(len(branches))}:
                return self._members(branches, wanted, path)
            made = {self._convert(each["fields"][0]["type"] if members else each, wanted, path) for each in branches}
            if len(made) > 1:
                raise ConfigError(f"{self.what}: the types of field {path} do not all become {name_of(wanted)} in the same way")
            only = made.pop() if made else None
            if not members:
                return only
            return lambda value: next(each if only is None else only(each) for each in value.values())
        name = kind if isinstance(kind, str) else kind["type"]
        if isinstance(kind, dict) and kind.get("logicalType") == "decimal":
            if not pa.types.is_decimal(wanted):
                raise self._mismatch(path, "decimal", wanted)
            return lambda value: v.scaled(path, value, wanted)
        if pa.types.is_timestamp(wanted) or pa.types.is_date32(wanted):
            meant = LOGICAL.get((str(name), str(kind.get(MEANING)) if isinstance(kind, dict) else ""))
            if meant is None or pa.types.is_timestamp(meant[0]) != pa.types.is_timestamp(wanted):
                raise self._mismatch(path, name, wanted)
            factor = meant[1]
            return None if factor == 1 else lambda value: value * factor
        if name in ("record", "error") and pa.types.is_struct(wanted):
            types = {each["name"]: each["type"] for each in kind["fields"]}
            there = [each for each in wanted if each.name in types]
            parts = [(each.name, self._convert(types[each.name], each.type, f"{path}.{each.name}")) for each in there]
            if all(convert is None for _, convert in parts):
                return None
            return lambda value: {
                key: each if (each := value[key]) is None or convert is None else convert(each) for key, convert in parts
            }
        if name == "array" and pa.types.is_list(wanted):
            one = self._convert(kind["items"], wanted.value_type, f"{path}[]")
            return None if one is None else lambda value: [None if each is None else one(each) for each in value]
        if name == "map" and pa.types.is_map(wanted) and pa.types.is_string(wanted.key_type):
            item = self._convert(kind["values"], wanted.item_type, f"{path}{{}}")
            if item is None:
                return lambda value: list(value.items())
            return lambda value: [(key, None if each is None else item(each)) for key, each in value.items()]
        return self._simple(name, wanted, path)

    def _members(self, branches: Sequence[Any], wanted: pa.DataType, path: str) -> v.Convert | None:
        """The conversion of a union to a struct of its types."""
        members = {each["fields"][0]["name"]: each["fields"][0]["type"] for each in branches}
        parts = {each.name: self._convert(members[each.name], each.type, f"{path}.{each.name}") for each in wanted}
        if all(convert is None for convert in parts.values()):
            return None
        return lambda value: {
            name: each if (convert := parts[name]) is None else convert(each) for name, each in value.items() if name in parts
        }

    def _simple(self, name: str, wanted: pa.DataType, path: str) -> v.Convert | None:
        if name == "null":
            return None
        whole, real = pa.types.is_integer(wanted), pa.types.is_floating(wanted)
        if name in ("int", "long") and (whole or real):
            return float if real else None
        if (name in ("float", "double") and real) or (name == "boolean" and pa.types.is_boolean(wanted)):
            return None
        if (name in ("string", "enum") and pa.types.is_string(wanted)) or (name in ("bytes", "fixed") and pa.types.is_binary(wanted)):
            return None
        raise self._mismatch(path, name, wanted)

    def _mismatch(self, path: str, name: str, wanted: pa.DataType) -> ConfigError:
        return ConfigError(f"{self.what}: field {path} is of the Avro type {name} and cannot be read as {name_of(wanted)}")


MEANING = "kafkacore.meaning"
MEMBER = "kafkacore.member"


INTEGERS = frozenset({"int", "long"})
REALS = frozenset({"float", "double"})


def _plain(schema: Any, numbers: Iterator[int]) -> Any:
    """A schema without the logical types for which fastavro would make objects; what was meant is kept beside. And with distinct unions.

    Args:
        schema: as JSON has it.
        numbers: for names that no other schema has.
    """
    if isinstance(schema, list):
        if any(isinstance(each, list) for each in schema):    # fastavro takes it
            raise v.Undecodable("a union stands directly in a union, which Avro does not have")
        return [_plain(each, numbers) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _plain(each, numbers) if key in ("type", "items", "values", "fields") else each for key, each in schema.items()}
    out.pop("default", None)                                  # for other readers; it would have to fit the union as it is now
    for key in ("type", "items", "values"):
        if isinstance(out.get(key), list):
            out[key] = _told_apart(out[key], numbers)
    logical = out.pop("logicalType", None)
    if logical == "decimal":
        out["logicalType"] = logical
    elif isinstance(logical, str):
        out[MEANING] = logical
    return out


def _raw(kind: Any) -> Any:
    """The name of a type without its logical type."""
    while isinstance(kind, dict):
        kind = kind.get("type")
    return kind if isinstance(kind, str) else None


def _told_apart(union: list[Any], numbers: Iterator[int]) -> list[Any]:
    """A union whose types are records of one field each, unless its values are to be a column of one type."""
    branches = [each for each in union if _raw(each) != "null"]
    if len(branches) < 2 or frozenset(map(_raw, branches)) in (INTEGERS, REALS):
        return union
    number, members = next(numbers), itertools.count()
    return [
        each
        if _raw(each) == "null"
        else {
            "type": "record",                                 # without a namespace: names in it mean what they meant
            "name": f"kafkacore_union_{number}_{(member := next(members))}",
            "fields": [{"name": f"member{member}", "type": each}],
            MEMBER: number,
        }
        for each in union
    ]


def _is_member(kind: Any) -> bool:
    return isinstance(kind, dict) and MEMBER in kind


def flat(references: Sequence[tuple[str, registry.Schema]]) -> list[tuple[str, registry.Schema]]:
    """References with what they refer to before them, each once."""
    found: dict[str, registry.Schema] = {}
    seen: set[int] = set()

    def walk(inner: Sequence[tuple[str, registry.Schema]]) -> None:
        for name, each in inner:
            if id(each) not in seen:  # what several refer to is one object
                seen.add(id(each))
                walk(each.references)
            found.setdefault(name, each)

    walk(references)
    return list(found.items())


class AvroDecoder(SchemaDecoder):
    """Values that are Avro, of one schema or each of the one its prefix names."""

    def __init__(
        self, fields: Sequence[Any], writer: AvroSchema | None, schemas: registry.Registry | None, framed: bool, lenient: bool = False
    ) -> None:
        """Plans the columns; `writer` is the schema of all values, None with a registry.

        Raises:
            ConfigError: the schema has no such field, or one that cannot become the column.
        """
        super().__init__(fields, schemas, framed, lenient)
        self._read = None
        if writer is not None:
            absent = [each.name for each in fields if each.name not in writer.fields]
            if absent:
                raise ConfigError(f"there is no field {absent[0]} in {writer.what}; its fields are {', '.join(writer.fields)}")
            self._read = writer.reader(fields)

    def _row(self, value: bytes) -> Sequence[Any]:
        number, data = registry.split(value) if self._framed else (0, value)
        if self._read is not None:
            return self._read(data)
        reader = self._kept.get(number)
        if reader is None:
            reader = self._reader(number)
            self._kept[number] = reader
        return reader(data)

    def _reader(self, number: int) -> Callable[[bytes], Sequence[Any]]:
        try:
            return self._of_schema(
                number, "AVRO", lambda found, what: AvroSchema(found.text, found.references, what).reader(self.fields)
            )
        except v.Undecodable as error:
            why = error

            def refuse(_: bytes) -> Sequence[Any]:
                raise why

            return refuse
