"""The sink in Spark: what confluent-kafka reads of what Spark wrote, and what Spark says of what cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.spark import foreach_batch, sink
from kafkacore.testing import EmbeddedCluster
from tests.kit.plain_records import Plain, confluent_read
from tests.spark.shared import given


def read_all(cluster: EmbeddedCluster, topic: str) -> list[list[Plain]]:
    """Its records by partition."""
    counts = [cluster.high_watermark(topic, i) for i in range(cluster.topics()[topic])]
    return [confluent_read(cluster.bootstrap_servers, topic, count, i) for i, count in enumerate(counts)]


def words(spark: Any, cluster: EmbeddedCluster, topic: str, count: int, **more: str) -> Any:
    """A topic of `count` words of three kinds, and a stream that takes it in two batches."""
    cluster.create_topic(topic)
    frame = spark.range(0, count, 1, 1).selectExpr("concat('w', id % 3) AS value")
    frame.write.format("kafkacore").mode("append").options(**given(cluster, topic=topic)).save()
    limit = str(-(-count // 2))
    options = given(cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit, **more)
    return spark.readStream.format("kafkacore").options(**options).load().selectExpr("CAST(value AS string) AS word")


def run(writer: Any, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_every_column_of_a_row(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("rows-a", partitions=2)
    cluster.create_topic("rows-b")
    frame = spark.sql(
        """
        SELECT IF(id < 6, 'rows-a', 'rows-b') AS topic,
               IF(id = 0, NULL, CAST(concat('k', id) AS binary)) AS key,
               IF(id = 1, NULL, concat('v', id)) AS value,
               IF(id % 2 = 0, array(struct('h' AS key, X'01' AS value), struct('n' AS key, X'' AS value)), NULL) AS headers,
               IF(id < 6, CAST(id % 2 AS int), NULL) AS partition,
               timestamp_millis(1000 + id) AS timestamp
        FROM range(0, 9, 1, 3)
        """
    )
    frame.write.format("kafkacore").mode("append").options(**given(cluster)).save()

    def expected(i: int) -> Plain:
        headers = (("h", b"\1"), ("n", b"")) if i % 2 == 0 else ()
        return Plain(b"k%d" % i if i else None, b"v%d" % i if i != 1 else None, headers, 1_000 + i)

    found = [sorted(part, key=lambda record: record.timestamp_ms) for part in read_all(cluster, "rows-a")]
    assert found == [[expected(i) for i in (0, 2, 4)], [expected(i) for i in (1, 3, 5)]]
    assert sorted(read_all(cluster, "rows-b")[0], key=lambda record: record.timestamp_ms) == [expected(i) for i in (6, 7, 8)]


@pytest.mark.parametrize(
    ("expressions", "says"),
    [
        (["'v' AS value", "1 AS price"], "column price would be lost"),
        (["'v' AS value", "CAST(99 AS int) AS partition"], r"topic refused has 1 partition; asked for 99"),
        (["repeat('x', 2000000) AS value"], r"RecordTooLarge.*refused"),
    ],
)
def test_what_cannot_be_written_fails_with_its_cause(spark: Any, cluster: EmbeddedCluster, expressions: list[str], says: str) -> None:
    """Before the query, at a row and at its delivery."""
    if "refused" not in cluster.topics():
        cluster.create_topic("refused")
    with pytest.raises(Exception, match=f"(?s){says}"):
        spark.range(1).selectExpr(*expressions).write.format("kafkacore").mode("append").options(**given(cluster, topic="refused")).save()
    assert cluster.high_watermark("refused", 0) == 0


def test_update_mode_by_foreach_batch(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    counts = words(spark, cluster, "update-in", 4).groupBy("word").count().selectExpr("word AS key", "CAST(count AS string) AS value")
    cluster.create_topic("update-out")
    with pytest.raises(Exception, match=r"(?i)update"):
        run(counts.writeStream.format("kafkacore").outputMode("update").options(**given(cluster, topic="update-out")), tmp_path / "direct")
    assert cluster.high_watermark("update-out", 0) == 0
    run(counts.writeStream.foreachBatch(foreach_batch(given(cluster), topic="update-out")).outputMode("update"), tmp_path / "batches")
    [records] = read_all(cluster, "update-out")
    pairs = [(record.key, record.value) for record in records]
    assert (sorted(pairs[:2]), sorted(pairs[2:])) == ([(b"w0", b"1"), (b"w1", b"1")], [(b"w0", b"2"), (b"w2", b"1")])


def test_sink_of_a_stream_and_of_a_batch(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.create_topic("sunk")
    run(sink(words(spark, cluster, "sunk-in", 4).selectExpr("word AS value"), **given(cluster, topic="sunk")), tmp_path)
    assert sink(spark.range(1).selectExpr("'batch' AS value"), kafka_bootstrap_servers=cluster.bootstrap_servers, topic="sunk") is None
    assert [record.value for record in read_all(cluster, "sunk")[0]] == [b"w0", b"w1", b"w2", b"w0", b"batch"]


def test_a_record_that_fails_fails_the_query_and_nothing_is_missing_after_a_restart(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    stream = words(spark, cluster, "failing-in", 6).selectExpr("IF(word = 'w2', repeat('x', 3000), word) AS value")
    cluster.create_topic("failing-out", configs={"max.message.bytes": "1000"})
    writer = stream.writeStream.format("kafkacore").options(**given(cluster, topic="failing-out", **{"kafka.batch.size": "0"}))
    with pytest.raises(Exception, match=r"MessageTooLarge|RecordTooLarge"):
        run(writer, tmp_path)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs({("topic", "failing-out"): {"max.message.bytes": "100000"}}).check()
    run(writer, tmp_path)
    values = [record.value or b"" for record in read_all(cluster, "failing-out")[0]]
    kinds = [value if len(value) == 2 else b"x" for value in values]
    assert kinds[-6:] == [b"w0", b"w1", b"x"] * 2
    assert set(kinds[:-6]) <= {b"w0", b"w1"}  # at least once: what was there before the failure stays


def test_a_task_knows_its_query_and_batch(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    def told(batches: Any) -> Any:
        import pyarrow

        from kafkacore.spark.writer import Task

        for _ in batches:
            task = Task.current()
            yield pyarrow.RecordBatch.from_pydict({"query": [task.query_id], "batch": [task.batch_id], "attempt": [task.attempt]})

    frame = words(spark, cluster, "tasks-in", 4).mapInArrow(told, "query string, batch long, attempt long")
    query = run(frame.writeStream.format("memory").queryName("tasks"), tmp_path)
    rows = sorted(tuple(row) for row in spark.sql("SELECT * FROM tasks").collect())
    assert rows == [(str(query.id), 1, 0), (str(query.id), 2, 0)]  # batch 0 pins the start
