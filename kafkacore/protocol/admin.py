"""Administration: SASL, topics, configs, the cluster, replicas and ACLs.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, F, Request, Response, Struct


class SaslHandshakeRequest(Request, api_key=17, versions="0-1"):
    """Chooses a mechanism; after version 0 the tokens follow without frames of Kafka's, after version 1 in SaslAuthenticate."""

    mechanism: str = F(STRING)


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: int = F(INT16)
    mechanisms: list[str] = F([STRING])


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+"):
    """One token of the mechanism's dialogue."""

    auth_bytes: bytes = F(BYTES)


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    """session_lifetime_ms: time until the client must authenticate again, 0 for never (KIP-368)."""

    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    auth_bytes: bytes = F(BYTES)
    session_lifetime_ms: int = F(INT64, "1+", ignorable=True)


# Topics and partitions.


class CreatableReplicaAssignment(Struct):
    partition_index: int = F(INT32)
    broker_ids: list[int] = F([INT32])


class CreatableTopicConfig(Struct):
    name: str = F(STRING)
    value: str | None = F(STRING, nullable="0+")


class CreatableTopic(Struct):
    """num_partitions and replication_factor are -1 for the broker's default or when assignments are given."""

    name: str = F(STRING)
    num_partitions: int = F(INT32)
    replication_factor: int = F(INT16)
    assignments: list[CreatableReplicaAssignment] = F([CreatableReplicaAssignment])
    configs: list[CreatableTopicConfig] = F([CreatableTopicConfig])


class CreateTopicsRequest(Request, api_key=19, versions="0-7", flexible="5+", dropped="0-1"):
    topics: list[CreatableTopic] = F([CreatableTopic])
    timeout_ms: int = F(INT32, default=60000)
    validate_only: bool = F(BOOL, "1+")


