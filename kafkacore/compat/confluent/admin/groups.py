"""confluent-kafka's calls about groups and their offsets.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kafkacore import errors as ours
from kafkacore import protocol as p
from kafkacore import types
from kafkacore.admin import GroupDescription
from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.admin.base import GROUP_KEY
from kafkacore.compat.confluent.admin.base import AdminBase, a_list, outcomes
from kafkacore.compat.confluent.admin.kinds import operations_of
from kafkacore.compat.confluent.admin.values import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)
from kafkacore.compat.confluent.kafka_error import KafkaException, of
from kafkacore.compat.confluent.metadata import BrokerMetadata
from kafkacore.compat.confluent.model import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, node_of
from kafkacore.compat.confluent.partitions import OFFSET_INVALID, TopicPartition, engines_offset, listed, of_committed

_STATES = {
    "Unknown": ConsumerGroupState.UNKNOWN,
    "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
    "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING,
    "Stable": ConsumerGroupState.STABLE,
    "Dead": ConsumerGroupState.DEAD,
    "Empty": ConsumerGroupState.EMPTY,
}
_WORDS = {state: word for word, state in _STATES.items()}
_OF_CONSUMERS = ("consumer", "")
"""Protocol types of groups of consumers, and of simple groups, which only have offsets."""


class GroupAdmin(AdminBase):
    """The calls about groups."""

    def list_consumer_groups(self, **kwargs: Any) -> Future[Any]:
        """Groups of consumers.

        Args:
            **kwargs: request_timeout: seconds; states: a set of ConsumerGroupState; types: a set of ConsumerGroupType. None for all.

        Returns:
            A future of ListConsumerGroupsResult.
        """
        options = self._options("list_consumer_groups", kwargs, states=None, types=None)
        states = [_WORDS[each] for each in _a_set(options.states, ConsumerGroupState, "states")]
        kinds = [each.name.lower() for each in _a_set(options.types, ConsumerGroupType, "types")]

        def work(engine: Engine) -> ListConsumerGroupsResult:
            try:
                found = engine.list_groups(states=states, types=kinds, partial=True, timeout=options.left())
            except ours.KafkaTimeoutError:
                raise
            except ours.KafkaError as error:
                return ListConsumerGroupsResult([], [KafkaException(of(error))])
            if found.errors and all(isinstance(error, ours.KafkaTimeoutError) for error in found.errors.values()):
                found.check()
            return ListConsumerGroupsResult(
                [
                    ConsumerGroupListing(each.group_id, not each.protocol_type, _state(each.state), _kind(each.type))
                    for each in found
                    if each.protocol_type in _OF_CONSUMERS
                ],
                [KafkaException(of(error)) for error in found.errors.values()],
            )

        return self._one(work)

    def describe_consumer_groups(self, group_ids: list[str], **kwargs: Any) -> dict[str, Future[Any]]:
        """Members and states of groups. A group that is not there is DEAD.

        Args:
            group_ids: the groups.
            **kwargs: request_timeout: seconds; include_authorized_operations: ask what this client may do, too.

        Returns:
            By group a future of ConsumerGroupDescription.
        """
        options = self._options("describe_consumer_groups", kwargs, include_authorized_operations=False)
        wanted = list(dict.fromkeys(a_list(group_ids, str, "group ids")))

        def work(engine: Engine) -> dict[str, Any]:
            found = engine.describe_groups(
                wanted, include_authorized_operations=options.include_authorized_operations, timeout=options.left()
            )
            answers: dict[str, Any] = outcomes(found, {group: group for group in wanted}, _described)
            for group, answer in answers.items():
                if isinstance(answer, ours.GroupIdNotFound):
                    node = _coordinator(engine, group, options)
                    answers[group] = _described(GroupDescription(group, "classic", "Dead", "", "", [], node))
            return answers

        return self._each(wanted, work)

    def delete_consumer_groups(self, group_ids: list[str], **kwargs: Any) -> dict[str, Future[Any]]:
        """Deletes groups, which must be empty, with their offsets.

        Args:
            group_ids: the groups.
            **kwargs: request_timeout: seconds.

        Returns:
            By group a future of None.
        """
        options = self._options("delete_consumer_groups", kwargs)
        wanted = list(dict.fromkeys(a_list(group_ids, str, "group ids", ValueError)))

        def work(engine: Engine) -> dict[str, Any]:
            return outcomes(engine.delete_groups(wanted, timeout=options.left()), {group: group for group in wanted})

        return self._each(wanted, work)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """Groups of all kinds with the bytes of their members, at once. Deprecated.

        Args:
            group: one group; None for all.
            timeout: seconds; -1 waits as long as it takes.

        Raises:
            KafkaException: no answer in time.
        """
        warnings.warn("list_groups() is deprecated, describe_consumer_groups() is not", DeprecationWarning, stacklevel=2)

        def work(engine: Engine, left: float) -> list[GroupMetadata]:
            names = [each.group_id for each in engine.list_groups(timeout=left) if group in (None, each.group_id)]

            def request(ids: list[str]) -> tuple[type, Callable[[int], Any]]:
                return p.DescribeGroupsRequest, lambda version: p.DescribeGroupsRequest(groups=ids)

            def read(response: Any) -> Any:
                return [(each.group_id, each) for each in response.groups]

            found = engine._ask_coordinators(names, GROUP_KEY, request, read, left, lambda each, node: (each, node))
            return [_metadata(*each) for each in found.check().values()]

        made: list[GroupMetadata] = self._now("Failed to list groups", timeout, work)
        return made

    # -- offsets ------------------------------------------------------------------------------------------------------------------

    def list_consumer_group_offsets(
        self, list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions], **kwargs: Any
    ) -> dict[str, Future[Any]]:
        """What a group has committed.

        Args:
            list_consumer_group_offsets_request: one group, with partitions, or None for all that have offsets.
            **kwargs: request_timeout: seconds; require_stable: wait for transactions that commit offsets.

        Returns:
            By group a future of ConsumerGroupTopicPartitions, with OFFSET_INVALID where nothing is committed.
        """
        options = self._options("list_consumer_group_offsets", kwargs, require_stable=False)
        asked = _one_group(list_consumer_group_offsets_request)
        partitions = asked.topic_partitions
        if partitions is not None:
            _check(partitions)
            if any(each.offset != OFFSET_INVALID for each in partitions):
                raise ValueError("Element of 'topic_partitions' must not have 'offset' value")
        wanted = None if partitions is None else [(each.topic, each.partition) for each in partitions]

        def work(engine: Engine) -> dict[str, Any]:
            found = engine.list_group_offsets(asked.group_id, wanted, require_stable=options.require_stable, timeout=options.left())
            answer = [of_committed(tp, offset) for tp, offset in sorted(found.items(), key=lambda item: item[0])]
            return {asked.group_id: ConsumerGroupTopicPartitions(asked.group_id, answer)}

        return self._each([asked.group_id], work)

    def alter_consumer_group_offsets(
        self, alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions], **kwargs: Any
    ) -> dict[str, Future[Any]]:
        """Commits offsets for a group without members.

        Args:
            alter_consumer_group_offsets_request: one group, with partitions and offsets.
            **kwargs: request_timeout: seconds.

        Returns:
            By group a future of ConsumerGroupTopicPartitions; a partition that failed has its error.
        """
        options = self._options("alter_consumer_group_offsets", kwargs)
        asked = _one_group(alter_consumer_group_offsets_request)
        if asked.topic_partitions is None:
            raise ValueError("'topic_partitions' cannot be null")
        _check(asked.topic_partitions)
        if any(each.offset < 0 for each in asked.topic_partitions):
            raise ValueError("Element of 'topic_partitions' must not have negative value for 'offset' field")
        offsets = {types.TopicPartition(each.topic, each.partition): engines_offset(each) for each in asked.topic_partitions}
        wanted: dict[tuple[str, int], int | types.OffsetAndMetadata] = dict(offsets.items())

        def work(engine: Engine) -> dict[str, Any]:
            failed = engine.alter_group_offsets(asked.group_id, wanted, timeout=options.left()).errors
            answer = [
                TopicPartition(tp.topic, tp.partition, given.offset, None, given.leader_epoch).failed(
                    of(failed[tp]) if tp in failed else None
                )
                for tp, given in sorted(offsets.items(), key=lambda item: item[0])
            ]
            return {asked.group_id: ConsumerGroupTopicPartitions(asked.group_id, answer)}

        return self._each([asked.group_id], work)


def _a_set(given: Any, kind: type[Any], name: str) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, set):
        raise TypeError(f"'{name}' must be a set")
    if not all(isinstance(each, kind) for each in given):
        raise TypeError(f"All elements of {name} must be of type {kind.__name__}")
    return sorted(given)


def _state(word: str) -> ConsumerGroupState:
    return _STATES.get(word, ConsumerGroupState.UNKNOWN)


def _kind(word: str) -> ConsumerGroupType:
    return ConsumerGroupType.__members__.get(word.upper(), ConsumerGroupType.UNKNOWN)


def _assignment(partitions: list[types.TopicPartition]) -> MemberAssignment:
    return MemberAssignment([TopicPartition(*tp) for tp in partitions])


def _described(found: GroupDescription) -> ConsumerGroupDescription:
    members = [
        MemberDescription(
            each.member_id,
            each.client_id,
            each.client_host,
            _assignment(each.partitions),
            each.instance_id,
            None if each.target_partitions is None else _assignment(each.target_partitions),
        )
        for each in found.members
    ]
    return ConsumerGroupDescription(
        found.group_id,
        not found.protocol_type,
        members,
        found.assignor,
        _state(found.state),
        node_of(found.coordinator),
        operations_of(found.authorized_operations),
        _kind(found.type),
    )


def _coordinator(engine: Engine, group: str, options: Any) -> types.Node | None:
    place = engine._coordinators([group], GROUP_KEY, engine._deadline_ms(options.left()))[group]
    return engine._driver.metadata.snapshot.nodes.get(place) if isinstance(place, int) else None


def _metadata(answer: Any, node: types.Node | None) -> GroupMetadata:
    found = GroupMetadata()
    found.id, found.state = answer.group_id, answer.group_state
    found.protocol_type, found.protocol = answer.protocol_type, answer.protocol_data
    if answer.error_code == ours.Code.GROUP_ID_NOT_FOUND:
        found.state = "Dead"
    elif answer.error_code:
        found.error = of(ours.from_code(answer.error_code, api="DescribeGroups"))
    if node is not None:
        found.broker = BrokerMetadata()
        found.broker.id, found.broker.host, found.broker.port = node.id, node.host, node.port
    for each in answer.members:
        member = GroupMember()
        member.id, member.client_id, member.client_host = each.member_id, each.client_id, each.client_host
        member.metadata, member.assignment = bytes(each.member_metadata), bytes(each.member_assignment)
        found.members.append(member)
    return found


def _one_group(request: Any) -> ConsumerGroupTopicPartitions:
    if not isinstance(request, list):
        raise TypeError("request must be a list")
    if len(request) != 1:
        raise ValueError("a call is about one consumer group")
    (asked,) = request
    if not isinstance(asked, ConsumerGroupTopicPartitions):
        raise TypeError("Expected list of 'ConsumerGroupTopicPartitions'")
    if not isinstance(asked.group_id, str):
        raise TypeError("'group_id' must be a string")
    if not asked.group_id:
        raise ValueError("'group_id' cannot be empty")
    return asked


def _check(partitions: Any) -> None:
    """Partitions of a request.

    Raises:
        TypeError: no list, or something else in it.
        ValueError: an empty list, an empty name, or a negative number.
    """
    if not isinstance(partitions, list):
        raise TypeError("'topic_partitions' must be a list or None")
    if not partitions:
        raise ValueError("'topic_partitions' cannot be empty")
    for each in listed(partitions):
        if not each.topic:
            raise ValueError("Element of 'topic_partitions' must not have 'topic' attribute as Empty")
        if each.partition < 0:
            raise ValueError("Element of 'topic_partitions' must not have negative value for 'partition' field")
