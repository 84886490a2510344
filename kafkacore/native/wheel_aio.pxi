# Many timers on one of an event loop: the compiled half of kafkacore.aio.WheelTimer.
#
# The loop's own timer is armed for the wheel's next bucket, and again only when an earlier one appears. Times are the loop's seconds; in the
# wheel they are whole milliseconds, rounded up, so that nothing runs early. A microsecond is granted to the rounding of doubles: a loop
# that wakes for millisecond n may read n - 1e-12 there.
from cpython.contextvars cimport PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit
from libc.math cimport ceil, floor

cdef double ROUNDING_MS = 1e-3
cdef double FOREVER_MS = <double>KW_FOREVER


cdef enum:
    HANDLE_CANCELLED = 0                                  # also one that callers make: it belongs to no timer
    HANDLE_WAITS = 1
    HANDLE_RAN = 2


cdef int64_t whole_ms(double seconds, bint up) except? -1:
    cdef double ms = seconds * 1000
    if ms != ms:
        raise ValueError("not a time: nan")
    ms = ceil(ms - ROUNDING_MS) if up else floor(ms + ROUNDING_MS)
    return KW_FOREVER if ms >= FOREVER_MS else -KW_FOREVER if ms <= -FOREVER_MS else <int64_t>ms


@cython.final
@cython.freelist(256)
cdef class WheelHandle:
    """A call that waits, as asyncio.TimerHandle."""
    cdef WheelTimerCore owner
    cdef object fn, args, context
    cdef double when_s
    cdef int64_t handle
    cdef char state
    cdef object __weakref__

    def cancel(self):
        """Takes the call back; nothing happens if it was made already."""
        if self.state == HANDLE_WAITS:
            self.owner.wheel.cancel_c(self.handle)
            self.end(HANDLE_CANCELLED)

    cdef void end(self, char state):
        self.state = state
        self.owner = None
        self.fn = self.args = self.context = None

    def cancelled(self):
        """Whether it was cancelled before it was called."""
        return self.state == HANDLE_CANCELLED

    def when(self):
        """The time of the call, in seconds of the loop's clock."""
        return self.when_s

    def __repr__(self):
        what = ("cancelled", "ran")[self.state == HANDLE_RAN] if self.state != HANDLE_WAITS else repr(self.fn)
        return f"<WheelHandle when={self.when_s} {what}>"


cdef class WheelTimerCore:
    """The compiled base of WheelTimer."""
    cdef readonly TimingWheel wheel
    cdef object loop, time_s, loop_call_at, armed
    cdef int64_t armed_ms
    cdef bint closed
    cdef object __weakref__

    def _setup(self, loop not None, int64_t tick_ms, int32_t wheel_size):
        self.loop = loop
        self.time_s = loop.time
        self.loop_call_at = loop.call_at
        self.wheel = TimingWheel(tick_ms, wheel_size, whole_ms(loop.time(), False))
        self.armed_ms = INT64_MAX

    cdef WheelHandle schedule(self, double when_s, fn, tuple args, context):
        cdef int64_t when_ms = whole_ms(when_s, True)
        cdef WheelHandle handle
        if self.wheel is None or self.closed:
            raise RuntimeError("this WheelTimer is closed" if self.closed else f"{type(self).__name__}.__init__() was not called")
        if not callable(fn):
            raise TypeError(f"a callable is expected, not {fn!r}")
        handle = WheelHandle.__new__(WheelHandle)
        handle.owner = self
        handle.fn = fn
        handle.args = args
        handle.context = PyContext_CopyCurrent() if context is None else context
        handle.when_s = when_s
        handle.state = HANDLE_WAITS
        handle.handle = self.wheel.call_at_c(when_ms, handle)
        if when_ms < self.armed_ms:
            try:
                self.arm()
            except BaseException:                         # the loop is closed
                handle.cancel()
                raise
        return handle

    cdef int arm(self) except -1:
        """Makes sure that the loop wakes by the wheel's next deadline."""
        cdef int64_t next_ms = kw_next(&self.wheel.wheel)
        if next_ms == KW_IDLE or next_ms >= self.armed_ms:
            return 0
        if self.armed is not None:
            self.armed.cancel()
            self.armed_ms = INT64_MAX
        self.armed = self.loop_call_at(next_ms / 1000.0, self._wake)
        self.armed_ms = next_ms
        return 0

    def call_later(self, double delay_s, fn, /, *args, context=None):
        """Calls fn(*args) after a delay, as the loop's own `call_later`.

        Args:
            delay_s: seconds; the call comes less than a tick and a turn of the loop later.
            fn: an exception of it goes to the loop's exception handler.
            args: its arguments.
            context: the `contextvars.Context` to call it in; a copy of the current one by default.

        Returns:
            A handle with `cancel()`, `cancelled()` and `when()`.

        Raises:
            RuntimeError: the timer is closed.
        """
        return self.schedule(<double>self.time_s() + delay_s, fn, args, context)

    def call_at(self, double when_s, fn, /, *args, context=None):
        """Calls fn(*args) at a time of the loop's clock, as the loop's own `call_at`. See `call_later`."""
        return self.schedule(when_s, fn, args, context)

    def _wake(self):
        """Called by the loop."""
        cdef int64_t left
        if self.wheel is None:
            return
        self.armed = None
        self.armed_ms = INT64_MAX
        try:
            self.wheel.expire(whole_ms(self.time_s(), False))
            left = self.wheel.wheel.due_count[0]
            while left > 0 and self.wheel.wheel.due_count[0]:
                left -= 1
                self.call(self.wheel.next_due())
        finally:
            if not self.closed:
                self.arm()

    cdef int call(self, WheelHandle handle) except -1:
        fn, args, context = handle.fn, handle.args, handle.context
        handle.end(HANDLE_RAN)
        PyContext_Enter(context)
        try:
            fn(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.loop.call_exception_handler({"message": f"Exception in callback {fn!r}", "exception": error, "handle": handle})
        finally:
            PyContext_Exit(context)
        return 0

    def close(self):
        """Takes all calls back. May be called twice."""
        cdef WheelHandle handle
        self.closed = True
        if self.armed is not None:
            self.armed.cancel()
            self.armed = None
        if self.wheel is not None:
            for handle in self.wheel.pop_expired(KW_FOREVER):
                handle.end(HANDLE_CANCELLED)

    def __len__(self):
        return 0 if self.wheel is None else self.wheel.wheel.count
