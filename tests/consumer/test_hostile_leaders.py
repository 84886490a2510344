"""Leaders that answer Fetch, ListOffsets and OffsetForLeaderEpoch whole but wrong: time is moved by hand.

Each lie comes a millisecond after its question, for some seconds. The consumer must not ask all the time, must say what is wrong, must hand
out nothing but what the log holds, in its order, and must read all of it once the brokers are well again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_cluster import Reply
from test_fetcher import FetchRig, filled, numbers

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.subscription import FetchState
from kafkacore.errors import Code
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LIE_MS = 2_000
HELD_MS = 500  # how long a broker holds a fetch that finds nothing
MOST_PER_SECOND = 65  # two leaders, a back-off of 100 ms, and what comes before it: a fetch, a question, and a fetch
COUNT = 20
CODES = [*sorted({*Code} - {0}), -2, 200, 32_767, -32_768]

Bend = Callable[[Any], Any]
API = {p.FetchRequest: "Fetch", p.ListOffsetsRequest: "ListOffsets", p.OffsetForLeaderEpochRequest: "OffsetForLeaderEpoch"}


class LiedTo:
    """A rig whose brokers lie about one API.

    Attributes:
        read: what was handed out.
        raised: errors that reached the caller.
    """

    def __init__(self, api: type, *, short_cuts: bool = True, seek: bool = False, **options: Any) -> None:
        self.rig = FetchRig({A: filled(2), B: filled(2), C: filled(2, leader=2)}, short_cuts=short_cuts, seek=seek, **options)
        self.api = api
        self.read: dict[TopicPartition, list[bytes]] = {tp: [] for tp in self.rig.cluster.logs}
        self.raised: list[errors.KafkaError] = []
        self.mutate: Callable[[bytes], bytes] | None = None
        self.bend: Bend | None = None
        cluster = self.rig.cluster
        cluster.answer = self._answer
        well = cluster.decoded
        self._lied = False
        self.steps = 0

        def decoded(kind: Any, version: int, wire: bytes, left: Any) -> Any:
            return well(kind, version, self.mutate(wire) if self.mutate is not None and self._lied else wire, left)

        cluster.decoded = decoded  # type: ignore[method-assign]

    def _answer(self, node_id: int, version: int, request: Any) -> Any:
        cluster = self.rig.cluster
        self._lied = isinstance(request, self.api)
        cluster.answer = None
        reply = cluster.handle(node_id, version, request)
        cluster.answer = self._answer
        if self._lied and self.bend is not None:
            return self.bend(reply)
        if isinstance(request, p.FetchRequest) and not any(q.records or q.error_code for t in reply.responses for q in t.partitions):
            self.rig.now_ms += HELD_MS
        return reply

    def one(self) -> None:
        """What a consumer's loop does, until the next answer or the next time that something is due."""
        rig, cluster = self.rig, self.rig.cluster
        self.steps += 1
        assert self.steps < 50_000, "no end"
        try:
            rig.positions.step(rig.now_ms, 1_700_000_000_000)
            rig.positions.raise_failure()
            for tp, values in rig.values().items():
                self.read[tp] += values
        except errors.KafkaError as error:
            self.raised.append(error)
        rig.fetcher.send_fetches(rig.now_ms)
        if cluster.update_requests:  # metadata come after their back-off
            cluster.update_requests = 0
            cluster.refresh()
        if cluster.pending:
            (_, _, _, options), _, version = cluster.pending[0]
            rig.now_ms += 1
            try:
                cluster.deliver(1)
            except errors.CorruptDataError as error:  # as the network client: the connection ends
                options["callback"](Reply(None, error, version))
            return
        waits = [rig.positions.next_wake_ms(rig.now_ms), rig.fetcher.next_wake_ms(rig.now_ms), 100]
        rig.now_ms += max(1, min(wait for wait in waits if wait is not None))

    @property
    def all_read(self) -> bool:
        return all(s.state is FetchState.FETCHING and s.offset == COUNT for s in self.rig.subscription.partitions.values())

    def lies(self, bend: Bend | None, ms: int = LIE_MS) -> float:
        rig = self.rig
        began_ms, before = rig.now_ms, len(rig.cluster.requests)
        self.bend = bend
        while rig.now_ms < began_ms + ms:
            self.one()
        self.bend = self.mutate = None
        return (len(rig.cluster.requests) - before) / (rig.now_ms - began_ms) * 1_000

    def recovers(self) -> None:
        began_ms = self.rig.now_ms
        while not self.all_read:
            self.one()
            assert self.rig.now_ms < began_ms + 10_000, {tp: (s.state, s.offset) for tp, s in self.rig.subscription.partitions.items()}

    def reads_all(self) -> None:
        """Each record once and in order."""
        self.recovers()
        assert self.read == {tp: numbers(0, COUNT) for tp in self.read}


