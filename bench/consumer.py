"""What a member of a group costs: CPU per record beside the other clients, and its requests while nothing comes.

    python bench/consumer.py [--json] [--quick] [--only null,polls,own,kafka,idle] [--rounds N] [--records N] [--plot PNG]

Reading: records of 100 B out of one partition and out of four, with automatic commits, from the null broker (null), from `kafkacore
broker` (own) and from Apache Kafka 4.3.1 (kafka). Every case runs in a process of its own and the cases take turns; CPU is user and system
time of the whole process, so the threads of every client count.
Polls: the same from the null broker and four partitions, where each poll is for few records (polls), in a group and without. A `for` loop
is beside confluent's poll(), which gives one record.
Idle: a member of a group with 10 partitions to which nothing comes, each client on an embedded cluster that counts its requests.
What more partitions cost a member is a table of scale.py (consumer.group).

--quick reads little, once: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from broker import OwnBroker, RealKafka, progress, why_unavailable
from consumer_case import CASES, POLLS
from harness import Table, Timing, Verdict, add_arguments, plot, report
from nullbroker import NullBroker, group_answers

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic
from kafkacore.protocol import OffsetCommitRequest
from kafkacore.records import BatchBuilder

CASE = Path(__file__).with_name("consumer_case.py")
TOPIC, PARTITIONS, RECORD_BYTES = "bench", (1, 4), 100
OBJECTS, COLUMNS, CONFLUENT, AIOKAFKA, KAFKA_PYTHON, *_ = CASES
SHARES = {OBJECTS: 2.0, COLUMNS: 16.0, CONFLUENT: 1.0, AIOKAFKA: 0.5, KAFKA_PYTHON: 0.1}
"""Of --records that a case reads, so that the slow ones do not take all the time."""
GOALS = {OBJECTS: 6, COLUMNS: 24}
"""How many times less than confluent's the CPU time of a case should be."""
IDLE_APIS = ("Fetch", "Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch", "ListOffsets", "Metadata", "FindCoordinator")
IDLE_SECONDS = 20


def run_case(name: str, servers: str, topic: str, count: int, records_in_topic: int, *, in_group: bool = True) -> float:
    """CPU nanoseconds per record of one case, in a fresh process and a new group."""
    # numpy's BLAS starts a thread per processor that spins for a while and would be charged to the case that is measured
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    group = f"bench-{uuid.uuid4().hex[:8]}" if in_group else ""
    command = [sys.executable, str(CASE), name, servers, topic, group, str(count), str(records_in_topic)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}\n{done.stderr}")
    cpu_ns: float = json.loads(done.stdout.strip().splitlines()[-1])["cpu_ns"]
    return cpu_ns


class Source(NamedTuple):
    """Where a row's records come from.

    Attributes:
        records: in the topic; 0 where it has no end.
        null_broker: which counts the commits.
    """

    servers: str
    topic: str
    records: int
    null_broker: NullBroker | None = None


@contextlib.contextmanager
def null_brokers(records: int) -> Iterator[dict[int, Source]]:
    builder = BatchBuilder(max_bytes=16_384)
    while builder.append(b"x" * RECORD_BYTES, timestamp_ms=1_700_000_000_000):
        pass
    batch = bytes(builder.build())
    with contextlib.ExitStack() as stack:
        found = {}
        for partitions in PARTITIONS:
            broker = stack.enter_context(NullBroker(partitions, {TOPIC: batch}, answers=group_answers(TOPIC, partitions)))
            found[partitions] = Source(broker.address, TOPIC, 0, broker)
        yield found


