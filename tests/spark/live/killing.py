"""A query from topics to a topic with planted kill points, in a process of its own: `format("killing")` is kafkacore that dies on order.

Run by test_killed as `python -m tests.spark.live.killing MASTER SERVERS DIRECTORY SOURCES`, the options of each source as JSON. What it
obeys, by environment variables:

- KILL_AT: the point to die at, KILL_RUN: the number of this run. It dies in the first batch after one that this run has finished,
  or with KILL_FIRST in the first batch of all.
- KILL_WHAT: "driver" (the process, its JVM and the worker that meets the point) or "executor" (an executor's JVM, once per point).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from kafkacore.spark import ensure_java
from kafkacore.spark.options import source_options
from kafkacore.spark.source import KafkaSource, KafkaStreamReader

PARTITIONS = 2
BATCH = 100
DRIVER_POINTS = ("planned", "split", "read", "writing", "written", "committed")
EXECUTOR_POINTS = ("read", "writing", "written")
FIRST = bool(os.environ.get("KILL_FIRST"))


def _directory() -> Path:
    return Path(os.environ["KILL_DIRECTORY"])


def note(**what: Any) -> None:
    """A line in the log of all runs."""
    line = json.dumps({"run": int(os.environ["KILL_RUN"]), **what}) + "\n"
    log = os.open(_directory() / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())
    os.close(log)


def _finished() -> Path:
    return _directory() / f"finished-{os.environ['KILL_RUN']}"


def _claimed(path: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    return False


def point(name: str) -> None:
    """Dies here, if this is where."""
    if name not in os.environ.get("KILL_AT", "").split(",") or not (FIRST or _finished().exists()):
        return
    if os.environ["KILL_WHAT"] == "driver":
        note(killed=name)
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif _claimed(_directory() / f"killed-{name}"):
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
        note(killed=name, program=Path(f"/proc/{executor}/comm").read_text().strip())
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class KillingReader(KafkaStreamReader):
    """The reader with points."""

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """`planned`: the batch before is in Spark's commit log, this one is not yet in its offset log."""
        end = super().latestOffset(start, limit)
        if end != start or FIRST:
            point("planned")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """`split`: the batch is in the offset log, its tasks have not started."""
        found = super().partitions(start, end)
        note(start=start, end=end, ranges=[each.ranges for each in found])
        point("split")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        """`read`: rows have left the reader, not all."""
        for batch in super().read(partition):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            point("read")
            yield batch.slice(half)


class KillingWriter(DataSourceStreamArrowWriter):
    """The writer with points."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, batches: Iterator[Any]) -> Any:
        """`writing`: rows are with the producer; `written`: a task's rows are in the topic, Spark does not know."""

        def half() -> Iterator[Any]:
            for batch in batches:
                yield batch
                point("writing")

        message = self.inner.write(half())
        point("written")
        return message

    def commit(self, messages: Any, batchId: int) -> None:
        """`committed`: all tasks are done, the batch is not yet in Spark's commit log."""
        self.inner.commit(messages, batchId)
        point("committed")
        _claimed(_finished())

    def abort(self, messages: Any, batchId: int) -> None:
        """As the writer."""
        self.inner.abort(messages, batchId)


class KillingSource(KafkaSource):
    """`format("killing")`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "killing"

    def streamReader(self, schema: StructType) -> Any:
        """A stream."""
        return KillingReader(source_options(self.options, streaming=True), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """A sink."""
        return KillingWriter(super().streamWriter(schema, overwrite))


def main(master: str, servers: str, directory: str, sources: str) -> None:
    """Reads what there is of all sources and writes it to the topic `out`."""
    os.environ["KILL_GROUP"] = str(os.getpgrp())
    os.environ["KILL_DIRECTORY"] = directory
    ensure_java()
    from pyspark.sql import SparkSession

    from tests.spark.live import killing

    spark = SparkSession.builder.master(master).getOrCreate()
    spark.dataSource.register(killing.KillingSource)
    options = {"kafka.bootstrap.servers": servers}
    limits = {"minPartitions": PARTITIONS, "maxOffsetsPerTrigger": BATCH}  # tasks of their own, though the batches are small
    readers = [spark.readStream.format("killing").options(**options, **limits, **source) for source in json.loads(sources)]
    frames = [reader.load().select("key", "value") for reader in readers]
    rows = functools.reduce(lambda one, other: one.union(other), frames)
    write = rows.writeStream.format("killing").options(**options, topic="out")
    write.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
