"""A classic member whose coordinator answers whole but wrong: by itself, time is moved by hand.

Each answer takes a millisecond. A lie is answered for five seconds, then the coordinator is well again. The member must not fail, must not
ask all the time, must take nothing that it did not subscribe to, must say what is wrong, and must be well again by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from group_model import TOPICS, Member
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import protocol as p
from kafkacore.consumer.group import membership
from kafkacore.consumer.group.assignor import MemberAssignment, encode_assignment
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.protocol.group import JoinGroupResponseMember
from kafkacore.types import TopicPartition
from tests.kit.mutated import mutated
from tests.kit.rows import each_row

A = frozenset({"a"})
LIE_MS = 5_000
MOST_PER_SECOND = 25  # two requests for each back-off of 100 ms, and a few that come before the first
RECOVERY_MS = 60_000  # a session and a little
LONGEST = "m" * 32_767  # the protocol has no longer strings
CODES = [*sorted({*Code} - {0}), -2, 200, 32_767, -32_768]

Bend = Callable[[Any, Any], Any]


def metadata_comes(member: Member) -> None:
    """An answer about the topics of all members, also about those that do not exist."""
    old = member.model.snapshot
    member.model.snapshot = ClusterSnapshot(old.nodes, topics=old.topics)


def lies(member: Member, bend: Bend | None, ms: int = LIE_MS) -> float:
    """The coordinator lies for a while. Returns the requests per second."""
    model = member.model
    model.strict, model.bend = False, bend
    first, began_ms = len(model.sent), member.now_ms
    while member.now_ms < began_ms + ms:
        member.poll()
        if member.client.flying or model.cancelled:
            member.answer()
            member.now_ms += 1
        else:
            metadata_comes(member)
            wake_ms = member.engine.next_wake_ms(member.now_ms)
            member.now_ms += max(1, min(1_000, 1_000 if wake_ms is None else wake_ms))
        assert all(tp.topic in A and 0 <= tp.partition for tp in member.assignment)
    model.bend = model.mutate = None
    return (len(model.sent) - first) / (member.now_ms - began_ms) * 1_000


def recovers(member: Member) -> None:
    """The coordinator is well again, and so is the member, by itself; what it believed until then may cost it its membership once.

    The coordinator had it join again while it lied, or has it do so now.
    """
    before_ms = member.now_ms
    member.model.rebalancing = True
    while not member.stable:
        member.poll()
        if member.client.flying or member.model.cancelled:
            member.answer()
            member.now_ms += 1
        else:
            metadata_comes(member)
            wake_ms = member.engine.next_wake_ms(member.now_ms)
            assert wake_ms is not None, member.engine.phase
            member.now_ms += max(1, wake_ms)
        assert member.now_ms - before_ms <= RECOVERY_MS, f"not well again: {member.engine.phase}, {member.failures[-1:]}"


def member_of(cooperative: bool, instance_id: str | None, *, in_group: bool) -> Member:
    member = Member(cooperative=cooperative, instance_id=instance_id)
    member.engine.subscribe(A)
    if in_group:
        member.run()
    return member


def with_fields(api: type, **fields: Any) -> Bend:
    def bend(request: Any, reply: Any) -> Any:
        if isinstance(request, api) and not reply.error_code:
            return reply._replace(**fields)
        return reply

    return bend


def with_members(change: Callable[[list[Any]], list[Any]]) -> Bend:
    def bend(request: Any, reply: Any) -> Any:
        if isinstance(request, p.JoinGroupRequest) and not reply.error_code:
            return reply._replace(members=change(reply.members))
        return reply

    return bend


def stranger(metadata: bytes) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(member_id="stranger", metadata=metadata)


def with_coordinator(**fields: Any) -> Bend:
    def bend(request: Any, reply: Any) -> Any:
        if isinstance(request, p.FindCoordinatorRequest):
            return reply._replace(coordinators=[reply.coordinators[0]._replace(**fields)])
        return reply

    return bend


def nobody_found(request: Any, reply: Any) -> Any:
    if isinstance(request, p.FindCoordinatorRequest):
        return reply._replace(coordinators=[])
    return reply


def refusing(api: type, code: int) -> Bend:
    def bend(request: Any, reply: Any) -> Any:
        if isinstance(request, api):
            return reply._replace(error_code=code)
        return reply

    return bend


def encoded(*partitions: tuple[str, int]) -> bytes:
    return encode_assignment(MemberAssignment(tuple(TopicPartition(t, i) for t, i in partitions)))


GOOD = encoded(("a", 0), ("a", 1), ("a", 2))
JOIN_LIES: dict[str, Bend] = {
    "generation -1": with_fields(p.JoinGroupRequest, generation_id=-1),
    "generation -2^31": with_fields(p.JoinGroupRequest, generation_id=-(2**31)),
    "no member id": with_fields(p.JoinGroupRequest, member_id="", leader=""),
    "no assignor": with_fields(p.JoinGroupRequest, protocol_name=None),
    "an assignor that was not offered": with_fields(p.JoinGroupRequest, protocol_name="range"),
    "an assignor without a name": with_fields(p.JoinGroupRequest, protocol_name=""),
    "another kind of group": with_fields(p.JoinGroupRequest, protocol_type="connect"),
    "a member of garbage": with_members(lambda members: [*members, stranger(b"\xff" * 40)]),
    "a member without a subscription": with_members(lambda members: [*members, stranger(b"")]),
    "a list of topics without an end": with_members(lambda members: [*members, stranger(b"\0\3\x7f\xff\xff\xff")]),
}
SYNC_LIES: dict[str, Bend] = {
    "garbage": with_fields(p.SyncGroupRequest, assignment=b"\xfe" * 30),
    "one byte": with_fields(p.SyncGroupRequest, assignment=b"\0"),
    "version -1": with_fields(p.SyncGroupRequest, assignment=b"\xff\xff" + GOOD[2:]),
    "a list without an end": with_fields(p.SyncGroupRequest, assignment=b"\0\3\x7f\xff\xff\xff"),
    "a topic that is not subscribed to": with_fields(p.SyncGroupRequest, assignment=encoded(("a", 0), ("b", 0))),
    "a partition below 0": with_fields(p.SyncGroupRequest, assignment=encoded(("a", 0), ("a", -1))),
    "another assignor": with_fields(p.SyncGroupRequest, protocol_name="range"),
    "another kind of group": with_fields(p.SyncGroupRequest, protocol_type="connect"),
}
FIND_LIES: dict[str, Bend] = {
    "port 0": with_coordinator(port=0),
    "port -1": with_coordinator(port=-1),
    "port 70000": with_coordinator(port=70_000),
    "node -1": with_coordinator(node_id=-1),
    "node -2^31": with_coordinator(node_id=-(2**31)),
    "no host": with_coordinator(host=""),
    "another group": with_coordinator(key="h"),
    "none": nobody_found,
}
HARMLESS_LIES: dict[str, Bend] = {
    "a leader that is nobody": with_fields(p.JoinGroupRequest, leader="nobody"),
    "nobody leads": with_fields(p.JoinGroupRequest, leader=""),
    "another member id": with_fields(p.JoinGroupRequest, member_id="somebody"),
    "the longest member id": with_fields(p.JoinGroupRequest, member_id=LONGEST, leader=LONGEST),
    "another member id, which leads": with_fields(p.JoinGroupRequest, member_id="somebody", leader="somebody"),
    "a group without members": with_members(lambda members: []),
    "a member twice": with_members(lambda members: members * 2),
    "generation 2^31-1": with_fields(p.JoinGroupRequest, generation_id=2**31 - 1),
    "skip_assignment": with_fields(p.JoinGroupRequest, skip_assignment=True),
    "an assignment of a later version": with_fields(p.SyncGroupRequest, assignment=b"\0\x63" + GOOD[2:] + b"more"),
    "partitions twice": with_fields(p.SyncGroupRequest, assignment=encoded(("a", 0), ("a", 0), ("a", 1))),
    "partitions that the topic does not have": with_fields(
        p.SyncGroupRequest, assignment=encoded(*(("a", i) for i in range(10_000)), ("a", 2**31 - 1))
    ),
    "no assignment": with_fields(p.SyncGroupRequest, assignment=b""),
}


@each_row("in_group", [False, True], ids=["new", "in the group"])
@each_row("cooperative", [False, True], ids=["eager", "cooperative"])
@each_row(
    ("api", "bend"),
    [
        *(pytest.param("JoinGroup", bend, id=f"JoinGroup: {name}") for name, bend in JOIN_LIES.items()),
        *(pytest.param("SyncGroup", bend, id=f"SyncGroup: {name}") for name, bend in SYNC_LIES.items()),
    ],
)
def test_a_lie_about_the_membership(api: str, bend: Bend, cooperative: bool, in_group: bool) -> None:
    member = member_of(cooperative, None, in_group=in_group)
    if in_group:
        member.engine.rejoin("a test")
    assert lies(member, bend) <= MOST_PER_SECOND
    assert member.failures
    for failure in member.failures:
        assert (failure.broker, (failure.api or "").split(" ")[0]) == (1, api), failure
    recovers(member)


def test_more_partitions_than_a_member_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "ASSIGNED_PARTITIONS", 3)
    three = with_fields(p.SyncGroupRequest, assignment=encoded(("a", 0), ("a", 1), ("a", 2)))
    four = with_fields(p.SyncGroupRequest, assignment=encoded(("a", 0), ("a", 1), ("a", 2), ("a", 9)))
    member = member_of(False, None, in_group=True)
    lies(member, three)
    assert not member.failures
    member.engine.rejoin("a test")
    assert lies(member, four) <= MOST_PER_SECOND
    assert member.failures
    recovers(member)


@each_row("cooperative", [False, True], ids=["eager", "cooperative"])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in FIND_LIES.items()])
def test_a_lie_about_the_coordinator(bend: Bend, cooperative: bool) -> None:
    member = member_of(cooperative, None, in_group=False)
    assert lies(member, bend) <= MOST_PER_SECOND
    assert member.link.attempts
    last = member.link.attempts[-1]
    assert (last.broker, (last.api or "").split(" ")[0]) == (1, "FindCoordinator"), last
    recovers(member)


@each_row("cooperative", [False, True], ids=["eager", "cooperative"])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in HARMLESS_LIES.items()])
def test_what_a_member_cannot_know(bend: Bend, cooperative: bool) -> None:
    member = member_of(cooperative, None, in_group=True)
    member.engine.rejoin("a test")
    assert lies(member, bend) <= MOST_PER_SECOND
    recovers(member)


@each_row(("cooperative", "instance_id"), [(False, None), (True, "i")], ids=["eager", "cooperative, static"])
@pytest.mark.parametrize("api", [p.FindCoordinatorRequest, p.JoinGroupRequest, p.SyncGroupRequest, p.HeartbeatRequest, p.LeaveGroupRequest])
def test_every_error_code(api: type, cooperative: bool, instance_id: str | None) -> None:
    """Also those that the API never answers with, and those that do not exist."""
    for code in CODES:
        member = member_of(cooperative, instance_id, in_group=True)
        if api is p.FindCoordinatorRequest:
            bend = with_coordinator(error_code=code)
            member.link.lost("a test")
        else:
            bend = refusing(api, code)
        member.engine.rejoin("a test")
        if api is p.LeaveGroupRequest:
            member.now_ms += member.settings.max_poll_interval_ms
            member.step()
        assert lies(member, bend, 5_000) <= MOST_PER_SECOND, code
        if member.engine.fenced is not None:  # for good, until the owner leaves
            member.engine.leave(member.now_ms, "a test")
            member.engine.subscribe(A)
        recovers(member)


@each_row("member_id", ["", "m", LONGEST], ids=["none", "one", "the longest"])
def test_member_ids_are_asked_for_again_and_again(member_id: str) -> None:
    def bend(request: Any, reply: Any) -> Any:
        if isinstance(request, p.JoinGroupRequest):
            return p.JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id, members=[])
        return reply

    member = member_of(False, None, in_group=False)
    assert lies(member, bend) <= MOST_PER_SECOND
    recovers(member)


@given(
    seed=st.integers(0, 2**32),
    api=st.sampled_from(["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"]),
    often=st.sampled_from([1, 2, 5]),
    cooperative=st.booleans(),
)
def test_bytes_of_answers_change(seed: int, api: str, often: int, cooperative: bool) -> None:
    chance = random.Random(seed)
    member = member_of(cooperative, None, in_group=chance.random() < 0.5)
    member.engine.rejoin("a test")
    kind = getattr(p, f"{api}Request")
    asked: list[Any] = []

    def bend(request: Any, reply: Any) -> None:
        asked[:] = [request]

    def mutate(wire: bytes) -> bytes:
        if not isinstance(asked[0], kind) or chance.randrange(often):
            return wire
        return mutated(wire, chance)

    member.model.mutate = mutate
    assert lies(member, bend, 10_000) <= MOST_PER_SECOND
    if member.engine.fenced is not None:
        member.engine.leave(member.now_ms, "a test")
        member.engine.subscribe(A)
    recovers(member)
    assert all(tp.partition < TOPICS["a"] for tp in member.assignment)
