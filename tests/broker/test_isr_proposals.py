"""What leaders ask the controller about several partitions, while an answer is late or leaves one of them out."""

from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.isr import IsrProposals
from kafkacore.clock import ManualClock
from kafkacore.errors import Code
from kafkacore.timer import LoopTimer
from tests.kit.rows import each_row


class Led:
    """A partition that this broker leads, as far as proposals go."""

    def __init__(self, topic, index=0):
        self.key, self.index, self.topic = (topic, index), index, SimpleNamespace(topic_id=topic.encode() * 16)
        self.leader_epoch = self.partition_epoch = 0
        self.remotes, self.pending_isr, self.refused = {}, None, 0

    def isr_committed(self, leader_epoch, partition_epoch, isr, now_ms):
        self.committed = leader_epoch, partition_epoch, isr, now_ms
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
        self.proposals = IsrProposals(1, self.submit, lambda: 1, self.clock, self.timer, self.changed.append)

    def submit(self, request, version, done):
        assert version == 3
        self.asked.append((request, done))

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
        self.clock.advance(50)
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


def test_what_the_controller_is_asked_and_what_it_decides():
    stage, partition, other = Proposer(), Led("a", 3), Led("a", 4)
    partition.leader_epoch, partition.partition_epoch, partition.remotes = 4, 6, {2: SimpleNamespace(broker_epoch=22)}
    stage.propose(other, (1,))
    stage.take()[1](accepted())
    stage.propose(partition, (1, 2))
    ((request, answered),) = stage.asked
    members = [p.IsrBrokerState(broker_id=1, broker_epoch=1), p.IsrBrokerState(broker_id=2, broker_epoch=22)]
    wish = p.AlterPartitionRequestPartition(
        partition_index=3, leader_epoch=4, new_isr_with_epochs=members, leader_recovery_state=0, partition_epoch=6
    )
    topic = p.AlterPartitionRequestTopic(topic_id=b"a" * 16, partitions=[wish])
    assert request == p.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[topic])
    answer = p.AlterPartitionResponsePartition(partition_index=3, leader_id=1, leader_epoch=4, isr=[1, 2], partition_epoch=7)
    stage.clock.advance(5)
    answered(p.AlterPartitionResponse(topics=[p.AlterPartitionResponseTopic(topic_id=b"a" * 16, partitions=[answer])]))
    assert (partition.committed, partition.refused, other.refused) == ((4, 7, [1, 2], stage.clock.now_ms()), 0, 1)


@each_row(
    ("code", "since", "refused"),
    [
        (Code.INELIGIBLE_REPLICA, {}, 1),
        (Code.OPERATION_NOT_ATTEMPTED, {}, 1),
        (Code.INVALID_UPDATE_VERSION, {}, 0),  # the image will say what the controller knows
        (Code.INVALID_UPDATE_VERSION, {"partition_epoch": 1}, 1),
        (Code.INELIGIBLE_REPLICA, {"pending_isr": None}, 0),
        (Code.INELIGIBLE_REPLICA, {"leader_epoch": 1}, 0),
    ],
)
def test_which_refusals_let_a_partition_propose_again(code, since, refused):
    stage, partition = Proposer(), Led("a")
    stage.propose(partition, (1,))
    for name, value in since.items():
        setattr(partition, name, value)
    answer = p.AlterPartitionResponsePartition(partition_index=0, error_code=code)
    stage.take()[1](p.AlterPartitionResponse(topics=[p.AlterPartitionResponseTopic(topic_id=b"a" * 16, partitions=[answer])]))
    assert (partition.refused, stage.changed, stage.asked) == (refused, [], [])


def test_a_failed_request_is_sent_again_after_a_while_and_not_after_the_end():
    stage, first, second = Proposer(), Led("a"), Led("b")
    stage.propose(first, (1,))
    stage.take()[1](errors.DisconnectError("lost"))
    stage.propose(second, (1,))
    stage.clock.advance(49)
    stage.timer.advance_clock()
    assert stage.asked == []
    stage.clock.advance(1)
    stage.timer.advance_clock()
    wishes, answered = stage.take()
    assert wishes == {(b"a" * 16, 0): [1], (b"b" * 16, 0): [1]}
    answered(errors.DisconnectError("lost"))
    stage.proposals.close()
    stage.later()
    assert stage.asked == []
    stage.propose(second, (1,))  # the broker has started again
    assert stage.take()[0] == {(b"b" * 16, 0): [1]}
