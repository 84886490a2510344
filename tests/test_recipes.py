"""The programs of docs/recipes.md, from the first to the last, as a reader would type them in."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import CodeType

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
TEXT = PAGE.read_text()
PROGRAMS = [
    (f"docs/recipes.md:{TEXT.count(chr(10), 0, found.start()) + 2}", found[1])
    for found in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
]


def compiled(where: str, code: str) -> CodeType:
    """A program; one that awaits, as a notebook compiles it."""
    program: CodeType = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return program


async def awaited(program: CodeType, names: dict[str, object]) -> None:
    await eval(program, names)


@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient.")
def test_the_recipes_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("polars", "duckdb", "pyarrow", "pandas", "fastapi", "httpx"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "recipes"}
    try:
        for where, code in PROGRAMS:
            program = compiled(where, code)
            if program.co_flags & inspect.CO_COROUTINE:
                asyncio.run(awaited(program, names))
            else:
                exec(program, names)
    finally:
        if "cluster" in names:
            names["cluster"].close()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette.testclient.")
def test_the_test_among_them_is_one_for_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    section = TEXT[TEXT.index("## Test a FastAPI service") : TEXT.index("## In asyncio")]
    programs = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    pytester.makepyfile("import json\n" + "\n".join(programs))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.runpytest_inprocess("-p", "kafkacore.testing.plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)
