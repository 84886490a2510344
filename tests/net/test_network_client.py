"""NetworkClient over scripted transports and a clock moved by hand."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import protocol
from kafkacore.errors import (
    CorruptDataError,
    DisconnectError,
    IllegalStateError,
    KafkaError,
    NetworkError,
    RequestTimedOut,
    UnsupportedVersion,
)
from kafkacore.metadata import NEVER_MS
from kafkacore.net.background import resolve
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.connection import NodeConnection, doubled_ms
from kafkacore.net.transport import Address, SocketTransports, Transport
from kafkacore.net.waits import Pieces
from kafkacore.types import Node
from tests.kit.rows import each_row
from tests.net.net_support import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


# ---- opening


def test_ready_connects_asks_versions_and_then_is_ready(cluster: Cluster) -> None:
    cluster.auto = False
    node = cluster.node()
    client = cluster.client
    assert not client.ready(node, cluster.now_ms)
    assert not client.connection_failed(node)
    cluster.poll()
    ((header, request),) = cluster.peer().read()
    assert header.request_api_key == 18
    assert header.request_api_version == protocol.ApiVersionsRequest.MAX_VERSION
    assert header.client_id == cluster.config.client_id
    assert request.client_software_name == "kafkacore"
    cluster.peer().answer(header, cluster.api_versions())
    cluster.auto = True
    cluster.until_ready()
    assert client.api_version(1, 0) == protocol.ProduceRequest.MAX_VERSION
    assert client.api_version(1, 999) is None
    assert client.has_ready_nodes(cluster.now_ms)


def test_kip_511_fallback(cluster: Cluster) -> None:
    """An old broker answers an unknown ApiVersions version in v0 with error 35 and the range it knows."""
    cluster.auto = False
    cluster.client.ready(cluster.node(), cluster.now_ms)
    cluster.poll()
    peer = cluster.peer()
    ((header, _),) = peer.read()
    only = protocol.ApiVersionsResponse(error_code=35, api_keys=[protocol.ApiVersion(api_key=18, min_version=0, max_version=2)])
    peer.answer(header, only, version=0)
    cluster.poll()
    ((header, _),) = peer.read()
    assert header.request_api_version == 2
    cluster.ranges = {0: (0, 9), 18: (0, 2), 3: (0, 4)}
    peer.answer(header, cluster.api_versions())
    cluster.auto = True
    cluster.until_ready()
    assert cluster.client.api_version(1, 0) == 9


@pytest.mark.parametrize("claimed", [None, 4, 100])
def test_kip_511_never_asks_in_the_same_version_again(cluster: Cluster, claimed: int | None) -> None:
    cluster.auto = False
    cluster.client.ready(cluster.node(), cluster.now_ms)
    versions = []
    for _ in range(20):
        cluster.poll()
        for header, _request in cluster.peer().read():
            versions.append(header.request_api_version)
            keys = [] if claimed is None else [protocol.ApiVersion(api_key=18, min_version=0, max_version=claimed)]
            cluster.peer().answer(header, protocol.ApiVersionsResponse(error_code=35, api_keys=keys), version=0)
    assert versions == ([4, 0] if claimed is None else [4, 3, 2, 1, 0])
    assert cluster.client.connection_failed(cluster.node())  # v0 refused too: nothing is left to try
    assert "UNSUPPORTED_VERSION" in str(cluster.client.connection_errors(cluster.node())[-1]) or isinstance(
        cluster.client.connection_errors(cluster.node())[-1], UnsupportedVersion
    )


@pytest.mark.parametrize("wrong", [(4, 3), (4, -238), (-1, 9)])
def test_versions_that_are_none_end_the_connection(cluster: Cluster, wrong: tuple[int, int]) -> None:
    """Else every request of that API failed for as long as the connection stands."""
    right = cluster.ranges[0]
    cluster.ranges[0] = wrong
    for _ in range(10):
        assert not cluster.client.ready(cluster.node(), cluster.now_ms)
        cluster.poll()
    error = cluster.client.connection_errors(cluster.node())[-1]
    assert isinstance(error, CorruptDataError)
    assert (error.broker, (error.api or "").split(" ")[0]) == (1, "ApiVersions")
    cluster.ranges[0] = right
    cluster.clock.advance(10_000)
    cluster.until_ready()


def test_the_version_is_the_highest_common_one(cluster: Cluster) -> None:
    cluster.ranges[0] = (3, 9)
    cluster.until_ready()
    versions: list[int] = []

    def build(version: int) -> Any:
        versions.append(version)
        return protocol.ProduceRequest()

    for highest in (None, 7):
        cluster.client.send(
            cluster.client.new_client_request(1, protocol.ProduceRequest, build, cluster.now_ms, max_version=highest), cluster.now_ms
        )
    assert versions == [9, 7]


def test_of_a_node_that_was_never_connected_to_nothing_is_known(cluster: Cluster) -> None:
    client, node, now_ms = cluster.client, Node(99, "h", 1), cluster.now_ms
    assert (client.connection_delay(node, now_ms), client.poll_delay_ms(node, now_ms), client.throttle_delay_ms(node, now_ms)) == (0, 0, 0)
    assert not client.connection_failed(node) and client.authentication_exception(node) is None
    assert client.connection_errors(node) == () and client.api_versions(99) is None and client.api_version(99, 0) is None
    cluster.metadata.bootstrap([])
    with pytest.raises(IllegalStateError):
        client.least_loaded_node(now_ms)


@each_row("offered, found", [((0, 99), 13), ((13, 14), 13), ((14, 15), None), ((0, 3), 3), ((0, 2), None), ((5, 5), 5)])
def test_a_version_of_an_api_is_one_that_both_sides_serve(offered: tuple[int, int], found: int | None) -> None:
    assert (protocol.ProduceRequest.OLDEST_SERVED, protocol.ProduceRequest.MAX_VERSION) == (3, 13)
    cluster = Cluster()
    cluster.ranges[0] = offered
    cluster.until_ready()
    assert cluster.client.api_version(1, 0) == found
    cluster.close()


def test_features_are_those_of_the_broker_with_the_newest_view() -> None:
    cluster, seen = Cluster((1, 2, 3, 4, 5)), []
    for id, (epoch, level) in enumerate([(-1, 1), (5, 2), (4, 9), (5, 3), (6, 4)], 1):
        features = [protocol.FinalizedFeatureKey(name="f", max_version_level=level, min_version_level=0)]
        answer = cluster.api_versions()._replace(finalized_features=features, finalized_features_epoch=epoch)
        cluster.api_versions = lambda answer=answer: answer  # type: ignore[method-assign, misc]
        cluster.until_ready(id)
        seen.append(cluster.client.finalized_features["f"])
        del cluster.api_versions
    assert seen == [1, 2, 2, 3, 4]
    cluster.close()


def test_a_broker_before_0_10_is_not_asked_for_its_versions() -> None:
    cluster = Cluster()
    cluster.client = NetworkClient(cluster.selector, cluster.metadata, cluster.config, resolver=cluster.resolve, broker_version="0.9")
    cluster.until_ready()
    cluster.poll(3)
    versions = cluster.client.api_versions(1)
    assert versions is not None and versions.broker == 1 and versions.ranges[3] == (0, 0)
    assert {(header.request_api_key, header.request_api_version) for peer in cluster.peers for header, _ in peer.requests} == {(3, 0)}
    cluster.close()


# ---- requests and responses


def test_a_request_is_answered_and_its_callback_runs(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.poll(3)  # the metadata of the bootstrap arrives
    seen: list[ClientResponse] = []
    request = cluster.send(seen=seen)
    assert cluster.client.in_flight_request_count(1) == 1 == cluster.client.in_flight_request_count()
    cluster.serve()
    header, body = cluster.peer().requests[-1]
    assert (header.request_api_key, header.correlation_id, body.acks) == (0, request.correlation_id, -1)
    cluster.clock.advance(7)
    cluster.peer().answer(header, protocol.ProduceResponse())
    (response,) = cluster.poll()
    assert seen == [response]
    assert response.request is request
    assert isinstance(response.response, protocol.ProduceResponse)
    assert (response.latency_ms, response.error, response.disconnected, response.timed_out) == (7, None, False, False)
    assert not cluster.client.has_in_flight_requests(1)


def test_acks_0_completes_when_the_frame_is_written_whatever_is_answered_beside_it(cluster: Cluster) -> None:
    cluster.until_ready()
    answered, seen = cluster.send(), []
    silent = [cluster.send(acks=0, seen=seen) for _ in range(2)]
    behind = cluster.send()
    assert [one.request for one in cluster.poll(timeout_ms=60_000)] == silent
    assert [one.response for one in seen] == [None, None]
    for header, body in cluster.peer().requests + cluster.peer().read():
        if header.request_api_key == 0 and body.acks:
            cluster.peer().answer(header, protocol.ProduceResponse())
    assert [one.request for one in cluster.poll(3)] == [answered, behind]
    assert not cluster.client.has_in_flight_requests()


def test_in_flight_requests_are_bounded(cluster: Cluster) -> None:
    node = cluster.until_ready()
    for _ in range(5):
        assert cluster.client.is_ready(node, cluster.now_ms)
        cluster.send()
    assert not cluster.client.is_ready(node, cluster.now_ms)
    with pytest.raises(IllegalStateError, match="not ready"):
        cluster.send()


def test_a_wrong_correlation_id_fails_the_connection(cluster: Cluster) -> None:
    node = cluster.until_ready()
    request = cluster.send()
    other = cluster.send()
    cluster.serve()
    cluster.peer().answer(cluster.peer().requests[-2][0], protocol.ProduceResponse(), correlation_id=request.correlation_id + 1)
    responses = cluster.poll()
    assert [one.request for one in responses] == [request, other]
    for one in responses:
        assert one.disconnected
        assert isinstance(one.error, CorruptDataError)
    text = str(responses[0].error)
    assert f"correlation id {request.correlation_id + 1} does not match {request.correlation_id}" in text
    assert "ProduceRequest" in text
    assert cluster.client.connection_failed(node)


def test_an_answer_to_nothing_fails_the_connection(cluster: Cluster) -> None:
    node = cluster.until_ready()
    cluster.poll(3)
    cluster.peer().transport.write([b"\0\0\0\4\0\0\0\1"], 0)
    cluster.poll()
    assert cluster.client.connection_failed(node)
    assert "answer no request" in str(cluster.client.connection_errors(node)[-1])


WRONG: dict[str, tuple[Callable[[bytes], bytes | None], type[KafkaError], str, bool]] = {
    # what comes in place of a frame, what it is reported as, its text, and whether time has to pass first
    "half a frame": (lambda frame: frame[: len(frame) // 2], RequestTimedOut, "in time", True),
    "a size that never comes": (lambda frame: b"\x7f\xff\xff\xff" + bytes(100), RequestTimedOut, "in time", True),
    "another protocol": (lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n", RequestTimedOut, "in time", True),
    "a negative size": (lambda frame: b"\xff\xff\xff\xff" + frame[4:], CorruptDataError, "size", False),
    "an empty frame": (lambda frame: bytes(4), CorruptDataError, "", False),
    "garbage": (lambda frame: frame[:8] + b"\xff" * (len(frame) - 8), CorruptDataError, "", False),
    "an end": (lambda frame: None, DisconnectError, "", False),
    "half a frame and an end": (lambda frame: frame[:-1], DisconnectError, "in the middle of a frame", False),
}


@each_row("api_key", [0, 18])
@each_row("what", WRONG)
def test_a_response_that_does_not_decode_fails_the_connection(what: str, api_key: int) -> None:
    """Neither does any other wrong answer; the next connection works."""
    spoil, kind, says, late = WRONG[what]
    cluster = Cluster(**{"request.timeout.ms": 5_000})
    node = cluster.node()
    if api_key == 0:
        cluster.until_ready()
        cluster.poll(3)
        cluster.send()
    cluster.auto = False
    if api_key == 18:
        cluster.metadata.next_update_ms = NEVER_MS
        cluster.client.ready(node, cluster.now_ms)
        cluster.poll()
    peer = cluster.peer()
    ((header, _),) = peer.read()
    response = cluster.api_versions() if api_key == 18 else protocol.ProduceResponse()
    frame = b"".join(map(bytes, protocol.encode_response(response, header.request_api_version, header.correlation_id)))
    if (wrong := spoil(frame)) is not None:
        peer.transport.write([wrong], 0)
    if kind is DisconnectError:
        peer.close()
    responses = cluster.poll(2)
    if late:
        assert not responses and not cluster.client.connection_failed(node)
        cluster.clock.advance(5_000)
        responses = cluster.poll()
    assert cluster.client.connection_failed(node)
    assert says in str(cluster.client.connection_errors(node)[-1])
    if api_key == 0:
        (answer,) = responses
        assert (answer.disconnected, answer.timed_out) == (True, late)
        assert isinstance(answer.error, kind) and says in str(answer.error) and answer.error.broker == 1
    cluster.auto = True
    cluster.clock.advance(2_000)
    cluster.until_ready()
    cluster.close()


def test_a_disconnect_answers_every_request_in_order(cluster: Cluster) -> None:
    node = cluster.until_ready()
    seen: list[ClientResponse] = []
    requests = [cluster.send(seen=seen) for _ in range(3)]
    cluster.serve()
    cluster.clock.advance(7)
    cluster.peer().close()
    cluster.poll()
    assert [one.request for one in seen] == requests and {one.latency_ms for one in seen} == {7}
    assert all(one.disconnected and isinstance(one.error, DisconnectError) and not one.timed_out for one in seen)
    assert cluster.client.connection_failed(node)
    assert not cluster.client.has_in_flight_requests()


def test_a_late_request_closes_the_connection(cluster: Cluster) -> None:
    cluster.until_ready()
    early = cluster.send(timeout_ms=5_000)
    late = cluster.send(timeout_ms=60_000)
    cluster.clock.advance(4_999)
    assert cluster.poll() == []
    cluster.clock.advance(1)
    responses = cluster.poll()
    assert [one.request for one in responses] == [early, late]
    assert all(one.timed_out and one.disconnected and isinstance(one.error, RequestTimedOut) for one in responses)
    assert cluster.peer().transport.read_into(bytearray(1 << 16), 0, 1 << 16) >= 0
    assert "broker-1:9001" in str(responses[0].error)


def test_late_requests_of_two_nodes_close_both_connections_and_no_other() -> None:
    cluster = Cluster((1, 2, 3))
    for node_id in (1, 2, 3):
        cluster.until_ready(node_id)
    late = [cluster.send(node_id, timeout_ms=5_000) for node_id in (1, 2)]
    cluster.send(3, timeout_ms=5_001)
    cluster.clock.advance(5_000)
    assert {one.request for one in cluster.client.poll(0, cluster.now_ms)} == set(late)
    assert [cluster.client.is_ready(cluster.node(node_id), cluster.now_ms) for node_id in (1, 2, 3)] == [False, False, True]
    cluster.close()


def test_each_attempt_to_connect_has_its_own_deadline() -> None:
    cluster = Cluster((1, 2))
    cluster.connected = False
    cluster.metadata.next_update_ms = NEVER_MS
    longer, shorter = cluster.node(1), cluster.node(2)

    def begins(node: Node) -> int:
        assert not cluster.client.ready(node, cluster.now_ms)
        return cluster.now_ms + cluster.client.connection_delay(node, cluster.now_ms)

    cluster.clock.advance(begins(longer) - cluster.now_ms)
    cluster.client.poll(0, cluster.now_ms)
    cluster.clock.advance(1_000)  # the second attempt may take twice as long
    ends_ms, sooner_ms = begins(longer), begins(shorter)
    assert sooner_ms < ends_ms
    for at_ms, failed in ((sooner_ms, [False, True]), (ends_ms, [True, True])):
        cluster.metadata.next_update_ms = NEVER_MS
        cluster.client.poll(1 << 40, cluster.now_ms)
        assert cluster.poller.waits[-1] == at_ms - cluster.now_ms
        cluster.clock.advance(at_ms - cluster.now_ms)
        cluster.client.poll(0, cluster.now_ms)
        assert [cluster.client.connection_failed(node) for node in (longer, shorter)] == failed
    cluster.close()


def test_a_poll_waits_no_longer_than_the_next_deadline(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.poll(3)
    cluster.send(timeout_ms=5_000)
    cluster.clock.advance(1_000)
    cluster.poll(timeout_ms=60_000)
    assert cluster.poller.waits[-1] == 4_000


def test_a_shorter_throttle_time_does_not_end_a_longer_one(cluster: Cluster) -> None:
    node = cluster.until_ready()
    for _ in range(2):
        cluster.send()
    cluster.serve()
    for (header, *_), throttle_ms in zip(cluster.peer().requests[-2:], (700, 100), strict=True):
        cluster.peer().answer(header, protocol.ProduceResponse(throttle_time_ms=throttle_ms))
    for _ in range(2):
        assert len(cluster.poll()) == 1
        assert cluster.client.throttle_delay_ms(node, cluster.now_ms) == 700


@each_row(("newest", "told_ms", "ms"), [(13, 700, 700), (13, 2**31 - 1, 300_000), (13, -1, 0), (5, 700, 0)])
def test_throttled_nodes_are_left_alone_for_a_while(newest: int, told_ms: int, ms: int) -> None:
    """Kafka's quotas hold for windows of seconds; who names 24 days would keep the client from a broker that is well again. Old versions do
    not ask the client to wait."""
    cluster = Cluster()
    cluster.ranges[0] = (0, newest)
    node = cluster.until_ready()
    first, second = cluster.send(timeout_ms=1_000), cluster.send(timeout_ms=1_000)
    cluster.serve()
    cluster.peer().answer(cluster.peer().requests[-2][0], protocol.ProduceResponse(throttle_time_ms=told_ms))
    assert [one.request for one in cluster.poll()] == [first]
    assert cluster.client.is_ready(node, cluster.now_ms) == (ms == 0)
    assert cluster.client.poll_delay_ms(node, cluster.now_ms) == (ms or NEVER_MS)
    assert cluster.client.throttle_delay_ms(node, cluster.now_ms) == ms
    assert second.deadline_ms == first.deadline_ms + ms  # the throttle time is added to its time-out
    cluster.client.disconnect(-1)
    assert cluster.client.has_ready_nodes(cluster.now_ms) == (ms == 0)
    cluster.clock.advance(ms)
    assert cluster.client.has_ready_nodes(cluster.now_ms) and cluster.client.poll_delay_ms(node, cluster.now_ms) == NEVER_MS
    cluster.clock.advance(999)
    assert cluster.poll() == []
    assert cluster.client.is_ready(node, cluster.now_ms)
    cluster.close()


CLIENTS_WAIT_FROM = {
    "Produce": 6, "Fetch": 8, "ListOffsets": 3, "Metadata": 6, "OffsetCommit": 4, "OffsetFetch": 4, "FindCoordinator": 2, "JoinGroup": 3,
    "Heartbeat": 2, "LeaveGroup": 2, "SyncGroup": 2, "DescribeGroups": 2, "ListGroups": 2, "ApiVersions": 2, "CreateTopics": 3,
    "DeleteTopics": 2, "DeleteRecords": 1, "InitProducerId": 1, "AddPartitionsToTxn": 1, "AddOffsetsToTxn": 1, "EndTxn": 1,
    "TxnOffsetCommit": 1, "DescribeAcls": 1, "CreateAcls": 1, "DeleteAcls": 1, "DescribeConfigs": 2, "AlterConfigs": 1,
    "AlterReplicaLogDirs": 1, "DescribeLogDirs": 1, "CreatePartitions": 1, "CreateDelegationToken": 1, "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1, "DescribeDelegationToken": 1, "DeleteGroups": 1,
}  # fmt: skip
"""KIP-219: `shouldClientThrottle` of Kafka's answers. All versions of APIs that are younger."""


