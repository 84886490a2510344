"""A cluster under faults for any length of time: leaders and coordinators move, brokers die, credentials expire, and no promise is broken.

    python tests/soak.py --seconds 600 --seed 1 --json
    python tests/soak.py --group --seconds 600 --seed 1 --json
    python tests/soak.py --transactions --seconds 600 --seed 1 --json

Three brokers with SASL; tokens and sessions that live for a few seconds; producers, consumers, a group, a transactional producer. A nemesis
starts faults, often two beside each other, for a round; then all faults end, and every client has to come back by itself within
RETURN_S before the next round begins. At the end all readers read everything, and `kafkacore.testing.history` judges. Errors that clients
raise while there are faults are counted, and are findings only if no fault explains them.

The seed decides which faults come in which order, and for how long; what they meet is up to the machine. Progress goes to stderr, findings
too; --json ends stdout with one line of figures. The exit code is 1 with findings.

--group plays members of one group instead, by each protocol in turn (tests/soak_groups.py). --transactions plays transactional producers,
a group that copies what they write, and readers (tests/soak_transactions.py): first in one process, then with a process for each broker.
--servers HOST:PORT plays the group on a Kafka whose brokers stay as they are.
--face aio plays each of them with the asyncio clients, all in one event loop (tests/kit/faces.py).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import resource
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import soak_clients
import soak_groups
import soak_transactions
from soak_clients import (
    PARTITIONS,
    PLACES,
    PLAIN_PASSWORD,
    PLAIN_USER,
    TOPIC,
    WAIT_S,
    Client,
    GroupMember,
    OurReader,
    World,
    fresh_readers,
    plain,
    wall_ms,
)
from soak_groups import PROTOCOLS, GroupSoak
from soak_transactions import TransactionSoak

from kafkacore import KafkaConsumer
from kafkacore.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from kafkacore.errors import KafkaError
from kafkacore.testing import CLIENTS, Disconnect, EmbeddedCluster
from tests.kit.faces import face_in

FACED = (soak_clients, soak_groups, soak_transactions)
"""Modules that make clients of either face."""
BROKERS = (1, 2, 3)
TOKEN_LIFE_S = 4.0
ROUND_S = 15.0
RETURN_S = WAIT_S
"""How long a client may take to come back after the last fault of a round."""
COORDINATOR_PARTITIONS = 2
STRIKES = 3
"""How many faults a half second of transactions has."""
CONFIG = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "connections.max.reauth.ms": 3_000,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1_500,
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 100,
    "replica.socket.timeout.ms": 2_000,
    "offsets.topic.num.partitions": COORDINATOR_PARTITIONS,
    "transaction.state.log.num.partitions": COORDINATOR_PARTITIONS,
}


class Fault(NamedTuple):
    """A fault that is under way, and what ends it."""

    kind: str
    end: Callable[[], None]
    broker: int | None = None


class Nemesis:
    """Starts faults, and ends them.

    Attributes:
        counts: how many of each kind there were.
        refused: what the cluster answered to those that were not possible just then.
    """

    def __init__(self, cluster: EmbeddedCluster, world: World, rng: random.Random) -> None:
        self._cluster, self._world, self._rng = cluster, world, rng
        self._active: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], Fault]]] = {
            "move leader": (5, lambda: self._moves(TOPIC, PARTITIONS)),
            "move group coordinator": (3, lambda: self._moves(GROUP_TOPIC, COORDINATOR_PARTITIONS)),
            "move transaction coordinator": (3, lambda: self._moves(TRANSACTION_TOPIC, COORDINATOR_PARTITIONS)),
            "stop broker": (2, lambda: self._ends(cluster.stop_broker)),
            "kill broker": (2, lambda: self._ends(cluster.kill_broker)),
            "pause broker": (2, self._pauses),
            "isolate from clients": (2, lambda: self._isolates(CLIENTS)),
            "isolate from broker": (2, lambda: self._isolates(None)),
            "delay": (2, self._delays),
            "cut": (2, self._cuts),
            "lose answers": (2, self._loses_answers),
            "tokens fail": (3, self._tokens_fail),
            "rotate password": (3, self._rotates),
        }

    def strike(self) -> None:
        """One fault, or two in a row that overlap; ended after some time."""
        weights = [weight for weight, _ in self._kinds.values()]
        for kind in dict.fromkeys(self._rng.choices(list(self._kinds), weights, k=self._rng.choice((1, 2, 2)))):
            self._start(kind)
            self._rest(0.1, 0.8)
        self._rest(0.3, 3.0)
        self.end_all()

    def _rest(self, least_s: float, most_s: float) -> None:
        time.sleep(self._rng.uniform(least_s, most_s))

    def _start(self, kind: str) -> None:
        try:
            self._active.append(self._kinds[kind][1]()._replace(kind=kind))
            self.counts[kind] += 1
        except KafkaError as error:
            self.refused[f"{kind}: {type(error).__name__}"] += 1

    def end_all(self) -> None:
        """Ends the faults, in any order."""
        active, self._active = self._active, []
        self._rng.shuffle(active)
        for fault in active:
            try:
                fault.end()
            except Exception as error:
                self._world.find(f"FAULT DOES NOT END: {fault.kind}: {''.join(traceback.format_exception(error))}")

    def _broker(self) -> int:
        """One that no fault has taken away."""
        taken = {fault.broker for fault in self._active}
        return self._rng.choice([broker for broker in BROKERS if broker not in taken])

    # ---- kinds

    def _moves(self, topic: str, partitions: int) -> Fault:
        self._cluster.move_leader(topic, self._rng.randrange(partitions), self._rng.choice(BROKERS))
        return Fault("", lambda: None)

    def _ends(self, end: Callable[[int], None]) -> Fault:
        broker = self._broker()
        end(broker)
        return Fault("", lambda: self._cluster.start_broker(broker), broker)

    def _pauses(self) -> Fault:
        broker = self._broker()
        self._cluster.pause_broker(broker)
        return Fault("", lambda: self._cluster.resume_broker(broker), broker)

    def _isolates(self, peer: Any) -> Fault:
        broker = self._broker()
        network = self._cluster.network
        other = peer if peer is not None else self._rng.choice([each for each in BROKERS if each != broker])
        network.isolate(broker, other, direction=self._rng.choice(("both", "to", "from")))

        def heal() -> None:
            if self._rng.random() < 0.5:
                network.cut(broker, other)  # what was held back is lost, else it arrives late
            network.heal(broker, other)

        return Fault("", heal, broker)

    def _delays(self) -> Fault:
        broker = self._broker()
        self._cluster.network.delay(self._rng.randrange(20, 400), broker)
        return Fault("", lambda: self._cluster.network.heal(broker), broker)

    def _cuts(self) -> Fault:
        self._cluster.network.cut(self._rng.choice((None, *BROKERS)), self._rng.choice((None, CLIENTS)))
        return Fault("", lambda: None)

    def _loses_answers(self) -> Fault:
        rng = random.Random(self._rng.random())
        self._cluster.control("Produce", lambda _: Disconnect(handle=rng.random() < 0.7) if rng.random() < 0.1 else None)
        return Fault("", lambda: self._cluster.control("Produce", None))

    def _tokens_fail(self) -> Fault:
        self._world.tokens.fail(self._rng.choice(("fails", "fails", "hangs")))
        self._rest(0.0, 1.5 * TOKEN_LIFE_S)
        return Fault("", self._world.tokens.work)

    def _rotates(self) -> Fault:
        passwords = self._world.passwords
        before = passwords.current
        passwords.rotate()
        self._rest(0.0, 4.0)

        def settle() -> None:
            if self._rng.random() < 0.5:
                passwords.hand_over()
            else:
                passwords.set(before)  # the clients come back by themselves

        return Fault("", settle)


class LogCounter(logging.Handler):
    """Counts warnings and errors of kafkacore by their template; one with a traceback is a finding."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        template = f"{record.levelname} {record.name}: {str(record.msg)[:100]}"
        self.counts[template] += 1
        self.examples.setdefault(template, record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self._world.find(f"LOGGED: {record.getMessage()}: {''.join(traceback.format_exception(record.exc_info[1]))}")


class Soak:
    """A run.

    Args:
        seconds: how long faults go on; the round under way is completed.
        seed: decides the faults.
        data_dir: where the brokers keep their logs; None for memory.
        say: is handed lines of progress.
    """

    def __init__(self, seconds: float, seed: int, data_dir: str | None = None, say: Callable[[str], object] = lambda line: None) -> None:
        self._seconds, self._seed, self._data_dir, self._say = seconds, seed, data_dir, say

    def run(self) -> dict[str, Any]:
        """Plays, judges, and returns the figures; `findings` among them is empty when nothing was broken."""
        began = time.monotonic()
        with EmbeddedCluster(brokers=3, data_dir=self._data_dir, config=CONFIG, users={PLAIN_USER: PLAIN_PASSWORD}, faults=True) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS, 3)
            world = World(cluster.bootstrap_servers, TOKEN_LIFE_S)
            logged = LogCounter(world)
            logger = logging.getLogger("kafkacore")
            logger.addHandler(logged)
            hook = threading.excepthook

            def died(arguments: threading.ExceptHookArgs) -> None:
                if arguments.exc_value is not None:
                    name = arguments.thread.name if arguments.thread is not None else ""
                    world.find(f"A THREAD DIED: {name}: {''.join(traceback.format_exception(arguments.exc_value))}")

            threading.excepthook = died
            try:
                figures = self._play(cluster, world, began)
            finally:
                world.end()
                threading.excepthook = hook
                logger.removeHandler(logged)
                world.close()
            figures["logged"] = dict(logged.counts.most_common())
            figures["examples"] |= logged.examples
            return figures

    def _play(self, cluster: EmbeddedCluster, world: World, began: float) -> dict[str, Any]:
        writers, readers, members, observer = soak_clients.soak_clients(world)
        clients: list[Client] = [*readers, *members, *writers, observer]
        for client in clients:
            client.start()
        nemesis = Nemesis(cluster, world, random.Random(self._seed))
        slowest_s: dict[str, float] = {}
        rounds = 0
        self._come_back(cluster, world, clients, slowest_s)  # all clients work before the first fault
        slowest_s.clear()
        faults_began = time.monotonic()
        while time.monotonic() - faults_began < self._seconds and not world.findings:
            rounds += 1
            end = min(time.monotonic() + ROUND_S, faults_began + self._seconds)
            while time.monotonic() < end:
                nemesis.strike()
            world.passwords.hand_over()
            self._come_back(cluster, world, clients, slowest_s)
            elapsed = time.monotonic() - faults_began
            self._say(
                f"soak: {elapsed:.0f} s, round {rounds}: {sum(nemesis.counts.values())} faults, {len(world.history.sends):,} records sent,"
                f" {sum(world.errors.values())} errors raised, {len(world.findings)} findings"
            )
        faults_s = time.monotonic() - faults_began
        fresh = self._settle(world, writers, readers, observer)
        self._let_the_group_end(world, members)
        self._judge(world, members)
        sends = world.history.sends
        return {
            "seed": self._seed,
            "seconds": round(time.monotonic() - began, 1),
            "seconds_with_faults": round(faults_s, 1),
            "rounds": rounds,
            "records_sent": len(sends),
            "records_acknowledged": sum(send.acked_at is not None for send in sends),
            "records_refused": sum(send.failed_at is not None for send in sends),
            "transactions": {"committed": getattr(writers[-1], "committed", 0), "aborted": getattr(writers[-1], "aborted", 0)},
            "shown": {client.name: client.seen for client in [*readers, *fresh, *members]},
            "commits": world.offsets.acked,
            "late_commits": world.offsets.late,
            "faults": dict(nemesis.counts.most_common()),
            "faults_not_possible": dict(nemesis.refused.most_common()),
            "errors": dict(world.errors.most_common()),
            "examples": world.examples,
            "token_requests": dict(world.tokens.answers),
            "slowest_return_s": {name: round(took_s, 1) for name, took_s in slowest_s.items()},
            "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "findings": list(world.findings),
        }

    def _come_back(self, cluster: EmbeddedCluster, world: World, clients: list[Client], slowest_s: dict[str, float]) -> None:
        """Waits until all replicas are in sync and every client has seen through something that was sent after this call."""
        began, began_ms = time.monotonic(), wall_ms()
        waited_for = {client.name: client for client in clients}

        def lacking() -> list[str]:
            for client in [each for each in waited_for.values() if each.latest_ms >= began_ms]:
                del waited_for[client.name]
                slowest_s[client.name] = max(slowest_s.get(client.name, 0.0), time.monotonic() - began)
            return [*self._out_of_sync(cluster), *waited_for]

        while not world.findings and lacking():
            if time.monotonic() - began > RETURN_S:
                for what in lacking():
                    state = waited_for[what].describe() if what in waited_for else "not in sync"
                    world.find(f"STUCK: {what} did not come back within {RETURN_S} s of the last fault: {state}")
                return
            time.sleep(0.05)

    @staticmethod
    def _out_of_sync(cluster: EmbeddedCluster) -> list[str]:
        return [
            f"{topic}-{partition}"
            for topic, partitions in cluster.topics().items()
            for partition in range(partitions)
            if len(cluster.isr(topic, partition)) < len(BROKERS)
        ]

    def _settle(self, world: World, writers: list[Client], readers: list[Client], observer: Client) -> list[OurReader]:
        """Ends the writers, and lets readers old and fresh read all there is."""
        world.no_more_writes.set()
        for client in [*writers, observer]:
            if not client.join(2 * WAIT_S):
                world.find(f"STUCK: {client.name} does not end: {client.describe()}")
        with KafkaConsumer(**plain(world.servers)) as consumer:
            world.ends = consumer.end_offsets(PLACES, WAIT_S)
        fresh = list(fresh_readers(world))
        for reader in fresh:
            reader.start()
        for client in [*readers, *fresh]:
            if not client.join(2 * WAIT_S):
                world.find(f"STUCK: {client.name} does not end: {client.describe()}")
        return fresh

    def _let_the_group_end(self, world: World, members: list[GroupMember]) -> None:
        last = Counter[int]()
        for send in world.history.sends:
            if send.acked_at is not None and send.partition is not None:
                last[send.partition] = max(last[send.partition], send.offset + 1)
        deadline = time.monotonic() + WAIT_S
        while any(world.offsets.floor().get(partition, 0) < end for partition, end in last.items()):
            if time.monotonic() > deadline:
                world.find(f"STUCK: the group committed {world.offsets.floor()} of {dict(last)}: {[each.describe() for each in members]}")
                break
            time.sleep(0.05)
        world.group_done.set()
        for member in members:
            if not member.join(WAIT_S):
                world.find(f"STUCK: {member.name} does not end")

    def _judge(self, world: World, members: list[GroupMember]) -> None:
        self._say(f"soak: judging a history of {len(world.history.sends):,} records")
        try:
            world.history.assert_clean()
        except AssertionError as error:
            world.find(f"HISTORY: {error}")
        for send in world.history.sends:
            if send.acked_at is not None and send.partition is not None:
                if not any(send.offset in member.shown[send.partition] for member in members):
                    world.find(f"THE GROUP PASSED OVER {send.value!r} at {TOPIC}-{send.partition}, offset {send.offset}")


