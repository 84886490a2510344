# The reading half of the walker; its rules are in plan.pxi.

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


cdef inline bint walk_takes_null(int nullable, PlanWalk* w, int level) except -1:
    """Reads whether a nullable struct is there. A tagged one that is null is 0; older versions of this package wrote -1."""
    walk_need(w, level, 1)
    w.p += 1
    return <int8_t>(w.p - 1)[0] < (1 if nullable == PLAN_TAGGED_NULLABLE else 0)


cdef PyObject* walk_decode_value(PlanOp* op, int type_, int nullable, PlanWalk* w, int level) except NULL:
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
        if nullable and walk_takes_null(nullable, w, level):
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
        made = walk_string(n, w, level)
    elif type_ == W_BYTES:
        made = plan_bytes(<const char*>p, n)
    else:
        made = walk_records_view(w, n)
    w.p += n
    return made


cdef PyObject* walk_string(Py_ssize_t n, PlanWalk* w, int level) except NULL:
    """A string of n bytes, which are there; w.p stays."""
    cdef PyObject* made
    if n > PLAN_MAX_STRING:
        walk_corrupt(w, level, f"string of {n} bytes, the protocol allows {PLAN_MAX_STRING}")
    made = plan_utf8(<const char*>w.p, n, NULL)
    if made is NULL:
        if not PyErr_ExceptionMatches(UnicodeDecodeError):
            return NULL                                     # out of memory, say: not the peer's fault
        PyErr_Clear()
        walk_corrupt(w, level, "string is not valid UTF-8")
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


cdef int walk_check_count(PlanOp* op, Py_ssize_t count, PlanWalk* w, int level) except -1:
    """Whether an array of so many elements can be here, and may."""
    if count > (w.end - w.p) // op.least:
        walk_corrupt(w, level, f"count {count} needs at least {count * op.least} bytes, {w.end - w.p} left")
    w.elements += count                                     # cannot overflow: every element takes a byte
    if w.elements > w.max_elements:
        raise InvalidRequest(f"{(<Plan>w.plan).label}, {walk_path(w, level)}: more than {w.max_elements} elements in one request")
    return 0


cdef PyObject* walk_decode_array(PlanOp* op, Py_ssize_t count, PlanWalk* w, int level) except NULL:
    cdef Py_ssize_t i
    cdef PyObject* items
    walk_check_count(op, count, w, level)
    if w.left is not NULL and op.elem == W_STRUCT and op.sub.cls == w.left:
        if w.left == FETCHED_STRUCT:
            table = fetched_table(op.sub, count, w, level)
        elif w.left == PARTITION_STRUCT:
            table = partition_table(op.sub, count, w, level)
        elif w.left == PRODUCED_TOPIC:
            table = produced_topics(op.sub, count, w, level)
        else:
            raise InternalError(f"{(<Plan>w.plan).label}: arrays of {(<object><PyObject*>w.left).__name__} are not left as bytes")
        plan_incref(<PyObject*>table)
        return <PyObject*>table
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
    cdef PyObject* made = plan_new_tuple(code.cls, code.slots)
    cdef PyObject* value
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
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
        walk_decode_tagged(code, made, NULL, w, level)
    op = stop + code.ntagged
    stop = op + code.nabsent
    while op < stop:
        walk_set_default(op, made, NULL)
        op += 1
    return struct


cdef inline int walk_set_default(PlanOp* op, PyObject* struct, PlanCell* cells) except -1:
    cdef PyObject* value
    if struct is NULL:
        if cells is not NULL:                           # without a fresh default it may be a number; else it is empty
            cells[op.slot].value = <object>op.default if not op.fresh and plan_is_int(op.default) else 0
            cells[op.slot].count = 0
        return 0
    if op.fresh:
        value = plan_call(op.default)
    else:
        value = op.default
        plan_incref(value)
    plan_tuple_set(struct, op.slot, value)
    return 0


cdef int walk_decode_tagged(PlanCode* code, PyObject* struct, PlanCell* cells, PlanWalk* w, int level) except -1:
    """Known tags go to their slots, unknown ones are skipped, missing ones get their default. Without a struct they are checked, and go to
    their cells if there are any."""
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
            walk_set_default(op, struct, cells)
            op += 1
        if op < stop and op.tag == tag:
            w.end = w.p + size
            w.steps[level].op = op
            if struct is NULL:
                walk_skip_value(op, op.type, PLAN_TAGGED_NULLABLE if op.nullable else 0, w, level, &cells[op.slot] if cells is not NULL else NULL)
            else:
                plan_tuple_set(struct, op.slot, walk_decode_value(op, op.type, PLAN_TAGGED_NULLABLE if op.nullable else 0, w, level))
            if w.p != w.end:
                walk_corrupt(w, level, f"tagged field is {w.end - w.p} bytes longer than its value")
            w.end = outer
            w.steps[level].op = NULL
            op += 1
        else:
            w.p += size
    while op < stop:
        walk_set_default(op, struct, cells)
        op += 1
    return 0


