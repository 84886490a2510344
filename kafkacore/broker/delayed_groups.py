"""What classic groups wait for, as delayed operations: members who join or sync, and members who should be heard of.

Kept apart from the group's rules: an operation looks at the group, and hands over to the coordinator after its wait. The coordinator
then looks again, since its operation may come a turn later. Two purgatories per broker, driven by its loop.

    rebalances   DelayedJoin, InitialDelayedJoin under JoinKey; DelayedSync under SyncKey
    heartbeats   DelayedHeartbeat under MemberKey; also members that got an id and have not come back with it

Source: kafka.coordinator.group.{DelayedJoin, DelayedSync, DelayedHeartbeat}, in Kafka up to 4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkacore.broker.groups.classic import PREPARING_REBALANCE, ClassicGroup
from kafkacore.clock import Clock
from kafkacore.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafkacore.timer import LoopTimer

PURGE_INTERVAL = 1000


class JoinKey(NamedTuple):
    """A group whose members are awaited."""

    group_id: str


class SyncKey(NamedTuple):
    """A group whose members are to fetch their assignment."""

    group_id: str
    what: str = "sync"


class MemberKey(NamedTuple):
    """A member that is to be heard of."""

    group_id: str
    member_id: str
    what: str = "member"


class GroupPurgatories:
    """Where the groups of one broker wait."""

    def __init__(self, clock: Clock) -> None:
        """Empty ones; the broker's loop advances both."""
        self.rebalances = DelayedOperationPurgatory("Rebalance", LoopTimer(clock=clock), PURGE_INTERVAL, reaper=False)
        self.heartbeats = DelayedOperationPurgatory("Heartbeat", LoopTimer(clock=clock), PURGE_INTERVAL, reaper=False)

    def both(self) -> tuple[DelayedOperationPurgatory, DelayedOperationPurgatory]:
        """For the broker's loop."""
        return self.rebalances, self.heartbeats


class DelayedJoin(DelayedOperation):
    """A rebalance that waits for all known members, up to the longest rebalance timeout among them."""

    def __init__(self, delay_ms: int, group: ClassicGroup, complete: Callable[[bool], None]) -> None:
        """Waits.

        Args:
            delay_ms: the limit.
            group: whose members are awaited.
            complete: ends the phase; called with whether the time was up.
        """
        super().__init__(delay_ms)
        self.group = group
        self.complete = complete

    def try_complete(self) -> bool:
        return self.group.has_all_members_joined() and self.force_complete()

    def on_complete(self) -> None:
        self.complete(not self.group.has_all_members_joined())


class InitialDelayedJoin(DelayedJoin):
    """The first rebalance of a group: waits group.initial.rebalance.delay.ms after the last new member, so that many that start together
    make one generation; not longer than the rebalance timeout in all."""

    def __init__(
        self,
        delay_ms: int,
        remaining_ms: int,
        group: ClassicGroup,
        complete: Callable[[bool], None],
        again: Callable[[int, int], None],
    ) -> None:
        """Waits.

        Args:
            delay_ms: this time.
            remaining_ms: how much longer it may be put off.
            group: whose members are awaited.
            complete: as for DelayedJoin.
            again: puts it off: called with the next delay and what then remains.
        """
        super().__init__(delay_ms, group, complete)
        self.delay_ms_now = delay_ms
        self.remaining_ms = remaining_ms
        self.again = again

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if self.group.new_member_added and self.remaining_ms > 0 and self.group.is_in(PREPARING_REBALANCE):
            self.group.new_member_added = False
            self.again(min(self.delay_ms_now, self.remaining_ms), max(self.remaining_ms - self.delay_ms_now, 0))
        else:
            self.complete(True)


class DelayedSync(DelayedOperation):
    """A generation whose members are to fetch their assignment, up to the rebalance timeout."""

    def __init__(self, delay_ms: int, group: ClassicGroup, expire: Callable[[int], None]) -> None:
        """Waits.

        Args:
            delay_ms: the limit.
            group: whose members.
            expire: called with the generation in which a member did not come.
        """
        super().__init__(delay_ms)
        self.group = group
        self.generation = group.generation
        self.expire = expire

    def try_complete(self) -> bool:
        over = self.generation != self.group.generation or not self.group.pending_syncs
        return over and self.force_complete()

    def on_complete(self) -> None:
        pass  # they all came

    def on_expiration(self) -> None:
        self.expire(self.generation)


class DelayedHeartbeat(DelayedOperation):
    """A member's session, from one sign of life to the next."""

    def __init__(self, delay_ms: int, satisfied: Callable[[], bool], expire: Callable[[], None]) -> None:
        """Waits.

        Args:
            delay_ms: the session timeout.
            satisfied: whether the member was heard of, or is gone.
            expire: the session ended.
        """
        super().__init__(delay_ms)
        self.satisfied = satisfied
        self.expire = expire

    def try_complete(self) -> bool:
        return self.satisfied() and self.force_complete()

    def on_complete(self) -> None:
        pass  # it was heard of

    def on_expiration(self) -> None:
        self.expire()
