"""Compaction against a model, in memory and on disk: what stays, what goes, what readers see."""

import errno
import functools
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import Disk, batches_in

from kafkacore.broker.log import compactor
from kafkacore.broker.log.cleaner import CleanedTransactions, KeyMap, Plan, Source, cleanable, grouped, retained
from kafkacore.broker.log.rewrite import emptied, filtered
from kafkacore.broker.producers import AbortedTxn
from kafkacore.errors import CorruptDataError
from kafkacore.records import BatchBuilder, control_batch, read_batches
from tests.kit.batches import T0
from tests.kit.reached import Reached
from tests.kit.rows import each_row

KEY = ("t", 0)
DAY_MS = 86_400_000


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    made = Disk(*[tmp_path] * (request.param == "disk"))
    yield made
    made.manager.close()


COMPACT = {"cleanup_policy": "compact", "segment_bytes": 700, "file_delete_delay_ms": 0}


def put(log, *pairs, wall_ms=T0, compression="none", codec_level=None, **producer):
    """Appends a batch of (key, value)."""
    builder = BatchBuilder(max_bytes=1 << 20, compression=compression, **producer)
    for key, value in pairs:
        assert builder.append(value, key=key, timestamp_ms=wall_ms)
    return log.append(next(iter(read_batches(bytes(builder.build())))), 0, wall_ms=wall_ms)


def end_transaction(log, producer_id, commit, wall_ms=T0):
    data = control_batch(int(commit), producer_id=producer_id, producer_epoch=0, timestamp_ms=wall_ms)
    return log.append(next(iter(read_batches(data))), 0, wall_ms=wall_ms)


def keyed_content(log):
    return [(r.offset, r.key, r.value) for each in batches_in(log) if not each.is_control for r in each.records()]


def compact(store):
    store.manager.compactor.compact(KEY)


def test_the_last_value_of_a_key_stays_and_offsets_do_not_change(store):
    log = store.log(**COMPACT)
    for nth in range(40):
        put(log, (b"k%d" % (nth % 4), b"v" * 100 + b"%d" % nth))
    active = log.segments[-1].base_offset
    assert 0 < active < 40
    before = {offset: (key, value) for offset, key, value in keyed_content(log)}
    compact(store)
    after = keyed_content(log)
    assert not any(each.attributes & 0x40 for each in batches_in(log))  # without a tombstone no batch has a horizon
    assert all(before[offset] == (key, value) for offset, key, value in after)
    assert [offset for offset, _, _ in after] == [*range(active - 4, active), *range(active, 40)]
    assert (log.end_offset, store.manager.compactor.cleaned_to[KEY]) == (40, active)
    for offset in range(40):  # every offset can still be read from, and leads to what follows it
        assert batches_in(log, offset)[0].last_offset >= min(offset, 39)


@each_row(
    ("cleaned_to", "stable", "age_ms", "lags", "expected"),
    [
        (0, 4, 0, {}, (0, 3, 1.0, False, False)),
        (1, 4, 0, {}, (1, 3, 2 / 3, False, False)),
        (3, 4, 0, {}, (3, 3, 0.0, False, False)),
        (4, 4, 0, {}, (4, 4, 0.0, False, False)),
        (5, 4, 0, {}, (0, 3, 1.0, False, False)),  # of another log of this name
        (0, 2, 0, {}, (0, 2, 1.0, False, True)),
        (0, 0, 0, {}, (0, 0, 0.0, False, True)),
        (2, 1, 0, {}, (2, 2, 0.0, False, True)),
        (0, 4, 2_000, {"min_compaction_lag_ms": 1_000}, (0, 2, 1.0, False, True)),
        (0, 4, 2_000, {"min_compaction_lag_ms": 1_001}, (0, 1, 1.0, False, True)),
        (0, 4, 1_000, {"max_compaction_lag_ms": 1_000}, (0, 3, 1.0, False, False)),
        (0, 4, 1_001, {"max_compaction_lag_ms": 1_000}, (0, 3, 1.0, True, False)),
        (1, 4, 2_000, {"max_compaction_lag_ms": 1_000}, (1, 3, 2 / 3, False, False)),
        (3, 4, 9_000, {"max_compaction_lag_ms": 1_000}, (3, 3, 0.0, False, False)),
    ],
)
def test_what_of_a_log_can_be_cleaned(cleaned_to, stable, age_ms, lags, expected):
    for timed in (True, False):  # a segment without times is as old as its file
        log = Disk().log(**COMPACT, **lags)
        for nth in range(4):
            builder = BatchBuilder()
            assert builder.append(b"v" * 600, key=b"k", timestamp_ms=T0 + nth * 1_000 if timed else -1)
            log.append(next(iter(read_batches(bytes(builder.build())))), 0, wall_ms=T0 + nth * 1_000)
        assert cleanable(log, log.config, cleaned_to, stable, T0 + age_ms) == expected, timed
    log.advance_start(2)
    assert cleanable(log, log.config, 1, 4, T0 + 9_000)[:3] == (2, 3, 1.0)


