# What a consumer knows about a partition, and what it holds of it: looked at for every partition of every answer, so the numbers are C numbers.
# Which changes there may be is said in consumer/subscription.py, what they mean for fetching in consumer/fetcher.py.

from bisect import bisect_right as _bisect_right

cdef enum:
    EPOCHS_KEPT = 16

cdef object STATE_INITIALIZING = None
cdef object STATE_AWAIT_VALIDATION = None
cdef object STATE_FETCHING = None


def _bind_fetch_states(initializing, await_validation, fetching):
    """Gives this file the states it looks at; called once by kafkacore.consumer.subscription."""
    global STATE_INITIALIZING, STATE_AWAIT_VALIDATION, STATE_FETCHING
    STATE_INITIALIZING, STATE_AWAIT_VALIDATION, STATE_FETCHING = initializing, await_validation, fetching


@cython.final
cdef class PartitionState:
    """Everything the consumer knows about one assigned partition.

    Attributes:
        offset: the position: offset of the next record for the application, -1 while there is none.
        offset_epoch: leader epoch of the record before the position, -1 when unknown; what a truncation check compares.
        epochs: (offset, leader epoch): positions greater than the offset come after a record of that epoch, in ascending order. A rewind
            finds the epoch of its offset here.
        leader_epoch: leader epoch the position was last checked against, -1 when unknown. Only what was fetched with it is handed out.
        high_watermark, last_stable_offset, log_start_offset: the leader's last answer, -1 before the first.
        paused: the application asked for no records of it.
        reset: the strategy to find a position with while AWAIT_RESET.
        retry_at_ms: no fetch of this partition before this time.
        question: the lookup or validation whose answer it waits for, None when nothing is asked about it.
        unsettled_since_ms: since when it has not been FETCHING, -1 while it is or before a poll has seen it.
        topic_id: of the topic this position was fetched from; b"" until then, and always where topics are fetched by name.
        preferred_replica: the broker that the leader named as nearer (KIP-392), -1 for the leader itself.
        preferred_until_ms: when to ask the leader again.
        never_committed: the group's coordinator has no offset of it.
        fetch_end: offsets from here on are not wanted; None where there is no such end.
        assigned: False once another assignment has taken it away.
        held: the fetcher's: answers that are held for it, oldest first.
        node_id: the fetcher's: the broker that it was last to be fetched from, -1 before.
        row: the fetcher's: its place in the session with that broker, None before.
        placed_by: the fetcher's: the metadata by which it was placed there and nothing is out of the ordinary, None otherwise.
        fetched_bytes, handed_records: the fetcher's, for the metrics: what came, and what the application was given of it.
        begun: the queue's: where the records began that a call handed out last; it counts only as `FetchQueue.begun` says.
    """

    cdef readonly object tp
    cdef public object state
    cdef public int64_t offset
    cdef public int32_t offset_epoch
    cdef public int32_t leader_epoch
    cdef public int32_t node_id
    cdef public int32_t preferred_replica
    cdef public bint paused
    cdef public bint assigned
    cdef public bint never_committed
    cdef public int64_t retry_at_ms
    cdef public object fetch_end
    cdef public list held
    cdef public FetchRow row
    cdef public object placed_by
    cdef list noted_in                     # the list of stale partitions that it is in
    cdef public bytes topic_id
    cdef public int64_t high_watermark
    cdef public int64_t last_stable_offset
    cdef public int64_t log_start_offset
    cdef public int64_t fetched_bytes
    cdef public int64_t handed_records
    cdef readonly int64_t begun
    cdef int64_t begun_in                  # the call that `begun` is of
    cdef public list epochs
    cdef public object reset
    cdef public object question
    cdef public int64_t unsettled_since_ms
    cdef public int64_t preferred_until_ms

    def __cinit__(self, tp not None):
        self.tp = tp
        self.state = STATE_INITIALIZING
        self.offset = self.offset_epoch = self.leader_epoch = -1
        self.epochs = []
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.unsettled_since_ms = self.begun = self.begun_in = -1
        self.topic_id = b""
        self.preferred_replica = -1
        self.held = []
        self.node_id = -1

    @property
    def has_position(self):
        """True when `offset` is where the application continues (perhaps still to be validated)."""
        return self.state is STATE_FETCHING or self.state is STATE_AWAIT_VALIDATION

    def lag(self, bint read_committed):
        """Records between the position and the end the reader may see; None before the first fetch answer and while not FETCHING.

        A partition that awaits validation may have another leader, of whose end nothing is known.
        """
        cdef int64_t end = self.last_stable_offset if read_committed else self.high_watermark
        if end < 0 or self.state is not STATE_FETCHING:
            return None
        return max(0, end - self.offset)

    def epoch_before(self, int64_t offset):
        """Leader epoch of the record before an offset that was handed out, -1 when it is not known any more."""
        for begin, epoch in reversed(self.epochs):
            if begin < offset:
                return epoch
        return -1

    cpdef enter_epoch(self, int32_t epoch, records):
        """Notes that the position moves on behind a batch of another leader epoch than `offset_epoch`.

        Args:
            epoch: of the last batch.
            records: what is handed out of the batches from the position on; empty when their epochs do not matter one by one.
        """
        cdef Py_ssize_t at = 0, count = len(records)
        cdef int32_t known = self.offset_epoch, found
        cdef int64_t begin = self.offset
        while at < count:
            found = records[at].leader_epoch
            if found == epoch:
                break
            if found != known:
                self.epochs.append((begin, found))
                known = found
            at = max(at + 1, <Py_ssize_t>_bisect_right(records, found, at, key=_leader_epoch_of))
            begin = records[at - 1].offset + 1
        self.epochs.append((begin, epoch))
        if len(self.epochs) > EPOCHS_KEPT:
            del self.epochs[:len(self.epochs) - EPOCHS_KEPT]
        self.offset_epoch = epoch

    def __repr__(self):
        return f"<PartitionState {self.tp[0]}-{self.tp[1]}, {getattr(self.state, 'value', None)}, offset {self.offset}>"