def test_from_which_version_on_a_client_waits_by_itself(cluster: Cluster) -> None:
    cluster.until_ready()
    waits, apis = {}, {api.name: api for api in protocol.APIS.values()}
    for name, first in CLIENTS_WAIT_FROM.items():
        api = apis[name]
        for version in (first - 1, first):
            node = cluster.until_ready()
            request = cluster.client.new_client_request(
                1, api.request, lambda _, api=api: api.request(), cluster.now_ms, min_version=version, max_version=version
            )
            cluster.client.send(request, cluster.now_ms)
            ((header, _),) = cluster.peer().read()
            cluster.peer().answer(header, api.response(throttle_time_ms=700))
            cluster.client.poll(0, cluster.now_ms)
            waits[name, version] = cluster.client.throttle_delay_ms(node, cluster.now_ms) == 700
            cluster.clock.advance(700)
    assert waits == {(name, first + least): least == 0 for name, first in CLIENTS_WAIT_FROM.items() for least in (-1, 0)}


def test_callbacks_all_run_when_one_raises(cluster: Cluster) -> None:
    cluster.until_ready()
    seen: list[ClientResponse] = []

    def broken(_response: ClientResponse) -> None:
        raise ValueError("a callback with a bug")

    for callback in (broken, seen.append, broken):
        cluster.client.send(
            cluster.client.new_client_request(
                1, protocol.ProduceRequest, lambda _: protocol.ProduceRequest(), cluster.now_ms, callback=callback
            ),
            cluster.now_ms,
        )
    cluster.serve()
    cluster.peer().close()
    with pytest.raises(ValueError, match="with a bug") as caught:
        cluster.poll()
    assert len(seen) == 1
    assert "another callback" in caught.value.__notes__[0]


