# Objects of the fast paths under another class: what the faces of other clients hand out (kafkacore/compat).
#
# Such a class gives other names to what a ConsumerRecord or a RecordFuture holds. Making one object per record out of another would cost more
# than the record itself, so the objects are made as ever and then change their class, which is a pointer. That is safe for a class with the
# layout of its base and without the collector. Every class that a `class` statement makes has the collector, so `recastable` builds the class
# again, from a type specification; `check_recast` refuses all others.

cdef extern from *:
    """
    static int kc_may_recast(PyTypeObject *type, PyTypeObject *base) {
        return PyType_IsSubtype(type, base) && type->tp_basicsize == base->tp_basicsize && type->tp_itemsize == base->tp_itemsize
            && !PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC) && !PyType_HasFeature(base, Py_TPFLAGS_HAVE_GC);
    }
    static void kc_recast(PyObject *o, PyTypeObject *type) {
        PyTypeObject *old = Py_TYPE(o);
        if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE))
            Py_INCREF((PyObject *)type);                   /* objects of heap types hold their type */
        Py_SET_TYPE(o, type);
        if (PyType_HasFeature(old, Py_TPFLAGS_HEAPTYPE))
            Py_DECREF((PyObject *)old);
    }
    /* An object ends as one of its base, which has a free list. An object of a further subclass has come here by that one's own way, and keeps
       its class. Objects hold their class; who is above in the way leaves that to the dealloc of a heap type. */
    static void kc_plain_dealloc(PyObject *o) {
        PyTypeObject *type = Py_TYPE(o), *base = type;
        while (base->tp_dealloc != kc_plain_dealloc)
            base = base->tp_base;
        while (base->tp_dealloc == kc_plain_dealloc)
            base = base->tp_base;
        if (type->tp_dealloc == kc_plain_dealloc)
            Py_SET_TYPE(o, base);
        base->tp_dealloc(o);
        Py_DECREF((PyObject *)type);
    }
    static PyObject *kc_plain_subclass(const char *name, PyObject *bases, PyTypeObject *base) {
        PyType_Slot slots[] = {{Py_tp_dealloc, (void *)kc_plain_dealloc}, {0, NULL}};
        PyType_Spec spec = {name, (int)base->tp_basicsize, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
        return PyType_FromSpecWithBases(&spec, bases);
    }
    /* A method of C as a class's own: the interpreter takes its shortest way only where an object's class is the method's. */
    static PyObject *kc_own_method(PyObject *type, PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
            Py_INCREF(descriptor);
            return descriptor;
        }
        return PyDescr_NewMethod((PyTypeObject *)type, ((PyMethodDescrObject *)descriptor)->d_method);
    }
    /* Whether a record is of plain bytes, and not without any. */
    static inline int kc_plain_record(PyObject *topic, PyObject *value, PyObject *key) {
        return PyUnicode_CheckExact(topic) && (PyBytes_CheckExact(key) || key == Py_None)
            && (PyBytes_CheckExact(value) || (value == Py_None && key != Py_None));
    }
    static inline PyObject *kc_send_three(PyObject *producer, PyObject **given, PyObject *partition, PyObject *timestamp_ms) {
        return kc_send_parsed(producer, given[0], given[1], given[2], Py_None, partition, timestamp_ms, Py_None);
    }
    """
    bint kc_plain_record(PyObject *topic, PyObject *value, PyObject *key) noexcept
    PyObject *kc_send_three(PyObject *producer, PyObject **given, PyObject *partition, PyObject *timestamp_ms) noexcept
    int kc_may_recast(PlanType* type, PlanType* base) noexcept
    void kc_recast(PyObject* o, PlanType* type) noexcept
    object kc_own_method(object type, object descriptor)
    object kc_plain_subclass(const char* name, object bases, PlanType* base)


_NO_STATE = {"__dict__", "__weakref__", "__slots__", "__module__", "__qualname__"}


