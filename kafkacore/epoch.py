"""Times as callers write them become epoch milliseconds: whole numbers, datetimes, numpy's datetime64, Arrow's timestamps.

What is finer than a millisecond is rounded down. Times without a zone are UTC in columns, in datetime64 and in pandas, as everywhere there;
a `datetime` without a zone is local time, as Python's own `timestamp()` has it. Nothing is guessed from the size of a number: floats are
refused, since `time.time()` gives seconds.
"""

from __future__ import annotations

import datetime
from typing import Any, Never, TypeAlias

import numpy as np

Time: TypeAlias = int | datetime.datetime | np.datetime64
"""What a time may be: epoch milliseconds, a datetime, a datetime64 of any unit."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_INT64_END = 1 << 63


def epoch_ms(given: Any, name: str) -> int:
    """One time.

    Args:
        given: epoch milliseconds as a whole number, a datetime, or a datetime64 of any unit.
        name: of the argument, for the errors.

    Returns:
        Epoch milliseconds; may be negative.

    Raises:
        TypeError: it is no time: a float, a string, a truth value.
        ValueError: it is NaT, or does not fit 64 bits.
    """
    if isinstance(given, np.ndarray) and given.ndim == 0:
        given = given[()]
    if isinstance(given, (bool, np.bool_)):
        _refuse(given, name)
    if hasattr(given, "to_datetime64"):  # pandas, whose NaT is a datetime too
        given = given.to_datetime64()
    if isinstance(given, np.datetime64):
        return int(_of_datetime64(np.array([given]), name)[0])
    if isinstance(given, datetime.datetime):
        return _of_datetime(given, name)
    if isinstance(given, np.timedelta64) or not hasattr(given, "__index__"):
        _refuse(given, name)
    try:
        found = int(given.__index__())
    except TypeError:
        _refuse(given, name)
    if not -_INT64_END <= found < _INT64_END:
        raise ValueError(f"{name} does not fit 64 bits: {found}")
    return found


def epoch_column_ms(given: Any, name: str) -> np.ndarray[Any, Any]:
    """Many times.

    Args:
        given: a list of what `epoch_ms` takes, an array of integers (epoch milliseconds) or of datetime64, or anything that numpy makes
            one of these: Arrow's timestamps and dates, a Series.
        name: of the argument, for the errors.

    Returns:
        Epoch milliseconds, contiguous int64.

    Raises:
        TypeError: items are no times.
        ValueError: an item is NaT or null, or does not fit 64 bits; or there is more than one dimension.
    """
    if isinstance(given, np.ma.MaskedArray) and np.ma.getmaskarray(given).any():
        raise ValueError(f"{name} has masked items: every record needs a time")
    array = np.asarray(given)
    kind = array.dtype.kind
    if array.ndim != 1:
        if array.ndim == 0:
            _refuse(array[()], name)
        raise ValueError(f"{name} must have one dimension, not {array.ndim}")
    if kind == "M":
        return _of_datetime64(array, name)
    if kind == "O":
        return np.fromiter((epoch_ms(item, f"{name}[{i}]") for i, item in enumerate(array)), np.int64, len(array))
    if not array.size:
        return np.empty(0, np.int64)
    if kind == "f" and getattr(given, "null_count", False):
        raise ValueError(f"{name} has nulls: every record needs a time")
    if kind not in "iu":
        _refuse(array[0], f"{name}[0]")
    if kind == "u" and int(array.max()) >= _INT64_END:
        raise ValueError(f"{name} does not fit 64 bits: {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def _refuse(given: Any, name: str) -> Never:
    hint = ": seconds, as time.time() gives them, are int(1000 * seconds)" if isinstance(given, (float, np.floating)) else ""
    raise TypeError(f"{name} must be epoch milliseconds as a whole number, a datetime or a datetime64, not {given!r:.60}{hint}")


def _of_datetime(given: datetime.datetime, name: str) -> int:
    try:
        return (given.astimezone(datetime.UTC) - _EPOCH) // _MILLISECOND
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{name}: the local time {given} is not known in UTC") from None


def _of_datetime64(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    missing = np.isnat(array)
    if missing.any():
        raise ValueError(f"{name} has NaT at {int(missing.argmax())}: every record needs a time")
    found = array.astype("datetime64[ms]")
    if np.datetime_data(array.dtype)[0] in _COARSE and not np.array_equal(found.astype(array.dtype), array):
        raise ValueError(f"{name} has a time that does not fit 64 bits in milliseconds")
    return np.ascontiguousarray(found).view(np.int64)


_COARSE = {"Y", "M", "W", "D", "h", "m", "s"}
