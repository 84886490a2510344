"""What the active controller answers for an admin client that was given `bootstrap_controllers` (KIP-919).

Source: the listeners of Kafka's message definitions, ControllerApis, KafkaAdminClient.
"""

from __future__ import annotations

from typing import Any

from kafkacore import errors
from kafkacore.errors import Code
from kafkacore.protocol import (
    AddRaftVoterRequest,
    AlterClientQuotasRequest,
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    RenewDelegationTokenRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

SERVED = frozenset({
    AddRaftVoterRequest, AlterClientQuotasRequest, AlterPartitionReassignmentsRequest, AlterUserScramCredentialsRequest, ApiVersionsRequest,
    CreateAclsRequest, CreateDelegationTokenRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest, DeleteTopicsRequest,
    DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeQuorumRequest, ElectLeadersRequest,
    ExpireDelegationTokenRequest, IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest, RemoveRaftVoterRequest,
    RenewDelegationTokenRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
})  # fmt: skip
"""The requests that controllers serve."""
_OF_THE_LOG = frozenset({AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest})
"""Those that the leader of the metadata log answers, whom they call leader."""


def check_served(api: type[Any]) -> None:
    """Refuses a request that controllers do not serve.

    Raises:
        errors.UnsupportedEndpointType: it goes to brokers.
    """
    if api not in SERVED:
        name = api.__name__.removesuffix("Request")
        text = "controllers do not serve this request; a client with bootstrap_servers sends it to a broker"
        raise errors.UnsupportedEndpointType(text, api=name)


def no_longer_active(api: type[Any], response: Any) -> errors.KafkaError | None:
    """An answer of a controller that is not the active one, or not any more: the answer as a whole says so, or each of its items."""
    code = _first_code(response, depth=3)
    if code == Code.NOT_CONTROLLER or (code == Code.NOT_LEADER_OR_FOLLOWER and api in _OF_THE_LOG):
        name = api.__name__.removesuffix("Request")
        return errors.from_code(code, "this controller is not the active one", api=name, invalid_metadata=True)
    return None


def _first_code(part: Any, depth: int) -> int:
    """The error code of an answer, or of the first items in it; 0 without one."""
    code: int = getattr(part, "error_code", 0)
    if code or not depth:
        return code
    for name in part.FIELDS:
        value = getattr(part, name)
        if isinstance(value, list) and value and hasattr(value[0], "FIELDS") and (code := _first_code(value[0], depth - 1)):
            return code
    return 0
