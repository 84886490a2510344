"""Answers of brokers as aiokafka hands them out: tuples in the order of its versions of the messages, and the same as dicts.

Source: aiokafka.protocol.admin, aiokafka 0.14.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Names = tuple[Any, ...]
"""Names of a tuple's fields; (name, names) where the field is a list of tuples."""

TOPIC_ERRORS: Names = ("topic", "error_code", "error_message")
TOPIC_CODES: Names = ("topic", "error_code")
ALTERED: Names = ("error_code", "error_message", "resource_type", "resource_name")
SYNONYMS: Names = ("config_name", "config_value", "config_source")
ENTRIES: Names = ("config_names", "config_value", "read_only", "config_source", "is_sensitive", ("config_synonyms", SYNONYMS))
DESCRIBED: Names = (*ALTERED, ("config_entries", ENTRIES))
MEMBERS: Names = ("member_id", "client_id", "client_host", "member_metadata", "member_assignment")
GROUPS: Names = ("error_code", "group", "state", "protocol_type", "protocol", ("members", MEMBERS))
GROUPS_WITH_OPERATIONS: Names = (*GROUPS, "authorized_operations")


class Answer:
    """What a broker answered: `throttle_time_ms`, and a list of tuples under its own name.

    Args:
        throttle_time_ms: of the answer.
        name: of the list.
        names: of the tuples' fields.
        rows: the tuples.
    """

    def __init__(self, throttle_time_ms: int, name: str, names: Names, rows: Iterable[tuple[Any, ...]]) -> None:
        self.throttle_time_ms = throttle_time_ms
        setattr(self, name, list(rows))
        self._name, self._names = name, names

    def to_object(self) -> dict[str, Any]:
        """The same as dicts by field."""
        return {"throttle_time_ms": self.throttle_time_ms, self._name: _dicts(self._names, getattr(self, self._name))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_object()})"


def _dicts(names: Names, rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(_field(name, value) for name, value in zip(names, row, strict=True)) for row in rows]


def _field(name: Any, value: Any) -> tuple[str, Any]:
    return (name, value) if isinstance(name, str) else (name[0], _dicts(name[1], value))
