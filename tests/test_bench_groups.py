"""The benchmarks of consumer groups still run, and their arithmetic holds: once each, small, without Java."""

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
BOTH = ["kafkacore", "confluent"]
MS = 1_000_000


def quick(script: str, *options: str) -> Any:
    pytest.importorskip("confluent_kafka")
    command = [sys.executable, str(BENCH / f"{script}.py"), "--quick", "--json", *options]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)["tables"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("confluent_kafka")
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.mark.slow
def test_reading_in_a_group_is_measured_for_every_client(tmp_path: Path) -> None:
    pytest.importorskip("aiokafka")
    pytest.importorskip("kafka")
    if shutil.which(COMPILER) is None:
        pytest.skip("the null broker needs a C compiler")
    tables = quick("consumer", "--only", "null,own", "--plot", str(tmp_path / "consumer.png"))
    assert [table["title"].rpartition("from ")[2] for table in tables] == ["the null broker", "kafkacore's broker"]
    cases = ["kafkacore poll(500)", "kafkacore poll_batch()", "confluent consume(500)", "aiokafka getmany(500)", "kafka-python poll(500)"]
    for table in tables:
        assert list(table["rows"]) == list(table["goals"]) == ["1 partition", "4 partitions"]
        for label, row in table["rows"].items():
            assert list(row) == cases
            assert all(timing["median_ns"] > 0 for timing in row.values())
            assert list(table["goals"][label]) == cases[:2]
    assert (tmp_path / "consumer.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_polls_for_few_records_are_measured() -> None:
    if shutil.which(COMPILER) is None:
        pytest.skip("the null broker needs a C compiler")
    (table,) = quick("consumer", "--only", "polls")
    calls = ("poll(1)", "poll(10)", "poll(100)", "for loop")
    assert list(table["rows"]) == [f"{call}, {where}" for where in ("without one", "in a group") for call in calls]
    for row in table["rows"].values():
        assert list(row) == BOTH
        assert all(timing["median_ns"] > 0 for timing in row.values())


@pytest.mark.slow
def test_requests_of_idle_members_are_counted() -> None:
    requests, cpu = quick("consumer", "--only", "idle")
    for protocol in ("classic", "consumer"):
        assert {client: requests["rows"][f"{protocol}, all"][client]["median_ns"] > 0 for client in BOTH} == dict.fromkeys(BOTH, True)
        assert list(cpu["rows"][protocol]) == BOTH


@pytest.mark.slow
def test_latency_is_measured_for_every_pair_of_clients() -> None:
    (table,) = quick("latency")
    assert list(table["rows"]) == [f"linger {linger_ms} ms, {rank}" for linger_ms in (0, 5) for rank in ("p50", "p99")]
    for row in table["rows"].values():
        assert list(row) == [*BOTH, "kafkacore to confluent", "confluent to kafkacore"]
        assert all(timing["median_ns"] >= timing["best_ns"] > 0 for timing in row.values())


@pytest.mark.slow
def test_transactions_are_measured_beside_plain_records_for_both_clients(tmp_path: Path) -> None:
    cpu, wall, commit, record, alone = quick("transactions", "--plot", str(tmp_path / "transactions.png"))
    clients = ["kafkacore send()", "kafkacore send_many()", "confluent produce()"]
    sizes = ["1 record", "100 records", "10,000 records", "100,000 records"]
    for table in (cpu, wall):
        assert list(table["rows"]) == sizes
    assert list(commit["rows"]) == [f"{size}, {rank}" for size in sizes for rank in ("p50", "p99")]
    assert [list(goals) for goals in commit["goals"].values()] == [clients[:2]] * len(sizes)
    assert list(alone["rows"]) == ["over kafkacore's connection"]
    for table in (cpu, wall, commit):
        assert all(list(row) == clients for row in table["rows"].values())
        assert all(timing["median_ns"] >= timing["best_ns"] > 0 for row in table["rows"].values() for timing in row.values())
    assert {label: list(row) for label, row in record["rows"].items()} == {
        f"{size}, {client}": ["plain", "transactions"] for size in sizes for client in clients
    }
    assert list(record["goals"]) == [f"{size}, {client}" for size in sizes[2:] for client in clients[:2]]
    assert (tmp_path / "transactions.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["eager", "cooperative", "KIP-848"])
def test_gaps_of_changing_groups_are_measured(protocol: str) -> None:
    (table,) = quick("churn", "--only", protocol)
    assert table["title"].startswith(f"{protocol}: ")
    assert list(table["rows"]) == [f"{what}, {rank}" for what in ("all gaps", "longest gap") for rank in ("p50", "p99", "max")]
    for row in table["rows"].values():
        assert list(row) == [*BOTH, "no group"]


def test_a_gap_ends_with_a_record_behind_all_before_it(bench: Any) -> None:
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
    markers_fit = bench("transactions").markers_fit
    assert markers_fit("plain", 0, 3)
    assert not markers_fit("plain", 1, 3)  # a record twice, or one lost
    assert not markers_fit("plain", -1, 3)
    assert [markers_fit("transactions", markers, 3) for markers in (2, 3, 12, 13)] == [False, True, True, False]
    assert bench("transactions").timing([4000.0, 1000.0, 3000.0, 2000.0], 1e3, 0.99).median_ns == 4.0


def test_goals_of_transactions_compare_the_figures_they_name(bench: Any) -> None:
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
