# The one walker that encodes and decodes every Kafka message.
#
# protocol/schema.py compiles (message class, version) into a Plan: flat arrays of Op, one per field, in wire order.
# Rules of the walk:
#  1. Decode fills tuple subclasses (one per struct, the same class for all versions); fields that the version lacks get their default.
#  2. A count or length from the wire is compared with the bytes left before anything is built: count x smallest element <= remaining.
#  3. Encode makes two passes: `measure` (exact size, no writing), then `write` into one block of that size. The second pass checks the
#     room before every store, so a list that changes between the passes ends in UsageError and never in an overrun.
#  4. Record bytes are not copied: encode cuts the block around them and returns a gather list, decode returns a memoryview.
#  5. Walk.steps holds (field, index) per level. Entering a field costs two stores; the path is spelled out only when something fails.
#
# Encodings (classic | flexible, KIP-482):
#  string  i16 length, -1 null        | uvarint length+1, 0 null          array   i32 count, -1 null | uvarint count+1, 0 null
#  bytes, records  i32 length, -1 null | uvarint length+1, 0 null         struct  its fields; nullable: i8 -1 null, 1 present
#  a flexible struct ends with tagged fields: uvarint count, then (uvarint tag, uvarint size, value), tags ascending

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MIN

from kafkacore.errors import CorruptDataError, InternalError, UsageError

cdef extern from "Python.h":
    # The walker counts references itself: these return or take plain pointers.
    ctypedef struct PlanType "PyTypeObject":
        PyObject* (*tp_alloc)(PlanType*, Py_ssize_t)
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
        return self.walk(buffer, offset, True)[0]

    def decode_prefix(self, buffer, Py_ssize_t offset=0):
        """Decodes one message that begins at offset and may be followed by other bytes.

        Returns:
            The message, and where it ended.
        """
        return self.walk(buffer, offset, False)

    cdef tuple walk(self, buffer, Py_ssize_t offset, bint whole):
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
            w.steps[0].op = NULL
            message = walk_decode_struct(&self.code, &w, 0)
            if whole and w.p != w.end:
                w.steps[0].op = NULL
                walk_corrupt(&w, 0, f"{w.end - w.p} bytes left over")
            return message, w.p - w.start
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


# ---- decode ----

cdef inline int walk_need(PlanWalk* w, int level, Py_ssize_t n) except -1:
    if w.end - w.p < n:
        walk_corrupt(w, level, f"{n} bytes needed, {w.end - w.p} left")
    return 0


cdef inline uint64_t walk_take_uvarint(PlanWalk* w, int level) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t value = 0
    cdef const uint8_t* p
    if w.p < w.end and w.p[0] < 0x80:
        value = w.p[0]
        w.p += 1
        return value
    p = kc_get_uvarint(w.p, w.end, KC_MAX_VARINT, &value)
    if p is NULL:
        walk_corrupt(w, level, "truncated or overlong unsigned varint")
    w.p = p
    return value


cdef inline Py_ssize_t walk_take_length(PlanOp* op, int type_, PlanWalk* w, int level, bint nullable) except -2:
    """A string's or blob's length or an array's count; -1 for null. Checked against the sign and null rules only."""
    cdef Py_ssize_t n
    if op.compact:
        n = <Py_ssize_t>walk_take_uvarint(w, level) - 1
    elif type_ == W_STRING:
        walk_need(w, level, 2)
        n = kc_get16(w.p)
        w.p += 2
    else:
        walk_need(w, level, 4)
        n = kc_get32(w.p)
        w.p += 4
    if n < 0:
        if n < -1:
            walk_corrupt(w, level, f"negative length {n}")
        if not nullable:
            walk_corrupt(w, level, "null in a field that is never null")
    return n


