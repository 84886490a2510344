"""The broker on real sockets: order, partial and hostile input, faults, pausing, restarting, forking."""

import logging
import os
import select
import socket
import struct
import warnings

import pytest
from controlling import create_topic

from kafkacore import protocol as p
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.server import Broker, Disconnect, Drop
from kafkacore.config import BrokerConfig
from kafkacore.errors import Code, ForkedClientError, UsageError
from kafkacore.records import read_batches
from tests.kit.batches import batch
from tests.kit.in_threads import in_threads
from tests.kit.inside import selector_of
from tests.kit.rows import each_row
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

VERSIONS = p.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
ALL_TOPICS = p.MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def shared():
    with Broker(BrokerConfig(socket_request_max_bytes=8 << 20)) as broker:
        yield broker


@pytest.fixture
def broker():
    with Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker):
    with Wire(broker.address) as wire:
        yield wire


def fetch_of_t(offset=0, topic="t", max_wait_ms=0, min_bytes=1, max_bytes=64 << 20):
    wanted = p.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return p.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[p.FetchTopic(topic=topic, partitions=[wanted])]
    )


def produced(wire, data=None, **kwargs):
    return wire.ask(produce_request(batch() if data is None else data, **kwargs), 9).responses[0].partition_responses[0]


def values_in(response):
    records = response.responses[0].partitions[0].records
    return [record.value for each in read_batches(records) for record in each.records()]


def create_t(broker, name="t"):
    broker.call(lambda: create_topic(broker.state.controller, name))


def waiting_fetch(broker, wire, version=12):
    """A fetch that waits until something is written."""
    create_t(broker)
    wire.send(fetch_of_t(max_wait_ms=60_000), version)
    until(lambda: broker.statistics()["waiting_fetches"])


# ---- frames


def test_a_produced_batch_comes_back_as_it_was_but_for_offset_and_epoch(broker, wire):
    create_t(broker)
    data = bytes(batch([os.urandom(1000) for _ in range(900)]))
    assert produced(wire).base_offset == 0
    assert produced(wire, data).base_offset == 3
    answer = wire.ask(fetch_of_t(3), 12)
    stored = bytes(answer.responses[0].partitions[0].records)
    assert stored == struct.pack(">q", 3) + data[8:12] + struct.pack(">i", 0) + data[16:]


def test_pipelined_requests_are_answered_in_order(broker, wire):
    create_t(broker)
    frames = [wire.frame(ALL_TOPICS, 12) if n % 2 else wire.frame(produce_request(batch()), 9) for n in range(50)]
    wire.sock.sendall(b"".join(frames))
    for n in range(50):
        got, answer = wire.receive(p.MetadataRequest if n % 2 else p.ProduceRequest, 12 if n % 2 else 9)
        assert got == n + 1
        assert n % 2 or answer.responses[0].partition_responses[0].error_code == 0


def test_requests_behind_a_waiting_fetch_wait_too(broker, wire):
    create_t(broker)
    wire.sock.sendall(wire.frame(fetch_of_t(max_wait_ms=60_000), 12) + wire.frame(ALL_TOPICS, 12))
    with Wire(broker.address) as other:
        assert produced(other).error_code == 0
    assert wire.receive(p.FetchRequest, 12)[0] == 1
    assert wire.receive(p.MetadataRequest, 12)[0] == 2


def test_a_waiting_fetch_is_answered_by_time(broker, wire):
    create_t(broker)
    assert wire.ask(fetch_of_t(max_wait_ms=30), 12).responses[0].partitions[0].records == b""


def test_acks_0_has_no_response_and_an_error_closes(broker, wire):
    create_t(broker)
    wire.send(produce_request(batch(), acks=0), 9)
    assert wire.ask(fetch_of_t(), 12).responses[0].partitions[0].high_watermark == 3
    wire.send(produce_request(batch(), acks=0, topic="missing"), 9)
    assert wire.closed_by_peer


# ---- what is not served


@each_row("version", [5, 6, 127, 32767, -1])
def test_an_unknown_api_versions_version_gets_the_range(shared, version):
    with Wire(shared.address) as wire:
        wire.sock.sendall(struct.pack(">ihhih4s", 14, 18, version, 77, 4, b"newer"[:4]))
        payload = wire.receive_frame()
        answer = p.ApiVersionsResponse.decode(0, payload, 4)
        assert struct.unpack(">i", payload[:4]) == (77,)
        assert answer.error_code == Code.UNSUPPORTED_VERSION
        assert [tuple(each) for each in answer.api_keys] == [(18, 0, 4)]
        assert wire.ask(VERSIONS, 3).error_code == 0


