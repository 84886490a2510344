"""Timers by Kafka's classes, by how many are alive: what TimerTask, TimerTaskEntry and add cost, beside heapq's push."""

from __future__ import annotations

import gc
import heapq
import itertools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from scale_table import FasterThan, Figures, Growth, Sample

from kafkacore.timer import TimerTask, TimerTaskEntry, TimingWheel

LONGEST_MS = 60_000
ADDED = 10_000
BURST_SHARE = 10
"""The timers of a burst are at most a tenth of those alive, so that this hardly changes; they are cancelled before the next burst."""


def _nothing() -> None:
    """What the timers call."""


@contextmanager
def added(alive: int, quick: bool) -> Iterator[Sample]:
    """ns of CPU per timer that is added while `alive` others wait; all of them are objects that the collector walks."""
    gc.freeze()  # what the modules hold is not what is measured
    rng = random.Random(1)
    burst = alive // BURST_SHARE
    bursts = (ADDED // 10 if quick else ADDED) // burst or 1
    delays_ms = [rng.randrange(1, LONGEST_MS) for _ in range(burst)]
    wheel, serial = TimingWheel(), itertools.count()
    tasks = []
    for _ in range(alive):
        delay_ms = rng.randrange(1, LONGEST_MS)
        tasks.append(TimerTask(delay_ms, _nothing))
        wheel.add(TimerTaskEntry(tasks[-1], delay_ms))
    entries = [[rng.randrange(1, LONGEST_MS), next(serial), _nothing] for _ in range(alive)]
    heapq.heapify(entries)

    def add_to_wheel() -> int:
        kept = []
        begin = time.thread_time_ns()
        for delay_ms in delays_ms:
            task = TimerTask(delay_ms, _nothing)
            wheel.add(TimerTaskEntry(task, delay_ms))
            kept.append(task)
        spent_ns = time.thread_time_ns() - begin
        for task in kept:
            task.cancel()
        return spent_ns

    def add_to_heap() -> int:
        heap, kept = entries.copy(), []
        begin = time.thread_time_ns()
        for delay_ms in delays_ms:
            entry = [delay_ms, next(serial), _nothing]
            heapq.heappush(heap, entry)
            kept.append(entry)
        return time.thread_time_ns() - begin

    def sample() -> Figures:
        by_wheel = sum(add_to_wheel() for _ in range(bursts))
        by_heap = sum(add_to_heap() for _ in range(bursts))
        return {"TimerTask": by_wheel / burst / bursts, "heapq": by_heap / burst / bursts}

    yield sample


SIZES = (1_000, 10_000, 100_000)
TABLES = [
    Growth(
        "timers.add",
        "add a timer: TimerTask, TimerTaskEntry and add; a list and heapq.heappush (collector on)",
        "ns of CPU",
        "timers alive",
        SIZES,
        SIZES[:2],
        added,
        parts=("TimerTask", "heapq"),
        goals={(size, "TimerTask"): FasterThan("heapq", 3) for size in SIZES},
        rounds=15,
    )
]
