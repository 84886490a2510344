"""Consumer groups and their offsets.

Source: Kafka's KafkaAdminClient.{listGroups, describeConsumerGroups, deleteConsumerGroups, listConsumerGroupOffsets, ...}.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import GROUP_KEY, AdminBase, ItemResults, Listed, OneByOne, names_of, results_of
from kafkacore.admin.security import operations_of
from kafkacore.errors import Code
from kafkacore.net.committed import FIRST_FETCH_OF_GROUPS, committed_offset, offsets_to_fetch, topics_to_commit
from kafkacore.net.leaders import by_topic
from kafkacore.protocol import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)
from kafkacore.protocol.stored import ConsumerProtocolAssignment, decode_stored
from kafkacore.types import Node, OffsetAndMetadata, TopicPartition

_CONSUMER_PROTOCOL = "consumer"
_FIRST_STABLE_VERSION = 7
_FIRST_REMOVAL_VERSION = 3

_GroupOffsets = ItemResults[TopicPartition, OffsetAndMetadata | None]


class GroupListing(NamedTuple):
    """A group, as listed. state and type ("classic", "consumer") are empty where the broker does not tell (before 2.6, 3.8)."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group: where it is, what it has been assigned, and what it is on its way to (KIP-848; None in classic groups)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: list[TopicPartition]
    target_partitions: list[TopicPartition] | None = None


