"""Helpers of tests live in tests/kit: what several files need is written once."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
WRITTEN_TWICE = 0
NAMES_IN_THREE_FILES = 53
"""Functions and classes, without fixtures. Both may only fall."""
PRIVATE_NAMES = 242
"""Places in tests that use a name of the package with an underscore, outside of `tests/kit/inside.py`. It may only fall."""
PUBLIC = {"_asdict", "_exit", "_field_defaults", "_fields", "_import_from_c_capsule", "_make", "_replace"}
"""Of tuples with names, of os and of pyarrow."""


@cache
def trees() -> dict[str, ast.Module]:
    return {str(file.relative_to(TESTS)): ast.parse(file.read_bytes()) for file in sorted(TESTS.rglob("*.py"))}


@cache
def helpers() -> dict[str, list[tuple[str, ast.stmt]]]:
    """By name: the files that define it at their top, and the definition."""
    found: dict[str, list[tuple[str, ast.stmt]]] = defaultdict(list)
    for file, tree in trees().items():
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith(("test_", "pytest_")):
                continue
            if any("fixture" in ast.unparse(each) for each in node.decorator_list):
                continue
            found[node.name].append((file, node))
    return found


def said_by(node: Any) -> str:
    """What a definition says without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return "; ".join(map(ast.dump, [node.args if hasattr(node, "args") else ast.Tuple(node.bases), *body]))


def test_no_helper_is_written_twice() -> None:
    by_text: dict[str, list[str]] = defaultdict(list)
    for name, places in helpers().items():
        for file, node in places if len(places) > 1 else ():
            by_text[f"{name} {said_by(node)}"].append(f"{file}: {name}")
    twice = [places for places in by_text.values() if len(places) > 1]
    assert len(twice) <= WRITTEN_TWICE, twice


def test_names_of_helpers_say_which() -> None:
    """One name for three helpers hides that they are one."""
    crowded = {name: [file for file, _ in places] for name, places in helpers().items() if len({file for file, _ in places}) > 2}
    assert len(crowded) <= NAMES_IN_THREE_FILES, crowded


def private_names(tree: ast.Module) -> list[str]:
    """Where a test reads another object's private attribute, or imports a private name of the package."""
    nodes = list(ast.walk(tree))
    mine, own = ("self", "cls"), set(PUBLIC)
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in mine:
            own.add(node.attr)
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr not in own and _is_private(node.attr) and ast.unparse(node.value) not in mine:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kafkacore":
            found += [
                f"{node.lineno}: {each.name}" for each in node.names if _is_private(each.name) and each.name not in ("_codec", "_wheel")
            ]
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_private_names_of_the_package_become_fewer() -> None:
    found = {file: private_names(tree) for file, tree in trees().items() if file != "kit/inside.py"}
    assert sum(map(len, found.values())) <= PRIVATE_NAMES, {file: places for file, places in found.items() if places}


def test_a_private_name_is_seen() -> None:
    text = b"""
from kafkacore._codec import a
from kafkacore.consumer import _b
class C:
    def _own(self): self._c = self._d
x._c; x._e; x._replace(y=1); x.y._f.z
"""
    assert private_names(ast.parse(text)) == ["3: _b", "6: x._e", "6: x.y._f"]
