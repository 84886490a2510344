"""The transaction engine alone: phases, remedies, and a property test against a model of the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafkacore import _codec, errors
from kafkacore.errors import Code, IllegalStateError, KafkaError
from kafkacore.producer.transactions import (
    FATAL_OF_PRODUCE,
    NOTHING_WRITTEN,
    REMEDIES,
    TRANSITIONS,
    WRITING,
    Ask,
    Described,
    Kind,
    Outcome,
    Phase,
    Remedy,
    Step,
    StepKind,
    TransactionEngine,
)
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

GROUP = ConsumerGroupMetadata("g", 3, "m")
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5)}
TOPIC = _codec.TopicQueue("t")
TOPIC.grow(4, TopicPartition)
QUEUES = TOPIC.partitions


def engine_of() -> TransactionEngine:
    return TransactionEngine(lambda tries: 100)


def outcome_of(step: Step) -> tuple[bool, KafkaError | None]:
    return step.delivery.finished, step.delivery.error


def ask(engine: TransactionEngine, has_batches: bool = False) -> Ask | None:
    engine.settle()
    found = engine.next_ask(has_batches)
    if found is not None:
        engine.sent(found)
    engine.settle()
    return found


def answer(engine: TransactionEngine, asked: Ask | None, error: KafkaError | None = None, **fields: Any) -> bool:
    assert asked is not None
    refresh = engine.answered(asked, Outcome(error, **fields), 0)
    engine.settle()
    return refresh


def ready(producer_id: int = 7, epoch: int = 0) -> TransactionEngine:
    engine = engine_of()
    step = engine.submit(StepKind.INIT)
    answer(engine, ask(engine), producer_id=producer_id, epoch=epoch)
    assert outcome_of(step) == (True, None)
    return engine


def opened(adds_by_writing: bool, partitions: int = 1) -> TransactionEngine:
    engine = ready()
    engine.begin(adds_by_writing)
    if adds_by_writing:
        engine.at.added.update(QUEUES[:partitions])
    else:
        engine.gate.wanted.update(dict.fromkeys(QUEUES[:partitions]))
        asked = ask(engine, True)
        assert asked is not None
        assert asked.partitions == tuple(QUEUES[:partitions])
        answer(engine, asked)
    return engine


def test_the_table_of_phases_leads_everywhere_and_out_of_fatal_nowhere() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert TRANSITIONS[Phase.FATAL] == frozenset()
    assert all(Phase.FATAL in after for phase, after in TRANSITIONS.items() if phase is not Phase.FATAL)
    reached = {Phase.UNINITIALIZED}
    while True:
        more = reached.union(*(TRANSITIONS[phase] for phase in reached))
        if more == reached:
            break
        reached = more
    assert reached == set(Phase)


@pytest.mark.parametrize("adds_by_writing", [False, True])
def test_a_transaction_that_is_committed(adds_by_writing: bool) -> None:
    engine = opened(adds_by_writing, 2)
    step = engine.submit(StepKind.COMMIT)
    assert ask(engine, has_batches=True) is None, "EndTxn waits for the batches"
    end = ask(engine)
    assert end is not None
    assert (end.kind, end.commit, end.producer_id, end.epoch) == (Kind.END, True, 7, 0)
    answer(engine, end, **({"producer_id": 7, "epoch": 1} if adds_by_writing else {}))
    assert outcome_of(step) == (True, None)
    assert (engine.at.phase, engine.at.epoch) == (Phase.READY, 1 if adds_by_writing else 0)
    assert engine.at.added == set()


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("adds_by_writing", [False, True])
def test_a_transaction_that_nobody_has_heard_of_ends_without_a_request(adds_by_writing: bool, commit: bool) -> None:
    engine = ready()
    engine.begin(adds_by_writing)
    step = engine.submit(StepKind.COMMIT if commit else StepKind.ABORT)
    assert ask(engine) is None
    assert outcome_of(step) == (True, None)


def test_partitions_are_added_together_and_once() -> None:
    engine = opened(False, 3)
    engine.gate.wanted[QUEUES[3]] = None
    asked = ask(engine, True)
    assert asked is not None
    assert asked.partitions == (QUEUES[3],)
    answer(engine, asked)
    assert engine.at.added == set(QUEUES)
    assert ask(engine, True) is None


def test_the_group_is_added_before_its_offsets_by_version_1_only() -> None:
    for adds_by_writing, kinds in ((False, [Kind.GROUP, Kind.OFFSETS]), (True, [Kind.OFFSETS])):
        engine = ready()
        engine.begin(adds_by_writing)
        step = engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
        for kind in kinds:
            asked = ask(engine, True)
            assert asked is not None
            assert asked.kind is kind
            answer(engine, asked)
        assert outcome_of(step) == (True, None)
        engine.submit(StepKind.COMMIT)
        asked = ask(engine)
        assert asked is not None
        assert asked.kind is Kind.END, "the coordinator knows of the offsets"


def test_offsets_that_are_stored_are_not_sent_again() -> None:
    engine = ready()
    engine.begin(True)
    first, second = TopicPartition("in", 0), TopicPartition("in", 1)
    engine.submit(StepKind.OFFSETS, dict.fromkeys((first, second), OffsetAndMetadata(1)), GROUP)
    answer(engine, ask(engine), errors.CoordinatorLoadInProgress(), stored=(first,))
    asked = ask(engine)
    assert asked is not None
    assert list(asked.offsets) == [second]


@pytest.mark.parametrize("adds_by_writing", [False, True])
def test_after_an_error_that_can_be_aborted_the_producer_goes_on(adds_by_writing: bool) -> None:
    engine = opened(adds_by_writing)
    engine.batch_failed(errors.RecordTooLarge("large"), True)
    commit = engine.submit(StepKind.COMMIT)
    engine.settle()
    done, error = outcome_of(commit)
    assert done
    assert error is not None
    assert (error.txn_requires_abort, error.fatal, error.retriable) == (True, False, False)
    assert "abort_transaction()" in str(error)
    assert isinstance(error.__cause__, errors.RecordTooLarge)
    with pytest.raises(errors.TransactionAbortable):
        engine.check_sending()
    abort = engine.submit(StepKind.ABORT)
    end = ask(engine)
    assert end is not None
    assert (end.kind, end.commit) == (Kind.END, False)
    if adds_by_writing:
        answer(engine, end, producer_id=7, epoch=1)
    else:
        answer(engine, end)
        bump = ask(engine)
        assert bump is not None
        assert (bump.kind, bump.producer_id, bump.epoch) == (Kind.INIT, 7, 0), "a late batch of the old epoch must meet a fence"
        answer(engine, bump, producer_id=7, epoch=1)
    assert outcome_of(abort) == (True, None)
    assert (engine.at.phase, engine.at.epoch, engine.at.error) == (Phase.READY, 1, None)


def test_a_producer_that_the_coordinator_has_forgotten_asks_for_an_epoch_without_ending() -> None:
    engine = opened(False)
    engine.gate.wanted[QUEUES[1]] = None
    answer(engine, ask(engine, True), errors.InvalidPidMapping())
    assert engine.at.phase is Phase.ABORTABLE
    abort = engine.submit(StepKind.ABORT)
    bump = ask(engine)
    assert bump is not None
    assert (bump.kind, bump.producer_id) == (Kind.INIT, 7)
    answer(engine, bump, producer_id=9, epoch=0)
    assert outcome_of(abort) == (True, None)
    assert (engine.at.producer_id, engine.at.epoch) == (9, 0)


def test_an_abort_that_comes_while_the_failed_commit_ends() -> None:
    """Whoever waits for the commit may be woken, and abort, before the driver has taken the commit off."""
    engine = opened(True)
    engine.batch_failed(errors.RecordTooLarge("large"), True)
    commit = engine.submit(StepKind.COMMIT)
    aborts: list[Step] = []
    commit.delivery.add_done_callback(None, lambda _: aborts.append(engine.submit(StepKind.ABORT)))
    engine.settle()
    assert isinstance(commit.delivery.error, errors.TransactionAbortable)
    assert outcome_of(aborts[0]) == (False, None)
    answer(engine, ask(engine), producer_id=7, epoch=1)
    assert outcome_of(aborts[0]) == (True, None)
    assert engine.at.phase is Phase.READY


def test_an_abort_of_what_the_coordinator_never_heard_of() -> None:
    engine = ready()
    engine.begin(False)
    engine.gate.wanted[QUEUES[0]] = None
    answer(engine, ask(engine, True), errors.DisconnectError())
    abort = engine.submit(StepKind.ABORT)
    answer(engine, ask(engine), errors.InvalidTxnState())
    bump = ask(engine)
    assert bump is not None
    assert bump.kind is Kind.INIT
    answer(engine, bump, producer_id=7, epoch=1)
    assert outcome_of(abort) == (True, None)


def test_an_exhausted_epoch_brings_another_producer_id() -> None:
    engine = opened(True)
    engine.submit(StepKind.COMMIT)
    answer(engine, ask(engine), producer_id=8, epoch=0)
    assert (engine.at.producer_id, engine.at.epoch) == (8, 0)


def end_one(engine: TransactionEngine, commit: bool, adds_by_writing: bool) -> None:
    """A transaction with a partition, by version 1, up to EndTxn's answer."""
    engine.gate.wanted[QUEUES[0]] = None
    answer(engine, ask(engine))
    engine.submit(StepKind.COMMIT if commit else StepKind.ABORT)
    engine.settle()
    asked = engine.next_ask(False, adds_by_writing)
    assert asked is not None and asked.kind is Kind.END and not asked.adds_by_writing
    engine.sent(asked)
    answer(engine, asked)


