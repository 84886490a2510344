# The one walker that encodes and decodes every Kafka message.
#
# protocol/schema.py compiles (message class, version) into a Plan: flat arrays of Op, one per field, in wire order.
# Rules of the walk:
#  1. Decode fills tuple subclasses (one per struct, the same class for all versions); fields that the version lacks get their default.
#     [test_fields_are_named_tuple_slots_with_defaults, test_a_field_that_the_version_lacks]
#  2. A count or length from the wire is compared with the bytes left before anything is built: count x smallest element <= remaining.
#     [test_a_count_takes_no_memory, test_huge_counts_and_lengths]
#  3. Encode makes two passes: `measure` (exact size, no writing), then `write` into one block of that size. The second pass checks the
#     room before every store, so a list that changes between the passes ends in UsageError and never in an overrun.
#     [test_a_list_that_changes_while_it_is_encoded_is_caught, test_producers_of_what_changes]
#  4. Record bytes are not copied: encode cuts the block around them and returns a gather list, decode returns a memoryview. What is to be
#     encoded may lie in a file (FileSlice): it is counted and referenced, never read here.
#     [test_records_are_referenced_and_come_back_as_views, test_a_response_names_the_bytes_of_its_slices]
#  5. Where a message has as many structs as a client has partitions, PlanRows may replace the list of them (plan_rows.pxi): the walk is
#     the same, with the fields of a row in an array in place of a tuple. [test_a_row_is_written_as_its_struct,
#     test_a_request_has_the_bytes_of_the_general_encoder]
#  6. Walk.steps holds (field, index) per level. Entering a field costs two stores; the path is spelled out only when something fails.
#     [test_the_path_names_the_broken_field]
#
# Encodings (classic | flexible, KIP-482):
#  string  i16 length, -1 null        | uvarint length+1, 0 null          array   i32 count, -1 null | uvarint count+1, 0 null
#  bytes, records  i32 length, -1 null | uvarint length+1, 0 null         struct  its fields; nullable: i8 -1 null, 1 present;
#                                                                        a tagged one: 0 null, 1 present
#  a flexible struct ends with tagged fields: uvarint count, then (uvarint tag, uvarint size, value), tags ascending

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN

from kafkacore.errors import CorruptDataError, InternalError, InvalidRequest, UsageError

cdef extern from *:
    """
    #define kc_tuple_items(tuple) (((PyTupleObject *)(tuple))->ob_item)

    /* A tuple, or an object of a class derived from it, with nothing in it. */
    static inline PyObject *kc_new_tuple(PyTypeObject *kind, Py_ssize_t size) {
        PyObject *made = kind->tp_alloc(kind, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made)
            ((PyTupleObject *)made)->ob_hash = -1; /* not known yet: tp_alloc leaves 0, which would be the hash */
    #endif
        return made;
    }
    """

cdef extern from "Python.h":
    # The walker counts references itself: these return or take plain pointers.
    ctypedef struct PlanType "PyTypeObject":
        pass
    PyObject* plan_new_tuple "kc_new_tuple"(PlanType*, Py_ssize_t) except NULL
    void plan_incref "Py_INCREF"(PyObject*)
    void plan_xdecref "Py_XDECREF"(PyObject*)
    PyObject* PLAN_NONE "Py_None"
    PyObject* PLAN_TRUE "Py_True"
    PyObject* PLAN_FALSE "Py_False"
    PyObject* plan_long "PyLong_FromLong"(long) except NULL
    PyObject* plan_longlong "PyLong_FromLongLong"(long long) except NULL
    PyObject* plan_float "PyFloat_FromDouble"(double) except NULL
    PyObject* plan_bytes "PyBytes_FromStringAndSize"(const char*, Py_ssize_t) except NULL
    PyObject* plan_utf8 "PyUnicode_DecodeUTF8"(const char*, Py_ssize_t, const char*)
    PyObject* plan_list "PyList_New"(Py_ssize_t) except NULL
    PyObject* plan_call "PyObject_CallNoArgs"(PyObject*) except NULL
    void plan_list_set "PyList_SET_ITEM"(PyObject*, Py_ssize_t, PyObject*)
    PyObject* plan_list_get "PyList_GET_ITEM"(PyObject*, Py_ssize_t)
    Py_ssize_t plan_list_size "PyList_GET_SIZE"(PyObject*)
    void plan_tuple_set "PyTuple_SET_ITEM"(PyObject*, Py_ssize_t, PyObject*)
    PyObject* plan_tuple_get "PyTuple_GET_ITEM"(PyObject*, Py_ssize_t)
    PyObject** plan_tuple_items "kc_tuple_items"(PyObject*)
    Py_ssize_t plan_tuple_size "PyTuple_GET_SIZE"(PyObject*)
    bint plan_is_list "PyList_Check"(PyObject*)
    bint plan_is_exact_tuple "PyTuple_CheckExact"(PyObject*)
    bint plan_is_str "PyUnicode_Check"(PyObject*)
    bint plan_is_bytes "PyBytes_CheckExact"(PyObject*)
    bint plan_is_int "PyLong_Check"(PyObject*)
    bint plan_is_float "PyFloat_Check"(PyObject*)
    bint plan_is_bool "PyBool_Check"(PyObject*)
    Py_ssize_t plan_bytes_size "PyBytes_GET_SIZE"(PyObject*)
    char* plan_bytes_ptr "PyBytes_AS_STRING"(PyObject*)
    const char* plan_str_utf8 "PyUnicode_AsUTF8AndSize"(PyObject*, Py_ssize_t*)
    long long plan_as_longlong "PyLong_AsLongLongAndOverflow"(PyObject*, int*) except? -1
    double plan_as_double "PyFloat_AsDouble"(PyObject*) except? -1
    bint plan_equal "PyObject_RichCompareBool"(PyObject*, PyObject*, int) except -1
    void PyErr_Clear()
    bint PyErr_ExceptionMatches(object)
    bint plan_same_type "Py_IS_TYPE"(PyObject*, PlanType*)

