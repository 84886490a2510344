"""Avro and Protobuf as columns, with and without the schema registry, against what fastavro and protobuf write."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import re
import struct
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.decode import avro, base, ddl, protobuf, registry, values
from kafkacore.errors import ConfigError
from tests.decode.support import rows
from tests.kit.reached import Reached
from tests.kit.rows import each_row

UTC = dt.UTC
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "q", "type": "double"}, {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "n.R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "n", "type": ["int", "null", "long"]},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": "bytes"},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "m", "type": {"type": "map", "values": ["null", {"type": "long", "logicalType": "timestamp-millis"}]}},
        {"name": "l", "type": {"type": "array", "items": ITEM}},
        {"name": "again", "type": ["null", "Item"]},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "x", "type": ["float", "double"]},
    ],
}
MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 250_000)
RECORD: dict[str, Any] = {
    "i": -1,
    "n": 2**40,
    "s": "häuser",
    "b": b"\xff",
    "f": b"ab",
    "ms": MOMENT.replace(tzinfo=UTC),
    "us": MOMENT,
    "d": dt.date(1969, 12, 31),
    "p": Decimal("-12.34"),
    "m": {"k": MOMENT.replace(tzinfo=UTC), "z": None},
    "l": [{"q": 1.5, "e": "B"}],
    "again": None,
    "u": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "x": 2.5,
}


def avro_written(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def avro_decoder(schema: Any, columns: str | None = None) -> avro.AvroDecoder:
    writer = avro.AvroSchema(json.dumps(schema), (), "the schema")
    return avro.AvroDecoder(list(writer.derived() if columns is None else ddl.parse(columns, "o")), writer, None, framed=False)


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def test_avro_as_fastavro_writes_it() -> None:
    decoder = avro_decoder(SCHEMA)
    value = avro_written(SCHEMA, RECORD)
    found, faults = rows(decoder, [value, None, value + b"x", value[:-1], b"", value])
    assert dict(zip([each.name for each in decoder.fields], found[0], strict=True)) == {**RECORD, "m": list(RECORD["m"].items())}
    assert found[5] == found[0] and found[1] == (None,) * 14
    assert sorted(faults) == [2, 3, 4] and "1 bytes too many" in faults[2]
    ends = [-(2**63), -(2**31) - 1, 0, 63, 64, 2**63 - 1]
    assert [row[1] for row in rows(decoder, [avro_written(SCHEMA, {**RECORD, "n": each}) for each in ends])[0]] == ends


def test_columns_are_chosen_and_types_are_widened() -> None:
    columns = "l ARRAY<STRUCT<e: STRING, absent: INT>>, i DOUBLE, p DECIMAL(10,1), ms BIGINT, n DOUBLE"
    found, _ = rows(avro_decoder(SCHEMA, columns), [avro_written(SCHEMA, RECORD)])
    millis = 1_577_881_800_250
    assert found == [([{"e": "B", "absent": None}], -1.0, Decimal("-12.3"), millis, 2.0**40)]
    pair = {"type": "record", "name": "P", "fields": [{"name": each, "type": "int"} for each in "xy"]}
    value = avro_written(record_of(pair), {"a": {"x": 1, "y": 2}})
    assert rows(avro_decoder(record_of(pair), "a STRUCT<x: DOUBLE, z: INT, y: DOUBLE>"), [value])[0] == [({"x": 1.0, "z": None, "y": 2.0},)]
    found, faults = rows(
        avro_decoder(record_of("long"), "a SMALLINT"), [avro_written(record_of("long"), {"a": each}) for each in (5, 40_000, 6)]
    )
    assert found == [(5,), (None,), (6,)] and list(faults) == [1]


TIMED = {
    "type": "record",
    "name": "Timed",
    "fields": [{"name": "x", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "y", "type": "int"}],
}


@each_row(
    ("kind", "column", "value", "found"),
    [
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp", 1_500, dt.datetime(1970, 1, 1, 0, 0, 0, 1_500, UTC)),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp", 1_500, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz", 1_500, dt.datetime(1970, 1, 1, 0, 0, 0, 1_500)),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz", 1_500, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)),
        ({"type": "int", "logicalType": "date"}, "date", 2, dt.date(1970, 1, 3)),
        ({"type": "int", "logicalType": "time-millis"}, "int", 2, 2),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal(4,0)", Decimal(-12), Decimal(-12)),
        ({"type": "map", "values": "int"}, "map<string,int>", {"a": 1, "b": 2}, [("a", 1), ("b", 2)]),
        (
            {"type": "map", "values": ITEM},
            "map<string,struct<q:double,e:string>>",
            {"k": {"q": 1.0, "e": "A"}},
            [("k", {"q": 1.0, "e": "A"})],
        ),
        ({"type": "array", "items": ["null", "float"]}, "array<float>", [None, 0.5, 1.5], [None, 0.5, 1.5]),
        ({"type": "fixed", "name": "Two", "size": 1}, "binary", b"x", b"x"),
        (TIMED, "struct<x:timestamp,y:int>", {"x": MOMENT.replace(tzinfo=UTC), "y": 2}, {"x": MOMENT.replace(tzinfo=UTC), "y": 2}),
        ("boolean", "boolean", True, True),
        (["null", "bytes"], "binary", None, None),
    ],
)
def test_each_type_of_avro_has_its_column(kind: Any, column: str, value: Any, found: Any) -> None:
    schema = record_of(kind)
    schema["fields"].append({"name": "z", "type": "int"})
    plain = record_of("long" if column.startswith("timestamp") else "int" if column in ("date", "int") else kind)
    plain["fields"].append({"name": "z", "type": "int"})
    decoder = avro_decoder(schema)
    assert [ddl.name_of(each.type) for each in decoder.fields] == [column, "int"]
    written = avro_written(plain, {"a": value, "z": 5})
    assert rows(decoder, [written, written]) == ([(found, 5)] * 2, {})
    again = avro_decoder(schema, f"z INT, a {column}")
    assert rows(again, [written]) == ([(5, found)], {})


def nested_unions(levels: int) -> Any:
    return "int" if not levels else {"type": "array", "items": ["null", "string", nested_unions(levels - 1)]}


DOUBLING = record_of({"type": "record", "name": "D0", "fields": []})
DOUBLING["fields"] += [
    {"name": f"a{at}", "type": {"type": "record", "name": f"D{at}", "fields": [{"name": each, "type": f"D{at - 1}"} for each in "xy"]}}
    for at in range(1, 40)
]


@each_row(
    ("schema", "columns", "says"),
    [
        ("int", None, "a value must be a record"),
        (record_of("nope"), None, "is no Avro schema"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}, "b INT", "contains itself in R"),
        (record_of({"type": "array", "items": "null"}), "b INT", "items that take no bytes"),
        (record_of({"type": "array", "items": {"type": "record", "name": "Z", "fields": []}}), None, "items that take no bytes"),
        (record_of({"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}}), None, "items that take no bytes"),
        (record_of(["null"]), None, "field a is always null"),
        (record_of(["null", ["int", "string"]]), "b INT", "a union stands directly in a union"),
        (record_of({"type": "array", "items": ["null", ["int"]]}), None, "a union stands directly in a union"),
        (record_of(nested_unions(240)), "b INT", "is too deep to be read|RecursionError"),
        (DOUBLING, "b INT", "has more than 100,000 types"),
        (record_of(["int", "string"]), "a STRING", "field a is of the Avro type int and cannot be read as string"),
        (record_of(["int", "double"]), "a DOUBLE", "the types of field a do not all become double in the same way"),
        (record_of(["int", "string"]), "a STRUCT<member0: INT, member1: DATE>", r"field a\.member1 is of the Avro type string"),
        (record_of("null"), None, "field a is always null"),
        (record_of({"type": "map", "values": "int"}), "a MAP<INT,INT>", "Avro type map and cannot be read as map<int,int>"),
        (record_of({"type": "map", "values": "int"}), "a STRUCT<x: INT>", "Avro type map and cannot be read as struct<x:int>"),
        (record_of({"type": "array", "items": "int"}), "a MAP<STRING,INT>", "Avro type array and cannot be read as map<string,int>"),
        (record_of(ITEM), "a ARRAY<INT>", "Avro type record and cannot be read as array<int>"),
        (record_of(ITEM), "a STRUCT<e: INT>", r"field a\.e is of the Avro type enum and cannot be read as int"),
        (record_of("int"), "b INT", "there is no field b in the schema; its fields are a"),
        (record_of("string"), "a INT", "field a is of the Avro type string and cannot be read as int"),
        (record_of("int"), "a STRING", "cannot be read as string"),
        (record_of("int"), "a BINARY", "cannot be read as binary"),
        (record_of("bytes"), "a STRING", "cannot be read as string"),
        (record_of("bytes"), "a INT", "cannot be read as int"),
        (record_of("double"), "a BOOLEAN", "cannot be read as boolean"),
        (record_of("boolean"), "a DOUBLE", "cannot be read as double"),
        (record_of("double"), "a BIGINT", "cannot be read as bigint"),
        (record_of({"type": "int", "logicalType": "date"}), "a TIMESTAMP", "cannot be read as timestamp"),
        (record_of({"type": "bytes", "logicalType": "decimal", "precision": 4}), "a DOUBLE", "the Avro type decimal"),
        (record_of("long"), "a TIMESTAMP", "field a is of the Avro type long and cannot be read as timestamp"),
        (record_of({"type": "array", "items": "int"}), "a ARRAY<DATE>", r"field a\[\] is of the Avro type int and cannot be read as date"),
    ],
)
def test_schemas_that_are_refused(schema: Any, columns: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        avro_decoder(schema, columns)


def test_types_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record_of(["null", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}])  # two of them as records
    monkeypatch.setattr(avro, "SCHEMA_TYPES", 9)
    avro_decoder(schema)
    monkeypatch.setattr(avro, "SCHEMA_TYPES", 8)
    with pytest.raises(ConfigError, match="the schema has more than 8 types"):
        avro_decoder(schema)


POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
UNIONS: dict[str, Any] = {
    "type": "record",
    "name": "n.U",
    "fields": [
        {"name": "a", "type": ["int", "string", "null", {"type": "long", "logicalType": "timestamp-millis"}], "default": 7},
        {"name": "b", "type": {"type": "array", "items": ["boolean", POINT]}},
        {"name": "c", "type": ["null", "P", {"type": "map", "values": ["float", "bytes"]}], "default": None},
        {"name": "d", "type": [{"type": "int", "logicalType": "date"}, "long"]},
        {"name": "e", "type": ["float", "null", "double"]},
    ],
}


def test_a_union_is_what_spark_makes_of_it() -> None:
    """As Spark's documentation of its Avro data source has it, "Supported types for Avro -> Spark SQL conversion"."""
    decoder = avro_decoder(UNIONS)
    assert {each.name: ddl.name_of(each.type) for each in decoder.fields} == {
        "a": "struct<member0:int,member1:string,member2:timestamp>",
        "b": "array<struct<member0:boolean,member1:struct<x:int>>>",
        "c": "struct<member0:struct<x:int>,member1:map<string,struct<member0:float,member1:binary>>>",
        "d": "bigint",
        "e": "double",
    }
    moment = MOMENT.replace(tzinfo=UTC)
    records = [
        {"a": 3, "b": [True, {"x": 1}], "c": ("n.P", {"x": 2}), "d": 2**40, "e": None},
        {"a": "s", "b": [], "c": None, "d": dt.date(1970, 1, 3), "e": 0.5},
        {"a": moment, "b": [False], "c": {"f": 1.5, "b": b"z"}, "d": 1, "e": 1e300},
        {"a": None, "b": [], "c": {}, "d": 1, "e": 1.0},
    ]
    found, faults = rows(decoder, [avro_written(UNIONS, each) for each in records])
    assert not faults
    one, other = {"member0": None, "member1": None}, {"member0": None, "member1": None, "member2": None}
    assert found == [
        ({**other, "member0": 3}, [{**one, "member0": True}, {**one, "member1": {"x": 1}}], {**one, "member0": {"x": 2}}, 2**40, None),
        ({**other, "member1": "s"}, [], None, 2, 0.5),
        (
            {**other, "member2": moment},
            [{**one, "member0": False}],
            {**one, "member1": [("f", {**one, "member0": 1.5}), ("b", {**one, "member1": b"z"})]},
            1,
            1e300,
        ),
        (None, [], {**one, "member1": []}, 1, 1.0),
    ]