cdef PyObject* walk_decode_value(PlanOp* op, int type_, bint nullable, PlanWalk* w, int level) except NULL:
    """One value; a new reference."""
    cdef Py_ssize_t n
    cdef const uint8_t* p
    cdef PyObject* made
    cdef uint64_t bits
    cdef double number
    if type_ < W_STRING:
        n = PLAN_FIXED_BYTES[type_]
        walk_need(w, level, n)
        p = w.p
        w.p += n
        if type_ == W_INT32:
            return plan_long(kc_get32(p))
        elif type_ == W_INT16:
            return plan_long(kc_get16(p))
        elif type_ == W_INT64:
            return plan_longlong(kc_get64(p))
        elif type_ == W_BOOL:
            made = PLAN_TRUE if p[0] else PLAN_FALSE
            plan_incref(made)
            return made
        elif type_ == W_INT8:
            return plan_long(<int8_t>p[0])
        elif type_ == W_UINT16:
            return plan_long(<uint16_t>kc_get16(p))
        elif type_ == W_UINT32:
            return plan_longlong(<uint32_t>kc_get32(p))
        elif type_ == W_UUID:
            return plan_bytes(<const char*>p, 16)
        bits = <uint64_t>kc_get64(p)
        memcpy(&number, &bits, 8)
        return plan_float(number)
    if type_ == W_STRUCT:
        if nullable:
            walk_need(w, level, 1)
            w.p += 1
            if <int8_t>(w.p - 1)[0] < 0:
                plan_incref(PLAN_NONE)
                return PLAN_NONE
        struct = walk_decode_struct(op.sub, w, level + 1)
        plan_incref(<PyObject*>struct)
        return <PyObject*>struct
    n = walk_take_length(op, type_, w, level, nullable)
    if n < 0:
        plan_incref(PLAN_NONE)
        return PLAN_NONE
    if type_ == W_ARRAY:
        return walk_decode_array(op, n, w, level)
    if n > w.end - w.p:
        walk_corrupt(w, level, f"length {n} goes past the end, {w.end - w.p} bytes left")
    p = w.p
    if type_ == W_STRING:
        if n > PLAN_MAX_STRING:
            walk_corrupt(w, level, f"string of {n} bytes, the protocol allows {PLAN_MAX_STRING}")
        made = plan_utf8(<const char*>p, n, NULL)
        if made is NULL:
            PyErr_Clear()
            walk_corrupt(w, level, "string is not valid UTF-8")
    elif type_ == W_BYTES:
        made = plan_bytes(<const char*>p, n)
    else:
        made = walk_records_view(w, n)
    w.p += n
    return made


cdef PyObject* walk_records_view(PlanWalk* w, Py_ssize_t n) except NULL:
    cdef Py_ssize_t at = w.p - w.start
    if w.view is NULL:
        whole = memoryview(<object>w.source)
        if whole.ndim != 1 or whole.itemsize != 1 or whole.format != "B":
            whole = whole.cast("B")
        plan_incref(<PyObject*>whole)
        w.view = <PyObject*>whole
    part = (<object>w.view)[at:at + n]
    plan_incref(<PyObject*>part)
    return <PyObject*>part


cdef PyObject* walk_decode_array(PlanOp* op, Py_ssize_t count, PlanWalk* w, int level) except NULL:
    cdef Py_ssize_t i
    cdef PyObject* items
    if count > (w.end - w.p) // op.least:
        walk_corrupt(w, level, f"count {count} needs at least {count * op.least} bytes, {w.end - w.p} left")
    result = <object>(items := plan_list(count))
    plan_xdecref(items)                                     # `result` owns it now, and frees it when an element is corrupt
    if op.elem == W_INT32:                                  # replica lists: checked once above
        for i in range(count):
            plan_list_set(items, i, plan_long(kc_get32(w.p)))
            w.p += 4
    elif op.elem == W_STRUCT:
        for i in range(count):
            w.steps[level].index = i
            struct = walk_decode_struct(op.sub, w, level + 1)
            plan_incref(<PyObject*>struct)
            plan_list_set(items, i, <PyObject*>struct)
    else:
        for i in range(count):
            w.steps[level].index = i
            plan_list_set(items, i, walk_decode_value(op, op.elem, False, w, level))
    w.steps[level].index = -1
    plan_incref(items)
    return items


