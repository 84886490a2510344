"""What fails twice in a row, or while something else is under way: fetches and positions against scripted brokers, time moved by hand."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_cluster import ABORT, COMMIT, Log, Reply
from test_fetcher import FetchRig, filled, numbers

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group.commits import CommittedQuery
from kafkacore.consumer.subscription import FetchState
from kafkacore.errors import Code
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.reached import Reached
from tests.kit.rows import each_row

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


# -- a committed offset ---------------------------------------------------------------------------------------------------------------


def committed(rig: FetchRig, offset: int, epoch: int | None) -> None:
    """The group's coordinator answers the question for a partition's position."""

    def fetch(tps):
        query = CommittedQuery(tps)
        query.results = {tp: OffsetAndMetadata(offset, leader_epoch=epoch) for tp in query.waiting}
        query.waiting.clear()
        return query

    rig.positions.fetch_committed = fetch
    rig.subscription.set_assignment([A])


def test_a_committed_epoch_that_is_newer_than_the_metadata_asks_for_them_first() -> None:
    """There has been another leader since: the one that the metadata name may not have the records before the position."""
    rig = FetchRig({A: filled(2, leader=2)}, seek=False)
    log = rig.log(A)
    log.elect(leader=1)
    log.append(*numbers(20, 10))
    committed(rig, 25, 1)
    updates = rig.cluster.update_requests
    rig.now_ms += 1
    rig.positions.step(rig.now_ms, 0)
    rig.positions.step(rig.now_ms, 0)
    rig.fetcher.send_fetches(rig.now_ms)
    assert rig.cluster.update_requests > updates
    assert rig.subscription.state_of(A).state is FetchState.AWAIT_VALIDATION
    assert rig.cluster.requests == [], "the leader of the metadata is asked nothing: it may not know that it is none any more"
    rig.now_ms += rig.positions.next_wake_ms(rig.now_ms) or 0
    rig.positions.step(rig.now_ms, 0)
    assert rig.cluster.requests == []
    assert rig.positions.next_wake_ms(rig.now_ms)
    rig.cluster.refresh()
    assert rig.poll() == {A: numbers(25, 5)}
    assert all(node_id == 1 for node_id, _, request in rig.cluster.requests if isinstance(request, p.FetchRequest))


def test_a_committed_epoch_that_no_metadata_reach_is_asked_about_after_a_while() -> None:
    """Of another topic of this name, or of another cluster: the leader says that it has no such epoch, and the policy decides."""
    rig = FetchRig({A: filled(2)}, seek=False)
    rig.log(A).epochs = [(0, 0)]
    committed(rig, 15, 2**31 - 1)
    began_ms, updates = rig.now_ms, rig.cluster.update_requests
    while not rig.fetches():
        rig.positions.step(rig.now_ms, 0)
        rig.fetcher.send_fetches(rig.now_ms)
        rig.cluster.refresh()
        rig.now_ms += max(1, rig.positions.next_wake_ms(rig.now_ms) or 0)
        rig.cluster.deliver()
        assert rig.now_ms - began_ms < 20_000
    assert rig.now_ms - began_ms >= 10_000
    assert rig.cluster.update_requests - updates <= 110
    assert rig.poll() == {A: numbers(0, 20)}


def test_a_committed_epoch_of_now_is_fetched_from_without_a_question() -> None:
    rig = FetchRig({A: filled(2)}, seek=False)
    committed(rig, 5, 0)
    updates = rig.cluster.update_requests
    assert rig.poll() == {A: numbers(5, 15)}
    assert rig.cluster.update_requests == updates


# -- a topic that is created again ----------------------------------------------------------------------------------------------------


@each_row("short_cuts", [True, False])
@each_row("columns", [False, True])
@each_row("reset", ["earliest", "latest"])
def test_records_of_a_deleted_topic_are_not_handed_out_after_the_next_assignment(reset: str, columns: bool, short_cuts: bool) -> None:
    """Held and in flight when the partition is taken away and given back: positions are looked up by the policy."""
    rig = FetchRig({A: filled(3)}, reset=reset, short_cuts=short_cuts)
    rig.round()
    rig.fetcher.send_fetches(rig.now_ms)
    assert rig.fetcher.buffered_bytes
    again = Log()
    again.append(b"new 0", b"new 1")
    rig.cluster.logs[A] = again
    rig.cluster.topic_id = lambda name: b"again".ljust(16)
    rig.cluster.sessions.clear()
    rig.cluster.refresh()
    rig.subscription.set_assignment([])
    rig.subscription.set_assignment([A])
    rig.fetcher.retain()
    rig.cluster.deliver()
    found: list[bytes] = []
    for _ in range(20):
        rig.round(100)
        if columns:
            found += [r.value for c in rig.fetcher.collect_columns() for r in c]
        else:
            found += [v for values in rig.values().values() for v in values]
        if rig.subscription.state_of(A).offset == 2 and len(again.batches) == 1:
            again.append(b"new 2")
    assert found == [b"new 0", b"new 1", b"new 2"][0 if reset == "earliest" else 2 :]
    assert rig.subscription.state_of(A).offset == 3


# -- aborted transactions -------------------------------------------------------------------------------------------------------------


class Broker(FetchRig):
    """Answers list the aborted transactions that overlap what they hold, and no others; in an order that Kafka does not promise.

    Source: Kafka's UnifiedLog.collectAbortedTransactions.
    """

    def __init__(self, log: Log, ends: dict[int, int], max_partition_bytes: int, short_cuts: bool) -> None:
        super().__init__({A: log}, isolation=1, max_partition_bytes=max_partition_bytes, short_cuts=short_cuts)
        everything = list(log.aborted)
        read = self.cluster.read
        self.answers = 0

        def overlapping(tp, node_id, query, request):
            upper = query.fetch_offset
            size = 0
            for base, after, data in log.batches:
                if base >= (log.last_stable or 0) or (size and size + len(data) > max_partition_bytes):
                    break
                if after > query.fetch_offset:
                    size += len(data)
                    upper = after
            self.answers += bool(size)
            log.aborted = [(i, first) for i, first in reversed(everything) if first < upper and ends[first] >= query.fetch_offset]
            return read(tp, node_id, query, request)

        self.cluster.read = overlapping


WHAT = ["data", "data", "commit", "abort", "abort", "plain", "numbered", "numbered"]
reached = Reached("committed", "aborted over several answers", "two at once", "numbered within an aborted one", "open at the end")


@functools.partial(reached.by, rounds=8)
@settings(max_examples=12)
@given(
    events=st.lists(st.tuples(st.integers(1, 2), st.sampled_from(WHAT)), min_size=10, max_size=30),
    max_partition_bytes=st.sampled_from([1, 1, 150, 300, 1 << 20]),
    count=st.integers(1, 7),
    columns=st.booleans(),
    short_cuts=st.booleans(),
)
def test_aborted_transactions_that_stretch_over_several_answers(events, max_partition_bytes, count, columns, short_cuts) -> None:
    """Against a filter from the definition: a record is visible when it is in no transaction, or its transaction ended with a commit."""
    log = Log()
    open_: dict[int, tuple[int, list[int]]] = {}
    visible: dict[int, bytes] = {}
    ends: dict[int, int] = {}
    numbered: dict[int, list[int]] = {1: [], 2: []}
    for i, (producer_id, what) in enumerate(events):
        value = b"%d" % i
        if what in ("plain", "numbered"):  # by the same producer, before its transactions
            numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if what == "numbered" else {}
            visible[at := log.append(value, **numbers)] = value
            numbered[producer_id] += [at] * bool(numbers)
        elif what == "data" or producer_id not in open_:
            at = log.append(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
            open_.setdefault(producer_id, (at, []))[1].append(at)
            visible[at] = value
            reached("two at once", len(open_) > 1)
        else:
            first, offsets = open_.pop(producer_id)
            ends[first] = log.end
            log.mark(COMMIT if what == "commit" else ABORT, producer_id)
            reached("committed", what == "commit")
            if what == "abort":
                reached("aborted over several answers", len(offsets) > 1 and max_partition_bytes == 1)
                reached("numbered within an aborted one", any(first < at < log.end for at in numbered[producer_id]))
                log.aborted.append((producer_id, first))
                for at in offsets:
                    del visible[at]
    reached("open at the end", open_)
    log.last_stable = min((first for first, _ in open_.values()), default=log.end)
    rig = Broker(log, ends, max_partition_bytes, short_cuts)
    found: list[tuple[int, bytes]] = []
    for _ in range(4 * len(log.batches) + 4):
        rig.round(1)
        if columns:
            found += [(r.offset, r.value) for c in rig.fetcher.collect_columns() for r in c]
        else:
            found += [(r.offset, r.value) for records in rig.fetcher.collect(count).values() for r in records]
    while not columns and (more := rig.fetcher.collect(100)):
        found += [(r.offset, r.value) for records in more.values() for r in records]
    assert found == [(at, value) for at, value in sorted(visible.items()) if at < log.last_stable]
    if max_partition_bytes == 1:
        assert rig.answers >= sum(base < log.last_stable for base, _, _ in log.batches)
    assert rig.subscription.state_of(A).offset == log.last_stable


# -- two questions, of which one has no answer; two partitions of an answer that nothing can be made of -------------------------------


def steps(rig: FetchRig) -> None:
    """Positions ask, what is asked is answered, and the answers are taken in."""
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.deliver()
    rig.positions.step(rig.now_ms, 0)


@pytest.mark.parametrize("kind", ["lookup", "validation", "committed"])
def test_a_question_without_an_answer_holds_up_no_other(kind: str) -> None:
    rig = FetchRig({A: filled(2), C: filled(2, leader=2)}, seek=kind == "validation")
    asked: list[CommittedQuery] = []
    if kind == "committed":
        rig.positions.fetch_committed = lambda tps: asked.append(CommittedQuery(tps)) or asked[-1]
    if kind == "validation":
        while len(rig.fetches()) < 4:
            rig.poll()
        rig.cluster.pending.clear()
        rig.log(A).elect()
        rig.cluster.refresh()
    else:
        rig.subscription.assign_manual([A])
    rig.positions.step(rig.now_ms, 0)
    rig.cluster.pending.clear()  # no answer comes for the first
    if kind == "validation":
        rig.log(C).elect()
        rig.cluster.refresh()
    else:
        rig.subscription.assign_manual([A, C])
    rig.positions.step(rig.now_ms, 0)
    if kind == "committed":
        first, second = asked
        assert (first.waiting, second.waiting) == ({A}, {C})
        second.results[C] = OffsetAndMetadata(7)
        second.waiting.clear()
    steps(rig)
    assert rig.subscription.state_of(A).state is not FetchState.FETCHING
    assert rig.subscription.state_of(C).state is FetchState.FETCHING


def test_unlike_errors_of_partitions_are_all_raised_and_all_are_asked_about_again() -> None:
    rig = FetchRig({A: filled(), B: filled(), C: filled(leader=2)}, seek=False)
    rig.log(A).error = rig.log(B).error = Code.TOPIC_AUTHORIZATION_FAILED
    rig.log(C).error = Code.UNSUPPORTED_FOR_MESSAGE_FORMAT
    steps(rig)
    for kind in (errors.TopicAuthorization, errors.UnsupportedForMessageFormat):
        with pytest.raises(kind):
            rig.positions.raise_failure()
    rig.positions.raise_failure()
    rig.log(A).error = rig.log(B).error = 0
    rig.now_ms += 100
    steps(rig)
    assert {tp for tp, state in rig.subscription.partitions.items() if state.state is FetchState.FETCHING} == {A, B}
    with pytest.raises(errors.UnsupportedForMessageFormat):
        rig.positions.raise_failure()
    rig.log(C).error = 0
    rig.now_ms += 100
    steps(rig)
    assert not rig.subscription.unsettled


def test_a_question_for_committed_offsets_that_is_refused_fails_each_of_its_partitions() -> None:
    rig = FetchRig({A: filled(), B: filled()}, seek=False)
    asked: list[CommittedQuery] = []
    rig.positions.fetch_committed = lambda tps: asked.append(CommittedQuery(tps)) or asked[-1]
    rig.positions.step(rig.now_ms, 0)
    asked[0].error = errors.GroupAuthorization("no")
    rig.positions.step(rig.now_ms, 0)
    with pytest.raises(errors.GroupAuthorization):
        rig.positions.raise_failure()
    rig.positions.raise_failure()
    rig.now_ms += 100
    rig.positions.step(rig.now_ms, 0)
    assert [query.waiting for query in asked] == [{A, B}, {A, B}]


def asked_about(rig: FetchRig) -> list[tuple[int, list[TopicPartition]]]:
    """The lookups so far: whom, and about what."""
    return [
        (node_id, [TopicPartition(topic.name, q.partition_index) for topic in request.topics for q in topic.partitions])
        for node_id, _, request in rig.cluster.requests
        if isinstance(request, p.ListOffsetsRequest)
    ]


def test_a_leader_that_is_not_connected_keeps_no_other_from_being_asked() -> None:
    rig = FetchRig({A: filled(), C: filled(leader=2)}, seek=False)
    rig.cluster.unready = {1}
    rig.positions.step(rig.now_ms, 0)
    assert asked_about(rig) == [(2, [C])]


@pytest.mark.parametrize("how", ["lost", "left out"])
def test_all_partitions_of_a_lookup_without_an_answer_are_asked_about_again(how: str) -> None:
    rig = FetchRig({A: filled(), B: filled()}, seek=False)
    rig.positions.step(rig.now_ms, 0)
    if how == "left out":
        rig.cluster.answer = lambda node_id, version, request: p.ListOffsetsResponse(topics=[])
    rig.cluster.deliver(lost=how == "lost")
    rig.positions.step(rig.now_ms, 0)
    assert len(asked_about(rig)) == 1
    rig.now_ms += 100
    rig.positions.step(rig.now_ms, 0)
    assert asked_about(rig)[1:] == [(1, [A, B])]


@pytest.mark.parametrize("broken", ["bytes", "session"])
def test_no_partition_of_an_answer_that_cannot_be_used_is_asked_for_again_at_once(broken: str) -> None:
    rig = FetchRig({A: filled(), B: filled()})
    rig.fetcher.send_fetches(rig.now_ms)
    (_, _, _, options), _, version = rig.cluster.pending.popleft()
    error = errors.CorruptDataError("broken") if broken == "bytes" else None
    answer = None if error else p.FetchResponse(error_code=Code.FETCH_SESSION_TOPIC_ID_ERROR, responses=[])
    options["callback"](Reply(answer, error, version))
    if error is not None:
        with pytest.raises(errors.CorruptDataError):
            rig.fetcher.collect(1)
    for wait_ms in (0, 99):
        rig.now_ms += wait_ms
        rig.fetcher.send_fetches(rig.now_ms)
        assert len(rig.fetches()) == 1
    rig.now_ms += 1
    rig.fetcher.send_fetches(rig.now_ms)
    assert [q.partition for topic in rig.fetches()[1].topics for q in topic.partitions] == [0, 1]


# -- two brokers, of which one fails; two partitions, of which one waits ---------------------------------------------------------------


def asked_now(rig: FetchRig) -> dict[int, list[TopicPartition]]:
    """What the fetches that go out now tell: partitions by broker."""
    before = len(rig.cluster.requests)
    rig.fetcher.send_fetches(rig.now_ms)
    names = {rig.cluster.topic_id(tp.topic): tp.topic for tp in rig.cluster.logs}
    return {
        node_id: [TopicPartition(names[topic.topic_id], q.partition) for topic in request.topics for q in topic.partitions]
        for node_id, _, request in rig.cluster.requests[before:]
        if isinstance(request, p.FetchRequest) and request.topics
    }


def test_of_two_fetches_in_flight_one_is_refused_and_one_breaks_off() -> None:
    """Each partition is asked for again at its own time, and the rest of the refused answer is read."""
    rig = FetchRig({A: filled(), B: filled(), C: filled(leader=2)})
    rig.log(A).error = Code.UNKNOWN_LEADER_EPOCH
    assert asked_now(rig) == {1: [A, B], 2: [C]}
    assert rig.fetcher.in_flight == {1, 2}
    (_, _, _, of_c), _, version = rig.cluster.pending.pop()
    rig.cluster.deliver()
    assert rig.fetcher.in_flight == {2}
    assert asked_now(rig) == {1: [B]}, "behind what is held of it"
    rig.cluster.deliver()
    rig.log(A).error = 0
    rig.now_ms += 50
    of_c["callback"](Reply(None, errors.CorruptDataError("broken"), version))
    with pytest.raises(errors.CorruptDataError):
        rig.fetcher.collect(1)
    assert asked_now(rig) == {}
    rig.cluster.deliver()
    rig.now_ms += 50
    assert asked_now(rig) == {1: [A]}
    rig.cluster.deliver()
    rig.now_ms += 50
    assert asked_now(rig)[2] == [C]
    rig.cluster.deliver()
    assert rig.values() == {A: numbers(0, 10), B: numbers(0, 10), C: numbers(0, 10)}


def test_of_two_partitions_without_a_leader_one_gets_one() -> None:
    rig = FetchRig({A: filled(), B: filled()})
    rig.log(A).leader = rig.log(B).leader = -1
    rig.cluster.refresh()
    assert asked_now(rig) == {}
    rig.log(B).leader = 2
    rig.cluster.refresh()
    updates = rig.cluster.update_requests
    assert asked_now(rig) == {2: [B]}
    rig.cluster.deliver()
    assert rig.values() == {B: numbers(0, 10)}
    assert rig.cluster.update_requests > updates, "for A"


def test_of_two_brokers_that_are_not_connected_one_comes() -> None:
    rig = FetchRig({A: filled(), C: filled(leader=2)})
    rig.cluster.unready = {1, 2}
    rig.cluster.poll_delay_ms = lambda node, now_ms: 50 * node.id
    assert asked_now(rig) == {}
    assert rig.fetcher.waits_for_nodes and rig.fetcher.next_wake_ms(rig.now_ms) == 50
    rig.cluster.unready = {2}
    assert asked_now(rig) == {1: [A]}
    assert rig.fetcher.waits_for_nodes and rig.fetcher.next_wake_ms(rig.now_ms) == 100
    rig.cluster.deliver()
    assert rig.values() == {A: numbers(0, 10)}


def test_of_two_nearer_replicas_one_is_given_up_and_one_ends_later() -> None:
    rig = FetchRig({A: filled(), B: filled(), C: filled(leader=3)})
    for log in rig.cluster.logs.values():
        log.preferred = 2
    rig.subscription.pause(C)
    assert asked_now(rig) == {1: [A, B]}
    rig.cluster.deliver()
    rig.subscription.remove([A])  # between the answer and the next fetch
    rig.subscription.resume(C)
    assert asked_now(rig) == {2: [B], 3: [C]}
    rig.cluster.deliver()
    rig.now_ms += 1_000
    assert C in asked_now(rig)[2]
    rig.cluster.deliver()
    assert rig.values() == {B: numbers(0, 10), C: numbers(0, 10)}
    rig.round()
    for log in rig.cluster.logs.values():
        log.preferred = -1
    rig.now_ms += 299_000
    assert asked_now(rig) == {1: [B]}, "C has its replica for a second more"
    rig.cluster.deliver()
    rig.now_ms += 1_000
    assert asked_now(rig) == {3: [C]}


def test_of_two_partitions_that_are_sent_elsewhere_one_is_not_taken_there_either() -> None:
    """Not taken twice in a row, it comes after the back-off."""
    rig = FetchRig({A: filled(), B: filled()})
    rig.log(A).preferred = rig.log(B).preferred = 2
    rig.round()
    rig.log(A).error = rig.log(B).error = Code.NOT_LEADER_OR_FOLLOWER
    assert asked_now(rig) == {2: [A, B]}
    rig.cluster.deliver()
    rig.log(A).preferred = rig.log(B).preferred = -1
    rig.log(B).error = 0
    rig.round()
    assert rig.values() == {B: numbers(0, 10)}
    rig.log(A).error = 0
    rig.round(0)
    rig.round(99)
    assert rig.values() == {}
    assert rig.poll() == {A: numbers(0, 10)}


def test_of_two_partitions_that_are_refused_again_and_again_one_is_read_at_last() -> None:
    rig = FetchRig({A: filled(), B: filled(), C: filled()})
    rig.log(A).error, rig.log(B).error = Code.KAFKA_STORAGE_ERROR, Code.UNKNOWN_SERVER_ERROR
    for _ in range(60):
        rig.round(100)
    found = {
        state.tp: (code, rig.now_ms - since_ms > 5_000) for state, (since_ms, code) in rig.fetcher.refusals.going_on(rig.now_ms).items()
    }
    assert found == {A: (Code.KAFKA_STORAGE_ERROR, True), B: (Code.UNKNOWN_SERVER_ERROR, True)}
    assert rig.values() == {C: numbers(0, 10)}
    rig.log(A).error = 0
    assert rig.poll() == {A: numbers(0, 10)}
    assert [state.tp for state in rig.fetcher.refusals.going_on(rig.now_ms)] == [B]


def test_of_two_positions_that_wait_for_a_newer_leader_one_gets_it() -> None:
    rig = FetchRig({A: filled(), B: filled()})
    rig.positions.seek(A, 5, 1)
    rig.positions.seek(B, 5, 2)
    rig.positions.step(rig.now_ms, 0)
    assert "leader epoch 1" in str(rig.positions.attempts(A)) and "leader epoch 2" in str(rig.positions.attempts(B))
    rig.log(A).elect()
    rig.log(B).elect()
    rig.cluster.refresh()
    rig.now_ms += 100
    steps(rig)
    assert {tp: state.state for tp, state in rig.subscription.partitions.items()} == {
        A: FetchState.FETCHING,
        B: FetchState.AWAIT_VALIDATION,
    }
    assert rig.positions.attempts(A) == [] and "leader epoch 2, metadata have 1" in str(rig.positions.attempts(B))


def test_of_three_questions_one_is_withdrawn_by_a_seek_and_one_with_its_partition() -> None:
    rig = FetchRig({A: filled(), B: filled(), C: filled(leader=2)}, seek=False)
    rig.positions.step(rig.now_ms, 0)
    rig.subscription.seek(A, 4)
    rig.subscription.remove([B])
    rig.cluster.deliver(1, lost=True)
    steps(rig)
    assert {tp: state.offset for tp, state in rig.subscription.partitions.items()} == {A: 4, C: 0}
    rig.now_ms += 5_000
    steps(rig)
    assert asked_about(rig) == [(1, [A, B]), (2, [C])] and rig.positions.idle
