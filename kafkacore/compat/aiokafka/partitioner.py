"""aiokafka's partitioner. As a setting it means the engine's own, which is compiled.

Source: aiokafka.partitioner, aiokafka 0.14; KIP-480, KIP-794.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kafkacore import codec


class DefaultPartitioner:
    """By the key's hash (murmur2, as Java's producer does), without a key any partition that has a leader.

    As a setting it means the engine's own: that keeps to one partition per batch for records without a key.
    """

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """The partition of a record.

        Args:
            key: its bytes.
            all_partitions: numbers in ascending order.
            available: those that have a leader.
        """
        if key is not None:
            return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]
        return random.choice(available or all_partitions)


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    return codec.murmur2(data) & 0xFFFFFFFF
