"""How many columns a schema may make, and how deep: short texts that stand for very much, in every format."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkacore.bounds import MESSAGE_INDEXES, REGISTRY_KEPT_CHARACTERS, SCHEMA_DEPTH, SCHEMA_FIELDS
from kafkacore.codec import encode_varint
from kafkacore.decode import avro, base, json_schema, protobuf, registry
from kafkacore.decode.column_count import ColumnCount
from kafkacore.decode.values import Undecodable
from kafkacore.decode.wanted import columns_of
from kafkacore.errors import ConfigError
from tests.kit.inside import kept_of
from tests.kit.rows import each_row

TOO_MUCH = f"has more than {SCHEMA_FIELDS:,} fields, or some more than {SCHEMA_DEPTH} deep"


def of_protobuf(levels: int, fields: int) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3", package="p")
    for level in range(levels):
        message = file.message_type.add(name=f"M{level}")
        for number in range(1, fields + 1):
            if level + 1 < levels:
                message.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=f".p.M{level + 1}")
            else:
                message.field.add(name=f"f{number}", number=number, type=5, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    return protobuf.derived(protobuf.by_indexes(protobuf.from_registry(registry.Schema("PROTOBUF", text), "schema 1"), (0,)))


def of_avro(levels: int, fields: int) -> Any:
    made: Any = {"type": "record", "name": f"r{levels}", "fields": [{"name": f"f{n}", "type": "int"} for n in range(fields)]}
    for level in reversed(range(levels - 1)):
        others = [{"name": f"f{n}", "type": made["name"]} for n in range(1, fields)]
        made = {"type": "record", "name": f"r{level}", "fields": [{"name": "f0", "type": made}, *others]}
    return avro.AvroSchema(json.dumps(made), (), "it").derived()


def of_json(levels: int, fields: int) -> Any:
    def level(at: int) -> dict[str, Any]:
        inner = {"$ref": f"#/d/{at + 1}"} if at + 1 < levels else {"type": "integer"}
        return {"type": "object", "properties": {f"f{n}": inner for n in range(fields)}}

    return json_schema.derived(json.dumps({**level(0), "d": [level(at) for at in range(levels)]}), "it")


def of_arrow(levels: int, fields: int) -> Any:
    made = pa.int64()
    for _ in range(levels):
        made = pa.struct([(f"f{n}", made) for n in range(fields)])
    return columns_of(pa.schema(list(made)), "json")


@each_row("derived", [of_protobuf, of_avro, of_json, of_arrow])
def test_columns_are_bounded_in_number_and_depth(derived: Any) -> None:
    assert len(derived(8, 2)) == 2
    for levels, fields in ((14, 2), (SCHEMA_DEPTH + 8, 1), (1, SCHEMA_FIELDS + 1)):
        with pytest.raises(ConfigError, match=rf"{TOO_MUCH}|Recursion level in ArrowSchema"):
            derived(levels, fields)


def test_as_many_and_as_deep_as_the_bounds_say() -> None:
    count = ColumnCount("it", "name them")
    for _ in range(2):
        with ExitStack() as levels:
            for _ in range(SCHEMA_DEPTH):
                levels.enter_context(count.one())
    for _ in range(SCHEMA_FIELDS - 2 * SCHEMA_DEPTH):
        with count.one():
            pass
    for deep in (False, True):
        with ExitStack() as levels, pytest.raises(ConfigError, match=f"^it {TOO_MUCH}: name them$"):
            count = ColumnCount("it", "name them") if deep else count
            for _ in range(SCHEMA_DEPTH + 1):
                levels.enter_context(count.one())


@pytest.mark.parametrize("lenient", [True, False])
def test_a_decoder_forgets_schemas_rather_than_grow(lenient: bool) -> None:
    doc = "x" * (REGISTRY_KEPT_CHARACTERS // 4)
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}], "doc": doc})
    asked: list[int] = []

    def by_id(number: int, kind: str, *, patient: bool) -> registry.Schema:
        asked.append(number)
        return registry.Schema(kind, text)

    schemas: Any = SimpleNamespace(by_id=by_id, places="r")
    decoder = avro.AvroDecoder([pa.field("a", pa.int32())], None, schemas, True, lenient)
    for number in (*range(1, 5), *range(1, 5)):
        assert decoder.decode(pa.array([registry.prefix_of(number) + b"\2"])).columns[0].to_pylist() == [1]
        assert len(kept_of(decoder)) <= 4
    assert len(asked) > 4


def test_a_decoder_counts_the_characters_of_schemas_and_of_what_they_refer_to(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})
    inner = registry.Schema("AVRO", json.dumps({"type": "record", "name": "i", "fields": []}))
    both = (("i", inner), ("j", registry.Schema("AVRO", json.dumps({"type": "record", "name": "j", "fields": []}))))
    schemas: Any = SimpleNamespace(by_id=lambda number, kind, *, patient: registry.Schema(kind, text, both), places="r")
    for more, count, kept in ((0, 3, 3), (-1, 3, 1), (-1, 4, 2)):
        monkeypatch.setattr(base, "REGISTRY_KEPT_CHARACTERS", 3 * (4_096 + len(text) + 2 * len(inner.text)) + more)
        decoder = avro.AvroDecoder([pa.field("a", pa.int32())], None, schemas, True)
        for number in range(count):
            decoder.decode(pa.array([registry.prefix_of(number) + b"\2"]))
        assert len(kept_of(decoder)) == kept


class Blocks(base.BlockDecoder):
    """Notes calls of the library; a value that is bad says where it stands, or only that it is there."""

    def __init__(self, says_where: bool) -> None:
        super().__init__([pa.field("a", pa.binary())])
        self.says_where, self.calls, self.singly = says_where, [], 0

    def _block(self, values: Any) -> Any:
        self.calls.append(len(values))
        if b"" in (found := values.to_pylist()):
            raise Undecodable(str(found.index(b"")))
        return pa.StructArray.from_arrays([values], fields=self.fields)

    def _row_of(self, error: BaseException) -> int | None:
        return int(str(error)) if self.says_where else None

    def _row(self, value: bytes) -> Any:
        self.singly += 1
        if not value:
            raise Undecodable("bad")
        return [value]


@each_row(
    ("says_where", "count", "bad", "calls", "singly"),
    [
        (True, 5_000, [], [5_000], 0),
        (True, 5_000, [0], [5_000, 2_048, 2_948], 4),
        (True, 5_000, [3_000], [5_000, 3_000, 1_999], 1),
        (True, 5_000, [3_000, 3_010], [5_000, 3_000, 1_999, 9, 1_986], 5),
        (True, 100, [99], [100, 99], 1),
        (True, 300, [63], [300, 63, 233], 4),
        (True, 300, [64], [300, 64, 235], 1),
        (False, 5_000, [3_000], [5_000, 313, 1_252, 3_435, 215, 860, 2_360, 148, 592, 37, 148, 592, 37, 1_771], 256),
        (False, 300, [299], [300, 19, 76, 205], 205),
        (False, 100, [0], [100], 100),
    ],
)
def test_how_a_bad_value_is_found(says_where: bool, count: int, bad: list[int], calls: list[int], singly: int) -> None:
    decoder = Blocks(says_where)
    found = decoder.decode(pa.array([b"" if at in bad else b"%d" % at for at in range(count)], pa.binary()))
    assert list(found.faults) == bad
    assert found.columns[0].to_pylist() == [None if at in bad else b"%d" % at for at in range(count)]
    assert (decoder.calls, decoder.singly) == (calls, singly)


def test_message_indexes_are_bounded() -> None:
    def encoded(count: int) -> bytes:
        return b"".join(encode_varint(each) for each in (count, *[0] * count))

    assert protobuf.split_indexes(encoded(MESSAGE_INDEXES) + b"rest") == ((0,) * MESSAGE_INDEXES, b"rest")
    for count in (MESSAGE_INDEXES + 1, 1 << 30):
        with pytest.raises(Undecodable, match=f"{count} message indexes before a Protobuf value"):
            protobuf.split_indexes(encode_varint(count) + bytes(100))
