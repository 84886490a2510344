"""confluent-kafka's view of the cluster, as `list_topics` gives it.

Source: confluent_kafka.admin.ClusterMetadata, confluent-kafka 2.16.
"""

from __future__ import annotations

from typing import Any

from kafkacore.compat.confluent.kafka_error import KafkaError, of


class BrokerMetadata:
    """A broker: id, host, port."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class PartitionMetadata:
    """A partition: id, leader, replicas, isrs (ids of brokers), error."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id}, leader {self.leader})"


class TopicMetadata:
    """A topic: its name, its partitions by number, error."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions)"

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata:
    """The cluster: its id, brokers by id, topics by name, and who was asked."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


def cluster_of(answer: Any, error_of: Any) -> ClusterMetadata:
    """From an answer to a MetadataRequest.

    Args:
        answer: of a broker.
        error_of: the engine's error of a code.
    """
    found = ClusterMetadata()
    found.cluster_id, found.controller_id = answer.cluster_id, answer.controller_id
    for node in answer.brokers:
        broker = found.brokers[node.node_id] = BrokerMetadata()
        broker.id, broker.host, broker.port = node.node_id, node.host, node.port
    for topic in answer.topics:
        made = found.topics[topic.name] = TopicMetadata()
        made.topic = topic.name
        made.error = of(error_of(topic.error_code)) if topic.error_code else None
        for each in topic.partitions:
            part = made.partitions[each.partition_index] = PartitionMetadata()
            part.id, part.leader = each.partition_index, each.leader_id
            part.replicas, part.isrs = list(each.replica_nodes), list(each.isr_nodes)
            part.error = of(error_of(each.error_code)) if each.error_code else None
    return found
