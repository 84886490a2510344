"""config.py: names, conversion, limits, rules between settings."""

import dataclasses
import re
import ssl
from collections.abc import Callable

import pytest

from kafkacore.compat.aiokafka import consumer_settings as aiokafka_consumer_settings
from kafkacore.compat.confluent import client_settings as confluent_settings
from kafkacore.compat.kafka import consumer_settings as kafka_consumer_settings
from kafkacore.compat.kafka import producer as kafka_producer
from kafkacore.compat.settings import Ours
from kafkacore.config import AdminConfig, BrokerConfig, ClientConfig, ConsumerConfig, ProducerConfig, parse_address
from kafkacore.config_names import CALLS, ELSEWHERE
from kafkacore.config_values import INT64_MAX, Range, convert
from kafkacore.errors import ConfigError
from tests.kit.rows import each_row

B = "127.0.0.1:9092"


def test_what_is_a_call_here_is_named_as_such():
    """kafka-python's setting ends a `for` loop after a while."""
    with pytest.raises(ConfigError, match=r"setting 'consumer_timeout_ms' for ConsumerConfig: poll\(timeout=\.\.\.\) says how long"):
        ConsumerConfig.from_user(bootstrap_servers=B, consumer_timeout_ms=1000)
    with pytest.raises(ConfigError, match=r"read_range\(\)"):
        ConsumerConfig.from_user({"bootstrap.servers": B, "enable.partition.eof": True})


def test_other_clients_names_lead_to_settings_that_are_there():
    known = {*ProducerConfig.names(), *ConsumerConfig.names()}
    assert set(ELSEWHERE.values()) <= known
    assert not (ELSEWHERE.keys() | CALLS.keys()) & known
    for name, meant in ELSEWHERE.items():
        cls = ProducerConfig if meant in ProducerConfig.names() else ConsumerConfig
        with pytest.raises(ConfigError, match=rf"did you mean {meant}\?"):
            cls.from_user({"bootstrap_servers": B, name: "1"})


@each_row(
    ("cls", "given", "said"),
    [
        (ConsumerConfig, "linger_ms", "unknown setting 'linger_ms' for ConsumerConfig: it is a setting of producers"),
        (ConsumerConfig, "batch.size", "unknown setting 'batch.size' for ConsumerConfig: it is a setting of producers"),
        (ConsumerConfig, "request.required.acks", "for ConsumerConfig: acks is a setting of producers"),
        (ConsumerConfig, "queue.buffering.max.messages", "for ConsumerConfig: buffer.memory is a setting of producers"),
        (ProducerConfig, "group_id", "for ProducerConfig: it is a setting of consumers"),
        (ProducerConfig, "fetch.message.max.bytes", "for ProducerConfig: max.partition.fetch.bytes is a setting of consumers"),
        (AdminConfig, "acks", "for AdminConfig: it is a setting of producers"),
        (ProducerConfig, "grouped", "unknown setting 'grouped' for ProducerConfig"),
        (ProducerConfig, "lingerms", "for ProducerConfig; did you mean linger_ms?"),
        (ProducerConfig, "debug", "for ProducerConfig: logging.getLogger('kafkacore').setLevel(...) says how much is logged"),
    ],
)
def test_a_setting_of_another_client_is_named_as_such(cls, given, said):
    with pytest.raises(ConfigError, match=re.escape(said) + "$"):
        cls.from_user({"bootstrap_servers": B, given: "1"})


def test_the_faces_of_other_clients_and_the_hints_agree():
    """Where a face translates a setting by its name, the native client's error names the same one."""
    tables = [
        (confluent_settings.PRODUCER_SETTINGS, ProducerConfig),
        (confluent_settings.CONSUMER_SETTINGS, ConsumerConfig),
        (kafka_consumer_settings.CONSUMER_SETTINGS, ConsumerConfig),
        (kafka_producer.PRODUCER_SETTINGS, ProducerConfig),
        (aiokafka_consumer_settings.CONSUMER_SETTINGS, ConsumerConfig),
    ]
    renamed = 0
    for table, cls in tables:
        for foreign, kind in table.items():
            given = foreign.replace(".", "_")
            if isinstance(kind, Ours) and given not in cls.names():
                renamed += 1
                with pytest.raises(ConfigError, match=rf"did you mean {kind.name}\?"):
                    cls.from_user({"bootstrap_servers": B, given: "1"})
    assert renamed > 20