@contextlib.contextmanager
def filled(broker: Any, records: int) -> Iterator[dict[int, Source]]:
    """A broker with topics of so many records, in the producer's own batches of 16 KiB."""
    with broker:
        servers = broker.bootstrap_servers
        found = {partitions: Source(servers, f"{TOPIC}-{partitions}", records) for partitions in PARTITIONS}
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(source.topic, partitions, 1) for partitions, source in found.items()]).check()
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for partitions, source in found.items():
                for nth in range(records):
                    producer.send(source.topic, b"%0*d" % (RECORD_BYTES, nth), partition=nth * partitions // records)
        yield found


def reading(kind: str, rounds: int, records: int) -> Table:
    """CPU per record of every client from one broker, by turns. The goals look at the median of the rounds' ratios: a slow moment of the
    machine hits both clients of a round alike."""
    opened = {
        "null": lambda: null_brokers(records),
        "own": lambda: filled(OwnBroker(), records),
        "kafka": lambda: filled(RealKafka(), records),
    }
    names = {"null": "the null broker", "own": "kafkacore's broker", "kafka": "Kafka 4.3.1"}
    runs: dict[int, dict[str, list[float]]] = {partitions: {name: [] for name in SHARES} for partitions in PARTITIONS}
    with opened[kind]() as sources:
        for number in range(rounds):
            for partitions, source in sources.items():
                for name, share in SHARES.items():
                    progress(f"{kind}, round {number + 1}/{rounds}, {partitions} partitions: {name}")
                    committed = commits_of(source)
                    count = int(records * share)
                    runs[partitions][name].append(run_case(name, source.servers, source.topic, count, source.records))
                    if committed is not None and commits_of(source) == committed:
                        raise SystemExit(f"{name} commits nothing")
    table = Table(f"reading in a group, from {names[kind]}", "ns of CPU per record")
    for partitions, by_case in runs.items():
        label = "1 partition" if partitions == 1 else f"{partitions} partitions"
        table.add(label, timings(by_case))
        verdicts = table.goals[label] = {}
        for case, goal in GOALS.items():
            times_less = statistics.median(theirs / ours for theirs, ours in zip(by_case[CONFLUENT], by_case[case], strict=True))
            verdicts[case] = Verdict(f"{times_less:.1f}x less than confluent, goal >= {goal}x", times_less >= goal)
    return table


def polling(rounds: int, records: int) -> Table:
    """CPU per record where each call gives few."""
    found: dict[tuple[str, bool], dict[str, list[float]]] = {}
    with null_brokers(records) as sources:
        source = sources[max(PARTITIONS)]
        for number in range(rounds):
            for in_group in (False, True):
                for row in POLLS.values():
                    progress(f"polls, round {number + 1}/{rounds}, {row}")
                    by_client = found.setdefault((row, in_group), {"kafkacore": [], "confluent": []})
                    for client, figures in by_client.items():
                        figures.append(run_case(f"{client} {row}", source.servers, source.topic, records // 10, 0, in_group=in_group))
    table = Table("few records per call, from the null broker", "ns of CPU per record")
    for (row, in_group), by_client in found.items():
        label = f"{row}, {'in a group' if in_group else 'without one'}"
        table.add(label, timings(by_client))
        ours = statistics.median(theirs / ours for theirs, ours in zip(by_client["confluent"], by_client["kafkacore"], strict=True))
        table.goals[label] = {"kafkacore": Verdict(f"{ours:.1f}x less than confluent, goal >= 1x", ours >= 1)}
    return table


def commits_of(source: Source) -> int | None:
    """OffsetCommits that the null broker has answered; None of another broker."""
    broker = source.null_broker
    return None if broker is None else int(broker.counters()[f"api{OffsetCommitRequest.API_KEY}"])


# ---- idle: run as `consumer.py --member CLIENT SERVERS PROTOCOL`, which polls until its stdin ends


def idle_member(client: str, servers: str, protocol: str) -> None:
    """Polls until stdin ends; prints a line when a record has come: it has its partitions then."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    group = "idle"
    if client == "kafkacore":
        from kafkacore import KafkaConsumer

        with KafkaConsumer(
            TOPIC, bootstrap_servers=servers, group_id=group, group_protocol=protocol, auto_offset_reset="earliest"
        ) as consumer:
            while not ended.is_set():
                if consumer.poll(1):
                    print("ready", flush=True)
    else:
        import confluent_kafka

        rival = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        )
        rival.subscribe([TOPIC])
        while not ended.is_set():
            message = rival.poll(1)
            if message is not None and message.error() is None:
                print("ready", flush=True)
        rival.close()


@contextlib.contextmanager
def idle_on_its_cluster(client: str, protocol: str) -> Iterator[tuple[Callable[[], float], collections.Counter[str]]]:
    """A member that has its partitions and gets nothing: its CPU seconds so far, and the requests that its cluster counts."""
    from kafkacore.testing import EmbeddedCluster

    counted: collections.Counter[str] = collections.Counter()
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC, 10)
        command = [sys.executable, __file__, "--member", client, cluster.bootstrap_servers, protocol]
        member = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert member.stdin is not None and member.stdout is not None
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"x").result(30)
        if not member.stdout.readline():
            raise SystemExit(f"{client}: the idle member ended with status {member.wait()}")
        for api in IDLE_APIS:
            cluster.control(api, lambda _, api=api: counted.update([api]))
        yield lambda: time.clock_gettime((~member.pid << 3) | 2), counted
        member.stdin.close()
        if member.wait(60):
            raise SystemExit(f"{client}: the idle member ended with status {member.returncode}")
        member.stdout.close()


def idle(rounds: int, seconds: float) -> list[Table]:
    """Requests per second and CPU of a member to which nothing comes, of both clients at the same time."""
    clients = ("kafkacore", "confluent")
    requests = Table("an idle member's requests, 10 partitions", "per second")
    cpu = Table("an idle member's CPU", "% of a processor")
    for protocol in ("classic", "consumer"):
        sums: dict[str, list[float]] = {client: [] for client in clients}
        by_api: dict[str, dict[str, list[float]]] = {api: {client: [] for client in clients} for api in IDLE_APIS}
        spent: dict[str, list[float]] = {client: [] for client in clients}
        for number in range(rounds):
            progress(f"idle, {protocol}, round {number + 1}/{rounds}")
            with contextlib.ExitStack() as stack:
                watched = {client: stack.enter_context(idle_on_its_cluster(client, protocol)) for client in clients}
                time.sleep(min(seconds, 6))  # the record's commit, answers that were under way
                before = {client: (cpu_s(), counted.copy()) for client, (cpu_s, counted) in watched.items()}
                begin = time.monotonic()
                time.sleep(seconds)
                took = time.monotonic() - begin
                for client, (cpu_s, counted) in watched.items():
                    cpu_before, counted_before = before[client]
                    seen = counted - counted_before
                    spent[client].append((cpu_s() - cpu_before) * 100 / took)
                    sums[client].append(seen.total() / took)
                    for api, figures in by_api.items():
                        figures[client].append(seen[api] / took)
        requests.add(f"{protocol}, all", timings(sums))
        for api, figures in by_api.items():
            if any(any(each) for each in figures.values()):
                requests.add(f"{protocol}, {api}", timings(figures))
        cpu.add(protocol, timings(spent))
        ours = requests.rows[f"{protocol}, all"]
        held = ours["kafkacore"].median_ns <= ours["confluent"].median_ns * 1.05
        requests.goals[f"{protocol}, all"] = {"kafkacore": Verdict("goal: not more than confluent", held)}
        cpu.goals[protocol] = {"kafkacore": Verdict("goal <= 0.2 %", cpu.rows[protocol]["kafkacore"].median_ns <= 0.2)}
    return [requests, cpu]


def timings(figures: dict[str, list[float]]) -> dict[str, Timing]:
    return {name: Timing(statistics.median(each), min(each)) for name, each in figures.items()}


PARTS = ("null", "polls", "own", "kafka", "idle")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--quick", action="store_true", help="little of everything, without Java: does the bench run?")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}, with commas")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    parser.add_argument("--member", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        idle_member(*options.member)
        return
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.records = 1, 20_000
        wanted = [part for part in wanted if part != "kafka"]
    if "kafka" in wanted and (reason := why_unavailable()):
        raise SystemExit(reason)
    tables: list[Table] = []
    for part in PARTS:
        if part in wanted and part == "polls":
            tables.append(polling(options.rounds, options.records))
        elif part in wanted and part != "idle":
            tables.append(reading(part, options.rounds, options.records))
    if "idle" in wanted:
        tables += idle(min(options.rounds, 3), 1 if options.quick else IDLE_SECONDS)
    progress("")
    if options.plot:
        plot(tables, options.plot)
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
