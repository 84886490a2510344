"""Requests that only the controller can carry out: passed on as they are, answered when this broker's image shows the result.

Source: kafka.server.{ForwardingManager, KafkaApis.forwardToController}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacore.broker.handlers.common import code_of
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReplicaElectionResult,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kafkacore.protocol.schema import Request, Response


def pass_on(state: BrokerState, call: Call, request: Request) -> Outcome:
    """Every API of `REFUSALS`, in the versions the controller serves: the controller's answer, or a refusal of everything the request names
    if it gives none."""
    refuse = REFUSALS[request.API_KEY]

    def answer(result: Response | KafkaError) -> Response:
        if isinstance(result, KafkaError):
            return refuse(request, code_of(result), result.message, call.version)
        return result

    return forward(state, call, request, call.version, answer)


def _refuse_create_topics(request: CreateTopicsRequest, code: Code, message: str, version: int) -> Response:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=each.name, error_code=code, error_message=message, configs=None) for each in request.topics]
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
    results = [
        ReplicaElectionResult(
            topic=each.topic,
            partition_result=[PartitionResult(partition_id=index, error_code=code, error_message=message) for index in each.partitions],
        )
        for each in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _refuse_alter_reassignments(request: AlterPartitionReassignmentsRequest, code: Code, message: str, version: int) -> Response:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=[])


def _refuse_list_reassignments(request: ListPartitionReassignmentsRequest, code: Code, message: str, version: int) -> Response:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])


def _refuse_unregister_broker(request: UnregisterBrokerRequest, code: Code, message: str, version: int) -> Response:
    return UnregisterBrokerResponse(error_code=code, error_message=message)


REFUSALS: dict[int, Callable[[Any, Code, str, int], Response]] = {
    19: _refuse_create_topics,
    20: _refuse_delete_topics,
    37: _refuse_create_partitions,
    43: _refuse_elect_leaders,
    45: _refuse_alter_reassignments,
    46: _refuse_list_reassignments,
    64: _refuse_unregister_broker,
}
"""What answers a request that the controller did not, by API key."""
