"""A property test whose examples miss a branch fails; it fails as before when an example fails."""

from __future__ import annotations

import unittest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.kit.reached import Reached


def property_test(reached: Reached, most: int) -> None:
    @reached.by
    @given(st.integers(0, most))
    @settings(max_examples=20, database=None)
    def run(number: int) -> None:
        reached("small", number < 5)
        reached("large", number >= 5)
        assert number < 100

    run()


def test_a_branch_that_no_example_reached_is_named() -> None:
    reached = Reached("small", "large")
    property_test(reached, 9)
    with pytest.raises(AssertionError, match=r"no example reached \['large'\]"):
        property_test(reached, 3)  # what the run before reached does not count


def test_an_example_that_fails_is_what_is_reported() -> None:
    with pytest.raises(AssertionError, match="assert 100 < 100"):
        property_test(Reached("small", "large", "never"), 100_000)


def test_each_round_has_examples_of_its_own() -> None:
    """Also where every run of the tests has the same examples."""
    seen: list[int] = []

    @given(st.integers(0, 2**60))
    def run(number: int) -> None:
        seen.append(number)

    before = settings.get_current_profile_name()
    settings.register_profile("same examples", max_examples=5, derandomize=True)
    settings.load_profile("same examples")
    try:
        Reached().by(settings.default(run), rounds=3)()
    finally:
        settings.load_profile(before)
    assert len(seen) == 15 and len(set(seen)) > 10


@pytest.mark.parametrize("branches", [["turned"], ["turned", "never"]])
def test_a_state_machine(branches: list[str]) -> None:
    reached = Reached(*branches)

    class Machine(RuleBasedStateMachine):
        @rule()
        def turn(self) -> None:
            reached("turned")

    Machine.TestCase.settings = settings(max_examples=2, stateful_step_count=3, database=None)
    result = unittest.TestResult()
    reached.by(Machine)("runTest").run(result)
    messages = [text for _, text in result.failures]
    if "never" in branches:
        assert len(messages) == 1 and "no example reached ['never']" in messages[0]
    else:
        assert not messages
    assert not result.errors
