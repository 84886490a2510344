"""Idempotence and transactions in one partition: resends, gaps, epochs, open transactions, markers, verification, snapshots."""

import struct
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.producer_ids import ProducerIds
from kafkacore.broker.producers import (
    BATCHES_TO_RETAIN,
    MAX_SEQUENCE,
    AbortedTxn,
    AppendOrigin,
    BatchMetadata,
    ProducerStates,
    collect_aborted,
    coordinator_epoch,
)
from kafkacore.codec import crc32c
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder, control_batch, read_batches
from tests.kit.batches import batch
from tests.kit.reached import Reached
from tests.kit.rows import each_row

PID = 7
DAY_MS = 86_400_000


class Written:
    """A partition as far as its producers see it: offsets are counted here, batches are real."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0
        self.index: list[AbortedTxn] = []

    def data(self, sequence, count=1, epoch=0, pid=PID, transactional=False):
        values = [b"v"] * count
        raw = batch(values, producer_id=pid, epoch=epoch, sequence=sequence, is_transactional=transactional)
        return next(iter(read_batches(raw)))

    def append(self, sequence, count=1, epoch=0, pid=PID, transactional=False, guard=None, origin=AppendOrigin.CLIENT):
        """Like a leader; returns the earlier batch of a resend."""
        new = self.data(sequence, count, epoch, pid, transactional)
        resent = self.states.check(new, origin, guard)
        if resent is None:
            self.take(new)
        return resent

    def begin(self, sequence=0, count=1, epoch=0, pid=PID):
        """The first batch of a transaction, verified."""
        guard = self.states.start_verification(pid, epoch, sequence, 0, False)
        self.append(sequence, count, epoch, pid, True, guard)

    def mark(self, commit, epoch=0, pid=PID, coordinator_epoch=0, version=0):
        self.states.check_marker(pid, epoch, coordinator_epoch, version)
        raw = control_batch(commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp_ms=5)
        self.take(next(iter(read_batches(raw))))

    def take(self, new):
        aborted = self.states.replay(new, self.end)
        if aborted is not None:
            self.index.append(aborted)
        self.end += new.last_offset - new.base_offset + 1

    @property
    def entry(self):
        return self.states.entries[PID]


@pytest.fixture
def log():
    return Written()


# ---- ids


class GivesIds:
    broker_epoch = 9

    def __init__(self):
        self.asked = []

    def submit(self, request, version, done):
        self.asked.append((request, version, done))


def test_ids_come_in_blocks_and_all_who_wait_get_the_reason_why_there_is_none():
    controller, got = GivesIds(), []
    ids = ProducerIds(controller, 4)
    for start, length, left in ((100, 2, 1), (0, 3, 0)):
        for _ in range(3 if not got else 2):
            ids.take(got.append)
        (asked,) = controller.asked  # one at a time
        assert asked[:2] == (p.AllocateProducerIdsRequest(broker_id=4, broker_epoch=9), 0)
        controller.asked.clear()
        asked[2](p.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length))
        assert len(controller.asked) == left
    assert got == [100, 101, 0, 1, 2]
    refused = p.AllocateProducerIdsResponse(error_code=Code.STALE_BROKER_EPOCH, producer_id_start=5, producer_id_len=1)
    for answer, error in (
        (refused, errors.StaleBrokerEpoch),
        (p.ApiVersionsResponse(), errors.UnknownServer),
        (errors.RequestTimedOut(), errors.RequestTimedOut),
    ):
        got.clear()
        ids.take(got.append)
        ids.take(got.append)
        controller.asked.pop()[2](answer)
        assert [type(each) for each in got] == [error] * 2 and controller.asked == []


# ---- sequences


def test_each_of_the_last_five_batches_may_be_resent(log):
    log.end = 100
    for nth in range(7):
        assert log.append(nth * 10, 10) is None
    for nth in range(7 - BATCHES_TO_RETAIN, 7):
        resent = log.append(nth * 10, 10)
        assert (resent.first_offset, resent.last_offset) == (100 + nth * 10, 109 + nth * 10)
    with pytest.raises(errors.OutOfOrderSequence):
        log.append(10, 10)


def test_deciding_about_a_batch_or_a_marker_changes_nothing(log):
    log.append(0, 3)
    log.begin(pid=8)
    before = log.states.to_snapshot(), log.states.first_unstable_offset()
    for sequence, epoch in ((3, 0), (0, 1)):
        assert log.states.check(log.data(sequence, epoch=epoch)) is None
    assert log.states.check(log.data(0, 3)).last_offset == 2
    for sequence, count in ((9, 1), (0, 2)):  # a gap, and what only begins like an old batch
        with pytest.raises(errors.OutOfOrderSequence, match="expected 3"):
            log.states.check(log.data(sequence, count))
    log.states.check_marker(8, 0, 5, 0)
    log.states.check_marker(PID, 3, 5, 0)
    assert (log.states.to_snapshot(), log.states.first_unstable_offset()) == before
    assert log.append(3) is None  # neither the next epoch nor the coordinator is known by a mere question


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(log):
    log.append(0, 3)
    with pytest.raises(errors.OutOfOrderSequence):
        log.append(3, epoch=1)
    assert log.append(0, epoch=1) is None
    for sequence, transactional in ((0, False), (3, False), (3, True)):  # it hears of its epoch before anything else
        with pytest.raises(errors.InvalidProducerEpoch):
            log.append(sequence, transactional=transactional)
    with pytest.raises(errors.InvalidProducerEpoch):  # a zombie holds no producer up
        log.states.start_verification(PID, 0, 0, 0, True)


def test_a_coordinator_numbers_nothing(log):
    guard = log.states.start_verification(PID, 0, -1, 0, False)
    for _ in range(3):
        assert log.append(-1, transactional=True, origin=AppendOrigin.COORDINATOR, guard=guard) is None
    assert log.entry.batches[-1] == BatchMetadata(-1, -1, 2, 2, log.entry.last_timestamp_ms)


consecutive = Reached("goes on from 0", "ends with the largest", "has the largest and 0", "far from it")


@partial(consecutive.by, rounds=8)
@given(st.lists(st.integers(1, 3), min_size=3, max_size=6), st.integers(0, 5))
@settings(max_examples=10)
def test_consecutive_batches_are_always_accepted_once(counts, below_largest):
    log = Written()
    sequence = MAX_SEQUENCE - below_largest
    for count in counts:
        at, last = log.end, sequence + count - 1
        assert log.append(sequence, count) is None
        assert log.append(sequence, count).first_offset == at
        consecutive("goes on from 0", sequence == 0)
        consecutive("ends with the largest", last == MAX_SEQUENCE)
        consecutive("has the largest and 0", last > MAX_SEQUENCE)
        consecutive("far from it", last < MAX_SEQUENCE - 3)
        sequence = (last + 1) % (MAX_SEQUENCE + 1)
    with pytest.raises(errors.OutOfOrderSequence):
        log.append((sequence + 1) % (MAX_SEQUENCE + 1))


# ---- open transactions and the last stable offset


def test_the_earliest_open_transaction_bounds_what_is_stable(log):
    log.append(0, 5, pid=1)
    assert log.states.first_unstable_offset() is None
    log.begin(pid=2)  # offset 5
    log.begin(pid=3)  # offset 6
    log.append(1, transactional=True, pid=2)  # 7
    assert log.states.first_unstable_offset() == 5
    log.mark(False, pid=2)  # 8
    assert log.index == [AbortedTxn(2, 5, 8, 6)]
    assert log.states.first_unstable_offset() == 5
    log.mark(True, pid=3)  # 9
    assert log.states.first_unstable_offset() == 5  # both markers are above the high watermark
    assert not log.states.high_watermark_updated(8)
    assert log.states.high_watermark_updated(9)  # the marker at 8
    assert log.states.first_unstable_offset() == 6
    log.states.start_offset_updated(9)
    assert log.states.first_unstable_offset() == 6
    log.states.start_offset_updated(10)
    assert log.states.first_unstable_offset() is None and not log.states.high_watermark_updated(10)


def test_markers_of_an_older_producer_or_coordinator_are_refused(log):
    log.begin(epoch=3)
    with pytest.raises(errors.InvalidProducerEpoch):
        log.mark(True, epoch=2)
    log.mark(True, epoch=3, coordinator_epoch=5)
    with pytest.raises(errors.TransactionCoordinatorFenced):
        log.mark(True, epoch=3, coordinator_epoch=4)


def test_with_version_2_a_late_marker_does_not_end_the_next_transaction(log):
    log.begin(epoch=0)
    log.mark(True, epoch=1, version=2)
    log.mark(True, epoch=1, version=2)  # once more after a lost answer: nothing is open
    log.begin(epoch=1)
    with pytest.raises(errors.InvalidProducerEpoch):
        log.mark(True, epoch=1, version=2)
    assert log.states.has_ongoing_transaction(PID, 1)
    log.mark(False, epoch=2, version=2)
    assert [entry.first_offset for entry in log.index] == [3]


# ---- verification


def test_a_first_batch_needs_its_guard(log):
    with pytest.raises(errors.InvalidTxnState):
        log.append(0, transactional=True)
    guard = log.states.start_verification(PID, 0, 0, 0, False)
    other = ProducerStates().start_verification(PID, 0, 0, 0, False)
    with pytest.raises(errors.InvalidTxnState):
        log.append(0, transactional=True, guard=other)
    assert log.append(0, transactional=True, guard=guard) is None
    assert log.append(1, transactional=True) is None
    assert log.states.start_verification(PID, 0, 2, 0, False) is None
    with pytest.raises(errors.InvalidTxnState, match="not transactional"):
        log.append(2)
    assert ProducerStates().check(log.data(0, transactional=True), verification_enabled=False) is None


def test_a_marker_between_verification_and_batch_takes_the_guard_away(log):
    guard = log.states.start_verification(PID, 0, 0, 0, False)
    others = log.states.start_verification(8, 0, 0, 0, False)
    log.mark(False)
    assert log.append(0, pid=8, transactional=True, guard=others) is None
    log.mark(True, pid=8)
    with pytest.raises(errors.InvalidTxnState):
        log.append(0, transactional=True, guard=guard)
    log.states.high_watermark_updated(log.end)
    assert log.index == [] and log.states.first_unstable_offset() is None  # it ended nothing
    assert (log.entry.epoch, log.entry.last_timestamp_ms, len(log.entry.batches)) == (0, 5, 0)
    with pytest.raises(errors.OutOfOrderSequence, match="expected 0"):
        log.append(3)


def test_the_marker_of_the_transaction_before_leaves_the_guard_of_version_2_alone(log):
    """The producer goes on with the next epoch before its last transaction has all its markers, and they carry that epoch too."""
    log.begin(epoch=0)
    guard = log.states.start_verification(PID, 1, 0, 0, True)
    log.mark(True, epoch=1)
    assert log.append(0, epoch=1, transactional=True, guard=guard) is None


def test_the_lowest_sequence_under_verification_goes_first(log):
    guard = log.states.start_verification(PID, 0, 5, 0, False)
    assert log.states.start_verification(PID, 0, 3, 0, False) is guard
    with pytest.raises(errors.OutOfOrderSequence):
        log.append(5, transactional=True, guard=guard)
    assert log.append(3, 2, transactional=True, guard=guard) is None
    assert log.append(5, transactional=True) is None
    of_version_2 = Written()
    guard = of_version_2.states.start_verification(PID, 0, 4, 0, True)
    with pytest.raises(errors.OutOfOrderSequence, match="instead of 0"):
        of_version_2.append(4, transactional=True, guard=guard)
    assert of_version_2.states.start_verification(PID, 1, 9, 0, True) is of_version_2.states.start_verification(PID, 0, 2, 0, True) is guard
    assert (guard.epoch, guard.lowest_sequence) == (1, 9)  # of the newest epoch


# ---- forgetting


def test_idle_producers_are_forgotten_but_not_inside_a_transaction(log):
    log.append(0, pid=1)
    log.begin(pid=2)
    last = log.states.entries[1].last_timestamp_ms
    assert log.states.expire(last + DAY_MS - 1, DAY_MS) == 0
    assert list(ProducerStates.from_snapshot(log.states.to_snapshot(), last + DAY_MS, DAY_MS).entries) == [2]
    assert log.states.expire(last + DAY_MS, DAY_MS) == 1
    assert list(log.states.entries) == [2]
    assert log.append(99, pid=1) is None
    log.mark(True, pid=2)
    assert log.states.expire(5 + DAY_MS, DAY_MS) == 1


def test_a_guard_that_is_never_used_expires(log):
    guards = [log.states.start_verification(pid, 0, 0, at_ms, False) for pid, at_ms in ((1, 100), (2, 101))]
    assert log.states.expire(100 + DAY_MS, DAY_MS) == 0
    assert log.append(0, pid=2, transactional=True, guard=guards[1]) is None
    with pytest.raises(errors.InvalidTxnState):
        log.append(0, pid=1, transactional=True, guard=guards[0])


@each_row("size, epoch", [(0, None), (5, None), (6, 7)])
def test_a_marker_says_the_epoch_of_its_coordinator(size, epoch):
    value = b"\0\0" + (7).to_bytes(4, "big")
    marker = next(iter(read_batches(batch([value[:size]], producer_id=1, epoch=0, is_transactional=True, is_control=True))))
    if epoch is not None:
        assert coordinator_epoch(marker) == epoch
    else:
        with pytest.raises(errors.CorruptDataError, match="offset 0 has no coordinator epoch"):
            coordinator_epoch(marker)


def test_a_transaction_that_nobody_ends_is_late(log):
    log.begin()
    last = log.entry.last_timestamp_ms
    assert not log.states.has_late_transaction(last + 900_000 + 300_000, 900_000)
    assert log.states.has_late_transaction(last + 900_000 + 300_001, 900_000)
    log.begin(pid=8)
    log.states.entries[8].last_timestamp_ms = last + DAY_MS
    for timestamp_ms, is_late in ((0, False), (1, True)):  # of the oldest
        log.entry.last_timestamp_ms = timestamp_ms
        assert log.states.has_late_transaction(DAY_MS, 900_000) is is_late
    log.mark(False, pid=8)
    log.mark(False)
    assert not log.states.has_late_transaction(last + DAY_MS, 900_000)


# ---- snapshots, the transaction index


def kept_of_producers(states):
    """All that a snapshot keeps. Of a batch before a marker it has the marker's time."""
    return {
        pid: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp_ms,
            entry.current_txn_first_offset,
            [each[:4] for each in entry.batches][-1:],
        )
        for pid, entry in states.entries.items()
    }


