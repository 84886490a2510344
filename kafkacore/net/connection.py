"""What one Kafka connection needs without doing any I/O: correlation ids, in-flight requests, version negotiation, back-off, state.

Rules:

1. Responses come in the order of their requests. The oldest request in flight is the one a response must name. [test_oldest_and_newest,
   test_a_wrong_correlation_id_fails_the_connection]
2. Nothing here reads a clock: every deadline is computed from the `now_ms` handed in. [test_engines_read_no_clock]

Frames are cut in frames.py.

Source: Kafka's InFlightRequests, ClusterConnectionStates, NodeApiVersions, ExponentialBackoff.
"""

from __future__ import annotations

import random

from kafkacore._codec import ConnectionCore, CorrelationIds, InFlightRequests, VersionsCore
from kafkacore.errors import KafkaError, UnsupportedVersion
from kafkacore.metadata import NEVER_MS
from kafkacore.net.channel import Dialogue
from kafkacore.net.transport import Address

__all__ = [
    "NEVER_MS",
    "CorrelationIds",
    "ExponentialBackoff",
    "InFlightRequests",
    "NodeApiVersions",
    "NodeConnection",
    "doubled_ms",
]


class ExponentialBackoff:
    """Times to wait after 0, 1, 2 ... failures: initial x multiplier^n, with jitter, bounded.

    Args:
        initial_ms: Time after the first failure.
        max_ms: Upper bound of the result, jitter included.
        multiplier: Growth per failure.
        jitter: Each term is multiplied by a random factor in [1 - jitter, 1 + jitter].
        rng: Source of the jitter.

    Source: Kafka's ExponentialBackoff, KIP-144, KIP-580, KIP-601.
    """

    __slots__ = ("_exponent_max", "_initial", "_jitter", "_max", "_multiplier", "_rng")

    def __init__(
        self, initial_ms: int, max_ms: int, *, multiplier: float = 2.0, jitter: float = 0.2, rng: random.Random | None = None
    ) -> None:
        self._initial = min(initial_ms, max_ms)
        self._max = max_ms
        self._multiplier = multiplier
        self._jitter = jitter
        self._rng = rng or random.Random()
        # The power stops growing where the bound is reached, so attempts without end cannot overflow.
        exponent = 0
        term = float(self._initial)
        while 0 < term < max_ms and multiplier > 1:
            term *= multiplier
            exponent += 1
        self._exponent_max = exponent

    def backoff_ms(self, attempts: int) -> int:
        """Returns the time to wait after `attempts` earlier failures (0 gives the initial time), in milliseconds."""
        term = self._initial * self._multiplier ** min(attempts, self._exponent_max)
        if self._jitter:
            term *= self._rng.uniform(1 - self._jitter, 1 + self._jitter)
        return int(min(term, self._max))


def doubled_ms(initial_ms: int, max_ms: int, failures: int) -> int:
    """The time to wait after so many earlier failures, which doubles with each of them up to a bound, without jitter."""
    return min(max_ms, initial_ms << min(failures, 20))


class NodeApiVersions(VersionsCore):
    """What one broker said it speaks.

    Args:
        ranges: {api key: (min version, max version)}.
        finalized_features: {feature: level}; e.g. `transaction.version`.
        broker: Node id for error messages.
    """

    __slots__ = ("broker", "finalized_features", "ranges")

    def __init__(
        self, ranges: dict[int, tuple[int, int]], finalized_features: dict[str, int] | None = None, broker: int | None = None
    ) -> None:
        self.ranges = ranges
        self.finalized_features = finalized_features or {}
        self.broker = broker
        self._chosen = {}

    def negotiate(self, api_key: int, min_version: int, max_version: int, name: str = "") -> int:
        """Returns the highest version both sides speak.

        Raises:
            UnsupportedVersion: No version is common, or the broker does not know the API.
        """
        wanted = (api_key, min_version, max_version)
        chosen = self._chosen.get(wanted)
        if chosen is not None:
            return chosen
        have = self.ranges.get(api_key)
        title = name or f"API {api_key}"
        if have is None:
            raise UnsupportedVersion(f"the broker does not support {title}", broker=self.broker, api=title)
        chosen = min(max_version, have[1])
        if chosen < max(min_version, have[0]):
            raise UnsupportedVersion(
                f"no common version of {title}: broker has {have[0]} to {have[1]}, this request needs {min_version} to {max_version}",
                broker=self.broker,
                api=title,
            )
        self._chosen[wanted] = chosen
        return chosen


# States of a node's connection. The only legal moves are in NodeConnection's methods.
DISCONNECTED = 0
CONNECTING = 1
CHECKING_API_VERSIONS = 2
READY = 3
AUTHENTICATION_FAILED = 4
REAUTHENTICATING = 5  # only the requests of an authentication are sent (KIP-368); answers to earlier ones still come
AWAITING_TOKEN = 6  # an OAuth token or a Kerberos ticket is being asked for; there is no connection yet
RESOLVING = 7  # the host's name is being resolved; there is no connection yet

