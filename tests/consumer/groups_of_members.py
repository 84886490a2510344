"""Random groups for tests of assignors, and what an assignment is worth."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription
from kafkacore.metadata import ClusterSnapshot, PartitionInfo, TopicInfo
from kafkacore.types import Node, TopicPartition

NODES = 6


class Worth(NamedTuple):
    """How good an assignment is, most important first; less is better.

    Attributes:
        unbalanced: the differences between the numbers of partitions of all pairs of members (Kafka's balance score).
        far: partitions with no replica in their member's rack; 0 where racks do not matter.
        moved: partitions that their member did not have before.
    """

    unbalanced: int
    far: int
    moved: int


class Group(NamedTuple):
    """A cluster and the subscriptions of a group's members."""

    cluster: ClusterSnapshot
    subscriptions: dict[str, MemberSubscription]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that have to be assigned, sorted."""
        wanted = {topic for subscription in self.subscriptions.values() for topic in subscription.topics}
        return sorted(TopicPartition(t, p.index) for t in wanted if t in self.cluster.topics for p in self.cluster.topics[t].partitions)

    def racks(self, partition: TopicPartition) -> frozenset[str]:
        """Where the replicas of a partition are."""
        info = self.cluster.partition(partition)
        assert info is not None
        return frozenset(rack for node in info.replicas if (rack := self.cluster.nodes[node].rack))

    @property
    def racks_matter(self) -> bool:
        """KIP-881: some racks of members have replicas, and not every rack has all of them."""
        of_partitions = [self.racks(tp) for tp in self.partitions]
        everywhere = frozenset().union(*of_partitions)
        of_members = {s.rack_id for s in self.subscriptions.values()} - {None}
        return bool(of_members & everywhere) and any(racks != everywhere for racks in of_partitions)

    def worth(self, assigned: Mapping[str, Iterable[TopicPartition]], owned: Mapping[str, Sequence[TopicPartition]]) -> Worth:
        """Args:
        assigned: the partitions of each member.
        owned: what each had before.
        """
        found = {member: [*partitions] for member, partitions in assigned.items()}
        far = 0
        if self.racks_matter:
            for member, partitions in found.items():
                rack = self.subscriptions[member].rack_id
                far += rack is not None and sum(rack not in self.racks(tp) for tp in partitions)
        moved = sum(len({*partitions} - {*owned.get(member, ())}) for member, partitions in found.items())
        return Worth(sum(abs(a - b) for a, b in itertools.combinations(map(len, found.values()), 2)), far, moved)

    def best(self, owned: Mapping[str, Sequence[TopicPartition]]) -> Worth:
        """The best of all assignments, found by trying all of them."""
        partitions = self.partitions
        choices = [[m for m, s in self.subscriptions.items() if tp.topic in s.topics] for tp in partitions]
        worths = []
        for chosen in itertools.product(*choices):
            found: dict[str, list[TopicPartition]] = {member: [] for member in self.subscriptions}
            for tp, member in zip(partitions, chosen, strict=True):
                found[member].append(tp)
            worths.append(self.worth(found, owned))
        return min(worths)


def make_cluster(rng: random.Random, sizes: Mapping[str, int], racks: int = 0) -> ClusterSnapshot:
    """Topics of these sizes on six brokers, two replicas for each partition."""
    nodes = {i: Node(i, "h", 1, f"r{i % racks}" if racks else None) for i in range(NODES)}
    topics = {
        name: TopicInfo(name, partitions=[PartitionInfo(i, 0, 0, rng.sample(range(NODES), 2)) for i in range(count)])
        for name, count in sizes.items()
    }
    return ClusterSnapshot(nodes, topics=topics)


def make_group(
    rng: random.Random,
    *,
    members: int = 8,
    topics: int = 5,
    partitions: int = 12,
    racks: bool = False,
    static: bool = True,
    alike: bool | None = None,
    total: int | None = None,
) -> Group:
    """A random group.

    Args:
        rng: decides.
        members, topics, partitions: at most so many; partitions of one topic.
        racks: brokers, and most members, are in racks.
        static: some members are.
        alike: all want the same topics; None: perhaps.
        total: partitions of all topics at most.
    """
    names = [f"t{i}" for i in range(rng.randint(1, topics))]
    sizes = {name: rng.randint(1, partitions) for name in names}
    while total is not None and sum(sizes.values()) > total:
        sizes[max(sizes, key=sizes.__getitem__)] -= 1
    rack_count = rng.randint(2, 4) if racks else 0
    cluster = make_cluster(rng, {name: size for name, size in sizes.items() if size}, rack_count)
    everything = tuple(rng.sample(names, rng.randint(1, len(names))))
    together = rng.random() < 0.4 if alike is None else alike
    subscriptions = {}
    for member in rng.sample(range(100), rng.randint(1, members)):
        mine = everything if together else tuple(rng.sample(names, rng.randint(1, len(names))))
        subscriptions[f"m{member}"] = MemberSubscription(
            mine,
            group_instance_id=f"i{rng.randrange(10**6)}" if static and rng.random() < 0.3 else None,
            rack_id=f"r{rng.randrange(rack_count + 1)}" if racks and rng.random() < 0.9 else None,
        )
    return Group(cluster, subscriptions)


def partitions_by_member(assignments: Mapping[str, MemberAssignment]) -> dict[str, tuple[TopicPartition, ...]]:
    return {member: assignment.partitions for member, assignment in assignments.items()}