def group_soaks(seconds: float, seed: int, say: Callable[[str], object], servers: str | None = None) -> dict[str, Any]:
    """A run of a group by each protocol, which share the time."""
    runs = [GroupSoak(protocol, seed, seconds=seconds / len(PROTOCOLS), say=say, servers=servers).run() for protocol in PROTOCOLS]
    return {"seed": seed, "runs": runs, "findings": [f"{run['protocol']}: {finding}" for run in runs for finding in run["findings"]]}


def transaction_soaks(seconds: float, seed: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Three quarters of the time with threads, a network that has faults and clocks that jump, one with processes and SIGKILL."""
    runs = []
    for processes, share in ((False, 0.75), (True, 0.25)):
        soak = TransactionSoak(seed, seconds=seconds * share, network=not processes, processes=processes, strikes=STRIKES, say=say)
        runs.append(soak.run())
    return {"seed": seed, "runs": runs, "findings": [finding for run in runs for finding in run["findings"]]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long faults go on (default 60)")
    parser.add_argument("--seed", type=int, default=None, help="the same faults again")
    parser.add_argument("--memory", action="store_true", help="the brokers keep their logs in memory, not in a temporary directory")
    parser.add_argument("--group", action="store_true", help="members of one group under faults, by each protocol")
    parser.add_argument("--servers", help="with --group: a Kafka whose brokers stay as they are; members and a topic have faults")
    parser.add_argument("--transactions", action="store_true", help="transactional producers, a copying group and readers under faults")
    parser.add_argument("--face", choices=("sync", "aio"), default="sync", help="the synchronous clients, or those for asyncio")
    parser.add_argument("--json", action="store_true", help="figures as one line of JSON at the end")
    options = parser.parse_args()
    faulthandler.enable()
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(32)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    say(f"soak: seed {seed}, {options.seconds:.0f} s")
    with face_in(options.face, *FACED):
        if options.group:
            figures = group_soaks(options.seconds, seed, say, options.servers)
        elif options.transactions:
            figures = transaction_soaks(options.seconds, seed, say)
        else:
            with tempfile.TemporaryDirectory(prefix="kafkacore-soak-") as directory:
                figures = Soak(options.seconds, seed, None if options.memory else directory, say).run()
    for finding in figures["findings"]:
        say(f"soak: {finding}")
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            if name != "findings":
                say(f"soak: {name}: {value}")
    say(f"soak: {len(figures['findings'])} findings")
    return 1 if figures["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
