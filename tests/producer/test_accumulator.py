"""RecordAccumulator: when batches are ready, what a drain takes, retries in order, splits, expiry."""

from __future__ import annotations

import numpy as np
import pytest
from producer_support import Bench

from kafkacore._codec import ManyProgress, record_headers
from kafkacore.errors import BufferFullError, ClosedError, RecordTooLarge
from kafkacore.producer.accumulator import NEVER_MS
from tests.kit.rows import each_row

PLAIN = {"enable_idempotence": False}


def fill_batches(bench: Bench, partition: int, batches: int) -> None:
    """Makes that many full batches and starts another."""
    queue = bench.topic.partitions[partition]
    while len(queue.batches) <= batches:
        bench.send("t", b"x" * 100, partition=partition)


def ready(bench: Bench) -> tuple[set[int], int]:
    found = bench.accumulator.ready(bench.metadata.snapshot, bench.clock.now_ms())
    return found.nodes, found.next_check_ms


def drain(bench: Bench, *nodes: int) -> list[tuple[int, int]]:
    """[(partition, records)] of each drained batch, in order."""
    ready(bench)
    out = bench.accumulator.drain(nodes or (1,), bench.clock.now_ms())
    return [(batch.queue.index, batch.count) for batches in out.values() for batch in batches]


def test_the_bus_leaves_when_full_or_when_its_time_has_come() -> None:
    bench = Bench(linger_ms=10, batch_size=1024, **PLAIN)
    bench.send("t", b"x", partition=0)
    assert ready(bench) == (set(), 10)
    bench.clock.advance(4)
    assert ready(bench) == (set(), 6)
    fill_batches(bench, 0, 1)
    assert ready(bench)[0] == {1}
    assert len(drain(bench)) == 1
    assert ready(bench) == (set(), 10)  # the second batch began at 4
    bench.clock.advance(10)
    assert ready(bench)[0] == {1}


def test_flush_and_close_and_a_waiter_for_memory_make_all_ready() -> None:
    bench = Bench(linger_ms=1000, batch_size=1024, buffer_memory=2048, **PLAIN)
    bench.send("t", b"x", partition=0)
    bench.accumulator.begin_flush()
    assert ready(bench)[0] == {1}
    bench.accumulator.end_flush()
    assert ready(bench)[0] == set()
    bench.send("t", b"x", partition=1)
    seen = []
    bench.accumulator.wake = lambda deadline_ms, urgent: seen.append(ready(bench)[0]) if urgent else None
    with pytest.raises(BufferFullError) as raised:
        fill_batches(bench, 0, 1)
    assert {1} in seen
    assert raised.value.topic == "t"
    bench.accumulator.close()
    assert ready(bench)[0] == {1}
    with pytest.raises(ClosedError):
        fill_batches(bench, 0, 3)


def test_one_batch_per_partition_and_the_start_rotates() -> None:
    bench = Bench(partitions=3, batch_size=1024, max_request_size=1100, **PLAIN)
    for partition in range(3):
        fill_batches(bench, partition, 2)
    first = [drain(bench)[0][0] for _ in range(3)]
    assert sorted(first) == [0, 1, 2]  # nobody starves though only one batch fits a request


@each_row("before", [0, 1, 3], ids=["no batch", "an open batch", "a closed batch"])
def test_max_request_size_below_batch_size_holds_for_every_record(before: int) -> None:
    bench = Bench(partitions=1, batch_size=16_384, max_request_size=1_000, **PLAIN)
    for _ in range(before):
        bench.send("t", b"x" * 400, partition=0)
    with pytest.raises(RecordTooLarge, match="max_request_size"):
        bench.send("t", b"x" * 4_800, partition=0)
    with pytest.raises(RecordTooLarge, match="max_request_size"):
        bench.send("t", b"x", b"k" * 990)
    bench.send("t", b"x" * 960, partition=0)
    assert all(batch.size_bytes <= 1_100 for batch in bench.accumulator.incomplete())


