"""Which log is compacted when, and putting in place what the worker made.

Looks at the logs when one of them has got a segment that can be cleaned, and then every log.cleaner.backoff.ms as long as there is
something that time or the end of a transaction may make cleanable. The log with the largest dirty part, relatively, comes first; one at a
time. A log that cannot be cleaned is skipped for a while, longer each time (Kafka: until it is restarted): what damaged a read may pass.

Source: org.apache.kafka.storage.internals.log.{LogCleaner, LogCleanerManager}.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from kafkacore import errors
from kafkacore.broker.log.cleaner import Cancelled, Cleanable, Cleaned, CompactionSettings, Plan, Source, Target, clean, cleanable
from kafkacore.broker.log.directory import DirectoryStorage, is_transient
from kafkacore.broker.log.disk import DiskSegment
from kafkacore.broker.log.log import Log, LogSettings
from kafkacore.broker.log.recovery import CLEANED
from kafkacore.broker.log.segment import MemorySegment, Segment
from kafkacore.broker.producers import AbortedTxn
from kafkacore.broker.worker import Worker
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_values import INT64_MAX

logger = logging.getLogger(__name__)

Key = tuple[str, int]
RETRY_MS, RETRY_MAX_MS = 60_000, 3_600_000
"""When a log that could not be cleaned is tried again, the first time and at most."""


class Settings(LogSettings, CompactionSettings, Protocol):
    """The topic settings that decide about compaction; `TopicConfig` has them."""

    @property
    def cleanup_policy(self) -> str: ...
    @property
    def delete_retention_ms(self) -> int: ...


class _Refused(NamedTuple):
    """A log that could not be cleaned: how often, and when it is tried again."""

    tries: int
    retry_at_ms: int


class _Candidate(NamedTuple):
    key: Key
    log: Log
    part: Cleanable


class Compactor:
    """Compacts the logs of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: Mapping[Key, Log],
        worker: Worker,
        clock: Clock,
        last_stable_offset: Callable[[Key], int],
        changed: Callable[[], None],
    ) -> None:
        """Waits for `look_soon`.

        Args:
            config: log.cleaner.*.
            logs: all of the broker.
            worker: cleans.
            clock: the time.
            last_stable_offset: of a partition: nothing from there on is touched.
            changed: called when `cleaned_to` has changed.
        """
        self.cleaned_to: dict[Key, int] = {}
        """Where the cleaned part of each log ends: `cleaner-offset-checkpoint`."""
        self._config = config
        self._logs = logs
        self._worker = worker
        self._clock = clock
        self._last_stable_offset = last_stable_offset
        self._changed = changed
        self._due_ms: int | None = None
        self._running = False
        self._refused: dict[Log, _Refused] = {}
        self._cancelled = threading.Event()

    def look_soon(self, log: Log) -> None:
        """A log that is compacted got a new segment, or other settings."""
        if is_compacted(log):
            self._look_at(self._clock.now_ms() + self._config.log_cleaner_backoff_ms)

    def _look_at(self, time_ms: int) -> None:
        if self._due_ms is None or self._due_ms > time_ms:
            self._due_ms = time_ms

    @property
    def uncleanable(self) -> int:
        """How many logs could not be cleaned and wait to be tried again. Kafka: uncleanable-partitions-count."""
        return len(self._refused)

    def cancel(self) -> None:
        """Gives up a cleaning that runs: the broker stops. The next one begins with the next segment, or the next start."""
        if self._running:
            self._cancelled.set()

    def truncated(self, key: Key, offset: int) -> None:
        """A log was cut: what follows is not clean."""
        if self.cleaned_to.get(key, 0) > offset:
            self.cleaned_to[key] = offset

    def next_deadline_ms(self) -> int | None:
        """When to look; None for not at all."""
        return None if self._running else self._due_ms

    def advance_clock(self) -> None:
        """Looks, if it is time, and has the dirtiest log cleaned."""
        now_ms = self._clock.now_ms()
        if self._running or self._due_ms is None or self._due_ms > now_ms:
            return
        self._due_ms = None
        candidates = self._candidates()
        chosen = max(
            (each for each in candidates if _is_worth_it(each)), key=lambda each: (each.part.overdue, each.part.ratio), default=None
        )
        if chosen is not None:
            try:
                self._start(chosen.key, chosen.log, chosen.part)
            except Exception as error:
                self._failed(chosen.key, chosen.log, error)
                self._look_at(now_ms + self._config.log_cleaner_backoff_ms)
        elif any(_may_become(each) for each in candidates):
            self._look_at(now_ms + self._config.log_cleaner_backoff_ms)
        retry_at_ms = min((each.retry_at_ms for each in self._refused.values() if each.retry_at_ms > now_ms), default=None)
        if retry_at_ms is not None:
            self._look_at(retry_at_ms)

    def _candidates(self) -> list[_Candidate]:
        found = []
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.now_ms()
        if self._refused:
            held = set(self._logs.values())
            self._refused = {log: refused for log, refused in self._refused.items() if log in held}
        for key, log in self._logs.items():
            if is_compacted(log) and log.segments and (log not in self._refused or self._refused[log].retry_at_ms <= now_ms):
                try:
                    log.storage.check()
                    part = cleanable(log, _settings(log), self.cleaned_to.get(key, 0), self._last_stable_offset(key), wall_ms)
                    found.append(_Candidate(key, log, part))
                except Exception as error:                    # the others are looked at
                    self._failed(key, log, error)
        return found

    def _failed(self, key: Key, log: Log, error: Exception) -> None:
        """A log cannot be cleaned: because of its directory, or of itself, and then not for a while."""
        if isinstance(error, errors.KafkaStorage):
            self._refused.pop(log, None)                      # the directory has reported it
            return
        if isinstance(error, OSError):
            log.storage.failed(error)
            if not is_transient(error):
                self._refused.pop(log, None)
                return
        tries = self._refused[log].tries + 1 if log in self._refused else 1
        wait_ms = min(RETRY_MS << min(tries - 1, 16), RETRY_MAX_MS)
        self._refused[log] = _Refused(tries, self._clock.now_ms() + wait_ms)
        self._look_at(self._clock.now_ms() + wait_ms)
        trace = None if isinstance(error, errors.KafkaError | OSError) else error
        wait_s = wait_ms // 1000
        logger.error("%s-%d cannot be compacted (try %d, the next one in %d s): %s", *key, tries, wait_s, error, exc_info=trace)

    def compact(self, key: Key) -> None:
        """Has a log cleaned now, whatever its dirty ratio; nothing if another one is being cleaned."""
        log = self._logs[key]
        if not self._running and log.segments:
            part = cleanable(log, _settings(log), self.cleaned_to.get(key, 0), self._last_stable_offset(key), self._clock.wall_ms())
            self._start(key, log, part)

    def _start(self, key: Key, log: Log, part: Cleanable) -> None:
        if part.upper <= part.first_dirty:
            return
        plan, held = self._plan(log, part)
        storage, truncations = log.storage, log.truncations
        interval = log.config.index_interval_bytes
        make: Callable[[int], Target] = _MemoryTarget
        if isinstance(storage, DirectoryStorage):
            make = functools.partial(_DiskTarget, storage.path, interval)
        self._running = True

        def done(outcome: Cleaned | Exception) -> None:
            self._running = False
            self._cancelled.clear()
            held.clear()
            if isinstance(outcome, Cancelled):
                return
            self._look_at(self._clock.now_ms())               # there may be more to do
            if self._logs.get(key) is not log:                # deleted: its directory has another name, or is deleted
                if isinstance(outcome, Cleaned):
                    _forget(outcome)
            elif isinstance(outcome, OSError):
                self._failed(key, log, outcome)
            elif log.truncations != truncations:
                if isinstance(outcome, Cleaned):
                    _discard(outcome)
            elif isinstance(outcome, Cleaned):
                self._finish(key, log, outcome)
            else:
                self._failed(key, log, outcome)

        self._worker.submit(lambda: clean(plan, make), done)

    def _plan(self, log: Log, part: Cleanable) -> tuple[Plan, list[object]]:
        sources: list[Source] = []
        held: list[object] = []                               # keeps the files open until the worker is done
        for segment in log.segments[:-1]:
            if segment.base_offset >= part.upper:
                break
            sources.append(_source(segment, held))
        last = {
            producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in log.producers.entries.items()
        }
        settings = _settings(log)
        plan = Plan(
            sources,
            part.first_dirty,
            part.upper,
            [each for segment in log.segments for each in segment.aborted],
            last,
            self._clock.wall_ms(),
            settings.delete_retention_ms,
            settings.segment_bytes,
            self._config.log_cleaner_dedupe_buffer_size,
            self._cancelled.is_set,
        )
        return plan, held

    def _finish(self, key: Key, log: Log, cleaned: Cleaned) -> None:
        all_placed = True
        try:
            for group in cleaned.groups:
                if not log.replace(group.base_offsets, group.cleaned):
                    _discard(Cleaned([group], 0, 0, 0))       # retention took some of the segments in the meantime
                    all_placed = False
        except errors.KafkaStorage:
            return                                            # reported by the directory
        if not all_placed:
            return                                            # what is left of that group is as dirty as before: once more
        self._refused.pop(log, None)
        self.cleaned_to[key] = cleaned.end_offset
        self._changed()
        logger.info(
            "compacted %s-%d up to offset %d: %d of %d records stay",
            *key,
            cleaned.end_offset,
            cleaned.records_after,
            cleaned.records_before,
        )


