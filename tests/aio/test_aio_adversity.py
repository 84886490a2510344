"""The asyncio clients under what programs do to them: other threads, forks, closed loops, errors that many tasks share."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer, RebalanceListener
from kafkacore.aio.calls import CallThread
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import bind, calls_of, client_of, driver_of, general_send_of, producer_in, sender_of, short_send_of, thread_of
from tests.kit.loops import NewLoop, run, turns
from tests.kit.records import fill

GUARD_S = 60


def depth(error: BaseException) -> int:
    """How long a traceback is."""
    frames, traceback = 0, error.__traceback__
    while traceback is not None:
        frames, traceback = frames + 1, traceback.tb_next
    return frames


async def polled_values(consumer: KafkaConsumer) -> list[bytes]:
    return [record.value for records in (await consumer.poll(None)).values() for record in records]


# ---- the producer ----------------------------------------------------------------------------------------------------------------


def test_tasks_that_share_an_error_do_not_share_their_tracebacks(servers: str, topic: str) -> None:
    """All records of a batch have failed with one object: each raise would make its traceback longer, and keep the frames of all tasks."""
    depths: list[int] = []

    async def wait(future: Awaitable[Any]) -> None:
        try:
            await future
        except errors.ClosedError as error:
            depths.append(depth(error))

    async def work() -> None:
        producer = KafkaProducer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=1_200_000)
        await producer.partitions_for(topic)
        futures = [await producer.send(topic, b"x") for _ in range(500)]
        tasks = [asyncio.create_task(wait(future)) for future in futures]
        await asyncio.sleep(0)
        sender_of(producer_in(producer)).initiate_close(force=True)
        await asyncio.gather(*tasks)
        for future in futures:
            with pytest.raises(errors.ClosedError) as raised:
                future.result()
            depths.append(depth(raised.value))
        await producer.close()

    run(work)
    assert len(depths) == 1000
    assert max(depths) <= 4


class Reports:
    async def __call__(self, first: Any, second: Any) -> None: ...


async def coroutine_function(first: Any, second: Any) -> None: ...


@pytest.mark.parametrize(
    "fn", [coroutine_function, Reports(), functools.partial(coroutine_function)], ids=["function", "object", "partial"]
)
def test_callbacks_that_nothing_would_await_are_refused(servers: str, topic: str, fn: Any) -> None:
    async def work() -> None:
        async with (
            KafkaProducer(bootstrap_servers=servers) as producer,
            KafkaConsumer(bootstrap_servers=servers, group_id=topic) as consumer,
        ):
            for send in (producer.send, producer.send, general_send_of(producer)):  # the topic is not known yet, then it is
                with pytest.raises(errors.UsageError, match=r"on_delivery is a plain function, and .* is a coroutine function"):
                    await send(topic, b"refused", on_delivery=fn)
                await producer.partitions_for(topic)
            with pytest.raises(errors.UsageError, match="callback is a plain function"):
                consumer.commit_async({(topic, 0): 0}, fn)
            assert (await (await producer.send(topic, b"first"))).offset == 0

    run(work)


def test_whatever_a_listener_returns_is_awaited(servers: str, topic: str) -> None:
    """Not only coroutines."""
    seen: list[str] = []

    class Returning(RebalanceListener):
        def on_partitions_assigned(self, partitions: Any) -> Any:
            async def later() -> None:
                await turns(10)
                seen.append("assigned")

            return asyncio.gather(later(), later())

    async def work() -> None:
        fill(servers, topic, [b"0"])
        async with KafkaConsumer(bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic], listener=Returning())
            assert await consumer.poll(None)
            assert seen == ["assigned"] * 2

    run(work)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_awaits_a_position(servers: str, topic: str, protocol: str) -> None:
    """As documented."""
    seen: list[int] = []

    class Rewinding(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Any) -> None:
            for tp in partitions:
                seen.append(await consumer.position(tp, timeout=GUARD_S / 2))
                consumer.seek(tp, 1)

    async def work() -> None:
        nonlocal consumer
        fill(servers, topic, [b"0", b"1"])
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, group_protocol=protocol, auto_offset_reset="earliest")
        consumer.subscribe([topic], listener=Rewinding())
        assert await polled_values(consumer) == [b"1"]
        assert seen == [0]
        await consumer.close()

    consumer: KafkaConsumer
    run(work)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_poll_that_is_cancelled_leaves_its_listener_alone(servers: str, topic: str, protocol: str) -> None:
    """It ends with it, and the next one reads on; a listener that is cancelled ends its poll, twice in a row and not for good."""
    ended: list[str] = []

    class Slow(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Any) -> None:
            reached.set()
            await go_on.wait()
            await consumer.commit(dict.fromkeys(partitions, 1))
            ended.append("assigned")
            if len(ended) > 1:
                await cancelled

        async def on_partitions_revoked(self, partitions: Any) -> None:
            await cancelled

    async def work() -> None:
        nonlocal consumer, reached, go_on, cancelled
        reached, go_on, cancelled = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
        cancelled.cancel()
        fill(servers, topic, [b"0", b"1"])
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, group_protocol=protocol, enable_auto_commit=False)
        consumer.subscribe([topic], listener=Slow())
        poll = asyncio.create_task(consumer.poll(None))
        await reached.wait()
        for _ in range(2):
            poll.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not poll.done()
        go_on.set()
        await asyncio.wait([poll])
        assert poll.cancelled()
        assert ended == ["assigned"]
        assert await polled_values(consumer) == [b"1"]
        with pytest.raises(asyncio.CancelledError):
            await consumer.unsubscribe()
        consumer.subscribe([topic], listener=Slow())
        with pytest.raises(asyncio.CancelledError):
            await consumer.poll(None)
        assert await polled_values(consumer) == [b"1"]
        with pytest.raises(asyncio.CancelledError):
            await consumer.close()
        await consumer.close()
        assert consumer.closed

    consumer: KafkaConsumer
    reached: asyncio.Event
    go_on: asyncio.Event
    cancelled: asyncio.Future[None]
    run(work)


def test_a_stretch_that_is_left_while_another_call_is_under_way(topic: str) -> None:
    """Leaving it needs the consumer, and waits for nothing."""

    async def work(cluster: EmbeddedCluster) -> None:
        async with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(20):
                await (await producer.send_many("t", [bytes(100)] * 500))
        async with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", max_partition_fetch_bytes=1) as consumer:
            consumer.assign([("t", 0)])
            for _ in range(2):
                columns = consumer.read_range(("t", 0), 0, 10_000)
                assert len(await anext(columns)) < 10_000
                cluster.pause_broker(1)
                committing = asyncio.create_task(consumer.commit({("t", 0): 3}))
                while calls_of(consumer).idle:
                    await asyncio.sleep(0)
                await columns.aclose()
                cluster.resume_broker(1)
                await committing
            columns = consumer.read_range(("t", 0), 0, 10_000)
            assert sum([len(found) async for found in columns]) == 10_000

    with EmbeddedCluster() as cluster:
        run(work(cluster))


def test_a_call_that_comes_as_its_client_closes_ends() -> None:
    """It is made or refused: behind the end of the thread nothing would make it."""

    async def work() -> None:
        calls = CallThread("test", lambda: None, lambda: None)
        assert await calls.run(lambda: 1) == 1
        jobs = calls._jobs

        class Jobs:
            """Has the client close between the look and the call."""

            def put(self, job: Any) -> None:
                if job is not None and not closing:
                    closing.append(threading.Thread(target=calls.close))
                    closing[0].start()
                    closing[0].join(0.1)
                jobs.put(job)

            def __getattr__(self, name: str) -> Any:
                return getattr(jobs, name)

        closing: list[threading.Thread] = []
        calls._jobs = Jobs()  # type: ignore[assignment]
        assert await asyncio.wait_for(calls.run(lambda: 2), 60) == 2
        closing[0].join(GUARD_S)
        with pytest.raises(errors.ClosedError):
            await calls.run(lambda: 3)

    run(work)


# ---- other threads and processes -------------------------------------------------------------------------------------------------


def test_a_consumer_is_read_in_its_own_loop_only(servers: str, topic: str) -> None:
    """Also where records are at hand, and nothing has to wait."""
    refused: list[str] = []

    async def elsewhere(consumer: KafkaConsumer) -> None:
        async def first() -> None:
            async for _ in consumer:
                return

        for call in (
            lambda: consumer.poll(0.0),
            lambda: consumer.poll_batch(0.0),
            first,
            consumer.commit,
            lambda: consumer.position((topic, 0)),
        ):
            try:
                await call()
            except errors.IllegalStateError as error:
                refused.append(str(error))

    async def work() -> None:
        fill(servers, topic, [b"x"] * 100)
        async with KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            assert await consumer.poll(None, 10)
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(consumer)))
            assert len(refused) == 5
            assert all("another event loop" in text for text in refused)
            assert [record.offset for records in (await consumer.poll(None, 10)).values() for record in records] == list(range(10, 20))

    run(work)


def test_a_child_closes_without_the_threads_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        consumer = KafkaConsumer(bootstrap_servers="nowhere:1")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            await consumer.close()
        assert consumer.closed and thread_of(calls_of(consumer)) is None
        driver_of(client_of(consumer)).client.close()

    run(work)


def test_a_forked_child_is_refused_at_once(servers: str, topic: str) -> None:
    """Calls that would wait for the parent's threads; closing is no error."""

    async def calls(producer: KafkaProducer, consumer: KafkaConsumer, admin: KafkaAdminClient, future: Any) -> list[str]:
        async def awaiting() -> None:
            await future

        seen = []
        for call in (
            lambda: producer.send(topic, b"c"),
            lambda: producer.send_many(topic, [b"c"]),
            producer.flush,
            awaiting,
            lambda: producer.partitions_for(topic),
            lambda: consumer.poll(1),
            consumer.commit,
            admin.list_topics,
        ):
            try:
                await asyncio.wait_for(asyncio.ensure_future(call()), GUARD_S / 4)
            except Exception as error:
                seen.append(type(error).__name__)
        for client in (producer, consumer, admin):
            await asyncio.wait_for(client.close(), GUARD_S / 4)
        return seen

    async def work() -> None:
        async with (
            KafkaProducer(bootstrap_servers=servers, linger_ms=600_000, delivery_timeout_ms=1_200_000) as producer,
            KafkaConsumer(topic, bootstrap_servers=servers, group_id=topic) as consumer,
            KafkaAdminClient(bootstrap_servers=servers) as admin,
        ):
            future = await producer.send(topic, b"p")
            await consumer.poll(0.01)
            await admin.list_topics()
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:  # no coroutine of the parent goes on here
                try:
                    asyncio._set_running_loop(None)
                    said = " ".join(asyncio.new_event_loop().run_until_complete(calls(producer, consumer, admin, future)))
                except BaseException as error:
                    said = repr(error)
                os.write(writer, said.encode())
                os._exit(0)
            os.close(writer)
            with open(reader) as pipe:
                said = await asyncio.to_thread(pipe.read)
            os.waitpid(child, 0)
            assert said.split() == ["ForkedClientError"] * 8
            await producer.flush()
            assert (await future).offset == 0

    run(work)


