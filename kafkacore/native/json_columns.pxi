# JSON objects as the buffers of Arrow columns; json_columns.h says which values are taken.

cdef extern from "json_columns.h":
    enum: KC_JSON_SLACK
    ctypedef struct kc_json_field:
        const uint8_t* name
        int64_t name_size
        int kind
        uint8_t* validity
        uint8_t* data
        void* offsets
        uint8_t* text
        int64_t used
        int64_t capacity
        int64_t nulls
    ctypedef struct kc_json:
        kc_json_field* fields
        int64_t n_fields
        uint8_t* doubtful
        int64_t n_doubtful
        int64_t full
        int64_t needed
    void kc_json_prepare(kc_json_field* f)
    int64_t kc_json_scan(kc_json* j, const kc_column* values, int64_t row) nogil
    int64_t kc_json_scan_records(kc_json* j, const uint8_t* base, int64_t region, const int32_t* starts, const int32_t* lengths,
                                 int64_t row, int64_t stop) nogil

cdef dict JSON_WIDTHS = {"c": 1, "s": 2, "i": 4, "l": 8, "f": 4, "g": 8, "v": 16}


cdef PooledBuffer filled(Py_ssize_t nbytes, int byte):
    cdef PooledBuffer made = PooledBuffer(nbytes)
    memset(made.ptr, byte, nbytes)
    return made


@cython.final
@cython.no_gc
cdef class JsonScan:
    """The columns of one scan, and their memory.

    Args:
        count: how many values.
        room: at least as many bytes as all of them together.
        names, kinds: as `json_columns`.
    """
    cdef kc_json j
    cdef Py_ssize_t count, room
    cdef PooledBuffer fields, doubtful
    cdef tuple names
    cdef list buffers                                      # [validity, offsets, data, text] of each

    def __cinit__(self, Py_ssize_t count, Py_ssize_t room, tuple names not None, str kinds not None):
        cdef Py_ssize_t n = len(names)
        cdef Py_ssize_t bitmap_bytes = (count + 7) // 8
        cdef Py_ssize_t i
        cdef kc_json_field* f
        cdef PooledBuffer validity, offsets, data, text
        if len(kinds) != n:
            raise ValueError(f"{n} names and {len(kinds)} kinds")
        self.count, self.room, self.names = count, room, names
        self.fields = filled(n * sizeof(kc_json_field), 0)
        self.doubtful = filled(bitmap_bytes, 0)
        self.buffers = []
        self.j.fields = <kc_json_field*>self.fields.ptr
        self.j.n_fields = n
        self.j.doubtful = self.doubtful.ptr
        for i in range(n):
            name, kind = <bytes?>names[i], kinds[i]
            f = &self.j.fields[i]
            f.name, f.name_size, f.kind = <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), ord(kind)
            kc_json_prepare(f)
            validity, offsets, data, text = filled(bitmap_bytes, 0xff), None, None, None
            if kind in "uU":
                offsets = PooledBuffer((4 if kind == "u" else 8) * (count + 1))
                memset(offsets.ptr, 0, 4 if kind == "u" else 8)
                f.offsets = offsets.ptr
                f.capacity = min(16 * count, room)         # mostly enough or nearly so, and never more than all the values
            elif kind == "b":
                data = filled(bitmap_bytes, 0)
            elif kind in JSON_WIDTHS:
                data = PooledBuffer(<Py_ssize_t>JSON_WIDTHS[kind] * count)
            else:
                raise ValueError(f"no kind of a JSON column: {kind!r}")
            if kind in "uUv":
                text = PooledBuffer(f.capacity + KC_JSON_SLACK)
                f.text = text.ptr
            f.validity = validity.ptr
            if data is not None:
                f.data = data.ptr
            self.buffers.append([validity, offsets, data, text])

    cdef int grow(self) except -1:
        """Makes the room that the scan has asked for."""
        cdef kc_json_field* f = &self.j.fields[self.j.full]
        cdef PooledBuffer text
        f.capacity = max(self.j.needed, min(max(2 * f.capacity, 4 * self.count), self.room))
        text = PooledBuffer(f.capacity + KC_JSON_SLACK)
        memcpy(text.ptr, f.text, f.used)
        f.text = text.ptr
        (<list>self.buffers[self.j.full])[3] = text
        return 0

    cdef list column(self, Py_ssize_t i):
        """Validity or None, and the other buffers of a column: offsets and text, or data; for views also the text, if there is any."""
        cdef kc_json_field* f = &self.j.fields[i]
        validity, offsets, data, text = <list>self.buffers[i]
        if f.nulls == 0:
            validity = None
        if f.kind == c"u" or f.kind == c"U":
            return [validity, offsets, text]
        return [validity, data, text] if f.kind == c"v" and f.used else [validity, data]


def json_columns(values, tuple names, str kinds):
    """The fields of JSON objects, for Arrow: of all values that this scanner reads as any JSON parser would.

    Args:
        values: an Arrow binary array.
        names: of the fields, each one once, UTF-8.
        kinds: a letter for each as in Arrow's C interface: c s i l (int8 to int64), f g (float, double), b (boolean), u (string),
            U (large string), v (string view).

    Returns:
        For each field how many nulls there are and its Arrow buffers (validity or None; for strings offsets; data; for string views the
        views, and where strings do not fit them a buffer of those); and a bitmap of the values that a general parser must
        read, which are rows of nulls here; None if this scanner read them all.

    Raises:
        TypeError: the values are something else.
        ValueError: an unknown kind, or offsets that are not inside the data.
    """
    cdef ColumnSource source = column_of(values, -1)
    cdef Py_ssize_t count = source.count
    cdef Py_ssize_t room = 0
    cdef Py_ssize_t i
    cdef int64_t row = 0
    cdef JsonScan scan
    cdef list own
    if source.c.kind != KC_COL_OFFSETS32 and (source.c.kind != KC_COL_NULLS or count):
        raise TypeError("JSON is read of Arrow binary arrays")
    if count:
        room = max(source.c.limit - kc_offset_at(source.c.offsets, 0, 0), 0)
    scan = JsonScan(count, room, names, kinds)
    while True:
        with nogil:
            row = kc_json_scan(&scan.j, &source.c, row)
        if row == count:
            break
        if scan.j.full < 0:
            raise ValueError(f"item {row} of the column: its offsets are not inside its data")
        scan.grow()
    found = []
    for i in range(scan.j.n_fields):
        own = scan.column(i)
        if len(own) == 3:
            own[2] = memoryview(own[2])[:scan.j.fields[i].used]
        found.append((scan.j.fields[i].nulls, own))
    return found, (scan.doubtful if scan.j.n_doubtful else None)
