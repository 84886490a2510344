"""Tasks and entries as objects: what is made, what the garbage collector sees and counts of it, who keeps whom."""

import gc
import sys
import weakref
from functools import partial

import pytest

from kafkacore.clock import ManualClock
from kafkacore.timer import LoopTimer, TaskCounter, TimerTask, TimerTaskEntry, TimerTaskList, TimingWheel
from tests.kit.rows import each_row
from tests.kit.timers import noop


class Sub(TimerTask):
    def run(self):
        pass


class Owner:
    """As a client: its task calls it, and it keeps the task."""

    def time_out(self):
        pass


# ---- made as by any class ----------------------------------------------------------------------------------------------------------


def test_tasks_and_entries_are_made_by_position_and_by_name():
    for task in (TimerTask(5, noop), TimerTask(5, fn=noop), TimerTask(delay_ms=5, fn=noop), TimerTask(fn=noop, delay_ms=5)):
        assert (task.delay_ms, repr(noop) in repr(task)) == (5, True)
        for make in (
            lambda task: TimerTaskEntry(task, 9),
            lambda task: TimerTaskEntry(task, expiration_ms=9),
            lambda task: TimerTaskEntry(expiration_ms=9, task=task),
        ):
            one = make(task)
            assert (one.task, one.expiration_ms, one.cancelled()) == (task, 9, False)
    assert TimerTask(True).delay_ms == 1
    assert type(Sub(5)) is Sub
    assert Sub(delay_ms=6).delay_ms == 6


@each_row("arguments", [(), (1, noop, 2), ("x",), (None,)])
def test_a_task_of_wrong_arguments_is_refused(arguments):
    with pytest.raises(TypeError):
        TimerTask(*arguments)


@each_row("arguments", [(), (None, 1), (TimerTask(1),), (TimerTask(1), "x"), (noop, 1), (TimerTask(1), 1, 2)])
def test_an_entry_of_wrong_arguments_is_refused(arguments):
    with pytest.raises(TypeError):
        TimerTaskEntry(*arguments)


def test_a_time_that_is_none_leaves_the_task_where_it_was():
    wheel = TimingWheel()
    task = TimerTask(5, noop)
    wheel.add(TimerTaskEntry(task, 5))
    for make in (lambda: TimerTaskEntry(task, 2**70), lambda: TimerTaskEntry(task, "x"), lambda: TimerTask(5, nothing=1)):
        with pytest.raises((TypeError, OverflowError)):
            make()
    assert task.timer_task_entry.list is wheel


def test_an_entry_that_was_not_initialised_or_twice_breaks_nothing():
    blank = TimerTaskEntry.__new__(TimerTaskEntry)
    assert (blank.cancelled(), blank.list) == (True, None)
    blank.remove()
    assert not TimingWheel().add(blank)
    wheel = TimingWheel()
    first, second = TimerTask(5, noop), TimerTask(6, noop)
    one = TimerTaskEntry(first, 5)
    wheel.add(one)
    one.__init__(second, 6)
    assert (len(wheel), first.timer_task_entry, second.timer_task_entry, one.task) == (0, None, one, second)
    wheel.add(one)
    assert wheel.pop_expired(6) == [second]


# ---- entries are views -------------------------------------------------------------------------------------------------------------


def test_an_entry_that_nobody_holds_is_made_again_for_whoever_asks():
    wheel = TimingWheel()
    task = TimerTask(5, noop)
    wheel.add(TimerTaskEntry(task, 50))
    assert sum(isinstance(thing, TimerTaskEntry) and thing.task is task for thing in gc.get_objects()) == 0
    again = task.timer_task_entry
    assert task.timer_task_entry is again
    assert (again.task, again.expiration_ms, again.list, again.cancelled()) == (task, 50, wheel, False)
    assert wheel.position(again) == (2, 2)
    again.remove()
    assert (len(wheel), again.list, task.timer_task_entry) == (0, None, again)
    del again
    assert task.timer_task_entry is None


def test_an_entry_outlives_its_wheel_and_its_turn():
    wheel = TimingWheel()
    task = TimerTask(5, noop)
    kept = TimerTaskEntry(task, 5)
    wheel.add(kept)
    assert wheel.pop_expired(5) == [task]
    assert (kept.list, kept.cancelled(), task.timer_task_entry) == (None, False, kept)
    wheel.add(TimerTaskEntry(task, 50))
    assert (kept.cancelled(), kept.list) == (True, None)
    kept.remove()
    assert len(wheel) == 1
    view = task.timer_task_entry
    del wheel
    assert (view.list, view.cancelled()) == (None, False)


def test_flushing_makes_the_entries_that_are_gone():
    one, other = TimerTaskList(), TimerTaskList()
    tasks = [TimerTask(i, noop) for i in range(5)]
    for i, task in enumerate(tasks):
        one.add(TimerTaskEntry(task, i))
    one.flush(other.add)
    assert (len(one), len(other)) == (0, 5)
    assert [(each.task, each.expiration_ms) for each in other] == [(task, i) for i, task in enumerate(tasks)]


def test_a_list_holds_entries_that_were_cancelled_before():
    counter = TaskCounter()
    one, wheel = TimerTaskList(counter), TimingWheel(1, 20, 0, counter)
    task = TimerTask(5, noop)
    late = TimerTaskEntry(task, 5)
    task.cancel()
    one.add(late)
    wheel.add(TimerTaskEntry(task, 7))
    assert (late.cancelled(), late.list, list(one), counter.value) == (True, one, [late], 2)
    assert task.timer_task_entry.list is wheel
    task.cancel()
    assert (len(one), len(wheel)) == (1, 0)
    assert one.remove(late)
    assert not one.remove(late)
    one.add(late)
    late.remove()
    assert (late.list, counter.value) == (None, 0)
    one.add(late)
    del one
    assert (late.list, counter.value) == (None, 0)


