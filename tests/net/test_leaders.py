"""Questions for the leaders of many partitions at once: what becomes of one is not what becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import errors, protocol
from kafkacore.errors import Code
from kafkacore.net.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetQuery
from kafkacore.types import TopicPartition
from tests.kit.inside import is_wanted
from tests.kit.rows import each_row
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
    cause = query.last_errors[TopicPartition("v", 0)]
    assert isinstance(cause, errors.LeaderNotAvailable) and (cause.topic, cause.partition) == ("v", 0)


class Driver:
    """Polls of 100 ms, as long as there is time and nothing is done."""

    def __init__(self, cluster: Cluster, served: Any = lambda: None) -> None:
        self.cluster, self.served = cluster, served

    def run(self, step: Any, is_done: Any, timeout_ms: int) -> bool:
        for _ in range(timeout_ms // 100):
            step(self.cluster.now_ms)
            self.cluster.poll()
            self.served()
            if is_done():
                return True
            self.cluster.clock.advance(100)
        return False

    def attempts(self) -> list[Any]:
        return [errors.NetworkError("refused")]


def test_a_question_names_the_partitions_without_an_answer_in_time(cluster: Cluster) -> None:
    cluster.topics = {"u": [2] * 6}
    query = query_of(cluster, "u")
    query.last_errors[TopicPartition("u", 3)] = errors.LeaderNotAvailable("no leader")
    with pytest.raises(errors.KafkaTimeoutError, match=r"no offset in time for 6 partition\(s\): (u-\d, ){4}u-\d \[") as caught:
        query.run(Driver(cluster), 1_000)  # type: ignore[arg-type]
    assert caught.value.topic == "u" and caught.value.partition in range(6)
    assert [each.message for each in caught.value.attempts] == ["no leader", "refused"]
    assert query.cancelled and query.done and query.unanswered() == []


def asked_by(cluster: Cluster, node: int) -> Any:
    """The newest ListOffsets that a broker got."""
    requests = cluster.peer(f"broker-{node}").requests
    return next(each for each in reversed(requests) if each[0].request_api_key == protocol.ListOffsetsRequest.API_KEY)


@pytest.mark.parametrize("code", [0, Code.TOPIC_AUTHORIZATION_FAILED])
def test_a_question_ends_with_its_answers_or_the_first_refusal(cluster: Cluster, code: int) -> None:
    query = query_of(cluster, "u")
    assert not query.topics_may_fail

    def served() -> None:
        try:
            header = asked_by(cluster, 2)[0]
        except StopIteration:
            return
        answer_offsets(cluster, 2, header, {"u-0": -code or 4, "u-1": 0} if code == 0 else {"u-0": -code})

    if code:
        with pytest.raises(errors.TopicAuthorization):
            query.run(Driver(cluster, served), 10_000)  # type: ignore[arg-type]
        assert query.cancelled
    else:
        found = query.run(Driver(cluster, served), 10_000)  # type: ignore[arg-type]
        assert {tp.partition: (each.offset, each.timestamp_ms, each.leader_epoch) for tp, each in found.items()} == {
            0: (4, -1, -1),
            1: (0, -1, -1),
        }
        assert not query.cancelled
    assert query.topics_may_fail
    stopped = query_of(cluster, "t")
    with pytest.raises(KeyboardInterrupt):
        stopped.run(Driver(cluster, lambda: (_ for _ in ()).throw(KeyboardInterrupt())), 100)  # type: ignore[arg-type]
    assert stopped.cancelled


@pytest.mark.parametrize("newest", [1, 2, 3, 4, 9, 10])
def test_a_question_fits_the_version_of_its_broker(newest: int) -> None:
    cluster = Cluster((1,))
    cluster.ranges[protocol.ListOffsetsRequest.API_KEY] = (0, newest)
    cluster.topics = {"t": [1, 1]}
    cluster.metadata.add_topic("t", cluster.now_ms)
    cluster.poll(10)
    wanted = {TopicPartition("t", 0): LATEST_TIMESTAMP, TopicPartition("t", 1): EARLIEST_TIMESTAMP}
    query = OffsetQuery(cluster.client, cluster.metadata, wanted, isolation_level=1, retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    for _ in range(10):
        query.step(cluster.now_ms)
        cluster.poll()
    header, request = asked_by(cluster, 1)
    assert header.request_api_version == newest and request.replica_id == -1
    assert request.isolation_level == (1 if newest >= 2 else 0) and request.timeout_ms == (30_000 if newest >= 10 else 0)
    assert [(each.partition_index, each.timestamp) for each in request.topics[0].partitions] == [(0, -1), (1, -2)]
    assert {each.current_leader_epoch for each in request.topics[0].partitions} == ({0} if newest >= 4 else {-1})
    cluster.close()


def test_a_broker_that_loses_the_question_is_asked_again_and_one_that_does_not_know_it_is_not(cluster: Cluster) -> None:
    query = query_of(cluster, "u")
    next_question(cluster, query, 2)
    cluster.peer("broker-2").close()
    cluster.poll()
    assert names_of(query.last_errors) == ["u-0", "u-1"] == names_of(query.unanswered()) and not query.failed
    assert query.next_wake_ms(cluster.now_ms) == 0
    query.step(cluster.now_ms)
    cluster.clock.advance(5_000)
    header, again = next_question(cluster, query, 2)
    assert again == ["u-0", "u-1"]
    wrong = {TopicPartition("u", 0): -2, TopicPartition("u", 1): -1}
    parts = [protocol.ListOffsetsPartitionResponse(partition_index=tp.partition, offset=offset) for tp, offset in wrong.items()]
    response = protocol.ListOffsetsResponse(topics=[protocol.ListOffsetsTopicResponse(name="u", partitions=parts)])
    cluster.peer("broker-2").answer(header, response)
    cluster.poll()
    assert names_of(query.unanswered()) == ["u-0", "u-1"] and not query.results  # each log has an end
    assert "names offset -2" in query.last_errors[TopicPartition("u", 0)].message
    assert (query.last_errors[TopicPartition("u", 1)].broker, query.last_errors[TopicPartition("u", 1)].partition) == (2, 1)
    query.cancel()
    times = dict.fromkeys(wrong, 7)
    query = OffsetQuery(cluster.client, cluster.metadata, times, isolation_level=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    header, _ = next_question(cluster, query, 2)
    cluster.peer("broker-2").answer(header, response)
    cluster.poll()
    assert names_of(query.results) == ["u-1"] and query.results[TopicPartition("u", 1)].offset == -1  # no record is that young
    query.cancel()
    cluster.ranges[protocol.ListOffsetsRequest.API_KEY] = (0, 0)
    cluster.client.disconnect(2)
    cluster.clock.advance(5_000)
    query = query_of(cluster, "u")
    for _ in range(20):
        query.step(cluster.now_ms)
        cluster.poll()
    assert names_of(query.failed) == ["u-0", "u-1"] and query.done


def test_a_partition_is_asked_again_so_often_and_no_more(cluster: Cluster) -> None:
    query = query_of(cluster, "u")
    limited = OffsetQuery(
        cluster.client,
        cluster.metadata,
        {TopicPartition("u", 0): -1},
        isolation_level=0,
        retry_backoff_ms=1,
        retry_backoff_max_ms=4,
        retries=2,
    )
    query.cancel()
    for tries in range(3):
        assert not limited.failed, tries
        header, _ = next_question(cluster, limited, 2)
        answer_offsets(cluster, 2, header, {"u-0": -Code.OFFSET_NOT_AVAILABLE})
        limited.step(cluster.now_ms)
        cluster.clock.advance(4)
    assert names_of(limited.failed) == ["u-0"] and limited.done
    dropped = query_of(cluster, "u")
    header, _ = next_question(cluster, dropped, 2)
    answer_offsets(cluster, 2, header, dict.fromkeys(["u-0", "u-1"], -Code.OFFSET_NOT_AVAILABLE))
    dropped.drop([TopicPartition("u", 0)])
    dropped.step(cluster.now_ms)
    assert dropped.next_wake_ms(cluster.now_ms) == 100 and names_of(dropped.unanswered()) == ["u-1"]
    dropped.drop([TopicPartition("u", 1)])
    assert dropped.next_wake_ms(cluster.now_ms) is None and dropped.done
    both = query_of(cluster, "t", "u")
    for node in (1, 2):
        cluster.client.disconnect(node)
    both.step(cluster.now_ms)
    assert names_of(both.unanswered()) == ["t-0", "t-1", "t-2", "t-3", "u-0", "u-1"]
    both.drop(both.unanswered())
    assert both.done and both.next_wake_ms(cluster.now_ms) is None


@each_row("code, refreshed, again", [(6, True, True), (74, True, True), (75, False, True), (29, False, False)])
def test_a_leader_that_is_none_any_more_is_looked_for(code: int, refreshed: bool, again: bool) -> None:
    cluster = Cluster((2,))
    cluster.topics = {"u": [2]}
    query = query_of(cluster, "u")
    header, _ = next_question(cluster, query, 2)
    cluster.clock.advance(5_000)
    answer_offsets(cluster, 2, header, {"u-0": -code})
    assert is_wanted(cluster.metadata) is refreshed
    assert names_of(query.last_errors if again else query.failed) == ["u-0"] and query.done != again
    cluster.close()


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
