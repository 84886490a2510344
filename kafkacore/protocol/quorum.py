"""Between brokers and the controller: registration, heartbeats, ISR changes, producer ids, snapshots of the metadata log.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    F,
    Records,
    Request,
    Response,
    Struct,
)

# Partitions.


class IsrBrokerState(Struct):
    """broker_epoch: -1 when the leader does not know it, then it is not compared."""

    broker_id: int = F(INT32, "3+")
    broker_epoch: int = F(INT64, "3+", default=-1)


class AlterPartitionRequestPartition(Struct):
    """What the leader wants the ISR to be. partition_epoch is the one it knows; another one means that it decided on old facts."""

    partition_index: int = F(INT32)
    leader_epoch: int = F(INT32)
    new_isr: list[int] = F([INT32], "0-2")
    new_isr_with_epochs: list[IsrBrokerState] = F([IsrBrokerState], "3+")
    leader_recovery_state: int = F(INT8, "1+")
    partition_epoch: int = F(INT32)


class AlterPartitionRequestTopic(Struct):
    topic_id: bytes = F(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = F([AlterPartitionRequestPartition])


class AlterPartitionRequest(Request, api_key=56, versions="2-3", flexible="0+"):
    """A leader shrinks or expands the ISR of partitions it leads."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64, default=-1)
    topics: list[AlterPartitionRequestTopic] = F([AlterPartitionRequestTopic])


class AlterPartitionResponsePartition(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32)
    isr: list[int] = F([INT32])
    leader_recovery_state: int = F(INT8, "1+", ignorable=True)
    partition_epoch: int = F(INT32)


