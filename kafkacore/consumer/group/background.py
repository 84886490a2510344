"""The thread that keeps a group member alive while the application works: heartbeats, commits and fetches go on between two polls.

The calling thread drives the network inside a call, this thread drives it between two calls; the driver's lock says whose turn it is. A
caller that polls in a tight loop must not pay for that, so the thread takes over only after the caller has been away for a while:

    asleep   the caller is inside a call: woken by its end, and every few seconds in case that wake-up was cut short by Ctrl+C
    waiting  the caller was here since the last look: looks again later, each time twice as late
    driving  the caller is away: drives the network until it comes back, which ends the wait in the selector

The thread holds the consumer by a weak reference while it does not drive: a consumer without references is collected, its member leaves
the group, and its thread ends.

Source: Kafka's HeartbeatThread (AbstractCoordinator) and ConsumerNetworkThread.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from typing import Any, Protocol

from kafkacore import errors
from kafkacore.consumer.at_exit import EXIT_MAX_S, open_members
from kafkacore.consumer.group.membership import Membership
from kafkacore.net.driver import CallerDriver

log = logging.getLogger("kafkacore.consumer")

_FIRST_LOOK_S = 0.01
_LAST_LOOK_S = 0.2
_ASLEEP_S = 3.0
_PAUSE_S = 1.0
_LONGEST_WAIT_MS = 60_000


class Driven(Protocol):
    """What the thread drives."""

    def drive(self, now_ms: int) -> int | None:
        """Sends what is due; returns after how many ms at the latest it wants to be called again, None for when something arrives."""

    def driving_failed(self, error: Exception) -> None:
        """Driving ended with an error; the next call raises it."""


class BackgroundThread:
    """Drives a consumer's network between its calls.

    Args:
        driver: whose turn it is.
        driven: the consumer.
        membership: what is left when the consumer is collected.
        name: of the thread.
    """

    def __init__(self, driver: CallerDriver, driven: Driven, membership: Membership, name: str) -> None:
        self._driver = driver
        self._driven = weakref.ref(driven, self._collected)
        self._membership = membership
        # Not an Event, whose lock is not re-entrant: a collection calls `_collected` on any thread, between any two steps.
        self._left: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False
        self._closing = False
        self.takeovers = 0
        driver.left = self._caller_left
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        open_members.add(self)

    def _collected(self, _: object) -> None:
        """The consumer has no reference left."""
        self._closing = True
        self._left.put(None)
        self._driver.client.wakeup()

    def _caller_left(self) -> None:
        """A call has ended."""
        if self._asleep:
            self._left.put(None)

    def _wait(self, timeout_s: float) -> None:
        """Until something is put into `_left`, which is empty afterwards."""
        with contextlib.suppress(queue.Empty):
            self._left.get(timeout=timeout_s)
            while True:
                self._left.get_nowait()

    def close(self) -> None:
        """Ends the thread; does not wait for it, since it may be waiting for the lock that the caller holds."""
        self._closing = True
        self._driver.left = None
        self._left.put(None)

    def join(self, timeout: float) -> None:
        """Waits for the thread's end."""
        self._thread.join(timeout)

    @property
    def closed(self) -> bool:
        """False while the member of a collected consumer leaves."""
        return self._driven() is not None or not self._thread.is_alive()

    def _leave_at_exit(self, timeout: float) -> None:
        """The thread is about to leave: it is waited for."""
        self.join(timeout)

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            try:
                goes_on = self._wait_until_away()
                if goes_on:
                    self._drive()
            except Exception as error:
                if not isinstance(error, errors.KafkaError) or isinstance(error, errors.InternalError):
                    log.exception("driving a consumer failed; heartbeats go on over new connections")
                else:
                    log.warning("a consumer's background thread: %s", error)
                driven = self._driven()
                if driven is not None:
                    driven.driving_failed(error)
                del driven
                self._wait(_PAUSE_S)
        if self._driven() is None:
            try:
                self._leave()
            except Exception as error:
                log.warning("the member of a consumer that was not closed could not leave its group: %s", error)
            self._driver.close()

    def _leave(self) -> None:
        """The consumer was collected and not closed. What was processed is not known by now, so nothing is committed."""
        driver, membership = self._driver, self._membership
        client = driver.client
        if not driver.take_over():
            return
        broken = True
        try:
            if driver.client is not client:
                membership.start_anew(driver.client)
            clock = driver.clock
            now_ms = clock.now_ms()
            deadline_ms = now_ms + round(EXIT_MAX_S * 1000)
            membership.leave(now_ms, "the consumer was not closed, and nothing refers to it any more")
            while membership.leaving and now_ms < deadline_ms:
                membership.step(now_ms)
                wake_ms = membership.next_wake_ms(now_ms)
                wait_ms = deadline_ms - now_ms
                driver.client.poll(wait_ms if wake_ms is None else max(0, min(wait_ms, wake_ms)), now_ms)
                now_ms = clock.now_ms()
            broken = False
        finally:
            driver.give_back(broken=broken)

    def _ended(self) -> bool:
        return self._closing or self._driver.closed or self._driven() is None

    def _wait_until_away(self) -> bool:
        """Returns True when the caller has been away for a while, False when the thread has to end."""
        driver = self._driver
        seen = driver.entries
        look_s = _FIRST_LOOK_S
        while not self._ended():
            self._wait(look_s)
            now = driver.entries
            if now != seen:
                seen = now
                look_s = min(look_s * 2, _LAST_LOOK_S)
            elif not driver.inside:
                return not self._ended()
            else:
                self._asleep = True
                if driver.inside:
                    self._wait(_ASLEEP_S)
                self._asleep = False
                seen = driver.entries
                look_s = _FIRST_LOOK_S
        return False

    def _drive(self) -> None:
        """Drives until the caller comes back."""
        driver = self._driver
        if not driver.take_over():
            return
        self.takeovers += 1
        driven: Any = None
        broken = True
        try:
            clock = driver.clock
            while not driver.wanted and not self._closing:
                driven = self._driven()
                if driven is None:
                    break
                now_ms = clock.now_ms()
                wake_ms = driven.drive(now_ms)
                driven = None
                wait_ms = _LONGEST_WAIT_MS if wake_ms is None else min(wake_ms, _LONGEST_WAIT_MS)
                driver.client.poll(max(0, wait_ms), now_ms)
            broken = False
        finally:
            del driven
            driver.give_back(broken=broken)
