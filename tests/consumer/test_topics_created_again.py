"""A topic that a group reads is deleted and created again: no offset of the old topic counts for the new one, and no other topic waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from commits_rig import NEW, OLD, OTHER, A, B, C, CommitsRig

from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, errors
from kafkacore.clock import ManualClock
from kafkacore.cluster_snapshot import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.group.commits import Commit
from kafkacore.metadata import Metadata
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from tests.kit.clusters import embedded
from tests.kit.records import fill
from tests.kit.rows import each_row
from tests.kit.waiting import until

# -- the engine: time and metadata are moved by hand -------------------------------------------------------------------------------------


class CountingMetadata(Metadata):
    """Counts how often a newer answer is asked for."""

    times = 0

    def request_update(self, *, reset_equivalent: bool = False) -> int:
        self.times += 1
        return super().request_update(reset_equivalent=reset_equivalent)


class IdsRig(CommitsRig):
    """Of a consumer whose metadata the test writes."""

    def __init__(self, *, version: int = 10) -> None:
        self.metadata = CountingMetadata(ConsumerConfig(bootstrap_servers="127.0.0.1:1"), ManualClock())
        super().__init__(metadata=self.metadata)
        self.coordinator.versions = dict.fromkeys(self.coordinator.versions, version)
        self.show(t=OLD, u=OTHER)

    def show(self, **ids: bytes) -> None:
        """Newer metadata, with two partitions of each of these topics; without an id a topic that does not exist."""
        parts = [PartitionInfo(i, 1, 0, (1,), (1,), ()) for i in range(2)]
        gone = errors.UnknownTopicOrPartition("")
        topics = {n: TopicInfo(n, i, parts) if i else TopicInfo(n, OLD, parts, False, gone) for n, i in ids.items()}
        self.metadata.snapshot = ClusterSnapshot(topics=topics)
        self.metadata.started += 1
        self.metadata.answered = self.metadata.started

    def commit(self, *tps: TopicPartition, retried: bool = True) -> Commit:
        return self.commits.commit({tp: OffsetAndMetadata(5 + tp.partition) for tp in tps}, retried=retried)

    def go(self, ms: int = 0) -> list[Any]:
        """The requests that are sent after so long; they are answered at once."""
        coordinator = self.coordinator
        coordinator.now_ms += ms
        sent = []
        self.commits.step(coordinator.now_ms)
        while coordinator.flying:
            sent.append(coordinator.flying[0][1:3])
            coordinator.answer()
            self.commits.step(coordinator.now_ms)  # a back-off begins
        return [(version, [(t.name, bytes(t.topic_id)) for t in request.topics]) for request, version in sent]


def test_topics_go_by_id_where_all_have_one() -> None:
    rig = IdsRig()
    commit = rig.commit(A, B, C)
    assert rig.go() == [(10, [("", OLD), ("", OTHER)])]
    assert (commit.done, commit.error, rig.taken) == (True, None, {A: 5, B: 6, C: 5})
    query = rig.commits.fetch([A, C])
    rig.go()
    assert query.results == {A: OffsetAndMetadata(5), C: OffsetAndMetadata(5)}
    assert query.topic_ids == {A: OLD, C: OTHER}


@pytest.mark.parametrize("unknown", [{"u": OTHER}, {"t": bytes(16), "u": OTHER}], ids=["not looked up", "a cluster without ids"])
def test_all_topics_go_by_name_where_one_has_no_id(unknown: dict[str, bytes]) -> None:
    rig = IdsRig()
    rig.show(**unknown)
    commit = rig.commit(A, C)
    assert rig.go() == [(9, [("t", bytes(16)), ("u", bytes(16))])]
    assert commit.error is None
    query = rig.commits.fetch([A, C])
    rig.go()
    assert (query.results, query.topic_ids) == ({A: OffsetAndMetadata(5), C: OffsetAndMetadata(5)}, {})


@each_row("version", [9, 10])
@each_row("now", [{"t": NEW, "u": OTHER}, {"t": b"", "u": OTHER}], ids=["created again", "deleted"])
def test_a_commit_that_waited_while_its_topic_went(version: int, now: dict[str, bytes]) -> None:
    """The other topics are committed; the one of that name gets nothing, whatever the coordinator knows by then."""
    rig = IdsRig(version=version)
    commit = rig.commit(A, B, C)
    rig.show(**now)
    rig.coordinator.ids["t"] = NEW
    rig.go()
    while not commit.done:  # of a topic that only may be gone metadata are asked for again
        rig.show(**now)
        rig.go(100)
    assert rig.metadata.times <= 3
    assert rig.coordinator.kept.keys() == {C}
    assert rig.taken == {C: 5}
    assert isinstance(commit.error, errors.UnknownTopicOrPartition)
    assert (commit.error.topic, commit.error.partition, commit.error.offset) == ("t", 0, 5)
    assert ("created again" in str(commit.error)) == bool(now["t"])


@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_that_only_the_coordinator_does_not_know_is_asked_for_again(version: int) -> None:
    """Not before newer metadata have come: a name may be another topic's by then. A broker that lags behind may know it a little later."""
    rig = IdsRig(version=version)
    rig.coordinator.ids.pop("t")
    commit = rig.commit(A, C)
    assert len(rig.go()) == 1
    assert not commit.done
    assert [rig.go(100) for _ in range(5)] == [[]] * 5
    assert rig.commits.next_wake_ms(rig.coordinator.now_ms) == 100
    rig.show(t=OLD, u=OTHER)
    rig.coordinator.ids["t"] = OLD
    assert len(rig.go(100)) == 1
    assert (commit.done, commit.error) == (True, None)
    assert rig.coordinator.kept.keys() == {A, C}


