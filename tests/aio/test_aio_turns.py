"""A task that sends without a pause: memory is free all the time, so that nothing makes it wait, and yet other tasks have their turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafkacore.aio import KafkaProducer
from kafkacore.clock import ManualClock
from kafkacore.testing import EmbeddedCluster

NewLoop = Callable[[], asyncio.AbstractEventLoop]

GUARD_S = 60
RECORDS = 400
WAYS = ["send", "general", "many", "many_general"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", "-").replace("]", "")


class Passing:
    """An interceptor: records go the general way, one by one."""

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        pass


class Sends:
    """Sends records one after another; each takes a millisecond of the producer's clock."""

    def __init__(self, producer: KafkaProducer, clock: ManualClock, topic: str, way: str) -> None:
        self.producer, self.clock, self.topic, self.way = producer, clock, topic, way
        self.futures: list[Any] = []

    async def __call__(self) -> None:
        while len(self.futures) < RECORDS:
            self.clock.advance(1)
            if self.way.startswith("many"):
                self.futures.append(await self.producer.send_many(self.topic, [b"x"]))
            else:
                self.futures.append(await self.producer.send(self.topic, b"x"))

    async def count(self) -> int:
        """How many records the topic got."""
        last = await self.producer.send(self.topic, b"last")
        await self.producer.flush()
        return (await last).offset


@asynccontextmanager
async def sending(servers: str, topic: str, way: str) -> AsyncIterator[Sends]:
    clock = ManualClock()
    more: dict[str, Any] = {"interceptors": [Passing()]} if way.endswith("general") else {}
    async with KafkaProducer(bootstrap_servers=servers, clock=clock, linger_ms=600_000, delivery_timeout_ms=10**7, **more) as producer:
        await producer.partitions_for(topic)
        yield Sends(producer, clock, topic, way)


def run(new_loop: NewLoop, work: Callable[[], Any]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(GUARD_S):
            await work()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(guarded())


@pytest.mark.parametrize("way", WAYS)
def test_others_have_a_turn(servers: str, topic: str, new_loop: NewLoop, way: str) -> None:
    """Every 10 ms, and not more often."""

    async def work() -> None:
        async with sending(servers, topic, way) as sends:
            turns: list[int] = []

            async def other() -> None:
                while True:
                    turns.append(sends.clock.now_ms())
                    await asyncio.sleep(0)

            beside = asyncio.create_task(other())
            await asyncio.sleep(0)
            await sends()
            beside.cancel()
            assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 20
            assert len(turns) <= RECORDS // 10 + 5
            assert await sends.count() == RECORDS

    run(new_loop, work)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_cancelled_in_that_turn_is_not_queued(servers: str, topic: str, new_loop: NewLoop, way: str) -> None:
    async def work() -> None:
        async with sending(servers, topic, way) as sends:
            task = asyncio.create_task(sends())
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, task.cancel)
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert 0 < len(sends.futures) < RECORDS
            if way.startswith("many"):
                assert cancelled.value.appended == 0  # type: ignore[attr-defined]
            assert await sends.count() == len(sends.futures)

    run(new_loop, work)


@pytest.mark.parametrize("way", WAYS)
def test_tasks_of_one_turn_keep_their_order(servers: str, topic: str, new_loop: NewLoop, way: str) -> None:
    """Tasks that send a record each do not stand aside for each other, however long the turn takes."""

    async def work() -> None:
        async with sending(servers, topic, way) as sends:

            async def one(i: int) -> Any:
                sends.clock.advance(5)
                if way.startswith("many"):
                    return await sends.producer.send_many(topic, [b"%d" % i])
                return await sends.producer.send(topic, b"%d" % i)

            futures = await asyncio.gather(*(one(i) for i in range(RECORDS)))
            await sends.producer.flush()
            offsets = [future.result().offsets[0] if way.startswith("many") else future.result().offset for future in futures]
            assert offsets == list(range(RECORDS))

    run(new_loop, work)


def test_a_task_that_waits_in_between_gives_no_turn(servers: str, topic: str, new_loop: NewLoop) -> None:
    """Its pauses are turns: no send suspends it once more."""

    async def work() -> None:
        async with sending(servers, topic, "send") as sends:
            for i in range(100):
                await asyncio.sleep(0)
                sends.clock.advance(20)
                coroutine = sends.producer.send(topic, b"%d" % i)
                with pytest.raises(StopIteration):
                    coroutine.send(None)

    run(new_loop, work)
