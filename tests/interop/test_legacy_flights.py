"""The flights through the old producer and both old consumers, on the embedded broker and on Apache Kafka: equal to their source."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable

import pytest

from kafkacore.cli.flights import COUNT, load_flights
from kafkacore.legacy import (
    EARLIEST_TIME,
    LATEST_TIME,
    AsyncProducer,
    ConsumerConnector,
    KeyedMessage,
    SimpleConsumer,
    default_partitioner,
)

LIMIT = int(os.environ.get("KAFKACORE_LEGACY_FLIGHTS", "5000"))
"""How many flights; 336,776 are all."""
PARTITIONS = 4
GUARD_S = 120.0

ByKey = dict[bytes, list[bytes]]


@pytest.fixture(scope="module")
def truth() -> ByKey:
    """The flights of each carrier, in their order."""
    flights = load_flights(None if LIMIT >= COUNT else LIMIT)
    found: ByKey = defaultdict(list)
    for carrier, document in zip(flights.carriers, flights.documents, strict=True):
        found[carrier].append(document)
    return found


def messages_of(topic: str) -> list[KeyedMessage]:
    flights = load_flights(None if LIMIT >= COUNT else LIMIT)
    return [KeyedMessage(topic, carrier, document) for carrier, document in zip(flights.carriers, flights.documents, strict=True)]


def by_simple_consumer(servers: str, topic: str) -> ByKey:
    found: ByKey = defaultdict(list)
    with SimpleConsumer(bootstrap_servers=servers) as consumer:
        for partition in range(PARTITIONS):
            (at,) = consumer.get_offsets_before(topic, partition, EARLIEST_TIME)
            (end,) = consumer.get_offsets_before(topic, partition, LATEST_TIME)
            while at < end:
                messages = consumer.fetch(topic, partition, at, max_bytes=300_000)
                for message in messages:
                    assert default_partitioner(message.key, PARTITIONS) == partition
                    found[message.key].append(message.value)
                assert messages.next_offset > at
                at = messages.next_offset
    return found


def by_streams(servers: str, topic: str, count: int) -> ByKey:
    """What two streams read; the records of a key come from one partition, so in their order."""
    rows: dict[tuple[int, int], tuple[bytes, bytes]] = {}  # a rebalance may hand out a record to both
    changed = threading.Condition()
    connector = ConsumerConnector(bootstrap_servers=servers, group_id=f"g-{topic}", auto_offset_reset="smallest", heartbeat_interval_ms=200)
    streams = connector.create_message_streams({topic: 2})[topic]

    def read(stream: object) -> None:
        for record in stream:  # type: ignore[attr-defined]
            with changed:
                rows[record.partition, record.offset] = record.key, record.value
                if len(rows) >= count:
                    changed.notify_all()

    threads = [threading.Thread(target=read, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    with changed:
        changed.wait_for(lambda: len(rows) >= count, GUARD_S)
    connector.shutdown()
    for thread in threads:
        thread.join(GUARD_S)
        assert not thread.is_alive()
    found: ByKey = defaultdict(list)
    for _, (key, value) in sorted(rows.items()):
        found[key].append(value)
    assert len(rows) == count
    return found


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", *(pytest.param(each, marks=pytest.mark.kafka_at_length) for each in ("none", "snappy", "lz4"))])
def test_the_flights_come_out_as_they_went_in(bootstrap_servers: str, make_topic: Callable[..., str], truth: ByKey, codec: str) -> None:
    topic = make_topic(PARTITIONS)
    with AsyncProducer(bootstrap_servers=bootstrap_servers, compression_codec=codec, queue_buffering_max_messages=2_000) as producer:
        for message in messages_of(topic):
            producer.send(message)
    assert by_simple_consumer(bootstrap_servers, topic) == truth
    assert by_streams(bootstrap_servers, topic, sum(map(len, truth.values()))) == truth
