"""Settings, checked once and immutable afterwards.

Names are Kafka's, dotted in a mapping (`{"linger.ms": 5}`) or snake_cased as keywords; units are in the names; defaults are those of the
Java 4 clients and of a Kafka 4 broker. A setting is listed here only if the code honours it: an unknown name is refused with the nearest
known one, never ignored. To implement a setting, add its field and its check; to remove a setting, remove its field.

How a field is checked: by its annotation (a string from a file or a command line is turned into the number or truth value the annotation
asks for), then by the constraint in its metadata (`between`, `one_of`), then by the class's `_check` where fields depend on each other.

Source: ProducerConfig, ConsumerConfig, AdminClientConfig, ServerConfigs of Apache Kafka 4.3.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from kafkacore import config_authorizer, config_broker_tls, config_kerberos, config_listeners, config_security
from kafkacore.config_names import RESETS, hint
from kafkacore.config_security import PASSWORD_MECHANISMS, WORDS, SecuritySettings
from kafkacore.config_values import INT32_MAX, INT64_MAX, between, convert, one_of, sentences_of, string_list
from kafkacore.errors import ConfigError

COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

Serializer = Callable[[Any], Any]
"""`serializer(value) -> bytes-like or str`; called once per key or value that is not None (None stays null)."""


@typing.runtime_checkable
class TopicSerializer(typing.Protocol):
    """A serializer that needs to know the topic (org.apache.kafka.common.serialization.Serializer)."""

    def serialize(self, topic: str, value: Any, /) -> Any:
        """Returns bytes-like or str."""


Deserializer = Callable[[Any], Any]
"""`deserializer(data: bytes) -> value`; called once per key or value that is not None (None stays None)."""


@typing.runtime_checkable
class TopicDeserializer(typing.Protocol):
    """A deserializer that needs to know the topic (org.apache.kafka.common.serialization.Deserializer)."""

    def deserialize(self, topic: str, data: bytes, /) -> Any:
        """Turns bytes into a key or value."""


PartitionerName = Literal[
    "murmur2", "round_robin", "consistent_random", "consistent", "murmur2_random", "murmur2_null_too", "fnv1a_random", "fnv1a"
]

Partitioner = Callable[[str, Any, Any, Any], int]
"""`partitioner(topic, key, value, cluster) -> partition`: key and value as given to send, the cluster as a ClusterSnapshot."""


_DERIVED: Any = None
"""Default of a setting that follows from others; __post_init__ puts the value in its place."""

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}

def parse_address(text: str) -> tuple[str, int]:
    """Splits "host:port"; IPv6 hosts are bracketed, "[::1]:9092".

    Args:
        text: one address, optionally with a "PLAINTEXT://" style prefix.

    Returns:
        Host and port.

    Raises:
        ConfigError: there is no port, it is outside 0..65535, or no name server could be asked for the host.
    """
    _, _, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or not port.isdecimal() or int(port) > 65535 or (":" in host and not rest.startswith("[")):
        raise ConfigError(f"{text!r} is not an address of the form host:port" + (", [::1]:9092 for IPv6" if rest.count(":") > 1 else ""))
    try:
        host.encode("idna")  # as the system's lookup does first, where this would be an error of each attempt to connect
    except UnicodeError:
        raise ConfigError(f"{text!r} is not an address: host names are labels of 1 to 63 characters with dots between") from None
    if re.search(r"[\x00-\x20\x7f]", host):
        raise ConfigError(f"{text!r} is not an address: host names hold no blanks and control characters")
    return host, int(port)


_INSTANCE_ID = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?")


def reset_duration_ms(text: str) -> int:
    """The milliseconds of auto_offset_reset=by_duration:<ISO 8601 duration of days and less> (KIP-1106).

    Raises:
        ConfigError: the text is something else.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        meant = RESETS.get(text)
        raise ConfigError(
            f"auto_offset_reset must be one of latest, earliest, none, or by_duration:P1DT2H with a duration, not {text!r}"
            + ("" if meant is None else f"; did you mean {meant}?")
        )
    days, hours, minutes, seconds = (float(group) if group else 0.0 for group in match.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@dataclass(frozen=True, kw_only=True)
class _Config:
    """What all settings share: names in two spellings, conversion, checks."""

    def __new__(cls, **settings: Any) -> Self:
        made = super().__new__(cls)
        made.__dict__["_given"] = frozenset(settings)
        return made

    def __post_init__(self) -> None:
        cls: Any = type(self)
        hints = _hints(cls)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            try:
                value = convert(hints[field.name], value)
            except ValueError as failure:
                raise ConfigError(f"{field.name} must be {failure}" + (f", not {value!r}" if field.repr else "")) from None
            check = field.metadata.get("check")
            problem = check.problem(value) if check is not None and value is not None else None
            if problem:
                raise ConfigError(f"{field.name} {problem}" + (f", not {value!r}" if field.repr else ""))
            object.__setattr__(self, field.name, value)
        self._check()

    def _check(self) -> None:
        """Rules between fields; extended by subclasses."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all settings, snake_cased."""
        return tuple(field.name for field in dataclasses.fields(cls))

    @classmethod
    def from_user(cls, mapping: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        """Builds the settings from what a user wrote.

        Args:
            mapping: settings under dotted or snake_cased names.
            **settings: more of them, as keywords.

        Returns:
            The checked settings.

        Raises:
            ConfigError: an unknown name (the nearest known one is named), a name given twice, or a value that is refused.
        """
        known = set(cls.names())
        found: dict[str, Any] = {}
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"settings are a mapping, as {{'bootstrap.servers': ...}}, or keywords, not {mapping!r}")
        for given, value in [*(mapping or {}).items(), *settings.items()]:
            if not isinstance(given, str):
                raise ConfigError(f"a setting's name must be a string, not {given!r}")
            name = given.replace(".", "_")
            if name not in known and (later := _LATER.get("kerberos" if name.startswith("sasl_kerberos_") else name)):
                raise ConfigError(f"{given} belongs to {later} not implemented yet: leave it out")
            if name not in known:
                raise ConfigError(f"unknown setting {given!r} for {cls.__name__}{_meant(cls, given)}")
            if name in found:
                raise ConfigError(f"setting {given!r} is given twice")
            found[name] = value
        return cls(**found)

    def replace(self, **settings: Any) -> Self:
        """A copy with some settings changed, checked again."""
        copy = dataclasses.replace(self, **settings)
        copy.__dict__["_given"] = self.given | settings.keys()
        return copy

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that were set, also those set to their defaults."""
        names: frozenset[str] = self.__dict__["_given"]
        return names

    @classmethod
    @functools.cache
    def sentences(cls) -> Mapping[str, str]:
        """What each setting is, by name, as the docstring says; empty where Python leaves docstrings out (-OO)."""
        return sentences_of(cls.__doc__)


def _meant(cls: type[_Config], given: str) -> str:
    """What may be meant by a name that is no setting of this class, as the end of a sentence."""
    clients: dict[str, type[_Config]] = {"producers": ProducerConfig, "consumers": ConsumerConfig, "KafkaAdminClient": AdminConfig}
    others = {what: each.names() for what, each in clients.items() if each is not cls} if cls in clients.values() else {}
    return hint(given.replace(".", "_"), cls.names(), others, dotted="." in given)


_LATER = {
    "kerberos": "renewing tickets by a command of its own, which is",
}
"""Kafka's settings whose feature has its place but is not there: not a typing error, so the answer names the feature."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig(SecuritySettings, _Config):
    """Settings of every client, besides those of `SecuritySettings`.

    Attributes:
        bootstrap_servers: "host:port,host:port" or a list; at least one.
        client_id: sent with every request; shows in the brokers' logs and quotas.
        request_timeout_ms: how long one request may take before its connection is given up.
        retry_backoff_ms, retry_backoff_max_ms: pause before a retry; doubles up to the maximum, with 20% jitter (KIP-580).
        reconnect_backoff_ms, reconnect_backoff_max_ms: the same for connection attempts to one broker.
        socket_connection_setup_timeout_ms, socket_connection_setup_timeout_max_ms: the same for the time an attempt may take (KIP-601).
        connections_max_idle_ms: connections unused for so long are closed; -1 never.
        metadata_max_age_ms: metadata is refreshed at least this often.
        broker_version: 0.8, 0.9 or 0.10 for brokers that old: the client then speaks what Kafka 4 has dropped of the protocol as well.
            With 0.8 and 0.9 it does not ask what they speak: they close the connection of who asks. Consumers read from all three (groups
            need 0.9); today's producer writes nothing that they take, `kafkacore.legacy` does.
        send_buffer_bytes, receive_buffer_bytes: SO_SNDBUF and SO_RCVBUF; -1, the default, leaves them to the system, which grows them
            with the connection. Java's fixed sizes (128 and 32 KiB, for consumers 64 KiB) cut a 1 MiB answer into eleven reads.
        receive_message_max_bytes: bytes of one answer of a broker; a larger one ends the connection (librdkafka's name; the default is what
            the protocol can say, as in Java). Memory grows with what has arrived, not with what is announced. Answers of a broker that has
            not let the client in yet have 1 MiB.
    """

    bootstrap_servers: tuple[str, ...] = ()
    client_id: str = "kafkacore"
    request_timeout_ms: int = between(30_000, 1)
    retry_backoff_ms: int = between(100, 0)
    retry_backoff_max_ms: int = between(1_000, 0)
    reconnect_backoff_ms: int = between(50, 0)
    reconnect_backoff_max_ms: int = between(1_000, 0)
    socket_connection_setup_timeout_ms: int = between(10_000, 1)
    socket_connection_setup_timeout_max_ms: int = between(30_000, 1)
    connections_max_idle_ms: int = between(540_000, -1)
    metadata_max_age_ms: int = between(300_000, 0)
    broker_version: str | None = one_of(None, "0.8", "0.9", "0.10")
    send_buffer_bytes: int = between(-1, -1)
    receive_buffer_bytes: int = between(-1, -1)
    receive_message_max_bytes: int = between(INT32_MAX, 1_000)

    def __post_init__(self) -> None:
        for name in WORDS:  # in any case, as Java takes the first
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, value.upper())
        super().__post_init__()

    def _check(self) -> None:
        name, addresses = self._entry_points()
        if not addresses:
            raise ConfigError(f"{name} must name at least one broker, as host:port")
        for address in addresses:
            if not isinstance(address, str):
                raise ConfigError(f"{name} must hold strings, not {address!r}")
            parse_address(address)
        for low, high in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
        ):
            default = type(self).__dataclass_fields__[high].default
            if getattr(self, low) > getattr(self, high) == default:
                object.__setattr__(self, high, getattr(self, low))     # left as it is, the maximum follows
            elif getattr(self, low) > getattr(self, high):
                raise ConfigError(f"{low} ({getattr(self, low)}) must not exceed {high} ({getattr(self, high)})")
        self.check_security()

    @property
    def topic_creation(self) -> bool | None:
        """Whether brokers may create topics that this client writes to or reads: True, False, or None for no unless a broker (before
        Kafka 0.11) does so for being asked."""
        allowed: bool | None = getattr(self, "allow_auto_create_topics", None)
        return allowed if allowed or "allow_auto_create_topics" in self.given else None

    @property
    def asks_controllers(self) -> bool:
        """Whether the client is given the addresses of controllers, not of brokers."""
        return False

    def _entry_points(self) -> tuple[str, tuple[str, ...]]:
        """The setting that says where the cluster is, and its value."""
        return "bootstrap_servers", self.bootstrap_servers

    @property
    def bootstrap_addresses(self) -> list[tuple[str, int]]:
        """Where the cluster is, as hosts and ports."""
        return [parse_address(address) for address in self._entry_points()[1]]


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of `KafkaProducer`.

    Attributes:
        acks: 0, 1 or "all" (-1); always held as the number.
        enable_idempotence: sequence numbers, so that retries neither double nor reorder. Left out, it is on unless acks, retries or
            max_in_flight_requests_per_connection forbid it; given as True, such settings are refused.
        linger_ms: how long a batch waits for company.
        batch_size: bytes of a batch; 0 sends every record alone. `send_many` goes by send_many_batch_size where that is more.
        send_many_batch_size: bytes of a batch of `KafkaProducer.send_many`, at most (256 KiB with a codec); 0 leaves it to batch_size.
        buffer_memory: bytes for records not yet delivered.
        max_block_ms: how long send may wait for memory or metadata.
        max_request_size: bytes of one record and of one request.
        max_in_flight_requests_per_connection: requests unanswered at a time per broker; at most 5 with idempotence.
        retries: how often a batch may be sent again, within delivery_timeout_ms.
        delivery_timeout_ms: from send to success or failure; at least linger_ms + request_timeout_ms, which it follows unless set.
        compression_type: none, gzip, snappy, lz4 or zstd; None is none.
        compression_gzip_level, compression_lz4_level, compression_zstd_level: None for the codec's default.
        partitioner: "murmur2" (keyed by Kafka's hash, unkeyed sticky), "round_robin", a callable, or one of librdkafka's, whose keys go
            where it sends them: "consistent_random", its default (CRC-32; an empty key counts as none), "murmur2_random" (what "murmur2"
            is here), "fnv1a_random"; or one that treats no key as an empty key, which is one partition for all: "consistent" (CRC-32),
            "fnv1a", and for librdkafka's "murmur2" "murmur2_null_too".
        partitioner_ignore_keys: keyed records are spread like unkeyed ones.
        partitioner_rack_aware: unkeyed records go to partitions whose leader is in client_rack, as long as there are any (KIP-1123).
        client_rack: the rack of this client.
        partitioner_adaptive_partitioning_enable: unkeyed records favour brokers with short queues (KIP-794).
        partitioner_availability_timeout_ms: brokers that took no batch for so long get no unkeyed records; 0 turns this off.
        key_serializer, value_serializer: `f(value) -> bytes`, or an object with `serialize(topic, value)`; None takes bytes-like and
            str (UTF-8).
        interceptors: objects with `on_send(record)` and `on_acknowledgement(metadata, error)`, called in this order.
        transactional_id: the name under which this producer writes transactions; a producer that takes it over fences the one before. Needs
            enable_idempotence.
        transaction_timeout_ms: the coordinator aborts a transaction that is open for so long; at most the broker's
            transaction.max.timeout.ms.
        transaction_two_phase_commit_enable: the coordinator does not abort transactions after a time (KIP-939). Kafka 4.3 takes this if its
            own transaction.two.phase.commit.enable and unstable.api.versions.enable are set; `init_transactions` fails elsewhere. It goes
            without transaction_timeout_ms.
        allow_auto_create_topics: brokers may create a topic that is sent to and does not exist, if their own settings allow that too.
    """

    acks: int = -1
    enable_idempotence: bool = _DERIVED
    linger_ms: int = between(5, 0)
    batch_size: int = between(16_384, 0)
    send_many_batch_size: int = between(1_048_576, 0)
    buffer_memory: int = between(33_554_432, 1, INT64_MAX)
    max_block_ms: int = between(60_000, 0, INT64_MAX)
    max_request_size: int = between(1_048_576, 0)
    max_in_flight_requests_per_connection: int = between(5, 1)
    retries: int = between(INT32_MAX, 0)
    delivery_timeout_ms: int = between(120_000, 0)
    compression_type: str = one_of("none", *COMPRESSION_TYPES)
    compression_gzip_level: int | None = between(None, 1, 9)
    compression_lz4_level: int | None = between(None, 1, 17)
    compression_zstd_level: int | None = between(None, -131_072, 22)
    partitioner: PartitionerName | Partitioner = "murmur2"
    partitioner_ignore_keys: bool = False
    partitioner_rack_aware: bool = False
    client_rack: str = ""
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = between(0, 0)
    key_serializer: Serializer | TopicSerializer | None = None
    value_serializer: Serializer | TopicSerializer | None = None
    interceptors: tuple[Any, ...] = ()
    transactional_id: str | None = None
    transaction_timeout_ms: int = between(60_000, 1)
    transaction_two_phase_commit_enable: bool = False
    allow_auto_create_topics: bool = True

    def __post_init__(self) -> None:
        acks = _ACKS.get(str(self.acks).strip().lower())
        if acks is None or isinstance(self.acks, bool):
            raise ConfigError(f"acks must be 0, 1 or all (-1), not {self.acks!r}")
        object.__setattr__(self, "acks", acks)
        uncompressed = self.compression_type is None     # the default of other clients
        if uncompressed:
            object.__setattr__(self, "compression_type", "none")
        derived = self.enable_idempotence is None
        if derived:
            object.__setattr__(self, "enable_idempotence", True)
        super().__post_init__()
        obstacles = [
            rule
            for rule, broken in (
                ("acks=all", self.acks != -1),
                ("retries above 0", self.retries == 0),
                ("max_in_flight_requests_per_connection of at most 5", self.max_in_flight_requests_per_connection > 5),
            )
            if broken
        ]
        if self.transactional_id is not None:
            if not self.transactional_id:
                raise ConfigError("transactional_id must not be empty")
            if not self.enable_idempotence:
                obstacles.append("enable_idempotence")
            if obstacles:
                raise ConfigError(f"transactional_id needs {' and '.join(obstacles)}")
        elif self.transaction_two_phase_commit_enable:
            raise ConfigError("transaction_two_phase_commit_enable needs transactional_id")
        if obstacles and derived:
            object.__setattr__(self, "enable_idempotence", False)
        elif obstacles and self.enable_idempotence:
            raise ConfigError(f"enable_idempotence needs {' and '.join(obstacles)}")
        if self.partitioner_rack_aware and not self.client_rack.strip():
            raise ConfigError("partitioner_rack_aware needs client_rack")

    def _check(self) -> None:
        super()._check()
        if self.transaction_two_phase_commit_enable and "transaction_timeout_ms" in self.given:
            raise ConfigError("transaction_timeout_ms has no meaning with transaction_two_phase_commit_enable: set one of the two")
        least_ms = self.linger_ms + self.request_timeout_ms
        default: int = type(self).__dataclass_fields__["delivery_timeout_ms"].default  # type: ignore[assignment]
        if self.delivery_timeout_ms == default < least_ms:
            object.__setattr__(self, "delivery_timeout_ms", min(least_ms, INT32_MAX))     # left as it is, it follows, as in Java
        elif self.delivery_timeout_ms < least_ms:
            raise ConfigError(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms + request_timeout_ms"
                f" ({self.linger_ms} + {self.request_timeout_ms})"
            )

    @property
    def compression_level(self) -> int | None:
        """The level set for the chosen codec, None for its default."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level


_CONSUMER_INTERCEPTS = ("on_consume", "on_consume_batch", "on_commit")


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of `KafkaConsumer`.

    Attributes:
        default_api_timeout_ms: bound of calls that name no timeout of their own.
        fetch_min_bytes: a broker answers once it has so many bytes,
        fetch_max_wait_ms: or after so long.
        fetch_max_bytes: bytes of one answer, as a soft limit: the first batch always comes whole.
        max_partition_fetch_bytes: the same for one partition.
        max_poll_records: records one poll returns at most.
        auto_offset_reset: where a partition without position starts: latest, earliest, by_duration:P1DT2H (so long ago by the clock of this
            machine, KIP-1106) or none (an error).
        isolation_level: read_uncommitted or read_committed.
        check_crcs: batches are checked against their CRC-32C.
        max_decompressed_bytes: the most bytes that one compressed batch may hold uncompressed; reading a larger one raises
            DecompressedTooLarge. Java's consumer has no such bound.
        key_deserializer, value_deserializer: `f(data) -> value`, or an object with `deserialize(topic, data)`; None leaves bytes.
        client_rack: the rack of this client; lets brokers name a nearer replica (KIP-392), and assignors prefer partitions near to it.
        group_id: of the consumer group: its members share the partitions of their topics, and it keeps the committed offsets.
        group_instance_id: of a static member (KIP-345): it may restart within the session timeout without a rebalance.
        group_protocol: classic (members share out partitions among themselves) or consumer (the broker does, KIP-848).
        group_remote_assignor: with group_protocol=consumer, the broker's assignor: uniform or range; None leaves the choice to the broker.
        partition_assignment_strategy: with group_protocol=classic, the assignors in the order of preference: range, roundrobin, sticky,
            cooperative-sticky (or Java's class names), classes derived from `PartitionAssignor`, or instances of them. Members of a group
            need one in common. The default shares out by range, and lets a group change to cooperative-sticky by one rolling restart.
        session_timeout_ms: a classic member that the coordinator has not heard from for so long is out.
        heartbeat_interval_ms: between two heartbeats of a classic member; after a cooperative rebalance the first few come sooner.
        max_poll_interval_ms: a member that does not poll for so long leaves its group.
        enable_auto_commit: what the previous poll returned is committed regularly, and when partitions are given up.
        auto_commit_interval_ms: how often.
        allow_auto_create_topics: brokers may create a topic that is subscribed to or assigned and does not exist, if their own settings
            allow that too. Java's default is True. Questions (`end_offsets`, `partitions_for`, `read`) never create a topic. Brokers before
            Kafka 0.11 create topics by their own setting alone: False, when it is set, refuses to talk to them.
        exclude_internal_topics: a pattern does not match the brokers' own topics.
        interceptors: objects with any of `on_consume(records)`, `on_consume_batch(batches)`, `on_commit(offsets)` and `close()`, called in
            this order; see `kafkacore.ConsumerInterceptor`.
    """

    default_api_timeout_ms: int = between(60_000, 0)
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = one_of("classic", "classic", "consumer")
    group_remote_assignor: str | None = None
    partition_assignment_strategy: tuple[Any, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: int = between(45_000, 1)
    heartbeat_interval_ms: int = between(3_000, 1)
    max_poll_interval_ms: int = between(300_000, 1)
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = between(5_000, 0)
    allow_auto_create_topics: bool = False
    exclude_internal_topics: bool = True
    fetch_min_bytes: int = between(1, 0)
    fetch_max_bytes: int = between(52_428_800, 0)
    fetch_max_wait_ms: int = between(500, 0)
    max_partition_fetch_bytes: int = between(1_048_576, 0)
    max_poll_records: int = between(500, 1)
    auto_offset_reset: str = "latest"
    isolation_level: str = one_of("read_uncommitted", "read_uncommitted", "read_committed")
    check_crcs: bool = True
    max_decompressed_bytes: int = between(134_217_728, 1)
    key_deserializer: Deserializer | TopicDeserializer | None = None
    value_deserializer: Deserializer | TopicDeserializer | None = None
    client_rack: str = ""
    interceptors: tuple[Any, ...] = ()

    def _check(self) -> None:
        super()._check()
        for interceptor in self.interceptors:
            if isinstance(interceptor, (str, type)) or not any(hasattr(interceptor, m) for m in _CONSUMER_INTERCEPTS):
                raise ConfigError(f"interceptors: {interceptor!r} is no object with {', '.join(_CONSUMER_INTERCEPTS[:-1])} or on_commit")
        if self.group_protocol == "consumer":
            classic = self.given & {"session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"}
            if classic:
                raise ConfigError(f"{', '.join(sorted(classic))}: not with group_protocol=consumer, where the broker decides it")
        if self.group_remote_assignor is not None and self.group_protocol == "classic":
            raise ConfigError("group_remote_assignor belongs to group_protocol=consumer")
        if self.group_id is not None and not self.group_id.strip():
            raise ConfigError("group_id is empty")
        instance = self.group_instance_id
        if instance is not None and (not _INSTANCE_ID.fullmatch(instance) or instance in (".", "..")):
            raise ConfigError(f"group_instance_id: up to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', not {instance!r:.100}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be lower than session_timeout_ms ({self.session_timeout_ms})"
            )
        if self.auto_offset_reset not in ("latest", "earliest", "none"):
            reset_duration_ms(self.auto_offset_reset)


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of `KafkaAdminClient`.

    Attributes:
        bootstrap_controllers: "host:port,host:port" or a list of controllers, in the place of bootstrap_servers: the calls that the active
            controller serves go to it, also while no broker runs (KIP-919; Kafka 3.7).
        default_api_timeout_ms: bound of calls that name no timeout of their own.
        retries: how often a call may be tried again, within default_api_timeout_ms.
    """

    bootstrap_controllers: tuple[str, ...] = ()
    default_api_timeout_ms: int = between(60_000, 0)
    retries: int = between(INT32_MAX, 0)

    def _check(self) -> None:
        if bool(self.bootstrap_servers) == bool(self.bootstrap_controllers):
            what = "not both" if self.bootstrap_servers else "at least one, as host:port"
            raise ConfigError(f"bootstrap_servers must name brokers, or bootstrap_controllers controllers; {what}")
        if self.bootstrap_controllers and self.broker_version is not None:
            raise ConfigError(f"broker_version={self.broker_version} is for brokers, and bootstrap_controllers names controllers")
        super()._check()

    @property
    def asks_controllers(self) -> bool:
        """Whether the client is given the addresses of controllers, not of brokers."""
        return bool(self.bootstrap_controllers)

    def _entry_points(self) -> tuple[str, tuple[str, ...]]:
        if self.bootstrap_controllers:
            return "bootstrap_controllers", self.bootstrap_controllers
        return super()._entry_points()


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(config_broker_tls.BrokerTls, config_kerberos.BrokerKerberos, _Config):
    """Settings of an embedded broker, under Kafka's names; topic settings are the defaults of new topics.

    Attributes:
        auto_create_topics_enable: a Metadata request may create the topics it names.
        num_partitions: of topics created without a number.
        default_replication_factor: of topics created without one.
        delete_topic_enable: DeleteTopics is served.
        message_max_bytes: bytes of one record batch.
        socket_request_max_bytes: bytes of one request.
        socket_send_buffer_bytes, socket_receive_buffer_bytes: SO_SNDBUF and SO_RCVBUF; -1 leaves the system's default.
        connections_max_idle_ms: connections unused for so long are closed; -1 never.
        max_connections: with so many open, further ones wait to be accepted.
        max_connections_per_ip: an address with so many open has further ones closed at once.
        max_connections_per_ip_overrides: other limits for some addresses or names, like "127.0.0.1:200,some.host:5".
        max_connection_creation_rate: connections accepted per second; more wait.
        queued_max_request_bytes: bytes that the requests of all connections may hold; while they do, no new one is read. -1 stands for a
            quarter of the machine's memory.
        fetch_max_bytes: bytes of one Fetch answer, whatever the client asks for.
        log_message_timestamp_type: CreateTime or LogAppendTime.
        log_message_timestamp_before_max_ms: how far behind the broker a producer's timestamp may be.
        log_message_timestamp_after_max_ms: how far ahead of the broker a producer's timestamp may be.
        log_retention_ms: batches older than this are deleted, in whole segments; -1 keeps them.
        log_retention_bytes: a partition larger than this loses its oldest segments; -1 for no limit.
        log_memory_max_bytes: what all logs of a broker in memory may hold together; beyond it the largest lose their oldest segments, and
            a warning says so. 0 means no limit, -1 a quarter of the machine's memory, shared by the brokers of an
            EmbeddedCluster. Not a setting of Kafka.
        log_segment_bytes: the largest segment; in memory a segment never exceeds 16 MiB.
        log_cleanup_policy: delete (old segments go), compact (of every key the last value stays), or both with a comma.
        log_cleaner_backoff_ms: how often is looked for something to compact.
        log_cleaner_dedupe_buffer_size: bytes of the map of keys of one compaction.
        log_cleaner_delete_retention_ms: how long a compacted log keeps tombstones.
        log_cleaner_min_cleanable_ratio: a log is compacted when its dirty part is larger than this part of it.
        log_cleaner_min_compaction_lag_ms: records younger than this are not compacted.
        log_cleaner_max_compaction_lag_ms: records older than this are compacted, however small the dirty part is.
        compression_type: producer leaves batches as they come; uncompressed or a codec's name turns them into that.
        compression_gzip_level, compression_lz4_level, compression_zstd_level: of batches the broker compresses.
        log_roll_ms: a segment ends after so long, even if it is small.
        log_roll_jitter_ms: up to so much earlier, at random, so that not all partitions begin new segments at once.
        log_index_size_max_bytes: a segment ends when its offset or time index has so many bytes.
        log_index_interval_bytes: bytes of batches between two entries of an index.
        log_flush_interval_messages: so many records of a partition are on the disk (fsync) before another one is acknowledged.
        log_flush_interval_ms: after so long at the latest a partition's records are on the disk.
        log_segment_delete_delay_ms: files of deleted segments and partitions stay for so long under another name.
        log_preallocate: a segment's file has its full length from the beginning.
        log_flush_offset_checkpoint_interval_ms: how often it is noted up to where records are on the disk.
        replica_high_watermark_checkpoint_interval_ms: how often high watermarks are noted.
        log_retention_check_interval_ms: how often retention is applied and idle producers are forgotten.
        min_insync_replicas: replicas that must be in sync for a write with acks=all.
        socket_connection_setup_timeout_ms, socket_connection_setup_timeout_max_ms: how long an attempt to connect to another broker may
            take; doubles with every failure up to the maximum.
        replica_lag_time_max_ms: a follower that has not caught up for so long leaves the ISR.
        replica_fetch_wait_max_ms, replica_fetch_min_bytes: a follower's Fetch waits so long for so much.
        replica_fetch_max_bytes: bytes a follower fetches of one partition at a time.
        replica_fetch_response_max_bytes: bytes it fetches from one leader at a time.
        replica_fetch_backoff_ms: the longest rest of a partition that could not be fetched.
        replica_socket_timeout_ms: how long another broker may take to answer a follower.
        replica_selector_class: the rack-aware selector sends consumers to an in-sync replica in their rack; without it they
            stay with the leader.
        max_incremental_fetch_session_cache_slots: fetch sessions remembered.
        max_request_partition_size_limit: partitions of one DescribeTopicPartitions answer.
        producer_id_expiration_ms: an idle producer's sequence numbers are forgotten after so long.
        broker_rack: sent to clients with the metadata.
        offsets_topic_num_partitions: of __consumer_offsets, when it is made.
        offsets_topic_replication_factor: of __consumer_offsets; at most the brokers there are when it is made.
        offsets_topic_segment_bytes: segment.bytes of __consumer_offsets.
        offsets_commit_timeout_ms: how long an answer of the group coordinator waits until what it says is committed.
        offset_metadata_max_bytes: the longest metadata that a committed offset may carry.
        offsets_retention_minutes: how long an offset is kept that no member needs: since its group is empty, or since it was committed.
        offsets_retention_check_interval_ms: how often that is looked at.
        group_min_session_timeout_ms, group_max_session_timeout_ms: limits of what a classic member may ask for.
        group_initial_rebalance_delay_ms: how long the first rebalance of a group waits for more members; Kafka waits 3000 ms.
        group_max_size: members of a classic group.
        group_consumer_session_timeout_ms: a member of a consumer group (KIP-848) that is not heard of for so long is out.
        group_consumer_heartbeat_interval_ms: how often members of consumer groups shall send a heartbeat.
        group_consumer_max_size: members of a consumer group.
        group_consumer_assignment_interval_ms: how long a consumer group keeps a target assignment at least; Kafka waits 1000 ms. One of 200
            members or more keeps it for 1 ms per ten members at least.
        group_consumer_migration_policy: whether groups with members change between the protocols: bidirectional, upgrade (to the consumer
            protocol), downgrade, or disabled.
        group_consumer_regex_refresh_interval_ms: how often subscribed regular expressions are matched again if topics did not change.
        transaction_state_log_num_partitions: of __transaction_state, when it is made.
        transaction_state_log_replication_factor: of __transaction_state; at most the brokers there are when it is made.
        transaction_state_log_min_isr: min.insync.replicas of __transaction_state; at most its replicas.
        transaction_state_log_segment_bytes: segment.bytes of __transaction_state.
        request_timeout_ms: how long an answer of the transaction coordinator, and a transaction marker, wait for their commit, and how long
            another broker may take to answer.
        transaction_max_timeout_ms: the longest transaction.timeout.ms a producer may ask for.
        transactional_id_expiration_ms: a transactional id that was not used for so long is forgotten.
        transaction_remove_expired_transaction_cleanup_interval_ms: how often expired transactional ids are looked for.
        transaction_partition_verification_enable: leaders ask the coordinator before they write a transaction's first batch (KIP-890).
        add_partitions_to_txn_retry_backoff_ms: a leader asks again after this time while the last transaction is being ended.
        add_partitions_to_txn_retry_backoff_max_ms: after so long it lets the producer try again instead.
        metadata_log_max_record_bytes_between_snapshots: after so many bytes of the metadata log its state is written as a snapshot.
        metadata_log_max_snapshot_interval_ms: or with the first change after so long; 0 for never.
        metadata_log_segment_bytes, metadata_log_segment_ms: of the metadata log.
        metadata_max_retention_bytes: beyond so many bytes of metadata log and snapshots the oldest snapshot goes, and the log before the
            next one; -1 for no limit.
        metadata_max_retention_ms: so does a snapshot that is older than this.
        broker_heartbeat_interval_ms: how often a broker of several tells the controller that it lives.
        broker_session_timeout_ms: a broker silent for so long loses what it leads.
        security_inter_broker_protocol: of the listener, for brokers and clients alike: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        listeners: where the broker listens, as NAME://host:port, several with commas; left out, at one port on loopback. An empty host,
            0.0.0.0 and [::] are every address of the machine.
        advertised_listeners: the addresses that clients of each listener are given, where they are others than those it listens on.
        listener_security_protocol_map: the protocol of each listener, as NAME:PROTOCOL; left out, names are protocols.
        inter_broker_listener_name: the listener by which brokers reach each other; left out, the one named as
            security_inter_broker_protocol says.
        sasl_enabled_mechanisms: what clients may use; PLAIN and SCRAM if left out. OAUTHBEARER must be named: it admits
            anyone who brings an unsigned token; and GSSAPI, which needs a keytab (`BrokerKerberos`).
        sasl_jaas_config: PlainLoginModule with username and password, as which brokers log in at each other, and PLAIN's users as
            user_NAME="password".
        connections_max_reauth_ms: after so long a client has to authenticate again; 0 for never.
        sasl_server_max_receive_size: bytes of one request of a client that has not authenticated yet.
        connection_failed_authentication_delay_ms: how long the answer to a failed authentication, and the end of its connection, wait.
        authorizer_class_name: org.apache.kafka.metadata.authorizer.StandardAuthorizer has every request checked against the cluster's ACLs;
            empty, everybody may do everything.
        super_users: the principals that may do everything, as User:admin, several with semicolons. The brokers' own must be among them:
            User:ANONYMOUS where they reach each other by PLAINTEXT.
        allow_everyone_if_no_acl_found: whether a resource that has no ACL is open to all.
        unclean_leader_election_enable: a replica that is not in sync may lead if no other is alive, at the price of lost records.
        unclean_leader_election_interval_ms: how often partitions without a leader are looked at that may be led so by now.
        auto_leader_rebalance_enable, leader_imbalance_check_interval_seconds: whether and how often first replicas that can lead again are
            made to.
        quota_window_num, quota_window_size_seconds: how many windows, of how many seconds each, count for quotas of bytes, of the brokers'
            time and of new connections.
        controller_quota_window_num, controller_quota_window_size_seconds: the same for controller_mutation_rate.
    """

    auto_create_topics_enable: bool = True
    num_partitions: int = between(1, 1)
    default_replication_factor: int = between(1, 1)
    delete_topic_enable: bool = True
    message_max_bytes: int = between(1_048_588, 0)
    socket_request_max_bytes: int = between(104_857_600, 1)
    socket_send_buffer_bytes: int = between(102_400, -1)
    socket_receive_buffer_bytes: int = between(102_400, -1)
    connections_max_idle_ms: int = between(600_000, -1)
    max_connections: int = between(INT32_MAX, 0)
    max_connections_per_ip: int = between(INT32_MAX, 0)
    max_connections_per_ip_overrides: str = ""
    max_connection_creation_rate: int = between(INT32_MAX, 1)
    queued_max_request_bytes: int = between(-1, -1, INT64_MAX)
    fetch_max_bytes: int = between(57_671_680, 1_024)
    log_message_timestamp_type: str = one_of("CreateTime", "CreateTime", "LogAppendTime")
    log_message_timestamp_before_max_ms: int = between(INT64_MAX, 0, INT64_MAX)
    log_message_timestamp_after_max_ms: int = between(3_600_000, 0, INT64_MAX)
    log_retention_ms: int = between(604_800_000, -1, INT64_MAX)
    log_retention_bytes: int = between(-1, -1, INT64_MAX)
    log_memory_max_bytes: int = between(-1, -1, INT64_MAX)
    log_segment_bytes: int = between(1_073_741_824, 1_048_576)
    log_cleanup_policy: str = one_of("delete", "delete", "compact", "compact,delete", "delete,compact")
    log_cleaner_backoff_ms: int = between(15_000, 0, INT64_MAX)
    log_cleaner_dedupe_buffer_size: int = between(134_217_728, 1, INT64_MAX)
    log_cleaner_delete_retention_ms: int = between(86_400_000, 0, INT64_MAX)
    log_cleaner_min_cleanable_ratio: float = between(0.5, 0, 1)
    log_cleaner_min_compaction_lag_ms: int = between(0, 0, INT64_MAX)
    log_cleaner_max_compaction_lag_ms: int = between(INT64_MAX, 1, INT64_MAX)
    compression_type: str = one_of("producer", *TOPIC_COMPRESSION_TYPES)
    compression_gzip_level: int = between(-1, -1, 9)
    compression_lz4_level: int = between(9, 1, 17)
    compression_zstd_level: int = between(3, -131_072, 22)
    log_roll_ms: int = between(604_800_000, 1, INT64_MAX)
    log_roll_jitter_ms: int = between(0, 0, INT64_MAX)
    log_index_size_max_bytes: int = between(10_485_760, 4)
    log_index_interval_bytes: int = between(4_096, 0)
    log_flush_interval_messages: int = between(INT64_MAX, 1, INT64_MAX)
    log_flush_interval_ms: int = between(INT64_MAX, 0, INT64_MAX)
    log_segment_delete_delay_ms: int = between(60_000, 0, INT64_MAX)
    log_preallocate: bool = False
    log_flush_offset_checkpoint_interval_ms: int = between(60_000, 0)
    replica_high_watermark_checkpoint_interval_ms: int = between(5_000, 1, INT64_MAX)
    log_retention_check_interval_ms: int = between(300_000, 1)
    min_insync_replicas: int = between(1, 1)
    socket_connection_setup_timeout_ms: int = between(10_000, 1)
    socket_connection_setup_timeout_max_ms: int = between(30_000, 1)
    replica_lag_time_max_ms: int = between(30_000, 1)
    replica_fetch_wait_max_ms: int = between(500, 1)
    replica_fetch_min_bytes: int = between(1, 1)
    replica_fetch_max_bytes: int = between(1_048_576, 0)
    replica_fetch_response_max_bytes: int = between(10_485_760, 0)
    replica_fetch_backoff_ms: int = between(1_000, 0)
    replica_socket_timeout_ms: int = between(30_000, 1)
    replica_selector_class: str | None = one_of(None, "org.apache.kafka.common.replica.RackAwareReplicaSelector")
    max_incremental_fetch_session_cache_slots: int = between(1_000, 0)
    max_request_partition_size_limit: int = between(2_000, 1)
    producer_id_expiration_ms: int = between(86_400_000, 1)
    broker_rack: str | None = None
    offsets_topic_num_partitions: int = between(50, 1)
    offsets_topic_replication_factor: int = between(3, 1)
    offsets_topic_segment_bytes: int = between(104_857_600, 1_048_576)
    offsets_commit_timeout_ms: int = between(5_000, 1)
    offset_metadata_max_bytes: int = between(4_096, 0)
    offsets_retention_minutes: int = between(10_080, 1)
    offsets_retention_check_interval_ms: int = between(600_000, 1)
    group_min_session_timeout_ms: int = between(6_000, 1)
    group_max_session_timeout_ms: int = between(1_800_000, 1)
    group_initial_rebalance_delay_ms: int = between(0, 0)
    group_max_size: int = between(INT32_MAX, 1)
    group_consumer_session_timeout_ms: int = between(45_000, 1)
    group_consumer_heartbeat_interval_ms: int = between(5_000, 1)
    group_consumer_max_size: int = between(INT32_MAX, 1)
    group_consumer_assignment_interval_ms: int = between(0, 0)
    group_consumer_migration_policy: str = one_of("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
    group_consumer_regex_refresh_interval_ms: int = between(600_000, 10_000)
    transaction_state_log_num_partitions: int = between(50, 1)
    transaction_state_log_replication_factor: int = between(3, 1)
    transaction_state_log_min_isr: int = between(2, 1)
    transaction_state_log_segment_bytes: int = between(104_857_600, 1_048_576)
    request_timeout_ms: int = between(30_000, 1)
    transaction_max_timeout_ms: int = between(900_000, 1)
    transactional_id_expiration_ms: int = between(604_800_000, 1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = between(3_600_000, 1)
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = between(20, 1)
    add_partitions_to_txn_retry_backoff_max_ms: int = between(100, 0)
    metadata_log_max_record_bytes_between_snapshots: int = between(20_971_520, 1, INT64_MAX)
    metadata_log_max_snapshot_interval_ms: int = between(3_600_000, 0, INT64_MAX)
    metadata_log_segment_bytes: int = between(1_073_741_824, 8_388_608)
    metadata_log_segment_ms: int = between(604_800_000, 1, INT64_MAX)
    metadata_max_retention_bytes: int = between(104_857_600, -1, INT64_MAX)
    metadata_max_retention_ms: int = between(604_800_000, -1, INT64_MAX)
    broker_heartbeat_interval_ms: int = between(2_000, 1)
    broker_session_timeout_ms: int = between(9_000, 1)
    security_inter_broker_protocol: str = one_of("PLAINTEXT", *config_security.SECURITY_PROTOCOLS)
    listeners: tuple[str, ...] | None = None
    advertised_listeners: tuple[str, ...] | None = None
    listener_security_protocol_map: tuple[str, ...] | None = None
    inter_broker_listener_name: str | None = None
    sasl_enabled_mechanisms: tuple[str, ...] | None = None
    sasl_jaas_config: str | None = dataclasses.field(default=None, repr=False)
    connections_max_reauth_ms: int = between(0, 0, INT64_MAX)
    sasl_server_max_receive_size: int = between(524_288, 0)
    connection_failed_authentication_delay_ms: int = between(100, 0)
    authorizer_class_name: str = ""
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False
    unclean_leader_election_enable: bool = False
    unclean_leader_election_interval_ms: int = between(300_000, 1, INT64_MAX)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = between(300, 1, INT64_MAX)
    quota_window_num: int = between(11, 1)
    quota_window_size_seconds: int = between(1, 1)
    controller_quota_window_num: int = between(11, 1)
    controller_quota_window_size_seconds: int = between(1, 1)

    @classmethod
    def from_user(cls, mapping: Mapping[str, Any] | None = None, /, **settings: Any) -> Self:
        if isinstance(mapping, Mapping):
            mapping = config_kerberos.gathered_by_listener(config_broker_tls.gathered(mapping))
        return super().from_user(mapping, **settings)

    @classmethod
    @functools.cache
    def sentences(cls) -> Mapping[str, str]:
        parts = (config_broker_tls.BrokerTls, config_kerberos.BrokerKerberos, cls)
        return {name: text for part in parts for name, text in sentences_of(part.__doc__).items()}

    def _check(self) -> None:
        super()._check()
        self.connection_overrides()
        listeners = config_listeners.listeners_of(self)
        with_sasl = self._sasl_listeners(listeners)
        config_security.check_broker_sasl(self, bool(with_sasl))
        config_security.check_broker_kerberos(self, self.sasl_mechanisms(), with_sasl)
        config_broker_tls.check_tls(self, listeners)
        config_authorizer.check_authorizer(self, self._own_principal(config_listeners.inter_broker(self, listeners)))
        if self.queued_max_request_bytes >= 0 and self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued_max_request_bytes ({self.queued_max_request_bytes}) must be -1 or at least socket_request_max_bytes"
                f" ({self.socket_request_max_bytes})"
            )

    @staticmethod
    def _sasl_listeners(listeners: tuple[config_listeners.Listener, ...]) -> list[str]:
        return [each.name for each in listeners if each.protocol.startswith("SASL_")]

    def gssapi_keytab(self) -> config_kerberos.BrokerKeytab:
        """The broker's keys for GSSAPI, if that is among `sasl_mechanisms`."""
        return config_security.gssapi_keytab(self, self._sasl_listeners(config_listeners.listeners_of(self)))

    def _own_principal(self, own: config_listeners.Listener) -> str | None:
        """Who a broker is to the others; None where its certificate says it."""
        if own.protocol.startswith("SASL_"):
            return f"User:{self.plain_users()[0]}"
        shows = own.protocol == "SSL" and config_broker_tls.tls_of(self, own).server.client_auth != "none"
        return None if shows else config_authorizer.ANONYMOUS

    def sasl_mechanisms(self) -> tuple[str, ...]:
        """What clients may authenticate with."""
        return PASSWORD_MECHANISMS if self.sasl_enabled_mechanisms is None else self.sasl_enabled_mechanisms

    def plain_users(self) -> tuple[str, str, dict[str, str]]:
        """The brokers' own name and password, and the passwords of PLAIN's users."""
        return config_security.plain_users(self.sasl_jaas_config)

    def connection_overrides(self) -> dict[str, int]:
        """max_connections_per_ip_overrides, as host -> limit."""
        found: dict[str, int] = {}
        for entry in string_list(self.max_connections_per_ip_overrides):
            host, colon, limit = entry.rpartition(":")
            if not colon or not host or not limit.strip().isdecimal():
                raise ConfigError(f"max_connections_per_ip_overrides: {entry!r} is not of the form host:limit")
            found[host.strip().removeprefix("[").removesuffix("]")] = int(limit)
        return found
