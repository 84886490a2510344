"""Transactions under faults, and the judgement of their history; tests/soak.py runs it for long, test_transaction_soak.py many seeds.

Three brokers. Writers commit and abort transactions, are replaced by producers with the same transactional id, and die. Members of a group
copy what they wrote, in transactions with the group's offsets. Readers of each isolation level read along, assigned and in a group. Faults
begin in the middle of requests (transaction_faults.py). At the end all faults end, everything is copied and read, and
`kafkacore.testing.transaction_history` judges.

The seed decides what clients do and which faults come at which request; what they meet is up to the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from transaction_faults import COORDINATOR_PARTITIONS, TRANSACTION_TIMEOUT_MS, Faults

from kafkacore import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafkacore.consumer import RebalanceListener
from kafkacore.errors import KafkaError
from kafkacore.testing import EmbeddedCluster
from kafkacore.testing.history import Finding, History, Reader
from kafkacore.testing.transaction_history import Producer, TransactionHistory
from tests.kit.inside import sender_of

SOURCE, TARGET, PARTITIONS, GROUP = "source", "target", 2, "copiers"
PLACES = [TopicPartition(topic, partition) for topic in (SOURCE, TARGET) for partition in range(PARTITIONS)]
SOURCES = PLACES[:PARTITIONS]
WAIT_S = 150.0
"""How long a client may take to come back after the last fault."""
SESSION_MS = 3_000
"""A member whose JoinGroup was answered to nobody holds its group up for so long."""
CONFIG = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 5_000,
    "replica.fetch.wait.max.ms": 50,
    "replica.fetch.backoff.ms": 10,
    "replica.socket.timeout.ms": 5_000,
    "offsets.topic.num.partitions": COORDINATOR_PARTITIONS,
    "transaction.state.log.num.partitions": COORDINATOR_PARTITIONS,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.min.session.timeout.ms": SESSION_MS,
}
CLIENT: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "request_timeout_ms": 5_000,
}
SESSION: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 50}
NEVER_EXPECTED = (
    errors.InternalError,
    errors.CorruptDataError,
    errors.UsageError,
    errors.OffsetOutOfRange,
    errors.UnknownServer,
)
"""What no fault explains."""


ROUND_S = 10.0
"""In a run of some seconds all faults end so often, and every client has to come back."""
PLAN_S = 0.5
"""How often faults are planned in such a run."""


class Stuck(Exception):
    """A client does not come back; the finding says where."""


class Life:
    """One producer instance and its history."""

    def __init__(self, soak: TransactionSoak, name: str, transactional_id: str) -> None:
        self.soak = soak
        self.replaced = False
        self._inits_before = soak.faults.inits[transactional_id]
        self.record: Producer = soak.transactions.producer(name, transactional_id)
        self.producer = KafkaProducer(
            bootstrap_servers=soak.servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
            max_block_ms=min(1_500, int(soak.wait_s * 1000)),
            delivery_timeout_ms=120_000,
            **CLIENT,
        )
        try:
            self.record.initializing()
            self.until("init_transactions", self.producer.init_transactions)
            self.record.initialized()
        except BaseException:
            self.close()
            raise

    def until(self, what: str, call: Callable[[], object]) -> None:
        """Makes a call, and the same again while its time runs out.

        Raises:
            Stuck: it does not come to an end.
        """
        deadline = time.monotonic() + self.soak.wait_s
        while True:
            try:
                call()
                return
            except errors.KafkaTimeoutError as error:
                if time.monotonic() > deadline:
                    self.soak.find(f"STUCK: {self.record.name}: {what}: {error}; {error.attempts}")
                    raise Stuck from None
                self.soak.count(self.record.name, error)

    def send(self, topic: str, values: list[bytes], partition: int, source: int | None = None) -> None:
        """Sends records to a partition: one by one, or several with one call."""
        noted = [self.record.send(topic, value, partition, None if source is None else ((SOURCE, partition), source)) for value in values]
        if len(values) > 1:
            self.producer.send_many(topic, values, partitions=partition)
            return

        def settled(future: Any) -> None:
            if future.exception() is None:
                noted[0].acked(future.result().offset)

        self.producer.send(topic, values[0], partition=partition).add_done_callback(settled)

    def transaction(self, work: Callable[[], bool]) -> bool:
        """A transaction.

        Args:
            work: sends what belongs to it; True to commit it.

        Returns:
            Whether it was committed.

        Raises:
            KafkaError: the producer can only be closed.
        """
        transaction = self.record.begin()
        self._begun_s = time.monotonic()
        try:
            self.producer.begin_transaction()
            commits = work()
            if commits:
                transaction.commit()
                self.until("commit_transaction", self.producer.commit_transaction)
                transaction.committed()
                self.soak.counts["committed"] += 1
                return True
        except KafkaError as error:
            self.soak.count(self.record.name, error)
            if error.fatal:
                self._explain(error)
                raise
        self.soak.counts["aborted"] += 1
        try:
            self.until("abort_transaction", self.producer.abort_transaction)
            transaction.aborted()
        except KafkaError as error:
            self.soak.count(self.record.name, error)
            if not error.fatal:
                self.soak.find(f"AN ABORT FAILED: {self.record.name}: {''.join(traceback.format_exception(error))}")
            self._explain(error)
            raise
        return False

    def _explain(self, error: KafkaError) -> None:
        """A producer is fenced by another one, or since its transaction took too long. An InitProducerId that was sent again may arrive
        late and take the transactional id from the very producer that sent it. And a coordinator that reloads has forgotten the last
        epoch, and so whether it comes for the second time; Kafka's log does not keep it either."""
        again = isinstance(error, errors.ProducerFenced) and (error.api or "").startswith("InitProducerId")
        faults, transactional_id = self.soak.faults, self.record.transactional_id
        sent_again = faults.inits[transactional_id] > self._inits_before + 1
        late = time.monotonic() - self._begun_s > TRANSACTION_TIMEOUT_MS / 2_000  # on a machine that does something else
        if not (self.replaced or sent_again or faults.jumped or late or (again and faults.unloaded)):
            asked = list(faults.asked[transactional_id])
            self.soak.find(f"FATAL WITHOUT A CAUSE: {self.record.name}: {''.join(traceback.format_exception(error))} Asked before: {asked}")

    def die(self) -> None:
        """As if its process ended: no abort, no goodbye."""
        sender_of(self.producer).initiate_close(force=True)
        self.close()

    def close(self) -> None:
        self.producer.close(self.soak.wait_s)


