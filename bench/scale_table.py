"""What bench/scale.py measures, as a table: rows that differ in one number, how a row is opened and sampled, and what it should hold."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

Figures = Mapping[str, float]
"""Figure by part of a row. A row of one part has it under ""."""
Sample = Callable[[], Figures]


class Goal(abc.ABC):
    """What a figure should hold. Less is better in all tables, so rates are given as time per record."""

    @abc.abstractmethod
    def judge(self, value: float, first: float, others: Figures) -> tuple[str, bool]:
        """Judges a figure.

        Args:
            value: the row's figure.
            first: the same part's figure in the table's first row.
            others: the row's figures by part.

        Returns:
            What was found beside the goal, and whether the goal is held.
        """


@dataclass(frozen=True)
class AtMost(Goal):
    """A figure is at most `limit`, in the table's unit."""

    limit: float

    def judge(self, value: float, first: float, others: Figures) -> tuple[str, bool]:
        return f"goal <= {self.limit:g}", value <= self.limit


@dataclass(frozen=True)
class KeepsRate(Goal):
    """The rate is at least `share` of the first row's rate."""

    share: float

    def judge(self, value: float, first: float, others: Figures) -> tuple[str, bool]:
        found = first / value
        return f"{found:.0%} of the first row's rate, goal >= {self.share:.0%}", found >= self.share


@dataclass(frozen=True)
class Times(Goal):
    """A figure is at most `limit` times the first row's."""

    limit: float

    def judge(self, value: float, first: float, others: Figures) -> tuple[str, bool]:
        found = value / first
        return f"{found:.1f}x the first row, goal <= {self.limit:g}x", found <= self.limit


@dataclass(frozen=True)
class FasterThan(Goal):
    """Another part of the row takes at least `limit` times as long."""

    rival: str
    limit: float

    def judge(self, value: float, first: float, others: Figures) -> tuple[str, bool]:
        found = others[self.rival] / value
        return f"{found:.1f}x as fast as {self.rival}, goal >= {self.limit:g}x", found >= self.limit


@dataclass(frozen=True)
class Growth:
    """A table of rows by size.

    Attributes:
        name: what `--only` calls it: "room.table".
        title: heading.
        unit: of its figures.
        noun: what the sizes count.
        sizes: rows of a full run.
        quick: rows of a `--quick` run.
        open: opens a row, of a size, full or quick; the context's value takes a sample.
        goals: by (size, part).
        parts: of its rows; a row has one, "", unless they are named here.
        rounds: samples of each row; less than --rounds where a sample is long.
        alone: no other row is open while this row is measured, since open rows would disturb it; each round opens the row again.
    """

    name: str
    title: str
    unit: str
    noun: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    open: Callable[[int, bool], AbstractContextManager[Sample]]
    goals: Mapping[tuple[int, str], Goal] = field(default_factory=dict)
    parts: tuple[str, ...] = ("",)
    rounds: int = 5
    alone: bool = False

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    def label(self, size: int, part: str) -> str:
        """Names a part of a row."""
        noun = self.noun.removesuffix("s") if size == 1 else self.noun
        return f"{size:,} {noun}" + (f", {part}" if part else "")
