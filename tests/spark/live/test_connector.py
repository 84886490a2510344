"""Spark's own connector and kafkacore on the same topics of Apache Kafka: equal rows, and each goes on where the other stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.types import NewTopic
from tests.kit.kafka_server import KafkaServer

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ORDER = ("topic", "partition", "offset")
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.0"}


@pytest.fixture(scope="module")
def admin(kafka: KafkaServer) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


def produce(servers: str, topic: str, numbers: range, partitions: int = 3, keyless: int = 5, **settings: Any) -> None:
    """Records with and without key, value (tombstones) and headers, of times of their own."""
    with KafkaProducer(bootstrap_servers=servers, **settings) as producer:
        for i in numbers:
            headers = [("h", b"%d" % i), ("h", None), ("\u00e9", b"")][: i % 4] or None
            producer.send(
                topic,
                None if i % 7 == 0 else b"value %d" % i * (i % 40),
                key=None if keyless and i % keyless == 0 else b"k%d" % (i % 11),
                partition=i % partitions,
                headers=headers,
                timestamp_ms=1_700_000_000_000 + 1_000 * i,
            )


@pytest.fixture(scope="module")
def topics(kafka: KafkaServer, admin: KafkaAdminClient) -> str:
    """Topics of every kind; their names, with commas."""
    servers = kafka.bootstrap_servers
    new = [NewTopic(f"codec-{codec}", 3, 1) for codec in CODECS]
    new += [NewTopic("empty", 2, 1), NewTopic("wide", 64, 1), NewTopic("transactional", 2, 1)]
    new += [NewTopic("compacted", 1, 1, configs=COMPACTED), NewTopic("stamped", 1, 1, configs={"message.timestamp.type": "LogAppendTime"})]
    admin.create_topics(new).check()
    for codec in CODECS:
        produce(servers, f"codec-{codec}", range(300), compression_type=codec)
    produce(servers, "wide", range(500), 64)
    produce(servers, "stamped", range(50), 1)
    for start in range(0, 400, 100):
        produce(servers, "compacted", range(start, start + 100), 1, keyless=0)
    transactions(servers, "transactional")
    compact(servers)
    return ",".join(each.name for each in new)


def transactions(servers: str, topic: str) -> None:
    """Committed and aborted records by turns; the last transaction stays open in neither partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "by-turns"})
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, b"%d" % (10 * turn + i), partition=i % 2)
        producer.flush(30)
        producer.abort_transaction() if turn % 3 == 1 or turn == 5 else producer.commit_transaction()


def compact(servers: str) -> None:
    """Waits until the cleaner has been there; what rolls the segment is another record."""
    consumer, producer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none"), KafkaProducer(bootstrap_servers=servers)
    with consumer, producer:
        for _ in range(600):
            producer.send("compacted", b"the last", key=b"k1").result(30)
            [end] = consumer.end_offsets([("compacted", 0)]).values()
            if sum(len(columns) for columns in consumer.read_range(("compacted", 0), 0, end, 30)) < end - 200:
                return
    raise AssertionError("nothing has been compacted")


def rows(spark: Any, source: str, servers: str, **options: str) -> Any:
    """All rows as an Arrow table, in Kafka's order."""
    reader = spark.read.format(source).options(**{"kafka.bootstrap.servers": servers, "includeHeaders": "true", **options})
    return reader.load().toArrow().sort_by([(name, "ascending") for name in ORDER])


