"""Acceptance: what unmodified clients expect, of the embedded broker and of Apache Kafka alike.

Each of them alone, program by program, is in tests/compat; here they meet.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.errors import ProducerFenced
from confluent_kafka import Producer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from tests.kit.rivals import (
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    read_from_start,
    send_all,
    subscribe,
    take,
)
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(300), pytest.mark.kafka_at_length]
PARTITIONS = 4
UNCOMMITTED = {"isolation_level": "read_uncommitted"}
COMMITTED = {"isolation_level": "read_committed"}


def test_three_clients_in_one_group(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """The three agree on an assignor, and their subscription metadata understands each other."""
    topic, group = make_topic(PARTITIONS), fresh("g")
    written = {b"%d-%d" % (partition, n) for partition in range(PARTITIONS) for n in range(10)}
    producer = confluent_producer(bootstrap_servers)
    for value in written:
        send_all(producer, topic, [value], partition=int(value[:1]))
    got: list[bytes] = []

    async def run() -> None:
        third = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            heartbeat_interval_ms=200,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[AiokafkaRange],
        )
        await third.start()  # first and alone: it ends when the group is whole, and nobody polls the others meanwhile
        settings = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 200, "partition_assignment_strategy": "range"}
        rdkafka = confluent_consumer(bootstrap_servers, group_id=group, **settings)
        rdkafka.subscribe([topic])
        python = kafka_python_consumer(
            bootstrap_servers,
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=45_000,
            partition_assignment_strategy=[KafkaPythonRange],
        )
        subscribe(python, topic)
        ended = threading.Event()
        shares: dict[str, int] = {}

        def poll_python() -> None:
            while not ended.is_set():
                got.extend(record.value for records in python.poll(200).values() for record in records)
                shares["kafka-python"] = len(python.assignment())

        def poll_rdkafka() -> None:
            while not ended.is_set():
                if (message := rdkafka.poll(0.02)) is not None:
                    assert message.error() is None, message.error()
                    got.append(message.value())
                shares["confluent"] = len(rdkafka.assignment())

        async def poll_third() -> None:
            while not ended.is_set():
                for records in (await third.getmany(timeout_ms=200)).values():
                    got.extend(record.value for record in records)
                shares["aiokafka"] = len(third.assignment())

        # Each in its own time: a member that is polled in turns keeps the others waiting while the group takes its members in.
        tasks = [asyncio.ensure_future(each) for each in (asyncio.to_thread(poll_python), asyncio.to_thread(poll_rdkafka), poll_third())]
        try:
            deadline = time.monotonic() + WAIT_S
            while not (sorted(shares.values()) == [1, 1, 2] and set(got) == written):
                assert time.monotonic() < deadline, f"{shares}, {len(set(got))} of {len(written)}"
                assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
                await asyncio.sleep(0.02)
        finally:
            ended.set()
            await asyncio.wait(tasks)
            await third.stop()
            rdkafka.close()
            python.close()

    asyncio.run(run())


def transactional(servers: str, transactional_id: str, **settings: Any) -> Producer:
    producer = confluent_producer(servers, transactional_id=transactional_id, **settings)
    producer.init_transactions(WAIT_S)
    return producer


def values(servers: str, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    return [message.value() for message in read_from_start(servers, topic, count, **settings)]


def test_a_second_producer_of_the_id_fences_the_first(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """The transaction that the first one left open is aborted before the second one starts."""
    topic, transactional_id = make_topic(), fresh("tx")
    first = transactional(bootstrap_servers, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"zombie", partition=0)
    first.flush(WAIT_S)
    second = transactional(bootstrap_servers, transactional_id)
    second.begin_transaction()
    second.produce(topic, b"heir", partition=0)
    second.commit_transaction(WAIT_S)
    first.produce(topic, b"from the grave", partition=0)
    assert error_of(lambda: first.commit_transaction(WAIT_S)) in ("_FENCED", "_STATE", "_FATAL")
    assert values(bootstrap_servers, topic, 1, **COMMITTED) == [b"heir"]
    assert values(bootstrap_servers, topic, 2, **UNCOMMITTED) == [b"zombie", b"heir"]

    async def fence_by_aiokafka() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # aiokafka leaves the same error in a future, too
        one = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
        two = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
        await one.start()
        await two.start()
        try:
            await one.begin_transaction()
            with pytest.raises(ProducerFenced):
                await one.send_and_wait(topic, b"late", partition=0)
                await one.commit_transaction()
        finally:
            await two.stop()
            await one.stop()

    asyncio.run(fence_by_aiokafka())


def test_offsets_are_committed_with_the_transaction(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """Consume, transform, produce: aborted offsets are forgotten, and a restart reads them again."""
    source, target, group = make_topic(), make_topic(), fresh("g")
    send_all(confluent_producer(bootstrap_servers), source, [b"%d" % n for n in range(10)])
    producer = transactional(bootstrap_servers, fresh("tx"))

    def round_of(commit: bool) -> list[bytes]:
        consumer = confluent_consumer(bootstrap_servers, group_id=group, heartbeat_interval_ms=200)
        consumer.subscribe([source])
        got = [message.value() for message in take(consumer, 5)]
        consumer.pause(consumer.assignment())
        producer.begin_transaction()
        for value in got:
            producer.produce(target, value * 2, partition=0)
        producer.send_offsets_to_transaction([TopicPartition(source, 0, int(got[-1]) + 1)], consumer.consumer_group_metadata(), WAIT_S)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
        consumer.close()
        return got

    assert round_of(commit=False) == [b"0", b"1", b"2", b"3", b"4"]
    assert round_of(commit=True) == [b"0", b"1", b"2", b"3", b"4"]
    assert round_of(commit=True) == [b"5", b"6", b"7", b"8", b"9"]
    assert values(bootstrap_servers, target, 10, **COMMITTED) == [b"%d" % n * 2 for n in range(10)]
    after = confluent_consumer(bootstrap_servers, group_id=group)
    assert after.committed([TopicPartition(source, 0)], timeout=WAIT_S)[0].offset == 10
    after.close()
