"""The fields of Kafka's TimingWheel and TimerTaskList, read while a wheel works, and after its owner has dropped it."""

import gc
import weakref
from functools import partial

import pytest

from kafkacore._wheel import OverflowWheel, TimerTaskListView
from kafkacore.timer import TaskCounter, TimerTask, TimerTaskEntry, TimerTaskList, TimingWheel
from tests.kit.timers import entry, noop


def test_a_wheel_shows_its_fields():
    counter = TaskCounter()
    wheel = TimingWheel(10, 5, 1003, counter)
    assert (wheel.tick_ms, wheel.wheel_size, wheel.interval) == (10, 5, 50)
    assert (wheel.start_ms, wheel.current_time) == (1003, 1000)
    assert wheel.task_counter is counter
    assert wheel.overflow_wheel is None
    wheel.advance_clock(1029)
    assert (wheel.start_ms, wheel.current_time) == (1003, 1020)


def test_overflow_wheels_are_made_when_needed_and_are_the_same_afterwards():
    wheel = TimingWheel(10, 5, 1000)
    wheel.advance_clock(1030)
    wheel.add(entry(1030 + 50))
    above = wheel.overflow_wheel
    assert (above.tick_ms, above.wheel_size, above.interval) == (50, 5, 250)
    assert (above.start_ms, above.current_time) == (1030, 1000)  # Kafka's: the time of the level below, cut to a tick
    assert above.task_counter is wheel.task_counter
    assert above.overflow_wheel is None
    wheel.add(entry(1030 + 300))
    assert wheel.overflow_wheel == above
    assert hash(wheel.overflow_wheel) == hash(above)
    assert above.overflow_wheel.tick_ms == 250
    assert above.overflow_wheel != above
    assert above != TimingWheel(10, 5, 1000)
    wheel.advance_clock(1090)
    assert (wheel.current_time, above.current_time, above.overflow_wheel.current_time) == (1090, 1050, 1000)


def test_a_bucket_shows_what_it_holds_and_when_it_is_due():
    wheel = TimingWheel(10, 5, 0)
    first, second = entry(21), entry(29)
    wheel.add(first)
    wheel.add(second)
    handle = wheel.call_at(25, noop)
    (bare,) = wheel.add_many([27]).tolist()
    bucket = wheel.buckets[2]
    assert [len(each) for each in wheel.buckets] == [0, 0, 4, 0, 0]
    assert list(bucket) == [first, second, handle, bare]
    assert [wheel.position(timer) for timer in bucket] == [(1, 2)] * 4
    assert (bucket.expiration, bucket.get_expiration(), bucket.get_delay_ms(5), bucket.get_delay_ms(99)) == (20, 20, 15, 0)
    assert bucket.task_counter is wheel.task_counter
    assert wheel.buckets[1].expiration == -1
    assert bucket == wheel.buckets[2]
    assert hash(bucket) == hash(wheel.buckets[2])
    assert bucket != wheel.buckets[1]
    assert bucket != [first, second, handle, bare]
    for timer in bucket:  # the list is as it was when the loop began
        if isinstance(timer, TimerTaskEntry):
            timer.remove()
        else:
            assert wheel.cancel(timer)
    assert (list(bucket), len(bucket), len(wheel)) == ([], 0, 0)


def test_a_bucket_that_is_used_again_shows_its_next_round():
    wheel = TimingWheel(1, 20, 0)
    bucket = wheel.buckets[5]
    wheel.add(entry(5))
    assert bucket.expiration == 5
    wheel.pop_expired(10)
    assert (bucket.expiration, len(bucket)) == (-1, 0)
    wheel.add(entry(25))
    assert (bucket.expiration, len(bucket)) == (25, 1)


def test_a_view_keeps_its_wheel():
    wheel = TimingWheel()
    wheel.add(entry(5_000))
    level, bucket, gone = wheel.overflow_wheel.overflow_wheel, wheel.overflow_wheel.overflow_wheel.buckets[12], weakref.ref(wheel)
    del wheel
    assert (level.tick_ms, len(bucket), [found.expiration_ms for found in bucket]) == (400, 1, [5_000])
    del level, bucket
    assert gone() is None