@pytest.mark.parametrize(("key", "version"), [(0, 14), (1, 3), (3, 14), (4, 0), (11, 5), (999, 0), (-1, 0), (0, -1)])
def test_other_unknown_requests_close_the_connection_with_one_line(shared, caplog, key, version):
    with Wire(shared.address) as wire, caplog.at_level(logging.WARNING, "kafkacore"):
        wire.sock.sendall(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert wire.closed_by_peer
    shared.call(lambda: None)
    assert len(caplog.records) == 1


def test_another_table_can_be_advertised():
    table = {**API_VERSIONS, 18: (0, 2), 3: (0, 9)}
    with Broker(api_versions=table) as broker, Wire(broker.address) as wire:
        answer = wire.ask(p.ApiVersionsRequest(), 2)
        assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == table
        wire.send(ALL_TOPICS, 10)
        assert wire.closed_by_peer


@each_row("table", [{}, {3: (0, 13)}, {18: (0, 4), 0: (0, 14)}, {18: (0, 4), 76: (1, 1)}, {18: (3, 1)}])
def test_a_table_may_not_promise_too_much(table):
    with pytest.raises(UsageError):
        Broker(api_versions=table)


# ---- hostile peers


@each_row("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", struct.pack(">i", (8 << 20) + 1), b"\0\0\0\0", b"\0\0\0\x07" + bytes(7)])
def test_bad_sizes_close_the_connection(shared, data):
    with Wire(shared.address) as good, Wire(shared.address) as bad:
        bad.sock.sendall(data)
        assert bad.closed_by_peer
        assert good.ask(VERSIONS, 3).error_code == 0
    with Wire(shared.address) as half:
        half.sock.sendall(half.frame(ALL_TOPICS, 12)[:20])
        half.sock.shutdown(socket.SHUT_WR)
        assert half.closed_by_peer


# ---- faults


@pytest.mark.parametrize(("fault", "kept"), [(Disconnect(), 0), (Disconnect(handle=True), 3), (Drop, 0), (Drop(handle=True), 3)])
def test_a_fault_loses_the_request_or_its_response(broker, wire, fault, kept):
    create_t(broker)
    seen = []
    broker.control(0, lambda request: seen.append(request.acks) or fault)
    wire.sock.sendall(wire.frame(produce_request(batch()), 9) + wire.frame(ALL_TOPICS, 12))
    until(lambda: seen)
    with Wire(broker.address) as other:
        assert other.ask(fetch_of_t(), 12).responses[0].partitions[0].high_watermark == kept
    if isinstance(fault, Disconnect):
        assert wire.closed_by_peer
    else:
        assert select.select([wire.sock], [], [], 0)[0] == []


def test_a_failing_control_function_closes_the_connection_and_is_logged(broker, wire, caplog):
    def fail(request):
        raise ZeroDivisionError

    broker.control(3, fail)
    broker.control(18, lambda request: Disconnect(handle=True))
    with caplog.at_level(logging.ERROR, "kafkacore"):
        wire.send(ALL_TOPICS, 12)
        assert wire.closed_by_peer
    assert "ZeroDivisionError" in caplog.text
    broker.control(3, lambda request: "nonsense")
    with Wire(broker.address) as other:
        other.send(ALL_TOPICS, 12)
        assert other.closed_by_peer
    broker.control(3, None)
    with Wire(broker.address) as other:
        assert other.ask(ALL_TOPICS, 12).brokers
        other.send(VERSIONS, 3)
        assert other.closed_by_peer


def test_a_bug_in_a_late_answer_costs_that_connection_only(broker, wire, caplog, monkeypatch):
    waiting_fetch(broker, wire)
    with Wire(broker.address) as other:
        monkeypatch.setattr("kafkacore.broker.sessions.FetchContext.filter", None)
        assert produced(other).error_code == 0
        assert wire.closed_by_peer
        assert broker.running
    assert "a late answer" in caplog.text


# ---- life


def test_stop_and_start_keep_port_data_and_raise_the_epoch(broker, wire):
    create_t(broker)
    assert produced(wire).base_offset == 0
    address = broker.address
    broker.stop()
    assert wire.closed_by_peer
    with pytest.raises(ConnectionRefusedError):
        Wire(address)
    assert broker.statistics()["log_bytes"] > 0
    broker.start()
    assert broker.address == address
    with Wire(address) as again:
        (topic,) = again.ask(ALL_TOPICS, 12).topics
        # nobody led in epoch 1
        assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (1, 2)
        assert produced(again).base_offset == 3
        assert [record.leader_epoch for record in records_of(again)] == [0, 0, 0, 2, 2, 2]


def records_of(wire):
    records = wire.ask(fetch_of_t(), 12).responses[0].partitions[0].records
    return [record for each in read_batches(records) for record in each.records()]


