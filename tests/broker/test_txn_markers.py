"""Between brokers: markers that are sent until they are written, and questions of leaders to coordinators."""

import pytest
from txn_model import P0, P1, T0, TXN, Keeper

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.txns.markers import RETRY_MS, MarkerSender, MarkerWriter, _Pending, results_of
from kafkacore.broker.txns.shard import ProducerIdAndEpoch
from kafkacore.broker.txns.verify import Support, TransactionVerifier, for_batch, for_offsets
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.timer import LoopTimer
from tests.kit.rows import each_row

HERE, THERE = 1, 2
WHO = ProducerIdAndEpoch(7, 3)


class FakePeers:
    """Requests wait until the test answers them."""

    def __init__(self):
        self.sent, self.lanes = [], []

    def send(self, node_id, request, version, done, timeout_ms, lane=""):
        self.lanes.append(lane)
        self.sent.append((node_id, request, version, done))

    def take(self):
        node_id, request, _, done = self.sent.pop(0)
        return node_id, request, done


class MarkerBench:
    """A sender with transactions of its own, partitions led as `leaders` says, and a writer that answers when told."""

    def __init__(self):
        self.clock = ManualClock(wall_ms=T0)
        self.timer = LoopTimer(clock=self.clock)
        self.peers = FakePeers()
        self.leaders = {P0: HERE, P1: THERE}
        self.appended = []
        self.marked = []
        self.producer_ids = iter(range(1000, 2000))
        writer = MarkerWriter(self.append, self.append_to_group, self.clock)
        self.sender = MarkerSender(
            HERE, lambda *target: self.leaders.get(target), writer, self.peers, 1000, self.timer, lambda shard, txn: self.marked.append(txn)
        )

    def append(self, topic, index, batch, version, done):
        self.appended.append(((topic, index), version, done))

    def append_to_group(self, index, marker, done):
        self.appended.append((("group", index), marker.transaction_version, done))

    def prepared(self, *partitions, commit=True):
        keeper = Keeper(first_id=next(self.producer_ids))
        producer = keeper.init()
        keeper.add(producer, *partitions)
        keeper.end(producer, commit)
        return keeper

    def send(self, keeper):
        self.sender.send(keeper.shard, keeper.txn, 5)

    def answer_next(self, code=0):
        """The oldest request, which is answered with one code for everything."""
        _, request, respond = self.peers.take()
        respond(markers_answer(request, code))
        return request

    def later(self, ms=RETRY_MS):
        self.clock.advance(ms)
        self.timer.advance_clock()


def markers_answer(request, code=0):
    """A WriteTxnMarkers response with one code for everything."""
    return results_of(request.markers, [dict.fromkeys(targets_of(marker), code) for marker in request.markers])


def partitions_named(request):
    return {target for marker in request.markers for target in targets_of(marker)}


def targets_of(marker):
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


@pytest.fixture
def stage():
    return MarkerBench()


def test_a_transaction_is_marked_when_every_leader_has_written(stage):
    keeper = stage.prepared(P0, P1)
    stage.send(keeper)
    ((target, version, done),) = stage.appended
    assert (target, version, stage.peers.sent[0][2]) == (P0, 2, 2)
    node_id, request, respond = stage.peers.take()
    (marker,) = request.markers
    assert (node_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result) == (THERE, 1, 5, True)
    done(None)
    assert stage.marked == []
    assert keeper.shard.partitions_of(keeper.txn) == {P1}
    respond(markers_answer(request))
    assert stage.marked == [keeper.txn]
    keeper = Keeper()
    keeper.end(keeper.init(), False)
    stage.send(keeper)  # it has no partitions
    assert stage.marked[1:] == [keeper.txn]


def test_markers_that_could_not_be_sorted_are_sorted_again_and_those_of_others_go_out(stage, caplog):
    keeper, other = stage.prepared(P0, P1), stage.prepared(P1)
    leader_of, faults = stage.sender._leader_of, [1, 2]

    def failing(*target):
        if faults and target == P0:
            raise ZeroDivisionError(f"fault {faults.pop()}")
        return leader_of(*target)

    stage.sender._leader_of = failing
    stage.send(keeper)
    stage.send(other)
    request = stage.answer_next()
    assert len(request.markers) == 1
    assert stage.marked == [other.txn]
    stage.later()  # the second fault in a row
    assert not stage.appended and not stage.peers.sent
    stage.later()
    ((_, _, done),) = stage.appended
    done(None)
    request = stage.answer_next()
    assert stage.marked == [other.txn, keeper.txn]
    assert caplog.text.count("the markers of transactional id") == 2


