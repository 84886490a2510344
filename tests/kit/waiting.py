"""What happens on its own time: asked for again until it is there, with a guard and never a time that a test depends on."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

GUARD_S = 90.0
"""The machine may be busy. No test waits so long but one that fails."""


def fresh(prefix: str = "t") -> str:
    """A name that is not used yet."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def until(
    look: Callable[[], Any], what: str = "what a cluster shows in the end", *polled: Any, guard_s: float = GUARD_S, every_s: float = 0.02
) -> Any:
    """Asks again until the answer is true.

    Args:
        look: the question.
        what: what comes true, for the error.
        polled: consumers that are polled in between, for `every_s`; without any the thread waits as long.

    Returns:
        The answer.
    """
    end_s = time.monotonic() + guard_s
    while not (seen := look()):
        assert time.monotonic() < end_s, f"not within {guard_s} s: {what}"
        for consumer in polled:
            consumer.poll(every_s)
        if not polled:
            threading.Event().wait(every_s)
    return seen


def until_equal(look: Callable[[], Any], expected: Any, guard_s: float = GUARD_S) -> None:
    """Asks again until the answer is this one; the error shows the last answer."""
    end_s = time.monotonic() + guard_s
    while (seen := look()) != expected:
        assert time.monotonic() < end_s, f"not within {guard_s} s: {expected!r}, but {seen!r}"
        threading.Event().wait(0.02)
