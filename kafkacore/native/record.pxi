# ConsumerRecord: what a reader hands out per record. Integers stay C integers until asked for; what all records of a batch share is
# one object. Records take no part in garbage collection (a list of them costs the collector nothing); they are immutable, so a
# reference cycle through one needs a mutable key or value that refers back to it.

from cpython.list cimport PyList_Append
from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef extern from "batch.h" nogil:
    ctypedef struct kc_header:
        const uint8_t* key
        const uint8_t* value
        int32_t key_len
        int32_t value_len
    ctypedef struct kc_header_sizes:
        int64_t count
        int64_t key_bytes
        int64_t value_bytes
    const uint8_t* kc_header_count(const uint8_t* p, const uint8_t* end, int64_t* count)
    const uint8_t* kc_get_header(const uint8_t* p, const uint8_t* end, kc_header* header)
    int kc_is_ascii(const uint8_t* p, int32_t n)
    int kc_measure_headers(const uint8_t* p, const uint8_t* end, kc_header_sizes* sizes)


@cython.final
@cython.no_gc
cdef class RecordContext:
    cdef object topic
    cdef int32_t partition
    cdef int32_t leader_epoch
    cdef int timestamp_type


cdef RecordContext record_context(object topic, int32_t partition, int32_t leader_epoch, int timestamp_type):
    cdef RecordContext context = RecordContext.__new__(RecordContext)
    context.topic = topic
    context.partition = partition
    context.leader_epoch = leader_epoch
    context.timestamp_type = timestamp_type
    return context


cdef object _SAME = object()             # a field that `replace` leaves as it is


@cython.no_gc
@cython.freelist(1024)
cdef class ConsumerRecord:
    """One record as it was read. Immutable, comparable, hashable where key and value are, picklable.

    Args:
        topic, partition, offset: where it is.
        timestamp_ms: epoch milliseconds, -1 for none.
        timestamp_type: 0 create time, 1 log append time, -1 none (magic 0).
        key, value: bytes or None (or what deserializers made of them).
        headers: tuple of (str, bytes or None).
        leader_epoch: of the batch, -1 for unknown.
    """
    cdef RecordContext context
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers

    def __init__(self, *, topic, int32_t partition, int64_t offset, int64_t timestamp_ms=-1, int timestamp_type=0, key=None, value=None,
                 headers=(), int32_t leader_epoch=-1):
        self.context = record_context(topic, partition, leader_epoch, timestamp_type)
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = tuple(headers)

    @property
    @cython.nonecheck(True)             # an object made by __new__ alone has no context
    def topic(self):
        return self.context.topic

    @property
    @cython.nonecheck(True)
    def partition(self):
        return self.context.partition

    @property
    @cython.nonecheck(True)
    def leader_epoch(self):
        return self.context.leader_epoch

    @property
    @cython.nonecheck(True)
    def timestamp_type(self):
        return self.context.timestamp_type

    @cython.nonecheck(True)
    def replace(self, *, key=_SAME, value=_SAME, headers=_SAME, offset=_SAME, timestamp_ms=_SAME, topic=_SAME, partition=_SAME,
                timestamp_type=_SAME, leader_epoch=_SAME):
        """The same record with other fields: those that are named, as `_replace` of a named tuple."""
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        cdef RecordContext context = self.context
        if topic is not _SAME or partition is not _SAME or timestamp_type is not _SAME or leader_epoch is not _SAME:
            context = record_context(
                context.topic if topic is _SAME else topic,
                context.partition if partition is _SAME else partition,
                context.leader_epoch if leader_epoch is _SAME else leader_epoch,
                context.timestamp_type if timestamp_type is _SAME else timestamp_type,
            )
        record.context = context
        record.offset = self.offset if offset is _SAME else offset
        record.timestamp_ms = self.timestamp_ms if timestamp_ms is _SAME else timestamp_ms
        record.key = self.key if key is _SAME else key
        record.value = self.value if value is _SAME else value
        record.headers = self.headers if headers is _SAME else tuple(headers)
        return record

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return record_fields(self) == record_fields(<ConsumerRecord>other)

    def __hash__(self):
        return hash(record_fields(self))

    def __repr__(self):
        names = ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "leader_epoch")
        return f"ConsumerRecord({', '.join(f'{name}={value!r}' for name, value in zip(names, record_fields(self)))})"

    def __reduce__(self):
        return _record_of, record_fields(self)


@cython.nonecheck(True)
cdef tuple record_fields(ConsumerRecord r):   # no method: a method table would cost every record eight bytes
    return (r.context.topic, r.context.partition, r.offset, r.timestamp_ms, r.context.timestamp_type, r.key, r.value, r.headers,
            r.context.leader_epoch)


def _record_of(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch):
    """Pickle's way back to a ConsumerRecord."""
    return ConsumerRecord(topic=topic, partition=partition, offset=offset, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type,
                          key=key, value=value, headers=headers, leader_epoch=leader_epoch)


cdef tuple decode_headers(const uint8_t* p, const uint8_t* end):
    """Headers at their count. Keys that are not UTF-8 keep their place with replacement characters, as Java reads them."""
    cdef int64_t count = 0
    cdef list out = []
    cdef kc_header header
    p = kc_header_count(p, end, &count)
    if p == NULL:
        raise _CorruptDataError(f"header count {count} does not fit the record")
    while count > 0:
        count -= 1
        p = kc_get_header(p, end, &header)
        if p == NULL:
            raise _CorruptDataError("a header leaves the record")
        out.append((PyUnicode_DecodeUTF8(<const char*>header.key, header.key_len, "replace"),
                    None if header.value_len < 0 else PyBytes_FromStringAndSize(<const char*>header.value, header.value_len)))
    return tuple(out)


cdef inline ConsumerRecord make_record(RecordContext context, int64_t offset, int64_t timestamp_ms, const uint8_t* key, Py_ssize_t key_len,
                                       const uint8_t* value, Py_ssize_t value_len, const uint8_t* headers, const uint8_t* end):
    cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
    record.context = context
    record.offset = offset
    record.timestamp_ms = timestamp_ms
    if key_len >= 0:
        record.key = PyBytes_FromStringAndSize(<const char*>key, key_len)
    if value_len >= 0:
        record.value = PyBytes_FromStringAndSize(<const char*>value, value_len)
    record.headers = () if headers == NULL else decode_headers(headers, end)
    return record
