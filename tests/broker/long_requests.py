"""Requests of about a megabyte with as many elements as fit, for every API, built from the message tables."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from kafkacore import protocol as p
from kafkacore.broker.handlers import SERVED
from kafkacore.protocol.schema import Request, Struct, WireType

MAX_BYTES = 1_000_000
_GIVEN: dict[str, Any] = {
    "timeout_ms": 30_000,
    "acks": 1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "session_epoch": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "key_type": 0,
    "protocol_type": "consumer",
    "group_id": "g",
    "response_partition_limit": 2_000,
    "subscribed_topic_regex": None,
    "controller_mutation_quota": None,
    "upgrade_type": 1,
    "replica_id": -1,
    "allow_auto_topic_creation": False,
    "validate_only": True,
    "replicas": None,
    "assignments": None,
}
"""Values that get a request past its first checks."""


class Shape(enum.Enum):
    """Where the elements are."""

    OUTER = "many items with one element each"
    INNER = "one item with many elements"


class Names(enum.Enum):
    """What the elements are called."""

    DIFFERENT = "each otherwise"
    SAME = "all alike"


def _value(field: Any, name: str, version: int, count: int, shape: Shape, names: Names, nth: int, outermost: bool) -> Any:
    nullable = field.nullable.has(version)
    if field.is_array:
        inner = field.type
        if name in _GIVEN and not outermost:
            return None if nullable else []
        nested = not isinstance(inner, WireType) and any(each.is_array and each.versions.has(version) for each in inner.FIELDS.values())
        many = (outermost and (shape is Shape.OUTER or not nested)) or (not outermost and shape is Shape.INNER and not nested)
        return [_element(inner, version, count, shape, names, nth + at) for at in range(count if many else 1)]
    if isinstance(field.type, WireType):
        if name in _GIVEN:
            return _GIVEN[name]
        if field.type.name == "string":
            return "t" if names is Names.SAME else f"u{nth}"
        if field.type.name in ("int32", "int64") and ("partition" in name or name.endswith("index")):
            return 0 if names is Names.SAME else nth % 7
        if field.type.name == "uuid":
            return nth.to_bytes(16, "big") if names is Names.DIFFERENT else bytes(15) + b"\1"
        return None if nullable and field.type.name in ("bytes", "records") else field.shared_default()
    return None if nullable else _element(field.type, version, count, shape, names, nth)


def _element(kind: Any, version: int, count: int, shape: Shape, names: Names, nth: int) -> Any:
    if isinstance(kind, WireType):
        if kind.name == "string":
            return "t" if names is Names.SAME else f"u{nth}"
        return 0 if names is Names.SAME else nth % 100 if kind.name == "int8" else nth
    return _struct(kind, version, count, shape, names, nth, outermost=False)


def _struct(kind: type[Struct], version: int, count: int, shape: Shape, names: Names, nth: int, *, outermost: bool) -> Any:
    values = {
        name: _value(field, name, version, count, shape, names, nth, outermost)
        for name, field in kind.FIELDS.items()
        if field.versions.has(version) and field.tag is None
    }
    return kind(**values)


def build(kind: type[Request], version: int, count: int, shape: Shape, names: Names) -> bytes:
    """The frame of a request with so many elements."""
    request = _struct(kind, version, count, shape, names, 0, outermost=True)
    return b"".join(bytes(part) for part in p.encode_request(request, version, 1, "long"))


def long_request(api_key: int, version: int, shape: Shape, names: Names, elements: Callable[[bytes], int]) -> bytes:
    """The frame of the longest request.

    Args:
        api_key, version: its API.
        shape: where its elements are.
        names: what they are called.
        elements: how many elements the request in a frame has.
    """
    kind = p.APIS[api_key].request
    limit = SERVED[api_key].max_elements
    one, some = build(kind, version, 1, shape, names), build(kind, version, 101, shape, names)
    each_bytes = (len(some) - len(one)) / 100
    if not each_bytes:
        return one
    each_elements = (elements(some) - elements(one)) / 100
    count = int(min(MAX_BYTES / each_bytes / 1.3, (limit - elements(one)) / each_elements))
    return build(kind, version, count, shape, names)