def of_topics(field: str, change: Callable[[list[Any]], list[Any]]) -> Bend:
    return lambda reply: reply._replace(**{field: change(getattr(reply, field))})


def of_partitions(field: str, change: Callable[[list[Any]], list[Any]]) -> Bend:
    return of_topics(field, lambda topics: [t._replace(partitions=change(t.partitions)) for t in topics])


def each(field: str, **fields: Any) -> Bend:
    return of_partitions(field, lambda partitions: [q._replace(**fields) for q in partitions])


def mismatches(field: str, index: str, **name: Any) -> dict[str, Bend]:
    return {
        "no topic": of_topics(field, lambda topics: []),
        "another topic": of_topics(field, lambda topics: [t._replace(**name) for t in topics]),
        "another partition": each(field, **{index: 77}),
        "a partition below 0": each(field, **{index: -1}),
    }


def doubled(field: str) -> dict[str, Bend]:
    return {
        "topics twice": of_topics(field, lambda topics: topics * 2),
        "partitions three times": of_partitions(field, lambda partitions: partitions * 3),
    }


FETCH_MISMATCHES = mismatches("responses", "partition_index", topic="x", topic_id=b"x" * 16)


@each_row("short_cuts", [True, False])
@each_row("fetch_version", [12, 17])
@each_row("sessions", [True, False])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in FETCH_MISMATCHES.items()])
def test_a_fetch_answer_that_does_not_match(bend: Bend, sessions: bool, fetch_version: int, short_cuts: bool) -> None:
    lied_to = LiedTo(p.FetchRequest, short_cuts=short_cuts, sessions=sessions, fetch_version=fetch_version)
    assert lied_to.lies(bend) <= MOST_PER_SECOND
    lied_to.reads_all()


FETCH_LIES: dict[str, Bend] = {
    **doubled("responses"),
    "a session below 0": lambda reply: reply._replace(session_id=-5),
    "another session": lambda reply: reply._replace(session_id=99),
    "ends below 0": each("responses", high_watermark=-5, last_stable_offset=-7, log_start_offset=-9),
    "ends of 2^63-1": each("responses", high_watermark=2**63 - 1, last_stable_offset=2**63 - 1, log_start_offset=2**63 - 1),
    "replica -5": each("responses", preferred_read_replica=-5),
    "aborted transactions": each(
        "responses", aborted_transactions=[p.AbortedTransaction(producer_id=-i, first_offset=2**63 - 1 - i) for i in range(50)]
    ),
    "throttled": lambda reply: reply._replace(throttle_time_ms=2**31 - 1),
}


@each_row("isolation", [0, 1])
@each_row("short_cuts", [True, False])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in FETCH_LIES.items()])
def test_what_a_fetch_says_beside_the_records(bend: Bend, short_cuts: bool, isolation: int) -> None:
    lied_to = LiedTo(p.FetchRequest, short_cuts=short_cuts, isolation=isolation)
    lied_to.bend = bend
    while not lied_to.all_read:
        lied_to.one()
        assert len(lied_to.rig.cluster.requests) < 100
    lied_to.bend = None
    lied_to.reads_all()


