"""Enumerations of confluent-kafka's admin client, with its numbers.

Source: confluent_kafka.admin, confluent-kafka 2.16.
"""

from __future__ import annotations

from enum import Enum

from kafkacore.compat.confluent.model import Ordered


# fmt: off
class ResourceType(Ordered):
    """What settings belong to, and what ACLs are about; as the latter, BROKER is the cluster."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5
class ResourcePatternType(Ordered):
    """How the name of an ACL's resource is meant."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4
class AclOperation(Ordered):
    """An operation that an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
class AclPermissionType(Ordered):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
class AlterConfigOpType(Enum):
    """What happens to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
class ConfigSource(Enum):
    """Which layer a setting's value comes from."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8
class ScramMechanism(Ordered):
    """How a SCRAM credential is hashed."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2
# fmt: on


def operations_of(words: list[str] | None) -> list[AclOperation] | None:
    """The engine's words for operations; those that have no member here are left out."""
    if words is None:
        return None
    return [AclOperation[word.upper()] for word in words if word.upper() in AclOperation.__members__]
