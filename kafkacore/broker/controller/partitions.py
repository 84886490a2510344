"""Partitions: ISR changes by their leaders, elections on demand, reassignments.

Source: org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

import functools
import logging

from kafkacore import errors
from kafkacore.broker.cluster import ClusterImage, PartitionRegistration, Topic
from kafkacore.broker.controller.brokers import partitions_of
from kafkacore.broker.controller.elections import RECOVERED, RECOVERING, Election, PartitionChangeBuilder, Reassignment, revert
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.broker.controller.topics import check_assignment
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IsrBrokerState,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from kafkacore.protocol.metadata_log import NO_LEADER_CHANGE, MetadataRecord, PartitionChangeRecord

logger = logging.getLogger(__name__)

PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1
NOT_NEEDED = "Leader election not needed for topic partition."
FIRST_VERSION_WITH_BROKER_EPOCHS = 3


def _election_of(topic: Topic) -> Election:
    return Election.UNCLEAN if topic.config.unclean_leader_election_enable else Election.ONLINE


def builder_of(state: ControllerState, topic: Topic, index: int, election: Election) -> PartitionChangeBuilder:
    """What becomes of a partition as the cluster is."""
    partition, image = topic.partitions[index], state.image
    may_lead = functools.partial(_may_lead, image, partition)
    return PartitionChangeBuilder(partition, topic.topic_id, index, may_lead, election, image.default_directory)


def _may_lead(image: ClusterImage, partition: PartitionRegistration, node: int) -> bool:
    return image.may_lead(node, partition)


# ---- AlterPartition


def alter_partition(state: ControllerState, request: AlterPartitionRequest, version: int, now_ms: int) -> Written:
    """AlterPartition v2-3: a leader's wish for the ISR. What is answered is the partition as it will be; an error leaves it as it is.
    An ISR that completes a reassignment may move the leader, which the old one learns by NEW_LEADER_ELECTED."""
    try:
        state.broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Written([], AlterPartitionResponse(error_code=code_of(error)))
    records: list[MetadataRecord] = []
    topics = []
    for asked_topic in request.topics:
        topic = state.image.topics_by_id.get(asked_topic.topic_id)
        answers = []
        seen: set[int] = set()
        for asked in asked_topic.partitions:
            index = asked.partition_index
            isr = asked.new_isr_with_epochs
            if version < FIRST_VERSION_WITH_BROKER_EPOCHS:
                isr = [IsrBrokerState(broker_id=node) for node in asked.new_isr]
            code = Code.INVALID_REQUEST if index in seen else _check_alteration(state, request.broker_id, topic, asked, isr)
            seen.add(index)
            if code or topic is None:
                answers.append(AlterPartitionResponsePartition(partition_index=index, error_code=code))
                continue
            builder = builder_of(state, topic, index, _election_of(topic))
            builder.target_isr = [each.broker_id for each in isr]
            builder.target_recovery_state = asked.leader_recovery_state
            record = builder.build()
            partition = topic.partitions[index]
            if record is not None:
                records.append(record)
                partition = partition.merge(record)
                if record.leader not in (request.broker_id, NO_LEADER_CHANGE):
                    answers.append(AlterPartitionResponsePartition(partition_index=index, error_code=Code.NEW_LEADER_ELECTED))
                    continue
            answers.append(
                AlterPartitionResponsePartition(
                    partition_index=index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=partition.isr,
                    leader_recovery_state=partition.leader_recovery_state,
                    partition_epoch=partition.partition_epoch,
                )
            )
        topics.append(AlterPartitionResponseTopic(topic_id=asked_topic.topic_id, partitions=answers))
    return Written(records, AlterPartitionResponse(topics=topics))


def _check_alteration(
    state: ControllerState, broker_id: int, topic: Topic | None, asked: AlterPartitionRequestPartition, isr: list[IsrBrokerState]
) -> Code:
    """Why the wish is refused; NONE if it is granted. Source: ReplicationControlManager.validateAlterPartitionData."""
    if topic is None:
        return Code.UNKNOWN_TOPIC_ID
    if not 0 <= asked.partition_index < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[asked.partition_index]
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return Code.NOT_CONTROLLER  # the broker knows more than this controller does
    if asked.leader_epoch < partition.leader_epoch:
        return Code.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return Code.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return Code.INVALID_UPDATE_VERSION
    nodes = [each.broker_id for each in isr]
    if len(set(nodes)) != len(nodes) or not set(nodes) <= set(partition.replicas) or partition.leader not in nodes:
        return Code.INVALID_REQUEST
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        return Code.INVALID_REQUEST
    if asked.leader_recovery_state == RECOVERING and (len(nodes) > 1 or partition.leader_recovery_state == RECOVERED):
        return Code.INVALID_REQUEST
    if not all(_is_eligible(state, partition, each) for each in isr):
        return Code.INELIGIBLE_REPLICA
    return Code.NONE


def _is_eligible(state: ControllerState, partition: PartitionRegistration, replica: IsrBrokerState) -> bool:
    """Whether a replica may be in sync: it is active, it is the same incarnation that the leader saw catch up, and its directory works. The
    last is not Kafka's: there a Fetch that was under way when the directory failed brings the replica back until it lags."""
    broker = state.image.brokers.get(replica.broker_id)
    return broker is not None and replica.broker_epoch in (-1, broker.epoch) and state.image.may_lead(broker.id, partition)


# ---- ElectLeaders


