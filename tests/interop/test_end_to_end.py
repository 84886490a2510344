"""The whole path on Apache Kafka: what tests/producer and tests/consumer show on the embedded broker holds there, too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from tests.kit import records
from tests.kit.records import numbered, read
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


def test_columns_out_and_in(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    values, keys = numbered(5000, b"value-"), [b"key-%d" % (i % 50) for i in range(5000)]
    offsets = np.concatenate([[0], np.cumsum([len(v) for v in values])]).astype(np.int64)
    with KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="lz4") as producer:
        listed = producer.send_many(topic, values, keys=keys).result(timeout=GUARD_S)
        columnar = producer.send_many(topic, (b"".join(values), offsets), keys=keys).result(timeout=GUARD_S)
    assert not listed.errors and not columnar.errors
    assert (listed.partitions == columnar.partitions).all()
    for partition in range(4):
        mine = [i for i in range(5000) if listed.partitions[i] == partition]
        objects = read(bootstrap_servers, topic, 2 * len(mine), partition)
        assert [(r.key, r.value) for r in objects] == [(keys[i], values[i]) for i in mine] * 2
        assert [objects[listed.offsets[i]].value for i in mine[:100]] == [values[i] for i in mine[:100]]
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            while len(rows) < len(objects):
                batches = consumer.poll_batch(timeout=GUARD_S)
                assert len(batches), "no more columns came"
                for columns in batches:
                    table = columns.to_arrow().to_pydict()
                    rows += zip(columns.offsets.tolist(), table["key"], table["value"], strict=True)
        assert rows == [(r.offset, r.key, r.value) for r in objects]


def test_seek_position_and_offsets_by_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    where = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for i in range(1000):
            producer.send(topic, b"%d" % i, timestamp_ms=T0 + i * 10)
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([where])
        assert (consumer.beginning_offsets([where]), consumer.end_offsets([where])) == ({where: 0}, {where: 1000})
        found = consumer.offsets_for_times({where: T0 + 5000})[where]
        assert found is not None and found.offset == 500
        consumer.seek(where, 990)
        assert consumer.position(where) == 990
        assert [r.value for r in records.take(consumer, 10)] == numbered(10, first=990)
        assert consumer.position(where) == 1000 and consumer.lag(where) == 0
        consumer.seek(where, 1077)
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            records.take(consumer, 1)
    assert caught.value.topic == topic


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
