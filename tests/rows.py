"""Tables whose rows one test goes through: thousands of cases less to collect, and every row that fails is still reported by its name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import pytest


def each_row(names: str | Sequence[str], table: Iterable[Any], ids: Callable[[Any], object] | Iterable[str] | None = None) -> Any:
    """As `pytest.mark.parametrize`, but all rows are one test, whose fixtures are set up once.

    Stacked, each row of one table runs with each row of the others. A row has no marks: what needs one stays a parameter.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = ids if ids is None or callable(ids) else list(ids)
    table = list(table)
    assert table, "a table without rows tests nothing"
    assert not isinstance(given, list) or len(given) == len(table)
    mine = []
    for number, row in enumerate(table):
        name, values = given[number] if isinstance(given, list) else None, row
        if isinstance(row, type(pytest.param())):
            assert not row.marks, f"{row} has marks: leave it to pytest.mark.parametrize"
            name, values = row.id or name, row.values
        elif len(columns) == 1:
            values = (row,)
        call = given if callable(given) else None
        parts = [_name(value, column, number, call) for column, value in zip(columns, values, strict=True)]
        shown = (name or "-".join(parts)).encode("unicode_escape").decode()  # names travel between workers
        mine.append((shown, dict(zip(columns, values, strict=True))))

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        inner, rows = getattr(test, "rows_of", (test, None))
        rows = mine if rows is None else [(f"{name}-{other}", {**row, **more}) for other, more in mine for name, row in rows]

        @functools.wraps(test, updated=())  # not Hypothesis's attributes: each row is a property test, `run` is none
        def run(*args: Any, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for name, row in rows:
                with subtests.test(name):
                    inner(*args, **row, **fixtures)

        kept = [each for each in inspect.signature(inner).parameters.values() if each.name not in rows[0][1]]
        taken = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = inspect.Signature([*kept, taken])  # type: ignore[attr-defined]
        run.rows_of = (inner, rows)  # type: ignore[attr-defined]
        run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return run

    return decorate


def _name(value: object, column: str, number: int, ids: Callable[[Any], object] | None) -> str:
    chosen = None if ids is None else ids(value)
    if chosen is not None:
        return str(chosen)
    if value is None or isinstance(value, (str, bytes, int, float, Enum)):
        return str(value)
    return getattr(value, "__name__", None) or f"{column}{number}"