def without_records(**fields: Any) -> Bend:
    return each("responses", records=b"", **fields)


NO_RECORDS: dict[str, Bend] = {
    "the leader names itself": without_records(preferred_read_replica=1),
    "a replica that nobody knows": without_records(preferred_read_replica=99),
    "diverged": without_records(diverging_epoch=p.FetchEpochEndOffset(epoch=0, end_offset=3)),
    "diverged in epoch 2^31-1": without_records(diverging_epoch=p.FetchEpochEndOffset(epoch=2**31 - 1, end_offset=-1)),
    "another leader, which nobody knows": without_records(error_code=6, current_leader=p.LeaderIdAndEpoch(leader_id=77, leader_epoch=9)),
    "the session is not found": lambda reply: reply._replace(error_code=Code.FETCH_SESSION_ID_NOT_FOUND, responses=[]),
    "the session has another epoch": lambda reply: reply._replace(error_code=Code.INVALID_FETCH_SESSION_EPOCH, responses=[]),
    "out of range": without_records(error_code=Code.OFFSET_OUT_OF_RANGE),
}


@each_row("short_cuts", [True, False])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in NO_RECORDS.items()])
def test_an_answer_that_sends_the_consumer_round_in_circles(bend: Bend, short_cuts: bool) -> None:
    lied_to = LiedTo(p.FetchRequest, short_cuts=short_cuts)
    assert lied_to.lies(bend) <= MOST_PER_SECOND
    lied_to.reads_all()


def follower(**fields: Any) -> Callable[[int, Any], Any]:
    """The leader names a nearer replica, and that answers with these fields."""
    return lambda node, q: q._replace(records=b"", **(fields if node == 2 else {"preferred_read_replica": 2}))


def rising(code: int) -> Callable[[int, Any], Any]:
    """Each broker says that the other one leads, in another epoch each time."""
    epochs = itertools.count(10)
    return lambda node, q: q._replace(
        records=b"", error_code=code, current_leader=p.LeaderIdAndEpoch(leader_id=3 - node, leader_epoch=next(epochs))
    )


TO_EACH_OTHER: dict[str, Callable[[int, Any], Any]] = {
    "each names the other": lambda node, q: q._replace(records=b"", preferred_read_replica=3 - node),
    "a follower is behind": follower(error_code=Code.OFFSET_OUT_OF_RANGE),
    "a follower is none": follower(error_code=Code.NOT_LEADER_OR_FOLLOWER),
    "a follower has diverged": follower(diverging_epoch=p.FetchEpochEndOffset(epoch=0, end_offset=3)),
    "each is led by the other": rising(Code.NOT_LEADER_OR_FOLLOWER),
    "each is fenced by the other": rising(Code.FENCED_LEADER_EPOCH),
}


@each_row("follows_hints", [True, False], ids=["the hints are followed", "the hints are not"])
@each_row("short_cuts", [True, False])
@each_row("answer", [pytest.param(answer, id=name) for name, answer in TO_EACH_OTHER.items()])
def test_brokers_that_send_the_consumer_to_each_other(answer: Callable[[int, Any], Any], short_cuts: bool, follows_hints: bool) -> None:
    """Their answers cost them nothing. After the second one without progress comes a back-off."""
    lied_to = LiedTo(p.FetchRequest, short_cuts=short_cuts)
    cluster, asked = lied_to.rig.cluster, [0]
    handle = cluster.handle

    def handled(node_id: int, version: int, request: Any) -> Any:
        asked[0] = node_id
        return handle(node_id, version, request)

    def moved(hints: dict[TopicPartition, tuple[int, int]], nodes: Any) -> None:
        for tp, (leader, epoch) in hints.items():
            cluster.logs[tp].leader, cluster.logs[tp].epoch = leader, epoch
        cluster.refresh()

    cluster.handle = handled  # type: ignore[method-assign]
    if follows_hints:
        cluster.update_leaders = moved  # type: ignore[method-assign]
    lied = lied_to.lies(
        lambda reply: reply._replace(
            responses=[t._replace(partitions=[answer(asked[0], q) for q in t.partitions]) for t in reply.responses]
        )
    )
    assert lied <= 2 * MOST_PER_SECOND  # each partition goes its own way
    lied_to.reads_all()


