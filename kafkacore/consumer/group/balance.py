"""The best assignment where members subscribe to different topics.

Which partitions a member may get depends on their topic (and how well they suit it, on their racks), so partitions alike form one kind and
are counted; only at the end do counts become partitions. An assignment is a flow from kinds through members, and the best one, by Kafka's
order of aims, is the flow of least cost:

    1. balance: no partition can move, directly or along a chain of members, to a member that has at least two fewer;
    2. racks: as many partitions as can be lie in the rack of their member;
    3. as many as can be stay where they are.

It begins with what members have and gives the rest to those that have least, then shortens chains from the fullest members until there are
none (aim 1), then turns cycles along which partitions change places at a gain (aims 2 and 3). Where there is neither chain nor cycle, no
better flow exists. Kafka's own assignor tries single moves in one order; what it finds is never better.

Source: AbstractStickyAssignor.GeneralAssignmentBuilder says what is wanted; Harvey, Ladner, Lovasz, Tamir: Semi-matchings for bipartite
graphs and load balancing (2006), for why chains are enough; Klein (1967) for cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kafkacore.consumer.group.subscribed import Racks

MAX_REFINE_STEPS = 20_000_000
"""The leader stops looking for cycles after so many steps, some seconds: the assignment is balanced then, but more may move than must."""


def balance(
    wanted: Sequence[tuple[int, ...]],
    begins: Sequence[int],
    total: int,
    owned: Sequence[Sequence[int]],
    member_racks: Sequence[str | None],
    partition_racks: Sequence[Racks],
) -> list[list[int]]:
    """Assigns.

    Args:
        wanted: the subscribers of each topic.
        begins: the first partition of each topic.
        total: of partitions.
        owned: what each member has, no partition twice.
        member_racks: where each member runs.
        partition_racks: where each partition lies; empty when racks do not matter.

    Returns:
        The partitions of each member.
    """
    return _Flow(wanted, begins, total, owned, member_racks, partition_racks).best()


class _Kind:
    """Partitions that are alike: the same members may get them, and they lie in the same racks.

    Attributes:
        members: that may get them.
        far: those of `members` that run elsewhere.
        partitions: of this kind.
        had: the partitions that a member had before.
        counts: how many a member has now.
    """

    __slots__ = ("counts", "far", "had", "members", "partitions")

    def __init__(self, members: tuple[int, ...], far: frozenset[int]) -> None:
        self.members = members
        self.far = far
        self.partitions: list[int] = []
        self.had: dict[int, list[int]] = {}
        self.counts: dict[int, int] = {}


class _Flow:
    """Kinds of partitions, and how many of each every member has."""

    def __init__(
        self,
        wanted: Sequence[tuple[int, ...]],
        begins: Sequence[int],
        total: int,
        owned: Sequence[Sequence[int]],
        member_racks: Sequence[str | None],
        partition_racks: Sequence[Racks],
    ) -> None:
        self._total = total
        self._far_cost = total + 1  # a partition in the wrong rack is worse than any number of moves
        self._loads = [0] * len(owned)
        self._kinds: list[_Kind] = []
        kind_of = self._sort_partitions(wanted, begins, member_racks, partition_racks)
        may = {id(kind.members): frozenset(kind.members) for kind in self._kinds}
        for member, mine in enumerate(owned):
            for partition in mine:
                kind = kind_of[partition]
                if member in may[id(kind.members)]:
                    kind.had.setdefault(member, []).append(partition)

    def _sort_partitions(
        self,
        wanted: Sequence[tuple[int, ...]],
        begins: Sequence[int],
        member_racks: Sequence[str | None],
        partition_racks: Sequence[Racks],
    ) -> list[_Kind]:
        """Finds the kinds.

        Returns:
            The kind of each partition.
        """
        found: dict[tuple[int, Racks], _Kind] = {}
        kind_of: list[_Kind] = []
        nowhere: Racks = frozenset()
        for members, begin, end in zip(wanted, begins, [*begins[1:], self._total], strict=True):
            for partition in range(begin, end):
                racks = partition_racks[partition] if partition_racks else nowhere
                kind = found.get((id(members), racks))
                if kind is None:
                    far = frozenset(m for m in members if (rack := member_racks[m]) is not None and rack not in racks)
                    kind = found[id(members), racks] = _Kind(members, far if partition_racks else frozenset())
                kind.partitions.append(partition)
                kind_of.append(kind)
        # those that few members may get come first: the others can make up for them
        self._kinds = sorted(found.values(), key=lambda kind: (len(kind.members), kind.partitions[0]))
        return kind_of

    def best(self) -> list[list[int]]:
        """The partitions of each member."""
        self._begin()
        self._level()
        self._refine()
        return self._partitions_of_members()

    # -- what members have, and the rest to those that have least -----------------------------------------------------------------

    def _begin(self) -> None:
        loads = self._loads
        for kind in self._kinds:
            some_near = len(kind.far) < len(kind.members)
            for member, mine in kind.had.items():
                if not (some_near and member in kind.far):
                    kind.counts[member] = len(mine)
                    loads[member] += len(mine)
        for kind in self._kinds:
            free = len(kind.partitions) - sum(kind.counts.values())
            if free:
                near = [m for m in kind.members if m not in kind.far] if kind.far else kind.members
                self._fill(kind, near or kind.members, free)

    def _fill(self, kind: _Kind, members: Sequence[int], count: int) -> None:
        """Gives each of `count` partitions to the member that has least."""
        loads, counts = self._loads, kind.counts
        heap = [(loads[member], member) for member in members]
        heapify(heap)
        for _ in range(count):
            load, member = heap[0]
            heapreplace(heap, (load + 1, member))
            counts[member] = counts.get(member, 0) + 1
        for load, member in heap:
            loads[member] = load

    # -- aim 1: chains from full members to members with at least two fewer --------------------------------------------------------

    def _level(self) -> None:
        """Shortens chains until no chain is left, beginning with the fullest member.

        When no chain leaves a member, none will: what can be reached from it has hardly less, and cannot be left. It is not looked at
        again.
        """
        loads = self._loads
        holds: list[set[int]] = [set() for _ in loads]
        for number, kind in enumerate(self._kinds):
            for member, count in kind.counts.items():
                if count:
                    holds[member].add(number)
        closed = bytearray(len(loads))
        closed_kinds = bytearray(len(self._kinds))
        heap = [(-load, member) for member, load in enumerate(loads)]
        heapify(heap)
        least = min(loads, default=0)
        while heap:
            load, member = heap[0]
            if closed[member] or -load != loads[member]:
                heappop(heap)
                continue
            if -load < least + 2:
                return
            chain, seen = self._find_chain(member, holds, closed, closed_kinds)
            if chain:
                self._shift(chain, holds)
                for changed in (member, chain[-1][2]):
                    heappush(heap, (-loads[changed], changed))
            else:
                for reached in seen:
                    closed[reached] = 1
                    for number in holds[reached]:
                        closed_kinds[number] = 1

    def _find_chain(
        self, start: int, holds: Sequence[set[int]], closed: bytearray, closed_kinds: bytearray
    ) -> tuple[list[tuple[int, int, int]], Iterable[int]]:
        """The cheapest chain from a member to a member with at least two fewer; of equal ones, that to the emptiest.

        Returns:
            The chain as (giver, kind, receiver); without such a chain, the members that were reached.
        """
        loads, kinds, far_cost = self._loads, self._kinds, self._far_cost
        enough = loads[start] - 2
        reached_by: dict[int, tuple[int, int]] = {}
        done: set[int] = set()
        entered: dict[tuple[int, bool], int] = {}  # the least cost at which a kind was entered, from a member near to it and from a far one
        heap: list[tuple[int, int, int, int, int]] = [(0, loads[start], start, -1, -1)]
        while heap:
            cost, load, member, number, giver = heappop(heap)
            if member in done:
                continue
            done.add(member)
            reached_by[member] = (number, giver)
            if load <= enough:
                chain = []
                while number >= 0:
                    chain.append((giver, number, member))
                    member = giver
                    number, giver = reached_by[member]
                return chain[::-1], ()
            for number in holds[member]:
                if closed_kinds[number]:
                    continue
                kind = kinds[number]
                is_far = member in kind.far
                there = cost + (kind.counts[member] <= len(kind.had.get(member, ())))
                if there >= entered.get((number, True), there + 1) or there >= entered.get((number, is_far), there + 1):
                    continue
                entered[number, is_far] = there
                for other in kind.members:
                    if other not in done and not closed[other]:
                        further = there + far_cost if not is_far and other in kind.far else there
                        heappush(heap, (further, loads[other], other, number, member))
        return [], done

    def _shift(self, chain: Sequence[tuple[int, int, int]], holds: Sequence[set[int]]) -> None:
        """Moves partitions along a chain, as many as may go at the same cost and bring its ends to the average at most."""
        loads, kinds = self._loads, self._kinds
        start, end = chain[0][0], chain[-1][2]
        average = self._total // len(loads)
        amount = min((loads[start] - loads[end]) // 2, max(1, loads[start] - average - 1), max(1, average - loads[end]))
        for giver, number, receiver in chain:
            kind = kinds[number]
            count, had = kind.counts[giver], len(kind.had.get(giver, ()))
            amount = min(amount, count - had if count > had else count)
            if (lost := len(kind.had.get(receiver, ())) - kind.counts.get(receiver, 0)) > 0:
                amount = min(amount, lost)
        for giver, number, receiver in chain:
            self._move(giver, number, receiver, amount)
            if not kinds[number].counts[giver]:
                holds[giver].discard(number)
            holds[receiver].add(number)
        loads[start] -= amount
        loads[end] += amount

    def _move(self, giver: int, number: int, receiver: int, amount: int) -> None:
        counts = self._kinds[number].counts
        counts[giver] -= amount
        counts[receiver] = counts.get(receiver, 0) + amount

    # -- aims 2 and 3: cycles that gain -------------------------------------------------------------------------------------------

    def _refine(self) -> None:
        """Turns cycles that gain until no such cycle is left."""
        steps = 0
        while steps < MAX_REFINE_STEPS and self._may_gain():
            cycles, took = _Search(self._kinds, self._loads, self._far_cost).cycles()
            steps += took
            if not cycles:
                return
            for cycle in cycles:
                for giver, number, receiver in cycle:
                    if number < 0:  # they change places: the load of one falls by one, that of the other rises
                        self._loads[giver] += 1
                        self._loads[receiver] -= 1
                    else:
                        self._move(giver, number, receiver, 1)

    def _may_gain(self) -> bool:
        """Some member lost a partition that it had, or has a partition of another rack."""
        for kind in self._kinds:
            counts = kind.counts
            if any(counts.get(member, 0) < len(mine) for member, mine in kind.had.items()):
                return True
            if kind.far and any(count and member in kind.far for member, count in counts.items()):
                return True
        return False

    def _partitions_of_members(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self._loads]
        for kind in self._kinds:
            kept: set[int] = set()
            missing: list[tuple[int, int]] = []
            for member in sorted(kind.counts):
                count = kind.counts[member]
                mine = sorted(kind.had.get(member, ()))[:count]
                kept.update(mine)
                found[member] += mine
                if count > len(mine):
                    missing.append((member, count - len(mine)))
            free = iter([p for p in kind.partitions if p not in kept] if kept else kind.partitions)
            while missing:
                still = []
                for (member, count), partition in zip(missing, free, strict=False):
                    found[member].append(partition)
                    if count > 1:
                        still.append((member, count - 1))
                missing = still
        return found


class _Search:
    """Looks for cycles of negative cost, by Bellman and Ford.

    Its nodes are the members, the kinds, and the loads: an edge from a member to a kind takes a partition away, one from a kind to a member
    gives one. A member that gets one more than it gives may change places with a member that has one more now, through the node of its
    load.
    """

    def __init__(self, kinds: Sequence[_Kind], loads: Sequence[int], far_cost: int) -> None:
        self._kinds = kinds
        self._far_cost = far_cost
        self._members = len(loads)
        self._loads = loads
        levels = sorted({*loads})
        first_level = len(loads) + len(kinds)
        self._level_of = {load: first_level + nth for nth, load in enumerate(levels)}
        self._at_level: dict[int, list[int]] = {node: [] for node in self._level_of.values()}
        for member, load in enumerate(loads):
            self._at_level[self._level_of[load]].append(member)
        count = first_level + len(levels)
        self._costs = [0] * count
        self._parents = [-1] * count
        self._holds: list[list[tuple[int, int]]] = [[] for _ in loads]
        self._regain: list[list[int]] = []
        for number, kind in enumerate(kinds):
            counts, had = kind.counts, kind.had
            for member, held in counts.items():
                if held:
                    out = (held > len(had.get(member, ()))) + (far_cost if member in kind.far else 0)
                    self._holds[member].append((len(loads) + number, -out))
            self._regain.append([member for member, mine in had.items() if counts.get(member, 0) < len(mine)])
        self._steps = 0

    def cycles(self) -> tuple[list[list[tuple[int, int, int]]], int]:
        """Cycles that have no node in common.

        Returns:
            Each cycle as (giver, kind, receiver), with kind -1 where the two change places; and how many steps it took.
        """
        active: Iterable[int] = range(len(self._costs))
        while active:
            following: set[int] = set()
            for node in active:
                if node < self._members:
                    self._leave_member(node, following)
                elif node in self._at_level:
                    for member in self._at_level[node]:
                        self._enter(node, member, self._costs[node], following)
                else:
                    self._leave_kind(node, following)
            if following and (found := self._cycles_of_parents()):
                return found, self._steps
            active = sorted(following)
        return [], self._steps

    def _leave_member(self, member: int, following: set[int]) -> None:
        cost = self._costs[member]
        for node, change in self._holds[member]:
            self._enter(member, node, cost + change, following)
        level = self._level_of.get(self._loads[member] + 1)
        if level is not None:
            self._enter(member, level, cost, following)

    def _enter(self, node: int, other: int, cost: int, following: set[int]) -> None:
        self._steps += 1
        if cost < self._costs[other]:
            self._costs[other] = cost
            self._parents[other] = node
            following.add(other)

    def _leave_kind(self, node: int, following: set[int]) -> None:
        number = node - self._members
        kind, cost, far_cost = self._kinds[number], self._costs[node], self._far_cost
        for member in self._regain[number]:
            self._enter(node, member, cost + (far_cost if member in kind.far else 0), following)
        if cost + 1 >= 0:  # no cost is above 0, so this would lower none
            return
        for member in kind.members:
            self._enter(node, member, cost + 1 + (far_cost if member in kind.far else 0), following)

    def _cycles_of_parents(self) -> list[list[tuple[int, int, int]]]:
        """A cycle among the nodes from which costs were lowered has a negative cost."""
        parents = self._parents
        seen = [0] * len(parents)
        found = []
        for start in range(len(parents)):
            node = start
            while node >= 0 and not seen[node]:
                seen[node] = start + 1
                node = parents[node]
            if node >= 0 and seen[node] == start + 1 and parents[node] >= 0:
                nodes = [node]
                at = parents[node]
                while at != node:
                    nodes.append(at)
                    at = parents[at]
                found.append(self._as_moves(nodes[::-1]))
        return found

    def _as_moves(self, nodes: list[int]) -> list[tuple[int, int, int]]:
        """The moves along the nodes of a cycle."""
        while nodes[0] >= self._members:
            nodes.append(nodes.pop(0))
        found = []
        for giver, through, receiver in zip(nodes[::2], nodes[1::2], [*nodes[2::2], nodes[0]], strict=True):
            found.append((giver, -1 if through in self._at_level else through - self._members, receiver))
        return found
