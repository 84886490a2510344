"""Columns out of the first JSON values of a topic, for callers that name none.

    true, 1, 1.5, "a"               boolean, bigint, double, string; bigint and double together are double
    an object                       a struct of all fields seen
    an array                        an array of what its items are
    null, [], {} and nothing else   string
    several of these in one field   string: the text of a string, the JSON of anything else

Whole numbers beyond 64 bits are strings, which keep all digits. Values that are no JSON objects say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from kafkacore.bounds import SCHEMA_DEPTH, SCHEMA_FIELDS
from kafkacore.decode.ddl import spark_list
from kafkacore.errors import ConfigError

SAMPLE = 1_000
"""Values that are looked at."""

_NOTHING, _ANY = pa.null(), pa.string()


def inferred(values: Iterable[bytes]) -> pa.Schema:
    """The columns of a sample of values; none where no value is an object with fields.

    Raises:
        ConfigError: there are more fields than a table should have: they look like keys of data.
    """
    found: dict[str, Any] = {}
    for value in values:
        try:
            data = json.loads(value)
            if isinstance(data, dict):
                json.dumps(data, ensure_ascii=False).encode()    # half a surrogate pair is JSON, and no text
                _merge(found, data, 0)
        except (ValueError, RecursionError):
            continue
        if _count(found) > SCHEMA_FIELDS:
            raise ConfigError(f"the first values have more than {SCHEMA_FIELDS:,} different fields: name the columns")
    return pa.schema([(name, _type(each)) for name, each in found.items()])


def _merge(fields: dict[str, Any], data: dict[str, Any], depth: int) -> None:
    """Adds an object to what is known of a struct: a dict of its fields, each a dict, a list of one or a type."""
    for name, value in data.items():
        fields[name] = _both(fields.get(name, _NOTHING), value, depth)


def _both(known: Any, value: Any, depth: int) -> Any:
    """What is known of a field after one more value."""
    if value is None or known is _ANY:
        return known
    if isinstance(value, (dict, list)):
        if depth >= SCHEMA_DEPTH:
            return _ANY
        if known is _NOTHING:
            known = {} if isinstance(value, dict) else [_NOTHING]
        if isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value, depth + 1)
        elif isinstance(value, list) and isinstance(known, list):
            for each in value:
                known[0] = _both(known[0], each, depth + 1)
        else:
            return _ANY
        return known
    kind = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(type(value), _ANY)
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        return _ANY
    if isinstance(known, (dict, list)):
        return _ANY
    if known is _NOTHING or known == kind:
        return kind
    return pa.float64() if {known, kind} == {pa.int64(), pa.float64()} else _ANY


def _type(known: Any) -> pa.DataType:
    if isinstance(known, dict):
        return pa.struct([(name, _type(each)) for name, each in known.items()]) if known else _ANY
    if isinstance(known, list):
        return _ANY if known[0] is _NOTHING else spark_list(_type(known[0]))
    return _ANY if known is _NOTHING else known


def _count(known: Any) -> int:
    if isinstance(known, dict):
        return len(known) + sum(map(_count, known.values()))
    return _count(known[0]) if isinstance(known, list) else 0
