"""KafkaConsumer for asyncio: what is there already is handed out in the loop; a thread of the consumer waits for the rest.

    poll()   records there already? ----------------------- yes -> handed out, no task switch
                       | no
             thread: steps, network, rebalances, until there is something to take; the loop is woken once
                       |
             handed out by the loop's own thread, behind the last await

Rules
1. Records are handed out, and positions move, only on the loop's thread, after the last await: a poll that is cancelled has handed out
   nothing, and one that returned has handed out its records once. [test_a_member]
2. The thread drives the network while a call waits, the member's background thread between two calls. Neither needs the loop: a consumer
   whose loop is blocked for longer than the session keeps its partitions, until max_poll_interval_ms has passed.
   [test_a_member_survives_a_loop_that_is_blocked_for_longer_than_its_session]
3. The listener and commit callbacks run in the loop; deserializers and interceptors, which are plain functions, run where records are
   handed out. [test_whatever_a_listener_returns_is_awaited, test_what_a_call_calls_sees_its_context]
4. Tasks share a consumer as long as only one of them reads: other calls go first, and the wait for records goes on.
   [test_other_calls_go_first_while_a_poll_waits, test_a_stretch_that_is_left_while_another_call_is_under_way]
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import re
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeVar, Unpack, overload

from kafkacore import errors
from kafkacore.aio.calls import CallThread, Ending, Job, awaited, immediate, outlives_its_loop
from kafkacore.aio.timers import WheelHandle, shared_timer
from kafkacore.clock import Clock
from kafkacore.config import ConsumerConfig
from kafkacore.config_keywords import ConsumerKeywords, list_settings
from kafkacore.consumer import KafkaConsumer as Consumer
from kafkacore.consumer import RebalanceListener as SyncListener
from kafkacore.consumer import RecordBatches
from kafkacore.consumer.stretches import NO_END, ColumnStream, Where
from kafkacore.elsewhere import CONSUMER, STARTED, answer_names, check_plain_function, check_seconds, refuse_arguments
from kafkacore.net.block_end import CLOSE_S, close_timeout_s
from kafkacore.net.measure import Measured
from kafkacore.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition

if TYPE_CHECKING:
    from kafkacore.records import ConsumerRecord, RecordColumns

T = TypeVar("T")

_TURN_S = 0.01
"""A task that always finds records lets others run this often."""


class RebalanceListener:
    """Hears of partitions that come and go; subclass it. Methods may be coroutines; they run in the loop, within a poll or close that waits
    for them. They may await the consumer's calls (commit, seek, pause, ...), but not poll.

    Source: Kafka's ConsumerRebalanceListener.
    """

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Coroutine[Any, Any, None] | None:
        """Partitions were added; their positions are not looked up yet."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Coroutine[Any, Any, None] | None:
        """Partitions will go to other members: commit what was processed."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Coroutine[Any, Any, None] | None:
        """Partitions may be other members' already; by default `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


