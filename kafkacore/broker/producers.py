"""What a partition remembers of its idempotent producers.

Per producer id: the epoch and the last five batches. Five, because a client may have that many requests in flight (KIP-98), so a resend
of any of them can still be told from new data.

Source: KIP-98; org.apache.kafka.storage.internals.log.{ProducerStateManager, ProducerAppendInfo, ProducerStateEntry}.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkacore import errors

BATCHES_TO_RETAIN = 5
NO_PRODUCER_ID = -1
MAX_SEQUENCE = 2**31 - 1


def add_sequence(sequence: int, increment: int) -> int:
    """A sequence number `increment` (not negative) further; the one after 2^31 - 1 is 0."""
    return (sequence + increment) & MAX_SEQUENCE


class BatchMetadata(NamedTuple):
    """One batch a producer wrote: its sequence numbers, offsets, and largest timestamp."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry:
    """A producer's epoch and its last batches, oldest first."""

    __slots__ = ("batches", "epoch", "last_used_ms")

    def __init__(self, epoch: int, now_ms: int) -> None:
        self.epoch = epoch
        self.last_used_ms = now_ms
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_TO_RETAIN)


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}

    def check(self, producer_id: int, epoch: int, base_sequence: int, record_count: int) -> BatchMetadata | None:
        """Decides about a batch before it is written; changes nothing.

        Args:
            producer_id, epoch, base_sequence: from the batch header.
            record_count: records of the batch.

        Returns:
            None for new data; the earlier batch if this one is a resend.

        Raises:
            InvalidProducerEpoch: a newer epoch of this producer has written.
            OutOfOrderSequence: a gap, a new epoch that does not start at 0, or a resend of something older than five batches.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            # Nothing is known, for instance because retention deleted all of it: any sequence starts the producer.
            return None
        if epoch < entry.epoch:
            raise errors.InvalidProducerEpoch(f"producer {producer_id} has epoch {entry.epoch}, the batch {epoch}")
        if epoch > entry.epoch:
            if base_sequence != 0:
                raise errors.OutOfOrderSequence(f"producer {producer_id} starts epoch {epoch} at sequence {base_sequence} instead of 0")
            return None
        last_sequence = add_sequence(base_sequence, record_count - 1)
        for batch in entry.batches:
            if batch.first_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        expected = add_sequence(entry.batches[-1].last_sequence, 1) if entry.batches else base_sequence
        if base_sequence != expected:
            raise errors.OutOfOrderSequence(f"producer {producer_id} sent sequence {base_sequence}, expected {expected}")
        return None

    def update(
        self, producer_id: int, epoch: int, base_sequence: int, first_offset: int, record_count: int, timestamp_ms: int, now_ms: int
    ) -> None:
        """Records a batch that was written; timestamp_ms is its largest, now_ms the time of writing."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self.entries[producer_id] = ProducerEntry(epoch, now_ms)
        last_sequence = add_sequence(base_sequence, record_count - 1)
        entry.batches.append(BatchMetadata(base_sequence, last_sequence, first_offset, first_offset + record_count - 1, timestamp_ms))
        entry.last_used_ms = now_ms

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers idle for longer than producer.id.expiration.ms.

        Returns:
            How many were forgotten.
        """
        old = [producer_id for producer_id, entry in self.entries.items() if now_ms - entry.last_used_ms > expiration_ms]
        for producer_id in old:
            del self.entries[producer_id]
        return len(old)
