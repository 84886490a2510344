"""Sender: who drives the I/O, the Sender's thread or callers that wait, and what errors and interrupts do to them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from producer_support import all_memory_back, response, sequences, started

from kafkacore import errors
from kafkacore.errors import IllegalStateError, KafkaTimeoutError
from kafkacore.producer import sender as sender_module
from tests.kit.inside import io_of
from tests.kit.rows import each_row


def test_an_interrupted_pass_loses_and_doubles_nothing() -> None:
    bench = started()
    futures = [bench.send("t", b"a", partition=0)]
    bench.step()
    futures.append(bench.send("t", b"b", partition=0))

    def interrupt() -> None:
        bench.client.in_poll = lambda: None
        raise KeyboardInterrupt

    bench.client.in_poll = interrupt
    with pytest.raises(KeyboardInterrupt):
        futures[0].result(60)
    assert bench.client.disconnected == [1]
    old, bench.client.sent = bench.client.sent, []
    for request, _ in old:  # answers of the old connection come to nothing
        assert request.callback is not None
    bench.step(200)
    assert sequences(bench) == [(0, 0, 0)]
    bench.answered((0, 0, 0))
    bench.step(200)
    assert sequences(bench) == [(0, 0, 1)]
    bench.answered((0, 0, 1))
    assert [future.result(0).offset for future in futures] == [0, 1]
    assert all_memory_back(bench)


def test_a_waiting_caller_drives_and_a_callback_may_not_wait() -> None:
    bench = started()
    future = bench.send("t", b"a", partition=0)
    caught: list[BaseException] = []

    def wait_in_callback(metadata: Any, error: Any) -> None:
        try:
            late.result(1)
        except IllegalStateError as refused:
            caught.append(refused)

    bench.send("t", b"b", partition=0, on_delivery=wait_in_callback)
    late = bench.send("t", b"c", partition=1)

    def answer() -> None:
        if bench.client.sent:
            bench.client.answer(response((0, 0, 0)), at=0)

    bench.client.in_poll = answer
    assert future.result(60).offset == 0
    assert len(caught) == 1
    assert bench.sender.counters["driven_by_callers"] == 1


def test_wait_times_out_and_leaves_the_record_on_its_way() -> None:
    bench = started()
    future = bench.send("t", b"a", partition=0)
    bench.client.in_poll = lambda: bench.clock.advance(30) and None
    with pytest.raises(KafkaTimeoutError, match="on their way"):
        future.result(0.1)
    bench.client.in_poll = lambda: None
    bench.answered((0, 0, 4))
    assert future.result(0).offset == 4


def test_an_idle_sender_sleeps_without_a_bound() -> None:
    bench = started()
    bench.send_now("t", b"a", partition=0)
    bench.answered((0, 0, 0))
    bench.sender.run_once(bench.clock.now_ms())
    assert bench.client.poll_timeouts[-1] > 2**60


def test_a_forced_close_ends_the_wait_of_a_caller_that_drives() -> None:
    bench = started()
    future = bench.send("t", b"x", partition=0)
    passes = []

    def close_from_another_thread() -> None:
        passes.append(1)
        if len(passes) == 3:
            bench.sender.initiate_close(force=True)
            threading.Thread(target=end_io).start()
        assert len(passes) < 20, "the caller goes on driving"

    def end_io() -> None:
        with io_of(bench.sender):
            bench.sender.finish()

    bench.client.in_poll = close_from_another_thread
    with pytest.raises(errors.ClosedError) as closed:
        future.result(60)
    assert (closed.value.topic, closed.value.partition) == ("t", 0)
    assert all_memory_back(bench)


@each_row("stop", [KeyboardInterrupt, SystemExit])
def test_whatever_a_callback_raises_the_others_run_and_the_waiters_wake(stop: type[BaseException]) -> None:
    bench = started()
    ran: list[int] = []

    def leave(metadata: Any, error: Any) -> None:
        ran.append(0)
        raise stop

    first = bench.send("t", b"a", partition=0, on_delivery=leave)
    second = bench.send("t", b"b", partition=0, on_delivery=lambda metadata, error: ran.append(1))
    second.add_done_callback(lambda future: ran.append(2))
    bench.step()
    bench.client.answer(response((0, 0, 0)))
    if stop is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            first.result(60)
    else:
        assert first.result(60).offset == 0
    assert ran == [0, 1, 2]
    assert second.result(0).offset == 1
    assert all_memory_back(bench)


class Gate:
    """A gate that notes how it is waited at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.waits: list[float] = []
        self.asleep = threading.Event()

    def acquire(self, timeout: float = -1) -> bool:
        self.waits.append(timeout)
        if timeout < 0:
            self.asleep.set()
        return self.lock.acquire(timeout=timeout)

    def locked(self) -> bool:
        return self.lock.locked()

    def release(self) -> None:
        self.lock.release()


