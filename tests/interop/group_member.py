"""A member of a group as a process of its own, of any of four clients.

    python -m tests.interop.group_member CLIENT SERVERS GROUP TOPIC STRATEGY

It writes a line per record, `partition offset`, and commits when the lines are out; a commit that failed is tried again after the next
poll, with or without new records. It leaves the group when its standard input ends.
STRATEGY is range, roundrobin, cooperative-sticky, or consumer for KIP-848.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterable
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 300
ended = threading.Event()


def watch_stdin() -> None:
    sys.stdin.read()
    ended.set()


def hand_out(places: Iterable[tuple[int, int]]) -> None:
    lines = "".join(f"{partition} {offset}\n" for partition, offset in places)
    if lines:
        sys.stdout.write(lines)
        sys.stdout.flush()


def ours(servers: str, group: str, topic: str, strategy: str) -> None:
    from kafkacore import KafkaConsumer, errors

    settings: dict[str, Any] = {"group_protocol": "consumer"}
    if strategy != "consumer":
        settings = {
            "partition_assignment_strategy": [strategy],
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
    with KafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **settings
    ) as consumer:
        uncommitted = False
        while not ended.is_set():
            records = consumer.poll(0.1)
            hand_out((tp.partition, record.offset) for tp, found in records.items() for record in found)
            uncommitted = uncommitted or bool(records)
            if uncommitted:
                with contextlib.suppress(errors.CommitFailed, errors.RebalanceInProgress):
                    consumer.commit()
                    uncommitted = False


def confluent(servers: str, group: str, topic: str, strategy: str) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {"group.protocol": "consumer"}
    if strategy != "consumer":
        settings = {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2}
        | settings
    )
    consumer.subscribe([topic])
    uncommitted = False
    while not ended.is_set():
        messages = [m for m in consumer.consume(100, timeout=0.1) if m.error() is None]
        hand_out((m.partition(), m.offset()) for m in messages)
        uncommitted = uncommitted or bool(messages)
        if uncommitted:
            with contextlib.suppress(confluent_kafka.KafkaException):
                consumer.commit(asynchronous=False)
                uncommitted = False
    consumer.close()


def kafka_python(servers: str, group: str, topic: str, strategy: str) -> None:
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor if strategy == "range" else RoundRobinPartitionAssignor],
    )
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])
    uncommitted = False
    while not ended.is_set():
        records = consumer.poll(timeout_ms=100)
        hand_out((tp.partition, record.offset) for tp, found in records.items() for record in found)
        uncommitted = uncommitted or bool(records)
        if uncommitted:
            with contextlib.suppress(KafkaError):
                consumer.commit()
                uncommitted = False
    consumer.close()


def aio_kafka(servers: str, group: str, topic: str, strategy: str) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor if strategy == "range" else RoundRobinPartitionAssignor],
        )
        await consumer.start()
        uncommitted = False
        while not ended.is_set():
            records = await consumer.getmany(timeout_ms=100)
            hand_out((tp.partition, record.offset) for tp, found in records.items() for record in found)
            uncommitted = uncommitted or bool(records)
            if uncommitted:
                with contextlib.suppress(aiokafka.errors.KafkaError):
                    await consumer.commit()
                    uncommitted = False
        await consumer.stop()

    asyncio.run(run())


CLIENTS = {"kafkacore": ours, "confluent": confluent, "kafka-python": kafka_python, "aiokafka": aio_kafka}

if __name__ == "__main__":
    threading.Thread(target=watch_stdin, daemon=True).start()
    CLIENTS[sys.argv[1]](*sys.argv[2:])
