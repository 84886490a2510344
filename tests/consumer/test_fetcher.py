"""The fetch engine against scripted brokers: what is asked, what is handed out, what happens when things go wrong."""

import contextlib
import gc
import itertools
import weakref

import pytest
from scripted_cluster import COMMIT, Log, ScriptedCluster

from kafkacore import bounds, compress, errors
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.refusals import Refusals
from kafkacore.consumer.sessions import FetchLimits
from kafkacore.consumer.subscription import FetchState, PartitionState, ResetStrategy, SubscriptionState
from kafkacore.errors import Code
from kafkacore.net.leaders import OffsetQuery
from kafkacore.protocol import FetchRequest, FetchResponse, OffsetForLeaderEpochRequest
from kafkacore.records import BatchBuilder
from kafkacore.types import TopicPartition
from tests.kit.inside import queue_of, sessions_of
from tests.kit.rows import each_row

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class GeneralWay:
    """A fetcher's queue without its short cuts: every partition takes the general way."""

    def __init__(self, queue):
        vars(self)["queue"] = queue

    def __getattr__(self, name):
        return getattr(self.queue, name)

    def __setattr__(self, name, value):
        setattr(self.queue, name, value)

    def __len__(self):
        return len(self.queue)

    def __iter__(self):
        return iter(self.queue)

    def place_again(self, states, start, snapshot, now_ms):
        return start

    def take_answers(self, rows, partitions, start, topic_id, known_id, node_id):
        return start

    def take(self, taken, left):
        return 0

    def take_columns(self, taken):
        pass


