# Reading record batches: framing and checks per batch, then the loops of batch.h per record.
#
# Rules: a batch cut off at the end of the buffer ends the reading silently (that is how brokers answer a fetch); anything else that
# is wrong raises CorruptDataError with the byte offset where the batch starts. Records with an offset below the wanted one come
# with their batch and are left out. The header's record count must match what is there, and sizes nothing before it was checked.

from libc.stdint cimport INT64_MAX, INT64_MIN

from kafkacore.bounds import CONTROL_BATCH_BYTES as _CONTROL_BATCH_BYTES, KEPT_OPEN_BYTES as _KEPT_OPEN_BYTES, UNPACKED_BYTES as _UNPACKED_BYTES

cdef extern from "batch.h" nogil:
    ctypedef struct kc_record:
        int64_t ts_delta
        int32_t offset_delta
        int32_t key_len
        int32_t value_len
        const uint8_t* key
        const uint8_t* value
        const uint8_t* headers
    ctypedef struct kc_batch_reader:
        const uint8_t* p
        const uint8_t* end
        int32_t left
        int64_t base_offset
        int64_t base_ts
        int log_append_time
    int kc_read_record(const uint8_t** at, const uint8_t* end, kc_record* r)
    int64_t kc_wrap_add(int64_t a, int64_t b)
    int64_t kc_read_columns(kc_batch_reader* b, const uint8_t* base, int64_t start, const kc_rows* rows, int64_t row, int64_t max_rows,
                            int* error)
    ctypedef struct kc_record_facts:
        int64_t largest_ts
        int64_t smallest_ts
        int in_sequence
        int null_key
    void kc_scan_records(kc_batch_reader* b, kc_record_facts* facts, int* error)

cdef enum:
    BATCH_MIN_LENGTH = KC_BATCH_HEADER - 12
    MAGIC_AT = 16

cdef Py_ssize_t DEFAULT_MAX_DECOMPRESSED_BYTES = _UNPACKED_BYTES
cdef Py_ssize_t CONTROL_BATCH_BYTES = _CONTROL_BATCH_BYTES
cdef Py_ssize_t KEPT_OPEN_BYTES = _KEPT_OPEN_BYTES


cdef struct Budget:
    int64_t nbytes                         # that compressed batches may still unpack to; below 0 by the last batch that was opened
    int64_t rows                           # of columns

cdef tuple RECORD_ERRORS = ("", "is truncated", "has a length that does not fit", "has a key that leaves it", "has a value that leaves it",
                            "has headers that leave it", "is followed by bytes that the batch's record count does not account for")


cdef int bad_record(int error, int64_t base_offset, Py_ssize_t at) except -1:
    raise _CorruptDataError(f"batch at base offset {base_offset}: a record {RECORD_ERRORS[error]}", offset=at)


cdef HeldBuffer hold_records(object buffer):
    cdef HeldBuffer region = hold_buffer(buffer, PyBUF_SIMPLE)
    if region.view.len > INT32_MAX:
        raise ValueError(f"a buffer of {region.view.len} bytes: records are read from at most 2 GiB at once")
    return region


cdef inline bint is_v2(const uint8_t* p, Py_ssize_t total) noexcept nogil:
    """Whether a framed batch is read as one of magic 2. The memory may be the caller's and change after its check: then the length decides."""
    return p[MAGIC_AT] == 2 and total >= KC_BATCH_HEADER


cdef Py_ssize_t frame_at(const uint8_t* base, Py_ssize_t size, Py_ssize_t at, bint check_crc) except -2:
    """Bytes of the batch at base + at, its frame checked; -1 when the rest holds no complete batch."""
    cdef const uint8_t* p = base + at
    cdef Py_ssize_t left = size - at
    cdef int64_t length
    cdef int magic
    if left < MAGIC_AT + 1:
        return -1
    length = kc_get32(p + 8)
    magic = p[MAGIC_AT]
    if magic > 2:
        raise _CorruptDataError(f"batch has unknown magic {<int8_t>magic}", offset=at)
    if length < (BATCH_MIN_LENGTH if magic == 2 else LEGACY_MIN_SIZE):
        raise _CorruptDataError(f"batch of magic {magic} has length {length}", offset=at)
    if length + 12 > left:
        return -1
    if not is_v2(p, length + 12):
        if check_crc:
            legacy_check_crc(p, length, at)
        return length + 12
    if check_crc and kc_crc32c(0, p + 21, length + 12 - 21) != <uint32_t>kc_get32(p + 17):
        raise _CorruptDataError(f"batch at base offset {kc_get64(p)} has CRC {<uint32_t>kc_get32(p + 17):#010x}, "
                                f"its bytes have {kc_crc32c(0, p + 21, length + 12 - 21):#010x}", offset=at)
    if kc_get32(p + 57) < 0 or kc_get32(p + 23) < 0 or kc_get64(p) < 0 or kc_get64(p) >= INT64_MAX - kc_get32(p + 23):
        raise _CorruptDataError(f"batch at base offset {kc_get64(p)} has {kc_get32(p + 57)} records and last offset delta "
                                f"{kc_get32(p + 23)}", offset=at)
    return length + 12


