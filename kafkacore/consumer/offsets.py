"""Finding positions (ListOffsets) and checking them against a new leader (OffsetForLeaderEpoch).

Rules:
1. An answer counts only while its question is still `state.question`: a seek, a rewind, another leader epoch or another assignment take
   the question away, and the partition is asked about again from what it is then.
   [test_an_answer_to_an_abandoned_question_is_not_asked_for_again, test_a_partition_reads_on_after_anything_that_happens_to_its_question]
2. Leader epochs are compared once per metadata snapshot, not per poll, and of the partitions alone of which it says something else than the
   one before. A position that ListOffsets found is compared with the newest
   metadata at once: the leader may have changed since it was asked. [test_an_idle_consumer_looks_at_no_partition,
   test_a_position_that_was_found_under_an_old_epoch_is_validated_at_once]
3. A position is validated when the epoch of the record before it is known. `seek(offset)` names none, so the first leader change is not
   validated until a record was read, as in Kafka. [test_a_seek_that_names_no_epoch_is_not_validated_before_a_record_was_read,
   test_a_new_leader_epoch_is_checked_before_reading_on]
4. What goes wrong is an error of its partition: `step` notes it, `raise_failure` raises it, and nothing is asked about the partition until
   then. A paused partition's waits for `resume`. A seek, another assignment or a reset takes the error away, as it does any question.
   [test_partitions_without_an_offset_are_one_error_and_the_others_are_read, test_paused_between_the_error_and_the_read,
   test_what_a_seek_has_mended_is_not_raised]

Source: Kafka's OffsetFetcher, SubscriptionState and OffsetsForLeaderEpochClient; KIP-320 (validation).
"""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafkacore import errors
from kafkacore.consumer.group.commits import CommittedQuery
from kafkacore.consumer.left_out import LeftOut
from kafkacore.consumer.subscription import LATEST, FetchState, PartitionState, ResetStrategy, SubscriptionState
from kafkacore.metadata import ClusterSnapshot, Metadata, PartitionInfo
from kafkacore.net.client import NetworkClient
from kafkacore.net.leaders import CONSUMER_REPLICA_ID, LeaderQuery, OffsetQuery, by_topic
from kafkacore.plurals import counted
from kafkacore.protocol import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from kafkacore.types import TopicPartition

log = logging.getLogger("kafkacore.consumer")

_FIRST_VERSION_FOR_CONSUMERS = 3  # before, it takes the permission to act as a broker


class EpochEnd(NamedTuple):
    """One answer of OffsetForLeaderEpoch."""

    leader_epoch: int
    end_offset: int


