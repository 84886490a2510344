"""What a timer costs in the timing wheel and elsewhere: one kind of timers, one number of them outstanding, one process.

    python -m kafkacore.cli.timer_cases KIND OUTSTANDING

prints one JSON object: nanoseconds of CPU per operation, a sample a round, and bytes per timer.

    fill     that many timers with delays of 1 to 60,000 ms; what the process grew by is their memory, handles included
    cancel   some of them each round: the oldest, as answers end the time-outs of their requests; or any, at random
    add      as many again
    expire   the time goes from deadline to deadline until enough of them were called, which do nothing

Loops around the calls are measured and taken off. The garbage collector is off, but for the kinds that end in "gc": it costs the more, the
more objects a timer has that it counts.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import json
import random
import sched
import selectors
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kafkacore.timer import TimerTask, TimerTaskEntry, TimingWheel

LONGEST_MS = 60_000
CHUNK = 10_000
ROUNDS = 5

now_ns = time.thread_time_ns


def noop() -> None:
    """What is called."""


class Timers(ABC):
    """One kind of timers. Methods take many at once, so that the loops can be as tight as the kind allows."""

    collects = False
    """Whether it is measured with the garbage collector on."""

    def keep(self, handles: list[Any]) -> Any:
        """Handles as densely as they can be kept."""
        return handles

    @abstractmethod
    def add(self, delays_ms: list[int]) -> Any:
        """Adds timers from now on; their handles."""

    @abstractmethod
    def cancel(self, handles: list[Any]) -> None:
        """Takes timers out."""

    @abstractmethod
    def expire(self, count: int) -> int:
        """Lets time pass until at least so many were called, or none is left; how many."""

    def close(self) -> None:  # noqa: B027 - optional on purpose
        """Gives back what the system lent."""


class WheelCalls(Timers):
    """TimingWheel.call_at: a callable, an int."""

    def __init__(self) -> None:
        self.wheel = TimingWheel()
        self.now_ms = 0

    def keep(self, handles: list[Any]) -> Any:
        return array("q", handles)

    def add(self, delays_ms: list[int]) -> Any:
        call_at, now_ms = self.wheel.call_at, self.now_ms
        return [call_at(now_ms + delay_ms, noop) for delay_ms in delays_ms]

    def cancel(self, handles: list[Any]) -> None:
        cancel = self.wheel.cancel
        for handle in handles:
            cancel(handle)

    def expire(self, count: int) -> int:
        next_deadline_ms, run_expired = self.wheel.next_deadline_ms, self.wheel.run_expired
        done = 0
        while done < count and (deadline_ms := next_deadline_ms()) is not None:
            done += run_expired(deadline_ms)
            self.now_ms = deadline_ms
        return done


class WheelTasks(WheelCalls):
    """TimerTask and TimerTaskEntry: Kafka's classes, two objects a timer."""

    def keep(self, handles: list[Any]) -> Any:
        return handles

    def add(self, delays_ms: list[int]) -> Any:
        add, now_ms, tasks = self.wheel.add, self.now_ms, []
        for delay_ms in delays_ms:
            task = TimerTask(delay_ms, noop)
            add(TimerTaskEntry(task, now_ms + delay_ms))
            tasks.append(task)
        return tasks

    def cancel(self, handles: list[Any]) -> None:
        for task in handles:
            task.cancel()


class WheelTasksCollected(WheelTasks):
    """The same with the collector on: a program that makes timers by class."""

    collects = True


class WheelMany(WheelCalls):
    """TimingWheel.add_many, cancel_many, pop_expired_many: arrays of handles, nothing is called."""

    def add(self, delays_ms: list[int]) -> Any:
        return self.wheel.add_many(np.asarray(delays_ms) + self.now_ms)

    def keep(self, handles: Any) -> Any:
        return handles

    def cancel(self, handles: Any) -> None:
        self.wheel.cancel_many(handles)

    def expire(self, count: int) -> int:
        next_deadline_ms, pop_expired_many = self.wheel.next_deadline_ms, self.wheel.pop_expired_many
        done = 0
        while done < count and (deadline_ms := next_deadline_ms()) is not None:
            done += len(pop_expired_many(deadline_ms))
            self.now_ms = deadline_ms
        return done


