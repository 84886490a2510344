# What becomes of a record: Delivery, shared by the records of a batch, and RecordFuture, one record's view of it. The rules are told in append.pxi.

import logging as _logging
from functools import partial as _partial

cdef extern from "Python.h":
    void delivery_track "PyObject_GC_Track"(PyObject*)
    void delivery_untrack "PyObject_GC_UnTrack"(PyObject*)
    bint delivery_is_tracked "PyObject_GC_IsTracked"(PyObject*)
    object delivery_context "PyContext_CopyCurrent"()
    int delivery_enter "PyContext_Enter"(object) except -1
    int delivery_exit "PyContext_Exit"(object) except -1

cdef enum:
    DELIVERY_PENDING = 0
    DELIVERY_RESOLVED = 1
    DELIVERY_FINISHED = 2
    FAILURES_KEPT = 16
    FINISHED_PER_TURN = 256                            # waiting tasks that an event loop goes on with before others have a turn
    FINISHED_PER_LOOK = 16                             # of these, between two looks at the loop's time

cdef double FINISHING_S = 0.01                         # a turn ends after this: what the tasks do next may take long

_append_log = _logging.getLogger("kafkacore.producer")
_record_metadata = None                                # types.RecordMetadata, set by producer/__init__ (the extension imports nothing above it)
cdef PlanType* _record_metadata_type = NULL
_usage_error = RuntimeError


def _bind_producer_types(record_metadata, usage_error):
    """Gives the append path the value classes it makes; called once by kafkacore.producer."""
    global _record_metadata, _record_metadata_type, _usage_error
    if not issubclass(record_metadata, tuple) or len(record_metadata._fields) != 6:
        raise TypeError(f"{record_metadata!r} is not the tuple of six that make_metadata fills")
    _record_metadata = record_metadata                 # kept alive here
    _record_metadata_type = <PlanType*><PyObject*> record_metadata
    _usage_error = usage_error


cdef extern from "Python.h":
    bint order_is_method "PyMethod_Check"(PyObject*)
    PyObject* order_function "PyMethod_GET_FUNCTION"(PyObject*)
    bint order_is_function "PyFunction_Check"(PyObject*)
    PyObject* order_code "PyFunction_GET_CODE"(PyObject*)
    PyObject* order_type "(PyObject *)Py_TYPE"(PyObject*)

cdef enum:
    ORDERS_KEPT = 64

cdef dict _orders = {}                                 # what was looked at, by address (and bound arguments); kept alive
cdef Py_ssize_t _last_order = 0                        # the last of them: the same callback comes with every record


cdef int check_order(on_delivery) except -1:
    """Refuses a callback whose parameters are named in confluent-kafka's order. Looks at each piece of code once, since lambdas, methods and
    partials are made again for every record; objects with a __call__ are known by their class."""
    global _last_order
    cdef PyObject* what = <PyObject*> on_delivery
    cdef Py_ssize_t number, bound = 0
    if type(on_delivery) is _partial:
        called, bound = on_delivery.func, min(len(on_delivery.args), 7)
        what = <PyObject*> called
    if order_is_method(what):
        what = order_function(what)
    if order_is_function(what):
        what = order_code(what)
    else:
        what = order_type(what)
    number = <Py_ssize_t> what + bound
    if number == _last_order:
        return 0
    if number not in _orders:
        from kafkacore.elsewhere import check_delivery_order
        check_delivery_order(on_delivery)
        if len(_orders) >= ORDERS_KEPT:
            _last_order = 0
            _orders.clear()
        _orders[number] = <object> what
    _last_order = number
    return 0


def check_delivery_callback(on_delivery):
    """Refuses what `send` refuses as on_delivery.

    Raises:
        UsageError: its parameters are named in confluent-kafka's order.
    """
    if on_delivery is not None:
        check_order(on_delivery)


