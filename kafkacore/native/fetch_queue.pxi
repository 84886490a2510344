# Answers that wait for their turn, and the ordinary way of a partition around them: placed again behind an answer, answered, handed out.
#
# consumer/fetcher.py has the rules, and the general way of everything here that is not plain. Each short cut looks whether a partition is plain,
# and leaves it to the general way when it is not; both change the same books, which are kept here. No Python code runs in a short cut but
# codecs, so a signal finds the books in order.
#
# The queue is a list through the fetches themselves, oldest first: it owns a reference to each. One that waits is in `held` of its state, too.

from kafkacore.bounds import ROWS_PER_CALL as _ROWS_PER_CALL
from kafkacore.errors import RecordTooLarge

cdef enum:
    MOST_HELD = 2                          # answers held for a partition: one being read, one behind it
    TELLING_OFFSETS = 100                  # the first batch comes whole: an answer with fewer offsets looks larger than it is


@cython.final
cdef class FetchQueue:
    """What a fetcher holds, and which partitions it has to look at.

    Args:
        metrics: the fetcher's counters.
        max_bytes: how much is held before nothing more is fetched ahead.
        max_partition_bytes: of one partition in one answer.
        check_crcs: check every batch against its CRC-32C.
        max_decompressed_bytes: the most bytes that one batch may hold uncompressed; once a call has unpacked as many, it hands out what it
            has, and the rest stays packed.

    Attributes:
        current: the fetch being read.
        parked: fetches whose turn came while their partition was paused or had no position.
        later: fetches set aside until the end of a call.
        stale: per broker the partitions to be placed before it is asked again.
        held_bytes: of records.
        runs_ahead: whether partitions of which something is held are fetched.
        offset_bytes: per topic the bytes of an offset, by the last answer that was long enough.
        wants_fetch: something changed since the last fetches, so that another may find a partition to ask for.
        placed: how many partitions took the short cut of `place_again`.
        rows_per_call: of columns that one call hands out.
        calls: how many times it was said that what had been handed out is processed.
    """

    cdef readonly object metrics
    cdef readonly int64_t max_bytes
    cdef readonly int32_t max_partition_bytes
    cdef readonly bint check_crcs
    cdef readonly Py_ssize_t max_decompressed_bytes
    cdef public CompletedFetch current
    cdef readonly dict parked
    cdef readonly list later
    cdef readonly dict stale
    cdef readonly dict offset_bytes
    cdef readonly int64_t held_bytes
    cdef readonly bint runs_ahead
    cdef public bint wants_fetch
    cdef readonly int64_t placed
    cdef readonly int64_t calls
    cdef public int64_t rows_per_call
    cdef Budget budget                     # of the call that hands out now
    cdef int64_t unpacked                  # by the calls before
    cdef PyObject* first
    cdef PyObject* last
    cdef Py_ssize_t count

    def __cinit__(self, metrics, int64_t max_bytes, int32_t max_partition_bytes, bint check_crcs, Py_ssize_t max_decompressed_bytes):
        self.metrics = metrics
        self.max_bytes = max_bytes
        self.max_partition_bytes = max_partition_bytes
        self.check_crcs = check_crcs
        self.max_decompressed_bytes = max_decompressed_bytes
        self.offset_bytes = {}
        self.parked, self.later, self.stale = {}, [], {}
        self.runs_ahead = self.wants_fetch = True
        self.budget.nbytes = max_decompressed_bytes
        self.budget.rows = self.rows_per_call = _ROWS_PER_CALL

    def __dealloc__(self):
        self.unlink_all()

    # -- the queue

    def __len__(self):
        return self.count

    def __iter__(self):
        return iter(self._fetches())

    cdef list _fetches(self):
        cdef list found = []
        cdef PyObject* at = self.first
        while at is not NULL:
            found.append(<object>at)
            at = (<CompletedFetch><object>at).behind
        return found

    def head(self):
        """The fetch whose turn is next, None without one."""
        return None if self.first is NULL else <object>self.first

    cdef void unlink_all(self) noexcept:
        cdef PyObject* at = self.first
        cdef PyObject* behind
        self.first = self.last = NULL
        self.count = 0
        while at is not NULL:
            behind = (<CompletedFetch><object>at).behind
            (<CompletedFetch><object>at).before = (<CompletedFetch><object>at).behind = NULL
            (<CompletedFetch><object>at).queue = NULL
            plan_xdecref(at)
            at = behind

    cdef void link(self, CompletedFetch fetch, bint in_front) noexcept:
        cdef PyObject* made = <PyObject*>fetch
        if fetch.queue is not NULL:
            return
        fetch.queue = <PyObject*>self
        plan_incref(made)
        self.count += 1
        if self.first is NULL:
            self.first = self.last = made
        elif in_front:
            fetch.behind = self.first
            (<CompletedFetch><object>self.first).before = made
            self.first = made
        else:
            fetch.before = self.last
            (<CompletedFetch><object>self.last).behind = made
            self.last = made

    cdef void unlink(self, CompletedFetch fetch) noexcept:
        if fetch.queue != <PyObject*>self:
            return
        if fetch.before is NULL:
            self.first = fetch.behind
        else:
            (<CompletedFetch><object>fetch.before).behind = fetch.behind
        if fetch.behind is NULL:
            self.last = fetch.before
        else:
            (<CompletedFetch><object>fetch.behind).before = fetch.before
        fetch.before = fetch.behind = NULL
        fetch.queue = NULL
        self.count -= 1
        plan_xdecref(<PyObject*>fetch)

    def put_first(self, list fetches not None):
        """Queues fetches, which are held, in front of all others."""
        cdef CompletedFetch fetch
        for fetch in reversed(fetches):
            self.link(fetch, True)

    def park(self, CompletedFetch fetch not None):
        """Takes a fetch out of the queue until its partition is touched."""
        if fetch.reader is not None:
            fetch.reader.pack()
        self.parked.setdefault(fetch.state, []).append(fetch)
        self.unlink(fetch)

    def set_aside(self, CompletedFetch fetch not None):
        """Takes a fetch out of the queue until `put_back`: its turn comes with another call."""
        self.later.append(fetch)
        self.unlink(fetch)
        if self.current is fetch:
            self.current = None

    def put_back(self):
        """Queues what was set aside, in front of all others."""
        cdef CompletedFetch fetch
        cdef list later = self.later
        self.later = []
        self.put_first([fetch for fetch in later if fetch in fetch.state.held])

    def clear(self):
        """Holds nothing, and has nothing to look at."""
        self.unlink_all()
        self.current = None
        self.parked, self.later, self.stale = {}, [], {}
        self.held_bytes = 0
        self.runs_ahead = True

    def states_held(self):
        """The partitions of which something is held."""
        cdef CompletedFetch fetch
        return list(dict.fromkeys([*[fetch.state for fetch in self._fetches()], *self.parked, *[fetch.state for fetch in self.later]]))

    # -- partitions to look at

    def note_touched(self, touched not None):
        """Notes partitions that the application or metadata have changed.

        Args:
            touched: the partitions.

        Returns:
            Those of which something is held: a list.
        """
        cdef PartitionState state
        cdef list holding = []
        for each in touched:
            state = <PartitionState?>each
            self.note_at(state, state.node_id)
            if state.held:
                holding.append(state)
        return holding

    def note(self, PartitionState state not None, bint elsewhere=False):
        """What is to be fetched of a partition may have changed, perhaps also from whom (`elsewhere`)."""
        self.note_at(state, -1 if elsewhere else state.node_id)

    cdef int note_at(self, PartitionState state, int32_t node_id) except -1:
        cdef list stale = self.stale.get(node_id)
        if stale is None:
            stale = self.stale[node_id] = []
        elif state.noted_in is stale:
            return 0
        stale.append(state)
        state.noted_in = stale
        return 0

    cdef int run_ahead(self, bint yes) except -1:
        """Partitions of which something is held are fetched or not: a change for all of them, so half is free before it changes back."""
        self.runs_ahead = yes
        for state in self.states_held():
            self.note_at(<PartitionState>state, (<PartitionState>state).node_id)
        return 0

    cpdef hold(self, CompletedFetch fetch):
        """Holds an answer until its turn."""
        fetch.state.held.append(fetch)
        self.link(fetch, False)
        self.held_bytes += fetch.size_bytes
        self.note_at(fetch.state, fetch.state.node_id)
        if self.runs_ahead and self.held_bytes >= self.max_bytes:
            self.run_ahead(False)

    cpdef release(self, CompletedFetch fetch):
        """Holds an answer no longer: it was read to its end, or is not wanted."""
        cdef PartitionState state = fetch.state
        cdef list held = state.held
        if held and held[0] is fetch:
            del held[0]
        else:
            held.remove(fetch)
        if fetch is self.current:
            self.current = None
        if fetch.queue == <PyObject*>self:
            self.unlink(fetch)
        elif fetch in self.parked.get(state, ()):
            self.parked[state].remove(fetch)
            if not self.parked[state]:
                del self.parked[state]
        self.held_bytes -= fetch.size_bytes
        if held or not self.is_asked_for(state):
            self.note_at(state, state.node_id)
        self.wants_fetch = True
        if not self.runs_ahead and self.held_bytes <= self.max_bytes // 2:
            self.run_ahead(True)

    cdef bint is_asked_for(self, PartitionState state):
        """Whether the next fetch asks for what follows the position already, so that releasing what lay before it changes nothing."""
        cdef FetchRow row = state.row
        return (row is not None and row.wanted and row.wanted_by is state and row.offset == state.offset and state.fetch_end is None
                and row.rows.node_id == state.node_id and not row.rows.ended)

    def place_again(self, list states not None, Py_ssize_t start, snapshot, int64_t now_ms):
        """The short cut of `Fetcher._place`, for partitions of which nothing but position and held answers has changed since the general way.

        Args:
            states: the partitions, which stood in `stale`.
            start: the first that is to be placed.
            snapshot: the metadata of now.
            now_ms: time.

        Returns:
            The first partition that is left to the general way; how many there are when none is.
        """
        cdef PartitionState state
        cdef CompletedFetch last
        cdef FetchRow row
        cdef Py_ssize_t count, nth = max(start, 0)
        cdef int64_t offset
        while nth < len(states):
            state = <PartitionState?>states[nth]
            if state.noted_in is states:
                state.noted_in = None
            row = state.row
            if (state.placed_by is not snapshot or row is None or not row.listed or row.rows.ended or row.rows.node_id != state.node_id
                    or not state.assigned or state.state is not STATE_FETCHING or state.paused or state.retry_at_ms > now_ms
                    or state.preferred_replica >= 0 or state.leader_epoch < 0 or state.fetch_end is not None):
                break
            nth += 1
            self.placed += 1
            offset = state.offset
            count = len(state.held)
            if count:
                last = <CompletedFetch?>state.held[count - 1]
                if (not self.runs_ahead or count >= MOST_HELD or last.error_code or last.leader_epoch != state.leader_epoch
                        or (<CompletedFetch?>state.held[0]).at() != offset):
                    if row.wanted_by is state:
                        row.drop()
                    continue
                offset = last.end_offset
            row.want(row.topic_id, offset, self.max_partition_bytes, state.leader_epoch, state)
        return nth

    # -- answers

    def take_answers(self, list rows not None, partitions, Py_ssize_t start, bytes topic_id not None, bytes known_id not None,
                     int32_t node_id):
        """The short cut of `Fetcher._take_answer`, for partitions without error, of the assignment and the leader epoch of now.

        Args:
            rows: what was asked, for each of `partitions`.
            partitions: of one topic in an answer.
            start: the first that is to be taken.
            topic_id: what the answer calls the topic, b"" where it calls it by name.
            known_id: the id that the metadata have for the topic.
            node_id: who answered.

        Returns:
            The first partition that is left to the general way; how many there are when none is.
        """
        cdef FetchedPartitions fetched
        cdef FetchedPartition* part
        cdef FetchRow row
        cdef PartitionState state
        cdef PartitionReader reader
        cdef HeldBuffer region
        cdef Py_ssize_t nth = start, nbytes = 0
        cdef int64_t offset
        cdef double offset_bytes = 0
        if type(partitions) is not FetchedPartitions:
            return start
        fetched = partitions
        if len(rows) != fetched.count or start < 0:
            raise InternalError(f"{len(rows)} rows for {fetched.count} partitions from {start} on")
        region = hold_records(fetched.source)
        while nth < fetched.count:
            part = &fetched.parts[nth]
            row = <FetchRow?>rows[nth]
            offset = row.values[ROW_OFFSET]
            if not part.ordinary or type(row.owner) is not PartitionState:
                break
            state = <PartitionState>row.owner
            if not state.assigned or row.values[ROW_EPOCH] != state.leader_epoch:
                break
            if topic_id and offset == state.offset and topic_id is not state.topic_id and topic_id != state.topic_id:
                if topic_id != known_id and known_id != NO_TOPIC_ID:
                    break
                state.topic_id = topic_id
            if part.records_bytes > 0:
                reader = open_reader(part_of_region(region, part.records_at, part.records_bytes), state.tp[0], part.index, offset,
                                     self.check_crcs, self.max_decompressed_bytes)
                if reader.end_offset - offset >= TELLING_OFFSETS:
                    offset_bytes = <double>part.records_bytes / <double>(reader.end_offset - offset)
                self.hold(CompletedFetch(state, row, node_id, reader, 0, part.records_bytes))
                state.fetched_bytes += part.records_bytes
                nbytes += part.records_bytes
            state.high_watermark = part.high_watermark
            state.last_stable_offset = part.last_stable_offset
            state.log_start_offset = part.log_start_offset
            nth += 1
        if nbytes:
            self.metrics.bytes += nbytes
        if offset_bytes > 0:
            self.offset_bytes[row.tp[0]] = offset_bytes
        return nth

    # -- what the application works on

    def begin(self):
        """What was handed out so far is processed; a call begins."""
        self.calls += 1

    def begun(self, PartitionState state not None):
        """The position before the first record that was handed out since `begin`, None where none was."""
        return state.begun if state.begun_in == self.calls else None

    def work_on(self, PartitionState state not None, int64_t offset):
        """The application works on a partition from this offset on."""
        state.begun_in, state.begun = self.calls, offset

    cpdef count_out(self, PartitionState state, Py_ssize_t count):
        """Notes that so many records are handed out from the position on, which moves behind them next."""
        state.handed_records += count
        if state.begun_in != self.calls:
            state.begun_in, state.begun = self.calls, state.offset

    # -- handing out

    def open_call(self):
        """A call begins that hands out: it has a budget of its own."""
        self.unpacked = self.unpacked_bytes
        self.budget.nbytes = self.max_decompressed_bytes
        self.budget.rows = self.rows_per_call

    @property
    def unpacked_bytes(self):
        """What compressed batches have become in all calls so far."""
        return self.unpacked + self.max_decompressed_bytes - self.budget.nbytes

    @property
    def is_spent(self):
        """Whether a call that has something to hand out is to do so, and to leave the rest packed."""
        return self.budget.nbytes <= 0 or self.budget.rows <= 0

    def read_records(self, CompletedFetch fetch not None, Py_ssize_t limit):
        """The next records of a fetch, at most `limit`, within the budget of the call."""
        return fetch.reader.take(limit, &self.budget)

    def read_columns(self, CompletedFetch fetch not None):
        """The next columns of a fetch, within the budget of the call."""
        return fetch.reader.take_columns(&self.budget)

    cdef CompletedFetch turn(self):
        """The fetch whose turn it is, if it is plain: None leaves it to `Fetcher._next_fetch`."""
        cdef CompletedFetch fetch = self.current
        cdef PartitionState state
        if fetch is None:
            if self.first is NULL:
                return None
            fetch = <CompletedFetch><object>self.first
        state = fetch.state
        if (fetch.reader is None or not state.assigned or state.state is not STATE_FETCHING or state.paused
                or fetch.leader_epoch != state.leader_epoch or fetch.reader.next_offset != state.offset):
            return None
        return fetch

    def take(self, dict taken not None, Py_ssize_t left):
        """The short cut of `Fetcher.collect`: records of as many partitions as are plain, in the order of the queue.

        Args:
            taken: the records by partition; what is taken is added.
            left: how many records at most.

        Returns:
            How many were added.

        Raises:
            errors.KafkaError: as `Fetcher.collect`, about `current`.
        """
        cdef CompletedFetch fetch
        cdef list records, before
        cdef Py_ssize_t count = 0
        try:
            while count < left and (self.budget.nbytes > 0 or not taken):
                fetch = self.turn()
                if fetch is None:
                    break
                self.current = fetch
                records = fetch.reader.take(left - count, &self.budget)
                if records:
                    before = taken.get(fetch.state.tp)
                    taken[fetch.state.tp] = records if before is None else before + records
                    count += len(records)
                    self.count_out(fetch.state, len(records))
                self.advance(fetch, records)
        finally:
            self.metrics.records += count
        return count

    def take_columns(self, dict taken not None):
        """The short cut of `Fetcher.collect_columns`: columns of as many partitions as are plain, one of each; what lies behind is set aside.

        Args:
            taken: the columns by partition; what is taken is added.

        Raises:
            errors.KafkaError: as `Fetcher.collect_columns`, about `current`.
        """
        cdef CompletedFetch fetch
        cdef RecordColumns columns
        cdef Py_ssize_t count = 0
        try:
            while (self.budget.nbytes > 0 and self.budget.rows > 0) or not taken:
                fetch = self.turn()
                if fetch is None:
                    break
                if fetch.state.tp in taken:
                    self.set_aside(fetch)
                    continue
                self.current = fetch
                columns = fetch.reader.take_columns(&self.budget)
                if columns.store.count:
                    taken[fetch.state.tp] = columns
                    count += columns.store.count
                    self.count_out(fetch.state, columns.store.count)
                self.advance(fetch, ())
        finally:
            self.metrics.records += count

    cpdef advance(self, CompletedFetch fetch, records):
        """Moves the position to where the reader stands, behind `records`."""
        cdef PartitionReader reader = fetch.reader
        cdef PartitionState state = fetch.state
        cdef int32_t epoch = reader.leader_epoch
        if epoch != state.offset_epoch and epoch >= 0:
            state.enter_epoch(epoch, records)
        state.offset = reader.next_offset
        if reader.exhausted:
            self.release(fetch)
            if state.offset == fetch.fetch_offset:
                raise RecordTooLarge(
                    f"the batch at this position is larger than the {fetch.size_bytes} bytes fetched: raise max_partition_fetch_bytes",
                    topic=state.tp[0],
                    partition=state.tp[1],
                    offset=fetch.fetch_offset,
                )


cdef HeldBuffer part_of_region(HeldBuffer region, Py_ssize_t at, Py_ssize_t nbytes):
    """A part of a held buffer, which it keeps."""
    cdef HeldBuffer part = HeldBuffer.__new__(HeldBuffer)
    if not 0 <= at <= at + nbytes <= region.view.len:
        raise InternalError(f"{nbytes} bytes at {at} are no part of {region.view.len} bytes")
    part.view.buf = <char*>region.view.buf + at
    part.view.len = nbytes
    part.view.readonly = True
    part.source = region
    return part