class FetchRig:
    """A fetcher and a position keeper on a scripted cluster, with a hand-moved clock. Without `short_cuts` all goes the general way."""

    def __init__(
        self,
        logs,
        *,
        reset="earliest",
        isolation=0,
        seek=True,
        max_partition_bytes=1 << 20,
        max_bytes=50 << 20,
        short_cuts=True,
        max_decompressed_bytes=1 << 20,
        max_wait_ms=500,
        **options,
    ):
        self.cluster = ScriptedCluster(logs, whole=not short_cuts, **options)
        self.subscription = SubscriptionState(ResetStrategy(reset))
        self.now_ms = 1000
        self.fetcher = Fetcher(
            self.subscription,
            self.cluster,
            self.cluster,
            FetchLimits(max_wait_ms, 1, max_bytes, isolation, ""),
            max_partition_bytes=max_partition_bytes,
            check_crcs=True,
            max_decompressed_bytes=max_decompressed_bytes,
            retry_backoff_ms=100,
            preferred_max_age_ms=300_000,
        )
        if not short_cuts:
            self.fetcher._queue = GeneralWay(queue_of(self.fetcher))
        self.positions = PositionKeeper(
            self.subscription, self.cluster, self.cluster, isolation_level=isolation, retry_backoff_ms=100, retry_backoff_max_ms=1000
        )
        self.subscription.assign_manual(self.cluster.logs)
        if seek:
            for tp in self.cluster.logs:
                self.subscription.seek(tp, 0)

    def log(self, tp):
        return self.cluster.logs[tp]

    def round(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.positions.step(self.now_ms, 1_700_000_000_000)
        self.fetcher.send_fetches(self.now_ms)
        self.positions.raise_failure()
        self.cluster.deliver()

    def values(self, count: int = 500, *, columns: bool = False) -> dict[TopicPartition, list[bytes]]:
        if columns:
            return {TopicPartition(c.topic, c.partition): [r.value for r in c] for c in self.fetcher.collect_columns()}
        return {tp: [r.value for r in records] for tp, records in self.fetcher.collect(count).items()}

    def poll(self, count: int = 500, rounds: int = 10):
        for _ in range(rounds):
            found = self.values(count)
            if found:
                return found
            self.round(200)
        return {}

    def fetches(self) -> list[FetchRequest]:
        return [r for _, _, r in self.cluster.requests if isinstance(r, FetchRequest)]


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


def filled(batches: int = 1, per_batch: int = 10, **options) -> Log:
    log = Log(**options)
    for b in range(batches):
        log.append(*numbers(b * per_batch, per_batch))
    return log


@each_row("fetch_version", [4, 6, 7, 11, 12, 13, 16, 17])
def test_reads_everything_in_order_in_every_version(fetch_version):
    rig = FetchRig({A: filled(3), B: filled(2), C: filled(1, leader=2)}, fetch_version=fetch_version, topic_ids=fetch_version >= 12)
    got: dict[TopicPartition, list[bytes]] = {}
    while found := rig.poll(7, rounds=3):
        assert sum(map(len, found.values())) <= 7
        for tp, values in found.items():
            got.setdefault(tp, []).extend(values)
    assert got == {A: numbers(0, 30), B: numbers(0, 20), C: numbers(0, 10)}
    assert [s.offset for s in rig.subscription.partitions.values()] == [{A: 30, B: 20, C: 10}[tp] for tp in rig.subscription.partitions]


@pytest.mark.parametrize("short_cuts", [True, False])
def test_one_call_joins_the_answers_that_are_held_for_a_partition(short_cuts):
    rig = FetchRig({A: filled(2)}, max_partition_bytes=200, short_cuts=short_cuts)
    rig.round()
    assert rig.values(1) == {A: [b"0"]}
    rig.round()
    assert len(rig.fetches()) == 2
    assert rig.values(500) == {A: numbers(1, 19)}


def test_a_range_that_begins_in_the_middle_asks_for_what_is_left_of_it():
    whole, rest = FetchRig({A: filled(400)}, max_partition_bytes=8 << 20), FetchRig({A: filled(400)}, max_partition_bytes=8 << 20)
    whole.subscription.state_of(A).fetch_end = 1_000
    rest.subscription.seek(A, 3_000)
    rest.subscription.state_of(A).fetch_end = 4_000
    for rig in (whole, rest):
        rig.round()
    asked, asked_for_the_rest = (rig.fetches()[0].topics[0].partitions[0].partition_max_bytes for rig in (whole, rest))
    assert asked == asked_for_the_rest < 8 << 20


def test_of_a_range_no_more_is_asked_for_than_it_is_likely_to_take():
    rig = FetchRig({A: filled(400)}, max_partition_bytes=8 << 20)
    rig.subscription.state_of(A).fetch_end = 3_990
    rig.round()
    first = rig.fetches()[0].topics[0].partitions[0].partition_max_bytes
    assert first == int(1.1 * 3_990 * 1_024) + 32_768  # nothing is known yet
    assert rig.values(5_000)[A] == numbers(0, 4_000)
    rig.round()
    assert len(rig.fetches()) == 1  # nothing is asked for behind the end
    size = rig.fetcher.metrics.bytes
    rig.subscription.seek(A, 0)
    rig.subscription.state_of(A).fetch_end = 1_000
    rig.round()
    asked = rig.fetches()[1].topics[0].partitions[0].partition_max_bytes
    assert asked == int(1.1 * 1_000 * (size / 4_000)) + 32_768
    rig.values(5_000)
    rig.subscription.state_of(A).fetch_end = None
    rig.round()
    assert rig.fetches()[2].topics[0].partitions[0].partition_max_bytes == 8 << 20


def test_one_fetch_in_flight_per_broker():
    rig = FetchRig({A: filled(), B: filled(), C: filled(leader=2)})
    assert rig.fetcher.send_fetches(0) == 2
    assert rig.fetcher.send_fetches(0) == 0
    assert [(node, len(r.topics[0].partitions)) for node, _, r in rig.cluster.requests] == [(1, 2), (2, 1)]


def test_the_next_fetch_is_in_flight_while_the_application_works():
    rig = FetchRig({A: filled(4)}, max_partition_bytes=200)
    rig.round()
    assert len(rig.values(4)[A]) == 4
    assert rig.fetcher.wants_fetch
    assert rig.fetcher.send_fetches(rig.now_ms) == 1
    first, second = rig.fetches()
    assert first.topics[0].partitions[0].fetch_offset == 0
    ahead = second.topics[0].partitions[0].fetch_offset
    assert ahead > 4  # behind what is held, not at the position
    rig.cluster.deliver()
    rig.fetcher.send_fetches(rig.now_ms)
    assert len(rig.fetches()) == 2  # two answers held: no third
    got = numbers(0, 4)
    while found := rig.poll(3, rounds=3):
        got += found[A]
    assert got == numbers(0, 40)


def test_nothing_is_fetched_ahead_once_the_memory_is_used():
    rig = FetchRig({A: filled(4), B: filled(4)}, max_bytes=200, max_partition_bytes=200)
    rig.round()
    assert rig.fetcher.buffered_bytes >= 200
    rig.values(1)
    assert rig.fetcher.send_fetches(rig.now_ms) == 0


@pytest.mark.parametrize("short_cuts", [True, False])
def test_a_partition_that_comes_back_at_its_end_knows_where_that_is(short_cuts):
    """As after an eager rebalance: the broker has said where the log ends, and says it no more in this session."""
    rig = FetchRig({A: filled(), B: filled()}, short_cuts=short_cuts)
    while rig.poll():
        pass
    assert rig.subscription.partitions[A].lag(False) == 0
    for _ in range(2):
        rig.subscription.assign_manual([B])
        rig.subscription.assign_manual([A, B])
        rig.subscription.seek(A, 10)
        rig.round()
        assert [rig.subscription.partitions[tp].lag(False) for tp in (A, B)] == [0, 0]
    sent = len(rig.fetches())
    rig.round()
    assert not rig.fetches()[sent].topics, "the new session is kept"


@each_row("columns", [False, True])
@each_row("short_cuts", [True, False])
def test_where_what_was_handed_out_began_is_known_until_the_next_call(short_cuts, columns):
    rig = FetchRig({A: filled(2), B: filled()}, short_cuts=short_cuts, max_partition_bytes=150)
    a, b = (rig.subscription.partitions[tp] for tp in (A, B))
    rig.subscription.pause(B)
    rig.subscription.seek(A, 3)

    def collect():
        return rig.fetcher.collect_columns() if columns else rig.fetcher.collect(500)

    def read():
        while not (found := collect()):
            rig.round(200)
        return found

    rig.fetcher.begin()
    assert rig.fetcher.begun(a) is None
    read()
    assert a.offset > 3
    assert [rig.fetcher.begun(s) for s in (a, b)] == [3, None]
    before = a.offset
    read()
    assert a.offset > before
    assert rig.fetcher.begun(a) == 3, "the same call goes on"
    rig.fetcher.begin()
    assert rig.fetcher.begun(a) is None, "it is processed"
    rig.subscription.resume(B)
    read()
    assert [rig.fetcher.begun(s) for s in (a, b)] == [None, 0]
    rig.fetcher.work_on({A: 7, TopicPartition("gone", 0): 1})
    assert [rig.fetcher.begun(s) for s in (a, b)] == [7, 0]
    rig.fetcher.begin()
    assert [rig.fetcher.begun(s) for s in (a, b)] == [None, None]


def test_offsets_without_records_are_not_handed_out():
    """A transaction's marker moves the position and gives the application nothing to work on."""
    rig = FetchRig({A: filled(), B: filled()})
    state = rig.subscription.partitions[A]
    while rig.poll():
        pass
    rig.fetcher.begin()
    rig.log(A).mark(COMMIT, 1)
    assert rig.poll() == {}
    assert state.offset == 11
    assert rig.fetcher.begun(state) is None


def test_seek_drops_what_was_fetched_and_what_is_on_its_way():
    rig = FetchRig({A: filled(3)}, max_partition_bytes=150)
    rig.round()
    assert rig.values(3) == {A: numbers(0, 3)}
    rig.fetcher.send_fetches(rig.now_ms)
    rig.subscription.seek(A, 25)
    rig.cluster.deliver()
    assert rig.poll() == {A: numbers(25, 5)}
    rig.subscription.seek(A, 5)
    assert rig.poll(2) == {A: [b"5", b"6"]}  # inside a batch: what comes before is trimmed
    assert rig.fetcher.metrics.stale_answers >= 1


def test_retain_gives_back_the_memory_of_dropped_data():
    rig = FetchRig({A: filled()})
    rig.round()
    assert rig.fetcher.buffered_bytes > 0
    rig.subscription.unsubscribe()
    rig.fetcher.retain()
    assert rig.fetcher.buffered_bytes == 0


def test_a_moved_leader_is_found_through_metadata_with_a_back_off():
    rig = FetchRig({A: filled()})
    rig.log(A).leader = 2
    rig.round()
    assert rig.cluster.update_requests == 1
    assert rig.cluster.hints == {A: (3, 1)}  # KIP-951
    rig.round(10)  # nothing came of the hint: the second refusal is backed off
    rig.round(10)
    assert (rig.fetcher.next_wake_ms(rig.now_ms), len(rig.fetches())) == (100, 2)
    rig.cluster.refresh()
    assert rig.poll() == {A: numbers(0, 10)}
    assert [node for node, _, r in rig.cluster.requests if isinstance(r, FetchRequest)][-1] == 2


def test_with_another_network_nothing_is_in_flight_or_held():
    rig = FetchRig({A: filled(), C: filled(leader=2)})
    rig.round()
    rig.fetcher.send_fetches(rig.now_ms)
    sessions = [*sessions_of(rig.fetcher).values()]
    rig.fetcher.start_anew(rig.cluster)
    assert [session.rows.ended for session in sessions] == [True, True]
    assert (rig.fetcher.sessions, rig.fetcher.in_flight, rig.fetcher.buffered_bytes) == ({}, frozenset(), 0)
    rig.log(A).error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.subscription.settle_anew()
    rig.cluster.pending.clear()
    rig.subscription.pause(C)
    rig.round()
    with pytest.raises(errors.TopicAuthorization):
        rig.fetcher.is_ready()


def test_refusals_are_retried_after_the_back_off_only():
    rig = FetchRig({A: filled()})
    rig.log(A).error = Code.UNKNOWN_LEADER_EPOCH
    rig.round()
    for _ in range(5):
        rig.round(10)
    assert len(rig.fetches()) == 1
    rig.round(100)
    assert len(rig.fetches()) == 2
    rig.log(A).error = 0
    assert rig.poll() == {A: numbers(0, 10)}


@each_row("columns", [False, True])
@each_row("short_cuts", [True, False])
def test_fetches_and_what_becomes_of_them_are_counted(short_cuts, columns):
    rig = FetchRig({A: filled()}, short_cuts=short_cuts)
    counts = []

    def count():
        metrics = rig.fetcher.metrics
        counts.append((metrics.fetches, metrics.full_fetches, metrics.answers, metrics.errors))

    rig.round()
    rig.values(columns=columns)
    assert rig.fetcher.metrics.records == 10
    count()
    rig.log(A).error = Code.UNKNOWN_LEADER_EPOCH
    rig.round()
    count()
    rig.log(A).error = 0
    rig.round()
    rig.fetcher.send_fetches(rig.now_ms + 100)
    rig.cluster.deliver(lost=True)
    count()
    rig.cluster.answer = lambda *_: FetchResponse(error_code=Code.INVALID_FETCH_SESSION_EPOCH, responses=[])
    rig.round(200)
    count()
    assert counts == [(1, 1, 1, 0), (2, 1, 2, 1), (3, 1, 2, 2), (4, 2, 3, 3)]


@each_row("columns", [False, True])
@each_row("short_cuts", [True, False])
def test_data_that_broke_on_their_way_are_fetched_again(short_cuts, columns):
    """After the back-off, and as long as the position stays. The error names the place, which a seek passes by."""
    rig = FetchRig({A: filled(3)}, short_cuts=short_cuts)
    base, after, data = rig.log(A).batches[1]
    rig.log(A).batches[1] = (base, after, data[:-1] + bytes([data[-1] ^ 1]))
    rig.round()
    assert rig.values(columns=columns) == {A: numbers(0, 10)}
    before = len(rig.fetches())
    for n in range(1, 4):
        with pytest.raises(errors.CorruptDataError) as caught:
            rig.values(columns=columns)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 10)
        rig.round()
        rig.round(99)
        assert rig.values(columns=columns) == {}
        assert len(rig.fetches()) == before + n - 1
        rig.round(1)
    rig.log(A).batches[1] = (base, after, data)
    with pytest.raises(errors.CorruptDataError):
        rig.values(columns=columns)
    if columns:
        rig.subscription.seek(A, 20)
    rig.round()
    rig.round(100)
    assert rig.values(columns=columns) == {A: numbers(20, 10) if columns else numbers(10, 20)}


