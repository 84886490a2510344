# The headers of many records, encoded out of columns without an object per header.


@cython.final
cdef class HeaderColumn:
    """What `send_many` takes as headers: those of each record, made of columns.

    A sequence, too: item i is the tuple of (name, value) of record i, as ConsumerRecord.headers is.

    Args:
        counts: how many headers each record has: an array of integers.
        names: the names of all of them, one after the other: a column of UTF-8 without nulls, anything `ColumnSource` takes.
        values: their values, likewise; null where a header has none.

    Raises:
        ValueError: the columns do not fit each other, or a header has no name.
    """
    cdef ColumnSource encoded

    def __cinit__(self, counts, names, values):
        import numpy
        cdef ColumnSource name = column_of(names, -1)
        cdef ColumnSource value = column_of(values, name.count)
        given = numpy.array(counts, numpy.int64, order="C")       # a copy: they are read twice, and say where in the columns to read
        if given.ndim != 1:
            raise ValueError("the numbers of headers have one dimension")
        cdef const int64_t[::1] number = given
        cdef Py_ssize_t n = number.shape[0]
        cdef PooledBuffer ends = PooledBuffer(8 * (n + 1))
        cdef int64_t* end = <int64_t*>ends.ptr
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t i
        cdef int64_t j
        cdef int64_t total = 0
        cdef const uint8_t* p
        cdef Py_ssize_t size
        for i in range(n):
            if not 0 <= number[i] <= name.count - at:
                raise ValueError(f"record {i} has {number[i]} headers; of the {name.count} there are {name.count - at} left")
            if number[i]:
                total += kc_varint_size(number[i])
            for j in range(at, at + number[i]):
                name.get(j, &p, &size)
                if size < 0:
                    raise ValueError(f"a header of record {i} has no name")
                total += kc_varint_size(size) + size
                value.get(j, &p, &size)
                total += kc_varint_size(size) + max(size, 0)
            at += number[i]
        if at != name.count:
            raise ValueError(f"the records have {at} headers, and there are {name.count}")
        cdef PooledBuffer data = PooledBuffer(total)
        cdef uint8_t* w = data.ptr
        cdef const uint8_t* limit = w + total
        at = 0
        end[0] = 0
        for i in range(n):
            if number[i]:
                w = put_sized(w, limit, number[i], NULL)
            for j in range(at, at + number[i]):
                name.get(j, &p, &size)
                w = put_sized(w, limit, size, p)
                value.get(j, &p, &size)
                w = put_sized(w, limit, size, p)
            at += number[i]
            end[i + 1] = w - data.ptr
        self.encoded = ColumnSource((data, memoryview(ends).cast("q")))

    def __len__(self):
        return self.encoded.count

    def __getitem__(self, Py_ssize_t i):
        cdef const uint8_t* p
        cdef Py_ssize_t size
        if i < 0:
            i += self.encoded.count
        if i < 0 or i >= self.encoded.count:
            raise IndexError("column index out of range")
        self.encoded.get(i, &p, &size)
        return decode_headers(p, p + size) if size else ()


cdef uint8_t* put_sized(uint8_t* w, const uint8_t* limit, int64_t size, const uint8_t* p) except NULL:
    """A varint, and so many bytes from p unless it is NULL. The columns are read twice, and their memory is the caller's."""
    if <int64_t>kc_varint_size(size) + (max(size, 0) if p != NULL else 0) > limit - w:
        raise ValueError("headers were changed while they were read")
    w = kc_put_varint(w, size)
    if p != NULL and size > 0:
        memcpy(w, p, size)
        w += size
    return w