@cython.final
cdef class Delivery:
    """The fate of one batch of records, shared by the futures of its records."""

    cdef readonly PartitionQueue queue        # None: not of records, but of a step of a transaction
    cdef readonly object driver
    cdef readonly int state
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly object error
    cdef readonly dict record_errors
    cdef readonly list parts                  # [(first index, Delivery)] after a split
    cdef list failures                        # why tries failed, the newest few, oldest first
    cdef readonly int32_t count               # records, once the batch is closed
    cdef readonly int32_t looked_at           # records whose outcome somebody asked for
    cdef int32_t parts_left
    cdef Delivery parent
    cdef list callbacks                       # flat: future, fn, future, fn
    cdef list done_callbacks
    cdef object reports                       # those of its records that are served later, see reports.pxi
    cdef list waiters                         # locks to release
    cdef dict loops                           # event loop -> [(RecordFuture, fn, context) to call there], {future or AwaitedDelivery: None}
    cdef int64_t many_token                   # the send_many call that numbered this delivery last, and the number it gave
    cdef int32_t many_slot

    def __cinit__(self, PartitionQueue queue, driver):
        delivery_untrack(<PyObject*> self)
        self.queue = queue
        self.driver = driver
        self.base_offset = -1
        self.log_append_time_ms = -1

    cdef void track(self) noexcept:
        """Shows it to the collector, from which a new one is hidden: there may be thousands at a time, and until an error's traceback may
        lead back here, its only cycles are those that the outcome ends."""
        if not delivery_is_tracked(<PyObject*> self):
            delivery_track(<PyObject*> self)

    @property
    def topic(self):
        return None if self.queue is None else self.queue.topic

    @property
    def partition(self):
        return None if self.queue is None else self.queue.index

    @property
    def resolved(self):
        """True once the outcome is known (callbacks may still be running)."""
        return self.state >= DELIVERY_RESOLVED

    @property
    def finished(self):
        """True once the outcome is known and every callback has run."""
        return self.state == DELIVERY_FINISHED

    @property
    def unobserved(self):
        """How many failed records nobody asked about (each record looked at is taken to be a failed one)."""
        return max(0, self.failed - self.looked_at)

    @property
    def failed(self):
        """How many of the batch's records failed."""
        if self.parts is not None:
            return sum(part.failed for _, part in self.parts)
        if self.error is not None:
            return self.count
        return len(self.record_errors) if self.record_errors else 0

    @property
    def root(self):
        """The delivery the futures hold: itself, or that of the batch it was split from."""
        cdef Delivery d = self
        while d.parent is not None:
            d = d.parent
        return d

    def tried(self, error not None):
        """Notes why a try failed that is made again."""
        self.track()
        if self.failures is None:
            self.failures = []
        self.failures.append(error)
        if len(self.failures) > FAILURES_KEPT:
            del self.failures[0]

    def attempts(self):
        """Why tries have failed so far, those of its parts too."""
        found = [] if self.failures is None else list(self.failures)
        for _, part in self.parts or ():
            found += part.attempts()
        return found

    cdef inline bint plain(self) noexcept:
        """True when all records share the fate this object tells, and it is not an error."""
        return self.error is None and self.record_errors is None and self.parts is None

    def first_error(self):
        """The error of the first failed record, or None."""
        if self.parts is not None:
            return next((e for e in (part.first_error() for _, part in self.parts) if e is not None), None)
        return self.record_errors[min(self.record_errors)] if self.record_errors else self.error

    def add_waiter(self, lock):
        """Has `lock` released at resolution; returns False (and keeps nothing) if that has passed."""
        cdef list fresh = []                   # made first: an allocation between the check and the append could let _publish in
        if self.state == DELIVERY_FINISHED:
            return False
        if self.waiters is None:
            self.waiters = fresh
        self.waiters.append(lock)
        return True

    def remove_waiter(self, lock):
        if self.waiters is not None and lock in self.waiters:
            self.waiters.remove(lock)

    def resolve(self, int64_t base_offset, int64_t log_append_time_ms, error, dict record_errors=None):
        """Publishes the outcome, runs the callbacks, wakes the waiters.

        Args:
            base_offset: offset of the batch's first record, -1 when unknown.
            log_append_time_ms: the broker's time stamp, -1 when the records keep their own.
            error: a KafkaError for the whole batch, or None.
            record_errors: {index: KafkaError} of the records the broker named; `error` is for the others then.

        Returns:
            False when the outcome was already published (nothing changes then).
        """
        if self.state != DELIVERY_PENDING:
            return False
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.record_errors = record_errors
        if error is not None:
            self.track()
        self._publish()
        return True

    def split_into(self, list parts):
        """Hands the records over to the deliveries of smaller batches: [(first index, Delivery)] in order."""
        cdef Delivery part
        self.track()
        self.parts = parts
        self.parts_left = <int32_t> len(parts)
        for _, part in parts:
            part.parent = self

    cdef _publish(self):
        # Nothing that user code raises may keep the waiters waiting: it is logged, and only Ctrl+C goes on, when all is done.
        cdef Py_ssize_t i
        interrupt = None
        self.state = DELIVERY_RESOLVED
        driver, self.driver = self.driver, None
        callbacks, self.callbacks = self.callbacks, None
        if callbacks is not None:
            interrupt = self._call_on_delivery(callbacks)
        done_callbacks, self.done_callbacks = self.done_callbacks, None
        if done_callbacks is not None:
            for i in range(0, len(done_callbacks), 2):
                interrupt = self._call_done(done_callbacks[i], done_callbacks[i + 1]) or interrupt
        self.state = DELIVERY_FINISHED
        waiters, self.waiters = self.waiters, None
        if waiters is not None:
            for lock in waiters:
                _release_quietly(lock)
        loops, self.loops = self.loops, None
        if loops is not None:
            for loop, waiting in loops.items():
                items = (<list> (<tuple> waiting)[0]) + list(<dict> (<tuple> waiting)[1])
                try:
                    if not isinstance(driver, SenderCore) or not (<SenderCore> driver).finishes(loop, items):
                        loop.call_soon_threadsafe(finish_on_loop, loop, items)
                except RuntimeError:                       # the loop was closed: nobody can be waiting on it
                    _append_log.debug("event loop closed before the delivery of %s-%s", self.topic, self.partition)  # None for what is no batch
                except KeyboardInterrupt as stop:
                    interrupt = stop
        parent, self.parent = self.parent, None
        if parent is not None:
            (<Delivery> parent)._part_done()
        if interrupt is not None:
            raise interrupt

    cdef _part_done(self):
        self.parts_left -= 1
        if self.parts_left == 0 and self.state == DELIVERY_PENDING:
            self._publish()

    cdef _call_on_delivery(self, list callbacks):
        cdef Py_ssize_t i
        cdef RecordFuture future
        interrupt = None
        for i in range(0, len(callbacks), 2):
            future = <RecordFuture> callbacks[i]
            fn = callbacks[i + 1]
            try:
                if self.plain():
                    fn(make_metadata(self, future, future.index), None)
                    continue
                error = future_error(future)
                fn(None if error is not None else future_metadata(future), error)
            except KeyboardInterrupt as stop:
                interrupt = stop
            except BaseException:
                _append_log.exception("on_delivery(metadata, error) failed for a record of %s-%d", self.queue.topic, self.queue.index)
        return interrupt

    cdef _call_done(self, future, fn):
        try:
            fn(future)
        except KeyboardInterrupt as stop:
            return stop
        except BaseException:
            _append_log.exception("done callback failed for a record of %s-%s", self.topic, self.partition)

    def add_done_callback(self, future, fn):
        """Runs fn(future) at resolution, or at once when that has passed."""
        cdef list fresh = []
        self._check_process()
        if self.state != DELIVERY_PENDING:
            interrupt = self._call_done(future, fn)
            if interrupt is not None:
                raise interrupt
            return
        if self.done_callbacks is None:
            self.done_callbacks = fresh
        self.done_callbacks.append(future)
        self.done_callbacks.append(fn)

    cdef _check_process(self):
        """In a forked child nobody would bring the outcome."""
        driver = self.driver
        if isinstance(driver, SenderCore) and (<SenderCore> driver).pid != c_getpid():
            raise ForkedClientError("this future belongs to a producer of the parent process")

    def loop_future(self, loop):
        """A future of `loop` that is resolved with all the others of this delivery by one call of the loop."""
        future = loop.create_future()
        if not self.wait_on_loop(loop, future):
            future.set_result(None)
        return future

    cdef bint wait_on_loop(self, loop, waits) except -1:
        """Has an event loop end the wait of a future or an AwaitedDelivery; False when there is nothing to wait for."""
        cdef SenderCore sender
        self._check_process()
        driver = self.driver
        if isinstance(driver, SenderCore):
            sender = <SenderCore> driver
            if sender.awaited is not None and sender.pass_asked is not loop:
                sender.awaited(loop)                           # first: between the next look and the append nothing may let _publish in
        return self.add_on_loop(loop, None, waits)

    cpdef int forget(self, loop, waits) except -1:
        """Nothing waits any more: the task was cancelled, or its time is over.

        Args:
            loop: its event loop.
            waits: a future of `loop_future`, or an AwaitedDelivery.
        """
        loops = self.loops
        if loops is not None and (waiting := loops.get(loop)) is not None:
            (<dict> (<tuple> waiting)[1]).pop(waits, None)
        return 0

    cdef bint add_on_loop(self, loop, tuple call, waits) except -1:
        cdef dict fresh = {} if self.loops is None else None
        cdef tuple waiting = ([], {})
        if self.state == DELIVERY_FINISHED:
            return False
        if self.loops is None:
            self.loops = fresh
        waiting = self.loops.setdefault(loop, waiting)
        if call is None:
            (<dict> waiting[1])[waits] = None
        else:
            (<list> waiting[0]).append(call)
        return True

    cdef bint call_on_loop(self, loop, tuple call) except -1:
        """Has a callback called by an event loop, with all others of this delivery by one call of the loop: (RecordFuture, fn, context)."""
        self._check_process()
        return self.add_on_loop(loop, call, None)

    def observe(self, int32_t records):
        """Counts records whose outcome somebody will look at."""
        self.looked_at += records


