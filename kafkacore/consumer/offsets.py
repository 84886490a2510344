"""Finding positions (ListOffsets) and checking them against a new leader (OffsetForLeaderEpoch).

Source: Kafka's OffsetFetcher and OffsetsForLeaderEpochClient; KIP-320 (validation).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkacore import errors
from kafkacore.consumer.subscription import LATEST, FetchState, PartitionState, ResetStrategy, SubscriptionState
from kafkacore.metadata import Metadata
from kafkacore.net.client import NetworkClient
from kafkacore.net.leaders import CONSUMER_REPLICA_ID, LeaderQuery, OffsetQuery, by_topic
from kafkacore.protocol import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.consumer")


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

    def start_anew(self, client: NetworkClient) -> None:
        """Goes on with another network: what was asked is asked again."""
        self._client = client
        self._resets.clear()
        self._validations.clear()

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
                        self._subscription.request_reset(tp, LATEST)
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
