"""The partition of a key by librdkafka's partitioners.

Source: confluent_kafka.{murmur2, fnv1a, consistent}, confluent-kafka 2.16.
"""

from __future__ import annotations

import binascii

from kafkacore import _codec


def murmur2(key: bytes, partition_count: int) -> int:
    """The partition of a key by the partitioner murmur2."""
    return (_codec.murmur2(key) & 0x7FFFFFFF) % partition_count


def fnv1a(key: bytes, partition_count: int) -> int:
    """The partition of a key by the partitioner fnv1a."""
    found = _codec.fnv1a(key)
    return abs(found - (1 << 32) if found >> 31 else found) % partition_count


def consistent(key: bytes, partition_count: int) -> int:
    """The partition of a key by the partitioner consistent (CRC-32)."""
    return binascii.crc32(key) % partition_count
