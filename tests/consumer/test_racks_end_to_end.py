"""Members in racks on the embedded cluster: what they are assigned lies in their rack (KIP-881), and they read it there (KIP-392)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.groups import Members as GroupOf
from tests.kit.inside import group_of
from tests.kit.records import fill
from tests.kit.waiting import until

RACKS = ("a", "b", "c")  # of brokers 1, 2 and 3
PARTITIONS, RECORDS = 12, 5
REPLICAS = {partition: [partition % 3 + 1, (partition + 1) % 3 + 1] for partition in range(PARTITIONS)}
SETTINGS = {
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica_fetch_wait_max_ms": 20,
    "group_consumer_heartbeat_interval_ms": 50,
}
pytestmark = pytest.mark.timeout(120)


cluster = embedded(brokers=3, config=SETTINGS, racks=RACKS)


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, replica_assignments=REPLICAS)]).check()
    return name


class Fetches:
    """Who asked which broker for records: (rack of the reader, broker)."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.seen: set[tuple[str, int]] = set()

    def __enter__(self) -> Fetches:
        def note(request: Any) -> None:
            if request.replica_state.replica_id < 0:
                self.seen.add((request.rack_id, int(threading.current_thread().name.rpartition("-")[2])))

        self.cluster.control("Fetch", note)
        return self

    def __exit__(self, *exc: object) -> None:
        self.cluster.control("Fetch", None)


class Members:
    """One member in each rack, and what they have read."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, stack: contextlib.ExitStack, **settings: Any) -> None:
        self.cluster, self.topic = cluster, topic
        self.read: list[bytes] = []
        self.sent = 0
        self.of: dict[str, KafkaConsumer] = {}
        for rack in RACKS:
            self.of[rack] = stack.enter_context(GroupOf(cluster.bootstrap_servers, topic, client_rack=rack, **settings))()

    def poll(self) -> dict[str, set[int]]:
        for consumer in self.of.values():
            self.read += [record.value for records in consumer.poll(0.02).values() for record in records]
        return {rack: {tp.partition for tp in consumer.assignment()} for rack, consumer in self.of.items()}

    def until(self, done: Callable[[dict[str, set[int]]], bool], what: str) -> dict[str, set[int]]:
        def look() -> Any:
            return found if done(found := self.poll()) else None

        return until(look, what, every_s=0)

    def shared(self) -> dict[str, set[int]]:
        return self.until(lambda found: sorted(map(len, found.values())) == [PARTITIONS // 3] * 3, "each has a third")

    def write_and_read(self) -> None:
        values = [b"%d" % (self.sent + i) for i in range(PARTITIONS * RECORDS)]
        fill(self.cluster.bootstrap_servers, self.topic, values, [i % PARTITIONS for i in range(len(values))])
        self.sent += len(values)
        self.until(lambda _: len(self.read) >= self.sent, "everything is read")
        assert sorted(map(int, self.read)) == [*range(self.sent)]


def near(partitions: set[int], rack: str, replicas: dict[int, list[int]] = REPLICAS) -> set[int]:
    return {partition for partition in partitions if RACKS.index(rack) + 1 in replicas[partition]}


def nearest(found: dict[str, set[int]]) -> set[tuple[str, int]]:
    """The brokers that are asked: that of the rack for what it has, the leader for the rest."""
    own = {rack: broker for broker, rack in enumerate(RACKS, 1)}
    return {(rack, own[rack] if own[rack] in REPLICAS[p] else REPLICAS[p][0]) for rack, mine in found.items() for p in mine}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_get_what_lies_in_their_rack_and_read_it_there(cluster, topic, protocol):
    """The broker's assignors know no racks, as in Kafka 4: what has a replica in the rack is read there, the rest from its leader."""
    own = {"partition_assignment_strategy": "sticky"} if protocol == "classic" else {}
    with contextlib.ExitStack() as stack:
        members = Members(cluster, topic, stack, group_protocol=protocol, **own)
        found = members.shared()
        if protocol == "classic":
            assert sum(len(near(mine, rack)) for rack, mine in found.items()) == PARTITIONS
        members.write_and_read()  # from here on brokers have named the nearer replicas
        with Fetches(cluster) as fetches:
            members.write_and_read()
        assert fetches.seen == nearest(found)
        assert members.poll() == found


def test_a_group_follows_replicas_to_other_racks_but_not_a_restart(cluster, topic):
    with contextlib.ExitStack() as stack:
        settings = {"partition_assignment_strategy": "cooperative-sticky", "metadata_max_age_ms": 500}
        members = Members(cluster, topic, stack, **settings)
        found = members.shared()
        members.write_and_read()
        generations = {consumer.consumer_group_metadata().generation_id for consumer in members.of.values()}
        leader = next(rack for rack, consumer in members.of.items() if group_of(consumer).membership.leads)
        snapshot = group_of(members.of[leader]).membership._snapshot
        away = next(broker for broker in (1, 2, 3) if broker != cluster.leader("__consumer_offsets", coordinating(cluster, topic)))
        cluster.stop_broker(away)
        members.until(lambda _: away not in snapshot().nodes, "the leader sees that a broker is away")
        cluster.start_broker(away)
        members.until(lambda _: away in snapshot().nodes, "the leader sees that it is back")
        assert members.poll() == found
        assert {consumer.consumer_group_metadata().generation_id for consumer in members.of.values()} == generations

        moved = {partition: [replicas[1], replicas[1] % 3 + 1] for partition, replicas in REPLICAS.items()}  # each to the next rack
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_partition_reassignments({TopicPartition(topic, p): replicas for p, replicas in moved.items()}).check()
        found = members.until(
            lambda found: all(near(mine, rack, moved) == mine and len(mine) == PARTITIONS // 3 for rack, mine in found.items()),
            "members have what lies in their racks now",
        )
        members.write_and_read()


def coordinating(cluster: EmbeddedCluster, topic: str) -> int:
    """The partition of __consumer_offsets that keeps this test's group."""
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        node = admin.describe_groups([f"g-{topic}"])[f"g-{topic}"].coordinator
    assert node is not None
    return next(p for p in range(cluster.topics()["__consumer_offsets"]) if cluster.leader("__consumer_offsets", p) == node.id)
