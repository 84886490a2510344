"""Transactions against a cluster: topics, transactional producers, and what readers of committed data see."""

from __future__ import annotations

import time
from typing import Any

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition
from tests.kit.waiting import fresh

GUARD_S = 60


def new_topic(cluster: Any, partitions: int = 3) -> str:
    name = fresh("t")
    cluster.create_topic(name, partitions=partitions)
    return name


def transactional(servers: str, transactional_id: str | None = None, **settings: Any) -> KafkaProducer:
    settings = {"linger_ms": 0, "max_block_ms": GUARD_S * 1000, "retry_backoff_ms": 20} | settings
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id or fresh("tx"), **settings)
    producer.init_transactions()
    return producer


def values_in(servers: str, topic: str, partitions: int = 3, isolation_level: str = "read_committed") -> list[str]:
    """All values up to the end as readers of this isolation level see it, sorted. Waits until no transaction holds them back."""
    where = [TopicPartition(topic, index) for index in range(partitions)]
    got: list[str] = []
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_uncommitted", enable_auto_commit=False) as other:
        ends = other.end_offsets(where)
    with KafkaConsumer(
        bootstrap_servers=servers, isolation_level=isolation_level, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(where)
        deadline = time.monotonic() + GUARD_S
        while any(consumer.position(each) < ends[each] for each in where):
            assert time.monotonic() < deadline, f"read up to {[consumer.position(each) for each in where]} of {ends}"
            for records in consumer.poll(timeout=0.2).values():
                got += [(record.value or b"").decode() for record in records]
    return sorted(got)
