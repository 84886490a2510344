# JSON objects as the buffers of Arrow columns; json_columns.h says which values are taken.

cdef extern from "json_columns.h":
    ctypedef struct kc_json_field:
        const uint8_t* name
        int64_t name_size
        int kind
        uint8_t* validity
        uint8_t* data
        int32_t* offsets
        int64_t used
        int64_t capacity
        int64_t valid
    ctypedef struct kc_json:
        kc_json_field* fields
        int64_t n_fields
        uint8_t* doubtful
        int64_t n_doubtful
        int64_t full
        int64_t needed
    int64_t kc_json_scan(kc_json* j, const kc_column* values, int64_t row) nogil

cdef dict JSON_WIDTHS = {"c": 1, "s": 2, "i": 4, "l": 8, "f": 4, "g": 8}


cdef PooledBuffer zeros(Py_ssize_t nbytes):
    cdef PooledBuffer made = PooledBuffer(nbytes)
    memset(made.ptr, 0, nbytes)
    return made


def json_columns(values, tuple names, str kinds):
    """The fields of JSON objects, for Arrow: those of all values about which there is no doubt.

    Args:
        values: an Arrow binary array.
        names: of the fields, each one once, UTF-8.
        kinds: a letter for each as in Arrow's C interface: c s i l (int8 to int64), f g (float, double), b (boolean), u (string).

    Returns:
        For each field how many nulls there are and its Arrow buffers (validity or None; for strings offsets; data); and a bitmap of the
        values that are rows of nulls here because another reader must look at them, or None if there is none.

    Raises:
        TypeError: the values are something else.
        ValueError: an unknown kind, or offsets that are not inside the data.
    """
    cdef ColumnSource source = column_of(values, -1)
    cdef Py_ssize_t count = source.count
    cdef Py_ssize_t bitmap_bytes = (count + 7) // 8
    cdef Py_ssize_t n = len(names)
    cdef Py_ssize_t room = 0
    cdef Py_ssize_t i
    cdef kc_json j
    cdef kc_json_field* f
    cdef PooledBuffer validity, offsets, data
    if source.c.kind != KC_COL_OFFSETS32 and (source.c.kind != KC_COL_NULLS or count):
        raise TypeError("JSON is read of Arrow binary arrays")
    if count:
        room = max(source.c.limit - kc_offset_at(source.c.offsets, 0, 0), 0)
    if len(kinds) != n:
        raise ValueError(f"{n} names and {len(kinds)} kinds")
    cdef PooledBuffer fields = zeros(n * sizeof(kc_json_field))
    cdef PooledBuffer doubtful = zeros(bitmap_bytes)
    cdef list buffers = []                                 # [validity, offsets, data] of each
    memset(&j, 0, sizeof(j))
    j.fields = <kc_json_field*>fields.ptr
    j.n_fields = n
    j.doubtful = doubtful.ptr
    for i in range(n):
        name, kind = <bytes?>names[i], kinds[i]
        validity, offsets = zeros(bitmap_bytes), None
        f = &j.fields[i]
        f.name, f.name_size, f.kind = <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), ord(kind)
        if kind == "u":
            f.capacity = min(16 * count, room)             # mostly enough or nearly so, and never more than all the values
            offsets, data = PooledBuffer(4 * (count + 1)), PooledBuffer(f.capacity)
            f.offsets = <int32_t*>offsets.ptr
            f.offsets[0] = 0
        elif kind == "b":
            data = zeros(bitmap_bytes)
        elif kind in JSON_WIDTHS:
            data = zeros(<Py_ssize_t>JSON_WIDTHS[kind] * count)
        else:
            raise ValueError(f"no kind of a JSON column: {kind!r}")
        f.validity, f.data = validity.ptr, data.ptr
        buffers.append([validity, offsets, data])
    cdef int64_t row = 0
    while True:
        with nogil:
            row = kc_json_scan(&j, &source.c, row)
        if row == count:
            break
        if j.full < 0:
            raise ValueError(f"item {row} of the column: its offsets are not inside its data")
        f = &j.fields[j.full]
        data = PooledBuffer(max(j.needed, min(2 * f.capacity, room)))
        memcpy(data.ptr, f.data, f.used)
        f.data, f.capacity = data.ptr, data.nbytes
        buffers[j.full][2] = data
    found = []
    for i in range(n):
        f = &j.fields[i]
        own = buffers[i]
        validity = None if f.valid == count else own[0]
        if f.kind == c"u":
            found.append((count - f.valid, [validity, own[1], memoryview(own[2])[:f.used]]))
        else:
            found.append((count - f.valid, [validity, own[2]]))
    return found, (doubtful if j.n_doubtful else None)
