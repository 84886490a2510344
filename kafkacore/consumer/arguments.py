"""What callers hand in, checked."""

from __future__ import annotations

from typing import Any

from kafkacore import errors
from kafkacore.metadata import checked_topic
from kafkacore.types import OffsetAndMetadata, TopicPartition

_INT32_END, _INT64_END = 1 << 31, 1 << 63
_FOREVER_MS = 1 << 40  # 34 years, which locks and selectors take


def partition_of(given: object) -> TopicPartition:
    """What the caller gave as a partition.

    Raises:
        errors.UsageError: it is no (topic, partition) pair.
    """
    if not isinstance(given, (tuple, list)) or len(given) != 2:  # a list is what JSON has for a pair
        raise errors.UsageError(f"not a (topic, partition) pair: {given!r}")
    topic, index = given
    if not isinstance(topic, str) or not topic or not isinstance(index, int) or not 0 <= index < _INT32_END:
        raise errors.UsageError(f"not a (topic, partition) pair: {given!r}")
    return TopicPartition(checked_topic(topic), index)


def offset_of(partition: tuple[str, int], given: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """What the caller gave as a position of a partition.

    Raises:
        errors.UsageError: it is no offset.
    """
    found = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
    where: dict[str, Any] = {"topic": partition[0], "partition": partition[1]}
    if not isinstance(found.offset, int) or found.offset < 0:
        raise errors.UsageError(f"an offset is a number from 0 on, not {found.offset!r}", **where)
    if found.offset >= _INT64_END:
        raise errors.UsageError(f"an offset has 64 bits, {found.offset} has more", **where)
    epoch = found.leader_epoch
    if epoch is not None and (not isinstance(epoch, int) or not 0 <= epoch < _INT32_END):
        raise errors.UsageError(f"a leader epoch is a number of 31 bits, or None, not {epoch!r}", **where)
    return found


def milliseconds(timeout: float) -> int:
    """A timeout in seconds, as milliseconds; infinity is a very long time.

    Raises:
        errors.UsageError: it is no number.
    """
    try:
        return round(min(timeout * 1000, _FOREVER_MS))
    except (TypeError, ValueError, OverflowError):
        raise errors.UsageError(f"a timeout is a number of seconds, not {timeout!r}") from None
