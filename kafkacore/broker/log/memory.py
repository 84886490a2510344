"""How much the logs in memory of one broker may hold together, and what is deleted when they hold more.

Kafka's logs are on disk and its default retention is seven days without a limit of size. In memory that ends with the process being killed.
So logs in memory have a limit of their own, beside the retention of their topics: beyond it the largest logs that may be deleted from
(`cleanup.policy` has `delete`, the topic is not internal) lose their oldest segments. The limit is checked when segments begin, not per
batch, so it is passed by what the open segments still take.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacore.broker.partition import Partition

logger = logging.getLogger(__name__)

_RECOUNTS = 8
_LEAVE = 0.9
"""Of the limit: what a clean-up leaves, so that the next segment does not start another one."""


class MemoryLimit:
    """The limit of the logs of one broker."""

    def __init__(self, limit_bytes: int, logs: Mapping[Any, Any], on_exceeded: Callable[[], None]) -> None:
        """Counts nothing yet.

        Args:
            limit_bytes: what all logs may hold together.
            logs: the logs, which say how many bytes they hold.
            on_exceeded: called within an append that began a segment, when the logs hold more.
        """
        self.limit_bytes = limit_bytes
        self._logs = logs
        self._on_exceeded = on_exceeded
        self._since_count_bytes = 0

    def used_bytes(self) -> int:
        """Bytes of all batches in the logs."""
        return sum(log.size_bytes for log in self._logs.values())

    def grew(self, nbytes: int) -> None:
        """A segment of so many bytes began; now and then all are counted, once per eighth of the limit."""
        self._since_count_bytes += nbytes
        if self._since_count_bytes * _RECOUNTS >= self.limit_bytes:
            self._since_count_bytes = 0
            if self.used_bytes() > self.limit_bytes:
                self._on_exceeded()

    def free(self, partitions: Iterable[Partition], may_delete: Callable[[Partition], bool], wall_ms: int) -> list[Partition]:
        """Deletes the oldest segments of the largest logs until a tenth of the limit is free, and logs what was deleted.

        Args:
            partitions: all of the broker.
            may_delete: whether segments of a partition may go.
            wall_ms: the time now.

        Returns:
            The partitions that begin later now.
        """
        used_bytes = before_bytes = self.used_bytes()
        largest = [(-partition.log.size_bytes, number, partition) for number, partition in enumerate(partitions) if may_delete(partition)]
        heapq.heapify(largest)
        shorter: dict[Any, Partition] = {}
        while largest and used_bytes > self.limit_bytes * _LEAVE:
            negative_bytes, number, partition = heapq.heappop(largest)
            log = partition.log
            if len(log.segments) < 2:  # the open segment stays, with the newest records
                continue
            keep_bytes = log.size_bytes - log.segments[0].size
            if log.delete_old_segments(-1, keep_bytes, wall_ms, partition.high_watermark):
                used_bytes -= -negative_bytes - log.size_bytes
                shorter[partition.key] = partition
                heapq.heappush(largest, (-log.size_bytes, number, partition))
        if used_bytes > self.limit_bytes:
            logger.error(
                "the logs in memory hold %d bytes, more than log.memory.max.bytes=%d, and nothing more may be deleted: "
                "the rest is compacted, internal or not replicated yet",
                used_bytes,
                self.limit_bytes,
            )
        if shorter:
            first = list(shorter.items())[:5]
            named = ", ".join(f"{topic}-{index} (begins at offset {partition.log.start_offset})" for (topic, index), partition in first)
            logger.warning(
                "the logs in memory held %d bytes, more than log.memory.max.bytes=%d: "
                "the oldest records of %d partition(s) were deleted: %s%s",
                before_bytes,
                self.limit_bytes,
                len(shorter),
                named,
                "" if len(shorter) <= 5 else ", ...",
            )
        return list(shorter.values())
