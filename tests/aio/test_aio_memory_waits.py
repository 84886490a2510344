"""A wait for buffer_memory in an event loop: for more than a batch, for a moment; then for what is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkacore.aio import KafkaProducer
from kafkacore.aio import producer as module
from kafkacore.aio.calls import Gate
from tests.kit.inside import bind, memory_of, pool_of, producer_in
from tests.kit.loops import turns

GUARD_S = 60
BATCH_BYTES, TOTAL_BYTES = 16 * 1024, 16 * 48 * 1024  # a sixteenth is three batches
Free = Callable[[], None]


def in_full_memory(test: Callable[[KafkaProducer, list[Free]], Any]) -> None:
    """Runs a test with a producer whose memory is taken; each call of the list frees a batch."""

    async def guarded() -> None:
        async with asyncio.timeout(GUARD_S), KafkaProducer(bootstrap_servers="127.0.0.1:1", buffer_memory=TOTAL_BYTES) as producer:
            bind(producer)
            pool = pool_of(producer_in(producer))
            rest = pool.watch(TOTAL_BYTES - 3 * BATCH_BYTES, Gate(lambda: None))
            taken = [pool.watch(BATCH_BYTES, Gate(lambda: None)) for _ in range(3)]
            assert pool.available_bytes == 0
            await test(producer, [lambda held=held: pool.unwatch(held) for held in taken])  # type: ignore[misc]
            pool.unwatch(rest)

    asyncio.run(guarded())


def waits_of(producer: KafkaProducer, begun: Callable[[int], object] = lambda number: None) -> list[tuple[int, int]]:
    """How much each wait from now on is for, and how long it may take; `begun` hears of each by its number."""
    waits: list[tuple[int, int]] = []
    watch = producer._granted

    async def granted(nbytes: int, timeout_ms: int) -> None:
        waits.append((nbytes, timeout_ms))
        begun(len(waits))
        await watch(nbytes, timeout_ms)

    producer._granted = granted  # type: ignore[method-assign]
    return waits


def test_the_wait_goes_on_until_a_share_of_the_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHARE_MS", GUARD_S * 1000)

    async def test(producer: KafkaProducer, free: list[Free]) -> None:
        waiting = asyncio.create_task(memory_of(producer)(BATCH_BYTES, GUARD_S * 1000))
        for one in free:
            await turns(5)
            assert not waiting.done()
            one()
        await waiting
        assert pool_of(producer_in(producer)).available_bytes == 3 * BATCH_BYTES

    in_full_memory(test)


def test_the_wait_for_a_share_ends_soon_where_less_is_enough() -> None:
    async def test(producer: KafkaProducer, free: list[Free]) -> None:
        waits = waits_of(producer)
        waiting = asyncio.create_task(memory_of(producer)(BATCH_BYTES, 2 * GUARD_S * 1000))
        await turns(5)
        free[0]()
        await waiting
        assert pool_of(producer_in(producer)).available_bytes == BATCH_BYTES
        assert len(waits) == 1
        free[1]()
        free[2]()

    in_full_memory(test)


def test_behind_the_moment_the_wait_is_for_what_is_needed() -> None:
    async def test(producer: KafkaProducer, free: list[Free]) -> None:
        waits = waits_of(producer, lambda number: number == 2 and asyncio.get_running_loop().call_soon(free[0]))
        await memory_of(producer)(BATCH_BYTES, 2 * GUARD_S * 1000)
        assert [nbytes for nbytes, _ in waits] == [3 * BATCH_BYTES, BATCH_BYTES]
        free[1]()
        free[2]()

    in_full_memory(test)


def test_the_moment_is_part_of_the_deadline() -> None:
    async def test(producer: KafkaProducer, free: list[Free]) -> None:
        waits = waits_of(producer)
        await memory_of(producer)(BATCH_BYTES, 50)
        await memory_of(producer)(BATCH_BYTES, 5)
        await memory_of(producer)(4 * BATCH_BYTES, 5)
        assert waits == [(3 * BATCH_BYTES, 20), (BATCH_BYTES, 30), (3 * BATCH_BYTES, 5), (4 * BATCH_BYTES, 5)]
        for one in free:
            one()

    in_full_memory(test)
