"""The transaction coordinator of one broker: shards over the partitions of `__transaction_state` it leads, timers, markers.

    InitProducerId, AddPartitionsToTxn, ...      handlers/txn.py
        |
    TransactionCoordinator.write(operation) ---> CoordinatorRuntime ---> shard: operation -> records
        |                                            `-- appended, replayed, committed
        `-- the decision has a prepared transaction: MarkerSender ---> all markers committed ---> shard.complete

What a reload finds prepared goes on from there. An open transaction has a timer of its own, so nothing runs while nothing is open.

Source: kafka.coordinator.transaction.TransactionCoordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from kafkacore import errors
from kafkacore.broker.coordinator import CoordinatorRuntime, ShardTimers
from kafkacore.broker.coordinator_shard import CoordinatorResult, partition_for
from kafkacore.broker.fault_handler import contained
from kafkacore.broker.internal_topics import TRANSACTION_TOPIC
from kafkacore.broker.txns.markers import RETRY_MS, MarkerSender
from kafkacore.broker.txns.shard import MAX_EXPIRED, Decision, Filter, ProducerIdAndEpoch, TransactionShard
from kafkacore.broker.txns.state import TopicIndex, Transaction, TransactionState
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import KafkaError
from kafkacore.timer import TimerTask

logger = logging.getLogger(__name__)

T = TypeVar("T")

_EXPIRE = "expire"


class _NoProducerId(errors.CoordinatorLoadInProgress):
    """An operation needs a producer id, and none is at hand; it is run again with one."""


class TransactionCoordinator:
    """Serves the transactional ids whose partitions this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        partition_count: Callable[[], int],
        transaction_version: Callable[[], int],
        take_producer_id: Callable[[Callable[[int | KafkaError], None]], None],
        coordinator_epoch: Callable[[int], int],
    ) -> None:
        """Has no shards until `attach`.

        Args:
            config: limits and intervals.
            clock: the time.
            partition_count: partitions of the transaction topic; 0 while the topic does not exist.
            transaction_version: the finalized level of the feature.
            take_producer_id: gives a producer id, at once or later.
            coordinator_epoch: the leader epoch of a partition of the transaction topic.
        """
        self._config = config
        self._clock = clock
        self._partition_count = partition_count
        self._transaction_version = transaction_version
        self._take_producer_id = take_producer_id
        self._coordinator_epoch = coordinator_epoch
        self._spare_ids: list[int] = []
        self._runtime: CoordinatorRuntime[TransactionShard]
        self._markers: MarkerSender

    def attach(self, runtime: CoordinatorRuntime[TransactionShard], markers: MarkerSender) -> None:
        """Joins the parts that know this coordinator; once, before anything is asked."""
        self._runtime = runtime
        self._markers = markers

    # ---- shards

    def make_shard(self, partition: int, timers: ShardTimers[TransactionShard]) -> TransactionShard:
        """For the runtime: an empty shard."""
        return TransactionShard(partition, timers, self._transaction_version, self._new_producer_id, self._changed, self._loaded)

    def _loaded(self, shard: TransactionShard) -> None:
        for transaction in list(shard.transactions.values()):
            with contained("the loaded transaction of %s", transaction.transactional_id):
                self._changed(shard, None, transaction)
                if transaction.state.is_prepared:
                    self._send_markers_when_committed(shard, transaction)

    def _send_markers_when_committed(self, shard: TransactionShard, prepared: Transaction) -> None:
        """A decision that was read from the log may still be lost with this leader."""

        def done(outcome: KafkaError | None) -> None:
            if outcome is None:
                self._send_markers(shard, prepared)

        self._runtime.when_committed(shard.partition, done)

    def _changed(self, shard: TransactionShard, before: Transaction | None, after: Transaction | None) -> None:
        """Timers follow the state."""
        timers = shard.timers
        if after is not None and not timers.is_scheduled(_EXPIRE):
            interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
            timers.schedule(_EXPIRE, interval_ms, self._expire)
        transactional_id = after.transactional_id if after is not None else before.transactional_id if before is not None else ""
        key = f"timeout {transactional_id}"
        if after is None or after.state is not TransactionState.ONGOING:
            timers.cancel(key)
        elif before is None or before.state is not TransactionState.ONGOING or not timers.is_scheduled(key):
            self._schedule_timeout(shard, after, max(after.start_ms + after.timeout_ms + 1 - self._clock.wall_ms(), 0))

    def _time_out(self, shard: TransactionShard, began: Transaction) -> CoordinatorResult[None]:
        """Asks for the abort as a client would: it may need a producer id, and its markers follow when it is committed."""

        def done(outcome: ProducerIdAndEpoch | KafkaError) -> None:
            current = shard.transactions.get(began.transactional_id)
            is_still_open = current is not None and current.state is TransactionState.ONGOING and current.start_ms == began.start_ms
            if isinstance(outcome, KafkaError) and shard.serving and is_still_open:
                logger.warning("the transaction of %s timed out and is aborted later: %s", began.transactional_id, outcome)
                self._schedule_timeout(shard, began, RETRY_MS)

        self._write(began.transactional_id, lambda current: current.abort_timed_out(began, self._clock.wall_ms()), done)
        return CoordinatorResult([], None)

    def _schedule_timeout(self, shard: TransactionShard, began: Transaction, delay_ms: int) -> None:
        shard.timers.schedule(f"timeout {began.transactional_id}", delay_ms, lambda current: self._time_out(current, began))

    def _expire(self, shard: TransactionShard) -> CoordinatorResult[None]:
        result = shard.expire(self._clock.wall_ms(), self._config.transactional_id_expiration_ms)
        if shard.transactions:
            more = result.response == MAX_EXPIRED
            interval_ms = 0 if more else self._config.transaction_remove_expired_transaction_cleanup_interval_ms
            shard.timers.schedule(_EXPIRE, interval_ms, self._expire)
        return CoordinatorResult(result.records, None)

    def _new_producer_id(self) -> int:
        if not self._spare_ids:
            raise _NoProducerId("there is no producer id at hand; ask again")
        return self._spare_ids.pop()

    # ---- operations

    def partition_for(self, transactional_id: str) -> int:
        """Where a transactional id is kept.

        Raises:
            NotCoordinator: there is no transaction topic.
        """
        count = self._partition_count()
        if not count:
            raise errors.NotCoordinator(f"there is no topic {TRANSACTION_TOPIC} yet")
        return partition_for(transactional_id, count)

    def _partition_of(self, transactional_id: str) -> int:
        """`partition_for`, of an id that a client has named."""
        if not transactional_id:
            raise errors.InvalidRequest("a transactional id cannot be empty")
        return self.partition_for(transactional_id)

    def _write(
        self,
        transactional_id: str,
        operation: Callable[[TransactionShard], CoordinatorResult[Decision]],
        done: Callable[[ProducerIdAndEpoch | KafkaError], None],
    ) -> None:
        """Runs an operation; if it prepared a transaction, its markers go out after `done` was called."""
        try:
            partition = self._partition_of(transactional_id)
        except KafkaError as error:
            done(error)
            return
        used: list[TransactionShard] = []
        decided: list[Transaction] = []                       # what is in the log, whatever the client is answered

        def run(shard: TransactionShard) -> CoordinatorResult[Decision]:
            used[:] = [shard]
            result = operation(shard)
            prepared = result.response.prepared
            if prepared is None:
                return result

            def appended(error: KafkaError | None) -> None:
                if result.appended is not None:
                    result.appended(error)
                if error is None:
                    decided[:] = [prepared]

            return result._replace(appended=appended)

        def finish(outcome: Decision | KafkaError) -> None:
            if isinstance(outcome, _NoProducerId):
                self._take_producer_id(with_producer_id)
            elif isinstance(outcome, KafkaError):
                done(outcome)
                if decided and used[0].serving:
                    self._send_markers_when_committed(used[0], decided[0])
            else:
                done(outcome.producer if outcome.error is None else outcome.error)
                if outcome.prepared is not None:
                    self._send_markers(used[0], outcome.prepared)

        def with_producer_id(taken: int | KafkaError) -> None:
            if isinstance(taken, KafkaError):
                done(taken)
                return
            self._spare_ids.append(taken)
            self._runtime.write(partition, run, finish, transactional_id)

        self._runtime.write(partition, run, finish, transactional_id)

    def _read(self, transactional_id: str, operation: Callable[[TransactionShard], T], done: Callable[[T | KafkaError], None]) -> None:
        try:
            partition = self._partition_of(transactional_id)
        except KafkaError as error:
            done(error)
            return
        self._runtime.read(partition, operation, done, transactional_id)

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        done: Callable[[ProducerIdAndEpoch | KafkaError], None],
    ) -> None:
        """A producer begins, or goes on after an error.

        Args:
            transactional_id: None for a producer that is only idempotent: it gets a fresh id.
            timeout_ms: of its transactions, at most transaction.max.timeout.ms.
            expected: who it thinks it is.
            done: called with who it is, or the error.
        """
        if transactional_id is None:
            self._take_producer_id(lambda taken: done(taken if isinstance(taken, KafkaError) else ProducerIdAndEpoch(taken, 0)))
        elif transactional_id and not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            limit_ms = self._config.transaction_max_timeout_ms
            done(errors.InvalidTxnTimeout(f"transaction.timeout.ms is {timeout_ms}; the broker allows 1 to {limit_ms}"))
        else:
            name, wall_ms = transactional_id, self._clock.wall_ms()
            self._write(name, lambda shard: shard.init_producer_id(name, timeout_ms, expected, wall_ms), done)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicIndex],
        client_version: int,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Takes partitions into a producer's transaction."""
        wall_ms = self._clock.wall_ms()
        self._write(
            transactional_id,
            lambda shard: shard.add_partitions(transactional_id, producer, partitions, client_version, wall_ms),
            lambda outcome: done(outcome if isinstance(outcome, KafkaError) else None),
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicIndex],
        done: Callable[[dict[TopicIndex, KafkaError | None] | KafkaError], None],
    ) -> None:
        """Tells which partitions are in a producer's open transaction."""
        self._read(transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, partitions), done)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: int,
        done: Callable[[ProducerIdAndEpoch | KafkaError], None],
    ) -> None:
        """Decides a producer's transaction; the answer comes when the decision is committed, the markers follow."""
        wall_ms = self._clock.wall_ms()
        self._write(transactional_id, lambda shard: shard.end(transactional_id, producer, commit, client_version, wall_ms), done)

    def describe(self, transactional_id: str, done: Callable[[tuple[Transaction, frozenset[TopicIndex]] | KafkaError], None]) -> None:
        """A transactional id and the partitions of its transaction."""

        def look(shard: TransactionShard) -> tuple[Transaction, frozenset[TopicIndex]]:
            found = shard.describe(transactional_id)
            return found, shard.partitions_of(found)

        self._read(transactional_id, look, done)

    def list(self, wanted: Filter, done: Callable[[list[Transaction] | KafkaError], None]) -> None:
        """The transactional ids on this broker that a filter lets through. While one is being loaded the list cannot be complete."""
        wall_ms, found = self._clock.wall_ms(), list[Transaction]()
        partitions = self._runtime.held()
        left = len(partitions)
        failed: KafkaError | None = None
        if not left:
            done(found)

        def collect(outcome: list[Transaction] | KafkaError) -> None:
            nonlocal left, failed
            if not isinstance(outcome, KafkaError):
                found.extend(outcome)
            elif not isinstance(outcome, errors.NotCoordinator):  # a shard that has moved is listed by its new broker
                failed = outcome
            left -= 1
            if not left:
                done(failed or found)

        for partition in partitions:
            self._runtime.read_committed(partition, lambda shard: shard.list(wanted, wall_ms), collect)

    # ---- markers

    def _send_markers(self, shard: TransactionShard, prepared: Transaction) -> None:
        if shard.serving:
            self._markers.send(shard, prepared, self._coordinator_epoch(shard.partition))

    def marked(self, shard: TransactionShard, prepared: Transaction) -> None:
        """For the marker sender: every partition has its marker."""
        if not shard.serving:
            return

        def done(outcome: Decision | KafkaError) -> None:
            if isinstance(outcome, KafkaError) and shard.serving:
                logger.warning("the end of the transaction of %s is written again: %s", prepared.transactional_id, outcome)
                self._runtime.timer.add(TimerTask(RETRY_MS, lambda: self.marked(shard, prepared)))

        name = prepared.transactional_id
        self._runtime.write(shard.partition, lambda _: shard.complete(prepared, self._clock.wall_ms()), done, name)
