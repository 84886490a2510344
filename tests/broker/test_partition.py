"""One partition by itself: high watermark, ISR, what becomes of waiting writes, where a follower truncates."""

from dataclasses import replace
from functools import partial

import pytest

from kafkacore import errors
from kafkacore.broker.cluster import PartitionRegistration, Topic
from kafkacore.broker.delayed import CommitOutcome, DeletionOutcome
from kafkacore.broker.log import Log
from kafkacore.broker.partition import Appended, Partition, Replica, Role
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder, control_batch
from tests.kit.batches import T0, batch
from tests.kit.rows import each_row

LAG_MS = 1_000


class Leader:
    """A broker 1 with one partition, and followers played by the test."""

    def __init__(self, replicas=(1, 2, 3), min_isr=1):
        config = TopicConfig.build({"min.insync.replicas": str(min_isr)}, BrokerConfig())
        self.topic = Topic("t", b"i" * 16, config, [])
        self.partition = Partition(self.topic, 0, 1, Log(config), self, LAG_MS)
        self.replicas, self.proposed, self.ineligible = list(replicas), [], set()
        self.now_ms = 10_000
        self.decide(isr=replicas)

    def is_isr_eligible(self, partition, node_id, broker_epoch):
        return node_id not in self.ineligible

    def has_alive_broker(self, node_id):
        return node_id not in self.ineligible

    def propose_isr(self, partition, isr):
        self.proposed.append(isr)

    def decide(self, *, leader=1, isr, epoch=0, partition_epoch=None):
        at = self.partition.partition_epoch + 1 if partition_epoch is None else partition_epoch
        return self.partition.apply(self.topic, PartitionRegistration(self.replicas, list(isr), leader, epoch, at), self.now_ms)

    def write(self, count=1, acks=-1):
        return self.partition.append(batch([b"x"] * count), acks, 9, T0, self.now_ms)

    def fetch(self, node, offset, epoch=5, start=0):
        end_offset = self.partition.log.end_offset
        return self.partition.follower_fetched(node, offset, start, end_offset, epoch, self.now_ms)

    @property
    def hw(self):
        return self.partition.high_watermark


@pytest.fixture
def stage():
    return Leader()


def test_the_high_watermark_waits_for_all_in_sync_replicas(stage):
    stage.write(3)
    stage.fetch(2, 3)
    assert stage.hw == 0
    assert stage.fetch(3, 2)
    assert stage.hw == 2
    assert not stage.fetch(3, 2)
    stage.fetch(3, 3)
    assert stage.hw == 3
    stage.fetch(3, 1)  # a follower that truncated does not take it back
    assert stage.hw == 3


def test_a_batch_that_is_sent_again_waits_for_the_commit_of_all_of_it(stage):
    """The first answer was lost: the second one promises as much."""
    data = batch([b"x"] * 3, producer_id=7, epoch=0, sequence=0)
    first, again = (stage.partition.append(data, -1, 9, T0, stage.now_ms) for _ in range(2))
    assert (again.duplicate, again.base_offset, again.required_offset) == (True, first.base_offset, first.required_offset)
    assert not again.committed
    outcome = CommitOutcome(stage.partition, again.required_offset, lambda topic, index: stage.partition)
    for offset in (1, 2):
        stage.fetch(2, offset)
        stage.fetch(3, offset)
        assert not outcome.known()
    stage.fetch(2, 3)
    stage.fetch(3, 3)
    assert outcome.known()
    assert outcome.code is Code.NONE


def test_what_a_write_answers(stage):
    alone = Leader(replicas=(1,))
    alone.partition.log.truncate_fully_and_start_at(5)
    assert alone.write(3) == Appended(5, -1, 5, False, 8, True)
    assert stage.write(2) == Appended(0, -1, 0, False, 2, False)
    assert stage.write(acks=1) == Appended(2, -1, 0, False, 3, False)
    stage.replicas = [1, 2]
    stage.decide(isr=[1])
    assert (stage.write(acks=1).committed, stage.hw) == (False, 0)  # broker 2 may be about to join
    stage.ineligible.add(2)
    assert (stage.write().committed, stage.hw) == (False, 5)  # on all in-sync replicas, and not on all
    alone.topic.config = replace(alone.topic.config, message_timestamp_type="LogAppendTime")
    assert alone.write() == Appended(8, T0, 5, False, 9, True)
    data = batch([b"x"] * 2, producer_id=7, epoch=0, sequence=0)
    first, again = (alone.partition.append(data, -1, 9, T0 + nth, alone.now_ms) for nth in range(2))
    assert (first, again) == (Appended(9, T0, 5, False, 11, True), Appended(9, T0, 5, True, 11))
    alone.decide(leader=2, epoch=1, isr=[2])
    for write in (alone.write, lambda: alone.partition.append_internal(batch(), T0, 0), lambda: alone.partition.delete_records(6)):
        with pytest.raises(errors.NotLeaderOrFollower):
            write()


