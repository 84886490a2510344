"""Ending a transaction where its records are: a marker in every partition of it, written by the partition's leader.

The coordinator sends them until each is written (`MarkerSender`); leaders write them (`MarkerWriter`), in their own partitions and on
request (WriteTxnMarkers). A marker that comes twice does nothing; one that comes late is refused (`ProducerStates.check_marker`).

Rules:

1. Markers are sent only after the decision is committed in `__transaction_state`, and the transaction is complete only when all are
   committed. Until then its coordinator answers CONCURRENT_TRANSACTIONS.
2. One request per broker is under way; what is decided meanwhile goes with the next.
3. A partition that no longer exists needs no marker. One without a leader is asked again: its records are still there.

Source: kafka.coordinator.transaction.{TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler},
kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

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
LANE = "markers"
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
        left = len(targets)
        if not left:
            done(results)
            return

        def finished(nth: int, target: TopicIndex, error: KafkaError | None) -> None:
            nonlocal left
            results[nth][target] = Code.NONE if error is None else _code_of(error)
            left -= 1
            if not left:
                done(results)

        for nth, target in targets:
            self._write_one(markers[nth], target, partial(finished, nth, target))

    def _write_one(self, marker: WritableTxnMarker, target: TopicIndex, done: Callable[[KafkaError | None], None]) -> None:
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
    """The markers of one transaction, or those of them that one broker has to write."""

    shard: TransactionShard
    prepared: Transaction
    coordinator_epoch: int
    partitions: tuple[TopicIndex, ...]

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
            leader_of: who leads a partition: None if there is no such partition, -1 if nobody leads it.
            writer: for this broker's own partitions.
            peers: other brokers; None in a cluster of one.
            timeout_ms: how long another broker may take to answer.
            timer: for trying again.
            marked: told when all partitions of a transaction have their marker.
        """
        self._node_id = node_id
        self._leader_of = leader_of
        self._writer = writer
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._timer = timer
        self._marked = marked
        self._queues: dict[int, list[_Pending]] = {}
        self._busy: set[int] = set()

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

    def _route(self, pending: _Pending) -> None:
        """Sorts partitions by who leads them now."""
        if not pending.shard.serving:
            return
        destinations: dict[int, list[TopicIndex]] = {}
        gone: list[TopicIndex] = []
        for target in pending.partitions:
            leader = self._leader_of(*target)
            if leader is None:
                gone.append(target)
            else:
                destinations.setdefault(leader, []).append(target)
        if gone:
            logger.info("%s: %s do not exist any more and need no marker", pending.prepared.transactional_id, gone)
            self._confirm(pending, gone)
        for node_id, targets in destinations.items():
            part = pending._replace(partitions=tuple(targets))
            if node_id < 0 or (node_id != self._node_id and self._peers is None):
                self._later(part)
            else:
                self._queues.setdefault(node_id, []).append(part)
                self._drain(node_id)

    def _later(self, pending: _Pending) -> None:
        self._timer.add(TimerTask(RETRY_MS, lambda: self._route(pending)))

    def _drain(self, node_id: int) -> None:
        if node_id in self._busy:
            return
        # A producer is answered once per request: what else there is for it goes with the next.
        chosen: dict[int, _Pending] = {}
        held: list[_Pending] = []
        for pending in self._queues.pop(node_id, []):
            if pending.shard.serving and chosen.setdefault(pending.prepared.producer_id, pending) is not pending:
                held.append(pending)
        batch = list(chosen.values())
        if not batch:
            return
        if held:
            self._queues[node_id] = held
        self._busy.add(node_id)
        markers = [pending.marker() for pending in batch]
        if node_id == self._node_id:
            self._writer.write(markers, lambda codes: self._written(node_id, batch, codes))
        elif self._peers is not None:
            request = WriteTxnMarkersRequest(markers=markers)
            answered = partial(self._answered, node_id, batch)
            self._peers.send(node_id, request, MARKERS_VERSION, answered, self._timeout_ms, LANE)

    def _answered(self, node_id: int, batch: list[_Pending], answer: Response | KafkaError) -> None:
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
        self._written(node_id, batch, [by_producer.get(pending.prepared.producer_id, {}) for pending in batch])

    def _written(self, node_id: int, batch: list[_Pending], codes: list[Codes]) -> None:
        self._busy.discard(node_id)
        for pending, outcome in zip(batch, codes, strict=True):
            self._settle(pending, outcome)
        self._drain(node_id)

    def _settle(self, pending: _Pending, outcome: Codes) -> None:
        if not pending.shard.serving:
            return
        confirmed, again = [], []
        for target in pending.partitions:
            code = outcome.get(target, Code.NETWORK_EXCEPTION)
            if code in _NO_MARKER_NEEDED:
                confirmed.append(target)
            elif code in _OVERTAKEN:
                logger.warning(
                    "the marker of %s is refused in %s-%d: %s; no more are sent", pending.prepared.transactional_id, *target, code.name
                )
                return
            else:
                again.append(target)
        if again:
            self._later(pending._replace(partitions=tuple(again)))
        self._confirm(pending, confirmed)

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
