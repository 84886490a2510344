"""What a topic's partitions cost a producer: send() and send_many() to the null broker, by the number of partitions.

Settings are the defaults but for linger and memory where a column says so: a record of 100 B for each of 10,000 partitions opens 10,000
batches of 16 KiB, more than the default buffer_memory.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import Table, Timing, add_arguments, report
from nullbroker import NullBroker

from kafkacore import KafkaProducer

COUNTS = (1, 10, 100, 1_000, 10_000)
RECORDS = 150_000
ROOMY = {"linger_ms": 1_000, "buffer_memory": 400 << 20}
VALUE = b"x" * 100


def unkeyed(producer: KafkaProducer, partitions: int) -> None:
    for _ in range(RECORDS):
        producer.send("t", VALUE)


def keyed(producer: KafkaProducer, partitions: int) -> None:
    keys = [b"%d" % key for key in range(10_000)]
    for i in range(RECORDS):
        producer.send("t", VALUE, keys[i % 10_000])


def explicit(producer: KafkaProducer, partitions: int) -> None:
    order = random.Random(1).choices(range(partitions), k=10_000)
    for i in range(RECORDS):
        producer.send("t", VALUE, partition=order[i % 10_000])


def many(producer: KafkaProducer, partitions: int) -> None:
    values = [VALUE] * 10_000
    for _ in range(RECORDS // 10_000):
        producer.send_many("t", values)


CASES: dict[str, tuple[Callable[[KafkaProducer, int], None], dict[str, Any]]] = {
    "send()": (unkeyed, {}),
    "send_many": (many, {}),
    "keyed, roomy": (keyed, ROOMY),
    "partition=, roomy": (explicit, ROOMY),
    "keyed": (keyed, {}),
    "round_robin": (unkeyed, {"partitioner": "round_robin"}),
    "round_robin send_many": (many, {"partitioner": "round_robin"}),
}


def spent(address: str, name: str, partitions: int) -> tuple[float, float]:
    """Nanoseconds per record from the first send to the end of flush: of the clock, of the processor."""
    run, settings = CASES[name]
    with KafkaProducer(bootstrap_servers=address, **settings) as producer:
        producer.send("t", VALUE).result(10)
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        run(producer, partitions)
        producer.flush()
        return (time.perf_counter_ns() - wall) / RECORDS, (time.process_time_ns() - cpu) / RECORDS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_arguments(parser, rounds=3)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="some of the cases")
    options = parser.parse_args()
    samples: dict[tuple[str, int], list[tuple[float, float]]] = {}
    brokers = {count: NullBroker(count) for count in COUNTS}
    for _ in range(options.rounds):
        for name in options.cases or CASES:
            for count, broker in brokers.items():
                samples.setdefault((name, count), []).append(spent(broker.address, name, count))
    tables = [Table("producer by partitions, elapsed", "ns per record"), Table("producer by partitions, processor", "ns per record")]
    for name in options.cases or CASES:
        for which, table in enumerate(tables):
            rows = {str(count): [sample[which] for sample in samples[name, count]] for count in COUNTS}
            table.add(name, {count: Timing(statistics.median(times), min(times)) for count, times in rows.items()})
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
