"""Each client is cancelled wherever it waits: no record is lost or doubled, nothing keeps waiting, and the client goes on."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cancelling import LOOPS, Cut, How, everywhere, until_done

from kafkacore import KafkaConsumer as SyncConsumer
from kafkacore import NewTopic, TopicPartition, errors
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.kit.inside import accumulator_of, calls_of, line_of, metadata_of, pool_of, producer_in, short_send_of
from tests.kit.loops import NewLoop
from tests.kit.records import all_values, fill
from tests.kit.records import numbered as values_numbered

numbers = itertools.count()


WHERE = [
    (loop, how) for loop, how in itertools.product(LOOPS, How)
    if os.environ.get("KAFKACORE_FACES") == "all" or (loop == "uvloop") == (how in (How.LATE, How.CLOSED))
]  # fmt: skip
"""Every how, and every loop; each with each with KAFKACORE_FACES=all."""


@pytest.fixture(params=WHERE, ids=lambda where: f"{where[0]}-{where[1].name.lower()}")
def where(request: pytest.FixtureRequest) -> tuple[str, How]:
    return request.param


@pytest.fixture
def new_loop(where: tuple[str, How]) -> NewLoop:
    return LOOPS[where[0]]


@pytest.fixture
def how(where: tuple[str, How]) -> How:
    return where[1]


def assert_nothing_waits(producer: KafkaProducer) -> None:
    inner = producer_in(producer)
    assert short_send_of(producer).in_line == 0
    assert not line_of(producer).taken
    assert not line_of(producer).waiting
    assert not metadata_of(inner)._watchers
    assert accumulator_of(inner)._flushes == 0
    assert pool_of(inner).queued == 0


class Idle:
    """An interceptor that changes nothing."""

    def on_send(self, record: Any) -> Any:
        return record


class SendsNumbers:
    """SendsNumbers numbers, first and last with `send_many`, others with `send`; if `many`."""

    def __init__(self, producer: KafkaProducer, topic: str, count: int, size: int = 1000, *, many: bool = True) -> None:
        self.producer, self.topic, self.count, self.size, self.sends_many = producer, topic, count, size, many
        self.sent = 0
        self.futures: list[Any] = []
        self.many: list[Any] = []

    def value(self, i: int) -> bytes:
        return b"%06d" % i + bytes(self.size)

    async def __call__(self) -> None:
        await self.send_up_to(10)
        while self.sent < self.count + 10:
            self.futures.append(await self.producer.send(self.topic, self.value(self.sent)))
            self.sent += 1
        await self.send_up_to(2 * self.count)
        await self.producer.flush()
        for future in self.futures:
            await future
        for many in self.many:
            assert not (await many).errors

    async def send_up_to(self, end: int) -> None:
        while self.sent < end:
            if not self.sends_many:
                await self.producer.send(self.topic, self.value(self.sent))
                self.sent += 1
                continue
            try:
                self.many.append(await self.producer.send_many(self.topic, [self.value(i) for i in range(self.sent, end)]))
                self.sent = end
            except asyncio.CancelledError as error:
                self.sent += error.appended  # type: ignore[attr-defined]
                self.many.append(error.future)  # type: ignore[attr-defined]
                raise


@pytest.mark.parametrize("way", ["plain", "general"])
def test_sends(servers: str, new_loop: NewLoop, how: How, way: str) -> None:
    """Backpressure, metadata, flush and deliveries. `general`: records go one by one through interceptors."""

    async def once(cut: Cut) -> bool:
        topic = f"sends-{next(numbers)}"
        more: dict[str, Any] = {"interceptors": [Idle()]} if way == "general" else {}
        async with KafkaProducer(bootstrap_servers=servers, buffer_memory=8 * 1024, batch_size=4 * 1024, linger_ms=0, **more) as producer:
            sends = SendsNumbers(producer, topic, 40, many=how is not How.CLOSED)  # a coroutine that is closed does not say how far it came
            cancelled = await until_done(cut, sends)
            assert_nothing_waits(producer)
            assert [future.result().offset for future in sends.futures] == list(range(10, 50))
        assert [int(value[:6]) for value in all_values(servers, topic)] == list(range(80))
        return cancelled

    everywhere(new_loop, how, once)


class Transacts:
    """Three transactions by calls, two as blocks; each with records and an offset."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self.producer, self.topic = producer, topic
        self.group = f"group-of-{topic}"
        self.stages = self._stages()
        self.stage: Callable[[], Any] | None = None
        self.committed: list[bytes] = []
        self.filled = False

    def _stages(self) -> Iterator[Callable[[], Any]]:
        """Each is made again until it was not cancelled."""
        yield self.producer.init_transactions
        for i in range(3):
            self.producer.begin_transaction()
            for j in range(3):
                yield lambda value=b"%d-%d" % (i, j): self.producer.send(self.topic, value)
            yield lambda i=i: self.producer.send_offsets_to_transaction({TopicPartition(self.topic, 0): i + 1}, self.group)
            yield self.producer.abort_transaction if i == 1 else self.producer.commit_transaction
            if i != 1:
                self.committed += [b"%d-%d" % (i, j) for j in range(3)]
        for i in range(3, 5):
            self.filled = False
            yield lambda i=i: self.block([b"%d-%d" % (i, j) for j in range(3)])
            self.committed += [b"%d-%d" % (i, j) for j in range(3)]

    async def block(self, values: list[bytes]) -> None:
        if self.filled:  # it was the commit that was cancelled
            await self.producer.commit_transaction()
            return
        try:
            transaction = self.producer.transaction()
            async with transaction:
                for value in values:
                    await self.producer.send(self.topic, value)
                    await asyncio.sleep(0)
                self.filled = True
        except errors.IllegalStateError:  # the abort was cancelled, too
            await self.producer.abort_transaction()
            await self.block(values)

    async def __call__(self) -> None:
        while True:
            if self.stage is None:
                self.stage = next(self.stages, None)
                if self.stage is None:
                    return
            await self.stage()
            self.stage = None


