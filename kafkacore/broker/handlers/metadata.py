"""ApiVersions, Metadata.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

import logging
import re

from kafkacore import errors
from kafkacore.broker.cluster import FEATURES, Topic, check_topic_name
from kafkacore.broker.handlers.common import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_ASKED, ZERO_ID, code_of
from kafkacore.broker.internal_topics import is_internal
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(state: BrokerState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """ApiVersions v0-4. Answers the table the broker was started with, and the features of the cluster. A feature whose lowest level is 0
    is told to v4 only: clients of v3 took it for a mistake (KAFKA-17011). What is finalized is told to both."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        error_code=Code.NONE,
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in state.api_versions.items()],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in FEATURES.items()
            if low > 0 or call.version >= FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in state.cluster.features.items()
            if level > 0
        ],
    )


def metadata(state: BrokerState, call: Call, request: MetadataRequest) -> MetadataResponse:
    """Metadata v0-13: by name, by id (v12+), all topics (null, or an empty list in v0). Unknown names are created if both
    auto.create.topics.enable and the request allow it, and answered at once. All operations are authorized."""
    cluster = state.cluster
    answers: list[MetadataResponseTopic] = []
    operations = ALL_TOPIC_OPERATIONS if call.version >= 8 and request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (call.version == 0 and not request.topics):
        answers.extend(_describe_topic(topic, operations) for topic in cluster.topics.values())
    else:
        create = state.config.auto_create_topics_enable and (call.version < 4 or request.allow_auto_topic_creation)
        described: set[bytes] = set()
        for wanted in request.topics:
            by_id = wanted.topic_id != ZERO_ID
            try:
                if by_id and call.version < 12:
                    raise errors.InvalidRequest(f"Metadata v{call.version} cannot look up topics by id")
                topic = cluster.topics_by_id.get(wanted.topic_id) if by_id else _named(state, wanted.name, create)
                if topic is None:
                    raise errors.UnknownTopicId("no topic has this id")
            except KafkaError as error:
                answers.append(
                    MetadataResponseTopic(
                        error_code=code_of(error),
                        name=None if by_id and call.version >= 12 else wanted.name or "",
                        topic_id=wanted.topic_id,
                        partitions=[],
                    )
                )
            else:
                if topic.topic_id not in described:
                    described.add(topic.topic_id)
                    answers.append(_describe_topic(topic, operations))
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in cluster.nodes.values()],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=answers,
        cluster_authorized_operations=(
            ALL_CLUSTER_OPERATIONS if 8 <= call.version <= 10 and request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _named(state: BrokerState, name: str | None, create: bool) -> Topic:
    if name is None:
        raise errors.InvalidRequest("a topic needs a name or an id")
    topic = state.cluster.topics.get(name)
    if topic is not None:
        return topic
    check_topic_name(name)
    if not create:
        raise errors.UnknownTopicOrPartition(f"there is no topic {name!r}", topic=name)
    topic = state.cluster.create_topic(name)
    logger.info("created topic %s with %d partitions because a client asked for it", name, len(topic.partitions))
    return topic


def _describe_topic(topic: Topic, operations: int) -> MetadataResponseTopic:
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
                offline_replicas=[],
            )
            for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )
