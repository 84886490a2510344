"""What group and transaction coordinators stand on: their state lives in the partitions of a compacted internal topic.

    key (group id, transactional id) --hash--> partition of the topic --leader--> the broker whose shard serves the key

    write:  operation(shard) -> records, response     the records go into the log as one batch, then into the shard by replay
    read:   operation(shard) -> response

Rules:

1. A shard exists where this broker leads the partition; it is made by replaying the log from its start, and dropped with the leadership.
2. Operations of one shard run one after the other. One that is asked for while another runs (a timer, a delayed operation, a callback)
   waits until that one's records are in the log and replayed.
3. Operations decide and do not change what records describe: replay does. So a refused append leaves nothing to undo. State that no record
   describes (who waits for a rebalance) they may change; `CoordinatorResult` tells them what became of the records.
4. Nobody is answered before everything the answer may rest on is committed (below the high watermark): answers wait in the order of the
   log, those of reads and of writes without records too. If the leadership is lost first, they become NOT_COORDINATOR.

Source: org.apache.kafka.coordinator.common.runtime.{CoordinatorRuntime, CoordinatorLoaderImpl, CoordinatorTimerImpl}.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafkacore import errors
from kafkacore.broker.fault_handler import contained
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
_MAX_BATCH_BYTES = 1 << 30
_ABORT, _COMMIT = 0, 1

T = TypeVar("T")


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic; without a value it deletes its key."""

    key: bytes
    value: bytes | None


class CoordinatorResult(NamedTuple, Generic[T]):
    """What an operation decided.

    Attributes:
        records: to be written as one batch, and replayed.
        response: given to whoever asked, when the records are committed.
        replay: False if the shard has this state already, because the records only describe what operations change themselves.
        appended: called after the append, before the next operation: None, or why nothing was written.
        committed: called when the records are committed, before the response is given: None, or why they are not.
    """

    records: list[CoordinatorRecord]
    response: T
    replay: bool = True
    appended: Callable[[KafkaError | None], None] | None = None
    committed: Callable[[KafkaError | None], None] | None = None


class ReplayedRecord(NamedTuple):
    """A record on its way into a shard.

    Attributes:
        offset: where it lies.
        producer_id: of the transaction it belongs to; -1 if none. It counts when `replay_end_marker` says so.
        producer_epoch: of that producer.
        key: as written.
        value: None deletes.
    """

    offset: int
    producer_id: int
    producer_epoch: int
    key: bytes
    value: bytes | None


class CoordinatorShard(Protocol):
    """The state kept in one partition."""

    def replay(self, record: ReplayedRecord) -> None:
        """Takes in a record of the log.

        Raises:
            CorruptDataError: it is not one of this coordinator's records; it is skipped, counted and logged.
        """

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A producer's transaction ended."""

    def loaded(self) -> None:
        """The log has been replayed; serving begins."""

    def unloaded(self) -> None:
        """The shard is dropped: whoever waits in it is told NOT_COORDINATOR. Its timers are gone already."""


S = TypeVar("S", bound=CoordinatorShard)


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, a signed 32-bit integer."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition that keeps a key. Source: org.apache.kafka.common.utils.Utils.abs, GroupCoordinatorService.partitionFor."""
    hashed = java_hash(key)
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


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
        """Ends a timer; nothing happens if there is none."""
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


class _Waiting(NamedTuple):
    """An answer that waits until the log is committed up to an offset."""

    offset: int
    finish: Callable[[KafkaError | None], None]


