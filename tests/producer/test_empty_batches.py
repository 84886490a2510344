"""Batches without a record, at every place of a queue: they block nothing, and the age of a batch begins with its first record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from producer_support import Bench, Racing, all_memory_back, response

from kafkacore import protocol
from kafkacore.errors import Code, KafkaTimeoutError
from tests.kit.inside import doubts_of
from tests.kit.rows import each_row

PLAIN = {"enable_idempotence": False}


def counts(bench: Bench, partition: int = 0) -> list[int]:
    return [batch.count for batch in bench.topic.partitions[partition].batches]


def interrupt() -> None:
    raise KeyboardInterrupt


def left_behind(bench: Bench, partition: int = 0, *, closed: bool = False) -> None:
    """An open batch whose first record never came; closed when a test needs what no path should leave."""
    bench.accumulator.roll(bench.topic, bench.topic.partitions[partition], 10, bench.clock.now_ms(), 0)
    assert bench.topic.partitions[partition].batches[-1].count == 0
    if closed:
        bench.topic.partitions[partition].close_open()


def answer_all(bench: Bench) -> None:
    while bench.client.sent:
        _, message = bench.client.sent[0]
        parts = [(part.index, 0, 0) for topic in message.topic_data for part in topic.partition_data]
        bench.answered(*parts)


# ---- two threads and one partition -----------------------------------------------------------------------------------------------------


def test_an_empty_batch_too_small_for_another_threads_record_is_dropped() -> None:
    bench = Racing(partitions=1, batch_size=1000, **PLAIN)
    futures = []
    bench.hook = lambda: futures.append(bench.send("t", b"B" * 5000, partition=0))
    futures.append(bench.send("t", b"A", partition=0))
    assert 0 not in counts(bench)
    assert sum(counts(bench)) == 2
    for _ in range(3):
        bench.step()
        answer_all(bench)
    assert all(future.result(0) for future in futures)
    assert all_memory_back(bench)


def test_the_batch_another_thread_has_just_opened_is_used() -> None:
    """Closing it would send a batch per thread; and an empty one would never leave."""
    bench = Racing(partitions=1, batch_size=1000, **PLAIN)
    bench.hook = lambda: bench.accumulator.roll(bench.topic, bench.topic.partitions[0], 100, bench.clock.now_ms(), 0)
    bench.send("t", b"A", partition=0)
    assert counts(bench) == [1]


def test_an_empty_batch_dropped_for_a_larger_one_gives_its_memory_to_it() -> None:
    bench = Racing(partitions=1, batch_size=1000, buffer_memory=6000, **PLAIN)
    left_behind(bench)
    bench.send("t", b"B" * 5500, partition=0)
    assert counts(bench) == [1]


# ---- the age of a batch ----------------------------------------------------------------------------------------------------------------


def test_the_age_begins_after_the_wait_for_memory() -> None:
    """RecordAccumulator.append: "Update the current time in case the buffer allocation blocked above"."""
    small = {"batch_size": 1000, "buffer_memory": 1000}
    bench = Bench(partitions=1, linger_ms=10, delivery_timeout_ms=4000, request_timeout_ms=900, **small, **PLAIN)
    first = bench.send("t", b"A" * 800, partition=0)
    no_leader(bench)

    def expire(deadline_ms: int, urgent: bool) -> None:
        if bench.pool.queued:  # the thread waits for memory
            bench.step(4000)

    bench.accumulator.wake = expire
    bench.max_block_ms = 10_000
    second = bench.send("t", b"B" * 800, partition=0)
    bench.leaders[0] = 1
    bench.publish()
    assert isinstance(first.exception(0), KafkaTimeoutError)
    (batch,) = bench.topic.partitions[0].batches
    assert batch.created_ms == bench.clock.now_ms()
    bench.step(9)
    assert not bench.client.sent  # it lingers
    bench.step(1)
    answer_all(bench)
    assert second.result(0)


@each_row("many", [False, True])
def test_a_batch_left_behind_by_an_interrupt_begins_its_life_with_its_first_record(many: bool) -> None:
    bench = Racing(partitions=1, linger_ms=10, delivery_timeout_ms=30_000, request_timeout_ms=1000, **PLAIN)
    bench.hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.send("t", b"A", partition=0)
    assert counts(bench) == [0]
    bench.step(60_000)
    started_ms = bench.clock.now_ms()
    if many:
        bench.append_many([b"next"])
        bench.append_many([b"next"], headers=[None])
    else:
        bench.send("t", b"next", partition=0)
    (batch,) = bench.topic.partitions[0].batches
    assert batch.created_ms == started_ms
    bench.step(9)
    assert not bench.client.sent  # linger_ms are not over
    bench.step(1)
    assert len(bench.client.sent) == 1
    answer_all(bench)
    assert bench.sender.counters["expired_batches"] == 0


# ---- flush, close, abort, expiry, splits ---------------------------------------------------------------------------------------------


def test_a_flush_that_drops_an_empty_batch_looks_again_at_once() -> None:
    """What waits for that batch is done: a poll without end would be a wait for nothing."""
    bench = Bench(partitions=1, **PLAIN)
    left_behind(bench)
    (batch,) = bench.accumulator.incomplete()
    bench.accumulator.begin_flush()
    bench.sender.run_once(bench.clock.now_ms())
    assert bench.client.poll_timeouts == [0]
    assert batch.delivery.finished
    assert all_memory_back(bench)


# ---- nothing outlives the delivery timeout ---------------------------------------------------------------------------------------------


def no_leader(bench: Bench) -> None:
    bench.leaders[0] = -1
    bench.publish()


def muted(bench: Bench) -> None:
    bench.topic.partitions[0].muted = True


def unreachable(bench: Bench) -> None:
    bench.client.blocked.add(1)


def behind_an_empty_batch(bench: Bench) -> None:
    unreachable(bench)
    left_behind(bench, closed=True)


def silent(bench: Bench) -> None:
    """The broker takes it and says nothing."""


def refusing(bench: Bench) -> None:
    bench.client.in_poll = lambda: [
        bench.client.answer(response((0, Code.NOT_LEADER_OR_FOLLOWER, -1)))
        for request, _ in list(bench.client.sent)
        if request.api is protocol.ProduceRequest
    ]


def too_large(bench: Bench) -> None:
    """Once; then the parts meet a broker that is not reachable."""

    def split() -> None:
        bench.client.answer(response((0, Code.MESSAGE_TOO_LARGE, -1)))
        bench.client.in_poll = lambda: None
        unreachable(bench)

    bench.client.in_poll = split


def unresolved(bench: Bench) -> None:
    """An earlier batch was given up on the wire, so that nobody knows which number is next."""
    doubts_of(bench.transactions).add(bench.topic.partitions[0])
    bench.transactions.may_drain = lambda batch: False  # type: ignore[method-assign]


TROUBLES = [no_leader, muted, unreachable, behind_an_empty_batch, silent, refusing, too_large]


@each_row(
    ("trouble", "idempotent"),
    [*((trouble, idempotent) for trouble in TROUBLES for idempotent in (True, False)), (unresolved, True)],  # only numbers are in doubt
)
def test_nothing_outlives_its_delivery_timeout(trouble: Callable[[Bench], None], idempotent: bool) -> None:
    bench = Bench(partitions=1, delivery_timeout_ms=1000, request_timeout_ms=900, enable_idempotence=idempotent)
    if idempotent:
        bench.give_producer_id()
    trouble(bench)
    began_ms = bench.clock.now_ms()
    futures = [bench.send("t", b"x" * 100, partition=0) for _ in range(2)]
    while bench.clock.now_ms() < began_ms + 1000:
        assert not any(future.done() for future in futures)
        bench.client.poll_timeouts.clear()
        bench.sender.run_once(bench.clock.now_ms())
        # as long as the pass would sleep: a sleep beyond the deadline would be one too long
        bench.clock.advance(max(1, bench.client.poll_timeouts[-1]))
    assert bench.clock.now_ms() == began_ms + 1000
    bench.sender.run_once(bench.clock.now_ms(), 0)
    assert [type(future.exception(0)) for future in futures] == [KafkaTimeoutError] * 2


def test_without_a_producer_id_records_expire() -> None:
    bench = Bench(partitions=1, delivery_timeout_ms=1000, request_timeout_ms=900)
    future = bench.send_now("t", b"x", partition=0)
    bench.step(999)
    assert not future.done()
    bench.step(1)
    assert isinstance(future.exception(0), KafkaTimeoutError)


def test_the_first_batch_is_the_oldest_after_retries_in_any_order() -> None:
    """Without numbers, answers that fail in the order of sending would turn the queue round, and the oldest expire with the youngest."""
    bench = Bench(partitions=1, delivery_timeout_ms=1000, request_timeout_ms=900, **PLAIN)
    first = bench.send_now("t", b"1", partition=0)
    bench.step(500)
    second = bench.send_now("t", b"2", partition=0)
    assert len(bench.requests()) == 2
    no_leader(bench)
    for _ in range(2):
        bench.client.answer(response((0, Code.NOT_LEADER_OR_FOLLOWER, -1)))
    bench.step()
    bench.step(500)
    assert (first.done(), second.done()) == (True, False)


def test_a_caller_whose_record_expires_on_the_wire_waits_no_further() -> None:
    """It drives: the poll of the pass that gives the record up must not be one without end."""
    bench = Bench(partitions=1, delivery_timeout_ms=1000, request_timeout_ms=900, **PLAIN)
    future = bench.send("t", b"x", partition=0)
    waits = []

    def in_poll() -> None:
        waits.append(bench.client.poll_timeouts[-1])
        assert len(waits) < 50
        bench.clock.advance(min(waits[-1], 100_000))

    bench.client.in_poll = in_poll
    assert isinstance(future.exception(None), KafkaTimeoutError)
    assert max(waits) <= 1000