@pytest.mark.parametrize("commit", [True, False])
def test_the_first_transaction_that_adds_by_writing_has_an_epoch_of_its_own(commit: bool) -> None:
    """The markers of the last one may still be on their way."""
    engine = ready()
    engine.begin(False)
    end_one(engine, commit, adds_by_writing=True)                 # version 2 came meanwhile
    asked = ask(engine)
    assert asked is not None and (asked.kind, asked.producer_id, asked.epoch) == (Kind.INIT, 7, 0)
    answer(engine, asked, producer_id=7, epoch=1)
    engine.begin(True)
    assert (engine.at.adds_by_writing, engine.at.epoch, engine.at.bump) == (True, 1, False)


@pytest.mark.parametrize("commit", [True, False])
def test_version_2_that_comes_between_two_transactions_waits_for_one_more(commit: bool) -> None:
    engine = ready()
    engine.begin(False)
    end_one(engine, commit, adds_by_writing=False)
    assert engine.at.phase is Phase.READY and engine.at.reused
    engine.begin(False)
    engine.submit(StepKind.COMMIT)                                # of nothing: the epoch is still the one that ended a transaction
    assert ask(engine) is None and engine.at.reused
    engine.begin(True)
    assert not engine.at.adds_by_writing
    end_one(engine, commit, adds_by_writing=True)
    answer(engine, ask(engine), producer_id=7, epoch=1)
    assert not engine.at.reused
    engine.begin(True)
    assert engine.at.adds_by_writing


