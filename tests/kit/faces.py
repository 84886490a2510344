"""The asyncio clients under the synchronous names, so that one test body runs on both faces.

    test's thread                     thread of the event loop, one for all clients of a test
    producer.send(...)          ->    await producer.send(...)
    waits                       <-    result or error
    listener, on a thread       <-    await to_thread(listener)

A test that takes the fixture `client_face` runs as `[sync]` and as `[aio]`. For `[aio]` the names KafkaProducer, KafkaConsumer and
KafkaAdminClient of its module, and of the modules in its `FACED`, are those of here. Marked `sync_only(reason)` it runs on one face.
The second face waits for KAFKACORE_FACES=all, which the night sets, where a test or a case is marked `aio_at_length`, and on Apache Kafka:
a broker does not see which face asks, so the embedded one is enough for each change.

When a test ends, nothing may be left in the loop: no task that waits, no error that nobody has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from types import ModuleType
from typing import Any, Self

import pytest

import kafkacore
from kafkacore import TopicPartition, aio, errors
from kafkacore.consumer import RebalanceListener
from kafkacore.testing import EmbeddedCluster
from tests.kit.inside import producer_in

GUARD_S = 120
END = object()
CLIENTS = ("KafkaAdminClient", "KafkaConsumer", "KafkaProducer")


class Face:
    """An event loop on a thread of its own, for clients of this module that are made while it is the current one."""

    current: Face | None = None

    def __init__(self) -> None:
        self.wrong: list[dict[str, Any]] = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.wrong.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever, name="aio-face", daemon=True)
        self.thread.start()

    def run(self, call: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
        """Awaits call(...) in the loop. When the caller is interrupted, the task is cancelled, and has ended."""
        assert threading.current_thread() is not self.thread, "code in the loop must not wait"
        ended = asyncio.run_coroutine_threadsafe(call(*args, **kwargs), self.loop)
        try:
            return ended.result()
        except BaseException:
            if not ended.done():
                ended.cancel()
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(GUARD_S)
            raise

    def close(self) -> None:
        """Ends the loop.

        Raises:
            AssertionError: something is left in it.
        """

        async def rest() -> list[str]:
            async with asyncio.timeout(GUARD_S):
                while left := asyncio.all_tasks() - {asyncio.current_task()}:
                    await asyncio.wait(left, timeout=5)
                    if left & asyncio.all_tasks():
                        return [repr(task) for task in left]
            await asyncio.get_running_loop().shutdown_default_executor()
            return []

        left = self.run(rest)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(GUARD_S)
        self.loop.close()
        assert not left, f"tasks that nobody ended: {left}"
        assert not self.wrong, self.wrong


@contextlib.contextmanager
def face_in(name: str, *modules: ModuleType) -> Iterator[None]:
    """The names of the clients in these modules are those of the face "sync" or "aio"."""
    if name == "sync":
        yield
        return
    before, Face.current = Face.current, Face()
    swapped = [(module, each, getattr(module, each)) for module in modules for each in CLIENTS if hasattr(module, each)]
    try:
        for module, each, _ in swapped:
            setattr(module, each, globals()[each])
        yield
    finally:
        for module, each, client in swapped:
            setattr(module, each, client)
        face, Face.current = Face.current, before
        face.close()


class Future:
    """What `send` returns."""

    def __init__(self, face: Face, future: Any) -> None:
        self._face = face
        self._future = future

    def result(self, timeout: float | None = None) -> Any:
        if self._future.done():
            return self._future.result(0)
        return self._face.run(self._awaited, timeout)

    get = result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._future.done():
            try:
                self._face.run(self._awaited, timeout)
            except errors.KafkaTimeoutError:
                if not self._future.done():
                    raise
            except errors.KafkaError:
                pass
        return self._future.exception(0)  # type: ignore[no-any-return]

    async def _awaited(self, timeout_s: float | None) -> Any:
        try:
            async with asyncio.timeout(timeout_s) as until:
                return await self._future
        except TimeoutError:
            if not until.expired():
                raise
            raise errors.KafkaTimeoutError(f"no outcome within {timeout_s} s") from None

    def add_done_callback(self, called: Callable[[Any], object]) -> None:
        """By a task that awaits the future."""

        async def wait() -> None:
            with contextlib.suppress(errors.KafkaError):
                await self._future
            called(self)

        asyncio.run_coroutine_threadsafe(wait(), self._face.loop)

    def __len__(self) -> int:
        return len(self._future)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._future, name)


class Listener(aio.RebalanceListener):
    """Awaits a synchronous listener, which waits on a thread of its own."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_lost, partitions)