class Client:
    """A thread of the soak. `progress` counts what it has done to the end."""

    def __init__(self, soak: TransactionSoak, name: str) -> None:
        self.progress = 0
        self.soak, self.name = soak, name
        self.rng = random.Random(f"{soak.seed} {name}")
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self.run()
        except Stuck:
            pass
        except BaseException as error:
            self.soak.find(f"DIED: {self.name}: {''.join(traceback.format_exception(error))}")

    def run(self) -> None:
        raise NotImplementedError


class Writer(Client):
    """Writes transactions; now and then another producer takes its transactional id over, or it dies."""

    def run(self) -> None:
        self._lives = itertools.count(1)
        self._numbers = itertools.count(1)
        life: Life | None = None
        done = 0
        try:
            while not self.soak.written.is_set() and (self.soak.seconds is not None or done < self.soak.transactions_each):
                if life is None:
                    life = self._live()
                done += 1
                try:
                    life = self._one(life)
                    self.progress += 1
                except KafkaError as error:
                    if not error.fatal:
                        raise
                    life.close()
                    life = None
            if life is None and not (self.soak.network and self.rng.random() < 0.5):
                life = self._live()  # ends what the dead one left open; else only the transaction's timeout does
        finally:
            if life is not None:
                life.close()

    def _live(self) -> Life:
        return Life(self.soak, f"{self.name}/{next(self._lives)}", self.name)

    def _one(self, life: Life) -> Life | None:
        """A transaction, and what it does to its producer; the one to go on with."""
        fate = self.rng.choices(("commit", "abort", "replaced", "dies"), (65, 20, 9, 6))[0]
        if fate == "dies":
            with contextlib.suppress(KafkaError):
                life.producer.begin_transaction()
                life.record.begin()
                self._send(life)
                if self.rng.random() < 0.7:
                    self.flush(life)
            life.die()
            return None
        if fate != "replaced":
            life.transaction(lambda: self._send(life) or fate == "commit")
            return life
        heir: list[Life] = []

        def replaced() -> bool:
            self._send(life)
            if self.rng.random() < 0.5:
                self.flush(life)
            heir.append(self._live())
            life.replaced = True
            if self.rng.random() < 0.5:
                heir[0].transaction(lambda: self._send(heir[0]) or True)
            if self.rng.random() < 0.7:
                self._send(life)
            return self.rng.random() < 0.7

        try:
            if life.transaction(replaced):
                self.soak.find(f"A ZOMBIE COMMITS: {life.record.name}")
        except KafkaError as error:
            if not error.fatal:
                raise
        finally:
            life.close()
        return heir[0] if heir else None

    @staticmethod
    def flush(life: Life) -> None:
        """Waits for a moment until the records are written, or not."""
        with contextlib.suppress(errors.KafkaTimeoutError):
            life.producer.flush(0.05)

    def _send(self, life: Life) -> None:
        for _ in range(self.rng.randint(1, 4)):
            count = 1 if self.rng.random() < 0.8 else self.rng.randint(2, 4)
            values = [b"%s %d" % (life.record.name.encode(), next(self._numbers)) for _ in range(count)]
            life.send(SOURCE, values, self.rng.randrange(PARTITIONS))
            if self.rng.random() < 0.2:
                self.flush(life)


