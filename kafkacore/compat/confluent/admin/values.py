"""What calls of confluent-kafka's admin client take and give, but for ACLs.

Source: confluent_kafka.admin, confluent_kafka.cimpl.{NewTopic, NewPartitions}, confluent-kafka 2.16.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import total_ordering
from typing import Any

from kafkacore.compat.confluent.admin.kinds import AclOperation, AlterConfigOpType, ConfigSource, ResourceType, ScramMechanism
from kafkacore.compat.confluent.kafka_error import KafkaError
from kafkacore.compat.confluent.metadata import BrokerMetadata
from kafkacore.compat.confluent.model import ConsumerGroupState, ConsumerGroupType, Node, TopicPartitionInfo, Uuid, member_of
from kafkacore.compat.confluent.partitions import TopicPartition


class _Named:
    """Objects that are ordered and hashed by their topic, and equal when all of them is."""

    topic: str

    def __hash__(self) -> int:
        return hash(self.topic)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.topic < other.topic if isinstance(other, type(self)) else NotImplemented


@total_ordering
class NewTopic(_Named):
    """A topic to create; -1 takes the broker's default, and is left where `replica_assignment` says it."""

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.num_partitions = operator.index(num_partitions)
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config = config

    def __hash__(self) -> int:
        return hash(self.topic)

    def __repr__(self) -> str:
        return f"NewTopic(topic={self.topic}{'' if self.num_partitions < 0 else f',num_partitions={self.num_partitions}'})"


@total_ordering
class NewPartitions(_Named):
    """How many partitions a topic is to have in all; `replica_assignment` has the brokers of each new one."""

    def __init__(self, topic: str, new_total_count: int, replica_assignment: list[list[int]] | None = None) -> None:
        self.topic = topic
        self.new_total_count = operator.index(new_total_count)
        self.replica_assignment = replica_assignment

    def __hash__(self) -> int:
        return hash(self.topic)

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


# -- settings ------------------------------------------------------------------------------------------------------------------------


