"""One partition's log, in memory.

A log is a list of segments; a segment is one block of pooled memory that holds record batches back to back, exactly as they go over the
wire, and a dense index with one row per batch:

    memory       | batch 0 | batch 1 |   batch 2   | ... unused
    base_offsets     100       137        140
    positions          0       812       1029
    max_timestamps   t0        t1         t2

Rules:

1. A batch is copied once, from the received frame into its segment, and its base offset and leader epoch are patched there: both lie
   outside the CRC. A slice of the frame would pin a power-of-two block and leave reads with one buffer per batch; a segment gives a read
   one view over any number of batches.
2. Bytes below `end_offset` never change, so a view handed to a response stays true; it keeps its segment's memory alive after deletion.
   When the last view is gone the block returns to the pool, and the next segment finds it warm: page faults are most of the cost of
   writing fresh memory.
3. Only whole segments are deleted. A segment rolls when its block is full; blocks double from 1 MiB up to `SEGMENT_MAX_BYTES` or
   segment.bytes, whichever is smaller, and one larger batch gets a block of its own.
4. Offsets have no gaps: a batch's last offset + 1 is the next batch's base offset.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy

from kafkacore import errors, records
from kafkacore._codec import PooledBuffer
from kafkacore.codec import crc32c
from kafkacore.records import Batch

SEGMENT_MIN_BYTES = 1 << 20
SEGMENT_MAX_BYTES = 16 << 20
HEADER_BYTES = 61
_MAGIC_OFFSET = 16
_CRC_OFFSET = 17
_ATTRIBUTES_OFFSET = 21
_MAX_TIMESTAMP_OFFSET = 35
_ATTRIBUTES, _TIMESTAMP, _CRC = struct.Struct(">H"), struct.Struct(">q"), struct.Struct(">I")
_LOG_APPEND_TIME = 8
_BATCH_MAGIC = 2
_COMPRESSION_CODECS = 5
NO_TIMESTAMP = -1


class OffsetPosition(NamedTuple):
    """A record found by `Log.offset_for_timestamp`."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def read_one_batch(buffer: memoryview | bytes, max_bytes: int) -> Batch:
    """The record batch of one partition of a Produce request, its header and CRC checked; `check_records` looks inside.

    Args:
        buffer: the partition's records.
        max_bytes: max.message.bytes.

    Returns:
        The batch, over the given buffer.

    Raises:
        InvalidRecord: not exactly one v2 batch, a control batch, a base offset, or a record count that contradicts the offsets.
        RecordTooLarge: more than max_bytes.
        CorruptDataError: lengths that do not fit or a wrong CRC.

    Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords, org.apache.kafka.storage.internals.log.LogValidator.
    """
    if len(buffer) < HEADER_BYTES:
        raise errors.InvalidRecord(f"a record batch has at least {HEADER_BYTES} bytes, not {len(buffer)}")
    if buffer[_MAGIC_OFFSET] != _BATCH_MAGIC:
        raise errors.InvalidRecord(f"message format {buffer[_MAGIC_OFFSET]} cannot be written (KIP-724): only record batches of magic 2")
    if len(buffer) > max_bytes:
        raise errors.RecordTooLarge(f"the batch has {len(buffer)} bytes, max.message.bytes is {max_bytes}")
    batches = iter(records.read_batches(buffer, check_crcs=True))
    batch = next(batches, None)
    if batch is None or batch.size_bytes != len(buffer):
        raise errors.InvalidRecord("exactly one record batch per partition is allowed")
    if batch.is_control:
        raise errors.InvalidRecord("clients cannot write control batches")
    if batch.base_offset != 0:
        raise errors.InvalidRecord(f"the base offset of a produced batch is 0, not {batch.base_offset}")
    if batch.record_count <= 0 or batch.last_offset - batch.base_offset + 1 != batch.record_count:
        raise errors.InvalidRecord(
            f"the batch counts {batch.record_count} records but spans {batch.last_offset - batch.base_offset + 1} offsets"
        )
    if batch.compression >= _COMPRESSION_CODECS:
        raise errors.UnsupportedCompressionType(f"compression codec {batch.compression} is unknown")
    return batch