cdef HeldBuffer open_batch(HeldBuffer region, const uint8_t* p, Py_ssize_t total, Py_ssize_t max_decompressed, kc_batch_reader* out):
    """Points out at the records of the framed v2 batch at p; returns the region they lie in."""
    cdef int16_t attributes = kc_get16(p + 21)
    cdef Py_ssize_t at = p - <const uint8_t*>region.view.buf
    out.left = kc_get32(p + 57)
    out.base_offset = kc_get64(p)
    out.log_append_time = (attributes & ATTR_LOG_APPEND_TIME) != 0
    out.base_ts = kc_get64(p + 35) if out.log_append_time else kc_get64(p + 27)
    out.p = p + KC_BATCH_HEADER
    out.end = p + total
    if attributes & ATTR_CODEC:
        if attributes & ATTR_CODEC > 4:
            raise _CorruptDataError(f"batch at base offset {out.base_offset} has unknown compression codec {attributes & ATTR_CODEC}",
                                    offset=at)
        if out.left or total > KC_BATCH_HEADER:        # an emptied batch (compaction) keeps its codec and has no bytes
            region = unpack(attributes & ATTR_CODEC, region.bytes_view()[at + KC_BATCH_HEADER:at + total], max_decompressed,
                            out.base_offset, at)
            out.p = <const uint8_t*>region.view.buf
            out.end = out.p + region.view.len
    if out.left > (out.end - out.p) // KC_MIN_RECORD:
        raise _CorruptDataError(f"batch at base offset {out.base_offset} declares {out.left} records in {out.end - out.p} bytes", offset=at)
    return region


cdef HeldBuffer unpack(int codec, object packed, Py_ssize_t max_decompressed, int64_t base_offset, Py_ssize_t at):
    cdef Py_ssize_t most = min(max_decompressed, <Py_ssize_t>INT32_MAX)
    try:
        return hold_records(_compress().decompress(codec, packed, most))
    except _CorruptDataError as error:
        raise _CorruptDataError(f"batch at base offset {base_offset}: {error}", offset=at) from error
    except _DecompressedTooLarge:
        raise _DecompressedTooLarge(f"the {_compress().NAMES[codec]} batch at offset {base_offset} has {len(packed)} bytes and holds more than "
                                    f"max_decompressed_bytes={most}; a larger max_decompressed_bytes reads it", offset=base_offset) from None


cdef Py_ssize_t read_objects(kc_batch_reader* b, int64_t start, RecordContext context, list out, Py_ssize_t limit, Py_ssize_t at) except -1:
    """Appends up to limit records with offset >= start to out; returns how many."""
    cdef kc_record r
    cdef int error
    cdef int64_t offset
    cdef Py_ssize_t n = 0
    while b.left > 0 and n < limit:
        error = kc_read_record(&b.p, b.end, &r)
        if error != KC_RECORD_OK:
            bad_record(error, b.base_offset, at)
        b.left -= 1
        offset = kc_wrap_add(b.base_offset, r.offset_delta)
        if offset < start:
            continue
        PyList_Append(out, make_record(context, offset, b.base_ts if b.log_append_time else kc_wrap_add(b.base_ts, r.ts_delta),
                                       r.key, r.key_len, r.value, r.value_len, r.headers, b.end))
        n += 1
    if b.left == 0 and b.p != b.end:
        bad_record(KC_RECORD_TRAILING, b.base_offset, at)
    return n


