"""Calls that do not keep their owner alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable


def weakly(method: Callable[..., object]) -> Callable[..., None]:
    """Calls a method as long as its object is there.

    What the background thread holds must not keep a consumer alive, and what an engine calls must not be a circle.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        found = reference()
        if found is not None:
            found(*args)

    return call
