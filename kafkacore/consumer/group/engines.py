"""Which engine keeps a consumer in its group."""

from __future__ import annotations

from collections.abc import Callable

from kafkacore.config import ConsumerConfig
from kafkacore.consumer.group.assignors import make_assignors
from kafkacore.consumer.group.classic import ClassicMembership
from kafkacore.consumer.group.membership import GroupSettings, Membership
from kafkacore.consumer.group.modern import ConsumerMembership
from kafkacore.metadata import Metadata
from kafkacore.net.coordinator import CoordinatorLink


def engines(
    config: ConsumerConfig, metadata: Metadata, want_topics: Callable[[frozenset[str]], None], ask_names: Callable[[frozenset[bytes]], None]
) -> Callable[[CoordinatorLink, GroupSettings], Membership]:
    """Makes the engine of `group_protocol`, from the link to the coordinator and the member's settings.

    Args:
        config: of the consumer.
        metadata: the cluster as known now.
        want_topics: asks for metadata of the topics of all members, for a leader.
        ask_names: asks for metadata that name topic ids of an assignment.
    """

    def engine(link: CoordinatorLink, settings: GroupSettings) -> Membership:
        if config.group_protocol == "consumer":
            return ConsumerMembership(link, settings, config.group_remote_assignor, lambda: metadata.snapshot, ask_names)
        assignors = make_assignors(config.partition_assignment_strategy)
        return ClassicMembership(link, settings, assignors, lambda: metadata.snapshot, want_topics)

    return engine
