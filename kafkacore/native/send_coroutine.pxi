# The short cut of `send` in the asyncio producer (send_method.pxi).
#
#   CoroutineSend  what a producer holds for it.
#   Sending        the coroutine of one call. Its first step queues the record and ends it. Where that would wait, it makes the coroutine of
#                  the function, the general way, and passes every step on to it.
#
# A Python coroutine costs a frame, its arguments and a call per record, more than the record itself. As with every coroutine nothing happens
# before the first step, so a send that is cancelled before it began, or is never awaited, has queued nothing; the latter warns.

cdef extern from "Python.h":
    int sending_pass_on "(int)PyIter_Send"(object, object, PyObject **) except -1
    int sending_warn "PyErr_WarnEx"(object, const char *, Py_ssize_t) except -1

cdef enum:
    SENDING_ENDED = 0
    SENDING_NEW = 1
    SENDING_WAITS = 2


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
    cdef public int in_line

    def __init__(self, ProducerCore producer not None, type not_now not None):
        self.producer = producer
        self.not_now = not_now

    cdef object queue(self, topic, value, key, tuple more):
        """The record's future; None when it has to wait."""
        cdef RecordFuture future
        if self.in_line:
            return None
        try:
            if more is None:
                return self.producer.send_parsed(topic, value, key, None, None, None, None)
            headers, partition, timestamp_ms, on_delivery = more
            if on_delivery is not None:
                check_order(on_delivery)
            future = self.producer.send_parsed(topic, value, key, headers, partition, timestamp_ms, None)
        except self.not_now:
            return None
        if on_delivery is not None:
            on_delivery_in_loop(future, running_loop(), on_delivery)
        return future


@cython.final
@cython.freelist(16)
cdef class Sending:
    """The coroutine of one send."""

    cdef CoroutineSend held
    cdef object function, producer            # the general way, and whose
    cdef object topic, value, key
    cdef tuple more                           # headers, partition, timestamp_ms, on_delivery; None: none of them
    cdef object waits                         # the function's coroutine
    cdef int state

    def __await__(self):
        return self

    def __iter__(self):                       # for `yield from send.__await__()`
        return self

    def __next__(self):
        return stepped(self, None, sending_step)

    def send(self, item):
        """A step, as of every coroutine."""
        return stepped(self, item, sending_step)

    def throw(self, kind, value=None, traceback=None):
        """Raises an exception where the coroutine waits, as of every coroutine."""
        if self.state == SENDING_WAITS:
            if isinstance(kind, BaseException):
                return self.waits.throw(kind)
            return self.waits.throw(kind, value, traceback)
        if self.state == SENDING_ENDED:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self.end()
        raise thrown(kind, value, traceback)

    def close(self):
        """Ends it where it waits, as of every coroutine."""
        if self.state == SENDING_WAITS:
            self.waits.close()
        self.end()

    @property
    def __name__(self):
        return "send"

    @property
    def __qualname__(self):
        return "KafkaProducer.send"

    @property
    def cr_running(self):
        return self.state == SENDING_WAITS and self.waits.cr_running

    @property
    def cr_frame(self):
        """That of the function, where it waits; there is none before."""
        return self.waits.cr_frame if self.state == SENDING_WAITS else None

    @property
    def cr_await(self):
        return self.waits.cr_await if self.state == SENDING_WAITS else None

    cdef void end(self) noexcept:
        self.state = SENDING_ENDED
        self.topic = self.value = self.key = None
        self.more = None

    def __dealloc__(self):
        if self.state == SENDING_NEW:
            sending_warn(RuntimeWarning, "coroutine 'KafkaProducer.send' was never awaited: its record is not queued", 1)

    def __repr__(self):
        return f"<coroutine KafkaProducer.send at {<size_t> <PyObject *> self:#x}>"


cdef object sending_new(object function, object producer, object held, PyObject **given):
    cdef Sending made = Sending.__new__(Sending)
    made.held = <CoroutineSend> held
    made.function = function
    made.producer = producer
    made.topic = <object> given[0]
    made.value = <object> given[1]
    made.key = <object> given[2]
    if given[3] != PLAN_NONE or given[4] != PLAN_NONE or given[5] != PLAN_NONE or given[6] != PLAN_NONE:
        made.more = (<object> given[3], <object> given[4], <object> given[5], <object> given[6])
    made.state = SENDING_NEW
    return made


cdef int sending_step(object self, object item, PyObject **result) except -1:
    """A step as PyIter_Send asks for it."""
    cdef Sending sending = <Sending> self
    result[0] = NULL
    if sending.state == SENDING_NEW:
        if item is not None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        sending.state = SENDING_ENDED
        future = sending.held.queue(sending.topic, sending.value, sending.key, sending.more)
        if future is not None:
            sending.end()
            plan_incref(<PyObject *> future)
            result[0] = <PyObject *> future
            return STEP_RETURNS
        headers, partition, timestamp_ms, on_delivery = (None, None, None, None) if sending.more is None else sending.more
        sending.waits = sending.function(sending.producer, sending.topic, sending.value, sending.key, headers=headers, partition=partition,
                                         timestamp_ms=timestamp_ms, on_delivery=on_delivery)
        sending.end()
        sending.state = SENDING_WAITS
    elif sending.state == SENDING_ENDED:
        raise RuntimeError("cannot reuse already awaited coroutine")
    return sending_pass_on(sending.waits, item, result)


kc_install_step(Sending, <void *> sending_step)
