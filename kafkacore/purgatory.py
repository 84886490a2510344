"""Delayed operations: work that waits for a condition, under keys, with a time limit. Usable alone; keys are any hashables.

    operation   DelayedOperation: try_complete looks, force_complete does, exactly once, by an event or by time
    purgatory   watches operations by key; an event on a key tries those that wait for it; a timer expires the rest

The locks are described where they are, at the top of kafkacore/native/wheel_purgatory.pxi.

Source: org.apache.kafka.server.purgatory.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType
from typing import Any, Self

from kafkacore._wheel import DelayedOperation, PurgatoryCore
from kafkacore.timer import LoopTimer, SystemTimer, Timer

__all__ = ["DelayedOperation", "DelayedOperationPurgatory"]

log = logging.getLogger("kafkacore.purgatory")


class DelayedOperationPurgatory(PurgatoryCore):
    """Keeps delayed operations until an event or the time completes them.

    Source: org.apache.kafka.server.purgatory.DelayedOperationPurgatory.
    """

    def __init__(self, name: str, timer: Timer | None = None, purge_interval: int = 1000, reaper: bool = True) -> None:
        """Makes an empty purgatory.

        Args:
            name: of its threads.
            timer: expires the operations, closed with the purgatory. By default a `SystemTimer`; an owner with a loop and no reaper gives a
                `LoopTimer`.
            purge_interval: complete operations are taken out of the watchers when they have more than so many places there, one per key,
                and more than the open ones: a purge walks all.
            reaper: a thread of its own moves the timer's clock. Without it the owner calls `advance_clock`, by `next_deadline_ms`.

        Raises:
            ValueError: purge_interval is negative, or a reaper is to wait on a `LoopTimer`, which does not wait.
        """
        if purge_interval < 0:
            raise ValueError(f"purge_interval must not be negative: {purge_interval}")
        if reaper and isinstance(timer, LoopTimer):
            raise ValueError("a LoopTimer is for owners that advance the clock themselves: reaper=False")
        self.name = name
        self.purge_interval = purge_interval
        self._timer: Timer = SystemTimer(name) if timer is None else timer
        self._setup(self._timer, purge_interval if reaper and isinstance(self._timer, SystemTimer) else sys.maxsize)
        self._running = True
        self._reaper: threading.Thread | None = None
        if reaper:
            self._reaper = threading.Thread(target=self._work, name=f"reaper-{name}", daemon=True)
            self._reaper.start()

    @property
    def timer(self) -> Timer:
        """What its operations wait in."""
        return self._timer

    def _work(self) -> None:
        while self._running and not getattr(self._timer, "closed", False):
            try:
                self.advance_clock(None)
            except Exception:
                log.exception("the reaper of purgatory %s goes on after an error", self.name)

    def _purge_is_due(self) -> None:
        """Called by the compiled half, once until the purge is done: the reaper purges, not the caller."""
        self._timer.wakeup()  # type: ignore[attr-defined]

    def advance_clock(self, timeout_ms: int | None = 0) -> bool:
        """Expires what is due and purges if it is time to; for owners without a reaper.

        Args:
            timeout_ms: how long to wait for something to be due; 0 only looks.

        Returns:
            Whether anything was due.
        """
        moved = self._timer.advance_clock(timeout_ms)
        self.purge_if_needed()
        return moved

    def purge_if_needed(self) -> int:
        """Takes complete operations out of the watchers when they have more than `purge_interval` places, and more than the open ones.

        Returns:
            How many places that freed.
        """
        return self.purge_completed() if self._takes_purge(self.purge_interval) else 0

    def next_deadline_ms(self) -> int | None:
        """When `advance_clock` may find something to expire, by the timer's clock; None when nothing waits."""
        return self._timer.next_deadline_ms()

    def num_delayed(self) -> int:
        """Operations that wait for their time: watched and not complete."""
        return self._timer.size()

    def statistics(self) -> dict[str, Any]:
        """Counts: operations delayed and watched, keys, completed by events."""
        return {
            "delayed": self.num_delayed(),
            "watched": self.watched(),
            "keys": self.key_count(),
            "completed_by_events": self.completed_by_events,
        }

    def close(self) -> None:
        """Ends the reaper and the timer; operations that are open stay so. May be called twice."""
        self._running = False
        self._timer.close()
        if self._reaper is not None and threading.current_thread() is not self._reaper:
            self._reaper.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
