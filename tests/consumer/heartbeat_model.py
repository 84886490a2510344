"""A coordinator of consumer groups (KIP-848) without sockets, and the way to it: requests go through the real codec, and are taken in,
answered or lost when the test says so. Written from the KIP, not from the client or the embedded broker.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group.membership import GroupSettings
from kafkacore.consumer.group.modern import ConsumerMembership
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import TopicPartition

INTERVAL_MS = 1_000
BACKOFF_MS = 100
MAX_POLL_MS = 60_000
WAITS_MS: dict[str, Any] = {"max_poll_interval_ms": MAX_POLL_MS, "retry_backoff_ms": BACKOFF_MS, "retry_backoff_max_ms": BACKOFF_MS}
Held = set[tuple[bytes, int]]


@dataclass
class Known:
    """As the coordinator knows it."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    topics: frozenset[str] = frozenset()
    assigned: Held = field(default_factory=set)
    revoking: Held = field(default_factory=set)

    @property
    def held(self) -> Held:
        return self.assigned | self.revoking


class Refusal(Exception):
    """An error code as the answer."""


class Coordinator:
    """One group.

    Attributes:
        refuse: error codes for the next requests, whatever they are.
        seen: the requests taken in.
    """

    def __init__(self, **topics: int) -> None:
        self.topics = {name: (uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes, count) for name, count in topics.items()}
        self.members: dict[str, Known] = {}
        self.epoch = 0
        self.target: dict[str, Held] = {}
        self.refuse: deque[int] = deque()
        self.seen: list[Any] = []

    def snapshot(self, *names: str) -> ClusterSnapshot:
        return ClusterSnapshot(
            topics={n: TopicInfo(n, self.topics[n][0], [PartitionInfo(i, 0) for i in range(self.topics[n][1])]) for n in names}
        )

    def name(self, topic_id: bytes) -> str:
        return next(name for name, (found, _) in self.topics.items() if found == topic_id)

    # -- the group ----------------------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """The group's members, subscriptions or topics are others: another target, which moves little."""
        self.epoch += 1
        old, self.target = self.target, {member_id: set() for member_id in self.members}
        for name, (topic_id, count) in self.topics.items():
            takers = [m for m, member in self.members.items() if name in member.topics]
            for index in range(count if takers else 0):
                partition = topic_id, index
                room = -(-count // len(takers))
                had = [m for m in takers if partition in old.get(m, ())]
                of = {m: sum(t == topic_id for t, _ in self.target[m]) for m in takers}
                taker = had[0] if had and of[had[0]] < room else min(takers, key=lambda m: (of[m], m))
                self.target[taker].add(partition)

    def remove(self, member_id: str) -> None:
        del self.members[member_id]
        self.change()

    def of_instance(self, instance_id: str) -> Known | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def answer(self, request: Any, version: int) -> Any:
        """ConsumerGroupHeartbeat."""
        assert request.group_id == "g"
        self.seen.append(request)
        try:
            if self.refuse:
                raise Refusal(self.refuse.popleft())
            return self._heartbeat(request)
        except Refusal as refusal:
            return p.ConsumerGroupHeartbeatResponse(error_code=refusal.args[0], error_message="so says the test")

    def _heartbeat(self, r: Any) -> Any:
        if r.member_epoch < 0:
            return self._leave(r)
        joins = r.member_epoch == 0
        if joins:
            assert r.rebalance_timeout_ms > 0
            assert r.topic_partitions == []
            assert r.subscribed_topic_names is not None
            member = self._joining(r)
        else:
            member = self.members.get(r.member_id)
            if member is None:
                raise Refusal(Code.UNKNOWN_MEMBER_ID)
            assert r.instance_id == member.instance_id
        owned = None if r.topic_partitions is None else {(bytes(t.topic_id), i) for t in r.topic_partitions for i in t.partitions}
        if not joins and r.member_epoch != member.epoch:
            lost_answer = r.member_epoch == member.previous_epoch and owned is not None and owned <= member.held
            if r.member_epoch > member.epoch or not lost_answer:
                raise Refusal(Code.FENCED_MEMBER_EPOCH)
        before = set(member.assigned)
        if r.subscribed_topic_names is not None and (frozenset(r.subscribed_topic_names) != member.topics or joins):
            assert r.subscribed_topic_names == sorted(set(r.subscribed_topic_names))
            member.topics = frozenset(r.subscribed_topic_names)
            self.change()
        self.give(member, owned)
        full = r.rebalance_timeout_ms != -1 and r.subscribed_topic_names is not None and owned is not None
        assignment = None
        if full or member.assigned != before:
            ids = sorted({t for t, _ in member.assigned})
            assignment = p.ConsumerGroupHeartbeatAssignment(
                topic_partitions=[
                    p.ConsumerGroupHeartbeatTopicPartitions(topic_id=t, partitions=sorted(i for u, i in member.assigned if u == t))
                    for t in ids
                ]
            )
        return p.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=member.epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment
        )

    def _joining(self, r: Any) -> Known:
        member_id = r.member_id or f"given-{len(self.seen)}"
        if r.instance_id is not None and (old := self.of_instance(r.instance_id)) is not None:
            if old.epoch != -2:
                raise Refusal(Code.UNRELEASED_INSTANCE_ID)
            del self.members[old.member_id]
            self.members[member_id] = Known(member_id, r.instance_id, topics=old.topics)
            self.target[member_id] = self.target.pop(old.member_id)
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Known(member_id, r.instance_id)
            self.change()
        member.epoch = member.previous_epoch = 0
        member.assigned, member.revoking = set(), set()  # it says that it has nothing
        return member

    def give(self, member: Known, owned: Held | None) -> None:
        """The member's next step: it gives up first, and reports that, before its epoch rises and it gets more."""
        if owned is not None:
            member.revoking &= owned
        target = self.target[member.member_id]
        gone = member.assigned - target
        member.assigned -= gone
        member.revoking |= gone if owned is None else gone & owned
        if member.revoking:
            return
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        taken = set().union(*(m.held for m in self.members.values() if m is not member))
        member.assigned |= target - taken

    def _leave(self, r: Any) -> Any:
        if r.member_epoch == -2:
            member = self.of_instance(r.instance_id)
            if member is None:
                raise Refusal(Code.UNKNOWN_MEMBER_ID)
            if member.member_id != r.member_id:
                raise Refusal(Code.FENCED_INSTANCE_ID)
            member.epoch = -2
            return p.ConsumerGroupHeartbeatResponse(member_id=r.member_id, member_epoch=-2)
        if r.member_id not in self.members:
            raise Refusal(Code.UNKNOWN_MEMBER_ID)
        self.remove(r.member_id)
        return p.ConsumerGroupHeartbeatResponse(member_id=r.member_id, member_epoch=-1)