def _leader_epoch_of(ConsumerRecord record not None):
    return record.context.leader_epoch


@cython.final
cdef class CompletedFetch:
    """One partition's part of an answer, waiting for its turn or being read.

    Args:
        state: of the partition when it was asked for; another object for the same partition means another assignment.
        row: what was asked for.
        node_id: who answered.
        reader: of the records, None when `error_code` is set.
        error_code: what the broker answered in place of records.
        size_bytes: bytes of records held.

    Attributes:
        fetch_offset, leader_epoch: what was asked for.
        end_offset: where a fetch behind this one begins.
    """

    cdef readonly PartitionState state
    cdef readonly PartitionReader reader
    cdef readonly int64_t fetch_offset
    cdef readonly int64_t end_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t node_id
    cdef readonly int error_code
    cdef readonly Py_ssize_t size_bytes
    cdef PyObject* queue                   # where it stands, and its neighbours there: see fetch_queue.pxi
    cdef PyObject* before
    cdef PyObject* behind

    def __cinit__(self, PartitionState state not None, FetchRow row not None, int32_t node_id, PartitionReader reader, int error_code,
                  Py_ssize_t size_bytes):
        self.state = state
        self.fetch_offset = self.end_offset = row.values[ROW_OFFSET]
        self.leader_epoch = <int32_t>row.values[ROW_EPOCH]
        if reader is not None:
            self.end_offset = reader.end_offset
        self.node_id = node_id
        self.reader = reader
        self.error_code = error_code
        self.size_bytes = size_bytes

    @property
    def position(self):
        """The position this fetch continues."""
        return self.at()

    cdef inline int64_t at(self) noexcept:
        return self.fetch_offset if self.reader is None else self.reader.next_offset
