"""A coordinator whose followers hang: writes end in time, reads are answered from what is committed, and the state stays right."""

from dataclasses import replace
from functools import partial

import pytest
from controlling import create_topic, delete_topic
from group_bench import GroupBench, Pending
from hypothesis import given, settings
from hypothesis import strategies as st
from test_coordinator import RuntimeBench, adding

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult
from kafkacore.broker.groups.offsets import OffsetStore
from kafkacore.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from kafkacore.errors import Code
from kafkacore.protocol.stored import OffsetCommitKey, OffsetCommitValue
from tests.kit.batches import T0
from tests.kit.inside import contexts_of
from tests.kit.reached import Reached

A0, A1 = ("a", 0), ("a", 1)
NO_ANSWER = None


class Replicated:
    """A partition of this broker with a follower, which fetches when the test says so."""

    def __init__(self, bench, topic, high_watermark=None):
        self.bench, self.topic = bench, topic
        self.lead(high_watermark)

    def lead(self, high_watermark=None):
        """This broker leads in another epoch; its high watermark may lie behind what the last leader committed."""
        known = self.bench.state.cluster.topics[self.topic]
        before = known.partitions[0]
        known.partitions[0] = replace(
            before, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
        )
        if high_watermark is not None:
            self.partition.high_watermark = high_watermark
        self.bench.state.replicas.update(known, 0)

    @property
    def partition(self):
        return self.bench.state.replicas.partition(self.topic, 0)

    def fetched(self, offset=None):
        """The follower has everything below an offset; all if left out."""
        partition = self.partition
        end_offset = partition.log.end_offset
        self.bench.state.replicas.follower_fetched(partition, 2, end_offset if offset is None else offset, 0, end_offset, -1)


def bench_with_follower(**config):
    bench = GroupBench(**config)
    bench.topic("a", 2)
    follower = Replicated(bench, GROUP_TOPIC)
    follower.fetched()
    return bench, follower


def send_commit(bench, offset, group="g", at=A0):
    part = p.OffsetCommitRequestPartition(partition_index=at[1], committed_offset=offset, committed_metadata="")
    topics = [p.OffsetCommitRequestTopic(name=at[0], partitions=[part])]
    return bench.send(p.OffsetCommitRequest(group_id=group, topics=topics), 8)


def codes_of_commit(pending: Pending):
    return NO_ANSWER if pending.waits else {part.error_code for topic in pending.response.topics for part in topic.partitions}


