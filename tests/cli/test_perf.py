"""`kafkacore perf timers`: every kind of timers does what is measured; the load of the purgatory; output for people and machines."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore.cli import purgatory_load, timer_cases
from kafkacore.cli.purgatory_load import Load
from tests.kit.commands import Commands
from tests.kit.rows import each_row

ROOT = Path(__file__).resolve().parents[2]


@each_row("kind", [*timer_cases.KINDS])
def test_every_kind_adds_cancels_and_expires_all_in_the_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by class are measured with the collector on and off, which is as it was afterwards."""
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    collecting, found = [], gc.isenabled()
    plain = timer_cases.KINDS[kind]

    class Seen(plain):  # type: ignore[misc]
        def add(self, delays_ms: list[int]) -> object:
            collecting.append(gc.isenabled())
            return super().add(delays_ms)

    with monkeypatch.context() as patch:
        patch.setitem(timer_cases.KINDS, kind, Seen)
        result = timer_cases.measure(kind, 60, rounds=2)
    assert gc.isenabled() == found and set(collecting) == {kind.endswith("gc")}
    assert {len(result[name]) for name in ("add_ns", "cancel_ns", "cancel_random_ns", "expire_ns")} == {2}
    # Not above 0: what an empty loop takes is taken off, and a loaded machine may take longer for that.
    assert all(math.isfinite(ns) for name in ("cancel_ns", "expire_ns") for ns in result[name])
    if kind == "uvloop":  # its loop counts in its own way
        return
    timers = timer_cases.KINDS[kind]()
    handles = timers.add([5, 100, 59_999, 700])
    timers.cancel(handles[1:2])
    assert timers.expire(100) == 3
    assert timers.expire(1) == 0
    timers.close()


def test_the_child_executes_no_file_of_the_working_directory(tmp_path: Path) -> None:
    for module in ("json", "statistics", "kafkacore"):
        (tmp_path / f"{module}.py").write_text('import pathlib; pathlib.Path("executed").touch(); raise SystemExit(1)')
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from kafkacore.cli.perf import run_case; print(sorted(run_case('heapq', 10)))"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not (tmp_path / "executed").exists()
    assert "add_ns" in done.stdout, done.stderr


def test_the_load_is_what_it_says() -> None:
    load = Load(num=4000, rate=10_000, timeout_ms=200, pct50_ms=200, pct75_ms=400, keys=2, key_space=10)
    outcome = purgatory_load.run_load(load)
    assert outcome.expired == pytest.approx(2000, rel=0.1)
    assert outcome.cpu_ns > 0
    # Little: open operations are arrivals per second times the mean time, which is between p25 and the timeout.
    assert 1000 < outcome.peak < 2200
    quick = purgatory_load.run_load(Load(num=4000, rate=10_000, pct50_ms=1, pct75_ms=2))
    assert quick.expired < 40
    assert quick.peak < 200
    few = Load(num=2_000, rate=20_000, timeout_ms=40, keys=1, key_space=3)  # drawn by a seed, on a clock that jumps: always the same
    for load, seed, counts in ((Load(num=3_000, rate=10_000), 1, (234, 497)), (few, 1, (665, 430)), (few, 2, (700, 465))):
        outcome = purgatory_load.run_load(load, seed)
        assert (outcome.expired, outcome.peak) == counts
        assert 100 < outcome.cpu_ns < 1e6  # of an operation, not of all
    assert gc.isenabled()
    assert purgatory_load.run_events(Load(num=500)) > 0
    gc.disable()
    try:
        purgatory_load.run_load(Load(num=50))
        assert 100 < purgatory_load.run_events(Load(num=500)) < 1e6
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert purgatory_load.saturation(Load(num=500), rounds=1)[0] > 1000


def test_tables_json_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    monkeypatch.setattr(timer_cases, "KINDS", {kind: timer_cases.KINDS[kind] for kind in ("wheel", "heapq")})
    short = ["perf", "timers", "--sizes", "20,1e2", "--num", "300", "--rate", "5000"]
    data = cli.json(*short, "--plot", str(tmp_path / "new" / "timers.png"))
    assert [(row["kind"], row["outstanding"]) for row in data["timers"]] == [("wheel", 20), ("heapq", 20), ("wheel", 100), ("heapq", 100)]
    assert all(row[name] > 0 for row in data["timers"] for name in ("cancel_ns", "expire_ns"))
    assert data["purgatory"]["load"]["num"] == 300
    assert data["purgatory"]["saturation"] > 0
    assert (tmp_path / "new" / "timers.png").read_bytes().startswith(b"\x89PNG")
    out = cli(*short)
    assert "heapq" in out and "saturated at" in out
    monkeypatch.setattr(timer_cases, "KINDS", {"sundial": timer_cases.WheelCalls})
    assert "sundial" in cli.fails("perf", "timers", "--sizes", "10")


@each_row(
    ("words", "said"),
    [
        (["--sizes", "many"], "--sizes"),
        (["--sizes", ""], "--sizes"),
        (["--sizes", "1"], "--sizes"),
        (["--sizes", "1e12"], "--sizes"),
        (["--num", "0"], "--num"),
        (["--pct50", "50", "--pct75", "10"], "--pct75"),
    ],
)
def test_bad_options_are_named(words: list[str], said: str, cli: Commands) -> None:
    assert said in cli.fails("perf", "timers", *words, status=2)