cdef object walk_decode_struct(PlanCode* code, PlanWalk* w, int level):
    cdef PyObject* made = code.cls.tp_alloc(code.cls, code.slots)
    cdef PyObject* value
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    if made is NULL:
        raise MemoryError
    struct = <object>made
    plan_xdecref(made)
    while op < stop:
        w.steps[level].op = op
        w.steps[level].index = -1
        if op.type == W_INT32 and w.end - w.p >= 4:         # the commonest field, without the call
            value = plan_long(kc_get32(w.p))
            w.p += 4
        else:
            value = walk_decode_value(op, op.type, op.nullable, w, level)
        plan_tuple_set(made, op.slot, value)
        op += 1
    if code.flexible:
        walk_decode_tagged(code, made, w, level)
    op = stop + code.ntagged
    stop = op + code.nabsent
    while op < stop:
        walk_set_default(op, made)
        op += 1
    return struct


cdef inline int walk_set_default(PlanOp* op, PyObject* struct) except -1:
    cdef PyObject* value
    if op.fresh:
        value = plan_call(op.default)
    else:
        value = op.default
        plan_incref(value)
    plan_tuple_set(struct, op.slot, value)
    return 0


cdef int walk_decode_tagged(PlanCode* code, PyObject* struct, PlanWalk* w, int level) except -1:
    """Known tags go to their slots, unknown ones are skipped, missing ones get their default."""
    cdef Py_ssize_t count
    cdef Py_ssize_t size
    cdef uint64_t tag
    cdef int64_t last = -1
    cdef const uint8_t* outer = w.end
    cdef PlanOp* op = code.ops + code.nops
    cdef PlanOp* stop = op + code.ntagged
    w.steps[level].op = NULL
    w.steps[level].index = -1
    count = <Py_ssize_t>walk_take_uvarint(w, level)
    if count > (w.end - w.p) // 2:
        walk_corrupt(w, level, f"{count} tagged fields do not fit in {w.end - w.p} bytes")
    while count > 0:
        count -= 1
        tag = walk_take_uvarint(w, level)
        size = <Py_ssize_t>walk_take_uvarint(w, level)
        if <int64_t>tag <= last:
            walk_corrupt(w, level, f"tag {tag} comes after tag {last}")
        last = <int64_t>tag
        if size > w.end - w.p:
            walk_corrupt(w, level, f"tagged field {tag} of {size} bytes goes past the end, {w.end - w.p} left")
        while op < stop and op.tag < tag:
            walk_set_default(op, struct)
            op += 1
        if op < stop and op.tag == tag:
            w.end = w.p + size
            w.steps[level].op = op
            plan_tuple_set(struct, op.slot, walk_decode_value(op, op.type, op.nullable, w, level))
            if w.p != w.end:
                walk_corrupt(w, level, f"tagged field is {w.end - w.p} bytes longer than its value")
            w.end = outer
            w.steps[level].op = NULL
            op += 1
        else:
            w.p += size
    while op < stop:
        walk_set_default(op, struct)
        op += 1
    return 0


# ---- encode ----

cdef inline bint walk_is_default(PlanOp* op, PyObject* value) except -1:
    """Whether a value is the one that a reader would assume without the field."""
    if value is op.default and not op.fresh:
        return True
    if op.fresh:
        if op.type == W_ARRAY:
            return (plan_is_list(value) or plan_is_exact_tuple(value)) and not <object>value
        fresh = (<object>op.default)()
        return plan_equal(value, <PyObject*>fresh, 2)
    if value is PLAN_NONE or op.default is PLAN_NONE:
        return False
    return plan_equal(value, op.default, 2)


