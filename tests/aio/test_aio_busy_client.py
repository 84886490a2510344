"""Calls that meet others: what waits for the client's one thread keeps to its deadline, and closing waits for what may not be cut off."""

from __future__ import annotations

import asyncio
import gc
import threading
import types
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.aio import KafkaAdminClient, KafkaConsumer, KafkaProducer, RebalanceListener, calls
from kafkacore.aio.calls import CallThread, NotMade, awaited
from kafkacore.aio.timers import shared_timer
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.loops import NewLoop, run

GUARD_S = 60
SOON_S = 0.1


cluster = embedded()


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> str:
    name = str(request.node.name).replace("[", "-").replace("]", "").replace(" ", "-")
    cluster.produce(name, [b"%d" % i for i in range(30)])
    return name


class HeldAnswers:
    """Holds the answers of a broker to an API until `go_on`."""

    def __init__(self, cluster: EmbeddedCluster, api: str) -> None:
        self._cluster, self._api = cluster, api
        self._asked, self._go_on = threading.Event(), threading.Event()

    def __enter__(self) -> HeldAnswers:
        self._cluster.control(self._api, self._hold)
        return self

    def _hold(self, request: object) -> None:
        self._asked.set()
        self._go_on.wait(GUARD_S)

    async def asked(self) -> None:
        assert await asyncio.to_thread(self._asked.wait, GUARD_S)

    def go_on(self) -> None:
        self._go_on.set()

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._cluster.control(self._api, None)


# ---- closing while a listener runs -----------------------------------------------------------------------------------------------


class SlowListener(RebalanceListener):
    """Goes on when it is let."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.heard: list[str] = []

    async def on_partitions_assigned(self, partitions: Any) -> None:
        self.begun.set()
        await self.go_on.wait()
        self.heard.append("assigned")

    async def on_partitions_revoked(self, partitions: Any) -> None:
        self.heard.append("revoked")


@asynccontextmanager
async def listening(cluster: EmbeddedCluster, topic: str) -> AsyncIterator[tuple[KafkaConsumer, SlowListener, asyncio.Task[Any]]]:
    """A member whose listener runs, and the poll that waits for it."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic, auto_offset_reset="earliest")
    listener = SlowListener()
    consumer.subscribe([topic], listener=listener)
    poll = asyncio.create_task(consumer.poll(None))
    await listener.begun.wait()
    yield consumer, listener, poll
    await consumer.close()


@pytest.mark.parametrize("how", ["close", "block", "cancelled", "unsubscribe"])
def test_closing_waits_for_the_listener(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop, how: str) -> None:
    """It is another task that closes: only a listener itself may not."""

    async def block(consumer: KafkaConsumer) -> None:
        async with consumer:
            pass

    async def work() -> None:
        async with listening(cluster, topic) as (consumer, listener, poll):
            if how == "cancelled":
                poll.cancel()
            ending = {"block": block, "unsubscribe": KafkaConsumer.unsubscribe}.get(how, KafkaConsumer.close)
            end = asyncio.create_task(ending(consumer))
            assert await consumer.position((topic, 0)) == 0  # other calls are made meanwhile
            assert not end.done()
            listener.go_on.set()
            await end
            assert listener.heard == ["assigned", "revoked"]
            assert consumer.closed is (how != "unsubscribe")
            with pytest.raises((errors.ClosedError, errors.IllegalStateError, asyncio.CancelledError)):
                await poll

    run(work, new_loop)


def test_a_listener_cannot_close(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop) -> None:
    """Nor can a task of its own; it would wait for itself."""

    class Closing(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Any) -> None:
            await asyncio.gather(consumer.close())

    async def work() -> None:
        nonlocal consumer
        consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=topic, auto_offset_reset="earliest")
        consumer.subscribe([topic], listener=Closing())
        with pytest.raises(errors.IllegalStateError, match="close inside on_partitions_assigned"):
            await consumer.poll(None)
        assert await consumer.poll(None)
        await consumer.close()
        assert consumer.closed

    consumer: KafkaConsumer
    run(work, new_loop)


