"""Members of a group on the embedded cluster, from one end to the other."""

from __future__ import annotations

import pytest
from numbered import numbered_topic
from refused_commits import refuse_commits

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.errors import Code
from kafkacore.producer import KafkaProducer
from kafkacore.protocol import OffsetCommitResponse
from kafkacore.protocol.group import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from tests.kit import groups
from tests.kit.clusters import embedded
from tests.kit.groups import Heard, until_polled
from tests.kit.inside import group_of, metadata_of
from tests.kit.records import take
from tests.kit.waiting import fresh

pytestmark = pytest.mark.usefixtures("client_face")
FACED = (groups,)
QUICK = {"group_consumer_heartbeat_interval_ms": 50}

PARTITIONS = 6
RECORDS = 600


shared = embedded(brokers=3, config=QUICK)
alone = embedded(scope="function", brokers=1, config=QUICK)  # without the last requests of another test's clients


@pytest.fixture
def topic(shared: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    return numbered_topic(shared, request, replication_factor=3)


def test_two_members_share_and_a_leaver_gives_back(member, group_protocol):
    heard = Heard()
    first, second = member(heard), member()
    until_polled(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, first, second)
    assert not first.assignment() & second.assignment()
    second.close()
    until_polled(lambda: len(first.assignment()) == PARTITIONS, first)
    assert heard.calls[0][0] == "assigned"
    if group_protocol == "classic":  # eager: everything is given up
        assert heard.calls[-2][0] == "revoked"
        assert heard.calls[-1] == ("assigned", list(range(PARTITIONS)))
    else:  # only what moves is named
        came = [p for kind, partitions in heard.calls for p in partitions if kind == "assigned"]
        went = [p for kind, partitions in heard.calls for p in partitions if kind == "revoked"]
        assert sorted(came) == sorted([*range(PARTITIONS), *went])
        assert len(went) in (0, PARTITIONS // 2)
        assert heard.calls[-1][0] == "assigned"


def test_commits_in_order_with_callbacks(member, topic):
    consumer = member(enable_auto_commit=False)
    take(consumer, 600)
    heard: list = []
    for offset in (10, 20, 30):
        consumer.commit_async({(topic, 0): offset}, callback=lambda offsets, error: heard.append((offsets, error)))
    consumer.commit({(topic, 1): OffsetAndMetadata(5, None, "note")})
    assert [(next(iter(offsets.values())).offset, error) for offsets, error in heard] == [(10, None), (20, None), (30, None)]
    assert consumer.committed([(topic, 0), (topic, 1), (topic, 2)]) == {
        TopicPartition(topic, 0): OffsetAndMetadata(30),
        TopicPartition(topic, 1): OffsetAndMetadata(5, None, "note"),
        TopicPartition(topic, 2): None,
    }


@pytest.mark.aio_at_length
def test_what_a_listener_raises_reaches_the_caller_and_loses_nothing(member):
    def broken(_):
        raise ValueError("no room")

    heard = Heard(assigned=broken)
    consumer = member(heard)
    with pytest.raises(ValueError, match="no room"):
        until_polled(lambda: False, consumer)
    assert len(consumer.assignment()) == PARTITIONS
    assert len(take(consumer, 600)) == 600
    assert len(heard.calls) == 1


def test_a_listener_may_seek_pause_and_commit(member, topic):
    def moves(_):
        consumer.seek((topic, 0), 90)
        consumer.pause((topic, 1))
        consumer.commit({(topic, 2): 50})

    consumer = member(Heard(assigned=moves))
    records = take(consumer, 10 + 4 * 100 - 50)
    assert min(r.offset for r in records if r.partition == 0) == 90
    assert not [r for r in records if r.partition == 1]
    assert min(r.offset for r in records if r.partition == 2) == 50


@pytest.mark.aio_at_length
def test_the_coordinator_moves(member, shared, topic):
    consumer = member()
    take(consumer, 600)
    coordinator = group_of(consumer).link.broker_id
    shared.stop_broker(coordinator)
    try:
        consumer.commit()
        assert consumer.committed((topic, 0)).offset == 100
    finally:
        shared.start_broker(coordinator)


def shared_evenly(topic: str, *consumers: KafkaConsumer) -> None:
    """Waits until the members share all partitions evenly."""
    everything = {TopicPartition(topic, i) for i in range(PARTITIONS)}

    def done() -> bool:
        found = [consumer.assignment() for consumer in consumers]
        return set().union(*found) == everything and {len(mine) for mine in found} == {PARTITIONS // len(consumers)}

    until_polled(done, *consumers)


@pytest.mark.aio_at_length
@pytest.mark.parametrize("group_protocol", ["classic"])
def test_a_group_changes_from_range_to_cooperative_by_two_rolling_restarts(member, topic):
    only_range, both, only_cooperative = ["range"], ["cooperative-sticky", "range"], "cooperative-sticky"
    heard = Heard()
    members = [member(partition_assignment_strategy=only_range) for _ in range(3)]
    shared_evenly(topic, *members)
    for strategy in (both, only_cooperative):
        for nth in range(3):
            members[nth].close()
            members[nth] = member(heard if strategy is only_cooperative else None, partition_assignment_strategy=strategy)
            shared_evenly(topic, *members)
            found = {group_of(consumer).membership.protocol_name for consumer in members}
            assert found == {"cooperative-sticky" if nth == 2 or strategy is only_cooperative else "range"}
    had = [consumer.assignment() for consumer in members]
    heard.calls.clear()
    members.append(member(heard, partition_assignment_strategy=only_cooperative))
    until_polled(
        lambda: {len(c.assignment()) for c in members} == {1, 2} and sum(len(c.assignment()) for c in members) == PARTITIONS, *members
    )
    assert all(consumer.assignment() <= before for consumer, before in zip(members, had, strict=False))  # nobody else got anything
    (moved,) = members[-1].assignment()
    changes = [call for call in heard.calls if call[1]]
    assert changes == [("revoked", [moved.partition]), ("assigned", [moved.partition])]  # only what moves, given up before it is handed out


@pytest.mark.parametrize("settings", [{}, {"group_id": "g"}])
def test_the_brokers_pattern_needs_a_consumer_group(shared, settings):
    with KafkaConsumer(bootstrap_servers=shared.bootstrap_servers, **settings) as consumer:
        with pytest.raises(errors.UsageError, match="group_protocol=consumer"):
            consumer.subscribe(pattern=SubscriptionPattern("t.*"))


@pytest.mark.aio_at_length
def test_topics_that_the_brokers_pattern_matches_later(alone, request):
    """Their names are asked for by their ids: a cluster may have many other topics."""
    topic = numbered_topic(alone, request, replication_factor=1)
    asked: list = []
    alone.control("Metadata", lambda request: asked.append(request.topics))
    settings = {"group_id": f"g-{topic}", "group_protocol": "consumer", "auto_offset_reset": "earliest"}
    try:
        with KafkaConsumer(bootstrap_servers=alone.bootstrap_servers, **settings) as consumer:
            consumer.subscribe(pattern=SubscriptionPattern(f"{topic}.*"))
            assert len(take(consumer, 600)) == 600
            alone.create_topic(f"{topic}-more", partitions=1)
            until_polled(lambda: len(consumer.assignment()) == PARTITIONS + 1, consumer)
            assert consumer.subscription() == {topic, f"{topic}-more"}
            assert set(metadata_of(consumer).topics) == consumer.subscription()
            assert not metadata_of(consumer).all_topics
    finally:
        alone.control("Metadata", None)
    assert None not in asked, "all topics were asked for"
    by_id = [t.topic_id for topics in asked for t in topics if t.name is None]
    assert len(set(by_id)) == 2


SLOW_HEARTBEATS = {
    "group_consumer_heartbeat_interval_ms": 900_000,
    "group_consumer_session_timeout_ms": 1_800_000,
    "group_max_session_timeout_ms": 1_800_000,
}


slow = embedded(config=SLOW_HEARTBEATS)  # nobody hears of anything by a heartbeat


@pytest.mark.aio_at_length
@pytest.mark.parametrize(
    ("group_protocol", "code"),
    [
        ("classic", Code.UNKNOWN_MEMBER_ID),
        ("classic", Code.ILLEGAL_GENERATION),
        ("classic", Code.REBALANCE_IN_PROGRESS),
        ("consumer", Code.UNKNOWN_MEMBER_ID),
        ("consumer", Code.FENCED_MEMBER_EPOCH),
    ],
)
@pytest.mark.parametrize("automatic", [False, True])
def test_a_commit_says_that_the_generation_has_ended_and_no_heartbeat_is_waited_for(slow, group_protocol, code, automatic):
    name = fresh(f"ended-{group_protocol}-{int(code)}")  # each face has a topic of its own
    slow.create_topic(name, partitions=2)
    heartbeats = {"heartbeat_interval_ms": 900_000, "session_timeout_ms": 1_800_000} if group_protocol == "classic" else {}
    instance = "i" if code == Code.UNKNOWN_MEMBER_ID else None  # else the coordinator waits for the old member, which it still has
    heard = Heard()
    with KafkaConsumer(
        bootstrap_servers=slow.bootstrap_servers,
        group_id=name,
        group_protocol=group_protocol,
        auto_offset_reset="earliest",
        group_instance_id=instance,
        enable_auto_commit=automatic,
        auto_commit_interval_ms=1,
        **heartbeats,
    ) as consumer:
        consumer.subscribe([name], listener=heard)
        until_polled(lambda: len(consumer.assignment()) == 2, consumer)
        until_polled(lambda: group_of(consumer).membership.rebalances == 1, consumer)
        before = consumer.consumer_group_metadata()
        left = refuse_commits(slow, code)
        try:
            if automatic:
                with KafkaProducer(bootstrap_servers=slow.bootstrap_servers) as producer:
                    producer.send(name, b"x").result(60)
                until_polled(lambda: not left, consumer)
            else:
                rebalancing = code == Code.REBALANCE_IN_PROGRESS
                with pytest.raises(errors.RebalanceInProgress if rebalancing else errors.CommitFailed):
                    consumer.commit({(name, 0): 0})
            until_polled(lambda: group_of(consumer).membership.rebalances == 2, consumer)
        finally:
            slow.control("OffsetCommit", None)
        after = consumer.consumer_group_metadata()
        assert after.generation_id != before.generation_id or after.member_id != before.member_id or group_protocol == "consumer"
        gone = "revoked" if code == Code.REBALANCE_IN_PROGRESS else "lost"
        assert heard.calls == [("assigned", [0, 1]), (gone, [0, 1]), ("assigned", [0, 1])]
        consumer.commit({(name, 0): 0})


def test_a_commit_with_a_stale_epoch_asks_for_the_next_one(slow):
    """The coordinator has moved on, and the heartbeat that would say so is a quarter of an hour away."""
    stale, other = fresh("stale"), fresh("other")  # each face has topics of its own
    slow.create_topic(stale, partitions=2)
    slow.create_topic(other, partitions=2)
    settings = {"bootstrap_servers": slow.bootstrap_servers, "group_id": stale, "group_protocol": "consumer"}
    with KafkaConsumer(stale, **settings) as first, KafkaConsumer(other, **settings) as second:
        until_polled(lambda: len(first.assignment()) == 2 and group_of(first).membership.rebalances == 1, first)
        epoch = first.consumer_group_metadata().generation_id
        until_polled(lambda: second.consumer_group_metadata().generation_id > epoch, second)
        asked: list[int] = []
        left = [Code.STALE_MEMBER_EPOCH]

        def refuse(request):
            asked.append(request.generation_id_or_member_epoch)
            if request.generation_id_or_member_epoch > epoch:
                return None
            partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=left[0])]
            return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(topic_id=request.topics[0].topic_id, partitions=partitions)])

        questions: list = []
        slow.control("OffsetCommit", refuse)
        slow.control("OffsetFetch", questions.append)
        try:
            first.commit({(stale, 0): 7}, timeout=30)
            assert first.committed((stale, 0)).offset == 7
        finally:
            slow.control("OffsetCommit", None)
            slow.control("OffsetFetch", None)
        assert asked[0] == epoch < asked[-1]
        me = first.consumer_group_metadata()
        assert (me.member_id, me.generation_id) in {(g.member_id, g.member_epoch) for r in questions for g in r.groups}