def send_fetch(bench, require_stable, group="g"):
    topics = [p.OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    wanted = p.OffsetFetchRequestGroup(group_id=group, topics=topics)
    return bench.send(p.OffsetFetchRequest(groups=[wanted], require_stable=require_stable), 8)


def group_code(pending):
    return NO_ANSWER if pending.waits else pending.response.groups[0].error_code


# ---- writes


def test_a_commit_ends_after_offsets_commit_timeout_and_the_next_one_too_and_counts_when_the_followers_are_back():
    bench, follower = bench_with_follower(offsets_commit_timeout_ms=700)
    first = send_commit(bench, 1)
    assert codes_of_commit(first) is NO_ANSWER
    bench.advance(699)
    assert codes_of_commit(first) is NO_ANSWER
    bench.advance(1)
    assert codes_of_commit(first) == {Code.COORDINATOR_NOT_AVAILABLE}
    second = send_commit(bench, 2)
    bench.advance(700)
    assert codes_of_commit(second) == {Code.COORDINATOR_NOT_AVAILABLE}
    third = send_commit(bench, 3)
    assert bench.fetch(A0) == {A0: -1}
    follower.fetched(follower.partition.log.end_offset - 1)  # the second is committed, late
    assert (bench.fetch(A0), codes_of_commit(third)) == ({A0: 2}, NO_ANSWER)
    follower.fetched()
    assert (bench.fetch(A0), codes_of_commit(third)) == ({A0: 3}, {Code.NONE})
    bench.advance(10_000)  # no deadline of an answered request is left
    follower.lead()
    follower.fetched()
    assert bench.fetch(A0) == {A0: 3}


def test_what_timed_out_is_not_collected_while_a_partition_is_stuck():
    stage = RuntimeBench()
    stage.replicas.hold = True
    for _ in range(2_000):
        answer = stage.add(b"x", 1)
        stage.clock.advance(5_000)
        stage.timer.advance_clock()
        assert [type(each) for each in answer] == [errors.CoordinatorNotAvailable]
    assert len(contexts_of(stage.runtime)[0].waiting) <= 2
    waiting = stage.add(b"x", 1)
    for done in stage.replicas.uncommitted:
        done(None)
    assert waiting == [2_001]


def test_one_answer_that_fails_keeps_no_other_from_being_given(caplog):
    stage = RuntimeBench()
    stage.replicas.hold = True

    def broken(outcome):
        raise ZeroDivisionError("a bug")

    stage.add(b"x", 1, done=broken)
    second = stage.add(b"x", 1)
    for done in stage.replicas.uncommitted:
        done(None)
    assert second == [2]
    assert "an answer of __consumer_offsets-0 failed" in caplog.text


# ---- reads


def test_require_stable_waits_for_the_group_s_own_records_and_no_longer_than_a_commit():
    bench, follower = bench_with_follower()
    commit = send_commit(bench, 1)
    stable, other = send_fetch(bench, True), send_fetch(bench, True, group="other")
    assert (group_code(stable), group_code(other)) == (NO_ANSWER, Code.NONE)
    bench.advance(5_000)
    assert group_code(stable) == Code.NOT_COORDINATOR  # what consumers before 3.9 try again after
    assert codes_of_commit(commit) == {Code.COORDINATOR_NOT_AVAILABLE}
    again = send_fetch(bench, True)
    follower.fetched()
    assert again.response.groups[0].topics[0].partitions[0].committed_offset == 1


def test_what_a_new_leader_found_beyond_its_high_watermark_is_neither_told_nor_denied():
    bench = GroupBench()
    bench.topic("a", 2)
    assert bench.commit({A0: 41}) == {A0: 0}
    assert bench.commit({A0: 42}) == {A0: 0}  # told to its client
    follower = Replicated(bench, GROUP_TOPIC, high_watermark=1)
    asked = send_fetch(bench, False)
    assert asked.waits  # 41 would be wrong
    bench.advance(5_000)
    assert group_code(asked) == Code.NOT_COORDINATOR
    asked = send_fetch(bench, False)
    follower.fetched()
    assert asked.response.groups[0].topics[0].partitions[0].committed_offset == 42


def stuck_group():
    """A stable group in a partition where nothing is committed from now on but by `fetched`."""
    bench = GroupBench()
    bench.topic("a", 2)
    generation, members, _ = bench.stable("x", "y")
    follower = Replicated(bench, GROUP_TOPIC)
    follower.fetched()
    return bench, follower, generation, members


def test_heartbeats_do_not_wait_for_a_commit_nor_do_descriptions_of_other_groups():
    bench, follower, generation, (member, _) = stuck_group()
    assert send_commit(bench, 1, group="other").waits
    assert bench.heartbeat(member, generation) == Code.NONE
    assert bench.ask(p.DescribeGroupsRequest(groups=["g"]), 5).groups[0].group_state == "Stable"
    listed = bench.ask(p.ListGroupsRequest(), 5)
    assert (listed.error_code, "g" in {group.group_id for group in listed.groups}) == (Code.NONE, True)
    follower.fetched()
    assert bench.fetch(A0, group="other") == {A0: 1}


def test_a_description_waits_for_the_group_s_own_records_until_the_deadline():
    bench, _, generation, (member, _) = stuck_group()
    part = p.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topics = [p.OffsetCommitRequestTopic(name="a", partitions=[part])]
    request = p.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=generation, member_id=member, topics=topics)
    assert bench.send(request, 8).waits
    described = bench.send(p.DescribeGroupsRequest(groups=["g"]), 5)
    assert described.waits
    bench.advance(5_000)
    assert described.response.groups[0].error_code == Code.COORDINATOR_NOT_AVAILABLE


