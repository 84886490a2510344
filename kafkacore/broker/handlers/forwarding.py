"""Requests that only the controller can carry out: passed on as they are, answered when this broker's image shows the result.

Source: kafka.server.{ForwardingManager, KafkaApis.forwardToController}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore.broker.authorizer import ALTER, ALTER_CONFIGS, DESCRIBE
from kafkacore.broker.controller.tokens import create_response, principal_of
from kafkacore.broker.handlers.access import CLUSTER_REFUSED, may_cluster
from kafkacore.broker.handlers.common import code_of
from kafkacore.broker.handlers.parts import not_elected, not_reassigned
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AclCreationResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    AlteredClientQuota,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CreatableTopicResult,
    CreateAclsRequest,
    CreateAclsResponse,
    CreateDelegationTokenRequest,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkacore.protocol.schema import Response

WITH_DEADLINE = (19, 20, 37, 43, 45)
COUNTED = (19, 20, 37)
"""What controller_mutation_rate is for: partitions that are created and deleted."""

ON_CLUSTER = {
    30: ALTER,
    31: ALTER,
    43: ALTER,
    45: ALTER,
    46: DESCRIBE,
    49: ALTER_CONFIGS,
    51: ALTER,
    57: ALTER,
    64: ALTER,
}
"""What a client must be allowed to do to the cluster, by API key. For the others it depends on what the request names."""


def pass_on(state: BrokerState, call: Call, request: Any) -> Response | Outcome:
    """Every API of `REFUSALS`, in the versions the controller serves: the controller's answer, or a refusal of everything the request names
    if it gives none, or if the client may not ask. What is to be done within no time at all is not attempted."""
    refuse = REFUSALS[request.API_KEY]
    operation = ON_CLUSTER.get(request.API_KEY)
    if operation is not None and not may_cluster(state, call, operation):
        return refuse(request, Code.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_REFUSED, call.version)
    return pass_on_then(state, call, request, lambda response: response)


def pass_on_then(state: BrokerState, call: Call, request: Any, then: Callable[[Response], Response]) -> Response | Outcome:
    """Passes on what the client may ask.

    Args:
        state: the broker's.
        call: the client's.
        request: for the controller.
        then: makes the client's answer out of the controller's.
    """
    refuse = REFUSALS[request.API_KEY]
    if request.API_KEY in WITH_DEADLINE and request.timeout_ms <= 0:
        return then(refuse(request, Code.REQUEST_TIMED_OUT, f"{request.timeout_ms} ms are over", call.version))

    def answer(result: Response | KafkaError) -> Response:
        return then(refuse(request, code_of(result), result.message, call.version) if isinstance(result, KafkaError) else result)

    return forward(state, call, request, call.version, answer, counts=request.API_KEY in COUNTED)


def _refuse_create_topics(request: CreateTopicsRequest, code: Code, message: str, version: int) -> Response:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=each.name, error_code=code, error_message=message, configs=[]) for each in request.topics]
    )


def _refuse_delete_topics(request: DeleteTopicsRequest, code: Code, message: str, version: int) -> Response:
    named = [(each.name, each.topic_id) for each in request.topics] if version >= 6 else [(name, bytes(16)) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message) for name, topic_id in named]
    )


def _refuse_create_partitions(request: CreatePartitionsRequest, code: Code, message: str, version: int) -> Response:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=each.name, error_code=code, error_message=message) for each in request.topics]
    )


def _refuse_elect_leaders(request: ElectLeadersRequest, code: Code, message: str, version: int) -> Response:
    results = not_elected(request, code, message)
    return ElectLeadersResponse(error_code=code if version >= 1 else Code.NONE, replica_election_results=results)


def _refuse_alter_reassignments(request: AlterPartitionReassignmentsRequest, code: Code, message: str, version: int) -> Response:
    responses = not_reassigned(request, code, message)
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)


def _refuse_list_reassignments(request: ListPartitionReassignmentsRequest, code: Code, message: str, version: int) -> Response:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])


def _refuse_unregister_broker(request: UnregisterBrokerRequest, code: Code, message: str, version: int) -> Response:
    return UnregisterBrokerResponse(error_code=code, error_message=message)


def _refuse_client_quotas(request: AlterClientQuotasRequest, code: Code, message: str, version: int) -> Response:
    return AlterClientQuotasResponse(
        entries=[AlteredClientQuota(error_code=code, error_message=message, entity=each.entity) for each in request.entries]
    )


def _refuse_scram_credentials(request: AlterUserScramCredentialsRequest, code: Code, message: str, version: int) -> Response:
    users = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message) for name in users]
    )


def _refuse_update_features(request: UpdateFeaturesRequest, code: Code, message: str, version: int) -> Response:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


def _refuse_alter_configs(request: AlterConfigsRequest, code: Code, message: str, version: int) -> Response:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        ]
    )


def _refuse_incremental_alter_configs(request: IncrementalAlterConfigsRequest, code: Code, message: str, version: int) -> Response:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        ]
    )


def _refuse_create_acls(request: CreateAclsRequest, code: Code, message: str, version: int) -> Response:
    return CreateAclsResponse(results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations])


def _refuse_delete_acls(request: DeleteAclsRequest, code: Code, message: str, version: int) -> Response:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[]) for _ in request.filters]
    )


def _refuse_create_token(request: CreateDelegationTokenRequest, code: Code, message: str, version: int) -> Response:
    return create_response(version, "", principal_of(request.owner_principal_type, request.owner_principal_name, ""), error_code=code)


def _refuse_renew_token(request: RenewDelegationTokenRequest, code: Code, message: str, version: int) -> Response:
    return RenewDelegationTokenResponse(error_code=code)


def _refuse_expire_token(request: ExpireDelegationTokenRequest, code: Code, message: str, version: int) -> Response:
    return ExpireDelegationTokenResponse(error_code=code)


REFUSALS: dict[int, Callable[[Any, Code, str, int], Response]] = {
    19: _refuse_create_topics,
    20: _refuse_delete_topics,
    30: _refuse_create_acls,
    31: _refuse_delete_acls,
    33: _refuse_alter_configs,
    37: _refuse_create_partitions,
    38: _refuse_create_token,
    39: _refuse_renew_token,
    40: _refuse_expire_token,
    43: _refuse_elect_leaders,
    44: _refuse_incremental_alter_configs,
    45: _refuse_alter_reassignments,
    46: _refuse_list_reassignments,
    49: _refuse_client_quotas,
    51: _refuse_scram_credentials,
    57: _refuse_update_features,
    64: _refuse_unregister_broker,
}
"""What answers a request that the controller did not, by API key."""