class Copier(Client):
    """A member of the group that copies SOURCE to TARGET, each poll in a transaction with its offsets."""

    def run(self) -> None:
        self._lives = itertools.count(1)
        self._numbers = itertools.count(1)
        while not self.soak.copied.is_set():
            life = Life(self.soak, f"{self.name}/{next(self._lives)}", self.name)
            try:
                with self._consumer() as consumer:
                    consumer.subscribe([SOURCE])
                    self._copy(life, consumer)
            except KafkaError as error:
                if not error.fatal:
                    raise
            finally:
                life.close()

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.soak.servers,
            group_id=GROUP,
            group_protocol=self.soak.group_protocol,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=self.rng.randint(2, 8),
            fetch_max_wait_ms=20,
            default_api_timeout_ms=1_500,
            **(SESSION if self.soak.group_protocol == "classic" else {}),
            **CLIENT,
        )

    def _copy(self, life: Life, consumer: KafkaConsumer) -> None:
        while not self.soak.copied.is_set():
            try:
                polled = consumer.poll(0.02)
            except KafkaError as error:
                self.soak.count(self.name, error)
                continue
            if not polled:
                continue
            if life.transaction(lambda polled=polled: self._work(life, consumer, polled)):
                self.progress += 1
            else:
                for place in consumer.assignment() & polled.keys():
                    consumer.seek(place, polled[place][0].offset)

    def _work(self, life: Life, consumer: KafkaConsumer, polled: Mapping[TopicPartition, list[Any]]) -> bool:
        for (_, partition), records in polled.items():
            for record in records:
                value = b"%s > %s %d" % (record.value, self.name.encode(), next(self._numbers))
                life.send(TARGET, [value], partition, record.offset)
        offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
        life.record.offsets(GROUP, offsets)
        sent = {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}
        life.until("send_offsets", lambda: life.producer.send_offsets_to_transaction(sent, consumer.consumer_group_metadata()))
        return self.rng.random() < 0.9


