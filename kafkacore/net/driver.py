"""Runs a client's I/O on the thread that calls it: the consumer and the admin client have no thread of their own.

One call at a time drives the network. Another thread that comes in during it gets an error at once (`exclusive`, for a consumer, whose
calls only make sense in order) or waits for its turn. Only `wakeup` may be called at any time from anywhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType

from kafkacore import errors
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import ClientConfig
from kafkacore.metadata import Metadata, TopicInfo
from kafkacore.net.authentication import authenticators
from kafkacore.net.client import NetworkClient
from kafkacore.net.client_selector import client_selector
from kafkacore.net.controllers import ControllersMetadata

_LONGEST_WAIT_MS = 60_000


def warn_unclosed(client: object) -> None:
    """A client ends without `close`."""
    warnings.warn(f"unclosed {client!r}: close it, or use it in a with block", ResourceWarning, stacklevel=2, source=client)


class CallerDriver:
    """The network of a client that is driven by its callers.

    Used as a context manager around every public call: entering checks that the client is open, in its own process and not in use.

    Args:
        config: the client's settings.
        what: the client's name for error messages.
        exclusive: a second thread gets an error instead of waiting.
        clock: the time; the system's unless given.
        renewed: called with the new network client when the old one had to be given up.

    Attributes:
        entries: counts the calls.
        inside: greater than 0 while a call is running.
        wanted: a caller waits for the background thread to give the right to drive back.
        left: called when a call has ended, if a background thread wants to know.
        reported: a warning has said that the client was forgotten.
    """

    def __init__(
        self,
        config: ClientConfig,
        what: str,
        *,
        exclusive: bool,
        clock: Clock | None = None,
        renewed: Callable[[NetworkClient], None] | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.what = what
        kind = ControllersMetadata if config.asks_controllers else Metadata
        self.metadata = kind(config, self.clock, allow_auto_topic_creation=config.topic_creation)
        self.metadata.bootstrap(config.bootstrap_addresses)
        self._config = config
        self._ssl_context = config.ssl_contexts()
        self._authenticators = authenticators(config.sasl_settings(), config.client_id, self.clock)
        self.client = self._new_client()
        self.closed = self.reported = False
        self._interrupted = False
        self._renewed = renewed
        self._exclusive = exclusive
        self._lock = threading.RLock()
        self._closing = False
        self._exiting = False
        self._outer: FrameType | None = None
        self._callers = threading.RLock()  # beside a background thread, which holds _lock between calls
        self.entries = 0
        self.inside = 0
        self.wanted = False
        self.left: Callable[[], None] | None = None
        self._pid = os.getpid()
        self._woken = False

    def _new_client(self) -> NetworkClient:
        config = self._config
        selector = client_selector(config, self.clock, self._ssl_context, self._authenticators)
        return NetworkClient(selector, self.metadata, config, self.clock, broker_version=config.broker_version)

    def _renew(self) -> None:
        """Ctrl+C, a MemoryError or a bug can end a call between any two steps, so nothing that was under way is relied on: new connections,
        nothing in flight.

        They can end this as well, and a new selector can fail for want of a descriptor: then the next call begins here again. A call that
        is interrupted on its way out, while the background thread is here, is not forgotten.
        """
        try:
            self._interrupted = False
            with contextlib.suppress(Exception):
                self.client.selector.close()
            old, node_stats = self.client, self.client.node_stats
            self.client = self._new_client()
            self.client.on_failure, self.client.on_throttle = old.on_failure, old.on_throttle
            for stats in node_stats.values():
                stats.connections_closed = stats.connections_opened
            self.client.node_stats = node_stats
            if self._renewed is not None:
                self._renewed(self.client)
        except BaseException:
            self._interrupted = True
            raise

    # -- one caller at a time -----------------------------------------------------------------------------------------------------

    @property
    def forked(self) -> bool:
        """True in a child of the process that made the client."""
        return os.getpid() != self._pid

    def __enter__(self) -> CallerDriver:
        if os.getpid() != self._pid:
            raise errors.ForkedClientError(f"this {self.what} was made in process {self._pid}; make a new one after the fork")
        if not self._callers.acquire(blocking=not self._exclusive):
            self._stay_at_exit()
            raise errors.IllegalStateError(f"this {self.what} is in use by another thread; only wakeup() may be called from there")
        nested = self.inside
        if nested and not self._outer_runs():
            nested = 0  # Ctrl+C came between the end of that call and its giving back
        if not nested:
            self._outer = sys._getframe(1)
        try:
            if not self._lock.acquire(blocking=False):
                self._take_back()
            self.entries += 1
            self.inside = nested + 1
            if self.closed:
                self._stay_at_exit()
                raise errors.ClosedError(f"this {self.what} is closed")
            if self._interrupted:
                self._renew()
        except BaseException:
            self._leave(nested)
            raise
        return self

    def _outer_runs(self) -> bool:
        """True when the outermost call of this thread is still running."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._outer:
            frame = frame.f_back
        return frame is not None

    def interrupted(self) -> None:
        """Ctrl+C came on the way out of a call: the next one begins as after an interrupted call."""
        self._interrupted = True

    def _leave(self, nested: int) -> None:
        """Ends a call; the outermost gives back whatever this thread holds: Ctrl+C may have come between a lock and its count."""
        self.inside = nested
        if nested == 0:
            self._outer = None
            self.wanted = False
            self._give_all_back()

    def _give_all_back(self) -> None:
        while self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()
        while self._callers._is_owned():  # type: ignore[attr-defined]
            self._callers.release()

    def _take_back(self) -> None:
        """A background thread drives: its wait ends, and the lock is the caller's."""
        try:
            self.wanted = True
            self.client.wakeup()
            self._lock.acquire()
        finally:
            self.wanted = False

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is not None and (not issubclass(kind, errors.KafkaError) or issubclass(kind, errors.InternalError)):
            self._interrupted = True
        self._leave(self.inside - 1)
        if self.left is not None:
            self.left()

    # -- a background thread between the calls ------------------------------------------------------------------------------------

    def take_over(self) -> bool:
        """For a background thread: the right to drive, if no caller has it. `give_back` ends it, soon after `wanted` is set.

        What an interrupted call left behind is given up first, as the next call would.
        """
        if self.closed or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._interrupted:
                self._renew()
        except BaseException:
            self._lock.release()
            raise
        return True

    def give_back(self, *, broken: bool = False) -> None:
        """Ends what `take_over` began.

        Args:
            broken: driving ended with an error that belongs to no call: what was under way is given up, as after an interrupted call.
        """
        if broken:
            self._interrupted = True
        self._lock.release()

    # -- closing from another thread ----------------------------------------------------------------------------------------------

    def take_for_close(self, timeout_ms: int) -> None:
        """Before a call that closes: a call under way in another thread ends with ClosedError first. The end of the call gives back
        what is taken here.

        Raises:
            errors.KafkaTimeoutError: that call did not end in time, for example because the application is busy in a callback.
        """
        if self._callers.acquire(blocking=False):
            return
        self._closing = True
        self.wakeup()
        taken = False
        try:
            taken = self._callers.acquire(timeout=max(0, min(timeout_ms / 1000, threading.TIMEOUT_MAX)))
            if not taken:
                raise errors.KafkaTimeoutError(f"this {self.what} was not closed: another thread is still inside a call")
        finally:
            self._closing = False
            if taken:
                self._woken = False

    def begin_exit(self) -> None:
        """The interpreter exits, and a call that closes comes next. A daemon thread that is in a call, or makes one, stays there."""
        self._exiting = True

    def _stay_at_exit(self) -> None:
        """Gives back what a daemon thread holds, and waits for its end: an error would be printed, at the end of a good program."""
        if self._exiting and threading.current_thread().daemon:
            self._give_all_back()
            forever = threading.Lock()
            while True:
                forever.acquire()

    # -- waiting ------------------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Ends the wait of the thread that drives, with WakeupError; if no thread waits, the next wait. Callable from any thread."""
        self._woken = True
        self.client.wakeup()

    @property
    def woken(self) -> bool:
        """True when the next wait ends at once, with WakeupError."""
        return self._woken

    def forget_wakeup(self) -> None:
        """A `wakeup` that nothing has noticed ends no later wait."""
        self._woken = False

    def check_woken(self) -> None:
        """Raises WakeupError once after each `wakeup`, and ClosedError when another thread closed the client."""
        if self._woken:
            if self.closed or self._closing:
                self._stay_at_exit()
                raise errors.ClosedError(f"this {self.what} was closed by another thread")
            self._woken = False
            raise errors.WakeupError

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        """One round of I/O.

        Args:
            timeout_ms: how long to wait for something to happen.
            now_ms: the time.

        Raises:
            errors.WakeupError: `wakeup` was called.
            errors.KafkaError: an attempt failed for a reason that waiting does not end, for example a wrong password. Raised once per
                attempt; the next call makes the next attempt when the reconnect back-off has passed.
        """
        if self._woken:
            self.check_woken()
        self.client.poll(0 if timeout_ms < 0 else _LONGEST_WAIT_MS if timeout_ms > _LONGEST_WAIT_MS else timeout_ms, now_ms)
        if self._woken:
            self.check_woken()
        if self.metadata.unraised is not None:
            self.raise_failure()

    def raise_failure(self) -> None:
        """Raises what a failed attempt left for the caller, once."""
        failure = self.metadata.unraised
        if failure is not None:
            self.metadata.unraised = None
            raise failure

    def run(self, step: Callable[[int], int | None], done: Callable[[], bool], timeout_ms: int | None) -> bool:
        """Polls until something is done.

        Args:
            step: called with `now_ms` before every poll to send what can be sent; returns after how many ms at the latest it wants to be
                called again, or None.
            done: checked after every step.
            timeout_ms: when to give up; None never.

        Returns:
            False when the time was up.

        Raises:
            errors.KafkaError: as `poll`, for attempts of this call; never once it is done.
        """
        self.metadata.unraised = None  # an attempt of an earlier call says nothing about this one
        now_ms = self.clock.now_ms()
        deadline_ms = None if timeout_ms is None else now_ms + timeout_ms
        self.client.catch_up(now_ms)
        while True:
            wake_ms = step(now_ms)
            if done():
                return True
            wait_ms = _LONGEST_WAIT_MS if wake_ms is None else wake_ms
            if deadline_ms is not None:
                if now_ms >= deadline_ms:
                    return False
                wait_ms = min(wait_ms, deadline_ms - now_ms)
            self.check_woken()
            self.client.poll(max(0, min(wait_ms, _LONGEST_WAIT_MS)), now_ms)
            self.check_woken()
            if not done():
                self.raise_failure()
            now_ms = self.clock.now_ms()

    def describe(self, topic: str, timeout_ms: int) -> TopicInfo | None:
        """What the cluster says about a topic. An error known from before is no answer: the cluster is asked again.

        Returns:
            None when there was no answer in time, or only that the topic is not available yet.
        """
        metadata = self.metadata
        known = metadata.snapshot.topics.get(topic)
        if known is not None and known.error is None:
            return known
        metadata.add_topic(topic, self.clock.now_ms())
        metadata.request_update()

        def found() -> TopicInfo | None:
            info = metadata.snapshot.topics.get(topic)
            if info is None or info is known:
                return None
            error = info.error
            return info if error is None or not error.retriable or isinstance(error, errors.UnknownTopicOrPartition) else None

        return found() if self.run(lambda _: None, lambda: found() is not None, timeout_ms) else None

    def topic_attempts(self, topic: str) -> list[errors.KafkaError]:
        """Why nothing is known about a topic so far: as `attempts`, and what the cluster last said of it."""
        info = self.metadata.snapshot.topics.get(topic)
        return self.attempts() if info is None or info.error is None else [*self.attempts(), info.error]

    def attempts(self) -> list[errors.KafkaError]:
        """Why brokers could not be asked so far: what a time-out has to name."""
        return list(self.metadata.attempts)

    def unreachable(self, now_ms: int) -> list[str]:
        """A sentence where no broker can be reached, with the last attempt's reason."""
        attempts = self.metadata.attempts
        return [f"no broker can be reached: {attempts[-1]}"] if attempts and not self.client.has_ready_nodes(now_ms) else []

    def abandon(self, client: object) -> None:
        """No reference to the client is left: says so if it is not closed, and ends the connections, which would each warn otherwise.

        Runs in a collection, on any thread, between any two steps: it takes no lock, and there is no call under way.
        """
        if self.closed or self.forked:
            return
        try:
            if not self.reported:
                self.reported = True
                warn_unclosed(client)
        finally:
            self.closed = True
            with contextlib.suppress(Exception):
                self.client.selector.close()

    def close(self) -> None:
        """Closes every connection; a call under way in another thread ends with ClosedError first.

        In a forked child nothing is touched: the connections and the poller belong to the parent.
        """
        if self.closed:
            return
        self.closed = True
        if self.forked:
            return
        if not self._callers.acquire(blocking=False):
            self.wakeup()
            self._callers.acquire()
        try:
            if not self._lock.acquire(blocking=False):
                self._take_back()
            try:
                self.client.close()
            finally:
                self._lock.release()
        finally:
            self._callers.release()
