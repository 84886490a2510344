"""Deadlines of the asyncio clients: kept, on one timer of the loop however many there are."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.aio import KafkaProducer, WheelTimer
from kafkacore.aio.calls import CallThread, NotMade
from kafkacore.aio.testing import EmbeddedCluster
from kafkacore.aio.timers import Line, ended_within, shared_timer
from tests.kit.inside import general_send_of, line_of, short_send_of, timer_of
from tests.kit.loops import run, turns
from tests.kit.records import all_values

GUARD_S = 60


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers it is asked for."""

    timers = 0

    def call_at(self, *args: Any, **options: Any) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(*args, **options)


def test_a_line_for_memory_makes_one_timer_and_keeps_its_order() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        settings = {"buffer_memory": 32 * 1024, "batch_size": 16 * 1024, "linger_ms": 0, "max_block_ms": GUARD_S * 1000}
        async with EmbeddedCluster() as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
            await (await producer.send("t", b"known"))
            await cluster.stop_broker(1)
            before = loop.timers  # type: ignore[attr-defined]
            sends = [asyncio.create_task(producer.send("t", b"%d" % i + bytes(1000))) for i in range(1000)]
            await turns(3)
            in_line = [task for task in sends if not task.done()]
            assert len(in_line) > 900
            assert loop.timers - before <= 1  # type: ignore[attr-defined]
            for task in in_line[::2]:
                task.cancel()
            await cluster.start_broker(1)
            await asyncio.wait(sends)
            await producer.flush()
            kept = [i for i, task in enumerate(sends) if not task.cancelled()]
            assert [sends[i].result().result().offset for i in kept] == list(range(1, len(kept) + 1))
            assert [int(value[:-1000]) for value in all_values(cluster.bootstrap_servers, "t")[1:]] == kept

    run(test, CountingLoop)


@pytest.mark.parametrize("way", ["short", "general"])
def test_a_send_that_finds_a_line_joins_it(way: str) -> None:
    """Also when there is memory for it."""

    async def test() -> None:
        async with EmbeddedCluster() as cluster, KafkaProducer(cluster_settings(cluster)) as producer:
            await (await producer.send("t", b"known"))
            assert await line_of(producer).enter(GUARD_S, timer_of(producer))
            short_send_of(producer).in_line += 1
            late = asyncio.create_task((producer.send if way == "short" else general_send_of(producer))("t", b"x"))
            await turns(5)
            assert not late.done()
            line_of(producer).leave()
            short_send_of(producer).in_line -= 1
            assert (await (await late)).offset == 1

    run(test)


def test_deadlines_are_kept() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        settings = {"buffer_memory": 16 * 1024, "batch_size": 16 * 1024, "linger_ms": 0}
        async with EmbeddedCluster() as cluster, KafkaProducer(cluster_settings(cluster), max_block_ms=300, **settings) as producer:
            await cluster.create_topic("t")
            known = False
            while not known:  # a busy machine may need longer than that
                with contextlib.suppress(errors.KafkaTimeoutError):
                    known = bool(await producer.partitions_for("t"))
            await cluster.stop_broker(1)
            await producer.send("t", bytes(15_000))
            start_s = loop.time()
            sends = await asyncio.gather(*(producer.send("t", bytes(15_000)) for _ in range(20)), return_exceptions=True)
            assert {type(error) for error in sends} == {errors.BufferFullError}
            assert loop.time() - start_s >= 0.298  # clocks are read in whole milliseconds
            with pytest.raises(errors.KafkaTimeoutError):
                await producer.flush(timeout=0.05)
            with pytest.raises(errors.KafkaTimeoutError):
                await producer.partitions_for("unknown")
            await cluster.start_broker(1)

    run(test, CountingLoop)


def test_a_call_that_has_ended_leaves_no_deadline() -> None:
    """Of two calls that wait behind a third, the one that ends first leaves the other's."""

    async def test() -> None:
        timer = shared_timer(asyncio.get_running_loop())
        thread = CallThread("test", lambda: None, lambda: None)
        go_on = [threading.Event() for _ in range(3)]
        blocks = threading.Event()
        try:
            waiting = [asyncio.create_task(thread.run(go_on[i].wait, None if i == 0 else GUARD_S + i)) for i in range(3)]
            await turns(2)
            assert len(timer) == 2
            for i, left in enumerate((2, 1, 0)):
                go_on[i].set()
                assert await waiting[i]
                assert len(timer) == left
            first = asyncio.create_task(thread.run(blocks.wait))
            await turns(2)
            with pytest.raises(NotMade):
                await thread.run(lambda: None, 0.01)
            cancelled = asyncio.create_task(thread.run(lambda: None, GUARD_S))
            await turns(2)
            assert len(timer) == 1
            cancelled.cancel()
            blocks.set()
            await first
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert len(timer) == 0
        finally:
            for event in (*go_on, blocks):
                event.set()
            thread.close()

    run(test, CountingLoop)


def cluster_settings(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def test_a_loop_has_one_timer_that_is_forgotten_with_its_clients() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with (
            EmbeddedCluster() as cluster,
            KafkaProducer(cluster_settings(cluster)) as one,
            KafkaProducer(cluster_settings(cluster)) as other,
        ):
            await one.partitions_for("t")
            await other.partitions_for("t")
            assert timer_of(one) is timer_of(other) is shared_timer(loop)
        timers.append(weakref.ref(timer_of(one)))
        loops.append(weakref.ref(loop))

    timers: list[weakref.ref[WheelTimer]] = []
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    run(test, CountingLoop)
    run(test, CountingLoop)
    guard_s = time.monotonic() + GUARD_S
    while any(ref() for ref in timers + loops):  # the last step of a thread that has woken the loop may still hold it
        assert time.monotonic() < guard_s
        gc.collect()


@pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_wait_ends_with_its_future_or_in_time(uvloop: bool) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        timer = shared_timer(loop)
        future = loop.create_future()
        loop.call_soon(future.set_result, "done")
        await ended_within(future, GUARD_S, timer)
        assert (future.result(), len(timer)) == ("done", 0)
        future = loop.create_future()
        start_s = loop.time()
        await ended_within(future, 0.02, timer)
        assert future.result() is None
        assert loop.time() - start_s >= 0.0199
        future = loop.create_future()
        waiting = asyncio.create_task(ended_within(future, GUARD_S, timer))
        await turns(2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (future.cancelled(), len(timer)) == (True, 0)

    run(test, pytest.importorskip("uvloop").new_event_loop if uvloop else None)


def test_a_turn_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    async def test() -> None:
        timer = shared_timer(asyncio.get_running_loop())
        line = Line()
        assert await line.enter(GUARD_S, timer)
        first, second, third = (asyncio.create_task(line.enter(GUARD_S, timer)) for _ in range(3))
        await turns(1)
        line.leave()
        first.cancel()  # its turn has come, and it has not run yet
        assert await second
        assert first.cancelled()
        assert not third.done()
        late = asyncio.create_task(line.enter(0, timer))
        assert not await late
        line.leave()
        assert await third
        line.leave()
        assert await line.enter(0, timer)
        assert len(timer) == 0

    run(test, CountingLoop)
