"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat; LeaveGroup is in departure.py.

    OUT --(nothing to give up)--> JOINING --> SYNCING --> ADOPTING --> STABLE
     |                               ^  |        ^
     +--> REVOKING --(carried out)---+  +-> ASSIGNING (the leader, until it knows the topics of all members)

    STABLE, ADOPTING and SYNCING go back to OUT when the group rebalances, the subscription changes, or the member is not known any more.
    LEFT: the application did not poll for max_poll_interval_ms; the next poll goes to OUT.
    Or another process has the same group_instance_id.

Rules:
1. Partitions are given up before JoinGroup is sent: all of them under the eager protocol, under the cooperative one those of topics that
   are not subscribed to any more. What a new assignment takes away under the cooperative protocol is given up when the assignment is
   adopted, and the member joins once more, so that the leader can hand it out.
   [test_an_eager_member_gives_everything_up_before_it_joins_again,
   test_a_cooperative_member_gives_topics_up_that_it_does_not_subscribe_to_any_more,
   test_a_cooperative_member_that_gave_partitions_up_joins_once_more]
2. A member that lost its generation (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, left) has lost its partitions:
   `Change.lost`. [test_a_member_that_lost_its_generation_has_lost_its_partitions]
3. Heartbeats go out whenever there is a generation, also while the polling thread is busy with a change; not while JoinGroup is under way,
   which takes their place. [test_heartbeats_go_out_during_a_change_and_not_while_a_join_is_under_way]
4. A JoinGroup or SyncGroup on its way is waited for, whatever changes until then: the coordinator reads no second request of a connection
   while it holds the first one back. A member that leaves does not wait, it takes another connection. [TestAnythingHappens,
   test_a_member_that_leaves_takes_another_connection]
5. A member that commits before it leaves (`hold`) joins no more. With a JoinGroup under way it takes another connection: commits of its
   generation are taken until all have joined. With a SyncGroup it goes on: they are refused until the leader has assigned.
   [test_a_member_that_commits_before_it_leaves_gives_a_join_up_and_waits_for_an_assignment, test_while_the_leader_assigns]
6. A static member that was fenced stays out until the owner leaves: else two processes with one group_instance_id would throw each other
   out. [test_a_fenced_static_member_stays_out]

Source: Kafka's AbstractCoordinator and ConsumerCoordinator; KIP-62, KIP-345 (static members), KIP-394 (member id required), KIP-429
(cooperative), KIP-800 (reasons), KIP-814 (a static leader that comes back keeps the assignment).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from kafkacore import errors
from kafkacore.consumer.group.assignor import (
    PROTOCOL_TYPE,
    MemberAssignment,
    MemberSubscription,
    PartitionAssignor,
    RebalanceProtocol,
    check_assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkacore.consumer.group.departure import Departure
from kafkacore.consumer.group.membership import COORDINATOR_ERRORS, Change, GroupSettings, HeartbeatPace, taken_over
from kafkacore.consumer.group.subscribed import WatchedTopics
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.protocol import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kafkacore.protocol.group import JoinGroupRequestProtocol, SyncGroupRequestAssignment
from kafkacore.types import ConsumerGroupMetadata, TopicPartition

log = logging.getLogger("kafkacore.consumer")

_JOIN_SPARE_MS = 5_000  # the coordinator answers a JoinGroup when the rebalance timeout has passed: its answer still has to arrive
_AT_ONCE = 5  # so often a member joins without a back-off after a rebalance that another one ended
_LOST = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})
_NONE: frozenset[TopicPartition] = frozenset()
_OUT_FOR_GOOD = (
    "It never joins again by itself: stop one of the two, or give it another id; then unsubscribe() and subscribe(), or make a new consumer"
)
_NOTHING = MemberAssignment(())


