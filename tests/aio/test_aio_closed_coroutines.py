"""Coroutines that are closed or collected while they wait: GeneratorExit comes where nothing may be awaited, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest
from cancelling import GUARD_S, run

from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import bind, line_of, timer_of
from tests.kit.loops import NewLoop
from tests.kit.records import all_values

cluster = embedded()


@pytest.fixture(autouse=True)
def nothing_unraisable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is raised while something is collected would only be printed."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: seen.append(repr(what.exc_value)))
    yield
    gc.collect()
    assert not seen


@types.coroutine
def suspended() -> Iterator[None]:
    yield


# ---- transactions ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["closed", "collected", "aclose", "generator collected"])
def test_a_transaction_whose_block_is_closed_is_aborted(new_loop: NewLoop, cluster: EmbeddedCluster, topic: str, end: str) -> None:
    """And the next block waits for the end of that."""
    topic = f"{topic}-{new_loop.__module__}"

    async def work() -> None:
        async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, linger_ms=0) as producer:
            await producer.init_transactions()

            async def block() -> None:
                async with producer.transaction():
                    await (await producer.send(topic, b"dropped"))
                    await suspended()

            async def generator() -> AsyncIterator[int]:
                async with producer.transaction():
                    await (await producer.send(topic, b"dropped"))
                    yield 1

            if end in ("aclose", "generator collected"):
                numbers: Any = generator()
                assert await anext(numbers) == 1
                if end == "aclose":
                    await numbers.aclose()
                del numbers
                gc.collect()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            else:
                stepped: Any = Stepped(block())
                while "suspended" not in awaited_in(stepped.coroutine):
                    await stepped.step()
                if end == "collected":
                    del stepped
                    gc.collect()
                else:
                    stepped.coroutine.close()
            for value in (b"kept", b"kept too"):
                async with producer.transaction():
                    await producer.send(topic, value)

    run(new_loop, work)
    assert all_values(cluster.bootstrap_servers, topic, isolation_level="read_committed") == [b"kept", b"kept too"]


class Stepped:
    """Steps a coroutine by hand; what it waits for is awaited in between."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    async def step(self) -> None:
        waits = self.coroutine.send(None)
        if waits is not None:
            waits._asyncio_future_blocking = False
            ended = asyncio.Event()
            waits.add_done_callback(lambda _: ended.set())
            await ended.wait()
        else:
            await asyncio.sleep(0)


def awaited_in(coroutine: Any) -> list[str]:
    """Names of the coroutines that one waits in, the outer ones first."""
    names: list[str] = []
    while coroutine is not None and hasattr(coroutine, "__name__"):
        names.append(coroutine.__name__)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return names


def test_a_block_that_is_closed_after_its_loop_is_aborted(cluster: EmbeddedCluster, topic: str) -> None:
    async def work() -> tuple[KafkaProducer, Any]:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, linger_ms=0)
        await producer.init_transactions()

        async def block() -> None:
            async with producer.transaction():
                await (await producer.send(topic, b"dropped"))
                await suspended()

        stepped = Stepped(block())
        while "suspended" not in awaited_in(stepped.coroutine):
            await stepped.step()
        return producer, stepped.coroutine

    async def end(producer: KafkaProducer) -> None:
        async with asyncio.timeout(GUARD_S):
            await producer.abort_transaction()  # waits for its end, also when that has come meanwhile
            async with producer.transaction():
                await producer.send(topic, b"kept")
            await producer.close()

    producer, coroutine = asyncio.run(work())
    coroutine.close()
    asyncio.run(end(producer))
    assert all_values(cluster.bootstrap_servers, topic, isolation_level="read_committed") == [b"kept"]


# ---- the other calls -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "throw"])
def test_a_send_that_is_closed_in_its_turn_gives_the_turn_on(cluster: EmbeddedCluster, topic: str, end: str) -> None:
    """Its turn for memory had come, and it had not gone on yet."""

    async def work() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        bind(producer)
        line = line_of(producer)
        timer = timer_of(producer)
        assert await line.enter(1, timer)
        second = line.enter(GUARD_S, timer)
        second.send(None)
        third = asyncio.create_task(line.enter(GUARD_S, timer))
        await asyncio.sleep(0)
        line.leave()  # the second's turn
        if end == "close":
            second.close()
        else:
            with pytest.raises(KeyError):
                second.throw(KeyError("k"))
        assert await asyncio.wait_for(third, GUARD_S)
        line.leave()
        assert not line.taken
        await producer.close()

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_a_client_whose_block_is_collected_without_a_loop(cluster: EmbeddedCluster, topic: str, kind: str) -> None:
    """It is left to its own collection. Where a loop runs, the close can be awaited: an asynchronous generator is closed so."""

    async def block() -> None:
        made: Any = {"producer": KafkaProducer, "consumer": KafkaConsumer, "admin": KafkaAdminClient}[kind]
        async with made(bootstrap_servers=cluster.bootstrap_servers):
            await suspended()

    coroutine: Any = block()
    coroutine.send(None)
    with pytest.warns(ResourceWarning, match="was never closed"):
        coroutine.close()
        gc.collect()
