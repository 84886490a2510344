"""The queues of a topic follow what the cluster says of it: partitions added, or a new topic under the old name."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from kafkacore._codec import TopicQueue
from kafkacore.metadata import Metadata, TopicInfo
from kafkacore.types import TopicPartition


def checked_name(topic: Any) -> str:
    """The name of a topic.

    Raises:
        TypeError: it is no string.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be a str, not {type(topic).__name__}")
    return topic


def new_queue(topic: str, info: TopicInfo) -> TopicQueue:
    """The queues of a topic; records without a key begin with any of its partitions."""
    queue = TopicQueue(topic)
    queue.grow(info.partition_count, TopicPartition)
    queue.topic_id = info.topic_id
    first = random.randrange(queue.n)
    queue.sticky = queue.partitions[first]
    return queue


def follow(queue: TopicQueue, info: TopicInfo | None) -> None:
    """Brings a topic's queues up to what the cluster says of the topic; None says nothing."""
    if info is None or not info.partition_count:
        return
    # The same topic never loses partitions: a smaller number is an old answer, unless another topic has the name now.
    count = info.partition_count
    if count > queue.n or (count < queue.n and info.topic_id != queue.topic_id):
        queue.grow(count, TopicPartition)
    queue.topic_id = info.topic_id


def follow_changes(topics: Mapping[str, TopicQueue], metadata: Metadata, since: int) -> int:
    """Brings the queues of the topics that changed up to date.

    Args:
        topics: by name.
        metadata: of the cluster.
        since: the version of the metadata that was taken in last.

    Returns:
        The version that is taken in now.
    """
    version, changed = metadata.changed_since(since)
    known = metadata.snapshot.topics
    for name in changed:
        queue = topics.get(name)
        if queue is not None:
            follow(queue, known.get(name))
    return version
