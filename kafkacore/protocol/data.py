"""The data path: Produce, Fetch, ListOffsets, Metadata, ApiVersions, OffsetForLeaderEpoch.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, F, Records, Request, Response, Struct

# Leaders and their addresses, sent with an error in Produce and Fetch responses.


class LeaderIdAndEpoch(Struct):
    """The current leader as the broker knows it (KIP-951); -1 when it does not say."""

    leader_id: int = F(INT32, default=-1)
    leader_epoch: int = F(INT32, default=-1)


class NodeEndpoint(Struct):
    """The address of a leader that LeaderIdAndEpoch names (KIP-951)."""

    node_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, nullable="0+", default=None)


class PartitionProduceData(Struct):
    """Record batches for one partition; versions 0-2 carry message sets."""

    index: int = F(INT32)
    records: Records | None = F(RECORDS, nullable="0+")


class TopicProduceData(Struct):
    """Named by topic up to version 12, by topic id from 13 on."""

    name: str = F(STRING, "0-12", ignorable=True)
    topic_id: bytes = F(UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = F([PartitionProduceData])


class ProduceRequest(Request, api_key=0, versions="0-13", flexible="9+", dropped="0-2"):
    """Appends record batches. Up to version 1 message format 0, in version 2 format 1, then batches (format 2)."""

    transactional_id: str | None = F(STRING, "3+", nullable="3+", default=None)
    acks: int = F(INT16)
    timeout_ms: int = F(INT32)
    topic_data: list[TopicProduceData] = F([TopicProduceData])


class BatchIndexAndErrorMessage(Struct):
    """A record that made the broker refuse its batch."""

    batch_index: int = F(INT32, "8+")
    batch_index_error_message: str | None = F(STRING, "8+", nullable="8+", default=None)


class PartitionProduceResponse(Struct):
    """Where the batch went, or why it was refused. log_append_time_ms is -1 when the topic keeps the producer's timestamps."""

    index: int = F(INT32)
    error_code: int = F(INT16)
    base_offset: int = F(INT64)
    log_append_time_ms: int = F(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = F(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = F([BatchIndexAndErrorMessage], "8+", ignorable=True)
    error_message: str | None = F(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = F(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = F(STRING, "0-12", ignorable=True)
    topic_id: bytes = F(UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = F([PartitionProduceResponse])


class ProduceResponse(Response, api_key=0, versions="0-13", flexible="9+"):
    """Not sent at all when the request asked for acks=0."""

    responses: list[TopicProduceResponse] = F([TopicProduceResponse])
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = F([NodeEndpoint], "10+", tag=0)


class ReplicaState(Struct):
    """Who fetches, when that is a broker; consumers leave the defaults."""

    replica_id: int = F(INT32, "15+", default=-1)
    replica_epoch: int = F(INT64, "15+", default=-1)


class FetchPartition(Struct):
    """Where to read on. The current leader epoch lets the broker fence a client with old metadata (KIP-320)."""

    partition: int = F(INT32)
    current_leader_epoch: int = F(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = F(INT64)
    last_fetched_epoch: int = F(INT32, "12+", default=-1)
    log_start_offset: int = F(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = F(INT32)
    replica_directory_id: bytes = F(UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = F(INT64, "18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = F(STRING, "0-12", ignorable=True)
    topic_id: bytes = F(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = F([FetchPartition])


class ForgottenTopic(Struct):
    """Partitions to take out of the fetch session (KIP-227)."""

    topic: str = F(STRING, "7-12", ignorable=True)
    topic_id: bytes = F(UUID, "13+", ignorable=True)
    partitions: list[int] = F([INT32], "7+")


class FetchRequest(Request, api_key=1, versions="0-18", flexible="12+", dropped="0-3"):
    """Reads record batches. From version 7 on inside a fetch session: session id 0 with epoch 0 opens one, epoch -1 goes without."""

    cluster_id: str | None = F(STRING, "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = F(INT32, "0-14", default=-1)
    replica_state: ReplicaState = F(ReplicaState, "15+", tag=1)
    max_wait_ms: int = F(INT32)
    min_bytes: int = F(INT32)
    max_bytes: int = F(INT32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = F(INT8, "4+", ignorable=True)
    session_id: int = F(INT32, "7+", ignorable=True)
    session_epoch: int = F(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = F([FetchTopic])
    forgotten_topics_data: list[ForgottenTopic] = F([ForgottenTopic], "7+")
    rack_id: str = F(STRING, "11+", ignorable=True)


class FetchEpochEndOffset(Struct):
    """Where the log of the fetcher diverges from the leader's."""

    epoch: int = F(INT32, "12+", default=-1)
    end_offset: int = F(INT64, "12+", default=-1)


class SnapshotId(Struct):
    """The snapshot that a Raft follower should load instead; not for consumers."""

    end_offset: int = F(INT64, default=-1)
    epoch: int = F(INT32, default=-1)


class AbortedTransaction(Struct):
    """Records of this producer from first_offset up to its abort marker are to be skipped by read_committed."""

    producer_id: int = F(INT64, "4+")
    first_offset: int = F(INT64, "4+")


class PartitionData(Struct):
    """The records may end in the middle of a batch, which is to be fetched again."""

    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    high_watermark: int = F(INT64)
    last_stable_offset: int = F(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = F(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: FetchEpochEndOffset = F(FetchEpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = F(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = F(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = F([AbortedTransaction], "4+", nullable="4+", ignorable=True)
    preferred_read_replica: int = F(INT32, "11+", default=-1)
    records: Records | None = F(RECORDS, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = F(STRING, "0-12", ignorable=True)
    topic_id: bytes = F(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = F([PartitionData])


class FetchResponse(Response, api_key=1, versions="0-18", flexible="12+"):
    """A session's response leaves out the partitions that have nothing new."""

    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16, "7+", ignorable=True)
    session_id: int = F(INT32, "7+")
    responses: list[FetchableTopicResponse] = F([FetchableTopicResponse])
    node_endpoints: list[NodeEndpoint] = F([NodeEndpoint], "16+", tag=0)


class ListOffsetsPartition(Struct):
    """timestamp: milliseconds, or -1 latest, -2 earliest, -3 max timestamp, -4 earliest local, -5 latest tiered."""

    partition_index: int = F(INT32)
    current_leader_epoch: int = F(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = F(INT64)
    max_num_offsets: int = F(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    name: str = F(STRING)
    partitions: list[ListOffsetsPartition] = F([ListOffsetsPartition])


class ListOffsetsRequest(Request, api_key=2, versions="0-11", flexible="6+", dropped="0"):
    """Looks offsets up by time. replica_id is -1 for consumers."""

    replica_id: int = F(INT32)
    isolation_level: int = F(INT8, "2+")
    topics: list[ListOffsetsTopic] = F([ListOffsetsTopic])
    timeout_ms: int = F(INT32, "10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """Offset and timestamp of the first record at or after the asked time; -1 without such a record."""

    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    old_style_offsets: list[int] = F([INT64], "0")
    timestamp: int = F(INT64, "1+", default=-1)
    offset: int = F(INT64, "1+", default=-1)
    leader_epoch: int = F(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = F(STRING)
    partitions: list[ListOffsetsPartitionResponse] = F([ListOffsetsPartitionResponse])


class ListOffsetsResponse(Response, api_key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = F(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = F([ListOffsetsTopicResponse])


class MetadataRequestTopic(Struct):
    """By name, or from version 12 on by id with a null name."""

    topic_id: bytes = F(UUID, "10+", ignorable=True)
    name: str | None = F(STRING, nullable="10+")


class MetadataRequest(Request, api_key=3, versions="0-13", flexible="9+"):
    """Topics: all of them with null (version 0: with an empty list), none with an empty list."""

    topics: list[MetadataRequestTopic] | None = F([MetadataRequestTopic], nullable="1+")
    allow_auto_topic_creation: bool = F(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = F(BOOL, "8-10")
    include_topic_authorized_operations: bool = F(BOOL, "8+")


class MetadataResponseBroker(Struct):
    node_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(INT32)
    rack: str | None = F(STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """leader_id is -1 during an election."""

    error_code: int = F(INT16)
    partition_index: int = F(INT32)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = F([INT32])
    isr_nodes: list[int] = F([INT32])
    offline_replicas: list[int] = F([INT32], "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """The name is null when an unknown topic id was asked for."""

    error_code: int = F(INT16)
    name: str | None = F(STRING, nullable="12+")
    topic_id: bytes = F(UUID, "10+", ignorable=True)
    is_internal: bool = F(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = F([MetadataResponsePartition])
    topic_authorized_operations: int = F(INT32, "8+", default=-2147483648)


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = F(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = F([MetadataResponseBroker])
    cluster_id: str | None = F(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = F(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = F([MetadataResponseTopic])
    cluster_authorized_operations: int = F(INT32, "8-10", default=-2147483648)
    error_code: int = F(INT16, "13+", ignorable=True)


class ApiVersionsRequest(Request, api_key=18, versions="0-4", flexible="3+"):
    """The first request on a connection: which versions the broker speaks, and who asks (KIP-511)."""

    client_software_name: str = F(STRING, "3+", ignorable=True)
    client_software_version: str = F(STRING, "3+", ignorable=True)


class ApiVersion(Struct):
    """The versions of one API that the broker serves."""

    api_key: int = F(INT16)
    min_version: int = F(INT16)
    max_version: int = F(INT16)


class SupportedFeatureKey(Struct):
    """A feature and the levels that the broker could run."""

    name: str = F(STRING, "3+")
    min_version: int = F(INT16, "3+")
    max_version: int = F(INT16, "3+")


class FinalizedFeatureKey(Struct):
    """A feature and the level that the cluster runs."""

    name: str = F(STRING, "3+")
    max_version_level: int = F(INT16, "3+")
    min_version_level: int = F(INT16, "3+")


class ApiVersionsResponse(Response, api_key=18, versions="0-4", flexible="3+"):
    """A broker that does not know the asked version answers in version 0 with error 35 and its own range."""

    error_code: int = F(INT16)
    api_keys: list[ApiVersion] = F([ApiVersion])
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = F([SupportedFeatureKey], "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = F(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = F([FinalizedFeatureKey], "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = F(BOOL, "3+", tag=3, ignorable=True)


class OffsetForLeaderPartition(Struct):
    partition: int = F(INT32)
    current_leader_epoch: int = F(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = F(INT32)


class OffsetForLeaderTopic(Struct):
    topic: str = F(STRING)
    partitions: list[OffsetForLeaderPartition] = F([OffsetForLeaderPartition])


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="0-4", flexible="4+", dropped="0-1"):
    """Asks where a leader epoch ended, to find a truncated log (KIP-320). replica_id -1 means a consumer."""

    replica_id: int = F(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = F([OffsetForLeaderTopic])


class EpochEndOffset(Struct):
    """End of the largest epoch that is not above the asked one; -1 when unknown."""

    error_code: int = F(INT16)
    partition: int = F(INT32)
    leader_epoch: int = F(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = F(INT64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = F(STRING)
    partitions: list[EpochEndOffset] = F([EpochEndOffset])


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = F(INT32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = F([OffsetForLeaderTopicResult])
