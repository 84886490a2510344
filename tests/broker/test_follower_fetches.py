"""What a follower asks its leaders for: the next Fetch names what changed, and the leader's session is what a full one would be."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import protocol as p
from kafkacore.broker.fetcher import LONG_LANE, SHORT_LANE, Followed, LeaderFetcher, ReplicaFetchers
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.replication_quota import ReplicationQuotas
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, DisconnectError, KafkaStorage
from kafkacore.net.connection import ExponentialBackoff
from kafkacore.timer import LoopTimer
from tests.kit.reached import Reached

LEADER = 2


class Copy:
    """As much of a `Partition` as a fetcher needs."""

    def __init__(self, index, leader_epoch=0, leader=LEADER):
        self.key, self.index = ("t", index), index
        self.topic = SimpleNamespace(name="t", topic_id=b"t" * 16)
        self.leader, self.leader_epoch = leader, leader_epoch
        self.log = SimpleNamespace(end_offset=0, start_offset=0, epochs=[])
        self.high_watermark = 0
        self.breaks = None

    def append_as_follower(self, data, high_watermark, log_start_offset, wall_ms):
        if self.breaks:
            error, self.breaks = self.breaks, None
            raise error
        self.log.end_offset += len(data or b"")
        return bool(data)

    def truncation_offset(self, epoch, end_offset):
        return min(end_offset, self.log.end_offset)

    def truncate(self, offset):
        self.log.end_offset = offset

    def restart_at(self, offset):
        self.log.end_offset = self.log.start_offset = offset


class Follower:
    """Fetchers whose requests wait for the test's answers."""

    def __init__(self):
        self.clock = ManualClock()
        self.timer = LoopTimer(clock=self.clock)
        self.sent = []  # (leader, request, lane, done)
        self.quotas = ReplicationQuotas(BrokerConfig(), self.clock)
        self.fetchers = ReplicaFetchers(
            1, BrokerConfig(), self.clock, self.timer, self.send, lambda: 7, self.changed, API_VERSIONS, self.quotas, random.Random(1)
        )

    def send(self, leader, request, version, done, timeout_ms, lane=""):
        self.sent.append((leader, request, lane, done))

    def changed(self, partition):
        self.fetchers.log_changed(partition.key)

    def take(self, lane):
        (found,) = [each for each in self.sent if each[2] == lane]
        self.sent.remove(found)
        return found

    def lanes(self):
        return [lane for _, _, lane, _ in self.sent]


def asked_for(request):
    return {
        part.partition: (part.fetch_offset, part.last_fetched_epoch, part.current_leader_epoch, part.log_start_offset)
        for topic in request.topics
        for part in topic.partitions
    }


def fetch_answer(parts, session_id=9):
    topics = [p.FetchableTopicResponse(topic_id=b"t" * 16, partitions=parts)] if parts else []
    return p.FetchResponse(session_id=session_id, responses=topics)


def data(index, **fields):
    return p.PartitionData(partition_index=index, **{"records": b"", **fields})


followed = Reached(
    "records while others wait",
    "the log diverges",
    "an offset out of range",
    "a partition is refused",
    "a partition breaks",
    "a lost connection",
    "a session refused",
    "no session given",
    "a partition dropped while it is asked for",
    "another leader while it is asked for",
)


