"""kafka-python's interface of partitioners. Its two own ones mean the engine's, which is compiled.

Source: kafka.partitioner, kafka-python 3.0; KIP-480, KIP-794.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from kafkacore import codec
from kafkacore.metadata import ClusterSnapshot


class Cluster:
    """What a partitioner sees of the cluster."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    def topics(self) -> set[str]:
        """The topics that this producer knows."""
        return set(self._snapshot.topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """All partitions, None for an unknown topic."""
        count = self._snapshot.partition_count(topic)
        return None if count is None else set(range(count))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions that have a leader, None for an unknown topic."""
        if self._snapshot.partition_count(topic) is None:
            return None
        return {partition.index for partition in self._snapshot.available_partitions(topic)}


class Partitioner(ABC):
    """Chooses the partition of a record that names none."""

    @abstractmethod
    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Cluster
    ) -> int | None:
        """The number of the partition.

        Args:
            topic: of the record.
            key, value: as the program gave them.
            serialized_key, serialized_value: their bytes.
            cluster: what is known of topics and leaders.
        """


class DefaultPartitioner(Partitioner):
    """By the key's hash (murmur2, as Java's producer does), without a key any partition that has a leader.

    As a setting it means the engine's own: that keeps to one partition per batch for records without a key.
    """

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Cluster
    ) -> int | None:
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if not partitions:
            raise ValueError(f"topic {topic} is not known")
        if serialized_key is not None:
            return partitions[(murmur2(serialized_key) & 0x7FFFFFFF) % len(partitions)]
        return random.choice(sorted(cluster.available_partitions_for_topic(topic) or partitions))


class StickyPartitioner(DefaultPartitioner):
    """The same here: the engine is sticky."""


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    return codec.murmur2(data) & 0xFFFFFFFF