@each_row("version", [9, 10])
@each_row("now", [{"t": NEW, "u": OTHER}, {"t": b"", "u": OTHER}], ids=["created again", "deleted"])
def test_a_topic_that_nobody_knows_any_more_is_given_up(version: int, now: dict[str, bytes]) -> None:
    rig = IdsRig(version=version)
    rig.coordinator.ids.pop("t")
    commit = rig.commit(A, C)
    later = rig.commit(C)
    rig.go()
    rig.show(**now)
    rig.coordinator.ids["t"] = NEW
    for _ in range(1 if now["t"] else 3):
        assert not commit.done
        rig.show(**now)
        rig.go(100)
    assert commit.done
    assert isinstance(commit.error, errors.UnknownTopicOrPartition)
    rig.go()
    assert (later.done, later.error) == (True, None)
    assert rig.coordinator.kept.keys() == {C}


@each_row(
    ("retried", "now", "why"),
    [(True, NEW, "created again"), (False, NEW, "created again"), (False, b"", "no such topic"), (True, b"", None)],
)
def test_a_topic_that_went_while_its_commit_was_under_way(retried: bool, now: bytes, why: str | None) -> None:
    """Newer metadata are here already: only of a topic that they do not have, and that may come, are others waited for."""
    rig = IdsRig()
    commit = rig.commit(A, C, retried=retried)
    rig.commits.step(rig.coordinator.now_ms)
    rig.show(t=now, u=OTHER)
    rig.coordinator.ids["t"] = NEW
    rig.coordinator.answer()
    assert (rig.metadata.times, rig.coordinator.kept.keys()) == (why is None, {C})
    assert (commit.done, why is not None and why in str(commit.error)) == (why is not None,) * 2
    assert rig.taken == ({C: 5} if why else {})


def test_a_commit_that_is_not_tried_again_fails_at_once_and_asks_for_metadata() -> None:
    rig = IdsRig()
    rig.coordinator.ids.pop("t")
    commit = rig.commit(A, retried=False)
    rig.go()
    assert isinstance(commit.error, errors.UnknownTopicId)
    assert rig.metadata.times == 1


@pytest.mark.parametrize("version", [9, 10])
def test_before_partitions_are_given_up_a_commit_by_name_waits_for_metadata(version: int) -> None:
    """A new topic of that name may be why they are given up."""
    rig = IdsRig(version=version)
    rig.commit(C)
    rig.go()
    commit = rig.commits.commit({A: OffsetAndMetadata(5), C: OffsetAndMetadata(5)}, retried=True, gives_up=True)
    rig.coordinator.ids["t"] = NEW
    assert len(rig.go()) == (version == 10)
    assert not commit.done
    rig.show(t=NEW, u=OTHER)
    rig.go(100)
    assert isinstance(commit.error, errors.UnknownTopicOrPartition)
    assert rig.coordinator.kept.keys() == {C}


def test_an_answer_about_the_old_topic_says_nothing_of_the_new_one() -> None:
    rig = IdsRig()
    commit = rig.commit(A, C)
    rig.commits.step(rig.coordinator.now_ms)
    rig.show(t=NEW, u=OTHER)
    rig.coordinator.answer()
    assert (commit.done, commit.error) == (True, None)
    assert rig.taken == {C: 5}


