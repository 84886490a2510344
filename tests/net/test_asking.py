"""Questions that any broker can answer: metadata beside what is kept, committed offsets, and who the controllers are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import errors, protocol
from kafkacore import protocol as p
from kafkacore.config import AdminConfig
from kafkacore.errors import Code
from kafkacore.metadata import PartitionInfo
from kafkacore.net import controllers
from kafkacore.net.asking import MetadataQuery
from kafkacore.net.committed import committed_offset, offsets_to_fetch, topics_to_commit
from kafkacore.net.driver import CallerDriver
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.rows import each_row
from tests.net.net_support import Cluster, Peer

IDS = [b"a" * 16, b"b" * 16]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.metadata.request_update()
    made.poll(10)
    made.auto = False
    yield made
    made.close()


def query_of(cluster: Cluster, ids: list[bytes] | None = None) -> MetadataQuery:
    return MetadataQuery(cluster.client, ids, retry_backoff_ms=100, retry_backoff_max_ms=300)


def question(cluster: Cluster, query: MetadataQuery) -> tuple[Peer, protocol.RequestHeader, Any]:
    """The next question, and who gets it."""
    for _ in range(30):
        query.step(cluster.now_ms)
        cluster.poll()
        for peer in cluster.peers:
            for header, request in peer.read():
                if header.request_api_key == p.ApiVersionsRequest.API_KEY:
                    peer.answer(header, cluster.api_versions())
                elif header.request_api_version and request.topics == []:  # the client's own
                    peer.answer(header, cluster.metadata_response([]))
                else:
                    return peer, header, request
    raise AssertionError("no broker is asked")


def take_in(cluster: Cluster, peer: Peer, header: protocol.RequestHeader, **answer: Any) -> None:
    peer.answer(header, p.MetadataResponse(**answer))
    cluster.client.poll(0, cluster.now_ms)


@each_row("newest", [0, 3, 4, 12])
def test_all_topics_are_asked_for_and_none_is_created(newest: int) -> None:
    cluster = Cluster()
    cluster.ranges[p.MetadataRequest.API_KEY] = (0, newest)
    cluster.metadata.request_update()
    cluster.poll(10)
    cluster.auto = False
    _, header, request = question(cluster, query_of(cluster))
    assert header.request_api_version == newest and request.topics == (None if newest else [])
    assert request.allow_auto_topic_creation == (newest < 4)
    cluster.close()


def test_topics_are_asked_for_by_their_ids(cluster: Cluster) -> None:
    query = query_of(cluster, IDS)
    assert query.next_wake_ms(cluster.now_ms) == 100
    peer, header, request = question(cluster, query)
    assert [(topic.topic_id, topic.name) for topic in request.topics] == [(each, None) for each in IDS]
    assert not request.allow_auto_topic_creation and query.next_wake_ms(cluster.now_ms) is None and not query.done
    query.step(cluster.now_ms)
    cluster.poll()
    assert peer.read() == []  # one question at a time
    take_in(cluster, peer, header)
    assert query.done and query.next_wake_ms(cluster.now_ms) is None
    query.step(cluster.now_ms)
    cluster.poll()
    assert peer.read() == []


def test_failed_tries_back_off(cluster: Cluster) -> None:
    query, waits = query_of(cluster), []
    for number in range(4):
        peer, header, _ = question(cluster, query)
        if number == 1:
            peer.close()
            cluster.client.poll(0, cluster.now_ms)
            assert isinstance(query.last_error, errors.DisconnectError)
        else:
            take_in(cluster, peer, header, error_code=Code.REBOOTSTRAP_REQUIRED)
            assert isinstance(query.last_error, errors.KafkaError) and query.last_error.broker == 1
            assert (query.last_error.api or "").startswith("Metadata v")
        assert query.next_wake_ms(cluster.now_ms) == 0  # the next step starts the back-off
        query.step(cluster.now_ms)
        waits.append(query.next_wake_ms(cluster.now_ms))
        cluster.clock.advance(waits[-1] - 1)
        query.step(cluster.now_ms)
        assert query.next_wake_ms(cluster.now_ms) == 1
        cluster.clock.advance(1)
    assert waits == [100, 200, 300, 300] and not query.done
    cluster.ranges[p.MetadataRequest.API_KEY] = (0, 11)
    cluster.client.disconnect(1)
    old = query_of(cluster, IDS)
    for _ in range(30):
        old.step(cluster.now_ms)
        cluster.clock.advance(100)
        cluster.serve()
        cluster.poll()
    assert isinstance(old.error, errors.UnsupportedVersion) and old.done and old.response is None


class Answering(CallerDriver):
    """A driver that has the answer, or has not got one in time."""

    def __init__(self, query: MetadataQuery, answer: Any) -> None:
        self.query, self.answer = query, answer

    def run(self, step: Any, done: Any, timeout_ms: int | None) -> bool:
        if isinstance(self.answer, errors.KafkaError):
            self.query.error = self.answer
        else:
            self.query.response = self.answer
        step(0)
        return bool(done()) and timeout_ms == 7

    def attempts(self) -> list[errors.KafkaError]:
        return [errors.NetworkError("refused")]


def test_partitions_come_in_the_order_of_their_numbers_and_topics_by_name(cluster: Cluster) -> None:
    def part(index: int, **more: Any) -> Any:
        return p.MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=4, replica_nodes=[1, 2], isr_nodes=[2], **{"offline_replicas": [1], **more}
        )

    named = {"b": [part(1), part(0, offline_replicas=None)], "a": [], "": [part(0)]}
    topics = [p.MetadataResponseTopic(name=name, partitions=parts) for name, parts in named.items()]
    topics.append(p.MetadataResponseTopic(name="refused", error_code=Code.TOPIC_AUTHORIZATION_FAILED, partitions=[part(0)]))
    query, answer = query_of(cluster), p.MetadataResponse(topics=topics)
    found = query.topics(Answering(query, answer), 7)
    assert list(found) == ["a", "b"] and found["a"] == []
    assert found["b"] == [PartitionInfo(0, 1, 4, [1, 2], [2], ()), PartitionInfo(1, 1, 4, [1, 2], [2], [1])]
    for late, causes in ((answer, ["refused", "lost"]), (None, ["refused", "lost"]), (None, ["refused"])):
        query = query_of(cluster)
        if "lost" in causes:
            query.last_error = errors.DisconnectError("lost")
        with pytest.raises(errors.KafkaTimeoutError) as raised:
            query.topics(Answering(query, late), 7 if late is None else 8)
        assert [each.message for each in raised.value.attempts] == causes and raised.value.api == "Metadata"
    with pytest.raises(errors.UnsupportedVersion):
        query.topics(Answering(query, errors.UnsupportedVersion("too old")), 7)


def test_offsets_go_out_by_topic_and_come_back() -> None:
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5, 3, "m"), TopicPartition("u", 1): OffsetAndMetadata(0)}
    offsets[TopicPartition("t", 2)] = OffsetAndMetadata(6, 0)
    topics = topics_to_commit(offsets, p.OffsetCommitRequestTopic, p.OffsetCommitRequestPartition)
    assert [
        (each.name, [(q.partition_index, q.committed_offset, q.committed_leader_epoch, q.committed_metadata) for q in each.partitions])
        for each in topics
    ] == [("t", [(0, 5, 3, "m"), (2, 6, 0, "")]), ("u", [(1, 0, -1, "")])]
    for offset, epoch, text, found in (
        (-1, 3, "", None),
        (0, 0, "m", OffsetAndMetadata(0, 0, "m")),
        (7, -1, None, OffsetAndMetadata(7, None, "")),
    ):
        answer = p.OffsetFetchResponsePartition(committed_offset=offset, committed_leader_epoch=epoch, metadata=text)
        assert committed_offset(answer) == found


@each_row("topics", [None, {"t": [0, 2], "u": [1]}], ids=["all", "two"])
def test_the_question_for_offsets_fits_its_version(topics: dict[str, list[int]] | None) -> None:
    old = offsets_to_fetch(7, "g", topics, True)
    (group,) = (new := offsets_to_fetch(8, "g", topics, True, "m", 4, {"t": IDS[0]})).groups
    assert old.require_stable and new.require_stable and not offsets_to_fetch(8, "g", None, False).require_stable
    assert (old.group_id, group.group_id, group.member_id, group.member_epoch, old.groups) == ("g", "g", "m", 4, [])
    for asked in (old, group):
        assert topics == (None if asked.topics is None else {each.name: each.partition_indexes for each in asked.topics})
    assert topics is None or [each.topic_id for each in group.topics] == [IDS[0], bytes(16)]
    assert offsets_to_fetch(8, "g", None, False).groups[0].member_epoch == -1


def test_controllers_are_asked_in_a_version_that_knows_them() -> None:
    assert controllers.question(1).endpoint_type == 2
    with pytest.raises(errors.UnsupportedVersion) as raised:
        controllers.question(0)
    assert raised.value.api == "DescribeCluster"
    for ranges, asks, said in (({}, True, "no; clients can ask"), ({62: (0, 1)}, False, "is that of a controller"), ({}, False, "no")):
        error = errors.UnsupportedVersion("no")
        controllers.explain(error, ranges, asks)
        assert said in error.message and (error.message == "no") == (said == "no")


@each_row(
    "answer, kind, text",
    [
        ({"error_code": Code.MISMATCHED_ENDPOINT_TYPE}, "fatal", "bootstrap_controllers names"),
        ({"error_code": Code.UNSUPPORTED_ENDPOINT_TYPE, "error_message": "no"}, "fatal", "no; bootstrap_controllers names"),
        ({"error_code": Code.CLUSTER_AUTHORIZATION_FAILED, "error_message": "not you"}, "fatal", "not you"),
        ({"endpoint_type": 1}, "", "not about controllers"),
        ({"brokers": []}, "", "names no controllers"),
    ],
    ids=["brokers", "none", "refused", "other", "empty"],
)
def test_an_answer_that_names_no_controllers_is_a_failure(answer: dict[str, Any], kind: str, text: str) -> None:
    cluster = Cluster()
    metadata = controllers.ControllersMetadata(AdminConfig.from_user({"bootstrap_controllers": "c:1"}), cluster.clock)
    metadata.bootstrap([("c", 1)])
    nodes = [p.DescribeClusterBroker(broker_id=id, host=f"h{id}", port=id, rack="r") for id in (5, 6)]
    whole = {"endpoint_type": 2, "cluster_id": "x", "controller_id": 6, "brokers": nodes}
    metadata.update(p.DescribeClusterResponse(**{**whole, **answer}), cluster.now_ms)
    (cause,) = metadata.attempts
    assert text in cause.message and (metadata.fatal_error is not None) == (kind == "fatal") and cause.api == "DescribeCluster"
    if not kind:
        metadata.update(p.DescribeClusterResponse(**whole), cluster.now_ms)
        snapshot = metadata.snapshot
        assert [(node.id, node.host, node.port, node.rack) for node in snapshot.node_list] == [(5, "h5", 5, "r"), (6, "h6", 6, "r")]
        assert snapshot.controller is not None and snapshot.controller.id == 6 and snapshot.cluster_id == "x"
    cluster.close()