def test_a_transactional_batch_needs_the_coordinators_word():
    partition = Leader(replicas=(1,)).partition

    def write(producer_id, internal, **word):
        data = batch([b"x"], producer_id=producer_id, epoch=0, sequence=0, is_transactional=True)
        return partition.append_internal(data, T0, 0, **word) if internal else partition.append(data, -1, 9, T0, 0, **word)

    for producer_id, internal in ((1, False), (2, True)):
        with pytest.raises(errors.InvalidTxnState):
            write(producer_id, internal)
        guard = partition.producers.start_verification(producer_id, 0, 0, T0, False)
        assert not write(producer_id, internal, verification=guard).duplicate
        assert not write(producer_id + 2, internal, verification_enabled=False).duplicate
    marker = control_batch(1, producer_id=1, producer_epoch=0, timestamp_ms=T0)
    with pytest.raises(errors.InvalidProducerEpoch):  # the transaction's next version raises the epoch with each marker
        partition.append_internal(marker, T0, 0, transaction_version=2)
    assert partition.append_internal(marker, T0, 0).base_offset == 4


@each_row(("magic", "version", "base_offset"), [(0, 0, 2), (1, 2, 2), (2, 2, 2)])
def test_what_an_old_client_writes(magic, version, base_offset):
    stage = Leader(replicas=(1, 2), min_isr=2)
    builder = BatchBuilder(magic=0 if version < 2 else 1)
    assert builder.append(b"v", timestamp_ms=None if version < 2 else T0)
    data = bytes(builder.build())
    write = partial(stage.partition.append_messages, version=version, wall_ms=T0, now_ms=stage.now_ms, magic=magic)
    assert write(data + data, -1) == Appended(0, -1, 0, False, 2, False)
    assert write(data[:-1], -1) == Appended(-1, -1, 0, True, 2)
    stage.decide(isr=[1])
    with pytest.raises(errors.NotEnoughReplicas):
        write(data, -1)
    stage.topic.config = replace(stage.topic.config, message_timestamp_type="LogAppendTime")
    assert write(data, 1) == Appended(base_offset, T0 if magic else -1, 0, False, 3, False)
    with pytest.raises(errors.CorruptRecord):
        builder = BatchBuilder(magic=2)
        builder.append(b"v")
        write(bytes(builder.build()), 1)
    stage.decide(leader=2, epoch=1, isr=[2])
    with pytest.raises(errors.NotLeaderOrFollower):
        write(data, 1)


@each_row(
    ("leader", "epoch", "partition_epoch", "role", "now"),
    [
        (1, 3, 5, Role.UNCHANGED, (1, 3, 5)),
        (1, 3, 6, Role.UNCHANGED, (1, 3, 6)),
        (1, 3, 4, Role.UNCHANGED, (1, 3, 5)),
        (1, 2, 9, Role.UNCHANGED, (1, 3, 5)),
        (1, 4, 0, Role.LEADER, (1, 4, 0)),
        (2, 4, 6, Role.FOLLOWER, (2, 4, 6)),
        (2, 3, 5, Role.FOLLOWER, (2, 3, 5)),
        (-1, 4, 6, Role.FOLLOWER, (-1, 4, 6)),
    ],
)
def test_what_a_decision_makes_of_a_leader(leader, epoch, partition_epoch, role, now):
    stage = Leader()
    stage.decide(isr=[1, 2], epoch=3, partition_epoch=5)
    stage.write()
    outcomes = []
    stage.partition.when_committed(9, outcomes.append)
    stage.partition.pending_isr = (1,)
    assert stage.decide(leader=leader, epoch=epoch, partition_epoch=partition_epoch, isr=[1, 2, 3]) is role
    partition = stage.partition
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == now
    assert (partition.isr, partition.pending_isr) == (((1, 2), (1,)) if now == (1, 3, 5) else ((1, 2, 3), None))
    assert set(partition.remotes) == ({2, 3} if leader == 1 or now == (1, 3, 5) else set())
    assert partition.epoch_start_offset == (1 if role is Role.LEADER else 0)
    partition.settle()
    assert [type(each) for each in outcomes] == [errors.NotLeaderOrFollower] * (role is Role.FOLLOWER)
    assert partition.has_waiters() == (role is not Role.FOLLOWER)


