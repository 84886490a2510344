"""What group and transaction coordinators stand on: their state lives in the partitions of a compacted internal topic.

    key (group id, transactional id) --hash--> partition of the topic --leader--> the broker whose shard serves the key

    write:           operation(shard) -> records, response     the records go into the log as one batch, then into the shard by replay
    read:            operation(shard) -> response               answered when what its key has in the log is committed
    read_committed:  operation(shard) -> response               answered at once, from the state of the last committed record

Rules:

1. A shard exists where this broker leads the partition; it is made by replaying the log from its start, and dropped with the leadership.
   [test_a_new_leadership_of_the_same_broker_starts_over, test_who_waits_when_the_leadership_goes_gets_not_coordinator]
2. Operations of one shard run one after the other. One that is asked for while another runs (a timer, a delayed operation, a callback)
   waits until that one's records are in the log and replayed. [test_an_operation_may_ask_for_another_which_runs_after_it]
3. Operations decide and do not change what records describe: replay does. So a refused append leaves nothing to undo. State that no record
   describes (who waits for a rebalance) they may change; `CoordinatorResult` tells them what became of the records.
   [test_a_refused_append_changes_nothing_and_says_what_the_client_is_to_do, test_an_operation_is_told_of_the_append_and_of_the_commit]
4. No answer is given before everything it may rest on is committed (below the high watermark), or it is made of what is committed. The
   answer to a write waits for its records; one without records, and a `read`, wait for the last record of their key (a group, a
   transactional id) and not for those of others. If the leadership is lost first, they become NOT_COORDINATOR.
   [test_answers_wait_for_the_commit_in_the_order_of_the_log_and_reads_wait_with_them,
   test_an_answer_waits_for_the_records_of_its_own_key_and_for_those_about_several,
   test_who_waits_when_the_leadership_goes_gets_not_coordinator]
5. Every such wait has a deadline. It fails then with COORDINATOR_NOT_AVAILABLE, and the state stays: the records are in the log and may be
   committed later. The client does not know, and asks again.
   [test_a_commit_ends_after_offsets_commit_timeout_and_the_next_one_too_and_counts_when_the_followers_are_back]
6. What a new leader finds in its log beyond its high watermark was perhaps committed by the last one, and clients know it. Until the high
   watermark has passed it, nothing is read. [test_what_a_new_leader_found_beyond_its_high_watermark_is_neither_told_nor_denied]

Source: org.apache.kafka.coordinator.common.runtime.{CoordinatorRuntime, CoordinatorLoaderImpl, CoordinatorTimerImpl}.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult, CoordinatorShard, ReplayedRecord
from kafkacore.broker.fault_handler import contained, handle
from kafkacore.broker.producers import Verification
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.clock import Clock
from kafkacore.errors import BrokerError, KafkaError
from kafkacore.records import BatchBuilder, control_batch, read_batches
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

LOAD_BYTES = 4 << 20
"""Bytes of a log replayed in one go; other requests are served in between."""
TIMER_RETRY_MS = 500
LOAD_RETRY_MS, LOAD_RETRY_MAX_MS = 1_000, 60_000
"""When a log that could not be read is read again, the first time and at most."""
_MAX_BATCH_BYTES = 1 << 30
_ABORT, _COMMIT = 0, 1

T = TypeVar("T")
S = TypeVar("S", bound=CoordinatorShard)


class ShardTimers(Generic[S]):
    """Named timers of one shard. What expires runs as a write.

    Source: org.apache.kafka.coordinator.common.runtime.CoordinatorTimerImpl.
    """

    def __init__(self, runtime: CoordinatorRuntime[S], partition: int) -> None:
        self._runtime = runtime
        self._partition = partition
        self._tasks: dict[str, TimerTask] = {}

    def schedule(self, key: str, delay_ms: int, operation: Callable[[S], CoordinatorResult[None]]) -> None:
        """Runs an operation after a time, instead of what was scheduled under that name; again after half a second if it fails.

        Args:
            key: its name within the shard.
            delay_ms: the time.
            operation: as for `CoordinatorRuntime.write`.
        """
        self.cancel(key)
        task = TimerTask(delay_ms, lambda: self._expire(key, operation, task))
        self._tasks[key] = task
        self._runtime.timer.add(task)

    def _expire(self, key: str, operation: Callable[[S], CoordinatorResult[None]], task: TimerTask) -> None:
        if self._tasks.get(key) is not task:
            return
        del self._tasks[key]

        def done(outcome: KafkaError | None) -> None:
            if isinstance(outcome, KafkaError) and not isinstance(outcome, errors.NotCoordinator):
                logger.warning("%s-%d: timer %s is tried again: %s", self._runtime.topic, self._partition, key, outcome)
                if key not in self._tasks:
                    self.schedule(key, TIMER_RETRY_MS, operation)

        self._runtime.write(self._partition, operation, done)

    def cancel(self, key: str) -> None:
        """Ends a timer; nothing happens without a timer."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def is_scheduled(self, key: str) -> bool:
        """Whether a timer of that name runs."""
        return key in self._tasks

    def cancel_all(self) -> None:
        """Ends all timers."""
        for key in list(self._tasks):
            self.cancel(key)

    def __len__(self) -> int:
        return len(self._tasks)


