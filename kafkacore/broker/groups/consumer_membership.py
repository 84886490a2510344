"""Members of consumer groups (KIP-848): one request, ConsumerGroupHeartbeat, by which they join, say what they want and have, and leave.

    heartbeat:  subscription changed?   -> member record, perhaps regular expressions resolved again
                group has changed?      -> group epoch + 1
                target is older?        -> the assignor makes a new target
                member is not there?    -> its next step (reconcile.py)

Everything is decided from the group as it was before the request plus the records made so far, and takes effect by replay.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, its consumerGroup methods.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult
from kafkacore.broker.groups import records as make
from kafkacore.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, MemberSpec
from kafkacore.broker.groups.consumer import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NO_PARTITIONS,
    NONE_OWNED,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
    ResolvedRegex,
)
from kafkacore.broker.groups.membership import Nothing, RequestContext
from kafkacore.broker.groups.reconcile import next_step
from kafkacore.broker.groups.regex_resolver import ASK_AGAIN_MS, RegexResolver
from kafkacore.config import BrokerConfig
from kafkacore.errors import KafkaError
from kafkacore.protocol import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

logger = logging.getLogger(__name__)

LARGE_GROUP, MEMBERS_PER_MS = 200, 10
"""The target of a group of LARGE_GROUP members or more stands for as many ms as there are MEMBERS_PER_MS among them: an assignor walks all
of them, some 2 us each, and so would every one of a thousand members that join together. Who waits for the next target asks in time."""
T = TypeVar("T")
Owned = Mapping[bytes, frozenset[int]]
Heartbeat = CoordinatorResult[ConsumerGroupHeartbeatResponse]


class TopicInfo(NamedTuple):
    """A topic as groups see it."""

    name: str
    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """The topics of the cluster.

    Attributes:
        version: rises when a topic comes, goes or grows.
    """

    @property
    def version(self) -> int: ...

    def by_name(self, name: str) -> TopicInfo | None:
        """A topic by name."""

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """A topic by id."""

    def names(self) -> Iterable[str]:
        """All names."""


class Timers(Protocol):
    """Named timers."""

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Nothing]) -> None:
        """Runs an operation after a time, instead of what was scheduled under that name."""

    def cancel(self, key: str) -> None:
        """Ends a timer."""

    def is_scheduled(self, key: str) -> bool:
        """Whether a timer of that name runs."""


class Owner(Protocol):
    """What the members' side needs of its shard."""

    config: BrokerConfig
    topics: Topics
    resolver: RegexResolver

    @property
    def timers(self) -> Timers: ...

    @property
    def group_settings(self) -> Callable[[str], Mapping[str, str]]: ...

    def wall_ms(self) -> int:
        """The time now."""

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group; None if no group has that name."""

    def consumer_group_to_join(self, group_id: str, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """The group a member joins: a new group, or what a classic one becomes."""

    def downgrade_without(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], response: T) -> CoordinatorResult[T] | None:
        """The group as a classic one, if no member is left that speaks the consumer protocol."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """What needs no state.

    Raises:
        InvalidRequest, UnsupportedAssignor: why it is refused.
    """
    if (version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVING_EPOCH) and not request.member_id.strip():
        raise errors.InvalidRequest("MemberId can't be empty.")
    for name, value in (("GroupId", request.group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise errors.InvalidRequest(f"{name} can't be empty.")
    if request.member_epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise errors.InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise errors.InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise errors.InvalidRequest("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif request.member_epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise errors.InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVING_EPOCH:
        raise errors.InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise errors.UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
        )


class ConsumerMembership:
    """The members' side of one shard's consumer groups."""

    def __init__(self, owner: Owner) -> None:
        """For a shard."""
        self._owner = owner
        self._target_in_ms = 0  # of the heartbeat under way, if its group is too large for a target now

    # ---- ConsumerGroupHeartbeat

    def heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
        """ConsumerGroupHeartbeat, checked by `check_request`.

        Raises:
            BrokerError: why the member is not served.
        """
        if request.member_epoch < JOINING_EPOCH:
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        owner = self._owner
        joins = request.member_epoch == JOINING_EPOCH
        group = owner.consumer_group_to_join(request.group_id, records) if joins else self._existing(request.group_id)
        full = len(group.members) >= owner.config.group_consumer_max_size
        if full and request.member_id not in group.members:
            raise errors.GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {owner.config.group_consumer_max_size} members."
            )
        owned = _owned(request.topic_partitions)
        member_id = request.member_id or make.new_member_id()
        member = self._member(group, member_id, request, owned, records)
        updated = member._replace(
            instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
            rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms if request.rebalance_timeout_ms != -1 else member.rebalance_timeout_ms,
            server_assignor=request.server_assignor if request.server_assignor is not None else member.server_assignor,
            topic_names=member.topic_names if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
            topic_regex=member.topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            client_id=context.client_id,
            client_host=context.client_host,
            classic=None,
        )
        self._target_in_ms = 0
        after = self.advance(context, group, member, updated, owned, records)
        self.watch_session(group.group_id, member_id)
        default_ms = owner.config.group_consumer_heartbeat_interval_ms
        interval_ms = self._setting(group.group_id, "consumer.heartbeat.interval.ms", default_ms)
        if self._target_in_ms:
            interval_ms = min(interval_ms, self._target_in_ms)
        whole_request = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        told = joins or whole_request or after.assigned != member.assigned
        return CoordinatorResult(
            records,
            ConsumerGroupHeartbeatResponse(
                error_code=errors.Code.NONE,
                member_id=member_id,
                member_epoch=after.epoch,
                heartbeat_interval_ms=interval_ms,
                assignment=_assignment(after) if told else None,
            ),
        )

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._owner.consumer_group(group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Consumer group {group_id} not found.")
        return group

    def _member(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        owned: Owned | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        """The member as it was before the request; a new one if it joins."""
        joins = request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id, ConsumerMember(member_id)) if joins else group.member(member_id)
            check_epoch(member, request.member_epoch, owned)
            return member
        existing = group.static_member(request.instance_id)
        if not joins:
            if existing is None:
                raise errors.UnknownMemberId(f"Instance id {request.instance_id} is unknown.")
            check_instance(existing, member_id, request.instance_id)
            check_epoch(existing, request.member_epoch, owned)
            return existing
        if existing is None:
            return group.members.get(member_id, ConsumerMember(member_id))
        if not existing.uses_classic_protocol and existing.epoch != STATIC_LEAVING_EPOCH:
            raise errors.UnreleasedInstanceId(
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the instance id is "
                f"owned by {existing.member_id} member."
            )
        replacement = existing._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        records.extend(make.replacement(group, existing, replacement))
        return replacement

    def advance(
        self,
        context: RequestContext,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        owned: Owned | None,
        records: list[CoordinatorRecord],
    ) -> ConsumerMember:
        """Takes in what a member wants, and lets it take its next step.

        Args:
            context: of the member's request.
            group: before.
            member, updated: the member before, and with what it wants now.
            owned: what it says it has.
            records: gets what is decided.

        Returns:
            The member after it.
        """
        group_id, member_id = group.group_id, updated.member_id
        if updated != member or member_id not in group.members:
            records.append(make.member_record(group_id, updated))
        names_changed = updated.topic_names != member.topic_names
        regex_changed = updated.topic_regex != member.topic_regex
        view = self._resolve(context, group, updated, updated.topic_regex if regex_changed else "", records)
        changed = names_changed or regex_changed
        epoch = group.epoch
        if changed or view.changed or not group.has_seen_topics(self._owner.topics.version):
            metadata_hash = self.hash_of(view.names)
            if changed or view.changed or metadata_hash != group.metadata_hash:
                epoch += 1
                records.append(make.group_epoch_record(group_id, epoch, metadata_hash))
                logger.info("consumer group %s is in epoch %d", group_id, epoch)
            group.seen_topics_version, group.seen_epoch = self._owner.topics.version, epoch
        target_epoch, target = self._target(group, epoch, view, updated, records)
        if not changed and updated.is_reconciled_to(target_epoch):
            return updated
        after = next_step(updated, target_epoch, target, self._topic_ids(view.of(updated)), changed, owned, _held_by_others(group, member))
        if after != updated:
            records.append(make.current_record(group_id, after))
            if not after.uses_classic_protocol:
                if after.state is MemberState.UNREVOKED_PARTITIONS:
                    self._watch_revocation(group_id, after)
                else:
                    self._owner.timers.cancel(rebalance_key(group_id, member_id))
        return after

    # ---- topics

    def _resolve(
        self, context: RequestContext, group: ConsumerGroup, updated: ConsumerMember, new_regex: str, records: list[CoordinatorRecord]
    ) -> _View:
        """Brings the group's expressions up to date: when they change, when topics came, and every now and then. As in Kafka the member
        whose heartbeat this is decides for the group: topics that it may not describe do not match."""
        if new_regex:
            self._owner.resolver.check(new_regex)  # refused here or never
        now_ms, version = self._owner.wall_ms(), self._owner.topics.version
        age_ms = self._owner.config.group_consumer_regex_refresh_interval_ms
        stored = group.members.get(updated.member_id)
        unchanged = stored is not None and stored.topic_regex == updated.topic_regex
        if unchanged and (
            not (group.regexes or group.regex_counts) or (group.regexes_version == version and now_ms - group.regexes_wall_ms <= age_ms)
        ):
            return _View(group, updated, group.regexes, False)
        gone = group.replaced_by(updated)
        _, wanted = group.wanted(gone, updated)
        resolved = {regex: group.regexes[regex] for regex in wanted if regex in group.regexes}
        before = dict(resolved)
        all_known = unchanged and len(gone) == 1
        for regex in group.regexes.keys() - wanted:
            records.append(make.regex_tombstone(group.group_id, regex))
            all_known = False
        for regex in sorted(wanted):
            known = resolved.get(regex)
            if known is None or known.version != version or now_ms - known.wall_ms > age_ms:
                topics = self._owner.resolver.topics(regex, version)
                if topics is None:
                    self._resolve_later(group.group_id)
                    all_known = False
                    continue
                if context.visible is not None:
                    topics = context.visible(topics)
                resolved[regex] = ResolvedRegex(topics, version, now_ms)
                if known is None or known.topics != topics:
                    records.append(make.regex_record(group.group_id, regex, resolved[regex]))
                    all_known = False
                else:
                    group.regexes[regex] = resolved[regex]  # looked at again; nothing to write
        if all_known:
            group.regexes_version, group.regexes_wall_ms = version, min((each.wall_ms for each in resolved.values()), default=now_ms)
        changed = {regex: each.topics for regex, each in before.items()} != {regex: each.topics for regex, each in resolved.items()}
        return _View(group, updated, resolved, changed)

    def _resolve_later(self, group_id: str) -> None:
        """Goes on with expressions that took too long; the next heartbeat finds what came of it, as in Kafka."""
        key = f"regex\0{group_id}"
        if not self._owner.timers.is_scheduled(key):
            self._owner.timers.schedule(key, ASK_AGAIN_MS, lambda: self._go_on_resolving(group_id))

    def _go_on_resolving(self, group_id: str) -> Nothing:
        group = self._owner.consumer_group(group_id)
        if group is not None:
            for regex in sorted(group.regex_counts):
                if self._owner.resolver.topics(regex, self._owner.topics.version) is None:
                    self._resolve_later(group_id)
                    break
        return CoordinatorResult([], None, rests_on_log=False)

    def hash_of(self, names: Iterable[str]) -> int:
        """A number for the topics a group wants as they are now, 0 for none. (Kafka's is another one, which costs a group at most one
        epoch.)"""
        topics = [topic for name in sorted(names) if (topic := self._owner.topics.by_name(name)) is not None]
        if not topics:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic in topics:
            digest.update(topic.topic_id + topic.partitions.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def _topic_ids(self, names: Iterable[str]) -> frozenset[bytes]:
        found = (self._owner.topics.by_name(name) for name in names)
        return frozenset(topic.topic_id for topic in found if topic is not None)

    # ---- the target

    def _target(
        self,
        group: ConsumerGroup,
        epoch: int,
        view: _View,
        updated: ConsumerMember,
        records: list[CoordinatorRecord],
    ) -> tuple[int, Partitions]:
        """The target of a member; created again if the group has changed since the last, but not more often than is configured."""
        previous = group.static_members.get(updated.instance_id) if updated.instance_id is not None else None
        current = group.target.get(updated.member_id if previous is None else previous, NO_PARTITIONS)
        now_ms = self._owner.wall_ms()
        interval_ms = self._setting(
            group.group_id, "consumer.assignment.interval.ms", self._owner.config.group_consumer_assignment_interval_ms
        )
        too_early = group.assignment_wall_ms != 0 and interval_ms != 0 and now_ms < group.assignment_wall_ms + interval_ms
        if group.assignment_epoch >= epoch or too_early:
            return group.assignment_epoch, current
        size = len(group.members)
        if size >= LARGE_GROUP and 0 <= now_ms - group.assignment_wall_ms < size // MEMBERS_PER_MS:
            self._target_in_ms = group.assignment_wall_ms + size // MEMBERS_PER_MS - now_ms
            return group.assignment_epoch, current
        members = group.members_with(updated)
        specs = {}
        topic_ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}  # most members want the same
        for member_id, member in members.items():
            assigned = current if member_id == updated.member_id else group.target.get(member_id, NO_PARTITIONS)
            wish = member.topic_names, member.topic_regex
            wanted = topic_ids.get(wish)
            if wanted is None:
                wanted = topic_ids[wish] = self._topic_ids(view.of(member))
            specs[member_id] = MemberSpec(wanted, assigned, member.instance_id)
        known = map(self._owner.topics.by_id, frozenset().union(*topic_ids.values()))
        sizes = {topic.topic_id: topic.partitions for topic in known if topic is not None}
        name = group.preferred_assignor(members.values()) or DEFAULT_ASSIGNOR
        result = ASSIGNORS[name](specs, sizes)
        for member_id in specs:
            found = result.get(member_id, NO_PARTITIONS)
            if found is group.target.get(member_id):
                continue
            target = {topic_id: frozenset(partitions) for topic_id, partitions in found.items() if partitions}
            if member_id not in group.target or group.target[member_id] != target:
                records.append(make.target_record(group.group_id, member_id, target))
            if member_id == updated.member_id:
                current = target
        records.append(make.target_epoch_record(group.group_id, epoch, now_ms))
        return epoch, current

    # ---- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
        group = self._owner.consumer_group(request.group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Group {request.group_id} not found.")
        response = ConsumerGroupHeartbeatResponse(
            error_code=errors.Code.NONE, member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            return self.removal(group, [group.member(request.member_id)], response)
        member = group.static_member(request.instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {request.instance_id} is unknown.")
        check_instance(member, request.member_id, request.instance_id)
        if request.member_epoch == LEAVING_EPOCH:
            return self.removal(group, [member], response)
        # It will be back: it keeps what it has, for a session's time.
        kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
        away = member._replace(epoch=STATIC_LEAVING_EPOCH, assigned=kept, pending_revocation=NONE_OWNED)
        return CoordinatorResult([make.current_record(group.group_id, away)], response)

    def removal(self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: T) -> CoordinatorResult[T]:
        """Members are gone; the others learn by their heartbeats. With the last member of this protocol the group becomes a classic one."""
        if not members:
            return CoordinatorResult([], response)
        downgraded = self._owner.downgrade_without(group, members, response)
        if downgraded is not None:
            return downgraded
        records: list[CoordinatorRecord] = []
        gone = [member.member_id for member in members]
        for member_id in gone:
            records.extend(make.member_tombstones(group.group_id, member_id))
        _, wanted = group.wanted(members)
        records.extend(make.regex_tombstone(group.group_id, regex) for regex in group.regexes if regex not in wanted)
        names = group.subscribed_names(members)
        records.append(make.group_epoch_record(group.group_id, group.epoch + 1, self.hash_of(names)))

        def appended(error: KafkaError | None) -> None:
            if error is None:  # else they are still members, and to be heard of
                for member_id in gone:
                    self.forget(group.group_id, member_id)

        return CoordinatorResult(records, response, appended=appended)

    def forget(self, group_id: str, member_id: str) -> None:
        """Ends a member's timers."""
        for key in (session_key, rebalance_key, join_key, sync_key):
            self._owner.timers.cancel(key(group_id, member_id))

    def _setting(self, group_id: str, name: str, default: int) -> int:
        """A setting that a group may have of its own."""
        text = self._owner.group_settings(group_id).get(name)
        return default if text is None else int(text)

    # ---- time

    def watch_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Begins a member's session again."""
        if timeout_ms is None:
            timeout_ms = self._setting(group_id, "consumer.session.timeout.ms", self._owner.config.group_consumer_session_timeout_ms)
        self._owner.timers.schedule(
            session_key(group_id, member_id), timeout_ms, lambda: self.expire(group_id, member_id, None, "was not heard of in time")
        )

    def _watch_revocation(self, group_id: str, member: ConsumerMember) -> None:
        self._owner.timers.schedule(
            rebalance_key(group_id, member.member_id),
            member.rebalance_timeout_ms,
            lambda: self.expire(group_id, member.member_id, member.epoch, "did not give its partitions up in time"),
        )

    def expire(self, group_id: str, member_id: str, epoch: int | None, why: str) -> Nothing:
        """A member did not do in time what it had to; not if it has gone on to another epoch than the one given."""
        group = self._owner.consumer_group(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or (epoch is not None and member.epoch != epoch):
            return CoordinatorResult([], None)
        logger.info("consumer group %s: member %s %s", group_id, member_id, why)
        return self.removal(group, [member], None)

    def watch_all(self, group: ConsumerGroup) -> None:
        """After loading: everybody gets a session's time to be heard of, and its rebalance timeout if it has to give something up."""
        for member in group.members.values():
            timeout_ms = None if member.classic is None else member.classic.session_timeout_ms
            self.watch_session(group.group_id, member.member_id, timeout_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self._watch_revocation(group.group_id, member)


class _View(NamedTuple):
    """The group as it will be: with a member as it wants to be, with the expressions as they will be, and whether one of them stands for
    other topics than before."""

    group: ConsumerGroup
    updated: ConsumerMember
    regexes: Mapping[str, ResolvedRegex]
    changed: bool

    def of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics a member wants."""
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    @property
    def names(self) -> set[str]:
        """The topics all members want."""
        names, regexes = self.group.wanted(self.group.replaced_by(self.updated), self.updated)
        return names.union(*(self.regexes[regex].topics for regex in regexes if regex in self.regexes))


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Whether a member may go on in the epoch it says it is in.

    Raises:
        FencedMemberEpoch: it may not, and must begin again.
    """
    if epoch == JOINING_EPOCH or epoch == member.epoch:
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    # It may not have got our last answer; then it has nothing but what it had been given.
    if epoch == member.previous_epoch and epoch < member.epoch and owned is not None:
        if all(partition in member.assigned.get(topic_id, {}) for topic_id, partitions in owned.items() for partition in partitions):
            return
    raise errors.FencedMemberEpoch(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin."
    )


def check_instance(member: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Whether an instance id is still this member's.

    Raises:
        FencedInstanceId: another one has it.
    """
    if member.member_id != member_id:
        raise errors.FencedInstanceId(f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.")


def _held_by_others(group: ConsumerGroup, member: ConsumerMember) -> Callable[[bytes, int], str | None]:
    """Who holds a partition; what a member replaces under its instance id is its own."""
    replaced = None if member.instance_id is None else group.static_members.get(member.instance_id)

    def holder(topic_id: bytes, partition: int) -> str | None:
        found = group.holder(topic_id, partition)
        return None if found is not None and found == replaced and found != member.member_id else found

    return holder


def _owned(topics: Sequence[ConsumerGroupHeartbeatTopicPartitions] | None) -> Owned | None:
    return None if topics is None else {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics}


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
            if partitions
        ]
    )


def session_key(group_id: str, member_id: str) -> str:
    """The timer of a member's session."""
    return f"session\0{group_id}\0{member_id}"


def rebalance_key(group_id: str, member_id: str) -> str:
    """The timer of a member that has to give partitions up."""
    return f"rebalance\0{group_id}\0{member_id}"


def join_key(group_id: str, member_id: str) -> str:
    """The timer of a classic member that has to join again."""
    return f"join\0{group_id}\0{member_id}"


def sync_key(group_id: str, member_id: str) -> str:
    """The timer of a classic member that has to fetch its assignment."""
    return f"sync\0{group_id}\0{member_id}"
