"""Values of settings: what an annotation makes of a value, and the constraints in a field's metadata. The settings are in config.py."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Range(typing.NamedTuple):
    low: int
    high: int

    def problem(self, value: Any) -> str | None:
        if self.low <= value <= self.high:
            return None
        if self.high < INT32_MAX:
            return f"must be between {self.low} and {self.high}"
        return f"must be at least {self.low}" if value < self.low else f"must be at most {self.high}"


class OneOf(typing.NamedTuple):
    choices: tuple[Any, ...]
    any_case: bool = False

    def problem(self, value: Any) -> str | None:
        known = value in self.choices or (self.any_case and value.lower() in self.choices)
        return None if known else f"must be one of {', '.join(map(str, self.choices))}"


def between(default: Any, low: int, high: int = INT32_MAX) -> Any:
    return dataclasses.field(default=default, metadata={"check": Range(low, high)})


def one_of(default: Any, *choices: Any, any_case: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"check": OneOf(choices, any_case)})


_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def convert(hint: Any, value: Any) -> Any:
    """Turns a value into what the annotation asks for; raises ValueError naming what was expected."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        failures = []
        for option in options:
            if option is not type(None):
                try:
                    return convert(option, value)
                except ValueError as failure:
                    failures.append(str(failure))
        raise ValueError(" or ".join(failures))
    if hint is Any:
        return value
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
            return value.strip().lower() in _TRUE
        raise ValueError("a truth value")
    if hint is int:
        if isinstance(value, bool):
            raise ValueError("a whole number")
        if isinstance(value, str):
            try:
                return int(value.strip())
            except ValueError:
                raise ValueError("a whole number") from None
        if isinstance(value, float) and not value.is_integer():
            raise ValueError("a whole number")
        try:
            return int(value) if isinstance(value, float) else value.__index__()
        except (AttributeError, TypeError):
            raise ValueError("a whole number") from None
    if hint is float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
        raise ValueError("a number")
    if hint is str:
        if isinstance(value, str):
            return value
        raise ValueError("a string")
    if origin is tuple:
        return string_list(value)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value in choices:
            return value
        raise ValueError(f"one of {', '.join(map(repr, choices))}")
    if origin is Callable:
        if callable(value):
            return value
        raise ValueError("a callable")
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return value
    if isinstance(hint, type) and isinstance(value, hint):
        return value
    raise ValueError(f"a {getattr(hint, '__name__', hint)}")


def function_named(name: str) -> Callable[..., Any]:
    """The function that a text names as `module:function`, or `module:Class.method`; imports its module.

    Raises:
        ValueError: says what is not there.
    """
    module, colon, path = name.strip().partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *path.split(".")]):
        raise ValueError(f"a function, or the name of one as module:function, not {name!r}")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"a function that can be imported: module {module} needs {error.name}, which is not installed") from error
        raise ValueError(f"a function that can be imported: there is no module {error.name} that is installed or on PYTHONPATH") from error
    except Exception as error:
        raise ValueError(f"a function that can be imported: module {module} fails with {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found))
            raise ValueError(f"a function that is there: module {module} has no {path}" + (f"; did you mean {near[0]}?" if near else ""))
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"a function: {path} of module {module} is a {type(found).__name__}")
    return typing.cast("Callable[..., Any]", found)


def string_list(value: Any) -> tuple[Any, ...]:
    """A comma-separated string, or any sequence, as a tuple without empty entries."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        return tuple(value)
    raise ValueError("a list, or a comma-separated string")


def sentences_of(doc: str | None) -> dict[str, str]:
    """What a docstring says of each attribute, by name; empty without one (-OO)."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(doc or "").partition("Attributes:\n")[2].splitlines():
        head, colon, text = line.strip().partition(": ")
        if line.startswith("    ") and not line.startswith("     ") and colon:
            names = head.split(", ")
            found |= dict.fromkeys(names, text)
        elif names:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found
