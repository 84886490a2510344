"""confluent-kafka's asyncio clients: AIOProducer and AIOConsumer.

The producer needs no thread for `produce`: it never waits, and the event loop serves what becomes of its messages as soon as it is known.
Calls that wait run in an executor, as in confluent-kafka. So do all calls of the consumer, one at a time; those that a callback of it
makes run in the thread that waits for the callback.

Source: confluent_kafka.aio, confluent-kafka 2.16.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Self

from kafkacore.compat.confluent.consumer import Consumer
from kafkacore.compat.confluent.events import Events
from kafkacore.compat.confluent.kafka_error import KafkaError, KafkaException
from kafkacore.compat.confluent.not_covered import NOT_COVERED, reason
from kafkacore.compat.confluent.producer import Producer

__all__ = ["AIOConsumer", "AIOProducer"]

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")
BATCH_SIZE, BUFFER_TIMEOUT_S = 1000, 1.0
"""confluent-kafka's defaults."""

log = logging.getLogger("kafkacore.compat")


class _Calls:
    """Calls of coroutines, from a callback, that are for the thread that waits for the callback."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._over = False

    def put(self, job: Callable[[], None]) -> bool:
        """Takes a call; False when the callback has ended: a task that it began goes on."""
        with self._lock:
            if not self._over:
                self._jobs.put(job)
            return not self._over

    def end(self, _: Any) -> None:
        """The callback has ended."""
        with self._lock:
            self._over = True
            self._jobs.put(None)

    def serve(self) -> None:
        """Carries the calls out, until the callback has ended."""
        while (job := self._jobs.get()) is not None:
            job()


_tasks: set[asyncio.Task[Any]] = set()
"""Callbacks that nothing waits for."""
_inside: contextvars.ContextVar[_Calls | None] = contextvars.ContextVar("kafkacore_confluent_callback", default=None)


def _plain(loop: asyncio.AbstractEventLoop, callback: Callable[..., Coroutine[Any, Any, Any]], first: Any = None) -> Callable[..., Any]:
    """A coroutine function as a callback of the clients beneath: it runs in the loop, and other threads wait for its end.

    Args:
        loop: where it runs.
        callback: the program's.
        first: takes the place of the first argument, if it is given.
    """

    def called(*args: Any) -> Any:
        calls = _Calls()
        given = args if first is None else (first, *args[1:])

        async def run() -> Any:
            _inside.set(calls)
            return await callback(*given)

        if asyncio._get_running_loop() is loop:  # nothing waits here: the loop itself serves the event
            calls.end(None)
            _tasks.add(task := loop.create_task(run()))
            task.add_done_callback(_tasks.discard)
            return task
        ended = asyncio.run_coroutine_threadsafe(run(), loop)
        ended.add_done_callback(calls.end)
        calls.serve()
        return ended.result()

    return called


def _with_callbacks(loop: asyncio.AbstractEventLoop, conf: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**conf, **{name: _plain(loop, conf[name]) for name in (*CALLBACKS, *names) if conf.get(name) is not None}}


class _LoopEvents(Events):
    """Events that an event loop serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop, self._asked = loop, False
        self.came = asyncio.Event()
        queued = self.put

        def put(event: Any) -> None:
            queued(event)
            if not self._asked:
                self._asked = True
                try:
                    loop.call_soon_threadsafe(self.come)
                except RuntimeError:  # the loop is closed: nobody waits
                    log.debug("an event came after its event loop was closed")

        self.put = put  # type: ignore[assignment]

    def come(self) -> None:
        """Serves what is there; in the loop."""
        self._asked = False
        self.came.set()
        if (raised := self.serve_all()) is not None:
            self._loop.call_exception_handler({"message": "a callback of an AIOProducer failed", "exception": raised})


