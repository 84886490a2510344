"""Who drives a member: the calling thread and the background thread, and what ends or interrupts them."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused_commits import refuse_commits

from kafkacore import errors
from kafkacore.clock import JumpingClock, ManualClock
from kafkacore.config import ConsumerConfig
from kafkacore.consumer.at_exit import EXIT_MAX_S
from kafkacore.consumer.group.background import BackgroundThread
from kafkacore.consumer.group.commits import Commit
from kafkacore.consumer.group.listener import RebalanceListener as Listener
from kafkacore.consumer.group.member import GroupMember
from kafkacore.consumer.group.membership import Change, GroupSettings
from kafkacore.consumer.group.topic_ids import OffsetIds
from kafkacore.consumer.subscription import FetchState, ResetStrategy, SubscriptionState
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.net.driver import CallerDriver
from kafkacore.protocol import OffsetCommitRequest
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.kit.groups import Heard, Members, joined, until_polled
from tests.kit.inside import driver_of, group_of, lock_of, note_committed
from tests.kit.interrupter import Interrupter
from tests.kit.reached import Reached
from tests.kit.records import take
from tests.kit.rows import each_row
from tests.kit.waiting import GUARD_S

PARTITIONS = 3
RECORDS = 300
EXIT_MS = round(EXIT_MAX_S * 1000)


@pytest.fixture
def group_protocol() -> str:
    return "classic"


@pytest.fixture
def sockets_may_be_dropped() -> Iterator[None]:
    """Ctrl+C on a socket's way to the selector: the collector closes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


# -- the background thread ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_joins_as_soon_as_its_connections_stand(shared: EmbeddedCluster, topic: str, member: Members, protocol: str) -> None:
    with member(group_id=f"h-{topic}") as first:  # the cluster has its internal topics then, and nothing needs a back-off
        while not first.poll(1.0):
            pass
    late = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000, "socket_connection_setup_timeout_ms": 60_000}
    consumer = member(group_protocol=protocol, socket_connection_setup_timeout_max_ms=60_000, **late)
    assert consumer.poll(30)


def test_a_failure_in_the_background_is_raised_and_heartbeats_go_on(member) -> None:
    consumer = joined(member(heartbeat_interval_ms=50))
    membership = group_of(consumer).membership
    well = membership.step
    failed = threading.Event()

    def step(now_ms: int) -> None:
        membership.step = well
        failed.set()
        raise RuntimeError("a bug")

    membership.step = step
    assert failed.wait(30)
    beats = membership.heartbeats
    while membership.heartbeats < beats + 3:  # nobody polls
        threading.Event().wait(0.01)
    with pytest.raises(errors.InternalError, match="a bug"):
        consumer.poll(0)
    generation = consumer.consumer_group_metadata()
    consumer.poll(0)
    assert consumer.consumer_group_metadata() == generation


def test_close_from_another_thread_commits_what_a_rebalance_has_not(member, shared, topic) -> None:
    """The coordinator loads when partitions are given up, and the poll that waits ends: they are still this member's to commit."""
    consumer = joined(member(auto_commit_interval_ms=3_600_000), PARTITIONS)
    until_polled(lambda: sum(consumer.position((topic, index)) for index in range(PARTITIONS)) == RECORDS, consumer)
    refusals = 1_000_000
    left = refuse_commits(shared, Code.COORDINATOR_LOAD_IN_PROGRESS, refusals)

    def reads() -> None:
        with pytest.raises(errors.ClosedError):
            while True:
                consumer.poll(None)
        left.clear()

    thread = threading.Thread(target=reads)
    try:
        thread.start()
        other = member()
        until_polled(lambda: len(left) < refusals, other)
        consumer.close()
        thread.join(GUARD_S)
        assert not thread.is_alive()
    finally:
        left.clear()
        shared.control("OffsetCommit", None)
    committed = other.committed([TopicPartition(topic, index) for index in range(PARTITIONS)])
    assert sum(found.offset for found in committed.values() if found is not None) == RECORDS


def test_whoever_waits_in_poll_has_polled(member, shared) -> None:
    clock = JumpingClock()
    consumer = joined(member(clock=clock, fetch_max_wait_ms=20), PARTITIONS)
    while consumer.poll(0.5):
        pass
    generation = consumer.consumer_group_metadata()
    shared.control("Fetch", lambda _: clock.sleep(400_000))  # longer than max_poll_interval_ms
    consumer.poll(900.0)
    shared.control("Fetch", None)
    assert consumer.poll(0) == {}
    assert consumer.consumer_group_metadata() == generation


