"""The interface of assignors, and the bytes in which members of a classic group exchange subscriptions and assignments.

Source: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor and ConsumerProtocol; KIP-429 (cooperative), KIP-792 (generation),
KIP-881 (racks).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple

from kafkacore import errors
from kafkacore._codec import name_partitions
from kafkacore.consumer.group.membership import too_many
from kafkacore.metadata import ClusterSnapshot
from kafkacore.protocol.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_stored,
    encode_stored,
)
from kafkacore.types import ConsumerGroupMetadata, TopicPartition

PROTOCOL_TYPE = "consumer"
_VERSION = 3
_NAMED = 10


class RebalanceProtocol(Enum):
    """What members do with their partitions while a group rebalances: give all up first (EAGER), or only those that others get
    (COOPERATIVE).
    """

    EAGER = 0
    COOPERATIVE = 1


class MemberSubscription(NamedTuple):
    """What a member asks for.

    Attributes:
        topics: that it subscribes to.
        user_data: what its assignor added, None for nothing.
        owned_partitions: that it holds; empty under the eager protocol and for members that report none.
        generation_id: in which it came to hold them, -1 when it does not say.
        group_instance_id: of a static member, None for a dynamic one.
        rack_id: where it runs, None when it does not say.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    group_instance_id: str | None = None
    rack_id: str | None = None


class MemberAssignment(NamedTuple):
    """What a member gets."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class PartitionAssignor(ABC):
    """Shares the partitions of a group's topics out among its members. One member, the leader, runs it for all.

    Derive from it to assign in another way, and name the class (or an instance) in `partition_assignment_strategy`. All members of a group
    need the same assignor under the same name::

        class ByName(kafkacore.PartitionAssignor):
            name = "by-name"

            def assign(self, cluster, subscriptions):
                found = {member: [] for member in subscriptions}
                for topic in {topic for subscription in subscriptions.values() for topic in subscription.topics}:
                    members = sorted(member for member, subscription in subscriptions.items() if topic in subscription.topics)
                    for partition in range(cluster.partition_count(topic) or 0):
                        found[members[partition % len(members)]].append(kafkacore.TopicPartition(topic, partition))
                return {member: kafkacore.MemberAssignment(tuple(partitions)) for member, partitions in found.items()}

    Under the cooperative protocol members keep their partitions while the group rebalances. An assignor that supports it must leave out a
    partition that goes from one member to another: the subscriptions name it among the `owned_partitions` of its owner, who gives it up and
    joins again, and the next assignment hands it out. An assignment that does not is refused: `poll` raises UsageError.

    Attributes:
        name: under which the members of a group agree on an assignor.
        supported_protocols: the best one that all assignors of a consumer share is used.
    """

    name: ClassVar[str]
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """What this member adds to its subscription for the leader's assignor."""
        return None

    @abstractmethod
    def assign(self, cluster: ClusterSnapshot, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Decides who gets what.

        Args:
            cluster: topics, partitions, their replicas and racks.
            subscriptions: by member id.

        Returns:
            An assignment for every member; no partition twice.
        """

    def on_assignment(  # noqa: B027 - most assignors have nothing to do here
        self, assignment: MemberAssignment, metadata: ConsumerGroupMetadata
    ) -> None:
        """This member's assignment, each time it gets one."""


def check_assignment(
    name: str, subscriptions: Mapping[str, MemberSubscription], found: Mapping[str, MemberAssignment], protocol: RebalanceProtocol
) -> None:
    """Looks through what an assignor found.

    Source: ConsumerCoordinator.validateCooperativeAssignment, which sees only partitions that their owner loses.

    Raises:
        errors.UsageError: an assignment for a member that is not in the group, one of a wrong type, a partition for two members; under the
            cooperative protocol, a partition for a new member while its owner has not given it up.
    """
    if not isinstance(found, Mapping) or not all(isinstance(mine, MemberAssignment) for mine in found.values()):
        raise errors.UsageError(f"the assignor {name!r} did not return a dict of MemberAssignment by member id: {found!r:.200}")
    if strangers := sorted(map(str, found.keys() - subscriptions.keys())):
        raise errors.UsageError(f"the assignor {name!r} assigned to members that the group does not have: {', '.join(strangers[:_NAMED])}")
    cooperative = protocol is RebalanceProtocol.COOPERATIVE
    owners = {tp: member for member, its in subscriptions.items() for tp in its.owned_partitions} if cooperative else {}
    given: dict[TopicPartition, str] = {}
    wrong: list[str] = []
    for member, mine in found.items():
        own = {*subscriptions[member].owned_partitions} if owners else ()
        for tp in mine.partitions:
            if (other := given.setdefault(tp, member)) != member:
                wrong.append(f"{tp[0]}-{tp[1]} to {other} and to {member}")
            elif tp in owners and tp not in own:
                wrong.append(f"{tp[0]}-{tp[1]} to {member}, while {owners[tp]} has it")
    if wrong:
        rest = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        rule = "; a cooperative assignor leaves out what its owner has still to give up" if cooperative else ""
        raise errors.UsageError(f"the assignor {name!r} gave {'; '.join(wrong[:_NAMED])}{rest}{rule}")


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """A subscription as JoinGroup carries it."""
    return encode_stored(
        ConsumerProtocolSubscription(
            topics=list(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=by_topic(subscription.owned_partitions),
            generation_id=subscription.generation_id,
            rack_id=subscription.rack_id,
        ),
        _VERSION,
    )


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> MemberSubscription:
    """Reads a subscription of any version.

    Raises:
        errors.CorruptDataError: the bytes are none.
    """
    found = decode_stored(ConsumerProtocolSubscription, data)
    owned = name_partitions(found.owned_partitions)
    return MemberSubscription(tuple(found.topics), found.user_data, tuple(owned), found.generation_id, group_instance_id, found.rack_id)


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """An assignment as SyncGroup carries it."""
    return encode_stored(
        ConsumerProtocolAssignment(assigned_partitions=by_topic(assignment.partitions), user_data=assignment.user_data), _VERSION
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """Reads an assignment; no bytes at all are an assignment without partitions.

    Raises:
        errors.CorruptDataError: the bytes are none, or more partitions than a member may have.
    """
    if not data:
        return MemberAssignment(())
    found = decode_stored(ConsumerProtocolAssignment, data)
    if wrong := too_many(sum(len(topic.partitions) for topic in found.assigned_partitions)):
        raise errors.CorruptDataError(wrong)
    return MemberAssignment(tuple(name_partitions(found.assigned_partitions)), found.user_data)


def by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolTopicPartition]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [ConsumerProtocolTopicPartition(topic=name, partitions=indexes) for name, indexes in topics.items()]
