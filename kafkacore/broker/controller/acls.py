"""Access control entries: which are taken, which a filter means, and their records.

Source: org.apache.kafka.controller.AclControlManager, kafka.server.AclApis, org.apache.kafka.common.{acl.AclBindingFilter,
resource.ResourcePatternFilter}.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.broker.cluster import Acl
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafkacore.protocol.metadata_log import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord

UNKNOWN, ANY, MATCH = 0, 1, 2
CLUSTER, CLUSTER_NAME, WILDCARD = 4, "kafka-cluster", "*"
LITERAL, PREFIXED = 3, 4
LAST_RESOURCE_TYPE, LAST_PATTERN_TYPE, LAST_OPERATION, LAST_PERMISSION = 7, 4, 15, 3
"""The last number of each enumeration that Kafka 4.3 knows: the ones behind it are UNKNOWN, too."""
MAX_RECORDS = 10_000
"""The most that one request may change."""
MAX_MATCHING = 10 * MAX_RECORDS
"""The most entries in one answer to DeleteAcls, where several filters mean the same ones. Not a limit of Kafka's."""


def create_acls(state: ControllerState, request: CreateAclsRequest, version: int, now_ms: int) -> Written:
    """CreateAcls v0-3. An entry that is there already stays, without an error; ones that cannot be taken do not keep the others out."""
    if any(_names_many(each) for each in request.creations):
        # Kafka makes an object of each entry first, which fails for the request as a whole.
        refused = AclCreationResult(error_code=Code.UNKNOWN_SERVER_ERROR, error_message=None)
        return Written([], CreateAclsResponse(results=[refused] * len(request.creations)))
    known, new = state.image.acl_ids, set[Acl]()
    records: list[MetadataRecord] = []
    results = []
    for wanted in request.creations:
        try:
            acl = _checked(wanted)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=code_of(error), error_message=error.message))
            continue
        results.append(AclCreationResult(error_code=Code.NONE, error_message=""))
        if acl not in known and acl not in new:
            new.add(acl)
            records.append(AccessControlEntryRecord(id=state.new_uuid(), **acl._asdict()))
    if len(records) > MAX_RECORDS:
        message = "Unable to perform excessively large batch operation."
        too_many = AclCreationResult(error_code=Code.POLICY_VIOLATION, error_message=message)
        return Written([], CreateAclsResponse(results=[each if each.error_code else too_many for each in results]))
    return Written(records, CreateAclsResponse(results=results))


def _names_many(wanted: AclCreation) -> bool:
    return ANY in (wanted.resource_type, wanted.operation, wanted.permission_type) or wanted.resource_pattern_type in (ANY, MATCH)


def _checked(wanted: AclCreation) -> Acl:
    kind, name = wanted.resource_type, wanted.resource_name
    if kind == CLUSTER and name != CLUSTER_NAME:
        raise errors.InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise errors.InvalidRequest("Invalid empty resource name")
    for number, last, what in (
        (kind, LAST_RESOURCE_TYPE, "resourceType"),
        (wanted.resource_pattern_type, LAST_PATTERN_TYPE, "patternType"),
        (wanted.operation, LAST_OPERATION, "operation"),
        (wanted.permission_type, LAST_PERMISSION, "permissionType"),
    ):
        if not UNKNOWN < number <= last:
            raise errors.InvalidRequest(f"Invalid {what} UNKNOWN")
    if ":" not in wanted.principal:
        why = "(no colon is present separating the principal type from the principal name)"
        raise errors.InvalidRequest(f"Could not parse principal from `{wanted.principal}` {why}")
    return Acl(kind, name, wanted.resource_pattern_type, wanted.principal, wanted.host, wanted.operation, wanted.permission_type)


