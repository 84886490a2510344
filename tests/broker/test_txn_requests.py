"""What each transactional request asks of its coordinator, and how each answer says it in the words of its version."""

import dataclasses
from types import SimpleNamespace

import pytest
from test_handlers import Bench

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.authorizer import ALTER, CLUSTER, CLUSTER_ACTION, DESCRIBE, IDEMPOTENT_WRITE, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from kafkacore.broker.authorizer import GROUP as GROUP_TYPE
from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.broker.producers import BatchMetadata, ProducerEntry
from kafkacore.broker.txns.shard import Filter, ProducerIdAndEpoch, by_topic
from kafkacore.broker.txns.state import MAX_EPOCH, VALID_PREVIOUS, Transaction, TransactionState, is_exhausted
from kafkacore.broker.txns.verify import Support
from kafkacore.errors import Code
from tests.kit.rows import each_row

WHO = ProducerIdAndEpoch(7, 3)
OPEN = Transaction("a", 1, 2, 3, 4, 5, 6, TransactionState.ONGOING, frozenset({("t", 1), ("t", 0), ("s", 2)}), 7, 8, 9)


class Coordinated(Bench):
    """Its coordinator notes what it is asked, and gives the next of `answers`."""

    def __init__(self, *answers):
        super().__init__()
        self.answers, self.asked = list(answers), []
        coordinator = self.state.transactions.coordinator
        for name in ("init_producer_id", "add_partitions", "verify_partitions", "end", "describe", "list"):
            setattr(coordinator, name, self.noting(name))
        self.topic("t", 2)
        self.topic("__consumer_offsets", 50)

    def noting(self, name):
        def note(*given):
            self.asked.append((name, *given[:-1]))
            given[-1](self.answers.pop(0))

        return note


def added(version, *topics, verify_only=False, names=("x",)):
    wanted = [p.AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, *indexes in topics]
    if version < 4:
        return p.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=7, v3_and_below_producer_epoch=3, v3_and_below_topics=wanted
        )
    one = p.AddPartitionsToTxnTransaction(producer_id=7, producer_epoch=3, verify_only=verify_only, topics=wanted)
    return p.AddPartitionsToTxnRequest(transactions=[one._replace(transactional_id=name) for name in names])


def codes_of(topics):
    return {(topic.name, each.partition_index): each.partition_error_code for topic in topics for each in topic.results_by_partition}


OFFSETS = p.AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="g")
ENDED = p.EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, committed=True)
GROUP = [("__consumer_offsets", partition_for("g", 50))]


