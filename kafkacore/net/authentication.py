"""SASL on a connection, as a client: what is asked of the broker before anything else, and what its answers mean.

    ApiVersions v0 -> SaslHandshake v1 -> SaslAuthenticate v0-2, as often as the mechanism has something to say

Rules:

1. `SaslOpening` knows requests and answers, not how they travel. `SaslAuthenticator` carries them before the channel is ready;
   `NetworkClient` carries them again, between other requests, when the broker has bounded the session's life (KIP-368).
   [test_to_its_end_over_any_pieces, test_a_session_is_renewed_between_requests]
2. A refusal is an `AuthenticationFailedError` that names mechanism, user and broker. It is not retried by itself.
   [test_refusals_name_mechanism_user_and_broker, test_a_wrong_password_is_told_and_not_retried_at_once]
3. No byte behind an answer is read: what follows belongs to the channel. [test_bytes_behind_the_last_answer_stay_for_the_channel]

Source: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import struct
from collections.abc import Callable
from typing import Any

from kafkacore import errors
from kafkacore.bounds import SASL_ANSWER_BYTES
from kafkacore.clock import Clock
from kafkacore.config_security import SaslSettings
from kafkacore.errors import AuthenticationFailedError, Code, ConfigError, CorruptDataError, KafkaError
from kafkacore.net.channel import ConnectionId
from kafkacore.net.kerberos import KerberosLogin
from kafkacore.net.oauth import TokenLogin, token_login
from kafkacore.net.sasl import OAuthBearerClient, PlainClient, SaslClient, ScramClient, salted_password
from kafkacore.net.sasl_gssapi import GssapiClient
from kafkacore.net.transport import PlaintextTransport, Transport
from kafkacore.printable import quoted
from kafkacore.protocol import (
    APIS,
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    decode_response_header,
    encode_request,
)
from kafkacore.protocol.schema import Request

HANDSHAKE_VERSION = 1
_SIZE = struct.Struct(">i")

log = logging.getLogger("kafkacore.net")


class SaslOpening:
    """The dialogue of one authentication.

    Args:
        client: the mechanism's machine, fresh.
        peer: the broker's name for messages.
        authenticate_version: of SaslAuthenticate, if it is known; else the broker is asked.

    Attributes:
        session_lifetime_ms: for how long the broker takes requests without another authentication; 0 without limit. Known at the end.
        authenticate_version: what both sides speak.
    """

    def __init__(self, client: SaslClient, peer: str, authenticate_version: int | None = None) -> None:
        self._client = client
        self._peer = peer
        self.authenticate_version = authenticate_version
        self.session_lifetime_ms = 0
        self._asked: type[Request] | None = None

    def next(self, answer: Any = None) -> tuple[Request, int] | None:
        """What to send, and in which version.

        Args:
            answer: to the request before, None at first.

        Returns:
            None when the broker has let this client in.

        Raises:
            AuthenticationFailedError: it has not, or has not proved who it is.
        """
        try:
            if self._asked is SaslAuthenticateRequest:
                return self._token(answer)
            if self._asked is SaslHandshakeRequest:
                return self._shaken(answer)
            if self._asked is ApiVersionsRequest:
                self._versions(answer)
            elif self.authenticate_version is None:
                return self._send(ApiVersionsRequest(), 0)
            return self._send(SaslHandshakeRequest(mechanism=self._client.mechanism), HANDSHAKE_VERSION)
        except AuthenticationFailedError as error:
            raise self._told(error) from error

    def _send(self, request: Request, version: int) -> tuple[Request, int]:
        self._asked = type(request)
        return request, version

    def _versions(self, answer: Any) -> None:
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        none = (0, -1)
        low, high = ranges.get(SaslHandshakeRequest.API_KEY, none)
        first, last = ranges.get(SaslAuthenticateRequest.API_KEY, none)
        self.authenticate_version = min(last, SaslAuthenticateRequest.MAX_VERSION)
        if not low <= HANDSHAKE_VERSION <= high or self.authenticate_version < first:
            raise errors.UnsupportedSaslMechanism("the broker does not speak SaslAuthenticate: it is older than Kafka 1.0, or no broker")

    def _shaken(self, answer: Any) -> tuple[Request, int] | None:
        if answer.error_code == Code.UNSUPPORTED_SASL_MECHANISM:
            raise errors.UnsupportedSaslMechanism(f"the broker offers {quoted(', '.join(answer.mechanisms)) or 'nothing'}")
        if answer.error_code == Code.ILLEGAL_SASL_STATE:
            raise errors.IllegalSaslState("this listener of the broker does not use SASL: look at security_protocol, or at the port")
        errors.raise_for(answer.error_code)
        return self._authenticate(self._client.step(None))

    def _token(self, answer: Any) -> tuple[Request, int] | None:
        if answer.error_code:
            reason = quoted(answer.error_message or "invalid credentials")
            refusal = getattr(self._client, "refusal", None)
            if isinstance(self._client, GssapiClient):
                self._client.on_refusal()
            raise errors.SaslAuthentication(f"{reason}; {refusal}" if refusal else reason)
        self.session_lifetime_ms = answer.session_lifetime_ms
        token = self._client.step(bytes(answer.auth_bytes))
        if self._client.done:
            return None
        return self._authenticate(token)

    def _authenticate(self, token: bytes | None) -> tuple[Request, int]:
        assert self.authenticate_version is not None  # the versions come first
        return self._send(SaslAuthenticateRequest(auth_bytes=token or b""), self.authenticate_version)

    def _told(self, error: AuthenticationFailedError) -> AuthenticationFailedError:
        who = f"user {self._client.user!r}" if self._client.user else "this client"
        return type(error)(f"{self._client.mechanism} authentication of {who} by {self._peer} failed: {error.message}")


class SaslAuthenticator:
    """Carries a `SaslOpening` over a transport before its channel is ready (the channel's Authenticator).

    Args:
        new_client: makes the mechanism's machine.
        client_id: for the requests' headers.
        opens: called with the transport before anything is sent.
    """

    def __init__(
        self, new_client: Callable[[], SaslClient], client_id: str, opens: Callable[[Transport], None] = lambda _transport: None
    ) -> None:
        self._new_client = new_client
        self._opens = opens
        self._client_id = client_id
        self._opening: SaslOpening | None = None
        self._peer = ""
        self._asked: tuple[int, int] = (0, 0)
        self._correlation_id = -1
        self._out = memoryview(b"")
        self._in = bytearray(_SIZE.size)
        self._filled = 0

    @property
    def session_lifetime_ms(self) -> int:
        """For how long the broker takes requests without another authentication; 0 without limit."""
        return 0 if self._opening is None else self._opening.session_lifetime_ms

    def again(self) -> SaslOpening:
        """The dialogue of another authentication on the same connection.

        Raises:
            AuthenticationFailedError: there is no token for it.
        """
        return SaslOpening(self._new_client(), self._peer, None if self._opening is None else self._opening.authenticate_version)

    @property
    def wants_write(self) -> bool:
        """True while it waits for the transport to take bytes."""
        return bool(self._out.nbytes)

    def step(self, transport: Transport) -> bool:
        """Goes on as far as it can without waiting; True when the broker has let this client in.

        Raises:
            AuthenticationFailedError: it has not.
            CorruptDataError: it does not speak Kafka's protocol.
            OSError: the stream broke.
        """
        if self._opening is None:
            self._opens(transport)
            self._peer = transport.peer or "the broker"
            self._opening = SaslOpening(self._new_client(), self._peer)
            self._ask(self._opening.next())
        while self._flushed(transport):
            answer = self._read(transport)
            if answer is None:
                return False
            following = self._opening.next(self._decode(answer))
            if following is None:
                return True
            self._ask(following)
        return False

    def _ask(self, following: tuple[Request, int] | None) -> None:
        assert following is not None  # only an answer can end the dialogue
        request, version = following
        self._asked = request.API_KEY, version
        self._correlation_id += 1
        self._out = memoryview(b"".join(bytes(part) for part in encode_request(request, version, self._correlation_id, self._client_id)))

    def _flushed(self, transport: Transport) -> bool:
        while self._out.nbytes:
            taken = transport.write([self._out], 0)
            if taken < 0:
                return False
            self._out = self._out[taken:]
        return transport.flush()

    def _read(self, transport: Transport) -> bytearray | None:
        """The next answer without its size; None while it is not whole."""
        while True:
            if self._filled < len(self._in):
                got = transport.read_into(self._in, self._filled, len(self._in) - self._filled)
                if got < 0:
                    return None
                if got == 0:
                    raise ConnectionResetError(0, f"{self._peer} closed it during SASL authentication")
                self._filled += got
                continue
            if self._filled == _SIZE.size:
                [size] = _SIZE.unpack_from(self._in)
                if not _SIZE.size <= size <= SASL_ANSWER_BYTES:
                    raise CorruptDataError(f"{self._peer} answers SASL with a frame of {size} bytes: it does not speak Kafka's protocol")
                self._in.extend(bytes(size))
                continue
            answer, self._in, self._filled = self._in[_SIZE.size :], bytearray(_SIZE.size), 0
            return answer

    def _decode(self, answer: bytearray) -> Any:
        key, version = self._asked
        correlation_id, start = decode_response_header(key, version, answer)
        if correlation_id != self._correlation_id:
            raise CorruptDataError(f"{self._peer} answered request {correlation_id} instead of {self._correlation_id}")
        return APIS[key].response.decode(version, answer, start)


def new_clients(settings: SaslSettings, clock: Clock, login: TokenLogin | None = None) -> Callable[[], SaslClient]:
    """What makes the mechanism's machine for each authentication.

    Args:
        settings: mechanism and credentials; not GSSAPI, where each connection has a ticket of its own.
        clock: the time.
        login: OAUTHBEARER: has the token.

    Raises:
        ConfigError: name or password cannot be used, or a package is missing.
    """
    if settings.mechanism == "OAUTHBEARER":
        tokens = login or token_login(settings, clock)
        OAuthBearerClient("checked", extensions=settings.extensions)

        def bearer() -> SaslClient:
            try:
                return OAuthBearerClient(tokens.token(), settings.username, settings.extensions)
            except KafkaError as error:
                raise no_token(error) from error

        return bearer
    if settings.mechanism == "PLAIN":
        plain = functools.partial(PlainClient, settings.username, settings.password)
        plain()  # checks them
        return plain
    # Brokers of a cluster share a user's salt: hashing, which takes milliseconds of the I/O thread, is done for the first connection only.
    salted = functools.lru_cache(functools.partial(salted_password, settings.mechanism, settings.password))
    given, is_token = (settings.mechanism, settings.username, settings.password), settings.is_delegation_token
    scram = functools.partial(ScramClient, *given, salted=salted, is_delegation_token=is_token)
    scram()
    return scram


def no_token(error: KafkaError) -> AuthenticationFailedError:
    """What a connection fails with for want of a token."""
    return AuthenticationFailedError(f"OAUTHBEARER authentication failed: {error.message}")


class Authenticators:
    """Makes the authenticator of each connection of one client.

    Attributes:
        login: has the token or the tickets that they need; None for other mechanisms. `NetworkClient` connects only when this is `ready`.
    """

    def __init__(self, settings: SaslSettings, client_id: str, clock: Clock) -> None:
        self.login: TokenLogin | KerberosLogin | None = None
        if settings.kerberos is not None:
            self.login = KerberosLogin(settings.kerberos)
        else:
            self.login = tokens = token_login(settings, clock) if settings.mechanism == "OAUTHBEARER" else None
            self._new_client = new_clients(settings, clock, tokens)
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._reveals = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(settings.mechanism)

    def use(self, username: str, password: str) -> None:
        """Connections from now on authenticate as this user; those that are open keep theirs, since brokers let no connection change it.

        Raises:
            ConfigError: name or password cannot be used, or the mechanism has neither.
        """
        if self.login is not None:
            what = "tickets" if isinstance(self.login, KerberosLogin) else "tokens"
            raise ConfigError(f"{self._settings.mechanism} has {what} in place of a name and a password")
        settings = dataclasses.replace(self._settings, username=username, password=password)
        self._new_client = new_clients(settings, self._clock)
        self._settings = settings

    def __call__(self, id: ConnectionId) -> SaslAuthenticator:
        new_client = functools.partial(self.login.client, id) if isinstance(self.login, KerberosLogin) else self._new_client
        return SaslAuthenticator(new_client, self._client_id, self._opens)

    def ready(self, now_ms: int, id: ConnectionId, host: str) -> bool:
        """Whether a connection may authenticate now; False while its token or ticket is being asked for.

        Args:
            now_ms: the time.
            id: of the connection.
            host: of the broker, as the client names it: GSSAPI's tickets are for it.

        Raises:
            AuthenticationFailedError: it is refused; or the last ask failed, and it is too early for another one.
            NetworkError: who gives it cannot be reached.
        """
        if isinstance(self.login, KerberosLogin):
            return self.login.ready(now_ms, id, host)
        try:
            return self.login is None or self.login.ready(now_ms)
        except AuthenticationFailedError as error:
            raise no_token(error) from error

    def _opens(self, transport: Transport) -> None:
        """Warns, once for a client, of a secret that goes out readably."""
        if self._reveals is None or not isinstance(transport, PlaintextTransport) or transport.is_local:
            return
        log.warning(
            "the %s is sent to %s without encryption, and who can read it on the way can use it: security_protocol=SASL_SSL, or SCRAM",
            self._reveals, transport.peer,
        )  # fmt: skip
        self._reveals = None


def authenticators(settings: SaslSettings | None, client_id: str, clock: Clock) -> Authenticators | None:
    """For a selector: what makes the authenticator of each connection; None without SASL.

    Raises:
        ConfigError: see `new_clients`.
    """
    return None if settings is None else Authenticators(settings, client_id, clock)
