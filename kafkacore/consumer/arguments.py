"""What callers hand in, checked."""

from __future__ import annotations

from kafkacore import errors
from kafkacore.types import OffsetAndMetadata, TopicPartition


def partition_of(given: object) -> TopicPartition:
    """What the caller gave as a partition.

    Raises:
        errors.UsageError: it is no (topic, partition) pair.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise errors.UsageError(f"not a (topic, partition) pair: {given!r}")
    topic, index = given
    if not isinstance(topic, str) or not topic or not isinstance(index, int) or index < 0:
        raise errors.UsageError(f"not a (topic, partition) pair: {given!r}")
    return TopicPartition(topic, index)


def offset_of(partition: tuple[str, int], given: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """What the caller gave as a position of a partition.

    Raises:
        errors.UsageError: it is no offset.
    """
    found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
    if not isinstance(found.offset, int) or found.offset < 0:
        raise errors.UsageError(f"an offset is a number from 0 on, not {found.offset!r}", topic=partition[0], partition=partition[1])
    return found
