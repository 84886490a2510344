# RecordColumns: many records as arrays. Per record 36 bytes of positions; keys, values and headers stay where they were fetched.

cdef extern from "batch.h" nogil:
    ctypedef struct kc_rows:
        int64_t* offsets
        int64_t* timestamps
        int32_t* key_starts
        int32_t* key_lengths
        int32_t* value_starts
        int32_t* value_lengths
        int32_t* header_starts
    void kc_gather(uint8_t** to, const uint8_t* base, const uint8_t* base_end, const int32_t* starts, const int32_t* lengths, int64_t n,
                   const uint8_t* first, int32_t* ends)

cdef enum:
    ROW_BYTES = 36


@cython.final
@cython.no_gc                             # as of all here: what it refers to does not refer to it, and a poll makes one for each partition
cdef class RowStore:
    """Growing arrays of one row per record, in one pooled block: int64 offsets and timestamps, then five int32 arrays."""
    cdef PooledBuffer memory
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef kc_rows rows

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Room for `more` rows; the caller has checked that number against the bytes it came from."""
        cdef Py_ssize_t capacity = self.count + more
        cdef PooledBuffer memory
        cdef kc_rows old = self.rows
        cdef uint8_t* p
        if self.memory is not None and capacity <= self.capacity:
            return 0
        capacity = max(capacity, 2 * self.capacity)
        memory = PooledBuffer(capacity * ROW_BYTES)
        p = memory.ptr
        self.rows.offsets = <int64_t*>p
        self.rows.timestamps = <int64_t*>(p + 8 * capacity)
        self.rows.key_starts = <int32_t*>(p + 16 * capacity)
        self.rows.key_lengths = <int32_t*>(p + 20 * capacity)
        self.rows.value_starts = <int32_t*>(p + 24 * capacity)
        self.rows.value_lengths = <int32_t*>(p + 28 * capacity)
        self.rows.header_starts = <int32_t*>(p + 32 * capacity)
        if self.count:
            memcpy(self.rows.offsets, old.offsets, 8 * self.count)
            memcpy(self.rows.timestamps, old.timestamps, 8 * self.count)
            memcpy(self.rows.key_starts, old.key_starts, 4 * self.count)
            memcpy(self.rows.key_lengths, old.key_lengths, 4 * self.count)
            memcpy(self.rows.value_starts, old.value_starts, 4 * self.count)
            memcpy(self.rows.value_lengths, old.value_lengths, 4 * self.count)
            memcpy(self.rows.header_starts, old.header_starts, 4 * self.count)
        self.memory = memory
        self.capacity = capacity
        return 0

    cdef object array(self, const void* start, str dtype):
        import numpy
        if self.memory is None:
            return numpy.empty(0, dtype)
        # read-only: reads trust these positions
        return numpy.frombuffer(PyMemoryView_FromObject(self.memory).toreadonly(), dtype, self.count, <const uint8_t*>start - self.memory.ptr)


@cython.final
@cython.no_gc
cdef class Segment:
    """Rows that share a region: from first_row to the next segment's."""
    cdef Py_ssize_t first_row
    cdef HeldBuffer region
    cdef int32_t leader_epoch
    cdef int timestamp_type


cdef class RecordColumns                   # declared below


