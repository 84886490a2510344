"""What a transaction costs: this client and confluent-kafka by turns, each beside the same records without a transaction.

    python bench/transactions.py [--json] [--quick] [--only own,kafka] [--rounds N] [--scale N] [--plot PNG]

Transactions of 1, 100, 10,000 and 100,000 records of 100 B go to four partitions, acks=all, replication factor 1. CPU is user and system
time of the client's process, all threads. A transaction is begin_transaction(), the sends and commit_transaction(); without it, the sends
and flush(). A commit takes what is still queued with it, so its latency counts that of the last records. What a transaction costs at
the least is one EndTxn: its CPU alone has a table of its own. Brokers: `kafkacore broker` (own) and Apache Kafka 4.3.1 (kafka). Each
process of a client has a transactional producer and a plain one that take turns (transactions_case.py).

--quick sends few records, once: it shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from broker import OwnBroker, RealKafka, progress, why_unavailable
from harness import Table, Timing, Verdict, add_arguments, plot, report
from transactions_case import CLIENTS, KINDS, WARM_UP_TURNS

from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, TopicPartition

CASE = Path(__file__).with_name("transactions_case.py")
OURS, MANY, THEIRS = CLIENTS
PLAIN, TRANSACTIONAL = KINDS
SIZES = {1: (10, 20), 100: (10, 20), 10_000: (10, 2), 100_000: (4, 1)}
"""Records of a transaction -> turns of each producer in a process, and transactions in a turn."""
PARTITIONS = 4
RANKS = {"p50": 0.5, "p99": 0.99}
BROKERS = {"own": "kafkacore's broker", "kafka": "Kafka 4.3.1"}
END_TXN_TURNS = (20, 50)
MOST_FOR_A_TRANSACTION = 1.05
LEAST_RECORDS_FOR_GOAL = 10_000

Figures = dict[str, dict[str, list[float]]]


def run_case(servers: str, client: str, records: int, turns: int, per_turn: int) -> Figures:
    """One client in a fresh process; afterwards each record must be in the log once."""
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(f"{topic}-{kind}", PARTITIONS, 1) for kind in KINDS]).check()
    command = [sys.executable, str(CASE), client, servers, topic, *map(str, (records, turns, per_turn))]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # its threads would spin for a while
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{client}, {records} records: {done.stderr}")
    count = (WARM_UP_TURNS + turns) * per_turn
    with KafkaConsumer(bootstrap_servers=servers) as consumer:
        for kind in KINDS:
            ends = consumer.end_offsets([TopicPartition(f"{topic}-{kind}", index) for index in range(PARTITIONS)])
            markers = sum(ends.values()) - count * records
            if not markers_fit(kind, markers, count):
                raise SystemExit(f"{client}, {count} times {records} records, {kind}: the log has {markers} entries more than records")
    found: Figures = json.loads(done.stdout)
    return found


def end_txn_alone(servers: str, turns: int, per_turn: int) -> list[float]:
    """CPU of an EndTxn and its answer in nanoseconds, by turn, in a fresh process."""
    command = [sys.executable, str(CASE), "--end-txn", servers, str(turns), str(per_turn)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"EndTxn alone: {done.stderr}")
    found: list[float] = json.loads(done.stdout)
    return found


def markers_fit(kind: str, markers: int, count: int) -> bool:
    """Whether a log has as many entries beside its records as `count` transactions leave: a marker in each partition of theirs."""
    return count <= markers <= count * PARTITIONS if kind == TRANSACTIONAL else markers == 0


def timing(values: list[float], unit_ns: float, share: float = 0.5) -> Timing:
    ordered = sorted(values)
    middle = statistics.median(ordered) if share == 0.5 else ordered[int(len(ordered) * share)]
    return Timing(middle / unit_ns, ordered[0] / unit_ns)


def tables_of(broker: str, found: dict[int, dict[str, Figures]], alone_ns: list[float]) -> list[Table]:
    """The tables of one broker.

    Args:
        broker: its name.
        found: figures by size of the transaction and client.
        alone_ns: CPU of an EndTxn and its answer.
    """
    cpu = Table(f"CPU of a transaction, {broker}", "us")
    wall = Table(f"time of a transaction, {broker}", "us")
    commit = Table(f"commit_transaction(), {broker}", "us")
    record = Table(f"CPU per record without a transaction and in one, {broker}", "ns")
    for records, clients in found.items():
        label = "1 record" if records == 1 else f"{records:,} records"
        cpu.add(label, {client: timing(by_kind[TRANSACTIONAL]["cpu_ns"], 1e3) for client, by_kind in clients.items()})
        wall.add(label, {client: timing(by_kind[TRANSACTIONAL]["wall_ns"], 1e3) for client, by_kind in clients.items()})
        for rank, share in RANKS.items():
            row = {client: timing(by_kind[TRANSACTIONAL]["end_ns"], 1e3, share) for client, by_kind in clients.items()}
            commit.add(f"{label}, {rank}", row)
            if rank == "p50":
                goal = "goal: not longer than confluent"
                commit.goals[f"{label}, {rank}"] = {
                    ours: Verdict(goal, row[ours].median_ns <= row[THEIRS].median_ns) for ours in (OURS, MANY)
                }
        for client, by_kind in clients.items():
            row = {kind: timing(by_kind[kind]["cpu_ns"], records) for kind in KINDS}
            record.add(f"{label}, {client}", row)
            if records >= LEAST_RECORDS_FOR_GOAL and client != THEIRS:
                share = row[TRANSACTIONAL].median_ns / row[PLAIN].median_ns
                record.goals[f"{label}, {client}"] = {TRANSACTIONAL: Verdict("goal: 5 % more", share <= MOST_FOR_A_TRANSACTION)}
    alone = Table(f"CPU of an EndTxn and its answer, {broker}", "us")
    alone.add("over kafkacore's connection", {"nothing else": timing(alone_ns, 1e3)})
    return [cpu, wall, commit, record, alone]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=5)
    parser.add_argument("--quick", action="store_true", help="few records, without Java: does the bench run?")
    parser.add_argument("--only", default=",".join(BROKERS), help=f"some of {', '.join(BROKERS)}, with commas")
    parser.add_argument("--scale", type=float, default=1, help="times as many turns in each process")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(BROKERS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(BROKERS)}")
    sizes = {records: (max(1, int(turns * options.scale)), per_turn) for records, (turns, per_turn) in SIZES.items()}
    if options.quick:
        options.rounds, wanted, sizes = 1, ["own"], dict.fromkeys(sizes, (1, 1))
    if "kafka" in wanted and (reason := why_unavailable()):
        raise SystemExit(reason)
    tables = []
    for kind in wanted:
        found: dict[int, dict[str, Figures]] = {
            records: {client: {of: {"cpu_ns": [], "wall_ns": [], "end_ns": []} for of in KINDS} for client in CLIENTS} for records in sizes
        }
        broker: Any
        alone_ns: list[float] = []
        with OwnBroker() if kind == "own" else RealKafka() as broker:
            for number in range(options.rounds):
                alone_ns += end_txn_alone(broker.bootstrap_servers, *((1, 1) if options.quick else END_TXN_TURNS))
                for records, (turns, per_turn) in sizes.items():
                    for client, by_kind in found[records].items():
                        progress(f"{kind}, round {number + 1}/{options.rounds}, {records} records: {client}")
                        for of, figures in run_case(broker.bootstrap_servers, client, records, turns, per_turn).items():
                            for name, values in figures.items():
                                by_kind[of][name] += values
        tables += tables_of(BROKERS[kind], found, alone_ns)
    progress("")
    if options.plot:
        plot(tables, options.plot)
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
