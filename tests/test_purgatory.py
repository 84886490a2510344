"""Delayed operations: DelayedOperationTest of Kafka, and the races in its history."""

import gc
import random
import threading
import weakref
from functools import partial

import pytest

from kafkacore.clock import ManualClock, SystemClock
from kafkacore.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafkacore.timer import LoopTimer, SystemTimer, TaskCounter, TimingWheel
from tests.kit.in_threads import in_threads
from tests.kit.inside import reaper_of

WAIT_S = 90


class Op(DelayedOperation):
    """Kafka's MockDelayedOperation; `completable` is the condition."""

    def __init__(self, delay_ms=100_000):
        super().__init__(delay_ms)
        self.completable = False
        self.log = []
        self.tries = 0

    def try_complete(self):
        self.tries += 1
        return self.completable and self.force_complete()

    def on_complete(self):
        self.log.append("complete")

    def on_expiration(self):
        self.log.append("expired")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def purgatory(clock):
    with DelayedOperationPurgatory("test", LoopTimer(clock=clock), reaper=False) as purgatory:
        yield purgatory


def run_until(purgatory, clock, now_ms):
    """What the loop of an owner does."""
    while (deadline := purgatory.next_deadline_ms()) is not None and deadline <= now_ms:
        clock.advance(max(deadline - clock.now_ms(), 0))
        purgatory.advance_clock()
    clock.advance(now_ms - clock.now_ms())
    purgatory.advance_clock()


# ---- DelayedOperationTest of Kafka -------------------------------------------------------------------------------------------------


def test_request_expiry(purgatory, clock):
    early, late = Op(20), Op(200_000)
    assert not purgatory.try_complete_else_watch(early, ["test1"])
    assert not purgatory.try_complete_else_watch(late, ["test2"])
    run_until(purgatory, clock, 19)
    assert not early.is_completed()
    run_until(purgatory, clock, 20)
    assert early.log == ["complete", "expired"]
    assert not late.is_completed()
    assert purgatory.num_delayed() == 1
    early.completable = True
    assert purgatory.check_and_complete("test1") == 0
    assert not early.force_complete()
    assert early.log == ["complete", "expired"]


def test_expiry_by_a_reaper_is_not_early():
    with DelayedOperationPurgatory("reaped") as purgatory:
        done = threading.Event()

        class Timed(Op):
            def on_expiration(self):
                done.set()

        start = SystemClock().now_ms()
        assert not purgatory.try_complete_else_watch(Timed(20), ["k"])
        assert done.wait(WAIT_S)
        assert SystemClock().now_ms() - start >= 20
    assert not [thread for thread in threading.enumerate() if "reaped" in thread.name]


def test_request_purge(purgatory):
    one, two, three = Op(), Op(), Op()
    purgatory.try_complete_else_watch(one, ["test1"])
    purgatory.try_complete_else_watch(two, ["test1", "test2"])
    purgatory.try_complete_else_watch(three, ["test1", "test2", "test3"])
    assert (purgatory.num_delayed(), purgatory.watched()) == (3, 6)
    two.completable = True
    two.safe_try_complete()
    assert purgatory.num_delayed() == 2
    three.completable = True
    three.safe_try_complete()
    assert purgatory.num_delayed() == 1
    assert purgatory.watched() == 6
    purgatory.check_and_complete("test1")
    assert purgatory.watched() == 4
    purgatory.check_and_complete("test2")
    assert purgatory.watched() == 2
    purgatory.check_and_complete("test3")
    assert purgatory.watched() == 1
    assert purgatory.key_count() == 1


def test_cancel_for_key(purgatory):
    one, two, three = Op(), Op(), Op()
    purgatory.try_complete_else_watch(one, ["key"])
    purgatory.try_complete_else_watch(two, ["key"])
    purgatory.try_complete_else_watch(three, ["key2"])
    cancelled = purgatory.cancel_for_key("key")
    assert cancelled == [one, two]
    assert (purgatory.num_delayed(), purgatory.watched(), purgatory.key_count()) == (1, 1, 1)
    assert not any(op.is_completed() for op in cancelled)
    assert purgatory.cancel_for_key("key") == purgatory.cancel_for_key("missing") == []
    assert purgatory.cancel_all() == [three]
    assert (purgatory.num_delayed(), purgatory.watched()) == (0, 0)


