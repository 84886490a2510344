"""Assigned partitions that their topic does not have: nothing is asked about them until it has them."""

from __future__ import annotations

import itertools
import logging

import pytest
from test_fetcher import FetchRig, filled, numbers

from kafkacore import errors
from kafkacore.consumer.subscription import EARLIEST
from kafkacore.protocol import ListOffsetsRequest
from kafkacore.types import TopicPartition
from tests.kit.inside import left_out_of

A, B, FAR = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 7)
MANY = 20_000


def rig(*more: TopicPartition) -> FetchRig:
    made = FetchRig({A: filled(), B: filled()}, seek=False)
    made.subscription.assign_manual([A, B, *more])
    return made


def test_the_others_are_read_and_one_line_says_how_many_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    consumer = rig(*(TopicPartition("t", index) for index in range(2, MANY)))
    assert consumer.poll() | consumer.poll() == {A: numbers(0, 10), B: numbers(0, 10)}
    for _ in range(20):
        consumer.round(1_000)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == [f"topic t has 2 partitions: {MANY - 2:,} partitions of the assignment beyond them left out until it has them"]
    asked = [request for _, _, request in consumer.cluster.requests if isinstance(request, ListOffsetsRequest)]
    assert sum(len(topic.partitions) for request in asked for topic in request.topics) == 2


def test_each_topic_that_lacks_partitions_has_its_line_also_one_that_lacks_them_later(caplog: pytest.LogCaptureFixture) -> None:
    of_u = TopicPartition("u", 0)
    consumer = FetchRig({A: filled(), B: filled(), of_u: filled()}, seek=False)
    for more in ([], [TopicPartition("u", 3)], [TopicPartition("u", 4)]):
        consumer.subscription.assign_manual([A, FAR, of_u, *more])
        for _ in range(20):
            consumer.round(1_000)
    lines = [record.getMessage().partition(":")[0] for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == ["topic t has 2 partitions", "topic u has 1 partition"]


def test_a_step_does_not_look_at_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = rig(*(TopicPartition("t", index) for index in range(2, MANY)))
    consumer.round()
    looked: list[TopicPartition] = []
    left_out = left_out_of(consumer.positions)
    count = left_out.count
    monkeypatch.setattr(left_out, "count", lambda state: looked.append(state.tp) or count(state))
    for _ in range(50):
        consumer.round(100)
    assert len(looked) <= 2


def test_metadata_are_asked_for_with_a_back_off() -> None:
    consumer = rig(FAR)
    times = []
    for _ in range(500):
        before = consumer.cluster.update_requests
        consumer.round(10)
        if consumer.cluster.update_requests > before:
            times.append(consumer.now_ms)
    assert [b - a for a, b in itertools.pairwise(times)][:5] == [100, 200, 400, 800, 1000]
    wait_ms = consumer.positions.next_wake_ms(consumer.now_ms)
    assert wait_ms is not None
    assert 0 <= wait_ms <= 1_000


def test_a_partition_is_read_once_its_topic_has_it() -> None:
    farther = TopicPartition("t", 9)
    consumer = rig(FAR, farther)
    consumer.subscription.request_reset(FAR, EARLIEST)
    consumer.round()
    assert consumer.poll() | consumer.poll() == {A: numbers(0, 10), B: numbers(0, 10)}
    text = str(consumer.positions.attempts(FAR))
    assert "the topic has 2 partitions" in text
    for index in range(2, 8):
        consumer.cluster.logs[TopicPartition("t", index)] = filled(2)
    consumer.cluster.refresh()
    assert consumer.poll() == {FAR: numbers(0, 20)}
    assert "the topic has 8 partitions" in str(consumer.positions.attempts(farther))
    consumer.subscription.remove([farther])
    consumer.round()
    assert consumer.positions.idle


def test_what_is_not_assigned_any_more_is_forgotten() -> None:
    consumer = rig(FAR)
    consumer.round()
    consumer.subscription.remove([FAR])
    consumer.subscription.request_reset(A, EARLIEST)
    consumer.round()
    assert left_out_of(consumer.positions).next_wake_ms(consumer.now_ms) is None


def test_a_position_that_waits_for_a_newer_leader_says_so() -> None:
    """A committed offset names a leader epoch that the metadata do not have (yet)."""
    consumer = rig()
    consumer.positions.seek(A, 2**63 - 1, 7)
    consumer.round()
    (why,) = consumer.positions.attempts(A)
    assert isinstance(why, errors.UnknownLeaderEpoch)
    assert "leader epoch 7, metadata have 0" in str(why)


@pytest.mark.parametrize("offset", [11, 2**63 - 1])
def test_an_offset_behind_the_end_is_named_by_a_warning(offset: int, caplog: pytest.LogCaptureFixture) -> None:
    consumer = rig()
    consumer.positions.seek(A, offset, -1)
    consumer.subscription.pause(B)
    assert consumer.poll() == {A: numbers(0, 10)}
    assert [record.getMessage() for record in caplog.records] == [f"t-0: offset {offset} is out of range, reset to earliest"]
