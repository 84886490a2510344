"""Commits that are sent later than they were asked for, and several of which one fails: time is moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
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
    assert rig.commits.idle and rig.coordinator.failure is None
    assert rig.commits.next_wake_ms(rig.coordinator.now_ms) is None


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
    assert (commits.latency_ms.total, rig.taken) == ((0, {}) if asks else (1, {A: 1}))


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


def test_what_is_known_before_it_is_sent() -> None:
    rig = CommitsRig()
    commit = rig.commits.commit({A: OffsetAndMetadata(1)}, retried=True)
    found = (commit.done, commit.error, commit.last, commit.refused, commit.unseen, commit.snapshot)
    assert found == (False, None, False, {}, [], None)
    assert (commit.sent_ms, commit.asked_metadata, commit.looks, commit.tries) == (-1, -1, 0, 0)
    assert commit.asked_as == rig.member and not rig.commits.idle
    query = rig.commits.fetch([A])
    assert (query.results, query.topic_ids, query.error, query.last_error) == ({}, {}, None, None)
    assert (query.waiting, query.tries, query.failed, query.retry_at_ms) == ({A}, 0, False, 0)
    rig.step()
    assert (commit.sent_ms, commit.asked_metadata) == (rig.coordinator.now_ms, -1)
    assert rig.commits.commit({}, retried=True).done and rig.commits.fetch([]).done


def test_generation_0_is_one_as_all_others() -> None:
    rig = CommitsRig()
    rig.member = ConsumerGroupMetadata("g", 0, "m")
    rig.coordinator.away = True
    kept, given_up = (rig.commits.commit({tp: OffsetAndMetadata(1)}, retried=False) for tp in (A, B))
    rig.step()
    rig.member = ConsumerGroupMetadata("g", 0, "n")
    rig.assigned.discard(B)
    rig.coordinator.away = False
    rig.step()
    assert [(r.member_id, r.topics[0].partitions[0].partition_index) for r in rig.sent()] == [("n", 0)]
    assert isinstance(given_up.error, errors.CommitFailed) and not kept.done


AGAIN = "tried again"
OUTCOMES: dict[int, tuple[object, object, object]] = {
    Code.COORDINATOR_LOAD_IN_PROGRESS: (AGAIN, errors.CoordinatorLoadInProgress, AGAIN),
    Code.NOT_COORDINATOR: (AGAIN, errors.NotCoordinator, AGAIN),
    Code.UNSTABLE_OFFSET_COMMIT: (AGAIN, errors.UnstableOffsetCommit, AGAIN),
    Code.STALE_MEMBER_EPOCH: (AGAIN, errors.StaleMemberEpoch, AGAIN),
    Code.REBALANCE_IN_PROGRESS: (errors.RebalanceInProgress, errors.RebalanceInProgress, AGAIN),
    Code.UNKNOWN_MEMBER_ID: (errors.CommitFailed,) * 3,
    Code.ILLEGAL_GENERATION: (errors.CommitFailed,) * 3,
    Code.FENCED_MEMBER_EPOCH: (errors.CommitFailed,) * 3,
    Code.FENCED_INSTANCE_ID: (errors.FencedInstanceId,) * 3,
    Code.OFFSET_METADATA_TOO_LARGE: (errors.OffsetMetadataTooLarge,) * 3,
    Code.TOPIC_AUTHORIZATION_FAILED: (errors.TopicAuthorization,) * 3,
}
"""By the code of the answer: what becomes of a commit, of commit_async, and of the last commit of a member that leaves."""
OF_MEMBER = {
    code for code in OUTCOMES if errors.for_code(code) in (errors.FencedInstanceId, errors.RebalanceInProgress, errors.StaleMemberEpoch)
}


@each_row("goes_on", [False, True])
@each_row("code", OUTCOMES)
def test_what_becomes_of_a_commit_that_is_refused(code: int, goes_on: bool) -> None:
    """`goes_on`: the member's next generation may commit: that it was refused is what a rebalance does."""
    heard = code in OF_MEMBER or errors.CommitFailed in OUTCOMES[code]
    outcomes = OUTCOMES[Code.REBALANCE_IN_PROGRESS] if heard and goes_on else OUTCOMES[code]
    for outcome, options in zip(outcomes, ({"retried": True}, {"retried": False}, {"retried": True, "last": True}), strict=True):
        rig = CommitsRig()
        rig.goes_on = goes_on
        commit = rig.commits.commit({A: OffsetAndMetadata(1), C: OffsetAndMetadata(1)}, **options)
        rig.step()
        rig.coordinator.bend = refused_with(code)
        rig.coordinator.answer()
        rig.coordinator.bend = None
        assert {each.code for each in rig.refused} == ({code} if heard else set())
        assert rig.commits.idle == commit.done == (outcome is not AGAIN)
        error = commit.error
        assert error is not None and (outcome is AGAIN or type(error) is outcome)
        if type(error) in (errors.CommitFailed, errors.RebalanceInProgress) and commit.done:
            (error,) = error.attempts
        assert (error.code, error.topic, error.partition) == (code, "t", 0)
        assert ("refused for 2 topics, also for: u" in str(error)) == (code == Code.TOPIC_AUTHORIZATION_FAILED)
        rig.step()
        rig.step(100)
        assert len(rig.sent()) == (outcome is AGAIN)


def test_what_no_version_can_carry_is_not_tried_again() -> None:
    rig = CommitsRig()
    commits, error = rig.commits, errors.UsageError("no form on the wire")
    for asked in (commits.commit({A: OffsetAndMetadata(1)}, retried=True), commits.fetch([A])):
        rig.step()
        rig.coordinator.flying.popleft()[3](SimpleNamespace(response=None, error=error))
        assert asked.done and asked.error is error
    assert rig.commits.next_wake_ms(rig.coordinator.now_ms) is None


def test_what_is_not_waited_for_is_not_sent_and_its_answer_says_nothing() -> None:
    rig = CommitsRig()
    rig.commits.notes_all = True
    first, second = (rig.commits.commit({tp: OffsetAndMetadata(1)}, retried=True) for tp in (A, B))
    queries = [rig.commits.fetch([tp]) for tp in (A, C)]
    rig.step()
    assert len(rig.coordinator.flying) == 3
    rig.commits.give_up(second)
    rig.commits.forget(queries[0])
    for _ in range(3):
        rig.coordinator.answer()
    assert [query.results for query in queries] == [{}, {C: None}]
    rig.step()
    assert not rig.coordinator.flying and rig.commits.idle
    assert [*rig.commits.answered] == [first]
