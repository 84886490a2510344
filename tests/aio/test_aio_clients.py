"""The asyncio clients on the embedded cluster, end to end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from kafkacore import NewPartitions, NewTopic, TopicPartition, errors
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer, RebalanceListener
from kafkacore.aio import testing as aio_testing
from kafkacore.aio.calls import CallThread, Ending, Job
from kafkacore.net import block_end
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import driver_of, metadata_of, producer_in, sender_of
from tests.kit.records import fill, numbered

GUARD_S = 60


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, in a loop of each kind."""

    def run(servers: str, topic: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        async def guarded() -> None:
            async with asyncio.timeout(GUARD_S):
                await test(servers, topic)

        with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
            runner.run(guarded())

    run.__name__, run.__doc__ = test.__name__, test.__doc__  # type: ignore[attr-defined]
    return run


async def polled(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for records in (await consumer.poll(None)).values():
            found += records
    return found


@in_loop
async def test_a_listener_that_polls_is_refused_by_its_name(servers: str, topic: str) -> None:
    refused: list[str] = []

    class Polling(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            with pytest.raises(errors.IllegalStateError) as raised:
                await consumer.poll(1)
            refused.append(str(raised.value))

    fill(servers, topic, [b"x"])
    async with KafkaConsumer(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic], listener=Polling())
        await polled(consumer, 1)
    assert refused
    assert "inside on_partitions_assigned of the rebalance listener" in refused[0]


@in_loop
async def test_other_calls_go_first_while_a_poll_waits(servers: str, topic: str) -> None:
    async with KafkaProducer(bootstrap_servers=servers) as producer:
        await (await producer.send(topic, b"x"))
        async with KafkaConsumer(topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as consumer:
            await polled(consumer, 1)
            waiting = asyncio.create_task(consumer.poll(None))
            for _ in range(100):
                assert await consumer.position((topic, 0)) == 1
                consumer.pause((topic, 0))
                consumer.resume((topic, 0))
            await consumer.commit()
            with pytest.raises(errors.IllegalStateError, match="another task"):
                await consumer.poll(0.0)
            assert not waiting.done()
            await producer.send(topic, b"y")
            (records,) = (await waiting).values()
            assert [record.value for record in records] == [b"y"]


@in_loop
async def test_async_for_ends_with_the_consumer(servers: str, topic: str) -> None:
    fill(servers, topic, numbered(1200))
    consumer = KafkaConsumer(bootstrap_servers=servers)
    consumer.assign([(topic, 0)])
    consumer.seek_to_beginning()
    offsets = []
    async for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == 700:
            break
    assert await consumer.position((topic, 0)) == 700
    reached = asyncio.Event()

    async def rest() -> None:
        async for record in consumer:
            offsets.append(record.offset)
            if record.offset == 1199:
                reached.set()

    reading = asyncio.create_task(rest())
    await reached.wait()
    await consumer.close()
    await reading
    assert offsets == list(range(1200))


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_cancelled_transaction_does_not_wait_long_for_a_coordinator_that_is_gone(
    new_loop: Callable[[], asyncio.AbstractEventLoop], cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of the application the abort takes max_block_ms, as any other call."""
    monkeypatch.setattr(block_end, "FAILED_BLOCK_S", 0.1)
    asked: list[float | None] = []

    class Noted(KafkaProducer):
        async def abort_transaction(self, timeout: float | None = None) -> None:
            asked.append(timeout)
            await super().abort_transaction(0.3 if timeout is None else timeout)  # in place of max_block_ms

    async def work(cluster: EmbeddedCluster) -> None:
        producer = Noted(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x")
        await producer.init_transactions()
        entered = asyncio.Event()

        async def block() -> None:
            async with producer.transaction():
                await (await producer.send("t", b"a"))
                cluster.pause_broker(1)
                entered.set()
                if not cancelled:
                    raise ZeroDivisionError
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await entered.wait()
        if cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else ZeroDivisionError):
            async with asyncio.timeout(50):
                await task
        await producer.close(0)

    with EmbeddedCluster() as cluster, asyncio.Runner(loop_factory=new_loop) as runner:
        cluster.create_topic("t")
        runner.run(work(cluster))
    assert asked == [0.1 if cancelled else None]


def test_a_producer_belongs_to_one_loop(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)

    async def use() -> None:
        await producer.send(topic, b"x")
        await producer.flush()

    async def use_beside() -> None:
        await use()
        other = asyncio.new_event_loop()
        try:
            with pytest.raises(errors.IllegalStateError, match="another event loop"):
                await asyncio.to_thread(other.run_until_complete, producer.flush())
        finally:
            other.close()

    async def end() -> None:
        await use()  # the loop before is closed
        await producer.close()

    asyncio.run(use_beside())
    asyncio.run(end())


def test_a_loop_that_is_closed_before_its_pass_spoils_nothing(servers: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=0)
    closed = asyncio.new_event_loop()
    driver_of(producer)._awaited(closed)
    closed.close()

    async def use() -> None:
        passes = sender_of(producer_in(producer))._passes_by
        for _ in range(50):
            await (await producer.send(topic, b"x"))
        assert sender_of(producer_in(producer))._passes_by > passes
        await producer.close()

    asyncio.run(use())


def test_a_close_that_waits_for_nothing_ends_what_is_awaited() -> None:
    """The loop, which drives the Sender for the tasks that wait, leaves the rest to its thread."""
    wrong: list[dict[str, Any]] = []

    async def run(cluster: EmbeddedCluster) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
        await (await producer.send("t", b"known"))
        cluster.pause_broker(1)
        waiting = [asyncio.ensure_future(await producer.send("t", b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        sender_of(producer_in(producer)).initiate_close(force=True)
        driver_of(producer).ready()  # as when an answer comes
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [errors.ClosedError] * 3
        cluster.resume_broker(1)
        await producer.close()

    with EmbeddedCluster() as cluster:
        asyncio.run(asyncio.wait_for(run(cluster), GUARD_S))
    assert not wrong


@in_loop
async def test_a_poll_that_a_close_interrupts_ends(servers: str, topic: str) -> None:
    """Also when the thread is to end before the poll has looked again."""
    closed, woken = threading.Event(), threading.Event()

    def poll(timeout: float | None) -> None:
        if closed.is_set():
            raise errors.ClosedError("closed")
        woken.wait()
        raise errors.WakeupError

    def close() -> None:
        closed.set()
        calls.close()

    calls = CallThread("closes", woken.set, woken.clear)
    reading = asyncio.create_task(calls.run(lambda: calls.polling(poll, None, time.monotonic)))
    await asyncio.sleep(0)
    (thread,) = [each for each in threading.enumerate() if each.name == "closes"]
    await calls.run(close)
    with pytest.raises(errors.ClosedError):
        await reading
    thread.join(GUARD_S / 4)
    assert not thread.is_alive()


@in_loop
async def test_all_tasks_that_await_one_call_hear_of_its_end(servers: str, topic: str) -> None:
    """As tasks that close one client; one of them is cancelled meanwhile."""
    ending, started = Ending("test"), list[Job]()
    tasks = [asyncio.create_task(ending.run(lambda: "closed", started.append)) for _ in range(4)]
    await asyncio.sleep(0)
    (job,) = started
    tasks[1].cancel()
    await asyncio.sleep(0)
    job.make()
    job.end()
    for _ in range(9):
        await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True] * 4
    assert [await tasks[nth] for nth in (0, 2, 3)] == ["closed"] * 3


def test_a_call_that_comes_as_a_listener_ends_goes_first() -> None:
    """Between the end of the listener and the poll that goes on no interrupt would be noticed."""
    listened, woken, made = threading.Event(), threading.Event(), threading.Event()

    async def run() -> None:
        calls = CallThread("test", woken.set, woken.clear)
        submitted = threading.Event()

        def submit() -> None:
            calls.submit(Job(made.set, lambda: None))
            submitted.set()

        class Lock:
            """Has a call come before the thread takes the lock after its listener."""

            def __init__(self, lock: Any) -> None:
                self._lock = lock

            def __enter__(self) -> None:
                if listened.is_set() and threading.current_thread().name == "test" and not submitted.is_set():
                    loop.call_soon_threadsafe(submit)
                    assert submitted.wait(GUARD_S)
                self._lock.acquire()

            def __exit__(self, *_: object) -> None:
                self._lock.release()

        def poll(left_s: float | None) -> str:
            if not listened.is_set():
                calls.in_loop(listened.set)
            if made.is_set():
                return "made"
            if not woken.wait(GUARD_S):
                return "not noticed"
            raise errors.WakeupError

        loop = asyncio.get_running_loop()
        calls._lock = Lock(calls._lock)  # type: ignore[assignment]
        assert await calls.run(lambda: calls.polling(poll, None, time.monotonic)) == "made"
        calls.close()

    asyncio.run(run())


def test_a_plain_call_beside_a_commit_is_refused() -> None:
    """It could only wait, which would block the loop."""

    async def run() -> None:
        async with aio_testing.EmbeddedCluster() as cluster:
            async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await (await producer.send("t", b"x"))
            settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
            async with KafkaConsumer("t", **settings) as consumer:
                await polled(consumer, 1)
                asked, go_on = threading.Event(), threading.Event()

                def hold(request: object) -> None:
                    asked.set()
                    go_on.wait(GUARD_S)

                await cluster.control("OffsetCommit", hold)
                committing = asyncio.create_task(consumer.commit())
                assert await asyncio.to_thread(asked.wait, GUARD_S)
                with pytest.raises(errors.IllegalStateError, match="another call"):
                    consumer.pause(("t", 0))
                go_on.set()
                await committing
                consumer.pause(("t", 0))
                assert consumer.paused() == {("t", 0)}

    asyncio.run(asyncio.wait_for(run(), GUARD_S))


def test_a_call_is_under_way_from_its_submission_to_its_end() -> None:
    """Also between the queue and the thread: whoever finds the thread idle drives the client itself."""
    calls = CallThread("test", lambda: None, lambda: None)
    calls._thread = threading.current_thread()  # no thread takes the job
    assert calls.idle
    job = Job(lambda: None, lambda: None)
    calls.submit(job)
    assert not calls.idle
    assert calls._jobs.get() is job
    assert not calls.idle
    calls.make(job)
    assert calls.idle


@in_loop
async def test_of_two_topics_that_are_not_known_one_is_refused_and_the_other_appears(servers: str, topic: str) -> None:
    async with KafkaProducer(bootstrap_servers=servers, allow_auto_create_topics=False) as producer:
        sends = [asyncio.create_task(producer.send(name, b"x")) for name in (topic, "no name")]
        with pytest.raises(errors.InvalidTopic):
            await sends[1]
        assert not sends[0].done()
        async with KafkaAdminClient(bootstrap_servers=servers) as admin:
            (await admin.create_topics([NewTopic(topic, 1)])).check()
        assert (await (await sends[0])).offset == 0


@in_loop
async def test_a_send_that_is_cancelled_while_it_asks_for_a_partition_leaves_the_next_one_to_ask(servers: str, topic: str) -> None:
    async with KafkaProducer(bootstrap_servers=servers) as producer, KafkaAdminClient(bootstrap_servers=servers) as admin:
        (await admin.create_topics([NewTopic(topic, 2)])).check()
        await (await producer.send(topic, b"known"))
        metadata = metadata_of(producer_in(producer))
        before, asking = metadata.version, asyncio.create_task(producer.send(topic, b"x", partition=4))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        while metadata.version == before:
            await asyncio.sleep(0)
        (await admin.create_partitions({topic: NewPartitions(5)})).check()
        assert (await (await producer.send(topic, b"x", partition=4))).partition == 4
