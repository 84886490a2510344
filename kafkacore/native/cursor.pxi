# The checked cursor: every read of wire bytes outside the record loops goes through it.
#
# A Cursor is three pointers into memory that its owner keeps alive: p moves from start to end. A read checks first, then moves p;
# a failed read leaves p where the field began, so the CorruptDataError's offset names the field. Lengths and counts are checked
# against the bytes that remain before anything is allocated or built from them.
#
# Names: cursor_<type>(c). Lengths come back as Py_ssize_t with -1 for null, already known to fit the remaining bytes.
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kafkacore.errors import CorruptDataError as _CorruptDataError
from kafkacore.errors import DecompressedTooLarge as _DecompressedTooLarge


cdef extern from "wire.h" nogil:
    enum:
        KC_BATCH_HEADER
        KC_MAX_VARINT
        KC_MAX_VARLONG
    size_t kc_uvarint_size(uint64_t v)
    size_t kc_varint_size(int64_t v)
    uint8_t* kc_put_uvarint(uint8_t* p, uint64_t v)
    uint8_t* kc_put_varint(uint8_t* p, int64_t v)
    const uint8_t* kc_get_uvarint(const uint8_t* p, const uint8_t* end, int max_bytes, uint64_t* out)
    const uint8_t* kc_get_varint(const uint8_t* p, const uint8_t* end, int max_bytes, int64_t* out)
    void kc_put16(uint8_t* p, int16_t v)
    void kc_put32(uint8_t* p, int32_t v)
    void kc_put64(uint8_t* p, int64_t v)
    int16_t kc_get16(const uint8_t* p)
    int32_t kc_get32(const uint8_t* p)
    int64_t kc_get64(const uint8_t* p)


cdef struct Cursor:
    const uint8_t* p
    const uint8_t* end
    const uint8_t* start


cdef inline void cursor_init(Cursor* c, const void* data, Py_ssize_t size) noexcept nogil:
    c.p = c.start = <const uint8_t*>data
    c.end = c.p + size


cdef inline Py_ssize_t cursor_remaining(const Cursor* c) noexcept nogil:
    return c.end - c.p


cdef inline Py_ssize_t cursor_offset(const Cursor* c) noexcept nogil:
    return c.p - c.start


cdef int raise_corrupt(str what, Py_ssize_t offset) except -1:
    """Raises CorruptDataError naming the byte where the broken field begins."""
    raise _CorruptDataError(what, offset=offset)


cdef int cursor_truncated(const Cursor* c, Py_ssize_t needed) except -1:
    raise _CorruptDataError(f"truncated: {needed} bytes needed, {c.end - c.p} left", offset=c.p - c.start)


cdef inline int cursor_need(const Cursor* c, Py_ssize_t n) except -1:
    if c.end - c.p < n:
        cursor_truncated(c, n)
    return 0


cdef inline const uint8_t* cursor_take(Cursor* c, Py_ssize_t n) except NULL:
    """The next n bytes; n must not be negative."""
    cursor_need(c, n)
    cdef const uint8_t* p = c.p
    c.p += n
    return p


cdef inline int8_t cursor_i8(Cursor* c) except? -1:
    cursor_need(c, 1)
    c.p += 1
    return <int8_t>(c.p - 1)[0]


cdef inline int16_t cursor_i16(Cursor* c) except? -1:
    cursor_need(c, 2)
    c.p += 2
    return kc_get16(c.p - 2)


cdef inline int32_t cursor_i32(Cursor* c) except? -1:
    cursor_need(c, 4)
    c.p += 4
    return kc_get32(c.p - 4)


cdef inline uint32_t cursor_u32(Cursor* c) except? 0xFFFFFFFF:
    cursor_need(c, 4)
    c.p += 4
    return <uint32_t>kc_get32(c.p - 4)


cdef inline int64_t cursor_i64(Cursor* c) except? -1:
    cursor_need(c, 8)
    c.p += 8
    return kc_get64(c.p - 8)


cdef inline double cursor_f64(Cursor* c) except? -1.0:
    cdef int64_t bits
    cdef double value
    cursor_need(c, 8)
    bits = kc_get64(c.p)
    memcpy(&value, &bits, 8)
    c.p += 8
    return value


cdef int bad_varint(const uint8_t* p, const uint8_t* end, int max_bytes, Py_ssize_t offset) except -1:
    """Raises: tells a varint that stops at the end of the bytes from one that is longer than its type."""
    cdef int i
    for i in range(max_bytes):
        if p + i >= end:
            raise _CorruptDataError("truncated varint", offset=offset)
        if p[i] < 0x80:
            break
    raise _CorruptDataError(f"varint does not fit {32 if max_bytes == KC_MAX_VARINT else 64} bits", offset=offset)


