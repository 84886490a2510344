"""Calls beside reading: topics and partitions of the cluster, and seeks that name a leader epoch."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.consumer import KafkaConsumer
from kafkacore.metadata import PartitionInfo
from kafkacore.net.asking import MetadataQuery
from kafkacore.producer import KafkaProducer
from kafkacore.protocol import MetadataRequest, MetadataResponse, OffsetForLeaderEpochRequest
from kafkacore.testing import Disconnect, EmbeddedCluster
from kafkacore.types import Node, OffsetAndMetadata, TopicPartition
from tests.kit.inside import driver_of, metadata_of

pytestmark = pytest.mark.usefixtures("client_face")

A = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2)
        cluster.create_topic("u", partitions=1)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("t", [b"%d" % i for i in range(10)], partitions=[0] * 10)
        yield cluster


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[KafkaConsumer]:
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "allow_auto_create_topics": False}
    with KafkaConsumer(**settings, auto_offset_reset="earliest") as consumer:
        yield consumer


def test_topics_and_partitions_with_leaders_and_replicas(cluster, consumer):
    found = consumer.list_topics()
    assert list(found) == ["t", "u"]
    assert {name: [p.index for p in partitions] for name, partitions in found.items()} == {"t": [0, 1], "u": [0]}
    for partition in found["t"]:
        assert partition.leader == cluster.leader("t", partition.index)
        assert sorted(partition.replicas) == sorted(partition.isr) == [1, 2]
        assert partition.leader_epoch >= 0
        assert not partition.offline
    assert consumer.partition_infos("t") == found["t"]
    assert isinstance(found["t"][0], PartitionInfo)
    assert consumer.partitions_for("t") == [0, 1]
    assert metadata_of(consumer).topics == ["t"], "what is only listed is not kept up to date"
    cluster.create_topic("new", partitions=1)
    assert list(consumer.list_topics()) == ["new", "t", "u"]
    with pytest.raises(errors.UnknownTopicOrPartition):
        consumer.partition_infos("nowhere", timeout=10)


def test_the_list_is_asked_for_until_a_broker_answers(cluster, consumer):
    answers = [Disconnect, MetadataResponse(error_code=errors.Code.REQUEST_TIMED_OUT)]

    def control(request):
        return answers.pop() if answers and request.topics is None else None

    cluster.control("Metadata", control)
    assert list(consumer.list_topics()) == ["t", "u"]
    assert not answers
    cluster.control("Metadata", lambda request: Disconnect if request.topics is None else None)
    with pytest.raises(errors.KafkaTimeoutError, match="no broker answered in time"):
        consumer.list_topics(timeout=0.3)
    cluster.control("Metadata", None)


def test_a_query_by_id_needs_a_broker_that_knows_ids():
    versions = {**API_VERSIONS, MetadataRequest.API_KEY: (0, 11)}
    with EmbeddedCluster(api_versions=versions) as old, KafkaConsumer(bootstrap_servers=old.bootstrap_servers) as consumer:
        assert consumer.list_topics() == {}
        query = MetadataQuery(driver_of(consumer).client, [bytes(16)], retry_backoff_ms=1, retry_backoff_max_ms=1)
        with pytest.raises(errors.UnsupportedVersion):
            query.topics(driver_of(consumer), 10_000)


def test_a_seek_with_a_leader_epoch_is_validated(cluster, consumer):
    asked: list[OffsetForLeaderEpochRequest] = []
    cluster.control("OffsetForLeaderEpoch", lambda request: asked.append(request))
    consumer.assign([A])
    epoch = consumer.partition_infos("t")[0].leader_epoch
    consumer.seek(A, OffsetAndMetadata(4, epoch, "a note"))
    assert consumer.position(A) == 4
    assert [p.leader_epoch for r in asked for t in r.topics for p in t.partitions] == [epoch]
    assert next(iter(consumer.poll(10)[A])).offset == 4
    del asked[:]
    consumer.seek(A, OffsetAndMetadata(5))
    assert consumer.position(A) == 5
    consumer.seek(A, 6)
    assert consumer.poll(10)[A][0].offset == 6
    assert not asked, "without an epoch there is nothing to compare"
    with pytest.raises(errors.UsageError, match="an offset is a number"):
        consumer.seek(A, None)


class OneBroker:
    """A network of one broker that is always ready."""

    def __init__(self) -> None:
        self.flying: list[Any] = []

    def least_loaded_node(self, now_ms: int) -> Node:
        return Node(1, "broker", 9092)

    def ready(self, node: Node, now_ms: int) -> bool:
        return True

    is_ready = ready

    def new_client_request(self, node_id: int, api: type, build: Any, now_ms: int, *, callback: Any, min_version: int | None) -> Any:
        return callback

    def send(self, request: Any, now_ms: int) -> None:
        self.flying.append(request)


def test_a_query_that_failed_waits_for_its_back_off():
    client = OneBroker()
    query = MetadataQuery(client, None, retry_backoff_ms=100, retry_backoff_max_ms=300)  # type: ignore[arg-type]
    now_ms, waits = 0, []
    for _ in range(4):
        query.step(now_ms)
        assert query.next_wake_ms(now_ms) is None, "an answer is awaited"
        query.step(now_ms)
        (callback,) = client.flying
        client.flying.clear()
        callback(SimpleNamespace(error=errors.DisconnectError("gone"), response=None))
        assert query.next_wake_ms(now_ms) == 0
        query.step(now_ms)
        assert not client.flying
        waits.append(query.next_wake_ms(now_ms))
        now_ms += waits[-1]
    assert waits == [100, 200, 300, 300]
    query.step(now_ms)
    client.flying.pop()(SimpleNamespace(error=None, response=MetadataResponse()))
    assert query.done
    assert query.next_wake_ms(now_ms) is None
