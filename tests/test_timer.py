"""SystemTimer, its reaper, LoopTimer: threads around the wheel. Clocks are moved by hand; nothing here waits for time to pass, but the
few tests of real threads on the real clock, which wait for what they started."""

import random
import threading
from functools import partial
from types import SimpleNamespace

import pytest

from kafkacore.clock import ManualClock, SystemClock
from kafkacore.timer import LoopTimer, SystemTimer, SystemTimerReaper, TimerTask, TimingWheel
from tests.kit.in_threads import in_threads
from tests.kit.inside import condition_of, executor_of, thread_of

WAIT_S = 90


@pytest.fixture
def clock():
    return ManualClock(1000)


class CountingDown(TimerTask):
    """Kafka's TestTask: notes its id and counts down."""

    def __init__(self, delay_ms, number, output, done):
        super().__init__(delay_ms)
        self.number, self.output, self.done = number, output, done

    def run(self):
        self.output.append(self.number)
        self.done.release()


def finished(timer):
    """Waits until the executor has run what it was given."""
    done = threading.Event()
    timer.add(TimerTask(-1, done.set))
    assert done.wait(WAIT_S)


# ---- TimerTest of Kafka (tick 1, size 3) -------------------------------------------------------------------------------------------


@pytest.fixture
def timer(clock):
    with SystemTimer("test", tick_ms=1, wheel_size=3, clock=clock) as timer:
        yield timer


@pytest.mark.parametrize("seed", range(3))
def test_every_task_runs_exactly_once_in_any_order_of_adding(timer, clock, seed):
    delays = [*range(5), *(d for d in range(10, 100) for _ in range(2)), *range(100, 500)]
    order = list(enumerate(delays))
    random.Random(seed).shuffle(order)
    output, done = [], threading.Semaphore(0)
    for i, delay_ms in order:
        timer.add(CountingDown(delay_ms, i, output, done))
    assert timer.size() == len(delays) - 1
    while timer.size():
        clock.advance(1)
        while timer.advance_clock(0):
            pass
    for _ in delays:
        assert done.acquire(timeout=WAIT_S)
    assert sorted(output) == list(range(len(delays)))
    by_time = [delays[i] for i in output]
    assert by_time == sorted(by_time)


def test_a_task_added_again_starts_anew(timer, clock):
    count = []
    task = TimerTask(10, lambda: count.append(clock.now_ms()))
    timer.add(task)
    clock.advance(8)
    timer.add(task)
    assert timer.size() == 1
    for _ in range(20):
        clock.advance(1)
        while timer.advance_clock(0):
            pass
    finished(timer)
    assert len(count) == 1
    timer.add(task)
    task.cancel()
    assert timer.size() == 0


def test_closing_ends_the_executor_from_any_thread_and_twice(timer):
    output, done = [], threading.Semaphore(0)
    timer.add(CountingDown(0, 1, output, done))
    in_threads(4, lambda i: timer.close())
    timer.close()
    assert output == [1]
    assert timer.closed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("executor-test")]
    timer.add(CountingDown(0, 2, output, done))
    assert output == [1]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_failing_task_is_logged_once_and_stops_nobody(timer, clock, caplog, error):
    output, done = [], threading.Semaphore(0)

    def fail():
        raise error("on purpose")

    for task in (TimerTask(5, fail), CountingDown(5, 1, output, done), TimerTask(0, fail), CountingDown(0, 2, output, done)):
        timer.add(task)
    clock.advance(5)
    while timer.advance_clock(0):
        pass
    finished(timer)
    assert sorted(output) == [1, 2]
    assert [type(record.exc_info[1]) for record in caplog.records] == [error, error]


def test_an_interrupt_between_the_wheel_and_the_executor_loses_no_task(timer, clock):
    output, done = [], threading.Semaphore(0)
    executor = executor_of(timer)
    submit, executor.submit = executor.submit, lambda fn: (_ for _ in ()).throw(KeyboardInterrupt)
    timer.add(CountingDown(5, 1, output, done))
    clock.advance(5)
    with pytest.raises(KeyboardInterrupt):
        while True:
            timer.advance_clock(0)
    executor.submit = submit
    timer.advance_clock(0)
    assert done.acquire(timeout=WAIT_S)
    assert output == [1]


