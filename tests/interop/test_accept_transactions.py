"""Acceptance: transactions by unmodified clients, with the same expectations of the embedded broker and of Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import Producer, TopicPartition

from tests.kit.rivals import (
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    marked,
    read_from_start,
    send_all,
    take,
)
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
pytestmark = [pytest.mark.timeout(120), pytest.mark.slow, pytest.mark.kafka_at_length]
UNCOMMITTED = {"isolation_level": "read_uncommitted"}
COMMITTED = {"isolation_level": "read_committed"}


def transactional(servers: str, transactional_id: str, **settings: Any) -> Producer:
    producer = confluent_producer(servers, transactional_id=transactional_id, **settings)
    producer.init_transactions(WAIT_S)
    return producer


def values(servers: str, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    return [message.value() for message in read_from_start(servers, topic, count, **settings)]


def confluent_transactions(servers: str, topic: str, transactional_id: str, plan: list[tuple[bytes, bool]]) -> None:
    producer = transactional(servers, transactional_id)
    for value, commit in plan:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.flush(WAIT_S)  # or an abort would drop what was not yet sent
            producer.abort_transaction(WAIT_S)


def kafka_python_transactions(servers: str, topic: str, transactional_id: str, plan: list[tuple[bytes, bool]]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
    producer.init_transactions()
    for value, commit in plan:
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(WAIT_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def aiokafka_transactions(servers: str, topic: str, transactional_id: str, plan: list[tuple[bytes, bool]]) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        await producer.start()
        try:
            for value, commit in plan:
                await producer.begin_transaction()
                await producer.send_and_wait(topic, value, partition=0)
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(run())


WRITERS = {"confluent": confluent_transactions, "kafka-python": kafka_python_transactions, "aiokafka": aiokafka_transactions}


@pytest.mark.parametrize("writer", WRITERS)
def test_committed_readers_see_what_was_committed(bootstrap_servers: str, make_topic: MakeTopic, writer: str) -> None:
    topic = make_topic()
    plan = [(b"a", True), (b"b", False), (b"c", True), (b"d", False), (b"e", False), (b"f", True)]
    WRITERS[writer](bootstrap_servers, topic, fresh("tx"), plan)
    marked(bootstrap_servers, topic, 11)
    send_all(confluent_producer(bootstrap_servers), topic, [b"last"])
    committed = read_from_start(bootstrap_servers, topic, 4, **COMMITTED)
    assert [(message.value(), message.offset()) for message in committed] == [(b"a", 0), (b"c", 4), (b"f", 10), (b"last", 12)]
    assert values(bootstrap_servers, topic, 7, **UNCOMMITTED) == [b"a", b"b", b"c", b"d", b"e", b"f", b"last"]
    python = kafka_python_consumer(bootstrap_servers, isolation_level="read_committed")
    python.assign([kafka.TopicPartition(topic, 0)])
    got: list[bytes] = []
    until(lambda: (got.extend(r.value for records in python.poll(100).values() for r in records), len(got) >= 4)[1], "it reads them")
    assert got == [b"a", b"c", b"f", b"last"]
    python.close()


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
