"""Ending a transaction where its records are: a marker in every partition of it, written by the partition's leader.

The coordinator sends them until each is written (`MarkerSender`); leaders write them (`MarkerWriter`), in their own partitions and on
request (WriteTxnMarkers). A marker that comes twice does nothing; one that comes late is refused (`ProducerStates.check_marker`).

Rules:

1. Markers are sent only after the decision is committed in `__transaction_state`, and the transaction is complete only when all are
   committed. Until then its coordinator answers CONCURRENT_TRANSACTIONS. [test_markers_of_a_decision_in_the_log_wait_until_it_is_committed,
   test_a_transaction_is_marked_when_every_leader_has_written, test_a_decision_survives_its_coordinator]
2. A partition that cannot commit its marker holds back nothing but itself. Partitions led here are written one by one. To another broker
   one request at a time is under way about a partition; other partitions go with another one, over a lane of their own (`LANES`), since a
   broker answers in the order of its requests. What has timed out goes over `SLOW_LANE` from then on, so that it cannot take up the others;
   there it may wait for another one's deadline. [test_a_partition_that_is_stuck_holds_back_no_other_of_its_broker,
   test_a_partition_led_here_that_is_stuck_holds_back_no_other, test_more_stuck_partitions_than_lanes_delay_the_others_by_one_deadline,
   test_one_request_is_under_way_about_a_partition_and_the_next_takes_the_others_along]
3. A partition that no longer exists needs no marker. One without a leader is asked again: its records are still there.
   [test_partitions_that_are_gone_need_no_marker_and_those_without_leader_wait]

Source: kafka.coordinator.transaction.{TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler},
kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kafkacore.broker.fault_handler import contained
from kafkacore.broker.internal_topics import GROUP_TOPIC
from kafkacore.broker.producers import ABORT, COMMIT, NO_PRODUCER_ID
from kafkacore.broker.txns.peers import Peers
from kafkacore.broker.txns.shard import TransactionShard, by_topic
from kafkacore.broker.txns.state import TopicIndex, Transaction, TransactionState
from kafkacore.clock import Clock
from kafkacore.errors import Code, CorruptDataError, KafkaError, UnknownServer
from kafkacore.protocol import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkacore.protocol.schema import Response
from kafkacore.records import control_batch
from kafkacore.timer import LoopTimer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS = 100
MARKERS_VERSION = 2
LANES = ("markers", "markers-2", "markers-3", "markers-4")
SLOW_LANE = "markers-slow"
_NO_MARKER_NEEDED = (Code.NONE, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, Code.UNSUPPORTED_VERSION)
_OVERTAKEN = (Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTION_COORDINATOR_FENCED)

Codes = dict[TopicIndex, Code]
GroupMarkers = Callable[[int, WritableTxnMarker, Callable[["KafkaError | None"], None]], None]
"""Writes a marker into a partition of the offsets topic, and tells the group coordinator."""


class MarkerWriter:
    """Writes markers into the partitions this broker leads."""

    def __init__(
        self,
        append: Callable[[str, int, memoryview, int, Callable[[KafkaError | None], None]], object],
        append_to_group: GroupMarkers,
        clock: Clock,
    ) -> None:
        """Writes nothing yet.

        Args:
            append: (topic, index, batch, transaction version, done): appends a control batch as with acks=all; raises if it cannot.
            append_to_group: (partition of the offsets topic, marker, done): the group coordinator has to know of it.
            clock: stamps the markers.
        """
        self._append = append
        self._append_to_group = append_to_group
        self._clock = clock

    def write(self, markers: Sequence[WritableTxnMarker], done: Callable[[list[Codes]], None]) -> None:
        """Writes markers.

        Args:
            markers: as in a WriteTxnMarkers request.
            done: called once all are committed or refused, with what became of each partition, in the order of the markers.
        """
        results: list[Codes] = [{} for _ in markers]
        targets = [
            (nth, (topic.name, index)) for nth, marker in enumerate(markers) for topic in marker.topics for index in topic.partition_indexes
        ]
        left = set(range(len(targets)))
        if not left:
            done(results)
            return

        def finished(number: int, nth: int, target: TopicIndex, error: KafkaError | None) -> None:
            if number in left:
                left.discard(number)
                results[nth][target] = Code.NONE if error is None else _code_of(error)
                if not left:
                    done(results)

        for number, (nth, target) in enumerate(targets):
            self._write_one(markers[nth], target, partial(finished, number, nth, target))

    def _write_one(self, marker: WritableTxnMarker, target: TopicIndex, done: Callable[[KafkaError | None], None]) -> None:
        """One partition's fault is its own answer."""
        with contained("the transaction marker of %s-%d", *target) as unit:
            self._append_one(marker, target, done)
        if unit.failed:
            done(UnknownServer("the marker could not be written; see the broker's log", topic=target[0], partition=target[1]))

    def _append_one(self, marker: WritableTxnMarker, target: TopicIndex, done: Callable[[KafkaError | None], None]) -> None:
        topic, index = target
        if marker.producer_id == NO_PRODUCER_ID:
            done(UnknownServer("a marker needs a producer", topic=topic, partition=index))
            return
        if topic == GROUP_TOPIC:
            self._append_to_group(index, marker, done)
            return
        batch = control_batch(
            COMMIT if marker.transaction_result else ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )
        try:
            self._append(topic, index, batch, marker.transaction_version, done)
        except KafkaError as error:
            done(error)


