"""TransactionEngine: what a transactional producer does next, as a state machine without I/O.

Layout
  Phase, TRANSITIONS   where a transaction stands, and the only ways from one phase to another
  Remedy, REMEDIES     what is done about an error code of a request (KIP-1050): the table
  Standing             all that is known of the transaction: a tuple that is exchanged as a whole
  Step                 a call of the application that is under way: init, offsets, commit, abort
  Ask, Outcome         a request to a coordinator, and what came of it
  Described            what the coordinator says of a transaction when it is prepared
  TransactionEngine    takes steps in, says what to ask, takes outcomes in

Rules
1. `engine.at` is one tuple and is replaced in one assignment. Ctrl+C may cut any method short: then it has happened or it has not, and
   the method can be called again. An ask may be sent twice, since coordinators recognise each: InitProducerId and EndTxn by the epoch.
   [test_a_commit, test_an_abort, test_what_is_prepared]
2. The application's threads call `submit`, `begin` and `check_sending`; the rest belongs to the thread that drives the I/O. While the phase
   is READY only `begin` changes the standing: no batch and no ask is under way then. [test_calls_in_the_wrong_order,
   test_an_open_transaction_that_rests_needs_no_pass]
3. Steps are taken in order; an abort goes before what else waits and ends it, a commit too as long as EndTxn was not asked for. A caller
   whose time is over leaves its step behind: it goes on, and the same call made again waits for it.
   [test_an_abort_ends_a_commit_that_still_waits_for_its_records, test_an_abort_ends_offsets_that_wait,
   test_a_call_made_again_waits_for_the_first_one]
4. One ask at a time. EndTxn waits until no batch is under way: none may reach a broker after the end of its transaction.
   [test_a_transaction_that_is_committed, test_a_batch_that_waits_for_a_retry_is_not_sent_after_the_abort]
5. A prepared transaction has all its records with the brokers, and takes no more. Another process may end it at any time: its end here is
   then answered like a request that is sent twice. Before transaction.version 2 the next transaction of this producer gets another epoch,
   since an end of the prepared one that comes late would end that. [test_a_prepared_transaction_takes_no_more_and_waits_for_its_end,
   test_another_process_has_ended_the_prepared_transaction_the_other_way]
6. With transaction.version 2 (KIP-890) writing itself takes a partition into the transaction, and EndTxn answers with the next epoch.
   Before that, partitions are added first, and after an error that can be aborted InitProducerId gives the next epoch (KIP-360), so that a
   batch that is late meets a fence. Which of the two holds is settled when a transaction begins and does not change within it.
   [test_partitions_are_added_together_and_once, test_after_an_error_that_can_be_aborted_the_producer_goes_on,
   test_each_group_of_a_transaction_is_added_once]
7. An epoch that has ended a transaction of version 1 begins none of version 2: its markers may still be on their way, and would end what
   is written before them. A transaction that adds partitions is answered only when they are written, and InitProducerId too.
   [test_the_first_transaction_that_adds_by_writing_has_an_epoch_of_its_own,
   test_version_2_that_comes_between_two_transactions_waits_for_one_more]

Source: org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360, KIP-447, KIP-890, KIP-1050.
"""

from __future__ import annotations

import copy
import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkacore import _codec, errors
from kafkacore._codec import Delivery, PartitionQueue, TransactionGate
from kafkacore.errors import Code, IllegalStateError, KafkaError
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("kafkacore.producer")

NO_PRODUCER_ID = -1
NO_EPOCH = -1
ONGOING = "Ongoing"                            # as DescribeTransactions names an open transaction
FIRST_THAT_ADDS_BY_WRITING = 2                 # of the feature transaction.version
CONCURRENT_BACKOFF_MS = 10                     # the markers of the last transaction are written in a moment
MARKER_PAUSES_MS = (1, 1, 1, 1, 2, 4, 8, 16, 32, 64)   # between looks for them, which cost little: 130 ms, longer than Kafka's leaders wait
KEPT_ATTEMPTS = 10