@cython.final
cdef class Batch:
    """One record batch (magic 2), or one message of an older message set (magic 0 and 1; a compressed set is one message).

    The header fields are read where they lie. `topic` and `partition` may be set: records get them.
    """
    cdef HeldBuffer region
    cdef const uint8_t* p
    cdef Py_ssize_t max_decompressed
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t size_bytes
    cdef public object topic
    cdef public int32_t partition

    def __init__(self):
        raise TypeError("batches are made by read_batches()")

    @property
    def magic(self):
        return self.p[MAGIC_AT]

    @property
    def base_offset(self):
        """First offset of the batch; for a message of magic 0 and 1 its own offset, a compressed set's first one."""
        if is_v2(self.p, self.size_bytes) or not self.p[MAGIC_AT + 1] & ATTR_CODEC:
            return kc_get64(self.p)
        columns = self.columns()
        return int(columns.offsets[0]) if len(columns) else kc_get64(self.p)

    @property
    def last_offset(self):
        return kc_wrap_add(kc_get64(self.p), kc_get32(self.p + 23)) if is_v2(self.p, self.size_bytes) else kc_get64(self.p)

    @property
    def next_offset(self):
        return self.last_offset + 1

    @property
    def leader_epoch(self):
        return kc_get32(self.p + 12) if is_v2(self.p, self.size_bytes) else -1

    @property
    def crc(self):
        return <uint32_t>kc_get32(self.p + (17 if is_v2(self.p, self.size_bytes) else 12))

    @property
    def attributes(self):
        return kc_get16(self.p + 21) if is_v2(self.p, self.size_bytes) else self.p[MAGIC_AT + 1]

    @property
    def compression(self):
        """Number of the codec, see `kafkacore.compress`."""
        return self.attributes & ATTR_CODEC

    @property
    def timestamp_type(self):
        """0 create time, 1 log append time, -1 none (magic 0)."""
        if self.p[MAGIC_AT] == 0:
            return -1
        return 1 if self.attributes & ATTR_LOG_APPEND_TIME else 0

    @property
    def is_transactional(self):
        return is_v2(self.p, self.size_bytes) and (kc_get16(self.p + 21) & ATTR_TRANSACTIONAL) != 0

    @property
    def is_control(self):
        return is_v2(self.p, self.size_bytes) and (kc_get16(self.p + 21) & ATTR_CONTROL) != 0

    @property
    def base_timestamp_ms(self):
        if is_v2(self.p, self.size_bytes):
            return kc_get64(self.p + 27)
        return kc_get64(self.p + 18) if self.p[MAGIC_AT] == 1 else -1

    @property
    def max_timestamp_ms(self):
        return kc_get64(self.p + 35) if is_v2(self.p, self.size_bytes) else self.base_timestamp_ms

    @property
    def producer_id(self):
        return kc_get64(self.p + 43) if is_v2(self.p, self.size_bytes) else -1

    @property
    def producer_epoch(self):
        return kc_get16(self.p + 51) if is_v2(self.p, self.size_bytes) else -1

    @property
    def base_sequence(self):
        return kc_get32(self.p + 53) if is_v2(self.p, self.size_bytes) else -1

    @property
    def last_sequence(self):
        """Sequence of the last record, wrapped at 2**31; -1 for none."""
        if not is_v2(self.p, self.size_bytes) or kc_get32(self.p + 53) < 0:
            return -1
        return (<int64_t>kc_get32(self.p + 53) + kc_get32(self.p + 23)) & 0x7fffffff

    @property
    def record_count(self):
        """Records, as the header counts them."""
        if is_v2(self.p, self.size_bytes):
            return kc_get32(self.p + 57)
        return len(self.columns()) if self.p[MAGIC_AT + 1] & ATTR_CODEC else 1

    @property
    def buffer(self):
        """The whole batch, as a memoryview that keeps its memory alive."""
        return self.region.bytes_view()[self.position:self.position + self.size_bytes]

    @property
    def control_type(self):
        """0 abort, 1 commit, other numbers for other control records; None for a batch that is not a control batch."""
        if not self.is_control:
            return None
        return control_type_of(self.region, self.p, self.size_bytes, self.max_decompressed)

    def records(self, topic=None, partition=None, start_offset=None):
        """The records as objects.

        Args:
            topic, partition: what the records shall tell; None for the batch's own.
            start_offset: records before it are left out.

        Raises:
            CorruptDataError: the records are broken.
            DecompressedTooLarge: they have more bytes than `read_batches` was given as max_decompressed_bytes.
        """
        cdef kc_batch_reader b
        cdef RecordContext context
        cdef list out = []
        cdef HeldBuffer region
        if not is_v2(self.p, self.size_bytes):
            return self.columns(start_offset, topic=topic, partition=partition).to_records()
        region = open_batch(self.region, self.p, self.size_bytes, self.max_decompressed, &b)   # the name keeps b's pointers good
        context = record_context(self.topic if topic is None else topic, self.partition if partition is None else partition,
                                 kc_get32(self.p + 12), b.log_append_time)
        read_objects(&b, INT64_MIN if start_offset is None else start_offset, context, out, 0x7fffffff, self.position)
        return out

    def columns(self, start_offset=None, *, topic=None, partition=None):
        """The records as columns.

        Args:
            start_offset: records before it are left out.
            topic, partition: what the columns shall tell; None for the batch's own.

        Raises:
            CorruptDataError: the records are broken.
            DecompressedTooLarge: they have more bytes than `read_batches` was given as max_decompressed_bytes.
        """
        cdef RecordColumns columns = RecordColumns.__new__(RecordColumns)
        cdef kc_batch_reader b
        cdef HeldBuffer region
        cdef int error = 0
        columns.topic = self.topic if topic is None else topic
        columns.partition = self.partition if partition is None else partition
        columns.next_offset = kc_wrap_add(self.last_offset, 1)
        cdef int64_t start = INT64_MIN if start_offset is None else start_offset
        if not is_v2(self.p, self.size_bytes):
            legacy_read(columns, self.region, self.position, self.size_bytes, start, self.max_decompressed)
            return columns
        region = open_batch(self.region, self.p, self.size_bytes, self.max_decompressed, &b)
        columns.add_segment(region, kc_get32(self.p + 12), b.log_append_time)
        columns.store.reserve(b.left)
        columns.store.count = kc_read_columns(&b, <const uint8_t*>region.view.buf, start, &columns.store.rows, 0, b.left, &error)
        if error:
            bad_record(error, b.base_offset, self.position)
        return columns

    def scan(self):
        """Reads all records of a v2 batch without keeping them: what a broker checks before it stores a batch.

        Returns:
            The largest timestamp (INT64_MIN without records) and the smallest one (INT64_MAX), whether the offsets count up by one from the
            base offset, and whether there is a record without a key.

        Raises:
            CorruptDataError: the records are broken, or not as many as the header says.
            ValueError: the batch is a message of magic 0 or 1.
        """
        cdef kc_batch_reader b
        cdef kc_record_facts facts
        cdef int error = 0
        if not is_v2(self.p, self.size_bytes):
            raise ValueError(f"a message of magic {self.p[MAGIC_AT]} is read by columns()")
        cdef HeldBuffer region = open_batch(self.region, self.p, self.size_bytes, self.max_decompressed, &b)
        kc_scan_records(&b, &facts, &error)
        if error:
            bad_record(error, b.base_offset, self.position)
        return facts.largest_ts, facts.smallest_ts, facts.in_sequence != 0, facts.null_key != 0

    def __repr__(self):
        return (f"<Batch magic {self.magic}, offsets {kc_get64(self.p)} to {self.last_offset}, {self.size_bytes} bytes"
                f"{', control' if self.is_control else ''}>")


