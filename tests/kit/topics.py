"""Topics whose leaders lead: Kafka shows a topic some moments before they do."""

from __future__ import annotations

from typing import Any

from kafkacore import KafkaAdminClient, KafkaConsumer, NewTopic, TopicPartition
from tests.kit.waiting import fresh


def new_topic(servers: str, partitions: int = 1, replicas: int = -1, *, prefix: str = "t", **configs: Any) -> str:
    """Creates a topic, and returns its name when all its leaders take records: with acks=0 a record that is refused is lost.

    Args:
        servers: addresses.
        partitions: how many.
        replicas: of each; -1 for the brokers' default.
        prefix: of its name.
        configs: its settings, underscores for dots.
    """
    name = fresh(prefix)
    settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, partitions, replicas, configs=settings)]).check()
    with KafkaConsumer(bootstrap_servers=servers) as consumer:  # leaders answer this
        consumer.end_offsets([TopicPartition(name, index) for index in range(partitions)])
    return name
