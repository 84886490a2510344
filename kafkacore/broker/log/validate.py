"""What a partition's leader checks before it writes a batch."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy

from kafkacore import compress, errors, records
from kafkacore._codec import read_plain_batch
from kafkacore.broker.log.headers import HEADER_BYTES, MAGIC_AT, NO_TIMESTAMP
from kafkacore.broker.log.rewrite import in_codec
from kafkacore.config_values import INT64_MAX
from kafkacore.records import Batch

_BATCH_MAGIC = 2
_COMPRESSION_CODECS = 5
# KIP-110: clients that speak an older Produce do not know zstd.
FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
LZ4_DEFAULT_LEVEL = 9
MAX_RECORD_ERRORS = 1_000
"""How many records of a batch an answer names; a batch of 1 MB may hold a million."""


def read_one_batch(buffer: memoryview | bytes, max_bytes: int) -> Batch:
    """The record batch of one partition of a Produce request, its header and CRC checked; `scan_records` looks inside.

    Args:
        buffer: the partition's records.
        max_bytes: max.message.bytes.

    Returns:
        The batch, over the given buffer.

    Raises:
        InvalidRecord: not exactly one v2 batch, a control batch, a base offset, or a record count that contradicts the offsets.
        RecordTooLarge: more than max_bytes.
        CorruptDataError: lengths that do not fit or a wrong CRC.

    Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords, org.apache.kafka.storage.internals.log.LogValidator.
    """
    if len(buffer) < HEADER_BYTES:
        raise errors.InvalidRecord(f"a record batch has at least {HEADER_BYTES} bytes, not {len(buffer)}")
    if buffer[MAGIC_AT] != _BATCH_MAGIC:
        raise errors.InvalidRecord(f"message format {buffer[MAGIC_AT]} cannot be written (KIP-724): only record batches of magic 2")
    if len(buffer) > max_bytes:
        raise errors.RecordTooLarge(f"the batch has {len(buffer)} bytes, max.message.bytes is {max_bytes}")
    batches = iter(records.read_batches(buffer, check_crcs=True))
    batch = next(batches, None)
    if batch is None or batch.size_bytes != len(buffer):
        raise errors.InvalidRecord("exactly one record batch per partition is allowed")
    if batch.is_control:
        raise errors.InvalidRecord("clients cannot write control batches")
    if batch.base_offset != 0:
        raise errors.InvalidRecord(f"the base offset of a produced batch is 0, not {batch.base_offset}")
    if batch.record_count <= 0 or batch.last_offset - batch.base_offset + 1 != batch.record_count:
        raise errors.InvalidRecord(
            f"the batch counts {batch.record_count} records but spans {batch.last_offset - batch.base_offset + 1} offsets"
        )
    if batch.compression >= _COMPRESSION_CODECS:
        raise errors.UnsupportedCompressionType(f"compression codec {batch.compression} is unknown")
    return batch


class ValidationSettings(Protocol):
    """The topic settings a batch is checked against; `TopicConfig` has them."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def cleanup_policy(self) -> str: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...


class RecordFacts(NamedTuple):
    """What `Batch.scan` tells: the largest and the smallest timestamp, whether the offsets count up, whether a key is null."""

    largest_ms: int
    smallest_ms: int
    in_sequence: bool
    has_null_key: bool


class Validated(NamedTuple):
    """A batch as it may be written.

    Attributes:
        batch: in the topic's codec.
        max_timestamp_ms: the largest of its records; the header's may be wrong.
        append_time_ms: for topics with LogAppendTime; None to keep the producer's timestamps.
    """

    batch: Batch
    max_timestamp_ms: int
    append_time_ms: int | None


