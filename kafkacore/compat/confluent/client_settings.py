"""What the settings of confluent-kafka's clients become: librdkafka's names, one by one.

Source: the properties of librdkafka 2.16 and the callbacks of confluent-kafka 2.16.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kafkacore.compat.confluent.kafka_error import KafkaException, local
from kafkacore.compat.forms import service_name
from kafkacore.compat.settings import Kind, NoEffect, Ours, Own, Refused, translated

DEFAULT_PORT = 9092
INT32_MAX = 2**31 - 1
NOWHERE = f"bootstrap-servers-is-not-set.invalid:{DEFAULT_PORT}"
"""Where a client without bootstrap.servers connects to: confluent-kafka lets it be made. RFC 2606 keeps the name free."""

log = logging.getLogger("kafkacore.compat")

ON, OFF = ("true", "t", "1"), ("false", "f", "0")


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ON + OFF:
        raise ValueError(f"expected true or false, got {value!r}")
    return text in ON


def _addresses(servers: Any) -> list[str]:
    given = [each.strip().rpartition("://")[2] for each in str(servers or "").split(",")]
    found = [each if ":" in each.rpartition("]")[2] else f"{each}:{DEFAULT_PORT}" for each in given if each]
    if not found:
        log.warning("bootstrap.servers is not set: this client will not be able to connect to a cluster")
    return found or [NOWHERE]


def _token_provider(callback: Any) -> Any:
    """The engine's source of tokens, which asks oauth_cb on a thread of its own."""
    if callback is None:
        return None

    def provide() -> tuple[str, int]:
        token, expiry_s, *more = callback("")
        if len(more) > 1 and more[1]:
            raise ValueError("oauth_cb returned extensions, which are not passed on")
        return token, int(expiry_s * 1000)

    return provide


def _seconds_of_life(ms: Any) -> int:
    return int(ms) or INT32_MAX


_KINIT = Refused("no command is run for tickets: they come by sasl.kerberos.keytab, or from the cache that kinit fills")
_PEM = Refused("certificates and keys come from files: ssl.ca.location, ssl.certificate.location, ssl.key.location")
_TLS = Refused("Python's ssl module decides it, and this face does not pass it on")
_OIDC = Refused("this way of getting tokens is not passed on; kafkacore's own clients have sasl.oauthbearer.token.endpoint.url")
_C_ONLY = Refused("it is set by C programs only")
_OWN_WAY = NoEffect("the engine does it in its own way")
_READ = NoEffect("how much is fetched ahead follows from fetch.max.bytes and max.partition.fetch.bytes")
_OF_CONSUMERS = NoEffect("it is a setting of consumers")
_OF_PRODUCERS = NoEffect("it is a setting of producers")
_VERSIONS = NoEffect("brokers say themselves which versions of each request they know, and the newest that both know is used")
_LOGS = NoEffect("the engine logs through Python's logging, logger kafkacore")
_LOGGER = Own("the clients: the logger gets what the engine logs")

