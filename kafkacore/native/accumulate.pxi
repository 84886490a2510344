# The accumulator's per-batch work: opening a batch, finding what is ready, taking it out, giving its memory back.
#
# AccumulatorCore is the compiled base of RecordAccumulator (producer/accumulator.py), which holds the retries and everything else that is
# rare; BufferPool has no other half.
#
# Rules
# 1. The GIL is the lock of the short sections here: they run no Python code and allocate no tracked object, so no other thread gets in between.
#    Python code that changes the same state holds `_lock`; a section that finds it held waits for it, or leaves the work to the general path.
#    [test_a_section_that_finds_the_lock_held_waits_for_it, test_threads_mixed_sizes_and_interrupts]
# 2. What a cluster snapshot says of a partition is looked up once per snapshot and kept in its PartitionQueue.
#    [test_a_pass_looks_at_partitions_with_batches_only]
# 3. `poll_until_ms` tells threads that add batches what the thread that drives the I/O is doing: AWAKE (it will look by itself), LOOKING
#    (it may have looked already: `disturb` makes its next wait none), or the time until which it sleeps (only a wake-up byte reaches it).
#    [test_a_wake_up_byte_is_written_only_for_a_driver_that_sleeps_too_long]

from kafkacore.errors import BufferFullError, ClosedError, RecordTooLarge

from kafkacore.clock import SystemClock as _SystemClock
from threading import Lock as _allocate_lock
from threading import TIMEOUT_MAX as _TIMEOUT_MAX
from time import monotonic_ns as _monotonic_ns

cdef enum:
    AWAKE = -1
    SPREAD_BYTES = 256 * 1024     # send_many cuts a column without keys for all partitions, but not finer than this: smaller batches cost more

cdef int64_t LOOKING = <int64_t> 1 << 62
NEVER_MS = LOOKING


cdef inline int64_t time_of(clock) except? -1:
    """clock.now_ms(), without a Python frame for the system's clock."""
    if type(clock) is _SystemClock:
        return <int64_t> _monotonic_ns() // 1000000
    return clock.now_ms()


cdef inline int64_t wall_of(clock) except? -1:
    """clock.wall_ms(), for the system's clock without a call."""
    if clock is None or type(clock) is _SystemClock:
        return kc_wall_ms()
    return clock.wall_ms()


cdef inline bint is_held(lock) except -1:
    return lock.locked() is True


@cython.final
cdef class PoolWaiter:
    """A blocked allocation: what it has been granted, and a held lock that is released when that is all it needs."""

    cdef readonly Py_ssize_t nbytes
    cdef readonly Py_ssize_t granted
    cdef PooledBuffer pooled
    cdef readonly object gate

    def __cinit__(self, Py_ssize_t nbytes):
        self.nbytes = nbytes
        self.gate = _allocate_lock()
        self.gate.acquire()


