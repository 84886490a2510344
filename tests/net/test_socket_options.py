"""Socket options of every connection, as getsockopt sees them."""

from __future__ import annotations

import os
import socket

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


def test_minus_one_leaves_the_system_default() -> None:
    sock = OptionsNoted()
    configure_socket(sock, -1, -1)  # type: ignore[arg-type]
    assert not sock.blocking
    assert sock.options == [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
