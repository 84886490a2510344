"""Record batches: building and reading them, apart from any socket."""

from kafkacore._codec import (
    Batch,
    BatchBuilder,
    ByteColumn,
    ColumnSource,
    ConsumerRecord,
    HeaderColumn,
    PartitionReader,
    RecordColumns,
    control_batch,
    read_batches,
    set_base_offset,
    set_leader_epoch,
    set_log_append_time,
)

__all__ = [
    "Batch",
    "BatchBuilder",
    "ByteColumn",
    "ColumnSource",
    "ConsumerRecord",
    "HeaderColumn",
    "PartitionReader",
    "RecordColumns",
    "control_batch",
    "read_batches",
    "set_base_offset",
    "set_leader_epoch",
    "set_log_append_time",
]
