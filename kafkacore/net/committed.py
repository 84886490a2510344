"""Committed offsets as requests carry them, and as they come back.

Source: OffsetCommitRequest.json, TxnOffsetCommitRequest.json, OffsetFetchResponse.json; KIP-320 (leader epochs, -1 for unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kafkacore.net.leaders import by_topic
from kafkacore.protocol.group import OffsetFetchResponsePartition, OffsetFetchResponsePartitions
from kafkacore.types import OffsetAndMetadata, TopicPartition

Topic = TypeVar("Topic")


def topics_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], topic: Callable[..., Topic], partition: Callable[..., object]
) -> list[Topic]:
    """The topics of a request that commits.

    Args:
        offsets: to commit.
        topic, partition: the structs of the request: OffsetCommitRequestTopic, TxnOffsetCommitRequestTopic, and of their partitions.
    """
    return [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=-1 if found.leader_epoch is None else found.leader_epoch,
                    committed_metadata=found.metadata,
                )
                for index, found in group
            ],
        )
        for name, group in by_topic(offsets.items()).items()
    ]


def committed_offset(found: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> OffsetAndMetadata | None:
    """What a partition of an OffsetFetch answer says, None when nothing is committed."""
    if found.committed_offset < 0:
        return None
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(found.committed_offset, epoch if epoch >= 0 else None, found.metadata or "")
