"""Tokens by OAuth's client-credentials grant, for brokers (net/oauth.py) and for schema registries.

Source: RFC 6749 section 4.4; KIP-768.
"""

from __future__ import annotations

import json

from kafkacore.bounds import HTTP_SECONDS, TOKEN_ANSWER_BYTES
from kafkacore.clock import Clock
from kafkacore.config_security import TokenEndpoint
from kafkacore.errors import AuthenticationFailedError, ConfigError
from kafkacore.http_client import HttpFailed, HttpQuestion, HttpWay, answer_in_time, check_proxy
from kafkacore.printable import quoted


class ClientCredentials:
    """OAuth's client-credentials grant.

    Args:
        endpoint: where, and as whom.
        clock: the time.

    Raises:
        ConfigError: httpx is not installed, or a setting cannot be used.
    """

    def __init__(self, endpoint: TokenEndpoint, clock: Clock) -> None:
        try:
            check_proxy(endpoint.proxy, "sasl_oauthbearer_proxy_url")
        except ImportError:
            raise ConfigError("sasl_oauthbearer_token_endpoint_url needs httpx: pip install httpx") from None
        self._endpoint = endpoint
        self._clock = clock
        HttpWay(endpoint.ca).context()  # a file that is missing is an error of the settings

    def request(self) -> TokenRequest:
        """One question, to be called on any thread."""
        return TokenRequest(self._endpoint, self._clock)

    def __call__(self) -> tuple[str, int]:
        """Asks for a token.

        Raises:
            AuthenticationFailedError: the endpoint cannot be reached, or gives none.
        """
        return self.request()()

    def in_time(self) -> tuple[str, int]:
        """Asks for a token, and waits no longer than HTTP_SECONDS, whatever holds the question up."""
        return self.request()(waits=True)


class TokenRequest:
    """One question to a token endpoint. `cancel` ends it from another thread."""

    def __init__(self, endpoint: TokenEndpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._question = HttpQuestion(
            endpoint.url,
            HttpWay(endpoint.ca, proxy=endpoint.proxy, seconds=HTTP_SECONDS, max_bytes=TOKEN_ANSWER_BYTES),
            form={"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {}),
            auth=(endpoint.client_id, endpoint.client_secret),
            clock=lambda: clock.now_ms() / 1000,
        )

    def cancel(self) -> None:
        """Ends the question: its call raises soon, unless a name is being resolved for it."""
        self._question.cancel()

    def __call__(self, waits: bool = False) -> tuple[str, int]:
        """Asks.

        Args:
            waits: on a thread of its own, so that nothing holds the caller longer than HTTP_SECONDS.

        Returns:
            The token, and when it expires, in milliseconds since 1970.

        Raises:
            AuthenticationFailedError: the endpoint cannot be reached, or gives none.
        """
        endpoint = self._endpoint
        wall_ms = self._clock.wall_ms()
        try:
            answer = answer_in_time(self._question, HTTP_SECONDS) if waits else self._question()
        except HttpFailed as error:
            raise AuthenticationFailedError(f"{endpoint.shown} {error}") from error
        except ConfigError as error:
            raise AuthenticationFailedError(f"{endpoint.shown} cannot be asked: {error.message}") from error
        try:
            body = json.loads(answer.body)
        except (ValueError, RecursionError):
            body = None
        body = body if isinstance(body, dict) else {}
        token, life_s = body.get("access_token"), body.get("expires_in", 300)
        if answer.status != 200 or not isinstance(token, str) or not isinstance(life_s, (int, float)) or not 0 < life_s < 1e12:
            said = quoted(str(body.get("error", "no access_token")))
            raise AuthenticationFailedError(f"{endpoint.shown} gives {endpoint.client_id} no token: HTTP {answer.status}, {said}")
        return token, wall_ms + int(life_s * 1000)
