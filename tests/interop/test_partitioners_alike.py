"""Keys land where the other clients put them: librdkafka's six partitioners and Java's, 10,000 random keys, empty and null ones too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer
from tests.kit.rivals import confluent_producer
from tests.kit.rows import each_row
from tests.kit.topics import new_topic

COUNT, PARTITIONS = 10_000, 7
OURS_TO_THEIRS = {
    "consistent_random": "consistent_random",
    "consistent": "consistent",
    "murmur2_random": "murmur2_random",
    "murmur2_null_too": "murmur2",
    "fnv1a_random": "fnv1a_random",
    "fnv1a": "fnv1a",
}
Key = bytes | None
Places = dict[bytes, int]


@pytest.fixture(scope="module")
def embedded() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    rng = random.Random(41)
    return [rng.randbytes(rng.choice((1, 2, 3, 4, 5, 8, 17, 40))) for _ in range(COUNT)]


def places(servers: str, topic: str, count: int) -> Places:
    """The partition of each value."""
    found: Places = {}
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        while len(found) < count:
            polled = consumer.poll(timeout=60, max_records=50_000)
            assert polled, f"{count - len(found)} records are missing"
            for tp, records in polled.items():
                found.update((record.value or b"", tp.partition) for record in records)
    return found


def ours(servers: str, keys: list[Key], **settings: Any) -> Places:
    topic = new_topic(servers, PARTITIONS)
    with KafkaProducer(bootstrap_servers=servers, **settings) as producer:
        half = len(keys) // 2
        for number, key in enumerate(keys[:half]):
            producer.send(topic, b"%d" % number, key=key)
        producer.send_many(topic, [b"%d" % number for number in range(half, len(keys))], keys=keys[half:]).result(60)
    return places(servers, topic, len(keys))


def confluents(servers: str, keys: list[Key], partitioner: str) -> Places:
    topic = new_topic(servers, PARTITIONS)
    producer = confluent_producer(servers, partitioner=partitioner, **{"queue.buffering.max.messages": 2 * COUNT})
    for number, key in enumerate(keys):
        producer.produce(topic, b"%d" % number, key=key)
    assert producer.flush(60) == 0
    return places(servers, topic, len(keys))


@each_row(("mine", "theirs"), OURS_TO_THEIRS.items())
def test_keys_go_where_librdkafka_puts_them(embedded: str, keys: list[bytes], mine: str, theirs: str) -> None:
    assert ours(embedded, [*keys], partitioner=mine) == confluents(embedded, [*keys], theirs)


@each_row(("mine", "theirs"), OURS_TO_THEIRS.items())
@each_row("key", [None, b""], ids=["null", "empty"])
def test_what_null_and_empty_keys_are(embedded: str, key: Key, mine: str, theirs: str) -> None:
    """One partition for all, or any."""
    many: list[Key] = [key] * 1000
    spread = {"batch_size": 200, "send_many_batch_size": 200}  # so that the sticky partition changes
    found = set(ours(embedded, many, partitioner=mine, **spread).values())
    expected = set(confluents(embedded, many, theirs).values())
    if mine.endswith("random") and (key is None or mine == "consistent_random"):
        assert len(found) > 1
    else:
        assert found == expected
        assert len(found) == 1


@pytest.mark.kafka
@pytest.mark.slow
def test_keys_go_where_java_puts_them(real_kafka: KafkaServer, keys: list[bytes], java: JavaTools) -> None:
    servers = real_kafka.bootstrap_servers
    topic = new_topic(servers, PARTITIONS)
    texts = [key.hex().encode() for key in keys]
    words = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]
    # After 1.5 s, or three retries, which a busy machine needs, it reports a batch as lost, goes on, and ends with 0.
    words += ["--request-timeout-ms", "60000", "--message-send-max-retries", "1000"]
    lines = b"".join(b"%s|%d\n" % (text, number) for number, text in enumerate(texts))
    done = java.run("ConsoleProducer", "--bootstrap-server", servers, "--topic", topic, *words, stdin=lines, timeout=120)
    done.ok()
    assert "Error when sending message" not in done.err
    assert ours(servers, [*texts]) == places(servers, topic, len(texts))