def test_a_nearer_replica_whose_answer_is_lost_hands_all_its_partitions_over():
    rig = FetchRig({A: filled(), B: filled()})
    rig.log(A).preferred = rig.log(B).preferred = 0
    assert rig.poll() == {A: numbers(0, 10), B: numbers(0, 10)}
    rig.log(A).preferred = rig.log(B).preferred = -1
    rig.fetcher.send_fetches(rig.now_ms)
    assert rig.cluster.requests[-1][0] == 0
    rig.cluster.deliver(lost=True)
    rig.fetcher.send_fetches(rig.now_ms)
    node, _, request = rig.cluster.requests[-1]
    assert (node, sorted(q.partition for topic in request.topics for q in topic.partitions)) == (1, [0, 1])


@each_row("short_cuts", [True, False])
@each_row("fails", ["behind", "lost"])
def test_a_nearer_replica_that_fails_hands_over_to_the_leader_before_anything_else(fails, short_cuts):
    """A follower may be behind: only the leader's word that an offset is out of range moves the position."""
    rig = FetchRig({A: filled()}, reset="latest", short_cuts=short_cuts)
    rig.log(A).preferred = 0
    assert rig.poll() == {A: numbers(0, 10)}
    rig.log(A).append(b"x", b"y")
    rig.round()
    rig.log(A).error = Code.OFFSET_OUT_OF_RANGE if fails == "behind" else 0
    rig.fetcher.collect(1)
    rig.fetcher.send_fetches(rig.now_ms)
    rig.cluster.deliver(lost=fails == "lost")
    rig.fetcher.collect(500)  # what a poll does first, before it looks at what to fetch
    rig.log(A).error, rig.log(A).preferred = 0, -1
    rig.fetcher.send_fetches(rig.now_ms)
    assert [node for node, _, _ in rig.cluster.requests][-2:] == [0, 1]
    assert rig.subscription.partitions[A].state is FetchState.FETCHING


