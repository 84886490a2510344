"""Time without progress in a group while members come and go: this client and confluent-kafka, at the same time on the same topic.

    python bench/churn.py [--json] [--quick] [--only eager,cooperative,KIP-848] [--seconds N] [--rounds N] [--broker kafka|own] [--plot PNG]

Each client has a group of 20 members, threads of four processes, on 100 partitions that get a record every 100 ms. Every second a member
joins and, half a second later, the oldest leaves. A partition makes progress when its group is handed a record behind all that
it was handed before. Settings are the defaults, but for the protocol. `no group` is a consumer to which all partitions are assigned: what
it does not get was not there, or the machine was busy.

A gap is the time between two steps of progress beyond twice the records' distance. Per partition all gaps together, and the longest:
p50, p99 and max over the partitions, the median of the rounds. --quick shows that the bench runs, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from broker import OwnBroker, RealKafka, progress, why_unavailable
from churn_member import CLIENTS, PROTOCOLS
from harness import Table, Timing, Verdict, add_arguments, plot, report

from kafkacore import KafkaAdminClient, NewTopic

MEMBER = Path(__file__).with_name("churn_member.py")
OURS, THEIRS, FLOOR = CLIENTS
RANKS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


class Process:
    """A process of churn_member.py."""

    def __init__(self, *arguments: str) -> None:
        # numpy's BLAS starts a thread per processor that spins for a while
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(MEMBER), *arguments]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Waits for the line that it prints when it has started, or has written."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"a process of members ended with status {self._process.wait()}")

    def close(self) -> None:
        """Ends it: its members leave."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Members:
    """The members of one client's group, spread over processes."""

    def __init__(self, client: str, servers: str, topic: str, protocol: str, processes: int) -> None:
        self.processes = [Process(client, servers, topic, protocol) for _ in range(processes)]
        self._oldest = self._next = 0

    def join(self) -> None:
        self.processes[self._next % len(self.processes)].say(f"join {self._next}")
        self._next += 1

    def leave(self) -> None:
        """The member that has been there for the longest time leaves."""
        self.processes[self._oldest % len(self.processes)].say(f"leave {self._oldest}")
        self._oldest += 1

    def events(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(monotonic ns, partition, offset) of all records that were handed out so far."""
        with tempfile.TemporaryDirectory() as directory:
            parts = []
            for number, process in enumerate(self.processes):
                process.say(f"write {directory}/{number}")
                process.wait()
                parts.append(np.fromfile(f"{directory}/{number}", np.int64).reshape(-1, 3))
        return np.concatenate(parts)


def gaps_ms(events: np.ndarray[Any, np.dtype[np.int64]], partitions: int, begin_ns: int, end_ns: int, usual_ns: int) -> list[list[float]]:
    """The gaps of each partition between two times.

    Args:
        events: (ns, partition, offset) of records handed out, in any order.
        partitions: how many there are; one without events is one gap.
        begin_ns, end_ns: the time looked at.
        usual_ns: the distance of two steps that is no gap, and is taken off those that are.

    Returns:
        Per partition the milliseconds of each gap.
    """
    events = events[np.argsort(events[:, 0], kind="stable")]
    found = []
    for partition in range(partitions):
        mine = events[events[:, 1] == partition]
        furthest = np.maximum.accumulate(mine[:, 2]) if len(mine) else mine[:, 2]
        steps = mine[:, 0][np.diff(furthest, prepend=-1) > 0]
        inside = steps[(steps > begin_ns) & (steps < end_ns)]
        distances = np.diff(inside, prepend=begin_ns, append=end_ns)
        found.append([float(ns) / 1e6 for ns in distances - usual_ns if ns > 0])
    return found


def churn(broker: Any, protocol: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Figures by row and client: one round of one protocol."""
    topic = f"churn-{uuid.uuid4().hex[:8]}"
    servers = broker.bootstrap_servers
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, options.partitions, 1)]).check()
    with contextlib.ExitStack() as stack:
        groups = {
            client: Members(client, servers, topic, protocol, 1 if client == FLOOR else options.processes) for client in CLIENTS
        }
        feed = Process("feed", servers, topic, str(options.every_ms))
        for process in [feed, *(process for members in groups.values() for process in members.processes)]:
            stack.callback(process.close)
            process.wait()
        changing = [groups[OURS], groups[THEIRS]]
        groups[FLOOR].join()
        for _ in range(options.members):
            for members in changing:
                members.join()
        time.sleep(options.settle)
        begin_ns = time.monotonic_ns()
        for step in range(2 * options.seconds):
            until_ns = begin_ns + step * 500_000_000
            time.sleep(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))
            for members in changing[:: 1 if step % 4 < 2 else -1]:
                (members.leave if step % 2 else members.join)()
        end_ns = begin_ns + options.seconds * 1_000_000_000
        time.sleep(max(0.0, (end_ns - time.monotonic_ns()) / 1e9))
        figures: dict[str, dict[str, float]] = {}
        for client, members in groups.items():
            gaps = gaps_ms(members.events(), options.partitions, begin_ns, end_ns, 2 * options.every_ms * 1_000_000)
            together, longest = [sum(each) for each in gaps], [max(each, default=0.0) for each in gaps]
            for what, values in (("all gaps", together), ("longest gap", longest)):
                for rank, share in RANKS.items():
                    figures.setdefault(f"{what}, {rank}", {})[client] = float(np.quantile(values, share))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rounds=3)
    parser.add_argument("--quick", action="store_true", help="few members for some seconds on the own broker: does the bench run?")
    parser.add_argument("--only", default=",".join(PROTOCOLS), help=f"some of {', '.join(PROTOCOLS)}, with commas")
    parser.add_argument("--broker", choices=("kafka", "own"), default="kafka", help="Apache Kafka 4.3.1, or `kafkacore broker`")
    parser.add_argument("--seconds", type=int, default=60, help="how long members come and go (default %(default)s)")
    parser.add_argument("--settle", type=float, default=15, help="seconds before that (default %(default)s)")
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--processes", type=int, default=4, help="that each client's members are spread over (default %(default)s)")
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--every-ms", type=int, default=100, help="between two records of a partition")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the tables into this file (needs matplotlib)")
    options = parser.parse_args()
    if options.quick:
        options.broker, options.seconds, options.settle, options.rounds = "own", 2, 3, 1
        options.members, options.processes, options.partitions = 3, 1, 6
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PROTOCOLS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is not one of {', '.join(PROTOCOLS)}")
    if options.broker == "kafka" and (reason := why_unavailable()):
        raise SystemExit(reason)
    samples: dict[str, dict[str, dict[str, list[float]]]] = {}  # protocol -> row -> client -> rounds
    with OwnBroker() if options.broker == "own" else RealKafka() as broker:
        for number in range(options.rounds):
            for protocol in wanted:
                progress(f"round {number + 1}/{options.rounds}: {protocol}")
                for row, by_client in churn(broker, protocol, options).items():
                    for client, figure in by_client.items():
                        samples.setdefault(protocol, {}).setdefault(row, {}).setdefault(client, []).append(figure)
    progress("")
    tables = []
    for protocol, rows in samples.items():
        table = Table(
            f"{protocol}: without progress, {options.members} members, {options.partitions} partitions, a member joins and a member leaves "
            f"every second for {options.seconds} s",
            "ms",
        )
        for row, by_client in rows.items():
            timings = {client: Timing(statistics.median(figures), min(figures)) for client, figures in by_client.items()}
            table.add(row, timings)
            ours, theirs = timings[OURS].median_ns, timings[THEIRS].median_ns
            table.goals[row] = {OURS: Verdict("goal: not longer than confluent", ours <= theirs)}
        tables.append(table)
    if options.plot:
        plot(tables, options.plot)
    report(tables, as_json=options.json)


if __name__ == "__main__":
    main()
