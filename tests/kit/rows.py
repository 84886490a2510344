"""Tables whose rows one test goes through: thousands of cases less to collect, and every row that fails is still reported by its name."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from types import FunctionType
from typing import Any

import pytest

Table = Iterable[Any] | Callable[[], Iterable[Any]]


def each_row(names: str | Sequence[str], table: Table, ids: Callable[[Any], object] | Iterable[str] | None = None) -> Any:
    """As `pytest.mark.parametrize`, but all rows are one test, whose fixtures are set up once.

    Stacked, each row of one table runs with each row of the others. A row has no marks: what needs one stays a parameter.
    A table whose values take long to make is a function: it is called when the test runs.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    @functools.cache
    def rows() -> list[tuple[str, dict[str, Any]]]:
        return _rows(columns, list(table() if isinstance(table, FunctionType) else table), ids)

    if not isinstance(table, FunctionType):
        rows()  # what is wrong is wrong at once

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        inner, names, tables = getattr(test, "rows_of", (test, (), ()))
        names, tables = (*columns, *names), (rows, *tables)

        @functools.wraps(test, updated=())  # not Hypothesis's attributes: each row is a property test, `run` is none
        def run(*args: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for chosen in itertools.product(*(each() for each in tables)):
                values = {column: value for _, row in chosen for column, value in row.items()}
                with subtests.test("-".join(name for name, _ in reversed(chosen))):
                    inner(*args, **values, **fixtures)

        kept = [each for each in inspect.signature(inner).parameters.values() if each.name not in names]
        taken = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = inspect.Signature([*kept, taken])  # type: ignore[attr-defined]
        run.rows_of = (inner, names, tables)  # type: ignore[attr-defined]
        run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return run

    return decorate


def _rows(columns: list[str], table: list[Any], ids: Callable[[Any], object] | Iterable[str] | None) -> list[tuple[str, dict[str, Any]]]:
    """Names and values by column."""
    assert table, "a table without rows tests nothing"
    given = [None] * len(table) if ids is None or callable(ids) else list(ids)
    rows = []
    for number, (name, row) in enumerate(zip(given, table, strict=True)):
        values = row if len(columns) > 1 else (row,)
        if isinstance(row, type(pytest.param())):
            assert not row.marks, f"{row} has marks: leave it to pytest.mark.parametrize"
            name, values = row.id or name, row.values
        call = ids if callable(ids) else None
        parts = [_name(value, column, number, call) for column, value in zip(columns, values, strict=True)]
        shown = (name or "-".join(parts)).encode("unicode_escape").decode()  # names travel between workers
        rows.append((shown, dict(zip(columns, values, strict=True))))
    return rows


def _name(value: object, column: str, number: int, ids: Callable[[Any], object] | None) -> str:
    chosen = None if ids is None else ids(value)
    if chosen is not None:
        return str(chosen)
    if value is None or isinstance(value, (str, bytes, int, float, Enum)):
        return str(value)
    return getattr(value, "__name__", None) or f"{column}{number}"
