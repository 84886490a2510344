"""Fair comparisons on a noisy machine, shared by the scripts in this folder.

Cases of one comparison run interleaved, round after round, so that a slow moment of the machine hits all of them. Time is this
thread's CPU time (or the process's, or the wall clock, where work is done by other threads). Figures are the median and the best of
the rounds; ratios compare medians of the same run. The loop around a call is measured too and taken off.

A script makes a Table, calls run_cases() for each row, and ends with report().
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

CLOCKS = {"thread": time.thread_time_ns, "process": time.process_time_ns, "wall": time.perf_counter_ns}
ROUND_NS = 4_000_000
WIDEST = 130
"""Characters of a table beside which its cases are put below each other."""


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per call."""

    median_ns: float
    best_ns: float


def repeat(fn: Callable[..., object], *args: object) -> Callable[[int], None]:
    """A case for run_cases() that calls fn(*args) n times."""

    def case(n: int) -> None:
        for _ in range(n):
            fn(*args)

    return case


def _empty_loop(n: int) -> None:
    for _ in range(n):
        pass


def run_cases(
    cases: dict[str, Callable[[int], None]], *, rounds: int = 15, clock: str = "thread", round_ns: int = ROUND_NS, units: int = 1
) -> dict[str, Timing]:
    """Times the cases against each other.

    Args:
        cases: name to a callable that does its work n times.
        rounds: how often each case is timed.
        clock: "thread", "process" or "wall".
        round_ns: about how long one timing lasts; it sets n.
        units: pieces of work (values, records) in one call; the result is per piece.

    Returns:
        Nanoseconds per piece, by name.
    """
    now = CLOCKS[clock]
    counts = {}
    for name, case in cases.items():
        n = 1
        while True:
            start = now()
            case(n)
            spent = now() - start
            if spent * 4 > round_ns or n >= 1 << 24:
                break
            n *= 2
        counts[name] = max(1, int(n * round_ns / max(spent, 1)))
    samples: dict[str, list[float]] = {name: [] for name in cases}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            start = now()
            _empty_loop(10_000)
            loop_ns = (now() - start) / 10_000
            for name, case in cases.items():
                start = now()
                case(counts[name])
                samples[name].append(max((now() - start) / counts[name] - loop_ns, 0.01) / units)
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(statistics.median(s), min(s)) for name, s in samples.items()}


@dataclass(frozen=True)
class Verdict:
    """What was found beside a goal, the goal in it, and whether the goal is held."""

    found: str
    held: bool

    def __str__(self) -> str:
        return f"{self.found}: {'held' if self.held else 'MISSED'}"


@dataclass
class Table:
    """Rows of timings of the same cases; the first case is the one that the others are compared with.

    Attributes:
        title: heading.
        unit: of the timings.
        rows: timings by label and case.
        goals: what is said of rows that have a goal, by label and case.
    """

    title: str
    unit: str = "ns"
    rows: dict[str, dict[str, Timing]] = field(default_factory=dict)
    goals: dict[str, dict[str, Verdict]] = field(default_factory=dict)

    def add(self, label: str, timings: dict[str, Timing]) -> None:
        self.rows[label] = timings

    def text(self) -> str:
        names = list(dict.fromkeys(name for timings in self.rows.values() for name in timings))
        head = ["", *names, *(f"{name} / {names[0]}" for name in names[1:])]
        lines = [head]
        for label, timings in self.rows.items():
            base = timings[names[0]].median_ns
            times = [_number(timings[name].median_ns) if name in timings else "-" for name in names]
            ratios = [f"{timings[name].median_ns / base:.2f}" if name in timings and base else "-" for name in names[1:]]
            lines.append([label, *times, *ratios])
        remarks = ["", *map(self._goals_of, self.rows)]
        if sum(max(len(line[i]) for line in lines) + 2 for i in range(len(head))) > WIDEST:
            lines = [["", "", self.unit, f"/ {names[0]}"]]
            remarks = ["", *(self._goals_of(label, name) for label, timings in self.rows.items() for name in timings)]
            for label, timings in self.rows.items():
                base = timings[names[0]].median_ns
                lines += [[label, name, _number(t.median_ns), f"{t.median_ns / base:.2f}" if base else "-"] for name, t in timings.items()]
        texts = 1 if lines[0] is head else 2
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

        def aligned(line: list[str]) -> str:
            left = [cell.ljust(width) for cell, width in zip(line[:texts], widths, strict=False)]
            return "  ".join([*left, *(cell.rjust(width) for cell, width in zip(line[texts:], widths[texts:], strict=True))])

        text = [aligned(line) + remark for line, remark in zip(lines, remarks, strict=True)]
        return "\n".join([f"{self.title} ({self.unit}, medians)", *text])

    def _goals_of(self, label: str, only: str | None = None) -> str:
        """What is said of a row, or of one case of it, to stand behind its figures; of several cases by name."""
        goals = {case: verdict for case, verdict in self.goals.get(label, {}).items() if only in (None, case)}
        return "".join(f"  {f'{case}: ' if len(goals) > 1 else ''}{verdict}" for case, verdict in goals.items())


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": git.stdout.strip() or None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def arguments(description: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options that every script has: --json and --rounds."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    add_arguments(parser)
    return parser.parse_args(argv)


def add_arguments(parser: argparse.ArgumentParser, rounds: int = 15) -> None:
    """Adds --json and --rounds to a script's own options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"timings of each case (default {rounds})")


def headline() -> str:
    """The machine and the commit, in a line."""
    return " · ".join(str(v) for v in machine().values())


def plot(tables: Sequence[Table], path: Path) -> None:
    """Draws a chart a table into a PNG: a group of bars a row, a bar a case."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(8 * columns, 4.5 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, table in zip(axes.flat, tables, strict=False):
        names = list(dict.fromkeys(name for timings in table.rows.values() for name in timings))
        width = 0.8 / len(names)
        for nth, name in enumerate(names):
            bars = [(at, timings[name].median_ns) for at, timings in enumerate(table.rows.values()) if name in timings]
            axis.bar([at + (nth - (len(names) - 1) / 2) * width for at, _ in bars], [value for _, value in bars], width, label=name)
        axis.set_xticks(range(len(table.rows)), list(table.rows), rotation=20, ha="right", fontsize=8)
        axis.set_ylabel(table.unit)
        axis.set_yscale("symlog")
        axis.set_title(table.title, fontsize=9)
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report(tables: Sequence[Table], *, as_json: bool) -> None:
    """Prints the tables for people, or one JSON document with the machine and the commit."""
    if as_json:
        data = {
            "machine": machine(),
            "tables": [
                {
                    "title": t.title,
                    "unit": t.unit,
                    "rows": {k: {n: asdict(v) for n, v in row.items()} for k, row in t.rows.items()},
                    **({"goals": {k: {n: asdict(v) for n, v in row.items()} for k, row in t.goals.items()}} if t.goals else {}),
                }
                for t in tables
            ],
        }
        json.dump(data, sys.stdout, indent=1)
        print()
        return
    print(headline())
    for table in tables:
        print()
        print(table.text())
