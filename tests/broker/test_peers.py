"""PeerClient: one answer for every request, in order, over lanes that do not wait for each other, whatever the other side does."""

import contextlib
import queue
import socket
import struct
import threading

import pytest

from kafkacore import protocol as p
from kafkacore.broker.peers import RECONNECT_BACKOFF_MAX_MS, PeerClient
from kafkacore.broker.server import Broker
from kafkacore.clock import ManualClock
from kafkacore.config import BrokerConfig
from kafkacore.errors import CorruptDataError, DisconnectError, NetworkError, RequestTimedOut
from kafkacore.net.selector import Selector
from kafkacore.testing import Drop
from kafkacore.types import Node

METADATA = p.MetadataRequest(topics=[])


class Peers:
    """A PeerClient whose loop is turned by the test."""

    def __init__(self, **config):
        self.clock = ManualClock()
        self.nodes = {}
        self.client = PeerClient(1, BrokerConfig(**config), self.clock, self.nodes.get)
        self.selector = Selector(self.clock)
        self.selector.quiet = self.selector.half_duplex = True  # as a broker has it
        self.client.attach(self.selector)
        self.outcomes = []

    def send(self, node=2, request=METADATA, version=13, timeout_ms=1000, lane="", name=None):
        self.client.send(node, request, version, lambda outcome: self.outcomes.append((name, outcome)), timeout_ms, lane)

    def turn(self, wait_ms=0):
        self.selector.poll(wait_ms)
        self.client.polled(self.selector)
        for receive in self.selector.completed_receives:
            assert self.client.owns(receive.source)
            self.client.received(receive)
        for id, reason in self.selector.disconnected.items():
            self.client.disconnected(id, reason)
        self.client.advance_clock()

    def turn_until(self, done):
        for _ in range(1000):
            if done():
                return
            self.turn(20)
        raise AssertionError(f"never happened; outcomes {self.outcomes}")

    def wait(self, count=1):
        self.turn_until(lambda: len(self.outcomes) >= count)
        return [outcome for _, outcome in self.outcomes]

    @contextlib.contextmanager
    def served_by(self, listener):
        """The other end of the next connection, once requests are on their way."""
        with listener.accept()[0] as peer:
            peer.settimeout(60)
            self.turn_until(lambda: self.selector.channels)
            self.turn()
            yield peer


@pytest.fixture
def peers():
    each = Peers()
    yield each
    each.client.close()
    each.selector.close()


@pytest.fixture
def broker():
    with Broker(node_id=2) as one:
        yield one


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(60)
        yield sock


def address(sock):
    return Node(2, *sock.getsockname()[:2])


def frame_of(sock):
    def exactly(nbytes):
        data = b""
        while len(data) < nbytes:
            data += sock.recv(nbytes - len(data))
        return data

    return exactly(struct.unpack(">i", exactly(4))[0])


def answer_to(sock, request_frame, node_id=7, correlation_id=None):
    header, _ = p.decode_request(request_frame)
    response = p.MetadataResponse(brokers=[], controller_id=node_id, topics=[])
    sent = header.correlation_id if correlation_id is None else correlation_id
    sock.sendall(b"".join(bytes(part) for part in p.encode_response(response, 13, sent)))


def test_a_connection_that_is_cut_as_soon_as_it_is_made(peers, listener):
    """Between the poll that made it and the look at it: there is no name of the peer to be had any more."""
    peers.nodes[2] = address(listener)
    peers.send(timeout_ms=1000)
    while not peers.selector.connected:
        peers.client.advance_clock()
        peers.selector.poll(20)
    accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()
    (connection,) = peers.selector.connected
    sock = peers.selector.channel(connection).transport.sock
    with pytest.raises(OSError, match="not connected"):
        while True:
            sock.getpeername()
    peers.client.polled(peers.selector)
    (outcome,) = peers.wait()
    assert isinstance(outcome, DisconnectError)


def test_requests_are_answered_in_order_also_those_sent_before_the_connection_is_there(peers, broker, caplog):
    peers.nodes[2] = Node(2, broker.host, broker.port)

    def bug(outcome):
        raise ZeroDivisionError

    peers.client.send(2, METADATA, 13, bug, 1000)  # stops no other
    for name in range(5):
        peers.send(name=name)
    assert peers.outcomes == []
    assert peers.client.in_flight_count(2) == 6
    answers = peers.wait(5)
    assert [name for name, _ in peers.outcomes] == [0, 1, 2, 3, 4]
    assert all(each.brokers[0].node_id == 2 for each in answers)
    assert len(peers.selector.channels) == 1
    assert peers.client.next_deadline_ms() is None
    assert "Metadata failed" in caplog.text


def test_the_first_frame_of_a_connection_is_a_request_in_the_version_that_was_named(peers, listener):
    peers.nodes[2] = address(listener)
    for version in (9, 12):
        peers.send(version=version)
    with peers.served_by(listener) as peer:
        found = [p.decode_request(frame_of(peer))[0] for _ in range(2)]
    assert [header[:2] for header in found] == [(3, 9), (3, 12)]


def test_a_lane_does_not_wait_for_another(peers, broker):
    peers.nodes[2] = Node(2, broker.host, broker.port)
    broker.control(3, lambda request: Drop if request.topics is None else None)
    peers.send(request=p.MetadataRequest(topics=None), lane="slow", name="slow")
    peers.send(lane="fast", name="fast")
    peers.wait()
    assert [name for name, _ in peers.outcomes] == ["fast"]
    assert peers.client.in_flight_count(2) == 1


