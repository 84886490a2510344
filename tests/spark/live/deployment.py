"""A program as a user writes it, run in a process of its own: batch, stream, fast path and sink, with a secret by reference.

Run by test_deployments as `python -m tests.spark.live.deployment KIND SERVERS DIRECTORY`; prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from pathlib import Path
from typing import Any

from kafkacore.spark import LagListener, ensure_spark, foreach_batch, read, stream

CLIENT_ID = "secret://env/PLANTED"


def processes(batches: Any) -> Any:
    """Which worker daemon runs this task: one per executor."""
    import pyarrow

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"daemon": [os.getppid()]})


def session(kind: str, directory: Path) -> Any:
    """A session of this kind, with an event log."""
    ensure_spark()
    from pyspark.sql import SparkSession

    (directory / "events").mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events",
    }
    if kind == "cluster":
        builder = SparkSession.builder.master("local-cluster[2,1,2048]")
    else:
        os.environ["SPARK_TESTING"] = "1"  # Connect's port is any free one
        builder = SparkSession.builder.remote("local[2]")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def run(query: Any) -> Any:
    """An AvailableNow query to its end."""
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    return started


def main(kind: str, servers: str, directory: Path) -> dict[str, Any]:
    """Reads the topic `in` in every way and writes it to `batch`, `stream` and `updates`."""
    spark = session(kind, directory)
    options = {"kafka.bootstrap.servers": servers, "kafka.client.id": CLIENT_ID}
    reading = {**options, "subscribe": "in"}
    frame = spark.read.format("kafkacore").options(**reading).load()
    fast = read(spark, "value binary", **reading)
    frame.selectExpr("key", "value").write.format("kafkacore").mode("append").options(**options, topic="batch").save()
    streaming = {**reading, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    reports: queue.Queue[Any] = queue.Queue()
    listener = LagListener(reports.put)
    spark.streams.addListener(listener)
    source = spark.readStream.format("kafkacore").options(**streaming).load().select("key", "value")
    run(source.writeStream.format("kafkacore").options(**options, topic="stream", checkpointLocation=f"{directory}/checkpoints/a"))
    lags = [reports.get(timeout=60).metrics["maxOffsetsBehindLatest"] for _ in range(3)]  # an empty batch 0, which pins the start, and two
    if kind != "connect":  # there it may wait forever for a report that waits for it
        spark.streams.removeListener(listener)
    counts = stream(spark, **streaming).groupBy("key").count().selectExpr("key", "CAST(count AS string) AS value")
    updates = counts.writeStream.outputMode("update").foreachBatch(foreach_batch(options, topic="updates"))
    run(updates.option("checkpointLocation", f"{directory}/checkpoints/b"))
    result = {
        "read": [list(each.selectExpr("count(*)", "sum(length(value))").first()) for each in (frame, fast)],
        "daemons": len({row.daemon for row in spark.range(0, 8, 1, 8).mapInArrow(processes, "daemon long").collect()}),
        "lags": lags,
        "java": None if kind == "connect" else spark.sparkContext._jvm.System.getProperty("java.home"),
        "java_home": os.environ.get("JAVA_HOME"),
        "session": type(spark).__module__,
    }
    if kind == "cluster":
        plan = frame._jdf.queryExecution().toString()
        result["plan"] = plan + fast._jdf.queryExecution().toString()
    spark.stop()
    return result


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