def test_dotted_and_snake_names_mix():
    config = ProducerConfig.from_user({"bootstrap.servers": "a:1, b:2", "linger.ms": "7"}, batch_size=10, acks="1")
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert config.bootstrap_addresses == [("a", 1), ("b", 2)]
    assert (config.linger_ms, config.batch_size, config.acks) == (7, 10, 1)
    assert ProducerConfig.from_user(bootstrap_servers=["a:1"]).bootstrap_servers == ("a:1",)


@each_row(
    ("given", "nearest"),
    [
        ({"linger_sm": 5}, "linger_ms"),
        ({"linger.msec": 5}, "linger.ms"),
        ({"bootstrap_server": B}, "bootstrap_servers"),
        ({"compression.typ": "gzip"}, "compression.type"),
        ({"message.timeout.ms": 5}, "delivery.timeout.ms"),
        ({"request_required_acks": 1}, "acks"),
        ({"ssl.ca.location": "f"}, "ssl.cafile"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(given, nearest):
    with pytest.raises(ConfigError, match=rf"did you mean {nearest}\?"):
        ProducerConfig.from_user({"bootstrap.servers": B} | given)


def test_an_unknown_name_like_no_other_gets_no_guess():
    with pytest.raises(ConfigError, match=r"unknown setting 'zzz' for ProducerConfig$"):
        ProducerConfig.from_user(bootstrap_servers=B, zzz=1)
    with pytest.raises(ConfigError, match="must be a string"):
        ProducerConfig.from_user({1: 2})


def test_a_name_given_in_both_spellings_is_refused():
    with pytest.raises(ConfigError, match="given twice"):
        ProducerConfig.from_user({"linger.ms": 1}, linger_ms=1, bootstrap_servers=B)


@each_row(
    ("settings", "complaint"),
    [
        ({"linger_ms": -1}, "linger_ms must be at least 0, not -1"),
        ({"linger_ms": "soon"}, "linger_ms must be a whole number, not 'soon'"),
        ({"linger_ms": 1.5}, "linger_ms must be a whole number"),
        ({"linger_ms": True}, "linger_ms must be a whole number"),
        ({"linger_ms": None}, "linger_ms must be a whole number"),
        ({"batch_size": 2**31}, "batch_size must be at most 2147483647"),
        ({"compression_type": "brotli"}, "compression_type must be one of none, gzip, snappy, lz4, zstd"),
        ({"compression_gzip_level": 10}, "compression_gzip_level must be between 1 and 9"),
        ({"acks": 2}, "acks must be 0, 1 or all"),
        ({"acks": True}, "acks must be 0, 1 or all"),
        ({"partitioner": "random"}, "partitioner must be one of 'murmur2', 'round_robin', 'consistent_random', .* or a callable"),
        ({"partitioner_rack_aware": True}, "partitioner_rack_aware needs client_rack"),
        ({"key_serializer": "utf8"}, "key_serializer must be a callable"),
        ({"enable_idempotence": "maybe"}, "enable_idempotence must be a truth value"),
        ({"bootstrap_servers": ""}, "at least one broker"),
        ({"bootstrap_servers": "localhost"}, "not an address"),
        ({"bootstrap_servers": [5]}, "must hold strings"),
        ({"client_id": 5}, "client_id must be a string"),
        ({"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"delivery_timeout_ms": 30_004}, r"must be at least linger_ms \+ request_timeout_ms \(5 \+ 30000\)"),
        ({"retry_backoff_ms": 2000, "retry_backoff_max_ms": 1999}, "must not exceed retry_backoff_max_ms"),
        ({"reconnect_backoff_ms": 2000, "reconnect_backoff_max_ms": 500}, "must not exceed reconnect_backoff_max_ms"),
        ({"enable_idempotence": True, "acks": 1}, "enable_idempotence needs acks=all"),
        ({"enable_idempotence": True, "retries": 0, "max_in_flight_requests_per_connection": 6}, "retries above 0 and max_in_flight"),
    ],
)
def test_refused_values(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ProducerConfig.from_user({"bootstrap_servers": B} | settings)


@each_row(("given", "held"), [("all", -1), ("ALL", -1), ("-1", -1), (-1, -1), (0, 0), ("0", 0), (1, 1), ("1", 1)])
def test_acks_is_held_as_the_number(given, held):
    assert ProducerConfig.from_user(bootstrap_servers=B, acks=given).acks == held


def test_idempotence_follows_from_the_others_unless_given():
    make = ProducerConfig.from_user
    assert make(bootstrap_servers=B).enable_idempotence is True
    assert make(bootstrap_servers=B, acks=1).enable_idempotence is False
    assert make(bootstrap_servers=B, retries=0).enable_idempotence is False
    assert make(bootstrap_servers=B, max_in_flight_requests_per_connection=6).enable_idempotence is False
    assert make(bootstrap_servers=B, enable_idempotence="false").enable_idempotence is False


def test_compression_level_is_the_one_of_the_chosen_codec():
    config = ProducerConfig.from_user(bootstrap_servers=B, compression_type="zstd", compression_zstd_level=-5, compression_gzip_level=9)
    assert config.compression_level == -5
    assert config.replace(compression_type="gzip").compression_level == 9
    assert config.replace(compression_type="snappy").compression_level is None


def test_settings_are_frozen_and_replace_checks_again():
    config = ConsumerConfig(bootstrap_servers=(B,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.check_crcs = False
    assert config.replace(check_crcs="off").check_crcs is False
    with pytest.raises(ConfigError):
        config.replace(max_poll_records=0)


@each_row(
    ("text", "address"),
    [("h:1", ("h", 1)), ("PLAINTEXT://h:9092", ("h", 9092)), ("[::1]:9092", ("::1", 9092)), ("SSL://[fe80::1]:1", ("fe80::1", 1))],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@each_row("text", ["", "h", "h:", ":1", "h:x", "h:65536", "::1:9092", "h:-1", "h:1:2", "[]:1"])
def test_bad_addresses(text):
    with pytest.raises(ConfigError, match="not an address"):
        parse_address(text)


@each_row("host", ["a..b", ".a", "a." + "x" * 64, "\xdf" * 70, "\ud800", "a b", "a\0b", "a\nb"])
def test_hosts_that_no_name_server_can_be_asked_for(host):
    with pytest.raises(ConfigError, match="not an address: host names"):
        parse_address(f"{host}:9092")
    with pytest.raises(ConfigError, match="not an address: host names"):
        ClientConfig(bootstrap_servers=(f"{host}:9092",))


@each_row("host", ["a.b.", "x" * 63, "xn--bcher-kva.example", "b\xfccher.example", "_srv.a-b.c"])
def test_hosts_that_are_names(host):
    assert parse_address(f"{host}:1") == (host, 1)


def test_secrets_stay_out_of_the_repr():
    config = ClientConfig(bootstrap_servers=(B,), security_protocol="ssl", ssl_certfile="c", ssl_password="hush")
    assert config.security_protocol == "SSL"
    assert "hush" not in repr(config)
    of_both = "sasl_jaas_config ssl_keystore_certificate_chain ssl_keystore_key ssl_keystore_password ssl_truststore_certificates"
    of_both += " ssl_truststore_password"
    of_clients = "sasl_oauthbearer_allowed_urls sasl_oauthbearer_client_credentials_client_secret sasl_oauthbearer_proxy_url sasl_password"
    of_clients += " sasl_oauthbearer_token_endpoint_url sasl_oauthbearer_token_provider ssl_context ssl_password"
    of_brokers = "delegation_token_secret_key gssapi_sasl_jaas_config listener_name_settings other_settings ssl_key_password"
    for kind, own in ((ProducerConfig, of_clients), (ConsumerConfig, of_clients), (AdminConfig, of_clients), (BrokerConfig, of_brokers)):
        assert {field.name for field in dataclasses.fields(kind) if not field.repr} == {*of_both.split(), *own.split()}


@each_row(
    ("settings", "complaint"),
    [
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile has no effect with security_protocol=PLAINTEXT"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k"}, "ssl_keyfile needs ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_password": "k"}, "ssl_password needs ssl_certfile"),
        ({"ssl_check_hostname": False}, "ssl_check_hostname has no effect"),
    ],
)
def test_tls_settings_that_would_be_ignored_are_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ClientConfig.from_user({"bootstrap_servers": B} | settings)


def test_a_ready_context_excludes_the_files():
    context = ssl.create_default_context()
    config = ClientConfig(bootstrap_servers=(B,), security_protocol="SSL", ssl_context=context)
    assert config.make_ssl_context() is context
    with pytest.raises(ConfigError, match="ssl_cafile would be ignored"):
        config.replace(ssl_cafile="ca.pem")


def test_bounds_left_as_they_are_follow_what_is_set():
    config = ProducerConfig.from_user(bootstrap_servers=B, request_timeout_ms=200_000, reconnect_backoff_ms=5_000, retry_backoff_ms=2_000)
    assert (config.delivery_timeout_ms, config.reconnect_backoff_max_ms, config.retry_backoff_max_ms) == (200_005, 5_000, 2_000)


@each_row("name", ["kinit.cmd", "min.time.before.relogin", "ticket.renew.jitter", "ticket.renew.window.factor"])
def test_settings_of_kinit_are_refused_with_the_way_tickets_are_renewed(name):
    with pytest.raises(ConfigError, match=f"^sasl.kerberos.{name} cannot be set: no command is run .*keytab.*kinit -R"):
        ClientConfig.from_user({"bootstrap.servers": "h:1", f"sasl.kerberos.{name}": "x"})


def test_a_slip_in_a_kerberos_setting_is_one():
    with pytest.raises(ConfigError, match=r"unknown setting .*did you mean sasl\.kerberos\.keytab"):
        ProducerConfig.from_user({"bootstrap.servers": "h:1", "sasl.kerberos.key.tab": "x"})


def test_two_phase_commit_goes_without_a_timeout():
    setting = {"transaction_two_phase_commit_enable": True}
    assert ProducerConfig.from_user(bootstrap_servers=B, transactional_id="x", **setting).transaction_two_phase_commit_enable
    with pytest.raises(ConfigError, match="needs transactional_id"):
        ProducerConfig.from_user(bootstrap_servers=B, **setting)
    with pytest.raises(ConfigError, match="set one of the two"):
        ProducerConfig.from_user(bootstrap_servers=B, transactional_id="x", transaction_timeout_ms=60_000, **setting)


def test_what_is_no_function():
    assert convert(Callable[..., int], len) is len
    with pytest.raises(ValueError, match=r"^a callable$"):
        convert(Callable[..., int], 5)


def test_settings_are_a_mapping():
    with pytest.raises(ConfigError, match="settings are a mapping"):
        ClientConfig.from_user("h:9092")


@each_row(("given", "found"), [("0.65", 0.65), (" 1 ", 1.0), (1, 1.0), (0.7, 0.7)])
def test_numbers_with_a_fraction_come_as_text_too(given, found):
    assert BrokerConfig.from_user({"log.cleaner.min.cleanable.ratio": given}).log_cleaner_min_cleanable_ratio == found


@each_row("given", ["", "much", "nan", "inf", True, None, "1e400"])
def test_what_is_no_number(given):
    with pytest.raises(ConfigError, match="log_cleaner_min_cleanable_ratio must be a number"):
        BrokerConfig.from_user({"log.cleaner.min.cleanable.ratio": given})


LEAST = {
    1: "request_timeout_ms socket_connection_setup_timeout_ms socket_connection_setup_timeout_max_ms transaction_timeout_ms"
    " max_in_flight_requests_per_connection session_timeout_ms heartbeat_interval_ms max_poll_interval_ms max_poll_records"
    " max_decompressed_bytes buffer_memory compression_gzip_level compression_lz4_level",
    0: "retry_backoff_ms retry_backoff_max_ms reconnect_backoff_ms reconnect_backoff_max_ms metadata_max_age_ms linger_ms batch_size"
    " send_many_batch_size max_request_size retries delivery_timeout_ms partitioner_availability_timeout_ms default_api_timeout_ms"
    " auto_commit_interval_ms fetch_min_bytes fetch_max_bytes fetch_max_wait_ms max_partition_fetch_bytes max_block_ms",
    -1: "connections_max_idle_ms send_buffer_bytes receive_buffer_bytes",
    1_000: "receive_message_max_bytes",
    -131_072: "compression_zstd_level",
}
MOST = {"compression_gzip_level": 9, "compression_lz4_level": 17, "compression_zstd_level": 22} | dict.fromkeys(
    ("buffer_memory", "max_block_ms"), INT64_MAX
)


def test_the_limits_of_numbers():
    fields = {field.name: field for cls in (ProducerConfig, ConsumerConfig, AdminConfig) for field in dataclasses.fields(cls)}
    found = {name: tuple(field.metadata["check"]) for name, field in fields.items() if isinstance(field.metadata.get("check"), Range)}
    assert found == {name: (low, MOST.get(name, 2**31 - 1)) for low, names in LEAST.items() for name in names.split()}


@each_row(
    ("name", "value", "says"),
    [
        ("linger_ms", -1, "linger_ms must be at least 0"),
        ("linger_ms", 2**31, "linger_ms must be at most 2147483647"),
        ("max_block_ms", 2**63, "max_block_ms must be at most 9223372036854775807"),
        ("compression_lz4_level", 18, "compression_lz4_level must be between 1 and 17"),
    ],
)
def test_beyond_its_limits_a_number_is_refused(name, value, says):
    with pytest.raises(ConfigError, match=says):
        ProducerConfig.from_user(bootstrap_servers=B, **{name: value})
    ProducerConfig.from_user(bootstrap_servers=B, **{name: value + (1 if value < 0 else -1)})