# -- Ctrl+C -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sockets_may_be_dropped")
@pytest.mark.parametrize("call", ["commit", "committed", "commit_async", "position"])
def test_ctrl_c_at_any_line_of_a_call(member, topic, call: str) -> None:
    consumer = joined(member(enable_auto_commit=False))
    tp = TopicPartition(topic, 0)
    calls: dict[str, Callable[[], object]] = {
        "commit": lambda: consumer.commit({tp: 7}),
        "commit_async": lambda: consumer.commit_async({tp: 7}),
        "committed": lambda: consumer.committed(tp),
        "position": lambda: consumer.position(tp),
    }
    steps = 0
    for at in range(0, 100_000, 31):
        if not Interrupter(at).run(calls[call]):
            break
        steps += 1
        consumer.paused()
        consumer.health()
        assert not lock_of(driver_of(consumer))._is_owned(), "the background thread gets its turn"
    assert steps >= 3
    generation = consumer.consumer_group_metadata()
    consumer.commit({tp: 9})
    assert consumer.committed(tp).offset == 9
    consumer.poll(0)
    assert consumer.consumer_group_metadata() == generation


@pytest.mark.usefixtures("sockets_may_be_dropped")
def test_ctrl_c_at_any_line_of_close(member, topic) -> None:
    for at in range(0, 100_000, 97):
        consumer = joined(member(group_id=f"g-{topic}-{at}"))
        interrupted = Interrupter(at).run(lambda c=consumer: c.close(5))
        consumer.close(5)
        assert driver_of(consumer).closed
        member.made.clear()  # a socket that was dropped is not to outlive this test
        if not interrupted:
            return
    raise AssertionError("no end")


# -- the listener -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["poll", "poll_batch", "unsubscribe", "close", "next"])
def test_calls_that_change_what_is_being_changed_are_refused_inside_a_listener(member, call: str) -> None:
    consumer = member(Heard(assigned=lambda _: next(iter(consumer)) if call == "next" else getattr(consumer, call)()))
    with pytest.raises(errors.IllegalStateError, match="inside on_partitions_assigned of the rebalance listener"):
        joined(consumer)
    assert len(consumer.assignment()) == PARTITIONS
    group_of(consumer).listener = None
    take(consumer, RECORDS)


def test_a_fenced_member_hears_what_it_lost_and_stays_out(member) -> None:
    heard = Heard()
    first = joined(member(heard, group_instance_id="i", heartbeat_interval_ms=50))
    second = joined(member(group_instance_id="i", heartbeat_interval_ms=50))
    with pytest.raises(errors.FencedInstanceId):
        for _ in range(1000):
            first.poll(0.05)
    assert heard.kinds == ["assigned", "lost"]
    assert first.assignment() == set()
    said = "another process uses group_instance_id 'i', so member '"
    for timeout in (0.1, 0):
        with pytest.raises(errors.FencedInstanceId, match=said):
            first.poll(timeout)
        second.poll(0)
    health = first.health()
    assert said in health.member.waits_for and health.member.waits_for in health.problems
    with pytest.raises(errors.CommitFailed, match=said):
        first.commit({(second.assignment().pop().topic, 0): 1})
    assert len(second.assignment()) == PARTITIONS
    second.close()
    topics = first.subscription()
    first.unsubscribe()
    first.subscribe(topics)
    assert len(joined(first).assignment()) == PARTITIONS
    assert first.health().ok


class Scripted:
    """A membership that does nothing by itself."""

    def __init__(self) -> None:
        self.change: Change | None = None
        self.done: list[Change] = []
        self.joined = True
        self.failure = self.fenced = self.phase = None
        self.breached = self.leaving = False
        self.heartbeats = self.rebalances = self.failed_rebalances = 0
        self.metadata = ConsumerGroupMetadata("g", 3, "m")

    def step(self, now_ms: int) -> None: ...

    def polled(self, now_ms: int) -> None: ...

    def commit_refused(self, cause: errors.KafkaError, sent_as: ConsumerGroupMetadata) -> None: ...

    def next_wake_ms(self, now_ms: int) -> int | None:
        return None

    def carried_out(self, change: Change, now_ms: int) -> None:
        self.done.append(change)
        if self.change is change:
            self.change = None

    def hold(self) -> None: ...

    def leave(self, now_ms: int, reason: str) -> None:
        self.left = now_ms, reason


