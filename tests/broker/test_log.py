"""The in-memory log: offsets, reads by bytes and offsets, timestamps, epochs, retention, and what is refused."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import MAX, append, content, topic_config

from kafkacore import errors, records
from kafkacore.broker.log import SEGMENT_MIN_BYTES, MemorySegment, read_one_batch
from kafkacore.broker.log import Log as AnyLog
from kafkacore.broker.producers import ProducerStates
from kafkacore.codec import crc32c
from kafkacore.records import control_batch, read_batches
from tests.kit.batches import T0, batch
from tests.kit.rows import each_row


def Log(**settings) -> AnyLog:
    return AnyLog(topic_config(**settings))


def offsets(views) -> list[int]:
    return [record.offset for view in views for each in records.read_batches(view) for record in each.records()]


def test_offsets_follow_each_other_and_the_stored_batch_carries_offset_and_epoch():
    log = Log()
    assert [append(log), append(log, [b"d"]), append(log, epoch=3)] == [0, 3, 4]
    assert log.end_offset == 7
    stored = [each for view in log.read(0, MAX, 7, True) for each in records.read_batches(view, check_crcs=True)]
    assert [(each.base_offset, each.last_offset, each.leader_epoch) for each in stored] == [(0, 2, 0), (3, 3, 0), (4, 6, 3)]


def test_the_first_batch_behind_a_gap_comes_even_if_nothing_fits():
    """Compaction leaves a gap at the end of a segment; a reader with `max.partition.fetch.bytes` 0 gets a batch at a time (KIP-74)."""
    log = Log(segment_bytes=300)
    append(log, [b"x" * 400])
    after = bytearray(batch([b"y"]))
    after[0:8] = (5).to_bytes(8, "big")
    log.append_replicated(bytes(after), T0)
    assert len(log.segments) == 2
    assert offsets(log.read(3, 0, 6, True)) == [5]
    assert log.read(3, 0, 6, False) == []


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=30),
    st.integers(0, 100),
    st.integers(0, 3000),
    st.integers(0, 100),
)
def test_reads_agree_with_a_list_of_batches(counts, offset, max_bytes, upper):
    small = Log(segment_bytes=400)  # so that reads cross segments
    model = []
    for count in counts:
        data = batch([b"v" * 20] * count)
        base = small.append(read_one_batch(data, MAX), 0)
        model.append((base, base + count - 1, len(data)))
    offset = min(offset, small.end_offset)
    upper = min((base for base, _, _ in model if base >= upper), default=small.end_offset)  # batches are visible as a whole
    expected, left = [], max_bytes
    for base, last, size in model:
        if last < offset or base >= upper:
            continue
        if size > left and expected:
            break
        expected.append(base)
        left -= size
        if left <= 0:
            break
    got = [each.base_offset for view in small.read(offset, max_bytes, upper, True) for each in records.read_batches(view)]
    assert got == (expected if offset < upper else [])
    wanted = sum(size for base, last, size in model if last >= offset and base < upper) if offset < upper else 0
    assert small.bytes_between(offset, upper) == wanted


def test_the_offset_after_bytes_that_end_in_a_later_segment():
    log = Log(segment_bytes=1000)
    ends = []
    for nth, size in enumerate([300, 100, 250, 30, 700, 60, 350, 90, 500, 10]):
        data = batch([b"v" * size] * (1 + nth % 3))
        log.append(read_one_batch(data, MAX), 0)
        ends.append((log.end_offset, (ends[-1][1] if ends else 0) + len(data)))
    assert len(log.segments) >= 4
    bases = {segment.base_offset for segment in log.segments}
    batches = [(0, 0), *ends]  # (first offset, where it begins); the last is the log's end
    for offset, begin in batches[:-1]:
        for at in range(begin, batches[-1][1] + 50, 7):
            row = next((row for row, (_, position) in enumerate(batches) if position >= at), len(batches) - 1)
            # The last offset of the batch that begins there; the segment's end, where none of its batches begins behind.
            within = row and batches[row][1] > at and batches[row][0] in bases
            is_end = row == len(batches) - 1
            assert log.offset_after(offset, at - begin) == (batches[row][0] if within or is_end else batches[row + 1][0] - 1), (offset, at)
        for row, (_, position) in enumerate(batches[:-1]):
            if position >= begin:
                assert log.offset_after(offset, position - begin) == batches[row + 1][0] - 1


def test_stored_bytes_do_not_change_when_the_frame_does():
    log = Log()
    frame = bytearray(batch())
    log.append(read_one_batch(memoryview(frame), MAX), 0)
    frame[:] = bytes(len(frame))
    assert offsets(log.read(0, MAX, 3, True)) == [0, 1, 2]


def test_log_append_time_is_stamped_and_the_crc_holds():
    log = Log()
    append(log, append_time_ms=T0 + 999)
    (stored,) = records.read_batches(log.read(0, MAX, 3, True)[0], check_crcs=True)
    assert stored.timestamp_type == 1
    assert stored.max_timestamp_ms == T0 + 999
    assert {record.timestamp_ms for record in stored.records()} == {T0 + 999}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_first_record_at_or_after_a_time_is_found(compression):
    log = Log()
    append(log, timestamps_ms=[T0, T0 + 10, T0 + 20], compression=compression)
    append(log, timestamps_ms=[T0 + 15, T0 + 40, T0 + 30], compression=compression)
    assert log.offset_for_timestamp(T0 - 5, 6)[:2] == (0, T0)
    assert log.offset_for_timestamp(T0 + 11, 6)[:2] == (2, T0 + 20)
    assert log.offset_for_timestamp(T0 + 21, 6)[:2] == (4, T0 + 40)
    assert log.offset_for_timestamp(T0 + 21, 3) is None
    assert log.offset_for_timestamp(T0 + 41, 6) is None
    assert log.max_timestamp(6)[:2] == (4, T0 + 40)
    assert log.max_timestamp(3)[:2] == (2, T0 + 20)
    assert Log().max_timestamp(0) is None
    untimed = Log()
    append(untimed, timestamps_ms=[-1, -1, -1])
    assert untimed.max_timestamp(3)[:2] == (0, -1)  # as Kafka 4.3.1 answers


def test_epochs_know_where_they_began_and_ended():
    log = Log()
    assert log.end_offset_for_epoch(0) == (-1, -1)
    assert log.epoch_at(0) == -1
    append(log, epoch=1)
    append(log, epoch=4)
    append(log, epoch=4)
    assert [log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 3, 4, 9)] == [(-1, -1), (0, 0), (1, 3), (1, 3), (4, 9), (-1, -1)]
    assert [log.epoch_at(offset) for offset in (0, 2, 3, 8)] == [1, 1, 4, 4]


def test_an_epoch_nobody_wrote_in_still_ended_somewhere():
    log = Log()
    log.begin_epoch(0)
    assert log.end_offset_for_epoch(0) == (0, 0)
    log.begin_epoch(1)
    append(log, epoch=1)
    assert log.end_offset_for_epoch(0) == (0, 0)
    log.begin_epoch(2)
    assert [log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3)] == [(1, 3), (2, 3), (-1, -1)]


@each_row(("offset", "expected"), [(4, [(0, 0), (2, 3), (4, 3)]), (3, [(0, 0)]), (1, [(0, 0)]), (0, []), (6, [(0, 0), (2, 3), (4, 3)])])
def test_epochs_that_begin_where_a_log_is_cut_are_forgotten(offset, expected):
    log = Log()
    for epoch in (0, 4):
        append(log, epoch=epoch)
        log.begin_epoch(epoch + 2)
    assert log.epochs == [(0, 0), (2, 3), (4, 3), (6, 6)]
    assert log.truncate_to(offset) == (offset < 6)
    assert (log.epochs, log.end_offset) == (expected, offset)


@pytest.mark.parametrize("shorten", [lambda log: log.advance_start(2), lambda log: log.delete_old_segments(-1, 0, T0)])
def test_ended_transactions_below_the_start_hold_no_reader_back(shorten):
    log = Log()
    append(log, [b"v"], producer_id=1, sequence=0, is_transactional=True)
    log.append(next(iter(read_batches(control_batch(1, producer_id=1, producer_epoch=0, timestamp_ms=T0)))), 0)
    assert log.producers.first_unstable_offset() == 0
    shorten(log)
    assert (log.start_offset, log.producers.first_unstable_offset()) == (2, None)


def test_where_segments_begin_that_were_written_before_a_time():
    log = Log(segment_bytes=300)
    assert [log.offsets_before(time_ms, 0, T0) for time_ms in (-1, -2, T0 - 1, T0)] == [[0], [0], [], [0]]
    for nth in range(3):
        append(log, [b"v" * 180], wall_ms=T0 + 10 * nth)
    for time_ms, upper_offset, found in (
        (-1, 3, [3, 2, 1, 0]),
        (-1, 2, [2, 1, 0]),
        (-1, 0, [0]),
        (-2, 3, [0]),
        (T0 + 100, 3, [3, 2, 1, 0]),
        (T0 + 20, 3, [2, 1, 0]),
        (T0 + 20, 1, [1, 0]),
        (T0 + 19, 3, [1, 0]),
        (T0, 3, [0]),
        (T0 - 1, 3, []),
    ):
        assert log.offsets_before(time_ms, upper_offset, T0 + 100) == found
    log.roll(T0 + 100)  # an empty segment begins where the log ends
    assert log.offsets_before(-1, 3, T0 + 100) == [3, 2, 1, 0]
    log.advance_start(1)
    assert (log.offsets_before(-1, 3, T0 + 100), log.offsets_before(-2, 3, T0 + 100)) == ([3, 2, 1], [1])


def test_a_block_that_is_cut_is_another_one_with_what_is_left():
    log = Log()
    for nth in range(3):
        append(log, [b"%d" % nth], producer_id=1, sequence=nth, is_transactional=True, timestamps_ms=[T0 + 5 - nth])
        log.append(next(iter(read_batches(control_batch(0, producer_id=1, producer_epoch=0, timestamp_ms=T0)))), 0, wall_ms=T0 + nth)
    (whole,) = log.segments
    at = [span.position for span in whole.spans()]
    for position, left in ((0, 0), (at[1], 1), (at[2], 2), (at[5], 5), (whole.size, 6)):
        cut = whole.truncated(position)
        assert cut is not whole and (cut.size, cut.next_offset(), cut.capacity) == (position, left, whole.capacity)
        assert [each.last_offset for each in cut.aborted] == [last for last in (1, 3, 5) if last < left]
        assert (cut.rolling_ms, cut.largest_timestamp()) == ((T0 + 5, (T0 + 5, 0)) if left else (None, (-1, -1)))
        assert (cut.created_ms, cut.written_ms) == (T0, T0 + 2)
        assert [cut.offset_at(each) for each in (0, at[1], at[1] + 1, whole.size)] == [
            next((nth for nth in range(left) if at[nth] >= each), None) for each in (0, at[1], at[1] + 1, whole.size)
        ]
        assert cut.position_of_last_entry() == (at[left - 1] if left else 0)
    assert [whole.time_hint(T0 + ms) for ms in (0, 5, 6)] == [0, 0, whole.size]


def small_segments(count: int, nbytes: int = 300) -> AnyLog:
    log = Log(segment_bytes=nbytes)
    for nth in range(count):
        append(log, [b"v" * 180], timestamps_ms=[T0 + nth * 1000])
    return log


def test_retention_by_size_drops_whole_old_segments():
    log = small_segments(5)
    assert len(log.segments) == 5
    one = log.segments[0].size
    assert log.delete_old_segments(-1, one * 2 + 1, T0) == 2
    assert (log.start_offset, log.end_offset) == (2, 5)
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(1, MAX, 5, True)
    assert offsets(log.read(2, MAX, 5, True)) == [2, 3, 4]
    assert log.bytes_between(2, 5) == one * 3


def test_a_start_within_a_segment_takes_the_whole_ones_before_it_and_no_more():
    log = small_segments(6, 600)  # two batches in each
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 2, 4]
    assert log.advance_start(1) and [segment.base_offset for segment in log.segments] == bases
    assert log.advance_start(3) and [segment.base_offset for segment in log.segments] == [2, 4]
    assert offsets(log.read(3, MAX, 6, True)) == [3, 4, 5]
    assert log.advance_start(6) and [segment.base_offset for segment in log.segments] == [4]  # the active one stays
    assert (log.start_offset, log.end_offset, log.read(6, MAX, 6, True)) == (6, 6, [])


def test_a_start_moves_up_to_the_end_and_takes_its_epoch_along():
    log = small_segments(2)
    append(log, epoch=3)
    assert log.epochs == [(0, 0), (3, 2)]
    assert [log.advance_start(offset) for offset in (0, 1, 1)] == [False, True, False]
    assert log.epochs == [(0, 1), (3, 2)]
    assert log.advance_start(2) and log.epochs == [(3, 2)]
    with pytest.raises(errors.OffsetOutOfRange) as refused:
        log.advance_start(log.end_offset + 1)
    assert refused.value.offset == log.end_offset + 1
    assert log.advance_start(log.end_offset) and log.epochs == [(3, log.end_offset)]


def test_retention_by_age_counts_the_newest_record_of_each_segment_up_to_the_high_watermark():
    log = small_segments(4)  # a second apart
    assert log.delete_old_segments(1_000, -1, T0 + 1_000) == 0
    assert log.delete_old_segments(0, -1, T0 + 3_000, upper_offset=1) == 1
    assert log.delete_old_segments(1_000, -1, T0 + 2_001) == 1
    assert (log.start_offset, log.end_offset) == (2, 4)
    assert log.delete_old_segments(-1, -1, T0 + 10**9) == 0
    assert log.delete_old_segments(0, -1, T0 + 3_001) == 2
    assert (log.start_offset, log.end_offset, len(log.segments)) == (4, 4, 1)
    assert log.delete_old_segments(0, -1, T0 + 10**9) == 0  # an empty one stays


def test_retention_by_size_takes_the_active_segment_only_if_nothing_may_stay():
    log = small_segments(2)
    assert log.delete_old_segments(-1, 1, T0) == 1
    assert (log.start_offset, log.end_offset) == (1, 2)
    assert log.delete_old_segments(-1, 0, T0) == 1  # as in Kafka
    assert (log.start_offset, log.end_offset) == (2, 2)
    assert log.delete_old_segments(-1, 0, T0) == 0


def test_a_view_outlives_its_segment():
    log = small_segments(2)
    (view, _) = log.read(0, MAX, 2, True)
    log.delete_old_segments(-1, 0, T0)
    assert offsets([view]) == [0]


def test_what_was_read_stays_when_the_log_is_truncated_and_written_again():
    log = Log()
    for nth in range(3):
        append(log, [b"%d" % nth * 100], 0)
    (view,) = log.read(0, MAX, 3, True)
    before = bytes(view)
    log.truncate_to(1)
    append(log, [b"other" * 40], 1)
    assert bytes(view) == before
    assert content(log) == [(0, b"0" * 100), (1, b"other" * 40)]


def test_a_follower_that_copies_all_at_once_has_the_leaders_segments_producers_and_aborted_transactions():
    leader, follower = Log(segment_bytes=400), Log(segment_bytes=400)
    for nth in range(7):
        append(leader, [b"v"], producer_id=1, sequence=nth, is_transactional=True, epoch=nth // 3)
        if nth in (1, 4):
            end = control_batch(0, producer_id=1, producer_epoch=0, timestamp_ms=T0)
            leader.append(next(iter(read_batches(end))), nth // 3)
    for nth in range(3):
        append(leader, [b"w" * 300], producer_id=2 + nth, sequence=0, epoch=2)
    data = b"".join(bytes(view) for view in leader.read(0, MAX, leader.end_offset, True))
    assert follower.append_replicated(data + data[:50], T0 + 7) == leader.end_offset == 12

    def seen(log):
        aborted = [(each.first_offset, each.last_offset) for segment in log.segments for each in segment.aborted]
        entries = {producer: entry.last_sequence for producer, entry in log.producers.entries.items()}
        segments = [(segment.base_offset, segment.size, segment.rolling_ms) for segment in log.segments]
        return segments, log.epochs, aborted, entries, content(log)

    assert seen(follower) == seen(leader)
    assert [segment.base_offset for segment in leader.segments] == [0, 5, 9, 10, 11] and leader.epochs == [(0, 0), (1, 4), (2, 8)]
    assert seen(leader)[2:4] == ([(0, 2), (3, 6)], {1: 6, 2: 0, 3: 0, 4: 0})
    assert [segment.written_ms for segment in follower.segments] == [T0 + 7] * 5
    with pytest.raises(errors.OffsetOutOfRange) as refused:
        follower.append_replicated(data)
    assert refused.value.offset == 0
    with pytest.raises(errors.OffsetOutOfRange, match="the batch at 15 lies before the log's end 18"):
        follower.append_replicated(moved(12) + moved(15) + moved(15))
    assert (follower.end_offset, [follower.segment_base(offset) for offset in (0, 4, 5, 17)], Log().segment_base(0)) == (
        18,
        [0, 0, 5, 12],
        0,
    )
    for upper_offset, last_sequence in ((4, 2), (9, 6), (11, 6)):  # within the second segment, and behind it
        leader.replay_producers(ProducerStates(), 0, upper_offset)
        assert leader.producers.entries[1].last_sequence == last_sequence, upper_offset
    leader.truncate_fully_and_start_at(20)
    assert seen(leader) == ([], [], [], {}, []) and (leader.start_offset, leader.end_offset, leader.truncations) == (20, 20, 1)
    timed = Log(segment_ms=1_000)
    timed.append_replicated(bytes(batch([b"v"], timestamps_ms=[T0])))
    timed.append_replicated(b"".join(moved(offset, [T0 + 999 + offset]) for offset in (1, 2)))
    assert [segment.base_offset for segment in timed.segments] == [0, 2]


def test_a_segment_without_a_batch_is_replaced_where_the_next_batch_lies_too_far_ahead():
    log = Log()
    log.append_replicated(moved(2**40))
    assert [segment.base_offset for segment in log.segments] == [2**40]
    for _ in range(2):
        log.roll(T0)
    assert [segment.base_offset for segment in log.segments] == [2**40, 2**40 + 3]
    log.append_replicated(moved(2**41))
    assert [segment.base_offset for segment in log.segments] == [2**40, 2**41]
    assert offsets(log.read(2**40, MAX, log.end_offset, True)) == [*range(2**40, 2**40 + 3), *range(2**41, 2**41 + 3)]


def moved(offset: int, timestamps_ms=None) -> bytes:
    data = bytearray(batch([b"v"] * (3 if timestamps_ms is None else 1), timestamps_ms=timestamps_ms))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_blocks_double_and_a_large_batch_gets_its_own():
    log = Log()
    append(log)
    assert log.segments[0].capacity == SEGMENT_MIN_BYTES
    big = batch([b"x" * (3 << 20)])
    log.append(read_one_batch(big, 4 << 20), 0)
    assert log.segments[1].capacity == len(big)
    assert isinstance(log.segments[1], MemorySegment)
    small = Log()
    for capacity in (1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 16 << 20):
        count = len(small.segments)
        while len(small.segments) == count:
            small.append(read_one_batch(batch([b"x" * (900 << 10)]), MAX), 0)
        assert small.segments[-1].capacity == capacity


# ---- what is refused


def patched(at: int, form: str, value: int, recrc: bool = True) -> bytes:
    data = bytearray(batch())
    struct.pack_into(form, data, at, value)
    if recrc:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@each_row(
    ("data", "error"),
    [
        (b"", errors.InvalidRecord),
        (bytes(60), errors.InvalidRecord),
        (patched(16, ">b", 1), errors.InvalidRecord),
        (patched(16, ">b", 0), errors.InvalidRecord),
        (patched(17, ">I", 12345, recrc=False), errors.CorruptDataError),
        (patched(57, ">i", 2), errors.InvalidRecord),
        (patched(57, ">i", 4), errors.InvalidRecord),
        (patched(57, ">i", -1), (errors.InvalidRecord, errors.CorruptDataError)),
        (patched(23, ">i", 7), errors.InvalidRecord),
        (patched(23, ">i", -5), (errors.InvalidRecord, errors.CorruptDataError)),
        (patched(8, ">i", 10), errors.CorruptDataError),
        (patched(8, ">i", 2**31 - 1), errors.InvalidRecord),
        (patched(8, ">i", -1), errors.CorruptDataError),
        (patched(21, ">h", 0x20), errors.InvalidRecord),
        (patched(21, ">h", 7), (errors.UnsupportedCompressionType, errors.CorruptDataError)),
        (bytes(batch()) * 2, errors.InvalidRecord),
        (bytes(batch()) + b"\0", (errors.InvalidRecord, errors.CorruptDataError)),
        (bytes(batch())[:-1], errors.InvalidRecord),
        (bytes(batch([b"x" * 2000])), errors.RecordTooLarge),
    ],
)
def test_bad_batches_are_refused(data, error):
    with pytest.raises(error):
        read_one_batch(memoryview(data), 1500)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 90))
def test_no_bytes_crash_the_reader(noise, at):
    data = bytearray(batch())
    data[at : at + len(noise)] = noise
    for candidate in (noise, bytes(data)):
        try:
            read_one_batch(memoryview(candidate), MAX)
        except (errors.BrokerError, errors.CorruptDataError):
            pass
