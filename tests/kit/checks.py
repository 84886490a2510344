"""One check for each name of a set, so that a test can see that no name is without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Checks:
    """`checks = Checks()`; `@checks("a", "b")` enters a function for its names; `@checks.each_one` has a test run with every `fn`.

    Attributes:
        of: the functions by name.
    """

    def __init__(self) -> None:
        self.of: dict[str, Callable[..., Any]] = {}

    def __call__(self, *names: str) -> Callable[[Any], Any]:
        def enter(fn: Any) -> Any:
            self.of.update(dict.fromkeys(names, fn))
            return fn

        return enter

    def each_one(self, test: Any) -> Any:
        """Below the last check."""
        return pytest.mark.parametrize("fn", dict.fromkeys(self.of.values()), ids=lambda fn: fn.__name__)(test)