# ---- a loop that is closed while tasks wait in it --------------------------------------------------------------------------------


def test_a_poll_that_its_loop_left_does_not_keep_the_next_loop_from_reading(new_loop: NewLoop, servers: str, topic: str) -> None:
    """Its task is neither cancelled nor collected."""
    topic = f"{topic}-{new_loop.__module__}"

    async def begin() -> tuple[KafkaConsumer, asyncio.Task[Any]]:
        fill(servers, topic, [b"0"])
        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        consumer.assign([(topic, 0)])
        assert await consumer.poll(None)
        poll = asyncio.create_task(consumer.poll(None))
        while calls_of(consumer).idle:
            await asyncio.sleep(0)
        return consumer, poll

    async def end(consumer: KafkaConsumer) -> None:
        consumer.seek((topic, 0), 0)
        assert await polled_values(consumer) == [b"0"]
        consumer.pause((topic, 0))
        assert await consumer.position((topic, 0)) == 1
        poll.get_coro().close()  # the task before: it ends no reading of this loop
        async with asyncio.timeout(GUARD_S / 2):
            reading = asyncio.create_task(consumer.poll(None))
            await asyncio.sleep(0)
            with pytest.raises(errors.IllegalStateError, match="another task"):
                await consumer.poll(0.0)
            reading.cancel()
            await asyncio.wait([reading])
            assert calls_of(consumer).idle
            await consumer.close()

    loop = new_loop()
    loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending"
    consumer, poll = loop.run_until_complete(begin())
    loop.close()
    run(end(consumer))


