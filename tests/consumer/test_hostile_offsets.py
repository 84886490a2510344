"""Commits and questions for committed offsets, answered whole but wrong: time is moved by hand, each answer takes a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from commits_rig import OFFSETS, A, B, C, CommitsRig
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore.consumer.group.commits import Commit, CommittedQuery
from kafkacore.errors import Code
from kafkacore.types import OffsetAndMetadata
from tests.kit.rows import each_row

LIE_MS = 10_000
MOST_PER_SECOND = 12  # the back-off is 100 ms
CODES = [*sorted({*Code} - {0}), -2, 200, 32_767, -32_768]
Bend = Callable[[Any], Any]


class AskedRig(CommitsRig):
    def __init__(self, **options: Any) -> None:
        super().__init__(backoff_max_ms=1_000, **options)

    def run(self, of: Commit | CommittedQuery, ms: int = LIE_MS) -> float:
        """Until it is done, or the time is over. Returns the requests per second."""
        coordinator = self.coordinator
        began_ms, before = coordinator.now_ms, coordinator.requests
        while not of.done and coordinator.now_ms < began_ms + ms:
            self.commits.step(coordinator.now_ms)
            if coordinator.flying:
                coordinator.answer()
                coordinator.now_ms += 1
            elif not of.done:
                wake_ms = self.commits.next_wake_ms(coordinator.now_ms)
                assert wake_ms is not None
                coordinator.now_ms += max(1, wake_ms)
        coordinator.bend = coordinator.mutate = None
        return max(0, coordinator.requests - before - 3) / ms * 1_000


def on_topics(change: Callable[[list[Any]], list[Any]]) -> Bend:
    """Changes the topics of an answer, in all of its forms."""

    def bend(reply: Any) -> Any:
        if groups := getattr(reply, "groups", None):
            return reply._replace(groups=[g._replace(topics=change(g.topics)) for g in groups])
        return reply._replace(topics=change(reply.topics))

    return bend


def on_partitions(change: Callable[[list[Any]], list[Any]]) -> Bend:
    return on_topics(lambda topics: [t._replace(partitions=change(t.partitions)) for t in topics])


def each(**fields: Any) -> Bend:
    return on_partitions(lambda partitions: [q._replace(**fields) for q in partitions])


LEFT_OUT: dict[str, Bend] = {
    "no topic": on_topics(lambda topics: []),
    "a topic is missing": on_topics(lambda topics: topics[:-1]),
    "a partition is missing": on_partitions(lambda partitions: partitions[1:]),
    "another topic": on_topics(lambda topics: [t._replace(name="x") for t in topics]),
    "another partition": each(partition_index=77),
    "partitions below 0": each(partition_index=-1),
}


@each_row("retried", [False, True], ids=["commit_async", "commit"])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in LEFT_OUT.items()])
def test_a_commit_that_is_not_wholly_answered(bend: Bend, retried: bool) -> None:
    """What the coordinator does not name may not be committed."""
    rig = AskedRig()
    rig.coordinator.bend = bend
    commit = rig.commits.commit(OFFSETS, retried=retried)
    assert rig.run(commit) <= MOST_PER_SECOND
    assert (commit.done, commit.error is not None) == (not retried, True)
    assert commit.error is not None
    assert (commit.error.broker, commit.error.api) == (1, "OffsetCommit v9")
    if retried:
        assert rig.run(commit) <= MOST_PER_SECOND
        assert (commit.done, commit.error) == (True, None)


@each_row("fetch_version", [5, 7, 8, 9])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in LEFT_OUT.items()])
def test_a_question_that_is_not_wholly_answered(bend: Bend, fetch_version: int) -> None:
    rig = AskedRig(fetch_version=fetch_version)
    rig.run(rig.commits.commit(OFFSETS, retried=True))
    rig.coordinator.bend = bend
    query = rig.commits.fetch(OFFSETS)
    assert rig.run(query) <= MOST_PER_SECOND
    assert not query.done
    assert query.last_error is not None
    assert (query.last_error.broker, query.last_error.api) == (1, f"OffsetFetch v{fetch_version}")
    assert rig.run(query) <= MOST_PER_SECOND
    assert query.results == OFFSETS


def test_a_question_in_its_back_off_holds_up_no_commit_and_no_other_question() -> None:
    """An open transaction may keep an offset for long: what has not failed is not asked later for it."""
    rig = AskedRig()
    rig.coordinator.bend = each(error_code=Code.UNSTABLE_OFFSET_COMMIT)
    kept = rig.commits.fetch([A])
    assert rig.run(kept) <= MOST_PER_SECOND
    assert isinstance(kept.last_error, errors.UnstableOffsetCommit)
    rig.coordinator.bend = each(error_code=Code.UNSTABLE_OFFSET_COMMIT)
    while not rig.coordinator.flying:
        rig.coordinator.now_ms += 100
        rig.commits.step(rig.coordinator.now_ms)
    rig.coordinator.answer()
    rig.commits.step(rig.coordinator.now_ms)  # its back-off is a second by now
    rig.coordinator.bend = None
    for other in (rig.commits.commit({B: OffsetAndMetadata(6)}, retried=True), rig.commits.fetch([C])):
        before_ms = rig.coordinator.now_ms
        rig.run(other)
        assert other.done and rig.coordinator.now_ms - before_ms < 100
    rig.run(kept)
    assert kept.done


@each_row("fetch_version", [5, 9])
@each_row(
    "bend",
    [
        pytest.param(on_topics(lambda topics: topics * 2), id="topics twice"),
        pytest.param(on_partitions(lambda partitions: partitions * 3), id="partitions three times"),
        pytest.param(on_topics(lambda topics: [*topics, topics[0]._replace(name="x")]), id="one topic more"),
    ],
)
def test_what_is_answered_twice_counts_once(bend: Bend, fetch_version: int) -> None:
    rig = AskedRig(fetch_version=fetch_version)
    rig.coordinator.bend = bend
    commit = rig.commits.commit(OFFSETS, retried=True)
    rig.run(commit)
    assert (commit.done, commit.error, rig.coordinator.requests) == (True, None, 1)
    rig.coordinator.bend = bend
    query = rig.commits.fetch(OFFSETS)
    rig.run(query)
    assert (query.results, rig.coordinator.requests) == (OFFSETS, 2)


def test_an_error_of_what_was_not_asked_for_is_none() -> None:
    def strange(topics: list[Any]) -> list[Any]:
        one = topics[0]
        return [one._replace(name="x", partitions=[one.partitions[0]._replace(error_code=Code.TOPIC_AUTHORIZATION_FAILED)]), *topics]

    rig = AskedRig()
    rig.coordinator.bend = on_topics(strange)
    commit = rig.commits.commit(OFFSETS, retried=True)
    rig.run(commit)
    assert (commit.done, commit.error) == (True, None)


@each_row("offset", [-2, -(2**63), 2**63 - 1])
def test_committed_offsets_that_nobody_commits(offset: int) -> None:
    rig = AskedRig()
    rig.coordinator.bend = each(committed_offset=offset, committed_leader_epoch=-5, metadata=None)
    query = rig.commits.fetch(OFFSETS)
    rig.run(query)
    assert query.results == dict.fromkeys(OFFSETS, None if offset < 0 else OffsetAndMetadata(offset))


@pytest.mark.parametrize("retried", [False, True], ids=["commit_async", "commit"])
def test_every_error_code_of_a_commit(retried: bool) -> None:
    for code in CODES:
        rig = AskedRig()
        rig.coordinator.bend = each(error_code=code)
        commit = rig.commits.commit(OFFSETS, retried=retried)
        assert rig.run(commit) <= MOST_PER_SECOND, code
        causes = [commit.error, *commit.error.attempts] if commit.error else []
        assert any(cause.broker == 1 and cause.api == "OffsetCommit v9" for cause in causes), code
        assert commit.done or retried
        rig.run(commit)
        assert commit.done, code


@pytest.mark.parametrize("names", ["group", "partition"])
def test_every_error_code_of_a_question(names: str) -> None:
    for code in CODES:
        rig = AskedRig()

        def whole(reply: Any, code: int = code) -> Any:
            return reply._replace(groups=[g._replace(error_code=code) for g in reply.groups])

        rig.coordinator.bend = whole if names == "group" else each(error_code=code)
        query = rig.commits.fetch(OFFSETS)
        assert rig.run(query) <= MOST_PER_SECOND, code
        cause = query.error or query.last_error
        assert cause is not None
        assert (cause.broker, cause.api) == (1, "OffsetFetch v9"), code
        rig.run(query)
        assert query.done, code


@given(seed=st.integers(0, 2**32), often=st.sampled_from([1, 2, 5]), commits=st.booleans(), fetch_version=st.sampled_from([5, 7, 8, 9]))
def test_bytes_of_answers_change(seed: int, often: int, commits: bool, fetch_version: int) -> None:
    chance = random.Random(seed)

    def mutate(wire: bytes) -> bytes:
        if chance.randrange(often):
            return wire
        changed = bytearray(wire)
        for _ in range(chance.choice([1, 1, 2, 8])):
            at = chance.randrange(len(changed))
            changed[at] = chance.choice([chance.randrange(256), 0, 0xFF, 0x7F, 0x80, changed[at] ^ 1 << chance.randrange(8)])
        return bytes(changed[: chance.choice([None, None, chance.randrange(1, len(changed))])])

    rig = AskedRig(fetch_version=fetch_version)
    rig.coordinator.mutate = mutate
    asked: Commit | CommittedQuery = rig.commits.commit(OFFSETS, retried=True) if commits else rig.commits.fetch(OFFSETS)
    assert rig.run(asked) <= MOST_PER_SECOND
    rig.run(asked)
    assert asked.done
    if isinstance(asked, Commit):
        assert asked.error is not None or rig.coordinator.kept.keys() == OFFSETS.keys()


def test_the_second_of_two_questions_may_be_the_first_to_be_asked_again() -> None:
    rig = AskedRig()
    first, second = rig.commits.fetch(OFFSETS), rig.commits.fetch(OFFSETS)
    first.retry_at_ms, second.retry_at_ms = 300, 200
    assert rig.commits.next_wake_ms(100) == 100
