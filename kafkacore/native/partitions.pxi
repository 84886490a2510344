# The partitions of a topic in a Metadata answer, kept as the bytes that came in.
#
# A cluster may have 100,000 partitions, of which a client uses few, and the next answer says the same of nearly all. So the bytes are checked
# when they come (walk_skip_struct, all checks of decoding), compared as bytes with those of the answer before, and made into objects when
# a caller looks at the topic. What the bytes mean is known to the plan alone; here fields are found by their slots.

from libc.string cimport memcmp

from operator import itemgetter

cdef enum:
    PARTITION_CELLS = 16                  # slots that the struct may have

cdef PlanType* PARTITION_STRUCT = NULL    # MetadataResponsePartition
cdef PlanType* PARTITION_INFO = NULL
cdef object PARTITION_CLASSES = None      # keeps both
cdef Py_ssize_t SLOT_ERROR, SLOT_INDEX, SLOT_LEADER, SLOT_EPOCH, SLOT_REPLICAS, SLOT_ISR, SLOT_OFFLINE
cdef object BY_INDEX = itemgetter(0)

cdef object TOPIC_INFO = None

cdef enum:
    LEADER_NOT_AVAILABLE_CODE = 5
    REPLICA_NOT_AVAILABLE_CODE = 9        # a replica is down, the leader is fine


def _bind_partitions(struct, info):
    """Gives this file the struct of a partition on the wire and the tuple that is made of it; called once by kafkacore.cluster_snapshot."""
    global PARTITION_STRUCT, PARTITION_INFO, PARTITION_CLASSES
    global SLOT_ERROR, SLOT_INDEX, SLOT_LEADER, SLOT_EPOCH, SLOT_REPLICAS, SLOT_ISR, SLOT_OFFLINE
    slots = list(struct.FIELDS)
    if len(slots) > PARTITION_CELLS or info._fields != ("index", "leader", "leader_epoch", "replicas", "isr", "offline"):
        raise InternalError(f"{struct!r} or {info!r} is not what partitions.pxi expects")
    SLOT_ERROR, SLOT_INDEX, SLOT_LEADER = slots.index("error_code"), slots.index("partition_index"), slots.index("leader_id")
    SLOT_EPOCH, SLOT_REPLICAS = slots.index("leader_epoch"), slots.index("replica_nodes")
    SLOT_ISR, SLOT_OFFLINE = slots.index("isr_nodes"), slots.index("offline_replicas")
    PARTITION_CLASSES = (struct, info)
    PARTITION_STRUCT, PARTITION_INFO = <PlanType*><PyObject*>struct, <PlanType*><PyObject*>info


def _bind_topic_info(kind):
    """Gives this file the class of a topic in a cluster view; called once by kafkacore.cluster_snapshot."""
    global TOPIC_INFO
    TOPIC_INFO = kind


cdef object partition_of(info, int32_t index):
    """`info.partition(index)`; without its Python frame where it is a TopicInfo whose partitions are made and numbered from 0."""
    if type(info) is TOPIC_INFO:
        known = info._partitions
        if type(known) is list and 0 <= index < len(<list> known):
            found = (<list> known)[index]
            if isinstance(found, tuple) and (<tuple> found)[0] == index:
                return found
    return info.partition(index)


