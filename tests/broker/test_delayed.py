"""Waiting fetches: answered once, by an event or by time, never both; not at all when their peer is gone."""

import threading

import pytest

from kafkacore.broker.delayed import PURGE_INTERVAL, DelayedFetch, purgatory
from kafkacore.clock import ManualClock


class Status:
    def __init__(self, available):
        self.available = available

    def bytes_available(self):
        return self.available


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def fetches(clock):
    return purgatory("Fetch", clock)


@pytest.fixture
def answers():
    return []


def test_a_fetch_completes_when_its_partitions_hold_enough_together_or_one_fails(fetches, answers):
    first, second = Status(0), Status(10)
    fetch = DelayedFetch(500, 30, lambda: [first, second], lambda: answers.append("data"))
    assert not fetches.try_complete_else_watch(fetch, [("t", 0), ("t", 1)])
    first.available = 19
    assert fetches.check_and_complete(("t", 0)) == 0
    first.available = 20
    assert fetches.check_and_complete(("t", 0)) == 1
    assert fetches.check_and_complete(("t", 1)) == 0
    failing = DelayedFetch(500, 30, lambda: [Status(0), Status(None)], lambda: answers.append("error"))
    assert fetches.try_complete_else_watch(failing, [("t", 0)])
    assert answers == ["data", "error"]
    assert (fetches.num_delayed(), fetches.watched(), fetches.next_deadline_ms()) == (0, 0, None)


def test_time_answers_with_what_there_is_in_the_owners_thread(fetches, clock):
    threads = []
    fetch = DelayedFetch(500, 30, lambda: [Status(0)], lambda: threads.append(threading.current_thread()))
    fetches.try_complete_else_watch(fetch, [("t", 0)])
    assert fetches.next_deadline_ms() == 500
    clock.advance(499)
    assert not fetches.advance_clock()
    assert fetches.next_deadline_ms() == 500
    clock.advance(1)
    assert fetches.advance_clock()
    assert threads == [threading.current_thread()]
    assert (fetches.num_delayed(), fetches.next_deadline_ms()) == (0, None)
    assert fetches.check_and_complete(("t", 0)) == 0
    assert len(threads) == 1


def test_an_abandoned_fetch_answers_nobody(fetches, clock, answers):
    status = Status(0)
    fetch = DelayedFetch(500, 30, lambda: [status], lambda: answers.append("data"))
    fetches.try_complete_else_watch(fetch, [("t", 0)])
    fetch.abandon()
    assert (fetches.num_delayed(), fetches.next_deadline_ms()) == (0, None)
    status.available = 100
    assert fetches.check_and_complete(("t", 0)) == 0
    clock.advance(1000)
    assert not fetches.advance_clock()
    assert answers == []


def test_fetches_that_are_done_are_purged_from_partitions_without_events(fetches):
    for _ in range(PURGE_INTERVAL + 1):
        fetch = DelayedFetch(500, 1, lambda: [Status(0)], list)
        fetches.try_complete_else_watch(fetch, [("t", 0), ("quiet", 0)])
        fetch.abandon()
    fetches.advance_clock()
    assert (fetches.watched(), fetches.key_count()) == (0, 0)
