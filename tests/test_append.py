"""The append path alone: the bytes of batches, futures and deliveries, against independent decoders."""

import asyncio
import gc
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import _codec, compress
from kafkacore._codec import ManyProgress, PooledBuffer, ProducerBatch, ProducerCore, TopicQueue
from kafkacore.errors import KafkaError, UsageError
from kafkacore.producer import futures
from kafkacore.records import read_batches
from kafkacore.types import RecordMetadata, TopicPartition
from tests.kit.reached import Reached

BATCH_BYTES = 4096


class Core(ProducerCore):
    """Rolls into a fresh batch whenever one is full; keeps them all."""

    def __init__(self, partitions: int = 3, batch_bytes: int = BATCH_BYTES) -> None:
        self.queue = TopicQueue("t")
        self.queue.grow(partitions, TopicPartition)
        self._add_topic(self.queue)
        self._fast = True
        self.batch_bytes = batch_bytes
        self.refuse = False

    def _roll(self, queue: TopicQueue, chosen: Any, nbytes: int) -> None:
        if self.refuse:
            raise BufferError("full")
        size = max(self.batch_bytes, nbytes + _codec.BATCH_OVERHEAD_BYTES)
        target = queue.sticky if chosen is None else chosen
        target.begin(ProducerBatch(target, PooledBuffer(size), size, None, 0))

    def _begun(self) -> None:
        self.begun = getattr(self, "begun", 0) + 1

    def _send_general(self, *args: Any) -> Any:
        raise LookupError(args)

    def batches(self) -> list[ProducerBatch]:
        return [batch for queue in self.queue.partitions for batch in queue.batches]


def sealed(batch: ProducerBatch, codec: int = 0) -> bytes:
    batch.close()
    body = compress.compress(codec, batch.records()) if codec else None
    return b"".join(bytes(piece) for piece in batch.seal(codec, body, False))


values = st.sampled_from([None, b"", b"x" * 300, b"y" * 290, "schl\u00fcssel"]) | st.binary(max_size=9) | st.text(max_size=9)


landed = Reached("several batches", "one batch", "a null", "an empty value")


@landed.by
@given(st.lists(st.tuples(values, values, st.integers(0, 2**44)), min_size=1, max_size=60))
def test_every_record_lands_once_in_order(records: list[tuple[Any, Any, int]]) -> None:
    core = Core(partitions=1, batch_bytes=512)
    sent = [core.send("t", value, key, timestamp_ms=ts) for value, key, ts in records]
    read = [record for batch in core.batches() for record in next(iter(read_batches(sealed(batch)))).records()]

    def raw(item: Any) -> Any:
        return item.encode() if isinstance(item, str) else item

    assert [(r.value, r.key, r.timestamp_ms) for r in read] == [(raw(v), raw(k), ts) for v, k, ts in records]
    assert len(sent) == len(records)
    landed("several batches", len(core.batches()) > 1)
    landed("one batch", len(core.batches()) == 1)
    landed("a null", any(value is None for value, _, _ in records))
    landed("an empty value", any(value in (b"", "") for value, _, _ in records))


many_sent = Reached("several batches", "several partitions", "a null")


@many_sent.by
@settings(deadline=None)  # the first example imports pyarrow
@given(st.lists(values, min_size=1, max_size=80), st.sampled_from(["list", "pair", "keyed", "arrow"]), st.booleans())
def test_send_many_writes_what_send_writes(items: list[Any], shape: str, own_times: bool) -> None:
    one, many = Core(batch_bytes=1024), Core(batch_bytes=1024)
    raw = [item.encode() if isinstance(item, str) else item for item in items]
    keys = [b"k%d" % (i % 7) for i in range(len(raw))] if shape == "keyed" else None
    times = np.arange(len(raw), dtype=np.int64) * 3 + 100 if own_times else None
    source: Any = raw
    if shape == "pair":
        raw = [item or b"" for item in raw]
        source = (b"".join(raw), np.cumsum([0] + [len(item) for item in raw]).astype(np.int32))
    elif shape == "arrow":
        pa = pytest.importorskip("pyarrow")
        source = pa.array(raw, pa.large_binary())
    for i, item in enumerate(raw):
        one.send("t", item, keys[i] if keys else None, timestamp_ms=100 if times is None else int(times[i]))
    progress = ManyProgress()
    key_column = None if keys is None else _codec.ColumnSource(keys)
    many._append_many(many.queue, _codec.ColumnSource(source), key_column, None, None, 100, times, progress)
    assert progress.done == len(raw)
    many_sent("several batches", len(many.batches()) > 1)
    many_sent("several partitions", len({batch.queue.index for batch in many.batches()}) > 1)
    many_sent("a null", None in raw)
    assert [sealed(batch) for batch in many.batches()] == [sealed(batch) for batch in one.batches()]
    for number, batch in enumerate(many.batches()):
        batch.delivery.resolve(1000 * number, -1, None)
    assert len({*zip(progress.partitions().tolist(), progress.offsets().tolist(), strict=True)}) == len(raw)
    assert {*progress.deliveries} == {batch.delivery for batch in many.batches()}


