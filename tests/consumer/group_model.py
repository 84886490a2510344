"""The coordinator of a classic group, as a model: requests go through the real codec, answers come when the test says so.

It is written from the protocol's point of view. What a correct member never does fails here: two JoinGroups on their way, a heartbeat for
a generation that it was not given, another member's id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.consumer.group.assignor import MemberAssignment, PartitionAssignor, RebalanceProtocol, decode_subscription
from kafkacore.consumer.group.classic import ClassicMembership, Phase
from kafkacore.consumer.group.membership import GroupSettings
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.types import ConsumerGroupMetadata, Node, TopicPartition

VERSIONS = {p.FindCoordinatorRequest: 4, p.JoinGroupRequest: 9, p.SyncGroupRequest: 5, p.HeartbeatRequest: 4, p.LeaveGroupRequest: 5}
RESPONSES = {
    p.FindCoordinatorRequest: p.FindCoordinatorResponse,
    p.JoinGroupRequest: p.JoinGroupResponse,
    p.SyncGroupRequest: p.SyncGroupResponse,
    p.HeartbeatRequest: p.HeartbeatResponse,
    p.LeaveGroupRequest: p.LeaveGroupResponse,
}
TOPICS = {"a": 3, "b": 2, "c": 1}


class Everything(PartitionAssignor):
    """All partitions of a topic go to the first member that wants it."""

    name = "everything"
    supported_protocols = (RebalanceProtocol.EAGER,)

    def assign(self, cluster, subscriptions):
        found: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        for topic in sorted({t for s in subscriptions.values() for t in s.topics}):
            member = min(m for m, s in subscriptions.items() if topic in s.topics)
            found[member] += [TopicPartition(topic, i) for i in range(cluster.partition_count(topic) or 0)]
        return {member: MemberAssignment(tuple(tps)) for member, tps in found.items()}


class EverythingCooperative(Everything):
    name = "everything-cooperative"
    supported_protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)


class Flying:
    """A request on its way."""

    def __init__(self, node_id: int, api: Any, message: Any, version: int, callback: Any, options: dict[str, Any]) -> None:
        self.node_id, self.api, self.message, self.version, self.callback = node_id, api, message, version, callback
        self.options = options


@dataclass
class Reply:
    request: Flying
    response: Any
    error: errors.KafkaError | None
    version: int
    disconnected: bool
    timed_out: bool = False
    latency_ms: int = 1


class ModelClient:
    """The network client, as far as a group looks. The model of the cluster outlives it: an interrupt makes another client."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.flying: deque[Flying] = deque()

    def ready(self, node: Node, now_ms: int) -> bool:
        return self.model.reachable

    is_ready = ready

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return 50

    def connection_failed(self, node: Node) -> bool:
        return not self.model.reachable

    def connection_errors(self, node: Node) -> tuple[errors.KafkaError, ...]:
        return (errors.DisconnectError("refused"),)

    def authentication_exception(self, node: Node) -> None:
        return None

    def least_loaded_node(self, now_ms: int) -> Node:
        return Node(1, "broker", 9091)

    def disconnect(self, node_id: int) -> None:
        lost = [f for f in self.flying if f.node_id == node_id]
        self.flying = deque(f for f in self.flying if f.node_id != node_id)
        self.model.cancelled += lost

    def new_client_request(self, node_id: int, api: Any, build: Any, now_ms: int, *, callback: Any, **options: Any) -> Any:
        return node_id, api, build, callback, options

    def send(self, request: Any, now_ms: int) -> None:
        node_id, api, build, callback, options = request
        version = VERSIONS[api]
        message = build(version)
        message = api.decode(version, b"".join(message.encode(version)))
        self.model.check(api, message, self.flying)
        self.flying.append(Flying(node_id, api, message, version, callback, options))
        self.model.sent.append((now_ms, message))


