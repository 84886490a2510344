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


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
@pytest.mark.parametrize("rooms", [pytest.param(rooms, marks=() if "timers" in rooms else pytest.mark.night) for rooms in TABLES])
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
def test_reading_in_a_group_is_measured_for_every_client(tmp_path: Path) -> None:
    plot = tmp_path / "consumer.png"
    tables = quick("consumer", "--only", "null,own", "--plot", str(plot), needs=("confluent_kafka", "aiokafka", "kafka"))
    assert [table["title"].rpartition("from ")[2] for table in tables] == ["the null broker", "kafkacore's broker"]
    cases = ["kafkacore poll(500)", "kafkacore poll_batch()", "confluent consume(500)", "aiokafka getmany(500)", "kafka-python poll(500)"]
    for table in tables:
        assert list(table["rows"]) == list(table["goals"]) == ["1 partition", "4 partitions"]
        assert all(list(row) == cases for row in table["rows"].values())
        assert all(list(goals) == cases[:2] for goals in table["goals"].values())
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.night
@pytest.mark.slow
@compiles
def test_polls_for_few_records_are_measured() -> None:
    (table,) = quick("consumer", "--only", "polls")
    calls = ("poll(1)", "poll(10)", "poll(100)", "for loop")
    assert {label: list(row) for label, row in table["rows"].items()} == {
        f"{call}, {where}": BOTH for where in ("without one", "in a group") for call in calls
    }


@pytest.mark.night
@pytest.mark.slow
def test_requests_of_idle_members_are_counted() -> None:
    requests, cpu = quick("consumer", "--only", "idle")
    for protocol in ("classic", "consumer"):
        assert {client: requests["rows"][f"{protocol}, all"][client]["median_ns"] > 0 for client in BOTH} == dict.fromkeys(BOTH, True)
        assert list(cpu["rows"][protocol]) == BOTH


@pytest.mark.night
@pytest.mark.slow
def test_latency_is_measured_for_every_pair_of_clients() -> None:
    (table,) = quick("latency")
    assert list(table["rows"]) == [f"linger {linger_ms} ms, {rank}" for linger_ms in (0, 5) for rank in ("p50", "p99")]
    for row in table["rows"].values():
        assert list(row) == [*BOTH, "kafkacore to confluent", "confluent to kafkacore"]


@pytest.mark.night
@pytest.mark.slow
def test_transactions_are_measured_beside_plain_records_for_both_clients(tmp_path: Path) -> None:
    cpu, wall, commit, record, alone = quick("transactions", "--plot", str(tmp_path / "transactions.png"))
    clients = ["kafkacore send()", "kafkacore send_many()", "confluent produce()"]
    assert list(cpu["rows"]) == list(wall["rows"]) and len(commit["rows"]) == 2 * len(cpu["rows"])
    assert all(list(row) == clients for table in (cpu, wall, commit) for row in table["rows"].values())
    assert all(list(row) == ["plain", "transactions"] for row in record["rows"].values())
    assert commit["goals"] and record["goals"] and list(alone["rows"]) == ["over kafkacore's connection"]
    assert (tmp_path / "transactions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [*(pytest.param(name, marks=pytest.mark.night) for name in ("eager", "cooperative")), "KIP-848"])
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


def test_the_log_must_hold_each_record_of_a_measured_transaction_once(bench: Any) -> None:
    pytest.importorskip("confluent_kafka")
    markers_fit = bench("transactions").markers_fit
    assert markers_fit("plain", 0, 3)
    assert not markers_fit("plain", 1, 3)  # a record twice, or one lost
    assert not markers_fit("plain", -1, 3)
    assert [markers_fit("transactions", markers, 3) for markers in (2, 3, 12, 13)] == [False, True, True, False]
    assert bench("transactions").timing([4000.0, 1000.0, 3000.0, 2000.0], 1e3, 0.99).median_ns == 4.0


def test_goals_of_transactions_compare_the_figures_they_name(bench: Any) -> None:
    pytest.importorskip("confluent_kafka")
    transactions = bench("transactions")

    def figures(cpu_ns: float, end_ns: float) -> dict[str, list[float]]:
        return {"cpu_ns": [cpu_ns], "wall_ns": [1e6], "end_ns": [end_ns]}

    def verdicts(transactional_cpu_ns: float, end_ns: float) -> tuple[set[bool], set[bool]]:
        ours = {"plain": figures(1e6, 1e3), "transactions": figures(transactional_cpu_ns, end_ns)}
        theirs = {"plain": figures(1e6, 1e3), "transactions": figures(1e6, 2e6)}
        clients = {name: theirs if name == transactions.THEIRS else ours for name in transactions.CLIENTS}
        _, _, commit, record, _ = transactions.tables_of("a broker", {10_000: clients}, [1e4])
        goals = [{verdict.held for row in table.goals.values() for verdict in row.values()} for table in (commit, record)]
        return goals[0], goals[1]

    assert verdicts(1.05e6, 2e6) == ({True}, {True})
    assert verdicts(1.06e6, 1.9e6) == ({True}, {False})
    assert verdicts(0.9e6, 2.1e6) == ({False}, {True})


def test_goals_of_growth_are_judged_by_the_first_row_the_limit_and_the_rival(bench: Any) -> None:
    goals = bench("scale_table")
    for goal, held, missed in (
        (goals.AtMost(60), 60, 61),
        (goals.KeepsRate(0.8), 125, 126),
        (goals.Times(2), 200, 201),
        (goals.FasterThan("rival", 3), 10, 11),
    ):
        assert goal.judge(held, 100, {"rival": 30})[1], goal
        assert not goal.judge(missed, 100, {"rival": 30})[1], goal


def test_a_table_tells_of_each_goal_whether_it_is_held_beside_the_figures(bench: Any) -> None:
    harness = bench("harness")
    table = harness.Table("t")
    table.add("few", {"a": harness.Timing(1, 1), "b": harness.Timing(2, 2)})
    table.add("many", {"a": harness.Timing(3, 3), "b": harness.Timing(9, 9)})
    table.goals["many"] = {"a": harness.Verdict("goal <= 5", True), "b": harness.Verdict("goal <= 5", False)}
    few, many = table.text().splitlines()[-2:]
    assert "goal" not in few
    assert many.endswith("  a: goal <= 5: held  b: goal <= 5: MISSED")
    table.add("long" * 40, {"a": harness.Timing(1, 1), "b": harness.Timing(1, 1)})  # the cases are put below each other now
    lines = [line for line in table.text().splitlines() if line.startswith("many")]
    assert [line.partition("goal")[2] for line in lines] == [" <= 5: held", " <= 5: MISSED"]
