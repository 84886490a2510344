"""The fast path gives the rows of the source, in batch and stream, and one goes on from the other's checkpoint."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore.errors import ConfigError
from kafkacore.spark import LagListener, fetch, read, stream
from kafkacore.testing import EmbeddedCluster
from tests.kit.plain_records import confluent_read
from tests.spark.shared import given

FROM, TO = '{"parity":{"0":5,"1":-2,"2":100}}', '{"parity":{"0":90,"1":-1,"2":100}}'


def produce(cluster: EmbeddedCluster, topic: str, count: int, partitions: int = 3) -> None:
    cluster.create_topic(topic, partitions=partitions)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for i in range(count):
            headers = [("h", b"x"), ("n", None)] if i % 2 else None
            value = json.dumps({"a": i, "b": "x" * (i % 7)}) if i % 5 else None
            producer.send(topic, value, key=f"k{i}" if i % 3 else None, partition=i % partitions, headers=headers, timestamp_ms=1_000 + i)


@pytest.fixture(scope="module")
def topic(cluster: EmbeddedCluster) -> str:
    produce(cluster, "parity", 500)
    return "parity"


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (None, {"includeHeaders": "true"}),
        (None, {"minPartitions": "7", "startingOffsets": FROM, "endingOffsets": TO}),
        ("timestamp timestamp, value binary", {"maxRecordsPerPartition": "50"}),
        ("a long, b string, _offset long, _partition int", {"value.format": "json"}),
    ],
)
def test_a_batch_is_the_sources(spark: Any, cluster: EmbeddedCluster, topic: str, schema: str | None, options: dict[str, str]) -> None:
    options = given(cluster, subscribe=topic, **options)
    source = spark.read.format("kafkacore").options(**options)
    plain = (source if schema is None else source.schema(schema)).load()
    fast = read(spark, schema, **options)
    assert fast.schema == plain.schema
    rows = fast.collect()
    assert sorted(map(repr, rows)) == sorted(map(repr, plain.collect()))
    assert len(rows) == (500 if "startingOffsets" not in options else 85 + 167)


def test_ranges_and_fetch_by_hand(spark: Any, cluster: EmbeddedCluster, topic: str) -> None:
    options = given(cluster, subscribe=topic, maxRecordsPerPartition="100", emit="ranges")
    ranges = spark.read.format("kafkacore").options(**options).load()
    assert sorted(map(tuple, ranges.collect())) == [
        ("parity", partition, start, end) for partition, last in enumerate((167, 167, 166)) for start, end in ((0, 83), (83, last))
    ]
    rows = fetch("key binary, offset long", **options)
    offsets, keys = ranges.mapInArrow(rows, rows.schema).selectExpr("sum(offset)", "count(key)").first()
    assert (offsets, keys) == (sum(range(167)) * 2 + sum(range(166)), sum(1 for i in range(500) if i % 3))


def test_nothing_to_read(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("void", partitions=2)
    assert read(spark, **given(cluster, subscribe="void")).collect() == []


def test_errors_are_the_sources(spark: Any, cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigError, match="option maxOffsetsPerTrigger has no effect in a batch read"):
        read(spark, **given(cluster, subscribe="parity", maxOffsetsPerTrigger="5"))
    with pytest.raises(ConfigError, match="there is no column price"):
        stream(spark, "price int", **given(cluster, subscribe="parity"))
    with pytest.raises(ConfigError, match="option emit is the fast path's own"):
        read(spark, **given(cluster, subscribe="parity", emit="rows"))
    with pytest.raises(Exception, match="no-such-topic"):
        read(spark, **given(cluster, subscribe="no-such-topic")).count()


def test_a_stream_goes_on_from_the_sources_checkpoint_and_tells_its_lag(
    spark: Any, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic("fast-out")
    options = given(cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="200")
    reports: queue.Queue[Any] = queue.Queue()
    listener = LagListener(reports.put)

    def run(rows: Any) -> list[int]:
        writer = rows.selectExpr("CAST(concat(partition, '-', offset) AS binary) AS value").writeStream.format("kafkacore")
        query = writer.options(**given(cluster, topic="fast-out", checkpointLocation=str(tmp_path))).trigger(availableNow=True).start()
        query.awaitTermination()
        return [each.batchId for each in query.recentProgress if each.numInputRows]

    spark.streams.addListener(listener)
    try:
        batches = run(spark.readStream.format("kafkacore").options(**options).load())
        _, *lags = [reports.get(timeout=30) for _ in [0, *batches]]  # batch 0 pins the start
    finally:
        spark.streams.removeListener(listener)
    assert batches == [1, 2, 3]
    behind = [sum(each.by_partition.values()) for each in lags]
    assert behind[-1] == 0 and 290 <= behind[0] <= 302 and 90 <= behind[1] <= 104
    assert lags[0].metrics == {
        "minOffsetsBehindLatest": str(min(lags[0].by_partition.values())),
        "maxOffsetsBehindLatest": str(max(lags[0].by_partition.values())),
        "avgOffsetsBehindLatest": str(behind[0] / 3),
    }
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for i in range(30):
            producer.send(topic, "later", partition=i % 3)
    assert run(stream(spark, **options)) == [4]
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, "last", partition=1)
    assert run(spark.readStream.format("kafkacore").options(**options).load()) == [5]
    ends = {0: 177, 1: 178, 2: 176}
    wanted = [b"%d-%d" % (partition, offset) for partition, end in ends.items() for offset in range(end)]
    assert sorted(each.value or b"" for each in confluent_read(cluster.bootstrap_servers, "fast-out", 531)) == sorted(wanted)
    assert cluster.high_watermark("fast-out", 0) == 531


def test_workers_of_our_session_load_compiled_modules(spark: Any) -> None:
    def where(batches: Any) -> Any:
        import os

        import pyarrow
        import pyspark

        yield pyarrow.RecordBatch.from_pydict({"at": [pyspark.__file__, os.environ["SPARK_HOME"]]})

    module, home = (row.at for row in spark.range(1).repartition(1).mapInArrow(where, "at string").collect())
    assert module == f"{home}/python/lib/pyspark.zip/pyspark/__init__.py" and Path(home, "python/lib/pyspark.zip").is_dir()
    assert spark.sparkContext._jvm.java.lang.System.getProperty("arrow.enable_unsafe_memory_access") is None
