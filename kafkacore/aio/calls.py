"""How a client's calls that wait come to the loop: a thread of the client makes them, the loop awaits them.

    loop                              the client's thread
    run(call) -> queued job     ->    takes the job, makes the call
    awaits                            ...
    woken once              <-        result or error

Rules
1. Calls are made one after another, in their order, by one thread; the first call starts it, and it ends with `close`, or when its client
   has no reference left. [test_calls_are_made_in_their_order_by_one_thread_which_ends_with_its_client]
2. A task that is cancelled while it awaits a call interrupts the call and waits until it has ended: then the client is free again. A call
   that had not started never starts. So a call must not return what would be lost with its caller. The call that closes the client goes on.
   [test_a_cancelled_call_is_interrupted_and_one_that_has_not_started_is_never_made, test_sends, test_a_member]
3. A call that may take long but can be made again (a poll) lets others go first: it is interrupted, they are made, it goes on.
   [test_other_calls_go_first_while_a_poll_waits]
4. A listener in the loop is called from within a call: while it runs, the thread makes the calls that come from the loop, inside that call.
   A call that no listener may make, such as closing, waits for its end, unless it comes from the listener itself: then it is refused.
   [test_a_listener_awaits_a_position, test_closing_waits_for_the_listener, test_a_listener_cannot_close]
5. A call's deadline counts from when it is asked for: one that waits for others until then is never made. Closing waits for the calls
   before it until its deadline; then they end with ClosedError, as those of a synchronous client that another thread closes.
   [test_calls_that_wait_for_others_keep_their_deadlines, test_closing_lets_calls_end, test_closing_ends_calls_that_outlast_it]
6. A future is set in its own loop: other threads have that called there (`wake`). [test_other_calls_go_first_while_a_poll_waits]
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import math
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from kafkacore import errors
from kafkacore.aio.timers import shared_timer

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("kafkacore.aio")

_PROMPT_S = 0.001
"""A call that begins within this time has not waited for others."""
_PATIENCE_S = 1.0
"""How long a wait for records stands behind other calls at least: a short time-out would end it each time before it began."""
_LOOK_S = 1.0
"""While a listener runs: how often its loop is looked at, which may have been closed. Nothing says so."""


def wake(future: asyncio.Future[None]) -> Callable[[], None]:
    """What any thread calls to end a wait in the future's loop."""
    loop = future.get_loop()

    def set_result() -> None:
        if not future.done():
            future.set_result(None)

    def woken() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits
            loop.call_soon_threadsafe(set_result)

    return woken


class NotMade(Exception):
    """A call's time had passed before the thread was free."""


_listens_to: contextvars.ContextVar[CallThread | None] = contextvars.ContextVar("kafkacore_listens_to", default=None)
"""Whose listener runs in this context."""


class Gate:
    """Takes the place of a held lock that another thread releases: releasing it calls the loop.

    Args:
        opened: what is called, once, by any thread.
    """

    __slots__ = ("_opened", "_shut")

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        self._shut = True

    def locked(self) -> bool:
        """True until it is opened."""
        return self._shut

    def release(self) -> None:
        """Opens it."""
        if self._shut:
            self._shut = False
            self._opened()


def _nothing() -> None:
    """In the place of a call that was made."""


