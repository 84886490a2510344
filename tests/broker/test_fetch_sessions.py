"""Incremental fetches read what changed, and answer what a walk over all partitions would."""

import itertools
import random
from dataclasses import replace

import pytest
from controlling import create_topic, delete_topic
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_handlers import Bench

from kafkacore import protocol as p
from kafkacore.broker.handlers import fetch as fetch_handlers
from kafkacore.broker.partition import Replica
from kafkacore.broker.sessions import CachedPartition, FetchSession, FetchSessionCache
from kafkacore.broker.state import Outcome
from kafkacore.errors import Code
from tests.kit.batches import batch
from tests.kit.inside import sessions_of
from tests.kit.reached import Reached
from tests.kit.rows import each_row

PARTITIONS = 5
TOPICS = "t", "u"
FOLLOWERS = 2, 3
NAMES, IDS = 12, 17
"""A version of Fetch that names topics, and one with their ids."""
LIMITS = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "partition_bytes": 1 << 20}


class Reader:
    """A client with a fetch session."""

    def __init__(self, version, replica_id=-1, isolation_level=0):
        self.version, self.replica_id, self.isolation_level = version, replica_id, isolation_level
        self.session_id = self.epoch = 0
        self.waits = False
        self.named = {}  # (topic, index) -> offset, of the session

    def request(self, bench, named, forgotten, **limits):
        def named_topic(name):
            known = bench.cluster.topics.get(name)
            return {"topic": name, "topic_id": bytes(15) + b"?" if known is None else known.topic_id}

        follower = {"replica_id": self.replica_id} if self.version < 15 else {}
        if self.version >= 15:
            follower = {"replica_state": p.ReplicaState(replica_id=self.replica_id)}
        topics = [
            p.FetchTopic(
                **named_topic(name),
                partitions=[
                    p.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        current_leader_epoch=epoch,
                        last_fetched_epoch=last,
                        partition_max_bytes=limits["partition_bytes"],
                        log_start_offset=0,
                    )
                    for (topic, index), (offset, epoch, last) in named.items()
                    if topic == name
                ],
            )
            for name in dict.fromkeys(topic for topic, _ in named)
        ]
        return p.FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            isolation_level=self.isolation_level,
            max_wait_ms=limits["max_wait_ms"],
            min_bytes=limits["min_bytes"],
            max_bytes=limits["max_bytes"],
            topics=topics,
            forgotten_topics_data=[p.ForgottenTopic(**named_topic(name), partitions=[index]) for name, index in forgotten],
            **follower,
        )

    def asks(self, bench, named=None, **limits):
        """The next fetch of its session, which the first one begins."""
        answer = bench.ask(self.request(bench, named or {}, [], **LIMITS | limits), self.version)
        self.epoch += 1
        if answer is not Outcome.LATER:
            self.session_id = answer.session_id
        return answer


def alike(bench, answer):
    """An answer without what differs between two clusters, in its order."""
    if answer is Outcome.LATER:
        return answer
    names = {topic.topic_id: topic.name for topic in bench.cluster.topics.values()}
    return (
        answer.error_code,
        answer.session_id,
        [
            (topic.topic or names.get(topic.topic_id, "?"), bytes(part.records or b""), part._replace(records=b"", current_leader=None))
            for topic in answer.responses
            for part in topic.partitions
        ],
    )


walked = Reached(
    "records in an incremental answer",
    "an incremental answer that names nothing",
    "an error in an incremental answer",
    "a wait that ends with records",
    "a wait that ends without",
    "a topic made again while its partitions are in a session",
    "another broker leads a partition of a session",
)