def test_bad_arguments_leave_the_batch_alone() -> None:
    core = Core()
    core.send("t", b"x", partition=0)
    for call in (
        lambda: core.send("t", 3),
        lambda: core.send("t", b"x", key=1.5),
        lambda: core.send("t", b"x", headers=[(None, b"")]),
        lambda: core.send("t", b"x", headers=[("a", 7)]),
        lambda: core.send("t", b"x", headers=["ab"]),
        lambda: core.send("t", b"x", headers=[b"ab"]),
        lambda: core.send("t", b"x", timestamp_ms="now"),
        lambda: core.send("t", "\ud800"),
    ):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            call()
    with pytest.raises(UsageError, match="has 3"):
        core.send("t", b"x", partition=3)
    with pytest.raises(ValueError, match="negative"):
        core.send("t", b"x", timestamp_ms=-2)
    with pytest.raises(LookupError):
        core.send("unknown", b"x")
    assert [batch.count for batch in core.batches()] == [1]


def test_future_tells_offset_time_and_sizes() -> None:
    core = Core()
    futures_ = [core.send("t", b"abc", b"k", partition=2, timestamp_ms=50 + i) for i in range(3)]
    nulls = core.send("t", partition=2, timestamp_ms=60)
    (batch,) = core.batches()
    batch.close()
    assert not futures_[0].done()
    assert batch.delivery.resolve(100, -1, None)
    assert not batch.delivery.resolve(200, -1, None)
    assert [f.result() for f in futures_] == [RecordMetadata("t", 2, 100 + i, 50 + i, 1, 3) for i in range(3)]
    assert nulls.result() == RecordMetadata("t", 2, 103, 60, -1, -1)


def test_log_append_time_wins_and_single_records_may_fail() -> None:
    core = Core()
    good, bad = core.send("t", b"a", partition=0), core.send("t", b"b", partition=0)
    (batch,) = core.batches()
    batch.close()
    refused = KafkaError("no key")
    batch.delivery.resolve(10, 777, None, {1: refused})
    assert good.result().timestamp_ms == 777
    assert bad.exception() is refused
    assert (batch.delivery.failed, batch.delivery.unobserved) == (1, 0)


def test_callbacks_run_once_per_record_and_one_failure_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    core = Core()
    seen: list[Any] = []

    def broken(metadata: Any, error: Any) -> None:
        raise RuntimeError("mine")

    core.send("t", b"a", partition=0, on_delivery=broken)
    f = core.send("t", b"b", partition=0, on_delivery=lambda metadata, error: seen.append((metadata.offset, error)))
    f.add_done_callback(lambda future: seen.append(future is f))
    (batch,) = core.batches()
    batch.close()
    batch.delivery.resolve(5, -1, None)
    f.add_done_callback(lambda future: seen.append("late"))
    assert seen == [(6, None), True, "late"]
    assert "t-0" in caplog.text


def test_await_costs_one_wakeup_per_batch_and_loop() -> None:
    core = Core()

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        calls = []
        plain = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *a: (calls.append(a), plain(*a))[1]  # type: ignore[assignment, method-assign]

        async def one(future: Any) -> int:
            return int((await future).offset)

        tasks = [asyncio.ensure_future(one(core.send("t", b"x", partition=0))) for _ in range(50)]
        await asyncio.sleep(0)
        (batch,) = core.batches()
        batch.close()
        batch.delivery.resolve(1000, -1, None)
        out = await asyncio.gather(*tasks)
        assert len(calls) == 1
        return out

    assert asyncio.run(run()) == list(range(1000, 1050))


divided = Reached("in two", "in more", "not at all")


