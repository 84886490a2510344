"""The only readers of time.

Engines are handed `now_ms` and never ask; drivers hold a `Clock`. Two scales, never mixed: `now_ms` is monotonic and only good for
differences, `wall_ms` is the epoch time that goes into records.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Monotonic milliseconds from an unnamed origin."""

    def now_ns(self) -> int:
        """`now_ms` in nanoseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Monotonic milliseconds; does not jump when the wall clock is set."""
        return time.monotonic_ns() // 1_000_000

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves by hand, for tests and simulations."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, now_ms: int = 0, wall_ms: int = 1_400_000_000_000) -> None:
        """Sets both scales.

        Args:
            now_ms: monotonic milliseconds to start from.
            wall_ms: epoch milliseconds to start from.
        """
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Monotonic milliseconds as last set."""
        return self._now_ms

    def now_ns(self) -> int:
        """The same in nanoseconds."""
        return self._now_ms * 1_000_000

    def wall_ms(self) -> int:
        """Epoch milliseconds as last set."""
        return self._wall_ms

    def advance(self, ms: int) -> int:
        """Moves both scales on.

        Args:
            ms: by how many milliseconds; not negative.

        Returns:
            The new `now_ms`.

        Raises:
            ValueError: `ms` is negative.
        """
        if ms < 0:
            raise ValueError(f"a monotonic clock cannot go back ({ms} ms)")
        self._now_ms += ms
        self._wall_ms += ms
        return self._now_ms

    def set_wall_ms(self, wall_ms: int) -> None:
        """Sets the wall clock alone, as an administrator or NTP would; it may go back."""
        self._wall_ms = wall_ms


class JumpingClock:
    """The system's time, moved by jumps: of the wall clock alone, as an administrator or NTP moves it, or of both scales, as after a sleep
    of the machine."""

    __slots__ = ("_asleep_ms", "_system", "_wrong_ms")

    def __init__(self) -> None:
        self._system = SystemClock()
        self._asleep_ms = 0
        self._wrong_ms = 0

    def now_ms(self) -> int:
        """Monotonic milliseconds, with the sleeps."""
        return self._system.now_ms() + self._asleep_ms

    def now_ns(self) -> int:
        """The same in nanoseconds."""
        return self._system.now_ns() + self._asleep_ms * 1_000_000

    def wall_ms(self) -> int:
        """Epoch milliseconds, with the jumps and sleeps."""
        return self._system.wall_ms() + self._asleep_ms + self._wrong_ms

    def jump(self, ms: int) -> None:
        """Moves the wall clock, forward or back."""
        self._wrong_ms += ms

    def sleep(self, ms: int) -> None:
        """Moves both scales forward, as if nothing had run for so long.

        Raises:
            ValueError: `ms` is negative.
        """
        if ms < 0:
            raise ValueError(f"a monotonic clock cannot go back ({ms} ms)")
        self._asleep_ms += ms
