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
from collections.abc import Callable
from typing import Any

from hypothesis import currently_in_test_context, event, seed, settings
from hypothesis.stateful import RuleBasedStateMachine


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

    def by(self, test: Any, rounds: int = 1) -> Any:
        """The test, or the TestCase of a state machine: all its examples together must reach all branches.

        Args:
            test: what Hypothesis's `given` made, or the class of a state machine.
            rounds: how often it runs. Behind the tenth example of a run most are variations of one before: many short runs differ more.
        """
        if not (isinstance(test, type) and issubclass(test, RuleBasedStateMachine)):
            return self._watched(test, test, rounds)
        case = test.TestCase
        case.runTest = self._watched(case.runTest, test, rounds)
        return case

    def _watched(self, test: Callable[..., Any], seeded: Any, rounds: int) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(*args: Any, **options: Any) -> None:
            self.counts = {}
            for nth in range(rounds):
                if settings.default.derandomize:
                    seed(nth)(seeded)
                test(*args, **options)
            missed = [each for each in self.branches if each not in self.counts]
            assert not missed, f"no example reached {missed}, but {self.counts}"

        return run
