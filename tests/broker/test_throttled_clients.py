"""Clients whose quota is used up, ours and others: they get on, more slowly, and their throttle metrics and callbacks say so."""

import contextlib

import aiokafka
import confluent_kafka
import kafka
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.errors import ThrottlingQuotaExceeded
from tests.kit import rivals
from tests.kit.clusters import embedded
from tests.kit.inside import brokers_of
from tests.kit.loops import run
from tests.kit.records import take
from tests.kit.waiting import fresh

RATE = 20_000
"""Bytes a second: ten seconds' worth are free, and what follows waits some tenths of a second."""
VALUE = bytes(68_000)
COUNT = 3
VALUES = [VALUE] * COUNT + [b"last"]
LEAST_MS, MOST_MS = 50, 1_000


cluster = embedded(config={"controller.quota.window.num": 1})


@pytest.fixture
def topic(cluster):
    name = fresh()
    cluster.create_topic(name)
    return name


def bound(cluster, client_id, **quotas):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert set(admin.alter_client_quotas({frozenset({("client-id", client_id)}): quotas}).values()) == {None}


# Each gives the longest throttle time that the client tells of, in milliseconds; None if it tells of none.


def ours_produces(servers, topic):
    with KafkaProducer(bootstrap_servers=servers, client_id=topic) as producer:
        for value in VALUES:
            producer.send(topic, value).result(60)
        return producer.metrics(detail=True)["producer-metrics"]["produce-throttle-time-max"]


def ours_consumes(servers, topic):
    with KafkaConsumer(bootstrap_servers=servers, client_id=topic, fetch_max_bytes=70_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))
        take(consumer, COUNT)
        return consumer.metrics(detail=True)["consumer-fetch-manager-metrics"]["fetch-throttle-time-max"]


def kafka_python_produces(servers, topic):
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=servers, client_id=topic)) as producer:
        for value in VALUES:
            producer.send(topic, value).get(60)
        return producer.metrics()["producer-metrics"]["throttle-time-max"]


def kafka_python_consumes(servers, topic):
    with contextlib.closing(rivals.kafka_python_consumer(servers, client_id=topic, fetch_max_bytes=70_000)) as consumer:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        rivals.drain(consumer, COUNT)
        return consumer.metrics()["consumer-metrics"]["throttle-time-max"]


def confluent_produces(servers, topic):
    events = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "client.id": topic, "throttle_cb": events.append})
    for value in VALUES:
        rivals.send_all(producer, topic, [value])
    while not events:
        producer.poll(0.1)
    return max(each.throttle_time for each in events) * 1_000


def confluent_consumes(servers, topic):
    events = []
    settings = {"group.id": "unused", "enable.auto.commit": False, "fetch.max.bytes": 70_000, "message.max.bytes": 70_000}
    settings |= {"bootstrap.servers": servers, "client.id": topic, "throttle_cb": events.append}
    with contextlib.closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        rivals.take(consumer, COUNT)
        while not events:
            consumer.poll(0.1)
        return max(each.throttle_time for each in events) * 1_000


def aiokafka_produces(servers, topic):
    async def play():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, client_id=topic) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)

    run(play)


def aiokafka_consumes(servers, topic):
    async def play():
        settings = {"auto_offset_reset": "earliest", "fetch_max_bytes": 70_000, "enable_auto_commit": False}
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, client_id=topic, **settings) as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            for _ in range(COUNT):
                await consumer.getone()

    run(play)


PRODUCERS = [ours_produces, kafka_python_produces, confluent_produces, aiokafka_produces]
CONSUMERS = [ours_consumes, kafka_python_consumes, confluent_consumes, aiokafka_consumes]


def throttled(cluster, kind):
    return brokers_of(cluster)[1].call(lambda: brokers_of(cluster)[1].state.quotas.throttled.get(kind, (0, 0)))


def check(cluster, kind, client, topic):
    before = throttled(cluster, kind)
    told_ms = client(cluster.bootstrap_servers, topic)
    requests, total_ms = (after - each for after, each in zip(throttled(cluster, kind), before, strict=True))
    assert requests >= 1 and total_ms >= LEAST_MS
    if told_ms is not None:
        assert LEAST_MS <= told_ms <= MOST_MS


@pytest.mark.parametrize("client", PRODUCERS, ids=lambda each: each.__name__)
def test_producers(cluster, topic, client):
    bound(cluster, topic, producer_byte_rate=RATE)
    check(cluster, "producer_byte_rate", client, topic)
    assert [each.value for each in cluster.records(topic)] == VALUES


@pytest.mark.parametrize("client", CONSUMERS, ids=lambda each: each.__name__)
def test_consumers(cluster, topic, client):
    for _ in range(COUNT):
        cluster.produce(topic, [VALUE])
    bound(cluster, topic, consumer_byte_rate=RATE)
    check(cluster, "consumer_byte_rate", client, topic)


def test_an_admin_client_asks_again_for_what_a_quota_holds_back(cluster, topic):
    bound(cluster, topic, controller_mutation_rate=40.0)
    names = [f"{topic}-{nth}" for nth in range(4)]
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, client_id=topic) as admin:
        made = admin.create_topics([NewTopic(name, 30) for name in [*names, "t o o"]], timeout=60)
        assert sorted(made) == names and type(made.errors["t o o"]).__name__ == "InvalidTopic"
        assert throttled(cluster, "controller_mutation_rate")[0] >= 1
        # At the end of the call's time the result says what was done, and what was not.
        bound(cluster, topic, controller_mutation_rate=1.0)
        late = admin.create_partitions(dict.fromkeys(names, 34), timeout=1)
        assert {type(each) for each in late.errors.values()} == {ThrottlingQuotaExceeded} and len(late) + len(late.errors) == 4
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, client_id=topic) as admin:
        at_once = admin.delete_topics(names, retry_on_quota_violation=False)
        assert len(at_once.errors) == 4
        bound(cluster, topic, controller_mutation_rate=10_000.0)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, client_id=topic) as admin:
        assert sorted(admin.delete_topics(names, timeout=60)) == names
