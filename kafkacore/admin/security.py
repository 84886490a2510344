"""Access control entries.

Source: Kafka's KafkaAdminClient.{describeAcls, createAcls, deleteAcls}, org.apache.kafka.common.acl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase, ItemResults, complete
from kafkacore.plurals import counted
from kafkacore.protocol import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

RESOURCE_TYPES = {"any": 1, "topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7}
PATTERN_TYPES = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
OPERATIONS = {
    "any": 1,
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
    "create_tokens": 13,
    "describe_tokens": 14,
    "two_phase_commit": 15,
}
PERMISSIONS = {"any": 1, "deny": 2, "allow": 3}
_NOT_ASKED = -(2**31)


def operations_of(bits: int) -> list[str] | None:
    """What a broker says that a principal may do (KIP-430); None where it was not asked."""
    return (
        None if bits == _NOT_ASKED else [word for word, number in OPERATIONS.items() if number > OPERATIONS["all"] and bits >> number & 1]
    )


class Acl(NamedTuple):
    """Who may (or may not) do what, from where.

    Attributes:
        resource_type: topic, group, cluster, transactional_id, delegation_token or user.
        resource_name: its name, or the beginning of names; "kafka-cluster" for the cluster.
        principal: as "User:alice"; `User:*` is everybody.
        operation: read, write, create, delete, alter, describe, ... or all.
        host: an address, or `*`.
        permission: allow or deny.
        pattern_type: literal or prefixed.
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    host: str = "*"
    permission: str = "allow"
    pattern_type: str = "literal"


class AclFilter(NamedTuple):
    """Which entries are meant; None and "any" match everything. pattern_type "match" means all entries that hold for resource_name."""

    resource_type: str = "any"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "any"
    host: str | None = None
    permission: str = "any"
    pattern_type: str = "any"


def _number(table: Mapping[str, int], word: str, what: str) -> int:
    number = table.get(word)
    if number is None:
        raise errors.UsageError(f"{what} is one of {', '.join(table)}, not {word!r}")
    return number


def _word(table: Mapping[str, int], number: int) -> str:
    return next((word for word, known in table.items() if known == number), "unknown")


def _filter_fields(given: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": _number(RESOURCE_TYPES, given.resource_type, "a resource type"),
        "resource_name_filter": given.resource_name,
        "pattern_type_filter": _number(PATTERN_TYPES, given.pattern_type, "a pattern type"),
        "principal_filter": given.principal,
        "host_filter": given.host,
        "operation": _number(OPERATIONS, given.operation, "an operation"),
        "permission_type": _number(PERMISSIONS, given.permission, "a permission"),
    }


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        _word(RESOURCE_TYPES, resource.resource_type),
        resource.resource_name,
        entry.principal,
        _word(OPERATIONS, entry.operation),
        entry.host,
        _word(PERMISSIONS, entry.permission_type),
        _word(PATTERN_TYPES, resource.pattern_type),
    )


class SecurityAdmin(AdminBase):
    """The calls about access."""

    def describe_acls(self, matching: AclFilter | None = None, *, timeout: float | None = None) -> list[Acl]:
        """The entries that match.

        Args:
            matching: None for all.
            timeout: seconds.

        Raises:
            errors.SecurityDisabled: the cluster has no authorizer.
        """
        fields = _filter_fields(matching or AclFilter())
        response = self._ask(DescribeAclsRequest, lambda version: DescribeAclsRequest(**fields), self._timeout_ms(timeout))
        errors.raise_for(response.error_code, response.error_message, api="DescribeAcls")
        return [_acl(resource, entry) for resource in response.resources for entry in resource.acls]

    def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = None) -> ItemResults[Acl, None]:
        """Adds entries.

        Args:
            acls: what to add; an entry that is there stays.
            timeout: seconds.

        Returns:
            By entry. Typical errors: SecurityDisabled, InvalidRequest.
        """
        wanted = list(dict.fromkeys(acls))
        creations = [
            AclCreation(
                resource_type=_number(RESOURCE_TYPES, each.resource_type, "a resource type"),
                resource_name=each.resource_name,
                resource_pattern_type=_number(PATTERN_TYPES, each.pattern_type, "a pattern type"),
                principal=each.principal,
                host=each.host,
                operation=_number(OPERATIONS, each.operation, "an operation"),
                permission_type=_number(PERMISSIONS, each.permission, "a permission"),
            )
            for each in wanted
        ]
        if not wanted:
            return ItemResults({}, {})
        response = self._ask(CreateAclsRequest, lambda version: CreateAclsRequest(creations=creations), self._timeout_ms(timeout))
        made: dict[Acl, None] = {}
        failed: dict[Acl, errors.KafkaError] = {}
        for each, item in zip(wanted, response.results, strict=False):  # in the order of the request
            if item.error_code:
                failed[each] = errors.from_code(item.error_code, item.error_message, api="CreateAcls")
            else:
                made[each] = None
        return complete(ItemResults(made, failed), wanted, "CreateAcls")

    def delete_acls(self, filters: Iterable[AclFilter], *, timeout: float | None = None) -> ItemResults[AclFilter, list[Acl]]:
        """Deletes the entries that match.

        Args:
            filters: what matches one of them goes.
            timeout: seconds.

        Returns:
            By filter, the deleted entries. Typical errors: SecurityDisabled; PartlyDoneError, whose `done` has what is deleted.
        """
        wanted = list(dict.fromkeys(filters))
        entries = [DeleteAclsFilter(**_filter_fields(each)) for each in wanted]
        if not wanted:
            return ItemResults({}, {})
        response = self._ask(DeleteAclsRequest, lambda version: DeleteAclsRequest(filters=entries), self._timeout_ms(timeout))
        deleted: dict[AclFilter, list[Acl]] = {}
        failed: dict[AclFilter, errors.KafkaError] = {}
        for each, item in zip(wanted, response.filter_results, strict=False):  # in the order of the request
            removed = [_acl(acl, acl) for acl in item.matching_acls if not acl.error_code]
            refused = {
                _acl(acl, acl): errors.from_code(acl.error_code, acl.error_message, api="DeleteAcls")
                for acl in item.matching_acls
                if acl.error_code
            }
            if item.error_code:
                failed[each] = errors.from_code(item.error_code, item.error_message, api="DeleteAcls")
            elif refused:
                failed[each] = _partly(removed, refused)
            else:
                deleted[each] = removed
        return complete(ItemResults(deleted, failed), wanted, "DeleteAcls")


def _partly(removed: Sequence[Acl], refused: Mapping[Acl, errors.KafkaError]) -> errors.PartlyDoneError:
    first = next(iter(refused.values()))
    error = errors.PartlyDoneError(
        f"{len(removed)} of {counted(len(removed) + len(refused), 'entry', 'entries')} deleted; {first}", api="DeleteAcls", code=first.code
    )
    error.done, error.refused = tuple(removed), dict(refused)
    return error