class EpochQuery(LeaderQuery):
    """Where the epoch of each position ends on the leader's log: `results[tp]`.

    Every try names the leader epoch that metadata knows by then.

    Args:
        epochs: per partition the epoch of the record before the position.
        rest: as for `LeaderQuery`.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        epochs: Mapping[TopicPartition, int],
        *,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        super().__init__(client, metadata, epochs, retry_backoff_ms=retry_backoff_ms, retry_backoff_max_ms=retry_backoff_max_ms)
        self._epochs = dict(epochs)
        self.results: dict[TopicPartition, EpochEnd] = {}

    def _request(self, tps: list[TopicPartition]) -> tuple[type, Callable[[int], object]]:
        snapshot = self._metadata.snapshot

        def build(version: int) -> OffsetForLeaderEpochRequest:
            if version < _FIRST_VERSION_FOR_CONSUMERS:
                raise errors.UnsupportedVersion("the broker answers it to other brokers only", api=f"OffsetForLeaderEpoch v{version}")
            return OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[
                    OffsetForLeaderTopic(
                        topic=name,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=tp[1], current_leader_epoch=snapshot.leader_epoch(tp), leader_epoch=self._epochs[tp]
                            )
                            for _, tp in partitions
                        ],
                    )
                    for name, partitions in by_topic((tp, tp) for tp in tps).items()
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


_NEWER_LEADER_MS = 10_000  # brokers hear of a new leader within milliseconds, and a busy cluster within seconds


def _may_have_another_epoch(before: PartitionInfo, now: PartitionInfo) -> bool:
    return before.leader_epoch != now.leader_epoch or before.leader != now.leader


def _without_offset(tps: list[TopicPartition]) -> errors.NoOffsetForPartition:
    named = ", ".join(f"{topic}-{partition}" for topic, partition in tps[:10]) + (f" and {len(tps) - 10} more" if len(tps) > 10 else "")
    return errors.NoOffsetForPartition(
        f"no offset to begin at for {counted(len(tps), 'partition')} and auto_offset_reset is none: {named}; seek to choose where to begin",
        topic=tps[0].topic,
        partition=tps[0].partition,
        partitions=tps,
    )


class PositionKeeper:
    """Brings every assigned partition to a valid position and keeps it there.

    Args:
        subscription: whose positions.
        client: the network.
        metadata: leaders and their epochs.
        isolation_level: 1 makes `latest` the last stable offset.
        retry_backoff_ms, retry_backoff_max_ms: between tries.

    Attributes:
        fetch_committed: asks the group's coordinator for committed offsets; None without a group. A partition without a position begins at
            its committed offset, and only without one where the reset strategy says.
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
        self._resets: dict[OffsetQuery, dict[TopicPartition, tuple[PartitionState, ResetStrategy]]] = {}
        self._validations: dict[EpochQuery, dict[TopicPartition, PartitionState]] = {}
        self.fetch_committed: Callable[[Iterable[TopicPartition]], CommittedQuery] | None = None
        self._committed: dict[CommittedQuery, dict[TopicPartition, PartitionState]] = {}
        self._checked_snapshot: ClusterSnapshot | None = None
        self._now_ms = 0
        self._awaited_epochs: dict[TopicPartition, tuple[int, int]] = {}  # of a position, and until when a leader of it is waited for
        self._refused: list[tuple[int, int, PartitionState]] = []  # a heap: when they may be asked about again
        self._order = itertools.count()
        self._errors: OrderedDict[TopicPartition, tuple[PartitionState, errors.KafkaError]] = OrderedDict()
        self._of_paused: dict[TopicPartition, tuple[PartitionState, errors.KafkaError]] = {}
        self._left_out = LeftOut(subscription, metadata, **self._backoff)

    @property
    def idle(self) -> bool:
        """Nothing to look up or to validate."""
        return not self._subscription.unsettled and not self._resets and not self._validations and not self._committed and not self._errors

    def start_anew(self, client: NetworkClient) -> None:
        """Goes on with another network: what was asked is asked again."""
        self._client = client
        self._resets.clear()
        self._validations.clear()
        self._committed.clear()
        self._refused.clear()
        self._errors.clear()
        self._of_paused.clear()
        self._left_out.clear()
        self._checked_snapshot = None  # the check may have been interrupted

    def attempts(self, tp: TopicPartition) -> list[errors.KafkaError]:
        """Why a partition's position could not be settled so far."""
        queries: list[LeaderQuery] = [*self._resets, *self._validations]
        found = [query.last_errors[tp] for query in queries if tp in query.last_errors]
        found += [cause for query, asked in self._committed.items() if tp in asked and (cause := query.last_error) is not None]
        state = self._subscription.partitions.get(tp)
        if state is not None and (has := self._left_out.count(state)) is not None:
            text = f"the topic has {counted(has, 'partition')}"
            found.append(errors.UnknownTopicOrPartition(text, topic=tp.topic, partition=tp.partition))
        if tp in self._awaited_epochs:
            has, wanted = self._metadata.snapshot.leader_epoch(tp), self._awaited_epochs[tp][0]
            text = f"the position is of leader epoch {wanted}, metadata have {has}: a newer leader is waited for"
            found.append(errors.UnknownLeaderEpoch(text, topic=tp.topic, partition=tp.partition))
        return found

    def step(self, now_ms: int, wall_ms: int) -> None:
        """Starts and continues what the unsettled partitions need; raises nothing (rule 4)."""
        self._now_ms = now_ms
        snapshot = self._metadata.snapshot
        if snapshot is not self._checked_snapshot:
            for state in self._subscription.states_that_differ(self._checked_snapshot, snapshot, _may_have_another_epoch):
                self._left_out.look(state)
                self._check_epoch(state, snapshot)
            self._checked_snapshot = snapshot
        if self.idle:
            self._subscription.withdrawn.clear()
            self._refused.clear()
            self._awaited_epochs.clear()
            self._of_paused.clear()
            self._left_out.clear()
            return
        self._collect()
        self._start(wall_ms, now_ms)
        self._left_out.step(now_ms)
        for reset in self._resets:
            reset.step(now_ms)
        for validation in self._validations:
            validation.step(now_ms)

    def raise_failure(self, tp: TopicPartition | None = None) -> None:
        """Raises what `step` has found wrong, once; the partition is asked about again after the back-off. Refusals of the same kind, which
        come with one answer, are one error, and so are partitions without an offset. None is of a partition that has moved on since.

        Args:
            tp: only what is wrong with this partition, paused or not; None for any that is not paused.

        Raises:
            errors.NoOffsetForPartition: a partition has no position and the reset strategy is `none`.
            errors.LogTruncationError: the log lost records before a position and the reset strategy is `none`.
            errors.KafkaError: a broker refused for good, for example for lack of authorization.
        """
        if tp is not None:
            noted = self._errors.pop(tp, None) or self._of_paused.pop(tp, None)
            if noted is not None and self._still_wrong(*noted):
                self._raised(noted[0])
                raise noted[1]
            return
        found: list[errors.KafkaError] = []
        others: list[tuple[PartitionState, errors.KafkaError]] = []
        while self._errors:
            of, (state, cause) = self._errors.popitem(last=False)
            if not self._still_wrong(state, cause):
                continue
            if state.paused:
                self._of_paused[of] = state, cause
            elif found and type(cause) is not type(found[0]):
                others.append((state, cause))
            else:
                self._raised(state)
                found.append(cause)
                if not (isinstance(cause, errors.AuthorizationError) or type(cause) is errors.NoOffsetForPartition):
                    break
        self._errors.update((state.tp, (state, cause)) for state, cause in others)
        if len(found) > 1 and type(found[0]) is errors.NoOffsetForPartition:
            raise _without_offset([TopicPartition(e.topic, e.partition) for e in found if e.topic is not None and e.partition is not None])
        if found:
            raise errors.joined(found)

    @staticmethod
    def _still_wrong(state: PartitionState, cause: errors.KafkaError) -> bool:
        return state.assigned and state.question is cause

    def _raised(self, state: PartitionState) -> None:
        self._subscription.answered(state)
        self._ask_later(state)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """How long the driver may wait, as far as positions are concerned."""
        queries: list[LeaderQuery] = [*self._resets, *self._validations]
        known = [wait for query in queries if (wait := query.next_wake_ms(now_ms)) is not None]
        if (wait := self._left_out.next_wake_ms(now_ms)) is not None:
            known.append(wait)
        # An answer that was just read may have asked for a reset: its question starts with the next step, and nothing else would wake it.
        if self._subscription.unasked:
            known.append(0)
        if self._refused:
            known.append(max(0, self._refused[0][0] - now_ms))
        return min(known) if known else None

    def _start(self, wall_ms: int, now_ms: int) -> None:
        """Asks about the partitions that need a position or a validation and have no question under way."""
        resets: dict[TopicPartition, tuple[PartitionState, ResetStrategy]] = {}
        validations: dict[TopicPartition, PartitionState] = {}
        lookups: dict[TopicPartition, PartitionState] = {}
        subscription = self._subscription
        while self._refused and self._refused[0][0] <= now_ms:
            subscription.ask_again(heapq.heappop(self._refused)[2])
        if not subscription.unasked:
            return
        for state in list(subscription.unasked):
            tp = state.tp
            if state.unsettled_since_ms < 0:
                state.unsettled_since_ms = now_ms
            asks_group = state.state is FetchState.INITIALIZING and self.fetch_committed is not None and not state.never_committed
            if self._left_out.take(state, asks_leader=not asks_group):
                continue
            if state.state is FetchState.INITIALIZING:
                if asks_group:
                    lookups[tp] = state
                elif not subscription.initialize(state):
                    state.never_committed = False  # there may be an offset by the time it is asked for again
                    self._failed(state, _without_offset([tp]))
                elif state.reset is not None:
                    resets[tp] = (state, state.reset)
            elif state.state is FetchState.AWAIT_RESET and state.reset is not None:
                resets[tp] = (state, state.reset)
            elif state.state is FetchState.AWAIT_VALIDATION:
                if state.offset_epoch >= 0 and self._waits_for_leader(state, now_ms):
                    continue
                if state.offset_epoch >= 0:
                    validations[tp] = state
                else:
                    self._subscription.complete_validation(state)  # taken back to where no epoch is known
        if lookups and self.fetch_committed is not None:
            query = self.fetch_committed(lookups)
            self._committed[query] = lookups
            for state in lookups.values():
                subscription.ask(state, query)
        if resets:
            timestamps = {tp: t for tp, (_, s) in resets.items() if (t := s.timestamp_ms(wall_ms)) is not None}
            reset = OffsetQuery(self._client, self._metadata, timestamps, isolation_level=self._isolation_level, **self._backoff)
            self._resets[reset] = resets
            for state, _ in resets.values():
                subscription.ask(state, reset)
        if validations:
            epochs = {tp: state.offset_epoch for tp, state in validations.items()}
            validation = EpochQuery(self._client, self._metadata, epochs, **self._backoff)
            self._validations[validation] = validations
            for state in validations.values():
                subscription.ask(state, validation)

    def _waits_for_leader(self, state: PartitionState, now_ms: int) -> bool:
        """True while the metadata have an older leader than the position: it would say that it knows no such epoch, and the position would
        be reset. Waiting for metadata that never get there has no use: the epoch is another topic's or another cluster's.
        """
        tp = state.tp
        if not 0 <= self._metadata.snapshot.leader_epoch(tp) < state.offset_epoch:
            self._awaited_epochs.pop(tp, None)
            return False
        epoch, until_ms = self._awaited_epochs.get(tp, (-1, 0))
        if epoch != state.offset_epoch:
            self._awaited_epochs[tp] = state.offset_epoch, now_ms + _NEWER_LEADER_MS
        elif now_ms >= until_ms:
            return False
        self._metadata.request_update()
        self._subscription.unasked.pop(state, None)
        self._ask_later(state)
        return True

    def _ask_later(self, state: PartitionState) -> None:
        heapq.heappush(self._refused, (self._now_ms + self._backoff["retry_backoff_ms"], next(self._order), state))

    def _collect(self) -> None:
        """Takes the answers that have come in."""
        self._drop_withdrawn()
        answered = self._subscription.answered
        for query, looked_up in list(self._committed.items()):
            for tp, committed in query.results.items():
                if (state := looked_up.pop(tp, None)) is None:
                    continue
                answered(state)
                if committed is None:
                    state.never_committed = True
                    self._subscription.ask_again(state)
                else:
                    self.seek(tp, committed.offset, -1 if committed.leader_epoch is None else committed.leader_epoch)
                    state.topic_id = query.topic_ids.get(tp, b"")
                    if committed.leader_epoch is None:
                        self._check_epoch(state, self._metadata.snapshot)
            query.results.clear()  # the others are asked about again: an open transaction may commit their offsets
            if query.done:
                for state in self._committed.pop(query).values():
                    answered(state)
                    if query.error is not None:
                        self._failed(state, query.error)
                    else:
                        self._subscription.ask_again(state)
        for reset, asked in list(self._resets.items()):
            for tp, found in reset.results.items():
                if (of := asked.pop(tp, None)) is None:
                    continue
                state, strategy = of
                answered(state)
                if found.offset < 0 and strategy.duration_ms is not None:  # no record that young: new records only
                    self._subscription.request_reset(tp, LATEST)
                elif self._subscription.complete_reset(state, strategy, found.offset, found.leader_epoch, reset.asked_epochs[tp]):
                    log.debug("%s-%d: position reset to offset %d (%s)", tp[0], tp[1], found.offset, strategy.name)
                    self._check_epoch(state, self._metadata.snapshot)
            reset.results.clear()
            for tp, cause in reset.failed.items():
                if (of := asked.pop(tp, None)) is not None:
                    self._failed(of[0], cause)
            reset.failed.clear()
            if reset.done:
                del self._resets[reset]
        for validation, positions in list(self._validations.items()):
            for tp, end in validation.results.items():
                if (position := positions.pop(tp, None)) is not None:
                    answered(position)
                    self._validated(position, end)
            validation.results.clear()
            for tp, cause in validation.failed.items():
                if (position := positions.pop(tp, None)) is None:
                    continue
                if isinstance(cause, errors.UnsupportedVersion):
                    answered(position)
                    self._subscription.complete_validation(position)  # an old broker cannot be asked: carry on as before KIP-320
                else:
                    self._failed(position, cause)
            validation.failed.clear()
            if validation.done:
                del self._validations[validation]

    def _drop_withdrawn(self) -> None:
        """Asks no further about partitions that are not assigned any longer, or whose position is another one by now."""
        withdrawn, self._subscription.withdrawn = self._subscription.withdrawn, []
        dropped: dict[LeaderQuery, list[TopicPartition]] = {}
        for question, state in withdrawn:
            if isinstance(question, errors.KafkaError):
                continue
            if isinstance(question, CommittedQuery):
                self._committed.get(question, {}).pop(state.tp, None)
                continue
            if isinstance(question, OffsetQuery):
                known = self._resets.get(question, {}).pop(state.tp, None) is not None
            else:
                assert isinstance(question, EpochQuery)
                known = self._validations.get(question, {}).pop(state.tp, None) is not None
            if known:
                dropped.setdefault(question, []).append(state.tp)
        for query, tps in dropped.items():
            query.drop(tps)

    def _failed(self, state: PartitionState, cause: errors.KafkaError) -> None:
        """Notes an error of a partition. It takes the place of the question: what takes that away takes the error away."""
        self._subscription.ask(state, cause)
        (self._of_paused if state.paused else self._errors)[state.tp] = state, cause

    def _validated(self, state: PartitionState, end: EpochEnd) -> None:
        """Kafka's rule: the log is cut where the epoch of our last record ends before our position."""
        tp = state.tp
        if end.end_offset >= state.offset and end.leader_epoch >= 0:
            self._subscription.complete_validation(state)
        elif self._subscription.default_reset.name == "none":
            # raised again with every validation, until a seek
            self._failed(
                state,
                errors.LogTruncationError(
                    f"the leader's log of epoch {state.offset_epoch} ends at offset {end.end_offset}, before the position: "
                    "records read before are no longer part of it; seek to choose where to continue",
                    topic=tp[0],
                    partition=tp[1],
                    offset=state.offset,
                ),
            )
        elif end.end_offset >= 0 and end.leader_epoch >= 0:
            log.warning("%s-%d: log truncated, position %d moves back to %d", tp[0], tp[1], state.offset, end.end_offset)
            self._subscription.seek(tp, end.end_offset, end.leader_epoch)
        else:
            log.warning("%s-%d: log truncated before offset %d, position is reset", tp[0], tp[1], state.offset)
            self._subscription.request_reset(tp, self._subscription.default_reset)

    def seek(self, tp: TopicPartition, offset: int, offset_epoch: int) -> None:
        """The application's position; with the leader epoch of the record before it, it is validated before it is fetched from."""
        self._subscription.seek(tp, offset, offset_epoch)
        if offset_epoch < 0:
            return
        state = self._subscription.state_of(tp)
        partition = self._metadata.snapshot.partition(tp)
        if partition is not None and partition.leader_epoch < offset_epoch:
            self._metadata.request_update()  # there has been another leader since
        if partition is None or partition.leader not in self._metadata.snapshot.nodes:
            self._subscription.request_validation(state)  # by the leader that is to come
        else:
            self._subscription.new_leader_epoch(state, partition.leader_epoch)

    def _check_epoch(self, state: PartitionState, snapshot: ClusterSnapshot) -> None:
        """A position that was read under another leader epoch than that of the metadata is validated before fetching goes on."""
        partition = snapshot.partition(state.tp)
        if partition is None or partition.leader not in snapshot.nodes or partition.leader_epoch == state.leader_epoch:
            return
        if state.has_position:
            self._subscription.new_leader_epoch(state, partition.leader_epoch)
        else:
            state.leader_epoch = partition.leader_epoch