def test_a_nearer_replica_that_the_metadata_do_not_know_is_looked_for():
    """It may have joined the cluster just now. The leader gives no records with its name, and answers at once."""
    rig = FetchRig({A: filled()})
    rig.log(A).preferred = 9
    for _ in range(20):
        rig.round()
    assert rig.cluster.update_requests >= 1
    assert len(rig.fetches()) == 1
    assert rig.fetcher.next_wake_ms(rig.now_ms) == 100
    rig.round(100)
    assert len(rig.fetches()) == 2
    rig.log(A).preferred = -1
    assert rig.poll() == {A: numbers(0, 10)}


def test_sessions_are_closed_where_no_fetch_is_in_flight():
    rig = FetchRig({A: filled(), C: filled(leader=2)})
    rig.round()
    rig.values()
    rig.fetcher.collect(100)
    rig.subscription.pause(C)
    rig.fetcher.send_fetches(rig.now_ms)
    assert rig.fetcher.in_flight == {1}
    assert rig.fetcher.close_sessions(rig.now_ms) == {2}
    assert (rig.fetches()[-1].session_epoch, rig.fetches()[-1].topics) == (-1, [])
    assert (rig.fetches()[-1].max_wait_ms, rig.fetches()[-1].min_bytes) == (0, 0)  # it is answered at once
    assert rig.fetcher.in_flight == {1, 2}
    rig.cluster.deliver()
    assert not rig.cluster.sessions[2] and not rig.fetcher.in_flight


