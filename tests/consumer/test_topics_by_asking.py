"""Who asks about a topic does not create it: only a subscription or an assignment may, and only with allow_auto_create_topics=True."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, errors
from kafkacore.compat import aiokafka as compat_aiokafka
from kafkacore.compat import kafka as compat_kafka
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.waiting import until

SOON = 0.2
GUARD = 20.0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.create_topic("flights", partitions=2)
        yield started


@pytest.fixture(params=[{}, {"allow_auto_create_topics": False}, {"allow_auto_create_topics": True}], ids=["default", "false", "true"])
def consumer(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[KafkaConsumer]:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5, **request.param) as made:
        yield made


def topics(cluster: EmbeddedCluster) -> list[str]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return sorted(admin.list_topics())


ASKING: dict[str, Callable[[KafkaConsumer, str], Any]] = {
    "partitions_for": lambda c, name: c.partitions_for(name, timeout=SOON),
    "partition_infos": lambda c, name: c.partition_infos(name, timeout=SOON),
    "end_offsets": lambda c, name: c.end_offsets([(name, 0)], timeout=SOON),
    "beginning_offsets": lambda c, name: c.beginning_offsets([(name, 0)], timeout=SOON),
    "offsets_for_times": lambda c, name: c.offsets_for_times({(name, 0): 0}, timeout=SOON),
    "read_range": lambda c, name: list(c.read_range((name, 0), 0, 1, timeout=SOON)),
    "read": lambda c, name: list(c.read(name, timeout=SOON)),
}


@each_row("call", sorted(ASKING))
def test_asking_creates_nothing_whatever_the_setting(cluster: EmbeddedCluster, consumer: KafkaConsumer, call: str) -> None:
    with pytest.raises((errors.KafkaTimeoutError, errors.UnknownTopicOrPartition), match="flightss"):
        ASKING[call](consumer, "flightss")
    assert topics(cluster) == ["flights"]


def test_asking_beside_a_subscription_that_may_create(cluster: EmbeddedCluster) -> None:
    """The subscription's topic and the topics of questions share requests: those with a topic of a question create nothing."""
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5, allow_auto_create_topics=True) as consumer:
        for wanted in ("wanted", "fl.*"):
            with pytest.raises((errors.KafkaTimeoutError, errors.UnknownTopicOrPartition)):
                consumer.partitions_for("question", timeout=SOON)
            consumer.subscribe([wanted]) if wanted == "wanted" else consumer.subscribe(pattern=wanted)
            while not consumer.assignment():
                consumer.poll(1)
            for call in sorted(ASKING):
                if not call.startswith("read"):
                    with pytest.raises((errors.KafkaTimeoutError, errors.UnknownTopicOrPartition)):
                        ASKING[call](consumer, f"question-{call}")
            consumer.poll(SOON)
            consumer.unsubscribe()
        assert topics(cluster) == ["flights", "wanted"]
        with pytest.raises(errors.UnknownTopicOrPartition):
            consumer.partitions_for("later")
        consumer.assign([("later", 0)])
        assert consumer.position(("later", 0), timeout=GUARD) == 0
    assert topics(cluster) == ["flights", "later", "wanted"]


@pytest.mark.parametrize("by", ["subscribe", "assign"])
@pytest.mark.parametrize("setting", [None, False, True])
def test_a_subscription_creates_topics_only_when_it_is_asked_to(
    cluster: EmbeddedCluster, by: str, setting: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    given = {} if setting is None else {"allow_auto_create_topics": setting}
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5, **given) as consumer:
        consumer.assign([("nosuchtopic", 0)]) if by == "assign" else consumer.subscribe(["nosuchtopic"])
        with caplog.at_level(logging.WARNING):
            consumer.poll(0.05)
            until(lambda: setting or "nosuchtopic" in caplog.text, "the warning", consumer)
        if setting:
            assert consumer.partitions_for("nosuchtopic", timeout=GUARD) == [0]
            assert topics(cluster) == ["flights", "nosuchtopic"]
            return
        assert topics(cluster) == ["flights"]
        assert not consumer.health().ok and "nosuchtopic does not exist" in str(consumer.health().problems)
        assert caplog.text.count("topic nosuchtopic does not exist") == 1

        cluster.create_topic("nosuchtopic")  # created later: it is read
        cluster.produce("nosuchtopic", ["late"])
        consumer.seek_to_beginning() if consumer.assignment() else None
        if by == "subscribe":
            while not consumer.assignment():
                consumer.poll(0.05)
            consumer.seek_to_beginning()
        found: list[Any] = []
        while not found:
            found = [record.value for records in consumer.poll(1).values() for record in records]
        assert found == [b"late"] and consumer.health().ok