class Carrying:
    """A GroupMember without a network."""

    def __init__(self, listener: Listener, begun: int | None = None, on_commit: Any = None, **settings: Any) -> None:
        config = ConsumerConfig.from_user(bootstrap_servers="127.0.0.1:1", group_id="g", **settings)
        self.clock = ManualClock()
        self.driver = CallerDriver(config, "test", exclusive=True, clock=self.clock)
        self.subscription = SubscriptionState(ResetStrategy("earliest"))
        self.subscription.subscribe_topics(["t"])
        self.engine = Scripted()
        self.member = GroupMember(
            config,
            self.driver,
            self.subscription,
            membership=self._made,
            assigned=lambda: None,
            reached=lambda state: begun,
            on_commit=on_commit,
        )
        self.member.listener = listener

    def _made(self, link: object, settings: GroupSettings) -> Scripted:
        self.settings = settings
        return self.engine


class Collected:
    """A consumer that is collected at once, and a driver whose network only waits.

    Args:
        wakes_ms: what its membership says each time; it has left afterwards, unless the last one is None.
    """

    def __init__(self, *wakes_ms: int | None, gets_turn: bool = True) -> None:
        self.wakes_ms, self.waits_ms, self.steps_ms = list(wakes_ms), list[int](), list[int]()
        self.broken, self.ends, self.clients = list[bool](), list[str](), list[object]()
        self.clock, self.reason, self.gets_turn, self.leaving = ManualClock(), "", gets_turn, False
        self.left, self.closed, self.calls = None, False, itertools.count()
        self.client = SimpleNamespace(wakeup=lambda: None)
        consumer = Scripted()
        self.thread = BackgroundThread(self, consumer, self, "a test")  # type: ignore[arg-type]
        assert self.thread.closed
        del consumer
        self.thread.join(GUARD_S)

    @property
    def entries(self) -> int:
        """The caller is back each time that the thread looks."""
        return next(self.calls)

    def take_over(self) -> bool:
        self.client = SimpleNamespace(poll=lambda wait_ms, now_ms: self.waits_ms.append(wait_ms) or self.clock.advance(wait_ms))
        return self.gets_turn

    def leave(self, now_ms: int, reason: str) -> None:
        self.leaving, self.reason = True, reason

    def step(self, now_ms: int) -> None:
        assert not self.thread.closed
        self.steps_ms.append(now_ms)
        if not self.wakes_ms:
            raise OSError("a test")

    def next_wake_ms(self, now_ms: int) -> int | None:
        wake_ms = self.wakes_ms.pop(0)
        self.leaving = wake_ms is None or bool(self.wakes_ms) or wake_ms > 9
        return wake_ms

    def start_anew(self, client: object) -> None:
        self.clients.append(client)

    def give_back(self, *, broken: bool) -> None:
        self.broken.append(broken)

    def close(self) -> None:
        self.ends.append("closed")


@each_row(
    ("wakes_ms", "waits_ms", "steps_ms"),
    [
        ((9,), [9], [0]),
        ((-1, 9), [0, 9], [0, 0]),
        ((5, None), [5, EXIT_MS - 5], [0, 5]),
        ((EXIT_MS + 1,), [EXIT_MS], [0]),
        ((20,), [20], [0, 20]),
    ],
)
def test_the_member_of_a_collected_consumer_leaves_within_its_time(wakes_ms: Any, waits_ms: Any, steps_ms: Any) -> None:
    """The last one fails at its second step."""
    case = Collected(*wakes_ms)
    assert (case.waits_ms, case.steps_ms, case.clients, case.ends) == (waits_ms, steps_ms, [case.client], ["closed"])
    assert case.broken == [wakes_ms == (20,)]
    assert case.thread.closed and case.reason.startswith("the consumer was not closed")


def test_who_does_not_get_its_turn_to_leave_only_closes() -> None:
    case = Collected(gets_turn=False)
    assert (case.reason, case.broken, case.ends) == ("", [], ["closed"])


ONE, TWO, THREE = (TopicPartition("t", i) for i in range(3))