def test_refusals_in_a_row_are_known_since_the_first_one():
    refusals = Refusals(100)
    a, b = PartitionState(A), PartitionState(B)
    a.offset, b.offset, a.assigned, b.assigned = 5, 0, True, True

    def note(now_ms, *states):
        refusals.fresh.update(dict.fromkeys(states, now_ms))  # the code says when
        refusals.note(now_ms)
        assert not refusals.fresh

    note(1_000, a, b)
    note(4_100, a)
    assert refusals.going_on(4_100) == {a: (1_000, 4_100), b: (1_000, 1_000)}
    assert refusals.going_on(4_101) == {a: (1_000, 4_100)}  # 3 s after the back-off there is no row any more
    note(7_201, a)
    assert refusals.going_on(7_201) == {a: (7_201, 7_201)}
    note(7_300, a, b)
    assert refusals.going_on(7_300) == {a: (7_201, 7_300), b: (7_300, 7_300)}
    a.offset = 6
    b.assigned = False
    assert refusals.going_on(7_301) == {}
    note(7_400, a)
    assert refusals.going_on(7_400) == {a: (7_400, 7_400)}
    refusals.clear()
    assert refusals.going_on(7_400) == {}


# ---- positions


def test_latest_in_read_committed_is_the_last_stable_offset():
    log = filled(3)
    log.last_stable = 20
    rig = FetchRig({A: log}, reset="latest", isolation=1, seek=False)
    rig.round()
    rig.round()
    assert rig.subscription.partitions[A].offset == 20