@pytest.mark.parametrize("whole", [True, False], ids=["the answer", "each partition"])
def test_every_error_code_of_a_fetch(whole: bool) -> None:
    for code in CODES:
        lied_to = LiedTo(p.FetchRequest)

        def bend(reply: Any, code: int = code) -> Any:
            return reply._replace(error_code=code, responses=[])

        assert lied_to.lies(bend if whole else without_records(error_code=code), 1_000) <= MOST_PER_SECOND, code
        for error in lied_to.raised:
            assert (error.api or "").startswith("Fetch"), code
            assert error.broker in (1, 2), code
        lied_to.reads_all()


LIST_MISMATCHES = mismatches("topics", "partition_index", name="x")
LIST_LIES = {
    **LIST_MISMATCHES,
    "offset -1": each("topics", offset=-1),
    "offset -2": each("topics", offset=-2),
    "offset -2^63": each("topics", offset=-(2**63)),
}


@each_row("reset", ["earliest", "latest", "by_duration:P1D"])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in LIST_LIES.items()])
def test_an_offset_that_is_none(bend: Bend, reset: str) -> None:
    lied_to = LiedTo(p.ListOffsetsRequest, reset=reset)
    assert lied_to.lies(bend) <= MOST_PER_SECOND
    if reset == "earliest":
        assert all(not values for values in lied_to.read.values())
        for tp in lied_to.read:
            for cause in lied_to.rig.positions.attempts(tp):
                assert (cause.broker, (cause.api or "").split(" ")[0]) == (2 if tp == C else 1, "ListOffsets")
        lied_to.reads_all()


TRUE_OR_NOT = [{"offset": 2**63 - 1}, {"leader_epoch": 2**31 - 1}, {"leader_epoch": -5}, {"timestamp": -(2**63)}]


@each_row("bend", [*doubled("topics").values(), *(each("topics", **fields) for fields in TRUE_OR_NOT)])
def test_an_offset_that_may_be_one(bend: Bend) -> None:
    lied_to = LiedTo(p.ListOffsetsRequest)
    assert lied_to.lies(bend) <= MOST_PER_SECOND
    lied_to.reads_all()


def new_leaders(lied_to: LiedTo) -> None:
    """All is read, each leader has another epoch, and the log goes on: positions are validated first."""
    lied_to.reads_all()
    for log in lied_to.rig.cluster.logs.values():
        log.elect()
        log.append(*numbers(COUNT, 10))
    lied_to.rig.cluster.refresh()


def reads_on(lied_to: LiedTo) -> None:
    began_ms = lied_to.rig.now_ms
    while lied_to.read != {tp: numbers(0, COUNT + 10) for tp in lied_to.read}:
        lied_to.one()
        assert lied_to.rig.now_ms < began_ms + 10_000, lied_to.raised[-1:]


EPOCH_LIES = mismatches("topics", "partition", topic="x")


@each_row("bend", [pytest.param(bend, id=name) for name, bend in EPOCH_LIES.items()])
def test_an_epoch_that_is_not_answered(bend: Bend) -> None:
    lied_to = LiedTo(p.OffsetForLeaderEpochRequest)
    new_leaders(lied_to)
    assert lied_to.lies(bend) <= MOST_PER_SECOND
    for tp in lied_to.read:
        assert lied_to.rig.positions.attempts(tp)
        for cause in lied_to.rig.positions.attempts(tp):
            assert (cause.broker, (cause.api or "").split(" ")[0]) == (2 if tp == C else 1, "OffsetForLeaderEpoch")
    reads_on(lied_to)


