"""A pytest plugin: which tests run which lines, and how long each takes. `tools/mutants.py` chooses a mutant's tests by that.

coverage.py runs in this process and in all that the tests start (`COVERAGE_PROCESS_START`); this plugin says which test it is. A test is a
function with all its parameters.
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

OUTPUT = "KAFKACORE_MEASURED"
seconds: defaultdict[str, float] = defaultdict(float)
outcomes: defaultdict[str, set[str]] = defaultdict(set)


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0].partition(" (")[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    from coverage import Coverage

    running = Coverage.current()
    if running is None:
        return (yield)
    if sys.gettrace() is None:  # a test before had a trace function of its own
        running.stop()
        running.start()
    running.switch_context(function_of(item.nodeid))
    try:
        return (yield)
    finally:
        running.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = function_of(report.nodeid)
    seconds[test] += report.duration
    if report.when == "call" or report.outcome != "passed":
        outcomes[test].add(report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    measured = {
        "seconds": {test: round(seconds[test], 3) for test, each in outcomes.items() if "passed" in each and "failed" not in each},
        "failed": sorted(test for test, each in outcomes.items() if "failed" in each),
    }
    Path(os.environ[OUTPUT]).write_text(json.dumps(measured))
