# The partitions of a topic in a Fetch answer, checked and left where they came in.
#
# Nearly all of them say the same few things: no error, where the log ends, some records. For these no object is needed, so the bytes are checked
# when they come (walk_skip_struct, all checks of decoding) and what is needed of each is noted. A partition that says anything else is made
# into a struct when its turn comes. What the bytes mean is known to the plan alone; here fields are found by their slots.

cdef enum:
    FETCHED_CELLS = 16                    # slots that the struct may have

cdef PlanType* FETCHED_STRUCT = NULL      # PartitionData
cdef object FETCHED_CLASS = None          # keeps it
cdef Py_ssize_t FETCHED_INDEX, FETCHED_ERROR, FETCHED_HIGH, FETCHED_STABLE, FETCHED_START, FETCHED_DIVERGING, FETCHED_ABORTED
cdef Py_ssize_t FETCHED_PREFERRED, FETCHED_RECORDS


def _bind_fetched(struct):
    """Gives this file the struct of a partition in a Fetch answer; called once by kafkacore.consumer.sessions."""
    global FETCHED_STRUCT, FETCHED_CLASS, FETCHED_INDEX, FETCHED_ERROR, FETCHED_HIGH, FETCHED_STABLE, FETCHED_START, FETCHED_DIVERGING
    global FETCHED_ABORTED, FETCHED_PREFERRED, FETCHED_RECORDS
    slots = list(struct.FIELDS)
    if len(slots) > FETCHED_CELLS:
        raise InternalError(f"{struct!r} is not what fetched.pxi expects")
    FETCHED_INDEX, FETCHED_ERROR, FETCHED_HIGH = slots.index("partition_index"), slots.index("error_code"), slots.index("high_watermark")
    FETCHED_STABLE, FETCHED_START = slots.index("last_stable_offset"), slots.index("log_start_offset")
    FETCHED_DIVERGING, FETCHED_ABORTED = slots.index("diverging_epoch"), slots.index("aborted_transactions")
    FETCHED_PREFERRED, FETCHED_RECORDS = slots.index("preferred_read_replica"), slots.index("records")
    FETCHED_CLASS = struct
    FETCHED_STRUCT = <PlanType*><PyObject*>struct


cdef struct FetchedPartition:
    Py_ssize_t begin                      # of the struct, from the start of the buffer
    Py_ssize_t records_at, records_bytes
    int64_t high_watermark, last_stable_offset, log_start_offset
    int32_t index
    bint ordinary                         # no error, no nearer replica, no other epoch, no aborted transactions


@cython.final
@cython.no_gc                             # it refers to its plan and its bytes, and neither to it
cdef class FetchedPartitions:
    """The partitions of one topic; made by the decoding of a Fetch answer only."""

    cdef Plan plan                        # keeps `code`
    cdef PlanCode* code
    cdef object source
    cdef Py_ssize_t count
    cdef FetchedPartition* parts

    def __dealloc__(self):
        PyMem_Free(self.parts)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t nth):
        """The struct of one partition."""
        cdef PlanWalk w
        cdef Py_buffer view
        if not 0 <= nth < self.count:
            raise IndexError(nth)
        PyObject_GetBuffer(self.source, &view, PyBUF_SIMPLE)
        w.view, w.left = NULL, NULL
        try:
            w.start = <const uint8_t*>view.buf
            w.p, w.end = w.start + self.parts[nth].begin, w.start + view.len
            w.source, w.plan = <PyObject*>self.source, <PyObject*>self.plan
            w.elements, w.max_elements = 0, PLAN_ANY_ELEMENTS
            w.steps[0].op = NULL
            return walk_decode_struct(self.code, &w, 0)
        finally:
            plan_xdecref(w.view)
            PyBuffer_Release(&view)


cdef FetchedPartitions fetched_table(PlanCode* code, Py_ssize_t count, PlanWalk* w, int level):
    """Checks an array of partitions, whose count fits."""
    cdef FetchedPartitions table = FetchedPartitions.__new__(FetchedPartitions)
    cdef PlanCell[FETCHED_CELLS] cells
    cdef FetchedPartition* part
    cdef Py_ssize_t i
    table.parts = <FetchedPartition*>PyMem_Malloc((count + 1) * sizeof(FetchedPartition))
    if table.parts is NULL:
        raise MemoryError
    for i in range(count):
        part = &table.parts[i]
        w.steps[level].index = i
        part.begin = w.p - w.start
        walk_skip_struct(code, w, level + 1, cells)
        part.index = <int32_t>cells[FETCHED_INDEX].value
        part.high_watermark = cells[FETCHED_HIGH].value
        part.last_stable_offset = cells[FETCHED_STABLE].value
        part.log_start_offset = cells[FETCHED_START].value
        part.records_at, part.records_bytes = cells[FETCHED_RECORDS].value, cells[FETCHED_RECORDS].count
        part.ordinary = (cells[FETCHED_ERROR].value == 0 and cells[FETCHED_PREFERRED].value < 0 and cells[FETCHED_DIVERGING].count == 0
                         and cells[FETCHED_ABORTED].count <= 0)
    w.steps[level].index = -1
    table.plan, table.code, table.count = <Plan>w.plan, code, count
    table.source = <object>w.source
    return table


def decode_fetch(Plan plan not None, buffer not None, Py_ssize_t offset=0):
    """Decodes a Fetch answer as the consumer's requests have it decoded: the partitions of each topic as FetchedPartitions.

    Args:
        plan: Of FetchResponse, in the version of the answer.
        buffer: The answer.
        offset: Where it begins.

    Raises:
        CorruptDataError: The bytes are not such a message; the text names the field and the offset.
    """
    return plan.walk(buffer, offset, True, PLAN_ANY_ELEMENTS, FETCHED_STRUCT)[0]
