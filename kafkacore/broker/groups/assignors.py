"""The assignors of the broker: uniform and range.

An assignor is a function of the members (what each wants and has) and the sizes of topics. Both are deterministic, and in both a member
gets partitions of topics it subscribes to only, every partition of a subscribed topic goes to exactly one member.

    uniform   balanced over all topics, and moves as little as it can
    range     per topic, so that partitions of one number go together; does not look at what members have

Source: org.apache.kafka.coordinator.group.assignor.{UniformAssignor, RangeAssignor}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkacore.broker.groups.consumer import Partitions


class MemberSpec(NamedTuple):
    """What an assignor knows of a member.

    Attributes:
        topics: the ids of the topics it wants; they exist.
        assigned: what it was to have so far.
        instance_id: of a static member.
    """

    topics: frozenset[bytes]
    assigned: Partitions
    instance_id: str | None = None


Assignment = dict[str, dict[bytes, set[int]]]
Sizes = Mapping[bytes, int]


def uniform(members: Mapping[str, MemberSpec], sizes: Sizes) -> Assignment:
    """Balances over all topics.

    Args:
        members: by id.
        sizes: partitions of each topic that a member wants.

    Returns:
        What each member is to have.
    """
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    if all(spec.topics == topics for spec in members.values()):
        return _uniform_alike(members, topics, sizes)
    return _Balancer(members, sizes).balance()


def _all_partitions(topics: Iterable[bytes], sizes: Sizes) -> list[tuple[bytes, int]]:
    return [(topic, partition) for topic in sorted(topics) for partition in range(sizes[topic])]


def _uniform_alike(members: Mapping[str, MemberSpec], topics: frozenset[bytes], sizes: Sizes) -> Assignment:
    """All want the same: everybody keeps up to a fair share, and the rest fills up who has less."""
    everything = _all_partitions(topics, sizes)
    share, left_over = divmod(len(everything), len(members))
    result: Assignment = {}
    taken: set[tuple[bytes, int]] = set()
    missing: dict[str, int] = {}
    for nth, (member_id, spec) in enumerate(members.items()):
        quota = share + (1 if left_over > 0 else 0)
        keep = [
            at
            for topic in sorted(spec.assigned)
            if topic in topics
            for at in ((topic, partition) for partition in sorted(spec.assigned[topic]))
            if at[1] < sizes[topic] and at not in taken
        ][:quota]
        taken.update(keep)
        result[member_id] = _grouped(keep)
        gap = quota - len(keep)
        if left_over > 0:
            # One more than the share goes to those who have it already, as long as enough others are left to take it.
            if gap > 0 and len(members) - nth > left_over:
                gap -= 1
            else:
                left_over -= 1
        if gap > 0:
            missing[member_id] = gap
    rest = iter([at for at in everything if at not in taken])
    for member_id, gap in missing.items():
        for _, (topic, partition) in zip(range(gap), rest, strict=False):
            result[member_id].setdefault(topic, set()).add(partition)
    return result


def _grouped(partitions: Iterable[tuple[bytes, int]]) -> dict[bytes, set[int]]:
    grouped: dict[bytes, set[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, set()).add(partition)
    return grouped


class _Balancer:
    """Members want different things: keep what is theirs, give the rest to the least loaded who want it, then even out."""

    def __init__(self, members: Mapping[str, MemberSpec], sizes: Sizes) -> None:
        self.members = members
        self.sizes = sizes
        self.order = {member_id: nth for nth, member_id in enumerate(members)}
        self.load = dict.fromkeys(members, 0)
        self.owner: dict[tuple[bytes, int], str] = {}
        self.subscribers: dict[bytes, list[str]] = {}
        for member_id, spec in members.items():
            for topic in spec.topics:
                self.subscribers.setdefault(topic, []).append(member_id)

    def balance(self) -> Assignment:
        for member_id, spec in self.members.items():
            for topic in sorted(spec.assigned.keys() & spec.topics):
                for partition in sorted(spec.assigned[topic]):
                    if partition < self.sizes[topic] and (topic, partition) not in self.owner:
                        self._give(topic, partition, member_id)
        # Where there is least choice first: many partitions for few members.
        topics = sorted(
            self.subscribers, key=lambda topic: (-self.sizes[topic] / len(self.subscribers[topic]), len(self.subscribers[topic]), topic)
        )
        for topic in topics:
            for partition in range(self.sizes[topic]):
                if (topic, partition) not in self.owner:
                    self._give(topic, partition, self._least(topic))
        # Every move lowers the sum of the squared loads, so this ends.
        while sum(self._even_out(topic) for topic in topics):
            pass
        result: Assignment = {member_id: {} for member_id in self.members}
        for (topic, partition), member_id in self.owner.items():
            result[member_id].setdefault(topic, set()).add(partition)
        return result

    def _give(self, topic: bytes, partition: int, member_id: str) -> None:
        before = self.owner.get((topic, partition))
        if before is not None:
            self.load[before] -= 1
        self.owner[topic, partition] = member_id
        self.load[member_id] += 1

    def _least(self, topic: bytes) -> str:
        return min(self.subscribers[topic], key=lambda member_id: (self.load[member_id], self.order[member_id]))

    def _even_out(self, topic: bytes) -> bool:
        moved = False
        while True:
            held: dict[str, int] = {}
            for partition in range(self.sizes[topic]):
                held[self.owner[topic, partition]] = partition
            if not held:
                return moved
            most = max(held, key=lambda member_id: (self.load[member_id], -self.order[member_id]))
            least = self._least(topic)
            if self.load[most] - self.load[least] <= 1:
                return moved
            self._give(topic, held[most], least)
            moved = True


def range_(members: Mapping[str, MemberSpec], sizes: Sizes) -> Assignment:
    """Cuts each topic into as many ranges as members want it: static members first, by instance id, then the others by id.

    Args:
        members: by id.
        sizes: partitions of each topic that a member wants.

    Returns:
        What each member is to have.
    """
    ordered = sorted(members, key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id))
    result: Assignment = {member_id: {} for member_id in ordered}
    for topic in sorted({topic for spec in members.values() for topic in spec.topics}):
        subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
        share, left_over = divmod(sizes[topic], len(subscribers))
        start = 0
        for nth, member_id in enumerate(subscribers):
            stop = start + share + (1 if nth < left_over else 0)
            if stop > start:
                result[member_id][topic] = set(range(start, stop))
            start = stop
    return result


Assignor = Callable[[Mapping[str, MemberSpec], Sizes], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
"""By Kafka's names; the first is the one for groups without a preference."""
DEFAULT_ASSIGNOR = "uniform"
