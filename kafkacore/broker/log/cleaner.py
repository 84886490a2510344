"""Compaction: of every key the last value stays.

    |<-- cleaned before -->|<------- dirty -------->|<- not cleanable ->|
    start                  first dirty              upper               end
                           read once: key -> last offset
    |<- rewritten in place, without records whose key comes again ->|

Rules, Kafka's:

1. The active segment, whatever is younger than min.compaction.lag.ms, and everything from the last stable offset on is not cleanable.
   [test_the_last_value_of_a_key_stays_and_offsets_do_not_change, test_lags_hold_it_up_and_bring_it_forward,
   test_an_open_transaction_stops_it]
2. Offsets never change, nor do the first and last offset of a batch that remains.
   [test_the_last_value_of_a_key_stays_and_offsets_do_not_change, test_compression_is_kept]
3. A record stays if it is the last of its key in the dirty part, or behind what was read of it (the map of keys may be full before the
   end). [test_readers_see_what_the_model_says]
4. A tombstone stays until its delete horizon: the time of the first cleaning that met it plus delete.retention.ms, kept in the batch.
   [test_tombstones_stay_until_their_horizon]
5. Records of aborted transactions go at once. A transaction's marker stays until none of its records is left, and then until a delete
   horizon. [test_aborted_records_go_and_the_marker_after_them]
6. The batch with a producer's last sequence number stays, emptied if need be; so does the last batch of what is cleaned.
   [test_the_last_batch_of_a_producer_stays_empty, test_the_last_batch_of_what_is_cleaned_stays_empty]
7. Message sets of magic 0 and 1 stay as they are; their keys count. [test_old_messages_stay_and_their_keys_count]

A plan is made by the owner, run by the worker over files that do not change, and put in place by the owner if the log was not truncated
in the meantime. The new files end in `.cleaned` while they are written and in `.swap` while they take their place: see recovery.py.

Source: org.apache.kafka.storage.internals.log.{LogCleaner, LogCleanerManager, Cleaner, CleanedTransactionMetadata}.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kafkacore.broker.log.headers import walk
from kafkacore.broker.log.index import MAX_RELATIVE_OFFSET
from kafkacore.broker.log.log import Log
from kafkacore.broker.log.rewrite import delete_horizon_ms, emptied, filtered
from kafkacore.broker.log.segment import Segment
from kafkacore.broker.producers import AbortedTxn
from kafkacore.records import Batch

KEY_OVERHEAD_BYTES = 150
"""What an entry of the key map costs beside its key."""
_ABORT, _COMMIT = 0, 1


class Source(NamedTuple):
    """A segment to be cleaned, as the worker sees it.

    Attributes:
        base_offset, size: of the segment.
        read: its bytes from one position, so many.
        written_ms: when it was written last.
    """

    base_offset: int
    size: int
    read: Callable[[int, int], memoryview | bytes]
    written_ms: int

    def batches(self) -> Iterator[Batch]:
        """All batches, CRCs checked."""
        return (batch for _, batch in walk(self.read, self.size))


@dataclass(frozen=True)
class Plan:
    """All that one cleaning of a log needs.

    Attributes:
        sources: the segments from the log's start to the one before the first uncleanable.
        first_dirty: where the part begins that was not cleaned yet.
        upper: the first offset that is not cleanable.
        aborted: all entries of the log's transaction indexes.
        last_of_producers: of each producer the last offset it wrote data at (None if only a marker is known), and its epoch.
        now_ms: the time of day.
        delete_retention_ms, segment_bytes: the topic's settings.
        max_map_bytes: of the key map.
        is_cancelled: asked between two batches.
    """

    sources: list[Source]
    first_dirty: int
    upper: int
    aborted: list[AbortedTxn]
    last_of_producers: Mapping[int, tuple[int | None, int]]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    max_map_bytes: int
    is_cancelled: Callable[[], bool] = lambda: False

    def batches(self, source: Source) -> Iterator[Batch]:
        """The batches of a source, until the plan is given up."""
        for batch in source.batches():
            if self.is_cancelled():
                raise Cancelled
            yield batch


class Cancelled(Exception):
    """The owner does not want the result any more."""


class Target(Protocol):
    """Where a cleaned segment is written."""

    def add(self, data: bytes | memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        """Adds a batch."""

    def add_aborted(self, transaction: AbortedTxn) -> None:
        """Notes an aborted transaction of which something is left."""

    def finish(self, written_ms: int) -> Segment:
        """The segment, on the disk if it is a file."""

    def abandon(self) -> None:
        """Nothing comes of it."""


class Group(NamedTuple):
    """Segments and what takes their place."""

    base_offsets: list[int]
    cleaned: Segment


class Cleaned(NamedTuple):
    """What a cleaning made.

    Attributes:
        groups: to be put in place.
        end_offset: the dirty part begins here now.
        records_before, records_after: of the segments in the groups.
    """

    groups: list[Group]
    end_offset: int
    records_before: int
    records_after: int


class Cleanable(NamedTuple):
    """How much of a log can be cleaned.

    Attributes:
        first_dirty, upper: the dirty part that is cleanable.
        ratio: its bytes, of those and the bytes cleaned before.
        overdue: max.compaction.lag.ms has passed.
        waiting: there is a part that will be cleanable later, by time or by the end of a transaction.
    """

    first_dirty: int
    upper: int
    ratio: float
    overdue: bool
    waiting: bool


class CompactionSettings(Protocol):
    """The topic settings compaction goes by; `TopicConfig` has them."""

    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...


def cleanable(log: Log, config: CompactionSettings, cleaned_to: int, last_stable_offset: int, wall_ms: int) -> Cleanable:
    """What of a log can be cleaned now.

    Args:
        log: with at least one segment.
        config: the topic's settings.
        cleaned_to: where the last cleaning ended; 0 without one.
        last_stable_offset: of the partition.
        wall_ms: the time now.

    Source: LogCleanerManager.cleanableOffsets, LogToClean.
    """
    first_dirty = max(cleaned_to, log.start_offset)
    if first_dirty > log.end_offset:                          # a checkpoint of another log of this name
        first_dirty = log.start_offset
    active = log.segments[-1].base_offset
    upper = min(last_stable_offset, active)
    clean_bytes = dirty_bytes = 0
    overdue = False
    rows = list(zip(log.segments[:-1], [segment.base_offset for segment in log.segments[1:]], strict=True))
    for segment, next_offset in rows:
        if next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        if config.min_compaction_lag_ms > 0 and segment.newest_ms() > wall_ms - config.min_compaction_lag_ms:
            upper = min(upper, segment.base_offset)
        if segment.base_offset >= upper:
            break
        dirty_bytes += segment.size
        first_ms = segment.rolling_timestamp()
        if wall_ms - (segment.created_ms if first_ms is None else first_ms) > config.max_compaction_lag_ms:
            overdue = True
    upper = max(upper, first_dirty)
    total = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total if total else 0.0
    return Cleanable(first_dirty, upper, ratio, overdue and dirty_bytes > 0, active > upper)


# ---- the worker's part


def clean(plan: Plan, new_target: Callable[[int], Target]) -> Cleaned:
    """Cleans a log.

    Args:
        plan: what to do.
        new_target: makes the target for a base offset.

    Raises:
        Cancelled: the plan was given up.
        CorruptDataError: a segment cannot be read; nothing may be put in place.
        OSError: a target cannot be written.
    """
    keys = KeyMap(plan)
    end_offset = keys.latest_offset + 1
    transactions = CleanedTransactions(plan.aborted, plan.sources[0].base_offset)
    groups, targets, before, after = [], list[Target](), 0, 0
    sources_to_clean = [source for source in plan.sources if source.base_offset < end_offset]
    try:
        for sources in grouped(sources_to_clean, plan.segment_bytes, plan.upper):
            target = new_target(sources[0].base_offset)
            targets.append(target)
            transactions.keep_index(target.add_aborted)
            for source in sources:
                was, remains = _filter(plan, source, keys, transactions, target)
                before, after = before + was, after + remains
            groups.append(Group([source.base_offset for source in sources], target.finish(sources[-1].written_ms)))
    except BaseException:
        for target in targets:
            target.abandon()
        raise
    return Cleaned(groups, end_offset, before, after)


class KeyMap:
    """The last offset of every key in the dirty part, as far as there was room."""

    def __init__(self, plan: Plan) -> None:
        """Reads the dirty part."""
        self._offsets: dict[bytes, int] = {}
        self._room = plan.max_map_bytes
        self.latest_offset = plan.first_dirty - 1
        dirty = [
            source
            for source, next_source in zip(plan.sources, [*plan.sources[1:], None], strict=True)
            if source.base_offset < plan.upper and (next_source is None or next_source.base_offset > plan.first_dirty)
        ]
        transactions = CleanedTransactions(plan.aborted, dirty[0].base_offset if dirty else 0)
        if all(self._read(plan, source, transactions) for source in dirty):
            self.latest_offset = max(self.latest_offset, plan.upper - 1)  # there may be no record at all up to there

    def _read(self, plan: Plan, source: Source, transactions: CleanedTransactions) -> bool:
        """Takes in a segment; False when the map is full."""
        for batch in plan.batches(source):
            if batch.base_offset >= plan.upper:
                return True
            aborted = transactions.is_disposable(batch)
            if not batch.is_control and not aborted and batch.last_offset >= plan.first_dirty:
                columns = batch.columns(plan.first_dirty)
                for key, offset in zip(columns.keys, columns.offsets.tolist(), strict=True):
                    if key is None:
                        continue
                    if key not in self._offsets:
                        self._room -= len(key) + KEY_OVERHEAD_BYTES
                        if self._room < 0:
                            if self.latest_offset >= plan.first_dirty:
                                return False
                            # Not even one batch fits: better more memory than a log that is never cleaned again.
                    self._offsets[key] = offset
            self.latest_offset = max(self.latest_offset, batch.last_offset)
        return True

    def get(self, key: bytes) -> int:
        """The last offset of a key; -1 if it is not in the dirty part."""
        return self._offsets.get(key, -1)


class CleanedTransactions:
    """Which transactions of a log are over and aborted, while its batches go by in order.

    Source: CleanedTransactionMetadata.
    """

    def __init__(self, transactions: Iterable[AbortedTxn], start_offset: int) -> None:
        """Nothing has gone by yet.

        Args:
            transactions: all aborted ones of the log.
            start_offset: where the batches begin.
        """
        relevant = (each for each in transactions if each.last_offset >= start_offset)
        self._waiting = sorted(relevant, key=lambda each: each.first_offset)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}  # producer id -> its transaction, and whether something is left of it
        self._committed: set[int] = set()                     # producers with records in a transaction that is not aborted
        self._keep: Callable[[AbortedTxn], None] = lambda transaction: None

    def keep_index(self, keep: Callable[[AbortedTxn], None]) -> None:
        """Has the index entries of transactions of which something was left go to a new segment."""
        self._keep = keep

    def _begin(self, offset: int) -> None:
        count = bisect_left(self._waiting, offset + 1, key=lambda each: each.first_offset)
        for transaction in self._waiting[:count]:
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
        del self._waiting[:count]

    def is_disposable(self, batch: Batch) -> bool:
        """Whether a batch is of an aborted transaction, or a marker of a transaction without records."""
        if not batch.is_control:
            if not batch.is_transactional:
                return False
            self._begin(batch.last_offset)
            found = self._aborted.get(batch.producer_id)
            if found is None:
                self._committed.add(batch.producer_id)
                return False
            self._aborted[batch.producer_id] = found[0], True
            return True
        self._begin(batch.last_offset)
        if not batch.record_count:
            return True
        kind = batch.control_type
        if kind == _ABORT:
            ended = self._aborted.pop(batch.producer_id, None)
            if ended is not None and ended[1]:
                self._keep(ended[0])
                return False
            return True
        if kind == _COMMIT:
            if batch.producer_id in self._committed:
                self._committed.discard(batch.producer_id)
                return False
            return True
        return False


def grouped(sources: Sequence[Source], segment_bytes: int, upper: int) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment together. Source: Cleaner.groupSegmentsBySize."""
    group: list[Source] = []
    size = 0
    for row, source in enumerate(sources):
        next_base = sources[row + 1].base_offset if row + 1 < len(sources) else upper
        if group and (size + source.size > segment_bytes or next_base - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET):
            yield group
            group, size = [], 0
        group.append(source)
        size += source.size
    if group:
        yield group