@divided.by
@given(st.lists(st.sampled_from([0, 1, 50, 190]).map(bytes), min_size=2, max_size=50), st.sampled_from([200, 210, 300, 900]))
def test_split_keeps_records_order_and_futures(items: list[bytes], target: int) -> None:
    core = Core(partitions=1, batch_bytes=32_768)
    sent = [core.send("t", item, b"k", timestamp_ms=1000 - i, headers=[("h", b"1")] if i % 3 else None) for i, item in enumerate(items)]
    (batch,) = core.batches()
    batch.close()
    parts = batch.split(target, lambda nbytes: ProducerBatch(batch.queue, PooledBuffer(nbytes), nbytes, None, 0))
    divided("in two", len(parts) == 2)
    divided("in more", len(parts) > 2)
    divided("not at all", len(parts) == 1)
    read = [record for part in parts for record in next(iter(read_batches(sealed(part)))).records()]
    expected = [(item, 1000 - i, (("h", b"1"),) if i % 3 else ()) for i, item in enumerate(items)]
    assert [(r.value, r.timestamp_ms, r.headers) for r in read] == expected
    base = 500
    for part in parts:
        assert not batch.delivery.resolved
        part.delivery.resolve(base, -1, None)
        base += part.count
    assert [f.result().offset for f in sent] == list(range(500, 500 + len(items)))


def test_a_split_divides_even_where_one_record_leaves_room_in_its_buffer() -> None:
    core = Core(partitions=1, batch_bytes=1_000)
    for item in (b"y" * 600, b"fits", b"z" * 20):
        core.send("t", item)
    (batch,) = core.batches()
    batch.close()
    parts = batch.split(400, lambda nbytes: ProducerBatch(batch.queue, PooledBuffer(nbytes), nbytes, None, 0))
    assert [part.count for part in parts] == [1, 2]


def test_a_kept_future_is_small_and_holds_no_buffer() -> None:
    core = Core(partitions=1, batch_bytes=1 << 16)
    future = core.send("t", b"x" * 100)
    assert sys.getsizeof(future) <= 56 and not gc.is_tracked(future)
    (batch,) = core.batches()
    batch.close()
    buffer = batch.drop_buffer()
    assert not any(referrer is future or referrer is batch.delivery for referrer in gc.get_referrers(buffer))


def test_the_records_of_a_closed_batch_stay_as_they_are() -> None:
    core = Core(partitions=1, batch_bytes=1 << 12)
    core.send("t", b"first")
    (closed,) = core.batches()
    closed.close()
    before = bytes(closed.records())
    core.send("t", b"second")
    assert [batch.count for batch in core.batches()] == [1, 1]
    closed.set_producer_state(7, 1, 5)
    assert bytes(closed.records()) == before
    (read,) = read_batches(sealed(closed))
    assert (read.producer_id, [record.value for record in read.records()]) == (7, [b"first"])


def test_memory_per_queued_record_is_within_bounds() -> None:
    core = Core(partitions=1, batch_bytes=1 << 16)
    for _ in range(20_000):
        core.send("t", b"x" * 100)
    assert sum(batch.reserved_bytes for batch in core.batches()) / 20_000 <= 130


def test_batch_future_scatters_offsets() -> None:
    core = Core()
    progress = ManyProgress()
    column = _codec.ColumnSource([b"a", b"b", b"c", b"d", b"e", b"f"])
    core._append_many(core.queue, column, None, None, np.array([0, 1, 0, 2, 1, 0], np.int32), 5, None, progress)
    future = futures.BatchFuture("t", progress)
    by_partition = {batch.queue.index: batch for batch in core.batches()}
    for partition, base in ((0, 10), (1, 20)):
        by_partition[partition].close()
        by_partition[partition].delivery.resolve(base, -1, None)
    assert not future.done()
    broken = KafkaError("gone")
    by_partition[2].close()
    by_partition[2].delivery.resolve(-1, -1, broken)
    result = future.result(0)
    assert result.offsets.tolist() == [10, 20, 11, -1, 21, 12]
    assert result.partitions.tolist() == [0, 1, 0, 2, 1, 0]
    assert result.errors == {3: broken}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes export buffers since Python 3.12 (PEP 688)")
def test_a_value_that_goes_while_its_key_is_read() -> None:
    core = Core(partitions=1, batch_bytes=1 << 16)
    core.send("t", b"first")
    values: list[Any] = [bytes([i]) * 3000 for i in range(10)]
    reused: list[bytes] = []

    class Key:
        def __buffer__(self, flags: int) -> memoryview:
            values[:] = [None] * len(values)  # as another thread may
            reused.extend(bytes([255]) * 3000 for _ in range(10))
            return memoryview(b"k")

    core._append_many(core.queue, _codec.ColumnSource(values), _codec.ColumnSource([Key()] * 10), None, None, 5, None, ManyProgress())
    (batch,) = read_batches(sealed(core.batches()[0]))
    assert [record.value for record in batch.records()] == [b"first", bytes(3000), *[None] * 9]


