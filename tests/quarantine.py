"""Tests of external programs that time out now and then: the list, its second tries, and what is said of it at the end of every run.

Only tests in `quarantine.toml` get a second try, and only after a time-out of the external program. Everything else that fails, fails the
run: an assertion, an error of this package, a crash of a worker. The whole list is printed at the end of every run, with what became of
its tests, so that an entry that is no longer needed is seen and removed.

Rules the plugin holds:
1. An entry names a test that runs an external program (a marker of `EXTERNAL_MARKERS`, or a file in `EXTERNAL_ROOMS`), a cause and a date.
2. An entry whose file was collected but whose test does not exist ends the run.

Source: pytest-rerunfailures, which runs a test again within its run, with its fixtures.
"""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST = Path(__file__).with_name("quarantine.toml")
EXTERNAL_MARKERS = ("kafka", "spark")
EXTERNAL_ROOMS = ("tests/interop/", "tests/spark/live/", "tests/broker/test_rivals.py")
TIME_OUTS = [r"TimeoutExpired", r"TimeoutError", r"Timeout >", r"TimedOut"]


class Entry(NamedTuple):
    """A test on the list."""

    test: str
    cause: str
    since: datetime.date


def read(path: Path) -> dict[str, Entry]:
    """The list, by test.

    Args:
        path: a TOML file of `[[test]]` tables with `id`, `cause` and `since` (a date).

    Raises:
        pytest.UsageError: an entry is incomplete, or its test is named twice.
    """
    found: dict[str, Entry] = {}
    for row in tomllib.loads(path.read_text()).get("test", []):
        test, cause, since = row.get("id"), row.get("cause"), row.get("since")
        if not test or not cause or not isinstance(since, datetime.date) or len(row) != 3:
            raise pytest.UsageError(f"{path.name}: an entry has an id, a cause and a date (since): {row}")
        if test in found:
            raise pytest.UsageError(f"{path.name}: {test} is named twice")
        found[test] = Entry(test, cause, since)
    return found


def list_of(config: pytest.Config) -> Path:
    """The list of this run: `quarantine.toml` beside this file, or in a run's own directory (the tests of this plugin)."""
    own = config.rootpath / "quarantine.toml"
    return own if own.exists() else LIST


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    entries = read(list_of(config))
    for item in items:
        entry = entries.get(item.nodeid)
        if entry is None:
            continue
        if not item.nodeid.startswith(EXTERNAL_ROOMS) and not any(item.get_closest_marker(name) for name in EXTERNAL_MARKERS):
            raise pytest.UsageError(f"{item.nodeid} runs no external program: it has no place in {LIST.name}")
        item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=TIME_OUTS))
    if any("::" in argument for argument in config.args) or config.option.keyword or config.option.markexpr:
        return  # tests may have been left out by name
    files, tests = {item.nodeid.partition("::")[0] for item in items}, {item.nodeid for item in items}
    for test in entries:
        if test.partition("::")[0] in files and test not in tests:
            raise pytest.UsageError(f"{LIST.name} names {test}, which does not exist")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    entries = read(list_of(config))
    outcomes: dict[str, str] = {}
    for outcome in ("passed", "skipped", "rerun", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            if getattr(report, "nodeid", None) in entries and (report.when == "call" or outcome != "passed"):
                before = outcomes.get(report.nodeid)
                outcomes[report.nodeid] = "passed at the second try" if outcome == "rerun" and before == "passed" else outcome
    terminalreporter.section("quarantine: external programs that time out")
    if not entries:
        terminalreporter.write_line("the list is empty: no test was tried twice")
    for entry in entries.values():
        terminalreporter.write_line(f"{entry.test}: {outcomes.get(entry.test, 'not run')} (since {entry.since}: {entry.cause})")