cdef enum:
    # protocol/schema.py uses the same numbers (WIRE_TYPES below hands them out).
    W_BOOL = 0
    W_INT8 = 1
    W_INT16 = 2
    W_UINT16 = 3
    W_INT32 = 4
    W_UINT32 = 5
    W_INT64 = 6
    W_FLOAT64 = 7
    W_UUID = 8
    W_STRING = 9
    W_BYTES = 10
    W_RECORDS = 11
    W_ARRAY = 12
    W_STRUCT = 13
    PLAN_MAX_LEVELS = 12
    PLAN_MAX_STRING = 32767

WIRE_TYPES = {
    "bool": W_BOOL, "int8": W_INT8, "int16": W_INT16, "uint16": W_UINT16, "int32": W_INT32, "uint32": W_UINT32, "int64": W_INT64,
    "float64": W_FLOAT64, "uuid": W_UUID, "string": W_STRING, "bytes": W_BYTES, "records": W_RECORDS, "array": W_ARRAY, "struct": W_STRUCT,
}

cdef int[14] PLAN_FIXED_BYTES
PLAN_FIXED_BYTES[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 0, 0, 0, 0, 0]

cdef Py_ssize_t PLAN_ANY_ELEMENTS = <Py_ssize_t>0x7FFFFFFFFFFFFFFF

cdef enum:
    PLAN_TAGGED_NULLABLE = 2         # how a walk is asked for a nullable value that is tagged; 1 for any other

cdef struct PlanOp:
    int type
    int elem             # type of an array's elements
    bint nullable
    bint compact
    bint fresh           # the default is made by calling `default` (it holds a list, which must not be shared)
    bint ignorable       # for a field that the version lacks: drop its value silently
    uint32_t tag
    Py_ssize_t slot
    Py_ssize_t least     # smallest encoding of one array element, at least 1
    PlanCode* sub
    PyObject* name
    PyObject* default

cdef struct PlanCode:
    PlanType* cls
    Py_ssize_t slots     # tuple length
    Py_ssize_t fixed     # bytes of the fields whose size does not depend on their value
    Py_ssize_t least     # smallest encoding
    bint flexible
    int levels           # nesting below and including this struct
    int nops, ntagged, nabsent
    PlanOp* ops              # ops, then tagged, then absent, in one block

cdef struct PlanCell:          # a field that is checked and not made into an object
    int64_t value              # of a number; else where its contents begin, from the start of the buffer
    Py_ssize_t count           # bytes or elements of the contents, -1 for null

cdef struct PlanStep:
    PlanOp* op
    Py_ssize_t index

cdef struct PlanWalk:
    # decode: p..end is what may be read; encode: p..end is what may be written
    const uint8_t* start
    const uint8_t* p
    const uint8_t* end
    uint8_t* out
    uint8_t* limit
    uint8_t* segment           # start of the block part that is not in the gather list yet
    Py_ssize_t records_bytes   # referenced bytes: counted by measure, counted down by write
    bint has_records
    Py_ssize_t elements        # decode: of all arrays so far
    Py_ssize_t max_elements    # decode: how many there may be
    PlanType* left             # decode: arrays of this struct are checked and kept as bytes (partitions, fetched, produced); NULL for none
    PyObject* source           # decode: the caller's buffer object
    PyObject* view             # decode: a memoryview of it, made when the first records field is met
    PyObject* gather           # encode: the list being built
    PyObject* plan
    PlanStep steps[PLAN_MAX_LEVELS]