def test_a_topic_that_is_deleted_stays_deleted(cluster: EmbeddedCluster) -> None:
    """A reader of it asks for it again and again; with True, as by Java's default, it is created again."""
    for allowed, looks, left in ((False, 10, []), (True, 1_000, ["gone"])):
        cluster.create_topic("gone")
        cluster.produce("gone", ["x"])
        settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 50, "retry_backoff_ms": 5}
        with KafkaConsumer("gone", bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=allowed, **settings) as consumer:
            while not consumer.poll(1):
                pass
            with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
                before = admin.describe_topics(["gone"])["gone"].topic_id
                admin.delete_topics(["gone"]).check()
                for _ in range(looks):
                    consumer.poll(0.05)
                    now = admin.describe_topics(["gone"]).get("gone") if "gone" in admin.list_topics() else None
                    if allowed and now is not None and now.topic_id != before:
                        break
        assert [name for name in topics(cluster) if name == "gone"] == left


def test_administration_creates_nothing_by_asking(cluster: EmbeddedCluster) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert isinstance(admin.describe_topics(["flightss"]).errors["flightss"], errors.UnknownTopicOrPartition)
        with pytest.raises(errors.KafkaError):
            admin.list_offsets({("flightss", 0): -1}, timeout=SOON).check()
        with pytest.raises(errors.KafkaError):
            admin.delete_records({("flightss", 0): 1}, timeout=SOON).check()
    assert topics(cluster) == ["flights"]
    with pytest.raises(errors.ConfigError, match="allow_auto_create_topics"):
        KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, allow_auto_create_topics=True)


def test_members_of_a_group_create_their_own_topics_only(cluster: EmbeddedCluster) -> None:
    """The leader of a classic group asks for the topics of all members; it does not create those of a member that must not."""
    common = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "retry_backoff_ms": 5, "heartbeat_interval_ms": 50}
    with (
        KafkaConsumer("flights", allow_auto_create_topics=True, **common) as leader,
        KafkaConsumer("flights", "nosuchtopic", **common) as other,
    ):
        while not (leader.assignment() and other.assignment()):
            leader.poll(0.05)
            other.poll(0.05)
        assert topics(cluster) == ["flights"]


@each_row("call", ["end_offsets", "beginning_offsets", "offsets_for_times"])
def test_offsets_of_a_misspelled_topic_are_an_error_before_the_timeout(cluster: EmbeddedCluster, call: str, monkeypatch: Any) -> None:
    """The cluster may not know a new topic everywhere, so it is asked for some seconds; here for less."""
    monkeypatch.setattr("kafkacore.net.leaders._ABSENT_MS", 50)
    with (
        KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5) as consumer,
        pytest.raises(errors.UnknownTopicOrPartition, match="flightss"),
    ):
        getattr(consumer, call)({("flightss", 0): 0} if call == "offsets_for_times" else [("flightss", 0)])


def test_brokers_that_cannot_be_asked_without_creating() -> None:
    """Before Kafka 0.11 a broker's own setting decides. Only who rules it out cannot speak to such a broker."""
    with EmbeddedCluster(emulate="0.10") as old:
        old.create_topic("t")
        common = {"bootstrap_servers": old.bootstrap_servers, "broker_version": "0.10", "retry_backoff_ms": 5}
        for allowed in ({}, {"allow_auto_create_topics": True}):
            with KafkaConsumer(**common, **allowed) as consumer:
                assert consumer.end_offsets([("t", 0)], timeout=GUARD) == {("t", 0): 0}
        with (
            KafkaConsumer(**common, allow_auto_create_topics=False) as consumer,
            pytest.raises(errors.UnsupportedVersion, match="Metadata: broker has 0 to 2, this request needs 4"),
        ):
            consumer.end_offsets([("t", 0)], timeout=SOON)


def test_faces_of_other_clients_create_as_these_do(cluster: EmbeddedCluster) -> None:
    """kafka-python and aiokafka create what they subscribe to; what librdkafka does is in test_confluent_behaviour.py."""
    kafka_python = compat_kafka.KafkaConsumer("by-kafka-python", bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5)
    while not kafka_python.assignment():
        kafka_python.poll(timeout_ms=50)
    kafka_python.close()

    async def subscribe() -> None:
        consumer = compat_aiokafka.AIOKafkaConsumer("by-aiokafka", bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5)
        await asyncio.wait_for(consumer.start(), GUARD)
        await consumer.stop()

    asyncio.run(subscribe())
    assert topics(cluster) == ["by-aiokafka", "by-kafka-python", "flights"]


def test_a_partition_that_a_topic_does_not_have_is_named(cluster: EmbeddedCluster) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.end_offsets([("flights", 0)], timeout=GUARD)  # so the topic is known, however short the next wait is
        with pytest.raises(errors.KafkaTimeoutError) as late:
            consumer.end_offsets([("flights", 99)], timeout=SOON)
    assert any(isinstance(each, errors.UnknownTopicOrPartition) and each.partition == 99 for each in late.value.attempts)