class Link:
    """The way to the coordinator: what is sent waits until the test has it `taken` in and `answered`, or `cut` off."""

    def __init__(self, coordinator: Coordinator, version: int = 1) -> None:
        self.coordinator = coordinator
        self.version = version
        self.broker_id = 1
        self.node = self.failure = None
        self.attempts: list[Any] = []
        self.unknown = 0
        self.reachable = True
        self.sent: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.answers: deque[tuple[Any, Callable[[Any], None]]] = deque()

    def ready(self, now_ms: int) -> bool:
        return self.reachable

    def next_wake_ms(self, now_ms: int) -> int | None:
        return 0 if self.reachable else BACKOFF_MS

    def lost(self, reason: Any) -> None:
        self.unknown += 1

    def start_anew(self, client: Any) -> None:
        self.sent.clear()
        self.answers.clear()

    def send(self, api: Any, build: Callable[[int], Any], now_ms: int, answered: Any, *, min_version: int | None = None) -> None:
        if min_version is not None and min_version > self.version:
            error = errors.UnsupportedVersion("too old")
            self.answers.append((SimpleNamespace(response=None, error=error, version=-1), answered))
            return
        request = build(self.version)
        encoded = b"".join(bytes(part) for part in p.encode_request(request, self.version, 5, "c"))
        self.sent.append((p.decode_request(memoryview(encoded)[4:])[1], answered))

    def take(self) -> bool:
        """The coordinator takes one request in."""
        if not self.sent:
            return False
        request, answered = self.sent.popleft()
        response = self.coordinator.answer(request, self.version)
        self.answers.append((SimpleNamespace(response=response, error=None, version=self.version), answered))
        return True

    def hand(self) -> bool:
        """The engine gets one answer."""
        if not self.answers:
            return False
        response, answered = self.answers.popleft()
        answered(response)
        return True

    def cut(self) -> None:
        """The connection is lost, and with it everything that is under way."""
        lost = [answered for _, answered in (*self.answers, *self.sent)]
        self.answers.clear()
        self.sent.clear()
        self.unknown += 1
        for answered in lost:
            answered(SimpleNamespace(response=None, error=errors.DisconnectError("cut"), version=-1))


