"""Records of topics that a producer does not know yet: of two that wait one fails, and the other is placed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from producer_support import Bench

from kafkacore.errors import InvalidTopic, KafkaTimeoutError, UnknownTopicOrPartition
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.producer.unplaced import HeldRecord, Unplaced

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
    with pytest.raises(InvalidTopic):
        rig.hold("wrong", b"2")
    rig.answered(1, here=1, wrong=InvalidTopic(), absent=1)
    assert rig.face.placed[1:] == [("absent", b"2")]
    assert not rig.hold("absent", b"3"), "it is there now"


def test_of_two_records_of_a_topic_one_is_late_and_the_other_is_placed() -> None:
    rig = Rig()
    assert rig.hold("new", b"1")
    rig.answered(LIFE_MS - 1)
    rig.hold("new", b"2")
    rig.answered(1)
    assert rig.face.failed == [("new", b"1", KafkaTimeoutError)]
    rig.answered(1, new=1)
    assert (rig.face.placed, rig.face.failed[1:]) == ([("new", b"2")], [])
