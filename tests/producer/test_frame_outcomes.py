"""What became of the rows of a frame, out of what became of its batches."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore import errors
from kafkacore.producer.frame_future import FrameFuture
from kafkacore.types import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Batch:
    """The future of a batch of rows, and its outcome."""

    def __init__(self, rows: int, failed: dict[int, Any], where: dict[TopicPartition, tuple[int, int]], known: bool = True) -> None:
        self.rows, self.errors, self.where, self.known = rows, failed, where, known

    def __len__(self) -> int:
        return self.rows

    def done(self) -> bool:
        return self.known

    def result(self, timeout: float | None) -> Batch:
        if not self.known:
            raise errors.KafkaTimeoutError("still on its way")
        return self

    def stretches(self) -> dict[TopicPartition, tuple[int, int]]:
        return self.where


def test_rows_of_two_batches_fail_and_the_others_are_where_they_are() -> None:
    large, late = errors.RecordTooLarge("large"), errors.KafkaTimeoutError("late")
    frame: Any = FrameFuture("t")
    frame.add(Batch(5, {3: large}, {FIRST: (10, 12), SECOND: (0, 2)}))
    frame.add(Batch(4, {0: late}, {FIRST: (12, 15)}))
    frame.add(last := Batch(1, {}, {SECOND: (7, 8)}, known=False))
    with pytest.raises(errors.KafkaTimeoutError, match="still on its way"):
        frame.result(0)
    found = frame.so_far()
    assert (len(found), found.delivered, found.errors) == (9, 7, {3: large, 5: late})
    last.known = True
    assert len(frame.result(0)) == 10
    assert found.stretches == {FIRST: (10, 15), SECOND: (0, 8)}
