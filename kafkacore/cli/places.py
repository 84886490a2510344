"""Where reading begins, as it is typed: an offset, so many records before the end, a time."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import NamedTuple

import typer

from kafkacore import KafkaAdminClient, KafkaConsumer, TopicPartition

NAMES = {"earliest": "earliest", "latest": "latest", "beginning": "earliest", "start": "earliest", "end": "latest"}
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_AGO = re.compile(r"-((?:[0-9]{1,12}(?:ms|[dhms]))+)")
_PARTS = re.compile(r"([0-9]+)(ms|[dhms])")
_MOST_DIGITS = 40  # a number that no partition holds is its nearest, but int() has limits
HELP = (
    "earliest, latest, an offset. -N: the last N of every partition. @TIME: the first records since, in milliseconds since 1970 "
    "as 2026-05-01T12:00 (UTC), or -1h30m: so long ago"
)


class Place(NamedTuple):
    """Where to begin in a partition.

    Attributes:
        kind: offset, last (so many before the end) or time.
        number: the offset, how many records, or epoch milliseconds.
    """

    kind: str
    number: int

    def find(self, consumer: KafkaConsumer, where: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of each partition, which it may not hold."""
        if self.kind == "offset":
            return dict.fromkeys(where, self.number)
        end = consumer.end_offsets(where)
        if self.kind == "last":
            first = consumer.beginning_offsets(where)
            return {tp: max(first[tp], end[tp] - self.number) for tp in where}
        found = consumer.offsets_for_times(dict.fromkeys(where, self.number))
        return {tp: end[tp] if (at := found[tp]) is None else at.offset for tp in where}


def ends_of(consumer: KafkaConsumer, where: Iterable[TopicPartition], to: str | Place) -> dict[TopicPartition, int]:
    """Where reading ends in partitions, no further than where they end now.

    Args:
        consumer: asks.
        where: the partitions.
        to: what `place_of` gives.
    """
    partitions = list(where)
    ends = consumer.end_offsets(partitions)
    if isinstance(to, str):
        return ends if to == "latest" else consumer.beginning_offsets(partitions)
    found = to.find(consumer, partitions)
    return {tp: min(end, found[tp]) for tp, end in ends.items()}


class Spans(NamedTuple):
    """Where partitions begin and end."""

    first: dict[TopicPartition, int]
    end: dict[TopicPartition, int]

    def nearest(self, tp: TopicPartition, offset: int) -> int:
        """The offset, or the nearest that the partition has; its end for a negative one."""
        return min(max(self.end[tp] if offset < 0 else offset, self.first[tp]), self.end[tp])


def spans_of(admin: KafkaAdminClient, where: Iterable[TopicPartition]) -> Spans:
    """Asks the leaders."""
    partitions = list(where)
    return Spans(_offsets(admin, partitions, "earliest"), _offsets(admin, partitions, "latest"))


def _offsets(admin: KafkaAdminClient, where: Iterable[TopicPartition], spec: str | int) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in admin.list_offsets(dict.fromkeys(where, spec)).check().items()}


def offsets_at(admin: KafkaAdminClient, spans: Spans, place: str | Place) -> dict[TopicPartition, int]:
    """The offset of a place in each partition, the nearest where it does not hold it; the end where no record is so young."""
    where = list(spans.end)
    if isinstance(place, str):
        found = spans.first if place == "earliest" else spans.end
    elif place.kind == "time":
        found = _offsets(admin, where, place.number)
    elif place.kind == "last":
        found = {tp: max(spans.end[tp] - place.number, 0) for tp in where}
    else:
        found = dict.fromkeys(where, place.number)
    return {tp: spans.nearest(tp, found[tp]) for tp in where}


def place_of(text: str, option: str = "--from") -> str | Place:
    """earliest, latest or a place.

    Args:
        text: as typed.
        option: where, for messages.

    Raises:
        typer.BadParameter: none of the forms.
    """
    if text in NAMES:
        return NAMES[text]
    at = text.removeprefix("s")  # kcat's s@TIME
    if at.startswith("@"):
        return Place("time", _milliseconds(at[1:], option))
    kind = "last" if text.startswith("-") else "offset"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MOST_DIGITS:
        raise typer.BadParameter(f"must be earliest, latest, an offset, -N or @TIME, not {text!r}", param_hint=option)
    return Place(kind, int(digits))


def _milliseconds(time: str, option: str) -> int:
    if (ago := _AGO.fullmatch(time)) is not None:
        back = sum(int(number) * _UNITS_MS[unit] for number, unit in _PARTS.findall(ago[1]))
        return max(int(datetime.datetime.now(datetime.UTC).timestamp() * 1000) - back, 0)
    if time.isascii() and time.isdecimal() and int(time) < 1 << 63:
        return int(time)
    try:
        moment = datetime.datetime.fromisoformat(time)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        ms = (moment - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        ms = -1
    if ms < 0:
        raise typer.BadParameter(
            f"{time!r} is no time since 1970: milliseconds, 2026-05-01T12:00, 2026-05-01T12:00+02:00, or -1h30m: so long ago",
            param_hint=option,
        )
    return ms
