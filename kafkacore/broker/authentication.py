"""Who may use a broker whose listener is SASL_PLAINTEXT or SASL_SSL: the state of each connection's authentication.

    nobody --SaslHandshake--> in dialogue --SaslAuthenticate...--> a user --SaslHandshake--> in dialogue again (KIP-368)

Rules:

1. Before a connection has a user, and while it changes, only the requests of the dialogue are served, and ApiVersions before it. Any other
   one ends the connection, and so does a failed dialogue, once the client has its answer. [test_what_ends_a_connection,
   test_versions_may_be_asked_for_first]
2. The users of `sasl.jaas.config` may use PLAIN and, unlike in Kafka, SCRAM, those of the controller's image SCRAM; there they come first.
   OAUTHBEARER takes unsigned tokens, as Kafka does until it is configured to check signed ones: this is a broker for tests.
   With delegation.token.secret.key SCRAM takes delegation tokens, whose user is their owner, for as long as they are valid.
   GSSAPI takes tickets for a principal of the keytab, whose check needs no KDC and waits for nothing.
   [test_who_may_come_in_by_which_mechanism, test_unsigned_tokens_are_admitted_only_when_asked_for,
   test_a_user_is_who_the_ticket_names_for_acls_too]
3. SaslHandshake v0, after which tokens come without Kafka's frames, is refused. [test_what_ends_a_connection]

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator; KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from kafkacore.broker.cluster import ClusterImage
from kafkacore.broker.token_keys import TokenKeys, has_expired
from kafkacore.clock import Clock
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import ANONYMOUS
from kafkacore.config_security import SaslSettings
from kafkacore.errors import Code, SaslAuthentication
from kafkacore.kerberos_names import LocalNames
from kafkacore.metadata import NEVER_MS
from kafkacore.net.authentication import new_clients
from kafkacore.net.channel import ConnectionId
from kafkacore.net.kerberos import BrokerKeys
from kafkacore.net.oauth import read_unsecured_token
from kafkacore.net.sasl import (
    MIN_ITERATIONS,
    OAuthBearerServer,
    PlainServer,
    SaslClient,
    SaslServer,
    ScramCredential,
    ScramServer,
    salted_password,
    scram_credential,
)
from kafkacore.net.sasl_gssapi import GssapiServer
from kafkacore.printable import quoted
from kafkacore.protocol import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafkacore.protocol.metadata_log import DelegationTokenRecord

SALT_BYTES = 16
SCRAM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


TokenLogin = Callable[[str], tuple[ScramCredential, str] | None]
"""Gives what is kept of a delegation token's secret, and its owner."""


