"""Who may do what: ACLs. There is no authorizer.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code
from kafkacore.protocol import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured."


UNKNOWN = 0
"""Of every enumeration in an ACL: what no client can mean. Kafka closes the connection of who sends it."""


def describe_acls(state: BrokerState, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse | Outcome:
    """DescribeAcls v1-3: SECURITY_DISABLED."""
    if UNKNOWN in (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type):
        return Outcome.CLOSE
    message = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=message, resources=[])


def create_acls(state: BrokerState, call: Call, request: CreateAclsRequest) -> CreateAclsResponse | Outcome:
    """CreateAcls v1-3: SECURITY_DISABLED for each."""
    for acl in request.creations:
        if UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type):
            return Outcome.CLOSE
    refused = AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(state: BrokerState, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse | Outcome:
    """DeleteAcls v1-3: SECURITY_DISABLED for each."""
    for acl in request.filters:
        if UNKNOWN in (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type):
            return Outcome.CLOSE
    refused = DeleteAclsFilterResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