def check_records(batch: Batch) -> int:
    """Reads every record of a produced batch, about 5 ns each, since one broken batch in a log stops every reader of it for good.

    Args:
        batch: from `read_one_batch`.

    Returns:
        The largest timestamp, -1 if the records have none; the header's may be wrong.

    Raises:
        InvalidRecord: the batch does not unpack to the number of records it promises, or a compressed one not to offsets in sequence.

    Source: org.apache.kafka.storage.internals.log.LogValidator.
    """
    try:
        columns = batch.columns()
    except errors.CorruptDataError as problem:
        raise errors.InvalidRecord(f"the batch's records cannot be read: {problem}") from None
    if len(columns) != batch.record_count:
        raise errors.InvalidRecord(f"the batch promises {batch.record_count} records and holds {len(columns)}")
    if batch.compression and not numpy.array_equal(columns.offsets, numpy.arange(len(columns))):
        raise errors.InvalidRecord("the offsets inside a compressed batch do not follow each other")
    return int(columns.timestamps_ms.max())


def _set_create_time(stored: memoryview, max_timestamp_ms: int) -> None:
    """Corrects the largest timestamp of a stored batch, clears what says that the broker set it, and renews the CRC."""
    _ATTRIBUTES.pack_into(stored, _ATTRIBUTES_OFFSET, _ATTRIBUTES.unpack_from(stored, _ATTRIBUTES_OFFSET)[0] & ~_LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(stored, _MAX_TIMESTAMP_OFFSET, max_timestamp_ms)
    _CRC.pack_into(stored, _CRC_OFFSET, crc32c(stored[_ATTRIBUTES_OFFSET:]))


class Segment:
    """One block of batches and its index. Source: org.apache.kafka.storage.internals.log.LogSegment."""

    __slots__ = (
        "base_offset",
        "base_offsets",
        "capacity",
        "largest_timestamp_ms",
        "log_position",
        "max_timestamps",
        "positions",
        "size",
        "view",
        "writable",
        "written_ms",
    )

    def __init__(self, base_offset: int, capacity: int, log_position: int) -> None:
        """Takes a block; memory the system gives afresh becomes resident as it is written.

        Args:
            base_offset: the first offset it will hold.
            capacity: bytes of the block.
            log_position: bytes ever appended to the log before this segment.
        """
        self.base_offset = base_offset
        self.capacity = capacity
        self.log_position = log_position
        self.writable = memoryview(PooledBuffer(capacity))
        self.view = self.writable.toreadonly()
        self.size = 0
        self.base_offsets = array("q")
        self.positions = array("q")
        self.max_timestamps = array("q")
        self.largest_timestamp_ms = NO_TIMESTAMP
        self.written_ms = NO_TIMESTAMP

    def append(
        self, batch: Batch, base_offset: int, leader_epoch: int, max_timestamp_ms: int, append_time_ms: int | None, wall_ms: int
    ) -> None:
        """Copies a batch in and stamps it; there must be room."""
        data = batch.buffer
        start, stop = self.size, self.size + len(data)
        stored = self.writable[start:stop]
        stored[:] = data
        records.set_base_offset(stored, base_offset)
        records.set_leader_epoch(stored, leader_epoch)
        if append_time_ms is not None:
            records.set_log_append_time(stored, append_time_ms)
        elif max_timestamp_ms != batch.max_timestamp_ms or batch.timestamp_type:
            _set_create_time(stored, max_timestamp_ms)
        self.base_offsets.append(base_offset)
        self.positions.append(start)
        self.max_timestamps.append(max_timestamp_ms)
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, max_timestamp_ms)
        self.written_ms = wall_ms
        self.size = stop

    def row_of(self, offset: int) -> int:
        """The index row of the batch that contains an offset."""
        return max(bisect_right(self.base_offsets, offset) - 1, 0)

    def batch_at(self, row: int) -> Batch:
        """The batch of an index row."""
        stop = self.positions[row + 1] if row + 1 < len(self.positions) else self.size
        return next(iter(records.read_batches(self.view[self.positions[row] : stop], check_crcs=False)))

    def position_of(self, upper_offset: int) -> int:
        """Where the batches below an offset end."""
        row = bisect_left(self.base_offsets, upper_offset)
        return self.positions[row] if row < len(self.positions) else self.size

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> tuple[memoryview, bool]:
        """Whole batches from the one containing `offset`, below `upper_offset`, within max_bytes (but for the first, if asked).

        Returns:
            The batches, and whether they reach to the end of this segment.
        """
        row = self.row_of(offset)
        limit = bisect_left(self.base_offsets, upper_offset)
        if row >= limit:
            return self.view[:0], False
        start = self.positions[row]
        end = self.positions[limit] if limit < len(self.positions) else self.size
        if end - start > max_bytes:
            fitting = bisect_right(self.positions, start + max_bytes, row, limit) - 1
            if fitting == row and at_least_one:
                fitting = row + 1
            end = self.positions[fitting] if fitting < limit else end
        return self.view[start:end], end == self.size


