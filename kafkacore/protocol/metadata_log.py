"""Records of the metadata log, `__cluster_metadata-0`: what a cluster is made of, one small fact per record.

    value of a record = frame version 1, API key and version, each an unsigned varint, and then the message

Records have no key. All versions are flexible. What a record says is what changed: a PartitionChangeRecord's null or -2 means "as before".

Source: Kafka's definitions in metadata/src/main/resources/common/metadata; org.apache.kafka.metadata.MetadataRecordSerde.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kafkacore.codec import decode_unsigned_varint, encode_unsigned_varint
from kafkacore.errors import UnsupportedVersion
from kafkacore.protocol.schema import BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, F, Message, Struct

if TYPE_CHECKING:
    from kafkacore._codec import Buffer

FRAME_VERSION = 1

NO_LEADER_CHANGE = -2
"""PartitionChangeRecord.leader: the leader stays."""


class MetadataRecord(Message):
    """A record of the metadata log; API_KEY is its kind, MAX_VERSION the version that is written."""

    RECORDS: ClassVar[dict[int, type[MetadataRecord]]] = {}

    def __init_subclass__(cls, *, api_key: int | None = None, versions: str = "", flexible: str = "0+") -> None:
        super().__init_subclass__(api_key=api_key, versions=versions, flexible=flexible)
        if api_key is not None:
            MetadataRecord.RECORDS[api_key] = cls


# Brokers.


class BrokerEndpoint(Struct):
    name: str = F(STRING)
    host: str = F(STRING)
    port: int = F(UINT16)
    security_protocol: int = F(INT16)


class BrokerFeature(Struct):
    name: str = F(STRING)
    min_supported_version: int = F(INT16)
    max_supported_version: int = F(INT16)


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-4"):
    """A broker came up. Its epoch is the offset of this record."""

    broker_id: int = F(INT32)
    is_migrating_zk_broker: bool = F(BOOL, "2+")
    incarnation_id: bytes = F(UUID)
    broker_epoch: int = F(INT64)
    end_points: list[BrokerEndpoint] = F([BrokerEndpoint])
    features: list[BrokerFeature] = F([BrokerFeature])
    rack: str | None = F(STRING, nullable="0+")
    fenced: bool = F(BOOL, default=True)
    in_controlled_shutdown: bool = F(BOOL, "1+")
    log_dirs: list[bytes] = F([UUID], "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = F([UUID], "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0"):
    """A broker has left the cluster."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64)


class FenceBrokerRecord(MetadataRecord, api_key=7, versions="0"):
    """Older form of a BrokerRegistrationChangeRecord with fenced=1."""

    id: int = F(INT32)
    epoch: int = F(INT64)


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions="0"):
    """Older form of a BrokerRegistrationChangeRecord with fenced=-1."""

    id: int = F(INT32)
    epoch: int = F(INT64)


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-3"):
    """fenced: -1 unfenced, 0 no change, 1 fenced. in_controlled_shutdown: 1 from now on. log_dirs: empty for no change."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64)
    fenced: int = F(INT8, tag=0)
    in_controlled_shutdown: int = F(INT8, "1+", tag=1)
    log_dirs: list[bytes] = F([UUID], "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = F([UUID], "3+", nullable="3+", default=None, tag=3)


# Controllers.


class ControllerEndpoint(Struct):
    name: str = F(STRING)
    host: str = F(STRING)
    port: int = F(UINT16)
    security_protocol: int = F(INT16)


class ControllerFeature(Struct):
    name: str = F(STRING)
    min_supported_version: int = F(INT16)
    max_supported_version: int = F(INT16)


class RegisterControllerRecord(MetadataRecord, api_key=27, versions="0"):
    """A node of Kafka's quorum of controllers came up."""

    controller_id: int = F(INT32)
    incarnation_id: bytes = F(UUID)
    zk_migration_ready: bool = F(BOOL)
    end_points: list[ControllerEndpoint] = F([ControllerEndpoint])
    features: list[ControllerFeature] = F([ControllerFeature])


# Topics and partitions.


