"""kafka-python's KafkaAdminClient over the engine's, and what its calls take and give.

Source: kafka.admin, kafka-python 3.0.
"""

from __future__ import annotations

from kafkacore.compat.kafka.admin_configs import ConfigAdmin
from kafkacore.compat.kafka.admin_groups import GroupAdmin
from kafkacore.compat.kafka.admin_security import SecurityAdmin
from kafkacore.compat.kafka.admin_topics import TopicAdmin
from kafkacore.compat.kafka.admin_types import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    GroupState,
    GroupType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
    PartitionProducerState,
    ProducerState,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UpdateFeatureType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]


class KafkaAdminClient(TopicAdmin, ConfigAdmin, GroupAdmin, SecurityAdmin):
    """Administers a cluster. Takes kafka-python's settings as keywords (`DEFAULT_CONFIG`), with its defaults.

    Raises:
        KafkaConfigurationError: an unknown setting, one that contradicts another, or one that is not supported here.
        KafkaTimeoutError: no broker within bootstrap_timeout_ms.
    """
