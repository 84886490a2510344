"""The transactional ids of one partition of `__transaction_state`, and what may be done to them.

An operation checks who asks and how the transaction stands, and returns the records that move it; `replay` moves it. What no record holds:

- `last_epochs`: the epoch before the current one, if its producer may ask again with it after a lost answer. A reload forgets it, so that
  a retry across a change of coordinators is fenced, as in Kafka.
- `serving`: the log has been replayed, and the shard is in use. What goes on in its name ends when it is no more.
- `unmarked`: the partitions of a prepared transaction that have not confirmed their marker. After a reload all get it again; a second
  marker does nothing.

Two transaction protocols meet here. Up to transaction.version 1 a producer keeps its epoch from transaction to transaction; EndTxn must
carry exactly it. With version 2 (KIP-890) every end of a transaction raises the epoch and tells it to the producer, which makes a retry
(epoch - 1) differ from the next request:

    EndTxn while     | abort, retry | abort, current | commit, retry | commit, current
    Empty            | fenced       | new epoch      | fenced        | INVALID_TXN_STATE
    CompleteAbort    | no error     | new epoch      | INVALID_..    | INVALID_TXN_STATE
    CompleteCommit   | INVALID_..   | new epoch      | no error      | INVALID_TXN_STATE

Source: kafka.coordinator.transaction.{TransactionCoordinator, TransactionStateManager}; KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult, ReplayedRecord
from kafkacore.broker.producers import FIRST_VERSION_WITH_EPOCH_BUMP, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkacore.broker.txns.state import MAX_EPOCH, NO_TIME, TopicIndex, Transaction, TransactionState, is_exhausted, record_key
from kafkacore.errors import CorruptDataError, KafkaError
from kafkacore.protocol.stored import TransactionLogKey, decode_stored

logger = logging.getLogger(__name__)

State = TransactionState
MAX_EXPIRED = 500


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Decision(NamedTuple):
    """What an operation decided.

    Attributes:
        producer: with whom the client goes on.
        prepared: the transaction whose markers have to be written, once the records are committed.
        error: sent to the client all the same, then: the decision was to abort another producer's transaction first.
    """

    producer: ProducerIdAndEpoch = NO_PRODUCER
    prepared: Transaction | None = None
    error: KafkaError | None = None


class Filter(NamedTuple):
    """What ListTransactions asks for; empty sets and None mean all.

    Attributes:
        states: labels of states.
        producer_ids: producer ids.
        duration_ms: only those that began longer ago; -1 for all.
    """

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1

    def matches(self, transaction: Transaction, wall_ms: int) -> bool:
        """Whether a transaction is to be listed. One that never began counts as started long ago, as in Kafka."""
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.state.label not in self.states:
            return False
        return self.duration_ms < 0 or wall_ms - transaction.start_ms > self.duration_ms


class Timers(Protocol):
    """Named timers of a shard; `ShardTimers` of the runtime are such."""

    def schedule(self, key: str, delay_ms: int, operation: Callable[[TransactionShard], CoordinatorResult[None]]) -> None:
        """Runs an operation after a time, instead of what was scheduled under that name."""

    def cancel(self, key: str) -> None:
        """Ends a timer; nothing happens without a timer."""

    def is_scheduled(self, key: str) -> bool:
        """Whether a timer of that name runs."""


class TransactionShard:
    """The state of one partition; see the top of the file."""

    def __init__(
        self,
        partition: int,
        timers: Timers,
        transaction_version: Callable[[], int],
        new_producer_id: Callable[[], int],
        changed: Callable[[TransactionShard, Transaction | None, Transaction | None], None] = lambda shard, before, after: None,
        loaded: Callable[[TransactionShard], None] = lambda shard: None,
    ) -> None:
        """An empty shard.

        Args:
            partition: its number.
            timers: for listeners to `changed`.
            transaction_version: the finalized level of the feature.
            new_producer_id: an id that no producer has had; may raise CoordinatorLoadInProgress.
            changed: called after each record replayed while serving: what was known before, and what is now (None: nothing).
            loaded: called when the log has been replayed.
        """
        self.partition = partition
        self.timers = timers
        self.transactions: dict[str, Transaction] = {}
        self.last_epochs: dict[str, int] = {}
        self.unmarked: dict[str, set[TopicIndex]] = {}
        self._transaction_version = transaction_version
        self._new_producer_id = new_producer_id
        self._changed = changed
        self._told_loaded = loaded
        self.serving = False

    # ---- the log

    def replay(self, record: ReplayedRecord) -> None:
        """Takes in a record.

        Raises:
            CorruptDataError: it is not a transactional id's.
        """
        if record.key is None:
            raise CorruptDataError("a record of __transaction_state has a key")
        transactional_id = decode_stored(TransactionLogKey, record.key).transactional_id
        before = self.transactions.get(transactional_id)
        after = None if record.value is None else Transaction.from_value(transactional_id, record.value)
        if after is None:
            self.transactions.pop(transactional_id, None)
            self.last_epochs.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = after
        if after is not None and after.state.is_prepared:
            self.unmarked[transactional_id] = set(after.partitions)
        else:
            self.unmarked.pop(transactional_id, None)
        if self.serving:
            self._changed(self, before, after)

    def replay_end_marker(self, offset: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """There are no transactions inside this topic."""

    def committed_to(self, offset: int) -> None:
        """What is read here waits for its commit."""

    def loaded(self) -> None:
        """The log has been replayed."""
        self.serving = True
        self._told_loaded(self)

    def unloaded(self) -> None:
        """Nothing waits in a shard."""
        self.serving = False

    def _record(self, transaction: Transaction) -> CoordinatorRecord:
        return transaction.record(1 if self._transaction_version() >= 1 else 0)

    def _move(self, after: Transaction, decision: Decision, last_epoch: int | None = None) -> CoordinatorResult[Decision]:
        """Writes a transaction's new state; last_epoch replaces what is remembered, once the record is in the log."""
        if last_epoch is None:
            return CoordinatorResult([self._record(after)], decision)
        epoch = last_epoch

        def appended(error: KafkaError | None) -> None:
            if error is None:
                self.last_epochs[after.transactional_id] = epoch

        return CoordinatorResult([self._record(after)], decision, appended=appended)

    # ---- InitProducerId

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, wall_ms: int
    ) -> CoordinatorResult[Decision]:
        """A producer begins to use a transactional id; all before it are fenced.

        Args:
            transactional_id: its name.
            timeout_ms: of its transactions.
            expected: who the producer thinks it is, when it goes on after an error (KIP-360); it is fenced if another producer came since.
            wall_ms: the time now.

        Raises:
            ConcurrentTransactions: the last transaction is still being ended; an open one is aborted first, and this is the answer, too.
            ProducerFenced: another producer has come.
        """
        known = self.transactions.get(transactional_id)
        current = known or Transaction(transactional_id, self._new_producer_id(), timeout_ms=timeout_ms, update_ms=wall_ms)
        if expected is not None and not self._may_go_on(current, expected):
            raise errors.ProducerFenced(f"{transactional_id!r} belongs to producer {current.producer_id}, not {expected.producer_id}")
        if current.state.is_prepared:
            raise errors.ConcurrentTransactions(f"the last transaction of {transactional_id!r} is still being ended")
        if current.state is State.ONGOING:
            # The new epoch of this abort is sent to no client: the client asks again and gets the one after it.
            error = errors.ConcurrentTransactions(f"the open transaction of {transactional_id!r} is aborted first")
            fenced = self._fence(current, wall_ms)
            return fenced._replace(response=fenced.response._replace(error=error))
        if is_exhausted(current.producer_epoch) and (expected is None or expected.epoch == current.producer_epoch):
            producer_id, epoch = self._new_producer_id(), 0
            last_epoch = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
        else:
            producer_id, (epoch, last_epoch) = current.producer_id, self._next_epoch(current, expected)
        after = current.moved(
            State.EMPTY,
            wall_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=NO_TIME,
        )
        return self._move(after, Decision(ProducerIdAndEpoch(producer_id, epoch)), last_epoch)

    def _may_go_on(self, current: Transaction, expected: ProducerIdAndEpoch) -> bool:
        """Without an epoch the id was just made: its producer lost everything, and no producer is fenced. A previous producer id is a retry
        after its epochs were used up."""
        return (
            current.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == current.producer_id
            or (expected.producer_id == current.previous_producer_id and is_exhausted(expected.epoch))
        )

    def _next_epoch(self, current: Transaction, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
        epoch = current.producer_epoch
        if expected is None or epoch == NO_PRODUCER_EPOCH or expected.epoch == epoch:
            return epoch + 1, NO_PRODUCER_EPOCH if expected is None else epoch
        last_epoch = self.last_epochs.get(current.transactional_id, NO_PRODUCER_EPOCH)
        if expected.epoch == last_epoch:
            return epoch, last_epoch                          # the same request once more: its answer was lost
        raise errors.ProducerFenced(f"{current.transactional_id!r} has epoch {epoch}, the producer {expected.epoch}")

    def _fence(self, current: Transaction, wall_ms: int) -> CoordinatorResult[Decision]:
        """Aborts an open transaction in the name of the coordinator: its producer is shut out by a new epoch."""
        version = self._transaction_version()
        epoch = min(current.producer_epoch + 1, MAX_EPOCH)
        bumps = version >= FIRST_VERSION_WITH_EPOCH_BUMP
        after = current.moved(
            State.PREPARE_ABORT,
            wall_ms,
            producer_epoch=epoch,
            next_producer_id=self._new_producer_id() if bumps and is_exhausted(current.producer_epoch) else NO_PRODUCER_ID,
            client_version=version if bumps else 0,
        )
        return self._move(after, Decision(prepared=after), current.producer_epoch if bumps else NO_PRODUCER_EPOCH)

    # ---- AddPartitionsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicIndex],
        client_version: int,
        wall_ms: int,
    ) -> CoordinatorResult[Decision]:
        """Takes partitions into the transaction; the first ones begin it.

        Args:
            transactional_id, producer: who asks.
            partitions: those it is going to write to.
            client_version: the transaction.version the producer speaks.
            wall_ms: the time now.

        Raises:
            InvalidPidMapping, ProducerFenced: the transactional id belongs to another producer.
            ConcurrentTransactions: the last transaction is still being ended.
        """
        current = self._known(transactional_id)
        self._check_not_prepared(current)
        self._check_producer(current, producer)
        added = frozenset(partitions)
        if current.state is State.ONGOING and added <= current.partitions:
            return CoordinatorResult([], Decision(producer))
        after = current.moved(
            State.ONGOING,
            wall_ms,
            partitions=current.partitions | added,
            start_ms=wall_ms if current.state.is_idle else current.start_ms,
            client_version=client_version,
        )
        return self._move(after, Decision(producer))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicIndex]
    ) -> dict[TopicIndex, KafkaError | None]:
        """Which of the partitions are in the open transaction; the others may be written to only after an abort.

        Raises:
            InvalidPidMapping, ProducerFenced, ConcurrentTransactions: as `add_partitions`.
        """
        current = self._known(transactional_id)
        self._check_producer(current, producer)
        self._check_not_prepared(current)
        missing = errors.TransactionAbortable("the partition is not part of the transaction")
        return {each: None if each in current.partitions else missing for each in partitions}

    def _known(self, transactional_id: str) -> Transaction:
        current = self.transactions.get(transactional_id)
        if current is None:
            raise errors.InvalidPidMapping(f"transactional id {transactional_id!r} is unknown")
        return current

    def _check_producer(self, current: Transaction, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != current.producer_id:
            raise errors.InvalidPidMapping(
                f"{current.transactional_id!r} belongs to producer {current.producer_id}, not {producer.producer_id}"
            )
        if producer.epoch != current.producer_epoch:
            raise errors.ProducerFenced(f"{current.transactional_id!r} has epoch {current.producer_epoch}, the producer {producer.epoch}")

    def _check_not_prepared(self, current: Transaction) -> None:
        if current.state.is_prepared:
            raise errors.ConcurrentTransactions(f"the last transaction of {current.transactional_id!r} is still being ended")

    # ---- EndTxn

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, commit: bool, client_version: int, wall_ms: int
    ) -> CoordinatorResult[Decision]:
        """Decides a transaction, as its producer asks.

        Args:
            transactional_id, producer: who asks.
            commit: or abort.
            client_version: the transaction.version of the request.
            wall_ms: the time now.

        Raises:
            InvalidPidMapping, ProducerFenced: the transactional id belongs to another producer.
            ConcurrentTransactions: it is decided already; the markers are being written.
            InvalidTxnState: there is nothing to end, or it ended otherwise.
        """
        current = self._known(transactional_id)
        if client_version >= FIRST_VERSION_WITH_EPOCH_BUMP:
            return self._end_with_new_epoch(current, producer, commit, client_version, wall_ms)
        self._check_producer(current, producer)
        self._check_not_prepared(current)
        if current.state is State.ONGOING:
            after = current.moved(
                State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
                wall_ms,
                next_producer_id=NO_PRODUCER_ID,
                client_version=0,
            )
            return self._move(after, Decision(producer, after))
        if current.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
            return CoordinatorResult([], Decision(producer))
        raise self._wrong_state(current, commit)

    def _end_with_new_epoch(
        self, current: Transaction, producer: ProducerIdAndEpoch, commit: bool, client_version: int, wall_ms: int
    ) -> CoordinatorResult[Decision]:
        self._check_not_prepared(current)
        state = current.state
        # The answer to the same request was lost: the epoch has moved on by one, or to another producer id.
        overflowed = (
            producer.producer_id == current.previous_producer_id and producer.epoch == MAX_EPOCH - 1 and current.producer_epoch == 0
        )
        retried = overflowed or current.producer_epoch == producer.epoch + 1
        if current.producer_id != producer.producer_id and not overflowed:
            raise errors.InvalidPidMapping(
                f"{current.transactional_id!r} belongs to producer {current.producer_id}, not {producer.producer_id}"
            )
        may_retry = state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        if producer.epoch != current.producer_epoch and not (may_retry and retried):
            raise errors.ProducerFenced(f"{current.transactional_id!r} has epoch {current.producer_epoch}, the producer {producer.epoch}")
        if state is not State.ONGOING:
            if may_retry and retried:
                if commit is (state is State.COMPLETE_COMMIT):
                    return CoordinatorResult([], Decision(ProducerIdAndEpoch(current.producer_id, current.producer_epoch)))
                raise self._wrong_state(current, commit)
            if commit:
                raise self._wrong_state(current, commit)
        after = current.moved(
            State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            wall_ms,
            producer_epoch=current.producer_epoch + 1,
            next_producer_id=self._new_producer_id() if is_exhausted(current.producer_epoch) else NO_PRODUCER_ID,
            start_ms=current.start_ms if state is State.ONGOING else wall_ms,
            client_version=client_version,
        )
        completed = self.completed(after, wall_ms)
        return self._move(
            after, Decision(ProducerIdAndEpoch(completed.producer_id, completed.producer_epoch), after), current.producer_epoch
        )

    def _wrong_state(self, current: Transaction, commit: bool) -> KafkaError:
        wanted = "commit" if commit else "abort"
        logger.warning("transactional id %s is %s and cannot %s", current.transactional_id, current.state.label, wanted)
        return errors.InvalidTxnState(f"transactional id {current.transactional_id!r} is {current.state.label} and cannot {wanted}")

    @staticmethod
    def completed(prepared: Transaction, wall_ms: int) -> Transaction:
        """What a prepared transaction becomes when its markers are written."""
        overflowed = prepared.client_version >= FIRST_VERSION_WITH_EPOCH_BUMP and prepared.next_producer_id != NO_PRODUCER_ID
        return prepared.moved(
            State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            wall_ms,
            producer_id=prepared.next_producer_id if overflowed else None,
            producer_epoch=0 if overflowed else None,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
        )

    # ---- what the coordinator does by itself

    def marked(self, prepared: Transaction, partitions: Iterable[TopicIndex]) -> bool:
        """Partitions have the marker of a prepared transaction, or need none.

        Returns:
            Whether all have it now; False if the transaction is no longer that one.
        """
        if not self._is_still(prepared):
            return False
        left = self.unmarked.get(prepared.transactional_id, set())
        left.difference_update(partitions)
        return not left

    def complete(self, prepared: Transaction, wall_ms: int) -> CoordinatorResult[Decision]:
        """All markers are written. Nothing happens if the transaction is no longer the one that was prepared."""
        if not self._is_still(prepared):
            return CoordinatorResult([], Decision())
        return self._move(self.completed(self.transactions[prepared.transactional_id], wall_ms), Decision())

    def _is_still(self, prepared: Transaction) -> bool:
        """Whether this decision is the last thing that happened to a transactional id. Not all of it may have gone through the log: records
        of version 0 leave something out."""
        current = self.transactions.get(prepared.transactional_id)
        return (
            current is not None
            and current.state is prepared.state
            and (current.producer_id, current.producer_epoch) == (prepared.producer_id, prepared.producer_epoch)
            and (current.start_ms, current.update_ms) == (prepared.start_ms, prepared.update_ms)
        )

    def abort_timed_out(self, began: Transaction, wall_ms: int) -> CoordinatorResult[Decision]:
        """The time of a transaction has passed: it is aborted unless it has ended."""
        current = self.transactions.get(began.transactional_id)
        if current is None or current.state is not State.ONGOING or current.start_ms != began.start_ms:
            return CoordinatorResult([], Decision())
        if (current.producer_id, current.producer_epoch) != (began.producer_id, began.producer_epoch):
            return CoordinatorResult([], Decision())
        logger.info("the transaction of %s is open for more than %d ms and is aborted", current.transactional_id, current.timeout_ms)
        return self._fence(current, wall_ms)

    def expire(self, wall_ms: int, expiration_ms: int) -> CoordinatorResult[int]:
        """Forgets transactional ids that were not used for transactional.id.expiration.ms, as many as one batch holds for sure; the
        answer is how many."""
        expired = (
            each.transactional_id
            for each in self.transactions.values()
            if each.state.is_idle and each.update_ms <= wall_ms - expiration_ms
        )
        old = list(islice(expired, MAX_EXPIRED))
        return CoordinatorResult([CoordinatorRecord(record_key(transactional_id), None) for transactional_id in old], len(old))

    # ---- looking

    def describe(self, transactional_id: str) -> Transaction:
        """A transactional id; the partitions of a transaction being ended are those that have no marker yet.

        Raises:
            TransactionalIdNotFound: it is unknown.
        """
        found = self.transactions.get(transactional_id)
        if found is None:
            raise errors.TransactionalIdNotFound(f"transactional id {transactional_id!r} is unknown")
        return found

    def partitions_of(self, transaction: Transaction) -> frozenset[TopicIndex]:
        """The partitions of an open transaction, or those of one being ended that have no marker yet."""
        left = self.unmarked.get(transaction.transactional_id)
        return transaction.partitions if left is None else frozenset(left)

    def list(self, wanted: Filter, wall_ms: int) -> list[Transaction]:
        """The transactional ids that a filter lets through."""
        return [each for each in self.transactions.values() if wanted.matches(each, wall_ms)]


def by_topic(partitions: Iterable[TopicIndex]) -> Mapping[str, list[int]]:
    """Partitions grouped by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics
