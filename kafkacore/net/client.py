"""NetworkClient: requests to nodes over one selector, and the cluster metadata they need.

Rules:

1. One thread owns a client. Only `wakeup`, `initiate_close` and `active` may be called from others, and `_post` by its helper threads.
   [test_a_resolver_that_hangs_for_one_broker_does_not_keep_another_from_being_asked]
2. `poll` does, in this order: aborted sends, metadata refresh, I/O; then completed sends, completed receives, disconnections, connections,
   ApiVersions requests, timed-out connections, timed-out requests; and last the callbacks, so a callback sees a settled state.
   [test_the_steps_of_a_poll_come_in_kafkas_order]
3. Every wait ends at a real deadline (metadata age, back-off, set-up time-out, request time-out). An idle client does not wake up.
   A broker that bounds the life of sessions has one more: a connection authenticates again before its session ends (KIP-368).
   [test_a_poll_waits_no_longer_than_the_next_deadline, test_an_idle_client_does_not_wake_up, test_a_session_is_renewed_between_requests]
4. A response that does not fit its request, a request that times out, bytes that do not decode: each ends the whole connection, and every
   request on it is answered with `disconnected`. After a lost answer nothing later on that connection can be trusted to be in step.
   [test_a_wrong_correlation_id_fails_the_connection, test_a_response_that_does_not_decode_fails_the_connection,
   test_a_late_request_closes_the_connection, test_a_disconnect_answers_every_request_in_order]
5. Nothing blocks but the selector: names are resolved, and OAuth tokens asked for, on helper threads (net/background.py). Until then the
   node is RESOLVING or AWAITING_TOKEN, and the other nodes are served.
   [test_a_resolver_that_hangs_for_one_broker_does_not_keep_another_from_being_asked,
   test_connections_share_one_ask_and_none_of_them_blocks, test_a_node_without_a_token_holds_up_no_node_that_has_authenticated]

Source: Kafka's NetworkClient, KafkaClient, ClusterConnectionStates; KIP-35, KIP-144, KIP-219, KIP-511, KIP-601, KIP-899.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kafkacore import protocol
from kafkacore._codec import ClientCore
from kafkacore.clock import Clock
from kafkacore.config_listeners import joined
from kafkacore.errors import (
    AuthenticationFailedError,
    CorruptDataError,
    DisconnectError,
    IllegalStateError,
    KafkaError,
    NetworkError,
    RequestTimedOut,
    UnsupportedVersion,
)
from kafkacore.errors import from_code as error_from_code
from kafkacore.metadata import Metadata
from kafkacore.net import controllers
from kafkacore.net.authentication import Authenticators
from kafkacore.net.background import Lookups, Resolver, resolve
from kafkacore.net.connection import (
    AWAITING_TOKEN,
    CHECKING_API_VERSIONS,
    CONNECTING,
    NEVER_MS,
    READY,
    REAUTHENTICATING,
    RESOLVING,
    CorrelationIds,
    ExponentialBackoff,
    InFlightRequests,
    NodeApiVersions,
    NodeConnection,
)
from kafkacore.net.node_ids import broker_of, title_of
from kafkacore.net.request import ClientRequest, ClientResponse, Kind
from kafkacore.net.selector import IdleDisconnect, Selector
from kafkacore.protocol.releases import WITHOUT_API_VERSIONS
from kafkacore.types import Node

__all__ = ["ClientRequest", "ClientResponse", "NetworkClient", "NetworkClientConfig", "Resolver", "resolve"]

_API_VERSIONS_KEY = 18
_UNSUPPORTED_VERSION = 35
_AUTHENTICATE = -1  # in `_needs_versions`: not versions are to be asked for, but another authentication is to start
# How much of a session's life passes before the next authentication: not all connections of all clients at once.
_SESSION_PARTS = (0.85, 0.95)
_LEAST_SESSION_MS = 100  # no next authentication sooner, whatever a broker says: one of 1 ms would keep the client at nothing else

# So long a name may be looked up before another node is asked instead, where any will do (the delay of RFC 8305, section 5).
_RESOLUTION_DELAY_MS = 250

# So many connections in a row that the peer closes so soon after the attempt began, an answer being owed, are no accident.
_EARLY_CLOSINGS = 3
_EARLY_MS = 2_000
WANTS_MORE = "its listener may want SASL or TLS"
_SPEAKS_TLS = "speaks TLS"  # what a frame reader says of an alert of TLS
WANTS_TLS = "its listener wants TLS, that is security_protocol=SSL or SASL_SSL"
_WHY_EARLY = f"{WANTS_MORE}, that is another security_protocol, or it is a Kafka before 0.10, which broker_version='0.8' (or '0.9') says"
_EARLY_HINT = ", soon after it was opened and several times in a row: "
_WHY_EARLY_TLS = "its listener may want SASL, or refuse the client certificate"

_LONGEST_THROTTLE_MS = 300_000  # quotas hold for windows of seconds; a wrong answer must not keep the client away for days
# From this version on a throttled client has to wait by itself: the broker answers first and is silent afterwards (KIP-219).
# An API that is not listed has behaved so since its version 0.
_CLIENT_THROTTLES_FROM = {
    0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 18: 2, 19: 3, 20: 2, 21: 1, 22: 1, 24: 1, 25: 1,
    26: 1, 28: 1, 29: 1, 30: 1, 31: 1, 32: 2, 33: 1, 34: 1, 35: 1, 37: 1, 38: 1, 39: 1, 40: 1, 41: 1, 42: 1,
}  # fmt: skip

log = logging.getLogger("kafkacore.net")


class NetworkClientConfig(Protocol):
    """The settings read here (any ClientConfig has them)."""

    @property
    def client_id(self) -> str: ...
    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def reconnect_backoff_ms(self) -> int: ...
    @property
    def reconnect_backoff_max_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...
    @property
    def socket_connection_setup_timeout_max_ms(self) -> int: ...


class NetworkClient(ClientCore):
    """Sends requests to nodes and keeps the metadata fresh; see the rules at the top of the file.

    Args:
        selector: Channels; belongs to the client from now on.
        metadata: What to keep fresh. Only its I/O side is used.
        config: Time-outs, back-off and client id.
        clock: Time; the selector's by default.
        rng: Jitter, and where `least_loaded_node` starts.
        resolver: Name resolution that does not block; by default the system's, on a helper thread.
        max_in_flight: max.in.flight.requests.per.connection.
        software_version: Sent to brokers with ApiVersions (KIP-511).
        broker_version: Of brokers that have no ApiVersions (`WITHOUT_API_VERSIONS`); None asks each broker what it speaks.
    """

    selector: Selector
    metadata: Metadata
    _connections: dict[int, NodeConnection]

    def __init__(
        self,
        selector: Selector,
        metadata: Metadata,
        config: NetworkClientConfig,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        *,
        resolver: Resolver | None = None,
        max_in_flight: int = 5,
        software_version: str = "0.1.0",
        broker_version: str | None = None,
    ) -> None:
        self.selector = selector
        self.metadata = metadata
        self.in_flight = InFlightRequests(max_in_flight)
        self._clock = clock or selector.clock
        self._rng = rng or random.Random()
        self._found_out: deque[Callable[[int], None]] = deque()
        self._lookups = Lookups(self._post, self._resolved, resolver)
        self._client_id = config.client_id
        self._request_timeout_ms = config.request_timeout_ms
        self._software_version = software_version
        self._speaks_dropped = broker_version is not None
        self._known_versions = None if broker_version is None else WITHOUT_API_VERSIONS.get(broker_version)
        self._correlation = CorrelationIds()
        self._reconnect_backoff = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng=self._rng)
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, rng=self._rng
        )
        self._connections = {}
        self.node_stats = {}
        self._hosts: dict[int, tuple[str, int]] = {}  # what `addresses` of a node were resolved from
        self._told_down: set[int] = set()  # nodes that cannot be reached, as the log says already
        self._opening: dict[int, NodeConnection] = {}  # attempts with a set-up deadline
        self._sessions: dict[int, NodeConnection] = {}  # connections that have to authenticate again at some time
        self._setup_deadline_ms = NEVER_MS  # the earliest of both
        self._needs_versions = {}  # node -> ApiVersions version to ask with, or _AUTHENTICATE
        self._aborted = []
        self._metadata_request = None
        self._features_epoch = -1
        self.finalized_features: dict[str, int] = {}  # of the cluster: {feature: level}, as the broker with the newest view said last
        self._active = True
        self.on_disconnect: Callable[[int, KafkaError], None] | None = None  # called for connections that ended and were ready before
        self.on_failure: Callable[[int, KafkaError, bool], None] | None = None  # of a connection or an attempt at one; True: it was ready
        self.on_throttle: Callable[[int, int], None] | None = None  # called with a node and the milliseconds of its throttle time
        self._any_ready = False  # found by the last least_loaded_node
        authenticator = selector.authenticator
        self._authenticators = authenticator if isinstance(authenticator, Authenticators) else None
        self._login = None if self._authenticators is None else self._authenticators.login
        if self._login is not None:
            self._login.on_answer = lambda: self._post(self._advance_login)
            self._recompute_setup_deadline()

    # ---- nodes

    def connection_delay(self, node: Node, now_ms: int) -> int:
        """Returns how long to wait before it makes sense to look at the node again: the rest of its back-off while disconnected, of its
        set-up time-out while connecting, and without end (NEVER_MS) once connected. While its name is being resolved it is 250 ms at first:
        who can do with another node then asks that."""
        connection = self._connections.get(node.id)
        if connection is None:
            return 0
        if connection.disconnected:
            return max(0, connection.backoff_until_ms - now_ms)
        if connection.state == RESOLVING and now_ms < connection.last_attempt_ms + _RESOLUTION_DELAY_MS:
            return connection.last_attempt_ms + _RESOLUTION_DELAY_MS - now_ms
        if connection.state in (CONNECTING, RESOLVING):
            return max(0, connection.setup_deadline_ms - now_ms)
        return NEVER_MS

    def catch_up(self, now_ms: int) -> None:
        """Does what fell due since the last poll. For callers that do not poll all the time, before they send: a session that has ended is
        renewed before a request goes out on it, or the broker would close the connection.

        Source: org.apache.kafka.common.network.KafkaChannel.maybeBeginClientReauthentication, which Java asks before each write.
        """
        if now_ms >= self._setup_deadline_ms:
            self.poll(0, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """Returns how long to wait before sending to the node: its throttle time if it has one, else `connection_delay`."""
        connection = self._connections.get(node.id)
        if connection is not None and connection.throttled_until_ms > now_ms:
            return connection.throttled_until_ms - now_ms
        return self.connection_delay(node, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: int) -> int:
        """Returns for how long the node asked for no requests (KIP-219)."""
        connection = self._connections.get(node.id)
        return 0 if connection is None else max(0, connection.throttled_until_ms - now_ms)

    def connection_failed(self, node: Node) -> bool:
        """True when the last connection or attempt ended and none has been started since."""
        connection = self._connections.get(node.id)
        return connection is not None and connection.disconnected

    def authentication_exception(self, node: Node) -> KafkaError | None:
        """Returns why the node's connection was refused by authentication, if it was."""
        connection = self._connections.get(node.id)
        return None if connection is None else connection.authentication_error

    def connection_errors(self, node: Node) -> tuple[KafkaError, ...]:
        """Returns why the attempts to reach the node failed since it was last ready, oldest first."""
        connection = self._connections.get(node.id)
        return () if connection is None else tuple(connection.attempts)

    def api_version(self, node_id: int, api_key: int) -> int | None:
        """Returns the highest version of an API that both sides speak, None when not connected or not shared."""
        versions = self.api_versions(node_id)
        api = protocol.APIS.get(api_key)
        if versions is None or api is None or api_key not in versions.ranges:
            return None
        low, high = versions.ranges[api_key]
        high = min(high, api.max_version)
        return high if high >= max(low, api.oldest_served) else None

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        """Returns what the node said it speaks, with its finalized features; None when not connected."""
        connection = self._connections.get(node_id)
        return None if connection is None else connection.versions

    def _connection(self, node_id: int) -> NodeConnection:
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = NodeConnection(node_id)
        return connection

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """Returns the node to ask when any will do: a ready one with nothing in flight, else the ready one with least in flight, else one
        being connected, else the one whose last attempt is longest ago, else one whose name is being resolved; None when none is possible
        now."""
        nodes = self.metadata.snapshot.node_list
        if not nodes:
            raise IllegalStateError("there are no nodes; the metadata was not bootstrapped")
        self._any_ready = False
        best: Node | None = None
        best_count = 1 << 30
        connecting: Node | None = None
        resolving: Node | None = None
        connectable: Node | None = None
        oldest_ms = NEVER_MS
        count = len(nodes)
        offset = self._rng.randrange(count) if count > 1 else 0
        for index in range(count):
            node = nodes[(offset + index) % count]
            connection = self._connections.get(node.id)
            if connection is not None and connection.state == READY:
                self._any_ready = True
                if self._can_send(node.id, now_ms):
                    in_flight = self.in_flight.node_count(node.id)
                    if in_flight == 0:
                        return node
                    if in_flight < best_count:
                        best, best_count = node, in_flight
            elif connection is not None and connection.state in (CONNECTING, CHECKING_API_VERSIONS, REAUTHENTICATING, AWAITING_TOKEN):
                connecting = node
            elif connection is not None and connection.state == RESOLVING:
                resolving = node  # last: a resolver that hangs for one name says nothing about the others
            elif connection is None or connection.can_connect(now_ms):
                last_ms = -NEVER_MS if connection is None else connection.last_attempt_ms
                if last_ms < oldest_ms:
                    connectable, oldest_ms = node, last_ms
        return best or connecting or connectable or resolving

    def has_ready_nodes(self, now_ms: int) -> bool:
        """True when some node is connected and not throttled."""
        return any(one.state == READY and one.throttled_until_ms <= now_ms for one in self._connections.values())

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """Returns the requests in flight to one node, or to all."""
        return self.in_flight.count if node_id is None else self.in_flight.node_count(node_id)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        """True when requests are in flight, to one node or to any."""
        return self.in_flight_request_count(node_id) > 0

    # ---- sending

    def new_client_request(
        self,
        node_id: int,
        api: type[Any],
        build: Callable[[int], Any],
        now_ms: int,
        *,
        expect_response: bool = True,
        timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        left: type | None = None,
    ) -> ClientRequest:
        """Makes a request for `send`.

        Args:
            node_id: Where to.
            api: Request class.
            build: Makes the request for the negotiated version; called inside `send`.
            now_ms: Time.
            expect_response: False when the broker will not answer (Produce with acks=0).
            timeout_ms: Time the answer may take; request.timeout.ms by default.
            callback: Called with the ClientResponse, last in the poll that has it.
            min_version: Lowest version that can express the request; the oldest that Kafka 4 serves by default.
            max_version: Highest version to use.
            left: A struct of the answer whose arrays are checked and left as bytes: PartitionData, as `FetchedPartitions`.
        """
        return ClientRequest(
            node_id,
            api,
            build,
            now_ms,
            expect_response,
            self._request_timeout_ms if timeout_ms is None else timeout_ms,
            callback,
            (api.MIN_VERSION if self._speaks_dropped else api.OLDEST_SERVED) if min_version is None else min_version,
            api.MAX_VERSION if max_version is None else max_version,
            left,
        )

    # ---- polling (`poll` and `send` are compiled: native/client.pxi)

    def _handle_completed_sends(self, responses: list[ClientResponse], now_ms: int) -> None:
        for send in self.selector.completed_sends:
            if not send.await_completion:
                continue
            request = self.in_flight.last_sent(send.destination)  # type: ignore[arg-type]
            if request is not None and request.send is send:
                self.in_flight.complete_last_sent(request.node_id)
            else:
                # Written at once, and others were sent after it before this poll.
                request = self.in_flight.complete_send(send)
                if request is None:
                    continue
            responses.append(ClientResponse(request, latency_ms=now_ms - request.sent_ms))

    def _throttle(self, request: ClientRequest, throttle_ms: int, now_ms: int) -> None:
        throttle_ms = min(throttle_ms, _LONGEST_THROTTLE_MS)
        if self.on_throttle is not None:
            self.on_throttle(request.node_id, throttle_ms)
        if request.version >= _CLIENT_THROTTLES_FROM.get(request.api.API_KEY, 0):
            connection = self._connections[request.node_id]
            connection.throttled_until_ms = max(connection.throttled_until_ms, now_ms + throttle_ms)
            self.in_flight.add_throttle_time(request.node_id, throttle_ms)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id, error in self.selector.disconnected.items():
            self._process_disconnection(node_id, error, responses, now_ms)  # type: ignore[arg-type]

    def _handle_connections(self) -> None:
        for node_id in self.selector.connected:
            connection = self._connections[node_id]  # type: ignore[index]
            connection.checking_api_versions()
            self.stats_of(connection.node_id).opened.record(1, self.selector.now_ms)
            self._needs_versions[connection.node_id] = protocol.ApiVersionsRequest.MAX_VERSION

    def _handle_initiate_api_version_requests(self, now_ms: int) -> None:
        for node_id, version in list(self._needs_versions.items()):
            if not self.selector.is_channel_ready(node_id) or not self.in_flight.can_send_more(node_id):
                continue
            if version == _AUTHENTICATE:
                try:
                    if not self._may_authenticate(node_id, now_ms):
                        continue
                except (NetworkError, AuthenticationFailedError) as error:
                    self._fail(node_id, error, self._aborted, now_ms)
                    continue
                del self._needs_versions[node_id]
                self._authenticate(node_id, None, self._aborted, now_ms)
                continue
            del self._needs_versions[node_id]
            # The stream is open; from here on the request's own time-out watches it.
            self._connections[node_id].setup_deadline_ms = NEVER_MS
            self._opening.pop(node_id, None)
            self._recompute_setup_deadline()
            if self._known_versions is not None:
                self._is_open(node_id, NodeApiVersions(dict(self._known_versions), None, broker_of(node_id)), now_ms)
                continue
            request = self.new_client_request(node_id, protocol.ApiVersionsRequest, self._build_api_versions, now_ms)
            request.kind = Kind.API_VERSIONS
            self._do_send(request, self._build_api_versions(version), version, now_ms)

    def _build_api_versions(self, _version: int) -> Any:
        return protocol.ApiVersionsRequest(client_software_name="kafkacore", client_software_version=self._software_version)

    def _handle_api_versions(self, request: ClientRequest, response: Any, responses: list[ClientResponse], now_ms: int) -> None:
        node_id = request.node_id
        if request.kind is Kind.AUTHENTICATION:
            self._authenticate(node_id, response, responses, now_ms)
            return
        if response.error_code == _UNSUPPORTED_VERSION and request.version > 0:
            # KIP-511: the answer names the range of ApiVersions itself. Never the same version again, whatever it says.
            highest = next((key.max_version for key in response.api_keys if key.api_key == _API_VERSIONS_KEY), 0)
            self._needs_versions[node_id] = max(0, min(highest, request.version - 1))
            return
        if response.error_code:
            error = error_from_code(response.error_code, broker=broker_of(node_id), api=f"ApiVersions v{request.version}")
            self._fail(node_id, error, responses, now_ms)
            return
        ranges = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        if wrong := next((found for found in ranges.items() if not 0 <= found[1][0] <= found[1][1]), None):
            text = f"versions {wrong[1][0]} to {wrong[1][1]} of API {wrong[0]}"
            self._fail(node_id, CorruptDataError(text, broker=broker_of(node_id), api=f"ApiVersions v{request.version}"), responses, now_ms)
            return
        features = {feature.name: feature.max_version_level for feature in getattr(response, "finalized_features", None) or ()}
        if (epoch := getattr(response, "finalized_features_epoch", -1)) >= self._features_epoch:
            self._features_epoch, self.finalized_features = epoch, features
        self._is_open(node_id, NodeApiVersions(ranges, features, broker_of(node_id)), now_ms)

    def _is_open(self, node_id: int, versions: NodeApiVersions, now_ms: int) -> None:
        """What the node speaks is known: requests can go out."""
        self._told_down.discard(node_id)
        self._connections[node_id].ready(versions)
        channel = self.selector.channel(node_id)
        if channel is not None and channel.authenticator is not None:
            self._session_began(node_id, channel.authenticator.session_lifetime_ms, now_ms)

    def _session_began(self, node_id: int, lifetime_ms: int, now_ms: int) -> None:
        """The broker has let this client in, for so long."""
        connection = self._connections[node_id]
        connection.authentication = None
        connection.reauthenticate_ms = NEVER_MS
        if lifetime_ms > 0:
            connection.reauthenticate_ms = now_ms + max(int(lifetime_ms * self._rng.uniform(*_SESSION_PARTS)), _LEAST_SESSION_MS)
            self._sessions[node_id] = connection
        else:
            self._sessions.pop(node_id, None)
        self._recompute_setup_deadline()

    def _authenticate(self, node_id: int, answer: Any, responses: list[ClientResponse], now_ms: int) -> None:
        """One step of another authentication on a connection that is up (KIP-368)."""
        connection = self._connections[node_id]
        try:
            if connection.authentication is None:
                channel = self.selector.channel(node_id)
                assert channel is not None  # it is ready
                connection.authentication = channel.authenticator.again()
            following = connection.authentication.next(answer)
        except KafkaError as error:
            self._fail(node_id, error, responses, now_ms)
            return
        if following is None:
            connection.state = READY
            self._session_began(node_id, connection.authentication.session_lifetime_ms, now_ms)
            return
        message, version = following
        request = self.new_client_request(node_id, type(message), lambda _version: message, now_ms)
        request.kind = Kind.AUTHENTICATION
        self._do_send(request, message, version, now_ms)

    def _handle_timed_out_connections(self, responses: list[ClientResponse], now_ms: int) -> None:
        ended = [node_id for node_id, connection in self._sessions.items() if connection.reauthenticate_ms <= now_ms]
        for node_id in ended:
            connection = self._connections[node_id]
            connection.state = REAUTHENTICATING
            connection.reauthenticate_ms = NEVER_MS
            self._needs_versions[node_id] = _AUTHENTICATE  # now, or when the frame being written is sent
        if self._login is not None and self._login.deadline_ms <= now_ms:
            self._advance_login(now_ms)
        for node_id, connection in list(self._opening.items()):
            if connection.setup_deadline_ms <= now_ms:
                took_ms = now_ms - connection.last_attempt_ms
                self.selector.close(node_id)
                what = f"connection to {self._name(node_id)} was not set up"
                if connection.state == RESOLVING:
                    what = f"cannot resolve host {self._hosts[node_id][0]!r}: there was no answer"
                error = NetworkError(f"{what} within {took_ms} ms", broker=broker_of(node_id))
                self._process_disconnection(node_id, error, responses, now_ms, timed_out=True)
        self._recompute_setup_deadline()
        if ended:
            self._handle_initiate_api_version_requests(now_ms)

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id in self.in_flight.timed_out_nodes(now_ms):
            request = self.in_flight.oldest(node_id)
            what = "a request" if request is None else f"{request.api.__name__} v{request.version}"
            self.selector.close(node_id)
            error = RequestTimedOut(
                f"{self._name(node_id)} did not answer {what} in time; the connection was closed", broker=broker_of(node_id)
            )
            self._process_disconnection(node_id, error, responses, now_ms, timed_out=True)

    # ---- connections

    def _name(self, node_id: int) -> str:
        host = self._hosts.get(node_id)
        return title_of(node_id) if host is None else f"{title_of(node_id)} ({joined(*host)})"

    def _forget_deadlines(self, node_id: int) -> None:
        """What was to happen on a connection that is closed."""
        self._needs_versions.pop(node_id, None)
        if {self._opening.pop(node_id, None), self._sessions.pop(node_id, None)} != {None}:
            self._recompute_setup_deadline()

    def _recompute_setup_deadline(self) -> None:
        opening = min((one.setup_deadline_ms for one in self._opening.values()), default=NEVER_MS)
        self._setup_deadline_ms = min((one.reauthenticate_ms for one in self._sessions.values()), default=NEVER_MS)
        self._setup_deadline_ms = min(self._setup_deadline_ms, opening, NEVER_MS if self._login is None else self._login.deadline_ms)

    def _initiate_connect(self, node: Node, now_ms: int) -> None:
        connection = self._connection(node.id)
        host = (node.host, node.port)
        if self._hosts.get(node.id) != host or connection.needs_resolve:
            connection.addresses = []
            connection.next_address = 0
            self._hosts[node.id] = host
        self._go_on_connecting(connection, now_ms)

    def _go_on_connecting(self, connection: NodeConnection, now_ms: int) -> None:
        """An attempt, as far as it goes without waiting: a token or ticket if it needs one, the host's addresses, the connection."""
        node_id = connection.node_id
        host, port = self._hosts[node_id]
        self._opening[node_id] = connection
        try:
            if not self._may_authenticate(node_id, now_ms):
                connection.awaiting_token(now_ms)
                return
            timeout_ms = self._setup_timeout.backoff_ms(connection.failed_connect_attempts)
            if connection.needs_resolve:
                addresses = self._lookups.find(host, port, broker_of(node_id))
                if addresses is None:
                    connection.resolving(now_ms, timeout_ms)
                    return
                connection.addresses = addresses
            address = connection.next_connect_address()
            connection.connecting(now_ms, timeout_ms)
            self.selector.connect(node_id, address)
        except (NetworkError, AuthenticationFailedError) as error:
            if error.broker is None:
                error.broker = broker_of(node_id)
            self._process_disconnection(node_id, error, self._aborted, now_ms)
        except (OSError, ValueError, OverflowError) as cause:  # an address that no socket takes: ValueError a host, OverflowError a port
            reason = getattr(cause, "strerror", None) or cause
            lost = NetworkError(f"connection to {joined(host, port)} failed: {reason}", broker=broker_of(node_id))
            lost.__cause__ = cause
            self._process_disconnection(node_id, lost, self._aborted, now_ms)
        finally:
            self._recompute_setup_deadline()

    def _may_authenticate(self, node_id: int, now_ms: int) -> bool:
        """Whether a connection may authenticate now; False while an OAuth token or a Kerberos ticket is being asked for.

        Raises:
            AuthenticationFailedError, NetworkError: see `Authenticators.ready`.
        """
        if self._login is None:
            return True
        assert self._authenticators is not None  # it has the login
        try:
            return self._authenticators.ready(now_ms, node_id, self._hosts[node_id][0])
        finally:
            self._recompute_setup_deadline()

    # ---- what helper threads have found out (net/background.py)

    def _post(self, step: Callable[[int], None]) -> None:
        """Has a later poll, or the one in progress, call `step(now_ms)`. Any thread may call it."""
        self._found_out.append(step)
        self.wakeup()

    def _handle_found_out(self, now_ms: int) -> None:
        while self._found_out:
            self._found_out.popleft()(now_ms)

    def _resolved(self, host: tuple[str, int], now_ms: int) -> None:
        for connection in [one for one in self._opening.values() if one.state == RESOLVING and self._hosts[one.node_id] == host]:
            self._go_on_connecting(connection, now_ms)

    def _advance_login(self, now_ms: int) -> None:
        assert self._login is not None  # who else would have called
        self._login.advance(now_ms)
        self._recompute_setup_deadline()
        for connection in [one for one in self._opening.values() if one.state == AWAITING_TOKEN]:
            self._go_on_connecting(connection, now_ms)

    def _fail(self, node_id: Any, error: KafkaError, responses: list[ClientResponse], now_ms: int) -> None:
        """Closes a connection whose peer does not keep to the protocol."""
        if error.broker is None:
            error.broker = broker_of(node_id)
        self.selector.close(node_id)
        self._process_disconnection(node_id, error, responses, now_ms)

    def _count_end(self, connection: NodeConnection, error: KafkaError) -> None:
        """For the metrics, before the state changes: a connection that was up ends, or an attempt to make one."""
        stats = self.stats_of(connection.node_id)
        stats.connections_closed += connection.is_up
        stats.failed_authentications += isinstance(error, AuthenticationFailedError)

    def _process_disconnection(
        self, node_id: int, error: KafkaError, responses: list[ClientResponse], now_ms: int, *, timed_out: bool = False
    ) -> None:
        connection = self._connection(node_id)
        was_ready = connection.state in (READY, REAUTHENTICATING)
        self._count_end(connection, error)
        if self.on_disconnect is not None and was_ready:
            self.on_disconnect(node_id, error)
        if _SPEAKS_TLS in error.message:
            error.message += f": {WANTS_TLS}"
        early = not timed_out and self._was_closed_early(connection, error, now_ms)
        connection.lost(now_ms, error, self._reconnect_backoff, authentication=isinstance(error, AuthenticationFailedError))
        if not isinstance(error, IdleDisconnect):
            # Once per outage in the log, when no address of the name is left to try; each attempt is in the error that a caller gets.
            connection.closed_early = connection.closed_early + 1 if early else 0
            passing = was_ready or not connection.needs_resolve or node_id in self._told_down
            if early:
                # A listener that wants SASL answers ApiVersions to anybody, so each attempt gets as far as being ready.
                passing = connection.closed_early != _EARLY_CLOSINGS
                if connection.closed_early >= _EARLY_CLOSINGS:
                    error.message += _EARLY_HINT + (_WHY_EARLY_TLS if self.selector.uses_tls else _WHY_EARLY)
            if not passing and not isinstance(error, AuthenticationFailedError):
                self._told_down.add(node_id)
                log.warning("%s; trying again", error)
            else:
                log.debug("%s; trying again", error)
        self._forget_deadlines(node_id)
        self._cancel_in_flight(node_id, error, responses, now_ms, timed_out)
        if isinstance(error, IdleDisconnect):
            return  # our own choice; it says nothing about the cluster
        if self.on_failure is not None:
            self.on_failure(node_id, error, was_ready)
        if isinstance(error, AuthenticationFailedError):
            self.metadata.failed(error, now_ms)
        elif not connection.needs_resolve:
            self.metadata.note_attempt(error)  # the name has more addresses, and they are tried at once
        elif self._is_update_due(now_ms):
            self.metadata.failed(error, now_ms)  # counts as a failed refresh, or the loop would ask without back-off
        else:
            self.metadata.note_attempt(error)
            self.metadata.request_update()  # a lost broker may mean that leaders have moved

    def _was_closed_early(self, connection: NodeConnection, error: KafkaError, now_ms: int) -> bool:
        """Whether the peer ended a connection that had just been opened, and owed an answer."""
        if not isinstance(error, DisconnectError) or isinstance(error, IdleDisconnect) or now_ms - connection.last_attempt_ms > _EARLY_MS:
            return False
        if "TLS" in error.message:  # the reason is known
            return False
        waits = connection.state == READY and self.in_flight.node_count(connection.node_id) > 0
        return waits or connection.state == CHECKING_API_VERSIONS

    def _cancel_in_flight(self, node_id: int, error: KafkaError, responses: list[ClientResponse], now_ms: int, timed_out: bool) -> None:
        for request in self.in_flight.clear_all(node_id):
            if request.kind is Kind.USER:
                responses.append(
                    ClientResponse(request, disconnected=True, timed_out=timed_out, error=error, latency_ms=now_ms - request.sent_ms)
                )
            elif request.kind is Kind.METADATA:
                self._metadata_request = None
                self.metadata.failed(error, now_ms)

    def disconnect(self, node_id: int) -> None:
        """Closes a node's connection; its requests are answered with `disconnected` by the next poll, and reconnecting waits for the
        back-off."""
        connection = self._connections.get(node_id)
        if connection is None or connection.disconnected:
            return
        self.selector.close(node_id)
        now_ms = self._clock.now_ms()
        error = DisconnectError(f"the connection to {self._name(node_id)} was closed by this client", broker=broker_of(node_id))
        self._count_end(connection, error)
        connection.lost(now_ms, error, self._reconnect_backoff, authentication=False)
        self._forget_deadlines(node_id)
        self._cancel_in_flight(node_id, error, self._aborted, now_ms, timed_out=False)

    def close(self, node_id: int | None = None) -> None:
        """Closes one node's connection and forgets its state (back-off included), or, without a node, the client.

        Requests in flight to the node are answered with `disconnected` by the next poll. When the client is closed their callbacks
        run before this returns.
        """
        if node_id is not None:
            self.disconnect(node_id)
            self._connections.pop(node_id, None)
            self._hosts.pop(node_id, None)
            self._told_down.discard(node_id)
            return
        self._active = False
        if self._login is not None:
            self._login.close()
        for one in list(self._connections):
            self.disconnect(one)
        self.selector.close()
        self.metadata.close()
        aborted, self._aborted = self._aborted, []
        self._complete(aborted)

    def wakeup(self) -> None:
        """Makes the poll in progress, or the next one, return without waiting. Any thread may call it."""
        self.selector.wakeup()

    def initiate_close(self) -> None:
        """Stops new requests; polls go on so that those in flight can end."""
        self._active = False
        self.wakeup()

    def active(self) -> bool:
        """True until `initiate_close` or `close`."""
        return self._active

    # ---- metadata

    def _maybe_update(self, now_ms: int) -> int:
        """Called by `poll` when a refresh is due: starts it as far as it can be started now; returns when to look again."""
        if not self._active:
            return NEVER_MS
        node = self.least_loaded_node(now_ms)
        if node is None and not self._any_ready and not self.metadata.snapshot.is_bootstrap:
            # Every known broker failed: the cluster may have moved; the configured addresses are the way back in (KIP-899).
            self.metadata.rebootstrap(now_ms)
            node = self.least_loaded_node(now_ms)
        if node is None:
            if self._any_ready:
                # Throttled or with full pipelines: a throttle ends at its time, a pipeline with an event.
                return self._earliest_throttle_end(now_ms)
            return min(self._connections[one.id].backoff_until_ms for one in self.metadata.snapshot.node_list)
        if self._can_send(node.id, now_ms):
            self._send_metadata_request(node.id, now_ms)
            return NEVER_MS
        if self._connection(node.id).can_connect(now_ms):
            self._initiate_connect(node, now_ms)
            connection = self._connections[node.id]
            if connection.disconnected:
                return max(connection.backoff_until_ms, self.metadata.next_update_ms)
        if self._connections[node.id].state == RESOLVING:
            others = [self._connections.get(one.id) for one in self.metadata.snapshot.node_list]
            starts_ms = (now_ms if one is None else one.backoff_until_ms for one in others if one is None or one.disconnected)
            return max(now_ms + _RESOLUTION_DELAY_MS, min(starts_ms, default=NEVER_MS))
        return NEVER_MS

    def _earliest_throttle_end(self, now_ms: int) -> int:
        ends = (one.throttled_until_ms for one in self._connections.values() if one.throttled_until_ms > now_ms)
        return min(ends, default=NEVER_MS)

    def _send_metadata_request(self, node_id: int, now_ms: int) -> None:
        names = self.metadata.begin_request(now_ms)
        may_create = self.metadata.may_create

        def build(version: int) -> Any:
            every: list[Any] | None = None if version else []  # v0 has no other way to say it
            topics = every if names is None else [protocol.MetadataRequestTopic(name=name) for name in names]
            return protocol.MetadataRequest(topics=topics, allow_auto_topic_creation=may_create or version < 4)

        # Only v4 can forbid the creation of topics, which is required where the settings say so: to older brokers (before 0.11) a client
        # that leaves it open can speak, too. v0 cannot ask for no topics: brokers that have nothing else describe all of them.
        least = 4 if names and self.metadata.forbids_topic_creation else 0 if self._speaks_dropped else 1
        api: type[Any] = protocol.MetadataRequest
        make: Callable[[int], Any] = build
        if self.metadata.asks_controllers:
            api, make, least = protocol.DescribeClusterRequest, controllers.question, controllers.FIRST_VERSION
        request = self.new_client_request(node_id, api, make, now_ms, min_version=least)
        request.kind = Kind.METADATA
        versions = self._connections[node_id].versions
        assert versions is not None  # a node that can be sent to has them
        try:
            name = protocol.APIS[api.API_KEY].name
            version = versions.negotiate(api.API_KEY, request.min_version, request.max_version, name)
        except UnsupportedVersion as error:
            controllers.explain(error, versions.ranges, self.metadata.asks_controllers)
            self.metadata.failed(error, now_ms)
            return
        self._metadata_request = request
        self._do_send(request, make(version), version, now_ms)
