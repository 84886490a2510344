"""librdkafka's groups of the embedded broker: they go on when their coordinator starts again, and when it goes.

How members of all clients share partitions, commit, go and come back is in tests/interop/test_accept_groups.py.
"""

import contextlib
from functools import partial

import confluent_kafka
import pytest

from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.testing import EmbeddedCluster
from tests.kit.rivals import confluent_consumer, confluent_producer, send_all
from tests.kit.waiting import GUARD_S, fresh, until

pytestmark = pytest.mark.slow

PARTITIONS, COUNT = 4, 50
COMMITTED = [COUNT] * PARTITIONS
SETTINGS = {"group.min.session.timeout.ms": 100, "group.consumer.heartbeat.interval.ms": 50}


@pytest.fixture
def cluster():
    with EmbeddedCluster(config=SETTINGS) as cluster:
        yield cluster


def filled_topic(cluster, replicas=1):
    topic = fresh()
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=replicas)
    for partition in range(PARTITIONS):
        write_numbers(cluster, topic, partition, range(partition * COUNT, (partition + 1) * COUNT))
    return topic


def write_numbers(cluster, topic, partition, numbers):
    send_all(confluent_producer(cluster.bootstrap_servers), topic, [b"%d" % each for each in numbers], partition)


class LibrdkafkaMember:
    """A member of a group by librdkafka."""

    def __init__(self, cluster, topic, *, group_protocol="classic", **settings):
        own = {"heartbeat_interval_ms": 100} if group_protocol == "classic" else {"group_protocol": group_protocol}
        self.consumer = confluent_consumer(cluster.bootstrap_servers, group_id=topic, **own, **settings)
        self.consumer.subscribe([topic])
        self.values = []

    def step(self):
        for message in self.consumer.consume(100, 0.05):
            assert message.error() is None, message.error()
            self.values.append(int(message.value()))

    @property
    def partitions(self):
        return {each.partition for each in self.consumer.assignment()}

    def has_read(self, offset):
        """Whether it is at an offset in all of its partitions."""
        return all(each.offset == offset for each in self.consumer.position(self.consumer.assignment()))

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def committed(self, topic):
        places = [confluent_kafka.TopicPartition(topic, n) for n in range(PARTITIONS)]
        return [each.offset for each in self.consumer.committed(places, GUARD_S)]

    def close(self):
        self.consumer.close()


MEMBERS = {"confluent": LibrdkafkaMember, "kip848": partial(LibrdkafkaMember, group_protocol="consumer")}


def step_until(condition, what, *members):
    """Polls the members until something holds."""

    def look():
        for member in members:
            member.step()
        return condition()

    until(look, what, every_s=0)


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_group_survives_a_restart_of_its_broker(cluster, kind):
    topic = filled_topic(cluster)
    with contextlib.closing(MEMBERS[kind](cluster, topic)) as member:
        step_until(lambda: len(member.values) == COUNT * PARTITIONS, "all records read", member)
        member.commit()
        cluster.stop_broker(1)
        cluster.start_broker(1)
        step_until(lambda: member.committed(topic) == COMMITTED, "the offsets", member)
        write_numbers(cluster, topic, 0, [1000])
        step_until(lambda: 1000 in member.values, "the record written after the restart", member)
        assert len(member.values) == COUNT * PARTITIONS + 1


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_group_goes_on_when_its_coordinator_is_gone(kind):
    with EmbeddedCluster(brokers=3, config={**SETTINGS, "offsets.topic.num.partitions": 3}) as cluster, contextlib.ExitStack() as stack:
        topic = filled_topic(cluster, replicas=3)
        members = [stack.enter_context(contextlib.closing(MEMBERS[kind](cluster, topic))) for _ in range(2)]
        step_until(lambda: all(len(member.partitions) == 2 for member in members), "two partitions each", *members)
        # Of a partition that has moved, the new member reads the records again, as none of its offsets is committed.
        step_until(lambda: all(member.has_read(COUNT) for member in members), "all records read by their members", *members)
        for member in members:
            member.commit()
        assert members[0].committed(topic) == COMMITTED
        partition = partition_for(topic, 3)
        gone = cluster.leader("__consumer_offsets", partition)
        cluster.stop_broker(gone)
        step_until(lambda: cluster.leader("__consumer_offsets", partition) not in (None, gone), "another coordinator", *members)
        assert members[0].committed(topic) == COMMITTED
        for index, number in ((0, 1000), (PARTITIONS - 1, 1001)):
            write_numbers(cluster, topic, index, [number])
        step_until(lambda: {1000, 1001} <= {value for member in members for value in member.values}, "what was written since", *members)
        for member in members:
            member.commit()
        cluster.start_broker(gone)
        assert members[0].committed(topic) == [COUNT + 1, COUNT, COUNT, COUNT + 1]
