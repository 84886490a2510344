"""Topics to frames and back, beside confluent-kafka with pandas and aiokafka with polars, against the same null broker (nullbroker.c).

    python bench/frames.py [--json] [--rounds N] [--rows N] [--rivals-rows N] [--only read,send]

Rows are JSON objects of four fields. Every case runs in a process of its own and the cases take turns. Rivals may take fewer rows, since
what counts is the rate; their memory grows with the rows, so it is shown for as many as they took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from frames_case import READERS, lines_of, rows
from harness import Table, Timing, Verdict, add_arguments, report
from nullbroker import NullBroker

from kafkacore.records import BatchBuilder

CASE = Path(__file__).parent / "frames_case.py"
TARGETS = {"read": ("polars", "pandas", "DuckDB", "Parquet"), "send": ("polars", "pandas", "polars, keys")}
GOALS = {"read": 15, "send": 10}
BATCH_ROWS = 10_000
FIGURES = {"wall_ns": ("time", "ns a row"), "cpu_ns": ("CPU", "ns a row"), "mb": ("peak memory", "MB")}


def run_case(way: str, client: str, target: str, address: str, count: int) -> dict[str, float]:
    """One case in a fresh process."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(CASE), way, client, target, address, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{client}, {target}: {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def batch() -> bytes:
    """Rows as a record batch."""
    builder = BatchBuilder()
    for value in lines_of(rows(BATCH_ROWS)):
        builder.append(value, timestamp_ms=0)
    return bytes(builder.build())


def tables(way: str, address: str, options: argparse.Namespace) -> list[Table]:
    """What one direction costs: time, CPU and memory."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for target in TARGETS[way]:
            for client in READERS:
                count = options.rows if client == "kafkacore" else options.rivals_rows
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {number + 1}: {way} {target}, {client}", end="", file=sys.stderr, flush=True)
                runs.setdefault((target, client), []).append(run_case(way, client, target, address, count))
    found = []
    for figure, (title, unit) in FIGURES.items():
        count = f"{options.rows:,} rows, rivals {options.rivals_rows:,}"
        table = Table(f"{title}, {'topic -> columns' if way == 'read' else 'frame -> topic'} ({count})", unit)
        for target in TARGETS[way]:
            timings = {}
            for client in READERS:
                values = [each[figure] for each in runs[target, client]]
                timings[client] = Timing(statistics.median(values), min(values))
            table.add(target, timings)
            if figure != "mb":
                times = min(timing.median_ns for name, timing in timings.items() if name != "kafkacore") / timings["kafkacore"].median_ns
                table.goals[target] = {"kafkacore": Verdict(f"{times:.1f} times the faster one, goal {GOALS[way]}", times >= GOALS[way])}
        found.append(table)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_arguments(parser, rounds=3)
    parser.add_argument("--rows", type=int, default=10_000_000, help="for kafkacore")
    parser.add_argument("--rivals-rows", type=int, default=1_000_000, help="for the others")
    parser.add_argument("--only", default="read,send")
    options = parser.parse_args()
    found = []
    with NullBroker(partitions=4, batches={"bench": batch()}) as broker:
        for way in options.only.split(","):
            found += tables(way, broker.address, options)
    report(found, as_json=options.json)


if __name__ == "__main__":
    main()
