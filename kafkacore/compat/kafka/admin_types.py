"""What calls of kafka-python's KafkaAdminClient take and give.

Source: kafka.admin, kafka.protocol.consumer.offsets, kafka-python 3.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Self

from kafkacore.compat.kafka.errors import IllegalArgumentError
from kafkacore.types import TopicPartition


class _ByName:
    """Enumerations that are also made of a member's name."""

    @classmethod
    def build_from(cls, val: Any) -> Self:
        """The member of a value or a name, in any case, with - or _."""
        if isinstance(val, cls):
            return val
        kind: Any = cls
        try:
            found: Self = kind(val)
        except ValueError:
            try:
                found = kind[str(val).strip().upper().replace("-", "_")]
            except KeyError:
                raise ValueError(f"Unrecognized {cls.__name__}: {val}") from None
        return found

    @classmethod
    def value_for(cls, val: Any) -> Any:
        """The value of `build_from`."""
        member: Any = cls.build_from(val)
        return member.value


# fmt: off
class IsolationLevel(_ByName, IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
class OffsetSpec(_ByName, IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
class ACLOperation(IntEnum):
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
class ACLPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
class ACLResourcePatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4
class AlterConfigOp(_ByName, IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
class ConfigResourceType(_ByName, IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
class ConfigType(_ByName, IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9
class ConfigSourceType(_ByName, IntEnum):
    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    def is_modified(self) -> bool:
        return self.value not in (3, 4, 5)
class ConfigFilterType(_ByName, IntEnum):
    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4

    def should_skip(self, config_source: ConfigSourceType) -> bool:
        if self is ConfigFilterType.STATIC:
            return config_source is not ConfigSourceType.STATIC_BROKER_CONFIG
        modified = config_source.is_modified()
        return (self is ConfigFilterType.MODIFIED and not modified) or (self is ConfigFilterType.DEFAULT and modified)
class UpdateFeatureType(_ByName, IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2
class GroupState(_ByName, str, Enum):  # noqa: UP042 - str() as kafka-python's
    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
class GroupType(_ByName, str, Enum):  # noqa: UP042
    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
class TransactionState(_ByName, str, Enum):  # noqa: UP042
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"
# fmt: on


class OffsetTimestamp(int):
    """Epoch milliseconds, where a number alone would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class NewTopic:
    """A topic to create; -1 takes the broker's default."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


class NewPartitions:
    """Partitions to add: the new total, and broker ids for each added one."""

    def __init__(self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class _Value:
    """Objects that are equal when their fields are."""

    def _key(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(f'{name}={value!r}' for name, value in vars(self).items())}>"


class ResourcePatternFilter(_Value):
    """Which resources an ACL filter is about."""

    def __init__(self, resource_type: ResourceType, resource_name: str | None, pattern_type: ACLResourcePatternType) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.validate()

    def validate(self) -> None:
        """Raises IllegalArgumentError for values of other types."""
        if not isinstance(self.resource_type, ResourceType):
            raise IllegalArgumentError("resource_type must be a ResourceType object")
        if not isinstance(self.pattern_type, ACLResourcePatternType):
            raise IllegalArgumentError("pattern_type must be an ACLResourcePatternType object")


class ResourcePattern(ResourcePatternFilter):
    """Which resources an ACL is about."""

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str | None,
        pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL,
    ) -> None:
        super().__init__(resource_type, resource_name, pattern_type)

    def validate(self) -> None:
        """Raises IllegalArgumentError for values of other types, and for those of filters."""
        super().validate()
        if self.resource_type == ResourceType.ANY:
            raise IllegalArgumentError("resource_type cannot be ANY")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(f"pattern_type cannot be {self.pattern_type.name} on a concrete ResourcePattern")


class ACLFilter(_Value):
    """Which ACLs a call is about."""

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type
        self.resource_pattern = resource_pattern
        self.validate()

    def validate(self) -> None:
        """Raises IllegalArgumentError for values of other types."""
        if not isinstance(self.operation, ACLOperation):
            raise IllegalArgumentError("operation must be an ACLOperation object, and cannot be ANY")
        if not isinstance(self.permission_type, ACLPermissionType):
            raise IllegalArgumentError("permission_type must be an ACLPermissionType object, and cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError("resource_pattern must be a ResourcePatternFilter object")


class ACL(ACLFilter):
    """Who may do what."""

    def validate(self) -> None:
        """Raises IllegalArgumentError for values of other types, and for those of filters."""
        super().validate()
        if self.operation == ACLOperation.ANY:
            raise IllegalArgumentError("operation cannot be ANY")
        if self.permission_type == ACLPermissionType.ANY:
            raise IllegalArgumentError("permission_type cannot be ANY")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError("resource_pattern must be a ResourcePattern object")


class ConfigResource:
    """What settings belong to, and settings of it: names, or values by name."""

    def __init__(self, resource_type: ConfigResourceType | str, name: Any, configs: Any = None) -> None:
        self.resource_type = (
            resource_type if isinstance(resource_type, ConfigResourceType) else ConfigResourceType[str(resource_type).upper()]
        )
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type}, {self.name}, {self.configs})"


class MemberToRemove(_Value):
    """A member of a group to remove."""

    def __init__(self, member_id: str | None = None, group_instance_id: str | None = None, reason: str | None = None) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class TransactionListing(NamedTuple):
    """A transactional id that a coordinator knows."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """The state of a transactional id."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """A producer that wrote to a partition lately."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A transaction to abort in one partition."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


def _mechanism(given: Any) -> ScramMechanism:
    if isinstance(given, str):
        return ScramMechanism[given.upper().replace("-", "_")]
    return ScramMechanism(given)


class UserScramCredentialDeletion:
    """A credential to take away."""

    def __init__(self, user: str, mechanism: Any) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A credential to set; the engine salts and hashes the password before it leaves the process."""

    DEFAULT_ITERATIONS = 4096

    def __init__(self, user: str, mechanism: Any, password: str | bytes, iterations: int | None = None, salt: bytes | None = None) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("SCRAM mechanism must not be UNKNOWN")
        if salt is not None:
            raise IllegalArgumentError("salt: the engine draws one at random for each credential")
        self.iterations = self.DEFAULT_ITERATIONS if iterations is None else iterations
        self.password = password.decode() if isinstance(password, bytes) else password

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"
