"""Leaders, followers and the controller under any order of messages, losses, deaths and delays: committed records survive.

With KAFKACORE_SEEDS there are more examples, and longer ones.
"""

import os
import random
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from replication_model import Model

from kafkacore import errors
from kafkacore.broker.partition import Partition
from tests.kit.reached import Reached

BRANCHES = "the ISR shrinks", "the ISR grows", "another leader", "a replica truncates", "acknowledged by two of three"
reached, reached_unclean = Reached(*BRANCHES), Reached(*BRANCHES)


TRUNCATE = Partition.truncate


class Replication(RuleBasedStateMachine):
    """Elections are clean: whatever happens, no record below a high watermark is lost or replaced."""

    unclean = False
    reached = staticmethod(reached)

    @initialize(min_isr=st.sampled_from([1, 2]))
    def begin(self, min_isr):
        self.model = Model(min_insync_replicas=min_isr, replica_lag_time_max_ms=2_000, unclean_leader_election_enable=self.unclean)
        self.high_watermarks = {}
        self.before = self.model.registration
        self.watched = mock.patch.object(Partition, "truncate", lambda partition, offset: self.truncate(partition, offset))
        self.watched.start()

    def truncate(self, partition, offset):
        self.reached("a replica truncates", offset < partition.log.end_offset)
        TRUNCATE(partition, offset)

    @rule(data=st.data(), count=st.integers(1, 6))
    def deliver(self, data, count):
        for _ in range(count):
            moves = self.model.moves()
            if not moves:
                return
            self.model.move(*data.draw(st.sampled_from(moves)))

    @rule(seed=st.integers(0, 999), steps=st.integers(5, 40), slow=st.sampled_from([0, 0, 1, 2, 3]))
    def flow(self, seed, steps, slow):
        """Many messages in some order; one broker's messages may be late, another's news."""
        order = random.Random(seed)
        for _ in range(steps):
            moves = [move for move in self.model.moves() if slow not in move[0][:2]]
            told = [node for node in sorted(self.model.alive) if self.model.news[node] and node != slow + 1]
            if told and order.random() < 0.3:
                self.model.tell(order.choice(told))
            elif moves:
                self.model.move(*order.choice(moves))
            else:
                self.model.advance(20)

    @rule(seed=st.integers(0, 999), count=st.integers(2, 8))
    def write(self, seed, count):
        """A burst to the leader, some of it replicated."""
        order = random.Random(seed)
        for _ in range(count):
            leader = self.model.registration.leader
            if leader in self.model.alive:
                self.model.produce(leader, order.choice((-1, -1, 1)))
            moves = self.model.moves()
            if moves:
                self.model.move(*order.choice(moves))

    @rule(data=st.data())
    def cut(self, data):
        if self.model.lanes:
            self.model.cut(data.draw(st.sampled_from(sorted(self.model.lanes))))

    @rule(node=st.integers(1, 3))
    def tell(self, node):
        self.model.tell(node)

    @rule(to_leader=st.booleans(), node=st.integers(1, 3), acks=st.sampled_from([-1, -1, 1]), records=st.integers(1, 3))
    def produce(self, to_leader, node, acks, records):
        leader = self.model.registration.leader
        target = leader if to_leader and leader >= 0 else node
        if target in self.model.alive:
            self.model.produce(target, acks, records)

    @rule(data=st.data())
    def kill(self, data):
        if len(self.model.alive) > 1:
            self.model.kill(data.draw(st.sampled_from(sorted(self.model.alive))))

    @rule(data=st.data())
    def restart(self, data):
        if len(self.model.alive) < 3:
            self.model.start(data.draw(st.sampled_from(sorted(set(self.model.news) - self.model.alive))))

    @rule(acks=st.sampled_from([-1, 1]), comes_back=st.booleans())
    def die_with_a_tail(self, acks, comes_back):
        """The leader goes with records that no other broker has."""
        leader = self.model.registration.leader
        if leader in self.model.alive and len(self.model.alive) > 1:
            self.model.produce(leader, acks, records=3)
            self.model.kill(leader)
            if comes_back:
                self.model.start(leader)
                for node in self.model.news:
                    while self.model.news[node] and node in self.model.alive:
                        self.model.tell(node)

    @rule(ms=st.sampled_from([10, 100, 600, 1_500]))
    def advance(self, ms):
        self.model.advance(ms)

    @invariant()
    def branches(self):
        now, before, self.before = self.model.registration, self.before, self.model.registration
        self.reached("the ISR shrinks", len(now.isr) < len(before.isr))
        self.reached("the ISR grows", len(now.isr) > len(before.isr))
        self.reached("another leader", -1 != now.leader != before.leader)
        self.reached("acknowledged by two of three", self.model.acked and len(now.isr) == 2)

    @invariant()
    def committed_records_are_on_every_in_sync_replica(self):
        if self.unclean:
            return
        for node in self.model.registration.isr:
            if self.model.partition(node) is None:
                assert not self.model.acked
                continue
            held = self.model.records(node)
            lost = {offset: value for offset, value in self.model.acked.items() if held.get(offset) != value}
            assert not lost, f"broker {node} is in sync without {lost}"

    @invariant()
    def high_watermarks_do_not_fall(self):
        if self.unclean:
            return
        for node in self.model.news:
            partition = self.model.partition(node)
            if partition is not None:
                assert partition.high_watermark >= self.high_watermarks.get(node, 0), f"broker {node}"
                assert partition.log.start_offset <= partition.high_watermark <= partition.log.end_offset
                self.high_watermarks[node] = partition.high_watermark

    @invariant()
    def replicas_agree_below_their_high_watermarks(self):
        if self.unclean:
            return
        known = {}
        for node in self.model.news:
            partition = self.model.partition(node)
            if partition is None:
                continue
            for offset, value in self.model.records(node).items():
                if offset < partition.high_watermark:
                    assert known.setdefault(offset, value) == value, f"broker {node} has another record at {offset}"

    def teardown(self):
        if not hasattr(self, "model"):
            return
        self.model.settle()
        self.watched.stop()
        self.branches()
        registration = self.model.registration
        assert self.model.settled, {node: vars(self.model.partition(node)) for node in self.model.news} | {"controller": registration}
        self.committed_records_are_on_every_in_sync_replica()
        self.high_watermarks_do_not_fall()
        assert len({tuple(sorted(self.model.records(node).items())) for node in self.model.news}) == 1