class Session:
    """One connection's authentication.

    Attributes:
        user: who it is; empty before that is known.
        principal: the same as ACLs name it.
        by_token: it was authenticated by a delegation token.
        failed: the dialogue has failed: the connection ends with the answer.
        failure: for the log: who said to be whom, by which mechanism, and why that was refused. No password.
    """

    def __init__(self, rules: Sessions) -> None:
        self._rules = rules
        self._machine: SaslServer | None = None
        self._mechanism = ""
        self._expires_ms = NEVER_MS
        self._token_expiry_ms: int | None = None
        self._has_delegation_token = False
        self.user = ""
        self.principal = ANONYMOUS
        self.by_token = False
        self.failed = False
        self.failure = ""

    def admits(self, api_key: int, now_ms: int) -> bool:
        """Whether a request may come now."""
        if api_key == SaslAuthenticateRequest.API_KEY:
            return self._machine is not None
        if self._machine is not None:
            return False
        if api_key == SaslHandshakeRequest.API_KEY:
            return True
        return now_ms < self._expires_ms if self.user else api_key == ApiVersionsRequest.API_KEY

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """A mechanism is chosen."""
        offered = self._rules.mechanisms
        code = Code.NONE
        if version < 1:
            code = Code.ILLEGAL_SASL_STATE
        elif request.mechanism not in offered or self._mechanism not in ("", request.mechanism):
            code = Code.UNSUPPORTED_SASL_MECHANISM  # unknown, or another one than when the session began
        self.failed = code != Code.NONE
        if self.failed:
            self.failure = f"mechanism '{quoted(request.mechanism)}', SaslHandshake v{version}: {code.name}"
        else:
            self._mechanism = request.mechanism
            self._token_expiry_ms = None
            self._has_delegation_token = False
            self._machine = self._rules.machine(request.mechanism, self._user_of_token, self._delegation_token)
        return SaslHandshakeResponse(error_code=code, mechanisms=list(offered))

    def authenticate(self, request: SaslAuthenticateRequest, now_ms: int) -> SaslAuthenticateResponse:
        """A token of the dialogue."""
        machine = self._machine
        assert machine is not None  # else the request is not admitted
        try:
            challenge = machine.step(bytes(request.auth_bytes))
            if machine.done and self.user not in ("", machine.user):
                raise SaslAuthentication(f"Cannot change principals during re-authentication from {self.user} to {machine.user}")
        except SaslAuthentication as error:
            self.failed = True
            user = f"user '{quoted(machine.claimed)}', " if machine.claimed else ""
            self.failure = f"{user}mechanism {self._mechanism}: {quoted(error.message)}"
            return SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message=error.message, auth_bytes=b"")
        lifetime_ms = 0
        if machine.done:
            self._machine = None
            self.user = machine.user
            self.principal = f"User:{machine.user}"
            self.by_token = self._has_delegation_token
            lifetime_ms = self._rules.lifetime_ms(self.user, self._token_expiry_ms)
            ends = lifetime_ms and (self._rules.max_reauth_ms or self.by_token)
            self._expires_ms = now_ms + lifetime_ms if ends else NEVER_MS
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=challenge, session_lifetime_ms=lifetime_ms)

    def _delegation_token(self, token_id: str) -> tuple[ScramCredential, str] | None:
        """The client says that it has a delegation token: what is kept of its secret, and its owner."""
        self._has_delegation_token = True
        found = self._rules.delegation_token(token_id, self._mechanism)
        if found is None:
            return None
        credential, token = found
        self._token_expiry_ms = token.expiration_timestamp
        return credential, token.owner.partition(":")[2]

    def _user_of_token(self, token: str) -> str:
        user, self._token_expiry_ms = read_unsecured_token(token, self._rules.clock.wall_ms())
        return user


class Sessions(ABC):
    """The authentications of a server's connections, and what they go by; a subclass says who is who.

    Args:
        mechanisms: that are offered.
        clock: for tokens.
        max_reauth_ms: a session's longest life; 0 without limit.
        own_user: who the cluster's brokers are; empty where they do not come in by this server's listeners.
    """

    def __init__(self, mechanisms: Sequence[str], clock: Clock, max_reauth_ms: int = 0, own_user: str = "") -> None:
        self.mechanisms = mechanisms
        self.clock = clock
        self.max_reauth_ms = max_reauth_ms
        self.own_user = own_user
        self._sessions: dict[ConnectionId, Session] = {}

    def session(self, connection: ConnectionId) -> Session:
        """The state of a connection, new if it has none."""
        session = self._sessions.get(connection)
        if session is None:
            session = self._sessions[connection] = Session(self)
        return session

    def forget(self, connection: ConnectionId) -> None:
        """The connection is closed."""
        self._sessions.pop(connection, None)

    def clear(self) -> None:
        """All connections are closed."""
        self._sessions.clear()

    @abstractmethod
    def machine(self, mechanism: str, user_of_token: Callable[[str], str], delegation_token: TokenLogin) -> SaslServer:
        """The mechanism's machine for one dialogue.

        Args:
            mechanism: that the client has chosen.
            user_of_token: checks a token and gives its user, for mechanisms that have one.
            delegation_token: looks for a delegation token, for SCRAM.
        """

    def delegation_token(self, token_id: str, mechanism: str) -> tuple[ScramCredential, DelegationTokenRecord] | None:
        """A delegation token that is valid, and what is kept of its secret; None without one."""
        return None

    def lifetime_ms(self, user: str, token_expiry_ms: int | None) -> int:
        """How long a session that begins now lasts; 0 without limit, as for the brokers' own, which do not authenticate again."""
        limits = [self.max_reauth_ms] if self.max_reauth_ms and user != self.own_user else []
        if token_expiry_ms is not None:
            limits.append(max(token_expiry_ms - self.clock.wall_ms(), 1))
        return min(limits, default=0)


