"""Batches of a segment by their headers alone: where each lies, in every format, and where a piece of a segment ends."""

import struct

import pytest

from kafkacore.broker.log.headers import HEADER_BYTES, NO_TIMESTAMP, Span, spans_in, stamped, walk
from kafkacore.broker.log.segment import MemorySegment
from kafkacore.errors import CorruptDataError
from kafkacore.records import BatchBuilder, read_batches
from tests.kit.batches import T0, batch
from tests.kit.rows import each_row

POSITION = 5_000
EMPTY_V0_BYTES = 26


def old_message(magic: int, offset: int, value: bytes) -> bytes:
    """A message of an old format; without key and value it is as short as one can be."""
    builder = BatchBuilder(magic=magic, base_offset=offset)
    assert builder.append(value or None, timestamp_ms=T0 + offset if magic else None)
    return bytes(builder.build())


def v2(offset: int, values: list[bytes], leader_epoch: int) -> bytes:
    data = bytearray(batch(values))
    struct.pack_into(">q", data, 0, offset)
    struct.pack_into(">i", data, 12, leader_epoch)
    return bytes(data)


def segment(*order: int) -> tuple[bytes, list[Span], list[int]]:
    """Batches of these formats with what is to be found of them. 10 is a message of magic 0 without a value, 11 such a one of magic 1."""
    data, spans, formats = b"", [], []
    for nth, kind in enumerate(order):
        offset = 100 + 10 * nth
        if kind == 2:
            part, last, newest, epoch = v2(offset, [b"v" * 5] * 3, nth + 1), offset + 2, T0 + 2, nth + 1
        else:
            magic = kind % 10
            part, last, epoch = old_message(magic, offset, b"" if kind >= 10 else b"v" * 60), offset, -1
            newest = T0 + offset if magic else NO_TIMESTAMP
        spans.append(Span(POSITION + len(data), len(part), offset, last, newest, epoch))
        formats.append(2 if kind == 2 else 1)
        data += part
    return data, spans, formats


@each_row(
    "order", [(2,), (0,), (1,), (10,), (11,), (2, 2, 2), (0, 1, 2), (2, 10), (2, 11), (1, 0, 10), (2, 10, 11), (10, 11, 10, 11, 2, 10)]
)
def test_spans_of_whole_and_cut_pieces(order):
    """A v2 batch is known by its header. So is an old message while 61 bytes are left. With less left, an old message has to be whole."""
    data, spans, formats = segment(*order)
    for end in range(len(data) + 1):
        expected = []
        for span, form in zip(spans, formats, strict=True):
            left = POSITION + end - span.position
            if left >= HEADER_BYTES or (form == 1 and left >= span.size_bytes):
                expected.append(span)
            else:
                break
        assert list(spans_in(memoryview(data)[:end], POSITION)) == expected, end
        assert list(spans_in(data[:end], POSITION)) == expected, end


def test_the_shortest_batches_of_each_format():
    data = bytearray(batch([b"v"])[:HEADER_BYTES])
    struct.pack_into(">i", data, 8, HEADER_BYTES - 12)
    assert [span.size_bytes for span in spans_in(data, 0)] == [HEADER_BYTES]
    shortest = old_message(0, 7, b"")
    assert len(shortest) == EMPTY_V0_BYTES
    assert [span.base_offset for span in spans_in(shortest, 0)] == [7]
    assert [span.base_offset for span in spans_in(shortest * 3, 0)] == [7, 7, 7]


def test_a_log_in_memory_ends_behind_its_last_short_message():
    data = b"".join(old_message(magic, 100 + nth, b"") for nth, magic in enumerate((0, 1, 0)))
    segment = MemorySegment(100, 1 << 12, T0)
    segment.write((data,), len(data))
    assert [span.base_offset for span in segment.spans()] == [100, 101, 102]
    assert segment.next_offset() == 103
    assert segment.truncated(len(data) - EMPTY_V0_BYTES).next_offset() == 102
    assert segment.max_timestamp(103).base_offset == 101
    (*_, last) = segment.spans()
    assert segment.batch_at(last).base_offset == 102
    with pytest.raises(CorruptDataError, match="cut off") as cut:
        segment.batch_at(last._replace(size_bytes=last.size_bytes - 1))
    assert cut.value.offset == 102


