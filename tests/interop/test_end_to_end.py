"""The whole path on Apache Kafka: what tests/producer and tests/consumer show on the embedded broker holds there, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkacore import KafkaProducer, errors
from tests.kit import records
from tests.kit.records import read
from tests.kit.waiting import GUARD_S

MakeTopic = Callable[..., str]
FACED = (records,)
T0 = 1_700_000_000_000
pytestmark = [pytest.mark.usefixtures("client_face"), pytest.mark.kafka_alone("tests/producer and tests/consumer")]


def test_every_codec_and_every_acks(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    values = [b"%07d" % i * 20 for i in range(1000)]
    ways = [("none", 0), ("gzip", 0), ("gzip", 1), ("snappy", 1), ("none", "all"), ("snappy", "all"), ("lz4", "all"), ("zstd", "all")]
    for nth, (codec, acks) in enumerate(ways):
        settings = {} if acks == "all" else {"enable_idempotence": False}
        with KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type=codec, acks=acks, **settings) as producer:
            for i, value in enumerate(values):
                producer.send(topic, value, partition=i % 2)
        # Before the next one begins: nothing answers with acks=0.
        found = [read(bootstrap_servers, topic, (nth + 1) * 500, partition) for partition in (0, 1)]
    for partition in (0, 1):
        assert [r.value for r in found[partition]] == values[partition::2] * len(ways)
        assert [r.offset for r in found[partition]] == list(range(500 * len(ways)))


def test_send_gives_each_record_its_place(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=10)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        sent = producer.send(topic, b"value", key=b"k", headers=[("h", b"v")], partition=2, timestamp_ms=T0).result(timeout=GUARD_S)
        assert (sent.topic, sent.partition, sent.offset, sent.timestamp_ms) == (topic, 2, 0, T0)
        where = {key: producer.send(topic, b"x", key=key) for key in (b"kafka", b"foobar", b"", b"1234")}
        producer.flush(GUARD_S)
        assert {key: f.result(0).partition for key, f in where.items()} == {b"kafka": 0, b"foobar": 6, b"": 1, b"1234": 0}  # as Java's
    [record] = read(bootstrap_servers, topic, 1, 2)
    assert (record.key, record.value, list(record.headers)) == (b"k", b"value", [("h", b"v")])


def test_batches_and_records_too_large_for_the_topic(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """A batch is split; a record fails with its place."""
    topic = make_topic(max_message_bytes=20_000)
    values = [bytes([i]) * 4000 for i in range(60)]
    with KafkaProducer(bootstrap_servers=bootstrap_servers, batch_size=200_000, linger_ms=1000) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(GUARD_S)
        assert [f.result(0).offset for f in futures] == list(range(60))
        with pytest.raises(errors.RecordTooLarge) as caught:
            producer.send(topic, b"x" * 50_000).result(timeout=GUARD_S)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    assert [r.value for r in read(bootstrap_servers, topic, 60)] == values
