# What is to be fetched from one broker, and what of that was sent: the books of a fetch session (consumer/sessions.py has its rules).
#
# Each partition has a row, found by name and number, or from its PartitionState without a look. A row knows what is wanted and what was sent;
# where the two may differ it is in `changed`, so that the next request costs what changed. A row in a request replaces its FetchPartition
# (plan_rows.pxi): the values that were sent last, which stay until the next request is planned.

from collections import namedtuple as _namedtuple
from operator import attrgetter as _attrgetter

cdef enum:
    ROW_PARTITION = 0
    ROW_EPOCH = 1
    ROW_OFFSET = 2
    ROW_MAX_BYTES = 3

cdef RowKind FETCH_ROW = None
cdef object BY_ORDER = _attrgetter("order")
cdef bytes NO_TOPIC_ID = bytes(16)

FetchTarget = _namedtuple("FetchTarget", "topic_id fetch_offset max_bytes leader_epoch owner", defaults=(None,), module="kafkacore._codec")
FetchTarget.__doc__ = """What is asked of one partition; of two equal targets one is enough.

`owner` is who takes the answer. Another owner of the same partition has to ask for itself."""


def _bind_fetch_rows(struct):
    """Gives this file the struct of a partition in a Fetch request; called once by kafkacore.consumer.sessions."""
    global FETCH_ROW
    FETCH_ROW = RowKind(struct, ("partition", "current_leader_epoch", "fetch_offset", "partition_max_bytes"))


cdef class FetchRows


@cython.final
cdef class FetchRow(NumberRow):
    """One partition in the session with one broker; made by `FetchRows` only.

    Attributes:
        tp: the partition.
        owner: who takes the answer to what was sent.
        order: rows that were added or changed later have a greater one.
    """

    cdef readonly object tp
    cdef readonly object owner
    cdef readonly int64_t order
    cdef FetchRows rows
    cdef bint listed, changed, wanted, sent
    cdef bytes sent_id                     # sent: the topic id; the numbers are `values`
    cdef bytes topic_id                    # wanted
    cdef object wanted_by
    cdef int64_t offset
    cdef int32_t max_bytes, epoch

    @property
    def fetch_offset(self):
        """What was sent."""
        return self.values[ROW_OFFSET]

    @property
    def leader_epoch(self):
        """What was sent."""
        return self.values[ROW_EPOCH]

    cdef int want(self, bytes topic_id, int64_t offset, int32_t max_bytes, int32_t epoch, owner) except -1:
        """Fetches it from now on, as said."""
        cdef FetchRows rows = self.rows
        if self.wanted:
            if (self.offset == offset and self.epoch == epoch and self.max_bytes == max_bytes and self.wanted_by is owner
                    and (self.topic_id is topic_id or self.topic_id == topic_id)):
                return 0
            if self.topic_id is not topic_id:
                rows.nameless += (topic_id == NO_TOPIC_ID) - (self.topic_id == NO_TOPIC_ID)
        else:
            rows.nameless += topic_id == NO_TOPIC_ID
            rows.wanted += 1
            self.wanted = True
        self.topic_id, self.offset, self.max_bytes, self.epoch, self.wanted_by = topic_id, offset, max_bytes, epoch, owner
        rows.counter += 1
        self.order = rows.counter
        self.note()
        return 0

    cdef int drop(self) except -1:
        """Fetches it no longer."""
        if self.wanted:
            self.wanted = False
            self.wanted_by = None
            self.rows.wanted -= 1
            self.rows.nameless -= self.topic_id == NO_TOPIC_ID
            self.note()
        return 0

    cdef int note(self) except -1:
        if not self.changed:
            self.rows.changed.append(self)
            self.changed = True
        return 0

    cdef int mark_sent(self) except -1:
        """What is wanted goes out with the request that is planned."""
        self.sent = True
        self.sent_id, self.owner = self.topic_id, self.wanted_by
        self.values[ROW_EPOCH], self.values[ROW_OFFSET], self.values[ROW_MAX_BYTES] = self.epoch, self.offset, self.max_bytes
        return 0

    cdef bint differs(self):
        """Whether what is wanted is not what was sent."""
        return (not self.sent or self.offset != self.values[ROW_OFFSET] or self.epoch != self.values[ROW_EPOCH]
                or self.max_bytes != self.values[ROW_MAX_BYTES] or self.wanted_by is not self.owner
                or (self.topic_id is not self.sent_id and self.topic_id != self.sent_id))


