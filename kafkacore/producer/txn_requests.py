"""TransactionRequests: takes the asks of a TransactionEngine to the coordinators and the answers back; part of the Sender's passes.

The thread that drives the I/O calls `step` once per pass while `engine.gate.busy` is set. The transaction's coordinator and the group's
have a connection of their own each, as in the consumer (net/coordinator.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacore import errors
from kafkacore.errors import Code, KafkaError
from kafkacore.net.committed import topics_to_commit
from kafkacore.net.coordinator import GROUP, TRANSACTION, CoordinatorLink
from kafkacore.producer.accumulator import NEVER_MS, RecordAccumulator
from kafkacore.producer.marker_wait import MarkerWait
from kafkacore.producer.transactions import (
    FIRST_THAT_ADDS_BY_WRITING,
    WRITING,
    Ask,
    Described,
    Kind,
    Outcome,
    Phase,
    Standing,
    Step,
    StepKind,
    TransactionEngine,
    advised,
)
from kafkacore.protocol import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsTransactionState,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkacore.types import TopicPartition

if TYPE_CHECKING:
    from kafkacore.clock import Clock
    from kafkacore.config import ProducerConfig
    from kafkacore.net.client import NetworkClient
    from kafkacore.net.request import ClientResponse
    from kafkacore.producer.txn import TransactionManager

log = logging.getLogger("kafkacore.producer")

LAST_OF_CLIENTS = 3                            # of AddPartitionsToTxn: later versions are the brokers' own
FIRST_INIT_WITH_EPOCH = 3
LAST_STABLE_INIT = 5                           # version 6 is that of KIP-939
FIRST_INIT_WITHOUT_TIMEOUT = 6
FIRST_END_WITH_EPOCH = 5
FIRST_OFFSETS_THAT_ADD = 5

REFUSING = frozenset({Phase.ABORTING, Phase.ABORTABLE, Phase.FATAL})
"""What is queued is failed, not sent."""
CALM = frozenset({Phase.READY, Phase.OPEN})
"""A step of the engine would do nothing but end calls."""

_WITHIN = frozenset({Kind.PARTITIONS, Kind.GROUP, Kind.OFFSETS, Kind.END})
"""Asks that only an open transaction has."""
_OF_AGE = frozenset({Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.TRANSACTION_ABORTABLE})
"""What brokers say of a transaction that the coordinator has aborted."""

MARKERS_PENDING = frozenset({"PrepareCommit", "PrepareAbort"})
"""States of a transaction as DescribeTransactions names them."""

Versions = tuple[int | None, int | None]


class TransactionRequests:
    """See the top of the file."""

    def __init__(
        self,
        *,
        engine: TransactionEngine,
        books: TransactionManager,
        accumulator: RecordAccumulator,
        client: NetworkClient,
        config: ProducerConfig,
        clock: Clock,
        fail_queued: Callable[[KafkaError], None],
        closing: Callable[[], bool],
    ) -> None:
        """Asks nothing yet.

        Args:
            engine: says what to ask.
            books: number the batches; they get the ids and epochs that coordinators give.
            accumulator: holds the batches.
            client: the connections.
            config: settings.
            clock: time.
            fail_queued: fails every batch that is not on the wire.
            closing: True once the producer is being closed.
        """
        assert config.transactional_id is not None
        self.engine = engine
        self._books = books
        self._accumulator = accumulator
        self._client = client
        self._transactional_id: str = config.transactional_id
        self._timeout_ms = config.transaction_timeout_ms
        self._began_ms = 0                                        # of the open transaction
        self._without_timeout = config.transaction_two_phase_commit_enable
        self._clock = clock
        self._backoff_ms, self._backoff_max_ms = config.retry_backoff_ms, config.retry_backoff_max_ms
        self._link = self._new_link(self._transactional_id, TRANSACTION)
        self._group_link: tuple[str, CoordinatorLink] | None = None
        self._trying: tuple[Step | None, int] = (None, 0)         # init_transactions(), and Metadata.fatal_count when it began
        self._fail_queued = fail_queued
        self._closing = closing
        self.marker_wait = MarkerWait(engine.gate)

    @property
    def adds_by_writing(self) -> bool:
        """Whether the next transaction goes by transaction.version 2."""
        return self._client.finalized_features.get("transaction.version", 0) >= FIRST_THAT_ADDS_BY_WRITING

    def begin(self, now_ms: int) -> None:
        """Opens a transaction, in a thread of the application."""
        self._began_ms = now_ms
        adds_by_writing = self.adds_by_writing
        self.engine.begin(adds_by_writing, adds_by_writing and self.marker_wait.begins(now_ms))

    def batch_failed(self, error: KafkaError, sent: bool) -> None:
        """A batch of the transaction is given up; arguments as of the engine's method."""
        self.engine.batch_failed(self._dated(error), sent)

    def _dated(self, error: KafkaError) -> KafkaError:
        """An error, with a sentence where it says in other words that the coordinator has aborted the transaction for its age."""
        open_ms = self._clock.now_ms() - self._began_ms
        if error.code not in _OF_AGE or open_ms <= self._timeout_ms or self._without_timeout:
            return error
        timeout = f"transaction_timeout_ms ({self._timeout_ms:,})"
        return advised(error, f"the transaction was open for {open_ms:,} ms, and the coordinator aborts it after {timeout}")

    def step(self, now_ms: int) -> int:
        """Does what the transaction needs in this pass.

        Returns:
            Milliseconds until there may be more to do without an event.
        """
        engine = self.engine
        engine.gate.busy = False                                  # before the look: what comes meanwhile sets it again
        if self._closing():
            self._end_open()
        if self._books.has_doubts and engine.at.phase in WRITING and self._books.find_gaps():
            engine.batch_failed(errors.OutOfOrderSequence("records are missing between those the broker has taken"), True)
        engine.settle()
        self._adopt()
        settled = engine.at
        failing = settled.phase in REFUSING
        if failing:
            self._fail_records(settled)
        wait_ms = NEVER_MS if engine.outstanding is not None else self._ask(now_ms)
        if engine.at is not settled and engine.outstanding is None:
            engine.settle()
            self._adopt()
        has_batches = self._accumulator.has_incomplete
        if engine.outstanding is not None or (failing and has_batches) or (engine.has_work and not (has_batches and engine.awaits_batches)):
            engine.gate.busy = True                               # else the last of the batches sets it (native/accumulate.pxi)
        return wait_ms

    def _end_open(self) -> None:
        """The producer is being closed: what is open is aborted."""
        engine = self.engine
        if not engine.steps and engine.at.phase in (Phase.OPEN, Phase.ABORTABLE):
            log.warning("transactional id %s: the open transaction is aborted, since the producer is closed", self._transactional_id)
            engine.submit(StepKind.ABORT)
        elif engine.at.phase is Phase.INITIALIZING:
            engine.refuse(errors.ClosedError("the producer was closed before init_transactions() came to its end"))

    def _conclude(self) -> None:
        """After a good answer: where it ends a call, its caller hears of that now, and the engine needs no pass for it."""
        engine = self.engine
        engine.gate.busy = False                                  # as in `step`
        self._adopt()
        engine.settle()
        if engine.has_work or self._closing():
            engine.gate.busy = True

    def _adopt(self) -> None:
        at, books = self.engine.at, self._books
        if at.phase is Phase.FATAL and at.error is not None:
            books.fail(at.error)
        elif at.producer_id >= 0 and (at.epoch != books.epoch or at.producer_id != books.producer_id):
            books.adopt(at.producer_id, at.epoch)                 # they change between two transactions only, when nothing is under way

    def _fail_records(self, at: Standing) -> None:
        """Fails the records that are never sent."""
        if self._accumulator.has_incomplete:
            error = at.error
            if at.phase is Phase.ABORTING or error is None:
                error = errors.TransactionAborted("the transaction was aborted before the record was sent")
            self._fail_queued(error)

    def _ask(self, now_ms: int) -> int:
        """Sends the next ask, if there is one and its coordinator can be reached."""
        engine = self.engine
        if now_ms < engine.retry_at_ms:
            return engine.retry_at_ms - now_ms
        ask = engine.next_ask(self._accumulator.has_incomplete, self.adds_by_writing)
        if ask is None:
            return NEVER_MS
        link = self._link_for(ask)
        if link.ready(now_ms):
            self._send(link, ask, now_ms)
            return NEVER_MS
        if ask.kind is Kind.INIT and self._is_refused():
            return 0
        if (refused := link.failure) is not None:
            link.failure = None
            engine.sent(ask)
            engine.answered(ask, Outcome(refused), now_ms)
            return 0
        wait_ms = link.next_wake_ms(now_ms)
        return NEVER_MS if wait_ms is None else wait_ms

    def _is_refused(self) -> bool:
        """True when an authentication has failed since init_transactions() was called: it ends with that."""
        metadata, step = self._client.metadata, self.engine.steps[0] if self.engine.steps else None
        if step is not self._trying[0]:
            self._trying = (step, metadata.fatal_count)
        if metadata.fatal_count == self._trying[1] or metadata.fatal_error is None:
            return False
        self.engine.refuse(metadata.fatal_error)
        return True

    def _link_for(self, ask: Ask) -> CoordinatorLink:
        if ask.kind is not Kind.OFFSETS:
            return self._link
        assert ask.group is not None
        if self._group_link is None or self._group_link[0] != ask.group.group_id:
            self._group_link = (ask.group.group_id, self._new_link(ask.group.group_id, GROUP))
        return self._group_link[1]

    def _new_link(self, key: str, kind: int) -> CoordinatorLink:
        return CoordinatorLink(
            self._client, key, retry_backoff_ms=self._backoff_ms, retry_backoff_max_ms=self._backoff_max_ms, kind=kind, log=log
        )

    def _send(self, link: CoordinatorLink, ask: Ask, now_ms: int) -> None:
        api, build, (low, high) = self._request(ask)

        def answered(response: ClientResponse) -> None:
            if ask is not self.engine.outstanding:
                return
            try:
                outcome = self._outcome(ask, api, response, link.broker_id)
                if outcome.error is not None and ask.kind in _WITHIN:
                    outcome = outcome._replace(error=self._dated(outcome.error))
                refresh = self.engine.answered(ask, outcome, self._clock.now_ms())
            except Exception as error:                            # an answer that does not fit: as if it had been lost
                log.exception("an answer to %s is of no use", api.__name__)
                lost = errors.DisconnectError(f"the answer to {ask.kind.value} is of no use: {error!r}", broker=link.broker_id)
                outcome, refresh = Outcome(lost), self.engine.answered(ask, Outcome(lost), self._clock.now_ms())
            if outcome.error is None:
                if ask.kind is Kind.END:
                    self.marker_wait.ended(self._clock.now_ms(), response.latency_ms)
                if self.engine.at.phase in CALM:
                    self._conclude()
            elif refresh:
                link.lost(outcome.error)

        self.engine.sent(ask)
        link.send(api, build, now_ms, answered, min_version=low, max_version=high)

    def _request(self, ask: Ask) -> tuple[type[Any], Callable[[int], Any], Versions]:
        who = self._transactional_id
        if ask.kind is Kind.INIT:
            known = ask.producer_id >= 0
            init = InitProducerIdRequest(
                transactional_id=who,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=ask.producer_id,
                producer_epoch=ask.epoch,
                enable2_pc=self._without_timeout,
            )
            if self._without_timeout:
                return InitProducerIdRequest, lambda version: init, (FIRST_INIT_WITHOUT_TIMEOUT, None)
            return InitProducerIdRequest, lambda version: init, (FIRST_INIT_WITH_EPOCH if known else None, LAST_STABLE_INIT)
        if ask.kind is Kind.PARTITIONS:
            topics: dict[str, list[int]] = {}
            for queue in ask.partitions:
                topics.setdefault(queue.topic, []).append(queue.index)
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=who,
                v3_and_below_producer_id=ask.producer_id,
                v3_and_below_producer_epoch=ask.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
            return AddPartitionsToTxnRequest, lambda version: added, (None, LAST_OF_CLIENTS)
        if ask.kind is Kind.GROUP:
            assert ask.group is not None
            group = AddOffsetsToTxnRequest(
                transactional_id=who, producer_id=ask.producer_id, producer_epoch=ask.epoch, group_id=ask.group.group_id
            )
            return AddOffsetsToTxnRequest, lambda version: group, (None, None)
        if ask.kind is Kind.OFFSETS:
            adds: Versions = (FIRST_OFFSETS_THAT_ADD, None) if ask.adds_by_writing else (None, FIRST_OFFSETS_THAT_ADD - 1)
            return TxnOffsetCommitRequest, self._offsets(ask), adds
        if ask.kind in (Kind.DESCRIBE, Kind.MARKERS):
            described = DescribeTransactionsRequest(transactional_ids=[who])
            return DescribeTransactionsRequest, lambda version: described, (None, None)
        end = EndTxnRequest(transactional_id=who, producer_id=ask.producer_id, producer_epoch=ask.epoch, committed=ask.commit)
        bumps: Versions = (FIRST_END_WITH_EPOCH, None) if ask.adds_by_writing else (None, FIRST_END_WITH_EPOCH - 1)
        return EndTxnRequest, lambda version: end, bumps

    def _offsets(self, ask: Ask) -> Callable[[int], TxnOffsetCommitRequest]:
        assert ask.group is not None
        group = ask.group
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=ask.producer_id,
            producer_epoch=ask.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics_to_commit(ask.offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
        )
        nameless = request._replace(generation_id=-1, member_id="", group_instance_id=None)
        return lambda version: request if version >= 3 else nameless   # KIP-447

    def _outcome(self, ask: Ask, api: type[Any], response: ClientResponse, broker: int) -> Outcome:
        """What an answer says."""
        if response.error is not None or response.disconnected or response.response is None:
            error = response.error
            known = error is not None and (error.retriable or isinstance(error, errors.AuthenticationFailedError))
            if error is None or (response.disconnected and not known):
                lost = errors.DisconnectError("the connection was closed before the answer", broker=broker, api=ask.kind.value)
                lost.__cause__ = error
                error = lost
            return Outcome(error)
        body: Any = response.response
        if ask.kind is Kind.END and not body.error_code:
            return Outcome(None, body.producer_id, body.producer_epoch) if response.version >= FIRST_END_WITH_EPOCH else Outcome()
        name = f"{ask.kind.value} v{response.version}"
        if ask.kind is Kind.PARTITIONS:
            named = {(queue.topic, queue.index): queue for queue in ask.partitions}
            codes = {
                (topic.name, part.partition_index): part.partition_error_code
                for topic in body.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            }
            return Outcome(self._first_error(codes, list(named), name, broker))
        if ask.kind is Kind.OFFSETS:
            stored = {(topic.name, part.partition_index): part.error_code for topic in body.topics for part in topic.partitions}
            error = self._first_error(stored, list(ask.offsets), name, broker)
            if error is None:
                return Outcome()
            return Outcome(error, stored=tuple(TopicPartition(*at) for at, code in stored.items() if not code))
        if ask.kind in (Kind.DESCRIBE, Kind.MARKERS):
            [found] = body.transaction_states
            if found.error_code:
                return Outcome(errors.from_code(found.error_code, f"transactional id {self._transactional_id}", broker=broker, api=name))
            if ask.kind is Kind.MARKERS:
                return Outcome(self._pending(found.transaction_state, broker, name))
            return Outcome(None, found.producer_id, found.producer_epoch, described=described_of(found))
        if body.error_code:
            return Outcome(errors.from_code(body.error_code, f"transactional id {self._transactional_id}", broker=broker, api=name))
        return Outcome(None, body.producer_id, body.producer_epoch) if ask.kind is Kind.INIT else Outcome()

    def _pending(self, state: str, broker: int, api: str) -> KafkaError | None:
        """The error with which the coordinator would answer what begins a transaction now."""
        if state not in MARKERS_PENDING:
            return None
        return errors.ConcurrentTransactions(f"transactional id {self._transactional_id} is in state {state}", broker=broker, api=api)

    @staticmethod
    def _first_error(codes: dict[tuple[str, int], int], asked: list[Any], api: str, broker: int) -> KafkaError | None:
        """The error that counts among those of several partitions: the worst, and one that says why before "not attempted"."""
        found: KafkaError | None = None
        for topic, partition in asked:
            where: dict[str, Any] = {"topic": topic, "partition": partition, "broker": broker, "api": api}
            code = codes.get((topic, partition))
            if code is None:
                return errors.DisconnectError("the answer leaves this partition out", **where)
            vague = found is not None and (found.retriable or found.code == Code.OPERATION_NOT_ATTEMPTED)
            if code and (found is None or (vague and code != Code.OPERATION_NOT_ATTEMPTED)):
                found = errors.from_code(code, **where)
        return found

    def attempts(self) -> tuple[KafkaError, ...]:
        """Why what is under way has not come to its end so far."""
        found = [*self.engine.attempts, *self._link.attempts]
        if self._group_link is not None:
            found += self._group_link[1].attempts
        return tuple(found[-10:])

    def interrupted(self) -> None:
        """A pass did not end: what it was about to do is done again."""
        self.engine.interrupted()
        self._link.start_anew(self._client)
        if self._group_link is not None:
            self._group_link[1].start_anew(self._client)

    @property
    def ended(self) -> bool:
        """True when a producer that is being closed may end: no transaction is open but a prepared one, and no call under way."""
        phase = self.engine.at.phase
        return phase is Phase.FATAL or (not self.engine.steps and phase in (Phase.UNINITIALIZED, Phase.READY, Phase.PREPARED))


def described_of(found: DescribeTransactionsTransactionState) -> Described:
    """What a DescribeTransactions answer says of one transactional id."""
    partitions = tuple(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
    return Described(found.transaction_state, found.transaction_start_time_ms, found.transaction_timeout_ms, partitions)