class Model:
    """The cluster: one group whose only other members are imagined.

    Attributes:
        strict: what a correct member never does fails; not while the answers are lies that it may believe.
        bend: makes a lie of an answer, from its request.
        mutate: changes the bytes of an answer.
    """

    def __init__(self, *, instance_id: str | None = None) -> None:
        self.instance_id = instance_id
        self.reachable = True
        self.generation = 0
        self.member: str | None = None  # who is in the group
        self.ids = 0
        self.given_generation = -1
        self.given_id = self.protocol = ""
        self.rebalancing = False
        self.cancelled: list[Flying] = []
        self.sent: list[tuple[int, Any]] = []
        self.assigned: frozenset[TopicPartition] = frozenset()
        self.strict = True
        self.bend: Callable[[Any, Any], Any] | None = None
        self.mutate: Callable[[bytes], bytes] | None = None
        self.snapshot = ClusterSnapshot(
            {1: Node(1, "broker", 9091)},
            topics={t: TopicInfo(t, t.encode().ljust(16, b"\1"), [PartitionInfo(i, 1, 0) for i in range(n)]) for t, n in TOPICS.items()},
        )

    def check(self, api: Any, message: Any, flying: deque[Flying]) -> None:
        if api is not p.FindCoordinatorRequest:
            assert message.group_id == "g"
        if api in (p.JoinGroupRequest, p.SyncGroupRequest, p.HeartbeatRequest):
            assert message.group_instance_id == self.instance_id
        if not self.strict:
            return
        if api in (p.SyncGroupRequest, p.HeartbeatRequest):
            assert message.member_id == self.given_id
        if api is p.SyncGroupRequest:
            assert (message.protocol_type, message.protocol_name) == ("consumer", self.protocol)
        if api is p.JoinGroupRequest:
            assert message.protocol_type == "consumer"
            assert not [f for f in flying if f.api is api], "two JoinGroups on their way"
        if api is p.HeartbeatRequest:
            assert message.generation_id >= 0
            assert message.generation_id == self.given_generation, "a heartbeat for a generation that this member does not have"
        if api is p.SyncGroupRequest:
            assert message.generation_id == self.given_generation

    # answers

    def answer(self, client: ModelClient, code: int | None = None, lost: bool = False) -> Any:
        """Answers the oldest request: as the group stands, or with an error code, or with a lost connection."""
        for flying in self.cancelled:
            flying.callback(self._response(flying, None, errors.DisconnectError("gone")))
        self.cancelled.clear()
        if not client.flying:
            return None
        flying = client.flying.popleft()
        if lost:
            flying.callback(self._response(flying, None, errors.DisconnectError("gone")))
            return flying.api
        reply = getattr(self, f"_{flying.api.__name__}")(flying.message, code)
        if self.bend is not None:
            reply = self.bend(flying.message, reply) or reply
        wire = b"".join(reply.encode(flying.version))
        try:
            reply = RESPONSES[flying.api].decode(flying.version, wire if self.mutate is None else self.mutate(wire))
        except errors.CorruptDataError as error:  # as the network client does it: nothing more is read from this connection
            flying.callback(self._response(flying, None, error))
            return flying.api
        flying.callback(self._response(flying, reply, None))
        return flying.api

    def _response(self, flying: Flying, reply: Any, error: errors.KafkaError | None) -> Any:
        return Reply(flying, reply, error, flying.version, error is not None)

    def _FindCoordinatorRequest(self, m: Any, code: int | None) -> Any:
        found = p.Coordinator(key="g", node_id=1, host="broker", port=9091, error_code=code or 0)
        return p.FindCoordinatorResponse(coordinators=[found])

    def _JoinGroupRequest(self, m: Any, code: int | None) -> Any:
        if code is None and not m.member_id and self.instance_id is None:
            self.ids += 1
            return p.JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=f"m{self.ids}", members=[])
        if code:
            self.believe(m.member_id, code)
            return p.JoinGroupResponse(error_code=code, member_id=m.member_id, members=[])
        if not m.member_id:
            self.ids += 1
        self.member = m.member_id or f"m{self.ids}"
        self.generation += 1
        self.given_generation = self.generation
        self.given_id = self.member
        self.rebalancing = False
        protocol = m.protocols[0]
        self.protocol = protocol.name
        if protocol.name == "everything":
            assert not decode_subscription(protocol.metadata).owned_partitions, "the eager protocol gives up everything first"
        return p.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=self.member,
            member_id=self.member,
            members=[p.group.JoinGroupResponseMember(member_id=self.member, metadata=protocol.metadata)],
        )

    def _SyncGroupRequest(self, m: Any, code: int | None) -> Any:
        code = code or self._standing(m)
        if code:
            self.believe(m.member_id, code)
            return p.SyncGroupResponse(error_code=code, assignment=b"")
        mine, *others = [a.assignment for a in m.assignments if a.member_id == self.member] or [b""]
        assert not self.strict or (m.assignments and not others)
        return p.SyncGroupResponse(assignment=bytes(mine), protocol_type="consumer", protocol_name=m.protocol_name)

    def _HeartbeatRequest(self, m: Any, code: int | None) -> Any:
        code = code or self._standing(m)
        self.believe(m.member_id, code)
        return p.HeartbeatResponse(error_code=code or 0)

    def _LeaveGroupRequest(self, m: Any, code: int | None) -> Any:
        if not code and self.member in [left.member_id for left in m.members]:
            self.member = None
        return p.LeaveGroupResponse(error_code=code or 0, members=[])

    def _standing(self, m: Any) -> int:
        if m.member_id != self.member:
            return Code.UNKNOWN_MEMBER_ID
        if m.generation_id != self.generation:
            return Code.ILLEGAL_GENERATION
        return Code.REBALANCE_IN_PROGRESS if self.rebalancing else 0

    def believe(self, member_id: str, code: int) -> None:
        """An error that was made up is true from now on."""
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID) and member_id == self.member:
            self.member = None
        elif code == Code.ILLEGAL_GENERATION:
            self.generation += 1


