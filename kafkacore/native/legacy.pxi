# Message sets, the format before record batches (magic 0: Kafka 0.8 and 0.9, magic 1: 0.10).
#
# A message: offset i64 | size i32 | crc u32 (CRC-32, not C, of what follows) | magic i8 | attributes i8 (codec 0-2, timestamp type 3)
#   | timestamp i64 (magic 1 only) | key length i32, key | value length i32, value.
# A compressed set is one wrapper message whose value is the compressed set. The wrapper has the offset of its last message.
# Odd rules: inner offsets are absolute in magic 0 and relative (0, 1, ..) in magic 1; a magic 1 wrapper with log append time
# gives its timestamp to all inside; LZ4 of magic 0 has a header checksum over the wrong bytes (KIP-57, fixed by compress.py).

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from zlib import crc32 as _crc32

cdef enum:
    LEGACY_PREFIX = 12                 # offset and size
    LEGACY_MIN_SIZE = 14               # crc, magic, attributes, two null lengths


cdef uint8_t* legacy_put(uint8_t* p, int magic, int attributes, int64_t offset, int64_t ts, const uint8_t* key, Py_ssize_t key_len,
                         const uint8_t* value, Py_ssize_t value_len, object memory, Py_ssize_t at) except NULL:
    """Writes one message at p, which is memory[at:]; returns the byte after it."""
    cdef uint8_t* w = p + 18
    kc_put64(p, offset)
    p[16] = magic
    p[17] = attributes
    if magic == 1:
        kc_put64(w, ts)
        w += 8
    kc_put32(w, key_len)
    w += 4
    if key_len > 0:
        memcpy(w, key, key_len)
        w += key_len
    kc_put32(w, value_len)
    w += 4
    if value_len > 0:
        memcpy(w, value, value_len)
        w += value_len
    kc_put32(p + 8, w - p - LEGACY_PREFIX)
    kc_put32(p + 12, <int32_t><uint32_t>_crc32(memoryview(memory)[at + 16:at + (w - p)]))
    return w


cdef int legacy_write(BatchBuilder b, int64_t ts, const uint8_t* key, Py_ssize_t key_len, const uint8_t* value,
                      Py_ssize_t value_len) except -1:
    cdef Py_ssize_t size = 26 + (8 if b.magic == 1 else 0) + (key_len if key_len > 0 else 0) + (value_len if value_len > 0 else 0)
    cdef int64_t offset = b.w.next_delta
    if b.w.limit - b.w.p < size:
        if b.w.count:
            return 0
        if size > BATCH_MAX_BYTES:
            raise ValueError(f"a message of {size} bytes does not fit a message set")
        b._room(size)
    if not b.compression or b.magic == 0:
        offset += b.base_offset
    b.w.p = legacy_put(b.w.p, b.magic, 0 if b.compression else b.attributes, offset, ts, key, key_len, value, value_len,
                       b.memory, b.w.p - b.memory.ptr)
    b.w.count += 1
    b.w.next_delta += 1
    if ts > b.w.max_ts:
        b.w.max_ts = ts
    return 1


cdef object legacy_build(BatchBuilder b):
    cdef Py_ssize_t total = b.w.p - b.memory.ptr
    cdef const uint8_t* p
    cdef Py_ssize_t n
    cdef PooledBuffer out
    cdef list keep = []
    if not b.compression or not b.w.count:
        return memoryview(b.memory)[:total]
    packed = _compress().compress(b.compression, memoryview(b.memory)[:total], b.level)
    if b.compression == 3 and b.magic == 0:
        packed = _compress().lz4_break_header(packed)
    bytes_of(packed, &p, &n, keep)
    total = 26 + (8 if b.magic == 1 else 0) + n
    if total > BATCH_MAX_BYTES:
        raise ValueError(f"a compressed message set of {total} bytes is too large")
    out = PooledBuffer(total)
    legacy_put(out.ptr, b.magic, b.attributes, b.base_offset + b.w.next_delta - 1, b.w.max_ts, NULL, -1, p, n, out, 0)
    b.memory = out
    return memoryview(out)[:total]


cdef int legacy_check_crc(const uint8_t* p, Py_ssize_t size, Py_ssize_t at) except -1:
    cdef uint32_t crc = _crc32(PyMemoryView_FromMemory(<char*>p + 16, size - 4, PyBUF_READ))
    if crc != <uint32_t>kc_get32(p + 12):
        raise _CorruptDataError(f"message at offset {kc_get64(p)} has CRC {<uint32_t>kc_get32(p + 12):#010x}, its bytes have {crc:#010x}",
                                offset=at)
    return 0


cdef struct LegacyMessage:
    int64_t offset
    int64_t timestamp
    int attributes
    int magic
    const uint8_t* key
    int32_t key_len
    const uint8_t* value
    int32_t value_len


cdef int legacy_parse(const uint8_t* p, Py_ssize_t total, Py_ssize_t at, LegacyMessage* m) except -1:
    """One framed message of `total` bytes; its lengths must add up to them."""
    cdef const uint8_t* end = p + total
    cdef int i
    m.offset = kc_get64(p)
    m.magic = p[MAGIC_AT]
    m.attributes = p[MAGIC_AT + 1]
    m.timestamp = -1
    if m.offset < 0 or m.offset == INT64_MAX:
        raise _CorruptDataError(f"message has offset {m.offset}", offset=at)
    p += 18
    if m.magic == 1:
        if end - p < 16:
            raise _CorruptDataError(f"message at offset {m.offset} is too short", offset=at)
        m.timestamp = kc_get64(p)
        p += 8
    m.key_len = kc_get32(p)
    p += 4
    m.key = p
    if m.key_len < -1 or m.key_len > end - p - 4:
        raise _CorruptDataError(f"message at offset {m.offset} has key length {m.key_len}", offset=at)
    if m.key_len > 0:
        p += m.key_len
    m.value_len = kc_get32(p)
    p += 4
    m.value = p
    if m.value_len < -1 or (m.value_len if m.value_len > 0 else 0) != end - p:
        raise _CorruptDataError(f"message at offset {m.offset} has value length {m.value_len} in {end - p} bytes", offset=at)
    return 0