def test_a_question_by_an_id_of_before_is_asked_again_by_that_of_now() -> None:
    rig = IdsRig()
    rig.coordinator.ids["t"] = NEW
    rig.coordinator.kept[A] = (7, -1, "")
    query = rig.commits.fetch([A, C])
    rig.go()
    assert (query.done, rig.metadata.times) == (False, 1)
    rig.show(t=NEW, u=OTHER)
    rig.go(100)
    assert (query.results, query.topic_ids) == ({A: OffsetAndMetadata(7), C: None}, {A: NEW, C: OTHER})


def test_of_partitions_that_are_of_several_topics_of_one_name_those_of_today_are_committed() -> None:
    rig = IdsRig()
    old, today, older = A, B, TopicPartition("t", 2)
    rig.subscription.assign_manual([old, today, older])
    for tp, topic_id in ((old, OLD), (today, NEW), (older, OTHER)):
        rig.subscription.partitions[tp].topic_id = topic_id
    rig.show(t=NEW)
    rig.coordinator.ids = {"t": NEW}
    commit = rig.commit(old, today, older)
    while not commit.done:
        rig.go(100)
    assert rig.coordinator.kept.keys() == rig.taken.keys() == {today}
    assert isinstance(commit.error, errors.UnknownTopicOrPartition)


def test_of_two_partitions_with_records_of_the_old_topic_in_hand_one_goes_on_to_the_new_one() -> None:
    rig = IdsRig()
    rig.subscription.assign_manual([A, B])
    for tp in (A, B):
        rig.subscription.partitions[tp].topic_id = NEW
        rig.topics.started_over(tp, OLD)
    rig.subscription.partitions[A].handed_records = True
    assert [rig.topics.is_before(tp) for tp in (A, B)] == [False, True]
    assert [rig.topics.of(tp) for tp in (A, B)] == [NEW, OLD]


# -- from one end to the other -----------------------------------------------------------------------------------------------------------


shared = embedded(brokers=1, config={"group_consumer_heartbeat_interval_ms": 50})
older = embedded(brokers=1, config={"group_consumer_heartbeat_interval_ms": 50}, emulate="4.0")  # commits go by name


PROTOCOLS = {
    "eager": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 50},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 50},
    "consumer": {"group_protocol": "consumer"},
}
SUBSCRIBE: dict[str, Callable[[Any, str], object]] = {
    "names": lambda consumer, prefix: consumer.subscribe([f"{prefix}-a", f"{prefix}-b"]),
    "pattern": lambda consumer, prefix: consumer.subscribe(pattern=f"{prefix}-.*"),
    "broker's pattern": lambda consumer, prefix: consumer.subscribe(pattern=SubscriptionPattern(f"{prefix}-.*")),
}


class World:
    """Topics named PREFIX-a and PREFIX-b, and a member that reads them."""

    def __init__(self, cluster: EmbeddedCluster, prefix: str) -> None:
        self.cluster, self.prefix, self.group = cluster, prefix, f"g-{prefix}"
        self.a, self.b = TopicPartition(f"{prefix}-a", 0), TopicPartition(f"{prefix}-b", 0)
        self.got: dict[str, list[bytes]] = {"a": [], "b": []}
        for tp in (self.a, self.b):
            cluster.create_topic(tp.topic)

    def settings(self, protocol: str, **settings: Any) -> dict[str, Any]:
        first = {"bootstrap_servers": self.cluster.bootstrap_servers, "group_id": self.group, "auto_offset_reset": "earliest"}
        return {**first, "auto_commit_interval_ms": 600_000, "metadata_max_age_ms": 100, **PROTOCOLS[protocol], **settings}

    def write(self, name: str, *values: bytes) -> None:
        fill(self.cluster.bootstrap_servers, f"{self.prefix}-{name}", values)

    def delete(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.delete_topics([self.a.topic]).check()

    def create(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(self.a.topic, 1, 1)]).check()

    def committed(self) -> dict[TopicPartition, int]:
        with KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            return {tp: found.offset for tp, found in admin.list_group_offsets(self.group).items()}

    def until(self, consumer: Any, done: Callable[[], object]) -> None:
        def look() -> object:
            for tp, records in consumer.poll(0.01).items():
                self.got[tp.topic[-1]] += [record.value for record in records]
            return done()

        done() or until(look, "what the consumer comes to", every_s=0)


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Callable[[EmbeddedCluster], World]:
    return lambda cluster: World(cluster, f"t{abs(hash(request.node.nodeid)) % 10**9}")


