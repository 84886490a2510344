"""Leaders die, or are cut off, one after the other, while numbered records are written with acks=all: all are read once, in order.

This is driven by progress, not by time: in the middle of each round of records the leader of a partition is ended, by SIGKILL where it is
a process, and started again, or it is isolated until another one leads; the next round begins when all replicas are in sync.
"""

import threading

import confluent_kafka
import numpy
import pytest

from kafkacore import KafkaConsumer, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import TopicPartition
from tests.kit.inside import controller_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
PER_ROUND = 20_000
TIMEOUT_S = 120


class Progress:
    """How many records are acknowledged, and which ones."""

    def __init__(self, records):
        self.acknowledged = numpy.zeros(records, dtype=bool)
        self.failures = []
        self.count = 0
        self.moved = threading.Condition()

    def note(self, number, error):
        with self.moved:
            if error is None:
                self.acknowledged[number] = True
            else:
                self.failures.append(error)
            self.count += 1
            self.moved.notify_all()

    def wait_for(self, count):
        with self.moved:
            assert self.moved.wait_for(lambda: self.count >= count, TIMEOUT_S), f"{self.count} of {count}"


class Ours:
    def __init__(self, servers, progress):
        self.producer, self.progress = KafkaProducer(bootstrap_servers=servers, request_timeout_ms=5_000), progress

    def send(self, number):
        def delivered(metadata, error):
            self.progress.note(number, error)

        self.producer.send("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)

    def poll(self):
        """It has a thread for that."""

    def close(self):
        self.producer.close(TIMEOUT_S)


class Confluent:
    def __init__(self, servers, progress):
        settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 10 * PER_ROUND,
        }
        self.producer, self.progress = confluent_kafka.Producer(settings), progress

    def send(self, number):
        self.producer.produce(
            "t", b"%d" % number, partition=number % PARTITIONS, on_delivery=lambda error, _: self.progress.note(number, error)
        )
        self.producer.poll(0)

    def poll(self):
        self.producer.flush(TIMEOUT_S)

    def close(self):
        assert self.producer.flush(TIMEOUT_S) == 0


def all_in_sync(state):
    return all(len(part.isr) == 3 for part in state.image.topics["t"].partitions)


def killed(cluster, victim, partition):
    """Ends a broker and brings it back; who leads in between."""
    cluster.kill_broker(victim)
    successor = cluster.leader("t", partition)
    cluster.start_broker(victim)
    return successor


def isolated(cluster, victim, partition):
    """Cuts a broker off until another one leads."""
    cluster.network.isolate(victim)
    assert controller_of(cluster).wait_until(lambda state: state.image.partition("t", partition).leader not in (-1, victim), TIMEOUT_S)
    successor = cluster.leader("t", partition)
    cluster.network.heal()
    return successor


def lose_a_leader(cluster, lose, progress, at, partition, lost):
    """When so many records are acknowledged."""
    progress.wait_for(at)
    victim, count = cluster.leader("t", partition), progress.count
    lost.append((victim, lose(cluster, victim, partition), count))
    assert controller_of(cluster).wait_until(all_in_sync, TIMEOUT_S)


def read_partitions(cluster):
    """The numbers in each partition, in the order of their offsets."""
    partitions = [TopicPartition("t", index) for index in range(PARTITIONS)]
    found = {partition: [] for partition in partitions}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for columns in consumer.poll_batch(TIMEOUT_S):
                found[columns.topic, columns.partition] += [int(record.value) for record in columns]
    return list(found.values())


@pytest.mark.parametrize(
    ("client", "lose", "rounds", "options"),
    [
        (Ours, killed, 5, {"processes": True}),
        (Confluent, killed, 5, {}),
        (Ours, isolated, 3, {"faults": True}),
    ],
    ids=["ours-processes", "confluent-threads", "ours-isolated"],
)
def test_nothing_acknowledged_is_lost_doubled_or_reordered(client, lose, rounds, options):
    config = {"min.insync.replicas": 2}
    if lose is isolated:
        config |= {"broker.session.timeout.ms": 1_500, "broker.heartbeat.interval.ms": 200, "replica.lag.time.max.ms": 600}
    with EmbeddedCluster(brokers=3, config=config, **options) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        progress, lost = Progress(rounds * PER_ROUND), []
        producer = client(cluster.bootstrap_servers, progress)
        for nth in range(rounds):
            start = nth * PER_ROUND
            loser = threading.Thread(target=lose_a_leader, args=(cluster, lose, progress, start + PER_ROUND // 4, nth % PARTITIONS, lost))
            loser.start()
            for number in range(start, start + PER_ROUND):
                producer.send(number)
            producer.poll()
            progress.wait_for(start + PER_ROUND)
            loser.join(TIMEOUT_S)
            assert len(lost) == nth + 1
        producer.close()
        assert progress.failures == [] and progress.acknowledged.all()
        assert all(victim != successor and successor is not None for victim, successor, _ in lost)
        # Most were lost while records were on their way.
        assert sum(count < (nth + 1) * PER_ROUND for nth, (_, _, count) in enumerate(lost)) > rounds // 2, lost
        for index, numbers in enumerate(read_partitions(cluster)):
            assert numbers == list(range(index, rounds * PER_ROUND, PARTITIONS))