cdef int control_type_of(HeldBuffer region, const uint8_t* p, Py_ssize_t total, Py_ssize_t max_decompressed) except -2:
    """Type of the first control record: key = version int16, type int16."""
    cdef kc_batch_reader b
    cdef kc_record r
    cdef HeldBuffer opened
    cdef int error
    try:
        opened = open_batch(region, p, total, min(max_decompressed, CONTROL_BATCH_BYTES), &b)
    except _DecompressedTooLarge:
        raise _CorruptDataError(f"control batch at base offset {kc_get64(p)} holds more than {CONTROL_BATCH_BYTES} bytes",
                                offset=p - <const uint8_t*>region.view.buf) from None
    error = KC_RECORD_TRUNCATED if b.left < 1 else kc_read_record(&b.p, b.end, &r)
    if error != KC_RECORD_OK or r.key_len < 4:
        raise _CorruptDataError(f"control batch at base offset {b.base_offset} has no control record",
                                offset=p - <const uint8_t*>region.view.buf)
    return kc_get16(r.key + 2)


def read_plain_batch(buffer not None, Py_ssize_t max_bytes):
    """The batch in one partition of a Produce request, if nothing about it needs a second look.

    Args:
        buffer: the partition's records.
        max_bytes: the largest batch.

    Returns:
        The batch, its largest and smallest timestamp, whether a record has no key. None if it is not one whole v2 batch of data with
        known codec, right CRC, base offset 0, readable records that the header counts rightly, and a possible producer: `validate` finds
        out then what is wrong, or whether it may pass all the same.
    """
    cdef HeldBuffer region = hold_records(buffer)
    cdef const uint8_t* p = <const uint8_t*>region.view.buf
    cdef Py_ssize_t size = region.view.len
    cdef kc_batch_reader b
    cdef kc_record_facts facts
    cdef int error = 0
    cdef int64_t producer_id
    cdef HeldBuffer opened
    cdef Batch batch
    if size < KC_BATCH_HEADER or size > max_bytes or p[MAGIC_AT] != 2 or <int64_t> kc_get32(p + 8) + 12 != size:
        return None
    producer_id = kc_get64(p + 43)
    if (kc_get64(p) != 0 or kc_get32(p + 57) < 1 or kc_get32(p + 23) != kc_get32(p + 57) - 1 or kc_get16(p + 21) & ATTR_CONTROL
            or kc_get16(p + 21) & ATTR_CODEC > 4 or (producer_id < 0 and (producer_id != -1 or kc_get16(p + 21) & ATTR_TRANSACTIONAL))
            or (producer_id >= 0 and (kc_get16(p + 51) < 0 or kc_get32(p + 53) < 0))
            or kc_crc32c(0, p + 21, size - 21) != <uint32_t> kc_get32(p + 17)):
        return None
    try:
        opened = open_batch(region, p, size, DEFAULT_MAX_DECOMPRESSED_BYTES, &b)
    except (_CorruptDataError, _DecompressedTooLarge):
        return None
    kc_scan_records(&b, &facts, &error)
    if error or (kc_get16(p + 21) & ATTR_CODEC and not facts.in_sequence):
        return None
    batch = Batch.__new__(Batch)
    batch.region = region
    batch.p = p
    batch.position = 0
    batch.size_bytes = size
    batch.topic = ""
    batch.partition = -1
    batch.max_decompressed = DEFAULT_MAX_DECOMPRESSED_BYTES
    return batch, facts.largest_ts, facts.smallest_ts, facts.null_key != 0


