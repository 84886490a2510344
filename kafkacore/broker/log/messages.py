"""Message sets of magic 0 and 1 in a broker that plays an older Kafka: taken from producers, given to consumers that know no newer ones.

    Produce v0-1 magic 0, v2 magic 0 or 1  --taken-->  the release's format, with offsets  --older-->  Fetch v0-1 magic 0, v2-3 magic 1

Rules, as those brokers had them:

1. What a producer wrote as offsets does not count. A message cut off at the end of a set is left out.
   [test_messages_lie_on_the_disk_in_the_format_of_the_release]
2. If one message of a set is compressed, the whole set is stored as one compressed message, with the codec of the last such message
   unless compression.type names another one. [test_a_set_with_one_compressed_message_is_stored_as_one,
   test_which_codec_a_set_is_stored_with]
3. Magic 0 has no timestamps (-1), no magic before 2 has headers, control records or zstd. What cannot be said is left out, zstd an error.
   [test_timestamps_since_0_10, test_batches_are_converted_for_old_fetches]

Source: kafka.message.ByteBufferMessageSet of 0.8.2 and 0.9.0, kafka.log.Log of both; org.apache.kafka.common.record.RecordsUtil of 2.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkacore import compress, errors
from kafkacore._codec import BatchBuilder, FileSlice
from kafkacore.broker.log.headers import NO_TIMESTAMP
from kafkacore.broker.log.validate import ValidationSettings
from kafkacore.records import Batch, ConsumerRecord, read_batches

BATCH_MAGIC = 2
_RECORD_OVERHEAD_BYTES = 64
"""More than any format adds to the key, the value and the headers of a record."""
_MAX_BYTES = 1 << 30


class Taken(NamedTuple):
    """What a producer sent, as it is to be written.

    Attributes:
        data: a message set, or one batch for magic 2; empty if the set held no whole message.
        num_records: how many that is.
        append_time_ms: for topics with LogAppendTime; None to keep the producer's timestamps.
    """

    data: memoryview
    num_records: int
    append_time_ms: int | None


def newest_magic(produce_or_fetch_version: int) -> int:
    """The newest format that messages have in a version of Produce, for these are 0-2 of old."""
    return 0 if produce_or_fetch_version < 2 else 1


def magic_of_fetch(version: int) -> int:
    """The newest format that a version of Fetch can carry."""
    return 0 if version < 2 else 1 if version < 4 else BATCH_MAGIC


def taken(data: memoryview | bytes, config: ValidationSettings, magic: int, newest: int, base_offset: int, wall_ms: int) -> Taken:
    """Checks a message set of a Produce request up to v2 and lays it out as it is stored.

    Args:
        data: the partition's message set.
        config: the topic's settings.
        magic: the format to store, 0 to 2.
        newest: the newest format that the request may carry.
        base_offset: of the first record; 0 for magic 2, which the log stamps itself.
        wall_ms: the time now.

    Raises:
        BrokerError, CorruptDataError: it must not be written.
    """
    records: list[ConsumerRecord] = []
    codec = compress.NONE
    for batch in read_batches(data, check_crcs=True):
        if batch.magic > newest:
            raise errors.CorruptRecord(f"a message has magic {batch.magic}, {newest} is the newest that the request may carry")
        _check_size(batch.size_bytes, config)
        codec = batch.compression or codec
        try:
            records += batch.records()
        except errors.DecompressedTooLarge as problem:
            raise errors.RecordTooLarge(f"the message set is too large: {problem}") from None
    if not records:
        return Taken(memoryview(b""), 0, None)
    if "compact" in config.cleanup_policy and any(record.key is None for record in records):
        raise errors.InvalidRecord("a compacted topic takes no record without a key")
    append_time_ms = None
    if magic and config.message_timestamp_type == "LogAppendTime":
        append_time_ms = wall_ms
    elif magic:
        _check_timestamps(records, config, wall_ms)
    if config.compression_type != "producer":
        codec = compress.NONE if config.compression_type == "uncompressed" else compress.codec_id(config.compression_type)
        if codec == compress.ZSTD and magic < BATCH_MAGIC:
            raise errors.UnsupportedCompressionType(f"messages of magic {magic} know no zstd")
    # A batch gets its time when the log stamps it.
    stamp_ms = append_time_ms if magic < BATCH_MAGIC else None
    stored = _laid_out(records, range(base_offset, base_offset + len(records)), magic, codec, stamp_ms)
    for batch in read_batches(stored, check_crcs=False):
        _check_size(batch.size_bytes, config)
    if stored.nbytes > config.segment_bytes:
        raise errors.RecordBatchTooLarge(f"the message set has {stored.nbytes} bytes, a segment at most {config.segment_bytes}")
    return Taken(stored, len(records), append_time_ms)


def _check_size(nbytes: int, config: ValidationSettings) -> None:
    if nbytes > config.max_message_bytes:
        raise errors.RecordTooLarge(f"a message has {nbytes} bytes, max.message.bytes is {config.max_message_bytes}")


def _check_timestamps(records: list[ConsumerRecord], config: ValidationSettings, wall_ms: int) -> None:
    for record in records:
        ahead_ms = record.timestamp_ms - wall_ms
        if record.timestamp_ms != NO_TIMESTAMP and not (
            -config.message_timestamp_before_max_ms <= ahead_ms <= config.message_timestamp_after_max_ms
        ):
            raise errors.InvalidTimestamp(f"timestamp {record.timestamp_ms} is out of range", offset=record.offset)


def _laid_out(
    records: Sequence[ConsumerRecord], offsets: Sequence[int], magic: int, codec: int, stamp_ms: int | None, timestamp_type: int = 0
) -> memoryview:
    """Records at the given offsets, in a format.

    Args:
        records: in order.
        offsets: where each lies.
        magic: the format.
        codec: none, or all of them in one compressed message or batch.
        stamp_ms: the broker's time for all; None to keep their own.
        timestamp_type: 1 if their own are the broker's.
    """
    nbytes = sum(len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES for record in records)
    if nbytes > _MAX_BYTES:
        raise errors.RecordTooLarge(f"the message set has {nbytes} bytes")
    base_offset = offsets[0]
    builder = BatchBuilder(
        magic=magic,
        compression=codec,
        base_offset=base_offset,
        max_bytes=nbytes + _RECORD_OVERHEAD_BYTES,
        timestamp_type=(1 if stamp_ms is not None else timestamp_type) if magic else 0,
    )
    for record, offset in zip(records, offsets, strict=True):
        timestamp_ms = record.timestamp_ms if stamp_ms is None else stamp_ms
        fits = builder.append(record.value, record.key, timestamp_ms=timestamp_ms, offset_delta=offset - base_offset)
        assert fits
    return builder.build()


def older(pieces: Iterable[Any], magic: int, start_offset: int) -> tuple[list[memoryview], int]:
    """Batches of a log for a reader that knows no newer format.

    Args:
        pieces: what `Log.read` returns.
        magic: the newest format that the reader knows, 0 or 1.
        start_offset: where the reader goes on; of what must be converted, records before it are left out.

    Returns:
        Message sets, and the offset after the last of the batches; the first may be empty where all were control batches.

    Raises:
        UnsupportedCompressionType: a batch is compressed with zstd (KIP-110).
    """
    found: list[memoryview] = []
    next_offset = start_offset
    for piece in pieces:
        data = piece.read() if isinstance(piece, FileSlice) else piece
        for batch in read_batches(data, check_crcs=False):
            next_offset = batch.next_offset
            if batch.magic <= magic:
                found.append(batch.buffer)
            elif not batch.is_control:
                found += _older(batch, magic, start_offset)
    return found, next_offset


def _older(batch: Batch, magic: int, start_offset: int) -> list[memoryview]:
    if batch.compression == compress.ZSTD:
        raise errors.UnsupportedCompressionType(f"the batch at offset {batch.base_offset} is compressed with zstd")
    records = batch.records(start_offset=start_offset)
    if not records:
        return []
    offsets = [record.offset for record in records]
    return [_laid_out(records, offsets, magic, batch.compression, None, max(batch.timestamp_type, 0))]