def test_a_commit_before_a_new_epoch_that_is_refused_is_a_commit() -> None:
    engine = ready()
    engine.begin(False)
    engine.gate.wanted[QUEUES[0]] = None
    answer(engine, ask(engine))
    step = engine.submit(StepKind.COMMIT)
    engine.settle()
    asked = engine.next_ask(False, True)
    assert asked is not None
    engine.sent(asked)
    answer(engine, asked)
    assert not step.delivery.finished
    answer(engine, ask(engine), errors.ProducerFenced("taken over"))
    assert outcome_of(step) == (True, None)
    with pytest.raises(errors.ProducerFenced):
        engine.begin(True)


def test_a_batch_that_was_sent_and_failed_within_an_abort_asks_for_another_epoch_by_version_1() -> None:
    engine = opened(False)
    engine.submit(StepKind.ABORT)
    engine.settle()
    engine.batch_failed(errors.NotLeaderOrFollower(), True)
    answer(engine, ask(engine))
    bump = ask(engine)
    assert bump is not None
    assert bump.kind is Kind.INIT


# ---- errors: every row of the table --------------------------------------------------------------------------------------------------

ROWS = [(kind, code, remedy) for kind, codes in REMEDIES.items() for code, remedy in codes.items()]


def asking(kind: Kind, adds_by_writing: bool) -> tuple[TransactionEngine, Ask]:
    """An engine with an ask of this kind outstanding."""
    if kind is Kind.INIT:
        engine = engine_of()
        engine.submit(StepKind.INIT)
    elif kind is Kind.PARTITIONS:
        engine = ready()
        engine.begin(False)
        engine.gate.wanted[QUEUES[0]] = None
    elif kind is Kind.GROUP:
        engine = ready()
        engine.begin(False)
        engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
    elif kind is Kind.OFFSETS:
        engine = ready()
        engine.begin(True)
        engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
    else:
        engine = opened(adds_by_writing)
        engine.submit(StepKind.PREPARE if kind is Kind.DESCRIBE else StepKind.COMMIT)
    found = ask(engine)
    assert found is not None
    assert found.kind is kind
    return engine, found


