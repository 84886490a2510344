"""An image that takes over another's state at once, because the records in between are gone; its listeners hear what that changes.

Source: org.apache.kafka.image.MetadataDelta.finishSnapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kafkacore.broker.cluster import ClusterImage, ImageDelta

K = TypeVar("K")


def jump(image: ClusterImage, target: ClusterImage) -> ImageDelta:
    """Makes an image equal to another one of the same cluster.

    Args:
        image: to be changed, and its listeners to be called.
        target: as a snapshot has it; not to be used any more.

    Returns:
        What changed.
    """
    delta = ImageDelta(image)
    for topic in [each for each in image.topics.values() if each.topic_id not in target.topics_by_id]:
        image.drop_topic(topic)
        delta.note_deletion(topic)
    for topic in target.topics.values():
        mine = image.topics_by_id.get(topic.topic_id)
        if mine is None:
            image.add_topic(topic)
            delta.created_topics.append(topic)
            for index in range(len(topic.partitions)):
                delta.note_partition(topic, index, None)
            continue
        mine.config = topic.config
        before = mine.partitions
        image.replace_partitions(mine, topic.partitions)
        for index, partition in enumerate(topic.partitions):
            if index >= len(before):
                delta.note_partition(mine, index, None)
            elif before[index] != partition:
                delta.note_partition(mine, index, before[index])
    delta.configs |= _differing(image.configs, target.configs)
    delta.brokers |= _differing(image.brokers, target.brokers)
    delta.features |= _differing(image.features, target.features)
    delta.quotas |= _differing(image.client_quotas, target.client_quotas)
    delta.acls |= _differing(image.acls, target.acls)
    held_by_others = ("configs", "brokers", "nodes", "features", "client_quotas", "acls", "acl_ids", "scram_credentials")
    for name in (*held_by_others, "delegation_tokens", "controllers"):
        mine_now = getattr(image, name)
        theirs = dict(getattr(target, name))
        mine_now.clear()
        mine_now.update(theirs)  # the same dictionaries: others hold them
    image.next_producer_id = target.next_producer_id
    image.zk_migration_state = target.zk_migration_state
    image.next_offset = target.next_offset
    image.tell(delta)
    return delta


def _differing(before: Mapping[K, Any], now: Mapping[K, Any]) -> set[K]:
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
