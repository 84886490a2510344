"""aiokafka's names over kafkacore: `from kafkacore.compat.aiokafka import AIOKafkaProducer` in place of `from aiokafka import ...`.

What differs is in docs/moving-from-aiokafka.md.
"""

from kafkacore.compat.aiokafka.abc import ConsumerRebalanceListener
from kafkacore.compat.aiokafka.consumer import AIOKafkaConsumer
from kafkacore.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation
from kafkacore.compat.aiokafka.producer import AIOKafkaProducer
from kafkacore.compat.aiokafka.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
]
