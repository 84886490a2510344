"""A partition's log: segments in memory or in Kafka's files."""

from kafkacore.broker.log.log import SEGMENT_MAX_BYTES, SEGMENT_MIN_BYTES, Log, LogSettings
from kafkacore.broker.log.manager import LogDirDescription, LogDirReplica, LogManager
from kafkacore.broker.log.segment import MemorySegment, OffsetPosition, Piece, Segment
from kafkacore.broker.log.validate import read_one_batch, validate

__all__ = [
    "SEGMENT_MAX_BYTES",
    "SEGMENT_MIN_BYTES",
    "Log",
    "LogDirDescription",
    "LogDirReplica",
    "LogManager",
    "LogSettings",
    "MemorySegment",
    "OffsetPosition",
    "Piece",
    "Segment",
    "read_one_batch",
    "validate",
]
