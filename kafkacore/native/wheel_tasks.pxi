# The classes of Kafka around a timer: what is to run, its place, and one list of places.
#
# Where a task stands is written in the task. A TimerTaskEntry is a view of that: it lives as long as a caller holds it, the wheel does not,
# and a task that is asked for its entry later makes another. Each refers to the other, but only the entry owns; so does the store the task.
#
# Both are tracked by the garbage collector, since a cycle may close through the task's callable, but not counted: see wheel_alloc.h.
import sys

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact


cdef extern from "wheel_alloc.h":
    bint kw_uncounted(PyTypeObject* type, Py_ssize_t head)


cdef int64_t clamp_ms(object ms) except? -1:
    """A time of Python as one of C."""
    cdef int overflow = 0
    cdef int64_t value
    if PyLong_CheckExact(ms):
        value = PyLong_AsLongLongAndOverflow(ms, &overflow)
        if overflow:
            return KW_FOREVER if overflow > 0 else -KW_FOREVER
        return max(min(value, KW_FOREVER), -KW_FOREVER)
    try:
        return max(min(<int64_t?>ms, KW_FOREVER), -KW_FOREVER)
    except OverflowError:
        return KW_FOREVER if ms > 0 else -KW_FOREVER


@cython.freelist(64)
cdef class TimerTask:
    """Something to do after a delay. Subclasses define `run`, or a callable is given.

    Args:
        delay_ms: milliseconds from when it is added; negative is at once, some hundred million years are without end.
        fn: what `run` calls.

    A task is in at most one list: adding it again moves it.

    Source: org.apache.kafka.server.util.timer.TimerTask.
    """

    def __init__(self, delay_ms, fn=None):
        self.delay = clamp_ms(delay_ms)
        self.fn = fn

    @property
    def delay_ms(self):
        """Milliseconds from when it is added."""
        return self.delay

    def run(self):
        """Called once when the time has come and the task was not cancelled."""
        if self.fn is None:
            raise TypeError(f"{type(self).__name__} has neither a run() of its own nor a callable")
        self.fn()

    def cancel(self):
        """Takes the task out of its list; it will not run unless added again."""
        self.leave()

    cdef void leave(self):
        self.entry = NULL
        self.unlink()

    cdef bint unlink(self):
        cdef PyObject* owner = self.owner
        if owner == NULL:
            return False
        (<TaskStore>owner).drop(self.node)
        return True

    cdef TimerTaskEntry current_entry(self):
        cdef TimerTaskEntry entry
        if self.entry == NULL and self.owner != NULL:
            entry = TimerTaskEntry.__new__(TimerTaskEntry)
            if self.entry == NULL and self.owner != NULL:             # making one may collect, and so run what moves this task
                entry.task = self
                entry.expiration_ms = self.expiration_ms
                self.entry = <PyObject*>entry
                return entry
        return None if self.entry == NULL else <TimerTaskEntry>self.entry

    @property
    def timer_task_entry(self):
        """Its current `TimerTaskEntry`, or None."""
        return self.current_entry()

    def __repr__(self):
        return f"<{type(self).__name__} delay_ms={self.delay}{'' if self.fn is None else f' {self.fn!r}'}>"


@cython.final
@cython.no_gc_clear                                       # an entry without a task is never seen; wheels and tasks break the cycles
@cython.freelist(256)
cdef class TimerTaskEntry:
    """The place of a task in a list or wheel. A new one takes the place of the task's old one.

    Args:
        task: a `TimerTask`.
        expiration_ms: when it is due.

    Source: org.apache.kafka.server.util.timer.TimerTaskEntry.
    """

    def __cinit__(self):
        self.task = no_task
        self.node = KW_NONE

    def __init__(self, TimerTask task not None, int64_t expiration_ms):
        cdef TimerTask before = self.task
        self.unlink()
        if before.entry == <PyObject*>self:               # __init__() was called a second time
            before.entry = NULL
        task.leave()
        task.entry = <PyObject*>self
        self.task = task
        self.expiration_ms = expiration_ms

    def __dealloc__(self):
        # Its task stays where it is.
        if self.task.entry == <PyObject*>self:
            self.task.entry = NULL

    cdef bint is_cancelled(self):
        return self.task.entry != <PyObject*>self

    cdef bint unlink(self):
        cdef PyObject* owner = self.owner
        if not self.is_cancelled():
            return self.task.unlink()
        if owner == NULL:
            return False
        (<TaskStore>owner).drop(self.node)
        return True

    def cancelled(self):
        """Whether the task was cancelled or has another entry by now."""
        return self.is_cancelled()

    def remove(self):
        """Takes the entry out of its list; the task keeps it as its current one."""
        self.unlink()

    @property
    def list(self):
        """The `TimerTaskList` or `TimingWheel` that holds it, or None."""
        cdef PyObject* owner = self.owner if self.is_cancelled() else self.task.owner
        return None if owner == NULL else <object>owner

    def __repr__(self):
        return f"<TimerTaskEntry {self.task!r} at {self.expiration_ms} ms>"


