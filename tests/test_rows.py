"""Tables as one test: every row runs, and each that fails is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.rows import each_row

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(f"import pytest\nfrom tests.kit.rows import each_row\n{text}")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio", *options)


def test_two_bad_rows_among_good_ones_are_both_reported(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
RAN = []

@each_row("word, length", [("one", 3), ("two", 4), ("three", 5), ("four", 5), pytest.param("five", 4, id="last"), ("\\udc80", 1)])
def test_it(word, length):
    RAN.append(word)
    assert len(word) == length

def test_all_ran():
    assert RAN == ["one", "two", "three", "four", "five", "\\udc80"]
""",
        "-n",
        "1",
    )
    done.stdout.fnmatch_lines(["SUBFAILED[[]two-4[]] *::test_it*", "SUBFAILED[[]four-5[]] *::test_it*"])
    done.assert_outcomes(failed=3, passed=1)


def test_tables_are_stacked_and_a_fixture_serves_all_rows(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
RAN = []

@pytest.fixture
def made():
    RAN.append("made")

@pytest.mark.parametrize("case", [1, 2])
@each_row("first", ["a", "b"], ids=str.upper)
@each_row("second", lambda: [min, max])
def test_it(made, first, second, case):
    RAN.append((case, first, second))
    if first == "b":
        pytest.fail("b")

def test_all_ran():
    assert RAN == [
        each for case in (1, 2)
        for each in ("made", (case, "a", min), (case, "a", max), (case, "b", min), (case, "b", max))
    ]
""",
    )
    done.stdout.fnmatch_lines(["SUBFAILED[[]min-B[]] *::test_it[[]1[]]*", "SUBFAILED[[]max-B[]] *::test_it[[]2[]]*"])
    done.assert_outcomes(failed=6, passed=1)


def test_what_cannot_be_a_row_is_refused() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        each_row("word", [])
    with pytest.raises(AssertionError, match="has marks"):
        each_row("word", [pytest.param("slow", marks=pytest.mark.slow)])
    with pytest.raises(ValueError, match="zip"):
        each_row("word, length", [("one",)])
