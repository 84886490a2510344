"""The assignors of the broker: uniform and range.

An assignor is a function of the members (what each wants and has) and the sizes of topics. Both are deterministic, and in both a member
gets partitions of topics it subscribes to only, every partition of a subscribed topic goes to exactly one member.

    uniform   balanced over all topics, and moves as little as it can
    range     per topic, so that partitions of one number go together; does not look at what members have

Source: org.apache.kafka.coordinator.group.assignor.{UniformAssignor, RangeAssignor}.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Set
from heapq import heapify, heappop, heappush, heapreplace
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


Assignment = dict[str, Mapping[bytes, Set[int]]]
Sizes = Mapping[bytes, int]
MAX_ROUNDS = 16
"""How often all topics are evened out, where members want different ones. Source: UniformHeterogeneousAssignmentBuilder."""


def uniform(members: Mapping[str, MemberSpec], sizes: Sizes) -> Assignment:
    """Balances over all topics.

    Args:
        members: by id.
        sizes: partitions of each topic that a member wants.

    Returns:
        What each member is to have: for a member that keeps all it has, its own `assigned`.
    """
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    if all(spec.topics is topics or spec.topics == topics for spec in members.values()):
        return _uniform_alike(members, topics, sizes)
    return _Balancer(members, sizes).balance()


def _uniform_alike(members: Mapping[str, MemberSpec], topics: frozenset[bytes], sizes: Sizes) -> Assignment:
    """All want the same: everybody keeps up to a fair share, and the rest fills up who has less."""
    free = {topic: set(range(sizes[topic])) for topic in sorted(topics)}
    share, left_over = divmod(sum(map(len, free.values())), len(members))
    result: Assignment = {}
    missing: dict[str, int] = {}
    for nth, (member_id, spec) in enumerate(members.items()):
        quota = share + (1 if left_over > 0 else 0)
        kept, count = _keep(spec.assigned, free, quota)
        result[member_id] = kept
        gap = quota - count
        if left_over > 0:
            # One more than the share goes to those who have it already, as long as enough others are left to take it.
            if gap > 0 and len(members) - nth > left_over:
                gap -= 1
            else:
                left_over -= 1
        if gap > 0:
            missing[member_id] = gap
    rest = ((topic, partition) for topic, partitions in free.items() for partition in sorted(partitions))
    for member_id, gap in missing.items():
        filled = {topic: set(partitions) for topic, partitions in result[member_id].items()}
        for _, (topic, partition) in zip(range(gap), rest, strict=False):
            filled.setdefault(topic, set()).add(partition)
        result[member_id] = filled
    return result


def _keep(assigned: Partitions, free: Mapping[bytes, set[int]], quota: int) -> tuple[Mapping[bytes, Set[int]], int]:
    """Takes what a member keeps out of what is free: the first of what it has, and how many that are; what it has itself if that is all."""
    count = 0
    for topic, partitions in assigned.items():
        count += len(partitions)
        room = free.get(topic)
        if room is None or count > quota or not partitions <= room:
            break
    else:
        for topic, partitions in assigned.items():
            free[topic].difference_update(partitions)
        return assigned, count
    kept: dict[bytes, set[int]] = {}
    count = 0
    for topic in sorted(assigned.keys() & free.keys()):
        some = sorted(assigned[topic] & free[topic])[: quota - count]
        if some:
            kept[topic] = set(some)
            free[topic].difference_update(some)
            count += len(some)
    return kept, count


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
            least = [(self.load[member_id], self.order[member_id], member_id) for member_id in self.subscribers[topic]]
            heapify(least)
            for partition in range(self.sizes[topic]):
                if (topic, partition) not in self.owner:
                    load, order, member_id = least[0]
                    self._give(topic, partition, member_id)
                    heapreplace(least, (load + 1, order, member_id))
        # Every move lowers the sum of the squared loads.
        for _ in range(MAX_ROUNDS):
            if not sum([self._even_out(topic) for topic in topics]):
                break
        result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self.members}
        for (topic, partition), member_id in self.owner.items():
            result[member_id].setdefault(topic, set()).add(partition)
        return dict(result)

    def _give(self, topic: bytes, partition: int, member_id: str) -> None:
        before = self.owner.get((topic, partition))
        if before is not None:
            self.load[before] -= 1
        self.owner[topic, partition] = member_id
        self.load[member_id] += 1

    def _even_out(self, topic: bytes) -> bool:
        """Moves partitions of a topic from who has most to who has least in all, until they differ by one.

        Both are on heaps. An entry with a load that is no longer true is passed over: the member has another one.
        """
        held: dict[str, list[int]] = {}
        for partition in range(self.sizes[topic]):
            held.setdefault(self.owner[topic, partition], []).append(partition)
        if not held:
            return False
        load, order = self.load, self.order
        most = [(-load[member_id], order[member_id], member_id) for member_id in held]
        least = [(load[member_id], order[member_id], member_id) for member_id in self.subscribers[topic]]
        if -min(most)[0] - min(least)[0] <= 1:
            return False
        heapify(most)
        heapify(least)
        while True:
            while most and (-most[0][0] != load[most[0][2]] or not held[most[0][2]]):
                heappop(most)
            while least[0][0] != load[least[0][2]]:
                heappop(least)
            giver, taker = most[0][2], least[0][2]
            if load[giver] - load[taker] <= 1:
                return True
            partition = held[giver].pop()
            self._give(topic, partition, taker)
            insort(held.setdefault(taker, []), partition)
            for member_id in (giver, taker):
                heappush(most, (-load[member_id], order[member_id], member_id))
                heappush(least, (load[member_id], order[member_id], member_id))


def range_(members: Mapping[str, MemberSpec], sizes: Sizes) -> Assignment:
    """Cuts each topic into as many ranges as members want it: static members first, by instance id, then the others by id.

    Args:
        members: by id.
        sizes: partitions of each topic that a member wants.

    Returns:
        What each member is to have.
    """
    ordered = sorted(members, key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id))
    result: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in ordered}
    for topic in sorted({topic for spec in members.values() for topic in spec.topics}):
        subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
        share, left_over = divmod(sizes[topic], len(subscribers))
        start = 0
        for nth, member_id in enumerate(subscribers):
            stop = start + share + (1 if nth < left_over else 0)
            if stop > start:
                result[member_id][topic] = set(range(start, stop))
            start = stop
    return dict(result)


Assignor = Callable[[Mapping[str, MemberSpec], Sizes], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
"""By Kafka's names; the first is the one for groups without a preference."""
DEFAULT_ASSIGNOR = "uniform"
