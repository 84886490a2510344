"""The list of tests that may run twice: who is on it, what gets a second try, and what the end of a run says."""

from __future__ import annotations

import pytest

from tests import quarantine

pytest_plugins = ["pytester"]

FLAKY = """
import pytest
TRIES = []

{marker}
def test_it():
    TRIES.append(1)
    if len(TRIES) == 1:
        raise {error}
"""
LISTED = '[[test]]\nid = "test_one.py::test_it"\ncause = "a slow JVM"\nsince = 2026-11-01\n'


def run(pytester: pytest.Pytester, *, error: str, listed: str = LISTED, marker: str = "@pytest.mark.kafka") -> pytest.RunResult:
    pytester.makeini("[pytest]\nmarkers =\n    kafka: external")
    pytester.makefile(".toml", quarantine=listed)
    pytester.makepyfile(test_one=FLAKY.format(error=error, marker=marker))
    return pytester.runpytest_subprocess("-p", "tests.quarantine", "-p", "no:xdist", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(quarantine.LIST.parent.parent))


def test_the_list_is_sound() -> None:
    quarantine.read(quarantine.LIST)


def test_a_listed_test_that_times_out_is_tried_again_and_named(pytester: pytest.Pytester) -> None:
    done = run(pytester, error="TimeoutError('no answer from the JVM')")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["test_one.py::test_it: passed at the second try (since 2026-11-01: a slow JVM)"])


@pytest.mark.parametrize(
    ("error", "listed"),
    [("AssertionError('wrong')", LISTED), ("TimeoutError('late')", "")],
    ids=["an assertion of a listed test", "a time-out of a test that is not listed"],
)
def test_nothing_else_is_tried_again(pytester: pytest.Pytester, error: str, listed: str) -> None:
    done = run(pytester, error=error, listed=listed)
    done.assert_outcomes(failed=1)


def test_a_test_of_this_package_alone_cannot_be_listed(pytester: pytest.Pytester) -> None:
    done = run(pytester, error="TimeoutError('late')", marker="")
    assert done.ret != 0
    done.stderr.fnmatch_lines(["*runs no external program*"])


@pytest.mark.parametrize("listed", [LISTED + LISTED, LISTED.replace('cause = "a slow JVM"\n', ""), LISTED.replace("2026-11-01", '"soon"')])
def test_an_entry_has_a_cause_and_a_date_and_is_there_once(pytester: pytest.Pytester, listed: str) -> None:
    done = run(pytester, error="TimeoutError('late')", listed=listed)
    assert done.ret != 0
    done.stderr.fnmatch_lines(["*quarantine.toml*"])