def test_markers_that_were_written_and_could_not_be_confirmed_are_confirmed_again_and_not_sent_again(stage):
    keeper = stage.prepared(P1)
    marked, faults = stage.sender._marked, [1, 2]

    def failing(shard, transaction):
        if faults:
            raise ZeroDivisionError(f"fault {faults.pop()}")
        marked(shard, transaction)

    stage.sender._marked = failing
    stage.send(keeper)
    stage.answer_next()
    stage.later()
    assert (stage.marked, stage.peers.sent) == ([], [])
    stage.later()
    assert (stage.marked, stage.peers.sent) == ([keeper.txn], [])
    stage.later(60_000)
    assert (stage.marked, stage.peers.sent) == ([keeper.txn], [])


CODES = [Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS, Code.UNKNOWN_TOPIC_OR_PARTITION, 999]


@each_row("outcome", [*CODES, None, errors.DisconnectError("gone"), p.EndTxnResponse(), p.WriteTxnMarkersResponse(markers=[])])
def test_what_is_not_confirmed_is_tried_again_with_the_leader_there_is_then(outcome):
    """A code is that of the first marker of two; None leaves it out of the answer."""
    stage = MarkerBench()
    busy, first, second = (stage.prepared(P1) for _ in range(3))
    for keeper in (busy, first, second):
        stage.send(keeper)
    stage.answer_next()
    _, request, respond = stage.peers.take()
    *_, other = markers_answer(request).markers
    if outcome is None or isinstance(outcome, int):
        refused = [] if outcome is None else markers_answer(request, outcome).markers[:1]
        respond(p.WriteTxnMarkersResponse(markers=[other, *refused]))
        assert stage.marked == [busy.txn, second.txn]
    else:
        respond(outcome)
        assert stage.marked == [busy.txn]
    assert stage.peers.sent == []
    stage.leaders[P1] = HERE
    stage.later()
    for target, _, done in stage.appended:
        assert target == P1
        done(None)
    assert len(stage.marked) == 3 and first.txn in stage.marked and second.txn in stage.marked


def test_one_request_is_under_way_about_a_partition_and_the_next_takes_the_others_along(stage):
    keepers = [stage.prepared(P1) for _ in range(3)]
    for keeper in keepers:
        stage.send(keeper)
    _, request, respond = stage.peers.take()
    assert (len(request.markers), stage.peers.sent) == (1, [])
    respond(markers_answer(request))
    request = stage.answer_next()
    assert len(request.markers) == 2
    assert stage.marked == [keeper.txn for keeper in keepers]


def test_a_partition_that_is_stuck_holds_back_no_other_of_its_broker(stage):
    stage.leaders = {("topic", index): THERE for index in range(20)}
    stuck, other, both = stage.prepared(P0), stage.prepared(P1), stage.prepared(P0, P1)
    stage.send(stuck)
    _, first, respond = stage.peers.take()
    stage.send(other)
    stage.send(both)
    _, second, respond_second = stage.peers.take()
    assert (partitions_named(first), partitions_named(second), stage.peers.sent) == ({P0}, {P1}, [])
    respond_second(markers_answer(second))
    assert stage.marked == [other.txn]
    _, third, respond_third = stage.peers.take()  # the part of `both` that is not stuck
    assert (partitions_named(third), stage.peers.lanes[:3]) == ({P1}, ["markers", "markers-2", "markers-2"])
    respond_third(markers_answer(third))
    assert both.shard.partitions_of(both.txn) == {P0}
    respond(markers_answer(first, Code.REQUEST_TIMED_OUT))
    _, fourth, respond_fourth = stage.peers.take()  # P0 is free, for who has not tried
    assert (partitions_named(fourth), len(fourth.markers)) == ({P0}, 1)
    respond_fourth(markers_answer(fourth))
    stage.later()
    _, slow, respond_slow = stage.peers.take()
    assert (partitions_named(slow), len(slow.markers), stage.peers.lanes[-1]) == ({P0}, 1, "markers-slow")
    for index in range(2, 20):  # what is stuck takes none of the other lanes
        keeper = stage.prepared(("topic", index))
        stage.send(keeper)
        stage.answer_next()
        assert stage.marked[-1] == keeper.txn
    respond_slow(markers_answer(slow))
    assert {stuck.txn, both.txn} <= set(stage.marked)
    assert stage.sender._in_flight == {} and stage.sender._queues == {}


