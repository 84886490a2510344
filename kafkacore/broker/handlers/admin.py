"""CreateTopics, DeleteTopics, CreatePartitions, DescribeCluster.

Source: kafka.server.ControllerApis, kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections import Counter

from kafkacore import errors
from kafkacore.broker.cluster import Topic
from kafkacore.broker.handlers.common import ALL_CLUSTER_OPERATIONS, NOT_ASKED, ZERO_ID, code_of
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS_ENDPOINT = 1


def create_topics(state: BrokerState, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """CreateTopics v2-7. Settings that are not implemented are refused with INVALID_CONFIG. The topic is there when the answer is sent, so
    the timeout has nothing to wait for."""
    mentions = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise errors.InvalidRequest(f"topic {wanted.name!r} is named twice in one request")
            results.append(_created(_create(state, wanted, request.validate_only)))
        except KafkaError as error:
            results.append(CreatableTopicResult(name=wanted.name, error_code=code_of(error), error_message=error.message, configs=None))
    return CreateTopicsResponse(topics=results)


def _create(state: BrokerState, wanted: CreatableTopic, validate_only: bool) -> Topic:
    assignments = {assignment.partition_index: assignment.broker_ids for assignment in wanted.assignments}
    if len(assignments) != len(wanted.assignments):
        raise errors.InvalidReplicaAssignment("a partition is assigned twice")
    for config in wanted.configs:
        if config.value is None:
            raise errors.InvalidConfiguration(f"a new topic's {config.name} cannot be null")
    return state.cluster.create_topic(
        wanted.name,
        wanted.num_partitions,
        wanted.replication_factor,
        {config.name: config.value for config in wanted.configs},
        assignments,
        validate_only,
    )


def _created(topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(name=name, value=value, read_only=False, config_source=source, is_sensitive=False)
            for name, value, source in topic.config.describe()
        ],
    )


def delete_topics(state: BrokerState, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """DeleteTopics v1-6 (v6 by id too). The data goes at once."""
    wanted: list[tuple[str | None, bytes]] = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if call.version >= 6
        else [(name, ZERO_ID) for name in request.topic_names]
    )
    responses = []
    mentions = Counter(_mentioned(state, name, topic_id) for name, topic_id in wanted)
    for name, topic_id in dict.fromkeys(wanted):
        try:
            if mentions[_mentioned(state, name, topic_id)] > 1:
                raise errors.InvalidRequest("a topic is named twice in one request")
            topic = _to_delete(state, call, name, topic_id)
            state.cluster.delete_topic(topic)
            responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=0))
        except KafkaError as error:
            shown = name if name is not None or call.version >= 6 else ""
            responses.append(DeletableTopicResult(name=shown, topic_id=topic_id, error_code=code_of(error), error_message=error.message))
    return DeleteTopicsResponse(responses=responses)


def _mentioned(state: BrokerState, name: str | None, topic_id: bytes) -> str | bytes:
    """One value for one topic, whether it is named or given by its id."""
    if name is not None:
        return name
    topic = state.cluster.topics_by_id.get(topic_id)
    return topic_id if topic is None else topic.name


def _to_delete(state: BrokerState, call: Call, name: str | None, topic_id: bytes) -> Topic:
    if not state.config.delete_topic_enable:
        if call.version < 3:
            raise errors.InvalidRequest("delete.topic.enable is false")
        raise errors.TopicDeletionDisabled("delete.topic.enable is false")
    if name is not None:
        if topic_id != ZERO_ID:
            raise errors.InvalidRequest("give either the name or the id of a topic, not both")
        return state.cluster.topic(name)
    if topic_id == ZERO_ID:
        raise errors.InvalidRequest("a topic needs a name or an id")
    topic = state.cluster.topics_by_id.get(topic_id)
    if topic is None:
        raise errors.UnknownTopicId("no topic has this id")
    return topic


def create_partitions(state: BrokerState, call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """CreatePartitions v0-3."""
    mentions = Counter(topic.name for topic in request.topics)
    results = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise errors.InvalidRequest(f"topic {wanted.name!r} is named twice in one request")
            assignments = None if wanted.assignments is None else [assignment.broker_ids for assignment in wanted.assignments]
            state.cluster.create_partitions(wanted.name, wanted.count, assignments, request.validate_only)
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=0))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code_of(error), error_message=error.message))
    return CreatePartitionsResponse(results=results)


def describe_cluster(state: BrokerState, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """DescribeCluster v0-2. Only the brokers' endpoint exists; there are no fenced brokers."""
    cluster = state.cluster
    if call.version >= 1 and request.endpoint_type != BROKERS_ENDPOINT:
        return DescribeClusterResponse(
            error_code=Code.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's listener",
            endpoint_type=BROKERS_ENDPOINT,
            cluster_id=cluster.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=0,
        error_message=None,
        endpoint_type=BROKERS_ENDPOINT,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in cluster.nodes.values()
        ],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
    )