@each_row("reset", ["earliest", "none"])
@each_row(
    "fields",
    [
        {"end_offset": -1},
        {"end_offset": -(2**63)},
        {"end_offset": 2**63 - 1},
        {"end_offset": 3},
        {"leader_epoch": -1},
        {"leader_epoch": -(2**31)},
        {"leader_epoch": 2**31 - 1},
        {"end_offset": 3, "leader_epoch": 2**31 - 1},
    ],
)
def test_an_epoch_that_ends_elsewhere(fields: dict[str, int], reset: str) -> None:
    """What cannot be known counts as a truncation: the records come again, none is skipped."""
    lied_to = LiedTo(p.OffsetForLeaderEpochRequest, reset=reset, seek=True)
    new_leaders(lied_to)
    assert lied_to.lies(each("topics", **fields), 3_000) <= MOST_PER_SECOND
    for tp in lied_to.read if reset == "none" else ():
        lied_to.rig.subscription.seek(tp, COUNT)
    began_ms = lied_to.rig.now_ms
    while any(s.offset != COUNT + 10 for s in lied_to.rig.subscription.partitions.values()):
        lied_to.one()
        assert lied_to.rig.now_ms < began_ms + 10_000
    for values in lied_to.read.values():
        assert sorted({*values}, key=int) == numbers(0, COUNT + 10)
        assert all(int(b) <= int(a) + 1 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("api", [p.ListOffsetsRequest, p.OffsetForLeaderEpochRequest])
def test_every_error_code_of_a_question(api: type) -> None:
    validates = api is p.OffsetForLeaderEpochRequest
    for code in CODES:
        lied_to = LiedTo(api)
        if validates:
            new_leaders(lied_to)
        assert lied_to.lies(each("topics", error_code=code), 1_000) <= MOST_PER_SECOND, code
        causes = [*lied_to.raised, *(c for tp in lied_to.read for c in lied_to.rig.positions.attempts(tp))]
        assert causes or (validates and code == Code.UNSUPPORTED_VERSION)  # as an old broker: the position is not validated
        for cause in causes:
            assert (cause.api or "").split(" ")[0] == API[api], code
            assert cause.broker in (1, 2), code
        (reads_on if validates else LiedTo.reads_all)(lied_to)


@given(
    seed=st.integers(0, 2**32),
    api=st.sampled_from([p.FetchRequest, p.ListOffsetsRequest, p.OffsetForLeaderEpochRequest]),
    often=st.sampled_from([1, 2, 5]),
    short_cuts=st.booleans(),
    isolation=st.integers(0, 1),
)
def test_bytes_of_answers_change(seed: int, api: type, often: int, short_cuts: bool, isolation: int) -> None:
    """Bytes outside of the record batches: those have a checksum, and tests of their own."""
    chance = random.Random(seed)
    batches: list[bytes] = []

    def mutate(wire: bytes) -> bytes:
        if chance.randrange(often):
            return wire
        changed = bytearray(wire)
        inside = [range(at, at + len(b)) for b in batches if (at := wire.find(b)) >= 0]
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(changed))
            if not any(at in batch for batch in inside):
                changed[at] = chance.choice([chance.randrange(256), 0, 0xFF, 0x7F, 0x80, changed[at] ^ 1 << chance.randrange(8)])
        return bytes(changed)

    lied_to = LiedTo(api, short_cuts=short_cuts, isolation=isolation)
    batches += [b for log in lied_to.rig.cluster.logs.values() for _, _, b in log.batches]
    if api is p.OffsetForLeaderEpochRequest:
        new_leaders(lied_to)
    lied_to.mutate = mutate
    lied_to.lies(None, 5_000)
    for tp in lied_to.read:  # what was lied about offsets cannot be known: from here on all is true
        lied_to.rig.subscription.seek(tp, 0)
        lied_to.read[tp] = []
    end = next(iter(lied_to.rig.cluster.logs.values())).end
    began_ms = lied_to.rig.now_ms
    while lied_to.read != {tp: numbers(0, end) for tp in lied_to.read}:
        lied_to.one()
        assert lied_to.rig.now_ms < began_ms + 10_000, (lied_to.raised[-1:], {tp: len(v) for tp, v in lied_to.read.items()})