@cython.final
cdef class BufferPool:
    """`buffer_memory` bytes for records: buffers of one size are kept and reused as they are, other sizes are only counted.

    Memory goes to waiters strictly first come, first served. A thread that frees memory grants it to the first waiter piece by piece and wakes
    it only when it has all it needs, so no thread wakes up for nothing. An invariant holds between any two calls:
    unallocated + free buffers + grants of waiters + allocated == total.

    There is no lock, by rule 1; and since compiled code takes no signals, Ctrl+C comes only while a thread waits, never between two steps.

    Args:
        total_bytes: bound on all memory handed out.
        pooled_bytes: the size whose buffers are kept.

    Source: org.apache.kafka.clients.producer.internals.BufferPool.
    """

    cdef readonly Py_ssize_t total_bytes
    cdef readonly Py_ssize_t pooled_bytes
    cdef readonly Py_ssize_t unallocated_bytes      # neither handed out nor kept as buffers
    cdef list _free
    cdef readonly list _waiters
    cdef bint _closed

    def __cinit__(self, Py_ssize_t total_bytes, Py_ssize_t pooled_bytes):
        self.total_bytes = self.unallocated_bytes = total_bytes
        self.pooled_bytes = pooled_bytes
        self._free = []
        self._waiters = []

    @property
    def available_bytes(self):
        """Bytes that could be handed out now."""
        return self.unallocated_bytes + len(self._free) * self.pooled_bytes

    @property
    def queued(self):
        """Threads waiting for memory."""
        return len(self._waiters)

    def allocate(self, Py_ssize_t nbytes, int64_t max_block_ms, before_wait=None):
        """Takes a buffer, waiting for memory if need be.

        Args:
            nbytes: size; exactly this much is accounted.
            max_block_ms: how long to wait.
            before_wait: called once when a wait is needed (after queueing), to hurry the Sender, which can free memory.

        Returns:
            A buffer of nbytes bytes holding whatever was there before.

        Raises:
            RecordTooLarge: nbytes exceeds the whole pool.
            BufferFullError: not enough was freed in time.
            ClosedError: the pool is closed.
        """
        cdef PooledBuffer buffer = None
        cdef PoolWaiter waiter
        if nbytes > self.total_bytes:
            raise RecordTooLarge(f"{nbytes} bytes are needed, more than buffer_memory ({self.total_bytes} bytes)")
        if self._closed:
            raise ClosedError("the producer is closed")
        if not self._waiters and nbytes == self.pooled_bytes and self._free:
            return self._free.pop()
        if not self._waiters and self.unallocated_bytes + len(self._free) * self.pooled_bytes >= nbytes:
            self.free_up(nbytes)
            self.unallocated_bytes -= nbytes
        else:
            waiter = PoolWaiter(nbytes)
            if self._closed:                         # making the waiter may have let another thread in
                raise ClosedError("the producer is closed")
            self._waiters.append(waiter)
            self.distribute()
            buffer = self.wait(waiter, max_block_ms, before_wait)
        if buffer is not None:
            return buffer
        try:
            return PooledBuffer(nbytes)
        except BaseException:
            self.unallocated_bytes += nbytes
            self.distribute()
            raise

    def watch(self, Py_ssize_t nbytes, gate not None):
        """Queues for memory without waiting: what is granted stays with the waiter until `unwatch`, and can be allocated right after it.

        Args:
            nbytes: how much.
            gate: its release() is called, on any thread, when so much is granted, or when the pool is closed.

        Returns:
            What `unwatch` takes.
        """
        cdef PoolWaiter waiter = PoolWaiter(min(nbytes, self.total_bytes))
        waiter.gate = gate
        if self._closed:
            gate.release()
            return waiter
        self._waiters.append(waiter)
        self.distribute()
        return waiter

    def unwatch(self, PoolWaiter waiter not None):
        """Ends what `watch` began."""
        self.abandon(waiter)

    cdef PooledBuffer wait(self, PoolWaiter waiter, int64_t max_block_ms, before_wait):
        """Until the waiter has its bytes; returns a kept buffer if it was given one."""
        try:
            if before_wait is not None:
                before_wait()
            waiter.gate.acquire(True, min(max(max_block_ms, 0) / 1000, _TIMEOUT_MAX))
        except BaseException:
            self.abandon(waiter)
            raise
        if waiter.granted == waiter.nbytes and not self._closed:
            return waiter.pooled
        self.abandon(waiter)
        if self._closed:
            raise ClosedError("the producer was closed while a record waited for memory")
        raise BufferFullError(
            f"buffer_memory stayed full until max_block_ms had passed, {max_block_ms} ms of it: {waiter.nbytes} bytes needed,"
            f" {self.total_bytes} in all,"
            f" {len(self._waiters)} others waiting"
        )

    cdef int free_up(self, Py_ssize_t nbytes) except -1:
        """Turns kept buffers into unallocated bytes until there are nbytes of those, or no buffers."""
        while self._free and self.unallocated_bytes < nbytes:
            self._free.pop()
            self.unallocated_bytes += self.pooled_bytes
        return 0

    cdef int distribute(self) except -1:
        """Grants what is free to the waiters in their order."""
        cdef PoolWaiter waiter
        cdef Py_ssize_t grant
        while self._waiters:
            waiter = <PoolWaiter> self._waiters[0]
            if waiter.granted == 0 and waiter.nbytes == self.pooled_bytes and self._free:
                waiter.pooled = <PooledBuffer> self._free.pop()
                waiter.granted = waiter.nbytes
            else:
                self.free_up(waiter.nbytes - waiter.granted)
                grant = min(waiter.nbytes - waiter.granted, self.unallocated_bytes)
                self.unallocated_bytes -= grant
                waiter.granted += grant
            if waiter.granted < waiter.nbytes:
                return 0
            del self._waiters[0]
            waiter.gate.release()
        return 0

    cdef int abandon(self, PoolWaiter waiter) except -1:
        """Takes back what a waiter was granted."""
        cdef Py_ssize_t i
        for i in range(len(self._waiters)):
            if self._waiters[i] is waiter:
                del self._waiters[i]
                break
        if waiter.pooled is not None:
            self._free.append(waiter.pooled)
            waiter.pooled = None
        else:
            self.unallocated_bytes += waiter.granted
        waiter.granted = 0
        return self.distribute()

    cdef PooledBuffer take_kept(self):
        """A kept buffer; None when there is none, or a thread waits already."""
        if self._closed or self._waiters or not self._free:
            return None
        return <PooledBuffer> self._free.pop()

    cpdef deallocate(self, PooledBuffer buffer, Py_ssize_t nbytes):
        """Returns a buffer that is no longer read or written.

        Args:
            buffer: as allocated.
            nbytes: the size it was allocated with.
        """
        if nbytes == self.pooled_bytes and not self._closed:
            self._free.append(buffer)
        else:
            self.unallocated_bytes += nbytes
        self.distribute()

    def close(self):
        """Wakes every waiter with ClosedError; memory may still be returned."""
        cdef PoolWaiter waiter
        self._closed = True
        while self._waiters:
            waiter = <PoolWaiter> self._waiters.pop()
            waiter.gate.release()


