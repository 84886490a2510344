"""The requests of transactional producers, WriteTxnMarkers, and what administrators ask about producers and transactions.

The rules are in broker/txns; here are the forms of the versions. Producers that do not know PRODUCER_FENCED get INVALID_PRODUCER_EPOCH.

Source: kafka.server.KafkaApis; KIP-98, KIP-360, KIP-664, KIP-890, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial

from kafkacore import errors
from kafkacore.broker.authorizer import ALTER, CLUSTER_ACTION, DESCRIBE, GROUP, IDEMPOTENT_WRITE, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from kafkacore.broker.cluster import check_topic_name
from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.broker.groups.topic_regex import Matching, Regex
from kafkacore.broker.handlers.access import TOPIC_REFUSED, may, may_cluster, may_some, names_allowed
from kafkacore.broker.handlers.common import code_of
from kafkacore.broker.internal_topics import GROUP_TOPIC, creation_of, is_internal
from kafkacore.broker.producers import NO_SEQUENCE, ProducerStates, Verification
from kafkacore.broker.slices import run_through
from kafkacore.broker.state import BrokerState, Call, LateAnswer, Outcome, forward
from kafkacore.broker.txns.markers import results_of
from kafkacore.broker.txns.shard import Filter, ProducerIdAndEpoch, by_topic
from kafkacore.broker.txns.state import TopicIndex, Transaction, TransactionState
from kafkacore.broker.txns.verify import Support, for_offsets
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    CreateTopicsRequest,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    ProducerState,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FIRST_BATCH_VERSION = 4
"""Of AddPartitionsToTxn: brokers ask about several transactions."""
FIRST_END_WITH_EPOCH_BUMP = 5
FIRST_OFFSETS_WITH_LOAD_IN_PROGRESS = 2
FIRST_OFFSETS_WITH_ABORTABLE_ERROR = 4
FIRST_OFFSETS_THAT_ADD_PARTITIONS = 5
"""Of TxnOffsetCommit, as are the two before."""
FIRST_INIT_WITH_PRODUCER_FENCED = 4
FIRST_WITH_PRODUCER_FENCED = 2
"""Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
MATCHING_STEP_COST = 50_000
"""What ListTransactions spends on its pattern before others are served: about 5 ms."""


def _code(error: KafkaError, version: int, first_with_producer_fenced: int) -> Code:
    code = code_of(error)
    return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED and version < first_with_producer_fenced else code


