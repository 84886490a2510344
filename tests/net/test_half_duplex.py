"""A broker's connections: while an answer is being written, nothing is read from that peer."""

import contextlib
import socket

import pytest

from kafkacore.clock import SystemClock
from kafkacore.net.selector import NetworkSend, Selector
from kafkacore.net.transport import SocketTransports
from tests.kit.wire import sized

ANSWER = bytes(4 << 20)


@pytest.fixture
def ends():
    """A selector with one accepted connection, and the peer's socket."""
    ours, peer = socket.socketpair()
    for end in (ours, peer):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    selector = Selector(SystemClock(), transports=SocketTransports())
    selector.quiet = selector.half_duplex = True
    selector.register("peer", ours)
    yield selector, peer
    selector.close()
    peer.close()


def payloads(selector) -> list[bytes]:
    return [bytes(each.payload) for each in selector.completed_receives]


def begin_to_answer(selector) -> NetworkSend:
    answer = NetworkSend("peer", [sized(ANSWER)], await_completion=False)
    selector.send(answer)
    assert not answer.completed
    return answer


def take_all(peer) -> None:
    """Reads what there is."""
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while peer.recv(1 << 20):
            pass


def served_when_taken(selector, peer) -> list[bytes]:
    """What is read next, while the peer takes its answer."""
    seen = []
    while not seen:
        take_all(peer)
        selector.poll(0)
        seen = payloads(selector)
    return seen


def test_a_request_that_comes_meanwhile_is_read_when_the_answer_is_written(ends):
    selector, peer = ends
    answer = begin_to_answer(selector)
    peer.sendall(sized(b"next"))
    selector.poll(0)
    selector.poll(0)
    assert not selector.completed_receives and selector.channel("peer").held
    count = selector.poll_count
    selector.poll(1)
    assert selector.poll_count - count == 1  # the poller does not say again what nobody wants
    assert served_when_taken(selector, peer) == [b"next"]
    assert answer.completed


def test_a_request_read_together_with_the_one_before_it_waits_too(ends):
    selector, peer = ends
    peer.sendall(sized(b"first") + sized(b"second"))
    selector.poll(1000)
    assert payloads(selector) == [b"first"]
    answer = begin_to_answer(selector)
    selector.poll(0)
    selector.poll(0)
    assert not selector.completed_receives
    assert served_when_taken(selector, peer) == [b"second"]
    assert answer.completed


def test_requests_of_a_peer_that_takes_no_answer_are_not_served(ends):
    selector, peer = ends
    begin_to_answer(selector)
    peer.sendall(sized(b"next"))
    peer.close()
    seen = []
    while "peer" not in selector.disconnected:
        selector.poll(1000)
        seen += payloads(selector)
    assert seen == []
