"""Topics: creating, deleting, adding partitions.

Source: org.apache.kafka.controller.ReplicationControlManager, kafka.server.ControllerApis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkacore import errors
from kafkacore.broker.cluster import RESOURCE_TOPIC, PartitionRegistration, Topic, check_topic_name, partition_record
from kafkacore.broker.configs import BrokerLayers, Resource, static_settings
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.errors import KafkaError
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
TOPIC_TWICE = "Duplicate topic name."


# ---- CreateTopics


def create_topics(state: ControllerState, request: CreateTopicsRequest, version: int, now_ms: int) -> Written:
    """CreateTopics v2-7. Settings that are not implemented are refused with INVALID_CONFIG. There is no waiting, so no timeout."""
    mentions = Counter(topic.name for topic in request.topics)
    records: list[MetadataRecord] = []
    results: list[CreatableTopicResult] = []
    budget = MAX_PARTITIONS_PER_REQUEST
    layers = BrokerLayers({}, state.image.configs.get((Resource.BROKER, ""), {}), static_settings(state.config, {}))
    for wanted in {topic.name: topic for topic in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise errors.InvalidRequest(TOPIC_TWICE)
            topic = _new_topic(state, wanted, budget)
            state.permits.take(len(topic.partitions))
            budget -= len(topic.partitions)
        except KafkaError as error:
            code, message = code_of(error), error.message or None
            results.append(CreatableTopicResult(name=wanted.name, error_code=code, error_message=message))
            continue
        results.append(_created(layers, topic))
        records += _records_of(topic)
    response = CreateTopicsResponse(throttle_time_ms=state.permits.throttle_ms, topics=results)
    return Written([] if request.validate_only else records, response)


def _new_topic(state: ControllerState, wanted: CreatableTopic, budget: int) -> Topic:
    name, image = wanted.name, state.image
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise errors.InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if name in image.topics:
        raise errors.TopicExists(f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        collision = image.topic_like(name)
        if collision is not None:
            raise errors.InvalidTopic(f"Topic '{name}' collides with existing topic: {collision}")
    empty = [given.name for given in wanted.configs if given.value is None]
    if empty:
        raise errors.InvalidConfiguration(f"Null value not supported for topic configs: {','.join(empty)}")
    config = TopicConfig.build({each.name: each.value for each in wanted.configs}, state.config)
    if wanted.assignments:
        for count, what in ((wanted.replication_factor, "replication factor"), (wanted.num_partitions, "numPartitions")):
            if count != -1:
                raise errors.InvalidRequest(f"A manual partition assignment was specified, but {what} was not set to -1.")
        assigned = {each.partition_index: each.broker_ids for each in wanted.assignments}
        if len(assigned) != len(wanted.assignments):
            twice = next(index for index, count in Counter(each.partition_index for each in wanted.assignments).items() if count > 1)
            raise errors.InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {twice}")
        if sorted(assigned) != list(range(len(assigned))):
            raise errors.InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
        _check_budget(len(assigned), budget)
        partitions = _assigned_partitions(state, assigned, len(assigned[0]))
    else:
        num_partitions = state.config.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
        factor = state.config.default_replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
        if factor <= 0:
            raise errors.InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
        if num_partitions <= 0:
            raise errors.InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        _check_budget(num_partitions, budget)
        partitions = _placed_partitions(state, num_partitions, factor)
    return Topic(name, state.new_uuid(), config, partitions)


def _check_budget(num_partitions: int, budget: int) -> None:
    if num_partitions > budget:
        raise errors.PolicyViolation("Excessively large number of partitions per request.")


def _placed_partitions(state: ControllerState, num_partitions: int, replication_factor: int) -> list[PartitionRegistration]:
    try:
        placed = state.placer.place(state.image.brokers.values(), num_partitions, replication_factor)
    except errors.InvalidReplicationFactor as error:
        raise errors.InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
        ) from None
    return [_new_partition(state, index, replicas) for index, replicas in enumerate(placed)]


def _assigned_partitions(state: ControllerState, assigned: Mapping[int, list[int]], replication_factor: int) -> list[PartitionRegistration]:
    for index, nodes in sorted(assigned.items()):
        check_assignment(state, index, nodes)
        if len(nodes) != replication_factor:
            raise errors.InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(nodes)} replica(s), but this is not consistent with"
                f" previous partitions, which have {replication_factor} replica(s)."
            )
    return [_new_partition(state, index, assigned[index]) for index in sorted(assigned)]


def check_assignment(state: ControllerState, index: int, nodes: list[int]) -> None:
    """Refuses replicas that cannot be.

    Raises:
        InvalidReplicaAssignment: none, a broker twice, or one that is not registered.

    Source: ReplicationControlManager.validateManualPartitionAssignment.
    """
    if not nodes:
        raise errors.InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for node in sorted(nodes):
        if node not in state.image.brokers:
            raise errors.InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {node}, but no such broker is registered."
            )
        if node == previous:
            raise errors.InvalidReplicaAssignment(f"The manual partition assignment includes the broker {node} more than once.")
        previous = node


def _new_partition(state: ControllerState, index: int, replicas: list[int]) -> PartitionRegistration:
    isr = [node for node in replicas if state.image.is_active(node)]
    directories = [state.image.default_directory(node) for node in replicas]
    if not isr:
        raise errors.InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in controlled shutdown."
        )
    return PartitionRegistration(list(replicas), isr, isr[0], directories=directories)


def _records_of(topic: Topic) -> list[MetadataRecord]:
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic.topic_id)]
    for name, value in topic.config.overrides.items():
        records.append(ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value))
    records += [partition_record(topic.topic_id, index, partition) for index, partition in enumerate(topic.partitions)]
    return records


def _created(layers: BrokerLayers, topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=each.key.name, value=each.value, read_only=False, config_source=each.source, is_sensitive=each.key.is_sensitive
            )
            for each in layers.describe_topic(topic.config.overrides)
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
    mentions = Counter(wanted)
    ids = {topic_id for name, topic_id in wanted if name is None}
    named = {state.image.topics[name].topic_id for name, _ in wanted if name is not None and name in state.image.topics}
    for name, topic_id in dict.fromkeys(wanted):
        if name is None and mentions[name, topic_id] == 1 and topic_id in named:
            continue  # the name gets the answer
        try:
            if mentions[name, topic_id] > 1:
                raise errors.InvalidRequest(TOPIC_TWICE if name is not None else "Duplicate topic id.")
            topic = _to_delete(state, version, name, topic_id)
            if name is not None and topic.topic_id in ids:
                topic_id = topic.topic_id
                raise errors.InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            state.permits.take(len(topic.partitions))
        except KafkaError as error:
            shown = name if name is not None or version >= 6 else ""
            code, message = code_of(error), error.message or None
            responses.append(DeletableTopicResult(name=shown, topic_id=topic_id, error_code=code, error_message=message))
        else:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return Written(records, DeleteTopicsResponse(throttle_time_ms=state.permits.throttle_ms, responses=responses))


def _to_delete(state: ControllerState, version: int, name: str | None, topic_id: bytes) -> Topic:
    if not state.config.delete_topic_enable:
        if version < 3:
            raise errors.InvalidRequest("delete.topic.enable is false")
        raise errors.TopicDeletionDisabled("delete.topic.enable is false")
    if name is not None:
        if topic_id != ZERO_UUID:
            raise errors.InvalidRequest("You may not specify both topic name and topic id.")
        if name not in state.image.topics:
            raise errors.UnknownTopicOrPartition("This server does not host this topic-partition.")
        return state.image.topics[name]
    if topic_id == ZERO_UUID:
        raise errors.InvalidRequest("Neither topic name nor id were specified.")
    topic = state.image.topics_by_id.get(topic_id)
    if topic is None:
        raise errors.UnknownTopicId("This server does not host this topic ID.")
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
                raise errors.InvalidRequest(TOPIC_TWICE)
            added = _more_partitions(state, wanted)
            state.permits.take(len(added))
            records += added
            results.append(CreatePartitionsTopicResult(name=wanted.name))
        except KafkaError as error:
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code_of(error), error_message=error.message or None))
    response = CreatePartitionsResponse(throttle_time_ms=state.permits.throttle_ms, results=results)
    return Written([] if request.validate_only else records, response)


def _more_partitions(state: ControllerState, wanted: CreatePartitionsTopic) -> list[MetadataRecord]:
    topic = state.image.topics.get(wanted.name)
    if topic is None:
        raise errors.UnknownTopicOrPartition()
    existing = len(topic.partitions)
    added, replication_factor = wanted.count - existing, len(topic.partitions[0].replicas)
    if added == 0:
        raise errors.InvalidPartitions(f"Topic already has {existing} partition(s).")
    if added < 0:
        raise errors.InvalidPartitions(
            f"The topic {topic.name} currently has {existing} partition(s); {wanted.count} would not be an increase."
        )
    _check_budget(added, MAX_PARTITIONS_PER_REQUEST)
    if wanted.assignments is None:
        partitions = _placed_partitions(state, added, replication_factor)
    else:
        if len(wanted.assignments) != added:
            raise errors.InvalidReplicaAssignment(
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) were specified."
            )
        assigned = {existing + nth: each.broker_ids for nth, each in enumerate(wanted.assignments)}
        partitions = _assigned_partitions(state, assigned, replication_factor)
    return [partition_record(topic.topic_id, existing + nth, partition) for nth, partition in enumerate(partitions)]