@each_row(
    ("kind", "form", "at", "value"),
    [
        (2, ">i", 8, HEADER_BYTES - 12 - 1),  # shorter than its header
        (2, ">i", 8, -1),
        (2, ">i", 23, -1),  # ends before it begins
        (2, ">b", 16, 3),
        (2, ">b", 16, -1),
        (0, ">i", 8, EMPTY_V0_BYTES - 12 - 1),
        (1, ">i", 8, EMPTY_V0_BYTES - 12 - 1),
        (1, ">i", 8, 0),
    ],
)
def test_what_is_no_header_is_refused_with_its_position(kind, form, at, value):
    before, spans, _ = segment(2)
    bad = bytearray(segment(kind)[0])
    struct.pack_into(form, bad, at, value)
    found = spans_in(before + bytes(bad), POSITION)
    assert next(found) == spans[0]
    with pytest.raises(CorruptDataError, match=f"no batch at position {POSITION + len(before)}") as raised:
        next(found)
    assert raised.value.offset == POSITION + len(before)


@each_row(("length", "found"), [(EMPTY_V0_BYTES - 13, 0), (EMPTY_V0_BYTES - 12, 1), (28, 1), (29, 0), (-1, 0)])
def test_a_last_short_message_says_a_length_that_fits(length, found):
    data = bytearray(old_message(0, 7, b"")) + bytes(14)  # 40 bytes, 28 of them behind offset and length
    struct.pack_into(">i", data, 8, length)
    assert [span.size_bytes for span in spans_in(data, 0)] == [length + 12] * found


@each_row(
    ("claimed", "largest_ms", "append_time_ms", "expected"),
    [
        (0, T0 + 2, None, (0, T0 + 2)),
        (0, T0 + 9, None, (0, T0 + 9)),  # the header was wrong
        (1, T0 + 2, None, (0, T0 + 2)),  # so was this one
        (0, T0 + 2, T0 + 2, (1, T0 + 2)),
        (0, T0 + 2, T0 + 9, (1, T0 + 9)),
        (1, T0 + 2, T0 + 9, (1, T0 + 9)),
    ],
)
def test_what_a_leader_stamps_on_a_batch(claimed, largest_ms, append_time_ms, expected):
    builder = BatchBuilder(timestamp_type=claimed, compression="gzip")
    for nth in range(3):
        assert builder.append(b"v%d" % nth, timestamp_ms=T0 + nth)
    sent = next(iter(read_batches(bytes(builder.build()))))
    written = b"".join(bytes(piece) for piece in stamped(sent, 1_000, 7, largest_ms, append_time_ms))
    (made,) = read_batches(written, check_crcs=True)
    assert (made.timestamp_type, made.max_timestamp_ms) == expected
    assert (made.base_offset, made.leader_epoch, made.compression) == (1_000, 7, 1)
    assert [record.value for record in made.records()] == [b"v0", b"v1", b"v2"]


def test_a_walk_reads_a_batch_that_is_larger_than_a_piece_at_once():
    parts = [v2(offset, [b"v" * nbytes], 1) for offset, nbytes in ((0, 10), (1, 5 << 20), (2, 10))]
    data, (small, large, _) = b"".join(parts), map(len, parts)
    reads = []

    def read(position, nbytes):
        reads.append(nbytes)
        return data[position : position + nbytes]

    assert [(batch.base_offset, batch.size_bytes) for _, batch in walk(read, len(data))] == [(0, small), (1, large), (2, small)]
    assert reads == [4 << 20, 4 << 20, large, small]
    for end, torn_at in ((len(data) - 1, small + large), (small + large + 8, small + large), (5 << 20, small), (11, 0)):
        with pytest.raises(CorruptDataError, match=f"cut off at position {torn_at} ") as raised:
            list(walk(read, end))
        assert raised.value.offset == torn_at
