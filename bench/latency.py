"""From send() to the record in the consumer's hand, at 1,000 records per second: this client and confluent-kafka, by turns.

    python bench/latency.py [--json] [--quick] [--only own,kafka] [--rounds N] [--rate N] [--seconds N] [--plot PNG]

Producer and consumer are processes of their own; the consumer is a member of a group, with automatic commits. Records of 100 B go to four
partitions, acks=all. Brokers: `kafkacore broker` (own) and Apache Kafka 4.3.1 (kafka). Where the clients are mixed, the name is that of
the producer and of the consumer: it shows whose part is the longer one. p50 and p99 are over all records of all rounds.

--quick sends few records, once: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from broker import OwnBroker, RealKafka, progress, why_unavailable
from harness import Table, Timing, Verdict, add_arguments, plot, report

from kafkacore import KafkaAdminClient, NewTopic

CASE = Path(__file__).with_name("latency_case.py")
PAIRS = {
    "kafkacore": ("kafkacore", "kafkacore"),
    "confluent": ("confluent", "confluent"),
    "kafkacore to confluent": ("kafkacore", "confluent"),
    "confluent to kafkacore": ("confluent", "kafkacore"),
}
OURS, THEIRS, *_ = PAIRS
LINGERS_MS = (0, 5)
"""Without, and with the default of both clients."""
PARTITIONS = 4
RANKS = {"p50": 0.5, "p99": 0.99}
WARM_UP_TURNS = 4
"""A young JVM answers late, by tens of milliseconds: its first turns would be on the bill of the client that is first."""
BROKERS = {"own": "kafkacore's broker", "kafka": "Kafka 4.3.1"}


def rotated(pairs: list[tuple[str, tuple[str, str]]], by: int) -> list[tuple[str, tuple[str, str]]]:
    """No pair is always the first."""
    by %= len(pairs)
    return pairs[by:] + pairs[:by]


def start(*arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # its threads would spin for a while
    command = [sys.executable, str(CASE), *map(str, arguments)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    expect_line(process)
    return process


def expect_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args}: ended with status {process.wait()}")
    return line


def latencies(broker: Any, pair: tuple[str, str], linger_ms: int, rate: int, count: int) -> list[int]:
    """Nanoseconds of each record."""
    topic = f"latency-{uuid.uuid4().hex[:8]}"
    servers = broker.bootstrap_servers
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
    with contextlib.ExitStack() as stack:
        processes = []
        for what, client in zip(("consume", "produce"), reversed(pair), strict=True):
            process = start(what, client, servers, topic, linger_ms, rate, count)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        consumer, producer = processes
        assert producer.stdin is not None
        producer.stdin.write("begin\n")
        producer.stdin.flush()
        found: list[int] = json.loads(expect_line(consumer))["latencies_ns"]
        for process in processes:
            assert process.stdin is not None and process.stdout is not None
            process.wait(30)
            process.stdin.close()
            process.stdout.close()
    return found[len(found) // 10 :]  # the first tenth is the warm-up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--quick", action="store_true", help="few records, without Java: does the bench run?")
    parser.add_argument("--only", default=",".join(BROKERS), help=f"some of {', '.join(BROKERS)}, with commas")
    parser.add_argument("--rate", type=int, default=1_000, help="records per second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of each turn (default %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(BROKERS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(BROKERS)}")
    if options.quick:
        options.rounds, options.seconds, wanted = 1, 0.2, ["own"]
    if "kafka" in wanted and (reason := why_unavailable()):
        raise SystemExit(reason)
    tables = []
    for kind in wanted:
        table = Table(f"produced to consumed at {options.rate:,} records per second, {BROKERS[kind]}", "us")
        found: dict[int, dict[str, list[int]]] = {linger_ms: {pair: [] for pair in PAIRS} for linger_ms in LINGERS_MS}
        with OwnBroker() if kind == "own" else RealKafka() as broker:
            for number in range(0 if options.quick else WARM_UP_TURNS):
                progress(f"{kind}, warm-up {number + 1}/{WARM_UP_TURNS}")
                latencies(broker, PAIRS[(OURS, THEIRS)[number % 2]], 0, options.rate, int(options.rate * options.seconds))
            for number in range(options.rounds):
                for linger_ms, by_pair in found.items():
                    for pair, clients in rotated(list(PAIRS.items()), number):
                        progress(f"{kind}, round {number + 1}/{options.rounds}, linger {linger_ms} ms: {pair}")
                        by_pair[pair] += latencies(broker, clients, linger_ms, options.rate, int(options.rate * options.seconds))
        for linger_ms, by_pair in found.items():
            for rank, share in RANKS.items():
                row = {pair: Timing(sorted(all_ns)[int(len(all_ns) * share)] / 1e3, min(all_ns) / 1e3) for pair, all_ns in by_pair.items()}
                label = f"linger {linger_ms} ms, {rank}"
                table.add(label, row)
                table.goals[label] = {OURS: Verdict("goal: not longer than confluent", row[OURS].median_ns <= row[THEIRS].median_ns)}
        tables.append(table)
    progress("")
    if options.plot:
        plot(tables, options.plot)
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
