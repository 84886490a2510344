"""FrameFuture: the outcome of one `send_frame`, kept by partition and not by row, so that a long frame leaves nothing behind."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from kafkacore.errors import KafkaError, KafkaTimeoutError
from kafkacore.plurals import counted
from kafkacore.producer.futures import BatchFuture, BatchMetadata
from kafkacore.types import TopicPartition


class FrameMetadata:
    """Where the rows of a frame are.

    Attributes:
        topic: their topic.
        errors: {row: KafkaError} of the rows that failed.
        stretches: {TopicPartition: (first offset, offset after the last)} of the rows that were delivered: what `consumer.read` takes.
            Records of other producers may lie between. Empty with acks=0.
    """

    def __init__(self, topic: str) -> None:
        """Starts without rows."""
        self.topic = topic
        self.errors: dict[int, KafkaError] = {}
        self.stretches: dict[TopicPartition, tuple[int, int]] = {}
        self._rows = 0

    @property
    def delivered(self) -> int:
        """How many rows the brokers have."""
        return self._rows - len(self.errors)

    def __len__(self) -> int:
        return self._rows

    def add(self, first_row: int, outcome: BatchMetadata) -> None:
        """Takes in what became of the rows from `first_row` on."""
        self._rows += len(outcome)
        for i, error in outcome.errors.items():
            self.errors[first_row + i] = error
        for tp, (first, end) in outcome.stretches().items():
            low, high = self.stretches.get(tp, (first, end))
            self.stretches[tp] = min(low, first), max(high, end)

    def __repr__(self) -> str:
        return f"<FrameMetadata {self.topic}: {counted(len(self), 'row')}, {len(self.errors):,} failed>"


class FrameFuture:
    """Returned by `send_frame`; waits for all rows at once."""

    def __init__(self, topic: str) -> None:
        """Starts without rows."""
        self._topic = topic
        self._rows = 0
        self._open: deque[tuple[int, BatchFuture]] = deque()     # with the first row of each
        self._known = FrameMetadata(topic)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._rows

    def add(self, future: BatchFuture) -> None:
        """Covers the next rows, too."""
        if len(future):
            self._open.append((self._rows, future))
            self._rows += len(future)

    def so_far(self) -> FrameMetadata:
        """What is known now; waits for nothing."""
        with self._lock:
            while self._open and self._open[0][1].done():
                self._known.add(self._open[0][0], self._open[0][1].result(0))
                self._open.popleft()
            return self._known

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return all(future.done() for _, future in list(self._open))

    def result(self, timeout: float | None = None) -> FrameMetadata:
        """Waits for every row.

        Args:
            timeout: seconds, None = no limit.

        Returns:
            FrameMetadata; failed rows are in its `.errors`, nothing is raised for them.

        Raises:
            KafkaTimeoutError: not all outcomes are known within `timeout`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise KafkaTimeoutError(f"not all of {counted(len(self), 'row')} have an outcome within {timeout:g} s", topic=self._topic)
        try:
            while self._open:
                first_row, future = self._open[0]
                self._known.add(first_row, future.result(None if end is None else max(0.0, end - time.monotonic())))
                self._open.popleft()
            return self._known
        finally:
            self._lock.release()

    get = result

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Waits like result() and returns the error of the first row that failed, or None."""
        errors = self.result(timeout).errors
        return errors[min(errors)] if errors else None

    def add_done_callback(self, fn: Callable[[FrameFuture], object]) -> None:
        """Runs fn(future) once every outcome is known, as `BatchFuture.add_done_callback` does."""
        waiting = [future for _, future in list(self._open)]
        left, lock = [len(waiting) + 1], threading.Lock()

        def one_done(_: Any = None) -> None:
            with lock:
                left[0] -= 1
                if left[0]:
                    return
            fn(self)

        for future in waiting:
            future.add_done_callback(one_done)
        one_done()

    def __await__(self) -> Generator[Any, None, FrameMetadata]:
        while self._open:
            first_row, future = self._open[0]
            outcome = yield from future.__await__()
            with self._lock:
                if self._open and self._open[0][1] is future:     # no other task was faster
                    self._known.add(first_row, outcome)
                    self._open.popleft()
        return self._known

    def __repr__(self) -> str:
        return f"<FrameFuture {self._topic}: {counted(len(self), 'row')}, done={self.done()}>"