class Client:
    """What all three have in common; `adapted` adds the calls."""

    made: Callable[..., Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        assert Face.current is not None
        self._face = Face.current
        self._aio = type(self).made(*args, **kwargs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._face.run(self._aio.__aexit__, *error)

    def __getattr__(self, name: str) -> Any:
        """What tests look at inside is the same object on both faces."""
        client = self._aio
        inner = producer_in(client) if "_producer" in client.__dict__ else client._client
        return getattr(inner if name.startswith("_") else client, name)

    def _iterated(self, records: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(records, END)

        try:
            while (record := self._face.run(following)) is not END:
                yield record
        finally:
            self._face.run(records.aclose)


def adapted(face: type, sync: type) -> Callable[[type], type]:
    """A class with the public calls of both, each awaited in the loop."""

    def call_of(name: str) -> Any:
        waits = inspect.iscoroutinefunction(getattr(face, name))

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            method = getattr(self._aio, name)

            async def made() -> Any:
                return await method(*args, **kwargs) if waits else method(*args, **kwargs)

            return self._face.run(made)

        return call

    def filled(cls: Any) -> Any:
        cls.made = face
        for name in dir(sync):
            if not name.startswith("_") and name not in cls.__dict__ and callable(getattr(sync, name, None)):
                setattr(cls, name, call_of(name))
        return cls

    return filled


@adapted(aio.KafkaProducer, kafkacore.KafkaProducer)
class KafkaProducer(Client):
    def send(self, *args: Any, **kwargs: Any) -> Future:
        return Future(self._face, self._face.run(self._aio.send, *args, **kwargs))

    def send_many(self, *args: Any, **kwargs: Any) -> Future:
        return self._future_of(self._aio.send_many, *args, **kwargs)

    def send_frame(self, *args: Any, **kwargs: Any) -> Future:
        return self._future_of(self._aio.send_frame, *args, **kwargs)

    def _future_of(self, call: Any, *args: Any, **kwargs: Any) -> Future:
        try:
            return Future(self._face, self._face.run(call, *args, **kwargs))
        except errors.KafkaError as error:
            if (part := getattr(error, "future", None)) is not None:
                error.future = Future(self._face, part)  # type: ignore[attr-defined]
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        block = self._aio.transaction()

        async def left(error: BaseException | None) -> None:
            try:
                await block.__aexit__(None if error is None else type(error), error, None if error is None else error.__traceback__)
            except BaseException as raised:
                if raised is not error:  # which Ctrl+C must not be: it would end the loop
                    raise

        self._face.run(block.__aenter__)
        try:
            yield self
        except BaseException as error:
            self._face.run(left, error)
            raise
        self._face.run(left, None)


@adapted(aio.KafkaConsumer, kafkacore.KafkaConsumer)
class KafkaConsumer(Client):
    def subscribe(self, topics: Any = None, pattern: Any = None, listener: Any = None) -> None:
        async def made() -> None:
            self._aio.subscribe(topics, pattern, None if listener is None else Listener(listener))

        self._face.run(made)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        async def made() -> None:
            self._aio.assign(partitions)

        self._face.run(made)

    def read_range(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._iterated(self._aio.read_range(*args, **kwargs))

    def wakeup(self) -> None:
        self._aio.wakeup()

    def __iter__(self) -> Iterator[Any]:
        return self._iterated(aiter(self._aio))


@adapted(aio.KafkaAdminClient, kafkacore.KafkaAdminClient)
class KafkaAdminClient(Client):
    pass


# ---- pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sync_only(reason): of a test on both faces, one that makes sense on the synchronous one alone")
    config.addinivalue_line("markers", "aio_at_length: of a test on both faces, one that runs on the second only with KAFKACORE_FACES=all")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "client_face" not in metafunc.fixturenames:
        return
    one = metafunc.definition.get_closest_marker("sync_only")
    metafunc.parametrize("client_face", ["sync"] if one else ["sync", "aio"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("KAFKACORE_FACES") == "all":
        return

    def is_long(item: Any) -> bool:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        return params.get("client_face") == "aio" and any(item.get_closest_marker(name) for name in ("aio_at_length", "kafka"))

    left_out = [item for item in items if is_long(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_long(item)]


@pytest.fixture
def client_face(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs with the synchronous clients, and with those for asyncio."""
    with face_in(request.param, request.module, *getattr(request.module, "FACED", ())):
        yield request.param


@pytest.fixture(scope="module")
def cluster_of_face() -> Iterator[Callable[[str], EmbeddedCluster]]:
    """A cluster of one broker for each face: tests name their topics, of which "t" with four partitions is there."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def of(name: str) -> EmbeddedCluster:
            cluster = stack.enter_context(EmbeddedCluster(brokers=1))
            cluster.create_topic("t", partitions=4, replication_factor=1)
            return cluster

        yield of