@pytest.mark.parametrize(("kind", "code", "remedy"), ROWS, ids=lambda value: getattr(value, "name", str(value)))
def test_every_error_of_every_request(kind: Kind, code: int, remedy: Remedy) -> None:
    engine, asked = asking(kind, False)
    before = engine.at.phase
    refresh = answer(engine, asked, errors.from_code(code))
    if kind is Kind.INIT and remedy is Remedy.ABORT:
        remedy = Remedy.FATAL                              # there is no transaction to abort
    assert refresh is (remedy is Remedy.REFRESH)
    if remedy in (Remedy.RETRY, Remedy.REFRESH):
        assert engine.at.phase is before
        assert engine.retry_at_ms == (10 if code == Code.CONCURRENT_TRANSACTIONS else 100)
        again = ask(engine)
        assert again is not None
        assert again._replace(step=None) == asked._replace(step=None)
        return
    assert engine.at.phase is (Phase.ABORTABLE if remedy is Remedy.ABORT else Phase.FATAL)
    error = engine.at.error
    assert error is not None
    assert (error.txn_requires_abort and not error.fatal) is (remedy is Remedy.ABORT)
    assert ("abort_transaction()" if remedy is Remedy.ABORT else "close this producer") in str(error)
    assert (error.fatal, error.retriable) == (remedy is Remedy.FATAL, False)
    abort = engine.submit(StepKind.ABORT)
    engine.settle()
    assert outcome_of(abort)[0] is (remedy is Remedy.FATAL)
    if remedy is Remedy.ABORT:
        while (following := ask(engine)) is not None:
            answer(engine, following, **({"producer_id": 7, "epoch": 1} if following.kind is Kind.INIT else {}))
        assert outcome_of(abort) == (True, None)
        engine.begin(False)


@pytest.mark.parametrize("code", sorted(FATAL_OF_PRODUCE))
def test_a_batch_that_fails_for_good_ends_the_producer(code: int) -> None:
    engine = opened(True)
    engine.batch_failed(errors.from_code(code), True)
    assert engine.at.phase is Phase.FATAL


@pytest.mark.parametrize(
    "error", [errors.InvalidProducerEpoch(), errors.InvalidTxnState(), errors.KafkaTimeoutError(), errors.OutOfOrderSequence()], ids=repr
)
def test_a_batch_that_fails_otherwise_can_be_aborted(error: KafkaError) -> None:
    engine = opened(True)
    engine.batch_failed(error, True)
    assert engine.at.phase is Phase.ABORTABLE
    assert engine.at.error is not None
    assert not engine.at.error.retriable


def test_a_commit_after_the_coordinator_has_aborted_can_be_aborted_by_version_2() -> None:
    engine, asked = asking(Kind.END, True)
    answer(engine, asked, errors.InvalidTxnState())
    assert engine.at.phase is Phase.ABORTABLE


def test_a_fenced_producer_says_so() -> None:
    engine, asked = asking(Kind.END, False)
    answer(engine, asked, errors.InvalidProducerEpoch())
    assert isinstance(engine.at.error, errors.ProducerFenced)
    assert "taken over" in str(engine.at.error)


# ---- calls -------------------------------------------------------------------------------------------------------------------------


def test_calls_in_the_wrong_order() -> None:
    engine = engine_of()
    with pytest.raises(IllegalStateError, match="init_transactions"):
        engine.begin(True)
    with pytest.raises(IllegalStateError, match="init_transactions"):
        engine.check_sending()
    engine = ready()
    with pytest.raises(IllegalStateError, match="begin_transaction"):
        engine.check_sending()
    for kind in (StepKind.OFFSETS, StepKind.COMMIT, StepKind.ABORT):
        step = engine.submit(kind, OFFSETS, GROUP)
        engine.settle()
        assert isinstance(outcome_of(step)[1], IllegalStateError)
    engine.begin(True)
    with pytest.raises(IllegalStateError, match="commit or abort"):
        engine.begin(True)
    step = engine.submit(StepKind.INIT)
    engine.settle()
    assert isinstance(outcome_of(step)[1], IllegalStateError)