def test_of_a_union_some_members_can_be_read_or_one_type_where_all_are_that() -> None:
    values = [avro_written(UNIONS, {"a": each, "b": [], "c": None, "d": 1, "e": None}) for each in (3, MOMENT.replace(tzinfo=UTC), "s")]
    found, faults = rows(avro_decoder(UNIONS, "a STRUCT<member2: TIMESTAMP, member0: BIGINT>"), values)
    assert not faults
    assert [each[0] for each in found] == [
        {"member2": None, "member0": 3},
        {"member2": MOMENT.replace(tzinfo=UTC), "member0": None},
        {"member2": None, "member0": None},
    ]
    texts = record_of(["string", {"type": "enum", "name": "E", "symbols": ["A"]}])
    assert rows(avro_decoder(texts, "a STRING"), [avro_written(texts, {"a": each}) for each in ("A", "b")]) == ([("A",), ("b",)], {})
    times = record_of([{"type": "long", "logicalType": "timestamp-millis"}, "string"])
    with pytest.raises(ConfigError, match="field a is of the Avro type string and cannot be read as timestamp"):
        avro_decoder(times, "a TIMESTAMP")


# ---- Protobuf ------------------------------------------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto


def add(message: Any, name: str, kind: int, label: int = 1, of: str = "", optional: bool = False) -> None:
    field = message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label, type_name=of or None)
    if optional:
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name="_" + name)