@cython.final
cdef class FetchRows:
    """The partitions of the fetch session with one broker.

    Args:
        node_id: the broker.

    Attributes:
        wanted: how many partitions are to be fetched.
        nameless: how many of them have a topic without id.
        sent_count: how many the broker looks at, once it has the last request.
        ended: nothing is asked by these rows any more.
    """

    cdef readonly int32_t node_id
    cdef readonly Py_ssize_t wanted
    cdef readonly Py_ssize_t nameless
    cdef readonly Py_ssize_t sent_count
    cdef public bint ended
    cdef int64_t counter
    cdef dict topics                       # name -> number -> row
    cdef list changed

    def __cinit__(self, int32_t node_id):
        self.node_id = node_id
        self.topics = {}
        self.changed = []

    cdef FetchRow row(self, tp):
        cdef dict of_topic = self.topics.get(tp[0])
        return None if of_topic is None else of_topic.get(tp[1])

    def want(self, tp not None, bytes topic_id not None, int64_t fetch_offset, int32_t max_bytes, int32_t leader_epoch, owner=None):
        """Fetches a partition from now on.

        Args:
            tp: the partition.
            topic_id, fetch_offset, max_bytes, leader_epoch: what is asked.
            owner: who takes the answer.

        Returns:
            Its row.
        """
        cdef FetchRow row = self.row(tp)
        if row is None:
            row = FetchRow.__new__(FetchRow)
            row.kind, row.rows, row.tp = FETCH_ROW, self, tp
            row.values[ROW_PARTITION] = tp[1]
            row.listed = True
            self.topics.setdefault(tp[0], {})[tp[1]] = row
        row.want(topic_id, fetch_offset, max_bytes, leader_epoch, owner)
        return row

    def drop(self, tp not None, owner=None):
        """Fetches a partition no longer, unless it has another owner by now."""
        cdef FetchRow row = self.row(tp)
        if row is not None and row.wanted and row.wanted_by is owner:
            row.drop()

    def is_sent(self, tp not None):
        """Whether the broker looks at a partition, once it has the last request."""
        cdef FetchRow row = self.row(tp)
        return row is not None and row.sent

    def owners(self):
        """The owners of all that was sent."""
        return [row.owner for row in self._all() if (<FetchRow>row).sent]

    cdef list _all(self):
        return [row for of_topic in self.topics.values() for row in (<dict>of_topic).values()]

    cdef int _leave(self, FetchRow row) except -1:
        """Forgets a row that is neither wanted nor sent."""
        cdef dict of_topic = self.topics[row.tp[0]]
        del of_topic[row.tp[1]]
        if not of_topic:
            del self.topics[row.tp[0]]
        row.listed = False
        row.owner = None
        return 0

    def send_all(self):
        """All that is wanted goes out, in the order in which it was added or changed last.

        Returns:
            (topic, topic id, rows) of each topic.
        """
        cdef FetchRow row
        cdef list rows = self._all()
        cdef list wanted = [each for each in rows if (<FetchRow>each).wanted]
        wanted.sort(key=BY_ORDER)
        for row in rows:
            row.changed = False
            if row.wanted:
                row.mark_sent()
            else:
                row.sent = False
                self._leave(row)
        self.changed = []
        self.sent_count = len(wanted)
        return rows_by_topic(wanted)

    def send_changes(self):
        """What is wanted and was not sent, or not like that, goes out.

        Returns:
            (topic, topic id, rows) of each topic, and (partition, topic id) of what the broker is to forget.
        """
        cdef FetchRow row
        cdef list to_send = [], to_forget = []
        for row in self.changed:
            row.changed = False
            if row.sent and (not row.wanted or (row.topic_id is not row.sent_id and row.topic_id != row.sent_id)):
                to_forget.append((row.tp, row.sent_id))
            if not row.wanted:
                self.sent_count -= row.sent
                row.sent = False
                self._leave(row)
            elif row.differs():
                self.sent_count += not row.sent
                row.mark_sent()
                to_send.append(row)
        self.changed = []
        return rows_by_topic(to_send), to_forget

    def find(self, name not None, partitions not None):
        """The rows of the partitions of a topic in an answer, in the answer's order.

        Args:
            name: of the topic.
            partitions: FetchedPartitions, or PartitionData structs.

        Raises:
            LookupError: a partition was not sent; its number.
        """
        cdef dict of_topic = self.topics.get(name, {})
        cdef FetchedPartitions fetched
        cdef FetchRow row
        cdef list found = []
        cdef Py_ssize_t i
        if type(partitions) is FetchedPartitions:
            fetched = partitions
            for i in range(fetched.count):
                row = of_topic.get(fetched.parts[i].index)
                if row is None or not row.sent:
                    raise LookupError(fetched.parts[i].index)
                found.append(row)
        else:
            for data in partitions:
                row = of_topic.get(data.partition_index)
                if row is None or not row.sent:
                    raise LookupError(data.partition_index)
                found.append(row)
        return found

    @property
    def targets(self):
        """What is to be fetched: {partition: FetchTarget}, in order."""
        cdef FetchRow row
        return {row.tp: FetchTarget(row.topic_id, row.offset, row.max_bytes, row.epoch, row.wanted_by)
                for row in sorted(self._all(), key=BY_ORDER) if row.wanted}

    @property
    def sent(self):
        """What the broker looks at, once it has the last request: {partition: FetchTarget}."""
        cdef FetchRow row
        return {row.tp: FetchTarget(row.sent_id, row.values[ROW_OFFSET], row.values[ROW_MAX_BYTES], row.values[ROW_EPOCH], row.owner)
                for row in self._all() if row.sent}


cdef list rows_by_topic(list rows):
    """(topic, topic id, its rows), in the order of the first row of each. Partitions mostly come topic by topic."""
    cdef FetchRow row
    cdef dict topics = {}
    cdef list of_topic = None
    cdef object name = None
    cdef object topic_id = None
    for row in rows:
        if row.tp[0] is not name or row.sent_id is not topic_id:
            name, topic_id = row.tp[0], row.sent_id
            of_topic = topics.setdefault((name, topic_id), [])
        of_topic.append(row)
    return [(key[0], key[1], found) for key, found in topics.items()]
