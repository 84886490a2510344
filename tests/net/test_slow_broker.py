"""One peer that does not read, or reads a byte at a time, costs the others nothing."""

from __future__ import annotations

import socket
import threading

from net_support import Cluster

from kafkacore import protocol
from kafkacore.clock import SystemClock
from kafkacore.net.channel import NetworkSend
from kafkacore.net.selector import Selector
from kafkacore.net.transport import Address, SocketTransports


def test_a_stalled_node_does_not_hold_up_another() -> None:
    cluster = Cluster((1, 2))
    slow, fast = cluster.until_ready(1), cluster.until_ready(2)
    cluster.poll(3)
    stalled = cluster.peer("broker-1").transport.other
    stalled.max_write_bytes = 0
    cluster.send(1)
    assert not cluster.client.is_ready(slow, cluster.now_ms)  # its last send is not complete, although only one is in flight
    for _ in range(50):
        assert cluster.client.is_ready(fast, cluster.now_ms)
        request = cluster.send(2)
        cluster.serve()
        cluster.peer("broker-2").answer(cluster.peer("broker-2").requests[-1][0], protocol.ProduceResponse())
        assert [one.request for one in cluster.poll()] == [request]
    assert cluster.client.in_flight_request_count(1) == 1
    stalled.max_write_bytes = 1
    for _ in range(200):  # one write per poll, and with it one byte
        cluster.poll()
    assert cluster.client.is_ready(slow, cluster.now_ms)
    assert cluster.peer("broker-1").requests[-1][0].request_api_key == 0
    cluster.close()


def test_one_write_per_channel_and_poll() -> None:
    cluster = Cluster((1, 2))
    for id in (1, 2):
        cluster.until_ready(id)
        cluster.peer(f"broker-{id}").transport.other.max_write_bytes = 10
    cluster.poll(20)
    sends = [cluster.send(id).send for id in (1, 2)]
    for step in range(1, 4):
        assert [send.written_bytes for send in sends] == [10 * step] * 2  # in step with each other
        cluster.poll()
    cluster.close()


def test_a_socket_that_is_not_read_takes_what_fits_and_waits() -> None:
    """Real sockets: 2 MiB to a peer that sleeps, while another peer is served 200 times."""
    slow = socket.create_server(("127.0.0.1", 0))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)
    echo = socket.create_server(("127.0.0.1", 0))
    selector = Selector(SystemClock(), transports=SocketTransports(send_buffer_bytes=131_072))
    for id, listener in ((1, slow), (2, echo)):
        selector.connect(id, Address(socket.AF_INET, listener.getsockname(), "localhost"))
    ends = [slow.accept()[0], echo.accept()[0]]
    connected: set[object] = set()
    while connected != {1, 2}:
        selector.poll(1_000)
        connected.update(selector.connected)
    body = bytes(2 << 20)
    frame = len(body).to_bytes(4, "big") + body
    big = NetworkSend(1, [frame])
    selector.send(big)
    assert not big.completed

    def answer() -> None:
        for _ in range(200):
            ends[1].sendall(ends[1].recv(8, socket.MSG_WAITALL))

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(200):
        selector.send(NetworkSend(2, [b"\0\0\0\4", number.to_bytes(4, "big")]))
        received = None
        while received is None:
            selector.poll(1_000)
            if selector.completed_receives:
                received = selector.completed_receives[0].payload
        assert bytes(received) == number.to_bytes(4, "big")
    thread.join()
    assert not big.completed
    reader = threading.Thread(target=lambda: ends[0].recv(len(frame), socket.MSG_WAITALL))
    reader.start()
    while not big.completed:
        selector.poll(1_000)
    reader.join()
    selector.close()
    for sock in (*ends, slow, echo):
        sock.close()
