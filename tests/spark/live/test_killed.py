"""SIGKILL of drivers and executors at every step of a query from topic to topic: nothing is missing, batches are replayed as they were.

The guarantee is at least once: a batch whose records were written and that Spark does not know to be done is written again. How many
records came twice is counted, by the step at which the query died, and must be what that step allows. Batch 0 has its own test: where it
begins is not in Spark's log. Three of six steps by default, KAFKACORE_NIGHT=1 takes all.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.spark.live.commands import environment
from tests.spark.live.killing import BATCH, DRIVER_POINTS, EXECUTOR_POINTS, PARTITIONS


class Program:
    """A query in processes of its own, one after the other, their log and the records they wrote."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, *sources: dict[str, str]) -> None:
        self._servers = cluster.bootstrap_servers
        self._directory = directory
        self._sources = json.dumps(sources)
        cluster.create_topic("out", partitions=PARTITIONS)

    def run(self, number: int, master: str, what: str = "", at: str = "", **more: str) -> int:
        """Runs until it dies or has nothing left to do; its exit code."""
        env = environment(
            SPARK_WORKER_DIR=str(self._directory / "work"),
            KILL_RUN=str(number),
            KILL_WHAT=what,
            KILL_AT=at,
            KILL_DIRECTORY=str(self._directory),
            **more,
        )
        command = [sys.executable, "-m", "tests.spark.live.killing", master, self._servers, str(self._directory), self._sources]
        with open(self._directory / f"output-{number}", "wb") as output:
            process = subprocess.Popen(command, cwd=self._directory, env=env, stdout=output, stderr=output, start_new_session=True)
            return process.wait(600)

    def output(self, number: int) -> str:
        """What a run has said, for the message of a failed test."""
        return (self._directory / f"output-{number}").read_text()[-5_000:]

    def log(self) -> list[dict[str, Any]]:
        """What all runs have noted."""
        return [json.loads(line) for line in (self._directory / "log").read_text().splitlines()]

    def bounds(self, source: int = 0) -> list[Any]:
        """Where the batches in Spark's log end in a source, as it keeps them but for the ids of topics."""
        logs = sorted((self._directory / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        found = [json.loads(path.read_text().splitlines()[2 + source]) for path in logs]
        return [{name: partitions for name, partitions in each.items() if partitions} for each in found]

    def written(self) -> collections.Counter[int]:
        """How often each record is in the topic `out`."""
        times: collections.Counter[int] = collections.Counter()
        with KafkaConsumer(bootstrap_servers=self._servers, auto_offset_reset="none") as consumer:
            for tp, end in consumer.end_offsets([("out", i) for i in range(PARTITIONS)]).items():
                for columns in consumer.read_range(tp, 0, end, 30):
                    times.update(int(value) for value in columns.values.to_pylist())
        return times


class Killed(Program):
    """A query of the topic `in`, which holds numbered records, from its beginning."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, batches: int) -> None:
        super().__init__(cluster, directory, {"subscribe": "in", "startingOffsets": "earliest"})
        self.records = batches * BATCH
        cluster.create_topic("in", partitions=PARTITIONS)
        with KafkaProducer(bootstrap_servers=self._servers) as producer:
            for i in range(self.records):
                producer.send("in", b"%d" % i, key=b"k", partition=i % PARTITIONS)

    def check_replays(self) -> collections.Counter[int]:
        """Batches follow each other without gap or overlap, and one that was planned twice was planned the same; how often each was.

        Batch 0 holds nothing: it pins where the query begins. So batch n + 1 of Spark holds BATCH records from n * BATCH on.
        """
        ends = [each["in"] for each in self.bounds()]
        bounds = [{str(i): 0 for i in range(PARTITIONS)}, *ends]
        plans: dict[int, list[Any]] = {}
        for line in self.log():
            if "ranges" in line:
                batch = ends.index(line["end"]["in"])
                assert line["start"]["in"] == bounds[batch]
                plans.setdefault(batch, []).append(sorted(each for task in line["ranges"] for each in task))
        assert sorted(plans) == list(range(len(ends)))
        for batch, planned in plans.items():
            ranges = [["in", i, bounds[batch][str(i)], ends[batch][str(i)]] for i in range(PARTITIONS)] if batch else []
            assert all(each == ranges for each in planned), (batch, planned)
        assert ends[-1] == {str(i): self.records // PARTITIONS for i in range(PARTITIONS)}
        return collections.Counter({batch: len(planned) for batch, planned in plans.items()})

    def duplicates(self) -> collections.Counter[int]:
        """Records written more than once, by batch; fails when one is missing or foreign."""
        times = self.written()
        assert sorted(times) == list(range(self.records))
        again: collections.Counter[int] = collections.Counter()
        for record, count in times.items():
            again[record // BATCH] += count - 1
        return again


NIGHT = os.environ.get("KAFKACORE_NIGHT") == "1"
POINTS = DRIVER_POINTS if NIGHT else ("planned", "written", "committed")
AGAIN = {
    "planned": (0, 0), "split": (0, 0), "read": (0, BATCH), "writing": (0, BATCH), "written": (BATCH // PARTITIONS, BATCH),
    "committed": (BATCH, BATCH),
}  # fmt: skip
"""How many records are written again, at least and at most, of the batch in which the driver died at a point."""


@pytest.mark.timeout(200 * (len(POINTS) + 1))  # it starts Spark once per point; a busy machine takes more than a minute for that
def test_a_driver_killed_at_every_step(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with EmbeddedCluster() as cluster:
        query = Killed(cluster, tmp_path, batches=len(POINTS) + 2)
        for number, name in enumerate(POINTS):
            assert query.run(number, "local[2]", "driver", name) == -signal.SIGKILL, query.output(number)
        assert query.run(len(POINTS), "local[2]") == 0, query.output(len(POINTS))
        planned, again = query.check_replays(), query.duplicates()
    # Two tasks may meet a point at once.
    assert list(dict.fromkeys(line["killed"] for line in query.log() if "killed" in line)) == list(POINTS)
    by_point = {name: again[number] for number, name in enumerate(POINTS)}
    record_property(f"records of {BATCH} written again, by where the driver was killed", by_point)
    for number, name in enumerate(POINTS):
        assert planned[number + 1] == (1 if name == "planned" else 2), name
        least, most = AGAIN[name]
        assert least <= by_point[name] <= most, name
    assert again[len(POINTS)] == again[len(POINTS) + 1] == 0


def test_executors_killed_while_the_driver_lives(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with EmbeddedCluster() as cluster:
        query = Killed(cluster, tmp_path, batches=6)
        assert query.run(0, "local-cluster[2,1,1024]", "executor", ",".join(EXECUTOR_POINTS)) == 0, query.output(0)
        planned, again = query.check_replays(), query.duplicates()
    killed = [(line["killed"], line["program"]) for line in query.log() if "killed" in line]
    assert sorted(killed) == [(name, "java") for name in sorted(EXECUTOR_POINTS)]
    record_property(f"records of {query.records} written again after {len(killed)} executors were killed", again.total())
    assert set(planned.values()) == {1}  # tasks were tried again, not batches
    # A task that was tried again writes its rows again, and no others are.
    assert BATCH // PARTITIONS <= again.total() <= len(killed) * BATCH


def test_a_driver_killed_in_the_first_batch(tmp_path: Path) -> None:
    """What comes after the query has first planned a batch is read, however often that batch is planned again, and loss is reported."""
    topics = ("late", "timed", "short")
    points = ("planned", "split", "committed") if NIGHT else ("planned", "committed")
    sent: list[int] = []

    def send(count: int) -> None:
        """The same numbers to all topics, apart by a million."""
        for number, topic in enumerate(topics):
            for i in range(len(sent), len(sent) + count):
                producer.send(topic, b"%d" % (number * 1_000_000 + i), key=b"k", partition=0)
        sent.extend(range(len(sent), len(sent) + count))
        producer.flush()

    with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        query = Program(
            cluster,
            tmp_path,
            {"subscribe": "late", "startingOffsets": "latest"},
            {"subscribe": "timed", "startingTimestamp": "4102444800000", "startingOffsetsByTimestampStrategy": "latest"},
            {"subscribe": "short", "startingOffsets": "earliest", "failOnDataLoss": "false"},
        )
        for topic in topics:
            cluster.create_topic(topic, partitions=1)
        send(10)
        for number, name in enumerate(points):
            assert query.run(number, "local[2]", "driver", name, KILL_FIRST="1") == -signal.SIGKILL, query.output(number)
            send(10)
            if name != "planned":
                with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
                    admin.delete_records({("short", 0): 3 * number}).check()
        assert query.run(len(points), "local[2]") == 0, query.output(len(points))
        written = query.written()
    # "planned" leaves no log, so the second run pins the start: behind the records of before, in front of those of after.
    assert [query.bounds(source)[0] for source in range(3)] == [{"late": {"0": 20}}, {"timed": {"0": 20}}, {"short": {"0": 0}}]
    assert [line["killed"] for line in query.log() if "killed" in line] == list(points)
    end, gone = 10 * len(points) + 10, 3 * len(points) - 3
    assert sorted(written) == [*range(20, end), *range(1_000_020, 1_000_000 + end), *range(2_000_000 + gone, 2_000_000 + end)]
    assert set(written.values()) == {1}
    for number in range(2, len(points) + 1):
        lost = f"the offsets 0 to {3 * number - 4} have aged out or were deleted since"
        assert f"short-0: the query first started at offset 0; {lost}" in (tmp_path / f"output-{number}").read_text()
