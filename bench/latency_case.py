"""A producer or a consumer of records that carry their time, of one client, in a process of its own; run by latency.py.

    python bench/latency_case.py produce|consume CLIENT SERVERS TOPIC LINGER_MS RATE COUNT

The consumer is a member of a group; it prints `ready` when it has its partitions, and, when COUNT records have come, a line of JSON: the
nanoseconds from before each send to the record in hand. The producer sends RATE records per second once it reads a line from stdin.
Both look at CLOCK_MONOTONIC, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

RECORD_BYTES = 100
PADDING = b"x" * (RECORD_BYTES - 8)


def paced(send: Callable[[bytes], object], rate: int, count: int) -> None:
    """Sends at equal distances; a send that is late is not waited for by those behind it."""
    sys.stdin.readline()
    begin_ns = time.monotonic_ns()
    for nth in range(count):
        ahead_ns = begin_ns + nth * 1_000_000_000 // rate - time.monotonic_ns()
        if ahead_ns > 0:
            time.sleep(ahead_ns / 1e9)
        send(time.monotonic_ns().to_bytes(8, "big") + PADDING)


def kafkacore_produce(servers: str, topic: str, linger_ms: int, rate: int, count: int) -> None:
    from kafkacore import KafkaProducer

    with KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=linger_ms) as producer:
        producer.partitions_for(topic)
        print("ready", flush=True)
        paced(lambda value: producer.send(topic, value), rate, count)


def confluent_produce(servers: str, topic: str, linger_ms: int, rate: int, count: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": linger_ms})
    producer.list_topics(topic, timeout=30)
    print("ready", flush=True)
    paced(lambda value: producer.produce(topic, value), rate, count)
    producer.flush(30)


def taken_ns(value: bytes) -> int:
    return time.monotonic_ns() - int.from_bytes(value[:8], "big")


def kafkacore_consume(servers: str, topic: str, linger_ms: int, rate: int, count: int) -> list[int]:
    from kafkacore import KafkaConsumer

    found: list[int] = []
    with KafkaConsumer(topic, bootstrap_servers=servers, group_id=f"latency-{topic}", auto_offset_reset="latest") as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        for tp in consumer.assignment():
            consumer.position(tp)
        print("ready", flush=True)
        while len(found) < count:
            for records in consumer.poll(1).values():
                found += [taken_ns(record.value) for record in records]
    return found


def confluent_consume(servers: str, topic: str, linger_ms: int, rate: int, count: int) -> list[int]:
    import confluent_kafka

    found: list[int] = []
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": f"latency-{topic}", "auto.offset.reset": "latest"})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    for _ in range(20):
        consumer.poll(0.1)  # it says of no position that it is known before a record has come
    print("ready", flush=True)
    while len(found) < count:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(taken_ns(message.value()))
    consumer.close()
    return found


CASES: dict[tuple[str, str], Callable[[str, str, int, int, int], Any]] = {
    ("produce", "kafkacore"): kafkacore_produce,
    ("produce", "confluent"): confluent_produce,
    ("consume", "kafkacore"): kafkacore_consume,
    ("consume", "confluent"): confluent_consume,
}

if __name__ == "__main__":
    what, client, servers, topic, *numbers = sys.argv[1:]
    result = CASES[what, client](servers, topic, *map(int, numbers))
    print(json.dumps({"latencies_ns": result}), flush=True)
