"""Clients whose quota is used up, ours and librdkafka's: they get on, more slowly, and their throttle metrics and callbacks say so."""

import contextlib

import confluent_kafka
import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.errors import ThrottlingQuotaExceeded
from tests.kit import rivals
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


# Each goes on until the broker has throttled it, however slow the machine is, and gives the longest throttle time that the client counts,
# in milliseconds.


def ours_produces(servers, topic, is_throttled):
    with KafkaProducer(bootstrap_servers=servers, client_id=topic) as producer:
        while not is_throttled():
            producer.send(topic, VALUE).result(60)
        producer.send(topic, b"last").result(60)
        return producer.metrics(detail=True)["producer-metrics"]["produce-throttle-time-max"]


def ours_consumes(servers, topic, is_throttled):
    with KafkaConsumer(bootstrap_servers=servers, client_id=topic, fetch_max_bytes=70_000) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))
        until(is_throttled, "a throttled fetch", consumer)

        def longest_ms():
            return consumer.metrics(detail=True)["consumer-fetch-manager-metrics"]["fetch-throttle-time-max"]

        until(lambda: longest_ms() > 0, "the client counts it", consumer)
        return longest_ms()


def confluent_produces(servers, topic, is_throttled):
    events = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "client.id": topic, "throttle_cb": events.append})
    while not is_throttled():
        rivals.send_all(producer, topic, [VALUE])
    rivals.send_all(producer, topic, [b"last"])
    while not events:
        producer.poll(0.1)
    return max(each.throttle_time for each in events) * 1_000


def confluent_consumes(servers, topic, is_throttled):
    events = []
    settings = {"group.id": "unused", "enable.auto.commit": False, "fetch.max.bytes": 70_000, "message.max.bytes": 70_000}
    settings |= {"bootstrap.servers": servers, "client.id": topic, "throttle_cb": events.append}
    with contextlib.closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while not (is_throttled() and events):
            consumer.poll(0.1)
        return max(each.throttle_time for each in events) * 1_000


@pytest.mark.parametrize("client", [ours_produces, confluent_produces, ours_consumes, confluent_consumes], ids=lambda each: each.__name__)
def test_clients(cluster, topic, client):
    kind = "producer_byte_rate" if "produces" in client.__name__ else "consumer_byte_rate"
    if kind == "consumer_byte_rate":
        for _ in range(12):
            cluster.produce(topic, [VALUE])
    bound(cluster, topic, **{kind: RATE})
    before = throttled(cluster, kind)
    longest_ms = client(cluster.bootstrap_servers, topic, lambda: throttled(cluster, kind) != before)
    assert 0 < round(longest_ms) <= throttled(cluster, kind)[1] - before[1]
    if kind == "producer_byte_rate":
        *others, last = (each.value for each in cluster.records(topic))
        assert (set(others), last) == ({VALUE}, b"last")


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
