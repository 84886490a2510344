"""Who may do what: ACLs. There is no authorizer.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from kafkacore.broker.state import BrokerState, Call
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


def describe_acls(state: BrokerState, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """DescribeAcls v1-3: SECURITY_DISABLED."""
    message = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=message, resources=[])


def create_acls(state: BrokerState, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """CreateAcls v1-3: SECURITY_DISABLED for each."""
    refused = AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(state: BrokerState, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """DeleteAcls v1-3: SECURITY_DISABLED for each."""
    refused = DeleteAclsFilterResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
