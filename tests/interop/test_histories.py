"""Histories of several clients over three brokers, some of which always stop, hang, die or cut connections: nothing promised is broken.

Each scene is some seconds of writing with acks=all by our idempotent producer, by that of confluent-kafka and by a transactional one,
while consumers read along; then everybody reads everything. `kafkacore.testing.history` judges.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore import TopicPartition as Place
from kafkacore.errors import KafkaError
from kafkacore.testing import Disconnect, EmbeddedCluster
from kafkacore.testing.history import History, Send, Writer
from tests.kit.rivals import confluent_consumer, confluent_producer
from tests.kit.waiting import GUARD_S as WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TOPIC, PARTITIONS = "recorded", 2
PRODUCE, FETCH = 0, 1
SCENE_S = 2.0
CONFIG = {"min.insync.replicas": 2, "replica.lag.time.max.ms": 1000, "replica.fetch.wait.max.ms": 50, "replica.fetch.backoff.ms": 50}


class Scene:
    """The clients of one test, their threads and their history."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self.history = History()
        self.over = threading.Event()
        self.written = threading.Event()
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def run(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=guarded, name=work.__name__)
        self.threads.append(thread)
        thread.start()

    # ---- writers

    def numbers(self, name: str) -> Iterator[tuple[bytes, int]]:
        for n in itertools.count():
            if self.over.is_set():
                return
            yield b"%s %d" % (name.encode(), n), n % PARTITIONS
            if n % 20 == 19:
                time.sleep(0.005)  # a scene is about faults, not about load

    def ours_writes(self) -> None:
        writer = self.history.writer("ours")
        with KafkaProducer(bootstrap_servers=self.servers, linger_ms=2, retry_backoff_ms=20, request_timeout_ms=3000) as producer:
            for value, partition in self.numbers("ours"):
                send = writer.send(TOPIC, value, partition)
                producer.send(TOPIC, value, partition=partition).add_done_callback(self._noting(send))
            producer.flush(WAIT_S)

    @staticmethod
    def _noting(send: Send) -> Callable[..., None]:
        def note(future) -> None:
            if future.exception() is None:  # any failure here may be one of the answer only
                send.acked(future.result().offset)

        return note

    def _confluent(self, **settings: object) -> confluent_kafka.Producer:
        return confluent_producer(
            self.servers, enable_idempotence=True, retry_backoff_ms=20, reconnect_backoff_max_ms=200, socket_timeout_ms=3000, **settings
        )

    def confluent_writes(self) -> None:
        producer, writer = self._confluent(), self.history.writer("confluent")
        for value, partition in self.numbers("confluent"):
            self._produce(producer, writer, value, partition)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def _produce(self, producer: confluent_kafka.Producer, writer: Writer, value: bytes, partition: int) -> None:
        send = writer.send(TOPIC, value, partition)
        producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, message: error or send.acked(message.offset()))

    def transactions_are_written(self) -> None:
        producer, writer = self._confluent(transactional_id="recorded", transaction_timeout_ms=20_000), self.history.writer("transactional")
        producer.init_transactions(WAIT_S)
        values = self.numbers("transactional")
        for n in itertools.count():
            batch = list(itertools.islice(values, 10))
            if not batch:
                return
            transaction = writer.begin()
            producer.begin_transaction()
            for value, partition in batch:
                self._produce(producer, writer, value, partition)
            try:
                if n % 3 == 2:
                    producer.flush(WAIT_S)
                    producer.abort_transaction(WAIT_S)
                    transaction.aborted()
                else:
                    transaction.commit()
                    producer.commit_transaction(WAIT_S)
                    transaction.committed()
            except confluent_kafka.KafkaException as exception:
                assert exception.args[0].txn_requires_abort(), exception
                producer.abort_transaction(WAIT_S)
                transaction.aborted()

    # ---- readers

    def ours_reads(self) -> None:
        reader = self.history.reader("ours, reading", read_committed=True)
        with KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            request_timeout_ms=3000,
        ) as consumer:
            places = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
                reader.positioned(TOPIC, place.partition, 0)
            for ends in self._until_all_is_read():
                for place, records in consumer.poll(0.1).items():
                    reader.polled(TOPIC, place.partition, [(record.offset, record.value) for record in records])
                if ends and all(consumer.position(Place(TOPIC, p)) >= end for p, end in ends.items()):
                    break
            for partition, end in ends.items():
                reader.reached_end(TOPIC, partition, end)

    def confluent_reads(self, isolation: str) -> None:
        reader = self.history.reader(f"confluent, {isolation}", read_committed=isolation == "read_committed")
        consumer = confluent_consumer(
            self.servers, isolation_level=isolation, reconnect_backoff_max_ms=200, socket_timeout_ms=3000, auto_offset_reset="error"
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        for partition in range(PARTITIONS):
            reader.positioned(TOPIC, partition, 0)
        for ends in self._until_all_is_read():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    reader.polled(TOPIC, message.partition(), [(message.offset(), message.value())])
                else:
                    assert error.retriable() or error.code() < 0, error
            at = {place.partition: place.offset for place in consumer.position([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])}
            if ends and all(at[partition] >= end for partition, end in ends.items()):
                break
        for partition, end in ends.items():
            reader.reached_end(TOPIC, partition, end)
        consumer.close()

    def _until_all_is_read(self) -> Iterator[dict[int, int]]:
        """Yields {} until the writers have ended, then the ends of the log, for as long as the reader asks."""
        while not self.written.is_set():
            yield {}
        deadline = time.monotonic() + WAIT_S
        while True:
            assert time.monotonic() < deadline, "a reader did not come to the end"
            yield self.ends

    # ---- the whole

    def play(self, misfortune: Callable[[], None]) -> None:
        readers = [self.ours_reads, lambda: self.confluent_reads("read_committed"), lambda: self.confluent_reads("read_uncommitted")]
        for work in readers:
            self.run(work)
        writers = [self.ours_writes, self.confluent_writes, self.transactions_are_written]
        for work in writers:
            self.run(work)
        deadline = time.monotonic() + SCENE_S
        try:
            while time.monotonic() < deadline or (self.lacking() and time.monotonic() < deadline + WAIT_S):
                misfortune()
        finally:
            self.over.set()
            for thread in self.threads[len(readers) :]:
                thread.join(WAIT_S * 2)
            self._find_ends()
            self.written.set()
            for thread in self.threads:
                thread.join(WAIT_S * 2)
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self.threads)

    def _find_ends(self) -> None:
        with KafkaConsumer(bootstrap_servers=self.servers) as consumer:
            found = consumer.end_offsets([Place(TOPIC, partition) for partition in range(PARTITIONS)])
        self.ends = {place.partition: offset for place, offset in found.items()}

    def judge(self) -> None:
        self.history.assert_clean()
        assert not self.lacking(), f"too few records were acknowledged to {self.lacking()}: this shows nothing"

    def lacking(self) -> set[str]:
        """The writers of whom too little was acknowledged yet."""
        acked = Counter(send.writer for send in list(self.history.sends) if send.acked_at is not None)
        return {name for name, least in (("ours", 100), ("confluent", 100), ("transactional", 10)) if acked[name] < least}