# ---- order


class Ordered(NetworkClient):
    """Notes the order of the steps of a poll."""

    order: list[str]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_handle_") or name in ("_complete", "_maybe_update"):
            object.__getattribute__(self, "order").append(name)
        return object.__getattribute__(self, name)


def test_the_steps_of_a_poll_come_in_kafkas_order() -> None:
    """Everything happens in one poll: a send completes, a response arrives, one node goes, one comes, an attempt and a request time out."""
    Ordered.order = []
    cluster = Cluster((1, 2, 3, 4, 5))
    cluster.client = Ordered(cluster.selector, cluster.metadata, cluster.config, resolver=cluster.resolve)
    for id in (1, 2, 3):
        cluster.until_ready(id)
    seen: list[int] = []
    for id, acks, timeout_ms in ((1, 0, None), (2, -1, None), (3, -1, 10)):
        request = cluster.client.new_client_request(
            id,
            protocol.ProduceRequest,
            lambda _version, acks=acks: protocol.ProduceRequest(acks=acks),
            cluster.now_ms,
            expect_response=acks != 0,
            timeout_ms=timeout_ms,
            callback=lambda response: seen.append(response.request.node_id),
        )
        cluster.client.send(request, cluster.now_ms)
    cluster.serve()
    cluster.peer("broker-2").answer(cluster.peer("broker-2").requests[-1][0], protocol.ProduceResponse())
    cluster.connected = False
    assert not cluster.client.ready(cluster.node(4), cluster.now_ms)  # its set-up will time out
    cluster.clock.advance(60_000)
    assert not cluster.client.ready(cluster.node(5), cluster.now_ms)
    cluster.peer("broker-5").transport.accept()
    cluster.peer("boot").close()
    cluster.metadata.next_update_ms = cluster.now_ms  # due, but there is nobody to ask
    cluster.client.least_loaded_node = lambda _now_ms: None
    cluster.client._any_ready = True
    Ordered.order.clear()
    cluster.client.poll(0, cluster.now_ms)
    assert Ordered.order == [
        "_maybe_update",
        "_handle_completed_sends",
        "_handle_completed_receives",
        "_handle_disconnections",
        "_handle_connections",
        "_handle_initiate_api_version_requests",
        "_handle_timed_out_connections",
        "_handle_timed_out_requests",
        "_complete",
    ]
    assert seen == [1, 2, 3]
    cluster.close()