class LazyHeap:
    """The recipe of heapq's documentation: a cancelled entry stays until it comes up, or until half of the heap is dead."""

    def __init__(self) -> None:
        self.heap: list[list[Any]] = []
        self.serial = itertools.count()
        self.dead = 0

    def add(self, when_ms: int, fn: Callable[[], object]) -> list[Any]:
        entry = [when_ms, next(self.serial), fn]
        heapq.heappush(self.heap, entry)
        return entry

    def cancel(self, entry: list[Any]) -> None:
        entry[2] = None
        self.dead += 1
        if self.dead > len(self.heap) >> 1:
            self.heap = [entry for entry in self.heap if entry[2] is not None]
            heapq.heapify(self.heap)
            self.dead = 0

    def run_next(self) -> bool:
        _, _, fn = heapq.heappop(self.heap)
        if fn is None:
            self.dead -= 1
            return False
        fn()
        return True


class Heap(Timers):
    """heapq with lazy deletion."""

    def __init__(self) -> None:
        self.heap = LazyHeap()
        self.now_ms = 0

    def add(self, delays_ms: list[int]) -> Any:
        add, now_ms = self.heap.add, self.now_ms
        return [add(now_ms + delay_ms, noop) for delay_ms in delays_ms]

    def cancel(self, handles: list[Any]) -> None:
        cancel = self.heap.cancel
        for handle in handles:
            cancel(handle)

    def expire(self, count: int) -> int:
        heap, done = self.heap, 0
        while done < count and heap.heap:
            done += heap.run_next()
        return done


class HeapObject:
    """A timer as a class for heapq: the counterpart of TimerTask."""

    __slots__ = ("fn", "when_ms")

    def __init__(self, when_ms: int, fn: Callable[[], object]) -> None:
        self.when_ms = when_ms
        self.fn: Callable[[], object] | None = fn

    def __lt__(self, other: HeapObject) -> bool:
        return self.when_ms < other.when_ms


class HeapOfObjects(Timers):
    """heapq of objects that compare themselves, the collector on; cancelled ones stay as in LazyHeap."""

    collects = True

    def __init__(self) -> None:
        self.heap: list[Any] = []
        self.serial = itertools.count()
        self.dead = 0
        self.now_ms = 0

    def add(self, delays_ms: list[int]) -> Any:
        heap, now_ms, push, timers = self.heap, self.now_ms, heapq.heappush, []
        for delay_ms in delays_ms:
            timer = HeapObject(now_ms + delay_ms, noop)
            push(heap, timer)
            timers.append(timer)
        return timers

    @staticmethod
    def timer_of(item: Any) -> HeapObject:
        """The timer of an item of the heap."""
        timer: HeapObject = item
        return timer

    def cancel(self, handles: list[Any]) -> None:
        for timer in handles:
            timer.fn = None
        self.dead += len(handles)
        if self.dead > len(self.heap) >> 1:
            timer_of = self.timer_of
            self.heap = [item for item in self.heap if timer_of(item).fn is not None]
            heapq.heapify(self.heap)
            self.dead = 0

    def expire(self, count: int) -> int:
        heap, pop, timer_of, done = self.heap, heapq.heappop, self.timer_of, 0
        while done < count and heap:
            fn = timer_of(pop(heap)).fn
            if fn is None:
                self.dead -= 1
                continue
            fn()
            done += 1
        return done


class HeapOfTuples(HeapOfObjects):
    """heapq of tuples (deadline, number, object), the collector on: compared without a call of Python."""

    def add(self, delays_ms: list[int]) -> Any:
        heap, now_ms, push, serial, timers = self.heap, self.now_ms, heapq.heappush, self.serial, []
        for delay_ms in delays_ms:
            timer = HeapObject(now_ms + delay_ms, noop)
            push(heap, (timer.when_ms, next(serial), timer))
            timers.append(timer)
        return timers

    @staticmethod
    def timer_of(item: Any) -> HeapObject:
        timer: HeapObject = item[2]
        return timer


