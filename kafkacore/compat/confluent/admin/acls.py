"""confluent-kafka's ACLs and their filters, and how they become the engine's.

Source: confluent_kafka.admin._acl, confluent-kafka 2.16.
"""

from __future__ import annotations

from enum import Enum
from functools import total_ordering
from typing import Any, ClassVar

from kafkacore.admin import Acl, AclFilter
from kafkacore.compat.confluent.admin.kinds import AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from kafkacore.compat.confluent.model import E, member_of

_KINDS: dict[str, type[Enum]] = {
    "restype": ResourceType,
    "resource_pattern_type": ResourcePatternType,
    "operation": AclOperation,
    "permission_type": AclPermissionType,
}
_FIELDS = ("restype", "name", "resource_pattern_type", "principal", "host", "operation", "permission_type")


@total_ordering
class AclBinding:
    """Who may, or may not, do what, from where. Enumerations are also taken by name or number.

    Raises:
        ValueError: a field is None, or has a value that is for filters only.
        TypeError: a field has another type.
    """

    _may_be_none: ClassVar[frozenset[str]] = frozenset()
    _forbidden: ClassVar[frozenset[str]] = frozenset({"ANY", "MATCH"})

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str,
        host: str,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        given = (restype, name, resource_pattern_type, principal, host, operation, permission_type)
        for field, value in zip(_FIELDS, given, strict=True):
            setattr(self, field, self._checked(field, value))

    restype: ResourceType
    name: str
    resource_pattern_type: ResourcePatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def _checked(self, field: str, value: Any) -> Any:
        if value is None and field not in self._may_be_none:
            raise ValueError(f"Expected {field} to be not None")
        if field not in _KINDS:
            if value is not None and not isinstance(value, str):
                raise TypeError(f"Expected {field} to be a string")
            return value
        member = member_of(value, _KINDS[field])
        if member.name in self._forbidden:
            raise ValueError(f"Cannot use enum {field}, value {member.name} in this class")
        return member

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in _FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._key()))})"

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, AclBinding) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, AclBinding) else NotImplemented


class AclBindingFilter(AclBinding):
    """Which ACLs a call is about: None and ANY match everything; the pattern type MATCH, what holds for the resource."""

    _may_be_none = frozenset({"name", "principal", "host"})
    _forbidden = frozenset({"UNKNOWN"})


def _word(member: Enum) -> str:
    return "cluster" if member is ResourceType.BROKER else member.name.lower()


def _member(word: str, kind: type[E]) -> E:
    return kind.__members__.get("BROKER" if word == "cluster" else word.upper(), kind["UNKNOWN"])


def engines_acl(given: AclBinding) -> Acl:
    """The engine's entry."""
    return Acl(
        _word(given.restype),
        given.name,
        given.principal,
        _word(given.operation),
        given.host,
        _word(given.permission_type),
        _word(given.resource_pattern_type),
    )


def engines_filter(given: AclBindingFilter) -> AclFilter:
    """The engine's filter."""
    return AclFilter(*engines_acl(given))


def binding_of(found: Acl) -> AclBinding:
    """From the engine's entry; what confluent-kafka has no name for is UNKNOWN."""
    return AclBinding(
        _member(found.resource_type, ResourceType),
        found.resource_name,
        _member(found.pattern_type, ResourcePatternType),
        found.principal,
        found.host,
        _member(found.operation, AclOperation),
        _member(found.permission, AclPermissionType),
    )
