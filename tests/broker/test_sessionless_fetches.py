"""Fetches without a session: what waits is read once if nothing happens, and answered as a second read would."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fetch_sessions import IDS, NAMES, Pair, Reader, reads
from test_handlers import Bench, fetch_request

from kafkacore.broker.delayed import DelayedFetch
from kafkacore.broker.handlers import fetch as fetch_handlers
from kafkacore.broker.state import Call, Outcome
from tests.kit.reached import Reached

__all__ = ["reads"]
COUNT = 150


def fetch_all(bench: Bench, **settings):
    return bench.ask(fetch_request([(index, 0) for index in range(COUNT)], max_wait_ms=500, session_epoch=-1, **settings), NAMES)


def time_passes(bench: Bench) -> None:
    bench.clock.advance(501)
    for each in bench.state.clocked:
        each.advance_clock()


@pytest.mark.parametrize("min_bytes", [1, 1000])
def test_partitions_in_which_nothing_happens_are_read_once(reads, min_bytes):
    bench = Bench()
    bench.topic(partitions=COUNT)
    assert fetch_all(bench, min_bytes=min_bytes) is Outcome.LATER
    time_passes(bench)
    (answer,) = bench.late
    assert [part.partition_index for part in answer.responses[0].partitions] == list(range(COUNT))
    # A larger min_bytes has each of them looked at once, too.
    assert sorted(reads) == sorted([*range(COUNT)] * (1 if min_bytes == 1 else 2))


@pytest.mark.parametrize("min_bytes", [1, 100_000])
def test_what_happens_between_two_steps_of_the_read_is_read(min_bytes):
    bench = Bench()
    count = 2 * fetch_handlers.STEP_PARTITIONS
    bench.topic(partitions=count)
    request = fetch_request([(index, 0) for index in range(count)], max_wait_ms=500, min_bytes=min_bytes, session_epoch=-1)
    answers = []

    def run(call, steps):
        try:
            while True:
                next(steps)
        except StopIteration as end:
            if end.value is not Outcome.LATER:
                answers.append(end.value)

    call = Call(NAMES, "bench", bench.clock.now_ms(), bench.clock.wall_ms(), answers.append, bench.fail)
    call.slice = run
    steps = fetch_handlers.fetch(bench.state, call, request)
    next(steps)
    next(steps)  # the first half is read
    bench.produce(partition=0)
    run(call, steps)
    time_passes(bench)
    assert [part.partition_index for part in answers[0].responses[0].partitions if len(part.records)] == [0]
    assert len(answers) == 1


class Sessionless(Reader):
    """It has no session, whatever is answered."""

    session_id = property(lambda self: 0, lambda self, value: None)  # type: ignore[assignment]
    epoch = property(lambda self: -1, lambda self, value: None)  # type: ignore[assignment]


class Rereads(DelayedFetch):
    """Takes nothing for read."""

    found_nothing = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]


class Turns(Pair):
    """Two brokers, of which the second reads again when a wait is over."""

    waits: type[DelayedFetch] = DelayedFetch

    def both(self, do):
        found = []
        for bench, waits in zip(self.benches, (DelayedFetch, Rereads), strict=True):
            self.waits = waits
            found.append(do(bench))
        return tuple(found)


reached = Reached("answers what was read before", "reads again what has changed", "reads again what was too little")


@partial(reached.by, rounds=4)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_a_fetch_answers_what_a_second_read_would(seed):
    with pytest.MonkeyPatch.context() as monkeypatch:
        pair = Turns(seed)
        pair.readers = [Sessionless(NAMES), Sessionless(IDS, isolation_level=1), Sessionless(NAMES, 2), Sessionless(IDS, 3)]

        def wait(delay_ms, min_bytes, partitions, answer, *more):
            def answered():
                reached("answers what was read before", made.found_nothing)
                reached("reads again what has changed", min_bytes <= 1 and not made.found_nothing)
                reached("reads again what was too little", min_bytes > 1 and not made.found_nothing)
                answer()

            made = pair.waits(delay_ms, min_bytes, partitions, answered, *more)
            return made

        monkeypatch.setattr(fetch_handlers, "DelayedFetch", wait)
        for _ in range(120):
            pair.step()