def test_a_snapshot_has_kafkas_layout(log):
    log.end = 40
    log.begin(3, 2, epoch=4)
    data = log.states.to_snapshot()
    timestamp = log.entry.last_timestamp_ms
    expected = struct.pack(">iqhiqiqiq", 1, PID, 4, 4, 41, 1, timestamp, -1, 40)
    assert data == struct.pack(">hI", 1, crc32c(expected)) + expected


@each_row("damage", ["short", "crc", "version", "count", "tail"])
def test_a_damaged_snapshot_is_refused(damage):
    log = Written()
    log.append(0)
    data = bytearray(log.states.to_snapshot())
    if damage == "short":
        del data[8:]
    elif damage == "crc":
        data[-1] ^= 1
    elif damage == "version":
        data[1] = 2
    else:
        if damage == "count":
            data[6:10] = struct.pack(">i", 1 << 30)
        else:
            data += b"x"
        data[2:6] = struct.pack(">I", crc32c(bytes(data[6:])))
    with pytest.raises(errors.CorruptDataError):
        ProducerStates.from_snapshot(data)


@st.composite
def histories(draw):
    """(pid, what) per step: a plain batch of n, a transactional batch of n, a commit, an abort."""
    return draw(
        st.lists(st.tuples(st.integers(1, 2), st.sampled_from(["plain", "in", "in", "commit", "abort"]), st.integers(1, 2)), min_size=8)
    )