def test_a_lookup_backs_off_and_grows():
    rig = FetchRig({A: filled()}, seek=False)
    rig.log(A).error = Code.OFFSET_NOT_AVAILABLE
    times = []
    for now_ms in range(0, 2000, 10):
        before = len(rig.cluster.requests)
        rig.positions.step(now_ms, 0)
        if len(rig.cluster.requests) > before:
            times.append(now_ms)
        rig.cluster.deliver()
    assert [b - a for a, b in itertools.pairwise(times)][:4] == [110, 210, 410, 810]


def test_a_new_leader_epoch_is_checked_before_reading_on():
    rig = FetchRig({A: filled(2)}, max_partition_bytes=150)
    assert rig.poll()[A][-1] == b"9"
    rig.log(A).epoch = 1
    rig.cluster.refresh()
    rig.positions.step(rig.now_ms, 0)
    assert rig.subscription.partitions[A].state is FetchState.AWAIT_VALIDATION
    (query,) = [r for _, _, r in rig.cluster.requests if isinstance(r, OffsetForLeaderEpochRequest)]
    assert (query.topics[0].partitions[0].current_leader_epoch, query.topics[0].partitions[0].leader_epoch) == (1, 0)
    rig.cluster.deliver()
    assert rig.poll() == {A: numbers(10, 10)}


def test_offset_queries_ask_all_leaders_and_name_what_fails():
    rig = FetchRig({A: filled(2), B: filled(1), C: filled(3, leader=2)})
    rig.log(B).error = Code.TOPIC_AUTHORIZATION_FAILED
    query = OffsetQuery(
        rig.cluster, rig.cluster, {A: -1, B: -1, C: 1_000_012}, isolation_level=0, retry_backoff_ms=100, retry_backoff_max_ms=1000
    )
    query.step(0)
    assert not query.done
    rig.cluster.deliver()
    assert query.done
    assert {tp: r.offset for tp, r in query.results.items()} == {A: 20, C: 12}
    assert isinstance(query.failed[B], errors.TopicAuthorization)