COMMON: dict[str, Kind] = {
    "bootstrap.servers": Ours("bootstrap_servers", _addresses),
    "client.id": Ours("client_id"),
    "client.rack": Ours("client_rack"),
    "client.dns.lookup": Refused("every address of a name is tried, which is use_all_dns_ips; the other way is not implemented"),
    "socket.timeout.ms": Ours("request_timeout_ms"),
    "socket.connection.setup.timeout.ms": Ours("socket_connection_setup_timeout_ms"),
    "socket.send.buffer.bytes": Ours("send_buffer_bytes", lambda size: int(size) or -1),
    "socket.receive.buffer.bytes": Ours("receive_buffer_bytes", lambda size: int(size) or -1),
    "connections.max.idle.ms": Ours("connections_max_idle_ms", lambda ms: int(ms) or -1),
    "reconnect.backoff.ms": Ours("reconnect_backoff_ms"),
    "reconnect.backoff.max.ms": Ours("reconnect_backoff_max_ms"),
    "retry.backoff.ms": Ours("retry_backoff_ms"),
    "retry.backoff.max.ms": Ours("retry_backoff_max_ms"),
    "topic.metadata.refresh.interval.ms": Ours("metadata_max_age_ms", lambda ms: INT32_MAX if int(ms) < 0 else ms),
    "allow.auto.create.topics": Own("the clients"),
    "security.protocol": Ours("security_protocol"),
    "sasl.mechanisms": Ours("sasl_mechanism"),
    "sasl.username": Ours("sasl_username"),
    "sasl.password": Ours("sasl_password"),
    "ssl.ca.location": Ours("ssl_cafile"),
    "ssl.certificate.location": Ours("ssl_certfile"),
    "ssl.key.location": Ours("ssl_keyfile"),
    "ssl.key.password": Ours("ssl_password"),
    "ssl.endpoint.identification.algorithm": Ours("ssl_check_hostname", lambda word: str(word).lower() != "none"),
    "enable.ssl.certificate.verification": Refused("certificates are always verified; name the authority in ssl.ca.location"),
    "logger": _LOGGER,
    "log_level": _LOGGER,
    "debug": Own("the clients: each context is one of the engine's loggers (kafkacore.net, .producer, .consumer, .admin), set to DEBUG"),
    "log.queue": _LOGS,
    "log.thread.name": _LOGS,
    "log.connection.close": _LOGS,
    "error_cb": Own("poll"),
    "stats_cb": Own("poll: librdkafka's JSON, without what the engine does not count"),
    "throttle_cb": Own("poll"),
    "oauth_cb": Ours("sasl_oauthbearer_token_provider", _token_provider),
    "statistics.interval.ms": Own("poll"),
    "plugin.library.paths": Refused("C libraries cannot be loaded"),
    "topic.blacklist": Refused("it is not implemented"),
    "broker.address.family": Refused("addresses of both families are tried"),
    "socket.keepalive.enable": Refused("it is not implemented"),
    "socket.nagle.disable": Refused("TCP_NODELAY is always set"),
    "metadata.recovery.strategy": Refused("a client that finds no broker begins again with bootstrap.servers"),
    **dict.fromkeys(
        ("builtin.features", "enabled_events", "internal.termination.signal", "background_event_cb", "socket_cb", "connect_cb",
         "closesocket_cb",
         "open_cb", "resolve_cb", "opaque", "default_topic_conf", "log_cb", "interceptors", "ssl_engine_callback_data",
         "ssl.certificate.verify_cb", "oauthbearer_token_refresh_cb", "enable_sasl_queue"), _C_ONLY,
    ),
    **dict.fromkeys(("api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms",
                     "broker.version.fallback"), _VERSIONS),
    **dict.fromkeys(
        ("metadata.recovery.rebootstrap.trigger.ms", "metadata.max.age.ms", "topic.metadata.refresh.fast.interval.ms",
         "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.sparse", "socket.blocking.max.ms", "socket.max.fails",
         "broker.address.ttl",
         "reconnect.backoff.jitter.ms", "enable.random.seed", "enable.metrics.push", "message.copy.max.bytes", "receive.message.max.bytes",
         "metadata.request.timeout.ms", "enable.sparse.connections", "client.software.name", "client.software.version"), _OWN_WAY,
    ),
    "sasl.kerberos.service.name": Ours("sasl_kerberos_service_name", service_name),
    "sasl.kerberos.principal": Ours("sasl_kerberos_principal"),
    "sasl.kerberos.keytab": Ours("sasl_kerberos_keytab"),
    **dict.fromkeys(("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"), _KINIT),
    **dict.fromkeys(
        ("ssl.key.pem", "ssl_key", "ssl.certificate.pem", "ssl_certificate", "ssl.ca.pem", "ssl_ca", "https.ca.location", "https.ca.pem",
         "ssl.keystore.location", "ssl.keystore.password"), _PEM,
    ),
    **dict.fromkeys(
        ("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list", "ssl.ca.certificate.stores", "ssl.crl.location", "ssl.providers",
         "ssl.engine.location", "ssl.engine.id"), _TLS,
    ),
    **dict.fromkeys(
        ("sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id",
         "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.id",
         "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions",
         "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.grant.type",
         "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.private.key.file",
         "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
         "sasl.oauthbearer.assertion.file",
         "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
         "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
         "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.jwt.template.file",
         "sasl.oauthbearer.metadata.authentication.type"), _OIDC,
    ),
}  # fmt: skip