class _Heard(SyncListener):
    """What the member calls: passes it on to the loop."""

    def __init__(self, listener: Any, calls: CallThread) -> None:
        self._listener = listener
        self._calls = calls

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._calls.in_loop(lambda: self._listener.on_partitions_assigned(partitions))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._calls.in_loop(lambda: self._listener.on_partitions_revoked(partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._calls.in_loop(lambda: self._listener.on_partitions_lost(partitions))


class KafkaConsumer:
    """Reads records from Kafka in an event loop.

    Args:
        *topics: topics to read; as for `kafkacore.KafkaConsumer`.
        **settings: see `ConsumerConfig`; a mapping with dotted names may be passed as the first argument.

    Raises:
        errors.ConfigError: an unknown or wrong setting.

    Source: Kafka's KafkaConsumer.
    """

    def __init__(self, *topics: str | Mapping[str, Any], clock: Clock | None = None, **settings: Unpack[ConsumerKeywords]) -> None:
        self._client = consumer = Consumer(*topics, clock=clock, **settings)
        self.config: ConsumerConfig = consumer.config
        driver = consumer._driver
        self._now_s: Callable[[], float] = lambda: driver.clock.now_ms() / 1000
        self._calls = CallThread("kafkacore-consumer", driver.wakeup, driver.forget_wakeup)
        self._ending = Ending(f"consumer {self.config.client_id}")
        self._reads: asyncio.AbstractEventLoop | None = None  # where a task reads
        self._turn_s = 0.0

    # -- what to read -------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
        **unknown: Never,
    ) -> None:
        """Reads these topics; as `kafkacore.KafkaConsumer.subscribe`. Does not wait; to read nothing any more, await `unsubscribe`.

        Args:
            topics, pattern: as there.
            listener: a `RebalanceListener`; its methods may be coroutines.

        Raises:
            errors.UsageError: neither topics nor a pattern.
        """
        refuse_arguments("subscribe()", unknown)
        names = None if topics is None else topics if isinstance(topics, str) else list(topics)
        if not names and pattern is None:
            raise errors.UsageError("subscribe to topics or to a pattern; await unsubscribe() to read nothing any more")
        heard = None if listener is None else _Heard(listener, self._calls)
        self._calls.call_now(lambda: self._client.subscribe(names, pattern, heard))

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads exactly these partitions; as `kafkacore.KafkaConsumer.assign`.

        Raises:
            errors.UsageError: no partitions; await `unsubscribe` to read nothing any more.
        """
        tps = list(partitions)
        if not tps:
            raise errors.UsageError("assign at least one partition; await unsubscribe() to read nothing any more")
        self._calls.call_now(lambda: self._client.assign(tps))

    unsubscribe = awaited(Consumer.unsubscribe, alone=True)
    pause = immediate(Consumer.pause)
    resume = immediate(Consumer.resume)

    def assignment(self) -> set[TopicPartition]:
        """The partitions being read."""
        return self._client.assignment()

    def subscription(self) -> set[str]:
        """The topics subscribed to; empty with `assign`."""
        return self._client.subscription()

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._client.paused()

    # -- reading ------------------------------------------------------------------------------------------------------------------

    async def poll(
        self, timeout: float | None = 0.0, max_records: int | None = None, **unknown: Never
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records; as `kafkacore.KafkaConsumer.poll`. Cancelling it loses nothing.

        Args:
            timeout: seconds to wait when there is nothing to hand out; None waits until there is.
            max_records: at most so many; `max_poll_records` when None.
        """
        if unknown:
            refuse_arguments("poll()", unknown)
        check_seconds("poll", timeout)
        limit = self._client._limit(max_records)
        found = await self._read(lambda waited: self._client._take_records(limit, waited), timeout)
        return {} if found is None else found

    async def poll_batch(self, timeout: float | None = 0.0, **unknown: Never) -> RecordBatches:
        """Everything fetched so far, as columns; as `kafkacore.KafkaConsumer.poll_batch`. Cancelling it loses nothing.

        Args:
            timeout: seconds to wait when there is nothing to hand out; None waits until there is.
        """
        if unknown:
            refuse_arguments("poll_batch()", unknown)
        check_seconds("poll_batch", timeout)
        if self._client._interceptors is not None:
            self._client._interceptors.check_columns()
        found = await self._read(self._client._take_batch, timeout)
        return RecordBatches([]) if found is None else found

    async def _read(self, take: Callable[[bool], T | None], timeout: float | None) -> T | None:
        """Takes what is there, or waits until something is.

        Args:
            take: hands out; its argument says that the thread has just waited for it.
            timeout: seconds, None without limit.
        """
        calls = self._calls
        self._reads = loop = self._only_reader()
        try:
            now_s = self._now_s()
            if now_s - self._turn_s >= _TURN_S:
                await asyncio.sleep(0)
                self._turn_s = now_s
            end_s = None if timeout is None else now_s + timeout
            ready = False
            while True:
                if calls.idle and (found := take(ready)) is not None:
                    return found
                left_s = None if end_s is None else max(0.0, end_s - self._now_s())
                ready = await calls.wait(self._client._await_records, left_s, self._now_s) or False
                self._turn_s = self._now_s()
                if not ready:
                    return None
        finally:
            if self._reads is loop:  # else that one was closed, and this task with it
                self._reads = None

    def _only_reader(self) -> asyncio.AbstractEventLoop:
        """The loop, in which no other task reads.

        Raises:
            errors.IllegalStateError: one does, and would wait for what this one takes.
        """
        loop = self._calls.loop()
        if self._reads is loop:
            if (group := self._client._group) is not None:
                group.refuse_inside_listener("poll")
            raise errors.IllegalStateError("another task is reading from this consumer")
        return loop

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Every record from here on, waiting for new ones; ends when the consumer is closed.

        The position follows the loop record by record: leaving the loop and reading on loses and repeats nothing.
        """
        while True:
            try:
                chunk: Iterator[ConsumerRecord] | None = await self._read(self._client._take_chunk, None)
            except errors.ClosedError:
                if self.closed:
                    return
                raise
            for record in chunk or ():
                yield record
            if self.closed:
                return

    async def read_range(
        self, partition: tuple[str, int], start: int, end: int | None, timeout: float | None = None
    ) -> AsyncIterator[RecordColumns]:
        """A stretch of one partition, as columns; as `kafkacore.KafkaConsumer.read_range`."""
        self._only_reader()
        columns = self._client.read_range(partition, start, end, timeout)
        try:
            while (found := await self._calls.run(lambda: next(columns, None))) is not None:
                yield found
        finally:
            self._calls.make_when_free(columns.close)  # type: ignore[attr-defined]

    async def read(
        self,
        what: str | Iterable[str] | Mapping[tuple[str, int], tuple[int, int | None]],
        start: Where = None,
        end: Where = None,
        *,
        key: Literal["binary", "string"] = "binary",
        value: Literal["binary", "string"] = "binary",
        json: Any = None,
        avro: Any = None,
        protobuf: Any = None,
        registry: Any = None,
        on_error: Literal["raise", "null", "skip"] = "raise",
        headers: bool | None = None,
        record_columns: bool | Iterable[str] = True,
        text: Literal["string", "large_string", "string_view"] = "string",
        until_end: bool = True,
        timeout: float | None = None,
    ) -> AsyncIterator[Any]:
        """Topics up to where they end now, as Arrow batches; as `kafkacore.KafkaConsumer.read`, and looked up at the first batch.

        With `until_end=False` it goes on until the loop is left, its task is cancelled, or the consumer is closed.
        """
        self._only_reader()
        wanted: dict[str, Any] = {"key": key, "value": value, "json": json, "avro": avro, "protobuf": protobuf, "registry": registry}
        more: dict[str, Any] = {"on_error": on_error, "headers": headers, "record_columns": record_columns, "text": text}
        more |= {"until_end": until_end, "timeout": timeout}
        stream = await self._calls.run(lambda: self._client.read(what, start, end, **wanted, **more))
        batches = self._follow(stream) if stream.endless else self._call_for_each(stream.batches())
        async for batch in batches:
            yield batch

    async def _call_for_each(self, batches: Iterator[T]) -> AsyncIterator[T]:
        """What an iterator gives, each taken by a call of the thread."""
        try:
            while (found := await self._calls.run(lambda: next(batches, None))) is not None:
                yield found
        finally:
            self._calls.make_when_free(batches.close)  # type: ignore[attr-defined]

    async def _follow(self, stream: ColumnStream) -> AsyncIterator[Any]:
        """The batches of an endless stream: waiting for records lets other calls be made, close among them."""
        token = await self._calls.run(stream.begin)
        try:
            while True:
                stream.check(token)
                try:
                    found = await self.poll_batch(None)
                except errors.ClosedError:
                    if self.closed:
                        return
                    raise
                if not stream.ready:
                    sample = [(columns, NO_END) for columns in found]
                    if await self._calls.run(lambda sample=sample: stream.infer(sample)):  # type: ignore[misc]
                        token = await self._calls.run(stream.begin)
                    continue
                for columns in found:
                    stream.check(token)
                    if len(batch := await self._calls.run(lambda columns=columns: stream.batch(columns))):  # type: ignore[misc]
                        yield batch
        finally:
            stream.end(token)

    # -- positions ----------------------------------------------------------------------------------------------------------------

    seek = immediate(Consumer.seek)
    seek_to_beginning = immediate(Consumer.seek_to_beginning)
    seek_to_end = immediate(Consumer.seek_to_end)
    position = awaited(Consumer.position)
    beginning_offsets = awaited(Consumer.beginning_offsets)
    end_offsets = awaited(Consumer.end_offsets)
    offsets_for_times = awaited(Consumer.offsets_for_times)
    partitions_for = awaited(Consumer.partitions_for)
    partition_infos = awaited(Consumer.partition_infos)
    list_topics = awaited(Consumer.list_topics)

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Records between the position and the end; as `kafkacore.KafkaConsumer.lag`."""
        return self._client.lag(partition)

    # -- commits ------------------------------------------------------------------------------------------------------------------

    commit = awaited(Consumer.commit)
    committed = awaited(Consumer.committed)
    consumer_group_metadata = immediate(Consumer.consumer_group_metadata)
    enforce_rebalance = immediate(Consumer.enforce_rebalance)

    def commit_async(
        self,
        offsets: Mapping[tuple[str, int], OffsetAndMetadata | int] | None = None,
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], errors.KafkaError | None], object] | None = None,
    ) -> None:
        """Commits offsets for the group without waiting; as `kafkacore.KafkaConsumer.commit_async`.

        Args:
            offsets: as for `commit`.
            callback: `callback(offsets, error)`, called in the loop, with the context variables of this call.
        """
        called = callback
        if callback is not None:
            check_plain_function(callback, "callback", "await commit(), or have a function make a task")
            loop, context = self._calls.loop(), contextvars.copy_context()

            def called(found: Mapping[TopicPartition, OffsetAndMetadata], error: errors.KafkaError | None) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(callback, found, error, context=context)

        self._calls.call_now(lambda: self._client.commit_async(offsets, called))

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Ends a running or the next poll with WakeupError. Any thread may call it."""
        self._calls.wakeup()

    health = immediate(Consumer.health)

    @overload
    def metrics(self, *, detail: Literal[False] = False) -> dict[str, float]: ...
    @overload
    def metrics(self, *, detail: Literal[True]) -> dict[str, dict[str, float]]: ...
    def metrics(self, *, detail: bool = False) -> dict[str, float] | dict[str, dict[str, float]]:
        """As `kafkacore.KafkaConsumer.metrics`."""
        return self._client.metrics(detail=True) if detail else self._client.metrics()

    def measured(self) -> list[Measured]:
        """As `kafkacore.KafkaConsumer.measured`."""
        return self._client.measured()

    def statistics(self) -> dict[str, Any]:
        """As `kafkacore.KafkaConsumer.statistics`."""
        return self._client.statistics()

    @property
    def closed(self) -> bool:
        """True once the consumer is closed."""
        return self._client.closed

    async def close(self, timeout: float = CLOSE_S) -> None:
        """As `kafkacore.KafkaConsumer.close`: commits what was processed, if that is automatic, and leaves the group. A read under way in
        another task ends with ClosedError, an `async for` just ends; other calls under way, and the rebalance listener, are waited for, and
        calls that have not ended in time end with ClosedError. If it is cancelled, all that goes on; calling it again waits for its end,
        `timeout` at most.

        Args:
            timeout: seconds.

        Raises:
            errors.KafkaTimeoutError: the rebalance listener ran all that time; the consumer is not closed.
            Exception: what the listener raised; the consumer is closed all the same.
        """
        end_s = self._now_s() + timeout
        await self._end(lambda: self._client.close(max(0.0, end_s - self._now_s())), timeout, timeout)

    async def _end(self, close: Callable[[], None], timeout: float, waits: float | None = None) -> None:
        """Closes.

        Args:
            close: makes the call.
            timeout: seconds for calls under way.
            waits: seconds for a close of another task.
        """
        if self._client._driver.forked:
            close()  # its threads are the parent's; it waits for nothing
            return
        calls = self._calls
        if not self.closed:
            calls.loop()  # where the listener is called
        deadlines: list[WheelHandle] = []

        def start(job: Job) -> None:
            job.alone = True
            busy = not calls.idle
            calls.submit(job)
            if busy:
                deadlines.append(shared_timer(calls.loop()).call_later(max(0.0, timeout), calls.cut_for, job, "consumer"))

        goes_on = False
        try:
            await self._ending.run(lambda: self._close(close), start, lambda: not self.closed, waits)
        except (asyncio.CancelledError, GeneratorExit):
            goes_on = True
            raise
        finally:
            for deadline in () if goes_on else deadlines:
                deadline.cancel()

    def _close(self, close: Callable[[], None]) -> None:
        try:
            close()
        finally:
            if self.closed:
                self._calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """Closes. After an error, what the last poll returned is not committed automatically."""
        if outlives_its_loop(kind):
            return
        try:
            await self._end(lambda: self._client.__exit__(kind, value, traceback), close_timeout_s(kind))
        except errors.KafkaTimeoutError as late:
            if value is None:
                raise
            errors.append_to_chain(value, late)

    def __del__(self) -> None:
        client = self.__dict__.get("_client")
        if client is not None and not client.closed and client._group is None and not client._driver.reported:  # a member warns itself
            client._driver.reported = True
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"aio.{self._client!r}"


answer_names(KafkaConsumer, CONSUMER, STARTED)
list_settings(KafkaConsumer, ConsumerConfig)
