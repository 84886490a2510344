# What other extensions may cimport: TimingWheel with its C methods. See native/wheel.h for the layout.
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t


cdef extern from "wheel.h" nogil:
    ctypedef struct kw_node:
        int32_t next, prev
        uint32_t generation
        int32_t state
        int64_t expiration
        void* payload

    ctypedef struct kw_level:
        int64_t tick, interval, now, start
        int32_t first, slot

    ctypedef struct kw_wheel:
        kw_node* nodes
        int32_t capacity, used, free_head, size, levels
        int32_t due[2]
        int32_t current
        int64_t now
        int64_t count
        int64_t due_count[2]
        kw_level level[62]


cdef class TimerTask
cdef class TimerTaskEntry


cdef class TaskCounter:
    cdef readonly Py_ssize_t value


cdef class TaskStore:
    cdef kw_wheel wheel
    cdef TaskCounter counter
    cdef object __weakref__

    cdef object take(self, int32_t node)
    cdef void drop(self, int32_t node)
    cdef void drop_all(self)
    cdef void forget(self, int32_t node)
    cdef list timers_of(self, int32_t ring)
    cdef bint holds(self, int32_t node)


cdef class TimingWheel(TaskStore):
    cdef int64_t call_at_c(self, int64_t when_ms, object task) except -1
    cdef bint cancel_c(self, int64_t handle)
    cdef bint add_c(self, TimerTaskEntry entry, bint refuse) except -1
    cdef object next_due(self)
    cdef Py_ssize_t pop_into(self, int64_t now_ms, object ready) except -1
    cdef int expire(self, int64_t now_ms) except -1
    cdef bint place(self, TimerTask task, int64_t expiration_ms, bint refuse) except -1


cdef class TimerTask:
    cdef int64_t delay
    cdef object fn
    cdef PyObject* entry                                  # borrowed: the object of its current entry, while there is one
    cdef PyObject* owner                                  # borrowed: the store it stands in by its current entry
    cdef int64_t expiration_ms                            # there
    cdef int32_t node
    cdef object __weakref__

    cdef void leave(self)
    cdef bint unlink(self)
    cdef TimerTaskEntry current_entry(self)


cdef class TimerTaskEntry:
    cdef readonly TimerTask task
    cdef readonly int64_t expiration_ms
    cdef PyObject* owner                                  # borrowed: the list it stands in although it was cancelled
    cdef int32_t node

    cdef bint is_cancelled(self)
    cdef bint unlink(self)