@cython.final
@cython.no_gc                             # it refers to its plan and its bytes, and neither to it
cdef class PartitionTable:
    """The partitions of one topic; made by the decoding of a Metadata answer only.

    Attributes:
        count: How many partitions.
        incomplete: One of them has no leader or an error, so that the topic is to be asked for again.
    """

    cdef Plan plan                        # keeps `code`
    cdef PlanCode* code
    cdef bytes raw
    cdef readonly Py_ssize_t count
    cdef readonly bint incomplete

    def __len__(self):
        return self.count

    def same(self, PartitionTable other not None):
        """True when the other answer said the same in the same bytes."""
        return self.code == other.code and self.count == other.count and self.raw == other.raw

    def structs(self):
        """Returns the partitions as the structs of the protocol."""
        cdef PlanWalk w
        cdef Py_ssize_t i
        cdef list made = []
        self.rewind(&w)
        for i in range(self.count):
            made.append(walk_decode_struct(self.code, &w, 0))
        plan_xdecref(w.view)
        return made

    def infos(self):
        """Returns the partitions as PartitionInfo, in the order of their numbers."""
        cdef PlanWalk w
        cdef PlanCell[PARTITION_CELLS] cells
        cdef Py_ssize_t i
        cdef int64_t last = -1
        cdef bint in_order = True
        cdef PyObject* made
        cdef list infos = []
        self.rewind(&w)
        for i in range(self.count):
            walk_skip_struct(self.code, &w, 0, cells)
            in_order = in_order and cells[SLOT_INDEX].value > last
            last = cells[SLOT_INDEX].value
            replicas = table_nodes(&w, &cells[SLOT_REPLICAS])
            isr = replicas if table_alike(&w, &cells[SLOT_REPLICAS], &cells[SLOT_ISR]) else table_nodes(&w, &cells[SLOT_ISR])
            offline = table_nodes(&w, &cells[SLOT_OFFLINE])
            made = plan_new_tuple(PARTITION_INFO, 6)
            info = <object>made
            plan_xdecref(made)
            plan_tuple_set(made, 0, plan_longlong(last))
            plan_tuple_set(made, 1, plan_longlong(table_leader(cells)))
            plan_tuple_set(made, 2, plan_longlong(cells[SLOT_EPOCH].value))
            plan_incref(<PyObject*>replicas)
            plan_tuple_set(made, 3, <PyObject*>replicas)
            plan_incref(<PyObject*>isr)
            plan_tuple_set(made, 4, <PyObject*>isr)
            plan_incref(<PyObject*>offline)
            plan_tuple_set(made, 5, <PyObject*>offline)
            infos.append(info)
        if not in_order:
            infos.sort(key=BY_INDEX)
        return infos

    def is_behind(self, known):
        """True when a leader's epoch is below the known one, so that the answer has to be merged partition by partition; also when that
        cannot be told at once, because the known partitions are not numbered from 0 without a hole.

        Args:
            known: What is known of the topic: another table, or a list of PartitionInfo.
        """
        cdef PlanWalk w
        cdef PlanCell[PARTITION_CELLS] cells
        cdef Py_ssize_t i, n = len(known)
        cdef int64_t index, epoch
        cdef int64_t* epochs = <int64_t*>PyMem_Malloc((n + 1) * sizeof(int64_t))
        if epochs is NULL:
            raise MemoryError
        try:
            for i in range(n):
                epochs[i] = INT64_MIN
            if type(known) is PartitionTable:
                (<PartitionTable>known).rewind(&w)
            for i in range(n):
                if type(known) is PartitionTable:
                    walk_skip_struct((<PartitionTable>known).code, &w, 0, cells)
                    index, epoch = cells[SLOT_INDEX].value, cells[SLOT_EPOCH].value
                else:
                    index, epoch = known[i][0], known[i][2]
                if not 0 <= index < n or epochs[index] != INT64_MIN:
                    return True
                epochs[index] = epoch
            self.rewind(&w)
            for i in range(self.count):
                walk_skip_struct(self.code, &w, 0, cells)
                index, epoch = cells[SLOT_INDEX].value, cells[SLOT_EPOCH].value
                if 0 <= epoch and 0 <= index < n and epochs[index] > epoch:
                    return True
            return False
        finally:
            PyMem_Free(epochs)

    cdef int rewind(self, PlanWalk* w) except -1:
        w.start = w.p = <const uint8_t*>PyBytes_AS_STRING(self.raw)
        w.end = w.start + PyBytes_GET_SIZE(self.raw)
        w.source = <PyObject*>self.raw
        w.view, w.left = NULL, NULL
        w.plan = <PyObject*>self.plan
        w.elements, w.max_elements = 0, PLAN_ANY_ELEMENTS
        w.steps[0].op = NULL
        return 0


cdef inline int64_t table_leader(PlanCell* cells) noexcept:
    """A partition's leader, -1 for none."""
    return -1 if cells[SLOT_ERROR].value == LEADER_NOT_AVAILABLE_CODE or cells[SLOT_LEADER].value < 0 else cells[SLOT_LEADER].value


cdef object table_nodes(PlanWalk* w, PlanCell* cell):
    """The node ids of an int32 array."""
    cdef Py_ssize_t i
    cdef list nodes
    if cell.count <= 0:
        return ()
    nodes = []
    for i in range(cell.count):
        nodes.append(kc_get32(w.start + cell.value + 4 * i))
    return nodes


cdef inline bint table_alike(PlanWalk* w, PlanCell* a, PlanCell* b) noexcept:
    return a.count == b.count and (a.count <= 0 or memcmp(w.start + a.value, w.start + b.value, 4 * a.count) == 0)


cdef PartitionTable partition_table(PlanCode* code, Py_ssize_t count, PlanWalk* w, int level):
    """Checks an array of partitions, whose count fits, and keeps its bytes."""
    cdef PartitionTable table = PartitionTable.__new__(PartitionTable)
    cdef PlanCell[PARTITION_CELLS] cells
    cdef const uint8_t* start = w.p
    cdef Py_ssize_t i
    for i in range(count):
        w.steps[level].index = i
        walk_skip_struct(code, w, level + 1, cells)
        if (cells[SLOT_ERROR].value and cells[SLOT_ERROR].value != REPLICA_NOT_AVAILABLE_CODE) or table_leader(cells) < 0:
            table.incomplete = True
    w.steps[level].index = -1
    table.plan, table.code, table.count = <Plan>w.plan, code, count
    table.raw = PyBytes_FromStringAndSize(<const char*>start, w.p - start)
    return table


def decode_metadata(Plan plan not None, buffer not None, Py_ssize_t offset=0):
    """Decodes a Metadata answer as the network client does: the partitions of each topic as a PartitionTable.

    Args:
        plan: Of MetadataResponse, in the version of the answer.
        buffer: The answer.
        offset: Where it begins.

    Raises:
        CorruptDataError: The bytes are not such a message; the text names the field and the offset.
    """
    return plan.walk(buffer, offset, True, PLAN_ANY_ELEMENTS, PARTITION_STRUCT)[0]
