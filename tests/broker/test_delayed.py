"""Waiting operations: completed once, by an event or by time, never both."""

import pytest

from kafkacore.broker.delayed import DelayedFetch, DelayedOperation, DelayedOperations
from kafkacore.clock import ManualClock


class Op(DelayedOperation):
    def __init__(self, delay_ms=100):
        super().__init__(delay_ms)
        self.possible = False
        self.log = []

    def try_complete(self):
        return self.possible and self.force_complete()

    def on_complete(self):
        self.log.append("complete")

    def on_expiration(self):
        self.log.append("expired")


@pytest.fixture
def clock():
    return ManualClock()


def test_completed_at_once_is_never_watched(clock):
    operations = DelayedOperations()
    op = Op()
    op.possible = True
    assert operations.try_complete_else_watch(op, ["k"], clock.now_ms())
    assert (operations.watched, len(operations), operations.next_deadline_ms()) == (0, 0, None)


def test_an_event_completes_the_operations_of_its_key_only(clock):
    operations = DelayedOperations()
    one, two = Op(), Op()
    operations.try_complete_else_watch(one, ["a", "b"], clock.now_ms())
    operations.try_complete_else_watch(two, ["b"], clock.now_ms())
    assert operations.check_and_complete("a") == 0
    one.possible = True
    assert operations.check_and_complete("missing") == 0
    assert operations.check_and_complete("a") == 1
    assert (one.log, two.log) == (["complete"], [])
    assert operations.check_and_complete("b") == 0
    assert operations.watched == 1


def test_time_completes_what_no_event_did_once(clock):
    operations = DelayedOperations()
    op = Op(100)
    operations.try_complete_else_watch(op, ["k"], clock.now_ms())
    clock.advance(99)
    assert operations.advance(clock.now_ms()) == 0
    assert operations.next_deadline_ms() == 100
    clock.advance(1)
    assert operations.advance(clock.now_ms()) == 1
    assert op.log == ["complete", "expired"]
    op.possible = True
    assert operations.check_and_complete("k") == 0
    assert operations.advance(10_000) == 0
    assert op.log == ["complete", "expired"]


def test_a_cancelled_operation_does_nothing(clock):
    operations = DelayedOperations()
    op = Op()
    operations.try_complete_else_watch(op, ["k"], clock.now_ms())
    op.cancel()
    op.possible = True
    assert operations.check_and_complete("k") == 0
    assert operations.advance(1000) == 0
    assert op.log == []


def test_purging_drops_completed_operations_everywhere(clock):
    operations = DelayedOperations()
    for _ in range(DelayedOperations.PURGE_INTERVAL):
        op = Op()
        operations.try_complete_else_watch(op, ["k"], clock.now_ms())
        op.cancel()
    assert operations.watched <= 1
    operations.purge()
    assert (operations.watched, operations.next_deadline_ms()) == (0, None)


def test_no_keys_is_an_error(clock):
    with pytest.raises(ValueError):
        DelayedOperations().try_complete_else_watch(Op(), [], clock.now_ms())


class Status:
    def __init__(self, available):
        self.available = available

    def bytes_available(self):
        return self.available


def test_a_fetch_completes_when_its_partitions_hold_enough_together_or_one_fails(clock):
    operations = DelayedOperations()
    answers = []
    first, second = Status(0), Status(10)
    fetch = DelayedFetch(500, 30, [first, second], lambda: answers.append("data"))
    assert not operations.try_complete_else_watch(fetch, [("t", 0), ("t", 1)], clock.now_ms())
    first.available = 19
    assert operations.check_and_complete(("t", 0)) == 0
    first.available = 20
    assert operations.check_and_complete(("t", 0)) == 1
    failing = DelayedFetch(500, 30, [Status(0), Status(None)], lambda: answers.append("error"))
    assert operations.try_complete_else_watch(failing, [("t", 0)], clock.now_ms())
    assert answers == ["data", "error"]
