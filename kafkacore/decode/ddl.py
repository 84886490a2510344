"""Columns written as Spark's DDL (`a INT, b STRUCT<c: STRING>`) to Arrow types, without a JVM, which Spark's own parser needs.

Source: org.apache.spark.sql.catalyst.parser.DataTypeParser.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from kafkacore.bounds import SCHEMA_DEPTH
from kafkacore.errors import ConfigError

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([^\W\d]\w*)|(\d+)|(.))", re.DOTALL)

SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def spark_list(element: pa.DataType) -> pa.DataType:
    """Arrow's type of an array, with the names Spark gives."""
    return pa.list_(pa.field("element", element))


def spark_map(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Arrow's type of a map, with the names Spark gives."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def name_of(kind: pa.DataType) -> str:
    """A type in Spark's words, for messages."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{name_of(kind.key_type)},{name_of(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{name_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{name_of(each.type)}' for each in kind)}>"
    return next((name for name in ("int", "bigint", *SIMPLE) if SIMPLE[name] == kind), str(kind))


class _Parser:
    def __init__(self, text: str, option: str) -> None:
        self.text, self.option = text, option
        self.tokens = [match for match in _TOKEN.finditer(text) if match.group().strip()]
        self.at = 0

    def fail(self, wanted: str) -> ConfigError:
        found = repr(self.tokens[self.at].group().strip()) if self.at < len(self.tokens) else "the end"
        return ConfigError(f"option {self.option}: {wanted} expected and {found} found in {self.text!r}; a schema is like: a INT, b STRING")

    def peek(self) -> str:
        return self.tokens[self.at].group().strip() if self.at < len(self.tokens) else ""

    def take(self, symbol: str) -> bool:
        if self.peek().lower() != symbol:
            return False
        self.at += 1
        return True

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.fail(repr(symbol))

    def number(self) -> int:
        if not self.peek().isdigit():
            raise self.fail("a number")
        self.at += 1
        return int(self.tokens[self.at - 1].group())

    def name(self) -> str:
        match = self.tokens[self.at] if self.at < len(self.tokens) else None
        if match is None or not (match[1] or match[3]):
            raise self.fail("a name")
        self.at += 1
        return match[1][1:-1].replace("``", "`") if match[1] else match[3]

    def fields(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not (not found and self.peek() == end):
            name = self.name()
            self.take(":")
            kind = self.type(depth)
            if self.take("not"):
                raise ConfigError(f"option {self.option}: column {name} is NOT NULL, but what cannot be decoded is null")
            if self.take("comment"):
                if self.at >= len(self.tokens) or not self.tokens[self.at][2]:
                    raise self.fail("a comment in quotes")
                self.at += 1
            if any(each.name == name for each in found):
                raise ConfigError(f"option {self.option}: column {name} is there twice")
            found.append(pa.field(name, kind))
            if not self.take(","):
                break
        return found

    def type(self, depth: int) -> pa.DataType:
        if depth > SCHEMA_DEPTH:
            raise ConfigError(f"option {self.option}: types are nested more than {SCHEMA_DEPTH} deep")
        before = self.at
        word = self.name().lower()
        if word in SIMPLE:
            return SIMPLE[word]
        if word in ("decimal", "dec", "numeric"):
            precision, scale = 10, 0
            if self.take("("):
                precision = self.number()
                scale = self.number() if self.take(",") else 0
                self.expect(")")
            if not (1 <= precision <= 38 and scale <= precision):
                raise ConfigError(f"option {self.option}: decimal({precision},{scale}) must have 1 to 38 digits")
            return pa.decimal128(precision, scale)
        if word in ("array", "map", "struct"):
            self.expect("<")
            made = self.nested(word, depth + 1)
            self.expect(">")
            return made
        self.at = before
        raise self.fail("a type")

    def nested(self, word: str, depth: int) -> pa.DataType:
        if word == "array":
            return spark_list(self.type(depth))
        if word == "map":
            key = self.type(depth)
            self.expect(",")
            return spark_map(key, self.type(depth))
        return pa.struct(self.fields(">", depth))


def parse(text: str, option: str) -> pa.Schema:
    """Reads DDL.

    Args:
        text: like `a INT, b ARRAY<STRING>`.
        option: where it stands, for messages.

    Raises:
        ConfigError: what was expected, and what was found instead.
    """
    parser = _Parser(text, option)
    fields = parser.fields("", 0)
    if parser.at < len(parser.tokens):
        raise parser.fail("',' or the end")
    if not fields:
        raise parser.fail("a column")
    return pa.schema(fields)
