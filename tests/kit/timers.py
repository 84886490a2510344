"""Tasks of timers, and their entries in a wheel."""

from __future__ import annotations

from kafkacore.timer import TimerTask, TimerTaskEntry


def noop() -> None:
    """What a task does that only has to expire."""


def entry(expiration_ms: int) -> TimerTaskEntry:
    """Of a task that does nothing."""
    return TimerTaskEntry(TimerTask(expiration_ms, noop), expiration_ms)