def test_a_call_made_again_waits_for_the_first_one() -> None:
    engine = opened(True)
    step = engine.submit(StepKind.COMMIT)
    end = ask(engine)
    assert engine.submit(StepKind.COMMIT) is step
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        engine.submit(StepKind.ABORT)
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        engine.begin(True)
    answer(engine, end, producer_id=7, epoch=1)
    again = engine.submit(StepKind.COMMIT)
    engine.settle()
    assert outcome_of(again) == (True, None), "the first call's end came while nobody waited"
    abort = engine.submit(StepKind.ABORT)
    engine.settle()
    assert "has been committed already" in str(outcome_of(abort)[1])


def test_an_abort_ends_a_commit_that_still_waits_for_its_records() -> None:
    engine = opened(True)
    commit = engine.submit(StepKind.COMMIT)
    assert ask(engine, has_batches=True) is None
    abort = engine.submit(StepKind.ABORT)
    engine.settle()
    assert isinstance(outcome_of(commit)[1], errors.TransactionAborted)
    end = ask(engine)
    assert end is not None
    assert not end.commit
    answer(engine, end, producer_id=7, epoch=1)
    assert outcome_of(abort) == (True, None)


def test_an_abort_ends_offsets_that_wait() -> None:
    engine = ready()
    engine.begin(True)
    offsets = engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
    asked = ask(engine)
    abort = engine.submit(StepKind.ABORT)
    engine.settle()
    assert isinstance(outcome_of(offsets)[1], errors.TransactionAborted)
    assert not outcome_of(abort)[0]
    answer(engine, asked)
    answer(engine, ask(engine), producer_id=7, epoch=1)
    assert outcome_of(abort) == (True, None)


def test_an_answer_that_is_not_awaited_any_more_counts_for_nothing() -> None:
    engine = opened(True)
    engine.submit(StepKind.COMMIT)
    asked = ask(engine)
    engine.interrupted()
    answer(engine, asked, producer_id=7, epoch=1)
    assert engine.at.phase is Phase.DECIDING
    again = ask(engine)
    assert again == asked


def test_closing_ends_what_waits() -> None:
    engine = opened(True)
    step = engine.submit(StepKind.COMMIT)
    engine.close()
    assert isinstance(outcome_of(step)[1], errors.ClosedError)


# ---- prepared transactions -----------------------------------------------------------------------------------------------------------

OPEN = Described("Ongoing", 1_000, 60_000, (TopicPartition("t", 0),))


def prepared(adds_by_writing: bool) -> TransactionEngine:
    engine = opened(adds_by_writing)
    step = engine.submit(StepKind.PREPARE)
    assert ask(engine, has_batches=True) is None, "the coordinator is asked when all records are there"
    asked = ask(engine)
    assert asked is not None
    assert asked.kind is Kind.DESCRIBE
    answer(engine, asked, producer_id=7, epoch=0, described=OPEN)
    assert outcome_of(step) == (True, None)
    assert (engine.at.phase, engine.at.prepared) == (Phase.PREPARED, OPEN)
    return engine


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("adds_by_writing", [False, True])
def test_a_prepared_transaction_takes_no_more_and_waits_for_its_end(adds_by_writing: bool, commit: bool) -> None:
    engine = prepared(adds_by_writing)
    with pytest.raises(IllegalStateError, match="prepared; commit or abort it first"):
        engine.check_sending()
    with pytest.raises(IllegalStateError, match="prepared; commit or abort it first"):
        engine.begin(True)
    offsets = engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
    assert ask(engine) is None
    assert isinstance(outcome_of(offsets)[1], IllegalStateError)
    again = engine.submit(StepKind.PREPARE)
    assert ask(engine) is None
    assert outcome_of(again) == (True, None)
    end = engine.submit(StepKind.COMMIT if commit else StepKind.ABORT)
    asked = ask(engine)
    assert asked is not None
    assert (asked.kind, asked.commit) == (Kind.END, commit)
    if adds_by_writing:
        answer(engine, asked, producer_id=7, epoch=1)
    else:
        answer(engine, asked)
        bump = ask(engine)
        assert bump is not None
        assert (bump.kind, bump.epoch) == (Kind.INIT, 0), "a late end of the prepared transaction must not end the next one"
        answer(engine, bump, producer_id=7, epoch=1)
    assert outcome_of(end) == (True, None)
    assert (engine.at.phase, engine.at.epoch, engine.at.prepared) == (Phase.READY, 1, None)


