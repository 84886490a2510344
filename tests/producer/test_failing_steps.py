"""Every step of a pass raises in turn: the Sender's thread lives on, and no record is left without an outcome.

The steps are found by introspection: whatever callable the objects of a pass call on each other while records are delivered, refused,
retried, split, expired and closed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_model import GUARD_S, LOST, REFUSED, BrokerClient
from producer_support import Bench

from kafkacore.clock import ManualClock, SystemClock
from kafkacore.errors import Code, KafkaError
from kafkacore.net.client import NetworkClient
from kafkacore.producer import sender as sender_module
from tests.kit.inside import retry_log_of, thread_of

TIMEOUT_MS = 3000
NOT_STEPS = {"_run", "start", "join"}  # the thread itself, and those that wait for it


class Clock(ManualClock):
    """One whose methods can be replaced."""


class StepError(Exception):
    """What no step should raise."""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "ERROR_PAUSE_S", 0)


class Steps:
    """Wraps every callable of the objects a pass is made of; counts their calls on the thread in the pass, and has chosen ones raise."""

    def __init__(self, bench: Bench) -> None:
        self.calls: Counter[str] = Counter()
        self.raised = 0
        self.should_raise: Callable[[str, int], bool] = lambda name, call: False
        self.afterwards = False
        self.sender = bench.sender
        parts = {
            "sender": bench.sender,
            "accumulator": bench.accumulator,
            "transactions": bench.transactions,
            "client": bench.client,
            "metadata": bench.metadata,
            "retry_log": retry_log_of(bench.sender),
            "clock": bench.clock,
        }
        for part, thing in parts.items():
            kind = {"client": NetworkClient, "clock": SystemClock}.get(part, object)  # no steps of the stand-in
            for name in dir(thing):
                if name.startswith("__") or name in NOT_STEPS or not (kind is object or hasattr(kind, name)):
                    continue
                step = getattr(thing, name)
                if callable(step) and not isinstance(step, type):
                    try:
                        setattr(thing, name, self.wrapped(f"{part}.{name}", step))
                    except (AttributeError, TypeError):
                        continue  # compiled and final: called directly, where nothing can raise in between

    def in_a_pass(self) -> bool:
        return threading.current_thread() is thread_of(self.sender) or self.sender._owner == threading.get_ident()

    def wrapped(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if not self.in_a_pass():
                return step(*args, **named)
            self.calls[name] += 1
            due = self.should_raise(name, self.calls[name])
            if due:
                self.raised += 1
            if due and not self.afterwards:
                raise StepError(name)
            result = step(*args, **named)
            if due:
                raise StepError(name)
            return result

        return call


class Run:
    """A producer whose records meet every kind of trouble."""

    def __init__(self) -> None:
        self.bench = Bench(
            partitions=2,
            batch_size=400,
            delivery_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=900,
            retries=5,
            client=lambda clock: BrokerClient(clock, 2),
            clock=Clock(1_000),
        )
        self.broker: Any = self.bench.client
        self.steps = Steps(self.bench)
        self.outcomes: dict[bytes, tuple[int, KafkaError | None]] = {}
        self.due_ms: dict[bytes, int] = {}
        self.all_done = threading.Event()
        self.expected = 0

    def send(self, partition: int, names: list[bytes]) -> None:
        self.all_done.clear()
        self.expected += len(names)
        for name in names:
            self.due_ms[name] = self.bench.clock.now_ms() + TIMEOUT_MS
            self.bench.send("t", name + b"." * 100, partition=partition, on_delivery=self.note(name))

    def note(self, name: bytes) -> Callable[[Any, Any], None]:
        def delivered(metadata: Any, error: KafkaError | None) -> None:
            assert name not in self.outcomes
            self.outcomes[name] = (ManualClock.now_ms(self.bench.clock), error)
            if len(self.outcomes) == self.expected:
                self.all_done.set()

        return delivered

    def wait(self) -> None:
        sender = self.bench.sender
        while not self.all_done.wait(0.5):
            assert thread_of(sender) is not None
            assert thread_of(sender).is_alive(), "the Sender's thread has ended"
            assert not self.broker.stalled, "the Sender sleeps without end while records are pending"

    def run(self) -> None:
        bench = self.bench
        bench.leaders[1] = -1
        bench.publish()
        self.broker.faults.extend(
            (0, Code.NOT_LEADER_OR_FOLLOWER, Code.MESSAGE_TOO_LARGE, LOST, REFUSED, Code.INVALID_RECORD, Code.INVALID_RECORD)
        )
        self.send(0, [b"a%02d" % number for number in range(12)])
        self.send(1, [b"e0", b"e1"])  # expire: no broker leads the partition
        bench.sender.start()
        self.wait()
        bench.leaders[1] = 1
        bench.publish()
        self.broker.faults.clear()
        self.steps.should_raise = lambda name, call: False
        self.send(0, [b"z0"])  # a later send works
        self.send(1, [b"z1"])
        self.wait()
        for name in (b"z0", b"z1"):
            assert self.outcomes[name][1] is None

    def close(self) -> None:
        sender = self.bench.sender
        sender.initiate_close()
        assert sender.join(GUARD_S), "the Sender's thread does not end"

    def check(self) -> None:
        late = {name: at_ms - self.due_ms[name] for name, (at_ms, _) in self.outcomes.items() if at_ms > self.due_ms[name]}
        assert not late
        assert len(self.outcomes) == self.expected
        delivered = [name for name, (_, error) in self.outcomes.items() if error is None]
        for partition, log in enumerate(self.broker.logs):
            names = [value.rstrip(b".") for value in log.values]
            assert len(names) == len(set(names)), "a record is there twice"
            assert names == sorted(names), f"order of partition {partition}: {names}"
        assert set(delivered) <= {value.rstrip(b".") for log in self.broker.logs for value in log.values}
        assert not self.bench.accumulator.has_incomplete
        assert self.bench.pool.available_bytes == self.bench.pool.total_bytes


def healthy() -> Counter[str]:
    run = Run()
    run.run()
    run.close()
    run.check()
    return run.steps.calls


def recovering() -> Counter[str]:
    """The steps of `_recover`: those called between an error in a pass and the next poll."""
    run = Run()
    before: dict[str, int] = {}
    found: Counter[str] = Counter()

    def should_raise(name: str, call: int) -> bool:
        if name == "client.poll" and call == 3:
            before.update(run.steps.calls)
            return True
        if before and not found and name == "sender.run_once":
            found.update({step: calls - before.get(step, 0) for step, calls in run.steps.calls.items()})
        return False

    run.steps.should_raise = should_raise
    run.run()
    run.close()
    run.check()
    return +found


@pytest.fixture(scope="module")
def steps() -> Counter[str]:
    """{step: calls} of a run without errors."""
    return healthy()


@pytest.fixture(scope="module")
def recovery() -> Counter[str]:
    """{step: calls} of one recovery."""
    return recovering()


@contextlib.contextmanager
def naming(step: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"the step that raised: {step}")
        raise


def test_the_steps_are_found(steps: Counter[str], recovery: Counter[str]) -> None:
    """The list is made by the code; these are the ends of it."""
    found = set(steps)
    assert {"client.poll", "client.send", "accumulator.ready", "accumulator.expired", "accumulator.split_and_reenqueue"} <= found
    assert {"transactions.on_success", "sender._expire", "sender.finish", "metadata.request_update", "clock.now_ms"} <= found
    assert {"sender._recover", "sender._queue_again", "accumulator.incomplete", "accumulator._activate"} <= set(recovery)
    assert len(found) > 50


@pytest.mark.parametrize(("times", "afterwards"), [(1, False), (2, True)], ids=["once before", "twice after"])
def test_each_step_raises(steps: Counter[str], times: int, afterwards: bool) -> None:
    for step in sorted(steps):
        for first in sorted({1, max(1, steps[step] // 2)}):
            with naming(step):
                run = Run()
                run.steps.afterwards = afterwards
                run.steps.should_raise = (
                    lambda name, call, step=step, first=first: name == step and first <= call < first + times  # type: ignore[misc]
                )
                run.run()
                run.close()
                run.check()


@pytest.mark.parametrize(("times", "afterwards"), [(1, False), (2, True)], ids=["once before", "twice after"])
def test_each_step_of_the_recovery_raises(recovery: Counter[str], times: int, afterwards: bool) -> None:
    for step in sorted(recovery):
        run = Run()
        run.steps.afterwards = afterwards
        left = [-1]

        def should_raise(name: str, call: int, step: str = step, left: list[int] = left) -> bool:
            if name == "client.poll" and call == 3:
                left[0] = times  # the pass fails here, and its recovery at the step
                return True
            if name == step and left[0] > 0:
                left[0] -= 1
                return True
            return False

        with naming(step):
            run.steps.should_raise = should_raise
            run.run()
            assert run.steps.raised
            run.close()
            run.check()
