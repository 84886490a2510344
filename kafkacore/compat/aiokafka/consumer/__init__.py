"""Names of `aiokafka.consumer`."""

from kafkacore.compat.aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
