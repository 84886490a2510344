"""One member's next step from what it has to what it is to have.

    1. It gives up what the target no longer holds, and stays in its epoch until its heartbeat shows that it has.
       [test_a_partition_is_handed_over_only_when_its_owner_has_let_it_go, test_steps_of_one_member]
    2. Then it enters the target's epoch and gets what is free. What others still hold it gets later, one heartbeat after another.
       [test_a_partition_is_handed_over_only_when_its_owner_has_let_it_go, test_steps_of_one_member]

So a partition has at most one owner at any time, and no member waits for the whole group.

Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkacore import errors
from kafkacore.broker.groups.consumer import NONE_OWNED, ConsumerMember, MemberState, Owned, Partitions

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    subscribed_topic_ids: frozenset[bytes],
    subscription_changed: bool,
    owned: Mapping[bytes, frozenset[int]] | None,
    holder: Callable[[bytes, int], str | None],
) -> ConsumerMember:
    """The member after its heartbeat.

    Args:
        member: before it.
        target_epoch: the assignment epoch.
        target: what it is to have then.
        subscribed_topic_ids: the topics it wants; of others it gets nothing.
        subscription_changed: with this heartbeat.
        owned: what it says it has; None if it did not say.
        holder: who has a partition now, itself included.

    Returns:
        The same member if nothing changes.

    Raises:
        FencedMemberEpoch: its state is of a newer Kafka, and it must begin again.
    """
    step = _Step(member, target_epoch, target, subscribed_topic_ids, owned, holder)
    if member.state is STABLE:
        if member.epoch != target_epoch:
            return step.towards_target(member.epoch)
        return step.within_subscription() if subscription_changed else member
    if member.state is UNREVOKED:
        if step.still_owns(member.pending_revocation):
            return step.within_subscription() if subscription_changed else member
        return step.towards_target(member.epoch)
    if member.state is UNRELEASED:
        return step.towards_target(member.epoch)
    if owned is None or any(owned.values()):
        raise errors.FencedMemberEpoch("The consumer group member is in an unknown state. It must abandon its partitions and rejoin.")
    return step.towards_target(target_epoch)


class _Step:
    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Partitions,
        subscribed_topic_ids: frozenset[bytes],
        owned: Mapping[bytes, frozenset[int]] | None,
        holder: Callable[[bytes, int], str | None],
    ) -> None:
        self.member = member
        self.target_epoch = target_epoch
        self.target = target
        self.subscribed = subscribed_topic_ids
        self.owned = owned
        self.holder = holder

    def still_owns(self, revoked: Owned) -> bool:
        """Whether the member has something left to give up; it has as long as it does not say what it has."""
        if self.owned is None:
            return True
        return any(partition in revoked.get(topic_id, {}) for topic_id, partitions in self.owned.items() for partition in partitions)

    def within_subscription(self) -> ConsumerMember:
        """Takes away what the member no longer subscribes to, without waiting for a new target."""
        member = self.member
        kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in self.subscribed}
        if len(kept) == len(member.assigned):
            return member
        revoked = {topic_id: dict(partitions) for topic_id, partitions in member.pending_revocation.items()}
        for topic_id, partitions in member.assigned.items():
            if topic_id not in kept:
                revoked.setdefault(topic_id, {}).update(partitions)
        if self.still_owns(revoked):
            return member.moved_to(member.epoch, UNREVOKED, kept, revoked)
        return member.moved_to(member.epoch, member.state, kept, member.pending_revocation)

    def towards_target(self, epoch: int) -> ConsumerMember:
        """Gives up what is not in the target, or else takes what is free of it."""
        member = self.member
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        free: dict[bytes, list[int]] = {}
        waits = False
        for topic_id in dict.fromkeys([*self.target, *member.assigned]):
            wanted = self.target.get(topic_id, frozenset()) if topic_id in self.subscribed else frozenset()
            has = member.assigned.get(topic_id, {})
            for partition, since in has.items():
                (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = since
            pending = member.pending_revocation.get(topic_id, {})
            for partition in sorted(wanted - has.keys()):
                if self.holder(topic_id, partition) is None or partition in pending:
                    free.setdefault(topic_id, []).append(partition)
                else:
                    waits = True
        if revoked and self.still_owns(revoked):
            return member.moved_to(epoch, UNREVOKED, kept, revoked)
        for topic_id, partitions in free.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target_epoch))
        return member.moved_to(self.target_epoch, UNRELEASED if waits else STABLE, kept, NONE_OWNED)