def a_batch(offset, *pairs, **fields):
    builder = BatchBuilder(base_offset=offset, **fields)
    for key, value in pairs or [(b"k", b"v")]:
        assert builder.append(value, key=key, timestamp_ms=T0)
    return next(iter(read_batches(bytes(builder.build()))))


def marker(offset, producer_id, commit, epoch=0):
    data = control_batch(commit, producer_id=producer_id, producer_epoch=epoch, base_offset=offset, timestamp_ms=T0)
    return next(iter(read_batches(bytes(data))))


def test_which_batches_of_transactions_nothing_is_left_of():
    def of(offset, producer_id):
        return a_batch(offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    emptied_marker = next(iter(read_batches(emptied(marker(9, 5, 0)))))
    rows = [
        (of(1, 5), True),
        (of(2, 6), False),
        (a_batch(3), False),
        (of(4, 7), True),
        (of(5, 5), True),
        (marker(6, 5, 0), False),
        (marker(7, 6, 1), False),
        (marker(8, 7, 0), False),
        (emptied_marker, True),
        (marker(10, 6, 1), True),  # its records are gone
        (marker(11, 8, 0), True),  # so are these
        (marker(12, 9, 0), True),
        (of(13, 5), False),
        (marker(14, 5, 1), False),
        (of(15, 5), True),  # and its marker is still to come
    ]
    known = [(8, 9, 11), (5, 15, 20), (5, 1, 6), (7, 4, 8), (6, 0, 0)]
    transactions = CleanedTransactions([AbortedTxn(*each, 0) for each in known], 1)
    kept = []
    transactions.keep_index(kept.append)
    assert [transactions.is_disposable(each) for each, _ in rows] == [expected for _, expected in rows]
    assert [each[:3] for each in kept] == [(5, 1, 6), (7, 4, 8)]
    at_the_start = CleanedTransactions([AbortedTxn(1, 0, 3, 0), AbortedTxn(2, 0, 4, 0)], 4)
    assert [at_the_start.is_disposable(of(4, producer_id)) for producer_id in (1, 2)] == [False, True]


def plan_of(*segments, first_dirty=0, upper, room=1 << 20, read=lambda offset: None, **fields):
    """A plan of segments that have these batches."""
    sources = []
    for batches in segments:
        data, base_offset = b"".join(bytes(each.buffer) for each in batches), batches[0].base_offset

        def reading(position, nbytes, data=data, base_offset=base_offset):
            read(base_offset)
            return data[position : position + nbytes]

        sources.append(Source(base_offset, len(data), reading, T0))
    others = {"last_of_producers": {}, "is_cancelled": lambda: False} | fields
    return Plan(sources, first_dirty, upper, [], now_ms=T0, delete_retention_ms=0, segment_bytes=1 << 20, max_map_bytes=room, **others)


@each_row(
    ("first_dirty", "upper", "room", "latest", "keys", "read"),
    [
        (0, 5, 999, 4, (2, 4), [0, 2, 4]),
        (2, 5, 999, 4, (2, 4), [2, 4]),  # what is clean is not read for its keys
        (3, 5, 999, 4, (-1, 4), [2, 4]),
        (0, 4, 999, 3, (2, 1), [0, 2]),
        (0, 3, 999, 2, (2, 1), [0, 2]),
        (0, 2, 999, 1, (0, 1), [0]),
        (2, 9, 999, 8, (2, 4), [2, 4]),  # no record lies behind
        (0, 5, 304, 4, (2, 4), [0, 2, 4]),
        (0, 5, 303, 0, (0, -1), [0]),
        (0, 5, 152, 0, (0, -1), [0]),
        (0, 5, 151, 0, (0, -1), [0]),  # not even the first key fits
    ],
)
def test_which_keys_a_map_takes_in(first_dirty, upper, room, latest, keys, read):
    batches = [a_batch(offset, (key, b"v")) for offset, key in enumerate([b"k1", b"k2", b"k1", None, b"k2"])]
    reads = []
    plan = plan_of(batches[:2], batches[2:4], batches[4:], first_dirty=first_dirty, upper=upper, room=room, read=reads.append)
    made = KeyMap(plan)
    assert (made.latest_offset, (made.get(b"k1"), made.get(b"k2")), reads) == (latest, keys, read)


@each_row(
    ("segments", "upper", "groups"),
    [
        ([(0, 4), (1, 6), (2, 1), (3, 10), (4, 11), (5, 3)], 9, [[0, 1], [2], [3], [4], [5]]),
        ([(0, 1), (5, 1)], 2**31, [[0, 5]]),
        ([(0, 1), (5, 1)], 2**31 + 1, [[0], [5]]),  # their last offset may not fit an index
        ([(0, 1), (2**31, 1), (2**31 + 1, 1)], 2**32 - 1, [[0], [2**31, 2**31 + 1]]),
        ([], 9, []),
    ],
)
def test_which_segments_become_one(segments, upper, groups):
    sources = [Source(base_offset, size, None, T0) for base_offset, size in segments]
    assert [[each.base_offset for each in group] for group in grouped(sources, 10, upper)] == groups


def test_a_batch_stays_empty_while_its_producer_needs_it():
    def of(producer_id, epoch):
        return a_batch(0, producer_id=producer_id, producer_epoch=epoch, base_sequence=0 if producer_id >= 0 else -1)

    rows = [
        (of(7, 2), True),
        (of(9, 2), False),
        (of(-1, -1), False),
        (of(8, 2), False),
        (marker(0, 8, 1, 2), True),
        (marker(0, 8, 1, 1), False),
    ]
    for each, stays in rows:
        horizon = filtered(each, [True], T0)  # has come
        plan = plan_of([each], [a_batch(1)], upper=9, last_of_producers={7: (0, 2), 8: (None, 2)})
        data, kept = retained(plan, next(iter(read_batches(horizon))), KeyMap(plan), each.is_control)
        assert (data is not None, kept) == (stays, 0), (each.producer_id, each.producer_epoch)


def test_a_cleaning_that_cannot_be_done_leaves_no_file(tmp_path, monkeypatch):
    disk = Disk(tmp_path)
    log = disk.log(**COMPACT)

    def fill():
        for nth in range(20):
            put(log, (b"k%d" % (nth % 5), b"%d" % nth * 100))

    fill()
    compact(disk)
    cleaned_to = disk.manager.compactor.cleaned_to[KEY]
    path = next(segment for segment in log.segments if segment.size).path(".log")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")  # what is clean is read when it is written again
    fill()
    compact(disk)
    assert disk.manager.compactor.uncleanable == 1
    assert not any("cleaned" in name for name in (*disk.open_logs(), *os.listdir(tmp_path / "t-0")))
    path.write_bytes(whole)
    with monkeypatch.context() as patched:
        patched.setattr(compactor, "Plan", None)  # a bug, before the worker has anything to do
        disk.clock.advance(60_000)
        disk.manager.advance_clock()
    assert disk.manager.compactor.next_deadline_ms() == disk.clock.now_ms() + 15_000  # others are looked at before
    assert disk.manager.compactor.uncleanable == 1

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        compact(disk)
    assert disk.manager.is_offline and disk.manager.compactor.cleaned_to == {KEY: cleaned_to}
    disk.clock.advance(120_000)
    disk.manager.advance_clock()
    assert disk.manager.compactor.uncleanable == 0  # the directory has been reported


def test_what_follows_a_truncation_is_not_clean(store):
    log = store.log(**COMPACT)
    for nth in range(20):
        put(log, (b"k", b"%d" % nth * 150))
    compact(store)
    cleaned_to = store.manager.compactor.cleaned_to[KEY]
    store.cleaner.jobs = True
    compact(store)
    assert not store.cleaner.waiting  # there is nothing to clean
    store.cleaner.release()
    for offset, expected in ((cleaned_to + 1, cleaned_to), (cleaned_to, cleaned_to), (5, 5)):
        log.truncate_to(offset)
        assert store.manager.compactor.cleaned_to[KEY] == expected


def test_it_happens_by_itself_when_enough_is_dirty(store):
    log = store.log(**COMPACT, min_cleanable_dirty_ratio=0.5)
    for nth in range(20):
        put(log, (b"k%d" % nth, b"v" * 300))
    assert store.manager.compactor.next_deadline_ms() == store.clock.now_ms() + 15_000
    wait(store)
    cleaned_to = store.manager.compactor.cleaned_to[KEY]
    assert cleaned_to == log.segments[-1].base_offset
    assert store.manager.compactor.next_deadline_ms() is None  # and nothing to do until more is written
    for nth in range(4):
        put(log, (b"k%d" % nth, b"w" * 300))
    wait(store)
    assert store.manager.compactor.cleaned_to[KEY] == cleaned_to  # less than the half
    for nth in range(30):
        put(log, (b"k%d" % (nth % 20), b"x" * 300))
    wait(store)
    assert store.manager.compactor.cleaned_to[KEY] == log.segments[-1].base_offset


@pytest.mark.parametrize(("lags", "first"), [({}, "b"), ({"max_compaction_lag_ms": 20_000}, "a")])
def test_the_dirtiest_log_comes_first_and_before_it_one_that_is_overdue(lags, first):
    store = Disk()
    logs = {
        "a": store.log("a", **COMPACT, min_cleanable_dirty_ratio=0.0, **lags),
        "b": store.log("b", **COMPACT, min_cleanable_dirty_ratio=0.0),
    }

    def fill(name, count):
        for nth in range(count):
            put(logs[name], (b"k%d" % nth, b"%d" % nth * 150))

    for name in logs:
        fill(name, 20)
    wait(store)
    assert {key[0] for key in store.manager.compactor.cleaned_to} == {"a", "b"}
    assert (store.manager.compactor.next_deadline_ms(), store.manager.compactor.uncleanable) == (None, 0)
    fill("a", 10)
    fill("b", 40)
    store.clock.advance(15_000)
    store.cleaner.outcomes = True
    store.clock.advance(10_000)
    store.manager.advance_clock()
    assert [each.end_offset for each in store.cleaner.found] == [logs[first].segments[-1].base_offset]  # one at a time
    assert store.manager.compactor.next_deadline_ms() is None
    store.cleaner.release()
    for _ in range(3):
        store.manager.advance_clock()
    assert {key[0]: offset for key, offset in store.manager.compactor.cleaned_to.items()} == {
        name: log.segments[-1].base_offset for name, log in logs.items()
    }


@pytest.mark.parametrize(("setting", "ratio"), [("min_compaction_lag_ms", 0.0), ("max_compaction_lag_ms", 1.0)])
def test_lags_hold_it_up_and_bring_it_forward(store, setting, ratio):
    log = store.log(**COMPACT, min_cleanable_dirty_ratio=ratio, **{setting: 20_000})
    for nth in range(20):
        put(log, (b"k", b"%d" % nth * 150))
    wait(store)
    assert KEY not in store.manager.compactor.cleaned_to
    wait(store)  # 30 seconds later
    assert store.manager.compactor.cleaned_to[KEY] == log.segments[-1].base_offset


def wait(store):
    """The clock goes on by log.cleaner.backoff.ms; what is due is done."""
    store.clock.advance(15_000)
    for _ in range(3):
        store.manager.advance_clock()


def test_tombstones_stay_until_their_horizon(store):
    log = store.log(**COMPACT, delete_retention_ms=1000)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", None))
    end_segment(log)
    compact(store)
    assert keyed_content(log)[:2] == [(1, b"b", b"1"), (2, b"a", None)]
    (first, *_) = batches_in(log)
    assert (first.attributes & 0x40, first.base_timestamp_ms) == (0x40, T0 + 1000)
    assert {record.timestamp_ms for record in first.records()} == {T0}  # the horizon takes the place of the base, not of the time
    store.clock.advance(999)
    end_segment(log)
    compact(store)
    assert keyed_content(log)[1] == (2, b"a", None)
    store.clock.advance(1)
    end_segment(log)
    compact(store)
    assert keyed_content(log)[0] == (1, b"b", b"1")
    assert b"a" not in [key for _, key, _ in keyed_content(log)]


def end_segment(log, wall_ms=T0):
    """Ends the active segment."""
    base = log.segments[-1].base_offset
    while log.segments[-1].base_offset == base:
        put(log, (b"filler", b"f" * 300), wall_ms=wall_ms)


def test_aborted_records_go_and_the_marker_after_them(store):
    log = store.log(**COMPACT, delete_retention_ms=1000)
    put(log, (b"a", b"0"))
    put(log, (b"a", b"aborted"), (b"c", b"aborted"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 5, commit=False)
    put(log, (b"b", b"committed"), producer_id=5, producer_epoch=0, base_sequence=2, is_transactional=True)
    end_transaction(log, 5, commit=True)
    put(log, (b"z", b"z"), producer_id=5, producer_epoch=0, base_sequence=3, is_transactional=True)
    end_transaction(log, 5, commit=True)
    end_segment(log)
    assert log.aborted_transactions(0, log.end_offset) == [(5, 1, 3, 4)]
    compact(store)
    assert [(o, k, v) for o, k, v in keyed_content(log) if k != b"filler"] == [(0, b"a", b"0"), (4, b"b", b"committed"), (6, b"z", b"z")]
    assert [each.base_offset for each in batches_in(log) if each.is_control] == [3, 5, 7]
    assert log.aborted_transactions(0, log.end_offset) == [(5, 1, 3, 4)]  # its marker is there
    end_segment(log)
    compact(store)  # nothing left of it: the marker gets its horizon, the entry goes
    assert [each.base_offset for each in batches_in(log) if each.is_control] == [3, 5, 7]
    assert log.aborted_transactions(0, log.end_offset) == []
    store.clock.advance(1000)
    end_segment(log)
    compact(store)
    assert [each.base_offset for each in batches_in(log) if each.is_control] == [5, 7]


def test_transactions_that_are_open_together_end_each_by_its_own_marker(store):
    log, commits = store.log(**COMPACT), {5: False, 6: True, 7: False, 8: True}
    for sequence in range(2):
        for producer in commits:
            record = b"k%d" % producer, b"%d" % sequence
            put(log, record, producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    for producer, commit in commits.items():
        end_transaction(log, producer, commit)
    end_segment(log)
    compact(store)
    assert [(key, value) for _, key, value in keyed_content(log) if key != b"filler"] == [(b"k6", b"1"), (b"k8", b"1")]
    assert [each.producer_id for each in batches_in(log) if each.is_control] == [5, 6, 7, 8]
    assert sorted(each.producer_id for each in log.aborted_transactions(0, log.end_offset)) == [5, 7]


def test_a_read_is_told_of_the_aborted_transactions_it_touches_and_of_few_others(store):
    log = store.log(segment_bytes=2_000, index_interval_bytes=200)
    for nth in range(40):
        put(log, (b"k", b"v"), producer_id=1, producer_epoch=0, base_sequence=nth, is_transactional=True)
        end_transaction(log, 1, commit=False)
    for first in range(0, 80, 7):
        read = log.read(first, 500, log.end_offset, True)
        end = first + len([1 for piece in read for _ in read_batches(piece if isinstance(piece, memoryview) else piece.read())])
        reported = log.aborted_transactions(first, log.offset_after(first, sum(piece.nbytes for piece in read)))
        offsets = [each.first_offset for each in reported]
        assert set(range(first - first % 2, end, 2)) <= set(offsets)
        assert len(offsets) < 10


def test_an_open_transaction_stops_it(store):
    log = store.log(**COMPACT)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, (b"a", b"3"))
    end_segment(log)
    store.manager.last_stable_offset = lambda key: log.producers.first_unstable_offset()
    compact(store)
    assert [value for _, key, value in keyed_content(log) if key == b"a"] == [b"1", b"2", b"3"]
    assert cleanable(log, log.config, 0, 1, T0)[:2] == (0, 1)


def test_the_last_batch_of_a_producer_stays_empty(store):
    log = store.log(**COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=40)
    put(log, (b"a", b"2"))
    end_segment(log)
    compact(store)
    (first, *_) = batches_in(log)
    assert (first.base_offset, first.record_count, first.producer_id, first.producer_epoch, first.last_sequence) == (0, 0, 7, 2, 40)
    if store.paths:
        store.crash()
        assert store.log(**COMPACT).producers.entries[7].last_sequence == 40


def test_a_segment_that_compaction_emptied_keeps_no_other_from_retention(store):
    for retention_ms, retention_bytes in ((1_000, -1), (-1, 600)):
        log = store.log(cleanup_policy="compact,delete", segment_bytes=700, file_delete_delay_ms=0)
        for nth in range(8):
            put(log, (b"k", b"%d" % nth * 600))  # one in a segment
        compact(store)
        sizes = [segment.size for segment in log.segments]
        assert not any(sizes[:3]) and all(sizes[-2:])
        assert log.delete_old_segments(retention_ms, retention_bytes, T0 + 900) == (0 if retention_ms > 0 else len(sizes) - 1)
        if retention_ms > 0:
            put(log, (b"k", b"young" * 120), wall_ms=T0 + 900)
            assert log.delete_old_segments(retention_ms, -1, T0 + 1_001) == len(sizes)
        store.manager.delete(*KEY)


def message_set(magic, key, offset):
    builder = BatchBuilder(magic=magic, base_offset=offset)
    assert builder.append(b"old" * 50, key=key, timestamp_ms=T0)
    return bytes(builder.build())


def test_old_messages_stay_and_their_keys_count(store):
    log = store.log(**COMPACT)
    log.append_replicated(message_set(0, b"k", 0) + message_set(1, b"k", 1))
    put(log, (b"k", b"new"), (b"other", b"1"))
    log.append_replicated(message_set(1, b"other", 4))
    end_segment(log)
    compact(store)
    left = [(offset, key) for offset, key, _ in keyed_content(log) if key != b"filler"]
    assert left == [(0, b"k"), (1, b"k"), (2, b"k"), (4, b"other")]


def test_the_last_batch_of_what_is_cleaned_stays_empty(store):
    log = store.log(**COMPACT)
    for key in (b"a", b"a", None, None):  # a record without a key does not stay
        put(log, (key, b"v" * 150))
    while log.segments[-1].base_offset < 4:
        put(log, (b"active", b"v" * 600))
    compact(store)
    assert [(each.base_offset, each.record_count) for each in batches_in(log) if each.base_offset < 4] == [(1, 1), (3, 0)]


def test_what_lies_behind_a_full_map_of_keys_is_left_for_the_next_time():
    """Also records without a key, which may be from before the topic was compacted."""
    store = Disk(log_cleaner_dedupe_buffer_size=1)  # not even the keys of one batch fit
    log = store.log(**COMPACT)
    rows = [(b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"b", b"4")]
    for row in rows:
        put(log, row)
    end_segment(log)
    compact(store)
    assert store.manager.compactor.cleaned_to[KEY] == 1
    assert [(key, value) for _, key, value in keyed_content(log)][:4] == rows
    compact(store)
    assert [(key, value) for _, key, value in keyed_content(log)][:2] == [rows[0], rows[3]]


def test_compression_is_kept(store):
    log = store.log(**COMPACT)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        put(log, (b"k", b"old" * 50), (b"%s" % codec.encode(), b"new" * 50), compression=codec)
    put(log, (b"k", b"newest"))
    end_segment(log)
    compact(store)
    kept = [each for each in batches_in(log) if each.compression]
    assert [each.compression for each in kept] == [1, 2, 3, 4]
    assert [(each.record_count, each.base_offset, each.last_offset) for each in kept] == [(1, 2 * n, 2 * n + 1) for n in range(4)]


def test_segments_become_one_and_survive_restart_and_crash(tmp_path):
    disk = Disk(tmp_path)
    log = disk.log(**COMPACT)
    for nth in range(60):
        put(log, (b"k%d" % (nth % 3), b"v" * 100))
    many = len(log.segments)
    compact(disk)
    assert len(log.segments) == many  # grouped by what they were before
    end_segment(log)
    compact(disk)
    assert len(log.segments) < many / 3
    expected = keyed_content(log)
    names = os.listdir(tmp_path / "t-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    first = log.segments[0]
    assert (first.written_ms, first.created_ms, first.path(".log").stat().st_mtime_ns) == (T0, T0, T0 * 1_000_000)
    disk.restart()
    assert disk.manager.compactor.cleaned_to[KEY] > 0
    assert keyed_content(disk.log(**COMPACT)) == expected
    disk.crash()
    assert keyed_content(disk.log(**COMPACT)) == expected


@pytest.mark.parametrize("at", range(12))
def test_a_crash_at_any_step_of_the_swap_keeps_every_last_value(tmp_path, at, monkeypatch):
    disk = Disk(tmp_path)
    log = disk.log(**COMPACT)
    for nth in range(30):
        put(log, (b"k%d" % (nth % 3), b"%d" % nth + b"v" * 100))
    latest = {key: value for _, key, value in keyed_content(log)}
    real, steps = os.replace, 0

    def dying(source, target):
        nonlocal steps
        steps += 1
        if steps > at:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying)
        try:
            compact(disk)
        except KeyboardInterrupt:
            pass
    disk.crash()
    log = disk.log(**COMPACT)
    assert log.end_offset == 30
    assert {key: value for _, key, value in keyed_content(log)} == latest
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_log_whose_first_segment_goes_during_a_cleaning_is_cleaned_once_more(store):
    log = store.log(**COMPACT)
    for nth in range(30):
        put(log, (b"k%d" % (nth % 2), b"%d" % nth * 100))
    store.cleaner.outcomes = True
    compact(store)
    assert len(store.cleaner.found[0].groups) > 1
    log.advance_start(log.segments[1].base_offset)
    store.cleaner.release()
    assert KEY not in store.manager.compactor.cleaned_to
    compact(store)
    assert store.manager.compactor.cleaned_to[KEY] == log.segments[-1].base_offset


@pytest.mark.parametrize("held", ["jobs", "outcomes"])
@pytest.mark.parametrize("change", ["deleted", "truncated"])
def test_a_cleaning_lets_go_of_files_nobody_wants(store, change, held):
    """The log goes before the cleaning begins, or when it is done, or becomes another one from its second record on."""
    log = store.log(**COMPACT)
    for nth in range(30):
        put(log, (b"k", b"%d" % nth * 100))
    setattr(store.cleaner, held, True)
    compact(store)
    assert any("cleaned" in name for name in store.open_logs()) == (held == "outcomes" and store.paths != [])
    if change == "deleted":
        store.manager.delete(*KEY)
    else:
        log.truncate_to(2)
        for nth in range(8):  # the same segments, with other records
            put(log, (b"%d" % nth, b"new" * 40))
        expected = keyed_content(log)
    store.cleaner.release()
    assert not any("cleaned" in name for name in store.open_logs()) and KEY not in store.manager.compactor.cleaned_to
    assert not store.manager.is_offline
    if change == "truncated":
        assert keyed_content(log) == expected and len(expected) == 10
        assert not [name for path in store.paths for name in os.listdir(path / "t-0") if name.endswith(".cleaned")]


def test_a_cleaning_holds_back_neither_fsync_nor_deletion(tmp_path):
    disk = Disk(tmp_path)
    disk.cleaner.jobs = True
    log = disk.log(**COMPACT)
    for nth in range(30):
        put(log, (b"k", b"%d" % nth * 100))
    compact(disk)
    assert len(disk.cleaner.waiting) == 1  # under way
    disk.manager.flush_later(log, log.end_offset)
    assert log.recovery_point == log.end_offset
    (tmp_path / "t-0" / "late.cleaned").write_bytes(b"")  # and still is when the log's directory goes
    disk.manager.delete("t", 0)
    disk.advance(60_000)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("t-0")]
    disk.cleaner.release()
    disk.manager.close()


def test_a_directory_that_a_cleaning_wrote_into_is_deleted_later(tmp_path, monkeypatch):
    disk = Disk(tmp_path)
    disk.log(**COMPACT)
    rmtree = shutil.rmtree

    def written_into(path, *args, **kwargs):
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr(shutil, "rmtree", written_into)
    disk.manager.delete("t", 0)
    for _ in range(2):
        assert [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
        disk.advance(60_000)
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-delete")]
    disk.manager.close()


def test_a_cleaning_that_is_given_up_leaves_everything_as_it_was(tmp_path):
    disk = Disk(tmp_path)
    disk.cleaner.jobs = True
    log = disk.log(**COMPACT)
    for nth in range(30):
        put(log, (b"k", b"%d" % nth * 100))
    expected = keyed_content(log)
    compact(disk)
    disk.manager.compactor.cancel()
    disk.cleaner.release()
    assert keyed_content(log) == expected and KEY not in disk.manager.compactor.cleaned_to
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith(".cleaned")]
    compact(disk)
    assert keyed_content(log) != expected


seen_by_readers = Reached(
    "two transactions that are open together abort",
    "two transactions that are open together commit",
    "a transaction commits beside one that aborts",
    "compacted while a transaction is open",
    "a tombstone is the last of its key",
    "a later pass goes further",
)
KEYS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=3)
ACTIONS = st.sampled_from(["commit", "abort", "open"] * 3 + ["compact"])


