"""Committed offsets as requests carry them, and as they come back.

Source: OffsetCommitRequest.json, TxnOffsetCommitRequest.json, OffsetFetchResponse.json; KIP-320 (leader epochs, -1 for unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kafkacore.net.leaders import by_topic
from kafkacore.protocol.group import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from kafkacore.types import OffsetAndMetadata, TopicPartition

Topic = TypeVar("Topic")
FIRST_FETCH_OF_GROUPS = 8
"""Before this version of OffsetFetch a request names one group only, in fields of its own."""


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


def offsets_to_fetch(
    version: int,
    group_id: str,
    topics: Mapping[str, list[int]] | None,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
    topic_ids: Mapping[str, bytes] | None = None,
) -> OffsetFetchRequest:
    """A request for what a group has committed.

    Args:
        version: of the request.
        group_id: the group.
        topics: partition numbers by topic; None for all that the group has committed.
        require_stable: wait for open transactions; not before version 7.
        member_id, member_epoch: of a member of a consumer group (KIP-848), from version 9 on.
        topic_ids: by name, from version 10 on.
    """
    if version < FIRST_FETCH_OF_GROUPS:
        named = None if topics is None else [OffsetFetchRequestTopic(name=name, partition_indexes=mine) for name, mine in topics.items()]
        return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=require_stable)
    ids = topic_ids or {}
    listed = None
    if topics is not None:
        listed = [OffsetFetchRequestTopics(name=n, topic_id=ids.get(n, bytes(16)), partition_indexes=mine) for n, mine in topics.items()]
    group = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=listed)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def committed_offset(found: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> OffsetAndMetadata | None:
    """What a partition of an OffsetFetch answer says, None when nothing is committed."""
    if found.committed_offset < 0:
        return None
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(found.committed_offset, epoch if epoch >= 0 else None, found.metadata or "")
