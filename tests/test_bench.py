"""The benchmarks of bench/ that need no other client still run: once each, without taking time."""

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

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
COMPILER = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
GUARD_S = 900  # a hang has no end; a busy machine, on which this takes ten times as long, has one
PARTITIONS, TOPICS = ("1 partition", "10 partitions", "100 partitions"), ("1 topic", "10 topics", "100 topics")
READ = ("10 partitions", "100 partitions")
QUICK = {
    "producer": {
        "producer: send() without a key": (PARTITIONS, ("calling thread", "whole process")),
        "producer: send() with 10,000 keys": (PARTITIONS, ("calling thread", "whole process")),
        "producer: send_many(), all defaults": (PARTITIONS, ("columns", "list")),
        "producer: a pass of the Sender, a small record for each topic": (TOPICS, ()),
        "producer: flush() of a small record for each topic, whole process": (TOPICS, ()),
    },
    "consumer": {
        "consumer: poll() of 500 records, poll_batch(); one broker": (READ, ("poll", "poll_batch")),
        "consumer: poll() of 500 records, poll_batch(); three brokers": (READ, ("poll", "poll_batch")),
        "consumer: poll() of 500 records, poll_batch() by a member of a group; three brokers": (READ, ("poll", "poll_batch")),
        "consumer: a record comes to one of the assigned partitions": (READ, ()),
        "consumer: idle, nothing comes": (READ, ()),
    },
    "broker": {
        "broker: acks=all on 3 brokers, wall-clock": (("10 idle partitions", "100 idle partitions"), ("p50", "p99")),
        "broker: idle CPU of 3 brokers": (READ, ()),
        "broker: an empty incremental fetch, owner's thread": (READ, ()),
        "broker: left on the fetch purgatory's lists after 500 empty fetches": (READ, ()),
        "broker: a group heartbeat, owner's thread": (("1 member", "10 members"), ("KIP-848", "classic")),
        "broker: Produce and Fetch beside idle connections": (("1 connection", "10 connections"), ("p50", "owner's thread")),
    },
    "metadata,timers": {
        "metadata: leader hints for every partition of a topic": (PARTITIONS, ()),
        "connection: a frame of small pieces is written": (("100 pieces", "1,000 pieces"), ()),
        "metadata: an answer with topics of 10 partitions": (TOPICS, ("decoded", "taken over", "again")),
        "add a timer: TimerTask, TimerTaskEntry and add; a list and heapq.heappush (collector on)": (
            ("1,000 timers alive", "10,000 timers alive"),
            ("TimerTask", "heapq"),
        ),
    },
}
"""The tables of `bench/scale.py --quick` by room: their rows and the parts of each."""


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
def test_each_piece_runs_once() -> None:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "--benchmark-disable"]
    command = [sys.executable, "-m", "pytest", *options, str(BENCH / "test_pieces.py")]
    done = subprocess.run(command, cwd=BENCH.parent, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def scale(*options: str) -> Any:
    command = [sys.executable, str(BENCH / "scale.py"), "--quick", "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def rows_of(rooms: str) -> dict[str, list[str]]:
    return {
        title: [f"{label}, {part}" if part else label for label in labels for part in parts or ("",)]
        for title, (labels, parts) in QUICK[rooms].items()
    }


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
@pytest.mark.parametrize("rooms", QUICK)
def test_the_bench_of_growth_measures_every_row(rooms: str) -> None:
    if rooms == "producer" and shutil.which(COMPILER) is None:
        pytest.skip("the null broker needs a C compiler")
    tables = scale("--only", rooms)["tables"]
    assert {table["title"]: list(table["rows"]) for table in tables} == rows_of(rooms)
    for table in tables:
        for label, row in table["rows"].items():
            assert list(row) == ["kafkacore"], label
            assert row["kafkacore"]["median_ns"] >= row["kafkacore"]["best_ns"] >= 0, label


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
def test_the_bench_of_growth_measures_two_checkouts_by_turns_and_draws_them(tmp_path: Path) -> None:
    (table,) = scale("--only", "timers.add", "--against", str(ROOT), "--plot", str(tmp_path / "growth.png"))["tables"]
    assert all(list(row) == ["kafkacore", "against"] for row in table["rows"].values())
    assert list(table["goals"]) == [f"{label}, TimerTask" for label in ("1,000 timers alive", "10,000 timers alive")]
    assert all(list(verdicts) == ["kafkacore", "against"] for verdicts in table["goals"].values())
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(GUARD_S + 60)
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason="the null broker needs a C compiler")
def test_the_bench_of_other_clients_names_measures_every_row() -> None:
    pytest.importorskip("kafka", minversion="3.0")
    pytest.importorskip("aiokafka", minversion="0.14")
    pytest.importorskip("confluent_kafka")
    command = [sys.executable, str(BENCH / "compat.py"), "--quick", "--json"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = json.loads(done.stdout)["tables"]
    names = (
        ["kafkacore", "compat.kafka", "kafka-python"],
        ["kafkacore for confluent", "compat.confluent", "confluent-kafka"],
        ["kafkacore.aio", "compat.aiokafka", "aiokafka"],
    )
    for table, columns, rows in zip(tables, names, (5, 5, 6), strict=True):
        assert len(table["rows"]) == len(table["goals"]) == rows
        for row in table["rows"].values():
            assert all(each["median_ns"] > 0 for each in row.values())
            assert list(row) == columns


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


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