def init_producer_id(state: BrokerState, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse | Outcome:
    """InitProducerId v0-5. Without a transactional id every call gives a fresh producer id with epoch 0. With one the call comes to its
    coordinator, and fences the producer that used it before. Idempotence alone is open to who may write to any topic."""
    if request.transactional_id is not None:
        if not may(state, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return _no_producer_id(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not may_cluster(state, call, IDEMPOTENT_WRITE) and not may_some(state, call, WRITE, TOPIC):
        return _no_producer_id(Code.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1) or min(request.producer_id, request.producer_epoch) < -1:
        return _no_producer_id(Code.INVALID_REQUEST)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if request.producer_id >= 0 else None
    answer = LateAnswer(call)

    def done(outcome: ProducerIdAndEpoch | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            code = _code(outcome, call.version, FIRST_INIT_WITH_PRODUCER_FENCED)
            answer.respond(lambda: _no_producer_id(code))
        else:
            response = InitProducerIdResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
            answer.respond(lambda: response)

    state.transactions.coordinator.init_producer_id(request.transactional_id, request.transaction_timeout_ms, expected, done)
    return Outcome.LATER


def _no_producer_id(code: Code) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


# ---- partitions and offsets


def _targets(topics: list[AddPartitionsToTxnTopic]) -> list[TopicIndex]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(state: BrokerState, call: Call, targets: list[TopicIndex]) -> dict[TopicIndex, Code]:
    """If some partitions do not exist, or are internal or forbidden and a client asks for them, nothing is attempted with the others."""
    refused = {target: Code.UNKNOWN_TOPIC_OR_PARTITION for target in targets if state.transactions.leader_of(*target) is None}
    if call.version < FIRST_BATCH_VERSION:
        allowed = names_allowed(state, call, WRITE, TOPIC, (topic for topic, _ in targets))
        forbidden = [target for target in targets if is_internal(target[0]) or (allowed is not None and target[0] not in allowed)]
        refused.update(dict.fromkeys(forbidden, Code.TOPIC_AUTHORIZATION_FAILED))
    return {target: refused.get(target, Code.OPERATION_NOT_ATTEMPTED) for target in targets} if refused else {}


def _results(topics: list[AddPartitionsToTxnTopic], codes: Mapping[TopicIndex, Code]) -> list[AddPartitionsToTxnTopicResult]:
    """One result for each partition as often as it was named."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_partitions_to_txn(state: BrokerState, call: Call, request: AddPartitionsToTxnRequest) -> Outcome | AddPartitionsToTxnResponse:
    """AddPartitionsToTxn v0-5: one transaction of a client up to v3; from v4 on several, of brokers, to add to or to verify."""
    batch = call.version >= FIRST_BATCH_VERSION
    if batch and not may_cluster(state, call, CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    transactions = (
        request.transactions
        if batch
        else [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    )
    answer = LateAnswer(call)
    results: dict[int, dict[TopicIndex, Code]] = {}

    def collect(nth: int, codes: dict[TopicIndex, Code]) -> None:
        results[nth] = codes
        if len(results) == len(transactions):
            finish()

    def finish() -> None:
        if batch:
            response = AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_results(each.topics, results[nth]))
                    for nth, each in enumerate(transactions)
                ]
            )
        else:
            response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(transactions[0].topics, results[0]))
        answer.respond(lambda: response)

    if not transactions:
        finish()
    for nth, each in enumerate(transactions):
        _add_partitions(state, call, each, nth, collect)
    return Outcome.LATER


def _add_partitions(
    state: BrokerState,
    call: Call,
    wanted: AddPartitionsToTxnTransaction,
    nth: int,
    collect: Callable[[int, dict[TopicIndex, Code]], None],
) -> None:
    version = call.version
    targets = _targets(wanted.topics)
    if version < FIRST_BATCH_VERSION and not may(state, call, WRITE, TRANSACTIONAL_ID, wanted.transactional_id):
        collect(nth, dict.fromkeys(targets, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    refused = _refused(state, call, targets)
    if refused:
        collect(nth, refused)
        return
    producer = ProducerIdAndEpoch(wanted.producer_id, wanted.producer_epoch)
    coordinator = state.transactions.coordinator

    def all_alike(error: KafkaError | None) -> None:
        code = Code.NONE if error is None else _code(error, version, FIRST_WITH_PRODUCER_FENCED)
        collect(nth, dict.fromkeys(targets, code))

    def verified(outcome: Mapping[TopicIndex, KafkaError | None] | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            all_alike(outcome)
        else:
            collect(nth, {target: Code.NONE if error is None else code_of(error) for target, error in outcome.items()})

    if version >= FIRST_BATCH_VERSION and wanted.verify_only:
        coordinator.verify_partitions(wanted.transactional_id, producer, targets, verified)
    else:
        client_version = 2 if version >= FIRST_BATCH_VERSION else 0
        coordinator.add_partitions(wanted.transactional_id, producer, targets, client_version, all_alike)


def add_offsets_to_txn(state: BrokerState, call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | Outcome:
    """AddOffsetsToTxn v0-4: takes the partition that keeps the group's offsets into the transaction. The topic of offsets is made if it is
    not there; the producer tries again then."""
    if not may(state, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(state, call, READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    topic = state.cluster.topics.get(GROUP_TOPIC)
    if topic is None:
        creation = creation_of(state.cluster, state.config, GROUP_TOPIC)
        not_yet = AddOffsetsToTxnResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)
        return forward(state, call, creation, CreateTopicsRequest.MAX_VERSION, lambda result: not_yet)
    answer = LateAnswer(call)

    def done(error: KafkaError | None) -> None:
        code = Code.NONE if error is None else _code(error, call.version, FIRST_WITH_PRODUCER_FENCED)
        answer.respond(lambda: AddOffsetsToTxnResponse(error_code=code))

    state.transactions.coordinator.add_partitions(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        [(GROUP_TOPIC, partition_for(request.group_id, len(topic.partitions)))],
        0,
        done,
    )
    return Outcome.LATER


def end_txn(state: BrokerState, call: Call, request: EndTxnRequest) -> Outcome | EndTxnResponse:
    """EndTxn v0-5, answered when the decision is committed. From v5 on the producer goes on with the epoch in the answer."""
    if not may(state, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    answer = LateAnswer(call)

    def done(outcome: ProducerIdAndEpoch | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            response = EndTxnResponse(error_code=_code(outcome, call.version, FIRST_WITH_PRODUCER_FENCED))
        else:
            response = EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch)
        answer.respond(lambda: response)

    state.transactions.coordinator.end(
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        request.committed,
        2 if call.version >= FIRST_END_WITH_EPOCH_BUMP else 0,
        done,
    )
    return Outcome.LATER


def txn_offset_commit(state: BrokerState, call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Outcome:
    """TxnOffsetCommit v0-5: offsets that count when the transaction commits. The transaction is verified as for Produce; from v5 on the
    partition that keeps the group's offsets is added to it. Partitions that do not exist are refused one by one."""
    if not may(state, call, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return _no_offsets(request, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(state, call, READ, GROUP, request.group_id):
        return _no_offsets(request, Code.GROUP_AUTHORIZATION_FAILED)
    readable = names_allowed(state, call, READ, TOPIC, (each.name for each in request.topics))
    refused: list[TxnOffsetCommitResponseTopic] = []
    accepted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        if readable is not None and topic.name not in readable:
            refused.append(_refused_offsets(topic, Code.TOPIC_AUTHORIZATION_FAILED))
            continue
        known = {each.partition_index for each in topic.partitions}
        known = {index for index in known if state.transactions.leader_of(topic.name, index) is not None}
        there = [each for each in topic.partitions if each.partition_index in known]
        if there:
            accepted.append(topic._replace(partitions=there))
        missing = [each for each in topic.partitions if each.partition_index not in known]
        if missing:
            refused.append(_refused_offsets(topic._replace(partitions=missing), Code.UNKNOWN_TOPIC_OR_PARTITION))
    if not accepted:
        return TxnOffsetCommitResponse(topics=_each_topic_once(refused))
    answer = LateAnswer(call)

    def done(outcome: TxnOffsetCommitResponse | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            code = code_of(outcome)
            if code is Code.COORDINATOR_LOAD_IN_PROGRESS and call.version < FIRST_OFFSETS_WITH_LOAD_IN_PROGRESS:
                code = Code.COORDINATOR_NOT_AVAILABLE
            answers = [_refused_offsets(topic, code) for topic in accepted]
        else:
            answers = outcome.topics
        answer.respond(lambda: TxnOffsetCommitResponse(topics=_each_topic_once([*refused, *answers]) if refused else answers))

    _commit_in_transaction(state, call, request._replace(topics=accepted), done)
    return Outcome.LATER


def _each_topic_once(topics: list[TxnOffsetCommitResponseTopic]) -> list[TxnOffsetCommitResponseTopic]:
    found: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    for topic in topics:
        found.setdefault(topic.name, []).extend(topic.partitions)
    return [TxnOffsetCommitResponseTopic(name=name, partitions=partitions) for name, partitions in found.items()]


def _no_offsets(request: TxnOffsetCommitRequest, code: Code) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refused_offsets(topic, code) for topic in request.topics])


def _refused_offsets(topic: TxnOffsetCommitRequestTopic, code: Code) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in topic.partitions],
    )


def _commit_in_transaction(
    state: BrokerState, call: Call, request: TxnOffsetCommitRequest, done: Callable[[TxnOffsetCommitResponse | KafkaError], None]
) -> None:
    if not request.group_id:
        done(errors.InvalidGroupId("a group id cannot be empty"))
        return
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    target = GROUP_TOPIC, state.groups.partition_of(request.group_id)
    support = (
        Support.ADDS_BY_WRITING
        if call.version >= FIRST_OFFSETS_THAT_ADD_PARTITIONS
        else Support.ABORTABLE_ERROR
        if call.version >= FIRST_OFFSETS_WITH_ABORTABLE_ERROR
        else Support.NO_ABORTABLE_ERROR
    )

    def write(verification: Verification | None) -> None:
        state.groups.runtime.write_transactional(
            target[1], *producer, lambda shard: shard.commit_in_transaction(request), done, verification, request.group_id
        )

    if not state.groups.runtime.serves(target[1]):
        write(None)                                            # the runtime has the words for it
        return
    if not state.config.transaction_partition_verification_enable and support is not Support.ADDS_BY_WRITING:
        write(None)
        return
    try:
        guard = state.replicas.partition(*target).producers.start_verification(
            *producer, NO_SEQUENCE, call.wall_ms, support is Support.ADDS_BY_WRITING
        )
    except KafkaError as error:
        done(error)
        return
    if guard is None:
        write(None)
        return

    def verified(refusals: Mapping[TopicIndex, KafkaError]) -> None:
        if target in refusals:
            done(for_offsets(refusals[target]))
        else:
            write(guard)

    state.transactions.verifier.ask(request.transactional_id, producer, [target], support, verified)


def write_txn_markers(state: BrokerState, call: Call, request: WriteTxnMarkersRequest) -> Outcome | WriteTxnMarkersResponse:
    """WriteTxnMarkers v0-2, answered when the markers are committed: from coordinators, or from an administrator who ends a transaction
    that hangs."""
    if not may_cluster(state, call, ALTER) and not may_cluster(state, call, CLUSTER_ACTION):
        refused = Code.CLUSTER_AUTHORIZATION_FAILED
        codes = [
            {(topic.name, index): refused for topic in marker.topics for index in topic.partition_indexes} for marker in request.markers
        ]
        return results_of(request.markers, codes)
    answer = LateAnswer(call)
    state.transactions.writer.write(request.markers, lambda codes: answer.respond(lambda: results_of(request.markers, codes)))
    return Outcome.LATER


# ---- looking


def describe_producers(state: BrokerState, call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """DescribeProducers v0: the producers that this replica of a partition remembers; a follower answers, too."""
    readable = names_allowed(state, call, READ, TOPIC, (topic.name for topic in request.topics))
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[_describe_partition(state, topic.name, index, readable) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe_partition(
    state: BrokerState, topic: str, index: int, readable: frozenset[str] | None
) -> DescribeProducersPartitionResponse:
    try:
        check_topic_name(topic)
        if readable is not None and topic not in readable:
            raise errors.TopicAuthorization(TOPIC_REFUSED, topic=topic)
        partition = state.replicas.partition(topic, index)
    except (errors.InvalidTopic, errors.TopicAuthorization) as error:
        return _no_producers(index, error, error.message)
    except KafkaError as error:
        return _no_producers(index, error, None if topic in state.cluster.topics else "This server does not host this topic-partition.")
    return DescribeProducersPartitionResponse(partition_index=index, active_producers=_active_producers(partition.producers))


def _no_producers(index: int, error: KafkaError, message: str | None) -> DescribeProducersPartitionResponse:
    return DescribeProducersPartitionResponse(partition_index=index, error_code=code_of(error), error_message=message)


def _active_producers(states: ProducerStates) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
        )
        for producer_id, entry in states.entries.items()
    ]


def describe_transactions(state: BrokerState, call: Call, request: DescribeTransactionsRequest) -> Outcome:
    """DescribeTransactions v0: transactional ids whose coordinator this broker is; of their topics those that the client may describe."""
    answer = LateAnswer(call)
    wanted = request.transactional_ids
    found: dict[int, DescribeTransactionsTransactionState] = {}

    def finish() -> None:
        response = DescribeTransactionsResponse(transaction_states=[found[nth] for nth in range(len(wanted))])
        answer.respond(lambda: response)

    def collect(nth: int, outcome: tuple[Transaction, frozenset[TopicIndex]] | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            found[nth] = DescribeTransactionsTransactionState(error_code=code_of(outcome), transactional_id=wanted[nth])
        else:
            transaction, partitions = outcome
            visible = names_allowed(state, call, DESCRIBE, TOPIC, (topic for topic, _ in partitions))
            if visible is not None:
                partitions = frozenset(each for each in partitions if each[0] in visible)
            found[nth] = _describe_transaction(transaction, partitions)
        if len(found) == len(wanted):
            finish()

    if not wanted:
        finish()
    for nth, transactional_id in enumerate(wanted):
        if not may(state, call, DESCRIBE, TRANSACTIONAL_ID, transactional_id):
            collect(nth, errors.TransactionalIdAuthorization(transactional_id))
            continue
        state.transactions.coordinator.describe(transactional_id, partial(collect, nth))
    return Outcome.LATER


def _describe_transaction(transaction: Transaction, partitions: frozenset[TopicIndex]) -> DescribeTransactionsTransactionState:
    return DescribeTransactionsTransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[DescribeTransactionsTopicData(topic=name, partitions=indexes) for name, indexes in by_topic(partitions).items()],
    )


def list_transactions(state: BrokerState, call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse | Outcome:
    """ListTransactions v0-2, filtered by state, producer id, duration (v1) and a pattern of the transactional id (v2). Unknown states are
    named in the answer; if no known one is left, nothing is listed. Nor is what the client may not describe."""
    known = {each.label for each in TransactionState}
    states = frozenset(request.state_filters) & known
    unknown = [label for label in request.state_filters if label not in known]
    try:
        pattern = Regex(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except errors.InvalidRegularExpression as error:
        return ListTransactionsResponse(error_code=code_of(error))
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    answer = LateAnswer(call)

    def listed(found: list[Transaction]) -> ListTransactionsResponse:
        visible = names_allowed(state, call, DESCRIBE, TRANSACTIONAL_ID, (each.transactional_id for each in found))
        if visible is not None:
            found = [each for each in found if each.transactional_id in visible]
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[
                ListTransactionsTransactionState(
                    transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state.label
                )
                for each in found
            ],
        )

    def match(regex: Regex, found: list[Transaction]) -> Generator[None, None, ListTransactionsResponse]:
        matching = yield from _matching(regex, found)
        return listed(matching)

    def done(found: list[Transaction] | KafkaError) -> None:
        if isinstance(found, KafkaError):
            failed = ListTransactionsResponse(error_code=code_of(found))
            answer.respond(lambda: failed)
        elif pattern is None:
            answer.respond(lambda: listed(found))
        elif call.slice is None:
            answer.respond(lambda: run_through(match(pattern, found)))
        elif not answer.is_completed():
            call.slice(call, match(pattern, found))

    wanted = Filter(states, frozenset(request.producer_id_filters), request.duration_filter)
    state.transactions.coordinator.list(wanted, done)
    return Outcome.LATER


def _matching(pattern: Regex, transactions: list[Transaction]) -> Generator[None, None, list[Transaction]]:
    """The transactions whose whole ids match, found in steps: pattern and ids come from clients, and an id may have 32 kB."""
    found = []
    step_end = pattern.cost + MATCHING_STEP_COST
    for transaction in transactions:
        matches: bool | Matching = pattern.start
        while isinstance(matches, Matching):
            if pattern.cost >= step_end:
                yield
                step_end = pattern.cost + MATCHING_STEP_COST
            matches = pattern.go_on(transaction.transactional_id, matches, step_end - pattern.cost)
        pattern.cost += 1
        if matches:
            found.append(transaction)
    return found
