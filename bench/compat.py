"""What the faces of kafkacore.compat cost beside the engine they use, and beside the client whose names they have.

    python bench/compat.py [--json] [--rounds N] [--records N] [--quick]

Records of 100 B to and from the null broker (nullbroker.c), with kafka-python's defaults on all sides. Every case runs in a process of its
own and the cases take turns; CPU is user and system time of the whole process. Goal: the median of the rounds' ratios of face and engine is
at most 1.15. --quick does little, once: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import Table, Timing, Verdict, add_arguments, report
from nullbroker import NullBroker

TOPIC, PARTITIONS, RECORD_BYTES, WARM_UP = "bench", 4, 100, 20_000
LIMIT = 1.15
ENGINE, FACE, RIVAL = "kafkacore", "compat.kafka", "kafka-python"
PACKAGES = {ENGINE: "kafkacore", FACE: "kafkacore.compat.kafka", RIVAL: "kafka"}
SHARES = {ENGINE: 1.0, FACE: 1.0, RIVAL: 0.05}
"""Of --records that a case handles, so that the slow one does not take all the time."""


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


WORK: dict[str, Callable[[str, str], Callable[[int], int]]] = {
    "send(topic, value)": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_values),
    "send(topic, value, key)": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_keyed),
    "send, get() of every 1000th": lambda name, servers: producing(importlib.import_module(PACKAGES[name]), servers, send_and_look),
    "poll()": lambda name, servers: consuming(importlib.import_module(PACKAGES[name]), servers, poll_seconds if name == ENGINE else poll),
    "for record in consumer": lambda name, servers: consuming(importlib.import_module(PACKAGES[name]), servers, loop),
}


def run_case(work: str, name: str, servers: str, count: int) -> float:
    """One case in a fresh process."""
    # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the case that is measured
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--case", work, name, servers, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{work}, {name}: {done.stderr}")
    found: float = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    from kafkacore.records import BatchBuilder

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_arguments(parser, rounds=7)
    parser.add_argument("--records", type=int, default=1_000_000, help="that a case handles (default 1,000,000; kafka-python a 20th)")
    parser.add_argument("--quick", action="store_true", help="little, once")
    options = parser.parse_args()
    rounds, records = (1, 20_000) if options.quick else (options.rounds, options.records)
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * RECORD_BYTES, timestamp_ms=1_700_000_000_000):
        pass
    table = Table("kafka-python's names over the engine, CPU", "ns per record")
    with NullBroker(PARTITIONS, {TOPIC: bytes(builder.build())}) as broker:
        for work in WORK:
            times: dict[str, list[float]] = {name: [] for name in PACKAGES}
            for nth in range(rounds):
                for name in list(PACKAGES) if nth % 2 else reversed(PACKAGES):
                    times[name].append(run_case(work, name, broker.address, max(1_000, int(records * SHARES[name]))))
            table.add(work, {name: Timing(statistics.median(found), min(found)) for name, found in times.items()})
            ratio = statistics.median(face / engine for face, engine in zip(times[FACE], times[ENGINE], strict=True))
            table.goals[work] = {FACE: Verdict(f"{ratio:.2f}, at most {LIMIT}", ratio <= LIMIT)}
    report([table], as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case_work, case_name, case_servers, case_count = sys.argv[2:6]
        print(json.dumps(measured(WORK[case_work](case_name, case_servers), int(case_count))), flush=True)
    else:
        main()
