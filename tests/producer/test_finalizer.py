"""A collection may end a producer on any thread, between any two steps; and anyone may look in while the Sender works."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from types import FrameType
from typing import Any

import pytest
from producer_support import Bench, response

import kafkacore
from kafkacore import KafkaProducer
from kafkacore._codec import PartitionBooks, TopicQueue
from kafkacore.errors import Code
from kafkacore.producer.endings import close_sender
from kafkacore.producer.txn import TransactionManager
from kafkacore.types import TopicPartition
from tests.kit.inside import accumulator_of, books_by_partition, io_of, is_closing, lock_of, sender_of
from tests.kit.rows import each_row

HERE = os.path.dirname(kafkacore.__file__) + os.sep
LOCKS = (type(threading.Lock()), type(threading.RLock()))
GUARD_S = 200  # a deadlock has no end; a busy machine has one


def locks_of(root: object) -> list[Any]:
    """Every lock that an object reaches through objects of this package and plain containers."""
    seen: set[int] = set()
    todo: list[Any] = [root]
    found = []
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, LOCKS):
            found.append(thing)
        elif type(thing).__module__.startswith("kafkacore") or isinstance(thing, (dict, list, tuple, set, threading.Condition)):
            todo += [inner for inner in gc.get_referents(thing) if not isinstance(inner, type)]
    return found


def test_a_finalizer_waits_for_no_lock() -> None:
    """Whatever the thread holds on which a collection runs: each lock of the producer is held by another thread here."""
    p = KafkaProducer(bootstrap_servers="127.0.0.1:1")
    sender = sender_of(p)
    held = locks_of(p)
    assert any(lock is lock_of(accumulator_of(p)) for lock in held)
    # But for those of the Sender thread itself, the gate, which is held from the start, and re-entrant ones: the next test's.
    io = {id(io_of(sender)), id(sender._nap_gate)}
    with contextlib.ExitStack() as stack:
        for lock in held:
            if id(lock) not in io and not isinstance(lock, type(threading.RLock())):
                stack.enter_context(lock)
        finalizer = threading.Thread(target=p.__del__, daemon=True)
        finalizer.start()
        finalizer.join(GUARD_S)
        ended = not finalizer.is_alive()
    assert ended
    assert sender.join(GUARD_S)


def test_a_wake_may_interrupt_a_wake() -> None:
    """The waker's lock guards its descriptor; a collection within `wake` runs the finalizer on the thread that holds it."""
    p = KafkaProducer(bootstrap_servers="127.0.0.1:1")
    waker = sender_of(p).client.selector._waker
    ended = threading.Event()

    def collect() -> None:
        with lock_of(waker):
            p.__del__()
        ended.set()

    threading.Thread(target=collect, daemon=True).start()
    assert ended.wait(GUARD_S)
    assert sender_of(p).join(GUARD_S)


class Collector:
    """At every line of this package that runs while `lock` is held: an unreachable producer of that Sender, and a collection."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.collected = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HERE) or frame.f_code.co_name in ("__del__", "initiate_close", "close"):
            return None
        if event == "line" and lock_of(self.bench.accumulator).locked():
            sys.settrace(None)
            abandoned = KafkaProducer.__new__(KafkaProducer)
            abandoned.__dict__.update(_sender=self.bench.sender, _closed=False, _pid=os.getpid(), itself=abandoned)
            del abandoned
            self.collected += gc.collect(0) > 0  # what was just made is young; all of it at each step took minutes on a busy machine
            sys.settrace(self.trace)
        return self.trace


def test_a_collection_at_every_step_under_the_lock() -> None:
    bench = Bench(partitions=1, batch_size=512, delivery_timeout_ms=1000, request_timeout_ms=900)
    bench.give_producer_id()
    collector = Collector(bench)
    futures = [bench.send("t", b"x" * 100, partition=0) for _ in range(6)]
    ended = threading.Event()
    gc.collect()
    gc.freeze()  # what the tests before left is not walked at each step: with all of it in memory that took minutes

    def work() -> None:
        sys.settrace(collector.trace)
        try:
            bench.step()
            bench.client.answer(response((0, Code.MESSAGE_TOO_LARGE, -1)))  # a split
            bench.step()
            bench.step()
            bench.client.answer(response((0, Code.NOT_LEADER_OR_FOLLOWER, -1)))  # a retry
            bench.step()
            bench.client.blocked.add(1)
            bench.step(1000)  # expiry
            bench.accumulator.take_all()
        finally:
            sys.settrace(None)
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    try:
        has_ended = ended.wait(GUARD_S)
    finally:
        gc.unfreeze()
    assert has_ended, "a finalizer waits for a lock that its own thread holds"
    assert collector.collected > 10
    assert is_closing(bench.sender)
    assert all(future.done() for future in futures)


class Ends:
    """In the place of a Sender: it notes what it is asked, and its thread ends or not."""

    def __init__(self, in_io_thread: bool, *ends: bool) -> None:
        self.in_io_thread, self.ends, self.asked = in_io_thread, list(ends), []  # type: ignore[var-annotated]

    def initiate_close(self, *, force: bool) -> None:
        self.asked.append(force)

    def join(self, timeout_s: float) -> bool:
        self.asked.append(timeout_s)
        return self.ends.pop(0)


@each_row(
    ("sender", "timeout_s", "asked", "left_behind"),
    [
        (Ends(False, True), 5.0, [False, 5.0], False),
        (Ends(False, True), 0.5, [False, 0.5], False),
        (Ends(False, True), 0, [True, 0.0], False),
        (Ends(False, True), -1, [True, 0.0], False),
        (Ends(False, True), 1e99, [False, threading.TIMEOUT_MAX], False),
        (Ends(False, False, True), 5.0, [False, 5.0, True, 1.0], False),
        (Ends(False, False, False), 5.0, [False, 5.0, True, 1.0], True),
        (Ends(True), 5.0, [False], False),
    ],
    ids=str,
)
def test_a_close_is_forced_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture, sender: Any, timeout_s: float, asked: list[Any], left_behind: bool
) -> None:
    caplog.clear()
    close_sender(sender, timeout_s)
    assert sender.asked == asked
    assert ("left behind" in caplog.text) is left_behind


@each_row(("difference", "closing"), [(-1, False), (0, True), (1, False)])
def test_a_finalizer_closes_nothing_of_another_process(difference: int, closing: bool) -> None:
    bench = Bench()
    copied = KafkaProducer.__new__(KafkaProducer)
    copied.__dict__.update(_sender=bench.sender, _closed=False, _pid=os.getpid() + difference)
    del copied
    assert is_closing(bench.sender) == closing


def test_statistics_while_partitions_are_added() -> None:
    """A thread switch between any two bytecodes of `statistics`: the Sender adds a partition at each of them."""
    topic = TopicQueue("t")
    topic.grow(200, TopicPartition)
    books = TransactionManager()

    def add() -> None:
        if len(books_by_partition(books)) < 200:
            books_by_partition(books)[topic.partitions[len(books_by_partition(books))]] = PartitionBooks(1, 0)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename.endswith("txn.py"):
            add()
            frame.f_trace_opcodes = True
            return trace
        return None

    add()
    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        found = books.statistics()
    finally:
        sys.settrace(previous)
    assert 1 <= len(found["partitions"]) <= 200
    assert len(books_by_partition(books)) > 10
