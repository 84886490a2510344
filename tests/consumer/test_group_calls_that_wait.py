"""Calls of a group member that wait: for a broker that refuses connections, one that never answers, a coordinator that nobody knows.

Ctrl+C and `wakeup` end each of them at once, and `close` keeps to its timeout.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_group_stalled_broker import LONG_S, TIMED, TP

from kafkacore import errors
from kafkacore.consumer import KafkaConsumer
from kafkacore.errors import Code
from kafkacore.protocol import FindCoordinatorResponse
from kafkacore.protocol.group import Coordinator
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.groups import joined, until_polled
from tests.kit.inside import driver_of, group_of, lock_of, loop_of
from tests.kit.waits import GUARD_S, Waits, interrupt

CALLS: dict[str, Callable[[KafkaConsumer], object]] = {
    **{name: functools.partial(TIMED[name], s=LONG_S) for name in TIMED if "poll" not in name},
    "poll": lambda c: [c.poll(LONG_S) for _ in range(10**9)],
    "poll_batch": lambda c: [c.poll_batch(LONG_S) for _ in range(10**9)],
    "for": lambda c: [None for _ in c],
}
CONDITIONS = ["stopped", "down", "no coordinator"]


shared = embedded({"t": [[b"v"] * 100, []]}, brokers=1)


@pytest.fixture
def member(shared: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[KafkaConsumer]:
    settings: dict[str, Any] = {
        "bootstrap_servers": shared.bootstrap_servers,
        "group_id": f"g{abs(hash(request.node.nodeid)) % 10**9}",
        "auto_offset_reset": "earliest",
        "default_api_timeout_ms": LONG_S * 1000,
        "request_timeout_ms": LONG_S * 1000,
        "socket_connection_setup_timeout_ms": LONG_S * 1000,
        "auto_commit_interval_ms": LONG_S * 1000,
    }
    consumer = KafkaConsumer("t", **settings)
    joined(consumer, 2)
    until_polled(lambda: consumer.position(TP) == 100, consumer)
    yield consumer
    consumer.close(0)


@contextlib.contextmanager
def broken_down(cluster: EmbeddedCluster, member: KafkaConsumer, condition: str) -> Iterator[None]:
    """The broker answers nothing, its address refuses connections, or no coordinator can be found."""
    if condition == "stopped":
        cluster.pause_broker(1)
        try:
            yield
        finally:
            cluster.resume_broker(1)
    elif condition == "down":
        cluster.kill_broker(1)
        try:
            yield
        finally:
            cluster.start_broker(1)
    elif condition == "no coordinator":
        cluster.control(
            "FindCoordinator",
            lambda request: FindCoordinatorResponse(
                coordinators=[Coordinator(key=key, error_code=Code.COORDINATOR_NOT_AVAILABLE) for key in request.coordinator_keys]
            ),
        )
        with driver_of(member):
            group_of(member).link.lost("the test says so")
        try:
            yield
        finally:
            cluster.control("FindCoordinator", None)
    else:
        yield


WAITING = [(call, "stopped") for call in CALLS] + [
    (call, condition) for condition in CONDITIONS[1:] for call in ("poll", "commit", "close")
]


@pytest.mark.parametrize(("call", "condition"), WAITING)
def test_ctrl_c_ends_every_call_that_waits(shared, member, monkeypatch, call: str, condition: str) -> None:
    main = threading.main_thread().ident
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with broken_down(shared, member, condition):
            waits = Waits(monkeypatch, lambda: signal.pthread_kill(main, signal.SIGUSR1))
            with pytest.raises(KeyboardInterrupt):
                CALLS[call](member)
            assert waits.took_s() < GUARD_S
            began_s = time.monotonic()
            member.close(0)
            assert time.monotonic() - began_s < GUARD_S
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(("call", "condition"), [(c, w) for c, w in WAITING if c not in ("unsubscribe", "close")])
def test_wakeup_from_another_thread_ends_every_call_that_waits(shared, member, monkeypatch, call: str, condition: str) -> None:
    with broken_down(shared, member, condition):
        waits = Waits(monkeypatch, member.wakeup)
        with pytest.raises(errors.WakeupError):
            CALLS[call](member)
        assert waits.took_s() < GUARD_S
        member.close(0)


def test_wakeup_in_a_signal_handler(shared, member, monkeypatch) -> None:
    main = threading.main_thread().ident
    before = signal.signal(signal.SIGUSR1, lambda *_: member.wakeup())
    try:
        waits = Waits(monkeypatch, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        with pytest.raises(errors.WakeupError):
            member.poll(LONG_S)
        assert waits.took_s() < GUARD_S
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- fork -------------------------------------------------------------------------------------------------------------------------------


def in_child(member: KafkaConsumer, answers: Any) -> None:
    """Every call is refused, nothing is touched, and no thread of the parent's is here."""
    found: list[str] = []
    calls = [
        lambda: member.poll(0),
        lambda: member.poll_batch(0),
        lambda: next(iter(member)),
        lambda: member.commit({TP: 1}),
        lambda: member.committed(TP),
        lambda: member.position(TP),
        lambda: member.unsubscribe(),
        lambda: member.subscribe(["t"]),
        lambda: member.pause(TP),
    ]
    for call in calls:
        try:
            call()
            found.append("no error")
        except errors.KafkaError as error:
            found.append(type(error).__name__)
    found.append(str([t.name for t in threading.enumerate() if "kafkacore-consumer" in t.name]))
    member.close()
    answers.put(found)


@pytest.mark.parametrize("driving", ["background", "nobody"])
def test_a_forked_child_leaves_the_parents_membership_alone(shared, member, driving: str) -> None:
    context = multiprocessing.get_context("fork")
    generation = member.consumer_group_metadata()
    if driving == "background":
        takeovers = loop_of(member).background.takeovers
        while loop_of(member).background.takeovers == takeovers and lock_of(driver_of(member)).acquire(blocking=False):
            lock_of(driver_of(member)).release()
            threading.Event().wait(0.001)
    answers = context.SimpleQueue()
    child = context.Process(target=in_child, args=(member, answers))
    child.start()
    assert answers.get() == ["ForkedClientError"] * 9 + ["[]"]
    child.join(GUARD_S)
    assert child.exitcode == 0
    beats = group_of(member).membership.heartbeats
    member.seek(TP, 90)
    while member.position(TP) < 100:
        member.poll(1)
    member.commit({TP: 100})
    group_of(member).membership._heartbeat_at_ms = 0  # the next one is due now
    while group_of(member).membership.heartbeats == beats or group_of(member).membership._heartbeat is not None:
        member.poll(0.01)
    assert member.consumer_group_metadata() == generation
