"""What a send and a delivery are to asyncio: the compiled coroutine and the compiled wait, beside the coroutines they take the place of."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import types
import warnings
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import cancelling
import pytest

from kafkacore import NewTopic, ProducerRecord, errors
from kafkacore.aio import KafkaAdminClient, KafkaProducer
from tests.kit.inside import general_send_of
from tests.kit.records import all_values, read

GUARD_S = 60
HELD = {"linger_ms": 600_000, "delivery_timeout_ms": 1_200_000}
"""Records stay in their batch until flush()."""

Test = Callable[[KafkaProducer, str], Awaitable[None]]


def python_tasks() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(lambda loop, coro, **more: asyncio.tasks._PyTask(coro, loop=loop, **more))  # type: ignore[attr-defined]
    return loop


LOOPS = {**cancelling.LOOPS, "python": python_tasks}


def with_producer(**settings: Any) -> Callable[[Test], Callable[..., None]]:
    """A test that is a coroutine and gets a producer to which its topic is known, in every kind of loop."""

    def decorate(test: Test) -> Callable[..., None]:
        @pytest.mark.parametrize("loop", LOOPS)
        def run(servers: str, topic: str, loop: str) -> None:
            async def guarded() -> None:
                async with asyncio.timeout(GUARD_S), KafkaProducer(bootstrap_servers=servers, **settings) as producer:
                    await producer.partitions_for(topic)
                    known = await producer.send(topic, b"known")
                    await producer.flush()
                    assert known.done()
                    await test(producer, topic)

            with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                runner.run(guarded())

        run.__name__, run.__doc__ = test.__name__, test.__doc__  # type: ignore[attr-defined]
        return run

    return decorate


async def values_behind_first(producer: KafkaProducer, topic: str) -> list[bytes]:
    """What the topic holds but for the first record."""
    await producer.flush()
    return all_values(",".join(producer.config.bootstrap_servers), topic)[1:]


async def still_waiting(*tasks: asyncio.Task[Any]) -> None:
    """Until the tasks wait for something that does not come."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


# ---- send ------------------------------------------------------------------------------------------------------------------------


def test_it_is_a_coroutine_function() -> None:
    function = general_send_of(KafkaProducer)
    assert inspect.iscoroutinefunction(KafkaProducer.send)
    assert asyncio.iscoroutinefunction(KafkaProducer.send)
    assert inspect.signature(KafkaProducer.send) == inspect.signature(function)
    assert KafkaProducer.send.__doc__ == function.__doc__
    assert (KafkaProducer.send.__name__, KafkaProducer.send.__module__) == ("send", "kafkacore.aio.producer")
    assert repr(KafkaProducer.send) == repr(function)
    bound = KafkaProducer.__new__(KafkaProducer).send
    assert inspect.iscoroutinefunction(bound)
    assert next(iter(inspect.signature(bound).parameters)) == "topic"


@with_producer()
async def test_every_way_to_await_it(producer: KafkaProducer, topic: str) -> None:
    await producer.send(topic, b"0")
    await asyncio.create_task(producer.send(topic, b"1"))
    await asyncio.gather(producer.send(topic, b"2"), producer.send(topic, b"3"))
    await asyncio.wait_for(producer.send(topic, b"4"), GUARD_S)
    await asyncio.shield(producer.send(topic, b"5"))
    async with asyncio.TaskGroup() as tasks:
        future = tasks.create_task(producer.send(topic, b"6"))
    assert (await future.result()).offset == 7
    send = producer.send(topic, b"7")
    assert asyncio.iscoroutine(send)
    assert inspect.isawaitable(send)
    await send
    assert await values_behind_first(producer, topic) == [b"%d" % i for i in range(8)]


