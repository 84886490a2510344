"""One partition's log: segments, offsets, leader epochs, producers.

Rules:

1. Offsets only grow. A leader's batches follow each other without gaps; compaction and replication leave gaps.
   [test_offsets_follow_each_other_and_the_stored_batch_carries_offset_and_epoch,
   test_a_replicated_batch_that_lies_before_the_end_is_refused]
2. Bytes below `end_offset` never change while they are part of the log, so a view or slice handed to a response stays true; it keeps its
   memory or file alive after deletion. Truncation writes what follows to fresh memory; a slice of a truncated file ends its connection.
   [test_what_was_read_stays_when_the_log_is_truncated_and_written_again, test_a_view_outlives_its_segment,
   test_a_file_cut_under_a_slice_breaks_the_write]
3. Only whole segments are deleted; the active one is the last. `start_offset` may lie inside a segment (DeleteRecords).
   [test_retention_by_size_drops_whole_old_segments, test_a_start_within_a_segment_takes_the_whole_ones_before_it_and_no_more]
4. What storage cannot do is a KafkaStorage error for the client, and the log directory is offline from then on: no operation is tried again
   there, so nothing can be acknowledged that is not written. [test_a_disk_error_is_told_and_nothing_of_the_batch_stays]
5. `recovery_point`: everything below it is on the disk. After a crash the segments from there on are read and checked (recovery.py).
   [test_recovery_keeps_what_was_synced_and_a_prefix_of_the_rest,
   test_before_the_recovery_point_moves_all_that_recovery_believes_is_on_the_disk]

Source: org.apache.kafka.storage.internals.log.{UnifiedLog, LocalLog, LogSegments}, LeaderEpochFileCache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from kafkacore import errors
from kafkacore._codec import LogCore
from kafkacore.broker.log.headers import NO_TIMESTAMP, Span, stamped
from kafkacore.broker.log.index import MAX_RELATIVE_OFFSET
from kafkacore.broker.log.segment import MemorySegment, OffsetPosition, Segment
from kafkacore.broker.producers import AbortedTxn, ProducerStates, collect_aborted
from kafkacore.records import Batch, read_batches

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
SEGMENT_MIN_BYTES = 1 << 20
SEGMENT_MAX_BYTES = 16 << 20


class LogSettings(Protocol):
    """The topic settings a log goes by; `TopicConfig` has them."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def max_segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def flush_messages(self) -> int: ...
    @property
    def flush_ms(self) -> int: ...
    @property
    def file_delete_delay_ms(self) -> int: ...
    @property
    def preallocate(self) -> bool: ...


class Storage(ABC):
    """Where a log keeps its segments and what stands beside them. The methods raise KafkaStorage."""

    @abstractmethod
    def create(self, base_offset: int, needed_bytes: int, previous: Segment | None, config: LogSettings, wall_ms: int) -> Segment:
        """A new active segment; `previous` ends."""

    @abstractmethod
    def drop(self, segments: Sequence[Segment], delay_ms: int) -> None:
        """Deletes segments, their files after a delay."""

    @abstractmethod
    def swap(self, segments: Sequence[Segment], cleaned: Segment, delay_ms: int) -> None:
        """A cleaned segment takes the place of some segments, also for a broker that opens the log after a crash."""

    @abstractmethod
    def epochs_changed(self, epochs: list[tuple[int, int]]) -> None:
        """Keeps the leader epochs."""

    @abstractmethod
    def rolled(self, log: Log, base_offset: int) -> None:
        """A segment ended: keeps the producers as they are before an offset, and makes sure that the segment gets to the disk."""

    @abstractmethod
    def truncated(self, log: Log) -> None:
        """The log ends earlier than it did: what was kept beyond its end is thrown away, and the producers are as of its end again."""

    @abstractmethod
    def appended(self, log: Log) -> None:
        """The log has grown; by flush.messages it may have to be on the disk before anybody hears of it."""

    @abstractmethod
    def start_moved(self) -> None:
        """The log begins later: a start within a segment is to be kept, too."""

    @abstractmethod
    def sync(self, log: Log) -> None:
        """Waits until everything from the recovery point on is on the disk."""

    @abstractmethod
    def close(self, log: Log) -> None:
        """Lets go of files."""

    @abstractmethod
    def check(self) -> None:
        """Refuses to work after a failure.

        Raises:
            KafkaStorage: the log directory is offline.
        """

    @abstractmethod
    def failed(self, error: OSError) -> errors.KafkaStorage:
        """Takes the log directory offline; the error for the client."""


