"""BufferPool and RecordAccumulator: records wait here, in batches, for the Sender.

Who may call what: `roll` belongs to the threads that call send(); `ready`, `drain`, `reenqueue`, `split_and_reenqueue`, `expired`,
`leaderless` and `deallocate` to the thread that drives the I/O (one at a time, see sender.py); the rest to anyone. `_lock` is held for the
few lines that add a batch to a partition or take an empty partition off the active list, and never across a wait or I/O.

Filling an open batch happens in native/append.pxi and takes no lock at all; the steps made once per batch (`roll`, `ready`, `drain`,
`deallocate`) are in native/accumulate.pxi, whose rules say how they and `_lock` keep out of each other's way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from kafkacore._codec import (
    BATCH_OVERHEAD_BYTES,
    NEVER_MS,
    AccumulatorCore,
    BufferPool,
    PartitionQueue,
    PooledBuffer,
    ProducerBatch,
    Ready,
    TopicQueue,
)
from kafkacore.metadata import ClusterSnapshot
from kafkacore.producer.txn import TransactionManager, precedes

MANY_SHARE = 32                    # a batch of send_many is no larger than this part of buffer_memory: 1 MiB of 32 MiB

__all__ = ["NEVER_MS", "BufferPool", "Ready", "RecordAccumulator"]


def buffer_bytes(batch_size: int, max_request_size: int) -> int:
    """The buffer of a batch: no larger than max_request_size, so that an open batch has no room for a record that is too large."""
    return max(min(batch_size, max_request_size), BATCH_OVERHEAD_BYTES)


class RecordAccumulator(AccumulatorCore):
    """Per partition a FIFO of batches; says which brokers have work and takes it out, request by request.

    Source: org.apache.kafka.clients.producer.internals.RecordAccumulator.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        delivery_timeout_ms: int,
        max_request_size: int,
        pool: BufferPool,
        backoff_ms: Callable[[int], int],
        transactions: TransactionManager | None = None,
        choose_sticky: Callable[[TopicQueue], PartitionQueue] | None = None,
        many_bytes: int = 0,
    ) -> None:
        """Makes an empty accumulator; settings as in ProducerConfig.

        Args:
            batch_size: bytes of a batch's buffer, unless max_request_size is less.
            linger_ms: how long a batch that is not full waits for more records.
            delivery_timeout_ms: from a batch's creation to its failure.
            max_request_size: bound of a record and of a request's records, bytes.
            pool: where buffers come from.
            backoff_ms: pause before the n-th retry (from 0).
            transactions: gives producer ids and sequence numbers; None = not idempotent.
            choose_sticky: next partition for records without a key, called when the sticky one has had its share.
            many_bytes: of a batch that send_many begins, at most; less where max_request_size or a 32nd of the pool is less. 0: batch_size.
        """
        self.batch_size = buffer_bytes(batch_size, max_request_size)
        # What PooledBuffer takes is a power of two: of any other size a part would lie idle, and not be counted.
        limit = min(many_bytes, pool.total_bytes // MANY_SHARE, max_request_size)
        self.many_bytes = 1 << limit.bit_length() >> 1
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.max_request_size = max_request_size
        self.pool = pool
        self.wake = lambda deadline_ms, urgent: None
        self.next_expiry_ms = NEVER_MS
        self._backoff_ms = backoff_ms
        self._transactions = transactions
        self._choose_sticky = choose_sticky
        self._lock = threading.Lock()
        self._active = {}
        self._incomplete = {}

    # ---- the thread that drives the I/O --------------------------------------------------------------------------------------------------

    def _forget(self, queue: PartitionQueue) -> None:
        self._look_at_all = True
        self._active.pop(queue, None)

    def _activate(self, queue: PartitionQueue) -> None:
        self._look_at_all = True
        self._active[queue] = None

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Takes out the queued batches whose delivery_timeout_ms has passed."""
        if now_ms < self.next_expiry_ms:
            return []
        out: list[ProducerBatch] = []
        for queue in list(self._active):
            with self._lock:
                while queue.batches and queue.batches[0].count and now_ms - queue.batches[0].created_ms >= self.delivery_timeout_ms:
                    batch = queue.batches.popleft()
                    batch.close()
                    out.append(batch)
                if not queue.batches:
                    self._forget(queue)
        return out

    def leaderless(self, snapshot: ClusterSnapshot, changed: Iterable[str]) -> list[ProducerBatch]:
        """The first batch of each partition that has no leader to go to; partitions of a topic that is not known are left out.

        Args:
            snapshot: the new cluster view.
            changed: topics of which it says something else than the one before.
        """
        out: list[ProducerBatch] = []
        topics, nodes = snapshot.topics, snapshot.nodes
        self.note_changes(snapshot, changed)
        for queue in list(self._active) if self._look_at_all else dict.fromkeys(self._new):
            info = topics.get(queue.topic)
            known = None if info is None else info.partition(queue.index)
            if known is not None and known.leader not in nodes:
                with self._lock:
                    first = queue.batches[0] if queue.batches else None
                if first is not None and first.count:
                    out.append(first)
        return out

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Puts a batch back for another try, in sequence order if it has a sequence."""
        batch.backoff_ms = self._backoff_ms(batch.attempts)
        batch.attempts += 1
        batch.last_attempt_ms = now_ms
        batch.in_retry = True
        with self._lock:
            self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        """First in its deque, or behind those that are older and being retried as well, by sequence number or else by age (lock held).

        So the first batch is the oldest, which `expired` relies on.
        """
        batches = batch.queue.batches
        at = 0
        for other in batches:
            if batch.has_sequence:
                if not other.has_sequence or not precedes(other.base_sequence, batch.base_sequence):
                    break
            elif not other.in_retry or other.created_ms > batch.created_ms:
                break
            at += 1
        batches.insert(at, batch)
        self._activate(batch.queue)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replaces a batch the broker found too large by smaller ones, which take over its age and, when idempotent, its sequence numbers.

        They are of batch_size, as all were before send_many; parts that are refused again are halved. The topic remembers the refused size.

        The new buffers are not accounted in the pool (as in Java): the old one is about to return.

        Returns:
            How many batches it became.
        """

        def make(nbytes: int) -> ProducerBatch:
            part = ProducerBatch(batch.queue, PooledBuffer(nbytes), nbytes, self.driver, batch.created_ms)
            part.is_split = True
            return part

        half = BATCH_OVERHEAD_BYTES + (batch.size_bytes + 1) // 2
        if batch.size_bytes > self.batch_size:
            batch.queue.owner.refused(batch.size_bytes)
        parts = batch.split(half if batch.is_split else min(half, self.batch_size), make)
        self._incomplete.update(dict.fromkeys(parts))                 # first: what is not listed here is lost when a later step fails
        if self._transactions is not None:
            self._transactions.on_split(batch, parts)
        with self._lock:
            for part in reversed(parts):
                self._insert(part)
        return len(parts)

    def take_all(self) -> list[ProducerBatch]:
        """Takes every batch out of the queues and lists all unfinished ones, closed (a forced close or a fatal error)."""
        with self._lock:
            for queue in list(self._active):
                queue.close_open()
                queue.batches.clear()
                self._forget(queue)
            batches = list(self._incomplete)
        for batch in batches:
            batch.close()
        return batches

    # ---- anyone ------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuses new records and makes every batch ready; threads waiting for memory get ClosedError.

        Takes no lock: a finalizer calls it, perhaps on a thread that holds `_lock`.
        """
        self._closed = True
        self.pool.close()