def validate(data: memoryview | bytes, config: ValidationSettings, produce_version: int, wall_ms: int) -> Validated:
    """Checks what a producer sent for one partition, and turns it into the topic's codec.

    Args:
        data: the partition's records.
        config: the topic's settings.
        produce_version: of the Produce request.
        wall_ms: the time now.

    Raises:
        InvalidRecord, InvalidTimestamp: of single records; `record_errors` names the first of them, the message says how many there are.
        BrokerError, CorruptDataError: the batch must not be written.

    Source: org.apache.kafka.storage.internals.log.LogValidator, UnifiedLog.append.
    """
    plain = read_plain_batch(data, config.max_message_bytes)
    if plain is None:
        batch = read_one_batch(data, config.max_message_bytes)
        _check_producer(batch)
        facts = scan_records(batch)
        largest_ms, smallest_ms, has_null_key = facts.largest_ms, facts.smallest_ms, facts.has_null_key
    else:
        batch, largest_ms, smallest_ms, has_null_key = plain
    if batch.compression == compress.ZSTD and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        raise errors.UnsupportedCompressionType(f"Produce v{produce_version} does not know zstd")
    if has_null_key and "compact" in config.cleanup_policy:
        _refuse("a compacted topic takes no record without a key", errors.InvalidRecord, batch.columns().keys.lengths < 0)
    append_time_ms = None
    if config.message_timestamp_type == "LogAppendTime":
        append_time_ms = wall_ms
        if batch.timestamp_type:
            raise errors.InvalidTimestamp("a producer's batch cannot claim that the broker set its timestamps")
    elif largest_ms - wall_ms > config.message_timestamp_after_max_ms or wall_ms - smallest_ms > config.message_timestamp_before_max_ms:
        _check_timestamps(batch, config, wall_ms)
    if config.compression_type != "producer":
        codec, level = _codec(config)
        if batch.compression != codec:
            batch = in_codec(batch, codec, level)
            if batch.size_bytes > config.max_message_bytes:
                raise errors.RecordTooLarge(
                    f"as {config.compression_type} the batch has {batch.size_bytes} bytes, max.message.bytes is {config.max_message_bytes}"
                )
    if batch.size_bytes > config.segment_bytes:
        raise errors.RecordBatchTooLarge(f"the batch has {batch.size_bytes} bytes, a segment at most {config.segment_bytes}")
    return Validated(batch, largest_ms, append_time_ms)


def _check_producer(batch: Batch) -> None:
    if batch.is_transactional and batch.producer_id < 0:
        raise errors.InvalidRecord("a transactional batch needs a producer id")
    if batch.producer_id != -1 and (batch.producer_id < 0 or batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise errors.InvalidRecord(
            f"producer id {batch.producer_id} with epoch {batch.producer_epoch} and sequence {batch.base_sequence} is impossible"
        )


def _check_timestamps(batch: Batch, config: ValidationSettings, wall_ms: int) -> None:
    after_ms, before_ms = wall_ms + config.message_timestamp_after_max_ms, wall_ms - config.message_timestamp_before_max_ms
    timestamps_ms = batch.columns().timestamps_ms
    # A record without a timestamp is never out of range.
    bad = (timestamps_ms != NO_TIMESTAMP) & ((timestamps_ms > min(after_ms, INT64_MAX)) | (timestamps_ms < max(before_ms, -INT64_MAX)))
    _refuse(f"a timestamp must lie from {before_ms} to {after_ms}", errors.InvalidTimestamp, bad)


def _refuse(
    message: str, error: type[errors.InvalidRecord | errors.InvalidTimestamp], bad: numpy.ndarray[Any, numpy.dtype[numpy.bool_]]
) -> None:
    """Refuses a batch because of some of its records (KIP-467)."""
    rows = numpy.flatnonzero(bad)
    if len(rows):
        problem = error(f"{message}; {len(rows)} of {len(bad)} records are refused")
        problem.record_errors = [(int(row), message) for row in rows[:MAX_RECORD_ERRORS]]
        raise problem


def _codec(config: ValidationSettings) -> tuple[int, int | None]:
    """The topic's codec and its level; None is the codec's default, which for lz4 is called 9."""
    if config.compression_type == "uncompressed":
        return compress.NONE, None
    codec = compress.codec_id(config.compression_type)
    levels = {
        compress.GZIP: config.compression_gzip_level,
        compress.LZ4: config.compression_lz4_level,
        compress.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec)
    return codec, None if (codec, level) in ((compress.LZ4, LZ4_DEFAULT_LEVEL), (compress.GZIP, -1)) else level


def scan_records(batch: Batch) -> RecordFacts:
    """Reads every record of a produced batch, about 3 ns each, since one broken batch in a log stops every reader of it for good.

    Args:
        batch: from `read_one_batch`.

    Returns:
        What the checks go by.

    Raises:
        InvalidRecord: the batch does not unpack to the number of records it promises, or a compressed one not to offsets in sequence.
        RecordTooLarge: it holds more than 128 MiB uncompressed.
    """
    try:
        facts = RecordFacts(*batch.scan())
    except errors.CorruptDataError as problem:
        raise errors.InvalidRecord(f"the batch's records cannot be read: {problem}") from None
    except errors.DecompressedTooLarge as problem:  # with this code a producer splits the batch and sends the parts
        raise errors.RecordTooLarge(f"the batch is too large: {problem}") from None
    if batch.compression and not facts.in_sequence:
        raise errors.InvalidRecord("the offsets inside a compressed batch do not follow each other")
    return facts