@functools.partial(seen_by_readers.by, rounds=10)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(KEYS, st.sampled_from([-1, 0, 0, 1, 1]), ACTIONS), min_size=5, max_size=30), st.sampled_from([1, 1, 3000, 3000]))
def test_readers_see_what_the_model_says(plan, map_bytes):
    """Transactions of two producers, tombstones, several passes with a small map of keys: a committed reader sees the latest values."""
    store = Disk(log_cleaner_dedupe_buffer_size=map_bytes)
    log = store.log(**COMPACT, delete_retention_ms=DAY_MS)
    store.manager.last_stable_offset = lambda key: log.end_offset if (at := log.producers.first_unstable_offset()) is None else at
    sequences, open_, ended = {0: 0, 1: 0}, set(), {}
    for nth, (keys, producer, action) in enumerate(plan):
        pairs = [(b"k%d" % key, None if gone else b"%d" % nth + b"v" * 80) for key, gone in keys]
        if producer < 0:
            put(log, *pairs)
        else:
            put(log, *pairs, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer], is_transactional=True)
            sequences[producer] += len(pairs)
            open_.add(producer)
            if action in ("commit", "abort"):
                end_transaction(log, producer, commit=action == "commit")
                open_.discard(producer)
                other = ended.pop(1 - producer, None)  # how the other ended while this one was open
                seen_by_readers("two transactions that are open together abort", other == action == "abort")
                seen_by_readers("two transactions that are open together commit", other == action == "commit")
                seen_by_readers("a transaction commits beside one that aborts", {other, action} == {"commit", "abort"})
                ended = {producer: action} if open_ else {}
        if action == "compact":
            seen_by_readers("compacted while a transaction is open", open_)
            before = committed_values(log)
            compact(store)
            assert committed_values(log) == before
    for producer in sequences:
        end_transaction(log, producer, commit=True)
    everything = committed_values(log)
    seen_by_readers("a tombstone is the last of its key", len(everything) < len({key for _, key, _ in keyed_content(log)}))
    end_segment(log)
    passes = []
    for _ in range(3):
        compact(store)
        passes.append(store.manager.compactor.cleaned_to.get(KEY, 0))
    seen_by_readers("a later pass goes further", passes[0] < passes[-1])
    after = committed_values(log)
    assert {k: v for k, v in after.items() if k != b"filler"} == {k: v for k, v in everything.items() if k != b"filler"}
    offsets = [offset for offset, _, _ in keyed_content(log)]
    assert offsets == sorted(set(offsets))