_STATE_NAMES = (
    "DISCONNECTED", "CONNECTING", "CHECKING_API_VERSIONS", "READY", "AUTHENTICATION_FAILED", "REAUTHENTICATING", "AWAITING_TOKEN",
    "RESOLVING",
)  # fmt: skip


class NodeConnection(ConnectionCore):
    """State of the connection to one node: attempts, back-off, throttling, addresses.

    Source: Kafka's ClusterConnectionStates.NodeConnectionState; KIP-144 (reconnect back-off), KIP-601 (set-up time-out).
    """

    __slots__ = (
        "addresses", "attempts", "authentication", "authentication_error", "backoff_until_ms", "closed_early", "failed_attempts",
        "failed_connect_attempts", "last_attempt_ms", "next_address", "node_id", "reauthenticate_ms", "setup_deadline_ms",
    )  # fmt: skip

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.state = DISCONNECTED
        self.addresses: list[Address] = []
        self.next_address = 0
        self.failed_attempts = 0  # drives the reconnect back-off
        self.failed_connect_attempts = 0  # drives the set-up time-out
        self.closed_early = 0  # how often in a row the peer closed a connection that had just been opened
        self.last_attempt_ms = -NEVER_MS
        self.backoff_until_ms = -NEVER_MS
        self.setup_deadline_ms = NEVER_MS
        self.reauthenticate_ms = NEVER_MS  # when the next authentication on the same connection begins
        self.authentication: Dialogue | None = None  # the one under way
        self.throttled_until_ms = 0
        self.authentication_error: KafkaError | None = None
        self.versions = None
        self.attempts: list[KafkaError] = []  # why the attempts since the last success failed, newest last, bounded

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return _STATE_NAMES[self.state]

    @property
    def disconnected(self) -> bool:
        """True when an attempt to connect would be a new one."""
        return self.state in (DISCONNECTED, AUTHENTICATION_FAILED)

    @property
    def is_up(self) -> bool:
        """True while there is a connection whose stream is open."""
        return self.state in (CHECKING_API_VERSIONS, READY, REAUTHENTICATING)

    def can_connect(self, now_ms: int) -> bool:
        """True when there is no connection and the back-off has passed."""
        return (self.state == DISCONNECTED or self.state == AUTHENTICATION_FAILED) and now_ms >= self.backoff_until_ms

    def next_connect_address(self) -> Address:
        """Returns the address to try, and moves on so that the next attempt takes the next one."""
        address = self.addresses[self.next_address]
        self.next_address += 1
        return address

    @property
    def needs_resolve(self) -> bool:
        """True when every known address has had its turn."""
        return self.next_address >= len(self.addresses)

    def awaiting_token(self, now_ms: int) -> None:
        """An attempt begins with the wait for a token or a ticket, which has a bound of its own."""
        self.state = AWAITING_TOKEN
        self.last_attempt_ms = now_ms
        self.setup_deadline_ms = NEVER_MS
        self.authentication_error = None

    def resolving(self, now_ms: int, setup_timeout_ms: int) -> None:
        """An attempt begins, or goes on, with the host's name being resolved."""
        self.connecting(now_ms, setup_timeout_ms)
        self.state = RESOLVING

    def connecting(self, now_ms: int, setup_timeout_ms: int) -> None:
        """An attempt begins, or goes on, with a connection being made."""
        self.state = CONNECTING
        self.last_attempt_ms = now_ms
        self.setup_deadline_ms = now_ms + setup_timeout_ms
        self.authentication_error = None

    def checking_api_versions(self) -> None:
        """The stream is up; what the broker speaks is asked next."""
        self.state = CHECKING_API_VERSIONS
        self.failed_connect_attempts = 0

    def ready(self, versions: NodeApiVersions) -> None:
        """The opening has ended."""
        self.state = READY
        self.versions = versions
        self.failed_attempts = 0
        self.setup_deadline_ms = NEVER_MS
        self.next_address = 0
        self.addresses = []  # a later reconnect asks the name again: brokers move
        self.attempts.clear()

    def lost(self, now_ms: int, error: KafkaError, backoff: ExponentialBackoff, *, authentication: bool) -> None:
        """The connection ended, or the attempt to make one failed."""
        was_connecting = self.state == CONNECTING
        self.state = AUTHENTICATION_FAILED if authentication else DISCONNECTED
        self.authentication_error = error if authentication else None
        if was_connecting and not authentication and not self.needs_resolve:
            self.backoff_until_ms = now_ms  # the name has another address, and that one has not failed yet
        else:
            self.backoff_until_ms = now_ms + backoff.backoff_ms(self.failed_attempts)
            self.failed_attempts += 1
        if was_connecting:
            self.failed_connect_attempts += 1
        self.setup_deadline_ms = self.reauthenticate_ms = NEVER_MS
        self.authentication = None
        self.throttled_until_ms = 0
        self.versions = None
        self.last_attempt_ms = now_ms
        self.attempts.append(error)
        if len(self.attempts) > 8:  # enough to tell a story, and bounded
            del self.attempts[0]
