# The short cut of `send` in the asyncio producer, and of the coroutines of other clients' faces (short_method.pxi).
#
#   CoroutineSend    what a producer holds for it.
#   RecastCoroutine  what a producer holds whose `send` takes arguments as aiokafka has them, and gives a future of another class.
#   ShortCoroutine   the coroutine of one call. Its first step queues the record, or takes one out of a MessagesInHand (message.pxi), and ends
#                    it. Where that would wait, it makes the coroutine of the function, the general way, and passes every step on to it.
#
# A Python coroutine costs a frame, its arguments and a call per record, more than the record itself. As with every coroutine nothing happens
# before the first step, so a send that is cancelled before it began, or is never awaited, has queued nothing; the latter warns.
#
# A step that does not wait gives no other task a turn, and memory may stay free for seconds. So a task that sends without a pause awaits a turn of
# the loop every TURN_MS, before its record is queued. Tasks that send a record each, all in one turn, keep their order: none of them waits.
#
# All that is not the first step is rare, and CPython's affair: `throw`, the frame of a coroutine that has not begun, the warning of one that
# was never awaited. For those, too, the function's coroutine takes the place of the short cut, so that the rules are CPython's own. While
# coroutines note where they were made (asyncio's debug mode), there is no short cut: only the call itself knows its place.

from kafkacore.errors import KafkaError

cdef extern from "Python.h":
    int sending_pass_on "(int)PyIter_Send"(object, object, PyObject **) except -1

cdef extern from *:
    """
    static inline int kc_origins_noted(void) {                  /* sys.set_coroutine_origin_tracking_depth */
        return PyThreadState_Get()->coroutine_origin_tracking_depth != 0;
    }
    #define kc_thread_notes() (PyThreadState_Get()->dict)       /* NULL where the thread has none; PyThreadState_GetDict would make one */
    """
    bint kc_origins_noted() noexcept
    PyObject* kc_thread_notes() noexcept

cdef enum:
    SENDING_ENDED = 0
    SENDING_NEW = 1
    SENDING_RUNS = 2                          # the first step queues the record: serializers are the application's code
    SENDING_PASSES = 3                        # the function's coroutine has taken its place

cdef extern from "Python.h":
    PyObject* sending_found "PyDict_GetItemWithError"(PyObject*, object) except? NULL

cdef enum:
    TURN_MS = 10                              # a task that finds memory free lets others run this often
    TURN_STRIDE = 128                         # sends between two looks at the clock, at most

cdef object _get_running_loop_or_none = None
cdef object _current_task = None
cdef object _weak_reference = None
cdef object _RUNNING_LOOP = "__asyncio_running_event_loop__"


