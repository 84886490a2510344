"""What aiokafka's settings of all three clients become.

Source: the constructors of AIOKafkaProducer, AIOKafkaConsumer and AIOKafkaAdminClient, aiokafka 0.14.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore import errors as ours
from kafkacore.compat.aiokafka.abc import AbstractTokenProvider
from kafkacore.compat.forms import addresses, expiry_ms, service_name
from kafkacore.compat.settings import Kind, NoEffect, Ours, Own, Refused, translated

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKEN_TIMEOUT_S = 30
"""How long a provider may take; the engine gives up by then as well."""
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

COMMON: dict[str, Kind] = {
    "loop": Own("the client belongs to it, or to the one that runs; its start must run there"),
    "bootstrap_servers": Ours(convert=addresses),
    "client_id": Ours(),
    "metadata_max_age_ms": Ours(),
    "request_timeout_ms": Ours(),
    "retry_backoff_ms": Ours(),
    "api_version": NoEffect("brokers say themselves which versions of each request they know, and the newest that both know is used"),
    "security_protocol": Ours(),
    "ssl_context": Ours(),
    "connections_max_idle_ms": Ours(convert=lambda ms: -1 if ms is None else ms),
    "sasl_mechanism": Ours(),
    "sasl_plain_username": Ours("sasl_username"),
    "sasl_plain_password": Ours("sasl_password"),
    "sasl_oauth_token_provider": Own("its coroutine runs in the loop whenever the engine wants a token"),
    "sasl_kerberos_service_name": Ours(convert=service_name),
    "sasl_kerberos_domain_name": Refused(
        "tickets are for sasl_kerberos_service_name and the host that bootstrap_servers and brokers name"
    ),
}
"""What the three have in common."""

COMMON_DEFAULTS: dict[str, Any] = {
    "loop": None,
    "bootstrap_servers": "localhost",
    "client_id": "aiokafka-kafkacore",
    "metadata_max_age_ms": 300_000,
    "request_timeout_ms": 40_000,
    "retry_backoff_ms": 100,
    "api_version": None,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "connections_max_idle_ms": 540_000,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_oauth_token_provider": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
}


def loop_of_client(given: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """The loop that a client belongs to.

    Args:
        given: the `loop` argument.

    Raises:
        RuntimeError: none was given, and none runs.
    """
    if given is not None:
        warnings.warn("the `loop` parameter is deprecated in aiokafka since 0.7.1", DeprecationWarning, stacklevel=4)
        return given
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("make the client inside a coroutine, or give it a loop: it belongs to one") from None


def engine_settings(
    table: Mapping[str, Kind],
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    config: type[Any],
    more: Mapping[str, Any] | None = None,
) -> tuple[asyncio.AbstractEventLoop, dict[str, Any]]:
    """The loop of a client, and the engine's settings.

    Args:
        table: what each setting is.
        defaults: aiokafka's.
        given: by the program, with the defaults where it named none.
        config: checks the settings: ProducerConfig, ConsumerConfig or AdminConfig.
        more: the engine's own, which follow from the others.

    Raises:
        ValueError: one is refused, with the reason.
    """
    loop = loop_of_client(given["loop"])
    protocol, mechanism = given["security_protocol"], given["sasl_mechanism"]
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"security_protocol must be one of {', '.join(SECURITY_PROTOCOLS)}, not {protocol!r}")
    if protocol.endswith("SSL") and given["ssl_context"] is None:
        raise ValueError(f"security_protocol={protocol} needs ssl_context; helpers.create_ssl_context() makes one")
    found = translated(table, defaults, given, ValueError) | dict(more or {})
    if not protocol.endswith("SSL"):
        del found["ssl_context"]
    if not protocol.startswith("SASL"):
        for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
            del found[name]
    elif mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    elif mechanism == "OAUTHBEARER":
        del found["sasl_username"], found["sasl_password"]
        found |= _tokens(given["sasl_oauth_token_provider"], loop)
    elif mechanism != "GSSAPI" and None in (found["sasl_username"], found["sasl_password"]):
        raise ValueError(f"sasl_mechanism={mechanism} needs sasl_plain_username and sasl_plain_password")
    try:
        config.from_user(found)
    except ours.ConfigError as error:
        raise ValueError(str(error)) from error
    return loop, found


def _tokens(provider: Any, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    if not isinstance(provider, AbstractTokenProvider):
        raise ValueError("sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider, derived from abc.AbstractTokenProvider")
    found: dict[str, Any] = {"sasl_oauthbearer_token_provider": _from_loop(provider, loop)}
    if extensions := provider.extensions():
        options = " ".join(f'extension_{name}="{_escaped(value)}"' for name, value in extensions.items())
        found["sasl_jaas_config"] = f"{_MODULE} required {options};"
    return found


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _from_loop(provider: AbstractTokenProvider, loop: asyncio.AbstractEventLoop) -> Callable[[], tuple[str, int]]:
    """The engine asks on a thread of its own, and wants to know when the token expires."""

    def token() -> tuple[str, int]:
        found = asyncio.run_coroutine_threadsafe(provider.token(), loop).result(TOKEN_TIMEOUT_S)
        return found, expiry_ms(found)

    return token