def test_the_timer_comes_after_both_checks_and_an_operation_without_keys_is_an_error(purgatory):
    with pytest.raises(ValueError, match="at least one key"):
        purgatory.try_complete_else_watch(Op(), [])
    op = Op()
    op.completable = True
    assert purgatory.try_complete_else_watch(op, ["a", "b"])
    assert (op.tries, purgatory.watched(), purgatory.num_delayed()) == (1, 0, 0)
    assert not purgatory.try_complete_else_watch(op, ["a"])
    assert op.log == ["complete"]


def test_an_event_between_the_first_check_and_the_watch_is_seen_by_the_second(purgatory):
    class Late(Op):
        def try_complete(self):
            self.completable, answer = True, super().try_complete()
            return answer

    op = Late()
    assert purgatory.try_complete_else_watch(op, ["a", "b"])
    assert (op.tries, op.log, purgatory.num_delayed()) == (2, ["complete"], 0)
    assert purgatory.watched() == 2
    assert purgatory.purge_completed() == 2
    assert purgatory.key_count() == 0


def test_keys_after_the_one_that_completed_the_operation_are_left_out(purgatory):
    op = Op()

    class Key:
        def __hash__(self):
            op.force_complete()
            return 1

    assert not purgatory.try_complete_else_watch(op, ["first", Key(), "third"])
    assert purgatory.watched() == 2
    assert purgatory.num_delayed() == 0
    assert op.log == ["complete"]


def test_the_action_runs_only_when_the_first_try_fails():
    ran = []
    op = Op()
    op.completable = True
    assert op.safe_try_complete_or_else(lambda: ran.append(1))
    assert ran == []
    op = Op()

    def action():
        ran.append(1)
        op.completable = True

    assert op.safe_try_complete_or_else(action)
    assert (ran, op.tries) == ([1], 2)
    assert not op.safe_try_complete_or_else(action)
    assert ran == [1]


class Locked(Op):
    """Notes which threads are inside it at the same time."""

    def __init__(self, delay_ms=100_000):
        super().__init__(delay_ms)
        self.inside, self.overlaps = 0, 0

    def enter(self):
        self.overlaps += self.inside
        self.inside += 1
        for _ in range(random.randrange(20)):
            pass
        self.inside -= 1

    def try_complete(self):
        self.enter()
        return super().try_complete()

    def on_complete(self):
        self.enter()
        super().on_complete()

    def on_expiration(self):
        self.enter()
        super().on_expiration()


def test_a_lock_held_elsewhere_delays_no_other_operation(purgatory):
    """An event on one key while another operation's lock is held by a thread that does not come back yet."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(Op):
        def try_complete(self):
            if self.tries == 2:
                entered.set()
                assert leave.wait(WAIT_S)
            return super().try_complete()

    slow, quick = Slow(), Op()
    purgatory.try_complete_else_watch(slow, ["slow"])
    purgatory.try_complete_else_watch(quick, ["quick"])
    slow.completable = quick.completable = True
    holder = threading.Thread(target=purgatory.check_and_complete, args=("slow",))
    holder.start()
    assert entered.wait(WAIT_S)
    assert purgatory.check_and_complete("quick") == 1
    leave.set()
    holder.join(WAIT_S)
    assert slow.log == ["complete"]


def test_a_completion_that_met_a_held_lock_is_not_lost(purgatory):
    """KAFKA-6653: the event that came while another thread was trying in vain must be looked at afterwards."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(Op):
        def try_complete(self):
            answer = super().try_complete()
            if not answer and self.tries == 3:
                entered.set()
                assert leave.wait(WAIT_S)
            return answer

    op = Slow()
    purgatory.try_complete_else_watch(op, ["k"])
    first = threading.Thread(target=purgatory.check_and_complete, args=("k",))
    first.start()
    assert entered.wait(WAIT_S)
    op.completable = True
    counts = []
    second = threading.Thread(target=lambda: counts.append(purgatory.check_and_complete("k")))
    second.start()
    leave.set()
    first.join(WAIT_S)
    second.join(WAIT_S)
    assert counts == [1]
    assert op.log == ["complete"]


