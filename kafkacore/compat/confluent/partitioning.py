"""The partition of a key by librdkafka's partitioners.

Source: confluent_kafka.{murmur2, fnv1a, consistent}, confluent-kafka 2.16.
"""

from __future__ import annotations

import binascii
import operator
from typing import Any

from kafkacore import _codec

INT32_MAX = 2**31 - 1


def _checked(key: Any, partition_count: int) -> Any:
    """A key's bytes.

    Raises:
        TypeError: it is not bytes, which confluent-kafka wants, too.
        ValueError, OverflowError: no number of partitions.
    """
    count = operator.index(partition_count)
    if count > INT32_MAX:
        raise OverflowError(f"partition_count is at most {INT32_MAX}, got {count}")
    if count <= 0:
        raise ValueError(f"partition_count must be > 0, got {count}")
    if not isinstance(key, bytes):
        raise TypeError(f"a bytes-like object is required, not {type(key).__name__!r}")
    return key


def murmur2(key: bytes, partition_count: int, /) -> int:
    """The partition of a key by the partitioner murmur2; ValueError for a partition_count below 1."""
    return (_codec.murmur2(_checked(key, partition_count)) & 0x7FFFFFFF) % partition_count


def fnv1a(key: bytes, partition_count: int, /) -> int:
    """The partition of a key by the partitioner fnv1a; ValueError for a partition_count below 1."""
    found = _codec.fnv1a(_checked(key, partition_count))
    return abs(found - (1 << 32) if found >> 31 else found) % partition_count


def consistent(key: bytes, partition_count: int, /) -> int:
    """The partition of a key by the partitioner consistent (CRC-32); ValueError for a partition_count below 1."""
    return binascii.crc32(_checked(key, partition_count)) % partition_count
