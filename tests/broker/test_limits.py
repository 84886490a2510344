"""What peers may take from a broker: connections, memory, its time."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from controlling import create_topic

from kafkacore import KafkaAdminClient
from kafkacore import protocol as p
from kafkacore._codec import FrameReader, ReceiveMemory, decode_request_body
from kafkacore.broker import limits
from kafkacore.broker.limits import (
    MAX_RESERVED_DESCRIPTORS,
    WAIT_FOR_A_CLOSE,
    ConnectionQuotas,
    full_address,
    has_spare_descriptor,
    log_memory_bytes,
    machine_memory_bytes,
    raise_descriptor_limit,
    request_memory_bytes,
)
from kafkacore.broker.quotas import CONNECTIONS, IP, ConnectionRateQuota
from kafkacore.broker.served import MAX_REQUEST_ELEMENTS
from kafkacore.broker.server import Broker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import ConfigError, InvalidRequest, NetworkError
from kafkacore.net.channel import ConnectionId
from kafkacore.net.selector import Selector
from kafkacore.net.transport import MemoryTransport, SocketTransports, memory_pair
from kafkacore.testing import EmbeddedCluster
from kafkacore.types import Node
from tests.kit.batches import batch
from tests.kit.inside import memory_of, selector_of
from tests.kit.rows import each_row
from tests.kit.wire import Wire, produce_request

VERSIONS = p.ApiVersionsRequest(client_software_name="wire", client_software_version="1")


def fetch_all(max_bytes: int = 64 << 20) -> p.FetchRequest:
    wanted = p.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return p.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[p.FetchTopic(topic="t", partitions=[wanted])])


# ---- counting ------------------------------------------------------------------------------------------------------------------------


def test_connections_beyond_the_limit_wait_for_one_to_close() -> None:
    quotas = ConnectionQuotas(BrokerConfig(max_connections=2))
    for id in ("a", "b"):
        assert quotas.wait_ms(0) == 0
        assert quotas.opened(id, "10.0.0.1")
    assert quotas.wait_ms(0) == WAIT_FOR_A_CLOSE == -1
    quotas.closed("a")
    quotas.closed("a")
    quotas.closed("never opened")
    assert len(quotas) == 1
    assert quotas.wait_ms(0) == 0


def test_an_address_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(BrokerConfig(max_connections_per_ip=1, max_connections_per_ip_overrides="10.0.0.2:2, [::1]:0"))
    assert quotas.opened("a", "10.0.0.1")
    assert not quotas.opened("b", "10.0.0.1")
    assert [quotas.opened(id, "10.0.0.2") for id in "cde"] == [True, True, False]
    assert not quotas.opened("f", "::1")
    assert quotas.refused == 3
    quotas.closed("a")
    assert quotas.opened("g", "10.0.0.1")
    quotas.closed("c")
    assert [quotas.opened(id, "::ffff:10.0.0.2") for id in "hi"] == [True, False]
    with pytest.raises(ConfigError, match="unknown"):
        ConnectionQuotas(BrokerConfig(max_connections_per_ip_overrides="no such host.invalid:5"))


def test_the_name_of_a_host_means_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["10.0.0.2", "10.0.0.2", "10.0.0.3"]
    monkeypatch.setattr(limits, "socket", SimpleNamespace(getaddrinfo=lambda host, port: [(0, 0, 0, "", (each, 0)) for each in addresses]))
    assert limits.connection_limits(BrokerConfig(max_connections_per_ip_overrides="h:2")) == {"10.0.0.2": 2, "10.0.0.3": 2}


def test_connections_beyond_the_rate_wait_their_share_of_a_second() -> None:
    quotas = ConnectionQuotas(BrokerConfig(max_connection_creation_rate=4))
    now_ms = 5_000
    for id in range(4):
        assert quotas.wait_ms(now_ms) == 0
        assert quotas.opened(id, "h")
    assert quotas.wait_ms(now_ms) == 250
    assert quotas.deadline_ms == 5_250
    assert not quotas.passed(5_249)
    assert quotas.wait_ms(5_100) == 150
    assert quotas.passed(5_250)
    assert quotas.deadline_ms is None
    assert quotas.wait_ms(5_250) == 0
    assert quotas.opened(9, "h")
    assert quotas.wait_ms(5_250) == 250
    now_ms = 100_000  # a long silence saves up no more than a second's worth
    taken = 0
    while quotas.wait_ms(now_ms) == 0:
        assert quotas.opened(100 + taken, "h")
        taken += 1
    assert taken == 4
    assert quotas.wait_ms(99_000) == 250  # a clock that goes back gives nothing, and takes nothing
    assert quotas.wait_ms(99_250) == 0


def test_a_listener_counts_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = {"listeners": "PLAINTEXT://h:1,OTHER://h:2", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}
    config = {**listeners, "listener.name.other.max.connections": 2, "max.connections.per.ip.overrides": "10.0.0.9:0"}
    quotas = ConnectionQuotas(BrokerConfig.from_user(config))
    other, plain = quotas.of_listener("OTHER"), quotas.of_listener("PLAINTEXT")
    assert not other.opened("turned away", "10.0.0.9")
    for id in "ab":
        assert other.wait_ms(0) == 0
        assert other.opened(id, "10.0.0.1")
    assert (other.wait_ms(0), plain.wait_ms(0)) == (WAIT_FOR_A_CLOSE, 0)
    assert plain.opened("c", "10.0.0.1")
    plain.closed("c")
    assert other.wait_ms(0) == WAIT_FOR_A_CLOSE
    other.closed("a")
    other.closed("a")
    assert other.wait_ms(0) == 0
    assert other.opened("d", "10.0.0.1")
    assert other.wait_ms(0) == WAIT_FOR_A_CLOSE
    plain.out_of_descriptors(5)
    assert quotas.deadline_ms == 205
    descriptors(monkeypatch, 400, 400)
    assert plain.wait_ms(7) == 200
    assert quotas.deadline_ms == 207


def test_a_connection_of_an_address_that_is_too_fast_counts_nowhere() -> None:
    rate = ConnectionRateQuota(11, 1)
    rate.update({frozenset({(IP, "10.0.0.1")}): {CONNECTIONS: 0.1}})
    quotas = ConnectionQuotas(BrokerConfig(), rate)
    assert quotas.wait_ms(50_000) == 0
    assert [quotas.opened(id, "10.0.0.1") for id in "ab"] == [True, True]
    assert (quotas.doomed, quotas.hosts) == ({"b": 1_000}, {"a": "10.0.0.1"})
    assert quotas.wait_ms(62_000) == 0
    assert quotas.opened("c", "10.0.0.1")
    assert quotas.doomed.keys() == {"b"}


@each_row(("host", "full"), [("10.0.0.1", "10.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("fe80::1f%eth0", "fe80:0:0:0:0:0:0:1f%eth0")])
def test_addresses_as_java_writes_them(host: str, full: str) -> None:
    assert full_address(host) == full


ENDLESS = -1


def descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, number: int | None = None) -> list[object]:
    """A system with such limits, that gives a number or none; what is set and closed."""
    done: list[object] = []

    def opened(path: str, flags: int) -> int:
        if number is None:
            raise OSError(errno.EMFILE, "none left")
        return number

    rlimit = SimpleNamespace(getrlimit=lambda which: (soft, hard), setrlimit=lambda which, both: done.append(both))
    monkeypatch.setattr(limits, "resource", SimpleNamespace(RLIMIT_NOFILE=7, RLIM_INFINITY=ENDLESS, **vars(rlimit)))
    monkeypatch.setattr(limits, "os", SimpleNamespace(open=opened, close=done.append, O_RDONLY=0))
    return done


@each_row(
    ("soft", "hard", "limit"),
    [(1_024, 4_096, 4_096), (4_096, 4_096, 4_096), (1_024, ENDLESS, 65_536), (70_000, ENDLESS, 70_000), (ENDLESS, ENDLESS, ENDLESS)],
)
def test_the_limit_of_descriptors_is_raised(soft: int, hard: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = descriptors(monkeypatch, soft, hard)
    assert raise_descriptor_limit() == limit
    assert done == ([] if soft == limit else [(limit, hard)])


@each_row(
    ("soft", "number", "is_spare"),
    [(400, 335, True), (400, 336, False), (40, 29, True), (40, 30, False), (400, None, False), (ENDLESS, None, True)],
)
def test_the_last_descriptors_are_kept(soft: int, number: int | None, is_spare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    done = descriptors(monkeypatch, soft, soft, number)
    assert has_spare_descriptor() == is_spare
    assert done == ([] if number is None else [number])


@each_row("overrides", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:-1", "a:1,b"])
def test_overrides_of_another_form_are_refused(overrides: str) -> None:
    with pytest.raises(ConfigError, match="host:limit"):
        BrokerConfig(max_connections_per_ip_overrides=overrides)


def test_the_memory_of_requests_has_a_bound_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert request_memory_bytes(BrokerConfig(queued_max_request_bytes=200 << 20)) == 200 << 20
    machine = {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4_096}
    monkeypatch.setattr(os, "sysconf", machine.__getitem__)
    assert request_memory_bytes(BrokerConfig()) == log_memory_bytes(BrokerConfig()) == 1 << 30
    assert [log_memory_bytes(BrokerConfig(log_memory_max_bytes=each)) for each in (0, 5)] == [0, 5]
    monkeypatch.setattr(os, "sysconf", int)  # it raises ValueError
    assert request_memory_bytes(BrokerConfig()) == 104_857_600
    assert log_memory_bytes(BrokerConfig()) == machine_memory_bytes() == 0
    with pytest.raises(ConfigError, match="queued_max_request_bytes"):
        BrokerConfig(queued_max_request_bytes=1000)


# ---- elements of requests --------------------------------------------------------------------------------------------------------------


def test_a_request_with_too_many_elements_closes_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(BrokerConfig()) as broker, Wire(broker.address) as greedy, Wire(broker.address) as other:
        greedy.send(p.DescribeGroupsRequest(groups=[""] * (MAX_REQUEST_ELEMENTS + 1)), 5)
        assert greedy.closed_by_peer
        other.ask(VERSIONS, 3)
    (reported,) = [record.getMessage() for record in caplog.records]
    assert "DescribeGroups v5 request, groups: more than 100000 elements in one request" in reported


def test_nested_elements_count_together() -> None:
    topic = p.OffsetForLeaderTopic(topic="t", partitions=[p.OffsetForLeaderPartition(partition=index) for index in range(9)])
    request = p.OffsetForLeaderEpochRequest(topics=[topic] * 10)
    frame = memoryview(b"".join(bytes(part) for part in p.encode_request(request, 4, 1, "me")))[4:]
    plan = type(request).plan(4)
    assert decode_request_body(plan, frame, 100) == ("me", request, 100)
    with pytest.raises(InvalidRequest, match=r"topics\[9\].partitions: more than 99 elements"):
        decode_request_body(plan, frame, 99)


# ---- memory of requests --------------------------------------------------------------------------------------------------------------


def fill_reader(reader: FrameReader, data: bytes) -> None:
    """Puts bytes where the reader wants them."""
    at = 0
    while at < len(data):
        buffer, start, room = reader.target()
        part = data[at : at + room]
        memoryview(buffer)[start : start + len(part)] = part
        reader.received(len(part))
        at += len(part)
        if at < len(data):
            assert reader.next_frame() is None


def test_a_frame_is_counted_from_its_beginning_until_its_last_view_is_gone() -> None:
    memory = ReceiveMemory(100_000)
    reader = FrameReader(1 << 20, "peer", 16_384, memory)
    fill_reader(reader, struct.pack(">i", 60_000) + bytes(30_000))  # beyond its first step: the buffer has grown
    assert reader.filling
    assert memory.used_bytes == 60_000
    fill_reader(reader, bytes(30_000))
    frame = reader.next_frame()
    assert frame is not None
    assert len(frame) == 60_000
    part = frame[5:10]
    del frame
    assert memory.used_bytes == 60_000
    del part
    assert memory.used_bytes == 0
    fill_reader(reader, struct.pack(">i", 50_000) + bytes(20_000))
    assert reader.next_frame() is None
    assert memory.used_bytes == 50_000
    del reader
    assert memory.used_bytes == 0


def test_a_frame_waits_while_others_hold_the_memory() -> None:
    memory = ReceiveMemory(50_000)
    first, second = (FrameReader(1 << 20, "peer", 16_384, memory) for _ in range(2))
    fill_reader(first, struct.pack(">i", 60_000) + bytes(100))
    assert first.next_frame() is None
    fill_reader(second, struct.pack(">i", 20_000) + bytes(100))
    assert second.next_frame() is None
    assert second.hungry
    assert not first.hungry
    assert memory.used_bytes == 60_000
    assert not memory.available
    del first
    assert memory.available
    assert second.next_frame() is None
    assert not second.hungry
    assert memory.used_bytes == 20_000


@pytest.fixture
def listening() -> Iterator[tuple[Selector, ManualClock, ReceiveMemory]]:
    clock, memory = ManualClock(1_000), ReceiveMemory(50_000)
    made = Selector(clock, connections_max_idle_ms=600_000, receive_step_bytes=16_384, receive_memory=memory)
    yield made, clock, memory
    made.close()


def memory_connection(selector: Selector, id: int) -> MemoryTransport:
    far, near = memory_pair()
    selector.register_transport(id, near)
    return far


def test_a_hungry_connection_goes_on_when_memory_comes_back(listening: tuple[Selector, ManualClock, ReceiveMemory]) -> None:
    selector, _, memory = listening
    one, two = memory_connection(selector, 1), memory_connection(selector, 2)
    one.write([struct.pack(">i", 60_000), bytes(100)], 0)
    two.write([struct.pack(">i", 20_000), b"x" * 20_000], 0)
    selector.poll(0)
    for _ in range(5):
        selector.poll(0)
        assert selector.completed_receives == []
    assert memory.used_bytes == 60_000
    one.write([bytes(59_900)], 0)
    while not selector.completed_receives:
        selector.poll(0)
    assert [receive.source for receive in selector.completed_receives] == [1]
    selector.poll(0)  # forgets the first one's frame
    while not selector.completed_receives:
        selector.poll(0)
    assert bytes(selector.completed_receives[0].payload) == b"x" * 20_000
    selector.poll(0)
    assert memory.used_bytes == 0


def test_who_stops_in_the_middle_while_others_wait_is_closed(listening: tuple[Selector, ManualClock, ReceiveMemory]) -> None:
    """To find it, the connections are walked once in a while."""
    selector, clock, _ = listening

    class Times(OrderedDict[ConnectionId, int]):
        looks = 0

        def get(self, *args: Any) -> Any:
            self.looks += 1
            return super().get(*args)

    def passes(turns: int) -> None:
        for _ in range(turns):
            clock.advance(100)
            selector.poll(0)
            received.extend(receive.source for receive in selector.completed_receives)
            selector.fail_stalled(selector.now_ms - 30_000)

    received: list[ConnectionId] = []
    one, two = memory_connection(selector, 1), memory_connection(selector, 2)
    one.write([struct.pack(">i", 60_000), bytes(100)], 0)
    passes(310)
    assert 1 in selector.channels  # no channel wants the memory
    one.write([bytes(100)], 0)
    two.write([struct.pack(">i", 20_000), b"x" * 20_000], 0)
    selector._lru = times = Times(selector._lru)
    passes(290)
    one.write([bytes(100)], 0)  # it has not stopped after all
    passes(290)
    assert 1 in selector.channels
    assert 1 <= times.looks <= 3
    passes(20)
    assert 1 not in selector.channels
    assert times.looks <= 4
    assert received == [2]


# ---- on sockets ----------------------------------------------------------------------------------------------------------------------


def test_limits_of_all_listeners_and_of_one_may_be_altered() -> None:
    """A connection that waits is let in when the limit is raised, without another one closed."""
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"
    config = {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0", "listener.security.protocol.map": protocols}
    with EmbeddedCluster(config={**config, "listener.name.other.max.connections": 1}) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin, ExitStack() as stack:

            def alter(**settings: Any) -> None:
                admin.alter_configs({("broker", "1"): {name.replace("_", "."): value for name, value in settings.items()}}).check()

            def wire(address: str) -> Wire:
                return stack.enter_context(Wire(address))

            wire(cluster.listener("OTHER")).ask(VERSIONS, 3)
            late = wire(cluster.listener("OTHER"))
            late.send(VERSIONS, 3)
            wire(cluster.bootstrap_servers).ask(VERSIONS, 3)  # the other listener has no limit of its own
            assert select.select([late.sock], [], [], 0)[0] == []
            alter(listener_name_other_max_connections=2)
            assert late.receive(p.ApiVersionsRequest, 3)[1].error_code == 0
            alter(max_connections=1)
            later = wire(cluster.bootstrap_servers)
            later.send(VERSIONS, 3)
            admin.describe_cluster()  # open connections stay
            assert select.select([later.sock], [], [], 0)[0] == []
            alter(max_connections=None)
            assert later.receive(p.ApiVersionsRequest, 3)[1].error_code == 0
            alter(max_connections_per_ip=1)
            assert wire(cluster.bootstrap_servers).closed_by_peer


def test_an_address_with_too_many_connections_is_turned_away() -> None:
    with Broker(BrokerConfig(max_connections_per_ip=2)) as broker, Wire(broker.address) as first, Wire(broker.address) as second:
        for wire in (first, second):
            wire.ask(VERSIONS, 3)
        with Wire(broker.address) as third:
            assert third.closed_by_peer
        first.ask(VERSIONS, 3)
        second.sock.close()
        while broker.call(broker.num_connections) > 1:
            first.ask(VERSIONS, 3)
        with Wire(broker.address) as fourth:
            fourth.ask(VERSIONS, 3)


def test_peers_that_announce_much_and_stop_pin_little() -> None:
    config = BrokerConfig(queued_max_request_bytes=104_857_600)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Broker(config) as broker, ExitStack() as stack:
        broker.call(lambda: create_topic(broker.state.controller, "t"))
        stalled = [stack.enter_context(Wire(broker.address)) for _ in range(100)]
        for wire in stalled:
            wire.sock.sendall(struct.pack(">i", 104_857_600) + bytes(20_000))
        with Wire(broker.address) as small:
            while not broker.call(lambda: len(selector_of(broker)._hungry) == len(stalled) - 1):  # type: ignore[union-attr]
                small.ask(VERSIONS, 3)
            assert small.ask(produce_request(batch()), 9).responses[0].partition_responses[0].error_code == 0
            large = batch([bytes(200_000)])
            small.send(produce_request(large), 9)  # needs memory: waits
            assert broker.call(lambda: memory_of(broker).used_bytes) == 104_857_600
            for wire in stalled:
                wire.sock.close()
            assert small.receive(p.ProduceRequest, 9)[1].responses[0].partition_responses[0].error_code == 0
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 64 * 1024


def test_who_does_not_read_its_answers_gets_no_more_of_them() -> None:
    with Broker() as broker, Wire(broker.address) as greedy, Wire(broker.address) as other:
        broker.call(lambda: create_topic(broker.state.controller, "t", configs={"max.message.bytes": str(16 << 20)}))
        data = batch([bytes(12 << 20)])
        assert other.ask(produce_request(data), 9).responses[0].partition_responses[0].error_code == 0
        seen: list[object] = []
        broker.control(1, lambda request: seen.append(request))
        greedy.sock.sendall(b"".join(greedy.frame(fetch_all(), 12) for _ in range(200)))
        for _ in range(50):
            other.ask(VERSIONS, 3)
        assert len(seen) == 1  # 12 MiB do not fit into the sockets' buffers
        for _ in range(3):
            greedy.receive_frame()
        assert len(seen) < 8


# ---- many ----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """The process may open some two hundred more file descriptors; how many are kept in reserve."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/dev/null") as lowest:
        limit = lowest.fileno() + 200
    if before[1] != resource.RLIM_INFINITY and before[1] < limit:
        pytest.skip(f"{limit} descriptors are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield min(MAX_RESERVED_DESCRIPTORS, limit // 4)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_connections_leave_the_last_descriptors_to_the_logs(few_descriptors: int, tmp_path: Path) -> None:
    with Broker(BrokerConfig(num_partitions=4), log_dirs=[tmp_path]) as broker, Wire(broker.address) as busy:
        broker.call(lambda: create_topic(broker.state.controller, "t"))
        for nth in range(2):  # the limit is reached twice
            with ExitStack() as stack:
                made = f"made-{nth}"
                held: list[socket.socket] = []
                while has_spare_descriptor():
                    taken = stack.enter_context(Wire(broker.address))
                    held.append(taken.sock)
                    broker.call(lambda: None)
                late = stack.enter_context(Wire(broker.address))  # the system takes the connection, the broker does not
                late.send(VERSIONS, 3)
                polls = broker.call(lambda: selector_of(broker).poll_count if selector_of(broker) is not None else 0)
                for _ in range(50):
                    assert busy.ask(produce_request(batch()), 9).responses[0].partition_responses[0].error_code == 0
                broker.call(broker.state.logs.checkpoint)
                assert broker.call(lambda: broker.state.logs.failures()) == ""
                broker.call(lambda: create_topic(broker.state.controller, made))  # noqa: B023 - it runs now
                spent = broker.call(lambda: selector_of(broker).poll_count if selector_of(broker) is not None else 0) - polls
                assert spent < 50 * 4 + 100, f"{spent} polls for 50 requests: the listener spins"
                held.pop().close()
                held.pop().close()
                late.receive(p.ApiVersionsRequest, 3)  # there is room for it now
            with Wire(broker.address) as fresh:
                fresh.ask(VERSIONS, 3)


def test_a_listener_goes_on_when_somebody_else_gives_descriptors_back(few_descriptors: int) -> None:
    with Broker(BrokerConfig()) as broker, ExitStack() as stack:
        late = stack.enter_context(Wire(broker.address))
        late.ask(VERSIONS, 3)
        files = []
        while has_spare_descriptor():
            files.append(stack.enter_context(open("/dev/null")))
        with Wire(broker.address) as waiting:
            waiting.send(VERSIONS, 3)
            broker.call(lambda: None)
            assert broker.call(broker.num_connections) == 1
            for file in files[:10]:
                file.close()
            waiting.receive(p.ApiVersionsRequest, 3)  # though no connection was closed


def test_a_peer_that_cannot_be_connected_to_for_want_of_descriptors_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(BrokerConfig(), node_id=2) as other, Broker(BrokerConfig(), node_id=1) as broker:
        answers: list[object] = []
        arrived = threading.Event()

        def done(answer: object) -> None:
            answers.append(answer)
            arrived.set()

        def ask() -> None:
            arrived.clear()
            broker.call(lambda: broker.state.peers.send(2, VERSIONS, 3, done, 10_000))
            assert arrived.wait(60)

        broker.state.peers._find = lambda node_id: Node(2, other.host, other.port)
        with monkeypatch.context() as patched:

            def refuse(*args: object, **kwargs: object) -> None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            patched.setattr(SocketTransports, "connect", refuse)
            ask()
        assert isinstance(answers[0], NetworkError)
        assert "Too many open files" in str(answers[0])
        ask()  # after the back-off
        assert isinstance(answers[1], p.ApiVersionsResponse)