cdef inline uint32_t cursor_uvarint(Cursor* c) except? 0xFFFFFFFF:
    cdef uint64_t v = 0
    cdef const uint8_t* p
    if c.p < c.end and c.p[0] < 0x80:                   # most lengths take one byte
        c.p += 1
        return (c.p - 1)[0]
    p = kc_get_uvarint(c.p, c.end, KC_MAX_VARINT, &v)
    if p == NULL:
        bad_varint(c.p, c.end, KC_MAX_VARINT, c.p - c.start)
    c.p = p
    return <uint32_t>v


cdef inline int32_t cursor_varint(Cursor* c) except? -1:
    cdef int64_t v = 0
    cdef const uint8_t* p = kc_get_varint(c.p, c.end, KC_MAX_VARINT, &v)
    if p == NULL:
        bad_varint(c.p, c.end, KC_MAX_VARINT, c.p - c.start)
    c.p = p
    return <int32_t>v


cdef inline uint64_t cursor_uvarlong(Cursor* c) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t v = 0
    cdef const uint8_t* p = kc_get_uvarint(c.p, c.end, KC_MAX_VARLONG, &v)
    if p == NULL:
        bad_varint(c.p, c.end, KC_MAX_VARLONG, c.p - c.start)
    c.p = p
    return v


cdef inline int64_t cursor_varlong(Cursor* c) except? -1:
    cdef int64_t v = 0
    cdef const uint8_t* p = kc_get_varint(c.p, c.end, KC_MAX_VARLONG, &v)
    if p == NULL:
        bad_varint(c.p, c.end, KC_MAX_VARLONG, c.p - c.start)
    c.p = p
    return v


cdef inline Py_ssize_t cursor_checked_length(Cursor* c, int64_t n, const uint8_t* field) except -2:
    """n if it is -1 (null) or fits the remaining bytes; otherwise puts the cursor back on the field and raises."""
    cdef Py_ssize_t left = c.end - c.p
    if n < -1 or n > left:
        c.p = field
        if n < -1:
            raise _CorruptDataError(f"negative length {n}", offset=field - c.start)
        raise _CorruptDataError(f"length {n} is more than the {left} bytes left", offset=field - c.start)
    return <Py_ssize_t>n


cdef inline Py_ssize_t cursor_string_length(Cursor* c, bint compact) except -2:
    """STRING: int16 length; COMPACT_STRING: unsigned varint length + 1. -1 is null."""
    cdef const uint8_t* field = c.p
    cdef int64_t n = <int64_t>cursor_uvarint(c) - 1 if compact else cursor_i16(c)
    return cursor_checked_length(c, n, field)


cdef inline Py_ssize_t cursor_bytes_length(Cursor* c, bint compact) except -2:
    """BYTES and RECORDS: int32 length; their compact forms: unsigned varint length + 1. -1 is null."""
    cdef const uint8_t* field = c.p
    cdef int64_t n = <int64_t>cursor_uvarint(c) - 1 if compact else cursor_i32(c)
    return cursor_checked_length(c, n, field)


cdef inline Py_ssize_t cursor_array_length(Cursor* c, bint compact, Py_ssize_t smallest_element_bytes) except -2:
    """ARRAY: int32 count; COMPACT_ARRAY: unsigned varint count + 1. -1 is null. A count whose smallest elements
    cannot fit the remaining bytes is refused here, before a list of that size is made."""
    cdef const uint8_t* field = c.p
    cdef int64_t n = <int64_t>cursor_uvarint(c) - 1 if compact else cursor_i32(c)
    cdef Py_ssize_t left = c.end - c.p
    if n < -1 or n > left // max(smallest_element_bytes, 1):
        c.p = field
        raise _CorruptDataError(f"array of {n} elements does not fit the {left} bytes left", offset=field - c.start)
    return <Py_ssize_t>n


cdef inline str cursor_utf8(Cursor* c, Py_ssize_t n):
    """The next n bytes (already checked to be there) as text."""
    cdef str text
    try:
        text = PyUnicode_DecodeUTF8(<const char*>c.p, n, NULL)
    except UnicodeDecodeError as error:
        raise _CorruptDataError(f"string is not UTF-8: {error.reason}", offset=c.p - c.start) from None
    c.p += n
    return text


cdef inline str cursor_string(Cursor* c, bint compact):
    """str, or None for null."""
    cdef Py_ssize_t n = cursor_string_length(c, compact)
    return None if n < 0 else cursor_utf8(c, n)


cdef inline bytes cursor_bytes(Cursor* c, bint compact):
    """bytes (a copy), or None for null."""
    cdef Py_ssize_t n = cursor_bytes_length(c, compact)
    if n < 0:
        return None
    c.p += n
    return PyBytes_FromStringAndSize(<const char*>(c.p - n), n)


cdef inline int cursor_skip_tagged_fields(Cursor* c) except -1:
    """Steps over a tagged-field section whose fields are not known here."""
    cdef uint32_t count = cursor_uvarint(c)
    cdef uint32_t i
    for i in range(count):                              # each turn consumes at least two bytes or raises
        cursor_uvarint(c)
        cursor_take(c, cursor_uvarint(c))
    return 0
