# `await future`: how a task of an event loop waits for a record's delivery.
#
# AwaitedDelivery is the iterator that the await steps, and what it yields: to the task, a future. asyncio's own future would be woken by a
# call of the loop for each task; this keeps the task's wake-up and makes it itself, one after another for all tasks that wait for a batch, in
# one call of the loop (`finish_on_loop`). It has what a task needs of a future: add_done_callback, once; result; cancel; and the loop.
#
# States: NEW -> WAITS, when it is yielded -> WOKEN or CANCELLED -> ENDED, when the task has gone on. All moves are made on the loop's thread.

import types as _types

cdef extern from "Python.h":
    int awaited_enter "PyContext_Enter"(object) except -1
    int awaited_exit "PyContext_Exit"(object) except -1

cdef extern from *:
    """
    static int kc_install_step(PyObject *type, void *step) {     /* PyIter_Send looks there first, and then no StopIteration is made */
        PyAsyncMethods *methods = ((PyTypeObject *)type)->tp_as_async;
        if (methods == NULL) {
            PyErr_SetString(PyExc_SystemError, "no class that can be awaited");
            return -1;
        }
        methods->am_send = (sendfunc)step;
        return 0;
    }
    """
    int kc_install_step(object type, void *step) except -1
    enum:
        STEP_MORE "PYGEN_NEXT"
        STEP_RETURNS "PYGEN_RETURN"

cdef enum:
    AWAITED_NEW = 0
    AWAITED_WAITS = 1
    AWAITED_WOKEN = 2
    AWAITED_CANCELLED = 3
    AWAITED_ENDED = 4

cdef object _get_running_loop = None


cdef object running_loop():
    """The running event loop."""
    global _get_running_loop
    if _get_running_loop is None:
        import asyncio
        _get_running_loop = asyncio.get_running_loop
    return _get_running_loop()


@cython.final
@cython.freelist(256)
cdef class AwaitedDelivery:
    """One task's wait for a record's delivery. Made by `await future` only."""

    cdef RecordFuture record
    cdef object loop
    cdef object callback, context             # the task's wake-up
    cdef object message                       # of the cancellation
    cdef public bint _asyncio_future_blocking
    cdef int state

    def __await__(self):
        return self

    def __iter__(self):                       # asyncio's gather and wait_for say `yield from future.__await__()`
        return self

    def __next__(self):
        return stepped(self, None, awaited_step)

    def send(self, item):
        """A step, as of every iterator that is awaited."""
        return stepped(self, item, awaited_step)

    def throw(self, kind, value=None, traceback=None):
        """Raises an exception where the task waits; no wake-up comes after it."""
        error = thrown(kind, value, traceback)
        self.end()
        raise error

    def close(self):
        """Ends the wait."""
        self.end()

    # ---- to the task, a future

    def get_loop(self):
        return self.loop

    def done(self):
        """True once the task can go on."""
        return self.state >= AWAITED_WOKEN

    def cancelled(self):
        """True when the wait was cancelled."""
        return self.state == AWAITED_CANCELLED

    def result(self):
        """Nothing: the outcome comes with the next step.

        Raises:
            CancelledError: the wait was cancelled.
        """
        if self.state == AWAITED_CANCELLED:
            import asyncio
            raise asyncio.CancelledError() if self.message is None else asyncio.CancelledError(self.message)
        if self.state < AWAITED_WOKEN:
            import asyncio
            raise asyncio.InvalidStateError("the record is not delivered yet")

    def exception(self):
        """As result()."""
        self.result()

    def add_done_callback(self, fn, *, context=None):
        """Has fn(self) called when the task can go on.

        Args:
            fn: the task's wake-up; there can be only one.
            context: in which it is called.
        """
        if self.callback is not None:
            raise RuntimeError("a task awaits this already")
        if context is None:
            import contextvars
            context = contextvars.copy_context()
        if self.state >= AWAITED_WOKEN:
            self.loop.call_soon(fn, self, context=context)
            return
        self.callback = fn
        self.context = context

    def remove_done_callback(self, fn):
        """Takes that back; returns how many there were."""
        if self.callback is None or self.callback != fn:
            return 0
        self.callback = self.context = None
        return 1

    def cancel(self, msg=None):
        """Ends the wait with CancelledError; the record goes its way. False when it has ended."""
        if self.state >= AWAITED_WOKEN:
            return False
        if self.state == AWAITED_WAITS:
            self.record.delivery.forget(self.loop, self)
        self.state = AWAITED_CANCELLED
        self.message = msg
        fn, context = self.callback, self.context
        self.callback = self.context = None
        if fn is not None:
            self.loop.call_soon(fn, self, context=context)
        return True

    cdef int end(self) except -1:
        if self.state == AWAITED_WAITS:
            self.record.delivery.forget(self.loop, self)
        self.state = AWAITED_ENDED
        self.callback = self.context = None
        return 0

    cdef int wake(self) except -1:
        """The delivery is finished: the task goes on, now."""
        if self.state != AWAITED_WAITS:
            return 0
        self.state = AWAITED_WOKEN
        fn, context = self.callback, self.context
        self.callback = self.context = None
        if fn is None:
            return 0
        awaited_enter(context)
        try:
            fn(self)
        finally:
            awaited_exit(context)
        return 0

    def __repr__(self):
        return f"<AwaitedDelivery of {self.record!r}>"