def test_more_stuck_partitions_than_lanes_delay_the_others_by_one_deadline(stage):
    stage.leaders = {("topic", index): THERE for index in range(20)}
    for index in range(8):
        stage.send(stage.prepared(("topic", index)))
    healthy = stage.prepared(("topic", 10))
    stage.send(healthy)
    first = [stage.peers.take() for _ in range(4)]  # each over its own lane
    assert stage.peers.sent == []
    for _, request, respond in first:
        respond(markers_answer(request, Code.REQUEST_TIMED_OUT))
    _, request, respond = stage.peers.take()  # all others, the healthy one among them
    assert len(request.markers) == 5
    other = stage.prepared(("topic", 11))
    stage.send(other)
    stage.answer_next()
    assert stage.marked == [other.txn]
    stage.later()
    _, slow, respond_slow = stage.peers.take()
    assert (len(slow.markers), stage.peers.lanes[-1], stage.peers.sent) == (1, "markers-slow", [])
    respond(markers_answer(request))
    assert healthy.txn in stage.marked
    respond_slow(markers_answer(slow, Code.REQUEST_TIMED_OUT))
    _, slow, respond_slow = stage.peers.take()
    assert (len(slow.markers), stage.peers.lanes[-1], stage.peers.sent) == (3, "markers-slow", [])
    respond_slow(markers_answer(slow, Code.REQUEST_TIMED_OUT))
    stage.later()
    for _ in range(2):
        slow = stage.answer_next()
    assert len(stage.marked) == 10


def test_a_broker_that_is_away_holds_back_the_markers_of_no_other(stage):
    stage.leaders = {P0: THERE, P1: 3}
    first, second, third, fourth = (stage.prepared(target) for target in (P0, P0, P1, P1))
    for keeper in (first, second, third, fourth):
        stage.send(keeper)
    node_id, _, respond = stage.peers.take()
    stage.answer_next()
    stage.answer_next()
    assert (node_id, stage.marked) == (THERE, [third.txn, fourth.txn])
    respond(errors.DisconnectError("cut"))
    stage.answer_next()
    stage.later()
    stage.answer_next()
    assert stage.marked[2:] == [second.txn, first.txn]


def test_a_partition_led_here_that_is_stuck_holds_back_no_other(stage):
    stage.leaders[P1] = HERE
    stuck, other = stage.prepared(P0, P1), stage.prepared(P1)
    stage.send(stuck)
    stage.send(other)
    done = {}
    for target, _, finish in stage.appended:
        done.setdefault(target, []).append(finish)
    done[P1][0](None)
    done[P1][1](None)
    assert stage.marked == [other.txn]
    assert stuck.shard.partitions_of(stuck.txn) == {P0}
    done[P0][0](errors.RequestTimedOut("stuck"))
    stage.later()
    assert stage.appended[-1][0] == P0
    stage.appended[-1][2](None)
    assert stage.marked == [other.txn, stuck.txn]


def test_a_producer_stands_in_a_request_once(stage):
    """Since it is answered once: its other markers go with the next."""
    stage.leaders[P0] = THERE
    busy, keeper = stage.prepared(P0, P1), stage.prepared(P0, P1)
    stage.send(busy)
    _, first, respond = stage.peers.take()
    whole = _Pending(keeper.shard, keeper.txn, 5, (P0, P1))
    for target in (P0, P1):
        stage.sender._route(whole._replace(partitions=(target,)))
    respond(markers_answer(first))
    for target in (P0, P1):
        request = stage.answer_next()
        assert [(t.name, t.partition_indexes) for marker in request.markers for t in marker.topics] == [(target[0], [target[1]])]
    assert stage.marked == [busy.txn, keeper.txn]


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTION_COORDINATOR_FENCED])
def test_a_partition_that_refuses_a_marker_as_overtaken_keeps_the_others_confirmed(stage, code):
    stage.leaders[P0] = THERE
    third = ("topic", 2)
    stage.leaders[third] = THERE
    keeper = stage.prepared(P0, P1, third)
    stage.send(keeper)
    _, request, respond = stage.peers.take()
    reported = markers_answer(request)
    parts = [p.WritableTxnMarkerPartitionResult(partition_index=index, error_code=each) for index, each in ((0, code), (1, 0), (2, 6))]
    topics = [p.WritableTxnMarkerTopicResult(name="topic", partitions=parts)]
    respond(reported._replace(markers=[reported.markers[0]._replace(topics=topics)]))
    assert keeper.shard.partitions_of(keeper.txn) == {P0, third}
    stage.later()
    request = stage.answer_next()
    assert partitions_named(request) == {third}
    assert (keeper.shard.partitions_of(keeper.txn), stage.marked) == ({P0}, [])