class Client:
    """An engine, the application, and the polling thread in between.

    Attributes:
        reads: what the application reads.
        calls: what a listener would have heard.
    """

    def __init__(self, coordinator: Coordinator, *topics: str, name: str = "m", version: int = 1, **settings: Any) -> None:
        self.coordinator = coordinator
        self.link = Link(coordinator, version)
        self.now_ms = 1_000
        self.known = coordinator.snapshot(*topics)
        self.asked_names = 0
        self.engine = ConsumerMembership(
            self.link,  # type: ignore[arg-type]
            GroupSettings("g", **WAITS_MS | settings),
            None,
            lambda: self.known,
            self._ask_names,
            member_id=name,
        )
        self.name = name
        self.reads: set[TopicPartition] = set()
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.doing: Any = None
        self.stage = 0
        self.engine.subscribe(frozenset(topics))
        self.engine.polled(self.now_ms)

    def _ask_names(self, topic_ids: frozenset[bytes]) -> None:
        assert topic_ids
        assert not any(self.known.topic_name(topic_id) for topic_id in topic_ids)
        self.asked_names += 1

    def learn(self) -> None:
        """Metadata arrives."""
        self.known = self.coordinator.snapshot(*self.coordinator.topics)

    def step(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.engine.step(self.now_ms)

    def polls(self) -> None:
        """The application calls poll: what the engine wants is carried out from its beginning to its end."""
        self.engine.breached = False
        self.engine.polled(self.now_ms)
        while self.work():
            pass

    def work(self) -> bool:
        """The polling thread does the next piece of a change."""
        if self.doing is None:
            self.doing, self.stage = self.engine.change, 0
            if self.doing is None:
                return False
        change = self.doing
        self.stage += 1
        if self.stage == 1 and change.revoked:
            self.calls.append(("lost" if change.lost else "revoked", set(change.revoked)))
        elif self.stage == 2:
            self.reads = set(change.assignment)
        elif self.stage == 3:
            if change.added is not None:
                self.calls.append(("assigned", set(change.added)))
            self.doing = None
            self.engine.carried_out(change, self.now_ms)
        return True

    def exchange(self) -> None:
        """Everything that is under way arrives."""
        while self.link.take() or self.link.hand():
            pass

    def round(self) -> None:
        """Everybody does what is theirs, and nothing goes wrong."""
        self.step()
        self.exchange()
        self.polls()

    @property
    def is_member(self) -> bool:
        """Engine and coordinator agree that this member is one."""
        found = self.coordinator.members.get(self.engine.metadata.member_id)
        return self.engine.joined and found is not None and found.epoch > 0
