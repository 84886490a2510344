"""Cancels a task at each of its suspensions, one after another, and looks for what that leaves behind.

A suspension is where the task yields to the loop. `EARLY` cancels it while it waits. `LATE` cancels it when what it waits for has come and
it has not gone on yet: where a result can get lost. `TWICE` cancels it once more where it waits after the first cancellation. `CLOSED`
closes the coroutine there, as the collector does: it may await nothing then.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import uvloop

GUARD_S = 60.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LEAST = 12
OURS = ("kafkacore-producer", "kafkacore-consumer", "kafkacore-admin", "kafkacore-call")


class How(enum.Enum):
    EARLY = 1
    LATE = 2
    TWICE = 3
    CLOSED = 4


class Cut:
    """Awaits a coroutine, and cancels the task that does so.

    Args:
        at: number of the suspension, from 1.
        how: what of it.
    """

    def __init__(self, at: int, how: How) -> None:
        self.at = at
        self.how = how
        self.suspensions = 0

    @property
    def reached(self) -> bool:
        return self.suspensions >= self.at

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        return _Cutting(self, work)

    def suspended(self, waits_for: Any) -> bool:
        """The task is about to yield; True when its coroutine is to be closed instead."""
        self.suspensions += 1
        if self.suspensions != self.at and not (self.how is How.TWICE and self.suspensions == self.at + 1):
            return False
        if self.how is How.CLOSED:
            return True
        task = asyncio.current_task()
        assert task is not None
        if self.how is How.LATE and waits_for is not None:
            waits_for.add_done_callback(lambda _: task.cancel())  # before the callback by which the task goes on
        else:
            asyncio.get_running_loop().call_soon(task.cancel)
        return False


class _Cutting:
    def __init__(self, cut: Cut, work: Coroutine[Any, Any, Any]) -> None:
        self._cut = cut
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        raised: BaseException | None = None
        while True:
            try:
                waits_for = self._work.send(None) if raised is None else self._work.throw(raised)
            except StopIteration as ended:
                return ended.value
            raised = None
            if self._cut.suspended(waits_for):
                self._work.close()
                raise asyncio.CancelledError
            try:
                yield waits_for
            except BaseException as error:
                raised = error


async def until_done(cut: Cut, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Does the work in a task that is cancelled once, and then what is left of it.

    Args:
        cut: where.
        work: goes on where it was.

    Returns:
        False when it ended before it was cancelled.
    """
    first: Coroutine[Any, Any, Any] = _run(cut(work()))
    task = asyncio.create_task(first)
    await asyncio.wait((task,))
    if task.cancelled():
        await work()
        return True
    task.result()
    return cut.reached


async def _run(work: Awaitable[Any]) -> None:
    await work


def pollers() -> int:
    """How many epoll descriptors this process has."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventpoll]"
        except FileNotFoundError:
            pass
    return count


class Traces:
    """What a block must not leave behind: threads of clients, and epoll descriptors."""

    def __enter__(self) -> Traces:
        gc.collect()  # what earlier tests left behind may end in the middle of this block
        self._threads = set(threading.enumerate())
        self._pollers = pollers()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            return
        gc.collect()
        for thread in set(threading.enumerate()) - self._threads:
            if not thread.name.startswith(OURS):
                continue  # of a broker that was started again
            thread.join(GUARD_S)
            assert not thread.is_alive(), thread
        assert pollers() <= self._pollers


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Runs a coroutine in a loop of its own, with all of asyncio's checks. But coroutines do not note where they were made: `send` would
    not be the compiled one."""

    async def guarded() -> None:
        sys.set_coroutine_origin_tracking_depth(0)
        async with asyncio.timeout(GUARD_S):
            await work()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with Traces(), asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
        runner.run(guarded())


def everywhere(new_loop: Callable[[], asyncio.AbstractEventLoop], how: How, once: Callable[[Cut], Coroutine[Any, Any, bool]]) -> None:
    """Runs `once` with a cut at suspension 1, 2, ... until it ends without having reached it.

    Where other threads are faster, a run has fewer suspensions than another: so there are LEAST runs.
    """

    async def all_of_them() -> None:
        at = cancelled = 0
        while True:
            at += 1
            if await once(Cut(at, how)):
                cancelled += 1
            elif at >= LEAST:
                break
        assert cancelled

    run(new_loop, all_of_them)
