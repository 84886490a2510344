"""Which branches the examples of a property test reached: the test names them up front, and fails when no example came to one of them.

    reached = Reached("split", "merged")

    @reached.by
    @given(...)
    def test_batches(...):
        reached("split", len(batches) > 1)

Draw from few values, so that a run reaches each branch 20 times or more, or give an `@example`: a branch that is reached twice is missed by
some run. `--hypothesis-show-statistics` says how many examples reach a branch.
"""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any

from hypothesis import currently_in_test_context, event


class Reached:
    """Named branches, and how often examples reached them."""

    def __init__(self, *branches: str) -> None:
        self.branches = branches
        self.counts: dict[str, int] = {}

    def __call__(self, branch: str, happened: object = True) -> None:
        """An example is at a branch, if `happened` is true."""
        if branch not in self.branches:
            raise KeyError(branch)
        if happened:
            self.counts[branch] = self.counts.get(branch, 0) + 1
            if currently_in_test_context():
                event(branch)

    def by(self, test: Any) -> Any:
        """The test, or the TestCase of a state machine: all its examples together must reach all branches."""
        if isinstance(test, type) and issubclass(test, unittest.TestCase):
            test.runTest = self._watched(test.runTest)  # type: ignore[attr-defined]
            return test
        return self._watched(test)

    def _watched(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(*args: Any, **options: Any) -> None:
            self.counts = {}
            test(*args, **options)
            missed = [each for each in self.branches if each not in self.counts]
            assert not missed, f"no example reached {missed}, but {self.counts}"

        return run
