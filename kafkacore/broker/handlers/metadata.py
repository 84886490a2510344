"""ApiVersions, Metadata.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

import logging
import re

from kafkacore import errors
from kafkacore.broker.authorizer import CREATE, DESCRIBE, TOPIC
from kafkacore.broker.cluster import ClusterImage, Topic, check_topic_name
from kafkacore.broker.handlers.access import TOPIC_REFUSED, check_topic, cluster_operations, may, may_cluster, operations
from kafkacore.broker.handlers.common import ALL_TOPIC_OPERATIONS, NOT_ASKED, ZERO_ID, code_of, nodes_at
from kafkacore.broker.internal_topics import METADATA_TOPIC, creatable, is_internal
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.errors import Code, KafkaError, from_code
from kafkacore.protocol import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from kafkacore.protocol.schema import Response

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(state: BrokerState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """ApiVersions v0-4. Answers the table the broker was started with, and the features of the cluster. A feature whose lowest level is 0
    is sent to v4 only: clients of v3 took it for a mistake (KAFKA-17011). What is finalized is sent to both, but for
    what a Kafka finalized in this directory and nothing here serves."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    return ApiVersionsResponse(
        error_code=Code.NONE,
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in state.api_versions.items()],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in state.cluster.supported_features.items()
            if low > 0 or call.version >= FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=max(state.cluster.next_offset - 1, 0),
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in state.cluster.features.items()
            if level > 0 and name in state.cluster.supported_features
        ],
    )


def metadata(state: BrokerState, call: Call, request: MetadataRequest) -> MetadataResponse | Outcome:
    """Metadata v0-13: by name, by id (v12+), all topics (null, or an empty list in v0). Unknown names are created if both
    auto.create.topics.enable and the request allow it, and answered when they exist: the client needs CREATE on cluster or topic.
    Which topics there are is shown to who may DESCRIBE them."""
    missing = _to_create(state, call, request)
    denied: dict[str, Code] = {}
    if state.authorizer is not None and missing and not may_cluster(state, call, CREATE):
        denied = {name: Code.TOPIC_AUTHORIZATION_FAILED for name in missing if not may(state, call, CREATE, TOPIC, name)}
        missing = [name for name in missing if name not in denied]
    if not missing:
        return _describe(state, call, request, denied)
    wanted = CreateTopicsRequest(topics=[creatable(state.cluster, state.config, name) for name in missing])

    def answer(result: Response | KafkaError) -> Response:
        if not isinstance(result, CreateTopicsResponse):
            refused = dict.fromkeys(missing, code_of(result) if isinstance(result, KafkaError) else Code.UNKNOWN_SERVER_ERROR)
        else:
            refused = {each.name: Code(each.error_code) for each in result.topics if each.error_code}
            for name, code in refused.items():
                if code is Code.THROTTLING_QUOTA_EXCEEDED:    # which no client expects here: it asks again
                    refused[name] = Code.UNKNOWN_TOPIC_OR_PARTITION
            for each in result.topics:
                if not each.error_code:
                    logger.info("created topic %s with %d partitions because a client asked for it", each.name, each.num_partitions)
        return _describe(state, call, request, denied | refused)

    return forward(state, call, wanted, CreateTopicsRequest.MAX_VERSION, answer, counts=True)


def _to_create(state: BrokerState, call: Call, request: MetadataRequest) -> list[str]:
    """The topics that a Metadata request asks for and that are to be made; internal ones too, with their own settings."""
    if not state.config.auto_create_topics_enable or not (call.version < 4 or request.allow_auto_topic_creation):
        return []
    names = dict.fromkeys(each.name for each in request.topics or [] if each.topic_id == ZERO_ID and each.name is not None)
    missing = [name for name in names if name not in state.cluster.topics and name != METADATA_TOPIC]
    return [name for name in missing if may(state, call, DESCRIBE, TOPIC, name)]


def _describe(state: BrokerState, call: Call, request: MetadataRequest, refused: dict[str, Code]) -> MetadataResponse:
    cluster = state.cluster
    answers: list[MetadataResponseTopic] = []
    is_asked = request.include_topic_authorized_operations

    def allowed(name: str) -> int:
        return operations(state, call, TOPIC, name, ALL_TOPIC_OPERATIONS) if is_asked else NOT_ASKED

    if request.topics is None or (call.version == 0 and not request.topics):
        answers.extend(
            _describe_topic(cluster, topic, allowed(topic.name))
            for topic in cluster.topics.values()
            if may(state, call, DESCRIBE, TOPIC, topic.name)
        )
    else:
        described: set[bytes] = set()
        for wanted in dict.fromkeys(request.topics):  # each once, as in Kafka
            by_id = wanted.topic_id != ZERO_ID
            try:
                if by_id and call.version < 12:
                    raise errors.InvalidRequest(f"Metadata v{call.version} cannot look up topics by id")
                topic = cluster.topics_by_id.get(wanted.topic_id) if by_id else _named(state, call, wanted.name, refused)
                if topic is None:
                    raise errors.UnknownTopicId("no topic has this id")
                if by_id:
                    check_topic(state, call, DESCRIBE, topic.name)
            except KafkaError as error:
                answers.append(
                    MetadataResponseTopic(
                        error_code=code_of(error),
                        name=None if by_id and call.version >= 12 else wanted.name or "",
                        topic_id=wanted.topic_id,
                        partitions=[],
                        topic_authorized_operations=(
                            NOT_ASKED if by_id or isinstance(error, errors.TopicAuthorization) else allowed(wanted.name or "")
                        ),
                    )
                )
            else:
                if topic.topic_id not in described:
                    described.add(topic.topic_id)
                    answers.append(_describe_topic(cluster, topic, allowed(topic.name)))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack)
            for n in nodes_at(state, call.listener, cluster.nodes)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=answers,
        cluster_authorized_operations=(
            cluster_operations(state, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _named(state: BrokerState, call: Call, name: str | None, refused: dict[str, Code]) -> Topic:
    if name is None:
        raise errors.InvalidRequest("a topic needs a name or an id")
    check_topic(state, call, DESCRIBE, name)
    if refused.get(name) is Code.TOPIC_AUTHORIZATION_FAILED:
        raise errors.TopicAuthorization(TOPIC_REFUSED, topic=name)
    topic = state.cluster.topics.get(name)
    if topic is not None:
        return topic
    check_topic_name(name)
    if name in refused:
        raise from_code(refused[name], topic=name)
    raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}", topic=name)


def _describe_topic(cluster: ClusterImage, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                error_code=Code.NONE if partition.leader >= 0 else Code.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=cluster.offline_replicas(partition),
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