def test_tasks_are_handed_over_together_and_to_one_thread(timer):
    executor, given, waited, output, done = executor_of(timer), [], [], [], threading.Semaphore(0)
    submit, shutdown = executor.submit, executor.shutdown
    executor.submit, executor.shutdown = given.append, lambda wait: waited.append(wait)
    timer.add(CountingDown(0, 1, output, done))
    timer.add(CountingDown(0, 2, output, done))
    assert (len(given), output) == (1, [])
    timer.close()
    given[0]()
    timer.close()
    timer.advance_clock(0)
    timer.add(CountingDown(0, 3, output, done))
    assert (len(given), output) == (2, [1, 2])
    assert waited == [True, False]  # the thread that runs the tasks cannot wait for its own end
    executor.submit, executor.shutdown = submit, shutdown


def test_a_second_task_waits_for_the_first_in_one_thread(timer):
    running, leave = threading.Event(), threading.Event()
    timer.add(TimerTask(0, lambda: (running.set(), leave.wait(WAIT_S))))
    assert running.wait(WAIT_S)
    timer.add(TimerTask(0, list))
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("executor-")] == ["executor-test_0"]
    leave.set()


@pytest.mark.parametrize(("error", "closed"), [(RuntimeError, False), (ValueError, True)])
def test_an_executor_that_takes_nothing_is_an_error_unless_it_is_closed(timer, error, closed):
    def refuse(fn):
        raise error("on purpose")

    if closed:
        timer.close()
    executor_of(timer).submit = refuse
    with pytest.raises(error, match="on purpose"):
        timer.add(TimerTask(0, list))


# ---- waiting -----------------------------------------------------------------------------------------------------------------------


class Sleeper(threading.Thread):
    """Calls advance_clock(None) once."""

    def __init__(self, timer):
        super().__init__(daemon=True)
        self.timer = timer
        self.answer = None

    def run(self):
        self.answer = self.timer.advance_clock(None)


def asleep(timer):
    """Waits until a thread sleeps in the timer: it has taken the lock, and given it back to wait."""
    while timer.asleep_until_ms <= -(2**61):
        pass
    with condition_of(timer):
        pass


def test_who_sleeps_is_woken_by_an_earlier_task_a_wakeup_and_the_end(clock):
    timer = SystemTimer("test", clock=clock)
    timer.add(TimerTask(10_000, list))
    for wake, was_due in ((lambda: clock.advance(20_000) and timer.wakeup(), True), (timer.wakeup, False), (timer.close, False)):
        sleeper = Sleeper(timer)
        sleeper.start()
        asleep(timer)
        wake()
        sleeper.join(WAIT_S)
        assert (sleeper.is_alive(), sleeper.answer) == (False, was_due)
    timer = SystemTimer("test", clock=clock)
    timer.add(TimerTask(10_000, list))
    sleeper = Sleeper(timer)
    sleeper.start()
    asleep(timer)
    assert timer.asleep_until_ms <= clock.now_ms() + 10_000
    clock.advance(5)
    timer.add(TimerTask(1, list))
    clock.advance(1)
    timer.wakeup()
    sleeper.join(WAIT_S)
    assert not sleeper.is_alive()
    timer.close()


class Moved(SystemClock):
    """The machine's clock, moved by hand. A wait for a timer's condition moves it on, by 1 ms at least."""

    def __init__(self, monkeypatch):
        self.ns, self.waits, self.calls = 0, [], []
        monkeypatch.setattr("kafkacore.clock.time", SimpleNamespace(monotonic_ns=lambda: self.ns))

    def wait(self, left_s):
        self.waits.append(left_s)
        assert len(self.waits) < 9
        self.ns += max(round(left_s * 10**9), 10**6)

    def now_ms(self):
        now_ms = super().now_ms()
        if self.calls:
            self.calls.pop()()
        return now_ms

    def waited(self, timer, timeout_ms):
        """What a call answers, and for how long it waits."""
        self.waits = []
        return timer.advance_clock(timeout_ms), *self.waits


