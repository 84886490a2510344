"""Installing without a compiler: what pip's build asks for, what it builds with, and what it says when neither is there."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that pyproject.toml names, over a setuptools that builds nothing."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    for directory in system["backend-path"]:
        monkeypatch.syspath_prepend(ROOT / directory)
    found = __import__(system["build-backend"])
    for name in ("get_requires_for_build_wheel", "get_requires_for_build_editable"):
        monkeypatch.setattr(found.build_meta, name, lambda settings: ["cython"])
    for name in ("build_wheel", "build_editable"):
        monkeypatch.setattr(found.build_meta, name, lambda *args: os.environ.get("CC", "the system's"))
    for name in ("CC", "CXX", "LDSHARED", "AR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return found


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


BOTH = [("get_requires_for_build_wheel", "build_wheel"), ("get_requires_for_build_editable", "build_editable")]


@pytest.mark.parametrize("requires, build", BOTH)
def test_with_a_compiler_nothing_is_added(backend: Any, requires: str, build: str) -> None:
    assert getattr(backend, requires)() == ["cython"]
    assert getattr(backend, build)("dist") == "the system's"


@pytest.mark.parametrize("requires, build", BOTH)
def test_without_a_compiler_ziglang_is_required_and_used(
    backend: Any, empty_path: Path, monkeypatch: pytest.MonkeyPatch, requires: str, build: str
) -> None:
    assert getattr(backend, requires)() == ["cython", "ziglang"]
    monkeypatch.setattr("compilers.importlib.util.find_spec", lambda name: object() if name == "ziglang" else None)
    command = getattr(backend, build)("dist")
    assert command.endswith(" -m ziglang cc -mcpu=baseline") and sys.executable in command
    assert os.environ["LDSHARED"] == f"{command} -shared"


def test_the_compiler_that_is_named(backend: Any, empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which("cc", path=os.defpath + ":/usr/bin:/usr/local/bin")
    mine = program(empty_path, "mine", f'PATH={os.defpath}:/usr/bin exec {real} "$@"')
    monkeypatch.setenv("CC", f"{mine} -O1")
    assert backend.get_requires_for_build_wheel() == ["cython"] and backend.build_wheel("dist") == f"{mine} -O1"
    monkeypatch.setenv("CC", "nosuchcompiler")
    for call in (backend.get_requires_for_build_wheel, lambda: backend.build_wheel("dist")):
        with pytest.raises(SystemExit, match="CC=nosuchcompiler cannot compile a shared library: name another compiler, or unset CC"):
            call()


def test_neither_a_compiler_nor_ziglang(backend: Any, empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with --no-build-isolation: one sentence says what to do."""
    monkeypatch.setattr("compilers.importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"no C compiler was found: install gcc or clang, or name a compiler in CC, or run pip without"):
        backend.build_wheel("dist")