def test_the_sender_sleeps_while_a_caller_drives() -> None:
    """Until that caller leaves: looking again and again would cost processor time for as long as a broker says nothing."""
    bench = started()
    sender = bench.sender
    gate = sender._nap_gate = Gate()
    sender._calls += 1
    io_of(sender).acquire()  # a caller drives
    seen = []
    thread = threading.Thread(target=lambda: seen.append(sender._nap_or_pass(0)), daemon=True)
    thread.start()
    assert gate.asleep.wait(60)
    assert len(gate.waits) == 2  # a nap, then a sleep without a bound
    io_of(sender).release()
    sender._leave()
    thread.join(60)
    assert seen == [-1]  # and naps again: callers come one after the other
    assert not sender._watching


class NapGate:
    """Of a thread that does not sleep."""

    def __init__(self, order: list[str]) -> None:
        self.order = order

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self.order.append("nap" if blocking else "what was urgent is forgotten")
        return True


@each_row("callers", [0, 1])
def test_what_was_urgent_before_a_caller_came_leaves_the_driving_to_it(callers: int) -> None:
    """Else the thread drove on, and each answer that the caller waits for would cost two switches of threads."""
    sender = started().sender
    order: list[str] = []

    class CallersGate:
        def locked(self) -> bool:
            return True

        def release(self) -> None:
            order.append("the caller is told")

    sender._nap_gate = NapGate(order)
    sender._callers.extend(CallersGate() for _ in range(callers))
    sender._calls = 1
    assert sender._nap_or_pass(0) == 1
    assert order == (["what was urgent is forgotten", "the caller is told", "nap"] if callers else ["nap"])


def test_an_error_in_a_pass_does_not_end_the_wait_of_a_caller_that_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record's error names what failed, should it not be delivered after all."""
    monkeypatch.setattr(sender_module, "ERROR_PAUSE_S", 0)
    bench = started(delivery_timeout_ms=1000, request_timeout_ms=900)
    future = bench.send("t", b"x", partition=0)

    def fail() -> None:
        bench.clock.advance(300)
        if bench.clock.now_ms() < 2_500:
            raise ZeroDivisionError("a bug")

    bench.client.in_poll = fail
    error = future.exception(60)
    assert isinstance(error, KafkaTimeoutError)
    assert "a pass of the Sender failed: ZeroDivisionError('a bug')" in str(error)
    assert {(type(why), why.topic, why.partition, type(why.__cause__)) for why in error.attempts} == {
        (errors.InternalError, "t", 0, ZeroDivisionError)
    }


def test_a_second_pass_that_fails_forgets_what_it_had_on_the_wire_although_a_batch_of_the_first_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender_module, "ERROR_PAUSE_S", 0)
    bench = started()
    reenqueue = bench.accumulator.reenqueue

    def fail() -> None:
        raise ZeroDivisionError

    def queue_again(batch: Any, now_ms: int) -> None:
        fail() if batch.queue.index == 0 else reenqueue(batch, now_ms)

    monkeypatch.setattr(bench.accumulator, "reenqueue", queue_again)
    for partition in (0, 1):
        bench.send_now("t", b"x", partition=partition)
        bench.client.in_poll = fail
        bench.sender.guarded_pass(bench.clock.now_ms(), 0)
        bench.client.in_poll = lambda: None
    assert bench.client.disconnected == [1, 1]
    assert list(bench.sender.batches_in_flight()) == []


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_work_that_a_pass_does_first_is_done_although_other_work_was_cut_short(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    monkeypatch.setattr(sender_module, "ERROR_PAUSE_S", 0)
    bench = started()
    made: list[str] = []

    def fail() -> None:
        made.append("cut short")
        raise error

    cut, other = bench.sender.do_first(fail), bench.sender.do_first(lambda: made.append("done"))
    for _ in range(2):
        with contextlib.suppress(error):
            bench.sender.guarded_pass(bench.clock.now_ms(), 0)
    assert made == ["cut short", "done"]
    assert cut.finished and other.finished


def test_the_thread_that_has_ended_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may get its number: it could not wait for anything, were it taken for the one that drives."""

    class Here:
        def __init__(self, target: Callable[[], None], **more: object) -> None:
            self.start = target

    monkeypatch.setattr(sender_module, "threading", SimpleNamespace(**vars(threading) | {"Thread": Here}))
    bench, ends = started(), []
    monkeypatch.setattr(bench.client, "close", lambda: ends.append(bench.sender.in_io_thread))
    bench.sender.initiate_close()
    bench.sender.start()
    assert ends == [True]
    assert not bench.sender.in_io_thread
    assert not io_of(bench.sender).locked()


def test_of_two_callers_in_line_one_leaves_and_the_other_drives() -> None:
    sender = started().sender
    sender._nap_gate = NapGate([])
    gates = [threading.Lock() for _ in range(2)]
    for gate in gates:
        gate.acquire()
        sender.stand_in_line(gate)
    assert sender._nap_or_pass(0) == 2
    assert [gate.locked() for gate in gates] == [False, True]
    sender.leave_line(gates[0])  # its time is over
    sender._leave()
    assert not gates[1].locked()
    sender.leave_line(gates[1])
