"""A member of a consumer group (KIP-848): one request, ConsumerGroupHeartbeat, by which it joins, says what it wants and has, and leaves.

    OUT --(owns nothing)--> JOINING --> RECONCILING <--> ACKNOWLEDGING --> STABLE
     |                        ^           ^                                  |
     +--> LOSING -------------+           +----------(another target)--------+
          (carried out)

    JOINING        epoch 0, every field is sent; also again after an error
    RECONCILING    the target differs from what is owned: waits for topic names, then for the polling thread
    ACKNOWLEDGING  what was carried out is reported with the next heartbeat, which goes at once
    LOSING         the coordinator does not know the member any more: waits until the polling thread has given everything up
    LEFT           the application did not poll for max_poll_interval_ms, or the owner left; the next poll goes to OUT

Rules:
1. One request is under way at a time. A field is sent when it has changed; every field is, to join and after a request that failed, since
   the coordinator may or may not have taken it in. It answers such a request with the whole assignment.
   [test_one_request_is_under_way_at_a_time, test_joins_reports_and_rests, test_a_request_that_failed_is_sent_again_with_every_field]
2. Partitions are given up first, and reported, before others are taken: the coordinator hands a partition on once `topic_partitions` leaves
   it out. [test_what_is_taken_away_is_given_up_and_reported_before_what_is_new_is_taken, test_gives_up_and_reports_before_it_takes]
3. So `topic_partitions` names what is owned and what a change under way will add. And while a request that names partitions has no good
   answer, none is added: the coordinator may have handed on what the request left out. [test_what_a_change_under_way_adds_counts_as_owned,
   test_nothing_is_added_while_a_report_without_it_has_no_answer]
4. A member whose epoch ended (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, left) has lost its partitions: `Change.lost`.
   It joins again with epoch 0 when they are given up. A coordinator that still holds the old member is asked to release it first.
   [test_a_fenced_member_loses_everything_and_joins_again, test_a_static_member_whose_join_had_no_answer_releases_itself]
5. Every new assignment is answered by a report, also if it changes nothing: the coordinator may wait for what this member never took.
   [test_what_was_never_taken_is_reported_as_given_up]
6. The assignment names topics by id. Names come from metadata; what has no name yet waits, the rest does not.
   [test_topic_ids_without_a_name_wait_and_the_rest_does_not]

Source: Kafka's ConsumerMembershipManager, AbstractMembershipManager, ConsumerHeartbeatRequestManager; KIP-848, KIP-1082 (the client
chooses its member id).
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from kafkacore import errors
from kafkacore.consumer.group.membership import COORDINATOR_ERRORS, Change, GroupSettings, HeartbeatPace, taken_over, too_many
from kafkacore.errors import Code
from kafkacore.metadata import ClusterSnapshot
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.protocol import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatTopicPartitions
from kafkacore.types import ConsumerGroupMetadata, TopicPartition

log = logging.getLogger("kafkacore.consumer")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

_FIRST_INTERVAL_MS = 5_000  # until the coordinator has named its own
_FIRST_REGEX_VERSION = 1
_NAMES_TRIES = 10
_NONE: frozenset[TopicPartition] = frozenset()
_TRIES_AGAIN = "It tries to join again, which works once the other one has left: stop one of the two, or give it another id"

Ids = Mapping[bytes, frozenset[int]]


class Phase(Enum):
    """Where the member stands."""

    OUT = "out"
    LOSING = "losing"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    LEFT = "left"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.OUT: frozenset({Phase.LOSING, Phase.JOINING, Phase.LEFT}),
    Phase.LOSING: frozenset({Phase.JOINING, Phase.LEFT}),
    Phase.JOINING: frozenset({Phase.RECONCILING, Phase.LEFT}),
    Phase.RECONCILING: frozenset({Phase.ACKNOWLEDGING, Phase.STABLE, Phase.OUT, Phase.LEFT}),
    Phase.ACKNOWLEDGING: frozenset({Phase.RECONCILING, Phase.STABLE, Phase.OUT, Phase.LEFT}),
    Phase.STABLE: frozenset({Phase.RECONCILING, Phase.OUT, Phase.LEFT}),
    Phase.LEFT: frozenset({Phase.OUT, Phase.LEFT}),
}

_MEMBER = frozenset({Phase.RECONCILING, Phase.ACKNOWLEDGING, Phase.STABLE})


def new_member_id() -> str:
    """A member id as Kafka's clients make it: a random UUID in URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _wrong(topics: Collection[Any]) -> str:
    """Why an assignment cannot be true; empty if it can."""
    if any(index < 0 for topic in topics for index in topic.partitions):
        return "the assignment names a partition below 0"
    return too_many(sum(len(topic.partitions) for topic in topics))


