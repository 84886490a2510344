"""confluent-kafka's names over kafkacore: a program imports from `kafkacore.compat.confluent` in place of `confluent_kafka`.

What differs is in docs/moving-from-confluent-kafka.md.
"""

from importlib import import_module
from typing import Any

from kafkacore.compat.confluent import admin
from kafkacore.compat.confluent.consumer import Consumer
from kafkacore.compat.confluent.deserializing_consumer import DeserializingConsumer
from kafkacore.compat.confluent.events import ThrottleEvent
from kafkacore.compat.confluent.kafka_error import ConcurrentModificationException, IllegalStateException, KafkaError, KafkaException
from kafkacore.compat.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from kafkacore.compat.confluent.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Node,
    TopicCollection,
    TopicPartitionInfo,
    Uuid,
)
from kafkacore.compat.confluent.not_covered import NOT_COVERED, reason
from kafkacore.compat.confluent.partitioning import consistent, fnv1a, murmur2
from kafkacore.compat.confluent.partitions import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TopicPartition
from kafkacore.compat.confluent.producer import Producer
from kafkacore.compat.confluent.serializing_producer import SerializingProducer

__all__ = [
    "admin",
    "Uuid",
    "TopicPartitionInfo",
    "TopicCollection",
    "SerializingProducer",
    "Node",
    "IsolationLevel",
    "ElectionType",
    "DeserializingConsumer",
    "ConsumerGroupType",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupState",
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
    "ThrottleEvent",
    "TopicPartition",
    "consistent",
    "fnv1a",
    "murmur2",
]


def __getattr__(name: str) -> Any:
    if name == "aio":  # asyncio is imported for those who want it
        return import_module("kafkacore.compat.confluent.aio")
    if name in NOT_COVERED:
        raise ImportError(reason(name))
    raise AttributeError(f"module {__name__} has no attribute {name!r}")