def test_a_paused_broker_answers_nothing_until_it_resumes(broker, wire):
    wire.ask(VERSIONS, 3)
    broker.pause()
    sent = wire.send(ALL_TOPICS, 12)
    wire.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        wire.sock.recv(1)
    with Wire(broker.address) as late:  # the kernel accepts, the broker does not see it yet
        late.send(VERSIONS, 3)
        broker.resume()
        wire.sock.settimeout(60)
        assert wire.receive(p.MetadataRequest, 12)[0] == sent
        assert late.receive(p.ApiVersionsRequest, 3)[1].error_code == 0


def test_an_idle_broker_does_not_poll(broker, wire):
    wire.ask(VERSIONS, 3)
    polls = broker.call(lambda: selector_of(broker).poll_count)
    wire.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        wire.sock.recv(1)
    assert broker.call(lambda: selector_of(broker).poll_count) - polls <= 2


def test_functions_from_many_threads_run_one_at_a_time(broker):
    count = 0

    def bump():
        nonlocal count
        seen = count
        count = seen + 1
        return broker.call(lambda: count)  # within the broker's thread it runs at once

    def many(_):
        for _ in range(200):
            broker.call(bump)
            with pytest.raises(ZeroDivisionError):
                broker.call(lambda: 1 / 0)

    in_threads(4, many)
    assert count == 800
    with pytest.raises(UsageError):  # it cannot stop itself
        broker.call(broker.stop)
    assert broker.running


@pytest.mark.parametrize("clean", [True, False])
def test_stopping_ends_waiting_fetches(broker, wire, clean):
    waiting_fetch(broker, wire, 10)  # before v11 a fetch is for leaders only
    broker.stop(clean=clean)
    if clean:  # a controlled shutdown gives up the leadership first
        _, answer = wire.receive(p.FetchRequest, 10)
        assert answer.responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert wire.closed_by_peer
    assert broker.statistics()["waiting_fetches"] == 0


def test_a_taken_port_is_an_error_and_nothing_is_left_behind(broker):
    other = Broker(port=broker.port)
    with pytest.raises(OSError):
        other.start()
    assert not other.running


def test_statistics_count_all_there_is(broker, wire):
    with Wire(broker.address) as waiting:
        waiting_fetch(broker, waiting)
        create_t(broker, "u")
        for topic in "uu":
            produced(wire, topic=topic)
        wire.ask(fetch_of_t(topic="u")._replace(session_epoch=0), 12)
        broker.call(lambda: broker.state.quotas.throttled.update(produce=(1, 30), fetch=(2, 400)))
        size = broker.call(lambda: broker.state.replicas.partition("u", 0).log.size_bytes)
        assert broker.statistics() == {
            "connections": 2,
            "waiting_fetches": 1,
            "waiting_produces": 0,
            "fetch_sessions": 1,
            "partitions": 2,
            "throttled_connections": 0,
            "throttled_requests": 3,
            "throttled_ms": 430,
            "log_bytes": size,
        }


def test_buffers_of_sockets_are_those_of_the_settings():
    broker, made = Broker(BrokerConfig(socket_send_buffer_bytes=20_000, socket_receive_buffer_bytes=30_000)), []
    broker.wrap_transports = lambda each: made.append(each) or each
    with broker:
        assert {(each.send_buffer_bytes, each.receive_buffer_bytes) for each in made} == {(20_000, 30_000)}


def test_idle_connections_are_closed():
    with Broker(BrokerConfig(connections_max_idle_ms=30)) as broker, Wire(broker.address) as wire:
        assert wire.ask(VERSIONS, 3).error_code == 0
        assert wire.closed_by_peer


def test_the_loop_applies_retention():
    config = BrokerConfig(log_retention_check_interval_ms=5, log_retention_ms=1000)
    with Broker(config) as broker, Wire(broker.address) as wire:
        create_t(broker)
        assert produced(wire).error_code == 0  # its timestamps are of 2023
        partition = p.ListOffsetsPartition(partition_index=0, timestamp=-2)
        earliest = p.ListOffsetsRequest(replica_id=-1, topics=[p.ListOffsetsTopic(name="t", partitions=[partition])])
        until(lambda: wire.ask(earliest, 7).topics[0].partitions[0].offset == 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_owns_nothing_and_holds_no_connection_open(broker, wire):
    wire.ask(VERSIONS, 3)
    reported, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(tell)
            broker.stop()
            try:
                broker.call(lambda: None)
            except ForkedClientError:
                status = 0
            os.read(reported, 1)
        finally:
            os._exit(status)
    try:
        os.close(reported)
        assert wire.ask(VERSIONS, 3).error_code == 0
        broker.stop()
        assert wire.closed_by_peer
        with pytest.raises(ConnectionRefusedError):
            Wire(broker.address)
    finally:
        os.close(tell)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
