"""What a record costs its client: CPU, latency and memory of every client against the same null broker (nullbroker.c).

    python bench/end_to_end.py [--json] [--rounds N] [--only sending,reading,waiting,memory] [--records N] [--size BYTES]

Every case runs in a process of its own and the cases take turns; CPU is user and system time of the whole process, so the threads of
every client count. The batches hold up to 1 MB on both sides (confluent-kafka's default) unless the case says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import Table, Timing, add_arguments, report
from nullbroker import NullBroker

from kafkacore.records import BatchBuilder

CASE = Path(__file__).parent / "end_to_end_case.py"
# case -> share of --records, so that the slow ones do not take all the time
SENDING = {
    "confluent produce()": 1.0,
    "confluent produce(on_delivery)": 1.0,
    "confluent produce_batch(dicts)": 0.5,
    "aiokafka send_batch": 0.5,
    "kafkacore send(), 1 MB batches": 2.0,
    "kafkacore send(), defaults": 2.0,
    "kafkacore send(on_delivery), 1 MB": 1.0,
    "kafkacore send_many(list)": 4.0,
    "kafkacore send_many(columns)": 4.0,
}
READING = {
    "confluent consume(500)": 0.5,
    "confluent consume(10000)": 0.5,
    "aiokafka getmany(10000)": 0.5,
    "kafkacore poll(500) objects": 2.0,
    "kafkacore poll_batch() columns": 8.0,
}
# title -> what is compared, ours first
SENDING_TABLES = {
    "send(), every record tracked": [
        "kafkacore send(), 1 MB batches",
        "confluent produce()",
        "confluent produce(on_delivery)",
        "aiokafka send_batch",
    ],
    "send() with a callback": ["kafkacore send(on_delivery), 1 MB", "confluent produce(on_delivery)"],
    "send() in batches of 16 KiB, the default": ["kafkacore send(), defaults", "confluent produce()"],
    "send_many() of columns": ["kafkacore send_many(columns)", "confluent produce()", "confluent produce_batch(dicts)"],
    "send_many() of a list": ["kafkacore send_many(list)", "confluent produce()", "confluent produce_batch(dicts)"],
}
READING_TABLES = {
    "reading objects": ["kafkacore poll(500) objects", "confluent consume(500)", "confluent consume(10000)", "aiokafka getmany(10000)"],
    "reading columns": ["kafkacore poll_batch() columns", "confluent consume(500)", "confluent consume(10000)", "aiokafka getmany(10000)"],
}


def run_case(name: str, broker: NullBroker, records: int, size: int) -> dict[str, float]:
    """One case in a fresh process."""
    # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the client that is measured
    environment = {**os.environ, "NULLBROKER_PID": str(broker.pid), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CASE), name, broker.address, str(records), str(size)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def in_turns(cases: dict[str, float], broker: NullBroker, options: argparse.Namespace) -> dict[str, Timing]:
    """CPU nanoseconds per record of each case."""
    runs: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(options.rounds):
        for name, share in cases.items():
            progress(f"round {number + 1}/{options.rounds}: {name}")
            count = max(40_000, int(options.records * share))
            runs[name].append(run_case(name, broker, count, options.size)["cpu_us"] * 1000)
    progress("")
    return {name: Timing(statistics.median(took), min(took)) for name, took in runs.items()}


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def tables_of(titles: dict[str, list[str]], timings: dict[str, Timing], size: int) -> list[Table]:
    tables = []
    for title, names in titles.items():
        table = Table(title, "ns of CPU per record")
        table.add(f"{size} B", {name: timings[name] for name in names})
        tables.append(table)
    return tables


def waiting(broker: NullBroker, rounds: int, sends: int = 2000) -> list[Table]:
    """One record sent and waited for: kafkacore, a bare socket, confluent, in turns."""
    import confluent_kafka

    from kafkacore import KafkaProducer

    builder = BatchBuilder()
    builder.append(b"x" * 100, timestamp_ms=0)
    batch = bytes(builder.build())
    header = struct.pack(">hhihs", 0, 7, 1, 1, b"c")
    body = header + struct.pack(">hhiih5siii", -1, -1, 30_000, 1, 5, b"bench", 1, 0, len(batch)) + batch
    frame = struct.pack(">i", len(body)) + body
    host, port = broker.address.split(":")
    bare = socket.create_connection((host, int(port)))
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def bare_send() -> None:
        bare.sendall(frame)
        bare.recv(4096)

    ours = KafkaProducer(bootstrap_servers=broker.address, linger_ms=0)
    rival = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "acks": "all"})

    def rival_send() -> None:
        rival.produce("bench", b"x" * 100, partition=0)
        rival.flush()

    cases: dict[str, Any] = {
        "kafkacore send().result()": lambda: ours.send("bench", b"x" * 100, partition=0).result(10),
        "bare blocking socket": bare_send,
        "confluent produce(), flush()": rival_send,
    }
    taken: dict[str, list[int]] = {name: [] for name in cases}
    cpu = dict.fromkeys(cases, 0)
    for _ in range(rounds):
        for name, one in cases.items():
            for _ in range(50):
                one()
            before = time.process_time_ns()
            for _ in range(sends):
                start = time.perf_counter_ns()
                one()
                taken[name].append(time.perf_counter_ns() - start)
            cpu[name] += time.process_time_ns() - before
    ours.close()
    bare.close()
    table = Table("one record sent and waited for, acks=all, linger 0")
    for label, rank in (("p50", 0.5), ("p99", 0.99)):
        table.add(label, {name: Timing(sorted(times)[int(len(times) * rank)], min(times)) for name, times in taken.items()})
    table.add("CPU", {name: Timing(spent / rounds / sends, spent / rounds / sends) for name, spent in cpu.items()})
    return [table]


def memory(broker: NullBroker, rounds: int) -> list[Table]:
    """Resident bytes per queued record, while the broker is stopped."""
    used: dict[str, list[float]] = {"kafkacore": [], "confluent": []}
    for _ in range(rounds):
        for client, figures in used.items():
            figures.append(run_case(f"memory {client}", broker, 200_000, 100)["bytes"])
            os.kill(broker.pid, signal.SIGCONT)
    table = Table("memory of a queued record", "bytes")
    table.add("100 B", {client: Timing(statistics.median(figures), min(figures)) for client, figures in used.items()})
    return [table]


PARTS = ("sending", "reading", "waiting", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, with commas")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PARTS)}")
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * options.size, timestamp_ms=1_700_000_000_000):
        pass
    tables: list[Table] = []
    with NullBroker(batches={"bench": bytes(builder.build())}) as broker:
        if "sending" in wanted:
            tables += tables_of(SENDING_TABLES, in_turns(SENDING, broker, options), options.size)
        if "reading" in wanted:
            tables += tables_of(READING_TABLES, in_turns(READING, broker, options), options.size)
        if "waiting" in wanted:
            tables += waiting(broker, options.rounds)
        if "memory" in wanted:
            tables += memory(broker, min(options.rounds, 3))
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
