"""PooledBuffer: reuse, lifetime through views, bounds."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from kafkacore._codec import PooledBuffer, buffer_pool_age, buffer_pool_stats, buffer_pool_trim


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    buffer_pool_trim()
    yield
    buffer_pool_trim()


def hits() -> int:
    return buffer_pool_stats()["hits"]


def test_is_a_writable_buffer_of_the_size_asked_for() -> None:
    buffer = PooledBuffer(1_000)
    view = memoryview(buffer)
    assert (len(buffer), buffer.nbytes, view.nbytes, view.format, view.readonly) == (1_000, 1_000, 1_000, "B", False)
    view[:] = bytes(range(250)) * 4
    assert bytes(buffer) == bytes(range(250)) * 4


def test_memory_comes_back_and_is_used_again() -> None:
    buffer = PooledBuffer(5_000)
    address = np.frombuffer(buffer, np.uint8).ctypes.data
    del buffer
    assert buffer_pool_stats()["kept_bytes"] == 8_192
    before = hits()
    again = PooledBuffer(8_192)
    assert np.frombuffer(again, np.uint8).ctypes.data == address
    assert hits() == before + 1
    assert buffer_pool_stats()["kept_bytes"] == 0


def test_a_view_keeps_the_memory() -> None:
    buffer = PooledBuffer(600)
    view = memoryview(buffer)[100:200]
    view[:] = b"x" * 100
    del buffer
    assert buffer_pool_stats()["kept_bytes"] == 0
    other = PooledBuffer(600)
    memoryview(other)[:] = b"y" * 600
    assert view == b"x" * 100
    view.release()
    assert buffer_pool_stats()["kept_bytes"] == 1_024


def test_sizes_do_not_mix() -> None:
    del_me = PooledBuffer(1_024)
    del del_me
    before = hits()
    assert PooledBuffer(1_025).nbytes == 1_025
    assert hits() == before


@pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 513, 1 << 20])
def test_edges(nbytes: int) -> None:
    buffer = PooledBuffer(nbytes)
    memoryview(buffer)[:] = b"z" * nbytes
    assert bytes(buffer) == b"z" * nbytes


def test_blocks_start_on_a_cache_line() -> None:
    for nbytes in (10, 5_000, 1 << 20):
        assert np.frombuffer(PooledBuffer(nbytes), np.uint8).ctypes.data % 64 == 0


def test_what_is_kept_is_bounded() -> None:
    limit = buffer_pool_stats()["keep_limit_bytes"]
    buffers = [PooledBuffer(1 << 26) for _ in range(limit // (1 << 26) + 2)]  # never touched: no page is faulted in
    buffers.clear()
    assert buffer_pool_stats()["kept_bytes"] == limit
    assert buffer_pool_trim() == limit
    assert buffer_pool_stats()["kept_bytes"] == 0


def test_larger_blocks_are_not_kept() -> None:
    PooledBuffer((1 << 26) + 1)
    assert buffer_pool_stats()["kept_bytes"] == 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match="negative"):
        PooledBuffer(-1)
    with pytest.raises(MemoryError):
        PooledBuffer(2**62)
    with pytest.raises(OverflowError):
        PooledBuffer(2**64)
    with pytest.raises(AttributeError):
        PooledBuffer(1).nbytes = 5


def kept() -> int:
    return buffer_pool_stats()["kept_bytes"]


def test_what_nobody_took_for_a_while_goes_back() -> None:
    for now_ms in (0, 30_000):  # a clock of our own: the second look is the first to count
        buffer_pool_age(now_ms)
    both = [PooledBuffer(1 << 20), PooledBuffer(1 << 20), PooledBuffer(5_000)]
    both.clear()
    assert buffer_pool_age(60_000) == 0  # they came back since the last look
    del both
    PooledBuffer(1 << 20)  # one of the two is used
    assert buffer_pool_age(89_999) == 0
    assert kept() == (2 << 20) + 8_192
    assert buffer_pool_age(90_000) == (1 << 20) + 8_192
    assert kept() == 1 << 20
    assert buffer_pool_age(120_000) == 1 << 20
    assert kept() == 0
    assert buffer_pool_age(150_000) == 0


def test_the_blocks_that_stay_are_whole() -> None:
    for now_ms in (0, 30_000):
        buffer_pool_age(now_ms)
    many = [PooledBuffer(4_096) for _ in range(10)]
    many.clear()
    buffer_pool_age(60_000)
    some = [PooledBuffer(4_096) for _ in range(4)]
    some.clear()
    assert buffer_pool_age(90_000) == 6 * 4_096
    before = hits()
    some = [PooledBuffer(4_096) for _ in range(5)]
    assert hits() == before + 4
    for number, buffer in enumerate(some):
        memoryview(buffer)[:] = bytes([number]) * 4_096
    assert [bytes(buffer) == bytes([number]) * 4_096 for number, buffer in enumerate(some)] == [True] * 5


def test_another_clock_begins_again() -> None:
    for now_ms in (0, 30_000, 10**9):
        buffer_pool_age(now_ms)
    PooledBuffer(1 << 20)
    buffer_pool_age(2 * 10**9)
    assert buffer_pool_age(5) == 0  # earlier than the last look
    assert buffer_pool_age(30_004) == 0
    assert buffer_pool_age(30_005) == 1 << 20