_PARTITIONERS = {
    "consistent": "consistent", "consistent_random": "consistent_random", "murmur2": "murmur2_null_too", "murmur2_random": "murmur2",
    "fnv1a": "fnv1a", "fnv1a_random": "fnv1a_random", "random": "murmur2",
}  # fmt: skip


def _partitioner(name: Any) -> str:
    if name not in _PARTITIONERS:
        raise local("_INVALID_ARG", f'Invalid value "{name}" for configuration property "partitioner"')
    return _PARTITIONERS[name]


_OF_PRODUCER: dict[str, Kind] = {
    "message.max.bytes": Ours("max_request_size"),
    "max.in.flight.requests.per.connection": Own("the producer; at most 5 with enable.idempotence"),
    "topic.metadata.propagation.max.ms": Own("produce: messages of a topic that the brokers do not have wait so long for it"),
    "transactional.id": Ours("transactional_id"),
    "transaction.timeout.ms": Ours("transaction_timeout_ms"),
    "enable.idempotence": Own("the producer"),
    "enable.gapless.guarantee": Refused("it is not implemented"),
    "queue.buffering.max.messages": Own("produce: BufferError"),
    "queue.buffering.max.kbytes": Ours("buffer_memory", lambda kbytes: int(kbytes) * 1024),
    "queue.buffering.max.ms": Ours("linger_ms", lambda ms: int(float(ms))),
    "message.send.max.retries": Ours("retries"),
    "queue.buffering.backpressure.threshold": _OWN_WAY,
    "compression.codec": Ours("compression_type", lambda codec: "none" if codec == "inherit" else codec),
    "compression.level": Own("the producer"),
    "batch.num.messages": NoEffect("batches end by bytes (batch.size) and by time (linger.ms)"),
    "batch.size": Ours("batch_size"),
    "delivery.report.only.error": Own("poll"),
    "on_delivery": Own("poll"),
    "sticky.partitioning.linger.ms": NoEffect("records without a key stay with a partition for one batch"),
    "request.required.acks": Ours("acks"),
    "request.timeout.ms": NoEffect("one time counts for all requests, socket.timeout.ms"),
    "message.timeout.ms": Ours("delivery_timeout_ms", _seconds_of_life),
    "queuing.strategy": Refused("records leave in the order of their produce()"),
    "produce.offset.report": _OWN_WAY,
    "partitioner": Ours("partitioner", _partitioner),
    **dict.fromkeys(("dr_cb", "dr_msg_cb", "partitioner_cb", "msg_order_cmp"), _C_ONLY),
}

_RESETS = {
    "smallest": "earliest", "earliest": "earliest", "beginning": "earliest", "largest": "latest", "latest": "latest", "end": "latest",
    "error": "none",
}  # fmt: skip


def _reset(word: Any) -> str:
    if word not in _RESETS:
        raise local("_INVALID_ARG", f'Invalid value "{word}" for configuration property "auto.offset.reset"')
    return _RESETS[word]