@pytest.mark.parametrize("columns", [False, True])
def test_a_batch_cut_short_takes_nothing_of_the_others_away(columns):
    """Brokers may cut the first batch of a partition at its limit; the partitions beside it are read all the same."""
    rig = FetchRig({A: filled(2), B: filled(2)})
    whole = rig.log(B).batches[0]
    rig.log(B).batches[:] = [(whole[0], whole[1], whole[2][:-1])]

    def read():
        return rig.values(columns=columns)

    rig.round()
    assert read() == {A: numbers(0, 20)}
    rig.round()
    with pytest.raises(errors.RecordTooLarge) as caught:
        read()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 0)
    rig.log(B).batches[:] = [whole]
    rig.round()
    rig.round()
    assert read() == {B: numbers(0, 10)}
    assert rig.fetcher.buffered_bytes == 0


class Received(bytearray):
    """The bytes of an answer; unlike `bytes` they can be referred to weakly."""


@pytest.mark.parametrize("short_cuts", [True, False])
def test_an_error_pins_no_fetched_memory(short_cuts):
    """The traceback of a raised error holds the frames it went through, and with them the fetch: nothing there may hold the error."""
    rig = FetchRig({A: filled(2)}, short_cuts=short_cuts)
    base, after, data = rig.log(A).batches[0]
    rig.log(A).batches[0] = (base, after, data[:-1] + bytes([data[-1] ^ 1]))
    received = []
    decoded = rig.cluster.decoded

    def decode(kind, version, wire, left):
        wire = Received(wire)
        received.append(weakref.ref(wire))
        return decoded(kind, version, wire, left)

    rig.cluster.decoded = decode
    rig.round()
    gc.collect()
    gc.disable()
    try:
        assert [wire() is not None for wire in received] == [True]
        with contextlib.suppress(errors.CorruptDataError):
            rig.fetcher.collect(500)
        assert [wire() is not None for wire in received] == [False]
    finally:
        gc.enable()


@pytest.mark.parametrize("columns", [False, True])
def test_an_error_that_comes_with_records_of_another_partition_is_owed(columns):
    rig = FetchRig({A: filled(), C: filled()})
    rig.log(C).error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.round()
    collect = rig.fetcher.collect_columns if columns else lambda: rig.fetcher.collect(500)
    assert collect()  # the records of A
    rig.log(C).error = 0
    with pytest.raises(errors.TopicAuthorization) as raised:
        collect()
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("u", 0, 0)
    assert not collect()
    assert rig.poll() == {C: numbers(0, 10)}


def test_an_error_that_is_owed_ends_with_the_assignment():
    rig = FetchRig({A: filled(), B: filled()})
    rig.log(B).error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.round()
    assert rig.fetcher.collect(500)
    rig.subscription.assign_manual([A])
    rig.fetcher.retain()
    assert rig.fetcher.collect(500) == {}


def test_partitions_that_one_answer_refuses_are_one_error():
    logs = {TopicPartition(name, index): filled() for name in ("t", "u", "v") for index in range(3)}
    rig = FetchRig(logs)
    for log in rig.cluster.logs.values():
        log.error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.round()
    with pytest.raises(errors.TopicAuthorization, match="refused for 3 topics, also for: u, v"):
        rig.fetcher.collect(500)
    assert rig.fetcher.collect(500) == {}
    assert rig.fetcher.next_wake_ms(rig.now_ms) == 0


# ---- what one call unpacks (tests/consumer/test_decompression_bound.py: through every face)