@cython.final
cdef class CoroutineSend:
    """Queues records without waiting, for the coroutines of `send`.

    Args:
        producer: the engine's.
        not_now: what `producer.send` raises where it would wait.

    Attributes:
        in_line: tasks that wait for memory: a send that comes now waits behind them.
    """

    cdef ProducerCore producer
    cdef object not_now
    cdef object loop                          # that the producer belongs to; None before the first send
    cdef object running                       # what this thread has noted while that loop runs
    cdef public int in_line
    cdef object sender                        # the task that sent when the clock was last looked at: a weak reference
    cdef bint marked                          # the loop has had no turn since `began_ms`
    cdef int64_t began_ms, looked_ms
    cdef int stride, left                     # sends from one look to the next; of these, still to come

    def __init__(self, ProducerCore producer not None, type not_now not None):
        global _get_running_loop_or_none, _current_task, _weak_reference
        self.producer = producer
        self.not_now = not_now
        self.stride = 1
        if _get_running_loop_or_none is None:
            import asyncio
            import weakref
            _current_task = asyncio.current_task
            _weak_reference = weakref.ref
            _get_running_loop_or_none = asyncio._get_running_loop

    def bind(self, loop):
        """Sets the event loop that the producer belongs to. A send in another takes the general way, which binds or refuses."""
        self.loop = loop
        self.running = self.sender = None
        self.marked = False

    cdef inline bint due(self) except -1:
        """Whether the task is to await a turn of the loop before it sends. Looks at the clock now and then; the slower the sends, the more often."""
        if self.left:
            self.left -= 1
            return False
        if self.look():                       # `left` stays 0: the general way asks once more
            return True
        self.left = self.stride - 1
        return False

    def turn_over(self):
        """`due`, for the general way."""
        return self.due()

    cpdef bint look(self) except -1:
        """`due` by the clock of now."""
        cdef int64_t now_ms = time_of(self.producer._clock)
        cdef bint same
        task = _current_task(self.loop)       # which loop runs, is known: Python 3.11 would ask for the process id once more
        same = task is not None and self.sender is not None and self.sender() is task
        if not same:
            self.sender = None if task is None else _weak_reference(task)
        if not self.marked:
            self.loop.call_soon(self.turned)
            self.marked = True
            self.began_ms = now_ms
        self.stride = max(1, self.stride // 2) if now_ms > self.looked_ms + 1 else min(TURN_STRIDE, 2 * self.stride)
        self.looked_ms = now_ms
        return same and now_ms - self.began_ms >= TURN_MS

    def turned(self):
        """The loop has a turn."""
        self.marked = False

    cdef bint in_loop(self) except -1:
        """Whether this is the producer's loop. In Python 3.11 asyncio asks for the process id each time, which costs more than the record: so
        it is asked only where the thread's note of its running loop is another object than the last time. Later releases keep no such note."""
        cdef PyObject* noted = kc_thread_notes()
        if noted != NULL:
            noted = sending_found(noted, _RUNNING_LOOP)
            if noted != NULL and noted == <PyObject*> self.running and self.running is not None:
                return True
        if self.loop is None or _get_running_loop_or_none() is not self.loop:
            return False
        self.running = None if noted == NULL else <object> noted
        return True


cdef tuple AIOKAFKA_NAMES = ("topic", "value", "key", "partition", "timestamp_ms", "headers")


@cython.final
cdef class RecastCoroutine:
    """Queues records of plain bytes without waiting, for the coroutines of a `send` that takes arguments as aiokafka has them.

    Args:
        held: what the engine's producer holds. In which loop a send runs is not asked.
        future_type: a subclass of RecordFuture, made by `recastable`: what `await send()` gives.
    """

    cdef CoroutineSend held
    cdef type future_type

    def __init__(self, CoroutineSend held not None, type future_type not None):
        check_recast(future_type, RecordFuture)
        self.held = held
        self.future_type = future_type


@cython.final
@cython.freelist(16)
@cython.no_gc_clear                           # a cycle ends in the arguments' containers; `__dealloc__` needs what it holds
cdef class ShortCoroutine:
    """The coroutine of one call."""

    cdef CoroutineSend held                   # of a send
    cdef type future_type                     # what its future becomes; None: it stays what it is
    cdef MessagesInHand hand                  # of a read
    cdef object function, owner               # the general way, and whose
    cdef object topic, value, key
    cdef tuple more                           # headers, partition, timestamp_ms, on_delivery; None: none of them
    cdef object passes                        # the function's coroutine
    cdef int state
    cdef object __weakref__

    def __await__(self):
        if self.state == SENDING_PASSES and self.passes.cr_await is not None:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __iter__(self):                       # for `yield from send.__await__()`
        return self

    def __next__(self):
        return stepped(self, None, coroutine_step)

    def send(self, item):
        """A step, as of every coroutine."""
        return stepped(self, item, coroutine_step)

    def throw(self, *error):
        """Raises an exception where the coroutine waits, as of every coroutine."""
        return self.whole().throw(*error)

    def close(self):
        """Ends it where it waits, as of every coroutine."""
        if self.state == SENDING_NEW:
            self.end()
        elif self.state != SENDING_ENDED:
            self.whole().close()

    @property
    def __name__(self):
        return self.function.__name__

    @property
    def __qualname__(self):
        return self.function.__qualname__

    @property
    def cr_code(self):
        return self.function.__code__

    @property
    def cr_origin(self):
        """None: while origins are noted, `send` makes no such object."""

    @property
    def cr_running(self):
        return self.state == SENDING_RUNS or (self.state == SENDING_PASSES and self.passes.cr_running)

    @property
    def cr_suspended(self):
        return self.state == SENDING_PASSES and self.passes.cr_suspended

    @property
    def cr_frame(self):
        """That of the function; None in the first step and at the end."""
        return self.whole().cr_frame if self.state == SENDING_NEW or self.state == SENDING_PASSES else None

    @property
    def cr_await(self):
        return self.passes.cr_await if self.state == SENDING_PASSES else None

    cdef object whole(self):
        """The function's coroutine, which takes the place of this one from here on: in the same state."""
        if self.state == SENDING_PASSES:
            return self.passes
        if self.state == SENDING_RUNS:
            raise ValueError("coroutine already executing")
        if self.hand is not None:
            passes = self.function(self.owner)
        elif self.more is None:
            passes = self.function(self.owner, self.topic, self.value, self.key)
        else:
            headers, partition, timestamp_ms, on_delivery = self.more
            named = {"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms}
            if on_delivery is not None:                        # which not every `send` has
                named["on_delivery"] = on_delivery
            passes = self.function(self.owner, self.topic, self.value, self.key, **named)
        if self.state == SENDING_ENDED:
            passes.close()
        self.end()
        self.passes = passes
        self.state = SENDING_PASSES
        return passes

    cdef void end(self) noexcept:
        self.state = SENDING_ENDED
        self.topic = self.value = self.key = None
        self.more = None

    cdef int failed(self, error) except -1:
        self.end()
        if isinstance(error, StopIteration):   # to whom awaits this, that would be a result (PEP 479)
            raise RuntimeError("coroutine raised StopIteration") from error
        return 0

    def __dealloc__(self):
        if self.state == SENDING_NEW:
            self.whole()                      # never awaited: says so as it goes

    def __repr__(self):
        return f"<coroutine object {self.__qualname__} at {<size_t> <PyObject *> self:#x}>"


cdef object sending_new(object function, object owner, object held, PyObject **given):
    if kc_origins_noted():
        return NotImplemented
    return send_coroutine(function, owner, <CoroutineSend> held, None, given, given[3], given[4], given[5], given[6])


cdef object recast_coroutine(object function, object owner, object held, PyObject **given):
    cdef RecastCoroutine sends = <RecastCoroutine> held
    if (kc_origins_noted() or not kc_plain_record(given[0], given[1], given[2])
            or (given[5] != PLAN_NONE and type(<object> given[5]) is not list)):
        return NotImplemented
    return send_coroutine(function, owner, sends.held, sends.future_type, given, given[5], given[3], given[4], PLAN_NONE)


cdef object read_coroutine(object function, object owner, object held, PyObject **given):
    cdef ShortCoroutine made
    if kc_origins_noted():
        return NotImplemented
    made = ShortCoroutine.__new__(ShortCoroutine)
    made.hand = <MessagesInHand> held
    made.function = function
    made.owner = owner
    made.state = SENDING_NEW
    return made


cdef ShortCoroutine send_coroutine(object function, object owner, CoroutineSend held, type future_type, PyObject **given, PyObject *headers,
                                   PyObject *partition, PyObject *timestamp_ms, PyObject *on_delivery):
    cdef ShortCoroutine made = ShortCoroutine.__new__(ShortCoroutine)
    made.held = held
    made.future_type = future_type
    made.function = function
    made.owner = owner
    made.topic = <object> given[0]
    made.value = <object> given[1]
    made.key = <object> given[2]
    if headers != PLAN_NONE or partition != PLAN_NONE or timestamp_ms != PLAN_NONE or on_delivery != PLAN_NONE:
        made.more = (<object> headers, <object> partition, <object> timestamp_ms, <object> on_delivery)
    made.state = SENDING_NEW
    return made


cdef object sending_queued(ShortCoroutine sending):
    """The record's future; None when it has to wait."""
    cdef CoroutineSend held = sending.held
    cdef RecordFuture future
    if held.in_line or not held.in_loop() or held.due():
        return None
    sending.state = SENDING_RUNS
    try:
        if sending.more is None:
            return held.producer.send_parsed(sending.topic, sending.value, sending.key, None, None, None, None)
        headers, partition, timestamp_ms, on_delivery = sending.more
        if on_delivery is not None:
            check_order(on_delivery)
        future = held.producer.send_parsed(sending.topic, sending.value, sending.key, headers, partition, timestamp_ms, None)
        if on_delivery is not None:
            on_delivery_in_loop(future, held.loop, on_delivery)
        return future
    except held.not_now:
        sending.state = SENDING_NEW
        return None
    except BaseException as error:
        if isinstance(error, Exception):
            held.producer.refuse(error)
        sending.failed(error)
        raise


cdef object recast_queued(ShortCoroutine sending):
    """The same under another class. What the engine refuses is worded by the general way."""
    cdef CoroutineSend held = sending.held
    if held.in_line:
        return None
    headers = partition = timestamp_ms = None
    if sending.more is not None:
        headers, partition, timestamp_ms, _ = sending.more
    sending.state = SENDING_RUNS
    try:
        future = held.producer.send_parsed(sending.topic, sending.value, sending.key, headers, partition, timestamp_ms, None)
    except (held.not_now, KafkaError):         # nothing is queued
        sending.state = SENDING_NEW
        return None
    except BaseException as error:
        if isinstance(error, Exception):
            held.producer.refuse(error)
        sending.failed(error)
        raise
    if type(future) is RecordFuture:
        kc_recast(<PyObject*> future, <PlanType*><PyObject*> sending.future_type)
    return future


cdef int coroutine_step(object self, object item, PyObject **result) except -1:
    """A step as PyIter_Send asks for it."""
    cdef ShortCoroutine coroutine = <ShortCoroutine> self
    result[0] = NULL
    if coroutine.state == SENDING_NEW and item is None:
        if coroutine.hand is not None:
            result[0] = coroutine.hand.next()
            if result[0] != NULL:
                coroutine.end()
                return STEP_RETURNS
        else:
            future = sending_queued(coroutine) if coroutine.future_type is None else recast_queued(coroutine)
            if future is not None:
                coroutine.end()
                plan_incref(<PyObject *> future)
                result[0] = <PyObject *> future
                return STEP_RETURNS
    return sending_pass_on(coroutine.whole(), item, result)


kc_install_step(ShortCoroutine, <void *> coroutine_step)
