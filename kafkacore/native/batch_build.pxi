# Building record batches: v2 here, message sets v0 and v1 in legacy.pxi behind the same class.
#
# Records are written straight into the memory that is handed out; the header's 61 bytes are left free and sealed last.

from kafkacore.errors import IllegalStateError

cdef extern from "batch.h" nogil:
    enum: KC_SLACK, KC_MIN_RECORD
    enum: KC_RECORD_OK, KC_RECORD_TRUNCATED, KC_RECORD_LENGTH, KC_RECORD_KEY, KC_RECORD_VALUE, KC_RECORD_HEADERS, KC_RECORD_TRAILING
    ctypedef struct kc_batch_writer:
        uint8_t* p
        uint8_t* limit
        int32_t count
        int32_t next_delta
        int64_t base_ts
        int64_t max_ts
    void kc_seal_batch(uint8_t* p, size_t total, int16_t attributes, int32_t last_offset_delta, int64_t base_ts, int64_t max_ts,
                       int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, int32_t count)
    int kc_write_record(kc_batch_writer* w, int64_t ts, const uint8_t* key, int64_t key_len, const uint8_t* key_end,
                        const uint8_t* value, int64_t value_len, const uint8_t* value_end, const uint8_t* headers, size_t headers_len)
    size_t kc_record_size(int64_t ts_delta, int32_t offset_delta, int64_t key_len, int64_t value_len, size_t headers_size)
    int64_t kc_append_columns(kc_batch_writer* w, const kc_column* values, const kc_column* keys, const int64_t* ts, int64_t one_ts,
                              int64_t first, int64_t last, int* bad)

cdef extern from * nogil:
    """
    #include <time.h>
    /* Epoch milliseconds; the coarse clock (a few ms of grain at most) costs a fifth of the fine one. */
    static inline int64_t kc_wall_ms(void) {
        struct timespec t;
    #ifdef CLOCK_REALTIME_COARSE
        clock_gettime(CLOCK_REALTIME_COARSE, &t);
    #else
        clock_gettime(CLOCK_REALTIME, &t);
    #endif
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    """
    int64_t kc_wall_ms()

cdef enum:
    ATTR_CODEC = 0x07
    ATTR_LOG_APPEND_TIME = 0x08
    ATTR_TRANSACTIONAL = 0x10
    ATTR_CONTROL = 0x20
    BATCH_MAX_BYTES = 0x7fffffff - 4096       # a batch's length is an int32


cdef inline void seal_batch_header(uint8_t* p, Py_ssize_t total_size, int16_t attributes, int32_t last_offset_delta, int64_t base_ts,
                                   int64_t max_ts, int64_t pid, int16_t epoch, int32_t base_seq, int32_t count) noexcept nogil:
    """Writes the 61-byte header at p and the CRC over 21..total_size; base offset 0, leader epoch -1 (the CRC covers neither)."""
    kc_seal_batch(p, total_size, attributes, last_offset_delta, base_ts, max_ts, pid, epoch, base_seq, count)


