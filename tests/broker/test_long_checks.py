"""Batches that unpack to much are checked beside the broker's thread, and written as any other."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from controlling import create_topic, delete_topic, submit
from fuzz_loop import mend_crcs

from kafkacore import compress, errors
from kafkacore import protocol as p
from kafkacore.broker.handlers.checks import INLINE_BYTES
from kafkacore.broker.server import Broker
from kafkacore.clock import SystemClock
from kafkacore.compress import AllowanceExceeded
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder
from tests.kit.batches import T0, batch
from tests.kit.inside import calls_of
from tests.kit.wire import Wire, produce_request

VERSIONS = p.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
CONFIG = BrokerConfig(auto_create_topics_enable=False, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
CODECS = ["gzip", "snappy", "lz4", "zstd"]
PRODUCE_VERSION = 9


def bomb(compression: str = "zstd", size: int = INLINE_BYTES, **settings: Any) -> memoryview:
    """A small batch that unpacks to more than the broker's thread takes on."""
    return batch([bytes(size)], compression=compression, timestamps_ms=[T0], **settings)


def request(*parts: tuple[int, Any], acks: int = -1, transactional_id: str | None = None) -> p.ProduceRequest:
    data = [p.PartitionProduceData(index=index, records=records) for index, records in parts]
    topics = [p.TopicProduceData(name="t", partition_data=data)]
    return p.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics, transactional_id=transactional_id)


def results(answer: Any) -> list[tuple[int, int, int]]:
    return [(each.index, each.error_code, each.base_offset) for topic in answer.responses for each in topic.partition_responses]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(CONFIG) as made:
        made.call(lambda: create_topic(made.state.controller, "t", num_partitions=300))
        yield made


class Gate:
    """Keeps the checks back until they are let go."""

    def __init__(self, broker: Broker) -> None:
        self.arrived = threading.Semaphore(0)
        self.kept: list[Callable[[], None]] = []
        self._broker = broker
        self._submit = broker.state.checker.submit
        broker.call(lambda: setattr(broker.state.checker, "submit", self._keep))

    def _keep(self, work: Any, done: Any) -> None:
        self.kept.append(lambda: self._submit(work, done))
        self.arrived.release()

    def wait(self) -> None:
        assert self.arrived.acquire(timeout=60)

    def let_one_go(self) -> None:
        self._broker.call(lambda: self.kept.pop(0)())

    def open(self) -> None:
        def opened() -> None:
            self._broker.state.checker.submit = self._submit  # type: ignore[method-assign]
            while self.kept:
                self.kept.pop(0)()

        self._broker.call(opened)


