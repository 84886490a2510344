"""Names that are no settings here: what may be meant by them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

OF_JAVA = {"interceptor_classes": "interceptors", "partitioner_class": "partitioner"}
"""Kafka's names of settings that are more than classes here."""

ELSEWHERE = {
    "api_version_auto_timeout_ms": "request_timeout_ms",
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "bootstrap_timeout_ms": "default_api_timeout_ms",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "oauth_cb": "sasl_oauthbearer_token_provider",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "request_required_acks": "acks",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauth_token_provider": "sasl_oauthbearer_token_provider",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "socket_timeout_ms": "request_timeout_ms",
    "ssl_ca": "ssl_truststore_certificates",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate": "ssl_keystore_certificate_chain",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_cipher_suites": "ssl_context",
    "ssl_ciphers": "ssl_context",
    "ssl_crl_location": "ssl_context",
    "ssl_crlfile": "ssl_context",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "ssl_key": "ssl_keystore_key",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "ssl_key_pem": "ssl_keystore_key",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
}
"""Names that other clients have for a setting."""

_LOGGING = "logging.getLogger('kafkacore').setLevel(...) says how much is logged"
_DELIVERY = "give on_delivery to send(), or look at the future that it returns"
_VERSIONS = "leave it out, each broker is asked for its versions"

BY_PROVIDER = (
    "With sasl.mechanism=OAUTHBEARER a Python function gives the tokens: sasl.oauthbearer.token.provider=module:function;"
    " docs/security.md has those of MSK and Google Cloud"
)
CALLS = {
    "api_version": _VERSIONS,
    "api_version_request": _VERSIONS,
    "broker_version_fallback": _VERSIONS,
    "consumer_timeout_ms": "poll(timeout=...) says how long to wait for records, in seconds",
    "debug": _LOGGING,
    "default_offset_commit_callback": "give a callback to commit_async()",
    "default_topic_config": "give its settings beside the others, they are the client's here",
    "delivery_report_only_error": _DELIVERY,
    "dr_cb": _DELIVERY,
    "enable_auto_offset_store": "with enable_auto_commit=False commit(offsets) commits what the program says",
    "enable_partition_eof": "compare position() with end_offsets(), or read up to an offset with read_range()",
    "enable_ssl_certificate_verification": "certificates are always verified, name the authority that signed them in ssl_cafile",
    "error_cb": "errors are raised by calls, and health() says whether brokers are reachable",
    "log_level": _LOGGING,
    "logger": _LOGGING,
    "loop": "leave it out, the clients of kafkacore.aio belong to the loop that runs",
    "metric_reporters": "kafkacore.metrics exports to Prometheus and OpenTelemetry",
    "on_commit": "give a callback to commit_async(), or an interceptor with on_commit",
    "on_delivery": _DELIVERY,
    "sasl_client_callback_handler_class": f"it names Java code, which cannot run here. {BY_PROVIDER}",
    "rebalance_cb": "subscribe(topics, listener=...) takes a RebalanceListener",
    "socket_nagle_disable": "leave it out, it is always disabled",
    "socket_options": "send_buffer_bytes and receive_buffer_bytes are settings, TCP_NODELAY is always set",
    "statistics_interval_ms": "ask metrics(), at any time",
    "stats_cb": "ask metrics(), at any time",
}
"""What other clients have a setting for, and these a call, or nothing."""


OF_LIBRDKAFKA = frozenset(
    ("batch_num_messages", "default_topic_config", "delivery_report_only_error", "message_max_bytes", "message_send_max_retries",
     "message_timeout_ms", "metadata_broker_list", "queue_buffering_max_kbytes", "queue_buffering_max_messages", "queue_buffering_max_ms",
     "request_required_acks", "socket_timeout_ms", "statistics_interval_ms")
)  # fmt: skip
"""Names that librdkafka alone has: a producer with them has its default partitioner, too."""

_KEYS = "; partitioner='consistent_random' keeps keys on the partitions that librdkafka has sent them to"

RESETS = {"beginning": "earliest", "smallest": "earliest", "end": "latest", "largest": "latest", "error": "none"}
"""Values of auto_offset_reset that other clients have."""


def hint(name: str, known: Collection[str], others: Mapping[str, Collection[str]], *, dotted: bool) -> str:
    """What may be meant by a name that is not known: a setting or a call under another client's name, a setting of another kind of client,
    else the nearest name.

    Args:
        name: what was given, with underscores.
        known: the names of all settings.
        others: the names of other kinds of clients, by what these are called.
        dotted: how the user writes names.

    Returns:
        The end of a sentence; "" where nothing is near.
    """
    keys = _KEYS if name in OF_LIBRDKAFKA and "partitioner" in known else ""
    if name in CALLS:
        return f": {CALLS[name]}{keys}"
    meant = ELSEWHERE.get(name)
    if meant not in known:
        for other, names in others.items():
            if name in names or meant in names:
                return f": {f'{_spelled(meant, dotted)} is' if meant else 'it is'} a setting of {other}"
        meant = next(iter(difflib.get_close_matches(name, known, n=1)), None)
    return keys if meant is None else f"; did you mean {_spelled(meant, dotted)}?{keys and ' ' + keys[2:]}"


def _spelled(name: str, dotted: bool) -> str:
    return name.replace("_", ".") if dotted else name
