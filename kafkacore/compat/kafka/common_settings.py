"""What kafka-python's settings of all three clients become.

Source: DEFAULT_CONFIG of kafka.producer.kafka, kafka.consumer.group and kafka.admin.client, kafka-python 3.0.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

from kafkacore.compat.forms import addresses as _addresses
from kafkacore.compat.forms import expiry_ms as _expiry_ms
from kafkacore.compat.forms import service_name
from kafkacore.compat.kafka import errors
from kafkacore.compat.settings import Kind, NoEffect, Ours, Refused, translated

log = logging.getLogger("kafkacore.compat")


def _buffer(size: int | None) -> int:
    return -1 if size is None else size


def _token_provider(provider: Any) -> Callable[[], tuple[str, int]] | None:
    """kafka-python's provider gives a token; the engine wants to know as well when it expires, which a JWT says."""
    if provider is None:
        return None

    def token() -> tuple[str, int]:
        found = provider.token()
        return found, _expiry_ms(found)

    return token


_SPN = Refused("tickets are for sasl_kerberos_service_name and the host that bootstrap_servers and brokers name")
_PROXY = Refused("connections through a proxy are not implemented")
_METRICS = NoEffect("the engine counts in windows of 30 s, two of them; metrics() shows them under Kafka's names")

COMMON: dict[str, Kind] = {
    "bootstrap_servers": Ours(convert=_addresses),
    "client_id": Ours(),
    "request_timeout_ms": Ours(),
    "connections_max_idle_ms": Ours(),
    "retry_backoff_ms": Ours(),
    "reconnect_backoff_ms": Ours(),
    "reconnect_backoff_max_ms": Ours(),
    "metadata_max_age_ms": Ours(),
    "receive_buffer_bytes": Ours(convert=_buffer),
    "send_buffer_bytes": Ours(convert=_buffer),
    "security_protocol": Ours(),
    "ssl_context": Ours(),
    "ssl_check_hostname": Ours(),
    "ssl_cafile": Ours(),
    "ssl_certfile": Ours(),
    "ssl_keyfile": Ours(),
    "ssl_password": Ours(),
    "ssl_crlfile": Refused(
        "load the list into an ssl.SSLContext (load_verify_locations, VERIFY_CRL_CHECK_LEAF) and pass it as ssl_context"
    ),
    "sasl_mechanism": Ours(),
    "sasl_plain_username": Ours("sasl_username"),
    "sasl_plain_password": Ours("sasl_password"),
    "sasl_oauth_token_provider": Ours("sasl_oauthbearer_token_provider", _token_provider),
    "sasl_kerberos_name": _SPN,
    "sasl_kerberos_service_name": Ours(convert=service_name),
    "sasl_kerberos_domain_name": _SPN,
    "proxy_url": _PROXY,
    "socks5_proxy": _PROXY,
    "client_dns_lookup": Refused("every address of a name is tried, which is use_all_dns_ips; the other way is not implemented"),
    "socket_options": Refused("TCP_NODELAY is set, and no other option can be"),
    "receive_message_max_bytes": NoEffect("an answer is read in pieces, and memory grows with what has arrived"),
    "selector": Refused("the engine has its own selector (epoll, kqueue, poll)"),
    "kafka_client": Refused("the engine has its own network client"),
    "metric_reporters": Refused("kafkacore.metrics exports to Prometheus and OpenTelemetry"),
    "metrics_num_samples": _METRICS,
    "metrics_sample_window_ms": _METRICS,
    "api_version": NoEffect("brokers say themselves which versions of each request they know, and the newest that both know is used"),
}
"""What the three have in common; some clients lack some."""

SSL_CIPHERS = Refused("set them on an ssl.SSLContext and pass it as ssl_context")

COMMON_DEFAULTS: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "request_timeout_ms": 30_000,
    "connections_max_idle_ms": 540_000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30_000,
    "metadata_max_age_ms": 300_000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "max_in_flight_requests_per_connection": 5,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
    "ssl_crlfile": None,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_oauth_token_provider": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "client_dns_lookup": "use_all_dns_ips",
    "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "receive_message_max_bytes": 100_000_000,
    "selector": selectors.DefaultSelector,
    "kafka_client": None,
    "metric_reporters": [],
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
    "api_version": None,
    "bootstrap_timeout_ms": 30_000,
}


def engine_settings(table: Mapping[str, Kind], defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's settings of a client.

    Raises:
        KafkaConfigurationError: one is refused, with the reason.
    """
    found = translated(table, defaults, given, errors.KafkaConfigurationError)
    protocol = str(found["security_protocol"]).upper()
    if not protocol.endswith("SSL"):
        _leave_out(found, given, "ssl_", f"security_protocol={protocol} is without TLS")
    elif found["ssl_context"] is not None:
        _leave_out(found, given, "ssl_", "ssl_context is ready made", but="ssl_context")
    if not protocol.startswith("SASL"):
        _leave_out(found, given, "sasl_", f"security_protocol={protocol} is without SASL")
    return found


def _leave_out(found: dict[str, Any], given: Mapping[str, Any], prefix: str, why: str, but: str = "") -> None:
    """kafka-python does not mind settings that have no effect; the engine refuses them, so they are left out, with a word."""
    for name in given:
        if name.startswith(prefix) and name != but and given[name] != COMMON_DEFAULTS.get(name):
            log.warning("%s has no effect: %s", name, why)
    for name in [name for name in found if name.startswith(prefix) and name != but]:
        del found[name]
