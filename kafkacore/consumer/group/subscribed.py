"""What the leader of a group has before it assigns: the partitions of the topics subscribed to, their racks, and who subscribes to what.

Inside assignors a member is its place in a sorted list and a partition its place in the list of all partitions: small integers, which index
lists and cost no hashing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from operator import itemgetter

from kafkacore._codec import name_partitions, places_of
from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription
from kafkacore.metadata import ClusterSnapshot, PartitionInfo
from kafkacore.types import TopicPartition

Racks = frozenset[str]
_assigned = partial(tuple.__new__, MemberAssignment)  # without the frame of its constructor
_index = itemgetter(PartitionInfo._fields.index("index"))


def by_instance(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """The member ids, static members first and in the order of their instance ids, so that a restart changes nothing for them."""
    return sorted(subscriptions, key=lambda m: ((i := subscriptions[m].group_instance_id) is None, i or "", m))


def partitions_of(cluster: ClusterSnapshot, topic: str) -> list[TopicPartition]:
    """A topic's partitions by their numbers; none while the topic is not known."""
    info = cluster.topics.get(topic)
    if info is None:
        return []
    count = info.partition_count
    has_holes = count > 0 and info.partitions[-1].index != count - 1
    return name_partitions(((topic, map(_index, info.partitions) if has_holes else range(count)),))


class Places:
    """Where partitions stand in the list of all partitions.

    Args:
        topics: whose partitions the list has, one topic after the other.
        begins: the place of the first partition of each topic.
        partitions: the list.
    """

    def __init__(self, topics: Sequence[str], begins: Sequence[int], partitions: Sequence[TopicPartition]) -> None:
        self._spans: dict[str, tuple[int, int]] = {}
        self._others: dict[tuple[str, int], int] = {}
        for topic, (begin, end) in zip(topics, pairwise([*begins, len(partitions)]), strict=True):
            if begin < end and partitions[end - 1].partition == end - begin - 1:
                self._spans[topic] = (begin, end - begin)
            else:  # a topic with holes in its numbering
                self._others.update(zip(partitions[begin:end], range(begin, end), strict=True))

    def of(self, partitions: Iterable[tuple[str, int]]) -> list[int]:
        """The places of these partitions, without those that the list does not have."""
        found = places_of(self._spans, partitions)
        if others := self._others:
            found += [others[pair] for pair in partitions if pair in others]
        return found


def subscribers(members: Sequence[str], subscriptions: Mapping[str, MemberSubscription]) -> dict[str, tuple[int, ...]]:
    """Who subscribes to each topic, as rising places in `members`; topics sorted by name. Equal subscribers are one object."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for place, member in enumerate(members):
        alike.setdefault(subscriptions[member].topics, []).append(place)
    if len(alike) == 1:
        ((topics, _),) = alike.items()
        everybody = tuple(range(len(members)))
        return dict.fromkeys(sorted(topics), everybody)
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for topics, places in alike.items():
        for topic in {*topics}:
            wanted[topic] += places
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[str, tuple[int, ...]] = {}
    for topic in sorted(wanted):
        given = tuple(sorted(wanted[topic]))
        found[topic] = seen.setdefault(given, given)
    return found


def racks_of_members(members: Sequence[str], subscriptions: Mapping[str, MemberSubscription]) -> list[str | None]:
    """Where each member runs; None when it does not say."""
    return [subscriptions[member].rack_id or None for member in members]


def racks_of_partitions(cluster: ClusterSnapshot, topic: str, rack_of: Mapping[int, str] | None = None) -> list[Racks]:
    """The racks of the replicas of each partition; by the racks of the cluster's nodes unless others are given."""
    info = cluster.topics.get(topic)
    if info is None:
        return []
    if rack_of is None:
        rack_of = {node.id: node.rack for node in cluster.node_list if node.rack}
    seen: dict[tuple[int, ...], Racks] = {}
    found: list[Racks] = []
    for partition in info.partitions:
        replicas = tuple(partition.replicas)
        racks = seen.get(replicas)
        if racks is None:
            racks = seen[replicas] = frozenset(rack_of[node] for node in replicas if node in rack_of)
        found.append(racks)
    return found


class WatchedTopics:
    """The topics of a group, as its leader saw them when it assigned: a change of them asks for a rebalance.

    The racks of brokers that are down for a while are remembered, so that a restart changes nothing.

    Args:
        with_racks: the racks of replicas matter to this member (KIP-881).
    """

    def __init__(self, with_racks: bool) -> None:
        self._with_racks = with_racks
        self._rack_of: dict[int, str] = {}
        self._seen: dict[str, tuple[int | None, list[Racks]] | None] = {}

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are watched."""
        return frozenset(self._seen)

    def watch(self, topics: Iterable[str]) -> None:
        """Watches these topics, which were not seen yet."""
        self._seen = dict.fromkeys(topics)

    def unknown(self, cluster: ClusterSnapshot) -> list[str]:
        """The topics that the cluster has not answered about."""
        return [t for t in self._seen if (info := cluster.topics.get(t)) is None or (info.error is not None and info.error.retriable)]

    def note(self, cluster: ClusterSnapshot) -> None:
        """The topics were assigned as they are."""
        self._seen = {topic: self._look(cluster, topic) for topic in self._seen}

    def change(self, cluster: ClusterSnapshot) -> str | None:
        """What is another than it was, None for nothing."""
        unknown = self.unknown(cluster)
        for topic, had in [*self._seen.items()]:
            if topic in unknown:
                continue
            has = self._look(cluster, topic)
            if had is None:  # an assignment that was kept (KIP-814)
                self._seen[topic] = has
            elif has[0] != had[0]:
                return f"topic {topic} has {has[0] or 0} partitions now, it had {had[0] or 0}"
            elif has != had:
                return f"replicas of topic {topic} came to other racks"
        return None

    def _look(self, cluster: ClusterSnapshot, topic: str) -> tuple[int | None, list[Racks]]:
        """How many partitions a topic has, None when it is not known, and the racks of each."""
        if not self._with_racks:
            return cluster.partition_count(topic), []
        for node in cluster.node_list:
            if node.rack:
                self._rack_of[node.id] = node.rack
            else:
                self._rack_of.pop(node.id, None)
        return cluster.partition_count(topic), racks_of_partitions(cluster, topic, self._rack_of)


def racks_matter(member_racks: Iterable[str | None], partition_racks: Sequence[Racks]) -> bool:
    """Some members are nearer to some partitions than to others.

    Source: AbstractPartitionAssignor.useRackAwareAssignment (KIP-881).
    """
    known = {rack for rack in member_racks if rack is not None}
    everywhere = frozenset().union(*{*partition_racks})
    return not known.isdisjoint(everywhere) and any(racks != everywhere for racks in {*partition_racks})


def assignments(members: Sequence[str], found: Sequence[Iterable[TopicPartition]]) -> dict[str, MemberAssignment]:
    """What the members of these places get."""
    return dict(zip(members, map(_assigned, zip(map(tuple, found), repeat(None), strict=False)), strict=True))