class Run:
    """A leader as a dictionary: what its session with the follower holds, as far as the follower has said."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.follower = Follower()
        self.copies = {}
        self.session = {}  # of the leader
        self.seen = None

    @property
    def fetcher(self):
        return self.follower.fetchers._leaders.get(LEADER)

    def apply(self, request):
        """The leader's side of a long Fetch; afterwards it must hold what a full one would name."""
        if request.session_epoch == 0:
            self.session.clear()
        self.session.update(asked_for(request))
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del self.session[index]
        full = {each.partition.index: tuple(each.ask()) for each in self.fetcher.followed.values() if not each.resume_at_ms}
        assert full == self.session

    def step(self):
        rnd = self.random
        what = rnd.choices(["answer", "short", "follow", "drop", "advance", "retention", "back"], [10, 5, 4, 2, 3, 2, 1])[0]
        if what == "answer" and LONG_LANE in self.follower.lanes():
            self.answer(LONG_LANE)
        elif what == "short" and SHORT_LANE in self.follower.lanes():
            self.answer(SHORT_LANE)
        elif what == "follow":
            for index in rnd.sample(range(8), rnd.randint(1, 4)):
                copy = self.copies.setdefault(index, Copy(index))
                copy.leader_epoch += rnd.choice([0, 1])
                copy.leader = rnd.choice([LEADER, LEADER, LEADER, 3, -1])
                followed("another leader while it is asked for", copy.leader != LEADER and index in self.session)
                self.follower.fetchers.follow(copy)
            self.follower.fetchers.wake()
        elif what == "drop" and self.copies:
            index = rnd.choice(sorted(self.copies))
            followed("a partition dropped while it is asked for", index in self.session and LONG_LANE in self.follower.lanes())
            self.follower.fetchers.unfollow(self.copies.pop(index).key)
        elif what == "advance":
            self.follower.clock.advance(rnd.choice([5, 30, 2_000]))
            self.follower.timer.advance_clock()
        elif what == "retention" and self.copies:
            copy = self.copies[rnd.choice(sorted(self.copies))]
            copy.log.start_offset = copy.log.end_offset
            self.follower.changed(copy)
        elif what == "back":
            self.follower.fetchers.leader_is_back(LEADER)
        self.look()

    def look(self):
        for request in [request for leader, request, lane, _ in self.follower.sent if lane == LONG_LANE and leader == LEADER]:
            if request is not self.seen:
                self.seen = request
                self.apply(request)
        self.follower.sent = [each for each in self.follower.sent if each[0] == LEADER]
        fetcher = self.fetcher
        if fetcher is None:
            return
        lanes = self.follower.lanes()
        assert lanes.count(LONG_LANE) <= 1
        for each in fetcher.followed.values():  # nothing is forgotten: it is asked for, rests, or waits for the short lane
            assert each.asked is not None or each.resume_at_ms or SHORT_LANE in lanes, each.partition.key
        if SHORT_LANE not in lanes and any(not each.resume_at_ms for each in fetcher.followed.values()):
            assert LONG_LANE in lanes

    def answer(self, lane):
        rnd = self.random
        if lane == SHORT_LANE:
            _, request, _, done = next(each for each in self.follower.sent if each[2] == SHORT_LANE)
            self.follower.sent = [each for each in self.follower.sent if each[3] is not done]
        else:
            _, request, _, done = self.follower.take(lane)
        if isinstance(request, p.ListOffsetsRequest):
            wanted = request.topics[0].partitions[0]
            found = {"offset": rnd.randint(0, 9), "error_code": rnd.choice([0, 0, 6])}
            part = p.ListOffsetsPartitionResponse(partition_index=wanted.partition_index, **found)
            done(p.ListOffsetsResponse(topics=[p.ListOffsetsTopicResponse(name="t", partitions=[part])]))
            return
        outcome = rnd.choices(["data", "lost", "refused", "no session"], [12, 1, 1, 1])[0]
        if outcome == "lost":
            followed("a lost connection")
            done(DisconnectError("cut"))
            return
        if outcome == "refused" and lane == LONG_LANE:
            followed("a session refused")
            done(p.FetchResponse(error_code=rnd.choice([Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH]), responses=[]))
            return
        read = sorted(self.session if lane == LONG_LANE else asked_for(request))
        parts = [self.part(index) for index in rnd.sample(read, rnd.randint(0, len(read)))]
        followed("no session given", outcome == "no session")
        followed("records while others wait", 0 < len(parts) < len(read) and any(part.records for part in parts))
        done(fetch_answer(parts, 0 if outcome == "no session" else 9))

    def part(self, index):
        rnd = self.random
        kind = rnd.choice(["records", "records", "watermark", "error", "out of range", "diverging", "breaks"])
        followed("a partition breaks", kind == "breaks" and index in self.copies)
        followed("a partition is refused", kind == "error")
        followed("an offset out of range", kind == "out of range")
        followed("the log diverges", kind == "diverging")
        if kind == "breaks" and index in self.copies:
            self.copies[index].breaks = KafkaStorage("the disk is busy")
        if kind == "diverging":
            return data(index, diverging_epoch=p.FetchEpochEndOffset(epoch=0, end_offset=rnd.randint(0, 3)))
        code = {"error": Code.NOT_LEADER_OR_FOLLOWER, "out of range": Code.OFFSET_OUT_OF_RANGE}.get(kind, 0)
        return data(index, error_code=code, records=b"r" * rnd.randint(1, 4) if kind == "records" else b"", high_watermark=5)


@followed.by
@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_leaders_session_holds_what_a_full_fetch_would_name(seed):
    run = Run(seed)
    for _ in range(80):
        run.step()


@pytest.fixture
def asks(monkeypatch):
    found = []
    ask = Followed.ask

    def asking(each):
        found.append(each.partition.index)
        return ask(each)

    monkeypatch.setattr(Followed, "ask", asking)
    return found


