"""Committed offsets: who may commit what, what is fetched, transactions, expiry, deletion, and the records in Kafka's format."""

from group_bench import GroupBench, subscription

from kafkacore import protocol as p
from kafkacore.broker.coordinator_shard import ReplayedRecord
from kafkacore.broker.groups.offsets import OffsetStore
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.errors import Code
from kafkacore.protocol.stored import OffsetCommitKey, OffsetCommitValue, decode_stored
from tests.kit.batches import T0
from tests.kit.rows import each_row

A0, A1 = ("a", 0), ("a", 1)
MINUTE_MS = 60_000


def bench_with_topic(**config):
    bench = GroupBench(**config)
    bench.topic("a", 2)
    return bench


def delete_offsets(bench, *wanted, group="g"):
    topics = [
        p.OffsetDeleteRequestTopic(name=topic, partitions=[p.OffsetDeleteRequestPartition(partition_index=at)]) for topic, at in wanted
    ]
    return bench.ask(p.OffsetDeleteRequest(group_id=group, topics=topics), 0)


@each_row("version", range(2, 10))
def test_commits_from_outside_make_a_group_and_are_fetched_in_every_version(version):
    bench = bench_with_topic()
    assert bench.commit({A0: 5, A1: 7}, version=version, metadata="m") == {A0: 0, A1: 0}
    assert bench.group().state_name == "Empty"
    assert bench.fetch(A0, A1, ("a", 5), ("b", 0)) == {A0: 5, A1: 7, ("a", 5): -1, ("b", 0): -1}
    assert bench.fetch() == {A0: 5, A1: 7}
    for fetched in range(1, 8):
        topics = [p.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in (("b", [0]), ("a", [0, 1]))]
        answer = bench.ask(p.OffsetFetchRequest(group_id="g", topics=topics), fetched)
        assert [topic.name for topic in answer.topics] == ["b", "a"]
        parts = answer.topics[1].partitions
        assert [(each.committed_offset, each.metadata, each.error_code) for each in parts] == [(5, "m", 0), (7, "m", 0)]
    bench.reload()
    assert bench.fetch() == {A0: 5, A1: 7}


def test_topics_by_id():
    bench = bench_with_topic()
    topic_id = bench.state.cluster.topics["a"].topic_id
    other = b"\7" * 16

    def commit(each):
        part = p.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
        request = p.OffsetCommitRequest(group_id="g", topics=[p.OffsetCommitRequestTopic(topic_id=each, partitions=[part])])
        return [(bytes(topic.topic_id), topic.partitions[0].error_code) for topic in bench.ask(request, 10).topics]

    def fetch(*ids):
        topics = [p.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids] if ids else None
        (group,) = bench.ask(p.OffsetFetchRequest(groups=[p.OffsetFetchRequestGroup(group_id="g", topics=topics)]), 10).groups
        return {bytes(topic.topic_id): topic.partitions[0].error_code or topic.partitions[0].committed_offset for topic in group.topics}

    assert commit(topic_id) == [(topic_id, 0)]
    assert commit(other) == [(other, Code.UNKNOWN_TOPIC_ID)]
    assert fetch(topic_id, other) == {topic_id: 5, other: Code.UNKNOWN_TOPIC_ID}
    assert fetch() == {topic_id: 5}


