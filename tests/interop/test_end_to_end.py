"""The whole path, once on the embedded broker and once on Apache Kafka: the same expectations hold on both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, ProducerRecord, TopicPartition, errors
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("client_face")

Row = tuple[int, bytes | None, bytes | None]


def read_all(servers: str, topic: str, partitions: int, count: int, **settings: object) -> dict[int, list[Row]]:
    """(offset, key, value) per partition, from the beginning, once `count` records came."""
    got: dict[int, list[Row]] = {p: [] for p in range(partitions)}
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
        while sum(map(len, got.values())) < count:
            polled = consumer.poll(timeout=30, max_records=10_000)
            assert polled, f"only {sum(map(len, got.values()))} of {count} records came"
            for where, records in polled.items():
                got[where.partition] += [(r.offset, r.key, r.value) for r in records]
    return got


def test_send_gives_each_record_its_place(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    with KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        first = producer.send(topic, b"value", key=b"k", headers=[("h", b"v")], partition=2, timestamp_ms=1_700_000_000_000)
        metadata = first.result(timeout=30)
        assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms) == (topic, 2, 0, 1_700_000_000_000)
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (1, 5)
        second = producer.send(ProducerRecord(topic, "text", partition=2)).get(timeout=30)
        assert second.offset == 1
    assert read_all(bootstrap_servers, topic, 3, 2)[2] == [(0, b"k", b"value"), (1, None, b"text")]


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_every_acks(bootstrap_servers: str, make_topic: Callable[..., str], codec: str, acks: int | str) -> None:
    topic = make_topic(partitions=2)
    values = [b"%07d" % i * 20 for i in range(3000)]
    settings = {} if acks == "all" else {"enable_idempotence": False}
    with KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type=codec, acks=acks, **settings) as producer:
        for i, value in enumerate(values):
            producer.send(topic, value, partition=i % 2)
    got = read_all(bootstrap_servers, topic, 2, len(values))
    for p in range(2):
        assert [value for _, _, value in got[p]] == values[p::2]
        assert [offset for offset, _, _ in got[p]] == list(range(1500))


def test_same_key_same_partition_as_java(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=10)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        where = {key: producer.send(topic, b"x", key=key) for key in (b"kafka", b"foobar", b"", b"1234")}
        producer.flush(30)
        assert {key: f.result(0).partition for key, f in where.items()} == {b"kafka": 0, b"foobar": 6, b"": 1, b"1234": 0}


def test_send_many_lists_and_columns(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    values = [b"value-%d" % i for i in range(20_000)]
    keys = [b"key-%d" % (i % 50) for i in range(20_000)]
    data = b"".join(values)
    offsets = np.concatenate([[0], np.cumsum([len(v) for v in values])]).astype(np.int64)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        listed = producer.send_many(topic, values, keys=keys).result(timeout=30)
        columnar = producer.send_many(topic, (data, offsets), keys=keys).result(timeout=30)
    assert not listed.errors and not columnar.errors
    assert (listed.partitions == columnar.partitions).all() and (listed.offsets >= 0).all()
    got = read_all(bootstrap_servers, topic, 4, 40_000)
    for p in range(4):
        mine = [i for i in range(20_000) if listed.partitions[i] == p]
        assert [(k, v) for _, k, v in got[p]] == [(keys[i], values[i]) for i in mine] * 2
        assert [got[p][listed.offsets[i]][2] for i in mine[:100]] == [values[i] for i in mine[:100]]


def test_columns_equal_objects(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="lz4") as producer:
        for i in range(5000):
            producer.send(topic, b"v%d" % i if i % 10 else None, key=b"k%d" % i if i % 3 else None, timestamp_ms=1_700_000_000_000 + i)
    objects = read_all(bootstrap_servers, topic, 1, 5000)[0]
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        rows: list[tuple[int, bytes | None, bytes | None]] = []
        while len(rows) < 5000:
            batches = consumer.poll_batch(timeout=30)
            assert len(batches), "no more columns came"
            for columns in batches:
                table = columns.to_arrow().to_pydict()
                rows += zip(columns.offsets.tolist(), table["key"], table["value"], strict=True)
                assert columns.timestamps_ms.tolist() == [1_700_000_000_000 + o for o in columns.offsets.tolist()]
    assert rows == objects


def test_seek_position_and_offsets_by_time(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    where = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for i in range(1000):
            producer.send(topic, b"%d" % i, timestamp_ms=1_700_000_000_000 + i * 10)
    with KafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([where])
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 1000}
        found = consumer.offsets_for_times({where: 1_700_000_005_000})[where]
        assert found is not None and found.offset == 500
        consumer.seek(where, 990)
        assert consumer.position(where) == 990
        records = []
        while len(records) < 10:
            records += consumer.poll(timeout=30).get(where, [])
        assert [r.value for r in records] == [b"%d" % i for i in range(990, 1000)]
        assert consumer.position(where) == 1000 and consumer.lag(where) == 0


def test_max_records_and_iteration(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(1200)]).result(timeout=30)
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(consumer.poll(timeout=30, max_records=7)[TopicPartition(topic, 0)]) == 7
        rest = []
        for record in consumer:
            rest.append(record.value)
            if len(rest) == 1193:
                break
        assert rest == [b"%d" % i for i in range(7, 1200)]


def test_a_batch_too_large_for_the_topic_is_split(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes=20_000)
    values = [bytes([i % 256]) * 4000 for i in range(60)]
    with KafkaProducer(bootstrap_servers=bootstrap_servers, batch_size=200_000, linger_ms=1000) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(30)
        assert [f.result(0).offset for f in futures] == list(range(60))
    assert [v for _, _, v in read_all(bootstrap_servers, topic, 1, 60)[0]] == values


def test_a_record_too_large_for_the_topic_fails_with_its_place(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes=2000)
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        future = producer.send(topic, b"x" * 5000)
        with pytest.raises(errors.RecordTooLarge) as caught:
            future.result(timeout=30)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)


def test_offset_out_of_range_without_reset_is_an_error(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 77)
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            while not consumer.poll(timeout=30):
                pass
    assert caught.value.topic == topic


def test_admin_sees_what_it_made(bootstrap_servers: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic("made-by-admin", 3, 1)])
        until(lambda: "made-by-admin" in admin.list_topics(), "Kafka's broker has heard of it, a moment after its controller has answered")
        with pytest.raises(errors.TopicExists):
            admin.create_topics([NewTopic("made-by-admin", 3, 1)]).check()
        admin.delete_topics(["made-by-admin"])
        until(lambda: "made-by-admin" not in admin.list_topics(), "the topic is gone")
