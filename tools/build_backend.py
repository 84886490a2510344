"""What pip calls to build kafkacore (PEP 517, PEP 660): setuptools, with the package ziglang as its compiler where there is no other.

pyproject.toml names this file. Requirements of a build cannot be conditional there; hooks may add some.
"""

from __future__ import annotations

import os
from typing import Any

import compilers
from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None


def _requires_a_compiler() -> list[str]:
    try:
        return [] if compilers.environment_of_a_compiler() is not None else [compilers.ZIGLANG]
    except compilers.NoCompilerError as error:
        raise SystemExit(str(error)) from None


def _find_a_compiler() -> None:
    try:
        os.environ.update(compilers.build_environment())
    except compilers.NoCompilerError as error:
        raise SystemExit(str(error)) from None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_requires_a_compiler()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *_requires_a_compiler()]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _find_a_compiler()
    filename: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return filename


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _find_a_compiler()
    filename: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return filename
