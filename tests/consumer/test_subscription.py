"""The partition state machine and the modes of a subscription."""

import itertools
from types import SimpleNamespace

import pytest

from kafkacore import errors
from kafkacore.consumer.sessions import FetchSession, FetchTarget
from kafkacore.consumer.subscription import EARLIEST, TRANSITIONS, FetchState, Mode, PartitionState, ResetStrategy, SubscriptionState
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
    assert (subscription.mode, subscription.pattern, subscription.topics) == (Mode.NONE, None, frozenset())
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
    assert state.offset == 42 and state.reset is None
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
    subscription, b = settled(B)
    with pytest.raises(errors.UsageError, match="topic t, partition 1"):
        subscription.seek(B, 1 << 63)
    subscription.seek(B, (1 << 63) - 1)
    assert b.offset == (1 << 63) - 1


@each_row("text, ms", [("by_duration:P1D", 86_400_000), ("by_duration:PT1H30M", 5_400_000), ("by_duration:P1DT0.5S", 86_400_500)])
def test_reset_by_duration(text, ms):
    assert ResetStrategy(text).timestamp_ms(wall_ms=1_700_000_000_000) == 1_700_000_000_000 - ms


@each_row("text", ["", "newest", "by_duration:", "by_duration:P", "by_duration:1h", "by_duration:P1Y", "by_duration:-P1D"])
def test_reset_strategies_that_do_not_exist(text):
    with pytest.raises(errors.ConfigError, match="auto_offset_reset"):
        ResetStrategy(text)


def settled(*tps):
    """A subscription to partitions that have positions; nothing of them waits to be looked at."""
    subscription = make()
    subscription.assign_manual(tps)
    for nth, tp in enumerate(tps):
        subscription.seek(tp, 10 + nth, 3)
    subscription.touched.clear()
    return subscription, *subscription.partitions.values()


def touched(subscription):
    """Which partitions changed since the last call."""
    found = [state.tp for state in subscription.touched]
    subscription.touched.clear()
    return found


def test_each_change_of_a_partition_is_to_be_looked_at():
    subscription, a, _ = settled(A, B)
    for change in (
        lambda: subscription.pause(A),
        lambda: subscription.resume(A),
        lambda: subscription.seek(A, 1),
        lambda: subscription.request_reset(A, EARLIEST),
        lambda: subscription.complete_reset(a, EARLIEST, 5, 2, 4),
        lambda: subscription.new_leader_epoch(a, 5),
        lambda: subscription.complete_validation(a),
        lambda: subscription.rewind(A, 4),
        lambda: subscription.read_up_to(a, 9),
    ):
        change()
        assert touched(subscription) == [A]
    subscription.complete_validation(a)
    subscription.rewind(A, 4)  # it is there
    subscription.rewind(C, 4)
    assert touched(subscription) == []
    assert (a.offset, a.leader_epoch, a.fetch_end, a.paused) == (4, 5, 9, False)
    subscription.remove([C, A])
    assert (touched(subscription), list(subscription.partitions), subscription.by_topic.keys()) == ([A], [B], {"t"})
    subscription.add([B, C], reset=EARLIEST)
    assert (touched(subscription), list(subscription.partitions), list(subscription.unsettled)) == ([C], [B, C], [C])
    assert (subscription.partitions[C].reset, subscription.partitions[C].state) == (EARLIEST, FetchState.AWAIT_RESET)
    subscription.remove([B, C])
    assert (subscription.by_topic, subscription.unsettled, subscription.unasked) == ({}, {}, {})


def test_a_question_is_asked_once_and_taken_back_when_its_answer_is_of_no_use():
    subscription, a, b = settled(A, B)
    subscription.request_reset(A, EARLIEST)
    subscription.request_reset(B, EARLIEST)
    question = object()
    subscription.ask(a, question)
    assert list(subscription.unasked) == [b]
    subscription.ask_again(a)
    assert list(subscription.unasked) == [b]
    subscription.answered(a)
    subscription.ask_again(a)
    assert list(subscription.unasked) == [b, a]
    subscription.ask(a, question)
    subscription.seek(A, 1)
    assert (subscription.withdrawn, a.question) == ([(question, a)], None)
    subscription.ask_again(a)
    assert list(subscription.unasked) == [b]
    assert subscription.seeks_positions
    failed = errors.TopicAuthorization("no")
    subscription.ask(b, failed)
    assert not subscription.seeks_positions
    subscription.resume(B)
    assert (subscription.withdrawn[1:], list(subscription.unasked)) == ([(failed, b)], [b])
    subscription.ask(b, question)
    subscription.resume(B)
    assert (b.question, list(subscription.unasked)) == (question, [])