def test_a_sync_that_cannot_be_committed_ends_in_time_and_the_group_rebalances():
    bench = GroupBench()
    bench.topic("a", 2)
    follower = Replicated(bench, GROUP_TOPIC)
    follower.fetched()
    member = bench.known_id()
    joined = bench.join(member)
    bench.advance()
    follower.fetched()
    generation = joined.response.generation_id
    synced = bench.sync(member, generation, {member: b"all"})
    assert synced.waits
    bench.advance(5_000)
    assert synced.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.heartbeat(member, generation) == Code.REBALANCE_IN_PROGRESS
    joined = bench.join(member)
    bench.advance()
    follower.fetched()
    assert joined.response.generation_id > generation
    synced = bench.sync(member, joined.response.generation_id, {member: b"all"})
    follower.fetched()
    assert (synced.response.error_code, synced.response.assignment) == (Code.NONE, b"all")


def static_member_comes_back():
    """A stable group with a static member, which comes back without its id; its new id is in the log and not committed."""
    bench, follower = bench_with_follower()
    bench.join(instance="i", session_ms=60_000)
    bench.advance(3_000)
    follower.fetched()
    (old_id,) = bench.group().members
    synced = bench.sync(old_id, 1, {old_id: b"all"}, instance="i")
    follower.fetched()
    assert synced.response.assignment == b"all"
    back = bench.join(instance="i", session_ms=60_000)
    assert back.waits
    return bench, follower, old_id, back


def test_a_static_member_that_came_back_goes_on_under_its_old_id_if_the_new_one_is_not_committed_in_time():
    bench, follower, old_id, back = static_member_comes_back()
    bench.advance(5_000)
    assert back.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert bench.heartbeat(old_id, 1, instance="i") == Code.NONE
    again = bench.join(instance="i", session_ms=60_000)
    follower.fetched()
    (new_id,) = bench.group().members
    assert (again.response.error_code, again.response.generation_id, again.response.member_id) == (Code.NONE, 1, new_id)
    assert bench.heartbeat(old_id, 1, instance="i") == Code.FENCED_INSTANCE_ID


@pytest.mark.parametrize("late", [False, True])
def test_a_static_member_that_comes_back_twice_is_answered_as_the_second_one(late):
    bench, follower, _, first = static_member_comes_back()
    bench.advance(4_000)
    second = bench.join(instance="i", session_ms=60_000)
    assert first.response.error_code == Code.FENCED_INSTANCE_ID
    bench.advance(1_000)  # the first one's deadline: the member is the second one's by now
    assert second.waits
    if late:
        bench.advance(4_000)
        assert second.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
        second = bench.join(instance="i", session_ms=60_000)
    follower.fetched()
    assert (second.response.error_code, second.response.generation_id) == (Code.NONE, 1)
    assert list(bench.group().members) == [second.response.member_id]
    assert bench.heartbeat(second.response.member_id, 1, instance="i") == Code.NONE


def test_a_static_member_that_came_back_and_has_joined_the_next_generation_keeps_its_new_id():
    bench, _, _, back = static_member_comes_back()
    other = bench.join(bench.known_id(session_ms=60_000), session_ms=60_000)
    bench.advance()
    assert (back.response.error_code, back.response.generation_id) == (Code.NONE, 2)
    new_id = back.response.member_id
    bench.advance(5_000)  # the deadline of the record that named it
    assert not other.waits
    assert bench.heartbeat(new_id, 2, instance="i") == Code.NONE
    synced = bench.sync(new_id, 2, {new_id: b"x"} if back.response.leader == new_id else None, instance="i")
    assert synced.waits or synced.response.error_code == Code.NONE


def test_a_static_member_that_came_back_and_left_stays_away():
    bench, follower, _, back = static_member_comes_back()
    request = p.LeaveGroupRequest(group_id="g", members=[p.MemberIdentity(member_id="", group_instance_id="i")])
    left = bench.send(request, 5)
    bench.advance(5_000)
    assert not back.waits and not left.waits
    follower.fetched()
    assert not bench.group().members
    bench.advance(60_000)
    follower.fetched()
    assert not bench.group().members


