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
        self.timeouts: list[float | None] = []
        self.callbacks: list[Any] = []

    def __len__(self) -> int:
        return self.rows

    def done(self) -> bool:
        return self.known

    def add_done_callback(self, fn: Any) -> None:
        self.callbacks.append(fn)

    def __await__(self) -> Any:
        yield self
        return self

    def result(self, timeout: float | None) -> Batch:
        self.timeouts.append(timeout)
        if not self.known:
            raise errors.KafkaTimeoutError("still on its way")
        return self

    def stretches(self) -> dict[TopicPartition, tuple[int, int]]:
        return self.where


@pytest.mark.parametrize("looks_first", [False, True])
def test_rows_of_two_batches_fail_and_the_others_are_where_they_are(looks_first: bool) -> None:
    large, late = errors.RecordTooLarge("large"), errors.KafkaTimeoutError("late")
    frame: Any = FrameFuture("t")
    batches = [Batch(5, {3: large}, {FIRST: (10, 12), SECOND: (0, 2)}), Batch(4, {0: late}, {FIRST: (12, 15)})]
    for each in (*batches, last := Batch(1, {}, {SECOND: (7, 8)}, known=False)):
        frame.add(each)
    assert not frame.done()
    if looks_first:
        assert len(frame.so_far()) == 9
    with pytest.raises(errors.KafkaTimeoutError, match="still on its way"):
        frame.result(0)
    found = frame.so_far()
    assert (len(found), found.delivered, found.errors) == (9, 7, {3: large, 5: late})
    assert [each.timeouts for each in (*batches, last)] == [[0]] * 3
    last.known = True
    assert len(frame.result(0)) == 10
    assert found.stretches == {FIRST: (10, 15), SECOND: (0, 8)}


def test_of_two_that_wait_for_a_frame_one_waits_for_the_other_and_no_longer_than_it_may() -> None:
    class Asking(Batch):
        def result(self, timeout: float | None) -> Batch:
            with pytest.raises(errors.KafkaTimeoutError, match=r"not all of 1 row have an outcome within 0 s") as late:
                frame.result(0)
            assert late.value.topic == "t"
            return super().result(timeout)

    frame: Any = FrameFuture("t")
    frame.add(Asking(1, {}, {FIRST: (0, 1)}))
    assert frame.result().stretches == {FIRST: (0, 1)}


def test_the_first_row_that_failed_is_the_exception() -> None:
    large, late = errors.RecordTooLarge("large"), errors.KafkaTimeoutError("late")
    frame: Any = FrameFuture("t")
    frame.add(Batch(0, {}, {}))
    assert (frame.exception(), len(frame), frame.done()) == (None, 0, True)
    frame.add(one := Batch(1_500, {1_400: late, 7: large}, {}))
    assert frame.exception(9) is large
    assert 8 < one.timeouts[0] <= 9
    frame.add(other := Batch(1, {}, {}, known=False))
    assert (frame.done(), repr(frame)) == (False, "<FrameFuture t: 1,501 rows, done=False>")
    other.known = True
    assert repr(frame.result()) == "<FrameMetadata t: 1,501 rows, 2 failed>" and other.timeouts == [None]
    frame.add(slow := Batch(1, {}, {}, known=False))
    with pytest.raises(errors.KafkaTimeoutError, match="on its way"):
        frame.result(-1)
    assert slow.timeouts == [0.0]


def test_a_callback_and_a_task_come_after_all_batches() -> None:
    frame: Any = FrameFuture("t")
    batches = [Batch(2, {}, {FIRST: (0, 2)}), Batch(3, {1: errors.RecordTooLarge()}, {FIRST: (2, 4)})]
    for each in batches:
        frame.add(each)
    called: list[Any] = []
    frame.add_done_callback(called.append)
    batches[1].callbacks[0](batches[1])
    assert called == []
    batches[0].callbacks[0](batches[0])
    assert called == [frame]
    task, other = frame.__await__(), frame.__await__()
    assert next(task) is next(other) is batches[0]
    assert task.send(None) is batches[1] is other.send(None)
    for each in (other, task):  # the second to hear of a batch counts it no more
        with pytest.raises(StopIteration) as ended:
            each.send(None)
        assert (len(ended.value.value), list(ended.value.value.errors)) == (5, [3])
    assert ended.value.value.stretches == {FIRST: (0, 4)}
    FrameFuture("t").add_done_callback(called.append)
    assert len(called) == 2
