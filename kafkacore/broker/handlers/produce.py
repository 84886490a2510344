"""Produce.

Source: kafka.server.KafkaApis.handleProduceRequest, kafka.server.ReplicaManager.appendRecords.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkacore import errors
from kafkacore.broker.delayed import CommitOutcome, DelayedOutcomes
from kafkacore.broker.handlers.common import FIRST_VERSION_WITH_TOPIC_IDS, STALE_LEADER, code_of, current_leader, endpoints, topic_name
from kafkacore.broker.partition import Appended
from kafkacore.broker.sessions import TopicKey
from kafkacore.broker.state import BrokerState, Call, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger(__name__)

# The message tables start at 0 so that old frames can be read and refused by name; KIP-896 ended these versions.
FIRST_PRODUCE_VERSION = 3


class _Written(NamedTuple):
    """What became of one partition of a Produce request: where it lies, or why it was refused."""

    topic: TopicKey
    partition: int
    appended: Appended | None
    outcome: CommitOutcome | None
    code: Code = Code.NONE
    message: str | None = None


def produce(state: BrokerState, call: Call, request: ProduceRequest) -> ProduceResponse | Outcome:
    """Produce v3-13 (v13 by topic id). v0-2 are advertised, because old clients read "compression is possible" from them, and refused here.
    acks=0 has no response; an error then closes the connection. With acks=-1 the answer waits, for the request's timeout at most, until
    the high watermark has passed the batches. Transactional batches are refused."""
    written = [
        _write(state, call, request.acks, topic.topic_id if call.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name, partition)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    if request.acks == 0:
        refused = next((each for each in written if each.appended is None), None)
        if refused is None:
            return Outcome.SILENT
        logger.warning(
            "closing the connection of client %s: its acks=0 Produce request failed: %s %s",
            call.client_id,
            refused.code.name,
            refused.message,
        )
        return Outcome.CLOSE
    outcomes = [each.outcome for each in written if each.outcome is not None]
    if all(outcome.known() for outcome in outcomes):
        return _answer(state, call.version, written)
    operation = DelayedOutcomes(request.timeout_ms, outcomes, lambda: call.answer(lambda: _answer(state, call.version, written)))
    call.operation = operation
    state.produces.try_complete_else_watch(operation, [outcome.partition.key for outcome in outcomes])
    return Outcome.LATER


def _write(state: BrokerState, call: Call, acks: int, topic: TopicKey, partition: PartitionProduceData) -> _Written:
    try:
        if call.version < FIRST_PRODUCE_VERSION:
            raise errors.UnsupportedVersion(f"Produce v{call.version} is gone since Kafka 4.0 (KIP-896)")
        if acks not in (-1, 0, 1):
            raise errors.InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {acks}")
        if not isinstance(partition.records, memoryview):  # null
            raise errors.InvalidRecord("exactly one record batch per partition is required")
        name = topic_name(state, topic)
        appended = state.replicas.append(name, partition.index, partition.records, acks, call.version, call.wall_ms)
    except KafkaError as error:  # its text only: with its traceback it would hold this frame, and so the records, in a cycle
        return _Written(topic, partition.index, None, None, code_of(error), error.message or str(error))
    if acks != -1:
        return _Written(topic, partition.index, appended, None)
    holder = state.replicas.partition(name, partition.index)
    return _Written(topic, partition.index, appended, CommitOutcome(holder, appended.required_offset, state.replicas.partition))


def _answer(state: BrokerState, version: int, written: list[_Written]) -> ProduceResponse:
    topics: dict[TopicKey, list[PartitionProduceResponse]] = {}
    leaders: set[int] = set()
    for each in written:
        code = each.code if each.outcome is None else each.outcome.code
        leader = LeaderIdAndEpoch()
        if code in STALE_LEADER and version >= 10:
            leader = current_leader(state, each.topic, each.partition)
            leaders.add(leader.leader_id)
        appended = each.appended if code is Code.NONE else None
        topics.setdefault(each.topic, []).append(
            PartitionProduceResponse(
                index=each.partition,
                error_code=code,
                base_offset=-1 if appended is None else appended.base_offset,
                log_append_time_ms=-1 if appended is None else appended.append_time_ms,
                log_start_offset=-1 if appended is None else appended.log_start_offset,
                error_message=each.message,
                current_leader=leader,
            )
        )
    return ProduceResponse(
        responses=[
            TopicProduceResponse(topic_id=topic, partition_responses=answers)
            if isinstance(topic, bytes)
            else TopicProduceResponse(name=topic, partition_responses=answers)
            for topic, answers in topics.items()
        ],
        node_endpoints=endpoints(state, leaders),
    )
