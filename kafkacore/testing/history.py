"""What clients saw, and whether a log that keeps its promises could have shown it to them.

Clients write down what they did and what came back; `check` compares. It knows nothing of how the records travelled, so it works for every
client, broker and bridge between two clusters:

    history = History()
    writer = history.writer("producer-1")
    send = writer.send("t", b"order-17", partition=0)      # before the client is called
    producer.send("t", b"order-17", partition=0).add_done_callback(lambda f: send.acked(f.result().offset))
    ...
    reader = history.reader("consumer-1")
    reader.positioned("t", 0, 0)
    reader.polled("t", 0, [(record.offset, record.value) for record in records])
    ...
    history.assert_clean()

Rules of a history:

1. A value names one record: each is sent once per topic (number them). A client's own retries are not sends.
   [test_every_fault_planted_in_a_log_is_found_and_nothing_else]
2. A send without an outcome is *unknown*: its record may be in the log or not, now or later. `failed` is for records that surely are not
   (too large, refused by fencing): after a timeout, say nothing. [test_every_fault_planted_in_a_log_is_found_and_nothing_else]
3. The same holds for the end of a transaction: once `commit` was called and neither `committed` nor `aborted` came, it may be either way.
   [test_every_fault_planted_in_a_log_is_found_and_nothing_else]
4. Events are in the order in which they were noted. Note calls before and results after, and what the checker concludes from that order
   (something was read before it was sent or committed) is true whatever the threads did.
   [test_every_fault_planted_in_a_log_is_found_and_nothing_else]
5. A reader that jumps says so (`positioned`). What it passes over without a jump it must have been shown, unless the record is of a
   transaction that was not committed and the reader is `read_committed`. Compaction therefore has to be off; records deleted by retention
   must lie before the first position of every reader. [test_every_fault_planted_in_a_log_is_found_and_nothing_else]

Source: the kinds of findings follow Jepsen's Kafka workload (lost write, duplicate, inconsistent offsets, aborted read, precommitted read,
poll skip, nonmonotonic poll), by name and not by code.
"""

from __future__ import annotations

import enum
import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from kafkacore.errors import UsageError

__all__ = ["Finding", "History", "Kind", "Reader", "Send", "Transaction", "Writer"]

Place = tuple[str, int]


class Kind(enum.StrEnum):
    """What can be wrong with a history."""

    LOST = "acknowledged, but no reader was shown it"
    SKIPPED = "a reader passed over a record that others were shown"
    DUPLICATE = "one value stands at two offsets"
    REORDERED = "records of one producer stand in another order than they were sent"
    INCONSISTENT = "one offset with two values, or a record elsewhere than acknowledged"
    PHANTOM = "a value that was not sent there, or not yet"
    FAILED_READ = "a value whose send had failed"
    ABORTED_READ = "a committed reader was shown an aborted transaction"
    PRECOMMITTED_READ = "a committed reader was shown a transaction before its commit"
    TORN = "a committed reader was shown a part of a transaction"
    NON_MONOTONIC = "offsets of a reader went back without a jump"
    UNOWNED = "a member of a group was shown a record of a partition that it did not own"
    UNPROCESSED = "a group went past a record that no member had processed"
    UNFENCED = "a commit was taken from a member whose partition another one had"
    FENCED = "something was taken from a producer whose transactional id another one had"
    OFFSETS_LEAKED = "offsets were stored that no committed transaction holds"
    OFFSETS_LOST = "offsets of a committed transaction were not stored"
    REPEATED = "a record has results in two committed transactions"
    UNWRITTEN = "a group's committed offset lies behind a record that has no result"


