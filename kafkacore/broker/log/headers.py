"""Batch headers as they lie in a log: reading them without the records, and stamping what the broker decides.

    0 base offset i64 | 8 length i32 | 12 leader epoch i32 | 16 magic i8 | 17 CRC u32 | 21 attributes i16 | 23 last offset delta i32
    27 base timestamp i64 | 35 largest timestamp i64 | 43 producer id i64 | 51 epoch i16 | 53 base sequence i32 | 57 count i32

The CRC covers what follows it, so base offset and leader epoch are stamped without touching it. Logs may also hold messages of magic 0 and
1, written by old brokers: offset, length, CRC u32, magic at 16, attributes i8, and from magic 1 on a timestamp i64 at 18. The offset of a
compressed set of these is that of its last message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkacore.codec import crc32c
from kafkacore.errors import CorruptDataError
from kafkacore.records import Batch, read_batches

NO_TIMESTAMP = -1
HEADER_BYTES = 61
MAGIC_AT = 16
PREFIX_BYTES = 12
_LEGACY_BYTES = 26
_LEGACY_MIN_BYTES = 26
_ATTRIBUTES_AT, _MAX_TIMESTAMP_AT, _CRC_AT = 21, 35, 17
_HEADER = struct.Struct(">qiibIhiqq")
_STAMP = struct.Struct(">qii")
_STAMP_BYTES = 16
_CHUNK_BYTES = 4 << 20
_LEGACY = struct.Struct(">qiIbbq")
_ATTRIBUTES, _TIMESTAMP, _CRC, _LENGTH = struct.Struct(">h"), struct.Struct(">q"), struct.Struct(">I"), struct.Struct(">i")
CODEC_MASK, LOG_APPEND_TIME, DELETE_HORIZON = 0x07, 0x08, 0x40
"""Bits of the attributes."""


class Span(NamedTuple):
    """Where one batch lies in its segment, and what of its header the log goes by."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int


def spans_in(buffer: memoryview | bytes, position: int) -> Iterator[Span]:
    """The batches in a piece of a segment, by their headers alone; a header that is cut off ends it, a body that is cut off does not.

    Args:
        buffer: bytes that begin with a batch.
        position: where they lie in the segment.

    Raises:
        CorruptDataError: what lies there is no header.
    """
    at, end = 0, len(buffer)
    while end - at >= HEADER_BYTES:
        base_offset, length, leader_epoch, magic, _, _, last_delta, _, max_timestamp_ms = _HEADER.unpack_from(buffer, at)
        if magic == 2 and length >= HEADER_BYTES - PREFIX_BYTES and last_delta >= 0:
            yield Span(position + at, length + PREFIX_BYTES, base_offset, base_offset + last_delta, max_timestamp_ms, leader_epoch)
        elif magic in (0, 1) and length >= _LEGACY_MIN_BYTES - PREFIX_BYTES:
            timestamp_ms = _LEGACY.unpack_from(buffer, at)[5] if magic else NO_TIMESTAMP
            yield Span(position + at, length + PREFIX_BYTES, base_offset, base_offset, timestamp_ms, -1)
        else:
            raise CorruptDataError(f"there is no batch at position {position + at}", offset=position + at)
        at += length + PREFIX_BYTES
    while end - at >= _LEGACY_BYTES and buffer[at + MAGIC_AT] in (0, 1):             # the last messages, shorter than a v2 header
        base_offset, length, _, magic, _, timestamp_ms = _LEGACY.unpack_from(buffer, at)
        if not _LEGACY_MIN_BYTES - PREFIX_BYTES <= length <= end - at - PREFIX_BYTES:
            return
        yield Span(position + at, length + PREFIX_BYTES, base_offset, base_offset, timestamp_ms if magic else NO_TIMESTAMP, -1)
        at += length + PREFIX_BYTES


def walk(read: Callable[[int, int], memoryview | bytes], size: int) -> Iterator[tuple[int, Batch]]:
    """All batches of a segment with their positions, CRCs checked.

    Args:
        read: the segment's bytes from one position, so many.
        size: of the segment.

    Raises:
        CorruptDataError: what follows is no batch, or only a part of one.
    """
    position, wanted = 0, _CHUNK_BYTES
    while position < size:
        chunk = read(position, min(wanted, size - position))
        wanted, end = _CHUNK_BYTES, 0
        for batch in read_batches(chunk, check_crcs=True):
            yield position + batch.position, batch
            end = batch.position + batch.size_bytes
        if not end:                                           # one batch larger than the chunk, or a torn one
            wanted = _LENGTH.unpack_from(chunk, PREFIX_BYTES - 4)[0] + PREFIX_BYTES if len(chunk) >= PREFIX_BYTES else 0
            if wanted <= len(chunk) or wanted > size - position:
                raise CorruptDataError(f"a batch is cut off at position {position}", offset=position)
        position += end


def stamped(
    batch: Batch, base_offset: int, leader_epoch: int, max_timestamp_ms: int, append_time_ms: int | None
) -> tuple[bytes | bytearray, memoryview]:
    """A batch as the leader writes it, in two pieces: a fresh head, and the rest where it lies.

    Args:
        batch: as the producer sent it.
        base_offset: of its first record.
        leader_epoch: of the partition.
        max_timestamp_ms: the largest timestamp of its records; the header's may be wrong.
        append_time_ms: for LogAppendTime topics, None to keep the producer's timestamps.
    """
    data = batch.buffer
    if append_time_ms is None and max_timestamp_ms == batch.max_timestamp_ms and not batch.timestamp_type:
        return _STAMP.pack(base_offset, len(data) - PREFIX_BYTES, leader_epoch), data[_STAMP_BYTES:]
    head = bytearray(data[:HEADER_BYTES])
    _STAMP.pack_into(head, 0, base_offset, len(data) - PREFIX_BYTES, leader_epoch)
    if append_time_ms is None:
        attributes = batch.attributes & ~LOG_APPEND_TIME
    else:
        attributes, max_timestamp_ms = batch.attributes | LOG_APPEND_TIME, append_time_ms
    _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, attributes)
    _TIMESTAMP.pack_into(head, _MAX_TIMESTAMP_AT, max_timestamp_ms)
    _CRC.pack_into(head, _CRC_AT, crc32c(data[HEADER_BYTES:], crc32c(head[_ATTRIBUTES_AT:])))
    return head, data[HEADER_BYTES:]
