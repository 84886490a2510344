"""Topics full of numbered records."""

from __future__ import annotations

import pytest

from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster


def numbered_topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest, replication_factor: int = 1) -> str:
    """Creates a topic of the test's own, with RECORDS records in PARTITIONS partitions, both of the test's module."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    cluster.create_topic(name, partitions=request.module.PARTITIONS, replication_factor=replication_factor)
    send_numbers(cluster, name, request.module.PARTITIONS, request.module.RECORDS)
    return name


def send_numbers(cluster: EmbeddedCluster, topic: str, partitions: int, records: int) -> None:
    """Sends the numbers below `records`, to one partition after the other."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(records)], partitions=[i % partitions for i in range(records)])
