# Message sets, the format before record batches (magic 0: Kafka 0.8 and 0.9, magic 1: 0.10).
#
# A message: offset i64 | size i32 | crc u32 (CRC-32, not C, of what follows) | magic i8 | attributes i8 (codec 0-2, timestamp type 3)
#   | timestamp i64 (magic 1 only) | key length i32, key | value length i32, value.
# A compressed set is one wrapper message whose value is the compressed set. The wrapper has the offset of its last message.
# Odd rules: inner offsets are absolute in magic 0 and relative (0, 1, ..) in magic 1; a magic 1 wrapper with log append time
# gives its timestamp to all inside; LZ4 of magic 0 has a header checksum over the wrong bytes (KIP-57, mended by compress.py).

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
    out = PooledBuffer(total)
    legacy_put(out.ptr, b.magic, b.attributes, b.base_offset + b.w.next_delta - 1, b.w.max_ts, NULL, -1, p, n, out, 0)
    b.memory = out
    return memoryview(out)[:total]
