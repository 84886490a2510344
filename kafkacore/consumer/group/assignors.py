"""The assignors of Kafka's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkacore import errors
from kafkacore.consumer.group.assignor import MemberAssignment, MemberSubscription, PartitionAssignor
from kafkacore.metadata import ClusterSnapshot
from kafkacore.types import TopicPartition


class RangeAssignor(PartitionAssignor):
    """Per topic, a run of neighbouring partitions for each member."""

    name = "range"

    def assign(self, cluster: ClusterSnapshot, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Shares each topic out among those that subscribe to it."""
        found: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        wanted: dict[str, list[str]] = {}
        for member, subscription in subscriptions.items():
            for topic in subscription.topics:
                wanted.setdefault(topic, []).append(member)
        for topic, members in sorted(wanted.items()):
            info = cluster.topics.get(topic)
            if info is None or not info.partitions:
                continue
            members.sort(key=lambda m: ((instance := subscriptions[m].group_instance_id) is None, instance or "", m))
            share, extra = divmod(len(info.partitions), len(members))
            begin = 0
            for rank, member in enumerate(members):
                end = begin + share + (rank < extra)
                found[member].extend(TopicPartition(topic, info.partitions[i].index) for i in range(begin, end))
                begin = end
        return {member: MemberAssignment(tuple(partitions)) for member, partitions in found.items()}


def make_assignors(strategy: Sequence[Any]) -> list[PartitionAssignor]:
    """The assignors that `partition_assignment_strategy` names."""
    known: dict[str, type[PartitionAssignor]] = {"range": RangeAssignor}
    found: list[PartitionAssignor] = []
    for given in strategy:
        if isinstance(given, str):
            if given not in known:
                raise errors.ConfigError(f"partition_assignment_strategy: no assignor {given!r}; there are {', '.join(known)}")
            found.append(known[given]())
        elif isinstance(given, type):
            found.append(given())
        else:
            found.append(given)
    if not found:
        raise errors.ConfigError("partition_assignment_strategy names no assignor")
    return found
