"""Columns as Python programs write them, as an Arrow schema of types that the decoders make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafkacore.decode import ddl, json_schema
from kafkacore.decode.column_count import ColumnCount
from kafkacore.errors import ConfigError, UsageError

PYTHON: dict[Any, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}
HOW = "by {name: type}"


def columns_of(wanted: Any, option: str) -> pa.Schema:
    """The columns wanted, each of them nullable.

    Args:
        wanted: `a INT, b STRING`, {name: type in those words, of pyarrow or of Python}, a JSON Schema of an object, or anything with
            Arrow's `__arrow_c_schema__`.
        option: where it stands, for messages.

    Raises:
        ConfigError: it cannot be read, or has a type that no value is decoded to.
        UsageError: it is something else.
    """
    if isinstance(wanted, str):
        return ddl.parse(wanted, option)
    if hasattr(wanted, "__arrow_c_schema__"):
        try:
            schema = pa.schema(wanted)
        except pa.ArrowInvalid as error:  # Arrow has a bound of depth, too
            raise ConfigError(f"{option}: the schema cannot be read: {error}") from None
    elif not isinstance(wanted, Mapping):
        raise UsageError(f"{option} is like 'a INT, b STRING', {{name: type}}, a JSON Schema or an Arrow schema, not {wanted!r}")
    elif isinstance(wanted.get("properties"), Mapping):
        return json_schema.derived(json.dumps(wanted), f"the JSON Schema of {option}", HOW)
    else:
        schema = pa.schema([(str(name), _named(kind, option)) for name, kind in wanted.items()])
    count = ColumnCount(option)
    return pa.schema([(each.name, _plain(each.type, each.name, option == "json", count)) for each in schema])


def _named(kind: Any, option: str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    return PYTHON[kind] if isinstance(kind, type) and kind in PYTHON else ddl.parse(f"a {kind}", option).field(0).type


def _plain(kind: pa.DataType, path: str, any_type: bool, count: ColumnCount) -> pa.DataType:
    """A type as the decoders know it; text and lists have one layout here.

    Args:
        kind: as it was asked for.
        path: of the column, for messages.
        any_type: of JSON all types of Arrow are made (`arrow_types`), else those that Spark has.
        count: of the schema's columns.
    """
    with count.one():
        return _decoded(kind, path, any_type, count)


def _decoded(kind: pa.DataType, path: str, any_type: bool, count: ColumnCount) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([(each.name, _plain(each.type, f"{path}.{each.name}", any_type, count)) for each in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return ddl.spark_list(_plain(kind.value_type, f"{path}[]", any_type, count))
    if types.is_map(kind):
        return ddl.spark_map(_plain(kind.key_type, f"{path}{{}}", any_type, count), _plain(kind.item_type, f"{path}{{}}", any_type, count))
    if types.is_decimal128(kind) or kind in ddl.SIMPLE.values():
        return kind
    if any_type:
        from kafkacore.decode import arrow_types

        if types.is_fixed_size_list(kind):
            return pa.list_(_plain(kind.value_type, f"{path}[]", any_type, count), kind.list_size)
        if types.is_dictionary(kind):
            return pa.dictionary(kind.index_type, _plain(kind.value_type, path, any_type, count), kind.ordered)
        arrow_types.plan(kind, path)
        return kind
    instead = "timestamp[us] or timestamp[us, tz=UTC]" if types.is_timestamp(kind) else f"one of {', '.join(ddl.SIMPLE)}"
    raise ConfigError(f"column {path} is {kind}, which values are not decoded to: make it {instead}")