def test_send_many_tells_how_far_it_came() -> None:
    core = Core(partitions=1, batch_bytes=512)
    core.send("t", b"first")
    core.refuse = True
    progress = ManyProgress()
    with pytest.raises(BufferError):
        core._append_many(core.queue, _codec.ColumnSource([b"x" * 20] * 50), None, None, None, 5, None, progress)
    assert 0 < progress.done < 50
    assert core.batches()[0].count == 1 + progress.done
    assert struct.unpack(">i", sealed(core.batches()[0])[57:61])[0] == 1 + progress.done


def test_every_way_to_call_send() -> None:
    core = Core(partitions=2)
    topic = "".join(["", "t"])
    parts = core.queue.partitions
    seen: list[Any] = []
    core.send("t", b"1", b"k", headers={"h": b"x"}, partition=1, timestamp_ms=7, on_delivery=lambda *outcome: seen.append(outcome))
    core.send(topic, value=b"2", key=b"k", partition=1)
    core.send(topic="t", value=b"3", partition=1)
    core.send(*("t", b"4"), **{"".join(["parti", "tion"]): 1, "".join(["timestamp", "_ms"]): 9})
    core.send("t", partition=1)
    ProducerCore.send(core, "t", b"6", partition=1)
    send = core.send
    send("t", b"7", partition=1)
    (batch,) = parts[1].batches
    (read,) = read_batches(sealed(batch))
    assert [(r.value, r.key) for r in read.records()] == [
        (b"1", b"k"),
        (b"2", b"k"),
        (b"3", None),
        (b"4", None),
        (None, None),
        (b"6", None),
        (b"7", None),
    ]
    assert [r.timestamp_ms for r in read.records()][::3] == [7, 9, read.records()[6].timestamp_ms]
    batch.delivery.resolve(5, -1, None)
    assert [metadata.offset for metadata, _ in seen] == [5]
    for wrong, words in (
        (lambda: core.send(), "send"),
        (lambda: core.send("t", b"", b"", None), "send"),
        (lambda: core.send("t", valu=b""), "valu"),
        (lambda: core.send("t", b"", value=b""), "value"),
        (lambda: ProducerCore.send("t", b""), "ProducerCore"),
    ):
        with pytest.raises(TypeError, match=words):
            wrong()


def test_calls_of_send_leave_no_reference_behind() -> None:
    core = Core(partitions=1, batch_bytes=1 << 20)
    value, key = b"value" * 10, b"key" * 10
    before = sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount("t")
    for _ in range(100):
        core.send("t", value, key)
        core.send("t", value=value, key=key)
        core.send(topic="t", value=value, key=key)
        with pytest.raises(TypeError):
            core.send("t", value, key, None)
        with pytest.raises(UsageError):
            core.send("t", value, key, partition=9)
    assert max(b - a for a, b in zip(before, (sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount("t")), strict=True)) < 5


@pytest.mark.parametrize("columns", [True, False])
def test_send_many_does_not_wait_for_a_batch_that_took_nothing(columns: bool) -> None:
    core = Core(partitions=1, batch_bytes=512)
    while len(core.batches()) < 2:
        core.send("t", b"x" * 20)
    full = core.batches()[1]
    while full.size_bytes < 430:
        core.send("t", b"x" * 20)
    values = [b"y" * 100] * 3
    progress = ManyProgress()
    source = (b"".join(values), np.arange(4, dtype=np.int32) * 100) if columns else values
    core._append_many(core.queue, _codec.ColumnSource(source), None, None, None, 5, None, progress)
    assert full.closed and full.delivery not in progress.deliveries and progress.done == 3
    progress.observe()
    assert full.delivery.looked_at == 0 and sum(delivery.looked_at for delivery in progress.deliveries) == 3


def test_send_many_through_a_split() -> None:
    core = Core(partitions=1, batch_bytes=1 << 12)
    core.send("t", b"first")
    progress = ManyProgress()
    core._append_many(core.queue, _codec.ColumnSource([b"z" * 200] * 9), None, None, None, 5, None, progress)
    (batch,) = core.batches()
    batch.close()
    parts = batch.split(600, lambda nbytes: ProducerBatch(batch.queue, PooledBuffer(nbytes), nbytes, None, 0))
    assert len(parts) > 3
    broken = KafkaError("gone")
    offset, expected, failed = 100, [], []
    for number, part in enumerate(parts):
        part.delivery.resolve(-1 if number == 1 else offset, -1, broken if number == 1 else None)
        for _ in range(part.count):
            failed += [len(expected) - 1] if number == 1 else []
            expected.append(-1 if number == 1 else offset)
            offset += number != 1
    assert progress.offsets().tolist() == expected[1:]
    assert progress.errors() == dict.fromkeys((at for at in failed if at >= 0), broken)
    assert progress.partitions().tolist() == [0] * 9