def proto_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    other = file.message_type.add(name="Other")
    add(other, "z", FIELD.TYPE_SINT64)
    for name, kind in (("flag", FIELD.TYPE_BOOL), ("f", FIELD.TYPE_FLOAT), ("d", FIELD.TYPE_DOUBLE), ("t", FIELD.TYPE_STRING)):
        add(other, name, kind)
    add(other, "y", FIELD.TYPE_BYTES)
    add(other, "e", FIELD.TYPE_ENUM, of=".p.E")
    message = file.message_type.add(name="M")
    add(message, "i", FIELD.TYPE_INT32)
    add(message, "s", FIELD.TYPE_STRING)
    add(message, "u", FIELD.TYPE_UINT64)
    add(message, "ts", FIELD.TYPE_MESSAGE, of=".google.protobuf.Timestamp")
    add(message, "e", FIELD.TYPE_ENUM, of=".p.E")
    add(message, "rep", FIELD.TYPE_UINT32, 3)
    add(message, "sub", FIELD.TYPE_MESSAGE, of=".p.M.Sub")
    add(message, "map", FIELD.TYPE_MESSAGE, 3, ".p.M.MapEntry")
    add(message, "o", FIELD.TYPE_INT32, optional=True)
    add(message, "b", FIELD.TYPE_BYTES)
    add(message, "subs", FIELD.TYPE_MESSAGE, 3, ".p.M.Sub")
    add(message.nested_type.add(name="Sub"), "x", FIELD.TYPE_DOUBLE)
    entry = message.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    add(entry, "key", FIELD.TYPE_STRING)
    add(entry, "value", FIELD.TYPE_INT32)
    file.enum_type.add(name="E").value.extend(
        [descriptor_pb2.EnumValueDescriptorProto(name=name, number=at) for at, name in enumerate("AB")]
    )
    loop = file.message_type.add(name="Loop")
    add(loop, "again", FIELD.TYPE_MESSAGE, of=".p.Loop")
    add(loop, "i", FIELD.TYPE_INT32)
    return file


