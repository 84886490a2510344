# Varints for Python: one at a time, and whole numpy arrays.
from cpython.ref cimport Py_DECREF, PyObject

cdef extern from "varints.h" nogil:
    uint8_t* kc_put_varints(uint8_t* p, const uint64_t* v, size_t n, int zigzag)
    const uint8_t* kc_get_varints(const uint8_t* p, const uint8_t* end, uint64_t* v, size_t n, int zigzag, const uint8_t** bad)

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject** obj, Py_ssize_t size) except -1
    PyObject* _bytes_of_size "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL

# numpy is loaded by the first array: importing it takes longer than all the rest of a command line tool's start
cdef object _asarray = None, _ascontiguousarray = None, _empty = None, _INT64 = None, _UINT64 = None


cdef int load_numpy() except -1:
    global _asarray, _ascontiguousarray, _empty, _INT64, _UINT64
    import numpy
    _ascontiguousarray, _empty = numpy.ascontiguousarray, numpy.empty
    _INT64, _UINT64 = numpy.dtype(numpy.int64), numpy.dtype(numpy.uint64)
    _asarray = numpy.asarray
    return 0


def encode_varint(int64_t value):
    """A zig-zag varint of up to 64 bits.

    Args:
        value: -2**63 to 2**63 - 1.

    Returns:
        1 to 10 bytes.

    Raises:
        OverflowError: the value does not fit 64 bits.

    Source: Kafka's ByteUtils.writeVarlong; Protocol Buffers' sint64.
    """
    cdef uint8_t out[KC_MAX_VARLONG]
    return PyBytes_FromStringAndSize(<char*>out, kc_put_varint(out, value) - out)


def encode_unsigned_varint(uint64_t value):
    """A plain varint of up to 64 bits.

    Args:
        value: 0 to 2**64 - 1.

    Returns:
        1 to 10 bytes.

    Raises:
        OverflowError: the value is negative or does not fit 64 bits.

    Source: Kafka's ByteUtils.writeUnsignedVarint.
    """
    cdef uint8_t out[KC_MAX_VARLONG]
    return PyBytes_FromStringAndSize(<char*>out, kc_put_uvarint(out, value) - out)


cdef inline Py_ssize_t decode_one(object buffer, Py_ssize_t pos, uint64_t* value) except -1:
    """The position after the varint at pos."""
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef const uint8_t* next
    cdef Py_ssize_t size
    if type(buffer) is bytes:
        start = <const uint8_t*>PyBytes_AS_STRING(buffer)
        size = PyBytes_GET_SIZE(buffer)
        if pos < 0 or pos > size:
            raise ValueError(f"pos {pos} is not in a buffer of {size} bytes")
        if pos < size and start[pos] < 0x80:
            value[0] = start[pos]
            return pos + 1
        next = kc_get_uvarint(start + pos, start + size, KC_MAX_VARLONG, value)
        if next == NULL:
            bad_varint(start + pos, start + size, KC_MAX_VARLONG, pos)
        return next - start
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        if pos < 0 or pos > view.len:
            raise ValueError(f"pos {pos} is not in a buffer of {view.len} bytes")
        next = kc_get_uvarint(start + pos, start + view.len, KC_MAX_VARLONG, value)
        if next == NULL:
            bad_varint(start + pos, start + view.len, KC_MAX_VARLONG, pos)
        return next - start
    finally:
        PyBuffer_Release(&view)


def decode_varint(buffer not None, Py_ssize_t pos=0):
    """Reads a zig-zag varint of up to 64 bits.

    Args:
        buffer: a contiguous bytes-like object.
        pos: where the varint begins.

    Returns:
        (value, position after it).

    Raises:
        CorruptDataError: the varint is truncated or does not fit 64 bits.
        ValueError: pos is not in the buffer.
    """
    cdef uint64_t u = 0
    pos = decode_one(buffer, pos, &u)
    return (<int64_t>(u >> 1) ^ -<int64_t>(u & 1), pos)


def decode_unsigned_varint(buffer not None, Py_ssize_t pos=0):
    """Reads a plain varint of up to 64 bits; otherwise like decode_varint()."""
    cdef uint64_t u = 0
    pos = decode_one(buffer, pos, &u)
    return (u, pos)


