# A log's hot path: one batch to its end, one read from it. Compiled bases of broker/log/{segment,disk,log}.py, whose rules hold here.
#
#   SegmentCore       base of Segment: what every kind has, and what a read returns
#   DiskSegmentCore   base of DiskSegment: writes batches, indexes them, finds those written last
#   LogDirCore        base of LogDir: whether the directory still works
#   LogCore           base of Log: `append` and `read`, and the offsets
#
# Rule: what is rare (a new segment, a batch with a new timestamp, a segment that was opened at the start, an error) is asked of the Python
# half by its methods, so that there is one way to do it. Settings are copied from the configuration when that is set.

from cpython cimport array as c_array

from kafkacore.errors import KafkaStorage as _KafkaStorage, OffsetOutOfRange as _OffsetOutOfRange

cdef enum:
    RECENT_BATCHES = 2048                      # of the active segment, known exactly
    STAMP_BYTES = 16                           # base offset, length, leader epoch
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12

cdef int64_t MAX_RELATIVE = 0x7FFFFFFF         # an index entry holds offsets relative to the segment's base
cdef int64_t NOT_KNOWN = -1


cdef inline Py_ssize_t first_not_below(c_array.array sorted_values, int64_t value) noexcept:
    """bisect_left."""
    cdef const int64_t *p = <const int64_t *> sorted_values.data.as_voidptr
    cdef Py_ssize_t low = 0, high = len(sorted_values), middle
    while low < high:
        middle = (low + high) >> 1
        if p[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int64_t at(c_array.array values, Py_ssize_t row) noexcept:
    return (<const int64_t *> values.data.as_voidptr)[row]


cdef inline int push(c_array.array values, int64_t value) except -1:
    cdef Py_ssize_t n = len(values)
    c_array.resize_smart(values, n + 1)
    (<int64_t *> values.data.as_voidptr)[n] = value
    return 0


cdef class LogDirCore:
    """The compiled half of LogDir.

    Attributes:
        failure: why it is offline; None while it works.
        dirty: something was written since its checkpoints were.
    """

    cdef public object failure
    cdef public bint dirty


cdef class IndexCore:
    """The compiled half of SparseIndex: its entries, with absolute offsets."""

    cdef public int64_t base_offset
    cdef public c_array.array offsets
    cdef public c_array.array positions
    cdef public c_array.array timestamps
    cdef public c_array.array time_offsets
    cdef public bint changed

    cpdef add(self, int64_t last_offset, int64_t position, int64_t largest_timestamp_ms, int64_t largest_offset):
        """An entry for the batch at a position, and one for the newest batch so far."""
        push(self.offsets, last_offset)
        push(self.positions, position)
        self.add_time(largest_timestamp_ms, largest_offset)
        self.changed = True

    cpdef add_time(self, int64_t timestamp_ms, int64_t offset):
        """A time entry, unless the last one says as much."""
        cdef Py_ssize_t n = len(self.timestamps)
        if timestamp_ms > (at(self.timestamps, n - 1) if n else -1):
            push(self.timestamps, timestamp_ms)
            push(self.time_offsets, offset)
            self.changed = True

    cpdef bint is_full(self, int64_t max_bytes):
        """Whether segment.index.bytes has no room for a further entry; the time index keeps one for when the segment ends."""
        return len(self.offsets) >= max_bytes // OFFSET_ENTRY_BYTES or len(self.timestamps) >= max_bytes // TIME_ENTRY_BYTES - 1


cdef class SegmentCore:
    """The compiled half of Segment."""

    cdef public int64_t base_offset
    cdef public int64_t size
    cdef public int64_t created_ms
    cdef public int64_t written_ms
    cdef public object rolling_ms
    cdef public list aborted

    cpdef bint has_room(self, Py_ssize_t nbytes) except -1:
        raise NotImplementedError

    cpdef bint index_is_full(self, int64_t max_bytes) except -1:
        """Whether segment.index.bytes leaves no room for another entry."""
        return False

    cpdef int64_t position_of(self, int64_t offset) except -1:
        raise NotImplementedError

    cpdef int64_t whole_batches(self, int64_t start, int64_t end, int64_t max_bytes) except -1:
        raise NotImplementedError

    cpdef slice(self, int64_t start, int64_t end):
        raise NotImplementedError

    cpdef note(self, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp_ms):
        raise NotImplementedError

    cpdef tuple read(self, int64_t offset, upper_offset, int64_t max_bytes, bint at_least_one):
        """Whole batches from the one containing `offset`, below `upper_offset`, within max_bytes (but for the first, if asked).

        Args:
            offset: the first offset wanted.
            upper_offset: None to read to the segment's end.
            max_bytes: of the answer.
            at_least_one: the first batch comes even if it is larger.

        Returns:
            The batches, None for none, and whether they reach to the end of this segment.
        """
        cdef int64_t start = self.position_of(offset), end, stop
        end = self.size if upper_offset is None else self.position_of(upper_offset)
        if start >= end:
            return None, start >= self.size
        stop = end
        if end - start > max_bytes:
            stop = self.whole_batches(start, end, max_bytes)
            if stop == start:
                if not at_least_one:
                    return None, False
                stop = start + next(self.spans(start)).size_bytes
        return self.slice(start, stop), stop == self.size


cdef class DiskSegmentCore(SegmentCore):
    """The compiled half of DiskSegment. Subclasses give `file`, `index`, `write`, `_position_before_recent` and `_whole_batches_by_index`."""

    cdef public SharedFile _file
    cdef public IndexCore _index
    cdef public int64_t _index_interval_bytes
    cdef public int64_t _bytes_since_entry
    cdef public c_array.array _recent_offsets
    cdef public c_array.array _recent_positions
    cdef int64_t largest_ms
    cdef int64_t largest_offset
    cdef bint largest_known

    @property
    def _largest(self):
        """The largest timestamp and the last offset of the first batch that has it, -1 for both in an empty segment; None: not known yet."""
        return (self.largest_ms, self.largest_offset) if self.largest_known else None

    @_largest.setter
    def _largest(self, value):
        self.largest_known = value is not None
        if value is not None:
            self.largest_ms, self.largest_offset = value

    cpdef bint has_room(self, Py_ssize_t nbytes) except -1:
        return True

    cpdef bint index_is_full(self, int64_t max_bytes) except -1:
        cdef IndexCore index = self._index if self._index is not None else self.index
        return index.is_full(max_bytes)

    cpdef int64_t write_batch(self, Batch batch, int64_t base_offset, int32_t leader_epoch) except -1:
        """Adds a batch at the end as it came, but for the two fields that no CRC covers.

        Returns:
            Its position.

        Raises:
            OSError: it is not written, not even partly.
        """
        cdef uint8_t stamp[STAMP_BYTES]
        cdef iovec iov[2]
        cdef int64_t position = self.size
        kc_put64(stamp, base_offset)
        kc_put32(stamp + 8, <int32_t> (batch.size_bytes - 12))
        kc_put32(stamp + 12, leader_epoch)
        if self._file is not None and self._file.fd >= 0 and not self._file.closing and batch.size_bytes <= WRITE_NOGIL_BYTES:
            iov[0].iov_base = stamp
            iov[0].iov_len = STAMP_BYTES
            iov[1].iov_base = <void *> (batch.p + STAMP_BYTES)
            iov[1].iov_len = <size_t> (batch.size_bytes - STAMP_BYTES)
            if kc_pwritev(self._file.fd, iov, 2, position) == batch.size_bytes:
                self.size = position + batch.size_bytes
                return position
        # Refused, interrupted or only a part: the long way writes it again, and says why not.
        return self.write((PyBytes_FromStringAndSize(<char *> stamp, STAMP_BYTES), batch.buffer[STAMP_BYTES:]), batch.size_bytes)

    cpdef note(self, int64_t position, int64_t size_bytes, int64_t last_offset, int64_t max_timestamp_ms):
        """Indexes a batch that was written."""
        cdef Py_ssize_t n
        cdef int64_t *offsets
        cdef int64_t *positions
        if self._index is None or not self.largest_known:
            raise IllegalStateError("the segment was not prepared to be appended to")
        if max_timestamp_ms > self.largest_ms or self.largest_offset < 0:
            self.largest_ms = max_timestamp_ms
            self.largest_offset = last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._index.add(last_offset, position, self.largest_ms, self.largest_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        push(self._recent_offsets, last_offset)
        push(self._recent_positions, position)
        n = len(self._recent_offsets)
        if n > RECENT_BATCHES:
            offsets = <int64_t *> self._recent_offsets.data.as_voidptr
            positions = <int64_t *> self._recent_positions.data.as_voidptr
            n -= RECENT_BATCHES // 2
            memmove(offsets, offsets + RECENT_BATCHES // 2, <size_t> n * sizeof(int64_t))
            memmove(positions, positions + RECENT_BATCHES // 2, <size_t> n * sizeof(int64_t))
            c_array.resize(self._recent_offsets, n)
            c_array.resize(self._recent_positions, n)

    cpdef int64_t position_of(self, int64_t offset) except -1:
        """Where the first batch lies whose last offset is at least this; the segment's size if there is none."""
        cdef Py_ssize_t row, n = len(self._recent_offsets)
        if n and offset > at(self._recent_offsets, 0):
            row = first_not_below(self._recent_offsets, offset)
            return at(self._recent_positions, row) if row < n else self.size
        return self._position_before_recent(offset)

    cpdef int64_t whole_batches(self, int64_t start, int64_t end, int64_t max_bytes) except -1:
        """Where a read of at most max_bytes from `start` ends, short of `end`: between two batches, `start` itself if none fits."""
        if len(self._recent_positions) and start >= at(self._recent_positions, 0):
            return at(self._recent_positions, first_not_below(self._recent_positions, start + max_bytes + 1) - 1)
        return self._whole_batches_by_index(start, end, max_bytes)

    cpdef slice(self, int64_t start, int64_t end):
        """The bytes from start to end, to be sent."""
        return FileSlice(self._file if self._file is not None else self.file, start, end - start)


cdef class LogCore:
    """The compiled half of Log. Subclasses give `_segment_for`, `begin_epoch`, `_stamped` and `_replay_producer`.

    Attributes:
        config: the topic's settings; may be replaced while the log is in use.
        storage: where the segments are kept.
    """

    cdef public int64_t start_offset
    cdef public int64_t end_offset
    cdef public int64_t recovery_point
    cdef public int64_t truncations
    cdef public list segments
    cdef public list epochs                    # (leader epoch, its first offset), ascending in both
    cdef public object producers
    cdef public int64_t _jitter_ms
    cdef object settings
    cdef object keeper
    cdef LogDirCore log_dir                    # None: memory
    cdef int64_t segment_bytes
    cdef int64_t max_segment_ms
    cdef int64_t segment_index_bytes
    cdef int64_t flush_messages
    cdef bint flushes_by_time

    @property
    def config(self):
        return self.settings

    @config.setter
    def config(self, config):
        self.settings = config
        self.segment_bytes = config.segment_bytes
        self.max_segment_ms = config.max_segment_ms
        self.segment_index_bytes = config.segment_index_bytes
        self.flush_messages = config.flush_messages
        self.flushes_by_time = config.flush_ms != INT64_MAX

    @property
    def storage(self):
        return self.keeper

    @storage.setter
    def storage(self, storage):
        self.keeper = storage
        self.log_dir = getattr(storage, "log_dir", None)

    cpdef bint _fits(self, SegmentCore segment, int64_t nbytes, int64_t max_timestamp_ms, int64_t last_offset, int64_t wall_ms) except -1:
        """Whether a batch may go into a segment."""
        return (
            segment.size + nbytes <= self.segment_bytes
            and segment.has_room(nbytes)
            and last_offset - segment.base_offset <= MAX_RELATIVE
            and not (segment.size and self.is_due(segment, max_timestamp_ms, wall_ms))
            and not segment.index_is_full(self.segment_index_bytes)
        )

    cdef bint is_due(self, SegmentCore segment, int64_t max_timestamp_ms, int64_t wall_ms) except -1:
        """Whether segment.ms has passed: by the records' own time, or by the clock where they have none."""
        cdef int64_t first_ms = NOT_KNOWN
        if segment.rolling_ms is not None:
            first_ms = segment.rolling_ms
        if first_ms < 0:
            found = segment.rolling_timestamp()
            if found is not None:
                first_ms = found
        # Timestamps are a peer's: the difference of two may not fit, and a float says as well which is larger.
        if first_ms < 0:
            return <double> wall_ms - <double> segment.created_ms > self.max_segment_ms - self._jitter_ms
        return <double> max_timestamp_ms - <double> first_ms > self.max_segment_ms - self._jitter_ms

    def append(self, Batch batch not None, int32_t leader_epoch, append_time_ms=None, *, max_timestamp_ms=None, int64_t wall_ms=NOT_KNOWN):
        """Adds a checked batch at the end, as the partition's leader.

        Args:
            batch: from `validate`.
            leader_epoch: of the partition's leader now.
            append_time_ms: the wall time for LogAppendTime topics, None to keep the producer's timestamps.
            max_timestamp_ms: from `validate`; the header's if left out.
            wall_ms: the time now, which retention goes by where records have no timestamps.

        Returns:
            The offset of its first record.

        Raises:
            KafkaStorage: it could not be written; nothing of it is in the log.
        """
        cdef int64_t base_offset = self.end_offset, header_ms = batch.max_timestamp_ms, largest_ms = header_ms, position, last_offset
        cdef Py_ssize_t size = batch.size_bytes
        cdef SegmentCore segment = None
        cdef DiskSegmentCore on_disk
        if append_time_ms is not None:
            largest_ms = append_time_ms
        elif max_timestamp_ms is not None:
            largest_ms = max_timestamp_ms
        last_offset = base_offset + batch.last_offset - batch.base_offset
        if self.segments and (self.log_dir is None or self.log_dir.failure is None):
            segment = self.segments[len(self.segments) - 1]
            try:
                if not self._fits(segment, size, largest_ms, last_offset, wall_ms):
                    segment = None
            except OSError as error:                          # of reading: a segment that was opened is asked when it began
                raise self.keeper.failed(error) from error
        if segment is None:
            segment = self._segment_for(size, largest_ms, last_offset, wall_ms)
        if not self.epochs or <int64_t> self.epochs[len(self.epochs) - 1][0] < leader_epoch:
            self.begin_epoch(leader_epoch)
        try:
            if append_time_ms is None and largest_ms == header_ms and batch.timestamp_type == 0 and isinstance(segment, DiskSegmentCore):
                on_disk = segment
                position = on_disk.write_batch(batch, base_offset, leader_epoch)
            else:
                position = segment.write(self._stamped(batch, base_offset, leader_epoch, largest_ms, append_time_ms), size)
        except OSError as error:
            raise self.keeper.failed(error) from error
        segment.note(position, size, last_offset, largest_ms)
        if segment.rolling_ms is None:
            segment.rolling_ms = largest_ms
        segment.written_ms = wall_ms
        self.end_offset = last_offset + 1
        if batch.producer_id >= 0:
            self._replay_producer(batch, base_offset, largest_ms)
        self.grown()
        return base_offset

    cpdef grown(self):
        """The log has grown; by flush.messages or flush.ms that may ask for more."""
        if self.log_dir is None or self.flushes_by_time or self.end_offset - self.recovery_point >= self.flush_messages:
            self.keeper.appended(self)
        else:
            self.log_dir.dirty = True

    cpdef Py_ssize_t _segment_row(self, int64_t offset) except -1:
        """Which segment holds an offset."""
        cdef Py_ssize_t low = 0, high = len(self.segments), middle
        cdef SegmentCore segment
        if high:
            segment = self.segments[high - 1]
            if offset >= segment.base_offset:
                return high - 1
        while low < high:
            middle = (low + high) >> 1
            segment = self.segments[middle]
            if segment.base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def read(self, int64_t offset, int64_t max_bytes, int64_t upper_offset, bint at_least_one):
        """Batches as they lie in the log.

        Args:
            offset: the first record wanted; its whole batch is returned.
            max_bytes: bytes of the answer.
            upper_offset: batches from here on are not returned.
            at_least_one: the first batch is returned even if it is larger than max_bytes (KIP-74).

        Returns:
            One view or slice per segment touched; [] where there is nothing to read.

        Raises:
            OffsetOutOfRange: offset lies outside start_offset..end_offset.
            KafkaStorage: the file could not be read.
        """
        cdef list pieces = []
        cdef SegmentCore segment, following
        cdef Py_ssize_t row, count = len(self.segments)
        cdef bint whole, to_its_end
        if not self.start_offset <= offset <= self.end_offset:
            raise _OffsetOutOfRange(f"the log holds offsets {self.start_offset} to {self.end_offset}", offset=offset)
        if offset >= upper_offset or not count:
            return pieces
        if self.log_dir is not None and self.log_dir.failure is not None:
            self.keeper.check()
        try:
            for row in range(self._segment_row(offset), count):
                segment = self.segments[row]
                whole = False
                if row + 1 < count:
                    following = self.segments[row + 1]
                    whole = following.base_offset <= upper_offset
                piece, to_its_end = segment.read(
                    offset, None if whole or upper_offset >= self.end_offset else upper_offset, max_bytes, at_least_one and not pieces
                )
                if piece is not None:
                    pieces.append(piece)
                    max_bytes -= piece.nbytes
                if not to_its_end or (pieces and max_bytes <= 0):
                    break                                     # after a stop within this segment, batches of the next would leave a gap
        except OSError as error:
            raise self.keeper.failed(error) from error
        return pieces

    def has_aborted(self, int64_t offset):
        """Whether any transaction was aborted in the segments from the one that holds an offset on."""
        cdef SegmentCore segment
        cdef Py_ssize_t row
        for row in range(self._segment_row(offset), len(self.segments)):
            segment = self.segments[row]
            if segment.aborted:
                return True
        return False
