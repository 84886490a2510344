"""The history checker: silent about every history that a correct log can have, and not silent about any planted fault."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore.errors import UsageError
from kafkacore.testing.history import Finding, History, Kind, Reader, Transaction, Writer
from tests.kit.histories import after
from tests.kit.reached import Reached

TOPIC = "t"
reached = Reached(
    *("acknowledged", "failed", "nobody knows", "committed", "aborted", "committed and not told"),
    *("read again", "read behind an abort"),
)
OF_OTHER_CHECKERS = (
    *(Kind.UNOWNED, Kind.UNPROCESSED, Kind.UNFENCED),
    *(Kind.FENCED, Kind.OFFSETS_LEAKED, Kind.OFFSETS_LOST, Kind.REPEATED, Kind.UNWRITTEN),
)
"""Those of groups and of transactions have tests of their own."""


@dataclass
class Stored:
    """What stands at one offset; value None is a marker."""

    value: str | None
    transaction: Transaction | None = None
    decided: bool | None = None  # committed, aborted, or open


@dataclass
class Client:
    name: str
    writer: Writer
    transaction: Transaction | None = None
    entries: list[Stored] = field(default_factory=list)  # of the open transaction
    touched: set[int] = field(default_factory=set)


class LogScene:
    """A correct log, clients that do what chance says, and their history; `plant` then breaks one promise."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.history = History()
        self.logs: list[list[Stored]] = [[] for _ in range(rng.choice([1, 2]))]
        self.clients = [Client(f"p{n}", self.history.writer(f"p{n}")) for n in range(rng.choice([1, 2, 3]))]
        self.readers: list[tuple[Reader, list[int]]] = []
        for n in range(3):
            reader = self.history.reader(f"c{n}", read_committed=n > 0)
            for partition in range(len(self.logs)):
                reader.positioned(TOPIC, partition, 0)
            self.readers.append((reader, [0] * len(self.logs)))
        self.sent = 0

    # what the clients do

    def send(self, client: Client, partition: int | None = None) -> None:
        self.sent += 1
        value = f"v{self.sent}"
        chosen = self.rng.randrange(len(self.logs)) if partition is None else partition
        send = client.writer.send(TOPIC, value, chosen if self.rng.random() < 0.7 else None)
        outcome = self.rng.choice(["acked"] * 5 + ["failed", "unknown", "lost"])
        reached({"acked": "acknowledged", "failed": "failed"}.get(outcome, "nobody knows"))
        if outcome in ("acked", "unknown"):
            offset = self.append(client, chosen, value)
            if outcome == "acked":
                send.acked(offset if self.rng.random() < 0.9 else -1, chosen)
        elif outcome == "failed":
            send.failed()

    def append(self, client: Client, partition: int, value: str) -> int:
        entry = Stored(value, client.transaction)
        if client.transaction is not None:
            client.entries.append(entry)
            client.touched.add(partition)
        self.logs[partition].append(entry)
        return len(self.logs[partition]) - 1

    def begin(self, client: Client) -> None:
        if client.transaction is None:
            client.transaction = client.writer.begin()

    def end(self, client: Client) -> None:
        if client.transaction is None:
            return
        commit = self.rng.random() < 0.6
        if commit:
            client.transaction.commit()
        told = self.rng.random() < 0.6
        if told and not commit:
            client.transaction.aborted()
        committed = commit and (told or self.rng.random() < 0.5)
        reached("committed" if told and committed else "committed and not told" if committed else "aborted")
        for partition in client.touched:
            self.logs[partition].append(Stored(None))
        for entry in client.entries:
            entry.decided = committed
        if told and commit:
            client.transaction.committed()
        client.transaction, client.entries, client.touched = None, [], set()
        client.writer.leave()

    def stable_end(self, partition: int) -> int:
        log = self.logs[partition]
        open_ones = (offset for offset, entry in enumerate(log) if entry.transaction is not None and entry.decided is None)
        return next(open_ones, len(log))

    def poll(self, nth: int, partition: int, count: int) -> None:
        reader, positions = self.readers[nth]
        end = min(positions[partition] + count, self.stable_end(partition) if reader.read_committed else len(self.logs[partition]))
        rows = [
            (offset, entry.value)
            for offset, entry in list(enumerate(self.logs[partition]))[positions[partition] : end]
            if entry.value is not None and not (reader.read_committed and entry.decided is False)
        ]
        reached("read behind an abort", any(entry.decided is False for entry in self.logs[partition][:end]))
        positions[partition] = max(end, positions[partition])
        reader.polled(TOPIC, partition, rows)

    def jump(self, nth: int, partition: int) -> None:
        reader, positions = self.readers[nth]
        before, positions[partition] = positions[partition], self.rng.randrange(self.stable_end(partition) + 1)
        reached("read again", positions[partition] < before)
        reader.positioned(TOPIC, partition, positions[partition] if self.rng.random() < 0.7 else None)

    def step(self) -> None:
        client = self.rng.choice(self.clients)
        nth, partition = self.rng.randrange(len(self.readers)), self.rng.randrange(len(self.logs))
        what = self.rng.choice(["send"] * 6 + ["begin", "end", "poll", "poll", "jump"])
        if what == "send":
            self.send(client)
        elif what == "begin":
            self.begin(client)
        elif what == "end":
            self.end(client)
        elif what == "poll":
            self.poll(nth, partition, self.rng.randrange(1, 8))
        else:
            self.jump(nth, partition)

    def finish(self) -> None:
        """Every transaction ends, and everybody reads all from the start."""
        for client in self.clients:
            self.end(client)
        for nth, (reader, positions) in enumerate(self.readers):
            for partition, log in enumerate(self.logs):
                positions[partition] = 0
                reader.positioned(TOPIC, partition, 0)
                self.poll(nth, partition, len(log))
                reader.reached_end(TOPIC, partition, len(log))

    # what a broken log does; each takes a fresh client, so that nothing else is concerned

    def plant(self, kind: Kind) -> tuple[int, str]:
        """Breaks one promise, at the end of a partition; everything that came before stays correct.

        Returns:
            The partition and the value concerned.
        """
        client = Client("bad", self.history.writer("bad"))
        partition = self.rng.randrange(len(self.logs))
        log = self.logs[partition]
        uncommitted, committed = self.readers[0][0], self.readers[1][0]
        base = len(log)

        def send(value: str) -> int:
            offset = self.append(client, partition, value)
            client.writer.send(TOPIC, value, partition).acked(offset)
            return offset

        def shown(reader: Reader, *rows: tuple[int, str]) -> None:
            reader.positioned(TOPIC, partition, rows[0][0])
            reader.polled(TOPIC, partition, rows)

        value = "bad"
        if kind is Kind.LOST:
            client.writer.send(TOPIC, value, partition).acked(base)
            if self.rng.random() < 0.5:  # a hole; else the log is cut before it
                log.append(Stored(None))
        elif kind is Kind.SKIPPED:
            send(value)
            send("next")
            committed.positioned(TOPIC, partition, base)
            committed.polled(TOPIC, partition, [(base + 1, "next")])
        elif kind is Kind.DUPLICATE:
            send(value)
            log.append(Stored(value))
        elif kind is Kind.REORDERED:
            first, second = client.writer.send(TOPIC, value, partition), client.writer.send(TOPIC, "other", partition)
            log += [Stored("other"), Stored(value)]
            second.acked(base)
            first.acked(base + 1)
            value = "other"
        elif kind is Kind.INCONSISTENT:
            client.writer.send(TOPIC, value, partition).acked(base + self.rng.choice([1, 2]))
            log += [Stored(value), Stored(None), Stored(None)]
        elif kind is Kind.PHANTOM:
            log.append(Stored(value))
        elif kind is Kind.FAILED_READ:
            client.writer.send(TOPIC, value, partition).failed()
            log.append(Stored(value))
        elif kind is Kind.ABORTED_READ:
            self.begin(client)
            send(value)
            client.transaction.aborted()
            client.entries[0].decided = False
            shown(committed, (base, value))
        elif kind is Kind.PRECOMMITTED_READ:
            self.begin(client)
            send(value)
            shown(committed, (base, value))
            client.transaction.commit()
            client.transaction.committed()
            client.entries[0].decided = True
        elif kind is Kind.TORN:
            self.begin(client)
            send("a part")
            send(value)
            client.transaction.commit()
            for entry, decided in zip(client.entries, (True, False), strict=True):
                entry.decided = decided
        elif kind is Kind.NON_MONOTONIC:
            send(value)
            shown(uncommitted, (base, value), (base, value))
        else:
            raise AssertionError(kind)
        return partition, value