def test_a_topic_named_twice_is_answered_twice_unless_something_is_refused():
    bench = bench_with_topic()
    missing = Code.UNKNOWN_TOPIC_OR_PARTITION

    def commit(*wanted):
        topics = [
            p.OffsetCommitRequestTopic(
                name=topic, partitions=[p.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")]
            )
            for topic, index in wanted
        ]
        answer = bench.ask(p.OffsetCommitRequest(group_id="g", topics=topics), 8)
        return [(topic.name, [(each.partition_index, each.error_code) for each in topic.partitions]) for topic in answer.topics]

    def delete(*wanted):
        answer = delete_offsets(bench, *wanted)
        return [(topic.name, [(each.partition_index, each.error_code) for each in topic.partitions]) for topic in answer.topics]

    assert commit(A0, A0) == [("a", [(0, 0)]), ("a", [(0, 0)])]
    assert commit(A0, ("a", 9), A0) == [("a", [(9, missing), (0, 0), (0, 0)])]
    assert commit(A0, ("b", 0), ("a", 9)) == [("b", [(0, missing)]), ("a", [(9, missing), (0, 0)])]
    assert commit(("b", 0), ("b", 1)) == delete(("b", 0), ("b", 1)) == [("b", [(0, missing), (1, missing)])]


def test_metadata_has_a_largest_size():
    bench = bench_with_topic(offset_metadata_max_bytes=10)
    assert bench.commit({A0: 1}, metadata="x" * 10) == {A0: 0}
    assert bench.commit({A0: 2}, metadata="x" * 11) == {A0: Code.OFFSET_METADATA_TOO_LARGE}
    assert bench.fetch(A0) == {A0: 1}


def test_members_commit_in_their_generation():
    bench = bench_with_topic()
    generation, (first, second), _ = bench.stable("x", "y")
    assert bench.commit({A0: 1}, member=first, generation=generation) == {A0: 0}
    assert bench.commit({A0: 2}, member=first, generation=generation + 1) == {A0: Code.ILLEGAL_GENERATION}
    assert bench.commit({A0: 2}, member="who", generation=generation) == {A0: Code.UNKNOWN_MEMBER_ID}
    assert bench.commit({A0: 2}) == {A0: Code.UNKNOWN_MEMBER_ID}  # from outside, while there are members
    assert bench.commit({A0: 2}, group="none", generation=3) == {A0: Code.GROUP_ID_NOT_FOUND}
    assert bench.commit({A0: 2}, group="none", generation=3, version=8) == {A0: Code.ILLEGAL_GENERATION}
    joining = bench.join(first, protocols=(("range", b"changed"),))
    assert bench.commit({A0: 3}, member=second, generation=generation) == {A0: 0}  # while the others are awaited
    bench.join(second)
    assert joining.response.error_code == 0
    assert bench.commit({A0: 4}, member=second, generation=generation + 1) == {A0: Code.REBALANCE_IN_PROGRESS}
    assert bench.fetch(A0) == {A0: 3}


def test_a_commit_keeps_its_member_alive():
    bench = bench_with_topic()
    generation, (member,), _ = bench.stable("x", session_ms=1_000)
    for _ in range(5):
        bench.advance(900)
        assert bench.commit({A0: 1}, member=member, generation=generation) == {A0: 0}


# ---- transactions


def put(store, at, producer_id, partition, offset=1):
    """A record of the log: an offset, or with None its end."""
    value = None if offset is None else OffsetCommitValue(offset=offset, metadata="", commit_timestamp=T0)
    store.replay(at, producer_id, OffsetCommitKey(group="g", topic="a", partition=partition), value)


def test_a_deleted_offset_takes_the_pending_ones_with_it():
    store = OffsetStore()
    put(store, 0, -1, 0)
    put(store, 1, 7, 0)
    assert store.known_partitions("g") == [A0]
    put(store, 2, -1, 0, None)
    store.replay_end_marker(3, 7, True)
    assert (len(store), store.known_partitions("g"), store.has_pending("g")) == (0, [], False)


def test_where_offsets_are_looked_for():
    """Those in force, and those of two open transactions, of two groups."""
    store = OffsetStore()
    for at, (producer, group, partition) in enumerate([(-1, "g", 0), (7, "g", 1), (8, "g", 1), (8, "h", 0), (-1, "h", 2), (8, "g", 0)]):
        store.replay(at, producer, OffsetCommitKey(group=group, topic="a", partition=partition), OffsetCommitValue(offset=at, metadata=""))
    store.replay(6, -1, OffsetCommitKey(group="g", topic="b", partition=0), OffsetCommitValue(offset=6, metadata=""))

    def looks():
        of_topic = sorted((group, partition, found.offset) for group, partition, found in store.groups_with("a"))
        pending = [(group, at) for group in "ghi" for at in range(3) if store.is_pending(group, "a", at)]
        return len(store), of_topic, pending, [store.has_pending(group) for group in "ghi"]

    everything = [("g", 0, 0), ("g", 0, 5), ("g", 1, 1), ("g", 1, 2), ("h", 0, 3), ("h", 2, 4)]
    assert looks() == (3, everything, [("g", 0), ("g", 1), ("h", 0)], [True, True, False])
    assert [store.known_partitions(group) for group in "ghi"] == [[A0, ("b", 0), A1], [("a", 2), A0], []]
    store.replay_end_marker(7, 7, True)
    of_topic = [each for each in everything if each != ("g", 1, 2)]
    assert looks() == (4, sorted([*of_topic, ("g", 1, 2)]), [("g", 0), ("g", 1), ("h", 0)], [True, True, False])
    store.replay_end_marker(8, 8, True)
    assert looks() == (5, [("g", 0, 5), ("g", 1, 2), ("h", 0, 3), ("h", 2, 4)], [], [False] * 3)
    assert {at: found.offset for at, found in store.of_group("g").items()} == {A0: 5, A1: 2, ("b", 0): 6}
    assert store.committed_of_group("g") == {}, "nothing is committed"
    store.committed_to(1)
    assert {at: found.offset for at, found in store.committed_of_group("g").items()} == {A0: 0}
    store.committed_to(9)
    assert store.committed_of_group("g") == store.of_group("g")
    assert store.committed_of_group("g", exists=False) == {}


# ---- expiry and deletion


def test_an_offset_with_an_open_transaction_does_not_expire():
    store = OffsetStore()

    def expired():
        return store.expired("g", lambda topic: False, lambda committed: True)

    for at, record in enumerate([(-1, 0), (-1, 1), (7, 0), (8, 0)]):
        put(store, at, *record)
    assert expired() == [A1]
    store.replay_end_marker(4, 7, False)
    assert expired() == [A1]  # the second transaction is open
    store.replay_end_marker(5, 8, True)
    assert expired() == [A0, A1]


def test_offsets_age_from_when_their_group_is_empty():
    bench = bench_with_topic(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    generation, (member,), _ = bench.stable("x", session_ms=5 * MINUTE_MS)
    bench.commit({A0: 1}, member=member, generation=generation)
    for _ in range(4):
        bench.advance(4 * MINUTE_MS)
        assert bench.heartbeat(member, generation) == 0
    assert bench.fetch(A0) == {A0: 1}  # old, but there is a member, and nobody knows what it reads
    bench.leave((member, None))
    bench.advance(9 * MINUTE_MS)
    assert bench.fetch(A0) == {A0: 1}
    bench.advance(2 * MINUTE_MS)
    assert (bench.fetch(A0), bench.group()) == ({A0: -1}, None)
    bench.reload()
    assert (bench.fetch(A0), bench.group()) == ({A0: -1}, None)


def test_offsets_of_topics_nobody_reads_age_in_a_stable_group():
    bench = bench_with_topic(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    bench.topic("b")
    wants_b = (("range", subscription("b")),)
    generation, (member,), _ = bench.stable("x", protocols=wants_b, session_ms=5 * MINUTE_MS)
    bench.commit({A0: 1, ("b", 0): 2}, member=member, generation=generation)
    for _ in range(4):
        bench.advance(3 * MINUTE_MS)
        assert bench.heartbeat(member, generation) == 0
    assert bench.fetch() == {("b", 0): 2}


def test_offsets_of_groups_without_protocol_age_from_their_commit_and_old_clients_say_how_long():
    bench = bench_with_topic(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
    bench.commit({A0: 1})
    bench.commit({A1: 1}, version=3, retention_ms=2 * MINUTE_MS)
    bench.advance(3 * MINUTE_MS)
    assert bench.fetch() == {A0: 1}
    bench.commit({A0: 2})
    bench.advance(9 * MINUTE_MS)
    assert bench.fetch() == {A0: 2}
    bench.advance(2 * MINUTE_MS)
    assert (bench.fetch(), bench.group()) == ({}, None)


def test_deleting_offsets():
    bench = bench_with_topic()
    bench.topic("b")
    wants_b = (("range", subscription("b")),)
    generation, (member,), _ = bench.stable("x", protocols=wants_b)
    bench.commit({A0: 1, A1: 1, ("b", 0): 2}, member=member, generation=generation)

    def delete(*wanted, group="g"):
        answer = delete_offsets(bench, *wanted, group=group)
        if answer.error_code:
            return answer.error_code
        return {(topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions}

    answer = delete(A0, ("b", 0), ("a", 9), ("c", 0))
    assert answer == {
        A0: 0,
        ("b", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC,
        ("a", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("c", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert bench.fetch() == {A1: 1, ("b", 0): 2}
    assert delete(A0, group="none") == Code.GROUP_ID_NOT_FOUND
    assert delete(A0, group="") == Code.INVALID_GROUP_ID
    bench.leave((member, None))
    assert delete(("b", 0)) == {("b", 0): 0}
    bench.reload()
    assert bench.fetch() == {A1: 1}


# ---- the records


def test_records_are_kafkas():
    bench = bench_with_topic()
    topic_id = bench.state.cluster.topics["a"].topic_id
    bench.commit({A0: 5}, metadata="m")
    bench.commit({A1: 6}, version=2, retention_ms=1_000)
    (key, value), (_, old) = bench.stored()
    assert key == b"\0\1\0\1g\0\1a\0\0\0\0"
    read = decode_stored(OffsetCommitValue, value)
    assert value[:2] == b"\0\4"
    assert (read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, bytes(read.topic_id)) == (5, -1, "m", T0, topic_id)
    assert old[:2] == b"\0\1"
    assert decode_stored(OffsetCommitValue, old).expire_timestamp == T0 + 1_000


def test_the_coordinator_says_why_it_cannot_answer():
    bench = bench_with_topic()
    bench.state.groups.runtime.resigned(GROUP_TOPIC, 0)
    assert bench.fetch(A0) == Code.NOT_COORDINATOR
    assert bench.commit({A0: 1}) == {A0: Code.NOT_COORDINATOR}
    topics = [p.OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
    old = bench.ask(p.OffsetFetchRequest(group_id="g", topics=topics), 1)
    assert [each.error_code for each in old.topics[0].partitions] == [Code.NOT_COORDINATOR]
    newer = bench.ask(p.OffsetFetchRequest(group_id="g", topics=topics), 5)
    assert (newer.error_code, newer.topics) == (Code.NOT_COORDINATOR, [])
    assert bench.ask(p.ListGroupsRequest(), 5).groups == []
    described = bench.ask(p.DescribeGroupsRequest(groups=["g", "h"]), 5).groups
    deleted = bench.ask(p.DeleteGroupsRequest(groups_names=["g", "h", "g"]), 2).results
    for found in (described, deleted):
        assert [(each.group_id, each.error_code) for each in found] == [("g", Code.NOT_COORDINATOR), ("h", Code.NOT_COORDINATOR)]
    assert delete_offsets(bench, A0).error_code == Code.NOT_COORDINATOR


def test_a_marker_says_whose_transaction_ended_and_how():
    bench = bench_with_topic()
    given = []
    groups, ended = (
        bench.state.groups,
        p.txn.WritableTxnMarker(producer_id=7, producer_epoch=1, transaction_result=True, coordinator_epoch=3, transaction_version=2),
    )
    groups.runtime.complete_transaction = lambda *args: given.append(args)
    groups.write_marker(5, ended, print)
    assert given == [(5, 7, 1, 3, True, print, 2, bench.state.config.request_timeout_ms)]


@each_row("committed", [False, True])
def test_offsets_of_a_transaction_count_when_it_is_committed(committed):
    bench = bench_with_topic()
    bench.commit({A0: 1, A1: 1})
    parts = [p.TxnOffsetCommitRequestPartition(partition_index=at, committed_offset=9, committed_metadata="") for at in (0, 1)]
    topics = [p.TxnOffsetCommitRequestTopic(name="a", partitions=parts)]
    shard = bench.shard
    written = shard.commit_in_transaction(p.TxnOffsetCommitRequest(group_id="g", topics=topics))
    for nth, record in enumerate(written.records):
        shard.replay(ReplayedRecord(100 + nth, 7, 1, record.key, record.value))
    assert bench.fetch(A0, A1, require_stable=True) == dict.fromkeys((A0, A1), Code.UNSTABLE_OFFSET_COMMIT)
    shard.replay_end_marker(102, 7, 1, committed)
    shard.committed_to(103)
    assert bench.fetch(A0, A1) == bench.fetch(A0, A1, require_stable=True) == dict.fromkeys((A0, A1), 9 if committed else 1)
