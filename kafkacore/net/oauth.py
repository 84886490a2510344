"""Where OAUTHBEARER's tokens come from, and how long each is used.

A token is asked for in the thread that does the I/O and kept for 80% of its life; if there is no new one then, the old one is used to its
end.

Source: RFC 6749 section 4.4 (client credentials), RFC 7515 (unsecured tokens, for tests only); KIP-255, KIP-768;
org.apache.kafka.common.security.oauthbearer.internals.unsecured.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Mapping
from typing import Any

from kafkacore.clock import Clock
from kafkacore.config_security import SaslSettings, TokenEndpoint, TokenProvider
from kafkacore.errors import AuthenticationFailedError, ConfigError, KafkaError, SaslAuthentication

log = logging.getLogger("kafkacore.net")

KEPT_PART = 0.8
ENDPOINT_TIMEOUT_S = 10
_SHOWN_CHARACTERS = 200


class TokenSource:
    """The token to show now.

    Args:
        provider: gives (token, expiry in milliseconds since 1970).
        clock: the time.
    """

    def __init__(self, provider: TokenProvider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._token = ""
        self._renew_ms = self._expiry_ms = -1

    def token(self) -> str:
        """A token that is valid now.

        Raises:
            AuthenticationFailedError: there is none.
        """
        now_ms = self._clock.wall_ms()
        if now_ms < self._renew_ms:
            return self._token
        try:
            token, expiry_ms = self._ask(now_ms)
        except AuthenticationFailedError as error:
            if now_ms >= self._expiry_ms:
                raise
            log.warning("the old OAuth token is used on for want of a new one: %s", error)
            return self._token
        self._token, self._expiry_ms = token, expiry_ms
        self._renew_ms = now_ms + int((expiry_ms - now_ms) * KEPT_PART)
        return token

    def _ask(self, now_ms: int) -> tuple[str, int]:
        try:
            answer = self._provider()
        except KafkaError as error:
            raise AuthenticationFailedError(f"no OAuth token: {error.message}") from error
        except Exception as error:
            # The text of a foreign error may repeat what was sent; its type says enough, and the cause is there for who looks.
            raise AuthenticationFailedError(f"no OAuth token: the provider raised {type(error).__name__}") from error
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], str) and isinstance(answer[1], (int, float))):
            raise AuthenticationFailedError("no OAuth token: the provider must return (token, expiry in milliseconds since 1970)")
        token, expiry_ms = answer
        if expiry_ms <= now_ms:
            raise AuthenticationFailedError(
                f"the OAuth token has expired already: the provider says {expiry_ms}, in milliseconds since 1970 it is {now_ms}"
            )
        return token, int(expiry_ms)


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


class ClientCredentials:
    """OAuth's client-credentials grant.

    Args:
        endpoint: where, and as whom.
        clock: the time.

    Raises:
        ConfigError: httpx is not installed.
    """

    def __init__(self, endpoint: TokenEndpoint, clock: Clock) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError("sasl_oauthbearer_token_endpoint_url needs httpx: pip install 'kafkacore[security]'") from None
        self._httpx = httpx
        self._endpoint = endpoint
        self._clock = clock

    def __call__(self) -> tuple[str, int]:
        """Asks for a token.

        Raises:
            AuthenticationFailedError: the endpoint cannot be reached, or gives none.
        """
        endpoint = self._endpoint
        form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
        now_ms = self._clock.wall_ms()
        try:
            answer = self._httpx.post(
                endpoint.url, data=form, auth=(endpoint.client_id, endpoint.client_secret), timeout=ENDPOINT_TIMEOUT_S
            )
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            raise AuthenticationFailedError(f"{endpoint.url} cannot be asked: {type(error).__name__}") from error
        try:
            body = answer.json()
        except ValueError:
            body = None
        body = body if isinstance(body, dict) else {}
        token, life_s = body.get("access_token"), body.get("expires_in", 300)
        if answer.status_code != 200 or not isinstance(token, str) or not isinstance(life_s, (int, float)):
            said = str(body.get("error", "no access_token"))[:_SHOWN_CHARACTERS]
            raise AuthenticationFailedError(f"{endpoint.url} gives {endpoint.client_id} no token: HTTP {answer.status_code}, {said}")
        return token, now_ms + int(life_s * 1000)


# ---- unsecured tokens


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def unsecured_token(claims: Mapping[str, Any], now_ms: int, lifetime_s: int) -> str:
    """A token that nobody has signed.

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
        raise SaslAuthentication("the token is signed, or is for nobody: this broker takes unsecured tokens only")
    if expiry_ms <= now_ms:
        raise SaslAuthentication("the token has expired")
    return user, expiry_ms