class Job:
    """A call on its way. It sees the context variables of who asks for it, and so does what it calls: listeners, interceptors.

    Args:
        call: without arguments.
        ended: is called, on the client's thread, when there is an outcome.
    """

    __slots__ = ("alone", "call", "cancelled", "context", "done", "ended", "error", "result", "started")

    def __init__(self, call: Callable[[], Any], ended: Callable[[], None]) -> None:
        self.call = call
        self.context = contextvars.copy_context()
        self.ended = ended
        self.alone = False  # not while a listener runs
        self.started = False
        self.cancelled = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def make(self) -> None:
        """Makes the call, unless it was cancelled. It is forgotten then: it holds its client, which may hold this."""
        call, self.call = self.call, _nothing
        try:
            if not self.cancelled:
                self.result = self.context.run(call)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Reports the outcome."""
        self.done = True
        ended, self.ended = self.ended, _nothing
        ended()

    def has_ended(self) -> bool:
        """Whether there is an outcome."""
        return self.done

    def outcome(self) -> Any:
        """What the call returned or raised."""
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # no cycle of traceback and frame
        return self.result


class Ending:
    """A call that goes on when its task is cancelled, as one that closes a client; a task that makes it meanwhile awaits its end.

    Args:
        what: makes the call, for the log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._job: Job | None = None
        self._waiting: list[Callable[[], None]] = []

    async def run(
        self,
        call: Callable[[], object],
        start: Callable[[Job], None],
        needed: Callable[[], bool] = lambda: True,
        timeout: float | None = None,
    ) -> Any:
        """Awaits the end of the call under way, or begins it.

        Args:
            call: without arguments.
            start: has a thread make a job.
            needed: whether it is to begin.
            timeout: seconds to wait for the end of a call that another task has started; None for no limit.

        Returns:
            What the call returned; None when there was none.
        """
        woken = wake(ended := asyncio.get_running_loop().create_future())
        self._waiting.append(woken)
        try:
            job = self._job
            if job is None or job.done:
                if not needed():
                    return None
                job = self._job = Job(call, self._ended)
                try:
                    start(job)
                except BaseException:
                    self._job = None
                    raise
                timeout = None
            if not job.done:  # else its end may have come before `_waiting` had this
                await asyncio.wait((ended,), timeout=timeout)
            if not job.done:
                return None
        finally:
            self._waiting.remove(woken)
            if self._job is not None and self._job.done and sys.exc_info()[0] in (asyncio.CancelledError, GeneratorExit):
                self._ended()
        return job.outcome()

    def _ended(self) -> None:
        """Wakes those who wait; where all were cancelled, the log gets the error."""
        job, waiting = self._job, tuple(self._waiting)
        for woken in waiting:
            woken()
        if not waiting and job is not None and job.error is not None:
            error, job.error = job.error, None
            log.error("%s: a call whose task was cancelled failed", self._what, exc_info=error)