def _filter(plan: Plan, source: Source, keys: KeyMap, transactions: CleanedTransactions, target: Target) -> tuple[int, int]:
    """Writes what stays of a segment; returns the numbers of its records before and after."""
    before = after = 0
    for batch in plan.batches(source):
        count = batch.record_count
        before += count
        data, kept = retained(plan, batch, keys, transactions.is_disposable(batch))
        if data is not None:
            target.add(data, batch.last_offset, batch.max_timestamp_ms)
            after += kept
    return before, after


def retained(plan: Plan, batch: Batch, keys: KeyMap, disposable: bool) -> tuple[bytes | memoryview | None, int]:
    """What stays of a batch.

    Args:
        plan: the cleaning.
        batch: any batch of the part that is cleaned.
        keys: the last offsets of the dirty part.
        disposable: from `CleanedTransactions.is_disposable`.

    Returns:
        The bytes to write, None for none, and how many records are in them.

    Source: Cleaner.cleanInto, MemoryRecords.filterTo.
    """
    if batch.magic < 2 or batch.base_offset >= plan.upper:
        return batch.buffer, batch.record_count
    horizon_ms = delete_horizon_ms(batch)
    is_control = batch.is_control
    past_horizon = horizon_ms is not None and horizon_ms <= plan.now_ms
    discard = disposable and (past_horizon or not is_control)
    stays_empty = batch.last_offset + 1 in (plan.upper, keys.latest_offset + 1) or _is_last_of_producer(plan, batch)
    if discard and not stays_empty:
        return None, 0
    marker_of_nothing = disposable and is_control
    has_tombstones = False
    if discard:
        keep = [False] * batch.record_count
    elif is_control:
        keep = [True] * batch.record_count
    else:
        keep = []
        columns = batch.columns()
        for key, value, offset in zip(columns.keys, columns.values, columns.offsets.tolist(), strict=True):
            if offset > keys.latest_offset:
                wanted = True
            elif key is None:
                wanted = False
            else:
                wanted = offset >= keys.get(key) and (value is not None or not past_horizon)
            keep.append(wanted)
            has_tombstones = has_tombstones or (wanted and value is None)
    kept = sum(keep)
    if not kept:
        return (emptied(batch), 0) if stays_empty else (None, 0)
    needs_horizon = horizon_ms is None and (has_tombstones or marker_of_nothing)
    if kept == len(keep) and not needs_horizon:
        return batch.buffer, kept
    return filtered(batch, keep, plan.now_ms + plan.delete_retention_ms if needs_horizon else None), kept


def _is_last_of_producer(plan: Plan, batch: Batch) -> bool:
    if batch.producer_id < 0:
        return False
    last = plan.last_of_producers.get(batch.producer_id)
    if last is None:
        return False
    offset, epoch = last
    return batch.last_offset == offset if offset is not None else batch.is_control and batch.producer_epoch == epoch