cdef class Plan:
    """One struct of one version, compiled for the walker.

    Args:
        cls: The tuple subclass to build.
        label: How errors name the message, like "Fetch v12 response".
        flexible: Whether the struct ends with tagged fields.
        slots: Number of fields of cls over all versions.
        fields: (slot, name, type, elem, sub, nullable, compact, default, fresh, ignorable) per field on the wire, in order.
        tagged: (tag, field) pairs, tags ascending.
        absent: Fields of cls that this version lacks.
    """

    cdef PlanCode code
    cdef readonly object cls
    cdef readonly str label
    cdef readonly int api_key, version
    cdef readonly bint header_flexible, response_header_flexible
    cdef tuple keep

    def __cinit__(self, cls, str label not None, bint flexible, Py_ssize_t slots, fields, tagged, absent,
                  int api_key=-1, int version=0, bint header_flexible=False, bint response_header_flexible=False):
        cdef Py_ssize_t i
        cdef PlanOp* op
        cdef tuple field
        fields, tagged, absent = list(fields), list(tagged), list(absent)
        self.cls, self.label, self.api_key, self.version = cls, label, api_key, version
        self.header_flexible, self.response_header_flexible = header_flexible, response_header_flexible
        if not isinstance(cls, type) or not issubclass(cls, tuple) or slots < 0 or len(fields) + len(tagged) + len(absent) != slots:
            raise InternalError(f"{label}: {cls!r} does not match its fields")
        self.keep = (fields, tagged, absent)
        self.code.ops = <PlanOp*>PyMem_Calloc(slots + 1, sizeof(PlanOp))
        if self.code.ops is NULL:
            raise MemoryError
        self.code.cls, self.code.slots, self.code.flexible = <PlanType*><PyObject*>cls, slots, flexible
        self.code.nops, self.code.ntagged, self.code.nabsent = len(fields), len(tagged), len(absent)
        self.code.levels = 1
        self.code.fixed = self.code.least = 1 if flexible and not tagged else 0
        if tagged:
            self.code.least = 1
        used = set()
        for i, row in enumerate(fields + tagged + absent):
            op = &self.code.ops[i]
            if self.code.nops <= i < self.code.nops + self.code.ntagged:
                op.tag, field = row
            else:
                field = row
            self.load(op, field)
            used.add(field[0])
            if i < self.code.nops:
                self.code.fixed += PLAN_FIXED_BYTES[op.type]
                self.code.least += walk_least_bytes(op)
        if used != set(range(slots)):
            raise InternalError(f"{label}: a slot is missing or doubled")
        if self.code.levels > PLAN_MAX_LEVELS:
            raise InternalError(f"{label}: nested deeper than {PLAN_MAX_LEVELS} levels")

    cdef int load(self, PlanOp* op, tuple field) except -1:
        slot, name, type_, elem, sub, nullable, compact, default, fresh, ignorable = field
        if not (W_BOOL <= type_ <= W_STRUCT and W_BOOL <= elem <= W_STRUCT) or elem == W_ARRAY or elem == W_RECORDS:
            raise InternalError(f"{self.label}: field {name} has no wire type")
        op.slot, op.type, op.elem, op.nullable, op.compact = slot, type_, elem, nullable, compact
        op.fresh, op.ignorable = fresh, ignorable
        op.name, op.default = <PyObject*>name, <PyObject*>default       # kept alive by self.keep
        if type_ == W_STRUCT or (type_ == W_ARRAY and elem == W_STRUCT):
            if sub is not None:
                op.sub = &(<Plan?>sub).code
                self.code.levels = max(self.code.levels, op.sub.levels + 1)
        op.least = 1
        if type_ == W_ARRAY:
            if elem == W_STRUCT:
                op.least = max(op.sub.least, 1) if op.sub is not NULL else 1
            else:
                op.least = PLAN_FIXED_BYTES[elem] or (1 if compact else (2 if elem == W_STRING else 4))
        return 0

    def __dealloc__(self):
        PyMem_Free(self.code.ops)

    def __repr__(self):
        return f"<Plan {self.label}>"

    def decode(self, buffer, Py_ssize_t offset=0):
        """Decodes one message that fills the buffer from offset to its end.

        Raises:
            CorruptDataError: The bytes are not such a message; the text names the field and the offset.
        """
        return self.walk(buffer, offset, True, PLAN_ANY_ELEMENTS, NULL)[0]

    def decode_prefix(self, buffer, Py_ssize_t offset=0):
        """Decodes one message that begins at offset and may be followed by other bytes.

        Returns:
            The message, and where it ended.
        """
        return self.walk(buffer, offset, False, PLAN_ANY_ELEMENTS, NULL)[:2]

    cdef tuple walk(self, buffer, Py_ssize_t offset, bint whole, Py_ssize_t max_elements, PlanType* left):
        """The message, where it ended, and how many elements its arrays have together."""
        cdef Py_buffer view
        cdef PlanWalk w
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        w.view = NULL
        try:
            if not 0 <= offset <= view.len:
                raise UsageError(f"{self.label}: offset {offset} is outside a buffer of {view.len} bytes")
            w.start = <const uint8_t*>view.buf
            w.p = w.start + offset
            w.end = w.start + view.len
            w.source = <PyObject*>buffer
            w.plan = <PyObject*>self
            w.elements, w.max_elements = 0, max_elements
            w.left = left
            w.steps[0].op = NULL
            message = walk_decode_struct(&self.code, &w, 0)
            if whole and w.p != w.end:
                w.steps[0].op = NULL
                walk_corrupt(&w, 0, f"{w.end - w.p} bytes left over")
            return message, w.p - w.start, w.elements
        finally:
            plan_xdecref(w.view)
            PyBuffer_Release(&view)

    def encode(self, message):
        """The message as a gather list: our bytes, with the caller's record buffers in their places."""
        return walk_encode_message(self, message, FRAME_NONE, 0, None)


