"""Other clients in groups of the embedded broker: they join, share the partitions, commit, come back, and die."""

import asyncio
import contextlib
import gc
import threading
import time
import warnings

import pytest

from kafkacore.broker.coordinator_shard import partition_for
from kafkacore.testing import Drop, EmbeddedCluster
from tests.kit.inside import brokers_of

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")
aiokafka = pytest.importorskip("aiokafka")

PARTITIONS, COUNT = 4, 200
DEADLINE_S = 90


SETTINGS = {"group.min.session.timeout.ms": 100, "group.consumer.heartbeat.interval.ms": 50}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def short_sessions():
    """For members that die; on a busy machine those that live would lose a session as short."""
    with EmbeddedCluster(config={**SETTINGS, "group.consumer.session.timeout.ms": 1000}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    return filled(cluster, request)


def filled(cluster, request):
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    cluster.create_topic(name, partitions=PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    for n in range(COUNT):
        producer.produce(name, str(n).encode(), partition=n % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return name


def until(condition, step, what):
    """Takes steps until something holds; a step is a poll of clients, which waits for the broker a little."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() >= end:
            raise TimeoutError(f"not within {DEADLINE_S} s: {what}")
        step()


class Confluent:
    """A member of a group by librdkafka."""

    def __init__(self, cluster, topic, group, **settings):
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
            | ({} if "group.protocol" in settings else {"heartbeat.interval.ms": 100})
            | settings
        )
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

    def committed(self, topic):
        places = [confluent_kafka.TopicPartition(topic, n) for n in range(PARTITIONS)]
        return [each.offset for each in self.consumer.committed(places, DEADLINE_S)]

    def close(self):
        self.consumer.close()


class KafkaPython:
    """A member of a group by kafka-python, whose heartbeats run in a thread."""

    def __init__(self, cluster, topic, group, **settings):
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            **settings,
        )
        # If its first JoinGroup is answered before its first metadata come, it leads the group, assigns nothing and never joins again.
        self.consumer.partitions_for_topic(topic)
        self.consumer.subscribe([topic])
        self.values = []

    def step(self):
        for records in self.consumer.poll(50).values():
            self.values.extend(int(record.value) for record in records)

    @property
    def partitions(self):
        return {each.partition for each in self.consumer.assignment()}

    def committed(self, topic):
        found = [self.consumer.committed(kafka.TopicPartition(topic, n)) for n in range(PARTITIONS)]
        return [-1001 if each is None else each for each in found]

    def close(self):
        self.consumer.close()


class Aio:
    """A member of a group by aiokafka, on a loop in a thread of its own: who starts waits until all members have joined again, and on a
    loop that stands still none would, until its session ends."""

    def __init__(self, cluster, topic, group, **settings):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.values = []

        async def start():
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=100,
                **settings,
            )
            await consumer.start()
            return consumer

        self.consumer = self.run(start())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def step(self):
        for records in self.run(self.consumer.getmany(timeout_ms=50)).values():
            self.values.extend(int(record.value) for record in records)

    @property
    def partitions(self):
        return {each.partition for each in self.consumer.assignment()}

    def commit(self):
        self.run(self.consumer.commit())

    def committed(self, topic):
        found = [self.run(self.consumer.committed(aiokafka.TopicPartition(topic, n))) for n in range(PARTITIONS)]
        return [-1001 if each is None else each for each in found]

    def close(self):
        self.run(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # aiokafka forgets connections that it gave up
            self.consumer = None
            gc.collect()
        self.loop.close()


class Kip848(Confluent):
    """A member of a consumer group by librdkafka."""

    def __init__(self, cluster, topic, group, **settings):
        super().__init__(cluster, topic, group, **({"group.protocol": "consumer"} | settings))


MEMBERS = {"confluent": Confluent, "kip848": Kip848, "kafka-python": KafkaPython, "aiokafka": Aio}


def commit(member):
    if isinstance(member, Confluent):
        member.consumer.commit(asynchronous=False)
    elif isinstance(member, Aio):
        member.commit()
    else:
        member.consumer.commit()


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_group_shares_the_partitions_commits_and_goes_on_where_it_was(cluster, topic, kind):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(MEMBERS[kind](cluster, topic, topic)))
        until(lambda: len(first.values) == COUNT, first.step, "all records read")
        assert sorted(first.values) == list(range(COUNT))
        commit(first)
        assert first.committed(topic) == [COUNT // PARTITIONS] * PARTITIONS

        second = stack.enter_context(contextlib.closing(MEMBERS[kind](cluster, topic, topic)))

        def step():
            first.step()
            second.step()

        until(lambda: len(first.partitions) == len(second.partitions) == 2, step, "two partitions each")
        assert first.partitions | second.partitions == set(range(PARTITIONS))
        assert second.values == []  # it began where the first had committed

    # everybody left; a new member begins there too
    with contextlib.closing(MEMBERS[kind](cluster, topic, topic)) as third:
        until(lambda: len(third.partitions) == PARTITIONS, third.step, "all partitions")
        assert third.committed(topic) == [COUNT // PARTITIONS] * PARTITIONS
        assert third.values == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(short_sessions, request, kind):
    """A dead member is one whose requests get no answer any more; for the broker that is the same as one that sends none."""
    cluster, topic = short_sessions, filled(short_sessions, request)
    settings = {
        "confluent": {"session.timeout.ms": 500},
        "kip848": {},
        "kafka-python": {"session_timeout_ms": 500, "request_timeout_ms": 2000},
        "aiokafka": {"session_timeout_ms": 500, "request_timeout_ms": 1000},
    }[kind]
    first = MEMBERS[kind](cluster, topic, topic, **settings)
    until(lambda: len(first.partitions) == PARTITIONS, first.step, "all partitions")
    dead = next(each for each in group_members(cluster, topic))
    quiet = {dead}

    def silence(request):
        return Drop if request.member_id in quiet else None

    keys = (12, 68)
    for key in keys:
        cluster.control(key, silence)
    try:
        with contextlib.closing(MEMBERS[kind](cluster, topic, topic, **settings)) as second:
            until(lambda: len(second.partitions) == PARTITIONS, second.step, "the dead member's partitions")
            assert dead not in group_members(cluster, topic)
    finally:
        for key in keys:
            cluster.control(key, None)
        first.close()


def group_members(cluster, group_id):
    """The ids of a group's members, as the broker has them."""
    coordinator = brokers_of(cluster)[1].state.groups

    def look():
        found = []
        coordinator.runtime.read(coordinator.partition_of(group_id), lambda shard: list(shard.groups[group_id].members), found.append)
        return found[0]

    return brokers_of(cluster)[1].call(look)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_static_member_comes_back_without_a_rebalance(cluster, topic, kind):
    names = {"confluent": "group.instance.id", "kip848": "group.instance.id"}
    if kind == "aiokafka":
        settings = [{"group_instance_id": f"instance-{n}"} for n in range(2)]
    else:
        settings = [{names.get(kind, "group_instance_id"): f"instance-{n}"} for n in range(2)]
    first, second = (MEMBERS[kind](cluster, topic, topic, **each) for each in settings)

    def step():
        first.step()
        second.step()

    seen = []

    def settled():
        """kafka-python may join once more when it has its share: the group is the same in ten looks, which polls of 50 ms are between."""
        if not len(first.partitions) == len(second.partitions) == 2:
            return False
        seen.append(generation_of(cluster, topic))
        return len(seen) >= 10 and len(set(seen[-10:])) == 1

    until(settled, step, "two partitions each")
    generation, theirs = generation_of(cluster, topic), second.partitions
    second.close()
    second = MEMBERS[kind](cluster, topic, topic, **settings[1])
    until(lambda: second.partitions == theirs, step, "its partitions again")
    assert generation_of(cluster, topic) == generation
    first.close()
    second.close()


def generation_of(cluster, group_id):
    """The generation or epoch of a group, as the broker has it."""
    coordinator = brokers_of(cluster)[1].state.groups

    def look():
        found = []
        coordinator.runtime.read(coordinator.partition_of(group_id), lambda shard: shard.groups[group_id], found.append)
        return getattr(found[0], "generation", None) or found[0].epoch

    return brokers_of(cluster)[1].call(look)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEMBERS)
def test_a_group_survives_a_restart_of_its_broker(topic_on_own_cluster, kind):
    cluster, topic = topic_on_own_cluster
    with contextlib.closing(MEMBERS[kind](cluster, topic, topic)) as member:
        until(lambda: len(member.values) == COUNT, member.step, "all records read")
        commit(member)
        cluster.stop_broker(1)
        cluster.start_broker(1)
        until(lambda: member.committed(topic) == [COUNT // PARTITIONS] * PARTITIONS, member.step, "the offsets")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
        producer.produce(topic, b"1000", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        until(lambda: 1000 in member.values, member.step, "the record written after the restart")
        assert len(member.values) == COUNT + 1


@pytest.fixture
def topic_on_own_cluster():
    config = {"group.min.session.timeout.ms": 100, "group.consumer.heartbeat.interval.ms": 50}
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("own", partitions=PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
        for n in range(COUNT):
            producer.produce("own", str(n).encode(), partition=n % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0
        yield cluster, "own"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["confluent", "kip848"])
def test_a_group_goes_on_when_its_coordinator_is_gone(kind):
    config = {"group.min.session.timeout.ms": 100, "group.consumer.heartbeat.interval.ms": 50, "offsets.topic.num.partitions": 3}
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS, replication_factor=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
        for n in range(COUNT):
            producer.produce("t", str(n).encode(), partition=n % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0
        with contextlib.ExitStack() as stack:
            members = [stack.enter_context(contextlib.closing(MEMBERS[kind](cluster, "t", "g"))) for _ in range(2)]

            def step():
                for member in members:
                    member.step()

            until(lambda: all(len(member.partitions) == 2 for member in members), step, "two partitions each")
            # Of a partition that has moved, the new member reads the records again, as none of its offsets is committed.
            until(lambda: all(member.has_read(COUNT // PARTITIONS) for member in members), step, "all records read by their members")
            for member in members:
                member.consumer.commit(asynchronous=False)
            assert members[0].committed("t") == [COUNT // PARTITIONS] * PARTITIONS
            partition = partition_for("g", 3)
            gone = cluster.leader("__consumer_offsets", partition)
            cluster.stop_broker(gone)
            until(lambda: cluster.leader("__consumer_offsets", partition) not in (None, gone), step, "another coordinator")
            assert members[0].committed("t") == [COUNT // PARTITIONS] * PARTITIONS
            producer.produce("t", b"1000", partition=0)
            producer.produce("t", b"1001", partition=PARTITIONS - 1)
            assert producer.flush(DEADLINE_S) == 0
            until(lambda: {1000, 1001} <= {value for member in members for value in member.values}, step, "what was written since")
            for member in members:
                member.consumer.commit(asynchronous=False)
            cluster.start_broker(gone)
            assert members[0].committed("t") == [COUNT // PARTITIONS + 1, COUNT // PARTITIONS, COUNT // PARTITIONS, COUNT // PARTITIONS + 1]
