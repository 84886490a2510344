"""What transactional producers did, and whether transactions that keep their promises could have come of it.

Producers note what they ask for and what comes back; `History.check` judges that with what readers were shown:

    history = History()
    transactions = TransactionHistory(history)
    producer = transactions.producer("copier, first life", "copier")
    producer.initializing()                                # before init_transactions(), as always the call before the client's
    producer.initialized()
    transaction = producer.begin()
    send = producer.send("results", b"17!", 0, source=(("orders", 0), 17))
    producer.offsets("copiers", {("orders", 0): 18})       # before send_offsets_to_transaction()
    transaction.commit()
    transaction.committed()
    look = transactions.look("copiers")                    # before the offsets are asked for
    look.found({("orders", 0): 18})

Rules, beside those of history.py:

1. A transaction without `committed` and `aborted` is *unknown*: it may be either, but it is whole. What shows that it was committed (a
   record that a committed reader was shown, an offset that was found) holds for all of it.
   [test_every_fault_planted_in_a_transaction_is_found_and_nothing_else]
2. Once another producer with the same transactional id is initialized, nothing of the first one is taken any more: no commit that it calls
   from then on, no record that it sends. [test_every_fault_planted_in_a_transaction_is_found_and_nothing_else]
3. A look finds an offset of a transaction whose commit was called, and of the last one as far as the order of calls and results tells.
   Offsets that are committed outside of transactions are not noted, so there must be none.
   [test_every_fault_planted_in_a_transaction_is_found_and_nothing_else]
4. A send may name its source, the record that it is made of. Then each record below the offset that the last look found has its result in
   one committed transaction, and no other record has one. The group has to begin at the start of the log, and every record needs a result.
   [test_every_fault_planted_in_a_transaction_is_found_and_nothing_else]
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

from kafkacore.errors import UsageError
from kafkacore.testing.history import Finding, History, Kind, Place, Send, Transaction

__all__ = ["Look", "Producer", "TransactionHistory"]

Source = tuple[Place, int]


class _Promise(NamedTuple):
    """An offset that a transaction holds, and when that was asked for."""

    offset: int
    asked_at: int


class _Attempt:
    """A transaction with its records and offsets."""

    __slots__ = ("offsets", "producer", "sends", "transaction")

    def __init__(self, producer: Producer, transaction: Transaction) -> None:
        self.producer = producer
        self.transaction = transaction
        self.sends: list[Send] = []
        self.offsets: dict[tuple[str, Place], _Promise] = {}


class Producer:
    """One producer instance; made by `TransactionHistory.producer`. It may be noted from one thread only."""

    def __init__(self, owner: TransactionHistory, name: str, transactional_id: str) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.initializing_at: int | None = None
        self.initialized_at: float = math.inf
        self._owner = owner
        self._writer = owner.history.writer(name)
        self._attempt: _Attempt | None = None

    def initializing(self) -> None:
        """Notes that `init_transactions` is about to be called."""
        self.initializing_at = self._owner.history.tick()

    def initialized(self) -> None:
        """Notes that `init_transactions` succeeded.

        Raises:
            UsageError: it was not called.
        """
        if self.initializing_at is None:
            raise UsageError(f"{self.name}: initialized, but init_transactions was not called")
        self.initialized_at = self._owner.history.tick()

    def begin(self) -> Transaction:
        """Notes the begin of a transaction; the sends and offsets that follow are in it."""
        self._attempt = self._owner._begins(_Attempt(self, self._writer.begin()))
        return self._attempt.transaction

    def send(self, topic: str, value: Hashable, partition: int, source: Source | None = None) -> Send:
        """Notes that a record is about to be sent.

        Args:
            topic: where to.
            value: what identifies the record.
            partition: where to.
            source: the place and offset of the record that it is made of.

        Raises:
            UsageError: no transaction was begun, or the value was sent before.
        """
        if self._attempt is None:
            raise UsageError(f"{self.name} sends {value!r} without a transaction")
        send = self._writer.send(topic, value, partition)
        self._attempt.sends.append(send)
        if source is not None:
            self._owner._sources[send] = source
        return send

    def offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Notes that offsets are about to be sent to the transaction.

        Raises:
            UsageError: no transaction was begun.
        """
        if self._attempt is None:
            raise UsageError(f"{self.name} sends offsets without a transaction")
        asked_at = self._owner.history.tick()
        for place, offset in offsets.items():
            self._attempt.offsets[group, place] = _Promise(offset, asked_at)


