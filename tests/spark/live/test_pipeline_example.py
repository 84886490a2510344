"""The example's pipeline by the command line, with late and broken records: the figures of a plain computation."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore.spark.pipeline.running import missing
from tests.spark.live.commands import environment, kafkacore, one


@pytest.fixture(scope="module", autouse=True)
def _needs_spark() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


def test_the_example_counts_as_pandas_does(tmp_path: Path) -> None:
    root = Path(one(kafkacore("init", "flights", "--json", cwd=tmp_path))["project"])
    command = [sys.executable, "-m", "kafkacore", "pipeline", "run", "--continuous", "--pause", "0", "--json"]
    with subprocess.Popen(command, cwd=root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first, second = (json.loads(running.stdout.readline()) for _ in range(2))
        running.send_signal(signal.SIGINT)  # the update that it is in has nothing to read, and ends
        said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    assert (first["update"], first["flows"]["hourly_topic"]["rows"], first["flows"]["hourly_topic"]["behind"]) == (1, first["seeded"], 0)
    assert second["update"] == 2 and second["flows"]["hourly_files"]["late_rows"] > 50

    checked = subprocess.run([sys.executable, "check.py"], cwd=root, env=environment(), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "equal the plain computation" in checked.stdout
    assert (root / "output" / "flights.png").read_bytes().startswith(b"\x89PNG")

    status = one(kafkacore("status", "--json", cwd=root))
    assert status["state"] == "stopped" and status["last_error"] is None
    for name in ("hourly_files", "hourly_topic"):
        flow = status["flows"][name]
        assert flow["rows"] == first["seeded"] + second["seeded"]
        readable = flow["expectations"]["flights.readable"]
        assert (readable["failed"], readable["rows"], readable["action"]) == (3, flow["rows"], "dead_letter")
        assert flow["expectations"]["flights.whole"]["failed"] == 2
        assert flow["expectations"]["flights.departed"]["failed"] > 100
        assert flow["expectations"]["flights.departed"]["rows"] == flow["rows"] - 5


def test_an_empty_project_runs_as_init_says(tmp_path: Path) -> None:
    root = Path(one(kafkacore("init", "mine", "--example", "empty", "--json", cwd=tmp_path))["project"])
    update = one(kafkacore("run", "--json", cwd=root))
    assert (update["seeded"], update["flows"]["output"]["rows"], update["flows"]["output"]["behind"]) == (10, 10, 0)