_OF_CONSUMER: dict[str, Kind] = {
    "group.id": Ours("group_id"),
    "group.instance.id": Ours("group_instance_id"),
    "group.protocol": Ours("group_protocol"),
    "group.remote.assignor": Ours("group_remote_assignor"),
    "group.protocol.type": Refused("consumers are of the type consumer"),
    "partition.assignment.strategy": Ours("partition_assignment_strategy"),
    "session.timeout.ms": Ours("session_timeout_ms"),
    "heartbeat.interval.ms": Ours("heartbeat_interval_ms"),
    "max.poll.interval.ms": Ours("max_poll_interval_ms"),
    "coordinator.query.interval.ms": _OWN_WAY,
    "enable.auto.commit": Own("the consumer"),
    "auto.commit.interval.ms": Ours("auto_commit_interval_ms"),
    "enable.auto.offset.store": Own("the consumer"),
    "fetch.wait.max.ms": Ours("fetch_max_wait_ms"),
    "fetch.message.max.bytes": Ours("max_partition_fetch_bytes"),
    "fetch.max.bytes": Ours("fetch_max_bytes"),
    "fetch.min.bytes": Ours("fetch_min_bytes"),
    "offset.store.method": Refused("offsets are kept by brokers"),
    "offset.store.path": Refused("offsets are kept by brokers"),
    "offset.store.sync.interval.ms": Refused("offsets are kept by brokers"),
    "isolation.level": Ours("isolation_level"),
    "enable.partition.eof": Own("poll"),
    "check.crcs": Ours("check_crcs", _flag),
    "auto.offset.reset": Ours("auto_offset_reset", _reset),
    "on_commit": Own("poll"),
    "share.acknowledgement.mode": Refused("there are no share consumers"),
    **dict.fromkeys(("queued.min.messages", "queued.max.messages.kbytes", "fetch.queue.backoff.ms", "fetch.error.backoff.ms",
                     "max.poll.records", "consume.callback.max.messages"), _READ),
    **dict.fromkeys(("consume_cb", "rebalance_cb", "offset_commit_cb"), _C_ONLY),
}  # fmt: skip

PRODUCER_SETTINGS: dict[str, Kind] = COMMON | dict.fromkeys(_OF_CONSUMER, _OF_CONSUMERS) | _OF_PRODUCER
CONSUMER_SETTINGS: dict[str, Kind] = COMMON | dict.fromkeys(_OF_PRODUCER, _OF_PRODUCERS) | _OF_CONSUMER

ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanism": "sasl.mechanisms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "linger.ms": "queue.buffering.max.ms",
    "retries": "message.send.max.retries",
    "compression.type": "compression.codec",
    "acks": "request.required.acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "auto.commit.enable": "enable.auto.commit",
}
"""Other names of the same settings."""

DEFAULTS: dict[str, Any] = dict.fromkeys({*PRODUCER_SETTINGS, *CONSUMER_SETTINGS}) | {
    "bootstrap.servers": "", "client.id": "rdkafka", "client.rack": "", "client.dns.lookup": "use_all_dns_ips", "socket.timeout.ms": 60_000,
    "socket.connection.setup.timeout.ms": 30_000, "socket.send.buffer.bytes": 0, "socket.receive.buffer.bytes": 0,
    "connections.max.idle.ms": 0, "reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 10_000, "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000, "topic.metadata.refresh.interval.ms": 300_000, "allow.auto.create.topics": False,
    "security.protocol": "plaintext", "ssl.endpoint.identification.algorithm": "https", "enable.ssl.certificate.verification": True,
    "broker.address.family": "any", "socket.keepalive.enable": False, "socket.nagle.disable": True, "statistics.interval.ms": 0,
    "metadata.recovery.strategy": "rebootstrap", "sasl.oauthbearer.method": "default", "sasl.kerberos.service.name": "kafka",
    "sasl.oauthbearer.sub.claim.name": "sub", "sasl.oauthbearer.grant.type": "client_credentials",
    "enable.sasl.oauthbearer.unsecure.jwt": False, "ssl.ca.certificate.stores": "Root", "ssl.engine.id": "dynamic",
    "message.max.bytes": 1_000_000, "max.in.flight.requests.per.connection": 1_000_000, "topic.metadata.propagation.max.ms": 30_000,
    "transaction.timeout.ms": 60_000, "enable.idempotence": False, "enable.gapless.guarantee": False,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 1_048_576, "queue.buffering.max.ms": 5, "message.send.max.retries": INT32_MAX,
    "compression.codec": "none",
    "compression.level": -1, "batch.num.messages": 10_000, "batch.size": 1_000_000, "delivery.report.only.error": False,
    "request.required.acks": -1, "request.timeout.ms": 30_000, "message.timeout.ms": 300_000, "queuing.strategy": "fifo",
    "partitioner": "consistent_random", "group.protocol": "classic", "group.protocol.type": "consumer",
    "partition.assignment.strategy": "range,roundrobin", "session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000,
    "max.poll.interval.ms": 300_000, "enable.auto.commit": True, "auto.commit.interval.ms": 5_000, "enable.auto.offset.store": True,
    "fetch.wait.max.ms": 500, "fetch.message.max.bytes": 1_048_576, "fetch.max.bytes": 52_428_800, "fetch.min.bytes": 1,
    "offset.store.method": "broker", "offset.store.path": ".", "offset.store.sync.interval.ms": -1, "isolation.level": "read_committed",
    "enable.partition.eof": False, "check.crcs": False, "auto.offset.reset": "largest", "share.acknowledgement.mode": "implicit",
}  # fmt: skip
"""librdkafka's, where they matter; None where nothing is set."""


