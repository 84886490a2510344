"""The checker of transactional histories: silent about transactions that keep their promises, and not silent about any planted fault."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.errors import UsageError
from kafkacore.testing.history import History, Kind, Send, Transaction
from kafkacore.testing.transaction_history import Producer, TransactionHistory
from tests.kit.histories import after
from tests.kit.reached import Reached

GROUP, SOURCE, TARGET = "g", ("in", 0), "out"
PARTITIONS = 2
reached = Reached(
    *("committed", "aborted", "committed and not told", "nothing is stored"),
    *("replaced in a transaction", "a zombie goes on", "no answer to a look"),
)


@dataclass
class Copy:
    """An open transaction: what a broker holds back until it is committed."""

    producer: Producer
    transaction: Transaction
    records: list[tuple[int, str]] = field(default_factory=list)  # partition and value
    sends: list[Send] = field(default_factory=list)
    offset: int | None = None


class CopyScene:
    """Committed logs, a coordinator, two copiers that do what chance says, and their history."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.history = History()
        self.transactions = TransactionHistory(self.history)
        self.source = self.history.writer("source")
        self.sources = 0
        self.logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.committed: int | None = None
        self.names = itertools.count(1)
        self.values = itertools.count(1)
        self.reader = self.history.reader("along", read_committed=True)
        self.read = [0] * PARTITIONS
        for partition in range(PARTITIONS):
            self.reader.positioned(TARGET, partition, 0)
        self.producers = {name: self.live(name) for name in ("a", "b")}
        self.open: dict[Producer, Copy] = {}

    def live(self, transactional_id: str) -> Producer:
        producer = self.transactions.producer(f"{transactional_id}/{next(self.names)}", transactional_id)
        producer.initializing()
        producer.initialized()
        return producer

    # what a copier does

    def produce(self) -> None:
        self.source.send(SOURCE[0], f"s{self.sources}", SOURCE[1]).acked(self.sources)
        self.sources += 1

    def begin(self, producer: Producer, count: int | None = None) -> Copy:
        """Results of the next records, and their offset; only the copier that owns the partition has any."""
        copy = self.open[producer] = Copy(producer, producer.begin())
        first = self.committed or 0
        owned = not any(each.offset is not None for each in self.open.values())
        available = self.sources - first if owned else 0
        for offset in range(first, first + (min(available, self.rng.randrange(4)) if count is None else count)):
            self.send(copy, offset)
            copy.offset = offset + 1
        if copy.offset is not None:
            producer.offsets(GROUP, {SOURCE: copy.offset})
        elif self.rng.random() < 0.5:
            self.send(copy, None)
        return copy

    def send(self, copy: Copy, source: int | None) -> Send:
        value, partition = f"v{next(self.values)}", self.rng.randrange(PARTITIONS)
        copy.records.append((partition, value))
        copy.sends.append(copy.producer.send(TARGET, value, partition, None if source is None else (SOURCE, source)))
        return copy.sends[-1]

    def store(self, copy: Copy) -> None:
        """The coordinator commits."""
        for (partition, value), send in zip(copy.records, copy.sends, strict=True):
            self.logs[partition].append(value)
            if self.rng.random() < 0.7:
                send.acked(len(self.logs[partition]) - 1)
        if copy.offset is not None:
            self.committed = copy.offset

    def end(self, copy: Copy) -> None:
        del self.open[copy.producer]
        known = self.rng.random() < 0.7
        if self.rng.random() < 0.6:
            copy.transaction.commit()
            stored = known or self.rng.random() < 0.5
            reached("committed" if known else "committed and not told" if stored else "nothing is stored")
            if stored:
                self.store(copy)
            if known:
                copy.transaction.committed()
        elif known:
            reached("aborted")
            copy.transaction.aborted()
        if not known:
            self.replace(copy.producer)

    def replace(self, producer: Producer) -> Producer:
        """Another producer takes the transactional id over; what is open is aborted."""
        reached("replaced in a transaction", self.open.pop(producer, None))
        heir = self.producers[producer.transactional_id] = self.live(producer.transactional_id)
        if self.rng.random() < 0.5:  # the zombie goes on, and is refused
            reached("a zombie goes on")
            zombie = producer.begin()
            producer.send(TARGET, f"v{next(self.values)}", 0)
            zombie.commit()
        return heir

    def look(self) -> None:
        look = self.transactions.look(GROUP)
        if self.rng.random() < 0.9:
            look.found({SOURCE: self.committed})
        else:
            reached("no answer to a look")

    def poll(self) -> None:
        partition = self.rng.randrange(PARTITIONS)
        end = self.rng.randint(self.read[partition], len(self.logs[partition]))
        self.reader.polled(TARGET, partition, list(enumerate(self.logs[partition]))[self.read[partition] : end])
        self.read[partition] = end

    def step(self) -> None:
        producer = self.rng.choice(list(self.producers.values()))
        what = self.rng.choice(["produce"] * 3 + ["begin", "end"] * 3 + ["replace", "look", "look", "poll"])
        if what in ("produce", "look", "poll"):
            getattr(self, what)()
        elif what == "replace":
            self.replace(producer)
        elif producer not in self.open and what == "begin":
            self.begin(producer)
        elif producer in self.open and what == "end":
            self.end(self.open[producer])

    def finish(self) -> None:
        """What is open is aborted, and everybody reads everything."""
        for copy in list(self.open.values()):
            del self.open[copy.producer]
            copy.transaction.aborted()
        for committed in (False, True):
            reader = self.history.reader(f"last {committed}", committed)
            for place, log in [(SOURCE, [f"s{n}" for n in range(self.sources)]), *(((TARGET, p), log) for p, log in enumerate(self.logs))]:
                reader.positioned(*place, 0)
                reader.polled(*place, list(enumerate(log)))
                reader.reached_end(*place, len(log))
        self.transactions.look(GROUP).found({SOURCE: self.committed})


