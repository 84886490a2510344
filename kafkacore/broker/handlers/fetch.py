"""Fetch.

Source: kafka.server.KafkaApis.handleFetchRequest, kafka.server.ReplicaManager.fetchMessages.
"""

from __future__ import annotations

from typing import Any

from kafkacore import errors
from kafkacore.broker.delayed import DelayedFetch
from kafkacore.broker.handlers.common import STALE_LEADER, code_of, current_leader, endpoints, topic_name
from kafkacore.broker.partition import READ_COMMITTED, Partition
from kafkacore.broker.sessions import FetchContext, TopicKey
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)


def _partition(state: BrokerState, topic: TopicKey, wanted: FetchPartition) -> Partition:
    """The partition a fetch names, as its leader."""
    partition = state.replicas.partition(topic_name(state, topic), wanted.partition)
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
                if code in STALE_LEADER and self.version >= 12:
                    leader = current_leader(self.state, topic, index)
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
        aborted: list[AbortedTransaction] | None = None
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if epoch < 0:
                raise errors.OffsetOutOfRange(f"the log knows no epoch {wanted.last_fetched_epoch}", offset=wanted.fetch_offset)
            if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                diverging = FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
                self.failed = True  # answered at once, as an error is
        isolation_level = self.request.isolation_level
        if isolation_level == READ_COMMITTED:
            aborted = []
        if diverging.epoch < 0 and diverging.end_offset < 0:
            limit = min(wanted.partition_max_bytes, self.max_bytes - self.read_bytes)
            at_least_one = self.read_bytes == 0
            if limit > 0 or at_least_one:
                upper_offset = partition.upper_offset(isolation_level)
                records += log.read(wanted.fetch_offset, max(limit, 0), upper_offset, at_least_one)
                self.read_bytes += sum(view.nbytes for view in records)
                if aborted is not None and records:
                    aborted += [
                        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                        for entry in log.aborted_transactions(wanted.fetch_offset, upper_offset)
                    ]
        return PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
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
            node_endpoints=endpoints(self.state, self.leaders),
        )


def fetch(state: BrokerState, call: Call, request: FetchRequest) -> FetchResponse | Outcome:
    """Fetch v4-18 (topic ids from v13), with incremental sessions, min_bytes and max_wait. Followers are refused: there is one replica.
    No preferred replica is named, cluster_id is not compared."""
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
    keys = [(topic_name(state, topic), index) for (topic, index), _ in context.partitions]
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
