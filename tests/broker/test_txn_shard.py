"""The transaction coordinator's state machine: Kafka's table of EndTxn, fencing, epochs that run out, timeouts, records; a model."""

import dataclasses
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from txn_model import P0, P1, T0, TXN, Keeper, next_epoch

from kafkacore import errors
from kafkacore.broker.coordinator_shard import ReplayedRecord
from kafkacore.broker.txns import shard, state
from kafkacore.broker.txns.coordinator import TransactionCoordinator
from kafkacore.broker.txns.markers import RETRY_MS
from kafkacore.broker.txns.shard import MAX_EXPIRED, Decision, ProducerIdAndEpoch
from kafkacore.broker.txns.state import MAX_EPOCH, VALID_PREVIOUS, Transaction, TransactionState
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.protocol.stored import TransactionLogKey, TransactionLogValue, decode_stored
from tests.kit.reached import Reached
from tests.kit.rows import each_row

OK, FENCED, ITS, BUSY = 0, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE, Code.CONCURRENT_TRANSACTIONS


def one_transaction(keeper, producer, commit=True, client=2):
    """A whole transaction; who the producer is afterwards."""
    keeper.add(producer, P0, client=client)
    after = keeper.end(producer, commit, client)
    keeper.complete()
    return after


@pytest.fixture
def keeper():
    return Keeper()


# ---- InitProducerId


def test_every_init_fences_the_producer_before(keeper):
    first = keeper.init()
    assert first == ProducerIdAndEpoch(1000, 0)
    second = keeper.init()
    assert second == next_epoch(first)
    assert keeper.outcome(lambda: keeper.add(first)) == FENCED
    assert keeper.outcome(lambda: keeper.add(ProducerIdAndEpoch(5, 1))) == Code.INVALID_PRODUCER_ID_MAPPING
    assert keeper.outcome(lambda: keeper.add(second)) == OK


