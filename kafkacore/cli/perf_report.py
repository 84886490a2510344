"""What `kafkacore perf produce` and `perf consume` say in the end: rates, percentiles, a picture."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from kafkacore.cli.options import Failure
from kafkacore.cli.terminal import console
from kafkacore.plurals import counted

MIB = 1 << 20
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}
INTERVAL_S = 0.25
_BARS = " ▁▂▃▄▅▆▇█"


class Samples:
    """Times in ms, and when each was taken. Another thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: list[tuple[float, float]] = []

    def add(self, ms: float) -> None:
        """A time, taken now."""
        with self._lock:
            self._taken.append((time.monotonic(), ms))

    def summary(self) -> dict[str, float]:
        """Mean, percentiles and the longest, in ms; empty without samples."""
        values = self.since(0.0)[1]
        if not len(values):
            return {}
        shares = np.percentile(values, list(PERCENTILES.values()))
        found = {"mean": float(values.mean()), **dict(zip(PERCENTILES, map(float, shares), strict=True)), "max": float(values.max())}
        return {name: round(ms, 3) for name, ms in found.items()}

    def since(self, start: float) -> tuple[Any, Any]:
        """When the samples were taken, in seconds since `start`, and their values."""
        with self._lock:
            taken = np.array(self._taken, dtype=np.float64).reshape(-1, 2)
        return taken[:, 0] - start, taken[:, 1]

    def __len__(self) -> int:
        return len(self._taken)


class Progress:
    """How many records were done when.

    Args:
        start: when the measurement began, by time.monotonic().
    """

    def __init__(self, start: float) -> None:
        self.start = start
        self.points: list[tuple[float, int]] = [(0.0, 0)]

    def reached(self, records: int, *, last: bool = False) -> bool:
        """So many are done by now; kept a few times a second. Returns True when it was kept."""
        now = time.monotonic() - self.start
        if not last and now - self.points[-1][0] < INTERVAL_S:
            return False
        self.points.append((now, records))
        return True

    def rates(self) -> list[tuple[float, float]]:
        """(seconds since the start, records/s) of each interval."""
        pairs = zip(self.points, self.points[1:], strict=False)
        return [(at, (count - before) / (at - since)) for (since, before), (at, count) in pairs if at > since]


def throughput(records: int, size: int, seconds: float) -> dict[str, Any]:
    """Records, bytes and rates; a MB is 1,048,576 bytes as in Kafka's own tools."""
    seconds = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 6),
        "records_per_s": round(records / seconds, 1),
        "mb_per_s": round(size / seconds / MIB, 3),
    }


def show_rate(result: dict[str, Any], progress: Progress) -> None:
    """The rate in a line, and how it went over the time in another."""
    console.print(
        f"{counted(result['records'], 'record')}, {counted(result['bytes'], 'byte')} in {result['seconds']:.2f} s: "
        f"{result['records_per_s']:,.0f} records/s, {result['mb_per_s']:,.1f} MB/s"
    )
    rates = [rate for _, rate in progress.rates()]
    if len(rates) > 2:
        most = max(rates)
        step = max(1, -(-len(rates) // 60))
        parts = [rates[i : i + step] for i in range(0, len(rates), step)]
        drawn = "".join(_BARS[round(sum(part) / len(part) / most * (len(_BARS) - 1))] if most else " " for part in parts)
        console.print(f"records/s over time, up to {most:,.0f}: {drawn}")


def show_times(what: str, times: dict[str, float]) -> None:
    """Percentiles in a line."""
    if times:
        console.print(f"{what}, ms: " + ", ".join(f"{name.replace('_', '.')} {ms:,.2f}" for name, ms in times.items()))


def plot_run(path: Path, title: str, progress: Progress, samples: Samples, what: str) -> None:
    """A PNG: the rate over time, and the times that were sampled."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise Failure("--plot needs matplotlib (pip install matplotlib)") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 7), layout="constrained", sharex=True)
    if rates := progress.rates():
        above.step(*zip(*rates, strict=True), where="pre")
    above.set(ylabel="records/s", title=title, ylim=(0, None))
    at, values = samples.since(progress.start)
    if len(at):
        below.plot(at, values, ".", markersize=2, alpha=0.4)
        for name, ms in samples.summary().items():
            if name in ("p50", "p99"):
                below.axhline(ms, color="black", linewidth=0.8, linestyle="--")
                below.annotate(f"{name} {ms:,.1f} ms", (0.01, ms), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
        if values.min() > 0:
            below.set_yscale("log")
    below.set(ylabel=f"{what}, ms", xlabel="seconds")
    for axis in (above, below):
        axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
