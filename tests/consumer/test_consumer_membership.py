"""The engine of KIP-848 members alone: time is moved by hand, the coordinator is a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from heartbeat_model import BACKOFF_MS, INTERVAL_MS, MAX_POLL_MS, WAITS_MS, Client, Coordinator
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group.membership import GroupSettings
from kafkacore.consumer.group.modern import ConsumerMembership, Phase
from kafkacore.errors import Code
from kafkacore.types import TopicPartition
from tests.kit.reached import Reached
from tests.kit.rows import each_row


def tps(topic: str, *indexes: int) -> set[TopicPartition]:
    return {TopicPartition(topic, i) for i in indexes}


def settled(*clients: Client, rounds: int = 40) -> None:
    """Until everybody is stable, with nothing left to say but heartbeats."""
    for _ in range(rounds):
        for client in clients:
            client.learn()
            client.now_ms += INTERVAL_MS
            client.round()
    assert [c.engine.phase for c in clients] == [Phase.STABLE] * len(clients)


def stable_member(*, t: int = 2, u: int = 0, **settings: Any) -> tuple[Coordinator, Client]:
    """A member of a group of its own that has all of t."""
    coordinator = Coordinator(t=t, u=u) if u else Coordinator(t=t)
    client = Client(coordinator, "t", **settings)
    settled(client)
    return coordinator, client


def last(coordinator: Coordinator) -> Any:
    return coordinator.seen[-1]


def test_joins_reports_and_rests():
    coordinator = Coordinator(t=3)
    client = Client(coordinator, "t", rack="r")
    client.round()
    (join,) = coordinator.seen
    assert (join.member_id, join.member_epoch, join.rack_id, join.rebalance_timeout_ms) == ("m", 0, "r", MAX_POLL_MS)
    assert join.subscribed_topic_names == ["t"]
    assert client.engine.phase is Phase.RECONCILING
    client.round()
    assert client.reads == tps("t", 0, 1, 2)
    assert client.engine.phase is Phase.ACKNOWLEDGING
    client.round()
    report = last(coordinator)
    assert [t.partitions for t in report.topic_partitions] == [[0, 1, 2]]
    assert (report.subscribed_topic_names, report.rebalance_timeout_ms, report.rack_id) == (None, -1, None)  # only what is new
    client.round()
    assert client.engine.phase is Phase.STABLE
    assert client.engine.rebalances == 1
    sent = len(coordinator.seen)
    for wait_ms in (INTERVAL_MS // 4, INTERVAL_MS // 2, *[INTERVAL_MS] * 10):  # the join took the eighth
        client.now_ms += wait_ms - 1
        client.round()
        assert len(coordinator.seen) == sent
        assert client.engine.next_wake_ms(client.now_ms) == 1
        client.now_ms += 1
        client.round()
        sent += 1
        assert len(coordinator.seen) == sent  # the interval is the coordinator's
    beat = last(coordinator)
    assert (beat.topic_partitions, beat.subscribed_topic_names, beat.subscribed_topic_regex) == (None, None, None)


def test_rebalances_and_heartbeats_are_counted_and_timed():
    coordinator = Coordinator(t=1, u=1)
    client = Client(coordinator, "t", "u")
    engine = client.engine
    assert (engine.rebalance_began_ms, engine.last_rebalance_ms, engine.last_heartbeat_ms) == (-1, -1, -1)
    assert (engine.heartbeats, engine.failed_rebalances, engine.rebalances, engine.rebalance_ms_max) == (0, 0, 0, 0)
    found = []
    for wait_ms, topics in ((10, {"t"}), (20, {"t", "u"}), (5, {"t"})):
        engine.subscribe(frozenset(topics))
        while engine.rebalances == len(found):
            client.now_ms += wait_ms
            client.round()
        found.append((engine.rebalances, engine.last_rebalance_ms, engine.rebalance_ms_sum, engine.rebalance_ms_max))
        assert engine.rebalance_began_ms == -1
    assert found == [(1, 30, 30, 30), (2, 60, 90, 60), (3, 15, 105, 60)]
    assert engine.heartbeats == len(coordinator.seen)
    client.step(INTERVAL_MS)
    sent_ms = client.now_ms
    client.now_ms += 7
    client.exchange()
    assert (engine.last_heartbeat_ms, engine.failed_rebalances) == (sent_ms, 0)


def test_a_join_that_is_refused_is_sent_again_after_longer_and_longer_waits():
    coordinator = Coordinator(t=1)
    client = Client(coordinator, "t", retry_backoff_max_ms=1_000)
    waits_ms = []
    for _ in range(5):
        coordinator.refuse.append(Code.GROUP_AUTHORIZATION_FAILED)
        client.step()
        client.exchange()
        assert client.engine.next_wake_ms(client.now_ms) == 0, "the back-off begins with the next step"
        client.round()
        waits_ms.append(client.engine.next_wake_ms(client.now_ms))
        client.now_ms += waits_ms[-1]
    assert waits_ms == [100, 200, 400, 800, 1_000]
    assert client.engine.failed_rebalances == 5
    settled(client)
    client.step(INTERVAL_MS)
    client.link.cut()
    client.step()
    assert client.engine.next_wake_ms(client.now_ms) == 100


def test_a_member_that_wants_something_joins_at_once():
    client = Client(Coordinator(t=1))
    assert client.engine.next_wake_ms(client.now_ms) == MAX_POLL_MS
    client.engine.subscribe_pattern("t.*")
    assert client.engine.next_wake_ms(client.now_ms) == 0
    client.engine.subscribe(frozenset("t"))
    assert client.engine.next_wake_ms(client.now_ms) == 0


def test_what_others_give_up_is_taken_soon():
    """The second member joins when the first one has everything, so it is given the rest a little later."""
    coordinator = Coordinator(t=4)
    first, second = Client(coordinator, "t", name="a"), Client(coordinator, "t", name="b")
    settled(first)
    second.now_ms = first.now_ms
    for _ in range(4):
        second.round()
    first.now_ms += INTERVAL_MS
    for _ in range(4):
        first.round()
    assert len(first.reads) == 2
    assert not second.reads
    joined_ms = second.now_ms
    while not second.reads:
        wait_ms = second.engine.next_wake_ms(second.now_ms)
        assert wait_ms is not None
        second.now_ms += wait_ms
        second.round()
    assert second.now_ms - joined_ms <= INTERVAL_MS // 4


def test_gives_up_and_reports_before_it_takes():
    coordinator = Coordinator(t=4)
    first, second = Client(coordinator, "t", name="a"), Client(coordinator, "t", name="b")
    settled(first)
    second.round()
    second.round()
    first.now_ms += INTERVAL_MS
    first.round()  # hears of it
    first.step()
    gives_up = first.engine.change
    assert gives_up is not None
    assert (len(gives_up.revoked), gives_up.lost, gives_up.added) == (2, False, None)
    second.now_ms += INTERVAL_MS
    second.round()
    second.round()
    assert second.reads == set()
    settled(first, second)
    assert first.reads | second.reads == tps("t", 0, 1, 2, 3)
    assert not first.reads & second.reads
    assert [kind for kind, _ in first.calls] == ["assigned", "revoked"]
    assert second.calls == [("assigned", set()), ("assigned", second.reads)]


def test_what_is_taken_away_is_given_up_and_reported_before_what_is_new_is_taken():
    """What stays is reported with both."""
    coordinator = Coordinator(t=1, u=1, v=1)
    client = Client(coordinator, "t", "u", "v")
    given = ["t", "u"]

    def give(member, _owned):
        member.epoch, member.assigned = coordinator.epoch, {(coordinator.topics[name][0], 0) for name in given}

    coordinator.give = give  # type: ignore[method-assign]
    settled(client)
    given[:] = ["u", "v"]
    reports = len(coordinator.seen)
    settled(client)
    assert client.calls == [("assigned", tps("t", 0) | tps("u", 0)), ("revoked", tps("t", 0)), ("assigned", tps("v", 0))]
    assert client.reads == tps("u", 0) | tps("v", 0)
    reported = [seen.topic_partitions for seen in coordinator.seen[reports:] if seen.topic_partitions is not None]
    names = [{coordinator.name(bytes(topic.topic_id)) for topic in topics} for topics in reported[-2:]]
    assert names == [{"u"}, {"u", "v"}]


def test_one_request_is_under_way_at_a_time():
    _, client = stable_member(u=1)
    client.step(INTERVAL_MS)
    client.engine.subscribe(frozenset({"t", "u"}))
    client.step(INTERVAL_MS)
    assert len(client.link.sent) == 1
    client.exchange()
    client.step()
    [(second, _)] = client.link.sent
    assert second.subscribed_topic_names == ["t", "u"]


def test_topic_ids_without_a_name_wait_and_the_rest_does_not():
    coordinator = Coordinator(t=2, u=2)
    client = Client(coordinator, "t", "u")
    client.known = coordinator.snapshot("t")
    client.round()
    client.round()
    assert client.reads == tps("t", 0, 1)
    assert client.asked_names == 1
    client.round()
    client.round()
    assert client.engine.phase is Phase.RECONCILING
    before = client.asked_names
    for _ in range(3):  # again, after a back-off only
        client.now_ms += client.engine.next_wake_ms(client.now_ms) or 0
        client.round()
    assert client.asked_names > before
    client.learn()
    client.round()
    client.round()
    assert client.reads == tps("t", 0, 1) | tps("u", 0, 1)
    settled(client)


def test_a_topic_that_is_created_again_changes_hands_by_its_id_only():
    coordinator, client = stable_member(t=1)
    calls = list(client.calls)
    coordinator.topics["t"] = (b"n" * 16, 1)
    coordinator.members["m"].assigned = coordinator.target["m"] = {(b"n" * 16, 0)}
    client.step(INTERVAL_MS)
    client.link.cut()  # so that it hears of the whole assignment
    settled(client)
    assert client.calls == calls
    assert any(r.topic_partitions and bytes(r.topic_partitions[0].topic_id) == b"n" * 16 for r in coordinator.seen)


def test_what_was_never_taken_is_reported_as_given_up():
    """Else the coordinator waits for it, and no other member gets it."""
    coordinator = Coordinator(t=1, u=1)
    client = Client(coordinator, "t", "u")
    client.known = coordinator.snapshot("t")
    for _ in range(4):
        client.round()
    assert client.reads == tps("t", 0)
    client.engine.subscribe(frozenset({"t"}))
    for _ in range(4):
        client.round()
    assert not coordinator.members["m"].revoking
    assert client.engine.phase is Phase.STABLE


def test_nothing_is_added_while_a_report_without_it_has_no_answer():
    """The coordinator may hand on what the report leaves out."""
    coordinator = Coordinator(t=2, u=1)
    client = Client(coordinator, "t", "u")
    client.known = coordinator.snapshot("t")
    client.round()
    client.round()
    client.step()  # reports t
    assert client.link.sent
    client.learn()
    client.step()
    assert client.engine.change is None
    client.link.cut()
    client.step()
    assert client.engine.change is None
    client.step(BACKOFF_MS)
    client.exchange()
    client.step()
    assert client.engine.change is not None


def test_a_request_that_failed_is_sent_again_with_every_field():
    coordinator, client = stable_member()
    client.step(INTERVAL_MS)
    client.link.cut()
    sent = len(coordinator.seen)
    client.round()
    assert len(coordinator.seen) == sent  # after a back-off
    assert client.engine.next_wake_ms(client.now_ms) == BACKOFF_MS
    client.now_ms += BACKOFF_MS
    client.round()
    again = last(coordinator)
    assert (again.subscribed_topic_names, again.rebalance_timeout_ms) == (["t"], MAX_POLL_MS)
    assert [t.partitions for t in again.topic_partitions] == [[0, 1]]
    assert again.member_epoch > 0


def test_what_a_change_under_way_adds_counts_as_owned():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    client.round()
    client.step()
    assert client.work() and client.work()  # the polling thread is at it
    client.step(INTERVAL_MS)
    client.link.cut()
    client.step()
    client.step(BACKOFF_MS)
    client.link.take()
    assert [t.partitions for t in last(coordinator).topic_partitions] == [[0, 1]]


def test_another_subscription_is_reported_at_once():
    coordinator, client = stable_member(t=1, u=1)
    client.engine.subscribe(frozenset({"t", "u"}))
    client.round()
    assert last(coordinator).subscribed_topic_names == ["t", "u"]
    assert last(coordinator).rebalance_timeout_ms == -1
    settled(client)
    assert client.reads == tps("t", 0) | tps("u", 0)
    sent = len(coordinator.seen)
    client.engine.subscribe(frozenset({"u", "t"}))
    client.round()
    assert len(coordinator.seen) == sent


@each_row("code", [Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND])
def test_a_fenced_member_loses_everything_and_joins_again(code):
    coordinator, client = stable_member()
    coordinator.refuse.append(code)
    client.step(INTERVAL_MS)
    client.exchange()
    assert not client.engine.joined
    assert client.engine.metadata.generation_id == -1
    sent = len(coordinator.seen)
    client.step()
    client.exchange()
    assert len(coordinator.seen) == sent  # not before everything is given up
    client.polls()
    assert client.reads == set()
    assert client.calls[-1] == ("lost", tps("t", 0, 1))
    client.round()
    assert last(coordinator).member_epoch == 0
    settled(client)
    assert client.reads == tps("t", 0, 1)
    assert client.engine.failure is None


@each_row("code", [Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID])
def test_a_refused_commit_has_the_member_join_again_without_a_heartbeat(code):
    coordinator, client = stable_member()
    sent, me = len(coordinator.seen), client.engine.metadata
    assert not client.engine.commit_refused(errors.from_code(code), me._replace(generation_id=me.generation_id - 1))
    client.step()
    assert client.engine.phase is Phase.STABLE, "of an earlier epoch"
    assert not client.engine.commit_refused(errors.from_code(code), me)
    assert not client.engine.joined
    fenced = client.engine.fenced
    assert client.engine.failure is fenced
    assert (fenced is not None) == (code == Code.FENCED_INSTANCE_ID)
    assert fenced is None or "another process uses group_instance_id" in fenced.message
    assert fenced is None or "tries to join again, which works once the other one has left" in fenced.message
    client.step()
    client.polls()
    assert client.calls[-1] == ("lost", tps("t", 0, 1))
    client.step(BACKOFF_MS)
    assert not client.engine.commit_refused(errors.from_code(code), me)
    assert client.engine.phase is Phase.JOINING
    client.exchange()
    assert len(coordinator.seen) == sent + 1
    assert last(coordinator).member_epoch == 0


def test_a_commit_with_a_stale_epoch_brings_the_next_heartbeat_forward():
    coordinator, client = stable_member()
    sent = len(coordinator.seen)
    client.step()
    assert len(coordinator.seen) == sent
    assert not client.engine.commit_refused(errors.from_code(Code.STALE_MEMBER_EPOCH), client.engine.metadata)
    assert client.engine.next_wake_ms(client.now_ms) == 0
    client.step()
    client.exchange()
    assert len(coordinator.seen) == sent + 1
    assert client.engine.next_wake_ms(client.now_ms) == INTERVAL_MS


def test_fenced_while_the_polling_thread_takes_partitions_over():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    client.round()
    client.step()
    client.work()
    client.work()
    assert client.reads
    coordinator.refuse.append(Code.FENCED_MEMBER_EPOCH)
    client.step(INTERVAL_MS)
    client.exchange()
    client.polls()
    assert client.reads == set()
    assert client.calls[-1] == ("lost", tps("t", 0, 1))
    settled(client)


@each_row(
    "code",
    [
        Code.INVALID_REGULAR_EXPRESSION,
        Code.UNSUPPORTED_ASSIGNOR,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.GROUP_MAX_SIZE_REACHED,
        Code.INVALID_REQUEST,
        Code.FENCED_INSTANCE_ID,
    ],
)
@each_row("joined", [False, True])
def test_what_is_refused_for_good_is_raised_and_tried_again(code, joined):
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    if joined:
        settled(client)
    coordinator.refuse.append(code)
    client.step(INTERVAL_MS)
    client.exchange()
    failure = client.engine.failure
    assert isinstance(failure, errors.for_code(code))
    assert "group g, member m" in str(failure)
    assert "so says the test" in str(failure)
    assert (failure.broker, failure.api) == (1, "ConsumerGroupHeartbeat v1")
    client.engine.failure = None
    assert not client.engine.joined
    sent = len(coordinator.seen)
    client.round()
    assert len(coordinator.seen) == sent  # after a back-off
    settled(client)
    assert client.reads == tps("t", 0, 1)
    assert [kind for kind, _ in client.calls] == (["assigned", "lost", "assigned"] if joined else ["assigned"])


def test_a_topic_that_may_not_be_read_is_raised_and_costs_no_membership():
    coordinator, client = stable_member()
    coordinator.refuse.append(Code.TOPIC_AUTHORIZATION_FAILED)
    client.step(INTERVAL_MS)
    client.exchange()
    assert isinstance(client.engine.failure, errors.TopicAuthorization)
    assert client.engine.joined


@each_row("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_moves_or_loads_costs_nothing(code):
    coordinator, client = stable_member()
    calls, epoch = list(client.calls), client.engine.metadata.generation_id
    coordinator.refuse.append(code)
    client.step(INTERVAL_MS)
    client.exchange()
    assert client.link.unknown == (code != Code.COORDINATOR_LOAD_IN_PROGRESS)
    settled(client)
    assert client.calls == calls
    assert client.engine.metadata.generation_id == epoch
    assert client.engine.failure is None


def test_a_broker_without_kip_848_is_named():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t", version=-1)
    client.link.send = lambda api, build, now_ms, answered, **_: client.link.answers.append(  # type: ignore[method-assign]
        (type("R", (), {"response": None, "error": errors.UnsupportedVersion("no version"), "version": -1}), answered)
    )
    client.round()
    assert isinstance(client.engine.failure, errors.UnsupportedVersion)
    assert "no KIP-848" in str(client.engine.failure)
    assert "group_protocol=classic" in str(client.engine.failure)
    assert client.engine.failure.api == "ConsumerGroupHeartbeat"


def test_a_request_that_no_version_can_carry_is_raised():
    client = Client(Coordinator(t=2), "t")
    error = errors.UsageError("no form on the wire")
    client.step()
    client.link.sent.popleft()[1](SimpleNamespace(response=None, error=error))
    assert client.engine.failure is error
    client.step()
    assert client.engine.next_wake_ms(client.now_ms) == BACKOFF_MS
    settled(client)


def test_what_the_application_asks_for_is_sent_once_and_who_never_polled_is_not_waited_for_longer():
    coordinator = Coordinator(t=1)
    client = Client(coordinator, "t")
    engine = ConsumerMembership(
        client.link,  # type: ignore[arg-type]
        GroupSettings("g", **WAITS_MS),
        "uniform",
        lambda: client.known,
        lambda topic_ids: None,
    )
    assert engine.next_wake_ms(0) is None
    engine.subscribe(frozenset("t"))
    for now_ms in (5_000, 5_000 + MAX_POLL_MS - 1):
        engine.step(now_ms)
        client.exchange()
        assert not engine.breached
    assert [seen.server_assignor for seen in coordinator.seen] == ["uniform", None]
    assert len({seen.member_id for seen in coordinator.seen}) == 1 and len(coordinator.seen[0].member_id) == 22
    engine.step(5_000 + MAX_POLL_MS)
    assert engine.breached


@each_row(("interval_ms", "waits_ms"), [(0, 5_000), (1, BACKOFF_MS), (200, 200), (10**9, MAX_POLL_MS)])
def test_who_is_not_taken_in_yet_joins_again_at_the_interval_of_the_coordinator(interval_ms, waits_ms):
    coordinator = Coordinator(t=1)
    client = Client(coordinator, "t")
    taken_in = coordinator.answer
    coordinator.answer = lambda *_: p.ConsumerGroupHeartbeatResponse(  # type: ignore[method-assign]
        member_id="m", member_epoch=0, heartbeat_interval_ms=interval_ms
    )
    client.round()
    client.engine.polled(client.now_ms + 1)
    assert client.engine.next_wake_ms(client.now_ms) == waits_ms
    assert not client.engine.joined
    coordinator.answer = taken_in  # type: ignore[method-assign]
    client.now_ms += waits_ms
    settled(client)


@each_row(
    ("topics", "topic", "said"),
    [
        ("t", "t", "member m"),
        ("ut", None, ": one of the topics t, u"),
        ("kjihgfedcba", None, ": one of the topics a, b, c, d, e, f, g, h, i, j, ..."),
    ],
)
def test_a_broker_that_does_not_say_which_topic_may_not_be_read(topics, topic, said):
    client = Client(Coordinator(**dict.fromkeys(topics, 1)), *topics)
    client.coordinator.answer = lambda *_: p.ConsumerGroupHeartbeatResponse(  # type: ignore[method-assign]
        error_code=Code.TOPIC_AUTHORIZATION_FAILED
    )
    client.round()
    assert client.engine.failure is not None and client.engine.failure.topic == topic
    assert client.engine.failure.message.endswith(said)


def test_who_has_asked_for_names_ten_times_asks_for_the_whole_assignment():
    coordinator = Coordinator(t=1, u=1)
    client = Client(coordinator, "t", "u")
    client.known = coordinator.snapshot("t")
    client.round()
    sent = len(coordinator.seen)
    while all(seen.rebalance_timeout_ms == -1 for seen in coordinator.seen[sent:]):
        client.now_ms += client.engine.next_wake_ms(client.now_ms) or 0
        client.round()
    assert client.asked_names == 10


@pytest.mark.parametrize(("code", "why"), [(Code.UNSUPPORTED_VERSION, "no KIP-848"), (Code.GROUP_ID_NOT_FOUND, "classic one that cannot")])
def test_a_group_that_cannot_be_joined_this_way_says_why(code, why):
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    coordinator.refuse.append(code)
    client.round()
    assert why in str(client.engine.failure)
    assert "group_protocol=classic" in str(client.engine.failure)


def test_the_brokers_pattern_needs_version_1():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, version=0)
    client.engine.subscribe_pattern("t.*")
    client.round()
    assert "SubscriptionPattern needs ConsumerGroupHeartbeat v1" in str(client.engine.failure)
    client = Client(coordinator)
    client.engine.subscribe_pattern("t.*")
    client.round()
    assert (last(coordinator).subscribed_topic_regex, last(coordinator).subscribed_topic_names) == ("t.*", [])
    client.engine.subscribe(frozenset({"t"}))
    client.round()
    client.round()
    assert any(r.subscribed_topic_regex == "" and r.subscribed_topic_names == ["t"] for r in coordinator.seen)


def test_version_0_leaves_the_member_id_to_the_broker():
    coordinator, client = stable_member(version=0)
    assert coordinator.seen[0].member_id == ""
    assert client.engine.metadata.member_id == "given-1"
    assert {r.member_id for r in coordinator.seen[1:]} == {"given-1"}


@pytest.mark.parametrize("removed", [False, True])
def test_the_clock_jumps_an_hour_while_the_application_waits_in_poll(removed):
    """A machine was suspended: who waits in poll has polled, and only the coordinator knows whether it is a member still."""
    coordinator, client = stable_member()
    calls, sent = list(client.calls), len(coordinator.seen)
    client.now_ms += 3_600_000
    if removed:
        coordinator.remove("m")
    client.polls()
    client.round()
    assert len(coordinator.seen) > sent, "a heartbeat, at once"
    assert coordinator.seen[sent].member_epoch > 0
    settled(client)
    assert client.calls == calls + ([("lost", tps("t", 0, 1)), ("assigned", tps("t", 0, 1))] if removed else [])


def test_a_static_member_goes_for_a_while_and_its_partitions_wait():
    coordinator, client = stable_member(group_instance_id="i")
    client.engine.leave(client.now_ms, "closed")
    assert client.engine.leaving
    client.exchange()
    assert not client.engine.leaving
    assert (last(coordinator).member_epoch, last(coordinator).instance_id) == (-2, "i")
    again = Client(coordinator, "t", name="m2", group_instance_id="i")
    settled(again)
    assert again.reads == tps("t", 0, 1)


def test_an_instance_id_in_use_is_raised_until_it_is_released():
    coordinator = Coordinator(t=2)
    first, second = (Client(coordinator, "t", name=n, group_instance_id="i") for n in "ab")
    settled(first)
    for _ in range(5):
        second.round()
        second.now_ms += BACKOFF_MS
    assert isinstance(second.engine.failure, errors.UnreleasedInstanceId)
    assert second.engine.fenced is second.engine.failure
    first.engine.leave(first.now_ms, "closed")
    first.exchange()
    settled(second)
    assert second.reads == tps("t", 0, 1)


def test_a_static_member_whose_join_had_no_answer_releases_itself():
    """Its own place is not released: the coordinator took the join in."""
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t", group_instance_id="i")
    client.step()
    client.link.take()
    client.link.cut()
    settled(client)
    assert client.engine.failure is None
    assert [r.member_epoch for r in coordinator.seen[:4]] == [0, 0, -2, 0]


def test_the_coordinator_hears_of_a_leave_when_it_can_be_reached():
    coordinator, client = stable_member()
    client.link.reachable = False
    client.engine.leave(client.now_ms, "unsubscribed")
    client.engine.subscribe(frozenset({"t"}))
    client.reads.clear()
    client.round()
    assert client.engine.leaving or client.engine.phase is Phase.OUT
    client.link.reachable = True
    coordinator.refuse.extend([Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS])
    sent = len(coordinator.seen)
    settled(client)
    assert [r.member_epoch for r in coordinator.seen[sent : sent + 4]] == [-1, -1, -1, 0]  # not before the join
    client.link.reachable = False
    client.engine.leave(client.now_ms, "closed")
    client.step(45_000)
    assert not client.engine.leaving  # its session has ended
    assert client.engine.next_wake_ms(client.now_ms) is None


@pytest.mark.parametrize("code", [None, Code.NETWORK_EXCEPTION], ids=["no answer", "an error that passes"])
def test_a_leave_that_failed_is_sent_again_after_a_back_off(code: Code | None):
    coordinator, client = stable_member()
    client.engine.leave(client.now_ms, "closed")
    client.step()
    if code is None:
        client.link.cut()
    else:
        coordinator.refuse.append(code)
        client.exchange()
    assert client.engine.next_wake_ms(client.now_ms) == 0, "the back-off begins with the next step"
    client.step()
    assert client.engine.leaving
    assert not client.link.sent and client.engine.next_wake_ms(client.now_ms) == BACKOFF_MS
    client.step(BACKOFF_MS)
    client.exchange()
    assert not client.engine.leaving and not coordinator.members


def test_leaving_before_the_join_is_answered():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    client.engine.leave(client.now_ms, "closed")
    assert not client.engine.leaving  # the coordinator does not know it
    client.engine.subscribe(frozenset({"t"}))
    client.polls()
    client.step()
    client.engine.leave(client.now_ms, "closed")
    assert client.engine.leaving
    client.exchange()
    assert not coordinator.members
    assert not client.engine.joined


def test_the_group_cannot_be_made_to_rebalance():
    with pytest.raises(errors.UsageError, match="the broker decides"):
        Client(Coordinator(t=2), "t").engine.rejoin("why not")


def test_interrupted_calls_ask_again():
    coordinator = Coordinator(t=2)
    client = Client(coordinator, "t")
    client.step()
    client.link.take()
    client.engine.start_anew(None)  # type: ignore[arg-type]
    client.round()
    assert [r.member_epoch for r in coordinator.seen] == [0, 0]
    settled(client)


reached = Reached(
    "three members share",
    "cut with an answer under way",
    "thrown out with partitions",
    "thrown out in the middle of a change",
    "missed its poll",
    "left with partitions",
    "a static member comes back",
    "a topic grew that is read",
)
ACTS = ("beat", "exchange", "exchange", "work", "work", "others", "others", "learn", "forget", "take", "hand", "cut")


ACTS_IN_A_ROW = [["take"], ["hand"], ["exchange"], *[["beat", "take", "cut"]] * 3, ["work"], ["polls"]]
OWN_ACTS = st.lists(st.sampled_from(ACTS), min_size=4, max_size=16)


class ModernGroup(RuleBasedStateMachine):
    """Members whose answers are late or lost, whose names are not known, whose polling threads are slow, and who are thrown out."""

    @initialize(count=st.integers(0, 3))
    def begin(self, count: int) -> None:
        self.coordinator = Coordinator(a=3, b=2)
        self.clients: list[Client] = []
        self.serial = 0
        for nth in range(count):
            self.start({"a", "b"}, None if nth else "x")
        if count:
            settled(*self.clients, rounds=12)

    def some(self, at: int) -> Client | None:
        return self.clients[at % len(self.clients)] if self.clients else None

    @precondition(lambda self: len(self.clients) < 4)
    @rule(topics=st.sets(st.sampled_from("ab"), min_size=1), instance=st.sampled_from([None, None, "x"]))
    def start(self, topics: set[str], instance: str | None) -> None:
        if instance and any(c.engine.metadata.group_instance_id == instance for c in self.clients):
            return
        self.serial += 1
        reached("a static member comes back", instance and self.coordinator.of_instance(instance))
        client = Client(self.coordinator, *topics, name=f"m{self.serial}", group_instance_id=instance)
        client.known = self.coordinator.snapshot()
        self.clients.append(client)

    @rule(at=st.integers(0, 3), ms=st.sampled_from([0, 0, BACKOFF_MS, INTERVAL_MS]))
    def step(self, at: int, ms: int) -> None:
        if client := self.some(at):
            client.step(ms)
            assert client.engine.next_wake_ms(client.now_ms) != 0, "it would spin"

    @rule(without=st.integers(0, 5), times=st.integers(1, 4))
    def time_passes(self, without: int, times: int) -> None:
        """Everybody does what is theirs, but perhaps one member."""
        for _ in range(times):
            for at, client in enumerate(self.clients):
                if at != without:
                    client.now_ms += INTERVAL_MS
                    client.round()
                self.one_reader_each()

    @rule(at=st.integers(0, 3), pieces=st.integers(0, 3))
    def hears(self, at: int, pieces: int) -> None:
        """A heartbeat and its answer; the polling thread begins with what it says."""
        if client := self.some(at):
            client.step(INTERVAL_MS)
            client.exchange()
            client.step()
            client.engine.polled(client.now_ms)
            for _ in range(pieces):
                client.work()

    @rule(
        at=st.integers(0, 3),
        pieces=st.integers(0, 2),
        expelled=st.booleans(),
        acts=st.lists(st.sampled_from(ACTS), min_size=4, max_size=16),
    )
    def goes_its_own_way(self, at: int, pieces: int, expelled: bool, acts: list[str]) -> None:
        """A member does things in an order of its own, perhaps after it was thrown out, while the others go on."""
        if not (client := self.some(at)):
            return
        if pieces:
            client.engine.subscribe(frozenset("a" if len(client.engine.topics) > 1 else "ab"))
            self.hears(at, 0)
        self.hears(at, pieces)
        if expelled and client.name in self.coordinator.members:
            self.coordinator.remove(client.name)
            reached("thrown out in the middle of a change", client.doing)
        for act in acts:
            if act == "others":
                for _ in range(3):
                    for other in self.clients:
                        if other is not client:
                            other.learn()
                            other.now_ms += INTERVAL_MS
                            other.round()
            elif act == "learn":
                client.learn()
            elif act == "forget":
                client.known = self.coordinator.snapshot()
            else:
                self.do(client, act)
            self.one_reader_each()

    def do(self, client: Client, act: str) -> None:
        if act == "beat":
            client.step(INTERVAL_MS)
        elif act == "exchange":
            client.step(BACKOFF_MS)
            client.exchange()
        elif act == "work":
            client.engine.polled(client.now_ms)
            client.work()
        elif act == "polls":
            client.polls()
        else:
            reached("cut with an answer under way", act == "cut" and client.link.answers)
            getattr(client.link, act)()

    @rule(at=st.integers(0, 3), acts=st.sampled_from(ACTS_IN_A_ROW))
    def acts(self, at: int, acts: list[str]) -> None:
        for act in acts:
            if client := self.some(at):
                self.do(client, act)

    @rule(at=st.integers(0, 3), names=st.sets(st.sampled_from("ab")))
    def learn(self, at: int, names: set[str]) -> None:
        if client := self.some(at):
            client.known = self.coordinator.snapshot(*names)

    @rule(at=st.integers(0, 3), topics=st.sets(st.sampled_from("ab"), min_size=1))
    def subscribe(self, at: int, topics: set[str]) -> None:
        if client := self.some(at):
            client.engine.subscribe(frozenset(topics))

    @rule(topic=st.sampled_from("ab"))
    def grow(self, topic: str) -> None:
        topic_id, count = self.coordinator.topics[topic]
        if count < 5:
            reached("a topic grew that is read", any(tp.topic == topic for client in self.clients for tp in client.reads))
            self.coordinator.topics[topic] = topic_id, count + 1
            self.coordinator.change()

    @rule(at=st.integers(0, 3), reachable=st.booleans())
    def reach(self, at: int, reachable: bool) -> None:
        if client := self.some(at):
            client.link.reachable = reachable

    @rule(code=st.sampled_from([Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.INVALID_REQUEST]))
    def refuse(self, code: int) -> None:
        self.coordinator.refuse.append(code)

    @rule(at=st.integers(0, 3))
    def expel(self, at: int) -> None:
        if (client := self.some(at)) and client.name in self.coordinator.members:
            reached("thrown out with partitions", client.reads)
            self.coordinator.remove(client.name)

    @rule(at=st.integers(0, 3), code=st.sampled_from([Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.STALE_MEMBER_EPOCH]))
    def a_commit_is_refused(self, at: int, code: int) -> None:
        """And rightly so: the coordinator does not know the member, or has another epoch."""
        if not (client := self.some(at)):
            return
        if code != Code.STALE_MEMBER_EPOCH and client.name in self.coordinator.members:
            self.coordinator.remove(client.name)
        client.engine.commit_refused(errors.from_code(code), client.engine.metadata)

    @rule(at=st.integers(0, 3))
    def does_not_poll(self, at: int) -> None:
        if client := self.some(at):
            client.step(MAX_POLL_MS)
            reached("missed its poll", client.engine.breached)

    @rule(at=st.integers(0, 3))
    def close(self, at: int) -> None:
        if client := self.some(at):
            reached("left with partitions", client.reads)
            client.engine.leave(client.now_ms, "closed")
            client.exchange()
            self.clients.remove(client)

    @rule(topics=st.sets(st.sampled_from("ab"), min_size=1))
    def a_static_one_starts_again(self, topics: set[str]) -> None:
        if client := next((client for client in self.clients if client.engine.metadata.group_instance_id), None):
            self.close(self.clients.index(client))
            self.start(topics, "x")

    @rule(at=st.integers(0, 3))
    def die(self, at: int) -> None:
        """Killed: its session ends."""
        if client := self.some(at):
            self.clients.remove(client)
            if client.name in self.coordinator.members:
                self.coordinator.remove(client.name)

    @invariant()
    def one_reader_each(self) -> None:
        readers: dict[TopicPartition, str] = {}
        for client in getattr(self, "clients", ()):
            if client.is_member:
                for tp in client.reads | client.engine.owned:
                    other = readers.setdefault(tp, client.name)
                    assert other == client.name, f"{tp} is read by {other} and {client.name}"
        reached("three members share", len({*readers.values()}) > 2)

    def teardown(self) -> None:
        clients = getattr(self, "clients", [])
        if not clients:
            return
        self.coordinator.refuse.clear()
        for client in clients:
            client.link.reachable = True
        for name in [m for m in self.coordinator.members if m not in {c.name for c in clients}]:
            self.coordinator.remove(name)  # sessions of those that are gone
        settled(*clients, rounds=30)
        self.one_reader_each()
        for topic, (_, count) in self.coordinator.topics.items():
            takers = [c for c in clients if topic in c.engine.topics]
            shares = [sum(tp.topic == topic for tp in c.reads) for c in takers]
            assert sum(shares) == (count if takers else 0)
            assert all(tp.topic in c.engine.topics for c in clients for tp in c.reads)
        for client in clients:
            assert client.engine.owned == client.reads
            assert client.engine.metadata.generation_id == self.coordinator.members[client.name].epoch


ModernGroup.TestCase.settings = settings(max_examples=12, stateful_step_count=40, deadline=None)
TestGroup = reached.by(ModernGroup, rounds=10)
