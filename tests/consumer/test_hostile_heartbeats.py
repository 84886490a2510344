"""A KIP-848 member whose coordinator answers whole but wrong: by itself, time is moved by hand, each answer takes a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from heartbeat_model import INTERVAL_MS, MAX_POLL_MS, Client, Coordinator, Link
from hypothesis import given
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group import membership
from kafkacore.consumer.group.membership import GroupSettings
from kafkacore.consumer.group.modern import Phase
from kafkacore.errors import Code
from tests.kit.mutated import mutated
from tests.kit.rows import each_row

LIE_MS = 5_000
MOST_PER_SECOND = 25  # two requests for each back-off of 100 ms, and a few that come before the first
RECOVERY_MS = 20_000
CODES = [*sorted({*Code} - {0}), -2, 200, 32_767, -32_768]
TOPICS = {"t": 3, "u": 1}

Bend = Callable[[Any, Any], Any]


class LyingLink(Link):
    """Changes answers on their way: `bend` the answer, `mutate` its bytes."""

    bend: Bend | None = None
    mutate: Callable[[bytes], bytes] | None = None

    def take(self) -> bool:
        if not self.sent:
            return False
        request, answered = self.sent.popleft()
        response = self.coordinator.answer(request, self.version)
        if self.bend is not None:
            response = self.bend(request, response)
        wire = b"".join(bytes(part) for part in response.encode(self.version))
        wire = wire if self.mutate is None else self.mutate(wire)
        error = None
        try:
            response = p.ConsumerGroupHeartbeatResponse.decode(self.version, wire)
        except errors.CorruptDataError as cause:
            response, error = None, cause
        self.answers.append((SimpleNamespace(response=response, error=error, version=self.version), answered))
        return True


class LiedTo(Client):
    def __init__(self, *, in_group: bool, version: int = 1, **settings: Any) -> None:
        super().__init__(Coordinator(**TOPICS), "t", version=version, **settings)
        self.link = LyingLink(self.coordinator, version)
        self.engine._link = self.link  # type: ignore[assignment]
        self.failures: list[errors.KafkaError] = []
        if in_group:
            self.recovers()

    def one(self) -> None:
        """One step, one answer or the wait for the next one, one poll."""
        self.step()
        if self.link.take() or self.link.hand():
            self.now_ms += 1
        else:
            wake_ms = self.engine.next_wake_ms(self.now_ms)
            assert wake_ms is not None, self.engine.phase
            self.now_ms += max(1, min(1_000, wake_ms))
            self.learn()
        if self.engine.failure is not None:
            self.failures.append(self.engine.failure)
            self.engine.failure = None
        self.polls()
        assert all(tp.partition >= 0 for tp in self.reads)

    def lies(self, bend: Bend | None, ms: int = LIE_MS) -> float:
        """The coordinator lies for a while. Returns the requests per second."""
        self.link.bend = bend
        seen, began_ms = len(self.coordinator.seen), self.now_ms
        while self.now_ms < began_ms + ms:
            self.one()
        self.link.bend = self.link.mutate = None
        return (len(self.coordinator.seen) - seen) / (self.now_ms - began_ms) * 1_000

    @property
    def well(self) -> bool:
        engine = self.engine
        mine = {(t, i) for t, i in self.coordinator.target.get(engine.metadata.member_id, set())}
        wanted = {(self.coordinator.topics[tp.topic][0], tp.partition) for tp in self.reads}
        return engine.phase is Phase.STABLE and self.is_member and mine == wanted and not self.link.sent and not self.link.answers

    def recovers(self, *, forgotten: bool = False) -> None:
        """The coordinator is well again, and so is the member, by itself; where it cannot know better, once its session has ended."""
        until_ms = self.now_ms + RECOVERY_MS
        if forgotten:
            until_ms += MAX_POLL_MS
            for member_id in [*self.coordinator.members]:
                self.coordinator.remove(member_id)
        while not self.well:
            self.one()
            assert self.now_ms <= until_ms, f"not well again: {self.engine.phase}, {self.failures[-1:]}"


def saying(**fields: Any) -> Bend:
    def bend(request: Any, response: Any) -> Any:
        return response if response.error_code else response._replace(**fields)

    return bend


def given_out(*topics: tuple[bytes, list[int]]) -> Bend:
    found = [p.ConsumerGroupHeartbeatTopicPartitions(topic_id=t, partitions=i) for t, i in topics]
    return saying(assignment=p.ConsumerGroupHeartbeatAssignment(topic_partitions=found))


def refusing(code: int) -> Bend:
    return lambda request, response: response._replace(error_code=code)


def growing() -> Bend:
    epochs = iter(range(1, 2**31))
    return lambda request, response: response._replace(member_epoch=next(epochs))


T, U = (Coordinator(**TOPICS).topics[name][0] for name in TOPICS)
LIES: dict[str, Bend] = {
    "epoch 0": saying(member_epoch=0),
    "epoch -1": saying(member_epoch=-1),
    "epoch -2^31": saying(member_epoch=-(2**31)),
    "epoch 1 forever": saying(member_epoch=1),
    "epoch 2^31-1": saying(member_epoch=2**31 - 1),
    "another epoch each time": growing(),
    "no member id": saying(member_id=None),
    "an empty member id": saying(member_id=""),
    "another member id": saying(member_id="somebody"),
    "the longest member id": saying(member_id="m" * 32_767),
    "interval 0": saying(heartbeat_interval_ms=0),
    "interval -1": saying(heartbeat_interval_ms=-1),
    "interval -2^31": saying(heartbeat_interval_ms=-(2**31)),
    "interval 1": saying(heartbeat_interval_ms=1),
    "interval 2^31-1": saying(heartbeat_interval_ms=2**31 - 1),
    "throttled for 24 days": saying(throttle_time_ms=2**31 - 1),
    "nothing assigned": given_out(),
    "no assignment": saying(assignment=None),
    "an unknown topic": given_out((b"?" * 16, [0])),
    "topic id 0": given_out((bytes(16), [0])),
    "another topic": given_out((U, [0])),
    "a topic twice": given_out((T, [0]), (T, [1])),
    "a partition twice": given_out((T, [0, 0, 1])),
    "a partition below 0": given_out((T, [0, -1])),
    "partitions that the topic does not have": given_out((T, [*range(10_000), 2**31 - 1])),
}


@pytest.mark.parametrize("in_group", [False, True], ids=["new", "in the group"])
@pytest.mark.parametrize("version", [0, 1])
@each_row("bend", [pytest.param(bend, id=name) for name, bend in LIES.items()])
def test_a_lie(bend: Bend, version: int, in_group: bool) -> None:
    client = LiedTo(in_group=in_group, version=version)
    assert client.lies(bend) <= MOST_PER_SECOND
    for failure in client.failures:
        assert (failure.broker, (failure.api or "").split(" ")[0]) == (1, "ConsumerGroupHeartbeat"), failure
    client.recovers(forgotten=True)


def test_more_partitions_than_a_member_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "ASSIGNED_PARTITIONS", 3)
    client = LiedTo(in_group=True)
    assert client.lies(given_out((T, [0, 1]), (U, [0, 1]))) <= MOST_PER_SECOND
    assert client.failures
    assert all("the assignment names 4 partitions, and a member has no more than 3" in str(failure) for failure in client.failures)
    client.recovers(forgotten=True)


@each_row("in_group", [False, True], ids=["new", "in the group"])
@each_row("topic_id", [b"?" * 16, bytes(16)])
def test_a_topic_that_nobody_can_name(topic_id: bytes, in_group: bool) -> None:
    """The coordinator takes its answer for delivered and says nothing more: the member asks for the whole assignment again."""
    client = LiedTo(in_group=in_group)
    assert client.lies(given_out((topic_id, [0]))) <= MOST_PER_SECOND
    client.recovers()


@pytest.mark.parametrize(("in_group", "instance_id"), [(False, None), (True, "i")], ids=["new", "in the group, static"])
def test_every_error_code(in_group: bool, instance_id: str | None) -> None:
    """Also those that the API never answers with, and those that do not exist."""
    for code in CODES:
        client = LiedTo(in_group=in_group, group_instance_id=instance_id)
        assert client.lies(refusing(code), 5_000) <= MOST_PER_SECOND, code
        for failure in client.failures:
            assert (failure.broker, (failure.api or "").split(" ")[0]) == (1, "ConsumerGroupHeartbeat"), failure
        client.recovers()


def test_a_member_that_leaves_is_refused() -> None:
    for code in CODES:
        client = LiedTo(in_group=True)
        client.link.bend = refusing(code)
        began_ms, seen = client.now_ms, len(client.coordinator.seen)
        client.engine.leave(client.now_ms, "a test")
        while client.engine.leaving:
            client.step()
            if client.link.take() or client.link.hand():
                client.now_ms += 1
            elif client.engine.leaving:
                wake_ms = client.engine.next_wake_ms(client.now_ms)
                assert wake_ms is not None
                client.now_ms += max(1, min(1_000, wake_ms))
        assert client.now_ms - began_ms <= GroupSettings("g").session_timeout_ms + 1_000
        assert len(client.coordinator.seen) - seen <= 1 + MOST_PER_SECOND * (client.now_ms - began_ms) / 1_000, code


@given(seed=st.integers(0, 2**32), often=st.sampled_from([1, 2, 5]), in_group=st.booleans(), version=st.sampled_from([0, 1]))
def test_bytes_of_answers_change(seed: int, often: int, in_group: bool, version: int) -> None:
    chance = random.Random(seed)
    client = LiedTo(in_group=in_group, version=version)

    def mutate(wire: bytes) -> bytes:
        if chance.randrange(often):
            return wire
        return mutated(wire, chance)

    client.link.mutate = mutate
    assert client.lies(None, 10 * INTERVAL_MS) <= MOST_PER_SECOND
    client.recovers(forgotten=True)