class Pair:
    """Two brokers that are asked the same; the sessions and the ISR checks of the second leave nothing out."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.benches = [Bench(replica_lag_time_max_ms=2_000), Bench(replica_lag_time_max_ms=2_000)]
        for bench in self.benches:
            bench.state.sessions._new_id = itertools.count(1).__next__
            for topic in TOPICS:
                self.create(bench, topic)
        self.readers = [Reader(NAMES), Reader(IDS, isolation_level=1)]
        self.readers += [Reader(version, node) for version in (NAMES, IDS) for node in FOLLOWERS]
        self.leader_epoch = 0
        self.seen = [0, 0]

    def create(self, bench, topic):
        create_topic(bench.state.controller, topic, PARTITIONS, configs={})
        for index in range(PARTITIONS):
            self.elect(bench, topic, index, 0, leader=1, replicas=[1, *FOLLOWERS], isr=[1, 2])

    @staticmethod
    def elect(bench, topic, index, epoch, **changes):
        known = bench.cluster.topics[topic]
        before = known.partitions[index]
        known.partitions[index] = replace(before, leader_epoch=epoch, partition_epoch=before.partition_epoch + 1, **changes)
        bench.state.replicas.update(known, index)

    def both(self, do):
        first, second = (do(bench) for bench in self.benches)
        return first, second

    def step(self):
        rnd = self.random
        topic, index = rnd.choice(TOPICS), rnd.randrange(PARTITIONS)
        what = rnd.choices(
            ["fetch", "produce", "delete_records", "elect", "isr", "advance", "recreate", "checks", "roll", "sessionless"],
            [40, 16, 3, 2, 5, 8, 1, 2, 2, 2],
        )[0]
        if what == "fetch":
            self.fetch(rnd.choice(self.readers))
        elif what == "produce":
            data = batch([b"%d" % nth for nth in range(rnd.randint(1, 30))])
            self.both(lambda bench: bench.produce(data, topic=topic, partition=index, acks=1))
        elif what == "delete_records":
            self.both(lambda bench: self.delete_records(bench, topic, index))
        elif what == "elect":
            self.leader_epoch += 1
            leader, isr = rnd.choice([1, 1, 1, 2]), rnd.choice([[1], [1, 2], [1, 2, 3]])
            replicas = rnd.choice([[1, 2, 3], [1, 2, 3], [1, 2], [2, 3]])
            if leader not in replicas or set(isr) - set(replicas):
                leader, isr = 2, [2]
            walked("another broker leads a partition of a session", leader != 1 and any(each.session_id for each in self.readers))
            self.both(lambda bench: self.elect(bench, topic, index, self.leader_epoch, leader=leader, isr=isr, replicas=replicas))
        elif what == "isr":
            isr = rnd.choice([[1], [1, 2], [1, 3], [1, 2, 3]])
            self.both(lambda bench: self.change_isr(bench, topic, index, isr))
        elif what == "advance":
            ms = rnd.choice([10, 100, 600])
            self.both(lambda bench: (bench.clock.advance(ms), [each.advance_clock() for each in bench.state.clocked]))
        elif what == "recreate":
            walked("a topic made again while its partitions are in a session", any(each.session_id for each in self.readers))
            self.both(lambda bench: (delete_topic(bench.state.controller, topic), self.create(bench, topic)))
        elif what == "checks":
            self.both(self.check_isrs)
        elif what == "roll":
            self.both(lambda bench: (self.roll(bench, topic, index), bench.produce(topic=topic, partition=index, acks=1)))
        else:
            self.fetch(Reader(NAMES, rnd.choice([-1, *FOLLOWERS])))
        self.compare()

    def check_isrs(self, bench):
        replicas = bench.state.replicas
        if bench is self.benches[1]:  # looks at what is at rest, too
            replicas._restless.update(dict.fromkeys(replicas.partitions.values()))
        replicas._check_isrs()

    @staticmethod
    def delete_records(bench, topic, index):
        partition = bench.state.replicas.partitions.get((topic, index))
        if partition is not None and partition.is_leader:
            bench.state.replicas.delete_records(topic, index, partition.high_watermark)

    def change_isr(self, bench, topic, index, isr):
        """The controller's answer to an AlterPartition."""
        registration = bench.cluster.topics[topic].partitions[index]
        if registration.leader == 1 and set(isr) <= set(registration.replicas):
            self.elect(bench, topic, index, registration.leader_epoch, isr=isr)

    @staticmethod
    def roll(bench, topic, index):
        """The next batch begins a segment."""
        partition = bench.state.replicas.partitions.get((topic, index))
        if partition is not None and partition.log.segments:
            partition.log.roll(bench.clock.wall_ms())

    def fetch(self, reader):
        rnd = self.random
        if reader.waits:
            return
        if reader.epoch and rnd.random() < 0.03:
            reader.epoch = 0  # begins again
        missing = rnd.random() < 0.02
        everything = [(topic, index) for topic in TOPICS for index in range(PARTITIONS + missing)]
        wanted = everything if reader.epoch == 0 and rnd.random() < 0.7 else rnd.sample(everything, rnd.randint(0, 4))
        named = {key: self.place(reader, key) for key in wanted}
        forgotten = rnd.sample(everything, rnd.choice([0, 0, 0, 1, 3]))
        limits = {
            "max_wait_ms": rnd.choice([0, 0, 500]),
            "min_bytes": rnd.choice([1, 1, 600]),
            "max_bytes": rnd.choice([1 << 20, 1 << 20, 300, 0]),
            "partition_bytes": rnd.choice([1 << 20, 1 << 20, 200]),
        }
        first, second = self.both(lambda bench: alike(bench, bench.ask(reader.request(bench, named, forgotten, **limits), reader.version)))
        assert first == second
        if first is Outcome.LATER:
            reader.waits = True
            reader.epoch += 1
            self.waiting = reader
        elif first[0]:
            reader.session_id = reader.epoch = 0
        else:
            if reader.epoch:
                walked("records in an incremental answer", any(records for _, records, _ in first[2]))
                walked("an incremental answer that names nothing", not first[2])
                walked("an error in an incremental answer", any(part.error_code for _, _, part in first[2]))
            reader.session_id = first[1]
            reader.epoch = reader.epoch + 1 if first[1] else 0

    def place(self, reader, key):
        """Where a reader goes on, most often at the end; now and then somewhere else."""
        partition = self.benches[0].state.replicas.partitions.get(key)
        if partition is None:
            return 0, -1, -1
        end = partition.log.end_offset if reader.replica_id >= 0 else partition.high_watermark
        rnd, epoch = self.random, partition.leader_epoch
        offset = end if rnd.random() < 0.9 else rnd.randint(0, partition.log.end_offset + (rnd.random() < 0.1))
        last = partition.log.epochs[-1][0] if partition.log.epochs else -1
        return offset, rnd.choice([-1, epoch] * 10 + [max(epoch - 1, 0)]), rnd.choice([-1, last] * 10 + [epoch + 1])

    def compare(self):
        first, second = self.benches
        late = [[alike(bench, answer) for answer in bench.late] for bench in self.benches]
        assert late[0] == late[1]
        if late[0]:
            for bench in self.benches:
                bench.late.clear()
            for answer in late[0]:
                ends_with = any(records for _, records, _ in answer[2])
                walked("a wait that ends with records" if ends_with else "a wait that ends without")
                for reader in self.readers:
                    if reader.waits and (reader.session_id or answer[1]) == answer[1]:
                        reader.waits, reader.session_id = False, answer[1]
                        break
        for key, partition in first.state.replicas.partitions.items():
            other = second.state.replicas.partitions[key]
            assert (partition.high_watermark, partition.isr, partition.pending_isr) == (other.high_watermark, other.isr, other.pending_isr)
            for node, replica in partition.remotes.items():
                assert self.view(replica) == self.view(other.remotes[node]), (key, node)

    @staticmethod
    def view(replica: Replica):
        return replica.last_caught_up_ms, replica.log_end_offset, replica.log_start_offset, replica.broker_epoch


