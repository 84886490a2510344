"""What is to be fetched is kept up to date change by change: it equals what a walk over all partitions finds, and nothing walks them."""

import contextlib
from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RULE_MARKER, RuleBasedStateMachine, invariant, rule
from scripted_cluster import Log
from test_elections import content
from test_fetcher import A, B, C, FetchRig, filled, numbers

from kafkacore import errors
from kafkacore.consumer import offsets as offsets_module
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.subscription import EARLIEST, LATEST, FetchState
from kafkacore.errors import Code
from kafkacore.net.leaders import LeaderQuery
from kafkacore.protocol import FetchRequest
from kafkacore.types import TopicPartition
from tests.kit.inside import errors_in, errors_of_paused, left_out_of, queue_of, refused_in, resets_of, sessions_of, validations_of
from tests.kit.reached import Reached

TPS = [TopicPartition(name, index) for name in ("t", "u") for index in range(4)]


def walk(rig: FetchRig) -> dict[TopicPartition, tuple[int, int, int]]:
    """All assigned partitions, one by one: what is to be fetched, as (broker, offset, leader epoch)."""
    fetcher, snapshot = rig.fetcher, rig.cluster.snapshot
    found = {}
    for tp, state in rig.subscription.partitions.items():
        if state.state is not FetchState.FETCHING or state.paused or state.retry_at_ms > rig.now_ms:
            continue
        held = [f for f in [*queue_of(fetcher), *(f for parked in queue_of(fetcher).parked.values() for f in parked)] if f.state is state]
        offset = state.offset
        if held:
            if not queue_of(fetcher).runs_ahead or len(held) >= 2:
                continue
            last = held[-1]
            if last.error_code or last.leader_epoch != state.leader_epoch or held[0].position != offset:
                continue
            offset = last.end_offset
        node = snapshot.leader(tp)
        if state.preferred_replica in snapshot.nodes and rig.now_ms < state.preferred_until_ms:
            node = snapshot.nodes[state.preferred_replica]
        if node is not None:
            found[tp] = (node.id, offset, state.leader_epoch)
    return found


reached = Reached(
    "parked",
    "two answers of a partition held",
    "a nearer replica is used",
    "the memory is used up",
    "a broker with an answer under way hears later",
    "an answer was stale",
    "a truncation is looked for",
    "a position waits for its reset",
)