class Phase(Enum):
    """Where the member stands."""

    OUT = "out"
    REVOKING = "revoking"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    ADOPTING = "adopting"
    STABLE = "stable"
    LEFT = "left"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.OUT: frozenset({Phase.OUT, Phase.REVOKING, Phase.JOINING, Phase.LEFT}),
    Phase.REVOKING: frozenset({Phase.OUT, Phase.JOINING, Phase.LEFT}),
    Phase.JOINING: frozenset({Phase.OUT, Phase.ASSIGNING, Phase.SYNCING, Phase.LEFT}),
    Phase.ASSIGNING: frozenset({Phase.OUT, Phase.SYNCING, Phase.LEFT}),
    Phase.SYNCING: frozenset({Phase.OUT, Phase.ADOPTING, Phase.LEFT}),
    Phase.ADOPTING: frozenset({Phase.OUT, Phase.STABLE, Phase.LEFT}),
    Phase.STABLE: frozenset({Phase.OUT, Phase.LEFT}),
    Phase.LEFT: frozenset({Phase.OUT, Phase.LEFT}),
}


class ClassicMembership:
    """The engine of a classic member; `kafkacore.consumer.group.membership.Membership` says what its owner calls.

    Args:
        link: to the coordinator.
        settings: of the member.
        assignors: in the order of preference.
        snapshot: gives the cluster as known now; the leader assigns by it.
        want_topics: asks for metadata of these topics beside those subscribed to: the leader needs those of all members.

    Attributes:
        topics: subscribed to; None as long as nothing is, and none when a pattern matches nothing.
        owned: what the owner holds, as the last change that was carried out says.
        fenced: another process has this member's group_instance_id; polls raise it, after a back-off.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        settings: GroupSettings,
        assignors: Sequence[PartitionAssignor],
        snapshot: Callable[[], ClusterSnapshot],
        want_topics: Callable[[frozenset[str]], None],
    ) -> None:
        shared = [p for p in RebalanceProtocol if all(p in a.supported_protocols for a in assignors)]
        if not shared:
            raise errors.ConfigError(
                "partition_assignment_strategy: the assignors share no rebalance protocol: "
                + ", ".join(f"{a.name} ({'/'.join(p.name.lower() for p in a.supported_protocols)})" for a in assignors)
            )
        self._protocol = max(shared, key=lambda p: p.value)
        self._link = link
        self._settings = settings
        self._assignors = {a.name: a for a in assignors}
        self._snapshot = snapshot
        self._want_topics = want_topics
        self.phase = Phase.OUT
        self.topics: frozenset[str] | None = None
        self.owned: frozenset[TopicPartition] = _NONE
        self.change: Change | None = None
        self.failure: errors.KafkaError | None = None
        self.fenced: errors.KafkaError | None = None
        self.breached = False
        self._member_id = ""
        self._generation = -1
        self._assignor: PartitionAssignor | None = None
        self.leads = False
        self._lost = False
        self._joined_topics: frozenset[str] = frozenset()
        self._watched = WatchedTopics(bool(settings.rack))
        self._members: dict[str, MemberSubscription] = {}
        self._asked_metadata: object = None
        self._seen_snapshot: object = None
        self._assignments: dict[str, MemberAssignment] = {}
        self._reason = ""
        self._rejoin = False
        self._holds = False
        self._asked: object | None = None
        self._failed = False  # answers carry no time: the next step starts the back-off
        self._tries = 0
        self._in_vain = 0  # rebalances in a row that brought no assignment
        self._retry_at_ms = 0
        self._heartbeat: object | None = None
        self._heartbeat_at_ms = 0
        self._pace = HeartbeatPace(settings.heartbeat_interval_ms)
        self._heartbeat_failed = False
        self._alive_ms = 0
        self._last_poll_ms: int | None = None
        self._began = False  # as for `_failed`: the generation begins with the next step
        self._departure: Departure | None = None
        self.rebalances = self.failed_rebalances = self.heartbeats = 0
        self.rebalance_began_ms = self.last_rebalance_ms = self.last_heartbeat_ms = -1
        self.rebalance_ms_sum = self.rebalance_ms_max = 0

    # -- what the owner asks ------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Group, generation and member as commits name them."""
        settings = self._settings
        return ConsumerGroupMetadata(settings.group_id, self._generation, self._member_id, settings.group_instance_id)

    @property
    def joined(self) -> bool:
        """True while the member has a generation that is not known to have ended."""
        return self._generation >= 0

    @property
    def leaving(self) -> bool:
        """The coordinator has not answered to `leave` yet."""
        return self._departure is not None and not self._departure.done

    @property
    def protocol_name(self) -> str | None:
        """The assignor that the group agreed on."""
        return None if self._assignor is None else self._assignor.name

    def subscribe(self, topics: frozenset[str]) -> None:
        """Wants these topics from now on; a member joins again if they are others than it joined with."""
        self.topics = topics
        if self.phase is not Phase.OUT and self.phase is not Phase.LEFT and topics != self._joined_topics:
            self.rejoin("the subscription changed")

    def rejoin(self, reason: str) -> None:
        """Begins a rebalance with the next step."""
        self._rejoin = True
        self._reason = reason

    def polled(self, now_ms: int) -> None:
        """The application has called poll."""
        self._last_poll_ms = now_ms
        if self.phase is not Phase.LEFT or self.breached:
            return
        if self.fenced is None:
            self._move(Phase.OUT)

    def _move(self, to: Phase) -> None:
        if to not in TRANSITIONS[self.phase]:
            raise errors.InternalError(f"group {self._settings.group_id}: {self.phase.value} -> {to.value}")
        log.debug("group %s: %s -> %s", self._settings.group_id, self.phase.value, to.value)
        self.phase = to
        self._asked = None

    def start_anew(self, client: NetworkClient) -> None:
        """Another network client: what was asked is asked again. A member that was joining begins again."""
        self._link.start_anew(client)
        self._heartbeat = None
        if self._departure is not None:
            self._departure.start_anew()
        if self.phase in (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING):
            self.change = None
        if self.phase not in (Phase.OUT, Phase.STABLE, Phase.LEFT) and self.change is None:
            self._move(Phase.OUT)
        self._asked = None

    # -- time ---------------------------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> None:
        """Sends what can be sent."""
        if self._last_poll_ms is None:
            self._last_poll_ms = now_ms
        if self._failed:
            self._failed = False
            settings = self._settings
            self._retry_at_ms = now_ms + min(settings.retry_backoff_max_ms, settings.retry_backoff_ms << min(self._tries, 20))
            self._tries += 1
        if self._began:
            self._began = False
            self._alive_ms = now_ms
            if self._protocol is RebalanceProtocol.COOPERATIVE:  # an eager rebalance stops all reading: not sooner than it has to
                self._pace.quicken()
            self._heartbeat_at_ms = now_ms + self._pace.next_ms()
        if self._departure is not None:
            self._departure.step(now_ms)
        phase = self.phase
        if phase is Phase.LEFT:
            if self._is_to_raise and now_ms >= self._retry_at_ms:
                self.failure = self.fenced
                self._failed = True
            return
        if now_ms - self._last_poll_ms >= self._settings.max_poll_interval_ms:
            self._breach(now_ms)
            return
        if self._generation >= 0:
            self._check_session(now_ms)
        if phase is Phase.STABLE:
            self._check_topics()
        if self._can_rejoin:
            self._move(Phase.OUT)
        if self.phase is Phase.OUT and self.topics is not None and not self._holds:
            self._prepare(now_ms, self.topics)
        if self._generation >= 0 and self.phase is not Phase.JOINING:
            self._send_heartbeat(now_ms)
        if self.phase is Phase.ASSIGNING:
            self._assign(now_ms)
        if self._has_to_ask and now_ms >= self._retry_at_ms and self._link.ready(now_ms):
            if self.phase is Phase.JOINING:
                self._send_join(now_ms)
            else:
                self._send_sync(now_ms)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes."""
        waits = [] if self._departure is None else self._departure.waits_ms(now_ms, self._until_sent_ms)
        if self.phase is Phase.LEFT:
            if self._is_to_raise:
                waits.append(0 if self._failed else self._retry_at_ms - now_ms)
            return max(0, min(waits)) if waits else None
        if self._last_poll_ms is not None:
            waits.append(self._last_poll_ms + self._settings.max_poll_interval_ms - now_ms)
        if self._failed or self._began or self._can_rejoin or (self.phase is Phase.OUT and self.topics is not None and not self._holds):
            waits.append(0)
        if self._generation >= 0 and self.phase is not Phase.JOINING:
            if self._heartbeat_failed:
                waits.append(0)
            elif self._heartbeat is None:
                waits.append(self._until_sent_ms(self._heartbeat_at_ms, now_ms))
            waits.append(self._alive_ms + self._settings.session_timeout_ms - now_ms)
        if self._has_to_ask:
            waits.append(self._until_sent_ms(self._retry_at_ms, now_ms))
        return max(0, min(waits)) if waits else None

    @property
    def _is_to_raise(self) -> bool:
        """The application polls a fenced member, and has heard of that: it hears again after the back-off, or at the end of its poll."""
        return self.fenced is not None and self.failure is None

    def _until_sent_ms(self, at_ms: int, now_ms: int) -> int:
        """How long until a request can be sent that is due at a time and needs the coordinator."""
        if now_ms < at_ms:
            return at_ms - now_ms
        wait_ms = self._link.next_wake_ms(now_ms)
        return self._settings.request_timeout_ms if wait_ms is None else wait_ms

    def _breach(self, now_ms: int) -> None:
        """The application has not polled for too long: the partitions go to members that do. Who is no member yet has nothing to lose."""
        if self._generation >= 0:
            log.warning(
                "group %s: poll was not called for %d ms (max_poll_interval_ms): the member leaves its group; shorten the work between two "
                "polls, lower max_poll_records, or raise max_poll_interval_ms",
                self._settings.group_id,
                now_ms - (self._last_poll_ms or 0),
            )
            self.breached = True
        self._go(now_ms, "poll was not called for max_poll_interval_ms")

    def _check_session(self, now_ms: int) -> None:
        """No heartbeat was answered for the session timeout: the coordinator has failed, or cannot be reached."""
        if self.phase is not Phase.JOINING and now_ms - self._alive_ms >= self._settings.session_timeout_ms:
            self._link.lost(f"no heartbeat was answered for {now_ms - self._alive_ms} ms")
            self._alive_ms = now_ms
            self._heartbeat = None

    def _check_topics(self) -> None:
        """The leader sees first that a topic of the group has more partitions, or that replicas came to another rack."""
        snapshot = self._snapshot()
        if snapshot is self._seen_snapshot:
            return
        self._seen_snapshot = snapshot
        change = self._watched.change(snapshot) if self.leads else None
        if change is not None:
            self.rejoin(change)

    # -- joining ------------------------------------------------------------------------------------------------------------------

    @property
    def _can_rejoin(self) -> bool:
        """A rebalance is wanted, and nothing has to come first."""
        if not self._rejoin or self._holds or self._asked is not None:
            return False
        return self.phase in (Phase.STABLE, Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING)

    @property
    def _has_to_ask(self) -> bool:
        """JoinGroup or SyncGroup is to be sent."""
        return self._asked is None and (self.phase is Phase.SYNCING or (self.phase is Phase.JOINING and not self._holds))

    def _prepare(self, now_ms: int, topics: frozenset[str]) -> None:
        """Gives up what has to be given up, and joins."""
        if self.rebalance_began_ms < 0:
            self.rebalance_began_ms = now_ms
        owned = self.owned
        if self._lost:
            revoked = owned
        elif self._protocol is RebalanceProtocol.EAGER:
            revoked = owned
        else:
            revoked = frozenset(tp for tp in owned if tp.topic not in topics)
        if revoked:
            self.change = Change(revoked, self._lost, owned - revoked, None)
            self._move(Phase.REVOKING)
        else:
            self._lost = False
            self._move(Phase.JOINING)
            self._rejoin = False

    def carried_out(self, change: Change, now_ms: int) -> None:
        """The polling thread has done what `change` says.

        The member may have lost its generation during the change: then what it owns now is lost, too.
        """
        self.owned = change.assignment
        if self.change is not change:
            if self.change is not None:
                self.change = Change(self.owned, self._lost, _NONE, None)
            return
        if self.phase is Phase.REVOKING:
            self._lost = False
            self._rejoin = False
            self._move(Phase.JOINING)
        elif self.phase is Phase.ADOPTING:
            took_ms = now_ms - self.rebalance_began_ms
            self.last_rebalance_ms = took_ms
            self.rebalance_ms_sum += took_ms
            self.rebalance_ms_max = max(self.rebalance_ms_max, took_ms)
            self.rebalance_began_ms = -1
            self.rebalances += 1
            self._move(Phase.STABLE)
            if change.revoked and self._protocol is RebalanceProtocol.COOPERATIVE:
                self.rejoin("partitions were given up for other members")
        self.change = None

    def _send_join(self, now_ms: int) -> None:
        settings = self._settings
        topics = self._joined_topics = self.topics or frozenset()
        sorted_topics = tuple(sorted(topics))
        owned = tuple(sorted(self.owned)) if self._protocol is RebalanceProtocol.COOPERATIVE else ()
        protocols: list[JoinGroupRequestProtocol] = []
        for assignor in self._assignors.values():
            try:
                data = assignor.subscription_user_data(topics)
                mine = MemberSubscription(sorted_topics, data, owned, self._generation, rack_id=settings.rack or None)
                protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(mine)))
            except Exception as error:
                self._fail_by_assignor(assignor, error)
                return
        reason = self._reason[:255] or None

        def build(version: int) -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=settings.group_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.max_poll_interval_ms,
                member_id=self._member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
                reason=reason,
            )

        log.debug("group %s: joins as %r: %s", settings.group_id, self._member_id, self._reason or "not a member")
        self._ask(
            JoinGroupRequest,
            build,
            now_ms,
            self._joined,
            timeout_ms=max(settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_SPARE_MS),
            min_version=5 if settings.group_instance_id is not None else None,
        )

    def _ask(
        self,
        api: type[Any],
        build: Callable[[int], Any],
        now_ms: int,
        take: Callable[[ClientResponse], None],
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
    ) -> None:
        """Sends the request that the phase waits for."""
        asked = self._asked = object()

        def answered(response: ClientResponse) -> None:
            if self._asked is not asked:
                return
            self._asked = None
            if response.error is not None or response.response is None:
                cause = response.error or errors.DisconnectError("the connection was lost")
                if isinstance(cause, (errors.UnsupportedVersion, errors.UsageError)):
                    self._fail(cause)
                self._failed = True
                if self.phase is not Phase.JOINING:  # the generation may still stand, but its assignment was not handed out
                    self._move(Phase.OUT)
                return
            take(response)

        self._link.send(api, build, now_ms, answered, timeout_ms=timeout_ms, min_version=min_version)

    def _fail(self, cause: errors.KafkaError) -> None:
        """What waiting does not end: the next poll raises it, and the member tries again."""
        self.failure = cause
        self.failed_rebalances += 1
        self._failed = True

    def _error(self, code: int, what: str, response: ClientResponse) -> errors.KafkaError:
        return errors.from_code(
            code,
            f"group {self._settings.group_id}, member {self._member_id!r}, generation {self._generation}",
            broker=self._link.broker_id,
            api=f"{what} v{response.version}",
        )

    def _forget_member(self, *, member_id: bool = True) -> None:
        """This member is not in the group any more: its partitions may belong to another member."""
        if member_id:
            self._member_id = ""
        self._generation = -1
        self._heartbeat = None
        self.leads = False
        self._lost = True
        if self.change is not None and self.phase is Phase.ADOPTING:
            self.change = None

    def _joined(self, response: ClientResponse) -> None:
        data: Any = response.response
        code = data.error_code
        if code:
            if code == Code.MEMBER_ID_REQUIRED:
                self._failed = bool(self._member_id) or not data.member_id  # not in a circle without a rest
                self._member_id = data.member_id
                self._retry_at_ms = 0
                return
            self._not_joined(code, "JoinGroup", response)
            return
        if not data.member_id or data.generation_id < 0:
            wrong = f"the answer names member {data.member_id!r} and generation {data.generation_id}"
            self._disbelieve(errors.CorruptDataError, wrong, "JoinGroup", response)
            return
        self._member_id = data.member_id
        assignor = self._assignors.get(data.protocol_name)
        if assignor is None or data.protocol_type not in (None, PROTOCOL_TYPE):
            self._disbelieve(errors.InconsistentGroupProtocol, self._others_protocol(data), "JoinGroup", response)
            return
        self._assignor = assignor
        self._generation = data.generation_id
        self._began = True
        self.leads = data.leader == data.member_id
        self._assignments = {}
        if not self.leads:
            self._move(Phase.SYNCING)
            return
        try:
            self._members = self._watch(data.members)
        except errors.CorruptDataError as error:
            self._disbelieve(errors.CorruptDataError, f"the subscription of a member cannot be read: {error}", "JoinGroup", response)
            return
        if data.skip_assignment:
            self._members = {}
            self._move(Phase.SYNCING)
            return
        self._asked_metadata = None
        self._move(Phase.ASSIGNING)

    def _disbelieve(self, kind: type[errors.KafkaError], wrong: str, what: str, response: ClientResponse) -> None:
        """An answer that cannot be true: nothing of it counts, and the next poll raises it."""
        if self.phase is not Phase.JOINING:
            self._move(Phase.OUT)
        api = f"{what} v{response.version}"
        self._fail(kind(f"group {self._settings.group_id}: {wrong}", broker=self._link.broker_id, api=api))

    def _others_protocol(self, data: Any) -> str:
        has = ", ".join(self._assignors)
        return f"the answer says protocol {data.protocol_type!r}, assignor {data.protocol_name!r}; this member has {PROTOCOL_TYPE!r}, {has}"

    def _watch(self, members: Iterable[Any]) -> dict[str, MemberSubscription]:
        """As the leader: the subscriptions of all members, whose topics are watched from now on."""
        found = {m.member_id: decode_subscription(m.metadata, m.group_instance_id) for m in members}
        self._watched.watch(topic for subscription in found.values() for topic in subscription.topics)
        self._want_topics(self._watched.topics)
        return found

    def _not_joined(self, code: int, what: str, response: ClientResponse) -> None:
        """An error of JoinGroup or SyncGroup."""
        cause = self._error(code, what, response)
        log.info("group %s: %s", self._settings.group_id, cause)
        if self.phase is not Phase.JOINING:
            self._move(Phase.OUT)
        if code in _LOST:
            self._forget_member(member_id=code == Code.UNKNOWN_MEMBER_ID)
            if self.phase is Phase.JOINING:
                self._move(Phase.OUT)
        elif code == Code.FENCED_INSTANCE_ID:
            self._fence(cause)
        elif code in COORDINATOR_ERRORS:
            self._link.lost(cause)
        elif code == Code.REBALANCE_IN_PROGRESS:
            self._in_vain += 1
            if self.phase is not Phase.JOINING and self._in_vain <= _AT_ONCE:  # JoinGroup waits for the others: it needs no back-off
                self._retry_at_ms = 0
                return
        elif code != Code.COORDINATOR_LOAD_IN_PROGRESS and not cause.retriable:
            self._fail(cause)
        self._failed = True

    def _fence(self, cause: errors.KafkaError) -> None:
        """Another process has this member's group_instance_id."""
        self.fenced = taken_over(self._settings, self._member_id, cause, _OUT_FOR_GOOD)
        self._forget_member()
        self._fail(self.fenced)
        self.change = Change(self.owned, True, _NONE, None) if self.owned else None
        self._move(Phase.LEFT)

    # -- assignments --------------------------------------------------------------------------------------------------------------

    def _assign(self, now_ms: int) -> None:
        """As the leader, once the cluster has answered about the topics of all members."""
        snapshot = self._snapshot()
        if self._watched.unknown(snapshot):
            if self._asked_metadata is None:
                self._asked_metadata = snapshot
            if self._asked_metadata is snapshot:
                return  # one answer that names them all is waited for, not their existence
        assignor = self._assignor
        if assignor is None:
            raise errors.InternalError("a leader without an assignor")
        try:
            found = assignor.assign(snapshot, self._members)
            check_assignment(assignor.name, self._members, found, self._protocol)
        except Exception as error:
            self._move(Phase.OUT)
            self._fail_by_assignor(assignor, error)
            return
        self._assignments = {member: found.get(member, _NOTHING) for member in self._members}
        self._watched.note(snapshot)
        self._seen_snapshot = snapshot
        self._members = {}
        self._move(Phase.SYNCING)

    def _fail_by_assignor(self, assignor: PartitionAssignor, error: Exception) -> None:
        what = error if isinstance(error, errors.UsageError) else f"the assignor {assignor.name!r} failed: {error!r}"
        cause = errors.UsageError(f"group {self._settings.group_id}: {what}")
        cause.__cause__ = error
        self._fail(cause)

    def _send_sync(self, now_ms: int) -> None:
        settings = self._settings
        generation, assignor = self._generation, self.protocol_name
        assignments = [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(assignment))
            for member, assignment in self._assignments.items()
        ]

        def build(version: int) -> SyncGroupRequest:
            return SyncGroupRequest(
                group_id=settings.group_id,
                generation_id=generation,
                member_id=self._member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=assignor,
                assignments=assignments,
            )

        self._ask(SyncGroupRequest, build, now_ms, self._synced, timeout_ms=max(settings.request_timeout_ms, settings.max_poll_interval_ms))

    def _synced(self, response: ClientResponse) -> None:
        data: Any = response.response
        if data.error_code:
            self._not_joined(data.error_code, "SyncGroup", response)
            return
        self._assignments = {}
        if data.protocol_type not in (None, PROTOCOL_TYPE) or data.protocol_name not in (None, self.protocol_name):
            self._disbelieve(errors.InconsistentGroupProtocol, self._others_protocol(data), "SyncGroup", response)
            return
        try:
            assignment = decode_assignment(data.assignment)
        except errors.CorruptDataError as error:
            self._disbelieve(errors.CorruptDataError, f"the assignment cannot be read: {error}", "SyncGroup", response)
            return
        assigned = frozenset(assignment.partitions)
        if any(tp.partition < 0 for tp in assigned):
            self._disbelieve(errors.CorruptDataError, "the assignment names a partition below 0", "SyncGroup", response)
            return
        topics = self.topics or _NONE
        if others := sorted({tp.topic for tp in assigned} - topics):
            self._in_vain += 1
            if self._in_vain == 1 or self._joined_topics.issuperset(others):
                self._move(Phase.OUT)  # of an earlier subscription, perhaps of a static member's process before: joining again mends it
                return
            wrong = f"the assignment names topics that are not subscribed to: {', '.join(others[:10])}"
            self._disbelieve(errors.CorruptDataError, wrong, "SyncGroup", response)
            return
        owned = self.owned
        assignor = self._assignor
        if assignor is not None:
            try:
                assignor.on_assignment(assignment, self.metadata)
            except Exception as error:
                self._move(Phase.OUT)
                self._fail_by_assignor(assignor, error)
                return
        self._tries = self._in_vain = 0
        self.change = Change(owned - assigned, False, assigned, assigned - owned)
        self._move(Phase.ADOPTING)
        log.info(
            "group %s: generation %d, member %s has %d partitions (%d new, %d given up)",
            self._settings.group_id,
            self._generation,
            self._member_id,
            len(assigned),
            len(assigned - owned),
            len(owned - assigned),
        )

    # -- heartbeats ---------------------------------------------------------------------------------------------------------------

    def _send_heartbeat(self, now_ms: int) -> None:
        settings = self._settings
        if self._heartbeat_failed:
            self._heartbeat_failed = False
            self._heartbeat_at_ms = now_ms + settings.retry_backoff_ms
        if self._heartbeat is not None or now_ms < self._heartbeat_at_ms or not self._link.ready(now_ms):
            return
        asked = self._heartbeat = object()
        generation = self._generation
        self._heartbeat_at_ms = now_ms + self._pace.next_ms()
        self.heartbeats += 1

        def build(version: int) -> HeartbeatRequest:
            return HeartbeatRequest(
                group_id=settings.group_id,
                generation_id=generation,
                member_id=self._member_id,
                group_instance_id=settings.group_instance_id,
            )

        def answered(response: ClientResponse) -> None:
            if self._heartbeat is not asked:
                return
            self._heartbeat = None
            self._heard(response, generation, now_ms)

        self._link.send(HeartbeatRequest, build, now_ms, answered)

    def _heard(self, response: ClientResponse, generation: int, sent_ms: int) -> None:
        data: Any = response.response
        if response.error is not None or data is None:
            self._heartbeat_failed = True
            return
        code = data.error_code
        if code == 0 or code == Code.REBALANCE_IN_PROGRESS:
            self._alive_ms = self.last_heartbeat_ms = sent_ms
            if code and self.phase is Phase.STABLE and generation == self._generation:
                self.rejoin("the group is rebalancing")
            return
        cause = self._error(code, "Heartbeat", response)
        if code in COORDINATOR_ERRORS:
            self._link.lost(cause)
            self._heartbeat_failed = True
        elif generation != self._generation or self.phase is Phase.JOINING:
            return  # another generation has started since, or the answer to JoinGroup will say it
        elif not self._ends_with(cause):
            if not cause.retriable:
                self._fail(cause)
            self._heartbeat_failed = True

    def _ends_with(self, cause: errors.KafkaError) -> bool:
        """Takes in an error about this member's generation; False when it says nothing of that."""
        code = cause.code
        if code == Code.FENCED_INSTANCE_ID:
            log.error("group %s: %s", self._settings.group_id, cause)
            self._fence(cause)
            return True
        if code not in _LOST:
            return False
        log.warning("group %s: %s", self._settings.group_id, cause)
        self._forget_member(member_id=code != Code.ILLEGAL_GENERATION)
        if self.phase is Phase.REVOKING:
            self.change = Change(self.owned, True, _NONE, None)
        elif self.phase is not Phase.OUT:
            self._move(Phase.OUT)
        return True

    def commit_refused(self, cause: errors.KafkaError, sent_as: ConsumerGroupMetadata) -> bool:
        """A commit was answered with an error about this member: the member joins again now, not after the next heartbeat. Where `hold`
        gave up a join that has ended since, only that join's answer names the generation that may commit: it goes on."""
        if self._generation < 0 or sent_as != self.metadata:
            return False
        if self.phase is Phase.JOINING:
            goes_on = self._holds and cause.code == Code.ILLEGAL_GENERATION
            self._holds &= not goes_on
            return goes_on
        if cause.code == Code.REBALANCE_IN_PROGRESS:
            if self.phase is Phase.STABLE:
                self.rejoin("the group is rebalancing")
        else:
            self._ends_with(cause)
        return False

    # -- leaving ------------------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """The owner commits and leaves: no rebalance begins, and none keeps the commits waiting if that can be helped."""
        self._holds = True
        if self.phase is Phase.JOINING and self._asked is not None:
            self._asked = None
            self._link.lost("what it holds back is not waited for")

    def leave(self, now_ms: int, reason: str) -> None:
        """Leaves the group: the owner has given up its partitions. A static member is not taken out: its partitions wait for it until its
        session times out.
        """
        self._go(now_ms, reason)
        self.owned = _NONE
        self.topics = self.fenced = self.failure = None
        self.breached = self._lost = False

    def _go(self, now_ms: int, reason: str) -> None:
        settings = self._settings
        if self._member_id and settings.group_instance_id is None:
            self._departure = Departure(self._link, settings, self._member_id, reason, now_ms + settings.session_timeout_ms)
        if self._asked is not None and self.phase in (Phase.JOINING, Phase.SYNCING):
            self._link.lost("what it holds back is not waited for")
        self._forget_member()
        self.change = None
        self._rejoin = self._holds = False
        self._move(Phase.LEFT)
        if self._departure is not None:
            self._departure.step(now_ms)