def outlives_its_loop(kind: type[BaseException] | None) -> bool:
    """Whether a block ends since its coroutine is closed or collected while no loop runs. Then nothing can be awaited: the client is left
    to its own collection, which warns. Where a loop runs, the close is awaited, as an asynchronous generator that is closed may do.

    Args:
        kind: of the exception that ends the block.
    """
    return kind is GeneratorExit and asyncio._get_running_loop() is None


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Makes one call on a thread of its own, which goes on if the caller is cancelled and does not keep the process alive."""
    return await Ending(getattr(call, "__qualname__", "a thread")).run(lambda: call(*args, **kwargs), on_a_thread)  # type: ignore[no-any-return]


def on_a_thread(job: Job) -> None:
    """Makes one call on a thread of its own, which does not keep the process alive."""

    def run() -> None:
        job.make()
        job.end()

    threading.Thread(target=run, name="kafkacore-call", daemon=True).start()


class CallThread:
    """The thread of one client.

    Args:
        name: of the thread.
        interrupt: ends the wait of the call under way, from any thread: it raises WakeupError. A later wait, if none is under way.
        settle: takes back an interrupt that nothing has noticed.
    """

    def __init__(self, name: str, interrupt: Callable[[], None], settle: Callable[[], None]) -> None:
        self._name = name
        self._interrupt = interrupt
        self._settle = settle
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # between the end of a job and an interrupt that is meant for it
        self._current: Job | None = None
        self._queued = 0  # calls submitted and not started, also while they are on their way from the queue to the thread
        self._open: Job | None = None  # the call that lets others be made within it
        self._yields = False  # and which an interrupt makes do so
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._closed = False
        self._woken = False
        self._listening = False
        self._closes: Job | None = None  # the call that has waited long enough: those before it end

    # ---- in the loop -------------------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True when no call is under way or queued."""
        return self._current is None and not self._queued and self._jobs.empty()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, which must always be the same.

        Raises:
            IllegalStateError: the client belongs to another loop.
            ForkedClientError: it belongs to the parent process.
        """
        running = asyncio.get_running_loop()
        if self._loop is not running:
            if os.getpid() != self._pid:
                raise errors.ForkedClientError("this client belongs to the parent process; make one in each process")
            if self._loop is not None and not self._loop.is_closed():
                raise errors.IllegalStateError("this client belongs to another event loop; make one for each loop")
            self._loop = running
            with self._lock:
                job = self._current if self._current is self._open and not self._listening else None
            if job is not None:
                self._cancel(job)  # a poll for which nothing waits any more
        return running

    async def run(self, call: Callable[[], T], timeout_s: float | None = None, *, alone: bool = False) -> T:
        """Has the thread make a call, and awaits its end.

        Args:
            call: without arguments. It must not return what would be lost with a caller that is cancelled.
            timeout_s: how long it may wait for others before it begins; None without limit.
            alone: it waits for the end of a listener.

        Raises:
            NotMade: the others took longer.
        """
        loop = self.loop()
        ended = loop.create_future()
        job = Job(call, wake(ended))
        job.alone = alone
        waits = timeout_s is not None and not self.idle
        self.submit(job)
        if not waits or timeout_s is None:
            return await self._outcome_of(job, ended, loop)  # type: ignore[no-any-return]
        timer = shared_timer(loop)
        deadline = timer.call_later(max(0.0, timeout_s), self._give_up, job, NotMade())
        try:
            return await self._outcome_of(job, ended, loop)  # type: ignore[no-any-return]
        finally:
            deadline.cancel()

    async def _outcome_of(self, job: Job, ended: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> Any:
        """What a job that was submitted returns. Cancelled, it interrupts the job, and waits all the same."""
        cancelled: asyncio.CancelledError | None = None
        while not job.has_ended():
            try:
                await ended
            except asyncio.CancelledError as error:
                cancelled = error
                self._cancel(job)
                ended = loop.create_future()
                job.ended = wake(ended)
                if job.has_ended():  # before that was set
                    break
            except GeneratorExit:  # a coroutine that is closed, or collected, may not wait for the end
                self._cancel(job)
                raise
        if cancelled is None:
            return job.outcome()
        job.error = None
        raise cancelled

    def _give_up(self, job: Job, error: Exception) -> None:
        """A job that has not started ends with an error, and is never made."""
        with self._lock:
            if job.started:
                return
            job.started = True
        job.error = error
        job.end()

    async def wait(self, poll: Callable[[float | None], T], timeout_s: float | None, now_s: Callable[[], float]) -> T | None:
        """Has the thread wait by a call that lets others go first (`polling`), and awaits its end. None when others took all the time.

        Args:
            poll, now_s: as for `polling`.
            timeout_s: seconds in all; None without limit.
        """
        end = None if timeout_s is None else now_s() + timeout_s

        def waited() -> T:
            return self.polling(poll, None if end is None else max(0.0, end - now_s()), now_s)

        try:
            return await self.run(waited, None if timeout_s is None else max(timeout_s, _PATIENCE_S))
        except NotMade:
            return None

    def cut_for(self, job: Job, what: str) -> None:
        """A call that closes has waited long enough: what is before it ends with ClosedError. Where that is a listener, it ends itself.

        Args:
            job: the call that closes.
            what: it closes.
        """
        with self._lock:
            if job.started:
                return
            listening = self._listening
            if not listening:
                self._closes = job
                if self._current is not None:
                    self._interrupt()
        if listening:
            self._give_up(job, errors.KafkaTimeoutError(f"this {what} was not closed: its rebalance listener still runs"))

    def call_now(self, call: Callable[[], T]) -> T:
        """Makes a call that does not wait, now: on the loop's own thread, or, when a call that can be interrupted is under way, between its
        halves.

        Raises:
            IllegalStateError: another call is under way that cannot be interrupted.
        """
        if self.idle or threading.current_thread() is self._thread:
            return call()
        with self._lock:
            if self._current is not self._open:
                raise errors.IllegalStateError("another call of this client is under way: await it first")
        ended = threading.Event()
        job = Job(call, ended.set)
        self.submit(job)
        ended.wait()
        return job.outcome()  # type: ignore[no-any-return]

    def make_when_free(self, call: Callable[[], object]) -> None:
        """Makes a call that does not wait, now, or behind those under way: what it raises there goes to the log. Closed, it makes none."""
        if self.idle or threading.current_thread() is self._thread:
            call()
            return

        def ended() -> None:
            if job.error is not None:
                log.error("%s: a call that nothing awaits failed", self._name, exc_info=job.error)

        job = Job(call, ended)
        with contextlib.suppress(errors.ClosedError):
            self.submit(job)

    def submit(self, job: Job) -> None:
        """Queues a call. A poll under way lets it go first."""
        with self._lock:
            if self._closed:
                raise errors.ClosedError("this client is closed")
            self._jobs.put(job)  # under the lock: behind the end of the thread nothing would make it
            self._queued += 1
            if self._yields:
                self._interrupt()
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(weakref.ref(self), self._jobs), name=self._name, daemon=True)
            self._thread.start()

    def _cancel(self, job: Job) -> None:
        with self._lock:
            job.cancelled = True
            if self._current is job and not self._listening:
                self._interrupt()

    def wakeup(self) -> None:
        """Ends a poll under way, or else the next one, with WakeupError. Any thread may call it."""
        with self._lock:
            self._woken = True
            if self._yields:
                self._interrupt()

    def __del__(self) -> None:
        self._jobs.put(None)

    def close(self) -> None:
        """Ends the thread once it has made the calls that are queued."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)

    # ---- on the client's thread --------------------------------------------------------------------------------------------------

    def make(self, job: Job) -> None:
        """Makes one call."""
        with self._lock:
            self._queued -= 1
            if job.started:  # it was given up
                return
            job.started = True
            closes = self._closes
            cut = closes is not None and closes is not job
            before, self._current = self._current, job
            yields, self._yields = self._yields, False
        try:
            if cut:
                job.cancelled = True
            job.make()
        finally:
            with self._lock:
                cut = self._closes is not None and self._closes is not job
                if self._closes is job:
                    self._closes = None
                self._current, self._yields = before, yields
                self._settle()
        if cut and ((job.error is None and job.cancelled) or isinstance(job.error, errors.WakeupError)):
            job.error = errors.ClosedError("this client was closed while the call was under way")
        job.end()  # the client is free before its caller goes on

    def polling(self, poll: Callable[[float | None], T], timeout: float | None, now_s: Callable[[], float]) -> T:
        """A call that lets others go first.

        Args:
            poll: waits so many seconds, None without limit; raises WakeupError when it is interrupted.
            timeout: seconds in all.
            now_s: the time.
        """
        job = self._current
        assert job is not None
        end = None if timeout is None else now_s() + timeout
        self._open = job
        try:
            return self._poll_on(job, poll, end, now_s)
        finally:
            self._open = None

    def _poll_on(self, job: Job, poll: Callable[[float | None], T], end: float | None, now_s: Callable[[], float]) -> T:
        while True:
            self._serve()
            with self._lock:
                if self._woken or job.cancelled:
                    self._woken = False
                    raise errors.WakeupError
                self._yields = True
            try:
                if self._closed or self._jobs.empty():  # closed: the poll says so, and the end of the thread is queued
                    return poll(None if end is None else max(0.0, end - now_s()))
            except errors.WakeupError:
                pass  # for another call, or for the look above
            finally:
                with self._lock:
                    self._yields = False
                    self._settle()

    def _serve(self) -> None:
        """Makes the calls that wait."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._jobs.put(None)
                return
            if job is not _LISTENER_ENDED:
                self.make(job)

    def in_loop(self, call: Callable[[], Any]) -> Any:
        """Calls something in the loop and awaits it if it can be awaited; until it ends, makes the calls that come from there.

        Raises:
            Exception: what it raised.
        """
        loop, asking = self._loop, self._current
        assert loop is not None
        closing = False
        later: list[Job] = []
        outcome: list[Any] = []
        ended: list[BaseException | None] = []

        async def run() -> None:
            _listens_to.set(self)
            try:
                found = call()
                outcome.append(await found if inspect.isawaitable(found) else found)
                ended.append(None)
            except BaseException as error:
                ended.append(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                self._jobs.put(_LISTENER_ENDED)

        running = run()
        with self._lock:
            opened, self._open = self._open, asking
            before, self._listening = self._listening, True
            yields, self._yields = self._yields, False
        try:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                asyncio.run_coroutine_threadsafe(running, loop)
            while not ended:
                try:
                    job = self._jobs.get(timeout=_LOOK_S)
                except queue.Empty:
                    job = _LISTENER_ENDED
                if loop.is_closed() and not ended:
                    self._jobs.put(job)
                    raise errors.IllegalStateError("the event loop was closed before the listener had ended")
                if job is None:
                    closing = True  # the thread ends after this
                elif job.alone and job.context.get(_listens_to) is not self:
                    later.append(job)
                elif job is not _LISTENER_ENDED:
                    self.make(job)
        finally:
            for job in later:
                self._jobs.put(job)
            with self._lock:
                self._listening, self._yields, self._open = before, yields, opened
                if (asking is not None and asking.cancelled) or (yields and (self._woken or not self._jobs.empty())):
                    self._interrupt()  # what came since the listener ended found a call that did not yield
            if closing:
                self._jobs.put(None)
            if not ended:
                running.close()
        if ended[0] is not None:
            raise ended[0]
        return outcome[0]


_LISTENER_ENDED = Job(lambda: None, lambda: None)


def _work(thread: weakref.ref[CallThread], jobs: queue.SimpleQueue[Job | None]) -> None:
    while True:
        job = jobs.get()
        owner = thread()
        if job is None or owner is None:
            return
        if job is not _LISTENER_ENDED:
            owner.make(job)
        del job, owner


def awaited(
    method: Callable[Concatenate[Any, P], T], *, alone: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of a synchronous client as a coroutine of its asyncio face: made by the client's thread. What it waits for the calls before
    it counts against its `timeout`.

    Args:
        method: whose `timeout`, if it has one, is in seconds; None means `default_api_timeout_ms`.
        alone: it waits for the end of a listener.
    """
    parameters = inspect.signature(method).parameters
    if "timeout" not in parameters:

        async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._calls.run(lambda: method(self._client, *args, **kwargs), alone=alone)  # type: ignore[no-any-return]

        return _described(call, method)  # type: ignore[no-any-return]
    by_name = parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY
    place = sys.maxsize if by_name else list(parameters).index("timeout") - 1

    async def timed(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        given: Any = args[place] if place < len(args) else kwargs.get("timeout")
        timeout_s = _seconds(self.config.default_api_timeout_ms / 1000 if given is None else given)
        asked_s = time.monotonic()

        def made() -> T:
            waited_s = time.monotonic() - asked_s
            if timeout_s is None or waited_s < _PROMPT_S:
                return method(self._client, *args, **kwargs)
            left: Any = {**kwargs, "timeout": max(0.0, timeout_s - waited_s)}
            return method(self._client, *args[:place], **left)  # type: ignore[arg-type]

        try:
            return await self._calls.run(made, timeout_s)  # type: ignore[no-any-return]
        except NotMade:
            late = f"{method.__name__}() was not made within {timeout_s:g} s: the calls of other tasks before it had not ended"
            raise errors.KafkaTimeoutError(late) from None

    return _described(timed, method)  # type: ignore[no-any-return]


def _seconds(given: Any) -> float | None:
    """A time-out; None for what is no number of seconds, which the call itself refuses, or has no end."""
    try:
        return float(given) if math.isfinite(given) else None
    except (TypeError, ValueError):
        return None


def immediate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of a synchronous client that never waits, as a plain call of its asyncio face."""

    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._calls.call_now(lambda: method(self._client, *args, **kwargs))  # type: ignore[no-any-return]

    return _described(call, method)  # type: ignore[no-any-return]


def _described(call: Any, method: Any) -> Any:
    call.__name__, call.__qualname__, call.__doc__ = method.__name__, method.__qualname__, method.__doc__
    call.__wrapped__ = method
    return call