class MemoryStorage(Storage):
    """Segments in memory: blocks double from 1 MiB up to 16 MiB or segment.bytes, and one larger batch gets a block of its own.

    When the last view of a block is gone it returns to the pool, and the next segment finds it warm: page faults are most of the cost of
    writing fresh memory.
    """

    def __init__(
        self,
        rolled: Callable[[Log], None] = lambda log: None,
        truncated: Callable[[int], None] = lambda offset: None,
        grew: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        """Holds nothing itself.

        Args:
            rolled: called with a log that got a new segment.
            truncated: called with the new end of a log that was cut.
            grew: called with the bytes of a new segment.
        """
        self._rolled = rolled
        self._truncated = truncated
        self._grew = grew

    def create(self, base_offset: int, needed_bytes: int, previous: Segment | None, config: LogSettings, wall_ms: int) -> Segment:
        capacity = previous.capacity * 2 if isinstance(previous, MemorySegment) else SEGMENT_MIN_BYTES
        capacity = max(min(capacity, config.segment_bytes, SEGMENT_MAX_BYTES), needed_bytes)
        self._grew(capacity)
        return MemorySegment(base_offset, capacity, wall_ms)

    def drop(self, segments: Sequence[Segment], delay_ms: int) -> None:
        return None

    def swap(self, segments: Sequence[Segment], cleaned: Segment, delay_ms: int) -> None:
        return None

    def epochs_changed(self, epochs: list[tuple[int, int]]) -> None:
        return None

    def rolled(self, log: Log, base_offset: int) -> None:
        self._rolled(log)

    def truncated(self, log: Log) -> None:
        self._truncated(log.end_offset)
        log.replay_producers(ProducerStates(), log.start_offset, log.end_offset)

    def appended(self, log: Log) -> None:
        return None

    def start_moved(self) -> None:
        return None

    def sync(self, log: Log) -> None:
        return None

    def close(self, log: Log) -> None:
        return None

    def check(self) -> None:
        return None

    def failed(self, error: OSError) -> errors.KafkaStorage:
        return errors.KafkaStorage(str(error))


class Log(LogCore):
    """A partition's batches, their offsets and leader epochs. What is done for each batch and each read is compiled: native/log.pxi."""

    segments: list[Segment]
    producers: ProducerStates
    config: LogSettings
    storage: Storage

    def __init__(self, config: LogSettings, storage: Storage | None = None, jitter: Callable[[int], int] = lambda limit: 0) -> None:
        """An empty log; `recovery.load` fills one from files.

        Args:
            config: the topic's settings; may be replaced while the log is in use.
            storage: memory if left out.
            jitter: a random number of milliseconds up to segment.jitter.ms, drawn for each segment.
        """
        self.config = config
        self.storage = storage or MemoryStorage()
        self.segments = []
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.epochs = []
        self.producers = ProducerStates()
        self.truncations = 0
        self._jitter = jitter
        self._jitter_ms = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches held."""
        return sum(segment.size for segment in self.segments)

    # ---- writing

    def _stamped(
        self, batch: Batch, base_offset: int, leader_epoch: int, max_timestamp_ms: int, append_time_ms: int | None
    ) -> tuple[bytes | bytearray, memoryview]:
        return stamped(batch, base_offset, leader_epoch, max_timestamp_ms, append_time_ms)

    def append_replicated(self, data: memoryview | bytes, wall_ms: int = NO_TIMESTAMP) -> int:
        """Adds what a follower fetched from its leader: whole batches, with their offsets and epochs as they are.

        Args:
            data: batches that follow the log's end; one cut off at the end is left out.
            wall_ms: the time now.

        Returns:
            The log's end afterwards.

        Raises:
            CorruptDataError: a CRC is wrong. The batches before it are written.
            OffsetOutOfRange: a batch begins before the log's end. The batches before it are written.
            KafkaStorage: nothing more could be written.
        """
        view = memoryview(data)
        pending: list[Batch] = []                             # batches that go into the active segment with one write
        try:
            for batch in read_batches(view, check_crcs=True):
                next_offset = pending[-1].next_offset if pending else self.end_offset
                base_offset = batch.base_offset
                if base_offset < next_offset:
                    raise errors.OffsetOutOfRange(f"the batch at {base_offset} lies before the log's end {next_offset}", offset=base_offset)
                nbytes = batch.position - pending[0].position + batch.size_bytes if pending else batch.size_bytes
                if pending and not self._fits(self.segments[-1], nbytes, batch.max_timestamp_ms, batch.last_offset, wall_ms):
                    whole, pending = pending, []
                    self._write_replicated(view, whole, wall_ms)
                if not pending:
                    self._segment_for(batch.size_bytes, batch.max_timestamp_ms, batch.last_offset, wall_ms, base_offset)
                pending.append(batch)
        except (errors.CorruptDataError, errors.OffsetOutOfRange):
            self._write_replicated(view, pending, wall_ms)
            raise
        self._write_replicated(view, pending, wall_ms)
        return self.end_offset

    def _write_replicated(self, data: memoryview, batches: list[Batch], wall_ms: int) -> None:
        if not batches:
            return
        segment, start = self.segments[-1], batches[0].position
        nbytes = batches[-1].position + batches[-1].size_bytes - start
        try:
            shift = segment.write((data[start : start + nbytes],), nbytes) - start
        except OSError as error:
            raise self.storage.failed(error) from error
        segment.written_ms = wall_ms
        for batch in batches:
            last_offset, max_timestamp_ms = batch.last_offset, batch.max_timestamp_ms
            segment.note(batch.position + shift, batch.size_bytes, last_offset, max_timestamp_ms)
            if segment.rolling_ms is None:
                segment.rolling_ms = max_timestamp_ms
            self.epoch_written(batch.leader_epoch, batch.base_offset)
            self.end_offset = last_offset + 1
            if batch.producer_id >= 0:
                self._replay_producer(batch, batch.base_offset, max_timestamp_ms)
        self.grown()

    def _replay_producer(self, batch: Batch, base_offset: int, max_timestamp_ms: int) -> None:
        aborted = self.producers.replay(batch, base_offset, max_timestamp_ms)
        if aborted is not None:
            try:
                self.segments[-1].add_aborted(aborted)
            except OSError as error:
                raise self.storage.failed(error) from error

    def flush(self) -> None:
        """Waits until everything written is on the disk.

        Raises:
            KafkaStorage: it is not.
        """
        self.storage.check()
        self.storage.sync(self)
        self.recovery_point = self.end_offset

    def close(self) -> None:
        """Lets go of files; the log can be asked for its offsets, but not read or written any more."""
        self.storage.close(self)

    def _segment_for(self, nbytes: int, max_timestamp_ms: int, last_offset: int, wall_ms: int, first_offset: int | None = None) -> Segment:
        """The active segment, a new one if the batch must not go into the last."""
        self.storage.check()
        if self.segments:
            segment = self.segments[-1]
            try:
                fits = self._fits(segment, nbytes, max_timestamp_ms, last_offset, wall_ms)
            except OSError as error:                          # of reading: a segment that was opened is asked when it began
                raise self.storage.failed(error) from error
            if fits:
                return segment
            if not segment.size and segment.has_room(nbytes) and last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
                return segment                                # one batch larger than segment.bytes: a roll would not help
        if first_offset is None or (not self.segments and last_offset - self.end_offset <= MAX_RELATIVE_OFFSET):
            first_offset = self.end_offset
        return self._roll(first_offset, nbytes, wall_ms)

    def _roll(self, base_offset: int, needed_bytes: int, wall_ms: int) -> Segment:
        previous = self.segments[-1] if self.segments else None
        if previous is not None and not previous.size:
            self.storage.drop([self.segments.pop()], 0)       # its base offset is too far behind, or it is too small
            previous = self.segments[-1] if self.segments else None
        segment = self.storage.create(base_offset, needed_bytes, previous, self.config, wall_ms)
        self.segments.append(segment)
        if previous is not None:
            self.storage.rolled(self, base_offset)
        config = self.config
        self._jitter_ms = self._jitter(min(config.segment_jitter_ms, config.max_segment_ms)) if config.segment_jitter_ms else 0
        return segment

    def roll(self, wall_ms: int) -> None:
        """Begins a new segment at the log's end, unless an empty one lies there."""
        self.storage.check()
        if not self.segments or self.segments[-1].size:
            self._roll(self.end_offset, 0, wall_ms)

    # ---- shortening

    def truncate_to(self, offset: int) -> bool:
        """Drops records from an offset on, as a follower does whose leader has others there; a batch that holds the offset goes as a whole.
        So do leader epochs that begin there without a record: this broker led, wrote nothing, and another leader begins another epoch.

        Args:
            offset: where the log ends afterwards, if it was longer. Below the log's start everything goes, and the log begins there.

        Returns:
            Whether anything was dropped.

        Raises:
            CorruptDataError: the offset cannot be found; nothing was dropped.
            KafkaStorage: the files could not be cut.
        """
        if offset >= self.end_offset:
            self._forget_epochs(self.end_offset)
            return False
        if not self.segments or self.segments[0].base_offset > offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self.storage.check()
        row = self._segment_row(offset)
        segment = self.segments[row]
        try:
            position = segment.position_of(offset)            # first: a damaged segment cannot tell, and then nothing is dropped
            self.truncations += 1
            gone = self.segments[row + 1 :]
            del self.segments[row + 1 :]
            self.storage.drop(gone[::-1], 0)                  # the newest first: a crash on the way leaves no hole
            self.segments[row] = segment.truncated(position)
        except OSError as error:
            raise self.storage.failed(error) from error
        self._end_at(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log goes on at an offset.

        Raises:
            KafkaStorage: the files could not be removed.
        """
        self.storage.check()
        self.truncations += 1
        gone, self.segments = self.segments, []
        self.storage.drop(gone[::-1], 0)
        self.start_offset = self.end_offset = offset
        self._forget_epochs(0)
        self._end_at(offset)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._forget_epochs(offset)
        self.storage.truncated(self)

    def _forget_epochs(self, offset: int) -> None:
        kept = [each for each in self.epochs if each[1] < offset]
        if kept != self.epochs:
            self.epochs = kept
            self.storage.epochs_changed(kept)

    def advance_start(self, offset: int) -> bool:
        """The log begins later: records below an offset are not readable any more, and segments wholly below it are deleted.

        Args:
            offset: at most the high watermark.

        Returns:
            Whether the start moved.

        Raises:
            OffsetOutOfRange: the offset lies beyond the log's end.
        """
        if offset > self.end_offset:
            raise errors.OffsetOutOfRange(f"the log ends at {self.end_offset}", offset=offset)
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.storage.start_moved()
        dropped = 0
        while dropped + 1 < len(self.segments) and self.segments[dropped + 1].base_offset <= offset:
            dropped += 1
        self._drop_first(dropped)
        self._epochs_start_at(offset)
        self.producers.start_offset_updated(offset)
        return True

    def _epochs_start_at(self, offset: int) -> None:
        row = bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1
        if row > 0 or (row == 0 and self.epochs[0][1] < offset):
            self.epochs[: row + 1] = [(self.epochs[row][0], offset)]
            self.storage.epochs_changed(self.epochs)

    def _drop_first(self, count: int) -> None:
        if count:
            gone = self.segments[:count]
            del self.segments[:count]
            self.storage.drop(gone, self.config.file_delete_delay_ms)

    def replace(self, base_offsets: Sequence[int], cleaned: Segment) -> bool:
        """Puts a cleaned segment in the place of those it was made of.

        Args:
            base_offsets: of the segments, which follow each other; none of them is the active one.
            cleaned: begins at the first of these offsets.

        Returns:
            False if one of them is not there any more; nothing was changed then.

        Raises:
            KafkaStorage: the files could not be renamed.
        """
        row = self._segment_row(base_offsets[0])
        old = self.segments[row : row + len(base_offsets)]
        if [segment.base_offset for segment in old] != list(base_offsets) or row + len(old) >= len(self.segments):
            return False
        self.storage.swap(old, cleaned, self.config.file_delete_delay_ms)
        self.segments[row : row + len(old)] = [cleaned]
        return True

    def delete_old_segments(self, retention_ms: int, retention_bytes: int, wall_ms: int, upper_offset: int | None = None) -> int:
        """Drops whole segments from the front by age and by size; the active one too, if all of it is too old or none of it may stay.

        Args:
            retention_ms: -1 for no limit.
            retention_bytes: -1 for no limit.
            wall_ms: the time now.
            upper_offset: the high watermark: nothing from it on is dropped; the log's end if left out.

        Returns:
            Segments dropped.

        Raises:
            CorruptDataError: a segment cannot be read for its timestamps.
            KafkaStorage: the disk refuses.
        """
        upper_offset = self.end_offset if upper_offset is None else upper_offset
        try:
            dropped = self._count_old(retention_ms, retention_bytes, wall_ms, upper_offset)
        except OSError as error:
            raise self.storage.failed(error) from error
        if dropped:
            if dropped == len(self.segments):
                self._roll(self.end_offset, 0, wall_ms)
            self.start_offset = max(self.start_offset, self.segments[dropped].base_offset)
            self._drop_first(dropped)
            self._epochs_start_at(self.start_offset)
            self.producers.start_offset_updated(self.start_offset)
        return dropped

    def _count_old(self, retention_ms: int, retention_bytes: int, wall_ms: int, upper_offset: int) -> int:
        dropped = 0
        excess = self.size_bytes - retention_bytes if retention_bytes >= 0 else -1
        for row, segment in enumerate(self.segments):
            is_last = row + 1 == len(self.segments)
            next_offset = self.end_offset if is_last else self.segments[row + 1].base_offset
            counts = segment.size > 0 or not is_last           # compaction may empty a segment
            too_old = retention_ms >= 0 and counts and wall_ms - segment.newest_ms() > retention_ms
            too_much = excess >= segment.size and counts
            below_start = next_offset <= self.start_offset and not is_last
            if not (too_old or too_much or below_start) or next_offset > upper_offset:
                break
            excess -= segment.size
            dropped += 1
        return dropped

    # ---- reading

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes of the batches a read of offset..upper_offset would return without a limit."""
        if offset >= upper_offset or not self.segments:
            return 0
        self.storage.check()
        first_row, last_row = self._segment_row(offset), self._segment_row(upper_offset)
        first, last = self.segments[first_row], self.segments[last_row]
        try:
            end = last.size if upper_offset >= self.end_offset else last.position_of(upper_offset)
            if first is last:
                return max(end - first.position_of(offset), 0)
            between = sum(segment.size for segment in self.segments[first_row + 1 : last_row])
            return first.size - first.position_of(offset) + between + end
        except OSError as error:
            raise self.storage.failed(error) from error

    def segment_base(self, offset: int) -> int:
        """The base offset of the segment that holds an offset; an empty log's first segment will begin at its end."""
        return self.segments[self._segment_row(offset)].base_offset if self.segments else self.end_offset

    def offset_after(self, offset: int, nbytes: int) -> int:
        """An offset beyond those of so many bytes read from an offset, and not far beyond. Source: LogSegment.fetchUpperBoundOffset."""
        row = self._segment_row(offset)
        try:
            position = self.segments[row].position_of(offset) + nbytes
            while row + 1 < len(self.segments) and position >= self.segments[row].size:
                position -= self.segments[row].size
                row += 1
            found = self.segments[row].offset_at(position)
        except OSError as error:
            raise self.storage.failed(error) from error
        if found is not None:
            return found
        return self.segments[row + 1].base_offset if row + 1 < len(self.segments) else self.end_offset

    def offset_for_timestamp(self, timestamp_ms: int, upper_offset: int) -> OffsetPosition | None:
        """The first record at or after a time, below `upper_offset`; None without such a record."""
        self.storage.check()
        try:
            for segment in self.segments:
                if segment.base_offset >= upper_offset:
                    break
                if segment.largest_timestamp()[0] < timestamp_ms:
                    continue
                found = segment.offset_for_timestamp(timestamp_ms, self.start_offset, upper_offset)
                if found is not None:
                    return found
        except OSError as error:
            raise self.storage.failed(error) from error
        return None

    def max_timestamp(self, upper_offset: int) -> OffsetPosition | None:
        """The first record with the largest timestamp, below `upper_offset`; None in an empty log."""
        self.storage.check()
        found: tuple[Segment, Span] | None = None
        try:
            for segment in self.segments:
                if segment.base_offset >= upper_offset:
                    break
                span = segment.max_timestamp(upper_offset)
                if span is not None and (found is None or span.max_timestamp_ms > found[1].max_timestamp_ms):
                    found = segment, span
            if found is None:
                return None
            batch = found[0].batch_at(found[1])
        except OSError as error:
            raise self.storage.failed(error) from error
        columns = batch.columns()
        if not len(columns):                                  # compaction emptied the batch
            return OffsetPosition(batch.last_offset, batch.max_timestamp_ms, batch.leader_epoch)
        row = int(columns.timestamps_ms.argmax())
        return OffsetPosition(int(columns.offsets[row]), int(columns.timestamps_ms[row]), batch.leader_epoch)

    def offsets_before(self, timestamp_ms: int, upper_offset: int, wall_ms: int) -> list[int]:
        """Where segments begin that were last written before a time, as ListOffsets v0 tells it.

        Args:
            timestamp_ms: the time; -1 for the end of the log and all segments, -2 for its start alone.
            upper_offset: the end, as far as the reader may see.
            wall_ms: the time now.

        Returns:
            Offsets in descending order.

        Source: kafka.log.LogManager.fetchOffsetsBefore of 0.8.2.
        """
        known = [(max(segment.base_offset, self.start_offset), segment.written_ms) for segment in self.segments]
        known = known or [(self.start_offset, wall_ms)]
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return [known[0][0]]
        if not self.segments or self.segments[-1].size:
            known.append((self.end_offset, wall_ms))
        if timestamp_ms != LATEST_TIMESTAMP:
            known = [each for each in known if each[1] <= timestamp_ms]
        offsets = sorted({offset for offset, _ in known}, reverse=True)
        if offsets and offsets[0] > upper_offset:
            return [upper_offset, *(offset for offset in offsets if offset < upper_offset)]
        return offsets

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that readers of committed records from offset to upper_offset must leave out."""
        found: list[AbortedTxn] = []
        for segment in self.segments[self._segment_row(offset) :]:
            some, complete = collect_aborted(segment.aborted, offset, upper_offset)
            found += some
            if complete:
                break
        return found

    # ---- leader epochs

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader begins an epoch at the log's end, whether or not it ever writes in it."""
        if not self.epochs or self.epochs[-1][0] < leader_epoch:
            self.epoch_written(leader_epoch, self.end_offset)

    def epoch_written(self, leader_epoch: int, offset: int) -> None:
        """A batch of an epoch begins at an offset. Later starts of the same or a newer epoch are wrong then, and forgotten."""
        if leader_epoch < 0 or (self.epochs and self.epochs[-1][0] == leader_epoch and self.epochs[-1][1] <= offset):
            return
        kept = len(self.epochs)
        while kept and (self.epochs[kept - 1][0] >= leader_epoch or self.epochs[kept - 1][1] > offset):
            kept -= 1
        epochs = [*self.epochs[:kept], (leader_epoch, offset)]
        self.storage.epochs_changed(epochs)  # first: what the disk refuses is not in memory either, and may be tried again
        self.epochs = epochs

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
        if epoch == -1 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.end_offset
        row = bisect_right(self.epochs, epoch, key=lambda entry: entry[0]) - 1
        return self.epochs[row][0] if row >= 0 else epoch, self.epochs[row + 1][1]

    # ---- producers

    def replay_producers(self, producers: ProducerStates, from_offset: int, upper_offset: int) -> None:
        """Takes over producers known up to an offset, and what the log says of them from there on.

        Args:
            producers: as of from_offset.
            from_offset: where to begin.
            upper_offset: where to stop.
        """
        for segment in self.segments[self._segment_row(from_offset) :]:
            if segment.base_offset >= upper_offset or from_offset >= upper_offset:
                break
            for span in segment.spans(segment.position_of(from_offset)):
                if span.base_offset >= upper_offset:
                    break
                producers.replay(segment.batch_at(span))
        self.producers = producers
