"""Socket options of every connection, as getsockopt sees them."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from kafkacore.net.transport import Address, PlaintextTransport, SocketTransports, configure_socket
from tests.kit.rows import each_row


@each_row(("send", "receive"), [(131_072, 32_768), (131_072, 65_536), (-1, -1)])
def test_outgoing_and_accepted_sockets_are_configured(send: int, receive: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as untouched:
        transports = SocketTransports(send_buffer_bytes=send, receive_buffer_bytes=receive)
        outgoing = transports.connect(Address(socket.AF_INET, listener.getsockname(), "localhost"))
        accepted = transports.accept(listener.accept()[0])
        for transport in (outgoing, accepted):
            assert isinstance(transport, PlaintextTransport)
            sock = transport.sock
            assert not os.get_blocking(sock.fileno())
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            # The kernel may round, and Linux doubles; asking a fresh socket for the same gives the same.
            if send > 0:
                untouched.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send)
                untouched.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    assert sock.getsockopt(socket.SOL_SOCKET, option) == untouched.getsockopt(socket.SOL_SOCKET, option)
            transport.close()


class OptionsNoted:
    """A socket that only notes its options."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.options: list[tuple[int, int, int]] = []
        self.blocking = True

    def setblocking(self, flag: bool) -> None:
        self.blocking = flag

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options.append((level, option, value))


class Attempt(OptionsNoted):
    """A socket with an end given to its attempt to connect, and to questions about it."""

    def __init__(self, code: int = 0, peer: object = OSError(errno.ENOTCONN, "")) -> None:
        super().__init__()
        self.code, self.peer, self.closed = code, peer, False

    def fileno(self) -> int:
        return 7

    def connect_ex(self, address: object) -> int:
        return self.code

    def getsockopt(self, level: int, option: int) -> int:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR)
        return self.code

    def getpeername(self) -> object:
        if isinstance(self.peer, OSError):
            raise self.peer
        return self.peer

    def close(self) -> None:
        self.closed = True


@each_row("code, connected", [(0, True), (errno.EINPROGRESS, False), (errno.EINTR, False), (errno.ECONNREFUSED, None)])
def test_an_attempt_to_connect_is_made_goes_on_or_fails(code: int, connected: bool | None) -> None:
    sock = Attempt(code)
    transports = SocketTransports(socket_factory=lambda family, kind: sock)  # type: ignore[arg-type, return-value]
    address = Address(socket.AF_INET, ("192.0.2.1", 9), "h")
    if connected is None:
        with pytest.raises(OSError) as raised:
            transports.connect(address)
        assert raised.value.errno == code
    else:
        made = transports.connect(address)
        assert (made.connected, made.peer) == (connected, "h:9")
        assert not made.handshake_wants_write and not made.pending_writes and made.flush() and made.handshake()
    assert sock.closed == (connected is None)


@each_row(
    "code, peer, ends",
    [
        (0, ("192.0.2.1", 9), True),
        (0, OSError(errno.ENOTCONN, ""), False),
        (0, OSError(errno.EBADF, ""), errno.EBADF),
        (errno.ETIMEDOUT, ("192.0.2.1", 9), errno.ETIMEDOUT),
    ],
)
def test_whether_an_attempt_has_ended(code: int, peer: object, ends: bool | int) -> None:
    made = PlaintextTransport(Attempt(code, peer), connected=False, peer="h")  # type: ignore[arg-type]
    if isinstance(ends, bool):
        assert made.finish_connect() is made.connected is ends
    else:
        with pytest.raises(OSError) as raised:
            made.finish_connect()
        assert raised.value.errno == ends and not made.connected


@each_row(
    "peer, local",
    [
        (("127.0.0.1", 9), True),
        (("::1%lo", 9, 0, 1), True),
        ("/socket", True),
        (("192.0.2.1", 9), False),
        (("fe80::1%eth0", 9, 0, 2), False),
        (("name", 9), False),
        (OSError(errno.ENOTCONN, ""), False),
    ],
)
def test_what_stays_on_this_machine(peer: object, local: bool) -> None:
    assert PlaintextTransport(Attempt(0, peer)).is_local is local  # type: ignore[arg-type]


def test_minus_one_leaves_the_system_default() -> None:
    sock = OptionsNoted()
    configure_socket(sock, -1, -1)  # type: ignore[arg-type]
    assert not sock.blocking
    assert sock.options == [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
