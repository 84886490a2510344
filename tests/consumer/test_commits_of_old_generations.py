"""Commits that are sent later than they were asked for, and several of which one fails: time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from commits_rig import OFFSETS, A, B, C, CommitsRig

from kafkacore import errors
from kafkacore.errors import Code
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata
from tests.kit.rows import each_row


def rebalance(rig: CommitsRig, *taken_away) -> None:
    rig.member = rig.member._replace(generation_id=rig.member.generation_id + 1)
    rig.assigned.difference_update(taken_away)


def offsets_sent(rig: CommitsRig) -> list[int]:
    return [request.topics[0].partitions[0].committed_offset for request in rig.sent()]


def refused_with(code: int) -> Callable[[Any], Any]:
    """Answers every partition of a commit with this code."""

    def bend(reply: Any) -> Any:
        topics = [t._replace(partitions=[q._replace(error_code=code) for q in t.partitions]) for t in reply.topics]
        return reply._replace(topics=topics)

    return bend


@each_row("retried", [False, True], ids=["commit_async", "commit"])
@each_row("member", [True, False])
def test_what_was_given_up_since_is_not_committed(retried: bool, member: bool) -> None:
    """Another member has the partition by then, and its newer offset would be overwritten. Who is no member any more commits nothing:
    without a generation a commit is one of a group that only keeps offsets, and an empty group takes it.
    """
    rig = CommitsRig()
    rig.coordinator.away = True
    commit = rig.commits.commit(OFFSETS, retried=retried)
    other = rig.commits.commit({C: OffsetAndMetadata(9)}, retried=retried)
    rig.step()
    if member:
        rebalance(rig)
        rebalance(rig, A)
    else:
        rig.member = ConsumerGroupMetadata("g")
    rig.coordinator.away = False
    rig.step()
    assert offsets_sent(rig) == ([9] if member else [])
    assert commit.done
    assert isinstance(commit.error, errors.CommitFailed)
    if member:
        assert "t-0" in str(commit.error)
        rig.coordinator.answer()
    assert other.done and (other.error is None) == member


def test_what_is_still_assigned_is_committed_in_the_generation_of_now() -> None:
    """Two rebalances inside one call of commit."""
    rig = CommitsRig()
    commit = rig.commits.commit(OFFSETS, retried=True)
    for generation in (3, 4, 5):
        rig.step()
        (request,) = rig.sent()
        assert (request.generation_id_or_member_epoch, request.member_id) == (generation, "m")
        if generation < 5:
            rig.coordinator.bend = refused_with(Code.COORDINATOR_LOAD_IN_PROGRESS)
            rebalance(rig)
        rig.coordinator.answer()
        rig.coordinator.bend = None
        rig.step()
        rig.step(100)
    assert (commit.done, commit.error) == (True, None)


def test_of_two_commits_under_way_the_later_one_counts() -> None:
    """One waits for its answer, and one behind it. What would be sent behind both must not take the second one back."""
    rig = CommitsRig()
    for first, second in ((5, 3), (7, 4)):
        rig.commits.commit({A: OffsetAndMetadata(first), C: OffsetAndMetadata(second)}, retried=True)
        rig.step()
    assert len(rig.sent()) == 1
    rig.commits.commit({B: OffsetAndMetadata(1)}, retried=True)
    assert rig.commits.under_way() == {A: 7, B: 1, C: 4}


def test_who_never_was_a_member_commits() -> None:
    rig = CommitsRig()
    rig.member = ConsumerGroupMetadata("g")
    rig.coordinator.away = True
    commit = rig.commits.commit({A: OffsetAndMetadata(1)}, retried=False)
    rig.step()
    rig.coordinator.away = False
    rig.step()
    rig.coordinator.answer()
    assert (commit.done, commit.error) == (True, None)


@each_row("code", [Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID, Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH])
def test_fenced_while_a_commit_is_in_flight(code: Code) -> None:
    """The answer comes when a heartbeat has said the same, and the member has joined again: it ends nothing of the new generation."""
    rig = CommitsRig()
    first = rig.commits.commit({A: OffsetAndMetadata(1)}, retried=True)
    second = rig.commits.commit({A: OffsetAndMetadata(2)}, retried=True)
    rig.step()
    rig.member = ConsumerGroupMetadata("g")
    rebalance(rig)
    rig.member = ConsumerGroupMetadata("g", 5, "n")
    rig.coordinator.bend = refused_with(code)
    rig.coordinator.answer()
    rig.coordinator.bend = None
    assert first.done
    assert isinstance(first.error, (errors.RebalanceInProgress, errors.FencedInstanceId))
    assert len(rig.refused) == 1
    rig.step()
    (request,) = rig.sent()
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "n")
    rig.coordinator.answer()
    assert (second.done, second.error) == (True, None)


def test_after_an_interrupt_commits_are_sent_again_in_their_order() -> None:
    """Two were under way and two waited: the last one that was asked for decides."""
    rig = CommitsRig()
    commits = [rig.commits.commit({A: OffsetAndMetadata(offset)}, retried=False) for offset in (1, 2)]
    rig.step()
    commits += [rig.commits.commit({A: OffsetAndMetadata(offset)}, retried=False) for offset in (3, 4)]
    assert len(rig.sent()) == 2
    rig.coordinator.flying.clear()  # with the connection
    rig.commits.start_anew()
    rig.step()
    assert [request.topics[0].partitions[0].committed_offset for request in rig.sent()] == [1, 2, 3, 4]
    for _ in commits:
        rig.coordinator.answer()
    assert all(commit.done and commit.error is None for commit in commits)
    assert rig.coordinator.kept[A][0] == 4


def test_nothing_is_sent_behind_a_commit_that_may_be_tried_again() -> None:
    rig = CommitsRig()
    first = rig.commits.commit({A: OffsetAndMetadata(1)}, retried=True)
    second = rig.commits.commit({A: OffsetAndMetadata(2)}, retried=False)
    rig.step()
    assert offsets_sent(rig) == [1]
    rig.coordinator.bend = refused_with(Code.COORDINATOR_LOAD_IN_PROGRESS)
    rig.coordinator.answer()
    rig.coordinator.bend = None
    rig.step()
    rig.step(100)
    assert offsets_sent(rig) == [1]
    rig.coordinator.answer()
    rig.step()
    assert offsets_sent(rig) == [2]
    rig.coordinator.answer()
    assert [(commit.done, commit.error) for commit in (first, second)] == [(True, None)] * 2


@pytest.mark.parametrize("code", [Code.OFFSET_METADATA_TOO_LARGE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR])
def test_a_commit_that_fails_takes_no_other_with_it(code: int) -> None:
    rig = CommitsRig()
    for offset in (1, 2, 3):
        rig.commits.commit({A: OffsetAndMetadata(offset)}, callback=lambda *_: None, retried=False)
    rig.step()
    for bend in (None, refused_with(code), None):
        rig.coordinator.bend = bend
        rig.coordinator.answer()
    heard = [(commit.offsets[A].offset, commit.error and commit.error.code) for commit in rig.commits.answered]
    assert heard == [(1, None), (2, code), (3, None)]


def test_an_answer_to_one_question_leaves_the_other_under_way() -> None:
    rig = CommitsRig()
    first, second = rig.commits.fetch([A]), rig.commits.fetch([C])
    rig.step()
    rig.coordinator.bend = lambda reply: reply._replace(groups=[reply.groups[0]._replace(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)])
    rig.coordinator.answer()
    rig.coordinator.bend = None
    rig.step()
    assert (first.done, second.done, len(rig.coordinator.flying)) == (False, False, 1)
    rig.coordinator.answer()
    assert (first.done, second.results) == (False, {C: None})
    rig.step(100)
    rig.coordinator.answer()
    assert first.results == {A: None}


def test_an_offset_of_an_open_transaction_holds_up_no_other() -> None:
    rig = CommitsRig()
    rig.coordinator.kept[B] = 7, -1, ""

    def unstable(reply: Any) -> Any:
        (group,) = reply.groups
        topic, *others = group.topics
        first, *parts = topic.partitions
        parts = [first._replace(error_code=Code.UNSTABLE_OFFSET_COMMIT), *parts]
        return reply._replace(groups=[group._replace(topics=[topic._replace(partitions=parts), *others])])

    rig.coordinator.bend = unstable
    query = rig.commits.fetch([A, B, C])
    rig.step()
    rig.coordinator.answer()
    assert (query.waiting, {tp: found and found.offset for tp, found in query.results.items()}) == ({A}, {B: 7, C: None})


def test_all_commits_and_questions_end_where_the_coordinator_cannot_be_had() -> None:
    rig = CommitsRig()
    commits = [rig.commits.commit({tp: OffsetAndMetadata(1)}, retried=True) for tp in (A, C)]
    queries = [rig.commits.fetch([tp]) for tp in (A, C)]
    rig.coordinator.away, refusal = True, errors.GroupAuthorization("no")
    rig.coordinator.failure = refusal  # type: ignore[assignment]
    rig.step()
    assert [each.error for each in (*commits, *queries)] == [refusal] * 4


@each_row("asks", [False, True], ids=["a commit", "a question"])
def test_what_failed_is_asked_again_after_longer_and_longer_waits(asks: bool) -> None:
    rig = CommitsRig(backoff_max_ms=1_000)
    commits, coordinator = rig.commits, rig.coordinator
    assert commits.next_wake_ms(coordinator.now_ms) is None
    asked = commits.fetch([A]) if asks else commits.commit({A: OffsetAndMetadata(1)}, retried=True)
    waits_ms = []
    for _ in range(5):
        assert commits.next_wake_ms(coordinator.now_ms) == 0
        rig.step()
        assert commits.next_wake_ms(coordinator.now_ms) is None, "it waits for the answer"
        coordinator.bend = refused_with(Code.COORDINATOR_LOAD_IN_PROGRESS)
        if asks:
            coordinator.bend = lambda reply: reply._replace(groups=[])
        coordinator.answer()
        assert commits.next_wake_ms(coordinator.now_ms) == 0, "the back-off begins with the next step"
        rig.step()
        waits_ms.append(commits.next_wake_ms(coordinator.now_ms))
        coordinator.now_ms += waits_ms[-1] - 1
        rig.step()
        assert not coordinator.flying
        coordinator.now_ms += 1
    assert waits_ms == [100, 200, 400, 800, 1_000]
    coordinator.bend = None
    rig.step()
    coordinator.answer()
    assert asked.done and asked.error is None
    assert commits.next_wake_ms(coordinator.now_ms) is None
    assert (commits.latency_ms.count, rig.taken) == ((0, {}) if asks else (1, {A: 1}))


def test_a_refusal_says_where_it_comes_from_and_what_it_is_of() -> None:
    rig = CommitsRig()
    found = []
    for code in (Code.OFFSET_METADATA_TOO_LARGE, Code.GROUP_AUTHORIZATION_FAILED):
        commit = rig.commits.commit({B: OffsetAndMetadata(1)}, retried=True)
        rig.step()
        rig.coordinator.bend = refused_with(code)
        rig.coordinator.answer()
        found.append(commit.error)
    query = rig.commits.fetch([B])
    rig.step()
    rig.coordinator.bend = lambda reply: reply._replace(groups=[reply.groups[0]._replace(error_code=Code.GROUP_AUTHORIZATION_FAILED)])
    rig.coordinator.answer()
    found.append(query.error)
    assert [(e.topic, e.partition, e.broker, e.api) for e in found if e] == [
        ("t", 1, 1, "OffsetCommit v9"),
        ("t", 1, 1, "OffsetCommit v9"),
        (None, None, 1, "OffsetFetch v9"),
    ]
    assert ["group g" in str(error) for error in found] == [False, True, True]


def test_the_first_five_partitions_that_fail_are_named() -> None:
    tps = [A._replace(partition=at) for at in range(7)]
    offsets = {tp: OffsetAndMetadata(1) for tp in tps}
    rig = CommitsRig()
    rig.assigned.update(tps)
    left_out = rig.commits.commit(offsets, retried=False)
    rig.step()
    rig.coordinator.bend = lambda reply: reply._replace(topics=[])
    rig.coordinator.answer()
    rig.coordinator.away = True
    given_up = rig.commits.commit(offsets, retried=False)
    rebalance(rig, *tps)
    rig.coordinator.away = False
    rig.step()
    for commit in (left_out, given_up):
        assert commit.error is not None and commit.error.message.endswith(" t-0, t-1, t-2, t-3, t-4")


@each_row("version", [6, 7, 8, 9])
@each_row("names_member", [False, True])
def test_a_question_says_what_its_version_can(names_member: bool, version: int) -> None:
    """No offset of an open transaction from version 7 on, and who asks from version 9 on, if it is a member with an epoch."""
    rig = CommitsRig(fetch_version=version, names_member=names_member)
    for generation in (1, 0):
        rig.member = rig.member._replace(generation_id=generation)
        rig.commits.fetch([A])
        rig.step()
    requests = [request for _, request, _, _ in rig.coordinator.flying]
    assert [request.require_stable for request in requests] == [version >= 7] * 2
    if version >= 8:
        who = [(request.groups[0].member_id, request.groups[0].member_epoch) for request in requests]
        assert who == [("m", 1) if names_member and version >= 9 else (None, -1), (None, -1)]
