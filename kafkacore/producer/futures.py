"""BatchFuture: the outcome of one send_many call, over the deliveries its records went to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkacore._codec import ManyProgress
from kafkacore.errors import KafkaError, KafkaTimeoutError
from kafkacore.plurals import counted
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.producer")


class BatchMetadata:
    """Where the records of a send_many call are. The arrays are made when they are first asked for.

    Attributes:
        topic: their topic.
        offsets: int64 array, one offset per record, -1 where it failed (and with acks=0).
        partitions: int32 array, one partition per record.
        errors: {index: KafkaError} of the failed records.
    """

    __slots__ = ("_offsets", "_partitions", "_progress", "errors", "topic")

    def __init__(self, topic: str, progress: ManyProgress) -> None:
        """Covers the records `progress` says are appended; all their deliveries are resolved."""
        self.topic = topic
        self.errors: dict[int, KafkaError] = progress.errors()
        self._progress = progress
        self._offsets: NDArray[np.int64] | None = None
        self._partitions: NDArray[np.int32] | None = None

    @property
    def offsets(self) -> NDArray[np.int64]:
        if self._offsets is None:
            self._offsets = self._progress.offsets()
        return self._offsets

    @property
    def partitions(self) -> NDArray[np.int32]:
        if self._partitions is None:
            self._partitions = self._progress.partitions()
        return self._partitions

    def stretches(self) -> dict[TopicPartition, tuple[int, int]]:
        """Where the delivered records are, with the records of other producers that lie between them.

        Returns:
            {TopicPartition: (first offset, offset after the last)}; empty with acks=0.
        """
        found = self._progress.stretches()
        if found is None:                                # some failed
            known = self.offsets >= 0
            offsets, partitions = self.offsets[known], self.partitions[known]
            found = {}
            for number in np.unique(partitions).tolist():
                there = offsets[partitions == number]
                found[number] = int(there.min()), int(there.max()) + 1
        return {TopicPartition(self.topic, number): stretch for number, stretch in found.items()}

    def __len__(self) -> int:
        return self._progress.done

    def __repr__(self) -> str:
        return f"<BatchMetadata {self.topic}: {counted(len(self), 'record')}, {len(self.errors):,} failed>"


class BatchFuture:
    """Made by KafkaProducer.send_many; waits for all records of the call at once."""

    __slots__ = ("_callbacks", "_left", "_lock", "_looked_at", "_progress", "_topic")

    def __init__(self, topic: str, progress: ManyProgress) -> None:
        """Covers the records `progress` says are appended."""
        self._topic = topic
        self._progress = progress
        self._looked_at = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[BatchFuture], object]] | None = None
        self._left = 0

    def __len__(self) -> int:
        return self._progress.done

    def _look(self) -> None:
        if not self._looked_at:
            self._looked_at = True
            self._progress.observe()

    def done(self) -> bool:
        """True once the outcome of every record is known."""
        return all(delivery.resolved for delivery in self._progress.deliveries)

    def result(self, timeout: float | None = None) -> BatchMetadata:
        """Waits for every record.

        Args:
            timeout: seconds, None = no limit.

        Returns:
            BatchMetadata; failed records are in its `.errors`, nothing is raised for them.

        Raises:
            KafkaTimeoutError: not all outcomes are known within `timeout`.
        """
        self._look()
        end = None if timeout is None else time.monotonic() + timeout
        for delivery in self._progress.deliveries:
            driver = delivery.driver
            if delivery.resolved or driver is None:
                continue
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                driver.wait(delivery, left)
            except KafkaTimeoutError as error:
                raise KafkaTimeoutError(
                    f"not all of {counted(len(self), 'record')} have an outcome within {timeout:g} s; they are still on their way",
                    topic=self._topic,
                    partition=error.partition,
                    attempts=error.attempts,
                ) from None
        return BatchMetadata(self._topic, self._progress)

    get = result

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Waits like result() and returns the error of the first failed record, or None."""
        errors = self.result(timeout).errors
        return errors[min(errors)] if errors else None

    def add_done_callback(self, fn: Callable[[BatchFuture], object]) -> None:
        """Runs fn(future) on the thread that drives the I/O once every outcome is known, or at once when it already is."""
        self._look()
        with self._lock:
            if self._callbacks is not None and self._left > 0:
                self._callbacks.append(fn)
                return
            waiting = [delivery for delivery in self._progress.deliveries if not delivery.resolved]
            self._callbacks = [fn]
            self._left = len(waiting) + 1
        for delivery in waiting:
            delivery.add_done_callback(self, BatchFuture._one_done)
        self._one_done()

    def _one_done(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
            callbacks, self._callbacks = self._callbacks or [], None
        for fn in callbacks:
            try:
                fn(self)
            except Exception:
                log.exception("done callback of a send_many to %s failed", self._topic)

    def __await__(self) -> Generator[Any, None, BatchMetadata]:
        import asyncio

        self._look()
        loop = asyncio.get_running_loop()
        for delivery in self._progress.deliveries:
            if not delivery.finished:
                known = delivery.loop_future(loop)
                try:
                    yield from known.__await__()
                except BaseException:
                    delivery.forget(loop, known)
                    raise
        return BatchMetadata(self._topic, self._progress)

    def __repr__(self) -> str:
        batches = counted(len(self._progress.deliveries), "batch", "batches")
        return f"<BatchFuture {self._topic}: {counted(len(self), 'record')} in {batches}, done={self.done()}>"
