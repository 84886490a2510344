"""What a consumer can say about its own state: whether reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kafkacore.config import ConsumerConfig
from kafkacore.config_listeners import joined
from kafkacore.consumer.fetcher import Fetcher
from kafkacore.consumer.group.member import GroupMember
from kafkacore.consumer.group.member_health import MemberHealth
from kafkacore.consumer.offsets import PositionKeeper
from kafkacore.consumer.subscription import FetchState, Mode, PartitionState, SubscriptionState
from kafkacore.consumer.topics import TopicWatch
from kafkacore.errors import NAMES, KafkaError
from kafkacore.metadata import Metadata
from kafkacore.net.client import NetworkClient
from kafkacore.net.driver import CallerDriver
from kafkacore.net.waits import LONG_MS, Pieces, waits
from kafkacore.plurals import counted
from kafkacore.protocol import FetchRequest, JoinGroupRequest, SyncGroupRequest
from kafkacore.types import TopicPartition

_LEFT_LYING_MS = 30_000  # records that are there and that the program does not take: it may be at work on others
_NEVER_MS = 1 << 60
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
        for_ms: for how long so far: since `health` first saw it, or for as long as the calls before that look have found nothing to read.
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
        stalled: partitions that are not paused and whose position has not moved for 5 s: there are records left to read and none come, or
            the position is still looked up or validated. Where records have come and the program does not take them, it is 30 s.
        member: how a member stands in its group; None without a group, and with `assign`.
        held_back: partitions read up to the beginning of an open transaction, in read_committed. After 5 s that is a problem, too. The lag
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
        attempts: why the position of a partition has not been found so far.
        read_committed: records end at the last stable offset.
        fetch_max_wait_ms: how long brokers hold a fetch that finds nothing.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        attempts: Callable[[TopicPartition], list[KafkaError]],
        *,
        read_committed: bool,
        fetch_max_wait_ms: int,
    ) -> None:
        self._subscription = subscription
        self._attempts = attempts
        self._read_committed = read_committed
        self._stalled_after_ms = LONG_MS + fetch_max_wait_ms
        self._empty_since_ms = -1
        self._watched: dict[TopicPartition, tuple[int, int]] = {}
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        self._held_looked_ms = -1

    def held_back(self, empty_since_ms: int, now_ms: int) -> tuple[HeldBack, ...]:
        """Where open transactions hold this reader back.

        Args:
            empty_since_ms: since when calls that read have found nothing, -1 if the last one found something. A partition that no look
                has seen held back counts as held back since then, but not since before the last look.
            now_ms: time.
        """
        before, self._held = self._held, {}
        if not self._read_committed:
            return ()
        first_ms = now_ms if empty_since_ms < 0 else max(empty_since_ms, self._held_looked_ms)
        self._held_looked_ms = now_ms
        found = []
        for tp, state in self._subscription.partitions.items():
            stable = state.last_stable_offset
            if state.lag(True) != 0 or state.offset != stable or state.high_watermark <= stable:
                continue
            offset, since_ms = before.get(tp, (-1, first_ms))
            self._held[tp] = stable, (since_ms if offset == stable else first_ms)
            found.append(HeldBack(tp, stable, state.high_watermark - stable, now_ms - self._held[tp][1]))
        return tuple(found)

    def look(
        self,
        metadata: Metadata,
        client: NetworkClient,
        refusals: Mapping[PartitionState, tuple[int, int]],
        came_ms: Mapping[int, int],
        now_ms: int,
    ) -> tuple[list[str], list[TopicPartition]]:
        """Returns what is wrong with partitions, one sentence each, and the partitions that do not move.

        Args:
            metadata, client: where the partitions' leaders are.
            refusals: of partitions that their brokers go on refusing to be read: since when, and the last error code.
            came_ms: when a piece of a large answer last came from a broker.
            now_ms: time.
        """
        problems: list[str] = []
        stalled: list[TopicPartition] = []
        absent: dict[str, list[str]] = {}
        watched: dict[TopicPartition, tuple[int, int]] = {}
        snapshot = metadata.snapshot
        for tp, state in self._subscription.partitions.items():
            offset, since_ms = self._watched.get(tp, (-2, now_ms))
            if state.offset != offset or state.paused or state.lag(self._read_committed) == 0:
                offset, since_ms = state.offset, now_ms
            watched[tp] = (offset, since_ms)
            since_ms = max(since_ms, came_ms.get(state.node_id, 0))
            limit_ms = _LEFT_LYING_MS if state.held else self._stalled_after_ms
            if state.state is not FetchState.FETCHING:
                since_ms = now_ms if state.paused or state.unsettled_since_ms < 0 else state.unsettled_since_ms
                limit_ms = LONG_MS
            name = f"{tp.topic}-{tp.partition}"
            topic = snapshot.topics.get(tp.topic)
            if topic is not None and topic.error is None and topic.partition(tp.partition) is None:
                absent.setdefault(tp.topic, []).append(name)
                if now_ms - since_ms >= limit_ms:
                    stalled.append(tp)
                continue
            if now_ms - since_ms >= limit_ms:
                stalled.append(tp)
                what = f"has been {waits_for}" if (waits_for := _WAITS_FOR.get(state.state)) else "has not moved"
                why = self._attempts(tp) if waits_for else []
                reason = f": {why[-1]}" if why else ""
                problems.append(f"{name} {what} for {(now_ms - since_ms) // 1000} s (offset {state.offset}){reason}")
            if state in refusals and now_ms - refusals[state][0] >= LONG_MS and not state.paused:
                began_ms, code = refusals[state]
                problems.append(f"{name} has been refused by its broker for {(now_ms - began_ms) // 1000} s: {NAMES.get(code, code)}")
            leader = snapshot.leader(tp)
            if topic is None:
                pass  # not looked up yet
            elif topic.error is not None:
                problems.append(f"{name}: {topic.error}")
            elif leader is None:
                problems.append(f"{name} has no leader")
            elif client.connection_failed(leader):
                problems.append(f"{name}: broker {leader.id} ({joined(leader.host, leader.port)}) cannot be reached")
        for topic_name, names in absent.items():
            more = "does" if len(names) == 1 else f"and {counted(len(names) - 1, 'partition')} more do"
            has = counted(snapshot.partition_count(topic_name) or 0, "partition")
            problems.append(f"{names[0]} {more} not exist: topic {topic_name} has {has}")
        self._watched = watched
        return problems, stalled

    def nothing_to_read(self, now_ms: int) -> list[str]:
        """A sentence where topics are subscribed to without a group and there have been no partitions for long."""
        subscription = self._subscription
        if subscription.partitions or subscription.mode is not Mode.TOPICS:
            self._empty_since_ms = -1
            return []
        if self._empty_since_ms < 0:
            self._empty_since_ms = now_ms
        waited_ms = now_ms - self._empty_since_ms
        topics = ", ".join(sorted(subscription.topics)[:10])
        return [f"no partition of {topics} is known after {waited_ms // 1000} s"] if waited_ms >= LONG_MS else []


def held_back_problems(held: Iterable[HeldBack]) -> list[str]:
    """One sentence for each partition that has been held back for long. Whose transaction it is, only brokers know."""
    return [
        f"{each.partition.topic}-{each.partition.partition}: an open transaction has held readers of committed data back at offset"
        f" {each.offset} for {each.for_ms // 1000} s, {counted(each.behind, 'offset')} before the end;"
        f" `kafkacore transactions open {each.partition.topic}` says whose"
        for each in held
        if each.for_ms >= LONG_MS
    ]


class HealthWatch:
    """Makes a consumer's `health` of what its parts know.

    Args:
        driver: of the network.
        subscription: what is read.
        positions: finds positions.
        fetcher: fetches.
        topics: follows the metadata.
        group: this consumer's part in its group, None without one.
        config: the consumer's settings.
        read_committed: records end at the last stable offset.
    """

    def __init__(
        self,
        driver: CallerDriver,
        subscription: SubscriptionState,
        positions: PositionKeeper,
        fetcher: Fetcher,
        topics: TopicWatch,
        group: GroupMember | None,
        config: ConsumerConfig,
        *,
        read_committed: bool,
    ) -> None:
        self._driver = driver
        self._fetcher = fetcher
        self._topics = topics
        self._group = group
        self._stalls = StallWatch(
            subscription, positions.attempts, read_committed=read_committed, fetch_max_wait_ms=config.fetch_max_wait_ms
        )
        self._pieces = Pieces()
        # Members wait for each other there, and say so themselves.
        self._may_take_ms: dict[type, int] = {
            FetchRequest: config.fetch_max_wait_ms,
            JoinGroupRequest: _NEVER_MS,
            SyncGroupRequest: _NEVER_MS,
        }

    def look(self, empty_since_ms: int, now_ms: int) -> ConsumerHealth:
        """What is wrong now. What has arrived is taken in; nothing is waited for.

        Args:
            empty_since_ms: since when calls that read have found nothing, -1 if the last one found something.
            now_ms: time.
        """
        driver, group = self._driver, self._group
        came_ms = self._pieces.take_in(driver.client, now_ms)
        problems = driver.unreachable(now_ms)  # what everything else may come of
        problems += waits(driver.client, now_ms, self._may_take_ms, came_ms)
        member, of_group = (None, []) if group is None else group.health(now_ms)
        refusals = self._fetcher.refusals.going_on(now_ms)
        of_partitions, stalled = self._stalls.look(driver.metadata, driver.client, refusals, came_ms, now_ms)
        problems += of_partitions + self._topics.problems(now_ms) + of_group
        if group is None:
            problems += self._stalls.nothing_to_read(now_ms)
        held = self._stalls.held_back(empty_since_ms, now_ms)
        problems += held_back_problems(held)
        return ConsumerHealth(not problems, tuple(problems), tuple(stalled), member, held)


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
