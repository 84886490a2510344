"""Helpers of tests live in tests/kit: what several files need is written once."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
WRITTEN_TWICE = 17
NAMES_IN_THREE_FILES = 131
"""Functions and classes, without fixtures. Both may only fall."""


def helpers() -> dict[str, list[tuple[str, str]]]:
    """By name: the files that define it at their top, and what the definition says without its docstring."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for file in sorted(TESTS.rglob("*.py")):
        for node in ast.parse(file.read_bytes()).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith(("test_", "pytest_")):
                continue
            if any("fixture" in ast.unparse(each) for each in node.decorator_list):
                continue
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            found[node.name].append((str(file.relative_to(TESTS)), ast.dump(node)))
    return found


def test_no_helper_is_written_twice() -> None:
    by_text: dict[str, list[str]] = defaultdict(list)
    for name, places in helpers().items():
        for file, text in places:
            by_text[text].append(f"{file}: {name}")
    twice = [places for places in by_text.values() if len(places) > 1]
    assert len(twice) <= WRITTEN_TWICE, twice


def test_names_of_helpers_say_which() -> None:
    """One name for three helpers hides that they are one."""
    crowded = {name: [file for file, _ in places] for name, places in helpers().items() if len({file for file, _ in places}) > 2}
    assert len(crowded) <= NAMES_IN_THREE_FILES, crowded