@pytest.mark.parametrize("commit", [False, True])
def test_nothing_written_is_prepared_and_ended_without_a_request(commit: bool) -> None:
    engine = ready()
    engine.begin(True)
    step = engine.submit(StepKind.PREPARE)
    assert ask(engine) is None
    assert outcome_of(step) == (True, None)
    assert (engine.at.phase, engine.at.prepared) == (Phase.PREPARED, NOTHING_WRITTEN)
    end = engine.submit(StepKind.COMMIT if commit else StepKind.ABORT)
    assert ask(engine) is None
    assert outcome_of(end) == (True, None)


def test_an_abort_ends_a_prepare_that_waits_for_records() -> None:
    engine = opened(True)
    prepare = engine.submit(StepKind.PREPARE)
    assert ask(engine, has_batches=True) is None
    with pytest.raises(IllegalStateError, match="prepare_transaction"):
        engine.submit(StepKind.COMMIT)
    engine.submit(StepKind.ABORT)
    engine.settle()
    assert isinstance(outcome_of(prepare)[1], errors.TransactionAborted)
    assert engine.at.phase is Phase.ABORTING


def test_a_record_that_failed_makes_the_prepare_fail() -> None:
    engine = opened(True)
    prepare = engine.submit(StepKind.PREPARE)
    engine.settle()
    engine.batch_failed(errors.RecordTooLarge("large"), True)
    engine.settle()
    done, error = outcome_of(prepare)
    assert done
    assert error is not None
    assert error.txn_requires_abort


@pytest.mark.parametrize(
    ("adds_by_writing", "epoch", "state", "phase"),
    [
        (True, 0, "CompleteAbort", Phase.ABORTABLE),
        (True, 1, "CompleteAbort", Phase.ABORTABLE),
        (True, 1, "PrepareAbort", Phase.ABORTABLE),
        (True, 2, "Empty", Phase.FATAL),
        (False, 0, "Empty", Phase.ABORTABLE),
        (False, 1, "CompleteAbort", Phase.FATAL),
    ],
)
def test_what_the_coordinator_has_not_open_is_not_prepared(adds_by_writing: bool, epoch: int, state: str, phase: Phase) -> None:
    engine = opened(adds_by_writing)
    prepare = engine.submit(StepKind.PREPARE)
    answer(engine, ask(engine), producer_id=7, epoch=epoch, described=OPEN._replace(state=state))
    assert engine.at.phase is phase
    error = outcome_of(prepare)[1]
    assert error is not None
    assert (error.txn_requires_abort, error.fatal) == (phase is Phase.ABORTABLE, phase is Phase.FATAL)
    assert "transaction_timeout_ms" in str(error)


@pytest.mark.parametrize("adds_by_writing", [False, True])
def test_another_process_has_ended_the_prepared_transaction_the_other_way(adds_by_writing: bool) -> None:
    engine = prepared(adds_by_writing)
    commit = engine.submit(StepKind.COMMIT)
    answer(engine, ask(engine), errors.InvalidTxnState())
    error = outcome_of(commit)[1]
    assert error is not None
    assert error.txn_requires_abort

    engine = prepared(adds_by_writing)
    abort = engine.submit(StepKind.ABORT)
    answer(engine, ask(engine), errors.InvalidTxnState())
    bump = ask(engine)
    assert bump is not None
    answer(engine, bump, producer_id=7, epoch=1)
    assert isinstance(outcome_of(abort)[1], errors.PreparedTransactionCommitted)
    engine.begin(adds_by_writing)


# ---- against a coordinator -----------------------------------------------------------------------------------------------------------


