"""The assignors that know what members have: sticky and cooperative-sticky.

Balance comes first, what lies in a member's rack second, and then as few partitions move as can be.

    constrained   all members want the same topics and racks do not matter, which is the common case: quotas, in linear time
    general       anything else: `balance.py`

Source: org.apache.kafka.clients.consumer.{StickyAssignor, CooperativeStickyAssignor}, internals.AbstractStickyAssignor; KIP-54, KIP-429,
KIP-792 (generations), KIP-881 (racks).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain, compress
from typing import NamedTuple

from kafkacore import errors
from kafkacore._codec import name_partitions
from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription, PartitionAssignor, RebalanceProtocol, by_topic
from kafkacore.consumer.group.balance import balance
from kafkacore.consumer.group.subscribed import (
    Places,
    Racks,
    assignments,
    partitions_of,
    racks_matter,
    racks_of_members,
    racks_of_partitions,
    subscribers,
)
from kafkacore.metadata import ClusterSnapshot
from kafkacore.protocol.stored import CooperativeStickyAssignorUserData, StickyAssignorUserData
from kafkacore.types import ConsumerGroupMetadata, TopicPartition

log = logging.getLogger("kafkacore.consumer")

DEFAULT_GENERATION = -1


class MemberData(NamedTuple):
    """What a member says it has, and since which generation (-1 when it does not say)."""

    partitions: Sequence[tuple[str, int]]
    generation: int


_NOTHING = MemberData((), DEFAULT_GENERATION)


class Owners(NamedTuple):
    """Who has what, by places.

    Attributes:
        owned: what each member has, no partition twice.
        contested: what several say that they have: none of them does.
    """

    owned: list[list[int]]
    contested: set[int]


class AbstractStickyAssignor(PartitionAssignor):
    """What both sticky assignors share: who has what, and the assignment that moves little of it."""

    @abstractmethod
    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """What a member says it has."""

    def assign(self, cluster: ClusterSnapshot, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Balances, and leaves partitions where they are as far as that goes."""
        members = sorted(subscriptions)
        wanted = subscribers(members, subscriptions)
        partitions: list[TopicPartition] = []
        begins: list[int] = []
        for topic in wanted:
            begins.append(len(partitions))
            partitions += partitions_of(cluster, topic)
        claims = [self.member_data(subscriptions[member]) for member in members]
        owners = _settle_claims(members, claims, Places([*wanted], begins, partitions), partitions)
        member_racks = racks_of_members(members, subscriptions)
        partition_racks: list[Racks] = []
        if any(member_racks):
            partition_racks = [racks for topic in wanted for racks in racks_of_partitions(cluster, topic)]
            if not racks_matter(member_racks, partition_racks):
                partition_racks = []
        alike = {id(places): places for places in wanted.values()}
        if not partition_racks and all(len(places) == len(members) for places in alike.values()):
            if not any(owners.owned) and not owners.contested:
                return assignments(members, _deal_to_all(partitions, len(members)))
            given = _Constrained(partitions, owners.owned).assign()
        else:
            given = balance([*wanted.values()], begins, len(partitions), owners.owned, member_racks, partition_racks)
        given = self.hand_out(given, owners)
        return assignments(members, [map(partitions.__getitem__, mine) for mine in given])

    def hand_out(self, given: list[list[int]], owners: Owners) -> list[list[int]]:
        """What members get at once of what they are to have.

        Args:
            given: the partitions of each member.
            owners: who has what.
        """
        return given


