"""Random transactional histories under faults break no promise, and a broken one is found; longer by `python -m tests.soak --transactions`.

A seed is three brokers, two writers, a group that copies what they write, and readers, for a quarter of a second. There are 20 of them by
default, KAFKACORE_SEEDS=200 takes more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kafkacore.broker.groups.offsets import OffsetStore
from kafkacore.broker.log.log import Log
from kafkacore.broker.partition import Partition
from kafkacore.broker.producers import ProducerStates
from kafkacore.broker.txns.markers import MarkerWriter
from kafkacore.broker.txns.shard import TransactionShard
from kafkacore.consumer import fetcher
from kafkacore.producer.transactions import Phase, TransactionEngine
from kafkacore.records import PartitionReader
from tests.soak import transacting, transactions
from tests.soak.transacting import SOURCE, Copier
from tests.soak.transactions import TransactionSoak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FACED = [transacting, transactions]
AT_LENGTH = pytest.mark.aio_at_length
SEEDS, SEEDS_EACH = int(os.environ.get("KAFKACORE_SEEDS") or 20), 10
NONE: Collection[str] = ()
"""No faults of brokers or of the network: what is found is the planted one."""


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=AT_LENGTH) for first in range(SEEDS_EACH, SEEDS, SEEDS_EACH))])
def test_transactions_under_faults_keep_their_promises(first: int) -> None:
    for seed in range(first, first + SEEDS_EACH):
        figures = TransactionSoak(seed).run()
        assert figures["findings"] == [], {name: figure for name, figure in figures.items() if name != "examples"}
        assert figures["records"] > 0 and figures["looks"] > 0


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.night) for seed in (2, 3, 4))])
def test_transactions_while_brokers_read_their_logs_again(seed: int) -> None:
    """Producers, aborted transactions and high watermarks come from recovery."""
    figures = TransactionSoak(seed, strikes=5, disk=True, kinds=["kill broker", "kill coordinator", "move leader"]).run()
    assert figures["findings"] == [], figures


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.night) for seed in (2, 3))])
def test_transactions_while_processes_are_killed(seed: int) -> None:
    """Brokers are processes, and die by SIGKILL."""
    figures = TransactionSoak(seed, strikes=5, processes=True, kinds=["kill broker", "kill coordinator", "lose answers"]).run()
    assert figures["findings"] == [], figures
    assert figures["committed"] > 0


@pytest.mark.usefixtures("client_face")
def test_clients_come_back_from_faults_that_go_on_for_a_while() -> None:
    said: list[str] = []
    figures = TransactionSoak(7, seconds=2, strikes=3, network=True, say=said.append).run()
    assert figures["findings"] == [], figures
    assert figures["rounds"] == 1 and len(said) == 2 and figures["committed"] > 0


def test_a_client_that_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copier, "_copy", lambda self, life, consumer: self.soak.copied.wait())
    [found, *_] = TransactionSoak(7, seconds=0.1, kinds=NONE, wait_s=2).run()["findings"]
    assert found.startswith("STUCK: ['copier-1'") and "did not come back" in found


# ---- faults in the producer


def commits_before_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    next_ask = TransactionEngine.next_ask
    monkeypatch.setattr(TransactionEngine, "next_ask", lambda self, has_batches, *rest: next_ask(self, False, *rest))
    monkeypatch.setattr(TransactionEngine, "awaits_batches", False)


def keeps_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = TransactionEngine._finish

    def finishing(self: TransactionEngine, at: Any, producer_id: int, epoch: int) -> None:
        finish(self, at, producer_id, epoch if at.phase is Phase.INITIALIZING else at.epoch)

    monkeypatch.setattr(TransactionEngine, "_finish", finishing)


def does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that goes on after an abort as if it had been a commit."""
    monkeypatch.setattr(transacting.KafkaConsumer, "seek", lambda self, partition, offset: None)


# ---- faults in the broker


