"""Record batches: building and reading them, apart from any socket."""

from kafkacore._codec import BatchBuilder, ColumnSource, control_batch

__all__ = ["BatchBuilder", "ColumnSource", "control_batch"]
