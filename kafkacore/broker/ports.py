"""Ports: the listening sockets of a server, and which of its listeners a connection came in by."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from kafkacore.config_listeners import Listener
from kafkacore.net.channel import ConnectionId
from kafkacore.net.selector import Admission, Selector, endpoint_of
from kafkacore.net.transport import Transports

_BACKLOG = 1024


class Ports:
    """The sockets of some listeners; for the thread that starts the server, and then for its own.

    Attributes:
        listeners: with the ports that the system chose, once they have been open; these hold for every later time.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)
        self._sockets: list[socket.socket] = []
        self._came_by: dict[str, Listener] = {}

    def open(self) -> None:
        """Opens all of them, or none.

        Raises:
            OSError: an address is not this machine's, or in use.
        """
        self._came_by = {}
        try:
            for at, listener in enumerate(self.listeners):
                sock = _open(listener)
                self._sockets.append(sock)
                self.listeners[at] = listener._replace(port=sock.getsockname()[1])
                self._came_by[f"{endpoint_of(sock.getsockname())}-"] = self.listeners[at]
        except BaseException:
            self.close(None)
            raise

    def accept_by(
        self, selector: Selector, transports: Callable[[Listener], Transports | None], admission: Callable[[str], Admission]
    ) -> None:
        """Has a selector accept connections.

        Args:
            selector: of the server.
            transports: how to wrap those of a listener; None for the selector's own way.
            admission: who may connect to a listener, by its name.
        """
        for sock, listener in zip(self._sockets, self.listeners, strict=True):
            selector.listen(sock, transports(listener), admission(listener.name))

    def close(self, selector: Selector | None) -> None:
        """Closes all that are open.

        Args:
            selector: that accepted by them; None if none did, or it is another process's.
        """
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            if selector is not None:
                selector.unlisten(sock)
            sock.close()

    def listener_of(self, connection: ConnectionId) -> Listener:
        """The listener that a client's connection came in by: its id begins with that one's address."""
        if len(self.listeners) > 1:
            named = str(connection)
            for address, listener in self._came_by.items():
                if named.startswith(address):
                    return listener
        return self.listeners[0]


def _open(listener: Listener) -> socket.socket:
    host = listener.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104  # nosec B104: asked for by an empty host
    family, kind, _, _, address = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not listener.host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