def joined(config: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """What a program gave, under the settings' first names.

    Args:
        config: the dict; None where there are keywords only.
        more: keywords, which count more; those with dots count as they are.

    Raises:
        TypeError: `config` is no dict.
    """
    if config is not None and not isinstance(config, dict):
        raise TypeError("expected configuration dict")
    given = {**(config or {}), **more}
    topic_config = given.pop("default.topic.config", None) or {}
    return {ALIASES.get(name, name): value for name, value in {**topic_config, **given}.items()}


def engine_settings(table: Mapping[str, Kind], given: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's settings of a client.

    Raises:
        KafkaException: a setting is unknown or refused, or a value is wrong; _INVALID_ARG, with a sentence.
        TypeError: a callback cannot be called.
    """
    for name, value in given.items():
        if name not in table:
            raise local("_INVALID_ARG", f'No such configuration property: "{name}"')
        if (name.endswith("_cb") or name in ("on_delivery", "on_commit")) and value is not None and not callable(value):
            raise TypeError(f"expected {name} property as a callable function")
        if isinstance(DEFAULTS.get(name), bool) and value is not None and not isinstance(table[name], Refused):
            try:
                _flag(value)
            except ValueError as error:
                raise local("_INVALID_ARG", f'Configuration property "{name}": {error}') from error
    try:
        found = translated(table, DEFAULTS, {name: value for name, value in given.items() if value is not None}, _refused)
    except (TypeError, ValueError) as error:
        raise local("_INVALID_ARG", f"a value has the wrong form: {error}") from error
    protocol = str(found["security_protocol"]).upper()
    unused = [prefix for prefix, has in (("ssl_", "SSL" in protocol), ("sasl_", "SASL" in protocol)) if not has]
    return {name: value for name, value in found.items() if value is not None and not name.startswith(tuple(unused))}


def number(given: Mapping[str, Any], name: str) -> int:
    """A setting that is a whole number.

    Raises:
        KafkaException: it is none.
    """
    value = given.get(name)
    try:
        return int(DEFAULTS[name] if value is None else value)
    except (TypeError, ValueError) as error:
        raise local("_INVALID_ARG", f'Invalid value "{value}" for configuration property "{name}"') from error


def flag(given: Mapping[str, Any], name: str) -> bool:
    """A setting that is on or off."""
    value = given.get(name)
    return _flag(DEFAULTS[name] if value is None else value)


def _refused(text: str) -> KafkaException:
    return local("_INVALID_ARG", text)