@each_row("interrupted", [(), ("revoked",), ("assigned",), ("revoked", "assigned")])
def test_ctrl_c_in_the_listener_leaves_the_rest_to_the_next_poll(interrupted: tuple[str, ...]) -> None:
    left = list(interrupted)

    def interrupt(kind: str) -> None:
        if kind in left:
            left.remove(kind)
            raise KeyboardInterrupt

    listener = Heard(revoked=lambda _: interrupt("revoked"), assigned=lambda _: interrupt("assigned"))
    carrying = Carrying(listener, enable_auto_commit=False)
    carrying.subscription.set_assignment([ONE, TWO])
    change = carrying.engine.change = Change(frozenset({ONE}), False, frozenset({TWO, THREE}), frozenset({THREE}))
    for _ in interrupted:
        with pytest.raises(KeyboardInterrupt):
            carrying.member.carry_out(0)
        assert not carrying.engine.done
    carrying.member.carry_out(0)
    assert listener.calls == [("revoked", [0]), ("assigned", [2])]
    assert set(carrying.subscription.partitions) == {TWO, THREE}
    assert carrying.engine.done == [change]


@pytest.mark.parametrize("joined_and_assigned", [(False, True), (True, False)])
def test_auto_commit_is_no_busy_loop_when_there_is_nothing_to_commit(joined_and_assigned: tuple[bool, bool]) -> None:
    carrying = Carrying(Listener())
    carrying.subscription.set_assignment([ONE])
    carrying.subscription.state_of(ONE).state = FetchState.INITIALIZING
    carrying.member.step(0)
    carrying.engine.joined, assigned = joined_and_assigned
    if not assigned:
        carrying.subscription.set_assignment([])
    for now_ms in (5_000, 6_000):
        carrying.member.step(now_ms)
        assert carrying.member.next_wake_ms(now_ms) != 0


def test_automatic_commits_come_at_their_interval_and_sooner_where_one_may_be_tried_again() -> None:
    carrying = Carrying(Listener(), begun=10, auto_commit_interval_ms=5_000, retry_backoff_ms=100)
    member, clock = carrying.member, carrying.clock
    carrying.subscription.set_assignment([ONE])
    carrying.subscription.seek(ONE, 20)
    asked: list[SimpleNamespace] = []

    def commit(offsets: Any, *, retried: bool) -> Any:
        assert (offsets, retried) == ({ONE: OffsetAndMetadata(10)}, False)
        asked.append(SimpleNamespace(done=False, error=None))
        return asked[-1]

    def steps(ms: int) -> int | None:
        member.step(clock.advance(ms))
        return member.next_wake_ms(clock.now_ms())

    member.commits.commit = commit  # type: ignore[method-assign, assignment]
    wait_ms = steps(1)
    assert wait_ms == 5_000
    for error, next_ms in (
        (errors.RequestTimedOut("no"), 100),
        (errors.StaleMemberEpoch("no"), 100),
        (errors.TopicAuthorization("no"), 4_999),
        (errors.UnknownTopicOrPartition("no"), 4_999),
        (None, 4_999),
    ):
        before = len(asked)
        assert (steps(wait_ms - 1), len(asked)) == (1, before)
        assert (steps(1), len(asked)) == (None, before + 1)
        assert steps(0) is None, "one is under way at a time"
        asked[-1].done, asked[-1].error = True, error
        wait_ms = steps(1)
        assert wait_ms == next_ms
    carrying.driver.close()


def test_of_partitions_that_the_application_has_committed_none_is_taken_back() -> None:
    """An automatic commit knows less: that the records before those in hand are processed. Of a topic that starts over nothing is."""
    carrying = Carrying(Listener(), begun=10)
    carrying.subscription.set_assignment([ONE, TWO, THREE])
    for tp in (ONE, TWO, THREE):
        carrying.subscription.seek(tp, 20)
    for tp, offset in ((ONE, 17), (TWO, 15)):
        note_committed(carrying.member, {tp: OffsetAndMetadata(offset)})
    assert carrying.member.processed() == {THREE: OffsetAndMetadata(10)}
    note_committed(carrying.member, {THREE: OffsetAndMetadata(10)})
    assert carrying.member.processed() == {}
    carrying.member.start_over(ONE, bytes(16))
    carrying.subscription.state_of(ONE).handed_records = True  # of the new topic
    assert carrying.member.processed() == {ONE: OffsetAndMetadata(10)}
    carrying.driver.close()


