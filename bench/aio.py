"""What a record costs an asyncio client: kafkacore.aio, aiokafka and confluent-kafka's AIO classes, by turns.

    python bench/aio.py [--json] [--quick] [--only sending,reading,waiting,tasks,idle] [--broker null|kafka] [--loop asyncio|uvloop]
                        [--rounds N] [--records N] [--plot PNG]

Sending and reading: CPU per record of 100 B, user and system time of the whole process, so the threads of every client count. Waiting:
one record sent and its delivery awaited, beside the synchronous client. Tasks: 1,000 tasks, each of which sends a record and awaits its
delivery. Idle: a producer and a consumer to which nothing comes. Every case runs in a process of its own.

The goals look at the median of the rounds' ratios. --quick does little, once: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from aio_case import TASKS, TOPIC
from broker import RealKafka, progress, why_unavailable
from harness import Table, Timing, Verdict, add_arguments, plot, report
from nullbroker import NullBroker

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.records import BatchBuilder

CASE = Path(__file__).with_name("aio_case.py")
SENDING = {
    "kafkacore send": 1.0,
    "kafkacore send_many(list)": 4.0,
    "kafkacore send_many(columns)": 4.0,
    "aiokafka send": 0.1,
    "aiokafka send_batch": 0.5,
    "confluent AIO produce": 0.1,
}
READING = {
    "kafkacore poll(500)": 2.0,
    "kafkacore async for": 1.0,
    "kafkacore poll_batch()": 8.0,
    "aiokafka getmany(500)": 0.5,
    "aiokafka async for": 0.25,
    "confluent AIO consume(500)": 0.25,
}
"""Of --records that a case takes, so that the slow ones do not take all the time."""
LESS = {
    ("kafkacore send", "aiokafka send"): 20,
    ("kafkacore send", "confluent AIO produce"): 10,
    ("kafkacore send_many(list)", "aiokafka send_batch"): 10,
    ("kafkacore poll(500)", "aiokafka getmany(500)"): 10,
    ("kafkacore poll_batch()", "aiokafka getmany(500)"): 30,
}
"""How many times less CPU than the other case a case should take."""
WAITING = ("kafkacore await future", "kafkacore synchronous result()", "aiokafka send_and_wait", "confluent AIO await")
IN_TASKS = ("kafkacore 1,000 tasks", "aiokafka 1,000 tasks")
PARTS = ("sending", "reading", "waiting", "tasks", "idle")
PARTITIONS = 4
IDLE_SECONDS = 10


def run_case(name: str, servers: str, count: int, loop: str) -> dict[str, float]:
    """One case in a fresh process."""
    # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the case that is measured
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(CASE), name, servers, str(count), loop]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextlib.contextmanager
def null_broker() -> Iterator[str]:
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * 100, timestamp_ms=1_700_000_000_000):
        pass
    with NullBroker(PARTITIONS, {TOPIC: bytes(builder.build())}) as broker:
        yield broker.address


@contextlib.contextmanager
def real_kafka(records: int) -> Iterator[str]:
    """A topic that holds what the longest case reads."""
    with RealKafka() as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).check()
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for nth in range(records):
                producer.send(TOPIC, b"%0100d" % nth, partition=0)
        yield broker.bootstrap_servers


def by_turns(cases: Mapping[str, int], servers: str, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """What each case found, round after round."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for number in range(options.rounds):
        for name, count in cases.items():
            progress(f"round {number + 1}/{options.rounds}: {name}")
            found[name].append(run_case(name, servers, count, options.loop))
    return found


def timings(found: dict[str, list[dict[str, float]]], figure: str) -> dict[str, Timing]:
    each = {name: [run[figure] for run in runs] for name, runs in found.items()}
    return {name: Timing(statistics.median(figures), min(figures)) for name, figures in each.items()}


