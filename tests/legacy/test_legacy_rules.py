"""docs/legacy.md names a test for each rule: they are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_rule_has_its_tests():
    text = (HERE.parent.parent / "docs" / "legacy.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| rule")]
    there = {name for file in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    named = [re.findall(r"`(test_\w+)`", row.split("|")[2]) for row in rows]
    assert len(rows) > 30
    assert not [row for row, names in zip(rows, named, strict=True) if not names and "the same" not in row]
    assert {name for names in named for name in names} <= there