class AclFilter(NamedTuple):
    """Which entries are meant. None and ANY match everything; MATCH is for all patterns that hold for the name."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @classmethod
    def of(cls, asked: Any) -> AclFilter:
        """The filter of a DescribeAcls request, or one of a DeleteAcls request."""
        return cls(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )

    def check(self) -> None:
        """Refuses numbers that are of no enumeration.

        Raises:
            InvalidRequest: there is such a number.
        """
        if not (UNKNOWN < self.resource_type <= LAST_RESOURCE_TYPE and UNKNOWN < self.pattern_type <= LAST_PATTERN_TYPE):
            raise errors.InvalidRequest("Unknown patternFilter.")
        if not (UNKNOWN < self.operation <= LAST_OPERATION and UNKNOWN < self.permission_type <= LAST_PERMISSION):
            raise errors.InvalidRequest("Unknown entryFilter.")

    def matches(self, acl: Acl) -> bool:
        """Whether an entry is meant."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.pattern_type in (ANY, MATCH, acl.pattern_type)
            and (self.name is None or self._matches_name(self.name, acl))
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
        )

    def _matches_name(self, name: str, acl: Acl) -> bool:
        if self.pattern_type != MATCH:
            return name == acl.resource_name
        return name.startswith(acl.resource_name) if acl.pattern_type == PREFIXED else acl.resource_name in (name, WILDCARD)


def found(acls: Iterable[tuple[bytes, Acl]], wanted: AclFilter) -> Iterator[tuple[bytes, Acl]]:
    """The entries that a filter means, with their ids."""
    return ((acl_id, acl) for acl_id, acl in acls if wanted.matches(acl))


def creation_of(acl: Acl) -> AclCreation:
    """What asks for an entry."""
    kind, name, pattern, principal, host, operation, permission = acl
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def filter_of(acl: Acl) -> DeleteAclsFilter:
    """What means this entry and no other."""
    kind, name, pattern, principal, host, operation, permission = acl
    return DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )


class _LookUp:
    """The entries that a filter may mean: many filters of one request do not walk over all entries each."""

    def __init__(self, acls: Mapping[bytes, Acl]) -> None:
        self._acls = acls
        self._by: dict[str, dict[str, dict[bytes, Acl]]] = {}

    def __call__(self, wanted: AclFilter) -> Iterable[tuple[bytes, Acl]]:
        if wanted.name is not None and wanted.pattern_type != MATCH:
            return self._index("resource_name").get(wanted.name, {}).items()
        if wanted.principal is not None:
            return self._index("principal").get(wanted.principal, {}).items()
        return self._acls.items()

    def _index(self, field: str) -> dict[str, dict[bytes, Acl]]:
        index = self._by.get(field)
        if index is None:
            index = self._by[field] = {}
            for acl_id, acl in self._acls.items():
                index.setdefault(getattr(acl, field), {})[acl_id] = acl
        return index


def delete_acls(state: ControllerState, request: DeleteAclsRequest, version: int, now_ms: int) -> Written:
    """DeleteAcls v0-3. An entry that several filters mean is in the answer to each."""
    removed: dict[bytes, MetadataRecord] = {}
    results = []
    num_matching = 0
    look_up = _LookUp(state.image.acls)
    for each in request.filters:
        wanted = AclFilter.of(each)
        try:
            wanted.check()
        except KafkaError as error:
            results.append(DeleteAclsFilterResult(error_code=code_of(error), error_message=error.message, matching_acls=[]))
            continue
        matching = []
        for acl_id, acl in found(look_up(wanted), wanted):
            removed[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
            matching.append(DeleteAclsMatchingAcl(error_code=Code.NONE, error_message=None, **acl._asdict()))
        results.append(DeleteAclsFilterResult(error_code=Code.NONE, error_message=None, matching_acls=matching))
        num_matching += len(matching)
        if num_matching > MAX_MATCHING:
            break
    if len(removed) > MAX_RECORDS or num_matching > MAX_MATCHING:
        message = f"Cannot remove more than {MAX_RECORDS} acls in a single delete operation."
        too_many = DeleteAclsFilterResult(error_code=Code.INVALID_REQUEST, error_message=message, matching_acls=[])
        return Written([], DeleteAclsResponse(filter_results=[too_many] * len(request.filters)))
    return Written(list(removed.values()), DeleteAclsResponse(filter_results=results))
