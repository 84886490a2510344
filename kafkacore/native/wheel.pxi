# TimingWheel over the slab of wheel.h: Python's side of the nodes.
#
# A node's payload is a strong reference, marked in its low bits, or NULL:
#   TimerTask        AS_TASK, from add(): the task knows its place. Its TimerTaskEntry is not kept: it is made again when one asks for it.
#   TimerTaskEntry   AS_ENTRY, in a TimerTaskList only: an entry that was cancelled before it was added, so that its task is elsewhere
#   any callable     from call_at(): the node is all there is, its handle an int
#   NULL             from add_many(): nothing but handles
#
# Rules:
# 1. Rings are changed between two bytecodes: no method here runs Python code while a ring is open. References are dropped last, since a
#    __del__ may call back. That, and the GIL, is all the locking: adds, cancels and the clock may come from any threads.
#    [test_what_a_dying_wheel_calls_back_finds_nothing_of_it, test_a_task_that_moves_while_its_wheel_dies_stays_where_it_went]
# 2. A task knows its store as a borrowed pointer; the store takes that pointer away when it lets the task go, and when it dies.
#    [test_a_task_that_moves_while_its_wheel_dies_stays_where_it_went, test_a_wheel_that_goes_lets_its_entries_go]
# 3. The garbage collector sees every payload through the store (tp_traverse below), so a wheel in a cycle with its tasks is collected.
#    [test_a_cycle_through_a_callable_is_collected]
import logging

import numpy as np

from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t


cdef extern from "wheel.h" nogil:
    enum:
        KW_NONE
        KW_FREE
        KW_LINKED
        KW_DUE
        KW_SENTINEL
        KW_MAX_LEVELS
    const int64_t KW_IDLE
    const int64_t KW_FOREVER
    int kw_init(kw_wheel* w, int64_t tick, int32_t size, int64_t start)
    int kw_init_rings(kw_wheel* w)
    int kw_new_level(kw_wheel* w, int64_t tick, int64_t now)
    void kw_release(kw_wheel* w)
    int kw_reserve(kw_wheel* w, int64_t more)
    int32_t kw_add(kw_wheel* w, int64_t expiration, void* payload, int refuse)
    int32_t kw_new_node(kw_wheel* w)
    void kw_make_due(kw_wheel* w, int32_t i)
    void* kw_take(kw_wheel* w, int32_t i)
    int64_t kw_handle(kw_wheel* w, int32_t i)
    int32_t kw_find(kw_wheel* w, int64_t handle)
    void kw_prefetch_node(const kw_wheel* w, int64_t handle)
    void kw_prefetch_neighbours(const kw_wheel* w, int64_t handle)
    void kw_prefetch_next(const kw_wheel* w, int32_t ring)
    void kw_advance(kw_wheel* w, int64_t now)
    int kw_expire(kw_wheel* w, int64_t now)
    int64_t kw_next(kw_wheel* w)


cdef object log = logging.getLogger("kafkacore.timer")


@cython.final
cdef class TaskCounter:
    """How many tasks the lists that share it hold.

    Attributes:
        value: the number.
    """

    def __int__(self):
        return self.value

    def __index__(self):
        return self.value

    def __repr__(self):
        return f"TaskCounter({self.value})"


cdef enum:
    AS_TASK = 1
    AS_ENTRY = 2


cdef inline PyObject* payload_object(void* payload) noexcept:
    return <PyObject*>(<size_t>payload & ~<size_t>(AS_TASK | AS_ENTRY))


cdef inline PyObject* let_go(void* payload) noexcept:
    """The object of a payload just taken, which forgets its place."""
    cdef PyObject* held = payload_object(payload)
    if <size_t>payload & AS_TASK:
        (<TimerTask>held).owner = NULL
    elif <size_t>payload & AS_ENTRY:
        (<TimerTaskEntry>held).owner = NULL
    return held


