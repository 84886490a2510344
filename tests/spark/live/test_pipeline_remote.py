"""Pipelines on a Connect server that is there already: tables from run to run and computed again, signals, what a flow that fails says."""

from __future__ import annotations

import collections
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkacore import KafkaProducer
from kafkacore.spark.pipeline.running import missing
from kafkacore.testing import EmbeddedCluster
from tests.spark.live.commands import environment, kafkacore, one, refused

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from kafkacore.spark.pipeline import expect_or_drop, expect_or_fail, kafka_options, topic_sink

spark = SparkSession.active()
topic_sink("out", "TOPIC-out")

def source():
    found = spark.readStream.format("kafkacore").options(**kafka_options(), subscribe="TOPIC", startingOffsets="earliest").load()
    return found.selectExpr("CAST(value AS STRING) AS value")
"""
TABLES = """
@dp.table
@expect_or_drop("some", "value <> ''")
def words():
    return source()

@dp.materialized_view
def counts():
    return spark.read.table("words").groupBy("value").count()

@dp.append_flow(target="out", name="out")
def sent():
    return source()
"""
FAILING = """
@dp.append_flow(target="out", name="out")
@expect_or_fail("short", "length(value) < 5")
def copied():
    return source()
"""
SPEC = """
name: words
storage: {}
libraries: [{{glob: {{include: transformations/**}}}}]
configuration: {{spark.sql.pipelines.maxFlowRetryAttempts: "0"}}
"""


class Server(NamedTuple):
    """A Connect server and the directory of its tables."""

    remote: str
    warehouse: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "tests.spark.live.commands", (root / "warehouse").as_uri()]
    with (root / "output").open("wb") as said:
        running = subprocess.Popen(command, cwd=root, env=environment(), stdin=-1, stdout=-1, stderr=said, text=True)
        with running:
            assert running.stdout is not None
            yield Server(f"sc://127.0.0.1:{running.stdout.readline().strip()}", root / "warehouse")


class Pipeline:
    """A project, and what goes into its topic and comes out."""

    def __init__(self, root: Path, cluster: EmbeddedCluster, server: Server, topic: str, flows: str) -> None:
        self._root = root
        self._cluster = cluster
        self._server = server
        self._topic = topic
        (root / "transformations").mkdir()
        (root / "transformations" / "flows.py").write_text(HEAD.replace("TOPIC", topic) + flows)
        (root / "spark-pipeline.yml").write_text(SPEC.format((root / "storage").as_uri()))
        for each in (topic, f"{topic}-out"):
            cluster.create_topic(each)

    def send(self, *values: str) -> None:
        with KafkaProducer(bootstrap_servers=self._cluster.bootstrap_servers) as producer:
            producer.send_many(self._topic, [value.encode() for value in values])

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return kafkacore(*arguments, "--remote", self._server.remote, "-b", self._cluster.bootstrap_servers, "--json", cwd=self._root)

    def run(self, *arguments: str) -> dict[str, int]:
        """An update; the rows that each flow has read, over all of them."""
        return {name: flow["rows"] for name, flow in one(self.call("run", *arguments))["flows"].items()}

    def interrupted(self) -> int:
        """A continuous run in an update that would have no end, since its Kafka never answers, and two signals: its exit code."""
        with socket.create_server(("127.0.0.1", 0)) as mute:
            kafka = f"127.0.0.1:{mute.getsockname()[1]}"
            command = [sys.executable, "-m", "kafkacore", "pipeline", "run", "--continuous", "--remote", self._server.remote, "-b", kafka]
            with subprocess.Popen(command, cwd=self._root, env=environment(), stderr=-1, text=True) as running, mute.accept()[0]:
                running.send_signal(signal.SIGINT)
                assert running.stderr is not None
                assert any("once more ends it at once" in line for line in running.stderr)
                running.send_signal(signal.SIGINT)
                return running.wait(60)

    def rows(self, table: str) -> list[tuple[object, ...]]:
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(self._server.warehouse / table)
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def sent(self) -> int:
        return self._cluster.high_watermark(f"{self._topic}-out", 0)


def counted(*words: str) -> list[tuple[str, int]]:
    return sorted(collections.Counter(words).items())


def test_tables_outlive_runs_and_are_computed_anew_when_asked(tmp_path: Path, cluster: EmbeddedCluster, server: Server) -> None:
    tables = Pipeline(tmp_path, cluster, server, "words", TABLES)
    assert one(tables.call("dry-run"))["flows"] == ["words", "counts", "out"]
    tables.send("a", "b", "a", "")
    first = tables.call("run")
    assert {name: flow["rows"] for name, flow in one(first)["flows"].items()} == {"words": 4, "out": 4}
    steps = first.stderr.splitlines()
    flows = [f"{flow} {state}" for flow in ("words", "out", "counts") for state in ("running", "completed")]
    assert steps[:3] == [f"connecting to Spark at {server.remote}", "update 1", "update 1: planning"]
    assert sorted(steps[3:-1]) == sorted(f"update 1: {step}" for step in (*flows, "Run is COMPLETED."))
    assert steps[-1] == "ending Spark"
    assert tables.interrupted() == 130
    tables.send("c", "a")
    assert tables.run() == {"words": 6, "out": 6}  # it goes on, in the table that is there
    assert tables.rows("words") == [("a",)] * 3 + [("b",), ("c",)]
    assert tables.rows("counts") == counted("a", "b", "a", "c", "a")
    tables.send("d")
    assert tables.run("--full-refresh", "words") == {"words": 6 + 7, "out": 6}
    assert tables.rows("words") == [("a",)] * 3 + [("b",), ("c",), ("d",)]
    assert tables.rows("counts") == counted("a", "b", "a", "c", "a")  # no other table
    assert "no table 'out' to compute again; there is counts, words" in refused(tables.call("run", "--full-refresh", "out"))
    assert tables.run("--full-refresh-all") == {"words": 13 + 7, "out": 6 + 7}
    assert (tables.rows("counts"), tables.sent()) == (counted("a", "b", "a", "c", "a", "d"), 6 + 7)


def test_a_flow_that_fails_is_one_line_with_the_row(tmp_path: Path, cluster: EmbeddedCluster, server: Server) -> None:
    failing = Pipeline(tmp_path, cluster, server, "pipe-fail", FAILING)
    failing.send("abc", "too long")
    line = refused(failing.call("run"))
    assert "expectation short of copied does not hold (length(value) < 5)" in line and '{"value":"too long"}' in line
    status = one(kafkacore("status", "--json", cwd=tmp_path))
    assert status["state"] == "failed" and status["last_error"]["flow"] == "out" and "too long" in status["last_error"]["text"]


def test_a_wrong_column_is_named(tmp_path: Path, cluster: EmbeddedCluster, server: Server) -> None:
    wrong = Pipeline(tmp_path, cluster, server, "pipe-wrong", TABLES.replace('groupBy("value")', 'groupBy("valeu")'))
    done = wrong.call("dry-run")
    said = json.loads(done.stdout)
    assert (done.returncode, said["valid"], said["flow"]) == (1, False, "counts")
    *_, line = done.stderr.splitlines()
    assert line == f"kafkacore: flow counts: {said['error']}"
    for word in ("[UNRESOLVED_COLUMN.WITH_SUGGESTION]", "`valeu`", "Did you mean", "`value`"):
        assert word in line


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        kafka = cluster.bootstrap_servers
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format((tmp_path / "storage").as_uri()))
    for remote, says in ((f"sc://{kafka}", f"no Spark Connect server answers at {kafka}"), ("http://a", "The URL must start with 'sc://'")):
        assert says in refused(kafkacore("run", "--remote", remote, "-b", kafka, cwd=tmp_path))