def test_a_follower_of_the_same_epoch_stays_one(stage):
    assert stage.decide(leader=2, epoch=1, isr=[2, 3]) is Role.FOLLOWER
    assert stage.decide(leader=2, epoch=1, isr=[1, 2, 3]) is Role.UNCHANGED
    assert stage.partition.isr == (1, 2, 3)
    assert not stage.partition.look_again(stage.now_ms) and not stage.partition.is_under_min_isr
    stage.partition.maybe_shrink_isr(stage.now_ms + 10 * LAG_MS)
    stage.partition.resign(errors.NotLeaderOrFollower("the broker stops"))
    assert (stage.partition.leader, stage.proposed) == (-1, [])


@each_row(
    ("data", "high_watermark", "start", "moved", "now"),
    [
        (None, 2, 0, False, (0, 3, 2)),
        (None, 3, 0, True, (0, 3, 3)),
        (None, 9, 0, True, (0, 3, 3)),
        (None, 1, 0, False, (0, 3, 2)),  # it does not fall
        (None, 2, 1, True, (1, 3, 2)),
        (None, 2, 9, True, (2, 3, 2)),  # no further than what is committed
        (b"", 2, 0, False, (0, 3, 2)),
        (3, 2, 0, True, (0, 6, 2)),
        (3, 5, 4, True, (4, 6, 5)),
    ],
)
def test_what_a_follower_takes(data, high_watermark, start, moved, now):
    stage = Leader(replicas=(1,))
    stage.write(2)
    stage.decide(leader=2, epoch=1, isr=[2])
    stage.partition.append_as_follower(moved_to(2, 1), 2, 0, T0)
    answer = moved_to(data, 3) if isinstance(data, int) else data
    assert stage.partition.append_as_follower(answer, high_watermark, start, T0 + 5) == moved
    log = stage.partition.log
    assert (log.start_offset, log.end_offset, stage.hw) == now
    assert log.segments[-1].written_ms == T0 + 5 * isinstance(data, int)


def moved_to(offset, count):
    data = bytearray(batch([b"x"] * count))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_a_follower_that_copies_old_messages_keeps_their_epoch(stage):
    stage.decide(leader=2, epoch=4, isr=[2, 3])
    builder = BatchBuilder(magic=1)
    assert builder.append(b"v", timestamp_ms=T0)
    assert stage.partition.append_as_follower(bytes(builder.build()), 0, 0, T0)
    assert (stage.partition.log.end_offset, stage.partition.log.epochs) == (1, [(0, 0), (4, 0)])


