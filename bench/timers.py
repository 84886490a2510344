"""Timers: the wheel against heapq, sched, asyncio and uvloop; the load of Kafka's TestPurgatoryPerformance on the purgatory.

    python bench/timers.py [--json] [--rounds N] [--sizes 1e3,1e4,1e5,1e6,1e7] [--plot PNG]

Every kind of timers runs with every number outstanding in a process of its own (kafkacore/cli/timer_cases.py says what is done there), and
they take turns. Left out: the others above 1e6, which take minutes or gigabytes, and TimerTask at 1e7. The purgatory's rows are
nanoseconds of CPU per operation; Kafka's own, written in Scala, was saturated at about 105,000 operations/s in 2015, 9,500 ns each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from harness import Table, Timing, add_arguments, report

from kafkacore.cli import perf, purgatory_load, timer_cases
from kafkacore.cli.purgatory_load import Load

TITLES = {
    "add_ns": ("add a timer", "ns"),
    "cancel_ns": ("cancel the oldest timer", "ns"),
    "cancel_random_ns": ("cancel a timer at random", "ns"),
    "expire_ns": ("expire a timer and call", "ns"),
    "bytes": ("memory of a timer and its handle", "bytes"),
}
LOADS = {"low timeout": Load(pct50_ms=20, pct75_ms=60), "high timeout": Load(pct50_ms=200, pct75_ms=400)}
"""The two cases of Kafka's design page."""


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def timer_tables(sizes: list[int], rounds: int) -> tuple[list[Table], list[dict[str, object]]]:
    tables = {name: Table(title, unit) for name, (title, unit) in TITLES.items()}
    rows: list[dict[str, object]] = []
    for outstanding in sizes:
        runs: dict[str, dict[str, list[float]]] = {}
        for number in range(rounds if outstanding <= 10**6 else 1):
            for kind in timer_cases.KINDS:
                if outstanding > timer_cases.limit(kind):
                    continue
                progress(f"{outstanding:,} timers, round {number + 1}/{rounds}: {kind}")
                result = perf.run_case(kind, outstanding)
                if result is not None:
                    kept = runs.setdefault(kind, {name: [] for name in TITLES})
                    for name in TITLES:
                        kept[name] += result[name] if name != "bytes" else [result[name]]
        for name, table in tables.items():
            table.add(f"{outstanding:,}", {kind: Timing(statistics.median(kept[name]), min(kept[name])) for kind, kept in runs.items()})
        for kind, kept in runs.items():
            rows.append({"kind": kind, "outstanding": outstanding, **{name: statistics.median(kept[name]) for name in TITLES}})
    progress("")
    return list(tables.values()), rows


def purgatory_table(rounds: int) -> Table:
    table = Table("purgatory: 3 keys of 100, Poisson arrivals, log-normal times, timeout 200 ms", "ns per operation")
    for label, load in LOADS.items():
        cases: dict[str, list[float]] = {}
        for number in range(rounds):
            progress(f"purgatory, {label}, round {number + 1}/{rounds}")
            cases.setdefault("watched, completed by an event", []).append(purgatory_load.run_events(load))
            cases.setdefault("100,000/s arrive", []).append(purgatory_load.run_load(load).cpu_ns)
            cases.setdefault("saturated", []).append(1e9 / purgatory_load.saturation(load)[0])
        table.add(label, {name: Timing(statistics.median(samples), min(samples)) for name, samples in cases.items()})
    progress("")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=3)
    parser.add_argument("--sizes", default="1e3,1e4,1e5,1e6,1e7", help="timers outstanding")
    parser.add_argument("--plot", type=Path, help="draw the medians into this PNG")
    options = parser.parse_args()
    tables, rows = timer_tables(perf.sizes_of(options.sizes), options.rounds)
    if options.plot:
        perf.plot_rows(rows, options.plot)
    report([*tables, purgatory_table(options.rounds)], as_json=options.json)


if __name__ == "__main__":
    main()