def test_what_is_committed_names_the_epoch_of_the_record_before() -> None:
    """If that is known, epoch 0, too; of what a `for` loop has not reached yet, the epoch of where it is."""
    carrying = Carrying(Listener())
    member, subscription = carrying.member, carrying.subscription
    subscription.set_assignment([ONE, TWO, THREE])
    assert member.consumed({ONE: 5}) == {} == member.processed()
    for tp, epoch in ((ONE, 0), (TWO, -1), (THREE, 2)):
        subscription.seek(tp, 20, epoch)
    found = {ONE: OffsetAndMetadata(20, leader_epoch=0), TWO: OffsetAndMetadata(20), THREE: OffsetAndMetadata(20, leader_epoch=2)}
    assert member.consumed({}) == found == member.processed()
    assert member.consumed({ONE: 20, TWO: 21, THREE: 20}) == found
    for tp, epochs in ((ONE, [(10, 0), (19, 1)]), (THREE, [(10, 1), (19, 2)])):
        subscription.state_of(tp).epochs = epochs
    unread = {ONE: 11, TWO: 19, THREE: 11}
    assert member.consumed(unread) == {
        ONE: OffsetAndMetadata(11, leader_epoch=0),
        TWO: OffsetAndMetadata(19),
        THREE: OffsetAndMetadata(11, leader_epoch=1),
    }
    carrying.driver.close()


def test_an_engine_is_given_the_settings_of_its_consumer() -> None:
    times = {"session_timeout_ms": 11_000, "heartbeat_interval_ms": 1_000, "max_poll_interval_ms": 12_000, "request_timeout_ms": 15_000}
    backoff = {"retry_backoff_ms": 13, "retry_backoff_max_ms": 14}
    carrying = Carrying(Listener(), group_instance_id="i", client_rack="r", **times, **backoff)
    assert carrying.settings == GroupSettings("g", "i", rack="r", **times, **backoff)
    assert carrying.member.identity() == carrying.engine.metadata
    carrying.subscription.unsubscribe()
    carrying.subscription.assign_manual([ONE])
    assert carrying.member.identity() == ConsumerGroupMetadata("g")
    carrying.driver.close()


def test_what_is_lost_while_its_commit_is_under_way_is_called_lost() -> None:
    heard = Heard()
    carrying = Carrying(heard)
    carrying.subscription.set_assignment([ONE, TWO])
    lost = Change(frozenset({ONE, TWO}), True, frozenset(), None)

    def commit(offsets: object, **options: bool) -> Any:
        assert options == {"retried": True, "gives_up": True}
        carrying.engine.change = lost
        return SimpleNamespace(done=True, error=None, offsets=offsets)

    carrying.member.commits.commit = commit  # type: ignore[method-assign, assignment]
    carrying.engine.change = Change(frozenset({ONE}), False, frozenset({TWO}), None)
    carrying.member.carry_out(0)
    assert (heard.calls, carrying.engine.done) == ([("lost", [0, 1])], [lost])
    assert not carrying.member.gives_up and not carrying.subscription.partitions
    carrying.driver.close()


def test_commit_async_sends_at_once() -> None:
    carrying = Carrying(Listener())
    sent: list[object] = []
    link = carrying.member.link
    link.ready = lambda now_ms: True  # type: ignore[method-assign]
    link.send = lambda api, *given, **options: sent.append(api)  # type: ignore[method-assign]
    carrying.member.commit_async({ONE: OffsetAndMetadata(1)}, None)
    assert sent == [OffsetCommitRequest]
    carrying.engine.joined = False
    with pytest.raises(errors.CommitFailed, match="not a member of group g"):
        carrying.member.commit_async({ONE: OffsetAndMetadata(1)}, None)
    carrying.driver.close()


def test_of_a_topic_that_was_created_again_nothing_is_processed() -> None:
    carrying = Carrying(Listener())
    carrying.subscription.set_assignment([ONE, other := TopicPartition("u", 0)])
    topics = {name: TopicInfo(name, name.encode() * 16, [PartitionInfo(0, 1, 0)]) for name in "tu"}
    carrying.driver.metadata.snapshot = ClusterSnapshot(topics=topics)
    for tp in (ONE, other):
        carrying.subscription.seek(tp, 20)
        carrying.subscription.state_of(tp).topic_id = b"u" * 16
    assert carrying.member.processed() == {other: OffsetAndMetadata(20)}
    carrying.driver.close()


@pytest.mark.parametrize("call", ["enter_poll", "poll_on"])
def test_a_poll_calls_back_first_and_raises_what_was_refused_once(call: str) -> None:
    called: list[object] = []
    carrying = Carrying(Heard(), on_commit=called.append)
    member, engine, poll = carrying.member, carrying.engine, getattr(carrying.member, call)
    offsets = {ONE: OffsetAndMetadata(1)}
    for at, error in enumerate((None, errors.RequestTimedOut("no"))):
        ended = Commit(offsets, lambda *given: called.append(given), retried=False, asked_as=engine.metadata, topic_ids=OffsetIds([]))
        ended.error = error
        member.commits.answered.append(ended)
        engine.failure = member.link.failure = errors.GroupAuthorization(str(at))
        with pytest.raises(errors.GroupAuthorization, match=str(at)):
            poll(0)
        assert engine.failure is member.link.failure is None
        poll(0)
        assert called == [*[offsets][at:], (offsets, error)]
        called.clear()
    member.silence()
    member.commits.answered.append(ended)
    poll(0)
    assert called == [] and not member.commits.answered
    carrying.driver.close()


