"""The transaction engine against a model of the coordinator: random calls, errors and lost answers."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from transaction_engine import GROUP, OFFSETS, OPEN, QUEUES, answer, ask, engine_of

from kafkacore import errors
from kafkacore.producer.transactions import WRITING, Ask, Kind, Outcome, Phase, Step, StepKind
from tests.kit.reached import Reached

reached = Reached(
    "a failed transaction aborted",
    "a commit with nothing in it",
    "a commit asked for while partitions wait to be added",
    "the answer of an end lost",
    "interrupted while ending",
    "interrupted while adding",
    "a batch failed while partitions wait to be added",
    "prepared, then committed",
    "prepared, then aborted",
    "committed by another process",
    "aborted by another process",
    "partitions and offsets in a transaction",
    "transaction.version changed between two transactions",
    "called again while under way",
)


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


FATES = st.sampled_from(["answered", "answered", "answered", "request lost", "answer lost", "interrupted", "busy"])


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
        self.elsewhere: bool | None = None  # another process has ended it: by a commit?
        self.batches = 0

    @property
    def at(self) -> Any:
        return self.engine.at

    def call(self, kind: StepKind, **options: Any) -> None:
        self.step, self.kind = self.engine.submit(kind, **options), kind

    def go_well(self) -> None:
        self.told_the_truth()
        while self.step is not None:
            self.network("answered")
            self.told_the_truth()

    @initialize(ready=st.booleans())
    def is_ready(self, ready: bool) -> None:
        if ready:
            self.init()
            self.go_well()

    @precondition(lambda self: self.at.phase is Phase.READY and self.step is None)
    @rule(
        version_2=st.booleans(),
        queues=st.sets(st.integers(0, 3), min_size=1, max_size=2),
        fate=st.sampled_from(["answered", "interrupted", "answer lost"]),
        offsets=st.booleans(),
        prepared=st.booleans(),
        elsewhere=st.sampled_from([None, True, False]),
        commit=st.sampled_from([None, True, True, False]),
        fates=st.lists(FATES, max_size=3),
    )
    def fill(
        self,
        version_2: bool,
        queues: set[int],
        fate: str,
        offsets: bool,
        prepared: bool,
        elsewhere: bool | None,
        commit: bool | None,
        fates: list[str],
    ) -> None:
        """A transaction with much in it, which single steps seldom come to."""
        self.begin(version_2)
        for index in sorted(queues):
            self.write(index)
        self.network(fate)
        if offsets:
            self.offsets()
            self.go_well()
        if prepared:
            self.prepare()
            self.go_well()
        if self.at.phase is Phase.PREPARED and self.sent and elsewhere is not None:
            self.end_elsewhere(elsewhere)
        elif self.at.phase in (Phase.OPEN, Phase.PREPARED) and commit is not None and self.step is None:
            self.end(commit)
            for each in fates:
                self.network(each)
                self.told_the_truth()

    @precondition(lambda self: self.at.phase is Phase.UNINITIALIZED)
    @rule()
    def init(self) -> None:
        self.call(StepKind.INIT)

    @precondition(lambda self: self.at.phase is Phase.READY and self.step is None)
    @rule(version_2=st.booleans())
    def begin(self, version_2: bool) -> None:
        self.engine.begin(version_2)
        reached("transaction.version changed between two transactions", version_2 != self.version_2)
        self.version_2 = version_2
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
        reached("committed by another process" if commit else "aborted by another process")
        if commit:
            self.told.append(frozenset(self.sent))

    @precondition(lambda self: self.at.phase in (Phase.OPEN, Phase.PREPARED) and self.step is None)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        if self.at.phase is Phase.PREPARED:
            reached("prepared, then committed" if commit else "prepared, then aborted")
        reached("a commit with nothing in it", commit and not self.sent)
        reached("a commit asked for while partitions wait to be added", commit and self.engine.gate.wanted)
        reached("partitions and offsets in a transaction", commit and "g" in self.sent and len(self.sent) > 1)
        self.call(StepKind.COMMIT if commit else StepKind.ABORT)

    @precondition(lambda self: self.at.phase is Phase.ABORTABLE and self.step is None)
    @rule()
    def abort(self) -> None:
        self.call(StepKind.ABORT)

    @precondition(lambda self: self.at.phase in WRITING and self.engine.outstanding is None and self.sent)
    @rule()
    def batch_fails(self) -> None:
        reached("a batch failed while partitions wait to be added", self.engine.gate.wanted)
        self.engine.batch_failed(errors.RecordTooLarge(), True)
        self.failed = True

    @rule()
    def call_again(self) -> None:
        if self.step is not None and not self.step.delivery.finished and self.kind is not StepKind.OFFSETS:
            assert self.kind is not None
            assert self.engine.submit(self.kind) is self.step
            reached("called again while under way")

    @rule(fate=FATES)
    def network(self, fate: str) -> None:
        asked = ask(self.engine)
        if asked is None:
            return
        reached("the answer of an end lost", asked.kind is Kind.END and fate == "answer lost")
        if fate == "interrupted" and asked.kind in (Kind.END, Kind.PARTITIONS):
            reached("interrupted while ending" if asked.kind is Kind.END else "interrupted while adding")
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
            reached("a failed transaction aborted", self.failed)
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
    max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
TestTransactions = reached.by(Transactions, rounds=12)
