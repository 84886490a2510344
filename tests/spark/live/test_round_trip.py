"""Rows written by Spark and read by Spark, batch and streaming, on the embedded broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.spark.shared import given


def produce(cluster: EmbeddedCluster, topic: str, count: int, partitions: int = 3) -> None:
    cluster.create_topic(topic, partitions=partitions)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for i in range(count):
            headers = [("h", b"x"), ("n", None)] if i % 2 else None
            producer.send(topic, f"v{i}" if i % 5 else None, key=f"k{i}", partition=i % partitions, headers=headers, timestamp_ms=1_000 + i)


def test_every_column_of_every_record(spark: Any, cluster: EmbeddedCluster) -> None:
    produce(cluster, "columns", 300)
    frame = spark.read.format("kafkacore").options(**given(cluster, subscribe="columns", includeHeaders="true", minPartitions="7")).load()
    rows = sorted(frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect(), key=lambda row: row.ms)
    assert len(rows) == 300
    for i, row in enumerate(rows):
        assert (bytes(row.key), row.value and bytes(row.value)) == (b"k%d" % i, b"v%d" % i if i % 5 else None)
        assert (row.topic, row.partition, row.offset, row.ms, row.timestampType) == ("columns", i % 3, i // 3, 1_000 + i, 0)
        headers = row.headers and [(h.key, h.value and bytes(h.value)) for h in row.headers]
        assert headers == ([("h", b"x"), ("n", None)] if i % 2 else None)


def test_in_sql_a_topic_is_a_temporary_view_and_no_table(spark: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("in-sql", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("in-sql", b'{"a":1}').result(30)
    options = f"OPTIONS (`kafka.bootstrap.servers` '{cluster.bootstrap_servers}', subscribe 'in-sql', `value.format` 'json')"
    with pytest.raises(Exception, match="a table cannot be stored") as caught:
        spark.sql(f"CREATE TABLE in_sql USING kafkacore {options}")
    assert "CREATE TEMPORARY VIEW name USING kafkacore OPTIONS" in str(caught.value)
    spark.sql(f"CREATE TEMPORARY VIEW in_sql (a INT, _offset BIGINT) USING kafkacore {options}")
    try:
        assert [tuple(row) for row in spark.sql("SELECT * FROM in_sql").collect()] == [(1, 0)]
    finally:
        spark.sql("DROP VIEW in_sql")


def test_a_stream_takes_up_where_it_stopped_and_shows_its_offsets(spark: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    produce(cluster, "source", 1_000)
    cluster.create_topic("sink", partitions=2)

    def run() -> list[int]:
        stream = spark.readStream.format("kafkacore").options(
            **given(cluster, subscribe="source", startingOffsets="earliest", maxOffsetsPerTrigger="300", commitOffsetsToGroup="g")
        )
        query = (
            stream.load()
            .select("key", "value")
            .writeStream.format("kafkacore")
            .options(**given(cluster, topic="sink", checkpointLocation=str(tmp_path)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    batches = run()
    assert sum(batches) == 1_000 and len(batches) == 4
    assert run() == []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("source", "one more", partition=0)
    assert run() == [1]
    with KafkaConsumer("sink", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        found: list[Any] = []
        while len(found) < 1_001:
            found += [record.value for records in consumer.poll(10).values() for record in records]
    assert sorted(found, key=str) == sorted([b"one more", *(b"v%d" % i if i % 5 else None for i in range(1_000))], key=str)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        committed = admin.list_group_offsets("g")
    assert sum(each.offset for each in committed.values() if each is not None) == 1_001