@reached.by
@given(st.integers(0, 2**32), st.sampled_from([1, 30, 80]))
def test_transactions_that_keep_their_promises_give_no_finding(seed: int, steps: int) -> None:
    made = after(CopyScene(random.Random(seed)), steps)
    assert made.history.check() == []  # in the middle of it
    made.finish()
    assert made.history.check() == []


# ---- faults; each begins with nothing open and two records to copy


def zombie_commits(made: CopyScene, copy: Copy) -> None:
    made.live(copy.producer.transactional_id)
    copy.transaction.commit()
    made.store(copy)


def zombie_writes(made: CopyScene, copy: Copy) -> None:
    made.live(copy.producer.transactional_id)
    send = made.send(copy, None)
    made.logs[send.partition or 0].append("")
    send.acked(len(made.logs[send.partition or 0]) - 1)
    made.logs[send.partition or 0].pop()


def loses_a_record(made: CopyScene, copy: Copy) -> None:
    copy.records.pop(0)
    copy.sends.pop(0)
    copy.transaction.commit()
    made.store(copy)


def stores_offsets_of_an_abort(made: CopyScene, copy: Copy) -> None:
    made.committed = copy.offset
    copy.transaction.aborted()


def stores_offsets_at_once(made: CopyScene, copy: Copy) -> None:
    made.transactions.look(GROUP).found({SOURCE: copy.offset})
    copy.transaction.commit()
    made.store(copy)
    copy.transaction.committed()


def stores_offsets_alone(made: CopyScene, copy: Copy) -> None:
    copy.transaction.commit()
    made.committed = copy.offset


def forgets_offsets(made: CopyScene, copy: Copy) -> None:
    before = made.committed
    copy.transaction.commit()
    made.store(copy)
    made.committed = before


def goes_back(made: CopyScene, copy: Copy) -> None:
    before = made.committed
    copy.transaction.commit()
    made.store(copy)
    copy.transaction.committed()
    made.transactions.look(GROUP).found({SOURCE: made.committed})
    made.committed = before


def copies_again(made: CopyScene, copy: Copy) -> None:
    before = made.committed
    copy.transaction.commit()
    made.store(copy)
    copy.transaction.committed()
    after, made.committed = made.committed, before
    again = made.begin(copy.producer, count=2)
    again.transaction.commit()
    made.store(again)
    again.transaction.committed()
    made.open.clear()
    made.committed = after


def leaves_a_record_out(made: CopyScene, copy: Copy) -> None:
    assert copy.offset is not None
    made.produce()
    made.produce()
    made.send(copy, copy.offset + 1)
    copy.offset += 2
    copy.producer.offsets(GROUP, {SOURCE: copy.offset})
    copy.transaction.commit()
    made.store(copy)
    copy.transaction.committed()


FAULTS: dict[Callable[[CopyScene, Copy], None], Kind] = {
    zombie_commits: Kind.FENCED,
    zombie_writes: Kind.FENCED,
    loses_a_record: Kind.TORN,
    stores_offsets_of_an_abort: Kind.OFFSETS_LEAKED,
    stores_offsets_at_once: Kind.OFFSETS_LEAKED,
    stores_offsets_alone: Kind.TORN,
    forgets_offsets: Kind.OFFSETS_LOST,
    goes_back: Kind.OFFSETS_LOST,
    copies_again: Kind.REPEATED,
    leaves_a_record_out: Kind.UNWRITTEN,
}
BESIDE = {
    zombie_writes: {Kind.LOST},  # nobody was shown what was acknowledged
    stores_offsets_of_an_abort: {Kind.UNWRITTEN},
}
"""What the same fault breaks, too."""


