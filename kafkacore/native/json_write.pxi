# Arrow columns as JSON texts; json_write.h writes them, producer/frame_json.py says how each type looks.

cdef extern from "json_write.h":
    enum:
        KC_JW_NULL, KC_JW_BOOL, KC_JW_INT8, KC_JW_INT16, KC_JW_INT32, KC_JW_INT64, KC_JW_UINT8, KC_JW_UINT16, KC_JW_UINT32, KC_JW_UINT64
        KC_JW_FLOAT, KC_JW_DOUBLE, KC_JW_TEXT, KC_JW_READY, KC_JW_DATE32, KC_JW_DATE64, KC_JW_TIMESTAMP, KC_JW_DECIMAL, KC_JW_LIST
        KC_JW_LARGE_LIST, KC_JW_STRUCT, KC_JW_DICTIONARY
    enum: KC_JW_OK, KC_JW_FULL, KC_JW_BAD_LAYOUT, KC_JW_BAD_TEXT, KC_JW_BAD_TIME
    ctypedef struct kc_jw_node:
        int kind
        int index_kind
        int utc
        int scale
        int64_t per_second
        int64_t length
        int64_t offset
        const uint8_t* validity
        const uint8_t* data
        kc_column text
        const uint8_t* label
        int64_t label_size
        int places
        kc_jw_node* children
        int64_t n_children
    ctypedef struct kc_jw_out:
        uint8_t* start
        uint8_t* w
        uint8_t* end
        int null_fields
        int code
        int64_t nulls
        const kc_jw_node* culprit
        int64_t full_needs
    ctypedef struct kc_jw_power:
        uint64_t high
        uint64_t low
    enum: KC_JW_LEAST_TEN, KC_JW_LARGEST_TEN
    kc_jw_power* kc_jw_powers
    int64_t kc_jw_rows(kc_jw_out* out, kc_jw_node* node, int64_t* offsets, int64_t row) nogil

cdef dict JSON_KINDS = {
    b"n": KC_JW_NULL, b"b": KC_JW_BOOL, b"c": KC_JW_INT8, b"s": KC_JW_INT16, b"i": KC_JW_INT32, b"l": KC_JW_INT64, b"C": KC_JW_UINT8,
    b"S": KC_JW_UINT16, b"I": KC_JW_UINT32, b"L": KC_JW_UINT64, b"f": KC_JW_FLOAT, b"g": KC_JW_DOUBLE, b"u": KC_JW_TEXT, b"U": KC_JW_TEXT,
    b"vu": KC_JW_TEXT, b"tdD": KC_JW_DATE32, b"tdm": KC_JW_DATE64, b"+l": KC_JW_LIST, b"+L": KC_JW_LARGE_LIST, b"+s": KC_JW_STRUCT,
}
cdef dict JSON_PER_SECOND = {b"tss": 1, b"tsm": 1_000, b"tsu": 1_000_000, b"tsn": 1_000_000_000}
cdef enum:
    JSON_NESTING = 64
    JSON_VALUE_BYTES = 16        # a guess for the first buffer: of what is no text
    JSON_SAMPLE = 8              # texts that the guess looks at
    JSON_GUESS_MAX = 16 * 1024 * 1024


