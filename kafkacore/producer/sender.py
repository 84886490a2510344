"""Sender: takes batches from the accumulator to the brokers and their answers back. One thread, but not always the same.

Who drives the I/O
  `_io` is the right to touch the network client, the transaction books and the batches in flight. Its holder calls `run_once`.
  Mostly that is the Sender thread, asleep in the selector. A thread that waits for a result may take it instead: then a synchronous send
  costs no thread switch. The moves:

  * A caller in `wait` tries `_io`. If it is free it drives until its delivery is known, releases, and leaves through `_leave`.
  * If it is taken, the caller puts its gate (a held lock) into `_callers` and into the delivery, tries `_io` ONCE MORE, and only then
    sleeps on the gate. Who releases `_io` looks at `_callers` AFTER the release. So either the caller's second try succeeds or the
    one leaving sees its gate: no wake-up is lost. A gate opened without need costs one look.
  * `_leave`: if callers wait, the first one's gate is opened; else, if batches are unfinished, the napping Sender thread is woken.
  * The Sender thread, after each pass: if a caller has waited since the last pass (`_calls` moved), it passes `_io` on and naps, a bounded
    time (`nap_ms`); a nap ends early when something urgent happens (a full batch, memory short, leftovers). After a nap: if `_io` is
    taken, sleep until it is free (`_watching` is set BEFORE the look at `_io`, `_leave` looks at it AFTER the release), then nap again; if
    callers came and nothing is unfinished, nap again; else go back into the selector, without any bound but real deadlines. So single
    synchronous sends do not wake it, and neither an idle producer nor one whose caller waits for a broker uses any CPU.

  * An event loop cannot sleep on a gate. It makes passes that do not wait (`pass_by`) when something is awaited in it and when the
    selector's descriptor is readable, and gives `_io` back after each. If a thread has `_io`, the loop's gate stands in `_callers`: opening
    it calls the loop. A thread that naps while a loop makes passes naps again; a loop that makes none for the length of a nap, because it
    is blocked or the broker is slow, has lost its turn. So nothing depends on the loop.

Waking the selector
  The accumulator knows what the driver is doing: `looking` before it looks at the batches, `sleeping(until)` before the poll, `awake`
  after it. A batch added while it looks makes it look again (`sleeping` says no) and costs nothing; only one added while it sleeps
  longer than the batch's linger writes the wake-up byte. Each of these steps is one C call, so none falls between two others.

When a pass is cut short (Ctrl+C in the main thread while it drives, or a bug)
  `_recover` forgets what was in flight, closes the connections, queues every unfinished batch again, in sequence order, and fails those
  whose delivery timeout has passed. The broker recognises by its number what it had already; without idempotence such a record may be
  doubled, as after any lost answer. If `_recover` fails as well, `_disorder` stays set and the next pass begins with it; a batch that
  cannot be queued again is tried with every pass until its delivery timeout, and disturbs no other. So a bug costs a log entry and a
  pause; it ends neither the thread nor the wait of a caller that drives, and leaves no record without an outcome.

Source: org.apache.kafka.clients.producer.internals.Sender; KIP-91, KIP-126, KIP-360, KIP-467, KIP-516, KIP-951.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkacore import _codec, compress, errors
from kafkacore._codec import Delivery, PartitionQueue, ProducerBatch, SenderCore
from kafkacore.errors import ClosedError, Code, KafkaError, KafkaTimeoutError
from kafkacore.metadata import LeaderHint, Metadata
from kafkacore.net.node_ids import broker_of
from kafkacore.net.selector import IdleDisconnect
from kafkacore.plurals import counted
from kafkacore.producer.accumulator import NEVER_MS, RecordAccumulator
from kafkacore.producer.retry_log import RetryLog
from kafkacore.producer.transactions import TransactionEngine
from kafkacore.producer.txn_requests import LAST_STABLE_INIT, TransactionRequests
from kafkacore.protocol import (
    ApiVersionsRequest,
    InitProducerIdRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafkacore.types import Node, TopicPartition

if TYPE_CHECKING:
    from kafkacore.clock import Clock
    from kafkacore.config import ProducerConfig
    from kafkacore.net.client import NetworkClient
    from kafkacore.net.request import ClientResponse
    from kafkacore.producer.txn import TransactionManager

log = logging.getLogger(__name__)

NAP_MAX_MS = 5
ZSTD_FROM = 7
OLDEST_PRODUCE = 3                 # record batch v2
ERROR_PAUSE_S = 0.1
FINISH_TRIES = 3
ORPHAN_PAUSE_MS = 100              # until batches that could not be queued again are tried once more
CONFIRM_MAX_MS = 5_000
INIT_PATIENCE_MS = 3_000           # how long a producer id may fail to come before that is a warning


_codec._bind_produce(ProduceRequest, TopicProduceData, PartitionProduceData, ProduceResponse)
_codec._bind_produced(TopicProduceResponse, PartitionProduceResponse)


class Sender(SenderCore):
    """The producer's I/O; see the top of the file for who may call what."""

    def __init__(
        self,
        *,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        config: ProducerConfig,
        clock: Clock,
        backoff_ms: Callable[[int], int],
        on_metadata: Callable[[], None] = lambda: None,
        engine: TransactionEngine | None = None,
    ) -> None:
        """Takes over the client; `start` makes the thread.

        Args:
            client: the connections.
            metadata: the client's metadata.
            accumulator: where batches come from.
            transactions: the idempotent producer's books, or None.
            config: settings.
            clock: time.
            backoff_ms: pause before the n-th retry of InitProducerId.
            on_metadata: called after the cluster view changed, before batches are looked at.
            engine: of the transactional producer, whose gate the books have.
        """
        self.client = client
        self.metadata = metadata
        self.accumulator = accumulator
        self.transactions = transactions
        self.config = config
        self.failed: deque[Delivery] = deque(maxlen=10_000)       # failures for the next flush
        self.counters = dict.fromkeys(
            (
                "requests", "batches", "records", "bytes", "retries", "splits", "failed_records", "expired_batches", "driven_by_callers",
                "unconfirmed_records",
            ),
            0,
        )  # fmt: skip
        self._clock = clock
        self._backoff_ms = backoff_ms
        self._tell_metadata = on_metadata
        self._on_metadata = self._metadata_changed
        self._retry_log = RetryLog(
            delivery_timeout_ms=config.delivery_timeout_ms, silence_ms=config.request_timeout_ms + 2 * config.retry_backoff_max_ms
        )
        self._metadata_version = self._topics_version = -1
        self._codec = compress.codec_id(config.compression_type)
        self._level = config.compression_level
        self._min_version = ZSTD_FROM if self._codec == compress.ZSTD else OLDEST_PRODUCE
        self._acks = config.acks
        self._request_timeout_ms = config.request_timeout_ms
        self._availability_timeout_ms = config.partitioner_availability_timeout_ms
        self._in_order = config.max_in_flight_requests_per_connection == 1
        self._in_flight = {}
        self._in_flight_expiry_ms = NEVER_MS
        self._unconfirmed: dict[int, int] = {}                    # with acks=0: node -> records sent since its last answer
        if not config.acks:
            client.on_disconnect = self._on_disconnect
        self._init_attempts = 0
        self._init_after_ms = 0
        self._refused: deque[KafkaError] = deque(maxlen=64)  # failed authentications, newest last
        self._node_times: dict[int, tuple[int, int]] = {}         # node -> (last ready, last drained), for the availability timeout
        self.pid = os.getpid()
        self._io = threading.Lock()
        self._callers = deque()
        self._nap_gate = threading.Lock()
        self._nap_gate.acquire()
        self._nap_s = max(1, min(config.linger_ms, NAP_MAX_MS)) / 1000
        self._errands: deque[tuple[Callable[[], object], Delivery]] = deque()
        self._orphans_only = False                                # what `_disorder` leaves: batches that could not be queued again
        self._thread: threading.Thread | None = None
        accumulator.driver = self
        accumulator.wake = self.wake
        self._transactional_id = config.transactional_id
        self.transactional: TransactionRequests | None = None
        if engine is not None:
            assert transactions is not None
            engine.driver = self
            self.transactional = TransactionRequests(
                engine=engine,
                books=transactions,
                accumulator=accumulator,
                client=client,
                config=config,
                clock=clock,
                fail_queued=self._fail_queued,
                closing=lambda: self._closing,
            )

    # ---- one pass (`run_once` and its way through are compiled: native/sender.pxi) -----------------------------------------------

    def _note_node(self, node_id: int, can_drain: bool, now_ms: int) -> None:
        drained_ms = now_ms if can_drain else self._node_times.get(node_id, (now_ms, now_ms))[1]
        self._node_times[node_id] = (now_ms, drained_ms)

    def _metadata_changed(self) -> None:
        """Called at the start of a pass when the cluster view is another; while leaders are missing that is as often as it is asked for."""
        self._tell_metadata()
        self._topics_version, changed = self.metadata.changed_since(self._topics_version)
        snapshot = self.metadata.snapshot
        for batch in self.accumulator.leaderless(snapshot, changed):
            error = errors.LeaderNotAvailable("no broker leads the partition", topic=batch.queue.topic, partition=batch.queue.index)
            self._retry_log.failed(batch.delivery, error, self._clock.now_ms())

    def unavailable_nodes(self) -> frozenset[int]:
        """Brokers with batches ready that took none for partitioner_availability_timeout_ms."""
        timeout_ms = self.config.partitioner_availability_timeout_ms
        if not timeout_ms:
            return frozenset()
        times = self._node_times.copy()                           # in one step: a thread that sends asks while the Sender notes
        return frozenset(node for node, (ready_ms, drained_ms) in times.items() if ready_ms - drained_ms > timeout_ms)

    # ---- producer id -------------------------------------------------------------------------------------------------------------

    def _prepare_producer_id(self, now_ms: int) -> int:
        transactions = self.transactions
        assert transactions is not None
        if self.transactional is not None:
            return self.transactional.step(now_ms)
        transactions.resolve()
        if transactions.has_fatal_error:
            if self.accumulator.has_incomplete:
                assert transactions.error is not None
                self._fail_queued(transactions.error)
            return NEVER_MS
        if not transactions.needs_producer_id:
            return NEVER_MS
        if transactions.error is not None and not self.accumulator.has_incomplete:
            return NEVER_MS  # it was refused; the next records ask again
        if now_ms < self._init_after_ms:
            return self._init_after_ms - now_ms
        node = self.client.least_loaded_node(now_ms)
        if node is None:
            return NEVER_MS
        if not self.client.ready(node, now_ms):
            delay_ms: int = self.client.poll_delay_ms(node, now_ms)
            return delay_ms
        transactions.initializing()
        generation = self._generation
        request = self.client.new_client_request(
            node.id,
            InitProducerIdRequest,
            lambda version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
            now_ms,
            callback=lambda response: self._on_producer_id(response, generation),
            max_version=LAST_STABLE_INIT,
        )
        self.client.send(request, now_ms)
        return NEVER_MS

    def _on_producer_id(self, response: ClientResponse, generation: int) -> None:
        transactions = self.transactions
        if transactions is None or generation != self._generation:
            return
        error: KafkaError | None = _lost_answer(response) if response.error is not None or response.disconnected else None
        body: Any = response.response
        if error is None and body is not None and body.error_code:
            error = errors.from_code(body.error_code, broker=broker_of(response.request.node_id), api=f"InitProducerId v{response.version}")
        if error is None and body is not None:
            self._init_attempts = 0
            transactions.initialized(body.producer_id, body.producer_epoch)
            return
        error = error or errors.DisconnectError("no answer to InitProducerId", broker=broker_of(response.request.node_id))
        now_ms = self._clock.now_ms()
        if not self._init_attempts:
            self._init_failing_ms = now_ms
        self._init_after_ms = now_ms + self._backoff_ms(self._init_attempts)
        self._init_attempts += 1
        # A fresh cluster says COORDINATOR_LOAD_IN_PROGRESS for a while: not worth a warning.
        passing = error.retriable and now_ms - self._init_failing_ms < INIT_PATIENCE_MS
        is_news = not passing and self._retry_log.is_news(error, now_ms)
        log.log(logging.WARNING if is_news else logging.INFO, "no producer id: %s", error)
        transactions.initialization_failed(error)
        if isinstance(error, errors.AuthenticationFailedError):
            self._fail_refused(error)
        elif isinstance(error, errors.AuthorizationError):
            self._fail_queued(error)

    # ---- Produce -----------------------------------------------------------------------------------------------------------------

    def _sealed(self, batch: ProducerBatch) -> list[Any]:
        """The batch as it goes on the wire; compressed once, sealed for each try (its numbers may have changed)."""
        body = batch.body
        if body is None and self._codec:
            body = compress.compress(self._codec, batch.records(), self._level)
        wire: list[Any] = batch.seal(self._codec, body, self._transactional_id is not None)
        return wire

    def _on_produce_response(self, response: ClientResponse, batches: list[ProducerBatch], ids: dict[str, bytes]) -> None:
        """Every answer but the one that is all well."""
        now_ms = self._clock.now_ms()
        node_id = response.request.node_id
        api = f"Produce v{response.version}"
        body: Any = response.response
        if response.error is not None or response.disconnected:
            cause = _lost_answer(response)
            for batch in batches:
                error = type(cause)(cause.message, topic=batch.queue.topic, partition=batch.queue.index, broker=node_id, api=api)
                error.__cause__ = cause
                self._complete(batch, now_ms, error)
            return
        if body is None:                                             # acks=0: sent is all there is to know
            self._unconfirmed[node_id] = self._unconfirmed.get(node_id, 0) + sum(batch.count for batch in batches)
            for batch in batches:
                self._complete(batch, now_ms)
            return
        names = {topic_id: name for name, topic_id in ids.items()}
        expected = {(batch.queue.topic, batch.queue.index): batch for batch in batches}
        hints: dict[TopicPartition, LeaderHint] = {}
        for topic in body.responses:
            name = topic.name or names.get(bytes(topic.topic_id), "")
            for part in topic.partition_responses:
                answered = expected.pop((name, part.index), None)
                if answered is None:
                    log.error("broker %s answered %s for %s-%d, which was not asked for", node_id, api, name, part.index)
                    continue
                self._on_partition_response(answered, part, node_id, api, now_ms)
                leader = part.current_leader
                if leader is not None and leader.leader_id >= 0:
                    hints[TopicPartition(name, part.index)] = LeaderHint(leader.leader_id, leader.leader_epoch)
        for batch in expected.values():
            error = errors.DisconnectError(
                "the answer leaves this partition out", topic=batch.queue.topic, partition=batch.queue.index, broker=node_id, api=api
            )
            self._complete(batch, now_ms, error)
        if hints:
            endpoints = [Node(node.node_id, node.host, node.port, node.rack) for node in body.node_endpoints or ()]
            self.metadata.update_leaders(hints, endpoints)

    def _on_disconnect(self, node_id: int, error: KafkaError) -> None:
        """With acks=0 a closed connection is the only word a broker has for records it refuses, and for all behind them."""
        records = self._unconfirmed.pop(node_id, 0)
        if records and not isinstance(error, IdleDisconnect):
            self.counters["unconfirmed_records"] += records
            log.warning(
                "with acks=0, up to %d records sent to broker %d may be LOST: it refused one (a topic just created?) or went away: %s",
                records,
                node_id,
                error,
            )

    def _confirm(self) -> None:
        """Before connections with acks=0 are closed: asks each broker something.

        A broker answers in order and closes the connection at an error, so the answer says that it took every record before it. It also
        keeps a close from resetting a connection whose last bytes are still on their way.
        """
        end_ms = self._clock.now_ms() + min(self.config.request_timeout_ms, CONFIRM_MAX_MS)
        asked: set[int] = set()
        while self._unconfirmed and not self._forced and (now_ms := self._clock.now_ms()) < end_ms:
            for node_id in list(self._unconfirmed):
                node = self.metadata.snapshot.nodes.get(node_id)
                if node is None or self.client.connection_failed(node):
                    del self._unconfirmed[node_id]
                elif node_id not in asked and self.client.is_ready(node, now_ms):
                    asked.add(node_id)
                    request = self.client.new_client_request(
                        node_id,
                        ApiVersionsRequest,
                        lambda version: ApiVersionsRequest(client_software_name="kafkacore", client_software_version="close"),
                        now_ms,
                        callback=self._on_confirmed,
                    )
                    self.client.send(request, now_ms)
            if self._unconfirmed:
                self.client.poll(end_ms - now_ms, now_ms)

    def _on_confirmed(self, response: ClientResponse) -> None:
        if response.response is not None:
            self._unconfirmed.pop(response.request.node_id, None)

    def _on_partition_response(self, batch: ProducerBatch, part: Any, node_id: int, api: str, now_ms: int) -> None:
        where = {"topic": batch.queue.topic, "partition": batch.queue.index, "broker": node_id, "api": api}
        if not part.error_code:
            self._complete(batch, now_ms, None, part.base_offset, part.log_append_time_ms)
            return
        error = errors.from_code(part.error_code, part.error_message or "", **where)
        record_errors: dict[int, KafkaError] | None = None
        if part.record_errors:
            record_errors = {
                one.batch_index: errors.from_code(part.error_code, one.batch_index_error_message or part.error_message or "", **where)
                for one in part.record_errors
            }
            error = errors.from_code(part.error_code, "in a batch in which other records were refused", **where)
        self._complete(batch, now_ms, error, part.base_offset, -1, part.log_start_offset, record_errors)

    def _complete(
        self,
        batch: ProducerBatch,
        now_ms: int,
        error: KafkaError | None = None,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """Settles a batch whose request was answered or lost."""
        transactions = self.transactions
        expired = batch.delivery.resolved
        if error is not None and error.code == Code.DUPLICATE_SEQUENCE_NUMBER:
            error, base_offset = None, -1                             # the broker has it, from an earlier try
        if error is None:
            self._settle(batch, base_offset, log_append_time_ms)
            return
        self._landed(batch)
        if error.invalid_metadata:
            self.metadata.request_update(reset_equivalent=True)
        if expired:
            if transactions is not None:
                transactions.on_failure(batch, error, sequence_is_free=False)
            self.accumulator.deallocate(batch)
        elif error.code == Code.MESSAGE_TOO_LARGE and batch.count > 1:
            parts = self.accumulator.split_and_reenqueue(batch)
            log.info("%s; split into %d batches", error, parts)
            self.counters["splits"] += 1
            self.stats.splits.record(1, now_ms)
            self.accumulator.deallocate(batch)
        elif self._can_retry(batch, error, log_start_offset, now_ms):
            log.debug("retrying a batch of %d records: %s", batch.count, error)
            self.counters["retries"] += 1
            self.stats.retried.record(batch.count, now_ms)
            batch.queue.owner.stats.retried.record(batch.count, now_ms)
            batch.delivery.tried(error)
            self._retry_log.failed(batch.delivery, error, now_ms)
            self.accumulator.reenqueue(batch, now_ms)
        else:
            if attempts := batch.delivery.attempts():
                error = copy.copy(error)                              # other batches of the request may have the same
                error.attempts = (*attempts, *error.attempts)
            self._fail(batch, error, record_errors, sequence_is_free=batch.attempts < self.config.retries)

    def _can_retry(self, batch: ProducerBatch, error: KafkaError, log_start_offset: int, now_ms: int) -> bool:
        if batch.attempts >= self.config.retries or now_ms - batch.created_ms >= self.accumulator.delivery_timeout_ms or self._forced:
            return False
        return error.retriable if self.transactions is None else self.transactions.can_retry(batch, error, log_start_offset)

    def _fail(
        self, batch: ProducerBatch, error: KafkaError, record_errors: dict[int, KafkaError] | None = None, *, sequence_is_free: bool
    ) -> None:
        """Gives a batch up. While its request is on the wire its memory stays: the buffer is still being read (KAFKA-19012)."""
        try:
            if self.transactional is not None:                        # first: where Ctrl+C comes behind it, the batch fails once more
                self.transactional.batch_failed(error, batch.has_sequence)
            if self.transactions is not None and not batch.in_flight:
                self.transactions.on_failure(batch, error, sequence_is_free=sequence_is_free)
        finally:                                                      # whatever fails above, the records have their outcome
            batch.close()
            self.counters["failed_records"] += batch.count
            now_ms = self._clock.now_ms()
            self.stats.failed.record(batch.count, now_ms)
            batch.queue.owner.stats.failed.record(batch.count, now_ms)
            if self.transactional is None:                            # else the commit tells
                self.failed.append(batch.delivery.root)
            batch.delivery.resolve(-1, -1, error, record_errors)
            if not batch.in_flight:
                self.accumulator.deallocate(batch)                    # where a callback stopped it, `_recover` does it

    give_up = _fail

    def _fail_queued(self, error: KafkaError) -> None:
        """Fails every batch that is not on the wire."""
        queued = [batch for batch in self.accumulator.take_all() if not batch.in_flight]

        def fail(batch: ProducerBatch) -> None:
            try:
                if self.transactions is not None:
                    self.transactions.mark_unresolved(batch)          # with a number it was sent before: the broker may have it
            finally:
                self._fail(batch, error, sequence_is_free=False)

        _each([batch for batch in queued if not batch.delivery.resolved and batch.delivery.parts is None], fail)

    def _fail_refused(self, refused: KafkaError) -> None:
        """An authentication failed: what waited for that attempt fails with it, once. What is queued later waits for the next attempt."""
        if not any(refused is seen for seen in self._refused):
            self._refused.append(refused)
            self._fail_queued(refused)

    def _expire(self, now_ms: int) -> None:
        timeout_ms = self.accumulator.delivery_timeout_ms
        late = self.accumulator.expired(now_ms)
        if now_ms >= self._in_flight_expiry_ms:
            pending = [batch for batch in self._in_flight if not batch.delivery.resolved]
            late += [batch for batch in pending if now_ms - batch.created_ms >= timeout_ms]
            self._in_flight_expiry_ms = min(
                (batch.created_ms + timeout_ms for batch in pending if now_ms - batch.created_ms < timeout_ms), default=NEVER_MS
            )
        self.counters["expired_batches"] += len(late)
        _each(late, self._fail_late)

    def _fail_late(self, batch: ProducerBatch) -> None:
        doubtful = batch.in_flight or batch.in_retry
        stage = "no answer from the broker" if batch.in_flight else f"after {batch.attempts} tries" if batch.attempts else "never sent"
        error = KafkaTimeoutError(
            f"{counted(batch.count, 'record')} not delivered within delivery_timeout_ms={self.accumulator.delivery_timeout_ms} ({stage})",
            topic=batch.queue.topic,
            partition=batch.queue.index,
            attempts=batch.delivery.attempts() + self.metadata.attempts,
        )
        try:
            if self.transactions is not None and doubtful:
                self.transactions.mark_unresolved(batch)
        finally:
            self._fail(batch, error, sequence_is_free=not doubtful)

    # ---- waiting, from any thread ------------------------------------------------------------------------------------------------

    def wake(self, deadline_ms: int, urgent: bool) -> None:
        """Something is to be done by `deadline_ms`: ends a poll that would sleep longer, and for urgent things a nap."""
        try:
            needed = self.accumulator.disturb(deadline_ms)
            if needed == 2:
                self.client.wakeup()
            elif needed == 0 and urgent:
                self._open(self._nap_gate)
        except KeyboardInterrupt:
            self.client.wakeup()                                      # perhaps without need: but `disturb` says so once only
            raise

    def do_first(self, work: Callable[[], object]) -> Delivery:
        """Has the thread that drives the I/O call work() at the beginning of its next pass. Returns what `wait` waits for its end by."""
        done = Delivery(None, self)
        self._errands.append((work, done))
        self.errand = self._errands                               # last: a pass looks here
        self.wake(-1, True)
        return done

    def _run_errand(self) -> None:
        self.errand = None
        try:
            while self._errands:
                work, done = self._errands.popleft()
                try:
                    work()
                finally:
                    done.resolve(-1, -1, None)
        finally:
            if self._errands:                                     # an error or Ctrl+C: the next pass goes on with the others
                self.errand = self._errands

    @staticmethod
    def _open(gate: threading.Lock) -> None:
        if gate.locked():
            with contextlib.suppress(RuntimeError):                   # opened by another thread since
                gate.release()

    def _pass_failed(self, error: BaseException) -> None:
        """Called when a step of a pass has raised what no step should."""
        log.error("a pass of the Sender failed; its batches are queued again", exc_info=error)
        self._put_in_order(error)
        self._nap_gate.acquire(timeout=ERROR_PAUSE_S)

    def _put_in_order(self, cause: BaseException) -> None:
        """`_recover`; when that fails too, the next pass begins with it."""
        self._orphans_only = False
        with _logged("putting things in order after a pass that failed"):
            self._recover(cause)

    def _recover(self, cause: BaseException | None = None) -> None:
        """Puts things in order after a pass that did not end; see the top of the file. What fails for one node or batch stays with it.

        Args:
            cause: what ended the pass; a record that is given up later names it.
        """
        self.accumulator.awake()
        now_ms = self._clock.now_ms()
        left = False
        if not self._orphans_only:
            self._orphans_only = True
            try:
                self._forget_in_flight()
            except Exception:
                log.exception("forgetting what was in flight failed")
                self._orphans_only, left = False, True
        for batch in self.accumulator.incomplete():
            if batch not in self._in_flight:
                try:
                    self._queue_again(batch, now_ms, cause)
                except Exception:
                    log.exception("queueing a batch again failed")
                    left = True
                    if now_ms - batch.created_ms >= self.accumulator.delivery_timeout_ms:
                        self._fail_late(batch)
        self.accumulator.next_expiry_ms = now_ms                      # a pass that always fails must not outlive the delivery timeout
        self._expire(now_ms)
        self._disorder = left
        if left:
            self._in_flight_expiry_ms = min(self._in_flight_expiry_ms, now_ms + ORPHAN_PAUSE_MS)
        else:
            self._orphans_only = False

    def _forget_in_flight(self) -> None:
        self._generation += 1
        for node_id in list(self.metadata.snapshot.nodes):
            with _logged("closing a connection"):
                if self.client.has_in_flight_requests(node_id):
                    self.client.disconnect(node_id)
        self._in_flight.clear()
        self._in_flight_expiry_ms = NEVER_MS
        for batch in self.accumulator.incomplete():
            batch.in_flight = False
            batch.queue.muted = False
        if self.transactions is not None:
            self.transactions.interrupted()
        if self.transactional is not None:
            self.transactional.interrupted()

    def _queue_again(self, batch: ProducerBatch, now_ms: int, cause: BaseException | None) -> None:
        if batch.delivery.resolved or batch.delivery.parts is not None:
            self.accumulator.deallocate(batch)
        elif batch in batch.queue.batches:
            self.accumulator._activate(batch.queue)                   # a pass was cut short in between
        elif not batch.count:
            self.accumulator.discard_empty(batch)
        else:
            if isinstance(cause, Exception):
                error = errors.InternalError(
                    f"a pass of the Sender failed: {cause!r}", topic=batch.queue.topic, partition=batch.queue.index
                )
                error.__cause__ = cause
                batch.delivery.tried(error)
            self.accumulator.reenqueue(batch, now_ms)

    # ---- the thread --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the Sender thread."""
        self._thread = threading.Thread(target=self._run, name=f"kafkacore-producer {self.config.client_id}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        seen = self._calls
        while True:
            try:
                if self._done():
                    break
                seen = self._nap_or_pass(seen)
            except BaseException:                                     # a callback's KeyboardInterrupt, too: the thread serves others
                log.exception("the Sender goes on after an error")
                self._nap_gate.acquire(timeout=ERROR_PAUSE_S)
        with self._io:
            self._owner = threading.get_ident()
            for _ in range(FINISH_TRIES):
                try:
                    self.finish()
                    break
                except BaseException:
                    log.exception("the end of the Sender failed")
            self._owner = None

    def _nap_or_pass(self, seen: int) -> int:
        """One pass of the thread; or, where a caller has waited since `seen`, a nap before it. Returns the `_calls` it has seen."""
        napped = self._calls != seen and not self._closing
        if napped:
            seen = self._calls
            if self._callers:                                         # the first of them looks at what is urgent, or `_leave` says it again
                self._nap_gate.acquire(blocking=False)
            self._leave()
            by = self._passes_by
            self._nap_gate.acquire(timeout=self._nap_s)
            while self._passes_by != by and not self._closing:        # an event loop drives: nap again
                by = self._passes_by
                self._nap_gate.acquire(timeout=self._nap_s)
            if not self._io.acquire(blocking=False):
                self._watching = True
                if self._io.locked() and not self._forced:            # then callers leave, and open each other's gates only
                    self._nap_gate.acquire()
                self._watching = False
                return -1                                             # nap again: callers come one after the other
        else:
            self._io.acquire()
        try:
            if not napped or self._calls == seen or self.accumulator.has_incomplete or self.has_transaction_work():
                self._owner = threading.get_ident()
                self.guarded_pass(self._clock.now_ms())
        finally:
            self._owner = None
            self._io.release()
        return seen

    def _done(self) -> bool:
        if self._forced or not self._closing or self.accumulator.has_incomplete:
            return self._forced
        return self.transactional is None or self.transactional.ended

    def finish(self) -> None:
        """Ends the I/O: closes the connections and fails what is left."""
        self._generation += 1
        self._in_flight.clear()
        with _logged("asking the brokers whether all records have arrived"):
            self._confirm()
        with _logged("closing the connections"):
            self.client.close()
        with _logged("what was to be done first"):
            self._run_errand()
        if self.unplaced is not None:
            with _logged("failing the records of unknown topics"):
                self.unplaced.close()
        _each(self.accumulator.take_all(), self._end)
        if self.transactional is not None:
            self.transactional.engine.close()

    def _end(self, batch: ProducerBatch) -> None:
        batch.in_flight = False
        if batch.delivery.resolved or batch.delivery.parts is not None:
            self.accumulator.deallocate(batch)
        else:
            error = ClosedError(
                "the producer was closed before the record was delivered", topic=batch.queue.topic, partition=batch.queue.index
            )
            self._fail(batch, error, sequence_is_free=False)

    def initiate_close(self, *, force: bool = False) -> None:
        """Lets the thread end: once everything is delivered, or at once.

        A finalizer calls it, on any thread and between any two of its steps: no lock that such a thread may hold is taken on the way.
        """
        self._closing = True
        self._forced = self._forced or force
        self.accumulator.close()
        if self.transactional is not None:
            self.transactional.engine.gate.busy = True                # what is open is aborted
        self.wake(-1, True)
        self._open(self._nap_gate)
        self.client.wakeup()

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread's end; True when it has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- looking in --------------------------------------------------------------------------------------------------------------

    def unobserved_failures(self) -> tuple[int, list[KafkaError]]:
        """How many records failed since the last call without anybody asking about them, and the first causes, one of each kind."""
        count = 0
        causes: dict[tuple[type, str | None, int | None], KafkaError] = {}
        seen: set[Delivery] = set()
        while self.failed:
            delivery = self.failed.popleft()
            if delivery in seen:
                continue
            seen.add(delivery)
            lost = delivery.unobserved
            count += lost
            error = delivery.first_error()
            if lost and error is not None:
                causes.setdefault((type(error), error.topic, error.partition), error)
        return count, list(causes.values())[:5]

    def batches_in_flight(self) -> list[ProducerBatch]:
        """The batches on the wire."""
        return list(self._in_flight)

    def in_flight_batches(self) -> Iterable[PartitionQueue]:
        """The partitions of the batches on the wire."""
        return [batch.queue for batch in self.batches_in_flight()]


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """A failure boundary: an error is logged, and what comes after the block goes on."""
    try:
        yield
    except Exception:
        log.exception("%s failed", what)


def _each(batches: Iterable[ProducerBatch], act: Callable[[ProducerBatch], None]) -> None:
    """Does the same with each batch; the first error is raised when all have had their turn."""
    first: Exception | None = None
    for batch in batches:
        try:
            act(batch)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


def _lost_answer(response: ClientResponse) -> KafkaError:
    """Why a request has no answer. What breaks a connection says nothing about the records: to them it is a disconnect, to be retried."""
    error = response.error
    if error is None or (response.disconnected and not error.retriable and not isinstance(error, errors.AuthenticationFailedError)):
        reason = "closed before the answer" if error is None else f"given up: {error.message}"
        lost = errors.DisconnectError(f"the connection was {reason}", broker=broker_of(response.request.node_id))
        lost.__cause__ = error
        return lost
    return error