class GroupDescription(NamedTuple):
    """A group.

    Attributes:
        group_id: its name.
        type: "classic" or "consumer" (KIP-848).
        state: as Kafka calls it: Empty, PreparingRebalance, Stable, Assigning, Reconciling, Dead, ...
        protocol_type: "consumer" for groups of consumers.
        assignor: how partitions are assigned; empty before that is decided.
        members: who is in it.
        coordinator: the broker that answers for the group; None if its address has become unknown.
        authorized_operations: what this client may do, as "read", if that was asked for.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    members: list[MemberDescription]
    coordinator: Node | None = None
    authorized_operations: list[str] | None = None


class GroupsAdmin(AdminBase):
    """The calls about groups."""

    def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), partial: bool = False, timeout: float | None = None
    ) -> Listed[GroupListing]:
        """The groups of the cluster.

        Args:
            states: only in these states, as "Stable"; none for all.
            types: only of these types, as "classic"; none for all.
            partial: a broker that fails leaves what the others list as it is, and its error is in `errors` of the list.
            timeout: seconds.

        Raises:
            errors.KafkaError: a broker did not answer, so the list would have holes, and it may not be partial.
        """
        deadline_ms = self._deadline_ms(timeout)
        wanted_states, wanted_types = list(states), list(types)

        def build(version: int) -> ListGroupsRequest:
            if (wanted_states and version < 4) or (wanted_types and version < 5):
                raise errors.UnsupportedVersion("the broker cannot filter groups", api="ListGroups")
            return ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)

        def items(response: Any) -> Iterable[GroupListing]:
            return (GroupListing(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in response.groups)

        return self._list_everywhere(ListGroupsRequest, build, items, deadline_ms, partial)

    def describe_groups(
        self, group_ids: Iterable[str], *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> ItemResults[str, GroupDescription]:
        """Members and states of groups.

        Args:
            group_ids: the groups.
            include_authorized_operations: ask what this client may do, too.
            timeout: seconds.

        Returns:
            By group. Typical errors: GroupIdNotFound, GroupAuthorization. (Before Kafka 4.0 a group that is not there is in state Dead.)
        """
        wanted = names_of(group_ids)
        deadline_ms = self._deadline_ms(timeout)

        def consumer_request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            asked = ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=include_authorized_operations)
            return ConsumerGroupDescribeRequest, lambda version: asked

        def classic_request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            asked = DescribeGroupsRequest(groups=ids, include_authorized_operations=include_authorized_operations)
            return DescribeGroupsRequest, lambda version: asked

        newer = self._ask_coordinators(wanted, GROUP_KEY, consumer_request, _read_consumer_groups, timeout, _located)
        others = [group for group, error in newer.errors.items() if error.code in (Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION)]
        left = self._left_ms(deadline_ms) / 1000
        older = self._ask_coordinators(others, GROUP_KEY, classic_request, _read_classic_groups, left, _located)
        failed = {group: error for group, error in newer.errors.items() if group not in others}
        return ItemResults({**newer.succeeded, **older.succeeded}, failed | older.errors)

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> ItemResults[str, None]:
        """Deletes groups with their offsets.

        Args:
            group_ids: the groups; they must be empty.
            timeout: seconds.

        Returns:
            By group. Typical errors: GroupNotEmpty, GroupIdNotFound.
        """

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            return DeleteGroupsRequest, lambda version: DeleteGroupsRequest(groups_names=ids)

        def read(response: Any) -> Iterable[tuple[str, errors.KafkaError | None]]:
            for each in response.results:
                about, code = f"group {each.group_id}", each.error_code
                yield each.group_id, errors.from_code(code, about, api="DeleteGroups") if code else None

        return self._ask_coordinators(names_of(group_ids), GROUP_KEY, request, read, timeout)

    def remove_group_members(
        self,
        group_id: str,
        members: Iterable[str] | None = None,
        *,
        instances: Iterable[str] | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> ItemResults[str, None]:
        """Takes members out of a classic group; their partitions go to the others at once. A member that runs joins again.

        Args:
            group_id: the group.
            members: their member ids.
            instances: static members, by group.instance.id, which keep their place otherwise until the session ends. Without members and
                instances: all members.
            reason: for the broker's log.
            timeout: seconds.

        Returns:
            By member id or instance id. Typical errors: UnknownMemberId, FencedInstanceId.

        Raises:
            errors.KafkaError: the coordinator refused, as for a group that is not there, or it does not answer.
            errors.UnsupportedVersion: the broker is older than Kafka 2.4.
        """
        deadline_ms = self._deadline_ms(timeout)
        if members is None and instances is None:
            group = self.describe_groups([group_id], timeout=timeout)[group_id]
            static = [each.instance_id for each in group.members if each.instance_id]
            dynamic = [each.member_id for each in group.members if not each.instance_id]
        else:
            static, dynamic = names_of(instances or ()), names_of(members or ())
        why = reason or "removed by an admin client"
        leaving = {each: MemberIdentity(member_id=each, reason=why) for each in dynamic}
        leaving |= {each: MemberIdentity(group_instance_id=each, reason=why) for each in static}
        if not leaving:
            return ItemResults({}, {})

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            def build(version: int) -> LeaveGroupRequest:
                if version < _FIRST_REMOVAL_VERSION:
                    raise errors.UnsupportedVersion("the broker lets members leave by themselves only", api="LeaveGroup")
                return LeaveGroupRequest(group_id=group_id, members=list(leaving.values()))

            return LeaveGroupRequest, build

        def read(response: Any) -> Iterable[tuple[str, ItemResults[str, None] | errors.KafkaError]]:
            if response.error_code:
                yield group_id, errors.from_code(response.error_code, f"group {group_id}", api="LeaveGroup")
                return
            found = ((each.group_instance_id or each.member_id, each.error_code, None, None) for each in response.members)
            yield group_id, results_of(found, leaving, "LeaveGroup")

        return self._ask_coordinators([group_id], GROUP_KEY, request, read, self._left_ms(deadline_ms) / 1000)[group_id]

    # -- offsets ------------------------------------------------------------------------------------------------------------------

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What a group has committed.

        Args:
            group_id: the group.
            partitions: None for all that have offsets.
            require_stable: wait for transactions that commit offsets.
            timeout: seconds.

        Returns:
            By partition; None where nothing is committed.

        Raises:
            errors.KafkaError: the coordinator refused, for the group or for one of the partitions.
        """
        found = self.list_groups_offsets({group_id: partitions}, require_stable=require_stable, timeout=timeout)
        return dict(found[group_id].check())

    def list_groups_offsets(
        self,
        groups: Mapping[str, Iterable[tuple[str, int]] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> ItemResults[str, ItemResults[TopicPartition, OffsetAndMetadata | None]]:
        """What several groups have committed, with one request to each coordinator (KIP-709; before Kafka 3.0 one for each group).

        Args:
            groups: by group id its partitions; None for all that have offsets.
            require_stable: wait for transactions that commit offsets.
            timeout: seconds.

        Returns:
            By group, by partition; None where nothing is committed. Typical errors: GroupAuthorization for a group, TopicAuthorization or
            UnstableOffsetCommit for a partition.
        """
        wanted: dict[str, dict[str, list[int]] | None] = {}
        for group_id, given in groups.items():
            if given is None:
                wanted[group_id] = None
            else:
                tps = dict.fromkeys(TopicPartition(*tp) for tp in given)
                wanted[group_id] = {name: [i for i, _ in these] for name, these in by_topic((tp, None) for tp in tps).items()}

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            def build(version: int) -> OffsetFetchRequest:
                if require_stable and version < _FIRST_STABLE_VERSION:
                    raise errors.UnsupportedVersion("the broker does not know stable offsets", api="OffsetFetch")
                if version < FIRST_FETCH_OF_GROUPS:
                    if len(ids) > 1:
                        raise OneByOne
                    return offsets_to_fetch(version, ids[0], wanted[ids[0]], require_stable)
                asked = [offsets_to_fetch(version, each, wanted[each], require_stable).groups[0] for each in ids]
                return OffsetFetchRequest(groups=asked, require_stable=require_stable)

            return OffsetFetchRequest, build

        def reader(ids: Sequence[str]) -> Callable[[Any], Iterable[tuple[str, _GroupOffsets | errors.KafkaError]]]:
            def read(response: Any) -> Iterable[tuple[str, _GroupOffsets | errors.KafkaError]]:
                for answer in response.groups or [response]:
                    group_id = answer.group_id if response.groups else ids[0]
                    yield group_id, _read_offsets(answer)

            return read

        try:
            return self._ask_coordinators(wanted, GROUP_KEY, request, reader(list(wanted)), timeout)
        except OneByOne:
            deadline_ms = self._deadline_ms(timeout)
            found: dict[str, _GroupOffsets] = {}
            failed: dict[str, errors.KafkaError] = {}
            for group_id in wanted:
                left_s = self._left_ms(deadline_ms) / 1000
                results = self._ask_coordinators([group_id], GROUP_KEY, request, reader([group_id]), left_s)
                found |= results.succeeded
                failed |= results.errors
            return ItemResults(found, failed)

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int | OffsetAndMetadata], *, timeout: float | None = None
    ) -> ItemResults[TopicPartition, None]:
        """Commits offsets for a group that has no members.

        Args:
            group_id: the group; it is made if it is not there.
            offsets: by (topic, partition) the next record to read.
            timeout: seconds.

        Returns:
            By partition. Typical errors: UnknownMemberId (the group has members), UnknownTopicOrPartition.

        Raises:
            errors.KafkaError: the coordinator cannot be found or does not answer.
        """
        wanted = {
            TopicPartition(*tp): given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
            for tp, given in offsets.items()
        }
        topics = topics_to_commit(wanted, OffsetCommitRequestTopic, OffsetCommitRequestPartition)

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            return OffsetCommitRequest, lambda version: OffsetCommitRequest(group_id=group_id, topics=topics)

        if not wanted:
            return ItemResults({}, {})
        return self._ask_about_offsets(group_id, wanted, request, timeout)

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout: float | None = None
    ) -> ItemResults[TopicPartition, None]:
        """Forgets offsets of a group.

        Args:
            group_id: the group.
            partitions: of topics no member subscribes to.
            timeout: seconds.

        Returns:
            By partition. Typical errors: GroupSubscribedToTopic, UnknownTopicOrPartition.

        Raises:
            errors.KafkaError: as GroupIdNotFound, or the coordinator cannot be found or does not answer.
        """
        wanted = list(dict.fromkeys(TopicPartition(*tp) for tp in partitions))
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index, _ in group])
            for name, group in by_topic((tp, None) for tp in wanted).items()
        ]

        def request(ids: list[str]) -> tuple[type, Callable[[int], object]]:
            return OffsetDeleteRequest, lambda version: OffsetDeleteRequest(group_id=group_id, topics=topics)

        if not topics:
            return ItemResults({}, {})
        return self._ask_about_offsets(group_id, wanted, request, timeout)

    def _ask_about_offsets(
        self,
        group_id: str,
        wanted: Collection[TopicPartition],
        request: Callable[[list[str]], tuple[type, Callable[[int], object]]],
        timeout: float | None,
    ) -> ItemResults[TopicPartition, None]:
        """Asks a group's coordinator something that it answers by partition."""

        def read(response: Any) -> Iterable[tuple[str, ItemResults[TopicPartition, None] | errors.KafkaError]]:
            api = type(response).__name__.removesuffix("Response")
            if getattr(response, "error_code", 0):
                yield group_id, errors.from_code(response.error_code, f"group {group_id}", api=api)
                return
            results = results_of(
                (
                    (TopicPartition(topic.name, each.partition_index), each.error_code, None, None)
                    for topic in response.topics
                    for each in topic.partitions
                ),
                wanted,
                api,
            )
            moved = next((error for error in results.errors.values() if error.code == Code.NOT_COORDINATOR), None)
            yield group_id, moved or results

        return self._ask_coordinators([group_id], GROUP_KEY, request, read, timeout)[group_id]