def ratio(found: dict[str, list[dict[str, float]]], theirs: str, ours: str, figure: str) -> float:
    """Median of the rounds' ratios: a slow moment of the machine hits both cases of a round alike."""
    return statistics.median(them[figure] / us[figure] for them, us in zip(found[theirs], found[ours], strict=True))


def costs(title: str, shares: dict[str, float], servers: str, options: argparse.Namespace) -> Table:
    found = by_turns({name: max(40_000, int(options.records * share)) for name, share in shares.items()}, servers, options)
    table = Table(title, "ns of CPU per record")
    table.add("100 B", timings(found, "cpu_ns"))
    verdicts = table.goals["100 B"] = {}
    for ours in found:
        less = {theirs: ratio(found, theirs, ours, "cpu_ns") for mine, theirs in LESS if mine == ours}
        if less:
            texts = [f"{times:.1f}x less than {theirs}, goal >= {LESS[ours, theirs]}x" for theirs, times in less.items()]
            held = all(times >= LESS[ours, theirs] for theirs, times in less.items())
            verdicts[ours] = Verdict("; ".join(texts), held)
    return table


def waiting(servers: str, options: argparse.Namespace) -> Table:
    found = by_turns(dict.fromkeys(WAITING, 200 if options.quick else 2000), servers, options)
    table = Table("one record sent and its delivery awaited, linger 0", "us")
    for label, figure in (("p50", "p50_ns"), ("p99", "p99_ns"), ("CPU", "cpu_ns")):
        table.add(label, {name: Timing(t.median_ns / 1000, t.best_ns / 1000) for name, t in timings(found, figure).items()})
    beside = ratio(found, WAITING[0], WAITING[1], "p50_ns")
    table.goals["p50"] = {WAITING[0]: Verdict(f"{beside:.2f}x of the synchronous client's, goal <= 1.3x", beside <= 1.3)}
    return table


def in_tasks(servers: str, options: argparse.Namespace) -> Table:
    found = by_turns(dict.fromkeys(IN_TASKS, max(TASKS, options.records // 10)), servers, options)
    table = Table("1,000 tasks that await their deliveries, wall clock", "ns per record")
    table.add("100 B", timings(found, "wall_ns"))
    faster = ratio(found, IN_TASKS[1], IN_TASKS[0], "wall_ns")
    table.goals["100 B"] = {IN_TASKS[0]: Verdict(f"{faster:.1f}x aiokafka's rate, goal >= 5x", faster >= 5)}
    return table


def idle(servers: str, options: argparse.Namespace) -> Table:
    found = by_turns({"kafkacore idle": 1 if options.quick else IDLE_SECONDS}, servers, options)
    table = Table("a producer and a consumer to which nothing comes", "% of a processor")
    table.add("CPU", timings(found, "percent"))
    percent = table.rows["CPU"]["kafkacore idle"].median_ns
    table.goals["CPU"] = {"kafkacore idle": Verdict("goal <= 0.2 %", percent <= 0.2)}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--quick", action="store_true", help="little of everything: does the bench run?")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, with commas")
    parser.add_argument("--broker", choices=("null", "kafka"), default="null")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.records = 1, 40_000
    if options.broker == "kafka" and (reason := why_unavailable()):
        raise SystemExit(reason)
    tables: list[Table] = []
    with null_broker() if options.broker == "null" else real_kafka(int(options.records * max(READING.values())) + 100_000) as servers:
        name = {"null": "the null broker", "kafka": "Kafka 4.3.1"}[options.broker]
        if "sending" in wanted:
            tables.append(costs(f"sending to {name}, {options.loop}", SENDING, servers, options))
        if "reading" in wanted:
            tables.append(costs(f"reading from {name}, {options.loop}", READING, servers, options))
        if "waiting" in wanted:
            tables.append(waiting(servers, options))
        if "tasks" in wanted:
            tables.append(in_tasks(servers, options))
        if "idle" in wanted:
            tables.append(idle(servers, options))
    progress("")
    if options.plot:
        plot(tables, options.plot)
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
