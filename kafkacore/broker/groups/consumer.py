"""A consumer group (KIP-848): what its members want, are to have, and have.

    group epoch        rises with every change of members, subscriptions and topics
    assignment epoch   the group epoch for which the target assignment was made
    member epoch       the assignment epoch a member has got to; it moves there on its own, by its heartbeats

    Empty -> Assigning (group epoch > assignment epoch) -> Reconciling (some member is behind) -> Stable

Members are immutable; the group changes by replay alone. `partition_epoch` says who holds a partition: a partition that is assigned to a
member, or that it still has to give up, belongs to no other.

Source: org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroup, ConsumerGroupMember}, KIP-848.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkacore import errors
from kafkacore.protocol.stored import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
FIRST_EPOCH = 1

# topic id -> partition -> the epoch in which the member got it
Owned = Mapping[bytes, Mapping[int, int]]
# topic id -> partitions
Partitions = Mapping[bytes, frozenset[int]]
NONE_OWNED: Owned = {}
NO_PARTITIONS: Partitions = {}


class MemberState(enum.IntEnum):
    """How far a member is on its way to the target; the numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerMember(NamedTuple):
    """A member.

    Attributes:
        member_id: chosen by itself.
        epoch, previous_epoch: the one it is in, and the one it was in, with which it may try again if an answer was lost.
        state: on its way to the target.
        instance_id: of a static member.
        rack_id: where it is.
        rebalance_timeout_ms: how long it may take to give partitions up.
        client_id, client_host: of its last request.
        topic_names, topic_regex: its subscription; "" for no expression.
        server_assignor: the one it prefers.
        assigned: what it has.
        pending_revocation: what it has to give up.
        classic: of a member that speaks the classic protocol.
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Owned = NONE_OWNED
    pending_revocation: Owned = NONE_OWNED
    classic: ClassicMemberMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        """It speaks JoinGroup and SyncGroup."""
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has what it is to have."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def moved_to(self, epoch: int, state: MemberState, assigned: Owned, pending_revocation: Owned) -> ConsumerMember:
        """The member one step further."""
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending_revocation
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member with what a record says it wants."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """The member with what a record says it has."""
        known = value.state in MemberState.__members__.values()
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=owned_of(value.assigned_partitions, value.member_epoch),
            pending_revocation=owned_of(value.partitions_pending_revocation, value.member_epoch),
        )


def owned_of(topics: Iterable[CurrentTopicPartitions], default_epoch: int) -> Owned:
    """Partitions of a record, whose epochs Kafka before 4.3 did not write."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [default_epoch] * len(topic.partitions)
        owned[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


class ResolvedRegex(NamedTuple):
    """The topics an expression matches, as of a version of the metadata and a time."""

    topics: frozenset[str]
    version: int
    wall_ms: int


class ConsumerGroup:
    """A group."""

    kind = "consumer"

    def __init__(self, group_id: str) -> None:
        """A group without members."""
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_wall_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self._holders: dict[tuple[bytes, int], str] = {}
        # How many members want what, so that a heartbeat need not look at the others.
        self.name_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.consumer_count = 0
        # Not in the log: the version of the topics that the group has been looked at with, and the epoch that came of it.
        self.seen_topics_version = -1
        self.seen_epoch = FIRST_EPOCH
        # Nor these: the version with which all expressions were found up to date, and when the first of them was looked at.
        self.regexes_version = -1
        self.regexes_wall_ms = 0

    def has_seen_topics(self, version: int) -> bool:
        """Whether the group is up to date with the topics. It is not if the epoch that came of looking could not be written."""
        return self.seen_topics_version == version and self.epoch >= self.seen_epoch

    # ---- replay

    def put_member(self, member: ConsumerMember) -> None:
        """Takes in a member as it is now."""
        before = self.members.get(member.member_id)
        self._release(before)
        self._count(before, member)
        self.members[member.member_id] = member
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self._holders[topic_id, partition] = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        """A member is gone."""
        member = self.members.pop(member_id, None)
        self._release(member)
        self._count(member, None)
        if member is not None and member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _count(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """A member takes another's place, comes or goes."""
        if before is not None and after is not None and before.topic_names == after.topic_names and before.topic_regex == after.topic_regex:
            self.consumer_count += before.uses_classic_protocol - after.uses_classic_protocol
            return
        for member, step in ((before, -1), (after, 1)):
            if member is not None:
                self.consumer_count += step * (not member.uses_classic_protocol)
                _add(self.name_counts, member.topic_names, step)
                if member.topic_regex:
                    _add(self.regex_counts, (member.topic_regex,), step)
                    self.regexes_version = -1

    def _release(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    if self._holders.get((topic_id, partition)) == member.member_id:
                        del self._holders[topic_id, partition]

    # ---- looking

    def holder(self, topic_id: bytes, partition: int) -> str | None:
        """The member that has a partition, or has not given it up yet."""
        return self._holders.get((topic_id, partition))

    def member(self, member_id: str) -> ConsumerMember:
        """A member.

        Raises:
            UnknownMemberId: it is none.
        """
        found = self.members.get(member_id)
        if found is None:
            raise errors.UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member of an instance id."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def wanted(self, gone: Iterable[ConsumerMember] = (), come: ConsumerMember | None = None) -> tuple[set[str], set[str]]:
        """The names of topics and the expressions that members want, without some members and with another one."""
        names, regexes = self.name_counts, self.regex_counts
        gone = list(gone)
        if gone:
            names, regexes = names.copy(), regexes.copy()
            for member in gone:
                _add(names, member.topic_names, -1)
                _add(regexes, (member.topic_regex,) if member.topic_regex else (), -1)
        if come is None:
            return set(names), set(regexes)
        return names.keys() | come.topic_names, regexes.keys() | ({come.topic_regex} if come.topic_regex else set())

    def replaced_by(self, updated: ConsumerMember) -> list[ConsumerMember]:
        """The members in whose place one comes: itself as it was, and the one that had its instance id."""
        previous = self.static_members.get(updated.instance_id) if updated.instance_id is not None else None
        found = (self.members.get(member_id) for member_id in {updated.member_id, previous} if member_id is not None)
        return [member for member in found if member is not None]

    def subscribed_names(self, gone: Iterable[ConsumerMember] = (), come: ConsumerMember | None = None) -> frozenset[str]:
        """The topics that members want, by name and by expression, without some members and with another one."""
        names, regexes = self.wanted(gone, come)
        return frozenset(names.union(*(self.regexes[regex].topics for regex in regexes if regex in self.regexes)))

    def members_with(self, updated: ConsumerMember) -> dict[str, ConsumerMember]:
        """The members as they will be, with one that is changed or new."""
        members = dict(self.members)
        previous = self.static_members.get(updated.instance_id) if updated.instance_id is not None else None
        if previous is not None and previous != updated.member_id:
            members.pop(previous, None)
        members[updated.member_id] = updated
        return members

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str | None:
        """The assignor most members prefer; None if they prefer none."""
        votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else None

    @property
    def state_name(self) -> str:
        """Kafka's name of its state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        """It has no members."""
        return not self.members

    @property
    def listed_protocol_type(self) -> str:
        """What ListGroups tells."""
        return "consumer"

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic: then its offsets stay."""
        return topic in self.name_counts or any(topic in self.regexes[regex].topics for regex in self.regex_counts if regex in self.regexes)

    # ---- what may be done to it

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, is_transactional: bool, version: int = 0
    ) -> Callable[[str, bytes, int], None] | None:
        """Whether offsets may be committed in a member's epoch.

        Returns:
            None if all may; else what decides for one partition (topic, topic id, partition): a member that has gone on in the meantime may
            commit what it had already in the epoch it names, and still has.

        Raises:
            BrokerError: none may.
        """
        if epoch < 0 and not self.members:
            return None
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not is_transactional and not member.uses_classic_protocol and version < 9:
            raise errors.UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch == member.epoch:
            return None
        stale: type[errors.BrokerError] = errors.IllegalGeneration if member.uses_classic_protocol else errors.StaleMemberEpoch
        if epoch > member.epoch:
            raise stale(f"epoch {epoch} is newer than the member's, {member.epoch}")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            since = member.assigned.get(topic_id, {}).get(partition)
            if since is None:
                since = member.pending_revocation.get(topic_id, {}).get(partition)
            if since is None:
                raise stale(f"partition {topic}-{partition} is not assigned to the member, nor pending revocation")
            if epoch < since:
                raise stale(f"partition {topic}-{partition} was assigned in epoch {since}, after {epoch}")

        return check

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether a member may ask for offsets in its epoch; anybody may without one.

        Raises:
            BrokerError: why not.
        """
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            stale: type[errors.BrokerError] = errors.IllegalGeneration if member.uses_classic_protocol else errors.StaleMemberEpoch
            raise stale(f"epoch {epoch} is not the member's, {member.epoch}")

    def validate_offset_delete(self) -> None:
        """Offsets may be deleted; what members read is looked at topic by topic."""

    def validate_delete(self) -> None:
        """Whether the group may be deleted.

        Raises:
            GroupNotEmpty: it has members.
        """
        if self.members:
            raise errors.GroupNotEmpty(f"group {self.group_id} has members")

    def offsets_expire_since(self) -> Callable[[int], int] | None:
        """From when on an offset of a topic that no member reads ages: from its commit."""
        return lambda commit_ms: commit_ms


def _add(counts: Counter[str], keys: Iterable[str], step: int) -> None:
    """Counts up or down; what no member wants is not kept."""
    for key in keys:
        counts[key] += step
        if not counts[key]:
            del counts[key]