class _Waiting:
    """An answer that waits until the log is committed up to an offset, or until its time is up."""

    __slots__ = ("expiry", "finish")

    def __init__(self, finish: Callable[[KafkaError | None], None]) -> None:
        self.finish: Callable[[KafkaError | None], None] | None = finish
        self.expiry: TimerTask | None = None

    def end(self, error: KafkaError | None, topic: str, partition: int) -> None:
        """Answers, once."""
        finish, self.finish = self.finish, None
        if self.expiry is not None:
            self.expiry.cancel()
        if finish is not None:
            try:
                finish(error)
            except Exception as fault:
                handle(fault, "an answer of %s-%d", topic, partition)


class _Context(Generic[S]):
    """A partition this broker leads.

    Attributes:
        shard: the state; not to be used before `ready`.
        ready: the log has been replayed.
        failed: the log could not be read; it is tried again.
        failed_loads: how often in a row it could not be read before.
        written: the offset after the last record written; what is answered now may rest on everything below it.
        committed: the offset below which everything is committed.
        loaded: the end of the log when it was read.
        waiting: answers by the offset they wait for, a heap.
        expired: how many of them had no time left, and are still in the heap.
        keys: the offset after the last uncommitted record of each key, and all of these in order.
        floor: the offset after the last record of an operation without a key, which may concern every key.
    """

    def __init__(self, partition: int, shard: S, timers: ShardTimers[S]) -> None:
        self.partition = partition
        self.shard = shard
        self.timers = timers
        self.ready = False
        self.failed = False
        self.failed_loads = 0
        self.dropped = False
        self.written = 0
        self.committed = 0
        self.loaded = 0
        self.waiting: list[tuple[int, int, _Waiting]] = []
        self.expired = 0
        self.numbers = count()
        self.keys: dict[str, int] = {}
        self.key_order: deque[tuple[int, str]] = deque()
        self.floor = 0
        self.events: deque[Callable[[], None]] = deque()
        self.running = False
        self.in_flight: deque[list[Any]] = deque()

    def note(self, key: str | None) -> None:
        """A key has records in the log that may not be committed."""
        if self.committed >= self.written:
            return
        if key is None:
            self.floor = self.written
        else:
            self.keys[key] = self.written
            self.key_order.append((self.written, key))

    def needed(self, key: str | None) -> int:
        """What has to be committed before an answer about a key is given; None is about everything."""
        return self.written if key is None else max(self.floor, self.keys.get(key, 0))

    def commit(self, offset: int) -> None:
        """Everything below an offset is committed."""
        self.committed = offset
        while self.key_order and self.key_order[0][0] <= offset:
            end_offset, key = self.key_order.popleft()
            if self.keys.get(key) == end_offset:
                del self.keys[key]
        self.shard.committed_to(offset)


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator on one broker. Belongs to the broker's thread."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        make_shard: Callable[[int, ShardTimers[S]], S],
        timer: LoopTimer,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """Serves nothing until `became_leader`.

        Args:
            topic: the internal topic.
            replicas: where its partitions are; this runtime becomes one of its listeners.
            make_shard: an empty shard for a partition, and its timers.
            timer: of the broker's loop.
            clock: stamps the records.
            timeout_ms: how long an answer may wait for the commit.
        """
        self.topic = topic
        self._timeout_ms = timeout_ms
        self.timer = timer
        self._replicas = replicas
        self._make_shard = make_shard
        self._clock = clock
        self.skipped_records: Counter[int] = Counter()
        """How many records could not be replayed and were skipped, by partition."""
        self._contexts: dict[int, _Context[S]] = {}
        replicas.listeners.append(self)

    # ---- leadership

    def became_leader(self, topic: str, index: int, leader_epoch: int) -> None:
        """Makes the shard of a partition and begins to replay its log. A new leadership of the same broker starts over."""
        if topic != self.topic:
            return
        self._drop(index)
        self._load(index)

    def resigned(self, topic: str, index: int) -> None:
        """Drops the shard of a partition; what waits for an answer gets NOT_COORDINATOR."""
        if topic == self.topic:
            self._drop(index)

    def close(self) -> None:
        """Drops all shards."""
        for index in list(self._contexts):
            with contained("the end of %s-%d", self.topic, index):
                self._drop(index)

    def _drop(self, index: int) -> None:
        context = self._contexts.pop(index, None)
        if context is None:
            return
        context.dropped = True
        context.timers.cancel_all()
        with contained("the end of the shard of %s-%d", self.topic, index):
            context.shard.unloaded()
        error = errors.NotCoordinator(f"this broker no longer leads partition {index} of {self.topic}")
        while context.waiting:
            heappop(context.waiting)[2].end(error, self.topic, index)
        while context.events and not context.running:
            context.events.popleft()()

    def _load(self, index: int, failed_loads: int = 0) -> None:
        timers = ShardTimers(self, index)
        context = _Context(index, self._make_shard(index, timers), timers)
        context.failed_loads = failed_loads
        self._contexts[index] = context
        partition = self._replicas.partition(self.topic, index)
        context.written = partition.log.start_offset
        context.commit(partition.high_watermark)
        self._load_some(context)

    def _load_some(self, context: _Context[S]) -> None:
        if context.dropped:
            return
        try:
            partition = self._replicas.partition(self.topic, context.partition)
            log = partition.log
            budget = LOAD_BYTES
            while context.written < log.end_offset:
                if budget <= 0:
                    self.timer.add(TimerTask(0, lambda: self._load_some(context)))
                    return
                budget -= self._replay_from(context, log.read(context.written, budget, log.end_offset, True))
            context.loaded = context.floor = context.written
            context.commit(min(context.written, partition.high_watermark))
            if context.committed < context.written:            # a new leader's high watermark comes with its followers
                pending: list[Any] = [context.written, False]
                context.in_flight.append(pending)
                partition.when_committed(context.written, self._told_of_commit(context, pending))
            context.ready = True
            context.shard.loaded()
        except Exception:  # a log that cannot be read must not end the broker's loop
            context.ready, context.failed = False, True
            wait_ms = min(LOAD_RETRY_MS << min(context.failed_loads, 16), LOAD_RETRY_MAX_MS)
            reason = "%s-%d cannot be loaded and its coordinator does not serve; the next try is in %d ms"
            logger.exception(reason, self.topic, context.partition, wait_ms)
            self.timer.add(TimerTask(wait_ms, lambda: self._load_again(context)))

    def _load_again(self, context: _Context[S]) -> None:
        """The log could not be read, for want of a file descriptor for example: no other leadership may ever come to try it again."""
        if not context.dropped:
            self._drop(context.partition)
            self._reload_if_leader(context.partition, context.failed_loads + 1)

    def _replay_from(self, context: _Context[S], slices: list[Any]) -> int:
        nbytes = 0
        for part in slices:
            buffer = part.read() if hasattr(part, "read") else part
            nbytes += len(buffer)
            for batch in read_batches(buffer, check_crcs=False):
                producer_id = batch.producer_id if batch.is_transactional else -1
                try:
                    if batch.is_control:
                        if batch.record_count and batch.control_type in (_ABORT, _COMMIT):  # compaction empties markers
                            committed = batch.control_type == _COMMIT
                            context.shard.replay_end_marker(batch.base_offset, batch.producer_id, batch.producer_epoch, committed)
                    else:
                        for record in batch.records():
                            self._replay(
                                context, ReplayedRecord(record.offset, producer_id, batch.producer_epoch, record.key, record.value)
                            )
                except Exception:  # the batch cannot be taken apart, or its marker fails: the others count
                    self._skipped(context, batch.base_offset, "the batch", "its records cannot be read", logging.ERROR)
                context.written = batch.next_offset
        if not nbytes:
            raise errors.KafkaStorage("the log ends before its end offset", topic=self.topic, partition=context.partition)
        return nbytes

    def _replay(self, context: _Context[S], record: ReplayedRecord) -> None:
        try:
            context.shard.replay(record)
        except errors.CorruptDataError as error:
            self._skipped(context, record.offset, "the record", error)
        except Exception as error:
            self._skipped(context, record.offset, "the record", f"{type(error).__name__}: {error}", logging.ERROR)

    def _skipped(self, context: _Context[S], offset: int, what: str, why: object, level: int = logging.WARNING) -> None:
        """A record that cannot be replayed never keeps the others from it; with a traceback if that is our bug."""
        self.skipped_records[context.partition] += 1
        is_bug = level >= logging.ERROR
        logger.log(level, "%s-%d: %s at offset %d is skipped: %s", self.topic, context.partition, what, offset, why, exc_info=is_bug)

    # ---- who serves what

    def serves(self, partition: int) -> bool:
        """Whether the shard of a partition is here and loaded."""
        context = self._contexts.get(partition)
        return context is not None and context.ready

    def shards(self) -> list[S]:
        """All that are here, loaded or not."""
        return [context.shard for context in self._contexts.values()]

    def held(self) -> list[int]:
        """The partitions this broker leads, loaded or not."""
        return list(self._contexts)

    def end_offset(self, partition: int) -> int:
        """Where the log of a partition that this broker leads ends."""
        return self._replicas.partition(self.topic, partition).log.end_offset

    def _context(self, partition: int) -> _Context[S]:
        context = self._contexts.get(partition)
        if context is None or context.failed:
            raise errors.NotCoordinator(f"this broker does not serve partition {partition} of {self.topic}")
        if not context.ready:
            raise errors.CoordinatorLoadInProgress(f"partition {partition} of {self.topic} is still being read")
        return context

    # ---- operations

    def write(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[T | KafkaError], None],
        key: str | None = None,
    ) -> None:
        """Runs an operation and writes its records.

        Args:
            partition: whose shard.
            operation: decides; may raise a KafkaError instead.
            done: called once: with the response when it is committed, or with the error.
            key: what the operation and its records are about; None if about several.
        """
        self._write(partition, operation, done, key, -1, -1)

    def write_transactional(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[T | KafkaError], None],
        verification: Verification | None = None,
        key: str | None = None,
    ) -> None:
        """As `write`, but the records belong to a producer's transaction: they count when `complete_transaction` commits it. Needs the
        guard of `ProducerStates.start_verification` unless the transaction has records in this partition already."""
        self._write(partition, operation, done, key, producer_id, producer_epoch, verification)

    def _write(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[T | KafkaError], None],
        key: str | None,
        producer_id: int,
        producer_epoch: int,
        verification: Verification | None = None,
    ) -> None:
        def run(context: _Context[S]) -> None:
            result = operation(context.shard)

            def finish(outcome: T | KafkaError) -> None:
                if result.committed is not None:
                    result.committed(outcome if isinstance(outcome, KafkaError) else None)
                done(outcome)

            try:
                for records, batch in self._batches(context, result, producer_id, producer_epoch):
                    base_offset = self._append(context, batch, len(records), verification=verification)
                    context.note(key)
                    if result.replay:
                        for nth, record in enumerate(records):
                            self._replay(context, ReplayedRecord(base_offset + nth, producer_id, producer_epoch, *record))
            except Exception as error:
                if not isinstance(error, KafkaError):
                    logger.exception("the records of an operation on %s-%d could not be written", self.topic, partition)
                    error = errors.UnknownServer("the coordinator failed; see the broker's log")
                refused = _for_client(error)
                if result.appended is not None:
                    result.appended(refused)
                finish(refused)
                return
            if result.appended is not None:
                result.appended(None)
            rests_on = context.written if result.records else context.needed(key) if result.rests_on_log else 0
            self._finish_when_committed(context, rests_on, result.response, finish)

        self._event(partition, run, done)

    def read(
        self, partition: int, operation: Callable[[S], T], done: Callable[[T | KafkaError], None], key: str | None = None
    ) -> None:
        """Looks at a shard as it is.

        Args:
            partition: whose shard.
            operation: answers; changes nothing; may raise a KafkaError instead.
            done: called once: with the answer when everything it may rest on is committed, or with the error.
            key: what it looks at; None for everything.
        """

        def run(context: _Context[S]) -> None:
            self._finish_when_committed(context, context.needed(key), operation(context.shard), done)

        self._event(partition, run, done)

    def read_committed(self, partition: int, operation: Callable[[S], T], done: Callable[[T | KafkaError], None]) -> None:
        """Looks at what is committed: at once, once the log that this leader found is (rule 6).

        Args:
            partition: whose shard.
            operation: answers out of what the shard knows to be committed; changes nothing; may raise a KafkaError instead.
            done: called once, with the answer or the error.
        """

        def look(context: _Context[S]) -> None:
            done(operation(context.shard))

        def run(context: _Context[S]) -> None:
            if context.committed >= context.loaded:
                look(context)
                return

            def finish(outcome: KafkaError | None) -> None:
                if outcome is None:
                    self._event(partition, look, done)
                else:
                    done(outcome)

            self._finish_when_committed(context, context.loaded, None, finish)

        self._event(partition, run, done)

    def when_committed(self, partition: int, done: Callable[[KafkaError | None], None]) -> None:
        """Waits until everything that is in the log of a shard is committed, however long that takes.

        Args:
            partition: whose shard.
            done: called with None, or with NotCoordinator if the leadership ends before.
        """

        def run(context: _Context[S]) -> None:
            self._finish_when_committed(context, context.written, None, done, None)

        self._event(partition, run, done)

    def schedule(self, partition: int, key: str, delay_ms: int, operation: Callable[[S], CoordinatorResult[None]]) -> None:
        """Runs an operation on a shard after a time, as one of its timers: again until it succeeds, or the leadership ends.

        Args:
            partition: whose shard; nothing happens if it is not here.
            key, delay_ms, operation: as for `ShardTimers.schedule`.
        """
        context = self._contexts.get(partition)
        if context is not None:
            context.timers.schedule(key, delay_ms, operation)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        done: Callable[[KafkaError | None], None],
        transaction_version: int = 0,
        timeout_ms: int | None = None,
    ) -> None:
        """Writes the marker that ends a producer's transaction in this partition.

        Args:
            partition: whose shard.
            producer_id, producer_epoch: the producer.
            coordinator_epoch: of the transaction coordinator that says so.
            committed: commit or abort.
            done: called when the marker is committed, or with the error: RequestTimedOut if that takes too long; it may be committed later.
            transaction_version: of the transaction.
            timeout_ms: how long that may take; None for as long as other writes.
        """

        def run(context: _Context[S]) -> None:
            marker = control_batch(
                _COMMIT if committed else _ABORT,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=self._clock.wall_ms(),
            )
            offset = self._append(context, marker, 1, transaction_version=transaction_version)
            context.note(None)
            context.shard.replay_end_marker(offset, producer_id, producer_epoch, committed)
            wait_ms = self._timeout_ms if timeout_ms is None else timeout_ms
            self._finish_when_committed(context, context.written, None, done, wait_ms, errors.RequestTimedOut)

        self._event(partition, run, done)

    def _event(self, partition: int, run: Callable[[_Context[S]], None], done: Callable[[Any], None]) -> None:
        """Runs now, or after what runs now."""

        try:
            context = self._context(partition)
        except KafkaError as error:
            done(error)
            return

        def step() -> None:
            try:
                if context.dropped:
                    raise errors.NotCoordinator(f"this broker no longer leads partition {partition} of {self.topic}")
                run(context)
            except KafkaError as error:
                done(_for_client(error))
            except Exception:  # the request that drives the queue is another one
                logger.exception("an operation on %s-%d failed", self.topic, partition)
                done(errors.UnknownServer("the coordinator failed; see the broker's log"))

        context.events.append(step)
        if context.running:
            return
        context.running = True
        try:
            while context.events:
                try:
                    context.events.popleft()()
                except Exception as error:  # the answer failed: the operations behind it are those of other requests
                    handle(error, "an answer of %s-%d", self.topic, partition)
        finally:
            context.running = False

    def _batches(
        self, context: _Context[S], result: CoordinatorResult[Any], producer_id: int, producer_epoch: int
    ) -> Iterator[tuple[list[CoordinatorRecord], memoryview]]:
        """The records of a result as batches: one, or as many as they need if they count one by one."""
        if not result.records:
            return
        max_bytes = _MAX_BATCH_BYTES
        if not result.is_atomic:
            max_bytes = self._replicas.partition(self.topic, context.partition).config.max_message_bytes
        wall_ms = self._clock.wall_ms()
        builder, records = self._builder(max_bytes, producer_id, producer_epoch), list[CoordinatorRecord]()
        for record in result.records:
            if not builder.append(record.value, record.key, timestamp_ms=wall_ms):
                if not records or result.is_atomic:
                    raise errors.RecordTooLarge(f"an operation's records exceed {max_bytes} bytes")
                yield records, builder.build()
                builder, records = self._builder(max_bytes, producer_id, producer_epoch), []
                if not builder.append(record.value, record.key, timestamp_ms=wall_ms):
                    raise errors.RecordTooLarge(f"one record exceeds {max_bytes} bytes")
            records.append(record)
        yield records, builder.build()

    @staticmethod
    def _builder(max_bytes: int, producer_id: int, producer_epoch: int) -> BatchBuilder:
        return BatchBuilder(
            max_bytes=max_bytes, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=producer_id >= 0
        )

    def _append(
        self,
        context: _Context[S],
        batch: memoryview,
        records: int,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Appends a batch. Its commit may be reported within append_internal or later, and counts in the order of the log."""
        pending: list[Any] = [None, False]  # the offset after the batch, and whether it is committed
        context.in_flight.append(pending)
        try:
            base_offset = self._replicas.append_internal(
                self.topic,
                context.partition,
                batch,
                self._told_of_commit(context, pending),
                None,  # the deadline is that of the answers: the commit itself counts however late it comes
                verification=verification,
                transaction_version=transaction_version,
            )
        except BaseException:
            context.in_flight.remove(pending)
            raise
        pending[0] = context.written = base_offset + records
        self._advance(context)
        return base_offset

    def _told_of_commit(self, context: _Context[S], pending: list[Any]) -> Callable[[KafkaError | None], None]:
        def told(error: KafkaError | None) -> None:
            if error is None:
                pending[1] = True
                self._advance(context)
            elif self._contexts.get(context.partition) is context:
                # The records may or may not survive: what the log says decides.
                self._drop(context.partition)
                self._reload_if_leader(context.partition)

        return told

    def _reload_if_leader(self, index: int, failed_loads: int = 0) -> None:
        try:
            partition = self._replicas.partition(self.topic, index)
            partition.check_leader()
        except BrokerError:
            return
        self._load(index, failed_loads)

    def _advance(self, context: _Context[S]) -> None:
        reached = context.committed
        while context.in_flight and context.in_flight[0][1] and context.in_flight[0][0] is not None:
            reached = context.in_flight.popleft()[0]
        if reached > context.committed:
            context.commit(reached)
        while context.waiting and context.waiting[0][0] <= context.committed:
            waiting = heappop(context.waiting)[2]
            if waiting.finish is None:
                context.expired -= 1
            else:
                waiting.end(None, self.topic, context.partition)

    def _finish_when_committed(
        self,
        context: _Context[S],
        offset: int,
        response: T,
        done: Callable[[T | KafkaError], None],
        timeout_ms: int | None = -1,
        timed_out: type[KafkaError] = errors.CoordinatorNotAvailable,
    ) -> None:
        """Answers when everything below an offset is committed.

        Args:
            context, offset: what is waited for.
            response, done: the answer.
            timeout_ms: how long; None without end, -1 for the usual time.
            timed_out: the error then.
        """
        if context.dropped:
            done(errors.NotCoordinator(f"this broker no longer leads partition {context.partition} of {self.topic}"))
            return
        if context.committed >= offset and not (context.waiting and context.waiting[0][0] <= context.committed):
            done(response)
            return
        waiting = _Waiting(lambda error: done(response if error is None else error))
        heappush(context.waiting, (offset, next(context.numbers), waiting))
        if timeout_ms is None:
            return
        wait_ms = self._timeout_ms if timeout_ms < 0 else timeout_ms

        def expire() -> None:
            context.expired += 1
            if context.expired * 2 > len(context.waiting):     # a stuck partition must not collect them
                context.waiting = [entry for entry in context.waiting if entry[2].finish is not None and entry[2] is not waiting]
                heapify(context.waiting)
                context.expired = 0
            message = f"offset {offset} of {self.topic}-{context.partition} was not committed within {wait_ms} ms"
            waiting.end(timed_out(message), self.topic, context.partition)

        waiting.expiry = TimerTask(wait_ms, expire)
        self.timer.add(waiting.expiry)


def _for_client(error: KafkaError) -> KafkaError:
    """What the client of a coordinator sees of an error of the log.

    Source: org.apache.kafka.coordinator.common.runtime.CoordinatorOperationExceptionHelper.
    """
    if isinstance(error, errors.UnknownTopicOrPartition | errors.NotEnoughReplicas | errors.NotEnoughReplicasAfterAppend):
        return errors.CoordinatorNotAvailable(error.message)
    if isinstance(error, errors.NotLeaderOrFollower | errors.KafkaStorage):
        return errors.NotCoordinator(error.message)
    if isinstance(error, errors.RecordTooLarge | errors.RecordBatchTooLarge):
        return errors.UnknownServer(error.message)
    return error
