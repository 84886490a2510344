"""WheelTimer: any number of timers on one timer of the loop; adding and cancelling cost the same however many there are.

The clients of a loop share a timer for the deadlines of their calls: `shared_timer`.
"""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import Any, Self

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


_shared: weakref.WeakValueDictionary[int, WheelTimer] = weakref.WeakValueDictionary()  # a timer keeps its loop: no number comes again


def shared_timer(loop: asyncio.AbstractEventLoop) -> WheelTimer:
    """The timer that the clients of a loop share. It lives as long as a client keeps it or a call waits on it."""
    timer = _shared.get(id(loop))
    if timer is None:
        timer = _shared[id(loop)] = WheelTimer(loop)
    return timer


async def ended_within(future: asyncio.Future[Any], timeout_s: float | None, timer: WheelTimer) -> None:
    """Awaits a future that only the caller awaits and whose result is of no interest. At the deadline its result is None.

    Args:
        future: of the timer's loop.
        timeout_s: seconds; None waits without limit.
        timer: keeps the deadline.
    """
    if timeout_s is None:
        await future
        return
    deadline = timer.call_later(timeout_s, end, future, None)
    try:
        await future
    finally:
        deadline.cancel()


def end(future: asyncio.Future[Any], result: Any) -> None:
    """Gives a future a result, unless it has an outcome."""
    if not future.done():
        future.set_result(result)


class Line:
    """Tasks that go one at a time, first come, first served, each with a deadline; an `asyncio.Lock` knows none."""

    def __init__(self) -> None:
        self.taken = False
        self.waiting: dict[asyncio.Future[bool], None] = {}

    async def enter(self, timeout_s: float, timer: WheelTimer) -> bool:
        """Waits until it is the task's turn, which lasts until `leave`.

        Args:
            timeout_s: seconds.
            timer: keeps the deadline.

        Returns:
            False when the deadline came first.
        """
        if not self.taken:
            self.taken = True
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting[turn] = None
        deadline = timer.call_later(timeout_s, end, turn, False)
        try:
            return await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.result():  # its turn came together with the cancellation
                self.leave()
            raise
        finally:
            deadline.cancel()
            self.waiting.pop(turn, None)

    def leave(self) -> None:
        """Gives the turn to the next task."""
        for turn in self.waiting:
            if turn.get_loop().is_closed():
                break  # nothing goes on in there
            if not turn.done():
                turn.set_result(True)
                return
        self.taken = False