def elect_leaders(state: ControllerState, request: ElectLeadersRequest, version: int, now_ms: int) -> Written:
    """ElectLeaders v0-2: the preferred replica, or any that is alive. With null for the partitions all that need it; every topic is then
    answered, those where nothing was to be done without a partition."""
    unclean = version >= 1 and request.election_type == UNCLEAN_ELECTION
    if version >= 1 and request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        refused = errors.InvalidRequest(f"Unknown election type {request.election_type}")
        results = [
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code_of(refused), error_message=refused.message)
                    for index in each.partitions
                ],
            )
            for each in request.topic_partitions or []
        ]
        return Written([], ElectLeadersResponse(error_code=code_of(refused), replica_election_results=results))
    everything = request.topic_partitions is None
    wanted = (
        [(name, range(len(topic.partitions))) for name, topic in state.image.topics.items()]
        if request.topic_partitions is None
        else [(each.topic, each.partitions) for each in request.topic_partitions]
    )
    records: list[MetadataRecord] = []
    results = []
    for name, indexes in wanted:
        found = []
        for index in indexes:
            try:
                records.append(_elect(state, name, index, unclean))
                code, message = Code.NONE, None
            except KafkaError as error:
                if everything and isinstance(error, errors.ElectionNotNeeded):
                    continue
                code, message = code_of(error), error.message
            found.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        results.append(ReplicaElectionResult(topic=name, partition_result=found))
    return Written(records, ElectLeadersResponse(replica_election_results=results))


def _elect(state: ControllerState, name: str, index: int, unclean: bool) -> PartitionChangeRecord:
    """Source: ReplicationControlManager.electLeader."""
    topic = state.image.topics.get(name)
    if topic is None:
        raise errors.UnknownTopicOrPartition(f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise errors.UnknownTopicOrPartition(f"No such partition as {name}-{index}")
    partition = topic.partitions[index]
    if not unclean and partition.leader == partition.replicas[0]:
        raise errors.ElectionNotNeeded(NOT_NEEDED)
    if unclean and partition.leader >= 0:
        raise errors.ElectionNotNeeded(NOT_NEEDED)
    record = builder_of(state, topic, index, Election.UNCLEAN if unclean else Election.PREFERRED).build()
    if record is None:
        if unclean:
            raise errors.EligibleLeadersNotAvailable("no replica of it is alive")
        raise errors.PreferredLeaderNotAvailable(f"broker {partition.replicas[0]} is not alive or not in sync")
    logger.info("elected a leader of %s-%d: %s", topic.name, index, record)
    return record


# ---- reassignments


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, version: int, now_ms: int
) -> Written:
    """AlterPartitionReassignments v0-1. Replicas that come are added at once, those that go leave when the new ones are in sync; null
    replicas give up what is in progress."""
    records: list[MetadataRecord] = []
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                record = _reassign(state, topic.name, asked, request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
                code, message = Code.NONE, None
            except KafkaError as error:
                code, message = code_of(error), error.message or None
            answers.append(ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=message))
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    return Written(
        records,
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if responses else "",
            responses=responses,
        ),
    )


def _reassign(state: ControllerState, name: str, asked: ReassignablePartition, may_resize: bool) -> PartitionChangeRecord | None:
    topic, index = state.image.topics.get(name), asked.partition_index
    if topic is None:
        raise errors.UnknownTopicOrPartition(f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions):
        raise errors.UnknownTopicOrPartition(f"Unable to find partition {name}:{index}.")
    partition = topic.partitions[index]
    if asked.replicas is None:
        return _cancel_reassignment(state, topic, index, partition)
    check_assignment(state, index, asked.replicas)
    if not may_resize:
        size = len(partition.replicas) - len(partition.adding_replicas)
        if len(asked.replicas) != size:
            raise errors.InvalidReplicationFactor(f"the replication factor is {size}; {len(asked.replicas)} replicas would change it")
    plan = Reassignment.plan(partition.replicas, asked.replicas)
    builder = builder_of(state, topic, index, Election.ONLINE)
    builder.target_replicas = plan.replicas
    if plan.removing:
        builder.target_removing = plan.removing
    if plan.adding:
        builder.target_adding = plan.adding
    return builder.build()


def _cancel_reassignment(
    state: ControllerState, topic: Topic, index: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    if not partition.reassigning:
        raise errors.NoReassignmentInProgress()
    replicas, isr, unclean = revert(partition)
    if unclean and not topic.config.unclean_leader_election_enable:
        raise errors.InvalidReplicaAssignment("going back would need an unclean election: none of the old replicas is in sync")
    builder = builder_of(state, topic, index, Election.UNCLEAN if unclean else Election.ONLINE)
    builder.target_isr, builder.target_replicas = isr, replicas
    builder.target_adding, builder.target_removing = [], []
    return builder.build()


def list_partition_reassignments(state: ControllerState, request: ListPartitionReassignmentsRequest, version: int, now_ms: int) -> Written:
    """ListPartitionReassignments v0: those in progress, of all topics or of the named ones."""
    wanted = None if request.topics is None else {(each.name, index) for each in request.topics for index in each.partition_indexes}
    ongoing: dict[str, list[OngoingPartitionReassignment]] = {}
    for topic, index, partition in partitions_of(state):
        if partition.reassigning and (wanted is None or (topic.name, index) in wanted):
            ongoing.setdefault(topic.name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding_replicas,
                    removing_replicas=partition.removing_replicas,
                )
            )
    return Written(
        [],
        ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in ongoing.items()],
        ),
    )
