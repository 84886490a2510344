"""FindCoordinator.

Source: kafka.server.KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

from kafkacore import errors
from kafkacore.broker.authorizer import DESCRIBE, GROUP, TRANSACTIONAL_ID
from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.broker.handlers.access import GROUP_REFUSED, TRANSACTIONAL_ID_REFUSED, may
from kafkacore.broker.handlers.common import MALFORMED, code_of, node_at
from kafkacore.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, creation_of
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import Coordinator, CreateTopicsRequest, CreateTopicsResponse, FindCoordinatorRequest, FindCoordinatorResponse
from kafkacore.protocol.schema import Response
from kafkacore.types import Node

KEY_TYPES = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
RESOURCE_TYPES = {0: GROUP, 1: TRANSACTIONAL_ID}
REFUSED: dict[int, tuple[type[KafkaError], str]] = {
    0: (errors.GroupAuthorization, GROUP_REFUSED),
    1: (errors.TransactionalIdAuthorization, TRANSACTIONAL_ID_REFUSED),
}
SHARE = 2
FIRST_BATCH_VERSION = 4
NO_NODE = Node(-1, "", -1)


def find_coordinator(state: BrokerState, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse | Outcome:
    """FindCoordinator v0-6 for groups and transactional ids; several keys at once from v4 on. The topic in which the coordinator keeps its
    state is made if it is not there. Coordinators of share groups (key type 2) do not exist: INVALID_REQUEST."""
    name = KEY_TYPES.get(request.key_type)
    if name is None or name in state.cluster.topics or not any(_allows(state, call, request, key) for key in _keys(call, request)):
        return _found(state, call, request, None)

    def answer(result: Response | KafkaError) -> Response:
        if isinstance(result, CreateTopicsResponse) and result.topics[0].error_code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
            return _found(state, call, request, result.topics[0].error_message)
        return _found(state, call, request, result.message if isinstance(result, KafkaError) else None)

    return forward(state, call, creation_of(state.cluster, state.config, name), CreateTopicsRequest.MAX_VERSION, answer)


def _keys(call: Call, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if call.version >= FIRST_BATCH_VERSION else [request.key]


def _allows(state: BrokerState, call: Call, request: FindCoordinatorRequest, key: str) -> bool:
    kind = RESOURCE_TYPES.get(request.key_type)
    return kind is None or may(state, call, DESCRIBE, kind, key)


def _found(state: BrokerState, call: Call, request: FindCoordinatorRequest, problem: str | None) -> FindCoordinatorResponse:
    found = []
    for key in _keys(call, request):
        try:
            if not _allows(state, call, request, key):
                refused, message = REFUSED[request.key_type]
                raise refused("" if call.version >= FIRST_BATCH_VERSION else message)
            node = _coordinator(state, call, request.key_type, key, problem)
        except KafkaError as error:
            found.append(
                Coordinator(key=key, node_id=NO_NODE.id, host="", port=NO_NODE.port, error_code=code_of(error), error_message=error.message)
            )
        else:
            found.append(Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_code=0, error_message=""))
    if call.version >= FIRST_BATCH_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ("NONE" if one.error_code == 0 else None),
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(state: BrokerState, call: Call, key_type: int, key: str, problem: str | None) -> Node:
    name = KEY_TYPES.get(key_type)
    if name is None:
        raise errors.InvalidRequest("" if key_type == SHARE and call.version >= FIRST_BATCH_VERSION else MALFORMED)
    topic = state.cluster.topics.get(name)
    if topic is None:
        raise errors.CoordinatorNotAvailable(problem or f"{name} does not exist")
    leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
    node = node_at(state, call.listener, leader)
    if node is None:
        raise errors.CoordinatorNotAvailable(f"no broker leads the partition of {name} that keeps {key!r}")
    return node