def test_what_a_listener_raises_comes_when_the_member_has_left() -> None:
    heard: list[object] = []

    class Broken(Listener):
        def on_partitions_revoked(self, partitions: Any) -> None:
            heard.append(partitions)
            with pytest.raises(errors.IllegalStateError, match="poll inside on_partitions_"):
                carrying.member.enter_poll(0)
            raise ValueError("a bug")

    for is_member in (True, False):  # a listener that does not tell them apart hears of lost partitions as of revoked ones
        for reason in ("a test", "the consumer is closed"):
            carrying = Carrying(Broken(), enable_auto_commit=False)
            carrying.engine.joined = is_member
            carrying.subscription.set_assignment([TWO, ONE])
            with pytest.raises(ValueError, match="a bug"):
                carrying.member.leave(reason, 5) if reason == "a test" else carrying.member.close(5)
            assert (heard.pop(), carrying.engine.left) == ([ONE, TWO], (0, reason))
            carrying.driver.close()


PARTS = [TopicPartition("t", i) for i in range(4)]
SOME = st.frozensets(st.sampled_from(PARTS))


class Follows(Listener):
    """What an application holds that does what it is told; any call may be interrupted, behind its work."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()
        self.interrupted = False

    def end(self) -> None:
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def on_partitions_assigned(self, partitions):
        assert not self.held & {*partitions}
        self.held |= {*partitions}
        self.end()

    def on_partitions_revoked(self, partitions):
        assert self.held >= {*partitions}
        self.held -= {*partitions}
        self.end()

    on_partitions_lost = on_partitions_revoked


class Replacing(Scripted):
    """Says what the engines say of a change that another took the place of: what it brought is lost."""

    owned: frozenset[TopicPartition] = frozenset()

    def carried_out(self, change: Change, now_ms: int) -> None:
        replaced = self.change is not change and self.change is not None
        super().carried_out(change, now_ms)
        self.owned = change.assignment
        if replaced:
            self.change = Change(self.owned, True, frozenset(), None)


reached = Reached("lost", "replaced", "a late commit", "interrupted before the commit", "interrupted in the listener", "carried out")


@reached.by
@given(st.lists(st.tuples(SOME, st.booleans(), st.sampled_from(["", "interrupted", "late"]), st.booleans()), max_size=12))
def test_a_change_that_replaces_another_leaves_the_listener_with_what_is_assigned(changes: list[tuple[Any, bool, str, bool]]) -> None:
    """Changes as the engines make them, from what was carried out last; interrupts in the listener and before a commit, and commits that
    are not answered when poll returns.
    """
    listener = Follows()
    carrying = Carrying(listener)
    member = carrying.member
    engine = member.membership = Replacing()
    commits: list[str] = []

    def committed(change: Change, deadline_ms: int) -> bool:
        found = commits.pop() if commits else ""
        if found == "interrupted":
            raise KeyboardInterrupt
        return found != "late"

    member._committed_before = committed
    for wanted, lost, in_commit, in_listener in changes:
        owned = engine.owned
        if owned - wanted:
            engine.change = Change(owned - wanted, lost, owned & wanted, None)
        else:
            engine.change = Change(frozenset(), False, wanted, wanted - owned)
        commits[:] = [in_commit]
        listener.interrupted = in_listener
        with contextlib.suppress(KeyboardInterrupt):
            member.carry_out(0)
        reached("lost", lost and owned - wanted)
        reached("replaced", engine.change is not None and engine.change.lost and not lost)
        reached("a late commit", in_commit == "late" and not commits and owned - wanted)
        reached("interrupted before the commit", in_commit == "interrupted" and not commits)
        reached("interrupted in the listener", in_listener and not listener.interrupted)
        if engine.change is None:
            reached("carried out")
            assert listener.held == set(carrying.subscription.partitions)
    commits.clear()
    listener.interrupted = False
    member.carry_out(0)
    assert listener.held == set(carrying.subscription.partitions)
    carrying.driver.close()
