"""Timers by the hierarchical timing wheel: Kafka's classes, usable alone.

    wheel        TimingWheel: add, cancel, pop what is due; its owner passes the time (kafkacore/native/wheel.h)
    SystemTimer  a wheel, a clock and one executor thread that runs what is due; a caller must call advance_clock
    SystemTimerReaper   the thread that does
    LoopTimer    a wheel and a clock for owners with one thread: their loop asks for the next deadline and runs what is due itself

Threads: `add`, `cancel` and `advance_clock` may come from any. The wheel changes between two bytecodes, so it needs no lock; the condition
here is only for the thread that sleeps until the next bucket is due. It notes until when it sleeps before it looks at the wheel for the
last time, and who adds looks at that note after adding, so no earlier deadline is slept through.

Source: org.apache.kafka.server.util.timer.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

from kafkacore._wheel import TaskCounter, TimerCore, TimerTask, TimerTaskEntry, TimerTaskList, TimingWheel
from kafkacore.clock import Clock, SystemClock

__all__ = [
    "LoopTimer",
    "SystemTimer",
    "SystemTimerReaper",
    "TaskCounter",
    "Timer",
    "TimerTask",
    "TimerTaskEntry",
    "TimerTaskList",
    "TimingWheel",
]

log = logging.getLogger("kafkacore.timer")

_REAL = SystemClock()
_NOBODY_MS = -sys.maxsize
_FOREVER_MS = sys.maxsize


class Timer(Protocol):
    """What a purgatory needs of a timer. Source: org.apache.kafka.server.util.timer.Timer."""

    def add(self, task: TimerTask) -> None:
        """Runs a task after its delay."""

    def advance_clock(self, timeout_ms: int | None) -> bool:
        """Runs what is due, waiting up to a time for the next."""

    def size(self) -> int:
        """Tasks that wait."""

    def next_deadline_ms(self) -> int | None:
        """When `advance_clock` may find something to do, by the timer's clock; None when nothing waits."""

    def close(self) -> None:
        """Ends it."""


