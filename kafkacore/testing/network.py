"""A bad network for an `EmbeddedCluster`: delays, half-open connections, trickles, slow readers and cuts, between any two parties.

    client ----- socket ----+
                            relay ---- socket pair ---- broker        accepted connections, but for those of other brokers
    broker ---- socket pair ---- relay ---- socket ---- broker        connections a broker makes
    broker ---- socket pair ---- relay ---- socket ---- controller    registration, heartbeats, requests, the metadata log

Every connection that can have faults goes through one thread, which hands bytes on as the faults of its two ends allow. Bytes that are held
back arrive when the network heals, as with TCP, unless the connection has been given up before.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kafkacore.clock import Clock, SystemClock
from kafkacore.errors import UsageError
from kafkacore.net.transport import Address, SocketTransports, Transport, configure_socket

CLIENTS = "clients"
"""Everybody who is not a broker of the cluster."""
CONTROLLER = "controller"
"""The controller of the cluster: heartbeats, AlterPartition and the metadata log pass between it and each broker."""

Party = int | str

_CHUNK_BYTES = 64 * 1024
_BUFFER_BYTES = 256 * 1024
_PATIENCE_S = 10
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class _Faults:
    """What happens to bytes on one way."""

    delay_ms: int = 0
    held: bool = False
    step_bytes: int = _CHUNK_BYTES
    bytes_per_second: int | None = None


_NONE = _Faults()


class _Way:
    """One direction of a connection."""

    def __init__(self, source: Party, target: Party, read_from: socket.socket, write_to: socket.socket) -> None:
        self.route = source, target
        self.read_from = read_from
        self.write_to = write_to
        self.chunks: deque[tuple[int, bytes]] = deque()  # when they may go on, and what
        self.held_bytes = 0
        self.ended = False  # nothing more comes
        self.next_ms = 0  # a slow way is free again; holds only while it is slow

    def read(self, faults: _Faults, now_ms: int) -> None:
        data = self.read_from.recv(min(_CHUNK_BYTES, faults.step_bytes))
        if data:
            self.chunks.append((now_ms + faults.delay_ms, data))
            self.held_bytes += len(data)
        else:
            self.ended = True

    def due_ms(self, faults: _Faults) -> int:
        """When the first bytes go on."""
        arrives_ms = self.chunks[0][0]
        return arrives_ms if faults.bytes_per_second is None else max(arrives_ms, self.next_ms)

    def is_due(self, faults: _Faults, now_ms: int) -> bool:
        return bool(self.chunks) and not faults.held and self.due_ms(faults) <= now_ms

    def write(self, faults: _Faults, now_ms: int) -> None:
        due_ms, data = self.chunks[0]
        step = faults.step_bytes
        if faults.bytes_per_second is not None:
            step = min(step, max(faults.bytes_per_second // 100, 1))
        sent = self.write_to.send(data[:step])
        self.held_bytes -= sent
        if faults.bytes_per_second is not None:
            self.next_ms = now_ms + max(1000 * sent // faults.bytes_per_second, 1)
        if sent == len(data):
            self.chunks.popleft()
        else:
            self.chunks[0] = due_ms, data[sent:]


class _Connection:
    """Two sockets and the ways between them."""

    def __init__(self, near: Party, far: Party, near_socket: socket.socket, far_socket: socket.socket) -> None:
        self.parties = near, far
        self.sockets = near_socket, far_socket
        self.ways = (_Way(near, far, near_socket, far_socket), _Way(far, near, far_socket, near_socket))
        self.registered: dict[socket.socket, int] = {}

    def close(self, *, reset: bool = False) -> None:
        for sock in self.sockets:
            if reset and sock.family != socket.AF_UNIX:
                with contextlib.suppress(OSError):  # it may be closed already
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()


class Network:
    """The network of one cluster. Its methods may be called from any thread, and hold for connections that exist and those to come.

    Everywhere `broker` names one end (None: any broker), `peer` the other: a broker's id, `CLIENTS`, `CONTROLLER`, or None for all of them.
    """

    def __init__(self, brokers: list[int], clock: Clock | None = None) -> None:
        """A network without faults; its thread starts with the first connection.

        Args:
            brokers: the ids.
            clock: the time.
        """
        self._brokers = brokers
        self._clock: Clock = clock or SystemClock()
        self._faults: dict[tuple[Party, Party], _Faults] = {}
        self._ports: dict[int, Party] = {}
        self._own_addresses: dict[Any, int] = {}
        self._connections: list[_Connection] = []
        self._orders: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None  # made with the thread: who never starts has nothing to close
        self._closed = False

    # ---- faults

    def _routes(self, broker: int | None, peer: Party | None, direction: str) -> Iterator[tuple[Party, Party]]:
        if direction not in ("both", "to", "from"):
            raise UsageError(f"direction is 'both', 'to' or 'from' the broker, not {direction!r}")
        for named in (broker, peer):
            if named is not None and named not in (CLIENTS, CONTROLLER) and named not in self._brokers:
                raise UsageError(f"there is no broker {named}; there are {self._brokers}, CLIENTS and CONTROLLER")
        everybody: list[Party] = [*self._brokers, CLIENTS, CONTROLLER]
        for near in self._brokers if broker is None else [broker]:
            for far in everybody if peer is None else [peer]:
                if near != far:
                    if direction != "from":
                        yield far, near
                    if direction != "to":
                        yield near, far

    def _change(self, broker: int | None, peer: Party | None, direction: str, **changes: Any) -> None:
        routes = list(self._routes(broker, peer, direction))

        def apply() -> None:
            for route in routes:
                self._faults[route] = replace(self._faults.get(route, _NONE), **changes)

        self._do(apply)

    def isolate(self, broker: int | None = None, peer: Party | None = None, direction: str = "both") -> None:
        """Lets no byte through: connections stay open, and neither end notices. With one direction only they are half-open.

        A broker that is cut off from the controller is fenced after broker.session.timeout.ms, and others lead its partitions. It does not
        know of that, nor of anything else the controller decides, until `heal`.

        Args:
            broker, peer: between whom. `isolate(1)` is between broker 1 and all others: brokers, clients and the controller.
            direction: "to" or "from" the broker, or "both".
        """
        self._change(broker, peer, direction, held=True)

    def delay(self, ms: int, broker: int | None = None, peer: Party | None = None, direction: str = "both") -> None:
        """Every byte arrives so much later."""
        self._change(broker, peer, direction, delay_ms=ms)

    def trickle(self, nbytes: int = 1, broker: int | None = None, peer: Party | None = None, direction: str = "both") -> None:
        """Bytes arrive in pieces of at most this size."""
        self._change(broker, peer, direction, step_bytes=nbytes)

    def throttle(self, bytes_per_second: int, broker: int | None = None, peer: Party | None = None, direction: str = "both") -> None:
        """Bytes pass slowly, as with a peer that reads slowly: what has no room waits in the sender."""
        self._change(broker, peer, direction, bytes_per_second=bytes_per_second)

    def cut(self, broker: int | None = None, peer: Party | None = None) -> None:
        """Resets the connections there are now; new ones can be made."""
        routes = set(self._routes(broker, peer, "both"))

        def apply() -> None:
            for connection in list(self._connections):
                if connection.parties in routes:
                    self._drop(connection, reset=True)

        self._do(apply)

    def heal(self, broker: int | None = None, peer: Party | None = None) -> None:
        """Takes the faults away; held bytes go on."""
        routes = list(self._routes(broker, peer, "both"))

        def apply() -> None:
            for route in routes:
                self._faults.pop(route, None)

        self._do(apply)

    # ---- connections

    def transports(self, broker: int, plain: SocketTransports) -> FaultyTransports:
        """How a broker's connections are made."""
        return FaultyTransports(self, broker, plain)

    def listens(self, party: Party, port: int) -> None:
        """A broker, or the controller, listens on a port: connections to it lead there."""
        self._ports[port] = party

    def is_cut(self, broker: int, peer: Party) -> bool:
        """Whether nothing passes between two, in one direction at least."""
        return any(self._faults.get(route, _NONE).held for route in ((broker, peer), (peer, broker)))

    def join(self, near: Party, far: Party, far_socket: socket.socket) -> socket.socket:
        """Puts the relay between a broker and a socket.

        Returns:
            The broker's end.
        """
        near_socket, end = socket.socketpair()
        for sock in (near_socket, far_socket):
            sock.setblocking(False)
        connection = _Connection(near, far, near_socket, far_socket)
        try:
            self._order(lambda: self._connections.append(connection))
        except UsageError:
            connection.close()
            end.close()
            raise OSError(errno.ENETDOWN, "the cluster is closed") from None
        return end

    def _order(self, act: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise UsageError("the cluster is closed")
            self._orders.append(act)
            if self._wake is None:
                self._wake = socket.socketpair()
                for sock in self._wake:
                    sock.setblocking(False)
                self._thread = threading.Thread(target=self._run, args=(self._wake[0],), name="kafkacore-network", daemon=True)
                self._thread.start()
            with contextlib.suppress(BlockingIOError):  # full of wakes: it will come round
                self._wake[1].send(b"\0")

    def _do(self, act: Callable[[], None]) -> None:
        """Has the thread do something, and waits: what is sent from now on meets the new faults."""
        done = threading.Event()

        def run() -> None:
            act()
            done.set()

        self._order(run)
        done.wait(_PATIENCE_S)

    def close(self) -> None:
        """Ends all connections and the thread. May be called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed = True
            wake, self._wake = self._wake, None
        if thread is not None and wake is not None:
            with contextlib.suppress(BlockingIOError):
                wake[1].send(b"\0")
            thread.join()
            for sock in wake:
                sock.close()

    # ---- the thread

    def _run(self, wake: socket.socket) -> None:
        poller = selectors.DefaultSelector()
        poller.register(wake, selectors.EVENT_READ)
        self._poller = poller
        while not self._closed:
            while self._orders:
                self._orders.popleft()()
            now_ms = self._clock.now_ms()
            timeout_ms = self._arm(poller, now_ms)
            ready = poller.select(None if timeout_ms is None else timeout_ms / 1000)
            now_ms = self._clock.now_ms()
            for key, events in ready:
                if key.fileobj is wake:
                    wake.recv(4096)
                elif key.data in self._connections:
                    self._turn(key.data, key.fileobj, events, now_ms)
        while self._orders:  # connections that were on their way to this thread
            self._orders.popleft()()
        for connection in list(self._connections):
            self._drop(connection)
        poller.close()

    def _arm(self, poller: selectors.BaseSelector, now_ms: int) -> int | None:
        """Tells the poller what every socket waits for; returns when something falls due that no socket announces."""
        earliest_ms: int | None = None
        for connection in list(self._connections):
            wanted = dict.fromkeys(connection.sockets, 0)
            for way in connection.ways:
                faults = self._faults.get(way.route, _NONE)
                if not way.ended and not faults.held and way.held_bytes < _BUFFER_BYTES:
                    wanted[way.read_from] |= selectors.EVENT_READ
                if way.is_due(faults, now_ms):
                    wanted[way.write_to] |= selectors.EVENT_WRITE
                elif way.chunks and not faults.held:
                    due_ms = way.due_ms(faults) - now_ms
                    earliest_ms = due_ms if earliest_ms is None else min(earliest_ms, due_ms)
            if any(way.ended and not way.chunks and not self._faults.get(way.route, _NONE).held for way in connection.ways):
                self._drop(connection)
                continue
            for sock, events in wanted.items():
                if connection.registered.get(sock, 0) != events:
                    if not connection.registered.get(sock):
                        poller.register(sock, events, connection)
                    elif events:
                        poller.modify(sock, events, connection)
                    else:
                        poller.unregister(sock)
                    connection.registered[sock] = events
        return earliest_ms

    def _turn(self, connection: _Connection, sock: Any, events: int, now_ms: int) -> None:
        for way in connection.ways:
            faults = self._faults.get(way.route, _NONE)
            try:
                if way.read_from is sock and events & selectors.EVENT_READ and not way.ended:
                    way.read(faults, now_ms)
                if way.write_to is sock and events & selectors.EVENT_WRITE and way.is_due(faults, now_ms):
                    way.write(faults, now_ms)
            except BlockingIOError:
                continue
            except OSError:
                # Refused, reset or broken: the other end is to see the same.
                self._drop(connection, reset=True)
                return

    def _drop(self, connection: _Connection, *, reset: bool = False) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            for sock, events in connection.registered.items():
                if events:
                    self._poller.unregister(sock)
            connection.close(reset=reset)

    # ---- who is who

    def connect(self, broker: int, address: Address) -> tuple[socket.socket, Party]:
        """Begins a broker's connection, so that the other end knows whose it is; returns the socket and whom it leads to."""
        peer = self._ports.get(address.sockaddr[1], CLIENTS)
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind((address.host if address.host[:1].isdigit() else "127.0.0.1", 0))
            if peer != CONTROLLER:  # which accepts its connections without asking whose they are
                self._own_addresses[sock.getsockname()] = broker
            sock.connect_ex(address.sockaddr)
        except BaseException:
            sock.close()
            raise
        return sock, peer

    def is_from_broker(self, sock: socket.socket) -> bool:
        """Whether an accepted connection is one that a broker makes; its faults are at that broker's end."""
        return self._own_addresses.pop(sock.getpeername(), None) is not None


class FaultyTransports:
    """The connections of one broker, through the relay."""

    def __init__(self, network: Network, broker: int, plain: SocketTransports) -> None:
        self._network = network
        self._broker = broker
        self._plain = plain

    def connect(self, address: Address) -> Transport:
        sock, peer = self._network.connect(self._broker, address)
        return self._through(peer, sock, str(address), address)

    def accept(self, sock: socket.socket) -> Transport:
        if self._network.is_from_broker(sock):
            return self._plain.accept(sock)
        host, port = sock.getpeername()[:2]
        return self._through(CLIENTS, sock, f"{host}:{port}")

    def _through(self, peer: Party, sock: socket.socket, name: str, address: Address | None = None) -> Transport:
        end = self._network.join(self._broker, peer, sock)
        configure_socket(end, self._plain.send_buffer_bytes, self._plain.receive_buffer_bytes)
        return self._plain.over(end, address, peer=name)
