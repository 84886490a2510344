"""BatchFuture: the outcome of one send_many call, over the deliveries its records went to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkacore._codec import Delivery, ManyProgress
from kafkacore.errors import KafkaError, KafkaTimeoutError

log = logging.getLogger("kafkacore.producer")


class BatchMetadata:
    """Where the records of a send_many call are.

    Attributes:
        topic: their topic.
        offsets: int64 array, one offset per record, -1 where it failed (and with acks=0).
        partitions: int32 array, one partition per record.
        errors: {index: KafkaError} of the failed records.
    """

    __slots__ = ("errors", "offsets", "partitions", "topic")

    def __init__(self, topic: str, offsets: NDArray[np.int64], partitions: NDArray[np.int32], errors: dict[int, KafkaError]) -> None:
        """Holds what it is given."""
        self.topic = topic
        self.offsets = offsets
        self.partitions = partitions
        self.errors = errors

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<BatchMetadata {self.topic}: {len(self)} records, {len(self.errors)} failed>"


class BatchFuture:
    """Made by KafkaProducer.send_many; waits for all records of the call at once."""

    __slots__ = ("_callbacks", "_counts", "_index", "_left", "_lock", "_looked_at", "_owner", "_progress", "_topic")

    def __init__(self, topic: str, progress: ManyProgress, owner: NDArray[np.int32], index: NDArray[np.int32]) -> None:
        """Covers the records `progress` says are appended.

        Args:
            topic: their topic.
            progress: the deliveries.
            owner: per record the number of its delivery.
            index: per record its number in the delivery.
        """
        done = progress.done
        self._topic = topic
        self._progress = progress
        self._owner = owner[:done]
        self._index = index[:done]
        self._counts = np.bincount(self._owner, minlength=len(progress.deliveries))
        self._looked_at = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[BatchFuture], object]] | None = None
        self._left = 0

    def __len__(self) -> int:
        return len(self._owner)

    def _look(self) -> None:
        if not self._looked_at:
            self._looked_at = True
            for delivery, count in zip(self._progress.deliveries, self._counts, strict=True):
                delivery.observe(int(count))

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
            if left == 0.0:
                raise KafkaTimeoutError(f"not all of {len(self)} records have an outcome within {timeout} s", topic=self._topic)
            driver.wait(delivery, left)
        return self._metadata()

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
                yield from delivery.loop_future(loop).__await__()
        return self._metadata()

    def _metadata(self) -> BatchMetadata:
        deliveries = self._progress.deliveries
        if not deliveries:
            return BatchMetadata(self._topic, np.empty(0, np.int64), np.empty(0, np.int32), {})
        base = np.array([delivery.base_offset for delivery in deliveries], np.int64)
        partitions = np.array([delivery.partition for delivery in deliveries], np.int32)[self._owner]
        offsets = np.where(base[self._owner] < 0, -1, base[self._owner] + self._index)
        failures: dict[int, KafkaError] = {}
        for number, delivery in enumerate(deliveries):
            if delivery.error is None and not delivery.record_errors and delivery.parts is None:
                continue
            for at in np.flatnonzero(self._owner == number):
                leaf, index = _leaf(delivery, int(self._index[at]))
                error = (leaf.record_errors or {}).get(index, leaf.error)
                if error is not None:
                    failures[int(at)] = error
                offsets[at] = -1 if error is not None or leaf.base_offset < 0 else leaf.base_offset + index
        return BatchMetadata(self._topic, offsets, partitions, failures)

    def __repr__(self) -> str:
        return f"<BatchFuture {self._topic}: {len(self)} records in {len(self._progress.deliveries)} batches, done={self.done()}>"


def _leaf(delivery: Delivery, index: int) -> tuple[Delivery, int]:
    """The delivery that tells a record's fate, and its number there (after splits)."""
    while delivery.parts is not None:
        first, part = next((first, part) for first, part in reversed(delivery.parts) if index >= first)
        delivery, index = part, index - first
    return delivery, index
