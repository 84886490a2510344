"""Produce.

Source: kafka.server.KafkaApis.handleProduceRequest, kafka.server.ReplicaManager.appendRecords.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafkacore import errors
from kafkacore._codec import transactional_header
from kafkacore.broker.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE
from kafkacore.broker.delayed import CommitOutcome, DelayedOutcomes
from kafkacore.broker.handlers.access import may
from kafkacore.broker.handlers.checks import AllowedChecks, Checks, LongBatch
from kafkacore.broker.handlers.common import FIRST_VERSION_WITH_TOPIC_IDS, STALE_LEADER, code_of, current_leader, endpoints, topic_name
from kafkacore.broker.internal_topics import ADMIN_CLIENT_ID, is_internal
from kafkacore.broker.partition import Appended, Check
from kafkacore.broker.producers import Verification
from kafkacore.broker.sessions import TopicKey
from kafkacore.broker.state import BrokerState, Call, LateAnswer, Outcome, WholeRequest
from kafkacore.broker.txns.shard import NO_PRODUCER, ProducerIdAndEpoch
from kafkacore.broker.txns.verify import Support, for_batch
from kafkacore.compress import AllowanceExceeded
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger(__name__)

# KIP-896 ended the versions before, which carry message sets; a broker that plays an older Kafka takes them.
FIRST_PRODUCE_VERSION = 3
FIRST_VERSION_WITH_ABORTABLE_ERROR = 11
FIRST_VERSION_THAT_ADDS_PARTITIONS = 12
_NONE = Code.NONE

Parts = list[tuple[TopicKey, PartitionProduceData]]


class _Written(NamedTuple):
    """What became of one partition of a Produce request: where it lies, or why it was refused."""

    topic: TopicKey
    partition: int
    appended: Appended | None
    outcome: CommitOutcome | None
    code: Code = Code.NONE
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


def produce(state: BrokerState, call: Call, request: ProduceRequest) -> ProduceResponse | Outcome:
    """Produce v3-13 (v13 by topic id). v0-2 carry message sets; Kafka 4 advertises them and refuses them here.
    acks=0 has no response; an error then closes the connection. With acks=-1 the answer waits, for the request's timeout at most, until
    the high watermark has passed the batches. Of a partition named twice the last batch counts. The first batch of a transaction in a
    partition waits for the transaction's coordinator; from v12 on the partition is added to the transaction by it (KIP-890). A batch
    whose check takes long waits for it in `Checks`. The client needs WRITE on each topic, and on the transactional id."""
    by_id = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
    parts: Parts = []
    transactional: list[tuple[TopicKey, int, tuple[int, int, int]]] = []
    for row in request.topic_data:
        topic: TopicKey = row.topic_id if by_id else row.name
        for part in row.partition_data:
            parts.append((topic, part))
    if len(parts) > 1:
        parts = list({(topic, part.index): (topic, part) for topic, part in parts}.values())
    for topic, part in parts:
        if isinstance(part.records, memoryview) and (header := transactional_header(part.records)) is not None:
            transactional.append((topic, part.index, header))
    denied: list[_Written] = []
    if state.authorizer is not None:
        is_transactional = bool(transactional) or (call.whole is not None and _is_transactional(call.whole))
        parts, denied = _allowed(state, call, request.transactional_id, parts, is_transactional)
        if denied and transactional:
            refused_topics = {each.topic for each in denied}
            transactional = [each for each in transactional if each[0] not in refused_topics]
    if not transactional or call.version < FIRST_PRODUCE_VERSION:
        return _write_all(state, call, request, parts, {}, {}, denied)
    unverified = _Verifications(state, call, request, transactional)
    if not unverified.pending:
        return _write_all(state, call, request, parts, {}, unverified.refused, denied)
    if request.acks == 0:
        logger.warning("closing the connection of client %s: a transaction cannot be started with acks=0", call.client_id)
        return Outcome.CLOSE
    return unverified.ask(lambda refused: _write_all(state, call, request, parts, unverified.pending, refused, denied))


def _is_transactional(whole: WholeRequest) -> bool:
    """Whether any part of a request that is cut holds a batch of a transaction."""
    if whole.is_transactional is None:
        assert isinstance(whole.request, ProduceRequest)
        whole.is_transactional = any(
            isinstance(part.records, memoryview) and transactional_header(part.records) is not None
            for row in whole.request.topic_data
            for part in row.partition_data
        )
    return whole.is_transactional


def _allowed(
    state: BrokerState, call: Call, transactional_id: str | None, parts: Parts, is_transactional: bool
) -> tuple[Parts, list[_Written]]:
    """What the client may write, and what it may not: everything if the transactional id is another's."""
    if is_transactional and not (transactional_id and may(state, call, WRITE, TRANSACTIONAL_ID, transactional_id)):
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return [], [_Written(topic, part.index, None, None, code) for topic, part in parts]
    codes = {topic: found for topic in {topic for topic, _ in parts} if (found := _refusal(state, call, topic)) is not None}
    if not codes:
        return parts, []
    denied = [_Written(topic, part.index, None, None, codes[topic]) for topic, part in parts if topic in codes]
    return [(topic, part) for topic, part in parts if topic not in codes], denied


