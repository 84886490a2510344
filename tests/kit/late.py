"""Packages that take long to import, for tests: imported when a test looks into them, not while pytest collects, which each worker does.

pl = late("polars")
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from typing import Any

import pytest


class Late:
    """A module, or what one holds ("opentelemetry.sdk.metrics:MeterProvider"), which is there once it is used."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pytest asks all names of a file for
            raise AttributeError(name)
        return getattr(self._there(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._there()(*args, **kwargs)

    def _there(self) -> Any:
        module, _, attribute = self.__dict__["name"].partition(":")
        if module not in sys.modules:
            with warnings.catch_warnings(action="ignore"):  # as pytest.importorskip: they are not about the test
                importlib.import_module(module)
        found = sys.modules[module]
        return getattr(found, attribute) if attribute else found


def late(name: str) -> Any:
    return Late(name)


def late_or_skip(name: str) -> Any:
    """As `pytest.importorskip`: without the package the tests of the file are skipped."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"could not import {name!r}", allow_module_level=True)
    return Late(name)