def test_completing_one_operation_from_within_another_of_the_same_purgatory(purgatory):
    """KAFKA-8334's shape: on_complete checks keys, and adds, while its own lock is held."""
    second, third = Op(), Op()

    class First(Op):
        def on_complete(self):
            super().on_complete()
            second.completable = True
            purgatory.check_and_complete("b")
            purgatory.check_and_complete("a")
            purgatory.try_complete_else_watch(third, ["a"])

    first = First()
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["b"])
    first.completable = True
    assert purgatory.check_and_complete("a") == 1
    assert (first.log, second.log) == (["complete"], ["complete"])
    third.completable = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.key_count() == 0


def test_a_hundred_operations_on_twenty_threads_lose_no_wakeup(busy_switching):
    """As Kafka's; each is watched by two keys and completed by random threads while it is added."""
    for _ in range(10):
        with DelayedOperationPurgatory("race", LoopTimer(), reaper=False) as purgatory:
            ready = [threading.Event() for _ in range(100)]

            class Racing(Op):
                def __init__(self, event):
                    super().__init__()
                    self.event = event

                def try_complete(self):
                    answer = self.event.is_set()
                    for _ in range(random.randrange(30)):  # a yield somewhere in here
                        pass
                    return answer and self.force_complete()

            ops = [Racing(event) for event in ready]
            start = threading.Barrier(20)

            def work(t, start=start, purgatory=purgatory, ready=ready, ops=ops):
                start.wait()
                for i in range(t % 10, 100, 10):
                    if t < 10:
                        purgatory.try_complete_else_watch(ops[i], [("key", i), ("group", i % 3)])
                    else:
                        ready[i].set()
                        purgatory.check_and_complete(("key", i) if t % 2 else ("group", i % 3))

            in_threads(20, work)
            assert [i for i, op in enumerate(ops) if not op.is_completed()] == []
            assert {tuple(op.log) for op in ops} == {("complete",)}
            assert purgatory.num_delayed() == 0
            purgatory.purge_completed()
            assert (purgatory.watched(), purgatory.key_count()) == (0, 0)


def test_events_and_time_at_once_complete_each_operation_once(busy_switching):
    with DelayedOperationPurgatory("race", purge_interval=50) as purgatory:
        ops = [[Locked(i % 5) for i in range(200)] for _ in range(8)]

        def work(t):
            for i, op in enumerate(ops[t]):
                purgatory.try_complete_else_watch(op, [t, i % 7])
                op.completable = True
                purgatory.check_and_complete(t if i % 2 else i % 7)

        in_threads(8, work)
        every = [op for some in ops for op in some]
        for op in every:
            op.force_complete()
        # A task still on its way to the executor finds its operation complete.
        assert {tuple(op.log) for op in every} <= {("complete",), ("complete", "expired")}
        assert sum(op.overlaps for op in every) == 0
        assert purgatory.num_delayed() == 0


# ---- purging -----------------------------------------------------------------------------------------------------------------------


def test_complete_operations_are_purged_after_the_interval(clock):
    purgatory = DelayedOperationPurgatory("test", LoopTimer(clock=clock), purge_interval=20, reaper=False)
    open_one = Op()
    purgatory.try_complete_else_watch(open_one, ["other"])
    for _ in range(10):
        op = Op()
        purgatory.try_complete_else_watch(op, ["a", "b"])
        op.force_complete()
    assert (purgatory.places, purgatory.stale_places) == (21, 20)
    purgatory.advance_clock()
    assert purgatory.watched() == 21
    op = Op()
    purgatory.try_complete_else_watch(op, ["a"])
    op.force_complete()
    purgatory.advance_clock()
    assert (purgatory.watched(), purgatory.places, purgatory.stale_places) == (1, 1, 0)
    assert purgatory.statistics() == {"delayed": 1, "watched": 1, "keys": 1, "completed_by_events": 0}