def is_compacted(log: Log) -> bool:
    """Whether the topic's cleanup.policy has compaction in it."""
    return "compact" in _settings(log).cleanup_policy


def _settings(log: Log) -> Settings:
    settings: Settings = log.config  # type: ignore[assignment]  # a TopicConfig has them all
    return settings


def _is_worth_it(candidate: _Candidate) -> bool:
    part = candidate.part
    return part.upper > part.first_dirty and (part.overdue or part.ratio > _settings(candidate.log).min_cleanable_dirty_ratio)


def _may_become(candidate: _Candidate) -> bool:
    part = candidate.part
    return part.waiting or (part.ratio > 0 and _settings(candidate.log).max_compaction_lag_ms != INT64_MAX)


def _source(segment: Segment, held: list[object]) -> Source:
    if isinstance(segment, DiskSegment):
        fd = segment.file.fileno()
        held.append(segment.slice(0, 0))                      # a slice keeps its file open, even of a deleted segment
        return Source(segment.base_offset, segment.size, lambda position, nbytes: os.pread(fd, nbytes, position), segment.written_ms)
    return Source(
        segment.base_offset, segment.size, lambda position, nbytes: segment.bytes_at(position, position + nbytes), segment.written_ms
    )


def _forget(cleaned: Cleaned) -> None:
    for group in cleaned.groups:
        if isinstance(group.cleaned, DiskSegment):
            group.cleaned.close()