def _refusal(state: BrokerState, call: Call, topic: TopicKey) -> Code | None:
    """Why the client may not write to a topic; None if it may. An id that is unknown now may be known when the batch is written, which may
    wait for others: it is refused here."""
    name = topic
    if isinstance(name, bytes):
        known = state.cluster.topics_by_id.get(name)
        if known is None:
            return Code.UNKNOWN_TOPIC_ID
        name = known.name
    return None if may(state, call, WRITE, TOPIC, name) else Code.TOPIC_AUTHORIZATION_FAILED


def _write_all(
    state: BrokerState,
    call: Call,
    request: ProduceRequest,
    parts: Parts,
    verified: Mapping[tuple[str, int], Verification],
    refused: Mapping[tuple[str, int], KafkaError],
    denied: Sequence[_Written],
) -> ProduceResponse | Outcome:
    check = AllowedChecks().check
    written: list[_Written] = []
    long: list[LongBatch] = []
    for topic, partition in parts:
        try:
            written.append(_write(state, call, request.acks, topic, partition, verified, refused, check))
        except AllowanceExceeded:
            assert isinstance(partition.records, memoryview)
            long.append(LongBatch(len(written), topic_name(state, topic), partition.index, partition.records))
            written.append(_Written(topic, partition.index, None, None))
    written += denied
    if not long:
        return _result(state, call, request, written)

    def write(batch: LongBatch, taken: Check) -> bool:
        try:
            written[batch.nth] = _write(state, call, request.acks, *parts[batch.nth], verified, refused, taken)
        except AllowanceExceeded:
            return False
        return True

    def finish() -> None:
        result = _result(state, call, request, written)
        if result is Outcome.CLOSE:
            call.fail()
        elif result is not Outcome.LATER:
            call.respond(result if isinstance(result, ProduceResponse) else None)

    Checks(state, call, long, write, finish).begin()
    return Outcome.LATER


def _result(state: BrokerState, call: Call, request: ProduceRequest, written: list[_Written]) -> ProduceResponse | Outcome:
    """What becomes of a request when all its batches are written or refused."""
    waits = False
    for each in written:
        if each.outcome is not None and not each.outcome.known():
            waits = True
    if request.acks == 0:
        failed = next((each for each in written if each.appended is None), None)
        if failed is None:
            return Outcome.SILENT
        logger.warning(
            "closing the connection of client %s: its acks=0 Produce request failed: %s %s",
            call.client_id,
            failed.code.name,
            failed.message,
        )
        return Outcome.CLOSE
    if not waits:
        return _answer(state, call, written)
    outcomes = [each.outcome for each in written if each.outcome is not None]
    operation = DelayedOutcomes(request.timeout_ms, outcomes, lambda: call.answer(lambda: _answer(state, call, written)))
    call.operation = operation
    state.produces.try_complete_else_watch(operation, [outcome.partition.key for outcome in outcomes])
    return Outcome.LATER


class _Verifications:
    """The partitions of a Produce request that begin a transaction, and the coordinator's word on them.

    Attributes:
        pending: the guards by (topic, partition).
        refused: partitions that need not be asked about.
    """

    def __init__(
        self, state: BrokerState, call: Call, request: ProduceRequest, transactional: list[tuple[TopicKey, int, tuple[int, int, int]]]
    ) -> None:
        self._state = state
        self._call = call
        self._transactional_id = request.transactional_id
        self._producer = NO_PRODUCER
        self._support = (
            Support.ADDS_BY_WRITING
            if call.version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
            else Support.ABORTABLE_ERROR
            if call.version >= FIRST_VERSION_WITH_ABORTABLE_ERROR
            else Support.NO_ABORTABLE_ERROR
        )
        self.pending: dict[tuple[str, int], Verification] = {}
        self.refused: dict[tuple[str, int], KafkaError] = {}
        for topic, index, header in transactional:
            try:
                self._begin((topic_name(state, topic), index), *header)
            except KafkaError as error:
                self._refuse(topic, index, error)

    def _begin(self, key: tuple[str, int], producer_id: int, epoch: int, sequence: int) -> None:
        if self._transactional_id is None:
            raise errors.TransactionalIdAuthorization("transactional records in a request without a transactional id")
        producer = ProducerIdAndEpoch(producer_id, epoch)
        if self._producer.producer_id not in (NO_PRODUCER.producer_id, producer_id):
            raise errors.InvalidPidMapping("the request holds transactional records of more than one producer")
        self._producer = producer
        if not self._state.config.transaction_partition_verification_enable and self._support is not Support.ADDS_BY_WRITING:
            return
        partition = self._state.replicas.partition(*key)
        partition.check_leader()
        guard = partition.producers.start_verification(
            producer_id, epoch, sequence, self._call.wall_ms, self._support is Support.ADDS_BY_WRITING
        )
        if guard is not None:
            self.pending[key] = guard

    def _refuse(self, topic: TopicKey, index: int, error: KafkaError) -> None:
        if isinstance(topic, str):
            self.refused[topic, index] = error
        elif topic in self._state.cluster.topics_by_id:
            self.refused[self._state.cluster.topics_by_id[topic].name, index] = error

    def ask(self, then: Callable[[Mapping[tuple[str, int], KafkaError]], ProduceResponse | Outcome]) -> Outcome:
        """Asks the coordinator; `then` writes what may be written."""
        waiting = LateAnswer(self._call)

        def done(refused: Mapping[tuple[str, int], KafkaError]) -> None:
            if waiting.is_completed():
                return                                        # the client has closed
            outcome = then({**self.refused, **{key: for_batch(error, self._support) for key, error in refused.items()}})
            if isinstance(outcome, ProduceResponse):
                waiting.respond(lambda: outcome)

        self._state.transactions.verifier.ask(self._transactional_id or "", self._producer, self.pending, self._support, done)
        return Outcome.LATER


