"""Coroutines that tests run to their end, each in an event loop of its own, with a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

GUARD_S = 90.0
T = TypeVar("T")
NewLoop = Callable[[], asyncio.AbstractEventLoop]


def run(work: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]], new_loop: NewLoop | None = None) -> T:
    """Awaits a coroutine, or what a function gives, which is called within the loop."""

    async def guarded() -> T:
        async with asyncio.timeout(GUARD_S):
            return await (work() if callable(work) else work)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(guarded())


async def turns(count: int) -> None:
    """Lets the loop's other tasks go on so often."""
    for _ in range(count):
        await asyncio.sleep(0)