class Sched(Timers):
    """sched.scheduler, whose cancel searches the whole queue."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.scheduler = sched.scheduler(lambda: self.now_ms, lambda delay: None)

    def add(self, delays_ms: list[int]) -> Any:
        enterabs, now_ms = self.scheduler.enterabs, self.now_ms
        return [enterabs(now_ms + delay_ms, 0, noop) for delay_ms in delays_ms]

    def cancel(self, handles: list[Any]) -> None:
        cancel = self.scheduler.cancel
        for handle in handles:
            cancel(handle)

    def expire(self, count: int) -> int:
        before = done = len(self.scheduler._queue)  # type: ignore[attr-defined]
        while done and before - done < count:
            self.now_ms += LONGEST_MS // 200
            self.scheduler.run(blocking=False)
            done = len(self.scheduler._queue)  # type: ignore[attr-defined]
        return before - done


class _Jumping(selectors.SelectSelector):
    """Lets the time pass that the loop would wait."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0
        return []


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_s


class Asyncio(Timers):
    """call_later of asyncio's own loop, on a clock that jumps to the next timer."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = _JumpingLoop()

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def add(self, delays_ms: list[int]) -> Any:
        call_later = self.loop.call_later
        return [call_later(delay_ms / 1000, noop) for delay_ms in delays_ms]

    def cancel(self, handles: list[Any]) -> None:
        for handle in handles:
            handle.cancel()
        self.turn()  # cancelled timers are thrown out there

    def expire(self, count: int) -> int:
        loop, before = self.loop, self.live()
        while (left := self.live()) and before - left < count:
            loop.call_later(LONGEST_MS / 200_000, loop.stop)
            loop.run_forever()
        return before - left

    def close(self) -> None:
        self.loop.close()

    def live(self) -> int:
        """Timers that wait and are not cancelled."""
        loop: Any = self.loop
        return len(loop._scheduled) - int(loop._timer_cancelled_count)


class Uvloop(Asyncio):
    """call_later of uvloop. Its clock cannot be moved, so that for expiry all timers are made due first, which takes a moment."""

    def __init__(self) -> None:
        import uvloop

        self.loop = uvloop.new_event_loop()

    def expire(self, count: int) -> int:
        self.loop.call_later(0, self.loop.stop)
        self.loop.run_forever()
        return count

    def add_due(self, count: int) -> None:
        """Adds timers whose time has come when the loop next looks."""
        for i in range(count):
            self.loop.call_later(0.001 + i % 20 / 1000, noop)
        time.sleep(0.03)


class AioWheel(Asyncio):
    """kafkacore.aio.WheelTimer on asyncio's own loop."""

    def __init__(self) -> None:
        from kafkacore.aio import WheelTimer

        super().__init__()
        self.timer = WheelTimer(self.loop)

    def add(self, delays_ms: list[int]) -> Any:
        call_later = self.timer.call_later
        return [call_later(delay_ms / 1000, noop) for delay_ms in delays_ms]

    def live(self) -> int:
        return len(self.timer)


KINDS: dict[str, type[Timers]] = {
    "wheel": WheelCalls,
    "wheel, *_many": WheelMany,
    "wheel, TimerTask": WheelTasks,
    "wheel, TimerTask, gc": WheelTasksCollected,
    "heapq": Heap,
    "heapq, objects, gc": HeapOfObjects,
    "heapq, tuples, gc": HeapOfTuples,
    "sched": Sched,
    "asyncio": Asyncio,
    "uvloop": Uvloop,
    "aio.WheelTimer": AioWheel,
}
LIMITS = {
    "wheel": 10**8,
    "wheel, *_many": 10**8,
    "wheel, TimerTask": 10**7,
    "heapq": 10**6,
    "sched": 10**6,
    "asyncio": 10**6,
    "uvloop": 10**6,
}
"""Above so many outstanding a kind takes minutes or many gigabytes and is left out; 10**6 where nothing is said."""


