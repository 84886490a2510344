"""All logs of a broker: where they lie, opening and deleting them, and the checkpoints of each log directory.

Layout of a log directory, as Kafka's:

    topic-0/  topic-1/ ...          partitions; `topic-0.<id>-delete` while one is being deleted
    recovery-point-offset-checkpoint  replication-offset-checkpoint  log-start-offset-checkpoint
    meta.properties  .lock  .kafka_cleanshutdown

Rules:

1. Without directories logs are in memory and live as long as the manager. With directories `start` takes them (one broker at a time, by a
   lock) and `close` gives them back; opening a log reads what is there. [test_another_broker_cannot_use_the_directory,
   test_a_log_goes_on_where_it_stopped, test_stop_and_start_keep_port_data_and_raise_the_epoch]
2. Everything is done by the owner's thread but fsync and deletion, which the worker does. What came of it is noted only if the log was not
   truncated in the meantime. [test_a_flush_counts_when_the_worker_is_done_with_it_unless_the_log_was_truncated,
   test_a_cleaning_lets_go_of_files_nobody_wants]
3. A recovery point is checkpointed after the data is on the disk, never before.
   [test_an_idle_manager_has_no_deadline_and_a_busy_one_checkpoints,
   test_what_is_flushed_when_high_watermarks_are_written_is_checkpointed_too]
4. An idle manager has no deadline. [test_an_idle_manager_has_no_deadline_and_a_busy_one_checkpoints]

Source: org.apache.kafka.storage.internals.log.LogManager.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import heapq
import logging
import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkacore import errors
from kafkacore.broker.log import checkpoints, recovery
from kafkacore.broker.log.compactor import Compactor
from kafkacore.broker.log.directory import DirectoryStorage, LogDir, LogHooks, is_transient
from kafkacore.broker.log.disk import DiskSegment, sync_file
from kafkacore.broker.log.log import Log, LogSettings, MemoryStorage
from kafkacore.broker.worker import InlineWorker, Worker
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import UsageError
from kafkacore.private_files import DIRECTORY_MODE, FILE_MODE, make_directory, write_file

logger = logging.getLogger(__name__)

_DELETE_SUFFIX = "-delete"
_NOT_REMOVED = "a deleted log's files could not be removed: %s"
_MAX_FILE_NAME = 255
RETRY_MS = 1_000
"""After which time something is tried again that failed for want of a file descriptor."""
Key = tuple[str, int]
_Write = Callable[[LogDir, Callable[[], None], Callable[[], None]], None]
"""Writes a checkpoint: its directory, what writes it, and what has it written again later."""


class LogDirReplica(NamedTuple):
    """One partition in a log directory."""

    topic: str
    partition: int
    size_bytes: int


class LogDirDescription(NamedTuple):
    """A log directory: its path, what took it offline (None while it works), its partitions, and the file system's bytes (-1 unknown)."""

    path: str
    failure: str | None
    replicas: list[LogDirReplica]
    total_bytes: int
    usable_bytes: int


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        dirs: Sequence[str | os.PathLike[str]] | None,
        worker: Worker,
        clock: Clock,
        cleaner: Worker | None = None,
    ) -> None:
        """Knows no log yet.

        Args:
            config: intervals and limits.
            dirs: log.dirs; None keeps everything in memory.
            worker: does what waits for the disk.
            clock: the time.
            cleaner: compacts; a long cleaning holds back neither fsync nor checkpoints then. By default the worker.
        """
        self.config = config
        self.logs: dict[Key, Log] = {}
        self.high_watermarks: Callable[[], Mapping[Key, int]] = lambda: {key: log.end_offset for key, log in self.logs.items()}
        """Where `replication-offset-checkpoint` gets its offsets; a partition that is replicated knows better."""
        self.on_memory_growth: Callable[[int], None] = lambda nbytes: None
        """Called with the bytes of each new segment in memory."""
        self.on_dir_failure: Callable[[list[Key]], None] = lambda keys: None
        """Called with the partitions that went offline with their directory."""
        self.broker_epoch = -1
        """Of the broker's last registration: by it a Kafka that comes next finds that nothing was lost since (KIP-966)."""
        self.is_open = dirs is None
        self.directories = [LogDir(Path(path).absolute(), self._dir_failed) for path in dirs or ()]
        self._worker = worker
        self._clock = clock
        self._random = random.Random()
        self._locks: list[int] = []
        self._clean: set[Path] = set()
        self._recovery_points: dict[Key, int] = {}
        self._start_offsets: dict[Key, int] = {}
        self._loaded_high_watermarks: dict[Key, int] = {}
        self._loaded: dict[Path, dict[Key, int]] = {}
        """What the checkpoints said at the start; it stays in them for partitions that are not opened yet, or never by this broker."""
        self._saved: dict[Path, dict[Key, int]] = {}
        self._doomed: list[tuple[int, int, list[Path]]] = []  # (due, number, files or directories), a heap
        self._number = 0
        self._flushes: list[tuple[int, int, Log]] = []  # (due, number, log), a heap
        self._to_flush: set[Log] = set()
        self._open_logs: set[Log] = set()
        self.last_stable_offset: Callable[[Key], int] = lambda key: self.logs[key].end_offset
        """Of a partition: compaction touches nothing from there on."""
        self.compactor = Compactor(config, self.logs, cleaner or worker, clock, lambda key: self.last_stable_offset(key), self._cleaned)
        self._high_watermarks_due_ms: int | None = None
        self._offsets_due_ms: int | None = None

    @classmethod
    def in_memory(cls) -> LogManager:
        """Logs in memory, for tests and tools without a broker."""
        return cls(BrokerConfig(), None, InlineWorker(), SystemClock())

    @property
    def on_disk(self) -> bool:
        """Whether logs outlive the process."""
        return bool(self.directories)

    @property
    def is_offline(self) -> bool:
        """Whether logs are on disk and no directory works any more."""
        return bool(self.directories) and all(log_dir.failure is not None for log_dir in self.directories)

    def failures(self) -> str:
        """The directories that do not work, and why."""
        return "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in self.directories if log_dir.failure is not None)

    def directory_ids(self) -> tuple[list[bytes], list[bytes]]:
        """The ids of the directories that work, and of those that do not, where they are known."""
        known = [log_dir for log_dir in self.directories if any(log_dir.id)]
        return [each.id for each in known if each.failure is None], [each.id for each in known if each.failure is not None]

    def directory_of(self, log: Log) -> bytes | None:
        """The id of the directory that a log lies in; None for one in memory."""
        log_dir = _dir_of(log)
        return None if log_dir is None else log_dir.id

    def has_failed(self, log: Log) -> bool:
        """Whether a log's directory is offline."""
        log_dir = _dir_of(log)
        return log_dir is not None and log_dir.failure is not None

    # ---- life

    def start(self, properties: Mapping[str, str] | None = None) -> None:
        """Takes the log directories; nothing without any, or if they are taken.

        Args:
            properties: what meta.properties shall say (cluster.id, node.id). A directory that says otherwise is another broker's.

        Raises:
            UsageError: a directory is in use or another broker's.
            KafkaStorage: none of the directories can be used.
        """
        if self.is_open:
            return
        for log_dir in self.directories:
            log_dir.failure = None
            try:
                make_directory(log_dir.path)
                self._lock(log_dir.path)
                log_dir.id = self._check_owner(log_dir.path, properties or {})
                self._read(log_dir.path)
            except OSError as error:
                log_dir.fail(error, must_finish=True)
            except BaseException:
                self._unlock()
                raise
        if self.is_offline:
            self._unlock()
            raise errors.KafkaStorage(f"no log directory can be used: {self.failures()}")
        self.is_open = True

    def _lock(self, path: Path) -> None:
        fd = os.open(path / checkpoints.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise UsageError(f"log directory {path} is in use by another broker") from None
        self._locks.append(fd)

    def _unlock(self) -> None:
        for fd in self._locks:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a forked child has the descriptor too
            os.close(fd)
        self._locks.clear()

    def _check_owner(self, path: Path, wanted: Mapping[str, str]) -> bytes:
        """Returns the directory's id."""
        file = path / checkpoints.META_PROPERTIES
        found = checkpoints.read_meta_properties(file)
        for name, value in wanted.items():
            if found.get(name, value) != value:
                raise UsageError(f"{file} says {name}={found[name]}, this broker has {value}: the directory belongs to another one")
        try:
            directory_id = checkpoints.decode_id(found.get("directory.id", ""))
        except ValueError:  # a new one, or of a Kafka before 3.7
            directory_id = uuid.uuid4().bytes
            checkpoints.write_meta_properties(
                file, {"version": "1", **found, **wanted, "directory.id": checkpoints.encode_id(directory_id)}
            )
        return directory_id

    def _read(self, path: Path) -> None:
        for name, offsets in (
            (checkpoints.RECOVERY_POINTS, self._recovery_points),
            (checkpoints.START_OFFSETS, self._start_offsets),
            (checkpoints.CLEANER_OFFSETS, self.compactor.cleaned_to),
            (checkpoints.HIGH_WATERMARKS, self._loaded_high_watermarks),
        ):
            self._loaded[path / name] = checkpoints.read_offsets(path / name)
            offsets.update(self._loaded[path / name])
        marker = path / checkpoints.CLEAN_SHUTDOWN
        if marker.exists():
            self._clean.add(path)
            marker.unlink()
        for entry in path.iterdir():
            if entry.name.endswith(_DELETE_SUFFIX):
                shutil.rmtree(entry)

    def close(self, clean: bool = True) -> None:
        """Gives the log directories back; logs in memory stay.

        Args:
            clean: write everything to the disk and say so, so that the next start need not look at the segments.
        """
        if not self.is_open or not self.on_disk:
            return
        for _, _, paths in self._doomed:
            try:
                _remove(paths)
            except OSError as error:                              # the next start removes what is left
                logger.warning(_NOT_REMOVED, error)
        self._doomed.clear()
        if clean:
            unclean = self._flush_all()
            unclean |= self.checkpoint()
            for log_dir in self.directories:
                if log_dir.failure is None and log_dir not in unclean:
                    try:
                        if log_dir.path in self._clean or not self._unopened(log_dir.path):
                            write_file(log_dir.path / checkpoints.CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":%d}' % self.broker_epoch)
                            sync_file(log_dir.path)
                    except OSError as error:
                        log_dir.fail(error)
        for log in self.logs.values():
            log.close()
        self.logs.clear()
        self._clean.clear()
        self._saved.clear()
        self._flushes.clear()
        self._to_flush.clear()
        self._open_logs.clear()
        for log_dir in self.directories:
            log_dir.held = 0
        self._unlock()
        self.is_open = False

    def _unopened(self, path: Path) -> bool:
        """Whether partitions lie there that were not looked at since the last crash."""
        opened = {log.storage.path.name for log in self.logs.values() if isinstance(log.storage, DirectoryStorage)}
        return any(
            (entry / checkpoints.PARTITION_METADATA).exists() and entry.name not in opened and not entry.name.endswith(_DELETE_SUFFIX)
            for entry in path.iterdir()
        )

    def _flush_all(self) -> set[LogDir]:
        """Brings to the disk what is not there yet.

        Returns:
            The directories where that was not possible for every log.
        """
        unclean = set()
        for log in self.logs.values():
            storage = log.storage
            assert isinstance(storage, DirectoryStorage)
            if storage.is_settled(log):
                continue
            try:
                with storage.log_dir.io():
                    last = log.segments[-1]
                    assert isinstance(last, DiskSegment)
                    last.trim()
                    last.save_index(complete=True)
                log.flush()
                storage.save_snapshot(log, log.end_offset)
            except errors.KafkaStorage as error:
                unclean.add(storage.log_dir)
                if storage.log_dir.failure is None:  # else its directory has reported it
                    logger.error("%s is not closed cleanly: %s", storage.path, error)
        return unclean

    def _dir_failed(self, log_dir: LogDir) -> None:
        self.on_dir_failure([key for key, log in self.logs.items() if _dir_of(log) is log_dir])

    # ---- logs

    def open(self, topic: str, topic_id: bytes, index: int, config: LogSettings, *, is_new: bool = True) -> Log:
        """The log of a partition: what its directory holds, or a new one.

        Args:
            topic, topic_id, index: the partition. A directory of a topic of this name but another id is deleted.
            config: the topic's settings.
            is_new: False for a partition that may have had a log here before: while a log directory is offline it is not created again.

        Raises:
            KafkaStorage: the disk refuses, the log is damaged, or it may lie in a directory that is offline.
        """
        key = topic, index
        log = self.logs.get(key)
        if log is not None:
            return log
        if not self.on_disk:
            truncated = functools.partial(self.compactor.truncated, key)
            log = self.logs[key] = Log(config, MemoryStorage(self.compactor.look_soon, truncated, self.on_memory_growth))
            return log
        log_dir, path = self._place(topic, index, is_new)
        with log_dir.io():
            found = checkpoints.read_partition_metadata(path) if path.exists() else None
            if found is not None and found != topic_id:
                logger.warning("%s belongs to an earlier topic of this name and is deleted", path)
                self._delete_directory(log_dir, path, 0)
            if not path.exists():
                path.mkdir(DIRECTORY_MODE)
                self._forget(key)
            if found != topic_id:
                checkpoints.write_partition_metadata(path, topic_id)
            hooks = LogHooks(
                self._delete_later,
                self._rolled,
                self._schedule_flush,
                functools.partial(self._truncated, key),
            )
            storage = DirectoryStorage(log_dir, path, hooks)
            log = Log(config, storage, lambda limit_ms: self._random.randint(0, limit_ms))
            try:
                recovery.load(
                    log,
                    path,
                    clean=log_dir.path in self._clean,
                    recovery_point=self._recovery_points.get(key, 0),
                    start_offset=self._start_offsets.get(key, 0),
                    wall_ms=self._clock.wall_ms(),
                )
            except errors.CorruptDataError as problem:        # in a segment that was believed; the other partitions are well
                raise errors.KafkaStorage(f"{path} cannot be read: {problem}", topic=topic, partition=index) from problem
            storage.loaded(log)
        self.logs[key] = log
        self._open_logs.add(log)
        log_dir.held += 1
        self.compactor.look_soon(log)
        return log

    def _rolled(self, log: Log, base_offset: int) -> None:
        self._flush_or_retry(log, base_offset)
        self.compactor.look_soon(log)

    def _truncated(self, key: Key, offset: int) -> None:
        self.compactor.truncated(key, offset)
        # Soon: what is written next would be believed to be on the disk as far as the recovery point in the file says.
        self._offsets_due_ms = self._clock.now_ms()

    def _place(self, topic: str, index: int, is_new: bool) -> tuple[LogDir, Path]:
        """Where a partition lies, or the directory with the fewest."""
        name = f"{topic}-{index}"
        for log_dir in self.directories:
            if (log_dir.path / name).is_dir():
                return log_dir, log_dir.path / name
        working = [log_dir for log_dir in self.directories if log_dir.failure is None]
        if not working:
            raise errors.KafkaStorage("all log directories are offline")
        if not is_new and len(working) < len(self.directories):
            raise errors.KafkaStorage(f"{name} may lie in a log directory that is offline")
        chosen = min(working, key=lambda log_dir: log_dir.held)
        return chosen, chosen.path / name

    def high_watermark(self, topic: str, index: int) -> int:
        """The high watermark a partition had when it was checkpointed last; 0 if it never was."""
        return self._loaded_high_watermarks.get((topic, index), 0)

    def delete(self, topic: str, index: int) -> None:
        """Deletes a partition's log; the files go after file.delete.delay.ms, or stay where the directory is offline."""
        log = self.logs.pop((topic, index), None)
        self._forget((topic, index))
        if log is None or not isinstance(log.storage, DirectoryStorage):
            return
        log.close()
        self._open_logs.discard(log)
        log.storage.log_dir.held -= 1
        with contextlib.suppress(errors.KafkaStorage), log.storage.log_dir.io():
            self._delete_directory(log.storage.log_dir, log.storage.path, log.config.file_delete_delay_ms)

    def remove_strays(self, is_held: Callable[[bytes, int], bool]) -> None:
        """Deletes what was deleted, or given to other brokers, while this one was away. Source: LogManager.isStrayReplica.

        Args:
            is_held: whether this broker has a replica of a partition, by topic id and number.
        """
        for log_dir in self.directories:
            if log_dir.failure is None:
                with contextlib.suppress(errors.KafkaStorage), log_dir.io():
                    for path in list(log_dir.path.iterdir()):
                        topic, _, index = path.name.rpartition("-")
                        if not topic or not index.isdecimal() or not path.is_dir() or (topic, int(index)) in self.logs:
                            continue
                        topic_id = checkpoints.read_partition_metadata(path)
                        if topic_id is not None and not is_held(topic_id, int(index)):
                            logger.warning("%s belongs to no partition of this broker any more and is deleted", path)
                            self._forget((topic, int(index)))
                            self._delete_directory(log_dir, path, self.config.log_segment_delete_delay_ms)

    def _forget(self, key: Key) -> None:
        known = (self._recovery_points, self._start_offsets, self._loaded_high_watermarks, self.compactor.cleaned_to)
        for offsets in (*known, *self._loaded.values()):
            offsets.pop(key, None)

    def _delete_directory(self, log_dir: LogDir, path: Path, delay_ms: int) -> None:
        suffix = f".{uuid.uuid4().hex}{_DELETE_SUFFIX}"
        renamed = path.with_name(path.name[: _MAX_FILE_NAME - len(suffix)] + suffix)
        path.rename(renamed)
        self._delete_later(log_dir, [renamed], delay_ms)

    # ---- the worker's part

    def _delete_later(self, log_dir: LogDir, paths: list[Path], delay_ms: int) -> None:
        self._number += 1
        heapq.heappush(self._doomed, (self._clock.now_ms() + delay_ms, self._number, paths))

    def flush_later(self, log: Log, upper_offset: int) -> None:
        """Has the worker write a log to the disk up to an offset."""
        storage = log.storage
        if not isinstance(storage, DirectoryStorage) or upper_offset <= log.recovery_point:
            return
        with storage.log_dir.io():
            segments = storage.unsynced(log, upper_offset)
            storage.save_epochs(log)
            for segment in segments:
                segment.save_index(complete=False)
            # Descriptors that a slice keeps open: the log may be deleted in the meantime.
            files = [(segment.file.fileno(), segment.slice(0, 0)) for segment in segments]
        beside = storage.kept_beside(segments)
        truncations, log_dir, path = log.truncations, storage.log_dir, storage.path

        def sync() -> None:
            for fd, _ in files:
                os.fsync(fd)
            for each in beside:
                sync_file(each)
            sync_file(path)

        def done(outcome: Exception | None) -> None:
            if isinstance(outcome, OSError):
                log_dir.fail(outcome)
                if is_transient(outcome):
                    self._schedule_flush(log, RETRY_MS)
            elif isinstance(outcome, Exception):
                raise outcome
            elif log.truncations == truncations:
                log.recovery_point = max(log.recovery_point, upper_offset)
                log_dir.dirty = True

        self._worker.submit(sync, done)

    # ---- now and then

    def next_deadline_ms(self) -> int | None:
        """When `advance_clock` has something to do; None for nothing."""
        if not self.directories:
            return self.compactor.next_deadline_ms()
        earliest_ms = self.compactor.next_deadline_ms()           # plain steps, for every turn of the broker's loop comes by here
        if self._high_watermarks_due_ms is None or self._offsets_due_ms is None:
            for log_dir in self.directories:
                if log_dir.dirty:
                    self._plan_checkpoints()
                    break
        for deadline_ms in (self._high_watermarks_due_ms, self._offsets_due_ms):
            if deadline_ms is not None and (earliest_ms is None or deadline_ms < earliest_ms):
                earliest_ms = deadline_ms
        for heap in (self._doomed, self._flushes):
            if heap and (earliest_ms is None or heap[0][0] < earliest_ms):
                earliest_ms = heap[0][0]
        return earliest_ms

    def _plan_checkpoints(self) -> None:
        now_ms = self._clock.now_ms()
        self._saw_all()
        if self._high_watermarks_due_ms is None:
            self._high_watermarks_due_ms = now_ms + self.config.replica_high_watermark_checkpoint_interval_ms
        if self._offsets_due_ms is None:
            self._offsets_due_ms = now_ms + self.config.log_flush_offset_checkpoint_interval_ms

    def _saw_all(self) -> None:
        for log_dir in self.directories:
            log_dir.dirty = False

    def advance_clock(self) -> bool:
        """Does what is due: deletes files, flushes by flush.ms, writes checkpoints.

        Returns:
            Whether anything was.
        """
        deadline_ms, now_ms = self.next_deadline_ms(), self._clock.now_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return False
        while self._doomed and self._doomed[0][0] <= now_ms:
            paths = heapq.heappop(self._doomed)[2]
            self._worker.submit(functools.partial(_remove, paths), functools.partial(self._removed, paths))
        while self._flushes and self._flushes[0][0] <= now_ms:
            log = heapq.heappop(self._flushes)[2]
            self._to_flush.discard(log)
            if log in self._open_logs:
                self._flush_or_retry(log, log.end_offset)
        self.compactor.advance_clock()
        if self._high_watermarks_due_ms is not None and self._high_watermarks_due_ms <= now_ms:
            self._high_watermarks_due_ms = None
            if self._offsets_due_ms is not None:                  # else what was flushed just now is still to be planned for
                self._saw_all()
            self._save(checkpoints.HIGH_WATERMARKS, self.high_watermarks(), self._later)
        if self._offsets_due_ms is not None and self._offsets_due_ms <= now_ms:
            self._offsets_due_ms = None
            self._save_offsets(self._later)
        return True

    def _schedule_flush(self, log: Log, delay_ms: int | None = None) -> None:
        """What was just written is on the disk after a time, or by flush.ms."""
        if log not in self._to_flush and log in self._open_logs:
            self._to_flush.add(log)
            self._number += 1
            due_ms = self._clock.now_ms() + (log.config.flush_ms if delay_ms is None else delay_ms)
            heapq.heappush(self._flushes, (due_ms, self._number, log))

    def _flush_or_retry(self, log: Log, upper_offset: int) -> None:
        try:
            self.flush_later(log, upper_offset)
        except errors.KafkaStorage:                           # reported by the directory
            if not self.has_failed(log):
                self._schedule_flush(log, RETRY_MS)

    def _removed(self, paths: list[Path], outcome: Exception | None) -> None:
        # Not empty: a cleaning of the log was under way when it was deleted, and wrote into the directory.
        if is_transient(outcome) or (isinstance(outcome, OSError) and outcome.errno == errno.ENOTEMPTY):
            self._number += 1
            heapq.heappush(self._doomed, (self._clock.now_ms() + RETRY_MS, self._number, paths))
        elif isinstance(outcome, Exception):
            logger.warning(_NOT_REMOVED, outcome)

    def checkpoint(self) -> set[LogDir]:
        """Writes all checkpoints that have changed, now.

        Returns:
            The directories where not all could be written.
        """
        self._high_watermarks_due_ms = self._offsets_due_ms = None
        unsaved: set[LogDir] = set()

        def now(log_dir: LogDir, write: Callable[[], None], again: Callable[[], None]) -> None:
            try:
                write()
            except OSError as error:
                log_dir.fail(error)
                again()
                unsaved.add(log_dir)

        self._save(checkpoints.HIGH_WATERMARKS, self.high_watermarks(), now)
        self._save_offsets(now)
        return unsaved

    def _save_offsets(self, write: _Write) -> None:
        self._save(checkpoints.RECOVERY_POINTS, {key: log.recovery_point for key, log in self.logs.items()}, write)
        starts = {
            key: log.start_offset for key, log in self.logs.items() if log.segments and log.start_offset > log.segments[0].base_offset
        }
        self._save(checkpoints.START_OFFSETS, starts, write)
        self._save(checkpoints.CLEANER_OFFSETS, self.compactor.cleaned_to, write)

    def _cleaned(self) -> None:
        for log_dir in self.directories:
            log_dir.dirty = True

    def _save(self, name: str, offsets: Mapping[Key, int], write: _Write) -> None:
        for log_dir in self.directories:
            if log_dir.failure is None:
                place = log_dir.path / name
                here = {key: offset for key, offset in self._loaded.get(place, {}).items() if key not in self.logs}
                here.update((key, offset) for key, offset in offsets.items() if key in self.logs and _dir_of(self.logs[key]) is log_dir)
                if self._saved.get(place) != here:
                    self._saved[place] = here
                    again = functools.partial(self._unsaved, log_dir, place)
                    write(log_dir, functools.partial(checkpoints.write_offsets, place, here), again)

    def _unsaved(self, log_dir: LogDir, place: Path) -> None:
        """A checkpoint was not written: it is written again when its time comes."""
        self._saved.pop(place, None)
        log_dir.dirty = True

    def _later(self, log_dir: LogDir, write: Callable[[], None], again: Callable[[], None]) -> None:
        """By the worker: a checkpoint is synced, and no call waits for it."""

        def done(outcome: Exception | None) -> None:
            if isinstance(outcome, OSError):
                log_dir.fail(outcome)
                again()
            elif outcome is not None:
                raise outcome

        self._worker.submit(write, done)

    def dirs(self) -> list[LogDirDescription]:
        """The log directories and what lies in them; none for logs in memory."""
        described = []
        for log_dir in self.directories:
            replicas = [
                LogDirReplica(topic, index, log.size_bytes) for (topic, index), log in self.logs.items() if _dir_of(log) is log_dir
            ]
            total = usable = -1
            if log_dir.failure is None:
                try:
                    usage = shutil.disk_usage(log_dir.path)
                    total, usable = usage.total, usage.free
                except OSError as error:
                    log_dir.fail(error)
            described.append(LogDirDescription(str(log_dir.path), log_dir.failure, replicas, total, usable))
        return described


def _dir_of(log: Log) -> LogDir | None:
    return log.storage.log_dir if isinstance(log.storage, DirectoryStorage) else None


def _remove(paths: Iterable[Path]) -> None:
    """Removes all that can be removed; raises what kept one of them, if possible what another try may get past."""
    kept: OSError | None = None
    for path in paths:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            if kept is None or is_transient(error):
                kept = error
    if kept is not None:
        raise kept