class Look:
    """A question for the committed offsets of a group; made by `TransactionHistory.look`."""

    __slots__ = ("_history", "asked_at", "found_at", "group", "offsets")

    def __init__(self, history: History, group: str) -> None:
        self._history = history
        self.group = group
        self.asked_at = history.tick()
        self.found_at = -1
        self.offsets: dict[Place, int | None] = {}

    def found(self, offsets: Mapping[Place, int | None]) -> None:
        """Notes the answer.

        Args:
            offsets: None where the group has none; places that are left out were not asked for.
        """
        self.offsets = dict(offsets)
        self.found_at = self._history.tick()


class TransactionHistory:
    """The transactional producers of one cluster, and their checker, which `History.check` calls.

    Args:
        history: where the records come from.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._producers: list[Producer] = []
        self._attempts: list[_Attempt] = []
        self._looks: list[Look] = []
        self._sources: dict[Send, Source] = {}
        history.judge(self._findings)

    def producer(self, name: str, transactional_id: str) -> Producer:
        """A recorder for one producer instance; a restarted producer is another one.

        Raises:
            UsageError: the name is in use.
        """
        producer = Producer(self, name, transactional_id)
        self._producers.append(producer)
        return producer

    def look(self, group: str) -> Look:
        """Notes that a group's committed offsets are about to be asked for, waiting for open transactions (`require_stable`)."""
        look = Look(self.history, group)
        self._looks.append(look)
        return look

    def _begins(self, attempt: _Attempt) -> _Attempt:
        self._attempts.append(attempt)
        return attempt

    def _findings(self) -> list[Finding]:
        looks = [look for look in self._looks if look.found_at >= 0]
        return list(_Judge(self.history, self._producers, self._attempts, looks, self._sources).findings())