def committed_values(log) -> dict[bytes, bytes | None]:
    """The last value of every key that a reader of committed records sees, tombstones as None or not at all."""
    aborted = log.aborted_transactions(0, log.end_offset)
    seen: dict[bytes, bytes | None] = {}
    for each in batches_in(log):
        mine = [transaction for transaction in aborted if transaction.producer_id == each.producer_id]
        if each.is_control or any(transaction.first_offset <= each.base_offset <= transaction.last_offset for transaction in mine):
            continue
        for record in each.records():
            seen[record.key] = record.value
    return {key: value for key, value in seen.items() if value is not None}


class Damaged:
    """Reads of a log's segments fail, as many as the test says: bad memory, or a bug."""

    def __init__(self, monkeypatch, error):
        self.left, self.error, self.tries = 0, error, 0
        real = compactor.clean

        def clean(plan, make):
            self.tries += 1
            if self.left:
                self.left -= 1
                raise self.error
            return real(plan, make)

        monkeypatch.setattr(compactor, "clean", clean)


@pytest.mark.parametrize(
    "error",
    [CorruptDataError("a bad read"), ZeroDivisionError("a bug"), OSError(errno.EMFILE, "Too many open files")],
    ids=["damage", "bug", "descriptors"],
)
def test_a_log_that_could_not_be_compacted_is_tried_again_later_and_later(store, monkeypatch, caplog, error):
    log = store.log(**COMPACT, min_cleanable_dirty_ratio=0.0)
    damage = Damaged(monkeypatch, error)
    damage.left = 3
    for nth in range(20):
        put(log, (b"k", b"%d" % nth * 150))
    wait(store)
    assert (damage.tries, store.manager.compactor.uncleanable, store.manager.is_offline) == (1, 1, False)
    waits = []
    while KEY not in store.manager.compactor.cleaned_to:
        before = store.clock.now_ms()
        store.advance(store.manager.compactor.next_deadline_ms() - before)
        waits.append(store.clock.now_ms() - before)
    assert [each for each in waits if each] == [60_000, 120_000, 240_000]  # 0: whether another log can be compacted
    assert store.manager.compactor.cleaned_to[KEY] == log.segments[-1].base_offset
    assert (damage.tries, store.manager.compactor.uncleanable) == (4, 0)
    assert "t-0 cannot be compacted (try 3, the next one in 240 s)" in caplog.text
    damage.left = 1
    for nth in range(20):
        put(log, (b"k", b"%d" % nth * 150))
    wait(store)
    assert "(try 1, the next one in 60 s)" in caplog.records[-1].getMessage()  # it was fixed in between
    assert store.manager.compactor.uncleanable == 1