def limit(kind: str) -> int:
    """How many outstanding timers a kind is measured with at most."""
    return LIMITS.get(kind, 10**6)


def resident_bytes() -> int:
    """What the process occupies; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


def _loop_ns(items: list[Any]) -> int:
    start = now_ns()
    for _ in items:
        pass
    return now_ns() - start


def measure(kind: str, outstanding: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """One case, in this process; the garbage collector is on for kinds that are measured with it, and is left as it was found.

    Args:
        kind: of KINDS.
        outstanding: how many timers there are.
        rounds: of cancelling and adding.

    Returns:
        add_ns, cancel_ns, cancel_random_ns, expire_ns: lists of nanoseconds of CPU per operation, a sample a round; bytes: per timer, with
        its handle.
    """
    collects = gc.isenabled()
    try:
        return _measure(kind, outstanding, rounds)
    finally:
        (gc.enable if collects else gc.disable)()


def _measure(kind: str, outstanding: int, rounds: int) -> dict[str, Any]:
    rng = random.Random(7)
    numbers = np.random.default_rng(7)
    gc.collect()
    (gc.enable if KINDS[kind].collects else gc.disable)()
    timers = KINDS[kind]()
    many = kind == "wheel, *_many"
    chunk = min(CHUNK, max(outstanding // 2, 1))
    kept: list[Any] = []
    add_ns: list[float] = []
    timers.cancel(timers.add([1] * 10))  # what is made once is there
    before = resident_bytes()
    for at in range(0, outstanding, CHUNK):
        kept.append(timers.keep(timers.add(numbers.integers(1, LONGEST_MS, min(CHUNK, outstanding - at)).tolist())))
    grown = resident_bytes() - before
    cancels = chunk
    if kind == "sched":
        cancels = max(min(chunk, 2_000_000 // outstanding), 3)
    repeats = max(1, min(20, 40_000 // cancels)) if kind != "sched" else 1
    cancel_ns: dict[str, list[float]] = {"oldest": [], "random": []}
    oldest = 0
    for order in [*["oldest"] * rounds, *["random"] * rounds]:
        add_spent = cancel_spent = 0
        for _ in range(repeats):
            if order == "oldest":
                places = [place % outstanding for place in range(oldest, oldest + cancels)]
                oldest = (oldest + cancels) % outstanding
            else:
                places = rng.sample(range(outstanding), cancels)
            chosen: Any = [kept[place // CHUNK][place % CHUNK] for place in places]
            delays_ms = numbers.integers(1, LONGEST_MS, cancels).tolist()
            given: Any = np.array(delays_ms) if many else delays_ms
            if many:
                chosen = np.array(chosen)
            loop_ns = 0 if many else _loop_ns(chosen)
            start = now_ns()
            timers.cancel(chosen)
            middle = now_ns()
            fresh = timers.add(given)
            add_spent += now_ns() - middle - loop_ns
            cancel_spent += middle - start - loop_ns
            for place, handle in zip(places, fresh, strict=True):
                kept[place // CHUNK][place % CHUNK] = handle
        add_ns.append(add_spent / cancels / repeats)
        cancel_ns[order].append(cancel_spent / cancels / repeats)
    expire_ns: list[float] = []
    part = max(outstanding // rounds, 1)
    if isinstance(timers, Uvloop):
        timers.close()
        timers = Uvloop()
        for _ in range(min(rounds, 3)):
            timers.add_due(outstanding)
            start = now_ns()
            timers.expire(outstanding)
            expire_ns.append((now_ns() - start) / outstanding)
    else:
        for _ in range(rounds):
            start = now_ns()
            done = timers.expire(min(part, 400_000))
            if done:
                expire_ns.append((now_ns() - start) / done)
    timers.close()
    return {
        "add_ns": add_ns[:rounds],
        "cancel_ns": cancel_ns["oldest"],
        "cancel_random_ns": cancel_ns["random"],
        "expire_ns": expire_ns,
        "bytes": grown / outstanding,
    }


if __name__ == "__main__":
    gc.disable()
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
