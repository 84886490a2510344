# Delayed operations and their watchers; the part of SystemTimer that every add goes through.
#
# Who may run what at the same time
#   Each operation has a lock of its own, reentrant. try_complete, on_complete, on_expiration and run are called with it held, so they never
#   overlap for one operation; different operations run freely side by side. No thread holds anything else while calling them, so they may add
#   to a purgatory, check keys and complete other operations. Two operations that complete each other from two threads can deadlock, as any
#   two locks can: check_and_complete is for callers that hold no operation's lock, or complete in one order.
#   The lock is two integers that change between two bytecodes; a real lock is made only when a thread has to wait.
#
# Why no completion is lost
#   try_complete_else_watch tries, watches every key, and tries again, all under the operation's lock. An event before the watch is seen by
#   the second try; one after it finds the operation in its watchers and waits for the lock. The timer comes last: an operation that
#   completed in between is taken out of it at once.
#   A list of watchers that ran empty is marked dead in the same step that saw it empty, and no thread adds to a dead one.
#   Objects first: making one may run the garbage collector (inside the allocation, up to Python 3.11), and a finalizer may use the same
#   purgatory. What a step replaces is therefore read after the object that takes its place was made.
#
# How long a complete operation is kept
#   An operation has one place per key. A completion does not look for the places: that would cost a walk of each key's list. It counts them
#   as stale instead, and a purge takes out all stale places at once. A purge walks every list, so it is due when more than
#   `purge_interval` places are stale and more than the half of all: each stale place pays for at most one open one that is walked.
#   The counts change together with the lists, with no bytecode in between.
#
# Source: org.apache.kafka.server.purgatory.DelayedOperation and DelayedOperationPurgatory; KAFKA-6653, KAFKA-8334, KAFKA-19312.
from cpython.dict cimport PyDict_GetItemWithError
from cpython.pythread cimport PyThread_get_thread_ident


import threading

cdef extern from *:
    """
    #include <time.h>
    #ifdef __linux__
    /* What time.monotonic_ns() reads, without the call. */
    #define KW_READS_CLOCK 1
    static int64_t kw_monotonic_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    #else
    #define KW_READS_CLOCK 0
    #define kw_monotonic_ms() 0
    #endif
    """
    const bint KW_READS_CLOCK
    int64_t kw_monotonic_ms()


# ---- the lock ------------------------------------------------------------------------------------------------------------------------

cdef object new_lock = threading.Lock


cdef struct Lock:
    unsigned long holder                                  # thread that has it, 0 = none
    int depth
    int waiting
    bint gate_open


cdef inline bint try_lock(Lock* lock) noexcept:
    cdef unsigned long me = <unsigned long>PyThread_get_thread_ident()
    if lock.holder != 0 and lock.holder != me:
        return False
    lock.holder = me
    lock.depth += 1
    return True


cdef object new_gate():
    """A real lock, closed, to be kept beside a Lock by the first who has to wait for it."""
    gate = new_lock()
    gate.acquire()
    return gate


cdef int wait_for_lock(Lock* lock, object gate) except -1:
    """Takes a lock that another thread has."""
    while not try_lock(lock):
        lock.waiting += 1
        try:
            gate.acquire()                                # opened by the thread that releases while another waits
            lock.gate_open = False
        finally:
            lock.waiting -= 1
    return 0


cdef inline int unlock(Lock* lock, object gate) except -1:
    lock.depth -= 1
    if lock.depth == 0:
        lock.holder = 0
        if lock.waiting and not lock.gate_open:
            lock.gate_open = True
            gate.release()
    return 0


# ---- the timer -----------------------------------------------------------------------------------------------------------------------


