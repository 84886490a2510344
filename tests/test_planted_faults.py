"""tools/planted_faults.py plants what it says it plants: each fault has its place in the code, and tests that have to notice it."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))  # it imports its neighbour
    spec = importlib.util.spec_from_file_location("planted_faults", ROOT / "tools" / "planted_faults.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_each_fault_has_its_place_and_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = tool(monkeypatch).FAULTS
    assert len({fault.name for fault in faults}) == len(faults)
    wrong = []
    for fault in faults:
        text = (ROOT / fault.file).read_text()
        if text.count(fault.old) != 1:
            wrong.append(f"{fault.name}: the text to change stands {text.count(fault.old)} times in {fault.file}")
        ast.parse(changed := text.replace(fault.old, fault.new))  # a test has to notice it, not the compiler
        if changed == text:
            wrong.append(f"{fault.name} changes nothing")
        wrong += [f"{fault.name}: there is no {file}" for file in fault.tests if not (ROOT / file).is_file()]
        if not fault.tests:
            wrong.append(f"{fault.name} has no tests")
    assert not wrong


@pytest.mark.parametrize("unnoticed", [None, "second-group"])
def test_a_fault_that_is_not_noticed_is_named_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unnoticed: str | None
) -> None:
    module = tool(monkeypatch)
    runs: list[str] = []

    def run(command: list[str], *, cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        (fault,) = [each for each in module.FAULTS if each.new in (text := (cwd / each.file).read_text()) and each.old not in text]
        runs.append(fault.name)
        assert command[-len(fault.tests) :] == list(fault.tests)
        failed = fault.name != unnoticed
        return subprocess.CompletedProcess(command, int(failed), "FAILED tests/a.py::test_b - assert 1 == 2\n" if failed else "", "")

    def copy(target: Path) -> None:
        for file in {each.file for each in module.FAULTS}:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            (target / file).write_text((ROOT / file).read_text())

    monkeypatch.setattr(module, "copy_of_the_checkout", copy)
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run))
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["planted_faults.py", "second-group", "third-listener", *more])
        assert module.main() == (unnoticed is not None)
    said = capsys.readouterr().out
    assert runs == ["second-group", "third-listener"] * 2
    assert ("second-group: NOT NOTICED" in said) == (unnoticed is not None)
    assert "third-listener: noticed by tests/a.py::test_b" in said
    assert [json.loads(line)["noticed"] for line in said.splitlines() if line.startswith("{")] == [unnoticed is None, True]