def _discard(cleaned: Cleaned) -> None:
    _forget(cleaned)
    for group in cleaned.groups:
        if isinstance(group.cleaned, DiskSegment):
            group.cleaned.unlink()


class _MemoryTarget:
    """A cleaned segment in memory."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._batches: list[tuple[bytes | memoryview, int, int]] = []
        self._aborted: list[AbortedTxn] = []

    def add(self, data: bytes | memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        self._batches.append((data, last_offset, max_timestamp_ms))

    def add_aborted(self, transaction: AbortedTxn) -> None:
        self._aborted.append(transaction)

    def abandon(self) -> None:
        return None

    def finish(self, written_ms: int) -> Segment:
        segment = MemorySegment(self._base_offset, sum(len(data) for data, _, _ in self._batches), written_ms)
        for data, last_offset, max_timestamp_ms in self._batches:
            segment.note(segment.write((data,), len(data)), len(data), last_offset, max_timestamp_ms)
        segment.aborted, segment.written_ms = self._aborted, written_ms
        return segment


class _DiskTarget:
    """A cleaned segment in files that end in `.cleaned`."""

    def __init__(self, directory: Path, index_interval_bytes: int, base_offset: int) -> None:
        self._segment = DiskSegment.create(directory, base_offset, index_interval_bytes, 0, suffix=CLEANED)

    def add(self, data: bytes | memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        segment = self._segment
        segment.note(segment.write((data,), len(data)), len(data), last_offset, max_timestamp_ms)

    def add_aborted(self, transaction: AbortedTxn) -> None:
        self._segment.add_aborted(transaction)

    def abandon(self) -> None:
        self._segment.close()
        self._segment.unlink()

    def finish(self, written_ms: int) -> Segment:
        segment = self._segment
        segment.save_index(complete=True)
        segment.sync()
        written_ns = written_ms * 1_000_000
        os.utime(segment.file.fileno(), ns=(written_ns, written_ns))
        segment.created_ms = segment.written_ms = written_ms
        return segment