@cython.no_gc_clear                                       # the counter must outlive whatever is called while a cycle is taken apart
cdef class TaskStore:
    """What holds timer tasks: nodes in rings, and the references in them. Made through its subclasses only."""

    def __dealloc__(self):
        self.drop_all()
        kw_release(&self.wheel)

    def __len__(self):
        return self.wheel.count

    cdef object take(self, int32_t node):
        """Takes a node out and gives its payload back, which has no owner then; None for a bare handle."""
        cdef PyObject* payload = let_go(kw_take(&self.wheel, node))
        self.counter.value -= 1
        if payload == NULL:
            return None
        task = <object>payload
        Py_DECREF(task)                                   # `task` has its own
        return task

    cdef void drop(self, int32_t node):
        """Takes a node out and lets its payload go."""
        cdef PyObject* payload = let_go(kw_take(&self.wheel, node))
        self.counter.value -= 1
        if payload != NULL:
            Py_DECREF(<object>payload)

    cdef void drop_all(self):
        cdef int32_t i
        cdef PyObject* payload
        for i in range(self.wheel.used):                  # all places first: a __del__ below may reach any of them, and from it this
            if self.holds(i):
                self.forget(i)
        i = 0
        while i < self.wheel.used:                        # letting go may run a __del__ that adds: look again each time
            if self.holds(i):
                self.forget(i)
                payload = payload_object(kw_take(&self.wheel, i))
                self.counter.value -= 1
                if payload != NULL:
                    Py_DECREF(<object>payload)
            i += 1

    cdef void forget(self, int32_t node):
        """Has a payload forget this place, unless it has another by now."""
        cdef size_t bits = <size_t>self.wheel.nodes[node].payload
        cdef PyObject* held = payload_object(self.wheel.nodes[node].payload)
        if bits & AS_TASK:
            if (<TimerTask>held).owner == <PyObject*>self and (<TimerTask>held).node == node:
                (<TimerTask>held).owner = NULL
        elif bits & AS_ENTRY:
            if (<TimerTaskEntry>held).owner == <PyObject*>self and (<TimerTaskEntry>held).node == node:
                (<TimerTaskEntry>held).owner = NULL

    cdef list timers_of(self, int32_t ring):
        """What is in a ring now, first first: an entry, or the handle of a timer that has none."""
        cdef list handles = [], found = []
        cdef int32_t node = self.wheel.nodes[ring].next
        cdef size_t bits
        while node != ring:                               # numbers first: making an entry may collect, and so run what changes the ring
            handles.append(kw_handle(&self.wheel, node))
            node = self.wheel.nodes[node].next
        for handle in handles:
            node = kw_find(&self.wheel, handle)
            if node == KW_NONE:
                continue
            bits = <size_t>self.wheel.nodes[node].payload
            if bits & AS_TASK:
                entry = (<TimerTask>payload_object(<void*>bits)).current_entry()
                if entry is not None:
                    found.append(entry)
            else:
                found.append(<object>payload_object(<void*>bits) if bits & AS_ENTRY else handle)
        return found

    cdef inline bint holds(self, int32_t node):
        return self.wheel.nodes[node].state == KW_LINKED or self.wheel.nodes[node].state == KW_DUE