class CountingPurgatory(DelayedOperationPurgatory):
    """Counts the places that its purges walk."""

    walked = 0

    def purge_completed(self):
        self.walked += self.watched()
        return super().purge_completed()


@pytest.mark.parametrize("open_places", [0, 10, 3000])
def test_purges_walk_at_most_two_places_per_stale_one(clock, open_places):
    purgatory = CountingPurgatory("test", LoopTimer(clock=clock), purge_interval=100, reaper=False)
    for i in range(open_places):
        purgatory.try_complete_else_watch(Op(), [i])
    completed = 0
    for i in range(2000):
        op = Op()
        keys = range(i % 7 + 1)
        purgatory.try_complete_else_watch(op, keys)
        op.force_complete()
        completed += len(keys)
        purgatory.advance_clock()
        assert purgatory.stale_places <= max(100, open_places) + 7
    assert 0 < purgatory.walked <= 2 * completed


def test_operations_that_events_complete_need_no_purge(clock):
    """The event's key lets them go at once; only what they left under other keys is stale."""
    purgatory = CountingPurgatory("test", LoopTimer(clock=clock), purge_interval=10, reaper=False)
    for _ in range(100):
        op = Op()
        purgatory.try_complete_else_watch(op, ["a"])
        op.completable = True
        assert purgatory.check_and_complete("a") == 1
        purgatory.advance_clock()
    assert (purgatory.walked, purgatory.stale_places, purgatory.places) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_of_places_are_what_a_walk_finds(clock, seed):
    chance = random.Random(seed)
    purgatory = DelayedOperationPurgatory("test", LoopTimer(clock=clock), purge_interval=15, reaper=False)
    ops = []
    for _ in range(400):
        what = chance.random()
        if what < 0.5 or not ops:
            op = Op(chance.randrange(1, 20))
            op.keys = chance.sample(range(12), chance.randrange(1, 6))
            purgatory.try_complete_else_watch(op, op.keys)
            ops.append(op)
        elif what < 0.65:
            chance.choice(ops).completable = True
            purgatory.check_and_complete(chance.randrange(12))
        elif what < 0.8:
            chance.choice(ops).force_complete()
        elif what < 0.83:
            purgatory.cancel_for_key(chance.randrange(12))
        elif what < 0.95:
            clock.advance(chance.randrange(4))
            purgatory.advance_clock()
        else:
            purgatory.purge_completed()
        assert purgatory.places == purgatory.watched()
        stale = purgatory.stale_places
        if chance.random() < 0.1:
            assert purgatory.purge_completed() == stale
            assert purgatory.stale_places == 0
            assert purgatory.places == purgatory.watched()


class NotingPurges(DelayedOperationPurgatory):
    def __init__(self, *args, **settings):
        self.purged = threading.Event()
        super().__init__(*args, **settings)

    def purge_completed(self):
        try:
            return super().purge_completed()
        finally:
            self.purged.set()


def test_a_reaper_purges_without_anything_being_due_and_after_the_last_expiration():
    """Nothing is added after that one that could notice it."""
    with NotingPurges("purging", purge_interval=5) as purgatory:
        for _ in range(6):
            op = Op()
            purgatory.try_complete_else_watch(op, ["a"])
            op.force_complete()
        purgatory.try_complete_else_watch(Op(), ["a"])
        assert purgatory.purged.wait(WAIT_S)
    with NotingPurges("purging", purge_interval=5) as purgatory:
        purgatory.try_complete_else_watch(Op(1), range(6))
        assert purgatory.purged.wait(WAIT_S)


def test_settings_have_bounds_and_defaults():
    default = DelayedOperationPurgatory("x", LoopTimer(), reaper=False)
    assert (default.name, default.purge_interval) == ("x", 1000)
    assert DelayedOperationPurgatory("x", LoopTimer(), purge_interval=0, reaper=False).purge_if_needed() == 0
    with pytest.raises(ValueError, match="purge_interval"):
        DelayedOperationPurgatory("x", purge_interval=-1, reaper=False)
    with pytest.raises(ValueError, match="reaper=False"):
        DelayedOperationPurgatory("x", LoopTimer())


