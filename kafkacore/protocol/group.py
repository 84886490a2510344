"""Consumer groups: coordinators, membership (classic and KIP-848), committed offsets, and looking at groups.

Source: Kafka's message definitions (clients/src/main/resources/common/message).
"""

from __future__ import annotations

from kafkacore.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, F, Request, Response, Struct


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+"):
    """Who looks after a group (key_type 0), a transactional id (1) or a share group partition (2)."""

    key: str = F(STRING, "0-3")
    key_type: int = F(INT8, "1+")
    coordinator_keys: list[str] = F([STRING], "4+")


class Coordinator(Struct):
    """One answer of the batch form."""

    key: str = F(STRING, "4+")
    node_id: int = F(INT32, "4+")
    host: str = F(STRING, "4+")
    port: int = F(INT32, "4+")
    error_code: int = F(INT16, "4+")
    error_message: str | None = F(STRING, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    """One coordinator up to version 3, one per key from version 4 on."""

    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16, "0-3")
    error_message: str | None = F(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = F(INT32, "0-3")
    host: str = F(STRING, "0-3")
    port: int = F(INT32, "0-3")
    coordinators: list[Coordinator] = F([Coordinator], "4+")


# Classic membership.


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member knows, and its subscription as that assignor wants it."""

    name: str = F(STRING)
    metadata: bytes = F(BYTES)


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+"):
    """Enters a classic group. From version 4 on an empty member id is answered with MEMBER_ID_REQUIRED and a fresh id."""

    group_id: str = F(STRING)
    session_timeout_ms: int = F(INT32)
    rebalance_timeout_ms: int = F(INT32, "1+", default=-1, ignorable=True)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = F(STRING)
    protocols: list[JoinGroupRequestProtocol] = F([JoinGroupRequestProtocol])
    reason: str | None = F(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """What the leader needs to know about a member."""

    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = F(BYTES)


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    """Sent when the round is complete. Only the leader gets the members; skip_assignment tells it to keep the assignment (KIP-814)."""

    throttle_time_ms: int = F(INT32, "2+", ignorable=True)
    error_code: int = F(INT16)
    generation_id: int = F(INT32, default=-1)
    protocol_type: str | None = F(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = F(STRING, nullable="7+")
    leader: str = F(STRING)
    skip_assignment: bool = F(BOOL, "9+")
    member_id: str = F(STRING)
    members: list[JoinGroupResponseMember] = F([JoinGroupResponseMember])


class SyncGroupRequestAssignment(Struct):
    member_id: str = F(STRING)
    assignment: bytes = F(BYTES)


class SyncGroupRequest(Request, api_key=14, versions="0-5", flexible="4+"):
    """The leader hands out the assignment, the others ask for theirs with an empty list."""

    group_id: str = F(STRING)
    generation_id: int = F(INT32)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = F([SyncGroupRequestAssignment])


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16)
    protocol_type: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = F(BYTES)


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
    """Keeps a member in its group; the answer says whether a rebalance has started."""

    group_id: str = F(STRING)
    generation_id: int = F(INT32)
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16)


class MemberIdentity(Struct):
    """A member to take out: by member id, or by instance id for a static one."""

    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", nullable="3+", default=None)
    reason: str | None = F(STRING, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+"):
    """One member up to version 2, several from version 3 on."""

    group_id: str = F(STRING)
    member_id: str = F(STRING, "0-2")
    members: list[MemberIdentity] = F([MemberIdentity], "3+")


class MemberResponse(Struct):
    member_id: str = F(STRING, "3+")
    group_instance_id: str | None = F(STRING, "3+", nullable="3+")
    error_code: int = F(INT16, "3+")


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16)
    members: list[MemberResponse] = F([MemberResponse], "3+")


# Committed offsets.


class OffsetCommitRequestPartition(Struct):
    """committed_offset is the next record to read."""

    partition_index: int = F(INT32)
    committed_offset: int = F(INT64)
    committed_leader_epoch: int = F(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = F(INT64, "1", default=-1)
    committed_metadata: str | None = F(STRING, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = F(STRING, "0-9", ignorable=True)
    topic_id: bytes = F(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = F([OffsetCommitRequestPartition])


class OffsetCommitRequest(Request, api_key=8, versions="0-10", flexible="8+", dropped="0-1"):
    """Stores positions of a group. generation -1 with an empty member id commits without membership."""

    group_id: str = F(STRING)
    generation_id_or_member_epoch: int = F(INT32, "1+", default=-1, ignorable=True)
    member_id: str = F(STRING, "1+", ignorable=True)
    group_instance_id: str | None = F(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = F(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = F([OffsetCommitRequestTopic])


class OffsetCommitResponsePartition(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = F(STRING, "0-9", ignorable=True)
    topic_id: bytes = F(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = F([OffsetCommitResponsePartition])


class OffsetCommitResponse(Response, api_key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = F(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = F([OffsetCommitResponseTopic])


class OffsetFetchRequestTopic(Struct):
    name: str = F(STRING, "0-7")
    partition_indexes: list[int] = F([INT32], "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = F(STRING, "8-9", ignorable=True)
    topic_id: bytes = F(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = F([INT32], "8+")


class OffsetFetchRequestGroup(Struct):
    """topics: None asks for every partition that the group has committed."""

    group_id: str = F(STRING, "8+")
    member_id: str | None = F(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = F(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = F([OffsetFetchRequestTopics], "8+", nullable="8+")


class OffsetFetchRequest(Request, api_key=9, versions="0-10", flexible="6+", dropped="0"):
    """Positions of one group up to version 7, of several from version 8 on. require_stable waits for open transactions."""

    group_id: str = F(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = F([OffsetFetchRequestTopic], "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = F([OffsetFetchRequestGroup], "8+")
    require_stable: bool = F(BOOL, "7+")


class OffsetFetchResponsePartition(Struct):
    """committed_offset is -1 when nothing is committed."""

    partition_index: int = F(INT32, "0-7")
    committed_offset: int = F(INT64, "0-7")
    committed_leader_epoch: int = F(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = F(STRING, "0-7", nullable="0-7")
    error_code: int = F(INT16, "0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = F(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = F([OffsetFetchResponsePartition], "0-7")


class OffsetFetchResponsePartitions(Struct):
    """committed_offset is -1 when nothing is committed."""

    partition_index: int = F(INT32, "8+")
    committed_offset: int = F(INT64, "8+")
    committed_leader_epoch: int = F(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = F(STRING, "8+", nullable="8+")
    error_code: int = F(INT16, "8+")


class OffsetFetchResponseTopics(Struct):
    name: str = F(STRING, "8-9", ignorable=True)
    topic_id: bytes = F(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = F([OffsetFetchResponsePartitions], "8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = F(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = F([OffsetFetchResponseTopics], "8+")
    error_code: int = F(INT16, "8+")


class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = F(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = F([OffsetFetchResponseTopic], "0-7")
    error_code: int = F(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = F([OffsetFetchResponseGroup], "8+")


# Looking at and removing groups.


class DescribeGroupsRequest(Request, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = F([STRING])
    include_authorized_operations: bool = F(BOOL, "3+")


class DescribedGroupMember(Struct):
    member_id: str = F(STRING)
    group_instance_id: str | None = F(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    member_metadata: bytes = F(BYTES)
    member_assignment: bytes = F(BYTES)


class DescribedGroup(Struct):
    """A classic group; from version 6 on an unknown group is an error, before that it is a dead one."""

    error_code: int = F(INT16)
    error_message: str | None = F(STRING, "6+", nullable="6+", default=None)
    group_id: str = F(STRING)
    group_state: str = F(STRING)
    protocol_type: str = F(STRING)
    protocol_data: str = F(STRING)
    members: list[DescribedGroupMember] = F([DescribedGroupMember])
    authorized_operations: int = F(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = F([DescribedGroup])


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+"):
    """Groups of this broker, in these states and of these types; empty lists mean all."""

    states_filter: list[str] = F([STRING], "4+")
    types_filter: list[str] = F([STRING], "5+")


class ListedGroup(Struct):
    group_id: str = F(STRING)
    protocol_type: str = F(STRING)
    group_state: str = F(STRING, "4+", ignorable=True)
    group_type: str = F(STRING, "5+", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = F(INT32, "1+", ignorable=True)
    error_code: int = F(INT16)
    groups: list[ListedGroup] = F([ListedGroup])


class DeleteGroupsRequest(Request, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = F([STRING])


class DeletableGroupResult(Struct):
    group_id: str = F(STRING)
    error_code: int = F(INT16)


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = F(INT32)
    results: list[DeletableGroupResult] = F([DeletableGroupResult])


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = F(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = F(STRING)
    partitions: list[OffsetDeleteRequestPartition] = F([OffsetDeleteRequestPartition])


class OffsetDeleteRequest(Request, api_key=47, versions="0"):
    """Forgets positions; refused for topics that a member still subscribes to."""

    group_id: str = F(STRING)
    topics: list[OffsetDeleteRequestTopic] = F([OffsetDeleteRequestTopic])


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = F(INT32)
    error_code: int = F(INT16)


class OffsetDeleteResponseTopic(Struct):
    name: str = F(STRING)
    partitions: list[OffsetDeleteResponsePartition] = F([OffsetDeleteResponsePartition])


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    error_code: int = F(INT16)
    throttle_time_ms: int = F(INT32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = F([OffsetDeleteResponseTopic])


# The KIP-848 protocol: the broker assigns, members reconcile.


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    topic_id: bytes = F(UUID)
    partitions: list[int] = F([INT32])


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions="0-1", flexible="0+"):
    """Joins (member_epoch 0), stays in, or leaves (-1, static members -2) a KIP-848 group.

    Fields that did not change since the last heartbeat are None or -1. In version 1 the client chooses its member id (KIP-1082).
    """

    group_id: str = F(STRING)
    member_id: str = F(STRING)
    member_epoch: int = F(INT32)
    instance_id: str | None = F(STRING, nullable="0+", default=None)
    rack_id: str | None = F(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = F(INT32, default=-1)
    subscribed_topic_names: list[str] | None = F([STRING], nullable="0+", default=None)
    subscribed_topic_regex: str | None = F(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = F(STRING, nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = F(
        [ConsumerGroupHeartbeatTopicPartitions], nullable="0+", default=None
    )


class ConsumerGroupHeartbeatAssignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = F([ConsumerGroupHeartbeatTopicPartitions])


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    """assignment: None when it has not changed."""

    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", default=None)
    member_id: str | None = F(STRING, nullable="0+", default=None)
    member_epoch: int = F(INT32)
    heartbeat_interval_ms: int = F(INT32)
    assignment: ConsumerGroupHeartbeatAssignment | None = F(ConsumerGroupHeartbeatAssignment, nullable="0+", default=None)


class ConsumerGroupDescribeRequest(Request, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = F([STRING])
    include_authorized_operations: bool = F(BOOL)


class ConsumerGroupDescribeTopicPartitions(Struct):
    topic_id: bytes = F(UUID)
    topic_name: str = F(STRING)
    partitions: list[int] = F([INT32])


class ConsumerGroupDescribeAssignment(Struct):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = F([ConsumerGroupDescribeTopicPartitions])


class ConsumerGroupDescribeMember(Struct):
    """member_type: -1 unknown, 0 classic, 1 consumer. A member moves from assignment to target_assignment step by step."""

    member_id: str = F(STRING)
    instance_id: str | None = F(STRING, nullable="0+", default=None)
    rack_id: str | None = F(STRING, nullable="0+", default=None)
    member_epoch: int = F(INT32)
    client_id: str = F(STRING)
    client_host: str = F(STRING)
    subscribed_topic_names: list[str] = F([STRING])
    subscribed_topic_regex: str | None = F(STRING, nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment = F(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = F(ConsumerGroupDescribeAssignment)
    member_type: int = F(INT8, "1+", default=-1, ignorable=True)


class ConsumerGroupDescribeDescribedGroup(Struct):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, nullable="0+", default=None)
    group_id: str = F(STRING)
    group_state: str = F(STRING)
    group_epoch: int = F(INT32)
    assignment_epoch: int = F(INT32)
    assignor_name: str = F(STRING)
    members: list[ConsumerGroupDescribeMember] = F([ConsumerGroupDescribeMember])
    authorized_operations: int = F(INT32, default=-2147483648)


class ConsumerGroupDescribeResponse(Response, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = F(INT32)
    groups: list[ConsumerGroupDescribeDescribedGroup] = F([ConsumerGroupDescribeDescribedGroup])
