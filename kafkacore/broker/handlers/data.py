"""ApiVersions, Metadata, Produce, Fetch, ListOffsets, OffsetForLeaderEpoch.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any

from kafkacore import errors
from kafkacore.broker.cluster import Topic, check_topic_name
from kafkacore.broker.delayed import DelayedFetch
from kafkacore.broker.replicas import READ_COMMITTED, Partition
from kafkacore.broker.sessions import FetchContext, TopicKey
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code, CorruptDataError, KafkaError
from kafkacore.protocol import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    NodeEndpoint,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
    PartitionData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger(__name__)

# Bits are AclOperation codes. Without an authorizer everything that exists for the resource is allowed.
ALL_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_ASKED = -(2**31)

ZERO_ID = bytes(16)
# The message tables start at 0 so that old frames can be read and refused by name; KIP-896 ended these versions.
FIRST_PRODUCE_VERSION = 3
FIRST_VERSION_WITH_TOPIC_IDS = 13
_STALE_LEADER = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -1, -3, -4, -5, -6
_SPECIAL_TIMESTAMP_SINCE = {EARLIEST: 0, LATEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def code_of(error: KafkaError) -> Code:
    """The code that tells a client of an error met while serving it."""
    if isinstance(error, CorruptDataError):
        return Code.CORRUPT_MESSAGE
    return Code(error.code) if error.code is not None else Code.UNKNOWN_SERVER_ERROR


def api_versions(state: BrokerState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """ApiVersions v0-4. Answers the table the broker was started with. No features are finalized: there are no transactions and no groups
    yet. (Versions beyond the table never get here; see `Server`.)"""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(
        error_code=Code.NONE,
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in state.api_versions.items()],
    )


# ---- Metadata ----------------------------------------------------------------------------------------------------------------------


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


def _current_leader(state: BrokerState, topic: TopicKey, index: int) -> LeaderIdAndEpoch:
    """KIP-951: who leads the partition, for clients whose view is old."""
    known = state.cluster.topics_by_id.get(topic) if isinstance(topic, bytes) else state.cluster.topics.get(topic)
    if known is None or index >= len(known.partitions):
        return LeaderIdAndEpoch()
    return LeaderIdAndEpoch(leader_id=known.partitions[index].leader, leader_epoch=known.partitions[index].leader_epoch)


def _endpoints(state: BrokerState, leaders: set[int]) -> list[NodeEndpoint]:
    if not leaders:
        return []
    nodes = (state.cluster.nodes[leader] for leader in sorted(leaders) if leader in state.cluster.nodes)
    return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]


def _topic_name(state: BrokerState, topic: TopicKey) -> str:
    if isinstance(topic, str):
        return topic
    known = state.cluster.topics_by_id.get(topic)
    if known is None:
        raise errors.UnknownTopicId("no topic has this id")
    return known.name


# ---- Produce -----------------------------------------------------------------------------------------------------------------------


def produce(state: BrokerState, call: Call, request: ProduceRequest) -> ProduceResponse | Outcome:
    """Produce v3-13 (v13 by topic id). v0-2 are advertised, because old clients read "compression is possible" from them, and refused here.
    acks=0 has no response; an error then closes the connection. With one replica acks=1 and -1 are the same, but for
    min.insync.replicas. Transactional batches are refused. The timeout has nothing to wait for."""
    responses: list[TopicProduceResponse] = []
    leaders: set[int] = set()
    failure: str | None = None  # not the error: with its traceback it would hold this frame, and so the records, in a cycle
    for topic in request.topic_data:
        key: TopicKey = topic.topic_id if call.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name
        answers: list[PartitionProduceResponse] = []
        for partition in topic.partition_data:
            try:
                if call.version < FIRST_PRODUCE_VERSION:
                    raise errors.UnsupportedVersion(f"Produce v{call.version} is gone since Kafka 4.0 (KIP-896)")
                if request.acks not in (-1, 0, 1):
                    raise errors.InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {request.acks}")
                if not isinstance(partition.records, memoryview):  # null
                    raise errors.InvalidRecord("exactly one record batch per partition is required")
                appended = state.replicas.append(
                    _topic_name(state, key),
                    partition.index,
                    partition.records,
                    request.acks,
                    call.version,
                    call.wall_ms,
                )
            except KafkaError as error:
                failure = str(error)
                code = code_of(error)
                leader = LeaderIdAndEpoch()
                if code in _STALE_LEADER and call.version >= 10:
                    leader = _current_leader(state, key, partition.index)
                    leaders.add(leader.leader_id)
                answers.append(
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=error.message or None, current_leader=leader
                    )
                )
            else:
                answers.append(
                    PartitionProduceResponse(
                        index=partition.index,
                        error_code=0,
                        base_offset=appended.base_offset,
                        log_append_time_ms=appended.append_time_ms,
                        log_start_offset=appended.log_start_offset,
                    )
                )
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if request.acks == 0:
        if failure is None:
            return Outcome.SILENT
        logger.warning("closing the connection of client %s: its acks=0 Produce request failed: %s", call.client_id, failure)
        return Outcome.CLOSE
    return ProduceResponse(responses=responses, node_endpoints=_endpoints(state, leaders))


# ---- Fetch -------------------------------------------------------------------------------------------------------------------------


def _partition(state: BrokerState, topic: TopicKey, wanted: FetchPartition) -> Partition:
    """The partition a fetch names, as its leader."""
    partition = state.replicas.partition(_topic_name(state, topic), wanted.partition)
    partition.check_leader(wanted.current_leader_epoch)
    return partition


class _WaitingPartition:
    """A partition of a fetch that waits."""

    __slots__ = ("isolation_level", "state", "topic", "wanted")

    def __init__(self, state: BrokerState, topic: TopicKey, wanted: FetchPartition, isolation_level: int) -> None:
        self.state = state
        self.topic = topic
        self.wanted = wanted
        self.isolation_level = isolation_level

    def bytes_available(self) -> int | None:
        try:
            partition = _partition(self.state, self.topic, self.wanted)
        except KafkaError:
            return None
        offset, log = self.wanted.fetch_offset, partition.log
        if not log.start_offset <= offset <= log.end_offset:
            return None
        return min(log.bytes_between(offset, partition.upper_offset(self.isolation_level)), self.wanted.partition_max_bytes)


class _Reading:
    """One Fetch request: what it reads, now or after a wait."""

    def __init__(self, state: BrokerState, call: Call, request: FetchRequest, context: FetchContext) -> None:
        self.state = state
        self.version = call.version
        self.request = request
        self.context = context
        self.max_bytes = min(request.max_bytes, state.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.leaders: set[int] = set()
        self.read_bytes = 0
        self.failed = False

    def read(self) -> list[tuple[TopicKey, PartitionData]]:
        """Reads every partition, in the session's order, until max_bytes are found; the first batch found comes whole (KIP-74)."""
        self.leaders.clear()
        self.read_bytes = 0
        self.failed = False
        answers: list[tuple[TopicKey, PartitionData]] = []
        for (topic, index), wanted in self.context.partitions:
            try:
                answer = self._read_partition(topic, wanted)
            except KafkaError as error:
                self.failed = True
                code = code_of(error)
                leader = LeaderIdAndEpoch()
                if code in _STALE_LEADER and self.version >= 12:
                    leader = _current_leader(self.state, topic, index)
                    if self.version >= 16:
                        self.leaders.add(leader.leader_id)
                answer = PartitionData(
                    partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, current_leader=leader, records=b""
                )
            answers.append((topic, answer))
        return answers

    def _read_partition(self, topic: TopicKey, wanted: FetchPartition) -> PartitionData:
        partition = _partition(self.state, topic, wanted)
        log = partition.log
        diverging = FetchEpochEndOffset()
        records: list[Any] = []
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if epoch < 0:
                raise errors.OffsetOutOfRange(f"the log knows no epoch {wanted.last_fetched_epoch}", offset=wanted.fetch_offset)
            if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                diverging = FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
                self.failed = True  # answered at once, as an error is
        isolation_level = self.request.isolation_level
        if diverging.epoch < 0 and diverging.end_offset < 0:
            limit = min(wanted.partition_max_bytes, self.max_bytes - self.read_bytes)
            at_least_one = self.read_bytes == 0
            if limit > 0 or at_least_one:
                records += partition.read(wanted.fetch_offset, max(limit, 0), isolation_level, at_least_one)
                self.read_bytes += sum(view.nbytes for view in records)
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging,
            aborted_transactions=[] if isolation_level == READ_COMMITTED else None,
            records=(records[0] if len(records) == 1 else records) or b"",
        )

    def response(self, answers: list[tuple[TopicKey, PartitionData]]) -> FetchResponse:
        """The answers grouped by topic, less what an incremental session knows already."""
        topics: dict[TopicKey, list[PartitionData]] = {}
        for topic, answer in self.context.filter(answers):
            topics.setdefault(topic, []).append(answer)
        return FetchResponse(
            session_id=self.context.session_id,
            responses=[
                FetchableTopicResponse(topic_id=topic, partitions=partitions)
                if isinstance(topic, bytes)
                else FetchableTopicResponse(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
            node_endpoints=_endpoints(self.state, self.leaders),
        )


def fetch(state: BrokerState, call: Call, request: FetchRequest) -> FetchResponse | Outcome:
    """Fetch v4-18 (topic ids from v13), with incremental sessions, min_bytes and max_wait. Followers are refused: there is one replica.
    last_stable_offset is the high watermark, no transaction is ever listed as aborted, no preferred replica is named. cluster_id is
    not compared."""
    context = state.sessions.context(request, call.version, call.now_ms)
    if isinstance(context, Code):
        return FetchResponse(error_code=context, session_id=0, responses=[])
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        return _refuse_follower(context)
    reading = _Reading(state, call, request, context)
    answers = reading.read()
    if request.max_wait_ms <= 0 or not context.partitions or reading.failed or reading.read_bytes >= reading.min_bytes:
        return reading.response(answers)

    waiting = [_WaitingPartition(state, topic, wanted, request.isolation_level) for (topic, _), wanted in context.partitions]
    keys = [(_topic_name(state, topic), index) for (topic, index), _ in context.partitions]
    operation = DelayedFetch(request.max_wait_ms, reading.min_bytes, waiting, lambda: call.answer(lambda: reading.response(reading.read())))
    call.operation = operation
    state.fetches.try_complete_else_watch(operation, keys)
    return Outcome.LATER


def _refuse_follower(context: FetchContext) -> FetchResponse:
    refused: dict[TopicKey, list[PartitionData]] = {}
    for (topic, index), _ in context.partitions:
        answer = PartitionData(
            partition_index=index, error_code=Code.REPLICA_NOT_AVAILABLE, high_watermark=-1, aborted_transactions=None, records=b""
        )
        refused.setdefault(topic, []).append(answer)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic_id=topic, partitions=each)
            if isinstance(topic, bytes)
            else FetchableTopicResponse(topic=topic, partitions=each)
            for topic, each in refused.items()
        ]
    )


