"""A task that sends without a pause: memory is free all the time, so that nothing makes it wait, and yet other tasks have their turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafkacore.aio import KafkaConsumer, KafkaProducer
from kafkacore.clock import ManualClock, SystemClock
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.inside import metadata_of, producer_in, short_send_of
from tests.kit.loops import NewLoop, run

GUARD_S = 60
RECORDS = 400
WAYS = ["send", "general", "many", "many_general"]


cluster = embedded()


@pytest.fixture
def servers(cluster: EmbeddedCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> str:
    """It is there: no client waits until it may ask again."""
    name = str(request.node.name).replace("[", "-").replace("]", "").replace(" ", "-")
    cluster.create_topic(name)
    return name


class Shifted(SystemClock):
    """The system's time, which can be moved on."""

    __slots__ = ("_ahead_ms", "_stopped_ms")

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._stopped_ms: int | None = None

    def stop(self) -> None:
        """From now on it moves by hand alone."""
        self._stopped_ms = super().now_ms()

    def advance(self, ms: int) -> None:
        self._ahead_ms += ms

    def now_ms(self) -> int:
        return (super().now_ms() if self._stopped_ms is None else self._stopped_ms) + self._ahead_ms


class Passing:
    """An interceptor: records go the general way, one by one."""

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        pass


class SteadySends:
    """SteadySends records one after another; each takes a millisecond of the producer's clock."""

    def __init__(self, producer: KafkaProducer, clock: Any, topic: str, way: str) -> None:
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
async def sending(servers: str, topic: str, way: str, *, known: bool = True) -> AsyncIterator[SteadySends]:
    clock: Any = ManualClock() if known else Shifted()  # what is asked for again, is asked for after a time
    more: dict[str, Any] = {"interceptors": [Passing()]} if way.endswith("general") else {}
    async with KafkaProducer(bootstrap_servers=servers, clock=clock, linger_ms=600_000, delivery_timeout_ms=10**7, **more) as producer:
        if known:
            await producer.partitions_for(topic)
        yield SteadySends(producer, clock, topic, way)


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

    run(work, new_loop)


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

    run(work, new_loop)


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

    run(work, new_loop)


def wait_for_metadata(producer: KafkaProducer, topic: str) -> None:
    """Keeps the loop until the Sender thread knows the topic."""
    metadata = metadata_of(producer_in(producer))
    while True:
        version = metadata.version
        if (found := metadata.snapshot.topics.get(topic)) is not None and found.partition_count:
            return
        assert metadata.await_update(version, GUARD_S * 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["in the turn", "in a long turn", "behind it"])
def test_tasks_that_wait_for_metadata_keep_their_order(servers: str, topic: str, new_loop: NewLoop, way: str, when: str) -> None:
    """Also when it comes while some of them have not begun."""

    async def work() -> None:
        async with sending(servers, topic, way, known=False) as sends:

            async def one(i: int) -> Any:
                if when == "in a long turn" and i == 1:
                    sends.clock.advance(20)
                if when != "behind it" and i == RECORDS // 2:
                    wait_for_metadata(sends.producer, topic)
                if way.startswith("many"):
                    return await sends.producer.send_many(topic, [b"%d" % i])
                return await sends.producer.send(topic, b"%d" % i)

            tasks = [asyncio.create_task(one(i)) for i in range(RECORDS)]
            cancelled = set(range(0, RECORDS, 7))
            for i in cancelled:
                asyncio.get_running_loop().call_soon(tasks[i].cancel)
            await asyncio.wait(tasks)
            await sends.producer.flush()
            futures = [task.result() for i, task in enumerate(tasks) if i not in cancelled or not task.cancelled()]
            offsets = [future.result().offsets[0] if way.startswith("many") else future.result().offset for future in futures]
            assert offsets == list(range(len(offsets)))
            assert not sends.producer._asking
            assert short_send_of(sends.producer).in_line == 0

    run(work, new_loop)


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

    run(work, new_loop)


def test_a_task_that_finds_records_all_the_time_gives_others_their_turns(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop) -> None:
    """Every 10 ms, to the precision of the floating-point numbers that times are, and not more often."""
    cluster.produce(topic, [b"%d" % i for i in range(101)])

    async def work() -> None:
        clock, given = Shifted(), []
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "clock": clock}
        async with KafkaConsumer(topic, **settings) as consumer:
            assert await consumer.poll(None, 1)
            clock.stop()
            for ms in range(100):
                clock.advance(1)
                turn: list[int] = []
                asyncio.get_running_loop().call_soon(turn.append, ms)
                assert len((await consumer.poll(None, 1))[topic, 0]) == 1
                given += turn
        assert len(given) >= 9 and {later - earlier for earlier, later in itertools.pairwise(given)} <= {10, 11}

    run(work, new_loop)
