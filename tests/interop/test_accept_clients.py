"""Unmodified clients that meet in a group and in a transactional id, on the embedded broker and on Apache Kafka alike.

Each of them alone, program by program, is in tests/compat.
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
from confluent_kafka import Producer
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange

from tests.kit.rivals import (
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    read_from_start,
    send_all,
    subscribe,
)
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(300), pytest.mark.kafka_at_length]
PARTITIONS = 4


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
    for isolation_level, seen in (("read_committed", [b"heir"]), ("read_uncommitted", [b"zombie", b"heir"])):
        found = read_from_start(bootstrap_servers, topic, len(seen), isolation_level=isolation_level)
        assert [message.value() for message in found] == seen

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