cdef bytes encode_headers(object headers):
    """Record headers with their count, as a record holds them.

    Args:
        headers: pairs of (str or UTF-8 bytes, bytes-like, str or None).
    """
    cdef list pairs = list(headers)
    cdef list keep = []
    cdef const uint8_t* p
    cdef Py_ssize_t n
    cdef size_t total = kc_varint_size(len(pairs))
    cdef bytes out
    cdef uint8_t* w
    for pair in pairs:
        if isinstance(pair, (str, bytes, bytearray)):       # "ab" would unpack into a name and a value
            raise TypeError(f"a header is a pair of name and value, not {pair!r}")
        try:
            key, value = pair
        except (TypeError, ValueError):
            raise TypeError(f"a header is a pair of name and value, not {pair!r}") from None
        if key is None:
            raise TypeError("a header's key must not be None")
        try:
            bytes_of(key, &p, &n, keep)
        except TypeError:
            raise TypeError(f"a header's name must be a str, not {key!r}") from None
        total += kc_varint_size(n) + n
        try:
            bytes_of(value, &p, &n, keep)
        except TypeError:
            raise TypeError(f"the value of header {key!r} must be bytes-like, str or None, not {type(value).__name__}") from None
        total += kc_varint_size(n) + (n if n > 0 else 0)
    if total > BATCH_MAX_BYTES:
        raise ValueError("headers are limited to 2 GiB")
    out = PyBytes_FromStringAndSize(NULL, total)
    w = kc_put_varint(<uint8_t*>PyBytes_AS_STRING(out), len(pairs))
    cdef const uint8_t* end = <const uint8_t*>PyBytes_AS_STRING(out) + total
    for pair in pairs:
        for item in pair:
            bytes_of(item, &p, &n, keep)
            if w + kc_varint_size(n) + (n if n > 0 else 0) > end:
                raise ValueError("headers were changed while they were read")
            w = kc_put_varint(w, n)
            if n > 0:
                memcpy(w, p, n)
                w += n
    if w != end:
        raise ValueError("headers were changed while they were read")
    return out


cdef int64_t* timestamps_of(object timestamps_ms, Py_ssize_t count, list keep) except? NULL:
    """Points at `count` int64 timestamps, kept alive in keep."""
    cdef HeldBuffer held
    from kafkacore.epoch import epoch_column_ms
    array = epoch_column_ms(timestamps_ms, "timestamps_ms")
    if len(array) != count:
        raise ValueError(f"columns differ in length: {count} values, {array.size} timestamps")
    held = hold_buffer(array, PyBUF_SIMPLE)
    keep.append(held)
    return <int64_t*>held.view.buf


