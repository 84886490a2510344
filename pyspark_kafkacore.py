"""Spark looks for `DefaultSource` in a module of this name when it meets `format("kafkacore")`."""

from kafkacore.spark.source import KafkaSource as DefaultSource

__all__ = ["DefaultSource"]
