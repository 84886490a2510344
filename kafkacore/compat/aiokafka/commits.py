"""The forms in which programs name offsets to commit.

Source: aiokafka.util.commit_structure_validate, aiokafka 0.14.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.aiokafka.structs import OffsetAndMetadata, TopicPartition


def checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of a commit.

    Args:
        offsets: a dict by TopicPartition of an offset, or of (offset, note).

    Raises:
        ValueError, TypeError: it is something else.
    """
    if not offsets or not isinstance(offsets, dict):
        raise ValueError(offsets)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, given in offsets.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError("Key should be TopicPartition instance")
        try:
            offset, metadata = (given, "") if isinstance(given, int) else given
        except (TypeError, ValueError) as error:
            raise ValueError(offsets) from error
        if not isinstance(metadata, str):
            raise TypeError("Metadata should be a string")
        found[tp] = OffsetAndMetadata(offset, metadata)
    return found
