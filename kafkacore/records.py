"""Record batches: building and reading them, apart from any socket."""

from kafkacore._codec import (
    ArrowBatch,
    Batch,
    BatchBuilder,
    ByteColumn,
    ColumnSource,
    ConsumerRecord,
    HeaderColumn,
    PartitionReader,
    RecordColumns,
    arrow_schema_of,
    arrow_stream,
    control_batch,
    read_batches,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
)

__all__ = [
    "ArrowBatch",
    "Batch",
    "BatchBuilder",
    "ByteColumn",
    "ColumnSource",
    "ConsumerRecord",
    "HeaderColumn",
    "PartitionReader",
    "RecordColumns",
    "arrow_schema_of",
    "arrow_stream",
    "control_batch",
    "read_batches",
    "set_base_offset",
    "set_leader_epoch",
    "set_log_append_time",
]
