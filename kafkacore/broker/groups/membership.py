"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what happens when they stay away.

Each operation runs inside the coordinator's runtime, one after the other for a shard. It changes the group in memory at once (who joined,
who waits) and returns a record when a generation's assignment is known, the group became empty, or a static member was replaced. What
delayed operations and timers find is handed to the runtime as an operation of its own.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager, its classicGroup methods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkacore import errors
from kafkacore.broker.coordinator_shard import CoordinatorResult
from kafkacore.broker.delayed_groups import (
    DelayedHeartbeat,
    DelayedJoin,
    DelayedSync,
    GroupPurgatories,
    InitialDelayedJoin,
    JoinKey,
    MemberKey,
    SyncKey,
)
from kafkacore.broker.groups.classic import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    ClassicMember,
)
from kafkacore.broker.groups.records import empty_group_record, group_record
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, KafkaError
from kafkacore.protocol import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
FIRST_JOIN_WITH_KNOWN_ID = 4
FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT = 9

Nothing = CoordinatorResult[None]
NOTHING: Nothing = CoordinatorResult([], None)


class RequestContext(NamedTuple):
    """Whose request it is.

    Attributes:
        version: of the API.
        client_id: "" if the client does not say.
        client_host: as Kafka writes it.
        visible: which topics of some the client may describe; None if it may describe all.
    """

    version: int
    client_id: str
    client_host: str
    visible: Callable[[frozenset[str]], frozenset[str]] | None = None


class Owner(Protocol):
    """What the members' side needs of its shard."""

    config: BrokerConfig
    purgatories: GroupPurgatories

    def wall_ms(self) -> int:
        """The time now."""

    def submit(self, operation: Callable[[], Nothing]) -> None:
        """Runs an operation after the one that runs now."""

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None if no group has that name."""


def join_error(code: int, member_id: str = "") -> JoinGroupResponse:
    """No member joined."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def sync_error(code: int) -> SyncGroupResponse:
    """There is no assignment."""
    return SyncGroupResponse(error_code=code, assignment=b"")


