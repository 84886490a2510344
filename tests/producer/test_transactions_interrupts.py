"""Ctrl+C at every line of a transaction's calls: made again, they come to their end; what was committed is there once, the rest never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_model import LOST
from test_interrupts import Interrupter, no_collection
from transaction_model import TransactionalBench, TransactionalBroker

from kafkacore.producer.transactions import COMMITS, Phase, StepKind

__all__ = ["no_collection"]


def finish(bench: TransactionalBench, commit: bool) -> str:
    """What an application does after Ctrl+C: the same call again."""
    assert bench.engine is not None
    for _ in range(5):
        phase = bench.engine.at.phase
        if phase is Phase.READY:
            last = bench.engine.at.last
            return "committed" if last is not None and last.kind is StepKind.COMMIT else "aborted"
        if phase in COMMITS or (phase in (Phase.OPEN, Phase.PREPARED) and commit):
            bench.commit_transaction()
        else:
            bench.abort_transaction()
    raise AssertionError(bench.engine.at)


def at_every_line(
    version: int, scenario: Callable[[TransactionalBench], object], check: Callable[[TransactionalBench], None], before: Any
) -> int:
    """Runs a scenario once per line, each time interrupted there; returns how many lines there were."""
    for at in range(100_000):
        bench = TransactionalBench(version, batch_size=256, buffer_memory=65536)
        bench.init_transactions()
        with bench.transaction():
            bench.send("t", "0", partition=0)
        before(bench)
        interrupted = Interrupter(at).run(lambda bench=bench: scenario(bench))  # type: ignore[misc]
        check(bench)
        assert not bench.accumulator.has_incomplete
        assert bench.pool.available_bytes == bench.pool.total_bytes
        if not interrupted:
            return at
    raise AssertionError("no end")


VALUES = [f"{number:0100}" for number in range(5)]  # two batches of a partition, and one of the other


def send_all(bench: TransactionalBench) -> None:
    for number, value in enumerate(VALUES):
        bench.send("t", value, partition=number % 2)


def goes_on(bench: TransactionalBench, expected: list[list[str]]) -> None:
    with bench.transaction():
        bench.send("t", "next", partition=1)
    assert bench.broker.committed == [[value.encode() for value in values] for values in [["0"], *expected, ["next"]]]


def no_faults(broker: TransactionalBroker) -> None: ...


def lost_answers(broker: TransactionalBroker) -> None:
    broker.faults.append(LOST)
    broker.ends.append(LOST)


NIGHT = pytest.mark.night
FAULTS = pytest.mark.parametrize("faults", [no_faults, pytest.param(lost_answers, marks=NIGHT)])
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.mark.parametrize(
    ("version", "faults"), [(1, no_faults), (2, no_faults), (2, lost_answers), pytest.param(1, lost_answers, marks=NIGHT)]
)
def test_a_commit(version: int, faults: Any) -> None:
    def before(bench: TransactionalBench) -> None:
        bench.begin_transaction()
        send_all(bench)
        faults(bench.broker)

    def check(bench: TransactionalBench) -> None:
        assert finish(bench, True) == "committed"
        goes_on(bench, [VALUES])

    assert at_every_line(version, TransactionalBench.commit_transaction, check, before) > 30


@FAULTS
@VERSIONS
def test_an_abort(version: int, faults: Any) -> None:
    def before(bench: TransactionalBench) -> None:
        bench.begin_transaction()
        send_all(bench)
        bench.step()
        faults(bench.broker)

    def check(bench: TransactionalBench) -> None:
        assert finish(bench, False) == "aborted"
        goes_on(bench, [])

    assert at_every_line(version, TransactionalBench.abort_transaction, check, before) > 30


@FAULTS
@pytest.mark.parametrize(
    ("version", "commit"), [(1, True), (2, False), pytest.param(1, False, marks=NIGHT), pytest.param(2, True, marks=NIGHT)]
)
def test_what_is_prepared(version: int, faults: Any, commit: bool) -> None:
    """The call is made again until it says that the transaction is prepared; then it is ended."""

    def before(bench: TransactionalBench) -> None:
        bench.begin_transaction()
        send_all(bench)
        faults(bench.broker)

    def check(bench: TransactionalBench) -> None:
        prepared = bench.prepare_transaction()
        assert (prepared.producer_id, prepared.producer_epoch) == (7, bench.broker.epoch)
        assert len(bench.broker.open) == len(VALUES)
        assert bench.broker.state == "ongoing"
        assert finish(bench, commit) == ("committed" if commit else "aborted")
        goes_on(bench, [VALUES] if commit else [])

    assert at_every_line(version, TransactionalBench.prepare_transaction, check, before) > 30


def test_a_commit_that_looks_for_the_markers_of_the_last_one() -> None:
    def before(bench: TransactionalBench) -> None:
        bench.engine.begin(True, True)
        bench.broker.looks.append("PrepareCommit")
        send_all(bench)

    def check(bench: TransactionalBench) -> None:
        assert finish(bench, True) == "committed"
        goes_on(bench, [VALUES])

    assert at_every_line(2, TransactionalBench.commit_transaction, check, before) > 30


@VERSIONS
def test_a_block(version: int) -> None:
    """Whatever the line: all of the block is committed, or nothing of it, and what the producer says of it is true."""

    def scenario(bench: TransactionalBench) -> None:
        with bench.transaction():
            send_all(bench)

    def check(bench: TransactionalBench) -> None:
        ended = finish(bench, False)
        committed = len(bench.broker.committed) == 2
        assert committed or ended == "aborted" or bench.broker.committed == [[b"0"]]
        goes_on(bench, [VALUES] if committed else [])

    assert at_every_line(version, scenario, check, lambda bench: None) > 40