class _Context(Generic[S]):
    """A partition this broker leads.

    Attributes:
        shard: the state; not to be used before `ready`.
        ready: the log has been replayed.
        written: the offset after the last record written; what is answered now may rest on everything below it.
        committed: the offset below which everything is committed.
    """

    def __init__(self, partition: int, shard: S, timers: ShardTimers[S]) -> None:
        self.partition = partition
        self.shard = shard
        self.timers = timers
        self.ready = False
        self.failed = False
        self.dropped = False
        self.written = 0
        self.committed = 0
        self.waiting: deque[_Waiting] = deque()
        self.events: deque[Callable[[], None]] = deque()
        self.running = False
        self.in_flight: deque[list[Any]] = deque()


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator on one broker. Belongs to the broker's thread."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        make_shard: Callable[[int, ShardTimers[S]], S],
        timer: LoopTimer,
        clock: Clock,
    ) -> None:
        """Serves nothing until `became_leader`.

        Args:
            topic: the internal topic.
            replicas: where its partitions are; this runtime becomes one of its listeners.
            make_shard: an empty shard for a partition, and its timers.
            timer: of the broker's loop.
            clock: stamps the records.
        """
        self.topic = topic
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
        """Drops the shard of a partition; whoever waits for an answer gets NOT_COORDINATOR."""
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
            with contained("an answer of %s-%d", self.topic, index):
                context.waiting.popleft().finish(error)
        while context.events and not context.running:
            context.events.popleft()()

    def _load(self, index: int) -> None:
        timers = ShardTimers(self, index)
        context = _Context(index, self._make_shard(index, timers), timers)
        self._contexts[index] = context
        context.written = self._replicas.partition(self.topic, index).log.start_offset
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
            context.committed = min(context.written, partition.high_watermark)
            if context.committed < context.written:            # a new leader's high watermark comes with its followers
                pending: list[Any] = [context.written, False]
                context.in_flight.append(pending)
                partition.when_committed(context.written, self._told_of_commit(context, pending))
            context.ready = True
            context.shard.loaded()
        except Exception:  # a log that cannot be read must not end the broker's loop
            logger.exception("%s-%d cannot be loaded; its coordinator does not serve", self.topic, context.partition)
            context.ready, context.failed = False, True

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
                            context.shard.replay_end_marker(batch.producer_id, batch.producer_epoch, batch.control_type == _COMMIT)
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

    def partitions(self) -> list[int]:
        """The partitions whose shards are here and loaded."""
        return [index for index, context in self._contexts.items() if context.ready]

    def held(self) -> list[int]:
        """The partitions this broker leads, loaded or not."""
        return list(self._contexts)

    def _context(self, partition: int) -> _Context[S]:
        context = self._contexts.get(partition)
        if context is None or context.failed:
            raise errors.NotCoordinator(f"this broker does not serve partition {partition} of {self.topic}")
        if not context.ready:
            raise errors.CoordinatorLoadInProgress(f"partition {partition} of {self.topic} is still being read")
        return context

    # ---- operations

    def write(self, partition: int, operation: Callable[[S], CoordinatorResult[T]], done: Callable[[T | KafkaError], None]) -> None:
        """Runs an operation and writes its records.

        Args:
            partition: whose shard.
            operation: decides; may raise a KafkaError instead.
            done: called once: with the response when it is committed, or with the error.
        """
        self._write(partition, operation, done, -1, -1)

    def write_transactional(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[T | KafkaError], None],
        verification: Verification | None = None,
    ) -> None:
        """As `write`, but the records belong to a producer's transaction: they count when `complete_transaction` commits it. Needs the
        guard of `ProducerStates.start_verification` unless the transaction has records in this partition already."""
        self._write(partition, operation, done, producer_id, producer_epoch, verification)

    def _write(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[T | KafkaError], None],
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
                if result.records:
                    batch = self._batch(result.records, producer_id, producer_epoch)
                    base_offset = self._append(context, batch, len(result.records), verification=verification)
                    if result.replay:
                        for nth, record in enumerate(result.records):
                            self._replay(context, ReplayedRecord(base_offset + nth, producer_id, producer_epoch, *record))
            except KafkaError as error:
                refused = _for_client(error)
                if result.appended is not None:
                    result.appended(refused)
                finish(refused)
                return
            if result.appended is not None:
                result.appended(None)
            self._finish_when_committed(context, result.response, finish)

        self._event(partition, run, done)

    def read(self, partition: int, operation: Callable[[S], T], done: Callable[[T | KafkaError], None]) -> None:
        """Looks at a shard.

        Args:
            partition: whose shard.
            operation: answers; changes nothing; may raise a KafkaError instead.
            done: called once: with the answer when everything it may rest on is committed, or with the error.
        """
        self._event(partition, lambda context: self._finish_when_committed(context, operation(context.shard), done), done)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        done: Callable[[KafkaError | None], None],
        transaction_version: int = 0,
    ) -> None:
        """Writes the marker that ends a producer's transaction in this partition.

        Args:
            partition: whose shard.
            producer_id, producer_epoch: the producer.
            coordinator_epoch: of the transaction coordinator that says so.
            committed: commit or abort.
            done: called when the marker is committed, or with the error.
            transaction_version: of the transaction.
        """

        def run(context: _Context[S]) -> None:
            marker = control_batch(
                _COMMIT if committed else _ABORT,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=self._clock.wall_ms(),
            )
            self._append(context, marker, 1, transaction_version=transaction_version)
            context.shard.replay_end_marker(producer_id, producer_epoch, committed)
            self._finish_when_committed(context, None, done)

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
            except Exception:  # whoever drives the queue asks for something else
                logger.exception("an operation on %s-%d failed", self.topic, partition)
                done(errors.UnknownServer("the coordinator failed; see the broker's log"))

        context.events.append(step)
        if context.running:
            return
        context.running = True
        try:
            while context.events:
                context.events.popleft()()
        finally:
            context.running = False

    def _batch(self, records: list[CoordinatorRecord], producer_id: int, producer_epoch: int) -> memoryview:
        builder = BatchBuilder(
            max_bytes=_MAX_BATCH_BYTES, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=producer_id >= 0
        )
        wall_ms = self._clock.wall_ms()
        for record in records:
            if not builder.append(record.value, record.key, timestamp_ms=wall_ms):
                raise errors.RecordTooLarge(f"an operation's records exceed {_MAX_BATCH_BYTES} bytes")
        return builder.build()

    def _append(
        self,
        context: _Context[S],
        batch: memoryview,
        records: int,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> int:
        """Appends a batch. Its commit may be told within append_internal or later, and is told in the order of the log."""
        pending: list[Any] = [None, False]  # the offset after the batch, and whether it is committed
        context.in_flight.append(pending)
        try:
            base_offset = self._replicas.append_internal(
                self.topic,
                context.partition,
                batch,
                self._told_of_commit(context, pending),
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

    def _reload_if_leader(self, index: int) -> None:
        try:
            partition = self._replicas.partition(self.topic, index)
            partition.check_leader()
        except BrokerError:
            return
        self._load(index)

    def _advance(self, context: _Context[S]) -> None:
        while context.in_flight and context.in_flight[0][1] and context.in_flight[0][0] is not None:
            context.committed = context.in_flight.popleft()[0]
        while context.waiting and context.waiting[0].offset <= context.committed:
            context.waiting.popleft().finish(None)

    def _finish_when_committed(self, context: _Context[S], response: T, done: Callable[[T | KafkaError], None]) -> None:
        if context.dropped:
            done(errors.NotCoordinator(f"this broker no longer leads partition {context.partition} of {self.topic}"))
        elif context.committed >= context.written and not context.waiting:
            done(response)
        else:
            context.waiting.append(_Waiting(context.written, lambda error: done(response if error is None else error)))


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