cdef inline Py_ssize_t walk_length_size(PlanOp* op, int type_, Py_ssize_t n):
    if op.compact:
        return <Py_ssize_t>kc_uvarint_size(<uint64_t>(n + 1))
    return 2 if type_ == W_STRING else 4


cdef int walk_wrong_type(PlanWalk* w, int level, str wanted, PyObject* value) except -1:
    return walk_misuse(w, level, f"expected {wanted}, got {type(<object>value).__name__}")


cdef Py_ssize_t walk_buffer_bytes(PlanWalk* w, int level, PyObject* value) except -1:
    cdef Py_buffer view
    if plan_is_bytes(value):
        return plan_bytes_size(value)
    if not PyObject_CheckBuffer(<object>value):
        walk_wrong_type(w, level, "a bytes-like object", value)
    try:
        PyObject_GetBuffer(<object>value, &view, PyBUF_SIMPLE)
    except BufferError as error:
        walk_misuse(w, level, f"not one piece of memory: {error}")
    cdef Py_ssize_t n = view.len
    PyBuffer_Release(&view)
    return n


cdef Py_ssize_t walk_records_bytes(PlanWalk* w, int level, PyObject* value) except -1:
    """The total of a records value: one bytes-like, or a list of them."""
    cdef Py_ssize_t i, total = 0
    if not plan_is_list(value):
        return walk_buffer_bytes(w, level, value)
    for i in range(plan_list_size(value)):
        if i >= plan_list_size(value):
            break
        part = <object>plan_list_get(value, i)
        w.steps[level].index = i
        total += walk_buffer_bytes(w, level, <PyObject*>part)
    w.steps[level].index = -1
    return total


cdef const char* walk_utf8_of(PlanWalk* w, int level, PyObject* value, Py_ssize_t* n) except NULL:
    cdef const char* text
    if not plan_is_str(value):
        walk_wrong_type(w, level, "str", value)
    text = plan_str_utf8(value, n)
    if text is NULL:
        PyErr_Clear()
        walk_misuse(w, level, "string has lone surrogates and no UTF-8 form")
    if n[0] > PLAN_MAX_STRING:
        walk_misuse(w, level, f"string of {n[0]} bytes, the protocol allows {PLAN_MAX_STRING}")
    return text


cdef int walk_null_value(PlanOp* op, bint nullable, PlanWalk* w, int level) except -1:
    if not nullable:
        walk_misuse(w, level, f"None, but {(<Plan>w.plan).label} has no null here")
    return 0


cdef int walk_check_struct(PlanCode* code, PyObject* value, PlanWalk* w, int level) except -1:
    if not plan_same_type(value, code.cls) or plan_tuple_size(value) != code.slots:
        walk_wrong_type(w, level, (<object><PyObject*>code.cls).__name__, value)
    return 0


cdef Py_ssize_t walk_measure_value(PlanOp* op, int type_, bint nullable, PyObject* value, PlanWalk* w, int level) except -1:
    """Bytes of one value without the records it refers to (those are added to w.records_bytes)."""
    cdef Py_ssize_t n = 0, i, total
    if type_ < W_STRING:
        return PLAN_FIXED_BYTES[type_]
    if value is PLAN_NONE:
        walk_null_value(op, nullable, w, level)
        return 1 if type_ == W_STRUCT else walk_length_size(op, type_, -1)
    if type_ == W_STRING:
        walk_utf8_of(w, level, value, &n)
        return walk_length_size(op, type_, n) + n
    elif type_ == W_STRUCT:
        walk_check_struct(op.sub, value, w, level)
        return nullable + walk_measure_struct(op.sub, value, w, level + 1)
    elif type_ == W_BYTES:
        n = walk_buffer_bytes(w, level, value)
        return walk_length_size(op, type_, n) + n
    elif type_ == W_RECORDS:
        n = walk_records_bytes(w, level, value)
        w.records_bytes += n
        w.has_records = True
        return walk_length_size(op, type_, n)
    if plan_is_list(value):
        n = plan_list_size(value)
    elif plan_is_exact_tuple(value):
        n = plan_tuple_size(value)
    else:
        walk_wrong_type(w, level, "a list", value)
    total = walk_length_size(op, W_ARRAY, n)
    if op.elem < W_STRING:
        return total + n * PLAN_FIXED_BYTES[op.elem]
    for i in range(n):
        w.steps[level].index = i
        item = walk_array_item(value, i, n, w, level)
        total += walk_measure_value(op, op.elem, False, <PyObject*>item, w, level)
    w.steps[level].index = -1
    return total


