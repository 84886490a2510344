"""BufferPool and RecordAccumulator: records wait here, in batches, for the Sender.

Who may call what: `roll` belongs to the threads that call send(); `ready`, `drain`, `reenqueue`, `split_and_reenqueue`, `expired` and
`deallocate` to whoever drives the I/O (one thread at a time, see sender.py); the rest to anyone. `_lock` is held for the few lines that
add a batch to a partition or take an empty partition off the active list, and never across a wait or I/O.

Filling an open batch happens in native/append.pxi and takes no lock at all; the steps made once per batch (`roll`, `ready`, `drain`,
`deallocate`) are in native/accumulate.pxi, whose rules say how they and `_lock` keep out of each other's way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacore._codec import (
    BATCH_OVERHEAD_BYTES,
    NEVER_MS,
    AccumulatorCore,
    PartitionQueue,
    PoolCore,
    PooledBuffer,
    ProducerBatch,
    Ready,
    TopicQueue,
)
from kafkacore.errors import BufferFullError, ClosedError, KafkaError, RecordTooLarge

if TYPE_CHECKING:
    from kafkacore.producer.txn import TransactionManager

__all__ = ["NEVER_MS", "BufferPool", "Ready", "RecordAccumulator"]


class _Waiter:
    """A blocked allocation: what it still needs, and a held lock that is released when it has everything."""

    __slots__ = ("gate", "granted", "nbytes", "pooled")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.granted = 0
        self.pooled: PooledBuffer | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class BufferPool(PoolCore):
    """`buffer_memory` bytes for records: buffers of one size are kept and reused as they are, other sizes are only counted.

    Memory goes to waiters strictly first come, first served. Whoever frees memory grants it to the first waiter piece by piece and wakes
    it only when it has all it needs, so nobody wakes up in vain. An invariant holds whenever the lock is free:
    unallocated + free buffers + grants of waiters + allocated == total.

    Source: org.apache.kafka.clients.producer.internals.BufferPool.
    """

    def __init__(self, total_bytes: int, pooled_bytes: int) -> None:
        """Makes an empty pool; memory is taken from the system on first use.

        Args:
            total_bytes: bound on all memory handed out.
            pooled_bytes: the size whose buffers are kept.
        """
        self.total_bytes = total_bytes
        self.pooled_bytes = pooled_bytes
        self._lock = threading.Lock()
        self._free = []
        self._unallocated = total_bytes
        self._waiters = deque()
        self._closed = False

    def allocate(self, nbytes: int, max_block_ms: int, before_wait: Callable[[], None] | None = None) -> PooledBuffer:
        """Takes a buffer, waiting for memory if need be.

        Args:
            nbytes: size; exactly this much is accounted.
            max_block_ms: how long to wait.
            before_wait: called once when a wait is needed (after queueing), to hurry whoever can free memory.

        Returns:
            A buffer of nbytes bytes holding whatever was there before.

        Raises:
            RecordTooLarge: nbytes exceeds the whole pool.
            BufferFullError: not enough was freed in time.
            ClosedError: the pool is closed.
        """
        if nbytes > self.total_bytes:
            raise RecordTooLarge(f"{nbytes} bytes are needed, more than buffer_memory ({self.total_bytes} bytes)")
        buffer: PooledBuffer | None = None
        waiter: _Waiter | None = None
        with self._lock:
            if self._closed:
                raise ClosedError("the producer is closed")
            if nbytes == self.pooled_bytes and self._free and not self._waiters:
                buffer = self._free.pop()
            elif not self._reserve(nbytes):
                waiter = _Waiter(nbytes)
                self._waiters.append(waiter)
                self._distribute()
        if waiter is not None:
            buffer = self._wait(waiter, max_block_ms, before_wait)
        if buffer is not None:
            return buffer
        try:
            return PooledBuffer(nbytes)
        except BaseException:
            with self._lock:
                self._unallocated += nbytes
                self._distribute()
            raise

    def _reserve(self, nbytes: int) -> bool:
        if self._waiters or self._unallocated + len(self._free) * self.pooled_bytes < nbytes:
            return False
        self._free_up(nbytes)
        self._unallocated -= nbytes
        return True

    def _free_up(self, nbytes: int) -> None:
        """Turns kept buffers into unallocated bytes until there are nbytes of those, or no buffers."""
        while self._free and self._unallocated < nbytes:
            self._free.pop()
            self._unallocated += self.pooled_bytes

    def _distribute(self) -> None:
        """Grants what is free to the waiters in their order (lock held)."""
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.granted == 0 and waiter.nbytes == self.pooled_bytes and self._free:
                waiter.pooled = self._free.pop()
                waiter.granted = waiter.nbytes
            else:
                self._free_up(waiter.nbytes - waiter.granted)
                grant = min(waiter.nbytes - waiter.granted, self._unallocated)
                self._unallocated -= grant
                waiter.granted += grant
            if waiter.granted < waiter.nbytes:
                return
            self._waiters.popleft()
            waiter.gate.release()

    def _wait(self, waiter: _Waiter, max_block_ms: int, before_wait: Callable[[], None] | None) -> PooledBuffer | None:
        try:
            if before_wait is not None:
                before_wait()
            waiter.gate.acquire(timeout=min(max(max_block_ms, 0) / 1000, threading.TIMEOUT_MAX))
        except BaseException:
            with self._lock:
                self._abandon(waiter)
            raise
        with self._lock:
            if waiter.granted == waiter.nbytes and not self._closed:
                return waiter.pooled
            self._abandon(waiter)
            if self._closed:
                raise ClosedError("the producer was closed while a record waited for memory")
            raise BufferFullError(
                f"buffer_memory stayed full for max_block_ms={max_block_ms}: {waiter.nbytes} bytes needed, {self.total_bytes} in all,"
                f" {len(self._waiters)} others waiting"
            )

    def _abandon(self, waiter: _Waiter) -> None:
        """Takes back what a waiter was granted (lock held)."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if waiter.pooled is not None:
            self._free.append(waiter.pooled)
            waiter.pooled = None
        else:
            self._unallocated += waiter.granted
        waiter.granted = 0
        self._distribute()

    def deallocate(self, buffer: PooledBuffer, nbytes: int) -> None:
        """Returns a buffer nobody reads or writes any more.

        Args:
            buffer: as allocated.
            nbytes: the size it was allocated with.
        """
        with self._lock:
            if nbytes == self.pooled_bytes and not self._closed:
                self._free.append(buffer)
            else:
                self._unallocated += nbytes
            if self._waiters:
                self._distribute()

    @property
    def available_bytes(self) -> int:
        """Bytes that could be handed out now."""
        with self._lock:
            return self._unallocated + len(self._free) * self.pooled_bytes

    @property
    def unallocated_bytes(self) -> int:
        """Bytes neither handed out nor kept as buffers."""
        with self._lock:
            return self._unallocated

    @property
    def queued(self) -> int:
        """Threads waiting for memory."""
        return len(self._waiters)

    def close(self) -> None:
        """Wakes every waiter with ClosedError; memory may still be returned."""
        with self._lock:
            self._closed = True
            waiters = list(self._waiters)
            self._waiters.clear()
            for waiter in waiters:
                waiter.gate.release()


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
    ) -> None:
        """Makes an empty accumulator; settings as in ProducerConfig.

        Args:
            batch_size: bytes of a batch's buffer.
            linger_ms: how long a batch that is not full waits for more records.
            delivery_timeout_ms: from a batch's creation to its failure.
            max_request_size: bound of a record and of a request's records, bytes.
            pool: where buffers come from.
            backoff_ms: pause before the n-th retry (from 0).
            transactions: gives producer ids and sequence numbers; None = not idempotent.
            choose_sticky: next partition for records without a key, called when the sticky one has had its share.
        """
        self.batch_size = max(batch_size, BATCH_OVERHEAD_BYTES)
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.max_request_size = max_request_size
        self.pool = pool
        self.driver = None
        self.wake = lambda deadline_ms, urgent: None
        self.next_expiry_ms = NEVER_MS
        self._backoff_ms = backoff_ms
        self._transactions = transactions
        self._choose_sticky = choose_sticky
        self._lock = threading.Lock()
        self._active = {}
        self._incomplete = {}
        self._flushes = 0
        self._closed = False

    # ---- threads that call send() ------------------------------------------------------------------------------------------------

    def _allocate(self, queue: TopicQueue, nbytes: int, now_ms: int, max_block_ms: int) -> PooledBuffer:
        """Called by `roll`: takes a buffer, waiting for memory if need be."""
        try:
            buffer: PooledBuffer = self.pool.allocate(nbytes, max_block_ms, lambda: self.wake(now_ms, True))
        except KafkaError as error:
            error.topic = queue.topic
            raise
        return buffer

    # ---- whoever drives the I/O --------------------------------------------------------------------------------------------------

    def _discard_empty(self, batch: ProducerBatch) -> None:
        """Drops a batch without records, so that a flush or close does not wait for it; a thread about to fill it opens another."""
        with self._lock:
            if batch.close_if_empty():
                batch.queue.batches.remove(batch)
                batch.delivery.resolve(-1, -1, None)
                self.deallocate(batch)

    def _forget(self, queue: PartitionQueue) -> None:
        self._active.pop(queue, None)

    def _activate(self, queue: PartitionQueue) -> None:
        self._active[queue] = None

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Takes out the queued batches whose delivery_timeout_ms has passed."""
        if now_ms < self.next_expiry_ms:
            return []
        out: list[ProducerBatch] = []
        for queue in list(self._active):
            with self._lock:
                while queue.batches and now_ms - queue.batches[0].created_ms >= self.delivery_timeout_ms:
                    batch = queue.batches.popleft()
                    batch.close()
                    out.append(batch)
                if not queue.batches:
                    self._forget(queue)
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
        """First in its deque, or behind the batches of smaller sequence numbers that are being retried as well (lock held)."""
        batches = batch.queue.batches
        at = 0
        if batch.has_sequence:
            for other in batches:
                if not other.has_sequence or not _before(other.base_sequence, batch.base_sequence):
                    break
                at += 1
        batches.insert(at, batch)
        self._activate(batch.queue)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replaces a batch the broker found too large by smaller ones, which take over its age and, when idempotent, its sequence numbers.

        The new buffers are not accounted in the pool (as in Java): the old one is about to return.

        Returns:
            How many batches it became.
        """

        def make(nbytes: int) -> ProducerBatch:
            part = ProducerBatch(batch.queue, PooledBuffer(nbytes), nbytes, self.driver, batch.created_ms)
            part.is_split = True
            return part

        half = BATCH_OVERHEAD_BYTES + (batch.size_bytes + 1) // 2
        parts = batch.split(half if batch.is_split else min(half, self.batch_size), make)
        if self._transactions is not None:
            self._transactions.on_split(batch, parts)
        with self._lock:
            for part in reversed(parts):
                self._incomplete[part] = None
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

    def begin_flush(self) -> None:
        """Makes every batch ready until the matching end_flush."""
        with self._lock:
            self._flushes += 1

    def end_flush(self) -> None:
        """See begin_flush."""
        with self._lock:
            self._flushes -= 1

    def close(self) -> None:
        """Refuses new records and makes every batch ready; threads waiting for memory get ClosedError."""
        with self._lock:
            self._closed = True
        self.pool.close()


def _before(a: int, b: int) -> bool:
    """Sequence order with wrap-around at 2^31."""
    return 0 < ((b - a) & 0x7FFFFFFF) < 0x40000000
