"""The names of confluent-kafka's C module, for programs that import from there; constants are made of the enumerations.

Source: confluent_kafka.cimpl, confluent-kafka 2.16.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kafkacore.compat.confluent.admin.kinds import (
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)
from kafkacore.compat.confluent.admin.values import NewPartitions, NewTopic
from kafkacore.compat.confluent.consumer import Consumer
from kafkacore.compat.confluent.kafka_error import ConcurrentModificationException, IllegalStateException, KafkaError, KafkaException
from kafkacore.compat.confluent.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from kafkacore.compat.confluent.model import ConsumerGroupType, ElectionType, IsolationLevel, Uuid
from kafkacore.compat.confluent.not_covered import NOT_COVERED, reason
from kafkacore.compat.confluent.partitioning import consistent, fnv1a, murmur2
from kafkacore.compat.confluent.partitions import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, TopicPartition
from kafkacore.compat.confluent.producer import Producer

_ENUMERATIONS: dict[str, type[Enum]] = {
    "ACL_OPERATION": AclOperation,
    "ACL_PERMISSION_TYPE": AclPermissionType,
    "ALTER_CONFIG_OP_TYPE": AlterConfigOpType,
    "CONFIG_SOURCE": ConfigSource,
    "CONSUMER_GROUP_TYPE": ConsumerGroupType,
    "ELECTION_TYPE": ElectionType,
    "ISOLATION_LEVEL": IsolationLevel,
    "RESOURCE_PATTERN": ResourcePatternType,
    "RESOURCE": ResourceType,
}
_CONSTANTS: dict[str, int] = {
    **{f"{prefix}_{member.name}": member.value for prefix, kind in _ENUMERATIONS.items() for member in kind},
    "CONSUMER_GROUP_STATE_UNKNOWN": 0,
    "CONSUMER_GROUP_STATE_PREPARING_REBALANCE": 1,
    "CONSUMER_GROUP_STATE_COMPLETING_REBALANCE": 2,
    "CONSUMER_GROUP_STATE_STABLE": 3,
    "CONSUMER_GROUP_STATE_DEAD": 4,
    "CONSUMER_GROUP_STATE_EMPTY": 5,
    "OFFSET_SPEC_MAX_TIMESTAMP": -3,
    "OFFSET_SPEC_EARLIEST": -2,
    "OFFSET_SPEC_LATEST": -1,
    "SCRAM_MECHANISM_UNKNOWN": 0,
    "SCRAM_MECHANISM_SHA_256": 1,
    "SCRAM_MECHANISM_SHA_512": 2,
}
globals().update(_CONSTANTS)

__all__ = [
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
    "NewPartitions",
    "NewTopic",
    "Producer",
    "TopicPartition",
    "Uuid",
    "consistent",
    "fnv1a",
    "murmur2",
]
__all__.extend(_CONSTANTS)


def __getattr__(name: str) -> Any:
    if name in NOT_COVERED:
        raise ImportError(reason(name))
    raise AttributeError(f"module {__name__} has no attribute {name!r}")
