"""Operating a cluster: client quotas, SCRAM credentials, the quorum, features, log directories of replicas.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, F, Request, Response, Struct

# Replicas between the directories of one broker.


class AlterReplicaLogDirTopic(Struct):
    name: str = F(STRING)
    partitions: list[int] = F([INT32])


class AlterReplicaLogDir(Struct):
    path: str = F(STRING)
    topics: list[AlterReplicaLogDirTopic] = F([AlterReplicaLogDirTopic])


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="0-2", flexible="2+", dropped="0"):
    """Moves partitions of this broker into other directories of it."""

    dirs: list[AlterReplicaLogDir] = F([AlterReplicaLogDir])


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = F(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = F([AlterReplicaLogDirPartitionResult])


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    results: list[AlterReplicaLogDirTopicResult] = F([AlterReplicaLogDirTopicResult])


# Client quotas (KIP-546). An entity is a user, a client id, both, or an ip; a None name is the default of that type.


class ClientQuotaFilterComponent(Struct):
    """match_type: 0 exact name, 1 the default, 2 any specified name."""

    entity_type: str = F(STRING)
    match_type: int = F(INT8)
    match: str | None = F(STRING, nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+"):
    """strict: leave out entities that have types no component names."""

    components: list[ClientQuotaFilterComponent] = F([ClientQuotaFilterComponent])
    strict: bool = F(BOOL)


class ClientQuotaEntityPart(Struct):
    entity_type: str = F(STRING)
    entity_name: str | None = F(STRING, nullable="0+")


class ClientQuotaValue(Struct):
    key: str = F(STRING)
    value: float = F(FLOAT64)


class DescribedClientQuota(Struct):
    entity: list[ClientQuotaEntityPart] = F([ClientQuotaEntityPart])
    values: list[ClientQuotaValue] = F([ClientQuotaValue])


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    entries: list[DescribedClientQuota] | None = F([DescribedClientQuota], nullable="0+")


class ClientQuotaOp(Struct):
    key: str = F(STRING)
    value: float = F(FLOAT64)
    remove: bool = F(BOOL)


class ClientQuotaAlteration(Struct):
    entity: list[ClientQuotaEntityPart] = F([ClientQuotaEntityPart])
    ops: list[ClientQuotaOp] = F([ClientQuotaOp])


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+"):
    entries: list[ClientQuotaAlteration] = F([ClientQuotaAlteration])
    validate_only: bool = F(BOOL)


class AlteredClientQuota(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    entity: list[ClientQuotaEntityPart] = F([ClientQuotaEntityPart])


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = F(INT32)
    entries: list[AlteredClientQuota] = F([AlteredClientQuota])


# SCRAM credentials (KIP-554). mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.


class ScramUserName(Struct):
    name: str = F(STRING)


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+"):
    """users: None or empty for all."""

    users: list[ScramUserName] | None = F([ScramUserName], nullable="0+")


class ScramCredentialInfo(Struct):
    mechanism: int = F(INT8)
    iterations: int = F(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    credential_infos: list[ScramCredentialInfo] = F([ScramCredentialInfo])


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = F([DescribeUserScramCredentialsResult])


class ScramCredentialDeletion(Struct):
    name: str = F(STRING)
    mechanism: int = F(INT8)


class ScramCredentialUpsertion(Struct):
    name: str = F(STRING)
    mechanism: int = F(INT8)
    iterations: int = F(INT32)
    salt: bytes = F(BYTES)
    salted_password: bytes = F(BYTES)


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = F([ScramCredentialDeletion])
    upsertions: list[ScramCredentialUpsertion] = F([ScramCredentialUpsertion])


class AlterUserScramCredentialsResult(Struct):
    user: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    results: list[AlterUserScramCredentialsResult] = F([AlterUserScramCredentialsResult])


# The metadata quorum (KIP-595).


class QuorumPartition(Struct):
    partition_index: int = F(INT32)


class QuorumTopic(Struct):
    topic_name: str = F(STRING)
    partitions: list[QuorumPartition] = F([QuorumPartition])


class DescribeQuorumRequest(Request, api_key=55, versions="0-2", flexible="0+"):
    """Kafka knows one such partition, __cluster_metadata-0."""

    topics: list[QuorumTopic] = F([QuorumTopic])


class QuorumReplicaState(Struct):
    """Times are -1 where they are unknown."""

    replica_id: int = F(INT32)
    replica_directory_id: bytes = F(UUID, "2+")
    log_end_offset: int = F(INT64)
    last_fetch_timestamp: int = F(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = F(INT64, "1+", default=-1, ignorable=True)


class QuorumPartitionData(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32)
    high_watermark: int = F(INT64)
    current_voters: list[QuorumReplicaState] = F([QuorumReplicaState])
    observers: list[QuorumReplicaState] = F([QuorumReplicaState])


class QuorumTopicData(Struct):
    topic_name: str = F(STRING)
    partitions: list[QuorumPartitionData] = F([QuorumPartitionData])


class QuorumListener(Struct):
    name: str = F(STRING, "2+")
    host: str = F(STRING, "2+")
    port: int = F(UINT16, "2+")


class QuorumNode(Struct):
    node_id: int = F(INT32, "2+")
    listeners: list[QuorumListener] = F([QuorumListener], "2+")


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopicData] = F([QuorumTopicData])
    nodes: list[QuorumNode] = F([QuorumNode], "2+")


# Features (KIP-584).


class FeatureUpdateKey(Struct):
    """max_version_level: 0 takes the feature away. upgrade_type: 1 upgrade, 2 downgrade that loses nothing, 3 any downgrade."""

    feature: str = F(STRING)
    max_version_level: int = F(INT16)
    allow_downgrade: bool = F(BOOL, "0")
    upgrade_type: int = F(INT8, "1+", default=1)


class UpdateFeaturesRequest(Request, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = F(INT32, default=60000)
    feature_updates: list[FeatureUpdateKey] = F([FeatureUpdateKey])
    validate_only: bool = F(BOOL, "1+")


class UpdatableFeatureResult(Struct):
    feature: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    """From version 2 on one outcome for all updates (KIP-1022)."""

    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = F([UpdatableFeatureResult], "0-1", ignorable=True)
