"""Operations that wait for something to happen or for time to pass.

The shapes are Kafka's: a `DelayedOperation` completes exactly once, either because `try_complete` found its condition true or because
its delay passed, and only then `on_expiration` runs, after `on_complete`. `DelayedOperations` watches them by key. All of this belongs
to the broker's one thread, so there are no locks, and expiry is driven by that thread's loop: `next_deadline_ms()` bounds its poll,
`advance(now_ms)` expires what is due.

Source: org.apache.kafka.server.purgatory.{DelayedOperation, DelayedOperationPurgatory}.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol


class DelayedOperation(ABC):
    """Something that completes once its condition holds, or when delay_ms have passed."""

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.completed = False

    def force_complete(self) -> bool:
        """Completes the operation if that has not happened yet.

        Returns:
            Whether this call did it.
        """
        if self.completed:
            return False
        self.completed = True
        self.on_complete()
        return True

    def cancel(self) -> None:
        """Ends the operation without completing it, for a peer that is gone."""
        self.completed = True

    @abstractmethod
    def try_complete(self) -> bool:
        """Calls `force_complete` if the condition holds; returns whether this call completed it."""

    @abstractmethod
    def on_complete(self) -> None:
        """The work; runs exactly once."""

    def on_expiration(self) -> None:  # noqa: B027 - optional on purpose
        """Runs after `on_complete` when time ended the wait; nothing by default."""


class DelayedOperations:
    """Waiting operations by key and by deadline.

    `watched` may exceed the live operations: one entry per key, and completed ones stay on a key's list until that key is checked or a
    purge removes them.
    """

    PURGE_INTERVAL = 1_000

    def __init__(self) -> None:
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._deadlines: list[tuple[int, int, DelayedOperation]] = []
        self._serial = 0
        self._since_purge = 0

    def __len__(self) -> int:
        return sum(1 for _, _, operation in self._deadlines if not operation.completed)

    @property
    def watched(self) -> int:
        """Entries on all watch lists."""
        return sum(map(len, self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[Hashable], now_ms: int) -> bool:
        """Completes an operation at once if it can, otherwise watches it.

        Args:
            operation: the operation; its delay starts now.
            keys: at least one; `check_and_complete` of any of them tries the operation again.
            now_ms: the time now.

        Returns:
            Whether it is completed.
        """
        if not keys:
            raise ValueError("an operation must be watched under at least one key")
        if operation.try_complete():
            return True
        for key in keys:
            self._watchers.setdefault(key, []).append(operation)
        self._serial += 1
        heapq.heappush(self._deadlines, (now_ms + operation.delay_ms, self._serial, operation))
        self._since_purge += 1
        if self._since_purge >= self.PURGE_INTERVAL:
            self.purge()
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Tries the operations watched under a key.

        Returns:
            How many this call completed.
        """
        operations = self._watchers.pop(key, None)
        if operations is None:
            return 0
        count = 0
        remaining = []
        for operation in operations:
            if operation.completed:
                continue
            if operation.try_complete():
                count += 1
            else:
                remaining.append(operation)
        if remaining:
            # on_complete may have started a new wait on the same key
            self._watchers.setdefault(key, []).extend(remaining)
        return count

    def next_deadline_ms(self) -> int | None:
        """When the next live operation expires; None if nothing waits."""
        while self._deadlines and self._deadlines[0][2].completed:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def advance(self, now_ms: int) -> int:
        """Expires what is due.

        Returns:
            How many operations time has completed.
        """
        count = 0
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            operation = heapq.heappop(self._deadlines)[2]
            if operation.force_complete():
                operation.on_expiration()
                count += 1
        return count

    def purge(self) -> None:
        """Drops completed operations from all lists."""
        self._since_purge = 0
        for key in list(self._watchers):
            alive = [operation for operation in self._watchers[key] if not operation.completed]
            if alive:
                self._watchers[key] = alive
            else:
                del self._watchers[key]
        self._deadlines = [entry for entry in self._deadlines if not entry[2].completed]
        heapq.heapify(self._deadlines)

    def cancel_all(self) -> None:
        """Ends everything without completing it, when the broker stops."""
        for _, _, operation in self._deadlines:
            operation.cancel()
        self._deadlines.clear()
        self._watchers.clear()


class FetchStatus(Protocol):
    """What a waiting fetch asks about one of its partitions."""

    def bytes_available(self) -> int | None:
        """Bytes a read would return now, within the partition's limit; None if the read would answer an error."""


class DelayedFetch(DelayedOperation):
    """A Fetch that found less than min_bytes.

    Completes when its partitions hold min_bytes together, or when reading one of them would give an error (deleted, moved, fenced, out
    of range). Every check starts from the log, so an append, a deletion or a leader change only has to name the partition's key.

    Source: kafka.server.DelayedFetch, its cases A to G.
    """

    def __init__(self, delay_ms: int, min_bytes: int, partitions: Sequence[FetchStatus], answer: Callable[[], None]) -> None:
        """Waits.

        Args:
            delay_ms: the request's max wait.
            min_bytes: the request's minimum.
            partitions: what is fetched.
            answer: reads the log again and responds.
        """
        super().__init__(delay_ms)
        self.min_bytes = min_bytes
        self.partitions = partitions
        self.answer = answer

    def try_complete(self) -> bool:
        total = 0
        for partition in self.partitions:
            available = partition.bytes_available()
            if available is None:
                return self.force_complete()
            total += available
        return total >= self.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        self.answer()