class Coordinator:
    """What a transaction coordinator does, in a few lines: KIP-98, 360, 447, 890."""

    def __init__(self) -> None:
        self.producer_id, self.epoch, self.last_epoch = 100, -1, -1
        self.state = "empty"
        self.members: set[object] = set()
        self.committed: list[frozenset[object]] = []

    def handle(self, asked: Ask) -> Outcome:
        if asked.kind is Kind.INIT:
            return self.init(asked)
        if asked.kind is Kind.END:
            return self.end(asked)
        if asked.kind is Kind.DESCRIBE:
            state = {"ongoing": "Ongoing", "empty": "Empty"}.get(self.state, "Complete")
            return Outcome(None, self.producer_id, self.epoch, described=OPEN._replace(state=state))
        if (asked.producer_id, asked.epoch) != (self.producer_id, self.epoch):
            return Outcome(errors.ProducerFenced())
        self.state = "ongoing"
        self.members.update(asked.partitions)
        if asked.group is not None:
            self.members.add(asked.group.group_id)
        return Outcome()

    def init(self, asked: Ask) -> Outcome:
        if self.state == "ongoing":
            if asked.producer_id >= 0 and asked.epoch != self.epoch:
                return Outcome(errors.ProducerFenced())
            self.drop()
        if asked.producer_id < 0 or asked.epoch == self.epoch:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        elif asked.epoch != self.last_epoch:
            return Outcome(errors.ProducerFenced())
        self.state = "empty"
        return Outcome(None, self.producer_id, self.epoch)

    def drop(self) -> None:
        self.members = set()

    def end(self, asked: Ask) -> Outcome:
        target = "committed" if asked.commit else "aborted"
        bumps = asked.adds_by_writing
        if bumps and asked.epoch == self.last_epoch == self.epoch - 1 and self.state in ("committed", "aborted"):
            return Outcome(None, self.producer_id, self.epoch) if self.state == target else Outcome(errors.InvalidTxnState())
        if asked.epoch != self.epoch:
            return Outcome(errors.ProducerFenced())
        if self.state != "ongoing":
            if not bumps and self.state == target:
                return Outcome()
            if not (bumps and not asked.commit):
                return Outcome(errors.InvalidTxnState())
        if asked.commit:
            self.committed.append(frozenset(self.members))
        self.drop()
        self.state = target
        if not bumps:
            return Outcome()
        self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        return Outcome(None, self.producer_id, self.epoch)


