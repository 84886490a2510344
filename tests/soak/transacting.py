"""The actors of the transaction soak: writers that are replaced and die, members of a group that copy, and readers."""

from __future__ import annotations

import contextlib
import itertools
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kafkacore import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafkacore.consumer import RebalanceListener
from kafkacore.errors import KafkaError
from kafkacore.testing.history import Reader
from kafkacore.testing.transaction_history import Producer
from tests.kit.inside import sender_of
from tests.soak.faults import TRANSACTION_TIMEOUT_MS
from tests.soak.frame import Actor, Stuck, wall_ms

if TYPE_CHECKING:
    from tests.soak.transactions import TransactionSoak

SOURCE, TARGET, PARTITIONS, GROUP = "source", "target", 2, "copiers"
PLACES = [TopicPartition(topic, partition) for topic in (SOURCE, TARGET) for partition in range(PARTITIONS)]
SOURCES = PLACES[:PARTITIONS]
SESSION_MS = 3_000
"""A member whose JoinGroup was answered to nobody holds its group up for so long."""
CLIENT: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "request_timeout_ms": 5_000,
}
SESSION: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 50}


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


class Writer(Actor):
    """Writes transactions; now and then another producer takes its transactional id over, or it dies."""

    def run(self) -> None:
        self._lives = itertools.count(1)
        self._numbers = itertools.count(1)
        life: Life | None = None
        done = 0
        try:
            while not self.soak.written.is_set() and (self.soak.seconds or done < self.soak.transactions_each):
                if life is None:
                    life = self._live()
                done += 1
                begun_ms = wall_ms()
                try:
                    life = self._one(life)
                    self.saw(begun_ms)
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


class Copier(Actor):
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
            begun_ms = wall_ms()
            if life.transaction(lambda polled=polled: self._work(life, consumer, polled)):
                self.saw(begun_ms)
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


class Readers(Actor):
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