class Jumps(RebalanceListener):
    """Notes where a reader in a group begins."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for topic, partition in partitions:
            self._reader.positioned(topic, partition)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for topic, partition in partitions:
            self._reader.left(topic, partition)


class Readers(Client):
    """Reads along with several consumers, and looks at what the copying group has committed."""

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            kinds = [("read_committed", False), ("read_uncommitted", False), ("read_committed", True)]
            consumers = [self._open(stack, *kind) for kind in kinds[: 3 if self.rng.random() < 0.5 else 2]]
            observer = stack.enter_context(self.soak.observer())
            while not self.soak.over.is_set():
                for consumer, reader in consumers:
                    try:
                        for (topic, partition), records in consumer.poll(0.005).items():
                            reader.polled(topic, partition, [(record.offset, record.value) for record in records])
                    except KafkaError as error:
                        self.soak.count(reader.name, error)
                if self.rng.random() < 0.3:
                    self.soak.look(observer, 0.05)

    def _open(self, stack: contextlib.ExitStack, isolation: str, in_group: bool) -> tuple[KafkaConsumer, Reader]:
        committed = isolation == "read_committed"
        reader = self.soak.history.reader(f"{isolation}{', in a group' if in_group else ''}", committed)
        consumer = stack.enter_context(self.soak.consumer(isolation, group_id="readers" if in_group else None))
        if in_group:
            consumer.subscribe([SOURCE, TARGET], listener=Jumps(reader))
        else:
            consumer.assign(PLACES)
            for topic, partition in PLACES:
                reader.positioned(topic, partition, 0)
        return consumer, reader


class TransactionSoak:
    """A run.

    Args:
        seed: decides what clients do, and the faults.
        transactions_each: of each writer; not for a run of some seconds.
        strikes: how many faults; None for a number by the seed.
        seconds: writers go on for so long, and faults come all the while, `strikes` in PLAN_S; None: until each has written all it has to.
        processes: brokers are processes, and are killed by SIGKILL.
        network: the network has faults, and clocks jump; None by the seed.
        disk: the logs are on disk, and read again after a kill, as always with processes.
        version: of transactions at the start; None by the seed.
        kinds: of faults; None for all.
        config: more settings of brokers.
        wait_s: see WAIT_S.
        say: is handed lines of progress.
    """

    def __init__(
        self,
        seed: int,
        transactions_each: int = 4,
        strikes: int | None = None,
        seconds: float | None = None,
        processes: bool = False,
        network: bool | None = None,
        disk: bool = False,
        version: int | None = None,
        kinds: Collection[str] | None = None,
        config: Mapping[str, Any] | None = None,
        wait_s: float = WAIT_S,
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        self.seed, self.transactions_each, self.seconds, self.processes, self.wait_s, self.say = (
            seed, transactions_each, seconds, processes, wait_s, say,
        )  # fmt: skip
        self.rng = random.Random(seed)
        self.network = (self.rng.random() < 0.2 if network is None else network) and not processes
        self.disk = disk and not processes
        self.version = self.rng.choice((1, 2)) if version is None else version
        self.strikes = self.rng.randint(1, 5) if strikes is None else strikes
        self.group_protocol = self.rng.choice(("classic", "consumer"))
        self.kinds = kinds
        self.config = {**CONFIG, **(config or {})}
        self.history = History()
        self.transactions = TransactionHistory(self.history)
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.findings: list[str] = []
        self.judged: list[Finding] = []
        self.written = threading.Event()  # set when writers shall end
        self.copied = threading.Event()  # set when all that was written is copied
        self.over = threading.Event()  # set when nothing is written any more

    # ---- called by clients

    def find(self, text: str) -> None:
        self.findings.append(text)

    def count(self, name: str, error: BaseException) -> None:
        """Counts an error that a client raised. One that no fault explains is a finding."""
        what = type(error).__name__
        self.errors[what] += 1
        self.examples.setdefault(what, str(error))
        if (not isinstance(error, KafkaError) or isinstance(error, NEVER_EXPECTED)) and self.errors[what] == 1:
            self.find(f"RAISED in {name}: {''.join(traceback.format_exception(error))}")

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

    def run(self) -> dict[str, Any]:
        """Plays, judges, and returns the figures; `findings` among them is empty when nothing was broken."""
        with tempfile.TemporaryDirectory(prefix="kafkacore-soak-") if self.disk else contextlib.nullcontext() as directory:
            return self._run(directory)

    def _run(self, directory: str | None) -> dict[str, Any]:
        began = time.monotonic()
        features = {"transaction.version": self.version}
        with EmbeddedCluster(
            brokers=3, data_dir=directory, config=self.config, features=features, processes=self.processes, faults=self.network
        ) as cluster:
            self.servers = cluster.bootstrap_servers
            for topic in (SOURCE, TARGET):
                cluster.create_topic(topic, PARTITIONS, 3)
            topics = dict.fromkeys((SOURCE, TARGET), PARTITIONS)
            self.faults = Faults(cluster, self.rng, topics, self.network, self.find, self.version, self.kinds)
            clients: list[Client] = []
            try:
                self._play(clients)
            except Stuck:
                pass
            finally:
                self.faults.end()
                self.written.set()
                self.copied.set()
                self.over.set()
                for client in clients:
                    if not client.join(self.wait_s):
                        self.find(f"STUCK: {client.name} does not end")
        self.judged = self.history.check()
        self.findings += [str(finding) for finding in self.judged[:20]]
        return {
            "seed": self.seed,
            "seconds": round(time.monotonic() - began, 2),
            "version": self.version,
            "processes": self.processes,
            "network": self.network,
            "disk": self.disk,
            "group_protocol": self.group_protocol,
            "records": len(self.history.sends),
            **dict(sorted(self.counts.items())),
            "faults": dict(self.faults.counts.most_common()),
            "faults_not_possible": dict(self.faults.refused.most_common()),
            "errors": dict(self.errors.most_common()),
            "examples": self.examples,
            "findings": self.findings,
        }

    def _play(self, clients: list[Client]) -> None:
        self.faults.plan(self.strikes)
        writers = [Writer(self, "writer-1"), Writer(self, "writer-2")]
        copiers = [Copier(self, f"copier-{number}") for number in range(1, self.rng.randint(1, 2) + 1)]
        clients += [*writers, *copiers, Readers(self, "readers")]
        if self.seconds is not None:
            self._play_rounds(self.seconds, [*writers, *copiers])
            self.written.set()
        for writer in writers:
            if not writer.join(self.wait_s + self.faults_wait_s):
                self.find(f"STUCK: {writer.name} does not end")
                raise Stuck
        self.faults.end()
        if self.network:
            self.faults.jump_clocks()  # what a dead writer left open is aborted
        self._see_all_copied()
        self.copied.set()
        for copier in copiers:
            if not copier.join(self.wait_s):
                self.find(f"STUCK: {copier.name} does not end")
                raise Stuck
        self.over.set()
        if not clients[-1].join(self.wait_s):
            self.find("STUCK: the readers do not end")
            raise Stuck
        self._read_all("last")
        with self.observer() as observer:
            if self.look(observer, self.wait_s) is None:
                self.find(f"STUCK: nobody says what the group has committed: {self.examples}")

    def _play_rounds(self, seconds: float, clients: list[Client]) -> None:
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds and not self.findings:
            end = time.monotonic() + min(ROUND_S, seconds - elapsed)
            while time.monotonic() < end:
                self.faults.plan(self.strikes)
                time.sleep(PLAN_S)
            self.faults.end()
            self._come_back(clients)
            self.say(
                f"transactions: {time.monotonic() - began:.0f} s, {self.faults.counts.total()} faults, {len(self.history.sends):,} records,"
                f" {self.counts['committed']:,} commits, {self.counts['aborted']:,} aborts, {len(self.findings)} findings"
            )

    def _come_back(self, clients: list[Client]) -> None:
        """Waits until every client has committed something that was started after the last fault."""
        before = {client: client.progress for client in clients}
        deadline = time.monotonic() + self.wait_s
        while late := [client.name for client, progress in before.items() if client.progress < progress + 2]:
            if time.monotonic() > deadline:
                self.find(f"STUCK: {late} did not come back within {self.wait_s} s of the last fault; {self.examples}")
                raise Stuck
            time.sleep(0.02)

    faults_wait_s = 5.0
    """How much longer a writer may take that faults hold up."""

    def _see_all_copied(self) -> None:
        """Returns when the group is past every committed record."""
        after = self._read_all("fresh", SOURCES)
        deadline = time.monotonic() + self.wait_s
        with self.observer() as observer:
            while True:
                found = self.look(observer, 1.0)
                if found is not None and all(found[place] >= after[place] for place in SOURCES):
                    return
                if time.monotonic() > deadline:
                    self.find(f"STUCK: the group has committed {found}, the last records lie before {after}; {self.examples}")
                    raise Stuck
                time.sleep(0.002)

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
