"""A classic group: its members, its state and its generation.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                ^      |                  |                 |
                |      +-> Empty          |                 |
                +-------------------------+-----------------+        any -> Dead

State changes only by `transition_to`. Between two records in the log (written when a generation's assignment is known, or the group is
empty) a group changes in memory alone: who is joining is forgotten with the leadership, and the members join again.

Source: org.apache.kafka.coordinator.group.classic.{ClassicGroup, ClassicGroupMember, ClassicGroupState}.
"""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from kafkacore import errors
from kafkacore.errors import CorruptDataError
from kafkacore.protocol import JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from kafkacore.protocol.stored import ConsumerProtocolSubscription, decode_stored

CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroupState(enum.Enum):
    """Where a group is in a rebalance; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState

VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    EMPTY: frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    STABLE: frozenset({COMPLETING_REBALANCE}),
    DEAD: frozenset({STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD}),
}


class ClassicMember:
    """A member.

    Attributes:
        protocols: the assignors it knows, by its preference, each with its subscription.
        assignment: what it has in this generation; empty before it is known.
        is_new: it has not been part of a generation yet, so its heartbeats run while it waits.
        awaiting_join, awaiting_sync: answers its request, if one waits.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "heartbeat_satisfied",
        "instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = {protocol.name: bytes(protocol.metadata) for protocol in protocols}
        self.assignment = assignment
        self.is_new = False
        self.heartbeat_satisfied = False
        self.awaiting_join: Callable[[JoinGroupResponse], None] | None = None
        self.awaiting_sync: Callable[[SyncGroupResponse], None] | None = None

    @property
    def is_static(self) -> bool:
        """It has an instance id (KIP-345)."""
        return self.instance_id is not None

    def has_satisfied_heartbeat(self) -> bool:
        """Whether its session cannot end now: it was heard of, or it waits for an answer of ours."""
        return self.heartbeat_satisfied or (not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None))

    def matches(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether it would rejoin with what it joined with, order included."""
        return list(self.protocols.items()) == [(protocol.name, bytes(protocol.metadata)) for protocol in protocols]

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate it likes best."""
        return next(name for name in self.protocols if name in candidates)


class ClassicGroup:
    """A group. Source: org.apache.kafka.coordinator.group.classic.ClassicGroup."""

    kind = "classic"

    def __init__(self, group_id: str, state: ClassicGroupState, wall_ms: int) -> None:
        """A group without members.

        Args:
            group_id: its name.
            state: Empty or Stable.
            wall_ms: the time now.
        """
        self.group_id = group_id
        self.state = state
        self.previous_state = DEAD
        self.state_timestamp_ms = wall_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.rebalance_is_due = False  # as its record says
        # Of the members, so that a request need not look at all of them: how many wait for the others, and how many know a protocol.
        self._joined = 0
        self._supported: Counter[str] = Counter()

    # ---- state

    def is_in(self, *states: ClassicGroupState) -> bool:
        """Whether it is in one of these states."""
        return self.state in states

    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    def transition_to(self, state: ClassicGroupState, wall_ms: int) -> None:
        """Moves to a state.

        Raises:
            IllegalStateError: there is no way from the one it is in.
        """
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise errors.IllegalStateError(f"group {self.group_id} cannot move from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = wall_ms

    def init_next_generation(self, wall_ms: int) -> None:
        """Everybody who comes has come: chooses the protocol."""
        self.generation = self.generation + 1 if self.generation < 2**31 - 1 else 0
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, wall_ms)
        self.pending_syncs.clear()

    # ---- members

    def add(self, member: ClassicMember, respond: Callable[[JoinGroupResponse], None] | None = None) -> None:
        """Takes a member in; the first one decides the protocol type and leads."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._uncount(self.members.get(member.member_id))
        self.members[member.member_id] = member
        member.awaiting_join = respond
        self._joined += respond is not None
        self._count_protocols(member.protocols, 1)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Takes a member out, also one that has not come back with its id yet; another leads if it led."""
        removed = self.members.pop(member_id, None)
        self._uncount(removed)
        if removed is not None and removed.instance_id is not None:
            self.static_members.pop(removed.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def _uncount(self, member: ClassicMember | None) -> None:
        if member is not None:
            self._joined -= member.awaiting_join is not None
            self._count_protocols(member.protocols, -1)

    def _count_protocols(self, names: Iterable[str], step: int) -> None:
        for name in names:
            self._supported[name] += step
            if not self._supported[name]:
                del self._supported[name]

    def set_protocols(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        """A member of the group joins again, with these protocols."""
        self._count_protocols(member.protocols, -1)
        self._count_protocols(protocols, 1)
        member.protocols = protocols

    def await_join(self, member: ClassicMember, respond: Callable[[JoinGroupResponse], None] | None) -> None:
        """A member of the group waits for the others; or, with None, no longer does."""
        self._joined += (respond is not None) - (member.awaiting_join is not None)
        member.awaiting_join = respond

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> ClassicMember:
        """A static member came back under a new id: what it was waiting for under the old one ends with FENCED_INSTANCE_ID."""
        member = self.members[old_id]
        fenced = errors.Code.FENCED_INSTANCE_ID
        self.complete_join(member, JoinGroupResponse(error_code=fenced, member_id=old_id, protocol_name=None))
        self.complete_sync(member, SyncGroupResponse(error_code=fenced))
        del self.members[old_id]
        member.member_id = new_id
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        self.static_members[instance_id] = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Lets a member lead that has joined; False if none has."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is None:
            return False
        if leader.awaiting_join is None:
            joined = next((member for member in self.members.values() if member.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def validate_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of a request.

        Raises:
            UnknownMemberId: it is none.
            FencedInstanceId: its instance id belongs to another member by now.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise errors.UnknownMemberId(f"no member of group {self.group_id} has the instance id {instance_id!r}")
            if current != member_id:
                raise errors.FencedInstanceId(f"instance id {instance_id!r} belongs to another member of group {self.group_id}")
        member = self.members.get(member_id)
        if member is None:
            raise errors.UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id}")
        return member

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        """An id that no member had: the client's or the instance's name and a random UUID."""
        return f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}"

    def joined_count(self) -> int:
        """Members whose JoinGroup waits."""
        return self._joined

    def has_all_members_joined(self) -> bool:
        """Whether no member is waited for."""
        return not self.pending_joins and self._joined == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        """The longest of its members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- answers

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> bool:
        """Answers a waiting JoinGroup; False if none waits."""
        respond, member.awaiting_join = member.awaiting_join, None
        if respond is not None:
            self._joined -= self.members.get(member.member_id) is member
            respond(response)
        return respond is not None

    def complete_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answers a waiting SyncGroup; False if none waits."""
        respond, member.awaiting_sync = member.awaiting_sync, None
        if respond is not None:
            respond(response)
        return respond is not None

    def member_list(self) -> list[JoinGroupResponseMember]:
        """What the leader gets to assign by."""
        name = self.protocol_name or ""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.protocols.get(name, b"")
            )
            for member in self.members.values()
        ]

    # ---- protocols

    def supports_protocols(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: the type is the group's, and one protocol is known to all members."""
        names = list(protocols)
        if self.state is EMPTY:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(self._supported[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The protocol most members like best of those all know."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics of all members; None where they are unknown, because they do not speak the consumer's protocol."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(decode_stored(ConsumerProtocolSubscription, member.protocols[self.protocol_name]).topics)
            except CorruptDataError:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, or may: then its offsets stay."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # ---- what may be done to it

    @property
    def is_empty(self) -> bool:
        """It has no members."""
        return self.state is EMPTY

    @property
    def state_name(self) -> str:
        """Kafka's name of its state."""
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        """What ListGroups tells."""
        return self.protocol_type or ""

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, is_transactional: bool
    ) -> ClassicMember | None:
        """Whether offsets may be committed; returns the member, None for a commit from outside.

        Raises:
            BrokerError: why not.
        """
        if self.state is DEAD:
            raise errors.CoordinatorNotAvailable(f"group {self.group_id} is dead")
        if generation < 0 and self.state is EMPTY:
            return None
        member = None
        if generation >= 0 or member_id or instance_id is not None:
            member = self.validate_member(member_id, instance_id)
            if generation != self.generation:
                raise errors.IllegalGeneration(f"group {self.group_id} is in generation {self.generation}, not {generation}")
        elif not is_transactional and self.state is not EMPTY:
            raise errors.UnknownMemberId(f"group {self.group_id} has members; only they commit")
        if not is_transactional and self.state is COMPLETING_REBALANCE:
            raise errors.RebalanceInProgress(f"group {self.group_id} waits for its assignment")
        return member

    def validate_offset_delete(self) -> None:
        """Whether offsets may be deleted.

        Raises:
            GroupIdNotFound: the group is dead.
            GroupNotEmpty: it has members, and what they read is unknown.
        """
        if self.state is DEAD:
            raise errors.GroupIdNotFound(f"group {self.group_id} is dead")
        if self.state is not EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise errors.GroupNotEmpty(f"group {self.group_id} has members")

    def validate_delete(self) -> None:
        """Whether the group may be deleted.

        Raises:
            GroupIdNotFound: it is dead.
            GroupNotEmpty: it has members.
        """
        if self.state is DEAD:
            raise errors.GroupIdNotFound(f"group {self.group_id} is dead")
        if self.state is not EMPTY:
            raise errors.GroupNotEmpty(f"group {self.group_id} has members")

    def offsets_expire_since(self) -> Callable[[int], int] | None:
        """From when on an offset ages, given when it was committed; None if it does not.

        With members only those of topics that no member reads age (`is_subscribed_to`).
        """
        if self.protocol_type is None:
            return lambda commit_ms: commit_ms
        if self.state is EMPTY:
            since = self.state_timestamp_ms
            return lambda commit_ms: since if since >= 0 else commit_ms
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics is not None and self.state is STABLE:
            return lambda commit_ms: commit_ms
        return None