class UncleanReplication(Replication):
    """With unclean elections records may be lost, but in the end the replicas are alike all the same."""

    unclean = True
    reached = staticmethod(reached_unclean)


AT_LENGTH = "KAFKACORE_SEEDS" in os.environ
ROUNDS, STEPS = (20, 100) if AT_LENGTH else (4, 50)
SETTINGS = settings(max_examples=10, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck))
Replication.TestCase.settings = UncleanReplication.TestCase.settings = SETTINGS
TestReplication = reached.by(Replication, rounds=ROUNDS)
TestUncleanReplication = reached_unclean.by(UncleanReplication, rounds=ROUNDS)


def test_a_planted_fault_is_found(monkeypatch):
    def waits_for_no_follower(partition, now_ms):
        partition.high_watermark = partition.log.end_offset
        return True

    monkeypatch.setattr(Partition, "_advance", waits_for_no_follower)
    fixed = {"phases": [Phase.generate], "derandomize": True, "database": None}
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Replication, settings=settings(SETTINGS, max_examples=2_000, stateful_step_count=100, **fixed))


def test_a_follower_that_cannot_begin_anew_tries_again(monkeypatch):
    model = Model(min_insync_replicas=1, replica_lag_time_max_ms=2_000)
    model.settle()
    model.kill(3)
    leader = model.registration.leader
    for _ in range(3):
        model.produce(leader, acks=1)
    while model.partition(leader).high_watermark < 3:  # until broker 3 has left the ISR
        model.advance(100)
        for node in (1, 2):
            model.tell(node)
        for key, what in model.moves():
            model.move(key, what)
    model.states[leader].replicas.delete_records("t", 0, 3)
    restart_at, follower = Partition.restart_at, model.partition(3)

    def fails_once(partition, offset):
        monkeypatch.setattr(Partition, "restart_at", restart_at)
        raise errors.KafkaStorage("the disk is busy")

    monkeypatch.setattr(Partition, "restart_at", fails_once)
    model.settle()
    assert model.settled and follower.log.start_offset == 3
