"""Requests that wait for an event or for their time, on the purgatory of kafkacore.purgatory.

All of it belongs to the broker's one thread: the purgatories have no reaper, their timers no thread. `next_deadline_ms()` bounds the poll
of that thread's loop, `advance_clock()` expires what is due.

Source: kafka.server.{DelayedFetch, DelayedProduce, DelayedDeleteRecords}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kafkacore.broker.partition import Partition
from kafkacore.broker.sessions import FetchKey, FetchSession
from kafkacore.clock import Clock
from kafkacore.errors import BrokerError, Code, UnknownTopicOrPartition
from kafkacore.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafkacore.timer import LoopTimer

_NONE, _UNKNOWN = Code.NONE, Code.REQUEST_TIMED_OUT
PURGE_INTERVAL = 1000
"""fetch.purgatory.purge.interval.requests of Kafka."""


class FetchStatus(Protocol):
    """What a waiting fetch asks about one of its partitions."""

    def bytes_available(self) -> int | None:
        """Bytes a read would return now, within the partition's limit; None if there is no reason to wait: an error, or a new segment."""


class Outcome(Protocol):
    """What becomes of one partition of a waiting request."""

    def known(self) -> bool:
        """Looks, and says whether there is nothing more to wait for."""


class DelayedAnswer(DelayedOperation):
    """A request that is answered once, by an event or by time."""

    def __init__(self, delay_ms: int, answer: Callable[[], None]) -> None:
        """Waits.

        Args:
            delay_ms: at most so long.
            answer: responds with what is true then.
        """
        super().__init__(delay_ms)
        self.answer: Callable[[], None] | None = answer

    def on_complete(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer()

    def abandon(self) -> None:
        """Ends the wait without an answer, for a peer that is gone."""
        self.answer = None
        self.force_complete()


class DelayedFetch(DelayedAnswer):
    """A Fetch that found less than min_bytes, watched under its partitions' (topic, index).

    Completes when its partitions hold min_bytes together, when reading one of them would give an error (deleted, moved, fenced, out of
    range, diverged), or when the end of one of them lies in a newer segment than the fetch offset. Every check starts from the log, so an
    append, a deletion or a leader change only has to name the partition's key.

    Attributes:
        found_nothing: there was nothing to read, and nothing has happened since: what was read before the wait is still true.

    Source: kafka.server.DelayedFetch, its cases A to H.
    """

    def __init__(
        self,
        delay_ms: int,
        min_bytes: int,
        partitions: Callable[[], Sequence[FetchStatus]],
        answer: Callable[[], None],
        found_nothing: bool = False,
    ) -> None:
        """Waits.

        Args:
            delay_ms: the request's max wait.
            min_bytes: the request's minimum.
            partitions: gives what is fetched, when it is to be looked at.
            answer: reads the log again and responds.
            found_nothing: all partitions were read, without a byte or an error, and none has changed since: no look is needed.
        """
        super().__init__(delay_ms, answer)
        self.min_bytes = min_bytes
        self.found_nothing = found_nothing
        self._give_partitions = partitions
        self._partitions: Sequence[FetchStatus] | None = None
        self._tries = 0

    def try_complete(self) -> bool:
        self._tries += 1
        # The purgatory tries twice: between the two it begins to watch, and nothing else runs in this thread.
        if self._tries == 2 or (self._tries == 1 and self.found_nothing):
            return False
        self.found_nothing = False
        if self._partitions is None:
            self._partitions = self._give_partitions()
        total = 0
        for partition in self._partitions:
            available = partition.bytes_available()
            if available is None:
                return self.force_complete()
            total += available
        self.found_nothing = self._tries == 1 and not total
        return total >= self.min_bytes and self.force_complete()


class DelayedSessionFetch(DelayedAnswer):
    """A `DelayedFetch` of a session, watched under the session: looks at what has changed, and at nothing else.

    Attributes:
        changed: partitions that have changed since it looked at them, from the session.

    Source: kafka.server.DelayedFetch.
    """

    def __init__(
        self,
        delay_ms: int,
        min_bytes: int,
        session: FetchSession,
        status: Callable[[FetchKey], FetchStatus | None],
        answer: Callable[[], None],
        unwatch: Callable[[FetchSession], object],
    ) -> None:
        """Waits.

        Args:
            delay_ms: the request's max wait.
            min_bytes: the request's minimum.
            session: what is fetched. Its dirty partitions are looked at first.
            status: of a partition, asked for once; None if it is not fetched any more.
            answer: reads the log again and responds.
            unwatch: takes the complete fetches of a session out of the purgatory, which would else keep the session until it purges.
        """
        super().__init__(delay_ms, answer)
        self.min_bytes = min_bytes
        self.changed = set(session.dirty)
        self._session = session
        self._new_status = status
        self._unwatch = unwatch
        self._statuses = {key: status(key) for key in self.changed}
        self._available: dict[FetchKey, int] = {}
        self._total = 0
        session.waits.append(self)

    def on_complete(self) -> None:
        self._session.waits.remove(self)
        self._unwatch(self._session)
        super().on_complete()

    def try_complete(self) -> bool:
        while self.changed:
            key = self.changed.pop()
            status = self._statuses.get(key)
            if status is None:
                status = self._statuses[key] = self._new_status(key)
            available = 0 if status is None else status.bytes_available()
            if available is None:
                return self.force_complete()
            self._total += available - self._available.get(key, 0)
            self._available[key] = available
        return self._total >= self.min_bytes and self.force_complete()


class DelayedOutcomes(DelayedAnswer):
    """A request about several partitions, answered when each of them has its outcome.

    DelayedProduce: a write with acks=all, until the in-sync replicas have it. DelayedDeleteRecords: until every live replica's log starts
    no earlier. What has no outcome when the time is up is answered with REQUEST_TIMED_OUT.

    Source: kafka.server.{DelayedProduce, DelayedDeleteRecords}.
    """

    def __init__(self, delay_ms: int, outcomes: Sequence[Outcome], answer: Callable[[], None]) -> None:
        """Waits.

        Args:
            delay_ms: the request's timeout.
            outcomes: what is waited for.
            answer: responds.
        """
        super().__init__(delay_ms, answer)
        self.outcomes = outcomes

    def try_complete(self) -> bool:
        pending = False
        for outcome in self.outcomes:
            if not outcome.known():
                pending = True
        return not pending and self.force_complete()


class LeaderOutcome:
    """What becomes of a request in one partition as long as this broker leads it.

    Attributes:
        partition: the partition.
        offset: what the followers have to reach.
        code: what to answer; REQUEST_TIMED_OUT until it is known.
    """

    __slots__ = ("_find", "code", "offset", "partition")

    def __init__(self, partition: Partition, offset: int, find: Callable[[str, int], Partition]) -> None:
        self.partition = partition
        self.offset = offset
        self.code = _UNKNOWN
        self._find = find


class CommitOutcome(LeaderOutcome):
    """Whether one write is on the in-sync replicas, min.insync.replicas of them at least."""

    __slots__ = ()

    def known(self) -> bool:
        if self.code is _UNKNOWN:
            partition = self.partition
            if not partition.is_leader:
                self.code = _no_leader(partition, self._find)
            elif partition.high_watermark >= self.offset:
                self.code = _NONE if len(partition.isr) >= partition.min_isr else Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return self.code is not _UNKNOWN


class DeletionOutcome(LeaderOutcome):
    """Whether the logs of all live replicas begin at an offset."""

    __slots__ = ()

    def known(self) -> bool:
        if self.code is _UNKNOWN:
            if not self.partition.is_leader:
                self.code = _no_leader(self.partition, self._find)
            elif self.partition.low_watermark >= self.offset:
                self.code = _NONE
        return self.code is not _UNKNOWN


def _no_leader(partition: Partition, find: Callable[[str, int], Partition]) -> Code:
    """Why a partition that was led here is not any more: it moved, or it is gone."""
    try:
        find(*partition.key)
    except UnknownTopicOrPartition:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    except BrokerError:
        pass
    return Code.NOT_LEADER_OR_FOLLOWER


def purgatory(name: str, clock: Clock) -> DelayedOperationPurgatory:
    """Where requests of one kind wait."""
    return DelayedOperationPurgatory(name, LoopTimer(clock=clock), PURGE_INTERVAL, reaper=False)
