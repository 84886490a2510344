"""`kafkacore perf`: what things cost on this machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kafkacore.cli import perf_clients, purgatory_load, timer_cases
from kafkacore.cli.options import Failure, Json, print_json
from kafkacore.cli.purgatory_load import Load
from kafkacore.cli.terminal import console, messages

app = typer.Typer(name="perf", help="Measure clients, a cluster, and timers.", no_args_is_help=True)

COLUMNS = {
    "add_ns": "add",
    "cancel_ns": "cancel oldest",
    "cancel_random_ns": "cancel any",
    "expire_ns": "expire and call",
    "bytes": "bytes",
}
PLOTTED = ("add_ns", "cancel_ns", "expire_ns", "bytes")


@app.callback()
def perf() -> None:
    """Measure clients, a cluster, and timers."""


def sizes_of(text: str) -> list[int]:
    """ "1e3,1e5" as numbers."""
    try:
        sizes = [int(float(word)) for word in text.split(",") if word.strip()]
    except (ValueError, OverflowError):
        sizes = []
    if not sizes or min(sizes) < 10 or max(sizes) > 10**8:
        raise typer.BadParameter(f"{text!r} is not a list of numbers from 10 to 1e8, such as 1e3,1e5", param_hint="--sizes")
    return sizes


def run_case(kind: str, outstanding: int) -> dict[str, Any] | None:
    """One kind of timers in a process of its own; None if it needs a package that is not there.

    Raises:
        Failure: it ended badly.
    """
    if kind == "uvloop":
        try:
            import uvloop  # noqa: F401
        except ImportError:
            return None
    # The child finds the package where this process found it, and nothing in the working directory (-P, CWE-426).
    command = [sys.executable, "-P", "-m", "kafkacore.cli.timer_cases", kind, str(outstanding)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(directory or os.getcwd() for directory in sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise Failure(f"{kind} with {outstanding:,} timers failed: {last}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(sizes: list[int], visible: bool) -> list[dict[str, Any]]:
    """Every kind at every size it can do: the medians."""
    rows = []
    with messages.status("measuring", spinner="dots") if visible and messages.is_terminal else _Silent() as status:
        for outstanding in sizes:
            for kind in timer_cases.KINDS:
                if outstanding > timer_cases.limit(kind):
                    continue
                if status is not None:
                    status.update(f"{kind}, {outstanding:,} timers")
                result = run_case(kind, outstanding)
                if result is not None:
                    medians = {name: statistics.median(result[name]) for name in COLUMNS if name != "bytes"}
                    rows.append({"kind": kind, "outstanding": outstanding, **medians, "bytes": result["bytes"]})
    return rows


class _Silent:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def plot_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """A PNG: cost by number of timers, a line a kind."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise Failure("--plot needs matplotlib (pip install matplotlib)") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    for axis, name in zip(axes.flat, PLOTTED, strict=True):
        for kind in kinds:
            points = [(row["outstanding"], row[name]) for row in rows if row["kind"] == kind]
            xs, ys = zip(*points, strict=True)
            axis.plot(xs, ys, marker="o", label=kind, linewidth=2.5 if kind == "wheel" else 1.2, linestyle="-" if "heel" in kind else "--")
        axis.set(xscale="log", yscale="log", xlabel="timers outstanding", title=COLUMNS[name])
        axis.set_ylabel("bytes per timer" if name == "bytes" else "ns of CPU per timer")
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def show(rows: list[dict[str, Any]], purgatory: dict[str, Any], load: Load) -> None:
    """Tables for people."""
    table = Table(title="Timers: ns of CPU per timer; bytes with their handles", title_justify="left")
    table.add_column("timers", justify="right")
    table.add_column("kind", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    last = None
    for row in rows:
        first = row["outstanding"] != last
        if first and last is not None:
            table.add_section()
        last = row["outstanding"]
        figures = [f"{row[name]:,.0f}" if row[name] >= 10 else f"{row[name]:.1f}" for name in COLUMNS]
        table.add_row(f"{last:,}" if first else "", row["kind"], *figures)
    console.print(table)
    table = Table(title=f"Purgatory: {load.keys} keys of {load.key_space} an operation", title_justify="left", show_header=False)
    arriving = f"p50 {load.pct50_ms:g} ms, p75 {load.pct75_ms:g} ms, timeout {load.timeout_ms} ms"
    table.add_row(f"{load.rate:,.0f} operations/s arrive ({arriving})", f"{purgatory['cpu_ns']:,.0f} ns of CPU each")
    table.add_row("open at most, expired", f"{purgatory['peak']:,}, {purgatory['expired']:,} of {load.num:,}")
    table.add_row("load of one core", f"{purgatory['cpu_share']:.1%}")
    table.add_row("saturated at", f"{purgatory['saturation']:,.0f} operations/s")
    table.add_row("watched, and completed by an event", f"{purgatory['events']:,.0f} operations/s")
    console.print(table)


@app.command("timers")
def timers(
    num: Annotated[int, typer.Option("--num", min=1, help="Operations through the purgatory.")] = 100_000,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Operations that arrive in a second.")] = 100_000,
    timeout: Annotated[int, typer.Option("--timeout", min=1, metavar="MS", help="When an operation expires.")] = 200,
    pct50: Annotated[float, typer.Option("--pct50", min=0.001, metavar="MS", help="Half of the operations complete in this time.")] = 20,
    pct75: Annotated[float, typer.Option("--pct75", min=0.001, metavar="MS", help="Three quarters complete in this time.")] = 60,
    keys: Annotated[int, typer.Option("--keys", min=1, help="Keys an operation is watched under.")] = 3,
    key_space: Annotated[int, typer.Option("--key-space", min=1, help="Different keys.")] = 100,
    sizes: Annotated[str, typer.Option("--sizes", metavar="N,N,...", help="Timers outstanding.")] = "1e3,1e5",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Draw cost by number of timers.")] = None,
    as_json: Json = False,
) -> None:
    """What a timer costs in the wheel, in heapq, sched, asyncio and uvloop; and the load of Kafka's TestPurgatoryPerformance.

    Kinds that cannot finish in reasonable time or memory with that many timers are left out.
    """
    if pct75 < pct50:
        raise typer.BadParameter("must not be below --pct50", param_hint="--pct75")
    outstanding = sizes_of(sizes)
    rows = measure(outstanding, visible=not as_json)
    load = Load(num, rate, timeout, pct50, pct75, keys, key_space)
    outcome = purgatory_load.run_load(load)
    saturation, _ = purgatory_load.saturation(load)
    purgatory = {
        **outcome.__dict__,
        "cpu_share": outcome.cpu_ns * rate / 1e9,
        "saturation": saturation,
        "events": 1e9 / purgatory_load.run_events(load),
    }
    if plot is not None:
        plot_rows(rows, plot)
    if as_json:
        print_json({"timers": rows, "purgatory": {"load": load.__dict__, **purgatory}, "plot": str(plot) if plot else None})
        return
    show(rows, purgatory, load)
    if plot is not None:
        console.print(f"plot: {plot}")


app.command("produce")(perf_clients.produce)
app.command("consume")(perf_clients.consume)
