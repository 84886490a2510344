"""Correlation ids, in-flight requests, back-off, version choice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.errors import NetworkError, UnsupportedVersion
from kafkacore.metadata import NEVER_MS
from kafkacore.net.channel import NetworkSend
from kafkacore.net.connection import CorrelationIds, ExponentialBackoff, InFlightRequests, NodeApiVersions, NodeConnection
from kafkacore.net.request import ClientRequest
from kafkacore.net.transport import Address
from tests.kit.reached import Reached
from tests.kit.rows import each_row


def request(node_id: int = 1, deadline_ms: int = 1_000, *, sent: bool = True) -> ClientRequest:
    made = ClientRequest(node_id, object, lambda _: None, 0, True, 1_000, None, 0, 0)
    made.deadline_ms = deadline_ms
    made.send = NetworkSend(node_id, [b"x"])
    made.send.completed = sent
    return made


def test_correlation_ids_wrap_to_zero() -> None:
    ids = CorrelationIds(2**31 - 2)
    assert [ids.next() for _ in range(4)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_can_send_more() -> None:
    """Empty, or the last send complete and the count below the maximum."""
    flights = InFlightRequests(2)
    assert flights.can_send_more(1)
    first = request(sent=False)
    flights.add(first)
    assert not flights.can_send_more(1)  # still being written
    assert flights.can_send_more(2)
    assert first.send is not None
    first.send.completed = True
    assert flights.can_send_more(1)
    flights.add(request())
    assert not flights.can_send_more(1)  # at the maximum
    assert flights.complete_next(1) is first
    assert flights.can_send_more(1)


def test_oldest_and_newest() -> None:
    flights = InFlightRequests(5)
    one, two, three = request(), request(), request()
    for each in (one, two, three):
        flights.add(each)
    assert flights.oldest(1) is one
    assert flights.last_sent(1) is three
    assert flights.complete_last_sent(1) is three
    assert two.send is not None
    assert flights.complete_send(two.send) is two
    assert flights.complete_send(two.send) is None
    assert list(flights.clear_all(1)) == [one]
    assert (flights.count, flights.node_count(1), flights.deadline_ms) == (0, 0, NEVER_MS)
    assert list(flights.clear_all(1)) == []


deadlines = Reached(
    "two requests with one deadline, one is done",
    "the earliest is done, one of another node is next",
    "a newer request of a node is due before its oldest",
    "due exactly now",
    "one node is due, another is not",
)


@deadlines.by
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6), st.integers(0, 3)), max_size=12), st.integers(0, 6))
def test_the_deadline_is_a_lower_bound_and_time_outs_are_exact(steps: list[tuple[int, int, int]], now_ms: int) -> None:
    flights = InFlightRequests(1000)
    alive: list[ClientRequest] = []
    for node, deadline, done in steps:
        made = request(node, deadline)
        flights.add(made)
        alive.append(made)
        if done == 0:
            ended = flights.complete_next(node)
            deadlines("two requests with one deadline, one is done", [each.deadline_ms for each in alive].count(ended.deadline_ms) > 1)
            alive.remove(ended)
            is_earliest = all(each.deadline_ms > ended.deadline_ms for each in alive)
            deadlines("the earliest is done, one of another node is next", is_earliest and any(each.node_id != node for each in alive))
        elif done == 1:
            flights.add_throttle_time(node, 5)
        assert flights.count == len(alive)
        assert flights.deadline_ms <= min((each.deadline_ms for each in alive), default=NEVER_MS)
    late = {each.node_id for each in alive if each.deadline_ms <= now_ms}
    oldest = {each.node_id: each for each in reversed(alive)}
    deadlines("a newer request of a node is due before its oldest", any(oldest[node].deadline_ms > now_ms for node in late))
    deadlines("due exactly now", any(each.deadline_ms == now_ms for each in alive))
    deadlines("one node is due, another is not", late and late != oldest.keys())
    assert set(flights.timed_out_nodes(now_ms)) == late
    rest = [each.deadline_ms for each in alive if each.node_id not in late]
    assert flights.deadline_ms == min(rest, default=NEVER_MS)


def test_backoff_grows_to_its_bound_with_jitter() -> None:
    backoff = ExponentialBackoff(100, 1_000, rng=random.Random(3))
    for attempts, nominal in enumerate([100, 200, 400, 800, 1_600, 3_200]):
        times = {backoff.backoff_ms(attempts) for _ in range(200)}
        assert min(times) >= min(0.8 * nominal, 1_000) - 1
        assert max(times) <= min(1.2 * nominal, 1_000)
        assert len(times) > 20 or times == {1_000}
    assert backoff.backoff_ms(10**9) <= 1_000


def test_backoff_without_jitter_or_growth() -> None:
    assert [ExponentialBackoff(100, 1_000, jitter=0).backoff_ms(n) for n in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert ExponentialBackoff(0, 0).backoff_ms(5) == 0
    assert ExponentialBackoff(50, 50).backoff_ms(9) <= 50


@each_row(("have", "low", "high", "chosen"), [((0, 9), 3, 13, 9), ((3, 13), 0, 9, 9), ((3, 3), 3, 3, 3)])
def test_the_highest_common_version(have: tuple[int, int], low: int, high: int, chosen: int) -> None:
    versions = NodeApiVersions({0: have}, broker=5)
    assert versions.negotiate(0, low, high) == chosen == versions.negotiate(0, low, high)


@each_row(("ranges", "says"), [({}, "does not support Produce"), ({0: (0, 2)}, "0 to 2"), ({0: (14, 15)}, "14 to 15")])
def test_no_common_version(ranges: dict[int, Any], says: str) -> None:
    with pytest.raises(UnsupportedVersion, match=says) as caught:
        NodeApiVersions(ranges, broker=5).negotiate(0, 3, 13, "Produce")
    assert caught.value.broker == 5


def test_attempts_of_a_node_are_bounded() -> None:
    connection = NodeConnection(1)
    backoff = ExponentialBackoff(50, 1_000, jitter=0)
    connection.addresses = [Address(2, ("10.0.0.1", 1))]
    for number in range(20):
        connection.next_address = 0
        connection.next_connect_address()
        connection.connecting(number, 10)
        connection.lost(number, NetworkError(str(number)), backoff, authentication=False)
    assert [error.message for error in connection.attempts] == [str(number) for number in range(12, 20)]
    assert connection.state_name == "DISCONNECTED"
    assert connection.backoff_until_ms == 19 + 1_000
