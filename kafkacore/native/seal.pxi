# Classes whose objects only this extension makes.
#
# `cls.__new__(cls)` from outside would give an object without its state: pointers and counts that nothing has set. Within the extension
# `X.__new__(X)` calls the allocation function of X itself and never reads the slot, so the slot can refuse everybody else at no cost. Their
# subclasses inherit it: only final classes belong here, and RecordFuture, whose subclasses have their objects from recast.pxi. Objects that
# callers do make are checked instead (`nonecheck` in _codec.pyx).

cdef extern from *:
    """
    static PyObject *kc_refuse_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
        (void)args; (void)kwargs;
        PyErr_Format(PyExc_TypeError, "a %s cannot be made from outside: it is handed out by what it belongs to", type->tp_name);
        return NULL;
    }
    static void kc_seal(PyObject *type) {
        ((PyTypeObject *)type)->tp_new = kc_refuse_new;
        ((PyTypeObject *)type)->tp_vectorcall = NULL;         /* a short cut of Cython's from the call to its own allocation function */
        PyType_Modified((PyTypeObject *)type);
    }
    static int kc_answer(PyObject *type, PyObject *answers) {
        int failed = PyDict_Merge(((PyTypeObject *)type)->tp_dict, answers, 0);
        PyType_Modified((PyTypeObject *)type);
        return failed;
    }
    """
    void kc_seal(object type)
    int kc_answer(object type, object answers) except -1

for _sealed in (RecordFuture, ProduceAttempt, Ready, HeldBuffer, RecordContext, RowStore, Segment, ByteColumn, RecordColumns, Batch, PartitionTable,
                BufferStart, ProducedTopics, ProducePartitions, ProduceTopics, AwaitedDelivery, ShortCoroutine):
    kc_seal(_sealed)
del _sealed

# Names that records and futures have in other clients.
from kafkacore import elsewhere as _elsewhere
kc_answer(ConsumerRecord, _elsewhere.answering(_elsewhere.RECORD))
kc_answer(RecordFuture, _elsewhere.answering(_elsewhere.FUTURE))
del _elsewhere