class UnpackedBytes(Counter[str]):
    """What was unpacked in which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        plain = compress._decompress

        def counted(codec: int, data: Any, max_bytes: int) -> bytes:
            name = threading.current_thread().name
            try:
                out = plain(codec, data, max_bytes)
            except Exception:
                self[name] += max_bytes  # at most
                raise
            self[name] += len(out)
            return out

        monkeypatch.setattr(compress, "_decompress", counted)


def end_offset(broker: Broker, index: int = 0) -> int:
    return broker.call(lambda: broker.state.replicas.partition("t", index).log.end_offset)


# ---- what runs where


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unpacks_to_much_is_checked_beside_the_brokers_thread(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    unpacked = UnpackedBytes(monkeypatch)
    with Wire(broker.address) as wire:
        assert results(wire.ask(request((0, bomb(codec))), PRODUCE_VERSION)) == [(0, 0, 0)]
        assert results(wire.ask(request((0, batch())), PRODUCE_VERSION)) == [(0, 0, 1)]
    assert unpacked["kafkacore-broker-1"] <= INLINE_BYTES
    assert unpacked["kafkacore-checks-1"] > INLINE_BYTES


def test_the_batches_of_a_request_count_together(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = UnpackedBytes(monkeypatch)
    part = batch([bytes(1 << 20)], compression="zstd")
    with Wire(broker.address) as wire:
        answer = wire.ask(request(*((index, part) for index in range(30))), PRODUCE_VERSION)
        assert results(answer) == [(index, 0, 0) for index in range(30)]
        assert unpacked["kafkacore-broker-1"] <= INLINE_BYTES
        assert unpacked.total() >= 30 << 20
        unpacked.clear()
        assert results(wire.ask(request((0, part)), PRODUCE_VERSION)) == [(0, 0, 1)]
    assert set(unpacked) == {"kafkacore-broker-1"}


def test_recompression_counts_more(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    plain = compress.compress

    def noted(codec: int, data: Any, level: int | None = None) -> bytes:
        packed = plain(codec, data, level)
        threads.append(threading.current_thread().name)
        return packed

    monkeypatch.setattr(compress, "compress", noted)
    create_with(broker, "packed", {"compression.type": "zstd"})
    with Wire(broker.address) as wire:
        for size in (1_000, 500_000):
            records = batch([bytes(size)])
            answer = wire.ask(produce_request(records, topic="packed"), PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
    assert threads == ["kafkacore-broker-1", "kafkacore-checks-1"]


def create_with(broker: Broker, name: str, configs: dict[str, str]) -> None:
    broker.call(lambda: create_topic(broker.state.controller, name, num_partitions=1, configs=configs))


# ---- while a check runs


def test_another_client_is_served_and_the_same_connection_waits(broker: Broker) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.sock.sendall(wire.frame(request((0, bomb())), PRODUCE_VERSION) + wire.frame(request((0, batch())), PRODUCE_VERSION))
        gate.wait()
        other.ask(VERSIONS, 3)
        assert results(other.ask(request((0, batch([b"o"]))), PRODUCE_VERSION)) == [(0, 0, 0)]
        assert end_offset(broker) == 1
        gate.open()
        answers = [wire.receive(p.ProduceRequest, PRODUCE_VERSION) for _ in range(2)]
    assert [(number, results(answer)) for number, answer in answers] == [(1, [(0, 0, 1)]), (2, [(0, 0, 2)])]


def test_the_requests_of_two_clients_take_turns(broker: Broker) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as many, Wire(broker.address) as one:
        many.send(request(*((index, bomb()) for index in range(3))), PRODUCE_VERSION)
        gate.wait()
        one.send(request((9, bomb())), PRODUCE_VERSION)
        gate.wait()
        gate.let_one_go()
        gate.wait()  # the next of `many`, behind that of `one`
        gate.let_one_go()
        assert results(one.receive(p.ProduceRequest, PRODUCE_VERSION)[1]) == [(9, 0, 0)]
        assert end_offset(broker, 1) == 0
        gate.open()
        assert results(many.receive(p.ProduceRequest, PRODUCE_VERSION)[1]) == [(index, 0, 0) for index in range(3)]


def test_a_client_that_goes_is_forgotten(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.send(request((0, bomb()), (1, bomb())), PRODUCE_VERSION)
        gate.wait()
        broker.call(lambda: [broker._drop_connection(connection) for connection in list(calls_of(broker))])
        assert wire.closed_by_peer
        gate.open()
        while broker.call(lambda: broker.state.checker.pending):
            other.ask(VERSIONS, 3)
    assert broker.call(lambda: (len(broker.state.checking), len(calls_of(broker)), len(broker.pauses.muted))) == (0, 0, 0)
    assert (end_offset(broker, 0), end_offset(broker, 1)) == (0, 0)
    assert not caplog.records


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_stops_while_a_check_runs(broker: Broker, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as wire:
        wire.send(request((0, bomb()), (1, bomb())), PRODUCE_VERSION)
        gate.wait()
        broker.stop(clean)
        assert wire.closed_by_peer
    broker.start()
    gate.open()
    with Wire(broker.address) as wire:
        assert results(wire.ask(request((0, bomb())), PRODUCE_VERSION)) == [(0, 0, 0)]
    assert not broker.call(lambda: broker.state.checking)
    assert not caplog.records


def topic_deleted(broker: Broker) -> None:
    delete_topic(broker.state.controller, "t")


def leadership_lost(broker: Broker) -> None:
    broker.state.replicas.partition("t", 0).resign(errors.NotLeaderOrFollower("another broker leads it"))


@pytest.mark.parametrize(
    ("act", "code"), [(topic_deleted, Code.UNKNOWN_TOPIC_OR_PARTITION), (leadership_lost, Code.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_partition_that_goes_while_its_batch_is_checked_is_not_written(broker: Broker, act: Callable[[Broker], None], code: int) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as wire:
        wire.send(request((0, bomb())), PRODUCE_VERSION)
        gate.wait()
        log = broker.call(lambda: broker.state.replicas.partition("t", 0).log)
        broker.call(lambda: act(broker))
        gate.open()
        assert results(wire.receive(p.ProduceRequest, PRODUCE_VERSION)[1]) == [(0, code, -1)]
    assert log.end_offset == 0


def test_a_batch_is_checked_by_the_settings_it_is_written_under(broker: Broker) -> None:
    gate = Gate(broker)
    with Wire(broker.address) as wire:
        wire.send(request((0, bomb())), PRODUCE_VERSION)
        gate.wait()
        changes = [p.AlterableConfig(name="max.message.bytes", value="100")]
        alter = p.AlterConfigsRequest(resources=[p.AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)])
        broker.call(lambda: submit(broker.state.controller, alter))
        gate.let_one_go()
        gate.wait()  # for the second check
        gate.open()
        assert results(wire.receive(p.ProduceRequest, PRODUCE_VERSION)[1]) == [(0, Code.MESSAGE_TOO_LARGE, -1)]


# ---- the same results


def test_what_is_wrong_is_said_as_ever(broker: Broker) -> None:
    create_with(broker, "compact", {"cleanup.policy": "compact"})
    create_with(broker, "timed", {"message.timestamp.before.max.ms": "1000"})
    too_large = BatchBuilder(compression="zstd", max_bytes=256 << 20)
    too_large.append(bytes(129 << 20), timestamp_ms=T0)
    miscounted = bytearray(bomb())
    miscounted[57:61] = (2).to_bytes(4, "big")
    miscounted[23:27] = (1).to_bytes(4, "big")
    with Wire(broker.address) as wire:

        def code(records: Any, topic: str = "t", version: int = PRODUCE_VERSION) -> tuple[int, int]:
            (found,) = wire.ask(produce_request(records, topic=topic), version).responses[0].partition_responses
            return found.error_code, len(found.record_errors)

        assert code(memoryview(bytes(too_large.build()))) == (Code.MESSAGE_TOO_LARGE, 0)
        assert code(bytes(mend_crcs(bytes(miscounted)))) == (Code.INVALID_RECORD, 0)
        assert code(bomb(), version=6) == (Code.UNSUPPORTED_COMPRESSION_TYPE, 0)
        assert code(bomb(), "compact") == (Code.INVALID_RECORD, 1)
        assert code(bomb(), "timed") == (Code.INVALID_TIMESTAMP, 1)
        assert code(bomb()) == (0, 0)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_answer_names_the_first_thousand_records_that_are_refused(broker: Broker, codec: str) -> None:
    create_with(broker, "compact", {"cleanup.policy": "compact"})
    with Wire(broker.address) as wire:
        answer = wire.ask(produce_request(batch([b""] * 5_000, compression=codec), topic="compact"), PRODUCE_VERSION)
    (found,) = answer.responses[0].partition_responses
    assert found.error_code == Code.INVALID_RECORD
    assert found.error_message.endswith("5000 of 5000 records are refused")
    assert [each.batch_index for each in found.record_errors] == [*range(1_000)]


def test_log_append_time_is_that_of_the_write(broker: Broker) -> None:
    create_with(broker, "stamped", {"message.timestamp.type": "LogAppendTime"})
    gate = Gate(broker)

    class Later(SystemClock):
        def wall_ms(self) -> int:
            return 2 * T0

    with Wire(broker.address) as wire:
        wire.send(produce_request(bomb(), topic="stamped"), PRODUCE_VERSION)
        gate.wait()
        broker.call(lambda: setattr(broker.state, "clock", Later()))
        gate.open()
        (found,) = wire.receive(p.ProduceRequest, PRODUCE_VERSION)[1].responses[0].partition_responses
    assert (found.error_code, found.log_append_time_ms) == (0, 2 * T0)


def test_without_acks_there_is_no_answer(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        wire.send(request((0, bomb()), acks=0), PRODUCE_VERSION)
        wire.ask(VERSIONS, 3)  # behind it
        assert end_offset(broker) == 1
        wire.send(request((0, bomb()), (1_000, batch()), acks=0), PRODUCE_VERSION)
        assert wire.closed_by_peer
    assert end_offset(broker) == 2


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_request_in_parts_may_hold_long_batches(broker: Broker, acks: int) -> None:
    parts = [(index, bomb() if index in (3, 100, 250) else batch([b"v"])) for index in range(300)]
    with Wire(broker.address) as wire:
        if acks:
            assert results(wire.ask(request(*parts, acks=acks), PRODUCE_VERSION)) == [(index, 0, 0) for index in range(300)]
        else:
            wire.send(request(*parts, acks=0), PRODUCE_VERSION)
            wire.ask(VERSIONS, 3)
        ends = broker.call(lambda: [broker.state.replicas.partition("t", index).log.end_offset for index in range(300)])
        assert ends == [1] * 300
        wire.ask(VERSIONS, 3)


def test_a_transaction_may_begin_with_a_long_batch(broker: Broker) -> None:
    with Wire(broker.address) as wire:
        while wire.ask(p.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 6).coordinators[0].error_code:
            pass
        got = wire.ask(p.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)
        numbers = {"producer_id": got.producer_id, "epoch": got.producer_epoch, "is_transactional": True}
        for sequence in range(2):
            sent = request((0, bomb(sequence=sequence, **numbers)), transactional_id="x")
            assert results(wire.ask(sent, 12)) == [(0, 0, sequence)]
        sent = request((0, bomb(sequence=1, **numbers)), transactional_id="x")
        assert results(wire.ask(sent, 12)) == [(0, 0, 1)], "a resend"
        end = p.EndTxnRequest(transactional_id="x", producer_id=got.producer_id, producer_epoch=got.producer_epoch, committed=True)
        assert wire.ask(end, 5).error_code == 0
    assert end_offset(broker) == 3


def test_a_bug_in_a_check_closes_its_connection_only(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("kafkacore.broker.handlers.checks.validate", fail)
    monkeypatch.setattr("kafkacore.broker.handlers.checks.AllowedChecks.check", lambda *_: (_ for _ in ()).throw(AllowanceExceeded()))
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.send(request((0, batch())), PRODUCE_VERSION)
        assert wire.closed_by_peer
        other.ask(VERSIONS, 3)
    assert [record.getMessage() for record in caplog.records] == ["a Produce request of client wire failed"]
    assert not broker.call(lambda: broker.state.checking)


def test_a_refused_batch_leaves_no_cycle_that_holds_its_records(broker: Broker) -> None:
    held: list[weakref.ref[Any]] = []
    append = broker.state.replicas.append

    def noted(*arguments: Any) -> Any:
        held.append(weakref.ref(arguments[2]))
        return append(*arguments)

    broker.call(lambda: setattr(broker.state.replicas, "append", noted))
    miscounted = bytearray(bomb())
    miscounted[57:61] = (2).to_bytes(4, "big")
    miscounted[23:27] = (1).to_bytes(4, "big")
    broker.call(gc.disable)
    try:
        with Wire(broker.address) as wire:
            answer = wire.ask(request((0, bytes(mend_crcs(bytes(miscounted))))), PRODUCE_VERSION)
            assert results(answer) == [(0, Code.INVALID_RECORD, -1)]
            assert len(held) == 2
            for _ in range(1000):  # the checker's thread may let go after the answer is out; a cycle never does
                wire.ask(VERSIONS, 3)
                if not any(reference() for reference in held):
                    break
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()
