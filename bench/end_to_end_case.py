"""One client doing one thing against one broker, in a process of its own; prints one JSON line. Run by end_to_end.py.

The clock starts after a warm-up (connected, metadata known, one flush done) and stops when the last record is
acknowledged or delivered. CPU is user + system time of the whole process: the I/O threads of every client count.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

TOPIC, PARTITIONS, WARM_UP = "bench", 4, 20_000
MEGABYTE_BATCHES = {"batch_size": 1_000_000, "max_request_size": 5_000_000}


def measure(run: Callable[[int], None], count: int) -> dict[str, float]:
    run(WARM_UP)
    cpu, wall = time.process_time(), time.perf_counter()
    run(count)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_us": cpu / count * 1e6, "wall_us": wall / count * 1e6, "records": count}


def _values(size: int) -> list[bytes]:
    """200,000 distinct values, so that nothing is cache-hot that would not be in life (20 MB at 100 bytes)."""
    return [(b"%012d" % i).ljust(size, b"x") for i in range(200_000 * 100 // max(size, 100))]


def confluent_produce(address: str, count: int, size: int, callback: bool, sync: bool = False) -> Any:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": 1_000_000, "linger.ms": 0 if sync else 5}
    )
    values, failed = _values(size), []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    def run(n: int) -> None:
        produce, poll, most = producer.produce, producer.poll, len(values)
        for start in range(0, n, 1000):
            for value in values[start % most : start % most + min(1000, n - start)]:
                try:
                    produce(TOPIC, value, on_delivery=on_delivery) if callback else produce(TOPIC, value)
                except BufferError:
                    poll(0.1)
                    produce(TOPIC, value)
            if callback:
                poll(0)
        assert producer.flush(60) == 0 and not failed

    if sync:

        def one() -> None:
            producer.produce(TOPIC, values[0])
            producer.flush()

        return one
    return measure(run, count)


def confluent_produce_batch(address: str, count: int, size: int) -> dict[str, float]:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all", "queue.buffering.max.messages": 2_000_000})
    values = _values(size)

    def run(n: int) -> None:
        for start in range(0, n, 1000):
            at = start % len(values)
            producer.produce_batch(TOPIC, [{"value": value} for value in values[at : at + min(1000, n - start)]])
            producer.poll(0)
        assert producer.flush(60) == 0

    return measure(run, count)


def aiokafka_send_batch(address: str, count: int, size: int) -> dict[str, float]:
    import aiokafka

    values = _values(size)

    async def main() -> dict[str, float]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, max_batch_size=131_072)
        await producer.start()

        async def run(n: int) -> None:
            sent, partition, waiting = 0, 0, []
            while sent < n:
                batch = producer.create_batch()
                while sent < n and batch.append(key=None, value=values[sent % len(values)], timestamp=None) is not None:
                    sent += 1
                batch.close()
                waiting.append(await producer.send_batch(batch, TOPIC, partition=partition))
                partition = (partition + 1) % PARTITIONS
            await asyncio.gather(*waiting)

        await run(WARM_UP)
        cpu, wall = time.process_time(), time.perf_counter()
        await run(count)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        await producer.stop()
        return {"cpu_us": cpu / count * 1e6, "wall_us": wall / count * 1e6, "records": count}

    return asyncio.run(main())


def kafkacore_send(address: str, count: int, size: int, callback: bool = False, **settings: Any) -> dict[str, float]:
    from kafkacore import KafkaProducer

    values, failed = _values(size), []

    def on_delivery(_: Any, error: Any) -> None:
        if error is not None:
            failed.append(error)

    with KafkaProducer(bootstrap_servers=address, **settings) as producer:

        def run(n: int) -> None:
            send, most = producer.send, len(values)
            for start in range(0, n, 1000):
                if callback:
                    for value in values[start % most : start % most + min(1000, n - start)]:
                        send(TOPIC, value, on_delivery=on_delivery)
                else:
                    for value in values[start % most : start % most + min(1000, n - start)]:
                        send(TOPIC, value)
            producer.flush(60)
            assert not failed

        return measure(run, count)


def kafkacore_send_many(address: str, count: int, size: int, columnar: bool) -> dict[str, float]:
    from kafkacore import KafkaProducer

    values = _values(size)
    chunk = 20_000 if size <= 100 else 2000
    chunks: list[Any] = [values[i : i + chunk] for i in range(0, len(values), chunk)]
    if columnar:
        offsets = np.arange(chunk + 1, dtype=np.int32) * size
        chunks = [(b"".join(part), offsets) for part in chunks]
    with KafkaProducer(bootstrap_servers=address, **MEGABYTE_BATCHES) as producer:

        def run(n: int) -> None:
            results = [producer.send_many(TOPIC, chunks[i % len(chunks)]) for i in range(n // chunk)]
            producer.flush(60)
            for result in results:
                assert not result.result(0).errors

        return measure(run, count)


def confluent_consume(address: str, count: int, size: int, at_once: int) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])

    def run(n: int) -> None:
        left = n
        while left > 0:
            messages = consumer.consume(min(at_once, left), timeout=5)
            for message in messages:
                message.value()
            left -= len(messages)

    return measure(run, count)


def aiokafka_getmany(address: str, count: int, size: int) -> dict[str, float]:
    import aiokafka

    async def main() -> dict[str, float]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        where = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([where])

        async def run(n: int) -> None:
            left = n
            while left > 0:
                for records in (await consumer.getmany(timeout_ms=5000, max_records=10_000)).values():
                    for record in records:
                        record.value  # noqa: B018 - touched, as an application would
                    left -= len(records)

        await run(WARM_UP)
        cpu, wall = time.process_time(), time.perf_counter()
        await run(count)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        await consumer.stop()
        return {"cpu_us": cpu / count * 1e6, "wall_us": wall / count * 1e6, "records": count}

    return asyncio.run(main())


def kafkacore_objects(address: str, count: int, size: int) -> dict[str, float]:
    from kafkacore import KafkaConsumer, TopicPartition

    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])

        def run(n: int) -> None:
            left = n
            while left > 0:
                for records in consumer.poll(timeout=5, max_records=500).values():
                    for record in records:
                        record.value  # noqa: B018 - touched, as an application would
                    left -= len(records)

        return measure(run, count)


def kafkacore_columns(address: str, count: int, size: int) -> dict[str, float]:
    from kafkacore import KafkaConsumer, TopicPartition

    with KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])

        def run(n: int) -> None:
            left = n
            while left > 0:
                for columns in consumer.poll_batch(timeout=5):
                    left -= len(columns)

        return measure(run, count)


def memory(address: str, count: int, client: str) -> NoReturn:
    """Resident bytes per queued 100 byte record: the broker is stopped once it is known, so everything stays queued."""
    value = [(b"%012d" % i).ljust(100, b"x") for i in range(1000)]
    send: Callable[[bytes], Any]
    if client == "kafkacore":
        from kafkacore import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=address, buffer_memory=1 << 30)

        def send(v: bytes) -> Any:
            return producer.send(TOPIC, v)
    else:
        import confluent_kafka

        rival = confluent_kafka.Producer(
            {"bootstrap.servers": address, "queue.buffering.max.messages": 2_000_000}
        )

        def send(v: bytes) -> Any:
            return rival.produce(TOPIC, v)

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    for i in range(1000):
        send(value[i])
    (producer if client == "kafkacore" else rival).flush(30)
    os.kill(int(os.environ["NULLBROKER_PID"]), signal.SIGSTOP)
    before = resident()
    for i in range(count):
        send(value[i % 1000])
    used = (resident() - before) / count
    print(json.dumps({"bytes": used, "records": count}), flush=True)
    os._exit(0)  # the records are not to be waited for


CASES: dict[str, Callable[..., dict[str, float]]] = {
    "confluent produce()": lambda a, n, s: confluent_produce(a, n, s, callback=False),
    "confluent produce(on_delivery)": lambda a, n, s: confluent_produce(a, n, s, callback=True),
    "confluent produce_batch(dicts)": confluent_produce_batch,
    "aiokafka send_batch": aiokafka_send_batch,
    "kafkacore send(), 1 MB batches": lambda a, n, s: kafkacore_send(a, n, s, **MEGABYTE_BATCHES),
    "kafkacore send(), defaults": kafkacore_send,
    "kafkacore send(on_delivery), 1 MB": lambda a, n, s: kafkacore_send(a, n, s, callback=True, **MEGABYTE_BATCHES),
    "kafkacore send_many(list)": lambda a, n, s: kafkacore_send_many(a, n, s, columnar=False),
    "kafkacore send_many(columns)": lambda a, n, s: kafkacore_send_many(a, n, s, columnar=True),
    "confluent consume(500)": lambda a, n, s: confluent_consume(a, n, s, 500),
    "confluent consume(10000)": lambda a, n, s: confluent_consume(a, n, s, 10_000),
    "aiokafka getmany(10000)": aiokafka_getmany,
    "kafkacore poll(500) objects": kafkacore_objects,
    "kafkacore poll_batch() columns": kafkacore_columns,
    "memory kafkacore": lambda a, n, _: memory(a, n, "kafkacore"),
    "memory confluent": lambda a, n, _: memory(a, n, "confluent"),
}

if __name__ == "__main__":
    name, address, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps(CASES[name](address, count, size)), flush=True)