@reached.by
@given(st.integers(0, 2**32), st.sampled_from([1, 20, 60]))
def test_a_correct_log_gives_no_finding(seed: int, steps: int) -> None:
    made = after(LogScene(random.Random(seed)), steps)
    assert made.history.check() == []  # in the middle of it
    made.finish()
    assert made.history.check() == []
    made.history.assert_clean()


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in OF_OTHER_CHECKERS])
@given(rng=st.randoms(use_true_random=False), steps=st.integers(0, 30))
@settings(max_examples=25)
def test_every_fault_planted_in_a_log_is_found_and_nothing_else(kind: Kind, rng: random.Random, steps: int) -> None:
    made = after(LogScene(rng), steps)
    for client in made.clients:
        made.end(client)
    partition, value = made.plant(kind)
    made.finish()
    found = made.history.check()
    assert {finding.kind for finding in found} == {kind}, [str(finding) for finding in found]
    assert {(finding.topic, finding.partition) for finding in found} == {(TOPIC, partition)}
    assert value in {finding.value for finding in found}
    with pytest.raises(AssertionError, match=kind.name):
        made.history.assert_clean()


def test_a_value_in_a_partition_it_was_not_sent_to() -> None:
    history = History()
    history.writer("p").send("t", "a", 0)
    history.reader("c").polled("t", 1, [(0, "a")])
    (finding,) = history.check()
    assert (finding.kind, finding.partition) == (Kind.PHANTOM, 1) and "partition 0" in finding.detail


