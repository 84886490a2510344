"""`send` is a coroutine as CPython's own are: the compiled short cut beside the function's coroutine, and what asyncio asks of both."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient as SyncAdmin
from kafkacore import NewTopic, errors
from kafkacore.aio import KafkaProducer
from tests.kit.inside import general_send_of, producer_in
from tests.kit.loops import run
from tests.kit.rows import each_row

GUARD_S = 60
Send = Callable[..., Any]


@pytest.fixture(params=["short", "general"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sends(producer: KafkaProducer, way: str) -> Send:
    """`send`, by the short cut or by the function."""
    sys.set_coroutine_origin_tracking_depth(0)  # where the tests run in asyncio's debug mode
    if way == "general":
        return general_send_of(producer)

    def short(*args: Any, **named: Any) -> Any:
        sys.set_coroutine_origin_tracking_depth(0)
        send = producer.send(*args, **named)
        assert type(send) is not types.CoroutineType
        return send

    return short


async def bound(servers: str, topic: str, **settings: Any) -> KafkaProducer:
    """A producer that is bound to the running loop and knows its topic."""
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    await (await producer.send(topic, b"first"))
    return producer


# ---- the loop --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["other thread", "same thread", "no loop"])
def test_a_send_in_another_loop_is_refused(servers: str, topic: str, way: str, where: str) -> None:
    """The first loop is open: it may run at the same time, or again."""
    mine, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        producer = mine.run_until_complete(bound(servers, topic))
        make = sends(producer, way)

        async def refused() -> None:
            with pytest.raises(errors.IllegalStateError, match="another event loop"):
                await make(topic, b"refused")
            with pytest.raises(errors.IllegalStateError, match="another event loop"):
                await make(topic, b"refused", on_delivery=lambda metadata, error: None)

        if where == "no loop":
            with pytest.raises(RuntimeError, match="no running event loop"):
                make(topic, b"refused").send(None)
        elif where == "same thread":
            other.run_until_complete(refused())
        else:
            failed: list[BaseException] = []

            def work() -> None:
                try:
                    other.run_until_complete(refused())
                except BaseException as error:
                    failed.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join(GUARD_S)
            assert not failed

        async def end() -> None:
            assert (await (await make(topic, b"second"))).offset == 1
            await producer.close()

        mine.run_until_complete(end())
    finally:
        mine.close()
        other.close()


# ---- how it stands ---------------------------------------------------------------------------------------------------------------


def test_its_state_is_known_to_inspect(servers: str, topic: str, way: str) -> None:
    seen: list[Any] = []

    def serialize(value: Any) -> bytes:
        if value == "watched":
            seen.append((inspect.getcoroutinestate(send), send.cr_running, send.cr_suspended, send.cr_await))
            for wrong in (lambda: send.send(None), send.close, lambda: send.throw(KeyError)):
                with pytest.raises(ValueError, match="coroutine already executing"):
                    wrong()
        return str(value).encode()

    async def work() -> None:
        nonlocal send
        async with await bound(servers, topic, value_serializer=serialize) as producer:
            make = sends(producer, way)
            send = make(topic, "watched")
            assert inspect.getcoroutinestate(send) == inspect.CORO_CREATED
            assert inspect.getcoroutinelocals(send)["value"] == "watched"
            assert send.cr_frame.f_code is send.cr_code
            assert (send.__name__, send.__qualname__, send.cr_origin) == ("send", "KafkaProducer.send", None)
            assert (await (await send)).offset == 1
            assert inspect.getcoroutinestate(send) == inspect.CORO_CLOSED
            assert inspect.getcoroutinelocals(send) == {}
            send = make(topic, "watched")  # nothing has looked at it before its first step
            assert (await (await send)).offset == 2
            assert inspect.getcoroutinestate(send) == inspect.CORO_CLOSED
            assert send.cr_code.co_name == "send"
            waits = make(topic + "-unknown", "waits")
            task = asyncio.create_task(waits)
            await asyncio.sleep(0)
            assert inspect.getcoroutinestate(waits) == inspect.CORO_SUSPENDED
            assert inspect.getcoroutinelocals(waits)["value"] == "waits"
            with pytest.raises(RuntimeError, match="coroutine is being awaited already"):
                await waits
            assert (await (await task)).offset == 0
            assert inspect.getcoroutinestate(waits) == inspect.CORO_CLOSED
            closed = make(topic, "closed")
            closed.close()
            assert inspect.getcoroutinestate(closed) == inspect.CORO_CLOSED
        assert seen == [(inspect.CORO_RUNNING, True, False, None)] * 2

    send: Any = None
    run(work())


# ---- the protocol ----------------------------------------------------------------------------------------------------------------

THROWN: dict[str, tuple[Any, ...]] = {
    "instance": (KeyError("k"),),
    "class": (KeyError,),
    "class and text": (KeyError, "k"),
    "class and arguments": (KeyError, ("k", "l")),
    "class and instance": (KeyError, KeyError("k")),
    "class and another's instance": (KeyError, ValueError("v")),
    "class and subclass's instance": (LookupError, KeyError("k")),
    "class whose call fails": (UnicodeDecodeError, "too few arguments"),
    "class and None": (KeyError, None, None),
    "instance and a value": (KeyError("k"), 5),
    "number": (5,),
    "no exception": (int,),
    "text": ("KeyError",),
    "no traceback": (KeyError, None, 5),
    "nothing": (),
    "too many": (KeyError, None, None, None),
    "stop": (StopIteration(5),),
    "stop class": (StopIteration, 5),
    "exit": (GeneratorExit,),
    "cancelled": (asyncio.CancelledError("enough"),),
}


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def holding(servers: str, loop: asyncio.AbstractEventLoop) -> Iterator[KafkaProducer]:
    """A producer whose records stay in their batch, and to which the topic "thrown" is known; "unknown" it waits for."""
    settings = {"allow_auto_create_topics": False, "linger_ms": 600_000, "delivery_timeout_ms": 1_200_000}

    async def make() -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=servers, **settings)
        assert await producer.partitions_for("thrown") == {0}
        return producer

    with SyncAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("thrown", 1)]).check()
    producer = loop.run_until_complete(make())
    yield producer
    loop.run_until_complete(producer.close())


@pytest.mark.filterwarnings("ignore:the .type, exc, tb. signature:DeprecationWarning")
@each_row("state", ["created", "suspended", "closed", "ended"])
@each_row("given", THROWN.values(), ids=THROWN)
def test_throw(holding: KafkaProducer, loop: asyncio.AbstractEventLoop, given: tuple[Any, ...], state: str) -> None:
    """By both ways the same error, the same cause, and the same state afterwards."""

    async def outcome(make: Send) -> Any:
        send = make("unknown" if state == "suspended" else "thrown", b"0")
        if state == "suspended":
            send.send(None)
        elif state == "closed":
            send.close()
        elif state == "ended":
            await send
        try:
            send.throw(*given)
            found = None  # what it waits for has taken a StopIteration for its result, as asyncio's futures do: it goes on
        except BaseException as error:
            found = type(error), str(error), type(error.__cause__)
        after = inspect.getcoroutinestate(send)
        send.close()
        return found, after

    async def both() -> None:
        await holding.send("thrown", b"0")
        assert await outcome(sends(holding, "short")) == await outcome(sends(holding, "general"))

    loop.run_until_complete(both())


@pytest.mark.filterwarnings("ignore:the .* signature of throw:DeprecationWarning")  # of Python's own generators, since 3.12
@each_row("waits", [False, True])
@each_row("given", THROWN.values(), ids=THROWN)
def test_throw_into_the_wait_for_a_delivery(
    holding: KafkaProducer, loop: asyncio.AbstractEventLoop, given: tuple[Any, ...], waits: bool
) -> None:
    """As into a generator; wrong arguments end no wait."""

    def generator() -> Iterator[None]:
        yield

    beside: Any = generator()
    next(beside)
    with pytest.raises(BaseException) as expected:
        beside.throw(*given)

    async def work() -> None:
        wait: Any = (await holding.send("thrown", b"0")).__await__()
        if waits:
            next(wait)
        with pytest.raises(BaseException) as raised:
            wait.throw(*given)
        error = raised.value
        assert (type(error), type(error.__cause__)) == (type(expected.value), type(expected.value.__cause__))
        if isinstance(error, TypeError):
            assert wait.done() == (given == THROWN["class whose call fails"])
        else:
            assert isinstance(error, RuntimeError) or str(error) == str(expected.value)
            assert wait.done()
        wait.close()

    loop.run_until_complete(work())


def test_a_stop_in_user_code_is_no_result(servers: str, topic: str, way: str) -> None:
    """PEP 479: the caller would take its value for the record's future."""

    class Number:
        def __index__(self) -> int:
            raise StopIteration(5)

    async def work() -> None:
        async with await bound(servers, topic) as producer:
            with pytest.raises(RuntimeError, match="coroutine raised StopIteration") as raised:
                await sends(producer, way)(topic, b"0", partition=Number())
            assert isinstance(raised.value.__cause__, StopIteration)

    run(work())