@cython.final
cdef class BatchBuilder:
    """Builds one record batch (magic 2) or message set (magic 0 or 1).

    Args:
        magic: format version: 2, or 0 and 1 for brokers and logs older than Kafka 0.11.
        compression: "none", "gzip", "snappy", "lz4" or "zstd" (not for magic 0 and 1), or the codec's number.
        compression_level: the codec's level; None for its default.
        producer_id, producer_epoch, base_sequence: the idempotent producer's state, -1 for none.
        is_transactional: marks the batch as part of a transaction.
        is_control: marks the batch as holding control records.
        max_bytes: the batch is full when one more record would make it larger than this, uncompressed. The first record always
            fits.
        base_offset: offset of the first record; producers leave it at 0.
        leader_epoch: partition leader epoch; producers leave it at -1.
        timestamp_type: 0 create time, 1 log append time.

    Raises:
        ValueError: an argument is out of its range.

    Source: KIP-98 (magic 2), KIP-32 (magic 1).
    """
    cdef PooledBuffer memory
    cdef kc_batch_writer w
    cdef object built
    cdef bint sealed                          # from the start of build(), which lets other threads run while it compresses
    cdef object level
    cdef readonly Py_ssize_t max_bytes
    cdef readonly int magic
    cdef readonly int compression
    cdef int16_t attributes
    cdef int16_t producer_epoch
    cdef int32_t base_sequence
    cdef int32_t leader_epoch
    cdef int64_t producer_id
    cdef int64_t base_offset

    def __cinit__(self, *, int magic=2, compression="none", compression_level=None, int64_t producer_id=-1, int16_t producer_epoch=-1,
                 int32_t base_sequence=-1, bint is_transactional=False, bint is_control=False, Py_ssize_t max_bytes=16384,
                 int64_t base_offset=0, int32_t leader_epoch=-1, int timestamp_type=0):
        if magic < 0 or magic > 2:
            raise ValueError(f"magic must be 0, 1 or 2, not {magic}")
        if max_bytes < 0 or max_bytes > BATCH_MAX_BYTES:
            raise ValueError(f"max_bytes must be 0 to {BATCH_MAX_BYTES}, not {max_bytes}")
        if timestamp_type != 0 and timestamp_type != 1:
            raise ValueError(f"timestamp_type must be 0 or 1, not {timestamp_type}")
        if compression != "none" or compression_level is not None:
            self.compression = _compress().codec_id(compression)
            _compress().check_level(self.compression, compression_level)
        if magic < 2 and (self.compression == 4 or is_transactional or is_control or producer_id != -1):
            raise ValueError(f"magic {magic} knows no zstd, transactions, control records or producer ids")
        self.magic = magic
        self.level = compression_level
        self.max_bytes = max_bytes
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.attributes = self.compression | (ATTR_LOG_APPEND_TIME if timestamp_type else 0) \
            | (ATTR_TRANSACTIONAL if is_transactional else 0) | (ATTR_CONTROL if is_control else 0)
        self.built = None
        self._room(max_bytes)

    cdef int _room(self, Py_ssize_t total) except -1:
        # Only before the first record: nothing is carried over.
        cdef Py_ssize_t head = KC_BATCH_HEADER if self.magic == 2 else 0
        if total < head:
            total = head
        self.memory = PooledBuffer(total + KC_SLACK)
        self.w.p = self.memory.ptr + head
        self.w.limit = self.memory.ptr + total
        return 0

    cdef int _open(self) except -1:
        if self.sealed:
            raise IllegalStateError("the batch was built")
        return 0

    def __len__(self):
        """Records so far."""
        return self.w.count

    @property
    def size_bytes(self):
        """Size of the batch so far, uncompressed, its header included."""
        return self.w.p - self.memory.ptr

    cdef int _write(self, int64_t ts, const uint8_t* key, Py_ssize_t key_len, const uint8_t* value, Py_ssize_t value_len,
                    bytes headers) except -1:
        """1 written, 0 full. The caller has set base_ts for the first record."""
        cdef const uint8_t* h = NULL
        cdef Py_ssize_t h_len = 0
        cdef size_t size
        self._open()                             # again: conversions may have run code that built the batch
        if self.w.next_delta == INT32_MAX:
            return 0
        if headers is not None:
            h = <const uint8_t*>PyBytes_AS_STRING(headers)
            h_len = PyBytes_GET_SIZE(headers)
        if self.magic < 2:
            return legacy_write(self, ts, key, key_len, value, value_len)
        if kc_write_record(&self.w, ts, key, key_len, key + (key_len if key_len > 0 else 0),
                           value, value_len, value + (value_len if value_len > 0 else 0), h, h_len):
            return 1
        if self.w.count:
            return 0
        size = KC_BATCH_HEADER + kc_record_size(<int64_t>(<uint64_t>ts - <uint64_t>self.w.base_ts), self.w.next_delta, key_len, value_len, h_len if h else 1)
        if size > BATCH_MAX_BYTES:
            raise ValueError(f"a record of {size} bytes does not fit a batch")
        self._room(size)
        return kc_write_record(&self.w, ts, key, key_len, key + (key_len if key_len > 0 else 0),
                               value, value_len, value + (value_len if value_len > 0 else 0), h, h_len)

    def append(self, value, key=None, headers=(), timestamp_ms=None, offset_delta=None):
        """Appends one record.

        Args:
            value, key: bytes-like, str (encoded as UTF-8) or None.
            headers: pairs of (str, bytes-like, str or None).
            timestamp_ms: epoch milliseconds; None for now.
            offset_delta: offset from base_offset; None for one after the record before.

        Returns:
            False when the batch is full; the record was not added.

        Raises:
            IllegalStateError: the batch was built.
        """
        cdef const uint8_t* v
        cdef const uint8_t* k
        cdef Py_ssize_t v_len, k_len
        cdef int64_t ts = kc_wall_ms() if timestamp_ms is None else timestamp_ms
        cdef bytes encoded = None
        cdef list keep = None
        cdef int32_t delta, delta_before = self.w.next_delta
        cdef int written
        self._open()
        if headers:
            if self.magic < 2:
                raise ValueError(f"magic {self.magic} knows no headers")
            encoded = encode_headers(headers)
        if offset_delta is not None:
            delta = offset_delta
            if delta < delta_before:
                raise ValueError(f"offset delta {delta} after {<int64_t>delta_before - 1}: deltas must rise")
            if delta == INT32_MAX:
                raise ValueError(f"offset delta {delta} is more than a batch can count")
            self.w.next_delta = delta
        try:
            if PyBytes_CheckExact(value):        # nothing to keep alive
                v = <const uint8_t*>PyBytes_AS_STRING(value)
                v_len = PyBytes_GET_SIZE(value)
            else:
                keep = []
                bytes_of(value, &v, &v_len, keep)
            if key is None:
                k = NULL
                k_len = -1
            else:
                if keep is None:
                    keep = []
                bytes_of(key, &k, &k_len, keep)
            if self.w.count == 0:
                self.w.base_ts = self.w.max_ts = ts
            written = self._write(ts, k, k_len, v, v_len, encoded)
        except:
            self.w.next_delta = delta_before
            raise
        if not written:
            self.w.next_delta = delta_before
        return written == 1

    def append_many(self, values, keys=None, headers=None, timestamps_ms=None, Py_ssize_t start=0):
        """Appends a column of records until it ends or the batch is full.

        Args:
            values, keys: columns, see `ColumnSource`; keys None for null keys.
            headers: one collection of header pairs (or None) per record, or None.
            timestamps_ms: epoch milliseconds: one for all, or an integer array or datetime64 array of one per record; None for now.
            start: the first record to take, to go on where an earlier batch became full.

        Returns:
            Number of records appended.

        Raises:
            TypeError, ValueError: a column is of no accepted kind, broken, or of another length.
            IllegalStateError: the batch was built.
        """
        self._open()
        cdef ColumnSource value_column = column_of(values, -1)
        cdef Py_ssize_t count = value_column.count
        cdef ColumnSource key_column = None if keys is None else column_of(keys, count)
        cdef list keep = None
        cdef int64_t one_ts = 0
        cdef int64_t* ts = NULL
        cdef int64_t i = start, done
        cdef int bad = 0
        cdef bytes encoded
        cdef const uint8_t* v
        cdef const uint8_t* k = NULL
        cdef Py_ssize_t v_len, k_len = -1
        if start < 0 or start > count:
            raise IndexError(f"start {start} of {count} records")
        if timestamps_ms is None:
            one_ts = kc_wall_ms()
        elif isinstance(timestamps_ms, int):
            one_ts = timestamps_ms
        else:
            keep = []
            ts = timestamps_of(timestamps_ms, count, keep)
        if headers is not None:
            if len(headers) != count:
                raise ValueError(f"columns differ in length: {count} values, {len(headers)} headers")
            if self.magic < 2:
                raise ValueError(f"magic {self.magic} knows no headers")
        if start == count:
            return 0
        self._open()                             # making the columns ran foreign code
        count = min(count, start + (INT32_MAX - self.w.next_delta))
        if self.w.count == 0:
            self.w.base_ts = self.w.max_ts = ts[start] if ts else one_ts
        while i < count:
            if (self.magic == 2 and headers is None and value_column.c.kind != KC_COL_LIST
                    and (key_column is None or key_column.c.kind != KC_COL_LIST)):
                i = kc_append_columns(&self.w, &value_column.c, NULL if key_column is None else &key_column.c, ts, one_ts, i, count, &bad)
                if not bad and (i == count or self.w.count):
                    break
            elif self.magic == 2 and headers is None and key_column is None:      # the next common case: a list of values
                while i < count:
                    value_column.get(i, &v, &v_len)
                    self._open()
                    if not kc_write_record(&self.w, ts[i] if ts else one_ts, NULL, -1, NULL, v, v_len, v + (v_len if v_len > 0 else 0),
                                           NULL, 0):
                        break
                    i += 1
                if i == count or self.w.count:
                    break
            # One record by hand: the layouts of Python objects, headers, a first record larger than the batch, a bad item.
            encoded = None
            if headers is not None:
                with cython.boundscheck(True):   # the caller's list, which may have become shorter
                    pairs = headers[i]
                if pairs:
                    encoded = encode_headers(pairs)
            value_column.get(i, &v, &v_len)
            if key_column is not None:
                key_column.get(i, &k, &k_len)
            if not self._write(ts[i] if ts else one_ts, k, k_len, v, v_len, encoded):
                break
            i += 1
        return i - start

    def build(self):
        """Compresses and seals the batch.

        Returns:
            The batch as a memoryview; the same one when called again. No more records can be appended.
        """
        if self.built is not None:
            return self.built
        self._open()                             # another thread is building it
        self.sealed = True
        try:
            self.built = legacy_build(self) if self.magic < 2 else self._build()
        except:
            self.sealed = False
            raise
        return self.built

    cdef object _build(self):
        cdef Py_ssize_t total = self.w.p - self.memory.ptr
        cdef PooledBuffer out = self.memory
        cdef const uint8_t* p
        cdef Py_ssize_t n
        cdef list keep
        if self.compression and self.w.count:
            keep = []
            packed = _compress().compress(self.compression, memoryview(self.memory)[KC_BATCH_HEADER:total], self.level)
            bytes_of(packed, &p, &n, keep)
            total = KC_BATCH_HEADER + n
            if total > BATCH_MAX_BYTES:
                raise ValueError(f"a compressed batch of {total} bytes is too large")
            out = PooledBuffer(total)
            memcpy(out.ptr + KC_BATCH_HEADER, p, n)
        seal_batch_header(out.ptr, total, self.attributes, self.w.next_delta - 1 if self.w.count else 0,
                          self.w.base_ts if self.w.count else -1, self.w.max_ts if self.w.count else -1,
                          self.producer_id, self.producer_epoch, self.base_sequence, self.w.count)
        kc_put64(out.ptr, self.base_offset)
        kc_put32(out.ptr + 12, self.leader_epoch)
        out.nbytes = total                       # the view below shows the batch alone
        self.memory = out
        return PyMemoryView_FromObject(out)


