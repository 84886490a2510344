"""What every kind of segment can do, and segments in memory.

A segment holds whole batches back to back, exactly as they go over the wire, from its base offset on. The log above it decides where it
begins and ends; the segment finds positions. Offsets inside a segment rise but may have gaps: compaction leaves them, and a follower copies
them. A position is that of the first batch whose last offset is not below the wanted one, so a reader in a gap gets what follows it.

Source: org.apache.kafka.storage.internals.log.LogSegment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kafkacore import records
from kafkacore._codec import FileSlice, PooledBuffer, SegmentCore
from kafkacore.broker.log.headers import NO_TIMESTAMP, Span, spans_in
from kafkacore.broker.producers import AbortedTxn
from kafkacore.errors import CorruptDataError
from kafkacore.records import Batch

NO_OFFSET = -1
Piece = memoryview | FileSlice
"""What a read returns: a view of memory, or bytes of a file that can be sent without being read."""


class OffsetPosition(NamedTuple):
    """A record found by `Log.offset_for_timestamp`."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Segment(SegmentCore, ABC):
    """One piece of a log.

    Attributes:
        base_offset: no record in it has a lower offset.
        size: bytes of its batches.
        created_ms: when it was started.
        written_ms: when it was written last.
        rolling_ms: timestamp of its first batch, which segment.ms counts from; None before it is known.
        aborted: transactions that were aborted in it.
    """

    __slots__ = ()

    def __init__(self, base_offset: int, wall_ms: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = wall_ms
        self.written_ms = NO_TIMESTAMP
        self.rolling_ms = None
        self.aborted = []

    # ---- what the kinds differ in

    @abstractmethod
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it; -1 for both in an empty segment."""

    @abstractmethod
    def has_room(self, nbytes: int) -> bool:
        """Whether a batch of so many bytes can be added, apart from what the topic's settings say."""

    @abstractmethod
    def write(self, pieces: Sequence[bytes | bytearray | memoryview], nbytes: int) -> int:
        """Adds bytes at the end; `note` must follow for every batch in them.

        Returns:
            Their position.
        """

    @abstractmethod
    def note(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Indexes a batch that was written."""

    @abstractmethod
    def position_of(self, offset: int) -> int:
        """Where the first batch lies whose last offset is at least this; the segment's size without such a batch."""

    @abstractmethod
    def offset_at(self, position: int) -> int | None:
        """The last offset of some batch at a position or soon after it; None if none is known there."""

    @abstractmethod
    def whole_batches(self, start: int, end: int, max_bytes: int) -> int:
        """Where a read of at most max_bytes from `start` ends, short of `end`: between two batches, `start` itself if none fits."""

    @abstractmethod
    def slice(self, start: int, end: int) -> Piece:
        """The bytes from start to end, to be sent."""

    @abstractmethod
    def bytes_at(self, start: int, end: int) -> memoryview | bytes:
        """The bytes from start to end, to be looked at."""

    @abstractmethod
    def time_hint(self, timestamp_ms: int) -> int:
        """A position before which no batch is as new as this; the segment's size if none is."""

    @abstractmethod
    def truncated(self, position: int) -> Segment:
        """The segment with the batches before a position; takes this one's place."""

    @abstractmethod
    def spans(self, position: int = 0) -> Iterator[Span]:
        """The batches from a position on."""

    # ---- what they have in common

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset of an empty segment."""
        last = self.base_offset - 1
        for span in self.spans(self.position_of_last_entry()):
            last = span.last_offset
        return last + 1

    @abstractmethod
    def position_of_last_entry(self) -> int:
        """A position near the end at which a batch begins."""

    def rolling_timestamp(self) -> int | None:
        """The timestamp of the first batch, None if it has none."""
        if self.rolling_ms is None and self.size:
            self.rolling_ms = next(self.spans()).max_timestamp_ms
        return self.rolling_ms if self.rolling_ms is not None and self.rolling_ms >= 0 else None

    def newest_ms(self) -> int:
        """What retention by time goes by: the largest timestamp, or where records have none the time of writing."""
        largest_ms = self.largest_timestamp()[0]
        return largest_ms if largest_ms >= 0 else self.written_ms

    def batch_at(self, span: Span) -> Batch:
        """A batch as a whole."""
        data = self.bytes_at(span.position, span.position + span.size_bytes)
        batch = next(iter(records.read_batches(data, check_crcs=False)), None)
        if batch is None:
            raise CorruptDataError(f"the batch at offset {span.base_offset} is cut off", offset=span.base_offset)
        return batch

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> OffsetPosition | None:
        """The first record at or after a time, from start_offset on and below upper_offset."""
        for span in self.spans(self.time_hint(timestamp_ms)):
            if span.base_offset >= upper_offset:
                return None
            if span.max_timestamp_ms < timestamp_ms or span.last_offset < start_offset:
                continue
            batch = self.batch_at(span)
            columns = batch.columns()                            # of a million records, a quarter of the time that objects take
            wanted = np.flatnonzero((columns.timestamps_ms >= timestamp_ms) & (columns.offsets >= start_offset))
            if len(wanted):
                row = wanted[0]
                return OffsetPosition(int(columns.offsets[row]), int(columns.timestamps_ms[row]), batch.leader_epoch)
        return None

    def max_timestamp(self, upper_offset: int) -> Span | None:
        """The first batch with the largest timestamp of those below upper_offset."""
        last_offset = self.largest_timestamp()[1]
        if 0 <= last_offset < upper_offset:
            return next(self.spans(self.position_of(last_offset)), None)
        found: Span | None = None
        for span in self.spans():
            if span.base_offset >= upper_offset:
                break
            if found is None or span.max_timestamp_ms > found.max_timestamp_ms:
                found = span
        return found

    def add_aborted(self, transaction: AbortedTxn) -> None:
        """Notes a transaction whose abort marker lies in this segment."""
        self.aborted.append(transaction)


class MemorySegment(Segment):
    """A segment in one block of pooled memory, with a dense index of one row per batch."""

    __slots__ = ("_largest", "capacity", "last_offsets", "max_timestamps", "positions", "view", "writable")

    def __init__(self, base_offset: int, capacity: int, wall_ms: int = NO_TIMESTAMP) -> None:
        """Takes a block; memory the system gives afresh becomes resident as it is written.

        Args:
            base_offset: the first offset it will hold.
            capacity: bytes of the block.
            wall_ms: the time now.
        """
        super().__init__(base_offset, wall_ms)
        self.capacity = capacity
        self.writable = memoryview(PooledBuffer(capacity))
        self.view = self.writable.toreadonly()
        self.last_offsets = array("q")
        self.positions = array("q")
        self.max_timestamps = array("q")
        self._largest = NO_TIMESTAMP, NO_OFFSET

    def largest_timestamp(self) -> tuple[int, int]:
        return self._largest

    def has_room(self, nbytes: int) -> bool:
        return self.size + nbytes <= self.capacity

    def write(self, pieces: Sequence[bytes | bytearray | memoryview], nbytes: int) -> int:
        position = at = self.size
        for piece in pieces:
            self.writable[at : at + len(piece)] = piece
            at += len(piece)
        self.size = at
        return position

    def note(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        self.last_offsets.append(last_offset)
        self.positions.append(position)
        self.max_timestamps.append(max_timestamp_ms)
        if max_timestamp_ms > self._largest[0] or self._largest[1] < 0:
            self._largest = max_timestamp_ms, last_offset

    def position_of(self, offset: int) -> int:
        row = bisect_left(self.last_offsets, offset)
        return self.positions[row] if row < len(self.positions) else self.size

    def offset_at(self, position: int) -> int | None:
        row = bisect_left(self.positions, position)
        return self.last_offsets[row] if row < len(self.positions) else None

    def position_of_last_entry(self) -> int:
        return self.positions[-1] if self.positions else 0

    def whole_batches(self, start: int, end: int, max_bytes: int) -> int:
        return self.positions[max(bisect_right(self.positions, start + max_bytes) - 1, 0)]

    def slice(self, start: int, end: int) -> memoryview:
        return self.view[start:end]

    def bytes_at(self, start: int, end: int) -> memoryview:
        return self.view[start:end]

    def time_hint(self, timestamp_ms: int) -> int:
        for row, max_timestamp_ms in enumerate(self.max_timestamps):
            if max_timestamp_ms >= timestamp_ms:
                return self.positions[row]
        return self.size

    def spans(self, position: int = 0) -> Iterator[Span]:
        return spans_in(self.view[position : self.size], position)

    def truncated(self, position: int) -> MemorySegment:
        """A copy: views of the old block may be on their way to clients."""
        other = MemorySegment(self.base_offset, self.capacity, self.created_ms)
        other.write((self.view[:position],), position)
        for span in other.spans():
            other.note(span.position, span.size_bytes, span.last_offset, span.max_timestamp_ms)
        end = other.next_offset()
        other.written_ms, other.rolling_ms = self.written_ms, self.rolling_ms if position else None
        other.aborted = [each for each in self.aborted if each.last_offset < end]
        return other