cdef object awaited_delivery(RecordFuture record):
    cdef AwaitedDelivery made = AwaitedDelivery.__new__(AwaitedDelivery)
    made.record = record
    return made


cdef int awaited_step(object self, object item, PyObject **result) except -1:
    """A step as PyIter_Send asks for it."""
    cdef AwaitedDelivery awaited = <AwaitedDelivery> self
    cdef RecordFuture record = awaited.record
    result[0] = NULL
    if awaited.state == AWAITED_NEW:
        if record.delivery.state != DELIVERY_FINISHED:
            awaited.loop = running_loop()
            if record.delivery.wait_on_loop(awaited.loop, awaited):
                awaited.state = AWAITED_WAITS
                awaited._asyncio_future_blocking = True
                plan_incref(<PyObject *> awaited)
                result[0] = <PyObject *> awaited
                return STEP_MORE
    elif awaited.state != AWAITED_WOKEN:
        raise RuntimeError("cannot reuse already awaited delivery" if awaited.state >= AWAITED_CANCELLED else "await wasn't used with future")
    awaited.state = AWAITED_ENDED
    error = future_error(record)
    if error is not None:
        raise error.with_traceback(None)       # as in RecordFuture.result
    found = future_metadata(record)
    plan_incref(<PyObject *> found)
    result[0] = <PyObject *> found
    return STEP_RETURNS


cdef object stepped(self, item, int (*step)(object, object, PyObject **) except -1):
    """A step as `send` and `__next__` give it."""
    cdef PyObject *found = NULL
    cdef int how = step(self, item, &found)
    result = <object> found
    plan_xdecref(found)
    if how == STEP_MORE:
        return result
    raise StopIteration(result)


cdef object thrown(kind, value, traceback):
    """The exception that throw(kind, value, traceback) raises; arguments that name none raise TypeError here. A StopIteration would be taken for
    the result of the await: it becomes RuntimeError, as in a generator (PEP 479)."""
    if traceback is not None and not isinstance(traceback, _types.TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    elif isinstance(kind, type) and issubclass(kind, BaseException):
        try:
            error = value if isinstance(value, kind) else kind() if value is None else kind(*value) if isinstance(value, tuple) else kind(value)
        except BaseException as failed:       # is raised in its place, there
            error = failed
        if not isinstance(error, BaseException):
            raise TypeError(f"calling {kind!r} should have returned an instance of BaseException, not {type(error).__name__}")
    else:
        raise TypeError(f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}")
    if traceback is not None:
        error = error.with_traceback(traceback)
    if isinstance(error, StopIteration):
        stopped = RuntimeError("coroutine raised StopIteration")
        stopped.__cause__ = error
        return stopped
    return error


kc_install_step(AwaitedDelivery, <void *> awaited_step)
