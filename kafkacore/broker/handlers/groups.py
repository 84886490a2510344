"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup; OffsetCommit, OffsetFetch, OffsetDelete; DescribeGroups, ListGroups, DeleteGroups.

The rules are in broker/groups; here are the forms of the versions, and topics by id.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkacore.broker.groups.membership import RequestContext, sync_error
from kafkacore.broker.groups.records import NO_TOPIC_ID
from kafkacore.broker.groups.service import code_of, gather
from kafkacore.broker.state import BrokerState, Call, LateAnswer, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafkacore.protocol.schema import Response

# Bits are AclOperation codes: what may be done to a group.
ALL_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_ASKED = -(2**31)
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_LEAVE_OF_SEVERAL = 3
FIRST_WITH_TOPIC_IDS = 10
FIRST_FETCH_OF_SEVERAL = 8
FIRST_SYNC_WITH_PROTOCOL = 5


def _later(call: Call) -> Callable[[Response], None]:
    """Where the coordinator's answer goes."""
    answer = LateAnswer(call)
    return lambda response: answer.respond(lambda: response)


def _context(call: Call) -> RequestContext:
    return RequestContext(call.version, call.client_id or "", call.client_host)


def join_group(state: BrokerState, call: Call, request: JoinGroupRequest) -> Outcome:
    """JoinGroup v0-9, answered when all members of the generation are there."""
    send = _later(call)

    def respond(response: JoinGroupResponse) -> None:
        if call.version < FIRST_JOIN_WITH_NULL_PROTOCOL and response.protocol_name is None:
            response = response._replace(protocol_name="")
        send(response)

    state.groups.join(_context(call), request, respond)
    return Outcome.LATER


def sync_group(state: BrokerState, call: Call, request: SyncGroupRequest) -> Outcome | SyncGroupResponse:
    """SyncGroup v0-5, answered when the leader has brought the assignment. From v5 on protocol type and name are required."""
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return sync_error(Code.INCONSISTENT_GROUP_PROTOCOL)
    state.groups.sync(request, _later(call))
    return Outcome.LATER


def heartbeat(state: BrokerState, call: Call, request: HeartbeatRequest) -> Outcome:
    """Heartbeat v0-4."""
    state.groups.heartbeat(request, _later(call))
    return Outcome.LATER


def leave_group(state: BrokerState, call: Call, request: LeaveGroupRequest) -> Outcome:
    """LeaveGroup v0-5: one member up to v2, several from v3 on."""
    send = _later(call)
    single = call.version < FIRST_LEAVE_OF_SEVERAL
    wanted = LeaveGroupRequest(group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]) if single else request

    def respond(response: LeaveGroupResponse) -> None:
        if single and response.error_code == Code.NONE:
            response = LeaveGroupResponse(error_code=response.members[0].error_code)
        send(response)

    state.groups.leave(wanted, respond)
    return Outcome.LATER


# ---- consumer groups (KIP-848)


def consumer_group_heartbeat(state: BrokerState, call: Call, request: ConsumerGroupHeartbeatRequest) -> Outcome:
    """ConsumerGroupHeartbeat v0-1. A classic group becomes a consumer group with the first."""
    state.groups.consumer_heartbeat(_context(call), request, _later(call))
    return Outcome.LATER


def consumer_group_describe(state: BrokerState, call: Call, request: ConsumerGroupDescribeRequest) -> Outcome:
    """ConsumerGroupDescribe v0-1."""
    send = _later(call)
    operations = ALL_GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def done(groups: list[ConsumerGroupDescribeDescribedGroup]) -> None:
        send(
            ConsumerGroupDescribeResponse(
                groups=[
                    group._replace(authorized_operations=operations if group.error_code == Code.NONE else NOT_ASKED) for group in groups
                ]
            )
        )

    def ask(group_id: str) -> Callable[[Callable[[ConsumerGroupDescribeDescribedGroup], None]], None]:
        return lambda each: state.groups.describe_consumer_group(group_id, each)

    gather([ask(group_id) for group_id in request.group_ids], done)
    return Outcome.LATER


# ---- offsets