def walk_all(monkeypatch, sessions):
    """The sessions of one broker leave nothing out."""
    leave_out = FetchSession.leave_out

    def keep(session, *args):
        if session._watching is not sessions._watching:
            leave_out(session, *args)

    monkeypatch.setattr(FetchSession, "leave_out", keep)


@walked.by
@given(seed=st.integers(0, 2**32))
@example(seed=718)  # a fetch by id waits for two partitions of a topic that is deleted
@settings(max_examples=60, deadline=None)
def test_an_incremental_fetch_answers_what_a_walk_over_all_partitions_would(seed):
    with pytest.MonkeyPatch.context() as monkeypatch:
        pair = Pair(seed)
        walk_all(monkeypatch, pair.benches[1].state.sessions)
        for _ in range(120):
            pair.step()


@pytest.fixture
def reads(monkeypatch):
    """The partitions that fetches read, and those that waiting ones look at."""
    found = []
    read, look = fetch_handlers._Reading._read_partition, fetch_handlers._WaitingPartition.bytes_available

    def reading(self, topic, wanted, first):
        found.append(wanted.partition)
        return read(self, topic, wanted, first)

    def looking(self):
        found.append(self.wanted.partition)
        return look(self)

    monkeypatch.setattr(fetch_handlers._Reading, "_read_partition", reading)
    monkeypatch.setattr(fetch_handlers._WaitingPartition, "bytes_available", looking)
    return found


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_an_incremental_fetch_reads_what_changed_and_nothing_else(reads, replica_id):
    bench, count = Bench(), 150
    topic = bench.topic(partitions=count)
    for index in range(count):
        Pair.elect(bench, topic.name, index, 0, replicas=[1, 2], isr=[1, 2])
    reader = Reader(NAMES, replica_id)
    reader.asks(bench, {(topic.name, index): (0, -1, -1) for index in range(count)})
    reader.asks(bench)  # what the first answer said is no news
    reads.clear()
    assert reader.asks(bench).responses == []
    assert reads == []
    assert reader.asks(bench, max_wait_ms=500) is Outcome.LATER
    bench.produce(partition=77, acks=1)
    if replica_id < 0:  # the follower's fetch is answered at once
        bench.state.replicas.partition(topic.name, 77).follower_fetched(2, 3, 0, 3, -1, bench.clock.now_ms())
        bench.state.replicas.changed(bench.state.replicas.partition(topic.name, 77))
    assert set(reads) == {77} and len(reads) <= 4
    (answer,) = bench.late
    assert [part.partition_index for part in answer.responses[0].partitions] == [77]
    reader.asks(bench, {(topic.name, 77): (3, -1, -1)})
    assert bench.state.replicas.partition(topic.name, 77).high_watermark == 3
    reads.clear()
    reader.asks(bench, {(topic.name, 77): (3, -1, -1)})
    reader.asks(bench)
    reader.asks(bench)
    assert set(reads) == {77} and len(reads) <= 2


