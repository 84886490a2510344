"""The timing wheel: Kafka's classes around it, the worked examples of its articles, a model against a heap."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacore.timer import TaskCounter, TimerTask, TimerTaskEntry, TimerTaskList, TimingWheel
from tests.kit.reached import Reached
from tests.kit.rows import each_row
from tests.kit.timers import entry, noop

FAR_MS = 2**63 - 1
FOREVER_MS = 2**61 - 1  # what is later counts as this


class NotesItself(TimerTask):
    def __init__(self, delay_ms, log=None):
        super().__init__(delay_ms)
        self.log = log

    def run(self):
        self.log.append(self)


# ---- the worked examples -----------------------------------------------------------------------------------------------------------


def test_a_task_of_445_ms_falls_from_level_3_to_level_2_to_level_1():
    wheel = TimingWheel(1, 20, 0)
    due = entry(445)
    assert wheel.add(due)
    assert wheel.position(due) == (3, 1)
    assert wheel.next_deadline_ms() == 445
    assert wheel.pop_expired(399) == []
    assert wheel.position(due) == (3, 1)
    assert wheel.pop_expired(400) == []
    assert wheel.position(due) == (2, 2)
    assert wheel.next_deadline_ms() == 445
    assert wheel.pop_expired(440) == []
    assert wheel.position(due) == (1, 5)
    assert wheel.next_deadline_ms() == 445
    assert wheel.pop_expired(444) == []
    assert wheel.pop_expired(445) == [due.task]
    assert wheel.next_deadline_ms() is None


# ---- TimingWheelTest of Kafka ------------------------------------------------------------------------------------------------------

START_MS, TICK_MS, SIZE = 1000, 10, 5


@pytest.fixture
def counter():
    return TaskCounter()


@pytest.fixture
def wheel(counter):
    return TimingWheel(TICK_MS, SIZE, START_MS, counter)


def test_a_cancelled_task_is_refused(wheel, counter):
    late = entry(START_MS + 5 * TICK_MS)
    late.task.cancel()
    assert late.cancelled()
    assert not wheel.add(late)
    assert counter.value == 0


# ---- TimerTaskListTest of Kafka ----------------------------------------------------------------------------------------------------


def test_lists_count_what_they_hold_and_moving_does_not_change_the_sum(counter):
    one, two, three = (TimerTaskList(counter) for _ in range(3))
    entries = [TimerTaskEntry(TimerTask(0, noop), i) for i in range(10)]
    for i, e in enumerate(entries):
        one.add(e)
        assert counter.value == i + 1
    for e in entries[:4]:
        two.add(e)
        assert counter.value == 10
    assert (len(one), len(two), len(three)) == (6, 4, 0)
    for e in entries[4:]:
        three.add(e)
        assert counter.value == 10
    assert (len(one), len(two), len(three)) == (0, 4, 6)
    assert list(two) == entries[:4]
    assert entries[0].list is two
    for e in entries[:4]:
        e.task.cancel()
    assert (len(two), len(three), counter.value) == (0, 6, 6)
    for e in list(three):
        e.task.cancel()
    assert (len(three), counter.value) == (0, 0)


def test_a_task_stands_in_one_list_only(counter):
    one, two = TimerTaskList(counter), TimerTaskList(counter)
    task = TimerTask(5, noop)
    before = TimerTaskEntry(task, 10)
    one.add(before)
    after = TimerTaskEntry(task, 20)
    assert before.cancelled()
    assert not after.cancelled()
    assert (len(one), before.list, task.timer_task_entry) == (0, None, after)
    two.add(after)
    assert not one.remove(after)
    assert two.remove(after)
    assert not two.remove(after)
    assert task.timer_task_entry is after
    assert counter.value == 0


def test_flushing_hands_out_everything_in_order_and_makes_the_list_idle(counter):
    one = TimerTaskList(counter)
    entries = [entry(i) for i in range(5)]
    for e in entries:
        one.add(e)
    assert one.set_expiration(7)
    assert not one.set_expiration(7)
    assert one.get_expiration() == 7
    seen = []
    one.flush(seen.append)
    assert seen == entries
    assert (one.get_expiration(), len(one), counter.value) == (-1, 0, 0)


def test_the_delay_of_a_list_is_in_milliseconds():
    one = TimerTaskList()
    one.set_expiration(10_000)
    assert one.get_delay_ms(5_000) == 5_000
    assert one.get_delay_ms(20_000) == 0


# ---- tasks -------------------------------------------------------------------------------------------------------------------------


def test_a_task_is_a_callable_or_a_subclass():
    log = []
    wheel = TimingWheel()
    for task in (NotesItself(3, log), TimerTask(4, lambda: log.append("fn"))):
        wheel.add(TimerTaskEntry(task, task.delay_ms))
    wheel.call_at(5, TimerTask(0, lambda: log.append("task by handle")))
    wheel.call_at(6, lambda: log.append("callable"))
    assert wheel.run_expired(6) == 4
    assert [type(item) for item in log] == [NotesItself, str, str, str]
    assert log[1:] == ["fn", "task by handle", "callable"]
    with pytest.raises(TypeError, match="neither"):
        TimerTask(1).run()


def test_what_is_no_wheel_is_refused():
    for size in (1, 0, -3, 2**21):
        with pytest.raises(ValueError, match="wheel_size"):
            TimingWheel(1, size)
    for tick in (0, -1, 2**62):
        with pytest.raises(ValueError, match="tick_ms"):
            TimingWheel(tick, 20)
    with pytest.raises(ValueError, match="start_ms"):
        TimingWheel(1, 20, 2**63 - 1)
    with pytest.raises(TypeError):
        TimingWheel().add(None)
    with pytest.raises(TypeError):
        TimingWheel().call_at(1, None)
    with pytest.raises(TypeError):
        TimerTaskEntry(None, 1)


@each_row("handle", [-1, 0, 1, 20, 2**32, 2**40 + 3, FAR_MS, -FAR_MS])
def test_a_handle_that_was_never_given_out_cancels_nothing(handle):
    wheel = TimingWheel()
    kept = wheel.call_at(10, noop)
    if handle != kept:
        assert not wheel.cancel(handle)
        assert wheel.cancel_many([handle, handle]) == 0
        assert wheel.position(handle) is None
    assert len(wheel) == 1


def test_refused_times_of_many_add_nothing():
    wheel = TimingWheel()
    for bad in (["x"], [[1, 2]], [2**70]):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            wheel.add_many(bad)
    assert len(wheel) == 0


# ---- running -----------------------------------------------------------------------------------------------------------------------


def test_a_task_that_raises_is_logged_once_and_stops_nobody(caplog):
    wheel = TimingWheel()
    log = []

    def fail():
        raise LookupError("broken on purpose")

    for task in (lambda: log.append(1), fail, lambda: log.append(2)):
        wheel.call_at(5, task)
    assert wheel.run_expired(5) == 3
    assert log == [1, 2]
    (record,) = caplog.records
    assert "fail" in record.getMessage()
    assert isinstance(record.exc_info[1], LookupError)


def test_ctrl_c_inside_a_task_loses_no_other():
    wheel = TimingWheel()
    log = []

    def interrupt():
        raise KeyboardInterrupt

    for task in (lambda: log.append(1), interrupt, lambda: log.append(2)):
        wheel.call_at(5, task)
    with pytest.raises(KeyboardInterrupt):
        wheel.run_expired(5)
    assert (log, len(wheel), wheel.next_deadline_ms()) == ([1], 1, 5)
    assert wheel.run_expired(5) == 1
    assert log == [1, 2]


def test_a_task_may_cancel_others_and_add_others():
    wheel = TimingWheel()
    log = []
    task = NotesItself(0, log)

    def first():
        wheel.cancel(other)
        task.cancel()
        wheel.call_at(5, lambda: log.append("late"))
        wheel.call_at(7, lambda: log.append("later"))

    wheel.call_at(5, first)
    other = wheel.call_at(5, lambda: log.append("cancelled"))
    wheel.add(TimerTaskEntry(task, 5))
    last = wheel.call_at(5, lambda: log.append("last"))
    wheel.run_expired(5)
    assert "last" in log
    assert not wheel.cancel(last)
    wheel.run_expired(5)
    assert log == ["last", "late"]
    assert wheel.run_expired(7) == 1
    assert len(wheel) == 0


def test_a_task_that_adds_itself_anew_does_not_run_for_ever():
    wheel = TimingWheel()
    count = 0

    def again():
        nonlocal count
        count += 1
        wheel.call_at(0, again)

    again()
    assert wheel.run_expired(0) == 1
    assert wheel.run_expired(0) == 1
    assert count == 3


def test_the_deadline_of_a_few_timers_is_exact_and_that_of_many_wakes_once_a_level():
    wheel = TimingWheel(1, 20, 0)
    for when in (123_460, 123_456):
        wheel.call_at(when, noop)
    assert wheel.next_deadline_ms() == 123_456
    soon = wheel.call_at(9_000, noop)
    assert wheel.next_deadline_ms() == 9_000
    wheel.cancel(soon)
    assert wheel.next_deadline_ms() <= 123_456
    for _ in range(100):
        wheel.call_at(123_456, noop)
    wakes = []
    while not wakes or wakes[-1] < 123_456:
        wakes.append(wheel.next_deadline_ms())
        done = wheel.run_expired(wakes[-1])
    assert done == 101
    assert len(wakes) <= 4
    assert wheel.run_expired(wheel.next_deadline_ms()) == 1
    assert wheel.next_deadline_ms() is None


def test_a_wheel_of_cancelled_timers_has_no_deadline():
    wheel = TimingWheel(1, 20, 0)
    assert wheel.cancel(wheel.call_at(5, noop))
    assert wheel.next_deadline_ms() is None
    wheel.call_at(500, noop)
    assert wheel.next_deadline_ms() == 500


# ---- references --------------------------------------------------------------------------------------------------------------------


class Holder:
    pass


def test_a_wheel_that_goes_lets_its_entries_go():
    counter = TaskCounter()
    wheel = TimingWheel(1, 20, 0, counter)
    kept = entry(50)
    wheel.add(kept)
    wheel.call_at(60, noop)
    wheel.add_many([70, 80])
    assert counter.value == 4
    del wheel
    assert (counter.value, kept.list, kept.cancelled()) == (0, None, False)
    kept.remove()
    other = TimingWheel(1, 20, 0, counter)
    assert other.add(kept)
    assert kept.list is other


def test_what_a_dying_wheel_calls_back_finds_nothing_of_it():
    log = []

    class Touchy(TimerTask):
        def __del__(self):
            log.append(sibling.list)
            sibling.remove()
            log.append(other.add(sibling))

    wheel, other = TimingWheel(), TimingWheel()
    sibling = entry(50)
    wheel.add(TimerTaskEntry(Touchy(0), 50))
    wheel.add(sibling)
    del wheel
    assert log == [None, True]
    assert sibling.list is other
    assert other.pop_expired(50) == [sibling.task]


def test_references_and_the_counter_come_back_to_where_they_were():
    counter = TaskCounter()
    wheel = TimingWheel(1, 20, 0, counter)
    task, fn = TimerTask(0, noop), Holder()
    before = sys.getrefcount(task), sys.getrefcount(fn)
    for i in range(1000):
        now = i * 10
        wheel.call_at(now + 5, fn)
        wheel.cancel(wheel.call_at(now + 500, fn))
        wheel.cancel_many([wheel.call_at(now + 500, fn)])
        wheel.add(TimerTaskEntry(task, now + 300))
        wheel.add(TimerTaskEntry(task, now + 5))
        assert wheel.pop_expired(now + 5) == [fn, task]
    task.cancel()
    assert (sys.getrefcount(task), sys.getrefcount(fn)) == before
    assert (counter.value, len(wheel), task.timer_task_entry) == (0, 0, None)


# ---- the model ---------------------------------------------------------------------------------------------------------------------

TIMES = st.one_of(
    st.integers(-2, 22),
    st.sampled_from([0, 1, 5, 19, 20, 40, 399, 400, 401, 8000, 8001, FAR_MS, -FAR_MS, 2**61, -(2**61), 2**60]),
    st.integers(-(10**6), 10**9),
)
reached = Reached(
    *("due at once", "added again", "cancelled when due", "beyond the last level"),
    *("in the place of another", "two at once", "tasks and handles at once"),
)


class WheelAgainstHeap(RuleBasedStateMachine):
    """A wheel beside a dict of what it must hold; all kinds of timers mixed. Time goes in any steps, also backwards (ignored)."""

    @initialize(
        tick=st.sampled_from([1, 1, 1, 2, 7, 10, 1000]),
        size=st.sampled_from([2, 3, 5, 20, 20, 64, 1000]),
        start=st.sampled_from([0, 1000, -12345, 1_700_000_000_000]),
    )
    def begin(self, tick, size, start):
        self.counter = TaskCounter()
        self.wheel = TimingWheel(tick, size, start, self.counter)
        self.tick, self.now = tick, start
        self.floor = start - start % tick
        self.tasks = {}  # task -> expiration
        self.handles = {}  # handle -> (expiration, task or None)
        self.gone = []

    def when(self, offset):
        """Near the time that it is, or far away."""
        return max(min(self.now + offset, FOREVER_MS), -FOREVER_MS)

    @rule(offsets=st.lists(TIMES, min_size=1, max_size=5))
    def add_entries(self, offsets):
        for when in map(self.when, offsets):
            task = TimerTask(0, noop)
            reached("beyond the last level", when == FOREVER_MS)
            if self.wheel.add(TimerTaskEntry(task, when)):
                self.tasks[task] = when
                assert when >= self.floor + self.tick
            else:
                reached("due at once")
                assert when < self.floor + self.tick

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), offset=TIMES)
    def add_again(self, data, offset):
        task = data.draw(st.sampled_from(list(self.tasks)))
        when = self.when(offset)
        if self.wheel.add(TimerTaskEntry(task, when)):
            reached("added again")
            self.tasks[task] = when
        else:
            del self.tasks[task]

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), how=st.sampled_from(["cancel", "remove"]))
    def cancel_task(self, data, how):
        task = data.draw(st.sampled_from(list(self.tasks)))
        if how == "cancel":
            task.cancel()
        else:
            task.timer_task_entry.remove()
        del self.tasks[task]

    @rule(offsets=st.lists(TIMES, min_size=1, max_size=5))
    def add_handles(self, offsets):
        for when in map(self.when, offsets):
            task = Holder()
            handle = self.wheel.call_at(when, task)
            reached("in the place of another", any(handle & 0xFFFFFFFF == old & 0xFFFFFFFF for old in self.gone))
            assert handle not in self.gone
            self.handles[handle] = when, task

    @rule(offsets=st.lists(TIMES, max_size=20))
    def add_many(self, offsets):
        whens = [self.when(offset) for offset in offsets]
        for handle, when in zip(self.wheel.add_many(np.array(whens, np.int64)).tolist(), whens, strict=True):
            assert handle not in self.handles
            self.handles[handle] = when, None

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel_handle(self, data):
        handle = data.draw(st.sampled_from(list(self.handles)))
        assert self.wheel.cancel(handle)
        del self.handles[handle]
        self.gone.append(handle)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel_many(self, data):
        live = data.draw(st.lists(st.sampled_from(list(self.handles)), max_size=10, unique=True))
        dead = data.draw(st.lists(st.sampled_from(self.gone), max_size=3)) if self.gone else []
        assert self.wheel.cancel_many(live + dead + live) == len(live)
        for handle in live:
            del self.handles[handle]
        self.gone += live

    @rule(step=st.one_of(st.integers(-2, 22), st.integers(0, 10**9), st.sampled_from([400, 2**40, 2**61])), cancels=st.booleans())
    def move(self, step, cancels):
        self.now = min(max(self.now, self.now + step), FOREVER_MS)
        self.wheel.advance_clock(self.now + min(step, 0))
        self.floor = max(self.floor, self.now - self.now % self.tick)
        if cancels and (task := next((task for task, when in self.tasks.items() if when <= self.now), None)):
            reached("cancelled when due")
            task.cancel()
            del self.tasks[task]

    @rule(step=st.one_of(st.integers(0, 22), st.integers(0, 10**9)), many_first=st.booleans())
    def pop(self, step, many_first):
        self.now = min(self.now + step, FOREVER_MS)
        self.floor = max(self.floor, self.now - self.now % self.tick)
        may_tasks, may_handles = self.due(self.now)
        must_tasks, must_handles = self.due(self.now if self.now % self.tick == self.tick - 1 else self.floor - 1)
        if many_first:
            many = self.wheel.pop_expired_many(self.now).tolist()
        popped = self.wheel.pop_expired(self.now)
        if not many_first:
            many = self.wheel.pop_expired_many(self.now).tolist()
        assert len(popped) == len(set(popped))
        tasks = {task for task in popped if isinstance(task, TimerTask)}
        by_task = {task: handle for handle, (_, task) in self.handles.items() if task is not None}
        handles = {by_task[task] for task in popped if not isinstance(task, TimerTask)} | set(many)
        assert must_tasks <= tasks <= may_tasks
        assert must_handles <= handles <= may_handles
        reached("two at once", len(tasks) + len(handles) > 1)
        reached("tasks and handles at once", tasks and handles)
        for task in tasks:
            del self.tasks[task]
        for handle in handles:
            assert (self.handles.pop(handle)[1] is None) == (handle in many)
            assert not self.wheel.cancel(handle)
        self.gone += sorted(handles)

    def due(self, by):
        return {t for t, when in self.tasks.items() if when <= by}, {h for h, (when, _) in self.handles.items() if when <= by}

    @precondition(lambda self: self.wheel.next_deadline_ms() is not None)
    @rule()
    def sleep_until_the_deadline(self):
        deadline = self.wheel.next_deadline_ms()
        first = min([*self.tasks.values(), *(when for when, _ in self.handles.values())], default=None)
        if first is not None:
            assert deadline <= max(first + self.tick - 1, self.now)
        if deadline > self.now:
            self.pop(deadline - self.now, False)

    @invariant()
    def counts_agree(self):
        if hasattr(self, "wheel"):
            assert len(self.wheel) == self.counter.value == len(self.tasks) + len(self.handles)
            if self.tasks or self.handles:
                assert self.wheel.next_deadline_ms() is not None

    def teardown(self):
        if hasattr(self, "wheel"):
            self.wheel.pop_expired(FAR_MS)
            self.wheel.pop_expired_many(FAR_MS)
            assert len(self.wheel) == self.counter.value == 0
            assert self.wheel.next_deadline_ms() is None


TestWheelAgainstHeap = reached.by(WheelAgainstHeap)
TestWheelAgainstHeap.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
