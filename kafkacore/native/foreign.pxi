# Records and builders with the names that kafka-python's and aiokafka's own record layers have, so that kafkacore.compat.accelerate can put
# them in their place. The formats are those of batch_read.pxi and batch_build.pxi; here are other names only.


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class ForeignRecord:
    """A record as kafka-python and aiokafka read it; `headers` is a list, `size_in_bytes` does not count the record's own length."""

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int timestamp_type
    cdef readonly int32_t size_in_bytes
    cdef readonly object key
    cdef readonly object value
    cdef readonly list headers
    cdef bint is_control

    @property
    def checksum(self):
        return None

    def validate_crc(self):
        """A record of this format has no checksum of its own."""
        return True

    cdef int16_t number(self, Py_ssize_t at) except? -1:
        if not self.is_control or self.key is None or len(<bytes> self.key) < 4:
            raise AttributeError("only a control record has a version and a type")
        return kc_get16(<const uint8_t *> PyBytes_AS_STRING(self.key) + at)

    @property
    def version(self):
        return self.number(0)

    @property
    def type(self):
        return self.number(2)

    @property
    def abort(self):
        return self.number(2) == 0

    @property
    def commit(self):
        return self.number(2) == 1

    def __repr__(self):
        return (f"ForeignRecord(offset={self.offset}, timestamp={self.timestamp}, timestamp_type={self.timestamp_type}, key={self.key!r}, "
                f"value={self.value!r}, headers={self.headers!r})")


@cython.final
cdef class ForeignRecords:
    """Iterates over the records of a batch of magic 2, once, and makes each when it is asked for: none of them waits for the collector.

    Args:
        batch: of magic 2.
        corrupt: makes the error to raise when the records are broken, from its text.

    Raises:
        ValueError: the batch is a message set.
        Exception: what `corrupt` made; also from `next`.
    """
    cdef Batch batch
    cdef HeldBuffer region                                 # keeps b's pointers good
    cdef kc_batch_reader b
    cdef object corrupt

    def __init__(self, Batch batch not None, corrupt):
        if not is_v2(batch.p, batch.size_bytes):
            raise ValueError("a message set has records of another kind")
        self.batch = batch
        self.corrupt = corrupt
        try:
            self.region = open_batch(batch.region, batch.p, batch.size_bytes, batch.max_decompressed, &self.b)
        except _CorruptDataError as error:
            raise corrupt(f"Found invalid record structure: {error}") from error

    def __iter__(self):
        return self

    def __next__(self):
        if self.region is None:                            # made by __new__ alone
            raise StopIteration
        try:
            return self.record()
        except _CorruptDataError as error:
            raise self.corrupt(f"Found invalid record structure: {error}") from error

    cdef ForeignRecord record(self):
        cdef kc_record r
        cdef ForeignRecord record
        cdef const uint8_t *begin = self.b.p
        cdef int error
        if self.b.left <= 0:
            if self.b.p != self.b.end:
                bad_record(KC_RECORD_TRAILING, self.b.base_offset, self.batch.position)
            raise StopIteration
        error = kc_read_record(&self.b.p, self.b.end, &r)
        if error != KC_RECORD_OK:
            bad_record(error, self.b.base_offset, self.batch.position)
        self.b.left -= 1
        while begin[0] & 0x80:                             # the length is checked by now
            begin += 1
        record = ForeignRecord.__new__(ForeignRecord)
        record.offset = kc_wrap_add(self.b.base_offset, r.offset_delta)
        record.timestamp = self.b.base_ts if self.b.log_append_time else kc_wrap_add(self.b.base_ts, r.ts_delta)
        record.timestamp_type = self.b.log_append_time
        record.size_in_bytes = <int32_t> (self.b.p - begin - 1)
        record.is_control = self.batch.is_control
        if r.key_len >= 0:
            record.key = PyBytes_FromStringAndSize(<const char *> r.key, r.key_len)
        if r.value_len >= 0:
            record.value = PyBytes_FromStringAndSize(<const char *> r.value, r.value_len)
        record.headers = [] if r.headers == NULL else list(decode_headers(r.headers, self.b.end))
        return record


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class ForeignMetadata:
    """What appending a record says of it."""

    cdef readonly int32_t offset
    cdef readonly int32_t size
    cdef readonly int64_t timestamp

    @property
    def crc(self):
        return None

    def __repr__(self):
        return f"ForeignMetadata(offset={self.offset}, size={self.size}, timestamp={self.timestamp})"