@cython.no_gc_clear                                       # its wheel must outlive whatever is called while a cycle is taken apart
cdef class TimerCore:
    """The compiled base of SystemTimer and LoopTimer: a wheel, a clock, and when the thread that waits on it will look again by itself.

    Attributes:
        wheel: the `TimingWheel`.
    """
    cdef readonly TimingWheel wheel
    cdef object now_ms
    cdef bint monotonic
    cdef bint keeps_due
    cdef public int64_t asleep_until_ms                   # -KW_FOREVER: no thread sleeps
    cdef object __weakref__

    def __cinit__(self, *args, **kwargs):
        self.asleep_until_ms = -KW_FOREVER

    def _setup(self, TimingWheel wheel not None, now_ms, *, bint monotonic, bint keeps_due):
        """Takes the wheel and the function that tells the time.

        Args:
            wheel: to be told the time.
            now_ms: milliseconds.
            monotonic: this is SystemClock's, and may be read without a call.
            keeps_due: a task that is due when added goes into the wheel, too, instead of to `_due`.
        """
        self.wheel = wheel
        self.now_ms = now_ms
        self.monotonic = monotonic and KW_READS_CLOCK
        self.keeps_due = keeps_due

    cdef int check(self) except -1:
        if self.wheel is None:
            raise TypeError(f"{type(self).__name__}.__init__() was not called")
        return 0

    cdef int schedule(self, TimerTask task) except -1:
        cdef int64_t expiration_ms
        self.check()
        expiration_ms = (kw_monotonic_ms() if self.monotonic else <int64_t>self.now_ms()) + task.delay
        task.leave()
        if task.delay <= 0 and not self.keeps_due:
            self._due(task)
            return 0
        self.wheel.place(task, expiration_ms, False)
        if expiration_ms < self.asleep_until_ms:
            self._wake()
        return 0

    def add(self, TimerTask task not None):
        """Runs a task after its delay; one that was added before starts again. Any thread may call this.

        Args:
            task: to be run; at once when its delay is not above zero.
        """
        self.schedule(task)

    def _pop_into(self, int64_t now_ms, ready not None):
        """Moves the wheel to a time and appends the tasks that are due to `ready`, a deque; how many."""
        self.check()
        return self.wheel.pop_into(now_ms, ready)


cdef class DelayedOperation(TimerTask):
    """Work that waits for a condition, at most `delay_ms` long. Subclasses define `try_complete` and `on_complete`.

    Args:
        delay_ms: milliseconds until it expires.

    `on_complete` runs exactly once, whichever thread completes the operation; `on_expiration` after it when time was up. None of the methods runs
    for one operation in two threads at a time.

    Source: org.apache.kafka.server.purgatory.DelayedOperation (4.1).
    """
    cdef bint completed
    cdef Lock lock
    cdef object gate
    cdef PurgatoryCore home                               # where it is watched, until it is complete
    cdef Py_ssize_t places                                # in the lists of `home`; 0 once they count as stale

    def __init__(self, delay_ms):
        self.delay = clamp_ms(delay_ms)

    cdef int acquire(self) except -1:
        if not try_lock(&self.lock):
            if self.gate is None:
                gate = new_gate()
                if self.gate is None:                     # making a lock may have let another thread run
                    self.gate = gate
            wait_for_lock(&self.lock, self.gate)
        return 0

    cdef int release(self) except -1:
        cdef PurgatoryCore home
        unlock(&self.lock, self.gate)
        if self.completed and self.lock.depth == 0 and self.home is not None:
            home, self.home = self.home, None
            home.look_for_purge()
        return 0

    # ---- for subclasses ----------------------------------------------------------------------------------------------------------

    def try_complete(self):
        """Looks whether the condition holds and, if so, returns `self.force_complete()`; else False. Called with the lock held."""
        raise TypeError(f"{type(self).__name__} has no try_complete()")

    def on_complete(self):
        """What completing means. Called once, with the lock held."""
        raise TypeError(f"{type(self).__name__} has no on_complete()")

    def on_expiration(self):
        """Called after `on_complete` when it was the time that completed the operation."""

    # ---- for all threads ----------------------------------------------------------------------------------------------------------

    cpdef force_complete(self):
        """Completes the operation unless it is complete: takes it out of the timer and calls `on_complete`.

        Returns:
            Whether this call completed it.
        """
        self.acquire()
        try:
            if self.completed:
                return False
            self.completed = True
            if self.home is not None:
                self.home.stale_places += self.places
                self.places = 0
            self.leave()
            self.on_complete()
            return True
        finally:
            self.release()

    def is_completed(self):
        """Whether it is complete, or is being completed."""
        return self.completed

    cpdef safe_try_complete(self):
        """`try_complete` under the lock; False when it is complete already."""
        self.acquire()
        try:
            return False if self.completed else bool(self.try_complete())
        finally:
            self.release()

    def safe_try_complete_or_else(self, action):
        """Tries; if that fails, runs `action()` and tries again, all under the lock.

        Returns:
            Whether one of the tries completed it.
        """
        self.acquire()
        try:
            if self.completed:
                return False
            if self.try_complete():
                return True
            action()
            return False if self.completed else bool(self.try_complete())
        finally:
            self.release()

    def run(self):
        """Expires: called by the timer."""
        self.acquire()
        try:
            if self.force_complete():
                self.on_expiration()
        finally:
            self.release()

    def __repr__(self):
        return f"<{type(self).__name__} delay_ms={self.delay}{' completed' if self.completed else ''}>"