@cython.final
cdef class ByteColumn:
    """The keys or values of RecordColumns: a lazy sequence of bytes or None.

    `column[i]` copies one item, `column.view(i)` is a memoryview of it in place, `column.to_pylist()` and slices copy many.
    """
    cdef RecordColumns of
    cdef const int32_t* start
    cdef const int32_t* length

    def __init__(self):
        raise TypeError("columns are made by RecordColumns")

    def __len__(self):
        return self.of.store.count

    cdef Py_ssize_t _row(self, Py_ssize_t i) except -1:
        if i < 0:
            i += self.of.store.count
        if i < 0 or i >= self.of.store.count:
            raise IndexError(f"row {i} of {self.of.store.count}")
        return i

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[row] for row in range(*i.indices(self.of.store.count))]
        cdef Py_ssize_t row = self._row(i)
        if self.length[row] < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*>self.of.segment_of(row).region.view.buf + self.start[row], self.length[row])

    def view(self, Py_ssize_t i):
        """Item i in place, as a memoryview that keeps the fetched bytes alive; None for null."""
        cdef Py_ssize_t row = self._row(i)
        if self.length[row] < 0:
            return None
        return self.of.segment_of(row).region.bytes_view()[self.start[row]:self.start[row] + self.length[row]]

    def to_pylist(self):
        """All items: a list of bytes and None."""
        cdef list out = []
        cdef Py_ssize_t row = 0
        cdef Py_ssize_t stop
        cdef const char* base
        cdef Py_ssize_t s
        for s in range(self.of.segment_count()):
            stop = self.of.segment_stop(s)
            base = <const char*>self.of.segment(s).region.view.buf
            while row < stop:
                out.append(None if self.length[row] < 0 else PyBytes_FromStringAndSize(base + self.start[row], self.length[row]))
                row += 1
        return out

    def __iter__(self):
        return iter(self.to_pylist())

    def __eq__(self, other):
        if isinstance(other, ByteColumn):
            return self.to_pylist() == other.to_pylist()
        return self.to_pylist() == other if isinstance(other, list) else NotImplemented

    __hash__ = None

    def __repr__(self):
        shown = [f"{item[:32]!r}..." if item is not None and len(item) > 32 else repr(item) for item in self[:3]]
        return f"<ByteColumn of {self.of.store.count} items: [{', '.join(shown)}{', ...' if self.of.store.count > 3 else ''}]>"

    @property
    def starts(self):
        """int32 array: where each item starts in its region (one region unless batches were compressed)."""
        return self.of.store.array(self.start, "int32")

    @property
    def lengths(self):
        """int32 array: bytes of each item, -1 for null."""
        return self.of.store.array(self.length, "int32")

    def to_arrow(self, bint view=False):
        """The column as an Array: binary (one compact copy), or binary_view over the fetched bytes."""
        return arrow_views(self) if view else arrow_binary(self)

    def __arrow_c_array__(self, requested_schema=None):
        """The column as two capsules, schema and array: binary_view over the fetched bytes, unless another type is requested."""
        return column_capsules(self, requested_schema)


