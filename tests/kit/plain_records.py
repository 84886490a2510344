"""The other Python clients behind two plain functions each: write records, read records back in order of offset."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka


class Plain(NamedTuple):
    """A record as every client can say it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


def confluent_write(servers: str, topic: str, records: list[Plain], codec: str, partition: int | None = 0) -> None:
    """A partition of None leaves the choice to confluent's partitioner."""
    failed: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
    )
    where = -1 if partition is None else partition  # librdkafka's PARTITION_UA
    for record in records:
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition=where,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(1.0)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failed, failed[:3]


def confluent_read(servers: str, topic: str, count: int, partition: int = 0, isolation: str = "read_committed") -> list[Plain]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True, "isolation.level": isolation}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        read: list[Plain] = []
        while len(read) < count:
            messages = consumer.consume(min(10_000, count - len(read)), timeout=30)
            assert messages, f"only {len(read)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or ())
                read.append(Plain(message.key(), message.value(), headers, message.timestamp()[1]))
        return read
    finally:
        consumer.close()


def kafka_python_write(servers: str, topic: str, records: list[Plain], codec: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=5)
    try:
        futures = [
            producer.send(topic, record.value, record.key, headers=list(record.headers), partition=0, timestamp_ms=record.timestamp_ms)
            for record in records
        ]
        producer.flush(60)
        for future in futures:
            future.get(timeout=30)
    finally:
        producer.close(timeout=30)


def kafka_python_read(servers: str, topic: str, count: int, partition: int = 0) -> list[Plain]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    try:
        where = kafka.TopicPartition(topic, partition)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        read: list[Plain] = []
        for record in consumer:
            read.append(Plain(record.key, record.value, tuple(record.headers), record.timestamp))
            if len(read) == count:
                return read
        raise AssertionError(f"only {len(read)} of {count} records came")
    finally:
        consumer.close()


async def _aiokafka_write(servers: str, topic: str, records: list[Plain], codec: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=5, enable_idempotence=True
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp_ms, headers=list(record.headers)
            )
            for record in records
        ]
        await asyncio.wait_for(asyncio.gather(*futures), 60)
    finally:
        await producer.stop()


async def _aiokafka_read(servers: str, topic: str, count: int, partition: int = 0) -> list[Plain]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, auto_offset_reset="earliest", check_crcs=True)
    await consumer.start()
    try:
        where = aiokafka.TopicPartition(topic, partition)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        read: list[Plain] = []
        while len(read) < count:
            got = await consumer.getmany(timeout_ms=30_000)
            assert got, f"only {len(read)} of {count} records came"
            for records in got.values():
                read += [Plain(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return read
    finally:
        await consumer.stop()


def aiokafka_write(servers: str, topic: str, records: list[Plain], codec: str) -> None:
    asyncio.run(_aiokafka_write(servers, topic, records, codec))


def aiokafka_read(servers: str, topic: str, count: int, partition: int = 0) -> list[Plain]:
    return asyncio.run(_aiokafka_read(servers, topic, count, partition))


WRITE = {"confluent-kafka": confluent_write, "aiokafka": aiokafka_write, "kafka-python": kafka_python_write}
READ = {"confluent-kafka": confluent_read, "aiokafka": aiokafka_read, "kafka-python": kafka_python_read}