class _LoopProducer(Producer):
    """A producer whose events the loop serves."""

    def __init__(self, conf: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        super().__init__(conf)

    def _make_events(self) -> Events:
        return _LoopEvents(self._loop)


class _Client:
    """What both have: the executor, and how calls run in it."""

    def __init__(self, max_workers: int, executor: Executor | None) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self.executor = executor or ThreadPoolExecutor(max_workers=max_workers)
        self._own = executor is None

    async def _run(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.executor, functools.partial(call, *args, **named))

    async def _end(self) -> None:
        if self._own:
            await asyncio.get_running_loop().run_in_executor(None, self.executor.shutdown)


class AIOProducer(_Client):
    """Sends messages from an event loop.

    Args:
        producer_conf: a Producer's settings; error_cb, throttle_cb and stats_cb are coroutine functions.
        max_workers: threads for calls that wait.
        executor: takes the place of these threads.
        batch_size, buffer_timeout: without effect: there is no second buffer; linger.ms and batch.size say how messages are batched.

    Raises:
        KafkaException: a setting is unknown, wrong or refused.
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = BATCH_SIZE,
        buffer_timeout: float = BUFFER_TIMEOUT_S,
    ) -> None:
        super().__init__(max_workers, executor)
        if (batch_size, buffer_timeout) != (BATCH_SIZE, BUFFER_TIMEOUT_S):
            log.warning("batch_size and buffer_timeout of AIOProducer have no effect: linger.ms and batch.size make batches")
        self._loop = asyncio.get_running_loop()
        self._producer = _LoopProducer(_with_callbacks(self._loop, producer_conf), self._loop)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __len__(self) -> int:
        return 0 if self._is_closed else len(self._producer)

    async def produce(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> asyncio.Future[Any]:
        """Queues a message.

        Args:
            topic: topic name.
            value, key: bytes or str.
            **more: partition, timestamp, headers, as of `Producer.produce`.

        Returns:
            A future of the delivered Message; it raises KafkaException where the message was not delivered.
        """
        result = self._loop.create_future()
        try:
            self._producer.produce(topic, value, key, on_delivery=functools.partial(self._ended, result), **more)
        except BufferError as full:
            result.set_exception(KafkaException(KafkaError(KafkaError._QUEUE_FULL, str(full))))  # type: ignore[attr-defined]
        except KafkaException as error:
            result.set_exception(error)
        return result

    def _ended(self, result: asyncio.Future[Any], error: Any, message: Any) -> None:
        if asyncio._get_running_loop() is self._loop:
            _settle(result, error, message)
        else:
            self._loop.call_soon_threadsafe(_settle, result, error, message)

    async def poll(self, timeout: float = 0, *args: Any, **named: Any) -> int:
        """Waits for events; futures need no `poll`.

        Args:
            timeout: seconds; below 0 without limit.

        Returns:
            How many were served by this call.
        """
        events = self._producer._events
        assert isinstance(events, _LoopEvents)
        served = self._producer.poll(0)
        if served or timeout == 0:
            return served
        events.came.clear()
        try:
            await asyncio.wait_for(events.came.wait(), None if timeout < 0 else timeout)
        except TimeoutError:
            return self._producer.poll(0)
        return 1

    async def flush(self, *args: Any, **named: Any) -> Any:
        """As `Producer.flush`: returns how many messages are left."""
        return await self._run(self._producer.flush, *args, **named)

    async def purge(self, *args: Any, **named: Any) -> Any:
        """As `Producer.purge`."""
        return await self._run(self._producer.purge, *args, **named)

    async def list_topics(self, *args: Any, **named: Any) -> Any:
        """As `Producer.list_topics`."""
        return await self._run(self._producer.list_topics, *args, **named)

    async def cluster_id(self, *args: Any, **named: Any) -> Any:
        """As `Producer.cluster_id`."""
        return await self._run(self._producer.cluster_id, *args, **named)

    async def init_transactions(self, *args: Any, **named: Any) -> Any:
        """As `Producer.init_transactions`."""
        return await self._run(self._producer.init_transactions, *args, **named)

    async def begin_transaction(self, *args: Any, **named: Any) -> Any:
        """As `Producer.begin_transaction`, after a flush."""
        await self.flush()
        return await self._run(self._producer.begin_transaction, *args, **named)

    async def send_offsets_to_transaction(self, *args: Any, **named: Any) -> Any:
        """As `Producer.send_offsets_to_transaction`."""
        return await self._run(self._producer.send_offsets_to_transaction, *args, **named)

    async def commit_transaction(self, *args: Any, **named: Any) -> Any:
        """As `Producer.commit_transaction`, after a flush."""
        await self.flush()
        return await self._run(self._producer.commit_transaction, *args, **named)

    async def abort_transaction(self, *args: Any, **named: Any) -> Any:
        """As `Producer.abort_transaction`, after a flush."""
        await self.flush()
        return await self._run(self._producer.abort_transaction, *args, **named)

    async def set_sasl_credentials(self, *args: Any, **named: Any) -> Any:
        """As `Producer.set_sasl_credentials`."""
        return await self._run(self._producer.set_sasl_credentials, *args, **named)

    async def close(self) -> None:
        """Delivers what is queued, and closes; again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            await self.flush()
            await self._run(self._producer.close)
            await self._end()


def _settle(result: asyncio.Future[Any], error: Any, message: Any) -> None:
    if result.done():
        return
    if error is None:
        result.set_result(message)
    else:
        result.set_exception(KafkaException(error))


def _method(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def method(self: Any, *args: Any, **named: Any) -> Any:
        return await self._call(getattr(self._consumer, name), *args, **named)

    method.__name__, method.__qualname__, method.__doc__ = name, f"AIOConsumer.{name}", f"As `Consumer.{name}`."
    return method


class AIOConsumer(_Client):
    """Reads messages from an event loop. Its calls run one after the other.

    Args:
        consumer_conf: a Consumer's settings; its callbacks are coroutine functions.
        max_workers: threads for its calls.
        executor: takes the place of these threads.

    Raises:
        KafkaException: a setting is unknown, wrong or refused.
        ValueError: there is no group.id, or no worker.
    """

    def __init__(self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Executor | None = None) -> None:
        super().__init__(max_workers, executor)
        self._closed = False
        self._turn = threading.Lock()
        self._consumer = Consumer(_with_callbacks(asyncio.get_running_loop(), consumer_conf, "on_commit"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if self._closed:
            raise RuntimeError("Consumer closed")
        calls = _inside.get()
        if calls is not None:
            done: Future[Any] = Future()
            if calls.put(functools.partial(_carry_out, done, functools.partial(call, *args, **named))):
                return await asyncio.wrap_future(done)
        return await self._run(self._in_turn, call, *args, **named)

    def _in_turn(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        with self._turn:
            return call(*args, **named)

    async def subscribe(self, *args: Any, **named: Any) -> Any:
        """As `Consumer.subscribe`; callbacks are coroutine functions, and get this consumer."""
        loop = asyncio.get_running_loop()
        for name in ("on_assign", "on_revoke", "on_lost"):
            if named.get(name) is not None:
                named[name] = _plain(loop, named[name], self)
        return await self._call(self._consumer.subscribe, *args, **named)

    poll = _method("poll")
    consume = _method("consume")
    unsubscribe = _method("unsubscribe")
    commit = _method("commit")
    seek = _method("seek")
    pause = _method("pause")
    resume = _method("resume")
    store_offsets = _method("store_offsets")
    committed = _method("committed")
    assign = _method("assign")
    unassign = _method("unassign")
    incremental_assign = _method("incremental_assign")
    incremental_unassign = _method("incremental_unassign")
    assignment = _method("assignment")
    position = _method("position")
    consumer_group_metadata = _method("consumer_group_metadata")
    set_sasl_credentials = _method("set_sasl_credentials")
    list_topics = _method("list_topics")
    cluster_id = _method("cluster_id")
    get_watermark_offsets = _method("get_watermark_offsets")
    offsets_for_times = _method("offsets_for_times")

    async def close(self, *args: Any, **named: Any) -> Any:
        """As `Consumer.close`."""
        try:
            return await self._call(self._consumer.close, *args, **named)
        finally:
            self._closed = True
            await self._end()


def _carry_out(done: Future[Any], call: Callable[[], Any]) -> None:
    try:
        done.set_result(call())
    except BaseException as error:
        done.set_exception(error)


def __getattr__(name: str) -> Any:
    if f"aio.{name}" in NOT_COVERED:
        raise ImportError(reason(f"aio.{name}"))
    raise AttributeError(f"module {__name__} has no attribute {name!r}")
