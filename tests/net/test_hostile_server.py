"""NetworkClient over real sockets against a server that does everything wrong. The clock is moved by hand: nothing waits for a time-out."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore import protocol
from kafkacore.clock import ManualClock
from kafkacore.config import ClientConfig
from kafkacore.errors import CorruptDataError, DisconnectError, KafkaError, KafkaTimeoutError, NetworkError, RequestTimedOut
from kafkacore.metadata import NEVER_MS, Metadata
from kafkacore.net.client import ClientResponse, NetworkClient
from kafkacore.net.selector import Selector
from kafkacore.net.transport import Address
from kafkacore.producer import KafkaProducer
from kafkacore.types import Node

Answer = Callable[[bytes], bytes | None]  # what the server makes of a good frame; None: it closes instead


class Server:
    """Answers ApiVersions and Produce; `answer` decides what becomes of the frame. Driven by the test, without a thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.connections: dict[socket.socket, bytes] = {}
        self.later: list[tuple[socket.socket, bytes]] = []
        self.accepted = 0
        self.drop = False
        self.byte_by_byte = False
        self.spoil: dict[int, Answer] = {}  # by API key

    def serve(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except BlockingIOError:
                break
            self.accepted += 1
            if self.drop:
                conn.close()
                continue
            conn.setblocking(False)
            self.connections[conn] = b""
        if self.later:
            conn, data = self.later.pop(0)
            conn.send(data[:1])
            if data[1:]:
                self.later.insert(0, (conn, data[1:]))
        for conn in list(self.connections):
            try:
                data = conn.recv(1 << 16)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                data = b""
            if not data:
                self.close(conn)
                continue
            held = self.connections[conn] + data
            while len(held) >= 4 and len(held) >= 4 + int.from_bytes(held[:4], "big"):
                size = int.from_bytes(held[:4], "big")
                self.answer(conn, held[4 : 4 + size])
                held = held[4 + size :]
            if conn in self.connections:
                self.connections[conn] = held

    def answer(self, conn: socket.socket, request: bytes) -> None:
        header, _ = protocol.decode_request(request)
        body: Any
        if header.request_api_key == 18:
            body = protocol.ApiVersionsResponse(
                api_keys=[
                    protocol.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                    for api in protocol.APIS.values()
                ]
            )
        else:
            body = protocol.ProduceResponse()
        frame = b"".join(bytes(part) for part in protocol.encode_response(body, header.request_api_version, header.correlation_id))
        spoil = self.spoil.get(header.request_api_key)
        data = frame if spoil is None else spoil(frame)
        if data is None:
            self.close(conn)
        elif self.byte_by_byte:
            self.later.append((conn, data))
        else:
            conn.send(data)

    def close(self, conn: socket.socket) -> None:
        del self.connections[conn]
        conn.close()

    def close_all(self) -> None:
        for conn in list(self.connections):
            self.close(conn)
        self.listener.close()


class Bench:
    def __init__(self, *servers: tuple[str, int], **settings: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.config = ClientConfig.from_user(bootstrap_servers="h:1", **({"request_timeout_ms": 5_000} | settings))
        self.metadata = Metadata(self.config, self.clock, rng=random.Random(1))
        self.metadata.bootstrap([("h", 1)])
        self.metadata.next_update_ms = NEVER_MS
        addresses = [Address(socket.AF_INET, server, "h") for server in servers]
        selector = Selector(self.clock, connections_max_idle_ms=self.config.connections_max_idle_ms)
        self.client = NetworkClient(selector, self.metadata, self.config, rng=random.Random(1), resolver=lambda host, port: addresses)
        self.node = Node(1, "h", 1)
        self.responses: list[ClientResponse] = []

    def turn(self, server: Server | None = None) -> None:
        self.metadata.next_update_ms = NEVER_MS  # no metadata here
        if server is not None:
            server.serve()
        self.responses += self.client.poll(5, self.clock.now_ms())

    def until(self, condition: Callable[[], object], server: Server | None = None) -> None:
        for _ in range(2_000):
            if condition():
                return
            self.turn(server)
        raise AssertionError("it does not come to that")

    def ready(self, server: Server | None = None) -> None:
        self.until(lambda: self.client.ready(self.node, self.clock.now_ms()), server)

    def ask(self) -> None:
        now_ms = self.clock.now_ms()
        request = self.client.new_client_request(1, protocol.ProduceRequest, lambda version: protocol.ProduceRequest(), now_ms)
        self.client.send(request, now_ms)

    def errors(self) -> str:
        return " | ".join(str(error) for error in self.client.connection_errors(self.node))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close_all()


def corrupt_correlation(frame: bytes) -> bytes:
    (correlation_id,) = struct.unpack_from(">i", frame, 4)
    return frame[:4] + struct.pack(">i", correlation_id + 1) + frame[8:]


WRONG: dict[str, tuple[Answer, type[KafkaError], str, bool]] = {
    # what comes, what it is reported as, its text, and whether time has to pass first
    "half a frame": (lambda frame: frame[: len(frame) // 2], RequestTimedOut, "in time", True),
    "half a size": (lambda frame: frame[:2], RequestTimedOut, "in time", True),
    "nothing": (lambda frame: b"", RequestTimedOut, "in time", True),
    "a size that never comes": (lambda frame: b"\x7f\xff\xff\xff" + bytes(100), RequestTimedOut, "in time", True),
    "another protocol": (lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n", RequestTimedOut, "in time", True),
    "a negative size": (lambda frame: b"\xff\xff\xff\xff" + frame[4:], CorruptDataError, "size", False),
    "an empty frame": (lambda frame: bytes(4), CorruptDataError, "", False),
    "garbage": (lambda frame: frame[:8] + b"\xff" * (len(frame) - 8), CorruptDataError, "", False),
    "another correlation id": (corrupt_correlation, CorruptDataError, "correlation", False),
    "an end": (lambda frame: None, DisconnectError, "", False),
}


@pytest.mark.parametrize("api_key", [0, 18], ids=["Produce", "ApiVersions"])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_ends_the_connection_and_the_next_one_works(server: Server, what: str, api_key: int) -> None:
    spoil, kind, says, late = WRONG[what]
    bench = Bench(server.address)
    server.spoil[api_key] = spoil
    if api_key == 0:
        bench.ready(server)
        bench.ask()
        waits: Callable[[], object] = lambda: bench.responses  # noqa: E731
    else:
        bench.client.ready(bench.node, bench.clock.now_ms())
        waits = lambda: bench.client.connection_failed(bench.node)  # noqa: E731
    if late:
        for _ in range(20):
            bench.turn(server)
        assert not waits()
        bench.clock.advance(5_000)
    bench.until(waits, server)
    if api_key == 0:
        (response,) = bench.responses
        assert response.disconnected
        assert response.timed_out == late
        assert isinstance(response.error, kind), response.error
        assert says in str(response.error)
        assert response.error.broker == 1
    assert says in bench.errors()
    assert not bench.client.selector.channels
    server.spoil.clear()
    bench.responses.clear()
    bench.clock.advance(2_000)
    bench.ready(server)
    bench.ask()
    bench.until(lambda: bench.responses, server)
    assert bench.responses[0].error is None
    bench.client.close()


def test_an_end_in_the_middle_of_a_frame(server: Server) -> None:
    bench = Bench(server.address)
    bench.ready(server)
    cut: list[bytes] = []

    def all_but_one(frame: bytes) -> bytes:
        cut.append(frame)
        return frame[:-1]

    server.spoil[0] = all_but_one
    bench.ask()
    bench.until(lambda: cut, server)
    for _ in range(10):
        bench.turn(server)
    assert not bench.responses
    for conn in list(server.connections):
        server.close(conn)
    bench.until(lambda: bench.responses, server)
    assert isinstance(bench.responses[0].error, DisconnectError)
    bench.client.close()


def test_one_byte_at_a_time(server: Server) -> None:
    server.byte_by_byte = True
    bench = Bench(server.address)
    bench.ready(server)
    for _ in range(3):
        bench.ask()
    bench.until(lambda: len(bench.responses) == 3, server)
    assert all(response.error is None for response in bench.responses)
    bench.client.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")
def test_fifty_dropped_connections_leave_nothing_behind(server: Server) -> None:
    bench = Bench(server.address)
    server.drop = True
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        bench.clock.advance(2_000)
        assert not bench.client.ready(bench.node, bench.clock.now_ms())
        bench.until(lambda: bench.client.connection_failed(bench.node), server)
        bench.until(lambda number=number: server.accepted == number + 1, server)
    assert len(os.listdir("/proc/self/fd")) == before
    assert bench.client.selector.statistics()["connections"] == 0
    assert 0 < len(bench.client.connection_errors(bench.node)) <= 8
    assert len(bench.metadata.attempts) < 20
    server.drop = False
    bench.clock.advance(2_000)
    bench.ready(server)
    bench.client.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux drops what does not fit a listener's queue")
def test_a_connection_that_is_never_taken_times_out() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        bench = Bench(full.getsockname(), socket_connection_setup_timeout_ms=700, socket_connection_setup_timeout_max_ms=700)
        assert not bench.client.ready(bench.node, bench.clock.now_ms())
        for _ in range(5):
            bench.turn()
        assert not bench.client.connection_failed(bench.node)
        bench.clock.advance(700)
        bench.until(lambda: bench.client.connection_failed(bench.node))
        assert "was not set up within 700 ms" in bench.errors()
        bench.client.close()
        for one in waiting:
            one.close()


def test_an_idle_connection_is_closed_and_made_again_when_needed(server: Server) -> None:
    bench = Bench(server.address, connections_max_idle_ms=3_000)
    bench.ready(server)
    bench.clock.advance(2_999)
    bench.turn(server)
    assert len(server.connections) == 1
    bench.clock.advance(1)
    bench.until(lambda: not server.connections, server)
    assert bench.client.connection_failed(bench.node)
    bench.clock.advance(2_000)
    bench.ready(server)
    assert server.accepted == 2
    bench.client.close()


def refusing() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
        return address


def test_a_name_whose_first_addresses_refuse(server: Server) -> None:
    bench = Bench(refusing(), refusing(), server.address)
    bench.ready(server)  # without a pause: the clock stands still
    assert server.accepted == 1
    bench.client.close()


@pytest.mark.parametrize("what", ["refused", "unknown name", "hangs up"])
def test_a_wrong_address_reaches_the_next_call_with_its_reason(server: Server, what: str) -> None:
    server.listener.setblocking(True)
    if what == "refused":
        where, says = "{}:{}".format(*refusing()), "refused"
    elif what == "unknown name":
        where, says = "no-such-host.invalid:9092", "cannot resolve host 'no-such-host.invalid'"
    else:
        where, says = "{}:{}".format(*server.address), "connection"  # closed or reset, as it happens

        def hang_up() -> None:
            while True:
                try:
                    server.listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
    with KafkaProducer(bootstrap_servers=where, max_block_ms=300, reconnect_backoff_ms=10) as p:
        for call in (lambda: p.send("t", b"x"), lambda: p.send_many("t", [b"x"]), lambda: p.partitions_for("t")):
            with pytest.raises(KafkaTimeoutError) as raised:
                call()
            assert any(isinstance(attempt, (NetworkError, DisconnectError)) for attempt in raised.value.attempts)
            assert says in str(raised.value).lower()
    if what == "hangs up":
        server.listener.shutdown(socket.SHUT_RDWR)