@cython.no_gc_clear
cdef class TimingWheel(TaskStore):
    """Hierarchical timing wheel: timers by millisecond, adding and cancelling in constant time, no thread and no clock of its own.

    Levels of `wheel_size` buckets each: the first has ticks of `tick_ms`, each further one is `wheel_size` times coarser and is made when
    first needed. A timer falls from level to level until its tick has come. The wheel stands still until it is told the time.

    Args:
        tick_ms: milliseconds of a tick of the first level.
        wheel_size: buckets of a level, at least 2.
        start_ms: the time now, of any clock.
        counter: a `TaskCounter` shared with other wheels or lists; None makes one.

    Raises:
        ValueError: tick_ms or wheel_size is out of range.

    Source: org.apache.kafka.server.util.timer.TimingWheel.
    """

    def __cinit__(self, int64_t tick_ms=1, int32_t wheel_size=20, int64_t start_ms=0, TaskCounter counter=None):
        if not 2 <= wheel_size <= 1 << 20:
            raise ValueError(f"wheel_size must be 2 to {1 << 20}, not {wheel_size}")
        if not 1 <= tick_ms <= KW_FOREVER // wheel_size:
            raise ValueError(f"tick_ms must be at least 1 and tick_ms x wheel_size a time, not {tick_ms}")
        if not -KW_FOREVER <= start_ms <= KW_FOREVER:
            raise ValueError(f"start_ms is no time: {start_ms}")
        self.counter = TaskCounter() if counter is None else counter
        if kw_init(&self.wheel, tick_ms, wheel_size, start_ms) < 0:
            raise MemoryError("no memory for a timing wheel")

    # ---- adding ------------------------------------------------------------------------------------------------------------------

    def add(self, TimerTaskEntry entry not None):
        """Takes an entry in; one that is in another list or wheel leaves it.

        Returns:
            False, and the entry is not kept, when its task was cancelled or its time is within the current tick or past.
        """
        if entry.is_cancelled():
            return False
        return self.add_c(entry, True)

    cdef bint add_c(self, TimerTaskEntry entry, bint refuse) except -1:
        """Takes in an entry that is not cancelled; `refuse`: not one that is due already. Whether it was taken."""
        return self.place(entry.task, entry.expiration_ms, refuse)

    cdef bint place(self, TimerTask task, int64_t expiration_ms, bint refuse) except -1:
        """As `add_c`, for the current entry of a task, or one that no caller has asked for yet."""
        cdef int32_t node
        task.unlink()
        node = kw_add(&self.wheel, expiration_ms, <void*>(<size_t><PyObject*>task | AS_TASK), refuse)
        if node == KW_NONE:
            raise MemoryError("no memory for a timer")
        if node < 0:
            return False
        Py_INCREF(task)
        task.owner = <PyObject*>self
        task.node = node
        task.expiration_ms = expiration_ms
        self.counter.value += 1
        return True

    cdef int64_t call_at_c(self, int64_t when_ms, object task) except -1:
        cdef int32_t node = kw_add(&self.wheel, when_ms, <void*>task, 0)
        if node < 0:
            raise MemoryError("no memory for a timer")
        Py_INCREF(task)
        self.counter.value += 1
        return kw_handle(&self.wheel, node)

    def call_at(self, int64_t when_ms, task not None, /):
        """Keeps a callable until a time; one that is due already waits for the next `pop_expired` or `run_expired`.

        Args:
            when_ms: the time, of the clock that drives the wheel.
            task: what to call, without arguments; or a `TimerTask`, whose `run` is called.

        Returns:
            A handle for `cancel`.
        """
        return self.call_at_c(when_ms, task)

    def add_many(self, when_ms, /):
        """Keeps many timers that are nothing but handles; `pop_expired_many` gives them back.

        Args:
            when_ms: int64 array (or what becomes one), a time for each.

        Returns:
            int64 array of handles. The low 32 bits of a handle are the number of its slot: dense, and used again.
        """
        cdef const int64_t[::1] times = np.ascontiguousarray(when_ms, np.int64)
        cdef Py_ssize_t n = times.shape[0], i
        handles = np.empty(n, np.int64)
        cdef int64_t[::1] out = handles
        cdef int32_t node
        if kw_reserve(&self.wheel, n) < 0:
            raise MemoryError(f"no memory for {n} timers")
        for i in range(n):
            node = kw_add(&self.wheel, times[i], NULL, 0)
            if node < 0:
                raise MemoryError(f"no memory for a timer; {i} of {n} were added")
            self.counter.value += 1
            out[i] = kw_handle(&self.wheel, node)
        return handles

    # ---- cancelling --------------------------------------------------------------------------------------------------------------

    cdef bint cancel_c(self, int64_t handle):
        cdef int32_t node = kw_find(&self.wheel, handle)
        if node == KW_NONE:
            return False
        self.drop(node)
        return True

    def cancel(self, int64_t handle, /):
        """Takes a timer out by its handle.

        Returns:
            False when it is not there any more: expired and taken, or cancelled before.
        """
        return self.cancel_c(handle)

    def cancel_many(self, handles, /):
        """Takes many timers out; handles of timers that have ended are skipped.

        Args:
            handles: int64 array, as from `add_many` and `call_at`.

        Returns:
            How many were cancelled.
        """
        cdef const int64_t[::1] given = np.ascontiguousarray(handles, np.int64)
        cdef Py_ssize_t n = given.shape[0], i, cancelled = 0
        cdef int32_t node
        for i in range(n):
            if i + 16 < n:
                kw_prefetch_node(&self.wheel, given[i + 16])
            if i + 8 < n:
                kw_prefetch_neighbours(&self.wheel, given[i + 8])
            node = kw_find(&self.wheel, given[i])
            if node == KW_NONE:
                continue
            if self.wheel.nodes[node].payload == NULL:
                kw_take(&self.wheel, node)
                self.counter.value -= 1
            else:
                self.drop(node)
            cancelled += 1
        return cancelled

    # ---- time --------------------------------------------------------------------------------------------------------------------

    def advance_clock(self, int64_t now_ms, /):
        """Moves the clock without taking anything: what is due waits for the next `pop_expired`. The clock never goes back.

        Args:
            now_ms: the time.
        """
        self.expire(now_ms)

    cdef int expire(self, int64_t now_ms) except -1:
        if kw_expire(&self.wheel, now_ms) < 0:
            raise MemoryError("no memory for another level of a timing wheel")
        return 0

    cdef object next_due(self):
        """Takes the first task or callable that is due; None when there is none."""
        if not self.wheel.due_count[0]:
            return None
        task = self.take(self.wheel.nodes[self.wheel.due[0]].next)
        kw_prefetch_next(&self.wheel, self.wheel.due[0])              # comes while the task runs
        return task

    cdef Py_ssize_t pop_into(self, int64_t now_ms, object ready) except -1:
        """As `pop_expired`, appending to `ready`: a caller that is interrupted here, or right after, finds every task there or in the wheel."""
        cdef Py_ssize_t n = 0
        self.expire(now_ms)
        while self.wheel.due_count[0]:
            task = self.next_due()
            if task is not None:
                ready.append(task)
                n += 1
        return n

    def pop_expired(self, int64_t now_ms, /):
        """Moves the clock to a time and takes the timers that are due: never early, less than a tick late, never a cancelled one.

        Args:
            now_ms: the time; one before the wheel's own changes nothing.

        Returns:
            The tasks and callables, by bucket in the order of time. Bare handles stay for `pop_expired_many`.
        """
        cdef list found = []
        cdef object task
        self.expire(now_ms)
        while self.wheel.due_count[0]:
            task = self.next_due()
            if task is not None:
                found.append(task)
        return found

    def pop_expired_many(self, int64_t now_ms, /):
        """As `pop_expired`, for the timers of `add_many`.

        Returns:
            int64 array of their handles.
        """
        self.expire(now_ms)
        cdef Py_ssize_t n = self.wheel.due_count[1], i = 0
        handles = np.empty(n, np.int64)
        cdef int64_t[::1] out = handles
        cdef int32_t node
        while i < n and self.wheel.due_count[1]:          # making the array may have run a finalizer that cancels
            node = self.wheel.nodes[self.wheel.due[1]].next
            out[i] = kw_handle(&self.wheel, node)
            kw_take(&self.wheel, node)
            kw_prefetch_next(&self.wheel, self.wheel.due[1])
            i += 1
        self.counter.value -= i
        return handles if i == n else handles[:i]

    def run_expired(self, int64_t now_ms, /):
        """As `pop_expired`, and calls them. One that fails is logged and does not stop the others; one cancelled by another is not called.

        At most as many are called as were due at first: the rest waits for the next call, so this ends also when tasks add tasks.

        Returns:
            How many were called.
        """
        cdef Py_ssize_t called = 0
        cdef int64_t left
        self.expire(now_ms)
        left = self.wheel.due_count[0]
        while left > 0 and self.wheel.due_count[0]:
            left -= 1
            task = self.next_due()
            if task is None:
                break
            called += 1
            try:
                if isinstance(task, TimerTask):
                    task.run()
                else:
                    task()
            except Exception:
                log.exception("timer task %r failed", task)
        return called

    def next_deadline_ms(self):
        """When `pop_expired` will find something.

        Returns:
            The time of the next timer; earlier, at the start of its bucket, if that is one of many timers on a coarser level, which move
            down then. None when nothing waits.
        """
        cdef int64_t next = kw_next(&self.wheel)
        return None if next == KW_IDLE else next

    # ---- looking in --------------------------------------------------------------------------------------------------------------

    @property
    def tick_ms(self):
        """Milliseconds of a tick of the first level."""
        return self.wheel.level[0].tick

    @property
    def wheel_size(self):
        """Buckets of a level."""
        return self.wheel.size

    @property
    def start_of_tick_ms(self):
        """The wheel's time: the start of the current tick."""
        return self.wheel.level[0].now

    @property
    def current_time(self):
        """The wheel's time, as `start_of_tick_ms`."""
        return self.wheel.level[0].now

    @property
    def interval(self):
        """Milliseconds that the first level covers: tick_ms x wheel_size."""
        return self.wheel.level[0].interval

    @property
    def start_ms(self):
        """The time it was made with."""
        return self.wheel.level[0].start

    @property
    def task_counter(self):
        """The `TaskCounter` of all levels."""
        return self.counter

    @property
    def buckets(self):
        """The buckets of the first level, a `TimerTaskListView` each; what has become due is in none of them."""
        return buckets_of(self, 0)

    @property
    def overflow_wheel(self):
        """The next level as an `OverflowWheel`; None while no timer has needed it."""
        return overflow_of(self, 1)

    @property
    def queue(self):
        """The delay queue of all levels: the buckets that wait to be due, a `TimerTaskListView` each, the next one first."""
        return queue_of(self)

    def add_overflow_wheel(self):
        """Makes the next level, as the first timer that needs it would; nothing where there is one."""
        add_overflow(self, 1)

    @property
    def levels(self):
        """(tick, interval, start of the current tick) in milliseconds of each level there is."""
        return [(self.wheel.level[l].tick, self.wheel.level[l].interval, self.wheel.level[l].now) for l in range(self.wheel.levels)]

    def position(self, timer, /):
        """Where a timer stands.

        Args:
            timer: an entry, or a handle.

        Returns:
            (level from 1, slot from 0); None when its tick has started or it is not here.
        """
        cdef int32_t node = KW_NONE, at, l
        if isinstance(timer, TimerTaskEntry):
            if not (<TimerTaskEntry>timer).is_cancelled() and (<TimerTaskEntry>timer).task.owner == <PyObject*>self:
                node = (<TimerTaskEntry>timer).task.node
        else:
            node = kw_find(&self.wheel, timer)
        if node == KW_NONE:
            return None
        at = node
        while self.wheel.nodes[at].state != KW_SENTINEL:
            at = self.wheel.nodes[at].next
        for l in range(self.wheel.levels):
            if 0 <= at - self.wheel.level[l].first < self.wheel.size:
                return l + 1, at - self.wheel.level[l].first
        return None

    def __repr__(self):
        return f"TimingWheel({self.wheel.level[0].tick} ms x {self.wheel.size}, {self.wheel.levels} levels, {self.wheel.count} timers)"


cdef int traverse_payloads(PyObject* store, visitproc visit, void* arg) noexcept:
    cdef kw_wheel* wheel = &(<TaskStore>store).wheel
    cdef int32_t i
    cdef int answer
    for i in range(wheel.used):
        if (wheel.nodes[i].state == KW_LINKED or wheel.nodes[i].state == KW_DUE) and wheel.nodes[i].payload != NULL:
            answer = visit(payload_object(wheel.nodes[i].payload), arg)
            if answer:
                return answer
    return 0


# Cython's own tp_traverse sees the object attributes of a class; the payloads are added in front.
cdef traverseproc wheel_traverse_attributes = (<PyTypeObject*>TimingWheel).tp_traverse


cdef int wheel_traverse(PyObject* self, visitproc visit, void* arg) noexcept:
    cdef int answer = traverse_payloads(self, visit, arg)
    return answer if answer else wheel_traverse_attributes(self, visit, arg)


cdef int store_clear(PyObject* self) noexcept:
    (<TaskStore>self).drop_all()
    return 0


(<PyTypeObject*>TimingWheel).tp_traverse = <traverseproc>wheel_traverse
(<PyTypeObject*>TimingWheel).tp_clear = <inquiry>store_clear
