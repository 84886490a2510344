"""Selector over TLS: handshake inside the poll loop, decrypted bytes that no event announces, refused certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator

import pytest
import trustme

from kafkacore.clock import SystemClock
from kafkacore.errors import DisconnectError
from kafkacore.net.channel import KafkaChannel, NetworkSend
from kafkacore.net.selector import Selector
from kafkacore.net.transport import Address, SocketTransports
from tests.kit.inside import watched_by
from tests.kit.wire import sized


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[tuple[Selector, tuple[str, int]]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Selector(SystemClock(), transports=SocketTransports(ssl_context=context))
        made.listen(listener)
        yield made, listener.getsockname()
        made.close()


def client_selector(authority: trustme.CA) -> Selector:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return Selector(SystemClock(), transports=SocketTransports(ssl_context=context))


def connect_both(client: Selector, server: tuple[Selector, tuple[str, int]]) -> str:
    serving, address = server
    client.connect(1, Address(socket.AF_INET, address, "localhost"))
    id = None
    while id is None or not client.is_channel_ready(1) or not serving.is_channel_ready(id):
        client.poll(1)
        serving.poll(1)
        if serving.accepted:
            id = str(serving.accepted[0])
        assert not client.disconnected and not serving.disconnected
    return id


def test_frames_over_tls(authority: trustme.CA, server: tuple[Selector, tuple[str, int]]) -> None:
    serving = server[0]
    client = client_selector(authority)
    id = connect_both(client, server)
    # Small frames share a TLS record: all but the first are found without a socket event, one per poll.
    client.send(NetworkSend(1, [sized(b"one") + sized(b"two"), sized(b"three")]))
    got: list[bytes] = []
    while len(got) < 3:
        client.poll(0)
        serving.poll(100)
        assert len(serving.completed_receives) <= 1
        got += [bytes(receive.payload) for receive in serving.completed_receives]
    assert got == [b"one", b"two", b"three"]
    big = bytes(range(256)) * 20_000
    send = NetworkSend(id, [sized(big)])
    serving.send(send)
    while not got[3:]:
        serving.poll(0)
        client.poll(0)
        got += [bytes(receive.payload) for receive in client.completed_receives]
    assert got[3] == big
    assert send.completed
    client.close()
    while not serving.disconnected:
        serving.poll(1_000)


def test_a_muted_channel_keeps_its_decrypted_frames(authority: trustme.CA, server: tuple[Selector, tuple[str, int]]) -> None:
    serving = server[0]
    client = client_selector(authority)
    id = connect_both(client, server)
    client.send(NetworkSend(1, [sized(b"one") + sized(b"two")]))
    client.poll(0)
    while not serving.completed_receives:
        serving.poll(100)
    serving.mute(id)
    for _ in range(3):
        serving.poll(0)
        assert not serving.completed_receives
    serving.unmute(id)
    serving.poll(10_000)  # does not wait
    assert bytes(serving.completed_receives[0].payload) == b"two"
    client.close()


Coming = tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO, socket.socket]


def crowd(count: int, authority: trustme.CA, server: tuple[Selector, tuple[str, int]]) -> list[Coming]:
    """Connections that have sent the beginning of their handshake."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    made = []
    for _ in range(count):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        stream = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            stream.do_handshake()
        sock = socket.create_connection(server[1])
        sock.sendall(outgoing.read())
        made.append((stream, incoming, outgoing, sock))
    return made