class Finding(NamedTuple):
    """One thing that a log which keeps its promises does not do."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    value: Hashable
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.value!r} at {self.topic}-{self.partition}, offset {self.offset}: {self.detail}"


class Transaction:
    """A transaction of a writer; made by `Writer.begin`."""

    __slots__ = ("_history", "aborted_at", "commit_called_at", "committed_at", "name")

    def __init__(self, history: History, name: str) -> None:
        self._history = history
        self.name = name
        self.commit_called_at: int | None = None
        self.committed_at: int | None = None
        self.aborted_at: int | None = None

    def commit(self) -> None:
        """Notes that the commit is about to be called."""
        self.commit_called_at = self._history.tick()

    def committed(self) -> None:
        """Notes that the commit succeeded.

        Raises:
            UsageError: no commit was called, or the transaction was noted as aborted.
        """
        if self.commit_called_at is None or self.aborted_at is not None:
            raise UsageError(
                f"transaction {self.name}: committed, but " + ("aborted before" if self.aborted_at else "commit was not called")
            )
        self.committed_at = self._history.tick()

    def aborted(self) -> None:
        """Notes that the transaction surely was aborted (an abort that succeeded, or a commit that was refused for good).

        Raises:
            UsageError: it was noted as committed.
        """
        if self.committed_at is not None:
            raise UsageError(f"transaction {self.name}: aborted, but committed before")
        self.aborted_at = self._history.tick()

    @property
    def may_be_visible(self) -> bool:
        """Whether a committed reader may be shown its records."""
        return self.aborted_at is None and self.commit_called_at is not None


class Send:
    """One record on its way; made by `Writer.send`."""

    __slots__ = ("_history", "acked_at", "failed_at", "index", "offset", "partition", "sent_at", "topic", "transaction", "value", "writer")

    def __init__(
        self, history: History, writer: str, index: int, topic: str, value: Hashable, partition: int | None, transaction: Transaction | None
    ) -> None:
        self._history = history
        self.writer = writer
        self.index = index
        self.topic = topic
        self.value = value
        self.partition = partition
        self.transaction = transaction
        self.sent_at = history.tick()
        self.acked_at: int | None = None
        self.failed_at: int | None = None
        self.offset = -1

    def acked(self, offset: int = -1, partition: int | None = None) -> None:
        """Notes that the record was acknowledged.

        Args:
            offset: what the broker answered; -1 if it did not say.
            partition: where it went, if the client chose that.

        Raises:
            UsageError: the outcome was noted before, or the partition is unknown or another than asked for.
        """
        self._settle()
        if partition is None:
            partition = self.partition
        if partition is None or self.partition not in (None, partition):
            raise UsageError(f"{self.value!r} was sent to partition {self.partition} and acknowledged for {partition}")
        self.partition = partition
        self.offset = offset
        self.acked_at = self._history.tick()

    def failed(self) -> None:
        """Notes that the record surely is not in the log (rule 2).

        Raises:
            UsageError: the outcome was noted before.
        """
        self._settle()
        self.failed_at = self._history.tick()

    def _settle(self) -> None:
        if self.acked_at is not None or self.failed_at is not None:
            raise UsageError(f"the outcome of {self.value!r} is noted twice")


class Writer:
    """The sends of one producer instance, in its order; made by `History.writer`."""

    def __init__(self, history: History, name: str) -> None:
        self._history = history
        self.name = name
        self._sends = 0
        self._transactions = 0
        self._transaction: Transaction | None = None

    def send(self, topic: str, value: Hashable, partition: int | None = None) -> Send:
        """Notes that a record is about to be sent, inside the transaction begun last.

        Args:
            topic: where to.
            value: what identifies the record (rule 1).
            partition: None if the client chooses.

        Raises:
            UsageError: the value was sent to this topic before.
        """
        self._sends += 1
        return self._history._add(Send(self._history, self.name, self._sends, topic, value, partition, self._transaction))

    def begin(self) -> Transaction:
        """Notes the begin of a transaction; the sends that follow are in it, until the next `begin` or `leave`."""
        self._transactions += 1
        self._transaction = Transaction(self._history, f"{self.name}/{self._transactions}")
        return self._transaction

    def leave(self) -> None:
        """The sends that follow are in no transaction."""
        self._transaction = None


class Run:
    """What one reader was shown between two jumps in one partition: all that lies in [start, end)."""

    __slots__ = ("at", "committed", "end", "offsets", "reader", "start", "values")

    def __init__(self, reader: str, committed: bool, start: int | None) -> None:
        self.reader = reader
        self.committed = committed
        self.start = start
        self.end = -1 if start is None else start
        self.offsets: list[int] = []
        self.values: list[Hashable] = []
        self.at: list[int] = []  # when each was noted

    def covers(self, offset: int) -> bool:
        return self.start is not None and self.start <= offset < self.end


class Reader:
    """What one consumer was shown; made by `History.reader`."""

    def __init__(self, history: History, name: str, read_committed: bool) -> None:
        self._history = history
        self.name = name
        self.read_committed = read_committed
        self._runs: dict[Place, Run] = {}

    def positioned(self, topic: str, partition: int, offset: int | None = None) -> Run:
        """Notes a jump: an assignment, a seek, a reset.

        Args:
            topic: which topic.
            partition: which partition.
            offset: where to; None if only the next poll will show it.

        Returns:
            What it is shown from there on.
        """
        run = self._runs[topic, partition] = self._history._run((topic, partition), Run(self.name, self.read_committed, offset))
        return run

    def left(self, topic: str, partition: int) -> None:
        """Notes that it no longer reads the partition."""
        self._runs.pop((topic, partition), None)

    def polled(self, topic: str, partition: int, records: Iterable[tuple[int, Hashable]]) -> None:
        """Notes what a poll returned.

        Args:
            topic: which topic.
            partition: which partition.
            records: offset and value of each, in the order in which they came.
        """
        if (topic, partition) not in self._runs:
            self.positioned(topic, partition)
        run = self._runs[topic, partition]
        at = self._history.tick()
        for offset, value in records:
            if run.start is None:
                run.start = offset
            run.offsets.append(offset)
            run.values.append(value)
            run.at.append(at)
            run.end = max(run.end, offset + 1)

    def reached_end(self, topic: str, partition: int, end_offset: int) -> None:
        """Notes that the reader stands at the end of the log: all that was acknowledged before must have been shown to somebody.

        Args:
            topic: which topic.
            partition: which partition.
            end_offset: the end of the log, asked for after the last acknowledgement that counts.
        """
        if (topic, partition) not in self._runs:
            self.positioned(topic, partition)
        run = self._runs[topic, partition]
        if run.start is None:
            run.start = end_offset
        run.end = max(run.end, end_offset)
        self._history._ends[topic, partition].append((run.start, self._history.tick()))


class History:
    """A recorder that many threads may share, and its checker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._time = 0
        self._sends: dict[tuple[str, Hashable], Send] = {}
        self._shown: dict[Place, list[Run]] = defaultdict(list)
        self._ends: dict[Place, list[tuple[int, int]]] = defaultdict(list)  # where the reader came from, and when it was there
        self._names: set[str] = set()
        self._judges: list[Callable[[], list[Finding]]] = []

    def writer(self, name: str) -> Writer:
        """A recorder for one producer instance; a restarted producer is another one.

        Raises:
            UsageError: the name is in use.
        """
        self._take(name)
        return Writer(self, name)

    def reader(self, name: str, read_committed: bool = False) -> Reader:
        """A recorder for one consumer.

        Raises:
            UsageError: the name is in use.
        """
        self._take(name)
        return Reader(self, name, read_committed)

    def judge(self, findings: Callable[[], list[Finding]]) -> None:
        """Has `check` ask for the findings of another checker, too."""
        self._judges.append(findings)

    def _take(self, name: str) -> None:
        with self._lock:
            if name in self._names:
                raise UsageError(f"there is a client {name!r} in this history already")
            self._names.add(name)

    def tick(self) -> int:
        """The number of the next event."""
        with self._lock:
            self._time += 1
            return self._time

    def _add(self, send: Send) -> Send:
        with self._lock:
            if self._sends.setdefault((send.topic, send.value), send) is not send:
                raise UsageError(f"{send.value!r} is sent to {send.topic!r} twice: values must tell records apart")
        return send

    def _run(self, place: Place, run: Run) -> Run:
        with self._lock:
            self._shown[place].append(run)
        return run

    @property
    def sends(self) -> Sequence[Send]:
        """All sends in the order in which they were noted."""
        with self._lock:
            return list(self._sends.values())

    def check(self) -> list[Finding]:
        """Compares what was shown with what was sent. All clients must have ended; the history is not changed.

        Returns:
            What is wrong, by place; empty for a history that a correct log can have.
        """
        found: list[Finding] = []
        by_place: dict[Place, list[Send]] = defaultdict(list)
        for send in self._sends.values():
            if send.partition is not None:
                by_place[send.topic, send.partition].append(send)
        for place in sorted(by_place.keys() | self._shown.keys()):
            found += _Checker(place, by_place[place], self._shown.get(place, []), self._sends, self._ends.get(place, [])).findings()
        return found + self._torn() + [finding for judge in self._judges for finding in judge()]

    def _torn(self) -> list[Finding]:
        """Transactions of which committed readers that passed the whole were shown a part."""
        members: dict[Transaction, list[Send]] = defaultdict(list)
        for send in self._sends.values():
            if send.transaction is not None and send.transaction.may_be_visible and send.acked_at is not None and send.offset >= 0:
                members[send.transaction].append(send)
        shown: dict[str, set[tuple[str, Hashable]]] = defaultdict(set)
        covered: dict[str, list[tuple[Place, Run]]] = defaultdict(list)
        for place, runs in self._shown.items():
            for run in runs:
                if run.committed:
                    shown[run.reader].update((place[0], value) for value in run.values)
                    covered[run.reader].append((place, run))
        found = []
        for reader, runs_of in covered.items():
            for transaction, sends in members.items():
                passed = [
                    send
                    for send in sends
                    if any(place == (send.topic, send.partition) and run.covers(send.offset) for place, run in runs_of)
                ]
                missing = [send for send in passed if (send.topic, send.value) not in shown[reader]]
                if missing and len(missing) < len(passed):
                    first = missing[0]
                    assert first.partition is not None
                    detail = f"{reader} was shown {len(passed) - len(missing)} of {len(passed)} records of transaction {transaction.name}"
                    found.append(Finding(Kind.TORN, first.topic, first.partition, first.offset, first.value, detail))
        return found

    def assert_clean(self, examples: int = 3) -> None:
        """Raises an AssertionError that counts the findings of each kind and shows the first ones, if there are any.

        Args:
            examples: how many of each kind to show.
        """
        found = self.check()
        if not found:
            return
        lines = []
        for kind, count in Counter(finding.kind for finding in found).items():
            lines.append(f"{count} x {kind.name} ({kind.value}):")
            lines += [f"  {finding}" for finding in [each for each in found if each.kind is kind][:examples]]
        raise AssertionError(f"{len(found)} findings in a history of {len(self._sends)} sends\n" + "\n".join(lines))