@pytest.fixture
def moved(monkeypatch):
    return Moved(monkeypatch)


@pytest.fixture
def sleeping(moved):
    with SystemTimer("test", clock=moved) as timer:
        condition_of(timer).wait = moved.wait
        yield timer
    assert timer.closed


def test_a_wait_ends_with_the_timeout_or_the_next_bucket(sleeping, moved):
    for timeout_ms in (1, 700):
        assert moved.waited(sleeping, timeout_ms) == (False, timeout_ms / 1000)
    moved.ns += 10**6
    assert moved.waited(sleeping, -1) == moved.waited(sleeping, 0) == (False,)
    assert sleeping.wheel.current_time == 702
    sleeping.add(TimerTask(15, list))
    sleeping.add(TimerTask(25, list))
    assert moved.waited(sleeping, 14) == (False, 0.014)
    assert sleeping.wheel.current_time == 716
    assert moved.waited(sleeping, 9) == (True, 0.001)
    assert sleeping.size() == 1
    assert moved.waited(sleeping, None) == (True, 0.01)
    assert (sleeping.size(), sleeping.next_deadline_ms()) == (0, None)
    assert sleeping.asleep_until_ms < 0
    sleeping.add(TimerTask(3, list))
    moved.ns += 3 * 10**6
    assert moved.waited(sleeping, 0) == (True,)


def test_a_wakeup_ends_one_wait_of_a_call_that_would_wait(sleeping, moved):
    sleeping.wakeup()
    assert moved.waited(sleeping, 0) == (False,)
    assert moved.waited(sleeping, 50) == (False,)
    assert moved.waited(sleeping, 50) == (False, 0.05)


def test_a_task_that_comes_between_the_look_at_the_wheel_and_the_wait_is_not_slept_through(sleeping, moved):
    sleeping.add(TimerTask(19, list))
    moved.calls = [lambda: sleeping.add(TimerTask(4, list)), list]  # the timer asks for the second time when it has looked
    assert moved.waited(sleeping, None) == (True, 0.004)


def test_a_reaper_runs_tasks_by_itself_and_sleeps_in_between():
    """SystemTimerReaperTest of Kafka, with shorter delays; the thread wakes for buckets and for nothing else."""
    timer = SystemTimer("reaped")
    wakes = []
    advance = timer.advance_clock
    timer.advance_clock = lambda timeout_ms=None: wakes.append(timeout_ms) or advance(timeout_ms)
    reaper = SystemTimerReaper("reaper", timer)
    output, done = [], threading.Semaphore(0)
    for i, delay_ms in enumerate([10, 20, 30]):
        reaper.add(CountingDown(delay_ms, i, output, done))
    for _ in range(3):
        assert done.acquire(timeout=WAIT_S)
    assert output == [0, 1, 2]
    assert reaper.size() == 0
    assert reaper.next_deadline_ms() is None
    assert set(wakes) == {None}
    assert len(wakes) <= 12
    with pytest.raises(RuntimeError):
        reaper.advance_clock(5)
    in_threads(3, lambda i: reaper.close())
    reaper.close()
    assert not [thread for thread in threading.enumerate() if thread.name in ("reaper", "executor-reaped_0")]


def test_a_reaper_ends_when_its_timer_is_closed_under_it():
    timer = SystemTimer("reaped")
    with SystemTimerReaper("reaper", timer) as reaper:
        timer.close()
        thread_of(reaper).join(WAIT_S)
        assert not thread_of(reaper).is_alive()
    with SystemTimerReaper("reaper", SystemTimer("reaped")) as reaper:
        pass
    assert not thread_of(reaper).is_alive()


def test_a_reaper_may_be_closed_by_a_task():
    reaper = SystemTimerReaper("reaper", SystemTimer("reaped"))
    done = threading.Event()
    reaper.add(TimerTask(1, lambda: (reaper.close(), done.set())))
    assert done.wait(WAIT_S)
    thread_of(reaper).join(WAIT_S)
    assert not thread_of(reaper).is_alive()


# ---- LoopTimer ---------------------------------------------------------------------------------------------------------------------


