"""What leaders ask the controller about several partitions, while an answer is late or leaves one of them out."""

from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.isr import RETRY_MS, IsrProposals
from kafkacore.clock import ManualClock
from kafkacore.errors import Code
from kafkacore.timer import LoopTimer


class Led:
    """A partition that this broker leads, as far as proposals go."""

    def __init__(self, topic, index=0):
        self.key, self.index, self.topic = (topic, index), index, SimpleNamespace(topic_id=topic.encode() * 16)
        self.leader_epoch = self.partition_epoch = 0
        self.remotes, self.pending_isr, self.refused = {}, None, 0

    def isr_committed(self, leader_epoch, partition_epoch, isr, now_ms):
        self.partition_epoch, self.pending_isr = partition_epoch, None

    def isr_refused(self, leader_epoch):
        self.pending_isr = None
        self.refused += 1


class Proposer:
    """The proposals of a broker; the controller answers when a test says so."""

    def __init__(self):
        self.asked, self.changed = [], []
        self.clock = ManualClock()
        self.timer = LoopTimer(clock=self.clock)
        submit = lambda request, version, done: self.asked.append((request, done))  # noqa: E731
        self.proposals = IsrProposals(1, submit, lambda: 1, self.clock, self.timer, self.changed.append)

    def propose(self, partition, isr):
        partition.pending_isr = isr
        self.proposals.propose(partition, isr)

    def take(self):
        """What the controller is asked now, as {(topic, index): ISR}, and what takes its answer."""
        request, done = self.asked.pop(0)
        wishes = {
            (bytes(topic.topic_id), each.partition_index): [replica.broker_id for replica in each.new_isr_with_epochs]
            for topic in request.topics
            for each in topic.partitions
        }
        return wishes, done

    def later(self):
        self.clock.advance(RETRY_MS)
        self.timer.advance_clock()


def accepted(*partitions):
    """An answer that accepts the ISRs of these partitions, and names no other."""
    topics = [
        p.AlterPartitionResponseTopic(
            topic_id=each.topic.topic_id,
            partitions=[p.AlterPartitionResponsePartition(partition_index=each.index, leader_id=1, isr=[1], partition_epoch=1)],
        )
        for each in partitions
    ]
    return p.AlterPartitionResponse(topics=topics)


@pytest.mark.parametrize(
    "failure", [errors.DisconnectError("lost"), p.AlterPartitionResponse(error_code=Code.NOT_CONTROLLER)], ids=["lost", "refused"]
)
def test_a_proposal_that_is_tried_again_does_not_hide_a_newer_one(failure):
    stage, first, second = Proposer(), Led("a"), Led("b")
    stage.propose(first, (1, 2))
    _, answered = stage.take()
    stage.propose(second, (1, 2))
    first.pending_isr = None  # the controller has decided otherwise
    stage.propose(first, (1, 3))
    answered(failure)
    stage.later()
    wishes, _ = stage.take()
    assert wishes == {(b"a" * 16, 0): [1, 3], (b"b" * 16, 0): [1, 2]}


def test_a_partition_that_an_answer_leaves_out_may_propose_again():
    stage, other, first, second = Proposer(), Led("c"), Led("a"), Led("b")
    stage.propose(other, (1,))
    _, answered = stage.take()
    for partition in (first, second):
        stage.propose(partition, (1,))
    answered(accepted(other))
    _, answered = stage.take()
    answered(accepted(first))
    assert stage.changed == [other, first] and (first.refused, second.refused) == (0, 1)
    stage.propose(second, (1,))
    wishes, _ = stage.take()
    assert wishes == {(b"b" * 16, 0): [1]}


def test_a_bug_met_with_one_answer_keeps_no_other_isr_from_changing(caplog):
    stage, bad, *good = Proposer(), Led("c"), Led("a"), Led("b")
    bad.isr_committed = lambda *news: 1 // 0
    for partition in (bad, *good):
        stage.propose(partition, (1,))
    stage.take()[1](accepted(bad))
    assert "the ISR of partition c-0 failed" in caplog.text
    stage.take()[1](accepted(*good))
    assert stage.changed == good