@each_row("end", ["time", "records", "hang-up"])
def test_a_fetch_of_a_session_that_has_waited_leaves_nothing_behind(end):
    """Its place would keep the session, and so all of its partitions, until the purge."""
    bench = Bench()
    topic = bench.topic(partitions=3)
    reader = Reader(NAMES)
    named = {(topic.name, index): (0, -1, -1) for index in range(3)}
    reader.asks(bench, named)
    reader.asks(bench)
    assert reader.asks(bench, max_wait_ms=10) is Outcome.LATER
    fetches = bench.state.fetches
    assert (fetches.watched(), fetches.key_count(), fetches.num_delayed()) == (1, 1, 1)
    if end == "records":
        bench.produce(partition=1, acks=1)
    elif end == "time":
        bench.clock.advance(10)
        fetches.advance_clock()
    else:
        sessions_of(bench.state.sessions)[reader.session_id].waits[0].abandon()
    assert len(bench.late) == (end != "hang-up")
    assert bench.state.sessions.take_waiting() == []
    assert (fetches.watched(), fetches.key_count(), fetches.num_delayed()) == (0, 0, 0)


def test_a_partition_that_grows_twice_while_a_fetch_waits_counts_once():
    """Two batches there and one beside them are three, not four."""
    bench = Bench()
    topic = bench.topic(partitions=2)
    reader = Reader(NAMES)
    named = {(topic.name, index): (0, -1, -1) for index in range(2)}
    reader.asks(bench, named)
    reader.asks(bench)
    assert reader.asks(bench, max_wait_ms=10, min_bytes=3 * len(batch())) is Outcome.LATER
    for _ in range(2):
        bench.produce(partition=1, acks=1)
        assert bench.late == []
    bench.produce(partition=0, acks=1)
    assert len(bench.late) == 1


