"""aiokafka's AIOKafkaConsumer over the engine's asyncio consumer.

The engine's records get aiokafka's names in place (structs.ConsumerRecord). `getone` and `async for` go over the engine's own list of
records, whose position follows record by record: a `getone` that finds a record there is a compiled coroutine (native/send_coroutine.pxi).
reading.py lets several tasks read. Deserializers run on the way out.

Source: aiokafka.consumer.consumer, aiokafka 0.14.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkacore import errors as ours
from kafkacore._codec import MessagesInHand, read_method, recast_records
from kafkacore.aio import KafkaConsumer as Engine
from kafkacore.aio.calls import Job
from kafkacore.compat.aiokafka import errors
from kafkacore.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkacore.compat.aiokafka.commits import checked_offsets
from kafkacore.compat.aiokafka.common_settings import engine_settings
from kafkacore.compat.aiokafka.connecting import connect
from kafkacore.compat.aiokafka.consumer_settings import CALL_RECORDS, CHUNK_RECORDS, CONSUMER_DEFAULTS, CONSUMER_SETTINGS
from kafkacore.compat.aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafkacore.compat.aiokafka.listener import EngineListener
from kafkacore.compat.aiokafka.reading import Readers
from kafkacore.compat.aiokafka.structs import ConsumerRecord, OffsetAndTimestamp, TopicPartition, deserialized
from kafkacore.compat.forms import INTERNAL_TOPICS, at_beginning
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.subscription import FetchState, Mode

log = logging.getLogger("kafkacore.compat")

_CLIENT_ID = CONSUMER_DEFAULTS["client_id"]
_NO_LIMIT_MS = 1 << 60


class AIOKafkaConsumer:
    """Reads records in an event loop; its tasks may share a consumer.

    Args:
        *topics: topics to subscribe to.
        group_id, auto_offset_reset, ...: aiokafka's settings, with its defaults.

    Raises:
        ValueError: a setting is refused, with the reason.
        RuntimeError: no loop runs.
    """

    __slots__ = ("__dict__", "__weakref__", "_short_read")

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: Any = "localhost",
        client_id: str = _CLIENT_ID,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1048576,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 300000,
        partition_assignment_strategy: Any = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in CONSUMER_SETTINGS}
        if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
            raise ValueError("`max_poll_records` should be positive Integer")
        self._loop, settings = engine_settings(
            CONSUMER_SETTINGS, CONSUMER_DEFAULTS, given, ConsumerConfig, {"allow_auto_create_topics": True}
        )
        self._closed = False
        self._engine = Engine(**settings)
        self._readers = Readers(self._engine, self._loop)
        self._group_id = group_id
        self._timeout_s = request_timeout_ms / 1000
        self._key_of, self._value_of = key_deserializer, value_deserializer
        self._deserializes = key_deserializer is not None or value_deserializer is not None
        self._most = max_poll_records or (CHUNK_RECORDS if self._deserializes else CALL_RECORDS)
        self._chunk: Any = iter(())  # over a list of the engine's
        self._short_read = MessagesInHand()  # the same for `getone`, where nothing is deserialized
        self._seen_left = -1
        self._look_at: asyncio.TimerHandle | None = None
        self._taking_part: asyncio.Task[None] | None = None
        self._look_s = max_poll_interval_ms / 3000
        self._last_polls_ms: dict[TopicPartition, int] = {}
        self._listener: EngineListener | None = None
        self._leaving: list[Callable[[], None]] | None = None  # what to do once the group has been left
        self._left: asyncio.Future[None] | None = None
        self._starts = self._started = False
        if topics:
            self.subscribe(topics)

    # -- life ---------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects; where topics are subscribed to, waits until they are known, this member has its partitions and these have positions: a
        record sent after that is read. A partition whose leader does not answer is waited for no longer than request_timeout_ms.

        Raises:
            KafkaConnectionError: none of bootstrap_servers could be reached; it can be called again.
            UnknownTopicOrPartitionError: there is no such topic, and none came within request_timeout_ms.
            KafkaError: the group was refused.
        """
        loop = self._loop
        assert loop is asyncio.get_running_loop(), "the consumer belongs to another loop"
        assert not self._started and not self._starts, "Did you call `start` twice?"
        await connect(self._engine._calls, self._engine._client._driver, self._engine.config, self._timeout_s)
        self._starts = True
        try:
            with errors.translated():
                await self._assigned()
        finally:
            self._starts = False
        self._started = True
        this = weakref.WeakMethod(self._on_news)
        self._engine._client._loop.on_news = lambda: _later(loop, lambda: _call(this))

    async def _assigned(self) -> None:
        """Waits for topics, partitions and positions of what is to be read."""
        client = self._engine._client
        state, snapshot_of = client._subscription, client._metadata
        topics = set(state.topics)
        if state.mode is Mode.TOPICS:
            known = await self._readers.until(lambda: topics <= _described(snapshot_of), self._timeout_s)
            if not known:
                absent = sorted(topics - _described(snapshot_of))
                raise errors.UnknownTopicOrPartitionError(f"not there after {self._timeout_s:g} s: {', '.join(absent)}")
        group = client._group
        if group is not None and state.mode in (Mode.TOPICS, Mode.PATTERN):
            await self._readers.until(lambda: self._listener is None or self._listener.assigned, None)
        elif state.mode is Mode.TOPICS:
            await self._readers.until(lambda: bool(state.partitions), None)
        elif state.mode is Mode.PATTERN:
            await self._readers.until(lambda: client._topics.matched, self._timeout_s)
        if state.partitions:
            await self._readers.until(lambda: not state.seeks_positions, self._timeout_s)

    async def stop(self) -> None:
        """Commits what was handed out, if that is automatic, leaves the group and closes the connections; again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            self._listener.silent = True
        if self._look_at is not None:
            self._look_at.cancel()
        with errors.translated():
            await self._close()
        if self._taking_part is not None:
            await asyncio.wait((self._taking_part,))

    async def _close(self) -> None:
        """Closes the engine, which refuses that while it calls the listener."""
        listener = self._listener
        while True:
            if listener is not None:
                await listener.ended()
            try:
                return await self._engine.close()
            except ours.IllegalStateError:
                if listener is None or listener.inside or self._loop is not asyncio.get_running_loop():
                    raise
                await asyncio.sleep(0)  # the call that it is about has just begun

    def __del__(self) -> None:
        engine: Engine | None = self.__dict__.get("_engine")
        if engine is not None and not self._closed and not engine.closed:
            engine._client._driver.reported = True  # by the name that the program knows
            warnings.warn(f"unclosed {self!r}: await stop(), or use it in an async with block", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"AIO{self._engine._client!r}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        await self.stop()

    async def _running(self) -> Engine:
        """The engine of a consumer that is started, and is not just leaving its group."""
        if self._closed:
            raise errors.ConsumerStoppedError("the consumer is stopped")
        self._check_started()
        if self._left is not None:
            await asyncio.shield(self._left)
        return self._engine

    def _check_started(self) -> None:
        """The listener may ask within `start`."""
        if not self._started and not (self._starts and self._listener is not None and self._listener.calls):
            raise errors.IllegalStateError("await start() first")

    # -- what to read -------------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        tps = list(partitions)
        client = self._engine._client
        self._now(lambda: client.assign(tps))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions being read."""
        return frozenset(() if self._leaving is not None else self._engine.assignment())

    def subscribe(self, topics: Any = (), pattern: str | None = None, listener: ConsumerRebalanceListener | None = None) -> None:
        """Reads these topics, or those whose name a pattern matches at its beginning.

        Args:
            topics: a list, tuple or set of names.
            pattern: a regular expression in place of names.
            listener: hears of partitions that come and go; its methods may be coroutines. Without a group it hears nothing.

        Raises:
            TypeError: neither topics nor a pattern, or both; `topics` or the listener are something else.
            ValueError: the pattern is not valid.
            IllegalStateError: partitions are assigned by `assign`, or the other of topics and pattern is subscribed to.
        """
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        matched = None
        if pattern is not None:
            try:
                matched = at_beginning(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        elif not isinstance(topics, (tuple, set, list)):
            raise TypeError("Topics should be list of strings")
        heard = None if self._group_id is None else EngineListener(listener, self._engine.assignment)

        def subscribe() -> None:
            self._engine.subscribe(None if pattern is not None else list(topics), matched, heard)
            self._listener = heard
            if (group := self._engine._client._group) is not None and group.membership.joined:
                group.rejoin("subscribe() was called")  # also for the same topics: the listener is a new one

        self._now(subscribe)

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to, or those of the assigned partitions."""
        if self._leaving is not None:
            return frozenset()
        return frozenset(self._engine.subscription() or {tp.topic for tp in self._engine.assignment()})

    def unsubscribe(self) -> None:
        """Reads nothing any more; a member leaves its group, in the background."""
        if self._listener is not None:
            self._listener.silent = True
        client, calls = self._engine._client, self._engine._calls
        if client._group is None or not client._group.managed or not self._started:
            self._now(client.unsubscribe)
            return
        if self._leaving is not None:
            return
        self._leaving, self._left = [], self._loop.create_future()
        job = Job(client.unsubscribe, lambda: _later(self._loop, lambda: self._has_left(job)))
        calls.submit(job)

    def _has_left(self, job: Job) -> None:
        waiting, self._leaving = self._leaving or [], None
        left, self._left = self._left, None
        if job.error is not None:
            log.warning("group %s: %s", self._group_id, job.error)
        for call in waiting:
            call()
        if left is not None and not left.done():
            left.set_result(None)

    def _now(self, call: Callable[[], None]) -> None:
        """Makes a call of the engine; one that comes while the group is being left waits for that."""
        if self._leaving is not None:
            self._leaving.append(lambda: self._now(call))
            return
        with errors.translated():
            self._engine._calls.call_now(call)
        if self._started and not self._loop.is_closed():
            self._on_news()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; they stay assigned.

        Raises:
            TypeError: no TopicPartition.
            IllegalStateError: one is not assigned.
        """
        with errors.translated():
            self._readers.pause(_checked(partitions))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._readers.paused()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undoes `pause`.

        Raises:
            TypeError: no TopicPartition.
            IllegalStateError: one is not assigned.
        """
        for tp in _checked(partitions):
            self._state(tp)
        with errors.translated():
            self._readers.resume(partitions)

    # -- reading ------------------------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> Any:
        """The next record, a ConsumerRecord; waits for it.

        Args:
            *partitions: only of these; of all when none is named.

        Raises:
            ConsumerStoppedError: the consumer is stopped, or was while this waited.
            KafkaError: what a broker refused, a position that is not there with auto_offset_reset=none, ...
        """
        if not partitions:
            for record in self._chunk:
                return self._deserialized(record) if self._deserializes else record
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        client = (await self._running())._client
        try:
            if partitions:
                found = None
                while not found:
                    found = await self._readers.read(partitions, lambda waited: client._take_records(1, waited), None)
                records: list[Any] = next(iter(found.values()))
                self._chunk_of(records)
                return self._deserialized(records[0]) if self._deserializes else records[0]
            while True:
                self._take_up(await self._readers.read((), client._take_chunk, None))
                for record in self._chunk:
                    return self._deserialized(record) if self._deserializes else record
        except ours.ClosedError as closed:
            raise errors.ConsumerStoppedError("the consumer was stopped") from closed
        except ours.KafkaError as error:
            raise errors.of(error) from error

    getone = read_method(getone)

    def _take_up(self, chunk: Iterator[Any] | None) -> None:
        """What `getone` and a loop go on with."""
        if chunk is not None:
            client = self._engine._client
            self._chunk_of(client._unread.chunks[0].records)  # which `chunk` goes over
            self._chunk = chunk
            if not self._deserializes:
                self._short_read.begin(chunk, _NO_LIMIT_MS)
            self._seen_left = -1
            if self._look_at is None and client._group is not None and client._group.managed:
                self._look_at = self._loop.call_later(self._look_s, _call, weakref.WeakMethod(self._look))

    def _look(self) -> None:
        """Now and then while a member has records in hand, which cost no call of the engine: a program that goes on has polled."""
        self._look_at = None
        client, calls = self._engine._client, self._engine._calls
        group, left = client._group, self._chunk.__length_hint__()
        if self._closed or group is None or not left:
            return
        self._look_at = self._loop.call_later(self._look_s, _call, weakref.WeakMethod(self._look))
        if calls.idle and left != self._seen_left:
            self._seen_left = left
            with client._driver:
                group.still_polling(client._clock.now_ms())

    def _on_news(self) -> None:
        """The group waits for this member, or there is something else to read now, and no task reads: what is in hand goes back, and the
        consumer follows by itself.
        """
        if self._taking_part is None and not self._closed and self._leaving is None:
            self._taking_part = self._loop.create_task(self._take_part())

    async def _take_part(self) -> None:
        client = self._engine._client
        group = client._group
        managed = group is not None and group.managed
        try:
            if not (managed and group is not None and group.membership.breached) and self._engine._calls.idle:
                with client._driver:
                    client._out.rewind()
                if client._subscription.mode is not Mode.NONE:
                    await self._readers.follow(self._follows)
        except ours.KafkaError as error:
            if not self._closed and client._subscription.mode is not Mode.NONE:
                self._readers.failure = error
                if managed:
                    log.warning("group %s: %s", self._group_id, error)
        finally:
            self._taking_part = None

    def _follows(self) -> bool:
        """The member has its partitions, and these their positions."""
        client, listener = self._engine._client, self._listener
        group, subscription = client._group, client._subscription
        if group is not None and group.managed:
            there = group.membership.joined and not group.has_news and listener is not None and listener.assigned
        elif subscription.mode is Mode.PATTERN:
            there = client._topics.matched
        else:
            there = bool(subscription.partitions)
        return there and not subscription.seeks_positions

    def _chunk_of(self, records: list[Any]) -> None:
        """Records of one partition that are handed out."""
        recast_records(records, ConsumerRecord)
        self._last_polls_ms[TopicPartition(records[0].topic, records[0].partition)] = int(time.time() * 1000)

    def _deserialized(self, record: Any) -> Any:
        """With key and value deserialized. A failure leaves the position at the record."""
        try:
            return self._with_values(record)
        except Exception:
            self._engine.seek((record.topic, record.partition), record.offset)
            raise

    def _with_values(self, record: Any) -> Any:
        key, value = record.key, record.value
        if self._key_of is not None:
            key = self._key_of(key)
        if self._value_of is not None:
            value = self._value_of(value)
        return deserialized(record, key, value)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Any]]:
        """The next ConsumerRecords, in offset order per partition; empty when none came in time.

        Args:
            *partitions: only of these; of all when none is named.
            timeout_ms: how long to wait when there is nothing to hand out.
            max_records: at most so many; max_poll_records when None.

        Raises:
            ValueError: max_records is no number from 1 on.
            ConsumerStoppedError: the consumer is stopped.
            KafkaError: as `getone`.
        """
        assert all(isinstance(tp, TopicPartition) for tp in partitions)
        if self._closed:
            raise errors.ConsumerStoppedError("the consumer is stopped")
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        client = (await self._running())._client
        limit = max_records or self._most
        try:
            found = await self._readers.read(partitions, lambda waited: client._take_records(limit, waited), timeout_ms / 1000)
        except ours.ClosedError:
            return {}
        except ours.KafkaError as error:
            raise errors.of(error) from error
        if not found:
            return {}
        for records in found.values():
            self._chunk_of(records)
        return self._all_deserialized(found) if self._deserializes else found

    def _all_deserialized(self, found: Mapping[TopicPartition, list[Any]]) -> dict[TopicPartition, list[Any]]:
        """With keys and values deserialized. A failure is raised by the next call if there are records before it."""
        done: dict[TopicPartition, list[Any]] = {}
        failure: Exception | None = None
        for tp, records in found.items():
            if failure is not None:
                self._engine.seek(tp, records[0].offset)
                continue
            ready: list[Any] = []
            try:
                for record in records:
                    ready.append(self._with_values(record))
            except Exception as error:
                failure = error
                self._engine.seek(tp, records[len(ready)].offset)
            if ready:
                done[tp] = ready
        if failure is not None and not done:
            raise failure
        return done

    def __aiter__(self) -> AsyncIterator[Any]:
        """Every record from here on, waiting for new ones; ends when the consumer is stopped.

        Raises:
            ConsumerStoppedError: it is stopped already.
        """
        if self._closed:
            raise errors.ConsumerStoppedError("the consumer is stopped")
        return self._records()

    async def _records(self) -> AsyncIterator[Any]:
        while True:
            if self._deserializes:
                for record in self._chunk:
                    yield self._deserialized(record)
            else:
                for record in self._chunk:
                    yield record
            if not self._goes_on():
                try:
                    record = await self.getone()
                except errors.ConsumerStoppedError:
                    return
                yield record

    def _goes_on(self) -> bool:
        """Takes the next records, if they are there already."""
        if not self._started or self._left is not None:
            return False
        try:
            self._take_up(found := self._readers.at_once(self._engine._client._take_chunk))
        except ours.KafkaError:
            return False  # `getone` says what is wrong
        return found is not None

    async def __anext__(self) -> Any:
        try:
            return await self.getone()
        except errors.ConsumerStoppedError:
            raise StopAsyncIteration from None

    # -- positions ----------------------------------------------------------------------------------------------------------------

    def _state(self, partition: TopicPartition) -> Any:
        """The engine's state of an assigned partition."""
        found = self._engine._client._subscription.partitions.get(partition)
        if found is None or self._leaving is not None:
            raise errors.IllegalStateError(f"Partition {partition} is not assigned")
        return found

    async def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that is handed out; looked up if it is not known yet.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        engine = await self._running()
        while True:
            state = self._state(partition)
            if state.state is FetchState.FETCHING:
                unread = engine._client._unread.next_offset(partition)
                return state.offset if unread is None else unread
            try:
                with errors.translated():
                    return await engine.position(partition, self._timeout_s)
            except errors.KafkaTimeoutError:
                pass  # aiokafka waits as long as it takes

    def highwater(self, partition: TopicPartition) -> int | None:
        """Offset behind the last record of a partition as of the last answer; None before the first.

        Raises:
            AssertionError: the partition is not assigned.
        """
        found: int = self._asserted(partition).high_watermark
        return None if found < 0 else found

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Where the first open transaction begins, else the end, as of the last answer, which may have -1 without read_committed.

        Raises:
            AssertionError: the partition is not assigned.
        """
        state = self._asserted(partition)
        return None if state.high_watermark < 0 else int(state.last_stable_offset)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When records of a partition were last taken from what was fetched (epoch milliseconds); None before.

        Raises:
            AssertionError: the partition is not assigned.
        """
        self._asserted(partition)
        return self._last_polls_ms.get(partition)

    def _asserted(self, partition: TopicPartition) -> Any:
        try:
            return self._state(partition)
        except errors.IllegalStateError as error:
            raise AssertionError("Partition is not assigned") from error

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues at an offset.

        Raises:
            ValueError: the offset is no number from 0 on.
            IllegalStateError: the partition is not assigned.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._check_started()
        self._state(partition)
        with errors.translated():
            self._engine.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continues at the first record of these partitions, of all when none is named; waits until that is known.

        Returns:
            True.

        Raises:
            TypeError: no TopicPartition.
            IllegalStateError: one is not assigned.
            AssertionError: none is assigned.
        """
        return await self._seek_to(Engine.seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continues behind the last record of these partitions; as `seek_to_beginning`."""
        return await self._seek_to(Engine.seek_to_end, partitions)

    async def _seek_to(self, seek: Callable[..., None], partitions: tuple[TopicPartition, ...]) -> bool:
        tps = self._to_seek(partitions)
        with errors.translated():
            seek(await self._running(), *tps)
        for tp in tps:
            await self.position(tp)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continues where the group has committed these partitions, or all when none is named.

        Returns:
            The committed offsets; where there is None, the position stays.

        Raises:
            IllegalOperation: there is no group.
            TypeError, IllegalStateError, AssertionError: as `seek_to_beginning`.
        """
        found: dict[TopicPartition, int | None] = {}
        for tp in self._to_seek(partitions):
            offset = found[tp] = await self.committed(tp)
            if offset:
                self.seek(tp, offset)
        return found

    def _to_seek(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        _checked(partitions, "instances")
        if not partitions:
            tps = tuple(self.assignment())
            if not tps:
                raise AssertionError("No partitions are currently assigned")
            return tps
        if absent := set(partitions) - self.assignment():
            raise errors.IllegalStateError(f"Partitions {absent} are not assigned")
        return partitions

    async def offsets_for_times(self, timestamps: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (epoch milliseconds), None without such a record.

        Raises:
            ValueError: a time is negative.
            KafkaTimeoutError: no answer within request_timeout_ms.
        """
        for tp, at in timestamps.items():
            if at < 0:
                raise ValueError(f"The target time for partition {tp} is {at}. The target time cannot be negative.")
        engine = await self._running()
        with errors.translated():
            found = await engine.offsets_for_times({tp: int(at) for tp, at in timestamps.items()}, self._timeout_s)
        return {tp: None if at is None else OffsetAndTimestamp(at.offset, at.timestamp_ms) for tp, at in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first record of each partition.

        Raises:
            KafkaTimeoutError: no answer within request_timeout_ms.
        """
        engine = await self._running()
        with errors.translated():
            return await engine.beginning_offsets(partitions, self._timeout_s)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset behind the last record of each partition; in read_committed the last stable offset.

        Raises:
            KafkaTimeoutError: no answer within request_timeout_ms.
        """
        engine = await self._running()
        with errors.translated():
            return await engine.end_offsets(partitions, self._timeout_s)

    async def topics(self) -> set[str]:
        """All topics that this principal may see, without the brokers' own."""
        engine = await self._running()
        with errors.translated():
            return set(await engine.list_topics(self._timeout_s)) - INTERNAL_TOPICS

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partition numbers of a topic, None for one that this consumer knows nothing of."""
        count = self._engine._client._metadata.snapshot.partition_count(topic)
        return None if count is None else set(range(count))

    # -- commits ------------------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commits offsets for the group, and waits for the answer.

        Args:
            offsets: the next offset to read by partition, or (offset, note); None commits everything that was handed out.

        Raises:
            IllegalOperation: there is no group.
            IllegalStateError: a partition is not assigned.
            ValueError, TypeError: `offsets` has another form.
            CommitFailedError: this consumer is not a member of its group any more.
        """
        self._check_group()
        engine = await self._running()
        if engine._client._subscription.mode is Mode.NONE:
            raise errors.IllegalStateError("Not subscribed to any topics")
        found: Any = None
        if offsets is not None:
            found = {tp: at.engines() for tp, at in checked_offsets(offsets).items()}
            for tp in found:
                self._state(tp)
        with errors.translated():
            await engine.commit(found)

    async def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed for a partition; None where it has not.

        Raises:
            IllegalOperation: there is no group.
        """
        self._check_group()
        engine = await self._running()
        with errors.translated():
            found = await engine.committed(partition)
        return None if found is None else found.offset

    def _check_group(self) -> None:
        if self._group_id is None:
            raise errors.IllegalOperation("Requires group_id")

    @property
    def _coordinator(self) -> _Coordinator:
        """What programs and frameworks read of aiokafka's inside for their log: `consumer._coordinator.member_id`."""
        group = self._engine._client._group
        return _Coordinator("" if group is None else group.identity().member_id)


class _Coordinator(NamedTuple):
    member_id: str


def _later(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(call)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (found := method()) is not None:
        found()


def _described(metadata: Any) -> set[str]:
    """The topics that the cluster has described without an error."""
    return {name for name, info in metadata.snapshot.topics.items() if info.error is None}


def _checked(partitions: tuple[Any, ...], what: str = "namedtuples") -> tuple[TopicPartition, ...]:
    if not all(isinstance(tp, TopicPartition) for tp in partitions):
        raise TypeError(f"partitions must be TopicPartition {what}")
    return partitions


__all__ = ["AIOKafkaConsumer"]