def test_a_loop_timer_runs_what_is_due_in_the_thread_of_its_owner(clock):
    timer = LoopTimer(clock=clock)
    threads = []
    for delay_ms in (-1, 0, 5, 700):
        timer.add(TimerTask(delay_ms, lambda: threads.append(threading.current_thread())))
    cancelled = TimerTask(0, lambda: threads.append("cancelled"))
    timer.add(cancelled)
    cancelled.cancel()
    assert timer.size() == 4
    assert timer.next_deadline_ms() <= clock.now_ms()
    assert timer.advance_clock()
    assert len(threads) == 2
    wakes = 0
    while (deadline := timer.next_deadline_ms()) is not None:
        clock.advance(max(deadline - clock.now_ms(), 0))
        timer.advance_clock(0)
        wakes += 1
    assert threads == [threading.current_thread()] * 4
    assert clock.now_ms() == 1700
    assert wakes <= 5
    with pytest.raises(ValueError, match="does not wait"):
        timer.advance_clock(None)
    timer.close()


@pytest.mark.parametrize("kind", [LoopTimer, partial(SystemTimer, "test")])
def test_a_wheel_is_as_asked_for(clock, kind):
    default, own = kind(clock=clock), kind(2, 5, 12)
    assert [(timer.wheel.tick_ms, timer.wheel.wheel_size, timer.wheel.start_ms) for timer in (default, own)] == [(1, 20, 1000), (2, 5, 12)]
    default.close()
    own.close()


def test_a_timer_whose_constructor_was_skipped_says_so():
    class Odd(LoopTimer):
        def __init__(self):
            pass

    with pytest.raises(TypeError, match="__init__"):
        Odd().add(TimerTask(1, list))
    with pytest.raises(TypeError, match="__init__"):
        Odd()._pop_into(5, [])


@pytest.mark.parametrize("delay_ms", [2**70, -(2**70)])
def test_any_delay_is_a_time(clock, delay_ms):
    timer = LoopTimer(clock=clock)
    timer.add(TimerTask(delay_ms, list))
    assert timer.advance_clock(0) == (delay_ms < 0)


# ---- races -------------------------------------------------------------------------------------------------------------------------


def test_twenty_threads_add_and_cancel_while_the_clock_advances(busy_switching):
    """Every task runs exactly once or was cancelled, never both, never neither."""
    wheel = TimingWheel(1, 20, 0)
    threads_, each = 20, 200
    ran = [[0] * each for _ in range(threads_)]
    cancelled = [[0] * each for _ in range(threads_)]
    start, working = threading.Barrier(threads_ + 1), threading.Event()
    left = [threads_]
    lock = threading.Lock()

    def work(t):
        rng = random.Random(t)
        mine = []
        start.wait()
        for i in range(each):
            when = now[0] + rng.randrange(-1, 500)

            def run(i=i):
                ran[t][i] += 1

            mine.append((i, wheel.call_at(when, run)))
            if rng.random() < 0.5:
                at, handle = mine.pop(rng.randrange(len(mine)))
                cancelled[t][at] += wheel.cancel(handle)
        with lock:
            left[0] -= 1
            if not left[0]:
                working.set()

    now = [0]

    def drive():
        start.wait()
        while not working.is_set():
            now[0] += 1
            wheel.run_expired(now[0])

    driver = threading.Thread(target=drive)
    driver.start()
    in_threads(threads_, work)
    driver.join(WAIT_S)
    wheel.run_expired(now[0] + 1000)
    assert len(wheel) == 0
    assert {ran[t][i] + cancelled[t][i] for t in range(threads_) for i in range(each)} == {1}
    assert sum(map(sum, cancelled)) > 0


def test_no_wakeup_is_lost_between_a_sleeper_and_those_who_add(busy_switching):
    """The next deadline is noted and the wheel looked at under one lock; who adds looks at the note after adding."""
    timer = SystemTimer("race")
    with SystemTimerReaper("reaper", timer) as reaper:

        def work(t):
            for _ in range(100):
                done = threading.Event()
                reaper.add(TimerTask(1, done.set))
                assert done.wait(WAIT_S)

        in_threads(8, work)
        assert reaper.size() == 0
