"""Who may speak to a controller's port: brokers that have the cluster's secret.

    ControllerServer, which makes the secret --ControllerAddress, over an inherited socket--> a broker's process
    broker --SaslHandshake, SaslAuthenticate: SCRAM by the secret--> ControllerServer --everything else-->

Rules:

1. The secret is random and lives as long as its `ControllerServer`. It is in no file, environment, command line, log line or `repr`.
   [test_secrets_differ_and_are_not_shown, test_processes_get_the_secret_where_nobody_else_reads_it_and_come_back_with_it]
2. SCRAM proves both sides: a process that has taken the port learns nothing it could use, and no broker believes it.
   [test_a_broker_does_not_believe_a_controller_without_the_secret, test_hostile_last_challenges]
3. Who has the secret is a broker, and may say which. [test_who_has_the_secret_is_served,
   test_a_wrong_secret_or_user_is_refused_in_one_line]
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import NamedTuple

from kafkacore.broker.authentication import SALT_BYTES, Sessions, TokenLogin
from kafkacore.clock import Clock
from kafkacore.net.sasl import (
    MIN_ITERATIONS,
    SaslClient,
    SaslServer,
    ScramClient,
    ScramCredential,
    ScramServer,
    salted_password,
    scram_credential,
)

MECHANISM = "SCRAM-SHA-256"
BROKERS = "broker"
"""The user that all brokers are."""
SECRET_BYTES = 32


class ControllerAddress(NamedTuple):
    """Where a controller behind a port listens, for which cluster, and what opens it."""

    host: str
    port: int
    cluster_id: str
    secret: str

    def __repr__(self) -> str:
        return f"ControllerAddress({self.host!r}, {self.port}, {self.cluster_id!r})"

    def logins(self) -> Callable[[], SaslClient]:
        """What makes the client's side of each authentication. All share the hashing, which takes milliseconds."""
        salted = functools.lru_cache(functools.partial(salted_password, MECHANISM, self.secret))
        return lambda: ScramClient(MECHANISM, BROKERS, self.secret, salted=salted)


def new_secret() -> str:
    """A secret that cannot be guessed."""
    return secrets.token_urlsafe(SECRET_BYTES)


class ControllerSessions(Sessions):
    """The authentications of a controller's connections."""

    def __init__(self, secret: str, clock: Clock) -> None:
        """Args:
        secret: what brokers have to know.
        clock: the time.
        """
        super().__init__((MECHANISM,), clock)
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(MECHANISM, secret, salt, MIN_ITERATIONS)
        self._credential: ScramCredential = scram_credential(MECHANISM, salted, salt, MIN_ITERATIONS)

    def machine(self, mechanism: str, user_of_token: Callable[[str], str], delegation_token: TokenLogin) -> SaslServer:
        return ScramServer(mechanism, lambda user: self._credential if user == BROKERS else None)
