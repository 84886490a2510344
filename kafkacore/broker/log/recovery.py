"""Opening a partition's directory: what a broker finds there after a clean shutdown, a crash, or an interrupted compaction.

Steps, in Kafka's order:

1. Swaps that were interrupted are finished (`.swap`: the replacement is complete), what was being deleted or cleaned is removed.
   [test_a_crash_at_any_step_of_the_swap_keeps_every_last_value]
2. Unless the shutdown was clean, every segment from the recovery point on is read as a whole: batches with wrong CRCs, lengths or offsets,
   or cut off at the end, end the log there. The segment is cut, later segments are deleted, the indexes are built again. So is a last
   segment that does not end with a batch, whatever the shutdown was: what is appended behind it could never be read.
   [test_what_follows_a_broken_batch_is_gone_with_later_segments,
   test_a_last_segment_that_does_not_end_with_a_batch_is_read_whatever_the_shutdown_was,
   test_recovery_keeps_what_was_synced_and_a_prefix_of_the_rest]
3. The producers are those of the newest snapshot not beyond the end, and what the log says after it. [test_a_log_goes_on_where_it_stopped,
   test_a_snapshot_and_the_rest_of_the_log_give_the_same_state]
4. The leader epochs are those of their file within the log, and those of the batches that were read. Without the file they are those of
   all batches: a log that does not know its epochs cannot tell where it stops being its leader's.
   [test_epochs_are_learned_from_the_batches_where_their_file_is_lost, test_no_position_looks_truncated_after_a_crash]

Source: org.apache.kafka.storage.internals.log.{LogLoader, LogSegment, ProducerStateManager}.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from kafkacore.broker.log import checkpoints
from kafkacore.broker.log.disk import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, SUFFIXES, TXN_INDEX_SUFFIX, DiskSegment, file_name
from kafkacore.broker.log.headers import walk
from kafkacore.broker.log.index import MAX_RELATIVE_OFFSET
from kafkacore.broker.log.log import Log
from kafkacore.broker.producers import ProducerStates
from kafkacore.errors import CorruptDataError
from kafkacore.records import Batch

logger = logging.getLogger(__name__)

DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"


def load(log: Log, directory: Path, *, clean: bool, recovery_point: int, start_offset: int, wall_ms: int) -> None:
    """Fills an empty log from its directory, which may be empty too.

    Args:
        log: with its storage.
        directory: of the partition.
        clean: the broker before shut down in good order.
        recovery_point: what is below it was on the disk.
        start_offset: where the log began; 0 if unknown.
        wall_ms: the time now.

    Raises:
        OSError: the directory cannot be read or written.
    """
    _finish_swaps(directory)
    bases = sorted(offset for offset, suffix in _files(directory) if suffix == LOG_SUFFIX)
    _remove_orphans(directory, set(bases))
    interval = log.config.index_interval_bytes
    log.epochs = checkpoints.read_epochs(directory / checkpoints.LEADER_EPOCHS)
    log.start_offset = start_offset
    knows_epochs = bool(log.epochs)
    recovered: int | None = None
    for row, base in enumerate(bases):
        end = bases[row + 1] if row + 1 < len(bases) else None
        segment, broken = _open(directory, base, interval)
        segment.is_last = end is None
        log.segments.append(segment)
        unsure = not clean and (end is None or end > recovery_point)
        if broken or unsure or recovered is not None or (end is None and not _ends_with_a_batch(segment)):
            if recovered is None:
                log.end_offset = base
                load_producers(log, directory, base)
                recovered = base
            whole = _recover(log, segment, is_last=end is None)
            log.end_offset = max(log.end_offset, segment.next_offset())
            if not whole:
                for later in bases[:row:-1]:
                    logger.warning("%s: segment %d lies behind the end of the log and is deleted", directory, later)
                    _unlink_segment(directory, later)
                break
    if log.segments:
        last = log.segments[-1]
        assert isinstance(last, DiskSegment)
        last.prepare_to_append()
        log.end_offset = last.next_offset()
    log.start_offset = max(log.start_offset, log.segments[0].base_offset if log.segments else 0)
    if log.end_offset < log.start_offset:
        logger.warning("%s ends at %d, before its start %d: it is emptied", directory, log.end_offset, log.start_offset)
        log.truncate_fully_and_start_at(log.start_offset)
    if not knows_epochs:
        _learn_epochs(log)
    while log.epochs and log.epochs[-1][1] > log.end_offset:
        log.epochs.pop()
    _remove_stray_snapshots(directory, {segment.base_offset for segment in log.segments}, log.end_offset)
    if recovered is None:
        load_producers(log, directory, log.end_offset)
    log.recovery_point = min(recovery_point, log.end_offset) if not clean else log.end_offset
    if not log.segments:
        log.roll(wall_ms)


def _open(directory: Path, base: int, interval: int) -> tuple[DiskSegment, bool]:
    try:
        segment = DiskSegment.open(directory, base, interval)
        return segment, segment.size > 0 and not segment.path(INDEX_SUFFIX).exists()
    except CorruptDataError as problem:
        logger.warning("%s: segment %d is read again: %s", directory, base, problem)
        (directory / file_name(base, TXN_INDEX_SUFFIX)).unlink()
        return DiskSegment.open(directory, base, interval), True


def _ends_with_a_batch(segment: DiskSegment) -> bool:
    end = position = segment.position_of_last_entry()
    try:
        for span in segment.spans(position):
            end = span.position + span.size_bytes
    except CorruptDataError:
        return False
    return end == segment.size


def _learn_epochs(log: Log) -> None:
    log.epochs = []
    for segment in log.segments:
        for span in segment.spans():
            log.epoch_written(span.leader_epoch, max(span.base_offset, log.start_offset))


def _recover(log: Log, segment: DiskSegment, *, is_last: bool) -> bool:
    """Reads a segment, builds its indexes again, brings producers and epochs up to date.

    Returns:
        False if it was cut.
    """
    segment.forget_aborted()

    def take(batch: Batch) -> None:
        log.epoch_written(batch.leader_epoch, batch.base_offset)
        if batch.producer_id >= 0:
            aborted = log.producers.replay(batch)
            if aborted is not None:
                segment.add_aborted(aborted)

    end, problem = check_batches(segment, take)
    whole = end == segment.size
    if not whole:
        logger.warning("%s: its last %d bytes are no batches and are cut off: %s", segment.path(LOG_SUFFIX), segment.size - end, problem)
        os.ftruncate(segment.file.fileno(), end)
        segment.size = end
    segment.save_index(complete=not is_last)
    return whole


def check_batches(segment: DiskSegment, take: Callable[[Batch], None]) -> tuple[int, str]:
    """Reads a segment from its beginning, notes its batches in new indexes and hands them out, up to the first bad one.

    Returns:
        Where the good ones end, and what is wrong there.
    """
    segment.begin_index()
    end, next_offset = 0, segment.base_offset
    try:
        for position, batch in walk(segment.pread, segment.size):
            base_offset, last_offset = batch.base_offset, batch.last_offset
            if base_offset < next_offset:
                raise CorruptDataError(f"offset {base_offset} follows {next_offset - 1}")
            if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptDataError(f"offset {last_offset} does not belong to the segment")
            take(batch)
            segment.note(position, batch.size_bytes, last_offset, batch.max_timestamp_ms)
            next_offset = last_offset + 1
            end = position + batch.size_bytes
    except CorruptDataError as problem:
        return end, str(problem)
    return end, ""


# ---- producers


def load_producers(log: Log, directory: Path, offset: int) -> None:
    """Sets the log's producers to what they were at an offset: the newest readable snapshot not beyond it, and the batches after that."""
    for path in reversed(snapshots(directory)):
        at = _offset_of(path)
        if at > offset:
            continue
        try:
            producers = ProducerStates.from_snapshot(path.read_bytes())
        except CorruptDataError as problem:
            logger.warning("%s is ignored: %s", path, problem)
            path.unlink()
            continue
        log.replay_producers(producers, at, offset)
        return
    log.replay_producers(ProducerStates(), log.start_offset, offset)


