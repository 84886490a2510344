"""The transaction engine alone: phases and remedies; test_transactions_model.py plays it against a coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transaction_engine import GROUP, OFFSETS, OPEN, QUEUES, answer, ask, engine_of, opened, outcome_of, ready

from kafkacore import errors
from kafkacore.errors import Code, IllegalStateError, KafkaError
from kafkacore.producer.transactions import (
    FATAL_OF_PRODUCE,
    NOTHING_WRITTEN,
    REMEDIES,
    Ask,
    Kind,
    Outcome,
    Phase,
    Remedy,
    Step,
    StepKind,
    TransactionEngine,
)
from kafkacore.types import OffsetAndMetadata, TopicPartition
from tests.kit.rows import each_row


@each_row("adds_by_writing", [False, True])
def test_a_transaction_that_is_committed(adds_by_writing: bool) -> None:
    engine = opened(adds_by_writing, 2)
    step = engine.submit(StepKind.COMMIT)
    assert ask(engine, has_batches=True) is None, "EndTxn waits for the batches"
    end = ask(engine)
    assert (end.kind, end.commit, end.producer_id, end.epoch) == (Kind.END, True, 7, 0)
    answer(engine, end, **({"producer_id": 7, "epoch": 1} if adds_by_writing else {}))
    assert outcome_of(step) == (True, None)
    assert (engine.at.phase, engine.at.epoch) == (Phase.READY, 1 if adds_by_writing else 0)
    assert engine.at.added == set()


@each_row("commit", [False, True])
@each_row("adds_by_writing", [False, True])
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
    assert asked.partitions == (QUEUES[3],)
    answer(engine, asked)
    assert engine.at.added == set(QUEUES)
    assert ask(engine, True) is None


@each_row("adds_by_writing", [False, True])
def test_each_group_of_a_transaction_is_added_once(adds_by_writing: bool) -> None:
    """The markers of the end go to the coordinators of groups that were added: offsets of another one would hang."""
    engine = ready()
    for _ in range(2):
        engine.begin(adds_by_writing)
        for group, is_new in (("g", True), ("other", True), ("g", False), ("other", False), ("third", True)):
            step = engine.submit(StepKind.OFFSETS, OFFSETS, GROUP._replace(group_id=group))
            asked = ask(engine)
            if is_new and not adds_by_writing:
                assert (asked.kind, asked.group and asked.group.group_id) == (Kind.GROUP, group)
                answer(engine, asked)
                asked = ask(engine)
            assert (asked.kind, asked.group and asked.group.group_id) == (Kind.OFFSETS, group)
            answer(engine, asked)
            assert outcome_of(step) == (True, None)
        commit = engine.submit(StepKind.COMMIT)
        answer(engine, ask(engine), **({"producer_id": 7, "epoch": engine.at.epoch + 1} if adds_by_writing else {}))
        assert outcome_of(commit) == (True, None)


def test_offsets_that_are_stored_are_not_sent_again() -> None:
    engine = ready()
    engine.begin(True)
    first, second, third = (TopicPartition("in", index) for index in range(3))
    engine.submit(StepKind.OFFSETS, dict.fromkeys((first, second, third), OffsetAndMetadata(1)), GROUP)
    answer(engine, ask(engine), errors.CoordinatorLoadInProgress(), stored=(first, third))
    asked = ask(engine)
    assert list(asked.offsets) == [second]


def test_no_offsets_are_stored_without_a_request() -> None:
    engine = ready()
    engine.begin(True)
    step = engine.submit(StepKind.OFFSETS, {}, GROUP)
    assert ask(engine) is None
    assert outcome_of(step) == (True, None)
    assert not engine.at.asked


def test_the_last_ten_errors_are_kept_until_an_answer_is_good() -> None:
    engine = opened(True)
    engine.submit(StepKind.COMMIT)
    for nth in range(12):
        assert answer(engine, ask(engine), errors.NotCoordinator(str(nth)))
        assert engine.retry_at_ms == 100
    assert [error.message for error in engine.attempts] == [str(nth) for nth in range(2, 12)]
    answer(engine, ask(engine), producer_id=7, epoch=1)
    assert (list(engine.attempts), engine.retry_at_ms) == ([], 0)


@each_row(
    ("error", "pauses_ms"),
    [
        (errors.CoordinatorLoadInProgress(), [1_000, 1_001, 1_002, 1_003, 1_004, 1_005, 1_006, 1_007]),
        (errors.ConcurrentTransactions(), [10, 20, 40, 80, 160, 320, 640, 1_007]),
    ],
)
def test_pauses_grow_and_begin_again_after_a_good_answer(error: KafkaError, pauses_ms: list[int]) -> None:
    engine = TransactionEngine(lambda tries: 1_000 + tries)
    for kind in (StepKind.INIT, StepKind.OFFSETS):
        if kind is StepKind.OFFSETS:
            engine.begin(True)
        engine.submit(kind, OFFSETS, GROUP)
        found = []
        for _ in pauses_ms:
            engine.gate.busy = False
            assert not engine.answered(ask(engine), Outcome(error), 5)  # type: ignore[arg-type]
            assert engine.gate.busy
            found.append(engine.retry_at_ms - 5)
        assert found == pauses_ms
        answer(engine, ask(engine), producer_id=7, epoch=0)


def test_an_init_that_no_acl_allows_may_be_called_again() -> None:
    engine = engine_of()
    step = engine.submit(StepKind.INIT)
    answer(engine, ask(engine), errors.TransactionalIdAuthorization("no", api="InitProducerId v4"))
    error = outcome_of(step)[1]
    assert isinstance(error, errors.TransactionalIdAuthorization) and not error.fatal
    assert error.message == "no: call init_transactions() again once the cause is removed"
    assert engine.at.phase is Phase.UNINITIALIZED
    again = engine.submit(StepKind.INIT)
    asked = ask(engine)
    assert (outcome_of(again), engine.at.last, engine.at.refused) == ((False, None), None, None)
    answer(engine, asked, producer_id=7, epoch=0)
    assert outcome_of(again) == (True, None)


@each_row("adds_by_writing", [False, True])
def test_after_an_error_that_can_be_aborted_the_producer_goes_on(adds_by_writing: bool) -> None:
    engine = opened(adds_by_writing)
    engine.batch_failed(errors.RecordTooLarge("large"), True)
    commit = engine.submit(StepKind.COMMIT)
    engine.settle()
    done, error = outcome_of(commit)
    assert done
    assert (error.txn_requires_abort, error.fatal, error.retriable) == (True, False, False)
    assert "abort_transaction()" in str(error)
    assert isinstance(error.__cause__, errors.RecordTooLarge)
    with pytest.raises(errors.TransactionAbortable):
        engine.check_sending()
    abort = engine.submit(StepKind.ABORT)
    end = ask(engine)
    assert (end.kind, end.commit) == (Kind.END, False)
    if adds_by_writing:
        answer(engine, end, producer_id=7, epoch=1)
    else:
        answer(engine, end)
        bump = ask(engine)
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


@each_row("commit", [True, False])
def test_the_first_transaction_that_adds_by_writing_has_an_epoch_of_its_own(commit: bool) -> None:
    """The markers of the last one may still be on their way."""
    engine = ready()
    engine.begin(False)
    end_one(engine, commit, adds_by_writing=True)  # version 2 came meanwhile
    asked = ask(engine)
    assert asked is not None and (asked.kind, asked.producer_id, asked.epoch) == (Kind.INIT, 7, 0)
    answer(engine, asked, producer_id=7, epoch=1)
    engine.begin(True)
    assert (engine.at.adds_by_writing, engine.at.epoch, engine.at.bump) == (True, 1, False)


@each_row("commit", [True, False])
def test_version_2_that_comes_between_two_transactions_waits_for_one_more(commit: bool) -> None:
    engine = ready()
    engine.begin(False)
    end_one(engine, commit, adds_by_writing=False)
    assert engine.at.phase is Phase.READY and engine.at.reused
    engine.begin(False)
    engine.submit(StepKind.COMMIT)  # of nothing: the epoch is still the one that ended a transaction
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
    assert found.kind is kind
    return engine, found


@each_row(("kind", "code", "remedy"), ROWS, ids=lambda value: getattr(value, "name", str(value)))
def test_every_error_of_every_request(kind: Kind, code: int, remedy: Remedy) -> None:
    engine, asked = asking(kind, False)
    before = engine.at.phase
    refresh = answer(engine, asked, errors.from_code(code))
    if kind is Kind.INIT and remedy is Remedy.ABORT:
        remedy = Remedy.FATAL  # there is no transaction to abort
    assert refresh is (remedy is Remedy.REFRESH)
    if remedy in (Remedy.RETRY, Remedy.REFRESH):
        assert engine.at.phase is before
        assert engine.retry_at_ms == (10 if code == Code.CONCURRENT_TRANSACTIONS else 100)
        again = ask(engine)
        assert again._replace(step=None) == asked._replace(step=None)
        return
    assert engine.at.phase is (Phase.ABORTABLE if remedy is Remedy.ABORT else Phase.FATAL)
    error = engine.at.error
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


@each_row(
    ("error", "phase"),
    [
        *((errors.from_code(code), Phase.FATAL) for code in sorted(FATAL_OF_PRODUCE)),
        *((kind(), Phase.ABORTABLE) for kind in (errors.InvalidProducerEpoch, errors.InvalidTxnState, errors.KafkaTimeoutError)),
        (errors.OutOfOrderSequence(), Phase.ABORTABLE),
    ],
    ids=repr,
)
def test_a_batch_that_fails_ends_the_producer_or_asks_for_an_abort(error: KafkaError, phase: Phase) -> None:
    engine = opened(True)
    engine.batch_failed(error, True)
    assert (engine.at.phase, engine.at.error.retriable) == (phase, False)


def test_a_commit_after_the_coordinator_has_aborted_can_be_aborted_by_version_2() -> None:
    engine, asked = asking(Kind.END, True)
    answer(engine, asked, errors.InvalidTxnState())
    assert engine.at.phase is Phase.ABORTABLE


def test_a_fenced_producer_says_so() -> None:
    engine, asked = asking(Kind.END, False)
    answer(engine, asked, said := errors.InvalidProducerEpoch("old", broker=2, api="EndTxn v4", topic="t", partition=1))
    found = engine.at.error
    assert isinstance(found, errors.ProducerFenced) and found.__cause__ is said
    assert found.message.startswith("old: another producer has taken over")
    assert (found.broker, found.api, found.topic, found.partition) == (2, "EndTxn v4", "t", 1)
    engine.fail(errors.ClusterAuthorization("later"))
    assert engine.at.error is found


def test_what_another_thread_does_makes_the_next_pass_look() -> None:
    engine = opened(True)

    def busy(call: Callable[[], object]) -> bool:
        engine.gate.busy = False
        call()
        return engine.gate.busy  # type: ignore[return-value]

    assert busy(lambda: engine.submit(StepKind.COMMIT))
    assert busy(lambda: engine.submit(StepKind.COMMIT)), "the same call again"
    assert busy(engine.interrupted)
    assert busy(lambda: engine.batch_failed(errors.RecordTooLarge(), True))
    assert busy(lambda: engine.fail(errors.ProducerFenced()))
    assert not busy(lambda: engine.fail(errors.ProducerFenced()))


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


def test_an_init_made_again_has_ended_until_a_transaction_has() -> None:
    engine = ready()
    again = engine.submit(StepKind.INIT)
    engine.settle()
    assert outcome_of(again) == (True, None)
    engine.begin(False)
    engine.submit(StepKind.COMMIT)
    assert ask(engine) is None
    late = engine.submit(StepKind.INIT)
    engine.settle()
    assert "a producer does that once" in str(outcome_of(late)[1])


def test_a_call_made_again_waits_for_the_first_one_behind_another() -> None:
    engine = ready()
    engine.begin(True)
    offsets = engine.submit(StepKind.OFFSETS, OFFSETS, GROUP)
    commit = engine.submit(StepKind.COMMIT)
    assert engine.submit(StepKind.COMMIT) is commit
    assert engine.submit(StepKind.OFFSETS, OFFSETS, GROUP) is not offsets
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        engine.submit(StepKind.PREPARE)


def test_an_abort_ends_a_commit_that_still_waits_for_its_records() -> None:
    engine = opened(True)
    commit = engine.submit(StepKind.COMMIT)
    assert ask(engine, has_batches=True) is None
    abort = engine.submit(StepKind.ABORT)
    engine.settle()
    assert isinstance(outcome_of(commit)[1], errors.TransactionAborted)
    end = ask(engine)
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
    assert "closed before commit_transaction() came to its end" in str(outcome_of(step)[1])
    assert not engine.steps


# ---- prepared transactions -----------------------------------------------------------------------------------------------------------


def prepared(adds_by_writing: bool) -> TransactionEngine:
    engine = opened(adds_by_writing)
    step = engine.submit(StepKind.PREPARE)
    assert ask(engine, has_batches=True) is None, "the coordinator is asked when all records are there"
    asked = ask(engine)
    assert asked.kind is Kind.DESCRIBE
    answer(engine, asked, producer_id=7, epoch=0, described=OPEN)
    assert outcome_of(step) == (True, None)
    assert (engine.at.phase, engine.at.prepared) == (Phase.PREPARED, OPEN)
    return engine


@each_row("commit", [False, True])
@each_row("adds_by_writing", [False, True])
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
    assert (asked.kind, asked.commit) == (Kind.END, commit)
    if adds_by_writing:
        answer(engine, asked, producer_id=7, epoch=1)
    else:
        answer(engine, asked)
        bump = ask(engine)
        assert (bump.kind, bump.epoch) == (Kind.INIT, 0), "a late end of the prepared transaction must not end the next one"
        answer(engine, bump, producer_id=7, epoch=1)
    assert outcome_of(end) == (True, None)
    assert (engine.at.phase, engine.at.epoch, engine.at.prepared) == (Phase.READY, 1, None)


@each_row("commit", [False, True])
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


@each_row(
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
    assert (error.txn_requires_abort, error.fatal) == (phase is Phase.ABORTABLE, phase is Phase.FATAL)
    assert "transaction_timeout_ms" in str(error)


@each_row("adds_by_writing", [False, True])
def test_another_process_has_ended_the_prepared_transaction_the_other_way(adds_by_writing: bool) -> None:
    engine = prepared(adds_by_writing)
    commit = engine.submit(StepKind.COMMIT)
    answer(engine, ask(engine), errors.InvalidTxnState())
    error = outcome_of(commit)[1]
    assert error.txn_requires_abort

    engine = prepared(adds_by_writing)
    abort = engine.submit(StepKind.ABORT)
    answer(engine, ask(engine), errors.InvalidTxnState())
    bump = ask(engine)
    assert bump is not None
    engine.answered(bump, Outcome(None, producer_id=7, epoch=1), 0)
    assert (engine.at.phase, abort.delivery.finished) == (Phase.READY, False), "its caller may begin a transaction as soon as it hears"
    engine.settle()
    assert isinstance(outcome_of(abort)[1], errors.PreparedTransactionCommitted)
    engine.begin(adds_by_writing)


# ---- records that send() has refused ---------------------------------------------------------------------------------------------------


@each_row("adds_by_writing", [False, True])
def test_a_refusal_is_a_note_until_the_next_pass(adds_by_writing: bool) -> None:
    """The application's thread writes it while the other one exchanges the standing: neither takes the other's back."""
    engine = opened(adds_by_writing)
    engine.gate.busy = False
    standing, cause = engine.at, errors.RecordTooLarge("of 7 bytes", topic="t")
    engine.record_refused(cause)
    engine.record_refused(ValueError("a second one"))
    assert engine.at is standing
    assert engine.gate.busy
    assert not engine.gate.takes_records
    engine._go(standing._replace(asked=True))
    with pytest.raises(errors.TransactionAbortable) as sent:
        engine.check_sending()
    assert (sent.value.__cause__, sent.value.topic) == (cause, "t")
    step = engine.submit(StepKind.COMMIT)
    assert ask(engine) is None
    assert engine.at.phase is Phase.ABORTABLE
    assert engine.at.asked
    assert isinstance(outcome_of(step)[1], errors.TransactionAbortable)


def test_a_refusal_between_two_transactions_is_none() -> None:
    engine = ready()
    engine.record_refused(errors.RecordTooLarge())
    engine.begin(True)
    engine.check_sending()
    engine.record_refused(errors.RecordTooLarge())
    step = engine.submit(StepKind.ABORT)
    asked = ask(engine)
    while asked is not None:
        answer(engine, asked, producer_id=7, epoch=asked.epoch + 1)
        asked = ask(engine)
    assert outcome_of(step) == (True, None)
    engine.begin(True)
    engine.check_sending()
    engine.settle()
    assert engine.at.phase is Phase.OPEN
