"""PeerClient: requests from one broker to others, over the selector that its own loop polls.

    send(node, request) --> waiting --> written, in flight --> done(response)
                               |             |
                               +-------------+--> done(error): no connection, lost connection, time-out, an answer that does not fit

Rules:

1. All of it belongs to the broker's thread. `done` is called from the loop, never within `send`, and exactly once.
   [test_a_node_nobody_knows_fails_after_send_has_returned_and_the_next_request_looks_again,
   test_closing_tells_every_open_request_and_later_ones]
2. Both sides are this package, so no versions are negotiated: the caller names the version, and it must be served on the other side.
   [test_the_first_frame_of_a_connection_is_a_request_in_the_version_that_was_named]
3. A connection answers in the order of its requests. What may be held back for long (a Fetch that waits) therefore goes over another lane
   than what may not; each (node, lane) is one connection.
   [test_requests_are_answered_in_order_also_those_sent_before_the_connection_is_there, test_a_lane_does_not_wait_for_another]
4. A failed attempt to connect fails what waits for it; the next attempt comes with the next request, not before the back-off has ended.
   [test_a_refused_connection_fails_what_waits_and_back_off_grows]
5. A time-out of a request in flight, or an answer to another request, ends the connection: nothing after it could be trusted.
   [test_a_request_that_is_not_answered_ends_its_connection_and_those_behind_it, test_an_answer_that_does_not_fit_ends_the_connection]

Source: org.apache.kafka.server.util.InterBrokerSendThread, kafka.server.BrokerBlockingSender; org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable

from kafkacore.broker.controller.log import CONTROLLER_ID
from kafkacore.broker.fault_handler import contained
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.errors import AuthenticationFailedError, CorruptDataError, DisconnectError, KafkaError, NetworkError, RequestTimedOut
from kafkacore.net.background import Lookups
from kafkacore.net.connection import CorrelationIds, ExponentialBackoff
from kafkacore.net.selector import NetworkReceive, NetworkSend, Selector
from kafkacore.net.transport import Transports
from kafkacore.protocol import APIS, decode_response_header, encode_request
from kafkacore.protocol.schema import Request, Response
from kafkacore.timer import LoopTimer, TimerTask
from kafkacore.types import Node

logger = logging.getLogger(__name__)

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1_000

Done = Callable[[Response | KafkaError], None]


_CLIENT_ID = "broker-"


def is_broker_client(client_id: str | None) -> bool:
    """Whether a client id is that of a broker's requests to others."""
    return client_id is not None and client_id.startswith(_CLIENT_ID) and client_id.removeprefix(_CLIENT_ID).isdigit()


class _Sent:
    """One request on its way."""

    __slots__ = ("api_key", "correlation_id", "done", "expiry", "request", "version")

    def __init__(self, request: Request, version: int, done: Done) -> None:
        self.request = request
        self.version = version
        self.done = done
        self.api_key = request.API_KEY
        self.correlation_id = -1
        self.expiry: TimerTask | None = None


class _Connection:
    """The connection of one lane to one node, and what is to be sent over it."""

    __slots__ = ("attempts", "connecting", "id", "in_flight", "node_id", "refusal", "resolving", "retry_at_ms", "setup", "waiting")

    def __init__(self, id: str, node_id: int) -> None:
        self.id = id
        self.node_id = node_id
        self.connecting = False
        self.resolving: tuple[str, int] | None = None  # while connecting: the host whose name is being resolved
        self.refusal = ""  # why the other side, or its certificate, was refused last
        self.attempts = 0  # failed ones since the last success
        self.retry_at_ms = 0
        self.setup: TimerTask | None = None  # the next attempt, or the end of this one
        self.waiting: deque[_Sent] = deque()
        self.in_flight: deque[_Sent] = deque()


def _is_both_ends(sock: socket.socket) -> bool:
    """Whether a connected socket is connected with itself."""
    try:
        return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname() == sock.getpeername()
    except OSError:  # the peer has cut it since: the next poll tells
        return False


