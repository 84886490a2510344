"""The old producers on an embedded cluster: what arrives, what a moved or lost leader costs, what is said when nothing helps."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest

from kafkacore import KafkaConsumer, TopicPartition, errors
from kafkacore.legacy import (
    FailedToSendMessageError,
    KeyedMessage,
    SyncProducer,
    default_partitioner,
)
from kafkacore.protocol import ProduceResponse
from kafkacore.protocol.data import PartitionProduceResponse, TopicProduceResponse
from kafkacore.testing import EmbeddedCluster

names = (f"t{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=3, config={"auto_create_topics_enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(cluster):
    name = next(names)
    cluster.create_topic(name, partitions=4, replication_factor=3)
    return name


def rows_by_partition(cluster, topic, partitions=4):
    """(key, value) of all records, by partition, once the followers have them: up to the ends of the leaders' logs."""
    ends = {TopicPartition(topic, p): cluster.end_offset(topic, p, cluster.leader(topic, p)) for p in range(partitions)}
    found = defaultdict(list)
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(list(ends))
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for tp, records in consumer.poll(10).items():
                found[tp.partition] += [(r.key, r.value) for r in records]
    return dict(found)


def keyed_messages(topic, count, keys=10):
    return [KeyedMessage(topic, f"k{n % keys}", b"%d" % n) for n in range(count)]


def by_partition(messages, partitions=4):
    found = defaultdict(list)
    for m in messages:
        found[default_partitioner(m.partition_key, partitions)].append((m.key.encode(), m.message))
    return dict(found)


@pytest.mark.parametrize(("acks", "codec"), [(0, "none"), (1, "gzip"), (-1, "snappy"), (-1, "lz4")])
def test_everything_arrives_where_the_partitioner_says(cluster, topic, codec, acks):
    messages = keyed_messages(topic, 300)
    with SyncProducer(bootstrap_servers=cluster.bootstrap_servers, compression_codec=codec, request_required_acks=acks) as producer:
        producer.send(*messages)
    assert rows_by_partition(cluster, topic) == by_partition(messages)


def test_a_set_larger_than_a_record_batch_may_be_goes_in_several(cluster, topic):
    messages = [KeyedMessage(topic, "k", b"%06d" % n + b"x" * 10_000) for n in range(300)]  # 3 MB for one partition; a batch may have 1
    with SyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(*messages)
        assert producer.statistics().requests.count >= 3
    assert rows_by_partition(cluster, topic) == by_partition(messages)


def refusing(*codes):
    """Answers the next requests with these codes for all partitions, and the rest as the broker does."""
    left = list(codes)

    def answer(request):
        if not left:
            return None
        code = left.pop(0)
        topics = [
            TopicProduceResponse(
                name=t.name,
                partition_responses=[PartitionProduceResponse(index=p.index, error_code=code, base_offset=-1) for p in t.partition_data],
            )
            for t in request.topic_data
        ]
        return ProduceResponse(responses=topics)

    return answer


def test_what_cannot_be_sent_is_named_with_its_partition_broker_and_cause(cluster, topic):
    cluster.control("Produce", refusing(*[19] * 99))
    try:
        with SyncProducer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=1) as producer:
            with pytest.raises(FailedToSendMessageError) as failed:
                producer.send(KeyedMessage(topic, "k", b"m"), KeyedMessage("not-there", b"n"))
    finally:
        cluster.control("Produce", None)
    partition = default_partitioner("k", 4)
    causes = failed.value.failed
    assert isinstance(causes[TopicPartition(topic, partition)], errors.NotEnoughReplicas)
    assert causes[TopicPartition(topic, partition)].broker == cluster.leader(topic, partition)
    assert causes[TopicPartition(topic, partition)].api.startswith("Produce v")
    assert isinstance(causes[TopicPartition("not-there", -1)], errors.UnknownTopicOrPartition)
    assert sorted(m.topic for m in failed.value.messages) == ["not-there", topic]


def test_what_an_answer_leaves_out_is_not_sent(cluster, topic):
    cluster.control("Produce", lambda request: ProduceResponse(responses=[]))
    try:
        with SyncProducer(bootstrap_servers=cluster.bootstrap_servers, message_send_max_retries=0) as producer:
            with pytest.raises(FailedToSendMessageError) as failed:
                producer.send(*(KeyedMessage(topic, key, b"m") for key in ("a", "b", "c", "d")))
    finally:
        cluster.control("Produce", None)
    assert {type(cause) for cause in failed.value.failed.values()} == {errors.UnknownServer}
    assert len(failed.value.messages) == 4


def test_a_cluster_that_is_gone_is_an_error_in_time():
    with EmbeddedCluster(brokers=1) as cluster:
        servers = cluster.bootstrap_servers
        for name in ("t", "u"):
            cluster.create_topic(name)
        producer = SyncProducer(
            bootstrap_servers=servers, retry_backoff_ms=1, message_send_max_retries=1, request_timeout_ms=1000, reconnect_backoff_max_ms=50
        )
        producer.send(KeyedMessage("t", b"m"), KeyedMessage("u", b"m"))
    with pytest.raises(FailedToSendMessageError) as failed:
        producer.send(KeyedMessage("t", b"n"), KeyedMessage("u", b"n"))
    producer.close()
    assert sorted(tp.topic for tp in failed.value.failed) == sorted(m.topic for m in failed.value.messages) == ["t", "u"]
    assert isinstance(failed.value.attempts[0], errors.NetworkError)
    assert "no broker can be reached" in str(failed.value)


def test_messages_without_key_share_a_partition(cluster, topic):
    with SyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for n in range(20):
            producer.send(KeyedMessage(topic, b"%d" % n))
    assert list(rows_by_partition(cluster, topic).values()) == [[(None, b"%d" % n) for n in range(20)]]