def test_a_round_trip_looks_at_what_was_answered_and_nothing_else(asks):
    follower = Follower()
    for index in range(1_000):
        follower.fetchers.follow(Copy(index))
    assert follower.sent == []
    follower.fetchers.wake()
    _, request, _, done = follower.take(LONG_LANE)
    assert len(asked_for(request)) == 1_000  # one request for all of them
    assert len(asks) == 1_000
    done(fetch_answer([data(index) for index in range(1_000)]))
    del asks[:]
    for _ in range(2):
        _, request, _, done = follower.take(LONG_LANE)
        assert set(asked_for(request)) <= {7}
        done(fetch_answer([data(7, records=b"rr")]))
        assert asks[-1] == 7
    del asks[:]
    _, request, _, done = follower.take(LONG_LANE)
    assert asked_for(request) == {7: (4, -1, 0, 0)}
    done(fetch_answer([]))
    _, request, _, done = follower.take(LONG_LANE)
    assert (asked_for(request), asks) == ({}, [])


def test_a_decision_about_many_partitions_wakes_a_fetcher_once(monkeypatch):
    wakes = []
    wake = LeaderFetcher.wake

    def waking(fetcher):
        wakes.append(fetcher.leader)
        wake(fetcher)

    monkeypatch.setattr(LeaderFetcher, "wake", waking)
    follower = Follower()
    for index in range(500):
        follower.fetchers.follow(Copy(index, leader=2 + index % 2))
    follower.fetchers.wake()
    follower.fetchers.wake()
    assert wakes == [2, 3]


def test_a_closed_fetcher_sends_nothing_and_begins_anew():
    asked, resting, ready = (Copy(index) for index in range(3))
    follower = asking(asked, resting)
    follower.take(LONG_LANE)[3](fetch_answer([data(0), data(1, error_code=Code.NOT_LEADER_OR_FOLLOWER)]))
    _, _, _, done = follower.take(LONG_LANE)
    follower.fetchers.follow(ready)
    follower.fetchers.close()
    done(fetch_answer([data(0)]))
    follower.clock.advance(10_000)
    follower.timer.advance_clock()
    follower.fetchers.leader_is_back(LEADER)
    follower.fetchers.wake()
    assert (follower.sent, len(follower.fetchers), follower.timer.next_deadline_ms()) == ([], 0, None)
    follower = asking(asked)
    follower.fetchers.close()  # with a Fetch on its way that nobody answers
    follower.sent.clear()
    follower.fetchers.follow(asked)
    follower.fetchers.wake()
    _, request, _, _ = follower.take(LONG_LANE)
    assert (request.session_id, request.session_epoch, set(asked_for(request))) == (0, 0, {0})


def test_a_leader_that_refuses_this_broker_is_named_once(caplog):
    """Without super.users, or with another certificate than is named there, a cluster would stop copying without a word."""
    follower = Follower()
    for index in (0, 1):
        follower.fetchers.follow(Copy(index))
    follower.fetchers.wake()
    for refused in (True, True, False, True):
        code = Code.TOPIC_AUTHORIZATION_FAILED if refused else Code.NONE
        follower.take(LONG_LANE)[3](fetch_answer([data(index, error_code=code) for index in (0, 1)]))
        follower.clock.advance(2_000)
        follower.timer.advance_clock()
    said = [each.getMessage() for each in caplog.records if "super.users" in each.getMessage()]
    assert said == [f"broker {LEADER} does not let this broker copy: its principal must be in super.users"] * 2


def asking(*copies):
    """A follower whose first Fetch, for these, is on its way."""
    follower = Follower()
    for copy in copies:
        follower.fetchers.follow(copy)
    follower.fetchers.wake()
    return follower


def test_partitions_that_come_later_join_the_next_long_fetch_when_their_short_one_is_answered():
    follower, late = asking(Copy(0)), Copy(1)
    follower.fetchers.follow(late)
    follower.fetchers.wake()
    _, long, _, long_done = follower.take(LONG_LANE)
    _, short, _, short_done = follower.take(SHORT_LANE)
    assert (set(asked_for(long)), set(asked_for(short))) == ({0}, {1})  # each partition in one request
    assert (long.max_wait_ms, long.min_bytes, short.max_wait_ms) == (500, 1, 0)
    long_done(fetch_answer([data(0, records=b"r")]))
    assert follower.sent == []
    short_done(fetch_answer([data(1, records=b"rrr")]))
    _, request, _, _ = follower.take(LONG_LANE)
    assert {index: fields[0] for index, fields in asked_for(request).items()} == {0: 1, 1: 3}
    assert follower.sent == []


