"""Log directories, and one partition's storage in one of them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkacore import errors
from kafkacore._codec import LogDirCore
from kafkacore.broker.log import checkpoints, recovery
from kafkacore.broker.log.disk import SNAPSHOT_SUFFIX, SUFFIXES, TXN_INDEX_SUFFIX, DiskSegment, file_name, sync_file, write_whole
from kafkacore.broker.log.log import Log, LogSettings, Storage
from kafkacore.broker.log.segment import Segment
from kafkacore.config_values import INT64_MAX

logger = logging.getLogger(__name__)


_NOT_OF_THE_DISK = (errno.EMFILE, errno.ENFILE, errno.EINTR)


def is_transient(outcome: object) -> bool:
    """Whether an operation failed for want of a free file descriptor, or because of a signal: of no disk, and it may succeed later."""
    return isinstance(outcome, OSError) and outcome.errno in _NOT_OF_THE_DISK


class LogDir(LogDirCore):
    """One directory of log.dirs. The first error of its disk takes it offline for good: what the disk did with the data is not known.

    Attributes:
        held: how many logs are open in it.
    """

    def __init__(self, path: Path, on_failure: Callable[[LogDir], None]) -> None:
        self.path = path
        self.id = bytes(16)  # known when its meta.properties has been read
        self.failure = None
        self.dirty = False
        self.held = 0
        self._on_failure = on_failure
        self._reported_transient = False

    def fail(self, error: OSError, *, must_finish: bool = False) -> errors.KafkaStorage:
        """Takes the directory offline, unless the error is not one of its disk: that is for who asked, and may not come again.

        Args:
            error: of an operation.
            must_finish: what it left half done cannot be tried again.

        Returns:
            The error for the client.
        """
        if is_transient(error) and not must_finish:
            if not self._reported_transient:                  # once: each caller that is refused gets the error
                self._reported_transient = True
                logger.error("log directory %s stays online, but an operation failed: %s", self.path, error)
            return errors.KafkaStorage(f"log directory {self.path}: {error}; the directory stays online")
        if self.failure is None:
            self.failure = str(error)
            logger.error("log directory %s is offline: %s", self.path, error)
            self._on_failure(self)
        return errors.KafkaStorage(f"log directory {self.path} is offline: {error}")

    def check(self) -> None:
        """Refuses to work after a failure.

        Raises:
            KafkaStorage: the directory is offline.
        """
        if self.failure is not None:
            raise errors.KafkaStorage(f"log directory {self.path} is offline: {self.failure}")

    @contextlib.contextmanager
    def io(self, *, must_finish: bool = False) -> Iterator[None]:
        """Around file operations: their errors take the directory offline, as `fail` says.

        Args:
            must_finish: what an error leaves half done cannot be tried again.

        Raises:
            KafkaStorage: an operation failed, or one failed before.
        """
        self.check()
        try:
            yield
        except OSError as error:
            raise self.fail(error, must_finish=must_finish) from error
        self._reported_transient = False


class LogHooks(NamedTuple):
    """What the log manager does for a log.

    Attributes:
        delete_later: deletes files after so many milliseconds.
        rolled: a segment ended; has it written to the disk up to an offset.
        schedule_flush: has the log written to the disk when flush.ms has passed.
        truncated: the log ends at this offset now.
    """

    delete_later: Callable[[LogDir, list[Path], int], None]
    rolled: Callable[[Log, int], None]
    schedule_flush: Callable[[Log], None]
    truncated: Callable[[int], None]


class DirectoryStorage(Storage):
    """A partition's directory."""

    def __init__(self, log_dir: LogDir, path: Path, hooks: LogHooks) -> None:
        """Names a directory.

        Args:
            log_dir: it lies in.
            path: of the partition.
            hooks: what the log manager does for it.
        """
        self.log_dir = log_dir
        self.path = path
        self._hooks = hooks
        self._unsaved_epochs = False                          # their file lacks some, for want of a file descriptor
        self._unsynced_epochs = False
        self._snapshot_offset = -1

    def create(self, base_offset: int, needed_bytes: int, previous: Segment | None, config: LogSettings, wall_ms: int) -> Segment:
        with self.log_dir.io():
            if isinstance(previous, DiskSegment):
                previous.trim()
                previous.save_index(complete=True)
            reserve = max(config.segment_bytes, needed_bytes) if config.preallocate else 0
            return DiskSegment.create(self.path, base_offset, config.index_interval_bytes, wall_ms, preallocate_bytes=reserve)

    def drop(self, segments: Sequence[Segment], delay_ms: int) -> None:
        self._drop(segments, delay_ms)

    def _drop(self, segments: Sequence[Segment], delay_ms: int, keep_snapshot_of: int | None = None) -> None:
        doomed = []
        with self.log_dir.io():
            for segment in segments:
                suffixes = SUFFIXES if segment.base_offset == keep_snapshot_of else (*SUFFIXES, SNAPSHOT_SUFFIX)
                for suffix in suffixes:
                    path = self.path / file_name(segment.base_offset, suffix)
                    renamed = path.with_name(path.name + recovery.DELETED)
                    if delay_ms <= 0:
                        path.unlink(missing_ok=True)
                    else:
                        with contextlib.suppress(FileNotFoundError):
                            os.replace(path, renamed)
                            doomed.append(renamed)
        if doomed:
            self._hooks.delete_later(self.log_dir, doomed, delay_ms)

    def swap(self, segments: Sequence[Segment], cleaned: Segment, delay_ms: int) -> None:
        assert isinstance(cleaned, DiskSegment)
        with self.log_dir.io():
            cleaned.rename(recovery.SWAP)                     # from here on it is what a restart goes on with
            self._drop(segments, delay_ms, keep_snapshot_of=cleaned.base_offset)
            cleaned.rename("")

    def epochs_changed(self, epochs: list[tuple[int, int]]) -> None:
        self._unsynced_epochs = True
        with self.log_dir.io():
            try:
                checkpoints.write_epochs(self.path / checkpoints.LEADER_EPOCHS, epochs)
            except OSError as error:
                if not is_transient(error):
                    raise
                # The log has them; the file gets them before the recovery point moves, and recovery learns those of later batches.
                self._unsaved_epochs = True
                self.log_dir.fail(error)
            else:
                self._unsaved_epochs = False

    def save_epochs(self, log: Log) -> None:
        """Writes the leader epochs if that was not possible when they changed."""
        if self._unsaved_epochs:
            with self.log_dir.io():
                checkpoints.write_epochs(self.path / checkpoints.LEADER_EPOCHS, log.epochs)
            self._unsaved_epochs = False

    def rolled(self, log: Log, base_offset: int) -> None:
        self.save_snapshot(log, base_offset)
        self._hooks.rolled(log, base_offset)

    def save_snapshot(self, log: Log, offset: int) -> None:
        """Writes the producers, as of an offset."""
        with self.log_dir.io():
            write_whole(self.path / file_name(offset, SNAPSHOT_SUFFIX), log.producers.to_snapshot())
        self._snapshot_offset = offset

    def loaded(self, log: Log) -> None:
        """The log was read from its files."""
        if (self.path / file_name(log.end_offset, SNAPSHOT_SUFFIX)).exists():
            self._snapshot_offset = log.end_offset

    def is_settled(self, log: Log) -> bool:
        """Whether a clean shutdown has nothing to write: all that the log has is on the disk, and its files say so."""
        last = log.segments[-1] if log.segments else None
        return (
            isinstance(last, DiskSegment)
            and not self._unsaved_epochs
            and not last.is_unsaved
            and log.recovery_point >= log.end_offset
            # Without a record the epochs tell nothing that a crash may not forget.
            and (not self._unsynced_epochs or log.end_offset == log.start_offset)
            and (self._snapshot_offset == log.end_offset or not (log.end_offset or log.producers.entries))
        )

    def truncated(self, log: Log) -> None:
        self._snapshot_offset = -1
        self._hooks.truncated(log.end_offset)
        with self.log_dir.io(must_finish=True):               # the producers are those of another end until they are loaded
            for path in recovery.snapshots(self.path):
                if path > self.path / file_name(log.end_offset, SNAPSHOT_SUFFIX):
                    path.unlink()
            recovery.load_producers(log, self.path, log.end_offset)
        if not log.segments:
            log.roll(-1)

    def appended(self, log: Log) -> None:
        self.log_dir.dirty = True
        config = log.config
        if log.end_offset - log.recovery_point >= config.flush_messages:
            log.flush()
        elif config.flush_ms != INT64_MAX:
            self._hooks.schedule_flush(log)

    def start_moved(self) -> None:
        self.log_dir.dirty = True

    def sync(self, log: Log) -> None:
        with self.log_dir.io():
            for segment in self.unsynced(log, log.end_offset):
                segment.save_index(complete=False)
                segment.sync()
            self.save_epochs(log)
            sync_file(self.path / checkpoints.LEADER_EPOCHS)
            sync_file(self.path)
        self._unsynced_epochs = False

    def kept_beside(self, segments: Sequence[DiskSegment]) -> list[Path]:
        """What recovery does not build again below the recovery point, and must therefore be on the disk before it moves."""
        return [self.path / checkpoints.LEADER_EPOCHS, *(segment.path(TXN_INDEX_SUFFIX) for segment in segments if segment.aborted)]

    def unsynced(self, log: Log, upper_offset: int) -> list[DiskSegment]:
        """The segments with records from the recovery point to an offset."""
        ends = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
        return [
            segment
            for segment, end in zip(log.segments, ends, strict=True)
            if isinstance(segment, DiskSegment) and end > log.recovery_point and segment.base_offset < upper_offset
        ]

    def close(self, log: Log) -> None:
        for segment in log.segments:
            if isinstance(segment, DiskSegment):
                segment.close()

    def check(self) -> None:
        if self.log_dir.failure is not None:
            self.log_dir.check()

    def failed(self, error: OSError) -> errors.KafkaStorage:
        return self.log_dir.fail(error)