def test_what_an_interrupt_has_left_half_done_is_settled():
    subscription, a, b = settled(A, B)
    subscription.request_reset(A, EARLIEST)
    gone = PartitionState(C)
    subscription.by_topic["u"] = {0: gone}
    subscription.unsettled[C], subscription.unasked[gone], subscription.touched[gone] = gone, None, None
    subscription.withdrawn.append((object(), gone))
    a.question, a.held, a.node_id, a.placed_by = object(), [object()], 3, object()
    a.row = FetchSession(1).want(A, FetchTarget(b"t" * 16, 0, 1_000, 0))
    subscription.settle_anew()
    assert (subscription.by_topic, subscription.unsettled, subscription.unasked) == ({"t": {0: a, 1: b}}, {A: a}, {a: None})
    assert (subscription.touched, subscription.withdrawn) == ({a: None, b: None}, [])
    assert (a.question, a.held, a.node_id, a.row, a.placed_by) == (None, [], -1, None, None)


def test_a_leader_of_a_new_epoch_has_the_position_checked_where_the_epochs_are_known():
    for offset_epoch, epoch, state in ((0, 0, "AWAIT_VALIDATION"), (3, 4, "AWAIT_VALIDATION"), (-1, 4, "FETCHING"), (3, -1, "FETCHING")):
        subscription, a = settled(A)
        subscription.seek(A, 5, offset_epoch)
        a.preferred_replica = 7
        subscription.new_leader_epoch(a, epoch)
        assert (a.state, a.leader_epoch, a.preferred_replica) == (FetchState[state], epoch, -1)
        subscription.new_leader_epoch(a, -1)
        assert a.state is FetchState.FETCHING


def test_partitions_whose_place_differs_are_found():
    def snapshot(nodes=(1,), topic_id=b"x", t=("a", "b"), u=("c",)):
        def topic(parts):
            known = list(parts)
            return SimpleNamespace(topic_id=topic_id, partitions=known, partition=lambda i: known[i])

        return SimpleNamespace(nodes=dict.fromkeys(nodes), topics={"t": t and topic(t), "u": topic(u)})

    subscription, a, b, c = settled(A, B, C)
    before = snapshot()

    def differ(now, differs=lambda old, new: new != "like it", was=before):
        return subscription.states_that_differ(was, now, differs)

    assert differ(before) == differ(snapshot()) == []
    assert differ(before, was=None) == differ(snapshot(nodes=(1, 2))) == differ(snapshot(topic_id=b"y")) == [a, b, c]
    assert differ(snapshot(t=("a", "z"))) == [b]
    assert differ(snapshot(t=("y", "z"), u=("d",))) == [a, b, c]
    assert differ(snapshot(t=("like it", "z"))) == [b]
    assert differ(snapshot(t=("a", None))) == differ(snapshot(), was=snapshot(t=("a", None))) == [b]
    assert differ(snapshot(t=("a", "b", "new"))) == differ(snapshot(t=None)) == differ(snapshot(), was=snapshot(t=None)) == [a, b]


def test_a_position_that_goes_back_takes_the_epoch_that_it_was_read_in():
    subscription, a = settled(A)
    a.epochs = [(4, 1), (6, 2), (9, 3)]
    subscription.rewind(A, 7)
    assert (a.offset, a.offset_epoch, a.epochs) == (7, 2, [(4, 1), (6, 2)])
    subscription.request_validation(a)
    subscription.ask(a, question := object())
    subscription.rewind(A, 2)
    assert (a.offset, a.offset_epoch, a.epochs) == (2, 1, [(4, 1)])
    assert (subscription.withdrawn, list(subscription.unasked)) == ([(question, a)], [a])


def test_one_read_of_stretches_at_a_time_goes_without_resets():
    subscription = make()
    first = subscription.begin_stretches()
    second = subscription.begin_stretches()
    with pytest.raises(errors.IllegalStateError, match="another read"):
        subscription.check_stretches(first)
    subscription.end_stretches(first)
    subscription.check_stretches(second)
    assert (subscription.default_reset.name, subscription.reads_stretches) == ("none", True)
    subscription.end_stretches(second)
    assert (subscription.default_reset.name, subscription.reads_stretches) == ("earliest", False)


def test_a_topic_that_was_made_again_is_read_from_its_start():
    for reset, state in (("latest", FetchState.AWAIT_RESET), ("none", FetchState.INITIALIZING)):
        subscription = make(reset)
        subscription.assign_manual([A, B])
        old = subscription.partitions[A]
        subscription.pause(A)
        subscription.start_over(A)
        new = subscription.partitions[A]
        assert (new.state, new.paused, new.assigned, old.assigned) == (state, True, True, False)
        assert subscription.by_topic["t"] == {0: new, 1: subscription.partitions[B]}
        assert (new.reset, subscription.initialize(new)) == ((EARLIEST, True) if reset == "latest" else (None, False))
        assert list(subscription.paused()) == [A]
