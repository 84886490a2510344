"""WheelTimer on loops whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import contextvars
import gc
import random
import selectors
import sys
import weakref

import pytest

from kafkacore.aio import WheelHandle, WheelTimer


class JumpingSelector(selectors.SelectSelector):
    """Lets the time pass that the loop would wait."""

    now_s = 1000.0
    waits = 0

    def select(self, timeout=None):
        assert timeout is not None, "the loop would wait forever"
        if timeout > 0:
            self.now_s += timeout
            self.waits += 1
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.clock = JumpingSelector()
        super().__init__(self.clock)
        self.errors = []
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    def time(self):
        return self.clock.now_s


@pytest.fixture
def loop():
    loop = JumpingLoop()
    yield loop
    loop.close()


@pytest.fixture
def timer(loop):
    with WheelTimer(loop) as timer:
        yield timer


def run_for(loop, seconds):
    """Runs the loop until its clock shows so much more."""

    async def wait():
        await asyncio.sleep(seconds)

    loop.run_until_complete(wait())


def test_calls_come_at_the_same_time_as_the_loops_own(loop, timer):
    mine, own = [], []
    rng = random.Random(1)
    delays = [0, 0.001, 0.0005, 0.02, 0.4, 0.445, 8, 161.234, *(rng.random() * 10 ** rng.randrange(-2, 4) for _ in range(200))]
    for i, delay in enumerate(delays):
        timer.call_later(delay, lambda i=i: mine.append((i, loop.time())))
        loop.call_later(delay, lambda i=i: own.append((i, loop.time())))
    run_for(loop, max(delays) + 1)
    assert sorted(i for i, _ in mine) == sorted(i for i, _ in own) == list(range(len(delays)))
    there = dict(own)
    for i, at in mine:
        assert at >= 1000 + delays[i] - 2e-6
        assert at <= there[i] + 0.001 + 1e-6
    assert len(timer) == 0
    assert loop.errors == []


def test_the_loop_has_one_timer_for_all_and_a_new_one_only_for_an_earlier_deadline(loop, timer):
    armed = []
    call_at = loop.call_at
    timer = WheelTimer(type("Spy", (), {"time": loop.time, "call_at": lambda self, *a: armed.append(a[0]) or call_at(*a)})())
    handles = [timer.call_later(5 + i % 20, list) for i in range(1000)]
    assert len(armed) == 1
    handles.append(timer.call_later(1, list))
    assert len(armed) == 2
    handles += [timer.call_later(3, list) for _ in range(10)]
    assert len(armed) == 2
    assert sum(not handle.cancelled() for handle in loop._scheduled) == 1
    waits = loop.clock.waits
    run_for(loop, 30)
    assert loop.clock.waits - waits < 22 * 4
    assert len(timer) == 0


def test_handles(loop, timer):
    ran = []
    handle = timer.call_later(0.5, ran.append, 1)
    assert handle.when() == 1000.5
    assert not handle.cancelled()
    assert "when=1000.5" in repr(handle)
    handle.cancel()
    handle.cancel()
    assert handle.cancelled()
    assert "cancelled" in repr(handle)
    done = timer.call_at(1000.25, ran.append, 2)
    run_for(loop, 1)
    assert ran == [2]
    done.cancel()
    assert not done.cancelled()
    assert "ran" in repr(done)
    assert len(timer) == 0


def test_past_and_far_times(loop, timer):
    ran = []
    timer.call_later(-5, ran.append, "past")
    timer.call_at(0, ran.append, "before the clock")
    timer.call_at(float("-inf"), ran.append, "never was")
    far = [timer.call_later(1e30, ran.append, "far"), timer.call_at(float("inf"), ran.append, "never")]
    run_for(loop, 0.5)
    assert sorted(ran) == ["before the clock", "never was", "past"]
    assert len(timer) == 2
    for handle in far:
        handle.cancel()
    with pytest.raises(ValueError, match="nan"):
        timer.call_at(float("nan"), list)


def test_calls_may_add_and_cancel_calls(loop, timer):
    ran = []

    def first():
        other.cancel()
        timer.call_later(0, ran.append, "at once")
        timer.call_later(0.1, ran.append, "later")

    timer.call_later(0.2, first)
    other = timer.call_later(0.2, ran.append, "cancelled")
    timer.call_later(0.2, ran.append, "same time")
    run_for(loop, 1)
    assert ran == ["same time", "at once", "later"]


def test_an_exception_goes_to_the_loop_and_stops_nobody(loop, timer):
    ran = []
    bad = timer.call_later(0.1, lambda: 1 / 0)
    timer.call_later(0.1, ran.append, 1)
    run_for(loop, 1)
    assert ran == [1]
    (context,) = loop.errors
    assert isinstance(context["exception"], ZeroDivisionError)
    assert context["handle"] is bad
    assert "lambda" in context["message"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_leaves_the_loop_and_loses_nothing(loop, timer, error):
    ran = []

    def stop():
        raise error

    timer.call_later(0.1, stop)
    timer.call_later(0.1, ran.append, 1)
    timer.call_later(0.2, ran.append, 2)
    with pytest.raises(error):
        run_for(loop, 1)
    assert ran == []
    run_for(loop, 1)
    assert ran == [1, 2]


def test_context_variables_are_those_of_who_added(loop, timer):
    var = contextvars.ContextVar("var", default="none")
    seen = []

    def look():
        seen.append(var.get())
        var.set("changed")

    var.set("mine")
    timer.call_later(0.1, look)
    other = contextvars.copy_context()
    other.run(var.set, "other")
    timer.call_later(0.2, look, context=other)
    var.set("later")
    run_for(loop, 1)
    assert seen == ["mine", "other"]
    assert var.get() == "later"
    assert other[var] == "changed"


def test_closing_takes_all_calls_back(loop):
    timer = WheelTimer(loop)
    ran = []
    handles = [timer.call_later(i, ran.append, i) for i in range(5)]
    timer.close()
    timer.close()
    run_for(loop, 10)
    assert ran == []
    assert all(handle.cancelled() for handle in handles)
    with pytest.raises(RuntimeError, match="closed"):
        timer.call_later(1, list)
    assert len(timer) == 0


def test_a_loop_that_is_closed_refuses_and_keeps_nothing():
    loop = JumpingLoop()
    timer = WheelTimer(loop)
    kept = timer.call_later(5, list)
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        timer.call_later(1, list)
    assert len(timer) == 1
    kept.cancel()
    timer.close()


def test_a_call_may_close_the_timer(loop):
    timer = WheelTimer(loop)
    ran = []
    timer.call_later(0.1, timer.close)
    timer.call_later(0.1, ran.append, 1)
    run_for(loop, 1)
    assert (ran, loop.errors) == ([], [])


def test_what_is_wrong_is_refused(loop, timer):
    with pytest.raises(TypeError, match="callable"):
        timer.call_later(1, None)
    with pytest.raises(TypeError):
        timer.call_later("soon", list)
    with pytest.raises(RuntimeError):
        WheelTimer()
    with pytest.raises(ValueError, match="tick_ms"):
        WheelTimer(loop, tick_ms=0)

    class Odd(WheelTimer):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="__init__"):
        Odd().call_at(1, list)
    assert len(Odd()) == 0
    Odd()._wake()
    Odd().close()
    handle = WheelHandle()
    handle.cancel()
    assert handle.cancelled()


def test_a_coarser_tick_is_late_but_never_early(loop):
    ran = []
    with WheelTimer(loop, tick_ms=100, wheel_size=5) as timer:
        for ms in (10, 95, 100, 101, 2050):
            timer.call_later(ms / 1000, lambda ms=ms: ran.append((ms, loop.time())))
        run_for(loop, 3)
    assert [ms for ms, _ in ran] == [10, 95, 100, 101, 2050]
    assert all(0 <= at - 1000 - ms / 1000 + 1e-5 <= 0.1 + 2e-5 for ms, at in ran)


def test_references_are_given_back(loop):
    class Fn:
        def __call__(self, argument):
            pass

    fn, argument = Fn(), object()
    before = sys.getrefcount(fn), sys.getrefcount(argument)
    timer = WheelTimer(loop)
    timer.call_later(1, fn, argument)
    handle = timer.call_later(2, fn, argument)
    timer.call_later(0.1, fn, argument)
    run_for(loop, 0.5)
    handle.cancel()
    timer.close()
    assert (sys.getrefcount(fn), sys.getrefcount(argument)) == before
    timer = WheelTimer(loop)
    fn.handle = timer.call_later(1, fn, argument)
    gone = [weakref.ref(timer), weakref.ref(fn)]
    loop._scheduled.clear()
    del timer, fn, handle
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_the_running_loop_is_the_default_and_real_loops_work():
    async def main():
        timer = WheelTimer()
        future = asyncio.get_running_loop().create_future()
        timer.call_later(0.002, future.set_result, "done")
        return await future

    assert asyncio.run(main()) == "done"
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == "done"
