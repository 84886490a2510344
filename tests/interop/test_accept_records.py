"""Acceptance: producing and consuming by unmodified clients, with the same expectations of the embedded broker and of Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kit.rivals import (
    confluent_admin,
    confluent_consumer,
    confluent_producer,
    error_of,
    kafka_python_consumer,
    read_from_start,
    send_all,
)
from tests.kit.waiting import GUARD_S as WAIT_S

pytestmark = [pytest.mark.timeout(120), pytest.mark.kafka_at_length]

MakeTopic = Callable[..., str]


def confluent_writes(servers: str, topic: str, acks: int, values: list[bytes]) -> None:
    send_all(confluent_producer(servers, acks=acks), topic, values)


def kafka_python_writes(servers: str, topic: str, acks: int, values: list[bytes]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks=acks, enable_idempotence=False)
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush(WAIT_S)
    producer.close()


def aiokafka_writes(servers: str, topic: str, acks: int, values: list[bytes]) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks=acks)
        await producer.start()
        try:
            for value in values:
                await producer.send(topic, value, partition=0)
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(run())


WRITERS = {"confluent": confluent_writes, "kafka-python": kafka_python_writes, "aiokafka": aiokafka_writes}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_every_acks(bootstrap_servers: str, make_topic: MakeTopic, writer: str) -> None:
    """With acks=0 nothing is answered, and the records are there all the same."""
    topic = make_topic()
    expected: list[bytes] = []
    for acks in (0, 1, -1):
        values = [b"acks=%d %d " % (acks, n) * 20 for n in range(20)]
        WRITERS[writer](bootstrap_servers, topic, acks, values)
        expected += values
        if acks == 0:  # the next producer's connection may overtake this one
            read_from_start(bootstrap_servers, topic, len(expected))
    messages = read_from_start(bootstrap_servers, topic, len(expected), check_crcs=True)
    assert [message.value() for message in messages] == expected
    assert [message.offset() for message in messages] == list(range(len(expected)))


def test_offsets_by_time_and_watermarks(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_producer(bootstrap_servers)
    for n in range(5):
        send_all(producer, topic, [b"%d" % n], timestamp=1_600_000_000_000 + n * 1000)
    wanted = {
        0: 0,
        1_600_000_000_000: 0,
        1_600_000_000_001: 1,
        1_600_000_002_500: 3,
        1_600_000_004_000: 4,
        1_600_000_004_001: -1,
    }
    consumer = confluent_consumer(bootstrap_servers)
    by_aiokafka = asyncio.run(_aiokafka_offsets(bootstrap_servers, topic, list(wanted)))
    by_kafka_python = kafka_python_consumer(bootstrap_servers)
    for when_ms, offset in wanted.items():
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, when_ms)], timeout=WAIT_S)
        assert found.offset == offset, when_ms
        where = kafka.TopicPartition(topic, 0)
        answer = by_kafka_python.offsets_for_times({where: when_ms})[where]
        assert (-1 if answer is None else answer.offset) == offset, when_ms
        assert by_aiokafka[when_ms] == offset, when_ms
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 5)
    consumer.close()
    by_kafka_python.close()
    admin = confluent_admin(bootstrap_servers)
    place = TopicPartition(topic, 0)
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5), (OffsetSpec.max_timestamp(), 4)):
        assert admin.list_offsets({place: spec})[place].result(WAIT_S).offset == offset


async def _aiokafka_offsets(servers: str, topic: str, times_ms: list[int]) -> dict[int, int]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    try:
        where = aiokafka.TopicPartition(topic, 0)
        found = {when_ms: (await consumer.offsets_for_times({where: when_ms}))[where] for when_ms in times_ms}
        assert await consumer.beginning_offsets([where]) == {where: 0}
        return {when_ms: -1 if answer is None else answer.offset for when_ms, answer in found.items()}
    finally:
        await consumer.stop()


def test_a_big_message_and_the_limits(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """A message of 3 MB needs a topic that allows it; it is fetched whole even by a consumer that asks for less (KIP-74)."""
    topic, narrow = make_topic(max_message_bytes=4_000_000), make_topic(max_message_bytes=1000)
    producer = confluent_producer(bootstrap_servers, message_max_bytes=10_000_000)
    big = bytes(range(256)) * 12_000
    send_all(producer, topic, [big, b"small"])
    messages = read_from_start(bootstrap_servers, topic, 2, max_partition_fetch_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000)
    assert [message.value() for message in messages] == [big, b"small"]
    assert error_of(lambda: send_all(producer, narrow, [b"x" * 2000])) == "MSG_SIZE_TOO_LARGE"
    assert error_of(lambda: send_all(producer, topic, [b"x" * 4_000_001])) == "MSG_SIZE_TOO_LARGE"
    assert send_all(producer, narrow, [b"x" * 500]) == [0]


def test_idempotent_producers_of_all_clients_share_a_partition(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    values = [b"%d" % n for n in range(300)]
    assert send_all(confluent_producer(bootstrap_servers, enable_idempotence=True, batch_num_messages=7), topic, values) == list(range(300))
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True, batch_size=200)
    futures = [producer.send(topic, value, partition=0) for value in values]
    assert [future.get(WAIT_S).offset for future in futures] == list(range(300, 600))
    producer.close()

    async def run() -> list[int]:
        third = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True, max_batch_size=200)
        await third.start()
        try:
            sent = [await third.send(topic, value, partition=0) for value in values]
            return [metadata.offset for metadata in await asyncio.gather(*sent)]
        finally:
            await third.stop()

    assert asyncio.run(run()) == list(range(600, 900))
    assert [message.value() for message in read_from_start(bootstrap_servers, topic, 900)] == values * 3