class _Judge:
    """What can be concluded from a history, and what contradicts it."""

    def __init__(
        self, history: History, producers: list[Producer], attempts: list[_Attempt], looks: list[Look], sources: dict[Send, Source]
    ) -> None:
        self.attempts = attempts
        self.looks = looks
        self.sources = sources
        self.shown_at: dict[tuple[str, Hashable], int] = {}  # to a committed reader
        self.in_log: set[tuple[str, Hashable]] = set()  # as far as anybody was shown
        self.passed: set[Place] = set()  # by a committed reader, from the start to the end
        self.records: dict[Place, set[int]] = defaultdict(set)  # offsets of committed records
        for place, runs in history._shown.items():
            end = max(run.end for run in runs)
            for run in runs:
                values = [(place[0], value) for value in run.values]
                self.in_log.update(values)
                if not run.committed:
                    continue
                self.records[place].update(run.offsets)
                if run.start == 0 and run.end == end and history._ends.get(place):
                    self.passed.add(place)
                for value, at in zip(values, run.at, strict=True):
                    self.shown_at[value] = min(at, self.shown_at.get(value, at))
        self.holding: dict[tuple[str, Place], list[_Attempt]] = defaultdict(list)  # by whose offsets they hold
        self.offering: dict[tuple[str, Place, int], list[_Attempt]] = defaultdict(list)  # those of them that may have been stored
        for attempt in attempts:
            for (group, place), promise in attempt.offsets.items():
                self.holding[group, place].append(attempt)
                if attempt.transaction.may_be_visible:
                    self.offering[group, place, promise.offset].append(attempt)
        self.taken_over_at = {producer: self._taken_over_at(producer, producers) for producer in producers}
        self.committed_at = {attempt: self._committed_at(attempt) for attempt in attempts}

    @staticmethod
    def _taken_over_at(producer: Producer, producers: list[Producer]) -> float:
        """When another producer surely had its transactional id."""
        return min(
            (
                other.initialized_at
                for other in producers
                if other.transactional_id == producer.transactional_id
                and other.initializing_at is not None
                and other.initializing_at > producer.initialized_at
            ),
            default=math.inf,
        )

    def _committed_at(self, attempt: _Attempt) -> float:
        """When a transaction surely was committed; infinity for one that need not be."""
        if attempt.transaction.committed_at is not None:
            return attempt.transaction.committed_at
        if not attempt.transaction.may_be_visible:
            return math.inf
        shown = [at for send in attempt.sends if (at := self._visible(send)) is not None]
        found = [
            look.found_at
            for look in self.looks
            for place, offset in look.offsets.items()
            if offset is not None and self._candidates(look, place, offset) == [attempt]
        ]
        return min(shown + found, default=math.inf)

    def _visible(self, send: Send) -> int | None:
        return self.shown_at.get((send.topic, send.value))

    def _candidates(self, look: Look, place: Place, offset: int) -> list[_Attempt]:
        """The transactions that may have stored what a look has found."""
        found = self.offering.get((look.group, place, offset), ())
        return [attempt for attempt in found if (attempt.transaction.commit_called_at or 0) < look.found_at]

    def findings(self) -> Iterator[Finding]:
        yield from self._fenced()
        yield from self._whole()
        for look in self.looks:
            for place, offset in look.offsets.items():
                yield from self._stored(look, place, offset)
        yield from self._results()

    def _fenced(self) -> Iterator[Finding]:
        """Rule 2."""
        for attempt in self.attempts:
            at = self.taken_over_at[attempt.producer]
            late = [send for send in attempt.sends if send.sent_at > at]
            for send in late:
                if send.acked_at is not None or (send.topic, send.value) in self.in_log:
                    yield self._about(Kind.FENCED, send, f"{attempt.producer.name} sent it when another producer had its transactional id")
            if (attempt.transaction.commit_called_at or 0) > at and self.committed_at[attempt] < math.inf:
                for send in attempt.sends[:1]:
                    detail = f"transaction {attempt.transaction.name} was committed when another producer had its transactional id"
                    yield self._about(Kind.FENCED, send, detail)

    def _whole(self) -> Iterator[Finding]:
        """Rule 1, for records."""
        for attempt in self.attempts:
            if self.committed_at[attempt] == math.inf:
                continue
            for send in attempt.sends:
                if send.failed_at is None and (send.topic, send.partition) in self.passed and self._visible(send) is None:
                    detail = f"transaction {attempt.transaction.name} was committed, and readers of the whole log were not shown it"
                    yield self._about(Kind.TORN, send, detail)

    def _stored(self, look: Look, place: Place, offset: int | None) -> Iterator[Finding]:
        """Rule 3."""
        candidates = [] if offset is None else self._candidates(look, place, offset)
        if offset is not None and not candidates:
            yield Finding(Kind.OFFSETS_LEAKED, *place, offset, None, f"group {look.group} had it by event {look.found_at}")
            return
        over_at = max((self._over_at(candidate) for candidate in candidates), default=0)
        for attempt in self.holding.get((look.group, place), ()):
            if over_at < attempt.offsets[look.group, place].asked_at and self.committed_at[attempt] < look.asked_at:
                detail = f"group {look.group} had {offset} when transaction {attempt.transaction.name} was committed"
                yield Finding(Kind.OFFSETS_LOST, *place, attempt.offsets[look.group, place].offset, None, detail)

    def _over_at(self, attempt: _Attempt) -> float:
        """From when on the offsets of a transaction are stored, if they are at all."""
        return min(self.committed_at[attempt], self.taken_over_at[attempt.producer])

    def _results(self) -> Iterator[Finding]:
        """Rule 4."""
        results: dict[tuple[str, Place], dict[int, Send]] = defaultdict(dict)
        for attempt in self.attempts:
            groups = {group for group, _ in attempt.offsets}
            if any(send in self.sources for send in attempt.sends):
                for held in attempt.offsets:
                    results[held]
            for send in attempt.sends:
                if send not in self.sources or (self._visible(send) is None and self.committed_at[attempt] == math.inf):
                    continue
                place, offset = self.sources[send]
                for group in groups:
                    first = results[group, place].setdefault(offset, send)
                    if first is not send:
                        yield self._about(Kind.REPEATED, send, f"made of {place[0]}-{place[1]}, offset {offset}, as was {first.value!r}")
        for (group, place), found in results.items():
            last = max((look for look in self.looks if look.group == group and place in look.offsets), key=_asked_at, default=None)
            if last is None:
                continue
            end = last.offsets[place] or 0
            for offset, send in found.items():
                if offset >= end and (self._visible(send) or math.inf) < last.asked_at:
                    yield Finding(Kind.OFFSETS_LOST, *place, offset, send.value, f"its result is visible, and group {group} is at {end}")
            for offset in sorted(self.records.get(place, ())):
                if offset < end and offset not in found:
                    yield Finding(Kind.UNWRITTEN, *place, offset, None, f"group {group} is at {end}")

    @staticmethod
    def _about(kind: Kind, send: Send, detail: str) -> Finding:
        return Finding(kind, send.topic, -1 if send.partition is None else send.partition, send.offset, send.value, detail)


def _asked_at(look: Look) -> int:
    return look.asked_at