def transactional_header(batch not None):
    """Producer id, epoch and base sequence of the transactional batch at the start of some memory, otherwise unchecked; None if there is
    none."""
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *> view.buf
        if view.len < KC_BATCH_HEADER or p[MAGIC_AT] != 2 or not kc_get16(p + 21) & ATTR_TRANSACTIONAL:
            return None
        return kc_get64(p + 43), kc_get16(p + 51), kc_get32(p + 53)
    finally:
        PyBuffer_Release(&view)


def read_batches(buffer, bint check_crcs=True, *, Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Iterates over the batches in a buffer, as a fetch response or a log segment holds them.

    Args:
        buffer: bytes-like. The batches refer to it, nothing is copied.
        check_crcs: whether each batch's CRC is checked.
        max_decompressed_bytes: most bytes one batch may decompress to.

    Yields:
        Batch. A batch that the buffer cuts off ends the iteration.

    Raises:
        CorruptDataError: a batch is broken; its `offset` is the byte where the batch starts.
    """
    cdef HeldBuffer region = hold_records(buffer)
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t total
    cdef Batch batch
    while True:
        total = frame_at(<const uint8_t*>region.view.buf, region.view.len, at, check_crcs)
        if total < 0:
            return
        batch = Batch.__new__(Batch)
        batch.region = region
        batch.p = <const uint8_t*>region.view.buf + at
        batch.position = at
        batch.size_bytes = total
        batch.topic = ""
        batch.partition = -1
        batch.max_decompressed = max_decompressed_bytes
        at += total
        yield batch


@cython.final
@cython.no_gc                             # what it refers to does not refer to it: bytes, and exceptions only as text
cdef class PartitionReader:
    """Reads what a fetch returned for one partition, in portions, across its batches.

    Control batches are stepped over. Where aborted transactions are given (read_committed), their records are left out.
    When a batch is broken, the records before it are handed out first; the next call raises.

    Args:
        buffer: the fetched bytes.
        topic, partition: where they are from.
        start_offset: records before it are left out.
        check_crcs: whether each batch's CRC is checked.
        aborted: (producer id, first offset) of each aborted transaction, sorted by first offset.
        max_decompressed_bytes: most bytes one batch may decompress to.

    Attributes:
        next_offset: where to go on reading, after what was handed out and stepped over so far.
        end_offset: where to go on fetching: the offset after the last complete batch.
        leader_epoch: of the batch read or skipped last, -1 before the first.
        exhausted: nothing more is in the buffer.
    """
    cdef HeldBuffer region
    cdef HeldBuffer opened                    # where the records of the current batch lie
    cdef kc_batch_reader b
    cdef RecordContext context
    cdef RecordColumns legacy                 # rows of the current message set
    cdef Py_ssize_t legacy_row
    cdef Py_ssize_t at                        # the next batch
    cdef Py_ssize_t batch_at                  # the current one
    cdef Py_ssize_t end_at                    # where the complete batches end
    cdef int64_t batch_end                    # offset after the current batch
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t end_offset
    cdef list aborted
    cdef Py_ssize_t aborted_at
    cdef set aborted_ids
    cdef tuple failure                        # (type, message, topic, partition, offset) of the error every further call raises
    cdef Py_ssize_t max_decompressed
    cdef bint check_crcs
    cdef bint in_batch
    cdef bint reading                         # decompression lets other threads run
    cdef readonly bint exhausted
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int64_t next_offset

    def __init__(self, buffer, *, topic="", int32_t partition=-1, int64_t start_offset=0, bint check_crcs=True, aborted=None,
                 Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
        if self.region is not None:
            raise IllegalStateError("a PartitionReader reads one buffer")
        self._open(hold_records(buffer), topic, partition, start_offset, check_crcs, max_decompressed_bytes)
        self.aborted = [(producer_id, first) for producer_id, first in aborted] if aborted else None     # pairs: indexed without a check

    cdef int _open(self, HeldBuffer region, topic, int32_t partition, int64_t start_offset, bint check_crcs,
                   Py_ssize_t max_decompressed) except -1:
        self.region = region
        self.topic = topic
        self.partition = partition
        self.next_offset = start_offset
        self.check_crcs = check_crcs
        self.max_decompressed = max_decompressed
        self.leader_epoch = -1
        self._find_end()
        return 0

    cdef int _find_end(self) except -1:
        """Looks at the frames alone, to know where the next fetch begins and when the last batch is done."""
        cdef const uint8_t* base = <const uint8_t*>self.region.view.buf
        cdef Py_ssize_t size = self.region.view.len
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t last = -1
        cdef int64_t length
        while size - at > MAGIC_AT:
            length = kc_get32(base + at + 8)
            if base[at + MAGIC_AT] > 2 or length < (BATCH_MIN_LENGTH if base[at + MAGIC_AT] == 2 else LEGACY_MIN_SIZE):
                at = size            # broken: its turn is to say so
                break
            if length + 12 > size - at:
                break
            last = at
            at += length + 12
        self.end_offset = self.next_offset
        if last >= 0:
            self.end_offset = max(self.end_offset, kc_wrap_add(kc_get64(base + last), <int64_t>1 + (
                kc_get32(base + last + 23) if is_v2(base + last, at - last) else 0)))
        self.end_at = at
        return 0

    cdef bint _skip_batch(self, const uint8_t* p, Py_ssize_t total, int64_t last) except -1:
        """Whether a v2 batch holds nothing for the caller: a control batch, or part of an aborted transaction."""
        cdef int16_t attributes = kc_get16(p + 21)
        cdef object producer_id
        if self.aborted is not None and kc_get64(p + 43) >= 0:
            producer_id = kc_get64(p + 43)
            if self.aborted_ids is None:
                self.aborted_ids = set()
            while self.aborted_at < len(self.aborted) and self.aborted[self.aborted_at][1] <= last:
                self.aborted_ids.add(self.aborted[self.aborted_at][0])
                self.aborted_at += 1
            if attributes & ATTR_CONTROL:
                if producer_id in self.aborted_ids and control_type_of(self.region, p, total, self.max_decompressed) == 0:
                    self.aborted_ids.discard(producer_id)
            elif attributes & ATTR_TRANSACTIONAL and producer_id in self.aborted_ids:
                return True
        return (attributes & ATTR_CONTROL) != 0

    cdef bint _advance(self, Budget* budget) except -1:
        """Opens the next batch that has something to read; False at the end of the buffer."""
        cdef const uint8_t* base = <const uint8_t*>self.region.view.buf
        cdef const uint8_t* p
        cdef Py_ssize_t total
        cdef int64_t last
        while True:
            total = frame_at(base, self.region.view.len, self.at, self.check_crcs)
            if total < 0:
                self.exhausted = True
                return False
            p = base + self.at
            last = kc_wrap_add(kc_get64(p), kc_get32(p + 23)) if is_v2(p, total) else kc_get64(p)
            if last < self.next_offset and is_v2(p, total) and self.aborted is None:
                self.at += total
                continue
            if is_v2(p, total) and self._skip_batch(p, total, last):
                self.leader_epoch = kc_get32(p + 12)  # the position moves behind it, so its epoch counts
                self.at += total
                self.next_offset = max(self.next_offset, kc_wrap_add(last, 1))
                continue
            if is_v2(p, total):
                self.opened = None         # before the next one is unpacked
                self.opened = open_batch(self.region, p, total, self.max_decompressed, &self.b)
                self.leader_epoch = kc_get32(p + 12)
                if self.opened is not self.region:
                    budget.nbytes -= self.opened.view.len
            else:
                self.legacy = RecordColumns.__new__(RecordColumns)
                budget.nbytes -= legacy_read(self.legacy, self.region, self.at, total, self.next_offset, self.max_decompressed)
                self.legacy_row = 0
                self.b.left = 0
            self.in_batch = True
            self.batch_end = kc_wrap_add(last, 1)
            self.batch_at = self.at
            self.at += total
            return True

    cdef int _end_batch(self) except -1:
        self.in_batch = False
        self.legacy = None
        self.opened = None
        if self.batch_end > self.next_offset:
            self.next_offset = self.batch_end
        if self.at >= self.end_at:
            self.exhausted = True
        return 0

    cdef int _begin(self) except -1:
        if self.reading:
            raise IllegalStateError("a PartitionReader serves one thread at a time")
        if self.failure is not None:
            raise self._failure()
        self.reading = True
        return 0

    cdef int pack(self) except -1:
        """Lets go of what a large batch was unpacked to; it is opened again when there is something to read."""
        if self.in_batch and self.legacy is None and self.opened is not self.region and self.opened.view.len > KEPT_OPEN_BYTES:
            self.in_batch = False
            self.opened = None
            self.at = self.batch_at
        return 0

    def records(self, max_records=None, max_unpacked_bytes=None):
        """The next records as objects.

        Args:
            max_records: at most so many; None for all.
            max_unpacked_bytes: no further batch is opened once compressed ones have become so many bytes; None for no such bound.

        Returns:
            List of ConsumerRecord; empty at the end.

        Raises:
            CorruptDataError: the next batch or record is broken.
            DecompressedTooLarge: the next batch holds more than max_decompressed_bytes.
        """
        cdef Budget budget
        budget.nbytes = INT64_MAX if max_unpacked_bytes is None else max_unpacked_bytes
        return self.take(0x7fffffffffffffff if max_records is None else max_records, &budget)

    cdef list take(self, Py_ssize_t limit, Budget* budget):
        """The next records as objects, at most `limit`; whatever the budget, those of the next batch that has any."""
        cdef list out = []
        cdef Py_ssize_t take
        self._begin()
        try:
            while len(out) < limit and (self.in_batch or ((budget.nbytes > 0 or not out) and self._advance(budget))):
                if self.legacy is not None:
                    take = min(limit - len(out), self.legacy.store.count - self.legacy_row)
                    out += legacy_records(self.legacy, self.topic, self.partition, self.legacy_row, self.legacy_row + take)
                    self.legacy_row += take
                    if self.legacy_row == self.legacy.store.count:
                        self._end_batch()
                else:
                    if (self.context is None or self.context.leader_epoch != self.leader_epoch
                            or self.context.timestamp_type != self.b.log_append_time):
                        self.context = record_context(self.topic, self.partition, self.leader_epoch, self.b.log_append_time)
                    read_objects(&self.b, self.next_offset, self.context, out, limit - len(out), self.batch_at)
                    if self.b.left == 0:
                        self._end_batch()
        except (_CorruptDataError, _DecompressedTooLarge) as error:
            self._failed(error)
            if not out:
                raise self._failure() from error.__cause__
        finally:
            self.reading = False
        if out:
            self.next_offset = max(self.next_offset, kc_wrap_add((<ConsumerRecord>out[len(out) - 1]).offset, 1))
        return out

    def columns(self, max_records=None, max_unpacked_bytes=None):
        """The next records as columns.

        Args:
            max_records: at most so many; None for all.
            max_unpacked_bytes: as `records` takes it.

        Returns:
            RecordColumns over all the batches read; empty at the end.

        Raises:
            CorruptDataError: the next batch or record is broken.
            DecompressedTooLarge: the next batch holds more than max_decompressed_bytes.
        """
        cdef Budget budget
        budget.nbytes = INT64_MAX if max_unpacked_bytes is None else max_unpacked_bytes
        budget.rows = INT64_MAX if max_records is None else max_records
        return self.take_columns(&budget)

    cdef RecordColumns take_columns(self, Budget* budget):
        """The next records as columns, at most `budget.rows`; whatever its bytes, those of the next batch that has any."""
        cdef RecordColumns out = RecordColumns.__new__(RecordColumns)
        cdef Py_ssize_t limit = budget.rows
        cdef Py_ssize_t take
        cdef int error = 0
        out.topic = self.topic
        out.partition = self.partition
        self._begin()
        try:
            while out.store.count < limit and (self.in_batch or ((budget.nbytes > 0 or not out.store.count) and self._advance(budget))):
                if self.legacy is not None:
                    take = min(limit - out.store.count, self.legacy.store.count - self.legacy_row)
                    legacy_move(self.legacy, self.legacy_row, take, out)
                    self.legacy_row += take
                    if self.legacy_row == self.legacy.store.count:
                        self._end_batch()
                    continue
                take = min(limit - out.store.count, self.b.left)
                out.store.reserve(take)
                out.add_segment(self.opened, self.leader_epoch, self.b.log_append_time)
                out.store.count = kc_read_columns(&self.b, <const uint8_t*>self.opened.view.buf, self.next_offset, &out.store.rows,
                                                  out.store.count, take, &error)
                if error:
                    bad_record(error, self.b.base_offset, self.batch_at)
                if self.b.left == 0:
                    self._end_batch()
        except (_CorruptDataError, _DecompressedTooLarge) as error_found:
            self._failed(error_found)
            if not out.store.count:
                raise self._failure() from error_found.__cause__
        finally:
            self.reading = False
        if out.store.count:
            self.next_offset = max(self.next_offset, kc_wrap_add(out.store.rows.offsets[out.store.count - 1], 1))
            budget.rows -= out.store.count
        out.next_offset = self.next_offset
        return out

    cdef int _failed(self, error) except -1:
        """Remembers what is wrong, but no exception: its traceback would tie this reader, and the fetched bytes, into a cycle."""
        self.failure = (type(error), error.args[0] if error.args else str(error),
                        self.topic if error.topic is None and self.topic else error.topic,
                        self.partition if error.topic is None and self.topic else error.partition, error.offset)
        return 0

    cdef object _failure(self):
        kind, message, topic, partition, offset = self.failure
        return kind(message, topic=topic, partition=partition, offset=offset)


cdef PartitionReader open_reader(HeldBuffer region, topic, int32_t partition, int64_t start_offset, bint check_crcs,
                                 Py_ssize_t max_decompressed):
    """A reader of one partition's bytes."""
    cdef PartitionReader reader = PartitionReader.__new__(PartitionReader)
    reader._open(region, topic, partition, start_offset, check_crcs, max_decompressed)
    return reader


def set_base_offset(buffer, int64_t offset):
    """Gives a v2 batch its base offset in place, as a partition leader does; the CRC does not cover it.

    Args:
        buffer: writable bytes-like that starts with the batch.
        offset: offset of its first record.
    """
    cdef Py_ssize_t size
    cdef HeldBuffer held = hold_writable_batch(buffer, &size)
    kc_put64(<uint8_t*>held.view.buf, offset)


def set_leader_epoch(buffer, int32_t leader_epoch):
    """Gives a v2 batch its partition leader epoch in place; the CRC does not cover it.

    Args:
        buffer: writable bytes-like that starts with the batch.
        leader_epoch: the epoch.
    """
    cdef Py_ssize_t size
    cdef HeldBuffer held = hold_writable_batch(buffer, &size)
    kc_put32(<uint8_t*>held.view.buf + 12, leader_epoch)


def set_log_append_time(buffer, int64_t timestamp_ms):
    """Makes a v2 batch one of log append time, in place: sets the attribute and the maximal timestamp and renews the CRC.

    Args:
        buffer: writable bytes-like that starts with the batch.
        timestamp_ms: epoch milliseconds that all its records get.
    """
    cdef Py_ssize_t size
    cdef HeldBuffer held = hold_writable_batch(buffer, &size)
    cdef uint8_t* p = <uint8_t*>held.view.buf
    kc_put16(p + 21, kc_get16(p + 21) | ATTR_LOG_APPEND_TIME)
    kc_put64(p + 35, timestamp_ms)
    kc_put32(p + 17, <int32_t>kc_crc32c(0, p + 21, size - 21))


cdef HeldBuffer hold_writable_batch(object buffer, Py_ssize_t* size):
    cdef HeldBuffer held = hold_buffer(buffer, PyBUF_WRITABLE)
    size[0] = -1 if held.view.len < KC_BATCH_HEADER else frame_at(<const uint8_t*>held.view.buf, held.view.len, 0, False)
    if size[0] < 0 or not is_v2(<const uint8_t*>held.view.buf, size[0]):
        raise ValueError("the buffer does not start with a complete batch of magic 2")
    return held