def results_of(markers: Sequence[WritableTxnMarker], codes: Sequence[Codes]) -> WriteTxnMarkersResponse:
    """The answer to a WriteTxnMarkers request: each producer once, and none whose markers name no partition."""
    by_producer: dict[int, Codes] = {}
    for marker, outcome in zip(markers, codes, strict=True):
        if outcome:
            by_producer.setdefault(marker.producer_id, {}).update(outcome)
    answers = []
    for producer_id, outcome in by_producer.items():
        topics = [
            WritableTxnMarkerTopicResult(
                name=name,
                partitions=[WritableTxnMarkerPartitionResult(partition_index=index, error_code=outcome[name, index]) for index in indexes],
            )
            for name, indexes in by_topic(outcome).items()
        ]
        answers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=answers)


class _Pending(NamedTuple):
    """The markers of one transaction, or those of them that one broker has to write; is_slow: they have timed out there."""

    shard: TransactionShard
    prepared: Transaction
    coordinator_epoch: int
    partitions: tuple[TopicIndex, ...]
    is_slow: bool = False

    def marker(self) -> WritableTxnMarker:
        prepared = self.prepared
        return WritableTxnMarker(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            transaction_result=prepared.state is TransactionState.PREPARE_COMMIT,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic(self.partitions).items()],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=prepared.client_version,
        )