@pytest.mark.parametrize("version", [NAMES, IDS])
def test_an_answer_that_is_taken_back_is_news_again(bench, version):
    for name in TOPICS:
        create_topic(bench.state.controller, name, 2, configs={})
    sessions, reader = bench.state.sessions, Reader(version)
    first = reader.asks(bench, {(name, index): (0, -1, -1) for name in TOPICS for index in (0, 1)})
    for name in TOPICS:
        bench.produce(topic=name, partition=1, acks=1)
    request = reader.request(bench, {}, [], **LIMITS)
    answer = reader.asks(bench, partition_bytes=0)
    assert [len(topic.partitions) for topic in answer.responses] == [1, 1]
    assert sessions.take_back(request, answer, version) == reader.session_id
    assert sessions.take_back(request, answer._replace(session_id=reader.session_id + 1), version) == 0
    reader.asks(bench, {(name, 1): (3, -1, -1) for name in TOPICS})
    assert reader.asks(bench).responses == []
    assert sessions.take_back(request, answer, version) == reader.session_id
    again = reader.asks(bench).responses
    assert [(topic.topic, topic.topic_id, [part.partition_index for part in topic.partitions]) for topic in again] == [
        (topic.topic, topic.topic_id, [1]) for topic in answer.responses
    ]
    assert sessions.take_back(request._replace(session_epoch=0), first, version) == len(sessions) == 0


def test_sessions_begin_go_on_and_end_as_their_epochs_say():
    cache = FetchSessionCache(2, iter([5, 5, 6, 7, 8, 9]).__next__)

    def ask(session_id, epoch, named=(), now_ms=0, version=NAMES, forgotten=()):
        topics = [p.FetchTopic(topic="t", partitions=[p.FetchPartition(partition=index, fetch_offset=index) for index in named])]
        gone = [p.ForgottenTopic(topic="t", partitions=list(forgotten))]
        request = p.FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)
        found = cache.context(request, version, now_ms)
        if isinstance(found, Code):
            return found
        read = [key[1] for key, _ in found.partitions]
        assert found.partition_count == len(read)
        return found.session_id, found.incremental, found.is_empty, read

    assert ask(0, 0, [0, 1]) == (5, False, False, [0, 1])
    assert ask(0, 0, [2, 3, 2], forgotten=[3]) == (6, False, False, [2, 3])
    assert ask(0, 0, [0], 120_000) == (0, False, False, [0])  # no room
    assert ask(0, 0, [], 120_000) == (0, False, True, [])
    assert ask(0, 0, [0], 120_001) == (7, False, False, [0]) and len(cache) == 2
    assert ask(5, 1) is Code.FETCH_SESSION_ID_NOT_FOUND
    assert [ask(6, epoch) for epoch in (2, -2)] == [Code.INVALID_FETCH_SESSION_EPOCH] * 2
    assert ask(6, 1, version=IDS) is Code.FETCH_SESSION_TOPIC_ID_ERROR
    assert ask(6, 1, [4], 240_000) == (6, True, False, [2, 4])
    assert ask(0, 0, [1], 240_002) == (8, False, False, [1])  # in the place of the one that was used last before it
    assert ask(7, 1) is Code.FETCH_SESSION_ID_NOT_FOUND
    assert ask(6, 2, forgotten=[2, 4, 9]) == (0, True, True, []) and len(cache) == 1
    sessions_of(cache)[8].epoch = 2**31 - 1
    assert ask(8, 2**31 - 1) == ask(8, 1) == (8, True, False, [1])
    assert ask(8, 2) == (8, True, False, [1])
    assert ask(8, -1, [1]) == (0, False, False, [1]) and len(cache) == 0
    assert FetchSessionCache(0).context(p.FetchRequest(session_epoch=0), NAMES, 0).session is None