class Member:
    """The engine under test and a polling thread for it, moved by hand.

    Args:
        cooperative: the rebalance protocol.
        instance_id: of a static member.
        auto_carry: a poll carries out the change that there is.
    """

    def __init__(self, *, cooperative: bool = False, instance_id: str | None = None, **settings: Any) -> None:
        self.model = Model(instance_id=instance_id)
        self.client = ModelClient(self.model)
        self.now_ms = 1_000
        self.link = CoordinatorLink(self.client, "g", retry_backoff_ms=100, retry_backoff_max_ms=1_000)  # type: ignore[arg-type]
        self.settings = GroupSettings("g", instance_id, **settings)
        self.assignor = EverythingCooperative() if cooperative else Everything()
        self.engine = ClassicMembership(self.link, self.settings, [self.assignor], lambda: self.model.snapshot, lambda topics: None)
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.failures: list[errors.KafkaError] = []

    def step(self) -> None:
        self.engine.step(self.now_ms)

    def answer(self, code: int | None = None, lost: bool = False) -> Any:
        return self.model.answer(self.client, code, lost)

    def commit_refused(self, code: int, sent_as: ConsumerGroupMetadata | None = None) -> bool:
        """A commit of this member, or of what it was once, is answered with an error."""
        sent_as = sent_as or self.engine.metadata
        self.model.believe(sent_as.member_id, code)
        return self.engine.commit_refused(errors.from_code(code), sent_as)

    def interrupt(self) -> None:
        self.client = ModelClient(self.model)
        self.engine.start_anew(self.client)  # type: ignore[arg-type]

    def poll(self, carry: bool = True) -> None:
        engine = self.engine
        engine.breached = False
        engine.polled(self.now_ms)
        failure = engine.failure or self.link.failure
        if failure is not None:
            engine.failure = self.link.failure = None
            self.failures.append(failure)
        self.step()
        if carry:
            self.carry_out()

    def carry_out(self) -> None:
        change = self.engine.change
        if change is None:
            return
        assert change.revoked <= self.assignment
        if change.revoked:
            self.calls.append(("lost" if change.lost else "revoked", change.revoked))
        self.assignment = change.assignment
        if change.added is not None:
            self.calls.append(("assigned", change.added))
        self.engine.carried_out(change, self.now_ms)

    def run(self, done: Any = None, rounds: int = 200) -> None:
        """Goes on with a coordinator that is well, sleeping exactly as long as the engine says."""
        done = done or (lambda: self.stable)
        for _ in range(rounds):
            self.poll()
            if done():
                return
            if self.client.flying or self.model.cancelled:
                self.answer()
                continue
            wake_ms = self.engine.next_wake_ms(self.now_ms)
            assert wake_ms is not None, f"nothing is under way, and nothing is due: {self.engine.phase}"
            self.now_ms += wake_ms
        raise AssertionError(f"no progress: {self.engine.phase}, {self.engine.change}")

    @property
    def stable(self) -> bool:
        engine = self.engine
        wanted = frozenset(TopicPartition(t, i) for t in engine.topics or () for i in range(TOPICS[t]))
        return (
            engine.phase is Phase.STABLE
            and engine.change is None
            and not self.client.flying
            and self.assignment == engine.owned == wanted
            and engine.metadata.generation_id == self.model.generation
            and engine.metadata.member_id == self.model.member
        )
