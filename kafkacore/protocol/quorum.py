"""Between brokers and the controller: registration, heartbeats, ISR changes, producer ids.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, F, Request, Response, Struct

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
