"""confluent-kafka's names over kafkacore: a program imports from `kafkacore.compat.confluent` in place of `confluent_kafka`.

What differs is in docs/moving-from-confluent-kafka.md.
"""

import binascii

from kafkacore import _codec
from kafkacore.compat.confluent.consumer import Consumer
from kafkacore.compat.confluent.kafka_error import ConcurrentModificationException, IllegalStateException, KafkaError, KafkaException
from kafkacore.compat.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from kafkacore.compat.confluent.partitions import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TopicPartition
from kafkacore.compat.confluent.producer import Producer


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


__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "ConcurrentModificationException",
    "Consumer",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "TopicPartition",
    "consistent",
    "fnv1a",
    "murmur2",
]