# ---- connections


def test_reconnects_back_off_exponentially_with_jitter(cluster: Cluster) -> None:
    node = cluster.node()
    cluster.refuse.add("broker-1")
    delays = []
    for _ in range(8):
        assert not cluster.client.ready(node, cluster.now_ms)
        assert cluster.client.connection_failed(node)
        delay = cluster.client.connection_delay(node, cluster.now_ms)
        delays.append(delay)
        cluster.clock.advance(delay - 1)
        attempts = len(cluster.client.connection_errors(node))
        cluster.client.ready(node, cluster.now_ms)
        assert len(cluster.client.connection_errors(node)) == attempts  # not yet
        cluster.clock.advance(1)
    for delay, nominal in zip(delays, [50, 100, 200, 400, 800, 1000, 1000, 1000], strict=True):
        assert 0.8 * nominal - 1 <= delay <= min(1.2 * nominal, 1000)
    assert len(set(delays[-3:])) > 1 or delays[-1] == 1000
    cluster.refuse.clear()
    cluster.until_ready()
    assert cluster.client.connection_errors(node) == ()
    cluster.client.disconnect(1)
    assert 40 <= cluster.client.connection_delay(node, cluster.now_ms) <= 60  # success resets the back-off


def test_connection_set_up_times_out_and_the_time_grows(cluster: Cluster) -> None:
    cluster.connected = False
    node = cluster.node()
    cluster.metadata.next_update_ms = NEVER_MS
    for nominal in (10_000, 20_000, 30_000, 30_000):
        assert not cluster.client.ready(node, cluster.now_ms)
        limit = cluster.client.connection_delay(node, cluster.now_ms)
        assert 0.8 * nominal <= limit <= min(1.2 * nominal, 30_000)
        cluster.client.poll(1 << 40, cluster.now_ms)
        assert cluster.poller.waits[-1] == limit
        cluster.clock.advance(limit - 1)
        cluster.client.poll(0, cluster.now_ms)
        assert not cluster.client.connection_failed(node)
        cluster.clock.advance(1)
        cluster.client.poll(0, cluster.now_ms)
        assert cluster.client.connection_failed(node)
        assert f"not set up within {limit} ms" in str(cluster.client.connection_errors(node)[-1])
        cluster.clock.advance(1_000)
        cluster.metadata.next_update_ms = NEVER_MS
    cluster.connected = True
    cluster.until_ready()
    cluster.client.disconnect(1)
    cluster.connected = False
    cluster.clock.advance(1_000)
    assert not cluster.client.ready(node, cluster.now_ms)
    assert cluster.client.connection_delay(node, cluster.now_ms) <= 12_000  # success resets it