class Transactions(RuleBasedStateMachine):
    """Random calls, lost answers, lost requests, interrupts, failed batches, changes of transaction.version: whatever happens, what the
    coordinator commits is what the application was told, and an abort brings a usable producer back."""

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.coordinator = engine_of(), Coordinator()
        self.version_2 = True
        self.step: Step | None = None
        self.kind: StepKind | None = None
        self.sent: set[object] = set()
        self.failed = False
        self.told: list[frozenset[object]] = []
        self.elsewhere: bool | None = None                 # another process has ended it: by a commit?
        self.batches = 0

    @property
    def at(self) -> Any:
        return self.engine.at

    def call(self, kind: StepKind, **options: Any) -> None:
        self.step, self.kind = self.engine.submit(kind, **options), kind

    @precondition(lambda self: self.at.phase is Phase.UNINITIALIZED)
    @rule()
    def init(self) -> None:
        self.call(StepKind.INIT)

    @precondition(lambda self: self.at.phase is Phase.READY and self.step is None)
    @rule(version_2=st.booleans())
    def begin(self, version_2: bool) -> None:
        self.engine.begin(version_2)
        self.sent, self.failed, self.elsewhere = set(), False, None

    @precondition(lambda self: self.at.phase is Phase.OPEN and self.step is None)
    @rule(index=st.integers(0, 3))
    def write(self, index: int) -> None:
        queue = QUEUES[index]
        if self.at.adds_by_writing:
            self.at.added.add(queue)
            self.coordinator.handle(Ask(Kind.PARTITIONS, self.at.producer_id, self.at.epoch, True, partitions=(queue,)))
        elif queue not in self.at.added:
            self.engine.gate.wanted[queue] = None
        self.sent.add(queue)

    @precondition(lambda self: self.at.phase is Phase.OPEN and self.step is None)
    @rule()
    def offsets(self) -> None:
        self.sent.add("g")
        self.call(StepKind.OFFSETS, offsets=OFFSETS, group=GROUP)

    @precondition(lambda self: self.at.phase in (Phase.OPEN, Phase.PREPARED) and self.step is None)
    @rule()
    def prepare(self) -> None:
        self.call(StepKind.PREPARE)

    @precondition(lambda self: self.at.phase is Phase.PREPARED and self.step is None and self.sent and self.elsewhere is None)
    @rule(commit=st.booleans())
    def end_elsewhere(self, commit: bool) -> None:
        asked = Ask(Kind.END, self.at.producer_id, self.at.epoch, self.at.adds_by_writing, commit=commit)
        assert self.coordinator.handle(asked).error is None
        self.elsewhere = commit
        if commit:
            self.told.append(frozenset(self.sent))

    @precondition(lambda self: self.at.phase in (Phase.OPEN, Phase.PREPARED) and self.step is None)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        self.call(StepKind.COMMIT if commit else StepKind.ABORT)

    @precondition(lambda self: self.at.phase is Phase.ABORTABLE and self.step is None)
    @rule()
    def abort(self) -> None:
        self.call(StepKind.ABORT)

    @precondition(lambda self: self.at.phase in WRITING and self.engine.outstanding is None and self.sent)
    @rule()
    def batch_fails(self) -> None:
        self.engine.batch_failed(errors.RecordTooLarge(), True)
        self.failed = True

    @rule()
    def call_again(self) -> None:
        if self.step is not None and not self.step.delivery.finished and self.kind is not StepKind.OFFSETS:
            assert self.kind is not None
            assert self.engine.submit(self.kind) is self.step

    @rule(fate=st.sampled_from(["answered", "answered", "answered", "request lost", "answer lost", "interrupted", "busy"]))
    def network(self, fate: str) -> None:
        asked = ask(self.engine)
        if asked is None:
            return
        if fate == "request lost":
            answer(self.engine, asked, errors.DisconnectError())
        elif fate == "busy":
            answer(self.engine, asked, errors.ConcurrentTransactions())
        elif fate == "answer lost":
            self.coordinator.handle(asked)
            answer(self.engine, asked, errors.DisconnectError())
        elif fate == "interrupted":
            self.coordinator.handle(asked)
            self.engine.interrupted()
        else:
            outcome = self.coordinator.handle(asked)
            may_be_over = asked.kind is Kind.END and (not asked.commit or self.elsewhere is False)
            nothing_to_end = may_be_over and isinstance(outcome.error, errors.InvalidTxnState)
            assert outcome.error is None or nothing_to_end, f"{asked}: {outcome.error!r} {vars(self.coordinator)}"
            self.engine.answered(asked, outcome, 0)
            self.engine.settle()

    @invariant()
    def told_the_truth(self) -> None:
        assert self.at.phase is not Phase.FATAL
        self.engine.settle()
        step = self.step
        if step is None or not step.delivery.finished:
            return
        error = step.delivery.error
        self.step = None
        if self.kind is StepKind.COMMIT and error is None:
            assert not self.failed and self.elsewhere is not False
            if self.sent and not self.elsewhere:
                self.told.append(frozenset(self.sent))
        elif self.kind is StepKind.ABORT and self.elsewhere:
            assert isinstance(error, errors.PreparedTransactionCommitted)
        elif self.kind is StepKind.ABORT:
            assert error is None
        elif error is not None:
            assert error.txn_requires_abort
            assert self.at.phase is Phase.ABORTABLE
        elif self.kind is StepKind.PREPARE:
            assert not self.failed
        assert self.coordinator.committed == self.told

    @invariant()
    def has_the_coordinators_epoch_when_ready(self) -> None:
        if self.at.phase is Phase.READY:
            assert (self.at.producer_id, self.at.epoch) == (self.coordinator.producer_id, self.coordinator.epoch)


Transactions.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
TestTransactions = Transactions.TestCase


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("version_2", [False, True])
def test_a_transaction_that_another_process_has_ended_first(version_2: bool, elsewhere: bool, commit: bool) -> None:
    """Random calls seldom come here."""
    machine = Transactions()

    def call(rule: Callable[..., None], **options: Any) -> None:
        rule(**options)
        machine.told_the_truth()
        while machine.step is not None:
            machine.network("answered")
            machine.told_the_truth()
        machine.has_the_coordinators_epoch_when_ready()

    call(machine.init)
    call(machine.begin, version_2=version_2)
    call(machine.offsets)
    call(machine.prepare)
    call(machine.end_elsewhere, commit=elsewhere)
    call(machine.prepare)
    call(machine.end, commit=commit)
    assert (machine.at.phase is Phase.ABORTABLE) is (commit and not elsewhere)
    if machine.at.phase is Phase.ABORTABLE:
        call(machine.abort)
    for _ in range(2):
        call(machine.begin, version_2=version_2)
        call(machine.offsets)
        call(machine.end, commit=True)
    assert len(machine.told) == 2 + elsewhere