def test_when_a_follower_was_caught_up():
    follower = Replica()
    seen = []
    for offset, leader_end, now_ms in ((0, 10, 1_000), (9, 12, 1_100), (10, 12, 1_200), (12, 15, 1_300), (15, 15, 1_400), (14, 15, 1_500)):
        follower.fetched(offset, offset // 2, leader_end, 3, now_ms)
        seen.append((follower.last_caught_up_ms, follower.log_end_offset, follower.log_start_offset))
    assert seen == [(0, 0, 0), (0, 9, 4), (0, 10, 5), (1_200, 12, 6), (1_400, 15, 7), (1_400, 14, 7)]
    assert [follower.is_caught_up(15, now_ms, 100) for now_ms in (1_500, 1_501)] == [True, False]
    assert follower.is_caught_up(14, 9_999, 100)
    follower.fetched(14, 7, 14, -1, 1_400)  # an answer that was late
    assert (follower.last_caught_up_ms, follower.broker_epoch, follower.leader_end_at_fetch) == (1_400, 3, 15)
    for in_sync, new_leader, expected in (
        (True, False, (2_000, 20, 2_000, 14, 3)),
        (False, False, (0, 0, 0, 14, 3)),
        (True, True, (2_000, -1, 0, -1, -1)),
        (False, True, (0, -1, 0, -1, -1)),
    ):
        made = Replica()
        made.fetched(14, 7, 15, 3, 1_000)
        made.reset(2_000, 20, in_sync, new_leader)
        found = made.last_caught_up_ms, made.leader_end_at_fetch, made.fetched_at_ms, made.log_end_offset, made.broker_epoch
        assert (found, made.log_start_offset) == (expected, -1 if new_leader else 7)


def test_a_session_speaks_for_a_follower_until_it_takes_the_partition_up():
    class Session:
        def __init__(self, last_used_ms):
            self.last_used_ms, self.marked = last_used_ms, []

        def mark(self, key):
            self.marked.append(key)

    follower, first, second = Replica(), Session(3_000), Session(5_000)
    follower.fetched(10, 0, 10, 1, 1_000)
    follower.left_out_by(first, "a")
    assert follower.last_caught_up_ms == 3_000
    follower.taken_up_by(second)  # does not speak for it
    follower.left_out_by(second, "b")
    assert (first.marked, follower.last_caught_up_ms) == (["a"], 5_000)
    follower.taken_up_by(second)
    second.last_used_ms = 9_000
    assert (follower.last_caught_up_ms, follower.fetched_at_ms) == (5_000, 5_000)
    follower.left_out_by(second, "c")
    follower.fetched(10, 0, 11, 1, 9_500)
    assert (second.marked, follower.last_caught_up_ms) == (["c"], 9_000)
    follower.reset(9_600, 11, True, True)
    follower.fetched(10, 0, 11, 1, 9_700)
    assert second.marked == ["c"]


def test_a_write_of_the_brokers_own_is_fenced_by_its_producers_epoch():
    alone = Leader(replicas=(1,))

    def write(epoch):
        data = batch([b"x"], producer_id=7, epoch=epoch, sequence=0)
        return alone.partition.append_internal(data, T0, alone.now_ms)

    assert write(1).base_offset == 0
    assert write(2).base_offset == 1  # a coordinator's batches have no sequence to keep
    with pytest.raises(errors.InvalidProducerEpoch):
        write(1)
    assert alone.partition.append_internal(batch([b"x"]), T0, alone.now_ms).base_offset == 2
    largest = alone.topic.config.max_message_bytes
    payload = bytes(largest - len(batch([bytes(10**6)])) + 10**6)
    with pytest.raises(errors.RecordTooLarge, match=f"the batch has {largest + 1} bytes, max.message.bytes is {largest}"):
        alone.partition.append_internal(batch([payload + b"x"]), T0, alone.now_ms)
    assert alone.partition.append_internal(batch([payload]), T0, alone.now_ms).base_offset == 3


def test_a_follower_outside_the_isr_gets_no_time_by_a_decision_about_others():
    for in_sync in (True, False):
        follower = Replica()
        follower.fetched(0, 0, 10, 1, 1_000)
        follower.reset(5_000, 10, in_sync, False)
        follower.fetched(4, 0, 10, 1, 5_100)
        assert follower.is_caught_up(10, 5_200, LAG_MS) is in_sync
        follower.fetched(10, 0, 10, 1, 7_000)
        assert follower.is_caught_up(12, 7_100, LAG_MS)


def test_who_is_to_leave_the_isr_counts_until_the_controller_agrees(stage):
    stage.fetch(2, 0)
    stage.write()
    stage.now_ms += LAG_MS + 1
    stage.fetch(2, 1)
    stage.partition.maybe_shrink_isr(stage.now_ms)
    assert stage.proposed == [(1, 2)]
    stage.partition.maybe_shrink_isr(stage.now_ms)
    assert stage.proposed == [(1, 2)]  # one at a time
    assert (stage.hw, stage.partition.maximal_isr) == (0, (1, 2, 3))
    assert stage.partition.isr_committed(0, stage.partition.partition_epoch + 1, [1, 2], stage.now_ms)
    assert (stage.hw, stage.partition.isr) == (1, (1, 2))


def test_who_is_to_join_the_isr_counts_at_once(stage):
    stage.decide(isr=[1, 2])
    stage.write()
    stage.fetch(2, 1)
    stage.now_ms += LAG_MS + 1
    stage.partition.look_again(stage.now_ms)
    assert stage.hw == 1
    stage.fetch(3, 1)
    assert (stage.proposed, stage.partition.maximal_isr) == ([(1, 2, 3)], (1, 2, 3))
    stage.write()
    stage.fetch(2, 2)
    assert stage.hw == 1
    stage.partition.isr_refused(0)
    assert stage.partition.maximal_isr == (1, 2)


def test_a_follower_that_has_caught_up_is_waited_for_before_it_is_in_the_isr(stage):
    stage.ineligible.add(3)
    stage.decide(isr=[1, 2])
    stage.fetch(3, 0)
    assert stage.proposed == []
    stage.ineligible.clear()
    stage.write()
    stage.fetch(2, 1)
    assert (stage.hw, stage.partition.is_at_rest) == (0, False)
    stage.now_ms += LAG_MS + 1
    assert stage.partition.look_again(stage.now_ms)  # it has not come: nobody waits longer than the lag time
    assert (stage.hw, stage.partition.is_at_rest) == (1, True)


def test_below_min_isr_nothing_is_committed():
    stage = Leader(min_isr=2)
    stage.write()
    stage.decide(isr=[1])
    with pytest.raises(errors.NotEnoughReplicas):
        stage.write()
    with pytest.raises(errors.NotEnoughReplicas):
        stage.partition.append_internal(batch(), T0, stage.now_ms)
    stage.write(acks=1)
    assert stage.hw == 0
    stage.fetch(2, 2)
    assert stage.proposed == [(1, 2)]
    stage.decide(isr=[1, 2])
    stage.now_ms += LAG_MS + 1
    stage.partition.look_again(stage.now_ms)
    assert stage.hw == 2


def test_no_more_replicas_must_be_in_sync_than_there_are():
    stage = Leader(replicas=(1, 2), min_isr=3)
    stage.write()
    stage.fetch(2, 1)
    assert stage.hw == 1
    stage.decide(isr=[1])
    with pytest.raises(errors.NotEnoughReplicas, match="1 replicas are in sync, 2 must be"):
        stage.write()
    alone = Leader(replicas=(1,), min_isr=2)
    alone.write()
    assert alone.hw == 1


def test_waiting_writes_have_an_outcome_whatever_comes():
    """The ISR gets too small in the moment of the commit, the leader goes, the topic goes."""
    for isr, leader, gone, code in (
        ([1], 1, None, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        ([2, 3], 2, None, Code.NOT_LEADER_OR_FOLLOWER),
        ([2, 3], 2, errors.KafkaStorage, Code.NOT_LEADER_OR_FOLLOWER),
        ([2, 3], 2, errors.UnknownTopicOrPartition, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        stage = Leader(min_isr=2)

        def find(topic, index, stage=stage, gone=gone):
            if gone:
                raise gone("gone")
            return stage.partition

        outcome = CommitOutcome(stage.partition, stage.write().required_offset, find)
        deletion = DeletionOutcome(stage.partition, 1, find)
        assert not outcome.known() and not deletion.known()
        if leader == 1:
            stage.fetch(2, 1)
            stage.fetch(3, 1)
        stage.decide(leader=leader, epoch=leader - 1, isr=isr)
        assert (outcome.known(), outcome.code) == (True, code)
        assert (deletion.known(), deletion.code) == ((False, Code.REQUEST_TIMED_OUT) if leader == 1 else (True, code))


def test_commits_are_told_in_order_and_a_bug_in_one_keeps_nobody_from_hearing(stage, caplog):
    reported = []
    first, second = stage.write(), stage.write()
    stage.partition.when_committed(first.required_offset, lambda error: 1 / 0)
    stage.partition.when_committed(second.required_offset, reported.append)
    stage.partition.settle()
    assert reported == []
    for node in (2, 3):
        stage.fetch(node, 2)
    stage.partition.settle()
    assert reported == [None]
    assert "callback" in caplog.text
    stage.partition.when_committed(stage.write().required_offset, lambda error: 1 / 0)
    stage.partition.when_committed(stage.write().required_offset, reported.append)
    stage.decide(leader=2, epoch=1, isr=[2, 3])
    stage.partition.settle()
    assert isinstance(reported[1], errors.NotLeaderOrFollower)


def test_a_follower_is_in_sync_while_it_has_what_there_was_at_its_last_fetch(stage):
    for _ in range(5):
        stage.write()
        for node in (2, 3):
            stage.fetch(node, stage.partition.log.end_offset - 1)  # always one behind, and never late
        stage.now_ms += LAG_MS // 2
        stage.partition.maybe_shrink_isr(stage.now_ms)
    assert stage.proposed == []


def test_who_speaks_for_a_follower(stage):
    stage.write()
    stage.fetch(2, 1, epoch=7)
    with pytest.raises(errors.NotLeaderOrFollower):
        stage.fetch(2, 1, epoch=6)  # an earlier life of it
    with pytest.raises(errors.NotLeaderOrFollower):
        stage.fetch(4, 1)


def test_a_new_leader_knows_nothing_of_its_followers_and_old_decisions_are_ignored(stage):
    stage.write()
    for node in (2, 3):
        stage.fetch(node, 1)
    assert stage.decide(leader=2, epoch=1, isr=[1, 2, 3]) is Role.FOLLOWER
    assert stage.partition.remotes == {}
    assert stage.decide(leader=1, epoch=2, isr=[1, 2, 3]) is Role.LEADER
    assert {replica.log_end_offset for replica in stage.partition.remotes.values()} == {-1}
    assert (stage.partition.epoch_start_offset, stage.partition.log.epochs) == (1, [(0, 0), (2, 1)])
    assert stage.decide(leader=2, epoch=1, isr=[2], partition_epoch=99) is Role.UNCHANGED
    assert stage.decide(leader=1, epoch=2, isr=[1], partition_epoch=0) is Role.UNCHANGED
    assert stage.partition.isr == (1, 2, 3)
    assert not stage.partition.isr_committed(1, 50, [1], stage.now_ms)
    assert stage.partition.isr == (1, 2, 3)


def test_epochs_of_peers(stage):
    stage.decide(leader=1, epoch=3, isr=[1, 2, 3])
    for epoch, error in ((2, errors.FencedLeaderEpoch), (4, errors.UnknownLeaderEpoch)):
        with pytest.raises(error):
            stage.partition.check_leader(epoch)
    stage.partition.check_leader(3)
    stage.partition.check_leader()
    stage.decide(leader=2, epoch=4, isr=[1, 2, 3])
    stage.partition.check_epoch(4)
    with pytest.raises(errors.NotLeaderOrFollower):
        stage.partition.check_leader(4)


@each_row(
    ("epoch", "end_offset", "cut"),
    [
        (2, 6, 6),  # the same epoch, shorter there
        (2, 99, 9),  # longer there: nothing to cut in it
        (1, 3, 3),  # an older epoch ended earlier there
        (1, 99, 5),  # later there: epoch 2 goes, the rest is asked for again
        (0, 1, 1),
        (-1, 4, 4),  # the leader has no epochs
        (-1, -1, 2),  # nor an offset: back to what is known to be committed
        (4, 6, 6),  # an epoch that is newer than all here
    ],
)
def test_where_a_follower_truncates(epoch, end_offset, cut):
    stage = Leader(replicas=(1,))
    for leader_epoch, records in ((0, 2), (1, 3), (2, 4)):
        stage.decide(isr=[1], epoch=leader_epoch)
        stage.write(records)
    stage.replicas = [1, 2]
    stage.decide(leader=2, epoch=3, isr=[1, 2])
    stage.partition.high_watermark = 2
    assert stage.partition.truncation_offset(epoch, end_offset) == cut
    stage.partition.truncate(cut)
    assert stage.partition.log.end_offset <= cut
    assert stage.hw == min(2, stage.partition.log.end_offset)


def test_the_low_watermark_is_that_of_the_live_replicas(stage):
    stage.write(5)
    for node in (2, 3):
        stage.fetch(node, 5)
    assert stage.partition.delete_records(4) == 4
    assert stage.partition.low_watermark == 0
    assert stage.fetch(2, 5, start=4)
    stage.ineligible.add(3)
    assert stage.partition.low_watermark == 4
    with pytest.raises(errors.OffsetOutOfRange) as refused:
        stage.partition.delete_records(6)
    assert refused.value.offset == 6
    with pytest.raises(errors.OffsetOutOfRange):
        stage.partition.delete_records(-2)
    assert stage.partition.delete_records(-1) == 5


@pytest.mark.parametrize("has_other_records", [False, True])
def test_a_follower_begins_with_the_whole_batch_in_which_its_leaders_log_begins(stage, has_other_records):
    if has_other_records:  # all of them below the leader's start
        stage.write(4)
    stage.decide(leader=2, isr=[2, 3], epoch=1)
    if not has_other_records:
        stage.partition.restart_at(4)  # DeleteRecords said so
    data = bytearray(batch())
    data[7] = 3
    stage.partition.append_as_follower(bytes(data), 6, 4, T0)
    assert (stage.partition.log.start_offset, stage.partition.log.end_offset, stage.hw) == (4, 6, 6)