class Phase(enum.Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "init_transactions() has not been called"
    INITIALIZING = "init_transactions() is under way"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "the records of the transaction are being sent before its end"
    PREPARED = "the transaction is prepared"
    DECIDING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    ABORTABLE = "the transaction can only be aborted"
    FATAL = "the producer can only be closed"

    __hash__ = object.__hash__                 # members are compared by identity; Enum's own is a Python frame for each look-up


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.UNINITIALIZED: frozenset({Phase.INITIALIZING, Phase.FATAL}),
    Phase.INITIALIZING: frozenset({Phase.READY, Phase.UNINITIALIZED, Phase.FATAL}),
    Phase.READY: frozenset({Phase.OPEN, Phase.FATAL}),
    Phase.OPEN: frozenset({Phase.COMMITTING, Phase.ABORTING, Phase.ABORTABLE, Phase.FATAL}),
    Phase.COMMITTING: frozenset({Phase.DECIDING, Phase.PREPARED, Phase.ABORTING, Phase.READY, Phase.ABORTABLE, Phase.FATAL}),
    Phase.PREPARED: frozenset({Phase.COMMITTING, Phase.ABORTING, Phase.FATAL}),
    Phase.DECIDING: frozenset({Phase.READY, Phase.ABORTABLE, Phase.FATAL}),
    Phase.ABORTING: frozenset({Phase.READY, Phase.FATAL}),
    Phase.ABORTABLE: frozenset({Phase.ABORTING, Phase.FATAL}),
    Phase.FATAL: frozenset(),
}

COMMITS = frozenset({Phase.COMMITTING, Phase.DECIDING})
FAILED = frozenset({Phase.ABORTABLE, Phase.FATAL})
WRITING = frozenset({Phase.OPEN, Phase.COMMITTING})
ENDS_WITHOUT_BATCHES = frozenset({Phase.COMMITTING, Phase.ABORTING})
ABORT_BEGINS_IN = frozenset({Phase.OPEN, Phase.COMMITTING, Phase.PREPARED, Phase.ABORTABLE})

_codec._bind_transaction_phases(Phase.OPEN, Phase.COMMITTING)


class Kind(enum.Enum):
    """What a coordinator is asked."""

    INIT = "InitProducerId"
    PARTITIONS = "AddPartitionsToTxn"
    GROUP = "AddOffsetsToTxn"
    OFFSETS = "TxnOffsetCommit"
    DESCRIBE = "DescribeTransactions"
    MARKERS = "DescribeTransactions before writing"
    END = "EndTxn"

    __hash__ = object.__hash__                 # as of Phase


class Remedy(enum.Enum):
    """What is done about an error (KIP-1050)."""

    RETRY = "the request is sent again after a pause"
    REFRESH = "the coordinator is looked for again, then the request is sent again"
    ABORT = "the application aborts the transaction and begins another"
    FATAL = "the application closes the producer"


_EVERYWHERE: dict[int, Remedy] = {
    Code.NOT_COORDINATOR: Remedy.REFRESH,
    Code.COORDINATOR_NOT_AVAILABLE: Remedy.REFRESH,
    Code.COORDINATOR_LOAD_IN_PROGRESS: Remedy.RETRY,
    Code.CONCURRENT_TRANSACTIONS: Remedy.RETRY,
    Code.TRANSACTION_ABORTABLE: Remedy.ABORT,
    Code.PRODUCER_FENCED: Remedy.FATAL,
    Code.INVALID_PRODUCER_EPOCH: Remedy.FATAL,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Remedy.FATAL,
    Code.INVALID_TXN_STATE: Remedy.FATAL,
}
_ID_FORGOTTEN: dict[int, Remedy] = {Code.INVALID_PRODUCER_ID_MAPPING: Remedy.ABORT, Code.UNKNOWN_PRODUCER_ID: Remedy.ABORT}

REMEDIES: dict[Kind, dict[int, Remedy]] = {
    Kind.INIT: _EVERYWHERE,
    Kind.PARTITIONS: {
        **_EVERYWHERE,
        **_ID_FORGOTTEN,
        Code.UNKNOWN_TOPIC_OR_PARTITION: Remedy.RETRY,
        Code.TOPIC_AUTHORIZATION_FAILED: Remedy.ABORT,
        Code.OPERATION_NOT_ATTEMPTED: Remedy.ABORT,
    },
    Kind.GROUP: {**_EVERYWHERE, **_ID_FORGOTTEN, Code.GROUP_AUTHORIZATION_FAILED: Remedy.ABORT},
    Kind.OFFSETS: {
        **_EVERYWHERE,
        **_ID_FORGOTTEN,
        Code.UNKNOWN_TOPIC_OR_PARTITION: Remedy.RETRY,
        Code.REQUEST_TIMED_OUT: Remedy.REFRESH,
        Code.GROUP_AUTHORIZATION_FAILED: Remedy.ABORT,
        Code.TOPIC_AUTHORIZATION_FAILED: Remedy.ABORT,
        Code.FENCED_INSTANCE_ID: Remedy.ABORT,
        Code.UNKNOWN_MEMBER_ID: Remedy.ABORT,
        Code.ILLEGAL_GENERATION: Remedy.ABORT,
        Code.STALE_MEMBER_EPOCH: Remedy.ABORT,
        Code.FENCED_MEMBER_EPOCH: Remedy.ABORT,
        Code.INVALID_GROUP_ID: Remedy.ABORT,
        Code.OFFSET_METADATA_TOO_LARGE: Remedy.ABORT,
        Code.INVALID_COMMIT_OFFSET_SIZE: Remedy.ABORT,
    },
    Kind.MARKERS: {},
    Kind.DESCRIBE: {
        **_EVERYWHERE,
        Code.TRANSACTIONAL_ID_NOT_FOUND: Remedy.ABORT,
        Code.UNSUPPORTED_VERSION: Remedy.ABORT,
    },
    Kind.END: {**_EVERYWHERE, **_ID_FORGOTTEN},
}
"""What is not listed goes by the error's own flags: retriable, txn_requires_abort; and is fatal otherwise."""

