"""The way to a coordinator: who is asked, what an answer is worth, and when it is asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import errors, protocol
from kafkacore.errors import Code
from kafkacore.net.coordinator import TRANSACTION, CoordinatorLink
from kafkacore.net.node_ids import coordinator_id
from tests.kit.rows import each_row
from tests.net.net_support import Cluster, Peer


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster((1,))
    yield made
    made.close()


def link_of(cluster: Cluster, key: str = "g", **options: Any) -> CoordinatorLink:
    return CoordinatorLink(cluster.client, key, retry_backoff_ms=100, retry_backoff_max_ms=300, **options)


Asked = tuple[Peer, protocol.RequestHeader, Any]


def question(cluster: Cluster, link: CoordinatorLink) -> Asked:
    """The next FindCoordinator, and who gets it."""
    for _ in range(30):
        assert not link.ready(cluster.now_ms)
        cluster.poll()
        for peer in cluster.peers:
            for at, (header, request) in enumerate(peer.requests):
                if header.request_api_key == protocol.FindCoordinatorRequest.API_KEY:
                    del peer.requests[: at + 1]
                    return peer, header, request
    raise AssertionError("no broker is asked")


def answer(cluster: Cluster, asked: Asked, *coordinators: dict[str, Any]) -> None:
    """Sends the answer, which the client takes in."""
    peer, header, _ = asked
    if header.request_api_version >= 4:
        response = protocol.FindCoordinatorResponse(coordinators=[protocol.Coordinator(**each) for each in coordinators])
    else:
        response = protocol.FindCoordinatorResponse(**{name: value for name, value in coordinators[0].items() if name != "key"})
    peer.answer(header, response)
    cluster.client.poll(0, cluster.now_ms)


def at(node_id: int = 1, **other: Any) -> dict[str, Any]:
    return {"key": "g", "node_id": node_id, "host": f"broker-{node_id}", "port": 9000 + node_id, **other}


def ready(cluster: Cluster, link: CoordinatorLink) -> CoordinatorLink:
    answer(cluster, question(cluster, link), at(2, key="other"), at())
    for _ in range(30):
        if link.ready(cluster.now_ms):
            return link
        cluster.poll()
    raise AssertionError("the coordinator does not become ready")


@each_row("kind", [0, TRANSACTION])
@each_row("newest", [3, 4])
def test_the_question_names_the_key_and_its_kind(kind: int, newest: int) -> None:
    cluster = Cluster()
    cluster.ranges[protocol.FindCoordinatorRequest.API_KEY] = (0, newest)
    link = link_of(cluster, kind=kind)
    assert link.unknown_since_ms == -1 and link.next_wake_ms(cluster.now_ms) == 100
    asked = question(cluster, link)
    request = asked[-1]
    assert request.key_type == kind == (0, 1)[kind]
    assert (request.coordinator_keys if newest == 4 else [request.key]) == ["g"]
    assert link.unknown_since_ms == cluster.now_ms and link.next_wake_ms(cluster.now_ms) is None and link.awaited is None
    answer(cluster, asked, at())
    assert link.answers == 1 and link.node and link.node.id == coordinator_id(1) and (link.node.host, link.node.port) == ("broker-1", 9001)
    cluster.close()


def test_a_coordinator_has_a_connection_of_its_own(cluster: Cluster) -> None:
    link = link_of(cluster)
    asked = question(cluster, link)
    assert link.broker_id == -1
    answer(cluster, asked, at(2, key="other"), at())
    assert link.broker_id == 1 and not link.ready(cluster.now_ms) and link.awaited == link.node
    assert not link.can_go_on(cluster.now_ms) and link.next_wake_ms(cluster.now_ms) == 100
    cluster.poll(10)
    assert link.can_go_on(cluster.now_ms) and link.next_wake_ms(cluster.now_ms) == 0
    assert link.ready(cluster.now_ms) and not link.can_go_on(cluster.now_ms) and link.unknown_since_ms == -1
    assert [peer.address.host for peer in cluster.peers] == ["boot", "broker-1"] and link.changes == 0 == len(link.attempts)


@each_row(
    "kind, answers, why, for_good",
    [
        (0, [at(error_code=Code.COORDINATOR_NOT_AVAILABLE, error_message="soon")], "group g: soon", False),
        (1, [at(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)], "transactional id g", True),
        (0, [at(error_code=Code.GROUP_AUTHORIZATION_FAILED)], "group g", True),
        (0, [at(key="other")], "the answer leaves group g out", False),
        (1, [], "the answer leaves transactional id g out", False),
        (0, [at(-1)], "names broker -1 at 'broker--1', port 8999", False),
        (0, [at(host="")], "names broker 1 at '', port 9001", False),
        (0, [at(port=0)], "port 0", False),
        (0, [at(port=65_536)], "port 65536", False),
        (0, [at(0, port=65_535)], None, False),
        (0, [at(port=1)], None, False),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_what_an_answer_is_worth(kind: int, answers: list[dict[str, Any]], why: str | None, for_good: bool) -> None:
    cluster = Cluster()
    cluster.metadata.request_update()
    cluster.poll(10)  # the bootstrap address has a broker now
    link = link_of(cluster, kind=kind)
    answer(cluster, question(cluster, link), *answers)
    if why is None:
        assert link.node is not None and not link.attempts
    else:
        (cause,) = link.attempts
        assert why in cause.message and cause.broker == 1
        assert cause.api and cause.api.startswith("FindCoordinator")
        assert link.failure is (cause if for_good else None) and link.node is None
        assert link.next_wake_ms(cluster.now_ms) == 0  # the next step starts a back-off
        link.ready(cluster.now_ms)
        cluster.clock.advance(100)
        ready(cluster, link)
        assert link.failure is None
    cluster.close()


def test_failed_questions_back_off_and_the_last_ten_causes_are_kept(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "kafkacore.consumer")
    link = link_of(cluster)
    waits = []
    for number in range(12):
        answer(cluster, question(cluster, link), at(error_code=Code.COORDINATOR_NOT_AVAILABLE, error_message=f"no {number}"))
        assert link.next_wake_ms(cluster.now_ms) == 0  # the next step starts the back-off
        assert not link.ready(cluster.now_ms)
        waits.append(link.next_wake_ms(cluster.now_ms))
        cluster.clock.advance(waits[-1] - 1)
        assert not link.ready(cluster.now_ms) and link.next_wake_ms(cluster.now_ms) == 1
        cluster.clock.advance(1)
    assert waits == [100, 200, *[300] * 10] and [each.message for each in link.attempts] == [f"group g: no {n}" for n in range(2, 12)]
    ready(cluster, link)
    assert not link.attempts
    peer = cluster.peer()
    link.lost("moved")
    assert not peer.open and "group g: broker 1 is not the coordinator any more or cannot be reached: moved" in caplog.text
    assert link.node is None and link.changes == 1 and not link.attempts
    link.lost("moved")
    assert link.changes == 1
    answer(cluster, question(cluster, link), at(error_code=Code.COORDINATOR_NOT_AVAILABLE))  # at once, and from the first back-off on
    assert not link.ready(cluster.now_ms) and link.next_wake_ms(cluster.now_ms) == 100


def test_too_old_a_broker_is_a_failure_for_good(cluster: Cluster) -> None:
    cluster.ranges[protocol.FindCoordinatorRequest.API_KEY] = (0, 0)
    link = link_of(cluster, kind=TRANSACTION)
    for _ in range(30):
        link.ready(cluster.now_ms)
        cluster.poll()
    assert isinstance(link.failure, errors.UnsupportedVersion) and link.attempts == [link.failure]


def test_a_question_whose_connection_ends_is_asked_again(cluster: Cluster) -> None:
    link = link_of(cluster, kind=TRANSACTION)
    peer, header, _ = question(cluster, link)
    assert header.request_api_version > 1
    peer.close()
    cluster.poll()
    assert link.answers == 1 and isinstance(link.attempts[0], errors.DisconnectError) and link.next_wake_ms(cluster.now_ms) == 0
    assert not link.ready(cluster.now_ms) and link.next_wake_ms(cluster.now_ms) == 100
    cluster.ranges[protocol.FindCoordinatorRequest.API_KEY] = (0, 1)
    cluster.clock.advance(5_000)
    assert question(cluster, link)[1].request_api_version == 1


def test_a_key_without_a_form_on_the_wire_is_a_failure_for_good(cluster: Cluster) -> None:
    link = link_of(cluster, "\ud800")
    for _ in range(30):
        link.ready(cluster.now_ms)
        cluster.poll()
    assert isinstance(link.failure, errors.UsageError)
    assert 0 < (link.next_wake_ms(cluster.now_ms) or 0) <= 300


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again_after_a_rest(cluster: Cluster) -> None:
    link = link_of(cluster)
    answer(cluster, question(cluster, link), at())
    cluster.refuse.add("broker-1")
    for _ in range(10):
        link.ready(cluster.now_ms)
        cluster.poll()
    assert link.node is None and link.changes == 1 and "refused" in str(link.attempts[0])
    cluster.clock.advance(99)
    for _ in range(3):
        assert not link.ready(cluster.now_ms)
    assert link.next_wake_ms(cluster.now_ms) == 1
    cluster.refuse.clear()
    cluster.clock.advance(1_000)
    asked = question(cluster, link)
    cluster.unknown_hosts.add("broker-1")
    answer(cluster, asked, at())
    for _ in range(10):
        link.ready(cluster.now_ms)
        cluster.poll()
    assert "refused" in str(link.attempts[0]) and "cannot resolve" in str(link.attempts[1])  # the newest reason
    cluster.unknown_hosts.clear()
    cluster.clock.advance(1_000)
    ready(cluster, link)


def test_an_answer_says_first_that_the_coordinator_is_lost(cluster: Cluster) -> None:
    link = ready(cluster, link_of(cluster))
    seen: list[tuple[int, Any]] = []

    def send(group: str, **options: Any) -> None:
        build = lambda version: protocol.HeartbeatRequest(group_id=group)  # noqa: E731
        link.send(protocol.HeartbeatRequest, build, cluster.now_ms, lambda answer: seen.append((link.changes, answer)), **options)

    answers = link.answers
    send("\ud800")
    assert isinstance(seen[0][1].error, errors.UsageError) and seen[0][0] == 0 and link.answers == answers + 1
    send("g")
    cluster.poll()
    ((header, _),) = cluster.peer().requests[-1:]
    cluster.peer().answer(header, protocol.HeartbeatResponse())
    cluster.client.poll(0, cluster.now_ms)
    assert seen[1][1].response.error_code == 0 and seen[1][0] == 0
    send("g", min_version=99)
    cluster.poll()
    assert isinstance(seen.pop()[1].error, errors.UnsupportedVersion)
    send("g", timeout_ms=50, max_version=2)
    send("g")
    cluster.poll()
    assert [header.request_api_version for header, _ in cluster.peer().requests[-2:]] == [2, protocol.HeartbeatRequest.MAX_VERSION]
    cluster.clock.advance(51)
    cluster.poll(2)
    assert [changes for changes, _ in seen[2:]] == [1, 1] and link.node is None and link.attempts
    with pytest.raises(errors.InternalError):
        send("g")


def test_an_answer_to_another_client_is_none(cluster: Cluster) -> None:
    link = link_of(cluster)
    asked = question(cluster, link)
    other = Cluster()
    link.start_anew(other.client)
    answer(cluster, asked, at())
    assert link.node is None and link.answers == 0
    ready(other, link)
    other.close()
