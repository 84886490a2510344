"""Ctrl+C at every step of the producer: memory stays exact, nothing is lost in silence, and the next call goes on."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from producer_support import Bench, response

from kafkacore import protocol
from kafkacore.errors import Code, KafkaTimeoutError
from tests.kit.inside import io_of
from tests.kit.interrupter import Interrupter


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """A finalizer of what an earlier test has left is no step of this one: what is raised there is lost."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def answer_all(bench: Bench) -> None:
    """The broker: takes everything, knows batches by their numbers."""
    for request, message in list(bench.client.sent):
        if request.api is protocol.InitProducerIdRequest:
            bench.client.answer(protocol.InitProducerIdResponse(producer_id=7, producer_epoch=0))
            continue
        parts = [(part.index, 0, 0) for topic in message.topic_data for part in topic.partition_data]
        bench.client.answer(response(*parts))


def settled(bench: Bench) -> None:
    """Everything comes to an end, and then all memory is back."""
    bench.client.in_poll = lambda: None
    bench.accumulator.begin_flush()
    for _ in range(20):
        bench.step(2_000)
        answer_all(bench)
    bench.accumulator.end_flush()
    assert not bench.accumulator.has_incomplete
    assert bench.pool.available_bytes == bench.pool.total_bytes
    assert bench.pool.queued == 0


def at_every_step(scenario: Callable[[Bench], Callable[[], object]], check: Callable[[Bench], None] = settled, **options: Any) -> int:
    """Runs a scenario once per step, each time interrupted there; returns how many steps there were."""
    for at in range(100_000):
        bench = Bench(batch_size=512, buffer_memory=2048, **options)
        bench.give_producer_id()
        what = scenario(bench)
        interrupted = Interrupter(at).run(what)
        check(bench)
        if not interrupted:
            return at
    raise AssertionError("no end")


def test_a_send_that_opens_batches() -> None:
    def scenario(bench: Bench) -> Callable[[], object]:
        return lambda: [bench.send("t", b"x" * 100, partition=index % 2) for index in range(12)]

    assert at_every_step(scenario) > 5


def test_a_send_that_finds_memory_full() -> None:
    def scenario(bench: Bench) -> Callable[[], object]:
        for _ in range(4):
            bench.send("t", b"x" * 300, partition=0)

        def send() -> None:
            with pytest.raises(BufferError):
                bench.send("t", b"x" * 300, partition=0)

        return send

    assert at_every_step(scenario) > 2


def test_the_driver_hears_of_a_record_although_its_send_was_interrupted() -> None:
    """The Sender sleeps without end: the first record of a batch has to wake it, for the second will not."""

    def scenario(bench: Bench) -> Callable[[], object]:
        bench.client.wakeups = 0
        bench.accumulator.looking()
        assert bench.accumulator.sleeping(1 << 60)
        return lambda: bench.send("t", b"x", partition=0)

    def check(bench: Bench) -> None:
        assert bench.client.wakeups or not any(batch.count for batch in bench.accumulator.incomplete())
        bench.accumulator.awake()
        settled(bench)

    assert at_every_step(scenario, check) > 2


@pytest.mark.parametrize(("code", "in_flight"), [(0, 1), (Code.NOT_LEADER_OR_FOLLOWER, 5), (Code.INVALID_RECORD, 5)])
def test_a_caller_that_drives(code: int, in_flight: int) -> None:
    """Whatever the step, the records come to an end: delivered, or failed with their cause."""

    def scenario(bench: Bench) -> Callable[[], object]:
        futures = [bench.send("t", b"x" * 100, partition=0) for _ in range(6)]
        answered: list[int] = []

        def broker() -> None:
            if not answered:
                for request, _ in list(bench.client.sent):
                    if request.api is protocol.ProduceRequest:
                        answered.append(1)
                        bench.client.answer(response((0, code, 0)))
            else:
                answer_all(bench)
            bench.clock.advance(500)

        bench.client.in_poll = broker
        bench.futures = futures  # type: ignore[attr-defined]
        return lambda: futures[0].exception(60)

    def check(bench: Bench) -> None:
        bench.client.sent.clear()  # the connections were closed
        settled(bench)
        assert all(future.done() for future in bench.futures)  # type: ignore[attr-defined]

    assert at_every_step(scenario, check, max_in_flight_requests_per_connection=in_flight) > 12


class TakenAtFirst:
    """The right to do the I/O, which another thread has at the first try and gives back before the second."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tries = 0

    def acquire(self, blocking: bool = True) -> bool:
        self.tries += 1
        return self.tries > 1 and self.lock.acquire(blocking)

    def release(self) -> None:
        self.lock.release()

    def locked(self) -> bool:
        return self.lock.locked()


@pytest.mark.parametrize("timeout", [0, None])
def test_a_caller_that_waits_in_line_leaves_nothing_behind(timeout: float | None) -> None:
    """A gate left in the line takes every later wake-up of the Sender's thread, and the right to do the I/O would be held for good."""

    def scenario(bench: Bench) -> Callable[[], object]:
        future = bench.send("t", b"x", partition=0)
        bench.sender._io = TakenAtFirst()
        bench.client.in_poll = lambda: answer_all(bench)

        def wait() -> None:
            with contextlib.suppress(KafkaTimeoutError):
                future.result(timeout)

        return wait

    def check(bench: Bench) -> None:
        assert not bench.sender._callers
        assert not io_of(bench.sender).locked()
        settled(bench)

    assert at_every_step(scenario, check) > (0 if timeout == 0 else 5)
