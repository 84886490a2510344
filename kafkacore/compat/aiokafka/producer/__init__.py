"""Names of `aiokafka.producer`."""

from kafkacore.compat.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
