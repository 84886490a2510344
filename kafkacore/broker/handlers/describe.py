"""What a cluster is made of: DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, DescribeQuorum; AlterReplicaLogDirs.

Source: kafka.server.KafkaApis, kafka.server.handlers.DescribeTopicPartitionsRequestHandler, org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkacore.broker.authorizer import ALTER, DESCRIBE, TOPIC
from kafkacore.broker.cluster import Topic, check_topic_name
from kafkacore.broker.handlers.access import CLUSTER_REFUSED, cluster_operations, may, may_cluster, operations
from kafkacore.broker.handlers.common import ALL_TOPIC_OPERATIONS, NOT_ASKED, code_of
from kafkacore.broker.internal_topics import is_internal
from kafkacore.broker.log.manager import LogDirDescription, LogDirReplica
from kafkacore.broker.slices import run_through
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumTopicData,
)
from kafkacore.protocol.schema import Response

STEP_TOPICS = 200
BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2
METADATA_TOPIC = "__cluster_metadata"
UNKNOWN_PARTITION = "This server does not host this topic-partition."
MEMORY = "memory"
"""How the directory of logs in memory is called."""


def describe_cluster(state: BrokerState, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """DescribeCluster v0-2. This is a broker's endpoint; brokers that are fenced are named from v2 on, if they are asked for."""
    cluster = state.cluster
    if request.endpoint_type != BROKER_ENDPOINT:
        code, message = Code.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLER_ENDPOINT:
            code = Code.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id=cluster.cluster_id, brokers=[])
    brokers = [broker for broker in cluster.brokers.values() if not broker.fenced or request.include_fenced_brokers]
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=broker.fenced)
            for broker in brokers
            if (node := broker.node_at(call.listener)) is not None
        ],
        cluster_authorized_operations=cluster_operations(state, call) if request.include_cluster_authorized_operations else NOT_ASKED,
    )


# ---- DescribeTopicPartitions


def describe_topic_partitions(
    state: BrokerState, call: Call, request: DescribeTopicPartitionsRequest
) -> Response | Generator[None, None, Response]:
    """DescribeTopicPartitions v0: topics in the order of their names from the cursor on, until max.request.partition.size.limit or the
    request's limit is reached; then the cursor of the rest. Of topics that the client may not describe it hears that, if it names them, at
    the end, and of no other."""
    steps = _describe_topic_partitions(state, call, request)
    return steps if call.elements > STEP_TOPICS else run_through(steps)


def _describe_topic_partitions(
    state: BrokerState, call: Call, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    topics = state.cluster.topics
    names = sorted({each.name for each in request.topics} or topics)
    first, start = "", 0
    if request.cursor is not None:
        first, start = request.cursor.topic_name, request.cursor.partition_index
        # Where all are asked for it may have been deleted since; and whether it is there, is not for everybody to know.
        is_named = not request.topics or any(each.name == first for each in request.topics)
        if start < 0 or not is_named:
            return DescribeTopicPartitionsResponse(
                topics=[_no_topic(each.name, Code.INVALID_REQUEST, NOT_ASKED) for each in request.topics]
            )
    left = max(min(request.response_partition_limit, state.config.max_request_partition_size_limit), 1)
    found: list[DescribeTopicPartitionsResponseTopic] = []
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    cursor = None
    for nth, name in enumerate(names):
        if nth % STEP_TOPICS == 0:
            yield
        if name < first:
            continue
        if not may(state, call, DESCRIBE, TOPIC, name):
            if request.topics:
                hidden.append(
                    DescribeTopicPartitionsResponseTopic(error_code=Code.TOPIC_AUTHORIZATION_FAILED, name=name, partitions=[])
                )
            continue
        if cursor is not None:
            continue                                           # the answer is full; only what is hidden is still named
        allowed = operations(state, call, TOPIC, name, ALL_TOPIC_OPERATIONS)
        topic = topics.get(name)
        if topic is None:
            found.append(_no_topic(name, _why_missing(name), allowed))
            continue
        if left == 0:
            cursor = Cursor(topic_name=name, partition_index=0)
        else:
            begin = start if name == first else 0
            end = min(begin + left, len(topic.partitions))
            found.append(_described(topic, begin, end, state, allowed))
            left -= max(end - begin, 0)
            if end < len(topic.partitions):
                cursor = Cursor(topic_name=name, partition_index=end)
        if cursor is not None and (state.authorizer is None or not request.topics):
            break
    return DescribeTopicPartitionsResponse(topics=[*found, *hidden], next_cursor=cursor)


def _why_missing(name: str) -> Code:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return code_of(error)
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _no_topic(name: str, code: Code, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=is_internal(name), partitions=[], topic_authorized_operations=operations
    )


def _described(topic: Topic, begin: int, end: int, state: BrokerState, allowed: int) -> DescribeTopicPartitionsResponseTopic:
    alive = state.cluster.nodes
    partitions = []
    for index in range(begin, end):
        partition = topic.partitions[index]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if partition.leader in alive else Code.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=state.cluster.offline_replicas(partition),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=allowed,
    )


