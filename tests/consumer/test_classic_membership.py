"""The engine of a classic member, by itself: time is moved by hand, and a model answers as the coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from group_model import TOPICS, VERSIONS, EverythingCooperative, Member, Reply
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group.assignor import (
    MemberAssignment,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    decode_subscription,
)
from kafkacore.consumer.group.classic import ClassicMembership, Phase
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.types import TopicPartition
from tests.kit.reached import Reached
from tests.kit.rows import each_row

A = frozenset({"a"})
AB = frozenset({"a", "b"})
JOINS, SYNCS, BEATS, LEAVES = p.JoinGroupRequest, p.SyncGroupRequest, p.HeartbeatRequest, p.LeaveGroupRequest


def in_group(**options: Any) -> Member:
    member = Member(**options)
    member.engine.subscribe(A)
    member.run()
    return member


def sent(member: Member, api: type) -> list[Any]:
    return [m for _, m in member.model.sent if isinstance(m, api)]


def all_of(*topics: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t, i) for t in topics for i in range(TOPICS[t]))


def until_sent(member: Member, api: type, limit: int = 50) -> None:
    """Goes on until the oldest request on its way is of this kind."""
    member.run(lambda: bool(member.client.flying) and member.client.flying[0].api is api, limit)


def busy(member: Member) -> bool:
    """True when the engine wants to be called again and again without doing anything."""
    for _ in range(5):
        before = len(member.model.sent), member.engine.phase
        member.step()
        if (len(member.model.sent), member.engine.phase) != before or member.engine.next_wake_ms(member.now_ms) != 0:
            return False
    return True


@pytest.mark.parametrize(("cooperative", "waits_ms"), [(False, [3_000] * 4), (True, [375, 750, 1_500, 3_000, 3_000])])
def test_heartbeats_come_sooner_after_a_cooperative_rebalance(cooperative: bool, waits_ms: list[int]) -> None:
    """What members give up comes to others by another rebalance, of which heartbeats tell; an eager rebalance stops all reading."""
    member = in_group(cooperative=cooperative)
    for _ in range(2):
        for wait_ms in waits_ms:
            beats = len(sent(member, BEATS))
            member.now_ms += wait_ms - 1
            member.poll()
            assert len(sent(member, BEATS)) == beats
            member.now_ms += 1
            member.poll()
            assert len(sent(member, BEATS)) == beats + 1
            member.answer()
        member.engine.rejoin("a test")
        member.poll()
        member.run()


@pytest.mark.parametrize(("max_poll_ms", "join_ms", "sync_ms"), [(400_000, 405_000, 400_000), (27_000, 32_000, 30_000)])
def test_what_a_rebalance_holds_back_is_waited_for_as_long_as_it_may_take(max_poll_ms: int, join_ms: int, sync_ms: int) -> None:
    """JoinGroup for a while longer: its answer comes when the time has passed, and still has to arrive."""
    member = Member(instance_id="i", session_timeout_ms=20_000, max_poll_interval_ms=max_poll_ms)
    member.engine.subscribe(AB)
    until_sent(member, JOINS)
    (join,) = sent(member, JOINS)
    assert (join.session_timeout_ms, join.rebalance_timeout_ms, join.group_instance_id) == (20_000, max_poll_ms, "i")
    assert [decode_subscription(each.metadata).topics for each in join.protocols] == [("a", "b")]
    assert member.client.flying[0].options == {"timeout_ms": join_ms, "min_version": 5, "max_version": None}
    until_sent(member, SYNCS)
    assert member.client.flying[0].options == {"timeout_ms": sync_ms, "min_version": None, "max_version": None}


def test_rebalances_and_heartbeats_are_counted_and_timed() -> None:
    member = Member()
    engine = member.engine
    assert engine.next_wake_ms(member.now_ms) is None
    assert (engine.rebalance_began_ms, engine.last_rebalance_ms, engine.last_heartbeat_ms) == (-1, -1, -1)
    assert (engine.heartbeats, engine.failed_rebalances, engine.rebalances, engine.rebalance_ms_max) == (0, 0, 0, 0)
    assert (engine.metadata.generation_id, engine.metadata.member_id, engine.joined, engine.leads) == (-1, "", False, False)
    engine.subscribe(A)
    assert engine.next_wake_ms(member.now_ms) == 0
    found = []
    for wait_ms in (10, 20, 5):
        while not member.stable:
            member.now_ms += wait_ms
            member.poll()
            member.answer()
        found.append((engine.rebalances, engine.last_rebalance_ms, engine.rebalance_ms_sum, engine.rebalance_ms_max))
        assert engine.rebalance_began_ms == -1
        engine.rejoin("a test")
        assert engine.next_wake_ms(member.now_ms) == 0
        member.poll()
        assert engine.rebalance_began_ms == member.now_ms
    assert found == [(1, 40, 40, 40), (2, 60, 100, 60), (3, 15, 115, 60)]
    member.run()
    assert (engine.heartbeats, engine.last_heartbeat_ms) == (0, -1)
    until_sent(member, BEATS)
    sent_ms = member.now_ms
    member.now_ms += 7
    member.answer()
    assert (engine.heartbeats, engine.last_heartbeat_ms, engine.failed_rebalances) == (1, sent_ms, 0)


def test_a_join_that_is_refused_is_sent_again_after_longer_and_longer_waits() -> None:
    member = Member()
    member.engine.subscribe(A)
    waits_ms = []
    for _ in range(2):
        for _ in range(5):
            until_sent(member, JOINS)
            member.answer(Code.GROUP_AUTHORIZATION_FAILED)
            assert member.engine.next_wake_ms(member.now_ms) == 0, "the back-off begins with the next step"
            member.step()
            waits_ms.append(member.engine.next_wake_ms(member.now_ms))
        assert member.engine.failed_rebalances == len(waits_ms)
        member.run()
        member.engine.rejoin("a test")
    assert waits_ms == [100, 200, 400, 800, 1_000] * 2


@each_row("code", [None, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.GROUP_AUTHORIZATION_FAILED])
def test_a_heartbeat_that_failed_is_sent_again_after_a_back_off(code: int | None) -> None:
    """None: its connection was lost. Only what no waiting ends is raised."""
    member = in_group()
    until_sent(member, BEATS)
    member.answer(code, lost=code is None)
    assert member.engine.next_wake_ms(member.now_ms) == 0, "the back-off begins with the next step"
    member.poll()
    assert [each.code for each in member.failures] == [code] * (code == Code.GROUP_AUTHORIZATION_FAILED)
    assert not member.client.flying and member.engine.next_wake_ms(member.now_ms) == 100
    member.now_ms += 99
    member.step()
    assert not member.client.flying
    member.now_ms += 1
    sent_ms = member.now_ms
    until_sent(member, BEATS)  # at once, with a lost connection behind the question for the coordinator
    member.answer()
    assert member.stable and member.engine.last_heartbeat_ms == sent_ms


@pytest.mark.parametrize("api", [JOINS, SYNCS])
def test_a_request_that_no_version_can_carry_is_raised_and_tried_again(api: type) -> None:
    member = Member()
    member.engine.subscribe(A)
    until_sent(member, api)
    error = errors.UnsupportedVersion("too old")
    flying = member.client.flying.popleft()
    flying.callback(Reply(flying, None, error, -1, False))
    member.poll()
    assert (member.failures, member.engine.failed_rebalances) == ([error], 1)
    assert member.engine.next_wake_ms(member.now_ms) == 100
    member.run()


def test_a_leader_waits_for_one_answer_about_topics_that_are_not_known() -> None:
    member = Member()
    member.engine.subscribe(frozenset({"a", "x"}))
    for _ in range(2):
        syncs = len(sent(member, SYNCS))
        member.run(lambda: member.engine.phase is Phase.ASSIGNING)
        for _ in range(3):
            member.poll()
            assert member.engine.phase is Phase.ASSIGNING
            assert member.engine.next_wake_ms(member.now_ms) != 0
        old = member.model.snapshot
        member.model.snapshot = ClusterSnapshot(old.nodes, topics=old.topics)
        member.run(lambda: member.engine.phase is Phase.STABLE)
        assert (len(sent(member, SYNCS)), member.assignment) == (syncs + 1, all_of("a"))
        member.engine.rejoin("a test")


def with_two_assignors(member: Member, *others: PartitionAssignor) -> ClassicMembership:
    assignors = [member.assignor, *others]
    return ClassicMembership(member.link, member.settings, assignors, lambda: member.model.snapshot, lambda topics: None)


def test_all_assignors_are_offered_and_the_one_that_the_group_agrees_on_is_used() -> None:
    member = Member(rack="r")
    member.engine = with_two_assignors(member, EverythingCooperative())
    assert member.engine.protocol_name is None
    member.engine.subscribe(A)
    names = ["everything", "everything-cooperative"]
    for name in names:
        member.model.bend = lambda _, reply, name=name: reply._replace(protocol_name=name) if isinstance(reply, JOINS.RESPONSE) else None
        member.model.strict = False
        member.engine.rejoin("a test" * 50)
        member.run(lambda: member.engine.phase is Phase.STABLE)
        join = sent(member, JOINS)[-1]
        assert [each.name for each in join.protocols] == names
        wanted = {decode_subscription(each.metadata) for each in join.protocols}
        assert wanted == {MemberSubscription(("a",), generation_id=names.index(name) or -1, rack_id="r")}
        assert (sent(member, SYNCS)[-1].protocol_name, member.engine.protocol_name) == (name, name)
    assert len(join.reason) == 255


def test_assignors_that_share_no_protocol_are_refused() -> None:
    class OnlyCooperative(EverythingCooperative):
        supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(errors.ConfigError, match=r"no rebalance protocol: everything \(eager\), everything-cooperative \(cooperative\)$"):
        with_two_assignors(Member(), OnlyCooperative())


def test_who_left_and_subscribes_again_joins_once() -> None:
    member = in_group()
    member.engine.rejoin("a test")
    member.engine.hold()
    joins = len(sent(member, JOINS))
    member.engine.leave(member.now_ms, "closed")
    member.assignment = frozenset()
    member.engine.subscribe(A)
    beats = len(sent(member, BEATS))
    member.run(lambda: len(sent(member, BEATS)) > beats)
    assert [m.member_id for m in sent(member, JOINS)[joins:]] == ["", "m2"]


def test_the_member_id_of_a_join_that_became_obsolete_is_kept() -> None:
    member = Member()
    member.engine.subscribe(A)
    until_sent(member, JOINS)
    member.engine.subscribe(AB)
    member.poll()
    member.run()
    assert {m.member_id for m in sent(member, JOINS)} == {"", "m1"}, "no id was given out twice"


def test_the_answer_to_a_join_that_was_given_up_says_nothing() -> None:
    member = in_group()
    member.engine.rejoin("a test")
    until_sent(member, JOINS)
    late = member.client.flying.popleft()
    member.interrupt()
    member.run()
    identity, calls = member.engine.metadata, list(member.calls)
    member.model.believe = lambda *_: None  # type: ignore[method-assign]  # it was true before
    member.client.flying.append(late)
    member.answer(Code.UNKNOWN_MEMBER_ID)
    member.poll()
    assert (member.engine.metadata, member.calls, member.stable) == (identity, calls, True)


def test_what_is_left_after_a_change_is_lost_when_the_generation_ended_during_it() -> None:
    member = Member(cooperative=True)
    member.engine.subscribe(AB)
    member.run()
    member.engine.subscribe(A)
    member.poll(carry=False)
    change = member.engine.change
    assert change is not None and (change.revoked, change.assignment) == (all_of("b"), all_of("a"))
    until_beat = len(sent(member, BEATS)) + 1
    while len(sent(member, BEATS)) < until_beat:
        member.now_ms += 3_000
        member.step()
    member.answer(Code.UNKNOWN_MEMBER_ID)
    member.assignment = change.assignment
    member.engine.carried_out(change, member.now_ms)
    member.poll()
    assert member.calls[-1] == ("lost", all_of("a"))


SAID_OF_MEMBERS = [
    Code.UNKNOWN_MEMBER_ID,
    Code.ILLEGAL_GENERATION,
    Code.FENCED_INSTANCE_ID,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.REBALANCE_IN_PROGRESS,
]


@each_row("code", SAID_OF_MEMBERS)
@each_row("generations", [1, 2])
@each_row("cooperative", [False, True])
def test_what_a_heartbeat_of_an_earlier_generation_is_answered_says_nothing_of_this_one(cooperative, generations: int, code: int) -> None:
    member = in_group(cooperative=cooperative)
    member.now_ms += 3_000
    member.step()
    late = member.client.flying.popleft()
    assert late.api is BEATS
    for _ in range(generations):
        member.engine.rejoin("a test")
        member.run()
    identity, calls = member.engine.metadata, list(member.calls)
    assert identity.generation_id == late.message.generation_id + generations
    member.model.believe = lambda *_: None  # type: ignore[method-assign]  # it was true of the earlier generation
    member.client.flying.append(late)
    member.answer(code)
    member.poll()
    assert (member.engine.metadata, member.calls, member.failures, member.engine.failure) == (identity, calls, [], None)
    assert member.stable


def test_a_cooperative_member_gives_topics_up_that_it_does_not_subscribe_to_any_more() -> None:
    """Before it joins, all that it owns of them, and nothing else; the coordinator may still assign what it owned by its own word."""
    abc = frozenset({"a", "b", "c"})
    member = Member(cooperative=True)
    member.engine.subscribe(abc)
    member.run()
    assert member.assignment == all_of("a", "b", "c")
    joins = len(sent(member, JOINS))
    member.calls.clear()
    member.engine.subscribe(A)
    until_sent(member, JOINS)
    assert member.calls == [("revoked", all_of("b", "c"))]
    assert member.assignment == all_of("a")
    (join,) = sent(member, JOINS)[joins:]
    (protocol,) = [found for found in join.protocols if found.name == "everything-cooperative"]
    assert frozenset(decode_subscription(protocol.metadata).owned_partitions) == all_of("a")
    member.run()
    assert member.calls[1:] == [("assigned", frozenset())]


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    member = in_group()
    member.engine.rejoin("a test")
    until_sent(member, JOINS)
    assert member.calls[1:] == [("revoked", all_of("a"))]
    assert member.assignment == frozenset()


def test_a_cooperative_member_that_gave_partitions_up_joins_once_more() -> None:
    """Then the leader can hand them out. One that gave nothing up stays."""
    member = in_group(cooperative=True)
    assignor = member.assignor
    less = MemberAssignment((TopicPartition("a", 0),))
    assignor.assign = lambda _, members: dict.fromkeys(members, less)  # type: ignore[method-assign]
    joins, beats = len(sent(member, JOINS)), len(sent(member, BEATS))
    member.engine.rejoin("a test")
    member.run(lambda: len(sent(member, SYNCS)) == 3)
    member.run(lambda: len(sent(member, BEATS)) >= beats + 3)
    assert len(sent(member, JOINS)) == joins + 2
    assert member.calls[1:] == [("revoked", all_of("a") - {("a", 0)}), ("assigned", frozenset()), ("assigned", frozenset())]


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID])
def test_a_member_that_lost_its_generation_has_lost_its_partitions(code: int) -> None:
    member = in_group(instance_id="i")
    until_sent(member, BEATS)
    member.answer(code)
    member.poll()
    assert member.calls[1:] == [("lost", all_of("a"))]
    if code != Code.FENCED_INSTANCE_ID:
        member.run()
        assert sent(member, JOINS)[-1].member_id == ("" if code == Code.UNKNOWN_MEMBER_ID else "m1")


@each_row("code", [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION])
@each_row("api", [JOINS, SYNCS])
def test_who_lost_its_generation_while_it_joined_is_a_new_member_only_if_it_is_not_known(api: type, code: int) -> None:
    member = in_group()
    member.engine.rejoin("a test")
    until_sent(member, api)
    joins = len(sent(member, JOINS))
    member.answer(code)
    assert not member.engine.joined
    until_sent(member, JOINS)
    assert sent(member, JOINS)[joins].member_id == ("" if code == Code.UNKNOWN_MEMBER_ID else "m1")
    member.run()
    assert not member.failures


@each_row(("api", "named"), [(JOINS, "JoinGroup v9"), (SYNCS, "SyncGroup v5"), (BEATS, "Heartbeat v4")])
def test_a_refusal_says_who_asked_what_of_whom(api: type, named: str) -> None:
    member = in_group()
    if api is not BEATS:
        member.engine.rejoin("a test")
    until_sent(member, api)
    generation = member.engine.metadata.generation_id
    member.answer(Code.GROUP_AUTHORIZATION_FAILED)
    member.poll()
    (failure,) = member.failures
    assert (failure.broker, failure.api) == (1, named)
    assert f"group g, member 'm1', generation {generation}" in failure.message


def test_a_long_rebalance_is_no_silence_of_the_coordinator() -> None:
    member = Member()
    member.engine.subscribe(A)
    until_sent(member, JOINS)
    member.answer()
    until_sent(member, JOINS)
    for _ in range(5):  # others take their time; the application stays in poll
        member.now_ms += 20_000
        member.engine.polled(member.now_ms)
    member.answer()
    member.step()
    assert member.link.changes == 0
    member.run()
    assert member.link.changes == 0


def test_heartbeats_go_out_during_a_change_and_not_while_a_join_is_under_way() -> None:
    member = in_group()
    member.engine.rejoin("a test")
    member.poll(carry=False)
    assert member.engine.change is not None
    for _ in range(3):
        member.now_ms += 3_000
        member.step()
        assert member.answer() is BEATS
    beats = len(sent(member, BEATS))
    until_sent(member, JOINS)
    for _ in range(3):
        member.now_ms += 3_000
        member.step()
    assert [flying.api for flying in member.client.flying] == [JOINS]
    assert len(sent(member, BEATS)) == beats


def test_a_member_that_commits_before_it_leaves_gives_a_join_up_and_waits_for_an_assignment() -> None:
    """Commits are taken until all have joined, and refused until the leader has assigned."""
    joining, syncing = in_group(), in_group()
    for member, api in ((joining, JOINS), (syncing, SYNCS)):
        member.engine.rejoin("a test")
        until_sent(member, api)
        member.engine.hold()
        member.poll()
    joins = len(sent(joining, JOINS))
    joining.run(lambda: not joining.model.cancelled)
    joining.poll()
    assert (joining.link.changes, len(sent(joining, JOINS))) == (1, joins)
    assert [flying.api for flying in syncing.client.flying] == [SYNCS]
    syncing.answer()
    syncing.poll()
    assert syncing.calls[-1] == ("assigned", all_of("a"))


@pytest.mark.parametrize("api", [JOINS, SYNCS])
def test_a_member_that_leaves_takes_another_connection(api: type) -> None:
    """The coordinator reads nothing behind what it holds back."""
    member = in_group()
    member.engine.rejoin("a test")
    until_sent(member, api)
    member.engine.leave(member.now_ms, "closed")
    member.run(lambda: bool(sent(member, LEAVES)))
    assert [flying.api for flying in member.client.flying] == [LEAVES]


@pytest.mark.parametrize("interrupted", [False, True], ids=["the coordinator has moved", "by another network client"])
def test_leaving_is_asked_again(interrupted: bool) -> None:
    member = in_group()
    member.engine.leave(member.now_ms, "closed")
    if interrupted:
        member.interrupt()  # the answer to the first client never comes
    else:
        member.step()
        member.answer(Code.NOT_COORDINATOR)
    member.run(lambda: not member.engine.leaving)
    assert [(m.group_id, m.members[0].member_id, m.members[0].reason) for m in sent(member, LEAVES)] == [("g", "m1", "closed")] * 2
    assert member.model.member is None


def test_an_old_coordinator_is_left_by_one_member_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, LEAVES, 2)
    member = in_group()
    member.engine.leave(member.now_ms, "closed")
    (leave,) = sent(member, LEAVES)
    assert (leave.group_id, leave.member_id) == ("g", "m1")


def test_leaving_ends_with_the_session() -> None:
    """Then the coordinator has removed the member by itself."""
    member = in_group()
    member.model.reachable = False
    member.link.lost("it moved")
    member.engine.leave(member.now_ms, "closed")
    end_ms = member.now_ms + member.settings.session_timeout_ms
    while member.now_ms < end_ms:
        assert member.engine.leaving
        wake_ms = member.engine.next_wake_ms(member.now_ms)
        assert wake_ms is not None
        member.now_ms += min(wake_ms, end_ms - member.now_ms)
        member.step()
    assert not member.engine.leaving
    assert member.engine.next_wake_ms(member.now_ms) is None
    member.model.reachable = True
    member.step()
    assert not sent(member, LEAVES)


def test_a_static_member_does_not_leave() -> None:
    member = in_group(instance_id="i")
    member.engine.leave(member.now_ms, "closed")
    member.step()
    assert not member.engine.leaving
    assert not sent(member, LEAVES)


def test_nobody_polls_who_is_no_member_yet() -> None:
    """There is nothing to lose: no MaxPollExceeded."""
    member = Member()
    member.engine.subscribe(A)
    member.model.reachable = False
    for _ in range(20):
        member.step()
        member.now_ms += member.engine.next_wake_ms(member.now_ms) or 60_000
    assert not member.engine.breached
    assert not busy(member)
    member.model.reachable = True
    member.run()


def test_max_poll_is_kept_while_the_user_works_ten_minutes() -> None:
    member = in_group(max_poll_interval_ms=300_001)  # when no heartbeat is due
    began = member.now_ms
    while member.now_ms < began + 600_000:
        member.step()
        if member.client.flying:
            member.answer()
            continue
        wake_ms = member.engine.next_wake_ms(member.now_ms)
        member.now_ms = began + 600_000 if wake_ms is None else member.now_ms + wake_ms
    left_ms = next(at for at, m in member.model.sent if isinstance(m, LEAVES))
    assert left_ms == began + 300_001, "at max_poll_interval_ms, not sooner or later"
    assert member.engine.breached
    assert member.assignment == all_of("a"), "the listener is called by the polling thread alone"
    member.poll()
    member.run()
    assert member.calls[1:] == [("lost", all_of("a")), ("assigned", all_of("a"))]


@pytest.mark.parametrize("api", [JOINS, BEATS])
def test_a_fenced_static_member_stays_out(api: type) -> None:
    """Else two processes with one group_instance_id would throw each other out forever."""
    member = in_group(instance_id="i")
    if api is JOINS:
        member.engine.rejoin("a test")
    until_sent(member, api)
    joins = len(sent(member, JOINS))
    member.answer(Code.FENCED_INSTANCE_ID)
    waits_ms = []
    while len(waits_ms) < 6:
        member.poll()
        raised = len(member.failures)
        for _ in range(3):
            member.poll()
        assert len(member.failures) == raised, "a poll that comes back at once waits"
        wake_ms = member.engine.next_wake_ms(member.now_ms)
        assert wake_ms is not None
        waits_ms.append(wake_ms)
        member.now_ms += wake_ms
        member.step()
        assert member.engine.failure is member.engine.fenced
    assert waits_ms == [100, 200, 400, 800, 1_000, 1_000]
    assert {type(e) for e in member.failures} == {errors.FencedInstanceId}
    assert "another process uses group_instance_id 'i', so member 'm1' is out of the group. It never joins again" in str(member.failures[0])
    assert member.failures[0].attempts[0].code == Code.FENCED_INSTANCE_ID
    assert len(sent(member, JOINS)) == joins
    assert member.calls[-1] == ("lost", all_of("a")) or (api is JOINS and member.calls[-1] == ("revoked", all_of("a")))
    assert member.assignment == frozenset()
    member.engine.leave(member.now_ms, "unsubscribed")
    member.engine.subscribe(A)
    member.run()


OF_COMMITS = [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID, Code.REBALANCE_IN_PROGRESS]


@each_row("code", OF_COMMITS)
def test_a_refused_commit_counts_as_a_heartbeat_does(code: int) -> None:
    refused, heard = in_group(instance_id="i"), in_group(instance_id="i")
    assert not heard.client.flying
    heard.now_ms += 3_000
    heard.step()
    heard.answer(code)
    assert not refused.commit_refused(code)
    for member in (refused, heard):
        for _ in range(3):
            member.poll()
            member.answer()
    assert refused.calls == heard.calls
    assert refused.engine.phase is heard.engine.phase
    assert (
        len(sent(refused, JOINS))
        == len(sent(heard, JOINS))
        == len(sent(in_group(instance_id="i"), JOINS)) + (code != Code.FENCED_INSTANCE_ID)
    ), "at once, without a heartbeat"
    assert len(sent(refused, BEATS)) == 0


@each_row("code", OF_COMMITS)
def test_a_commit_of_an_earlier_generation_says_nothing_of_this_one(code: int) -> None:
    member = in_group()
    before = member.engine.metadata
    member.engine.rejoin("a test")
    member.run(lambda: member.stable and member.engine.metadata != before)
    calls = list(member.calls)
    assert not member.engine.commit_refused(errors.from_code(code), before)
    assert not member.engine.commit_refused(errors.from_code(code), before._replace(generation_id=-1, member_id=""))
    member.poll()
    assert member.calls == calls
    assert member.stable
    member.engine.rejoin("a test")
    until_sent(member, JOINS)
    assert not member.engine.commit_refused(errors.from_code(code), member.engine.metadata)
    assert member.engine.phase is Phase.JOINING, "the answer to JoinGroup will say it"
    member.engine.hold()
    goes_on = [member.engine.commit_refused(errors.from_code(code), member.engine.metadata) for _ in range(2)]
    assert goes_on == [code == Code.ILLEGAL_GENERATION, False], "the join has ended, and its answer names the generation that may commit"


def test_a_rebalance_that_another_one_ended_is_joined_at_once_five_times() -> None:
    member = Member()
    member.engine.subscribe(A)
    waits_ms = []
    for _ in range(7):
        until_sent(member, SYNCS)
        member.answer(Code.REBALANCE_IN_PROGRESS)
        member.step()
        waits_ms.append(0 if member.client.flying else member.engine.next_wake_ms(member.now_ms))
    assert waits_ms == [0] * 5 + [100, 200]


def test_an_assignment_of_topics_that_are_not_wanted_any_more_is_not_adopted() -> None:
    member = Member()
    member.engine.subscribe(A)
    until_sent(member, SYNCS)
    member.engine.subscribe(frozenset({"c"}))
    member.run()
    assert (member.calls, member.failures) == ([("assigned", all_of("c"))], [])


@pytest.mark.parametrize("removed", [False, True])
def test_the_clock_jumps_an_hour_while_the_application_waits_in_poll(removed: bool) -> None:
    """A machine was suspended: who waits in poll has polled, and only the coordinator knows whether it is a member still."""
    member = in_group()
    calls = list(member.calls)
    beats = len(sent(member, BEATS))
    member.now_ms += 3_600_000
    if removed:
        member.model.member = None
    member.run(lambda: len(sent(member, BEATS)) > beats and not member.client.flying)
    assert not busy(member)
    if removed:
        member.model.given_generation = -1
    member.run()
    assert member.calls == calls + ([("lost", all_of("a")), ("assigned", all_of("a"))] if removed else [])
    assert not sent(member, LEAVES)


ANY_CODE = [
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
    Code.INCONSISTENT_GROUP_PROTOCOL,
    Code.INVALID_SESSION_TIMEOUT,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.GROUP_MAX_SIZE_REACHED,
    Code.MEMBER_ID_REQUIRED,
    Code.INVALID_GROUP_ID,
    Code.UNSUPPORTED_VERSION,
    Code.UNKNOWN_SERVER_ERROR,
    Code.FENCED_INSTANCE_ID,
    Code.REQUEST_TIMED_OUT,
]


reached = Reached(
    "lost its partitions",
    "gave partitions up",
    "fenced for good",
    "missed its poll",
    "a commit of an earlier generation is refused",
    "interrupted with a request under way",
    "a change took the place of the one carried out",
    "the join failed",
)


class AnythingHappens(RuleBasedStateMachine):
    """Whatever the coordinator answers and whenever the application acts: no illegal step, no busy loop, and a member at the end."""

    @initialize(cooperative=st.booleans(), static=st.booleans(), joined=st.sampled_from([True, True, False]))
    def begin(self, cooperative: bool, static: bool, joined: bool) -> None:
        self.member = Member(cooperative=cooperative, instance_id="i" if static else None)
        self.member.engine.subscribe(A)
        if joined:
            self.member.run()
        self.sent_as = self.member.engine.metadata
        self.carried: Any = None

    @rule(carry=st.booleans())
    def polls(self, carry: bool) -> None:
        member = self.member
        heard, failed = len(member.calls), len(member.failures)
        reached("missed its poll", member.engine.breached)
        member.poll(carry=carry and self.carried is None)
        kinds = {kind for kind, _ in member.calls[heard:]}
        reached("lost its partitions", "lost" in kinds)
        reached("gave partitions up", "revoked" in kinds)
        reached("fenced for good", member.engine.fenced is not None)
        reached("the join failed", len(member.failures) > failed)

    @rule()
    def steps(self) -> None:
        self.member.step()

    @rule(ms=st.sampled_from([1, 50, 100, 1_000, 3_000, 20_000, 50_000, 400_000, -5_000]))
    def time_passes(self, ms: int) -> None:
        self.member.now_ms += ms

    @rule(count=st.sampled_from([1, 3, 30]))
    def goes_well(self, count: int) -> None:
        for _ in range(count):
            self.polls(True)
            if self.member.client.flying or self.member.model.cancelled:
                self.member.answer()
            else:
                self.member.now_ms += self.member.engine.next_wake_ms(self.member.now_ms) or 0

    @rule()
    def is_slow(self) -> None:
        """Heartbeats go on until the application should have polled."""
        for _ in range(8):
            self.member.now_ms += 40_000
            self.member.step()
            self.member.answer()

    @rule(code=st.sampled_from(ANY_CODE))
    def goes_wrong(self, code: int) -> None:
        self.member.answer(code)

    @rule(code=st.sampled_from(OF_COMMITS), late=st.booleans())
    def a_commit_is_refused(self, code: int, late: bool) -> None:
        now = self.member.engine.metadata
        reached("a commit of an earlier generation is refused", late and 0 <= self.sent_as.generation_id < now.generation_id)
        self.member.commit_refused(code, self.sent_as if late else None)
        if not late:
            self.sent_as = now

    @rule()
    def connection_lost(self) -> None:
        self.member.answer(lost=True)

    @rule()
    def coordinator_moves(self) -> None:
        self.member.link.lost("it moved")

    @rule(reachable=st.booleans())
    def network(self, reachable: bool) -> None:
        self.member.model.reachable = reachable

    @rule()
    def others_rebalance(self) -> None:
        self.member.model.rebalancing = True

    @rule()
    def thrown_out(self) -> None:
        self.member.model.member = None

    @rule(topics=st.frozensets(st.sampled_from(sorted(TOPICS))))
    def subscribes(self, topics: frozenset[str]) -> None:
        self.member.engine.subscribe(topics)

    @rule(count=st.sampled_from([0, 3, 10]))
    def enforces(self, count: int) -> None:
        self.member.engine.rejoin("asked for")
        self.goes_well(count)

    @rule(code=st.sampled_from(OF_COMMITS))
    def a_commit_is_refused_after_a_rebalance(self, code: int) -> None:
        self.sent_as = self.member.engine.metadata
        self.enforces(30)
        self.a_commit_is_refused(code, True)

    @rule()
    def interrupted(self) -> None:
        reached("interrupted with a request under way", self.member.client.flying)
        self.member.interrupt()

    @precondition(lambda self: self.carried is None)
    @rule()
    def leaves_and_comes_back(self) -> None:
        member = self.member
        member.engine.leave(member.now_ms, "unsubscribed")
        member.assignment = frozenset()
        member.engine.subscribe(A)

    @precondition(lambda self: self.carried is None)
    @rule()
    def begins_to_carry_out(self) -> None:
        if self.member.engine.change is None:
            self.member.engine.rejoin("asked for")
            self.polls(False)
        if self.member.engine.change is not None:
            self.carried = self.member.engine.change
            self.member.assignment = self.carried.assignment

    @rule(code=st.sampled_from([None, *OF_COMMITS]))
    def carries_out(self, code: int | None) -> None:
        """Perhaps while the answer to a heartbeat is bad."""
        if self.carried is None:
            self.begins_to_carry_out()
        if self.carried is not None:
            self.ends_to_carry_out(code)

    def ends_to_carry_out(self, code: int | None = None) -> None:
        if code is not None:
            self.member.now_ms += 3_000
            self.member.step()
            self.member.answer(code)
        carried, self.carried = self.carried, None
        reached("a change took the place of the one carried out", self.member.engine.change is not carried)
        self.member.engine.carried_out(carried, self.member.now_ms)

    @invariant()
    def not_busy(self) -> None:
        if hasattr(self, "member"):
            assert not busy(self.member)

    def teardown(self) -> None:
        if not hasattr(self, "member"):
            return
        member = self.member
        if self.carried is not None:
            self.ends_to_carry_out()
        member.model.reachable = True
        member.model.rebalancing = False
        for _ in range(100):
            try:
                member.run(lambda: member.stable or bool(member.failures))
            except AssertionError:
                if not isinstance(member.engine.fenced, errors.FencedInstanceId):
                    raise
            if member.engine.fenced is not None:
                member.engine.leave(member.now_ms, "unsubscribed")
                member.assignment = frozenset()
                member.engine.subscribe(A)
            if member.stable:
                return
            member.failures.clear()
        raise AssertionError("it never became a member again")


AnythingHappens.TestCase.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
TestAnythingHappens = reached.by(AnythingHappens, rounds=12)


@each_row("hook", ["subscription_user_data", "on_assignment", "assign"])
def test_an_assignor_that_raises(hook: str) -> None:
    """The next poll raises it, the member tries again with a back-off, and joins once the assignor works."""
    member = Member()
    member.engine.subscribe(A)

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug in the assignor")

    assignor = member.assignor
    setattr(assignor, hook, broken)
    began_ms = member.now_ms
    member.run(lambda: member.now_ms > began_ms + 10_000)
    assert len(member.model.sent) <= 50
    assert member.failures
    for failure in member.failures:
        assert isinstance(failure, errors.UsageError)
        assert isinstance(failure.__cause__, ZeroDivisionError)
    delattr(assignor, hook)
    member.run()


def test_an_assignor_that_assigns_to_no_member() -> None:
    member = Member()
    member.engine.subscribe(A)
    assignor = member.assignor
    assignor.assign = lambda *_: {"x": MemberAssignment(())}  # type: ignore[method-assign]
    member.run(lambda: bool(member.failures))
    assert isinstance(member.failures[0], errors.UsageError)
    assert "'everything' assigned to members that the group does not have: x" in str(member.failures[0])
    assert not sent(member, SYNCS)
