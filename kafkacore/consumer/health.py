"""What a consumer can say about its own state: whether reading goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafkacore.config_listeners import joined
from kafkacore.consumer.group.member_health import MemberHealth
from kafkacore.consumer.subscription import FetchState, SubscriptionState
from kafkacore.metadata import Metadata
from kafkacore.net.client import NetworkClient
from kafkacore.plurals import counted
from kafkacore.types import TopicPartition

_STALLED_AFTER_MS = 30_000
_WAITS_FOR = {
    FetchState.INITIALIZING: "initializing",
    FetchState.AWAIT_RESET: "awaiting reset",
    FetchState.AWAIT_VALIDATION: "awaiting validation",
}


class HeldBack(NamedTuple):
    """A partition in which an open transaction holds a reader of committed data back.

    Attributes:
        partition: which.
        offset: the last stable offset, where the open transaction begins.
        behind: how many offsets there are from there to the end of the partition.
        for_ms: for how long so far, since `health` first saw it.
    """

    partition: TopicPartition
    offset: int
    behind: int
    for_ms: int


class ConsumerHealth(NamedTuple):
    """What `KafkaConsumer.health` finds.

    Attributes:
        ok: nothing is wrong that the consumer can see.
        problems: one sentence each, what others may come of first.
        stalled: partitions that are not paused and whose position has not moved for 30 s although they were polled: there are records left
            to read, or the position is still looked up or validated.
        member: how a member stands in its group; None without a group, and with `assign`.
        held_back: partitions read up to the beginning of an open transaction, in read_committed. After 30 s that is a problem, too. The lag
            does not show it: it ends there.
    """

    ok: bool
    problems: tuple[str, ...]
    stalled: tuple[TopicPartition, ...]
    member: MemberHealth | None = None
    held_back: tuple[HeldBack, ...] = ()


class StallWatch:
    """Sees which partitions do not move, from one look to the next.

    Args:
        subscription: whose partitions.
        read_committed: records end at the last stable offset.
    """

    def __init__(self, subscription: SubscriptionState, *, read_committed: bool) -> None:
        self._subscription = subscription
        self._read_committed = read_committed
        self._watched: dict[TopicPartition, tuple[int, int]] = {}
        self._held: dict[TopicPartition, tuple[int, int]] = {}

    def held_back(self, now_ms: int) -> tuple[HeldBack, ...]:
        """Where open transactions hold this reader back."""
        before, self._held = self._held, {}
        if not self._read_committed:
            return ()
        found = []
        for tp, state in self._subscription.partitions.items():
            stable = state.last_stable_offset
            if state.lag(True) != 0 or state.offset != stable or state.high_watermark <= stable:
                continue
            offset, since_ms = before.get(tp, (-1, now_ms))
            self._held[tp] = stable, (since_ms if offset == stable else now_ms)
            found.append(HeldBack(tp, stable, state.high_watermark - stable, now_ms - self._held[tp][1]))
        return tuple(found)

    def look(self, metadata: Metadata, client: NetworkClient, now_ms: int) -> tuple[list[str], list[TopicPartition]]:
        """Returns what is wrong with partitions, one sentence each, and the partitions that do not move."""
        problems: list[str] = []
        stalled: list[TopicPartition] = []
        watched: dict[TopicPartition, tuple[int, int]] = {}
        snapshot = metadata.snapshot
        for tp, state in self._subscription.partitions.items():
            offset, since_ms = self._watched.get(tp, (-2, now_ms))
            if state.offset != offset or state.paused or state.lag(self._read_committed) == 0:
                offset, since_ms = state.offset, now_ms
            watched[tp] = (offset, since_ms)
            if state.state is not FetchState.FETCHING:
                since_ms = now_ms if state.paused or state.unsettled_since_ms < 0 else state.unsettled_since_ms
            name = f"{tp.topic}-{tp.partition}"
            if now_ms - since_ms >= _STALLED_AFTER_MS:
                stalled.append(tp)
                what = f"has been {waits_for}" if (waits_for := _WAITS_FOR.get(state.state)) else "has not moved"
                problems.append(f"{name} {what} for {(now_ms - since_ms) // 1000} s (offset {state.offset})")
            leader = snapshot.leader(tp)
            topic = snapshot.topics.get(tp.topic)
            if topic is None:
                pass  # not looked up yet
            elif topic.error is not None:
                problems.append(f"{name}: {topic.error}")
            elif topic.partition(tp.partition) is None:
                problems.append(f"{name} does not exist: topic {tp.topic} has {counted(topic.partition_count, 'partition')}")
            elif leader is None:
                problems.append(f"{name} has no leader")
            elif client.connection_failed(leader):
                problems.append(f"{name}: broker {leader.id} ({joined(leader.host, leader.port)}) cannot be reached")
        self._watched = watched
        return problems, stalled


def held_back_problems(held: Iterable[HeldBack]) -> list[str]:
    """One sentence for each partition that has been held back for long. Whose transaction it is, only brokers know."""
    return [
        f"{each.partition.topic}-{each.partition.partition}: an open transaction has held readers of committed data back at offset"
        f" {each.offset} for {each.for_ms // 1000} s, {counted(each.behind, 'offset')} before the end;"
        f" `kafkacore transactions open {each.partition.topic}` says whose"
        for each in held
        if each.for_ms >= _STALLED_AFTER_MS
    ]


def describe_partitions(subscription: SubscriptionState, read_committed: bool) -> Iterator[tuple[str, dict[str, object]]]:
    """Where each partition stands, for `KafkaConsumer.statistics`."""
    for tp, s in subscription.partitions.items():
        yield (
            f"{tp.topic}-{tp.partition}",
            {
                "state": s.state.value,
                "position": s.offset,
                "high_watermark": s.high_watermark,
                "last_stable_offset": s.last_stable_offset,
                "log_start_offset": s.log_start_offset,
                "lag": s.lag(read_committed),
                "paused": s.paused,
                "preferred_replica": s.preferred_replica,
            },
        )
