"""The topics in which coordinators keep their state: made when they are first asked for.

Source: kafka.server.DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.broker.cluster import ClusterImage, Topic
from kafkacore.config import BrokerConfig

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"


def is_internal(name: str) -> bool:
    """Whether a topic is one of Kafka's own. Source: org.apache.kafka.common.internals.Topic."""
    return name in (GROUP_TOPIC, TRANSACTION_TOPIC)


class InternalTopic(NamedTuple):
    """How one of them is made."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topics(config: BrokerConfig) -> dict[str, InternalTopic]:
    """Those of a broker with these settings, by name."""
    return {
        GROUP_TOPIC: InternalTopic(
            GROUP_TOPIC,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(config.offsets_topic_segment_bytes)},
        ),
        TRANSACTION_TOPIC: InternalTopic(
            TRANSACTION_TOPIC,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
    }


def find_or_create(cluster: ClusterImage, config: BrokerConfig, name: str) -> Topic:
    """An internal topic. With fewer brokers than its replication factor it gets a replica on each, and needs no more than those in sync.

    Raises:
        BrokerError: it cannot be made.
    """
    found = cluster.topics.get(name)
    if found is not None:
        return found
    wanted = internal_topics(config)[name]
    replicas = max(min(wanted.replication_factor, len(cluster.nodes)), 1)
    configs: dict[str, str | None] = dict(wanted.configs)
    if "min.insync.replicas" in configs:
        configs["min.insync.replicas"] = str(min(config.transaction_state_log_min_isr, replicas))
    return cluster.create_topic(name, wanted.partitions, replicas, configs)
