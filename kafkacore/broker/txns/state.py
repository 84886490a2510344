"""One transactional id: its state, the moves it may make, and its record in `__transaction_state`.

    Empty ----------------> Ongoing ----> PrepareCommit ----> CompleteCommit
      |  \\                  ^     \\                               |
      |   \\                 |      `----> PrepareAbort ----> CompleteAbort
      |    `----------------|------------>    ^                    |
      `---> (expired) <-----'-----------------'--------------------'

A prepared transaction is decided: what follows can only be delayed. Under transaction.version 2 (KIP-890) a producer that does not know
how its transaction stands may abort although none is open, and every transaction has an epoch of its own.

Source: org.apache.kafka.coordinator.transaction.{TransactionState, TransactionMetadata, TransactionLog}.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafkacore.broker.coordinator_shard import CoordinatorRecord
from kafkacore.broker.producers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafkacore.errors import CorruptDataError, InternalError
from kafkacore.protocol.stored import PartitionsSchema, TransactionLogKey, TransactionLogValue, decode_stored, encode_stored

MAX_EPOCH = 2**15 - 1
NO_TIME = -1

TopicIndex = tuple[str, int]
"""A partition: topic name and number."""


class TransactionState(enum.IntEnum):
    """The states, by the numbers of their records. Dead and PrepareEpochFence are Kafka's, seen in filters of ListTransactions only: here
    a transactional id that expires is gone at once, and fencing an epoch and preparing the abort are one step."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As DescribeTransactions and ListTransactions write it: CompleteCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or being ended."""
        return self in _IDLE


_IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
VALID_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""From which states a state may be entered."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no epoch left for its producer; the very last one is kept to fence it."""
    return epoch >= MAX_EPOCH - 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id.

    Attributes:
        transactional_id: its name.
        producer_id, producer_epoch: of the producer that may use it now.
        previous_producer_id: before the last move.
        next_producer_id: with which the producer goes on when the transaction is complete, if its epochs are used up; else -1.
        next_producer_epoch: kept from records of later Kafkas.
        timeout_ms: a transaction open for longer is aborted.
        state: where it stands.
        partitions: in which it has written or will.
        start_ms: when the transaction began; -1 without one.
        update_ms: when something last changed.
        client_version: the transaction.version its producer spoke.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicIndex] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    client_version: int = 0

    def moved(
        self,
        state: TransactionState,
        update_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        next_producer_id: int | None = None,
        timeout_ms: int | None = None,
        partitions: Iterable[TopicIndex] | None = None,
        start_ms: int | None = None,
        client_version: int | None = None,
    ) -> Transaction:
        """Enters a state; what is not named stays.

        Raises:
            InternalError: the state cannot be entered from here.
        """
        if self.state not in VALID_PREVIOUS.get(state, frozenset()):
            raise InternalError(f"transactional id {self.transactional_id!r} cannot go from {self.state.label} to {state.label}")
        return replace(
            self,
            state=state,
            update_ms=update_ms,
            previous_producer_id=self.producer_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.producer_epoch if producer_epoch is None else producer_epoch,
            next_producer_id=self.next_producer_id if next_producer_id is None else next_producer_id,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            partitions=self.partitions if partitions is None else frozenset(partitions),
            start_ms=self.start_ms if start_ms is None else start_ms,
            client_version=self.client_version if client_version is None else client_version,
        )

    def record(self, value_version: int) -> CoordinatorRecord:
        """Its record; value version 0 has no room for previous and next producer ids nor for the client's version."""
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self.partitions):
            topics.setdefault(topic, []).append(index)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            next_producer_epoch=self.next_producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=(
                None
                if self.state is TransactionState.EMPTY
                else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
            ),
            transaction_last_update_timestamp_ms=self.update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        return CoordinatorRecord(record_key(self.transactional_id), encode_stored(value, value_version))

    @classmethod
    def from_value(cls, transactional_id: str, data: bytes) -> Transaction:
        """Reads the value of a record.

        Raises:
            CorruptDataError: it is none.
        """
        value = decode_stored(TransactionLogValue, data)
        try:
            state = TransactionState(value.transaction_status)
        except ValueError:
            raise CorruptDataError(f"transaction status {value.transaction_status} is unknown") from None
        if state not in VALID_PREVIOUS:
            raise CorruptDataError(f"transaction status {state.label} is never stored")
        return cls(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            next_producer_epoch=value.next_producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            partitions=frozenset(
                (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            update_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
        )


def record_key(transactional_id: str) -> bytes:
    """The key of a transactional id's record."""
    return encode_stored(TransactionLogKey(transactional_id=transactional_id), 0)