def test_a_log_that_stays_damaged_is_tried_once_an_hour_keeps_no_other_waiting_and_is_forgotten_with_its_topic(monkeypatch):
    store = Disk()
    damaged, repaired, healthy = store.log(**COMPACT), store.log("r", **COMPACT), store.log("h", **COMPACT)
    real, broken = compactor.cleanable, {damaged, repaired}

    def cleanable_or_not(log, *args):
        if log in broken:
            raise CorruptDataError("a bad index")
        return real(log, *args)

    monkeypatch.setattr(compactor, "cleanable", cleanable_or_not)
    for log in (damaged, repaired, healthy):
        for nth in range(20):
            put(log, (b"k", b"%d" % nth * 150))
    wait(store)
    assert store.manager.compactor.cleaned_to == {("h", 0): healthy.segments[-1].base_offset}
    assert store.manager.compactor.uncleanable == 2
    broken.remove(repaired)
    store.advance(60_000)
    for _ in range(3):
        store.manager.advance_clock()
    assert store.manager.compactor.cleaned_to.keys() == {("h", 0), ("r", 0)} and store.manager.compactor.uncleanable == 1
    gaps = []
    for _ in range(10):
        before = store.clock.now_ms()
        store.advance(store.manager.compactor.next_deadline_ms() - before)
        gaps.append(store.clock.now_ms() - before)
    assert gaps[-3:] == [3_600_000] * 3
    for nth in range(20):
        put(healthy, (b"k", b"%d" % nth * 150))
    assert store.manager.compactor.next_deadline_ms() == store.clock.now_ms() + 15_000  # not the next try of the other
    wait(store)
    assert store.manager.compactor.cleaned_to[("h", 0)] == healthy.segments[-1].base_offset
    store.manager.delete(*KEY)
    store.advance(3_600_000)
    assert (store.manager.compactor.uncleanable, store.manager.compactor.next_deadline_ms()) == (0, None)
