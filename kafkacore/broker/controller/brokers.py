"""Brokers: registration, heartbeats, fencing, controlled shutdown; producer ids.

    registered (fenced) --heartbeat, caught up--> unfenced --wants to shut down--> in controlled shutdown --others caught up--> fenced
                 ^                                   |                                                                           |
                 +-------- session ended, or gone ---+                  a new registration <------------------------------------+

A fenced broker leads nothing and leaves every ISR of which it is not the last member.

Source: org.apache.kafka.controller.{ClusterControlManager, BrokerHeartbeatManager, ReplicationControlManager, ProducerIdControlManager}.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator
from itertools import islice

from kafkacore.broker.cluster import NO_LEADER, BrokerRegistration, ImageDelta, PartitionRegistration, Topic, uuid_text
from kafkacore.broker.controller.elections import Election, PartitionChangeBuilder
from kafkacore.broker.controller.state import ControllerState, Session, Written, code_of
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kafkacore.protocol.metadata_log import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
"""Producer ids a broker gets at a time. Source: org.apache.kafka.server.common.ProducerIdsBlock."""

FENCE, UNFENCE = 1, -1


# ---- what a change of a broker means for partitions


def partitions_of(state: ControllerState) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """Every partition."""
    for topic in state.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition


def in_sync_with(state: ControllerState, broker_id: int) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """The partitions whose ISR has a broker; no partition is looked at after the last of them."""
    found = ((topic, index, partition) for topic, index, partition in partitions_of(state) if broker_id in partition.isr)
    return islice(found, state.image.in_sync[broker_id])


def without_leader(state: ControllerState) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """The partitions that no broker leads; no partition is looked at after the last of them."""
    found = ((topic, index, partition) for topic, index, partition in partitions_of(state) if partition.leader == NO_LEADER)
    return islice(found, state.image.led[NO_LEADER])


def leader_and_isr_updates(
    state: ControllerState,
    partitions: Iterable[tuple[Topic, int, PartitionRegistration]],
    removed: int = NO_LEADER,
    added: int = NO_LEADER,
) -> list[MetadataRecord]:
    """Elections that follow when a broker goes or comes.

    Args:
        state: the controller's.
        partitions: those that may be concerned.
        removed: a broker that leaves the ISR and may not lead, though the image may still call it active.
        added: a broker that may lead, though the image still calls it fenced.

    Source: ReplicationControlManager.generateLeaderAndIsrUpdates.
    """

    image = state.image

    def is_acceptable(partition: PartitionRegistration, node: int) -> bool:
        if node != added:
            return node != removed and image.may_lead(node, partition)
        return image.brokers[node].has_online(partition.directory(node))

    records: list[MetadataRecord] = []
    for topic, index, partition in partitions:
        election = Election.UNCLEAN if topic.config.unclean_leader_election_enable else Election.ONLINE
        acceptable = functools.partial(is_acceptable, partition)
        builder = PartitionChangeBuilder(partition, topic.topic_id, index, acceptable, election, image.default_directory)
        builder.target_isr = [node for node in partition.isr if node != removed]
        if added != NO_LEADER and partition.leader == NO_LEADER:
            # Replicas that are still dead since the whole cluster went down come back through the ISR changes of the new leader.
            builder.target_isr = [node for node in partition.isr if acceptable(node)] or list(partition.isr)
        record = builder.build()
        if record is not None:
            records.append(record)
    return records


def _fence(state: ControllerState, broker: BrokerRegistration) -> list[MetadataRecord]:
    return [
        *leader_and_isr_updates(state, in_sync_with(state, broker.id), removed=broker.id),
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE),
    ]


def _unfence(state: ControllerState, broker: BrokerRegistration) -> list[MetadataRecord]:
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=UNFENCE),
        *leader_and_isr_updates(state, without_leader(state), added=broker.id),
    ]


def _begin_shutdown(state: ControllerState, broker: BrokerRegistration) -> list[MetadataRecord]:
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1),
        *leader_and_isr_updates(state, in_sync_with(state, broker.id), removed=broker.id),
    ]


# ---- requests


def register_broker(state: ControllerState, request: BrokerRegistrationRequest, version: int, now_ms: int) -> Written:
    """BrokerRegistration v0-4. The same incarnation keeps its epoch; a new one is refused while the old one's session lasts, unless that
    was shutting down. Whatever the old one led goes to others first. Of a fenced one that has happened; where it still is in an ISR it is
    wanted there, as the last member, or because the cluster was down as a whole."""
    image = state.image
    known = image.brokers.get(request.broker_id)
    same = known is not None and known.incarnation_id == request.incarnation_id

    def refuse(code: Code) -> Written:
        return Written([], BrokerRegistrationResponse(error_code=code))

    if request.cluster_id != image.cluster_id:
        return refuse(Code.INCONSISTENT_CLUSTER_ID)
    if not request.listeners or request.broker_id < 0 or len(set(request.log_dirs)) < len(request.log_dirs):
        return refuse(Code.INVALID_REGISTRATION)
    if known is not None and not same and not known.in_controlled_shutdown and state.has_valid_session(known.id, known.epoch, now_ms):
        return refuse(Code.DUPLICATE_BROKER_REGISTRATION)
    offered = {feature.name: feature for feature in request.features}
    for name, level in image.features.items():
        feature = offered.get(name)
        if name not in image.supported_features:
            continue  # a Kafka's, which nothing here acts on
        if feature is None or not feature.min_supported_version <= level <= feature.max_supported_version:
            return refuse(Code.UNSUPPORTED_VERSION)
    records: list[MetadataRecord] = []
    if known is not None and not same and not known.fenced:
        records += leader_and_isr_updates(state, in_sync_with(state, known.id), removed=known.id)
    epoch = known.epoch if known is not None and same else image.next_offset + len(records)
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=each.name, min_supported_version=each.min_supported_version, max_supported_version=each.max_supported_version
                )
                for each in request.features
            ],
            rack=request.rack,
            fenced=known.fenced if known is not None and same else True,
            in_controlled_shutdown=known is not None and same and known.in_controlled_shutdown,
            log_dirs=request.log_dirs,
        )
    )
    state.sessions[request.broker_id] = Session(epoch, now_ms)
    return Written(records, BrokerRegistrationResponse(broker_epoch=epoch))


def broker_heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, version: int, now_ms: int) -> Written:
    """BrokerHeartbeat v0-2. What lies in directories that it calls offline is led by others; a broker without any other is fenced. Source:
    BrokerHeartbeatManager.calculateNextBrokerState."""
    try:
        broker = state.broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Written([], BrokerHeartbeatResponse(error_code=code_of(error)))
    session = state.sessions.setdefault(broker.id, Session(broker.epoch, now_ms))
    session.last_contact_ms = now_ms
    session.metadata_offset = max(session.metadata_offset, request.current_metadata_offset)
    caught_up = session.metadata_offset >= broker.epoch
    offline = [each for each in broker.log_dirs if each in request.offline_log_dirs]
    want_fence = request.want_fence or bool(offline and len(offline) == len(broker.log_dirs))
    records: list[MetadataRecord] = []
    fenced, may_go = broker.fenced, False
    if broker.fenced:
        may_go = request.want_shut_down
        if not (request.want_shut_down or want_fence or broker.in_controlled_shutdown) and caught_up:  # who went registers again
            records, fenced = _unfence(state, broker), False
    elif want_fence:
        records, fenced, may_go = _fence(state, broker), True, request.want_shut_down
    elif request.want_shut_down and not broker.in_controlled_shutdown and state.image.led[broker.id]:
        records = _begin_shutdown(state, broker)
        session.shutdown_offset = state.image.next_offset + len(records)
    elif broker.in_controlled_shutdown:
        if not state.image.led[broker.id] and _lowest_active_offset(state) >= session.shutdown_offset:
            records, fenced, may_go = _fence(state, broker), True, True
    elif request.want_shut_down:
        records, fenced, may_go = _fence(state, broker), True, True
    if offline and not records and not want_fence:  # else with the next heartbeat, when what is decided here is known
        records = _lose_directories(state, broker, offline)
    return Written(
        records,
        BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=may_go),
    )


def _lose_directories(state: ControllerState, broker: BrokerRegistration, offline: list[bytes]) -> list[MetadataRecord]:
    """Source: ReplicationControlManager.handleDirectoriesOffline."""
    logger.warning("broker %d has lost log directories: %s", broker.id, ", ".join(uuid_text(each) for each in offline))
    concerned = (each for each in in_sync_with(state, broker.id) if each[2].directory(broker.id) in offline)
    online = [each for each in broker.log_dirs if each not in offline]
    return [
        *leader_and_isr_updates(state, concerned, removed=broker.id),
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online),
    ]


def assign_replicas_to_dirs(state: ControllerState, request: AssignReplicasToDirsRequest, version: int, now_ms: int) -> Written:
    """AssignReplicasToDirs v0: a broker with several log directories says where replicas lie. Those in one that is offline are led by
    others. Source: ReplicationControlManager.handleAssignReplicasToDirs."""
    try:
        broker = state.broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Written([], AssignReplicasToDirsResponse(error_code=code_of(error)))
    records: list[MetadataRecord] = []
    lost: list[tuple[Topic, int, PartitionRegistration]] = []
    directories = []
    for directory in request.directories:
        topics = []
        for asked in directory.topics:
            topic = state.image.topics_by_id.get(asked.topic_id)
            answers = []
            for index in (each.partition_index for each in asked.partitions):
                code = _check_directory(topic, index, broker.id)
                answers.append(AssignedPartitionResult(partition_index=index, error_code=code))
                if topic is None or code:
                    continue
                partition = topic.partitions[index]
                builder = PartitionChangeBuilder(partition, topic.topic_id, index, functools.partial(_leads_now, partition))
                builder.target_directories[broker.id] = directory.id
                record = builder.build()
                if record is not None:
                    records.append(record)
                if not broker.has_online(directory.id) and broker.id in partition.isr:
                    lost.append((topic, index, partition))
            topics.append(AssignedTopicResult(topic_id=asked.topic_id, partitions=answers))
        directories.append(AssignedDirectoryResult(id=directory.id, topics=topics))
    records += leader_and_isr_updates(state, lost, removed=broker.id)
    return Written(records, AssignReplicasToDirsResponse(directories=directories))


def _leads_now(partition: PartitionRegistration, node: int) -> bool:
    """For a change that is to leave the leader as it is."""
    return node == partition.leader


def _check_directory(topic: Topic | None, index: int, broker_id: int) -> Code:
    if topic is None:
        return Code.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE if broker_id in topic.partitions[index].replicas else Code.NOT_LEADER_OR_FOLLOWER


def _lowest_active_offset(state: ControllerState) -> int:
    offsets = [session.metadata_offset for broker_id, session in state.sessions.items() if state.image.is_active(broker_id)]
    return min(offsets, default=2**63 - 1)


def unregister_broker(state: ControllerState, request: UnregisterBrokerRequest, version: int, now_ms: int) -> Written:
    """UnregisterBroker v0: forgets a broker, dead or not; what it led goes to others."""
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return Written(
            [],
            UnregisterBrokerResponse(
                error_code=Code.BROKER_ID_NOT_REGISTERED, error_message=f"Broker ID {request.broker_id} is not currently registered"
            ),
        )
    records = leader_and_isr_updates(state, in_sync_with(state, broker.id), removed=broker.id)
    records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return Written(records, UnregisterBrokerResponse(error_message=None))


def allocate_producer_ids(state: ControllerState, request: AllocateProducerIdsRequest, version: int, now_ms: int) -> Written:
    """AllocateProducerIds v0: the next block of ids, never given twice."""
    try:
        state.broker(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        return Written([], AllocateProducerIdsResponse(error_code=code_of(error)))
    first = state.image.next_producer_id
    if first > 2**63 - 1 - PRODUCER_ID_BLOCK:
        return Written([], AllocateProducerIdsResponse(error_code=Code.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK)
    return Written([record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK))


# ---- without a request


def nobody_is_alive(state: ControllerState) -> list[MetadataRecord]:
    """The whole cluster starts: all brokers are fenced, no partition has a leader. The ISRs stay, since a broker that was in one may lead
    first; it then begins alone (see `leader_and_isr_updates`)."""
    records: list[MetadataRecord] = [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)
        for topic, index, partition in partitions_of(state)
        if partition.leader != NO_LEADER
    ]
    for broker in state.image.brokers.values():
        if not broker.fenced:
            records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE))
    return records


def fence_lost_broker(state: ControllerState, broker_id: int, epoch: int) -> list[MetadataRecord]:
    """A broker is known to be dead: its process or connection is closed."""
    broker = state.image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        return []
    state.sessions.pop(broker_id, None)
    return [] if broker.fenced else _fence(state, broker)


def fence_silent_broker(state: ControllerState, now_ms: int) -> list[MetadataRecord]:
    """Fences one broker whose session has ended; to be called again until nothing comes. Source: QuorumController.maybeFenceStaleBroker."""
    for broker in state.image.brokers.values():
        if not broker.fenced and not state.has_valid_session(broker.id, broker.epoch, now_ms):
            state.sessions.pop(broker.id, None)
            return _fence(state, broker)
    return []


def track(state: ControllerState, delta: ImageDelta) -> None:
    """Keeps the sessions in step with the image."""
    for broker_id in delta.brokers:
        if broker_id not in state.image.brokers:
            state.sessions.pop(broker_id, None)


def next_expiry_ms(state: ControllerState) -> int | None:
    """When the first session ends; None without an unfenced broker."""
    contacts = [
        state.sessions[each.id].last_contact_ms for each in state.image.brokers.values() if not each.fenced and each.id in state.sessions
    ]
    return min(contacts) + state.config.broker_session_timeout_ms if contacts else None
