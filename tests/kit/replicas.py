"""The topic "t" of three brokers, as clients and the brokers themselves see its partition 0."""

from __future__ import annotations

from typing import Any

from kafkacore import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.records import read
from tests.kit.waiting import GUARD_S


def address_of(cluster: EmbeddedCluster, broker: int) -> str:
    """Where a broker listens."""
    return cluster.bootstrap_servers.split(",")[broker - 1]


def followers_of(cluster: EmbeddedCluster) -> list[int]:
    """The brokers that do not lead it."""
    return [broker for broker in (1, 2, 3) if broker != cluster.leader("t", 0)]


def in_step(cluster: EmbeddedCluster) -> bool:
    """All replicas are in sync and hold the same."""
    return len(cluster.isr("t", 0)) == 3 and len({cluster.end_offset("t", 0, broker) for broker in (1, 2, 3)}) == 1


def write_numbers(cluster: EmbeddedCluster, count: int, first: int = 0, **settings: Any) -> list[int]:
    """Writes as many numbers, one after the other, and returns their offsets."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        futures = [producer.send("t", b"%d" % (first + nth), partition=0) for nth in range(count)]
        return [future.result(timeout=GUARD_S).offset for future in futures]


def read_numbers(cluster: EmbeddedCluster, count: int, **settings: Any) -> list[int]:
    """The first numbers in it."""
    return [int(record.value) for record in read(cluster.bootstrap_servers, "t", count, **settings)]
