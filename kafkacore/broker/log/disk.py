"""A segment on disk, in Kafka's files.

Rules:

1. The file's bytes below `size` are whole batches; nothing is read beyond it. What a failed write left there is cut off at once.
   [test_a_disk_error_is_told_and_nothing_of_the_batch_stays, test_a_torn_tail_is_cut_off_and_the_rest_stays]
2. Every append is one gathering write at `size`. Nothing is held back in this process: what was acknowledged survives its death.
   [test_what_is_appended_is_in_the_file_at_once, test_acknowledged_records_survive_sigkill]
3. The sparse index has Kafka's entries (see index.py). Beside it the last batches written are known exactly, since that is where
   consumers and followers read; everything else is found by an index entry and a walk over headers.
   [test_the_last_batches_are_found_without_a_walk_and_older_ones_from_an_index_entry]
4. Segments that were there at the start know only their size until more is asked for. Descriptors are opened when needed.
   [test_a_segment_that_was_there_is_a_size_until_more_is_asked_for]
"""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkacore._codec import DiskSegmentCore, SharedFile, write_at
from kafkacore.broker.log.headers import NO_TIMESTAMP, PREFIX_BYTES, Span, spans_in
from kafkacore.broker.log.index import SparseIndex
from kafkacore.broker.log.segment import NO_OFFSET, Segment
from kafkacore.broker.producers import AbortedTxn
from kafkacore.errors import CorruptDataError
from kafkacore.private_files import FILE_MODE, open_file, write_file

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_TIME_ENTRY = struct.Struct(">qi")
_SCAN_BYTES = 16 * 1024


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: the offset with 20 digits."""
    return f"{base_offset:020d}{suffix}"


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file's content so that after a crash it has the old or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, content)
    os.replace(temporary, path)


class DiskSegment(DiskSegmentCore, Segment):
    """One segment and its files. What is done for each batch and each read is compiled: native/log.pxi.

    Attributes:
        directory: of the partition.
        is_last: batches may still come, so the files of its indexes do not say all.
        suffix: after the names of its files: none, or that of a segment the cleaner is writing.
    """

    __slots__ = (
        "_preallocated",
        "_saved_aborted",
        "directory",
        "is_last",
        "suffix",
    )

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int, wall_ms: int, suffix: str = "") -> None:
        """Names a segment; `create` or `open` makes it usable."""
        super().__init__(base_offset, wall_ms)
        self.directory = directory
        self.suffix = suffix
        self._index_interval_bytes = index_interval_bytes
        self._bytes_since_entry = 0
        self._file = None
        self._index = None
        self._largest = None
        self._preallocated = False
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._saved_aborted = 0
        self.is_last = True

    _index: SparseIndex | None

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, index_interval_bytes: int, wall_ms: int, *, preallocate_bytes: int = 0, suffix: str = ""
    ) -> DiskSegment:
        """A new, empty segment; whatever has its name is emptied.

        Raises:
            OSError: the files cannot be made.
        """
        self = cls(directory, base_offset, index_interval_bytes, wall_ms, suffix)
        self._file = SharedFile(os.open(self.path(LOG_SUFFIX), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        if os.fstat(self._file.fileno()).st_size:             # what was cut to nothing, even from nothing, ext4 writes back at its close
            os.ftruncate(self._file.fileno(), 0)
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            self.path(kind).unlink(missing_ok=True)
        if preallocate_bytes:
            os.posix_fallocate(self._file.fileno(), 0, preallocate_bytes)
            self._preallocated = True
        self._index = SparseIndex(base_offset)
        self._index.changed = True                            # so that the files come into being, if only empty
        self._largest = NO_TIMESTAMP, NO_OFFSET
        return self

    @classmethod
    def open(cls, directory: Path, base_offset: int, index_interval_bytes: int) -> DiskSegment:
        """A segment that is there; its size is believed.

        Raises:
            OSError: its files cannot be read.
            CorruptDataError: its transaction index is broken.
        """
        self = cls(directory, base_offset, index_interval_bytes, 0)
        status = self.path(LOG_SUFFIX).stat()
        self.size = status.st_size
        self.created_ms = self.written_ms = status.st_mtime_ns // 1_000_000
        try:
            content = self.path(TXN_INDEX_SUFFIX).read_bytes()
        except FileNotFoundError:
            content = b""
        self.aborted = list(AbortedTxn.decode_all(content))
        self._saved_aborted = len(self.aborted)
        return self

    def path(self, suffix: str) -> Path:
        """One of its files."""
        return self.directory / (file_name(self.base_offset, suffix) + self.suffix)

    @property
    def file(self) -> SharedFile:
        """The .log file, opened when first asked for; closed with its last user: responses that are being sent outlive a segment."""
        if self._file is None:
            self._file = SharedFile(os.open(self.path(LOG_SUFFIX), os.O_RDWR | os.O_CLOEXEC))
        return self._file

    # ---- indexes

    @property
    def index(self) -> SparseIndex:
        """Read from its files when first asked for; built again if they are missing or broken."""
        if self._index is None:
            try:
                self._index = SparseIndex.read(
                    self.base_offset, self.path(INDEX_SUFFIX).read_bytes(), self.path(TIME_INDEX_SUFFIX).read_bytes(), self.size
                )
            except (FileNotFoundError, CorruptDataError):
                self.rebuild_index()
            else:
                self._bytes_since_entry = self.size - self._index.positions[-1] if self._index.positions else self.size
        assert self._index is not None
        return self._index

    def rebuild_index(self) -> None:
        """Builds both indexes from the headers of all batches."""
        self.begin_index()
        for span in self.spans():
            self.note(span.position, span.size_bytes, span.last_offset, span.max_timestamp_ms)

    def begin_index(self) -> None:
        """Empties the indexes, to note all batches again."""
        self._index = SparseIndex(self.base_offset)
        self._index.changed = True
        self._largest = NO_TIMESTAMP, NO_OFFSET
        self._bytes_since_entry = 0
        del self._recent_offsets[:], self._recent_positions[:]

    def largest_timestamp(self) -> tuple[int, int]:
        if self._largest is None:
            self._largest = self._last_time_entry()
        if self._largest is None:
            index = self.index
            largest_ms, last_offset = (index.timestamps[-1], index.time_offsets[-1]) if index.timestamps else (NO_TIMESTAMP, NO_OFFSET)
            for span in self.spans(index.position_before(last_offset) if last_offset >= 0 else 0):
                if span.max_timestamp_ms > largest_ms or last_offset < 0:
                    largest_ms, last_offset = span.max_timestamp_ms, span.last_offset
            self._largest = largest_ms, last_offset
        return self._largest

    def _last_time_entry(self) -> tuple[int, int] | None:
        """What the .timeindex file of a finished segment ends with, so that retention need not read whole indexes."""
        if self.is_last:
            return None
        try:
            with self.path(TIME_INDEX_SUFFIX).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if not size or size % _TIME_ENTRY.size:
                    return None
                file.seek(-_TIME_ENTRY.size, os.SEEK_END)
                timestamp_ms, relative = _TIME_ENTRY.unpack(file.read(_TIME_ENTRY.size))
        except FileNotFoundError:
            return None
        return (timestamp_ms, self.base_offset + relative) if timestamp_ms > 0 and relative >= 0 else None

    @property
    def is_unsaved(self) -> bool:
        """Whether its other files lack something. Of an empty segment they say nothing, and need not be there."""
        index = self._index
        return self._preallocated or len(self.aborted) != self._saved_aborted or (index is not None and index.changed and self.size > 0)

    def save_index(self, *, complete: bool) -> None:
        """Writes the index files if they changed.

        Args:
            complete: the segment ends here or the broker stops: the time index gets its last entry.

        Raises:
            OSError: they cannot be written.
        """
        if self._index is None:
            return
        if complete:
            largest_ms, last_offset = self.largest_timestamp()
            if last_offset >= 0:
                self._index.add_time(largest_ms, last_offset)
        if self._index.changed:
            write_file(self.path(INDEX_SUFFIX), self._index.offset_bytes())
            write_file(self.path(TIME_INDEX_SUFFIX), self._index.time_bytes())
            self._index.changed = False
        self.save_aborted()

    def add_aborted(self, transaction: AbortedTxn) -> None:
        super().add_aborted(transaction)
        self.save_aborted()

    def save_aborted(self) -> None:
        """Brings the .txnindex file up to date; without aborted transactions it does not exist."""
        if len(self.aborted) < self._saved_aborted:
            write_whole(self.path(TXN_INDEX_SUFFIX), b"".join(each.encode() for each in self.aborted))
        elif len(self.aborted) > self._saved_aborted:
            with open_file(self.path(TXN_INDEX_SUFFIX), "ab") as file:
                file.write(b"".join(each.encode() for each in self.aborted[self._saved_aborted :]))
        self._saved_aborted = len(self.aborted)

    def forget_aborted(self) -> None:
        """Empties the transaction index, for recovery to fill it again."""
        self.aborted = []
        self.save_aborted()

    # ---- writing

    def write(self, pieces: Sequence[bytes | bytearray | memoryview], nbytes: int) -> int:
        """Adds bytes at the end.

        Raises:
            OSError: they are not written, not even partly.
        """
        position, fd = self.size, (self._file or self.file).fileno()
        try:
            written = write_at(fd, pieces, position)
            while written < nbytes:                           # a signal, or the disk is nearly full: the next call says which
                written += write_at(fd, [memoryview(b"".join(pieces))[written:]], position + written)
        except OSError:
            if not self._preallocated:
                os.ftruncate(fd, position)
            raise
        self.size = position + nbytes
        return position

    def prepare_to_append(self) -> None:
        """Makes a segment that was opened ready for `note`."""
        self.index  # noqa: B018 - reads or builds it
        self.largest_timestamp()

    def truncated(self, position: int) -> DiskSegment:
        if position >= self.size:
            return self
        index, offset = self.index, NO_OFFSET
        for span in self.spans(index.last_position_within(position)):
            if span.position >= position:
                offset = span.last_offset
                break
        os.ftruncate(self.file.fileno(), position)
        self.size = position
        if offset >= 0:
            index.truncate(offset)
            self.aborted = [each for each in self.aborted if each.last_offset < offset]
            self.save_aborted()
        row = bisect_left(self._recent_positions, position)
        del self._recent_offsets[row:], self._recent_positions[row:]
        self._bytes_since_entry = position - (index.positions[-1] if index.positions else 0)
        self._largest = None
        self._preallocated = False
        if not position:
            self.rolling_ms = None                            # another batch will be the first
        self.largest_timestamp()
        return self

    def trim(self) -> None:
        """Cuts off what was preallocated."""
        if self._preallocated:
            os.ftruncate(self.file.fileno(), self.size)
            self._preallocated = False

    def sync(self) -> None:
        """Waits until everything is on the disk; the worker's part of a flush.

        Raises:
            OSError: it is not.
        """
        os.fsync(self.file.fileno())
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            sync_file(self.path(suffix))

    def rename(self, suffix: str) -> None:
        """Gives its files another suffix.

        Raises:
            OSError: they could not be renamed.
        """
        for kind in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path(kind), self.directory / (file_name(self.base_offset, kind) + suffix))
        self.suffix = suffix

    def unlink(self) -> None:
        """Removes its files."""
        for kind in SUFFIXES:
            self.path(kind).unlink(missing_ok=True)

    def close(self) -> None:
        """Lets go of the file; responses that use it keep it open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # ---- finding

    def _position_before_recent(self, offset: int) -> int:
        for span in self.spans(self.index.position_before(offset)):
            if span.last_offset >= offset:
                return span.position
        return self.size

    def offset_at(self, position: int) -> int | None:
        found = []
        for positions, offsets in ((self._recent_positions, self._recent_offsets), (self.index.positions, self.index.offsets)):
            row = bisect_left(positions, position)
            if row < len(positions):
                found.append(offsets[row])
        return min(found, default=None)

    def position_of_last_entry(self) -> int:
        if self._recent_positions:
            return self._recent_positions[-1]
        return self.index.positions[-1] if self.index.positions else 0

    def _whole_batches_by_index(self, start: int, end: int, max_bytes: int) -> int:
        limit = start + max_bytes
        stop = self.index.last_position_within(limit)
        if stop > start:
            return stop
        stop = start
        for span in self.spans(start):
            if span.position + span.size_bytes > limit:
                break
            stop = span.position + span.size_bytes
        return stop

    def bytes_at(self, start: int, end: int) -> bytes:
        return self.pread(start, end - start)

    def pread(self, position: int, nbytes: int) -> bytes:
        """Bytes of the file; fewer only at its end."""
        return os.pread(self.file.fileno(), nbytes, position)

    def time_hint(self, timestamp_ms: int) -> int:
        if self.largest_timestamp()[0] < timestamp_ms:
            return self.size
        return self.index.position_before(self.index.offset_before_time(timestamp_ms - 1))

    def spans(self, position: int = 0) -> Iterator[Span]:
        """The batches from a position on, whole ones only.

        Raises:
            CorruptDataError: what lies at the position is no batch.
        """
        while position < self.size:
            chunk = self.pread(position, min(_SCAN_BYTES, self.size - position))
            start = position
            for span in spans_in(chunk, position):
                position = span.position + span.size_bytes
                if position > self.size:
                    return
                yield span
            if position == start:
                if len(chunk) > PREFIX_BYTES:
                    raise CorruptDataError(f"{self.path(LOG_SUFFIX)}: there is no batch at position {position}", offset=position)
                return


def sync_file(path: Path) -> None:
    """fsync of a file or directory by name; nothing if it does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
