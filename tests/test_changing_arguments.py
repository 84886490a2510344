"""Arrays and buffers that change while a call reads them: an index, a length or an offset of theirs is copied or bounded where it is used.

numpy lets go of the GIL while it fills an array, so a thread can change one at any moment, also in the middle of a compiled loop. The last
tests here do that for a number of rounds. What counts is that the process lives: `make sanitize` runs them with ASAN, which sees each byte
beside a block.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkacore import records
from kafkacore._codec import json_columns, json_rows
from kafkacore._wheel import TimingWheel
from kafkacore.errors import KafkaError
from kafkacore.producer import KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row

REFUSALS = (KafkaError, ValueError, TypeError, IndexError, OverflowError, BufferError, pa.ArrowException)
ROUNDS = 3_000
N = 1_000  # numpy holds the GIL for 500 items and fewer


# ---- one change, at a known place ------------------------------------------------------------------------------------------------------


@each_row("later", [1, -1, 3, 50_000_000], ids=["another", "none", "unknown", "far"])
def test_partitions_that_change_while_send_many_waits(later: int) -> None:
    asked = np.zeros(2_000, np.int32)

    class Producer(KafkaProducer):
        def _roll_many(self, *args: Any) -> int:
            asked[:] = later
            return super()._roll_many(*args)

    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, send_many_batch_size=16_384) as producer:
            sent = producer.send_many("t", [b"v" * 100] * len(asked), partitions=asked).result(30)
        assert (asked == later).all()
        assert not sent.errors
        assert (sent.partitions == 0).all()


@pytest.mark.parametrize("kind", [list, tuple])
def test_headers_whose_list_becomes_shorter(kind: type) -> None:
    headers: list[Any] = []

    class Pairs(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            headers.clear()
            return iter([("a", b"b")])

    headers += [Pairs([None]) for _ in range(100)]
    given = headers if kind is list else tuple(headers)
    builder = records.BatchBuilder()
    if kind is tuple:
        assert builder.append_many([b"v"] * 100, headers=given) == 100
        return
    with pytest.raises(IndexError):
        builder.append_many([b"v"] * 100, headers=given)


def test_a_message_that_becomes_a_batch() -> None:
    """Only its length says how far it may be read: a batch header of magic 2 is longer than a whole message."""
    builder = records.BatchBuilder(magic=1)
    builder.append(None, timestamp_ms=7)
    memory = bytearray(builder.build())
    assert len(memory) == 34
    (message,) = records.read_batches(memory)
    seen = (message.record_count, message.last_offset, message.producer_id, message.is_control, message.max_timestamp_ms)
    memory[16] = 2
    assert (message.record_count, message.last_offset, message.producer_id, message.is_control) == seen[:4]
    with pytest.raises(ValueError, match="read by columns"):
        message.scan()
    with contextlib.suppress(KafkaError):
        message.records()


@each_row("aborted", [[(1,)], [()], [[1]], [(1, 2, 3)], [None]], ids=repr)
def test_aborted_transactions_that_are_no_pairs(aborted: list[Any]) -> None:
    builder = records.BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(b"value")
    with pytest.raises((TypeError, ValueError)):
        records.PartitionReader(builder.build(), aborted=aborted).records()


def test_log_append_time_of_a_batch_with_another_length() -> None:
    """The checksum is over the batch that was checked, which is shorter than the memory here."""
    builder = records.BatchBuilder()
    builder.append(b"value", timestamp_ms=7)
    batch = bytes(builder.build())
    memory = bytearray(batch + bytes(500))
    records.set_log_append_time(memory, 9)
    (found,) = records.read_batches(memory[: len(batch)])
    assert found.records()[0].timestamp_ms == 9


def test_the_data_of_an_arrow_array_ends_where_its_buffer_does() -> None:
    """Not where its last offset says, which may have changed."""
    offsets = np.arange(0, 44, 4, np.int32)
    column = pa.Array.from_buffers(pa.binary(), 10, [None, pa.py_buffer(offsets), pa.py_buffer(np.full(40, 65, np.uint8))])
    text = pa.Array.from_buffers(pa.string(), 10, [None, pa.py_buffer(offsets), pa.py_buffer(np.full(40, 65, np.uint8))])
    rows = pa.StructArray.from_arrays([text], ["a"])
    offsets[10] = 1 << 20
    with pytest.raises(ValueError, match="item 9"):
        records.BatchBuilder().append_many(column)
    with pytest.raises(ValueError, match="item 9"):
        json_columns(column, (b"a",), "l")
    with pytest.raises(ValueError, match="not inside"):
        json_rows(rows)


# ---- a thread that changes them all the time -------------------------------------------------------------------------------------------


class Changing:
    """Arrays that a thread fills by turns with what fits and with what does not."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._turns: list[tuple[Any, list[Any]]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._rng = rng
        self._ended = threading.Event()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._change, name="changes arguments", daemon=True)

    def array(self, fits: Any, *others: Any) -> Any:
        array = np.array(fits)
        self._turns.append((array, [np.array(fits), *(np.array(other, array.dtype) for other in others)]))
        return array

    def odd(self, count: int, dtype: Any) -> Any:
        """Numbers of any size, most of them near the ends of their range or of what fits."""
        info, noise = np.iinfo(dtype), np.frombuffer(self._rng.bytes(count * np.dtype(dtype).itemsize), dtype)
        edges = np.array([info.min, info.max, 0, 1, info.max // 2, min(N, info.max), min(12 * N, info.max)], dtype)
        return np.where(self._rng.random(count) < 0.5, self._rng.choice(edges, count), noise)

    def offsets(self, dtype: Any, size: int = 10) -> Any:
        """Those of N values in `size` * N bytes: alike, of different lengths, decreasing, of any number."""
        fits = np.arange(0, size * N + 1, size, dtype)
        uneven = np.sort(self._rng.integers(0, size * N, N + 1)).astype(dtype)
        return self.array(fits, uneven, uneven[::-1], self.odd(N + 1, dtype), np.full(N + 1, -5, dtype))

    def list_of(self, make: Callable[[], Any]) -> list[Any]:
        given = [make() for _ in range(N)]
        self._lists.append((given, list(given)))
        return given

    def _change(self) -> None:
        for turn in itertools.count():
            for array, contents in self._turns:
                array[:] = contents[turn % len(contents)]
            for given, items in self._lists:
                if turn % 3 == 0:
                    del given[N // 2 :]
                elif turn % 3 == 1:
                    given[:] = [None] * (N // 4)
                else:
                    given[:] = items
            self._began.set()
            if self._ended.is_set():
                return

    def __enter__(self) -> Changing:
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        sys.setswitchinterval(self._interval)
        self._thread.join()


def changing_batch(changing: Changing, **settings: Any) -> Any:
    """A batch of records in memory that changes."""
    builder = records.BatchBuilder(max_bytes=1 << 20, **settings)
    headers = [[("name", b"value"), ("Ä" * 9, None)]] * 50 if settings.get("magic", 2) == 2 else None
    builder.append_many([b"v" * 30] * 50, [b"key"] * 50, headers, timestamps_ms=9)
    fits = np.frombuffer(bytes(builder.build()), np.uint8)
    wounded = [fits.copy() for _ in range(6)]
    for each in wounded[:4]:
        each[changing._rng.integers(0, len(fits), 40)] = changing._rng.integers(0, 256, 40)
    wounded[4][61:] = changing._rng.integers(0, 256, len(fits) - 61)
    wounded[5][16] ^= 3
    return changing.array(fits, *wounded)


def layouts(changing: Changing) -> list[Any]:
    """The layouts of columns in memory, each over arrays that change."""
    data = changing.array(np.full(10 * N, 65, np.uint8), changing.odd(10 * N, np.uint8))
    narrow, wide = changing.offsets(np.int32), changing.offsets(np.int64)
    bits = changing.array(np.full(N, 255, np.uint8), changing.odd(N, np.uint8))
    views = np.zeros(4 * N, np.int32)
    views[0::4], views[2::4], views[3::4] = 20, 0, np.arange(N) * 9
    views = changing.array(views, changing.odd(4 * N, np.int32), np.tile(np.array([13, 0, 0, 10 * N - 13], np.int32), N))
    return [
        (data, narrow),
        (data, wide),
        data.view("S10"),
        data.view("V10"),
        pa.Array.from_buffers(pa.binary(), N, [None, pa.py_buffer(narrow), pa.py_buffer(data)]),
        pa.Array.from_buffers(pa.large_string(), N, [pa.py_buffer(bits), pa.py_buffer(wide), pa.py_buffer(data)]),
        pa.Array.from_buffers(pa.binary_view(), N, [None, pa.py_buffer(views), pa.py_buffer(data)]),
    ]


def build_of_columns(changing: Changing) -> Callable[[int], object]:
    made = layouts(changing)
    times = changing.array(np.arange(N, dtype=np.int64), changing.odd(N, np.int64))
    plain = [b"v" * 10] * N

    def build(turn: int) -> None:
        builder = records.BatchBuilder(max_bytes=1 << 20)
        column, keys = made[turn % len(made)], made[(turn // 2) % len(made)]
        how = turn % 4
        values = plain if how == 3 else column
        builder.append_many(values, keys if how & 1 else None, timestamps_ms=times if how & 2 else None)
        builder.build()

    return build


def batches(changing: Changing) -> Callable[[int], object]:
    memories = [changing_batch(changing), changing_batch(changing, magic=1), changing_batch(changing, compression="gzip")]

    def read(turn: int) -> None:
        memory = memories[turn % len(memories)]
        for batch in records.read_batches(memory, turn & 1 == 0):
            repr(batch)
            for look in ("control_type", "record_count", "base_offset", "base_timestamp_ms", "last_sequence"):
                with contextlib.suppress(*REFUSALS):
                    getattr(batch, look)
            for read_all in (batch.scan, batch.records):
                with contextlib.suppress(*REFUSALS):
                    read_all()
            found = batch.columns()
            found.to_records()
            if len(found):
                pa.record_batch(records.ArrowBatch(found, len(found), "view", "binary", True))
            found.keys.to_pylist()

    return read


def timers(changing: Changing) -> Callable[[int], object]:
    wheel = TimingWheel(1, 8, 0)
    times = changing.array(np.arange(N, dtype=np.int64), changing.odd(N, np.int64))
    handles = changing.array(wheel.add_many(np.arange(N)), changing.odd(N, np.int64))

    def use(turn: int) -> None:
        wheel.cancel_many(wheel.add_many(times))
        wheel.cancel_many(handles)
        wheel.pop_expired_many(turn)

    return use


@each_row("make", [build_of_columns, batches, timers])
def test_readers_of_what_changes(make: Callable[[Changing], Callable[[int], object]]) -> None:
    changing = Changing(7)
    call = make(changing)
    for turn in range(24):
        call(turn)  # nothing is refused while nothing changes
    with changing:
        for turn in range(ROUNDS):
            with contextlib.suppress(*REFUSALS):
                call(turn)


def test_producers_of_what_changes() -> None:
    changing = Changing(9)
    made = layouts(changing)
    values = changing.list_of(lambda: b"value" * 3)
    partitions = changing.array(np.zeros(N, np.int32), np.ones(N, np.int32), changing.odd(N, np.int32))
    times = changing.array(np.arange(N, dtype=np.int64), changing.odd(N, np.int64))
    numbers = changing.array(np.arange(N, dtype=np.int64), changing.odd(N, np.int64))
    frame = pa.table({"p": pa.array(partitions), "n": pa.array(numbers), "t": pa.array(times)})
    draw = random.Random(5)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=2)
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, buffer_memory=1 << 20, max_block_ms=30_000, enable_idempotence=False, acks=0
        ) as producer:
            for each in (values, *made):
                producer.send_many("t", each, each, partitions=partitions, timestamps_ms=times)
            producer.send_frame("t", frame, value=["n", "t"], value_format="json", partition="p", timestamp="t")
            with changing:
                for turn in range(ROUNDS // 10):
                    with contextlib.suppress(*REFUSALS):
                        if turn % 6 == 5:
                            producer.send_frame("t", frame, value=["n", "t"], value_format="json", partition="p", timestamp="t")
                            continue
                        producer.send_many(
                            "t",
                            values if turn % 3 == 0 else draw.choice(made),
                            draw.choice((None, values, *made)),
                            partitions=draw.choice((None, partitions)),
                            timestamps_ms=draw.choice((None, times)),
                        )
