"""tools/planted_faults.py plants what it says it plants: each fault has its place in the code, and tests that have to notice it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
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