def packed_log(batches: int, size: int, records: int = 1, **options) -> Log:
    """A log of zstd batches that unpack to `size` bytes each."""
    log = Log()
    for base in range(0, batches * records, records):
        builder = BatchBuilder(base_offset=base, compression=4, max_bytes=1 << 24, **options)
        for n in range(records):
            assert builder.append(bytes(size // records), timestamp_ms=base + n)
        log.batches.append((base, base + records, bytes(builder.build())))
    return log


@each_row("short_cuts", [True, False])
@each_row("columns", [True, False])
def test_a_call_opens_no_further_batch_once_it_has_unpacked_as_much_as_one_may_hold(short_cuts, columns):
    rig = FetchRig({A: packed_log(5, 600_000), B: packed_log(4, 600_000)}, short_cuts=short_cuts)
    rig.round()
    calls = []
    while sum(calls) < 9:
        if columns:
            found = sum(map(len, rig.fetcher.collect_columns()))
        else:
            found = sum(map(len, rig.fetcher.collect(500).values()))
        if not found:
            rig.round(200)
        else:
            calls.append(found)
    assert max(calls) == 2 and len(calls) <= 6


def test_a_call_hands_out_no_more_rows_than_it_may_hold():
    rig = FetchRig({A: packed_log(1, 0, records=10), B: packed_log(1, 0, records=10)})
    assert rig.fetcher.queue.rows_per_call == bounds.ROWS_PER_CALL
    rig.fetcher.queue.rows_per_call = 7
    rig.round()
    found = []
    while sum(found) < 20:
        found.append(sum(map(len, rig.fetcher.collect_columns())))
    assert found == [7, 7, 6]


def test_a_large_batch_of_a_paused_partition_is_packed_again(monkeypatch):
    """Its first records are out. Many partitions of which some records were read hold no more than they were fetched with."""
    opened = []
    decompress = compress.decompress
    monkeypatch.setattr(compress, "decompress", lambda *args: opened.append(args) or decompress(*args))
    for size, times in ((bounds.KEPT_OPEN_BYTES // 2, 1), (2 * bounds.KEPT_OPEN_BYTES, 2)):
        opened.clear()
        rig = FetchRig({A: packed_log(1, size, records=4)}, max_decompressed_bytes=4 << 20)
        rig.round()
        assert [r.offset for r in rig.fetcher.collect(2)[A]] == [0, 1]
        rig.subscription.pause(A)
        assert rig.fetcher.collect(500) == {}
        rig.subscription.resume(A)
        assert [r.offset for r in rig.fetcher.collect(500)[A]] == [2, 3]
        assert len(opened) == times


@each_row("max_wait_ms, soon", [(8, True), (7, False)])
def test_twenty_answers_of_nothing_that_come_too_soon_make_a_pause(max_wait_ms, soon):
    """They come after 1 ms, and a quarter of the wait is soon."""
    rig = FetchRig({A: Log()}, max_wait_ms=max_wait_ms)
    for _ in range(30):
        rig.round()
    assert (len(rig.fetches()), rig.fetcher.waits_for_nodes) == ((21, True) if soon else (30, False))
    if soon:
        assert rig.fetcher.next_wake_ms(rig.now_ms) == 10
        rig.round(9)
        assert (len(rig.fetches()), rig.fetcher.next_wake_ms(rig.now_ms)) == (21, 1)
        rig.round(1)
        assert len(rig.fetches()) == 22


@pytest.mark.parametrize("short_cuts", [True, False])
def test_a_broker_that_answers_nothing_at_once_is_asked_after_pauses(short_cuts):
    """It was to wait for records. Asked again at once it would say the same: at no cost of its own, and for a core of the consumer's."""
    rig = FetchRig({A: filled(1), C: Log(leader=2)}, short_cuts=short_cuts)
    assert len(rig.poll()[A]) == 10
    asked = len(rig.fetches())
    for _ in range(1_000):
        rig.round(1)
    assert 100 < len(rig.fetches()) - asked < 2 * (20 + 100) + 20
    rig.round(100)
    for _ in range(3):
        rig.round()
    assert rig.fetcher.waits_for_nodes and 0 < rig.fetcher.next_wake_ms(rig.now_ms) <= 10
    rig.log(A).append(b"more")
    rig.round(10)
    assert rig.values() == {A: [b"more"]}  # a pause is short, and over
    asked = len(rig.fetches())
    for _ in range(15):
        rig.round()
    assert len(rig.fetches()) - asked >= 10  # there was something: it may be asked at once again
