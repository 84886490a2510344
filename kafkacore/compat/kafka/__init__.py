"""kafka-python 3's names over kafkacore: `from kafkacore.compat.kafka import KafkaProducer` in place of `from kafka import KafkaProducer`.

What differs is in docs/moving-from-kafka-python.md.
"""

from kafkacore.compat.kafka.admin import KafkaAdminClient
from kafkacore.compat.kafka.admin_types import IsolationLevel, OffsetSpec
from kafkacore.compat.kafka.consumer import KafkaConsumer
from kafkacore.compat.kafka.listener import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
from kafkacore.compat.kafka.producer import KafkaProducer
from kafkacore.compat.kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from kafkacore.compat.kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, TopicPartitionReplica

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
]
