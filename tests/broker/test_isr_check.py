"""The check of ISRs looks at the partitions in which time may change something, a few per turn of the broker's loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_fetch_sessions import Pair
from test_handlers import Bench

from kafkacore.broker.partition import Partition
from kafkacore.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut, UnknownTopicOrPartition
from tests.kit.batches import batch

LAG_MS = 10_000
CHECKED_PER_TURN = 500


class Lead:
    """A broker that leads partitions with one follower, broker 2."""

    def __init__(self, partitions: int) -> None:
        self.bench = Bench(replica_lag_time_max_ms=LAG_MS)
        topic = self.bench.topic(partitions=partitions)
        for index in range(partitions):
            Pair.elect(self.bench, topic.name, index, 0, replicas=[1, 2], isr=[1, 2])
        self.replicas = self.bench.state.replicas
        self.proposed: list[tuple[int, tuple[int, ...]]] = []
        self.replicas.propose_isr = self._propose  # type: ignore[method-assign]

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        self.proposed.append((partition.index, isr))
        partition.isr_refused(partition.leader_epoch)

    def fetches(self, index: int, offset: int | None = None) -> None:
        partition = self.replicas.partition("t", index)
        end_offset = partition.log.end_offset
        self.replicas.follower_fetched(partition, 2, end_offset if offset is None else offset, 0, end_offset, -1)

    def writes(self, index: int) -> None:
        self.replicas.append("t", index, batch([b"x"]), 1, 9, self.bench.clock.wall_ms(), self.bench.clock.now_ms())

    def passes(self, ms: int) -> None:
        """Time, in steps of a check, with as many turns of the loop as have something to do."""
        for _ in range(ms // (LAG_MS // 2)):
            self.bench.clock.advance(LAG_MS // 2)
            while self.bench.state.timer.advance_clock():
                pass


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that checks look at."""
    found: list[int] = []
    look = Partition.maybe_shrink_isr

    def looking(self: Partition, now_ms: int) -> None:
        found.append(self.index)
        look(self, now_ms)

    monkeypatch.setattr(Partition, "maybe_shrink_isr", looking)
    return found


def test_partitions_at_rest_are_not_looked_at(looks: list[int]) -> None:
    lead = Lead(300)
    for index in range(300):
        lead.fetches(index)
    lead.passes(LAG_MS)
    assert sorted(looks) == list(range(300))  # once, for their followers have everything
    looks.clear()
    lead.passes(100 * LAG_MS)
    assert looks == []
    lead.fetches(7)
    lead.writes(7)
    lead.passes(LAG_MS // 2)
    lead.fetches(7)
    assert looks == [7]
    lead.passes(100 * LAG_MS)
    assert looks == [7, 7]
    assert lead.proposed == []


def test_a_follower_that_stops_leaves_the_isr(looks: list[int]) -> None:
    lead = Lead(3)
    for index in range(3):
        lead.fetches(index)
    lead.passes(LAG_MS)
    lead.fetches(1)
    lead.writes(1)
    lead.passes(LAG_MS)
    assert lead.proposed == []
    lead.passes(LAG_MS)
    assert lead.proposed[0] == (1, (1,))
    looks.clear()
    lead.passes(LAG_MS)
    assert looks == [1, 1]  # the proposal was refused: it is still to be made


def test_a_follower_that_never_came_leaves_the_isr() -> None:
    lead = Lead(2)
    lead.fetches(0)
    lead.passes(2 * LAG_MS)
    assert {index for index, _ in lead.proposed} == {1}


def test_a_follower_that_lost_what_it_had_is_noticed() -> None:
    lead = Lead(2)
    lead.writes(0)
    for index in range(2):
        lead.fetches(index)
    lead.passes(2 * LAG_MS)
    lead.fetches(0, 0)
    lead.passes(2 * LAG_MS)
    assert {index for index, _ in lead.proposed} == {0}


def test_many_partitions_take_many_turns(looks: list[int]) -> None:
    count = 2 * CHECKED_PER_TURN + 1
    lead = Lead(count)
    lead.bench.clock.advance(LAG_MS // 2)
    turns = []
    while lead.bench.state.timer.advance_clock():
        turns.append(len(looks))
    assert turns == [CHECKED_PER_TURN, 2 * CHECKED_PER_TURN, count]
    assert len(set(looks)) == count


def test_a_write_that_is_not_committed_in_time_is_reported_once() -> None:
    lead, outcomes = Lead(1), list[KafkaError | None]()

    def write(timeout_ms: int | None) -> int:
        return lead.replicas.append_internal("t", 0, batch([b"x"]), outcomes.append, timeout_ms)

    def wait(ms: int) -> list[type]:
        lead.bench.clock.advance(ms)
        lead.bench.state.timer.advance_clock()
        return [type(each) for each in outcomes]

    assert write(100) == 0
    assert wait(99) == []
    assert wait(1) == [RequestTimedOut]
    assert isinstance(outcomes[0], RequestTimedOut) and (outcomes[0].topic, outcomes[0].partition) == ("t", 0)
    assert write(100) == 1
    lead.fetches(0)
    assert outcomes[1:] == [None]
    assert write(None) == 2
    assert len(wait(LAG_MS - 200)) == 2
    lead.fetches(0)
    assert outcomes[1:] == [None, None]


def test_partitions_that_are_not_here_are_named() -> None:
    lead = Lead(2)
    Pair.elect(lead.bench, "t", 1, 1, replicas=[2, 3], isr=[2, 3], leader=2)
    for topic, index, kind in (
        ("none", 0, UnknownTopicOrPartition),
        ("t", 2, UnknownTopicOrPartition),
        ("t", -1, UnknownTopicOrPartition),
        ("t", 1, NotLeaderOrFollower),
    ):
        with pytest.raises(kind) as refused:
            lead.replicas.partition(topic, index)
        assert (refused.value.topic, refused.value.partition) == (topic, index)


def test_a_broker_that_stops_ends_what_waits_and_begins_again(looks: list[int]) -> None:
    lead, heard, outcomes = Lead(2), list[tuple[Any, ...]](), list[KafkaError | None]()
    lead.replicas.listeners.append(SimpleNamespace(resigned=lambda *key: heard.append(key), became_leader=lambda *key: heard.append(key)))
    lead.replicas.append_internal("t", 1, batch([b"x"]), outcomes.append, None)
    lead.writes(0)
    lead.replicas.stopping()
    assert (heard, len(outcomes)) == ([("t", 0), ("t", 1)], 1) and outcomes[0] is not None
    lead.passes(2 * LAG_MS)
    assert looks == []
    heard.clear()
    lead.replicas.started()
    assert heard == [("t", 0, 0), ("t", 1, 0)]
    lead.writes(0)
    lead.passes(LAG_MS)
    assert 0 in looks