def offset_commit(state: BrokerState, call: Call, request: OffsetCommitRequest) -> Outcome | OffsetCommitResponse:
    """OffsetCommit v0-10, topics by id from v10 on. Topics and partitions that do not exist are refused one by one. A topic that is named
    twice is answered twice, but once where anything is refused, as by Kafka. v0 commits to the group's log, too: there is no ZooKeeper."""
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        if call.version >= FIRST_WITH_TOPIC_IDS:
            known = state.cluster.topics_by_id.get(bytes(topic.topic_id))
            code = Code.UNKNOWN_TOPIC_ID
        else:
            known = state.cluster.topics.get(topic.name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        if known is None:
            refused.append(_refused_commit(topic, code))
            continue
        count = len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        there = [each for each in topic.partitions if 0 <= each.partition_index < count]
        named = OffsetCommitRequestTopic(name=known.name, topic_id=known.topic_id, partitions=there)
        if missing:
            refused.append(_refused_commit(named._replace(partitions=missing), Code.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            accepted.append(named)
    if not accepted:
        return OffsetCommitResponse(topics=_each_topic_once(refused))
    send = _later(call)

    def done(outcome: OffsetCommitResponse | KafkaError) -> None:
        answers = [_refused_commit(each, code_of(outcome)) for each in accepted] if isinstance(outcome, KafkaError) else outcome.topics
        send(OffsetCommitResponse(topics=_each_topic_once([*refused, *answers]) if refused else answers))

    state.groups.commit(call.version, request._replace(topics=accepted), done)
    return Outcome.LATER


def _each_topic_once(topics: list[OffsetCommitResponseTopic]) -> list[OffsetCommitResponseTopic]:
    found: dict[tuple[str, bytes], list[OffsetCommitResponsePartition]] = {}
    for topic in topics:
        found.setdefault((topic.name, bytes(topic.topic_id)), []).extend(topic.partitions)
    return [OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=parts) for (name, topic_id), parts in found.items()]


def _refused_commit(topic: OffsetCommitRequestTopic, code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in topic.partitions],
    )


def offset_fetch(state: BrokerState, call: Call, request: OffsetFetchRequest) -> Outcome:
    """OffsetFetch v0-10: one group up to v7, several from v8 on, topics by id from v10 on. v0 takes a partition without a committed offset
    for an error."""
    send = _later(call)
    if call.version >= FIRST_FETCH_OF_SEVERAL:
        wanted = request.groups
    else:
        topics = None
        if request.topics is not None:
            topics = [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
        wanted = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]

    def done(groups: list[OffsetFetchResponseGroup]) -> None:
        if call.version >= FIRST_FETCH_OF_SEVERAL:
            send(OffsetFetchResponse(groups=groups))
        else:
            send(_single_fetch(groups[0], call.version))

    def ask(group: OffsetFetchRequestGroup) -> Callable[[Callable[[OffsetFetchResponseGroup], None]], None]:
        return lambda each: _fetch_group(state, call.version, group, request.require_stable, each)

    gather([ask(group) for group in wanted], done)
    return Outcome.LATER


def _fetch_group(
    state: BrokerState,
    version: int,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    respond: Callable[[OffsetFetchResponseGroup], None],
) -> None:
    if version < FIRST_WITH_TOPIC_IDS:
        state.groups.fetch_offsets(version, group, require_stable, respond)
        return
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        named: list[OffsetFetchRequestTopics] = []
        for topic in group.topics:
            known = state.cluster.topics_by_id.get(bytes(topic.topic_id))
            if known is None:
                unknown.append(_unknown_topic(topic))
            else:
                named.append(topic._replace(name=known.name))
        group = group._replace(topics=named)

    def done(answer: OffsetFetchResponseGroup) -> None:
        topics = []
        for topic in answer.topics:
            if bytes(topic.topic_id) == NO_TOPIC_ID:
                known = state.cluster.topics.get(topic.name)
                if known is None:
                    continue  # it is gone, and has no id to be told by
                topic = topic._replace(topic_id=known.topic_id)
            topics.append(topic)
        respond(answer._replace(topics=topics + unknown))

    state.groups.fetch_offsets(version, group, require_stable, done)


def _unknown_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=Code.UNKNOWN_TOPIC_ID
            )
            for index in topic.partition_indexes
        ],
    )


def _single_fetch(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    def code_of_partition(each: OffsetFetchResponsePartitions) -> int:
        is_missing = version < 1 and each.committed_offset < 0 and not each.error_code
        return Code.UNKNOWN_TOPIC_OR_PARTITION if is_missing else each.error_code

    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=code_of_partition(each),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def offset_delete(state: BrokerState, call: Call, request: OffsetDeleteRequest) -> Outcome | OffsetDeleteResponse:
    """OffsetDelete v0. Partitions that do not exist are refused one by one."""
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = state.cluster.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        present = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if missing:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code) for each in missing]
            refused.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        if present:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=present))
    if not accepted:
        return OffsetDeleteResponse(topics=_merged(refused, []))
    send = _later(call)

    def respond(response: OffsetDeleteResponse) -> None:
        merge = refused and response.error_code == Code.NONE
        send(response._replace(topics=_merged(refused, response.topics)) if merge else response)

    state.groups.delete_offsets(request._replace(topics=accepted), respond)
    return Outcome.LATER


def _merged(refused: list[OffsetDeleteResponseTopic], answered: list[OffsetDeleteResponseTopic]) -> list[OffsetDeleteResponseTopic]:
    """Each topic once."""
    partitions: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in [*refused, *answered]:
        partitions.setdefault(topic.name, []).extend(topic.partitions)
    return [OffsetDeleteResponseTopic(name=name, partitions=found) for name, found in partitions.items()]


# ---- looking at and removing groups


def describe_groups(state: BrokerState, call: Call, request: DescribeGroupsRequest) -> Outcome:
    """DescribeGroups v0-6, of classic groups."""
    send = _later(call)
    operations = ALL_GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def done(groups: list[DescribedGroup]) -> None:
        if call.version >= 3:
            groups = [group._replace(authorized_operations=operations if group.error_code == Code.NONE else NOT_ASKED) for group in groups]
        send(DescribeGroupsResponse(groups=groups))

    def ask(group_id: str) -> Callable[[Callable[[DescribedGroup], None]], None]:
        return lambda each: state.groups.describe(call.version, group_id, each)

    gather([ask(group_id) for group_id in request.groups], done)
    return Outcome.LATER


def list_groups(state: BrokerState, call: Call, request: ListGroupsRequest) -> Outcome:
    """ListGroups v0-5: the groups this broker coordinates."""
    state.groups.list_groups(request, _later(call))
    return Outcome.LATER


def delete_groups(state: BrokerState, call: Call, request: DeleteGroupsRequest) -> Outcome:
    """DeleteGroups v0-2."""
    send = _later(call)

    def respond(results: list[DeletableGroupResult]) -> None:
        send(DeleteGroupsResponse(results=results))

    state.groups.delete_groups(request.groups_names, respond)
    return Outcome.LATER
