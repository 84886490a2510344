"""Transactions under faults that begin in the middle of requests.

Writers commit and abort transactions, are replaced by producers with the same transactional id, and die. Members of a group copy what they
wrote, in transactions with the group's offsets. Readers of each isolation level read along, assigned and in a group. At the end everything
is copied and read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from kafkacore import KafkaConsumer, TopicPartition, errors
from kafkacore.errors import KafkaError
from tests.soak.faults import Faults
from tests.soak.frame import Actor, Soak, Stuck
from tests.soak.transacting import CLIENT, GROUP, PARTITIONS, PLACES, SESSION, SESSION_MS, SOURCE, SOURCES, TARGET, Copier, Readers, Writer

WAIT_S = 150.0
"""How long an actor may take to come back after the last fault."""
FAULTS_WAIT_S = 5.0
"""How much longer a writer may take that faults hold up."""
ROUND_S = 10.0
PLAN_S = 0.5
"""How often faults are planned in a run of some seconds."""
TOPICS = {SOURCE: PARTITIONS, TARGET: PARTITIONS}
CONFIG = {
    "replica.lag.time.max.ms": 5_000,
    "replica.fetch.wait.max.ms": 50,
    "replica.fetch.backoff.ms": 10,
    "replica.socket.timeout.ms": 5_000,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.min.session.timeout.ms": SESSION_MS,
}
LOST = ("Produce", "EndTxn", "WriteTxnMarkers", "AddPartitionsToTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "InitProducerId", "OffsetFetch")
KINDS = {
    "lose answers": 7,
    "move transaction coordinator": 4,
    "move group coordinator": 2,
    "move leader": 3,
    "kill coordinator": 2,
    "kill broker": 2,
    "stop broker": 1,
    "pause broker": 1,
    "change version": 2,
}
NETWORK_KINDS = {"cut": 3, "isolate": 2, "delay": 1, "jump clock": 3}
"""These need EmbeddedCluster(faults=True)."""


class TransactionSoak(Soak):
    """A run.

    Args:
        seed: decides what clients do, and the faults.
        transactions_each: of each writer in a run without `seconds`.
        strikes: how many faults, in PLAN_S of a run of some seconds; None for a number by the seed.
        processes: brokers are processes, and are killed by SIGKILL.
        network: the network has faults, and clocks jump; None by the seed.
        version: of transactions at the start; None by the seed.
        options: see `Soak`.
    """

    name = "transactions"
    topics, config = TOPICS, CONFIG
    logs_are_findings = False  # versions change and clocks jump: coordinators may say that they begin again

    def __init__(
        self,
        seed: int,
        transactions_each: int = 4,
        strikes: int | None = None,
        processes: bool = False,
        network: bool | None = None,
        version: int | None = None,
        wait_s: float = WAIT_S,
        **options: Any,
    ) -> None:
        super().__init__(seed, wait_s=wait_s, **options)
        self.transactions_each, self.processes = transactions_each, processes
        self.network = (self.rng.random() < 0.2 if network is None else network) and not processes
        self.disk = self.disk and not processes
        self.version = self.rng.choice((1, 2)) if version is None else version
        self.strikes = self.rng.randint(1, 5) if strikes is None else strikes
        self.group_protocol = self.rng.choice(("classic", "consumer"))
        self.cluster_options = {"features": {"transaction.version": self.version}, "processes": processes, "faults": self.network}
        self.copied = threading.Event()  # set when all that was written is copied

    # ---- called by actors

    def consumer(self, isolation: str, group_id: str | None = None) -> KafkaConsumer:
        """A reader."""
        return KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level=isolation,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=20,
            **SESSION,
            default_api_timeout_ms=1_500,
            **CLIENT,
        )

    def observer(self) -> KafkaConsumer:
        return self.consumer("read_committed", GROUP)

    def look(self, observer: KafkaConsumer, timeout_s: float) -> dict[TopicPartition, int] | None:
        """Notes what the group has committed; None if nobody says it in time."""
        look = self.transactions.look(GROUP)
        try:
            answers = observer.committed(SOURCES, timeout_s)
        except KafkaError as error:
            self.count("observer", error)
            return None
        look.found({place: None if found is None else found.offset for place, found in answers.items()})
        self.counts["looks"] += 1
        return {place: 0 if found is None else found.offset for place, found in answers.items()}

    # ---- the run

    def make_faults(self) -> Faults:
        kinds = KINDS | (NETWORK_KINDS if self.network else {})
        return Faults(
            self.cluster, self.rng, self.find, kinds, self.kinds, topics=TOPICS, lost=LOST, version=self.version, network=self.network
        )

    def begin(self) -> None:
        self.faults.plan(self.strikes)
        self.writers = [Writer(self, f"writer-{number}").start() for number in (1, 2)]
        self.copiers = [Copier(self, f"copier-{number}").start() for number in range(1, self.rng.randint(1, 2) + 1)]
        self.readers = Readers(self, "readers").start()

    def goes_on(self, elapsed_s: float) -> bool:
        return super().goes_on(elapsed_s) if self.seconds else not self.rounds

    def play(self, elapsed_s: float) -> None:
        if not self.seconds:
            return self.join(self.writers, self.wait_s + FAULTS_WAIT_S)
        end = time.monotonic() + min(ROUND_S, self.seconds - elapsed_s)
        while time.monotonic() < end:
            self.faults.plan(self.strikes)
            self.rest(PLAN_S)

    def returning(self) -> Iterable[Actor]:
        return [*self.writers, *self.copiers] if self.seconds else ()

    def settle(self) -> None:
        self.written.set()
        self.join(self.writers)
        if self.network:
            self.faults.jump_clocks()  # what a dead writer left open is aborted
        self._see_all_copied()
        self.copied.set()
        self.join(self.copiers)
        self.over.set()
        self.join([self.readers])
        self._read_all("last")
        with self.observer() as observer:
            if self.look(observer, self.wait_s) is None:
                self.find(f"STUCK: nobody says what the group has committed: {self.examples}")

    def release(self) -> None:
        self.copied.set()
        super().release()

    def figures(self) -> dict[str, Any]:
        names = ("version", "processes", "network", "disk", "group_protocol")
        return {name: getattr(self, name) for name in names}

    def _see_all_copied(self) -> None:
        """Returns when the group is past every committed record."""
        after = self._read_all("fresh", SOURCES)
        found: dict[TopicPartition, int] | None = None
        with self.observer() as observer:

            def copied() -> bool:
                nonlocal found
                found = self.look(observer, 1.0)
                return found is not None and all(found[place] >= after[place] for place in SOURCES)

            self.until(copied, lambda: f"the group has committed {found}, the last records lie before {after}; {self.examples}; not", 0.002)

    def _read_all(self, name: str, places: list[TopicPartition] = PLACES) -> dict[TopicPartition, int]:
        """Readers of each isolation level read all there is; for committed ones, what lies behind their last records."""
        try:
            return self._read_to_the_end(name, places)
        except errors.KafkaTimeoutError as error:
            self.find(f"STUCK: {name} readers: {error}")
            raise Stuck from None

    def _read_to_the_end(self, name: str, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        after = dict.fromkeys(places, 0)
        with self.consumer("read_uncommitted") as consumer:
            ends = consumer.end_offsets(places, self.wait_s)
        for isolation in ("read_uncommitted", "read_committed"):
            reader = self.history.reader(f"{name}, {isolation}", isolation == "read_committed")
            with self.consumer(isolation) as consumer:
                consumer.assign(places)
                for topic, partition in places:
                    reader.positioned(topic, partition, 0)
                deadline = time.monotonic() + self.wait_s
                while any(consumer.position(place, self.wait_s) < end for place, end in ends.items()):
                    if time.monotonic() > deadline:
                        at = {place: consumer.position(place, 1) for place in places}
                        self.find(f"STUCK: {reader.name} stands at {at}, the log ends at {ends}")
                        raise Stuck
                    for (topic, partition), records in consumer.poll(0.05).items():
                        reader.polled(topic, partition, [(record.offset, record.value) for record in records])
                        if reader.read_committed:
                            after[TopicPartition(topic, partition)] = records[-1].offset + 1
                for (topic, partition), end in ends.items():
                    reader.reached_end(topic, partition, end)
        return after
