"""Where OAUTHBEARER's tokens come from, and when the next one is asked for.

Rules:

1. `TokenLogin` is an engine: it never blocks. Who gives tokens, an endpoint or a user's function, is asked on a helper thread
   (net/background.py), which exists only while it asks. All connections of a client share one login, and so one ask.
   [test_connections_share_one_ask_and_none_of_them_blocks]
2. One ask has one bound for everything, `ASK_TIMEOUT_MS`. One that failed is remembered for a back-off, so that not every connection waits
   again; the error of the last one is what connections fail with. [test_an_ask_has_one_bound_and_a_late_answer_is_still_good,
   test_a_failed_ask_is_remembered_for_a_back_off]
3. A token is refreshed before it expires, as `sasl.login.refresh.*` says. While there is no new one, the old one is used to its end.
   [test_a_token_is_refreshed_before_it_expires_without_anyone_asking, test_an_old_token_is_used_to_its_end_and_refreshes_back_off]

Source: RFC 7515 (unsecured tokens, for tests only); KIP-255, KIP-768;
org.apache.kafka.common.security.oauthbearer.internals: unsecured, expiring.ExpiringCredentialRefreshingLogin.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore.bounds import HTTP_SECONDS, TOKENS_UNANSWERED
from kafkacore.client_credentials import ClientCredentials
from kafkacore.clock import Clock
from kafkacore.config_security import RefreshWindow, SaslSettings, TokenProvider
from kafkacore.errors import AuthenticationFailedError, KafkaError, SaslAuthentication
from kafkacore.metadata import NEVER_MS
from kafkacore.net.background import call_in_background
from kafkacore.net.connection import ExponentialBackoff

log = logging.getLogger("kafkacore.net")

ASK_TIMEOUT_MS = int(HTTP_SECONDS * 1000)
"""For a whole answer: resolving the endpoint's name, connecting, every byte."""
RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS = 100, 10_000
"""Defaults of sasl.login.retry.backoff.ms and .max.ms."""


class _Ask:
    """One question for a token."""

    __slots__ = ("cancel", "deadline_ms")

    def __init__(self, deadline_ms: int, cancel: Callable[[], None] | None) -> None:
        self.deadline_ms = deadline_ms
        self.cancel = cancel


class TokenLogin:
    """The token of one client; see the rules at the top of the file.

    Args:
        provider: gives (token, expiry in milliseconds since 1970).
        clock: the time of day, which tokens expire by.
        blocks: the provider may block, and is called on a helper thread.
        refresh: when the next token is asked for.
        rng: source of the jitter.

    Attributes:
        on_answer: called on the helper thread when an answer is there: the owner is to call `advance`.
    """

    def __init__(
        self,
        provider: TokenProvider,
        clock: Clock,
        *,
        blocks: bool = True,
        refresh: RefreshWindow | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._blocks = blocks
        self._refresh = refresh or RefreshWindow()
        self._rng = rng or random.Random()
        self._backoff = ExponentialBackoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS, rng=self._rng)
        self._token = ""
        self._expiry_wall_ms = 0
        self._refresh_ms = NEVER_MS  # when to ask though the token is still valid
        self._ask: _Ask | None = None
        self._unanswered: set[_Ask] = set()
        self._answers: deque[tuple[_Ask, Any]] = deque()
        self._failures = 0  # since the last token
        self._failure = ""
        self._retry_ms = -NEVER_MS
        self.on_answer: Callable[[], None] = lambda: None

    @property
    def deadline_ms(self) -> int:
        """When `advance` has something to do without an answer."""
        return self._refresh_ms if self._ask is None else self._ask.deadline_ms

    def token(self) -> str:
        """A token that is valid now.

        Raises:
            AuthenticationFailedError: no token was asked for, or the last one has expired; `ready` gets one.
        """
        if self._clock.wall_ms() < self._expiry_wall_ms:
            return self._token
        raise AuthenticationFailedError(f"no OAuth token: {self._failure or ('it has expired' if self._token else 'none was asked for')}")

    def ready(self, now_ms: int) -> bool:
        """Whether there is a valid token; if not, one is being asked for now.

        Raises:
            AuthenticationFailedError: the last ask failed, and its back-off has not passed.
        """
        self.advance(now_ms)
        if self._has_token():
            return True
        if self._ask is None:
            if now_ms >= self._retry_ms:
                self._begin(now_ms)
            if self._ask is None:
                self.token()
                return True
        return False

    def advance(self, now_ms: int) -> None:
        """Takes answers, ends an ask whose time is up, begins a refresh that is due."""
        while self._answers:
            ask, outcome = self._answers.popleft()
            self._settle(ask, outcome, now_ms)
        ask_now = self._ask
        if ask_now is not None and now_ms >= ask_now.deadline_ms:
            self._ask = None
            self._unanswered.add(ask_now)
            if ask_now.cancel is not None:
                ask_now.cancel()
            self._failed(f"the provider gave no answer within {ASK_TIMEOUT_MS} ms", None, now_ms)
        if self._ask is None and now_ms >= self._refresh_ms:
            self._begin(now_ms)

    def close(self) -> None:
        """Ends an ask that is under way, as far as that can be done from outside."""
        for ask in (self._ask, *self._unanswered):
            if ask is not None and ask.cancel is not None:
                ask.cancel()

    def _has_token(self) -> bool:
        return self._clock.wall_ms() < self._expiry_wall_ms

    def _begin(self, now_ms: int) -> None:
        if len(self._unanswered) >= TOKENS_UNANSWERED:
            self._failed(f"{len(self._unanswered)} earlier calls of the provider have not returned", None, now_ms)
            return
        provider, cancel = self._provider, None
        if isinstance(provider, ClientCredentials):
            request = provider.request()
            provider, cancel = request, request.cancel
        ask = self._ask = _Ask(now_ms + ASK_TIMEOUT_MS, cancel)
        if self._blocks:
            call_in_background("kafkacore-oauth-token", provider, lambda outcome: self._answered(ask, outcome))
            return
        try:
            outcome: Any = provider()
        except Exception as error:
            outcome = error
        self._settle(ask, outcome, now_ms)

    def _answered(self, ask: _Ask, outcome: Any) -> None:
        """Called on the helper thread."""
        self._answers.append((ask, outcome))
        self.on_answer()

    def _settle(self, ask: _Ask, outcome: Any, now_ms: int) -> None:
        late = ask is not self._ask
        self._unanswered.discard(ask)
        if not late:
            self._ask = None
        try:
            token, expiry_wall_ms = self._checked(outcome)
        except AuthenticationFailedError as error:
            if not late:  # else it was reported when its time was up
                self._failed(error.message, error.__cause__, now_ms)
            return
        if late and expiry_wall_ms <= self._expiry_wall_ms:
            return
        self._token, self._expiry_wall_ms = token, expiry_wall_ms
        self._failures, self._failure, self._retry_ms = 0, "", -NEVER_MS
        self._refresh_ms = now_ms + self._refresh.delay_ms(expiry_wall_ms - self._clock.wall_ms(), self._rng.random())

    def _checked(self, outcome: Any) -> tuple[str, int]:
        if isinstance(outcome, KafkaError):
            raise AuthenticationFailedError(outcome.message) from outcome
        if isinstance(outcome, BaseException):
            # The text of a foreign error may repeat what was sent; its type says enough, and the cause is there for who looks.
            raise AuthenticationFailedError(f"the provider raised {type(outcome).__name__}") from outcome
        if not (isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[0], str) and isinstance(outcome[1], (int, float))):
            raise AuthenticationFailedError("the provider must return (token, expiry in milliseconds since 1970)")
        token, expiry_ms = outcome
        wall_ms = self._clock.wall_ms()
        if not wall_ms < expiry_ms < float("inf"):
            raise AuthenticationFailedError(
                f"the token has expired already: the provider says {expiry_ms}, in milliseconds since 1970 it is {wall_ms}"
            )
        return token, int(expiry_ms)

    def _failed(self, reason: str, cause: BaseException | None, now_ms: int) -> None:
        self._retry_ms = now_ms + self._backoff.backoff_ms(self._failures)
        self._failures += 1
        self._failure = reason
        self._refresh_ms = NEVER_MS
        if self._has_token():
            self._refresh_ms = self._retry_ms
            log.log(
                logging.WARNING if self._failures == 1 else logging.DEBUG,
                "no new OAuth token, the old one is used on: %s%s", reason, "" if cause is None else f" ({type(cause).__name__})",
            )  # fmt: skip


