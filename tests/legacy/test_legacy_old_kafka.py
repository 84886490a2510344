"""The old clients on embedded brokers that play Kafka 0.8 to 2.8: flights in the bytes of their day, equal to the source."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest

from kafkacore import KafkaConsumer, TopicPartition, errors
from kafkacore.cli.flights import load_flights
from kafkacore.legacy import (
    EARLIEST_TIME,
    LATEST_TIME,
    AsyncProducer,
    ConsumerConnector,
    DefaultEventHandler,
    FailedToSendMessageError,
    KeyedMessage,
    SimpleConsumer,
    SyncProducer,
)
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row

GUARD_S = 60.0
PARTITIONS = 4
MAGIC = {"0.8": 0, "0.9": 0, "0.10": 1, "2.x": 2}
PRODUCE = {"0.8": 0, "0.9": 1, "0.10": 2, "2.x": 9}
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "auto.create.topics.enable": "false"}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}


@pytest.fixture(scope="module", params=list(MAGIC))
def release(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(release):
    with EmbeddedCluster(brokers=2, emulate=release, config=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def flights():
    found = load_flights(2_000)
    return list(zip(found.carriers, found.documents, strict=True))


def truth_of(flights):
    found = defaultdict(list)
    for carrier, document in flights:
        found[carrier].append(document)
    return found


def settings_of(cluster, release, **more):
    known = {} if release == "2.x" else {"broker_version": release}
    return {"bootstrap_servers": cluster.bootstrap_servers, **known, **more}


@each_row("codec", CODECS)
def test_the_flights_come_out_as_they_went_in(cluster, release, flights, codec):
    topic = f"flights-{codec}"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=2)
    # What the leader alone has written is not yet below LATEST_TIME.
    with AsyncProducer(**settings_of(cluster, release, compression_codec=codec, request_required_acks=-1)) as producer:
        for carrier, document in flights:
            producer.send(KeyedMessage(topic, carrier, document))

    found, stored = defaultdict(list), set()
    with SimpleConsumer(**settings_of(cluster, release)) as consumer:
        for partition in range(PARTITIONS):
            (at,) = consumer.get_offsets_before(topic, partition, EARLIEST_TIME)
            (end,) = consumer.get_offsets_before(topic, partition, LATEST_TIME)
            while at < end:
                fetched = consumer.fetch(topic, partition, at, max_bytes=100_000)
                stored |= {(batch.magic, batch.compression) for batch in fetched.shallow()}
                for message in fetched:
                    found[message.key].append(message.value)
                assert fetched.next_offset > at
                at = fetched.next_offset
    assert found == truth_of(flights)
    assert stored == {(MAGIC[release], CODECS[codec])}


def test_two_streams_read_the_flights(cluster, release, flights):
    if release == "0.8":  # which had its groups in ZooKeeper
        with ConsumerConnector(**settings_of(cluster, release, group_id="g")) as connector:
            cluster.create_topic("no-groups")
            (stream,) = connector.create_message_streams({"no-groups": 1})["no-groups"]
            with pytest.raises(errors.UnsupportedVersion, match="does not support JoinGroup"):
                next(iter(stream))
        return
    topic = "flights-for-streams"
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=2)
    with SyncProducer(**settings_of(cluster, release, compression_codec="gzip", request_required_acks=-1)) as producer:
        producer.send(*(KeyedMessage(topic, carrier, document) for carrier, document in flights))
    rows, changed = {}, threading.Condition()  # a rebalance may hand out a record to both
    connector = ConsumerConnector(
        **settings_of(cluster, release, group_id="streams", auto_offset_reset="smallest", heartbeat_interval_ms=100)
    )

    def read(stream):
        for record in stream:
            with changed:
                rows[record.partition, record.offset] = record.key, record.value
                if len(rows) >= len(flights):
                    changed.notify_all()

    threads = [threading.Thread(target=read, args=(stream,)) for stream in connector.create_message_streams({topic: 2})[topic]]
    for thread in threads:
        thread.start()
    with changed:
        assert changed.wait_for(lambda: len(rows) >= len(flights), GUARD_S)
    connector.shutdown()
    for thread in threads:
        thread.join(GUARD_S)
        assert not thread.is_alive()
    found = defaultdict(list)
    for _, (key, value) in sorted(rows.items()):
        found[key].append(value)
    assert len(rows) == len(flights) and found == truth_of(flights)
    with KafkaConsumer(**settings_of(cluster, release, group_id="streams")) as member:
        committed = member.committed([TopicPartition(topic, p) for p in range(PARTITIONS)])
    assert sum(one.offset for one in committed.values() if one is not None) == len(flights)


def test_a_leader_that_moves_is_found_in_old_bytes(cluster, release):
    topic = "moving"
    cluster.create_topic(topic, partitions=1, replication_factor=2)
    with SyncProducer(**settings_of(cluster, release, request_required_acks=-1, retry_backoff_ms=20)) as producer:
        producer.send(KeyedMessage(topic, b"1"))
        cluster.move_leader(topic, 0, 3 - cluster.leader(topic, 0))
        producer.send(KeyedMessage(topic, b"2"))
        assert producer.statistics().resends.count >= 1
    with SimpleConsumer(**settings_of(cluster, release)) as consumer:
        assert [m.value for m in consumer.fetch(topic, 0, 0)] == [b"1", b"2"]
        cluster.move_leader(topic, 0, 3 - cluster.leader(topic, 0))
        with pytest.raises(errors.NotLeaderOrFollower):
            consumer.fetch(topic, 0, 0)
        assert [m.value for m in consumer.fetch(topic, 0, 0)] == [b"1", b"2"]


def test_what_failed_names_the_old_request(cluster, release):
    """And only that fails: the other partition of its request arrives."""
    with SyncProducer(**settings_of(cluster, release, message_send_max_retries=0, request_required_acks=-1)) as producer:
        for name, limit in (("small", "1000"), ("large", "100000")):
            cluster.create_topic(name, partitions=1, replication_factor=2, configs={"max.message.bytes": limit})
            cluster.move_leader(name, 0, 1)
        with pytest.raises(FailedToSendMessageError) as failed:
            producer.send(KeyedMessage("large", b"l" * 5000), KeyedMessage("small", b"m" * 5000), KeyedMessage("large", b"l"))
        assert producer.statistics().request_size_bytes_avg > 10_000  # both partitions
        producer.send(KeyedMessage("small", b"m" * 500))
        assert producer.statistics().requests.count == 2
    (cause,) = failed.value.failed.values()
    assert isinstance(cause, errors.RecordTooLarge) and cause.api == f"Produce v{PRODUCE[release]}"
    with SimpleConsumer(**settings_of(cluster, release)) as consumer:
        assert [m.value for m in consumer.fetch("large", 0, 0)] == [b"l" * 5000, b"l"]
        assert consumer.get_offsets_before("small", 0, LATEST_TIME, 5) == [1, 0]
        if MAGIC[release] == 0:  # later a fetch brings the first message whole
            small = consumer.fetch("small", 0, 0, max_bytes=100)
            assert (list(small), small.valid_bytes, small.next_offset) == ([], 0, 0)
        with pytest.raises(errors.OffsetOutOfRange):
            consumer.fetch("small", 0, 9)
    if MAGIC[release] == 0:  # it does not say what it speaks
        quick = {"request_timeout_ms": 500, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1}
        said = r"closed the connection.* it is a Kafka before 0\.10, which broker_version='0\.8' \(or '0\.9'\) says"
        with DefaultEventHandler(bootstrap_servers=cluster.bootstrap_servers, **quick) as handler:
            with pytest.raises(FailedToSendMessageError, match=said):
                handler.handle([KeyedMessage("t", b"m")])


def test_other_versions_are_refused():
    with pytest.raises(errors.ConfigError, match=r"broker_version must be one of 0\.8, 0\.9"):
        SimpleConsumer(bootstrap_servers="nowhere:1", broker_version="0.7")


@each_row("only_ends", [True, False])
def test_todays_consumer_reads_from_them(cluster, release, only_ends):
    topic = f"today-{only_ends}"
    cluster.create_topic(topic, partitions=1, replication_factor=1)
    with SyncProducer(**settings_of(cluster, release)) as producer:
        producer.send(KeyedMessage(topic, b"1"), KeyedMessage(topic, b"2"))
    tp = TopicPartition(topic, 0)
    with KafkaConsumer(**settings_of(cluster, release, auto_offset_reset="earliest")) as consumer:
        if only_ends:
            assert (consumer.beginning_offsets([tp]), consumer.end_offsets([tp])) == ({tp: 0}, {tp: 2})
        elif MAGIC[release] == 0:
            with pytest.raises(errors.UnsupportedVersion, match="not offsets by time"):
                consumer.offsets_for_times({tp: 1})
        else:
            assert consumer.offsets_for_times({tp: 1})[tp].offset == 0
        consumer.assign([tp])
        assert [r.value for r in consumer.poll(30)[tp]] == [b"1", b"2"]
