"""The threads of a client whose calls run beside each other: a call takes a thread that is free, or a new one.

Each thread has a driver of its own, whose wait an interrupt ends. When there are MOST_THREADS, a call waits for the thread
with the fewest calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafkacore.admin.drivers import Drivers
from kafkacore.aio.calls import CallThread
from kafkacore.net.driver import CallerDriver

T = TypeVar("T")

MOST_THREADS = 16


class _Lane:
    """A thread, its driver, and how many calls it has."""

    def __init__(self, drivers: Drivers, driver: CallerDriver) -> None:
        self._drivers, self._driver = drivers, driver
        self.calls = 0
        self.thread = CallThread("kafkacore-admin", driver.wakeup, driver.forget_wakeup)

    async def run(self, call: Callable[[], T], timeout_s: float | None, alone: bool) -> T:
        def bound() -> T:
            with self._drivers.bound(self._driver):
                return call()

        self.calls += 1
        try:
            return await self.thread.run(bound, timeout_s, alone=alone)
        finally:
            self.calls -= 1


class CallThreads:
    """The threads of one client.

    Args:
        drivers: of the client's network.
    """

    def __init__(self, drivers: Drivers) -> None:
        self._drivers = drivers
        self._lanes = [_Lane(drivers, drivers.first)]

    async def run(self, call: Callable[[], T], timeout_s: float | None = None, *, alone: bool = False) -> T:
        """Has a thread make a call, and awaits its end. As `CallThread.run`."""
        self._lanes[0].thread.loop()  # all threads belong to the loop of the first
        lane = min(self._lanes, key=lambda lane: lane.calls)
        if lane.calls and len(self._lanes) < MOST_THREADS:
            lane = _Lane(self._drivers, self._drivers.new())
            self._lanes.append(lane)
        return await lane.run(call, timeout_s, alone)

    def close(self) -> None:
        """Ends the threads once they have made the calls that are queued."""
        for lane in self._lanes:
            lane.thread.close()
