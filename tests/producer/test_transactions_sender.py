"""Transactions in the Sender's passes: what is drained when, and that nothing is done in vain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_model import LOST
from transaction_model import TransactionalBench, TransactionalBroker

from kafkacore import errors, protocol
from kafkacore.errors import Code, KafkaTimeoutError
from kafkacore.producer.accumulator import NEVER_MS
from kafkacore.producer.transactions import Phase
from kafkacore.producer.txn_requests import TransactionRequests
from tests.kit.inside import books_by_partition
from tests.kit.rows import each_row

VERSIONS = pytest.mark.parametrize("version", [1, 2])


def begun(version: int) -> TransactionalBench:
    bench = TransactionalBench(version)
    bench.init_transactions()
    bench.begin_transaction()
    return bench


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Phase]]:
    """The phases in which a pass asked the engine. Where it did not, a look changes nothing: here after each pass of each test."""
    step, init, poll = TransactionRequests.step, TransactionalBench.__init__, TransactionalBroker.poll
    phases: list[Phase] = []
    benches: dict[TransactionalBroker, TransactionalBench] = {}
    differences: list[object] = []  # not raised within the pass: the Sender would go on after it

    def counted(requests: TransactionRequests, now_ms: int) -> int:
        phases.append(requests.engine.at.phase)
        return step(requests, now_ms)

    def noted(bench: TransactionalBench, *args: Any, **options: Any) -> None:
        init(bench, *args, **options)
        benches[bench.broker] = bench

    def looked(broker: TransactionalBroker, timeout_ms: int, now_ms: int) -> None:
        requests, books = benches[broker].sender.transactional, benches[broker].sender.transactions
        assert books is not None
        engine = requests.engine
        if not engine.gate.busy and not books.has_doubts:
            before = (engine.at, list(engine.steps), None, False, NEVER_MS)
            wait_ms = step(requests, now_ms)
            after = (engine.at, list(engine.steps), engine.outstanding, engine.gate.busy, wait_ms)
            if after != before:
                differences.append((before, after))
        poll(broker, timeout_ms, now_ms)

    monkeypatch.setattr(TransactionRequests, "step", counted)
    monkeypatch.setattr(TransactionalBench, "__init__", noted)
    monkeypatch.setattr(TransactionalBroker, "poll", looked)
    yield phases
    assert not differences


@VERSIONS
@pytest.mark.parametrize("batches", [2, 60])
def test_a_commit_asks_the_engine_no_more_often_for_many_batches(steps: list[Phase], version: int, batches: int) -> None:
    bench = begun(version)
    for nth in range(batches):
        bench.send("t", "x" * 9_000, partition=nth % 2)
    steps.clear()
    bench.commit_transaction()
    assert bench.broker.committed == [[b"x" * 9_000] * batches]
    adding = [] if version == 2 else [Phase.COMMITTING, Phase.COMMITTING]  # it asks for the partitions, and takes them in
    assert steps == [Phase.OPEN, *adding, Phase.COMMITTING]
    bench.step()
    assert steps[-1] is Phase.COMMITTING, "the answer to EndTxn ended the call; no pass looks again"


def test_an_abort_while_a_commit_waits_for_its_records_is_no_short_cut() -> None:
    bench = begun(2)
    bench.broker.faults.extend([Code.NOT_LEADER_OR_FOLLOWER] * 100)
    future = bench.send("t", "x", partition=0)
    with pytest.raises(KafkaTimeoutError):
        bench.commit_transaction(timeout=0.0)
    bench.step()
    assert bench.engine.at.phase is Phase.COMMITTING  # type: ignore[union-attr]
    bench.abort_transaction()
    assert isinstance(future.exception(0), errors.TransactionAborted)


def test_a_gap_that_shows_while_a_commit_waits_ends_it_at_once() -> None:
    bench = begun(2)
    bench.broker.faults.extend([Code.NOT_LEADER_OR_FOLLOWER] * 100)
    bench.send("t", "x", partition=0)
    with pytest.raises(KafkaTimeoutError):
        bench.commit_transaction(timeout=0.0)
    bench.step()
    bench.sender.transactions._bump_for.add(bench.topic.partitions[1])  # type: ignore[union-attr]
    bench.step()
    assert bench.engine.at.phase is Phase.ABORTABLE  # type: ignore[union-attr]


@VERSIONS
@pytest.mark.parametrize("code", [Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH])
def test_a_batch_that_a_leader_refuses_for_its_number_or_epoch_is_the_affair_of_the_transaction(version: int, code: int) -> None:
    """It is not numbered again, and the producer goes on after an abort."""
    bench = begun(version)
    bench.broker.faults.append(code)
    with pytest.raises(errors.KafkaError) as caught:
        bench.send("t", "x", partition=0).result(60)
    assert caught.value.code == code
    assert bench.engine.at.phase is Phase.ABORTABLE  # type: ignore[union-attr]
    bench.abort_transaction()
    bench.begin_transaction()
    bench.send("t", "y", partition=0).result(60)
    bench.commit_transaction()


@each_row(
    ("codes", "counts"),
    [
        ((Code.OPERATION_NOT_ATTEMPTED, Code.TOPIC_AUTHORIZATION_FAILED), Code.TOPIC_AUTHORIZATION_FAILED),
        ((Code.TOPIC_AUTHORIZATION_FAILED, Code.OPERATION_NOT_ATTEMPTED), Code.TOPIC_AUTHORIZATION_FAILED),
        ((Code.CONCURRENT_TRANSACTIONS, Code.INVALID_TXN_STATE), Code.INVALID_TXN_STATE),
        ((0, Code.UNKNOWN_TOPIC_OR_PARTITION), Code.UNKNOWN_TOPIC_OR_PARTITION),
        ((0, 0), None),
    ],
)
def test_of_the_errors_of_partitions_the_one_that_says_why_counts(codes: tuple[int, int], counts: int | None) -> None:
    asked = [("t", 0), ("t", 1)]
    error = TransactionRequests._first_error(dict(zip(asked, codes, strict=True)), asked, "AddPartitionsToTxn v5", 1)
    assert (None if error is None else error.code) == counts


@VERSIONS
def test_an_open_transaction_that_rests_needs_no_pass(version: int) -> None:
    bench = begun(version)
    bench.send("t", "x", partition=0).result(60)
    bench.step()
    assert not bench.engine.gate.busy  # type: ignore[union-attr]
    assert not bench.sender.has_transaction_work()
    assert bench.sender.send_producer_data(bench.clock.now_ms()) >= NEVER_MS - bench.clock.now_ms()


@VERSIONS
def test_numbers_begin_at_0_in_each_epoch_and_go_on_within_one(version: int) -> None:
    bench = TransactionalBench(version)
    bench.init_transactions()
    numbers = []
    for _ in range(3):
        with bench.transaction():
            bench.send("t", "x", partition=0).result(60)
            books = books_by_partition(bench.sender.transactions)[bench.topic.partitions[0]]  # type: ignore[union-attr]
            numbers.append((books.epoch, books.next_sequence))
    assert numbers == ([(0, 1), (0, 2), (0, 3)] if version == 1 else [(0, 1), (1, 1), (2, 1)])


@VERSIONS
def test_the_first_batch_of_a_partition_travels_alone_in_each_epoch(version: int) -> None:
    """Rule 5 of the books: with version 2 each transaction has an epoch of its own, and the leader may know nothing of the producer yet."""
    bench = TransactionalBench(version, batch_size=1_000)
    bench.init_transactions()
    answers = bench.broker.poll

    def no_answer_to_produce(timeout_ms: int, now_ms: int) -> None:
        if bench.broker.sent and bench.broker.sent[0][0].api is not protocol.ProduceRequest:
            answers(timeout_ms, now_ms)

    def on_the_wire() -> list[list[tuple[int, int]]]:
        """(epoch, first number) of the batches of partition 0 in each request that waits for its answer."""
        return [[(sent[0].producer_epoch, sent[0].base_sequence)] for sent in bench.requests() if 0 in sent]

    for nth in range(2):
        bench.begin_transaction()
        for number in range(4):
            bench.send("t", f"{number}" + "x" * 900, partition=0)
        epoch, first = (nth, 0) if version == 2 else (0, 4 * nth)
        bench.broker.poll = no_answer_to_produce  # type: ignore[method-assign]
        for _ in range(8):
            bench.step()
        several = version == 1 and nth == 1  # the epoch is the one before, and its first batch was taken
        assert on_the_wire() == [[(epoch, first + number)] for number in range(4 if several else 1)]
        if not several:
            bench.broker.poll = answers  # type: ignore[method-assign]
            bench.step()
            bench.broker.poll = no_answer_to_produce  # type: ignore[method-assign]
            for _ in range(3):
                bench.step()
            assert on_the_wire() == [[(epoch, first + number)] for number in range(1, 4)]
        bench.broker.poll = answers  # type: ignore[method-assign]
        bench.commit_transaction()
    assert [len(values) for values in bench.broker.committed] == [4, 4]


@VERSIONS
def test_a_batch_that_is_late_for_its_delivery_fails_the_commit(version: int) -> None:
    bench = begun(version)
    future = bench.send("t", "x", partition=0)
    bench.broker.faults.extend([Code.NOT_LEADER_OR_FOLLOWER] * 10_000)
    with pytest.raises(errors.TransactionAbortable) as failed:
        bench.commit_transaction(timeout=1_000)
    assert isinstance(failed.value.__cause__, KafkaTimeoutError)
    assert not isinstance(failed.value, KafkaTimeoutError), "this commit is over"
    assert isinstance(future.exception(0), KafkaTimeoutError)
    bench.broker.faults.clear()
    bench.abort_transaction()
    with bench.transaction():
        bench.send("t", "next", partition=0)
    assert bench.broker.committed == [[b"next"]]


@VERSIONS
def test_a_batch_that_waits_for_a_retry_is_not_sent_after_the_abort(version: int) -> None:
    bench = begun(version)
    bench.broker.faults.append(Code.NOT_LEADER_OR_FOLLOWER)
    future = bench.send_now("t", "x", partition=0)
    bench.step()
    bench.step()
    assert not future.done()
    bench.abort_transaction()
    assert isinstance(future.exception(0), errors.TransactionAborted)
    with bench.transaction():
        bench.send("t", "next", partition=0)
    assert bench.broker.committed == [[b"next"]]
    assert bench.broker.logs[0].values == [b"next"]


def test_partitions_wait_until_they_are_added() -> None:
    bench = begun(1)
    asked: list[str] = []
    serve = bench.broker.serve

    def look(request: object, message: object) -> None:
        asked.append(type(message).__name__)
        serve(request, message)

    bench.broker.serve = look  # type: ignore[method-assign]
    for index in (0, 1):
        bench.send("t", "x", partition=index)
    bench.commit_transaction()
    assert asked == ["AddPartitionsToTxnRequest", "ProduceRequest", "EndTxnRequest"]


def test_records_of_another_thread_do_not_leave_behind_the_decision() -> None:
    """EndTxn may have been carried out: a batch sent now would be part of no transaction, or of the next one."""
    bench = begun(2)
    bench.send("t", "in time", partition=0).result(60)
    bench.broker.ends.append(LOST)
    with pytest.raises(KafkaTimeoutError):
        bench.commit_transaction(timeout=0.0)
    while bench.engine.at.phase is not Phase.DECIDING:  # type: ignore[union-attr]
        bench.step(1)
    bench._gate = None  # as if its look at the gate had come before the commit
    bench.send("t", "late", partition=0)
    bench._gate = bench.engine.gate  # type: ignore[union-attr]
    bench.commit_transaction()
    assert bench.broker.committed == [[b"in time"]]
    with bench.transaction():
        bench.send("t", "next", partition=1)
    assert bench.broker.committed == [[b"in time"], [b"late", b"next"]]
