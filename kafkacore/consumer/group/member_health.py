"""What an operator asks about a member: who it is, how it stands in its group, and what it waits for."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kafkacore import errors
from kafkacore.consumer.group.membership import GroupSettings, Membership
from kafkacore.net.coordinator import CoordinatorLink
from kafkacore.net.waits import LONG_MS
from kafkacore.types import TopicPartition

LONG_COMMIT_MS = 2_000
"""A commit before partitions are given up that takes so long is a problem: meanwhile poll() hands out nothing."""
_WAITS_FOR = {
    "out": "poll(), which joins",
    "left": "poll(), which joins again",
    "joining": "the coordinator's answer to its join, which may wait for the other members",
    "assigning": "metadata of the topics of all members, as their leader",
    "syncing": "the assignment of the group's leader",
    "revoking": "poll(), inside which partitions are given up",
    "losing": "poll(), inside which lost partitions are given up",
    "adopting": "poll(), inside which partitions are taken over",
    "reconciling": "poll(), inside which partitions change hands, or for the names of topic ids",
    "acknowledging": "the coordinator to take in what was given up and taken over",
}


class MemberHealth(NamedTuple):
    """How a member stands in its group, for `KafkaConsumer.health`.

    Attributes:
        group_id: of the group.
        member_id: "" before the coordinator knows this member.
        group_instance_id: of a static member, else None.
        generation: of the group; the member's epoch with group_protocol=consumer; -1 while it is no member.
        state: of the membership: out, joining, stable, ...; `stable` is the one to be in.
        coordinator: the id of its broker, -1 while it is not known.
        heartbeat_age_ms: since the last heartbeat that was answered well was sent; None before the first.
        waits_for: what has to come before it is stable; "" when it is.
        waiting_ms: for how long the rebalance has been under way; 0 when none is.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    state: str
    coordinator: int
    heartbeat_age_ms: int | None
    waits_for: str
    waiting_ms: int


def coordinator_problem(link: CoordinatorLink, group_id: str, now_ms: int) -> str:
    """Why the coordinator is not known; "" when it is, or when no search for it has failed."""
    if link.node is not None or not link.attempts:
        return ""
    since = f" for {(now_ms - link.unknown_since_ms) // 1000} s" if link.unknown_since_ms >= 0 else ""
    return f"the coordinator of group {group_id} has not been found or reached{since}: {link.attempts[-1]}"


def member_health(membership: Membership, link: CoordinatorLink, settings: GroupSettings, now_ms: int) -> MemberHealth:
    """How the member stands."""
    identity = membership.metadata
    state = membership.phase.value
    waits_for = coordinator_problem(link, settings.group_id, now_ms) or _WAITS_FOR.get(state, "")
    if membership.fenced is not None:
        waits_for = membership.fenced.message
    beat_ms, began_ms = membership.last_heartbeat_ms, membership.rebalance_began_ms
    return MemberHealth(
        settings.group_id,
        identity.member_id,
        settings.group_instance_id,
        identity.generation_id,
        state,
        link.broker_id,
        None if beat_ms < 0 else now_ms - beat_ms,
        waits_for,
        0 if began_ms < 0 else now_ms - began_ms,
    )


def commit_wait(partitions: Collection[TopicPartition], error: errors.KafkaError | None) -> str:
    """What a member waits for that commits before it gives partitions up.

    Args:
        partitions: whose offsets are committed.
        error: why the last try failed, None before it has.
    """
    named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions)[:5]) + (", ..." if len(partitions) > 5 else "")
    return f"the commit before giving up partitions ({named})" + ("" if error is None else f", which failed so far: {error}")


def member_problems(
    member: MemberHealth, settings: GroupSettings, *, joined: bool, commits: bool = False, fenced: bool = False
) -> list[str]:
    """What is wrong with the membership, one sentence each.

    Args:
        member: how it stands.
        settings: of the member.
        joined: it has a generation.
        commits: it waits for the commit before it gives partitions up.
        fenced: another process has its group_instance_id.
    """
    group = member.group_id
    since = f" for {member.waiting_ms // 1000} s" if member.waiting_ms else ""
    if joined and commits:
        if member.waiting_ms < LONG_COMMIT_MS:
            return []
        return [f"group {group}: poll() hands out nothing{since}: it waits for {member.waits_for}"]
    if fenced and not joined:
        return [member.waits_for]
    if not joined:
        return [f"not a member of group {group}{since}: it waits for {member.waits_for}"]
    if member.waiting_ms >= LONG_MS:
        return [f"group {group} has been rebalancing{since}: {member.member_id} waits for {member.waits_for}"]
    if member.state == "stable" and (member.heartbeat_age_ms or 0) >= settings.session_timeout_ms:
        return [
            f"group {group}: no heartbeat of {member.member_id} was answered for {(member.heartbeat_age_ms or 0) // 1000} s "
            f"(session_timeout_ms is {settings.session_timeout_ms})"
        ]
    return []