def play(log, history):
    """Writes a history as a leader would; returns the batches as they lie in the log, with their offsets."""
    stored = []
    sequences = {}
    for pid, what, count in history:
        open_ = log.states.has_ongoing_transaction(pid, 0)
        at = log.end
        if what in ("commit", "abort"):
            raw = control_batch(what == "commit", producer_id=pid, producer_epoch=0, coordinator_epoch=1, timestamp_ms=9, base_offset=at)
        else:
            if open_ and what == "plain":
                continue
            builder = BatchBuilder(
                producer_id=pid, producer_epoch=0, base_sequence=sequences.get(pid, 0), is_transactional=what == "in", base_offset=at
            )
            for nth in range(count):
                builder.append(b"v", timestamp_ms=1000 + at + nth)
            sequences[pid] = sequences.get(pid, 0) + count
            raw = builder.build()
        new = next(iter(read_batches(bytes(raw))))
        log.take(new)
        stored.append(new)
    return stored


snapshots = Reached(
    "inside a transaction",
    "between two transactions",
    "behind a marker without records",
    "before the first batch",
    "behind the last batch",
    "an abort behind it",
)


@partial(snapshots.by, rounds=20)
@given(histories(), st.integers(0, 12))
@settings(max_examples=10)
def test_a_snapshot_and_the_rest_of_the_log_give_the_same_state(history, cut):
    log = Written()
    batches = play(log, history)
    replayed = ProducerStates()
    for each in batches[:cut]:
        replayed.replay(each)
    snapshots("inside a transaction", replayed.ongoing)
    snapshots("between two transactions", not replayed.ongoing and any(each.is_transactional for each in batches[:cut]))
    snapshots("behind a marker without records", any(not entry.batches for entry in replayed.entries.values()))
    snapshots("before the first batch", batches and cut == 0)
    snapshots("behind the last batch", cut >= len(batches))
    replayed = ProducerStates.from_snapshot(replayed.to_snapshot())
    index = [entry for each in batches[cut:] if (entry := replayed.replay(each)) is not None]
    assert kept_of_producers(replayed) == kept_of_producers(log.states)
    snapshots("an abort behind it", index)
    assert index == log.index[len(log.index) - len(index) :]
    log.states.high_watermark_updated(log.end)
    replayed.high_watermark_updated(log.end)
    assert replayed.first_unstable_offset() == log.states.first_unstable_offset()


