"""Ports of stopped brokers: they come back there, and nothing else of the system takes the port in between.

Linux gives a connection that is opened, and a server that asks for any port, one that no socket is bound to. So a socket is bound to it
that does not listen: SO_REUSEADDR lets the broker bind there beside it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable

from kafkacore.config_listeners import Listener


class KeptPorts:
    """The ports of those brokers that are stopped."""

    def __init__(self) -> None:
        self._sockets: dict[int, list[socket.socket]] = {}

    def keep(self, broker: int, listeners: Iterable[Listener]) -> None:
        """Keeps the ports of a broker that has stopped. One that something else has already is left to it: the broker's start says so."""
        if sys.platform != "linux" or broker in self._sockets:  # others let nobody bind beside such a socket
            return
        for listener in listeners:
            if not listener.host or not listener.port:
                continue
            family, kind, _, _, address = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)[0]
            kept = socket.socket(family, kind)
            try:
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind(address)
            except OSError:
                kept.close()
                continue
            self._sockets.setdefault(broker, []).append(kept)

    def release(self, broker: int) -> None:
        """The broker listens there again."""
        for kept in self._sockets.pop(broker, ()):
            kept.close()

    def close(self) -> None:
        """Keeps none any more."""
        for broker in list(self._sockets):
            self.release(broker)
