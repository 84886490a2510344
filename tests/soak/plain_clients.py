"""The actors of the plain soak: producers and readers of kafkacore, and a transactional producer of confluent-kafka."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import confluent_kafka

from kafkacore import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.errors import KafkaError
from kafkacore.testing.history import Reader, Send, Writer
from tests.soak.frame import WAIT_S, Actor, wall_ms

if TYPE_CHECKING:
    from tests.soak.plain import PlainSoak

TOPIC, PARTITIONS = "soak", 4
PLACES = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
TRANSACTIONAL_ID = "soak-transactions"
MAX_WAITING = 2_000
"""Records without an outcome, beyond which a writer waits."""


# ---- writers


class OurWriter(Actor):
    """An idempotent producer of kafkacore, acks=all.

    Args:
        many: by send_many, without partitions; otherwise by send, to each partition in turn.
    """

    def __init__(self, soak: PlainSoak, name: str, credentials: str, many: bool = False, **settings: Any) -> None:
        super().__init__(soak, name)
        self._credentials, self._many, self._settings = credentials, many, settings
        self._producer: KafkaProducer | None = None
        self._waiting = 0
        self._closing = False
        self._lock = threading.Lock()

    def run(self) -> None:
        for life in itertools.count(1):
            generation = self.soak.credentials.passwords.generation
            self._write(f"{self.name}/{life}", generation)
            if self.soak.written.is_set():
                return

    def _write(self, name: str, generation: int) -> None:
        writer = self.soak.history.writer(name)
        self._closing = False
        producer = self._producer = KafkaProducer(
            **self.soak.credentials.settings(self._credentials), **{"linger_ms": 5, "max_block_ms": 3_000, "acks": "all"} | self._settings
        )
        try:
            for first in itertools.count(0, PARTITIONS):
                if self.soak.written.wait(0.06):
                    break
                if self._credentials == "scram" and self.soak.credentials.passwords.generation != generation:
                    break
                if self._waiting > MAX_WAITING:
                    continue
                try:
                    self._send(producer, writer, [b"%s %d" % (name.encode(), n) for n in range(first, first + PARTITIONS)])
                except Exception as error:
                    self.soak.count(self.name, error)
            if self.soak.written.is_set():
                producer.flush(WAIT_S)
        except KafkaError as error:
            self.soak.find(f"STUCK: {self.name}: flush: {error!r}; {producer.statistics()}")
        finally:
            self._closing = True
            try:
                producer.close(10)
            except Exception as error:
                self.soak.count(f"{self.name}, closing", error)
            if self._waiting:
                self.soak.find(f"PENDING: {self._waiting} records of {name} have no outcome after close")
                self._waiting = 0

    def _send(self, producer: KafkaProducer, writer: Writer, values: list[bytes]) -> None:
        now_ms = wall_ms()
        if self._many:
            sends = [writer.send(TOPIC, value) for value in values]
            self._expect(len(sends))
            try:
                future = producer.send_many(TOPIC, values)
            except KafkaError as error:
                appended, part = getattr(error, "appended", 0), getattr(error, "future", None)
                for send in sends[appended:]:
                    send.failed()
                self._expect(-len(sends[appended:]))
                if part is not None and appended:
                    part.add_done_callback(lambda done: self._many_done(done, sends[:appended], now_ms))
                raise
            future.add_done_callback(lambda done: self._many_done(done, sends, now_ms))
            return
        for partition, value in enumerate(values):
            send = writer.send(TOPIC, value, partition)
            self._expect(1)
            try:
                future_of_one = producer.send(TOPIC, value, partition=partition)
            except BaseException:
                send.failed()  # it was not queued
                self._expect(-1)
                raise
            future_of_one.add_done_callback(lambda done, send=send: self._one_done(done, send, now_ms))

    def _expect(self, count: int) -> None:
        with self._lock:
            self._waiting += count

    def _one_done(self, future: Any, send: Send, sent_ms: int) -> None:
        self._expect(-1)
        if (error := future.exception()) is not None:
            self._failed(error)
            return
        send.acked(future.result().offset)
        self.saw(sent_ms)

    def _many_done(self, future: Any, sends: list[Send], sent_ms: int) -> None:
        self._expect(-len(sends))
        result = future.result()
        for nth, send in enumerate(sends):
            if (error := result.errors.get(nth)) is not None:
                self._failed(error)
            else:
                send.acked(int(result.offsets[nth]), int(result.partitions[nth]))
        if len(result.errors) < len(sends):
            self.saw(sent_ms, len(sends) - len(result.errors))

    def _failed(self, error: KafkaError) -> None:
        """Nothing is noted in the history: the record may be in the log all the same."""
        if self._closing and isinstance(error, errors.ClosedError):
            self.soak.tally(f"{self.name}, records: ClosedError while closing", error)  # its password is the old one
        else:
            self.soak.count(f"{self.name}, records", error)

    def describe(self) -> str:
        return f"{self._waiting} records without outcome; {self._producer.statistics() if self._producer is not None else ''}"


class TransactionalWriter(Actor):
    """confluent-kafka's transactional producer: commits two of three transactions."""

    committed = aborted = 0

    def run(self) -> None:
        for life in itertools.count(1):
            if self.soak.written.is_set():
                return
            # A request that is given up may arrive late and end the next transaction (transaction.version 1): so none is given up.
            producer = confluent_kafka.Producer(
                self.soak.credentials.confluent_settings(
                    enable_idempotence=True,
                    transactional_id=TRANSACTIONAL_ID,
                    transaction_timeout_ms=60_000,
                    socket_timeout_ms=60_000,
                    linger_ms=2,
                )
            )
            try:
                self._live(producer, self.soak.history.writer(f"{self.name}/{life}"))
            except confluent_kafka.KafkaException as exception:
                self._count(exception)

    def _count(self, exception: confluent_kafka.KafkaException) -> None:
        self.soak.tally(f"{self.name}: {exception.args[0].name()}", exception)

    def _live(self, producer: confluent_kafka.Producer, writer: Writer) -> None:
        producer.init_transactions(WAIT_S)
        for number in itertools.count():
            if self.soak.written.wait(0.1):
                return
            transaction, sent_ms = writer.begin(), wall_ms()
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = b"%s %d %d" % (writer.name.encode(), number, partition)
                send = writer.send(TOPIC, value, partition)
                producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, m, send=send: error or send.acked(m.offset()))
            try:
                if number % 3 == 2:
                    self._end(producer.abort_transaction)
                    transaction.aborted()
                    self.aborted += 1
                    continue
                transaction.commit()
                self._end(producer.commit_transaction)
                transaction.committed()
                self.committed += 1
                self.saw(sent_ms, PARTITIONS)
            except confluent_kafka.KafkaException as exception:
                if not exception.args[0].txn_requires_abort():
                    raise
                self._count(exception)
                self._end(producer.abort_transaction)
                transaction.aborted()

    def _end(self, call: Callable[[float], None]) -> None:
        end = time.monotonic() + 2 * WAIT_S
        while True:
            try:
                call(10.0)
                return
            except confluent_kafka.KafkaException as exception:
                if not exception.args[0].retriable() or time.monotonic() > end:
                    raise
                self._count(exception)

    def describe(self) -> str:
        return f"{self.committed} transactions committed, {self.aborted} aborted"