@pytest.mark.parametrize("fault", FAULTS)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
@settings(max_examples=25)
def test_every_fault_planted_in_a_transaction_is_found_and_nothing_else(
    fault: Callable[[CopyScene, Copy], None], seed: int, steps: int
) -> None:
    made = after(CopyScene(random.Random(seed)), steps)
    for copy in list(made.open.values()):
        made.end(copy)
    made.produce()
    rest = made.begin(made.live("good"), count=made.sources - (made.committed or 0))  # what follows is at offsets that are nobody else's
    rest.transaction.commit()
    made.store(rest)
    rest.transaction.committed()
    made.open.clear()
    for _ in range(2):
        made.produce()
    copy = made.begin(made.live("bad"), count=2)
    made.open.clear()
    fault(made, copy)
    made.finish()
    found = {finding.kind for finding in made.history.check()}
    assert FAULTS[fault] in found
    assert found <= {FAULTS[fault], *BESIDE.get(fault, ())}, [str(finding) for finding in made.history.check()]


def test_what_comes_between_two_inits_is_not_judged() -> None:
    """Which of two producers came first is known only when one began after the other was done."""
    history = History()
    transactions = TransactionHistory(history)
    first, second = transactions.producer("1", "x"), transactions.producer("2", "x")
    first.initializing()
    second.initializing()
    second.initialized()
    first.initialized()
    transaction = first.begin()
    first.send("t", "v", 0).acked(0)
    transaction.commit()
    transaction.committed()
    assert history.check() == []


def test_a_history_that_cannot_be_is_refused() -> None:
    producer = TransactionHistory(History()).producer("p", "x")
    with pytest.raises(UsageError, match="init_transactions"):
        producer.initialized()
    with pytest.raises(UsageError, match="without a transaction"):
        producer.send("t", "v", 0)
    with pytest.raises(UsageError, match="without a transaction"):
        producer.offsets("g", {("t", 0): 1})


def test_findings_say_which_transaction_and_group() -> None:
    history = History()
    transactions, source, reader = TransactionHistory(history), history.writer("s"), history.reader("r", read_committed=True)
    old, new, place = transactions.producer("old", "x"), transactions.producer("new", "x"), ("in", 0)
    for offset in range(4):
        source.send("in", f"in-{offset}", 0).acked(offset)
    old.initializing()
    old.initialized()
    first = old.begin()
    old.send("out", "a", 0, source=(place, 0)).acked(0)
    old.offsets("g", {place: 1})
    first.commit()
    first.committed()
    stale = old.begin()
    old.send("out", "b", 0, source=(place, 1)).acked(1)
    new.initializing()
    new.initialized()
    old.send("out", "c", 0).acked(2)
    old.send("out", "e", None)
    stale.commit()
    stale.committed()
    again = new.begin()
    new.send("out", "d", 0, source=(place, 0)).acked(3)
    new.offsets("g", {place: 3})
    again.commit()
    again.committed()
    transactions.look("g")  # without an answer
    transactions.look("g").found({place: 2})
    transactions.look("other").found({place: None})
    transactions.look("g").found({place: 1})
    for topic, rows in (("in", [(n, f"in-{n}") for n in range(4)]), ("out", [(0, "a"), (1, "b"), (3, "d"), (4, "e")])):
        reader.positioned(topic, 0, 0)
        reader.polled(topic, 0, rows)
        reader.reached_end(topic, 0, 5)
    transactions.look("g").found({place: 3})
    assert [str(finding) for finding in history.check()] == [
        "LOST: 'c' at out-0, offset 2: acknowledged to old; r came past",
        "TORN: 'c' at out-0, offset 2: r was shown 1 of 2 records of transaction old/2",
        "FENCED: 'c' at out-0, offset 2: old sent it when another producer had its transactional id",
        "FENCED: 'e' at out--1, offset -1: old sent it when another producer had its transactional id",
        "FENCED: 'b' at out-0, offset 1: transaction old/2 was committed when another producer had its transactional id",
        "TORN: 'c' at out-0, offset 2: transaction old/2 was committed, and readers of the whole log were not shown it",
        "OFFSETS_LEAKED: None at in-0, offset 2: group g had it by event 32",
        "OFFSETS_LOST: None at in-0, offset 3: group g had 1 when transaction new/1 was committed",
        "REPEATED: 'd' at out-0, offset 3: made of in-0, offset 0, as was 'a'",
        "UNWRITTEN: None at in-0, offset 1: group g is at 3",
        "UNWRITTEN: None at in-0, offset 2: group g is at 3",
    ]
