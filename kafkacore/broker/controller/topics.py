"""Topics: creating, deleting, adding partitions.

Source: org.apache.kafka.controller.ReplicationControlManager, kafka.server.ControllerApis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkacore import errors
from kafkacore.broker.cluster import RESOURCE_TOPIC, PartitionRegistration, Topic, TopicConfig, check_topic_name, partition_record
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ZERO_UUID,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafkacore.protocol.metadata_log import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord

MAX_PARTITIONS_PER_REQUEST = 10_000
METADATA_TOPIC = "__cluster_metadata"


# ---- CreateTopics


def create_topics(state: ControllerState, request: CreateTopicsRequest, version: int, now_ms: int) -> Written:
    """CreateTopics v2-7. Settings that are not implemented are refused with INVALID_CONFIG. There is no waiting, so no timeout."""
    mentions = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise errors.InvalidRequest(f"topic {wanted.name!r} is named twice in one request")
            topic = _new_topic(state, wanted, budget)
            budget -= len(topic.partitions)
        except KafkaError as error:
            results.append(CreatableTopicResult(name=wanted.name, error_code=code_of(error), error_message=error.message, configs=None))
            continue
        results.append(_created(topic))
        records += _records_of(topic)
    return Written([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def _new_topic(state: ControllerState, wanted: CreatableTopic, budget: int) -> Topic:
    name, image = wanted.name, state.image
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise errors.InvalidRequest(f"topic {name} belongs to the controller")
    if name in image.topics:
        raise errors.TopicExists(f"topic {name!r} already exists")
    if "." in name or "_" in name:
        alike = name.replace(".", "_")
        collision = next((other for other in image.topics if other.replace(".", "_") == alike), None)
        if collision is not None:
            raise errors.InvalidTopic(f"topic {name!r} collides with {collision!r}: '.' and '_' are the same in metric names")
    for given in wanted.configs:
        if given.value is None:
            raise errors.InvalidConfiguration(f"a new topic's {given.name} cannot be null")
    config = TopicConfig.build({each.name: each.value for each in wanted.configs}, state.config)
    if wanted.assignments:
        if wanted.replication_factor != -1 or wanted.num_partitions != -1:
            raise errors.InvalidRequest("give either replica assignments or numbers of partitions and replicas, not both")
        assigned = {each.partition_index: each.broker_ids for each in wanted.assignments}
        if len(assigned) != len(wanted.assignments):
            raise errors.InvalidReplicaAssignment("a partition is assigned twice")
        if sorted(assigned) != list(range(len(assigned))):
            raise errors.InvalidReplicaAssignment("assignments must name the partitions 0 to n-1, each once")
        _check_budget(len(assigned), budget)
        partitions = _assigned_partitions(state, assigned, len(assigned[0]))
    else:
        num_partitions = state.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
        factor = state.config.default_replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
        if num_partitions <= 0:
            raise errors.InvalidPartitions(f"a topic has at least one partition, not {num_partitions}")
        _check_budget(num_partitions, budget)
        partitions = _placed_partitions(state, num_partitions, factor)
    return Topic(name, state.new_uuid(), config, partitions)


def _check_budget(num_partitions: int, budget: int) -> None:
    if num_partitions > budget:
        raise errors.PolicyViolation(f"at most {MAX_PARTITIONS_PER_REQUEST} partitions can be created at a time")


def _placed_partitions(state: ControllerState, num_partitions: int, replication_factor: int) -> list[PartitionRegistration]:
    return [
        _new_partition(state, replicas) for replicas in state.placer.place(state.image.brokers.values(), num_partitions, replication_factor)
    ]


def _assigned_partitions(state: ControllerState, assigned: Mapping[int, list[int]], replication_factor: int) -> list[PartitionRegistration]:
    for index, nodes in sorted(assigned.items()):
        check_assignment(state, index, nodes)
        if len(nodes) != replication_factor:
            raise errors.InvalidReplicaAssignment("all partitions of a topic have the same number of replicas")
    return [_new_partition(state, assigned[index]) for index in sorted(assigned)]


def check_assignment(state: ControllerState, index: int, nodes: list[int]) -> None:
    """Refuses replicas that cannot be.

    Raises:
        InvalidReplicaAssignment: none, a broker twice, or one that is not registered.

    Source: ReplicationControlManager.validateManualPartitionAssignment.
    """
    if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(state.image.brokers):
        raise errors.InvalidReplicaAssignment(f"partition {index} is assigned to {nodes}; the brokers are {sorted(state.image.brokers)}")


def _new_partition(state: ControllerState, replicas: list[int]) -> PartitionRegistration:
    isr = [node for node in replicas if state.image.is_active(node)]
    if not isr:
        raise errors.InvalidReplicaAssignment(f"all of the brokers {replicas} are fenced or in controlled shutdown")
    return PartitionRegistration(list(replicas), isr, isr[0])


def _records_of(topic: Topic) -> list[MetadataRecord]:
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic.topic_id)]
    for name, value in topic.config.overrides.items():
        records.append(ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value))
    records += [partition_record(topic.topic_id, index, partition) for index, partition in enumerate(topic.partitions)]
    return records


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


# ---- DeleteTopics


def delete_topics(state: ControllerState, request: DeleteTopicsRequest, version: int, now_ms: int) -> Written:
    """DeleteTopics v1-6 (v6 by id too). The data goes at once."""
    wanted: list[tuple[str | None, bytes]] = (
        [(topic.name, topic.topic_id) for topic in request.topics] if version >= 6 else [(name, ZERO_UUID) for name in request.topic_names]
    )
    records: list[MetadataRecord] = []
    responses = []
    mentions = Counter(_mentioned(state, name, topic_id) for name, topic_id in wanted)
    for name, topic_id in dict.fromkeys(wanted):
        try:
            if mentions[_mentioned(state, name, topic_id)] > 1:
                raise errors.InvalidRequest("a topic is named twice in one request")
            topic = _to_delete(state, version, name, topic_id)
        except KafkaError as error:
            shown = name if name is not None or version >= 6 else ""
            responses.append(DeletableTopicResult(name=shown, topic_id=topic_id, error_code=code_of(error), error_message=error.message))
        else:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=Code.NONE))
    return Written(records, DeleteTopicsResponse(responses=responses))


def _mentioned(state: ControllerState, name: str | None, topic_id: bytes) -> str | bytes:
    """One value for one topic, whether it is named or given by its id."""
    if name is not None:
        return name
    topic = state.image.topics_by_id.get(topic_id)
    return topic_id if topic is None else topic.name


def _to_delete(state: ControllerState, version: int, name: str | None, topic_id: bytes) -> Topic:
    if not state.config.delete_topic_enable:
        if version < 3:
            raise errors.InvalidRequest("delete.topic.enable is false")
        raise errors.TopicDeletionDisabled("delete.topic.enable is false")
    if name is not None:
        if topic_id != ZERO_UUID:
            raise errors.InvalidRequest("give either the name or the id of a topic, not both")
        return state.image.topic(name)
    if topic_id == ZERO_UUID:
        raise errors.InvalidRequest("a topic needs a name or an id")
    topic = state.image.topics_by_id.get(topic_id)
    if topic is None:
        raise errors.UnknownTopicId("no topic has this id")
    return topic


# ---- CreatePartitions


def create_partitions(state: ControllerState, request: CreatePartitionsRequest, version: int, now_ms: int) -> Written:
    """CreatePartitions v0-3."""
    mentions = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise errors.InvalidRequest(f"topic {wanted.name!r} is named twice in one request")
            records += _more_partitions(state, wanted)
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=Code.NONE))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code_of(error), error_message=error.message))
    return Written([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def _more_partitions(state: ControllerState, wanted: CreatePartitionsTopic) -> list[MetadataRecord]:
    topic = state.image.topic(wanted.name)
    existing = len(topic.partitions)
    added, replication_factor = wanted.count - existing, len(topic.partitions[0].replicas)
    if added <= 0:
        raise errors.InvalidPartitions(f"topic {topic.name!r} has {existing} partitions; {wanted.count} would not be more")
    _check_budget(added, MAX_PARTITIONS_PER_REQUEST)
    if wanted.assignments is None:
        partitions = _placed_partitions(state, added, replication_factor)
    else:
        if len(wanted.assignments) != added:
            raise errors.InvalidReplicaAssignment(f"{added} partitions are new, but {len(wanted.assignments)} are assigned")
        assigned = {existing + nth: each.broker_ids for nth, each in enumerate(wanted.assignments)}
        partitions = _assigned_partitions(state, assigned, replication_factor)
    return [partition_record(topic.topic_id, existing + nth, partition) for nth, partition in enumerate(partitions)]