def snapshots(directory: Path) -> list[Path]:
    """The producer snapshots of a partition, in the order of their offsets."""
    return sorted(directory / file_name(offset, suffix) for offset, suffix in _files(directory) if suffix == SNAPSHOT_SUFFIX)


def _remove_stray_snapshots(directory: Path, bases: set[int], end_offset: int) -> None:
    """Keeps those at the beginning of a segment, and the newest. Source: ProducerStateManager.removeStraySnapshots."""
    left = snapshots(directory)
    while left and _offset_of(left[-1]) > end_offset:
        left.pop().unlink()
    for path in left[:-1]:
        if _offset_of(path) not in bases:
            path.unlink()


# ---- files


def _offset_of(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _files(directory: Path) -> list[tuple[int, str]]:
    """Base offset and suffix of every file of a segment."""
    found = []
    for name in os.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if len(stem) == 20 and stem.isdecimal() and stem.isascii():
            found.append((int(stem), dot + suffix))
    return found


def _finish_swaps(directory: Path) -> None:
    files = _files(directory)
    swapped = {base for base, suffix in files if suffix == LOG_SUFFIX + SWAP}
    # A segment still being cleaned makes swaps from its offset on part of a split that was not finished: the originals are still there.
    unfinished = min((base for base, suffix in files if suffix.endswith(CLEANED)), default=None)
    for base, suffix in files:
        doomed = suffix.endswith((DELETED, CLEANED)) or (suffix.endswith(SWAP) and unfinished is not None and base >= unfinished)
        if doomed:
            (directory / file_name(base, suffix)).unlink()
            swapped.discard(base)
    for base in sorted(swapped):
        swap = DiskSegment(directory, base, 0, 0, SWAP)
        swap.size = swap.path(LOG_SUFFIX).stat().st_size
        end = max((span.last_offset + 1 for span in swap.spans()), default=base)
        for other, suffix in files:
            if suffix == LOG_SUFFIX and base <= other < max(end, base + 1):
                _unlink_segment(directory, other)
        for suffix in SUFFIXES:
            source = directory / (file_name(base, suffix) + SWAP)
            if source.exists():
                os.replace(source, directory / file_name(base, suffix))
    for base, suffix in files:
        if suffix.endswith(SWAP):
            (directory / file_name(base, suffix)).unlink(missing_ok=True)


def _remove_orphans(directory: Path, bases: set[int]) -> None:
    for base, suffix in _files(directory):
        if suffix in SUFFIXES and suffix != LOG_SUFFIX and base not in bases:
            (directory / file_name(base, suffix)).unlink()


def _unlink_segment(directory: Path, base: int) -> None:
    for suffix in SUFFIXES:
        (directory / file_name(base, suffix)).unlink(missing_ok=True)
