"""Questions for the leaders of many partitions at once, retried until each partition has an answer: ListOffsets and its like.

A step looks at the partitions that have something to be done, not at all that wait: those of a broker that is not connected stand with the
broker, those without a leader wait for other metadata, those that were refused for the end of their back-off.

Nothing here blocks: `step(now_ms)` sends what can be sent, answers arrive through callbacks inside `NetworkClient.poll`, and
`next_wake_ms(now_ms)` says how long the driver may wait when nothing arrives.

Source: Kafka's OffsetFetcher and PartitionLeaderStrategy; KIP-79 (by timestamp), KIP-580 (back-off).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkacore import errors
from kafkacore.metadata import ClusterSnapshot, Metadata
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.connection import doubled_ms
from kafkacore.net.driver import CallerDriver
from kafkacore.protocol import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkacore.types import Node, TopicPartition

T = TypeVar("T")
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
CONSUMER_REPLICA_ID = -1
_ENDS = frozenset({EARLIEST_TIMESTAMP, LATEST_TIMESTAMP})  # every log has them
_REMOTE_TIMEOUT_MS = 30_000
_ABSENT_MS = 5_000  # a new topic is known to every broker long before


class ListedOffset(NamedTuple):
    """One answer of ListOffsets: offset -1 means that no record matches."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def by_topic(items: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[tuple[int, T]]]:
    """Groups (partition, value) pairs the way requests want them: topic -> [(index, value)]."""
    topics: dict[str, list[tuple[int, T]]] = {}
    for tp, value in items:
        topics.setdefault(tp[0], []).append((tp[1], value))
    return topics