FATAL_OF_PRODUCE = frozenset(
    {
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.PRODUCER_FENCED,
        Code.UNSUPPORTED_VERSION,
        Code.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""A batch that fails with these ends the producer; with any other error the transaction can be aborted."""

ABORT_ADVICE = "call abort_transaction(), then begin the transaction again"
INIT_ADVICE = "call init_transactions() again once the cause is removed"
FATAL_ADVICE = "close this producer; a new one can go on once the cause is removed"
FENCED_ADVICE = (
    "another producer has taken over this transactional id, or the transaction was open for longer than transaction_timeout_ms: close this"
    " producer, and make another one only if it is the one that shall go on"
)


class StepKind(enum.Enum):
    """The calls that wait for coordinators."""

    INIT = "init_transactions"
    OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"

    __hash__ = object.__hash__                 # as of Phase


CALLS = {kind: kind.value for kind in StepKind}
"""Their names; Enum's `value` is a Python frame for each look-up."""
FLUSHING = frozenset({StepKind.PREPARE, StepKind.COMMIT})
"""Those that send all records first."""


class Step:
    """A call under way."""

    __slots__ = ("delivery", "group", "kind", "offsets")

    def __init__(
        self,
        kind: StepKind,
        driver: Any,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | None = None,
    ) -> None:
        """A step that nobody has begun.

        Args:
            kind: which call.
            driver: what its delivery names as the one that brings it.
            offsets: to be committed.
            group: whose offsets they are.
        """
        self.kind = kind
        self.delivery = Delivery(None, driver)
        self.offsets = dict(offsets or {})
        self.group = group

    def end(self, error: KafkaError | None) -> None:
        """Its caller hears of this."""
        self.delivery.resolve(-1, -1, error)


class Described(NamedTuple):
    """What a coordinator says of a transaction.

    state: as Kafka writes it: Ongoing, CompleteCommit, ...
    started_at_ms: when it began, by the coordinator's clock; -1 where nothing began.
    timeout_ms: the coordinator aborts it when it is open for longer.
    partitions: those it has written to.
    """

    state: str
    started_at_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class Standing(NamedTuple):
    """All that is known of a producer's transaction. The first three fields are read by native/transaction_gate.pxi.

    adds_by_writing: transaction.version 2 holds for the open transaction.
    added: its partitions; the gate adds to it when writing does.
    error: why the phase is ABORTABLE or FATAL.
    asked: the coordinator may know of the transaction, apart from `added`.
    groups: those whose offsets partition AddOffsetsToTxn has added.
    bump: InitProducerId has to give a new epoch before the next transaction.
    ended: EndTxn was answered, or must not be sent.
    last: the step that came to its end last.
    reused: a transaction of version 1 has ended with this epoch.
    prepared: what the coordinator said when the transaction was prepared; None before. Without anything written it was not asked.
    refused: why the last call fails, although the producer can be used: an abort, since another process has committed the prepared
        transaction; init_transactions, since no ACL allows it yet.
    """

    phase: Phase
    adds_by_writing: bool
    added: set[PartitionQueue]
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    error: KafkaError | None = None
    asked: bool = False
    groups: frozenset[str] = frozenset()
    bump: bool = False
    ended: bool = False
    last: Step | None = None
    reused: bool = False
    prepared: Described | None = None
    refused: KafkaError | None = None

    def moved_to(self, phase: Phase) -> Standing:
        """The same in another phase."""
        return Standing(phase, *self[1:])


NOTHING_WRITTEN = Described("Empty", -1, -1, ())


class Ask(NamedTuple):
    """A request to a coordinator; compared by identity."""

    kind: Kind
    producer_id: int
    epoch: int
    adds_by_writing: bool
    partitions: tuple[PartitionQueue, ...] = ()
    group: ConsumerGroupMetadata | None = None
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = {}
    step: Step | None = None
    commit: bool = False


class Outcome(NamedTuple):
    """What came of an ask.

    error: None when all is well.
    producer_id, epoch: what the producer goes on with; -1 where the answer names none.
    stored: the offsets that are stored although others are not.
    described: the answer to DescribeTransactions.
    """

    error: KafkaError | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    stored: tuple[TopicPartition, ...] = ()
    described: Described | None = None


class TransactionEngine:
    """See the top of the file."""

    def __init__(self, backoff_ms: Callable[[int], int], driver: Any = None) -> None:
        """A producer that has not asked for its id.

        Args:
            backoff_ms: pause before the n-th retry.
            driver: who brings the outcome of steps (see `Step`).
        """
        self.gate = TransactionGate(Standing(Phase.UNINITIALIZED, False, set()))
        self.steps: deque[Step] = deque()
        self.outstanding: Ask | None = None
        self.retry_at_ms = 0
        self.attempts: deque[KafkaError] = deque(maxlen=KEPT_ATTEMPTS)
        self.driver = driver
        self._backoff_ms = backoff_ms
        self._tries = 0

    @property
    def at(self) -> Standing:
        """Where the transaction stands now."""
        return self.gate.at  # type: ignore[return-value]

    def _go(self, to: Standing) -> None:
        phase = self.at.phase
        if to.phase is not phase and to.phase not in TRANSITIONS[phase]:
            raise IllegalStateError(f"no way from {phase.name} to {to.phase.name}")
        self.gate.at = to

    # ---- the application's threads -----------------------------------------------------------------------------------------------

    def begin(self, adds_by_writing: bool, looks: bool = False) -> None:
        """Opens a transaction.

        Args:
            adds_by_writing: the brokers say that transaction.version 2 holds.
            looks: if it does, nothing is written before the coordinator has said that the markers of the last transaction are.
        """
        at = self.at
        if at.phase is not Phase.READY:
            raise self._refusal("begin_transaction", at)
        if at.last is not None:                                   # its caller may have been cut short: it must not end this transaction
            at.last.end(None if at.refused is None else fresh(at.refused))
        gate = self.gate
        gate.refused = None
        gate.holds, gate.held, gate.first_answer_ms = looks and adds_by_writing and not at.reused, False, -1
        self._go(
            Standing(
                Phase.OPEN,
                adds_by_writing and not at.reused,
                set(),
                at.producer_id,
                at.epoch,
                bump=adds_by_writing and at.reused,               # rule 7: so that the one after it can
                last=at.last,
                reused=at.reused,
            )
        )

    def check_sending(self) -> None:
        """Raises unless records can be sent now."""
        at = self.at
        if at.phase is not Phase.OPEN:
            raise self._refusal("send", at)
        if self.gate.refused is not None:
            raise fresh(self.gate.refused)

    def record_refused(self, error: Exception) -> None:
        """A record of the open transaction was refused before it was queued: the transaction can only be aborted, or a part of it would be
        committed. A note for the thread that drives the I/O, which alone changes the standing; `send` obeys it at once.

        Source: KafkaProducer.doSend, TransactionManager.maybeTransitionToErrorState.
        """
        gate = self.gate
        if gate.refused is None and self.at.phase is Phase.OPEN:
            gate.refused = doomed("send() has refused a record of the transaction", error)
            gate.busy = True

    def _take_refusal(self) -> None:
        """What `record_refused` has noted."""
        refusal = self.gate.refused
        if refusal is None or self.at.phase not in WRITING:
            return
        if isinstance(refusal.__cause__, KafkaError) and refusal.__cause__.code in FATAL_OF_PRODUCE:
            self.fail(refusal.__cause__)
        else:
            self._must_abort(refusal, refusal, self.at)

    def submit(
        self,
        kind: StepKind,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | None = None,
    ) -> Step:
        """Takes a call in; where the same call is under way since its caller gave up waiting, that one.

        Raises:
            IllegalStateError: the end of the transaction is under way the other way round.
        """
        for step in self._unfinished() if self.steps else ():
            if step.kind is kind is not StepKind.OFFSETS:
                self.gate.busy = True                             # Ctrl+C may have come before it was set
                return step
            if kind is StepKind.OFFSETS or step.kind is StepKind.OFFSETS or self.at.phase in FAILED:
                continue
            if not (kind is StepKind.ABORT and step.kind in FLUSHING and self.at.phase in WRITING):
                raise IllegalStateError(f"{step.kind.value}() is still under way: call it again to learn its end, before {kind.value}()")
        step = Step(kind, self.driver, offsets, group)
        self.steps.append(step)
        self.gate.busy = True                                     # after the step is there: the thread that clears it looks afterwards
        return step

    def _refusal(self, call: str, at: Standing) -> KafkaError:
        if at.error is not None:
            return fresh(at.error)
        todo = {
            Phase.UNINITIALIZED: "call init_transactions() first",
            Phase.INITIALIZING: "call init_transactions() again to wait for its end",
            Phase.READY: "call begin_transaction() first",
            Phase.OPEN: "commit or abort it first",
            Phase.COMMITTING: "call the same again to wait for its end",
            Phase.PREPARED: "commit or abort it first",
            Phase.DECIDING: "call commit_transaction() again to wait for its end",
            Phase.ABORTING: "call abort_transaction() again to wait for its end",
        }[at.phase]
        if call == StepKind.INIT.value:
            todo = "a producer does that once"
        return IllegalStateError(f"{call}() is not possible: {at.phase.value}; {todo}")

    # ---- the thread that drives the I/O --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Begins steps and ends those whose outcome is known."""
        self._take_refusal()
        steps = self.steps
        while steps:
            at = self.at
            if at.phase in ABORT_BEGINS_IN and self._step_of(StepKind.ABORT) is not None:   # each time: it may have come meanwhile
                self._go(at.moved_to(Phase.ABORTING))
            step = steps[0]
            if not step.delivery.finished:                        # else Ctrl+C came before it was taken off
                pending, error = self._fate(step)
                if pending:
                    return
                step.end(error)
            steps.popleft()

    def _unfinished(self) -> list[Step]:
        return [step for step in tuple(self.steps) if not step.delivery.finished]

    def _step_of(self, kind: StepKind) -> Step | None:
        """The call of this kind that is under way."""
        for step in tuple(self.steps):
            if step.kind is kind and not step.delivery.finished:
                return step
        return None

    def _fate(self, step: Step) -> tuple[bool, KafkaError | None]:
        """(whether it is under way, its error), and begins it when it is its turn."""
        at = self.at
        if at.last is step:
            return False, None if at.refused is None else fresh(at.refused)
        if at.phase in FAILED:
            return False, fresh(at.error)
        if step.kind is StepKind.INIT:
            if at.phase is Phase.UNINITIALIZED:
                self._go(at._replace(phase=Phase.INITIALIZING, last=None, refused=None))
                return True, None
            if at.phase is Phase.READY and at.last is not None and at.last.kind is StepKind.INIT:
                return False, None                                # as below
            return (True, None) if at.phase is Phase.INITIALIZING else (False, self._refusal(step.kind.value, at))
        if step.kind is StepKind.OFFSETS:
            if at.phase is Phase.ABORTING:
                return False, errors.TransactionAborted("the transaction was aborted before its offsets were stored")
            return (True, None) if at.phase is Phase.OPEN else (False, self._refusal(step.kind.value, at))
        if step.kind in FLUSHING and at.phase is Phase.ABORTING:
            done = "committed" if step.kind is StepKind.COMMIT else "prepared"
            return False, errors.TransactionAborted(f"the transaction was aborted before it could be {done}")
        if step.kind is StepKind.PREPARE:
            if at.phase is Phase.OPEN:
                self._go(at._replace(phase=Phase.COMMITTING))
            if at.phase in (Phase.OPEN, Phase.COMMITTING, Phase.PREPARED):
                return at.phase is not Phase.PREPARED, None
            return False, self._refusal(step.kind.value, at)
        commit = step.kind is StepKind.COMMIT
        if commit and at.phase in (Phase.OPEN, Phase.PREPARED):
            self._go(at.moved_to(Phase.COMMITTING))
            return True, None
        if at.phase in (COMMITS if commit else (Phase.ABORTING,)):
            return True, None
        if at.phase is Phase.READY and at.last is not None and at.last.kind is step.kind:
            return False, None                                    # the call before was cut short after it had come to its end
        if at.phase is Phase.READY and at.last is not None and at.last.kind in (StepKind.COMMIT, StepKind.ABORT):
            done = "committed" if at.last.kind is StepKind.COMMIT else "aborted"
            return False, IllegalStateError(f"{step.kind.value}() is not possible: the transaction has been {done} already")
        return False, self._refusal(step.kind.value, at)

    @property
    def awaits_batches(self) -> bool:
        """True when a commit, or what prepares one, is all that is under way, and nothing keeps it but batches without an outcome."""
        if self.at.phase is not Phase.COMMITTING or self.outstanding is not None or len(self.steps) != 1:
            return False
        step = self.steps[0]
        return step.kind in FLUSHING and not step.delivery.finished and not self._holds_back and not self._wanted()

    @property
    def has_work(self) -> bool:
        """True while the engine has something to do, or waits for an answer."""
        if self.steps or self.outstanding is not None:
            return True
        return self.at.phase in WRITING and (self._holds_back or bool(self._wanted()))

    @property
    def _holds_back(self) -> bool:
        return self.gate.holds and self.gate.held

    def _let_go(self) -> None:
        """Batches need not wait for the markers of the last transaction any more."""
        self.gate.holds = self.gate.held = False

    def _wanted(self) -> list[PartitionQueue]:
        if not self.gate.wanted:
            return []
        added = self.at.added
        return [queue for queue in list(self.gate.wanted) if queue not in added]

    def next_ask(self, has_batches: bool, adds_by_writing: bool = False) -> Ask | None:
        """What to ask now, None for nothing. It may be called again until the ask is sent.

        Args:
            has_batches: batches are queued or under way.
            adds_by_writing: as for `begin`; a transaction of version 1 then brings a new epoch for the next one (rule 6).
        """
        at = self.at
        if at.phase is Phase.INITIALIZING:
            return Ask(Kind.INIT, NO_PRODUCER_ID, NO_EPOCH, False)
        if at.phase in WRITING:
            if self.gate.wanted and (wanted := self._wanted()):
                return self._about(Ask(Kind.PARTITIONS, at.producer_id, at.epoch, False, partitions=tuple(wanted)))
            step = self.steps[0] if self.steps else None
            if self.gate.holds and (self.gate.held or (step is not None and step.kind is StepKind.OFFSETS)):
                return Ask(Kind.MARKERS, at.producer_id, at.epoch, True)
            if step is not None and step.kind is StepKind.OFFSETS:
                if not step.offsets:
                    self._go(at._replace(last=step))
                    return None
                return self._about(self._offsets_ask(step, at))
        if at.phase is not Phase.DECIDING and (has_batches or at.phase not in ENDS_WITHOUT_BATCHES):
            return None
        if at.phase is Phase.COMMITTING and (step := self._step_of(StepKind.PREPARE)) is not None:
            if at.asked or at.added:
                return Ask(Kind.DESCRIBE, at.producer_id, at.epoch, at.adds_by_writing, step=step)
            self._go(at._replace(phase=Phase.PREPARED, prepared=NOTHING_WRITTEN, last=step))
            return None
        if not at.ended and (at.asked or at.added):
            if adds_by_writing and not at.adds_by_writing and not at.bump:
                self._go(at := at._replace(bump=True))
            if at.phase is Phase.COMMITTING:                      # a record sent meanwhile must not leave behind the decision
                self._go(at.moved_to(Phase.DECIDING))
            return Ask(Kind.END, at.producer_id, at.epoch, at.adds_by_writing, commit=at.phase is not Phase.ABORTING)
        if at.bump:
            return Ask(Kind.INIT, at.producer_id, at.epoch, at.adds_by_writing)
        self._finish(at, at.producer_id, at.epoch)
        return None

    def _offsets_ask(self, step: Step, at: Standing) -> Ask:
        assert step.group is not None
        if not at.adds_by_writing and step.group.group_id not in at.groups:
            return Ask(Kind.GROUP, at.producer_id, at.epoch, False, group=step.group, step=step)
        return Ask(
            Kind.OFFSETS, at.producer_id, at.epoch, at.adds_by_writing, group=step.group, offsets=dict(step.offsets), step=step
        )

    def _about(self, ask: Ask) -> Ask:
        """From now on the coordinator may know of the transaction, whether or not an answer comes."""
        if not self.at.asked:
            self._go(self.at._replace(asked=True))
        return ask

    def _finish(self, at: Standing, producer_id: int, epoch: int) -> None:
        """The transaction is over, or the producer has its id."""
        kind = {Phase.ABORTING: StepKind.ABORT, Phase.INITIALIZING: StepKind.INIT}.get(at.phase, StepKind.COMMIT)
        self.gate.wanted.clear()
        step = self._step_of(kind)
        reused = (producer_id, epoch) == (at.producer_id, at.epoch) and (at.reused or at.asked or bool(at.added))
        # The call ends with the next settle(), with `refused` if there is one: its caller may begin another transaction at once.
        self._go(Standing(Phase.READY, False, set(), producer_id, epoch, last=step, reused=reused, refused=at.refused))

    def sent(self, ask: Ask) -> None:
        """The ask is about to be sent."""
        self.outstanding = ask

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> bool:
        """Takes in what came of an ask; one that is not outstanding any more is ignored.

        Returns:
            Whether the coordinator that was asked has to be looked for again.
        """
        if ask is not self.outstanding:
            return False
        self.gate.busy = True
        refresh = False
        if outcome.error is None:
            self._well(ask, outcome)
            self._tries = 0
            self.retry_at_ms = 0
            self.attempts.clear()
        else:
            refresh = self._ill(ask, outcome, outcome.error, now_ms)
        self.outstanding = None                                   # last: an answer that was cut short is asked for again
        return refresh

    def _well(self, ask: Ask, outcome: Outcome) -> None:
        at = self.at
        if ask.kind is Kind.PARTITIONS:
            if at.phase in WRITING:
                self._go(at._replace(added=at.added.union(ask.partitions)))
        elif ask.kind is Kind.GROUP:
            assert ask.group is not None
            if at.phase in WRITING:
                self._go(at._replace(groups=at.groups | {ask.group.group_id}))
        elif ask.kind is Kind.OFFSETS:
            if at.phase in WRITING:
                self._go(at._replace(last=ask.step))
        elif ask.kind is Kind.MARKERS:
            self._let_go()
        elif ask.kind is Kind.DESCRIBE:
            if at.phase is Phase.COMMITTING:
                self._described(ask, outcome, at)
        elif ask.kind is Kind.END:
            if outcome.producer_id >= 0:                          # transaction.version 2: the next epoch comes with the answer
                self._finish(at, outcome.producer_id, outcome.epoch)
            elif at.bump:
                self._go(at._replace(ended=True))
            else:
                self._finish(at, at.producer_id, at.epoch)
        else:
            self._finish(at, outcome.producer_id, outcome.epoch)

    def _described(self, ask: Ask, outcome: Outcome, at: Standing) -> None:
        """All records are with the brokers. The transaction is prepared if the coordinator still has it open: its time may be over."""
        found = outcome.described
        assert found is not None
        is_ours = (outcome.producer_id, outcome.epoch) == (at.producer_id, at.epoch)
        if is_ours and found.state == ONGOING:
            self._go(at._replace(phase=Phase.PREPARED, prepared=found, last=ask.step, bump=at.bump or not at.adds_by_writing))
        elif is_ours or (at.adds_by_writing and (outcome.producer_id, outcome.epoch) == (at.producer_id, at.epoch + 1)):
            told = errors.TransactionAbortable(
                f"the coordinator has no open transaction of this producer any more, but {found.state}: it aborts those that are open for"
                f" longer than transaction_timeout_ms; {ABORT_ADVICE}"
            )
            self._must_abort(told, told, at)
        else:
            self.fail(errors.ProducerFenced(f"the transactional id has epoch {outcome.epoch} now, the producer {at.epoch}"))

    def _ill(self, ask: Ask, outcome: Outcome, error: KafkaError, now_ms: int) -> bool:
        at = self.at
        if ask.step is not None:
            for stored in outcome.stored:
                ask.step.offsets.pop(stored, None)
        if ask.kind is Kind.MARKERS and (error.code != Code.CONCURRENT_TRANSACTIONS or self._tries == len(MARKER_PAUSES_MS)):
            self._tries = 0
            self._let_go()                                        # leaders wait for the markers, and what is wrong shows with EndTxn
            return error.code == Code.NOT_COORDINATOR
        remedy = self.remedy(ask, error)
        if remedy in (Remedy.RETRY, Remedy.REFRESH):
            self.attempts.append(error)
            if ask.kind is Kind.MARKERS:
                pause_ms = MARKER_PAUSES_MS[self._tries]
            elif error.code == Code.CONCURRENT_TRANSACTIONS:
                pause_ms = min(CONCURRENT_BACKOFF_MS << min(self._tries, 20), self._backoff_ms(self._tries))
            else:
                pause_ms = self._backoff_ms(self._tries)
            self._tries += 1
            self.retry_at_ms = now_ms + pause_ms
            log.debug("%s is sent again in %d ms: %s", ask.kind.value, pause_ms, error)
            return remedy is Remedy.REFRESH
        self._tries = 0
        is_refused = isinstance(error, errors.AuthorizationError) and (error.api or "").startswith(Kind.INIT.value)
        if ask.kind is Kind.INIT and at.phase is Phase.INITIALIZING and is_refused:
            refusal = advised(error, INIT_ADVICE, fatal=False)       # an ACL may allow it later; nothing has started, as in Java
            self._go(at._replace(phase=Phase.UNINITIALIZED, last=self._step_of(StepKind.INIT), refused=refusal))
        elif remedy is Remedy.FATAL:
            if ask.kind is Kind.INIT and at.phase is Phase.DECIDING:   # committed all the same; the next transaction is what fails
                self._go(at._replace(last=self._step_of(StepKind.COMMIT)))
            self.fail(error)
        elif at.phase is Phase.ABORTING:
            if ask.kind is Kind.END:                              # there is nothing left to abort: a new epoch is all that is needed
                refused = None
                if at.prepared is not None and error.code == Code.INVALID_TXN_STATE:
                    refused = errors.PreparedTransactionCommitted("another process has committed the prepared transaction")
                self._go(at._replace(ended=True, bump=True, refused=refused))
        elif at.phase in WRITING or at.phase is Phase.DECIDING:
            self._must_abort(advised(error, ABORT_ADVICE, txn_requires_abort=True, fatal=False, retriable=False), error, at)
        return False

    def remedy(self, ask: Ask, error: KafkaError) -> Remedy:
        """What is done about an error of this request."""
        known = None if error.code is None else REMEDIES[ask.kind].get(error.code)
        if known is None:
            known = Remedy.RETRY if error.retriable else Remedy.ABORT if error.txn_requires_abort else Remedy.FATAL
        may_have_ended = ask.adds_by_writing or not ask.commit or self.at.prepared is not None
        if error.code == Code.INVALID_TXN_STATE and ask.kind is Kind.END and may_have_ended:
            # The coordinator has aborted it, since its time was over; or never heard of it, since what would have begun it was lost; or
            # another process has ended the prepared transaction.
            known = Remedy.ABORT
        if known is Remedy.ABORT and ask.kind is Kind.INIT:
            known = Remedy.FATAL                                  # there is no transaction to abort
        return known

    def _must_abort(self, told: KafkaError, cause: KafkaError, at: Standing) -> None:
        forgotten = cause.code == Code.INVALID_PRODUCER_ID_MAPPING
        self._go(
            at._replace(
                phase=Phase.ABORTABLE,
                error=told,
                bump=at.bump or not at.adds_by_writing or forgotten,
                ended=at.ended or forgotten,                      # the coordinator does not know this producer: EndTxn would fail again
            )
        )

    def batch_failed(self, error: KafkaError, sent: bool) -> None:
        """A batch of the transaction is given up.

        Args:
            error: why.
            sent: it has been sent at least once.
        """
        at = self.at
        self.gate.busy = True
        if at.phase in WRITING:
            if error.code in FATAL_OF_PRODUCE:
                self.fail(error)
                return
            self._must_abort(doomed("a record of the transaction was not delivered", error), error, at)
        elif sent and at.phase in (Phase.ABORTING, Phase.ABORTABLE) and not at.adds_by_writing and not at.bump:
            self._go(at._replace(bump=True))                      # its numbers are missing; the next epoch begins at 0

    def fail(self, error: KafkaError) -> None:
        """Nothing can be done any more."""
        if self.at.phase is Phase.FATAL:
            return
        fenced = error.code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH)
        if error.code == Code.INVALID_PRODUCER_EPOCH:
            found = errors.ProducerFenced(error.message, broker=error.broker, api=error.api, topic=error.topic, partition=error.partition)
            found.__cause__ = error
            error = found
        told = advised(error, FENCED_ADVICE if fenced else FATAL_ADVICE, fatal=True, retriable=False)
        self._go(self.at._replace(phase=Phase.FATAL, error=told))
        self.gate.busy = True

    def refuse(self, error: KafkaError) -> None:
        """init_transactions() raises this and may be called again: the brokers do not let this client in, which may change."""
        step = self._step_of(StepKind.INIT)
        if step is not None and self.at.phase is Phase.INITIALIZING:
            step.end(fresh(error))
            self._go(self.at._replace(phase=Phase.UNINITIALIZED))

    def interrupted(self) -> None:
        """A pass did not end: what is outstanding is asked for again."""
        self.outstanding = None
        self.gate.busy = True

    def close(self) -> None:
        """Ends what still waits."""
        while self.steps:
            step = self.steps.popleft()
            step.end(errors.ClosedError(f"the producer was closed before {step.kind.value}() came to its end"))


def doomed(what: str, error: Exception) -> KafkaError:
    """The error of a transaction that can only be aborted, since this has happened to a record of it."""
    if isinstance(error, KafkaError):
        why = f"{error.name}: {error.message}" if error.message else error.name
        said = errors.TransactionAbortable(
            f"{what} ({why}): {ABORT_ADVICE}",
            topic=error.topic,
            partition=error.partition,
            broker=error.broker,
            api=error.api,
            attempts=[error],
        )
    else:
        said = errors.TransactionAbortable(f"{what} ({type(error).__name__}: {error}): {ABORT_ADVICE}")
    said.__cause__ = error
    return said


def advised(error: KafkaError, advice: str, **flags: bool) -> KafkaError:
    """The error with a sentence that says what to do, and flags of its own."""
    said = fresh(error)
    said.message = f"{said.message}: {advice}" if said.message else advice
    for name, value in flags.items():
        setattr(said, name, value)
    return said


def fresh(error: KafkaError | None) -> KafkaError:
    """A copy to raise: one object raised twice would collect tracebacks."""
    assert error is not None
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    return again