# ---- life --------------------------------------------------------------------------------------------------------------------------


def test_closing_from_any_thread_and_twice():
    purgatory = DelayedOperationPurgatory("closing")
    op = Op(50_000)
    purgatory.try_complete_else_watch(op, ["k"])
    in_threads(4, lambda i: purgatory.close())
    purgatory.close()
    assert not op.is_completed()
    assert not [thread for thread in threading.enumerate() if "closing" in thread.name]


def test_a_purgatory_may_be_closed_by_an_operation_that_expires():
    closed = threading.Event()

    class Closing(Op):
        def on_expiration(self):
            purgatory.close()
            closed.set()

    purgatory = DelayedOperationPurgatory("closing")
    purgatory.try_complete_else_watch(Closing(1), ["k"])
    assert closed.wait(WAIT_S)


def test_a_reaper_ends_when_the_timer_is_closed_under_it():
    timer = SystemTimer("x")
    purgatory = DelayedOperationPurgatory("closing", timer)
    timer.close()
    reaper_of(purgatory).join(WAIT_S)
    assert not reaper_of(purgatory).is_alive()
    purgatory.close()


class OwnTimer:
    """A timer with no more than `Timer` asks for. Its wait ends some turns after it is closed."""

    def __init__(self):
        self.loop = LoopTimer()
        self.add, self.size, self.next_deadline_ms = self.loop.add, self.loop.size, self.loop.next_deadline_ms
        self.waits, self.waiting, self.closing = set(), threading.Event(), threading.Event()
        self.close = self.closing.set

    def advance_clock(self, timeout_ms):
        self.waits.add(timeout_ms)
        self.waiting.set()
        assert self.closing.wait(WAIT_S)
        for _ in range(10**5):
            pass
        return False


def test_a_reaper_drives_a_timer_of_any_kind_until_the_purgatory_is_closed():
    timer = OwnTimer()
    with DelayedOperationPurgatory("closing", timer, purge_interval=0) as purgatory:
        assert timer.waiting.wait(WAIT_S)
        op = Op()
        purgatory.try_complete_else_watch(op, ["k"])
        assert op.force_complete()
        assert purgatory.stale_places == 1
    assert not reaper_of(purgatory).is_alive()
    assert timer.waits == {None}
    assert purgatory.stale_places == 0


def test_an_operation_that_fails_on_expiry_is_logged_and_stops_nobody(purgatory, clock, caplog):
    class Failing(Op):
        def on_complete(self):
            raise LookupError("on purpose")

    bad, good = Failing(5), Op(5)
    purgatory.try_complete_else_watch(bad, ["k"])
    purgatory.try_complete_else_watch(good, ["k"])
    run_until(purgatory, clock, 5)
    assert good.log == ["complete", "expired"]
    assert bad.is_completed()
    assert [type(record.exc_info[1]) for record in caplog.records] == [LookupError]
    assert bad.safe_try_complete() is False


def test_an_error_while_trying_reaches_the_caller_and_frees_the_lock(purgatory):
    class Failing(Op):
        def try_complete(self):
            raise LookupError("on purpose")

    for op, key, error in ((Failing(), "k", LookupError), (Op(), [], TypeError)):
        with pytest.raises(error):
            purgatory.try_complete_else_watch(op, [key])
        answers = []
        in_threads(1, lambda i, op=op, answers=answers: answers.append(op.force_complete()))
        assert answers == [True]
    with pytest.raises(TypeError):
        purgatory.check_and_complete([])


def test_abstract_operations_say_what_is_missing():
    with pytest.raises(TypeError, match="try_complete"):
        DelayedOperation(1).safe_try_complete()
    with pytest.raises(TypeError, match="on_complete"):
        DelayedOperation(1).force_complete()


