"""What the engines of a broker collect: of two unlike members one fails, ends first or is of another kind, and the other is served rightly.

Other collections have such a test beside what else is tested of them.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from controlling import broker_state
from test_fetch_sessions import NAMES, Pair, Reader
from test_handlers import Bench

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.assignments import RETRY_MS as ASSIGN_AGAIN_MS
from kafkacore.broker.assignments import DirectoryAssignments
from kafkacore.broker.controller import ControllerHost
from kafkacore.broker.groups.offsets import OffsetStore
from kafkacore.broker.isr import RETRY_MS as PROPOSE_AGAIN_MS
from kafkacore.broker.isr import IsrProposals
from kafkacore.broker.limits import WAIT_FOR_A_CLOSE, ConnectionQuotas
from kafkacore.broker.pauses import Pauses
from kafkacore.broker.producer_ids import ProducerIds
from kafkacore.broker.quotas import ConnectionRateQuota
from kafkacore.broker.slices import Slices
from kafkacore.broker.state import Outcome
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.protocol.stored import OffsetCommitKey, OffsetCommitValue
from kafkacore.timer import LoopTimer
from tests.kit.batches import batch
from tests.kit.inside import host_of

T, U = b"t" * 16, b"u" * 16


class Controller:
    """Answers when the test says so."""

    broker_epoch = 5

    def __init__(self):
        self.asked = []

    def submit(self, request, version, done):
        self.asked.append((request, done))

    def take(self):
        (asked,) = self.asked
        self.asked.clear()
        return asked


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def controller():
    return Controller()


# ---- what a broker asks its controller


def test_who_fails_with_its_producer_id_keeps_no_other_from_one(controller, caplog):
    ids, given = ProducerIds(controller, 1), []
    for done in (lambda producer_id: 1 / 0, given.append, given.append):
        ids.take(done)
    _, answered = controller.take()  # one question for all of them
    answered(p.AllocateProducerIdsResponse(producer_id_start=100, producer_id_len=2))
    assert given == [101]
    assert "a request for a producer id failed" in caplog.text
    _, answered = controller.take()  # the block ended in between
    ids.take(lambda error: 1 / 0)
    ids.take(given.append)
    answered(errors.NetworkError("cut"))
    assert [type(each) for each in given[1:]] == [errors.NetworkError] * 2
    ids.take(given.append)
    controller.take()[1](p.AllocateProducerIdsResponse(producer_id_start=200, producer_id_len=1))
    assert given[3:] == [200]


def directories_named(request):
    return {
        (topic.topic_id, part.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for part in topic.partitions
    }


def test_a_replica_that_has_moved_meanwhile_is_reported_where_it_is_and_the_other_again(controller, clock):
    timer = LoopTimer(clock=clock)
    assignments = DirectoryAssignments(1, controller.submit, lambda: 5, timer)
    assignments.tell(T, 0, b"a" * 16)
    assignments.tell(U, 0, b"b" * 16)
    timer.advance_clock()
    request, answered = controller.take()
    assert directories_named(request) == {(T, 0): b"a" * 16, (U, 0): b"b" * 16}
    assignments.tell(T, 0, b"c" * 16)
    answered(p.AssignReplicasToDirsResponse(error_code=Code.NOT_CONTROLLER))
    clock.advance(ASSIGN_AGAIN_MS)
    timer.advance_clock()
    request, answered = controller.take()
    assert directories_named(request) == {(T, 0): b"c" * 16, (U, 0): b"b" * 16}
    answered(p.AssignReplicasToDirsResponse())
    timer.advance_clock()
    assert controller.asked == []


def test_replicas_are_reported_by_a_broker_that_is_registered_and_one_request_at_a_time(controller, clock):
    timer, epochs = LoopTimer(clock=clock), [-1]
    assignments = DirectoryAssignments(1, controller.submit, lambda: epochs[-1], timer)
    assignments.tell(T, 0, b"a" * 16)
    timer.advance_clock()
    assert controller.asked == []
    epochs.append(0)
    clock.advance(ASSIGN_AGAIN_MS - 1)
    timer.advance_clock()
    assert controller.asked == []
    clock.advance(1)
    timer.advance_clock()
    request, answered = controller.take()
    assert (request.broker_id, request.broker_epoch, directories_named(request)) == (1, 0, {(T, 0): b"a" * 16})
    assignments.tell(T, 1, b"a" * 16)
    assignments.tell(T, 2, b"a" * 16)
    timer.advance_clock()
    assert controller.asked == []
    answered(p.AssignReplicasToDirsResponse())
    timer.advance_clock()
    request, answered = controller.take()
    assert [[part.partition_index for part in each.topics[0].partitions] for each in request.directories] == [[1, 2]]
    assignments.tell(T, 3, b"a" * 16)
    assignments.close()
    assignments.tell(T, 4, b"a" * 16)  # it starts again
    timer.advance_clock()
    assert directories_named(controller.take()[0]) == {(T, 4): b"a" * 16}
    assignments.close()
    assignments.tell(T, 5, b"a" * 16)
    assignments.close()
    clock.advance(ASSIGN_AGAIN_MS)
    timer.advance_clock()
    assert controller.asked == []


class Led:
    """As much of a `Partition` as proposals need."""

    def __init__(self, index):
        self.key, self.index, self.topic = ("t", index), index, SimpleNamespace(topic_id=T)
        self.leader_epoch = self.partition_epoch = 0
        self.remotes, self.pending_isr, self.seen = {}, (1, index), []

    def isr_committed(self, *news):
        self.pending_isr = None
        self.seen.append("committed")

    def isr_refused(self, leader_epoch):
        self.pending_isr = None
        self.seen.append("refused")


def test_of_isrs_that_were_proposed_together_one_is_refused_one_left_out_and_one_decided_before(controller, clock):
    timer, changed = LoopTimer(clock=clock), []
    proposals = IsrProposals(1, controller.submit, lambda: 5, clock, timer, changed.append)
    first, taken, refused, left_out, decided = parts = [Led(index) for index in range(5)]
    proposals.propose(first, first.pending_isr)
    for part in parts[1:]:
        proposals.propose(part, part.pending_isr)
    controller.take()[1](errors.NetworkError("cut"))
    decided.pending_isr = None  # by the image, before the next try
    clock.advance(PROPOSE_AGAIN_MS)
    timer.advance_clock()
    request, answered = controller.take()
    assert [each.partition_index for each in request.topics[0].partitions] == [0, 1, 2, 3]
    codes = {0: Code.NONE, 1: Code.NONE, 2: Code.INELIGIBLE_REPLICA}
    answers = [p.AlterPartitionResponsePartition(partition_index=index, error_code=code, isr=[1]) for index, code in codes.items()]
    answered(p.AlterPartitionResponse(topics=[p.AlterPartitionResponseTopic(topic_id=T, partitions=answers)]))
    assert [part.seen for part in parts] == [["committed"], ["committed"], ["refused"], ["refused"], []]
    assert changed == [first, taken] and controller.asked == []
    assert (refused.pending_isr, left_out.pending_isr) == (None, None)


def test_of_brokers_that_leave_only_those_hear_that_waited_for_another():
    host, heard = ControllerHost(BrokerConfig()), []
    for node in (1, 2):
        host.when_others_move(node, lambda node=node: heard.append(node))
    host.reached(1, 0, 5)
    assert heard == [2]
    host.reached(3, 0, 5)
    host.reached(3, 0, 6)
    assert heard == [2, 1]  # once


# ---- connections


class Selector:
    """Channels that are read or not."""

    def __init__(self, *connections):
        self.channels = dict.fromkeys(connections)
        self.read = set(connections)

    def mute(self, connection):
        self.read.discard(connection)

    def unmute(self, connection):
        self.read.add(connection)

    def watch(self, connection):
        pass


def test_a_connection_that_goes_while_it_is_paused_leaves_the_pauses_of_others(clock):
    pauses, done = Pauses(clock), []
    for pause in (pauses.mute, lambda each: pauses.throttle(each, 100)):
        pause("free")  # before the start, and of a connection that there is not
        pauses.selector = selector = Selector("closed", "throttled", "delayed", "late", "doomed", "gone", "free")
        pause("gone before")
        assert (pauses.muted, pauses.throttled, pauses.selector) == (set(), {}, selector)
        pauses.selector = None
    pauses.selector = selector
    pauses.throttle("closed", 100)
    pauses.throttle("throttled", 100)
    pauses.delay("delayed", 50, lambda: done.append("delayed"))
    pauses.delay("late", 50, lambda: done.append("late"))
    for each in ("doomed", "gone"):
        pauses.doom(each, 100, done.append)
    pauses.mute("free")
    pauses.unmute("free")
    assert selector.read == {"free"}
    for each in ("closed", "late", "gone"):
        del selector.channels[each]
        pauses.forget(each)
    assert pauses.silenced == {"doomed"} and set(pauses.throttled) == {"throttled", "doomed"}
    pauses.unmute("throttled")  # its answer is sent; it waits all the same
    clock.advance(50)
    pauses.timer.advance_clock()
    pauses.end_delay("delayed")
    pauses.unmute("delayed")
    assert (done, selector.read) == (["delayed"], {"free", "delayed"})
    clock.advance(50)
    pauses.timer.advance_clock()
    assert (done, selector.read) == (["delayed", "doomed"], {"free", "delayed", "throttled"})
    pauses.forget("doomed")
    pauses.mute("free")
    pauses.selector = None
    pauses.unmute("free")  # of a server that stops
    assert (pauses.muted, pauses.throttled, pauses.delayed, pauses.silenced) == (set(), {}, {}, set())


def test_a_listener_that_is_full_keeps_no_other_from_taking_connections():
    own = {"listener.name.a.max.connections": 1, "listener.name.b.max.connections": 2}
    quotas = ConnectionQuotas(BrokerConfig.from_user({**own, "max.connections": 4, "max.connections.per.ip": 2}))
    a, b = quotas.of_listener("A"), quotas.of_listener("B")
    assert a.opened(1, "10.0.0.1") and (a.wait_ms(0), b.wait_ms(0)) == (WAIT_FOR_A_CLOSE, 0)
    assert b.opened(2, "10.0.0.1")
    assert not b.opened(3, "10.0.0.1")  # of an address with two: it does not count
    assert (a.wait_ms(0), b.wait_ms(0)) == (WAIT_FOR_A_CLOSE, 0)
    for _ in range(2):  # it closes once
        b.closed(2)
    assert a.wait_ms(0) == WAIT_FOR_A_CLOSE
    a.closed(1)
    assert a.wait_ms(0) == 0 and a.opened(4, "10.0.0.1") and b.opened(5, "10.0.0.2") and b.opened(6, "10.0.0.2")
    assert (a.wait_ms(0), b.wait_ms(0)) == (WAIT_FOR_A_CLOSE, WAIT_FOR_A_CLOSE)


def test_of_addresses_that_connect_too_fast_each_connection_is_doomed_for_itself():
    rate = ConnectionRateQuota(11, 1)
    rate.update({frozenset({("ip", "10.0.0.1")}): {"connection_creation_rate": 0.1}})
    quotas = ConnectionQuotas(BrokerConfig.from_user({"max.connections.per.ip": 2}), rate)
    assert quotas.wait_ms(0) == 0
    for id, host in enumerate(["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]):
        assert quotas.opened(id, host)
    assert quotas.doomed == {1: 1_000, 2: 1_000} and quotas.hosts == {0: "10.0.0.1", 3: "10.0.0.2", 4: "10.0.0.2"}
    quotas.closed(1)  # it was never counted
    assert quotas.opened(5, "10.0.0.2") is False
    quotas.closed(3)
    assert quotas.opened(6, "10.0.0.2")


class Steps:
    """A job of some steps, the last of which may fail."""

    meter = None

    def __init__(self, count, error=None):
        self.left, self.error, self.failed = count, error, False

    def step(self):
        self.left -= 1
        if not self.left and self.error is not None:
            raise self.error
        return self.left > 0

    def is_completed(self):
        return False

    def fail(self):
        self.failed = True


def test_a_job_that_fails_keeps_no_other_from_its_end(caplog):
    slices, now = Slices(), iter(range(0, 10**6, 1_000))  # each look at the clock ends a slice
    jobs = [Steps(2, ZeroDivisionError()), Steps(3, errors.InvalidRequest("too long")), Steps(5)]
    for job in jobs:
        slices.add(job)
    while slices.ready:
        slices.run(now.__next__)
    assert [job.left for job in jobs] == [0, 0, 0] and [job.failed for job in jobs] == [True, True, False]
    assert caplog.text.count("a request is given up") == 2


def test_of_fetches_that_wait_each_ends_by_its_own_news():
    """Two followers, of which one asks again, and two consumers of one partition, of which one waits for more."""
    bench = Bench()
    topic = bench.topic()
    Pair.elect(bench, topic.name, 0, 0, replicas=[1, 2, 3], isr=[1, 2, 3])
    followers, consumers = [Reader(NAMES, node) for node in (2, 3)], [Reader(NAMES), Reader(NAMES)]
    for reader in (*followers, *consumers):
        reader.asks(bench, {(topic.name, 0): (0, -1, -1)})
        reader.asks(bench)
    for reader, min_bytes in zip((*followers, *consumers), (1, 1, 1, 2 * len(batch())), strict=True):
        assert reader.asks(bench, max_wait_ms=10_000, min_bytes=min_bytes) is Outcome.LATER
    again = Reader(NAMES, 2)
    again.asks(bench, {(topic.name, 0): (0, -1, -1)}, max_wait_ms=0)
    assert [answer.session_id for answer in bench.late] == [followers[0].session_id]
    assert bench.state.follower_fetches.keys() == {3}
    for committed, ended in ((3, [followers[1], consumers[0]]), (6, [consumers[1]])):
        bench.late.clear()
        bench.produce(acks=1)
        for node in (2, 3):
            bench.state.replicas.partition(topic.name, 0).follower_fetched(node, committed, 0, committed, -1, bench.clock.now_ms())
        bench.state.replicas.changed(bench.state.replicas.partition(topic.name, 0))
        assert [answer.session_id for answer in bench.late] == [reader.session_id for reader in ended]


# ---- offsets


def test_of_transactions_with_an_offset_of_one_partition_the_later_one_counts_whichever_ends_first():
    for order in ((7, 8), (8, 7)):
        store = OffsetStore()
        for at, (producer_id, group, offset) in enumerate([(7, "g", 10), (8, "g", 20), (8, "other", 5), (-1, "plain", 1)]):
            store.replay(at, producer_id, OffsetCommitKey(group=group, topic="t", partition=0), OffsetCommitValue(offset=offset))
        assert [store.has_pending(group) for group in ("g", "other", "plain")] == [True, True, False]
        store.replay_end_marker(4, order[0], committed=True)
        assert store.is_pending("g", "t", 0)
        assert store.has_pending("other") == (order[0] == 7)
        store.replay_end_marker(5, order[1], committed=True)
        assert [store.get(group, "t", 0).offset for group in ("g", "other", "plain")] == [20, 5, 1]
        assert not store.has_pending("g")


# ---- what is due at the controller


def test_of_things_that_are_due_together_one_without_anything_to_do_keeps_no_other():
    settings = {"delegation.token.secret.key": "k"}
    settings |= {"delegation.token.expiry.check.interval.ms": 300_000, "unclean.leader.election.interval.ms": 300_000}
    state = broker_state(BrokerConfig.from_user(settings), ManualClock(wall_ms=1_700_000_000_000))
    host = host_of(state.controller)
    made = []
    for lifetime_ms in (60_000, 900_000):
        request = p.CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=lifetime_ms)
        made.append(host.submit(request, 3, SimpleNamespace(user="alice", client_id="c"))[0].token_id)
    host.clock.advance(300_000)
    host.do_what_is_due()
    assert list(host.controller.image.delegation_tokens) == made[1:]
    state.ended()
