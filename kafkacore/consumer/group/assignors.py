"""The assignors of Kafka's clients that look at no history: range and round robin; and how a setting names assignors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafkacore import errors
from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription, PartitionAssignor
from kafkacore.consumer.group.sticky import CooperativeStickyAssignor, StickyAssignor
from kafkacore.consumer.group.subscribed import (
    Racks,
    assignments,
    by_instance,
    partitions_of,
    racks_matter,
    racks_of_members,
    racks_of_partitions,
    subscribers,
)
from kafkacore.metadata import ClusterSnapshot
from kafkacore.types import TopicPartition


class RangeAssignor(PartitionAssignor):
    """Per topic, a run of neighbouring partitions for each member.

    Topics with as many partitions and the same subscribers are shared out alike, so that partitions of one number come to one member.
    Static members come first, in the order of their instance ids. When members say in which rack they run, and not every rack has a
    replica of every partition, a member gets partitions of its rack first; neither the number of partitions nor what co-partitioned
    topics share changes for that.

    Source: org.apache.kafka.clients.consumer.RangeAssignor; KIP-881 (racks).
    """

    name = "range"

    def assign(self, cluster: ClusterSnapshot, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Shares each topic out among those that subscribe to it."""
        members = by_instance(subscriptions)
        found: list[list[TopicPartition]] = [[] for _ in members]
        racks = racks_of_members(members, subscriptions)
        known = any(racks)
        topics: list[_RangeTopic] = []
        for topic, places in subscribers(members, subscriptions).items():
            partitions = partitions_of(cluster, topic)
            if known and any(racks[place] for place in places):
                topics.append(_RangeTopic(places, partitions, racks_of_partitions(cluster, topic)))
            else:
                topics.append(_RangeTopic(places, partitions, []))
        aware = [t for t in topics if t.racks and racks_matter((racks[place] for place in t.places), t.racks)]
        if aware:
            _match_racks(topics, {id(t) for t in aware}, racks, found)
        for state in topics:
            state.share_out(found)
        if aware:
            for partitions in found:
                partitions.sort()
        return assignments(members, found)


class _RangeTopic:
    """A topic that is being shared out.

    Attributes:
        places: of its subscribers.
        racks: of each partition; empty when no subscriber says where it runs.
        free: a byte for each partition, 1 while no member has it.
        share, extra: every subscriber gets `share` partitions, and `extra` of them one more.
        counts: how many a subscriber has, by place.
    """

    __slots__ = ("counts", "extra", "free", "partitions", "places", "racks", "share")

    def __init__(self, places: tuple[int, ...], partitions: list[TopicPartition], racks: list[Racks]) -> None:
        self.places = places
        self.partitions = partitions
        self.racks = racks
        self.free: bytearray | None = None
        self.share, self.extra = divmod(len(partitions), len(places))
        self.counts: dict[int, int] = {}

    def room(self, place: int) -> int:
        return self.share + (self.extra > 0) - self.counts.get(place, 0)

    def take(self, place: int, partitions: Sequence[int], found: list[list[TopicPartition]]) -> None:
        if self.free is None:
            self.free = bytearray(b"\1" * len(self.partitions))
        for partition in partitions:
            self.free[partition] = 0
            found[place].append(self.partitions[partition])
        before = self.counts.get(place, 0)
        self.counts[place] = before + len(partitions)
        if before <= self.share < before + len(partitions):
            self.extra -= 1

    def share_out(self, found: list[list[TopicPartition]]) -> None:
        """Runs of what is left, in the order of the subscribers."""
        partitions = self.partitions if self.free is None else [p for p, free in zip(self.partitions, self.free, strict=True) if free]
        counts, share, extra, end = self.counts, self.share, self.extra, len(partitions)
        begin = 0
        for place in self.places:
            if begin >= end:
                break
            had = counts.get(place, 0) if counts else 0
            count = share + (extra > 0) - had
            if count <= 0:
                continue
            found[place] += partitions[begin : begin + count]
            begin += count
            if had + count > share:
                extra -= 1


def _match_racks(
    topics: Iterable[_RangeTopic], aware: set[int], racks: Sequence[str | None], found: list[list[TopicPartition]]
) -> None:
    """Hands out what lies in the racks of members, as far as their shares go. Topics alike are handed out together."""
    alike: dict[tuple[tuple[int, ...], int], list[_RangeTopic]] = {}
    for topic in topics:
        if topic.racks:
            alike.setdefault((topic.places, len(topic.partitions)), []).append(topic)
    for states in alike.values():
        if len(states) > 1:
            _match_together(states, racks, found)
        elif id(states[0]) in aware:
            _match_alone(states[0], racks, found)