class MarkerSender:
    """Has the markers of prepared transactions written, wherever their partitions are led."""

    def __init__(
        self,
        node_id: int,
        leader_of: Callable[[str, int], int | None],
        writer: MarkerWriter,
        peers: Peers | None,
        timeout_ms: int,
        timer: LoopTimer,
        marked: Callable[[TransactionShard, Transaction], None],
    ) -> None:
        """Sends nothing yet.

        Args:
            node_id: this broker, whose own partitions need no request.
            leader_of: who leads a partition: None if there is no such partition, -1 without a leader.
            writer: for this broker's own partitions.
            peers: other brokers; None in a cluster of one.
            timeout_ms: how long another broker may take to answer.
            timer: for trying again.
            marked: called when all partitions of a transaction have their marker.
        """
        self._node_id = node_id
        self._leader_of = leader_of
        self._writer = writer
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._timer = timer
        self._marked = marked
        self._queues: dict[int, list[_Pending]] = {}
        self._in_flight: dict[int, dict[str, frozenset[TopicIndex]]] = {}

    def send(self, shard: TransactionShard, prepared: Transaction, coordinator_epoch: int) -> None:
        """Begins to end a transaction that has been decided.

        Args:
            shard: where it is kept.
            prepared: as it was decided.
            coordinator_epoch: the leader epoch of the shard's partition.
        """
        if not prepared.partitions:
            self._marked(shard, prepared)
            return
        self._route(_Pending(shard, prepared, coordinator_epoch, tuple(sorted(prepared.partitions))))

    def _route(self, *pendings: _Pending) -> None:
        """Sorts partitions by who leads them now."""
        nodes: dict[int, None] = {}
        again: list[_Pending] = []
        for pending in pendings:
            if pending.shard.serving:
                with contained("the markers of transactional id %s", pending.prepared.transactional_id) as unit:
                    destinations = self._destinations(pending)
                if unit.failed:  # nothing has been sent: a transaction whose markers are lost would never end
                    again.append(pending)
                    continue
                with contained("the sending of the markers of transactional id %s", pending.prepared.transactional_id):
                    nodes.update(self._distribute(pending, destinations))
        for node_id in nodes:
            self._drain(node_id)
        self._later(again)

    def _destinations(self, pending: _Pending) -> dict[int, list[TopicIndex]]:
        """The partitions by leader; those that were deleted are confirmed."""
        destinations: dict[int, list[TopicIndex]] = {}
        deleted: list[TopicIndex] = []
        for target in pending.partitions:
            leader = self._leader_of(*target)
            if leader is None:
                deleted.append(target)
            else:
                destinations.setdefault(leader, []).append(target)
        if deleted:
            logger.info("%s: %s do not exist any more and need no marker", pending.prepared.transactional_id, deleted)
            self._confirm(pending, deleted)
        return destinations

    def _distribute(self, pending: _Pending, destinations: dict[int, list[TopicIndex]]) -> dict[int, None]:
        """Writes what is led here, and queues the rest; returns the brokers that have something new in their queues."""
        queued: dict[int, None] = {}
        for node_id, targets in destinations.items():
            part = pending._replace(partitions=tuple(targets))
            if node_id == self._node_id:
                self._write_here(part)
            elif node_id < 0 or self._peers is None:
                self._later([part])
            else:
                self._queues.setdefault(node_id, []).append(part)
                queued[node_id] = None
        return queued

    def _later(self, pendings: list[_Pending]) -> None:
        if pendings:
            self._timer.add(TimerTask(RETRY_MS, lambda: self._route(*pendings)))

    def _write_here(self, pending: _Pending) -> None:
        for target in pending.partitions:
            part = pending._replace(partitions=(target,))
            self._writer.write([part.marker()], partial(self._written, [part]))

    def _drain(self, node_id: int) -> None:
        """Sends what may be sent to a broker now."""
        in_flight = self._in_flight.setdefault(node_id, {})
        for lane in (*LANES, SLOW_LANE):
            if lane in in_flight or self._peers is None:
                continue
            batch = self._choose(node_id, lane == SLOW_LANE, frozenset().union(*in_flight.values()))
            if batch:
                in_flight[lane] = frozenset(target for pending in batch for target in pending.partitions)
                request = WriteTxnMarkersRequest(markers=[pending.marker() for pending in batch])
                answered = partial(self._answered, node_id, lane, batch)
                self._peers.send(node_id, request, MARKERS_VERSION, answered, self._timeout_ms, lane)
        if not in_flight:
            del self._in_flight[node_id]

    def _choose(self, node_id: int, slow: bool, in_flight: frozenset[TopicIndex]) -> list[_Pending]:
        """Takes the markers of a request out of a broker's queue: of partitions that none is under way about."""
        chosen: dict[int, _Pending] = {}
        held: list[_Pending] = []
        for pending in self._queues.pop(node_id, []):
            if not pending.shard.serving:
                continue
            free = pending.partitions
            if in_flight and not in_flight.isdisjoint(free):
                held.append(pending._replace(partitions=tuple(target for target in free if target in in_flight)))
                free = tuple(target for target in free if target not in in_flight)
            if not free:
                continue
            part = pending._replace(partitions=free)
            # A producer is answered once per request: what else there is for it goes with the next.
            if pending.is_slow is not slow or chosen.setdefault(pending.prepared.producer_id, part) is not part:
                held.append(part)
        if held:
            self._queues[node_id] = held
        return list(chosen.values())

    def _answered(self, node_id: int, lane: str, batch: list[_Pending], answer: Response | KafkaError) -> None:
        by_producer: dict[int, Codes] = {}
        if isinstance(answer, WriteTxnMarkersResponse):
            by_producer = {
                marker.producer_id: {
                    (topic.name, partition.partition_index): known_code(partition.error_code)
                    for topic in marker.topics
                    for partition in topic.partitions
                }
                for marker in answer.markers
            }
        missing = [pending for pending in batch if pending.prepared.producer_id not in by_producer]
        if missing:
            logger.info("broker %d did not answer for %d transaction markers, they are sent again: %s", node_id, len(missing), answer)
        self._in_flight.get(node_id, {}).pop(lane, None)
        self._written(batch, [by_producer.get(pending.prepared.producer_id, {}) for pending in batch])
        self._drain(node_id)

    def _written(self, batch: list[_Pending], codes: list[Codes]) -> None:
        again: list[_Pending] = []
        for pending, outcome in zip(batch, codes, strict=True):
            if pending.shard.serving:
                with contained("the markers of transactional id %s", pending.prepared.transactional_id) as unit:
                    again.extend(self._settle(pending, outcome))
                if unit.failed:  # the markers are written: they must not be sent once more, only confirmed
                    self._timer.add(TimerTask(RETRY_MS, partial(self._written, [pending], [outcome])))
        self._later(again)

    def _settle(self, pending: _Pending, outcome: Codes) -> list[_Pending]:
        """Confirms what is written; returns what is to be tried again."""
        confirmed: list[TopicIndex] = []
        again: dict[bool, list[TopicIndex]] = {}
        for target in pending.partitions:
            code = outcome.get(target, Code.NETWORK_EXCEPTION)
            if code in _NO_MARKER_NEEDED:
                confirmed.append(target)
            elif code in _OVERTAKEN:
                # The partition's own: the markers of the others count, and the transaction waits for this one.
                name = pending.prepared.transactional_id
                logger.warning("the marker of %s is refused in %s-%d: %s; it is not sent there again", name, *target, code.name)
            else:
                again.setdefault(code is Code.REQUEST_TIMED_OUT, []).append(target)
        self._confirm(pending, confirmed)
        return [pending._replace(partitions=tuple(targets), is_slow=is_slow) for is_slow, targets in again.items()]

    def _confirm(self, pending: _Pending, partitions: Iterable[TopicIndex]) -> None:
        if pending.shard.marked(pending.prepared, partitions):
            self._marked(pending.shard, pending.prepared)


def _code_of(error: KafkaError) -> Code:
    if isinstance(error, CorruptDataError):
        return Code.CORRUPT_MESSAGE
    return Code.UNKNOWN_SERVER_ERROR if error.code is None else known_code(error.code)


def known_code(number: int) -> Code:
    """The code of a number another broker sent, which may be newer than this one."""
    try:
        return Code(number)
    except ValueError:
        return Code.UNKNOWN_SERVER_ERROR