class ConfigEntry:
    """A setting: what `describe_configs` gives (`source` is the number of a ConfigSource), or a change for `incremental_alter_configs`."""

    def __init__(
        self,
        name: str,
        value: str | None,
        source: Any = ConfigSource.UNKNOWN_CONFIG,
        is_read_only: bool = False,
        is_default: bool = False,
        is_sensitive: bool = False,
        is_synonym: bool = False,
        synonyms: Mapping[str, ConfigEntry] = {},
        incremental_operation: AlterConfigOpType | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.is_read_only = bool(is_read_only)
        self.is_default = bool(is_default)
        self.is_sensitive = bool(is_sensitive)
        self.is_synonym = bool(is_synonym)
        self.synonyms = synonyms
        self.incremental_operation = incremental_operation

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"


@total_ordering
class ConfigResource:
    """What has settings: a topic, a broker (its id as name) or a group. Equal by type and name.

    Args:
        restype: ResourceType, or its name or number.
        name: topic name, broker id, or group id.
        set_config: for `alter_configs`: all settings that are to be.
        described_configs, error: what a call has found.
        incremental_configs: for `incremental_alter_configs`: the changes.
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: dict[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: Any = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("Expected resource name to be a string")
        self.restype = member_of(restype, ResourceType)
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name}{'' if self.error is None else f',{self.error!r}'})"

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        return (self.restype, self.name) == (other.restype, other.name) if isinstance(other, ConfigResource) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return (self.restype, self.name) < (other.restype, other.name) if isinstance(other, ConfigResource) else NotImplemented

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Sets a value for `alter_configs`, or leaves the one that is there."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Adds a change for `incremental_alter_configs`."""
        self.incremental_configs.append(config_entry)


# -- groups --------------------------------------------------------------------------------------------------------------------------


class ConsumerGroupListing:
    """A group, as listed; simple groups have offsets and never had members."""

    def __init__(self, group_id: str, is_simple_consumer_group: bool, state: Any = None, type: Any = None) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        if state is not None:
            self.state = member_of(state, ConsumerGroupState)
        if type is not None:
            self.type = member_of(type, ConsumerGroupType)


class ListConsumerGroupsResult:
    """Groups, and the errors of brokers that could not list theirs."""

    def __init__(self, valid: list[ConsumerGroupListing] | None = None, errors: list[Exception] | None = None) -> None:
        self.valid = valid
        self.errors = errors


class MemberAssignment:
    """Partitions of a member."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


class MemberDescription:
    """A member of a group; `target_assignment` is what it is on its way to (KIP-848)."""

    def __init__(
        self,
        member_id: str,
        client_id: str,
        host: str,
        assignment: MemberAssignment,
        group_instance_id: str | None = None,
        target_assignment: MemberAssignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.client_id = client_id
        self.host = host
        self.assignment = assignment
        self.target_assignment = target_assignment
        self.group_instance_id = group_instance_id


def _operations(given: list[Any] | None) -> list[AclOperation] | None:
    return [member_of(each, AclOperation) for each in given] if given else None


class ConsumerGroupDescription:
    """A group with its members."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: Any,
        coordinator: Node | None,
        authorized_operations: list[Any] | None = None,
        type: Any = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.members = members
        self.authorized_operations = _operations(authorized_operations)
        self.partition_assignor = partition_assignor
        if state is not None:
            self.state = member_of(state, ConsumerGroupState)
        if type is not None:
            self.type = member_of(type, ConsumerGroupType)
        self.coordinator = coordinator


class GroupMember:
    """A member, as `list_groups` shows it; metadata and assignment are bytes."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


class GroupMetadata:
    """A group, as `list_groups` shows it."""

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id}{'' if self.error is None else f', {self.error}'})"

    def __str__(self) -> str:
        return str(self.id)


# -- topics and the cluster ----------------------------------------------------------------------------------------------------------


class TopicDescription:
    """A topic with its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: list[Any] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.authorized_operations = _operations(authorized_operations)


class DescribeClusterResult:
    """The cluster: its id, controller and brokers."""

    def __init__(
        self,
        controller: Node | None,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: list[Any] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes = nodes
        self.authorized_operations = _operations(authorized_operations)


class DeletedRecords:
    """The first offset that is left."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark


class OffsetSpec(ABC):
    """Which offset of a partition: `OffsetSpec.earliest()`, `.latest()`, `.max_timestamp()` or `.for_timestamp(ms)`."""

    @property
    @abstractmethod
    def _value(self) -> int:
        """ListOffsets' number."""

    def __new__(cls, index: int) -> Any:
        return _PLACES[index] if index < 0 else TimestampSpec(index)

    @classmethod
    def earliest(cls) -> Any:
        """The first record."""
        return _PLACES[-2]

    @classmethod
    def latest(cls) -> Any:
        """The end."""
        return _PLACES[-1]

    @classmethod
    def max_timestamp(cls) -> Any:
        """The record with the latest timestamp."""
        return _PLACES[-3]

    @classmethod
    def for_timestamp(cls, timestamp: int) -> Any:
        """The first record from a time on, epoch milliseconds."""
        return TimestampSpec(timestamp)

    def __lt__(self, other: object) -> bool:
        return self._value < other._value if isinstance(other, OffsetSpec) else NotImplemented


class TimestampSpec(OffsetSpec):
    """The first record from a time on, epoch milliseconds."""

    def __new__(cls, _: int) -> Any:
        return object.__new__(cls)

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp

    @property
    def _value(self) -> int:
        return self.timestamp


class _Place(OffsetSpec):
    number: int

    def __new__(cls) -> Any:
        return object.__new__(cls)

    @property
    def _value(self) -> int:
        return self.number


class LatestSpec(_Place):
    """The end."""

    number = -1


class EarliestSpec(_Place):
    """The first record."""

    number = -2


class MaxTimestampSpec(_Place):
    """The record with the latest timestamp."""

    number = -3


_PLACES = {-1: LatestSpec(), -2: EarliestSpec(), -3: MaxTimestampSpec()}


class ListOffsetsResultInfo:
    """An offset of a partition; timestamp -1 and leader_epoch None where brokers do not say it."""

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


# -- users ---------------------------------------------------------------------------------------------------------------------------


class ScramCredentialInfo:
    """How a password is kept: the mechanism, and how often it is hashed."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription:
    """A user and its credentials."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


class UserScramCredentialAlteration:
    """A change of a user's credentials."""

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A credential to set; the password is hashed before it leaves the process, with a random salt where none is given."""

    def __init__(self, user: str, scram_credential_info: ScramCredentialInfo, password: bytes, salt: bytes | None = None) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A credential to take away."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism
