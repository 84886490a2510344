"""CoordinatorRuntime: operations in sequence, state by replay, answers in the order of the log, loading, losing the partition."""

import struct
from collections import Counter

import pytest
from controlling import delete_topic, submit

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.controller import ControllerHost, LocalControllerLink
from kafkacore.broker.coordinator import CoordinatorRuntime
from kafkacore.broker.coordinator_shard import CoordinatorRecord, CoordinatorResult, java_hash, partition_for
from kafkacore.broker.internal_topics import GROUP_TOPIC, creation_of
from kafkacore.broker.log import Log, LogManager
from kafkacore.broker.log.cleaner import emptied
from kafkacore.broker.replicas import ReplicaManager
from kafkacore.broker.txns.coordinator import TransactionCoordinator
from kafkacore.broker.txns.shard import Filter
from kafkacore.broker.txns.state import Transaction, TransactionState
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import control_batch, read_batches
from kafkacore.timer import LoopTimer
from kafkacore.types import Node
from tests.kit.rows import each_row


class Ledger:
    """A shard: amounts by name; those of open transactions apart."""

    def __init__(self, partition, timers):
        self.partition, self.timers = partition, timers
        self.amounts, self.pending = Counter(), {}
        self.events = []

    def replay(self, record):
        if record.key == b"odd":
            raise errors.CorruptDataError("odd")
        target = self.amounts if record.producer_id < 0 else self.pending.setdefault(record.producer_id, Counter())
        target[record.key] += struct.unpack(">i", record.value)[0]

    def replay_end_marker(self, offset, producer_id, producer_epoch, committed):
        ended = self.pending.pop(producer_id, Counter())
        if committed:
            self.amounts += ended

    def committed_to(self, offset):
        self.committed = offset

    def loaded(self):
        self.events.append("loaded")

    def unloaded(self):
        self.events.append("unloaded")


class SlowReplicas(ReplicaManager):
    """Appends are committed when the test says so, and refused when it says so."""

    def __init__(self, image, config, clock):
        super().__init__(1, image, config, clock, LoopTimer(clock=clock), LogManager.in_memory(), lambda key: None)
        self.uncommitted, self.refusal, self.hold = [], None, False

    def append_internal(self, topic, index, batch, done, timeout_ms, **options):
        if self.refusal is not None:
            raise self.refusal
        if not self.hold:
            return super().append_internal(topic, index, batch, done, timeout_ms, **options)
        base_offset = super().append_internal(topic, index, batch, lambda error: None, timeout_ms, **options)
        self.uncommitted.append(done)
        return base_offset


class RuntimeBench:
    def __init__(self, partitions=3):
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.config = BrokerConfig(offsets_topic_num_partitions=partitions, transaction_partition_verification_enable=False)
        self.image = ClusterImage(self.config)
        self.replicas = SlowReplicas(self.image, self.config, self.clock)
        self.image.listeners.append(self.replicas)
        self.timer = LoopTimer(clock=self.clock)
        self.runtime = self.new_runtime()
        host = ControllerHost(self.config, self.image.cluster_id)
        self.controller = LocalControllerLink(host, 1, self.image, self.timer, lambda message: message())
        self.start()
        submit(self.controller, creation_of(self.image, self.config, GROUP_TOPIC))

    def start(self):
        """The broker is registered, and elected where nobody leads."""
        self.controller.start(Node(1, "127.0.0.1", 9092))

    def stop(self):
        """The broker goes, and leads nothing."""
        self.controller.close()

    def new_runtime(self):
        return CoordinatorRuntime(GROUP_TOPIC, self.replicas, Ledger, self.timer, self.clock, 5_000)

    def add(self, name, amount, partition=0, done=None):
        outcome = []
        self.runtime.write(partition, adding(name, amount), done or outcome.append)
        return outcome

    def look(self, partition=0):
        outcome = []
        self.runtime.read(partition, lambda shard: dict(shard.amounts), outcome.append)
        return outcome


def adding(name, amount):
    def operation(shard):
        return CoordinatorResult([CoordinatorRecord(name, struct.pack(">i", amount))], shard.amounts[name] + amount)

    return operation


def test_java_hash_is_java_s():
    # what java.lang.String.hashCode gives
    known = {"": 0, "a": 97, "hello": 99162322, "Hello World": -862545276, "polygenelubricants": -(2**31)}
    assert {text: java_hash(text) for text in known} == known
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("Hello World", 50) == 862545276 % 50


def test_a_write_is_appended_replayed_and_answered_and_a_read_sees_it():
    stage = RuntimeBench()
    assert stage.add(b"x", 5) == [5]
    assert stage.add(b"x", 2) == [7]
    assert stage.look() == [{b"x": 7}]
    assert stage.look(1) == [{}]
    log = stage.replicas.partition(GROUP_TOPIC, 0).log
    batches = [batch for view in log.read(0, 1 << 20, log.end_offset, True) for batch in read_batches(view)]
    assert [(record.key, record.value, record.timestamp_ms) for batch in batches for record in batch.records()] == [
        (b"x", struct.pack(">i", amount), 1_700_000_000_000) for amount in (5, 2)
    ]


def test_answers_wait_for_the_commit_in_the_order_of_the_log_and_reads_wait_with_them():
    stage = RuntimeBench()
    stage.replicas.hold = True
    first, second = stage.add(b"x", 1), stage.add(b"x", 1)
    seen = stage.look()
    nothing = []
    stage.runtime.write(0, lambda shard: CoordinatorResult([], "no records"), nothing.append)
    assert (first, second, seen, nothing) == ([], [], [], [])
    stage.replicas.uncommitted[1](None)  # told out of order: still nobody is answered before the first batch
    assert (first, second) == ([], [])
    stage.replicas.uncommitted[0](None)
    assert (first, second, seen, nothing) == ([1], [2], [{b"x": 2}], ["no records"])


def test_an_answer_waits_for_the_records_of_its_own_key_and_for_those_about_several():
    stage = RuntimeBench()
    stage.replicas.hold = True
    answers = []

    def ask(key):
        stage.runtime.write(0, lambda shard: CoordinatorResult([], None), lambda _: answers.append(f"write {key}"), key)
        stage.runtime.read(0, lambda shard: None, lambda _: answers.append(f"read {key}"), key)

    stage.runtime.write(0, adding(b"x", 1), lambda _: answers.append("a is written"), "a")
    stage.runtime.write(0, adding(b"x", 1), lambda _: answers.append("c is written"), "c")
    for key in ("a", "b", None):
        ask(key)
    assert answers == ["write b", "read b"]
    answers.clear()
    stage.runtime.write(0, adding(b"x", 1), lambda _: answers.append("all is written"))
    ask("b")
    for nth, expected in enumerate(
        [
            ["a is written", "write a", "read a"],
            ["c is written", "write None", "read None"],
            ["all is written", "write b", "read b"],
        ]
    ):
        answers.clear()
        stage.replicas.uncommitted[nth](None)
        assert answers == expected


def test_an_operation_is_told_of_the_append_and_of_the_commit():
    stage = RuntimeBench()
    stage.replicas.hold = True
    reported = []
    records = [CoordinatorRecord(b"x", b"\0\0\0\1")]
    hooks = {
        "appended": lambda error: reported.append(("appended", error)),
        "committed": lambda error: reported.append(("committed", error)),
    }
    stage.runtime.write(0, lambda shard: CoordinatorResult(records, "answer", **hooks), reported.append)
    assert reported == [("appended", None)]
    stage.replicas.uncommitted[0](None)
    assert reported == [("appended", None), ("committed", None), "answer"]
    del reported[:]
    stage.runtime.write(0, lambda shard: CoordinatorResult(records, "answer", **hooks), reported.append)
    stage.replicas.stopping()
    assert reported[0] == ("appended", None)
    assert [type(each) for each in (reported[1][1], reported[2])] == [errors.NotCoordinator] * 2


@each_row("refusal", [errors.NotEnoughReplicas("1 of 2"), errors.RecordTooLarge("x"), OSError(24, "x"), ZeroDivisionError("bug")])
def test_a_refused_append_changes_nothing_and_says_what_the_client_is_to_do(refusal):
    stage = RuntimeBench()
    reported = []
    stage.replicas.refusal = refusal
    result = CoordinatorResult([CoordinatorRecord(b"x", b"\0\0\0\1")], None, appended=reported.append, committed=reported.append)
    stage.runtime.write(0, lambda shard: result, reported.append)
    expected = errors.CoordinatorNotAvailable if isinstance(refusal, errors.NotEnoughReplicas) else errors.UnknownServer
    assert [type(each) for each in reported] == [expected] * 3
    stage.replicas.refusal = None
    assert stage.look() == [{}]
    assert stage.add(b"x", 1) == [1]


def test_an_operation_may_ask_for_another_which_runs_after_it():
    stage = RuntimeBench()
    order = []

    def outer(shard):
        stage.runtime.write(0, lambda inner: 1 // 0, lambda outcome: order.append(type(outcome)))
        stage.runtime.write(0, lambda inner: CoordinatorResult([], order.append(("inner", dict(inner.amounts)))), lambda _: None)
        order.append("outer")
        return CoordinatorResult([CoordinatorRecord(b"x", b"\0\0\0\1")], None)

    stage.runtime.write(0, outer, lambda outcome: order.append("answered"))
    assert order == ["outer", "answered", errors.UnknownServer, ("inner", {b"x": 1})]


def test_errors_of_an_operation_are_its_answer_and_a_bug_stops_nobody(caplog):
    stage = RuntimeBench()

    def refusing(shard):
        raise errors.UnknownMemberId("who?")

    def failing(shard):
        raise ZeroDivisionError

    reported = []
    stage.runtime.write(0, refusing, reported.append)
    stage.runtime.read(0, failing, reported.append)
    assert [type(each) for each in reported] == [errors.UnknownMemberId, errors.UnknownServer]
    assert "ZeroDivisionError" in caplog.text
    assert stage.add(b"x", 1) == [1]


def test_transactions_count_when_their_marker_says_so_also_after_a_reload():
    stage = RuntimeBench()
    for producer_id in (7, 8):
        outcome = []
        stage.runtime.write_transactional(0, producer_id, 3, adding(b"x", producer_id), outcome.append)
        assert outcome == [producer_id]
    assert stage.look() == [{}]
    ended = []
    stage.runtime.complete_transaction(0, 7, 3, 11, True, ended.append)
    stage.runtime.complete_transaction(0, 8, 3, 11, False, ended.append)
    assert ended == [None, None]
    assert stage.look() == [{b"x": 7}]
    stage.stop()
    stage.runtime = stage.new_runtime()
    stage.start()
    assert stage.look() == [{b"x": 7}]


def test_a_marker_that_compaction_emptied_is_passed_over():
    stage = RuntimeBench()
    stage.add(b"x", 5)
    marker = control_batch(1, producer_id=7, producer_epoch=3, coordinator_epoch=0, timestamp_ms=1_700_000_000_000, base_offset=1)
    (marker,) = read_batches(marker)
    stage.stop()
    stage.replicas.partition(GROUP_TOPIC, 0).log.append_replicated(emptied(marker))
    stage.start()
    assert stage.look() == [{b"x": 5}]


class SomeReplicate:
    """A leader whose followers have not told it yet how much of its log they hold."""

    def __init__(self, stage):
        self.stage, self.partition = stage, stage.replicas.partition(GROUP_TOPIC, 0)

    def lead(self, runtime, committed):
        self.partition.high_watermark = committed
        runtime.became_leader(GROUP_TOPIC, 0, 1)

    def fetched(self, offset):
        self.partition.high_watermark = offset
        self.stage.replicas.changed(self.partition)


def test_markers_of_a_decision_in_the_log_wait_until_it_is_committed():
    stage = RuntimeBench()
    prepared = Transaction("t", 7, 1, state=TransactionState.PREPARE_COMMIT, partitions=frozenset({("t", 0)}), start_ms=1, update_ms=2)
    stage.runtime.write(0, lambda shard: CoordinatorResult([prepared.record(1)], None, replay=False), lambda outcome: None)
    sent = []

    class Markers:
        def send(self, shard, transaction, coordinator_epoch):
            sent.append(transaction)

    coordinator = TransactionCoordinator(stage.config, stage.clock, lambda: 3, lambda: 2, lambda done: done(1), lambda partition: 1)
    runtime = CoordinatorRuntime(GROUP_TOPIC, stage.replicas, coordinator.make_shard, stage.timer, stage.clock, 5_000)
    coordinator.attach(runtime, Markers())
    followers = SomeReplicate(stage)
    followers.lead(runtime, 0)
    assert sent == []
    followers.fetched(1)
    assert sent == [prepared]


def test_a_long_log_is_loaded_in_pieces_and_answers_load_in_progress_meanwhile(monkeypatch):
    stage = RuntimeBench()
    for _ in range(10):
        stage.add(b"x", 1)
    monkeypatch.setattr("kafkacore.broker.coordinator.LOAD_BYTES", 100)
    stage.stop()
    stage.start()
    assert [type(each) for each in stage.look()] == [errors.CoordinatorLoadInProgress]
    assert not stage.runtime.serves(0)
    while not stage.runtime.serves(0):
        assert stage.timer.advance_clock()
    assert stage.look() == [{b"x": 10}]


def test_who_waits_when_the_leadership_goes_gets_not_coordinator():
    stage = RuntimeBench()
    stage.replicas.hold = True
    waiting, looking = stage.add(b"x", 1), stage.look()
    stage.stop()
    assert [type(each) for each in waiting + looking] == [errors.NotCoordinator] * 2
    stage.replicas.uncommitted[0](errors.NotLeaderOrFollower("moved"))  # told twice, heard once
    assert len(waiting) == 1


def test_what_waits_when_all_shards_are_dropped_gets_not_coordinator_and_so_does_what_asks_meanwhile():
    stage = RuntimeBench()
    stage.replicas.hold = True
    waiting = [stage.add(b"x", 1, partition) for partition in range(3)]
    assert (stage.runtime.held(), len(stage.runtime.shards())) == ([0, 1, 2], 3)
    heard = []

    def dropping(shard):
        stage.runtime.write(0, adding(b"x", 1), heard.append)  # runs after this one
        stage.runtime.close()
        return CoordinatorResult([], "answer")

    stage.runtime.write(0, dropping, heard.append)
    assert [type(each) for each in (*heard, *(each[0] for each in waiting))] == [errors.NotCoordinator] * 5
    assert (stage.runtime.held(), stage.runtime.shards()) == ([], [])


def test_a_record_that_fits_into_no_batch_is_refused():
    """Of records that count one by one those before it are written."""
    large, small = (CoordinatorRecord(b"x", bytes(size)) for size in (2 << 20, 4))
    for records, written in (([large], {}), ([small, large], {b"x": 0})):
        stage, heard = RuntimeBench(), []
        stage.runtime.write(0, lambda shard, found=records: CoordinatorResult(found, None, is_atomic=False), heard.append)
        assert [type(each) for each in heard] == [errors.UnknownServer]
        assert stage.look() == [written]


def test_a_new_leadership_of_the_same_broker_starts_over():
    stage = RuntimeBench()
    shards = []
    for partition in (0, 1):
        stage.add(b"x", 1, partition)
        stage.runtime.read(partition, shards.append, lambda _: None)
    shards[0].timers.schedule("a", 10, adding(b"x", 5))
    stage.replicas.hold = True
    waiting, other = stage.add(b"x", 1), stage.add(b"x", 1, 1)
    stage.runtime.became_leader(GROUP_TOPIC, 0, 7)
    assert [type(each) for each in waiting] == [errors.NotCoordinator]
    assert (other, [shard.events for shard in shards]) == ([], [["loaded", "unloaded"], ["loaded"]])
    stage.clock.advance(10)
    stage.timer.advance_clock()  # its timers went with it
    assert stage.look() == [{b"x": 2}]  # by replay, once
    stage.replicas.uncommitted[1](None)
    assert other == [2]


def test_a_commit_that_fails_makes_the_log_decide():
    stage = RuntimeBench()
    stage.add(b"x", 1)
    stage.replicas.hold = True
    waiting = stage.add(b"x", 1)
    stage.replicas.uncommitted[0](errors.NotLeaderOrFollower("moved for a moment"))
    assert [type(each) for each in waiting] == [errors.NotCoordinator]
    assert stage.look() == [{b"x": 2}]  # it is in the log


def test_transactions_are_not_listed_while_some_are_still_being_read(monkeypatch):
    stage = RuntimeBench()
    coordinator = TransactionCoordinator(stage.config, stage.clock, lambda: 3, lambda: 2, lambda done: done(1), lambda partition: 1)
    runtime = CoordinatorRuntime(GROUP_TOPIC, stage.replicas, coordinator.make_shard, stage.timer, stage.clock, 5_000)
    coordinator.attach(runtime, None)
    records = [Transaction("t", 7, 1).record(1)]
    for _ in range(2):
        stage.runtime.write(0, lambda shard: CoordinatorResult(records, None, replay=False), lambda outcome: None)
    monkeypatch.setattr("kafkacore.broker.coordinator.LOAD_BYTES", 1)
    runtime.became_leader(GROUP_TOPIC, 0, 1)
    found = []
    coordinator.list(Filter(), found.append)
    stage.timer.advance_clock()
    stage.timer.advance_clock()
    coordinator.list(Filter(), found.append)
    assert (type(found[0]), [each.transactional_id for each in found[1]]) == (errors.CoordinatorLoadInProgress, ["t"])


def test_timers_run_as_writes_are_replaced_by_name_and_die_with_the_shard(caplog):
    stage = RuntimeBench()
    shards = []
    stage.runtime.read(0, shards.append, lambda _: None)
    timers = shards[0].timers
    timers.schedule("a", 100, adding(b"a", 1))
    timers.schedule("a", 200, adding(b"a", 10))
    timers.schedule("b", 100, adding(b"b", 1))
    timers.cancel("b")
    stage.clock.advance(150)
    stage.timer.advance_clock()
    assert stage.look() == [{}]
    stage.clock.advance(50)
    stage.timer.advance_clock()
    assert stage.look() == [{b"a": 10}]
    assert len(timers) == 0

    stage.replicas.refusal = errors.NotEnoughReplicas("2 are needed")
    timers.schedule("c", 10, adding(b"c", 1))
    stage.clock.advance(10)
    stage.timer.advance_clock()
    assert "timer c is tried again" in caplog.text
    stage.replicas.refusal = None
    stage.clock.advance(500)
    stage.timer.advance_clock()
    assert stage.look() == [{b"a": 10, b"c": 1}]

    timers.schedule("d", 10, adding(b"d", 1))
    delete_topic(stage.controller, GROUP_TOPIC)
    stage.clock.advance(10)
    stage.timer.advance_clock()
    assert shards[0].events == ["loaded", "unloaded"]
    assert [type(each) for each in stage.look()] == [errors.NotCoordinator]


@pytest.mark.parametrize("error", [errors.KafkaStorage("no descriptor"), OSError(24, "too many open files"), ZeroDivisionError("bug")])
def test_a_log_that_cannot_be_read_is_loaded_again_later_each_time_until_it_can_be(monkeypatch, caplog, error):
    stage = RuntimeBench()
    stage.add(b"x", 5)
    tries, refused = [], True
    read = Log.read

    def failing(log, *args):
        tries.append(stage.clock.now_ms())
        if refused:
            raise error
        return read(log, *args)

    def advance(ms):
        stage.clock.advance(ms)
        stage.timer.advance_clock()

    monkeypatch.setattr(Log, "read", failing)
    start_ms = stage.clock.now_ms()
    stage.runtime.became_leader(GROUP_TOPIC, 0, 1)
    for ms in (999, 1, 1_999, 1, 3_999, 1):
        assert [type(outcome) for outcome in (*stage.look(), *stage.add(b"x", 1))] == [errors.NotCoordinator] * 2
        advance(ms)
    assert [ms - start_ms for ms in tries] == [0, 1_000, 3_000, 7_000]
    assert "KafkaStorage" in caplog.text or "too many open files" in caplog.text or "bug" in caplog.text
    refused = False
    advance(8_000)
    assert stage.look() == [{b"x": 5}]
    assert stage.add(b"x", 2) == [7]
    refused = True
    stage.runtime.became_leader(GROUP_TOPIC, 0, 2)  # the second time begins with the short wait again
    refused = False
    advance(1_000)
    assert stage.look() == [{b"x": 7}]
    tries.clear()
    advance(600_000)
    assert not tries


def test_a_log_that_could_not_be_read_is_not_loaded_again_once_another_broker_leads(monkeypatch):
    stage = RuntimeBench()
    stage.add(b"x", 5)
    with monkeypatch.context() as patch:
        patch.setattr(Log, "read", lambda *args: 1 // 0)
        stage.runtime.became_leader(GROUP_TOPIC, 0, 1)
    stage.runtime.resigned(GROUP_TOPIC, 0)
    stage.clock.advance(60_000)
    stage.timer.advance_clock()
    assert [type(each) for each in stage.look()] == [errors.NotCoordinator]
    assert stage.runtime.held() == [1, 2]


def test_find_coordinator_without_a_leader_is_retriable():
    from test_handlers import Bench

    bench = Bench()
    bench.ask(p.FindCoordinatorRequest(key="g"), 1)
    bench.state.controller.close()  # nobody leads any more
    refused = bench.ask(p.FindCoordinatorRequest(key="g"), 1)
    assert (refused.error_code, refused.node_id, refused.host, refused.port) == (Code.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