@cython.final
cdef class Watchers:
    """The operations that wait for one key. Those that are complete stay until a look, or the purge."""
    cdef list operations
    cdef bint dead                                        # it is out of the purgatory, or about to be

    def __cinit__(self):
        self.operations = []

    cdef list open_ones(self):
        """Puts the open ones in place of all.

        Returns:
            All that were there: the caller lets them go, when nothing is under way any more.
        """
        cdef list before, still = []                      # first: making one may collect, and so run what changes `operations`
        before = self.operations
        for operation in before:
            if not (<DelayedOperation>operation).completed:
                still.append(operation)
        self.operations = still
        return before


cdef class PurgatoryCore:
    """The compiled base of DelayedOperationPurgatory: keys, watchers, and the two calls that every operation goes through."""
    cdef dict by_key
    cdef Lock structure                                   # taken to add and to drop keys; hashing one may come back here
    cdef object structure_gate
    cdef object timer
    cdef TimerCore core
    cdef readonly Py_ssize_t places                       # in all lists
    cdef readonly Py_ssize_t stale_places                 # of complete operations
    cdef readonly Py_ssize_t completed_by_events
    cdef Py_ssize_t purge_above
    cdef bint purge_asked
    cdef object __weakref__

    def __cinit__(self, *args, **kwargs):
        self.by_key = {}

    def _setup(self, timer, Py_ssize_t purge_above):
        """Takes the timer, a SystemTimer or anything with its `add`; `_purge_is_due` is called when more places are stale."""
        self.timer = timer
        self.purge_above = purge_above
        self.core = timer if isinstance(timer, TimerCore) and type(timer).add is TimerCore.add else None

    cdef int watch(self, key, DelayedOperation operation) except -1:
        cdef PyObject* found = PyDict_GetItemWithError(self.by_key, key)
        cdef Watchers watchers, fresh
        if found != NULL and not (<Watchers>found).dead:
            (<Watchers>found).operations.append(operation)
            self.count_place(operation)
            return 0
        fresh = Watchers.__new__(Watchers)                # before the look: this thread's finalizers pass the lock
        self.lock_structure()
        try:
            watchers = self.by_key.get(key)
            if watchers is None or watchers.dead:
                watchers = self.by_key[key] = fresh
            watchers.operations.append(operation)
            self.count_place(operation)
        finally:
            unlock(&self.structure, self.structure_gate)
        return 0

    cdef void count_place(self, DelayedOperation operation) noexcept:
        self.places += 1
        if operation.completed:                           # by the hash of its key
            self.stale_places += 1
        elif operation.home is self:
            operation.places += 1

    cdef void uncount_places(self, Py_ssize_t places, Py_ssize_t stale) noexcept:
        self.places -= places
        self.stale_places -= min(stale, self.stale_places)

    cdef bint has_stale_places(self, Py_ssize_t above) noexcept:
        return self.stale_places > above and self.stale_places > self.places - self.stale_places

    cdef int look_for_purge(self) except -1:
        if not self.purge_asked and self.has_stale_places(self.purge_above):
            self.purge_asked = True
            self._purge_is_due()
        return 0

    cdef list take_stale(self, Watchers watchers):
        """Takes complete operations out of a list; returns all that were there, to be let go by the caller."""
        cdef list before = watchers.open_ones()
        cdef Py_ssize_t freed = len(before) - len(watchers.operations)
        self.uncount_places(freed, freed)
        return before

    cdef int drop_if_empty(self, key, Watchers watchers) except -1:
        if watchers.operations or watchers.dead:
            return 0
        watchers.dead = True
        self.lock_structure()
        try:
            if self.by_key.get(key) is watchers:
                del self.by_key[key]
        finally:
            unlock(&self.structure, self.structure_gate)
        return 0

    cdef int lock_structure(self) except -1:
        if not try_lock(&self.structure):
            if self.structure_gate is None:
                gate = new_gate()
                if self.structure_gate is None:
                    self.structure_gate = gate
            wait_for_lock(&self.structure, self.structure_gate)
        return 0

    def try_complete_else_watch(self, DelayedOperation operation not None, keys):
        """Completes an operation if it can be; else it waits under its keys until an event or the time completes it.

        Args:
            operation: not watched before.
            keys: hashables; at least one.

        Returns:
            Whether it was complete on return by this call.

        Raises:
            ValueError: there are no keys.
        """
        if not keys:
            raise ValueError("an operation needs at least one key to be watched by")
        operation.acquire()
        try:
            if operation.completed:
                return False
            if operation.try_complete():
                return True
            if operation.home is None:
                operation.home = self
            for key in keys:
                if operation.completed:
                    break
                self.watch(key, operation)
            if not operation.completed and operation.try_complete():
                return True
        finally:
            operation.release()
        if not operation.completed:
            if self.core is None:
                self.timer.add(operation)
            else:
                self.core.schedule(operation)
            if operation.completed:
                operation.leave()
        return False

    def check_and_complete(self, key):
        """An event happened: tries every operation that waits for a key.

        Returns:
            How many this call completed.
        """
        cdef PyObject* found = PyDict_GetItemWithError(self.by_key, key)
        cdef Watchers watchers
        cdef DelayedOperation operation
        cdef Py_ssize_t count = 0, i
        cdef bint stale = False
        cdef list operations
        if found == NULL:
            return 0
        watchers = <Watchers>found
        operations = watchers.operations                  # other threads may append, none takes out: lists are replaced
        for i in range(len(operations)):
            operation = operations[i]
            if operation.completed:
                stale = True
            elif operation.safe_try_complete():
                count += 1
                stale = True
        if stale:
            before = self.take_stale(watchers)
        self.drop_if_empty(key, watchers)
        self.completed_by_events += count
        return count

    def cancel_for_key(self, key):
        """Takes all operations of a key out, also of the timer, without completing them.

        Returns:
            The operations that were open.
        """
        cdef list cancelled, none_left = []
        cdef Py_ssize_t stale
        cdef PyObject* found = PyDict_GetItemWithError(self.by_key, key)
        cdef Watchers watchers
        cdef DelayedOperation operation
        if found == NULL:
            return none_left
        watchers = <Watchers>found
        cancelled = watchers.operations
        watchers.operations = none_left
        stale = 0
        for operation in cancelled:
            if operation.completed:
                stale += 1
            elif operation.home is self:
                operation.places -= 1
        self.uncount_places(len(cancelled), stale)
        self.drop_if_empty(key, watchers)
        for operation in cancelled:
            operation.leave()
        return [operation for operation in cancelled if not (<DelayedOperation>operation).completed]

    def cancel_all(self):
        """`cancel_for_key` for every key.

        Returns:
            The operations that were open, each once.
        """
        return list(dict.fromkeys([operation for key in list(self.by_key) for operation in self.cancel_for_key(key)]))

    def watched(self):
        """Operations watched, once per key; complete ones count until they are purged."""
        return sum([len((<Watchers>watchers).operations) for watchers in list(self.by_key.values())])

    def key_count(self):
        """Keys with operations under them."""
        return len(self.by_key)

    def purge_completed(self):
        """Takes complete operations out of all watchers.

        Returns:
            How many places that freed.
        """
        cdef Py_ssize_t freed = 0
        cdef Watchers watchers
        cdef list before
        for key in list(self.by_key):                     # not items(): their tuples may collect, and so run what changes the dict
            watchers = self.by_key.get(key)
            if watchers is not None:
                before = self.take_stale(watchers)
                freed += len(before) - len(watchers.operations)
                self.drop_if_empty(key, watchers)
        return freed

    def _takes_purge(self, Py_ssize_t above):
        """Whether a purge is due, with more than so many stale places; the caller then does it."""
        if not self.has_stale_places(above):
            return False
        self.purge_asked = False
        return True
