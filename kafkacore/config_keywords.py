"""The settings of the clients as type checkers and editors see them: one keyword each.

`KafkaProducer(linger_ms=5)` completes, and `lingerms=5` is refused before the program runs. A dict that a program builds may be annotated
with these types. Names and types are those of config.py (`tests/test_config_keywords.py` holds them equal); what a keyword takes may be
wider than what is kept: "all" for acks, one address for a list of them. What each means is said in config.py.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from kafkacore.config import Deserializer, Partitioner, PartitionerName, Serializer, TopicDeserializer, TopicPartitioner, TopicSerializer
from kafkacore.config_security import TokenProvider

__all__ = ["AdminKeywords", "ClientKeywords", "ConsumerKeywords", "ProducerKeywords", "SecurityKeywords", "list_settings"]


class SecurityKeywords(TypedDict, total=False):
    """What authenticates and encrypts, as keywords of every client."""

    security_protocol: str
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_keytab: str | None
    sasl_kerberos_principal: str | None
    sasl_oauthbearer_token_provider: TokenProvider | str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_allowed_urls: str | Sequence[str] | None
    sasl_oauthbearer_proxy_url: str | None
    https_ca_location: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None


class ClientKeywords(SecurityKeywords, total=False):
    """Settings of every client, as keywords."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    metadata_max_age_ms: int
    broker_version: str | None
    send_buffer_bytes: int
    receive_buffer_bytes: int
    receive_message_max_bytes: int


class ProducerKeywords(ClientKeywords, total=False):
    """Settings of `KafkaProducer`, as keywords."""

    acks: int | Literal["all", "-1", "0", "1"]
    enable_idempotence: bool
    linger_ms: int
    batch_size: int
    send_many_batch_size: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: int
    compression_type: str | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    partitioner: PartitionerName | Partitioner | TopicPartitioner | type[Any] | str
    partitioner_ignore_keys: bool
    partitioner_rack_aware: bool
    client_rack: str
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    key_serializer: Serializer | TopicSerializer | type[Any] | str | None
    value_serializer: Serializer | TopicSerializer | type[Any] | str | None
    interceptors: Sequence[Any]
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    allow_auto_create_topics: bool


class ConsumerKeywords(ClientKeywords, total=False):
    """Settings of `KafkaConsumer`, as keywords."""

    default_api_timeout_ms: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[Any]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    auto_offset_reset: str
    isolation_level: str
    check_crcs: bool
    max_decompressed_bytes: int
    key_deserializer: Deserializer | TopicDeserializer | type[Any] | str | None
    value_deserializer: Deserializer | TopicDeserializer | type[Any] | str | None
    client_rack: str
    interceptors: Sequence[Any]


class AdminKeywords(ClientKeywords, total=False):
    """Settings of `KafkaAdminClient`, as keywords."""

    bootstrap_controllers: str | Sequence[str]
    default_api_timeout_ms: int
    retries: int


def list_settings(client: type[Any], config: type[Any]) -> None:
    """Ends a client's docstring with its settings, for `help` and for what an editor shows.

    Args:
        client: the class; without docstrings (-OO) nothing is added.
        config: the dataclass of its settings.
    """
    if client.__doc__ is None:
        return
    lines = [f"Settings ({config.__name__}), as keywords or in a dict under Kafka's dotted names::", ""]
    for each in config.__mro__:
        described = inspect.cleandoc(each.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
        lines += described.rstrip().splitlines()
    client.__doc__ = f"{inspect.cleandoc(client.__doc__)}\n\n" + "\n".join(lines) + "\n"