# ---- offsets -----------------------------------------------------------------------------------------------------------------------


def list_offsets(state: BrokerState, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """ListOffsets v1-11: earliest, latest, by timestamp, max timestamp (-3). The log is all local: -4 is the earliest offset, -5 and -6
    (tiered storage) answer -1. Timestamps newer than the version answer UNSUPPORTED_VERSION."""
    topics = []
    for topic in request.topics:
        answers = []
        mentions = Counter(partition.partition_index for partition in topic.partitions)
        for wanted in topic.partitions:
            try:
                if mentions[wanted.partition_index] > 1:
                    raise errors.InvalidRequest(f"partition {wanted.partition_index} of {topic.name} is named twice")
                answers.append(_list_offset(state, call.version, request.isolation_level, topic.name, wanted))
            except KafkaError as error:
                answers.append(ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code_of(error)))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _list_offset(
    state: BrokerState, version: int, isolation_level: int, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    partition = state.replicas.partition(topic, wanted.partition_index)
    partition.check_leader(wanted.current_leader_epoch)
    log, upper_offset = partition.log, partition.upper_offset(isolation_level)
    asked = wanted.timestamp
    timestamp_ms, offset, epoch = -1, -1, -1
    if asked < 0:
        since = _SPECIAL_TIMESTAMP_SINCE.get(asked)
        if since is None or version < since:
            raise errors.UnsupportedVersion(f"ListOffsets v{version} knows no timestamp {asked}")
    if asked in (EARLIEST, EARLIEST_LOCAL):
        offset, epoch = log.start_offset, log.epoch_at(log.start_offset)
    elif asked == LATEST:
        offset, epoch = upper_offset, partition.registration.leader_epoch
    elif asked == MAX_TIMESTAMP or asked >= 0:
        found = log.max_timestamp(upper_offset) if asked == MAX_TIMESTAMP else log.offset_for_timestamp(asked, upper_offset)
        if found is not None:
            offset, timestamp_ms, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


def offset_for_leader_epoch(state: BrokerState, call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch v2-4: the largest epoch not above the asked one, and where it ended."""
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                partition = state.replicas.partition(topic.topic, wanted.partition)
                partition.check_leader(wanted.current_leader_epoch)
                epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
                answers.append(EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset))
            except KafkaError as error:
                answers.append(EpochEndOffset(error_code=code_of(error), partition=wanted.partition, leader_epoch=-1, end_offset=-1))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
