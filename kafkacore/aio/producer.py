"""KafkaProducer for asyncio: send() fills batches on the loop's thread, the Sender thread takes them to the brokers.

How the pieces hang together: the compiled append path never waits, so a record that finds its topic known and memory free is queued
without a task switch, by a compiled coroutine (native/send_coroutine.pxi). What would wait raises `NotNow` instead, and is awaited here:
for metadata, or in line for memory. The Sender thread wakes the loop once per finished batch, and only if something in the loop waits for
it.

Rules
1. A record is queued by one call that runs on the loop's thread after the last await. So a send that is cancelled has queued nothing, and
   one that returned has queued its record once. [test_sends, test_nothing_is_queued_before_the_first_step]
2. Tasks that wait for memory form a line, first come, first served; only the first asks the pool. A send that finds a line joins it.
   [test_a_line_for_memory_makes_one_timer_and_keeps_its_order, test_a_turn_that_comes_with_a_cancellation_goes_to_the_next,
   test_a_send_that_finds_a_line_joins_it]
3. While something in the loop awaits a delivery, the loop makes the Sender's passes itself, as a thread that waits in a synchronous send
   does: that saves two thread switches. It need not: where it is blocked, or slow, the Sender thread goes on (see producer/sender.py).
   [test_a_loop_that_is_closed_before_its_pass_spoils_nothing]
4. A task that sends without a pause finds memory free, and so never waits: it lets others run every 10 ms, before it queues a record.
   [test_others_have_a_turn, test_what_is_cancelled_in_that_turn_is_not_queued]
5. The Sender thread never runs code of the application but interceptors: callbacks and awaiting tasks run in the loop.
   [test_callbacks_see_the_context_of_their_send]
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from kafkacore._codec import (
    CoroutineSend,
    Delivery,
    RecordFuture,
    TopicQueue,
    check_delivery_callback,
    on_delivery_in_loop,
    overlook,
    send_method,
)
from kafkacore.aio.calls import Ending, Gate, in_thread, on_a_thread, outlives_its_loop, wake
from kafkacore.aio.driving import LoopDriver
from kafkacore.aio.timers import Line, WheelTimer, ended_within, shared_timer
from kafkacore.clock import Clock
from kafkacore.config import ProducerConfig
from kafkacore.config_keywords import ProducerKeywords, list_settings
from kafkacore.elsewhere import PRODUCER, STARTED, Answering, answer_names
from kafkacore.epoch import Time
from kafkacore.errors import BufferFullError, ForkedClientError, IllegalStateError, KafkaError
from kafkacore.metadata import TopicInfo
from kafkacore.net import block_end
from kafkacore.net.measure import Measured
from kafkacore.producer import BatchFuture, FrameFuture
from kafkacore.producer import KafkaProducer as Producer
from kafkacore.producer.many_call import none_queued
from kafkacore.producer.not_now import NotNow
from kafkacore.producer.transaction_calls import check_step, checked_group, checked_offsets, late
from kafkacore.producer.transactions import CALLS, Phase, Step, StepKind
from kafkacore.producer.two_phase import PreparedTransaction
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, ProducerRecord, RecordMetadata, TopicPartition

T = TypeVar("T")

log = logging.getLogger("kafkacore.producer")

_SHARE_OF_MEMORY, _SHARE_MS = 16, 20
"""Who waits for memory waits for a sixteenth of it, so many milliseconds at most; then for what is needed."""


_STEPS = 1000
"""How often a task looks whether those before it have gone on. A coroutine that is stepped by hand may never do so."""


class _Asking:
    """Tasks that wait for a topic's metadata, in their order. The first that has it closes the short cut of `send` until all have gone on:
    a task that begins in the same turn would come before those that are only about to be woken.

    Args:
        short_send: has the short cut.
        line: of the loop.
    """

    __slots__ = ("_line", "_short_send", "_shut", "_tasks")

    def __init__(self, short_send: CoroutineSend, line: Line) -> None:
        self._short_send = short_send
        self._line = line
        self._tasks: OrderedDict[object, None] = OrderedDict()  # its first is found at once, however many have left before it
        self._shut = False

    def enter(self) -> object:
        """What a task is known by."""
        task = object()
        self._tasks[task] = None
        return task

    async def turn(self, task: object) -> None:
        """The metadata is there: waits until the tasks before have gone on."""
        if not self._shut and len(self._tasks) > 1:
            self._shut = True
            self._short_send.in_line += 1
        for _ in range(_STEPS):
            if next(iter(self._tasks)) is task:
                return
            await asyncio.sleep(0)

    def leave(self, task: object, line: Line) -> bool:
        """The task goes on, or has failed. True when it was the last.

        Args:
            task: what `enter` gave.
            line: of the loop now: where that is another one, it has no short cut to open.
        """
        del self._tasks[task]
        if self._tasks:
            return False
        if self._shut and self._line is line:
            self._short_send.in_line -= 1
        return True


class KafkaProducer:
    """Sends records to Kafka from an event loop. The tasks of one loop may share a producer.

    Usable as an asynchronous context manager: leaving it closes the producer, and so delivers what was sent.

    Source: org.apache.kafka.clients.producer.KafkaProducer.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[ProducerKeywords]
    ) -> None:
        """Connects in the background; a wrong address shows at the first send. No loop need run yet.

        Args:
            config: settings under Kafka's dotted names.
            clock: time; the system's by default.
            **settings: the same with underscores, as in `kafkacore.config.ProducerConfig`.

        Raises:
            ConfigError: a setting is unknown or out of range.
        """
        producer = self._producer = Producer(config, clock=clock, **settings)
        producer._never_waits = True
        self._reported = False  # a warning has said that it was not closed
        self.config: ProducerConfig = producer.config
        self._clock = producer._clock
        self._topics = producer._topics
        self._line = Line()
        self._asking: dict[str, _Asking] = {}  # topics whose metadata tasks wait for
        self._short_send = CoroutineSend(producer, NotNow)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: WheelTimer  # of the loop, for deadlines; since `_bind`
        self._driver = LoopDriver(producer._sender)
        self._ending = Ending(f"producer {self.config.client_id}")
        self._left: Step | None = None  # the abort of a block that could not await it

    # ---- sending -----------------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: Time | None = None,
        on_delivery: Callable[[RecordMetadata | None, KafkaError | None], object] | None = None,
    ) -> RecordFuture:
        """Queues one record; waits only for the topic's metadata and for buffer memory, and every 10 ms for a turn of other tasks. Awaiting
        what it returns waits for the delivery.

        Args:
            topic, value, key, headers, partition, timestamp_ms: as for `kafkacore.KafkaProducer.send`.
            on_delivery: on_delivery(metadata, error), called in the loop: RecordMetadata or None, KafkaError or None.

        Returns:
            RecordFuture; `await future` gives RecordMetadata or raises why the record failed.

        Raises:
            BufferFullError: buffer_memory was not free within max_block_ms.
            KafkaTimeoutError: the topic's metadata did not come within max_block_ms; `.attempts` says why.
            KafkaError: as `kafkacore.KafkaProducer.send`.
        """
        producer = self._producer
        self._bind()
        producer._check_sending()
        record = None
        try:
            check_delivery_callback(on_delivery)
            if producer._put_off:
                producer._put_off = False  # the short cut has looked, and the record has to wait: behind no task that comes later
            elif self._short_send.turn_over():
                await asyncio.sleep(0)
            deadline_ms = self._clock.now_ms() + self.config.max_block_ms
            record, acknowledged = producer._intercept(topic, value, key, headers, partition, timestamp_ms, None)
            queue = await self._queue_of(record.topic)
            producer._check_sending()
            append = producer._prepare(queue, record, acknowledged, 0)
            future: RecordFuture = await self._append(append, record.topic, deadline_ms)
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:  # all that comes before the record is queued
            producer._refuse(error)
            if record is not None:
                producer._not_queued(error)
            raise
        if on_delivery is not None:
            on_delivery_in_loop(future, asyncio.get_running_loop(), on_delivery)
        elif acknowledged is not None:
            overlook(future)
        return future

    _send_general = send
    send = send_method(Answering(send, "send()"), CoroutineSend)

    async def send_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        partitions: Any = None,
        timestamps_ms: Any = None,
    ) -> BatchFuture:
        """Queues many records, in order, with one call. Where buffer_memory is full it waits, and other tasks run.

        Args:
            topic, values, keys, headers, partitions, timestamps_ms: as for `kafkacore.KafkaProducer.send_many`. They must not change before
                the call returns.

        Returns:
            BatchFuture; `await future` gives a BatchMetadata.

        Raises:
            BufferFullError and what else send() raises, asyncio.CancelledError: the records before stay queued; `error.appended` says how
                many, and `error.future` is their BatchFuture.
            ValueError: columns differ in length.
        """
        producer = self._producer
        self._bind()
        producer._check_sending()
        deadline_ms = self._clock.now_ms() + self.config.max_block_ms
        try:
            if self._short_send.look():
                await asyncio.sleep(0)
            queue = await self._queue_of(topic)
            call = await self._append(
                lambda: producer._checked_many(queue, values, keys, headers, partitions, timestamps_ms, 0), topic, deadline_ms
            )
        except BaseException as error:
            producer._refuse(error)
            none_queued(error, topic)
            raise
        try:
            if producer._plain:
                await self._append(lambda: producer._append_call(call), topic, deadline_ms, lambda: call.progress.done)
            else:
                for i in range(call.count):
                    name, value, key, pairs, partition, timestamp_ms, *_ = call.record(i)
                    record = self._send_general(name, value, key, headers=pairs, partition=partition, timestamp_ms=timestamp_ms)
                    call.progress.add(await record)
        except BaseException as error:
            producer._refuse(error)
            call.cut_short(error)
            raise
        return call.future()

    async def send_frame(
        self,
        topic: str,
        frame: Any,
        *,
        key: str | list[str] | None = None,
        value: str | list[str] | None = None,
        value_format: Literal["json", "avro"] | None = None,
        key_format: Literal["json"] | None = None,
        value_schema: Any = None,
        registry: Any = None,
        headers: str | Mapping[str, str] | None = None,
        partition: str | int | None = None,
        timestamp: str | Time | None = None,
        null_keys: bool = False,
        null_fields: bool = True,
        keep: bool | list[str] = False,
    ) -> FrameFuture:
        """Queues the rows of a table, in order. Rows are encoded by a thread, so that other tasks run.

        Args:
            frame: as for `kafkacore.KafkaProducer.send_frame`; or an asynchronous iterator of Arrow batches, which `read` of a consumer is.
            topic, key, value, value_format, key_format, value_schema, registry, headers, partition, timestamp, null_keys, null_fields,
                keep: as there.

        Returns:
            FrameFuture; `await future` gives a FrameMetadata.

        Raises:
            KafkaError, TypeError: as there.
            asyncio.CancelledError: the rows before stay queued; `error.appended` says how many, and `error.future` is their FrameFuture.
        """
        from kafkacore.producer.frames import send_frame_in_loop  # what it imports nobody else needs

        self._bind()
        try:
            return await send_frame_in_loop(
                self, topic, frame, in_thread, key=key, value=value, value_format=value_format, key_format=key_format,
                value_schema=value_schema, registry=registry, headers=headers,
                partition=partition, timestamp=timestamp, null_keys=null_keys, null_fields=null_fields, keep=keep,
            )  # fmt: skip
        except Exception as error:
            self._producer._refuse(error)
            raise

    def _bind(self) -> asyncio.AbstractEventLoop:
        """The running loop, which must be the same wherever a call may wait.

        Raises:
            IllegalStateError: the producer belongs to another loop.
            ForkedClientError: it belongs to the parent process.
        """
        running = asyncio.get_running_loop()
        if self._loop is not running:
            if os.getpid() != self._producer._pid:
                raise ForkedClientError("this producer belongs to the parent process; make one in each process")
            if self._loop is not None and not self._loop.is_closed():
                raise IllegalStateError("this producer belongs to another event loop; make one for each loop")
            self._loop = running
            self._short_send.bind(running)
            self._short_send.in_line = 0  # what waits in the loop before is none of this one's
            self._line = Line()
            self._asking = {}
            self._timer = shared_timer(running)
        return running

    # ---- waiting to send ---------------------------------------------------------------------------------------------------------

    async def _queue_of(self, topic: str) -> TopicQueue:
        """The queue of a topic. Tasks that wait for its metadata go on in the order in which they asked, before those that come later."""
        asking = self._asking.get(topic) if isinstance(topic, str) else None
        if asking is None:
            queue = self._topics.get(topic) if isinstance(topic, str) else None
            if queue is not None:
                return queue
            asking = _Asking(self._short_send, self._line)
            if isinstance(topic, str):
                self._asking[topic] = asking
        task = asking.enter()
        try:
            info = await self._topic(topic)
            await asking.turn(task)
            return self._producer._queue_for(topic, info)
        finally:
            if asking.leave(task, self._line) and self._asking.get(topic) is asking:
                del self._asking[topic]

    async def _topic(self, topic: str) -> TopicInfo:
        looks = self._producer._looks_at_topic(topic, self.config.max_block_ms)
        while True:
            try:
                version, left_ms, fatal_count = next(looks)
            except StopIteration as found:
                info: TopicInfo = found.value
                return info
            await self._newer_metadata(version, self._clock.now_ms() + left_ms, fatal_count)

    async def _newer_metadata(self, version: int, deadline_ms: int, fatal_count: int | None = None) -> None:
        """Waits until the metadata is newer than `version`, until `deadline_ms` at most."""
        metadata = self._producer._metadata
        if fatal_count is None:
            fatal_count = metadata.fatal_count
        while (left_ms := deadline_ms - self._clock.now_ms()) > 0:
            changed = asyncio.get_running_loop().create_future()
            called = wake(changed)
            metadata.watch(called)
            try:
                if metadata.await_update(version, 0, fatal_count):
                    return
                await ended_within(changed, left_ms / 1000, self._timer)
            finally:
                metadata.unwatch(called)

    async def _append(self, append: Callable[[], T], topic: str, deadline_ms: int, done: Callable[[], int] | None = None) -> T:
        """Calls `append` until it does not raise NotNow; in between waits for what was missing.

        Args:
            append: goes on where it was.
            topic: for the error.
            deadline_ms: when to give up.
            done: how far it came; each step forward begins max_block_ms again.
        """
        if not self._short_send.in_line:
            with contextlib.suppress(NotNow):
                return append()
        before = 0 if done is None else done()
        self._short_send.in_line += 1
        line = self._line
        try:
            if not await line.enter(max(0, deadline_ms - self._clock.now_ms()) / 1000, self._timer):
                raise self._full(topic)
            try:
                while True:
                    try:
                        return append()
                    except NotNow as missing:
                        now_ms = self._clock.now_ms()
                        if done is not None and done() > before:
                            before, deadline_ms = done(), now_ms + self.config.max_block_ms
                        if missing.version >= 0:
                            await self._newer_metadata(missing.version, deadline_ms)
                        elif now_ms >= deadline_ms:
                            raise self._full(topic) from None
                        else:
                            await self._memory(missing.nbytes, deadline_ms - now_ms)
            finally:
                line.leave()
        except BaseException:
            self._producer._asked_again.clear()  # the next call asks for itself
            raise
        finally:
            if self._line is line:
                self._short_send.in_line -= 1

    def _full(self, topic: str) -> BufferFullError:
        return BufferFullError(
            f"buffer_memory stayed full for max_block_ms ({self.config.max_block_ms} ms): {self._producer._pool.total_bytes} bytes in all,"
            " and the brokers take them slower than they come",
            topic=topic,
        )

    async def _memory(self, nbytes: int, left_ms: int) -> None:
        """Waits until so much memory is free or the producer is closed, `left_ms` at most.

        A moment for more than that: a broker answers a few batches at a time, and a wait for each answer costs more CPU than its records.
        """
        pool = self._producer._pool
        share = pool.total_bytes // _SHARE_OF_MEMORY
        if share > nbytes:
            share_ms = min(left_ms, _SHARE_MS)
            await self._granted(share, share_ms)
            left_ms -= share_ms
        if left_ms > 0 and pool.available_bytes < nbytes:
            await self._granted(nbytes, left_ms)

    async def _granted(self, nbytes: int, timeout_ms: int) -> None:
        producer = self._producer
        freed = asyncio.get_running_loop().create_future()
        waiter = producer._pool.watch(nbytes, Gate(wake(freed)))
        try:
            producer._sender.wake(-1, True)
            await ended_within(freed, timeout_ms / 1000, self._timer)
        finally:
            producer._pool.unwatch(waiter)

    # ---- transactions ------------------------------------------------------------------------------------------------------------

    async def _step(
        self,
        kind: StepKind,
        timeout: float | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | None = None,
    ) -> None:
        producer = self._producer
        self._bind()
        began_ns = self._clock.now_ns()
        step: Step = producer._submit(kind, offsets, group)
        timeout_s = producer._step_s(timeout)
        producer._sender.wake(-1, True)
        if not await self._delivered(step.delivery, timeout_s):
            raise late(producer._sender, step, timeout_s)
        check_step(step)
        producer._transaction_stats.ended(CALLS[kind], self._clock.now_ns() - began_ns)

    async def _delivered(self, delivery: Delivery, timeout_s: float | None) -> bool:
        """Waits for an outcome; False without one within `timeout_s`."""
        if delivery.finished:
            return True
        loop = asyncio.get_running_loop()
        known = delivery.loop_future(loop)
        try:
            await ended_within(known, timeout_s, self._timer)
        finally:
            delivery.forget(loop, known)
        return delivery.finished

    async def init_transactions(self, timeout: float | None = None) -> None:
        """As `kafkacore.KafkaProducer.init_transactions`."""
        await self._step(StepKind.INIT, timeout)

    def begin_transaction(self) -> None:
        """As `kafkacore.KafkaProducer.begin_transaction`."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """As `kafkacore.KafkaProducer.send_offsets_to_transaction`."""
        group, found = checked_group(group_metadata), checked_offsets(offsets)
        await self._step(StepKind.OFFSETS, timeout, found, group)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """As `kafkacore.KafkaProducer.commit_transaction`. Cancelling it does not undo it: call it again to learn how it ends."""
        await self._step(StepKind.COMMIT, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """As `kafkacore.KafkaProducer.abort_transaction`."""
        await self._step(StepKind.ABORT, timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """As `kafkacore.KafkaProducer.prepare_transaction`."""
        await self._step(StepKind.PREPARE, timeout)
        engine = self._producer._transactional("prepare_transaction")
        return PreparedTransaction.of(str(self.config.transactional_id), engine.at)

    def transaction(self) -> Transaction[Self]:
        """A transaction as a block: `async with producer.transaction():` begins it, its end commits it. When the block raises, cancellation
        included, it is aborted and the exception goes on. The abort of a block that was cancelled is awaited for 5 s at most, else for
        max_block_ms. A block whose coroutine is closed or collected can await nothing: its abort goes on, and the next block awaits its end
        first. A transaction that was prepared in the block stays open.
        """
        return Transaction(self)

    # ---- waiting -----------------------------------------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Sends everything queued now and waits for the outcome.

        Args:
            timeout: seconds, None = no limit (every record has an outcome after delivery_timeout_ms).

        Raises:
            DeliveryError: records failed since the last flush and their futures were not looked at; counts and first causes.
            KafkaTimeoutError: not all outcomes are known within `timeout`.
        """
        producer = self._producer
        producer._check_open()
        loop = self._bind()
        end = None if timeout is None else loop.time() + timeout
        producer._accumulator.begin_flush()
        try:
            producer._sender.wake(-1, True)
            for delivery in dict.fromkeys(batch.delivery.root for batch in producer._accumulator.incomplete()):
                if not await self._delivered(delivery, None if end is None else max(0.0, end - loop.time())):
                    producer._sender.wait(delivery, 0.0)  # words the error
        finally:
            producer._accumulator.end_flush()
        if (lost := producer._unobserved()) is not None:
            raise lost

    async def close(self, timeout: float | None = 30) -> None:
        """Delivers what is queued, then closes the connections. If it is cancelled, that goes on; calling it again waits for its end,
        `timeout` at most, and does nothing after it.

        Args:
            timeout: seconds for a graceful end, None = delivery_timeout_ms; then the rest fails with ClosedError.
        """
        await self._end(lambda: self._producer.close(timeout), timeout)

    async def _end(self, close: Callable[[], None], timeout: float | None = None) -> None:
        self._driver.close()
        await self._ending.run(close, on_a_thread, lambda: not self.closed, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Closes.

        Raises:
            DeliveryError: as `flush`, unless the block itself raised something.
        """
        if not outlives_its_loop(kind):
            await self._end(lambda: self._producer.__exit__(kind, value, traceback))

    def __del__(self) -> None:
        producer = self.__dict__.get("_producer")
        if producer is not None and not producer.closed and not self._reported:
            warnings.warn(f"{self!r} was never closed: what it still held is delivered in the background", ResourceWarning, stacklevel=2)

    # ---- looking in --------------------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic; as `kafkacore.KafkaProducer.partitions_for`."""
        self._producer._check_open()
        self._bind()
        return {partition.index for partition in (await self._topic(topic)).partitions}

    @overload
    def metrics(self, *, detail: Literal[False] = False) -> dict[str, int]: ...
    @overload
    def metrics(self, *, detail: Literal[True]) -> dict[str, dict[str, float]]: ...
    def metrics(self, *, detail: bool = False) -> dict[str, int] | dict[str, dict[str, float]]:
        """As `kafkacore.KafkaProducer.metrics`."""
        return self._producer.metrics(detail=True) if detail else self._producer.metrics()

    def measured(self) -> list[Measured]:
        """As `kafkacore.KafkaProducer.measured`."""
        return self._producer.measured()

    @property
    def closed(self) -> bool:
        """True once the producer is closed."""
        return self._producer.closed

    def statistics(self) -> dict[str, Any]:
        """As `kafkacore.KafkaProducer.statistics`."""
        return self._producer.statistics()

    def __repr__(self) -> str:
        return f"<aio.KafkaProducer {', '.join(self.config.bootstrap_servers)}{'; closed' if self.closed else ''}>"


P = TypeVar("P", bound=KafkaProducer)


class Transaction(Generic[P]):
    """The block of `async with producer.transaction():`; rules there.

    Args:
        producer: whose transaction it is.
    """

    def __init__(self, producer: P) -> None:
        self._producer = producer
        self._engine = producer._producer._transactional("transaction")

    async def __aenter__(self) -> P:
        """Begins the transaction, once the abort of a block before has ended that could not be awaited there."""
        producer = self._producer
        if (left := producer._left) is not None:
            producer._producer._check_open()
            producer._bind()
            if await producer._delivered(left.delivery, producer._producer._step_s(None)) and producer._left is left:
                producer._left = None
        producer.begin_transaction()
        return producer

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Commits, or aborts when the block raised."""
        if kind is not None:
            if self._open:
                if kind is GeneratorExit:
                    self._leave()
                else:
                    await self._abort(kind)
            return
        if self._engine.at.phase is Phase.PREPARED:
            return  # its end is the affair of the process it is handed to
        try:
            await self._producer.commit_transaction()
        except KafkaError as failed:
            if failed.txn_requires_abort and self._open:
                await self._abort(type(failed))
            raise

    @property
    def _open(self) -> bool:
        """False when what the block began is fatal, or has ended within it."""
        return self._engine.at.phase in (Phase.OPEN, Phase.ABORTABLE, Phase.ABORTING)

    async def _abort(self, reason: type[BaseException]) -> None:
        """Aborts; the error that made it necessary is the one to raise."""
        timeout_s = None
        if issubclass(reason, (asyncio.CancelledError, KeyboardInterrupt)):  # who cancels waits for the end of the task
            timeout_s = min(self._producer.config.max_block_ms / 1000, block_end.FAILED_BLOCK_S)
        try:
            await self._producer.abort_transaction(timeout_s)
        except KafkaError as failed:
            log.error("the transaction could not be aborted: %s", failed)

    def _leave(self) -> None:
        """Has the Sender abort. The collector may call this, on any thread, between any two steps: it takes no lock."""
        producer = self._producer._producer
        if producer.closed or os.getpid() != producer._pid:
            return
        try:
            self._producer._left = self._engine.submit(StepKind.ABORT)
            producer._sender.wake(-1, True)
        except KafkaError as refused:
            log.error("the transaction of a block that was closed could not be aborted: %s", refused)


answer_names(KafkaProducer, PRODUCER, STARTED)
list_settings(KafkaProducer, ProducerConfig)