class Upkeep(RuleBasedStateMachine):
    """Anything that may happen to a consumer's partitions, in any order."""

    def __init__(self, short_cuts: bool) -> None:
        super().__init__()
        logs = {tp: Log(leader=1 + index % 3) for index, tp in enumerate(TPS)}
        for log in logs.values():
            log.append(*numbers(0, 10))
        # These brokers answer at once: with a wait they would be asked with pauses after a while.
        self.rig = FetchRig(logs, max_bytes=700, max_partition_bytes=300, short_cuts=short_cuts, max_wait_ms=0)
        self.read = []

    def assigned(self, index: int) -> TopicPartition | None:
        tps = list(self.rig.subscription.partitions)
        return tps[index % len(tps)] if tps else None

    index = st.integers(0, len(TPS) - 1)

    @rule(tps=st.sets(st.sampled_from(TPS)))
    def assign(self, tps):
        self.rig.subscription.assign_manual(sorted(tps))

    @rule(tps=st.sets(st.sampled_from(TPS)), reset=st.sampled_from([None, EARLIEST]))
    def assign_more(self, tps, reset):
        self.rig.subscription.add(sorted(tps), reset)

    @rule(tps=st.sets(st.sampled_from(TPS)))
    def revoke(self, tps):
        self.rig.subscription.remove(sorted(tps))

    @rule(index=index, offset=st.integers(0, 12))
    def seek(self, index, offset):
        if tp := self.assigned(index):
            self.rig.subscription.seek(tp, offset)

    @rule(index=index, strategy=st.sampled_from([EARLIEST, LATEST]))
    def seek_to_an_end(self, index, strategy):
        if tp := self.assigned(index):
            self.rig.subscription.request_reset(tp, strategy)

    @rule(index=index)
    def rewind(self, index):
        if (tp := self.assigned(index)) and self.rig.subscription.partitions[tp].offset > 0:
            self.rig.subscription.rewind(tp, self.rig.subscription.partitions[tp].offset - 1)

    @rule(index=index)
    def pause(self, index):
        if tp := self.assigned(index):
            self.rig.subscription.pause(tp)

    @rule(index=index)
    def resume(self, index):
        if tp := self.assigned(index):
            self.rig.subscription.resume(tp)

    @rule(index=index)
    def start_over(self, index):
        if tp := self.assigned(index):
            self.rig.subscription.start_over(tp)

    @rule(index=index, count=st.integers(1, 20))
    def append(self, index, count):
        self.rig.log(TPS[index]).append(*numbers(0, count))

    @rule(index=index, leader=st.sampled_from([-1, 1, 2, 3]), known=st.booleans())
    def elect(self, index, leader, known):
        log = self.rig.log(TPS[index])
        log.elect()
        log.leader = leader
        if known:
            self.rig.cluster.refresh()
            self.step(0)

    @rule()
    def refresh(self):
        self.rig.cluster.refresh()

    @rule(index=index, code=st.sampled_from([0, 0, Code.UNKNOWN_LEADER_EPOCH, Code.TOPIC_AUTHORIZATION_FAILED, Code.OFFSET_OUT_OF_RANGE]))
    def error(self, index, code):
        self.rig.log(TPS[index]).error = code

    @rule(index=index, node_id=st.sampled_from([-1, 1, 2, 3]))
    def prefer(self, index, node_id):
        self.rig.log(TPS[index]).preferred = node_id

    @rule(node_id=st.sampled_from([1, 2, 3]), away=st.booleans())
    def connect(self, node_id, away):
        (self.rig.cluster.unready.add if away else self.rig.cluster.unready.discard)(node_id)

    @rule(count=st.integers(1, 3), lost=st.booleans())
    def deliver(self, count, lost):
        self.rig.cluster.deliver(count, lost=lost)

    @rule(count=st.integers(1, 30))
    def collect(self, count):
        self.take(lambda: self.rig.fetcher.collect(count))

    @rule()
    def collect_columns(self):
        self.take(lambda: {TopicPartition(c.topic, c.partition): c.to_records() for c in self.rig.fetcher.collect_columns()})

    def take(self, collect):
        """What comes of each partition lies behind one another, from its position on, and no partition is paused."""
        states = self.rig.subscription.partitions
        before = {tp: state.offset for tp, state in states.items()}
        with contextlib.suppress(errors.KafkaError):
            found = collect()
            self.read.append(found)
            for tp, records in found.items():
                assert not states[tp].paused
                end = before[tp] + len(records)
                assert [record.offset for record in records] == [*range(before[tp], end)]
                assert states[tp].offset == end or not states[tp].has_position  # an answer behind them said: out of range
                assert [(r.offset, r.value) for r in records] == content(self.rig.log(tp), before[tp])[: len(records)]

    @rule()
    def retain(self):
        self.rig.fetcher.retain()

    @rule()
    def interrupted(self):
        self.rig.cluster.pending.clear()
        self.rig.fetcher.start_anew(self.rig.cluster)
        self.rig.positions.start_anew(self.rig.cluster)
        self.rig.subscription.settle_anew()

    @rule(ms=st.sampled_from([0, 10, 100, 1000, 300_000]))
    def step(self, ms):
        self.rig.now_ms += ms
        with contextlib.suppress(errors.KafkaError):
            self.rig.positions.step(self.rig.now_ms, 0)
        self.check()

    @rule(ms=st.sampled_from([0, 100, 1000]), counts=st.lists(st.sampled_from([0, 1, 5, 12, 500]), min_size=1, max_size=5))
    def go_on(self, ms, counts):
        """Undisturbed reading: what is held, read ahead and released only comes about in a row."""
        for count in counts:
            self.step(ms)
            self.rig.cluster.deliver()
            self.step(0)
            if count:
                self.collect(count)
            self.step(0)

    @rule(index=index)
    def fill_and_read_little(self, index):
        for _ in range(4):
            self.rig.log(TPS[index]).append(*numbers(0, 10))
        self.go_on(0, [1, 1, 1])

    @rule(index=index)
    def elect_while_it_reads(self, index):
        self.go_on(0, [5])
        self.elect(index, 1 + index % 3, True)

    @rule(index=index, offset=st.integers(0, 12))
    def assign_anew_between_two_fetches(self, index, offset):
        if tp := self.assigned(index):
            self.rig.subscription.remove([tp])
            self.rig.subscription.add([tp])
            self.rig.subscription.seek(tp, offset)
            self.check()

    @rule(index=index)
    def withdraw_while_asked(self, index):
        if tp := self.assigned(index):
            self.rig.subscription.request_reset(tp, LATEST)
            self.step(0)
            self.rig.subscription.remove([tp])

    @rule(index=index, node_id=st.sampled_from([1, 2, 3]))
    def use_a_nearer_replica_for_its_time(self, index, node_id):
        self.rig.log(TPS[index]).preferred = node_id
        self.go_on(0, [500])
        self.rig.log(TPS[index]).preferred = -1
        self.rig.cluster.deliver()
        self.rig.now_ms += 300_001
        self.check()

    @rule(index=index, node_id=st.sampled_from([1, 2, 3]), lost=st.booleans())
    def lose_a_nearer_replica_in_use(self, index, node_id, lost):
        log = self.rig.log(TPS[index])
        log.preferred = node_id
        self.go_on(0, [500, 500])
        log.append(*numbers(0, 5))
        log.error = 0 if lost else Code.OFFSET_OUT_OF_RANGE
        self.rig.cluster.deliver(lost=lost)
        self.collect(30)
        log.error, log.preferred = 0, -1
        self.check()

    @invariant()
    def nothing_is_asked_for_nobody(self):
        for asked in [*resets_of(self.rig.positions).values(), *validations_of(self.rig.positions).values()]:
            withdrawn = {state.tp for _, state in self.rig.subscription.withdrawn}
            of = [(e[0] if isinstance(e, tuple) else e) for e in asked.values()]
            assert all(state.assigned or state.tp in withdrawn for state in of)

    @invariant()
    def the_books_are_in_order(self):
        subscription, fetcher = self.rig.subscription, self.rig.fetcher
        states = list(subscription.partitions.values())
        assert all(state.assigned for state in states)
        assert sorted(s.tp for of in subscription.by_topic.values() for s in of.values()) == sorted(subscription.partitions)
        assert all(subscription.by_topic[s.tp.topic][s.tp.partition] is s for s in states)
        unsettled = {s.tp: s for s in states if s.state is not FetchState.FETCHING}
        assert subscription.unsettled == unsettled
        positions = self.rig.positions
        asked = [*resets_of(positions), *validations_of(positions)]
        asked += [cause for errs in (errors_in(positions), errors_of_paused(positions)) for _, cause in errs.values()]
        known = [*subscription.unasked, *(state for _, _, state in refused_in(positions)), *left_out_of(positions).states]
        for state in unsettled.values():
            assert state in known or any(state.question is q for q in asked), "no question about it"
        assert all(s.question is None and s.tp in unsettled for s in subscription.unasked)
        queued = [*queue_of(fetcher), *(f for parked in queue_of(fetcher).parked.values() for f in parked)]
        assert len(set(queued)) == len(queued)
        assert sum(f.size_bytes for f in queued) == fetcher.buffered_bytes
        assert all(f in f.state.held for f in queued)
        assert sum(len(s.held) for s in queue_of(fetcher).states_held()) == len(queued)

    def check(self) -> None:
        rig = self.rig
        rig.fetcher.send_fetches(rig.now_ms)
        planned = {
            tp: (node_id, target.fetch_offset, target.leader_epoch)
            for node_id, session in sessions_of(rig.fetcher).items()
            for tp, target in session.rows.targets.items()
        }
        expected = walk(rig)
        # a broker whose answer is under way hears of what changed with the fetch after it
        late = {state.tp for node_id, stale in queue_of(rig.fetcher).stale.items() if node_id in rig.fetcher.in_flight for state in stale}
        wanted = [tp for session in sessions_of(rig.fetcher).values() for tp in session.rows.targets if tp not in late]
        assert len(wanted) == len(set(wanted)), "from two brokers at once"
        assert {tp for tp in planned.keys() | expected.keys() if planned.get(tp) != expected.get(tp)} <= late
        for node_id, session in sessions_of(rig.fetcher).items():
            if node_id not in rig.fetcher.in_flight and node_id not in rig.cluster.unready:
                assert not session.rows.targets
            assert all(target.owner.tp == tp for tp, target in session.rows.sent.items())
        assert set(queue_of(rig.fetcher).stale) <= rig.fetcher.in_flight
        queue, states = queue_of(rig.fetcher), rig.subscription.partitions.values()
        reached("parked", queue.parked)
        reached("two answers of a partition held", any(len(state.held) > 1 for state in states))
        reached("a nearer replica is used", any(state.preferred_replica >= 0 for state in states))
        reached("the memory is used up", not queue.runs_ahead)
        reached("a broker with an answer under way hears later", queue.stale)
        reached("an answer was stale", rig.fetcher.metrics.stale_answers)
        reached("a truncation is looked for", validations_of(rig.positions))
        reached("a position waits for its reset", resets_of(rig.positions))

    def teardown(self) -> None:
        """In the end everything that can be read is read."""
        rig = self.rig
        rig.cluster.unready.clear()
        for log in rig.cluster.logs.values():
            log.error, log.preferred = 0, -1
            if log.leader < 0:
                log.leader = 1
        rig.cluster.refresh()
        for tp in rig.subscription.partitions:
            rig.subscription.resume(tp)
        for _ in range(400):
            rig.cluster.deliver()
            with contextlib.suppress(errors.KafkaError):
                rig.fetcher.collect(500)
            rig.now_ms += 1000
            with contextlib.suppress(errors.KafkaError):
                rig.positions.step(rig.now_ms, 0)
                rig.positions.raise_failure()
            rig.fetcher.send_fetches(rig.now_ms)
            rig.cluster.refresh()
            if all(s.state is FetchState.FETCHING and s.offset == rig.log(tp).end for tp, s in rig.subscription.partitions.items()):
                break
        assert [s.offset for s in rig.subscription.partitions.values()] == [rig.log(tp).end for tp in rig.subscription.partitions]


