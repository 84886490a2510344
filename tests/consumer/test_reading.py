"""The loop of a call that reads, by itself: what it asks of its parts, in which order, and what it hands over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import errors
from kafkacore.clock import ManualClock
from kafkacore.consumer.reading import ReadLoop
from kafkacore.consumer.subscription import FetchState, Mode
from kafkacore.types import TopicPartition
from tests.kit.rows import each_row

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 1)


class Part:
    """A part of the consumer: it has values, and notes the calls of everything else, which answer nothing or what is said here."""

    def __init__(self, log: list[Any], name: str, **values: Any) -> None:
        self.log, self.name, self.answers = log, name, dict[str, Any]()
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.log.append(f"{self.name}.{name}" + (f"({', '.join(map(repr, args))})" if args else ""))
            answer = self.answers.get(name)
            return answer(*args) if callable(answer) else answer

        return call

    def __enter__(self) -> Part:
        self.entries += 1
        return self

    def __exit__(self, *_: object) -> None:
        if (error := self.answers.pop("leave", None)) is not None:
            raise error


class World:
    """A loop without a group among parts that note what they are asked; a poll of the network takes all of its time."""

    def __init__(self, with_group: bool = False, now_ms: int = 1_000) -> None:
        self.log: list[Any] = []
        self.clock = ManualClock(now_ms=now_ms)
        client = Part(self.log, "client")
        self.driver = Part(
            self.log, "driver", clock=self.clock, client=client, entries=0, woken=False, metadata=SimpleNamespace(unraised=None)
        )
        self.driver.answers |= {"poll": lambda wait_ms, _: self.clock.advance(wait_ms), "attempts": [], "topic_attempts": ["a look"]}
        states = {TP: SimpleNamespace(state=FetchState.FETCHING, offset=7)}
        self.subscription = SimpleNamespace(
            partitions=states, mode=Mode.MANUAL, unsettled=False, seeks_positions=True, state_of=states.__getitem__
        )
        self.topics = Part(self.log, "topics", owed={}, settled=True, behind=False)
        self.positions = Part(self.log, "positions")
        queue = SimpleNamespace(wants_fetch=False, held_bytes=0)
        self.fetcher = Part(self.log, "fetcher", queue=queue, waits_for_nodes=False, wants_fetch=False)
        membership = SimpleNamespace(change=None, phase="joined")
        self.group = Part(self.log, "group", membership=membership, has_news=False, gives_up=False, group_id="g") if with_group else None
        parts: Any = (self.driver, self.subscription, self.topics, self.positions, self.fetcher, self.group)
        self.loop = ReadLoop(*parts, isolation_level=1)
        self.loop.background = Part(self.log, "background")  # type: ignore[assignment]

    def found(self, *answers: Any) -> Any:
        """Gives these one after the other, and nothing then."""
        left = list(answers)

        def collect() -> Any:
            self.log.append("collect")
            return left.pop(0) if left else {}

        return collect

    def said(self) -> list[Any]:
        """What was asked since."""
        found = self.log[:]
        self.log.clear()
        return found


def step_at(world: World, now_ms: int) -> list[str]:
    return [f"positions.step({now_ms}, {world.clock.wall_ms()})", f"fetcher.send_fetches({now_ms})"]


def test_what_is_there_is_returned_without_a_step() -> None:
    world = World()
    assert world.loop.wait(world.found({TP: [1]}), {}, 5) == {TP: [1]}
    assert world.said() == ["driver.check_woken", "collect"]
    assert world.loop.in_hand == {TP: [1]}
    world.fetcher.queue.wants_fetch = True
    for sent, more in ((False, []), (True, ["client.poll(0, 1000)"])):
        world.fetcher.answers["send_fetches"] = sent
        world.loop.wait(world.found({TP: [2]}), {}, 5)
        assert world.said() == ["driver.check_woken", "collect", "client.catch_up(1000)", "fetcher.send_fetches(1000)", *more]
    world.subscription.partitions, world.subscription.mode = {}, Mode.NONE
    assert world.loop.wait(world.found(1), {}, 5) == 1
    with pytest.raises(errors.IllegalStateError, match="nothing to read"):
        world.loop.wait(world.found(), {}, 5)


def test_a_call_that_finds_nothing_waits_for_its_time_and_says_since_when() -> None:
    world = World(now_ms=0)
    world.positions.answers["next_wake_ms"] = 400
    for began, since in ((0, 0), (600, 0)):
        assert world.loop.empty_since_ms == (-1 if began == since else since)
        assert world.loop.wait(world.found(), {}, 0.6) == {}
        assert world.loop.empty_since_ms == since
        waited = [each for each in world.said() if each.startswith("driver.poll")]
        assert waited == [f"driver.poll(400, {began})", f"driver.poll(200, {began + 400})"]
    assert world.loop.wait(world.found({}, {}, 5), {}, None) == 5
    assert world.loop.empty_since_ms == -1
    assert world.loop.wait(world.found(), {}, 0) == {}
    assert world.loop.empty_since_ms == world.clock.now_ms()
    world.fetcher.answers["next_wake_ms"] = 30
    world.said()
    world.loop.wait(world.found(), {}, 0.05)
    start = world.clock.now_ms() - 50
    assert [each for each in world.said() if "driver.poll" in each] == [f"driver.poll(30, {start})", f"driver.poll(20, {start + 30})"]


@each_row(
    ("later_ms", "entries", "held_bytes", "then"),
    [
        (0, 1, 0, "collect"),
        (1, 1, 16_383, "collect"),
        (2, 1, 0, "fetcher.send_fetches"),
        (0, 1, 16_384, "fetcher.send_fetches"),
        (0, 2, 0, "positions.step"),
        (0, 0, 0, "positions.step"),
    ],
)
def test_a_caller_that_comes_straight_back_gets_little_before_the_next_fetch(
    later_ms: int, entries: int, held_bytes: int, then: str
) -> None:
    world = World()
    world.driver.entries = 1
    assert world.loop.wait(world.found({}, 1), {}, 5) == 1
    world.said()
    world.clock.advance(later_ms)
    world.driver.entries += entries
    world.fetcher.queue.wants_fetch, world.fetcher.queue.held_bytes = True, held_bytes
    assert world.loop.wait(world.found({}, 2), {}, 5) == 2
    start, collected, caught_up, next_, *_ = world.said()
    assert (start, collected, caught_up) == ("driver.check_woken", "collect", f"client.catch_up({1_000 + later_ms})")
    assert next_.partition("(")[0] == then


@each_row(
    ("wants_fetch", "second", "third", "then"),
    [(False, 2, 3, "collect"), (False, 3, 4, "positions.step"), (True, 2, 3, "collect")],
)
def test_a_call_that_finds_something_at_once_ends_well_if_it_comes_straight_back(
    wants_fetch: bool, second: int, third: int, then: str
) -> None:
    world = World()
    world.driver.entries = 1
    assert world.loop.wait(world.found({}, 1), {}, 5) == 1
    world.driver.entries, world.fetcher.queue.wants_fetch = second, wants_fetch
    assert world.loop.wait(world.found({}, 2) if wants_fetch else world.found(2), {}, 5) == 2
    world.said()
    world.driver.entries, world.fetcher.queue.wants_fetch = third, True
    assert world.loop.wait(world.found({}, 3), {}, 5) == 3
    assert world.said()[3].partition("(")[0] == then


def test_behind_a_call_that_raised_a_step_is_taken() -> None:
    world = World()
    world.driver.entries = 1
    assert world.loop.wait(world.found({}, 1), {}, 5) == 1
    world.driver.entries = 2

    def refuse() -> Any:
        raise errors.GroupAuthorization("no")

    with pytest.raises(errors.GroupAuthorization):
        world.loop.wait(refuse, {}, 5)
    world.said()
    assert world.loop.wait(world.found({}, 2), {}, 5) == 2
    assert world.said()[3].startswith("positions.step")


def test_the_next_fetch_is_sent_behind_a_step_before_records_are_returned_and_before_a_wait() -> None:
    world = World()
    world.subscription.unsettled = world.fetcher.queue.wants_fetch = True
    assert world.loop.wait(world.found(1), {}, 5) == 1
    assert world.said()[-2:] == ["client.catch_up(1000)", "fetcher.send_fetches(1000)"]
    assert world.loop.wait(world.found(), {}, 0) == {}
    said = world.said()
    waits = said.index("fetcher.next_wake_ms(1000)")
    assert said[waits - 2 : waits] == ["positions.next_wake_ms(1000)", "fetcher.send_fetches(1000)"]


def test_what_comes_while_a_call_waits_is_looked_at_at_once() -> None:
    world = World()
    world.driver.entries = 1
    assert world.loop.wait(world.found({}, 1), {}, 5) == 1
    world.driver.entries = 2
    answers: list[Any] = [{}, {}, 3]

    def collect() -> Any:
        world.log.append("collect")
        world.subscription.unsettled = len(answers) == 2  # what has come is not for the fetcher alone
        return answers.pop(0)

    world.said()
    world.clock.advance(2)
    world.driver.answers["poll"] = lambda *_: setattr(world.fetcher.queue, "wants_fetch", True)
    assert world.loop.wait(collect, {}, 5) == 3
    said = [each.partition("(")[0] for each in world.said()]
    step = ["positions.step", "fetcher.send_fetches", "positions.raise_failure"]
    waited = ["fetcher.next_wake_ms", "driver.poll", "fetcher.send_fetches", "collect"]
    assert said[3:] == [*waited, *step, "collect", "positions.next_wake_ms", "client.catch_up", "fetcher.send_fetches"]
    refused = errors.TopicAuthorization("not yours")
    world.subscription.unsettled = True
    world.positions.answers["step"] = lambda *_: world.topics.owed.update(t=refused)

    def owed() -> None:
        raise refused

    world.topics.answers["raise_owed"] = owed
    with pytest.raises(errors.TopicAuthorization):
        world.loop.wait(world.found(), {}, 5)


@each_row(("calls", "then"), [(1, "collect"), (2, "positions.step")])
def test_a_call_that_changes_nothing_is_passed_by(calls: int, then: str) -> None:
    world = World()
    world.driver.entries = 1
    assert world.loop.wait(world.found({}, 1), {}, 5) == 1
    world.driver.entries += calls
    world.loop.passed_by()
    world.driver.entries += 1
    world.said()
    world.fetcher.queue.wants_fetch = True
    assert world.loop.wait(world.found({}, 2), {}, 5) == 2
    assert world.said()[3].partition("(")[0] == then


def test_what_is_wrong_is_raised_behind_a_step_and_what_it_is_not_about_goes_on() -> None:
    world, went_on = World(), ["fetcher.send_fetches(1000)", "client.poll(0, 1000)"]
    world.topics.owed["t"] = refused = errors.TopicAuthorization("not yours")

    def owed() -> None:
        raise refused

    world.topics.answers["raise_owed"] = owed
    with pytest.raises(errors.TopicAuthorization):
        world.loop.wait(world.found(1), {}, 5)
    said = ["driver.check_woken", "client.catch_up(1000)", *step_at(world, 1_000), "positions.raise_failure"]
    assert world.said() == [*said, "topics.raise_owed", *went_on]
    world.topics.owed.clear()
    world.topics.answers.clear()
    world.driver.metadata.unraised = errors.SaslAuthentication("wrong")
    assert world.loop.wait(world.found(1), {}, 5, reads=False) == 1
    said = [*said[:-1], "topics.raise_owed", "driver.raise_failure", "collect", "positions.next_wake_ms(1000)"]
    assert world.said() == said
    world.driver.metadata.unraised = None

    def refuse() -> Any:
        raise errors.GroupAuthorization("no")

    with pytest.raises(errors.GroupAuthorization):
        world.loop.wait(refuse, {}, 5)
    assert world.said() == ["driver.check_woken", *went_on]


@pytest.mark.parametrize("with_group", [False, True])
def test_where_a_position_is_beyond_the_range_is_asked_for(monkeypatch: pytest.MonkeyPatch, with_group: bool) -> None:
    world, beyond = World(with_group), errors.OffsetOutOfRange("beyond", topic="t", partition=0)
    if world.group is not None:
        world.group.answers["next_wake_ms"] = 30

    def ranged(error: Any, driver: Any, isolation_level: int, step: Any) -> Exception:
        assert (error, driver, isolation_level) == (beyond, world.driver, 1)
        world.log.append(step(1_000))
        return errors.OffsetOutOfRange("with its range", topic="t", partition=0)

    def collect() -> Any:
        raise beyond

    monkeypatch.setattr("kafkacore.consumer.reading.with_range", ranged)
    with pytest.raises(errors.OffsetOutOfRange, match="with its range"):
        world.loop.wait(collect, {}, 5)
    stepped = ["group.step(1000)", "group.next_wake_ms(1000)", 30] if with_group else [None]
    assert world.said()[-2 - len(stepped) :] == ["fetcher.send_fetches(1000)", "client.poll(0, 1000)", *stepped]


@each_row("why", ["nothing", "owed", "unraised", "woken", "unsettled", "topics", "beyond", "news", "gives up", "joins again"])
def test_at_once_hands_out_only_what_needs_nothing_before_it(why: str) -> None:
    world = World(with_group=True)
    assert world.group is not None
    world.loop.empty_since_ms = 5
    assert world.loop.at_once(world.found(1)) == world.loop.in_hand == 1
    assert world.loop.empty_since_ms == -1
    answers: list[Any] = [1]
    if why == "nothing":
        answers = []
    elif why == "owed":
        world.topics.owed["t"] = errors.KafkaError("x")
    elif why == "unraised":
        world.driver.metadata.unraised = errors.KafkaError("x")
    elif why == "woken":
        world.driver.woken = True
    elif why == "unsettled":
        world.subscription.unsettled = True
        assert world.loop.at_once(world.found(1), waited=True) == 1
    elif why == "topics":
        world.topics.settled = False
    elif why == "news":
        world.group.has_news = True
    elif why == "gives up":
        world.group.gives_up = True
    elif why == "joins again":
        world.group.answers["enter_poll"] = lambda _: setattr(world.group.membership, "phase", "joining")

    def beyond() -> Any:
        raise errors.OffsetOutOfRange("beyond", topic="t", partition=0)

    assert world.loop.at_once(beyond if why == "beyond" else world.found(*answers)) is None


def test_records_are_in_hand_until_the_caller_has_them() -> None:
    world = World()
    world.loop.in_hand = {TP: [1]}
    assert world.loop.hand_over(lambda: 5) == 5
    assert world.loop.in_hand is None

    def failing() -> Any:
        world.loop.in_hand = [SimpleNamespace(topic="t", partition=0), None, SimpleNamespace(topic="u", partition=1)]
        raise LookupError

    with pytest.raises(LookupError):
        world.loop.hand_over(failing)
    assert len(world.log) == 1 and world.log.pop().startswith("fetcher.give_back({TopicPartition(topic='t', partition=0): namespace(")
    for held in (True, None, {}):
        world.loop.in_hand = held
        world.loop.give_back()
        assert (world.loop.in_hand, world.said()) == (None, [])
    world.loop.in_hand = {TP: [1]}
    world.driver.answers["leave"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.loop.hand_over(lambda: 5)
    assert (world.loop.in_hand, world.said()) == ({TP: [1]}, ["driver.interrupted"])


def test_a_position_is_waited_for_and_why_there_is_none_is_said() -> None:
    world = World()
    assert (world.loop.position(TP, 50), world.said()) == (7, [])
    state = world.subscription.partitions[TP]
    state.state = FetchState.AWAIT_RESET
    waits = []

    def run(step: Any, done: Any, timeout_ms: int) -> bool:
        waits.append((step(1_000), done(), timeout_ms))
        return bool(state.state is FetchState.FETCHING)

    world.driver.answers["run"] = run
    for wake_ms, wait in ((None, None), (40, 40)):
        world.positions.answers["next_wake_ms"] = wake_ms
        with pytest.raises(errors.KafkaTimeoutError, match="no position found in time") as late:
            world.loop.position(TP, 50)
        assert waits.pop() == (wait, False, 50)
        assert (late.value.topic, late.value.partition, late.value.attempts) == ("t", 0, ("a look",))
    world.positions.answers["attempts"] = ["an answer"]
    with pytest.raises(errors.KafkaTimeoutError) as late:
        world.loop.position(TP, 50)
    assert late.value.attempts == ("an answer",)
    world.topics.owed["t"] = errors.TopicAuthorization("not yours")
    with pytest.raises(errors.TopicAuthorization):
        world.loop.position(TP, 50)
    assert world.topics.owed == {}
    world.positions.answers["step"] = lambda *_: setattr(state, "state", FetchState.FETCHING)
    world.topics.owed["t"] = errors.TopicAuthorization("left to a call that reads")
    assert world.loop.position(TP, 50) == 7
    world.driver.answers["run"] = lambda step, done, timeout_ms: (step(1_000), done(), timeout_ms)
    assert world.loop.settle(90) == (40, False, 90)  # type: ignore[comparison-overlap]
    world.positions.answers["next_wake_ms"], world.subscription.seeks_positions = None, False
    assert world.loop.settle(90) == (None, True, 90)  # type: ignore[comparison-overlap]


def test_what_goes_wrong_in_the_background_is_kept_and_heartbeats_go_on() -> None:
    world = World(with_group=True)
    assert world.group is not None
    reported: list[str] = []
    world.group.has_news = True
    assert world.loop.drive(1_000) == 2**62 - 1_000  # nothing is due
    world.group.has_news = False
    world.said()
    world.loop.on_news = lambda: reported.append("news")
    wakes = {"positions": 500, "group": 300, "topics": 400}
    for part, wake_ms in wakes.items():
        getattr(world, part).answers["next_wake_ms"] = wake_ms
    assert (world.loop.drive(1_000), reported) == (300, [])
    steps = ["group.step(1000)", "topics.step(1000)", *step_at(world, 1_000)]
    wake = [f"{part}.next_wake_ms(1000)" for part in (*wakes, "fetcher")]
    assert world.said() == [*steps, *wake]
    world.group.has_news, world.topics.behind = True, True
    world.fetcher.answers["next_wake_ms"] = 100
    assert (world.loop.drive(1_000), reported) == (100, ["news"])
    assert world.said() == ["topics.follow", *steps, *wake]
    first = errors.GroupAuthorization("no")

    def failing(_: int) -> None:
        raise first

    world.group.answers["step"] = failing
    assert world.loop.drive(1_000) == 100
    world.group.answers["step"] = None
    world.said()
    world.loop.driving_failed(errors.KafkaError("a second one"))
    assert world.loop.drive(1_000) == 100
    assert world.said() == ["group.step(1000)", "fetcher.send_fetches(1000)", *wake]
    with pytest.raises(errors.GroupAuthorization) as raised:
        world.loop.wait(world.found(1), {}, 5)
    assert raised.value is first
    assert world.said() == ["driver.check_woken", "group.refuse_inside_listener('poll')", "fetcher.begin", "group.enter_poll(1000)"]
    for error, kind in ((LookupError("odd"), errors.InternalError), (errors.TransportError("gone"), errors.TransportError)):
        world.loop.driving_failed(error)
        with pytest.raises(kind) as wrapped:
            world.loop.wait(world.found(1), {}, 5)
        assert (wrapped.value if kind is errors.TransportError else wrapped.value.__cause__) is error
    world.said()
    world.loop.end()
    world.loop.end()
    assert world.said() == ["background.close"]


def test_a_member_takes_its_part_before_records_are_handed_out() -> None:
    world = World(with_group=True)
    assert world.group is not None
    world.subscription.unsettled = True
    world.group.membership.change = "a change"
    world.group.answers["carry_out"] = lambda _: world.clock.advance(5)
    assert world.loop.wait(world.found(1), {}, 2) == 1
    enter = ["driver.check_woken", "group.refuse_inside_listener('poll')", "fetcher.begin", "group.enter_poll(1000)"]
    wall = world.clock.wall_ms()

    def step(now_ms: int, wall_ms: int) -> list[str]:
        return [
            f"group.step({now_ms})",
            f"topics.step({now_ms})",
            f"positions.step({now_ms}, {wall_ms})",
            f"fetcher.send_fetches({now_ms})",
        ]

    wake = [f"{part}.next_wake_ms(1005)" for part in ("positions", "group", "topics")]
    said = [*enter, "client.catch_up(1000)", "group.still_polling(1000)", *step(1_000, wall - 5), "group.poll_on(1000)"]
    assert world.said() == [*said, "group.carry_out(3000)", *step(1_005, wall), "positions.raise_failure", "collect", *wake]
    world.group.membership.change, world.group.gives_up = None, True
    assert world.loop.wait(world.found(1), "nothing", 0) == "nothing"
    assert "collect" not in world.said()
