"""How calls come from a loop to a client's thread, one rule at a time, without a broker."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.aio import KafkaConsumer
from kafkacore.aio.call_threads import CallThreads
from kafkacore.aio.calls import CallThread, Job, NotMade, awaited
from kafkacore.aio.testing import EmbeddedCluster
from tests.kit.inside import change_of
from tests.kit.loops import run, turns

GUARD_S = 60


class Noting:
    """In the place of a client's threads: notes how each call is to be made."""

    def __init__(self) -> None:
        self.seen: list[tuple[float | None, bool]] = []

    async def run(self, call: Any, timeout_s: float | None = None, *, alone: bool = False) -> Any:
        self.seen.append((timeout_s, alone))
        return call()


class Unmade(Noting):
    """One that makes no call."""

    async def run(self, call: Any, timeout_s: float | None = None, *, alone: bool = False) -> Any:
        return await super().run(lambda: None, timeout_s, alone=alone)


def test_a_call_waits_for_a_listener_only_where_it_says_so() -> None:
    class Client:
        def plain(self) -> int:
            return 1

        def timed(self, timeout: float | None = None) -> float | None:
            return timeout

    class Face:
        config = SimpleNamespace(default_api_timeout_ms=30_000)
        plain, alone, timed = awaited(Client.plain), awaited(Client.plain, alone=True), awaited(Client.timed)

        def __init__(self) -> None:
            self._client, self._calls = Client(), Noting()

    async def work() -> None:
        face = Face()
        assert [await face.plain(), await face.alone(), await face.timed(), await face.timed(2)] == [1, 1, None, 2]
        assert face._calls.seen == [(None, False), (None, True), (30.0, False), (2.0, False)]
        noting = SimpleNamespace(_client=None, _calls=Unmade(), config=Face.config)
        calls = {
            name: call for name, call in vars(KafkaConsumer).items() if hasattr(call, "__wrapped__") and asyncio.iscoroutinefunction(call)
        }
        for call in calls.values():
            await call(noting)
        assert [name for name, (_, alone) in zip(calls, noting._calls.seen, strict=True) if alone] == ["unsubscribe"]
        driver: Any = SimpleNamespace(wakeup=lambda: None, forget_wakeup=lambda: None)
        threads = CallThreads(SimpleNamespace(first=driver, bound=lambda driver: nullcontext()))  # type: ignore[arg-type]
        seen: list[bool] = []
        submit = CallThread.submit

        def noted(thread: CallThread, job: Job) -> None:
            seen.append(job.alone)
            submit(thread, job)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CallThread, "submit", noted)
            await threads.run(lambda: 1)
            await threads.run(lambda: 1, alone=True)
            one = CallThread("test", lambda: None, lambda: None)
            await one.run(lambda: 1)
        assert seen == [False, True, False]
        threads.close()
        one.close()

    run(work)


def test_a_wait_for_records_stands_behind_others_for_a_second_at_least() -> None:
    async def work() -> None:
        calls, asked = CallThread("test", lambda: None, lambda: None), list[float | None]()

        async def late(call: Any, timeout_s: float | None = None) -> None:
            asked.append(timeout_s)
            raise NotMade

        calls.run = late  # type: ignore[method-assign, assignment]
        assert [await calls.wait(lambda _: 1, timeout_s, lambda: 0.0) for timeout_s in (0.0, 0.5, 3.0, None)] == [None] * 4
        assert asked == [1.0, 1.0, 3.0, None]

    run(work)


def test_a_call_that_nothing_awaits_is_made_behind_others_and_its_failure_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        calls, begun, go_on, made = CallThread("client c", lambda: None, lambda: None), threading.Event(), threading.Event(), list[str]()

        def long() -> None:
            begun.set()
            assert go_on.wait(GUARD_S)
            made.append("long")

        assert calls.idle
        calls.make_when_free(lambda: made.append("now"))
        first = asyncio.create_task(calls.run(long))
        assert await asyncio.to_thread(begun.wait, GUARD_S)
        for call in (lambda: made.append("later"), lambda: 1 // 0):
            calls.make_when_free(call)
        assert not calls.idle and made == ["now"]
        go_on.set()
        await first
        await calls.run(lambda: made.append("last"))
        assert made == ["now", "long", "later", "last"]
        assert [record.message for record in caplog.records] == ["client c: a call that nothing awaits failed"]
        calls.close()

    run(work)


def test_a_change_of_a_broker_waits_for_those_that_were_asked_for_before() -> None:
    async def work() -> None:
        sync: Any = SimpleNamespace(config=None, _brokers=(1, 2))
        change, go_on, made = change_of(EmbeddedCluster.of(sync)), threading.Event(), list[str]()

        def first(*_: Any) -> None:
            assert go_on.wait(GUARD_S)
            made.append("first")

        def note(what: str) -> Any:
            return lambda cluster, *_, **__: made.append(what)

        asked = [change(first, 1), change(note("second"), broker=1), change(note("other"), 2), change(note("all"))]
        changes = [asyncio.ensure_future(each) for each in asked]
        await changes[2]
        await turns(5)
        assert made == ["other"]
        go_on.set()
        await asyncio.gather(*changes)
        assert made == ["other", "first", "second", "all"]

    run(work)