def _write(
    state: BrokerState,
    call: Call,
    acks: int,
    topic: TopicKey,
    partition: PartitionProduceData,
    verified: Mapping[tuple[str, int], Verification],
    refused: Mapping[tuple[str, int], KafkaError],
    check: Check,
) -> _Written:
    try:
        message_format = state.played.message_format
        if call.version < FIRST_PRODUCE_VERSION and message_format is None:
            raise errors.UnsupportedVersion(f"Produce v{call.version} was removed in Kafka 4.0 (KIP-896)")
        if acks not in (-1, 0, 1):
            raise errors.InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {acks}")
        if not isinstance(partition.records, memoryview):  # null
            raise errors.InvalidRecord("exactly one record batch per partition is required")
        name = topic if isinstance(topic, str) else topic_name(state, topic)
        key = name, partition.index
        if is_internal(name) and call.client_id != ADMIN_CLIENT_ID:
            raise errors.InvalidTopic(f"{name} is internal: only its coordinators write to it", topic=name, partition=partition.index)
        if refused and key in refused:
            raise refused[key]
        if call.version < FIRST_PRODUCE_VERSION:
            assert message_format is not None
            appended = state.replicas.append_messages(
                name, partition.index, partition.records, acks, call.version, call.wall_ms, call.now_ms, message_format
            )
        else:
            appended = state.replicas.append(
                name, partition.index, partition.records, acks, call.version, call.wall_ms, call.now_ms, verified.get(key), check
            )
    except KafkaError as error:  # its text only: with its traceback it would hold this frame, and so the records, in a cycle
        row_errors = getattr(error, "record_errors", ())
        code = state.played.code(code_of(error))
        return _Written(topic, partition.index, None, None, code, error.message or str(error), row_errors)
    if acks != -1 or appended.committed:
        return _Written(topic, partition.index, appended, None)
    outcome = CommitOutcome(state.replicas.partitions[key], appended.required_offset, state.replicas.partition)
    return _Written(topic, partition.index, appended, outcome)


def _answer(state: BrokerState, call: Call, written: list[_Written]) -> ProduceResponse:
    version = call.version
    topics: dict[TopicKey, list[PartitionProduceResponse]] = {}
    leaders: set[int] = set()
    for each in written:
        code = each.code if each.outcome is None else each.outcome.code
        if code is _NONE and each.appended is not None:
            topics.setdefault(each.topic, []).append(
                PartitionProduceResponse(
                    index=each.partition,
                    base_offset=each.appended.base_offset,
                    log_append_time_ms=each.appended.append_time_ms,
                    log_start_offset=each.appended.log_start_offset,
                )
            )
            continue
        leader = LeaderIdAndEpoch()
        if code in STALE_LEADER and version >= 10:
            leader = current_leader(state, each.topic, each.partition)
            leaders.add(leader.leader_id)
        topics.setdefault(each.topic, []).append(
            PartitionProduceResponse(
                index=each.partition,
                error_code=code,
                base_offset=-1,
                error_message=each.message,
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=row, batch_index_error_message=message) for row, message in each.record_errors
                ],
                current_leader=leader,
            )
        )
    responses: list[TopicProduceResponse] = []
    for topic, answers in topics.items():
        if isinstance(topic, bytes):
            responses.append(TopicProduceResponse(topic_id=topic, partition_responses=answers))
        else:
            responses.append(TopicProduceResponse(name=topic, partition_responses=answers))
    return ProduceResponse(responses=responses, node_endpoints=endpoints(state, call.listener, leaders) if leaders else [])