cdef int make_json_powers() except -1:
    """The table of json_numbers.h, once: 10**i in 128 bits whose first is 1, rounded up."""
    cdef object i, power, bits               # Python's numbers, which have no limit
    if kc_jw_powers[KC_JW_LARGEST_TEN - KC_JW_LEAST_TEN].high:    # the last one: another thread may be at work on them
        return 0
    for i in range(KC_JW_LEAST_TEN, KC_JW_LARGEST_TEN + 1):
        power = 10 ** abs(i)
        bits = power.bit_length()
        if i < 0:
            power = -(-(1 << (127 + bits)) // power)
        else:
            power = -((-power << 128) >> bits)
        kc_jw_powers[<int>i - KC_JW_LEAST_TEN].low = power & 0xffffffffffffffff
        kc_jw_powers[<int>i - KC_JW_LEAST_TEN].high = power >> 64
    return 0


cdef int64_t count_json_nodes(ArrowSchema* schema, int depth) except -1:
    cdef int64_t count = 1
    cdef int64_t i
    if depth > JSON_NESTING:
        raise TypeError(f"columns are nested more than {JSON_NESTING} deep")
    for i in range(schema.n_children):
        count += count_json_nodes(schema.children[i], depth + 1)
    if schema.dictionary != NULL:
        count += count_json_nodes(schema.dictionary, depth + 1)
    return count


@cython.final
cdef class JsonTree:
    """The columns of one Arrow array as nodes, as long as it lives."""
    cdef PooledBuffer nodes
    cdef list labels
    cdef int64_t used

    def __cinit__(self):
        self.labels = []

    cdef kc_jw_node* take(self, int64_t count) noexcept:
        cdef kc_jw_node* first = <kc_jw_node*>self.nodes.ptr + self.used
        self.used += count
        return first

    cdef int fill(self, kc_jw_node* node, ArrowSchema* schema, ArrowArray* array, int64_t least, dict sizes) except -1:
        """Fills a node; its array must have `least` items. sizes: see `arrow_sizes`."""
        cdef int64_t i
        cdef bytes form = schema.format
        cdef int64_t reach
        if array.length < least or array.offset < 0 or array.n_children != schema.n_children:
            raise ValueError(f"a column has {array.length} items, its struct has {least}")
        node.length, node.offset = array.length, array.offset
        if array.n_buffers > 0 and array.null_count != 0:
            node.validity = <const uint8_t*>array.buffers[0]
        if array.n_buffers > 1:
            node.data = <const uint8_t*>array.buffers[1]
        if schema.dictionary != NULL:
            node.index_kind = JSON_KINDS.get(form, KC_JW_NULL)
            if not KC_JW_INT8 <= node.index_kind <= KC_JW_UINT64 or array.dictionary == NULL:
                raise TypeError(f"a dictionary's indices are whole numbers, not {form.decode()!r}")
            node.kind, node.n_children, node.children = KC_JW_DICTIONARY, 1, self.take(1)
            self.fill(node.children, schema.dictionary, array.dictionary, 0, sizes)
        elif form[:3] in JSON_PER_SECOND:
            node.kind, node.per_second, node.utc = KC_JW_TIMESTAMP, JSON_PER_SECOND[form[:3]], len(form) > 4
        elif form[:2] == b"d:":
            parts = form[2:].split(b",")
            node.scale = int(parts[1])
            if len(parts) > 2 or not 0 <= node.scale <= 38:
                raise TypeError(f"no decimal of 128 bits with 0 to 38 digits behind the point: {form.decode()!r}")
            node.kind = KC_JW_DECIMAL
        elif form in JSON_KINDS:
            node.kind = JSON_KINDS[form]
            node.places = 1
            if node.kind == KC_JW_FLOAT or node.kind == KC_JW_DOUBLE:
                make_json_powers()
            if node.kind == KC_JW_TEXT:
                column_of_arrow(&node.text, schema, array, sizes)
            elif node.kind == KC_JW_LIST or node.kind == KC_JW_LARGE_LIST or node.kind == KC_JW_STRUCT:
                node.n_children, node.children = schema.n_children, self.take(schema.n_children)
                reach = array.offset + array.length if node.kind == KC_JW_STRUCT else 0
                for i in range(schema.n_children):
                    self.fill(&node.children[i], schema.children[i], array.children[i], reach, sizes)
                if node.kind == KC_JW_STRUCT:
                    for i in range(schema.n_children):
                        self.label(&node.children[i], schema.children[i].name)
        else:
            raise TypeError(f"no JSON for an Arrow column of format {form.decode()!r}")
        if array.length and node.data == NULL and node.kind not in (KC_JW_NULL, KC_JW_STRUCT, KC_JW_TEXT, KC_JW_READY):
            raise ValueError("an Arrow array without data")
        return 0

    cdef int64_t guess(self, kc_jw_node* node) except -1:
        """About how many bytes an item takes."""
        cdef int64_t i, length, total = 0
        cdef const uint8_t* p
        if node.kind == KC_JW_STRUCT:
            for i in range(node.n_children):
                total += node.children[i].label_size + self.guess(&node.children[i])
            return total + 2
        if node.kind != KC_JW_TEXT or node.text.count == 0:
            return JSON_VALUE_BYTES
        for i in range(JSON_SAMPLE):
            if kc_column_get(&node.text, node.text.count * i // JSON_SAMPLE, &p, &length) == KC_COL_OK and length > 0:
                total += length
        return total // JSON_SAMPLE + 4

    cdef int label(self, kc_jw_node* node, const char* name) except -1:
        from json.encoder import encode_basestring
        cdef bytes label = f",{encode_basestring((b'' if name == NULL else <bytes>name).decode())}:".encode()
        node.label_size = PyBytes_GET_SIZE(label)
        label += bytes(15)
        self.labels.append(label)
        node.label = <const uint8_t*>PyBytes_AS_STRING(label)
        return 0


def json_rows(rows, tuple ready=(), bint null_fields=True):
    """The items of an Arrow array as JSON texts.

    Args:
        rows: an Arrow array; of structs for objects.
        ready: numbers of those fields of the structs whose text is JSON already.
        null_fields: False leaves fields out that are null, or a float that is NaN or infinite.

    Returns:
        (data, offsets, nulls): the texts one behind the other, and where each begins, int64; a null item has no bytes; how many are null.

    Raises:
        TypeError: a column has a type of which nothing is known here.
        ValueError: an item has no JSON, or the layout is broken; `args` are what is wrong, the item's number, and the field's name.
    """
    schema_capsule, array_capsule = rows.__arrow_c_array__()
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
    if schema.release == NULL or array.release == NULL:
        raise ValueError("the Arrow array was taken by somebody else")
    cdef JsonTree tree = JsonTree.__new__(JsonTree)
    cdef int64_t count = array.length
    cdef int64_t row = 0
    cdef int64_t i
    cdef kc_jw_out out
    cdef kc_jw_node* top
    cdef PooledBuffer data, grown
    cdef PooledBuffer ends = PooledBuffer(8 * (count + 1))
    cdef int64_t* end = <int64_t*>ends.ptr
    tree.nodes = filled(count_json_nodes(schema, 0) * sizeof(kc_jw_node), 0)
    top = tree.take(1)
    tree.fill(top, schema, array, 0, arrow_sizes(rows))
    for i in ready:
        if top.kind != KC_JW_STRUCT or not 0 <= i < top.n_children:
            raise IndexError(f"there is no field {i}")
        if top.children[i].kind != KC_JW_TEXT:
            raise TypeError("JSON that is ready is a column of text")
        top.children[i].kind = KC_JW_READY
    data = PooledBuffer(min(9 * tree.guess(top) // 8 * count, JSON_GUESS_MAX) + 256)
    memset(&out, 0, sizeof(out))
    out.null_fields = null_fields
    out.start = out.w = data.ptr
    out.end = data.ptr + data.nbytes
    end[0] = 0
    while True:
        with nogil:
            row = kc_jw_rows(&out, top, end, row)
        if row == count:
            break
        if out.code != KC_JW_FULL:
            name = "" if out.culprit.label == NULL else out.culprit.label[1:out.culprit.label_size - 1].decode()
            what = {KC_JW_BAD_TEXT: "a text is not UTF-8", KC_JW_BAD_TIME: "a time is outside the years 1 to 9999, which ISO 8601 has"}
            raise ValueError(what.get(out.code, "the column's offsets or indices are not inside its data"), row, name)
        grown = PooledBuffer(max(2 * data.nbytes, (out.w - out.start) + out.full_needs + 256))
        memcpy(grown.ptr, data.ptr, out.w - out.start)
        out.w = grown.ptr + (out.w - out.start)
        data = grown
        out.start, out.end = data.ptr, data.ptr + data.nbytes
    return memoryview(data)[:out.w - out.start], memoryview(ends).cast("q"), out.nulls