def recastable(type template not None):
    """Decorates a class of `recast_records` or `RecastSend`: the same class without the collector.

    Args:
        template: derives from ConsumerRecord or RecordFuture, has `__slots__ = ()`, no `__del__`, and does not use `super()`.

    Raises:
        TypeError: it derives from neither, or has slots.
    """
    cdef type base = ConsumerRecord if issubclass(template, ConsumerRecord) else RecordFuture
    if template.__basicsize__ != base.__basicsize__:
        raise TypeError(f"{template.__name__} has slots of its own")
    name = f"{template.__module__}.{template.__qualname__}".encode()
    made = kc_plain_subclass(name, template.__bases__, <PlanType*><PyObject*> base)
    for each, value in vars(template).items():
        if each not in _NO_STATE:
            setattr(made, each, kc_own_method(made, value))
    check_recast(made, base)
    return made


cdef check_recast(type wanted, type base):
    if not kc_may_recast(<PlanType*><PyObject*> wanted, <PlanType*><PyObject*> base):
        raise TypeError(f"{wanted.__name__} is no subclass of {base.__name__} made by recastable")


def recast_records(list records not None, type wanted not None):
    """Turns the ConsumerRecords of a list into objects of a subclass, in place; other items stay as they are.

    Args:
        records: the list.
        wanted: a subclass of ConsumerRecord, made by `recastable`.

    Raises:
        TypeError: the class is not fit for it.
    """
    cdef PyObject* item
    cdef Py_ssize_t i
    check_recast(wanted, ConsumerRecord)
    for i in range(PyList_GET_SIZE(<PyObject*> records)):
        item = PyList_GET_ITEM(<PyObject*> records, i)
        if type(<object> item) is ConsumerRecord:
            kc_recast(item, <PlanType*><PyObject*> wanted)


@cython.final
cdef class RecastSend:
    """Queues records of plain bytes at once, for a producer whose `send` takes arguments as kafka-python has them (short_method.pxi).

    Args:
        producer: the engine's.
        future_type: a subclass of RecordFuture, made by `recastable`: what `send` returns.
        failed: failed(error, topic, value, key, headers, partition) with what the engine raised; returns what `send` returns, or raises. None
            where only `append` is called.
    """

    cdef ProducerCore producer
    cdef type future_type
    cdef object failed

    def __init__(self, ProducerCore producer not None, type future_type not None, failed):
        check_recast(future_type, RecordFuture)
        self.producer = producer
        self.future_type = future_type
        self.failed = failed

    def append(self, topic, value, key, headers, partition, timestamp_ms):
        """Queues a record whose arguments are checked.

        Args:
            topic: its name.
            value, key: bytes-like or None.
            headers: pairs of (str, bytes), or None.
            partition: number, or None.
            timestamp_ms: epoch milliseconds; None is now.

        Returns:
            An object of future_type.

        Raises:
            NotNow, KafkaError: as the engine's `send`.
        """
        return recast_future(self, self.producer.send_parsed(topic, value, key, headers, partition, timestamp_ms, None))


cdef inline object recast_future(RecastSend sends, future):
    if type(future) is RecordFuture:
        kc_recast(<PyObject*> future, <PlanType*><PyObject*> sends.future_type)
    return future


cdef object recast_send(object function, object producer, object held, PyObject **given):
    # References are borrowed, since counting those of None is a good part of what a call costs.
    cdef RecastSend sends = <RecastSend> held
    cdef PyObject *made
    if given[3] != PLAN_NONE or not kc_plain_record(given[0], given[1], given[2]):
        return NotImplemented
    made = kc_send_three(<PyObject *> sends.producer, given, given[4], given[5])
    if made == NULL:
        return recast_failed(sends, given)
    if type(<object> made) is RecordFuture:
        kc_recast(made, <PlanType*><PyObject*> sends.future_type)
    future = <object> made
    plan_xdecref(made)
    return future


cdef object recast_failed(RecastSend sends, PyObject **given):
    try:
        kc_raised()
    except Exception as error:
        return sends.failed(error, <object> given[0], <object> given[1], <object> given[2], None, <object> given[4])