@contextmanager
def scene() -> Iterator[Scene]:
    with EmbeddedCluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        yield Scene(cluster)


def in_sync(cluster: EmbeddedCluster) -> bool:
    return all(len(cluster.isr(TOPIC, partition)) == 3 for partition in range(PARTITIONS))


def wait_in_sync(cluster: EmbeddedCluster) -> None:
    deadline = time.monotonic() + WAIT_S
    while not in_sync(cluster):
        assert time.monotonic() < deadline, [cluster.isr(TOPIC, partition) for partition in range(PARTITIONS)]
        time.sleep(0.02)


@pytest.mark.parametrize("end", [EmbeddedCluster.stop_broker, EmbeddedCluster.kill_broker], ids=["stop", "die"])
def test_leaders_go_and_come_back(end: Callable[[EmbeddedCluster, int], None]) -> None:
    with scene() as played:
        cluster, rng = played.cluster, random.Random(1)

        def misfortune() -> None:
            leader = cluster.leader(TOPIC, rng.randrange(PARTITIONS))
            assert leader is not None
            end(cluster, leader)
            time.sleep(0.3)
            cluster.start_broker(leader)
            wait_in_sync(cluster)

        played.play(misfortune)
        played.judge()


def test_brokers_hang_and_go_on() -> None:
    with scene() as played:
        cluster, rng = played.cluster, random.Random(3)

        def misfortune() -> None:
            broker = rng.choice([1, 2, 3])
            cluster.pause_broker(broker)
            time.sleep(0.3)
            cluster.resume_broker(broker)
            time.sleep(0.2)

        played.play(misfortune)
        played.judge()


def test_answers_and_requests_are_lost() -> None:
    """The idempotent producers write again what was written, and nothing of it may be seen."""
    with scene() as played:
        cluster, rng = played.cluster, random.Random(4)

        def fault(_: object) -> Disconnect | None:
            return Disconnect(handle=rng.random() < 0.7) if rng.random() < 0.05 else None

        cluster.control(PRODUCE, fault)
        cluster.control(FETCH, lambda _: Disconnect() if rng.random() < 0.01 else None)
        try:
            played.play(lambda: time.sleep(0.1))
        finally:
            for key in (PRODUCE, FETCH):
                cluster.control(key, None)
        played.judge()


def test_leaders_are_moved() -> None:
    with scene() as played:
        cluster, rng = played.cluster, random.Random(5)

        def misfortune() -> None:
            try:
                cluster.move_leader(TOPIC, rng.randrange(PARTITIONS), rng.choice([1, 2, 3]))
            except KafkaError as error:
                assert error.retriable or error.code is not None, error  # not in sync just now
            time.sleep(0.1)

        played.play(misfortune)
        played.judge()
