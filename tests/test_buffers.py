"""PooledBuffer: reuse, lifetime through views, bounds."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from kafkacore._codec import PooledBuffer, buffer_pool_stats, buffer_pool_trim


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
