"""How work grows with partitions, topics, members, connections and timers, in the clients and in the broker.

    python bench/scale.py [--json] [--rounds N] [--quick] [--only producer,consumer.three,...] [--against CHECKOUT] [--plot PNG]

Every row is measured in a process of its own, so that the collector does not walk what other rows hold. The rows of a table take turns,
round after round, so goals that compare two rows compare figures of the same run; a figure is the median of the rounds. With --against the
rows of another checkout (built in place) take turns with them. Costs are CPU time of a thread or process with the garbage collector on;
latencies are wall-clock time. Each row that has a goal prints it, and whether it is held. Goals judge, they do not fail: the exit status is
0 whether they are held or not.

--quick takes small rows, once each: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nullbroker
import scale_broker
import scale_clients
import scale_timers
from harness import Table, Timing, Verdict, add_arguments, report
from scale_table import Figures, Growth, Sample

HERE = Path(__file__).resolve().parent
TABLES: dict[str, Growth] = {each.name: each for each in (*scale_clients.TABLES, *scale_broker.TABLES, *scale_timers.TABLES)}
OURS, THEIRS = "kafkacore", "against"


# ---- the process that measures a row


def work(name: str, size: int, quick: bool) -> None:
    """Measures a row of a table: a sample, as a JSON object, for every line on stdin. A row that is measured alone is closed in between."""
    growth = TABLES[name]
    with contextlib.ExitStack() as opened:
        sample: Sample | None = None
        for _ in sys.stdin:
            if sample is None:
                sample = opened.enter_context(growth.open(size, quick))
            gc.collect()
            print(json.dumps(sample()), flush=True)
            if growth.alone:
                opened.close()
                sample = None


class Worker:
    """A process that measures one row with the kafkacore of one checkout."""

    def __init__(self, checkout: Path, name: str, size: int, quick: bool) -> None:
        command = [sys.executable, str(HERE / "scale.py"), "--work", name, str(size), *(["--quick"] if quick else [])]
        # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the case that is measured
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
        self._what = f"{name}, {size}, of {checkout}"
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def figures(self) -> Figures:
        """One sample of the row.

        Raises:
            SystemExit: the process has ended; its error is on stderr.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._what}: the process ended with status {self._process.wait()}")
        figures: Figures = json.loads(line)
        return figures

    def close(self) -> None:
        """Ends the process, and with it all that it has started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- the process that asks


def measure(growth: Growth, checkouts: dict[str, Path], rounds: int, quick: bool) -> Table:
    """Measures a table: round after round each row, and of each row the checkouts by turns."""
    sizes = growth.quick if quick else growth.sizes
    rounds = 1 if quick else min(rounds, growth.rounds)
    samples: dict[int, dict[str, dict[str, list[float]]]] = {size: {} for size in sizes}  # size -> part -> case -> figures
    with contextlib.ExitStack() as stack:
        workers = {
            (size, case): stack.enter_context(Worker(path, growth.name, size, quick)) for size in sizes for case, path in checkouts.items()
        }
        for number in range(rounds):
            for (size, case), worker in workers.items():
                progress(f"{growth.name}, round {number + 1}/{rounds}: {growth.label(size, '')}, {case}")
                for part, figure in worker.figures().items():
                    samples[size].setdefault(part, {}).setdefault(case, []).append(figure)
    return table_of(growth, samples)


def table_of(growth: Growth, samples: dict[int, dict[str, dict[str, list[float]]]]) -> Table:
    """Medians, and what the goals say of them."""
    table = Table(growth.title, growth.unit)
    medians = {
        (size, part, case): statistics.median(figures)
        for size, parts in samples.items()
        for part, cases in parts.items()
        for case, figures in cases.items()
    }
    first = next(iter(samples))
    for size, parts in samples.items():
        for part, cases in parts.items():
            label = growth.label(size, part)
            table.add(label, {case: Timing(medians[size, part, case], min(figures)) for case, figures in cases.items()})
            goal = growth.goals.get((size, part))
            for case in cases if goal is not None else ():
                others = {other: medians[size, other, case] for other in parts}
                found, held = goal.judge(medians[size, part, case], medians.get((first, part, case), 0.0), others)
                table.goals.setdefault(label, {})[case] = Verdict(found, held)
    return table


def progress(text: str) -> None:
    """Says what is being measured: in one line of a terminal that changes, else in lines."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def plot(tables: list[tuple[Growth, Table]], path: Path) -> None:
    """Draws a chart a table into a PNG: the figures by size, a line a part and checkout."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(6 * columns, 4 * rows), layout="constrained", squeeze=False)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, (growth, table) in zip(axes.flat, tables, strict=False):
        lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for (size, part), label in labels(growth).items():
            for case, timing in table.rows.get(label, {}).items():
                lines.setdefault((part, case), []).append((size, timing.median_ns))
        for number, ((part, case), points) in enumerate(lines.items()):
            style = "--" if case == THEIRS else "-"
            color = f"C{number // len({case for _, case in lines})}"
            xs, ys = zip(*points, strict=True)
            axis.plot(xs, ys, marker="o", linestyle=style, color=color, label=", ".join(word for word in (part, case) if word))
        axis.set(xscale="log", xlabel=growth.noun, ylabel=growth.unit)
        axis.set_yscale("symlog" if any(y <= 0 for points in lines.values() for _, y in points) else "log")
        axis.set_title(growth.title, fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def labels(growth: Growth) -> dict[tuple[int, str], str]:
    """The labels that rows of this table may have, by size and part."""
    return {(size, part): growth.label(size, part) for size in {*growth.sizes, *growth.quick} for part in growth.parts}


def chosen(words: str, parser: argparse.ArgumentParser) -> Iterator[Growth]:
    """The tables that --only names: all of a room, or one by its full name."""
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    known = {*TABLES, *(each.room for each in TABLES.values())}
    if unknown := sorted(set(wanted) - known):
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return (each for each in TABLES.values() if not wanted or each.name in wanted or each.room in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--quick", action="store_true", help="small rows, once each: does the bench run?")
    parser.add_argument("--only", default="", help="some rooms or tables, with commas: " + ", ".join(TABLES))
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, its extensions built, measured by turns")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    parser.add_argument("--work", nargs=2, metavar=("TABLE", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], int(options.work[1]), options.quick)
        return
    checkouts = {OURS: HERE.parent}
    if options.against is not None:
        if not (options.against / "kafkacore" / "__init__.py").exists():
            parser.error(f"--against: {options.against} is no checkout of kafkacore")
        checkouts[THEIRS] = options.against.resolve()
    wanted = list(chosen(options.only, parser))
    if any(each.room == "producer" for each in wanted):
        os.environ["NULLBROKER"] = str(nullbroker.binary())  # compiled here for all rows
    tables = [(growth, measure(growth, checkouts, options.rounds, options.quick)) for growth in wanted]
    progress("")
    if options.plot:
        plot(tables, options.plot)
    report([table for _, table in tables], as_json=options.json)


if __name__ == "__main__":
    main()