def test_a_crowd_of_handshakes_lets_others_through(authority: trustme.CA, server: tuple[Selector, tuple[str, int]]) -> None:
    serving = server[0]
    client = client_selector(authority)
    connect_both(client, server)
    coming = crowd(50, authority, server)
    taken: list[str] = []
    while len(taken) < len(coming):
        serving.poll(1_000)
        taken += map(str, serving.accepted)
    steps: list[object] = []
    advance = KafkaChannel.prepare

    def counted(channel: KafkaChannel) -> bool:
        steps.append(channel.id)
        return advance(channel)

    KafkaChannel.prepare = counted  # type: ignore[method-assign]
    try:
        for n in range(5):
            client.send(NetworkSend(1, [sized(b"%d" % n)]))
            client.poll(0)
            steps.clear()
            serving.poll(10_000)
            assert [bytes(receive.payload) for receive in serving.completed_receives] == [b"%d" % n]
            assert 0 < len(steps) <= 4
    finally:
        KafkaChannel.prepare = advance  # type: ignore[method-assign]
    for stream, incoming, outgoing, sock in coming:
        sock.setblocking(False)
        while True:
            try:
                stream.do_handshake()
                break
            except ssl.SSLWantReadError:
                serving.poll(0)
                with contextlib.suppress(BlockingIOError):
                    incoming.write(sock.recv(65_536))
        sock.sendall(outgoing.read())
    while not all(serving.is_channel_ready(id) for id in taken):
        serving.poll(10_000)
        assert not serving.disconnected
    for _, _, _, sock in coming:
        sock.close()
    client.close()


def test_a_client_begins_all_its_handshakes(authority: trustme.CA, server: tuple[Selector, tuple[str, int]]) -> None:
    """It speaks first: a step that is put off would come never."""
    serving, address = server
    client = client_selector(authority)
    for n in range(12):
        client.connect(n, Address(socket.AF_INET, address, "localhost"))
    while not all(client.is_channel_ready(n) for n in range(12)):
        client.poll(1)
        serving.poll(1)
        assert not client.disconnected and not serving.disconnected
    client.close()


@contextlib.contextmanager
def blocking(
    authority: trustme.CA, server: tuple[Selector, tuple[str, int]], version: ssl.TLSVersion
) -> Iterator[tuple[ssl.SSLSocket, str]]:
    """An accepted connection, and the other side of it without a selector."""
    serving, address = server
    context = ssl.create_default_context()
    context.maximum_version = version
    authority.configure_trust(context)
    with context.wrap_socket(socket.create_connection(address), server_hostname="localhost", do_handshake_on_connect=False) as sock:
        sock.setblocking(False)
        id, shaken = None, False
        while id is None or not shaken or not serving.is_channel_ready(id):
            with contextlib.suppress(ssl.SSLWantReadError):
                sock.do_handshake()
                shaken = True
            serving.poll(1)
            id = next(map(str, serving.accepted), id)
        yield sock, id


def says_goodbye(sock: ssl.SSLSocket) -> None:
    """close_notify alone; the stream stays open."""
    with contextlib.suppress(ssl.SSLWantReadError):
        sock.unwrap()


def hangs_up(sock: ssl.SSLSocket) -> None:
    sock.close()


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("end", [says_goodbye, hangs_up])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.name)
def test_the_end_of_a_muted_peer_is_reported_where_it_is_watched(
    authority: trustme.CA, server: tuple[Selector, tuple[str, int]], version: ssl.TLSVersion, end: Callable[[ssl.SSLSocket], None]
) -> None:
    serving = server[0]
    with blocking(authority, server, version) as (sock, id):
        serving.mute(id)
        serving.watch(id)
        end(sock)
        while id not in serving.disconnected:
            serving.poll(5_000)
        assert isinstance(serving.disconnected[id], DisconnectError)  # reset, where the server's tickets were not read
        assert not watched_by(serving) and not serving.explicitly_muted


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.name)
def test_a_frame_before_the_end_of_a_muted_peer_is_read_first(
    authority: trustme.CA, server: tuple[Selector, tuple[str, int]], version: ssl.TLSVersion
) -> None:
    serving = server[0]
    with blocking(authority, server, version) as (sock, id):
        serving.mute(id)
        serving.watch(id)
        sock.send(sized(b"last"))
        sock.close()
        for _ in range(3):
            serving.poll(5)
            assert not serving.disconnected and not serving.completed_receives
        serving.unmute(id)
        got: list[bytes] = []
        while id not in serving.disconnected:
            serving.poll(5_000)
            got += [bytes(receive.payload) for receive in serving.completed_receives]
        assert got == [b"last"]