def test_a_cycle_of_purgatory_and_operation_is_collected(clock):
    class Holding(Op):
        pass

    purgatory = DelayedOperationPurgatory("test", LoopTimer(clock=clock), reaper=False)
    op = Holding()
    op.purgatory = purgatory
    op.fn = partial(id, op)
    purgatory.try_complete_else_watch(op, ["k"])
    gone = [weakref.ref(purgatory), weakref.ref(op)]
    del purgatory, op
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_operations_are_let_go_when_they_are_done(purgatory, clock):
    refs = []
    for i in range(100):
        op = Op(i % 10 + 1)
        refs.append(weakref.ref(op))
        purgatory.try_complete_else_watch(op, ["k", i])
        op.completable = i % 3 == 0
    del op
    purgatory.check_and_complete("k")
    run_until(purgatory, clock, 20)
    purgatory.purge_completed()
    assert [ref for ref in refs if ref() is not None] == []
    assert (purgatory.num_delayed(), purgatory.watched(), purgatory.key_count()) == (0, 0, 0)


# ---- a garbage collection in the middle of a step


@pytest.fixture
def collect_next():
    """`collect_next(call)`: the next allocation that the collector counts runs it, and with it call(), as a finalizer.

    Up to Python 3.11 that is inside the allocation; later ones wait for the next bytecode.
    """
    before = gc.get_threshold()
    kept = []

    class Garbage:
        def __init__(self, call):
            self.call = call
            self.me = self

        def __del__(self):
            gc.disable()
            self.call()

    def arm(call):
        gc.collect()
        gc.disable()
        Garbage(call)
        kept.extend([] for _ in range(300))  # none is left in the interpreter's own store of lists
        gc.set_threshold(1)
        gc.enable()

    yield arm
    gc.set_threshold(*before)
    gc.enable()


class CollectsAtTry(Op):
    """Arms the collector in its n-th try: what compiled code does next is interrupted."""

    def __init__(self, arm, tries):
        super().__init__()
        self.arm = arm
        self.arm_at = tries

    def try_complete(self):
        super().try_complete()
        if self.tries == self.arm_at:
            self.arm()
        return False


def completes_by_event(purgatory, operation):
    operation.completable = True
    purgatory.check_and_complete("k")
    return operation.log == ["complete"]


@pytest.mark.parametrize("how", ["complete ones are taken out", "its key is cancelled"])
def test_an_operation_added_by_a_finalizer_is_not_lost(purgatory, collect_next, how):
    late, cancelled = Op(), []

    def finalizer():
        purgatory.purge_completed()
        purgatory.try_complete_else_watch(late, ["k"])

    done = Op()
    purgatory.try_complete_else_watch(done, ["k"])
    done.force_complete()
    if how == "its key is cancelled":
        purgatory.try_complete_else_watch(Op(), ["k"])
        collect_next(finalizer)
        cancelled = purgatory.cancel_for_key("k")
    else:
        purgatory.try_complete_else_watch(CollectsAtTry(lambda: collect_next(finalizer), 3), ["k"])
        purgatory.check_and_complete("k")
    gc.collect()
    assert late in cancelled or completes_by_event(purgatory, late)


def test_an_operation_added_by_a_finalizer_while_its_key_is_made_is_not_lost(purgatory, collect_next):
    late = Op()
    first = CollectsAtTry(lambda: collect_next(lambda: purgatory.try_complete_else_watch(late, ["k"])), 1)
    purgatory.try_complete_else_watch(first, ["k"])
    gc.collect()
    assert completes_by_event(purgatory, late)


def test_timers_cancelled_by_a_finalizer_while_expired_ones_are_taken_out(collect_next):
    counter = TaskCounter()
    wheel = TimingWheel(1, 20, 0, counter)
    handles = wheel.add_many([1, 2, 3])
    wheel.advance_clock(10)
    collect_next(lambda: wheel.cancel_many(handles[1:]))
    taken = wheel.pop_expired_many(10)
    gc.collect()
    assert set(taken) <= set(handles)
    assert len(set(taken)) == len(taken)
    assert len(wheel) == 0
    assert int(counter) == 0