def test_each_producer_is_answered_once_and_those_without_partitions_not_at_all():
    markers = [p.WritableTxnMarker(producer_id=n, producer_epoch=0, transaction_result=True, topics=[]) for n in (1, 2, 1)]
    (reported,) = results_of(markers, [{P0: Code.NONE}, {}, {P1: Code.INVALID_PRODUCER_EPOCH}]).markers
    assert reported.producer_id == 1
    assert {(t.name, q.partition_index): q.error_code for t in reported.topics for q in t.partitions} == {P0: 0, P1: 47}


def test_partitions_that_are_gone_need_no_marker_and_those_without_leader_wait(stage):
    keeper = stage.prepared(P0, P1)
    del stage.leaders[P0]
    stage.leaders[P1] = -1
    stage.send(keeper)
    assert keeper.shard.partitions_of(keeper.txn) == {P1}
    stage.later()
    assert stage.peers.sent == []
    stage.leaders[P1] = THERE
    stage.later()
    stage.answer_next()
    assert stage.marked == [keeper.txn]


def test_a_coordinator_that_resigned_stops(stage):
    keeper, other = stage.prepared(P1), stage.prepared(P1)
    stage.send(keeper)
    stage.send(other)
    keeper.shard.unloaded()
    other.shard.unloaded()
    stage.answer_next(Code.NOT_LEADER_OR_FOLLOWER)
    stage.later()
    assert (stage.peers.sent, stage.marked) == ([], [])
    refused = stage.prepared(P1)
    stage.send(refused)
    stage.answer_next(Code.NOT_LEADER_OR_FOLLOWER)
    stage.later(99)
    assert stage.peers.sent == []
    stage.later(1)
    assert len(stage.peers.sent) == 1


def test_a_writer_answers_when_all_is_written_or_refused(stage, caplog):
    failing = {1: errors.NotLeaderOrFollower("elsewhere"), 2: ZeroDivisionError("a bug")}

    def append(topic, index, batch, version, done):
        if index in failing:
            raise failing[index]
        stage.append(topic, index, batch, version, done)

    writer = MarkerWriter(append, stage.append_to_group, stage.clock)
    topics = [
        p.WritableTxnMarkerTopic(name="topic", partition_indexes=[0, 1, 2]),
        p.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[4]),
    ]
    got = []
    marker = p.WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=topics)
    writer.write([marker], got.extend)
    assert [target for target, _, _ in stage.appended] == [("topic", 0), ("group", 4)]
    stage.appended[1][2](errors.NotCoordinator("gone"))
    assert got == []
    stage.appended[0][2](None)
    codes = [0, Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_SERVER_ERROR, Code.NOT_COORDINATOR]
    assert got == [dict(zip([P0, P1, ("topic", 2), ("__consumer_offsets", 4)], codes, strict=True))]
    assert "the transaction marker of topic-2 failed" in caplog.text
    outcomes = (errors.CorruptDataError("bad"), errors.UsageError("wrong"), errors.from_code(9999), errors.NotLeaderOrFollower())
    for nth, error in enumerate(outcomes):
        writer.write([marker._replace(topics=topics[1:])], got.extend)
        stage.appended[2 + nth][2](error)
        stage.appended[2 + nth][2](None)  # once is enough
    reported, unknown = [code for each in got[1:] for code in each.values()], Code.UNKNOWN_SERVER_ERROR
    assert reported == [Code.CORRUPT_MESSAGE, unknown, unknown, Code.NOT_LEADER_OR_FOLLOWER]
    del got[1:]
    appended = len(stage.appended)
    writer.write([marker._replace(producer_id=-1, topics=topics[:1])], got.extend)  # of no producer
    assert (set(got[1].values()), len(stage.appended)) == ({Code.UNKNOWN_SERVER_ERROR}, appended)


# ---- verification


class FakeCoordinator:
    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def add_partitions(self, transactional_id, producer, partitions, client_version, done):
        self.asked.append(("add", tuple(partitions), client_version))
        done(self.answers.pop(0))

    def verify_partitions(self, transactional_id, producer, partitions, done):
        self.asked.append(("verify", tuple(partitions)))
        done(self.answers.pop(0))


def verifier(answers=(), where=HERE):
    stage = MarkerBench()
    stage.coordinator = FakeCoordinator(list(answers))

    def coordinator_of(transactional_id):
        if isinstance(where, Exception):
            raise where
        return where

    stage.verifier = TransactionVerifier(
        BrokerConfig(), HERE, stage.coordinator, coordinator_of, stage.peers, 1000, stage.timer, stage.clock
    )
    return stage


