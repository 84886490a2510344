"""A copy of the flights is exact, though the copying process is SIGKILLed again and again, and brokers too, where they are three processes.

The copying process is examples/exactly_once.py. Readers of committed data of three clients then see each record once, and those of a key in
their order. Kafka's TransactionalMessageCopier reads what our producer wrote, and our consumer what that wrote.

By default a part of the flights is copied; KAFKACORE_ALL_FLIGHTS=1 takes all 336,776. KAFKACORE_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Place

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore.cli.flights import Flights, load_flights
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer
from tests.kit.records import numbered, read_committed
from tests.kit.rivals import confluent_consumer, take
from tests.kit.topics import new_topic
from tests.kit.waiting import fresh, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "exactly_once.py"
ALL = os.environ.get("KAFKACORE_ALL_FLIGHTS") == "1"
LIMIT, BATCH, KILLS = (None, 500, 10) if ALL else (4_000, 50, 3)
PARTITIONS, GUARD_S = 4, 1200 if ALL else 240
AHEAD = 8  # transactions that the copier has before it

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(3 * GUARD_S if ALL else 600)]
CONFIG = {
    "min.insync.replicas": 2, "replica.lag.time.max.ms": 3000, "replica.fetch.wait.max.ms": 50, "replica.fetch.backoff.ms": 50,
    "offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS,
}  # fmt: skip
INTERNAL = ["__consumer_offsets", "__transaction_state"]

ByKey = dict[bytes, list[bytes]]


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(LIMIT)


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("KAFKACORE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"KAFKACORE_SEED={seed}")  # pytest shows it when the test fails
    return random.Random(seed)


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, processes=True, config=CONFIG) as cluster:
        yield cluster


def flights_topic(servers: str) -> str:
    return new_topic(servers, PARTITIONS, prefix="flights", retention_ms=-1)  # they are of 2013


def copied_of(flights: Flights) -> ByKey:
    found: ByKey = defaultdict(list)
    for carrier, document in zip(flights.carriers, flights.documents, strict=True):
        found[carrier].append(document.upper())
    return found


class Source:
    """A topic that the flights come into little by little, so that the copier has some before it at every moment and never all."""

    def __init__(self, servers: str, flights: Flights) -> None:
        self.topic = flights_topic(servers)
        self._flights = flights
        self._begin = 0
        self._producer = KafkaProducer(bootstrap_servers=servers)

    def more(self, transactions: int) -> None:
        self._write(min(self._begin + transactions * BATCH, len(self._flights.documents)))

    def rest(self) -> None:
        assert self._begin < len(self._flights.documents), "some come after the last kill"
        self._write(len(self._flights.documents))
        self._producer.close()

    def _write(self, end: int) -> None:
        columns = self._flights.documents, self._flights.carriers, self._flights.timestamps_ms
        values, keys, timestamps_ms = (column[self._begin : end] for column in columns)
        self._producer.send_many(self.topic, values, keys=keys, timestamps_ms=timestamps_ms)
        self._begin = end


class Copier:
    """The copying process."""

    def __init__(self, servers: str, source: str, target: str) -> None:
        self._servers = servers
        self._group = fresh("g")
        self._command = [sys.executable, str(EXAMPLE), source, target, "--bootstrap-server", servers]
        self._command += ["--name", fresh("copier"), "--group", self._group, "--batch", str(BATCH)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)

    def progress(self, transactions: int, source: Source) -> None:
        """Returns when so many more are committed; for each, as many records come into the source."""
        assert self._process is not None and self._process.stdout is not None
        while transactions:
            line = self._process.stdout.readline()
            assert line, f"the copier ended with {self._process.wait()}"
            if line.startswith("committed"):
                transactions -= 1
                source.more(1)

    def kill(self) -> None:
        if self._process is not None:
            assert self._process.poll() is None, f"the copier ended with {self._process.returncode}"
            self._process.kill()
            self._process.communicate()
            self._process = None

    def copied(self) -> int:
        """How many records the group is past."""
        with KafkaAdminClient(bootstrap_servers=self._servers) as admin:
            return sum(found.offset for found in admin.list_group_offsets(self._group).values() if found is not None)

    def finish(self, offset: int) -> None:
        """Returns when the group's offsets add up to this, and ends the process."""
        assert self._process is not None
        reader = threading.Thread(target=self._process.communicate)  # what it prints must not fill the pipe
        reader.start()
        until(lambda: self.copied() >= offset, "the copy is complete", guard_s=GUARD_S, every_s=0.2)
        self._process.kill()
        reader.join()
        self._process = None