@cython.final
@cython.no_gc
cdef class RecordColumns:
    """Records of one partition as columns; iterating it gives ConsumerRecords.

    Attributes:
        topic, partition: where they are from.
        offsets: int64 array.
        timestamps_ms: int64 array, epoch milliseconds.
        timestamp_types: int32 array, 0 for CreateTime, 1 for LogAppendTime; made when asked for.
        keys, values: each a `ByteColumn` over the fetched bytes.
        headers: list of one tuple of (str, bytes or None) per record.
        next_offset: the offset to go on from; beyond the last record where batches were skipped.
    """
    cdef RowStore store
    cdef Segment alone                     # the segment, while there is no more than one: most polls bring one of each partition
    cdef list segments                     # None until there are more
    cdef public object topic
    cdef public int32_t partition
    cdef readonly int64_t next_offset
    cdef object offsets_array
    cdef object timestamps_array

    def __cinit__(self):
        self.store = RowStore.__new__(RowStore)
        self.topic = ""
        self.partition = -1

    def __len__(self):
        return self.store.count

    cdef int add_segment(self, HeldBuffer region, int32_t leader_epoch, int timestamp_type) except -1:
        """Rows from now on lie in region. Adjacent batches of one region become one segment."""
        cdef Segment s = None
        cdef Py_ssize_t count = self.segment_count()
        if count:
            s = self.segment(count - 1)
            if s.region is region and s.leader_epoch == leader_epoch and s.timestamp_type == timestamp_type:
                return 0
        if s is None or s.first_row != self.store.count:
            s = Segment.__new__(Segment)
            s.first_row = self.store.count
            if count == 0:
                self.alone = s
            else:
                if self.segments is None:
                    self.segments = [self.alone]
                self.segments.append(s)
        s.region = region                        # where nothing came of the one before, it is that
        s.leader_epoch = leader_epoch
        s.timestamp_type = timestamp_type
        return 0

    cdef inline Py_ssize_t segment_count(self) noexcept:
        return len(self.segments) if self.segments is not None else self.alone is not None

    cdef inline Segment segment(self, Py_ssize_t s):
        return self.alone if self.segments is None else <Segment>self.segments[s]

    cdef Py_ssize_t segment_stop(self, Py_ssize_t s) except -1:
        return self.segment(s + 1).first_row if s + 1 < self.segment_count() else self.store.count

    cdef Py_ssize_t segment_at(self, Py_ssize_t row) except -1:
        """Which segment holds a row."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.segment_count() - 1
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.segment(middle).first_row <= row:
                low = middle
            else:
                high = middle - 1
        return low

    cdef Segment segment_of(self, Py_ssize_t row):
        return self.segment(self.segment_at(row))

    @property
    def offsets(self):
        if self.offsets_array is None:
            self.offsets_array = self.store.array(self.store.rows.offsets, "int64")
        return self.offsets_array

    @property
    def timestamps_ms(self):
        if self.timestamps_array is None:
            self.timestamps_array = self.store.array(self.store.rows.timestamps, "int64")
        return self.timestamps_array

    @property
    def timestamp_types(self):
        import numpy
        cdef Py_ssize_t s
        types = numpy.empty(self.store.count, "int32")
        for s in range(self.segment_count()):
            types[self.segment(s).first_row:self.segment_stop(s)] = self.segment(s).timestamp_type
        return types

    @property
    def keys(self):
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        column.of = self
        column.start = self.store.rows.key_starts
        column.length = self.store.rows.key_lengths
        return column

    @property
    def values(self):
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        column.of = self
        column.start = self.store.rows.value_starts
        column.length = self.store.rows.value_lengths
        return column

    cdef tuple headers_of(self, Py_ssize_t row, HeldBuffer region):
        cdef const uint8_t* base = <const uint8_t*>region.view.buf
        if self.store.rows.header_starts[row] < 0:
            return ()
        return decode_headers(base + self.store.rows.header_starts[row], base + region.view.len)

    @property
    def headers(self):
        cdef Py_ssize_t row
        return [self.headers_of(row, self.segment_of(row).region) for row in range(self.store.count)]

    @property
    def has_headers(self):
        """Whether any record has a header."""
        cdef Py_ssize_t row
        for row in range(self.store.count):
            if self.store.rows.header_starts[row] >= 0:
                return True
        return False

    def headers_to_arrow(self, kind, bint none_is_null=False):
        """The headers as an Array, without an object per record.

        Args:
            kind: its type: a list of structs of a string and a binary.
            none_is_null: a record without headers is null, not an empty list.

        Raises:
            OverflowError: all keys or all values together take 2 GiB or more.
        """
        return arrow_headers(self, kind, none_is_null)

    def to_records(self):
        """The rows as a list of ConsumerRecords."""
        cdef list out = []
        cdef Py_ssize_t s
        for s in range(self.segment_count()):
            self.append_records(out, s, self.segment(s).first_row, self.segment_stop(s))
        return out

    cdef int append_records(self, list out, Py_ssize_t s, Py_ssize_t row, Py_ssize_t stop) except -1:
        cdef Segment segment = self.segment(s)
        cdef const uint8_t* base = <const uint8_t*>segment.region.view.buf
        cdef const uint8_t* end = base + segment.region.view.len
        cdef kc_rows* r = &self.store.rows
        cdef RecordContext context = record_context(self.topic, self.partition, segment.leader_epoch, segment.timestamp_type)
        cdef const uint8_t* headers
        while row < stop:
            headers = NULL
            if r.header_starts[row] >= 0:
                headers = base + r.header_starts[row]
            out.append(make_record(context, r.offsets[row], r.timestamps[row], base + r.key_starts[row], r.key_lengths[row],
                                   base + r.value_starts[row], r.value_lengths[row], headers, end))
            row += 1
        return 0

    def __iter__(self):
        return iter(self.to_records())

    def __getitem__(self, Py_ssize_t i):
        cdef list out = []
        if i < 0:
            i += self.store.count
        if i < 0 or i >= self.store.count:
            raise IndexError(f"row {i} of {self.store.count}")
        self.append_records(out, self.segment_at(i), i, i + 1)
        return out[0]

    def __repr__(self):
        return f"<RecordColumns {self.topic}-{self.partition}: {self.store.count} records, next offset {self.next_offset}>"

    def to_arrow(self, bint view=False):
        """The rows as a pyarrow.RecordBatch.

        Args:
            view: False copies keys and values once into compact binary columns. True makes binary_view columns over the fetched
                bytes: no copy, but the fetched bytes live as long as the batch.

        Returns:
            Columns key, value, topic, partition, offset, timestamp (ms, UTC), timestamp_type, headers.

        Raises:
            ImportError: pyarrow is not installed.
        """
        import pyarrow as pa
        return pa.record_batch(ArrowBatch(self, self.store.count, "view" if view else "binary", "view" if view else "binary", True))

    def __arrow_c_schema__(self):
        """The columns' types, as a capsule; Arrow's PyCapsule interface."""
        return arrow_schema_capsule(ArrowKinds("view", "view", True, None))

    def __arrow_c_array__(self, requested_schema=None):
        """The rows as two capsules, schema and struct array; keys and values are views of the fetched bytes.

        Args:
            requested_schema: a schema's capsule. Keys and values become binary, strings or views of either if it says so.

        Raises:
            SerializationError: strings are wanted, and a key or value is not UTF-8.
            OverflowError: keys, values or headers do not fit the type wanted: 2 GiB in one batch.
        """
        kinds = ArrowKinds("view", "view", True, requested_schema)
        return arrow_schema_capsule(kinds), arrow_array_capsule(self, self.store.count, kinds)

    def __arrow_c_stream__(self, requested_schema=None):
        """The rows as a stream of one batch, as a capsule; see `__arrow_c_array__`."""
        return arrow_stream([(self, self.store.count)], "view", "view", True, requested_schema)
