"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup; OffsetCommit, OffsetFetch, OffsetDelete; DescribeGroups, ListGroups, DeleteGroups.

The rules are in broker/groups; here are the forms of the versions, and topics by id.

Source: kafka.server.KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kafkacore.broker.authorizer import DELETE, DESCRIBE, GROUP, READ, TOPIC
from kafkacore.broker.groups.membership import RequestContext, join_error, sync_error
from kafkacore.broker.groups.records import NO_TOPIC_ID
from kafkacore.broker.groups.service import code_of, fetch_error, gather
from kafkacore.broker.handlers.access import may, may_cluster, names_allowed, operations
from kafkacore.broker.state import BrokerState, Call, LateAnswer, Outcome
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
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
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_LEAVE_OF_SEVERAL = 3
FIRST_WITH_TOPIC_IDS = 10
FIRST_FETCH_OF_SEVERAL = 8
FIRST_SYNC_WITH_PROTOCOL = 5


def _later(call: Call) -> Callable[[Response], None]:
    """Where the coordinator's answer goes."""
    answer = LateAnswer(call)
    return lambda response: answer.respond(lambda: response)


def _context(state: BrokerState, call: Call) -> RequestContext:
    visible = None
    if state.authorizer is not None:

        def visible(topics: frozenset[str]) -> frozenset[str]:
            allowed = names_allowed(state, call, DESCRIBE, TOPIC, topics)
            return topics if allowed is None else allowed

    return RequestContext(call.version, call.client_id or "", call.client_host, visible)


def join_group(state: BrokerState, call: Call, request: JoinGroupRequest) -> Outcome | JoinGroupResponse:
    """JoinGroup v0-9, answered when all members of the generation are there."""

    def in_form(response: JoinGroupResponse) -> JoinGroupResponse:
        if call.version < FIRST_JOIN_WITH_NULL_PROTOCOL and response.protocol_name is None:
            return response._replace(protocol_name="")
        return response

    if not may(state, call, READ, GROUP, request.group_id):
        return in_form(join_error(Code.GROUP_AUTHORIZATION_FAILED))
    send = _later(call)
    state.groups.join(_context(state, call), request, lambda response: send(in_form(response)))
    return Outcome.LATER


def sync_group(state: BrokerState, call: Call, request: SyncGroupRequest) -> Outcome | SyncGroupResponse:
    """SyncGroup v0-5, answered when the leader has brought the assignment. From v5 on protocol type and name are required."""
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return sync_error(Code.INCONSISTENT_GROUP_PROTOCOL)
    if not may(state, call, READ, GROUP, request.group_id):
        return sync_error(Code.GROUP_AUTHORIZATION_FAILED)
    state.groups.sync(request, _later(call))
    return Outcome.LATER


def heartbeat(state: BrokerState, call: Call, request: HeartbeatRequest) -> Outcome | HeartbeatResponse:
    """Heartbeat v0-4."""
    if not may(state, call, READ, GROUP, request.group_id):
        return HeartbeatResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    state.groups.heartbeat(request, _later(call))
    return Outcome.LATER


def leave_group(state: BrokerState, call: Call, request: LeaveGroupRequest) -> Outcome | LeaveGroupResponse:
    """LeaveGroup v0-5: one member up to v2, several from v3 on."""
    if not may(state, call, READ, GROUP, request.group_id):
        return LeaveGroupResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
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