class BothWays(RuleBasedStateMachine):
    """The same history, once with the short cuts and once in general: the brokers are asked the same, the application reads the same."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = [Upkeep(short_cuts=True), Upkeep(short_cuts=False)]

    @invariant()
    def both_are_alike(self):
        for way in self.ways:
            way.nothing_is_asked_for_nobody()
            way.the_books_are_in_order()
        with_short_cuts, in_general = ([way.rig.cluster.requests, way.read, books(way.rig)] for way in self.ways)
        assert with_short_cuts == in_general

    def teardown(self) -> None:
        for way in self.ways:
            way.teardown()
        self.both_are_alike()


def books(rig):
    """What stands where; two partitions of the same name are told apart by their order."""
    queue = queue_of(rig.fetcher)
    return {
        "queue": [(f.state.tp, f.fetch_offset, f.leader_epoch, f.position, f.end_offset, f.error_code) for f in queue],
        "parked": [(state.tp, len(fetches)) for state, fetches in queue.parked.items()],
        "stale": {node_id: [state.tp for state in states] for node_id, states in queue.stale.items()},
        "held": (queue.held_bytes, queue.runs_ahead, queue.wants_fetch),
        "rows": {n: [(tp, *target[:4]) for tp, target in s.rows.targets.items()] for n, s in sessions_of(rig.fetcher).items()},
        "positions": [(s.tp, s.offset, s.offset_epoch, s.epochs, s.topic_id, s.lag(False)) for s in rig.subscription.partitions.values()],
        "begun": [rig.fetcher.begun(s) for s in rig.subscription.partitions.values()],
        "metrics": [getattr(rig.fetcher.metrics, name) for name in ("fetches", "errors", "bytes", "records", "stale_answers")],
    }


def on_both(name, arguments):
    def step(self, **drawn):
        for way in self.ways:
            getattr(way, name)(**drawn)

    step.__name__ = name
    return rule(**arguments)(step)


for _name, _step in list(vars(Upkeep).items()):
    if (_rule := getattr(_step, RULE_MARKER, None)) is not None:
        setattr(BothWays, _name, on_both(_name, _rule.arguments))

BothWays.TestCase.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)
TestBothWays = reached.by(BothWays, rounds=8)


# ---- steps


class NoWalk(dict):
    """A dict that may be asked about a key, and not walked."""

    def _refuse(self, *_):
        raise AssertionError("all assigned partitions were walked")

    __iter__ = items = values = keys = _refuse


MANY = 400


class Counting(FetchRig):
    """Counts how often a partition is looked at, in general or by a short cut."""

    counted = 0

    @property
    def looks(self) -> int:
        return self.counted + queue_of(self.fetcher).placed

    @looks.setter
    def looks(self, count: int) -> None:
        self.counted = count - queue_of(self.fetcher).placed


@pytest.fixture
def many(monkeypatch):
    """A rig with many partitions in a running session, all read; from then on walks are refused and looks at one partition counted."""
    rig = Counting({TopicPartition("t", i): filled(leader=1 + i % 3) for i in range(MANY)}, max_wait_ms=0)
    read = 0
    while read < 10 * MANY:
        read += sum(map(len, rig.poll().values()))
    for _ in range(4):  # what was read is known to the brokers
        rig.round()
    rig.subscription.partitions = NoWalk(rig.subscription.partitions)
    rig.subscription.unsettled = NoWalk(rig.subscription.unsettled)
    rig.looks = 0
    place, give, check = Fetcher._place, LeaderQuery._give_to_leader, offsets_module.PositionKeeper._check_epoch

    def counted(method):
        def call(*args):
            rig.looks += 1
            return method(*args)

        return call

    monkeypatch.setattr(Fetcher, "_place", counted(place))
    monkeypatch.setattr(LeaderQuery, "_give_to_leader", counted(give))
    monkeypatch.setattr(offsets_module.PositionKeeper, "_check_epoch", counted(check))
    return rig


def partitions_named(request: FetchRequest) -> int:
    return sum(len(t.partitions) for t in request.topics) + sum(len(t.partitions) for t in request.forgotten_topics_data)


def test_an_idle_consumer_looks_at_no_partition(many):
    """Also where new metadata say the same."""
    before = len(many.fetches())
    for nth in range(20):
        if nth == 10:
            many.cluster.refresh()
        many.round(500)
        assert many.values() == {}
        assert many.fetcher.next_wake_ms(many.now_ms) is None
        assert many.positions.next_wake_ms(many.now_ms) is None
    assert many.looks == 0
    assert [partitions_named(r) for r in many.fetches()[before:]] == [0] * 60


def test_what_is_read_assigned_or_without_a_leader_is_looked_at_and_no_other(many):
    before = len(many.fetches())
    many.log(A).append(b"new")
    assert many.poll() == {A: [b"new"]}
    some = [TopicPartition("t", index) for index in range(2, 5)]
    many.subscription.remove(some)
    many.round()
    many.subscription.add(some, EARLIEST)
    for _ in range(4):
        many.round(100)
    assert 0 < many.looks <= 34
    assert sum(partitions_named(r) for r in many.fetches()[before:]) <= 14
    assert many.values() == {tp: numbers(0, 10) for tp in some}
    many.log(A).elect()
    many.log(A).leader = -1
    many.cluster.refresh()
    many.subscription.seek(A, 5)
    many.looks = 0
    for _ in range(20):
        many.round(100)
    assert many.looks <= 12
    assert many.cluster.update_requests >= 20


def test_a_partition_read_to_its_end_is_not_looked_at_again(many):
    for log in many.cluster.logs.values():
        log.append(b"new")
    many.round()
    many.fetcher.send_fetches(many.now_ms)
    many.looks = 0
    assert sum(map(len, many.fetcher.collect(MANY).values())) == MANY
    many.cluster.deliver()  # with a fetch in flight to its broker nothing is looked at
    assert not many.fetcher.in_flight
    many.fetcher.send_fetches(many.now_ms)
    assert many.looks == 0


def test_a_leader_change_of_one_partition_looks_at_that_one(many):
    many.log(A).elect(3)
    many.cluster.refresh()
    for _ in range(4):
        many.round(100)
    assert 0 < many.looks <= 6
    many.log(A).append(b"new")
    assert many.poll() == {A: [b"new"]}


@pytest.mark.parametrize("call", ["seek", "request_reset", "pause"])
def test_changing_all_partitions_one_by_one_looks_at_each_a_few_times(many, call):
    for index in range(MANY):
        tp = TopicPartition("t", index)
        getattr(many.subscription, call)(tp, *{"seek": (5,), "request_reset": (LATEST,), "pause": ()}[call])
        many.fetcher.retain()
    for _ in range(4):
        many.round(100)
    assert MANY <= many.looks <= 6 * MANY


def test_answers_of_paused_partitions_are_not_looked_at_with_every_poll(monkeypatch):
    rig = FetchRig({TopicPartition("t", i): filled() for i in range(MANY)})
    rig.round()
    for index in range(1, MANY):
        rig.subscription.pause(TopicPartition("t", index))
    looks = []
    wanted = Fetcher._is_wanted
    monkeypatch.setattr(Fetcher, "_is_wanted", lambda self, fetch: looks.append(fetch) or wanted(self, fetch))
    assert rig.values() == {A: numbers(0, 10)}
    looks.clear()
    for _ in range(10):
        assert rig.values() == {}
    assert not looks
    rig.subscription.resume(B)
    assert rig.values() == {B: numbers(0, 10)}
    assert len(looks) < 5


def test_lookups_of_many_partitions_are_one_request_for_each_leader_and_dropped_at_once(monkeypatch):
    rig = FetchRig({TopicPartition("t", i): filled(leader=1 + i % 3) for i in range(MANY)}, seek=False)
    rig.round()
    assert [type(r).__name__ for _, _, r in rig.cluster.requests].count("ListOffsetsRequest") == 3
    rig.round()
    assert not rig.subscription.unsettled
    for tp in rig.cluster.logs:
        rig.subscription.request_reset(tp, EARLIEST)
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver(lost=True)
    rig.subscription.unsubscribe()
    dropped, drop = [], LeaderQuery.drop
    monkeypatch.setattr(LeaderQuery, "drop", lambda query, tps: dropped.append(len(tps)) or drop(query, tps))
    rig.positions.step(rig.now_ms, 0)
    assert dropped == [MANY]  # one by one it took as many looks at as many failed tries
    assert rig.positions.idle


def test_truncated_partitions_are_reported_in_steps_that_do_not_grow(monkeypatch):
    rig = FetchRig({TopicPartition("t", i): filled(2) for i in range(MANY)}, reset="none")
    while sum(s.offset for s in rig.subscription.partitions.values()) < 20 * MANY:
        rig.poll(5_000)
    for log in rig.cluster.logs.values():
        log.elect(cut=10)
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver()
    taken = CountedErrors(errors_in(rig.positions))
    monkeypatch.setattr(rig.positions, "_errors", taken)
    for _ in range(3):
        taken.count = 0
        with pytest.raises(errors.LogTruncationError):
            if not taken:
                rig.positions.step(rig.now_ms, 0)
            rig.positions.raise_failure()
        assert 0 < taken.count <= 3


class CountedErrors(OrderedDict):
    """Errors of which every one that is looked at is counted. They may not be walked."""

    count = 0

    def popitem(self, last=True):
        self.count += 1
        return super().popitem(last)

    def _refuse(self, *_):
        raise AssertionError("all errors were walked")

    items = values = keys = _refuse


def test_whoever_got_data_is_asked_last_by_the_next_full_fetch():
    rig = FetchRig({A: filled(), B: Log(), C: Log()})
    assert rig.poll() == {A: numbers(0, 10)}
    rig.round()
    rig.cluster.sessions.clear()
    rig.round()
    rig.round()
    last = rig.fetches()[-1]
    assert last.session_epoch == 0
    assert [(t.topic_id[:1], [p.partition for p in t.partitions]) for t in last.topics] == [(b"t", [1, 0]), (b"u", [0])]


def test_memory_that_is_used_up_is_half_free_before_fetches_run_ahead_again():
    rig = FetchRig({TopicPartition("t", i): filled() for i in range(8)}, max_bytes=800, max_partition_bytes=200)
    rig.round()
    held = rig.fetcher.buffered_bytes
    assert held >= 800
    while rig.fetcher.buffered_bytes > 400:
        assert not queue_of(rig.fetcher).runs_ahead
        rig.values(10)
    assert queue_of(rig.fetcher).runs_ahead