class LeaderQuery:
    """A question asked of the leader of each of many partitions, until all have answered.

    Subclasses say how a request is built and how an answer is read.

    Args:
        client: the network.
        metadata: who leads what; refreshed when a leader is unknown or wrong.
        waiting: the partitions.
        retry_backoff_ms, retry_backoff_max_ms: pause before a partition is asked again, doubled with every failed try.
        retries: how often a partition is asked again; None for no limit.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        waiting: Iterable[TopicPartition],
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        retries: int | None = None,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._waiting: dict[TopicPartition, None] = dict.fromkeys(waiting)  # to be given to their leaders with the next step
        self._by_leader: dict[Node, dict[TopicPartition, None]] = {}
        self._leaderless: dict[TopicPartition, None] = {}
        self._delayed: dict[TopicPartition, int] = {}  # -> not before
        self._delays: list[tuple[int, int, TopicPartition]] = []  # a heap; what has another time in `_delayed` no longer counts
        self._order = itertools.count()
        self._snapshot: ClusterSnapshot | None = None
        self._flying: set[TopicPartition] = set()
        self._failed_tries: list[tuple[TopicPartition, int]] = []  # answers carry no time: the next step starts their back-off
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._retries = retries
        self._tries: dict[TopicPartition, int] = {}
        self.last_errors: dict[TopicPartition, errors.KafkaError] = {}
        self.failed: dict[TopicPartition, errors.KafkaError] = {}
        self.cancelled = False
        self._where: dict[str, Any] = {}  # who gave the answer that is being read
        self._first_errors: dict[str, errors.KafkaError | None] = {}
        self._absent_since_ms: dict[str, int] = {}
        self.topics_may_fail = False
        """A topic that the cluster refuses to describe, or has not known for 5 s, fails its partitions; otherwise they wait, and the caller
        raises the error."""

    @property
    def done(self) -> bool:
        """Every partition has an answer or has failed for good."""
        return not (
            self._waiting or self._flying or self._failed_tries or self._by_leader or self._leaderless or self._delayed
        )

    def cancel(self) -> None:
        """Answers still to come are ignored."""
        self.cancelled = True
        self._waiting.clear()
        self._by_leader.clear()
        self._leaderless.clear()
        self._delayed.clear()
        self._delays.clear()
        self._flying.clear()
        self._failed_tries.clear()

    def drop(self, tps: Collection[TopicPartition]) -> None:
        """The answers of these partitions are not needed: they are not asked about again."""
        for tp in tps:
            self._waiting.pop(tp, None)
            self._leaderless.pop(tp, None)
            self._delayed.pop(tp, None)
            self._flying.discard(tp)
        for leader, group in list(self._by_leader.items()):
            for tp in tps:
                group.pop(tp, None)
            if not group:
                del self._by_leader[leader]
        if self._failed_tries:
            dropped = set(tps)
            self._failed_tries = [t for t in self._failed_tries if t[0] not in dropped]

    def unanswered(self) -> list[TopicPartition]:
        """The partitions without an answer so far."""
        grouped = (tp for group in self._by_leader.values() for tp in group)
        return [*self._waiting, *grouped, *self._leaderless, *self._delayed, *self._flying, *(tp for tp, _ in self._failed_tries)]

    def step(self, now_ms: int) -> None:
        """Sends one request to each leader that is ready and has partitions to be asked."""
        for tp, tries in self._failed_tries:
            not_before_ms = self._delayed[tp] = now_ms + doubled_ms(self._backoff_ms, self._backoff_max_ms, tries)
            heapq.heappush(self._delays, (not_before_ms, next(self._order), tp))
        self._failed_tries.clear()
        waiting, delays = self._waiting, self._delays
        while delays and delays[0][0] <= now_ms:
            not_before_ms, _, tp = heapq.heappop(delays)
            if self._delayed.get(tp) == not_before_ms:
                del self._delayed[tp]
                waiting[tp] = None
        snapshot = self._metadata.snapshot
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            waiting.update(self._leaderless)
            self._leaderless.clear()
            for group in self._by_leader.values():
                waiting.update(group)
            self._by_leader.clear()
        if waiting:
            self._waiting = {}
            for tp in waiting:
                self._give_to_leader(tp, snapshot, now_ms)
        if self._leaderless:
            self._metadata.request_update()
        for leader in list(self._by_leader):
            if self._client.ready(leader, now_ms):
                self._ask(leader, list(self._by_leader.pop(leader)), now_ms)

    def _give_to_leader(self, tp: TopicPartition, snapshot: ClusterSnapshot, now_ms: int) -> None:
        leader = snapshot.leader(tp)
        if leader is not None:
            group = self._by_leader.get(leader)
            if group is None:
                group = self._by_leader[leader] = {}
            group[tp] = None
            return
        topic = snapshot.topics.get(tp[0])
        error = None if topic is None else topic.error
        # what was known before is the answer to an earlier question
        if self._first_errors.setdefault(tp[0], error) is not error and error is not None:
            absent = isinstance(error, errors.UnknownTopicOrPartition)
            since_ms = self._absent_since_ms.setdefault(tp[0], now_ms) if absent else now_ms
            if self.topics_may_fail and (not error.retriable or now_ms - since_ms >= _ABSENT_MS):
                self.failed[tp] = error
                return
            self.last_errors[tp] = error
        elif topic is not None and tp not in self.last_errors:
            where: dict[str, Any] = {"topic": tp[0], "partition": tp[1]}
            self.last_errors[tp] = (
                errors.UnknownTopicOrPartition("there is no such partition", **where)
                if topic.partition(tp[1]) is None
                else errors.LeaderNotAvailable("no broker leads the partition", **where)
            )
        self._leaderless[tp] = None
        self._metadata.add_topic(tp[0], now_ms)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until a partition or a broker in back-off may be asked again; None when only the network can bring news."""
        if self._failed_tries:
            return 0
        waits = [self._client.poll_delay_ms(leader, now_ms) for leader in self._by_leader]
        delays = self._delays
        while delays and self._delayed.get(delays[0][2]) != delays[0][0]:
            heapq.heappop(delays)  # dropped
        if delays:
            waits.append(max(0, delays[0][0] - now_ms))
        return min(waits) if waits else None

    def _ask(self, leader: Node, tps: list[TopicPartition], now_ms: int) -> None:
        self._flying.update(tps)

        def answered(response: ClientResponse) -> None:
            if self.cancelled:
                return
            if response.error is not None or response.response is None:
                cause = response.error or errors.DisconnectError(f"the connection to broker {leader.id} was lost")
                flying = [tp for tp in tps if tp in self._flying]
                if isinstance(cause, errors.UnsupportedVersion):
                    for tp in flying:
                        self._fail(tp, cause)
                    return
                self._metadata.request_update()
                for tp in flying:
                    self._retry(tp, cause)
                return
            self._where = {"broker": leader.id, "api": f"{name} v{response.version}"}
            self._read(tps, response.response)
            for tp in tps:
                if tp in self._flying:
                    self._retry(tp, self._wrong(tp, "the answer leaves the partition out"))

        api, build = self._request(tps)
        name = api.__name__.removesuffix("Request")
        self._client.send(self._client.new_client_request(leader.id, api, build, now_ms, callback=answered), now_ms)

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        raise NotImplementedError

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        raise NotImplementedError

    def _wrong(self, tp: TopicPartition, what: str) -> errors.KafkaError:
        return errors.UnknownServer(what, topic=tp[0], partition=tp[1], **self._where)

    def _answer(self, tp: TopicPartition) -> None:
        self._flying.discard(tp)
        self.last_errors.pop(tp, None)

    def _fail(self, tp: TopicPartition, cause: errors.KafkaError) -> None:
        self._flying.discard(tp)
        self.failed[tp] = cause

    def _retry(self, tp: TopicPartition, cause: errors.KafkaError) -> None:
        tries = self._tries.get(tp, 0)
        if self._retries is not None and tries >= self._retries:
            self._fail(tp, cause)
            return
        self._flying.discard(tp)
        self.last_errors[tp] = cause
        self._tries[tp] = tries + 1
        self._failed_tries.append((tp, tries))

    def _code(self, tp: TopicPartition, code: int) -> bool:
        """Deals with an error code. Returns True for no error."""
        if code == 0:
            return True
        cause = errors.from_code(code, topic=tp[0], partition=tp[1], **self._where)
        if cause.invalid_metadata:
            self._metadata.request_update()
            self._retry(tp, cause)
        elif cause.retriable:
            self._retry(tp, cause)
        else:
            self._fail(tp, cause)
        return False