cdef Py_ssize_t walk_least_bytes(PlanOp* op):
    """The fewest bytes that a field takes."""
    if op.type < W_STRING:
        return PLAN_FIXED_BYTES[op.type]
    if op.type == W_STRUCT:
        return 1 if op.nullable else op.sub.least
    if op.compact:
        return 1
    return 2 if op.type == W_STRING else 4


cdef str walk_path(PlanWalk* w, int level):
    """Spells the fields entered so far: responses[3].partitions[0].records."""
    cdef int i
    cdef list parts = []
    for i in range(level + 1):
        if w.steps[i].op is NULL:
            break
        parts.append(<str>w.steps[i].op.name)
        if w.steps[i].index >= 0:
            parts.append(f"{parts.pop()}[{w.steps[i].index}]")
    return ".".join(parts)


cdef int walk_corrupt(PlanWalk* w, int level, str why) except -1:
    path = walk_path(w, level)
    raise CorruptDataError(f"{(<Plan>w.plan).label}{', ' if path else ''}{path}, offset {w.p - w.start}: {why}")


cdef int walk_misuse(PlanWalk* w, int level, str why) except -1:
    path = walk_path(w, level)
    raise UsageError(f"{(<Plan>w.plan).label}{', ' if path else ''}{path}: {why}")


cdef class StructNew:
    """`__new__` of a struct class: keyword arguments into slots, defaults for the rest.

    Args:
        name: The class's name, for errors.
        slots: {field name: slot}.
        defaults: (value or factory, is it a factory) per slot.
    """

    cdef str name
    cdef dict slots
    cdef tuple defaults

    def __cinit__(self, str name not None, dict slots not None, tuple defaults not None):
        self.name, self.slots, self.defaults = name, slots, defaults
        if len(slots) != len(defaults):
            raise InternalError(f"{name}: {len(slots)} fields, {len(defaults)} defaults")

    def __call__(self, cls, **values):
        cdef PlanType* kind
        cdef Py_ssize_t i, n = len(self.defaults)
        cdef PyObject* made
        cdef PyObject* value
        cdef tuple row
        if not isinstance(cls, type) or not issubclass(cls, tuple):
            raise TypeError(f"{cls!r} is not a struct")
        kind = <PlanType*><PyObject*>cls
        made = plan_new_tuple(kind, n)
        struct = <object>made
        plan_xdecref(made)
        for key, item in values.items():
            slot = self.slots.get(key)
            if slot is None:
                raise TypeError(f"{self.name} has no field {key!r}")
            plan_incref(<PyObject*>item)
            plan_tuple_set(made, <Py_ssize_t>slot, <PyObject*>item)
        for i in range(n):
            if plan_tuple_get(made, i) is NULL:
                row = <tuple>self.defaults[i]
                if row[1]:
                    value = plan_call(<PyObject*>row[0])
                else:
                    value = <PyObject*>row[0]
                    plan_incref(value)
                plan_tuple_set(made, i, value)
        return struct
