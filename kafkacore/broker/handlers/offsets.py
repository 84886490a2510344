"""ListOffsets, OffsetForLeaderEpoch.

Source: kafka.server.KafkaApis, kafka.server.ReplicaManager.
"""

from __future__ import annotations

from collections import Counter

from kafkacore import errors
from kafkacore.broker.handlers.common import code_of
from kafkacore.broker.state import BrokerState, Call
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -1, -3, -4, -5, -6
_SPECIAL_TIMESTAMP_SINCE = {EARLIEST: 0, LATEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


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
        offset, epoch = upper_offset, partition.leader_epoch
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