@pytest.fixture
def described(tmp_path: Path) -> str:
    path = tmp_path / "t.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[proto_file()]).SerializeToString())
    return str(path)


def proto_decoder(path: str, columns: str | None = None, message: str = "p.M") -> protobuf.ProtobufDecoder:
    found = protobuf.from_file(path, message)
    return protobuf.ProtobufDecoder(
        list(protobuf.derived(found) if columns is None else ddl.parse(columns, "o")), found, None, framed=False
    )


def test_protobuf_as_protobuf_writes_it(described: str) -> None:
    decoder = proto_decoder(described)
    make = message_factory.GetMessageClass(protobuf.from_file(described, "p.M"))
    full = make(i=-1, s="häuser", u=2**63, e=1, rep=[2**32 - 1], sub={"x": 1.5}, map={"k": 5}, o=0, b=b"\xff", subs=[{"x": 0.0}, {}])
    full.ts.FromDatetime(MOMENT)
    unknown = make(e=7)
    found, faults = rows(decoder, [full.SerializeToString(), b"", None, b"\xff", unknown.SerializeToString(), b"\x12\x01\xff"])
    moment = MOMENT.replace(tzinfo=UTC)
    whole = (-1, "häuser", Decimal(2**63), moment, "B", [2**32 - 1], {"x": 1.5}, [("k", 5)], 0, b"\xff", [{"x": 0.0}, {"x": 0.0}])
    assert found[0] == whole
    assert found[1] == (0, "", Decimal(0), None, "A", [], None, [], None, b"", [])
    assert found[4][4] == "7"
    pair = make(map={"k": 5, "l": 6}, rep=[1, 2]).SerializeToString()
    ((entries, numbers),), _ = rows(proto_decoder(described, "map MAP<STRING, DOUBLE>, rep ARRAY<DECIMAL(9,1)>"), [pair])
    assert sorted(entries) == [("k", 5.0), ("l", 6.0)] and numbers == [1, 2]
    assert sorted(faults) == [3, 5] and "no p.M" in faults[3]


