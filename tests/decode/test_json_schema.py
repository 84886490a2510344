"""Columns out of a JSON Schema: what each of its words becomes, and where what is refused stands."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.decode.ddl import name_of
from kafkacore.decode.json_schema import derived
from kafkacore.errors import ConfigError
from tests.kit.reached import Reached
from tests.kit.rows import each_row

# As Confluent's serializer makes it of a class, with a few words more.
ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "additionalProperties": False,
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"oneOf": [{"type": "null", "title": "Not included"}, {"type": "number"}]},
        "paid": {"type": ["null", "boolean"], "default": False},
        "placed": {"type": "string", "format": "date-time"},
        "day": {"type": ["string", "null"], "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "state": {"enum": ["new", "sent", None]},
        "ship_to": {"$ref": "#/definitions/Address"},
        "bill_to": {"anyOf": [{"$ref": "#/definitions/Address"}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"allOf": [{"$ref": "#/definitions/a~1b%20c"}]}},
        "labels": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
        "size": {"type": ["integer", "number"]},
        "nested": {"properties": {"x": {"const": 1}}},
    },
    "definitions": {
        "Address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"$ref": "#/definitions/Zip"}}},
        "Zip": {"type": "string"},
        "a/b c": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}},
    },
}

DOUBLING = [{"properties": {field: {"$ref": f"#/d/{at + 1}"} for field in "xy"}} for at in range(25)] + [{"type": "string"}]


def of(kind: Any, **more: Any) -> str:
    return json.dumps({"type": "object", "properties": {"a": kind}, **more})


def test_every_word_has_its_column() -> None:
    assert {each.name: name_of(each.type) for each in derived(json.dumps(ORDER), "it")} == {
        "id": "bigint",
        "price": "double",
        "paid": "boolean",
        "placed": "timestamp",
        "day": "date",
        "mail": "string",
        "state": "string",
        "ship_to": "struct<street:string,zip:string>",
        "bill_to": "struct<street:string,zip:string>",
        "lines": "array<struct<sku:string,count:bigint>>",
        "labels": "map<string,array<string>>",
        "size": "double",
        "nested": "struct<x:bigint>",
    }


def test_a_reference_may_name_slashes_and_tildes() -> None:
    names = {"a/b": "integer", "a~b": "string", "a~1b": "boolean", "a b": "number"}
    pointers = ("a~1b", "a~0b", "a~01b", "a%20b")
    schema = {
        "properties": {f"f{at}": {"$ref": f"#/$defs/{each}"} for at, each in enumerate(pointers)},
        "$defs": {name: {"type": kind} for name, kind in names.items()},
    }
    found = derived(json.dumps(schema), "it")
    assert [name_of(each.type) for each in found] == ["bigint", "string", "boolean", "double"]


@each_row(
    ("text", "says"),
    [
        ("{", "it is no JSON Schema: "),
        ("true", "it: a value may be anything"),
        ('{"type": "string"}', "it: a value must be an object with properties"),
        ('{"type": "object", "additionalProperties": {"type": "string"}}', "it: a value must be an object with properties"),
        ('{"type": "object"}', "it: a value is an object without properties"),
        (of(True), "field a may be anything"),
        (of({}), "field a has no type that a column could have"),
        (of({"type": "null"}), "field a has no type that a column could have"),
        (of({"type": "decimal"}), "field a has no type that a column could have"),
        (of({"type": {"a": 1}}), "field a has no type that a column could have"),
        (of({"type": ["string", "integer"]}), "field a is of the types integer, string, and a column has one"),
        (of({"enum": ["a", 1]}), "field a is of the types integer, string"),
        (of({"enum": "a"}), "field a has no type that a column could have"),
        (of({"oneOf": [{"type": "string"}, {"type": "integer"}]}), r"field a is of several kinds \(oneOf\)"),
        (of({"anyOf": 3}), r"field a is of several kinds \(anyOf\)"),
        (of({"type": "array"}), "field a is an array that does not say of what"),
        (of({"type": "array", "items": [{"type": "string"}]}), "field a is an array that does not say of what"),
        (of({"type": "array", "items": {"type": "object"}}), r"field a\[\] is an object without properties"),
        (of({"type": "object", "additionalProperties": {"b": 1}}), "field a{} has no type"),
        (of({"type": "object", "patternProperties": {"^x": {}}}), "field a is an object without properties"),
        (of({"properties": {"b": {"type": []}}}), r"field a\.b has no type"),
        (of({"$ref": "#/definitions/b"}), "field a refers to #/definitions/b, which is not there"),
        (of({"$ref": "other.json"}), 'field a refers to "other.json", and only references like #/definitions/NAME are followed'),
        (of({"$ref": ["#/a"]}), "only references like"),
        (of({"$ref": "#"}), r"field a\.a contains itself in #"),
        (of({"$ref": "#/d/b"}, d={"b": {"type": "array", "items": {"$ref": "#/d/b"}}}), r"field a\[\] contains itself in #/d/b"),
        ('{"properties": {"\\ud800": {"type": "string"}}}', "it is no JSON Schema: .*surrogates"),
        (of({"$ref": "#/d/0"}, d=DOUBLING), "it has more than 10,000 fields"),
        (of({"$ref": "#/d/0"}, d=[{"items": {"$ref": f"#/d/{i + 1}"}} for i in range(60)]), "or some more than 64 deep"),
    ],
)
def test_what_has_no_column_is_refused_with_its_path(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        derived(text, "it")


WORDS = st.sampled_from("type properties items enum const oneOf $ref additionalProperties format object string # a".split())
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | WORDS,
    lambda kind: st.lists(kind, max_size=3) | st.dictionaries(WORDS, kind, max_size=4),
)


KINDS = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": ["null", "integer"]}, {"const": 1}, {"$ref": "#/properties/a"}]) | ANY,
    lambda kind: (
        kind.map(lambda item: {"type": "array", "items": item})
        | kind.map(lambda value: {"type": "object", "additionalProperties": value})
        | st.tuples(kind, kind).map(lambda pair: {"properties": dict(zip("ab", pair, strict=True))})
    ),
    max_leaves=4,
)
schemas = Reached("columns", "refused")


@partial(schemas.by, rounds=4)
@settings(max_examples=25)
@given(KINDS)
def test_any_json_has_columns_or_is_refused(schema: Any) -> None:
    for text in (json.dumps(schema), of(schema)):
        try:
            assert derived(text, "it").names
            schemas("columns")
        except ConfigError:
            schemas("refused")