cdef object _compress_module = None

cdef object _compress():
    # compress.py stands on the same floor and imports nothing from here; it is loaded at first need.
    global _compress_module
    if _compress_module is None:
        from kafkacore import compress
        _compress_module = compress
    return _compress_module


def control_batch(int type, *, int64_t producer_id, int16_t producer_epoch, int32_t coordinator_epoch=0, int64_t base_offset=0,
                  int32_t leader_epoch=-1, timestamp_ms=None):
    """A batch with the one control record that ends a transaction.

    Args:
        type: 0 abort, 1 commit.
        producer_id, producer_epoch: the transaction's producer.
        coordinator_epoch: epoch of the coordinator that wrote the marker.
        base_offset: its offset.
        leader_epoch: partition leader epoch.
        timestamp_ms: epoch milliseconds; None for now.

    Returns:
        The batch, bytes-like.

    Source: Kafka's ControlRecordType and EndTransactionMarker.
    """
    if type != 0 and type != 1:
        raise ValueError(f"a transaction ends with 0 (abort) or 1 (commit), not {type}")
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True,
                           base_offset=base_offset, leader_epoch=leader_epoch, max_bytes=128)
    builder.append(_control_value(coordinator_epoch), key=_control_key(type), timestamp_ms=timestamp_ms)
    return builder.build()


cdef bytes _control_key(int type):
    cdef uint8_t[4] b
    kc_put16(b, 0)
    kc_put16(b + 2, type)
    return (<char*>b)[:4]


cdef bytes _control_value(int32_t coordinator_epoch):
    cdef uint8_t[6] b
    kc_put16(b, 0)
    kc_put32(b + 2, coordinator_epoch)
    return (<char*>b)[:6]