cdef Py_ssize_t headers_size(headers) except -1:
    return len(encode_headers(headers)) if headers else 1


cdef Py_ssize_t length_of(item, what) except -2:
    if item is None:
        return -1
    if not isinstance(item, (bytes, bytearray, memoryview)):
        raise TypeError(f"Not supported type for {what}: {type(item)}")
    return len(item)


@cython.final
cdef class ForeignBatchBuilder:
    """Builds a batch of magic 2 through `DefaultRecordBatchBuilder`'s methods, of kafka-python and of aiokafka.

    It differs in one thing: with a codec a batch is always compressed, as Java's producer does, not only where that makes it smaller.
    """

    CODEC_MASK, CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = 7, 0, 1, 2, 3, 4
    MAX_RECORD_OVERHEAD = 21

    cdef BatchBuilder builder
    cdef object built

    def __init__(self, magic, compression_type, is_transactional, producer_id, producer_epoch, base_sequence, batch_size):
        assert magic >= 2
        self.builder = BatchBuilder(
            compression=compression_type & 7,
            is_transactional=bool(is_transactional),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            max_bytes=min(max(batch_size, 0), BATCH_MAX_BYTES),
        )

    def set_producer_state(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, is_transactional=None):
        """The producer's state, known since the batch was begun. `is_transactional` is kafka-python's; None leaves it."""
        self.builder._open()
        self.builder.producer_id = producer_id
        self.builder.producer_epoch = producer_epoch
        self.builder.base_sequence = base_sequence
        if is_transactional is not None:
            self.builder.attributes &= ~ATTR_TRANSACTIONAL
            if is_transactional:
                self.builder.attributes |= ATTR_TRANSACTIONAL

    @property
    def producer_id(self):
        return self.builder.producer_id

    @property
    def producer_epoch(self):
        return self.builder.producer_epoch

    @property
    def base_sequence(self):
        return self.builder.base_sequence

    def append(self, offset, timestamp, key, value, headers):
        """Appends a record; None when the batch is full.

        Args:
            offset: from the first record of the batch.
            timestamp: epoch milliseconds; None for now.
            key, value: bytes-like or None.
            headers: pairs of (str, bytes or None).
        """
        cdef ForeignMetadata metadata
        cdef Py_ssize_t before
        cdef int64_t ts
        if type(offset) is not int:
            raise TypeError(offset)
        if timestamp is not None and type(timestamp) is not int:
            raise TypeError(timestamp)
        length_of(key, "key")
        length_of(value, "value")
        ts = kc_wall_ms() if timestamp is None else timestamp
        before = self.builder.w.p - self.builder.memory.ptr
        if not self.builder.append(value, key, headers, ts, offset):
            return None
        metadata = ForeignMetadata.__new__(ForeignMetadata)
        metadata.offset = offset
        metadata.size = <int32_t> (self.builder.w.p - self.builder.memory.ptr - before)
        metadata.timestamp = ts
        return metadata

    def build(self):
        """The batch, sealed, as a bytearray."""
        if self.built is None:
            self.built = bytearray(self.builder.build())
        return self.built

    def size(self):
        """Bytes so far, or of the built batch."""
        return self.builder.size_bytes if self.built is None else len(self.built)

    @staticmethod
    def header_size_in_bytes():
        return KC_BATCH_HEADER

    @staticmethod
    def size_in_bytes(offset_delta, timestamp_delta, key, value, headers):
        """Of one record with its length."""
        return kc_record_size(timestamp_delta, offset_delta, length_of(key, "key"), length_of(value, "value"), headers_size(headers))

    @staticmethod
    def size_of(key, value, headers):
        """Of a record's key, value and headers with their lengths."""
        cdef Py_ssize_t k = length_of(key, "key"), v = length_of(value, "value")
        return kc_varint_size(k) + max(k, 0) + kc_varint_size(v) + max(v, 0) + headers_size(headers)

    @staticmethod
    def estimate_size_in_bytes(key, value, headers):
        """A bound of the size of a batch with this record alone."""
        cdef Py_ssize_t k = length_of(key, "key"), v = length_of(value, "value")
        return (KC_BATCH_HEADER + 21 + kc_varint_size(k) + max(k, 0) + kc_varint_size(v) + max(v, 0) + headers_size(headers))