def test_columns_of_protobuf_may_be_wider(described: str) -> None:
    make = message_factory.GetMessageClass(protobuf.from_file(described, "p.M"))
    value = make(e=1, i=5, u=7, sub={"x": 1.5}).SerializeToString()
    decoder = proto_decoder(described, "e INT, i DECIMAL(5,1), u BIGINT, sub STRUCT<no: INT, x: FLOAT>")
    assert rows(decoder, [value]) == ([(1, Decimal(5), 7, {"no": None, "x": 1.5})], {})
    ends = [(253_402_300_799, 999_999_999), (-62_135_596_800, 0), (0, 1_999)]
    decoder = proto_decoder(described, "ts TIMESTAMP")
    found, faults = rows(decoder, [make(ts={"seconds": seconds, "nanos": nanos}).SerializeToString() for seconds, nanos in ends])
    epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
    assert found == [(epoch + dt.timedelta(seconds=seconds, microseconds=nanos // 1000),) for seconds, nanos in ends] and not faults
    before_year_1 = decoder.decode(pa.array([make(ts={"seconds": -253_402_300_799}).SerializeToString()]))
    assert not before_year_1.faults
    wrong = [(253_402_300_800, 0), (-253_402_300_800, 0), (0, 1_000_000_000), (0, -1)]
    _, faults = rows(decoder, [make(ts={"seconds": seconds, "nanos": nanos}).SerializeToString() for seconds, nanos in wrong])
    assert list(faults.values()) == [f"field ts: {seconds} s and {nanos} ns is no google.protobuf.Timestamp" for seconds, nanos in wrong]


def test_messages_of_a_file_are_found_by_their_places() -> None:
    file = proto_file()
    file.name = ""
    text = base64.b64encode(file.SerializeToString()).decode()
    inner = registry.Schema("PROTOBUF", base64.b64encode(descriptor_pb2.FileDescriptorProto(name="other").SerializeToString()).decode())
    found = protobuf.from_registry(registry.Schema("PROTOBUF", text, (("inner.proto", inner), ("twice.proto", inner))), "schema 1")
    assert found.name == "value.proto"
    assert [protobuf.by_indexes(found, at).full_name for at in ((0,), (1,), (2,), (1, 0))] == ["p.Other", "p.M", "p.Loop", "p.M.Sub"]
    for at in ((3,), (-1,), (1, 2), (0, 0)):
        with pytest.raises(values.Undecodable, match=re.escape(f"the schema has no message {list(at)}")):
            protobuf.by_indexes(found, at)


def test_a_message_that_contains_itself_is_read_without_that_field(described: str) -> None:
    with pytest.raises(ConfigError, match=r"field again: message p.Loop contains itself"):
        proto_decoder(described, message="p.Loop")
    deep = b"\x10\x05"
    for _ in range(500):
        deep = b"\x0a" + protobuf_varint(len(deep)) + deep
    found, faults = rows(proto_decoder(described, "i INT", "p.Loop"), [b"\x10\x05", deep])
    assert found == [(5,), (None,)] and list(faults) == [1]


def protobuf_varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + protobuf_varint(number >> 7)


@pytest.mark.parametrize(
    ("columns", "message", "says"),
    [
        ("nope INT", "p.M", "there is no field nope in the message p.M; its fields are i, s"),
        ("s INT", "p.M", "field s is type 9 in the message p.M and cannot be read as int"),
        ("rep INT", "p.M", "field rep is repeated type 13"),
        ("sub STRUCT<x: STRING>", "p.M", "field sub.x is type 1"),
        ("i INT", "p.Nope", "there is no message p.Nope in .*; there are p.Loop, p.M, p.Other"),
    ],
)
def test_columns_that_a_message_does_not_have(described: str, columns: str, message: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        proto_decoder(described, columns, message)


def test_files_that_are_no_descriptor_sets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"value.schema: the descriptor set .* cannot be read in this process"):
        protobuf.from_file(str(tmp_path / "absent"), "p.M")
    (tmp_path / "text").write_bytes(b'syntax = "proto3";')
    with pytest.raises(ConfigError, match=r"is no descriptor set"):
        protobuf.from_file(str(tmp_path / "text"), "p.M")
    file = descriptor_pb2.FileDescriptorProto
    for files in ([file(name="a", dependency=["b"]), file(name="b", dependency=["a"])], [file(name="a", dependency=["nowhere.proto"])]):
        (tmp_path / "set").write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
        with pytest.raises(ConfigError, match=r"option value\.schema: .*set: TypeError"):
            protobuf.from_file(str(tmp_path / "set"), "p.M")


NAMES = (
    "TINYINT BIGINT FLOAT DOUBLE DECIMAL(20,0) BOOLEAN STRING BINARY DATE TIMESTAMP TIMESTAMP_NTZ ARRAY<INT> MAP<STRING,INT> STRUCT<x:INT>"
)
COLUMNS = dict(zip("ilfgnbsydtzamr", NAMES.split(), strict=True))


@each_row(
    ("kind", "columns"),
    [
        *(("int", "ilfg"), ("long", "ilfg"), ("float", "fg"), ("double", "fg"), ("boolean", "b"), ("string", "s"), ("bytes", "y")),
        *(({"type": "int", "logicalType": "date"}, "ilfgd"), ({"type": "fixed", "name": "F", "size": 1}, "y"), ("null", "ilfgnbsyamr")),
        *(({"type": "long", "logicalType": f"{zone}timestamp-micros"}, "ilfgtz") for zone in ("", "local-")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "n"),
        *(({"type": "enum", "name": "E", "symbols": ["A"]}, "s"), ({"type": "array", "items": "int"}, "a")),
        *(({"type": "map", "values": "int"}, "m"), ({"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}, "r")),
        *((".z", "ilfgn"), (".flag", "b"), (".f", "fg"), (".d", "fg"), (".t", "s"), (".y", "y"), (".e", "ils")),
    ],
)
def test_which_columns_a_type_can_become(kind: Any, columns: str) -> None:
    """Of Avro; with a point before it the field of a Protobuf message."""
    found = ""
    other = protobuf.pool_of([proto_file()], "x").FindMessageTypeByName("p.Other")
    for letter, column in COLUMNS.items():
        try:
            if isinstance(kind, str) and kind.startswith("."):
                protobuf.ProtobufDecoder(list(ddl.parse(f"{kind[1:]} {column}", "o")), other, None, framed=False)
            else:
                avro_decoder(record_of(kind), f"a {column}")
        except ConfigError as error:
            assert f"cannot be read as {ddl.name_of(ddl.parse(f'a {column}', 'o').field(0).type)}" in str(error)
        else:
            found += letter
    assert found == columns


# ---- with a registry -----------------------------------------------------------------------------------------------------------------


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + data


garbage = Reached("a changed value is refused", "a changed value is read", "garbage is read as Protobuf", "garbage is refused as Protobuf")


@partial(garbage.by, rounds=4)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"\x08\x05", b"\x12\x01a"]), max_size=5),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
)
def test_garbage_raises_nothing(values: list[bytes], flips: list[tuple[int, int]]) -> None:
    good = bytearray(avro_written(SCHEMA, RECORD))
    for at, byte in flips:
        good[at % len(good)] = byte
    written = avro_written(SCHEMA, RECORD)
    found, faults = rows(avro_decoder(SCHEMA), [*values, bytes(good), written])
    assert found[-1][0] == -1
    garbage("a changed value is refused", len(values) in faults)
    garbage("a changed value is read", len(values) not in faults and good != written)
    pool = protobuf.pool_of([proto_file()], "x").FindMessageTypeByName("p.M")
    found, faults = rows(protobuf.ProtobufDecoder(list(protobuf.derived(pool)), pool, None, framed=False), list(values))
    assert len(found) == len(values)
    garbage("garbage is read as Protobuf", any(value and at not in faults for at, value in enumerate(values)))
    garbage("garbage is refused as Protobuf", faults)


def test_each_value_is_read_with_the_schema_it_names(registry_server: Any) -> None:
    old, new = (
        record_of("int"),
        {"type": "record", "name": "R", "fields": [{"name": "b", "type": ["null", "string"]}, {"name": "a", "type": "long"}]},
    )
    first, second = registry_server.add("t-value", json.dumps(old)), registry_server.add("t-value", json.dumps(new))
    other = registry_server.add("u-value", json.dumps(record_of("string")))
    schemas = registry.Registry(registry.RegistryOptions(registry_server.url))
    decoder = avro.AvroDecoder(list(ddl.parse("a BIGINT, b STRING", "o")), None, schemas, framed=True, lenient=True)
    values = [
        framed(first, avro_written(old, {"a": 5})),
        framed(second, avro_written(new, {"b": "x", "a": 2**40})),
        None,
        framed(other, avro_written(record_of("string"), {"a": "x"})),
        framed(77, b"x"),
        b"\x00\x00",
        b"{}{}{}",
        framed(first, b""),
        framed(first, avro_written(old, {"a": 6})),
    ]
    found, faults = rows(decoder, values)
    assert found == [(5, None), (2**40, "x"), *[(None, None)] * 6, (6, None)]
    assert sorted(faults) == [3, 4, 5, 6, 7]
    assert (
        "field a is of the Avro type string and cannot be read as bigint" in faults[3]
        and faults[4] == f"the schema registry {registry_server.url} has no schema 77"
    )
    assert faults[5] == faults[6] == registry.NOT_FRAMED
    rows(decoder, values)
    assert [each for each in registry_server.asked if "/schemas/ids/" in each] == [
        f"/schemas/ids/{number}" for number in (first, second, other, 77)
    ]
    schemas.close()


def test_a_schema_that_cannot_be_used_is_an_error_of_the_row(registry_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only values that do not begin like the wire format, or that the schema cannot read, are corrupt."""
    monkeypatch.setattr(registry, "BACKOFF_S", 0)
    good = registry_server.add("t-value", json.dumps(record_of("int")))
    other = registry_server.add("u-value", json.dumps(record_of("string")))
    proto = registry_server.add("v-value", "", kind="PROTOBUF")
    text = base64.b64encode(proto_file().SerializeToString()).decode()
    message, plain = (registry_server.add("w-value", each, kind="PROTOBUF") for each in (text, 'syntax = "proto3";'))
    schemas = registry.Registry(registry.RegistryOptions(registry_server.url.replace("//", "//me:hush@")))
    url = registry_server.url

    def check(decoder: Any, number: int, says: str) -> None:
        values = [None, b"", None, framed(good, b"\x00"), framed(number, b"\x00"), framed(number, b"\x00")]
        for _ in range(2):
            with pytest.raises(base.RowFailed) as caught:
                decoder.decode(pa.array(values, pa.binary()))
            assert caught.value.row == 4 and re.search(says, str(caught.value.error)) and "hush" not in str(caught.value.error)
            assert isinstance(caught.value.error, registry.UnusableSchema) and "onUnusableSchema=corrupt" in str(caught.value.error)

    for number, says in (
        (77, f"the schema registry {url} has no schema 77"),
        (proto, f"schema {proto} of the schema registry {url} is of the type PROTOBUF, not AVRO"),
        (other, f"schema {other} of the registry: field a is of the Avro type string and cannot be read as bigint .{url}, schema {other}."),
    ):
        check(avro.AvroDecoder(list(ddl.parse("a BIGINT", "o")), None, schemas, framed=True), number, says)
    good = message
    for columns, number, says in (
        ("i INT", 77, f"the schema registry {url} has no schema 77"),
        ("i INT", other, f"schema {other} of the schema registry {url} is of the type AVRO, not PROTOBUF"),
        ("i INT", plain, f"schema {plain} of the registry: .*as text only.*{url}"),
    ):
        check(protobuf.ProtobufDecoder(list(ddl.parse(columns, "o")), None, schemas, framed=True), number, says)
    schemas.close()


def test_avro_of_the_registry_may_refer_to_other_subjects(registry_server: Any) -> None:
    registry_server.add("item", json.dumps(ITEM))
    number = registry_server.add("t-value", json.dumps(record_of("Item")), references=[{"name": "Item", "subject": "item", "version": 1}])
    schemas = registry.Registry(registry.RegistryOptions(registry_server.url))
    value = framed(number, avro_written(record_of(ITEM), {"a": {"q": 2.0, "e": "A"}}))
    found, faults = rows(avro.AvroDecoder(list(ddl.parse("a STRUCT<e: STRING>", "o")), None, schemas, framed=True), [value])
    assert found == [({"e": "A"},)] and not faults
    schemas.close()


def test_protobuf_of_the_registry(registry_server: Any) -> None:
    text = base64.b64encode(proto_file().SerializeToString()).decode()
    number = registry_server.add("t-value", text, kind="PROTOBUF")
    plain = registry_server.add("u-value", 'syntax = "proto3";', kind="PROTOBUF")
    schemas = registry.Registry(registry.RegistryOptions(registry_server.url))
    decoder = protobuf.ProtobufDecoder(list(ddl.parse("i INT, x DOUBLE, z BIGINT", "o")), None, schemas, framed=True, lenient=True)
    found, faults = rows(
        decoder,
        [
            framed(number, b"\x00" + b"\x08\x05"),  # the first message: Other
            framed(number, b"\x02\x02" + b"\x08\x05"),  # the second: M
            framed(number, b"\x04\x02\x00" + b"\x09" + struct.pack("<d", 1.5)),  # the first in it: Sub
            framed(number, b"\x02\x12" + b"\x08\x05"),
            framed(number, b"\x04\x02"),
            framed(number, b"\xff" * 20),
            framed(number, b"\xfe\xff\xff\xff\x0f"),
            framed(plain, b"\x00"),
        ],
    )
    assert found[:3] == [(None, None, -3), (5, None, None), (None, 1.5, None)]
    assert sorted(faults) == [3, 4, 5, 6, 7]
    assert "no message [9]" in faults[3] and "break off" in faults[4] and "as text only" in faults[7]
    schemas.close()
