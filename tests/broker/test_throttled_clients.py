"""Clients whose quota is used up: they get on, more slowly, and their throttle metrics say so."""

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.errors import ThrottlingQuotaExceeded
from tests.kit.clusters import embedded
from tests.kit.inside import brokers_of
from tests.kit.waiting import fresh, until

RATE = 20_000
"""Bytes a second: ten seconds' worth are free, and what follows waits some tenths of a second."""
VALUE = bytes(68_000)


cluster = embedded(config={"controller.quota.window.num": 1})


@pytest.fixture
def topic(cluster):
    name = fresh()
    cluster.create_topic(name)
    return name


def bound(cluster, client_id, **quotas):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert set(admin.alter_client_quotas({frozenset({("client-id", client_id)}): quotas}).values()) == {None}


def throttled(cluster, kind):
    """Requests and milliseconds."""
    return brokers_of(cluster)[1].call(lambda: brokers_of(cluster)[1].state.quotas.throttled.get(kind, (0, 0)))


def test_a_producer(cluster, topic):
    bound(cluster, topic, producer_byte_rate=RATE)
    before = throttled(cluster, "producer_byte_rate")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id=topic) as producer:
        while throttled(cluster, "producer_byte_rate") == before:
            producer.send(topic, VALUE).result(60)
        producer.send(topic, b"last").result(60)
        longest_ms = producer.metrics(detail=True)["producer-metrics"]["produce-throttle-time-max"]
    assert 0 < round(longest_ms) <= throttled(cluster, "producer_byte_rate")[1] - before[1]
    *others, last = (each.value for each in cluster.records(topic))
    assert (set(others), last) == ({VALUE}, b"last")


def test_a_consumer(cluster, topic):
    for _ in range(12):
        cluster.produce(topic, [VALUE])
    bound(cluster, topic, consumer_byte_rate=RATE)
    before = throttled(cluster, "consumer_byte_rate")
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, client_id=topic, fetch_max_bytes=70_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))

        def longest_ms():
            return consumer.metrics(detail=True)["consumer-fetch-manager-metrics"]["fetch-throttle-time-max"]

        until(lambda: longest_ms() > 0, "the client counts a throttled fetch", consumer)
        assert 0 < round(longest_ms()) <= throttled(cluster, "consumer_byte_rate")[1] - before[1]


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
