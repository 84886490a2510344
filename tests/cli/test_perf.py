"""`kafkacore perf timers`: every kind of timers does what is measured; the load of the purgatory; output for people and machines."""

from __future__ import annotations

import gc
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafkacore.cli import perf, purgatory_load, timer_cases
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
    heap = getattr(timers, "heap", [])
    kept = (lambda: len(timers.heap.heap)) if isinstance(heap, timer_cases.LazyHeap) else lambda: len(timers.heap)
    timers.close()
    timers = timer_cases.KINDS[kind]()
    handles = timers.add([300, 100, 200, 400, 500])
    timers.cancel(handles[1:3])
    assert "heapq" not in kind or kept() == 5  # not yet half of it
    assert timers.expire(1) == 1
    assert "heapq" in kind or getattr(timers, "now_ms", 300) == 300
    timers.cancel(handles[3:4])
    assert "heapq" not in kind or kept() == 2
    timers.cancel(handles[4:])
    assert "heapq" not in kind or kept() == 0
    assert timers.expire(9) == 0
    timers.add([400])
    assert timers.expire(1) == 1
    assert "heapq" in kind or getattr(timers, "now_ms", 700) == (900 if kind == "sched" else 700)
    timers.close()


class Numbered(timer_cases.Timers):
    """Timers whose handles are numbers; only one that is there can be cancelled."""

    made: ClassVar[list[Numbered]] = []

    def __init__(self) -> None:
        self.serial = itertools.count()
        self.live: dict[int, int] = {}
        self.cancelled: list[list[int]] = []
        self.made.append(self)

    def add(self, delays_ms: list[int]) -> list[int]:
        handles = list(itertools.islice(self.serial, len(delays_ms)))
        self.live |= dict(zip(handles, delays_ms, strict=True))
        return handles

    def cancel(self, handles: list[int]) -> None:
        self.cancelled.append([*handles])
        for handle in handles:
            del self.live[handle]

    def expire(self, count: int) -> int:
        done = min(count, len(self.live))
        for handle in [*self.live][:done]:
            del self.live[handle]
        return done


