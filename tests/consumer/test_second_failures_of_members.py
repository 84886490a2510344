"""What fails twice in a row, or during a rebalance, by the engines of both group protocols: time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from group_model import Member
from heartbeat_model import INTERVAL_MS, MAX_POLL_MS, Client, Coordinator

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group import classic, modern
from kafkacore.consumer.group.assignor import MemberSubscription, decode_assignment, encode_subscription
from kafkacore.consumer.group.subscribed import WatchedTopics
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import Node, TopicPartition
from tests.kit.rows import each_row

A = frozenset({"a"})
JOIN, SYNC = p.JoinGroupRequest, p.SyncGroupRequest
GROWN = 5


def in_group(cooperative: bool) -> Member:
    member = Member(cooperative=cooperative)
    member.engine.subscribe(A)
    member.run()
    return member


def with_more_partitions(member: Member) -> None:
    old = member.model.snapshot
    grown = TopicInfo("a", old.topics["a"].topic_id, [PartitionInfo(i, 1, 0) for i in range(GROWN)])
    member.model.snapshot = ClusterSnapshot(old.nodes, topics={**old.topics, "a": grown})


@each_row("cooperative", [False, True], ids=["eager", "cooperative"])
@each_row(
    "when",
    [
        pytest.param(lambda m: [f.api for f in m.client.flying] == [JOIN], id="JoinGroup is under way"),
        pytest.param(lambda m: m.engine.phase is classic.Phase.ASSIGNING, id="before the assignment"),
        pytest.param(lambda m: [f.api for f in m.client.flying] == [SYNC], id="SyncGroup is under way"),
        pytest.param(lambda m: m.engine.phase is classic.Phase.ADOPTING, id="the assignment is adopted"),
    ],
)
def test_a_topic_grows_during_a_rebalance(when: Callable[[Member], bool], cooperative: bool) -> None:
    member = in_group(cooperative)
    member.engine.rejoin("a test")
    for _ in range(100):
        member.poll(carry=False)
        if when(member):
            break
        if member.client.flying:
            member.answer()
            if when(member):
                break
        else:
            member.carry_out()
    else:
        raise AssertionError(member.engine.phase)
    with_more_partitions(member)
    wanted = {TopicPartition("a", i) for i in range(GROWN)}
    member.run(lambda: member.assignment == wanted and member.engine.phase is classic.Phase.STABLE)


def test_a_modern_member_misses_its_poll_interval_twice() -> None:
    coordinator = Coordinator(t=3)
    client = Client(coordinator, "t")

    def settled() -> None:
        for _ in range(20):
            client.learn()
            client.now_ms += INTERVAL_MS
            client.round()
        assert client.engine.phase is modern.Phase.STABLE
        assert len(client.reads) == 3

    settled()
    for _ in range(3):
        calls = len(client.calls)
        client.step(MAX_POLL_MS)
        assert client.engine.breached
        client.exchange()
        assert coordinator.members == {} and coordinator.seen[-1].member_epoch == -1
        assert client.engine.next_wake_ms(client.now_ms) is None
        settled()
        assert [kind for kind, found in client.calls[calls:] if found] == ["lost", "assigned"]


def test_a_leader_assigns_to_each_member_also_to_one_that_wants_what_does_not_exist() -> None:
    member = Member()
    member.engine.subscribe(A)
    strangers = [
        p.group.JoinGroupResponseMember(member_id=name, metadata=encode_subscription(MemberSubscription(topics)))
        for name, topics in {"other": ("nosuch",), "third": ("b", "nosuch")}.items()
    ]
    member.model.strict = False
    member.model.bend = lambda request, reply: (
        reply._replace(members=[*reply.members, *strangers]) if isinstance(request, JOIN) and reply.members else reply
    )
    member.run(lambda: member.engine.phase is classic.Phase.ASSIGNING)
    old = member.model.snapshot
    absent = TopicInfo("nosuch", error=errors.UnknownTopicOrPartition("no"))
    for _ in range(2):  # answers to the leader's question for all topics
        member.model.snapshot = ClusterSnapshot(old.nodes, topics={**old.topics, "nosuch": absent})
        member.poll()
    member.run()
    (sync,) = [m for _, m in member.model.sent if isinstance(m, SYNC)]
    found = {each.member_id: {tp.topic for tp in decode_assignment(each.assignment).partitions} for each in sync.assignments}
    assert found == {"m1": {"a"}, "other": set(), "third": {"b"}}


@each_row("cooperative", [False, True], ids=["eager", "cooperative"])
@each_row("api", [JOIN, SYNC])
def test_the_coordinator_moves_twice_within_a_join(api: type, cooperative: bool) -> None:
    member = in_group(cooperative)
    changes = member.link.changes
    began_ms = member.now_ms
    member.engine.rejoin("a test")
    for _ in range(2):
        for _ in range(100):
            member.poll()
            if member.client.flying and member.client.flying[0].api is api:
                break
            if member.client.flying:
                member.answer()
            else:
                member.now_ms += member.engine.next_wake_ms(member.now_ms) or 0
        member.answer(Code.NOT_COORDINATOR)
    member.run()
    assert member.link.changes - changes == 2
    assert member.now_ms - began_ms < 2_000
    assert not member.failures


def test_a_leader_sees_that_replicas_came_to_other_racks_and_forgets_no_broker_that_is_down() -> None:
    def cluster(brokers: str, **replicas: str) -> ClusterSnapshot:
        nodes = {ord(name): Node(ord(name), "h", 1, f"rack {name}") for name in brokers}
        topics = {t: TopicInfo(t, partitions=[PartitionInfo(0, 1, 0, [ord(name) for name in on])]) for t, on in replicas.items()}
        return ClusterSnapshot(nodes, topics=topics)

    watched, without_racks = WatchedTopics(with_racks=True), WatchedTopics(with_racks=False)
    for each in (watched, without_racks):
        each.watch(["t", "u"])
        each.note(cluster("abc", t="ab", u="bc"))
        assert each.change(cluster("ac", t="ab", u="bc")) is None, "a restart"
        assert each.change(cluster("abc", t="ab")) is None, "of u nothing is known for a moment"
        assert each.change(cluster("abc", t="ba", u="cb")) is None
    moved = cluster("abc", t="ab", u="ba")
    assert (watched.change(moved), without_racks.change(moved)) == ("replicas of topic u came to other racks", None)
    watched.note(moved)
    assert watched.change(moved) is None


def test_a_leader_that_kept_its_assignment_sees_what_changes_from_then_on() -> None:
    def cluster(**counts: int) -> ClusterSnapshot:
        topics = {name: TopicInfo(name, partitions=[PartitionInfo(i, 1, 0) for i in range(count)]) for name, count in counts.items()}
        absent = {"u": TopicInfo("u", error=errors.LeaderNotAvailable("no")), "v": TopicInfo("v", error=errors.InvalidTopic("no"))}
        return ClusterSnapshot(topics={**absent, **topics})

    watched = WatchedTopics(with_racks=False)
    watched.watch(["s", "t", "u", "v", "w"])
    assert watched.topics == {*"stuvw"}
    assert watched.unknown(cluster(s=1, t=2)) == ["u", "w"]
    assert watched.change(cluster(s=1, t=2)) is None
    assert watched.change(cluster(s=1, t=3)) == "topic t has 3 partitions now, it had 2"
    assert watched.change(cluster(s=1, t=2, v=1)) == "topic v has 1 partitions now, it had 0"
    assert watched.change(cluster(s=1, t=2, u=1, w=1)) is None
    assert watched.change(cluster(s=1, t=2, u=1, w=4)) == "topic w has 4 partitions now, it had 1"
