"""Creating, deleting and growing topics: what of a request the client may ask for is passed on, the rest is refused here.

    CreateTopics       CREATE on the cluster, or on the topic; its settings are shown to who may DESCRIBE_CONFIGS
    DeleteTopics       DELETE on the cluster, or on the topic; whether it exists is shown to who may DESCRIBE it
    CreatePartitions   ALTER on the topic

What is named twice, and the topic of the metadata log, is refused by the controller, whatever the client may do.

Source: kafka.server.ControllerApis.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from kafkacore.broker.authorizer import ALTER, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from kafkacore.broker.handlers.access import TOPIC_REFUSED, may, may_cluster
from kafkacore.broker.handlers.common import ZERO_ID
from kafkacore.broker.handlers.forwarding import pass_on, pass_on_then
from kafkacore.broker.internal_topics import METADATA_TOPIC
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code
from kafkacore.protocol import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkacore.protocol.schema import Response

_REFUSED = Code.TOPIC_AUTHORIZATION_FAILED


def create_topics(state: BrokerState, call: Call, request: CreateTopicsRequest) -> Response | Outcome:
    """CreateTopics v2-7."""
    if state.authorizer is None:
        return pass_on(state, call, request)
    mentions = Counter(each.name for each in request.topics)
    refused: set[str] = set()
    if not may_cluster(state, call, CREATE):
        single = [name for name, count in mentions.items() if count == 1 and name != METADATA_TOPIC]
        refused = {name for name in single if not may(state, call, CREATE, TOPIC, name)}

    def answer(response: Response) -> Response:
        results = [
            each if each.error_code or may(state, call, DESCRIBE_CONFIGS, TOPIC, each.name) else _without_settings(each)
            for each in cast(CreateTopicsResponse, response).topics
        ]
        results += [
            CreatableTopicResult(name=name, error_code=_REFUSED, error_message="Authorization failed.", configs=[])
            for name in mentions
            if name in refused
        ]
        return CreateTopicsResponse(topics=results)

    allowed = request._replace(topics=[each for each in request.topics if each.name not in refused])
    return pass_on_then(state, call, allowed, answer) if allowed.topics else answer(CreateTopicsResponse(topics=[]))


def _without_settings(created: CreatableTopicResult) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=created.name, topic_id=created.topic_id, error_code=Code.NONE, topic_config_error_code=_REFUSED, configs=[]
    )


def delete_topics(state: BrokerState, call: Call, request: DeleteTopicsRequest) -> Response | Outcome:
    """DeleteTopics v1-6."""
    if state.authorizer is None or may_cluster(state, call, DELETE):
        return pass_on(state, call, request)
    by_id = call.version >= FIRST_DELETION_BY_ID
    wanted = [(each.name, each.topic_id) for each in request.topics] if by_id else [(name, ZERO_ID) for name in request.topic_names]
    mentions = Counter(wanted)
    refused = {
        key: result for key, count in mentions.items() if count == 1 and (result := _refused_deletion(state, call, *key)) is not None
    }

    def answer(response: Response) -> Response:
        return DeleteTopicsResponse(responses=[*cast(DeleteTopicsResponse, response).responses, *refused.values()])

    if by_id:
        allowed = request._replace(topics=[each for each in request.topics if (each.name, each.topic_id) not in refused])
    else:
        allowed = request._replace(topic_names=[name for name in request.topic_names if (name, ZERO_ID) not in refused])
    is_any = allowed.topics or allowed.topic_names
    return pass_on_then(state, call, allowed, answer) if is_any else answer(DeleteTopicsResponse(responses=[]))


FIRST_DELETION_BY_ID = 6


def _refused_deletion(state: BrokerState, call: Call, name: str | None, topic_id: bytes) -> DeletableTopicResult | None:
    """Why the client may not delete a topic; None if it may, or if the controller refuses what is asked anyway."""
    if name is None:
        if topic_id == ZERO_ID:
            return None
        known = state.cluster.topics_by_id.get(topic_id)
        if known is None:  # to the controller it may be known already, which does not ask who may
            message = "This server does not host this topic ID."
            return DeletableTopicResult(name=None, topic_id=topic_id, error_code=Code.UNKNOWN_TOPIC_ID, error_message=message)
        if may(state, call, DELETE, TOPIC, known.name):
            return None
        shown = known.name if may(state, call, DESCRIBE, TOPIC, known.name) else None
        return DeletableTopicResult(name=shown, topic_id=topic_id, error_code=_REFUSED, error_message=TOPIC_REFUSED)
    if topic_id != ZERO_ID:
        return None
    if may(state, call, DESCRIBE, TOPIC, name):
        if may(state, call, DELETE, TOPIC, name):
            return None
        if name not in state.cluster.topics:
            message = "This server does not host this topic-partition."
            return DeletableTopicResult(name=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION, error_message=message)
    return DeletableTopicResult(name=name, error_code=_REFUSED, error_message=TOPIC_REFUSED)


def create_partitions(state: BrokerState, call: Call, request: CreatePartitionsRequest) -> Response | Outcome:
    """CreatePartitions v0-3."""
    if state.authorizer is None:
        return pass_on(state, call, request)
    mentions = Counter(each.name for each in request.topics)
    refused = {name for name, count in mentions.items() if count == 1 and not may(state, call, ALTER, TOPIC, name)}

    def answer(response: Response) -> Response:
        results = [CreatePartitionsTopicResult(name=name, error_code=_REFUSED) for name in mentions if name in refused]
        return CreatePartitionsResponse(results=[*cast(CreatePartitionsResponse, response).results, *results])

    allowed = request._replace(topics=[each for each in request.topics if each.name not in refused])
    return pass_on_then(state, call, allowed, answer) if allowed.topics else answer(CreatePartitionsResponse(results=[]))