def kill_often(copier: Copier, source: Source, rng: random.Random, cluster: EmbeddedCluster | None, topics: list[str]) -> None:
    """Ends the copying process at random moments, and every other time a broker while it copies."""
    longest = 50 if ALL else 10

    def in_sync(all_of: EmbeddedCluster) -> None:
        """A broker that is killed while it is in sync alone leaves nobody to lead until it is back."""
        names = [*topics, *INTERNAL]
        until(lambda: all(len(all_of.isr(name, p)) == 3 for name in names for p in range(PARTITIONS)), "replicas are in sync")

    for turn in range(KILLS):
        source.more(AHEAD)  # a killed copier may have had all that was there
        copier.start()
        broker = rng.choice([1, 2, 3]) if cluster is not None and turn % 2 else 0
        starts = turn % 5 == 4 or turn == KILLS - 1  # it dies somewhere in its start
        if not starts:
            copier.progress(rng.randint(1, longest), source)
        if cluster is not None and broker:
            in_sync(cluster)
            cluster.kill_broker(broker)
            if rng.random() < 0.5:
                copier.progress(2, source)
        threading.Event().wait(rng.uniform(0, 0.8 if starts else 0.05))  # no event tells a random moment
        copier.kill()
        if cluster is not None and broker:
            cluster.start_broker(broker)
            in_sync(cluster)


# ---- readers: all up to the last of `count` records


def ours(servers: str, topic: str, count: int) -> ByKey:
    found: ByKey = defaultdict(list)
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        while count > 0:
            polled = consumer.poll(timeout=60, max_records=20_000)
            assert polled, f"{count} records are missing"
            for records in polled.values():
                count -= len(records)
                for record in records:
                    found[record.key or b""].append(record.value or b"")
    return found


def confluents(servers: str, topic: str, count: int) -> ByKey:
    found: ByKey = defaultdict(list)
    with contextlib.closing(confluent_consumer(servers, isolation_level="read_committed")) as consumer:
        consumer.assign([Place(topic, index, 0) for index in range(PARTITIONS)])
        for message in take(consumer, count, GUARD_S):
            found[message.key() or b""].append(message.value() or b"")
    return found


def consoles(java: JavaTools, servers: str, topic: str, count: int) -> ByKey:
    found: ByKey = defaultdict(list)
    words = ["--from-beginning", "--isolation-level", "read_committed", "--max-messages", count, "--timeout-ms", 60_000]
    words += ["--formatter-property", "print.key=true", "--formatter-property", "key.separator=|"]
    ran = java.run("consumer.ConsoleConsumer", "--bootstrap-server", servers, "--topic", topic, *words, timeout=GUARD_S)
    for line in ran.ok().splitlines():
        key, value = line.encode().split(b"|", 1)
        found[key].append(value)
    return found


def assert_exact(java: JavaTools, servers: str, topic: str, expected: ByKey) -> None:
    """Every reader sees these records and no other. A last record in each partition shows that the readers have seen what is before it."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for index in range(PARTITIONS):
            producer.send(topic, b"last", key=b"%d" % index, partition=index)
    expected = {**expected, **{b"%d" % index: [b"last"] for index in range(PARTITIONS)}}
    count = sum(map(len, expected.values()))
    for found in (ours(servers, topic, count), confluents(servers, topic, count), consoles(java, servers, topic, count)):
        assert {key: len(values) for key, values in found.items()} == {key: len(values) for key, values in expected.items()}
        assert found == expected


def copy_and_check(servers: str, flights: Flights, rng: random.Random, java: JavaTools, cluster: EmbeddedCluster | None) -> None:
    source, target = Source(servers, flights), flights_topic(servers)
    copier = Copier(servers, source.topic, target)
    try:
        kill_often(copier, source, rng, cluster, [source.topic, target])
        assert copier.copied(), "the kills have to meet a copier that copies"
        source.rest()
        copier.start()
        copier.finish(len(flights.documents))
    finally:
        copier.kill()
    assert_exact(java, servers, target, copied_of(flights))


def test_killed_copiers_on_kafka(real_kafka: KafkaServer, flights: Flights, rng: random.Random, java: JavaTools) -> None:
    copy_and_check(real_kafka.bootstrap_servers, flights, rng, java, None)


def test_killed_copiers_and_brokers(three: EmbeddedCluster, flights: Flights, rng: random.Random, java: JavaTools) -> None:
    copy_and_check(three.bootstrap_servers, flights, rng, java, three)


def test_kafkas_copier_reads_ours_and_ours_reads_its(three: EmbeddedCluster, java: JavaTools) -> None:
    """Kafka's copies in transactions, too, of which it aborts some at random and does them again."""
    servers = three.bootstrap_servers
    source, target, values = new_topic(servers), new_topic(servers), numbered(500)
    with KafkaProducer(bootstrap_servers=servers, transactional_id=fresh("tx")) as producer:
        producer.init_transactions()
        for first in range(0, 500, 100):
            with producer.transaction():
                producer.send_many(source, values[first : first + 100])
    words = ["--broker-list", servers, "--input-topic", source, "--input-partition", 0, "--output-topic", target]
    words += ["--transactional-id", fresh("kafkas"), "--consumer-group", fresh("g"), "--transaction-size", 50, "--max-messages", 500]
    java.run("TransactionalMessageCopier", *words, "--enable-random-aborts", "--use-group-metadata", timeout=GUARD_S).ok()
    assert read_committed(servers, target, 500) == values