# ---- readers


class OurReader(Actor):
    """A consumer of kafkacore.

    Args:
        committed: read_committed.
        subscribes: subscribe and auto_offset_reset=earliest; otherwise assign, seek to 0, and auto_offset_reset=none.
        columns: poll_batch instead of poll.
    """

    def __init__(self, soak: PlainSoak, name: str, credentials: str, committed: bool, subscribes: bool, columns: bool = False) -> None:
        super().__init__(soak, name)
        self._credentials, self._committed, self._subscribes, self._columns = credentials, committed, subscribes, columns
        self._consumer: KafkaConsumer | None = None
        self._health: object = None  # as of the last seconds: only its own thread may ask

    def run(self) -> None:
        for life in itertools.count(1):
            generation = self.soak.credentials.passwords.generation
            with self._made() as consumer:
                self._consumer = consumer
                reader = self.soak.history.reader(f"{self.name}/{life}", read_committed=self._committed)
                for partition in range(PARTITIONS):
                    reader.positioned(TOPIC, partition, 0)
                if self._read(consumer, reader, generation):
                    return

    def _made(self) -> KafkaConsumer:
        settings = self.soak.credentials.settings(self._credentials) | {
            "isolation_level": "read_committed" if self._committed else "read_uncommitted",
            "auto_offset_reset": "earliest" if self._subscribes else "none",
            "fetch_max_wait_ms": 100,
        }
        consumer = KafkaConsumer(**settings)
        if self._subscribes:
            consumer.subscribe([TOPIC])
        else:
            consumer.assign(PLACES)
            for place in PLACES:
                consumer.seek(place, 0)
        return consumer

    def _read(self, consumer: KafkaConsumer, reader: Reader, generation: int) -> bool:
        """Reads until the end of the log (True), or until this client is handed another password."""
        deadline = None
        health_at = 0.0
        at: dict[TopicPartition, int] = {}
        while True:
            if time.monotonic() >= health_at:
                self._health, health_at = consumer.health(), time.monotonic() + 5
            try:
                for place, records in self._poll(consumer):
                    reader.polled(place.topic, place.partition, [(record.offset, record.value) for record in records])
                    if records:
                        self.saw(records[-1].timestamp_ms, len(records))
                if (ends := self.soak.ends) is not None and len(consumer.assignment()) == PARTITIONS:
                    at = {place: consumer.position(place, 5) for place in PLACES}
                    if all(at[place] >= end for place, end in ends.items()):
                        for place, end in ends.items():
                            reader.reached_end(TOPIC, place.partition, end)
                        return True
            except Exception as error:
                self.soak.count(self.name, error)
            if self.soak.ends is not None:
                deadline = deadline or time.monotonic() + WAIT_S
            if deadline is not None and time.monotonic() > deadline:
                self.soak.find(f"STUCK: {self.name} stands at {at}, the log ends at {self.soak.ends}; {self.describe()}")
                return True
            if self._credentials == "scram" and self.soak.credentials.passwords.generation != generation:
                return False

    def _poll(self, consumer: KafkaConsumer) -> Iterable[tuple[TopicPartition, list[Any]]]:
        if not self._columns:
            return consumer.poll(0.2).items()
        return [(TopicPartition(each.topic, each.partition), list(each)) for each in consumer.poll_batch(0.2)]

    def describe(self) -> str:
        if self._consumer is None:
            return ""
        return f"{self._health}; {self._consumer.statistics()}"