class _Checker:
    """The findings of one partition."""

    def __init__(
        self, place: Place, sends: list[Send], runs: list[Run], known: dict[tuple[str, Hashable], Send], ends: list[tuple[int, int]]
    ) -> None:
        self.topic, self.partition = place
        self.sends = sends
        self.runs = runs
        self.known = known
        self.ends = ends
        self.found: list[Finding] = []
        self.value_at: dict[int, Hashable] = {}
        self.offsets_of: dict[Hashable, set[int]] = defaultdict(set)

    def _report(self, kind: Kind, offset: int, value: Hashable, detail: str) -> None:
        self.found.append(Finding(kind, self.topic, self.partition, offset, value, detail))

    def findings(self) -> list[Finding]:
        for run in self.runs:
            self._walk(run)
        self._shown_twice()
        self._acknowledged()
        self._order()
        return self.found

    def _walk(self, run: Run) -> None:
        """Each record that a reader was shown, by itself and against what others were shown at its offset."""
        last = -1 if run.start is None else run.start - 1
        for offset, value, at in zip(run.offsets, run.values, run.at, strict=True):
            if offset <= last:
                self._report(Kind.NON_MONOTONIC, offset, value, f"{run.reader} stood at {last + 1}")
            last = offset
            before = self.value_at.setdefault(offset, value)
            if before != value:
                self._report(Kind.INCONSISTENT, offset, value, f"{run.reader} was shown this; shown before: {before!r}")
            self.offsets_of[value].add(offset)
            self._origin(run, offset, value, at)

    def _origin(self, run: Run, offset: int, value: Hashable, at: int) -> None:
        send = self.known.get((self.topic, value))
        if send is None or send.partition not in (None, self.partition):
            sent = "no producer sent it" if send is None else f"it was sent to partition {send.partition}"
            self._report(Kind.PHANTOM, offset, value, f"{run.reader} was shown it, but {sent}")
            return
        if send.sent_at > at:
            self._report(Kind.PHANTOM, offset, value, f"{run.reader} was shown it before it was sent")
        if send.failed_at is not None:
            self._report(Kind.FAILED_READ, offset, value, f"{run.reader} was shown it")
        if send.transaction is None or not run.committed:
            return
        called_at = send.transaction.commit_called_at
        if not send.transaction.may_be_visible:
            how = "aborted" if send.transaction.aborted_at is not None else "never committed"
            self._report(Kind.ABORTED_READ, offset, value, f"{run.reader} was shown it; transaction {send.transaction.name} was {how}")
        elif called_at is not None and called_at > at:
            detail = f"{run.reader} was shown it before the commit of transaction {send.transaction.name} was called"
            self._report(Kind.PRECOMMITTED_READ, offset, value, detail)

    def _shown_twice(self) -> None:
        for value, offsets in self.offsets_of.items():
            if len(offsets) > 1:
                self._report(Kind.DUPLICATE, max(offsets), value, f"it stands at {sorted(offsets)}")

    def _acknowledged(self) -> None:
        """Each acknowledged record: shown where it was acknowledged, and to every reader that came past it."""
        holders: dict[int, Send] = {}
        shown_by = [(run, set(run.offsets)) for run in self.runs]
        for send in self.sends:
            if send.acked_at is None:
                continue
            places = self.offsets_of.get(send.value, set())
            if send.offset < 0:
                if not places and self._must_have_come(send):
                    self._report(Kind.LOST, -1, send.value, f"acknowledged to {send.writer} without an offset")
                continue
            other = holders.setdefault(send.offset, send)
            if other is not send:
                self._report(Kind.INCONSISTENT, send.offset, send.value, f"acknowledged there; so was {other.value!r}")
            elif send.offset in self.value_at and self.value_at[send.offset] != send.value:
                shown = self.value_at[send.offset]
                self._report(Kind.INCONSISTENT, send.offset, send.value, f"acknowledged there; {shown!r} was shown there")
            if places and send.offset not in places:
                self._report(Kind.INCONSISTENT, send.offset, send.value, f"acknowledged there; shown at {sorted(places)}")
                continue
            self._coverage(send, bool(places), [(run, offsets) for run, offsets in shown_by if self._owes(run, send)])

    def _coverage(self, send: Send, shown: bool, owing: list[tuple[Run, set[int]]]) -> None:
        missed = [run for run, offsets in owing if send.offset not in offsets]
        if shown:
            for run in missed:
                self._report(Kind.SKIPPED, send.offset, send.value, f"{run.reader} was not shown it")
        elif missed or self._must_have_come(send):
            readers = ", ".join(sorted({run.reader for run in missed})) or "a reader at the end of the log"
            self._report(Kind.LOST, send.offset, send.value, f"acknowledged to {send.writer}; {readers} came past")

    @staticmethod
    def _owes(run: Run, send: Send) -> bool:
        """Whether this reader came past the record and must have been shown it."""
        if not run.covers(send.offset):
            return False
        return not run.committed or send.transaction is None or send.transaction.committed_at is not None

    def _must_have_come(self, send: Send) -> bool:
        """Whether a reader that would have met it came to the log's end after it had become visible to everybody."""
        visible_at = send.acked_at or 0
        if send.transaction is not None:
            if send.transaction.committed_at is None:
                return False
            visible_at = max(visible_at, send.transaction.committed_at)
        return any(start <= max(send.offset, 0) and visible_at < at for start, at in self.ends)

    def _order(self) -> None:
        """The records of each producer in the order in which they were sent: the longest run of them that is in order is taken for true."""
        by_writer: dict[str, list[tuple[int, int, Hashable]]] = defaultdict(list)
        for value, offsets in self.offsets_of.items():
            send = self.known.get((self.topic, value))
            if send is not None and send.partition in (None, self.partition):
                by_writer[send.writer].append((min(offsets), send.index, value))
        for writer, records in by_writer.items():
            records.sort(key=lambda record: record[:2])
            for position in _out_of_order([index for _, index, _ in records]):
                offset, index, value = records[position]
                self._report(Kind.REORDERED, offset, value, f"it was number {index} that {writer} sent")


def _out_of_order(numbers: list[int]) -> list[int]:
    """The positions that must go so that the rest rises, as few as possible."""
    tails: list[int] = []  # the smallest number that ends a rising run of each length
    tail_at: list[int] = []
    before: list[int] = []
    for position, number in enumerate(numbers):
        length = bisect_right(tails, number)
        before.append(tail_at[length - 1] if length else -1)
        if length == len(tails):
            tails.append(number)
            tail_at.append(position)
        else:
            tails[length] = number
            tail_at[length] = position
    keep = set()
    at = tail_at[-1] if tail_at else -1
    while at >= 0:
        keep.add(at)
        at = before[at]
    return [position for position in range(len(numbers)) if position not in keep]