cdef inline object walk_array_item(PyObject* value, Py_ssize_t i, Py_ssize_t n, PlanWalk* w, int level):
    """Element i of a list or tuple; a list that shrank or grew since its count was written is the caller's mistake."""
    if plan_is_list(value):
        if plan_list_size(value) != n:
            walk_misuse(w, level, "list changed while it was encoded")
        return <object>plan_list_get(value, i)
    return <object>plan_tuple_get(value, i)


cdef Py_ssize_t walk_measure_struct(PlanCode* code, PyObject* struct, PlanWalk* w, int level) except -1:
    cdef Py_ssize_t total = code.fixed, size
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    cdef PyObject* value
    cdef int present = 0
    while op < stop:
        if op.type >= W_STRING:
            w.steps[level].op = op
            w.steps[level].index = -1
            total += walk_measure_value(op, op.type, op.nullable, plan_tuple_get(struct, op.slot), w, level)
        op += 1
    if code.ntagged:
        stop = op + code.ntagged
        while op < stop:
            value = plan_tuple_get(struct, op.slot)
            if not walk_is_default(op, value):
                w.steps[level].op = op
                w.steps[level].index = -1
                size = walk_tagged_bytes(op, value, w, level)
                total += kc_uvarint_size(op.tag) + kc_uvarint_size(<uint64_t>size) + size
                present += 1
            op += 1
        total += kc_uvarint_size(present)
    stop = op + code.nabsent
    while op < stop:
        if not op.ignorable and not walk_is_default(op, plan_tuple_get(struct, op.slot)):
            w.steps[level].op = op
            w.steps[level].index = -1
            walk_misuse(w, level, f"{(<Plan>w.plan).label} has no such field, and {<object>plan_tuple_get(struct, op.slot)!r} cannot be dropped silently")
        op += 1
    return total


cdef Py_ssize_t walk_tagged_bytes(PlanOp* op, PyObject* value, PlanWalk* w, int level) except -1:
    return walk_measure_value(op, op.type, op.nullable, value, w, level)


cdef inline int walk_room(PlanWalk* w, int level, Py_ssize_t n) except -1:
    if w.limit - w.out < n:
        walk_misuse(w, level, "message changed while it was encoded")
    return 0


cdef int walk_write_length(PlanOp* op, int type_, Py_ssize_t n, PlanWalk* w, int level) except -1:
    if n > 0x7FFFFFFE:
        walk_misuse(w, level, f"{n} bytes or elements, the protocol allows {0x7FFFFFFE}")
    walk_room(w, level, walk_length_size(op, type_, n))
    if op.compact:
        w.out = kc_put_uvarint(w.out, <uint64_t>(n + 1))
    elif type_ == W_STRING:
        kc_put16(w.out, <int16_t>n)
        w.out += 2
    else:
        kc_put32(w.out, <int32_t>n)
        w.out += 4
    return 0


cdef int64_t walk_int_of(PyObject* value, int64_t low, int64_t high, PlanWalk* w, int level) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not plan_is_int(value):
        walk_wrong_type(w, level, "int", value)
    number = plan_as_longlong(value, &overflow)
    if overflow or number < low or number > high:
        walk_misuse(w, level, f"{<object>value} is outside {low}..{high}")
    return number


