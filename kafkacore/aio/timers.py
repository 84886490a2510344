"""WheelTimer: any number of timers on one timer of the loop; adding and cancelling cost the same however many there are."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from kafkacore._wheel import WheelHandle, WheelTimerCore

__all__ = ["WheelHandle", "WheelTimer"]


class WheelTimer(WheelTimerCore):
    """Timers of an event loop kept in a timing wheel: `call_later` and `call_at` as the loop's own, with milliseconds as the finest step.

    For many timers that are mostly cancelled (time-outs of requests, sessions, caches). To be used from the loop's thread, as its own.

    Example:
        timer = WheelTimer()
        handle = timer.call_later(30, connection.abort)
        handle.cancel()
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, tick_ms: int = 1, wheel_size: int = 20) -> None:
        """Makes an idle timer.

        Args:
            loop: the running one by default.
            tick_ms: milliseconds by which a call may be late; a coarser step makes fewer wake-ups.
            wheel_size: buckets of a level.

        Raises:
            RuntimeError: no loop is given and none runs.
            ValueError: tick_ms or wheel_size is out of range.
        """
        self._setup(asyncio.get_running_loop() if loop is None else loop, tick_ms, wheel_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
