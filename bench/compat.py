"""What the faces of kafkacore.compat cost beside the engine they use, and beside the client whose names they have.

    python bench/compat.py [--json] [--rounds N] [--records N] [--face NAME] [--quick]

Records of 100 B to and from the null broker (nullbroker.c), with the other client's defaults on all sides. Every case runs in a process
of its own and the cases take turns; CPU is user and system time of the whole process. Goal: the median of the rounds' ratios of face
and engine is at most 1.15. --quick does little, once, all cases of a client in one process: it shows that the bench runs, its figures
mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from harness import Table, Timing, Verdict, add_arguments, report
from nullbroker import NullBroker

TOPIC, PARTITIONS, RECORD_BYTES, WARM_UP = "bench", 4, 100, 20_000
LIMIT = 1.15
ENGINE, FACE, RIVAL = "kafkacore", "compat.kafka", "kafka-python"
AIO_ENGINE, AIO_FACE, AIO_RIVAL = "kafkacore.aio", "compat.aiokafka", "aiokafka"
CONF_ENGINE, CONF_FACE, CONF_RIVAL = "kafkacore for confluent", "compat.confluent", "confluent-kafka"
PACKAGES = {
    ENGINE: "kafkacore",
    FACE: "kafkacore.compat.kafka",
    RIVAL: "kafka",
    AIO_ENGINE: "kafkacore.aio",
    AIO_FACE: "kafkacore.compat.aiokafka",
    AIO_RIVAL: "aiokafka",
    CONF_ENGINE: "kafkacore",
    CONF_FACE: "kafkacore.compat.confluent",
    CONF_RIVAL: "confluent_kafka",
}
SHARES = {RIVAL: 0.05, AIO_RIVAL: 0.05}
"""Of --records that a case handles, so that the slow ones do not take all the time."""


def measured(run: Callable[[int], int], count: int) -> float:
    """CPU nanoseconds per record."""
    run(min(WARM_UP, count))
    began = time.process_time_ns()
    done = run(count)
    return (time.process_time_ns() - began) / done


def producing(package: Any, servers: str, call: Callable[[Any, list[bytes]], None]) -> Callable[[int], int]:
    values = [(b"%012d" % i).ljust(RECORD_BYTES, b"x") for i in range(100_000)]
    # the engine's own default would wait 5 ms for company
    producer = package.KafkaProducer(bootstrap_servers=servers, linger_ms=0)

    def run(count: int) -> int:
        for start in range(0, count, 1_000):
            call(producer, values[start % len(values) : start % len(values) + 1_000])
        producer.flush()
        return -(-count // 1_000) * 1_000

    return run


def send_values(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.send(TOPIC, value)


def send_keyed(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.send(TOPIC, value, value)


def send_and_look(producer: Any, values: list[bytes]) -> None:
    futures = [producer.send(TOPIC, value) for value in values]
    futures[-1].get(60)


def consuming(package: Any, servers: str, chunk: Callable[[Any], list[Any]]) -> Callable[[int], int]:
    consumer = package.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([package.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])

    def run(count: int) -> int:
        got = 0
        while got < count:
            got += sum(map(len, chunk(consumer)))
        return got

    return run


def poll(consumer: Any) -> list[Any]:
    found = list(consumer.poll(1_000).values())
    for records in found:
        for record in records:
            record.value  # noqa: B018 - touched, as an application would
    return found


def poll_seconds(consumer: Any) -> list[Any]:
    found = list(consumer.poll(1).values())
    for records in found:
        for record in records:
            record.value  # noqa: B018
    return found


def loop(consumer: Any) -> list[Any]:
    count = 0
    for record in consumer:
        record.value  # noqa: B018
        count += 1
        if count == 10_000:
            break
    return [range(count)]


# ---- poll-served ---------------------------------------------------------------------------------------------------------------------


FLUSH_EVERY = 50_000
CONF_DEFAULTS: dict[str, Any] = {
    "acks": -1, "linger_ms": 5, "batch_size": 1_000_000, "max_request_size": 1_000_000, "buffer_memory": 1 << 30,
    "enable_idempotence": False, "max_in_flight_requests_per_connection": 1_000_000, "partitioner": "consistent_random",
}  # fmt: skip
"""What confluent-kafka's defaults are in the engine."""