cdef int walk_write_fixed(int type_, PyObject* value, PlanWalk* w, int level) except -1:
    cdef double number = 0
    cdef uint64_t bits
    walk_room(w, level, PLAN_FIXED_BYTES[type_])
    if type_ == W_INT32:
        kc_put32(w.out, <int32_t>walk_int_of(value, -0x80000000LL, 0x7FFFFFFF, w, level))
    elif type_ == W_INT16:
        kc_put16(w.out, <int16_t>walk_int_of(value, -0x8000, 0x7FFF, w, level))
    elif type_ == W_INT64:
        kc_put64(w.out, walk_int_of(value, INT64_MIN, INT64_MAX, w, level))
    elif type_ == W_INT8:
        w.out[0] = <uint8_t><int8_t>walk_int_of(value, -0x80, 0x7F, w, level)
    elif type_ == W_BOOL:
        if not plan_is_bool(value):
            walk_wrong_type(w, level, "bool", value)
        w.out[0] = value is PLAN_TRUE
    elif type_ == W_UINT16:
        kc_put16(w.out, <int16_t><uint16_t>walk_int_of(value, 0, 0xFFFF, w, level))
    elif type_ == W_UINT32:
        kc_put32(w.out, <int32_t><uint32_t>walk_int_of(value, 0, 0xFFFFFFFFLL, w, level))
    elif type_ == W_UUID:
        if not plan_is_bytes(value) or plan_bytes_size(value) != 16:
            walk_wrong_type(w, level, "16 bytes", value)
        memcpy(w.out, plan_bytes_ptr(value), 16)
    else:
        if plan_is_float(value):
            number = plan_as_double(value)
        elif plan_is_int(value):
            number = <double>walk_int_of(value, -0x20000000000000LL, 0x20000000000000LL, w, level)
        else:
            walk_wrong_type(w, level, "float", value)
        memcpy(&bits, &number, 8)
        kc_put64(w.out, <int64_t>bits)
    w.out += PLAN_FIXED_BYTES[type_]
    return 0


cdef int walk_write_value(PlanOp* op, int type_, bint nullable, PyObject* value, PlanWalk* w, int level) except -1:
    cdef Py_ssize_t n = 0, i
    cdef const char* text
    if type_ < W_STRING:
        return walk_write_fixed(type_, value, w, level)
    if type_ == W_STRUCT:
        if nullable:
            walk_room(w, level, 1)
            w.out[0] = 0xFF if value is PLAN_NONE else 1
            w.out += 1
            if value is PLAN_NONE:
                return 0
        walk_check_struct(op.sub, value, w, level)
        return walk_write_struct(op.sub, value, w, level + 1)
    if value is PLAN_NONE:
        walk_null_value(op, nullable, w, level)
        return walk_write_length(op, type_, -1, w, level)
    if type_ == W_STRING:
        text = walk_utf8_of(w, level, value, &n)
        walk_write_length(op, type_, n, w, level)
        walk_room(w, level, n)
        memcpy(w.out, text, n)
        w.out += n
        return 0
    elif type_ == W_BYTES:
        return walk_write_bytes(op, value, w, level)
    elif type_ == W_RECORDS:
        return walk_write_records(op, value, w, level)
    if plan_is_list(value):
        n = plan_list_size(value)
    elif plan_is_exact_tuple(value):
        n = plan_tuple_size(value)
    else:
        walk_wrong_type(w, level, "a list", value)
    walk_write_length(op, W_ARRAY, n, w, level)
    for i in range(n):
        w.steps[level].index = i
        item = walk_array_item(value, i, n, w, level)
        walk_write_value(op, op.elem, False, <PyObject*>item, w, level)
    w.steps[level].index = -1
    return 0


