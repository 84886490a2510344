"""A client's network on the thread of its callers: one at a time, what ends a wait, and what an interrupted call leaves behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.net.driver import CallerDriver
from tests.kit.rows import each_row
from tests.kit.waiting import GUARD_S, until
from tests.net.net_support import Cluster, noting_wakeups


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster((1, 2))
    made.poller.clock = made.clock
    yield made
    made.close()


def driver_on(cluster: Cluster, **options: Any) -> CallerDriver:
    """A driver of a scripted network."""
    driver = CallerDriver(cluster.config, "client", **{"exclusive": True, "clock": cluster.clock, **options})
    driver.client.close()
    driver.client, driver.metadata = cluster.client, cluster.metadata
    return driver


@pytest.fixture
def driver(cluster: Cluster) -> CallerDriver:
    return driver_on(cluster)


def polls_of(driver: CallerDriver, clock: ManualClock) -> list[int]:
    """How long each poll is to wait from now on, which passes at once."""
    waits: list[int] = []

    def poll(timeout_ms: int, now_ms: int) -> None:
        assert now_ms == clock.now_ms()
        waits.append(timeout_ms)
        clock.advance(timeout_ms)

    driver.client.poll = poll  # type: ignore[method-assign, assignment]
    return waits


def elsewhere(call: Any) -> BaseException | None:
    """How a call ends that another thread makes."""
    ends: list[BaseException | None] = []

    def made() -> None:
        try:
            call()
            ends.append(None)
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=made)
    thread.start()
    thread.join(GUARD_S)
    return ends[0]


def enter(driver: CallerDriver) -> None:
    with driver:
        pass


# ---- waiting


@each_row(
    "wake_ms, timeout_ms, waits",
    [
        (None, 100, [100]),
        (40, 100, [40, 40, 20]),
        (-5, 0, []),
        (None, 60_001, [60_000, 1]),
        (70_000, 70_000, [60_000, 10_000]),
        (100, 100, [100]),
    ],
)
def test_a_run_waits_for_its_step_or_its_time_whichever_is_first(wake_ms: int | None, timeout_ms: int, waits: list[int]) -> None:
    cluster = Cluster()
    driver, began_ms = driver_on(cluster), cluster.now_ms
    polls = polls_of(driver, cluster.clock)
    steps: list[int] = []

    def step(now_ms: int) -> int | None:
        steps.append(now_ms - began_ms)
        return wake_ms

    assert not driver.run(step, lambda: False, timeout_ms)
    assert polls == waits and steps == [sum(waits[:count]) for count in range(len(waits) + 1)]
    assert driver.run(step, lambda: True, timeout_ms) and driver.run(step, lambda: len(steps) > 12, None)
    cluster.close()


@each_row("asked_ms, waited_ms", [(-1, 0), (0, 0), (1, 1), (60_000, 60_000), (60_001, 60_000)])
def test_a_poll_waits_between_no_time_and_a_minute(asked_ms: int, waited_ms: int) -> None:
    cluster = Cluster()
    driver = driver_on(cluster)
    polls = polls_of(driver, cluster.clock)
    driver.poll(asked_ms, cluster.now_ms)
    assert polls == [waited_ms]
    cluster.close()


def test_a_failed_attempt_is_raised_once_and_by_no_call_after_it(cluster: Cluster, driver: CallerDriver) -> None:
    failure = errors.AuthenticationFailedError("a wrong password")
    metadata = driver.metadata
    polls_of(driver, cluster.clock)

    def fails(now_ms: int) -> int:
        metadata.unraised = failure
        return 5

    metadata.unraised = errors.NetworkError("of an earlier call")
    assert not driver.run(lambda _: 5, lambda: False, 10)
    done = iter([False, True, True])
    assert driver.run(fails, lambda: next(done), 10)  # it is done
    with pytest.raises(errors.AuthenticationFailedError):
        driver.run(fails, lambda: False, 10)
    driver.poll(0, cluster.now_ms)
    fails(0)
    with pytest.raises(errors.AuthenticationFailedError):
        driver.poll(0, cluster.now_ms)
    driver.poll(0, cluster.now_ms)


def test_a_wakeup_ends_one_wait(cluster: Cluster, driver: CallerDriver) -> None:
    polls = polls_of(driver, cluster.clock)
    for wait in (lambda: driver.poll(9, cluster.now_ms), lambda: driver.run(lambda _: 9, lambda: False, 9), driver.check_woken):
        driver.wakeup()
        assert driver.woken
        with pytest.raises(errors.WakeupError):
            wait()
        assert not driver.woken
        wait()
    assert polls == [9, 9]
    driver.client.poll = lambda *_: driver.wakeup()  # type: ignore[method-assign, assignment]
    for wait in (lambda: driver.poll(9, cluster.now_ms), lambda: driver.run(lambda _: 9, lambda: False, 9)):
        with pytest.raises(errors.WakeupError):
            wait()
    driver.wakeup()
    driver.forget_wakeup()
    driver.check_woken()


# ---- one caller at a time


def test_only_one_thread_is_inside_and_a_nested_call_does_not_end_the_outer_one(driver: CallerDriver) -> None:
    taken: list[bool] = []
    for _ in range(2):
        with driver as entered:
            assert entered is driver and driver.inside == 1
            with driver:
                assert driver.inside == 2
            elsewhere(lambda: taken.append(driver.take_over()))
            assert driver.inside == 1 and isinstance(elsewhere(lambda: enter(driver)), errors.IllegalStateError)
        assert driver.inside == 0 and elsewhere(lambda: enter(driver)) is None
    assert driver.entries == 6 and taken == [False, False]


def test_a_call_that_ctrl_c_ended_before_it_gave_back_is_not_the_outer_one(driver: CallerDriver) -> None:
    def interrupted() -> None:
        driver.__enter__()

    interrupted()
    with driver:
        assert driver.inside == 1
    assert driver.inside == 0 and elsewhere(lambda: enter(driver)) is None


def test_who_shares_a_client_waits_for_its_turn(cluster: Cluster) -> None:
    driver, turn = driver_on(cluster, exclusive=False), threading.Event()

    def come() -> None:
        with driver:
            turn.set()

    with driver:
        waiting = threading.Thread(target=come)
        waiting.start()
        assert waiting.is_alive() and not turn.is_set()
    waiting.join(GUARD_S)
    assert turn.is_set()


def test_a_call_takes_the_right_to_drive_back_from_a_background_thread(cluster: Cluster, driver: CallerDriver) -> None:
    ended: list[int] = []
    driver.left = lambda: ended.append(driver.inside)
    assert driver.take_over()
    woken = noting_wakeups(driver.client)
    caller = threading.Thread(target=enter, args=(driver,))
    caller.start()
    assert woken.acquire(timeout=GUARD_S) and driver.wanted and caller.is_alive()
    driver.give_back()
    caller.join(GUARD_S)
    assert not caller.is_alive() and not driver.wanted and ended == [0]
    assert driver.take_over()
    closing = threading.Thread(target=driver.close)
    closing.start()
    assert woken.acquire(timeout=GUARD_S) and closing.is_alive()
    driver.give_back()
    closing.join(GUARD_S)
    assert driver.closed and not driver.take_over()
    with pytest.raises(errors.ClosedError):
        enter(driver)
    assert driver.inside == 0 and isinstance(elsewhere(lambda: enter(driver)), errors.ClosedError)
    driver.close()


def test_close_from_another_thread_ends_the_call_under_way(cluster: Cluster, driver: CallerDriver) -> None:
    with driver:
        late = elsewhere(lambda: driver.take_for_close(0))
        assert isinstance(late, errors.KafkaTimeoutError) and driver.woken
        driver.forget_wakeup()
        closing = threading.Thread(target=lambda: (driver.take_for_close(60_000), enter(driver)))
        closing.start()
        until(lambda: driver.woken, "the closing thread")
        with pytest.raises(errors.ClosedError):
            driver.run(lambda _: 1, lambda: False, None)
    closing.join(GUARD_S)
    assert not closing.is_alive() and not driver.woken
    driver.take_for_close(0)
    enter(driver)


def test_a_client_may_be_closed_from_another_thread(cluster: Cluster, driver: CallerDriver) -> None:
    with driver:
        closing = threading.Thread(target=driver.close)
        closing.start()
        until(lambda: driver.woken, "the closing thread")
        with pytest.raises(errors.ClosedError, match="was closed by another thread"):
            driver.run(lambda _: 1, lambda: False, None)
        assert cluster.client.active()
    closing.join(GUARD_S)
    assert not closing.is_alive() and not cluster.client.active()


class Ended(BaseException):
    """In the place of the end of the process."""


@each_row("exits, daemon", [(True, True), (True, False), (False, True)])
def test_a_daemon_thread_that_comes_at_the_exit_stays_and_holds_nothing(exits: bool, daemon: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    driver, caller = driver_on(cluster), threading.current_thread()
    left: list[BaseException | None] = []

    class Forever:
        def acquire(self) -> None:
            left.append(elsewhere(lambda: enter(driver)))
            if len(left) == 2:
                raise Ended

    thread = lambda: SimpleNamespace(daemon=daemon and threading.current_thread() is caller)  # noqa: E731
    driver.close()
    if exits:
        driver.begin_exit()
    with monkeypatch.context() as patch:
        patch.setattr("kafkacore.net.driver.threading", SimpleNamespace(current_thread=thread, Lock=Forever))
        with pytest.raises(Ended if exits and daemon else errors.ClosedError):
            enter(driver)
    assert [type(each) for each in left] == [errors.ClosedError] * (2 * (exits and daemon))
    cluster.close()


def test_a_child_leaves_the_client_of_its_parent_alone(cluster: Cluster, driver: CallerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not driver.forked
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert driver.forked
    with pytest.raises(errors.ForkedClientError):
        enter(driver)
    driver.close()
    driver.abandon(driver)
    assert driver.closed and driver.inside == 0
    monkeypatch.undo()
    cluster.until_ready()  # its connections still stand


# ---- interrupted calls


@each_row(
    "error, again",
    [(KeyboardInterrupt(), True), (MemoryError(), True), (errors.InternalError("a bug"), True), (errors.NetworkError("lost"), False)],
    ids=["Ctrl+C", "memory", "a bug", "a failure"],
)
@each_row("background", [False, True])
def test_after_a_call_that_was_interrupted_all_connections_are_new(error: BaseException, again: bool, background: bool) -> None:
    cluster = Cluster()
    renewed: list[Any] = []
    driver = driver_on(cluster, renewed=renewed.append)
    old = driver.client
    cluster.until_ready()
    old.on_failure, old.on_throttle = print, max  # type: ignore[assignment]
    stats = old.node_stats[1]
    with pytest.raises(type(error)), driver:
        raise error
    assert driver.client is old and not renewed
    if background:
        assert driver.take_over()
        driver.give_back()
    else:
        enter(driver)
    assert renewed == [driver.client] * again and (driver.client is not old) == again
    assert (driver.client.on_failure, driver.client.on_throttle) == (print, max) and driver.client.node_stats[1] is stats
    assert stats.connections_opened == 1 and stats.connections_closed == again
    enter(driver)
    driver.take_over()
    driver.give_back(broken=True)
    enter(driver)
    driver.interrupted()
    enter(driver)
    assert len(renewed) == again + 2
    driver.client.close()


@each_row("background", [False, True])
def test_a_renewal_that_fails_begins_again_with_the_next_call(background: bool) -> None:
    cluster = Cluster()
    outcomes = [OSError("no descriptor"), None]

    def renewed(_: Any) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    driver = driver_on(cluster, renewed=renewed)
    driver.interrupted()
    with pytest.raises(OSError):
        driver.take_over() if background else enter(driver)
    assert driver.inside == 0 and elsewhere(lambda: enter(driver)) is None and not outcomes
    driver.client.close()


# ---- what is known


def test_a_topic_is_described_by_an_answer_to_this_question(cluster: Cluster, driver: CallerDriver) -> None:
    cluster.topics = {"t": [1, 2]}
    info = driver.describe("t", 1_000)
    assert info is not None and len(info.partitions) == 2 and driver.topic_attempts("t") == []
    waits = len(cluster.poller.waits)
    assert driver.describe("t", 0) is info and len(cluster.poller.waits) == waits
    cluster.refuse |= {"broker-1", "broker-2", "boot"}
    for peer in cluster.peers:
        peer.close()
    assert driver.describe("u", 1_000) is None
    causes = driver.attempts()
    assert causes == list(driver.metadata.attempts) and causes and driver.topic_attempts("u") == causes
    (said,) = driver.unreachable(cluster.now_ms)
    assert said == f"no broker can be reached: {causes[-1]}"
    cluster.refuse.clear()
    cluster.clock.advance(60_000)
    cluster.until_ready()
    assert driver.unreachable(cluster.now_ms) == []


def test_a_client_that_is_forgotten_says_so_once(cluster: Cluster, driver: CallerDriver) -> None:
    with pytest.warns(ResourceWarning, match="unclosed 'a client': close it") as said:
        driver.abandon("a client")
    driver.abandon("a client")
    assert driver.closed and driver.reported and len(said) == 1


def test_a_client_has_its_own_protocol() -> None:
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    for protocol, more in (("PLAINTEXT", {}), ("SASL_PLAINTEXT", sasl), ("SSL", {}), ("SASL_SSL", sasl)):
        config = ClientConfig.from_user({"bootstrap_servers": "h:1", "security_protocol": protocol, **more})
        driver = CallerDriver(config, "client", exclusive=True)
        assert driver.client.selector.uses_tls == protocol.endswith("SSL"), protocol
        driver.close()