class Log:
    """A partition's batches, their offsets and leader epochs. Source: org.apache.kafka.storage.internals.log.UnifiedLog."""

    def __init__(self, segment_bytes: int = SEGMENT_MAX_BYTES) -> None:
        """An empty log.

        Args:
            segment_bytes: segment.bytes; blocks are no larger than this or than `SEGMENT_MAX_BYTES`.
        """
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.start_offset = 0
        self.end_offset = 0
        # (leader epoch, its first offset), ascending in both
        self.epochs: list[tuple[int, int]] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches held."""
        return sum(segment.size for segment in self.segments)

    def append(
        self,
        batch: Batch,
        leader_epoch: int,
        append_time_ms: int | None = None,
        *,
        max_timestamp_ms: int | None = None,
        wall_ms: int = NO_TIMESTAMP,
    ) -> int:
        """Adds a checked batch at the end.

        Args:
            batch: from `read_one_batch`.
            leader_epoch: of the partition's leader now.
            append_time_ms: the wall time for LogAppendTime topics, None to keep the producer's timestamps.
            max_timestamp_ms: from `check_records`; the header's if left out.
            wall_ms: the time now, which retention goes by where records have no timestamps.

        Returns:
            The offset of its first record.
        """
        base_offset = self.end_offset
        data = batch.buffer
        if not self.segments or self.segments[-1].size + len(data) > self.segments[-1].capacity:
            self._roll(len(data))
        if append_time_ms is not None:
            max_timestamp_ms = append_time_ms
        elif max_timestamp_ms is None:
            max_timestamp_ms = batch.max_timestamp_ms
        self.begin_epoch(leader_epoch)
        self.segments[-1].append(batch, base_offset, leader_epoch, max_timestamp_ms, append_time_ms, wall_ms)
        self.end_offset = base_offset + batch.record_count
        return base_offset

    def _roll(self, needed_bytes: int) -> None:
        limit = min(self.segment_bytes, SEGMENT_MAX_BYTES)
        position, capacity = 0, SEGMENT_MIN_BYTES
        if self.segments:
            last = self.segments[-1]
            position, capacity = last.log_position + last.size, last.capacity * 2
        self.segments.append(Segment(self.end_offset, max(min(capacity, limit), needed_bytes), position))

    def _segment_row(self, offset: int) -> int:
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, upper_offset: int, at_least_one: bool) -> list[memoryview]:
        """Batches as they lie in the log.

        Args:
            offset: the first record wanted; its whole batch is returned.
            max_bytes: bytes of the answer.
            upper_offset: batches from here on are not returned.
            at_least_one: the first batch is returned even if it is larger than max_bytes (KIP-74).

        Returns:
            One view per segment touched; [] where there is nothing to read.

        Raises:
            OffsetOutOfRange: offset lies outside start_offset..end_offset.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise errors.OffsetOutOfRange(f"the log holds offsets {self.start_offset} to {self.end_offset}", offset=offset)
        views: list[memoryview] = []
        if offset >= upper_offset or not self.segments:
            return views
        for row in range(self._segment_row(offset), len(self.segments)):
            segment = self.segments[row]
            view, to_its_end = segment.read(offset, upper_offset, max_bytes, at_least_one and not views)
            if view.nbytes:
                views.append(view)
                max_bytes -= view.nbytes
            if not to_its_end or max_bytes <= 0:
                break                                     # after a stop within this segment, batches of the next would leave a gap
        return views

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes of the batches a read of offset..upper_offset would return without a limit."""
        if offset >= upper_offset or not self.segments:
            return 0
        first = self.segments[self._segment_row(offset)]
        last = self.segments[self._segment_row(upper_offset)]
        start = first.log_position + first.positions[first.row_of(offset)]
        return last.log_position + last.position_of(upper_offset) - start

    def offset_for_timestamp(self, timestamp_ms: int, upper_offset: int) -> OffsetPosition | None:
        """The first record at or after a time, below `upper_offset`; None if there is none."""
        for segment in self.segments:
            if segment.largest_timestamp_ms < timestamp_ms or segment.base_offset >= upper_offset:
                continue
            for row, max_timestamp_ms in enumerate(segment.max_timestamps):
                if segment.base_offsets[row] >= upper_offset:
                    return None
                if max_timestamp_ms < timestamp_ms:
                    continue
                batch = segment.batch_at(row)
                for record in batch.records():
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start_offset:
                        return OffsetPosition(record.offset, record.timestamp_ms, batch.leader_epoch)
        return None

    def max_timestamp(self, upper_offset: int) -> OffsetPosition | None:
        """The first record with the largest timestamp, below `upper_offset`; None in an empty log."""
        found: tuple[int, Segment, int] | None = None
        for segment in self.segments:
            if found is not None and segment.largest_timestamp_ms <= found[0]:
                continue
            for row, timestamp_ms in enumerate(segment.max_timestamps):
                if segment.base_offsets[row] < upper_offset and (found is None or timestamp_ms > found[0]):
                    found = timestamp_ms, segment, row
        if found is None:
            return None
        batch = found[1].batch_at(found[2])
        record = max(batch.records(), key=lambda each: each.timestamp_ms)
        return OffsetPosition(record.offset, record.timestamp_ms, batch.leader_epoch)

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader begins an epoch at the log's end, whether or not it ever writes in it."""
        if not self.epochs or self.epochs[-1][0] < leader_epoch:
            self.epochs.append((leader_epoch, self.end_offset))

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which an offset was or would be written; -1 in a log never written to."""
        row = bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1
        return self.epochs[row][0] if row >= 0 else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above the given one, and the offset at which it ended.

        Of an epoch before all known ones nothing is left: it ended where the first known one begins. Of one after all known ones nothing
        can be said: (-1, -1).

        Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.endOffsetFor.
        """
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end_offset
        row = bisect_right(self.epochs, epoch, key=lambda entry: entry[0]) - 1
        return self.epochs[row][0] if row >= 0 else epoch, self.epochs[row + 1][1]

    def delete_old_segments(self, retention_ms: int, retention_bytes: int, wall_ms: int) -> int:
        """Drops whole segments from the front by age and by size; the active one too, if all of it is too old.

        Args:
            retention_ms: -1 for no limit.
            retention_bytes: -1 for no limit.
            wall_ms: the time now.

        Returns:
            Segments dropped.
        """
        dropped = 0
        excess = self.size_bytes - retention_bytes if retention_bytes >= 0 else -1
        for segment in self.segments:
            newest_ms = segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.written_ms
            too_old = retention_ms >= 0 and wall_ms - newest_ms > retention_ms
            too_much = excess >= segment.size and segment is not self.segments[-1]
            if not (too_old or too_much):
                break
            excess -= segment.size
            dropped += 1
        if dropped:
            del self.segments[:dropped]
            self.start_offset = self.segments[0].base_offset if self.segments else self.end_offset
        return dropped
