"""KafkaAdminClient: everything that manages a cluster. One answer per item: what failed does not hide what worked.

A call is driven by its thread. Calls of several threads run beside each other, each with connections of its own.

Source: Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from kafkacore.admin.base import ItemResults, Listed
from kafkacore.admin.cluster import ClusterAdmin, ClusterDescription, LogDirDescription, Reassignment, ReplicaLogDirs, ReplicaSize
from kafkacore.admin.configs import Append, ConfigEntry, ConfigResource, ConfigsAdmin, ConfigSynonym, Subtract
from kafkacore.admin.groups import GroupDescription, GroupListing, GroupsAdmin, MemberDescription
from kafkacore.admin.quorum import FeatureDescription, FeatureUpdate, QuorumAdmin, QuorumDescription, QuorumReplica, VersionRange
from kafkacore.admin.security import Acl, AclFilter, SecurityAdmin
from kafkacore.admin.tokens import DelegationToken, TokensAdmin
from kafkacore.admin.topics import CreatedTopic, TopicDescription, TopicsAdmin
from kafkacore.admin.transactions import FencedProducer, ProducerDescription, TransactionDescription, TransactionListing, TransactionsAdmin
from kafkacore.admin.users import UsersAdmin
from kafkacore.clock import Clock
from kafkacore.config import AdminConfig
from kafkacore.config_keywords import AdminKeywords, list_settings
from kafkacore.elsewhere import ADMIN, answer_names

__all__ = [
    "Acl",
    "AclFilter",
    "Append",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "CreatedTopic",
    "DelegationToken",
    "FeatureDescription",
    "FeatureUpdate",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "ItemResults",
    "KafkaAdminClient",
    "Listed",
    "LogDirDescription",
    "MemberDescription",
    "ProducerDescription",
    "QuorumDescription",
    "QuorumReplica",
    "Reassignment",
    "ReplicaLogDirs",
    "ReplicaSize",
    "Subtract",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
    "VersionRange",
]


class KafkaAdminClient(
    TopicsAdmin, ConfigsAdmin, ClusterAdmin, GroupsAdmin, TransactionsAdmin, SecurityAdmin, UsersAdmin, QuorumAdmin, TokensAdmin
):
    """Manages a cluster and looks at it.

    Args:
        **settings: see `AdminConfig`; a mapping with dotted names may be passed as the first argument.

    Raises:
        errors.ConfigError: an unknown or wrong setting.

    Every call takes `timeout` in seconds (`default_api_timeout_ms` when None) and raises KafkaTimeoutError when no broker answered in
    time, with the reasons of all tries. Results come per item, see `ItemResults`.
    """

    def __init__(
        self, mapping: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **settings: Unpack[AdminKeywords]
    ) -> None:
        super().__init__(mapping, clock=clock, **settings)


answer_names(KafkaAdminClient, ADMIN)
list_settings(KafkaAdminClient, AdminConfig)