def test_a_value_shown_before_it_was_sent() -> None:
    history = History()
    history.reader("c").polled("t", 0, [(0, "a")])
    history.writer("p").send("t", "a", 0).acked(0)
    assert [finding.kind for finding in history.check()] == [Kind.PHANTOM]


def test_what_was_acknowledged_after_the_end_was_asked_is_not_lost() -> None:
    history = History()
    writer, reader = history.writer("p"), history.reader("c")
    first, second = writer.send("t", "a", 0), writer.send("t", "b", 0)
    first.acked()  # a broker that does not say where
    reader.positioned("t", 0, 0)
    reader.reached_end("t", 0, 0)
    second.acked(0)
    assert [(finding.kind, finding.value) for finding in history.check()] == [(Kind.LOST, "a")]


def test_what_lies_before_the_first_position_of_all_readers_is_not_lost() -> None:
    history = History()
    writer, reader = history.writer("p"), history.reader("c")
    for offset in range(10):
        writer.send("t", offset, 0).acked(offset)
    reader.positioned("t", 0, 8)
    reader.polled("t", 0, [(9, 9)])
    reader.reached_end("t", 0, 10)
    assert [(finding.kind, finding.value) for finding in history.check()] == [(Kind.LOST, 8)]


def test_of_records_in_a_wrong_order_the_fewest_are_named() -> None:
    history = History()
    writer, reader = history.writer("p"), history.reader("c")
    for value in range(6):
        writer.send("t", value, 0)
    reader.polled("t", 0, list(enumerate([5, 0, 1, 3, 2, 4])))
    assert told(history) == [
        "REORDERED: 5 at t-0, offset 0: it was number 6 that p sent",
        "REORDERED: 3 at t-0, offset 3: it was number 4 that p sent",
    ]


def test_a_history_that_cannot_be_is_refused() -> None:
    history = History()
    writer = history.writer("p")
    send = writer.send("t", "a")
    with pytest.raises(UsageError, match="twice"):
        writer.send("t", "a")
    with pytest.raises(UsageError, match="partition None"):
        send.acked(3)
    for again in (send.failed, lambda: send.acked(3, 0)):
        fresh = history.writer(f"w{id(again)}").send("t", id(again), 0)
        fresh.acked(1)
        with pytest.raises(UsageError, match="noted twice"):
            fresh.failed()
    with pytest.raises(UsageError, match="client 'p'"):
        history.reader("p")
    transaction = writer.begin()
    with pytest.raises(UsageError, match="commit was not called"):
        transaction.committed()
    transaction.commit()
    transaction.committed()
    with pytest.raises(UsageError, match="committed before"):
        transaction.aborted()
    aborted = writer.begin()
    aborted.commit()
    aborted.aborted()
    with pytest.raises(UsageError, match="aborted before"):
        aborted.committed()


def told(history: History) -> list[str]:
    return [str(finding) for finding in history.check()]


