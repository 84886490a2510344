"""The benchmarks of bench/ still run, and their arithmetic holds: once each, small, without Java."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
COMPILER = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
GUARD_S = 900  # a hang has no end; a busy machine, on which this takes ten times as long, has one
BOTH = ["kafkacore", "confluent"]
MS = 1_000_000
TABLES = {"producer": 5, "consumer": 5, "broker": 6, "metadata,timers": 4}
"""How many tables `bench/scale.py` has of each room."""
compiles = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="the null broker needs a C compiler")


def quick(script: str, *options: str, needs: tuple[str, ...] = ("confluent_kafka",)) -> Any:
    """The tables of a benchmark that takes no time. Each has rows, and each row figures for the same cases as the others."""
    for module in needs:
        pytest.importorskip(module)
    command = [sys.executable, str(BENCH / f"{script}.py"), "--quick", "--json", *options]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = json.loads(done.stdout)["tables"]
    for table in tables:
        assert table["rows"], table["title"]
        for label, row in table["rows"].items():
            assert row and all(timing["median_ns"] >= timing["best_ns"] >= 0 for timing in row.values()), label
    return tables


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
def test_each_piece_runs_once() -> None:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--benchmark-disable"]
    command = [sys.executable, "-m", "pytest", *options, str(BENCH / "test_pieces.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
@pytest.mark.parametrize("rooms", TABLES)
def test_the_bench_of_growth_measures_every_row(rooms: str) -> None:
    if rooms == "producer" and shutil.which(COMPILER) is None:
        pytest.skip("the null broker needs a C compiler")
    tables = quick("scale", "--only", rooms, needs=())
    assert len({table["title"] for table in tables}) == TABLES[rooms]
    assert all(list(row) == ["kafkacore"] and len(table["rows"]) > 1 for table in tables for row in table["rows"].values())


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
def test_the_bench_of_growth_measures_two_checkouts_by_turns_and_draws_them(tmp_path: Path) -> None:
    (table,) = quick("scale", "--only", "timers.add", "--against", str(ROOT), "--plot", str(tmp_path / "growth.png"), needs=())
    assert all(list(row) == ["kafkacore", "against"] for row in table["rows"].values())
    assert list(table["goals"]) == [f"{label}, TimerTask" for label in ("1,000 timers alive", "10,000 timers alive")]
    assert all(list(verdicts) == ["kafkacore", "against"] for verdicts in table["goals"].values())
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
@compiles
def test_the_bench_of_other_clients_names_measures_every_row() -> None:
    pytest.importorskip("kafka", minversion="3.0")
    pytest.importorskip("aiokafka", minversion="0.14")
    names = (
        ["kafkacore", "compat.kafka", "kafka-python"],
        ["kafkacore for confluent", "compat.confluent", "confluent-kafka"],
        ["kafkacore.aio", "compat.aiokafka", "aiokafka"],
    )
    for table, columns, rows in zip(quick("compat"), names, (5, 5, 6), strict=True):
        assert len(table["rows"]) == len(table["goals"]) == rows
        assert all(list(row) == columns for row in table["rows"].values())


@pytest.mark.night
@pytest.mark.slow
@compiles
@pytest.mark.parametrize(
    ("script", "options", "cases"),
    [
        (
            "consumer",
            ["--only", "null,own"],
            ["kafkacore poll(500)", "kafkacore poll_batch()", "confluent consume(500)", "aiokafka getmany(500)", "kafka-python poll(500)"],
        ),
        ("consumer", ["--only", "polls,idle"], BOTH),
        ("latency", [], [*BOTH, "kafkacore to confluent", "confluent to kafkacore"]),
        ("transactions", [], ["kafkacore send()", "kafkacore send_many()", "confluent produce()"]),
    ],
)
def test_the_other_benches_measure_every_case(tmp_path: Path, script: str, options: list[str], cases: list[str]) -> None:
    plot = tmp_path / "figures.png"
    tables = quick(script, *options, "--plot", str(plot), needs=("confluent_kafka", "aiokafka", "kafka"))
    assert cases in [list(row) for table in tables for row in table["rows"].values()]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.night
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eager", "cooperative", "KIP-848"])
def test_gaps_of_changing_groups_are_measured(protocol: str) -> None:
    (table,) = quick("churn", "--only", protocol)
    assert table["title"].startswith(f"{protocol}: ")
    assert list(table["rows"]) == [f"{what}, {rank}" for what in ("all gaps", "longest gap") for rank in ("p50", "p99", "max")]
    for row in table["rows"].values():
        assert list(row) == [*BOTH, "no group"]


def test_a_gap_ends_with_a_record_behind_all_before_it(bench: Any) -> None:
    pytest.importorskip("confluent_kafka")
    gaps_ms = bench("churn").gaps_ms

    def gaps(*events: tuple[int, int, int]) -> list[list[float]]:
        array = np.array([(ms * MS, partition, offset) for ms, partition, offset in events], np.int64).reshape(-1, 3)
        found: list[list[float]] = gaps_ms(array, 2, 1_000 * MS, 2_000 * MS, 200 * MS)
        return found

    assert gaps() == [[800.0], [800.0]]
    steady = [(ms, 0, ms // 100) for ms in range(900, 2_200, 100)]
    assert gaps(*steady) == [[], [800.0]]
    assert gaps(*reversed([event for event in steady if not 1_200 < event[0] < 1_600])) == [[200.0], [800.0]]
    # the new owner of partition 1 begins again at offset 5: no progress before offset 8
    again = [(1_000, 1, 5), (1_150, 1, 6), (1_300, 1, 7), (1_400, 1, 5), (1_500, 1, 6), (1_600, 1, 7), (1_700, 1, 8), (1_900, 1, 9)]
    assert gaps(*steady, *again) == [[], [200.0]]