class PeerClient:
    """Requests to the other brokers of a cluster; see the rules at the top of the file.

    Attributes:
        timer: whatever it waits for.
        connections: of the selector, those that are these.
    """

    def __init__(self, node_id: int, config: BrokerConfig, clock: Clock, find: Callable[[int], Node | None]) -> None:
        """Connects to no broker yet.

        Args:
            node_id: this broker.
            config: time-outs of connection attempts.
            clock: the time.
            find: the address of a node now, None if it is not known.
        """
        self._client_id = f"{_CLIENT_ID}{node_id}"
        self._clock = clock
        self._find = find
        self._selector: Selector | None = None
        self._transports: Transports | None = None
        self.connections: dict[str, _Connection] = {}
        self._correlation = CorrelationIds()
        self.timer = LoopTimer(clock=clock)
        self._backoff = ExponentialBackoff(RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS)
        self._setup_timeout = ExponentialBackoff(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms)
        self._found_out: deque[Callable[[int], None]] = deque()
        self._lookups = Lookups(self._post, self._resolved)

    def attach(self, selector: Selector, transports: Transports | None = None) -> None:
        """The broker starts: connections are made over its selector.

        Args:
            selector: the broker's.
            transports: how those to other brokers are made; None for the selector's own way, as those to the controller always are.
        """
        self._selector = selector
        self._transports = transports

    # ---- requests

    def send(self, node_id: int, request: Request, version: int, done: Done, timeout_ms: int, lane: str = "") -> None:
        """Sends a request when there is a connection.

        Args:
            node_id: where to.
            request: one that expects an answer.
            version: to encode it in.
            done: called once with the response, or with why it did not come: `NetworkError`, `DisconnectError`, `RequestTimedOut`,
                `CorruptDataError`. Whether the request was served is not known then.
            timeout_ms: for everything, connecting included.
            lane: requests of different lanes do not wait for each other.
        """
        sent = _Sent(request, version, done)
        if self._selector is None:
            self._later(sent, NetworkError("this broker is not running", broker=node_id))
            return
        id = f"peer-{node_id}-{lane}" if lane else f"peer-{node_id}"
        connection = self.connections.get(id)
        if connection is None:
            connection = self.connections[id] = _Connection(id, node_id)
        sent.expiry = TimerTask(timeout_ms, lambda: self._expired(connection, sent, timeout_ms))
        self.timer.add(sent.expiry)
        connection.waiting.append(sent)
        self._advance(connection)

    def _later(self, sent: _Sent, error: KafkaError) -> None:
        self.timer.add(TimerTask(0, lambda: self._finish(sent, error)))

    @staticmethod
    def _finish(sent: _Sent, outcome: Response | KafkaError) -> None:
        if sent.expiry is not None:
            sent.expiry.cancel()
        try:
            sent.done(outcome)
        except Exception:  # a bug of one caller must not end the loop
            logger.exception("what was to be done with the outcome of %s failed", APIS[sent.api_key].name)

    def _advance(self, connection: _Connection) -> None:
        """Writes what can be written; connects if there is something to write and nothing else to wait for."""
        selector = self._selector
        if selector is None or not connection.waiting:
            return
        channel = selector.channel(connection.id)
        if channel is None:
            if not connection.connecting and connection.setup is None:
                wait_ms = connection.retry_at_ms - self._clock.now_ms()
                if wait_ms > 0:
                    connection.setup = TimerTask(wait_ms, lambda: self._retry(connection))
                    self.timer.add(connection.setup)
                else:
                    self._connect(connection, selector)
            return
        if connection.connecting:
            return
        while connection.waiting and channel.send is None and selector.channel(connection.id) is channel:
            sent = connection.waiting.popleft()
            sent.correlation_id = self._correlation.next()
            connection.in_flight.append(sent)
            buffers = encode_request(sent.request, sent.version, sent.correlation_id, self._client_id)
            selector.send(NetworkSend(connection.id, buffers, await_completion=False))

    # ---- connections

    def _retry(self, connection: _Connection) -> None:
        connection.setup = None
        self._advance(connection)

    def _connect(self, connection: _Connection, selector: Selector) -> None:
        node = self._find(connection.node_id)
        if node is None:
            self._failed(connection, NetworkError(f"broker {connection.node_id} is not known, or not alive", broker=connection.node_id))
            return
        timeout_ms = self._setup_timeout.backoff_ms(connection.attempts)
        connection.connecting = True
        connection.setup = TimerTask(timeout_ms, lambda: self._setup_expired(connection, timeout_ms))
        self.timer.add(connection.setup)
        self._open(connection, (node.host, node.port), selector)

    def _open(self, connection: _Connection, host: tuple[str, int], selector: Selector) -> None:
        """Connects when the address is known; a name is resolved in the background, where a resolver that hangs stops nothing else."""
        connection.resolving = None
        try:
            addresses = self._lookups.find(*host, connection.node_id)
            if addresses is None:
                connection.resolving = host
                return
            transports = None if connection.node_id == CONTROLLER_ID else self._transports
            selector.connect(connection.id, addresses[connection.attempts % len(addresses)], transports)
        except NetworkError as error:
            self._failed(connection, error)
        except OSError as error:
            reason = f"broker {connection.node_id} at {host[0]}:{host[1]} cannot be reached: {error}"
            self._failed(connection, NetworkError(reason, broker=connection.node_id))

    def _post(self, step: Callable[[int], None]) -> None:
        """Has the loop call `step(now_ms)`. Any thread may call it."""
        self._found_out.append(step)
        if (selector := self._selector) is not None:
            selector.wakeup()

    def _resolved(self, host: tuple[str, int], _now_ms: int) -> None:
        for connection in [each for each in self.connections.values() if each.resolving == host]:
            if self._selector is not None:
                self._open(connection, host, self._selector)

    def _setup_expired(self, connection: _Connection, timeout_ms: int) -> None:
        connection.setup = None
        if self._selector is not None:
            self._selector.close(connection.id)
        error = NetworkError(f"broker {connection.node_id} did not accept a connection within {timeout_ms} ms", broker=connection.node_id)
        self._failed(connection, error)

    def _failed(self, connection: _Connection, error: KafkaError) -> None:
        """There is no connection (any more): fails what depended on it. May be called within `send`."""
        if connection.setup is not None:
            connection.setup.cancel()
            connection.setup = None
        connection.retry_at_ms = self._clock.now_ms() + self._backoff.backoff_ms(connection.attempts)
        connection.attempts += 1
        connection.connecting = False
        connection.resolving = None
        lost = [*connection.in_flight, *connection.waiting]
        connection.in_flight.clear()
        connection.waiting.clear()
        for sent in lost:
            if sent.expiry is not None:
                sent.expiry.cancel()
            self._later(sent, error)

    def _expired(self, connection: _Connection, sent: _Sent, timeout_ms: int) -> None:
        error = RequestTimedOut(f"broker {connection.node_id} did not answer within {timeout_ms} ms", broker=connection.node_id)
        sent.expiry = None
        if sent in connection.waiting:
            connection.waiting.remove(sent)
        elif sent in connection.in_flight:
            connection.in_flight.remove(sent)
            if self._selector is not None:
                self._selector.close(connection.id)
            self._failed(connection, DisconnectError("the connection was given up after a time-out", broker=connection.node_id))
        self._finish(sent, error)

    def is_back(self, node_id: int) -> None:
        """A broker has registered again: no need to wait for the end of a back-off."""
        for connection in list(self.connections.values()):
            if connection.node_id == node_id and not connection.connecting:
                connection.retry_at_ms = connection.attempts = 0
                if connection.setup is not None:
                    connection.setup.cancel()
                    connection.setup = None
                self._advance(connection)

    # ---- called by the loop

    def owns(self, connection_id: int | str) -> bool:
        """Whether a connection of the selector is one of these."""
        return connection_id in self.connections

    def is_broker(self, connection_id: int | str) -> bool:
        """Whether a connection of the selector is one to another broker: not to a client, nor to the controller."""
        connection = self.connections.get(connection_id)  # type: ignore[arg-type]
        return connection is not None and connection.node_id != CONTROLLER_ID

    def is_controller(self, connection_id: int | str) -> bool:
        """Whether a connection of the selector is one to the controller."""
        connection = self.connections.get(connection_id)  # type: ignore[arg-type]
        return connection is not None and connection.node_id == CONTROLLER_ID

    def polled(self, selector: Selector) -> None:
        """Takes what a poll brought: names resolved, connections made and lost, frames written."""
        while self._found_out:
            self._found_out.popleft()(self._clock.now_ms())
        for id in selector.connected:
            connection = self.connections.get(id)  # type: ignore[arg-type]
            if connection is not None:
                self._connected(connection, selector)
        for send in selector.completed_sends:
            connection = self.connections.get(send.destination)  # type: ignore[arg-type]
            if connection is not None:
                self._advance(connection)

    def _connected(self, connection: _Connection, selector: Selector) -> None:
        sock = getattr(getattr(selector.channel(connection.id), "transport", None), "sock", None)
        if sock is not None and _is_both_ends(sock):
            # No process listens on the port, and the system chose that very port for this end: TCP's simultaneous open with itself.
            selector.close(connection.id)
            self._failed(connection, NetworkError(f"no listener at the port of broker {connection.node_id}", broker=connection.node_id))
            return
        if connection.setup is not None:
            connection.setup.cancel()
            connection.setup = None
        connection.connecting = False
        connection.attempts = 0
        self._advance(connection)

    def disconnected(self, connection_id: int | str, reason: KafkaError) -> None:
        """A connection is closed."""
        connection = self.connections[connection_id]  # type: ignore[index]
        refusal = reason.message if isinstance(reason, AuthenticationFailedError) else ""
        level = logging.WARNING if refusal and refusal != connection.refusal else logging.DEBUG  # each reason once, and not once a second
        logger.log(level, "%s: connection to broker %d has ended: %s", self._client_id, connection.node_id, reason)
        connection.refusal = refusal
        self._failed(connection, reason)

    def received(self, receive: NetworkReceive) -> None:
        """An answer came."""
        connection = self.connections[receive.source]  # type: ignore[index]
        sent = connection.in_flight[0] if connection.in_flight else None
        try:
            if sent is None:
                raise CorruptDataError(f"broker {connection.node_id} sent an answer to nothing")
            correlation_id, start = decode_response_header(sent.api_key, sent.version, receive.payload)
            if correlation_id != sent.correlation_id:
                raise CorruptDataError(f"broker {connection.node_id} answered request {correlation_id} instead of {sent.correlation_id}")
            response = APIS[sent.api_key].response.decode(sent.version, receive.payload, start)
        except KafkaError as error:
            logger.warning("%s: closing the connection to broker %d: %s", self._client_id, connection.node_id, error)
            if self._selector is not None:
                self._selector.close(connection.id)
            self._failed(connection, error)
            return
        connection.in_flight.popleft()
        self._finish(sent, response)

    def next_deadline_ms(self) -> int | None:
        """When `advance_clock` has something to do."""
        return self.timer.next_deadline_ms()

    def advance_clock(self) -> bool:
        """Does what is due: time-outs, attempts to connect, outcomes found within `send`."""
        return self.timer.advance_clock()

    def in_flight_count(self, node_id: int) -> int:
        """Requests sent to a node, or waiting to be, over all lanes."""
        return sum(len(each.waiting) + len(each.in_flight) for each in self.connections.values() if each.node_id == node_id)

    def close(self) -> None:
        """The broker stops: every request still open fails with that."""
        selector, self._selector = self._selector, None
        connections, self.connections = list(self.connections.values()), {}
        for connection in connections:
            with contained("the end of connection %s", connection.id):
                if selector is not None:
                    selector.close(connection.id)
                self._failed(connection, DisconnectError("this broker stops", broker=connection.node_id))
        self.timer.advance_clock()