class OffsetQuery(LeaderQuery):
    """Offsets by timestamp: `results[tp]` for each partition of `timestamps_ms`.

    Args:
        timestamps_ms: per partition an epoch time, or -1 latest, -2 earliest, -3 the record with the greatest timestamp (KIP-734).
        isolation_level: 1 makes `latest` the last stable offset.
        rest: as for `LeaderQuery`.

    Attributes:
        asked_epochs: per partition the leader epoch its leader was asked with last, -1 when unknown; a leader with another one refuses.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        timestamps_ms: Mapping[TopicPartition, int],
        *,
        isolation_level: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        retries: int | None = None,
    ) -> None:
        super().__init__(
            client,
            metadata,
            timestamps_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            retries=retries,
        )
        self._timestamps_ms = dict(timestamps_ms)
        self._isolation_level = isolation_level
        self.asked_epochs: dict[TopicPartition, int] = {}
        self.results: dict[TopicPartition, ListedOffset] = {}

    def run(self, driver: CallerDriver, timeout_ms: int) -> dict[TopicPartition, ListedOffset]:
        """Drives the network until every partition has an answer.

        Raises:
            errors.KafkaTimeoutError: some have none in time; it names the last cause of each.
            errors.KafkaError: a broker refused for good.
        """

        def step(now_ms: int) -> int | None:
            self.step(now_ms)
            return self.next_wake_ms(now_ms)

        self.topics_may_fail = True
        try:
            in_time = driver.run(step, lambda: self.done or bool(self.failed), timeout_ms)
        except BaseException:
            self.cancel()
            raise
        if self.failed:
            self.cancel()
            raise next(iter(self.failed.values()))
        if not in_time:
            missing = self.unanswered()
            self.cancel()
            raise errors.KafkaTimeoutError(
                f"no offset in time for {len(missing)} partition(s): " + ", ".join(f"{t}-{p}" for t, p in missing[:5]),
                topic=missing[0][0],
                partition=missing[0][1],
                attempts=[*self.last_errors.values(), *driver.attempts()],
            )
        return self.results

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        snapshot = self._metadata.snapshot
        epochs = {tp: snapshot.leader_epoch(tp) for tp in tps}
        self.asked_epochs.update(epochs)

        def build(version: int) -> ListOffsetsRequest:
            if version == 0 and any(self._timestamps_ms[tp] not in _ENDS for tp in tps):
                raise errors.UnsupportedVersion("brokers before Kafka 0.10.1 know the ends of logs alone, not offsets by time")
            return ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=self._isolation_level if version >= 2 else 0,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=index,
                                current_leader_epoch=epoch,
                                timestamp=self._timestamps_ms[TopicPartition(name, index)],
                            )
                            for index, epoch in partitions
                        ],
                    )
                    for name, partitions in by_topic(epochs.items()).items()
                ],
                timeout_ms=_REMOTE_TIMEOUT_MS if version >= 10 else 0,
            )

        return ListOffsetsRequest, build

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        for topic in response.topics:  # type: ignore[attr-defined]
            for data in topic.partitions:
                tp = TopicPartition(topic.name, data.partition_index)
                if tp in self._flying and self._code(tp, data.error_code):
                    offset = data.old_style_offsets[0] if data.old_style_offsets else data.offset
                    if offset < -1 or (offset < 0 and self._timestamps_ms[tp] in _ENDS):
                        self._retry(tp, self._wrong(tp, f"the answer names offset {offset}"))
                        continue
                    self._answer(tp)
                    self.results[tp] = ListedOffset(offset, data.timestamp, data.leader_epoch)
