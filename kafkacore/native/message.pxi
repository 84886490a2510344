# What a Message of confluent-kafka says of itself (compat/confluent/message.py has the class), and MessagesInHand, which gives messages to `poll`.
#
# A message is a ConsumerRecord under another class (recast.pxi). What it is beside that is in the slot of the headers:
#   tuple          headers as they were read
#   list           the same, since they were asked for
#   float          of a delivery report: seconds from produce() to the callback
#   MessageNotes   anything else: an error, or what a program has put into it
# Numbers below 0 are what is not known.

cdef extern from *:
    """
    typedef PyObject *(*kc_message_says)(PyObject *, PyObject *);
    static PyObject *kc_message_method(PyObject *type, const char *name, const char *doc, kc_message_says says) {
        PyMethodDef *def = PyMem_Malloc(sizeof(PyMethodDef));   /* the descriptor points into it, and to the texts */
        if (def == NULL)
            return PyErr_NoMemory();
        def->ml_name = name;
        def->ml_meth = says;
        def->ml_flags = METH_NOARGS;
        def->ml_doc = doc;
        return PyDescr_NewMethod((PyTypeObject *)type, def);
    }

    #include <time.h>
    /* A clock that never goes back; the coarse one (a few ms of grain at most) costs a fifth of the fine one. */
    static inline int64_t kc_steady_ms(void) {
        struct timespec t;
    #ifdef CLOCK_MONOTONIC_COARSE
        clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    #else
        clock_gettime(CLOCK_MONOTONIC, &t);
    #endif
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    static inline double kc_steady_s(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    """
    ctypedef void* kc_message_says
    object kc_message_method(object type, const char *name, const char *doc, kc_message_says says)
    int64_t kc_steady_ms() noexcept
    double kc_steady_s() noexcept

cdef extern from "Python.h":
    PyObject* message_next "PyIter_Next"(object) except? NULL
    bint message_is_iterator "PyIter_Check"(object)


@cython.final
cdef class MessageNotes:
    """What a message is beside a record."""

    cdef object headers, error, latency, delivery_count


cdef MessageNotes notes_of(ConsumerRecord m):
    """The notes of a message; it has some from now on."""
    cdef MessageNotes notes
    if type(m.headers) is MessageNotes:
        return <MessageNotes> m.headers
    notes = MessageNotes.__new__(MessageNotes)
    if type(m.headers) is float:
        notes.latency = m.headers
    else:
        notes.headers = list(m.headers) if m.headers else None
    m.headers = notes
    return notes


cdef object known(int64_t number):
    return None if number < 0 else number


@cython.nonecheck(True)
cdef object message_topic(object self, object unused):
    return (<ConsumerRecord> self).context.topic


@cython.nonecheck(True)
cdef object message_partition(object self, object unused):
    return known((<ConsumerRecord> self).context.partition)


cdef object message_offset(object self, object unused):
    return known((<ConsumerRecord> self).offset)


cdef object message_key(object self, object unused):
    return (<ConsumerRecord> self).key


cdef object message_value(object self, object unused):
    return (<ConsumerRecord> self).value


cdef object message_headers(object self, object unused):
    cdef ConsumerRecord m = <ConsumerRecord> self
    found = m.headers
    if type(found) is MessageNotes:
        return (<MessageNotes> found).headers
    if type(found) is tuple:
        if not <tuple> found:
            return None
        m.headers = found = list(<tuple> found)
    return found if type(found) is list else None


cdef object message_error(object self, object unused):
    found = (<ConsumerRecord> self).headers
    return (<MessageNotes> found).error if type(found) is MessageNotes else None


@cython.nonecheck(True)
cdef object message_timestamp(object self, object unused):
    cdef ConsumerRecord m = <ConsumerRecord> self
    return (m.context.timestamp_type + 1, m.timestamp_ms)


cdef object message_latency(object self, object unused):
    found = (<ConsumerRecord> self).headers
    if type(found) is float:
        return found
    return (<MessageNotes> found).latency if type(found) is MessageNotes else None


@cython.nonecheck(True)
cdef object message_leader_epoch(object self, object unused):
    return known((<ConsumerRecord> self).context.leader_epoch)


cdef object message_delivery_count(object self, object unused):
    found = (<ConsumerRecord> self).headers
    return (<MessageNotes> found).delivery_count if type(found) is MessageNotes else None


cdef dict _message_texts = {}                 # names and docs of the methods, which point into them