# ---- log directories


def _log_dirs(state: BrokerState) -> list[LogDirDescription]:
    """The broker's directories; logs in memory lie in one without a size."""
    found = state.logs.dirs()
    if found:
        return found
    replicas = [LogDirReplica(topic, index, partition.log.size_bytes) for (topic, index), partition in state.replicas.partitions.items()]
    return [LogDirDescription(MEMORY, None, replicas, -1, -1)]


def describe_log_dirs(state: BrokerState, call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """DescribeLogDirs v0-5. A log that was cut back to less than its high watermark is behind by the difference."""
    if not may_cluster(state, call, DESCRIBE):
        return DescribeLogDirsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED, results=[])
    wanted = None if request.topics is None else {(each.topic, index) for each in request.topics for index in each.partitions}
    results = []
    for log_dir in _log_dirs(state):
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for topic, index, size_bytes in log_dir.replicas:
            partition = state.replicas.partitions.get((topic, index))
            if partition is not None and (wanted is None or (topic, index) in wanted):
                lag = max(partition.high_watermark - partition.log.end_offset, 0)
                topics.setdefault(topic, []).append(
                    DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes, offset_lag=lag)
                )
        results.append(
            DescribeLogDirsResult(
                error_code=0 if log_dir.failure is None else Code.KAFKA_STORAGE_ERROR,
                log_dir=log_dir.path,
                topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                total_bytes=log_dir.total_bytes,
                usable_bytes=log_dir.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)


def alter_replica_log_dirs(state: BrokerState, call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs v0-2. A broker here has one directory, so no partition can move: any other is LOG_DIR_NOT_FOUND, as in a Kafka
    that does not have it, and in its own a partition lies already."""
    allowed = may_cluster(state, call, ALTER)
    own = {log_dir.path for log_dir in _log_dirs(state)}
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            for index in topic.partitions:
                code = Code.LOG_DIR_NOT_FOUND if allowed else Code.CLUSTER_AUTHORIZATION_FAILED
                if allowed and log_dir.path in own:
                    known = (topic.name, index) in state.replicas.partitions
                    code = Code.NONE if known else Code.UNKNOWN_TOPIC_OR_PARTITION
                topics.setdefault(topic.name, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions) for name, partitions in topics.items()]
    )


# ---- the quorum


def describe_quorum(state: BrokerState, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """DescribeQuorum v0-2: one voter, the controller, and the other brokers as observers. There are no votes, so there is one epoch, and no
    listener of a controller is named."""
    if not may_cluster(state, call, DESCRIBE):
        refused = Code.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=refused, error_message=CLUSTER_REFUSED, topics=[], nodes=[])
    cluster = state.cluster
    is_single = len(request.topics) == 1 and request.topics[0].topic_name == METADATA_TOPIC
    if not (is_single and [each.partition_index for each in request.topics[0].partitions] == [0]):
        topics = [
            QuorumTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    QuorumPartitionData(
                        partition_index=each.partition_index,
                        error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=UNKNOWN_PARTITION,
                        current_voters=[],
                        observers=[],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(error_code=0, error_message="", topics=topics, nodes=[])
    end_offset = cluster.next_offset

    def replica(node_id: int) -> QuorumReplicaState:
        return QuorumReplicaState(
            replica_id=node_id, log_end_offset=end_offset, last_fetch_timestamp=call.wall_ms, last_caught_up_timestamp=call.wall_ms
        )

    leader = cluster.controller_id
    partition = QuorumPartitionData(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=leader,
        leader_epoch=1,
        high_watermark=end_offset,
        current_voters=[replica(leader)],
        observers=[replica(node_id) for node_id in cluster.nodes if node_id != leader],
    )
    return DescribeQuorumResponse(
        error_code=0, error_message="", topics=[QuorumTopicData(topic_name=METADATA_TOPIC, partitions=[partition])], nodes=[]
    )
