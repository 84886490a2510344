"""Pieces that the formats share: texts and Python values of one column as Arrow, and a table of rows built around those that do not fit."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kafkacore.decode.ddl import name_of

UTC_US = pa.timestamp("us", "UTC")
NAIVE_US = pa.timestamp("us")
MAX_REASON = 300

Convert = Callable[[Any], Any]
"""Makes what Arrow takes for one type of a Python value, or raises Undecodable."""

FAULTS = (ValueError, TypeError, ArithmeticError, LookupError, EOFError, RecursionError, pa.ArrowNotImplementedError, pa.ArrowCapacityError)
"""What libraries raise for bytes that are not what they should be. MemoryError is not among them: it is the task's."""


class Undecodable(ValueError):
    """A value that is not what the schema says; the text says why."""


class PartlyDecodable(Undecodable):
    """A value of which some fields are not what the schema says.

    Attributes:
        rest: what there is of it, with nulls for those fields.
    """

    def __init__(self, why: str, rest: Any) -> None:
        """Says why, and keeps the rest."""
        super().__init__(why)
        self.rest = rest


def refuse(path: str, value: Any, kind: str) -> NoReturn:
    """Raises Undecodable."""
    text = repr(value)
    raise Undecodable(f"field {path}: {text if len(text) <= 60 else text[:57] + '...'} is no {kind}")


def reason(error: BaseException) -> str:
    """Why a value could not be decoded, short and in one line."""
    text = " ".join((str(error) if isinstance(error, Undecodable) else f"{type(error).__name__}: {error}").split())
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 3] + "..."


# ---- dates and times -----------------------------------------------------------------------------------------------------------------

_TIME = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d+))?)?)?)?"
    r"\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?\s*",
    re.ASCII,
)
_EPOCH = datetime.datetime(1970, 1, 1)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LAST_SECOND = 253_402_300_799                                # of the year 9999


def instant_us(path: str, text: str, zoned: bool) -> int:
    """ISO 8601 as microseconds since 1970; without a zone it is UTC. Digits beyond microseconds are cut, as Spark does.

    Args:
        path: of the field, for the message.
        text: as found.
        zoned: the column is a timestamp; otherwise a timestamp_ntz, for which a zone is an error.
    """
    match = _TIME.fullmatch(text)
    if match is None or (match[8] and not zoned):
        refuse(path, text, "timestamp" if zoned else "timestamp_ntz")
    try:
        moment = datetime.datetime(*(int(part or 0) for part in match.groups()[:6]))  # type: ignore[arg-type]
    except ValueError:
        refuse(path, text, "timestamp")
    micros = (moment - _EPOCH) // datetime.timedelta(microseconds=1) + int((match[7] or "0")[:6].ljust(6, "0"))
    if match[8] and match[8] not in ("Z", "UTC"):
        minutes = int(match[8][1:3]) * 60 + int(match[8][3:].lstrip(":") or 0)
        micros += (-60_000_000 if match[8][0] == "+" else 60_000_000) * minutes
    return micros


def instant_ns(path: str, text: str, zoned: bool) -> int:
    """As `instant_us`, nanoseconds.

    Raises:
        Undecodable: it is no time, or none between 1677 and 2262, which 64 bits hold.
    """
    micros = instant_us(path, text, zoned)
    match = _TIME.fullmatch(text)
    digits = "" if match is None or match[7] is None else match[7]
    found = micros * 1_000 + int(digits[6:9].ljust(3, "0"))
    if not -(1 << 63) <= found < 1 << 63:
        refuse(path, text, "timestamp of nanoseconds, which end in 2262")
    return found


def seconds_us(path: str, seconds: int) -> int:
    """A number as a timestamp is seconds, as in Spark; milliseconds taken for seconds are refused."""
    if abs(seconds) > LAST_SECOND:
        raise Undecodable(f"field {path}: {seconds} as seconds since 1970 is no timestamp; if it is milliseconds, read the field as bigint")
    return seconds * 1_000_000


def day(path: str, text: str) -> datetime.date:
    """A date, with or without a time of day behind it."""
    match = _TIME.fullmatch(text)
    if match is None:
        refuse(path, text, "date")
    try:
        return datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        refuse(path, text, "date")


def scaled(path: str, value: Any, kind: Any) -> decimal.Decimal:
    """A decimal of the column's scale, rounded half up, as Spark does.

    Raises:
        Undecodable: it has more digits than the column.
    """
    with decimal.localcontext(prec=80):
        try:
            found = decimal.Decimal(value)
            if not found.is_finite() or found.adjusted() >= kind.precision:
                refuse(path, str(value), name_of(kind))
            found = found.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP)
        except decimal.InvalidOperation:
            refuse(path, str(value), name_of(kind))
    if len(found.as_tuple().digits) > kind.precision:
        refuse(path, str(value), name_of(kind))
    return found


ARROW_SCALE = 18
"""Up to this scale decimals go by Arrow, if they also have no exponent and no more places, and at most 19 digits before the point.

Beyond, Arrow (26) reads past a table of its own where places differ by more than 38, which crashes, and wraps around where more than 38
digits come out.
"""
_PLAIN_DECIMAL = r"^[+-]?[0-9]{1,19}(\.[0-9]{0,18})?$"


