"""Finding and checking positions: ListOffsets and OffsetForLeaderEpoch, batched by leader, retried until every partition has an answer.

Nothing here blocks: `step(now_ms)` sends what can be sent, answers arrive through callbacks inside `NetworkClient.poll`, and
`next_wake_ms(now_ms)` says how long the driver may wait when nothing arrives.

Source: Kafka's OffsetFetcher and OffsetsForLeaderEpochClient; KIP-79 (by timestamp), KIP-320 (validation), KIP-580 (back-off).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kafkacore import errors
from kafkacore.consumer.subscription import FetchState, PartitionState, ResetStrategy, SubscriptionState
from kafkacore.metadata import Metadata
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.driver import CallerDriver
from kafkacore.protocol import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkacore.types import Node, TopicPartition

log = logging.getLogger("kafkacore.consumer")

T = TypeVar("T")
CONSUMER_REPLICA_ID = -1
MAX_TIMESTAMP = -3
_RETRY_WITHOUT_METADATA = frozenset({errors.Code.OFFSET_NOT_AVAILABLE, errors.Code.UNKNOWN_LEADER_EPOCH, errors.Code.REQUEST_TIMED_OUT})


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
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        waiting: Iterable[TopicPartition],
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._waiting: dict[TopicPartition, int] = dict.fromkeys(waiting, 0)  # -> not before
        self._flying: set[TopicPartition] = set()
        self._failed_tries: list[tuple[TopicPartition, int]] = []  # answers carry no time: the next step starts their back-off
        self._backoff_ms = retry_backoff_ms
        self._backoff_max_ms = retry_backoff_max_ms
        self._tries: dict[TopicPartition, int] = {}
        self.last_errors: dict[TopicPartition, errors.KafkaError] = {}
        self.failed: dict[TopicPartition, errors.KafkaError] = {}
        self.cancelled = False
        self._unready: list[Node] = []

    @property
    def done(self) -> bool:
        """Every partition has an answer or has failed for good."""
        return not self._waiting and not self._flying and not self._failed_tries

    def cancel(self) -> None:
        """Answers still to come are ignored."""
        self.cancelled = True
        self._waiting.clear()
        self._flying.clear()
        self._failed_tries.clear()

    def drop(self, tp: TopicPartition) -> None:
        """Nobody needs this partition's answer any more."""
        self._waiting.pop(tp, None)
        self._flying.discard(tp)
        self._failed_tries = [t for t in self._failed_tries if t[0] != tp]

    def unanswered(self) -> list[TopicPartition]:
        """The partitions without an answer so far."""
        return [*self._waiting, *self._flying, *(tp for tp, _ in self._failed_tries)]

    def step(self, now_ms: int) -> None:
        """Sends one request to each leader that is ready and has partitions to be asked."""
        for tp, tries in self._failed_tries:
            self._waiting[tp] = now_ms + min(self._backoff_max_ms, self._backoff_ms << min(tries, 20))
        self._failed_tries.clear()
        self._unready.clear()
        if not self._waiting:
            return
        snapshot = self._metadata.snapshot
        groups: dict[Node, list[TopicPartition]] = {}
        for tp, not_before_ms in self._waiting.items():
            if not_before_ms > now_ms:
                continue
            leader = snapshot.leader(tp)
            if leader is None:
                topic = snapshot.topics.get(tp[0])
                if topic is not None and topic.error is not None and not topic.error.retriable:
                    self.failed[tp] = topic.error
                else:
                    self._metadata.add_topic(tp[0], now_ms)
                    self._metadata.request_update()
                continue
            groups.setdefault(leader, []).append(tp)
        for tp in self.failed:
            self._waiting.pop(tp, None)
        for leader, tps in groups.items():
            if self._client.connection_failed(leader):
                fatal = self._client.authentication_exception(leader)
                if fatal is not None:
                    raise fatal
            if self._client.ready(leader, now_ms):
                self._ask(leader, tps, now_ms)
            else:
                self._unready.append(leader)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long until a partition or a broker in back-off may be asked again; None when only the network can bring news."""
        if self._failed_tries:
            return 0
        waits = [t - now_ms for t in self._waiting.values() if t > now_ms]
        waits += [self._client.poll_delay_ms(node, now_ms) for node in self._unready]
        return min(waits) if waits else None

    def _ask(self, leader: Node, tps: list[TopicPartition], now_ms: int) -> None:
        for tp in tps:
            del self._waiting[tp]
            self._flying.add(tp)

        def answered(response: ClientResponse) -> None:
            if self.cancelled:
                return
            if response.error is not None or response.response is None:
                cause = response.error or errors.DisconnectError(f"the connection to broker {leader.id} was lost")
                if isinstance(cause, errors.UnsupportedVersion):
                    for tp in tps:
                        self._fail(tp, cause)
                    return
                self._metadata.request_update()
                for tp in tps:
                    self._retry(tp, cause)
                return
            self._read(tps, response.response)
            for tp in tps:
                if tp in self._flying:  # the answer left it out
                    self._retry(tp, errors.UnknownServer(f"broker {leader.id} left the partition out of its answer"))

        api, build = self._request(tps)
        self._client.send(self._client.new_client_request(leader.id, api, build, now_ms, callback=answered), now_ms)

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        raise NotImplementedError

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        raise NotImplementedError

    def _answer(self, tp: TopicPartition) -> None:
        self._flying.discard(tp)
        self.last_errors.pop(tp, None)

    def _fail(self, tp: TopicPartition, cause: errors.KafkaError) -> None:
        self._flying.discard(tp)
        self.failed[tp] = cause

    def _retry(self, tp: TopicPartition, cause: errors.KafkaError) -> None:
        self._flying.discard(tp)
        self.last_errors[tp] = cause
        tries = self._tries.get(tp, 0)
        self._tries[tp] = tries + 1
        self._failed_tries.append((tp, tries))

    def _code(self, tp: TopicPartition, code: int) -> bool:
        """Deals with an error code. Returns True when there is none."""
        if code == 0:
            return True
        cause = errors.from_code(code, topic=tp[0], partition=tp[1])
        if cause.invalid_metadata:
            self._metadata.request_update()
            self._retry(tp, cause)
        elif cause.retriable or code in _RETRY_WITHOUT_METADATA:
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
    ) -> None:
        super().__init__(
            client,
            metadata,
            timestamps_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._timestamps_ms = dict(timestamps_ms)
        self._isolation_level = isolation_level
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

        def build(version: int) -> ListOffsetsRequest:
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
                    for name, partitions in by_topic((tp, snapshot.leader_epoch(tp)) for tp in tps).items()
                ],
                timeout_ms=_REMOTE_TIMEOUT_MS if version >= 10 else 0,
            )

        return ListOffsetsRequest, build

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        for topic in response.topics:  # type: ignore[attr-defined]
            for data in topic.partitions:
                tp = TopicPartition(topic.name, data.partition_index)
                if tp in self._flying and self._code(tp, data.error_code):
                    self._answer(tp)
                    self.results[tp] = ListedOffset(data.offset, data.timestamp, data.leader_epoch)


_REMOTE_TIMEOUT_MS = 30_000


class EpochEnd(NamedTuple):
    """One answer of OffsetForLeaderEpoch."""

    leader_epoch: int
    end_offset: int


class EpochQuery(LeaderQuery):
    """Where the epoch of each position ends on the leader's log: `results[tp]`.

    Args:
        epochs: per partition (leader epoch as known from metadata, epoch of the record before the position).
        rest: as for `LeaderQuery`.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        epochs: Mapping[TopicPartition, tuple[int, int]],
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        super().__init__(client, metadata, epochs, retry_backoff_ms=retry_backoff_ms, retry_backoff_max_ms=retry_backoff_max_ms)
        self._epochs = dict(epochs)
        self.results: dict[TopicPartition, EpochEnd] = {}

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        def build(version: int) -> OffsetForLeaderEpochRequest:
            return OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID if version >= 3 else -2,
                topics=[
                    OffsetForLeaderTopic(
                        topic=name,
                        partitions=[
                            OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
                            for index, (current, epoch) in partitions
                        ],
                    )
                    for name, partitions in by_topic((tp, self._epochs[tp]) for tp in tps).items()
                ],
            )

        return OffsetForLeaderEpochRequest, build

    def _read(self, tps: list[TopicPartition], response: object) -> None:
        for topic in response.topics:  # type: ignore[attr-defined]
            for data in topic.partitions:
                tp = TopicPartition(topic.topic, data.partition)
                if tp in self._flying and self._code(tp, data.error_code):
                    self._answer(tp)
                    self.results[tp] = EpochEnd(data.leader_epoch, data.end_offset)


