"""TransactionManager: producer ids, epochs and sequence numbers, so that retries neither double nor reorder records.

How a broker sees it: per (producer id, partition) it remembers the last five batches; a batch must carry the epoch it knows and the
sequence number after the last one. A repeated batch is answered as the first time, a gap is OUT_OF_ORDER_SEQUENCE_NUMBER, a new epoch
starts at 0. So a batch gets its numbers once, when it is drained, and keeps them over retries.

Rules
1. Batches of a partition leave in sequence order, and while one is retried only the first unanswered one may go out.
   [test_later_batches_wait_for_the_first_ones_retry_and_keep_order]
2. When a batch that was in flight is given up, it is not known whether the broker has it: the partition's sequence is "unresolved" and no
   new batch leaves until the batches still in flight have answered. Then either the numbers match, or the epoch is bumped.
   [test_a_partition_in_doubt_does_not_wait_for_another_one, test_an_expired_batch_costs_no_epoch_when_a_later_one_is_acknowledged]
3. An idempotent producer bumps its epoch by itself (KIP-360 as Java does it; a broker ignores the old id in InitProducerId without a
   transactional id), restarts the partitions concerned at sequence 0 and renumbers their unanswered batches. At the largest epoch it
   asks for a new id. [test_no_number_changes_while_a_batch_of_any_partition_with_a_gap_is_on_the_wire,
   test_the_largest_epoch_asks_for_a_new_producer_id]
4. State changes go through `_transition`; what the table does not list raises. [test_illegal_transitions_raise]
5. Until the first batch of a partition under an epoch is acknowledged it travels alone. A broker that knows nothing of a producer takes
   whatever number comes first: were the first batch refused (a new topic's leader is not ready) and the second taken, the first could
   never be (KAFKA-14359). [test_until_the_first_batch_is_acknowledged_it_travels_alone]
6. With transactions (`gate` is set) the books only number: ids and epochs come from coordinators, and that a batch has failed is the affair
   of the transaction (transactions.py). [test_a_batch_that_a_leader_refuses_for_its_number_or_epoch_is_the_affair_of_the_transaction,
   test_numbers_begin_at_0_in_each_epoch_and_go_on_within_one]

What every batch passes (`may_drain`, `on_drain`, `on_success`) is compiled: native/sender.pxi.

Source: org.apache.kafka.clients.producer.internals.TransactionManager, TxnPartitionMap; KIP-98, KIP-360.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable
from typing import Any

from kafkacore import _codec
from kafkacore._codec import PartitionBooks, PartitionQueue, ProducerBatch, TransactionGate, TransactionsCore, increment_sequence
from kafkacore.errors import AuthenticationFailedError, AuthorizationError, Code, IllegalStateError, KafkaError

log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1


class State(enum.Enum):
    """Whether batches can be numbered."""

    UNINITIALIZED = "no producer id yet"
    INITIALIZING = "a producer id is being asked for"
    READY = "a producer id is known"
    FATAL_ERROR = "the producer can only be closed"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.UNINITIALIZED, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}


_codec._bind_books_state(State.READY)


def precedes(a: int, b: int) -> bool:
    """True when sequence number a comes before b; they wrap around at 2^31."""
    return 0 < ((b - a) & 0x7FFFFFFF) < 0x40000000


class TransactionManager(TransactionsCore):
    """The books of an idempotent or transactional producer. Only the thread that drives the I/O touches it."""

    def __init__(self, gate: TransactionGate | None = None) -> None:
        """Starts without a producer id.

        Args:
            gate: of the transactional producer.
        """
        self.gate = gate
        self.state = State.UNINITIALIZED
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.error: KafkaError | None = None
        self._partitions = {}
        self._unresolved = set()
        self._bump_for = set()

    # ---- state -------------------------------------------------------------------------------------------------------------------

    def _transition(self, to: State, error: KafkaError | None = None) -> None:
        if to not in TRANSITIONS[self.state]:
            raise IllegalStateError(f"no way from {self.state.name} to {to.name}")
        self.state = to
        self.error = error

    @property
    def has_producer_id(self) -> bool:
        """True once batches can be numbered."""
        return self.producer_id != NO_PRODUCER_ID

    @property
    def has_fatal_error(self) -> bool:
        """True when nothing can be sent any more."""
        return self.state is State.FATAL_ERROR

    @property
    def needs_producer_id(self) -> bool:
        """True when InitProducerId is to be sent."""
        return self.state is State.UNINITIALIZED

    def initializing(self) -> None:
        """InitProducerId is on its way."""
        self._transition(State.INITIALIZING)

    def initialized(self, producer_id: int, epoch: int) -> None:
        """The broker gave an id."""
        self._transition(State.READY)
        self.producer_id = producer_id
        self.epoch = epoch

    def adopt(self, producer_id: int, epoch: int) -> None:
        """A coordinator gave this id and epoch: the numbers of all partitions begin at 0. Nothing changes when they are known."""
        if (producer_id, epoch) == (self.producer_id, self.epoch) or self.has_fatal_error:
            return
        self._unresolved.clear()
        self._bump_for.clear()
        self._partitions.clear()
        if self.state is State.UNINITIALIZED:
            self._transition(State.INITIALIZING)
        if self.state is State.INITIALIZING:
            self._transition(State.READY)
        self.producer_id, self.epoch = producer_id, epoch

    def initialization_failed(self, error: KafkaError) -> None:
        """InitProducerId failed; tried again unless the error is final. A refused authorization or authentication is not: an ACL, a
        password or a token may allow it later."""
        if error.retriable:
            self._transition(State.UNINITIALIZED)
        elif isinstance(error, (AuthorizationError, AuthenticationFailedError)):
            self._transition(State.UNINITIALIZED, error)
        else:
            self.fail(error)

    def interrupted(self) -> None:
        """A pass did not end. The answer to InitProducerId under way, if any, will not be taken in: ask again. And where a batch was being
        given up, `resolve` sees whether it left a gap."""
        if self.state is State.INITIALIZING:
            self._transition(State.UNINITIALIZED)
        for queue, books in self._partitions.items():
            books.in_flight = [batch for batch in books.in_flight if not batch.delivery.resolved and batch.delivery.parts is None]
            if books.next_sequence != increment_sequence(books.last_acked_sequence, 1):
                self._unresolved.add(queue)

    def fail(self, error: KafkaError) -> None:
        """Nothing can be sent any more, for this reason."""
        if self.state is not State.FATAL_ERROR:
            self._transition(State.FATAL_ERROR, error)

    # ---- draining ----------------------------------------------------------------------------------------------------------------

    def on_split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """The parts take over the numbers of the batch the broker refused."""
        books = self._partitions[batch.queue]
        at = books.in_flight.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer_state(batch.producer_id, batch.producer_epoch, sequence)
            sequence = increment_sequence(sequence, part.count)
        books.in_flight[at : at + 1] = list(parts)

    # ---- outcomes ----------------------------------------------------------------------------------------------------------------

    def on_failure(self, batch: ProducerBatch, error: KafkaError, *, sequence_is_free: bool) -> None:
        """The batch is given up.

        Args:
            batch: which.
            error: why.
            sequence_is_free: the broker certainly does not have it, so that its numbers leave a gap.
        """
        if not batch.has_sequence:
            return
        if self.gate is None and (
            (error.fatal and not isinstance(error, AuthenticationFailedError)) or error.code in _FATAL_CODES
        ):
            self.fail(error)  # the connection says nothing further about an authentication: the next attempt may succeed
        self._remove(batch)
        if self.has_fatal_error or batch.queue not in self._partitions:
            return
        if sequence_is_free or error.code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID):
            self._bump_for.add(batch.queue)

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        """The batch expired while the broker may or may not have it (rule 2)."""
        if batch.has_sequence:
            self._unresolved.add(batch.queue)

    def can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int = -1) -> bool:
        """True when the batch may go again; notes that an epoch bump is needed first where it is."""
        books = self._partitions.get(batch.queue)
        if books is None or not batch.has_sequence:
            return error.retriable
        if self.gate is not None:
            return self._can_retry_in_transaction(batch, books, error, log_start_offset)
        if error.code == Code.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.sequence_has_been_reset:
                return True
            self._bump_for.add(batch.queue)
            return True
        if error.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER:
            next_expected = increment_sequence(books.last_acked_sequence, 1) == batch.base_sequence
            last = books.last_acked_sequence
            overtaken = last >= 0 and (last - batch.base_sequence) & 0x7FFFFFFF < 2**30     # a later one was taken: this one never will be
            if batch.queue in self._unresolved or overtaken or (next_expected and not batch.sequence_has_been_reset):
                self._bump_for.add(batch.queue)
            return True
        return error.retriable

    def _can_retry_in_transaction(self, batch: ProducerBatch, books: PartitionBooks, error: KafkaError, log_start_offset: int) -> bool:
        """In a transaction nothing is numbered again: what cannot go as it is ends the transaction."""
        if error.code == Code.UNKNOWN_PRODUCER_ID:
            return log_start_offset == -1
        if error.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return batch.queue not in self._unresolved and precedes(
                increment_sequence(books.last_acked_sequence, 1), batch.base_sequence
            )
        return error.retriable

    # ---- recovery, once per Sender pass ------------------------------------------------------------------------------------------

    def resolve(self) -> None:
        """Ends rule 2 where nothing is in flight any more, and bumps the epoch where that is due (rule 3).

        When the last batch sent was acknowledged, the broker has all before it, the expired ones too: then there is no gap.

        Source: TransactionManager.maybeResolveSequences.
        """
        self._end_doubts()
        if self._bump_for and self.has_producer_id and not self.has_fatal_error:
            # The numbers of a batch on the wire must not change under it: wait for its answer.
            if any(batch.in_flight for queue in self._bump_for for batch in self._partitions[queue].in_flight):
                return
            self._bump()

    @property
    def has_doubts(self) -> bool:
        """True when `find_gaps` has something to look at."""
        return bool(self._unresolved or self._bump_for)

    def find_gaps(self) -> bool:
        """True when batches are missing for good between those a broker has: the transaction cannot be committed."""
        self._end_doubts()
        return bool(self._bump_for)

    def _end_doubts(self) -> None:
        """Ends rule 2 where nothing is in flight any more."""
        for queue in list(self._unresolved):
            books = self._partitions.get(queue)
            if books is not None:
                if books.in_flight:
                    continue
                if books.next_sequence != increment_sequence(books.last_acked_sequence, 1):
                    self._bump_for.add(queue)
            self._unresolved.discard(queue)

    def _bump(self) -> None:
        if self.epoch == MAX_EPOCH:
            self._transition(State.UNINITIALIZED)
            self.producer_id, self.epoch = NO_PRODUCER_ID, NO_EPOCH
            for queue in self._bump_for:
                self._renumber_later(queue)
        else:
            self.epoch += 1
            for queue in self._bump_for:
                self._restart(self._partitions[queue])
            log.info(  # of the error behind it the records tell
                "producer epoch bumped to %d after sequence errors on %s",
                self.epoch,
                ", ".join(f"{queue.topic}-{queue.index}" for queue in self._bump_for),
            )
        for queue in self._bump_for:
            self._unresolved.discard(queue)
        self._bump_for.clear()

    def _restart(self, books: PartitionBooks) -> None:
        books.producer_id, books.epoch = self.producer_id, self.epoch
        books.last_acked_sequence = -1
        books.last_acked_offset = -1
        sequence = 0
        for batch in books.in_flight:
            batch.set_producer_state(self.producer_id, self.epoch, sequence)
            sequence = increment_sequence(sequence, batch.count)
        books.next_sequence = sequence

    def _renumber_later(self, queue: PartitionQueue) -> None:
        """The unanswered batches get numbers again when they are drained under the new id."""
        books = self._partitions.pop(queue)
        for batch in books.in_flight:
            batch.clear_producer_state()

    # ---- looking in --------------------------------------------------------------------------------------------------------------

    def statistics(self) -> dict[str, Any]:
        """State, id, epoch and, per partition, the next sequence number and the unanswered batches. Any thread may ask."""
        partitions = self._partitions.copy()                    # in one step: the Sender adds to it
        return {
            "state": self.state.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "partitions": {
                f"{queue.topic}-{queue.index}": {
                    "next_sequence": books.next_sequence,
                    "last_acked_sequence": books.last_acked_sequence,
                    "unanswered_batches": len(books.in_flight),
                    "unresolved": queue in self._unresolved,
                }
                for queue, books in partitions.items()
            },
        }


_FATAL_CODES = frozenset(
    {
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.PRODUCER_FENCED,
        Code.UNSUPPORTED_VERSION,
    }
)