class CreatableTopicConfigs(Struct):
    name: str = F(STRING, "5+")
    value: str | None = F(STRING, "5+", nullable="5+")
    read_only: bool = F(BOOL, "5+")
    config_source: int = F(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = F(BOOL, "5+")


class CreatableTopicResult(Struct):
    """topic_config_error_code tells why configs is None."""

    name: str = F(STRING)
    topic_id: bytes = F(UUID, "7+", ignorable=True)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = F(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = F(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = F(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = F([CreatableTopicConfigs], "5+", nullable="5+", ignorable=True)


class CreateTopicsResponse(Response, api_key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = F(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = F([CreatableTopicResult])


class DeleteTopicState(Struct):
    """Named, or by id with a None name."""

    name: str | None = F(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = F(UUID, "6+")


class DeleteTopicsRequest(Request, api_key=20, versions="0-6", flexible="4+", dropped="0"):
    """topic_names up to version 5, topics from version 6 on."""

    topics: list[DeleteTopicState] = F([DeleteTopicState], "6+")
    topic_names: list[str] = F([STRING], "0-5", ignorable=True)
    timeout_ms: int = F(INT32)


class DeletableTopicResult(Struct):
    name: str | None = F(STRING, nullable="6+")
    topic_id: bytes = F(UUID, "6+", ignorable=True)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, api_key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = F([DeletableTopicResult])


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = F([INT32])


class CreatePartitionsTopic(Struct):
    """count is the new total; assignments, when given, holds one entry per added partition."""

    name: str = F(STRING)
    count: int = F(INT32)
    assignments: list[CreatePartitionsAssignment] | None = F([CreatePartitionsAssignment], nullable="0+")


class CreatePartitionsRequest(Request, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = F([CreatePartitionsTopic])
    timeout_ms: int = F(INT32)
    validate_only: bool = F(BOOL)


class CreatePartitionsTopicResult(Struct):
    name: str = F(STRING)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", default=None)


class CreatePartitionsResponse(Response, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    results: list[CreatePartitionsTopicResult] = F([CreatePartitionsTopicResult])


class DeleteRecordsPartition(Struct):
    """Records before offset go away; -1 means the high watermark."""

    partition_index: int = F(INT32)
    offset: int = F(INT64)


class DeleteRecordsTopic(Struct):
    name: str = F(STRING)
    partitions: list[DeleteRecordsPartition] = F([DeleteRecordsPartition])


class DeleteRecordsRequest(Request, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = F([DeleteRecordsTopic])
    timeout_ms: int = F(INT32)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = F(INT32)
    low_watermark: int = F(INT64)
    error_code: int = F(INT16)


class DeleteRecordsTopicResult(Struct):
    name: str = F(STRING)
    partitions: list[DeleteRecordsPartitionResult] = F([DeleteRecordsPartitionResult])


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    topics: list[DeleteRecordsTopicResult] = F([DeleteRecordsTopicResult])


class DescribeTopicPartitionsTopicRequest(Struct):
    name: str = F(STRING)


class Cursor(Struct):
    """The first partition of the next page."""

    topic_name: str = F(STRING)
    partition_index: int = F(INT32)


class DescribeTopicPartitionsRequest(Request, api_key=75, versions="0", flexible="0+"):
    """Pages through the partitions: the answer's next_cursor is the next request's cursor."""

    topics: list[DescribeTopicPartitionsTopicRequest] = F([DescribeTopicPartitionsTopicRequest])
    response_partition_limit: int = F(INT32, default=2000)
    cursor: Cursor | None = F(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = F(INT16)
    partition_index: int = F(INT32)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = F([INT32])
    isr_nodes: list[int] = F([INT32])
    eligible_leader_replicas: list[int] | None = F([INT32], nullable="0+", default=None)
    last_known_elr: list[int] | None = F([INT32], nullable="0+", default=None)
    offline_replicas: list[int] = F([INT32], ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = F(INT16)
    name: str | None = F(STRING, nullable="0+")
    topic_id: bytes = F(UUID, ignorable=True)
    is_internal: bool = F(BOOL, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = F([DescribeTopicPartitionsResponsePartition])
    topic_authorized_operations: int = F(INT32, default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = F([DescribeTopicPartitionsResponseTopic])
    next_cursor: Cursor | None = F(Cursor, nullable="0+", default=None)


# Configs.


class DescribeConfigsResource(Struct):
    """resource_type: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. configuration_keys: None for all."""

    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configuration_keys: list[str] | None = F([STRING], nullable="0+")


class DescribeConfigsRequest(Request, api_key=32, versions="0-4", flexible="4+", dropped="0"):
    resources: list[DescribeConfigsResource] = F([DescribeConfigsResource])
    include_synonyms: bool = F(BOOL, "1+")
    include_documentation: bool = F(BOOL, "3+")


class DescribeConfigsSynonym(Struct):
    name: str = F(STRING, "1+")
    value: str | None = F(STRING, "1+", nullable="0+")
    source: int = F(INT8, "1+")


class DescribeConfigsResourceResult(Struct):
    """config_source: 1 topic, 2 dynamic broker, 3 dynamic default broker, 4 static broker, 5 default. Sensitive values are None."""

    name: str = F(STRING)
    value: str | None = F(STRING, nullable="0+")
    read_only: bool = F(BOOL)
    config_source: int = F(INT8, "1+", default=-1, ignorable=True)
    is_default: bool = F(BOOL, "0")
    is_sensitive: bool = F(BOOL)
    synonyms: list[DescribeConfigsSynonym] = F([DescribeConfigsSynonym], "1+", ignorable=True)
    config_type: int = F(INT8, "3+", ignorable=True)
    documentation: str | None = F(STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[DescribeConfigsResourceResult] = F([DescribeConfigsResourceResult])


class DescribeConfigsResponse(Response, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = F(INT32)
    results: list[DescribeConfigsResult] = F([DescribeConfigsResult])


class AlterableConfig(Struct):
    name: str = F(STRING)
    value: str | None = F(STRING, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[AlterableConfig] = F([AlterableConfig])


class AlterConfigsRequest(Request, api_key=33, versions="0-2", flexible="2+"):
    """Replaces the whole set of a resource's configs; IncrementalAlterConfigs changes some."""

    resources: list[AlterConfigsResource] = F([AlterConfigsResource])
    validate_only: bool = F(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)


class AlterConfigsResponse(Response, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    responses: list[AlterConfigsResourceResponse] = F([AlterConfigsResourceResponse])


class IncrementalAlterableConfig(Struct):
    """config_operation: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = F(STRING)
    config_operation: int = F(INT8)
    value: str | None = F(STRING, nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    configs: list[IncrementalAlterableConfig] = F([IncrementalAlterableConfig])


class IncrementalAlterConfigsRequest(Request, api_key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = F([IncrementalAlterConfigsResource])
    validate_only: bool = F(BOOL)


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = F(INT32)
    responses: list[IncrementalAlterConfigsResourceResponse] = F([IncrementalAlterConfigsResourceResponse])


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+"):
    """Version 0 lists client metrics resources only."""

    resource_types: list[int] = F([INT8], "1+")


class ConfigResource(Struct):
    resource_name: str = F(STRING)
    resource_type: int = F(INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    config_resources: list[ConfigResource] = F([ConfigResource])


# The cluster and its replicas.


class DescribeClusterRequest(Request, api_key=60, versions="0-2", flexible="0+"):
    """endpoint_type: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = F(BOOL)
    endpoint_type: int = F(INT8, "1+", default=1)
    include_fenced_brokers: bool = F(BOOL, "2+")


class DescribeClusterBroker(Struct):
    broker_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, nullable="0+", default=None)
    is_fenced: bool = F(BOOL, "2+")


class DescribeClusterResponse(Response, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", default=None)
    endpoint_type: int = F(INT8, "1+", default=1)
    cluster_id: str = F(STRING)
    controller_id: int = F(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = F([DescribeClusterBroker])
    cluster_authorized_operations: int = F(INT32, default=-2147483648)


class TopicPartitions(Struct):
    topic: str = F(STRING)
    partitions: list[int] = F([INT32])


class ElectLeadersRequest(Request, api_key=43, versions="0-2", flexible="2+"):
    """election_type: 0 preferred replica, 1 unclean. topic_partitions: None for all."""

    election_type: int = F(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = F([TopicPartitions], nullable="0+")
    timeout_ms: int = F(INT32, default=60000)


class PartitionResult(Struct):
    partition_id: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = F(STRING)
    partition_result: list[PartitionResult] = F([PartitionResult])


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = F([ReplicaElectionResult])


class ReassignablePartition(Struct):
    """replicas: None cancels a reassignment in progress."""

    partition_index: int = F(INT32)
    replicas: list[int] | None = F([INT32], nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = F(STRING)
    partitions: list[ReassignablePartition] = F([ReassignablePartition])


class AlterPartitionReassignmentsRequest(Request, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = F(INT32, default=60000)
    allow_replication_factor_change: bool = F(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = F([ReassignableTopic])


class ReassignablePartitionResponse(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = F(STRING)
    partitions: list[ReassignablePartitionResponse] = F([ReassignablePartitionResponse])


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    allow_replication_factor_change: bool = F(BOOL, "1+", default=True, ignorable=True)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    responses: list[ReassignableTopicResponse] = F([ReassignableTopicResponse])


class ListPartitionReassignmentsTopics(Struct):
    name: str = F(STRING)
    partition_indexes: list[int] = F([INT32])


class ListPartitionReassignmentsRequest(Request, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = F(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = F([ListPartitionReassignmentsTopics], nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int = F(INT32)
    replicas: list[int] = F([INT32])
    adding_replicas: list[int] = F([INT32])
    removing_replicas: list[int] = F([INT32])


class OngoingTopicReassignment(Struct):
    name: str = F(STRING)
    partitions: list[OngoingPartitionReassignment] = F([OngoingPartitionReassignment])


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    topics: list[OngoingTopicReassignment] = F([OngoingTopicReassignment])


class DescribableLogDirTopic(Struct):
    topic: str = F(STRING)
    partitions: list[int] = F([INT32])


class DescribeLogDirsRequest(Request, api_key=35, versions="0-5", flexible="2+", dropped="0"):
    """topics: None for all."""

    topics: list[DescribableLogDirTopic] | None = F([DescribableLogDirTopic], nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = F(INT32)
    partition_size: int = F(INT64)
    offset_lag: int = F(INT64)
    is_future_key: bool = F(BOOL)


class DescribeLogDirsTopic(Struct):
    name: str = F(STRING)
    partitions: list[DescribeLogDirsPartition] = F([DescribeLogDirsPartition])


class DescribeLogDirsResult(Struct):
    error_code: int = F(INT16)
    log_dir: str = F(STRING)
    topics: list[DescribeLogDirsTopic] = F([DescribeLogDirsTopic])
    total_bytes: int = F(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = F(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = F(BOOL, "5+", ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = F([DescribeLogDirsResult])


# ACLs. resource_type: 2 topic, 3 group, 4 cluster, 5 transactional id. permission_type: 2 deny, 3 allow.


class DescribeAclsRequest(Request, api_key=29, versions="0-3", flexible="2+", dropped="0"):
    """Filters: None matches any name; types and operations: 1 matches any. pattern_type_filter: 3 literal, 4 prefixed, 1 any, 2 match."""

    resource_type_filter: int = F(INT8)
    resource_name_filter: str | None = F(STRING, nullable="0+")
    pattern_type_filter: int = F(INT8, "1+", default=3)
    principal_filter: str | None = F(STRING, nullable="0+")
    host_filter: str | None = F(STRING, nullable="0+")
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class AclDescription(Struct):
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DescribeAclsResource(Struct):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    pattern_type: int = F(INT8, "1+", default=3)
    acls: list[AclDescription] = F([AclDescription])


class DescribeAclsResponse(Response, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = F([DescribeAclsResource])


class AclCreation(Struct):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    resource_pattern_type: int = F(INT8, "1+", default=3)
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class CreateAclsRequest(Request, api_key=30, versions="0-3", flexible="2+", dropped="0"):
    creations: list[AclCreation] = F([AclCreation])


class AclCreationResult(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class CreateAclsResponse(Response, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    results: list[AclCreationResult] = F([AclCreationResult])


class DeleteAclsFilter(Struct):
    resource_type_filter: int = F(INT8)
    resource_name_filter: str | None = F(STRING, nullable="0+")
    pattern_type_filter: int = F(INT8, "1+", default=3)
    principal_filter: str | None = F(STRING, nullable="0+")
    host_filter: str | None = F(STRING, nullable="0+")
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DeleteAclsRequest(Request, api_key=31, versions="0-3", flexible="2+", dropped="0"):
    filters: list[DeleteAclsFilter] = F([DeleteAclsFilter])


class DeleteAclsMatchingAcl(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    pattern_type: int = F(INT8, "1+", default=3)
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DeleteAclsFilterResult(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = F([DeleteAclsMatchingAcl])


class DeleteAclsResponse(Response, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    filter_results: list[DeleteAclsFilterResult] = F([DeleteAclsFilterResult])
