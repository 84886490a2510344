# The accumulator's per-batch work: opening a batch, finding what is ready, taking it out, giving its memory back.
#
# PoolCore and AccumulatorCore are the compiled bases of BufferPool and RecordAccumulator (producer/accumulator.py), which hold the waiting,
# the retries and everything else that is rare.
#
# Rules
# 1. The GIL is the lock of the short sections here: they run no Python code and allocate no tracked object, so no other thread gets in between.
#    Python code that changes the same state holds `_lock`; a section that finds it held waits for it, or leaves the work to the general path.
# 2. What a cluster snapshot says of a partition is looked up once per snapshot and kept in its PartitionQueue.
# 3. `poll_until_ms` tells threads that add batches what the thread that drives the I/O is doing: AWAKE (it will look by itself), LOOKING
#    (it may have looked already: `disturb` makes its next wait none), or the time until which it sleeps (only a wake-up byte reaches it).

from kafkacore.errors import ClosedError, RecordTooLarge

from kafkacore.clock import SystemClock as _SystemClock
from time import monotonic_ns as _monotonic_ns

cdef enum:
    AWAKE = -1

cdef int64_t LOOKING = <int64_t> 1 << 62
NEVER_MS = LOOKING


cdef inline int64_t time_of(clock) except? -1:
    """clock.now_ms(), without a Python frame for the system's clock."""
    if type(clock) is _SystemClock:
        return <int64_t> _monotonic_ns() // 1000000
    return clock.now_ms()


cdef inline bint is_held(lock) except -1:
    return lock.locked() is True