@each_row("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_before_the_next_producer_comes(version):
    keeper = Keeper(version)
    client = 2 if version == 2 else 0
    first = keeper.init()
    keeper.add(first, P0, P1, client=client)
    assert keeper.outcome(keeper.init) == BUSY
    assert keeper.state == "PrepareAbort"
    assert keeper.txn.producer_epoch == 1  # markers of the abort shut the first producer out
    assert keeper.outcome(keeper.init) == BUSY
    keeper.complete()
    assert keeper.state == "CompleteAbort"
    assert keeper.init() == next_epoch(first, 2)
    assert keeper.outcome(lambda: keeper.end(first, True, client)) == FENCED


def test_a_producer_may_go_on_with_its_own_identity(keeper):
    first = keeper.init()
    second = keeper.init(expected=first)
    assert second == next_epoch(first)
    assert keeper.init(expected=first) == second  # the answer was lost
    keeper.reload()
    assert keeper.outcome(lambda: keeper.init(expected=first)) == FENCED  # as in Kafka: it is not in the log
    keeper.init()  # somebody else
    assert keeper.outcome(lambda: keeper.init(expected=second)) == FENCED
    assert keeper.outcome(lambda: keeper.init(expected=ProducerIdAndEpoch(1, 0))) == FENCED
    assert Keeper().init(expected=ProducerIdAndEpoch(55, 3)) == ProducerIdAndEpoch(1000, 0)  # a new transactional id


def with_epoch(keeper, epoch):
    """The producer of a transactional id whose epochs are nearly used up."""
    keeper.init()
    keeper.shard.transactions[TXN] = keeper.txn.moved(TransactionState.EMPTY, T0, producer_epoch=epoch)
    return ProducerIdAndEpoch(keeper.txn.producer_id, epoch)


def test_a_producer_id_without_epochs_left_is_replaced():
    keeper = Keeper(1)
    last = with_epoch(keeper, MAX_EPOCH - 1)
    fresh = keeper.init(expected=last)
    assert fresh == ProducerIdAndEpoch(1001, 0)
    assert keeper.txn.previous_producer_id == last.producer_id
    assert keeper.init(expected=last) == fresh  # the answer was lost
    assert keeper.init() == next_epoch(fresh)
    fenced = Keeper(2)
    fenced.add(with_epoch(fenced, MAX_EPOCH - 1))
    assert fenced.outcome(fenced.init) == BUSY
    assert fenced.txn.producer_epoch == MAX_EPOCH  # that of the markers
    fenced.complete()
    assert fenced.init() == ProducerIdAndEpoch(1001, 1)


def test_ending_a_transaction_with_the_last_epoch_gives_a_new_producer_id():
    keeper = Keeper(2)
    last = with_epoch(keeper, MAX_EPOCH - 1)
    keeper.add(last)
    fresh = keeper.end(last, True)
    assert fresh == ProducerIdAndEpoch(1001, 0)
    assert (keeper.txn.producer_id, keeper.txn.producer_epoch) == (last.producer_id, MAX_EPOCH)  # markers go out under the old id
    keeper.complete()
    assert (keeper.txn.producer_id, keeper.txn.producer_epoch, keeper.txn.next_producer_id) == (1001, 0, -1)
    assert keeper.end(last, True) == fresh  # the answer was lost
    assert keeper.outcome(lambda: keeper.end(last, False)) == ITS
    for stranger in (last._replace(epoch=3), last._replace(producer_id=77)):
        assert keeper.outcome(lambda stranger=stranger: keeper.end(stranger, True)) == Code.INVALID_PRODUCER_ID_MAPPING
    assert one_transaction(keeper, fresh) == next_epoch(fresh)


# ---- EndTxn


def in_state(version, state, client):
    """A keeper with a transactional id in a state, and the producer that has the current epoch."""
    keeper = Keeper(version)
    producer = keeper.init()
    if state != "Empty":
        keeper.add(producer, client=client)
    if state not in ("Empty", "Ongoing"):
        producer = keeper.end(producer, "Commit" in state, client)
    if state.startswith("Complete"):
        keeper.complete()
    assert keeper.state == state
    return keeper, producer


@each_row(
    ("state", "abort_retry", "abort", "commit_retry", "commit"),
    [
        ("Empty", FENCED, "bump", FENCED, ITS),
        ("Ongoing", FENCED, "bump", FENCED, "bump"),
        ("CompleteAbort", OK, "bump", ITS, ITS),
        ("CompleteCommit", ITS, "bump", OK, ITS),
        ("PrepareAbort", BUSY, BUSY, BUSY, BUSY),
        ("PrepareCommit", BUSY, BUSY, BUSY, BUSY),
    ],
)
def test_the_table_of_end_txn_with_version_2(state, abort_retry, abort, commit_retry, commit):
    for commits, by, expected in ((False, -1, abort_retry), (False, 0, abort), (True, -1, commit_retry), (True, 0, commit)):
        keeper, producer = in_state(2, state, 2)
        asked, before = next_epoch(producer, by), keeper.txn
        if expected == "bump":
            keeper.now_ms += 5
            assert keeper.end(asked, commits) == next_epoch(asked)
            assert keeper.state == ("PrepareCommit" if commits else "PrepareAbort")
            assert (keeper.txn.start_ms, keeper.txn.client_version) == (T0 if state == "Ongoing" else T0 + 5, 2)
        elif expected == OK:
            assert keeper.end(asked, commits) == producer
            assert keeper.txn == before
        else:
            assert keeper.outcome(partial(keeper.end, asked, commits)) == expected
            assert keeper.txn == before
    keeper, producer = in_state(2, state, 2)
    assert keeper.outcome(lambda: keeper.end(next_epoch(producer), True)) in (FENCED, BUSY)


@each_row("version", [0, 1, 2])
@each_row(
    ("state", "abort", "commit"),
    [
        ("Empty", ITS, ITS),
        ("Ongoing", "PrepareAbort", "PrepareCommit"),
        ("CompleteAbort", OK, ITS),
        ("CompleteCommit", ITS, OK),
        ("PrepareAbort", BUSY, BUSY),
        ("PrepareCommit", BUSY, BUSY),
    ],
)
def test_the_table_of_end_txn_of_an_old_client(version, state, abort, commit):
    for commits, expected in ((False, abort), (True, commit)):
        keeper, producer = in_state(version, state, 0)
        assert keeper.outcome(partial(keeper.end, next_epoch(producer, -1), commits, 0)) == FENCED
        if isinstance(expected, str):
            assert keeper.end(producer, commits, 0) == producer  # the epoch stays
            assert keeper.state == expected
        else:
            assert keeper.outcome(partial(keeper.end, producer, commits, 0)) == expected


# ---- partitions, timeouts, expiry


def test_partitions_gather_and_begin_the_transaction(keeper):
    producer = keeper.init()
    keeper.add(producer, P0)
    keeper.now_ms += 5
    keeper.add(producer, P1)
    assert (keeper.txn.start_ms, keeper.txn.update_ms) == (T0, T0 + 5)
    assert keeper.txn.partitions == {P0, P1}
    records = len(keeper.log)
    keeper.add(producer, P0)
    assert len(keeper.log) == records  # nothing new, nothing written
    after = keeper.end(producer, True)
    assert keeper.outcome(lambda: keeper.add(after)) == BUSY
    assert keeper.outcome(lambda: keeper.shard.verify_partitions(TXN, after, [P0])) == BUSY
    keeper.complete()
    keeper.now_ms += 5
    keeper.add(after, P1)
    assert (keeper.txn.start_ms, keeper.txn.partitions) == (keeper.now_ms, {P1})


def test_verification_finds_what_is_missing():
    keeper = Keeper(1)
    producer = keeper.init()
    keeper.add(producer, P0, client=0)
    found = keeper.shard.verify_partitions(TXN, producer, [P0, P1])
    assert found[P0] is None
    assert found[P1].code == Code.TRANSACTION_ABORTABLE
    with pytest.raises(errors.ProducerFenced):
        keeper.shard.verify_partitions(TXN, next_epoch(producer, -1), [P0])
    keeper.end(producer, True, 0)
    with pytest.raises(errors.ConcurrentTransactions):
        keeper.shard.verify_partitions(TXN, producer, [P0])


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_timed_out_is_aborted_and_its_producer_fenced(version):
    keeper = Keeper(version)
    producer = keeper.init()
    keeper.add(producer, client=2 if version == 2 else 0)
    began = keeper.txn
    keeper.now_ms += 60_001
    keeper.apply(keeper.shard.abort_timed_out(began, keeper.now_ms))
    assert (keeper.state, keeper.txn.producer_epoch) == ("PrepareAbort", 1)
    keeper.complete()
    assert keeper.outcome(lambda: keeper.add(producer)) == FENCED


def test_a_timeout_of_an_earlier_transaction_does_nothing(keeper):
    producer = keeper.init()
    keeper.add(producer)
    began = keeper.txn
    producer = keeper.end(producer, True)
    keeper.complete()
    keeper.now_ms += 1
    keeper.add(producer)
    assert keeper.shard.abort_timed_out(began, keeper.now_ms).records == []
    for change in ({"transactional_id": "x"}, {"producer_id": 1}, {"producer_epoch": 0}, {"start_ms": T0}):
        assert keeper.shard.abort_timed_out(dataclasses.replace(keeper.txn, **change), keeper.now_ms).records == []
    assert keeper.state == "Ongoing"
    assert len(keeper.shard.abort_timed_out(keeper.txn, keeper.now_ms).records) == 1


def test_unused_transactional_ids_expire_but_not_inside_a_transaction(keeper):
    producer = keeper.init()
    assert keeper.shard.expire(T0 + 999, 1000).records == []
    keeper.add(producer)
    assert keeper.shard.expire(T0 + 5000, 1000).records == []
    keeper.end(producer, False)
    assert keeper.shard.expire(T0 + 5000, 1000).records == []
    keeper.complete()
    for nth in range(500):
        keeper.apply(keeper.shard.init_producer_id(f"t{nth}", 1, None, T0))
    stays = keeper.apply(keeper.shard.init_producer_id("stays", 1, None, T0)).producer
    after = keeper.apply(keeper.shard.init_producer_id("stays", 1, stays, T0)).producer
    keeper.apply(keeper.shard.add_partitions("stays", after, (P0,), 2, T0))
    assert keeper.apply(keeper.shard.expire(T0 + 1000, 1000)) == 500  # at a time
    assert keeper.apply(keeper.shard.expire(T0 + 1000, 1000)) == 1
    assert keeper.shard.transactions.keys() == keeper.shard.last_epochs.keys() == {"stays"}
    assert keeper.outcome(lambda: keeper.add(producer)) == Code.INVALID_PRODUCER_ID_MAPPING


class NotedTimers:
    def __init__(self):
        self.noted, self.calls = {}, []

    def schedule(self, key, delay_ms, operation):
        self.noted[key] = delay_ms, operation
        self.calls.append((key, delay_ms))

    def cancel(self, key):
        self.noted.pop(key, None)

    def is_scheduled(self, key):
        return key in self.noted


class Coordinated(Keeper):
    """What it writes is replayed in a coordinator's shard, too, whose runtime notes what is to be written and answers reads as here."""

    def __init__(self, *answers):
        self.timers, self.clock = NotedTimers(), ManualClock(wall_ms=T0)
        config = BrokerConfig(transaction_remove_expired_transaction_cleanup_interval_ms=5_000, transactional_id_expiration_ms=1_000)
        self.coordinator = TransactionCoordinator(config, self.clock, lambda: 1, lambda: 2, lambda done: done(7), lambda partition: 3)
        self.written, self.later, self.sent = [], [], []
        runtime = SimpleNamespace(
            held=lambda: range(len(answers)),
            read_committed=lambda partition, look, done: done(answers[partition]),
            write=lambda partition, operation, done, key: self.written.append((operation, done)),
            timer=SimpleNamespace(add=self.later.append),
        )
        self.coordinator.attach(runtime, SimpleNamespace(send=lambda *marker: self.sent.append(marker)))
        super().__init__()
        self.held = self.coordinator.make_shard(0, self.timers)
        self.held.loaded()

    def apply(self, result):
        before = len(self.log)
        decision = super().apply(result)
        for record in self.log[before:]:
            self.held.replay(ReplayedRecord(0, -1, -1, *record))
        return decision


def test_timers_follow_the_state():
    keeper = Coordinated()
    producer = keeper.init()
    assert keeper.timers.calls == [("expire", 5_000)]
    keeper.add(producer)
    keeper.now_ms += 7
    keeper.clock.advance(7)
    keeper.add(producer, P1)
    assert keeper.timers.calls[1:] == [(f"timeout {TXN}", 60_001)]  # from its begin on
    producer = keeper.end(producer, True)
    assert keeper.timers.noted.keys() == {"expire"}
    keeper.complete()
    keeper.clock.advance(70_000)
    keeper.add(producer)  # at a time that has passed by now
    assert keeper.timers.noted[f"timeout {TXN}"][0] == 0
    keeper.timers.noted[f"timeout {TXN}"][1](keeper.held)
    _, failed = keeper.written.pop()
    keeper.timers.calls.clear()
    failed(errors.NotEnoughReplicas())
    assert keeper.timers.calls == [(f"timeout {TXN}", RETRY_MS)]
    failed(Decision())
    keeper.end(producer, True)
    failed(errors.NotEnoughReplicas())  # it has ended
    assert len(keeper.timers.calls) == 1
    keeper.coordinator.marked(keeper.held, keeper.txn)
    _, failed = keeper.written.pop()
    failed(errors.NotEnoughReplicas())
    keeper.later.pop().run()
    assert len(keeper.written) == 1 and keeper.later == []
    keeper.held.unloaded()
    failed(errors.NotEnoughReplicas())
    keeper.coordinator.marked(keeper.held, keeper.txn)
    assert len(keeper.written) == 1 and keeper.later == []


def test_what_has_expired_is_forgotten_in_steps():
    keeper = Coordinated()
    for nth in range(MAX_EXPIRED + 1):
        keeper.apply(keeper.shard.init_producer_id(f"t{nth}", 1, None, T0))
    keeper.clock.advance(1_000)
    expire, known = keeper.timers.noted["expire"][1], []
    for _ in range(3):
        keeper.timers.calls.clear()
        assert keeper.apply(expire(keeper.held)) is None
        known.append((len(keeper.held.transactions), keeper.timers.calls[:]))
    assert known == [(1, [("expire", 0)]), (0, [("expire", 5_000)]), (0, [])]


LOADING, MOVED = errors.CoordinatorLoadInProgress(), errors.NotCoordinator()


@each_row("answers, listed", [([], []), ([["a"], MOVED, ["b"]], ["a", "b"]), ([["a"], LOADING, ["b"]], LOADING), ([MOVED], [])])
def test_a_list_is_complete_or_an_error(answers, listed):
    outcomes = []
    Coordinated(*answers).coordinator.list(None, outcomes.append)
    assert outcomes == [listed]


def test_markers_are_ticked_off(keeper):
    producer = keeper.init()
    keeper.add(producer, P0, P1)
    keeper.end(producer, True)
    prepared = keeper.txn
    other = keeper.apply(keeper.shard.init_producer_id("other", 1, None, T0)).producer
    keeper.apply(keeper.shard.add_partitions("other", other, (P0,), 2, T0))
    keeper.apply(keeper.shard.end("other", other, False, 2, T0))
    for change in ({"transactional_id": "x"}, {"producer_id": 1}, {"producer_epoch": 9}, {"start_ms": 1}, {"update_ms": 1}, {"state": 3}):
        unlike = dataclasses.replace(prepared, **change)
        assert not keeper.shard.marked(unlike, [P0, P1]) and keeper.shard.complete(unlike, T0).records == []
    assert not keeper.shard.marked(prepared, [P0])
    assert keeper.shard.partitions_of(prepared) == {P1}
    assert keeper.shard.marked(prepared, [P1])
    keeper.apply(keeper.shard.complete(prepared, T0))
    assert keeper.state == "CompleteCommit"
    assert keeper.shard.partitions_of(keeper.shard.transactions["other"]) == {P0}
    assert not keeper.shard.marked(prepared, [P1])  # a late confirmation
    assert keeper.shard.complete(prepared, T0).records == []


# ---- records


def test_records_have_kafkas_form(keeper):
    producer = keeper.init()
    keeper.add(producer, P0, P1, ("other", 7))
    key, value = keeper.log[0]
    assert decode_stored(TransactionLogKey, key).transactional_id == TXN
    empty = decode_stored(TransactionLogValue, value)
    assert (value[:2], empty.transaction_status, empty.transaction_partitions) == (b"\0\1", 0, None)
    ongoing = decode_stored(TransactionLogValue, keeper.log[1].value)
    assert [(each.topic, each.partition_ids) for each in ongoing.transaction_partitions] == [("other", [7]), ("topic", [0, 1])]
    assert (ongoing.client_transaction_version, ongoing.previous_producer_id) == (2, 1000)
    keeper.version = 0
    keeper.end(producer, True)
    assert keeper.log[2].value[:2] == b"\0\0"


GOOD = Transaction(TXN, 5, state=TransactionState.ONGOING).record(1).value
AT_STATUS = 2 + 8 + 2 + 4  # version, producer id, epoch, timeout
NEVER_STORED = [GOOD[:AT_STATUS] + bytes([status & 0xFF]) + GOOD[AT_STATUS + 1 :] for status in (6, 7, 8, -1)]


@each_row("value", [*NEVER_STORED, b"", b"\0", b"\0\7" + bytes(40), b"\0\1" + bytes(3)])
def test_a_broken_value_is_corrupt(value):
    assert Transaction.from_value(TXN, GOOD).state is TransactionState.ONGOING
    with pytest.raises(errors.CorruptDataError):
        Transaction.from_value(TXN, value)


def test_what_can_never_be_written_is_refused(keeper):
    producer = keeper.init()
    keeper.add(producer)
    assert keeper.outcome(lambda: keeper.end(producer._replace(producer_id=5), True)) == Code.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(errors.CorruptDataError, match="has a key"):
        keeper.shard.replay(ReplayedRecord(0, -1, -1, None, GOOD))
    with pytest.raises(errors.InternalError, match="cannot go from Ongoing to CompleteCommit"):
        keeper.txn.moved(TransactionState.COMPLETE_COMMIT, T0)


# ---- model


reached = Reached(
    "fenced",
    "asked while markers are written",
    "an init aborts what is open",
    "an end sent again",
    "the last epoch ended",
    "an open transaction timed out",
    "read again while markers are written",
    "read again inside a transaction",
    "transaction.version changed inside a transaction",
)


class TransactionMachine(RuleBasedStateMachine):
    """Producers old and new, of both protocols, markers that take their time, reloads: whatever they do,

    - a reload finds what was known,
    - only moves of the table happen,
    - a transaction that was committed is never aborted, nor the other way round,
    - one (producer id, epoch) is never given to two producers.
    """

    def __init__(self):
        super().__init__()
        self.last_epoch = mock.patch.object(state, "MAX_EPOCH", 4), mock.patch.object(shard, "MAX_EPOCH", 4)
        for each in self.last_epoch:  # epochs run out within an example
            each.start()
        self.keeper = Keeper(2)
        self.producers = []
        self.given = set()
        self.seen = 0

    def teardown(self):
        for each in self.last_epoch:
            each.stop()

    def attempt(self, act):
        before = len(self.keeper.log)
        try:
            return act()
        except errors.KafkaError as error:
            reached("fenced", error.code == Code.PRODUCER_FENCED)
            reached("asked while markers are written", error.code == Code.CONCURRENT_TRANSACTIONS)
            assert error.code in (
                Code.PRODUCER_FENCED,
                Code.INVALID_TXN_STATE,
                Code.CONCURRENT_TRANSACTIONS,
                Code.INVALID_PRODUCER_ID_MAPPING,
            )
            return None
        finally:
            assert len(self.keeper.log) - before <= 1

    def producer(self, nth):
        """The newest is 0."""
        return self.producers[-1 - nth % len(self.producers)]

    @rule(version=st.sampled_from([0, 1, 2]), inside=st.booleans())
    def upgrade(self, version, inside):
        self.enter(inside)
        reached("transaction.version changed inside a transaction", self.producers and self.keeper.state == "Ongoing")
        self.keeper.version = version

    @initialize()
    def first(self):
        self.init(False)

    def enter(self, inside):
        """The newest producer begins a transaction, perhaps."""
        if inside and self.producers:
            self.add(0, P0, 2)

    @rule(inside=st.booleans())
    def init(self, inside):
        self.enter(inside)
        reached("an init aborts what is open", self.producers and self.keeper.state == "Ongoing")
        got = self.attempt(self.keeper.init)
        if got is not None:
            assert got not in self.given
            self.given.add(got)
            self.producers.append(got)

    @precondition(lambda self: self.producers)
    @rule(nth=st.sampled_from([0, 0, 1, 2]))
    def init_again(self, nth):
        before = (self.keeper.txn.producer_id, self.keeper.txn.producer_epoch)
        got = self.attempt(lambda: self.keeper.init(expected=self.producer(nth)))
        if got is not None and got != before:
            assert got not in self.given
            self.given.add(got)
            self.producers.append(got)

    @precondition(lambda self: self.producers)
    @rule(nth=st.sampled_from([0, 0, 1, 2]), partition=st.sampled_from([P0, P1]), client=st.sampled_from([0, 2]))
    def add(self, nth, partition, client):
        self.attempt(lambda: self.keeper.add(self.producer(nth), partition, client=client))

    @precondition(lambda self: self.producers)
    @rule(nth=st.sampled_from([0, 0, 1, 2]), commit=st.booleans(), client=st.sampled_from([0, 2]))
    def end(self, nth, commit, client):
        was, written = self.producer(nth).producer_id, len(self.keeper.log)
        got = self.attempt(lambda: self.keeper.end(self.producer(nth), commit, client))
        reached("an end sent again", got is not None and got in self.producers and len(self.keeper.log) == written)
        reached("the last epoch ended", got is not None and got.producer_id != was)
        if got is not None and got not in self.producers:
            assert got not in self.given
            self.given.add(got)
            self.producers.append(got)

    @precondition(lambda self: self.producers)
    @rule(commit=st.booleans(), client=st.sampled_from([0, 2]), is_done=st.sampled_from([True, True, False]), again=st.booleans())
    def whole_transaction(self, commit, client, is_done, again):
        self.add(0, P1, client)
        asked = self.producer(0)
        self.end(0, commit, client)
        if is_done and self.keeper.txn.state.is_prepared:
            self.markers()
        if again:  # the answer was lost
            self.end(list(reversed(self.producers)).index(asked), commit, client)

    @precondition(lambda self: self.producers and self.keeper.txn.state.is_prepared)
    @rule()
    def markers(self):
        self.keeper.complete()

    @precondition(lambda self: self.producers)
    @rule(inside=st.booleans())
    def time_out(self, inside):
        self.enter(inside)
        self.keeper.now_ms += 100_000
        reached("an open transaction timed out", self.keeper.state == "Ongoing")
        self.attempt(lambda: self.keeper.apply(self.keeper.shard.abort_timed_out(self.keeper.txn, self.keeper.now_ms)))

    @rule(inside=st.booleans())
    def reload(self, inside):
        self.enter(inside)
        reached("read again while markers are written", self.producers and self.keeper.txn.state.is_prepared)
        reached("read again inside a transaction", self.producers and self.keeper.state == "Ongoing")
        self.keeper.reload()

    @invariant()
    def the_log_tells_everything(self):
        replayed = self.keeper.replayed()
        assert replayed.transactions == self.keeper.shard.transactions
        assert replayed.unmarked.keys() == self.keeper.shard.unmarked.keys()

    @invariant()
    def only_legal_moves_and_one_outcome(self):
        states = [Transaction.from_value(TXN, record.value) for record in self.keeper.log[max(self.seen - 1, 0) :]]
        for before, after in pairwise(states):
            assert before.state in VALID_PREVIOUS[after.state]
            epochs = (before.producer_id, before.producer_epoch), (after.producer_id, after.producer_epoch)
            assert epochs[1] >= epochs[0]  # neither ids nor epochs go back
            if before.state.is_prepared:
                wanted = "Commit" if before.state is TransactionState.PREPARE_COMMIT else "Abort"
                assert after.state.label == "Complete" + wanted
        self.seen = len(self.keeper.log)


TransactionMachine.TestCase.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
TestCoordinator = reached.by(TransactionMachine, rounds=6)