CODED = {"subscribe": "codec-lz4"}
SOME, SOME_END = '{"codec-lz4":{"0":-2,"1":50,"2":100}}', '{"codec-lz4":{"0":10,"1":-1,"2":100}}'


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, None),
        ({"subscribe": "transactional,stamped", "kafka.isolation.level": "read_committed"}, 30 + 50),
        ({"subscribePattern": "codec-.*", "minPartitions": "20"}, 1_500),
        ({"subscribePattern": "no-such-.*"}, 0),
        ({"assign": '{"codec-lz4":[0,2],"empty":[1]}', "maxRecordsPerPartition": "30"}, 200),
        ({**CODED, "startingOffsets": SOME, "endingOffsets": SOME_END}, 60),
        ({**CODED, "startingTimestamp": "1700000100500", "endingTimestamp": "1700000200000"}, 99),
        ({**CODED, "startingOffsetsByTimestamp": '{"codec-lz4":{"0":1700000297000,"1":1700000290000,"2":0}}'}, 104),
    ],
    ids=["all", "committed", "pattern", "none", "assigned", "offsets", "times", "times-by-partition"],
)
def test_equal_rows(spark: Any, kafka: KafkaServer, topics: str, options: dict[str, str], count: int | None) -> None:
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options = {"subscribe": topics, **options}
    theirs, ours = (rows(spark, source, kafka.bootstrap_servers, **options) for source in ("kafka", "kafkacore"))
    assert ours.equals(theirs)
    if count is not None:
        assert len(ours) == count
        return
    found = ours.column("topic").to_pylist()
    assert {name: found.count(name) for name in ("codec-zstd", "empty", "wide", "stamped", "transactional")} == {
        "codec-zstd": 300,
        "empty": 0,
        "wide": 500,
        "stamped": 50,
        "transactional": 60,
    }
    assert 0 < found.count("compacted") < 400
    assert set(ours.column("timestampType").to_pylist()) == {0, 1}
    assert ours.column("value").null_count and ours.column("key").null_count and ours.column("headers").null_count


class Stream:
    """A query from a topic to files that either format can go on with; its batches show in the checkpoint."""

    def __init__(self, spark: Any, kafka: KafkaServer, where: Path, **options: str) -> None:
        self._spark = spark
        self._where = where
        self._options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}

    def run(self, source: str) -> list[int]:
        """Reads what there is; the number of rows of each batch."""
        frame = self._spark.readStream.format(source).options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self._where}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{self._where}/rows")
        query.awaitTermination()
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    def offsets(self) -> list[Any]:
        """What the checkpoint holds, batch by batch."""
        logs = sorted((self._where / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        found = [json.loads(path.read_text().splitlines()[2]) for path in logs]
        return [{name: partitions for name, partitions in each.items() if partitions} for each in found]

    def places(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of everything written."""
        return sorted(tuple(row) for row in self._spark.read.parquet(f"{self._where}/rows").select(*ORDER).collect())


@pytest.mark.parametrize(("first", "second"), [("kafka", "kafkacore"), ("kafkacore", "kafka")])
def test_a_checkpoint_of_one_is_resumed_by_the_other(
    spark: Any, kafka: KafkaServer, admin: KafkaAdminClient, tmp_path: Path, first: str, second: str
) -> None:
    topic = f"resumed-by-{second}"
    admin.create_topics([NewTopic(topic, 2, 1)]).check()
    stream = Stream(spark, kafka, tmp_path, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    produce(kafka.bootstrap_servers, topic, range(100), 2)
    assert stream.run(first) == [60, 40]
    assert sum(stream.run(second)) == 0  # nothing is read again
    produce(kafka.bootstrap_servers, topic, range(100), 2)
    assert stream.run(second) == [60, 40]
    produce(kafka.bootstrap_servers, topic, range(30), 2)
    assert stream.run(first) == [30]
    assert stream.places() == [(topic, partition, i) for partition in range(2) for i in range(115)]
    assert stream.offsets()[-1] == {topic: {"0": 115, "1": 115}}
    assert {topic: {"0": 30, "1": 30}} in stream.offsets()


@pytest.mark.parametrize("source", ["kafka", "kafkacore"])
def test_latest_is_pinned_by_the_first_run(spark: Any, kafka: KafkaServer, admin: KafkaAdminClient, tmp_path: Path, source: str) -> None:
    topic = f"pinned-{source}"
    admin.create_topics([NewTopic(topic, 1, 1)]).check()
    stream = Stream(spark, kafka, tmp_path, subscribe=topic)
    produce(kafka.bootstrap_servers, topic, range(5), 1)
    assert stream.run(source) == []
    produce(kafka.bootstrap_servers, topic, range(7), 1)
    assert stream.run(source) == [7]