@cython.no_gc_clear
cdef class TimerTaskList(TaskStore):
    """A list of entries with one expiration: a bucket, for use without a wheel.

    Args:
        counter: a `TaskCounter` shared with other lists; None makes one.

    Attributes:
        expiration: milliseconds when it is due; -1 when it is idle.

    Source: org.apache.kafka.server.util.timer.TimerTaskList.
    """
    cdef readonly int64_t expiration

    def __cinit__(self, TaskCounter counter=None):
        self.counter = TaskCounter() if counter is None else counter
        self.expiration = -1
        if kw_init_rings(&self.wheel) < 0:
            raise MemoryError("no memory for a list of timers")

    def add(self, TimerTaskEntry entry not None):
        """Takes an entry in at the end; it leaves the list it was in."""
        cdef TimerTask task = entry.task
        cdef int32_t node
        entry.unlink()
        node = kw_new_node(&self.wheel)
        if node == KW_NONE:
            raise MemoryError("no memory for a timer")
        if entry.is_cancelled():
            Py_INCREF(entry)
            self.wheel.nodes[node].payload = <void*>(<size_t><PyObject*>entry | AS_ENTRY)
            entry.owner = <PyObject*>self
            entry.node = node
        else:
            Py_INCREF(task)
            self.wheel.nodes[node].payload = <void*>(<size_t><PyObject*>task | AS_TASK)
            task.owner = <PyObject*>self
            task.node = node
            task.expiration_ms = entry.expiration_ms
        self.wheel.nodes[node].expiration = entry.expiration_ms
        kw_make_due(&self.wheel, node)
        self.wheel.count += 1
        self.counter.value += 1

    def remove(self, TimerTaskEntry entry not None):
        """Takes an entry out.

        Returns:
            False when it is not in this list.
        """
        if entry.list is not self:
            return False
        entry.unlink()
        return True

    def flush(self, f):
        """Takes every entry out, first first, and hands each to f(entry); the expiration is -1 afterwards."""
        cdef int64_t handle
        cdef int32_t node
        cdef TimerTaskEntry entry
        while self.wheel.due_count[0]:
            node = self.wheel.nodes[self.wheel.due[0]].next
            handle = kw_handle(&self.wheel, node)
            if <size_t>self.wheel.nodes[node].payload & AS_TASK:
                entry = (<TimerTask>payload_object(self.wheel.nodes[node].payload)).current_entry()
            else:
                entry = <TimerTaskEntry>payload_object(self.wheel.nodes[node].payload)
            if kw_find(&self.wheel, handle) == KW_NONE:   # making the entry collected, and a finalizer took it out
                continue
            self.drop(node)
            f(entry)
        self.expiration = -1

    def __iter__(self):
        """The entries as they stand now, first first."""
        return iter(self.timers_of(self.wheel.due[0]))

    @property
    def task_counter(self):
        """The `TaskCounter`, perhaps shared."""
        return self.counter

    def set_expiration(self, int64_t expiration_ms):
        """Sets when the list is due.

        Returns:
            Whether that changed anything: the one moment to offer the list to a queue.
        """
        changed = self.expiration != expiration_ms
        self.expiration = expiration_ms
        return changed

    def get_expiration(self):
        """When the list is due; -1 when it is idle."""
        return self.expiration

    def get_delay_ms(self, now_ms):
        """Milliseconds until the list is due, not below 0."""
        return max(self.expiration - now_ms, 0)

    def __repr__(self):
        return f"<TimerTaskList of {self.wheel.count} at {self.expiration} ms>"


cdef TimerTask no_task = TimerTask(0)                      # of entries whose __init__ was not called
kw_uncounted(<PyTypeObject*>TimerTask, sys.getsizeof(no_task) - no_task.__sizeof__())
kw_uncounted(<PyTypeObject*>TimerTaskEntry, sys.getsizeof(no_task) - no_task.__sizeof__())


cdef traverseproc list_traverse_attributes = (<PyTypeObject*>TimerTaskList).tp_traverse


cdef int list_traverse(PyObject* self, visitproc visit, void* arg) noexcept:
    cdef int answer = traverse_payloads(self, visit, arg)
    return answer if answer else list_traverse_attributes(self, visit, arg)


(<PyTypeObject*>TimerTaskList).tp_traverse = <traverseproc>list_traverse
(<PyTypeObject*>TimerTaskList).tp_clear = <inquiry>store_clear