def consumer_group_heartbeat(
    state: BrokerState, call: Call, request: ConsumerGroupHeartbeatRequest
) -> Outcome | ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat v0-1. A classic group becomes a consumer group with the first. Topics are looked at when they are named, which
    members do when they join and when their subscription changes."""
    if not may(state, call, READ, GROUP, request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names
    if names and (allowed := names_allowed(state, call, DESCRIBE, TOPIC, names)) is not None and len(allowed) < len(set(names)):
        return ConsumerGroupHeartbeatResponse(error_code=Code.TOPIC_AUTHORIZATION_FAILED)
    state.groups.consumer_heartbeat(_context(state, call), request, _later(call))
    return Outcome.LATER


def consumer_group_describe(state: BrokerState, call: Call, request: ConsumerGroupDescribeRequest) -> Outcome:
    """ConsumerGroupDescribe v0-1. A group that reads a topic which the client may not describe is refused as a whole."""
    send = _later(call)
    refused, allowed = _parted(state, call, DESCRIBE, request.group_ids)

    def done(groups: list[ConsumerGroupDescribeDescribedGroup]) -> None:
        found = [
            ConsumerGroupDescribeDescribedGroup(error_code=Code.GROUP_AUTHORIZATION_FAILED, group_id=group_id) for group_id in refused
        ]
        found += [
            group._replace(authorized_operations=_operations(state, call, group, request.include_authorized_operations)) for group in groups
        ]
        send(ConsumerGroupDescribeResponse(groups=_without_hidden_topics(state, call, found)))

    def ask(group_id: str) -> Callable[[Callable[[ConsumerGroupDescribeDescribedGroup], None]], None]:
        return lambda each: state.groups.describe_consumer_group(group_id, each)

    gather([ask(group_id) for group_id in allowed], done)
    return Outcome.LATER


def _parted(state: BrokerState, call: Call, operation: int, group_ids: list[str]) -> tuple[list[str], list[str]]:
    """The groups to which the client may not do something, and the others."""
    allowed = names_allowed(state, call, operation, GROUP, group_ids)
    if allowed is None:
        return [], group_ids
    return [each for each in group_ids if each not in allowed], [each for each in group_ids if each in allowed]


def _operations(state: BrokerState, call: Call, group: DescribedGroup | ConsumerGroupDescribeDescribedGroup, are_asked: bool) -> int:
    is_answered = are_asked and group.error_code == Code.NONE
    return operations(state, call, GROUP, group.group_id, ALL_GROUP_OPERATIONS) if is_answered else NOT_ASKED


def _without_hidden_topics(
    state: BrokerState, call: Call, groups: list[ConsumerGroupDescribeDescribedGroup]
) -> list[ConsumerGroupDescribeDescribedGroup]:
    if state.authorizer is None:
        return groups

    def topics_of(group: ConsumerGroupDescribeDescribedGroup) -> set[str]:
        assignments = [assignment for member in group.members for assignment in (member.assignment, member.target_assignment)]
        return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}

    named = [topics_of(group) for group in groups]
    visible = names_allowed(state, call, DESCRIBE, TOPIC, set().union(*named))
    return [
        group
        if visible is None or topics <= visible
        else ConsumerGroupDescribeDescribedGroup(
            error_code=Code.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN_TOPICS, group_id=group.group_id
        )
        for group, topics in zip(groups, named, strict=True)
    ]


# ---- offsets


def offset_commit(state: BrokerState, call: Call, request: OffsetCommitRequest) -> Outcome | OffsetCommitResponse:
    """OffsetCommit v0-10, topics by id from v10 on. Topics and partitions that do not exist are refused one by one. A topic that is named
    twice is answered twice, but once where anything is refused, as by Kafka. v0 commits to the group's log, too: there is no ZooKeeper."""
    if not may(state, call, READ, GROUP, request.group_id):
        return OffsetCommitResponse(topics=[_refused_commit(topic, Code.GROUP_AUTHORIZATION_FAILED) for topic in request.topics])
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    readable = names_allowed(state, call, READ, TOPIC, _names(state, request.topics, by_id))
    for topic in request.topics:
        if by_id:
            known = state.cluster.topics_by_id.get(bytes(topic.topic_id))
            code = Code.UNKNOWN_TOPIC_ID
        else:
            known = state.cluster.topics.get(topic.name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION
        if readable is not None and (known is not None or not by_id) and (topic.name if known is None else known.name) not in readable:
            refused.append(_refused_commit(topic, Code.TOPIC_AUTHORIZATION_FAILED))
            continue
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


def _names(state: BrokerState, topics: Iterable[OffsetCommitRequestTopic | OffsetFetchRequestTopics], by_id: bool) -> Iterator[str]:
    """The names of topics; unknown ids have none."""
    for topic in topics:
        if not by_id:
            yield topic.name
        elif (known := state.cluster.topics_by_id.get(bytes(topic.topic_id))) is not None:
            yield known.name


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
        return lambda each: _fetch_group(state, call, group, request.require_stable, each)

    gather([ask(group) for group in wanted], done)
    return Outcome.LATER


def _fetch_group(
    state: BrokerState,
    call: Call,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    respond: Callable[[OffsetFetchResponseGroup], None],
) -> None:
    version = call.version
    if not may(state, call, DESCRIBE, GROUP, group.group_id):
        respond(fetch_error(version, group, Code.GROUP_AUTHORIZATION_FAILED))
        return
    by_id = version >= FIRST_WITH_TOPIC_IDS
    if not by_id and state.authorizer is None:
        state.groups.fetch_offsets(version, group, require_stable, respond)
        return
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        named: list[OffsetFetchRequestTopics] = []
        visible = names_allowed(state, call, DESCRIBE, TOPIC, _names(state, group.topics, by_id))
        for topic in group.topics:
            known = state.cluster.topics_by_id.get(bytes(topic.topic_id)) if by_id else None
            if by_id and known is None:
                refused.append(_refused_fetch(topic, Code.UNKNOWN_TOPIC_ID))
                continue
            name = topic.name if known is None else known.name
            if visible is not None and name not in visible:
                refused.append(_refused_fetch(topic, Code.TOPIC_AUTHORIZATION_FAILED))
            else:
                named.append(topic if known is None else topic._replace(name=name))
        group = group._replace(topics=named)

    def done(answer: OffsetFetchResponseGroup) -> None:
        topics = []
        # Who asks for all topics sees those that it may describe.
        visible = names_allowed(state, call, DESCRIBE, TOPIC, [each.name for each in answer.topics]) if group.topics is None else None
        for topic in answer.topics:
            if visible is not None and topic.name not in visible:
                continue
            if by_id and bytes(topic.topic_id) == NO_TOPIC_ID:
                known = state.cluster.topics.get(topic.name)
                if known is None:
                    continue  # it was deleted, and has no id to name it by
                topic = topic._replace(topic_id=known.topic_id)
            topics.append(topic)
        respond(answer if answer.error_code else answer._replace(topics=topics + refused))

    state.groups.fetch_offsets(version, group, require_stable, done)


def _refused_fetch(topic: OffsetFetchRequestTopics, code: Code) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
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
    if not may(state, call, DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    readable = names_allowed(state, call, READ, TOPIC, (topic.name for topic in request.topics))
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        is_hidden = readable is not None and topic.name not in readable
        known = None if is_hidden else state.cluster.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        present = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if missing:
            code = Code.TOPIC_AUTHORIZATION_FAILED if is_hidden else Code.UNKNOWN_TOPIC_OR_PARTITION
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
    refused, allowed = _parted(state, call, DESCRIBE, request.groups)
    are_asked = call.version >= 3 and request.include_authorized_operations

    def done(groups: list[DescribedGroup]) -> None:
        found = [DescribedGroup(error_code=Code.GROUP_AUTHORIZATION_FAILED, group_id=group_id) for group_id in refused]
        found += [group._replace(authorized_operations=_operations(state, call, group, are_asked)) for group in groups]
        send(DescribeGroupsResponse(groups=found))

    def ask(group_id: str) -> Callable[[Callable[[DescribedGroup], None]], None]:
        return lambda each: state.groups.describe(call.version, group_id, each)

    gather([ask(group_id) for group_id in allowed], done)
    return Outcome.LATER


def list_groups(state: BrokerState, call: Call, request: ListGroupsRequest) -> Outcome:
    """ListGroups v0-5: the groups this broker coordinates; clients that may not describe the cluster see those that they may describe."""
    send = _later(call)
    sees_all = may_cluster(state, call, DESCRIBE)

    def respond(response: ListGroupsResponse) -> None:
        visible = None if sees_all else names_allowed(state, call, DESCRIBE, GROUP, [each.group_id for each in response.groups])
        if visible is not None:
            response = response._replace(groups=[each for each in response.groups if each.group_id in visible])
        send(response)

    state.groups.list_groups(request, respond)
    return Outcome.LATER


def delete_groups(state: BrokerState, call: Call, request: DeleteGroupsRequest) -> Outcome:
    """DeleteGroups v0-2."""
    send = _later(call)

    refused, allowed = _parted(state, call, DELETE, list(dict.fromkeys(request.groups_names)))

    def respond(results: list[DeletableGroupResult]) -> None:
        forbidden = [DeletableGroupResult(group_id=group_id, error_code=Code.GROUP_AUTHORIZATION_FAILED) for group_id in refused]
        send(DeleteGroupsResponse(results=results + forbidden))

    state.groups.delete_groups(allowed, respond)
    return Outcome.LATER
