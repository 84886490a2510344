"""Leaders die, one after the other, while 200,000 numbered records are written with acks=all: all are read once, in order.

Deaths are driven by progress, not by time: in the middle of each round of records the leader of a partition is ended, by SIGKILL where
it is a process, and started again; the next round begins when all replicas are in sync.
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
RECORDS = 200_000
ROUNDS = 10
TIMEOUT_S = 120


class Progress:
    """How many records are acknowledged, and which ones."""

    def __init__(self):
        self.acknowledged = numpy.zeros(RECORDS, dtype=bool)
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
        self.producer, self.progress = KafkaProducer(bootstrap_servers=servers), progress

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
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "queue.buffering.max.messages": RECORDS}
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


def kill_and_restart(cluster, progress, at, partition, killed):
    """Ends the leader of a partition when so many records are acknowledged, and brings it back."""
    progress.wait_for(at)
    victim = cluster.leader("t", partition)
    cluster.kill_broker(victim)
    killed.append((victim, cluster.leader("t", partition), progress.count))
    cluster.start_broker(victim)
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


@pytest.mark.parametrize(("client", "processes"), [(Ours, True), (Confluent, False)], ids=["ours-processes", "confluent-threads"])
def test_nothing_acknowledged_is_lost_doubled_or_reordered(client, processes):
    with EmbeddedCluster(brokers=3, processes=processes, config={"min.insync.replicas": 2}) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        progress, killed = Progress(), []
        producer = client(cluster.bootstrap_servers, progress)
        per_round = RECORDS // ROUNDS
        for nth in range(ROUNDS):
            start = nth * per_round
            killer_arguments = (cluster, progress, start + per_round // 4, nth % PARTITIONS, killed)
            killer = threading.Thread(target=kill_and_restart, args=killer_arguments)
            killer.start()
            for number in range(start, start + per_round):
                producer.send(number)
            producer.poll()
            progress.wait_for(start + per_round)
            killer.join(TIMEOUT_S)
            assert len(killed) == nth + 1
        producer.close()
        assert progress.failures == [] and progress.acknowledged.all()
        assert all(victim != successor and successor is not None for victim, successor, _ in killed)
        # Most deaths came while records were on their way.
        assert sum(count < (nth + 1) * per_round for nth, (_, _, count) in enumerate(killed)) > ROUNDS // 2, killed
        for index, numbers in enumerate(read_partitions(cluster)):
            assert numbers == list(range(index, RECORDS, PARTITIONS))
