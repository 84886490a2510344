"""AIOProducer and AIOConsumer: the same programs over confluent_kafka.aio and over kafkacore.compat.confluent.aio see the same."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from typing import Any

import pytest

from kafkacore.compat.confluent import aio
from tests.compat.both_packages import Servers, case, compare_programs
from tests.compat.confluent_serving import NOBODY
from tests.kit.clusters import addresses
from tests.kit.rows import each_row

real = pytest.importorskip("confluent_kafka.aio", minversion=None)

WAIT_S = 60.0


servers = addresses({"t": 2}, config={"group.min.session.timeout.ms": 500})


class Face:
    """One package, and where its clients connect."""

    def __init__(self, package: str, servers: str, topic: str) -> None:
        self.k, self.a = importlib.import_module(package), importlib.import_module(f"{package}.aio")
        self.base, self.topic = {"bootstrap.servers": servers}, topic

    async def close(self) -> None:
        """Programs close their clients."""


@case
async def records(f: Face) -> Any:
    async with f.a.AIOProducer(f.base, max_workers=2) as producer:
        futures = [await producer.produce(f.topic, b"%d" % nth, "key", partition=nth % 2) for nth in range(6)]
        await producer.flush()
        sent = [(m.partition(), m.offset(), m.key(), m.value()) for m in await asyncio.gather(*futures)]
        left = len(producer)
    consumer = f.a.AIOConsumer(f.base | {"group.id": f.topic, "auto.offset.reset": "earliest"})
    await consumer.assign([f.k.TopicPartition(f.topic, 0), f.k.TopicPartition(f.topic, 1)])
    read: list[Any] = []
    while len(read) < 6:
        read += [(m.partition(), m.offset(), m.value()) for m in await consumer.consume(10, 1.0)]
    places = [(p.partition, p.offset) for p in await consumer.position([f.k.TopicPartition(f.topic, 0)])]
    await consumer.close()
    return sent, left, sorted(read), places


@case
async def errors(f: Face) -> Any:
    seen: list[Any] = []

    async def failed(error: Any) -> None:
        seen.append(error.name())

    producer = f.a.AIOProducer({"bootstrap.servers": NOBODY, "message.timeout.ms": 1_000, "error_cb": failed})
    future = await producer.produce(f.topic, b"v")
    await producer.flush()
    outcome = type(future.exception()).__name__, future.exception().args[0].name()
    while len(set(seen)) < 2:
        await producer.poll(0.1)
    await producer.close()
    return outcome, seen[:2], len(producer)


@case
async def rebalances(f: Face) -> Any:
    seen: list[Any] = []
    consumer = f.a.AIOConsumer(f.base | {"group.id": f.topic, "enable.auto.commit": False})

    async def assigned(of: Any, partitions: list[Any]) -> None:
        seen.append(("assigned", of is consumer, [p.partition for p in partitions]))
        for each in partitions:
            each.offset = 1
        await of.assign(partitions)
        await asyncio.gather(of.assignment(), of.committed(partitions, timeout=WAIT_S))

    async def revoked(of: Any, partitions: list[Any]) -> None:
        seen.append(("revoked", [p.partition for p in partitions], await of.commit(asynchronous=False) is not None))

    async with f.a.AIOProducer(f.base) as producer:
        for nth in range(4):
            await producer.produce(f.topic, b"%d" % nth, partition=nth % 2)
    await consumer.subscribe([f.topic], on_assign=assigned, on_revoke=revoked)
    read: list[Any] = []
    while len(read) < 2:
        if (m := await consumer.poll(1.0)) is not None:
            read.append((m.partition(), m.offset()))
    await consumer.unsubscribe()
    await consumer.close()
    try:
        await consumer.poll(0)
    except RuntimeError as error:
        return seen, sorted(read), str(error)
    return "open"


@case
async def transactions(f: Face) -> Any:
    async with f.a.AIOProducer(f.base | {"transactional.id": f.topic}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        committed = await producer.produce(f.topic, b"a", partition=0)
        await producer.commit_transaction()
        await producer.begin_transaction()
        aborted = await producer.produce(f.topic, b"b", partition=0)
        await producer.abort_transaction()
        return (await committed).offset(), (await aborted).value()


@pytest.mark.slow
def test_both_packages_show_a_program_the_same(servers: str, subtests: pytest.Subtests) -> None:
    compare_programs(
        subtests, [sys.modules[__name__]], Face, ("kafkacore.compat.confluent", "confluent_kafka"), Servers("embedded", servers), set()
    )


@each_row("name", ["AIOProducer", "AIOConsumer"])
def test_every_public_method_is_there(name: str) -> None:
    wanted = {each for each, fn in inspect.getmembers(getattr(real, name), inspect.isfunction) if not each.startswith("_")}
    assert {each for each in wanted if not inspect.iscoroutinefunction(getattr(getattr(aio, name), each, None))} == set()
    assert list(inspect.signature(getattr(aio, name)).parameters) == list(inspect.signature(getattr(real, name)).parameters)


def test_futures_are_resolved_without_a_poll_which_waits_for_events(servers: str) -> None:
    async def main() -> Any:
        async with aio.AIOProducer({"bootstrap.servers": servers, "linger.ms": 1}) as producer:
            futures = [await producer.produce("t", b"v", headers={"a": "b"}, partition=0) for _ in range(50)]
            found = await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
            left = await producer.poll(0.01), len(producer)
            await producer.produce("t", b"v")
            return len({m.offset() for m in found}), left, await producer.poll(WAIT_S)

    assert asyncio.run(main()) == (50, (0, 0), 1)


def test_a_full_queue_and_a_refused_message_are_outcomes(servers: str) -> None:
    async def main() -> list[Any]:
        async with aio.AIOProducer({"bootstrap.servers": NOBODY, "queue.buffering.max.messages": 1, "message.timeout.ms": 100}) as producer:
            futures = [await producer.produce("t", b"v" * size) for size in (1, 1)]
            await producer.flush()
            futures.append(await producer.produce("t", b"v" * 2_000_000))
            return [each.exception().args[0].name() for each in futures]  # type: ignore[union-attr]

    assert asyncio.run(main()) == ["_MSG_TIMED_OUT", "_QUEUE_FULL", "MSG_SIZE_TOO_LARGE"]


def test_a_task_that_outlives_its_callback_goes_on_by_itself(servers: str) -> None:
    async def main() -> Any:
        left: list[asyncio.Task[Any]] = []
        consumer = aio.AIOConsumer({"bootstrap.servers": servers, "group.id": "outlives", "auto.offset.reset": "earliest"})
        ended = asyncio.Event()

        async def later() -> Any:
            await ended.wait()
            return await consumer.assignment()

        async def assigned(of: Any, partitions: list[Any]) -> None:
            left.append(asyncio.get_running_loop().create_task(later()))

        await consumer.subscribe(["t"], on_assign=assigned)
        while not left:
            await consumer.poll(0.1)
        ended.set()
        found = await asyncio.wait_for(left[0], WAIT_S)
        await consumer.close()
        return len(found)

    assert asyncio.run(main()) == 2
