# The writing half of the walker; its rules are in plan.pxi.

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


cdef inline Py_ssize_t walk_piece_bytes(PlanWalk* w, int level, PyObject* value) except -1:
    if type(<object>value) is BufferStart:
        return (<BufferStart><object>value).nbytes
    if type(<object>value) is FileSlice:
        return (<FileSlice><object>value).nbytes
    return walk_buffer_bytes(w, level, value)


cdef Py_ssize_t walk_records_bytes(PlanWalk* w, int level, PyObject* value) except -1:
    """The total of a records value: one bytes-like or slice of a file, or a list of them."""
    cdef Py_ssize_t i, total = 0
    if not plan_is_list(value):
        return walk_piece_bytes(w, level, value)
    for i in range(plan_list_size(value)):
        if i >= plan_list_size(value):
            break
        part = <object>plan_list_get(value, i)
        w.steps[level].index = i
        total += walk_piece_bytes(w, level, <PyObject*>part)
    w.steps[level].index = -1
    return total


cdef const char* walk_utf8_of(PlanWalk* w, int level, PyObject* value, Py_ssize_t* n) except NULL:
    cdef const char* text
    if not plan_is_str(value):
        walk_wrong_type(w, level, "str", value)
    text = plan_str_utf8(value, n)
    if text is NULL:
        if not PyErr_ExceptionMatches(UnicodeEncodeError):
            return NULL
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


cdef Py_ssize_t walk_measure_value(PlanOp* op, int type_, int nullable, PyObject* value, PlanWalk* w, int level) except -1:
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
        if row_stands_for(op.sub, value):
            return (nullable != 0) + row_measure(op.sub, <NumberRow><object>value, w, level + 1)
        walk_check_struct(op.sub, value, w, level)
        return (nullable != 0) + walk_measure_struct(op.sub, plan_tuple_items(value), w, level + 1)
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
    elif isinstance(<object>value, PlanRows):
        return walk_measure_rows(op, <PlanRows><object>value, w, level)
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


cdef int walk_check_rows(PlanOp* op, PlanRows rows, PlanWalk* w, int level) except -1:
    if op.elem != W_STRUCT or op.sub.cls != rows.kind:
        walk_wrong_type(w, level, "a list", <PyObject*>rows)
    return 0


cdef Py_ssize_t walk_measure_rows(PlanOp* op, PlanRows rows, PlanWalk* w, int level) except -1:
    cdef PyObject* slots[PLAN_ROW_SLOTS]
    cdef Py_ssize_t i, n = rows.count, total = walk_length_size(op, W_ARRAY, n)
    walk_check_rows(op, rows, w, level)
    for i in range(n):
        w.steps[level].index = i
        rows.fill(i, slots)
        total += walk_measure_struct(op.sub, slots, w, level + 1)
    w.steps[level].index = -1
    return total


cdef int walk_write_rows(PlanOp* op, PlanRows rows, PlanWalk* w, int level) except -1:
    cdef PyObject* slots[PLAN_ROW_SLOTS]
    cdef Py_ssize_t i, n = rows.count
    walk_check_rows(op, rows, w, level)
    walk_write_length(op, W_ARRAY, n, w, level)
    for i in range(n):
        w.steps[level].index = i
        rows.fill(i, slots)
        walk_write_struct(op.sub, slots, w, level + 1)
    w.steps[level].index = -1
    return 0


cdef Py_ssize_t walk_measure_struct(PlanCode* code, PyObject** slots, PlanWalk* w, int level) except -1:
    cdef Py_ssize_t total = code.fixed, size
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    cdef PyObject* value
    cdef int present = 0
    while op < stop:
        if op.type >= W_STRING:
            w.steps[level].op = op
            w.steps[level].index = -1
            total += walk_measure_value(op, op.type, op.nullable, slots[op.slot], w, level)
        op += 1
    if code.ntagged:
        stop = op + code.ntagged
        while op < stop:
            value = slots[op.slot]
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
        if not op.ignorable and not walk_is_default(op, slots[op.slot]):
            w.steps[level].op = op
            w.steps[level].index = -1
            value = slots[op.slot]
            walk_misuse(w, level, f"{(<Plan>w.plan).label} has no such field, and {<object>value!r} cannot be dropped silently")
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


cdef int walk_write_value(PlanOp* op, int type_, int nullable, PyObject* value, PlanWalk* w, int level) except -1:
    cdef Py_ssize_t n = 0, i
    cdef const char* text
    if type_ < W_STRING:
        return walk_write_fixed(type_, value, w, level)
    if type_ == W_STRUCT:
        if nullable:
            walk_room(w, level, 1)
            w.out[0] = 1 if value is not PLAN_NONE else 0 if nullable == PLAN_TAGGED_NULLABLE else 0xFF
            w.out += 1
            if value is PLAN_NONE:
                return 0
        if row_stands_for(op.sub, value):
            return row_write(op.sub, <NumberRow><object>value, w, level + 1)
        walk_check_struct(op.sub, value, w, level)
        return walk_write_struct(op.sub, plan_tuple_items(value), w, level + 1)
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
    elif isinstance(<object>value, PlanRows):
        return walk_write_rows(op, <PlanRows><object>value, w, level)
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


cdef int walk_write_struct(PlanCode* code, PyObject** slots, PlanWalk* w, int level) except -1:
    cdef PlanOp* op = code.ops
    cdef PlanOp* stop = op + code.nops
    cdef PlanOp* tag
    cdef PyObject* value
    cdef Py_ssize_t size, records, i
    cdef int present = 0
    while op < stop:
        w.steps[level].op = op
        w.steps[level].index = -1
        value = slots[op.slot]
        if op.type < W_STRING:
            walk_write_fixed(op.type, value, w, level)
        else:
            walk_write_value(op, op.type, op.nullable, value, w, level)
        op += 1
    if not code.flexible:
        return 0
    stop = op + code.ntagged
    for i in range(code.ntagged):
        present += not walk_is_default(op + i, slots[op[i].slot])
    walk_room(w, level, kc_uvarint_size(present))
    w.out = kc_put_uvarint(w.out, present)
    while present and op < stop:
        value = slots[op.slot]
        if not walk_is_default(op, value):
            w.steps[level].op = op
            w.steps[level].index = -1
            records = w.records_bytes
            size = walk_tagged_bytes(op, value, w, level)
            w.records_bytes = records                       # tagged fields hold no records
            walk_room(w, level, kc_uvarint_size(op.tag) + kc_uvarint_size(<uint64_t>size) + size)
            w.out = kc_put_uvarint(w.out, op.tag)
            w.out = kc_put_uvarint(w.out, <uint64_t>size)
            walk_write_value(op, op.type, PLAN_TAGGED_NULLABLE if op.nullable else 0, value, w, level)
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
    total = head + walk_measure_struct(&plan.code, plan_tuple_items(<PyObject*>message), &w, 0)
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
        walk_write_struct(&plan.code, plan_tuple_items(<PyObject*>message), &w, 0)
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
