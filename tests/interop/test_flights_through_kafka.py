"""Flights into Apache Kafka and out again, through Kafka's own console tools and confluent-kafka: KAFKACORE_ALL_FLIGHTS=1 takes all."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.cli.flights import Flights, load_flights
from tests.kit import plain_records as rivals
from tests.kit.kafka_server import KafkaServer
from tests.kit.topics import new_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PARTITIONS = 4
LIMIT = None if os.environ.get("KAFKACORE_ALL_FLIGHTS") == "1" else 20_000


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(LIMIT)


@pytest.fixture(scope="module")
def truth(flights: Flights) -> dict[bytes, list[bytes]]:
    """The flights of each carrier in their order: a key keeps its partition, so its order must survive."""
    by_carrier: dict[bytes, list[bytes]] = defaultdict(list)
    for carrier, document in zip(flights.carriers, flights.documents, strict=True):
        by_carrier[carrier].append(document)
    return by_carrier


@pytest.fixture(scope="module")
def sent(real_kafka: KafkaServer, flights: Flights) -> str:
    """A topic that holds the flights as `KafkaProducer.send` wrote them, one call each."""
    topic = new_topic(real_kafka.bootstrap_servers, PARTITIONS, prefix="flights", retention_ms=-1)  # they are of 2013
    with KafkaProducer(bootstrap_servers=real_kafka.bootstrap_servers, compression_type="lz4") as producer:
        for carrier, document, timestamp_ms in zip(*flights, strict=True):
            producer.send(topic, document, key=carrier, timestamp_ms=timestamp_ms)
        producer.flush(120)
    return topic


def test_the_console_consumer_reads_them_equal(real_kafka: KafkaServer, sent: str, truth: dict[bytes, list[bytes]]) -> None:
    got: dict[bytes, list[bytes]] = defaultdict(list)
    arguments = ["--from-beginning", "--max-messages", sum(map(len, truth.values())), "--timeout-ms", 60_000]
    arguments += ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=|"]
    out = real_kafka.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", real_kafka.bootstrap_servers, "--topic", sent, *arguments),
        timeout=180,
    )
    for line in out.splitlines():
        carrier, document = line.split(b"|", 1)
        got[carrier].append(document)
    assert got == truth


def test_confluent_reads_them_equal(real_kafka: KafkaServer, sent: str, flights: Flights, truth: dict[bytes, list[bytes]]) -> None:
    with KafkaConsumer(bootstrap_servers=real_kafka.bootstrap_servers) as consumer:
        ends = consumer.end_offsets([TopicPartition(sent, p) for p in range(PARTITIONS)])
    got: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    when: list[int] = []
    for where, end in ends.items():
        if end:
            for record in rivals.confluent_read(real_kafka.bootstrap_servers, sent, end, where.partition):
                got[record.key].append(record.value)
                when.append(record.timestamp_ms)
    assert got == truth
    assert sorted(when) == sorted(flights.timestamps_ms)


def ours(server: KafkaServer, topic: str, flights: Flights) -> dict[bytes, list[bytes]]:
    got: dict[bytes, list[bytes]] = defaultdict(list)
    count = 0
    with KafkaConsumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        while count < len(flights.documents):
            batches = consumer.poll_batch(timeout=60)
            assert len(batches), f"only {count} records came"
            for columns in batches:
                table = columns.to_arrow()
                count += table.num_rows
                for carrier, document in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
                    got[carrier].append(document)
    return got


def test_we_read_what_the_console_producer_wrote(real_kafka: KafkaServer, flights: Flights, truth: dict[bytes, list[bytes]]) -> None:
    topic = new_topic(real_kafka.bootstrap_servers, PARTITIONS, prefix="flights", retention_ms=-1)  # they are of 2013
    lines = b"".join(b"%s|%s\n" % pair for pair in zip(flights.carriers, flights.documents, strict=True))
    real_kafka.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", real_kafka.bootstrap_servers, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        stdin=lines,
        timeout=180,
    )
    assert ours(real_kafka, topic, flights) == truth


def test_we_read_what_confluent_wrote(real_kafka: KafkaServer, flights: Flights, truth: dict[bytes, list[bytes]]) -> None:
    topic = new_topic(real_kafka.bootstrap_servers, PARTITIONS, prefix="flights", retention_ms=-1)  # they are of 2013
    records = [rivals.Plain(*pair) for pair in zip(flights.carriers, flights.documents, strict=True)]
    rivals.confluent_write(real_kafka.bootstrap_servers, topic, records, "zstd", partition=None)
    assert ours(real_kafka, topic, flights) == truth


def test_columns_in_columns_out(real_kafka: KafkaServer, flights: Flights, truth: dict[bytes, list[bytes]]) -> None:
    topic = new_topic(real_kafka.bootstrap_servers, PARTITIONS, prefix="flights", retention_ms=-1)  # they are of 2013
    with KafkaProducer(bootstrap_servers=real_kafka.bootstrap_servers) as producer:
        result = producer.send_many(topic, flights.documents, keys=flights.carriers, timestamps_ms=flights.timestamps_ms).result(120)
    assert not result.errors and (result.offsets >= 0).all()
    assert ours(real_kafka, topic, flights) == truth