def test_a_consumer_group_heartbeat_does_not_tell_an_epoch_that_may_be_lost():
    bench, follower = bench_with_follower()
    request = p.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=30_000, subscribed_topic_names=["a"], topic_partitions=[]
    )
    first = bench.send(request, 1)
    other = bench.send(request._replace(group_id="h"), 1)
    assert first.waits and other.waits
    bench.advance(5_000)
    assert first.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
    member = contexts_of(bench.state.groups.runtime)[0].shard.groups["g"].members["m"]
    end_offset = follower.partition.log.end_offset
    beat = request._replace(member_epoch=member.epoch, rebalance_timeout_ms=-1, subscribed_topic_names=None, topic_partitions=None)
    second = bench.send(beat, 1)
    assert (second.waits, follower.partition.log.end_offset) == (True, end_offset)  # it writes nothing and rests on what the first wrote
    follower.fetched()
    assert (second.response.error_code, second.response.member_epoch) == (Code.NONE, member.epoch)
    assert not bench.send(beat, 1).waits


RECORDS = st.one_of(
    st.tuples(st.just("commit"), st.integers(-1, 1), st.integers(0, 1), st.integers(0, 1)),  # producer, group, partition
    st.tuples(st.just("commit"), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)),
    st.tuples(st.just("delete"), st.just(-1), st.integers(0, 1), st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 1), st.integers(0, 1), st.just(0)),  # producer, committed
)


def note(record, open_, uncommitted):
    """Which branch a record comes to: `open_` are the records of open transactions by producer."""
    kind, producer, number, _ = record
    if kind == "commit" and producer >= 0:
        open_.setdefault(producer, []).append(record)
    elif kind == "delete":
        for mine in open_.values():
            mine.extend(record for each in mine[:1] if each[2:] == record[2:])
    elif kind == "end":
        mine = open_.pop(producer, [])
        commits = [each for each in mine if each[0] == "commit"]
        stored("ended without offsets", not mine)
        stored("a transaction aborts", mine and not number)
        stored("deleted inside a transaction that commits", number and len(commits) < len(mine))
        places = {each[2:] for each in commits}
        before = [each for each in uncommitted if each[0] == "commit" and each[1] != producer and each[2:] in places]
        stored("a transaction commits over an offset that is not committed yet", number and before)
        stored("two transactions commit one partition, not committed yet", number and any(each[1] >= 0 for each in before))


stored = Reached(
    "a transaction commits over an offset that is not committed yet",
    "a transaction aborts",
    "deleted inside a transaction that commits",
    "two transactions commit one partition, not committed yet",
    "ended without offsets",
)


@partial(stored.by, rounds=10)
@given(st.lists(st.tuples(RECORDS, st.sampled_from([0, 0, 0, 1, 3])), min_size=8, max_size=30))
@settings(max_examples=10)
def test_committed_offsets_are_those_of_a_store_that_read_the_committed_records_only(steps):
    """The oracle: another store that replays the log up to the high watermark and no further."""

    def apply(store, offset, record):
        kind, producer, number, partition = record
        if kind == "end":
            store.replay_end_marker(offset, producer, bool(number))
            return
        key = OffsetCommitKey(group=f"g{number}", topic="a", partition=partition)
        value = OffsetCommitValue(offset=offset * 10, metadata="", commit_timestamp=T0) if kind == "commit" else None
        store.replay(offset, producer, key, value)

    store, oracle, log, committed = OffsetStore(), OffsetStore(), [], 0
    open_: dict[int, list] = {}
    for record, reached in steps:
        note(record, open_, log[committed:])
        apply(store, len(log), record)
        log.append(record)
        if reached:
            moved = min(committed + reached, len(log))
            store.committed_to(moved)
            for offset in range(committed, moved):
                apply(oracle, offset, log[offset])
            committed = moved
        for group in ("g0", "g1"):
            assert store.committed_of_group(group) == oracle.of_group(group)
    store.committed_to(len(log))
    assert not store._before and not store._uncommitted


# ---- transactions