@each_row("large", [970, 2_000, 15_000])
@each_row("kind", ["list", "array", "keys", "headers"])
def test_max_request_size_below_batch_size_holds_within_send_many(kind: str, large: int) -> None:
    bench = Bench(partitions=1, batch_size=16_384, max_request_size=1_000, send_many_batch_size=1 << 20, **PLAIN)
    values = [b"x" * 100] * 30 + [b"x" * large] + [b"x" * 100] * 30
    progress = ManyProgress()
    column = np.array(values) if kind == "array" else values
    keys = [b"k"] * len(values) if kind == "keys" else None
    headers = record_headers([("a", b"b")]) if kind == "headers" else None
    with pytest.raises(RecordTooLarge, match="max_request_size"):
        bench.append_many(column, keys, headers, progress=progress)
    assert progress.done == 30


def test_the_sticky_partition_moves_on_after_a_batch_of_bytes() -> None:
    bench = Bench(partitions=4, batch_size=1024, **PLAIN)
    order = iter([2, 3, 1, 0] * 10)
    bench.accumulator._choose_sticky = lambda topic: topic.partitions[next(order)]
    for _ in range(40):
        bench.send("t", b"x" * 100)
    assert [len(queue.batches) for queue in bench.topic.partitions] == [2, 1, 1, 1]


def test_a_batch_without_records_is_not_seen_and_does_not_hold_up_a_flush() -> None:
    bench = Bench(batch_size=1024, **PLAIN)
    bench.accumulator.roll(bench.topic, bench.topic.partitions[0], 100, bench.clock.now_ms(), 0)
    assert ready(bench) == (set(), 2**62)
    assert drain(bench) == []
    bench.send("t", b"x", partition=0)
    assert drain(bench) == [(0, 1)]
    bench.accumulator.roll(bench.topic, bench.topic.partitions[1], 100, bench.clock.now_ms(), 0)
    bench.accumulator.begin_flush()
    assert ready(bench)[0] == set()
    assert [batch.count for batch in bench.accumulator.incomplete()] == [1]
    bench.send("t", b"y", partition=1)
    assert drain(bench) == [(1, 1)]


class Held:
    """A lock that another thread holds, until a section waits for it."""

    def __init__(self, look) -> None:
        self.look, self.waits = look, []

    def locked(self) -> bool:
        return True

    def __enter__(self) -> None:
        self.waits.append(self.look())

    def __exit__(self, *exc: object) -> None:
        self.waits.append(self.look())


def test_a_section_that_finds_the_lock_held_waits_for_it() -> None:
    bench = Bench(**PLAIN)
    queue = bench.topic.partitions[0]
    held = bench.accumulator._lock = Held(lambda: len(queue.batches))
    bench.send("t", b"x", partition=0)
    assert held.waits == [0, 1]  # opening a batch
    held.waits.clear()
    bench.accumulator.begin_flush()
    assert drain(bench) == [(0, 1)]
    assert held.waits[-2:] == [1, 0]  # taking it out
    bench.send("t", b"x", partition=0)
    held.waits.clear()
    (batch,) = queue.batches
    assert not bench.accumulator.discard_empty(batch)
    assert held.waits == [1, 1]


def test_a_wake_up_byte_is_written_only_for_a_driver_that_sleeps_too_long() -> None:
    accumulator = Bench(**PLAIN).accumulator
    assert accumulator.disturb(5) == 0  # awake: it looks by itself
    accumulator.looking()
    assert accumulator.disturb(5) == 1  # it may have looked past the batch already ...
    assert not accumulator.sleeping(NEVER_MS)  # ... so it must not go to sleep
    assert accumulator.disturb(5) == 0
    accumulator.looking()
    assert accumulator.sleeping(10)
    assert accumulator.disturb(10) == 0  # up in time
    assert accumulator.disturb(9) == 2
    assert accumulator.disturb(9) == 0  # the byte is on its way
    for until_ms in (NEVER_MS - 1, NEVER_MS, NEVER_MS + 5):  # a sleep without end is not mistaken for a look
        accumulator.looking()
        assert accumulator.sleeping(until_ms)
        assert accumulator.disturb(5) == 2
