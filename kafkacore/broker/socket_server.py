"""Server: a listener, one thread, and the loop in it. What it serves is a table of APIs; a broker and a controller give their own.

Rules:

1. One thread owns everything a request touches. Others hand it functions (`call`); the loop runs them between two polls.
   [test_functions_from_many_threads_run_one_at_a_time]
2. The loop sleeps in the selector until bytes arrive, a function is handed over, or the earliest deadline of `clocked` (a waiting fetch, a
   delayed fault, retention) passes. An idle server uses no CPU. [test_an_idle_broker_does_not_poll,
   test_a_waiting_fetch_is_answered_by_time]
3. Requests of one connection are answered in order: while one waits the channel is muted, while its response is being written the
   selector does not read it. [test_requests_behind_a_waiting_fetch_wait_too, test_who_does_not_read_its_answers_gets_no_more_of_them]
4. Whatever a peer sends, only its own connection can suffer: a bad frame closes it and leaves one line in the log.
   [test_any_bytes, test_bad_sizes_close_the_connection]
5. `stop` drops the sockets and keeps `state`; `start` listens on the same port again.
   [test_stop_and_start_keep_port_data_and_raise_the_epoch]
6. A forked child owns no server. It closes its copies of the sockets, so that the peers see it when the parent closes its own.
   [test_a_forked_child_owns_nothing_and_holds_no_connection_open]

A subclass fills the hooks: `_prepare` (before the port is open), `_registered` (it is, and its number known), `_began` and `_ending`
(in the thread, before the first poll and before the sockets go), `_ended` (in the thread, after the last message).

Source: kafka.network.SocketServer.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import GeneratorType
from typing import Any, Self, TypeVar

from kafkacore import errors
from kafkacore._codec import Plan, decode_request_body
from kafkacore.broker.authentication import Sessions
from kafkacore.broker.certificates import CertifiedUsers
from kafkacore.broker.faults import Control, Delay, Disconnect, Drop
from kafkacore.broker.limits import ConnectionQuotas, full_address, request_memory_bytes
from kafkacore.broker.open_servers import open_servers
from kafkacore.broker.pauses import Pauses
from kafkacore.broker.peers import PeerClient, is_broker_client
from kafkacore.broker.ports import Ports
from kafkacore.broker.quotas import ConnectionRateQuota
from kafkacore.broker.served import DIALOGUE, Served, advertised, unsupported_api_versions, within
from kafkacore.broker.slices import SMALLEST_PARTS, PartsJob, Slices, Steps, StepsJob
from kafkacore.broker.state import Call, Clocked, Outcome
from kafkacore.broker.throttling import Metered, Throttling, is_measured, name_of
from kafkacore.clock import Clock, SystemClock
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.config_broker_tls import BrokerContexts
from kafkacore.config_listeners import LOOPBACK, Listener
from kafkacore.errors import ConfigError, CorruptDataError, ForkedClientError, KafkaError, KafkaTimeoutError, UsageError
from kafkacore.metadata import NEVER_MS
from kafkacore.net.authentication import SaslAuthenticator
from kafkacore.net.channel import ConnectionId
from kafkacore.net.frames import ReceiveMemory
from kafkacore.net.sasl import SaslClient
from kafkacore.net.selector import NetworkReceive, NetworkSend, Selector
from kafkacore.net.transport import SocketTransports, Transports
from kafkacore.protocol import APIS, ApiVersionsRequest, SaslAuthenticateRequest, decode_request_header, encode_response
from kafkacore.protocol.schema import Request, Response
from kafkacore.purgatory import DelayedOperationPurgatory
from kafkacore.timer import LoopTimer

logger = logging.getLogger(__name__)

T = TypeVar("T")

CALL_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
STALLED_REQUEST_MS = 30_000
"""How long a half-sent request may rest while others wait for its memory."""
SWEEP_MS = 200
"""How often what is `clocked` is advanced without a deadline, if the loop is awake: purgatories drop what was completed by events then."""
RECEIVE_STEP_BYTES = 1 << 20
"""A peer that announces a large request gets so much before it has sent any of it."""
_HEADER = struct.Struct(">hhi")
_TOLD = (CorruptDataError, errors.KafkaStorage, errors.AuthenticationFailedError)
"""Reasons for the end of a connection that a log shows."""


class Server:
    """Serves a table of APIs on one port.

    Attributes:
        state: what the handlers get; the subclass's, to be set before `start`.
        clocked: what the loop looks after.
        pauses: the connections that are not read for now.
        wrap_transports: puts something between the server and its sockets, for tests.
        peers: requests to other servers over this one's selector, if it makes any; the subclass's, to be set before `start`.
        throttling: measures requests while any client has a quota; None while no client has.
        connection_rates: how fast addresses may open connections, where that is limited by quotas; the subclass's.
        authentication: of connections to listeners that ask for a user, if there are any; the subclass's too.
        peer_logins: makes the client's side of an authentication, where its peers ask for a user.
        controller_logins: the same for the controller's port.
        tls: of listeners that are encrypted, and of connections to peers; the subclass's as well.
    """

    def __init__(
        self,
        served: Mapping[int, Served],
        config: BrokerConfig,
        *,
        name: str,
        host: str = LOOPBACK,
        port: int = 0,
        listeners: Sequence[Listener] = (),
        api_versions: Mapping[int, tuple[int, int]] | None = None,
        peer_versions: Mapping[int, tuple[int, int]] | None = None,
        is_silent: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Prepares a server; `start` opens the port.

        Args:
            served: the APIs by key.
            config: limits of sockets, connections and requests.
            name: for log lines, errors and the thread.
            host: the address to listen on and to tell clients.
            port: 0 lets the system choose; the choice holds for every later start.
            listeners: several addresses, instead of host and port.
            api_versions: what ApiVersions advertises, (min, max) by API key; everything served if left out.
            peer_versions: what brokers of the same cluster may ask besides.
            is_silent: it does not say what it serves: api_versions may leave out ApiVersions itself.
            clock: the time.

        Raises:
            UsageError: api_versions promises what is not served, or leaves out ApiVersions itself.
        """
        self.served = served
        self.config = config
        self.name = name
        self._ports = Ports(listeners or [Listener("", host, port)])
        self.api_versions = advertised(served, api_versions, is_silent=is_silent)
        self._peer_versions = dict(peer_versions or {})
        self.clock: Clock = clock or SystemClock()
        self.state: Any = None
        self.clocked: list[Clocked] = []
        self.peers: PeerClient | None = None
        self.authentication: Sessions | None = None
        self.throttling: Throttling | None = None
        self.connection_rates: ConnectionRateQuota | None = None
        self.peer_logins: Callable[[], SaslClient] | None = None
        self.controller_logins: Callable[[], SaslClient] | None = None
        self.tls = BrokerContexts({}, {}, None)
        self.wrap_transports: Callable[[SocketTransports], Transports] | None = None
        self._controls: dict[int, Control] = {}
        self._lifecycle = threading.RLock()
        self._thread: threading.Thread | None = None
        self._selector: Selector | None = None
        self._messages: deque[Callable[[], None]] = deque()
        self._message_event = threading.Event()
        self._wake_lock = threading.Lock()  # the selector's descriptor must not be closed, and given to another file, under a wakeup
        self._paused = False
        self._accepts_at_once = True
        self._stopping = False
        self._sweep_ms = 0
        self._deadlines: list[Callable[[], int | None]] = []  # of the delays and of `clocked`, in that order
        self._plans: dict[tuple[int, int], tuple[Plan, int]] = {}
        self._owner_pid = os.getpid()
        self._memory = ReceiveMemory(request_memory_bytes(config))
        self._reset_connections()
        open_servers.add(self)

    # ---- hooks

    def _prepare(self) -> None:
        """Called by `start` before the port is open."""

    def _registered(self) -> None:
        """Called by `start` when the port is open and known, before the thread begins."""

    def _began(self) -> None:
        """Called in the thread before its first poll."""

    def _begin_to_stop(self) -> None:
        """Called in the thread when a clean stop is wished: ends with `_set_stopping`, now or later."""
        self._set_stopping()

    def stop_timeout_s(self) -> float:
        """How long `stop` waits for the thread."""
        return STOP_TIMEOUT_S

    def _ending(self) -> None:
        """Called in the thread when it stops, while the connections still stand."""

    def _ended(self) -> None:
        """Called in the thread when the sockets are closed and the last message has run."""

    def _reset_connections(self) -> None:
        self._calls: dict[ConnectionId, Call] = {}
        self._slices = Slices()
        self.pauses = Pauses(self.clock)
        self._muted, self._silenced = self.pauses.muted, self.pauses.silenced  # each request looks at them
        self._certified = CertifiedUsers(self.tls.rules)
        self._quotas = ConnectionQuotas(self.config, self.connection_rates)
        if self.authentication is not None:
            self.authentication.clear()

    # ---- life

    @property
    def listeners(self) -> Sequence[Listener]:
        """Where it listens, with the ports once the system has chosen them."""
        return self._ports.listeners

    @property
    def host(self) -> str:
        """Of the first listener."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        """Of the first listener; 0 until the system has chosen."""
        return self.listeners[0].port

    @property
    def address(self) -> str:
        """host:port of the first listener, as clients are given it, for bootstrap_servers."""
        return self.listeners[0].address

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> Self:
        """Opens the port and starts the thread; nothing happens if it runs.

        Returns:
            Itself.

        Raises:
            OSError: the port cannot be opened.
            ForkedClientError: the server belongs to the parent process.
        """
        self._check_process()
        with self._lifecycle:
            if self.running:
                return self
            self._prepare()
            self._reset_connections()
            self._ports.open()
            try:
                self._selector = self.pauses.selector = self._make_selector()
            except BaseException:
                self._ports.close(None)
                raise
            self._stopping = self._paused = False
            if self.peers is not None:
                self.peers.attach(self._selector, None if self.tls.peers is None else self._transports(self._peer_context))
            try:
                self._registered()
            except BaseException:
                self._close(self._selector)
                raise
            thread_name = "kafkacore-" + self.name.replace(" ", "-")
            self._thread = threading.Thread(target=self._run, args=(self._selector,), name=thread_name, daemon=True)
            self._thread.start()
        return self

    def _make_selector(self) -> Selector:
        selector = Selector(
            self.clock,
            connections_max_idle_ms=self.config.connections_max_idle_ms,
            max_receive_bytes=self.config.socket_request_max_bytes,
            transports=self._transports(),
            admission=self._quotas,
            receive_step_bytes=RECEIVE_STEP_BYTES,
            receive_memory=self._memory,
            authenticator=self._authenticator,
        )
        selector.quiet = True
        selector.half_duplex = True
        if self._accepts_at_once:
            self._ports.accept_by(selector, self._transports_of, self._quotas.of_listener)
        return selector

    def _transports(self, contexts: Callable[[], ssl.SSLContext] | None = None) -> Transports:
        made = SocketTransports(
            send_buffer_bytes=self.config.socket_send_buffer_bytes,
            receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
            ssl_context=contexts,
        )
        return made if self.wrap_transports is None else self.wrap_transports(made)

    def _peer_context(self) -> ssl.SSLContext:
        assert self.tls.peers is not None  # connections to peers are encrypted
        return self.tls.peers()

    def _transports_of(self, listener: Listener) -> Transports | None:
        if listener.name not in self.tls.listeners:
            return None
        return self._transports(lambda: self.tls.listeners[listener.name]())  # looked up each time: they may be altered

    def _limit_connections(self, config: BrokerConfig) -> None:
        """Other limits of connections: a listener that waited for one to close may go on."""
        try:
            self._quotas.update(config)
        except ConfigError as error:  # the host was known when it was altered
            logger.error("%s: the limits of connections stay: %s", self.name, error)
        if self._selector is not None:
            self._selector.rearm_listeners()

    def _accept(self) -> None:
        """Begins to accept connections, which have waited in the listener's queue so far."""
        if self._selector is not None:
            self._ports.accept_by(self._selector, self._transports_of, self._quotas.of_listener)

    def _authenticator(self, connection: ConnectionId) -> SaslAuthenticator | None:
        """For connections to those that want to know who this server is."""
        peers = self.peers
        if peers is None:
            return None
        logins = self.controller_logins if peers.is_controller(connection) else self.peer_logins if peers.is_broker(connection) else None
        return None if logins is None else SaslAuthenticator(logins, self.name)

    def stop(self, clean: bool = True) -> None:
        """Closes the port and all connections and ends the thread; the data stays. Nothing happens if it does not run.

        Args:
            clean: first hand over what others can do instead; False is a death as sudden as it can be in a living process.

        Raises:
            KafkaTimeoutError: the thread is stuck in a control function.
        """
        if self._owner_pid != os.getpid():
            return
        if threading.current_thread() is self._thread:
            raise UsageError(f"{self.name} cannot be stopped from its own thread (a control function)")
        with self._lifecycle:
            thread = self._thread
            if thread is None:
                return
            if thread.is_alive():
                timeout_s = self.stop_timeout_s()
                self.post(self._begin_to_stop if clean and not self._paused else self._set_stopping)
                thread.join(timeout_s)
                if thread.is_alive():
                    raise KafkaTimeoutError(f"the thread of {self.name} did not end within {timeout_s:g} s")
            self._thread = None

    def pause(self) -> None:
        """Stops serving but keeps every socket open, as a process does that is stopped or swaps."""
        self.call(lambda: self._set_paused(True))

    def resume(self) -> None:
        """Serves again, beginning with what arrived in between."""
        self.call(lambda: self._set_paused(False))

    def serve_forever(self) -> None:
        """Starts if necessary and waits until `stop` is called or Ctrl+C is pressed, which stops it."""
        self.start()
        thread = self._thread
        try:
            while thread is not None and thread.is_alive():
                thread.join()
        except KeyboardInterrupt:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _set_stopping(self) -> None:
        self._stopping = True

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused

    def _check_process(self) -> None:
        if self._owner_pid != os.getpid():
            raise ForkedClientError(f"{self.name} belongs to the parent process")

    # ---- from other threads

    def control(self, api_key: int, fn: Control | None) -> None:
        """Puts a function before the handler of an API, for tests.

        Args:
            api_key: the API.
            fn: called in the owner thread with every request of that API; returns a response to send instead, a `Delay`, `Drop` or
                `Disconnect`, or None to go on normally. None takes the function away.

        Raises:
            UsageError: the API is not served.
        """
        if api_key not in self.served:
            raise UsageError(f"API {api_key} is not served, so nothing would call the function")
        self.call(lambda: self._set_control(api_key, fn))

    @property
    def controls(self) -> Mapping[int, Control]:
        """The functions that `control` has put before APIs, by number."""
        return self._controls

    def _set_control(self, api_key: int, fn: Control | None) -> None:
        if fn is None:
            self._controls.pop(api_key, None)
        else:
            self._controls[api_key] = fn

    def call(self, fn: Callable[[], T]) -> T:
        """Runs a function in the owner thread and waits for its result; in the caller's if the server is stopped.

        Args:
            fn: must not wait.

        Returns:
            Its result.

        Raises:
            KafkaTimeoutError: the thread does not come round to it.
            ForkedClientError: the server belongs to the parent process.
        """
        self._check_process()
        if threading.current_thread() is self._thread:
            return fn()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn())
            except BaseException as error:
                future.set_exception(error)

        with self._lifecycle:
            if not self.running:
                return fn()
            self.post(run)
        try:
            return future.result(CALL_TIMEOUT_S)
        except TimeoutError:
            if future.done():
                raise
            raise KafkaTimeoutError(f"the thread of {self.name} did not answer within {CALL_TIMEOUT_S} s") from None

    def post(self, message: Callable[[], None]) -> None:
        """Leaves a function for the owner thread, which runs it between two polls; after `stop` it waits for the next start.

        Args:
            message: must not wait, nor raise.
        """
        self._messages.append(message)
        self._message_event.set()
        with self._wake_lock:
            if self._selector is not None:
                self._selector.wakeup()

    # ---- the loop

    def _run(self, selector: Selector) -> None:
        try:
            self._loop(selector)
        except Exception:
            logger.exception("%s failed and stops", self.name)
        finally:
            self._close(selector)

    def _loop(self, selector: Selector) -> None:
        peers = self.peers
        self._deadlines = [_deadline_of(each) for each in (self.pauses.timer, *self.clocked)]
        self._began()
        while True:
            if self._messages or self._paused:
                self._take_messages()
            if self._stopping:
                return
            selector.poll(self._advance(selector))
            now_ms = selector.now_ms
            has_peers = peers is not None and peers.connections
            if peers is not None and has_peers:
                peers.polled(selector)
            if self.authentication is not None:
                for connection in filter(self._asks_who, selector.accepted):
                    # Strangers' requests are small, and are not counted: who stops in the middle of one keeps no user waiting.
                    self._limit_requests(connection, self.config.sasl_server_max_receive_size, None)
            while self._quotas.doomed:
                connection, wait_ms = self._quotas.doomed.popitem()
                self.pauses.doom(connection, wait_ms, self._drop_connection)
            for receive in selector.completed_receives:
                if peers is not None and has_peers and peers.owns(receive.source):
                    peers.received(receive)
                else:
                    self._receive(receive, now_ms)
            for connection, reason in selector.disconnected.items():
                if peers is not None and peers.owns(connection):
                    peers.disconnected(connection, reason)
                    continue
                self._forget(connection)
                level = logging.WARNING if isinstance(reason, _TOLD) else logging.DEBUG
                logger.log(level, "%s: connection %s is closed: %s", self.name, connection, reason)
            if self._slices.ready:
                self._slices.run(self.clock.now_ms)

    def _advance(self, selector: Selector) -> int:
        """Runs what is due, and says how long the poll may wait; -1 without limit."""
        now_ms = self.clock.now_ms()
        earliest_ms = NEVER_MS
        for next_deadline_ms in self._deadlines:
            deadline_ms = next_deadline_ms()
            if deadline_ms is not None and deadline_ms < earliest_ms:
                earliest_ms = deadline_ms
        if earliest_ms <= now_ms or self._sweep_ms <= now_ms:
            earliest_ms = self._run_due(now_ms)
        deadline_ms = self._quotas.deadline_ms
        if deadline_ms is not None:
            if self._quotas.passed(now_ms):
                selector.rearm_listeners()
            earliest_ms = min(earliest_ms, deadline_ms)
        if not self._memory.available:
            selector.fail_stalled(now_ms - STALLED_REQUEST_MS)
            earliest_ms = min(earliest_ms, now_ms + STALLED_REQUEST_MS)
        if self._slices.ready:
            return 0
        return -1 if earliest_ms == NEVER_MS else max(earliest_ms - now_ms, 0)

    def _run_due(self, now_ms: int) -> int:
        """Runs what is due of all that is `clocked`, everything if it is time to sweep; the earliest deadline then."""
        sweep = self._sweep_ms <= now_ms
        if sweep:
            self._sweep_ms = now_ms + SWEEP_MS
        earliest_ms = NEVER_MS
        for next_deadline_ms, each in zip(self._deadlines, (self.pauses.timer, *self.clocked), strict=True):
            deadline_ms = next_deadline_ms()
            if deadline_ms is not None and deadline_ms < earliest_ms:
                earliest_ms = deadline_ms
            if (sweep or (deadline_ms is not None and deadline_ms <= now_ms)) and each.advance_clock():
                earliest_ms = now_ms  # what ran may have given work to those before it, or stopped the server
        return earliest_ms

    def _take_messages(self) -> None:
        while True:
            while self._messages:
                self._messages.popleft()()
            if not self._paused or self._stopping:
                return
            self._message_event.wait()
            self._message_event.clear()

    def _close(self, selector: Selector) -> None:
        self._slices.clear()
        self._ending()
        if self.peers is not None:
            self.peers.close()
        self.pauses.timer = LoopTimer(clock=self.clock)
        # The listener first: a client that sees its connection die must not get a new one from a broker that is going.
        self._ports.close(selector)
        with self._wake_lock:
            self._selector = self.pauses.selector = None
            selector.close()
        while self._messages:
            self._messages.popleft()()
        self._ended()

    # ---- one request

    def _receive(self, receive: NetworkReceive, now_ms: int) -> None:
        connection, payload = receive.source, receive.payload
        if connection in self._silenced:
            return
        try:
            if len(payload) < _HEADER.size:
                raise CorruptDataError(f"a request has at least {_HEADER.size} bytes, not {len(payload)}")
            api_key, version, correlation_id = _HEADER.unpack_from(payload)
            known = self._plans.get((api_key, version))
            if known is None:  # of a request that is not served, or comes for the first time
                is_served = within(self.api_versions, api_key, version)
                if not is_served and not self._is_of_peer(connection, api_key, version, payload):
                    if api_key == ApiVersionsRequest.API_KEY and api_key in self.api_versions:
                        self._respond(connection, 0, correlation_id, unsupported_api_versions(self.api_versions))
                        return
                    name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
                    raise errors.UnsupportedVersion(f"{name} v{version} is not served")
                known = APIS[api_key].request.plan(version), self.served[api_key].max_elements
                if is_served:
                    self._plans[api_key, version] = known
            session = self.authentication.session(connection) if self.authentication is not None and self._asks_who(connection) else None
            if session is not None and not session.admits(api_key, now_ms):
                raise errors.IllegalSaslState(f"{APIS[api_key].name} came before, during or too long after SASL authentication")
            plan, max_elements = known
            client_id, request, elements = decode_request_body(plan, payload, max_elements)
            principal = ANONYMOUS if session is None else session.principal
            if session is None and self.tls.rules:
                principal = self._certified.principal(connection, self._ports.listener_of(connection).name, self._selector)
        except KafkaError as error:
            self._refuse(connection, error)
            return

        respond = functools.partial(self._respond, connection, version, correlation_id)
        fail = functools.partial(self._drop_connection, connection)
        host = "/" + full_address(self._quotas.hosts.get(connection, ""))
        call = Call(version, client_id, now_ms, self.clock.wall_ms(), respond, fail, host)
        call.connection, call.elements, call.slice, call.session = connection, elements, self._slice, session
        call.principal = principal
        if len(self._ports.listeners) > 1:
            call.listener = self._ports.listener_of(connection).name
        metered = None
        if self.throttling is not None and is_measured(request, version) and (session is None or session.user):
            user, mute = name_of(call.principal), functools.partial(self.pauses.throttle, connection)
            metered = Metered(self.throttling, request, version, user, client_id or "", len(payload), self.clock, respond, mute)
            call.respond, call.meter = metered.respond, metered
        try:
            control = self._controls.get(api_key) if self._controls else None
            if control is None:
                self._handle(connection, call, api_key, request)
            else:
                self._handle_controlled(connection, call, api_key, request, self._ask(control, request, version))
        except Exception:
            logger.exception("%s: %s v%d failed; connection %s is closed", self.name, APIS[api_key].name, version, connection)
            self._drop_connection(connection)
        if metered is not None:
            metered.pause()
        if session is not None and session.failed:
            logger.warning("%s: closing connection %s: its authentication failed: %s", self.name, connection, session.failure)
        elif api_key == SaslAuthenticateRequest.API_KEY and session is not None and session.user:
            self._limit_requests(connection, self.config.socket_request_max_bytes, self._memory)

    def _asks_who(self, connection: ConnectionId) -> bool:
        """Whether the listener that a connection came in by asks for a user."""
        return self._ports.listener_of(connection).protocol.startswith("SASL_")

    def _limit_requests(self, connection: ConnectionId, max_bytes: int, memory: ReceiveMemory | None) -> None:
        channel = self._selector.channel(connection) if self._selector is not None else None
        if channel is not None:
            channel.reader.limit(max_bytes, memory)

    def _is_of_peer(self, connection: ConnectionId, api_key: int, version: int, payload: Any) -> bool:
        """Whether a broker of the cluster asks for what is served to brokers alone: versions that the release that is played does not have.

        Where the listener asks for a user, only the brokers' own is believed. Elsewhere the client id says it, and who lies there
        gets what any client gets of a broker that plays no old release."""
        if not within(self._peer_versions, api_key, version):
            return False
        if self.authentication is not None and self._asks_who(connection) and api_key not in DIALOGUE:
            user = self.authentication.session(connection).user
            return bool(user) and user == self.authentication.own_user
        return is_broker_client(decode_request_header(payload)[0].client_id)

    def _handle(self, connection: ConnectionId, call: Call, api_key: int, request: Request) -> None:
        served = self.served[api_key]
        for parts in served.parts if call.elements >= SMALLEST_PARTS else ():
            if parts.is_for(call):
                finish = functools.partial(self._finish, connection, call)
                job = PartsJob(parts, served.handler, self.state, call, request, self._slices, self._now, finish)
                self._begin_job(connection, call, job)
                return
        result = served.handler(self.state, call, request)
        if isinstance(result, GeneratorType):
            self._slice(call, result)
        elif isinstance(result, Response):
            call.respond(result)
        elif result is Outcome.CLOSE:
            self._drop_connection(connection)
        elif result is Outcome.SILENT:
            if self.throttling is not None:
                call.respond(None)
        elif result is Outcome.LATER and call.operation is not None and not call.operation.is_completed():
            self._calls[connection] = call
            self.pauses.mute(connection)

    def _slice(self, call: Call, steps: Steps) -> None:
        connection = call.connection
        assert connection is not None  # a call of this server's
        self._begin_job(connection, call, StepsJob(steps, call, functools.partial(self._finish, connection, call)))

    def _begin_job(self, connection: ConnectionId, call: Call, job: PartsJob | StepsJob) -> None:
        if self._selector is None or connection not in self._selector.channels:
            job.abandon()
            return
        self._calls[connection] = call
        self.pauses.mute(connection)
        self._slices.add(job)

    def _now(self) -> tuple[int, int]:
        return self.clock.now_ms(), self.clock.wall_ms()

    def _finish(self, connection: ConnectionId, call: Call, result: Response | Outcome) -> None:
        """A request that was carried out in slices has its result."""
        if isinstance(result, Response):
            call.respond(result)
        elif result is Outcome.CLOSE:
            self._drop_connection(connection)
        elif result is Outcome.SILENT:
            self._calls.pop(connection, None)
            self.pauses.unmute(connection)
            if self.throttling is not None:
                call.respond(None)
        # else it waits now, or what it waited for has come and is answered

    def _ask(self, control: Control, request: Request, version: int) -> Any:
        return control(request)

    def _handle_controlled(self, connection: ConnectionId, call: Call, api_key: int, request: Request, answer: Any) -> None:
        if isinstance(answer, type):
            answer = answer()
        if answer is None:
            self._handle(connection, call, api_key, request)
        elif isinstance(answer, Delay):
            self.pauses.delay(connection, answer.ms, lambda: self._handle_late(connection, call, api_key, request))
        elif isinstance(answer, Drop | Disconnect):
            if answer.handle:
                call.respond = _lose
                result = self.served[api_key].handler(self.state, call, request)
                if isinstance(result, GeneratorType):
                    deque(result, 0)
            if isinstance(answer, Drop):
                self._silenced.add(connection)
            else:
                self._drop_connection(connection)
        elif isinstance(answer, Response):
            call.respond(answer)
        else:
            raise UsageError(f"a control function returned {answer!r}; it may return a response, Delay, Drop, Disconnect or None")

    def _handle_late(self, connection: ConnectionId, call: Call, api_key: int, request: Request) -> None:
        self.pauses.end_delay(connection)
        call.now_ms, call.wall_ms = self.clock.now_ms(), self.clock.wall_ms()
        try:
            self._handle(connection, call, api_key, request)
        except Exception:
            logger.exception("%s: delayed %s failed; connection %s is closed", self.name, APIS[api_key].name, connection)
            self._drop_connection(connection)
        if connection not in self._calls:
            self.pauses.unmute(connection)

    def _respond(self, connection: ConnectionId, version: int, correlation_id: int, response: Response | None) -> None:
        if self._calls:
            self._calls.pop(connection, None)
        selector = self._selector
        if selector is None or connection not in selector.channels:
            return
        if response is not None:
            selector.send(NetworkSend(connection, encode_response(response, version, correlation_id), await_completion=False))
        if self._muted:
            self.pauses.unmute(connection)

    def _refuse(self, connection: ConnectionId, reason: KafkaError) -> None:
        logger.warning("%s: closing connection %s: %s", self.name, connection, reason)
        self._drop_connection(connection)

    def _drop_connection(self, connection: ConnectionId) -> None:
        self._forget(connection)
        if self._selector is not None:
            self._selector.close(connection)

    def _forget(self, connection: ConnectionId) -> None:
        """Ends what a connection that is gone was waiting for."""
        self.pauses.forget(connection)
        if self._certified:
            self._certified.forget(connection)
        if self.authentication is not None:
            self.authentication.forget(connection)
        call = self._calls.pop(connection, None)
        if call is not None and call.operation is not None:
            call.operation.abandon()

    def num_connections(self) -> int:
        """Open connections; for the owner thread."""
        return len(self._selector.channels) if self.running and self._selector is not None else 0

    def abandon_in_child(self) -> None:
        """In a forked child: lets go of the parent's sockets. The epoll set is shared with the parent and is not touched."""
        self._lifecycle = threading.RLock()
        self._wake_lock = threading.Lock()
        self._thread = None
        with contextlib.suppress(OSError):
            self._ports.close(None)
            if self._selector is not None:
                for channel in list(self._selector.channels.values()):
                    sock = getattr(channel.transport, "sock", None)
                    if sock is not None:
                        sock.close()


def _deadline_of(each: Clocked) -> Callable[[], int | None]:
    """What tells a deadline: of whatever waits in a timer alone its wheel, for the loop asks them all at every turn."""
    source = each.timer if isinstance(each, DelayedOperationPurgatory | PeerClient) else each
    return source.wheel.next_deadline_ms if isinstance(source, LoopTimer) else each.next_deadline_ms


def _lose(response: Response | None) -> None:
    """Where responses go that a test wants lost."""