@each_row(
    ("request_", "first", "asked"),
    [
        (p.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9), 4, [("init_producer_id", "x", 9, None)] * 2),
        (added(1, ("t", 0, 1)), 2, [("add_partitions", "x", WHO, [("t", 0), ("t", 1)], 0)] * 2),
        (OFFSETS, 2, [("add_partitions", "x", WHO, GROUP, 0)] * 2),
        (ENDED, 2, [("end", "x", WHO, True, 0)] * 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_old_producers_hear_that_they_are_fenced_by_a_code_they_know(request_, first, asked):
    bench = Coordinated(errors.ProducerFenced("no"), errors.ProducerFenced("no"))
    for version, code in ((first - 1, Code.INVALID_PRODUCER_EPOCH), (first, Code.PRODUCER_FENCED)):
        answer = bench.ask(request_, version)
        if isinstance(answer, p.AddPartitionsToTxnResponse):
            assert codes_of(answer.results_by_topic_v3_and_below) == {("t", 0): code, ("t", 1): code}
        elif isinstance(answer, p.InitProducerIdResponse):
            assert tuple(answer)[:4] == (0, code, -1, -1)
        else:
            assert answer.error_code == code
    assert bench.asked == asked


def test_what_producers_are_answered():
    bench = Coordinated(WHO, WHO, None, None, None, WHO, WHO)
    init = p.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9, producer_id=7, producer_epoch=2)
    for request in (init, init._replace(producer_id=-1, producer_epoch=-1)):
        assert tuple(bench.ask(request, 5))[:4] == (0, 0, 7, 3)
    assert codes_of(bench.ask(added(3, ("t", 0)), 3).results_by_topic_v3_and_below) == {("t", 0): 0}
    (reported,) = bench.ask(added(5, ("t", 0)), 5).results_by_transaction
    assert (reported.transactional_id, codes_of(reported.topic_results)) == ("x", {("t", 0): 0})
    assert tuple(bench.ask(OFFSETS, 4)) == (0, 0)
    assert tuple(bench.ask(ENDED, 4)[:2]) == (0, 0) and tuple(bench.ask(ENDED, 5)) == (0, 0, 7, 3)
    assert bench.asked == [
        ("init_producer_id", "x", 9, ProducerIdAndEpoch(7, 2)),
        ("init_producer_id", "x", 9, None),
        ("add_partitions", "x", WHO, [("t", 0)], 0),
        ("add_partitions", "x", WHO, [("t", 0)], 2),
        ("add_partitions", "x", WHO, GROUP, 0),
        ("end", "x", WHO, True, 0),
        ("end", "x", WHO, True, 2),
    ]
    for who in ((5, -1), (-1, 0), (-2, -2), (0, -2), (-2, 0)):
        assert tuple(bench.ask(init._replace(producer_id=who[0], producer_epoch=who[1]), 5))[:4] == (0, Code.INVALID_REQUEST, -1, -1)


def test_several_transactions_are_answered_one_by_one():
    missing = errors.TransactionAbortable("no")
    bench = Coordinated({("t", 0): None, ("t", 1): missing}, errors.NotCoordinator("moved"))
    found = bench.ask(added(4, ("t", 0, 1), verify_only=True, names=("x", "y")), 4).results_by_transaction
    assert [(each.transactional_id, codes_of(each.topic_results)) for each in found] == [
        ("x", {("t", 0): 0, ("t", 1): Code.TRANSACTION_ABORTABLE}),
        ("y", {("t", 0): Code.NOT_COORDINATOR, ("t", 1): Code.NOT_COORDINATOR}),
    ]
    assert bench.asked == [("verify_partitions", name, WHO, [("t", 0), ("t", 1)]) for name in "xy"]
    ours = ("__consumer_offsets", 0)
    untried, unknown = Code.OPERATION_NOT_ATTEMPTED, Code.UNKNOWN_TOPIC_OR_PARTITION
    answer = bench.ask(added(3, ("t", 0, 2), ours, ("u", 0)), 3).results_by_topic_v3_and_below
    assert codes_of(answer) == {("t", 0): untried, ("t", 2): unknown, ours: Code.TOPIC_AUTHORIZATION_FAILED, ("u", 0): unknown}


def test_what_administrators_are_answered_field_by_field():
    missing = errors.TransactionalIdNotFound("no")
    listed = [OPEN, dataclasses.replace(OPEN, transactional_id="b", state=TransactionState.EMPTY)]
    bench = Coordinated((OPEN, OPEN.partitions), missing, listed, listed)
    found, absent = bench.ask(p.DescribeTransactionsRequest(transactional_ids=["a", "b"]), 0).transaction_states
    assert tuple(found)[:7] == (0, "a", "Ongoing", 6, 7, 1, 2)
    assert [tuple(each) for each in found.topics] == [("s", [2]), ("t", [0, 1])]
    assert tuple(absent) == (Code.TRANSACTIONAL_ID_NOT_FOUND, "b", "", 0, 0, 0, 0, [])
    assert bench.ask(p.DescribeTransactionsRequest(transactional_ids=[]), 0).transaction_states == []
    request = p.ListTransactionsRequest(state_filters=["Ongoing", "No", "Dead"], producer_id_filters=[1, 2], duration_filter=5)
    answer = bench.ask(request, 1)
    assert tuple(answer)[:3] == (0, 0, ["No"])
    assert [tuple(each) for each in answer.transaction_states] == [("a", 1, "Ongoing"), ("b", 1, "Empty")]
    assert bench.asked[2] == ("list", Filter(frozenset({"Ongoing", "Dead"}), frozenset({1, 2}), 5))
    bench.ask(p.ListTransactionsRequest(), 1)
    assert bench.asked[3] == ("list", Filter())
    for name, index, code, message in (
        ("t", 2, Code.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("u", 0, Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        ("..", 0, Code.INVALID_TOPIC_EXCEPTION, "'..'"),
    ):
        wanted = p.DescribeProducersTopicRequest(name=name, partition_indexes=[index])
        ((reported,),) = (topic.partitions for topic in bench.ask(p.DescribeProducersRequest(topics=[wanted]), 0).topics)
        assert (reported.partition_index, reported.error_code, reported.active_producers) == (index, code, [])
        assert reported.error_message == message or (message and message in reported.error_message)


def test_producers_of_a_partition_field_by_field():
    bench = Coordinated()
    entries = bench.state.replicas.partition("t", 1).producers.entries
    entries[7], entries[8] = ProducerEntry(3, 4, 5, 6), ProducerEntry(1, 2, 3)
    entries[7].batches.append(BatchMetadata(8, 9, 10, 11, 5))
    wanted = p.DescribeProducersTopicRequest(name="t", partition_indexes=[0, 1])
    ((idle, found),) = (topic.partitions for topic in bench.ask(p.DescribeProducersRequest(topics=[wanted]), 0).topics)
    assert (tuple(idle), tuple(found)[:3]) == ((0, 0, None, []), (1, 0, None))
    names = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch", "current_txn_start_offset")
    assert [[getattr(each, name) for name in names] for each in found.active_producers] == [[7, 3, 9, 5, 4, 6], [8, 1, -1, 3, 2, -1]]


def test_leaders_as_transactions_see_them():
    bench = Bench()
    bench.topic("t", 2)
    service = bench.state.transactions
    assert [service.leader_of("t", index) for index in (-1, 0, 1, 2)] == [None, 1, 1, None] and service.leader_of("u", 0) is None
    bench.elect(bench.cluster.topics["t"], leader=5, epoch=1)
    assert service.leader_of("t", 0) == -1
    reported = []
    service.verifier.ask("x", WHO, [("t", 0)], Support.ABORTABLE_ERROR, reported.append)
    assert reported[0]["t", 0].code == Code.COORDINATOR_NOT_AVAILABLE and "there is no topic" in reported[0]["t", 0].message


def test_what_a_commit_of_offsets_asks_of_the_coordinator(monkeypatch):
    bench = Coordinated()
    asked, state = [], bench.state
    monkeypatch.setattr(state.transactions.verifier, "ask", lambda *given: asked.append(given[:-1]) or given[-1]({}))
    monkeypatch.setattr(state.groups.runtime, "serves", lambda partition: True)
    answer, written = p.TxnOffsetCommitResponse(topics=[p.TxnOffsetCommitResponseTopic(name="t")]), []

    def write(*given):
        written.append((*given[:3], given[5] is not None, given[6]))
        given[4](answer)

    monkeypatch.setattr(state.groups.runtime, "write_transactional", write)
    partitions = [p.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [p.TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = p.TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=3, topics=topics)
    for version in (3, 4, 5):
        assert bench.ask(request, version).topics == answer.topics
    supports = (Support.NO_ABORTABLE_ERROR, Support.ABORTABLE_ERROR, Support.ADDS_BY_WRITING)
    assert asked == [("x", WHO, GROUP, support) for support in supports]
    assert written == [(GROUP[0][1], 7, 3, True, "g")] * 3
    monkeypatch.setattr(state.transactions.verifier, "ask", lambda *given: given[-1]({GROUP[0]: errors.NetworkError("gone")}))
    assert bench.ask(request, 4).topics[0].partitions[0].error_code == Code.COORDINATOR_LOAD_IN_PROGRESS


NO_TXN, NO_TOPIC, NO_GROUP, NO_CLUSTER = (
    *(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED),
    *(Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED),
)
TXN_X, GROUP_G, TOPIC_T = (WRITE, TRANSACTIONAL_ID, "x"), (READ, GROUP_TYPE, "g"), (READ, TOPIC, "t")
COMMIT = p.TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    topics=[p.TxnOffsetCommitRequestTopic(name="t", partitions=[p.TxnOffsetCommitRequestPartition(partition_index=1)])],
)
MARKERS = p.WriteTxnMarkersRequest(
    markers=[p.WritableTxnMarker(producer_id=1, topics=[p.WritableTxnMarkerTopic(name="t", partition_indexes=[1])])]
)


@each_row(
    ("request_", "version", "asked", "code"),
    [
        (p.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9), 5, [TXN_X], NO_TXN),
        (p.InitProducerIdRequest(transactional_id=None), 5, [(IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster"), (WRITE, TOPIC)], NO_CLUSTER),
        (added(3, ("t", 1)), 3, [TXN_X], NO_TXN),
        (added(3, ("t", 1)), 3, [TXN_X, (WRITE, TOPIC, "t")], NO_TOPIC),
        (added(4, ("t", 1)), 4, [(CLUSTER_ACTION, CLUSTER, "kafka-cluster")], NO_CLUSTER),
        (OFFSETS, 4, [TXN_X], NO_TXN),
        (OFFSETS, 4, [TXN_X, GROUP_G], NO_GROUP),
        (ENDED, 5, [TXN_X], NO_TXN),
        (COMMIT, 5, [TXN_X], NO_TXN),
        (COMMIT, 5, [TXN_X, GROUP_G], NO_GROUP),
        (COMMIT, 5, [TXN_X, GROUP_G, TOPIC_T], NO_TOPIC),
        (MARKERS, 1, [(operation, CLUSTER, "kafka-cluster") for operation in (ALTER, CLUSTER_ACTION)], NO_CLUSTER),
        (p.DescribeTransactionsRequest(transactional_ids=["x"]), 0, [(DESCRIBE, TRANSACTIONAL_ID, "x")], NO_TXN),
        (p.DescribeProducersRequest(topics=[p.DescribeProducersTopicRequest(name="t", partition_indexes=[1])]), 0, [TOPIC_T], NO_TOPIC),
    ],
)
def test_what_a_client_must_be_allowed(request_, version, asked, code):
    """The last of what is asked is refused, or all that is asked of the cluster."""
    bench, found = Coordinated(), []

    def allows(principal, host, *wanted):
        found.append(wanted)
        return wanted[1] != CLUSTER and wanted != asked[-1]

    bench.state.authorizer = SimpleNamespace(allows=allows, allows_some=allows)
    assert f"error_code={int(code)}" in repr(bench.ask(request_, version))
    assert (found, bench.asked) == (asked, [])


def test_what_a_client_may_not_describe_is_left_out():
    bench = Coordinated((OPEN, OPEN.partitions), [OPEN, dataclasses.replace(OPEN, transactional_id="b")])
    bench.state.authorizer = SimpleNamespace(
        allows=lambda principal, host, *wanted: wanted in [(DESCRIBE, TRANSACTIONAL_ID, "a"), (DESCRIBE, TOPIC, "s")]
    )
    (found,) = bench.ask(p.DescribeTransactionsRequest(transactional_ids=["a"]), 0).transaction_states
    assert [tuple(each) for each in found.topics] == [("s", [2])]
    assert [each.transactional_id for each in bench.ask(p.ListTransactionsRequest(), 1).transaction_states] == ["a"]


# ---- what is known of a transactional id


def test_a_record_keeps_all_of_a_transaction():
    assert Transaction.from_value("a", OPEN.record(1).value) == OPEN
    shortened = dataclasses.replace(OPEN, previous_producer_id=-1, next_producer_id=-1, next_producer_epoch=-1, client_version=0)
    assert Transaction.from_value("a", OPEN.record(0).value) == shortened
    assert Transaction("a", 1) == Transaction("a", 1, -1, -1, -1, -1, 0, TransactionState.EMPTY, frozenset(), -1, -1, 0)
    committing = OPEN.moved(TransactionState.PREPARE_COMMIT, 18)
    assert committing == dataclasses.replace(OPEN, state=TransactionState.PREPARE_COMMIT, update_ms=18, previous_producer_id=1)
    changes = {"producer_id": 11, "producer_epoch": 12, "next_producer_id": 14, "timeout_ms": 16, "start_ms": 17, "client_version": 19}
    for factor in (1, 0):
        given = {name: factor * value for name, value in changes.items()}
        moved = OPEN.moved(TransactionState.PREPARE_ABORT, 18, partitions=[("u", 9)] * factor, **given)
        state, partitions = TransactionState.PREPARE_ABORT, frozenset([("u", 9)] * factor)
        wanted = dataclasses.replace(OPEN, state=state, update_ms=18, previous_producer_id=1, partitions=partitions, **given)
        assert moved == wanted


def test_states_by_number_and_the_moves_between_them():
    labels = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"]
    assert [each.label for each in sorted(TransactionState)] == labels and sorted(TransactionState) == list(range(8))
    assert {each: "".join(str(int(state)) for state in sorted(before)) for each, before in VALID_PREVIOUS.items()} == dict(
        enumerate(("045", "0145", "1", "0145", "2", "3"))
    )
    assert {each for each in TransactionState if each.is_prepared} == {2, 3} and {each for each in TransactionState if each.is_idle} == {
        0,
        4,
        5,
    }
    assert (MAX_EPOCH, [is_exhausted(epoch) for epoch in (32_765, 32_766, 32_767)]) == (32_767, [False, True, True])
    assert by_topic([("b", 2), ("a", 1), ("b", 0)]) == {"a": [1], "b": [0, 2]}


@each_row(
    ("wanted", "matches"),
    [
        (Filter(), True),
        (Filter(frozenset({"Ongoing"}), frozenset({1}), 0), True),
        (Filter(frozenset({"Empty"})), False),
        (Filter(producer_ids=frozenset({2})), False),
        (Filter(duration_ms=92), True),
        (Filter(duration_ms=93), False),
    ],
)
def test_a_filter_takes_what_has_all_that_it_names(wanted, matches):
    assert wanted.matches(OPEN, 100) is matches
    assert Filter(duration_ms=0).matches(dataclasses.replace(OPEN, start_ms=100), 100) is False


def test_what_no_transactional_id_can_be():
    bench = Bench()
    coordinator = bench.state.transactions.coordinator
    with pytest.raises(errors.NotCoordinator, match="there is no topic __transaction_state yet"):
        coordinator.partition_for("x")
    outcomes = []
    coordinator.describe("", outcomes.append)
    coordinator.end("x", WHO, True, 2, outcomes.append)
    for timeout_ms in (0, 900_001):
        coordinator.init_producer_id("x", timeout_ms, None, outcomes.append)
    assert [each.code for each in outcomes] == [Code.INVALID_REQUEST, Code.NOT_COORDINATOR, *[Code.INVALID_TRANSACTION_TIMEOUT] * 2]