def decimals(path: str, texts: Any, kind: Any) -> Any:
    """Texts as decimals, rounded where they have more places than the column."""
    if kind.scale <= ARROW_SCALE and pc.all(pc.match_substring_regex(texts, _PLAIN_DECIMAL), min_count=0).as_py():
        try:
            found = texts.cast(kind)
            found.validate(full=True)                          # Arrow does not look whether it fits
            return found
        except pa.ArrowInvalid:                                # digits to be rounded, or too many
            pass
    return pa.array([None if each is None else scaled(path, each.strip(), kind) for each in texts.to_pylist()], kind)


def raw_type(kind: pa.DataType) -> pa.DataType:
    """What a reader of texts is asked for so that `typed` can make the wanted type of it."""
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, raw_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(raw_type(kind.value_type))
    return kind


def typed(array: Any, kind: pa.DataType) -> Any:
    """An array of `raw_type(kind)` as one of `kind`.

    Raises:
        pa.ArrowInvalid: a text among them is not a date or time, or they are in several forms.
    """
    if array.type == kind:
        if pa.types.is_struct(kind) or pa.types.is_list(kind):
            return array.cast(kind)                           # the names and flags of nested fields are not part of equality
        return array
    if pa.types.is_struct(kind):
        children = [typed(array.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        children = typed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, children, type=kind, mask=array.is_null() if array.null_count else None)
    if pa.types.is_timestamp(kind):
        return _instants(array, kind)
    return array.cast(kind)


def floored(instants: Any, kind: Any) -> Any:
    """Times of a finer unit in a coarser one, rounded down."""
    import numpy

    factor = _PER_SECOND[instants.type.unit] // _PER_SECOND[kind.unit]
    numbers = instants.view(pa.int64()).fill_null(0).to_numpy()
    mask = instants.is_null().to_numpy(zero_copy_only=False) if instants.null_count else None
    return pa.array(numpy.floor_divide(numbers, factor), pa.int64(), mask=mask).view(kind)


def _instants(texts: Any, kind: Any) -> Any:
    """Texts as times. Arrow takes no more digits than the unit has: with nine they are read as nanoseconds and cut. It looks at all texts
    before it says that one does not fit, so the first one decides what is tried first."""
    at = texts.is_valid().index(True).as_py() if texts.null_count else 0
    match = _TIME.fullmatch(texts[at].as_py()) if 0 <= at < len(texts) else None
    if match is None:
        return texts.cast(kind)
    digits, zone = match[7] or "", match[8]
    if zone is not None and kind.tz is None:
        raise Undecodable("a text has a zone, and the column none")
    units = ("ns", kind.unit) if len(digits) > _DIGITS[kind.unit] else (kind.unit, "ns")
    zones = (kind.tz,) if kind.tz is None else (kind.tz, None) if zone is not None else (None, kind.tz)
    for unit in units:
        fine = pa.timestamp(unit, kind.tz)
        for tz in zones:
            try:
                found = texts.cast(pa.timestamp(unit, tz)).view(fine)
            except pa.ArrowInvalid:
                continue
            return found if unit == kind.unit else floored(found, kind)
    raise Undecodable("some texts are no times, or in several forms")


# ---- rows ----------------------------------------------------------------------------------------------------------------------------


def build(columns: Sequence[list[Any]], fields: Sequence[Any], count: int) -> Any:
    """Python values, column by column, as one struct array."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    if not arrays:
        return empty_structs(count)
    return pa.StructArray.from_arrays(arrays, fields=list(fields))


def empty_structs(count: int) -> Any:
    """Rows without columns."""
    return pa.Array.from_buffers(pa.struct([]), count, [None])


def assemble(rows: list[Sequence[Any] | None], fields: Sequence[Any], faults: dict[int, str]) -> Any:
    """Rows as one struct array; rows that Arrow refuses become nulls and are noted.

    Args:
        rows: the values of each row in the fields' order, or None for a null row.
        fields: Arrow fields.
        faults: row -> why; gets those that are found here.
    """
    nothing = (None,) * len(fields)
    filled = [nothing if row is None else row for row in rows]

    def part(low: int, high: int) -> list[Any]:
        try:
            return [build([[row[at] for row in filled[low:high]] for at in range(len(fields))], fields, high - low)]
        except FAULTS as error:
            if high - low == 1:
                faults[low] = reason(error)
                return [build([[None]] * len(fields), fields, 1)]
        step = -(-(high - low) // 16)                          # a constant depth: many bad rows stay linear
        return [piece for start in range(low, high, step) for piece in part(start, min(high, start + step))]

    return joined(part(0, len(rows)), fields)


def joined(pieces: list[Any], fields: Sequence[Any]) -> Any:
    """Struct arrays as one."""
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces or [pa.array([], pa.struct(list(fields)))])


def placed(structs: Any, where: Any, count: int) -> Any:
    """Puts rows at their places among others, which are null.

    Args:
        structs: the rows.
        where: the places, ascending, int64.
        count: of all rows.
    """
    if len(structs) == count:
        return structs
    import numpy

    index = numpy.zeros(count, numpy.int64)
    absent = numpy.ones(count, bool)
    index[where] = numpy.arange(len(structs))
    absent[where] = False
    return pc.take(structs, pa.array(index, mask=absent))
