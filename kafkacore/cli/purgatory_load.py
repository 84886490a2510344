"""The load of Kafka's TestPurgatoryPerformance on a purgatory: operations arrive as a Poisson process, take a log-normal time, each is
watched under a few keys and forced complete when its time has come, or expires.

Time is simulated: the clock jumps from event to event, so that what is measured is the work, and the rate of arrivals only decides how
many operations are open at a time. Saturation is the rate at which one core has no time left.

Source: org.apache.kafka.jmh ... TestPurgatoryPerformance. Its operations carry 100 bytes of data; these carry nothing.
"""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass

import numpy as np

from kafkacore.clock import ManualClock
from kafkacore.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafkacore.timer import LoopTimer, TimingWheel

QUARTILE = 0.6744897501960817
"""Of the standard normal distribution: how far p75 is from p50."""


@dataclass(frozen=True)
class Load:
    """What arrives.

    Attributes:
        num: operations.
        rate: arrivals per second.
        timeout_ms: when an operation expires.
        pct50_ms: half of the operations complete in so many milliseconds.
        pct75_ms: three quarters do.
        keys: an operation is watched under so many.
        key_space: of so many.
    """

    num: int = 100_000
    rate: float = 100_000
    timeout_ms: int = 200
    pct50_ms: float = 20
    pct75_ms: float = 60
    keys: int = 3
    key_space: int = 100


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        cpu_ns: per operation, all of it: made, tried, watched, timed, completed, purged.
        expired: how many were completed by time.
        peak: the most that were open at a time.
    """

    cpu_ns: float
    expired: int
    peak: int


class FakeOperation(DelayedOperation):
    """Completes when its time has come; counts those that expired."""

    __slots__ = ("expired",)

    def __init__(self, delay_ms: int, expired: list[int]) -> None:
        DelayedOperation.__init__(self, delay_ms)
        self.expired = expired

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass

    def on_expiration(self) -> None:
        self.expired[0] += 1


class EventOperation(DelayedOperation):
    """Completes when an event says so."""

    __slots__ = ("happened",)

    happened: bool

    def try_complete(self) -> bool:
        return self.happened and self.force_complete()

    def on_complete(self) -> None:
        pass


def run_load(load: Load, seed: int = 1) -> Outcome:
    """Sends a load through a purgatory, on a clock that jumps."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1000 / load.rate, load.num)).astype(np.int64).tolist()
    sigma = math.log(load.pct75_ms / load.pct50_ms) / QUARTILE
    latencies = np.maximum(rng.lognormal(math.log(load.pct50_ms), sigma, load.num), 0).astype(np.int64).tolist()
    picked = rng.integers(0, load.key_space, (load.num, load.keys)).tolist()
    names = [("key", i) for i in range(load.key_space)]
    keys = [[names[i] for i in row] for row in picked]
    clock = ManualClock()
    completions = TimingWheel()
    expired = [0]
    peak = 0
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with DelayedOperationPurgatory("load", LoopTimer(clock=clock), reaper=False) as purgatory:
            start = time.thread_time_ns()
            now_ms = 0
            for at_ms, latency_ms, watched in zip(arrivals, latencies, keys, strict=True):
                while now_ms < at_ms:
                    now_ms = clock.advance(1)
                    completions.run_expired(now_ms)
                    purgatory.advance_clock()
                    peak = max(peak, purgatory.num_delayed())
                operation = FakeOperation(load.timeout_ms, expired)
                if latency_ms < load.timeout_ms:
                    completions.call_at(now_ms + latency_ms, operation.force_complete)
                purgatory.try_complete_else_watch(operation, watched)
            peak = max(peak, purgatory.num_delayed())
            while purgatory.num_delayed():
                now_ms = clock.advance(1)
                completions.run_expired(now_ms)
                purgatory.advance_clock()
            spent = time.thread_time_ns() - start
    finally:
        if collecting:
            gc.enable()
    return Outcome(spent / load.num, expired[0], peak)


def run_events(load: Load, seed: int = 1) -> float:
    """Nanoseconds of CPU of one operation through try_complete_else_watch, with its timer, and the check_and_complete that completes it."""
    picked = np.random.default_rng(seed).integers(0, load.key_space, (load.num, load.keys)).tolist()
    names = [("key", i) for i in range(load.key_space)]
    keys = [[names[i] for i in row] for row in picked]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with DelayedOperationPurgatory("events", LoopTimer(), reaper=False) as purgatory:
            start = time.thread_time_ns()
            for watched in keys:
                operation = EventOperation(load.timeout_ms + 60_000)
                operation.happened = False
                purgatory.try_complete_else_watch(operation, watched)
                operation.happened = True
                purgatory.check_and_complete(watched[0])
            purgatory.purge_completed()
            return (time.thread_time_ns() - start) / load.num
    finally:
        if collecting:
            gc.enable()


def saturation(load: Load, rounds: int = 4) -> tuple[float, Outcome]:
    """The rate of arrivals that takes all of one core, found by asking at the rate that the last answer allowed.

    Returns:
        Operations per second, and the run at about that rate.
    """
    rate = load.rate
    for _ in range(rounds):
        outcome = run_load(Load(**{**load.__dict__, "rate": rate}))
        rate = 1e9 / outcome.cpu_ns
    return rate, outcome
