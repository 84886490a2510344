"""The topics in which coordinators keep their state: made when they are first asked for, always with settings of their own. Clients
read them, and do not write to them; what they may do as administrators is what Kafka lets them do.

Source: kafka.server.DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkacore.broker.cluster import ClusterImage
from kafkacore.config import BrokerConfig
from kafkacore.protocol import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
"""The controller's log: no topic of the brokers, and none is made under its name."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics, as in Kafka. It protects from mistakes; it is no authorization."""

_INTERNAL = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})


def is_internal(name: str) -> bool:
    """Whether a topic is one of Kafka's own. Source: org.apache.kafka.common.internals.Topic."""
    return name in _INTERNAL


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
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        ),
    }


def creation_of(cluster: ClusterImage, config: BrokerConfig, name: str) -> CreateTopicsRequest:
    """The request that makes an internal topic."""
    return CreateTopicsRequest(topics=[creatable(cluster, config, name)])


def creatable(cluster: ClusterImage, config: BrokerConfig, name: str) -> CreatableTopic:
    """A topic that is made because a client asks for it: an internal one has its own settings, others those of the broker.

    In a cluster of fewer brokers than its replication factor an internal topic gets a replica on each, and needs no more than those in
    sync. A broker that is down for now counts: its replica is in sync when it is back.
    """
    if not is_internal(name):
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    wanted = internal_topics(config)[name]
    replicas = max(min(wanted.replication_factor, len(cluster.brokers)), 1)
    configs = dict(wanted.configs)
    if "min.insync.replicas" in configs:
        configs["min.insync.replicas"] = str(min(config.transaction_state_log_min_isr, replicas))
    return CreatableTopic(
        name=name,
        num_partitions=wanted.partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