def test_a_task_that_moves_while_its_wheel_dies_stays_where_it_went():
    wheel, other = TimingWheel(), TimingWheel()
    moved = TimerTask(5, noop)

    class Mover(TimerTask):
        def __del__(self):
            other.add(TimerTaskEntry(moved, 9))

    wheel.add(TimerTaskEntry(Mover(0), 50))
    wheel.add(TimerTaskEntry(moved, 50))
    del wheel
    assert moved.timer_task_entry.list is other
    moved.cancel()
    assert len(other) == 0


# ---- the garbage collector ---------------------------------------------------------------------------------------------------------


def test_a_timer_is_one_object_for_the_collector():
    """Tracked, since a cycle can close through its callable; its entry goes with the caller that made it."""
    wheel, tasks = TimingWheel(), []
    gc.collect()
    before = len(gc.get_objects())
    for i in range(1000):
        task = TimerTask(5, noop)
        wheel.add(TimerTaskEntry(task, 5 + i))
        tasks.append(task)
    assert abs(len(gc.get_objects()) - before - 1000) < 50
    assert all(map(gc.is_tracked, tasks))
    assert gc.is_tracked(tasks[0].timer_task_entry)


@pytest.mark.parametrize("kind", [TimerTask, Sub])
def test_making_timers_brings_no_collection_nearer(kind):
    """Of the classes themselves: an object of a subclass in Python is counted as any other."""
    wheel, tasks = TimingWheel(), []
    times = list(range(300))
    gc.disable()
    try:
        gc.collect()
        before = gc.get_count()[0]
        for at in times:
            task = kind(at)
            tasks.append(task)
            wheel.add(TimerTaskEntry(task, 5 + at))
        made = gc.get_count()[0] - before
        entries = [task.timer_task_entry for task in tasks]
        looked = gc.get_count()[0] - before
        del entries, task
        tasks.clear()
        wheel.pop_expired(10_000)
        left = gc.get_count()[0] - before
    finally:
        gc.enable()
    counted = 0 if kind is TimerTask else 300
    assert (made - counted) < 20
    assert (looked - counted) < 20
    assert abs(left) < 20


@each_row("where", ["wheel", "list", "nowhere", "entry only", "call_at", "loop timer"])
@each_row("kind", [TimerTask, Sub])
def test_a_cycle_through_a_callable_is_collected(where, kind):
    owner = Owner()
    owner.task = kind(100, owner.time_out)
    owner.wheel = TimingWheel()
    if where == "wheel":
        owner.wheel.add(TimerTaskEntry(owner.task, 100))
    elif where == "list":
        owner.list = TimerTaskList()
        owner.list.add(TimerTaskEntry(owner.task, 100))
    elif where == "entry only":
        owner.entry = TimerTaskEntry(owner.task, 100)
    elif where == "call_at":
        owner.wheel.call_at(100, owner.task)
    elif where == "loop timer":
        owner.timer = LoopTimer(clock=ManualClock())
        owner.timer.add(owner.task)
    gone = [weakref.ref(owner), weakref.ref(owner.task), weakref.ref(owner.wheel)]
    del owner
    assert all(ref() is not None for ref in gone)
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


@each_row("how", ["the entry holds itself", "a view of the task", "a cancelled entry in a list"])
def test_a_cycle_through_an_entry_is_collected(how):
    owner = Owner()
    task = TimerTask(100, partial(id, owner))
    owner.entry = TimerTaskEntry(task, 100)
    owner.list = TimerTaskList()
    if how == "a view of the task":
        owner.list.add(owner.entry)
        del owner.entry
        owner.entry = task.timer_task_entry
    elif how == "a cancelled entry in a list":
        task.cancel()
        owner.list.add(owner.entry)
    gone = [weakref.ref(owner), weakref.ref(task), weakref.ref(owner.list)]
    del owner, task
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def test_what_is_held_survives_a_collection():
    wheel, called = TimingWheel(), []
    for i in range(500):
        wheel.add(TimerTaskEntry(TimerTask(0, partial(called.append, i)), 100 + i % 7))
    for _ in range(3):
        gc.collect()
    assert wheel.run_expired(200) == 500
    assert sorted(called) == list(range(500))


def test_references_come_back_to_where_they_were():
    wheel, one = TimingWheel(), TimerTaskList()
    owner = Owner()
    tasks = [TimerTask(5, owner), Sub(5, owner)]
    before = [sys.getrefcount(thing) for thing in (owner, wheel, one, *tasks)]
    for at in range(0, 3000, 3):
        for task in tasks:
            wheel.add(TimerTaskEntry(task, at + 500))
            list(wheel.overflow_wheel.buckets[at // 20 % 20])
            task.timer_task_entry.remove()
            wheel.add(TimerTaskEntry(task, at + 2))
            kept = TimerTaskEntry(task, at + 2)
            one.add(kept)
            wheel.add(kept)
            TimerTask(at, owner).cancel()
        assert len(wheel.pop_expired(at + 2)) == 2
    for task in tasks:
        task.cancel()
    del task, kept
    assert [sys.getrefcount(thing) for thing in (owner, wheel, one, *tasks)] == before
