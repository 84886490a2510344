# Records as Arrow's structs, for whoever takes PyCapsules, and as pyarrow's arrays.
#
#     struct: key, value, topic (dictionary), partition, offset, timestamp (ms, UTC), timestamp_type [, headers]
#
# Keys and values are views of the fetched bytes (binary_view), or one compact copy (binary); with text they are checked to be UTF-8 and
# named so (utf8_view, utf8). Offsets and timestamps are those of the RowStore. Nothing else is as large as the records.
#
# Each array's owner (arrow_out.h) is the list of its buffers: PooledBuffers, and the HeldBuffers of the fetched regions.

from libc.stdlib cimport calloc
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from kafkacore.errors import SerializationError as _SerializationError

cdef extern from "utf8.h" nogil:
    int kc_utf8_valid(const uint8_t* p, const uint8_t* end)

cdef extern from "arrow_out.h":
    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
        int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
        const char* (*get_last_error)(ArrowArrayStream*) noexcept
        void (*release)(ArrowArrayStream*) noexcept
        void* private_data
    const void* kc_arrow_nothing
    bint kc_arrow_array(ArrowArray* a, int64_t length, int64_t nulls, int64_t n_buffers, int64_t n_children, PyObject* owner)
    bint kc_arrow_schema(ArrowSchema* s, const char* format, const char* name, bint nullable, int64_t n_children)
    bint kc_arrow_dictionary(ArrowSchema* s, ArrowArray* a)
    void kc_arrow_drop(void* owner) nogil

cdef extern from "Python.h":
    void PyErr_SetInterrupt()

cdef enum:
    ARROW_BINARY, ARROW_STRING, ARROW_VIEW, ARROW_STRING_VIEW
    ERROR_INTERRUPTED = 4
    ERROR_IO = 5
    ERROR_MEMORY = 12

cdef dict ARROW_KINDS = {"binary": ARROW_BINARY, "string": ARROW_STRING, "view": ARROW_VIEW, "string view": ARROW_STRING_VIEW}


