"""One asyncio client doing one thing against one broker, in a process of its own; prints one JSON line. Run by aio.py.

The clock starts after a warm-up and stops when the last record is delivered or read. CPU is user and system time of the whole process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np

TOPIC, PARTITIONS, WARM_UP, TASKS = "bench", 4, 20_000, 1000
VALUE_BYTES = 100
VALUES = [(b"%012d" % i).ljust(VALUE_BYTES, b"x") for i in range(200_000)]

Run = Callable[[int], Awaitable[None]]
"""Does a thing n times."""


async def measure(run: Run, count: int, warm_up: int = WARM_UP) -> dict[str, float]:
    """CPU and time per record."""
    await run(warm_up)
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    await run(count)
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return {"cpu_ns": cpu / count, "wall_ns": wall / count}


async def latencies(one: Callable[[], Awaitable[object]], count: int, warm_up: int = 200) -> dict[str, float]:
    """Of single records, each awaited before the next."""
    for _ in range(warm_up):
        await one()
    taken = []
    cpu = time.process_time_ns()
    for _ in range(count):
        start = time.perf_counter_ns()
        await one()
        taken.append(time.perf_counter_ns() - start)
    cpu = time.process_time_ns() - cpu
    taken.sort()
    return {"p50_ns": taken[count // 2], "p99_ns": taken[count * 99 // 100], "cpu_ns": cpu / count}


def in_tasks(one: Callable[[], Awaitable[object]]) -> Run:
    """1,000 tasks, each of which sends a record and awaits its delivery, again and again."""

    async def run(count: int) -> None:
        async def task() -> None:
            for _ in range(count // TASKS):
                await one()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASKS):
                tasks.create_task(task())

    return run


def polling(poll: Callable[[], Awaitable[dict[Any, list[Any]]]]) -> Run:
    """Reads with calls that return the records of each partition."""

    async def run(n: int) -> None:
        left = n
        while left > 0:
            for records in (await poll()).values():
                for record in records:
                    record.value  # noqa: B018 - touched, as an application would
                left -= len(records)

    return run


def iterating(consumer: Any) -> Run:
    """Reads record by record."""

    async def run(n: int) -> None:
        left = n
        async for record in consumer:
            record.value  # noqa: B018 - touched, as an application would
            left -= 1
            if not left:
                return

    return run


@contextlib.asynccontextmanager
async def our_producer(address: str, **settings: Any) -> AsyncIterator[Any]:
    from kafkacore.aio import KafkaProducer

    async with KafkaProducer(bootstrap_servers=address, **settings) as producer:
        yield producer


async def our_send(address: str, count: int) -> dict[str, float]:
    async with our_producer(address) as producer:

        async def run(n: int) -> None:
            send, most = producer.send, len(VALUES)
            for i in range(n):
                await send(TOPIC, VALUES[i % most])
            await producer.flush()

        return await measure(run, count)


async def our_send_many(address: str, count: int, columnar: bool) -> dict[str, float]:
    chunk = 20_000
    chunks: list[Any] = [VALUES[i : i + chunk] for i in range(0, len(VALUES), chunk)]
    if columnar:
        offsets = np.arange(chunk + 1, dtype=np.int32) * VALUE_BYTES
        chunks = [(b"".join(part), offsets) for part in chunks]
    async with our_producer(address) as producer:

        async def run(n: int) -> None:
            sent = [await producer.send_many(TOPIC, chunks[i % len(chunks)]) for i in range(n // chunk)]
            await producer.flush()
            for future in sent:
                assert not (await future).errors

        return await measure(run, count)


async def our_delivery(address: str, count: int) -> dict[str, float]:
    async with our_producer(address, linger_ms=0) as producer:

        async def one() -> None:
            await (await producer.send(TOPIC, VALUES[0]))

        return await latencies(one, count)


async def our_synchronous_delivery(address: str, count: int) -> dict[str, float]:
    from kafkacore import KafkaProducer

    with KafkaProducer(bootstrap_servers=address, linger_ms=0) as producer:

        async def one() -> None:
            producer.send(TOPIC, VALUES[0]).result()

        return await latencies(one, count)


async def our_tasks(address: str, count: int) -> dict[str, float]:
    async with our_producer(address) as producer:

        async def one() -> None:
            await (await producer.send(TOPIC, VALUES[0]))

        return await measure(in_tasks(one), count)


@contextlib.asynccontextmanager
async def our_consumer(address: str) -> AsyncIterator[Any]:
    from kafkacore.aio import KafkaConsumer

    async with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, 0)])
        yield consumer


async def our_poll(address: str, count: int) -> dict[str, float]:
    async with our_consumer(address) as consumer:
        return await measure(polling(lambda: consumer.poll(5, max_records=500)), count)


async def our_poll_batch(address: str, count: int) -> dict[str, float]:
    async with our_consumer(address) as consumer:

        async def run(n: int) -> None:
            left = n
            while left > 0:
                for columns in await consumer.poll_batch(5):
                    left -= len(columns)

        return await measure(run, count)


async def our_async_for(address: str, count: int) -> dict[str, float]:
    async with our_consumer(address) as consumer:
        return await measure(iterating(consumer), count)


@contextlib.asynccontextmanager
async def aiokafka_producer(address: str, **settings: Any) -> AsyncIterator[Any]:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all", **settings)
    await producer.start()
    yield producer
    await producer.stop()


async def aiokafka_send(address: str, count: int) -> dict[str, float]:
    async with aiokafka_producer(address, linger_ms=5) as producer:

        async def run(n: int) -> None:
            most = len(VALUES)
            for i in range(n):
                await producer.send(TOPIC, VALUES[i % most])
            await producer.flush()

        return await measure(run, count)


async def aiokafka_send_batch(address: str, count: int) -> dict[str, float]:
    async with aiokafka_producer(address, linger_ms=5, max_batch_size=131_072) as producer:

        async def run(n: int) -> None:
            sent, partition, waiting = 0, 0, []
            while sent < n:
                batch = producer.create_batch()
                while sent < n and batch.append(key=None, value=VALUES[sent % len(VALUES)], timestamp=None) is not None:
                    sent += 1
                batch.close()
                waiting.append(await producer.send_batch(batch, TOPIC, partition=partition))
                partition = (partition + 1) % PARTITIONS
            await asyncio.gather(*waiting)

        return await measure(run, count)


async def aiokafka_delivery(address: str, count: int) -> dict[str, float]:
    async with aiokafka_producer(address, linger_ms=0) as producer:
        return await latencies(lambda: producer.send_and_wait(TOPIC, VALUES[0]), count)


async def aiokafka_tasks(address: str, count: int) -> dict[str, float]:
    async with aiokafka_producer(address, linger_ms=5) as producer:
        return await measure(in_tasks(lambda: producer.send_and_wait(TOPIC, VALUES[0])), count)


@contextlib.asynccontextmanager
async def aiokafka_consumer(address: str) -> AsyncIterator[Any]:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
    yield consumer
    await consumer.stop()


async def aiokafka_getmany(address: str, count: int) -> dict[str, float]:
    async with aiokafka_consumer(address) as consumer:
        return await measure(polling(lambda: consumer.getmany(timeout_ms=5000, max_records=500)), count)


async def aiokafka_async_for(address: str, count: int) -> dict[str, float]:
    async with aiokafka_consumer(address) as consumer:
        return await measure(iterating(consumer), count)


async def confluent_produce(address: str, count: int) -> dict[str, float]:
    from confluent_kafka.aio import AIOProducer

    producer = AIOProducer({"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": 1_000_000, "linger.ms": 5})

    async def run(n: int) -> None:
        most = len(VALUES)
        for start in range(0, n, 10_000):
            sent = [await producer.produce(TOPIC, VALUES[i % most]) for i in range(start, min(start + 10_000, n))]
            await producer.flush()
            await asyncio.gather(*sent)

    found = await measure(run, count)
    await producer.close()
    return found


async def confluent_delivery(address: str, count: int) -> dict[str, float]:
    from confluent_kafka.aio import AIOProducer

    producer = AIOProducer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0}, batch_size=1, buffer_timeout=0.01)

    async def one() -> None:
        await (await producer.produce(TOPIC, VALUES[0]))

    found = await latencies(one, count // 100, warm_up=2)  # each takes 0.1 s
    await producer.close()
    return found


async def confluent_consume(address: str, count: int) -> dict[str, float]:
    import confluent_kafka
    from confluent_kafka.aio import AIOConsumer

    consumer = AIOConsumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    await consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])

    async def run(n: int) -> None:
        left = n
        while left > 0:
            messages = await consumer.consume(500, 5)
            for message in messages:
                message.value()
            left -= len(messages)

    found = await measure(run, count)
    await consumer.close()
    return found


async def our_idle(address: str, seconds: int) -> dict[str, float]:
    """CPU of a producer and a consumer in a loop where nothing happens."""
    async with our_producer(address) as producer, our_consumer(address) as consumer:
        await (await producer.send(TOPIC, VALUES[0]))
        consumer.pause((TOPIC, 0))
        waiting = asyncio.create_task(consumer.poll(None))
        await asyncio.sleep(1)
        cpu = time.process_time_ns()
        await asyncio.sleep(seconds)
        cpu = time.process_time_ns() - cpu
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        return {"percent": cpu / seconds / 1e7}


CASES: dict[str, Callable[[str, int], Awaitable[dict[str, float]]]] = {
    "kafkacore send": our_send,
    "kafkacore send_many(list)": lambda address, count: our_send_many(address, count, columnar=False),
    "kafkacore send_many(columns)": lambda address, count: our_send_many(address, count, columnar=True),
    "aiokafka send": aiokafka_send,
    "aiokafka send_batch": aiokafka_send_batch,
    "confluent AIO produce": confluent_produce,
    "kafkacore poll(500)": our_poll,
    "kafkacore async for": our_async_for,
    "kafkacore poll_batch()": our_poll_batch,
    "aiokafka getmany(500)": aiokafka_getmany,
    "aiokafka async for": aiokafka_async_for,
    "confluent AIO consume(500)": confluent_consume,
    "kafkacore await future": our_delivery,
    "kafkacore synchronous result()": our_synchronous_delivery,
    "aiokafka send_and_wait": aiokafka_delivery,
    "confluent AIO await": confluent_delivery,
    "kafkacore 1,000 tasks": our_tasks,
    "aiokafka 1,000 tasks": aiokafka_tasks,
    "kafkacore idle": our_idle,
}

if __name__ == "__main__":
    name, address, count, loop = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    if loop == "uvloop":
        import uvloop

        print(json.dumps(uvloop.run(CASES[name](address, count))), flush=True)
    else:
        print(json.dumps(asyncio.run(CASES[name](address, count))), flush=True)