def _match_together(states: list[_RangeTopic], racks: Sequence[str | None], found: list[list[TopicPartition]]) -> None:
    """Partitions of one number go to the first subscriber that has room and is near to all of them."""
    first = states[0]  # all are in the same state all the time
    waiting: dict[str | None, list[int]] = {}
    for place in reversed(first.places):
        waiting.setdefault(racks[place], []).append(place)
    for partition in range(len(first.partitions)):
        near = frozenset.intersection(*(state.racks[partition] for state in states))
        best: list[int] | None = None
        for rack in (None, *near):
            queue = waiting.get(rack)
            while queue and first.room(queue[-1]) <= 0:  # a member without room never gets room again
                queue.pop()
            if queue and (best is None or queue[-1] < best[-1]):
                best = queue
        if best is not None:
            place = best[-1]
            for state in states:
                state.take(place, (partition,), found)


def _match_alone(state: _RangeTopic, racks: Sequence[str | None], found: list[list[TopicPartition]]) -> None:
    """Each subscriber in turn gets the first partitions that are near to it."""
    near: dict[str | None, list[int]] = {None: [*range(len(state.partitions) - 1, -1, -1)]}
    for partition in near[None]:
        for rack in state.racks[partition]:
            near.setdefault(rack, []).append(partition)
    taken = bytearray(len(state.partitions))
    for place in state.places:
        queue = near.get(racks[place], [])
        room = state.room(place)
        chosen: list[int] = []
        while queue and len(chosen) < room:
            partition = queue.pop()
            if not taken[partition]:
                taken[partition] = 1
                chosen.append(partition)
        if chosen:
            state.take(place, chosen, found)


class RoundRobinAssignor(PartitionAssignor):
    """All partitions of all topics in turn, each to the next member that subscribes to its topic.

    Static members come first, in the order of their instance ids.

    Source: org.apache.kafka.clients.consumer.RoundRobinAssignor.
    """

    name = "roundrobin"

    def assign(self, cluster: ClusterSnapshot, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Goes around the members, topic by topic."""
        members = by_instance(subscriptions)
        found: list[list[TopicPartition]] = [[] for _ in members]
        at = 0
        wanted = subscribers(members, subscriptions)
        for _, alike in groupby(wanted, lambda topic: id(wanted[topic])):
            topics = [*alike]
            partitions = [tp for topic in topics for tp in partitions_of(cluster, topic)]
            if not partitions:
                continue
            places = wanted[topics[0]]
            count = len(places)
            first = bisect_left(places, at) % count
            around = places[first:] + places[:first]
            if len(partitions) <= count:
                for place, partition in zip(around, partitions, strict=False):
                    found[place].append(partition)
            else:
                for nth, place in enumerate(around):
                    found[place] += partitions[nth::count]
            at = around[(len(partitions) - 1) % count] + 1
        return assignments(members, found)


_ASSIGNORS: dict[str, type[PartitionAssignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."


def make_assignors(strategy: Sequence[Any]) -> list[PartitionAssignor]:
    """The assignors that `partition_assignment_strategy` names.

    Args:
        strategy: names, Java's class names, classes derived from `PartitionAssignor`, or instances of such.

    Raises:
        errors.ConfigError: something else, no assignor at all, or two of one name.
    """
    found: dict[str, PartitionAssignor] = {}
    for given in strategy:
        assignor = _make_assignor(given)
        if assignor.name in found:
            raise errors.ConfigError(f"partition_assignment_strategy: {assignor.name!r} is there twice")
        found[assignor.name] = assignor
    if not found:
        raise errors.ConfigError("partition_assignment_strategy names no assignor")
    return [*found.values()]


def _make_assignor(given: Any) -> PartitionAssignor:
    if isinstance(given, str):
        names = {**_ASSIGNORS, **{_JAVA_PACKAGE + kind.__name__: kind for kind in _ASSIGNORS.values()}}
        if given not in names:
            raise errors.ConfigError(f"partition_assignment_strategy: no assignor {given!r}; there are {', '.join(_ASSIGNORS)}")
        return names[given]()
    try:
        made = given() if isinstance(given, type) and issubclass(given, PartitionAssignor) else given
    except TypeError as error:
        raise errors.ConfigError(f"partition_assignment_strategy: {given.__name__} cannot be made without arguments: {error}") from error
    if not isinstance(made, PartitionAssignor):
        raise errors.ConfigError(f"partition_assignment_strategy: {given!r} is no name and no kafkacore.PartitionAssignor")
    if not isinstance(getattr(made, "name", None), str) or not made.name:
        raise errors.ConfigError(f"partition_assignment_strategy: {type(made).__name__} has no name")
    return made