@each_row(
    ("fields", "is_news"),
    [
        ({}, False),
        ({"high_watermark": 8}, True),
        ({"log_start_offset": 3}, True),
        ({"records": b"r"}, True),
        ({"error_code": 1}, True),
        ({"preferred_read_replica": 0}, True),
        ({"diverging_epoch": p.FetchEpochEndOffset(epoch=0, end_offset=1)}, True),
        ({"diverging_epoch": p.FetchEpochEndOffset(epoch=-1, end_offset=1)}, False),
    ],
)
def test_what_is_news_to_a_client(fields, is_news):
    def answer(**fields):
        return p.PartitionData(**{"partition_index": 0, "high_watermark": 7, "log_start_offset": 2, "records": b"", **fields})

    cached = CachedPartition(p.FetchPartition(), 1)
    assert cached.is_news(answer())
    cached.told(answer())
    assert cached.is_news(answer(**fields)) == is_news
    cached.told(answer(**fields))
    again = not is_news or fields.keys() <= {"records", "preferred_read_replica"}
    assert cached.is_news(answer()) == (not again)  # an error is said again until it has passed


def test_a_change_touches_the_sessions_that_fetch_the_partition(bench):
    for topic in TOPICS:
        create_topic(bench.state.controller, topic, 2, configs={})
    sessions = []
    for name in TOPICS:
        reader = Reader(NAMES)
        reader.asks(bench, {(name, 0): (0, -1, -1)})
        reader.asks(bench)
        sessions.append(sessions_of(bench.state.sessions)[reader.session_id])
    assert [session.dirty for session in sessions] == [set(), set()]
    bench.produce(topic="t", partition=0)
    bench.produce(topic="u", partition=1)
    assert [session.dirty for session in sessions] == [{("t", 0)}, set()]
    bench.state.sessions.clear()
    assert bench.state.sessions._watching == {}


def test_a_follower_is_caught_up_in_what_its_fetches_leave_out(bench):
    topic = bench.topic()
    Pair.elect(bench, topic.name, 0, 0, replicas=[1, 2], isr=[1, 2])
    reader = Reader(NAMES, 2)
    reader.asks(bench, {("t", 0): (0, -1, -1)})
    replica = bench.state.replicas.partition("t", 0).remotes[2]
    for _ in range(4):
        bench.clock.advance(1_000)
        reader.asks(bench)
        assert replica.last_caught_up_ms == bench.clock.now_ms()
    caught_up_ms = bench.clock.now_ms()
    bench.produce(acks=1)  # from here on it has to show that it copies
    for _ in range(2):
        bench.clock.advance(1_000)
        reader.asks(bench)
        assert replica.last_caught_up_ms == caught_up_ms
        assert (replica.log_end_offset, replica.is_caught_up(3, bench.clock.now_ms(), 2_000)) == (0, True)
    bench.clock.advance(1_000)
    assert not replica.is_caught_up(3, bench.clock.now_ms(), 2_000)


def test_a_follower_that_waited_through_an_election_shows_again_how_far_it_is(bench):
    """Else a consumer of its rack is not sent to it until the next record comes."""
    topic = bench.topic(partitions=2)
    for index in range(2):
        Pair.elect(bench, topic.name, index, 0, replicas=[1, 2], isr=[1, 2])
    reader = Reader(NAMES, 2)
    reader.asks(bench, {("t", index): (0, -1, -1) for index in range(2)})
    reader.asks(bench)
    assert reader.asks(bench, max_wait_ms=500) is Outcome.LATER
    Pair.elect(bench, topic.name, 0, 1, replicas=[1, 2], isr=[1, 2])
    remotes = [bench.state.replicas.partition("t", index).remotes[2] for index in range(2)]
    assert [remote.log_end_offset for remote in remotes] == [-1, 0]
    bench.clock.advance(500)
    bench.state.fetches.advance_clock()
    reader.asks(bench)
    assert [remote.log_end_offset for remote in remotes] == [0, 0]


@pytest.fixture
def bench():
    return Bench()
