"""kafka-python and aiokafka with kafkacore's record layer and without: CPU of producing and of reading records of 100 B.

    python bench/accelerate.py [--json] [--rounds N] [--records N] [--quick]

Records are produced to partitions that are given, and with keys of 20 B that choose them. Each case is a process of its own that works with
`kafkacore broker`, four partitions, acks=1; the cases take turns. CPU is user and system time of the process, all its threads. What the
record layer takes of that by itself is measured beside it: it bounds what another one can win.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
import uuid
from typing import Any

from broker import OwnBroker, progress
from harness import Table, Timing, Verdict, add_arguments, report

PARTITIONS, RECORD = 4, b"x" * 100
KEYS = [b"%020d" % number for number in range(1000)]
GOALS = {"aiokafka": 1.5, "kafka-python": 2.0}
MODULES = {"aiokafka": "aiokafka", "kafka-python": "kafka"}


def kafka_python(what: str, servers: str, topic: str, count: int) -> None:
    import kafka

    if what != "consume":
        producer = kafka.KafkaProducer(bootstrap_servers=servers, acks=1, linger_ms=5, enable_idempotence=False)
        for number in range(count):
            if what == "produce":
                producer.send(topic, RECORD, partition=number % PARTITIONS)
            else:
                producer.send(topic, RECORD, key=KEYS[number % len(KEYS)])
        producer.flush()
        producer.close()
        return
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, index) for index in range(PARTITIONS)])
    while count > 0:
        count -= sum(map(len, consumer.poll(timeout_ms=1000, max_records=500).values()))
    consumer.close()


async def aio_kafka(what: str, servers: str, topic: str, count: int) -> None:
    import aiokafka

    if what != "consume":
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks=1, linger_ms=5) as producer:
            for number in range(count):
                if what == "produce":
                    await producer.send(topic, RECORD, partition=number % PARTITIONS)
                else:
                    await producer.send(topic, RECORD, key=KEYS[number % len(KEYS)])
            await producer.flush()
        return
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(topic, index) for index in range(PARTITIONS)])
    while count > 0:
        count -= sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=500)).values()))
    await consumer.stop()


def layer_ns(package: str, what: str) -> float:
    """What the record layer takes for a record, by itself; with keys, with their hash."""
    import importlib

    module = importlib.import_module(f"{package}.record.default_records")
    hashed = importlib.import_module(f"{package}.partitioner").murmur2
    count = 5000
    builder = module.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    key = None
    began = time.process_time_ns()
    for number in range(count):
        if what == "keyed":
            hashed(key := KEYS[number % len(KEYS)])
        builder.append(number, 1_700_000_000_000, key, RECORD, [])
    spent = time.process_time_ns() - began
    if what != "consume":
        return spent / count
    data = bytes(builder.build())
    began = time.process_time_ns()
    batch = module.DefaultRecordBatch(data)
    batch.validate_crc()
    for record in batch:
        record.key, record.value, record.headers, record.offset, record.timestamp, record.timestamp_type, record.checksum  # noqa: B018
    return (time.process_time_ns() - began) / count


def case(package: str, what: str, fast: bool, servers: str, topic: str, count: int) -> None:
    if fast:
        from kafkacore.compat import accelerate

        accelerate(MODULES[package])

    def work(records: int) -> None:
        if package == "aiokafka":
            asyncio.run(aio_kafka(what, servers, topic, records))
        else:
            kafka_python(what, servers, topic, records)

    work(min(count, 1000))  # imports, first connections
    began = time.process_time_ns()
    work(count)
    spent = time.process_time_ns() - began
    print(json.dumps({"cpu_ns": spent / count, "layer_ns": min(layer_ns(MODULES[package], what) for _ in range(5))}))


def run(*words: object) -> dict[str, float]:
    ran = subprocess.run([sys.executable, __file__, "--case", *map(str, words)], stdout=subprocess.PIPE, check=True, timeout=300)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--case"]:
        package, what, fast, servers, topic, count = sys.argv[2:]
        case(package, what, fast == "fast", servers, topic, int(count))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="few records, once: does it run?")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.records = 1, 2000
    from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic

    table = Table("records of 100 B, CPU of the client's process", "ns of CPU per record")
    with OwnBroker() as broker:
        servers = broker.bootstrap_servers
        full = f"full-{uuid.uuid4().hex[:8]}"
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(full, PARTITIONS, 1), NewTopic(f"{full}-produced", PARTITIONS, 1)]).check()
        with KafkaProducer(bootstrap_servers=servers) as producer:
            numbers = [number % PARTITIONS for number in range(options.records)]
            producer.send_many(full, [RECORD] * options.records, partitions=numbers)
        for package, goal in GOALS.items():
            for what in ("produce", "keyed", "consume"):
                topic = full if what == "consume" else f"{full}-produced"
                found: dict[str, list[dict[str, Any]]] = {"as it is": [], "accelerated": []}
                for number in range(options.rounds):
                    for name, runs in found.items():
                        progress(f"{package} {what}, round {number + 1}/{options.rounds}: {name}")
                        speed = "fast" if name == "accelerated" else "plain"
                        runs.append(run(package, what, speed, servers, topic, options.records))
                cpu = {name: [r["cpu_ns"] for r in runs] for name, runs in found.items()}
                row = {name: Timing(statistics.median(all_ns), min(all_ns)) for name, all_ns in cpu.items()}
                layer = {f"record layer alone, {name}": min(r["layer_ns"] for r in runs) for name, runs in found.items()}
                label = f"{package}, {'produce with keys' if what == 'keyed' else what}"
                table.add(label, row | {name: Timing(ns, ns) for name, ns in layer.items()})
                ratio = row["as it is"].median_ns / row["accelerated"].median_ns
                table.goals[label] = {"accelerated": Verdict(f"{ratio:.2f}x, goal >= {goal}x", ratio >= goal)}
    progress("")
    report([table], as_json=options.json)


if __name__ == "__main__":
    main()
