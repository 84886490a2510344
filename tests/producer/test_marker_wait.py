"""Transactions that follow one another at once: when one looks for the markers of the last, and that batches wait just for that."""

from __future__ import annotations

from typing import Any

import pytest
from broker_model import LOST
from transaction_model import TransactionalBench

from kafkacore import protocol
from kafkacore._codec import TransactionGate
from kafkacore.errors import Code
from kafkacore.producer import marker_wait
from kafkacore.producer.marker_wait import HASTE_MS, LOOKS, SLOW_MS, MarkerWait
from kafkacore.producer.transactions import MARKER_PAUSES_MS, Phase, Standing
from kafkacore.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class Client:
    """Transactions one after the other, of which each begins some time after the last one's end."""

    def __init__(self) -> None:
        self.gate = TransactionGate(Standing(Phase.READY, False, set()))
        self.wait = MarkerWait(self.gate)
        self.now_ms = 1_000

    def transaction(self, after_ms: int = 0, first_answer_ms: int = 0, end_ms: int = 0) -> bool:
        """One transaction; whether it looks."""
        self.now_ms += after_ms
        looks = self.wait.begins(self.now_ms)
        self.gate.first_answer_ms = first_answer_ms
        self.now_ms += end_ms
        self.wait.ended(self.now_ms, end_ms)
        return looks


def test_it_looks_after_a_hasty_transaction_whose_first_answer_was_slow() -> None:
    client = Client()
    assert not client.transaction()
    assert not client.transaction(first_answer_ms=SLOW_MS - 1)
    assert not client.transaction(first_answer_ms=SLOW_MS)
    assert client.transaction()
    assert not client.transaction(after_ms=HASTE_MS), "the markers are there by now"
    assert client.transaction(after_ms=HASTE_MS - 1)


def test_a_slow_answer_without_haste_says_nothing() -> None:
    client = Client()
    for _ in range(5):
        assert not client.transaction(after_ms=HASTE_MS, first_answer_ms=100)
    assert not client.transaction(first_answer_ms=0)


def test_a_transaction_that_sends_nothing_says_nothing() -> None:
    client = Client()
    for _ in range(5):
        assert not client.transaction(first_answer_ms=-1)


def test_far_away_brokers_are_not_asked() -> None:
    """What the producer sends is as long on its way as the answer to EndTxn was: the markers are there first."""
    client = Client()
    for _ in range(5):
        assert not client.transaction(first_answer_ms=50, end_ms=HASTE_MS)


def test_after_many_looks_one_transaction_goes_without() -> None:
    client = Client()
    client.transaction()
    client.transaction(first_answer_ms=SLOW_MS)
    for _ in range(2):
        assert [client.transaction() for _ in range(LOOKS)] == [True] * LOOKS
        assert not client.transaction(first_answer_ms=SLOW_MS)
    assert [client.transaction(first_answer_ms=1) for _ in range(LOOKS)] == [True] * LOOKS
    assert not client.transaction(first_answer_ms=1)
    assert not client.transaction(), "the wait is not there any more"


@pytest.fixture
def bench() -> TransactionalBench:
    """A producer in a transaction that looks; it notes what it asks, and when."""
    bench = TransactionalBench(2)
    bench.init_transactions()
    bench.asked = []  # type: ignore[attr-defined]
    serve = bench.broker.serve

    def look(request: Any, message: Any) -> None:
        bench.asked.append((type(message).__name__.removesuffix("Request"), bench.clock.now_ms() - began_ms))  # type: ignore[attr-defined]
        serve(request, message)

    bench.broker.serve = look  # type: ignore[method-assign]
    began_ms = bench.clock.now_ms()
    bench.engine.begin(True, True)
    return bench


def committed(bench: TransactionalBench) -> list[tuple[str, int]]:
    """What was asked for a transaction of a record in each of two partitions."""
    for index in (0, 1):
        bench.send("t", str(index), partition=index)
    bench.commit_transaction()
    assert bench.broker.committed == [[b"0", b"1"]]
    return bench.asked  # type: ignore[attr-defined, no-any-return]