cdef PooledBuffer validity_bitmap(const int32_t* lengths, Py_ssize_t n, Py_ssize_t* nulls):
    """An Arrow bitmap of the lengths that are not negative; None when all are."""
    cdef PooledBuffer bits
    cdef Py_ssize_t i
    nulls[0] = 0
    for i in range(n):
        nulls[0] += lengths[i] < 0
    if nulls[0] == 0:
        return None
    bits = PooledBuffer((n + 7) // 8)
    memset(bits.ptr, 0, bits.nbytes)
    for i in range(n):
        bits.ptr[i >> 3] |= (lengths[i] >= 0) << (i & 7)
    return bits


cdef list binary_buffers(ByteColumn column, Py_ssize_t n, Py_ssize_t* nulls):
    """Validity or None, offsets and data of the first n items, copied once."""
    cdef Py_ssize_t row, s, stop
    cdef int64_t total = 0
    cdef const uint8_t* base
    cdef PooledBuffer bits = validity_bitmap(column.length, n, nulls)
    cdef PooledBuffer offsets = PooledBuffer(4 * (n + 1))
    cdef int32_t* ends = <int32_t*>offsets.ptr
    cdef PooledBuffer data
    cdef uint8_t* p
    for row in range(n):
        if column.length[row] > 0:
            total += column.length[row]
    if total > 0x7fffffff:
        raise OverflowError(f"{total} bytes do not fit a binary column: take fewer records, or view=True")
    data = PooledBuffer(total + KC_SLACK)
    p = data.ptr
    ends[0] = 0
    row = 0
    for s in range(column.of.segment_count()):
        stop = min(column.of.segment_stop(s), n)
        if stop <= row:
            break
        base = <const uint8_t*>column.of.segment(s).region.view.buf
        kc_gather(&p, base, base + column.of.segment(s).region.view.len, column.start + row, column.length + row,
                  stop - row, data.ptr, ends + row + 1)
        row = stop
    return [bits, offsets, data]


cdef list view_buffers(ByteColumn column, Py_ssize_t n, Py_ssize_t* nulls):
    """Validity or None, views, and the regions that these point into, of the first n items."""
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t s, stop
    cdef int32_t block
    cdef const uint8_t* base
    cdef int32_t* view
    cdef int32_t length
    cdef PooledBuffer bits = validity_bitmap(column.length, n, nulls)
    cdef PooledBuffer views = PooledBuffer(16 * n)
    cdef list blocks = []
    cdef HeldBuffer region = None
    for s in range(column.of.segment_count()):
        stop = min(column.of.segment_stop(s), n)
        if stop <= row:
            break
        if column.of.segment(s).region is not region:
            region = column.of.segment(s).region
            blocks.append(region)
        base = <const uint8_t*>region.view.buf
        block = len(blocks) - 1
        while row < stop:
            view = <int32_t*>(views.ptr + 16 * row)
            length = column.length[row]
            memset(view, 0, 16)
            if length > 12:
                view[0] = length
                memcpy(view + 1, base + column.start[row], 4)
                view[2] = block
                view[3] = column.start[row]
            elif length > 0:
                view[0] = length
                memcpy(view + 1, base + column.start[row], length)
            row += 1
    return [bits, views, *blocks]


@cython.final
cdef class HeaderBuffers:
    """The headers of the first n rows as lists of (key, value), measured first and copied once; keys that are not UTF-8 as `decode_headers`
    reads them."""
    cdef Py_ssize_t count, nulls, value_nulls
    cdef list lists                                # validity or None, offsets
    cdef list keys                                 # None, offsets, data
    cdef list values                               # validity or None, offsets, data
    cdef Py_ssize_t key_bytes


cdef HeaderBuffers header_buffers(RecordColumns of, Py_ssize_t n, bint none_is_null):
    cdef HeaderBuffers made = HeaderBuffers.__new__(HeaderBuffers)
    cdef const int32_t* starts = of.store.rows.header_starts
    cdef Py_ssize_t row, s, stop
    cdef HeldBuffer region
    cdef const uint8_t* base
    cdef const uint8_t* end
    cdef kc_header_sizes sizes
    memset(&sizes, 0, sizeof(sizes))
    row = 0
    for s in range(of.segment_count()):
        stop = min(of.segment_stop(s), n)
        if stop <= row:
            break
        region = of.segment(s).region
        base = <const uint8_t*>region.view.buf
        while row < stop:
            if starts[row] >= 0 and not kc_measure_headers(base + starts[row], base + region.view.len, &sizes):
                raise _CorruptDataError("a header leaves the record")
            row += 1
    if max(sizes.key_bytes, sizes.value_bytes) > 0x7fffffff:
        raise OverflowError(f"{sizes.key_bytes + sizes.value_bytes} bytes of headers do not fit a column: take fewer records")
    cdef PooledBuffer bits = validity_bitmap(starts, n, &made.nulls) if none_is_null else None
    cdef PooledBuffer value_bits = PooledBuffer((sizes.count + 7) // 8)
    cdef PooledBuffer lists = PooledBuffer(4 * (n + 1))
    cdef PooledBuffer key_offsets = PooledBuffer(4 * (sizes.count + 1))
    cdef PooledBuffer value_offsets = PooledBuffer(4 * (sizes.count + 1))
    cdef PooledBuffer keys = PooledBuffer(sizes.key_bytes)
    cdef PooledBuffer values = PooledBuffer(sizes.value_bytes)
    cdef int32_t* list_ends = <int32_t*>lists.ptr
    cdef int32_t* key_ends = <int32_t*>key_offsets.ptr
    cdef int32_t* value_ends = <int32_t*>value_offsets.ptr
    cdef const uint8_t* p
    cdef int64_t count = 0
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t key_size
    cdef const char* key
    cdef kc_header header
    memset(value_bits.ptr, 0xff, value_bits.nbytes)
    list_ends[0] = key_ends[0] = value_ends[0] = 0
    row = 0
    for s in range(of.segment_count()):
        stop = min(of.segment_stop(s), n)
        if stop <= row:
            break
        region = of.segment(s).region
        base = <const uint8_t*>region.view.buf
        end = base + region.view.len
        while row < stop:
            if starts[row] >= 0:
                p = kc_header_count(base + starts[row], end, &count)
                while count > 0 and p != NULL:
                    count -= 1
                    p = kc_get_header(p, end, &header)
                    if p == NULL or i == sizes.count or header.value_len > sizes.value_bytes - value_ends[i]:
                        raise _CorruptDataError("the records were changed while they were read")
                    key = <const char*>header.key
                    key_size = header.key_len
                    if not kc_is_ascii(header.key, header.key_len):
                        text = PyUnicode_DecodeUTF8(key, key_size, "replace")
                        key = PyUnicode_AsUTF8AndSize(text, &key_size)
                    if key_size > sizes.key_bytes - key_ends[i]:
                        raise _CorruptDataError("the records were changed while they were read")
                    memcpy(keys.ptr + key_ends[i], key, key_size)
                    key_ends[i + 1] = key_ends[i] + <int32_t>key_size
                    value_ends[i + 1] = value_ends[i]
                    if header.value_len > 0:
                        memcpy(values.ptr + value_ends[i], header.value, header.value_len)
                        value_ends[i + 1] += header.value_len
                    elif header.value_len < 0:
                        value_bits.ptr[i >> 3] &= ~(1 << (i & 7))
                        made.value_nulls += 1
                    i += 1
            list_ends[row + 1] = <int32_t>i
            row += 1
    made.count = i
    made.key_bytes = key_ends[i]
    made.lists = [bits, lists]
    made.keys = [None, key_offsets, keys]
    made.values = [value_bits if made.value_nulls else None, value_offsets, values]
    return made


cdef object pa_buffer(object buffer):
    import pyarrow as pa
    return None if buffer is None else pa.py_buffer(buffer)


cdef object arrow_binary(ByteColumn column):
    import pyarrow as pa
    cdef Py_ssize_t n = column.of.store.count
    cdef Py_ssize_t nulls = 0
    cdef list made = binary_buffers(column, n, &nulls)
    cdef PooledBuffer offsets = made[1]
    return pa.Array.from_buffers(pa.binary(), n, [pa_buffer(made[0]), pa_buffer(offsets),
                                                  pa_buffer(made[2])[:(<int32_t*>offsets.ptr)[n]]], nulls)


cdef object arrow_views(ByteColumn column):
    import pyarrow as pa
    cdef Py_ssize_t n = column.of.store.count
    cdef Py_ssize_t nulls = 0
    cdef list made = view_buffers(column, n, &nulls)
    return pa.Array.from_buffers(pa.binary_view(), n, [pa_buffer(each) for each in made], nulls)


cdef object arrow_headers(RecordColumns of, object kind, bint none_is_null):
    import pyarrow as pa
    cdef Py_ssize_t n = of.store.count
    cdef HeaderBuffers made = header_buffers(of, n, none_is_null)
    children = [
        pa.Array.from_buffers(pa.string(), made.count, [None, pa_buffer(made.keys[1]), pa_buffer(made.keys[2])[:made.key_bytes]], 0),
        pa.Array.from_buffers(pa.binary(), made.count, [pa_buffer(each) for each in made.values], made.value_nulls),
    ]
    pairs = pa.Array.from_buffers(kind.value_type, made.count, [None], 0, children=children)
    return pa.Array.from_buffers(kind, n, [pa_buffer(each) for each in made.lists], made.nulls, children=[pairs])


# ---- capsules ---------------------------------------------------------------------------------------------------------------------------

@cython.final
cdef class ArrowKinds:
    """Which columns a batch has, and of which types.

    Args:
        key, value: binary, string, view or string view.
        headers: there is a column of them.
        requested: the capsule of a schema, or None. For key and value it may say one of the four types; anything else is not heeded, as
            the interface allows.
    """
    cdef int key, value
    cdef bint headers

    def __cinit__(self, str key, str value, bint headers, requested):
        cdef ArrowSchema* wanted
        cdef ArrowSchema* child
        cdef int64_t i
        cdef int kind
        self.key = ARROW_KINDS[key]
        self.value = ARROW_KINDS[value]
        self.headers = headers
        if requested is None:
            return
        wanted = <ArrowSchema*>PyCapsule_GetPointer(requested, "arrow_schema")
        if wanted.release == NULL or strcmp(wanted.format, "+s") != 0:
            return
        for i in range(wanted.n_children):
            child = wanted.children[i]
            kind = kind_of_format(child.format)
            if kind >= 0 and child.name != NULL:
                if strcmp(child.name, "key") == 0:
                    self.key = kind
                elif strcmp(child.name, "value") == 0:
                    self.value = kind


cdef int kind_of_format(const char* form) noexcept:
    for kind in range(4):
        if strcmp(form, format_of_kind(kind)) == 0:
            return kind
    return -1


cdef const char* format_of_kind(int kind) noexcept:
    if kind == ARROW_BINARY:
        return "z"
    if kind == ARROW_STRING:
        return "u"
    return "vz" if kind == ARROW_VIEW else "vu"


cdef int need(bint there) except -1:
    if not there:
        raise MemoryError("no memory for an Arrow array")
    return 0


cdef int fill_schema(ArrowSchema* s, ArrowKinds kinds) except -1:
    cdef ArrowSchema* pairs
    need(kc_arrow_schema(s, "+s", "", False, 8 if kinds.headers else 7))
    need(kc_arrow_schema(s.children[0], format_of_kind(kinds.key), "key", True, 0))
    need(kc_arrow_schema(s.children[1], format_of_kind(kinds.value), "value", True, 0))
    need(kc_arrow_schema(s.children[2], "i", "topic", True, 0))
    need(kc_arrow_dictionary(s.children[2], NULL))
    need(kc_arrow_schema(s.children[2].dictionary, "u", "", True, 0))
    need(kc_arrow_schema(s.children[3], "i", "partition", True, 0))
    need(kc_arrow_schema(s.children[4], "l", "offset", True, 0))
    need(kc_arrow_schema(s.children[5], "tsm:UTC", "timestamp", True, 0))
    need(kc_arrow_schema(s.children[6], "i", "timestamp_type", True, 0))
    if kinds.headers:
        need(kc_arrow_schema(s.children[7], "+l", "headers", True, 1))
        pairs = s.children[7].children[0]
        need(kc_arrow_schema(pairs, "+s", "item", True, 2))
        need(kc_arrow_schema(pairs.children[0], "u", "key", False, 0))
        need(kc_arrow_schema(pairs.children[1], "z", "value", True, 0))
    return 0


cdef const void* address_of(object buffer) except? NULL:
    if type(buffer) is not HeldBuffer:
        return (<PooledBuffer?>buffer).ptr
    if (<HeldBuffer>buffer).view.buf == NULL:
        return kc_arrow_nothing
    return (<HeldBuffer>buffer).view.buf


cdef int arrow_leaf(ArrowArray* a, Py_ssize_t n, Py_ssize_t nulls, list buffers) except -1:
    """An array without children: validity or None, and the other buffers from their beginning."""
    cdef Py_ssize_t i
    need(kc_arrow_array(a, n, nulls, len(buffers), 0, <PyObject*>buffers))
    for i in range(len(buffers)):
        if buffers[i] is not None:
            a.buffers[i] = address_of(buffers[i])
    return 0


cdef int arrow_numbers(ArrowArray* a, Py_ssize_t n, PooledBuffer owner, const void* first) except -1:
    """An array of numbers, none of them null, that begin within their owner."""
    need(kc_arrow_array(a, n, 0, 2, 0, <PyObject*>owner))
    if first != NULL:
        a.buffers[1] = first
    else:
        a.buffers[1] = kc_arrow_nothing
    return 0


cdef int arrow_bytes(ArrowArray* a, ByteColumn column, Py_ssize_t n, int kind) except -1:
    cdef Py_ssize_t nulls = 0
    cdef list buffers
    cdef PooledBuffer sizes
    cdef Py_ssize_t i
    if kind in (ARROW_STRING, ARROW_STRING_VIEW):
        check_text(column, n)
    if kind in (ARROW_BINARY, ARROW_STRING):
        buffers = binary_buffers(column, n, &nulls)
        return arrow_leaf(a, n, nulls, buffers)
    buffers = view_buffers(column, n, &nulls)
    sizes = PooledBuffer(8 * max(len(buffers) - 2, 1))
    for i in range(2, len(buffers)):
        (<int64_t*>sizes.ptr)[i - 2] = (<HeldBuffer>buffers[i]).view.len
    buffers.append(sizes)
    return arrow_leaf(a, n, nulls, buffers)


cdef int check_text(ByteColumn column, Py_ssize_t n) except -1:
    """Raises SerializationError, with its place, for the first of n items that is not UTF-8."""
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t s, stop
    cdef const uint8_t* base
    cdef const uint8_t* p
    for s in range(column.of.segment_count()):
        stop = min(column.of.segment_stop(s), n)
        base = <const uint8_t*>column.of.segment(s).region.view.buf
        while row < stop:
            if column.length[row] > 0:
                p = base + column.start[row]
                if not kc_utf8_valid(p, p + column.length[row]):
                    raise no_text(column, row)
            row += 1
    return 0


cdef object no_text(ByteColumn column, Py_ssize_t row):
    name = "key" if column.start == column.of.store.rows.key_starts else "value"
    try:
        str(column[row], "utf-8")
    except UnicodeDecodeError as error:
        return _SerializationError(f"the {name} is not UTF-8: byte {error.start} of {column.length[row]}", topic=column.of.topic,
                                   partition=column.of.partition, offset=column.of.store.rows.offsets[row])
    raise AssertionError(f"two opinions about whether {name} {row} is UTF-8")


cdef tuple ARROW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers")


cdef int fill_array(ArrowArray* a, RecordColumns of, Py_ssize_t n, ArrowKinds kinds) except -1:
    """The first n rows. After an error the array is to be released, too."""
    cdef Py_ssize_t i
    cdef Py_ssize_t columns = 8 if kinds.headers else 7
    if n < 0 or n > of.store.count:
        raise ValueError(f"{n} rows of {of.store.count}")
    need(kc_arrow_array(a, n, 0, 1, columns, NULL))
    for i in range(columns):
        fill_record_column(a.children[i], of, n, <str>ARROW_COLUMNS[i], kinds)
    return 0


cdef int fill_record_column(ArrowArray* a, RecordColumns of, Py_ssize_t n, str name, ArrowKinds kinds) except -1:
    """One of ARROW_COLUMNS of the first n rows."""
    cdef PooledBuffer numbers, ends
    cdef HeldBuffer topic
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t s, stop
    if name == "key":
        return arrow_bytes(a, of.keys, n, kinds.key)
    if name == "value":
        return arrow_bytes(a, of.values, n, kinds.value)
    if name == "offset":
        return arrow_numbers(a, n, of.store.memory, of.store.rows.offsets)
    if name == "timestamp":
        return arrow_numbers(a, n, of.store.memory, of.store.rows.timestamps)
    if name == "headers":
        return fill_headers(a, header_buffers(of, n, False), n)
    numbers = PooledBuffer(4 * n)
    if name == "topic":
        memset(numbers.ptr, 0, 4 * n)
        topic = hold_buffer(of.topic.encode(), PyBUF_SIMPLE)
        ends = PooledBuffer(8)
        (<int32_t*>ends.ptr)[0] = 0
        (<int32_t*>ends.ptr)[1] = <int32_t>topic.view.len
        arrow_leaf(a, n, 0, [None, numbers])
        need(kc_arrow_dictionary(NULL, a))
        return arrow_leaf(a.dictionary, 1, 0, [None, ends, topic])
    for s in range(of.segment_count()):
        stop = min(of.segment_stop(s), n)
        while row < stop:
            (<int32_t*>numbers.ptr)[row] = of.partition if name == "partition" else of.segment(s).timestamp_type
            row += 1
    return arrow_leaf(a, n, 0, [None, numbers])


cdef int fill_headers(ArrowArray* a, HeaderBuffers made, Py_ssize_t n) except -1:
    cdef ArrowArray* pairs
    need(kc_arrow_array(a, n, made.nulls, 2, 1, <PyObject*>made.lists))
    a.buffers[1] = address_of(made.lists[1])
    pairs = a.children[0]
    need(kc_arrow_array(pairs, made.count, 0, 1, 2, NULL))
    arrow_leaf(pairs.children[0], made.count, 0, made.keys)
    arrow_leaf(pairs.children[1], made.count, made.value_nulls, made.values)
    return 0


cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray* a = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if a.release != NULL:                          # nobody took it
        a.release(a)
    free(a)


cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* s = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if s.release != NULL:
        s.release(s)
    free(s)


cdef void free_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream* s = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if s.release != NULL:
        s.release(s)
    free(s)


cdef object arrow_array_capsule(RecordColumns of, Py_ssize_t n, ArrowKinds kinds):
    cdef ArrowArray* a = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    need(a != NULL)
    capsule = PyCapsule_New(a, "arrow_array", free_array_capsule)
    fill_array(a, of, n, kinds)
    return capsule


cdef object arrow_schema_capsule(ArrowKinds kinds):
    cdef ArrowSchema* s = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    need(s != NULL)
    capsule = PyCapsule_New(s, "arrow_schema", free_schema_capsule)
    fill_schema(s, kinds)
    return capsule


cdef object column_capsules(ByteColumn column, requested):
    """A column alone: its schema and its array."""
    cdef ArrowSchema* s = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    cdef ArrowArray* a
    cdef int kind = -1
    need(s != NULL)
    schema = PyCapsule_New(s, "arrow_schema", free_schema_capsule)
    a = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    need(a != NULL)
    array = PyCapsule_New(a, "arrow_array", free_array_capsule)
    if requested is not None:
        kind = kind_of_format((<ArrowSchema*>PyCapsule_GetPointer(requested, "arrow_schema")).format)
    if kind < 0:
        kind = ARROW_VIEW
    need(kc_arrow_schema(s, format_of_kind(kind), "", True, 0))
    arrow_bytes(a, column, column.of.store.count, kind)
    return schema, array


@cython.final
cdef class ArrowBatch:
    """The first rows of RecordColumns with the types wanted, for who takes `__arrow_c_array__`.

    Args:
        columns: the `RecordColumns`.
        rows: how many.
        key, value: their types: binary, string, view (binary_view over the fetched bytes) or string view.
        headers: there is a column of them.
    """
    cdef RecordColumns columns
    cdef Py_ssize_t rows
    cdef ArrowKinds kinds

    def __cinit__(self, RecordColumns columns not None, Py_ssize_t rows, str key not None, str value not None, bint headers):
        self.columns = columns
        self.rows = rows
        self.kinds = ArrowKinds(key, value, headers, None)

    def __arrow_c_array__(self, requested_schema=None):
        """Schema and struct array, as capsules; see `RecordColumns.__arrow_c_array__`."""
        return arrow_schema_capsule(self.kinds), arrow_array_capsule(self.columns, self.rows, self.kinds)


def arrow_schema_of(str key not None, str value not None, bint headers, requested=None):
    """The schema of records as a capsule; arguments as `arrow_stream`."""
    return arrow_schema_capsule(ArrowKinds(key, value, headers, requested))


# ---- records whose values are decoded ------------------------------------------------------------------------------------------------------

@cython.final
cdef class JsonBatch:
    """Records whose values are JSON objects, with the fields of these as columns, for who takes `__arrow_c_array__`."""
    cdef JsonScan scan
    cdef RecordColumns of
    cdef tuple beside
    cdef ArrowKinds kinds
    cdef object schema

    def __init__(self):
        raise TypeError("batches are made by json_batch")

    def __len__(self):
        return self.scan.count

    def __arrow_c_array__(self, requested_schema=None):
        """Schema and struct array, as capsules."""
        cdef ArrowArray* a = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        need(a != NULL)
        capsule = PyCapsule_New(a, "arrow_array", free_array_capsule)
        fill_json(a, self)
        return self.schema.__arrow_c_schema__(), capsule


def json_batch(RecordColumns of not None, Py_ssize_t rows, tuple names not None, str kinds not None, tuple beside not None, str key not None,
               schema):
    """Records whose values are JSON objects, decoded, as a batch of Arrow.

    Args:
        of: the records.
        rows: how many of them, from the first.
        names, kinds: as `json_columns`.
        beside: which columns of the records follow: names as in `RecordColumns.to_arrow`, not value.
        key: the type of keys, binary or string.
        schema: of the batch, with `__arrow_c_schema__`.

    Returns:
        What has `__arrow_c_array__` and a length, or None: about some value there is a doubt.

    Raises:
        errors.SerializationError: a key that is to be text is not UTF-8.
    """
    cdef JsonBatch made
    cdef JsonScan scan
    cdef HeldBuffer region
    cdef const int32_t* starts = of.store.rows.value_starts
    cdef const int32_t* lengths = of.store.rows.value_lengths
    cdef Py_ssize_t room = 0
    cdef Py_ssize_t s
    cdef int64_t row = 0
    cdef int64_t stop
    if rows < 0 or rows > of.store.count:
        raise ValueError(f"{rows} rows of {of.store.count}")
    for row in range(rows):
        room += max(lengths[row], 0)
    scan = JsonScan(rows, room, names, kinds)
    row = 0
    for s in range(of.segment_count()):
        stop = min(of.segment_stop(s), rows)
        region = of.segment(s).region
        while row < stop:
            with nogil:
                row = kc_json_scan_records(&scan.j, <const uint8_t*>region.view.buf, region.view.len, starts, lengths, row, stop)
            if scan.j.n_doubtful:
                return None
            if row < stop:
                scan.grow()
    made = JsonBatch.__new__(JsonBatch)
    made.scan, made.of, made.beside, made.schema = scan, of, beside, schema
    made.kinds = ArrowKinds(key, "binary", False, None)
    return made


cdef int fill_json(ArrowArray* a, JsonBatch batch) except -1:
    """After an error the array is to be released, too."""
    cdef JsonScan scan = batch.scan
    cdef Py_ssize_t n = scan.j.n_fields
    cdef Py_ssize_t i
    cdef PooledBuffer size
    cdef list buffers
    need(kc_arrow_array(a, scan.count, 0, 1, n + len(batch.beside), NULL))
    for i in range(n):
        buffers = scan.column(i)
        if scan.j.fields[i].kind == c"v":
            size = PooledBuffer(8)
            (<int64_t*>size.ptr)[0] = scan.j.fields[i].used
            buffers.append(size)
        arrow_leaf(a.children[i], scan.count, scan.j.fields[i].nulls, buffers)
    for i in range(len(batch.beside)):
        fill_record_column(a.children[n + i], batch.of, scan.count, <str>batch.beside[i], batch.kinds)
    return 0


# ---- a stream of batches -------------------------------------------------------------------------------------------------------------

@cython.final
cdef class ArrowFeed:
    """Behind a stream: where its batches come from, and how it failed."""
    cdef object batches
    cdef ArrowKinds kinds                          # of records; None where batches are arrays already
    cdef object schema                             # of those
    cdef bytes failure
    cdef int code

    def __cinit__(self, batches, ArrowKinds kinds, schema):
        self.batches = iter(batches)
        self.kinds = kinds
        self.schema = schema

    cdef int fail(self, error) noexcept:
        """The error becomes the stream's, whose reader sees its text. Ctrl+C comes again once the reader has returned: asked for as the last
        step, since any Python code here would be where it comes."""
        cdef bint interrupted = isinstance(error, KeyboardInterrupt)
        self.code = ERROR_INTERRUPTED if interrupted else ERROR_MEMORY if isinstance(error, MemoryError) else ERROR_IO
        try:
            self.failure = type(error).__name__.encode()
            self.failure = f"{type(error).__name__}: {error}".encode("utf-8", "replace").replace(b"\0", b"")
            self.batches = None                    # ends a generator, which runs its last lines
        except KeyboardInterrupt:
            interrupted = True
        except BaseException:
            pass
        if interrupted:
            PyErr_SetInterrupt()
        return self.code


cdef int feed_schema(ArrowArrayStream* s, ArrowSchema* out) noexcept with gil:
    cdef ArrowFeed feed = <ArrowFeed>s.private_data
    memset(out, 0, sizeof(ArrowSchema))
    try:
        if feed.kinds is not None:
            fill_schema(out, feed.kinds)
        else:
            take_schema(out, feed.schema.__arrow_c_schema__())
        return 0
    except BaseException as error:
        if out.release != NULL:
            out.release(out)
        return feed.fail(error)


cdef int feed_next(ArrowArrayStream* s, ArrowArray* out) noexcept with gil:
    cdef ArrowFeed feed = <ArrowFeed>s.private_data
    memset(out, 0, sizeof(ArrowArray))
    if feed.code:                                  # it has failed, and must not look like the end
        return feed.code
    try:
        found = next(feed.batches, None)
        if found is None:
            return 0
        if feed.kinds is not None:
            fill_array(out, <RecordColumns?>found[0], found[1], feed.kinds)
        elif type(found) is JsonBatch:
            fill_json(out, <JsonBatch>found)
        else:
            take_array(out, found.__arrow_c_array__()[1])
        return 0
    except BaseException as error:
        if out.release != NULL:
            out.release(out)
        return feed.fail(error)


cdef int take_schema(ArrowSchema* out, object capsule) except -1:
    cdef ArrowSchema* given = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if given.release == NULL:
        raise ValueError("somebody else has taken the Arrow schema")
    out[0] = given[0]
    given.release = NULL
    return 0


cdef int take_array(ArrowArray* out, object capsule) except -1:
    cdef ArrowArray* given = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if given.release == NULL:
        raise ValueError("somebody else has taken the Arrow array")
    out[0] = given[0]
    given.release = NULL
    return 0


cdef const char* feed_error(ArrowArrayStream* s) noexcept with gil:
    cdef ArrowFeed feed = <ArrowFeed>s.private_data
    return NULL if feed.failure is None else PyBytes_AS_STRING(feed.failure)


cdef void feed_release(ArrowArrayStream* s) noexcept nogil:
    s.release = NULL
    kc_arrow_drop(s.private_data)


cdef object stream_capsule(ArrowFeed feed):
    cdef ArrowArrayStream* s = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    need(s != NULL)
    capsule = PyCapsule_New(s, "arrow_array_stream", free_stream_capsule)
    Py_INCREF(feed)
    s.private_data = <void*>feed
    s.get_schema = feed_schema
    s.get_next = feed_next
    s.get_last_error = feed_error
    s.release = feed_release
    return capsule


def arrow_stream(batches, str key not None, str value not None, bint headers, requested=None):
    """Records as a capsule of Arrow's stream interface.

    Args:
        batches: an iterable of (RecordColumns, how many of its rows). It is gone through by whatever reads the stream, on its thread; what
            it raises is the reader's error, by its text, and stays.
        key, value, headers: as `ArrowBatch`.
        requested: the capsule of a schema, or None; see `RecordColumns.__arrow_c_array__`.
    """
    return stream_capsule(ArrowFeed(batches, ArrowKinds(key, value, headers, requested), None))


def arrow_stream_of(batches, schema):
    """Other batches as a capsule of Arrow's stream interface.

    Args:
        batches: an iterable of what has `__arrow_c_array__`; as that of `arrow_stream`.
        schema: of all of them, with `__arrow_c_schema__`.
    """
    return stream_capsule(ArrowFeed(batches, None, schema))
