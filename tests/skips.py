"""Skips that are expected, and the end of a run that met another one.

With KAFKACORE_EXPECTED_SKIPS=1 a skip that `skips.toml` does not list fails the run. A package or a program that goes missing would else
take its tests along, and the run would stay green. An entry says when its skip is expected: one list serves all systems and Pythons.
"""

from __future__ import annotations

import importlib.util
import operator
import os
import resource
import shutil
import socket
import sys
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST = Path(__file__).with_name("skips.toml")
SWITCH = "KAFKACORE_EXPECTED_SKIPS"
PROGRAMS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/lib/mit/sbin"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _lacks(name: str) -> bool:
    module, _, attribute = name.partition(".")
    return not hasattr(importlib.import_module(module), attribute)


def _no_address(host: str) -> bool:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return True
    return False


CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "always": operator.truth,
    "descriptors_below": lambda count: 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count,
    "lacks": _lacks,
    "no_address": _no_address,
    "no_module": lambda name: importlib.util.find_spec(name) is None,
    "no_path": lambda path: not Path(path).exists(),
    "no_program": lambda names: any(shutil.which(name, path=PROGRAMS) is None for name in names),
    "not_on": lambda system: sys.platform != system,
    "python_below": lambda text: sys.version_info < _version(text),
    "python_from": lambda text: sys.version_info >= _version(text),
    "unless_env": lambda name: name not in os.environ,
}
"""What `when` may say, with one value: `always` is for cases of a table that make no sense together."""


class Entry(NamedTuple):
    """Skips that are expected when a condition holds."""

    tests: str
    reason: str
    condition: str
    value: Any

    def expects(self, nodeid: str, reason: str) -> bool:
        return fnmatchcase(nodeid, self.tests) and fnmatchcase(reason, self.reason) and CONDITIONS[self.condition](self.value)


def read(path: Path) -> list[Entry]:
    """The list.

    Args:
        path: a TOML file of `[[skip]]` tables with `tests` and `reason` (patterns of a shell) and `when`, a table of one condition.

    Raises:
        pytest.UsageError: an entry is incomplete or names a condition that does not exist.
    """
    found = []
    for row in tomllib.loads(path.read_text()).get("skip", []):
        when = row.get("when")
        if set(row) != {"tests", "reason", "when"} or not isinstance(when, dict) or len(when) != 1 or not CONDITIONS.keys() >= when.keys():
            raise pytest.UsageError(f"{path.name}: an entry has tests, a reason and one condition (when): {row}")
        found.append(Entry(row["tests"], row["reason"], *next(iter(when.items()))))
    return found


def list_of(config: pytest.Config) -> Path:
    """The list of this run: `skips.toml` beside this file, or in a run's own directory (the tests of this plugin)."""
    own = config.rootpath / "skips.toml"
    return own if own.exists() else LIST


def skipped(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """Tests and modules that were skipped, with the reason; those of xdist's workers too."""
    for report in config.pluginmanager.getplugin("terminalreporter").getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        yield report.nodeid, reason.removeprefix("Skipped: ")


def unexpected(config: pytest.Config) -> list[str]:
    entries = read(list_of(config))
    found = dict.fromkeys(skipped(config))
    return [f"{nodeid}: {reason}" for nodeid, reason in found if not any(entry.expects(nodeid, reason) for entry in entries)]


def is_on(config: pytest.Config) -> bool:
    return os.environ.get(SWITCH) == "1" and not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    if is_on(session.config):
        read(list_of(session.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if passed and is_on(session.config) and unexpected(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if is_on(config) and (lines := unexpected(config)):
        terminalreporter.section(f"skips that {LIST.name} does not expect here: the run fails")
        for line in lines:
            terminalreporter.write_line(line)