def ask_verifier(stage, support):
    reported = []
    stage.verifier.ask(TXN, WHO, [P0, P1], support, reported.append)
    return reported


def codes_by_partition(refusals):
    return {target: error.code for target, error in refusals.items()}


def test_old_producers_are_verified_and_new_ones_added():
    stage = verifier([{P0: None, P1: errors.TransactionAbortable("no")}, None])
    (refused,) = ask_verifier(stage, Support.ABORTABLE_ERROR)
    assert codes_by_partition(refused) == {P1: Code.TRANSACTION_ABORTABLE}
    (refused,) = ask_verifier(stage, Support.ADDS_BY_WRITING)
    assert refused == {}
    assert stage.coordinator.asked == [("verify", (P0, P1)), ("add", (P0, P1), 2)]


@each_row(
    ("support", "busy", "code"),
    [
        (Support.ADDS_BY_WRITING, 3, None),
        (Support.ADDS_BY_WRITING, 50, Code.CONCURRENT_TRANSACTIONS),
        (Support.ABORTABLE_ERROR, 0, Code.CONCURRENT_TRANSACTIONS),  # old producers hear it at once
    ],
)
def test_a_leader_waits_out_the_end_of_the_last_transaction_but_not_for_long(support, busy, code):
    stage = verifier([errors.ConcurrentTransactions("busy")] * max(busy, 1) + [None])
    reported = ask_verifier(stage, support)
    for _ in range(min(busy, 5)):
        assert reported == []
        stage.later(20)
    assert codes_by_partition(reported[0]) == ({} if code is None else {P0: code, P1: code})


@each_row(
    ("where", "outcome", "code"),
    [
        (errors.CoordinatorNotAvailable("none"), None, Code.COORDINATOR_NOT_AVAILABLE),
        (THERE, errors.DisconnectError("gone"), Code.NETWORK_EXCEPTION),
        (THERE, p.AddPartitionsToTxnResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED), Code.CLUSTER_AUTHORIZATION_FAILED),
        (THERE, p.EndTxnResponse(), Code.NETWORK_EXCEPTION),
    ],
)
def test_a_coordinator_that_does_not_answer(where, outcome, code):
    stage = verifier(where=where)
    reported = ask_verifier(stage, Support.ABORTABLE_ERROR)
    if where == THERE:
        stage.peers.take()[2](outcome)
    assert codes_by_partition(reported[0]) == {P0: code, P1: code}


@pytest.mark.parametrize("adds", [True, False])
def test_a_coordinator_elsewhere_is_asked_over_the_wire(adds):
    stage = verifier(where=THERE)
    reported = ask_verifier(stage, Support.ADDS_BY_WRITING if adds else Support.ABORTABLE_ERROR)
    assert (stage.peers.sent[0][0], stage.peers.sent[0][2], stage.peers.lanes) == (THERE, 5, ["transactions"])
    _, request, respond = stage.peers.take()
    (transaction,) = request.transactions
    assert (transaction.verify_only, transaction.producer_id, transaction.topics[0].partitions) == (not adds, 7, [0, 1])
    partitions = [
        p.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0),
        p.AddPartitionsToTxnPartitionResult(partition_index=1, partition_error_code=Code.PRODUCER_FENCED),
    ]
    topics = [p.AddPartitionsToTxnTopicResult(name="topic", results_by_partition=partitions)]
    result = p.AddPartitionsToTxnResult(transactional_id=TXN, topic_results=topics)
    respond(p.AddPartitionsToTxnResponse(results_by_transaction=[result]))
    assert codes_by_partition(reported[0]) == {P1: Code.INVALID_PRODUCER_EPOCH}


def test_words_for_clients():
    aborted = verifier([{P0: errors.TransactionAbortable("no"), P1: None}])
    assert codes_by_partition(ask_verifier(aborted, Support.NO_ABORTABLE_ERROR)[0]) == {P0: Code.INVALID_TXN_STATE}
    for error in (errors.NotCoordinator(""), errors.CoordinatorNotAvailable(""), errors.NetworkError("")):
        assert for_batch(error, Support.ADDS_BY_WRITING).code == Code.NOT_ENOUGH_REPLICAS
    busy = errors.ConcurrentTransactions("")
    assert for_batch(busy, Support.ADDS_BY_WRITING) is busy
    assert for_batch(busy, Support.ABORTABLE_ERROR).code == Code.NOT_ENOUGH_REPLICAS
    assert for_offsets(errors.NetworkError("")).code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert for_offsets(busy) is busy
