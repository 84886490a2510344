"""The partition state machine and the modes of a subscription."""

import itertools

import pytest

from kafkacore import errors
from kafkacore.consumer.subscription import EARLIEST, TRANSITIONS, FetchState, Mode, ResetStrategy, SubscriptionState
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def make(reset: str = "earliest") -> SubscriptionState:
    return SubscriptionState(ResetStrategy(reset))


def test_assign_keeps_the_state_of_partitions_that_stay():
    subscription = make()
    subscription.assign_manual([A, B])
    subscription.seek(A, 7)
    kept = subscription.partitions[A]
    subscription.assign_manual([A, C])
    assert subscription.partitions[A] is kept
    assert kept.offset == 7
    assert list(subscription.partitions) == [A, C]
    assert list(subscription.unsettled) == [C]


@each_row("first, second", list(itertools.permutations(["topics", "manual", "pattern"], 2)))
def test_modes_exclude_each_other(first, second):
    import re

    def enter(subscription, mode):
        {
            "topics": lambda: subscription.subscribe_topics(["t"]),
            "manual": lambda: subscription.assign_manual([A]),
            "pattern": lambda: subscription.subscribe_pattern(re.compile("t")),
        }[mode]()

    subscription = make()
    enter(subscription, first)
    with pytest.raises(errors.IllegalStateError, match="mutually exclusive"):
        enter(subscription, second)
    subscription.unsubscribe()
    assert subscription.mode is Mode.NONE
    enter(subscription, second)
    assert subscription.mode.value == second


def test_a_string_is_not_a_list_of_topics():
    with pytest.raises(errors.UsageError, match="collection of names"):
        make().subscribe_topics("topic")


def test_every_move_not_in_the_table_is_a_bug():
    for start, goal in itertools.product(FetchState, FetchState):
        subscription = make()
        subscription.assign_manual([A])
        state = subscription.partitions[A]
        state.state = start
        if goal in TRANSITIONS[start]:
            subscription._move(state, goal)
            assert state.state is goal
            assert (A in subscription.unsettled) == (goal is not FetchState.FETCHING)
        else:
            with pytest.raises(errors.InternalError):
                subscription._move(state, goal)


def test_a_reset_answer_that_comes_too_late_changes_nothing():
    subscription = make()
    subscription.assign_manual([A])
    state = subscription.partitions[A]
    assert subscription.initialize(state)
    strategy = state.reset
    subscription.seek(A, 42)
    assert not subscription.complete_reset(state, strategy, 0, -1)
    assert state.offset == 42
    subscription.request_reset(A, EARLIEST)
    assert not subscription.complete_reset(state, ResetStrategy("latest"), 99, -1)
    assert subscription.complete_reset(state, EARLIEST, 3, 1)
    assert (state.offset, state.offset_epoch, state.state) == (3, 1, FetchState.FETCHING)


def test_lag_counts_to_the_end_that_the_reader_may_see():
    subscription = make()
    subscription.assign_manual([A])
    state = subscription.partitions[A]
    assert state.lag(False) is None
    subscription.seek(A, 10)
    state.high_watermark, state.last_stable_offset = 100, 40
    assert state.lag(False) == 90
    assert state.lag(True) == 30
    subscription.seek(A, 500)
    assert state.lag(False) == 0


def test_partitions_not_assigned_are_refused_with_their_name():
    with pytest.raises(errors.IllegalStateError, match="topic t, partition 0"):
        make().seek(A, 0)


@each_row("text, ms", [("by_duration:P1D", 86_400_000), ("by_duration:PT1H30M", 5_400_000), ("by_duration:P1DT0.5S", 86_400_500)])
def test_reset_by_duration(text, ms):
    assert ResetStrategy(text).timestamp_ms(wall_ms=1_700_000_000_000) == 1_700_000_000_000 - ms


@each_row("text", ["", "newest", "by_duration:", "by_duration:P", "by_duration:1h", "by_duration:P1Y", "by_duration:-P1D"])
def test_reset_strategies_that_do_not_exist(text):
    with pytest.raises(errors.ConfigError, match="auto_offset_reset"):
        ResetStrategy(text)