def test_every_address_of_a_name_is_tried_before_backing_off(cluster: Cluster) -> None:
    cluster.hosts["broker-1"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    cluster.refuse.update(("10.0.0.1", "10.0.0.2"))
    node = cluster.node()
    for expected in (1, 2):
        cluster.client.ready(node, cluster.now_ms)
        assert len(cluster.client.connection_errors(node)) == expected
        assert cluster.client.connection_delay(node, cluster.now_ms) == 0
    cluster.until_ready()
    assert cluster.peer().address.sockaddr == ("10.0.0.3", 9001)


def test_a_moved_broker_is_resolved_again(cluster: Cluster) -> None:
    cluster.until_ready()
    cluster.client.close(1)
    moved = Node(1, "elsewhere", 7)
    cluster.client.ready(moved, cluster.now_ms)
    assert cluster.peers[-1].address.sockaddr == ("elsewhere", 7)


def test_disconnect_answers_requests_in_the_next_poll_and_close_at_once(cluster: Cluster) -> None:
    node = cluster.until_ready()
    request = cluster.send()
    cluster.client.disconnect(1)
    assert cluster.client.connection_failed(node)
    (response,) = cluster.poll(timeout_ms=60_000)
    assert (response.request, response.disconnected) == (request, True)
    cluster.clock.advance(5_000)
    cluster.until_ready()
    seen: list[ClientResponse] = []
    cluster.send(seen=seen)
    cluster.client.initiate_close()
    assert not cluster.client.active()
    with pytest.raises(DisconnectError, match="closing"):
        cluster.send()
    cluster.client.close()
    assert [one.disconnected for one in seen] == [True]
    other = Cluster()
    assert other.client.active()
    other.client.close()
    assert not other.client.active()


# ---- least loaded node


def test_least_loaded_node() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.poll(10)
    assert set(cluster.metadata.snapshot.nodes) == {1, 2, 3}
    assert cluster.client.has_ready_nodes(cluster.now_ms)
    for id in (2, 1):
        cluster.until_ready(id)
    cluster.client.disconnect(-1)
    cluster.client.disconnect(2)
    assert cluster.client.has_ready_nodes(cluster.now_ms)  # not by the first
    cluster.clock.advance(60_000)
    cluster.until_ready(2)
    cluster.send(1)
    cluster.send(1)
    assert cluster.client.least_loaded_node(cluster.now_ms) == cluster.node(2)  # nothing in flight
    for _ in range(3):
        cluster.send(2)
    assert cluster.client.least_loaded_node(cluster.now_ms) == cluster.node(1)  # fewest in flight
    for _ in range(3):
        cluster.send(1)
    for _ in range(2):
        cluster.send(2)
    assert cluster.client.least_loaded_node(cluster.now_ms) == cluster.node(3)  # can be connected
    cluster.connected = False
    cluster.client.ready(cluster.node(3), cluster.now_ms)
    assert cluster.client.least_loaded_node(cluster.now_ms) == cluster.node(3)  # is being connected
    cluster.client.disconnect(3)
    assert cluster.client.least_loaded_node(cluster.now_ms) is None
    cluster.close()


def test_least_loaded_prefers_the_node_tried_longest_ago() -> None:
    cluster = Cluster((1, 2, 3))
    cluster.poll(10)
    cluster.refuse.update(("broker-1", "broker-2", "broker-3"))
    for id in (2, 3, 1):
        cluster.client.ready(cluster.node(id), cluster.now_ms)
        cluster.clock.advance(10)
    cluster.clock.advance(1_000)
    cluster.metadata.next_update_ms = NEVER_MS
    assert cluster.client.least_loaded_node(cluster.now_ms) == cluster.node(2)
    cluster.close()


# ---- metadata inside poll


def test_the_log_names_each_outage_of_each_broker_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster((1, 2))
    cluster.poll(10)

    def warned() -> list[str]:
        caplog.clear()
        for _ in range(5):
            for id in (1, 2):
                cluster.client.ready(cluster.node(id), cluster.now_ms)
            cluster.clock.advance(5_000)
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    cluster.unknown_hosts.add("broker-1")
    cluster.refuse.add("broker-2")
    first, second = warned()
    assert first == "NETWORK_EXCEPTION (13): cannot resolve host 'broker-1': Name or service not known [broker 1]; trying again"
    assert "Connection refused" in second and second.endswith("[broker 2]; trying again")
    assert warned() == []
    cluster.unknown_hosts.clear()
    cluster.hosts["broker-1"] = ["10.0.0.1", "10.0.0.2"]
    cluster.refuse.add("10.0.0.1")  # the next address is there: nothing to tell
    cluster.client.ready(cluster.node(1), cluster.now_ms)
    cluster.until_ready(1)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    cluster.client.disconnect(1)
    cluster.refuse.add("10.0.0.2")
    cluster.clock.advance(5_000)
    (again,) = warned()
    assert again.endswith("[broker 1]; trying again")
    cluster.close()


@pytest.mark.parametrize("answers_versions", [True, False], ids=["SASL is wanted", "TLS is wanted"])
def test_a_listener_that_wants_another_protocol_is_told_once_within_a_second(
    answers_versions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster((7,), auto=False)

    def pass_ms(duration_ms: int) -> None:
        for _ in range(duration_ms // 10):
            cluster.poll(timeout_ms=0)
            for peer in cluster.peers:
                for header, request in peer.read():
                    if answers_versions and isinstance(request, protocol.ApiVersionsRequest):
                        peer.answer(header, cluster.api_versions())
                    else:
                        peer.close()
            cluster.clock.advance(10)

    pass_ms(1_000)
    (reported,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "may want SASL or TLS" in reported and "security_protocol" in reported and reported.endswith("; trying again")
    assert "may want SASL or TLS" in str(cluster.metadata.last_error)
    pass_ms(5_000)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    cluster.close()


def test_a_connection_with_tls_that_ends_early_again_and_again_may_want_a_certificate(cluster: Cluster) -> None:
    """In TLS 1.3 the refusal comes behind the handshake, and a reset may take it away."""
    cluster.ssl_context = object()  # type: ignore[attr-defined]
    cluster.auto = False
    for _ in range(3):
        cluster.client.ready(cluster.node(), cluster.now_ms)
        cluster.poll()
        cluster.peer().close()
        cluster.poll()
        cluster.clock.advance(5_000)
    assert "may want SASL, or refuse the client certificate" in str(cluster.client.connection_errors(cluster.node())[-1])


def test_an_alert_of_tls_says_what_the_listener_wants(cluster: Cluster) -> None:
    cluster.auto = False
    cluster.client.ready(cluster.node(), cluster.now_ms)
    peer = cluster.peer()
    peer.transport.write([bytes.fromhex("15030300020250")], 0)
    cluster.poll()
    peer.close()
    cluster.poll()
    (error,) = cluster.client.connection_errors(cluster.node())
    assert "the peer speaks TLS, and this side of the connection does not: its listener wants TLS" in str(error)
    assert "may want SASL" not in str(error)


@each_row("age_ms, reported", [(2_000, True), (2_001, False)])
def test_two_seconds_after_it_was_opened_a_connection_ends_early(age_ms: int, reported: bool) -> None:
    cluster = Cluster((7,))
    for _ in range(3):
        cluster.until_ready(7)
        cluster.clock.advance(age_ms)
        cluster.send(7)
        cluster.peer("broker-7").close()
        (lost,) = cluster.poll()
        cluster.clock.advance(5_000)
    assert ("may want" in str(lost.error)) == reported
    cluster.close()


def test_what_happens_to_connections_is_reported(cluster: Cluster) -> None:
    seen: list[Any] = []
    cluster.client.on_throttle = lambda *what: seen.append(("throttle", *what))
    cluster.client.on_disconnect = lambda *what: seen.append(("disconnect", *what))
    cluster.client.on_failure = lambda *what: seen.append(("failure", *what))
    node = cluster.until_ready()
    cluster.send()
    cluster.serve()
    cluster.peer().answer(cluster.peer().requests[-1][0], protocol.ProduceResponse(throttle_time_ms=700))
    cluster.poll()
    cluster.peer().close()
    cluster.refuse.add("broker-1")
    cluster.poll()
    cluster.clock.advance(60_000)
    cluster.client.ready(node, cluster.now_ms)
    lost, refused = cluster.client.connection_errors(node)
    assert seen == [("throttle", 1, 700), ("disconnect", 1, lost), ("failure", 1, lost, True), ("failure", 1, refused, False)]


def test_a_name_without_an_address_is_an_attempt_that_failed(cluster: Cluster) -> None:
    cluster.hosts["broker-1"] = []
    cluster.client.ready(cluster.node(), cluster.now_ms)
    (error,) = cluster.client.connection_errors(cluster.node())
    assert "cannot resolve host 'broker-1': the name has no address" in str(error) and error.broker == 1


def test_what_fell_due_is_done_before_a_caller_sends(cluster: Cluster) -> None:
    cluster.connected = False
    cluster.metadata.next_update_ms = NEVER_MS
    assert not cluster.client.ready(cluster.node(), cluster.now_ms)
    cluster.clock.advance(cluster.client.connection_delay(cluster.node(), cluster.now_ms) - 1)
    for failed in (False, True):
        cluster.client.catch_up(cluster.now_ms)
        assert cluster.client.connection_failed(cluster.node()) == failed
        cluster.clock.advance(1)
    assert cluster.poller.waits == [0]


def test_a_refresh_waits_for_the_first_address_that_may_be_tried_again() -> None:
    cluster = Cluster(bootstrap=("a:1", "b:2"), **{"reconnect.backoff.ms": 10_000, "reconnect.backoff.max.ms": 60_000})
    cluster.refuse |= {"a", "b"}
    for _ in range(20):
        cluster.client.poll(0, cluster.now_ms)
        cluster.clock.advance(100)
    delays = [cluster.client.connection_delay(node, cluster.now_ms) for node in cluster.metadata.snapshot.node_list]
    cluster.client.poll(60_000, cluster.now_ms)
    assert len({*delays}) == 2 and cluster.poller.waits[-1] == min(delays)
    cluster.close()


def test_connections_that_end_after_a_while_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster((7,))
    for _ in range(6):
        cluster.until_ready(7)
        cluster.clock.advance(5_000)
        cluster.send(7)
        cluster.peer("broker-7").close()
        (lost,) = cluster.poll()
        assert "may want" not in str(lost.error)
        cluster.clock.advance(5_000)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    cluster.close()


def test_bootstrap_failures_are_told_and_backed_off_until_an_address_answers() -> None:
    cluster = Cluster(bootstrap=("bad:1", "unknown:2"))
    cluster.poller.clock = cluster.clock
    cluster.refuse.add("bad")
    cluster.unknown_hosts.add("unknown")
    start = cluster.now_ms
    polls = 0
    while cluster.now_ms - start < 60_000:
        cluster.poll(timeout_ms=60_000)
        polls += 1
    assert polls < 200  # two addresses, each at most about once a second
    texts = " ".join(str(error) for error in cluster.metadata.attempts)
    assert "Connection refused" in texts
    assert "Name or service not known" in texts
    cluster.poller.clock = None
    cluster.refuse.clear()
    for _ in range(40):
        cluster.poll(timeout_ms=0)
        cluster.clock.advance(50)
    assert list(cluster.metadata.snapshot.nodes) == [1]
    assert cluster.metadata.last_error is None
    cluster.close()


def test_no_node_is_ready_while_a_refresh_is_due(cluster: Cluster) -> None:
    node = cluster.until_ready()
    cluster.poll(3)
    assert cluster.client.is_ready(node, cluster.now_ms)
    cluster.clock.advance(1_000)
    cluster.metadata.request_update()
    assert not cluster.client.is_ready(node, cluster.now_ms)
    cluster.poll(3)
    assert cluster.client.is_ready(node, cluster.now_ms)


def test_rebootstrap_when_no_known_broker_answers(cluster: Cluster) -> None:
    cluster.topics["events"] = [1]
    cluster.metadata.add_topic("events", cluster.now_ms)
    cluster.until_ready()
    cluster.poll(5)
    assert list(cluster.metadata.snapshot.nodes) == [1]
    cluster.refuse.add("broker-1")
    cluster.nodes = (2,)  # the cluster moved
    cluster.topics["events"] = [2]
    for peer in cluster.peers:
        peer.close()
    for _ in range(60):
        cluster.poll()
        cluster.clock.advance(50)
    assert list(cluster.metadata.snapshot.nodes) == [2]
    assert cluster.metadata.snapshot.leader(("events", 0)) == cluster.node(2)  # type: ignore[arg-type]


def test_a_metadata_request_that_times_out_is_tried_elsewhere() -> None:
    cluster = Cluster((1,), bootstrap=("a:1", "b:2"))
    cluster.auto = False
    answered = False
    for _ in range(100):
        cluster.poll()
        for peer in cluster.peers:
            for header, request in peer.read():
                if header.request_api_key == 18:
                    peer.answer(header, cluster.api_versions())
                elif peer is not cluster.peers[0]:
                    peer.answer(header, cluster.metadata_response([topic.name for topic in request.topics]))
                    answered = True
        cluster.clock.advance(1_000)
    assert answered
    assert list(cluster.metadata.snapshot.nodes) == [1]
    cluster.close()


def test_an_idle_client_does_not_wake_up() -> None:
    """An hour without use: per metadata refresh a wait until it is due and a wait for the answer, and nothing else."""
    cluster = Cluster()
    cluster.until_ready()
    cluster.poll(5)
    cluster.poller.clock = cluster.clock
    cluster.poller.waits.clear()
    start = cluster.now_ms
    refreshes = cluster.metadata.version
    while cluster.now_ms - start < 3_600_000:
        cluster.poll(timeout_ms=1 << 40)
    refreshes = cluster.metadata.version - refreshes
    assert refreshes == 11  # the hour ends when the twelfth is due
    assert len(cluster.poller.waits) <= 2 * refreshes + 1, cluster.poller.waits
    cluster.close()


def test_an_expired_connection_is_not_made_again_for_nothing() -> None:
    cluster = Cluster(**{"connections.max.idle.ms": 20_000, "metadata.max.age.ms": 100_000_000})
    cluster.until_ready()
    cluster.poll(5)
    cluster.poller.clock = cluster.clock
    opened = len(cluster.peers)
    for _ in range(10):
        cluster.poll(timeout_ms=1_000_000)
    assert len(cluster.peers) == opened
    assert not cluster.selector.channels
    cluster.close()


@pytest.mark.parametrize("host", ["a..b", ".host", "x" * 64 + ".host"])
def test_a_host_that_idna_refuses_is_a_host_that_cannot_be_resolved(cluster: Cluster, host: str) -> None:
    cluster.resolve = resolve  # type: ignore[method-assign]
    cluster.client = cluster.make_client()
    node = Node(7, host, 9092)
    assert not cluster.client.ready(node, cluster.now_ms)
    assert cluster.client.connection_failed(node)
    assert cluster.client.connection_delay(node, cluster.now_ms) > 0
    (error,) = cluster.client.connection_errors(node)
    assert isinstance(error, NetworkError)
    assert host in str(error)


def test_of_two_large_answers_the_one_that_stands_still_is_known() -> None:
    cluster, pieces = Cluster((1, 2)), Pieces()
    for id in (1, 2):
        cluster.until_ready(id)
    cluster.poll(3)
    peers = [cluster.peer(f"broker-{id}") for id in (1, 2)]
    for id, peer in enumerate(peers, 1):
        cluster.send(id)
        peer.transport.write([(500_000).to_bytes(4, "big") + bytes(70_000)], 0)
    began_ms = cluster.now_ms
    assert pieces.take_in(cluster.client, began_ms) == {1: began_ms, 2: began_ms}
    cluster.clock.advance(1_000)
    peers[1].transport.write([bytes(70_000)], 0)
    assert pieces.take_in(cluster.client, cluster.now_ms) == {1: began_ms, 2: cluster.now_ms}
    cluster.close()


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_out_of_range_is_a_connection_that_failed(cluster: Cluster, port: int) -> None:
    def connect(address: Address) -> Transport:
        return SocketTransports().connect(address)

    cluster.connect = connect  # type: ignore[method-assign]
    cluster.resolve = lambda host, port: [Address(socket.AF_INET, (host, port), host)]  # type: ignore[method-assign]
    cluster.client = cluster.make_client()
    node = Node(7, "127.0.0.1", port)
    assert not cluster.client.ready(node, cluster.now_ms)
    assert cluster.client.connection_delay(node, cluster.now_ms) > 0
    (error,) = cluster.client.connection_errors(node)
    assert isinstance(error, NetworkError) and isinstance(error.__cause__, OverflowError)


def test_requests_that_are_refused_here_do_not_keep_a_poll_from_its_io(cluster: Cluster) -> None:
    """A caller that asks only for what the broker does not speak would not see that the connection was lost, and keep its versions."""
    cluster.ranges.pop(protocol.ListGroupsRequest.API_KEY)
    node = cluster.until_ready()
    cluster.peer().close()
    seen: list[ClientResponse] = []
    request = cluster.client.new_client_request(
        1, protocol.ListGroupsRequest, lambda _version: protocol.ListGroupsRequest(), cluster.now_ms, callback=seen.append
    )
    cluster.client.send(request, cluster.now_ms)
    cluster.client.poll(1_000, cluster.now_ms)
    assert isinstance(seen[0].error, UnsupportedVersion)
    assert cluster.client.connection_failed(node)
    assert cluster.poller.waits[-1] == 0


# ---- a peer that does not read


def test_a_stalled_node_does_not_hold_up_another() -> None:
    cluster = Cluster((1, 2))
    slow, fast = cluster.until_ready(1), cluster.until_ready(2)
    cluster.poll(3)
    stalled = cluster.peer("broker-1").transport.other
    stalled.max_write_bytes = 0
    cluster.send(1)
    assert not cluster.client.is_ready(slow, cluster.now_ms)  # its last send is not complete, although only one is in flight
    for _ in range(50):
        assert cluster.client.is_ready(fast, cluster.now_ms)
        request = cluster.send(2)
        cluster.serve()
        cluster.peer("broker-2").answer(cluster.peer("broker-2").requests[-1][0], protocol.ProduceResponse())
        assert [one.request for one in cluster.poll()] == [request]
    assert cluster.client.in_flight_request_count(1) == 1
    stalled.max_write_bytes = 1
    for _ in range(200):  # one write per poll, and with it one byte
        cluster.poll()
    assert cluster.client.is_ready(slow, cluster.now_ms)
    assert cluster.peer("broker-1").requests[-1][0].request_api_key == 0
    cluster.close()


def test_one_write_per_channel_and_poll() -> None:
    cluster = Cluster((1, 2))
    for id in (1, 2):
        cluster.until_ready(id)
        cluster.peer(f"broker-{id}").transport.other.max_write_bytes = 10
    cluster.poll(20)
    sends = [cluster.send(id).send for id in (1, 2)]
    for step in range(1, 4):
        assert [send.written_bytes for send in sends] == [10 * step] * 2  # in step with each other
        cluster.poll()
    cluster.close()


def test_an_address_is_shown_with_the_name_that_it_was_asked_for() -> None:
    shown = {
        str(Address(socket.AF_INET, ("1.2.3.4", 9))),
        str(Address(socket.AF_INET6, ("::1", 9, 0, 0))),
        str(Address(0, ("1.2.3.4", 9), "h")),
    }
    assert shown == {"1.2.3.4:9", "[::1]:9", "h:9"}
    assert (str(Address(socket.AF_UNIX, ("/socket",))), str(Address(0, (), "h"))) == ("/socket", "h")


def test_a_pause_without_jitter_doubles_up_to_its_bound() -> None:
    assert [doubled_ms(100, 300, failures) for failures in range(4)] == [100, 200, 300, 300]
    assert [doubled_ms(1, 2**40, failures) for failures in (19, 20, 21, 10**9)] == [2**19, *[2**20] * 3]


def test_a_connection_begins_with_no_failure() -> None:
    new = NodeConnection(7)
    assert (new.closed_early, new.failed_attempts, new.failed_connect_attempts) == (0, 0, 0)
    assert new.disconnected and not new.is_up and new.can_connect(0) and new.authentication is None