def test_a_node_nobody_knows_fails_after_send_has_returned_and_the_next_request_looks_again(peers, broker):
    peers.send()
    assert peers.outcomes == []
    assert isinstance(peers.wait()[0], NetworkError)
    peers.nodes[2] = Node(2, broker.host, broker.port)
    peers.send()
    peers.turn()
    assert len(peers.selector.channels) == 0  # the back-off is not over
    peers.clock.advance(100)
    assert isinstance(peers.wait(2)[1], p.MetadataResponse)


def test_a_refused_connection_fails_what_waits_and_back_off_grows(peers, listener):
    peers.nodes[2] = address(listener)
    listener.close()
    waits = []
    for attempt in range(1, 8):
        peers.send(timeout_ms=100_000)
        before = peers.clock.now_ms()
        peers.turn()
        while len(peers.outcomes) < attempt:
            deadline_ms = peers.client.next_deadline_ms()
            if not peers.selector.channels and deadline_ms > peers.clock.now_ms():
                peers.clock.advance(deadline_ms - peers.clock.now_ms())
            peers.turn()
        waits.append(peers.clock.now_ms() - before)
    assert all(isinstance(outcome, NetworkError) for _, outcome in peers.outcomes)
    assert waits[0] == 0
    assert 40 <= waits[1] <= 60
    assert 600 <= waits[6] <= RECONNECT_BACKOFF_MAX_MS


def test_a_request_that_is_not_answered_ends_its_connection_and_those_behind_it(peers, listener):
    peers.nodes[2] = address(listener)
    peers.send(name="never written", timeout_ms=100)
    peers.send(name="answered", timeout_ms=60_000)
    peers.send(name="first", timeout_ms=500)
    peers.send(name="second", timeout_ms=60_000)
    peers.clock.advance(101)  # ends what waits, and not the connection
    peers.client.advance_clock()
    with peers.served_by(listener) as peer:
        assert peers.client.in_flight_count(2) == 3 and len(peers.selector.channels) == 1
        answer_to(peer, frame_of(peer))
        peers.wait(2)
        frame_of(peer)
        peers.clock.advance(501)
        peers.wait(4)
        kinds = [(name, type(outcome)) for name, outcome in peers.outcomes]
        assert kinds[:2] == [("never written", RequestTimedOut), ("answered", p.MetadataResponse)]
        assert dict(kinds[2:]) == {"first": RequestTimedOut, "second": DisconnectError}
        frame_of(peer)
        assert peer.recv(1) == b""
    peers.send(name="again")
    peers.clock.advance(100)
    peers.turn()
    with peers.served_by(listener) as peer:
        answer_to(peer, frame_of(peer))
        assert peers.wait(5)[4].controller_id == 7


@pytest.mark.parametrize("fault", ["correlation id", "rubbish", "nothing asked"])
def test_an_answer_that_does_not_fit_ends_the_connection(peers, listener, fault):
    peers.nodes[2] = address(listener)
    peers.send()
    with peers.served_by(listener) as peer:
        request = frame_of(peer)
        if fault == "correlation id":
            answer_to(peer, request, correlation_id=99)
        elif fault == "rubbish":
            peer.sendall(struct.pack(">i", 6) + b"\0\0\0\0\0\x7f")
        else:
            answer_to(peer, request)
            peers.wait()
            answer_to(peer, request)
            peers.turn_until(lambda: not peers.selector.channels)
            assert isinstance(peers.outcomes[0][1], p.MetadataResponse)
            return
        assert isinstance(peers.wait()[0], CorruptDataError)
        assert peer.recv(1) == b""


def test_closing_tells_every_open_request_and_later_ones(peers, listener):
    peers.nodes[2] = address(listener)
    peers.send(name="open")
    peers.client.close()
    peers.send(name="late")
    peers.client.advance_clock()
    assert [(name, type(outcome)) for name, outcome in peers.outcomes] == [("open", DisconnectError), ("late", NetworkError)]
    assert peers.selector.channels == {}


def test_a_resolver_that_hangs_for_one_broker_stops_nothing_else(peers, broker, listener, monkeypatch):
    real, asked, answers = socket.getaddrinfo, threading.Semaphore(0), queue.SimpleQueue()

    def getaddrinfo(host, port, *args, flags=0, **options):
        if host == "hangs.example":
            if not flags & socket.AI_NUMERICHOST:
                asked.release()
                host = answers.get()
            if host != "127.0.0.1":
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, port, *args, flags=flags, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    peers.nodes[2] = Node(2, "127.0.0.1", broker.port)
    peers.nodes[3] = Node(3, "hangs.example", listener.getsockname()[1])
    try:
        peers.send(3, timeout_ms=60_000)
        assert asked.acquire(timeout=30)
        peers.send(2)
        assert isinstance(peers.wait()[0], p.MetadataResponse)
        peers.clock.advance(15_000)
        assert "did not accept a connection within" in str(peers.wait(2)[1])
        answers.put("nowhere")
        peers.clock.advance(RECONNECT_BACKOFF_MAX_MS)
        peers.send(3, timeout_ms=60_000)
        assert "cannot resolve host 'hangs.example': Name or service not known" in str(peers.wait(3)[2])
        peers.clock.advance(RECONNECT_BACKOFF_MAX_MS)
        while asked.acquire(blocking=False):
            pass
        peers.send(3, timeout_ms=60_000)
        peers.send(3, timeout_ms=60_000, lane="other")
        peers.turn_until(lambda: asked.acquire(blocking=False))
        answers.put("127.0.0.1")
        peers.turn_until(lambda: len(peers.selector.channels) == 3)
        for nth in (4, 5):
            with peers.served_by(listener) as peer:
                peers.turn_until(lambda: any(each.in_flight for each in peers.client.connections.values()))
                answer_to(peer, frame_of(peer))
                assert isinstance(peers.wait(nth)[-1], p.MetadataResponse)
        assert not asked.acquire(blocking=False)  # one lookup for both lanes
    finally:
        answers.put("nowhere")
