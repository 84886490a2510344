"""Pipelines by the command line, each command a process of its own: the example with late and broken records, and a flow that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore.spark.pipeline.running import missing
from kafkacore.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
FAILING = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from kafkacore.spark.pipeline import expect_or_fail, kafka_options, topic_sink

spark = SparkSession.active()
topic_sink("out", "TOPIC-out")

@dp.append_flow(target="out", name="out")
@expect_or_fail("short", "length(value) < 5")
def copied():
    found = spark.readStream.format("kafkacore").options(**kafka_options(), subscribe="TOPIC", startingOffsets="earliest").load()
    return found.selectExpr("CAST(value AS STRING) AS value")
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_spark() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


def kafkacore(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafkacore", "pipeline", *arguments]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def one(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command which succeeded printed."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_example_counts_as_pandas_does(tmp_path: Path) -> None:
    root = Path(one(kafkacore("init", "flights", "--json", cwd=tmp_path))["project"])
    first = one(kafkacore("run", "--json", cwd=root))
    assert (first["update"], first["flows"]["hourly_topic"]["rows"], first["flows"]["hourly_topic"]["behind"]) == (1, first["seeded"], 0)

    # The second wave: another process goes on where the first ended, and Ctrl+C ends it when its update is done.
    command = [sys.executable, "-m", "kafkacore", "pipeline", "run", "--continuous", "--json"]
    with subprocess.Popen(command, cwd=root, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        second = json.loads(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    assert second["update"] == 2 and second["flows"]["hourly_files"]["late_rows"] > 50

    checked = subprocess.run([sys.executable, "check.py"], cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=False)
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


def test_a_flow_that_fails_is_one_line_with_the_row(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    for name in ("pipe-fail", "pipe-fail-out"):
        cluster.create_topic(name)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many("pipe-fail", [b"abc", b"too long"])
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "copied.py").write_text(FAILING.replace("TOPIC", "pipe-fail"))
    storage = (tmp_path / "storage").as_uri()
    spec = f"name: failing\nstorage: {storage}\nlibraries: [{{glob: {{include: transformations/**}}}}]\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    done = kafkacore("run", "-b", cluster.bootstrap_servers, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "expectation short of copied does not hold (length(value) < 5)" in line and '{"value":"too long"}' in line
    status = one(kafkacore("status", "--json", cwd=tmp_path))
    assert status["state"] == "failed" and status["last_error"]["flow"] == "out" and "too long" in status["last_error"]["text"]