cdef int walk_skip_value(PlanOp* op, int type_, int nullable, PlanWalk* w, int level, PlanCell* cell) except -1:
    """Goes past a value with all checks of walk_decode_value, and makes no object. The cell may be NULL."""
    cdef Py_ssize_t n, i
    cdef PlanCell found
    cdef PyObject* made
    if type_ < W_STRING:
        n = PLAN_FIXED_BYTES[type_]
        walk_need(w, level, n)
        if cell is not NULL:
            if type_ == W_INT32:
                cell.value = kc_get32(w.p)
            elif type_ == W_INT16:
                cell.value = kc_get16(w.p)
            elif type_ == W_INT64:
                cell.value = kc_get64(w.p)
            elif type_ == W_INT8:
                cell.value = <int8_t>w.p[0]
            elif type_ == W_BOOL:
                cell.value = w.p[0] != 0
            elif type_ == W_UINT16:
                cell.value = <uint16_t>kc_get16(w.p)
            elif type_ == W_UINT32:
                cell.value = <uint32_t>kc_get32(w.p)
            else:
                cell.value = w.p - w.start
        w.p += n
        return 0
    found.value, found.count = 0, -1
    if type_ == W_STRUCT:
        if not (nullable and walk_takes_null(nullable, w, level)):
            found.value, found.count = w.p - w.start, 1
            walk_skip_struct(op.sub, w, level + 1, NULL)
    else:
        n = walk_take_length(op, type_, w, level, nullable)
        found.value, found.count = w.p - w.start, n
        if n >= 0 and type_ == W_ARRAY:
            walk_check_count(op, n, w, level)
            if PLAN_FIXED_BYTES[op.elem]:
                w.p += n * PLAN_FIXED_BYTES[op.elem]        # there: walk_check_count has compared
            else:
                for i in range(n):
                    w.steps[level].index = i
                    if op.elem == W_STRUCT:
                        walk_skip_struct(op.sub, w, level + 1, NULL)
                    else:
                        walk_skip_value(op, op.elem, False, w, level, NULL)
            w.steps[level].index = -1
        elif n >= 0:
            if n > w.end - w.p:
                walk_corrupt(w, level, f"length {n} goes past the end, {w.end - w.p} bytes left")
            if type_ == W_STRING:
                plan_xdecref(walk_string(n, w, level))
            w.p += n
    if cell is not NULL:
        cell[0] = found
    return 0


cdef int walk_skip_struct(PlanCode* code, PlanWalk* w, int level, PlanCell* cells) except -1:
    """Goes past a struct with all checks of walk_decode_struct. Its fields go to the cells, one per slot, unless those are NULL."""
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    while op < stop:
        w.steps[level].op = op
        w.steps[level].index = -1
        walk_skip_value(op, op.type, op.nullable, w, level, &cells[op.slot] if cells is not NULL else NULL)
        op += 1
    if code.flexible:
        walk_decode_tagged(code, NULL, cells, w, level)
    op = stop + code.ntagged
    stop = op + code.nabsent
    while op < stop:
        walk_set_default(op, NULL, cells)
        op += 1
    return 0


def skip_tagged_fields(buffer, Py_ssize_t offset):
    """Where the bytes after a tagged section begin: headers carry tagged fields that are not read.

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


def decode_request_body(Plan plan not None, buffer not None, Py_ssize_t max_elements=PLAN_ANY_ELEMENTS):
    """A request whose API and version are known: what follows them in its frame.

    Args:
        plan: Of the request's class and version.
        buffer: The frame without its size. Bytes after the request are ignored, as Kafka does.
        max_elements: How many elements all arrays of the request may have together, nested ones included.

    Returns:
        The client id, None if there is none, the request, and how many elements its arrays have.

    Raises:
        CorruptDataError: The bytes are not such a request.
        InvalidRequest: It has more elements.
    """
    cdef Py_buffer view
    cdef Cursor c
    cdef Py_ssize_t length, start
    cdef object client_id = None
    cdef tuple found
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        cursor_init(&c, view.buf, view.len)
        cursor_take(&c, 8)                             # API key, version, correlation id
        length = cursor_i16(&c)
        if length < -1 or length > cursor_remaining(&c):
            raise_corrupt(f"request header: client_id of {length} bytes, {cursor_remaining(&c)} are left", 8)
        if length >= 0:
            try:
                client_id = PyUnicode_DecodeUTF8(<const char*> c.p, length, NULL)
            except UnicodeDecodeError:
                raise _CorruptDataError("request header: client_id is not valid UTF-8", offset=10) from None
            c.p += length
        if plan.header_flexible:
            cursor_skip_tagged_fields(&c)
        start = cursor_offset(&c)
    finally:
        PyBuffer_Release(&view)
    found = plan.walk(buffer, start, False, max_elements, NULL)
    return client_id, found[0], found[2]
