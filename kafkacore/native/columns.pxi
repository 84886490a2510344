# Columns of byte strings: whatever a caller may pass as many values or keys, behind one checked get(i).
#
# Accepted: a list or tuple of bytes-like, str or None; None (all null); an Arrow (large_)binary, (large_)string, fixed size
# binary, binary_view or string_view array through __arrow_c_array__; a numpy S or V array; a pair (data, int32 or int64 offsets).
# Nothing is copied. A ColumnSource keeps what it reads alive; a pointer from get() is good until the column's next get(), also when
# Python code runs in between and changes the list (the buffer protocol, a partitioner or another thread may).

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport (Py_buffer, PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES,
                             PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.string cimport memcpy, memset, strcmp, strncmp
from cpython.memoryview cimport PyMemoryView_FromObject
cimport cython

import sys

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_Check(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    bint PyList_CheckExact(object o)
    bint PyTuple_CheckExact(object o)
    Py_ssize_t PyList_GET_SIZE(PyObject* o)
    Py_ssize_t PyTuple_GET_SIZE(PyObject* o)
    PyObject* PyList_GET_ITEM(PyObject* o, Py_ssize_t i)
    PyObject* PyTuple_GET_ITEM(PyObject* o, Py_ssize_t i)

cdef extern from "columns.h":
    enum: KC_COL_NULLS, KC_COL_LIST, KC_COL_OFFSETS32, KC_COL_OFFSETS64, KC_COL_FIXED, KC_COL_PADDED, KC_COL_VIEWS
    enum: KC_COL_OK, KC_COL_BAD, KC_COL_OBJECT
    ctypedef struct kc_column:
        int kind
        int64_t count
        const uint8_t* data
        int64_t limit
        const void* offsets
        const uint8_t* validity
        int64_t first_bit
        int64_t stride
        int64_t itemsize
        const uint8_t** blocks
        const int64_t* block_sizes
        int64_t n_blocks
    cdef struct ArrowSchema:
        const char* format
        const char* name
        int64_t n_children
        ArrowSchema** children
        ArrowSchema* dictionary
        void (*release)(ArrowSchema*)
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*)
    int64_t kc_offset_at(const void* offsets, int64_t i, int wide) nogil
    int kc_column_get(const kc_column* c, int64_t i, const uint8_t** p, int64_t* n) nogil

cdef Py_ssize_t COLUMN_ITEM_MAX = 0x7fffffff
cdef enum:
    COLUMN_SAMPLE = 8         # items that an estimate looks at
# ctypes names the byte order, numpy and array do not
cdef frozenset OFFSET_FORMATS = frozenset(order + kind for order in ("", "=", "<" if sys.byteorder == "little" else ">") for kind in "ilq")


@cython.final
@cython.no_gc
cdef class HeldBuffer:
    """A buffer export held open, so that raw pointers into it stay good as long as this object lives.

    Not for the garbage collector: it would clear view.obj without releasing the export, and would clear a memoryview that still has one.
    """
    cdef Py_buffer view
    cdef bint held
    cdef object source

    def __getbuffer__(self, Py_buffer* view, int flags):
        # The same memory for every reader: an object may export another block each time it is asked.
        PyBuffer_FillInfo(view, self, self.view.buf, self.view.len, self.view.readonly, flags)

    cdef object bytes_view(self):
        """A flat memoryview of the bytes, alive on its own."""
        return PyMemoryView_FromObject(self)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef HeldBuffer hold_buffer(object source, int flags):
    cdef HeldBuffer held = HeldBuffer.__new__(HeldBuffer)
    PyObject_GetBuffer(source, &held.view, flags)
    held.held = True
    held.source = source
    return held


cdef int bytes_of(object item, const uint8_t** p, Py_ssize_t* n, list keep) except -1:
    """Points (p, n) at the bytes of one bytes-like, str (UTF-8) or None (n = -1). Anything but bytes and str is kept in `keep`."""
    cdef HeldBuffer held
    if item is None:
        p[0] = NULL
        n[0] = -1
    elif PyBytes_CheckExact(item):
        p[0] = <const uint8_t*>PyBytes_AS_STRING(item)
        n[0] = PyBytes_GET_SIZE(item)
    elif PyUnicode_Check(item):
        p[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(item, n)
    else:
        if not PyObject_CheckBuffer(item):
            raise TypeError(f"expected bytes-like, str or None, not {type(item).__name__}")
        held = hold_buffer(item, PyBUF_SIMPLE)
        keep.append(held)
        p[0] = <const uint8_t*>held.view.buf
        n[0] = held.view.len
    if n[0] > COLUMN_ITEM_MAX:
        raise ValueError("a key or value is limited to 2 GiB")
    return 0


@cython.final
cdef class ColumnSource:
    """Many byte strings behind one checked reader; see the top of columns.pxi for what it can be made from.

    Args:
        source: the column.
        count: number of items when source is None (a column of nulls).

    Raises:
        TypeError: source is none of the accepted kinds.
        ValueError: its layout is broken (offsets that decrease or leave the data).
    """
    cdef kc_column c
    cdef readonly Py_ssize_t count
    cdef object owner             # the list or tuple itself, or what backs the pointers of c
    cdef object second            # more of the latter
    cdef object current           # the list item that get() points into
    cdef list kept                # and its buffer, if it is an odd one
    cdef PyObject* items          # borrowed from owner: a list or a tuple
    cdef bint is_list

    def __cinit__(self, source, Py_ssize_t count=0):    # not __init__, which can be called twice
        memset(&self.c, 0, sizeof(kc_column))
        if source is None:
            self.c.kind = KC_COL_NULLS
            self.count = count
        elif PyList_CheckExact(source):
            self.c.kind = KC_COL_LIST
            self.owner = source
            self.items = <PyObject*>source
            self.is_list = True
            self.count = PyList_GET_SIZE(self.items)
        elif isinstance(source, (bytes, bytearray, str)):
            raise TypeError(f"expected many values, not one {type(source).__name__}")
        elif hasattr(source, "__arrow_c_array__"):
            self._from_arrow(source)
        elif isinstance(source, tuple):
            if len(source) == 2 and is_offsets(source[1]):
                self._from_pair(source[0], source[1])
            elif len(source) == 2 and is_wide(source[1]):
                raise TypeError(f"offsets must be int32 or int64 in this machine's byte order, not {memoryview(source[1]).format!r}")
            else:
                self._from_tuple(tuple(source))
        elif getattr(getattr(source, "dtype", None), "kind", "") in ("S", "V"):
            self._from_numpy(source)
        elif hasattr(source, "__arrow_c_stream__"):
            raise TypeError("a chunked Arrow array is read chunk by chunk: pass each chunk, or combine_chunks()")
        elif getattr(getattr(source, "dtype", None), "kind", "O") != "O":
            # its items would pass as buffers: their machine representation is never what was meant
            raise TypeError(f"a column of {source.dtype} is not one of byte strings")
        else:
            self._from_tuple(tuple(source))
        self.c.count = self.count

    def __len__(self):
        return self.count

    @property
    def objects(self):
        """The list or tuple of Python objects that the column is made of; None for bytes in memory."""
        return <object>self.items if self.c.kind == KC_COL_LIST else None

    def __getitem__(self, Py_ssize_t i):
        cdef const uint8_t* p
        cdef Py_ssize_t n
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("column index out of range")
        self.get(i, &p, &n)
        return None if n < 0 else PyBytes_FromStringAndSize(<const char*>p, n)

    cdef inline PyObject* at(self, Py_ssize_t i) noexcept:
        """Item i of a list or tuple, below its count of now."""
        return PyList_GET_ITEM(self.items, i) if self.is_list else PyTuple_GET_ITEM(self.items, i)

    cdef inline int get(self, Py_ssize_t i, const uint8_t** p, Py_ssize_t* n) except -1:
        """Points (p, n) at item i; n = -1 for null. i must be below count."""
        cdef int64_t length = 0
        cdef int found
        cdef PyObject* item
        if self.c.kind == KC_COL_LIST:
            if self.is_list:
                if i >= PyList_GET_SIZE(self.items):
                    raise ValueError("the list of values was changed while it was read")
                item = PyList_GET_ITEM(self.items, i)
            else:
                item = PyTuple_GET_ITEM(self.items, i)
            self.current = <object>item
            if PyBytes_CheckExact(<object>item) and PyBytes_GET_SIZE(<object>item) <= COLUMN_ITEM_MAX:
                p[0] = <const uint8_t*>PyBytes_AS_STRING(<object>item)
                n[0] = PyBytes_GET_SIZE(<object>item)
                return 0
            if self.kept is None:
                self.kept = []
            elif self.kept:
                self.kept.clear()
            return bytes_of(<object>item, p, n, self.kept)
        found = kc_column_get(&self.c, i, p, &length)
        n[0] = length
        if found != KC_COL_OK:
            raise ValueError(f"item {i} of the column: its offsets are not inside its data")
        return 0

    cdef int64_t bytes_after(self, Py_ssize_t i, Py_ssize_t unknown_bytes) noexcept:
        """About how many bytes items i.. hold, from a few of them: runs no Python code. An item of an odd type counts as `unknown_bytes`."""
        cdef int64_t total = 0, length
        cdef Py_ssize_t left = self.count - i, taken = min(left, COLUMN_SAMPLE), step
        cdef const uint8_t* p
        for step in range(taken):
            if self.c.kind == KC_COL_LIST:
                length = self.plain_size(i + left * step // taken, unknown_bytes)
            elif kc_column_get(&self.c, i + left * step // taken, &p, &length) != KC_COL_OK:
                length = unknown_bytes                 # broken: get() will say so
            total += max(length, 0)
        return total // taken * left if taken > 0 else 0

    cdef Py_ssize_t plain_size(self, Py_ssize_t i, Py_ssize_t unknown_bytes) noexcept:
        cdef PyObject* item
        if i >= (PyList_GET_SIZE(self.items) if self.is_list else PyTuple_GET_SIZE(self.items)):
            return unknown_bytes
        item = PyList_GET_ITEM(self.items, i) if self.is_list else PyTuple_GET_ITEM(self.items, i)
        if <object>item is None:
            return 0
        if PyBytes_CheckExact(<object>item):
            return PyBytes_GET_SIZE(<object>item)
        return PyUnicode_GET_LENGTH(<object>item) if PyUnicode_Check(<object>item) else unknown_bytes

    cdef int _from_tuple(self, tuple source) except -1:
        self.c.kind = KC_COL_LIST
        self.owner = source
        self.items = <PyObject*>source
        self.count = PyTuple_GET_SIZE(self.items)
        return 0

    cdef int _from_numpy(self, source) except -1:
        if source.ndim != 1 or source.dtype.hasobject:
            raise TypeError("a numpy column must have one dimension and plain bytes")
        cdef HeldBuffer held = hold_buffer(source.view(f"V{source.dtype.itemsize}") if source.dtype.itemsize else source,
                                           PyBUF_STRIDES | PyBUF_FORMAT)
        if held.view.ndim != 1:
            raise TypeError("a numpy column must have one dimension and plain bytes")
        self.owner = held
        self.second = source
        self.count = held.view.shape[0]
        self.c.kind = KC_COL_PADDED if source.dtype.kind == "S" else KC_COL_FIXED
        self.c.data = <const uint8_t*>held.view.buf
        self.c.stride = held.view.strides[0]
        self.c.itemsize = held.view.itemsize
        return 0

    cdef int _from_pair(self, data, offsets) except -1:
        cdef HeldBuffer held_data = hold_buffer(data, PyBUF_SIMPLE)
        cdef HeldBuffer held_offsets = hold_buffer(offsets, PyBUF_ND | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        if held_offsets.view.ndim != 1 or held_offsets.view.shape[0] < 1:
            raise ValueError("offsets must have one dimension and one more entry than there are values")
        self.owner = held_data
        self.second = held_offsets
        self.count = held_offsets.view.shape[0] - 1
        self.c.kind = KC_COL_OFFSETS32 if held_offsets.view.itemsize == 4 else KC_COL_OFFSETS64
        self.c.data = <const uint8_t*>held_data.view.buf
        self.c.limit = held_data.view.len
        self.c.offsets = held_offsets.view.buf
        return 0

    cdef int _from_arrow(self, source) except -1:
        # The capsules own both structs and release them when they go; nothing is moved out of them.
        schema_capsule, array_capsule = source.__arrow_c_array__()
        cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise ValueError("the Arrow array was taken by somebody else")
        self.owner = schema_capsule
        self.second = array_capsule
        column_of_arrow(&self.c, schema, array, arrow_sizes(source))
        self.count = array.length
        return 0


cdef dict arrow_sizes(source):
    """{address: bytes} of the buffers of an array of pyarrow; None of another library's, whose arrays do not tell."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(source, pyarrow.Array):
        return None
    return {each.address: each.size for each in source.buffers() if each is not None}


cdef int column_of_arrow(kc_column* c, ArrowSchema* schema, ArrowArray* array, dict sizes) except -1:
    """Points an empty column at an Arrow array, which must stay where it is."""
    cdef const char* form = schema.format
    cdef int wide
    c.count = array.length
    if strcmp(form, "n") == 0:
        c.kind = KC_COL_NULLS
        return 0
    if array.n_buffers > 0 and array.null_count != 0:
        c.validity = <const uint8_t*>array.buffers[0]
    c.first_bit = array.offset
    if strcmp(form, "z") == 0 or strcmp(form, "u") == 0 or strcmp(form, "Z") == 0 or strcmp(form, "U") == 0:
        wide = 8 if form[0] == c"Z" or form[0] == c"U" else 4
        if array.n_buffers != 3:
            raise ValueError("an Arrow binary array has three buffers")
        c.kind = KC_COL_OFFSETS64 if wide == 8 else KC_COL_OFFSETS32
        if array.buffers[1] == NULL:          # allowed by the format when there is nothing in it
            if c.count:
                raise ValueError("an Arrow binary array without offsets")
            c.kind = KC_COL_NULLS
            return 0
        c.offsets = <const uint8_t*>array.buffers[1] + array.offset * wide
        c.data = <const uint8_t*>array.buffers[2]
        # The interface does not tell how long the data is: where the array does not either, the last offset is the only bound there is.
        c.limit = kc_offset_at(c.offsets, c.count, wide == 8)
        if c.data == NULL:
            c.limit = 0
        elif sizes is not None and (size := sizes.get(<size_t>c.data)) is not None:
            c.limit = min(c.limit, <int64_t>size)
    elif strncmp(form, "w:", 2) == 0:
        c.kind = KC_COL_FIXED
        c.itemsize = int(form[2:])
        c.stride = c.itemsize
        c.data = <const uint8_t*>array.buffers[1] + array.offset * c.itemsize
    elif strcmp(form, "vz") == 0 or strcmp(form, "vu") == 0:
        if array.n_buffers < 3:
            raise ValueError("an Arrow view array has at least three buffers")
        c.kind = KC_COL_VIEWS
        c.data = <const uint8_t*>array.buffers[1] + array.offset * 16
        c.n_blocks = array.n_buffers - 3
        c.blocks = <const uint8_t**>(array.buffers + 2)
        c.block_sizes = <const int64_t*>array.buffers[array.n_buffers - 1]
    else:
        raise TypeError(f"an Arrow array of format {form.decode()!r} is not a column of byte strings")
    return 0


cdef bint is_offsets(object o):
    """True for a one-dimensional buffer of signed 4 or 8 byte integers: the second half of a (data, offsets) pair."""
    if o is None or isinstance(o, (bytes, bytearray, str)) or not PyObject_CheckBuffer(o):
        return False
    view = memoryview(o)
    return view.format in OFFSET_FORMATS and view.itemsize in (4, 8)


cdef bint is_wide(object o):
    """True for a buffer of anything but bytes: it would pass as a value, its machine representation never being what was meant."""
    return PyObject_CheckBuffer(o) and memoryview(o).itemsize > 1 and not isinstance(o, (bytes, bytearray, str))


cdef ColumnSource column_of(object source, Py_ssize_t count):
    """source as a ColumnSource of `count` items (count < 0: any length)."""
    cdef ColumnSource column = source if type(source) is ColumnSource else ColumnSource(source, count if count > 0 else 0)
    if count >= 0 and column.count != count:
        raise ValueError(f"columns differ in length: {column.count} and {count}")
    return column