@pytest.mark.parametrize("general", [False, True])
def test_both_ways_send_the_same(servers: str, topic: str, general: bool) -> None:
    """The compiled coroutine beside the function's own."""

    async def run() -> None:
        sys.set_coroutine_origin_tracking_depth(0)  # where the tests run in asyncio's debug mode
        async with KafkaProducer(bootstrap_servers=servers) as producer:
            assert await producer.partitions_for(topic) == {0}
            delivered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            more: dict[str, Any] = {"headers": [("h", b"1")], "partition": 0, "timestamp_ms": 1_700_000_000_000}
            calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
                ((topic, b"value"), {}),
                ((topic, "text", b"key"), {}),
                ((topic, None, b"key"), more),
                ((topic,), {"value": b"named", "key": "k", **more}),
                ((topic,), {"value": b"called", "on_delivery": lambda metadata, error: delivered.set_result((metadata, error))}),
                ((ProducerRecord(topic, b"whole", b"k", (), 0, 5),), {}),
                ((topic, b"seen"), {"timestamp_ms": 0}),
            ]
            for args, named in calls:
                send = general_send_of(producer)(*args, **named) if general else producer.send(*args, **named)
                assert (type(send) is types.CoroutineType) == general
                await send
            if not general:
                spelled = producer.send(topic=topic, value=b"spelled", key=None)
                assert type(spelled) is types.CoroutineType
                await spelled
            refusals: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
                ((topic, 5), {}),
                ((topic, b"", b""), {"partition": 7}),
                ((5, b""), {}),
                ((topic, b""), {"timestamp_ms": -1}),
            ]
            for wrong, named in refusals:
                with pytest.raises((TypeError, ValueError, errors.UsageError)) as refused:
                    await (general_send_of(producer)(*wrong, **named) if general else producer.send(*wrong, **named))
                assert refused.value.args
            send: Any = producer.send
            for wrong, named in [((), {}), ((topic, b""), {"valeu": b""}), ((topic,), {"topic": b""})]:
                with pytest.raises(TypeError, match="argument"):
                    send(*wrong, **named)
            await producer.flush()
            metadata, error = await delivered
            assert (metadata.offset, error) == (4, None)
        found = read(servers, topic, len(calls))
        assert [(r.value, r.key, r.headers) for r in found[:7]] == [
            (b"value", None, ()),
            (b"text", b"key", ()),
            (None, b"key", (("h", b"1"),)),
            (b"named", b"k", (("h", b"1"),)),
            (b"called", None, ()),
            (b"whole", b"k", ()),
            (b"seen", None, ()),
        ]
        assert [found[i].timestamp_ms for i in (2, 3, 5, 6)] == [1_700_000_000_000, 1_700_000_000_000, 5, 0]

    asyncio.run(run())


@with_producer()
async def test_nothing_is_queued_before_the_first_step(producer: KafkaProducer, topic: str) -> None:
    task = asyncio.create_task(producer.send(topic, b"cancelled before it began"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.send(topic, b"no time"), 0)
    with pytest.warns(RuntimeWarning, match=r"coroutine 'KafkaProducer.send' was never awaited"):
        producer.send(topic, b"never awaited")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer.send(topic, b"closed").close()
    assert await values_behind_first(producer, topic) == []


@with_producer()
async def test_a_traced_await_sends_too(producer: KafkaProducer, topic: str) -> None:
    """While somebody traces, the interpreter steps awaits in another way."""
    seen: list[str] = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: seen.append(event))
    try:
        future = await producer.send(topic, b"traced")
        metadata = await future
    finally:
        sys.settrace(before)
    assert metadata.offset == 1


@pytest.mark.parametrize("end", ["cancel", "close", "throw"])
def test_interceptors_hear_of_a_send_that_is_ended_while_it_waits(servers: str, topic: str, end: str) -> None:
    """Each record that they saw has its outcome, once."""
    seen: list[Any] = []

    class Audit:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record.value)
            return record

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            seen.append(type(error))

    async def run() -> type[BaseException]:
        async with KafkaProducer(bootstrap_servers=servers, interceptors=[Audit()], allow_auto_create_topics=False) as producer:
            if end == "cancel":
                task = asyncio.create_task(producer.send(topic, b"lost"))
                await waiting_once(task)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                expected: type[BaseException] = asyncio.CancelledError
            else:
                send = producer.send(topic, b"lost")
                send.send(None)
                if end == "close":
                    send.close()
                    expected = GeneratorExit
                else:
                    with pytest.raises(KeyError):
                        send.throw(KeyError("k"))
                    expected = KeyError
            assert seen == [b"lost", expected]
            async with KafkaAdminClient(bootstrap_servers=servers) as admin:
                (await admin.create_topics([NewTopic(topic, 1)])).check()
            assert (await (await producer.send(topic, b"sent"))).offset == 0
        return expected

    async def waiting_once(task: asyncio.Task[Any]) -> None:
        await asyncio.sleep(0)
        assert not task.done()

    expected = asyncio.run(run())
    assert seen == [b"lost", expected, b"sent", type(None)]


@with_producer()
async def test_a_coroutine_that_is_kept_holds_no_record(producer: KafkaProducer, topic: str) -> None:
    class Value(bytearray):
        pass

    value = Value(b"v")
    ended = weakref.ref(value)
    task = asyncio.create_task(producer.send(topic, value, headers=[("h", b"")]))
    del value
    await task
    assert ended() is None


# ---- the delivery ----------------------------------------------------------------------------------------------------------------


@with_producer(**HELD)
async def test_tasks_of_one_batch_go_on_together(producer: KafkaProducer, topic: str) -> None:
    """More of them than the loop goes on with in one turn; and each in its own context."""
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number")
    order: list[int] = []

    async def one(i: int) -> int:
        number.set(i)
        metadata = await (await producer.send(topic, b"%d" % i))
        order.append(i)
        assert number.get() == i
        assert asyncio.current_task() in tasks
        return metadata.offset

    tasks = [asyncio.create_task(one(i)) for i in range(1000)]
    await still_waiting(*tasks)
    await producer.flush()
    assert await asyncio.gather(*tasks) == list(range(1, 1001))
    assert order == list(range(1000))


