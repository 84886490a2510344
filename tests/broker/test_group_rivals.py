"""Other clients in groups of the embedded broker: they come back, die, and see their coordinator restart and go.

How they share partitions, commit and go on is in tests/interop/test_accept_groups.py.
"""

import contextlib
from functools import partial

import confluent_kafka
import kafka
import pytest

from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.testing import Drop, EmbeddedCluster
from tests.kit.inside import brokers_of
from tests.kit.rivals import confluent_consumer, confluent_producer, kafka_python_consumer, send_all, subscribe
from tests.kit.waiting import GUARD_S, fresh, until

pytestmark = pytest.mark.slow

PARTITIONS, COUNT = 4, 50
COMMITTED = [COUNT] * PARTITIONS
SETTINGS = {"group.min.session.timeout.ms": 100, "group.consumer.heartbeat.interval.ms": 50}


@pytest.fixture
def cluster():
    with EmbeddedCluster(config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def short_sessions():
    """For members that die; on a busy machine those that live would lose a session as short."""
    with EmbeddedCluster(config={**SETTINGS, "group.consumer.session.timeout.ms": 1000}) as cluster:
        yield cluster


def filled(cluster, replicas=1):
    topic = fresh()
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=replicas)
    for partition in range(PARTITIONS):
        write(cluster, topic, partition, range(partition * COUNT, (partition + 1) * COUNT))
    return topic


def write(cluster, topic, partition, numbers):
    send_all(confluent_producer(cluster.bootstrap_servers), topic, [b"%d" % each for each in numbers], partition)


class Confluent:
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


class KafkaPython:
    """A member of a group by kafka-python, whose heartbeats run in a thread."""

    def __init__(self, cluster, topic, **settings):
        self.consumer = kafka_python_consumer(cluster.bootstrap_servers, group_id=topic, heartbeat_interval_ms=100, **settings)
        subscribe(self.consumer, topic)
        self.values = []

    def step(self):
        for records in self.consumer.poll(50).values():
            self.values.extend(int(record.value) for record in records)

    @property
    def partitions(self):
        return {each.partition for each in self.consumer.assignment()}

    def commit(self):
        self.consumer.commit()

    def committed(self, topic):
        return [self.consumer.committed(kafka.TopicPartition(topic, n)) for n in range(PARTITIONS)]

    def close(self):
        self.consumer.close()


MEMBERS = {"confluent": Confluent, "kip848": partial(Confluent, group_protocol="consumer"), "kafka-python": KafkaPython}
DYING = {"confluent": {"session_timeout_ms": 500}, "kip848": {}, "kafka-python": {"session_timeout_ms": 500, "request_timeout_ms": 2000}}


def step_until(condition, what, *members):
    """Polls the members until something holds."""

    def look():
        for member in members:
            member.step()
        return condition()

    until(look, what, every_s=0)


def group_of(cluster, group_id, look):
    """What `look` finds of a group as the broker has it."""
    broker = brokers_of(cluster)[1]
    coordinator, found = broker.state.groups, []
    partition = coordinator.partition_of(group_id)
    broker.call(lambda: coordinator.runtime.read(partition, lambda shard: look(shard.groups[group_id]), found.append))
    return found[0]


def members_of(cluster, group_id):
    return group_of(cluster, group_id, lambda group: list(group.members))


def generation_of(cluster, group_id):
    """The generation or epoch."""
    return group_of(cluster, group_id, lambda group: getattr(group, "generation", None) or group.epoch)


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(short_sessions, kind):
    """A dead member is one whose requests get no answer any more; for the broker that is the same as one that sends none."""
    cluster, topic = short_sessions, filled(short_sessions)
    first = MEMBERS[kind](cluster, topic, **DYING[kind])
    step_until(lambda: len(first.partitions) == PARTITIONS, "all partitions", first)
    (dead,) = members_of(cluster, topic)
    for key in (12, 68):
        cluster.control(key, lambda request: Drop if request.member_id == dead else None)
    try:
        with contextlib.closing(MEMBERS[kind](cluster, topic, **DYING[kind])) as second:
            step_until(lambda: len(second.partitions) == PARTITIONS, "the dead member's partitions", second)
            assert dead not in members_of(cluster, topic)
    finally:
        for key in (12, 68):
            cluster.control(key, None)
        first.close()


@pytest.mark.parametrize("kind", ["confluent", "kip848"])
def test_a_static_member_comes_back_without_a_rebalance(cluster, kind):
    topic = filled(cluster)
    first, second = (MEMBERS[kind](cluster, topic, group_instance_id=f"instance-{n}") for n in range(2))
    step_until(lambda: len(first.partitions) == len(second.partitions) == 2, "two partitions each", first, second)
    generation, theirs = generation_of(cluster, topic), second.partitions
    second.close()
    second = MEMBERS[kind](cluster, topic, group_instance_id="instance-1")
    step_until(lambda: second.partitions == theirs, "its partitions again", first, second)
    assert generation_of(cluster, topic) == generation
    first.close()
    second.close()


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_group_survives_a_restart_of_its_broker(cluster, kind):
    topic = filled(cluster)
    with contextlib.closing(MEMBERS[kind](cluster, topic)) as member:
        step_until(lambda: len(member.values) == COUNT * PARTITIONS, "all records read", member)
        member.commit()
        cluster.stop_broker(1)
        cluster.start_broker(1)
        step_until(lambda: member.committed(topic) == COMMITTED, "the offsets", member)
        write(cluster, topic, 0, [1000])
        step_until(lambda: 1000 in member.values, "the record written after the restart", member)
        assert len(member.values) == COUNT * PARTITIONS + 1


@pytest.mark.parametrize("kind", ["confluent", "kip848"])
def test_a_group_goes_on_when_its_coordinator_is_gone(kind):
    with EmbeddedCluster(brokers=3, config={**SETTINGS, "offsets.topic.num.partitions": 3}) as cluster, contextlib.ExitStack() as stack:
        topic = filled(cluster, replicas=3)
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
            write(cluster, topic, index, [number])
        step_until(lambda: {1000, 1001} <= {value for member in members for value in member.values}, "what was written since", *members)
        for member in members:
            member.commit()
        cluster.start_broker(gone)
        assert members[0].committed(topic) == [COUNT + 1, COUNT, COUNT, COUNT + 1]