def message_method(str name not None, str doc not None):
    """A method of a class made by `recastable` from ConsumerRecord.

    Args:
        name: topic, partition, offset, key, value, headers, error, timestamp, latency, leader_epoch or delivery_count.
        doc: what the method gives.
    """
    cdef kc_message_says says
    if name == "topic":
        says = <kc_message_says> message_topic
    elif name == "partition":
        says = <kc_message_says> message_partition
    elif name == "offset":
        says = <kc_message_says> message_offset
    elif name == "key":
        says = <kc_message_says> message_key
    elif name == "value":
        says = <kc_message_says> message_value
    elif name == "headers":
        says = <kc_message_says> message_headers
    elif name == "error":
        says = <kc_message_says> message_error
    elif name == "timestamp":
        says = <kc_message_says> message_timestamp
    elif name == "latency":
        says = <kc_message_says> message_latency
    elif name == "leader_epoch":
        says = <kc_message_says> message_leader_epoch
    elif name == "delivery_count":
        says = <kc_message_says> message_delivery_count
    else:
        raise ValueError(f"a message has no method {name}")
    cdef bytes named = name.encode(), text = f"{name}($self, /)\n--\n\n{doc}".encode()
    _message_texts[named, text] = None
    for named, text in [each for each in _message_texts if each == (named, text)]:     # those that are kept
        return kc_message_method(ConsumerRecord, PyBytes_AS_STRING(named), PyBytes_AS_STRING(text), says)


def fill_message(ConsumerRecord message not None, topic, partition, offset, key, value, headers, error, timestamp, latency, leader_epoch,
                 delivery_count):
    """Gives a message its fields.

    Args:
        message: of a class made by `recastable`.
        topic, key, value, headers, error, latency, delivery_count: as its methods give them.
        partition, offset, leader_epoch: numbers; None where there is no such thing.
        timestamp: (type, epoch milliseconds).
    """
    cdef MessageNotes notes = MessageNotes.__new__(MessageNotes)
    kind, ms = timestamp
    message.context = record_context(topic, -1 if partition is None else partition, -1 if leader_epoch is None else leader_epoch, kind - 1)
    message.offset = -1 if offset is None else offset
    message.timestamp_ms = ms
    message.key = key
    message.value = value
    notes.headers, notes.error, notes.latency, notes.delivery_count = headers, error, latency, delivery_count
    message.headers = notes


@cython.nonecheck(True)
def change_message(ConsumerRecord message not None, str name not None, value):
    """Replaces one field of a message.

    Args:
        message: of a class made by `recastable`.
        name: topic, key, value, headers or error.
        value: the new one.
    """
    cdef RecordContext context
    if name == "topic":
        context = message.context
        message.context = record_context(value, context.partition, context.leader_epoch, context.timestamp_type)
    elif name == "key":
        message.key = value
    elif name == "value":
        message.value = value
    elif name == "headers":
        notes_of(message).headers = value
    elif name == "error":
        notes_of(message).error = value
    else:
        raise ValueError(f"a message has no field {name} that can be changed")


@cython.final
cdef class MessagesInHand:
    """Messages that `poll` hands out one by one, for a limited time: then the general way has its turn."""

    cdef object messages
    cdef int64_t until_ms

    def begin(self, messages not None, int64_t for_ms):
        """Hands out from an iterator.

        Args:
            messages: the iterator; what it does not give from here is left to others.
            for_ms: how long.
        """
        if not message_is_iterator(messages):
            raise TypeError(f"{type(messages).__name__} is no iterator")
        self.messages = messages
        self.until_ms = kc_steady_ms() + for_ms

    def end(self):
        """Hands out nothing more."""
        self.messages = None

    cdef PyObject* next(self) except? NULL:
        if self.messages is None or kc_steady_ms() >= self.until_ms:
            return NULL
        return message_next(self.messages)

    @property
    def in_time(self):
        """Whether it may hand out more."""
        return self.messages is not None and kc_steady_ms() < self.until_ms


cdef object handed_out(object function, object consumer, object held, PyObject **given):
    cdef PyObject* item
    if given[0] != PLAN_NONE and type(<object> given[0]) is not float and type(<object> given[0]) is not int:
        return NotImplemented
    item = (<MessagesInHand> held).next()
    if item == NULL:
        return NotImplemented
    message = <object> item
    plan_xdecref(item)
    return message