@pytest.mark.parametrize("look", [lambda wheel: wheel.buckets[3], lambda wheel: wheel.overflow_wheel])
def test_a_view_in_a_cycle_with_its_wheel_is_collected_and_can_be_read_meanwhile(look):
    read = []

    class Reader:
        def __del__(self):
            read.append(repr(self.view))

    wheel, reader = TimingWheel(), Reader()
    wheel.call_at(300, partial(id, reader))
    reader.view = look(wheel)
    gone = weakref.ref(wheel)
    del wheel, reader
    gc.collect()
    assert gone() is None
    assert "View" in read[0] or "OverflowWheel" in read[0]


def test_a_collection_while_entries_are_made_for_a_view_is_harmless():
    """Every allocation collects, and a finalizer then empties the bucket that is being read."""
    wheel = TimingWheel()
    tasks = [TimerTask(5, noop) for _ in range(50)]
    for task in tasks:
        wheel.add(TimerTaskEntry(task, 5))

    class Canceller:
        def __del__(self):
            for task in tasks:
                task.cancel()

    cyclic = Canceller()
    cyclic.itself = cyclic
    thresholds = gc.get_threshold()
    del cyclic
    gc.set_threshold(1, 1, 1)
    try:
        found = list(wheel.buckets[5])
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert all(shown.task in tasks for shown in found)
    assert (len(wheel), list(wheel.buckets[5])) == (0, [])


def test_views_are_not_made_of_nothing():
    wheel = TimingWheel()
    for make in (
        lambda: OverflowWheel(wheel, 0),
        lambda: OverflowWheel(wheel, 1),
        lambda: TimerTaskListView(wheel, 1, 0),
        lambda: TimerTaskListView(wheel, 0, 20),
        lambda: TimerTaskListView(wheel, -1, 0),
        lambda: TimerTaskListView(wheel, 0, -1),
    ):
        with pytest.raises(ValueError, match="TimingWheel"):
            make()
    for make in (
        lambda: OverflowWheel(None, 1),
        lambda: TimerTaskListView.__new__(TimerTaskListView),
        lambda: TimerTaskListView(None, 0, 0),
    ):
        with pytest.raises(TypeError):
            make()


def test_a_list_shows_its_expiration_and_counter():
    counter = TaskCounter()
    one = TimerTaskList(counter)
    assert (one.expiration, one.task_counter) == (-1, counter)
    one.set_expiration(40)
    assert one.expiration == 40
    assert repr(one) == "<TimerTaskList of 0 at 40 ms>"


def test_the_queue_has_the_buckets_of_all_levels_the_next_one_first():
    wheel = TimingWheel(1, 20, 0)
    assert wheel.queue == ()
    for delay_ms in (445, 7, 30, 7, 31):
        wheel.call_at(delay_ms, print)
    assert [(bucket.get_expiration(), len(bucket)) for bucket in wheel.queue] == [(7, 2), (20, 2), (400, 1)]
    assert wheel.queue[0] == wheel.buckets[7]
    assert wheel.overflow_wheel.queue == wheel.queue
    wheel.run_expired(20)
    assert [(bucket.get_expiration(), len(bucket)) for bucket in wheel.queue] == [(30, 1), (31, 1), (400, 1)]


def test_an_overflow_wheel_that_is_asked_for_is_the_one_that_is_used():
    wheel = TimingWheel(1, 20, 7)
    wheel.add_overflow_wheel()
    wheel.add_overflow_wheel()
    above = wheel.overflow_wheel
    assert (above.tick_ms, above.interval, above.start_ms, above.overflow_wheel, len(wheel.levels)) == (20, 400, 7, None, 2)
    above.add_overflow_wheel()
    assert wheel.levels[2][:2] == (400, 8_000)
    wheel.call_at(7 + 445, print)
    assert len(wheel.levels) == 3
    assert [bucket.get_expiration() for bucket in wheel.queue] == [400]
    assert wheel.run_expired(451) == 0
    assert wheel.run_expired(452) == 1


def test_levels_end_where_times_do():
    wheel = TimingWheel(1, 2**20, 0)
    wheel.add_overflow_wheel()
    wheel.overflow_wheel.add_overflow_wheel()
    with pytest.raises(ValueError, match="all the levels"):
        wheel.overflow_wheel.overflow_wheel.add_overflow_wheel()
