"""What both group protocols share: settings, the member's identity, and the change that the polling thread carries out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kafkacore import errors
from kafkacore.bounds import ASSIGNED_PARTITIONS
from kafkacore.errors import Code
from kafkacore.net.client import NetworkClient
from kafkacore.types import ConsumerGroupMetadata, TopicPartition

COORDINATOR_ERRORS = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
"""The coordinator is another broker."""


class GroupSettings(NamedTuple):
    """Settings of a member.

    Attributes:
        group_id: of the group.
        group_instance_id: of a static member (KIP-345), None for a dynamic one.
        session_timeout_ms: the coordinator removes a classic member that it has not heard from for so long.
        heartbeat_interval_ms: between two heartbeats of a classic member, in a group that does not change.
        max_poll_interval_ms: a member that does not poll for so long leaves; also how long a rebalance waits for it.
        retry_backoff_ms, retry_backoff_max_ms: before a failed request is sent again, doubled with every failed try.
        request_timeout_ms: how long an answer may take.
        rack: of this client, "" for none.
        internal_topics: a pattern may match the brokers' own topics.
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    rack: str = ""


_QUICK_SHARE = 8
_QUICKEST_MS = 100


class HeartbeatPace:
    """How long until the next heartbeat.

    A member hears of a rebalance by its heartbeats alone, and where rebalances are incremental another one follows: what some members gave
    up comes to others by it. Until then none reads it. So the first heartbeat after a change comes at an eighth of the interval, and each
    one after it takes twice as long, up to the interval.

    Attributes:
        interval_ms: between two heartbeats of a group that nothing changes.
    """

    __slots__ = ("_next_ms", "interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = self._next_ms = interval_ms

    def quicken(self) -> None:
        """The group has changed."""
        self._next_ms = max(self.interval_ms // _QUICK_SHARE, _QUICKEST_MS)

    def next_ms(self) -> int:
        """From one heartbeat to the next, once."""
        wait_ms = min(self._next_ms, self.interval_ms)
        self._next_ms = 2 * wait_ms
        return wait_ms


class Change(NamedTuple):
    """What the polling thread has to do to the assignment before the membership goes on.

    It commits what was processed if `revoked` is not lost, calls the listener with `revoked`, makes `assignment` the assignment, then calls
    the listener with `added` unless that is None.

    Attributes:
        revoked: partitions that are taken away.
        lost: another member may have them already: nothing can be committed for them, and on_partitions_lost is called.
        assignment: what is assigned afterwards.
        added: partitions that are new, perhaps none; None when this change only takes away.
    """

    revoked: frozenset[TopicPartition]
    lost: bool
    assignment: frozenset[TopicPartition]
    added: frozenset[TopicPartition] | None


def taken_over(settings: GroupSettings, member_id: str, cause: errors.KafkaError, remedy: str) -> errors.FencedInstanceId:
    """Why a static member is out of its group: what the coordinator says is only that it was fenced.

    Args:
        settings: of the member.
        member_id: its name in the group.
        cause: the coordinator's answer.
        remedy: whether it joins again by itself, and what to do.
    """
    return errors.FencedInstanceId(
        f"group {settings.group_id}: another process uses group_instance_id {settings.group_instance_id!r}, so member {member_id!r} is out "
        f"of the group. {remedy}",
        broker=cause.broker,
        api=cause.api,
        attempts=[cause],
    )


class Membership(Protocol):
    """An engine that keeps this consumer in its group; `ClassicMembership` and `ConsumerMembership` are the two.

    Attributes:
        phase: where the member stands; the values of both engines are words of their files' diagrams.
        change: what the polling thread has to carry out, None for nothing.
        failure: what ended the last try to join; raised by the next poll, which takes it away. The engine tries again after its back-off.
        fenced: another process has this member's group_instance_id; None when that is not known.
        breached: the member left because the application did not poll for max_poll_interval_ms; the next poll raises
            MaxPollExceeded and takes it away.
        rebalances, failed_rebalances: how many rebalances ended well, and how many did not.
        rebalance_began_ms: when the rebalance that is under way began, -1 when no rebalance is under way.
        last_rebalance_ms, rebalance_ms_sum, rebalance_ms_max: how long the last one took; all together; the longest.
        heartbeats: sent so far.
        last_heartbeat_ms: when the last heartbeat that was answered well was sent, -1 before the first.
    """

    phase: Any
    change: Change | None
    failure: errors.KafkaError | None
    fenced: errors.KafkaError | None
    breached: bool
    rebalances: int
    failed_rebalances: int
    rebalance_began_ms: int
    last_rebalance_ms: int
    rebalance_ms_sum: int
    rebalance_ms_max: int
    heartbeats: int
    last_heartbeat_ms: int

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """Group, generation and member as commits name them."""

    @property
    def joined(self) -> bool:
        """True while the member has a generation that is not known to have ended."""

    def subscribe(self, topics: frozenset[str]) -> None:
        """Wants these topics from now on; a member rejoins or reports it with the next step."""

    def polled(self, now_ms: int) -> None:
        """The application has called poll."""

    def step(self, now_ms: int) -> None:
        """Sends what can be sent."""

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until `step` has something to do although no answer comes; None when there is no such time."""

    def carried_out(self, change: Change, now_ms: int) -> None:
        """The polling thread has done what `change` says; the engine may have another one by now."""

    def rejoin(self, reason: str) -> None:
        """Begins a rebalance with the next step (enforce_rebalance)."""

    def commit_refused(self, cause: errors.KafkaError, sent_as: ConsumerGroupMetadata) -> bool:
        """A commit was answered with an error about this member: it counts as the answer of a heartbeat does, at once.

        Args:
            cause: what the coordinator answered.
            sent_as: whom the commit named. What is said of an earlier generation changes nothing.

        Returns:
            Whether this member, which is about to leave, is taking part in the group's next generation: that may commit.
        """

    def hold(self) -> None:
        """The owner commits, and then leaves: until then the member begins no rebalance, which could refuse its commits."""

    def leave(self, now_ms: int, reason: str) -> None:
        """Leaves the group; the request is sent at once if the coordinator can be reached, and no answer changes anything."""

    @property
    def leaving(self) -> bool:
        """The coordinator has not answered to `leave` yet."""

    def start_anew(self, client: NetworkClient) -> None:
        """Another network client: what was asked is asked again."""


def too_many(partitions: int) -> str:
    """What is wrong with the size of an assignment, empty if nothing is.

    Each partition costs memory and time, whether its topic has it or not.
    """
    if partitions <= ASSIGNED_PARTITIONS:
        return ""
    return f"the assignment names {partitions:,} partitions, and a member has no more than {ASSIGNED_PARTITIONS:,}"