def _read_offsets(answer: Any) -> _GroupOffsets | errors.KafkaError:
    if answer.error_code:
        return errors.from_code(answer.error_code, api="OffsetFetch")
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    failed: dict[TopicPartition, errors.KafkaError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                failed[tp] = errors.from_code(each.error_code, topic=tp.topic, partition=tp.partition, api="OffsetFetch")
            else:
                found[tp] = committed_offset(each)
    return ItemResults(found, failed)


def _read_consumer_groups(response: Any) -> Iterable[tuple[str, GroupDescription | errors.KafkaError]]:
    for group in response.groups:
        if group.error_code:
            message = group.error_message or f"group {group.group_id}"
            yield group.group_id, errors.from_code(group.error_code, message, api="ConsumerGroupDescribe")
            continue
        members = [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _listed(member.assignment),
                _listed(member.target_assignment),
            )
            for member in group.members
        ]
        yield (
            group.group_id,
            GroupDescription(
                group.group_id,
                "consumer",
                group.group_state,
                _CONSUMER_PROTOCOL,
                group.assignor_name,
                members,
                authorized_operations=operations_of(group.authorized_operations),
            ),
        )


def _listed(assignment: Any) -> list[TopicPartition]:
    return sorted(TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)


def _located(group: GroupDescription, node: Node | None) -> GroupDescription:
    return group._replace(coordinator=node)


def _read_classic_groups(response: Any) -> Iterable[tuple[str, GroupDescription | errors.KafkaError]]:
    for group in response.groups:
        if group.error_code:
            message = group.error_message or f"group {group.group_id}"
            yield group.group_id, errors.from_code(group.error_code, message, api="DescribeGroups")
            continue
        try:
            members = [
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _assigned(bytes(member.member_assignment)) if group.protocol_type == _CONSUMER_PROTOCOL else [],
                )
                for member in group.members
            ]
        except errors.CorruptDataError as error:  # the group's own leader wrote it: no fault of the other groups
            yield group.group_id, errors.CorruptDataError(f"a member's assignment cannot be read: {error}", api="DescribeGroups")
            continue
        yield (
            group.group_id,
            GroupDescription(
                group.group_id,
                "classic",
                group.group_state,
                group.protocol_type,
                group.protocol_data,
                members,
                authorized_operations=operations_of(group.authorized_operations),
            ),
        )


def _assigned(assignment: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment; none before the end of the first rebalance."""
    if not assignment:
        return []
    decoded = decode_stored(ConsumerProtocolAssignment, assignment)
    return sorted(TopicPartition(each.topic, index) for each in decoded.assigned_partitions for index in each.partitions)