cdef class PoolCore:
    """The compiled half of BufferPool: buffers that are kept, taken and given back without a lock."""

    cdef public Py_ssize_t total_bytes
    cdef public Py_ssize_t pooled_bytes
    cdef public object _lock
    cdef public list _free
    cdef public object _waiters
    cdef public bint _closed

    cdef PooledBuffer take_kept(self):
        """A kept buffer; None when there is none, somebody waits already, or another thread is changing the pool."""
        if is_held(self._lock) or self._closed or len(self._waiters) or not self._free:
            return None
        return <PooledBuffer> self._free.pop()

    cdef bint give_kept(self, PooledBuffer buffer, Py_ssize_t nbytes) except -1:
        """Keeps a buffer for the next batch; False when deallocate has to see to it."""
        if is_held(self._lock) or self._closed or len(self._waiters) or nbytes != self.pooled_bytes:
            return False
        self._free.append(buffer)
        return True


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
    cdef public Py_ssize_t max_request_size
    cdef public int64_t linger_ms
    cdef public int64_t delivery_timeout_ms
    cdef public int64_t next_expiry_ms
    cdef readonly int64_t poll_until_ms
    cdef public PoolCore pool
    cdef public object driver
    cdef public object wake
    cdef public object _lock
    cdef public dict _active
    cdef public dict _incomplete
    cdef public TransactionsCore _transactions
    cdef public object _choose_sticky
    cdef public int _flushes
    cdef public bint _closed
    cdef dict _by_node                        # leader -> [PartitionQueue], found by the last `ready`
    cdef dict _drain_start                    # node -> where its next drain begins, so that no partition starves

    def __cinit__(self, *args, **kwargs):
        self.poll_until_ms = AWAKE
        self._by_node = {}
        self._drain_start = {}

    # ---- threads that call send()

    def roll(self, TopicQueue queue not None, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t now_ms, int64_t max_block_ms):
        """Makes room for a record that the open batch did not take: closes it, perhaps moves the sticky partition on, opens another.

        The caller tries again afterwards; another thread may have been quicker.

        Args:
            queue: the record's topic.
            chosen: its partition, None for the sticky one.
            record_bytes: upper bound of the encoded record.
            now_ms: the time.
            max_block_ms: how long to wait for memory.

        Raises:
            RecordTooLarge, BufferFullError, ClosedError
        """
        cdef PartitionQueue target
        cdef Py_ssize_t nbytes
        if self._closed:
            raise ClosedError("the producer is closed", topic=queue.topic)
        if record_bytes > self.max_request_size:
            raise RecordTooLarge(
                f"a record of {record_bytes} bytes is larger than max_request_size ({self.max_request_size})", topic=queue.topic
            )
        target = self.make_room(queue, chosen, record_bytes, now_ms)
        if target is None:
            return
        nbytes = max(self.batch_size, record_bytes + BATCH_BYTES_MIN)
        buffer = self._allocate(queue, nbytes, now_ms, max_block_ms)
        self.open_batch(queue, chosen, target, buffer, nbytes, now_ms)

    cdef bint roll_kept(self, TopicQueue queue, PartitionQueue chosen, Py_ssize_t record_bytes, int64_t now_ms) except -1:
        """`roll` with a kept buffer; False when the general way is needed (which may begin anew)."""
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
        if target.open is not None:
            target.open.close_open()
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
        cdef ProducerBatch batch = ProducerBatch(target, buffer, nbytes, self.driver, now_ms)
        cdef bint usable = False
        if is_held(self._lock):
            with self._lock:
                usable = self.install(queue, chosen, target, batch)
        else:
            usable = self.install(queue, chosen, target, batch)
        if not usable:
            batch.drop_buffer()
            if not self.pool.give_kept(buffer, nbytes):
                self.pool.deallocate(buffer, nbytes)
        return 0

    cdef bint install(self, TopicQueue queue, PartitionQueue chosen, PartitionQueue target, ProducerBatch batch) except -1:
        if self._closed or target.open is not None or (chosen is None and queue.sticky is not target):
            return False
        self._incomplete[batch] = None
        target.batches.append(batch)
        target.open = batch
        self._active[target] = None
        return True

    cpdef begun(self, int64_t now_ms):
        """The first record of a new batch was written: only now is the batch seen by `ready`, and the Sender may have to get up."""
        if self.poll_until_ms > now_ms + self.linger_ms:
            self.wake(now_ms + self.linger_ms, False)

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
        """The driver's wait is over."""
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

    # ---- whoever drives the I/O

    def ready(self, snapshot, int64_t now_ms):
        """Looks at every partition that has batches.

        A batch may leave when it is full, has lingered, is followed by another, or when memory is short, a flush or close is under way;
        not while it backs off (a new leader ends that) and not while its partition is muted.
        """
        cdef Ready found = Ready.__new__(Ready)
        cdef bint hurry = self._flushes > 0 or self._closed or len(self.pool._waiters) > 0
        cdef int64_t next_check = LOOKING, next_expiry = LOOKING, left, waited
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef dict by_node = {}
        cdef list of_node
        found.nodes = set()
        found.unknown_leader_topics = set()
        for queue in list(self._active):
            if not len(queue.batches):
                self.forget_if_empty(queue)
                continue
            batch = <ProducerBatch> queue.batches[0]
            if batch.count == 0:
                if hurry:
                    self._discard_empty(batch)
                continue
            next_expiry = min(next_expiry, batch.created_ms + self.delivery_timeout_ms)
            queue.look_up(snapshot)
            if queue.leader < 0:
                found.unknown_leader_topics.add(queue.topic)
                continue
            if queue.muted:
                continue
            of_node = <list> by_node.get(queue.leader)
            if of_node is None:
                of_node = by_node[queue.leader] = []
            of_node.append(queue)
            if queue.leader in found.nodes:
                continue
            left = batch.backing_off_ms(now_ms)
            if left > 0:
                next_check = min(next_check, left)
                continue
            waited = now_ms - batch.created_ms
            if hurry or batch.closed or batch.attempts > 0 or waited >= self.linger_ms or len(queue.batches) > 1:
                found.nodes.add(queue.leader)
            else:
                next_check = min(next_check, self.linger_ms - waited)
        self._by_node = by_node
        self.next_expiry_ms = next_expiry
        found.next_check_ms = next_check
        return found

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
            batch.leader_epoch = queue.leader_epoch
            batch.drained_ms = now_ms
            size += batch.pos
            drained.append(batch)
        self._drain_start[node] = start + 1
        return drained

    cdef int take_first(self, PartitionQueue queue) except -1:
        queue.batches.popleft()
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
        cdef PooledBuffer buffer
        self._incomplete.pop(batch, None)
        if batch.released:
            return
        batch.released = True
        buffer = batch.drop_buffer()
        if not batch.is_split and not self.pool.give_kept(buffer, batch.reserved_bytes):
            self.pool.deallocate(buffer, batch.reserved_bytes)

    # ---- anyone

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
        if not self._active:
            return False
        for queue in list(self._active):
            if len(queue.batches):
                return True
        return False