def transaction_bench(**config):
    bench = GroupBench(transaction_state_log_num_partitions=1, transaction_state_log_replication_factor=1, **config)
    bench.ask(p.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
    bench.topic("a", 2)
    answer = bench.ask(p.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    follower = Replicated(bench, TRANSACTION_TOPIC)
    follower.fetched()
    return bench, follower, answer


def add(bench, producer, index=0):
    topics = [p.AddPartitionsToTxnTopic(name="a", partitions=[index])]
    request = p.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    return bench.send(request, 3)


def state_of(bench):
    """As the shard has it, committed or not."""
    (context,) = contexts_of(bench.state.transactions.runtime).values()
    return context.shard.transactions["x"].state.label


def end(bench, producer):
    request = p.EndTxnRequest(
        transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )
    return bench.send(request, 3)


def test_a_decision_that_was_not_committed_in_time_is_carried_out_when_it_is():
    bench, follower, producer = transaction_bench(request_timeout_ms=2_000)
    added = add(bench, producer)
    follower.fetched()
    assert added.response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == Code.NONE
    ended = end(bench, producer)
    bench.advance(1_999)
    assert ended.waits
    bench.advance(1)
    assert ended.response.error_code == Code.COORDINATOR_NOT_AVAILABLE
    log = bench.state.replicas.partition("a", 0).log
    assert (state_of(bench), log.end_offset) == ("PrepareCommit", 0)  # no marker of a decision that may be lost
    assert end(bench, producer).response.error_code == Code.CONCURRENT_TRANSACTIONS
    follower.fetched()
    assert log.end_offset == 1  # the marker
    follower.fetched()
    assert state_of(bench) == "CompleteCommit"
    assert end(bench, producer).response.error_code == Code.NONE


def test_a_partition_is_not_confirmed_twice_into_a_transaction_before_it_is_committed():
    bench, follower, producer = transaction_bench()
    first = add(bench, producer)
    bench.advance(30_000)
    codes_of = lambda pending: pending.response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code  # noqa: E731
    assert codes_of(first) == Code.COORDINATOR_NOT_AVAILABLE
    second = add(bench, producer)
    assert second.waits
    follower.fetched()
    assert codes_of(second) == Code.NONE


# ---- many tombstones


def bench_of_many_offsets(groups, **config):
    """Their tombstones do not fit into one batch."""
    bench = GroupBench(message_max_bytes=20_000, **config)
    bench.topic("a", 200)
    for group in range(groups):
        assert set(bench.commit({("a", index): 7 for index in range(200)}, group=f"group-{group}").values()) == {0}
    return bench


def test_the_offsets_of_a_deleted_topic_go_however_many_they_are():
    bench = bench_of_many_offsets(4)
    assert len(bench.fetch(group="group-1")) == 200
    log = bench.state.replicas.partition(GROUP_TOPIC, 0).log
    before = log.end_offset
    delete_topic(bench.state.controller, "a")
    assert log.end_offset == before + 800
    create_topic(bench.state.controller, "a", 1)
    assert bench.fetch(A0, group="group-1") == {A0: -1}
    bench.reload()
    assert bench.fetch(group="group-1") == {}


def test_groups_with_many_offsets_are_deleted_and_expire():
    bench = bench_of_many_offsets(8, offsets_retention_minutes=10)
    doomed = [f"group-{group}" for group in range(4)]
    answer = bench.ask(p.DeleteGroupsRequest(groups_names=[*doomed, "unknown"]), 2)
    assert [each.error_code for each in answer.results] == [Code.NONE] * 4 + [Code.GROUP_ID_NOT_FOUND]
    assert [bench.group(group) for group in doomed] == [None] * 4
    bench.advance(30 * 60_000)
    assert not bench.shard.groups and len(bench.shard.offsets) == 0
    bench.reload()
    assert not bench.shard.groups and len(bench.shard.offsets) == 0


def test_the_offsets_of_a_topic_that_was_deleted_while_nothing_could_be_written_go_later():
    bench = GroupBench()
    bench.topic("a", 2)
    bench.commit({A0: 5}, version=8)
    with bench.no_appends():
        delete_topic(bench.state.controller, "a")
        bench.advance(2_000)
        create_topic(bench.state.controller, "a", 2)
    assert bench.commit({A1: 9}) == {A1: 0}  # of the new topic
    bench.advance(500)
    assert bench.fetch(A0, A1) == {A0: -1, A1: 9}


def test_an_offset_without_a_topic_id_is_that_of_the_deleted_topic_only_if_it_was_committed_before():
    bench = GroupBench()
    store = bench.shard.offsets
    for partition in range(2):  # as transactions commit them
        key = OffsetCommitKey(group="g", topic="a", partition=partition)
        store.replay(10 + partition, -1, key, OffsetCommitValue(offset=5, metadata="", commit_timestamp=T0))
    result = bench.shard.topic_deleted("a", bytes(range(16)), 11)
    assert [record.value for record in result.records] == [None]
    assert result.records[0].key.endswith(b"\0\0\0\0")


def test_the_offset_of_a_transaction_goes_with_its_topic_after_the_wall_clock_went_back():
    bench, follower = bench_with_follower()
    bench.topic("b", 1)
    part = p.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topics = [p.TxnOffsetCommitRequestTopic(name=name, partitions=[part]) for name in "ab"]
    request = p.TxnOffsetCommitRequest(transactional_id="t", group_id="g", producer_id=7, producer_epoch=0, topics=topics)
    outcome, groups = [], bench.state.groups
    groups.runtime.write(0, lambda shard: shard.commit_in_transaction(request)._replace(committed=None), outcome.append, "g")
    follower.fetched()
    assert bench.fetch(A0, ("b", 0)) == {A0: 5, ("b", 0): 5}
    bench.clock.set_wall_ms(T0 - 3_600_000)
    delete_topic(bench.state.controller, "a")
    follower.fetched()
    assert bench.fetch(A0, ("b", 0)) == {A0: -1, ("b", 0): 5}


def test_records_that_count_one_by_one_are_written_in_several_batches_and_the_others_in_one():
    stage = RuntimeBench(partitions=1)
    limit = stage.replicas.partition(GROUP_TOPIC, 0).config.max_message_bytes
    many = [CoordinatorRecord(b"x" * 1000, b"\0\0\0\1") for _ in range(3 * limit // 1000)]
    outcome = []
    stage.runtime.write(0, lambda shard: CoordinatorResult(many, "all", is_atomic=False), outcome.append)
    assert (outcome, stage.look()) == (["all"], [{b"x" * 1000: len(many)}])
    stage.runtime.write(0, lambda shard: CoordinatorResult(many, "all"), outcome.append)
    assert type(outcome[1]) is errors.UnknownServer
    assert stage.look() == [{b"x" * 1000: len(many)}]
    huge = [CoordinatorRecord(b"y", b"\0\0\0\1"), CoordinatorRecord(b"x" * limit, b"\0\0\0\1")]
    stage.runtime.write(0, lambda shard: CoordinatorResult(huge, "all", is_atomic=False), outcome.append)
    assert isinstance(outcome[2], errors.UnknownServer)


def test_several_batches_of_an_answer_are_committed_before_it_is_given():
    stage = RuntimeBench(partitions=1)
    stage.replicas.hold = True
    many = [CoordinatorRecord(b"x" * 1000, b"\0\0\0\1") for _ in range(2_500)]
    outcome = []
    stage.runtime.write(0, lambda shard: CoordinatorResult(many, "all", is_atomic=False), outcome.append)
    *first, last = stage.replicas.uncommitted
    assert len(first) == 2
    for done in first:
        done(None)
    assert outcome == []
    last(None)
    assert outcome == ["all"]


def test_many_groups_with_one_that_is_stuck_in_a_fault_expire(monkeypatch):
    bench = GroupBench(offsets_retention_minutes=10)
    bench.topic("a", 2)
    for number in range(2_000):
        bench.commit({A0: 1}, group=f"g{number}")
    broken = bench.group("g77")
    monkeypatch.setattr(broken, "offsets_expire_since", lambda: 1 // 0, raising=False)
    bench.advance(21 * 60_000)
    assert list(bench.shard.groups) == ["g77"]


def test_timers_that_time_out_are_run_again_until_the_state_is_committed():
    stage = RuntimeBench()
    shards = []
    stage.runtime.read(0, shards.append, lambda _: None)
    stage.replicas.hold = True
    shards[0].timers.schedule("a", 10, adding(b"a", 1))
    stage.clock.advance(10)
    stage.timer.advance_clock()
    assert len(shards[0].timers) == 0
    stage.clock.advance(5_000)
    stage.timer.advance_clock()
    assert shards[0].timers.is_scheduled("a")