def test_findings_say_who_was_shown_what() -> None:
    history = History()
    writer, reader, committed = history.writer("p"), history.reader("c"), history.reader("d", read_committed=True)
    for value in "abc":
        writer.send("t", value, 0).acked("abc".index(value))
    writer.send("t", "f", 0).failed()
    reader.positioned("t", 0, 1)
    reader.polled("t", 0, [(0, "a"), (1, "c"), (1, "f")])
    committed.positioned("t", 0, 0)
    committed.polled("t", 0, [(2, "c")])
    writer.send("u", "a", 1)
    reader.polled("u", 0, [(7, "a"), (8, "none")])
    assert told(history) == [
        "NON_MONOTONIC: 'a' at t-0, offset 0: c stood at 1",
        "NON_MONOTONIC: 'f' at t-0, offset 1: c stood at 2",
        "INCONSISTENT: 'f' at t-0, offset 1: c was shown this; shown before: 'c'",
        "FAILED_READ: 'f' at t-0, offset 1: c was shown it",
        "DUPLICATE: 'c' at t-0, offset 2: it stands at [1, 2]",
        "SKIPPED: 'a' at t-0, offset 0: d was not shown it",
        "INCONSISTENT: 'b' at t-0, offset 1: acknowledged there; 'c' was shown there",
        "LOST: 'b' at t-0, offset 1: acknowledged to p; d came past",
        "PHANTOM: 'a' at u-0, offset 7: c was shown it, but it was sent to partition 1",
        "PHANTOM: 'none' at u-0, offset 8: c was shown it, but no producer sent it",
    ]
    history.judge(lambda: [Finding(Kind.PHANTOM, "z", 3, 4, 5, "first")])
    history.judge(lambda: [Finding(Kind.UNOWNED, "z", 3, 4, 5, "second")])
    assert told(history)[-2:] == ["PHANTOM: 5 at z-3, offset 4: first", "UNOWNED: 5 at z-3, offset 4: second"]
    with pytest.raises(AssertionError) as raised:
        history.assert_clean(examples=1)
    lines = str(raised.value).splitlines()
    assert lines[:3] == ["12 findings in a history of 5 sends", f"2 x NON_MONOTONIC ({Kind.NON_MONOTONIC}):", f"  {told(history)[0]}"]
    assert "3 x PHANTOM" in lines[-4] and len(lines) == 1 + 2 * 8
    for _ in range(3):
        history.judge(lambda: [Finding(Kind.UNOWNED, "z", 3, 4, 5, "more")])
    with pytest.raises(AssertionError) as raised:
        history.assert_clean()
    assert "4 x UNOWNED" in str(raised.value).splitlines()[-4]


def test_findings_about_transactions_name_them() -> None:
    history = History()
    writer, reader, whole = history.writer("p"), history.reader("c", read_committed=True), history.reader("w")
    writer.begin().aborted()
    torn = writer.begin()
    for offset in range(3):
        writer.send("t", f"a{offset}", 0).acked(offset)
    writer.send("t", "unread", 1).acked(0)
    never = writer.begin()
    writer.send("t", "never", 0).acked(3)
    writer.leave()
    writer.send("t", "plain", 0).acked(4)
    for each in (reader, whole):
        each.positioned("t", 0, 0)
    reader.polled("t", 0, [(1, "a1"), (2, "a2")])
    torn.commit()
    reader.polled("t", 0, [(3, "never")])
    never.commit()
    never.aborted()
    whole.polled("t", 0, [(0, "a0"), (1, "a1"), (2, "a2"), (3, "never"), (4, "plain")])
    before = "c was shown it before the commit of transaction p/2 was called"
    assert told(history) == [
        f"PRECOMMITTED_READ: 'a1' at t-0, offset 1: {before}",
        f"PRECOMMITTED_READ: 'a2' at t-0, offset 2: {before}",
        "ABORTED_READ: 'never' at t-0, offset 3: c was shown it; transaction p/3 was aborted",
        "TORN: 'a0' at t-0, offset 0: c was shown 2 of 3 records of transaction p/2",
    ]
    torn.committed()
    assert told(history)[3] == "SKIPPED: 'a0' at t-0, offset 0: c was not shown it"


def test_a_reader_owes_what_lies_between_its_jumps() -> None:
    history = History()
    writer, reader = history.writer("p"), history.reader("c")
    for offset in range(6):
        writer.send("t", offset, 0).acked(offset)
    history.reader("all").polled("t", 0, [(offset, offset) for offset in range(6)])
    reader.polled("t", 0, [(1, 1)])
    reader.left("t", 0)
    reader.polled("t", 0, [(3, 3)])
    reader.positioned("t", 0, 5)
    assert told(history) == []
    reader.polled("t", 0, [])
    reader.reached_end("t", 0, 6)
    assert told(history) == ["SKIPPED: 5 at t-0, offset 5: c was not shown it"]
    late = history.reader("late")
    late.reached_end("t", 0, 6)
    assert len(history.check()) == 1
    unsaid = writer.send("t", "no offset", 0)
    unsaid.acked()
    assert len(history.check()) == 1  # acknowledged behind the ends
    reader.reached_end("t", 0, 7)
    assert len(history.check()) == 1  # which came from offset 5
    writer.send("t", "other", 0).acked(5)
    assert told(history)[1] == "INCONSISTENT: 'other' at t-0, offset 5: acknowledged there; so was 5"