def test_batches_wait_until_the_markers_are_written(bench: TransactionalBench) -> None:
    bench.broker.looks += ["PrepareCommit", "PrepareCommit", "PrepareAbort"]
    assert committed(bench) == [
        *(("DescribeTransactions", at_ms) for at_ms in (0, 1, 2, 3)),
        ("Produce", 3),
        ("EndTxn", 3),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        *("CompleteCommit", "CompleteAbort", "Empty", "Ongoing", "Dead", "something new", LOST),
        *(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_NOT_FOUND, Code.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_any_other_answer_lets_them_go_and_costs_the_transaction_nothing(bench: TransactionalBench, answer: str | int) -> None:
    bench.broker.looks.append(answer)
    asked = [(api, at_ms) for api, at_ms in committed(bench) if api != "FindCoordinator"]
    assert asked == [("DescribeTransactions", 0), ("Produce", 0), ("EndTxn", 0)]


def test_a_coordinator_that_has_moved_is_found_before_the_end(bench: TransactionalBench) -> None:
    bench.broker.looks.append(Code.NOT_COORDINATOR)
    assert [api for api, _ in committed(bench)] == ["DescribeTransactions", "Produce", "FindCoordinator", "EndTxn"]


def test_markers_that_are_never_written_do_not_keep_them_for_ever(bench: TransactionalBench) -> None:
    bench.broker.looks += ["PrepareCommit"] * 100
    asked = committed(bench)
    assert asked[-2:] == [("Produce", 130), ("EndTxn", 130)]
    assert len(asked) == len(MARKER_PAUSES_MS) + 1 + 2


def test_offsets_wait_too(bench: TransactionalBench) -> None:
    bench.broker.looks.append("PrepareCommit")
    assert bench.engine is not None
    requests = bench.sender.transactional
    assert requests is not None
    from kafkacore.producer.transactions import StepKind

    bench.engine.submit(StepKind.OFFSETS, {TopicPartition("t", 0): OffsetAndMetadata(1)}, ConsumerGroupMetadata("g"))
    asks = []
    for _ in range(4):
        bench.engine.settle()
        asked = bench.engine.next_ask(False)
        asks.append(asked.kind.name)
        if asked.kind.name == "OFFSETS":
            break
        requests.step(bench.clock.now_ms())
        bench.step()
        bench.clock.advance(1)
    assert asks == ["MARKERS", "MARKERS", "OFFSETS"]


def test_an_abort_does_not_wait_for_the_markers(bench: TransactionalBench) -> None:
    bench.broker.looks += ["PrepareCommit"] * 100
    bench.send_now("t", "x", partition=0)
    bench.abort_transaction()
    assert "Produce" not in [api for api, _ in bench.asked]  # type: ignore[attr-defined]
    bench.broker.looks.clear()
    with bench.transaction():
        bench.send("t", "next", partition=0)
    assert bench.broker.committed == [[b"next"]]


def test_a_transaction_that_writes_nothing_asks_nobody(bench: TransactionalBench) -> None:
    bench.commit_transaction()
    assert bench.asked == []  # type: ignore[attr-defined]


def test_a_producer_learns_by_its_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way from an answer's latency to the look: a broker that takes 20 ms for the first batch of each transaction."""
    bench = TransactionalBench(2)
    bench.init_transactions()
    asked: list[str] = []
    serve = bench.broker.serve

    def slow(request: Any, message: Any) -> None:
        asked.append(type(message).__name__.removesuffix("Request"))
        if isinstance(message, protocol.ProduceRequest):
            bench.clock.advance(20)
        serve(request, message)

    answer = bench.broker.answer

    def timed(*args: Any, **options: Any) -> None:
        answer(*args, **options)
        request, response = bench.broker.answers[-1]
        response.latency_ms = bench.clock.now_ms() - request.created_ms

    bench.broker.serve, bench.broker.answer = slow, timed  # type: ignore[method-assign]
    for _ in range(3):
        with bench.transaction():
            bench.send("t", "x", partition=0)
    assert asked == ["Produce", "EndTxn"] * 2 + ["DescribeTransactions", "Produce", "EndTxn"]
    asked.clear()
    monkeypatch.setattr(marker_wait, "HASTE_MS", 0)
    with bench.transaction():
        bench.send("t", "x", partition=0)
    assert asked == ["DescribeTransactions", "Produce", "EndTxn"]
    asked.clear()
    with bench.transaction():
        bench.send("t", "x", partition=0)
    assert asked == ["Produce", "EndTxn"], "not in haste"


def test_version_1_never_looks() -> None:
    bench = TransactionalBench(1)
    bench.init_transactions()
    bench.engine.begin(False, True)
    assert not bench.engine.gate.holds
