"""ACLs: DescribeAcls by the broker's image, CreateAcls and DeleteAcls by the controller.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from kafkacore.broker.authorizer import DESCRIBE
from kafkacore.broker.cluster import Acl
from kafkacore.broker.controller.acls import UNKNOWN, AclFilter, found
from kafkacore.broker.handlers.access import CLUSTER_REFUSED, may_cluster
from kafkacore.broker.handlers.forwarding import REFUSALS, pass_on
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code
from kafkacore.protocol import (
    AclDescription,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kafkacore.protocol.schema import Response

NO_AUTHORIZER = "No Authorizer is configured."

# UNKNOWN is what no client can mean. Kafka closes the connection that it comes by.


def describe_acls(state: BrokerState, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse | Outcome:
    """DescribeAcls v0-3."""
    if UNKNOWN in (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type):
        return Outcome.CLOSE
    if state.authorizer is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=message, resources=[])
    if not may_cluster(state, call, DESCRIBE):
        return DescribeAclsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED, error_message=CLUSTER_REFUSED, resources=[])
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for _, acl in found(state.cluster.acls.items(), AclFilter.of(request)):
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return DescribeAclsResponse(
        error_code=Code.NONE,
        error_message="",
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type)
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in resources.items()
        ],
    )


def create_acls(state: BrokerState, call: Call, request: CreateAclsRequest) -> Response | Outcome:
    """CreateAcls v0-3."""
    for acl in request.creations:
        if UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type):
            return Outcome.CLOSE
    return _change(state, call, request)


def delete_acls(state: BrokerState, call: Call, request: DeleteAclsRequest) -> Response | Outcome:
    """DeleteAcls v0-3."""
    for acl in request.filters:
        if UNKNOWN in (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type):
            return Outcome.CLOSE
    return _change(state, call, request)


def _change(state: BrokerState, call: Call, request: CreateAclsRequest | DeleteAclsRequest) -> Response | Outcome:
    if state.authorizer is None:
        return REFUSALS[request.API_KEY](request, Code.SECURITY_DISABLED, NO_AUTHORIZER, call.version)
    return pass_on(state, call, request)