cdef int walk_write_bytes(PlanOp* op, PyObject* value, PlanWalk* w, int level) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t n
    if plan_is_bytes(value):
        n = plan_bytes_size(value)
        walk_write_length(op, W_BYTES, n, w, level)
        walk_room(w, level, n)
        memcpy(w.out, plan_bytes_ptr(value), n)
        w.out += n
        return 0
    PyObject_GetBuffer(<object>value, &view, PyBUF_SIMPLE)
    try:
        walk_write_length(op, W_BYTES, view.len, w, level)
        walk_room(w, level, view.len)
        memcpy(w.out, view.buf, view.len)
        w.out += view.len
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int walk_write_records(PlanOp* op, PyObject* value, PlanWalk* w, int level) except -1:
    """Cuts the block here and puts the caller's buffers into the gather list."""
    cdef list gather = <list>w.gather
    cdef Py_ssize_t n = walk_records_bytes(w, level, value), start = len(gather)
    if n > w.records_bytes:
        walk_misuse(w, level, "records changed while they were encoded")
    w.records_bytes -= n
    walk_write_length(op, W_RECORDS, n, w, level)
    if n == 0:
        return 0
    gather.append(PyBytes_FromStringAndSize(<char*>w.segment, w.out - w.segment))
    w.segment = w.out
    if plan_is_list(value):
        gather.extend(<list>value)
    else:
        gather.append(<object>value)
    return 0


cdef int walk_write_struct(PlanCode* code, PyObject* struct, PlanWalk* w, int level) except -1:
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    cdef PlanOp* tag
    cdef PyObject* value
    cdef Py_ssize_t size, records, i
    cdef int present = 0
    while op < stop:
        w.steps[level].op = op
        w.steps[level].index = -1
        value = plan_tuple_get(struct, op.slot)
        if op.type < W_STRING:
            walk_write_fixed(op.type, value, w, level)
        else:
            walk_write_value(op, op.type, op.nullable, value, w, level)
        op += 1
    if not code.flexible:
        return 0
    stop = op + code.ntagged
    for i in range(code.ntagged):
        present += not walk_is_default(op + i, plan_tuple_get(struct, op[i].slot))
    walk_room(w, level, kc_uvarint_size(present))
    w.out = kc_put_uvarint(w.out, present)
    while present and op < stop:
        value = plan_tuple_get(struct, op.slot)
        if not walk_is_default(op, value):
            w.steps[level].op = op
            w.steps[level].index = -1
            records = w.records_bytes
            size = walk_tagged_bytes(op, value, w, level)
            w.records_bytes = records                       # tagged fields hold no records
            walk_room(w, level, kc_uvarint_size(op.tag) + kc_uvarint_size(<uint64_t>size) + size)
            w.out = kc_put_uvarint(w.out, op.tag)
            w.out = kc_put_uvarint(w.out, <uint64_t>size)
            walk_write_value(op, op.type, op.nullable, value, w, level)
        op += 1
    return 0


cdef enum PlanFrame:
    FRAME_NONE = 0       # the message alone
    FRAME_REQUEST = 1    # size, request header, message
    FRAME_RESPONSE = 2   # size, response header, message


