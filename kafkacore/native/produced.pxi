# The topics of a Produce answer, kept as the bytes that came in.
#
# A client may have thousands of partitions in one request, and the answer nearly always says the same of each: taken, from this offset on. So
# the bytes are checked when they come (walk_skip_struct, all checks of decoding) and read by ProduceAttempt without an object per partition;
# who wants structs gets them made. What the bytes mean is known to the plan alone; here fields are found by their slots.

cdef enum:
    PRODUCED_CELLS = 16                   # slots that the structs may have
    PRODUCED_NAME = 0                     # slots of TopicProduceResponse
    PRODUCED_ID = 1
    PRODUCED_PARTITIONS = 2
    PRODUCED_INDEX = 0                    # slots of PartitionProduceResponse
    PRODUCED_ERROR = 1
    PRODUCED_OFFSET = 2
    PRODUCED_TIME = 3
    PRODUCED_LEADER = 7

cdef PlanType* PRODUCED_TOPIC = NULL      # TopicProduceResponse
cdef object PRODUCED_CLASS = None         # keeps it

cdef struct Produced:                     # what an answer says of a batch
    int64_t base_offset
    int64_t log_append_time_ms


def _bind_produced(topic, partition):
    """Gives this file the struct of a topic in a Produce answer; called once by kafkacore.producer.sender."""
    global PRODUCED_TOPIC, PRODUCED_CLASS
    known = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset", "record_errors", "error_message", "current_leader")
    if tuple(topic.FIELDS) != ("name", "topic_id", "partition_responses") or tuple(partition.FIELDS) != known:
        raise InternalError(f"{topic!r} or {partition!r} is not what produced.pxi expects")
    PRODUCED_CLASS = topic
    PRODUCED_TOPIC = <PlanType*><PyObject*>topic


@cython.final
@cython.no_gc                             # it refers to its plan, its bytes and structs made of them, and none of these to it
cdef class ProducedTopics:
    """The topics of a Produce answer, a sequence of structs; made by the decoding of one only."""

    cdef Plan plan                        # keeps `code`
    cdef PlanCode* code
    cdef bytes raw
    cdef readonly Py_ssize_t count
    cdef list made

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        return self.structs()[at]

    cdef list structs(self):
        cdef PlanWalk w
        cdef Py_ssize_t i
        cdef list made
        if self.made is None:
            made = []
            self.rewind(&w)
            for i in range(self.count):
                made.append(walk_decode_struct(self.code, &w, 0))
            plan_xdecref(w.view)
            self.made = made
        return self.made

    cdef int rewind(self, PlanWalk* w) except -1:
        w.start = w.p = <const uint8_t*>PyBytes_AS_STRING(self.raw)
        w.end = w.start + PyBytes_GET_SIZE(self.raw)
        w.source = <PyObject*>self.raw
        w.view, w.left = NULL, NULL
        w.plan = <PyObject*>self.plan
        w.elements, w.max_elements = 0, PLAN_ANY_ELEMENTS
        w.steps[0].op = NULL
        return 0

    cdef bint all_taken(self, list batches, list ids, Py_ssize_t *starts, Produced *found) except -1:
        """Whether the answer says of every batch, in the order of the request, that it was taken, and has no news of a leader. Then `found`
        holds what it says.

        Args:
            batches: of the request, those of a topic next to each other.
            ids: of its topics.
            starts: where the batches of each topic begin, and the last ones end.
        """
        cdef PlanWalk w
        cdef PlanCell[PRODUCED_CELLS] cells
        cdef PlanCell[PRODUCED_CELLS] topic
        cdef PlanOp* op
        cdef Py_ssize_t i, at, name_bytes
        cdef const char* name
        cdef PartitionQueue queue
        if self.count != len(ids):
            return False
        self.rewind(&w)
        for i in range(self.count):
            queue = (<ProducerBatch> batches[starts[i]]).queue
            topic[PRODUCED_NAME].count = topic[PRODUCED_ID].count = -1
            for op in self.code.ops[:self.code.nops]:
                if op.slot != PRODUCED_PARTITIONS:
                    walk_skip_value(op, op.type, op.nullable, &w, 0, &topic[op.slot])
                    topic[op.slot].count = max(topic[op.slot].count, 0)
                    continue
                if walk_take_length(op, W_ARRAY, &w, 0, op.nullable) != starts[i + 1] - starts[i]:
                    return False
                for at in range(starts[i], starts[i + 1]):
                    walk_skip_struct(op.sub, &w, 1, cells)
                    if (cells[PRODUCED_INDEX].value != (<ProducerBatch> batches[at]).queue.index or cells[PRODUCED_ERROR].value
                            or cells[PRODUCED_LEADER].count > 0):
                        return False
                    found[at].base_offset = cells[PRODUCED_OFFSET].value
                    found[at].log_append_time_ms = cells[PRODUCED_TIME].value
            if self.code.flexible:
                walk_decode_tagged(self.code, NULL, NULL, &w, 0)
            if topic[PRODUCED_NAME].count > 0:
                name = PyUnicode_AsUTF8AndSize(queue.topic, &name_bytes)
                if name_bytes != topic[PRODUCED_NAME].count or memcmp(w.start + topic[PRODUCED_NAME].value, name, name_bytes):
                    return False
            elif topic[PRODUCED_ID].count < 0 or memcmp(w.start + topic[PRODUCED_ID].value, PyBytes_AS_STRING(ids[i]), 16):
                return False
        return True


cdef ProducedTopics produced_topics(PlanCode* code, Py_ssize_t count, PlanWalk* w, int level):
    """Checks an array of topics, whose count fits, and keeps its bytes."""
    cdef ProducedTopics topics = ProducedTopics.__new__(ProducedTopics)
    cdef const uint8_t* start = w.p
    cdef Py_ssize_t i
    for i in range(count):
        w.steps[level].index = i
        walk_skip_struct(code, w, level + 1, NULL)
    w.steps[level].index = -1
    topics.plan, topics.code, topics.count = <Plan>w.plan, code, count
    topics.raw = PyBytes_FromStringAndSize(<const char*>start, w.p - start)
    return topics


def decode_produced(Plan plan not None, buffer not None, Py_ssize_t offset=0):
    """Decodes a Produce answer as the network client does: its topics as a ProducedTopics.

    Args:
        plan: Of ProduceResponse, in the version of the answer.
        buffer: The answer.
        offset: Where it begins.

    Raises:
        CorruptDataError: The bytes are not such a message; the text names the field and the offset.
    """
    return plan.walk(buffer, offset, True, PLAN_ANY_ELEMENTS, PRODUCED_TOPIC)[0]