collecting = Reached(
    "a transaction that began before what is read",
    "one that ends behind what is read",
    "one that ended before what is read",
    "one that begins behind what is read",
    "one that begins where what is read ends",
    "one whose marker is the first that is read",
    "a scan that stops early",
)


@partial(collecting.by, rounds=30)
@given(histories(), st.data())
@settings(max_examples=10)
def test_collecting_from_the_index_finds_what_a_scan_finds(history, data):
    log = Written()
    play(log, history)
    edges = sorted({0, log.end} | {at + by for each in log.index for at in each[1:3] for by in (0, 1)})
    at = data.draw(st.integers(0, len(edges) - 1))
    offset, upper = edges[at], edges[min(at + data.draw(st.sampled_from([1, 1, 2, 3])), len(edges) - 1)]
    found, is_done = collect_aborted(log.index, offset, upper)
    collecting("a transaction that began before what is read", any(each.first_offset < offset <= each.last_offset for each in log.index))
    collecting("one that ends behind what is read", any(each.first_offset < upper <= each.last_offset for each in log.index))
    collecting("one that ended before what is read", any(each.last_offset < offset for each in log.index))
    collecting("one that begins behind what is read", any(each.first_offset > upper for each in log.index))
    collecting("one that begins where what is read ends", any(each.first_offset == upper for each in log.index))
    collecting("one whose marker is the first that is read", any(each.last_offset == offset for each in log.index))
    collecting("a scan that stops early", is_done and found and found[-1] is not log.index[-1])
    assert is_done == any(each.last_stable_offset >= upper for each in log.index)
    # Beyond an entry whose last stable offset is at or after the upper end no transaction begins below that end.
    assert found == [entry for entry in log.index if entry.last_offset >= offset and entry.first_offset < upper]


def test_index_entries_survive_their_file():
    entries = [AbortedTxn(7, 0, 4, 3), AbortedTxn(2**40, 2**50, 2**51, 2**52)]
    data = b"".join(entry.encode() for entry in entries)
    assert len(data) == 2 * 34
    assert list(AbortedTxn.decode_all(data)) == entries
    with pytest.raises(errors.CorruptDataError):
        list(AbortedTxn.decode_all(data[:-1]))
    with pytest.raises(errors.CorruptDataError):
        list(AbortedTxn.decode_all(b"\0\1" + data[2:]))