cdef int legacy_row(RecordColumns out, HeldBuffer region, LegacyMessage* m, int64_t offset, int64_t timestamp, int type) except -1:
    cdef const uint8_t* base = <const uint8_t*>region.view.buf
    cdef Py_ssize_t row = out.store.count
    out.store.reserve(1)
    out.add_segment(region, -1, type)
    out.store.rows.offsets[row] = offset
    out.store.rows.timestamps[row] = timestamp
    out.store.rows.key_starts[row] = m.key - base
    out.store.rows.key_lengths[row] = m.key_len
    out.store.rows.value_starts[row] = m.value - base
    out.store.rows.value_lengths[row] = m.value_len
    out.store.rows.header_starts[row] = -1
    out.store.count += 1
    return 0


cdef Py_ssize_t legacy_read(RecordColumns out, HeldBuffer region, Py_ssize_t at, Py_ssize_t total, int64_t start,
                            Py_ssize_t max_decompressed) except -1:
    """Appends the records of the framed message at region[at:], one or a compressed set, to out; returns the bytes that were unpacked."""
    cdef LegacyMessage wrapper, m
    cdef const uint8_t* base = <const uint8_t*>region.view.buf
    cdef Py_ssize_t size, inner_at, next_size
    cdef int64_t shift = 0
    cdef int64_t last = 0
    cdef HeldBuffer inner
    legacy_parse(base + at, total, at, &wrapper)
    cdef int codec = wrapper.attributes & ATTR_CODEC
    cdef bint append_time = wrapper.magic == 1 and wrapper.attributes & ATTR_LOG_APPEND_TIME
    cdef int type = -1 if wrapper.magic == 0 else append_time
    if codec == 0:
        if wrapper.offset >= start:
            legacy_row(out, region, &wrapper, wrapper.offset, wrapper.timestamp, type)
        return 0
    if codec > 3 or wrapper.value_len < 0:
        raise _CorruptDataError(f"message at offset {wrapper.offset} has compression codec {codec} and {wrapper.value_len} bytes", offset=at)
    packed = region.bytes_view()[wrapper.value - base:wrapper.value - base + wrapper.value_len]
    if codec == 3:
        try:
            packed = _compress().lz4_mend_header(packed)
        except _CorruptDataError as error:
            raise _CorruptDataError(f"message at offset {wrapper.offset}: {error}", offset=at) from error
    inner = unpack(codec, packed, max_decompressed, wrapper.offset, at)
    base = <const uint8_t*>inner.view.buf
    size = inner.view.len
    # Two passes: relative offsets count from the last one, which is known only at the end.
    inner_at = 0
    while inner_at < size:
        next_size = frame_at(base, size, inner_at, False)
        if next_size < 0 or base[inner_at + MAGIC_AT] != wrapper.magic or base[inner_at + MAGIC_AT + 1] & ATTR_CODEC:
            raise _CorruptDataError(f"compressed message set at offset {wrapper.offset}: an inner message is cut off, compressed itself or "
                                    "of another magic", offset=at)
        last = kc_get64(base + inner_at)
        inner_at += next_size
    if wrapper.magic == 1:
        shift = <int64_t>(<uint64_t>wrapper.offset - <uint64_t>last)
    inner_at = 0
    while inner_at < size:
        next_size = frame_at(base, size, inner_at, False)
        legacy_parse(base + inner_at, next_size, at, &m)
        if wrapper.magic == 1 and m.offset > last:
            raise _CorruptDataError(f"compressed message set at offset {wrapper.offset}: relative offset {m.offset}, but {last} is the last",
                                    offset=at)
        m.offset = kc_wrap_add(m.offset, shift)
        if m.offset >= start:
            legacy_row(out, inner, &m, m.offset, wrapper.timestamp if append_time else m.timestamp, type)
        inner_at += next_size
    return size


cdef list legacy_records(RecordColumns rows, object topic, int32_t partition, Py_ssize_t row, Py_ssize_t stop):
    """Rows row..stop as objects; all rows of one message (set) are in one segment."""
    cdef list out = []
    rows.topic = topic
    rows.partition = partition
    if row < stop:
        rows.append_records(out, 0, row, stop)
    return out


cdef int legacy_move(RecordColumns rows, Py_ssize_t row, Py_ssize_t count, RecordColumns out) except -1:
    """Appends count rows from `row` on to out."""
    cdef Py_ssize_t to = out.store.count
    cdef kc_rows* a = &rows.store.rows
    cdef kc_rows* b
    if count == 0:
        return 0
    out.store.reserve(count)
    b = &out.store.rows
    out.add_segment(rows.segment(0).region, -1, rows.segment(0).timestamp_type)
    memcpy(b.offsets + to, a.offsets + row, 8 * count)
    memcpy(b.timestamps + to, a.timestamps + row, 8 * count)
    memcpy(b.key_starts + to, a.key_starts + row, 4 * count)
    memcpy(b.key_lengths + to, a.key_lengths + row, 4 * count)
    memcpy(b.value_starts + to, a.value_starts + row, 4 * count)
    memcpy(b.value_lengths + to, a.value_lengths + row, 4 * count)
    memcpy(b.header_starts + to, a.header_starts + row, 4 * count)
    out.store.count += count
    return 0
