"""BufferPool: exact accounting, order of waiters, time-outs, interrupts; after org.apache.kafka...BufferPoolTest."""

import threading
from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkacore._codec import PooledBuffer
from kafkacore.errors import BufferFullError, ClosedError, RecordTooLarge
from kafkacore.producer.accumulator import BufferPool
from tests.kit.inside import waiters_of
from tests.kit.reached import Reached


def waiting(pool: BufferPool, count: int) -> None:
    """Spins until that many threads wait."""
    while pool.queued != count:
        pass


class Taker(threading.Thread):
    def __init__(self, pool: BufferPool, nbytes: int, max_block_ms: int = 10_000) -> None:
        super().__init__(daemon=True)
        self.pool, self.nbytes, self.max_block_ms = pool, nbytes, max_block_ms
        self.buffer: PooledBuffer | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.buffer = self.pool.allocate(self.nbytes, self.max_block_ms)
        except BaseException as error:
            self.error = error

    def finish(self) -> "Taker":
        self.join(60)
        assert not self.is_alive()
        return self


def test_pooled_buffers_come_back_as_they_were() -> None:
    pool = BufferPool(64 * 1024, 1024)
    buffer = pool.allocate(1024, 0)
    memoryview(buffer)[:5] = b"dirty"
    assert (pool.available_bytes, pool.unallocated_bytes) == (63 * 1024, 63 * 1024)
    pool.deallocate(buffer, 1024)
    assert (pool.available_bytes, pool.unallocated_bytes) == (64 * 1024, 63 * 1024)
    again = pool.allocate(1024, 0)
    assert again is buffer
    assert bytes(memoryview(again)[:5]) == b"dirty"


def test_more_than_the_pool_is_refused_at_once() -> None:
    pool = BufferPool(1024, 512)
    with pytest.raises(RecordTooLarge):
        pool.allocate(1025, 10_000)
    assert pool.available_bytes == 1024


def test_interrupted_waiter_gives_its_grant_to_the_next() -> None:
    pool = BufferPool(10, 1)
    held = pool.allocate(9, 0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.allocate(5, 10_000, interrupt)
    assert (pool.queued, pool.available_bytes) == (0, 1)
    pool.deallocate(held, 9)
    assert pool.available_bytes == 10


def test_close_wakes_waiters_and_still_takes_memory_back() -> None:
    pool = BufferPool(2, 1)
    held = pool.allocate(2, 0)
    taker = Taker(pool, 1)
    waiting(pool, 1)
    pool.close()
    assert isinstance(taker.finish().error, ClosedError)
    with pytest.raises(ClosedError):
        pool.allocate(1, 0)
    pool.deallocate(held, 2)
    assert pool.available_bytes == 2


reached = Reached(
    "a waiter gets a part",
    "two waiters wake from one return",
    "a waiter behind the first ends",
)


class PoolMachine(RuleBasedStateMachine):
    """Any order of allocations, waits, time-outs and returns, against a model: a counter and a queue.

    Waits are real threads. A wait ends without its memory when somebody opens its gate, which is what a time-out amounts to.
    """

    TOTAL, POOLED = 1000, 100

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(self.TOTAL, self.POOLED)
        self.free = self.TOTAL
        self.waiting: deque[tuple[Taker, int]] = deque()  # in order, with what is still missing
        self.held: list[PooledBuffer] = []

    def give(self, nbytes: int) -> None:
        """The model: memory goes to the first waiter, and only when he has all of it to the next."""
        self.free += nbytes
        served = 0
        while self.waiting and self.free:
            taker, missing = self.waiting[0]
            grant = min(missing, self.free)
            self.free -= grant
            reached("a waiter gets a part", grant < missing)
            if grant < missing:
                self.waiting[0] = (taker, missing - grant)
                return
            self.waiting.popleft()
            reached("two waiters wake from one return", served)
            served += 1
            buffer = taker.finish().buffer
            assert buffer is not None, taker.error
            assert buffer.nbytes == taker.nbytes
            self.held.append(buffer)

    sizes = st.sampled_from([POOLED, POOLED, 1, 250, 600])

    @initialize(waits=st.lists(st.sampled_from([POOLED, 250, 600]), max_size=3))
    def takes(self, waits: list[int]) -> None:
        for nbytes in (250, 250, 400, self.POOLED):
            self.try_only(nbytes)
        for nbytes in waits:
            self.wait(nbytes)

    @rule(nbytes=sizes)
    def try_only(self, nbytes: int) -> None:
        if self.waiting or self.free < nbytes:
            with pytest.raises(BufferFullError):
                self.pool.allocate(nbytes, 0)
            return
        self.held.append(self.pool.allocate(nbytes, 0))
        self.free -= nbytes

    @rule(nbytes=sizes)
    def wait(self, nbytes: int) -> None:
        before = self.pool.queued
        taker = Taker(self.pool, nbytes, 60_000)
        while self.pool.queued == before and taker.is_alive():
            pass
        self.waiting.append((taker, nbytes))
        self.give(0)

    @rule(at=st.integers(0, 3))
    def wait_ends_in_vain(self, at: int) -> None:
        if at >= len(self.waiting):
            return
        taker, missing = self.waiting[at]
        reached("a waiter behind the first ends", at)
        del self.waiting[at]
        waiters_of(self.pool)[at].gate.release()
        assert isinstance(taker.finish().error, BufferFullError)
        self.give(taker.nbytes - missing)

    @rule(at=st.integers(0, 1000))
    def free_one(self, at: int) -> None:
        if self.held:
            buffer = self.held.pop(at % len(self.held))
            self.pool.deallocate(buffer, buffer.nbytes)
            self.give(buffer.nbytes)

    @invariant()
    def every_byte_is_somewhere(self) -> None:
        assert self.pool.available_bytes == self.free
        assert [waiter.nbytes - waiter.granted for waiter in waiters_of(self.pool)] == [missing for _, missing in self.waiting]

    def teardown(self) -> None:
        self.pool.close()
        for taker, _ in self.waiting:
            assert isinstance(taker.finish().error, ClosedError)
        for buffer in self.held:
            self.pool.deallocate(buffer, buffer.nbytes)
        assert self.pool.available_bytes == self.TOTAL


TestPool = reached.by(PoolMachine, rounds=6)
TestPool.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