@with_producer(linger_ms=0)
async def test_every_way_to_await_a_delivery(producer: KafkaProducer, topic: str) -> None:
    @types.coroutine
    def stepped(awaitable: Any) -> Any:
        return (yield from awaitable.__await__())

    def future() -> Awaitable[Any]:
        return stepped(producer.send(topic, b"x"))

    ways: list[Callable[[Any], Awaitable[Any]]] = [asyncio.ensure_future, asyncio.gather, asyncio.shield, stepped]
    for i, way in enumerate(ways):
        found = await way(await future())
        assert (found[0] if way is asyncio.gather else found).offset == 1 + i
    assert (await asyncio.wait_for(await future(), GUARD_S)).offset == 5
    waits = [asyncio.ensure_future(await future()) for _ in range(3)]
    done, _ = await asyncio.wait(waits)
    assert sorted(task.result().offset for task in done) == [6, 7, 8]
    assert [(await task).offset for task in asyncio.as_completed([await future()])] == [9]


@with_producer(**HELD)
async def test_a_wait_that_is_cancelled_ends_at_once(producer: KafkaProducer, topic: str) -> None:
    future = await producer.send(topic, b"0")

    async def wait() -> int:
        return (await future).offset

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await still_waiting(*tasks)
    tasks[1].cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await tasks[1]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await future
    assert not future.done()
    await producer.flush()
    assert await asyncio.gather(tasks[0], tasks[2]) == [1, 1]
    assert (await future).offset == 1
    assert await values_behind_first(producer, topic) == [b"0"]


@with_producer(**HELD)
async def test_cancelled_in_the_turn_in_which_the_delivery_comes(producer: KafkaProducer, topic: str) -> None:
    future = await producer.send(topic, b"0")
    ended: list[str] = []

    async def first() -> None:
        await future
        second_task.cancel()  # its wake-up comes behind this one's
        ended.append("first")

    async def second() -> None:
        try:
            await future
        except asyncio.CancelledError:
            ended.append("second cancelled")
            raise

    tasks = [asyncio.create_task(first())]
    await still_waiting(*tasks)
    second_task = asyncio.create_task(second())
    await still_waiting(second_task)
    await producer.flush()
    await asyncio.wait([*tasks, second_task])
    assert ended == ["first", "second cancelled"]
    assert second_task.cancelled()


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_in_a_task_leaves_no_other_asleep(servers: str, topic: str, loop: str) -> None:
    made = LOOPS[loop]()
    found: list[Any] = []

    async def start() -> None:
        producer = KafkaProducer(bootstrap_servers=servers)
        await producer.partitions_for(topic)
        futures = [await producer.send(topic, b"%d" % i) for i in range(3)]

        async def raises() -> None:
            await futures[0]
            raise SystemExit(3)

        async def wait(i: int) -> None:
            found.append((await futures[i]).offset)

        tasks = [asyncio.create_task(raises()), asyncio.create_task(wait(1)), asyncio.create_task(wait(2))]
        found.append((producer, tasks))
        await asyncio.Event().wait()

    async def end() -> None:
        producer, tasks = found[0]
        async with asyncio.timeout(GUARD_S):
            await asyncio.wait(tasks[1:])
            await producer.close()

    with pytest.raises(SystemExit):
        made.run_until_complete(start())
    made.run_until_complete(end())
    assert found[1:] == [1, 2]
    for task in asyncio.all_tasks(made):
        task.cancel()
    made.run_until_complete(asyncio.sleep(0))
    assert isinstance(found[0][1][0].exception(), SystemExit)
    made.close()


@with_producer(**HELD)
async def test_it_is_a_future_as_far_as_a_task_needs_one(producer: KafkaProducer, topic: str) -> None:
    future = await producer.send(topic, b"0")
    wait: Any = future.__await__()
    assert next(wait) is wait
    assert asyncio.isfuture(wait)
    assert wait.get_loop() is asyncio.get_running_loop()
    assert (wait.done(), wait.cancelled()) == (False, False)
    with pytest.raises(asyncio.InvalidStateError):
        wait.result()
    with pytest.raises(RuntimeError, match="await wasn't used with future"):
        next(wait)
    called: list[Any] = []
    wait.add_done_callback(called.append)
    with pytest.raises(RuntimeError, match="already"):
        wait.add_done_callback(called.append)
    assert wait.remove_done_callback(called.append) == 1
    assert wait.remove_done_callback(called.append) == 0
    assert wait.cancel()
    assert not wait.cancel()
    assert wait.cancelled()
    with pytest.raises(asyncio.CancelledError):
        wait.exception()
    wait.add_done_callback(called.append)
    assert called == []
    await asyncio.sleep(0)
    assert called == [wait]
    with pytest.raises(KeyError):
        wait.throw(KeyError)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        next(wait)
    assert topic in repr(wait)
    await producer.flush()
    done: Any = future.__await__()
    with pytest.raises(StopIteration) as delivered:
        done.send(None)
    assert delivered.value.value.offset == 1
