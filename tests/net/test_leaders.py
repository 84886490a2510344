"""Questions for the leaders of many partitions at once: what becomes of one is not what becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import errors, protocol
from kafkacore.errors import Code
from kafkacore.net.leaders import LATEST_TIMESTAMP, OffsetQuery
from kafkacore.types import TopicPartition
from tests.net.net_support import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster((1, 2))
    made.topics = {"t": [1, 1, 1, 1], "u": [2, 2]}
    yield made
    made.close()


def query_of(cluster: Cluster, *topics: str) -> OffsetQuery:
    """A question about all partitions of topics, which the client knows."""
    for name in topics:
        cluster.metadata.add_topic(name, cluster.now_ms)
    cluster.poll(10)
    wanted = {TopicPartition(name, index): LATEST_TIMESTAMP for name in topics for index in range(len(cluster.topics[name]))}
    return OffsetQuery(cluster.client, cluster.metadata, wanted, isolation_level=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000)


def next_question(cluster: Cluster, query: OffsetQuery, node: int) -> tuple[Any, list[str]]:
    """What comes to a broker next, with its header: partitions as `t-0`."""
    for _ in range(20):
        query.step(cluster.now_ms)
        cluster.poll()
        peers = [peer for peer in cluster.peers if peer.address.host == f"broker-{node}" and peer.open]
        for peer in peers:
            for at, (header, request) in enumerate(peer.requests):
                if header.request_api_key == protocol.ListOffsetsRequest.API_KEY:
                    del peer.requests[: at + 1]
                    return header, [f"{topic.name}-{part.partition_index}" for topic in request.topics for part in topic.partitions]
    raise AssertionError(f"nothing comes to broker {node}")


def answer_offsets(cluster: Cluster, node: int, header: Any, found: dict[str, int]) -> None:
    """Offsets of partitions, or errors where negative."""
    parts: dict[str, list[Any]] = {}
    for name, result in found.items():
        topic, _, index = name.partition("-")
        offset, code = (result, 0) if result >= 0 else (-1, -result)
        part = protocol.ListOffsetsPartitionResponse(partition_index=int(index), error_code=code, offset=offset, timestamp=-1)
        parts.setdefault(topic, []).append(part)
    topics = [protocol.ListOffsetsTopicResponse(name=name, partitions=each) for name, each in parts.items()]
    cluster.peer(f"broker-{node}").answer(header, protocol.ListOffsetsResponse(topics=topics))
    cluster.client.poll(0, cluster.now_ms)


def names_of(partitions: Any) -> list[str]:
    return sorted(f"{tp.topic}-{tp.partition}" for tp in partitions)


def test_of_many_partitions_each_has_its_own_end(cluster: Cluster) -> None:
    query = query_of(cluster, "t", "u")
    header, first = next_question(cluster, query, 1)
    assert first == ["t-0", "t-1", "t-2", "t-3"]
    busy = -Code.OFFSET_NOT_AVAILABLE
    answer_offsets(cluster, 1, header, {"t-0": 7, "t-1": busy, "t-2": busy, "t-3": -Code.TOPIC_AUTHORIZATION_FAILED})
    assert names_of(query.results) == ["t-0"] and names_of(query.failed) == ["t-3"]
    assert names_of(query.last_errors) == ["t-1", "t-2"]
    header, second = next_question(cluster, query, 2)
    assert second == ["u-0", "u-1"]
    answer_offsets(cluster, 2, header, {"u-0": 3})  # which leaves the other one out
    assert names_of(query.unanswered()) == ["t-1", "t-2", "u-1"]
    query.step(cluster.now_ms)
    assert query.next_wake_ms(cluster.now_ms) == 100
    cluster.clock.advance(100)
    header, again = next_question(cluster, query, 1)
    assert again == ["t-1", "t-2"]
    answer_offsets(cluster, 1, header, {"t-1": 8, "t-2": busy})
    header, again = next_question(cluster, query, 2)
    assert again == ["u-1"]
    answer_offsets(cluster, 2, header, {"u-1": -Code.TOPIC_AUTHORIZATION_FAILED})
    query.step(cluster.now_ms)
    assert query.next_wake_ms(cluster.now_ms) == 200  # its second failure, whatever becomes of the others
    cluster.clock.advance(200)
    header, again = next_question(cluster, query, 1)
    answer_offsets(cluster, 1, header, {"t-2": 9})
    assert query.done
    assert {f"{tp.topic}-{tp.partition}": each.offset for tp, each in query.results.items()} == {"t-0": 7, "t-1": 8, "t-2": 9, "u-0": 3}
    assert names_of(query.failed) == ["t-3", "u-1"] and not query.last_errors.keys() & query.results.keys()
    assert query.asked_epochs == dict.fromkeys([*query.results, *query.failed], 0)


def test_a_broker_that_is_lost_holds_up_its_own_partitions_alone(cluster: Cluster) -> None:
    cluster.topics = {"t": [1, 1], "u": [2, 2], "w": [2, 1]}
    query = query_of(cluster, "t", "u", "w")
    query.drop([TopicPartition("w", 0)])
    cluster.refuse.add("broker-2")
    header, first = next_question(cluster, query, 1)
    assert first == ["t-0", "t-1", "w-1"]
    assert names_of(query.unanswered()) == ["t-0", "t-1", "u-0", "u-1", "w-1"]
    answer_offsets(cluster, 1, header, dict.fromkeys(first, 1))
    assert names_of(query.unanswered()) == ["u-0", "u-1"]
    query.drop([TopicPartition("u", 1)])
    cluster.refuse.clear()
    cluster.clock.advance(1_000)
    header, late = next_question(cluster, query, 2)
    assert late == ["u-0"]
    answer_offsets(cluster, 2, header, {"u-0": 2})
    assert query.done and len(query.results) == 4


def test_a_partition_that_has_a_leader_is_asked_for_while_another_waits_for_one(cluster: Cluster) -> None:
    cluster.topics = {"t": [1, 1], "v": [-1, -1, -1]}
    query = query_of(cluster, "t", "v")
    header, first = next_question(cluster, query, 1)
    assert first == ["t-0", "t-1"]
    answer_offsets(cluster, 1, header, {"t-0": 1, "t-1": 1})
    assert names_of(query.last_errors) == ["v-0", "v-1", "v-2"]
    query.drop([TopicPartition("v", 2)])
    cluster.topics["v"] = [-1, 1, 1]
    cluster.clock.advance(1_000)
    header, then = next_question(cluster, query, 1)
    assert then == ["v-1"]
    answer_offsets(cluster, 1, header, {"v-1": 4})
    assert names_of(query.unanswered()) == ["v-0"] and not query.done
    assert isinstance(query.last_errors[TopicPartition("v", 0)], errors.LeaderNotAvailable)


def test_a_question_names_the_partitions_without_an_answer_in_time(cluster: Cluster) -> None:
    class Driver:
        def run(self, step: Any, is_done: Any, timeout_ms: int) -> bool:
            for _ in range(timeout_ms // 100):
                step(cluster.now_ms)
                cluster.poll()
                cluster.clock.advance(100)
            return bool(is_done())

        def attempts(self) -> list[Any]:
            return []

    query = query_of(cluster, "u")
    with pytest.raises(errors.KafkaTimeoutError, match=r"no offset in time for 2 partition\(s\): (u-0, u-1|u-1, u-0)") as caught:
        query.run(Driver(), 1_000)  # type: ignore[arg-type]
    assert (caught.value.topic, caught.value.partition) in [("u", 0), ("u", 1)]
    assert query.cancelled and query.done


def test_topics_that_the_cluster_does_not_describe_fail_each_in_its_time(cluster: Cluster) -> None:
    """One that is refused at once, others 5 s after they were not known first."""
    wanted = {TopicPartition(name, 0): LATEST_TIMESTAMP for name in ("denied", "absent", "late")}
    cluster.poll(10)
    query = OffsetQuery(cluster.client, cluster.metadata, wanted, isolation_level=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    query.topics_may_fail = True
    query.step(cluster.now_ms)

    def described(after_ms: int, **codes: int) -> list[str]:
        cluster.clock.advance(after_ms)
        cluster.metadata.begin_request(cluster.now_ms)
        topics = [protocol.MetadataResponseTopic(name=name, error_code=code) for name, code in codes.items()]
        cluster.metadata.update(cluster.metadata_response([])._replace(topics=topics), cluster.now_ms)
        query.step(cluster.now_ms)
        return names_of(query.failed)

    assert described(0, denied=29, absent=3) == ["denied-0"]
    assert described(3_000, absent=3, late=3) == ["denied-0"]
    assert described(1_999, absent=3, late=3) == ["denied-0"]
    assert described(1, absent=3, late=3) == ["absent-0", "denied-0"]
    assert names_of(query.unanswered()) == ["late-0"]
    assert described(2_999, late=3) == ["absent-0", "denied-0"]
    assert described(1, late=3) == ["absent-0", "denied-0", "late-0"]
    assert query.done