def test_sends_that_their_loop_left_are_in_nobodys_line(new_loop: NewLoop) -> None:
    """They wait for memory. Closing their coroutines raises nothing, and the next loop's sends take the short way."""
    settings: dict[str, Any] = {"linger_ms": 0, "buffer_memory": 32 * 1024, "batch_size": 16 * 1024}

    async def begin(cluster: EmbeddedCluster) -> tuple[KafkaProducer, list[asyncio.Task[Any]]]:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings)
        await producer.partitions_for("t")
        cluster.pause_broker(1)
        sends = [asyncio.create_task(producer.send("t", b"%d" % i + bytes(15_000))) for i in range(6)]
        while short_send_of(producer).in_line < 3:
            await asyncio.sleep(0)
        return producer, sends

    async def end(producer: KafkaProducer) -> None:
        bind(producer)
        assert short_send_of(producer).in_line == 0
        for send in sends:
            send.get_coro().close()
        assert short_send_of(producer).in_line == 0
        cluster.resume_broker(1)
        assert (await (await producer.send("t", b"sent"))).offset == len([send for send in sends if send.done()])
        await producer.close()

    loop = new_loop()
    loop.set_exception_handler(lambda loop, context: None)  # "Task was destroyed but it is pending"
    with EmbeddedCluster() as cluster:
        producer, sends = loop.run_until_complete(begin(cluster))
        loop.close()
        run(end(producer))


# ---- context variables -----------------------------------------------------------------------------------------------------------

request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody's")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_call_calls_sees_its_context(servers: str, topic: str, protocol: str) -> None:
    """Listeners that of the poll or close which waits for them, commit callbacks that of their commit_async."""
    seen: dict[str, str] = {}

    class Noting(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Any) -> None:
            seen["assigned"] = request.get()
            request.set("changed")

        def on_partitions_revoked(self, partitions: Any) -> None:
            seen["revoked"] = request.get()

    async def work() -> None:
        fill(servers, topic, [b"0"])
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=topic, group_protocol=protocol, auto_offset_reset="earliest")
        consumer.subscribe([topic], listener=Noting())
        request.set("the poll's")
        assert await consumer.poll(None)
        assert request.get() == "the poll's"
        request.set("the commit's")
        committed = asyncio.Event()

        def on_commit(offsets: Any, error: Any) -> None:
            seen["committed"] = request.get()
            committed.set()

        consumer.commit_async(callback=on_commit)
        request.set("another poll's")
        while not committed.is_set():
            await consumer.poll(0.01)
        request.set("the close's")
        await consumer.close()
        assert seen == {"assigned": "the poll's", "committed": "the commit's", "revoked": "the close's"}

    run(work)