@each_row(
    ("kind", "outstanding", "rounds", "cancels", "repeats", "add_ns", "expire_ns"),
    [
        ("numbered", 7, 2, 3, 20, 2.0, [267.0, 268.0 + 1 / 3]),
        ("numbered", 25_000, 1, 10_000, 4, 0.0006, [81 / 25_000]),
        ("numbered", 1, 5, 1, 20, 6.0, [2001.0]),
        ("sched", 7, 1, 3, 1, 2.0, [21 / 7]),
        ("sched", 3_000, 1, 666, 1, 6 / 666, [21 / 3_000]),
    ],
)
def test_what_is_measured(
    kind: str,
    outstanding: int,
    rounds: int,
    cancels: int,
    repeats: int,
    add_ns: float,
    expire_ns: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a clock that shows the squares, so that each time between two looks is another one."""
    squares = (number * number for number in itertools.count())
    resident = iter((1_000, 1_000 + 50 * outstanding))
    monkeypatch.setattr(timer_cases, "now_ns", lambda: next(squares))
    monkeypatch.setattr(timer_cases, "resident_bytes", lambda: next(resident))
    monkeypatch.setitem(timer_cases.KINDS, kind, Numbered)
    result = timer_cases.measure(kind, outstanding, rounds)
    assert result == {
        "add_ns": [pytest.approx(add_ns)] * rounds,
        "cancel_ns": [pytest.approx(add_ns * 2 / 3)] * rounds,
        "cancel_random_ns": [pytest.approx(add_ns * 2 / 3)] * rounds,
        "expire_ns": pytest.approx(expire_ns),
        "bytes": 50,
    }
    warming, *cancelled = Numbered.made.pop().cancelled
    assert warming == list(range(10)) and {len(each) for each in cancelled} == {cancels}
    oldest, others = cancelled[: rounds * repeats], cancelled[rounds * repeats :]
    assert len(others) == len(oldest) and list(itertools.chain(*oldest)) == list(range(10, 10 + cancels * rounds * repeats))
    assert cancels == 1 or list(itertools.chain(*others)) != sorted(itertools.chain(*others))


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


def words_of(shown: str) -> list[str]:
    """Lines without the borders of tables."""
    return [text for line in shown.splitlines() if (text := " ".join(re.sub("[┃│┏━┳┓┡╇┩├─┼┤└┴┘┌┬┐]", " ", line).split()))]


def test_figures_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    costs = {"add_ns": 9.94, "cancel_ns": 10.0, "cancel_random_ns": 0.06, "expire_ns": 1234.6}
    rows = [{"kind": kind, "outstanding": count, **costs, "bytes": 100 * count} for count in (20, 3_000) for kind in ("wheel", "heapq")]
    purgatory = {"cpu_ns": 1234.6, "peak": 1000, "expired": 2000, "cpu_share": 0.1234, "saturation": 5e6, "events": 6e5}
    perf.show(rows, purgatory, Load(num=3000, rate=5000))
    shown = capsys.readouterr().out
    assert shown.count("├") == 1  # between the sizes
    assert words_of(shown) == [
        "Timers: ns of CPU per timer; bytes with their handles",
        "timers kind add cancel oldest cancel any expire and call bytes",
        "20 wheel 9.9 10 0.1 1,235 2,000",
        "heapq 9.9 10 0.1 1,235 2,000",
        "3,000 wheel 9.9 10 0.1 1,235 300,000",
        "heapq 9.9 10 0.1 1,235 300,000",
        "Purgatory: 3 keys of 100 an operation",
        "5,000 operations/s arrive (p50 20 ms, p75 60 ms, timeout 200 ms) 1,235 ns of CPU each",
        "open at most, expired 1,000, 2,000 of 3,000",
        "load of one core 12.3%",
        "saturated at 5,000,000 operations/s",
        "watched, and completed by an event 600,000 operations/s",
    ]
    assert [line.split("│")[1] for line in shown.splitlines() if "20 │" in line or "│ heapq" in line] == [
        "     20 ",
        "        ",
        "        ",
    ]


def test_medians_of_the_kinds_that_can_do_it(monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    monkeypatch.setattr(timer_cases, "KINDS", dict.fromkeys(("wheel", "heapq", "uvloop"), Numbered))
    monkeypatch.setattr(timer_cases, "LIMITS", {"wheel": 100, "uvloop": 100})
    monkeypatch.setattr(perf, "run_case", lambda kind, size: None if kind == "uvloop" else {name: [5, 1, size] for name in perf.COLUMNS})
    found = perf.measure([20, 100, 10**6, 10**6 + 1], False)
    assert [(row["kind"], row["outstanding"], row["add_ns"], row["bytes"][2]) for row in found] == [
        ("wheel", 20, 5, 20),
        ("heapq", 20, 5, 20),
        ("wheel", 100, 5, 100),
        ("heapq", 100, 5, 100),
        ("heapq", 10**6, 5, 10**6),
    ]
    monkeypatch.setattr(purgatory_load, "run_load", lambda load: purgatory_load.Outcome(50.0, load.num, load.keys))
    monkeypatch.setattr(purgatory_load, "run_events", lambda load: 20.0)
    monkeypatch.setattr(perf, "measure", lambda sizes, visible: [{"sizes": sizes, "visible": visible}])
    shown = cli.json("perf", "timers")
    assert (shown["timers"], shown["plot"]) == ([{"sizes": [1_000, 100_000], "visible": False}], None)
    assert shown["purgatory"]["load"] == Load().__dict__
    assert {name: value for name, value in shown["purgatory"].items() if name != "load"} == {
        "cpu_ns": 50.0,
        "expired": 100_000,
        "peak": 3,
        "cpu_share": 5e-3,
        "saturation": 2e7,
        "events": 5e7,
    }


def test_costs_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn: list[Any] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    rows = [{"kind": kind, "outstanding": n, **dict.fromkeys(perf.COLUMNS, n * 2)} for n in (10, 20) for kind in ("wheel", "sched")]
    perf.plot_rows(rows, tmp_path / "new" / "a.png")
    (figure,) = drawn
    axes = figure.axes
    assert [axis.get_title() for axis in axes] == ["add", "cancel oldest", "expire and call", "bytes"]
    assert [axis.get_ylabel() for axis in axes] == [*["ns of CPU per timer"] * 3, "bytes per timer"]
    assert {(axis.get_xscale(), axis.get_yscale(), axis.get_xlabel()) for axis in axes} == {("log", "log", "timers outstanding")}
    for axis in axes:
        lines = [(line.get_label(), line.get_linestyle(), line.get_linewidth(), line.get_marker()) for line in axis.lines]
        assert lines == [("wheel", "-", 2.5, "o"), ("sched", "--", 1.2, "o")]
        assert {tuple(map(tuple, line.get_xydata())) for line in axis.lines} == {((10, 20), (20, 40))}
        assert (axis.get_legend() is None) == (axis is not axes[0])


@each_row(
    ("words", "said"),
    [
        (["--sizes", "9"], "--sizes"),
        (["--sizes", "10,100000001"], "--sizes"),
        (["--timeout", "0"], "--timeout"),
        (["--rate", "0.5"], "--rate"),
        (["--keys", "0"], "--keys"),
        (["--key-space", "0"], "--key-space"),
        (["--pct50", "0"], "--pct50"),
        (["--pct75", "0"], "--pct75"),
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
