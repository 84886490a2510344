"""What the members of a consumer group did, and whether a group that keeps its promises could have done it.

Members note what they were given, shown, have processed and commit; `History.check` judges that with the rest:

    history = History()
    group = GroupHistory(history)
    member = group.member("member-1")
    member.assigned([("t", 0)])                            # in the listener, as everything about partitions
    member.polled("t", 0, [(record.offset, record.value) for record in records])
    member.processed("t", 0, records[-1].offset + 1)       # when the application is done with them
    commit = member.commit({("t", 0): records[-1].offset + 1})     # before the client is called
    consumer.commit()
    commit.taken()
    member.revoked([("t", 0)])                             # last in the listener: after what it commits

Rules, beside those of history.py:

1. An ownership is the time between `assigned` and `revoked` or `lost`, as the member sees it. Within one a member's offsets rise, and
   nothing between the first and the last is left out. Two members may own a partition at a time: one was expelled and does not know it yet.
   [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
2. At-least-once: where an ownership begins, and what is committed, lies behind nothing that no member has processed.
   [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
3. A member that another one has followed in a partition commits there no longer: the coordinator refuses it.
   [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
4. A commit without `taken` may have been taken or not. What a client commits by itself is noted when it is seen (`GroupHistory.committed`).
   [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
5. The group begins at the start of the log; seeks are not noted, so there must be none.
   [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
6. A topic that is deleted and created again is two topics: they are noted under two names, and `deleted` ends the first. What nobody had
   processed of it is lost with it. [test_every_fault_planted_in_a_group_is_found_and_nothing_else]
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping

from kafkacore.errors import UsageError
from kafkacore.testing.history import Finding, History, Kind, Place, Reader, Run, Send

__all__ = ["Commit", "GroupHistory", "Member"]


class _Ownership:
    """A partition in one member's hands."""

    __slots__ = ("begun_at", "ended_at", "member", "processed", "run")

    def __init__(self, member: str, begun_at: int, run: Run) -> None:
        self.member = member
        self.run = run
        self.begun_at = begun_at
        self.ended_at: float = math.inf
        self.processed: list[tuple[int, int]] = []  # when, and below which offset


class Commit:
    """A commit on its way; made by `Member.commit`."""

    __slots__ = ("_history", "called_at", "member", "offsets", "owned", "was_taken")

    def __init__(self, history: History, member: str, offsets: Mapping[Place, int], owned: Mapping[Place, _Ownership]) -> None:
        self._history = history
        self.member = member
        self.offsets = dict(offsets)
        self.owned = {place: owned[place] for place in offsets if place in owned}
        self.called_at = history.tick()
        self.was_taken = False

    def taken(self) -> None:
        """Notes that the commit succeeded."""
        self.was_taken = True


class Member:
    """One member of the group; made by `GroupHistory.member`. What the client calls from one thread may be noted from that thread only."""

    def __init__(self, group: GroupHistory, name: str, reader: Reader) -> None:
        self.name = name
        self._group = group
        self._reader = reader
        self._owned: dict[Place, _Ownership] = {}

    def assigned(self, partitions: Iterable[Place]) -> None:
        """Notes that the member owns these partitions from now on, beside those that it has.

        Raises:
            UsageError: it owns one of them already.
        """
        for topic, partition in partitions:
            if (topic, partition) in self._owned:
                raise UsageError(f"{self.name} is assigned {topic}-{partition}, which it owns")
            run = self._reader.positioned(topic, partition)
            self._owned[topic, partition] = self._group._owns((topic, partition), self.name, run)

    def revoked(self, partitions: Iterable[Place]) -> None:
        """Notes that the member gives these partitions up.

        Raises:
            UsageError: it does not own one of them.
        """
        for topic, partition in partitions:
            if (topic, partition) not in self._owned:
                raise UsageError(f"{self.name} gives up {topic}-{partition}, which it does not own")
            self._owned.pop((topic, partition)).ended_at = self._group.history.tick()
            self._reader.left(topic, partition)

    lost = revoked
    """Notes that the member was expelled, and these partitions may be another's by now."""

    def polled(self, topic: str, partition: int, records: Iterable[tuple[int, Hashable]]) -> None:
        """Notes what a poll returned; see `Reader.polled`."""
        rows = list(records)
        self._reader.polled(topic, partition, rows)
        if rows and (topic, partition) not in self._owned:
            detail = f"{self.name} was shown it, and no longer owns the partition, or not yet"
            self._group._unowned.append(Finding(Kind.UNOWNED, topic, partition, *rows[0], detail))

    def processed(self, topic: str, partition: int, offset: int) -> None:
        """Notes that the application is done with what it was shown below an offset, since the partition was assigned."""
        ownership = self._owned.get((topic, partition))
        if ownership is not None:
            ownership.processed.append((self._group.history.tick(), offset))

    def commit(self, offsets: Mapping[Place, int]) -> Commit:
        """Notes that offsets are about to be committed."""
        return self._group._commits(Commit(self._group.history, self.name, offsets, self._owned))