def conf_producing(name: str, servers: str, call: Callable[[Any, list[bytes]], None]) -> Callable[[int], int]:
    """A case whose outcomes are served every 1000 records, and all of them every FLUSH_EVERY."""
    values = [(b"%012d" % i).ljust(RECORD_BYTES, b"x") for i in range(100_000)]
    package = importlib.import_module(PACKAGES[name])
    engine = name == CONF_ENGINE
    producer: Any
    if engine:
        producer = package.KafkaProducer(bootstrap_servers=servers, **CONF_DEFAULTS)
    else:
        producer = package.Producer({"bootstrap.servers": servers})

    def run(count: int) -> int:
        for start in range(0, count, 1_000):
            call(producer, values[start % len(values) : start % len(values) + 1_000])
            if not engine:
                producer.poll(0)
            if (start + 1_000) % FLUSH_EVERY == 0:
                producer.flush()
        producer.flush()
        return -(-count // 1_000) * 1_000

    return run


def produce_values(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.produce(TOPIC, value)


def produce_keyed(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.produce(TOPIC, value, value)


def delivered(first: Any, second: Any) -> None:
    """A delivery callback."""


def produce_reported(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.produce(TOPIC, value, on_delivery=delivered)


def send_reported(producer: Any, values: list[bytes]) -> None:
    for value in values:
        producer.send(TOPIC, value, on_delivery=delivered)


def conf_consuming(name: str, servers: str, chunk: Callable[[Any], int]) -> Callable[[int], int]:
    package = importlib.import_module(PACKAGES[name])
    consumer: Any
    if name == CONF_ENGINE:
        consumer = package.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    else:
        consumer = package.Consumer({"bootstrap.servers": servers, "group.id": "bench", "auto.offset.reset": "earliest",
                                     "enable.auto.commit": False})  # fmt: skip
    places = [(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign([package.TopicPartition(*each) if name == CONF_ENGINE else package.TopicPartition(*each, 0) for each in places])

    def run(count: int) -> int:
        got = 0
        while got < count:
            got += chunk(consumer)
        return got

    return run


def conf_poll(consumer: Any) -> int:
    for _ in range(10_000):
        message = consumer.poll(1.0)
        if message is not None:
            message.value()
    return 10_000


def conf_consume(consumer: Any) -> int:
    found = consumer.consume(500, 1.0)
    for message in found:
        message.value()
    return len(found)


def conf_loop(consumer: Any) -> int:
    return sum(map(len, loop(consumer)))


def conf_lists(consumer: Any) -> int:
    return sum(map(len, poll_seconds(consumer)))


# ---- in an event loop -----------------------------------------------------------------------------------------------------------------


def in_loop(start: Callable[[], Awaitable[Callable[[int], Awaitable[int]]]]) -> Callable[[int], int]:
    """A case that runs in one loop."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    call = loop.run_until_complete(start())  # type: ignore[arg-type]
    return lambda count: loop.run_until_complete(call(count))  # type: ignore[arg-type,return-value]


def aio_producing(name: str, servers: str, call: Callable[[Any, list[bytes]], Awaitable[None]]) -> Callable[[int], int]:
    values = [(b"%012d" % i).ljust(RECORD_BYTES, b"x") for i in range(100_000)]

    async def start() -> Callable[[int], Awaitable[int]]:
        package = importlib.import_module(PACKAGES[name])
        if name == AIO_ENGINE:  # with aiokafka's defaults
            settings = {"acks": 1, "enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "linger_ms": 0}
            producer = package.KafkaProducer(bootstrap_servers=servers, **settings)
        else:
            producer = package.AIOKafkaProducer(bootstrap_servers=servers)
            await producer.start()

        async def run(count: int) -> int:
            for first in range(0, count, 1_000):
                await call(producer, values[first % len(values) : first % len(values) + 1_000])
            await producer.flush()
            return -(-count // 1_000) * 1_000

        return run

    return in_loop(start)


async def aio_send_values(producer: Any, values: list[bytes]) -> None:
    for value in values:
        await producer.send(TOPIC, value)


async def aio_send_keyed(producer: Any, values: list[bytes]) -> None:
    for value in values:
        await producer.send(TOPIC, value, key=value)


async def aio_send_and_look(producer: Any, values: list[bytes]) -> None:
    futures = [await producer.send(TOPIC, value) for value in values]
    await futures[-1]


def aio_consuming(name: str, servers: str, chunk: Callable[[Any], Awaitable[int]]) -> Callable[[int], int]:
    async def start() -> Callable[[int], Awaitable[int]]:
        package = importlib.import_module(PACKAGES[name])
        if name == AIO_ENGINE:
            consumer = package.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        else:
            consumer = package.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
            await consumer.start()
        consumer.assign([importlib.import_module("kafkacore").TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        if name == AIO_RIVAL:
            consumer.unsubscribe()
            consumer.assign([package.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])

        async def run(count: int) -> int:
            got = 0
            while got < count:
                got += await chunk(consumer)
            return got

        return run

    return in_loop(start)


async def aio_poll(consumer: Any) -> int:
    found = await (consumer.getmany(timeout_ms=1_000) if hasattr(consumer, "getmany") else consumer.poll(1, 5_000))
    for records in found.values():
        for record in records:
            record.value  # noqa: B018
    return sum(map(len, found.values()))


async def aio_loop(consumer: Any) -> int:
    count = 0
    async for record in consumer:
        record.value  # noqa: B018
        count += 1
        if count == 10_000:
            break
    return count


async def aio_getone(consumer: Any) -> int:
    if not hasattr(consumer, "getone"):
        return await aio_loop(consumer)
    for _ in range(10_000):
        (await consumer.getone()).value  # noqa: B018
    return 10_000


WORK: dict[str, Callable[[str, str], Callable[[int], int]]] = {
    "send(topic, value)": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_values),
    "send(topic, value, key)": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_keyed),
    "send, get() of every 1000th": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_and_look),
    "poll()": lambda name, servers: consuming(importlib.import_module(PACKAGES[name]), servers, poll_seconds if name == ENGINE else poll),
    "for record in consumer": lambda name, servers: consuming(importlib.import_module(PACKAGES[name]), servers, loop),
}
AIO_WORK: dict[str, Callable[[str, str], Callable[[int], int]]] = {
    "await send(topic, value)": lambda name, servers: aio_producing(name, servers, aio_send_values),
    "await send(topic, value, key)": lambda name, servers: aio_producing(name, servers, aio_send_keyed),
    "await send, every 1000th awaited": lambda name, servers: aio_producing(name, servers, aio_send_and_look),
    "await getmany()": lambda name, servers: aio_consuming(name, servers, aio_poll),
    "async for record in consumer": lambda name, servers: aio_consuming(name, servers, aio_loop),
    "await getone()": lambda name, servers: aio_consuming(name, servers, aio_getone),
}
"""The engine has no getone(): its `async for` is beside it."""
CONF_WORK: dict[str, Callable[[str, str], Callable[[int], int]]] = {
    "produce(topic, value)": lambda name, servers: conf_producing(name, servers, send_values if name == CONF_ENGINE else produce_values),
    "produce(topic, value, key)": lambda name, servers: conf_producing(name, servers, send_keyed if name == CONF_ENGINE else produce_keyed),
    "produce(topic, value, on_delivery)": lambda name, servers: conf_producing(
        name, servers, send_reported if name == CONF_ENGINE else produce_reported
    ),
    "Consumer.poll()": lambda name, servers: conf_consuming(name, servers, conf_loop if name == CONF_ENGINE else conf_poll),
    "consume(500)": lambda name, servers: conf_consuming(name, servers, conf_lists if name == CONF_ENGINE else conf_consume),
}
"""Beside poll() of one message is the engine's `for` loop, beside consume() its poll()."""


class Face(NamedTuple):
    """A face, the engine below it, and the client whose names it has."""

    title: str
    engine: str
    face: str
    rival: str
    work: dict[str, Callable[[str, str], Callable[[int], int]]]


FACES = (
    Face("kafka-python's names over the engine, CPU", ENGINE, FACE, RIVAL, WORK),
    Face("confluent-kafka's names over the engine, CPU", CONF_ENGINE, CONF_FACE, CONF_RIVAL, CONF_WORK),
    Face("aiokafka's names over the engine, CPU", AIO_ENGINE, AIO_FACE, AIO_RIVAL, AIO_WORK),
)


def run_cases(work: list[str], name: str, servers: str, count: int) -> list[float]:
    """Cases of one client in a fresh process."""
    # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the case that is measured
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--case", json.dumps(work), name, servers, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{', '.join(work)}, {name}: {done.stderr}")
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    from kafkacore.records import BatchBuilder

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_arguments(parser, rounds=7)
    parser.add_argument("--records", type=int, default=1_000_000, help="that a case handles (default 1,000,000; the other clients a 20th)")
    parser.add_argument("--face", default="", help="only the face whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="little, once")
    options = parser.parse_args()
    rounds, records = (1, 2_000) if options.quick else (options.rounds, options.records)
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * RECORD_BYTES, timestamp_ms=1_700_000_000_000):
        pass
    tables = []
    with NullBroker(PARTITIONS, {TOPIC: bytes(builder.build())}) as broker:
        for face in FACES:
            if options.face in face.face:
                tables.append(measure(face, broker.address, rounds, records, options.quick))
    report(tables, as_json=options.json)


def measure(face: Face, servers: str, rounds: int, records: int, is_quick: bool) -> Table:
    """One face beside its engine and its rival."""
    table = Table(face.title, "ns per record")
    names = (face.engine, face.face, face.rival)
    times: dict[str, dict[str, list[float]]] = {work: {name: [] for name in names} for work in face.work}
    for together in [list(face.work)] if is_quick else [[work] for work in face.work]:
        for nth in range(rounds):
            for name in names if nth % 2 else reversed(names):
                found = run_cases(together, name, servers, max(1_000, int(records * SHARES.get(name, 1.0))))
                for work, time_ns in zip(together, found, strict=True):
                    times[work][name].append(time_ns)
    for work, of_names in times.items():
        table.add(work, {name: Timing(statistics.median(found), min(found)) for name, found in of_names.items()})
        ratio = statistics.median(its / engines for its, engines in zip(of_names[face.face], of_names[face.engine], strict=True))
        table.goals[work] = {face.face: Verdict(f"{ratio:.2f}, at most {LIMIT}", ratio <= LIMIT)}
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case_work, case_name, case_servers, case_count = sys.argv[2:6]
        cases = [(WORK | AIO_WORK | CONF_WORK)[each](case_name, case_servers) for each in json.loads(case_work)]
        print(json.dumps([measured(case, int(case_count)) for case in cases]), flush=True)
    else:
        main()