@pytest.mark.parametrize("how", ["close", "block", "failed block"])
def test_a_listener_that_does_not_end_keeps_its_consumer_open(
    cluster: EmbeddedCluster, topic: str, new_loop: NewLoop, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing says so in time; the error of the block goes first."""
    monkeypatch.setattr("kafkacore.aio.consumer.close_timeout_s", lambda kind: SOON_S)

    async def end(consumer: KafkaConsumer) -> None:
        if how == "close":
            await consumer.close(SOON_S)
            return
        async with consumer:
            if how == "failed block":
                raise ZeroDivisionError

    async def work() -> None:
        async with listening(cluster, topic) as (consumer, listener, poll):
            for _ in range(2):
                with pytest.raises(ZeroDivisionError if how == "failed block" else errors.KafkaTimeoutError) as failed:
                    await end(consumer)
                said: BaseException | None = failed.value
                while said is not None and not isinstance(said, errors.KafkaTimeoutError):
                    said = said.__context__
                assert "was not closed: its rebalance listener still runs" in str(said)
                assert not consumer.closed
            listener.go_on.set()
            assert await poll

    run(work, new_loop)


# ---- one thread, several calls ---------------------------------------------------------------------------------------------------


def test_calls_that_wait_for_others_keep_their_deadlines(
    cluster: EmbeddedCluster, topic: str, new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PATIENCE_S", SOON_S)

    async def work() -> None:
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
        async with KafkaConsumer(topic, **settings, enable_auto_commit=False) as consumer:
            assert len((await consumer.poll(None, 10))[topic, 0]) == 10
            with HeldAnswers(cluster, "OffsetCommit") as held:
                commit = asyncio.create_task(consumer.commit())
                await held.asked()
                with pytest.raises(errors.KafkaTimeoutError, match=r"position\(\) was not made within 0.1 s"):
                    await consumer.position((topic, 0), SOON_S)
                with pytest.raises(errors.KafkaTimeoutError, match=r"committed\(\) was not made within 0 s"):
                    await consumer.committed((topic, 0), timeout=0)
                assert await consumer.poll(0) == await consumer.poll(SOON_S) == {}
                with pytest.raises(errors.UsageError, match="number of seconds"):
                    positions = asyncio.create_task(consumer.position((topic, 0), "soon"))  # type: ignore[arg-type]
                    await asyncio.sleep(0)
                    held.go_on()
                    await positions
                await commit
            assert [record.offset for record in (await consumer.poll(None, 5))[topic, 0]] == list(range(10, 15))
            assert (await consumer.committed((topic, 0))).offset == 10

    run(work, new_loop)


def test_closing_ends_calls_that_outlast_it(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop) -> None:
    """The one under way and those behind it; as with a synchronous client that another thread closes."""

    async def work() -> None:
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(topic, **settings, enable_auto_commit=False)
        assert await consumer.poll(None)
        with HeldAnswers(cluster, "OffsetCommit") as held:
            tasks = [asyncio.create_task(consumer.commit()), asyncio.create_task(consumer.commit())]
            await held.asked()
            tasks += [asyncio.create_task(consumer.position((topic, 0))), asyncio.create_task(consumer.poll(None))]
            await asyncio.sleep(0)
            await consumer.close(SOON_S)
            assert consumer.closed
            assert {type(outcome) for outcome in await asyncio.gather(*tasks, return_exceptions=True)} == {errors.ClosedError}

    run(work, new_loop)


def test_closing_lets_calls_end(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop) -> None:
    async def work() -> None:
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
        consumer = KafkaConsumer(topic, **settings, enable_auto_commit=False)
        assert await consumer.poll(None, 10)
        with HeldAnswers(cluster, "OffsetCommit") as held:
            tasks = [asyncio.create_task(consumer.commit()), asyncio.create_task(consumer.commit({(topic, 0): 7}))]
            await held.asked()
            close = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            held.go_on()
            await close
            await asyncio.gather(*tasks)
            assert len(shared_timer(asyncio.get_running_loop())) == 0
        async with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert [committed.offset for committed in (await admin.list_group_offsets(topic)).values()] == [7]

    run(work, new_loop)


def test_more_calls_than_threads(cluster: EmbeddedCluster, new_loop: NewLoop) -> None:
    """Those without a thread end in time, too."""

    async def work() -> None:
        async with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.list_topics()
            with HeldAnswers(cluster, "Metadata") as held:
                first = [asyncio.create_task(admin.list_topics()) for _ in range(16)]
                await held.asked()
                more = await asyncio.gather(*(admin.list_topics(timeout=SOON_S) for _ in range(20)), return_exceptions=True)
                assert {str(error)[:39] for error in more} == {"list_topics() was not made within 0.1 s"}
                held.go_on()
                await asyncio.gather(*first)

    run(work, new_loop)


def test_a_wait_counts_against_the_timeout(new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(calls, "time", types.SimpleNamespace(monotonic=lambda: now_s))

    class Client:
        def named(self, what: str, *, timeout: float | None = None) -> tuple[str, float | None]:
            return what, timeout

        def placed(self, what: str, timeout: float | None = None) -> tuple[str, float | None]:
            return what, timeout

    class Face:
        config = types.SimpleNamespace(default_api_timeout_ms=30_000)
        named = awaited(Client.named)
        placed = awaited(Client.placed)

        def __init__(self) -> None:
            self._client = Client()
            self._calls = CallThread("test", lambda: None, lambda: None)

    async def work() -> None:
        nonlocal now_s
        face = Face()
        assert await face.named("n") == ("n", None)
        begun, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def first() -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(GUARD_S)

        asked = [
            asyncio.create_task(face._calls.run(first)),
            asyncio.create_task(face.named("n")),
            asyncio.create_task(face.named("n", timeout=20)),
            asyncio.create_task(face.placed("p")),
            asyncio.create_task(face.placed("p", 20)),
            asyncio.create_task(face.placed(what="p", timeout=20)),
            asyncio.create_task(face.placed("p", float("inf"))),
        ]
        await begun.wait()
        now_s += 0.5
        go_on.set()
        assert await asyncio.gather(*asked) == [None, ("n", 29.5), ("n", 19.5), ("p", 29.5), ("p", 19.5), ("p", 19.5), ("p", float("inf"))]
        face._calls.close()

    run(work, new_loop)


def test_a_cancelled_call_is_interrupted_and_one_that_has_not_started_is_never_made(new_loop: NewLoop) -> None:
    async def work() -> None:
        begun, interrupted = threading.Event(), threading.Event()
        calls = CallThread("test", interrupted.set, lambda: None)
        made: list[str] = []

        def long() -> None:
            begun.set()
            assert interrupted.wait(GUARD_S)
            made.append("long")

        first, second = [asyncio.ensure_future(calls.run(call)) for call in (long, lambda: made.append("never"))]
        assert await asyncio.to_thread(begun.wait, GUARD_S)
        second.cancel()
        await asyncio.wait([second], timeout=0)
        assert not interrupted.is_set()
        first.cancel()
        for task in (first, second):
            with pytest.raises(asyncio.CancelledError):
                await task
        await calls.run(lambda: made.append("next"))
        assert made == ["long", "next"]
        calls.close()

    run(work, new_loop)


def test_a_poll_that_is_interrupted_goes_on_for_what_is_left_of_its_time(new_loop: NewLoop) -> None:
    async def work() -> None:
        now_s, lefts = 100.0, list[float | None]()

        def poll(left_s: float | None) -> str:
            nonlocal now_s
            lefts.append(left_s)
            now_s += 2
            if len(lefts) % 4:
                raise errors.WakeupError
            return "found"

        calls = CallThread("test", lambda: None, lambda: None)
        for timeout_s in (5.0, None):
            assert await calls.wait(poll, timeout_s, lambda: now_s) == "found"
        assert lefts == [5.0, 3.0, 1.0, 0.0, None, None, None, None]
        calls.wakeup()
        with pytest.raises(errors.WakeupError):
            await calls.wait(lambda _: "found", None, lambda: now_s)
        assert await calls.wait(lambda _: "found", None, lambda: now_s) == "found"
        calls.close()

    run(work, new_loop)


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_calls_are_made_in_their_order_by_one_thread_which_ends_with_its_client(new_loop: NewLoop, how: str) -> None:
    async def work() -> None:
        calls = CallThread("test", lambda: None, lambda: None)
        others = set(threading.enumerate())
        made: list[int] = []
        threads: set[threading.Thread] = set()

        def make(number: int) -> None:
            made.append(number)
            threads.add(threading.current_thread())

        await asyncio.gather(*(calls.run(lambda number=number: make(number)) for number in range(5)))  # type: ignore[misc]
        assert made == [0, 1, 2, 3, 4]
        [thread] = threads - others
        if how == "closed":
            calls.close()
            with pytest.raises(errors.ClosedError):
                await calls.run(lambda: make(5))
        else:
            del calls
        await asyncio.to_thread(thread.join, GUARD_S)
        assert not thread.is_alive()

    run(work, new_loop)


def test_a_call_is_made_or_given_up(new_loop: NewLoop) -> None:
    """Never both, whenever the deadline comes."""

    async def work() -> None:
        thread = CallThread("test", lambda: None, lambda: None)
        made: list[int] = []
        late: list[int] = []

        async def call(i: int) -> None:
            try:
                await thread.run(lambda: made.append(i), i % 5 / 1000)
            except NotMade:
                late.append(i)

        for start in range(0, 400, 40):
            await asyncio.gather(*(call(i) for i in range(start, start + 40)))
        assert sorted(made + late) == list(range(400))
        thread.close()

    run(work, new_loop)


# ---- what is left of a closed client -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["producer", "transactional", "consumer", "member", "iterated", "admin"])
def test_a_closed_client_needs_no_collector(cluster: EmbeddedCluster, topic: str, new_loop: NewLoop, kind: str) -> None:
    """Its buffers, some megabytes, are free with its last reference."""

    async def used() -> weakref.ref[Any]:
        servers = {"bootstrap_servers": cluster.bootstrap_servers}
        client: Any
        if kind in ("producer", "transactional"):
            client = KafkaProducer(servers, transactional_id=topic if kind == "transactional" else None)
            async with client:
                if kind == "transactional":
                    await client.init_transactions()
                async with client.transaction() if kind == "transactional" else nullcontext():
                    await client.send(topic, b"x")
                await client.flush()
        elif kind == "admin":
            async with KafkaAdminClient(servers) as client:
                await client.list_topics()
        else:
            group = {"group_id": topic, "enable_auto_commit": False} if kind == "member" else {}
            async with KafkaConsumer(topic, **servers, **group, auto_offset_reset="earliest") as client:
                if kind == "iterated":
                    async for _ in client:
                        break
                else:
                    assert await client.poll(None)
        return weakref.ref(client)

    async def work() -> None:
        await used()  # what is done once: imports, connections
        gc.collect()
        gc.disable()
        try:
            gone = await used()
            while gone() is not None:  # its threads end
                await asyncio.sleep(0)
        finally:
            gc.enable()

    run(work, new_loop)
