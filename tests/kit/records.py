"""Records written and read by this package's own clients, for tests of something else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafkacore import ConsumerRecord, KafkaConsumer, KafkaProducer, TopicPartition
from tests.kit.waiting import GUARD_S


def numbered(count: int, name: bytes = b"", first: int = 0) -> list[bytes]:
    """Values name0, name1, ..."""
    return [b"%s%d" % (name, i) for i in range(first, first + count)]


def fill(servers: str, topic: str, values: Sequence[Any], partition: int | Sequence[int] | None = 0, **fields: Any) -> list[int]:
    """Writes values, acknowledged by all replicas, and returns their offsets.

    Args:
        servers: addresses.
        topic: its name.
        values: what to write, in this order.
        partition: where all go, or where each goes; None leaves it to the partitioner.
        fields: more of `send_many`: keys, headers, timestamps_ms.
    """
    partitions = [partition] * len(values) if isinstance(partition, int) else partition
    with KafkaProducer(bootstrap_servers=servers) as producer:
        sent = producer.send_many(topic, values, partitions=partitions, **fields).result(timeout=GUARD_S)
    return list(sent.offsets)


def read(servers: str, topic: str, count: int, partition: int = 0, **settings: Any) -> list[ConsumerRecord]:
    """The first records of a partition, once so many are there."""
    with KafkaConsumer(bootstrap_servers=servers, **{"auto_offset_reset": "earliest", **settings}) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        return take(consumer, count)


def all_values(servers: str, topic: str, partition: int = 0, **settings: Any) -> list[bytes]:
    """What a partition holds now."""
    with KafkaConsumer(bootstrap_servers=servers, **settings) as consumer:
        (end,) = consumer.end_offsets([TopicPartition(topic, partition)]).values()
        return [value for columns in consumer.read_range((topic, partition), 0, end) for value in columns.values]


def read_committed(servers: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    """The first values that readers of committed data see, of each of some partitions; those of one in their order."""
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        return values_of(take(consumer, count))


def take(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """What the next polls give, until there are so many records; by partition in their order."""
    found: list[ConsumerRecord] = []
    end_s = time.monotonic() + GUARD_S
    while len(found) < count:
        assert time.monotonic() < end_s, f"{len(found)} of {count} records came"
        for records in consumer.poll(0.1).values():
            found.extend(records)
    return found


def values_of(records: Iterable[ConsumerRecord]) -> list[Any]:
    """Their values."""
    return [record.value for record in records]


def producer_of(cluster: Any, **settings: Any) -> KafkaProducer:
    """A producer of a cluster, which waits for no further record."""
    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **({"linger_ms": 0} | settings))
