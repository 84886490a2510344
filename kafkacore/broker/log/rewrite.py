"""Batches made from stored ones: in another codec, with some of their records, or with none.

Header and records that stay are copied as they are. A record says its offset and timestamp as differences to the header, so both keep their
meaning as long as the header keeps its base offset and base timestamp. The delete horizon (KIP-534) takes the place of the base timestamp:
then every timestamp difference is rewritten.

Source: org.apache.kafka.common.record.{MemoryRecords.filterTo, DefaultRecordBatch, MemoryRecordsBuilder}.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kafkacore import compress
from kafkacore.broker.log.headers import CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, NO_TIMESTAMP, PREFIX_BYTES
from kafkacore.codec import crc32c, decode_varint, encode_varint
from kafkacore.errors import CorruptDataError
from kafkacore.records import Batch, read_batches

MAX_UNPACKED_BYTES = 128 << 20
_LENGTH = struct.Struct(">i")
_ATTRIBUTES, _COUNT = struct.Struct(">h"), struct.Struct(">i")
_CRC = struct.Struct(">I")
_BASE_TIMESTAMP = struct.Struct(">q")
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT, _BASE_TIMESTAMP_AT, _COUNT_AT = 8, 17, 21, 27, 57


def _seal(
    batch: Batch, records: bytes, *, attributes: int, count: int | None = None, base_timestamp_ms: int | None = None
) -> bytes:
    """The batch's header, with these fields changed, before these records."""
    head = bytearray(batch.buffer[:HEADER_BYTES])
    _LENGTH.pack_into(head, _LENGTH_AT, HEADER_BYTES - PREFIX_BYTES + len(records))
    _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, attributes)
    if count is not None:
        _COUNT.pack_into(head, _COUNT_AT, count)
    if base_timestamp_ms is not None:
        _BASE_TIMESTAMP.pack_into(head, _BASE_TIMESTAMP_AT, base_timestamp_ms)
    _CRC.pack_into(head, _CRC_AT, crc32c(records, crc32c(bytes(head[_ATTRIBUTES_AT:]))))
    return bytes(head) + records


def unpacked(batch: Batch) -> bytes:
    """The records of a v2 batch, decompressed.

    Raises:
        CorruptDataError: they cannot be.
    """
    packed = batch.buffer[HEADER_BYTES:]
    return compress.decompress(batch.compression, packed, MAX_UNPACKED_BYTES) if batch.compression else bytes(packed)


def in_codec(batch: Batch, codec: int, level: int | None) -> Batch:
    """A v2 batch in another codec.

    Args:
        batch: any batch of magic 2.
        codec: the new codec's number.
        level: None for the codec's default.

    Raises:
        CorruptDataError: its records cannot be decompressed.
    """
    records = compress.compress(codec, unpacked(batch), level)
    made = _seal(batch, records, attributes=(batch.attributes & ~CODEC_MASK) | codec)
    return next(iter(read_batches(made, check_crcs=False)))


def emptied(batch: Batch) -> bytes:
    """A v2 batch without its records: what remains is what the log knows of its producer and offsets."""
    attributes = batch.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _seal(batch, b"", attributes=attributes, count=0, base_timestamp_ms=NO_TIMESTAMP)


def filtered(batch: Batch, keep: Sequence[bool], delete_horizon_ms: int | None) -> bytes:
    """A v2 batch with some of its records, in the codec it had.

    Args:
        batch: at least one of its records is kept.
        keep: for each record whether it stays.
        delete_horizon_ms: when its tombstones and markers may go; None leaves what the batch says.

    Raises:
        CorruptDataError: its records cannot be read.
    """
    body = unpacked(batch)
    shift = 0 if delete_horizon_ms is None else batch.base_timestamp_ms - delete_horizon_ms
    kept = b"".join(_kept(body, keep, shift))
    attributes = batch.attributes if delete_horizon_ms is None else batch.attributes | DELETE_HORIZON
    records = compress.compress(batch.compression, kept) if batch.compression else kept
    return _seal(batch, records, attributes=attributes, count=sum(keep), base_timestamp_ms=delete_horizon_ms)


def _kept(body: bytes, keep: Sequence[bool], shift: int) -> Iterable[bytes]:
    at = 0
    for wanted in keep:
        length, start = decode_varint(body, at)
        end = start + length
        if length < 1 or end > len(body):
            raise CorruptDataError("a record's length does not fit", offset=at)
        if wanted and shift:
            delta, rest = decode_varint(body, start + 1)
            record = body[start : start + 1] + encode_varint(delta + shift) + body[rest:end]
            yield encode_varint(len(record)) + record
        elif wanted:
            yield body[at:end]
        at = end


def delete_horizon_ms(batch: Batch) -> int | None:
    """When the tombstones and markers of a batch may go; None if it was not said yet."""
    return batch.base_timestamp_ms if batch.magic == 2 and batch.attributes & DELETE_HORIZON else None
