"""Fetches that wait for bytes or for their time, on the purgatory of kafkacore.purgatory.

All of it belongs to the broker's one thread: the purgatory has no reaper, its timer no thread. `next_deadline_ms()` bounds the poll of
that thread's loop, `advance_clock()` expires what is due.

Source: kafka.server.DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kafkacore.clock import Clock
from kafkacore.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafkacore.timer import LoopTimer

PURGE_INTERVAL = 1000
"""fetch.purgatory.purge.interval.requests of Kafka."""


class FetchStatus(Protocol):
    """What a waiting fetch asks about one of its partitions."""

    def bytes_available(self) -> int | None:
        """Bytes a read would return now, within the partition's limit; None if the read would answer an error."""


class DelayedFetch(DelayedOperation):
    """A Fetch that found less than min_bytes, watched under its partitions' (topic, index).

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
        self.answer: Callable[[], None] | None = answer

    def try_complete(self) -> bool:
        total = 0
        for partition in self.partitions:
            available = partition.bytes_available()
            if available is None:
                return self.force_complete()
            total += available
        return total >= self.min_bytes and self.force_complete()

    def on_complete(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            answer()

    def abandon(self) -> None:
        """Ends the wait without an answer, for a peer that is gone."""
        self.answer = None
        self.force_complete()


def fetch_purgatory(clock: Clock) -> DelayedOperationPurgatory:
    """Where one broker's fetches wait."""
    return DelayedOperationPurgatory("Fetch", LoopTimer(clock=clock), PURGE_INTERVAL, reaper=False)