@cython.final
cdef class Ready:
    """What a look at the accumulator found.

    Attributes:
        nodes: ids of brokers with a batch to send.
        next_check_ms: milliseconds until another one may be, if nothing is added.
        unknown_leader_topics: topics with batches whose leader is not known.
    """

    cdef readonly set nodes
    cdef readonly int64_t next_check_ms
    cdef readonly set unknown_leader_topics

    def __repr__(self):
        return f"Ready(nodes={self.nodes}, next_check_ms={self.next_check_ms}, unknown_leader_topics={self.unknown_leader_topics})"


cdef class AccumulatorCore:
    """The compiled half of RecordAccumulator."""

    cdef public Py_ssize_t batch_size
    cdef public Py_ssize_t many_bytes         # largest buffer that send_many asks for, a power of two; 0: batch_size
    cdef public Py_ssize_t max_request_size
    cdef public int64_t linger_ms
    cdef public int64_t delivery_timeout_ms
    cdef public int64_t next_expiry_ms
    cdef readonly int64_t poll_until_ms
    cdef public BufferPool pool
    cdef public object driver
    cdef public object wake
    cdef public object _lock
    cdef public dict _active
    cdef public dict _incomplete
    cdef public TransactionsCore _transactions
    cdef public object _choose_sticky
    cdef public int _flushes
    cdef public bint _closed
    cdef dict _by_node                        # leader -> [PartitionQueue], found by the last look at all
    cdef public bint _look_at_all             # something changed that a look at the new queues does not see
    cdef readonly list _new                   # queues to be looked at however little has changed, see `ready`
    cdef int64_t _due_ms                      # when the first of the others has lingered
    cdef object _seen                         # the cluster view they were looked up in
    cdef dict _topics                         # name -> TopicQueue, of those that ever had a batch here
    cdef readonly int64_t looked_at           # queues that `ready` has looked at
    cdef dict _drain_start                    # node -> where its next drain begins, so that no partition starves
    cdef int64_t _looks                       # calls of `ready`

    def __cinit__(self, *args, **kwargs):
        self.poll_until_ms = AWAKE
        self._by_node = {}
        self._drain_start = {}
        self._look_at_all = True
        self._new = []
        self._topics = {}

    # ---- threads that call send()

    def roll(self, TopicQueue queue not None, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t now_ms, int64_t max_block_ms,
             int64_t left_bytes=0):
        """Makes room for a record that the open batch did not take: closes it, perhaps moves the sticky partition on, opens another.

        The caller tries again afterwards; another thread may have been quicker.

        Args:
            queue: the record's topic.
            chosen: its partition, None for the sticky one.
            record_bytes: upper bound of the encoded record.
            now_ms: the time.
            max_block_ms: how long to wait for memory.
            left_bytes: about what a send_many call has to write yet, this record among it; 0 for a single record.

        Raises:
            RecordTooLarge, BufferFullError, ClosedError
        """
        cdef PartitionQueue target = queue.sticky if chosen is None else chosen
        cdef Py_ssize_t nbytes, full_bytes = 0
        if self._closed:
            raise ClosedError("the producer is closed", topic=queue.topic)
        if record_bytes > self.max_request_size:
            raise RecordTooLarge(
                f"a record of {record_bytes} bytes is larger than max_request_size ({self.max_request_size})", topic=queue.topic
            )
        if target.open is not None:
            full_bytes = target.open.reserved_bytes
        target = self.make_room(queue, chosen, record_bytes, now_ms)
        if target is None:
            return
        nbytes = self.batch_size
        if left_bytes > nbytes < self.many_bytes:
            nbytes = self.bytes_for_many(queue, chosen is None, left_bytes, full_bytes, max_block_ms > 0)
        nbytes = max(nbytes, record_bytes + BATCH_BYTES_MIN)
        buffer = self._allocate(queue, nbytes, now_ms, max_block_ms)
        self.open_batch(queue, chosen, target, buffer, nbytes, now_ms)

    cdef Py_ssize_t bytes_for_many(self, TopicQueue queue, bint sticky, int64_t left_bytes, Py_ssize_t full_bytes, bint may_wait) except -1:
        """The buffer of a batch that send_many begins: batch_size or more; then a power of two, which is what PooledBuffer takes for it.

        It holds its partition's share of what is left. After a batch that was filled it is twice that one, if as much is left: rows of one
        key. For the sticky partition it holds all that is left up to SPREAD_BYTES, and doubles up to them, for calls faster than the Sender.
        Open batches of all partitions of a topic hold a quarter of buffer_memory at most.
        """
        cdef int64_t limit = min(self.many_bytes, queue.many_limit_bytes)
        cdef int64_t share
        cdef int64_t wanted = min(2 * full_bytes, left_bytes)
        cdef Py_ssize_t nbytes = 1, free_bytes, fit = 1
        if sticky:
            wanted = min(max(min(2 * full_bytes, 4 * left_bytes), left_bytes), <int64_t> SPREAD_BYTES)
        else:
            limit = min(limit, self.pool.total_bytes // (4 * max(queue.n, 1)))
        share = min(left_bytes // max(queue.n, 1), limit)
        while nbytes < wanted or 2 * nbytes <= share or (not sticky and nbytes < share):
            nbytes *= 2
        while nbytes > limit:
            nbytes //= 2
        free_bytes = self.pool.unallocated_bytes + len(self.pool._free) * self.pool.pooled_bytes
        if nbytes > free_bytes:
            while 2 * fit <= free_bytes:
                fit *= 2
            if not may_wait or fit >= nbytes // 4:         # rather a smaller batch than a wait; but waits must not cut ever smaller batches
                nbytes = fit
        return max(nbytes, self.batch_size)

    def _allocate(self, TopicQueue queue, Py_ssize_t nbytes, int64_t now_ms, int64_t max_block_ms):
        try:
            return self.pool.allocate(nbytes, max_block_ms, lambda: self.wake(now_ms, True))
        except KafkaError as error:
            error.topic = queue.topic
            raise

    cdef bint roll_kept(self, TopicQueue queue, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t now_ms) except -1:
        """`roll` with a kept buffer; False when the general way is needed (which may start again)."""
        cdef PartitionQueue target
        cdef PooledBuffer buffer
        if self._closed or record_bytes + BATCH_BYTES_MIN > self.batch_size or self.pool.pooled_bytes != self.batch_size:
            return False
        target = self.make_room(queue, chosen, record_bytes, now_ms)
        if target is None:
            return True
        buffer = self.pool.take_kept()
        if buffer is None:
            return False
        self.open_batch(queue, chosen, target, buffer, self.batch_size, now_ms)
        return True

    cdef PartitionQueue make_room(self, TopicQueue queue, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t now_ms):
        """Closes what is full; returns the partition that needs a new batch, None when it has one."""
        cdef PartitionQueue target = queue.sticky if chosen is None else chosen
        cdef ProducerBatch batch
        while target.open is not None:
            batch = target.open
            if batch.limit - batch.pos >= record_bytes:
                return None                            # another thread was quicker
            if batch.count == 0:
                self.discard_empty(batch)              # too small for this record; behind the next batch it would stay empty
            else:
                batch.close_open()
                self._look_at_all = True
                self.wake(now_ms, True)
        if chosen is None and self._choose_sticky is not None and target.closed_bytes + record_bytes >= self.batch_size:
            target.closed_bytes = 0
            target = self._choose_sticky(queue)
            target.closed_bytes = 0
            queue.sticky = target
            if target.open is not None:
                return None
        return target

    cdef int open_batch(self, TopicQueue queue, PartitionQueue chosen, PartitionQueue target, PooledBuffer buffer, Py_ssize_t nbytes,
                        int64_t now_ms) except -1:
        cdef ProducerBatch batch = None
        cdef bint usable = False
        try:
            batch = ProducerBatch(target, buffer, nbytes, self.driver, now_ms)
            if is_held(self._lock):
                with self._lock:                       # Ctrl+C may end the wait for it
                    usable = self.install(queue, chosen, target, batch)
            else:
                usable = self.install(queue, chosen, target, batch)
        finally:
            if not usable:
                if batch is not None:
                    batch.drop_buffer()
                self.pool.deallocate(buffer, nbytes)
        return 0

    cdef bint install(self, TopicQueue queue, PartitionQueue chosen, PartitionQueue target, ProducerBatch batch) except -1:
        if self._closed or target.open is not None or (chosen is None and queue.sticky is not target):
            return False
        self._incomplete[batch] = None
        target.batches.append(batch)
        target.owner.has_batches(len(target.batches))
        target.open = batch
        self._active[target] = None
        if len(target.batches) > 1:
            self._look_at_all = True
        else:
            self._new.append(target)
        if not target.owner.known:
            target.owner.known = True
            self._topics[target.topic] = target.owner
        return True

    cpdef bint discard_empty(self, ProducerBatch batch) except -1:
        """Drops a batch without records; False when it has one by now. The thread about to fill it opens another."""
        cdef bint dropped
        if is_held(self._lock):
            with self._lock:
                dropped = self.drop_empty(batch)
        else:
            dropped = self.drop_empty(batch)
        if dropped:
            batch.delivery.resolve(-1, -1, None)       # a flush may wait for it
        return dropped

    cdef bint drop_empty(self, ProducerBatch batch) except -1:
        cdef PartitionQueue queue = batch.queue
        if batch.count:
            return False
        batch.close_open()
        if batch in queue.batches:
            queue.batches.remove(batch)
        if not len(queue.batches):
            self._active.pop(queue, None)
        return self.give_back(batch)

    cpdef begun(self, int64_t now_ms):
        """The first record of a new batch was written at `now_ms`: only now is it seen by `ready`, and the Sender may have to get up."""
        cdef bint told = False
        interrupt = None
        if self.poll_until_ms <= now_ms + self.linger_ms:
            return
        while not told:                       # Ctrl+C does not unwrite the record: the Sender has to hear of it all the same
            try:
                self.wake(now_ms + self.linger_ms, False)
                told = True
            except KeyboardInterrupt as stop:
                interrupt = stop
        if interrupt is not None:
            raise interrupt

    # ---- what the driver of the I/O is doing

    def looking(self):
        """The driver is about to look at the batches."""
        self.poll_until_ms = LOOKING

    def sleeping(self, int64_t until_ms):
        """The driver is about to wait.

        Returns:
            False when something came in since `looking`: it must look again instead.
        """
        if self.poll_until_ms == AWAKE:
            return False
        self.poll_until_ms = min(until_ms, LOOKING - 1)
        return True

    def awake(self):
        """The driver no longer waits."""
        self.poll_until_ms = AWAKE

    def disturb(self, int64_t deadline_ms):
        """Something has to be looked at by `deadline_ms`.

        Returns:
            0 when the driver is awake or gets up in time by itself, 1 when it will look again, 2 when a wake-up byte is needed.
        """
        cdef int64_t until_ms = self.poll_until_ms
        if until_ms <= deadline_ms:
            return 0
        self.poll_until_ms = AWAKE
        return 1 if until_ms == LOOKING else 2

    # ---- the thread that drives the I/O

    def ready(self, snapshot, int64_t now_ms):
        """Looks at the partitions that have batches.

        A batch may leave when it is full (closed, or has batch_size bytes: send_many's have room for more), has lingered, is followed by
        another, or when memory is short, a flush or close is under way; not while it backs off (a new leader ends that) and not while its
        partition is muted. Empty batches are dropped, except an open one that a thread is about to fill.

        Batches that linger are not looked at again before the first of them has lingered, unless something happens (`_look_at_all`): only
        partitions are that have just got a batch, whose topic has changed, or whose leader is not known. So a pass does not grow with what
        lingers. When one of a broker's batches may leave all do, which is why everything else is a look at all.
        """
        cdef Ready found = Ready.__new__(Ready)
        cdef bint hurry = self._flushes > 0 or self._closed or len(self.pool._waiters) > 0
        if self._transactions is not None and self._transactions.gate is not None and self._transactions.gate.is_committing():
            hurry = True
        found.nodes = set()
        found.unknown_leader_topics = set()
        found.next_check_ms = LOOKING
        self._looks += 1
        try:
            if (hurry or self._look_at_all or now_ms >= self._due_ms or now_ms >= self.next_expiry_ms or snapshot is not self._seen
                    or not self.look_at_new(found, snapshot, now_ms)):
                self.look(found, snapshot, now_ms, hurry)
        except BaseException:
            self._look_at_all = True          # it may have stopped in between
            raise
        return found

    cdef bint look_at_new(self, Ready found, snapshot, int64_t now_ms) except -1:
        """Looks at the new queues; False when that is not enough, because one of their batches may leave."""
        cdef list queues = self._new, stay = []
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef Py_ssize_t at
        self._new = stay
        for at in range(len(queues)):
            queue = <PartitionQueue> queues[at]
            self.looked_at += 1
            if not len(queue.batches):
                continue
            batch = <ProducerBatch> queue.batches[0]
            if not batch.count:
                stay.append(queue)
                continue
            self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self.delivery_timeout_ms)
            queue.look_up(snapshot)
            if (len(queue.batches) > 1 or batch.closed or batch.pos >= self.batch_size or batch.attempts or queue.muted
                    or now_ms - batch.created_ms >= self.linger_ms) and queue.leader >= 0:
                self._look_at_all = True
                stay.extend(queues[at:])
                return False
            if queue.leader < 0:
                found.unknown_leader_topics.add(queue.topic)
                stay.append(queue)
            else:
                self._due_ms = min(self._due_ms, batch.created_ms + self.linger_ms)
        found.next_check_ms = self._due_ms if self._due_ms >= LOOKING else self._due_ms - now_ms
        return True

    cdef int look(self, Ready found, snapshot, int64_t now_ms, bint hurry) except -1:
        """Looks at all queues that have batches."""
        cdef int64_t next_check = LOOKING, next_expiry = LOOKING, left, waited, due_ms = LOOKING
        cdef bint unsettled = hurry           # there is more to be seen than who lingers
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef dict by_node = {}
        cdef list of_node = None
        cdef int32_t leader = -1              # of of_node
        cdef bint leader_ready = False
        self._look_at_all = False             # first: what happens from here on asks for another look
        self._new = []
        for queue in list(self._active):
            self.looked_at += 1
            batch = self.first_of(queue, hurry, &next_check)
            if batch is None:
                if len(queue.batches):
                    self._new.append(queue)
                continue
            if queue.owner.longest_of != self._looks:
                queue.owner.longest_of = self._looks
                queue.owner.longest = 0
            queue.owner.has_batches(len(queue.batches))
            next_expiry = min(next_expiry, batch.created_ms + self.delivery_timeout_ms)
            queue.look_up(snapshot)
            if queue.leader < 0:
                found.unknown_leader_topics.add(queue.topic)
                self._new.append(queue)
                continue
            if queue.muted:
                unsettled = True
                continue
            if queue.leader != leader:
                leader = queue.leader
                of_node = <list> by_node.get(leader)
                if of_node is None:
                    of_node = by_node[leader] = []
                leader_ready = leader in found.nodes
            of_node.append(queue)
            if leader_ready:
                continue
            left = batch.backing_off_ms(now_ms)
            if left > 0:
                unsettled = True
                next_check = min(next_check, left)
                continue
            waited = now_ms - batch.created_ms
            if (hurry or batch.closed or batch.pos >= self.batch_size or batch.attempts > 0 or waited >= self.linger_ms
                    or len(queue.batches) > 1):
                found.nodes.add(leader)
                leader_ready = unsettled = True
            else:
                next_check = min(next_check, self.linger_ms - waited)
                due_ms = min(due_ms, batch.created_ms + self.linger_ms)
        self._by_node = by_node
        self.next_expiry_ms = next_expiry
        self._due_ms = due_ms
        self._seen = snapshot
        if unsettled:
            self._look_at_all = True
        found.next_check_ms = next_check
        return 0

    def note_changes(self, snapshot, names):
        """A new cluster view. When it knows the same brokers, `ready` need not look at all partitions for it, but at those of some topics.

        Args:
            snapshot: the view; the one that `ready` saw last, plus what is new of these topics.
            names: of the topics.
        """
        cdef TopicQueue topic
        cdef PartitionQueue queue
        if self._look_at_all or self._seen is None or self._seen.nodes != snapshot.nodes:
            self._look_at_all = True
            return
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                for queue in topic.partitions:
                    if len(queue.batches):
                        self._new.append(queue)
        self._seen = snapshot

    cdef ProducerBatch first_of(self, PartitionQueue queue, bint hurry, int64_t *next_check_ms):
        """The first batch of a partition, None when none has records; a drop asks for a second look: a flush may wait for it."""
        cdef ProducerBatch batch
        while len(queue.batches):
            batch = <ProducerBatch> queue.batches[0]
            if batch.count:
                return batch
            if not (hurry or batch.closed or len(queue.batches) > 1):
                return None
            self.discard_empty(batch)
            next_check_ms[0] = 0
        self.forget_if_empty(queue)
        return None

    def drain(self, nodes, int64_t now_ms):
        """Takes at most one batch per partition out for each node, in turn, up to max_request_size bytes a node.

        Args:
            nodes: brokers that can take a request now, found by the `ready` call before.
            now_ms: the time.

        Returns:
            {node id: batches}, closed and with their sequence numbers; nodes without any are left out.
        """
        cdef dict drained = {}
        cdef list batches
        for node in nodes:
            batches = self.drain_node(node, now_ms)
            if batches:
                drained[node] = batches
        return drained

    cdef list drain_node(self, node, int64_t now_ms):
        cdef list queues = <list> self._by_node.get(node)
        cdef list drained = []
        cdef Py_ssize_t size = 0, start, step, n
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        if queues is None:
            return drained
        n = len(queues)
        start = self._drain_start.get(node, 0)
        for step in range(n):
            queue = <PartitionQueue> queues[(start + step) % n]
            if queue.muted or not len(queue.batches):
                continue
            batch = <ProducerBatch> queue.batches[0]
            if batch.count == 0 or batch.backing_off_ms(now_ms) > 0:
                continue
            if drained and size + batch.pos > self.max_request_size:
                self._drain_start[node] = (start + step) % n           # this one is first next time
                return drained
            if self._transactions is not None and not self._transactions.may_drain(batch):
                continue
            batch.close_open()
            if is_held(self._lock):
                with self._lock:
                    self.take_first(queue)
            else:
                self.take_first(queue)
            if self._transactions is not None:
                self._transactions.on_drain(batch)
            batch.begin_try(now_ms)
            size += batch.pos
            drained.append(batch)
        self._drain_start[node] = start + 1
        return drained

    cdef int take_first(self, PartitionQueue queue) except -1:
        queue.batches.popleft()
        self._look_at_all = True
        if not len(queue.batches):
            self._active.pop(queue, None)
        return 0

    cdef int forget_if_empty(self, PartitionQueue queue) except -1:
        if is_held(self._lock):
            with self._lock:
                if not len(queue.batches):
                    self._active.pop(queue, None)
        elif not len(queue.batches):
            self._active.pop(queue, None)
        return 0

    def deallocate(self, ProducerBatch batch not None):
        """Ends a batch's life here; its memory returns to the pool. Harmless when repeated."""
        self.give_back(batch)

    cdef bint give_back(self, ProducerBatch batch) except -1:
        cdef PooledBuffer buffer
        self._incomplete.pop(batch, None)
        if not len(self._incomplete) and self._transactions is not None and self._transactions.gate is not None:
            self._transactions.gate.batches_done()
        self._look_at_all = True
        if batch.released:
            return False
        batch.released = True
        buffer = batch.drop_buffer()
        if not batch.is_split:
            self.pool.deallocate(buffer, batch.reserved_bytes)
        return True

    # ---- anyone

    def begin_flush(self):
        """Makes every batch ready until the matching end_flush."""
        self._flushes += 1

    def end_flush(self):
        """See begin_flush."""
        self._flushes -= 1

    def incomplete(self):
        """The batches whose outcome is not known yet or whose memory is still in use, oldest first."""
        return list(self._incomplete)

    @property
    def has_incomplete(self):
        """True while any batch is unfinished."""
        return len(self._incomplete) > 0

    def has_queued(self):
        """True while batches wait to be sent."""
        cdef PartitionQueue queue
        for queue in self._active:            # at most one step where batches wait; no Python code runs in between
            if len(queue.batches):
                return True
        return False
