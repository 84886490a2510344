"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Source: kafka.server.KafkaApis, kafka.server.ReplicaManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafkacore import errors
from kafkacore.broker.authorizer import CLUSTER_ACTION, DELETE, DESCRIBE
from kafkacore.broker.delayed import DelayedOutcomes, DeletionOutcome
from kafkacore.broker.handlers.access import check_topic, may_cluster
from kafkacore.broker.handlers.common import code_of
from kafkacore.broker.internal_topics import is_internal
from kafkacore.broker.partition import READ_COMMITTED, READ_UNCOMMITTED
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
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
    """ListOffsets v0-11: earliest, latest, by timestamp, max timestamp (-3). The log is all local: -4 is the earliest offset, -5 and -6
    (tiered storage) answer -1. A follower gets the end of the log as the latest offset. Timestamps newer than the version answer
    UNSUPPORTED_VERSION. v0 answers with where segments begin that were written before a time, the latest first."""
    mentions = Counter((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    wanted = {(topic.name, partition.partition_index): partition for topic in request.topics for partition in topic.partitions}
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for (topic, index), partition in wanted.items():
        try:
            check_topic(state, call, DESCRIBE, topic)
            if mentions[topic, index] > 1:
                raise errors.InvalidRequest(f"partition {index} of {topic} is named twice")
            if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
                raise errors.InvalidRequest(f"there is no isolation level {request.isolation_level}")
            answer = _list_offset(state, call, request, topic, partition)
        except KafkaError as error:
            answer = ListOffsetsPartitionResponse(partition_index=index, error_code=state.played.code(code_of(error)))
        topics.setdefault(topic, []).append(answer)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=answers) for topic, answers in topics.items()])


def _list_offset(
    state: BrokerState, call: Call, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    version = call.version
    partition = state.replicas.partition(topic, wanted.partition_index)
    partition.check_leader(wanted.current_leader_epoch)
    log, is_follower = partition.log, request.replica_id >= 0
    upper_offset = log.end_offset if is_follower else partition.upper_offset(request.isolation_level)
    # Right after an election the high watermark may lie below records that were committed: better no answer than one that goes back.
    behind = not is_follower and partition.epoch_start_offset > partition.high_watermark
    asked = wanted.timestamp
    if version == 0:
        offsets = log.offsets_before(asked, upper_offset, call.wall_ms)[: max(wanted.max_num_offsets, 0)]
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0, old_style_offsets=offsets)
    timestamp_ms, offset, epoch = -1, -1, -1
    if asked < 0:
        since = _SPECIAL_TIMESTAMP_SINCE.get(asked)
        if since is None or version < since:
            raise errors.UnsupportedVersion(f"ListOffsets v{version} knows no timestamp {asked}")
    if asked in (EARLIEST, EARLIEST_LOCAL):
        offset, epoch = log.start_offset, log.epoch_at(log.start_offset)
    elif asked == LATEST:
        if behind:
            raise _not_available(version)
        offset, epoch = upper_offset, partition.leader_epoch
    elif asked == MAX_TIMESTAMP or asked >= 0:
        found = log.max_timestamp(upper_offset) if asked == MAX_TIMESTAMP else log.offset_for_timestamp(asked, upper_offset)
        if found is not None:
            offset, timestamp_ms, epoch = found
        elif behind:
            raise _not_available(version)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=0,
        timestamp=timestamp_ms,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


def _not_available(version: int) -> errors.BrokerError:
    message = "the high watermark has not reached the beginning of the leader's epoch yet"
    return errors.OffsetNotAvailable(message) if version >= 5 else errors.LeaderNotAvailable(message)


def offset_for_leader_epoch(state: BrokerState, call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpoch v0-4: the largest epoch not above the asked one, and where it ended."""
    topics = []
    is_broker = may_cluster(state, call, CLUSTER_ACTION)
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if not is_broker:
                    check_topic(state, call, DESCRIBE, topic.topic)
                partition = state.replicas.partition(topic.topic, wanted.partition)
                partition.check_leader(wanted.current_leader_epoch)
                epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
                answers.append(EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset))
            except KafkaError as error:
                answers.append(EpochEndOffset(error_code=code_of(error), partition=wanted.partition, leader_epoch=-1, end_offset=-1))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def delete_records(state: BrokerState, call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Outcome:
    """DeleteRecords v0-2: the log begins later; -1 means the high watermark. The answer waits, for the request's timeout at most,
    until the logs of all live replicas begin there, and tells the earliest of their beginnings."""
    outcomes = {
        (topic.name, wanted.partition_index): _delete_records(state, call, topic.name, wanted.partition_index, wanted.offset)
        for topic in request.topics
        for wanted in topic.partitions
    }
    waiting = [outcome for outcome in outcomes.values() if isinstance(outcome, DeletionOutcome)]
    if all(outcome.known() for outcome in waiting):
        return _deleted(outcomes)
    operation = DelayedOutcomes(request.timeout_ms, waiting, lambda: call.answer(lambda: _deleted(outcomes)))
    call.operation = operation
    state.deletions.try_complete_else_watch(operation, [outcome.partition.key for outcome in waiting])
    return Outcome.LATER


def _delete_records(state: BrokerState, call: Call, topic: str, index: int, offset: int) -> DeletionOutcome | Code:
    try:
        check_topic(state, call, DELETE, topic)
        if is_internal(topic):
            raise errors.InvalidTopic(f"{topic} is internal; its records cannot be deleted")
        partition, start_offset = state.replicas.delete_records(topic, index, offset)
    except KafkaError as error:
        return code_of(error)
    return DeletionOutcome(partition, start_offset, state.replicas.partition)


def _deleted(outcomes: Mapping[tuple[str, int], DeletionOutcome | Code]) -> DeleteRecordsResponse:
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for (topic, index), outcome in outcomes.items():
        code = outcome.code if isinstance(outcome, DeletionOutcome) else outcome
        low_watermark = outcome.partition.low_watermark if isinstance(outcome, DeletionOutcome) and code is Code.NONE else -1
        topics.setdefault(topic, []).append(
            DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
        )
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name=topic, partitions=results) for topic, results in topics.items()])
