"""Columns as Python programs write them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafkacore.decode.ddl import parse
from kafkacore.decode.wanted import columns_of
from kafkacore.errors import ConfigError, UsageError
from tests.kit.rows import each_row

BOTH = parse("a BIGINT, b STRING", "o")


@each_row(
    "wanted",
    [
        "a BIGINT, b STRING",
        {"a": int, "b": str},
        {"a": "bigint", "b": pa.large_string()},
        {"a": pa.int64(), "b": pa.string_view()},
        BOTH,
        {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    ],
    ids=["ddl", "python", "words", "arrow", "schema", "json"],
)
def test_two_columns_in_every_form(wanted: Any) -> None:
    assert columns_of(wanted, "option") == BOTH


@each_row(
    "option, kind, found",
    [
        ("o", bytes, "BINARY"),
        ("o", float, "DOUBLE"),
        ("o", bool, "BOOLEAN"),
        ("o", pa.large_binary(), "BINARY"),
        ("o", pa.binary_view(), "BINARY"),
        ("o", pa.large_list(pa.large_string()), "ARRAY<STRING>"),
        ("o", pa.list_view(pa.int32()), "ARRAY<INT>"),
        ("o", pa.map_(pa.large_string(), pa.large_binary()), "MAP<STRING,BINARY>"),
        ("o", pa.struct([("x", pa.int32()), ("y", pa.large_string())]), "STRUCT<x:INT,y:STRING>"),
        ("o", pa.decimal128(20, 3), "DECIMAL(20,3)"),
        ("o", pa.timestamp("us"), "TIMESTAMP_NTZ"),
        ("json", pa.list_(pa.large_string(), 2), pa.list_(pa.string(), 2)),
        ("json", pa.dictionary(pa.int8(), pa.large_string(), True), pa.dictionary(pa.int8(), pa.string(), True)),
        ("json", pa.uint64(), pa.uint64()),
        ("json", pa.timestamp("ns"), pa.timestamp("ns")),
    ],
)
def test_text_and_lists_have_one_layout(option: str, kind: Any, found: Any) -> None:
    wanted = found if isinstance(found, pa.DataType) else parse(f"c {found}", "o").field(0).type
    assert columns_of({"c": kind}, option).field("c").type == wanted


@each_row(
    "wanted, error, says",
    [
        ({"c": pa.uint64()}, ConfigError, "column c is uint64, which values are not decoded to: make it one of "),
        ({"c": pa.timestamp("ns")}, ConfigError, r"column c is timestamp\[ns\], .* make it timestamp\[us\] or timestamp\[us, tz=UTC\]"),
        ({"c": pa.list_(pa.uint8())}, ConfigError, r"column c\[\] is uint8"),
        ({"c": pa.struct([("a", pa.int32()), ("x", pa.uint8())])}, ConfigError, r"column c\.x is uint8"),
        ({"c": pa.map_(pa.string(), pa.uint8())}, ConfigError, "column c{} is uint8"),
        ({"c": pa.list_(pa.int32(), 2)}, ConfigError, "fixed_size_list"),
        ({"c": "nope"}, ConfigError, "option o: a type expected and 'nope' found"),
        ({"c": complex}, ConfigError, "a name expected"),
        (5, UsageError, "o is like 'a INT, b STRING'"),
        ({"properties": {"a": {}}}, ConfigError, "the JSON Schema of o: field a"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_column(wanted: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        columns_of(wanted, "o")
