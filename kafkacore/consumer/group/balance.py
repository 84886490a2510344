"""The best assignment where members subscribe to different topics.

Which partitions a member may get depends on their topic (and how well they suit it, on their racks), so partitions alike form one kind and
are counted; only at the end do counts become partitions. An assignment is a flow from kinds through members, and the best one, by Kafka's
order of aims, is the flow of least cost:

    1. balance: no partition can move, directly or along a chain of members, to a member that has at least two fewer;
       [test_sticky_cannot_be_balanced_further_and_assigns_all]
    2. racks: as many partitions as can be lie in the rack of their member; [test_racks_come_after_balance_and_before_what_members_have]
    3. as many as can be stay where they are. [test_sticky_moves_the_least_of_all_assignments_as_balanced]

It begins with what members have and gives the rest to those that have least, shared out between groups of members alike first. Then it
shortens chains from the fullest members until none is left (aim 1), then turns cycles along which partitions change places at a gain
(aims 2 and 3). Where there is neither chain nor cycle, no better flow exists. Kafka's own assignor tries single moves in one order; what it
finds is never better.

Source: AbstractStickyAssignor.GeneralAssignmentBuilder says what is wanted; Harvey, Ladner, Lovasz, Tamir: Semi-matchings for bipartite
graphs and load balancing (2006), for why chains are enough; Klein (1967) for cycles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

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


_MAX_ROUNDS = 30
_MEMBER, _NEAR, _FAR = range(3)
_NOWHERE: Racks = frozenset()
_NO_MEMBER = -1


class _Kind:
    """Partitions that are alike: the same members may get them, and they lie in the same racks.

    Attributes:
        members: that may get them, rising.
        far: those of `members` that run elsewhere.
        near: those that do not.
        partitions: of this kind.
        had: how many a member had before.
        counts: how many a member has now.
    """

    __slots__ = ("counts", "far", "had", "members", "near", "partitions")

    def __init__(self, members: tuple[int, ...], far: frozenset[int]) -> None:
        self.members = members
        self.far = far
        self.near = tuple(m for m in members if m not in far) if far else members
        self.partitions: list[int] = []
        self.had: dict[int, int] = {}
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
        self._owned = owned
        self._far_cost = total + 1  # a partition in the wrong rack is worse than any number of moves
        self._loads = [0] * len(owned)
        self._kinds: list[_Kind] = []
        self._sort_partitions(wanted, begins, member_racks, partition_racks)
        self._owner = owner = [_NO_MEMBER] * total  # who had a partition and may still have it
        self._losers: set[int] = set()  # members that had a partition and may not or shall not have it any more
        for member, mine in enumerate(owned):
            for partition in mine:
                owner[partition] = member
        may = {id(kind.members): frozenset(kind.members) for kind in self._kinds}
        for kind in self._kinds:
            kind.had = dict(Counter(map(owner.__getitem__, kind.partitions)))
            kind.had.pop(_NO_MEMBER, None)
            if strangers := kind.had.keys() - may[id(kind.members)]:
                self._take_away(kind, dict.fromkeys(strangers, 0))
                for member in strangers:
                    del kind.had[member]

    def _sort_partitions(
        self,
        wanted: Sequence[tuple[int, ...]],
        begins: Sequence[int],
        member_racks: Sequence[str | None],
        partition_racks: Sequence[Racks],
    ) -> None:
        """Finds the kinds."""
        found: dict[int, dict[Racks, _Kind]] = {}
        for members, begin, end in zip(wanted, begins, [*begins[1:], self._total], strict=True):
            alike = found.setdefault(id(members), {})
            if not partition_racks:
                kind = alike.setdefault(_NOWHERE, _Kind(members, frozenset()))
                kind.partitions += range(begin, end)
                continue
            for partition, racks in enumerate(partition_racks[begin:end], begin):
                if racks not in alike:
                    far = frozenset(m for m in members if (rack := member_racks[m]) is not None and rack not in racks)
                    alike[racks] = _Kind(members, far)
                alike[racks].partitions.append(partition)
        # those that few members may get come first: the others can make up for them
        kinds = [kind for alike in found.values() for kind in alike.values() if kind.partitions]
        self._kinds = sorted(kinds, key=lambda kind: (len(kind.near) or len(kind.members), kind.partitions[0]))

    def _take_away(self, kind: _Kind, kept: dict[int, int]) -> None:
        """Leaves members the lowest partitions of those that they had.

        Args:
            kind: of the partitions.
            kept: how many each member keeps; used up.
        """
        owner = self._owner
        self._losers.update(kept)
        for partition in kind.partitions:
            left = kept.get(owner[partition])
            if left:
                kept[owner[partition]] = left - 1
            elif left is not None:
                owner[partition] = _NO_MEMBER

    def best(self) -> list[list[int]]:
        """The partitions of each member."""
        self._begin()
        self._level()
        self._refine()
        return self._partitions_of_members()

    # -- what members have, and the rest to those that have least -----------------------------------------------------------------

    def _begin(self) -> None:
        loads = self._loads
        free: list[int] = []
        for kind in self._kinds:
            if kind.far and kind.near:
                kept = {member: count for member, count in kind.had.items() if member not in kind.far}
            else:
                kept = kind.had.copy()
            kind.counts = kept
            for member, count in kept.items():
                loads[member] += count
            free.append(len(kind.partitions) - sum(kept.values()))
        if sum(free) < len(loads) or not self._fill_groups(free):
            for kind, count in zip(self._kinds, free, strict=True):
                if count:
                    self._fill(kind, kind.near or kind.members, count)

    def _fill_groups(self, free: Sequence[int]) -> bool:
        """Gives what is free to groups of members that are near to the same kinds, so that all groups have as much, and in each group to
        those that have least. That leaves few chains to find.

        A kind after the other is shared out again, given the shares of the others, until nothing changes: what is minimized is convex, so
        that this comes to its minimum.

        Args:
            free: how many partitions of each kind.

        Returns:
            False, and nothing is given, where there are few members in a group.
        """
        loads = self._loads
        near_to: list[list[int]] = [[] for _ in loads]
        for number, kind in enumerate(self._kinds):
            for member in kind.near or kind.members:
                near_to[member].append(number)
        found: dict[tuple[int, ...], list[int]] = {}
        for member, numbers in enumerate(near_to):
            found.setdefault(tuple(numbers), []).append(member)
        if len(found) * 8 > len(loads):
            return False
        groups = [*found.values()]
        sizes = [*map(len, groups)]
        totals: list[float] = [sum(map(loads.__getitem__, group)) for group in groups]
        open_to = [[nth for nth, numbers in enumerate(found) if number in numbers] for number in range(len(self._kinds))]
        shares: list[list[float]] = [[0.0] * len(those) for those in open_to]
        for _ in range(_MAX_ROUNDS):
            most = 0.0
            for those, count, before in zip(open_to, free, shares, strict=True):
                for nth, share in zip(those, before, strict=True):
                    totals[nth] -= share
                level = _level_of([(totals[nth] / sizes[nth], sizes[nth]) for nth in those], count)
                for at, nth in enumerate(those):
                    share = max(0.0, level * sizes[nth] - totals[nth])
                    most = max(most, abs(share - before[at]))
                    before[at] = share
                    totals[nth] += share
            if most < 0.5:
                break
        for kind, those, count, wanted in zip(self._kinds, open_to, free, shares, strict=True):
            given, due = 0, 0.0
            for nth, share in zip(those, wanted, strict=True):
                due += share
                part = round(due) - given if nth != those[-1] else count - given
                given += part
                if part:
                    self._fill(kind, groups[nth], part)
        return True

    def _fill(self, kind: _Kind, members: Sequence[int], count: int) -> None:
        """Gives each of `count` partitions to the member that has least."""
        loads, counts = self._loads, kind.counts
        ordered = sorted(members, key=loads.__getitem__)
        has, filled = 0, 0
        for filled, member in enumerate(ordered):  # the first `filled` come to the load of this one
            if filled and loads[member] * filled - has >= count:
                break
            has += loads[member]
        else:
            filled = len(ordered)
        level, more = divmod(has + count, filled)
        for member in ordered[:filled]:
            load = level + 1 if more > 0 else level
            more -= 1
            if load > loads[member]:
                counts[member] = counts.get(member, 0) + load - loads[member]
                loads[member] = load

    # -- aim 1: chains from full members to members with at least two fewer --------------------------------------------------------

    def _level(self) -> None:
        """Shortens chains until no chain is left, beginning with the fullest member.

        When no chain leaves a member, none will: what can be reached from it has hardly less, and cannot be left. It and the kinds on its
        ways are not looked at again.
        """
        loads = self._loads
        least = min(loads, default=0)
        if max(loads, default=0) < least + 2:
            return
        holds: list[set[int]] = [set() for _ in loads]
        for number, kind in enumerate(self._kinds):
            for member, count in kind.counts.items():
                if count:
                    holds[member].add(number)
        closed = bytearray(len(loads))
        closed_kinds = bytearray(len(self._kinds))
        heap = [(-load, member) for member, load in enumerate(loads)]
        heapify(heap)
        while heap:
            load, member = heap[0]
            if closed[member] or -load != loads[member]:
                heappop(heap)
                continue
            if -load < least + 2:
                return
            chain, entered = self._find_chain(member, holds, closed, closed_kinds)
            if chain:
                self._shift(chain, holds)
                for changed in (member, chain[-1][2]):
                    heappush(heap, (-loads[changed], changed))
            else:
                closed[member] = 1
                for number in entered:
                    closed_kinds[number] = 1

    def _find_chain(
        self, start: int, holds: Sequence[set[int]], closed: bytearray, closed_kinds: bytearray
    ) -> tuple[list[tuple[int, int, int]], Iterable[int]]:
        """The cheapest chain from a member to a member with at least two fewer; of equal ones, that to the emptiest.

        Members of a kind are looked at only when no chain has ended at their cost, and only those that lead to further kinds.

        Returns:
            The chain as (giver, kind, receiver); without such a chain, the kinds that were entered.
        """
        loads, kinds, far_cost = self._loads, self._kinds, self._far_cost
        enough = loads[start] - 2
        reached_by: dict[int, tuple[int, int]] = {}
        entered: dict[tuple[int, bool], int] = {}  # the least cost at which a kind was entered, from a member near to it and from a far one
        # cost, what is looked at; of a member: its load, itself, and the kind and giver that lead to it; of a kind's members: kind, giver
        heap: list[tuple[int, int, int, int, int, int]] = [(0, _MEMBER, loads[start], start, -1, -1)]
        while heap:
            cost, what, load, member, number, giver = heappop(heap)
            if what != _MEMBER:
                kind = kinds[number]
                later = cost + 1
                further = {
                    n
                    for n, other in enumerate(kinds)
                    if not closed_kinds[n]
                    and entered.get((n, True), later) > cost
                    and (other.far or entered.get((n, False), later) > cost)
                }
                if further:
                    for receiver in kind.near if what == _NEAR else kind.far:
                        if not closed[receiver] and receiver not in reached_by and not further.isdisjoint(holds[receiver]):
                            heappush(heap, (cost, _MEMBER, loads[receiver], receiver, number, giver))
                continue
            if member in reached_by:
                continue
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
                there = cost + (kind.counts[member] <= kind.had.get(member, 0))
                if there >= entered.get((number, True), there + 1) or there >= entered.get((number, is_far), there + 1):
                    continue
                entered[number, is_far] = there
                for what, members, at in ((_NEAR, kind.near, there), (_FAR, kind.far, there if is_far else there + far_cost)):
                    if members:
                        receiver = min(members, key=loads.__getitem__)
                        if loads[receiver] <= enough:
                            heappush(heap, (at, _MEMBER, loads[receiver], receiver, number, member))
                        heappush(heap, (at, what, 0, 0, number, member))
        return [], [number for number, _ in entered]

    def _shift(self, chain: Sequence[tuple[int, int, int]], holds: Sequence[set[int]]) -> None:
        """Moves partitions along a chain, as many as may go at the same cost and bring its ends to the average at most."""
        loads, kinds = self._loads, self._kinds
        start, end = chain[0][0], chain[-1][2]
        average = self._total // len(loads)
        amount = min(max(1, loads[start] - average - 1), max(1, average - loads[end]))
        for giver, number, receiver in chain:
            kind = kinds[number]
            count, had = kind.counts[giver], kind.had.get(giver, 0)
            amount = min(amount, count - had if count > had else count)
            if (lost := kind.had.get(receiver, 0) - kind.counts.get(receiver, 0)) > 0:
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
            if any(counts.get(member, 0) < had for member, had in kind.had.items()):
                return True
            if kind.far and any(count and member in kind.far for member, count in counts.items()):
                return True
        return False

    def _partitions_of_members(self) -> list[list[int]]:
        """What they keep, in the order in which it was given, and then what they get."""
        owner, losers = self._owner, self._losers
        given: list[tuple[list[tuple[int, int]], list[int]]] = []
        for kind in self._kinds:
            counts, had = kind.counts, kind.had
            missing = [(member, count - before) for member, count in counts.items() if count > (before := had.get(member, 0))]
            if missing:  # else nothing comes from any other member, either
                if sum(count for _, count in missing) > len(kind.partitions) - sum(had.values()):
                    self._take_away(kind, {m: kept for m, before in had.items() if (kept := counts.get(m, 0)) < before})
                given.append((missing, [p for p in kind.partitions if owner[p] == _NO_MEMBER]))
        found = [
            [p for p in mine if owner[p] == member] if member in losers else [*mine] for member, mine in enumerate(self._owned)
        ]
        for missing, free in given:
            _deal(missing, free, found)
        return found


def _deal(missing: list[tuple[int, int]], free: Sequence[int], found: Sequence[list[int]]) -> None:
    """In turn to each member, as many as it misses."""
    at = 0
    while missing:
        turns, count = min(n for _, n in missing), len(missing)
        dealt = free[at : at + turns * count]
        at += turns * count
        for nth, (member, _) in enumerate(missing):
            found[member] += dealt[nth::count]
        missing = [(member, n - turns) for member, n in missing if n > turns]


def _level_of(groups: Sequence[tuple[float, int]], count: float) -> float:
    """How high water stands when so much is poured over these grounds.

    Args:
        groups: height and width of each.
        count: how much.
    """
    width, held, level = 0, 0.0, 0.0
    for height, more in sorted(groups):
        if width and height * width - held >= count:
            break
        width += more
        held += height * more
        level = (held + count) / width
    return level


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
                    out = (held > had.get(member, 0)) + (far_cost if member in kind.far else 0)
                    self._holds[member].append((len(loads) + number, -out))
            self._regain.append([member for member, before in had.items() if counts.get(member, 0) < before])
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