class GroupHistory:
    """The members of one group, and its checker, which `History.check` calls.

    Args:
        history: where the records come from.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._ownerships: dict[Place, list[_Ownership]] = defaultdict(list)
        self._commit_calls: list[Commit] = []
        self._seen: dict[Place, list[tuple[int, int]]] = defaultdict(list)  # when, and which offset was found committed
        self._unowned: list[Finding] = []
        self._drained_at: int | None = None
        self._deleted: set[str] = set()
        history.judge(self._findings)

    def member(self, name: str, read_committed: bool = False) -> Member:
        """A recorder for one member; one that leaves and joins with another consumer is another one.

        Raises:
            UsageError: the name is in use.
        """
        return Member(self, name, self.history.reader(name, read_committed))

    def committed(self, topic: str, partition: int, offset: int) -> None:
        """Notes that an offset was found committed."""
        self._seen[topic, partition].append((self.history.tick(), offset))

    def drained(self) -> None:
        """Notes that the group has nothing left to read: all that was acknowledged before must have been processed."""
        self._drained_at = self.history.tick()

    def deleted(self, topic: str) -> None:
        """Notes that a topic is about to be deleted, under the name that only this one has."""
        self._deleted.add(topic)

    def _owns(self, place: Place, member: str, run: Run) -> _Ownership:
        ownership = _Ownership(member, self.history.tick(), run)
        self._ownerships[place].append(ownership)
        return ownership

    def _commits(self, commit: Commit) -> Commit:
        self._commit_calls.append(commit)
        return commit

    def _findings(self) -> list[Finding]:
        sends: dict[Place, list[Send]] = defaultdict(list)
        for send in self.history.sends:
            if send.partition is not None and send.acked_at is not None and send.offset >= 0 and send.transaction is None:
                sends[send.topic, send.partition].append(send)
        commits: dict[Place, list[Commit]] = defaultdict(list)
        for commit in self._commit_calls:
            for place in commit.offsets:
                commits[place].append(commit)
        found = list(self._unowned)
        for place in sorted(sends.keys() | self._ownerships.keys() | commits.keys()):
            ownerships = self._ownerships.get(place, [])
            found += _unfenced(place, ownerships, commits[place])
            passed = _Passed(place, ownerships, sends[place])
            for ownership in ownerships:
                if ownership.run.offsets:
                    passed.look(ownership.run.offsets[0], ownership.run.at[0], f"{ownership.member} began at")
            for commit in commits[place]:
                passed.look(commit.offsets[place], commit.called_at, f"{commit.member} committed")
            for at, offset in self._seen.get(place, []):
                passed.look(offset, at, "the group had committed")
            if self._drained_at is not None and place[0] not in self._deleted:
                end = max((send.offset + 1 for send in sends[place] if (send.acked_at or 0) < self._drained_at), default=0)
                passed.look(end, self._drained_at, "the group had nothing left to read below")
            found += passed.found
        return found


def _unfenced(place: Place, ownerships: list[_Ownership], commits: list[Commit]) -> list[Finding]:
    """Rule 3."""
    found = []
    for commit in commits:
        own = commit.owned.get(place)
        if not commit.was_taken or own is None:
            continue
        for other in ownerships:
            if other.member != commit.member and own.begun_at < other.begun_at < commit.called_at < other.ended_at:
                detail = f"{commit.member} committed it, and {other.member} had the partition by then"
                found.append(Finding(Kind.UNFENCED, *place, commit.offsets[place], None, detail))
    return found


class _Passed:
    """Rule 2 in one partition: which records the group went past before a member had processed them."""

    def __init__(self, place: Place, ownerships: list[_Ownership], sends: list[Send]) -> None:
        self.place = place
        self.found: list[Finding] = []
        self.values: dict[int, Hashable] = {send.offset: send.value for send in sends}
        self.processed_at: dict[int, float] = dict.fromkeys(self.values, math.inf)
        for ownership in ownerships:
            self._take(ownership)
        self.offsets = sorted(self.processed_at)
        latest: float = -1
        self.latest: list[float] = []  # by when all up to each offset were processed
        for offset in self.offsets:
            latest = max(latest, self.processed_at[offset])
            self.latest.append(latest)

    def _take(self, ownership: _Ownership) -> None:
        run = ownership.run
        for offset, value in zip(run.offsets, run.values, strict=True):
            self.values.setdefault(offset, value)
            self.processed_at.setdefault(offset, math.inf)
        waiting = deque(zip(run.at, run.offsets, strict=True))
        for at, below in ownership.processed:
            while waiting and waiting[0][0] <= at and waiting[0][1] < below:
                offset = waiting.popleft()[1]
                self.processed_at[offset] = min(self.processed_at[offset], at)

    def look(self, offset: int, at: int, what: str) -> None:
        """Notes the first record below an offset that was not processed at that time."""
        below = bisect_left(self.offsets, offset)
        if not below or self.latest[below - 1] <= at:
            return
        passed = next(each for each in self.offsets if self.processed_at[each] > at)
        detail = f"{what} {offset} when no member had processed it"
        self.found.append(Finding(Kind.UNPROCESSED, *self.place, passed, self.values[passed], detail))
