# What a group's leader does for each partition of the topics: names it, and finds its place among all.
#
# A leader names ten thousand partitions at once. They hold a str and an int, which refer to nothing further, so the garbage collector need not
# look at them: they leave its lists at once.

from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact

from kafkacore.types import TopicPartition

cdef extern from "Python.h":
    void named_untrack "PyObject_GC_UnTrack"(PyObject*)

cdef PlanType* TOPIC_PARTITION = <PlanType*><PyObject*>TopicPartition


cdef inline object named_partition(topic, index):
    """`TopicPartition(topic, index)`, without its Python constructor."""
    cdef PyObject* made = plan_new_tuple(TOPIC_PARTITION, 2)
    plan_incref(<PyObject*>topic)
    plan_tuple_set(made, 0, <PyObject*>topic)
    plan_incref(<PyObject*>index)
    plan_tuple_set(made, 1, <PyObject*>index)
    if PyUnicode_CheckExact(topic) and PyLong_CheckExact(index):
        named_untrack(made)
    partition = <object>made
    plan_xdecref(made)
    return partition


def name_partitions(groups):
    """Returns a list of TopicPartition.

    Args:
        groups: (topic, partition numbers) pairs, as some structs of the protocol are.
    """
    cdef list found = []
    for topic, indexes in groups:
        for index in indexes:
            found.append(named_partition(topic, index))
    return found


def places_of(dict spans not None, partitions):
    """Returns the places of these partitions, a list of int, without those that `spans` does not have.

    Args:
        spans: {topic: (place of its partition 0, how many partitions it has)}.
        partitions: (topic, partition number) tuples.
    """
    cdef list found = []
    cdef PyObject* span
    cdef int64_t begin, count, index
    for partition in partitions:
        if not isinstance(partition, tuple) or len(<tuple>partition) != 2:
            raise UsageError(f"{partition!r:.200} is not a (topic, partition) tuple")
        span = PyDict_GetItemWithError(spans, (<tuple>partition)[0])
        if span is NULL:
            continue
        begin, count = <object>span
        index = (<tuple>partition)[1]
        if 0 <= index < count:
            found.append(begin + index)
    return found