def finish_on_loop(loop, list items, Py_ssize_t at=0):
    """What an event loop does when a delivery is finished; not within a task.

    Args:
        loop: it.
        items: futures, AwaitedDelivery objects and (RecordFuture, fn, context); from number `at` on.
    """
    cdef Py_ssize_t begin = at, end = min(len(items), at + FINISHED_PER_TURN)
    cdef double until_s = 0.0
    if end - begin > FINISHED_PER_LOOK:
        until_s = loop.time() + FINISHING_S
    try:
        while at < end:
            if at - begin and (at - begin) % FINISHED_PER_LOOK == 0 and loop.time() >= until_s:
                break
            item = items[at]
            at += 1
            if type(item) is AwaitedDelivery:
                (<AwaitedDelivery> item).wake()
            elif type(item) is tuple:
                _call_on_delivery(<RecordFuture> (<tuple> item)[0], (<tuple> item)[1], (<tuple> item)[2])
            elif not item.done():
                item.set_result(None)
    finally:
        if at < len(items):                                # others have a turn; and what an interrupt leaves goes on
            loop.call_soon(finish_on_loop, loop, items, at)


cdef _call_on_delivery(RecordFuture future, fn, context):
    delivery_enter(context)
    try:
        error = future_error(future)
        fn(None if error is not None else future_metadata(future), error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        _append_log.exception("on_delivery(metadata, error) failed for a record of %s-%d", future.delivery.queue.topic, future.delivery.queue.index)
    finally:
        delivery_exit(context)


def on_delivery_in_loop(RecordFuture future not None, loop, fn):
    """Has an event loop call fn(metadata, error) when a record's outcome is known; with it, its outcome counts as looked at.

    Args:
        future: of the record.
        loop: an asyncio event loop; the call comes from its thread.
        fn: the callback; it sees the context variables of the caller of this function. All callbacks of a batch come with one wake-up of the
            loop.
    """
    cdef tuple call = (future, fn, delivery_context())
    future_look(future)
    if not future.delivery.call_on_loop(loop, call):
        loop.call_soon_threadsafe(finish_on_loop, loop, [call])


cdef _release_quietly(lock):
    try:
        lock.release()
    except RuntimeError:                                   # released twice: the waiter is awake, which is all that matters
        pass


@cython.no_gc
@cython.freelist(256)
cdef class RecordFuture:
    """One record's place in a batch: asks the batch's Delivery. Made by send() only."""

    cdef Delivery delivery
    cdef int64_t own_timestamp_ms
    cdef int32_t index
    cdef int32_t key_size
    cdef int32_t value_size
    cdef bint looked_at
    cdef object __weakref__

    def result(self, timeout=None):
        """Waits for the record's outcome, driving the I/O itself when the Sender is idle.

        Args:
            timeout: seconds, None = no limit.

        Returns:
            RecordMetadata (offset -1 with acks=0).

        Raises:
            KafkaTimeoutError: not known within `timeout`; the record is still on its way.
            KafkaError: the record failed; the cause.
        """
        future_look(self)
        future_wait(self, timeout)
        error = future_error(self)
        if error is not None:
            raise error.with_traceback(None)   # it is that of all records of the batch: each raise would add to the traceback of the others
        return future_metadata(self)

    def get(self, timeout=None):
        """The same as result()."""
        return self.result(timeout)

    def exception(self, timeout=None):
        """Waits like result() and returns the record's error, or None."""
        future_look(self)
        future_wait(self, timeout)
        return future_error(self)

    def done(self):
        """True once the outcome is known."""
        return self.delivery.state != DELIVERY_PENDING

    def add_done_callback(self, fn):
        """Runs fn(future) on the thread that drives the I/O when the outcome is known, or at once when it already is."""
        future_look(self)
        self.delivery.add_done_callback(self, fn)

    def __await__(self):
        future_look(self)
        return awaited_delivery(self)

    @property
    def log_append_time_ms(self):
        """The broker's time stamp where the topic stamps records on append; -1 where records keep their own, or nothing is known yet."""
        cdef int32_t i = self.index
        return leaf_of(self.delivery, &i).log_append_time_ms

    def __repr__(self):
        state = "pending" if self.delivery.state == DELIVERY_PENDING else repr(future_error(self) or future_metadata(self))
        return f"<RecordFuture {self.delivery.queue.topic}-{self.delivery.queue.index}[{self.index}] {state}>"

# Functions, not methods: a method table would cost every future eight bytes.

cdef inline void future_look(RecordFuture f) noexcept:
    if not f.looked_at:
        f.looked_at = True
        f.delivery.looked_at += 1


cdef Delivery leaf_of(Delivery d, int32_t *index):
    """The delivery that tells a record's fate, and its number there: after splits not the one it began with."""
    cdef Delivery part
    cdef int32_t first
    while d.parts is not None:
        for first, part in reversed(d.parts):
            if index[0] >= first:
                index[0] -= first
                d = part
                break
    return d


cdef error_of(Delivery leaf, int32_t index):
    return leaf.error if leaf.record_errors is None else leaf.record_errors.get(index, leaf.error)


cdef future_error(RecordFuture f):
    cdef int32_t i = f.index
    cdef Delivery d = leaf_of(f.delivery, &i)
    return error_of(d, i)


cdef future_metadata(RecordFuture f):
    cdef int32_t i = f.index
    cdef Delivery d = leaf_of(f.delivery, &i)
    return make_metadata(d, f, i)


cdef make_metadata(Delivery d, RecordFuture f, int32_t i):
    """RecordMetadata of record `i` of a delivery: the six fields of the tuple, put in without its Python constructor."""
    cdef PyObject* made = plan_new_tuple(_record_metadata_type, 6)
    metadata = <object> made
    plan_xdecref(made)
    plan_incref(<PyObject*> d.queue.topic)
    plan_tuple_set(made, 0, <PyObject*> d.queue.topic)
    plan_tuple_set(made, 1, plan_long(d.queue.index))
    plan_tuple_set(made, 2, plan_longlong(-1 if d.base_offset < 0 else d.base_offset + i))
    plan_tuple_set(made, 3, plan_longlong(f.own_timestamp_ms if d.log_append_time_ms < 0 else d.log_append_time_ms))
    plan_tuple_set(made, 4, plan_long(f.key_size))
    plan_tuple_set(made, 5, plan_long(f.value_size))
    return metadata


cdef future_wait(RecordFuture f, timeout):
    if f.delivery.state == DELIVERY_PENDING:
        driver = f.delivery.driver
        if driver is not None:
            driver.wait(f.delivery, timeout)


def overlook(RecordFuture future not None):
    """Takes back that somebody looks at this record's outcome: a callback of ours is on it, and none of the user's."""
    if future.looked_at:
        future.looked_at = False
        future.delivery.looked_at -= 1