def test_an_answer_counts_for_the_epoch_and_the_end_of_the_log_that_were_asked_with():
    kept, newer, moved = Copy(0), Copy(1), Copy(2)
    follower = asking(kept, newer, moved)
    newer.leader_epoch = 1
    follower.fetchers.follow(newer)  # the same leader in another epoch
    moved.log.end_offset = 7  # otherwise than by an answer
    follower.take(LONG_LANE)[3](fetch_answer([data(index, records=b"rr") for index in range(3)]))
    assert [copy.log.end_offset for copy in (kept, newer, moved)] == [2, 0, 7]
    _, request, _, _ = follower.take(LONG_LANE)
    assert asked_for(request) == {0: (2, -1, 0, 0), 1: (0, -1, 1, 0), 2: (7, -1, 0, 0)}


def test_a_log_is_truncated_where_its_leader_says_that_it_diverges():
    copies = [Copy(index) for index in range(4)]
    for copy in copies:
        copy.log.end_offset, copy.high_watermark = 9, 4
    follower = asking(*copies)
    ends = [(0, 6), (-1, -1), (-1, 0), (0, 0)]
    diverging = [p.FetchEpochEndOffset(epoch=epoch, end_offset=end_offset) for epoch, end_offset in ends]
    follower.take(LONG_LANE)[3](fetch_answer([data(nth, diverging_epoch=each, high_watermark=5) for nth, each in enumerate(diverging)]))
    assert [copy.log.end_offset for copy in copies] == [6, 9, 0, 0]  # not at the high watermark


def test_a_partition_that_fails_rests_longer_each_time_while_its_neighbour_is_copied():
    failing, good = Copy(0), Copy(1)
    follower = asking(failing, good)
    follower.fetchers.backoff = ExponentialBackoff(20, BrokerConfig().replica_fetch_backoff_ms, jitter=0)
    refused = data(0, error_code=Code.NOT_LEADER_OR_FOLLOWER)
    follower.take(LONG_LANE)[3](fetch_answer([refused, data(1, records=b"r")]))
    for nth, rest_ms in enumerate([20, 40, 80, 160, 320, 640, 1_000, 1_000]):
        follower.clock.advance(rest_ms - 1)
        follower.timer.advance_clock()
        assert follower.lanes() == [LONG_LANE]
        follower.take(LONG_LANE)[3](fetch_answer([data(1, records=b"r")]))
        assert good.log.end_offset == nth + 2
        follower.clock.advance(1)
        follower.timer.advance_clock()
        _, request, _, done = follower.take(SHORT_LANE)
        assert set(asked_for(request)) == {0}
        done(fetch_answer([refused]))
    failing.leader_epoch += 1  # a decision of the controller
    follower.fetchers.follow(failing)
    follower.fetchers.wake()
    assert set(asked_for(follower.take(SHORT_LANE)[1])) == {0}


def test_a_bug_met_with_one_partition_of_an_answer_keeps_no_other_from_being_copied(caplog):
    good, bad, last = Copy(0), Copy(1), Copy(2)
    follower, bad.breaks = asking(good, bad, last), ZeroDivisionError("a bug")
    follower.take(LONG_LANE)[3](fetch_answer([data(index, records=b"r") for index in range(3)]))
    assert [copy.log.end_offset for copy in (good, bad, last)] == [1, 0, 1]
    assert "for partition t-1 failed; the others go on" in caplog.text
    follower.take(LONG_LANE)
    follower.clock.advance(1_000)
    follower.timer.advance_clock()
    assert asked_for(follower.take(SHORT_LANE)[1]) == {1: (0, -1, 0, 0)}  # it is tried again


def test_leaders_that_do_not_answer_keep_no_other_leader_from_being_copied():
    lost, good = Copy(0), Copy(1, leader=3)
    follower = asking(lost, good)
    (_, _, _, cut), (_, _, _, answered) = follower.sent
    follower.sent.clear()
    cut(DisconnectError("cut"))
    answered(fetch_answer([data(1, records=b"r")]))
    assert [leader for leader, *_ in follower.sent] == [3]
    assert good.log.end_offset == 1
    follower.sent.clear()
    follower.fetchers.leader_is_back(2)
    assert [(leader, set(asked_for(request))) for leader, request, *_ in follower.sent] == [(2, {0})]