@pytest.mark.parametrize("strict", [False, True])
def test_one_that_is_never_awaited_says_so(servers: str, topic: str, way: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where warnings are errors, one that comes as an object goes is nobody's to catch."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: seen.append((what.exc_type, str(what.exc_value), repr(what.object)[:34])))

    async def work() -> None:
        async with await bound(servers, topic) as producer:
            make = sends(producer, way)
            text = "coroutine 'KafkaProducer.send' was never awaited"
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("error" if strict else "always")
                make(topic, b"never awaited")
                try:
                    raise ZeroDivisionError
                except ZeroDivisionError:
                    make(topic, b"never awaited either", headers=[("h", b"")])
                kept = make(topic, b"in a cycle")
                cycle = [kept]
                del kept
                cycle.append(cycle)
                del cycle
                gc.collect()
                assert (await (await make(topic, b"0"))).offset == 1
            if strict:
                assert [(kind, said) for kind, said, _ in seen] == [(RuntimeWarning, text)] * 3
                assert all(shown.startswith("<coroutine object KafkaProducer.") for _, _, shown in seen)
                assert not warned
            else:
                assert [(one.category, str(one.message), one.filename) for one in warned] == [(RuntimeWarning, text, __file__)] * 3
                assert not seen

    run(work())


# ---- references and context ------------------------------------------------------------------------------------------------------


request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody's")


@pytest.mark.parametrize("driven", ["by the loop", "by the thread"])
def test_callbacks_see_the_context_of_their_send(servers: str, topic: str, way: str, driven: str) -> None:
    """As those of asyncio's futures see the context in which they were added; whoever brings the answer."""

    async def work() -> None:
        seen: dict[str, str] = {}
        threads: set[threading.Thread] = set()
        settings: dict[str, Any] = {"linger_ms": 600_000, "delivery_timeout_ms": 1_200_000}
        producer = KafkaProducer(bootstrap_servers=servers, **settings)
        await producer.partitions_for(topic)

        async def one(name: str) -> Any:
            request.set(name)
            called = asyncio.get_running_loop().create_future()

            def on_delivery(metadata: Any, error: Any) -> None:
                seen[name] = request.get()
                threads.add(threading.current_thread())
                request.set("changed")
                called.set_result(None)

            future = await sends(producer, way)(topic, name, on_delivery=on_delivery)
            return future, called

        sent = [await asyncio.create_task(one(f"task {i}")) for i in range(5)]
        request.set("the flush's")
        if driven == "by the loop":
            waiting = asyncio.ensure_future(sent[0][0])
            await asyncio.sleep(0)
            await asyncio.gather(producer.flush(), waiting)
        else:
            await asyncio.to_thread(producer_in(producer).flush)
        await asyncio.gather(*(called for _, called in sent))
        assert seen == {f"task {i}": f"task {i}" for i in range(5)}
        assert threads == {threading.current_thread()}
        assert request.get() == "the flush's"
        await producer.close()

    run(work())