def does_not_hold_the_stable_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def loses_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of one partition."""
    append = MarkerWriter._append_one

    def losing(self: MarkerWriter, marker: Any, target: Any, done: Any) -> None:
        if target == (SOURCE, 1):
            done(None)
        else:
            append(self, marker, target, done)

    monkeypatch.setattr(MarkerWriter, "_append_one", losing)


def has_no_aborted_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "aborted_transactions", lambda self, offset, upper_offset: [])


def fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the coordinator nor the partitions look at epochs."""
    add, end = TransactionShard.add_partitions, TransactionShard.end

    def newest(shard: TransactionShard, transactional_id: str, producer: Any) -> Any:
        return producer._replace(epoch=shard.transactions[transactional_id].producer_epoch)

    monkeypatch.setattr(
        TransactionShard, "add_partitions", lambda self, name, producer, *rest: add(self, name, newest(self, name, producer), *rest)
    )
    monkeypatch.setattr(TransactionShard, "end", lambda self, name, producer, *rest: end(self, name, newest(self, name, producer), *rest))
    monkeypatch.setattr(ProducerStates, "check", lambda self, batch, *rest, **more: None)


def takes_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check

    def checking(self: ProducerStates, batch: Any, *rest: Any, **more: Any) -> Any:
        check(self, batch, *rest, **more)

    monkeypatch.setattr(ProducerStates, "check", checking)


def forgets_stored_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit marker does not bring them into force."""
    replay = OffsetStore.replay_end_marker
    monkeypatch.setattr(
        OffsetStore, "replay_end_marker", lambda self, offset, producer_id, committed: replay(self, offset, producer_id, False)
    )


def stores_offsets_of_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = OffsetStore.replay_end_marker
    monkeypatch.setattr(
        OffsetStore, "replay_end_marker", lambda self, offset, producer_id, committed: replay(self, offset, producer_id, True)
    )


# ---- faults in the reader


def ignores_aborted_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    def reader(*rest: Any, aborted: Any, **more: Any) -> PartitionReader:
        return PartitionReader(*rest, aborted=aborted and [], **more)

    monkeypatch.setattr(fetcher, "PartitionReader", reader)


Fault = Callable[[pytest.MonkeyPatch], None]
STUCK, FATAL, DIED = "STUCK", "FATAL WITHOUT A CAUSE", "DIED"
LOSES = ["lose answers: Produce"]
PLANTED: list[tuple[Fault, set[str], dict[str, Any]]] = [
    (commits_before_batches, {"TORN", "LOST"}, {"kinds": NONE}),
    (keeps_its_epoch, {FATAL}, {"version": 2, "kinds": NONE}),
    (does_not_go_back, {"UNWRITTEN"}, {"kinds": NONE}),
    (does_not_hold_the_stable_offset, {"PRECOMMITTED_READ"}, {"kinds": NONE}),
    (loses_a_marker, {STUCK}, {"kinds": NONE}),
    (has_no_aborted_index, {"ABORTED_READ"}, {"kinds": NONE}),
    (fences_nobody, {"FENCED"}, {"kinds": NONE, "config": {"transaction.partition.verification.enable": "false"}}),
    (takes_duplicates, {"DUPLICATE"}, {"kinds": LOSES, "strikes": 12}),
    (forgets_stored_offsets, {"OFFSETS_LOST"}, {"kinds": NONE}),
    (stores_offsets_of_aborts, {"OFFSETS_LEAKED"}, {"kinds": NONE}),
    (ignores_aborted_ranges, {"ABORTED_READ"}, {"kinds": NONE}),
]
MOST_SEEDS = 12
EACH_RUN = (commits_before_batches, stores_offsets_of_aborts, ignores_aborted_ranges)
"""One of each kind, of the producer, of the offsets and of the reader; the others, and the asyncio clients, are the night's."""


@pytest.mark.usefixtures("client_face")
@pytest.mark.parametrize(
    ("fault", "expected", "options"),
    [pytest.param(*each, id=each[0].__name__, marks=AT_LENGTH if each[0] in EACH_RUN else pytest.mark.night) for each in PLANTED],
)
def test_a_planted_fault_is_found_within_a_few_seeds(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, expected: set[str], options: dict[str, Any]
) -> None:
    fault(monkeypatch)
    found: list[str] = []
    for seed in range(MOST_SEEDS):
        soak = TransactionSoak(seed, **{"network": False, "strikes": 4, "wait_s": 2, **options})
        soak.run()
        found += soak.findings
        if expected & {finding.split(":")[0] for finding in soak.findings}:
            return
    raise AssertionError(f"{MOST_SEEDS} seeds found none of {expected}, but {found}")
