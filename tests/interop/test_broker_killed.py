"""The broker is killed in the middle of a run and comes back: with idempotence and acks=all nothing is lost and nothing is doubled."""

from __future__ import annotations

import threading

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import fresh

pytestmark = pytest.mark.usefixtures("client_face")

COUNT, PARTITIONS = 30_000, 3


def produce_through_an_outage(servers: str, topic: str, outage: threading.Thread) -> None:
    """Send COUNT numbered records; the outage begins in the middle and is over before the end."""
    with KafkaProducer(bootstrap_servers=servers, linger_ms=2, batch_size=4096, reconnect_backoff_max_ms=200) as producer:
        futures = []
        for i in range(COUNT):
            futures.append(producer.send(topic, b"%08d" % i, partition=i % PARTITIONS))
            if i == COUNT // 3:
                futures[0].result(timeout=60)
                outage.start()
        producer.flush(120)
        outage.join(120)
        offsets = [[f.result(0).offset for f in futures[p::PARTITIONS]] for p in range(PARTITIONS)]
        assert offsets == [list(range(COUNT // PARTITIONS))] * PARTITIONS


def check_nothing_lost_nothing_doubled(servers: str, topic: str) -> None:
    got: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        ends = consumer.end_offsets(consumer.assignment())
        assert sum(ends.values()) == COUNT
        while sum(map(len, got.values())) < COUNT:
            polled = consumer.poll(timeout=30, max_records=50_000)
            assert polled, "records are missing"
            for where, records in polled.items():
                got[where.partition] += [int(r.value) for r in records]
    assert got == {p: list(range(p, COUNT, PARTITIONS)) for p in range(PARTITIONS)}


@pytest.mark.kafka
@pytest.mark.slow
def test_killing_kafka_loses_and_doubles_nothing() -> None:
    topic = fresh("killed")
    with KafkaServer() as server:  # its own node: the others' must live

        def outage() -> None:
            server.kill()
            server.start()

        with KafkaAdminClient(bootstrap_servers=server.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
        produce_through_an_outage(server.bootstrap_servers, topic, threading.Thread(target=outage))
        check_nothing_lost_nothing_doubled(server.bootstrap_servers, topic)