class StickyAssignor(AbstractStickyAssignor):
    """As balanced as can be; then partitions stay with the members that had them.

    Members give up everything before they join (the eager protocol), and name their last partitions in their user data.

    Source: org.apache.kafka.clients.consumer.StickyAssignor.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._assigned: tuple[TopicPartition, ...] | None = None
        self._generation = DEFAULT_GENERATION

    def on_assignment(self, assignment: MemberAssignment, metadata: ConsumerGroupMetadata) -> None:
        """Remembers what this member says when it joins the next time."""
        self._assigned = assignment.partitions
        self._generation = metadata.generation_id

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """What this member had in its last generation; nothing before its first."""
        if self._assigned is None:
            return None
        data = StickyAssignorUserData(previous_assignment=by_topic(self._assigned), generation=self._generation)
        return b"".join(data.encode(1))

    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """What the user data says; nothing when it cannot be read."""
        data = subscription.user_data
        if not data:
            return _NOTHING
        for version in (1, 0):
            try:
                found: StickyAssignorUserData = StickyAssignorUserData.plan(version).decode_prefix(data)[0]
            except errors.CorruptDataError as error:
                log.debug("user data of a sticky member, tried as version %d: %s", version, error)
                continue
            return MemberData(name_partitions(found.previous_assignment), found.generation)
        return _NOTHING


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Shares out as `StickyAssignor` does, but members keep their partitions while the group rebalances.

    A partition that goes from one member to another is left out until its owner has given it up; the owner joins again then, and the next
    assignment hands it out.

    Source: org.apache.kafka.clients.consumer.CooperativeStickyAssignor; KIP-429.
    """

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        self._generation = DEFAULT_GENERATION

    def on_assignment(self, assignment: MemberAssignment, metadata: ConsumerGroupMetadata) -> None:
        """Remembers the generation for leaders that look for it in the user data."""
        self._generation = metadata.generation_id

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The generation of the last assignment."""
        return b"".join(CooperativeStickyAssignorUserData(generation=self._generation).encode(0))

    def member_data(self, subscription: MemberSubscription) -> MemberData:
        """What the subscription says; the generation may be in the user data of an older client."""
        generation = subscription.generation_id
        if generation < 0 and subscription.user_data is not None:
            try:
                generation = CooperativeStickyAssignorUserData.plan(0).decode_prefix(subscription.user_data)[0].generation
            except errors.CorruptDataError as error:
                log.debug("user data of a cooperative-sticky member: %s", error)
        return MemberData(subscription.owned_partitions, generation)

    def hand_out(self, given: list[list[int]], owners: Owners) -> list[list[int]]:
        """Leaves out what another member has still to give up, or several say that they have."""
        moving = {*owners.contested}
        for mine, had in zip(given, owners.owned, strict=True):
            if mine[: len(had)] != had:  # most members keep all, in the order in which they said it
                moving.update({*had}.difference(mine))
        return [mine if moving.isdisjoint(mine) else [p for p in mine if p not in moving] for mine in given] if moving else given


def _settle_claims(
    members: Sequence[str], claims: Sequence[MemberData], places: Places, partitions: Sequence[TopicPartition]
) -> Owners:
    """Who has what. A partition that several claim belongs to the member of the newest generation; to no member if there are two of it."""
    owned = [places.of(claim.partitions) if claim.partitions else [] for claim in claims]
    claimants: dict[int, list[int]] = {}
    contested: set[int] = set()
    if len({*chain.from_iterable(owned)}) < sum(map(len, owned)):
        for member, mine in enumerate(owned):
            for partition in dict.fromkeys(mine):
                claimants.setdefault(partition, []).append(member)
    losers: dict[int, set[int]] = {}
    for partition, those in claimants.items():
        if len(those) > 1:
            newest = max(claims[member].generation for member in those)
            winners = [member for member in those if claims[member].generation == newest]
            if len(winners) > 1:
                contested.add(partition)
            for member in those if len(winners) > 1 else {*those}.difference(winners):
                losers.setdefault(member, set()).add(partition)
            log.warning(
                "%s is claimed by %s; %s",
                partitions[partition],
                ", ".join(f"{members[m]} (generation {claims[m].generation})" for m in those),
                f"{members[winners[0]]} has it" if len(winners) == 1 else "none of them has it",
            )
    if claimants:
        owned = [[p for p in dict.fromkeys(mine) if p not in losers.get(member, ())] for member, mine in enumerate(owned)]
    return Owners(owned, contested)


def _deal_to_all(partitions: Sequence[TopicPartition], count: int) -> list[Sequence[TopicPartition]]:
    """What `_Constrained` finds where no member owns anything: all in turn."""
    return [partitions[nth::count] for nth in range(count)]


class _Constrained:
    """All members want the same topics.

    Every member gets the quota `low`, and `extra` of them one more, first those that have so many. What is left over is dealt out in turn
    to those below the quota, then one each to those that stand at it.

    Attributes:
        below: members with less than `low`, each waits for more.
        at_quota: members with exactly `low`, each may get one more.
        extra: how many members may still get one more than `low`.
    """

    def __init__(self, partitions: Sequence[TopicPartition], owned: Sequence[list[int]]) -> None:
        self._partitions = partitions
        self._owned = owned
        self.given: list[list[int]] = []
        self.low, self.extra = divmod(len(partitions), len(owned))
        self.below: list[int] = []
        self.at_quota: list[int] = []

    def assign(self) -> list[list[int]]:
        """The partitions of each member."""
        self._deal_out(self._keep_owned())
        return self.given

    def _keep_owned(self) -> list[int]:
        """Everybody keeps up to its quota.

        Returns:
            The partitions that no member keeps, in the order of topics and numbers.
        """
        low, partitions = self.low, self._partitions
        free = bytearray(b"\1" * len(partitions))
        at_quota = []
        for member, mine in enumerate(self._owned):
            if len(mine) < low:
                kept = [*mine]
                self.below.append(member)
            else:
                count = low
                if len(mine) > low and self.extra:
                    self.extra -= 1
                    count += 1
                elif self.extra:
                    at_quota.append(member)
                # the lowest numbers of all topics, so that what is given up comes from all topics
                kept = sorted(mine, key=lambda p: (partitions[p].partition, p))[:count] if len(mine) > count else [*mine]
            for partition in kept:
                free[partition] = 0
            self.given.append(kept)
        self.at_quota = at_quota if self.extra else []
        return [*compress(range(len(partitions)), free)]

    def _deal_out(self, free: list[int]) -> None:
        """In turn to those below the quota; the rest one each."""
        given, low = self.given, self.low
        at, end = 0, len(free)
        below, at_quota = self.below, self.at_quota
        while below and at < end:
            # so many whole turns go by before a member has enough
            turns = min(low - max(len(given[member]) for member in below), (end - at) // len(below)) or 1
            count = len(below)
            dealt = free[at : at + turns * count]
            at += len(dealt)
            for nth, member in enumerate(below):
                given[member] += dealt[nth::count]
            still: list[int] = []
            for member in below:
                (still if len(given[member]) < low else at_quota).append(member)
            below = still
        for member, partition in zip(at_quota, free[at:], strict=False):
            given[member].append(partition)