cdef list walk_encode_message(Plan plan, message, PlanFrame frame, int32_t correlation_id, client_id):
    cdef PlanWalk w
    cdef uint8_t stack[2048]
    cdef uint8_t* block
    cdef uint8_t* heap = NULL
    cdef Py_ssize_t total, head = 0, client_bytes = 0
    cdef const char* client = NULL
    cdef list gather = []
    cdef bytes whole = None
    w.plan, w.gather, w.records_bytes, w.has_records = <PyObject*>plan, <PyObject*>gather, 0, False
    w.steps[0].op = NULL
    if frame == FRAME_REQUEST:
        # ClientId stays an int16 string in header v2: brokers must read it before they know the version's header.
        head = 4 + 8 + 2 + plan.header_flexible
        if client_id is not None:
            client = walk_utf8_of(&w, -1, <PyObject*>client_id, &client_bytes)
            head += client_bytes
    elif frame == FRAME_RESPONSE:
        head = 4 + 4 + plan.response_header_flexible
    walk_check_struct(&plan.code, <PyObject*>message, &w, -1)
    total = head + walk_measure_struct(&plan.code, <PyObject*>message, &w, 0)
    if total + w.records_bytes > 0x7FFFFFFF:
        walk_misuse(&w, -1, f"{total + w.records_bytes} bytes, a frame holds {0x7FFFFFFF}")
    if not w.has_records:
        whole = PyBytes_FromStringAndSize(NULL, total)
        block = <uint8_t*>PyBytes_AS_STRING(whole)
    elif total <= <Py_ssize_t>sizeof(stack):
        block = stack
    else:
        block = heap = <uint8_t*>PyMem_Malloc(total)
        if heap is NULL:
            raise MemoryError
    try:
        w.out = w.segment = block
        w.limit = block + total
        if frame:
            kc_put32(w.out, <int32_t>(total + w.records_bytes - 4))
            if frame == FRAME_RESPONSE:
                kc_put32(w.out + 4, correlation_id)
                if plan.response_header_flexible:
                    w.out[8] = 0
            else:
                kc_put16(w.out + 4, <int16_t>plan.api_key)
                kc_put16(w.out + 6, <int16_t>plan.version)
                kc_put32(w.out + 8, correlation_id)
                kc_put16(w.out + 12, <int16_t>client_bytes if client is not NULL else -1)
                if client_bytes:
                    memcpy(w.out + 14, client, client_bytes)
                if plan.header_flexible:
                    w.out[head - 1] = 0
            w.out += head
        walk_write_struct(&plan.code, <PyObject*>message, &w, 0)
        if w.out != w.limit or w.records_bytes:
            walk_misuse(&w, -1, "message changed while it was encoded")
        if whole is not None:
            gather.append(whole)
        elif w.out > w.segment:
            gather.append(PyBytes_FromStringAndSize(<char*>w.segment, w.out - w.segment))
        return gather
    finally:
        PyMem_Free(heap)


cdef inline Plan plan_for(message, int version):
    cls = type(message)
    try:
        return <Plan?>(<dict?>cls._PLANS)[version]
    except (KeyError, AttributeError):
        pass
    if not hasattr(cls, "plan"):
        raise UsageError(f"{cls.__name__} is not a Kafka message")
    return <Plan?>cls.plan(version)


def encode_request(request, int version, int32_t correlation_id, str client_id):
    """A complete request frame: size, header, message.

    Args:
        request: A Request.
        version: The version to write.
        correlation_id: What the response will carry.
        client_id: Name of the client, or None.

    Returns:
        A gather list; its first element starts with the frame's size. Record buffers are referenced, not copied.

    Raises:
        UsageError: The request does not fit the version; the text names the field.
    """
    return walk_encode_message(plan_for(request, version), request, FRAME_REQUEST, correlation_id, client_id)


def encode_response(response, int version, int32_t correlation_id):
    """A complete response frame: size, header, message; as encode_request."""
    return walk_encode_message(plan_for(response, version), response, FRAME_RESPONSE, correlation_id, None)


def skip_tagged_fields(buffer, Py_ssize_t offset):
    """Where the bytes after a tagged section begin: headers carry tagged fields that nobody reads.

    Raises:
        CorruptDataError: The section is not well-formed.
    """
    cdef Py_buffer view
    cdef Cursor c
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&c, view.buf, view.len)
        cursor_take(&c, max(offset, 0))
        cursor_skip_tagged_fields(&c)
        return cursor_offset(&c)
    finally:
        PyBuffer_Release(&view)


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
        made = kind.tp_alloc(kind, n)
        if made is NULL:
            raise MemoryError
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
