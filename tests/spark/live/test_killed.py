"""SIGKILL of drivers and executors at every step of a query from topic to topic: nothing is missing, batches are replayed as they were.

The guarantee is at least once: a batch whose records were written and that Spark does not know to be done is written again. How many
records came twice is counted, by the step at which the query died, and must be what that step allows.
"""

from __future__ import annotations

import collections
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.spark.live.commands import environment
from tests.spark.live.killing import BATCH, DRIVER_POINTS, EXECUTOR_POINTS, PARTITIONS


class Killed:
    """A query, its log and what it has written."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, batches: int) -> None:
        self._servers = cluster.bootstrap_servers
        self._directory = directory
        self.records = batches * BATCH
        for topic in ("in", "out"):
            cluster.create_topic(topic, partitions=PARTITIONS)
        with KafkaProducer(bootstrap_servers=self._servers) as producer:
            for i in range(self.records):
                producer.send("in", b"%d" % i, key=b"k", partition=i % PARTITIONS)

    def run(self, number: int, master: str, what: str = "", at: str = "") -> int:
        """Runs until it dies or has nothing left to do; its exit code."""
        env = environment(
            SPARK_WORKER_DIR=str(self._directory / "work"),
            KILL_RUN=str(number),
            KILL_WHAT=what,
            KILL_AT=at,
            KILL_DIRECTORY=str(self._directory),
        )
        command = [sys.executable, "-m", "tests.spark.live.killing", master, self._servers, str(self._directory)]
        with open(self._directory / f"output-{number}", "wb") as output:
            process = subprocess.Popen(command, cwd=self._directory, env=env, stdout=output, stderr=output, start_new_session=True)
            return process.wait(240)

    def output(self, number: int) -> str:
        """What a run has said, for the message of a failed test."""
        return (self._directory / f"output-{number}").read_text()[-5_000:]

    def log(self) -> list[dict[str, Any]]:
        """What all runs have noted."""
        return [json.loads(line) for line in (self._directory / "log").read_text().splitlines()]

    def check_replays(self) -> collections.Counter[int]:
        """Batches follow each other without gap or overlap, and one that was planned twice was planned the same; how often each was."""
        logs = sorted((self._directory / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        ends = [json.loads(path.read_text().splitlines()[2])["in"] for path in logs]
        bounds = [{str(i): 0 for i in range(PARTITIONS)}, *ends]
        plans: dict[int, list[Any]] = {}
        for line in self.log():
            if "ranges" in line:
                ranges = sorted(each for task in line["ranges"] for each in task)
                plans.setdefault(bounds.index(line["start"]["in"]), []).append((line["end"]["in"], ranges))
        assert sorted(plans) == list(range(len(ends)))
        for batch, planned in plans.items():
            ranges = [["in", i, bounds[batch][str(i)], ends[batch][str(i)]] for i in range(PARTITIONS)]
            assert all(each == (ends[batch], ranges) for each in planned), (batch, planned)
        assert ends[-1] == {str(i): self.records // PARTITIONS for i in range(PARTITIONS)}
        return collections.Counter({batch: len(planned) for batch, planned in plans.items()})

    def duplicates(self) -> collections.Counter[int]:
        """Records written more than once, by batch; fails when one is missing or foreign."""
        times: collections.Counter[int] = collections.Counter()
        with KafkaConsumer(bootstrap_servers=self._servers, auto_offset_reset="none") as consumer:
            for tp, end in consumer.end_offsets([("out", i) for i in range(PARTITIONS)]).items():
                for columns in consumer.read_range(tp, 0, end, 30):
                    times.update(int(value) for value in columns.values.to_pylist())
        assert sorted(times) == list(range(self.records))
        again: collections.Counter[int] = collections.Counter()
        for record, count in times.items():
            again[record // BATCH] += count - 1
        return again


def test_a_driver_killed_at_every_step(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with EmbeddedCluster() as cluster:
        query = Killed(cluster, tmp_path, batches=len(DRIVER_POINTS) + 2)
        for number, name in enumerate(DRIVER_POINTS):
            assert query.run(number, "local[2]", "driver", name) == -signal.SIGKILL, query.output(number)
        assert query.run(len(DRIVER_POINTS), "local[2]") == 0, query.output(len(DRIVER_POINTS))
        planned, again = query.check_replays(), query.duplicates()
    # Two tasks may meet a point at once.
    assert list(dict.fromkeys(line["killed"] for line in query.log() if "killed" in line)) == list(DRIVER_POINTS)
    by_point = {name: again[number + 1] for number, name in enumerate(DRIVER_POINTS)}
    record_property(f"records of {BATCH} written again, by where the driver was killed", by_point)
    for number, name in enumerate(DRIVER_POINTS):
        assert planned[number + 1] == (1 if name in ("asked", "planned") else 2), name
    assert again[0] == again[len(DRIVER_POINTS) + 1] == 0
    assert by_point["asked"] == by_point["planned"] == by_point["split"] == 0
    assert 0 <= by_point["read"] <= BATCH and 0 <= by_point["writing"] <= BATCH
    assert BATCH // PARTITIONS <= by_point["written"] <= BATCH
    assert by_point["commit"] == by_point["committed"] == BATCH


def test_executors_killed_while_the_driver_lives(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with EmbeddedCluster() as cluster:
        query = Killed(cluster, tmp_path, batches=6)
        assert query.run(0, "local-cluster[2,1,1024]", "executor", ",".join(EXECUTOR_POINTS)) == 0, query.output(0)
        planned, again = query.check_replays(), query.duplicates()
    killed = [(line["killed"], line["program"]) for line in query.log() if "killed" in line]
    assert sorted(killed) == [(name, "java") for name in sorted(EXECUTOR_POINTS)]
    record_property(f"records of {query.records} written again after {len(killed)} executors were killed", again.total())
    assert set(planned.values()) == {1}                                 # tasks were tried again, not batches
    # A task that was tried again writes its rows again, and no others are.
    assert BATCH // PARTITIONS <= again.total() <= len(killed) * BATCH
