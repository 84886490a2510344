"""What a consumer says of itself to somebody who is woken at night."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.admin import KafkaAdminClient
from kafkacore.clock import JumpingClock
from kafkacore.consumer import KafkaConsumer
from kafkacore.consumer.group.classic import Phase as ClassicPhase
from kafkacore.consumer.group.member_health import _WAITS_FOR, MemberHealth, member_problems
from kafkacore.consumer.group.membership import GroupSettings
from kafkacore.consumer.group.modern import Phase as ModernPhase
from kafkacore.consumer.health import HeldBack, StallWatch, describe_partitions, held_back_problems
from kafkacore.consumer.subscription import PartitionState, ResetStrategy, SubscriptionState
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.protocol import FindCoordinatorResponse, ListOffsetsResponse
from kafkacore.protocol.data import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kafkacore.protocol.group import Coordinator
from kafkacore.testing import Disconnect, Drop, EmbeddedCluster
from kafkacore.types import Node, TopicPartition
from tests.kit.clusters import embedded
from tests.kit.groups import until_polled
from tests.kit.inside import group_of, metadata_of
from tests.kit.records import fill, numbered, take
from tests.kit.rows import each_row

cluster = embedded({"t": 2}, scope="function", config={"auto_create_topics_enable": False})


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **settings: Any) -> KafkaConsumer:
        given = {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 5, "retry_backoff_max_ms": 20, **settings}
        made.append(KafkaConsumer(*topics, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("group", [{}, {"group_id": "g"}, {"group_id": "g", "group_protocol": "consumer"}])
def test_a_topic_that_does_not_exist_is_named(cluster, consumer, caplog, group):
    caplog.set_level(logging.WARNING)
    reader = consumer("t", "missing", auto_offset_reset="earliest", **group)
    until_polled(lambda: "topic missing does not exist: nothing is read" in caplog.text, reader)
    (problem,) = [p for p in reader.health().problems if "exist" in p]
    assert problem.startswith("topic missing does not exist: it was not found 0 s ago")
    seen = metadata_of(reader).version
    until_polled(lambda: metadata_of(reader).version >= seen + 5, reader)
    assert caplog.text.count("topic missing does not exist") == 1, "once, not with every answer"
    cluster.create_topic("missing", partitions=1)
    until_polled(lambda: TopicPartition("missing", 0) in reader.assignment() and reader.health().ok, reader)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics(["missing"]).check()
    reader.unsubscribe()
    reader.subscribe(["t"])
    until_polled(lambda: reader.health().ok, reader)


def test_a_partition_without_a_leader_is_named():
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as reader:
            reader.assign([("t", 0), ("t", 1)])
            gone = cluster.leader("t", 0)
            reader.position(("t", 0))
            cluster.stop_broker(gone)
            until_polled(lambda: "t-0 has no leader" in reader.health().problems, reader)
            cluster.start_broker(gone)
            until_polled(lambda: reader.health().ok, reader)


def test_a_pattern_that_matches_nothing_is_named(cluster, consumer):
    reader = consumer()
    reader.subscribe(pattern="orders-.*")
    assert not reader.health().problems, "nobody has looked yet"
    until_polled(lambda: reader.health().problems, reader)
    assert reader.health().problems[0] == "the pattern 'orders-.*' matches none of the cluster's topics (1)"
    cluster.create_topic("orders-1", partitions=1)
    metadata_of(reader).request_update()
    until_polled(lambda: reader.health().ok, reader)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_says_who_it_is(consumer, cluster, protocol):
    reader = consumer("t", group_id="g", group_protocol=protocol, group_instance_id="i")
    member = reader.health().member
    assert (member.group_id, member.generation, member.state, member.coordinator, member.heartbeat_age_ms) == ("g", -1, "out", -1, None)
    assert reader.health().problems == ("not a member of group g: it waits for poll(), which joins",)
    until_polled(lambda: reader.health().ok and reader.health().member.state == "stable" and reader.assignment(), reader)
    member, me = reader.health().member, reader.consumer_group_metadata()
    assert (member.member_id, member.generation, member.group_instance_id) == (me.member_id, me.generation_id, "i")
    assert (member.state, member.coordinator, member.waits_for, member.waiting_ms) == ("stable", 1, "", 0)
    assert f"group g: member {me.member_id} generation {me.generation_id} stable; 2 partitions" in repr(reader)
    reader.close()
    assert repr(reader).endswith("; closed)")


def test_a_coordinator_that_cannot_be_found_is_named_with_the_cause(consumer, cluster):
    answer = FindCoordinatorResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE)

    def unavailable(request):
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, error_code=answer.error_code, error_message="no leader") for key in request.coordinator_keys]
        )

    cluster.control("FindCoordinator", unavailable)
    reader = consumer("t", group_id="g")
    until_polled(lambda: group_of(reader).link.attempts, reader)
    health = reader.health()
    assert "the coordinator of group g has not been found or reached for 0 s: COORDINATOR_NOT_AVAILABLE" in health.problems[0]
    assert health.problems[1].startswith("not a member of group g")
    assert health.member.waits_for in health.problems
    cluster.control("FindCoordinator", None)
    until_polled(lambda: reader.health().ok, reader)
    assert group_of(reader).link.unknown_since_ms == -1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_that_no_broker_can_be_reached_comes_before_what_comes_of_it(consumer, cluster, protocol, caplog):
    """The coordinator is named as the broker it is, not by the id of its connection."""
    caplog.set_level(logging.DEBUG, logger="kafkacore")
    reader = consumer("t", group_id="g", group_protocol=protocol, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
    until_polled(lambda: reader.health().member.state == "stable" and reader.assignment(), reader)
    cluster.stop_broker(1)
    looks: list[tuple[str, ...]] = []

    def both_said() -> bool:
        looks.append(reader.health().problems)
        text = "\n".join(looks[-1])
        return "no broker can be reached" in text and "the coordinator of group g has not been found or reached" in text

    until_polled(both_said, reader)
    problems = looks[-1]
    assert problems[0].startswith("no broker can be reached: NETWORK_EXCEPTION (13): ")
    reader.close(0)  # the broker is gone
    assert "21474836" not in caplog.text + "".join(problems)


def stands(**changes: Any) -> MemberHealth:
    return MemberHealth("g", "m", None, 3, "stable", 1, 100, "", 0)._replace(**changes)


@each_row(
    ("member", "joined", "said"),
    [
        (stands(), True, []),
        (stands(state="joining", waits_for="the others", waiting_ms=4_999), True, []),
        (
            stands(state="joining", waits_for="the others", waiting_ms=5_000),
            True,
            ["group g has been rebalancing for 5 s: m waits for the others"],
        ),
        (stands(state="out", waits_for="poll()", waiting_ms=2_000), False, ["not a member of group g for 2 s: it waits for poll()"]),
        (stands(heartbeat_age_ms=44_999), True, []),
        (
            stands(heartbeat_age_ms=45_000),
            True,
            ["group g: no heartbeat of m was answered for 45 s (session_timeout_ms is 45000)"],
        ),
    ],
)
def test_what_is_wrong_with_a_member(member, joined, said):
    assert member_problems(member, GroupSettings("g"), joined=joined) == said


def test_of_two_partitions_that_are_held_back_one_goes_on():
    tps = [TopicPartition("t", 0), TopicPartition("t", 1)]
    subscription = SubscriptionState(ResetStrategy("earliest"))
    subscription.assign_manual(tps)
    watch = StallWatch(subscription, lambda tp: [], read_committed=True, fetch_max_wait_ms=500)

    def stand(tp: TopicPartition, stable: int) -> None:
        subscription.seek(tp, stable)
        state = subscription.partitions[tp]
        state.high_watermark, state.last_stable_offset = 10, stable

    for tp in tps:
        stand(tp, 3)
    assert watch.held_back(-1, 1_000) == tuple(HeldBack(tp, 3, 7, 0) for tp in tps)
    stand(tps[0], 5)
    assert watch.held_back(-1, 7_000) == (HeldBack(tps[0], 5, 5, 0), HeldBack(tps[1], 3, 7, 6_000))
    stand(tps[0], 10)
    assert watch.held_back(-1, 8_000) == (HeldBack(tps[1], 3, 7, 7_000),)


A, B, FAR = (TopicPartition("t", index) for index in (0, 1, 7))
NOT_MOVED = "t-0 has not moved for {} s (offset 3)"


def awaits_reset(subscription: SubscriptionState, state: PartitionState) -> None:
    subscription.request_reset(A, ResetStrategy("latest"))
    state.unsettled_since_ms = 2_000


@each_row(
    "happens, looks",
    [
        (lambda s, a: None, {6_499: [], 6_500: [NOT_MOVED.format(5)], 7_999: [NOT_MOVED.format(6)]}),
        (lambda s, a: setattr(a, "high_watermark", 3), {60_000: []}),  # it is at its end
        (lambda s, a: s.pause(A), {60_000: []}),
        (lambda s, a: setattr(a, "held", [None]), {30_999: [], 31_000: [NOT_MOVED.format(30)]}),
        (lambda s, a: setattr(a, "node_id", 1), {9_499: [], 9_500: [NOT_MOVED.format(5)]}),  # of broker 1 a piece came at 4 s
        (
            awaits_reset,
            {6_999: [], 7_000: ["t-0 has been awaiting reset for 5 s (offset -1): LEADER_NOT_AVAILABLE (5): no leader [topic t]"]},
        ),
        (lambda s, a: (awaits_reset(s, a), s.pause(A)), {60_000: []}),
        (lambda s, a: s.add([FAR]), {6_000: ["t-7 does not exist: topic t has 2 partitions"]}),
        (
            lambda s, a: s.add([FAR, TopicPartition("t", 8)]),
            {6_000: ["t-7 and 1 partition more do not exist: topic t has 2 partitions"]},
        ),
    ],
    ids=lambda value: None if isinstance(value, dict) else "case",
)
def test_what_stands_still_is_named_after_its_time(happens, looks):
    subscription = SubscriptionState(ResetStrategy("earliest"))
    subscription.assign_manual([A, B])
    for tp in (A, B):
        subscription.seek(tp, 3)
        subscription.partitions[tp].high_watermark = 10 if tp == A else 3
    causes = [errors.NetworkError("older"), errors.LeaderNotAvailable("no leader", topic="t")]
    watch = StallWatch(subscription, lambda tp: causes, read_committed=False, fetch_max_wait_ms=500)
    topic = TopicInfo("t", b"t" * 16, [PartitionInfo(0, 1), PartitionInfo(1, 1)])
    metadata: Any = SimpleNamespace(snapshot=ClusterSnapshot({1: Node(1, "h", 9)}, topics={"t": topic}))
    client: Any = SimpleNamespace(connection_failed=lambda node: False)

    def look(now_ms: int, refusals: Any = ()) -> tuple[list[str], list[TopicPartition]]:
        return watch.look(metadata, client, dict(refusals), {1: 4_000}, now_ms)

    assert look(1_000) == ([], [])
    happens(subscription, subscription.partitions[A])
    for now_ms, said in looks.items():
        problems, stalled = look(now_ms)
        assert problems == said and stalled == [A] * any(each.startswith("t-0") for each in said), now_ms
    assert [name for name, _ in describe_partitions(subscription, False)] == [f"t-{tp.partition}" for tp in subscription.partitions]
    b = subscription.partitions[B]
    about_b = lambda now_ms: [each for each in look(now_ms, {b: (now_ms - 5_000, 6)})[0] if each.startswith("t-1")]  # noqa: E731
    refused = "t-1 has been refused by its broker for 5 s: NOT_LEADER_OR_FOLLOWER"
    assert about_b(60_001) == [refused]
    client.connection_failed = lambda node: node.id == 1
    assert about_b(60_002) == [refused, "t-1: broker 1 (h:9) cannot be reached"]
    metadata.snapshot = ClusterSnapshot({2: Node(2, "h", 9)}, topics={"t": topic})
    assert about_b(60_003) == [refused, "t-1 has no leader"]
    subscription.pause(B)
    assert about_b(60_004) == ["t-1 has no leader"]


def test_that_no_partition_is_known_is_said_after_five_seconds():
    subscription = SubscriptionState(ResetStrategy("earliest"))
    watch = StallWatch(subscription, lambda tp: [], read_committed=False, fetch_max_wait_ms=500)
    assert watch.nothing_to_read(0) == watch.nothing_to_read(9_000) == []  # nothing is wanted
    subscription.subscribe_topics(["b", "a"])
    for began_ms in (10_000, 20_000):
        assert watch.nothing_to_read(began_ms) == watch.nothing_to_read(began_ms + 4_999) == []
        assert watch.nothing_to_read(began_ms + 5_000) == ["no partition of a, b is known after 5 s"]
        subscription.set_assignment([A])
        assert watch.nothing_to_read(began_ms + 5_001) == []
        subscription.set_assignment([])


def test_what_holds_readers_back_is_said_after_five_seconds():
    held = [HeldBack(A, 3, 7, 4_999), HeldBack(B, 4, 1, 5_999)]
    assert held_back_problems(held) == [
        "t-1: an open transaction has held readers of committed data back at offset 4 for 5 s, 1 offset before the end;"
        " `kafkacore transactions open t` says whose"
    ]


def test_every_state_says_what_it_waits_for():
    states = {phase.value for engine in (ClassicPhase, ModernPhase) for phase in engine}
    assert states - {"stable"} == _WAITS_FOR.keys()


@pytest.mark.parametrize("group", [{}, {"group_id": "g"}])
def test_an_offset_out_of_range_names_the_range_that_is_there(consumer, cluster, group):
    fill(cluster.bootstrap_servers, "t", numbered(10))
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_records({("t", 0): 4}).check()
    reader = consumer(auto_offset_reset="none", **group)
    empty = "is empty, its next record gets offset 0"
    for partition, offset, there in ((0, 2, "has offsets 4 to 9"), (0, 77, "has offsets 4 to 9"), (1, 5, empty)):
        reader.assign([("t", partition)])
        reader.seek(("t", partition), offset)
        with pytest.raises(errors.OffsetOutOfRange, match=f": the partition {there}; seek to choose") as raised:
            until_polled(lambda: False, reader)
        assert (raised.value.topic, raised.value.partition, raised.value.offset, raised.value.broker) == ("t", partition, offset, 1)


@pytest.mark.parametrize("fault", [Drop, Disconnect, Code.CLUSTER_AUTHORIZATION_FAILED])
def test_an_offset_out_of_range_is_raised_also_where_nobody_knows_the_range(consumer, cluster, fault):
    def refuse(request):
        if isinstance(fault, type):
            return fault
        partitions = [ListOffsetsPartitionResponse(partition_index=0, error_code=fault)]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])

    cluster.control("ListOffsets", refuse)
    reader = consumer(auto_offset_reset="none", request_timeout_ms=1_500)
    reader.assign([("t", 0)])
    reader.seek(("t", 0), 5)
    with pytest.raises(errors.OffsetOutOfRange) as raised:
        until_polled(lambda: False, reader)
    assert "the partition" not in str(raised.value).replace("what the partition holds", "")
    cluster.control("ListOffsets", None)
    with pytest.raises(errors.OffsetOutOfRange, match="the partition is empty"):
        until_polled(lambda: False, reader)


def test_lag_and_health_do_not_trust_an_end_from_before_a_validation():
    clock, tp = JumpingClock(), TopicPartition("t", 0)
    with EmbeddedCluster(brokers=3) as cluster:

        def move_leader() -> None:
            cluster.move_leader("t", 0, cluster.leader("t", 0) % 3 + 1)

        cluster.create_topic("t", partitions=1, replication_factor=3)
        fill(cluster.bootstrap_servers, "t", numbered(5))
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", clock=clock) as consumer:
            consumer.assign([tp])
            assert consumer.lag(tp) is None
            assert len(take(consumer, 5)) == 5
            until_polled(lambda: consumer.lag(tp) == 0, consumer)
            consumer.health()
            cluster.control("OffsetForLeaderEpoch", lambda request: Drop)
            move_leader()
            fill(cluster.bootstrap_servers, "t", numbered(5))
            until_polled(lambda: consumer.statistics()["partitions"]["t-0"]["state"] == "await_validation", consumer)
            assert consumer.lag(tp) is None
            assert consumer.statistics()["partitions"]["t-0"]["lag"] is None
            assert consumer.health().stalled == ()
            for _ in range(2):  # a second leader change starts no new clock
                clock.sleep(20_000)
                consumer.poll(0.1)
                move_leader()
            health = consumer.health()
            assert health.stalled == (tp,)
            assert any(re.match(r"t-0 has been awaiting validation for \d\d s \(offset 5\)", problem) for problem in health.problems)
            consumer.pause(tp)
            assert consumer.health().stalled == ()
            consumer.resume(tp)
            cluster.control("OffsetForLeaderEpoch", None)
            clock.sleep(40_000)  # what was dropped times out
            assert len(take(consumer, 5)) == 5
            cluster.control("ListOffsets", lambda request: Drop)
            consumer.seek_to_end(tp)
            consumer.poll(0.1)
            clock.sleep(31_000)
            assert any(re.match(r"t-0 has been awaiting reset for \d\d s", problem) for problem in consumer.health().problems)
