"""Which partition comes next for records that name none and have no key.

Keyed records (murmur2 of the key bytes & 0x7fffffff, modulo the partition count) are placed in native/append.pxi. Records without a key
stick to one partition until it has had batch.size bytes, so that batches fill; then one of these is asked for the next partition:
uniformly at random over the available partitions, or, adaptively, weighted so that partitions with long queues get fewer records.

Source: KIP-480, KIP-794; org.apache.kafka.clients.producer.internals.BuiltInPartitioner.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from kafkacore._codec import PartitionQueue, TopicQueue

if TYPE_CHECKING:
    from kafkacore.metadata import ClusterSnapshot


class StickyPartitioner:
    """Chooses the next sticky partition of a topic."""

    def __init__(
        self,
        snapshot: Callable[[], ClusterSnapshot],
        *,
        adaptive: bool,
        unavailable: Callable[[], frozenset[int]] = frozenset,
        rng: random.Random | None = None,
    ) -> None:
        """Keeps what it asks.

        Args:
            snapshot: gives the cluster as known now.
            adaptive: weigh partitions by the length of their queues.
            unavailable: gives the ids of brokers that take no batches for partitioner_availability_timeout_ms.
            rng: source of randomness.
        """
        self._snapshot = snapshot
        self._adaptive = adaptive
        self._unavailable = unavailable
        self._rng = rng or random.Random()

    def __call__(self, topic: TopicQueue) -> PartitionQueue:
        """The next partition for `topic`."""
        queues = self.candidates(topic)
        if len(queues) == 1:
            return queues[0]
        if not self._adaptive:
            return self._rng.choice(queues)
        sizes = [len(queue.batches) for queue in queues]
        if len(set(sizes)) == 1:
            return self._rng.choice(queues)
        return queues[weighted_index(sizes, self._rng)]

    def candidates(self, topic: TopicQueue) -> list[PartitionQueue]:
        """Partitions with a leader that takes batches; failing that with a leader; failing that all."""
        snapshot = self._snapshot()
        led = []
        taking = []
        slow = self._unavailable()
        existing = topic.partitions[: topic.n]
        for queue in existing:
            leader = snapshot.leader(queue.topic_partition)
            if leader is not None:
                led.append(queue)
                if leader.id not in slow:
                    taking.append(queue)
        return taking or led or existing


def weighted_index(queue_sizes: list[int], rng: random.Random) -> int:
    """An index drawn with weight (longest queue + 1 - own queue): the longest still gets a little.

    Source: BuiltInPartitioner.updatePartitionLoadStats.
    """
    longest = max(queue_sizes) + 1
    table = list(accumulate(longest - size for size in queue_sizes))
    return bisect_right(table, rng.randrange(table[-1]))