class SystemTimer(TimerCore):
    """A timing wheel with a clock and a thread that runs what is due.

    Source: org.apache.kafka.server.util.timer.SystemTimer.
    """

    def __init__(
        self,
        name: str,
        tick_ms: int = 1,
        wheel_size: int = 20,
        start_ms: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Makes an idle timer.

        Args:
            name: of the executor thread, after "executor-".
            tick_ms: milliseconds of a tick.
            wheel_size: buckets of a level.
            start_ms: where the wheel starts; the clock's time by default.
            clock: tells the time; the system's monotonic clock by default. With another one `advance_clock` sleeps until it is woken by
                an earlier task, or its timeout: when a clock moved by hand will show a time is not known.
        """
        self._clock = clock or SystemClock()
        self._real = isinstance(self._clock, SystemClock)
        wheel = TimingWheel(tick_ms, wheel_size, self._clock.now_ms() if start_ms is None else start_ms)
        self._setup(wheel, self._clock.now_ms, monotonic=type(self._clock) is SystemClock, keeps_due=False)
        self._ready: deque[TimerTask] = deque()
        self._handed_over = False
        self._executing: int | None = None  # the executor's thread
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"executor-{name}")
        self._lock = threading.RLock()  # Condition.__enter__ is Python: Ctrl+C in it would leave the lock taken
        self._condition = threading.Condition(self._lock)
        self._interrupted = False
        self._closed = False

    def _due(self, task: TimerTask) -> None:
        """Called by add() for a task that is due at once."""
        self._ready.append(task)
        self._hand_over()

    def _hand_over(self) -> None:
        """Lets the executor run what is ready. Tasks stay in the queue until then, so that Ctrl+C on the way loses none."""
        if self._handed_over or not self._ready:
            return
        try:
            self._handed_over = True
            self._executor.submit(self._run_ready)
        except BaseException as error:
            self._handed_over = False
            if not (self._closed and isinstance(error, RuntimeError)):
                raise

    def _run_ready(self) -> None:
        self._executing = threading.get_ident()
        self._handed_over = False  # from here on a task that comes too late for the loop below hands over again
        while self._ready:
            task = self._ready.popleft()
            try:
                task.run()
            except BaseException:  # also SystemExit: it would end nothing here but the tasks behind
                log.exception("timer task %r failed", task)

    def _wake(self) -> None:
        """Called by add() when the sleeper would look too late."""
        with self._lock:
            self._woken = True
            self._condition.notify_all()

    def advance_clock(self, timeout_ms: int | None = None) -> bool:
        """Waits for the next bucket to be due, moves the wheel and hands its tasks to the executor.

        Args:
            timeout_ms: how long to wait at most; 0 only looks, None waits until there is something.

        Returns:
            Whether anything was due: tasks that ran, or that moved to a finer level.
        """
        wheel = self.wheel
        self._hand_over()
        now_ms = self._clock.now_ms()
        next_ms = wheel.next_deadline_ms()
        if next_ms is None or next_ms > now_ms:
            if timeout_ms is not None and timeout_ms <= 0:
                wheel.advance_clock(now_ms)
                return False
            self._sleep(timeout_ms)
            if self._closed:
                return False
            now_ms = self._clock.now_ms()
            next_ms = wheel.next_deadline_ms()
            if next_ms is None or next_ms > now_ms:
                wheel.advance_clock(now_ms)
                return False
        self._pop_into(now_ms, self._ready)
        self._hand_over()
        return True

    def _sleep(self, timeout_ms: int | None) -> None:
        """Until a bucket is due, the time has passed, or a call of `wakeup` or `close`."""
        end_ms = math.inf if timeout_ms is None else _REAL.now_ms() + timeout_ms
        with self._lock:
            try:
                while not self._closed and not self._interrupted:
                    self._woken = False
                    self.asleep_until_ms = _FOREVER_MS  # from here on a thread that adds wakes this one
                    next_ms = self.wheel.next_deadline_ms()
                    now_ms = self._clock.now_ms()
                    if next_ms is not None and next_ms <= now_ms:
                        return
                    left_s = min((end_ms - _REAL.now_ms()) / 1000, threading.TIMEOUT_MAX)
                    if left_s <= 0:
                        return
                    if next_ms is not None:
                        self.asleep_until_ms = next_ms
                        if self._real:
                            left_s = min((next_ms - now_ms) / 1000, left_s)
                    if not self._woken:
                        self._condition.wait(left_s)
            finally:
                self._interrupted = False
                self.asleep_until_ms = _NOBODY_MS

    def wakeup(self) -> None:
        """Lets the thread that sleeps in `advance_clock`, or the next that would, return at once."""
        with self._lock:
            self._interrupted = True
            self._condition.notify_all()

    def size(self) -> int:
        """Tasks that wait to be due."""
        return len(self.wheel)

    def next_deadline_ms(self) -> int | None:
        """When the next bucket is due; None when nothing waits."""
        return self.wheel.next_deadline_ms()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Ends the executor after what it has; tasks that are not due never run. May be called twice."""
        self._closed = True
        self._wake()
        self._executor.shutdown(wait=threading.get_ident() != self._executing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class LoopTimer(TimerCore):
    """A timing wheel and a clock for an owner with a loop: no thread, no lock, no waiting.

    The owner waits until `next_deadline_ms` by means of its own, then calls `advance_clock`, which runs what is due.
    """

    def __init__(self, tick_ms: int = 1, wheel_size: int = 20, start_ms: int | None = None, clock: Clock | None = None) -> None:
        """Makes an idle timer.

        Args:
            tick_ms: milliseconds of a tick.
            wheel_size: buckets of a level.
            start_ms: where the wheel starts; the clock's time by default.
            clock: tells the time; the system's monotonic clock by default.
        """
        self._clock = clock or SystemClock()
        wheel = TimingWheel(tick_ms, wheel_size, self._clock.now_ms() if start_ms is None else start_ms)
        self._setup(wheel, self._clock.now_ms, monotonic=type(self._clock) is SystemClock, keeps_due=True)

    def advance_clock(self, timeout_ms: int | None = 0) -> bool:
        """Runs what is due, in this thread. A task that fails is logged and stops no other.

        Args:
            timeout_ms: 0; this timer does not wait.

        Returns:
            Whether a task ran.

        Raises:
            ValueError: it was asked to wait.
        """
        if timeout_ms != 0:
            raise ValueError("a LoopTimer does not wait: its owner does, until next_deadline_ms()")
        return self.wheel.run_expired(self._clock.now_ms()) > 0

    def next_deadline_ms(self) -> int | None:
        """When to call `advance_clock` next, by the clock given; None when nothing waits."""
        return self.wheel.next_deadline_ms()

    def size(self) -> int:
        """Tasks that wait."""
        return len(self.wheel)

    def close(self) -> None:
        """Nothing to end: without calls of `advance_clock` nothing runs."""


class SystemTimerReaper:
    """A timer that runs by itself: a thread sleeps until the next task is due.

    Source: org.apache.kafka.server.util.timer.SystemTimerReaper, which looks five times a second instead.
    """

    def __init__(self, name: str, timer: SystemTimer) -> None:
        """Starts the thread.

        Args:
            name: of the thread.
            timer: to be driven; closed with this.
        """
        self._timer = timer
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._timer.closed:
            try:
                self._timer.advance_clock(None)
            except Exception:
                log.exception("the thread of %s goes on after an error", self._thread.name)

    def add(self, task: TimerTask) -> None:
        """Runs a task after its delay."""
        self._timer.add(task)

    def advance_clock(self, timeout_ms: int | None = None) -> bool:
        """Not for callers: the thread does it.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("the thread of a SystemTimerReaper advances its clock")

    def size(self) -> int:
        """Tasks that wait to be due."""
        return self._timer.size()

    def next_deadline_ms(self) -> int | None:
        """When the next bucket is due; None when nothing waits."""
        return self._timer.next_deadline_ms()

    def close(self) -> None:
        """Ends the thread and closes the timer. May be called twice."""
        self._timer.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