class TopicRecord(MetadataRecord, api_key=2, versions="0"):
    """A new topic; its settings and partitions follow."""

    name: str = F(STRING)
    topic_id: bytes = F(UUID)


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0"):
    """The topic is deleted, with all its partitions and settings."""

    topic_id: bytes = F(UUID)


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2"):
    """A new partition. leader_recovery_state: 1 after an unclean election until the leader says it has recovered."""

    partition_id: int = F(INT32, default=-1)
    topic_id: bytes = F(UUID)
    replicas: list[int] = F([INT32])
    isr: list[int] = F([INT32])
    removing_replicas: list[int] = F([INT32])
    adding_replicas: list[int] = F([INT32])
    leader: int = F(INT32, default=-1)
    leader_recovery_state: int = F(INT8, tag=0)
    leader_epoch: int = F(INT32, default=-1)
    partition_epoch: int = F(INT32, default=-1)
    directories: list[bytes] = F([UUID], "1+")
    eligible_leader_replicas: list[int] | None = F([INT32], "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = F([INT32], "2+", nullable="2+", default=None, tag=2)


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2"):
    """What changed of a partition. Any leader here, the old one too, begins a new leader epoch; any record a new partition epoch."""

    partition_id: int = F(INT32, default=-1)
    topic_id: bytes = F(UUID)
    isr: list[int] | None = F([INT32], nullable="0+", default=None, tag=0)
    leader: int = F(INT32, default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = F([INT32], nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = F([INT32], nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = F([INT32], nullable="0+", default=None, tag=4)
    leader_recovery_state: int = F(INT8, default=-1, tag=5)
    directories: list[bytes] | None = F([UUID], "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = F([INT32], "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = F([INT32], "2+", nullable="2+", default=None, tag=7)


class ClearElrRecord(MetadataRecord, api_key=28, versions="0"):
    """Forgets the eligible leader replicas of a topic, or of all with an empty name."""

    topic_name: str = F(STRING)


# Settings, features, ids.


class ConfigRecord(MetadataRecord, api_key=4, versions="0"):
    """One setting of a resource (type: 2 topic, 4 broker, 16 client metrics, 32 group); a null value takes it away."""

    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    name: str = F(STRING)
    value: str | None = F(STRING, nullable="0+")


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0"):
    """The level of a feature the whole cluster uses; 0 takes it away."""

    name: str = F(STRING)
    feature_level: int = F(INT16)


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0"):
    """A block of producer ids went to a broker; the next block starts at next_producer_id."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64, default=-1)
    next_producer_id: int = F(INT64)


class NoOpRecord(MetadataRecord, api_key=20, versions="0"):
    """Shows that the controller lives."""


class ZkMigrationStateRecord(MetadataRecord, api_key=21, versions="0"):
    """How far a cluster of long ago was on its way from ZooKeeper; 3 when it had arrived."""

    zk_migration_state: int = F(INT8)


# Changes too large for one batch (KIP-868): what stands between a begin and an end counts at the end, or not at all.


class BeginTransactionRecord(MetadataRecord, api_key=23, versions="0"):
    name: str | None = F(STRING, nullable="0+", default=None, tag=0)


class EndTransactionRecord(MetadataRecord, api_key=24, versions="0"):
    """Everything since the begin counts."""


class AbortTransactionRecord(MetadataRecord, api_key=25, versions="0"):
    """Nothing since the begin counts."""

    reason: str | None = F(STRING, nullable="0+", default=None, tag=0)


# Quotas and access.


class ClientQuotaEntity(Struct):
    """entity_name: None for the default of its type."""

    entity_type: str = F(STRING)
    entity_name: str | None = F(STRING, nullable="0+")


class ClientQuotaRecord(MetadataRecord, api_key=14, versions="0"):
    entity: list[ClientQuotaEntity] = F([ClientQuotaEntity])
    key: str = F(STRING)
    value: float = F(FLOAT64)
    remove: bool = F(BOOL)


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions="0"):
    id: bytes = F(UUID)
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    pattern_type: int = F(INT8)
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions="0"):
    id: bytes = F(UUID)


class DelegationTokenRecord(MetadataRecord, api_key=10, versions="0"):
    """owner, requester, renewers: principals as "User:alice". The secret is no part of it."""

    owner: str = F(STRING)
    requester: str = F(STRING)
    renewers: list[str] = F([STRING])
    issue_timestamp: int = F(INT64)
    max_timestamp: int = F(INT64)
    expiration_timestamp: int = F(INT64)
    token_id: str = F(STRING)


class RemoveDelegationTokenRecord(MetadataRecord, api_key=26, versions="0"):
    token_id: str = F(STRING)


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions="0"):
    name: str = F(STRING)
    mechanism: int = F(INT8)
    salt: bytes = F(BYTES)
    stored_key: bytes = F(BYTES)
    server_key: bytes = F(BYTES)
    iterations: int = F(INT32)


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions="0"):
    name: str = F(STRING)
    mechanism: int = F(INT8)


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The value of a record of the metadata log.

    Args:
        record: the record.
        version: of its message; the newest if left out.

    Raises:
        UsageError: a value does not fit the version.
    """
    version = record.MAX_VERSION if version is None else version
    head = b"\x01" + encode_unsigned_varint(record.API_KEY) + encode_unsigned_varint(version)
    return b"".join([head, *record.encode(version)])


def decode_record(value: Buffer) -> MetadataRecord:
    """Reads the value of a record of the metadata log.

    Raises:
        CorruptDataError: the bytes are no such record.
        UnsupportedVersion: a newer frame, or a record this table lacks: ignoring it would give a wrong picture of the cluster.

    Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.
    """
    frame_version, position = decode_unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise UnsupportedVersion(f"metadata record: frame version {frame_version}, known is {FRAME_VERSION}")
    api_key, position = decode_unsigned_varint(value, position)
    version, position = decode_unsigned_varint(value, position)
    kind = MetadataRecord.RECORDS.get(api_key)
    if kind is None:
        raise UnsupportedVersion(f"metadata record: kind {api_key} is unknown")
    if not kind.MIN_VERSION <= version <= kind.MAX_VERSION:
        raise UnsupportedVersion(f"{kind.__name__}: version {version}, known are {kind.MIN_VERSION}-{kind.MAX_VERSION}")
    return kind.decode(version, value, position)