class Authentication(Sessions):
    """What a broker's sessions go by.

    Args:
        config: of the broker; its listener is SASL_PLAINTEXT.
        image: its image of the cluster, for SCRAM.
        clock: for tokens.

    Raises:
        ConfigError: GSSAPI's package or keytab cannot be used.
    """

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        own_user, own_password, self._users = config.plain_users()
        super().__init__(config.sasl_mechanisms(), clock, config.connections_max_reauth_ms, own_user)
        self._image = image
        self._derived: dict[tuple[str, str], ScramCredential] = {}
        self._token_keys = TokenKeys(config.delegation_token_secret_key) if config.delegation_token_secret_key else None
        self._of_tokens: dict[tuple[str, str], ScramCredential] = {}
        self._keys = BrokerKeys(config.gssapi_keytab()) if "GSSAPI" in self.mechanisms else None
        self._local_names = LocalNames(config.sasl_kerberos_principal_to_local_rules)
        self.new_client: Callable[[], SaslClient] = new_clients(SaslSettings("PLAIN", own_user, own_password), clock)

    def machine(self, mechanism: str, user_of_token: Callable[[str], str], delegation_token: TokenLogin) -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(self._is_password)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer(user_of_token)
        if self._keys is not None and mechanism == "GSSAPI":
            return GssapiServer(self._keys.context(), self._user_of_principal)
        return ScramServer(mechanism, lambda user: self._credential(user, mechanism), token=delegation_token)

    def delegation_token(self, token_id: str, mechanism: str) -> tuple[ScramCredential, DelegationTokenRecord] | None:
        token = self._image.delegation_tokens.get(token_id)
        if self._token_keys is None or token is None or has_expired(token, self.clock.wall_ms()):
            return None
        credential = self._of_tokens.get((token_id, mechanism))
        if credential is None:
            for known in [each for each in self._of_tokens if each[0] not in self._image.delegation_tokens]:
                del self._of_tokens[known]
            password = base64.b64encode(self._token_keys.hmac_of(token_id)).decode()
            credential = self._of_tokens[token_id, mechanism] = _derived_credential(mechanism, password)
        return credential, token

    def _user_of_principal(self, principal: str) -> str:
        assert self._keys is not None  # it has checked the principal's ticket
        return self._local_names.name(principal, self._keys.default_realm)

    def _is_password(self, user: str, password: str) -> bool:
        expected = self._users.get(user)
        return hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None

    def _credential(self, user: str, mechanism: str) -> ScramCredential | None:
        kept = self._image.scram_credentials.get((user, SCRAM_NUMBERS[mechanism]))
        if kept is not None:
            return ScramCredential(bytes(kept.salt), bytes(kept.stored_key), bytes(kept.server_key), kept.iterations)
        derived = self._derived.get((user, mechanism))
        if derived is None and user in self._users:
            derived = self._derived[user, mechanism] = _derived_credential(mechanism, self._users[user])
        return derived


def _derived_credential(mechanism: str, password: str) -> ScramCredential:
    salt = secrets.token_bytes(SALT_BYTES)
    return scram_credential(mechanism, salted_password(mechanism, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS)
