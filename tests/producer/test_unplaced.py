"""Records of topics that a producer does not know yet: of two that wait one fails, and the other is placed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from producer_support import Bench

from kafkacore.errors import (
    BufferFullError,
    ClosedError,
    InvalidTopic,
    KafkaTimeoutError,
    LeaderNotAvailable,
    NetworkError,
    UnknownTopicOrPartition,
)
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.producer.accumulator import NEVER_MS
from kafkacore.producer.unplaced import MEMORY_PAUSE_MS, HeldRecord, Unplaced

LIFE_MS, PATIENCE_MS = 1_000, 300


class Face:
    """Keeps what is placed, and what is lost."""

    def __init__(self) -> None:
        self.placed: list[tuple[str, bytes]] = []
        self.failed: list[tuple[str, bytes, type]] = []

    def place(self, queue: Any, records: deque[HeldRecord]) -> None:
        self.placed.append((queue.topic, records.popleft().value))  # type: ignore[arg-type]

    def lost(self, topic: str, record: HeldRecord, error: BaseException) -> None:
        self.failed.append((topic, record.value, type(error)))  # type: ignore[arg-type]


class Rig:
    """Held records over a Bench; `known` is what the next answer says of topics."""

    def __init__(self) -> None:
        self.bench, self.face = Bench(enable_idempotence=False), Face()
        self.unplaced = Unplaced(self.bench.sender, {}, self.face, life_ms=LIFE_MS, patience_ms=PATIENCE_MS)

    def hold(self, topic: str, value: bytes) -> bool:
        record = HeldRecord(value, None, None, None, 0, None, 0.0, 0, 0)
        return self.unplaced.hold(topic, record, self.bench.clock.now_ms(), lambda by: None)

    def answered(self, ms: int, **known: Any) -> None:
        """So much later an answer comes: partitions of topics, or the errors of topics."""
        metadata = self.bench.metadata
        self.bench.clock.advance(ms)
        metadata.answered = metadata.started + 1
        topics = {
            name: TopicInfo(name, error=said) if isinstance(said, Exception) else TopicInfo(name, bytes(16), [PartitionInfo(0, 1, 0)])
            for name, said in known.items()
        }
        metadata.snapshot = ClusterSnapshot(metadata.snapshot.nodes, topics=topics)
        metadata.version += 1
        self.unplaced.step(self.bench.clock.now_ms())


def test_of_two_topics_one_is_refused_and_the_other_appears() -> None:
    rig = Rig()
    for topic in ("here", "wrong", "absent"):
        assert rig.hold(topic, b"1")
    rig.answered(10, wrong=InvalidTopic(), absent=UnknownTopicOrPartition())
    assert rig.face.failed == [("wrong", b"1", InvalidTopic)]
    rig.answered(PATIENCE_MS, here=1, wrong=InvalidTopic(), absent=UnknownTopicOrPartition())
    assert rig.face.placed == [("here", b"1")]
    assert rig.face.failed[1:] == [("absent", b"1", UnknownTopicOrPartition)]
    assert not rig.unplaced
    rig.answered(1, here=1, wrong=InvalidTopic())
    assert rig.hold("absent", b"2"), "it is asked for again"
    asked: list[str] = []
    request_topic = rig.bench.metadata.request_topic
    rig.bench.metadata.request_topic = asked.append  # type: ignore[method-assign, assignment]
    with pytest.raises(InvalidTopic):
        rig.hold("wrong", b"2")
    assert asked == ["wrong"]
    rig.bench.metadata.request_topic = request_topic  # type: ignore[method-assign]
    rig.answered(1, here=1, wrong=InvalidTopic(), absent=1)
    assert rig.face.placed[1:] == [("absent", b"2")]
    assert not rig.hold("absent", b"3"), "it is there now"


def test_a_refusal_is_forgotten_once_nothing_is_known_of_the_topic() -> None:
    rig = Rig()
    rig.hold("new", b"1")
    rig.answered(1, new=InvalidTopic())
    rig.answered(1)
    assert rig.hold("new", b"2")
    rig.answered(LIFE_MS)
    assert [kind for _, _, kind in rig.face.failed] == [InvalidTopic, KafkaTimeoutError]
    rig.answered(1, new=LeaderNotAvailable())
    assert rig.hold("new", b"3"), "another error than the one before"


def test_of_two_records_of_a_topic_one_is_late_and_the_other_is_placed() -> None:
    rig = Rig()
    assert rig.hold("new", b"1")
    rig.answered(LIFE_MS - 1)
    rig.hold("new", b"2")
    rig.answered(1)
    assert rig.face.failed == [("new", b"1", KafkaTimeoutError)]
    rig.answered(1, new=1)
    assert (rig.face.placed, rig.face.failed[1:]) == ([("new", b"2")], [])


def test_held_records_count_against_the_memory_of_the_producer() -> None:
    rig = Rig()
    size = rig.bench.pool.available_bytes
    assert rig.hold("new", b"x" * (size - 1))
    assert rig.hold("new", b"x")
    with pytest.raises(BufferFullError, match="1 bytes are needed, 0 are free") as full:
        rig.hold("new", b"x")
    assert full.value.topic == "new"
    rig.answered(1, new=1)
    assert len(rig.face.placed) == 2
    assert rig.hold("other", b"x" * size), "what was placed is free again"


def test_a_record_that_is_not_counted_is_not_held() -> None:
    rig = Rig()

    def count(by: int) -> None:
        counted.append(by)
        if len(counted) == 1:
            raise KeyboardInterrupt

    counted: list[int] = []
    record = HeldRecord(b"1", b"k", None, None, 0, None, 0.0, 0, 0)
    with pytest.raises(KeyboardInterrupt):
        rig.unplaced.hold("new", record, rig.bench.clock.now_ms(), count)
    assert counted == [1, -1]
    assert rig.hold("new", b"2")
    rig.answered(1, new=1)
    assert rig.face.placed == [("new", b"2")]


def test_who_waits_hears_when_nothing_is_held_any_more() -> None:
    rig = Rig()
    assert rig.unplaced.emptied() is None
    for topic in ("a", "b", "b"):
        rig.hold(topic, b"1")
    waiter = rig.unplaced.emptied()
    assert waiter is not None
    rig.answered(1, a=1)
    assert not waiter.resolved
    with pytest.raises(KafkaTimeoutError, match="earlier records wait") as late, rig.unplaced.change_over("b"):
        pytest.fail("its records go first")
    assert late.value.topic == "b"
    with rig.unplaced.change_over("a"):
        rig.unplaced.close()
    assert waiter.resolved
    assert rig.face.failed == [("b", b"1", ClosedError)] * 2
    assert rig.unplaced.step(rig.bench.clock.now_ms()) == NEVER_MS


def test_what_cannot_be_placed_waits_for_memory_or_is_lost() -> None:
    rig = Rig()
    for value in (b"1", b"2", b"3"):
        rig.hold("new", value)
    outcomes: list[Any] = [BufferFullError("full"), ValueError("no"), None, None]
    place = rig.face.place

    def placing(queue: Any, records: Any) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        place(queue, records)

    rig.face.place = placing  # type: ignore[method-assign]
    rig.answered(1, new=1)
    assert (rig.face.placed, bool(rig.unplaced)) == ([], True)
    now_ms = rig.bench.clock.now_ms()
    assert rig.unplaced.step(now_ms) == MEMORY_PAUSE_MS
    assert rig.unplaced.step(now_ms + MEMORY_PAUSE_MS - 1) == 1
    rig.unplaced.step(now_ms + MEMORY_PAUSE_MS)
    assert (rig.face.failed, rig.face.placed) == ([("new", b"1", ValueError)], [("new", b"2"), ("new", b"3")])


def test_a_topic_that_does_not_come_is_asked_for_until_its_records_are_late() -> None:
    rig = Rig()
    metadata = rig.bench.metadata
    urgent: list[Any] = []
    rig.bench.sender.wake = lambda deadline_ms, urgently: urgent.append((deadline_ms, urgently))  # type: ignore[method-assign]
    rig.hold("new", b"1")
    assert (metadata.topics, urgent) == (["new"], [(1_000, True)])
    metadata.note_attempt(NetworkError("cut"))
    rig.answered(10, new=LeaderNotAvailable("soon"))
    assert rig.unplaced.step(rig.bench.clock.now_ms()) == LIFE_MS - 10
    rig.hold("new", b"2")
    assert len(urgent) == 1, "it has been asked for"
    errors: list[BaseException] = []
    rig.face.lost = lambda topic, record, error: errors.append(error)  # type: ignore[method-assign]
    rig.bench.clock.advance(LIFE_MS - 10)
    assert rig.unplaced.step(rig.bench.clock.now_ms()) == 10
    [error] = errors
    rig.bench.clock.advance(10)
    assert rig.unplaced.step(rig.bench.clock.now_ms()) == NEVER_MS - rig.bench.clock.now_ms()
    assert not rig.unplaced
    assert isinstance(error, KafkaTimeoutError) and error.topic == "new"
    assert str(error).startswith("1 record not delivered within delivery_timeout_ms=1000 (no metadata of the topic)")
    assert [type(each) for each in error.attempts][-1] is LeaderNotAvailable