def _joint(first: Ids, second: Ids) -> Ids:
    """What either names."""
    return {topic_id: first.get(topic_id, frozenset()) | second.get(topic_id, frozenset()) for topic_id in {*first, *second}}


class ConsumerMembership:
    """The engine of a KIP-848 member; `kafkacore.consumer.group.membership.Membership` says what its owner calls.

    Args:
        link: to the coordinator.
        settings: of the member.
        server_assignor: the assignor that the broker is asked for, None for its own choice.
        snapshot: gives the cluster as known now; it holds the names of topic ids.
        ask_names: asks for metadata that name these topic ids.
        member_id: chosen by the client; a broker that speaks only version 0 names its own.

    Attributes:
        owned: what the polling thread has taken over.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        settings: GroupSettings,
        server_assignor: str | None,
        snapshot: Callable[[], ClusterSnapshot],
        ask_names: Callable[[frozenset[bytes]], None],
        *,
        member_id: str | None = None,
    ) -> None:
        self._link = link
        self._settings = settings
        self._server_assignor = server_assignor
        self._snapshot = snapshot
        self._ask_for_names = ask_names
        self.phase = Phase.OUT
        self.topics: frozenset[str] = frozenset()
        self.pattern: str | None = None
        self.owned: frozenset[TopicPartition] = _NONE
        self.change: Change | None = None
        self.failure: errors.KafkaError | None = None
        self.fenced: errors.KafkaError | None = None  # until it has joined again
        self.breached = False
        self._member_id = member_id or new_member_id()
        self._member_id_given = False  # by a broker that chooses the id
        self._epoch = JOIN_EPOCH
        self._pace = HeartbeatPace(_FIRST_INTERVAL_MS)
        self._joins = False  # a join was sent, so that the coordinator may know this member
        self._release = False  # the coordinator has to hear that this member goes, before it may join again
        self._release_until_ms = 0  # by then its session has ended
        self._unreleased: errors.KafkaError | None = None

        self._target: Ids | None = None
        self._names: dict[bytes, str] = {}  # of the ids in target and owned
        self._seen_snapshot: object = None  # the target was resolved with it
        self._unknown: frozenset[bytes] = frozenset()  # ids of the target without a name
        self._names_tries = 0
        self._names_at_ms = 0
        self._fresh = False  # nothing was handed out since the member joined
        self._owned_ids: Ids = {}
        self._change_ids: Ids = {}

        self._full = True  # every field has to be sent
        self._resubscribed = False
        self._reported: Ids | None = None  # the last topic_partitions
        self._in_doubt = False  # a request that names partitions has no good answer yet

        self._asked: object | None = None
        self._failed = False  # answers carry no time: the next step starts the back-off
        self._tries = 0
        self._retry_at_ms = 0
        self._heartbeat_at_ms = 0
        self._last_poll_ms: int | None = None
        self._now_ms = 0
        self.rebalances = self.failed_rebalances = self.heartbeats = 0
        self.rebalance_began_ms = self.last_rebalance_ms = self.last_heartbeat_ms = -1
        self.rebalance_ms_sum = self.rebalance_ms_max = 0

    # -- what the owner asks ------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Group, member epoch and member as commits name them."""
        settings = self._settings
        if self._epoch <= JOIN_EPOCH:
            return ConsumerGroupMetadata(settings.group_id, group_instance_id=settings.group_instance_id)
        return ConsumerGroupMetadata(settings.group_id, self._epoch, self._member_id, settings.group_instance_id)

    @property
    def joined(self) -> bool:
        """True while the member has an epoch that is not known to have ended."""
        return self._epoch > JOIN_EPOCH

    @property
    def leaving(self) -> bool:
        """The coordinator has not answered to `leave` yet."""
        return self._release and self.phase is Phase.LEFT

    def subscribe(self, topics: frozenset[str]) -> None:
        """Wants these topics from now on; the next step reports them."""
        self._resubscribed = self._resubscribed or topics != self.topics or self.pattern is not None
        self.topics = topics
        self.pattern = None

    def subscribe_pattern(self, pattern: str) -> None:
        """Wants the topics that the broker matches with a regular expression of its own kind (RE2)."""
        self._resubscribed = self._resubscribed or pattern != self.pattern
        self.topics = frozenset()
        self.pattern = pattern

    def rejoin(self, reason: str) -> None:
        """A member of a consumer group cannot make it rebalance.

        Raises:
            errors.UsageError: always.
        """
        raise errors.UsageError(
            f"group {self._settings.group_id}: with group_protocol=consumer the broker decides when the group rebalances ({reason})"
        )

    def polled(self, now_ms: int) -> None:
        """The application has called poll."""
        self._last_poll_ms = now_ms
        if self.phase is Phase.LEFT and not self.breached:
            self._move(Phase.OUT)

    def _move(self, to: Phase) -> None:
        if to not in TRANSITIONS[self.phase]:
            raise errors.InternalError(f"group {self._settings.group_id}: {self.phase.value} -> {to.value}")
        log.debug("group %s: %s -> %s", self._settings.group_id, self.phase.value, to.value)
        self.phase = to

    def start_anew(self, client: NetworkClient) -> None:
        """Another network client: what was asked is asked again, with every field."""
        self._link.start_anew(client)
        self._asked = None
        self._full = True

    # -- time ---------------------------------------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> None:
        """Sends what can be sent."""
        self._now_ms = now_ms
        if self._last_poll_ms is None:
            self._last_poll_ms = now_ms
        if self._failed:
            self._failed = False
            self._retry_at_ms = now_ms + self._backoff_ms(self._tries)
            self._tries += 1
        if self._release:
            self._say_goodbye(now_ms)
        if self.phase is Phase.LEFT:
            return
        if now_ms - self._last_poll_ms >= self._settings.max_poll_interval_ms:
            self._breach(now_ms)
            return
        if self.phase is Phase.OUT and (self.topics or self.pattern is not None):
            self._prepare(now_ms)
        if self.phase is Phase.RECONCILING and self.change is None:
            self._reconcile(now_ms)
        self._send_heartbeat(now_ms)

    def _backoff_ms(self, tries: int) -> int:
        settings = self._settings
        return min(settings.retry_backoff_max_ms, settings.retry_backoff_ms << min(tries, 20))

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes."""
        phase = self.phase
        if phase is Phase.LEFT:
            if not self._release or self._asked is not None:
                return None
            if self._failed:
                return 0
            return self._retry_at_ms - now_ms if now_ms < self._retry_at_ms else self._link.next_wake_ms(now_ms)
        waits = []
        if self._last_poll_ms is not None:
            waits.append(self._last_poll_ms + self._settings.max_poll_interval_ms - now_ms)
        if self._failed or (phase is Phase.OUT and (self.topics or self.pattern is not None)):
            waits.append(0)
        if phase is Phase.RECONCILING and self.change is None:
            if self._seen_snapshot is None and not self._in_doubt:
                waits.append(0)
            elif self._unknown and not self._in_doubt:
                waits.append(self._names_at_ms - now_ms)
        if self._asked is None and (phase in _MEMBER or phase is Phase.JOINING):
            due_ms = max(self._retry_at_ms, 0 if self._urgent() else self._heartbeat_at_ms)
            if now_ms < due_ms:
                waits.append(due_ms - now_ms)
            elif (wait := self._link.next_wake_ms(now_ms)) is not None:
                waits.append(wait)
        return max(0, min(waits)) if waits else None

    def _breach(self, now_ms: int) -> None:
        """The application has not polled for too long: the partitions go to members that do."""
        log.warning(
            "group %s: poll was not called for %d ms (max_poll_interval_ms): the member leaves its group; shorten the work between two "
            "polls, lower max_poll_records, or raise max_poll_interval_ms",
            self._settings.group_id,
            now_ms - (self._last_poll_ms or 0),
        )
        self.breached = True
        self._go(now_ms)

    # -- joining ------------------------------------------------------------------------------------------------------------------

    def _prepare(self, now_ms: int) -> None:
        """Joins, once everything that was lost is given up."""
        if self.rebalance_began_ms < 0:
            self.rebalance_began_ms = now_ms
        if self.owned:  # of an epoch that has ended
            self.change = Change(self.owned, True, _NONE, None)
            self._move(Phase.LOSING)
        else:
            self._move(Phase.JOINING)

    def _forget_epoch(self) -> None:
        """This member is not in the group any more: its partitions may be another member's."""
        self._epoch = JOIN_EPOCH
        self._full = True
        self._owned_ids = self._change_ids = {}
        self._asked = None
        self.change = None

    def _lose(self) -> None:
        """The coordinator does not know this member any more."""
        changing = self.change is not None
        self._forget_epoch()
        if self.rebalance_began_ms < 0:
            self.rebalance_began_ms = self._now_ms
        self._move(Phase.OUT)
        if changing:  # the polling thread may be at it: what it reports back is lost, too
            self.change = Change(self.owned, True, _NONE, None)
            self._move(Phase.LOSING)

    def carried_out(self, change: Change, now_ms: int) -> None:
        """The polling thread has done what `change` says.

        A member that lost its epoch while this went on has lost what it owns now, too.
        """
        self.owned = change.assignment
        if self.change is not change:
            if self.change is not None:
                self.change = Change(self.owned, True, _NONE, None)
            return
        self.change = None
        if self.phase is Phase.LOSING:
            self._move(Phase.JOINING)
            return
        self._owned_ids = self._change_ids
        self._change_ids = {}
        self._fresh = self._fresh and change.added is None
        self._seen_snapshot = None
        if self._owned_ids != self._reported:  # else a heartbeat has reported it already
            self._move(Phase.ACKNOWLEDGING)

    # -- the assignment -----------------------------------------------------------------------------------------------------------

    def _reconcile(self, now_ms: int) -> None:
        """Takes the next step from what is owned to the target, as far as its topics have names."""
        if self._in_doubt:
            return
        snapshot = self._snapshot()
        if snapshot is self._seen_snapshot:
            if self._unknown and now_ms >= self._names_at_ms:
                self._ask_names(now_ms)
            return
        target = self._target
        if target is None:
            raise errors.InternalError("a member without a target")
        self._seen_snapshot = snapshot
        names: dict[bytes, str] = {}
        found: dict[bytes, frozenset[int]] = {}
        for topic_id, partitions in target.items():
            name = snapshot.topic_name(topic_id) or self._names.get(topic_id)
            if name is not None:
                names[topic_id] = name
                found[topic_id] = partitions
        self._unknown = frozenset(target.keys() - found.keys())
        self._names = names
        if self._unknown:
            self._ask_names(now_ms)
        else:
            self._names_tries = 0
        assigned = frozenset(TopicPartition(names[topic_id], index) for topic_id, indexes in found.items() for index in indexes)
        revoked = self.owned - assigned
        added = assigned - self.owned
        if revoked:
            kept = self.owned & assigned
            self._change_ids = {
                topic_id: left for topic_id, had in self._owned_ids.items() if (left := had & found.get(topic_id, frozenset()))
            }
            self.change = Change(revoked, False, kept, None)
        elif added or (self._fresh and not self._unknown):
            self._change_ids = found
            self.change = Change(_NONE, False, assigned, added)
        elif found != self._owned_ids or self._reported is None:  # a topic that was created again has another id
            self._owned_ids = found
            self._move(Phase.ACKNOWLEDGING)
        elif not self._unknown:
            self._settle(now_ms)
        if self.change is not None:
            log.info(
                "group %s: member %s in epoch %d gives up %d partitions, takes %d, and has %d then",
                self._settings.group_id,
                self._member_id,
                self._epoch,
                len(revoked),
                len(self.change.added or ()),
                len(self.change.assignment),
            )

    def _ask_names(self, now_ms: int) -> None:
        self._names_at_ms = now_ms + self._backoff_ms(self._names_tries)
        self._names_tries += 1
        if self._names_tries % _NAMES_TRIES == 0:
            self._full = True  # perhaps no topic has this id, or has it any more: the coordinator answers with the whole assignment
        log.debug("group %s: %d topic ids have no name yet", self._settings.group_id, len(self._unknown))
        self._ask_for_names(self._unknown)

    def _settle(self, now_ms: int) -> None:
        """The target is reached."""
        self._move(Phase.STABLE)
        if self.rebalance_began_ms >= 0:
            took_ms = now_ms - self.rebalance_began_ms
            self.last_rebalance_ms = took_ms
            self.rebalance_ms_sum += took_ms
            self.rebalance_ms_max = max(self.rebalance_ms_max, took_ms)
            self.rebalance_began_ms = -1
            self.rebalances += 1

    # -- heartbeats ---------------------------------------------------------------------------------------------------------------

    def _urgent(self) -> bool:
        """The next heartbeat does not wait for its interval."""
        return self._full or self._resubscribed or self.phase is Phase.ACKNOWLEDGING

    def _send_heartbeat(self, now_ms: int) -> None:
        if self.phase not in _MEMBER and self.phase is not Phase.JOINING:
            return
        if self._release or self._asked is not None or now_ms < self._retry_at_ms:
            return
        if (now_ms < self._heartbeat_at_ms and not self._urgent()) or not self._link.ready(now_ms):
            return
        settings, epoch, member_id = self._settings, self._epoch, self._member_id
        asked = self._asked = object()
        full = self._full or epoch == JOIN_EPOCH
        names = sorted(self.topics) if full or self._resubscribed else None
        pattern = (self.pattern or "") if full or self._resubscribed else None
        has = _joint(self._owned_ids, self._change_ids) if self.change is not None else self._owned_ids
        topic_partitions = None
        if full or has != self._reported:
            self._reported = has
            self._in_doubt = True
            topic_partitions = [
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in has.items()
            ]
        given = self._member_id_given
        self._full = self._resubscribed = False
        self._joins = True
        self._heartbeat_at_ms = now_ms + self._pace.interval_ms
        self.heartbeats += 1

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=member_id if version >= 1 or given else "",
                member_epoch=epoch,
                instance_id=settings.group_instance_id,
                rack_id=(settings.rack or None) if full else None,
                rebalance_timeout_ms=settings.max_poll_interval_ms if full else -1,
                subscribed_topic_names=names,
                subscribed_topic_regex=pattern if version >= _FIRST_REGEX_VERSION else None,
                server_assignor=self._server_assignor if full else None,
                topic_partitions=topic_partitions,
            )

        def answered(response: ClientResponse) -> None:
            if self._asked is not asked:
                return
            self._asked = None
            self._heard(response, now_ms)

        if self.phase is Phase.ACKNOWLEDGING:
            self._move(Phase.RECONCILING)
        self._link.send(
            ConsumerGroupHeartbeatRequest, build, now_ms, answered, min_version=_FIRST_REGEX_VERSION if self.pattern is not None else None
        )

    def _heard(self, response: ClientResponse, sent_ms: int) -> None:
        data: Any = response.response
        if response.error is not None or data is None:
            self._full = True
            self._failed = True
            if isinstance(response.error, errors.UnsupportedVersion):
                self._refuse(self._unsupported(response.error))
            elif isinstance(response.error, errors.UsageError):
                self._refuse(response.error)
            return
        if data.error_code:
            self._full = True
            self._not_served(data.error_code, data.error_message, response)
            return
        self._tries = 0
        self.fenced = None
        self._in_doubt = False
        self.last_heartbeat_ms = sent_ms
        if data.heartbeat_interval_ms > 0:  # a heartbeat that comes later than the rebalance timeout misses what it has to give up
            longest_ms = max(self._settings.max_poll_interval_ms, self._settings.retry_backoff_ms)
            self._pace.interval_ms = min(max(data.heartbeat_interval_ms, self._settings.retry_backoff_ms), longest_ms)
        self._heartbeat_at_ms = sent_ms + self._pace.interval_ms
        if data.member_id:
            self._member_id = data.member_id
            self._member_id_given = True
        if data.member_epoch <= JOIN_EPOCH:  # not taken in yet: the join is sent again
            self._full = True
            self._retry_at_ms = self._heartbeat_at_ms
            return
        if data.assignment is not None and (wrong := _wrong(data.assignment.topic_partitions)):
            self._full = True
            self._refuse(
                errors.CorruptDataError(
                    f"group {self._settings.group_id}: {wrong}",
                    broker=self._link.broker_id,
                    api=f"ConsumerGroupHeartbeat v{response.version}",
                )
            )
            return
        if data.assignment is not None or data.member_epoch != self._epoch:
            self._pace.quicken()
        self._heartbeat_at_ms = sent_ms + self._pace.next_ms()
        self._epoch = data.member_epoch
        if data.assignment is not None:
            self._take_target({t.topic_id: frozenset(t.partitions) for t in data.assignment.topic_partitions if t.partitions})
        elif self.phase is Phase.JOINING:
            self._take_target({})
        elif self.phase is Phase.RECONCILING:
            self._seen_snapshot = None

    def _take_target(self, target: dict[bytes, frozenset[int]]) -> None:
        """The coordinator has answered with what this member is to have."""
        joined = self.phase is Phase.JOINING
        if not joined and target == self._target:
            if self.phase is Phase.RECONCILING:
                self._seen_snapshot = None
            return
        self._target = target
        self._reported = None
        self._seen_snapshot = None
        self._names_tries = 0
        if joined:
            self._fresh = True
        if self.rebalance_began_ms < 0:
            self.rebalance_began_ms = self._now_ms
        if self.phase in (Phase.JOINING, Phase.STABLE):
            self._move(Phase.RECONCILING)

    def _not_served(self, code: int, message: str | None, response: ClientResponse) -> None:
        """The coordinator answered with an error."""
        settings = self._settings
        cause = self._error(code, message, response)
        log.info("group %s: %s", settings.group_id, cause)
        if code in COORDINATOR_ERRORS:
            self._look_elsewhere(cause)
            return
        joining = self.phase is Phase.JOINING
        if code == Code.UNRELEASED_INSTANCE_ID or (joining and code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID)):
            self._release = True  # perhaps it is this member itself, of before
            self._unreleased = cause
            self._failed = True
        elif code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID) or (code == Code.GROUP_ID_NOT_FOUND and not joining):
            log.warning("group %s: the member joins again: %s", settings.group_id, cause)
            self._lose()
        elif cause.retriable:
            self._failed = True
        elif code == Code.TOPIC_AUTHORIZATION_FAILED:
            self._refuse(cause)
        elif code == Code.UNSUPPORTED_VERSION or (code == Code.GROUP_ID_NOT_FOUND and joining):
            self._refuse(self._unsupported(cause))
        else:
            self._refuse(self._taken_over(cause) if code == Code.FENCED_INSTANCE_ID else cause)
            if not joining:
                self._lose()
                self._release = code != Code.FENCED_INSTANCE_ID
                self._unreleased = None

    def _look_elsewhere(self, cause: errors.KafkaError) -> None:
        """The coordinator is another broker; if that one says so, too, there is a back-off."""
        self._link.lost(cause)
        if self._tries:
            self._failed = True
        else:
            self._tries = 1

    def commit_refused(self, cause: errors.KafkaError, sent_as: ConsumerGroupMetadata) -> bool:
        """A commit was answered with an error about this member: a stale epoch asks for a heartbeat now, an ended one joins again."""
        if self.phase not in _MEMBER or sent_as != self.metadata:
            return False
        if cause.code == Code.STALE_MEMBER_EPOCH:
            self._heartbeat_at_ms = 0
        elif cause.code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID):
            log.warning("group %s: the member joins again: %s", self._settings.group_id, cause)
            self._lose()
        elif cause.code == Code.FENCED_INSTANCE_ID:
            self._refuse(self._taken_over(cause))
            self._lose()
        return False

    def _taken_over(self, cause: errors.KafkaError) -> errors.KafkaError:
        self.fenced = taken_over(self._settings, self._member_id, cause, _TRIES_AGAIN)
        return self.fenced

    def _error(self, code: int, message: str | None, response: ClientResponse) -> errors.KafkaError:
        topic = None
        if code == Code.TOPIC_AUTHORIZATION_FAILED and not message:  # brokers do not say which
            names = sorted(self.topics)
            topic = names[0] if len(names) == 1 else None
            message = None if topic else "one of the topics " + ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        return errors.from_code(
            code,
            f"group {self._settings.group_id}, member {self._member_id}" + (f": {message}" if message else ""),
            topic=topic,
            broker=self._link.broker_id,
            api=f"ConsumerGroupHeartbeat v{response.version}",
        )

    def _unsupported(self, cause: errors.KafkaError) -> errors.KafkaError:
        if isinstance(cause, errors.GroupIdNotFound):
            why = "the group is a classic one that cannot become a consumer group (group.consumer.migration.policy)"
        elif self.pattern is not None:
            why = "a SubscriptionPattern needs ConsumerGroupHeartbeat v1, which Kafka 4.0 and later have: subscribe with re.compile(...)"
        else:
            why = "this broker has no KIP-848, which Kafka 4.0 and later have"
        return errors.UnsupportedVersion(
            f"group {self._settings.group_id}: group_protocol=consumer is refused: {why}, or use group_protocol=classic",
            broker=self._link.broker_id,
            api="ConsumerGroupHeartbeat",
            attempts=[cause],
        )

    def _refuse(self, cause: errors.KafkaError) -> None:
        """What waiting does not end: the next poll raises it, and the member tries again."""
        self.failure = cause
        self.failed_rebalances += 1
        self._failed = True

    # -- leaving ------------------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Nothing holds commits back here: the coordinator answers every heartbeat at once, and a stale epoch is tried again."""

    def leave(self, now_ms: int, reason: str) -> None:
        """Leaves the group: the owner has given up its partitions. Those of a static member wait for it until its session ends."""
        log.debug("group %s: the member leaves: %s", self._settings.group_id, reason)
        self._go(now_ms)
        self.owned = _NONE
        self.topics, self.pattern = frozenset(), None
        self.failure = self.fenced = None
        self.breached = False

    def _go(self, now_ms: int) -> None:
        """Has no epoch any more, and tells the coordinator, with a later step if it cannot be reached now."""
        known = self._joins and (self._release or self.phase in _MEMBER or self.phase is Phase.JOINING)
        if known:  # first, so that Ctrl+C behind it does not keep it from the coordinator
            self._release = True
            self._release_until_ms = now_ms + self._settings.session_timeout_ms
            self._unreleased = None
            self._retry_at_ms = now_ms
        self._forget_epoch()
        self._joins = self._failed = False
        self.rebalance_began_ms = -1
        self._move(Phase.LEFT)
        if known:
            self._say_goodbye(now_ms)

    def _say_goodbye(self, now_ms: int) -> None:
        """Epoch -1, or -2 for a static member, whose partitions are kept for it until its session ends."""
        settings, member_id, given = self._settings, self._member_id, self._member_id_given
        if self.phase is Phase.LEFT and now_ms >= self._release_until_ms:
            self._release = False
            self._asked = None
            return
        if self._asked is not None or now_ms < self._retry_at_ms or not self._link.ready(now_ms):
            return
        asked = self._asked = object()

        def build(version: int) -> ConsumerGroupHeartbeatRequest:
            return ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=member_id if version >= 1 or given else "",
                member_epoch=LEAVE_EPOCH if settings.group_instance_id is None else STATIC_LEAVE_EPOCH,
                instance_id=settings.group_instance_id,
            )

        def answered(response: ClientResponse) -> None:
            if self._asked is asked:
                self._asked = None
                self._released(response)

        self._link.send(ConsumerGroupHeartbeatRequest, build, now_ms, answered)

    def _released(self, response: ClientResponse) -> None:
        """What the coordinator answered about the member that goes."""
        data: Any = response.response
        if response.error is not None or data is None:
            self._failed = True
            return
        code = data.error_code
        if code:
            cause = self._error(code, data.error_message, response)
            log.info("group %s: the member is not released: %s", self._settings.group_id, cause)
            if code in COORDINATOR_ERRORS:
                self._look_elsewhere(cause)
                return
            if cause.retriable:
                self._failed = True
                return
            if code == Code.FENCED_INSTANCE_ID and self._unreleased is not None:
                self.fenced = self._unreleased
                self._refuse(self._unreleased)  # another member has the instance id
        self._release = False
