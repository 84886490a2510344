"""The check of ISRs looks at the partitions in which time may change something, a few per turn of the broker's loop."""

from __future__ import annotations

import pytest
from test_fetch_sessions import Pair
from test_handlers import Bench

from kafkacore.broker.partition import Partition
from kafkacore.broker.replicas import CHECKED_PER_TURN
from tests.kit.batches import batch

LAG_MS = 10_000


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