CASES = [
    *(("4.3", protocol, how) for protocol, how in zip(PROTOCOLS, ("names", "pattern", "broker's pattern"), strict=True)),
    ("4.0", "cooperative", "names"),
    ("4.0", "consumer", "pattern"),
]


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize(("release", "protocol", "how"), CASES)
def test_a_deleted_topic_holds_nothing_up_and_is_read_from_its_start(request, made, release: str, protocol: str, how: str) -> None:
    """What was read last of the old topic is not committed when it goes."""
    world = made(request.getfixturevalue("shared" if release == "4.3" else "older"))
    commits: list[Any] = []
    with KafkaConsumer(**world.settings(protocol, allow_auto_create_topics=False)) as consumer:
        SUBSCRIBE[how](consumer, world.prefix)
        world.until(consumer, lambda: consumer.assignment() == {world.a, world.b})
        world.write("a", b"old0", b"old1")
        world.until(consumer, lambda: world.got["a"] == [b"old0", b"old1"])
        consumer.poll(0)  # they are processed
        world.cluster.control("OffsetCommit", commits.append)
        world.delete()
        world.write("b", b"beside")
        world.until(consumer, lambda: world.got["b"] == [b"beside"])
        if how != "names":
            world.until(consumer, lambda: consumer.assignment() == {world.b})
        world.create()
        world.write("a", b"new0", b"new1", b"new2")
        world.until(consumer, lambda: len(world.got["a"]) == 5)
        assert world.got["a"] == [b"old0", b"old1", b"new0", b"new1", b"new2"]
        assert len(commits) <= 4, "each of two rebalances commits, and asks once more at most"
        world.cluster.control("OffsetCommit", None)
        consumer.poll(0)
        consumer.commit()
    assert world.committed() == {world.a: 3, world.b: 1}


@pytest.mark.usefixtures("client_face")
def test_offsets_of_the_old_topic_do_not_count_for_the_new_one(made, shared) -> None:
    """The application keeps one, and commits it after another poll. What is processed of the new topic is committed at an offset that
    was committed before."""
    world = made(shared)
    with KafkaConsumer(**world.settings("eager")) as consumer:
        consumer.assign([world.a])
        world.write("a", b"old0", b"old1")
        world.until(consumer, lambda: len(world.got["a"]) == 2)
        consumer.commit()
        world.delete()
        world.create()
        world.until(consumer, lambda: consumer.position(world.a) == 0)
        with pytest.raises(errors.UnknownTopicOrPartition, match="created again"):
            consumer.commit({world.a: 2})
        assert world.committed().get(world.a, 0) == 0
        world.write("a", b"new0", b"new1")
        world.until(consumer, lambda: len(world.got["a"]) == 4)
        consumer.poll(0)
    assert world.committed()[world.a] == 2


@pytest.mark.usefixtures("client_face")
def test_a_committed_position_is_of_the_topic_that_it_was_committed_for(made, shared) -> None:
    """A member that has not fetched yet: the partition is paused as it comes."""
    world = made(shared)
    world.write("a", b"old0", b"old1", b"old2")
    with KafkaConsumer(**world.settings("eager", enable_auto_commit=False)) as consumer:
        consumer.assign([world.a])
        consumer.commit({world.a: 2})
        consumer.pause(world.a)
        assert consumer.position(world.a) == 2
        world.delete()
        world.create()
        world.write("a", b"new0", b"new1", b"new2")
        world.until(consumer, lambda: consumer.position(world.a) != 2)
        consumer.resume(world.a)
        world.until(consumer, lambda: len(world.got["a"]) == 3)
        assert world.got["a"] == [b"new0", b"new1", b"new2"]


def test_a_commit_in_a_loop_over_records_of_the_old_topic_commits_nothing_for_the_new_one(made, shared, caplog) -> None:
    """The loop has records in hand when the background thread sees the new topic."""
    world = made(shared)
    caplog.set_level(logging.WARNING, logger="kafkacore.consumer")
    world.write("a", *[b"old%d" % i for i in range(10)])
    values: list[bytes] = []
    with KafkaConsumer(**world.settings("eager", enable_auto_commit=False)) as consumer:
        SUBSCRIBE["names"](consumer, world.prefix)
        for record in consumer:
            values.append(record.value)
            if record.value == b"old3":
                world.delete()
                world.create()
                world.write("a", *[b"new%d" % i for i in range(10)])
                until(lambda: "created again" in caplog.text)
                consumer.commit()
                with pytest.raises(errors.UnknownTopicOrPartition, match="created again"):
                    consumer.commit({world.a: record.offset + 1})
                assert world.committed().get(world.a, 0) == 0
            if record.value == b"new8":
                consumer.commit({world.a: record.offset + 1})
                assert world.committed()[world.a] == 9
            if record.value == b"new9":
                consumer.commit()
                break
    assert [value for value in values if value.startswith(b"new")] == [b"new%d" % i for i in range(10)]
    assert world.committed()[world.a] == 10