def token_login(settings: SaslSettings, clock: Clock) -> TokenLogin:
    """The login that a client's settings ask for.

    Raises:
        ConfigError: a package is missing.
    """
    blocks = settings.token_provider is not None or settings.token_endpoint is not None
    return TokenLogin(token_provider(settings, clock), clock, blocks=blocks, refresh=settings.refresh)


def token_provider(settings: SaslSettings, clock: Clock) -> TokenProvider:
    """The provider that a client's settings ask for."""
    if settings.token_provider is not None:
        return settings.token_provider
    if settings.token_endpoint is not None:
        return ClientCredentials(settings.token_endpoint, clock)
    claims = settings.claims or {}

    def unsecured() -> tuple[str, int]:
        now_ms = clock.wall_ms()
        return unsecured_token(claims, now_ms, settings.lifetime_s), now_ms + settings.lifetime_s * 1000

    return unsecured


# ---- unsecured tokens


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def unsecured_token(claims: Mapping[str, Any], now_ms: int, lifetime_s: int) -> str:
    """A token without a signature.

    Args:
        claims: what it says besides when it was issued and when it expires.
        now_ms: milliseconds since 1970.
        lifetime_s: for how long it is valid.
    """
    times = {"iat": now_ms / 1000, "exp": now_ms / 1000 + lifetime_s}
    return f"{_part({'alg': 'none'})}.{_part({**times, **claims})}."


def read_unsecured_token(token: str, now_ms: int) -> tuple[str, int]:
    """Whose an unsigned token is, and when it expires in milliseconds since 1970.

    Raises:
        SaslAuthentication: it is signed, has expired, or is no token.
    """
    parts = token.split(".")
    try:
        header, claims = (json.loads(base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)) for part in parts[:2])
        algorithm, user, expiry_ms = header["alg"], claims["sub"], int(claims["exp"] * 1000)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, binascii.Error):
        raise SaslAuthentication("the token is no unsecured JSON web token with the claims sub and exp") from None
    if len(parts) != 3 or parts[2] or algorithm != "none" or not isinstance(user, str) or not user:
        raise SaslAuthentication("the token is signed, or names no user: this broker takes unsecured tokens only")
    if expiry_ms <= now_ms:
        raise SaslAuthentication("the token has expired")
    if expiry_ms > _MAX_EXPIRY_MS or not _is_text(user):
        raise SaslAuthentication("the token's time is beyond 64 bits, or its user is no text: no answer could hold them")
    return user, expiry_ms


_MAX_EXPIRY_MS = 2**62


def _is_text(user: str) -> bool:
    """JSON may hold half a surrogate pair, of which there are no bytes."""
    try:
        user.encode()
    except UnicodeEncodeError:
        return False
    return True