class PositionKeeper:
    """Brings every assigned partition to a valid position and keeps it there.

    Args:
        subscription: whose positions.
        client: the network.
        metadata: leaders and their epochs.
        isolation_level: 1 makes `latest` the last stable offset.
        retry_backoff_ms, retry_backoff_max_ms: between tries.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        client: NetworkClient,
        metadata: Metadata,
        *,
        isolation_level: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self._subscription = subscription
        self._client = client
        self._metadata = metadata
        self._isolation_level = isolation_level
        self._backoff = {"retry_backoff_ms": retry_backoff_ms, "retry_backoff_max_ms": retry_backoff_max_ms}
        self._resets: list[tuple[OffsetQuery, dict[TopicPartition, tuple[PartitionState, ResetStrategy]]]] = []
        self._validations: list[tuple[EpochQuery, dict[TopicPartition, tuple[PartitionState, int]]]] = []
        self._checked_snapshot: object = None
        self._now_ms = 0
        self._errors: list[errors.KafkaError] = []

    @property
    def idle(self) -> bool:
        """Nothing to look up or to validate."""
        return not self._subscription.unsettled and not self._resets and not self._validations and not self._errors

    def step(self, now_ms: int, wall_ms: int) -> None:
        """Starts and continues what the unsettled partitions need.

        Raises:
            errors.NoOffsetForPartition: a partition has no position and the reset strategy is `none`.
            errors.LogTruncationError: the log lost records before a position and the reset strategy is `none`.
            errors.KafkaError: a broker refused for good, for example for lack of authorization.
        """
        self._now_ms = now_ms
        if self._metadata.snapshot is not self._checked_snapshot:
            self._checked_snapshot = self._metadata.snapshot
            self._check_epochs()
        if self.idle:
            return
        self._collect()
        self._start(wall_ms, now_ms)
        for reset, _ in self._resets:
            reset.step(now_ms)
        for validation, _ in self._validations:
            validation.step(now_ms)
        if self._errors:
            raise self._errors.pop(0)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long the driver may wait, as far as positions are concerned."""
        waits = [q.next_wake_ms(now_ms) for q, _ in self._resets] + [q.next_wake_ms(now_ms) for q, _ in self._validations]
        waits += [s.retry_at_ms - now_ms for s in self._subscription.unsettled.values() if s.retry_at_ms > now_ms]
        known = [w for w in waits if w is not None]
        return min(known) if known else None

    def _start(self, wall_ms: int, now_ms: int) -> None:
        resets: dict[TopicPartition, tuple[PartitionState, ResetStrategy]] = {}
        validations: dict[TopicPartition, tuple[PartitionState, int]] = {}
        without: list[TopicPartition] = []
        for tp, state in list(self._subscription.unsettled.items()):
            if state.busy or state.retry_at_ms > now_ms:
                continue
            if state.state is FetchState.INITIALIZING and not self._subscription.initialize(state):
                without.append(tp)
            elif state.state is FetchState.AWAIT_RESET and state.reset is not None:
                state.busy = True
                resets[tp] = (state, state.reset)
            elif state.state is FetchState.AWAIT_VALIDATION:
                state.busy = True
                validations[tp] = (state, state.offset)
        if resets:
            timestamps = {tp: t for tp, (_, s) in resets.items() if (t := s.timestamp_ms(wall_ms)) is not None}
            query = OffsetQuery(self._client, self._metadata, timestamps, isolation_level=self._isolation_level, **self._backoff)
            self._resets.append((query, resets))
        if validations:
            epochs = {tp: (self._metadata.snapshot.leader_epoch(tp), s.offset_epoch) for tp, (s, _) in validations.items()}
            self._validations.append((EpochQuery(self._client, self._metadata, epochs, **self._backoff), validations))
        if without:
            raise errors.NoOffsetForPartition(
                f"no position for {len(without)} partition(s) and auto_offset_reset is none: "
                + ", ".join(f"{t}-{p}" for t, p in without[:5]),
                topic=without[0][0],
                partition=without[0][1],
            )

    def _collect(self) -> None:
        """Takes the answers that have come in."""
        for reset, asked in self._resets:
            self._drop_unassigned(reset, asked)
            for tp, found in list(reset.results.items()):
                state, strategy = asked.pop(tp)
                del reset.results[tp]
                if found.offset < 0 and strategy.duration_ms is not None:  # nothing that young: new records only
                    if state.reset is strategy:
                        self._subscription.request_reset(tp, _LATEST)
                elif self._subscription.complete_reset(state, strategy, found.offset, found.leader_epoch):
                    log.debug("%s-%d: position reset to offset %d (%s)", tp[0], tp[1], found.offset, strategy.name)
            self._take_failures(reset, asked)
        self._resets = [r for r in self._resets if not r[0].done]
        for validation, positions in self._validations:
            self._drop_unassigned(validation, positions)
            for tp, end in list(validation.results.items()):
                state, offset = positions.pop(tp)
                del validation.results[tp]
                if self._subscription.partitions.get(tp) is state and state.offset == offset:
                    self._validated(state, end)
            self._take_failures(validation, positions)
        self._validations = [v for v in self._validations if not v[0].done]

    def _drop_unassigned(self, query: LeaderQuery, asked: Mapping[TopicPartition, tuple[PartitionState, object]]) -> None:
        for tp, (state, _) in asked.items():
            if self._subscription.partitions.get(tp) is not state:
                query.drop(tp)

    def _take_failures(self, query: LeaderQuery, asked: Mapping[TopicPartition, tuple[PartitionState, object]]) -> None:
        for tp, cause in list(query.failed.items()):
            state, _ = asked[tp]
            del query.failed[tp]
            if self._subscription.partitions.get(tp) is not state:
                continue
            if isinstance(cause, errors.UnsupportedVersion) and isinstance(query, EpochQuery):
                self._subscription.complete_validation(state)  # an old broker cannot be asked: carry on as before KIP-320
                continue
            state.busy = False
            state.retry_at_ms = self._now_ms + self._backoff["retry_backoff_ms"]
            self._errors.append(cause)

    def _validated(self, state: PartitionState, end: EpochEnd) -> None:
        """Kafka's rule: the log is cut where the epoch of our last record ends before our position."""
        tp = state.tp
        if state.state is not FetchState.AWAIT_VALIDATION:
            return
        if end.end_offset < 0 or end.leader_epoch < 0 or end.end_offset < state.offset:
            if self._subscription.default_reset.name == "none":
                self._subscription.complete_validation(state)
                self._errors.append(
                    errors.LogTruncationError(
                        f"the leader's log of epoch {state.offset_epoch} ends at offset {end.end_offset}, before the position: "
                        "records read before are no longer part of it; seek to choose where to continue",
                        topic=tp[0],
                        partition=tp[1],
                        offset=state.offset,
                    )
                )
            elif end.end_offset >= 0 and end.leader_epoch >= 0:
                log.warning("%s-%d: log truncated, position %d moves back to %d", tp[0], tp[1], state.offset, end.end_offset)
                self._subscription.seek(tp, end.end_offset, end.leader_epoch)
                state.leader_epoch = self._metadata.snapshot.leader_epoch(tp)
            else:
                self._subscription.request_reset(tp, self._subscription.default_reset)
        else:
            self._subscription.complete_validation(state)

    def _check_epochs(self) -> None:
        """After new metadata: positions read under an older leader epoch are validated before fetching goes on."""
        snapshot = self._metadata.snapshot
        for state in list(self._subscription.partitions.values()):
            if not state.has_position:
                continue
            epoch = snapshot.leader_epoch(state.tp)
            if epoch <= state.leader_epoch:
                continue
            first = state.leader_epoch < 0
            state.leader_epoch = epoch
            if not first and state.offset_epoch >= 0 and state.state is FetchState.FETCHING:
                self._subscription.request_validation(state)


_LATEST = ResetStrategy("latest")
