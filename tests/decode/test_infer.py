"""Columns out of the first values: with them the decoder reads all of those values, and they do not depend on the values' order."""

from __future__ import annotations

import json
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.bounds import SCHEMA_DEPTH
from kafkacore.decode.ddl import spark_list
from kafkacore.decode.infer import inferred
from kafkacore.decode.jsons import JsonDecoder
from kafkacore.errors import ConfigError
from tests.decode.support import rows
from tests.kit.reached import Reached
from tests.kit.rows import each_row

S, L, D, B = pa.string(), pa.int64(), pa.float64(), pa.bool_()


@each_row(
    ("values", "kind"),
    [
        ([1, 2], L),
        ([1, 2.5, None], D),
        ([2.5, 1], D),
        (["a"], S),
        ([True], B),
        ([True, 1], S),
        ([None], S),
        ([1, "a"], S),
        ([{"x": 1}, {"y": 2.0}], pa.struct([("x", L), ("y", D)])),
        ([{"x": 1}, 1], S),
        ([1, {"x": 1}], S),
        ([[1], [2.5], []], spark_list(D)),
        ([[], [None]], S),
        ([[{"a": 1}], [{"b": "x"}]], spark_list(pa.struct([("a", L), ("b", S)]))),
        ([[1], {"a": 1}], S),
        ([{}], S),
        ([1 << 63], S),
        ([-(1 << 63)], L),
    ],
)
def test_the_type_of_a_field(values, kind):
    assert inferred([json.dumps({"f": each}).encode() for each in values]) == pa.schema([("f", kind)])


@each_row("kind", [list, dict])
def test_a_field_is_as_deep_as_a_schema_may_be(kind):
    value, wanted = 1, S
    for _ in range(SCHEMA_DEPTH + 5):
        value = [value] if kind is list else {"x": value}
    for _ in range(SCHEMA_DEPTH):
        wanted = spark_list(wanted) if kind is list else pa.struct([("x", wanted)])
    assert inferred([json.dumps({"f": value}).encode()]).field("f").type == wanted


def test_what_is_no_object_says_nothing():
    assert inferred([b"", b"{", b"\xff", b"[1]", b"null", b"1", b'{"\\ud800": 1}', b"[" * 100_000, b'{"a": 1}']) == pa.schema([("a", L)])
    assert inferred([]).names == []


def test_keys_that_are_data_are_refused():
    with pytest.raises(ConfigError, match="more than 10,000 different fields: name the columns"):
        inferred([json.dumps({f"{n}-{i}": 1 for i in range(2_000)}).encode() for n in range(6)])


def any_nested(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
JSON = st.recursive(PLAIN, any_nested)
NUMBERS = st.none() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 1e300])


columns = Reached("numbers of two kinds", "a text of different kinds", "objects in objects", "a field that some lack")


@partial(columns.by, rounds=4)
@settings(max_examples=25)
@given(
    st.sampled_from([JSON, NUMBERS]).flatmap(lambda kind: st.lists(st.dictionaries(st.sampled_from("xyz"), kind, max_size=3), max_size=6))
)
def test_the_decoder_reads_all_values_that_the_columns_came_from(objects):
    values = [json.dumps(each).encode() for each in objects]
    schema = inferred(values)
    assert {each.name: each.type for each in inferred(values[::-1])}.keys() == {each.name: each.type for each in schema}.keys()
    found, faults = rows(JsonDecoder(list(schema)), values)
    assert faults == {}
    for field in schema:
        there = [each[field.name] for each in objects if field.name in each]
        kinds = {type(each) for each in there} - {type(None)}
        columns("numbers of two kinds", kinds == {int, float})
        columns("a text of different kinds", len(kinds) > 1 and field.type == S)
        columns("objects in objects", dict in kinds and field.type != S)
        columns("a field that some lack", len(there) < len(objects))
    for row, data in zip(found, objects, strict=True):
        for field, value in zip(schema, row, strict=True):
            there = data.get(field.name)
            assert (value is None) == (there is None)
            if field.type in (L, B, D) and there is not None:
                assert value == there