cdef object as_words(object values, bint signed):
    """A contiguous one-dimensional array of 64-bit integers with the values; perhaps the caller's own, which may change."""
    if _asarray is None:
        load_numpy()
    cdef object array = _asarray(values)
    cdef object dtype = _INT64 if signed else _UINT64
    if array.ndim != 1:
        raise ValueError(f"one dimension wanted, not {array.ndim}")
    if array.dtype != dtype:
        if array.size == 0:
            return _empty(0, dtype)
        kind = array.dtype.kind
        if kind not in "iu":
            raise TypeError(f"integers wanted, not {array.dtype}")
        if signed and kind == "u" and int(array.max()) > INT64_MAX:
            raise OverflowError("value does not fit a signed 64-bit integer")
        if not signed and kind == "i" and int(array.min()) < 0:
            raise OverflowError("an unsigned varint cannot be negative")
        array = array.astype(dtype)
    return _ascontiguousarray(array)


cdef object encode_array(object values, bint zigzag):
    cdef object array = as_words(values, zigzag)
    cdef Py_buffer view
    cdef PyObject* out = NULL
    cdef const uint64_t* words
    cdef uint8_t* start
    cdef uint8_t* stop
    cdef size_t n
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    try:
        words = <const uint64_t*>view.buf
        n = view.len // 8
        if n == 0:
            return b""
        out = _bytes_of_size(NULL, n * KC_MAX_VARLONG + 8)  # pages that are never written cost nothing
        start = <uint8_t*>PyBytes_AS_STRING(<object>out)
        stop = kc_put_varints(start, words, n, zigzag)
    finally:
        PyBuffer_Release(&view)
    _PyBytes_Resize(&out, stop - start)
    result = <object>out
    Py_DECREF(result)                                       # the reference that out held
    return result


cdef tuple decode_array(object buffer, Py_ssize_t count, Py_ssize_t pos, bint zigzag):
    cdef Py_buffer view, target
    cdef const uint8_t* start
    cdef const uint8_t* next
    cdef const uint8_t* bad = NULL
    cdef object array
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if pos < 0 or pos > view.len:
            raise ValueError(f"pos {pos} is not in a buffer of {view.len} bytes")
        if count < 0:
            raise ValueError(f"count must not be negative: {count}")
        if count > view.len - pos:                          # a varint has at least one byte; checked before the array is made
            raise _CorruptDataError(f"{count} varints do not fit the {view.len - pos} bytes left", offset=pos)
        if _asarray is None:
            load_numpy()
        array = _empty(count, _INT64 if zigzag else _UINT64)
        PyObject_GetBuffer(array, &target, PyBUF_WRITABLE)
        start = <const uint8_t*>view.buf
        next = kc_get_varints(start + pos, start + view.len, <uint64_t*>target.buf, count, zigzag, &bad)
        PyBuffer_Release(&target)
        if next == NULL:
            bad_varint(bad, start + view.len, KC_MAX_VARLONG, bad - start)
        return (array, next - start)
    finally:
        PyBuffer_Release(&view)


def encode_varints(values not None):
    """The zig-zag varints of an array of integers, one after the other.

    Args:
        values: a one-dimensional array or sequence of integers that fit 64 bits; a contiguous int64 array is read in place.

    Returns:
        bytes.

    Raises:
        TypeError: the values are not integers.
        OverflowError: a value does not fit 64 bits.
    """
    return encode_array(values, True)


def encode_unsigned_varints(values not None):
    """The plain varints of an array of non-negative integers; uint64 arrays are read in place. Otherwise like encode_varints()."""
    return encode_array(values, False)


def decode_varints(buffer not None, Py_ssize_t count, Py_ssize_t pos=0):
    """Reads `count` zig-zag varints.

    Args:
        buffer: a contiguous bytes-like object.
        count: how many; a count that cannot fit the remaining bytes is refused before an array is made for it.
        pos: where the first one begins.

    Returns:
        (int64 array, position after the last one).

    Raises:
        CorruptDataError: the bytes end too early, or a varint does not fit 64 bits.
        ValueError: count is negative or pos is not in the buffer.
    """
    return decode_array(buffer, count, pos, True)


def decode_unsigned_varints(buffer not None, Py_ssize_t count, Py_ssize_t pos=0):
    """Reads `count` plain varints into a uint64 array; otherwise like decode_varints()."""
    return decode_array(buffer, count, pos, False)