@pytest.mark.parametrize("version", [11, 14, 17])
def test_what_a_fetch_and_a_list_offsets_say(version):
    follower = Follower()
    follower.fetchers.fetch_version = version
    for copy, start, end in ((Copy(0), 1, 5), (Copy(2, leader_epoch=4), 0, 0)):
        copy.log.start_offset, copy.log.end_offset, copy.log.epochs = start, end, [(1, 0), (3, 2)][: end + 1]
        follower.fetchers.follow(copy)
    assert len(follower.fetchers) == 2
    follower.fetchers.wake()
    _, request, _, _ = follower.take(LONG_LANE)
    config = BrokerConfig()
    name = {"topic": "t"} if version < 13 else {"topic_id": b"t" * 16}
    rows = [(0, 0, 5, 3, 1), (2, 4, 0, 1, 0)]
    assert request == p.FetchRequest(
        replica_id=1 if version < 15 else -1,
        replica_state=p.ReplicaState(replica_id=1, replica_epoch=7) if version >= 15 else p.ReplicaState(),
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        session_id=0,
        session_epoch=0,
        topics=[
            p.FetchTopic(
                **name,
                partitions=[
                    p.FetchPartition(
                        partition=index,
                        current_leader_epoch=epoch,
                        fetch_offset=end,
                        last_fetched_epoch=last,
                        log_start_offset=start,
                        partition_max_bytes=config.replica_fetch_max_bytes,
                    )
                    for index, epoch, end, last, start in rows
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    follower.fetchers.unfollow(("t", 0))
    follower.fetchers.unfollow(("t", 0))  # is not there any more
    forgotten = follower.fetchers.fetch_request({}, [(request.topics[0].topic_id if version >= 13 else "t", 0)], 9, 1, 0)
    assert forgotten.forgotten_topics_data == [p.ForgottenTopic(**name, partitions=[0])]


def test_a_log_outside_its_leaders_begins_where_the_leaders_begins():
    _, ahead, _, buggy = copies = [Copy(index, leader_epoch=3) for index in range(4)]
    for copy in copies:
        copy.log.end_offset = 5
    buggy.restart_at = lambda offset: 1 // 0
    follower = asking(*copies)
    out = [data(index, error_code=Code.OFFSET_OUT_OF_RANGE) for index in range(4)]
    follower.take(LONG_LANE)[3](fetch_answer(out))
    found = {}

    def answer(offsets, timestamp):
        sent, follower.sent = follower.sent, []
        for leader, request, lane, done in sent:
            ((topic,), wanted) = request.topics, request.topics[0].partitions[0]
            assert (leader, lane, request.replica_id, request.isolation_level, topic.name) == (LEADER, SHORT_LANE, 1, 0, "t")
            assert (wanted.current_leader_epoch, wanted.timestamp, request.timeout_ms) == (3, timestamp, 30_000)
            index = wanted.partition_index
            found[index] = offsets[index]
            part = p.ListOffsetsPartitionResponse(partition_index=index, **found[index])
            done(p.ListOffsetsResponse(topics=[p.ListOffsetsTopicResponse(name="t", partitions=[part])]))
        return [wanted.topics[0].partitions[0].partition_index for _, wanted, *_ in sent]

    assert answer([{"offset": 9}, {"offset": 4}, {"error_code": 6, "offset": 9}, {"offset": 5}], -1) == [0, 1, 2, 3]
    assert ahead.log.end_offset == 4  # the leader's log ends there
    assert answer([{"offset": 7}, None, None, {"offset": 6}], -2) == [0, 3]
    assert [(copy.log.start_offset, copy.log.end_offset) for copy in copies] == [(7, 7), (0, 4), (0, 5), (0, 5)]
    _, request, _, done = follower.take(LONG_LANE)
    assert asked_for(request).keys() == {0, 1}  # the others rest
    done(fetch_answer([]))
    follower.clock.advance(1_000)
    follower.timer.advance_clock()
    assert asked_for(follower.take(SHORT_LANE)[1]).keys() == {2, 3}


def test_a_session_goes_on_from_answer_to_answer_and_begins_again_where_it_is_lost():
    follower = asking(Copy(0))
    sent = []

    def answer(response):
        _, request, _, done = follower.take(LONG_LANE)
        sent.append((request.session_id, request.session_epoch, len(asked_for(request))))
        done(response)

    for response in (
        fetch_answer([data(0)]),
        fetch_answer([]),
        fetch_answer([]),
        p.FetchResponse(error_code=Code.INVALID_FETCH_SESSION_EPOCH),
        fetch_answer([data(0)], session_id=11),
        p.FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND),
        fetch_answer([data(0)], session_id=0),
        fetch_answer([data(0)]),
    ):
        answer(response)
    assert sent == [(0, 0, 1), (9, 1, 0), (9, 2, 0), (9, 3, 0), (9, 0, 1), (11, 1, 0), (0, 0, 1), (0, 0, 1)]
