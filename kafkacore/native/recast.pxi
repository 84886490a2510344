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
    static PyObject *kc_plain_subclass(const char *name, PyObject *bases, PyTypeObject *base) {
        PyType_Slot slots[] = {{0, NULL}};
        PyType_Spec spec = {name, (int)base->tp_basicsize, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
        return PyType_FromSpecWithBases(&spec, bases);
    }
    static void kc_recast(PyObject *o, PyTypeObject *type) {
        PyTypeObject *old = Py_TYPE(o);
        if (PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE))
            Py_INCREF((PyObject *)type);                   /* objects of heap types hold their type */
        Py_SET_TYPE(o, type);
        if (PyType_HasFeature(old, Py_TPFLAGS_HEAPTYPE))
            Py_DECREF((PyObject *)old);
    }
    """
    int kc_may_recast(PlanType* type, PlanType* base) noexcept
    void kc_recast(PyObject* o, PlanType* type) noexcept
    object kc_plain_subclass(const char* name, object bases, PlanType* base)


_NO_STATE = {"__dict__", "__weakref__", "__slots__", "__module__", "__qualname__"}


def recastable(type template not None):
    """Decorates a class of `recast_records` or `SendFace._future_type`: the same class without the collector.

    Args:
        template: derives from ConsumerRecord or RecordFuture, has `__slots__ = ()`, and does not use `super()`.

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
            setattr(made, each, value)
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


cdef class SendFace:
    """Base of a producer whose `send` takes arguments as kafka-python has them, over a KafkaProducer.

    A record of plain bytes goes straight into the open batch. `_send_general` of the subclass gets every other call with the arguments as they
    came, `_send_failed` what the engine raised; both return what `send` returns, or raise.

    Attributes:
        _core: the KafkaProducer; None leads every call to `_send_general`.
        _future_type: a subclass of RecordFuture, made by `recastable`: what `send` returns.
    """

    cdef ProducerCore _engine
    cdef type _type

    @property
    def _core(self):
        return self._engine

    @_core.setter
    def _core(self, ProducerCore core):
        if core is not None and self._type is None:
            raise TypeError("the class of the futures comes first")
        self._engine = core

    @property
    def _future_type(self):
        return self._type

    @_future_type.setter
    def _future_type(self, type wanted not None):
        check_recast(wanted, RecordFuture)
        self._type = wanted

    def _append(self, topic, value, key, headers, partition, timestamp_ms):
        """Queues a record whose arguments are checked; the errors are the engine's."""
        future = self._engine.send_parsed(topic, value, key, headers, partition, timestamp_ms, None)
        if type(future) is RecordFuture:
            kc_recast(<PyObject*> future, <PlanType*><PyObject*> self._type)
        return future

    @cython.binding(False)
    @cython.embedsignature(False)
    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """send($self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None)
--

Queues one record and returns at once.

Args:
    topic: topic name.
    value: bytes, bytearray, memoryview, None, or what value_serializer turns into that.
    key: as value, with key_serializer. Records of one key go to one partition. One of key and value is not None.
    headers: list of (str, bytes).
    partition: number; None lets the partitioner choose.
    timestamp_ms: epoch milliseconds; None is now.

Returns:
    FutureRecordMetadata.

Raises:
    KafkaTimeoutError: no metadata or no memory within max_block_ms.
    MessageSizeTooLargeError: more than max_request_size.
    TypeError, ValueError: arguments that are none of these.
    IllegalStateError: the producer is closed.
"""
        if (self._engine is None or headers is not None or type(topic) is not str or not (type(key) is bytes or key is None)
                or not (type(value) is bytes or (value is None and key is not None))):
            return self._send_general(topic, value, key, headers, partition, timestamp_ms)
        try:
            future = self._engine.send_parsed(topic, value, key, None, partition, timestamp_ms, None)
        except Exception as error:
            return self._send_failed(error, topic, value, key, headers, partition)
        if type(future) is RecordFuture:
            kc_recast(<PyObject*> future, <PlanType*><PyObject*> self._type)
        return future