def test_transactions(servers: str, new_loop: NewLoop, how: How) -> None:
    """Each call is made again after it was cancelled: what was committed is there once, what was aborted is not."""

    async def once(cut: Cut) -> bool:
        topic = f"transactions-{next(numbers)}"
        async with KafkaProducer(bootstrap_servers=servers, transactional_id=topic, linger_ms=0) as producer:
            transacts = Transacts(producer, topic)
            cancelled = await until_done(cut, transacts)
            assert_nothing_waits(producer)
        assert all_values(servers, topic, isolation_level="read_committed") == transacts.committed
        with SyncConsumer(bootstrap_servers=servers, group_id=transacts.group) as consumer:
            assert consumer.committed((topic, 0)).offset == 3
        return cancelled

    everywhere(new_loop, how, once)


COUNT = 90


class Reads:
    """Reads a topic with every call that reads, and makes the other calls in between."""

    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self.consumer, self.topic = consumer, topic
        self.found: list[int] = []
        self.closes = False

    async def __call__(self) -> None:
        consumer, found, tp = self.consumer, self.found, TopicPartition(self.topic, 0)
        if self.closes:
            await consumer.close()
            return
        while len(found) < 30:
            for records in (await consumer.poll(None, 7)).values():
                found += [record.offset for record in records]
        while len(found) < 60:
            for columns in await consumer.poll_batch(None):
                found += columns.offsets.tolist()
        if len(found) < 85:
            async for record in consumer:
                found.append(record.offset)
                if len(found) == 85:
                    break
        if len(found) == 85:
            assert await consumer.position(tp) == 85
            await consumer.commit()
            assert (await consumer.committed(tp)).offset == 85
            assert await consumer.end_offsets([tp]) == {tp: COUNT}
        while len(found) < COUNT:
            for records in (await consumer.poll(None)).values():
                found += [record.offset for record in records]
        self.closes = True
        await consumer.close()


@pytest.fixture(scope="module")
def numbered(servers: str) -> str:
    """A topic with COUNT records in batches of ten."""
    for first in range(0, COUNT, 10):
        fill(servers, "numbered", values_numbered(10, first=first))
    return "numbered"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member(servers: str, numbered: str, new_loop: NewLoop, how: How, protocol: str) -> None:
    """Every record is read once, and a member whose close is cancelled has committed and left its group all the same."""

    async def once(cut: Cut) -> bool:
        group = f"readers-{next(numbers)}"
        consumer = KafkaConsumer(
            numbered,
            bootstrap_servers=servers,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=1,
            fetch_max_wait_ms=20,
        )
        reads = Reads(consumer, numbered)
        cancelled = await until_done(cut, reads)
        assert reads.found == list(range(COUNT))
        assert calls_of(consumer)._current is None
        async with KafkaAdminClient(bootstrap_servers=servers) as admin:
            assert (await admin.describe_groups([group]))[group].state.lower() == "empty"
            (committed,) = (await admin.list_group_offsets(group)).values()
            assert committed.offset == COUNT
        return cancelled

    everywhere(new_loop, how, once)


def test_administration(servers: str, new_loop: NewLoop, how: How) -> None:
    async def once(cut: Cut) -> bool:
        topic = f"administered-{next(numbers)}"
        found: dict[str, Any] = {}

        async def work() -> None:
            if "closes" in found:
                await admin.close()
                return
            if "created" not in found:
                try:
                    await admin.create_topics([NewTopic(topic, 3)])
                except errors.TopicExists:  # by the call that was cancelled
                    pass
                found["created"] = True
            described = await admin.describe_topics([topic])
            assert len(described[topic].partitions) == 3
            assert topic in await admin.list_topics()
            await asyncio.gather(*(admin.describe_cluster() for _ in range(5)))
            found["closes"] = True
            await admin.close()

        admin = KafkaAdminClient(bootstrap_servers=servers)
        cancelled = await until_done(cut, work)
        assert admin.closed
        return cancelled

    everywhere(new_loop, how, once)