class AlterPartitionResponseTopic(Struct):
    topic_id: bytes = F(UUID, "2+", ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = F([AlterPartitionResponsePartition])


class AlterPartitionResponse(Response, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    topics: list[AlterPartitionResponseTopic] = F([AlterPartitionResponseTopic])


# What clients ask brokers for and the controller decides.


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+"):
    """A client's request, header included, as the broker got it; who the client is (KIP-590); its address, 4 or 16 bytes."""

    request_data: bytes = F(BYTES)
    request_principal: bytes | None = F(BYTES, nullable="0+")
    client_host_address: bytes = F(BYTES)


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    """The answer to the client's request, header included. error_code is of the envelope alone."""

    response_data: bytes | None = F(BYTES, nullable="0+", default=None)
    error_code: int = F(INT16)


# Snapshots of the metadata log.


class FetchedSnapshotId(Struct):
    """The log up to an offset, written in an epoch."""

    end_offset: int = F(INT64)
    epoch: int = F(INT32)


class SnapshotLeader(Struct):
    leader_id: int = F(INT32)
    leader_epoch: int = F(INT32)


class PartitionSnapshotWanted(Struct):
    """position: in bytes, from the beginning of the snapshot's file."""

    partition: int = F(INT32)
    current_leader_epoch: int = F(INT32)
    snapshot_id: FetchedSnapshotId = F(FetchedSnapshotId)
    position: int = F(INT64)
    replica_directory_id: bytes = F(UUID, "1+", tag=0, ignorable=True)


class TopicSnapshotWanted(Struct):
    name: str = F(STRING)
    partitions: list[PartitionSnapshotWanted] = F([PartitionSnapshotWanted])


class FetchSnapshotRequest(Request, api_key=59, versions="0-1", flexible="0+"):
    """A follower whose offset is not in the log any more reads the snapshot that a Fetch named to it, piece by piece."""

    cluster_id: str | None = F(STRING, nullable="0+", default=None, tag=0)
    replica_id: int = F(INT32, default=-1)
    max_bytes: int = F(INT32, default=2**31 - 1)
    topics: list[TopicSnapshotWanted] = F([TopicSnapshotWanted])


class PartitionSnapshot(Struct):
    """unaligned_records: bytes of the file from a position on; batches may be cut anywhere."""

    index: int = F(INT32)
    error_code: int = F(INT16)
    snapshot_id: FetchedSnapshotId = F(FetchedSnapshotId)
    current_leader: SnapshotLeader = F(SnapshotLeader, tag=0)
    size: int = F(INT64)
    position: int = F(INT64)
    unaligned_records: Records = F(RECORDS)


class TopicSnapshot(Struct):
    name: str = F(STRING)
    partitions: list[PartitionSnapshot] = F([PartitionSnapshot])


class SnapshotNodeEndpoint(Struct):
    node_id: int = F(INT32)
    host: str = F(STRING)
    port: int = F(UINT16)


class FetchSnapshotResponse(Response, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = F(INT32, ignorable=True)
    error_code: int = F(INT16)
    topics: list[TopicSnapshot] = F([TopicSnapshot])
    node_endpoints: list[SnapshotNodeEndpoint] = F([SnapshotNodeEndpoint], "1+", tag=0)


# Brokers.


class RegistrationListener(Struct):
    """security_protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str = F(STRING)
    host: str = F(STRING)
    port: int = F(UINT16)
    security_protocol: int = F(INT16)


class RegistrationFeature(Struct):
    name: str = F(STRING)
    min_supported_version: int = F(INT16)
    max_supported_version: int = F(INT16)


class BrokerRegistrationRequest(Request, api_key=62, versions="0-4", flexible="0+"):
    """A broker comes up; it stays fenced until a heartbeat says that it has caught up. incarnation_id is new in every process."""

    broker_id: int = F(INT32)
    cluster_id: str = F(STRING)
    incarnation_id: bytes = F(UUID)
    listeners: list[RegistrationListener] = F([RegistrationListener])
    features: list[RegistrationFeature] = F([RegistrationFeature])
    rack: str | None = F(STRING, nullable="0+")
    is_migrating_zk_broker: bool = F(BOOL, "1+")
    log_dirs: list[bytes] = F([UUID], "2+", ignorable=True)
    previous_broker_epoch: int = F(INT64, "3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    broker_epoch: int = F(INT64, default=-1)


class BrokerHeartbeatRequest(Request, api_key=63, versions="0-2", flexible="0+"):
    """current_metadata_offset: how far the broker has read the metadata log."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64, default=-1)
    current_metadata_offset: int = F(INT64)
    want_fence: bool = F(BOOL)
    want_shut_down: bool = F(BOOL)
    offline_log_dirs: list[bytes] = F([UUID], "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = F([UUID], "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Response, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    is_caught_up: bool = F(BOOL)
    is_fenced: bool = F(BOOL, default=True)
    should_shut_down: bool = F(BOOL)


class UnregisterBrokerRequest(Request, api_key=64, versions="0", flexible="0+"):
    """Forgets a broker that will not come back."""

    broker_id: int = F(INT32)


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+")


class AllocateProducerIdsRequest(Request, api_key=67, versions="0", flexible="0+"):
    """A broker wants a block of producer ids to give to clients."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64, default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    producer_id_start: int = F(INT64)
    producer_id_len: int = F(INT32)


# Log directories (KIP-858).


class AssignedPartition(Struct):
    partition_index: int = F(INT32)


class AssignedTopic(Struct):
    topic_id: bytes = F(UUID)
    partitions: list[AssignedPartition] = F([AssignedPartition])


class AssignedDirectory(Struct):
    id: bytes = F(UUID)
    topics: list[AssignedTopic] = F([AssignedTopic])


class AssignReplicasToDirsRequest(Request, api_key=73, versions="0", flexible="0+"):
    """A broker says in which of its log directories replicas lie."""

    broker_id: int = F(INT32)
    broker_epoch: int = F(INT64, default=-1)
    directories: list[AssignedDirectory] = F([AssignedDirectory])


class AssignedPartitionResult(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class AssignedTopicResult(Struct):
    topic_id: bytes = F(UUID)
    partitions: list[AssignedPartitionResult] = F([AssignedPartitionResult])


class AssignedDirectoryResult(Struct):
    id: bytes = F(UUID)
    topics: list[AssignedTopicResult] = F([AssignedTopicResult])


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    directories: list[AssignedDirectoryResult] = F([AssignedDirectoryResult])


class RaftVoterListener(Struct):
    name: str = F(STRING)
    host: str = F(STRING)
    port: int = F(UINT16)


class AddRaftVoterRequest(Request, api_key=80, versions="0-1", flexible="0+"):
    """A controller is to vote from now on."""

    cluster_id: str | None = F(STRING, nullable="0+")
    timeout_ms: int = F(INT32)
    voter_id: int = F(INT32)
    voter_directory_id: bytes = F(UUID)
    listeners: list[RaftVoterListener] = F([RaftVoterListener])
    ack_when_committed: bool = F(BOOL, "1+", default=True)


class AddRaftVoterResponse(Response, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", ignorable=True)


class RemoveRaftVoterRequest(Request, api_key=81, versions="0", flexible="0+"):
    """A controller is not to vote any more."""

    cluster_id: str | None = F(STRING, nullable="0+")
    voter_id: int = F(INT32)
    voter_directory_id: bytes = F(UUID)


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", ignorable=True)
