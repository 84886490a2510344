"""The offset and time index of a segment: the files, and what of them is held in memory.

    .index       8 bytes an entry: int32 last offset of a batch - base offset, int32 position of that batch
    .timeindex   12 bytes: int64 largest timestamp so far, int32 offset of the batch that has it - base offset

Rules:

1. An entry is added with the first batch after more than index.interval.bytes since the last one; its time entry only if time moved on.
   [test_an_entry_comes_with_the_first_batch_behind_the_interval_and_a_time_entry_only_if_time_went_on]
2. Entries rise in offset and position, or in time. A running Kafka leaves zeros behind them, since it maps the files at full length: what
   does not rise ends the index. [test_zeros_end_an_index_and_what_falls_breaks_it]
3. Both indexes are hints that recovery builds again; they are held in memory and written when the segment is flushed, rolled or closed.
   [test_indexes_are_built_anew_when_they_are_missing_or_broken, test_indexes_are_written_when_their_segment_is_flushed_ends_or_is_closed]

Source: org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex}.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

import numpy

from kafkacore._codec import IndexCore
from kafkacore.config_values import INT32_MAX
from kafkacore.errors import CorruptDataError

OFFSET_ENTRY = numpy.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = numpy.dtype([("timestamp", ">i8"), ("offset", ">i4")])
MAX_RELATIVE_OFFSET = INT32_MAX


class SparseIndex(IndexCore):
    """The offset and time index of one segment, in memory, with absolute offsets."""

    __slots__ = ()

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("q")
        self.positions = array("q")
        self.timestamps = array("q")
        self.time_offsets = array("q")
        self.changed = False

    def position_before(self, offset: int) -> int:
        """The position of a batch that begins at or before the one with this offset."""
        row = bisect_right(self.offsets, offset) - 1
        return self.positions[row] if row >= 0 else 0

    def last_position_within(self, position: int) -> int:
        """The last indexed position not beyond this one; 0 without such an entry."""
        row = bisect_right(self.positions, position) - 1
        return self.positions[row] if row >= 0 else 0

    def offset_before_time(self, timestamp_ms: int) -> int:
        """No batch that ends before this offset is as new as the time."""
        row = bisect_right(self.timestamps, timestamp_ms) - 1
        return self.time_offsets[row] if row >= 0 else self.base_offset

    def truncate(self, offset: int) -> None:
        """Forgets entries from an offset on."""
        row = bisect_left(self.offsets, offset)
        del self.offsets[row:], self.positions[row:]
        row = bisect_left(self.time_offsets, offset)
        del self.timestamps[row:], self.time_offsets[row:]
        self.changed = True

    # ---- bytes

    def offset_bytes(self) -> bytes:
        """The content of the .index file."""
        entries = numpy.empty(len(self.offsets), OFFSET_ENTRY)
        entries["offset"] = numpy.frombuffer(self.offsets, "i8") - self.base_offset if self.offsets else 0
        entries["position"] = self.positions
        return entries.tobytes()

    def time_bytes(self) -> bytes:
        """The content of the .timeindex file."""
        entries = numpy.empty(len(self.timestamps), TIME_ENTRY)
        entries["timestamp"] = self.timestamps
        entries["offset"] = numpy.frombuffer(self.time_offsets, "i8") - self.base_offset if self.time_offsets else 0
        return entries.tobytes()

    @classmethod
    def read(cls, base_offset: int, offset_bytes: bytes, time_bytes: bytes, size: int) -> SparseIndex:
        """An index from its two files.

        Args:
            base_offset: of the segment.
            offset_bytes, time_bytes: contents of the files.
            size: bytes of the segment; entries must lie in it.

        Raises:
            CorruptDataError: the files cannot belong to this segment; they must be built again.
        """
        index = cls(base_offset)
        entries = _whole(offset_bytes, OFFSET_ENTRY)
        offsets, positions = entries["offset"].astype("i8"), entries["position"].astype("i8")
        count = min(_rising(offsets, first_at_least=0), _rising(positions, first_at_least=1))
        if count < len(entries) and entries[count:].tobytes().strip(b"\0"):
            raise CorruptDataError("the offset index does not rise")
        if count and positions[count - 1] >= size:
            raise CorruptDataError("the offset index points beyond the segment's end")
        index.offsets.frombytes((offsets[:count] + base_offset).tobytes())
        index.positions.frombytes(positions[:count].tobytes())
        entries = _whole(time_bytes, TIME_ENTRY)
        timestamps, offsets = entries["timestamp"].astype("i8"), entries["offset"].astype("i8")
        count = _rising(timestamps, first_at_least=0)
        if count < len(entries) and entries[count:].tobytes().strip(b"\0"):
            raise CorruptDataError("the time index does not rise")
        if count and (numpy.any(numpy.diff(offsets[:count]) < 0) or offsets[0] < 0):
            raise CorruptDataError("the offsets of the time index fall")
        index.timestamps.frombytes(timestamps[:count].tobytes())
        index.time_offsets.frombytes((offsets[:count] + base_offset).tobytes())
        return index


def _whole(content: bytes, entry: numpy.dtype[numpy.void]) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.void]]:
    if len(content) % entry.itemsize:
        raise CorruptDataError(f"{len(content)} bytes are not a multiple of {entry.itemsize}, the size of an index entry")
    return numpy.frombuffer(content, entry)


def _rising(values: numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]], first_at_least: int) -> int:
    """How many values from the first one on rise strictly."""
    if not len(values) or values[0] < first_at_least:
        return 0
    breaks = numpy.flatnonzero(numpy.diff(values) <= 0)
    return int(breaks[0]) + 1 if len(breaks) else len(values)