class ClassicMembership:
    """The members' side of one shard's classic groups."""

    def __init__(self, owner: Owner) -> None:
        """For a shard."""
        self._owner = owner
        self._rebalances = owner.purgatories.rebalances
        self._heartbeats = owner.purgatories.heartbeats

    # ---- JoinGroup

    def join(
        self,
        group: ClassicGroup,
        is_new_group: bool,
        context: RequestContext,
        request: JoinGroupRequest,
        respond: Callable[[JoinGroupResponse], None],
    ) -> Nothing:
        """A member joins, or joins again.

        Args:
            group: the group, made for this request if is_new_group.
            is_new_group: then it is written down first, so that a tombstone of it can follow.
            context: whose request.
            request: the request.
            respond: answers it, now or when everybody is there.
        """
        member_id = request.member_id
        if not self._accepts(group, member_id):
            group.remove(member_id)
            respond(join_error(Code.GROUP_MAX_SIZE_REACHED))
            return NOTHING
        if not member_id:
            result = self._join_new(group, context, request, respond)
        else:
            result = self._join_known(group, context, request, respond)
        if is_new_group and result is NOTHING:

            def committed(error: KafkaError | None) -> None:
                if error is not None:
                    respond(join_error(error.code or Code.UNKNOWN_SERVER_ERROR, member_id))

            return CoordinatorResult([empty_group_record(group)], None, False, committed=committed)
        return result

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._owner.config.group_max_size
        if group.is_in(EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.is_in(PREPARING_REBALANCE):
            return (member is not None and member.awaiting_join is not None) or group.joined_count() < limit
        return member is not None or len(group.members) < limit

    def _join_new(
        self, group: ClassicGroup, context: RequestContext, request: JoinGroupRequest, respond: Callable[[JoinGroupResponse], None]
    ) -> Nothing:
        if group.is_in(DEAD):
            respond(join_error(Code.COORDINATOR_NOT_AVAILABLE))
            return NOTHING
        if not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
            respond(join_error(Code.INCONSISTENT_GROUP_PROTOCOL))
            return NOTHING
        instance_id = request.group_instance_id
        new_id = group.new_member_id(context.client_id, instance_id)
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is not None:
                return self._replace_static(group, context, request, known, new_id, respond)
            return self._add(group, context, request, new_id, respond)
        if context.version < FIRST_JOIN_WITH_KNOWN_ID:
            return self._add(group, context, request, new_id, respond)
        group.pending_joins.add(new_id)
        self._watch_session(group, new_id, request.session_timeout_ms)
        respond(join_error(Code.MEMBER_ID_REQUIRED, new_id))
        return NOTHING

    def _join_known(
        self, group: ClassicGroup, context: RequestContext, request: JoinGroupRequest, respond: Callable[[JoinGroupResponse], None]
    ) -> Nothing:
        member_id = request.member_id
        if group.is_in(DEAD):
            respond(join_error(Code.COORDINATOR_NOT_AVAILABLE, member_id))
            return NOTHING
        if not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
            respond(join_error(Code.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return NOTHING
        if member_id in group.pending_joins and request.group_instance_id is None:
            return self._add(group, context, request, member_id, respond)
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            respond(join_error(error.code or Code.UNKNOWN_SERVER_ERROR, member_id))
            return NOTHING
        changed = not member.matches(request.protocols)
        leads = group.leader == member_id
        if group.is_in(PREPARING_REBALANCE) or changed or (group.is_in(STABLE) and leads):
            self._update(group, member, request)
            group.await_join(member, respond)
            return self._rebalance_or_complete(group, f"member {member_id} joins again in {group.state_name}")
        respond(self._joined(group, member, group.member_list() if leads and group.is_in(COMPLETING_REBALANCE) else []))
        return NOTHING

    def _joined(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        members: list[JoinGroupResponseMember],
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=Code.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader or group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    @staticmethod
    def _update(group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest) -> None:
        group.set_protocols(member, {protocol.name: bytes(protocol.metadata) for protocol in request.protocols})
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)

    def _add(
        self,
        group: ClassicGroup,
        context: RequestContext,
        request: JoinGroupRequest,
        member_id: str,
        respond: Callable[[JoinGroupResponse], None],
    ) -> Nothing:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
        )
        member.is_new = True
        if group.is_in(PREPARING_REBALANCE) and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, respond)
        self._watch_session(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance_or_complete(group, f"member {member_id} is new")

    def _replace_static(
        self,
        group: ClassicGroup,
        context: RequestContext,
        request: JoinGroupRequest,
        old_id: str,
        new_id: str,
        respond: Callable[[JoinGroupResponse], None],
    ) -> Nothing:
        """A static member came back without its id: it goes on where it was, without a rebalance if that is possible."""
        instance_id = request.group_instance_id or ""
        leader_before = group.leader
        member = group.replace_static_member(instance_id, old_id, new_id)
        self._watch_session(group, new_id, member.session_timeout_ms)
        before = member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms
        self._update(group, member, request)
        group.await_join(member, respond)
        if group.is_in(COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, f"static member {instance_id} is back under a new id")
        if not group.is_in(STABLE):
            return self._complete_join_if_all(group)
        if group.select_protocol() != group.protocol_name:
            return self._rebalance_or_complete(group, f"static member {instance_id} changes the protocol")

        generation = group.generation

        def committed(error: KafkaError | None) -> None:
            if member.awaiting_join is not respond or group.is_in(DEAD):
                return  # it was answered: it came back once more, left, or has joined the next generation
            if group.members.get(new_id) is not member:
                respond(join_error(Code.UNKNOWN_MEMBER_ID, new_id))
            elif not group.is_in(STABLE) or generation != group.generation:
                return  # it waits for the rebalance that has started
            elif error is None:
                leads = group.leader == new_id
                skips = context.version >= FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT
                # Without that it gets its old id as leader's, so that it does not believe it has to assign.
                leader = group.leader if skips else leader_before
                members = group.member_list() if leads and skips else []
                group.complete_join(member, self._joined(group, member, members, leads and skips, leader))
            else:
                group.await_join(member, None)
                group.set_protocols(member, before[0])
                _, member.session_timeout_ms, member.rebalance_timeout_ms = before
                group.replace_static_member(instance_id, new_id, old_id)
                self._watch_session(group, old_id, member.session_timeout_ms)
                respond(join_error(error.code or Code.UNKNOWN_SERVER_ERROR))

        return CoordinatorResult([group_record(group, assignments_of(group))], None, False, committed=committed)

    # ---- rebalancing

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> Nothing:
        return self.prepare_rebalance(group, reason) if group.can_rebalance() else self._complete_join_if_all(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> Nothing:
        """Begins a rebalance: everybody has to join again."""
        if group.is_in(COMPLETING_REBALANCE):
            self._reset_assignments(group, Code.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._rebalances.check_and_complete(SyncKey(group.group_id))
        initial = group.is_in(EMPTY)
        group.transition_to(PREPARING_REBALANCE, self._owner.wall_ms())
        logger.info("group %s, generation %d, rebalances: %s", group.group_id, group.generation, reason)
        if initial:
            delay_ms = self._owner.config.group_initial_rebalance_delay_ms
            self._wait_for_first_members(group, delay_ms, max(group.rebalance_timeout_ms() - delay_ms, 0))
        else:
            self._wait_for_members(group)
        return NOTHING

    def _wait_for_first_members(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        join = InitialDelayedJoin(
            delay_ms,
            remaining_ms,
            group,
            lambda expired: self._submit_complete_join(group, expired),
            lambda next_delay_ms, left_ms: self._wait_for_first_members(group, next_delay_ms, left_ms),
        )
        self._rebalances.try_complete_else_watch(join, [JoinKey(group.group_id)])

    def _wait_for_members(self, group: ClassicGroup) -> None:
        join = DelayedJoin(group.rebalance_timeout_ms(), group, lambda expired: self._submit_complete_join(group, expired))
        self._rebalances.try_complete_else_watch(join, [JoinKey(group.group_id)])

    def _complete_join_if_all(self, group: ClassicGroup) -> Nothing:
        """After an event that a waiting rebalance may have waited for."""
        self._rebalances.check_and_complete(JoinKey(group.group_id))
        return NOTHING

    def _submit_complete_join(self, group: ClassicGroup, expired: bool) -> None:
        self._owner.submit(lambda: self._complete_join(group, expired))

    def _complete_join(self, group: ClassicGroup, expired: bool) -> Nothing:
        """The wait for members has ended: members that did not come are out, the others form the next generation."""
        if self._owner.classic_group(group.group_id) is not group or not group.is_in(PREPARING_REBALANCE):
            return NOTHING
        if not expired and not group.has_all_members_joined():
            self._wait_for_members(group)  # a member came between the wait's end and now
            return NOTHING
        for member in [each for each in group.members.values() if each.awaiting_join is None and not each.is_static]:
            group.remove(member.member_id)
            self._forget_session(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            self._wait_for_members(group)  # static members alone, and none of them came: once more
            return NOTHING
        group.init_next_generation(self._owner.wall_ms())
        if group.is_in(EMPTY):
            logger.info("group %s, generation %d, is empty", group.group_id, group.generation)
            return CoordinatorResult([group_record(group, {})], None, False)
        logger.info("group %s, generation %d, has %d members", group.group_id, group.generation, len(group.members))
        everybody = group.member_list()
        for member in list(group.members.values()):
            group.complete_join(member, self._joined(group, member, everybody if group.leader == member.member_id else []))
            self._watch_session(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        sync = DelayedSync(
            group.rebalance_timeout_ms(), group, lambda generation: self._owner.submit(lambda: self._expire_sync(group, generation))
        )
        self._rebalances.try_complete_else_watch(sync, [SyncKey(group.group_id)])
        return NOTHING

    def _expire_sync(self, group: ClassicGroup, generation: int) -> Nothing:
        """Members that did not fetch their assignment in time are out."""
        if self._owner.classic_group(group.group_id) is not group or generation != group.generation:
            return NOTHING
        if not group.is_in(COMPLETING_REBALANCE, STABLE) or not group.pending_syncs:
            return NOTHING
        late = list(group.pending_syncs)
        for member_id in late:
            group.remove(member_id)
            self._forget_session(group, member_id)
        return self.prepare_rebalance(group, f"{', '.join(late)} did not fetch the assignment")

    # ---- SyncGroup

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]) -> Nothing:
        """A member fetches its assignment; the leader brings all of them."""
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise errors.IllegalGeneration(f"group {group.group_id} is in generation {group.generation}, not {request.generation_id}")
        for named, actual in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
            if named is not None and actual is not None and named != actual:
                raise errors.InconsistentGroupProtocol(f"group {group.group_id} uses {actual}, not {named}")
        if group.is_in(PREPARING_REBALANCE):
            raise errors.RebalanceInProgress(f"group {group.group_id} waits for its members")
        self._synced(group, member.member_id)
        if group.is_in(STABLE):
            respond(self._assigned(group, member))
            return NOTHING
        member.awaiting_sync = respond
        if group.leader != member.member_id:
            return NOTHING
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        generation = group.generation

        def committed(error: KafkaError | None) -> None:
            if not group.is_in(COMPLETING_REBALANCE) or generation != group.generation:
                return
            if error is None:
                for each in group.members.values():
                    each.assignment = assignments.get(each.member_id, b"")
                group.transition_to(STABLE, self._owner.wall_ms())
                self._propagate(group, lambda each: self._assigned(group, each))
            else:
                self._reset_assignments(group, error.code or Code.UNKNOWN_SERVER_ERROR)
                self._owner.submit(lambda: self._rebalance_or_complete(group, f"the assignment could not be written: {error}"))

        return CoordinatorResult([group_record(group, assignments)], None, False, committed=committed)

    def _synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        self._rebalances.check_and_complete(SyncKey(group.group_id))

    def _assigned(self, group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=Code.NONE, protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def _reset_assignments(self, group: ClassicGroup, code: int) -> None:
        for member in group.members.values():
            member.assignment = b""
        self._propagate(group, lambda _: sync_error(code))

    def _propagate(self, group: ClassicGroup, response: Callable[[ClassicMember], SyncGroupResponse]) -> None:
        for member in list(group.members.values()):
            if group.complete_sync(member, response(member)):
                self._watch_session(group, member.member_id, member.session_timeout_ms)

    # ---- Heartbeat and sessions

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatResponse]:
        """A member is alive; it learns whether a rebalance has started."""
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise errors.IllegalGeneration(f"group {group.group_id} is in generation {group.generation}, not {request.generation_id}")
        self.heard_of(group, member)
        code = Code.REBALANCE_IN_PROGRESS if group.is_in(PREPARING_REBALANCE) else Code.NONE
        return CoordinatorResult([], HeartbeatResponse(error_code=code), rests_on_log=False)

    def heard_of(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Begins a member's session again."""
        self._watch_session(group, member.member_id, member.session_timeout_ms)

    def watch_all_sessions(self, group: ClassicGroup) -> None:
        """After loading: everybody gets a session's time to be heard of."""
        for member in group.members.values():
            self._watch_session(group, member.member_id, member.session_timeout_ms)

    def _watch_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        key = MemberKey(group.group_id, member_id)
        member = group.members.get(member_id)
        if member is not None:
            member.heartbeat_satisfied = True
            self._heartbeats.check_and_complete(key)
            member.heartbeat_satisfied = False

        def satisfied() -> bool:
            current = group.members.get(member_id)
            return member_id not in group.pending_joins if current is None else current.has_satisfied_heartbeat()

        heartbeat = DelayedHeartbeat(
            timeout_ms, satisfied, lambda: self._owner.submit(lambda: self._expire_session(group, member_id))
        )
        # A member whose request waits here needs no watching; its session begins again with the answer.
        self._heartbeats.try_complete_else_watch(heartbeat, [key])

    def _forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self._heartbeats.cancel_for_key(MemberKey(group.group_id, member_id))

    def _expire_session(self, group: ClassicGroup, member_id: str) -> Nothing:
        """A member was not heard of in time."""
        if self._owner.classic_group(group.group_id) is not group or group.is_in(DEAD):
            return NOTHING
        if member_id in group.pending_joins:
            group.remove(member_id)
            return self._complete_join_if_all(group)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat():
            return NOTHING
        logger.info("group %s: member %s was not heard of in time", group.group_id, member_id)
        group.complete_join(member, join_error(Code.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return self._after_removal(group, f"member {member_id} was not heard of in time")

    def _after_removal(self, group: ClassicGroup, reason: str) -> Nothing:
        if group.is_in(STABLE, COMPLETING_REBALANCE):
            return self.prepare_rebalance(group, reason)
        return self._complete_join_if_all(group)

    # ---- LeaveGroup

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> CoordinatorResult[LeaveGroupResponse]:
        """Members leave, or are removed by an admin: by id, or static ones by instance id."""
        answers = [
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=self._leave(group, each))
            for each in request.members
        ]
        left = [answer.member_id or answer.group_instance_id or "" for answer in answers if answer.error_code == Code.NONE]
        response = LeaveGroupResponse(error_code=Code.NONE, members=answers)
        if left:
            self._after_removal(group, f"{', '.join(left)} left")
        return CoordinatorResult([], response)

    def _leave(self, group: ClassicGroup, identity: MemberIdentity) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            current = None if instance_id is None else group.static_members.get(instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._forget_session(group, member_id)
            return Code.NONE
        try:
            member = group.validate_member(member_id, instance_id)
        except KafkaError as error:
            return error.code or Code.UNKNOWN_SERVER_ERROR
        self._forget_session(group, member_id)
        group.complete_join(member, join_error(Code.UNKNOWN_MEMBER_ID))
        group.complete_sync(member, sync_error(Code.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return Code.NONE

    # ---- the end

    def forget(self, group: ClassicGroup, code: int) -> None:
        """The group has left this broker: no member is waited for, and what waits gets that answer."""
        for member in list(group.members.values()):
            group.complete_join(member, join_error(code, member.member_id))
            group.complete_sync(member, sync_error(code))
            self._forget_session(group, member.member_id)
        for member_id in group.pending_joins:
            self._forget_session(group, member_id)
        self._rebalances.cancel_for_key(JoinKey(group.group_id))
        self._rebalances.cancel_for_key(SyncKey(group.group_id))
        group.transition_to(DEAD, self._owner.wall_ms())


def assignments_of(group: ClassicGroup) -> dict[str, bytes]:
    """What its members have."""
    return {member.member_id: member.assignment for member in group.members.values()}


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
