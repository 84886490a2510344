"""Settings of clients, checked once and immutable afterwards; a broker's are in config_broker.py, and have their name here too.

Names are Kafka's, dotted in a mapping (`{"linger.ms": 5}`) or snake_cased as keywords; units are in the names; defaults are those of the
Java 4 clients and of a Kafka 4 broker. A setting is listed here only if the code honours it: an unknown name is refused with the nearest
known one, never ignored. To implement a setting, add its field and its check; to remove a setting, remove its field.

How a field is checked is in config_base.py.

Source: ProducerConfig, ConsumerConfig, AdminClientConfig of Apache Kafka 4.3.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kafkacore.bounds import UNPACKED_BYTES
from kafkacore.config_base import Settings
from kafkacore.config_broker import BrokerConfig as BrokerConfig
from kafkacore.config_names import RESETS
from kafkacore.config_plugins import loaded
from kafkacore.config_security import WORDS, SecuritySettings
from kafkacore.config_values import INT32_MAX, INT64_MAX, between, one_of, string_list
from kafkacore.errors import ConfigError

COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")

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


@typing.runtime_checkable
class TopicPartitioner(typing.Protocol):
    """A partitioner as an object (org.apache.kafka.clients.producer.Partitioner).

    It may as well have Java's arguments: partition(topic, key, key_bytes, value, value_bytes, cluster).
    """

    def partition(self, topic: str, key: Any, value: Any, cluster: Any, /) -> int:
        """Returns the partition of a record: its number."""


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



@dataclass(frozen=True, kw_only=True)
class ClientConfig(SecuritySettings, Settings):
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

    @classmethod
    def _of_others(cls) -> Mapping[str, Collection[str]]:
        clients: dict[str, type[ClientConfig]] = {"producers": ProducerConfig, "consumers": ConsumerConfig, "KafkaAdminClient": AdminConfig}
        return {what: each.names() for what, each in clients.items() if each is not cls} if cls in clients.values() else {}

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


_PARTITIONERS: tuple[str, ...] = typing.get_args(PartitionerName)
_PRODUCER_INTERCEPTS = ("on_send", "on_acknowledgement")


def _load(settings: Any, **wanted: str) -> None:
    """Puts classes in the place of their names.

    Args:
        settings: of a client.
        **wanted: settings, and what else each may be, for errors.
    """
    for name, what in wanted.items():
        value = getattr(settings, name)
        if name != "interceptors":
            object.__setattr__(settings, name, loaded(name, value, what))
        elif isinstance(value, (str, list, tuple)):
            object.__setattr__(settings, name, tuple(loaded(name, each, what) for each in string_list(value)))


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
        max_request_size: bytes of one record and of one request. A larger batch_size counts for no more than that.
        max_in_flight_requests_per_connection: requests unanswered at a time per broker; at most 5 with idempotence.
        retries: how often a batch may be sent again, within delivery_timeout_ms.
        delivery_timeout_ms: from send to success or failure; at least linger_ms + request_timeout_ms, which it follows unless set.
        compression_type: none, gzip, snappy, lz4 or zstd; None is none.
        compression_gzip_level, compression_lz4_level, compression_zstd_level: None for the codec's default.
        partitioner: "murmur2" (keyed by Kafka's hash, unkeyed sticky), "round_robin", a callable `f(topic, key, value, cluster)`, an object
            with `partition`, its class or "module:Class" (also as partitioner_class); or one of librdkafka's, whose keys go where it sends
            them: "consistent_random", its default (CRC-32; an empty key counts as none), "murmur2_random" (what "murmur2" is here),
            "fnv1a_random"; or one that treats no key as an empty key, which is one partition for all: "consistent" (CRC-32), "fnv1a", and
            for librdkafka's "murmur2" "murmur2_null_too".
        partitioner_ignore_keys: keyed records are spread like unkeyed ones.
        partitioner_rack_aware: unkeyed records go to partitions whose leader is in client_rack, as long as there are any (KIP-1123).
        client_rack: the rack of this client.
        partitioner_adaptive_partitioning_enable: unkeyed records favour brokers with short queues (KIP-794).
        partitioner_availability_timeout_ms: brokers that took no batch for so long get no unkeyed records; 0 turns this off.
        key_serializer, value_serializer: `f(value) -> bytes`, or an object with `serialize(topic, value)`, its class or "module:Class";
            None takes bytes-like and str (UTF-8).
        interceptors: objects with `on_send(record)` and `on_acknowledgement(metadata, error)`, called in this order; classes, or names as
            "module:Class,module:Class" (also as interceptor_classes).
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
    partitioner: PartitionerName | Partitioner | TopicPartitioner | type[Any] | str = "murmur2"
    partitioner_ignore_keys: bool = False
    partitioner_rack_aware: bool = False
    client_rack: str = ""
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = between(0, 0)
    key_serializer: Serializer | TopicSerializer | type[Any] | str | None = None
    value_serializer: Serializer | TopicSerializer | type[Any] | str | None = None
    interceptors: tuple[Any, ...] = ()
    transactional_id: str | None = None
    transaction_timeout_ms: int = between(60_000, 1)
    transaction_two_phase_commit_enable: bool = False
    allow_auto_create_topics: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.partitioner, str) or self.partitioner not in _PARTITIONERS:
            _load(self, partitioner=f"one of {', '.join(map(repr, _PARTITIONERS))} or a callable, an object with partition()")
        serializer = "a callable, an object with serialize()"
        _load(self, key_serializer=serializer, value_serializer=serializer, interceptors="objects")
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
        for interceptor in self.interceptors:
            if not any(hasattr(interceptor, m) for m in _PRODUCER_INTERCEPTS):
                raise ConfigError(f"interceptors: {interceptor!r} is no object with {' or '.join(_PRODUCER_INTERCEPTS)}")
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
            DecompressedTooLarge. A call that has unpacked as many hands them out and leaves the rest packed, for the next call. Java's
            consumer has no such bound.
        key_deserializer, value_deserializer: `f(data) -> value`, or an object with `deserialize(topic, data)`, its class or "module:Class";
            None leaves bytes.
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
            this order; see `kafkacore.ConsumerInterceptor`. Classes, or names as "module:Class,module:Class" (also as interceptor_classes).
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
    max_decompressed_bytes: int = between(UNPACKED_BYTES, 1)
    key_deserializer: Deserializer | TopicDeserializer | type[Any] | str | None = None
    value_deserializer: Deserializer | TopicDeserializer | type[Any] | str | None = None
    client_rack: str = ""
    interceptors: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        deserializer = "a callable, an object with deserialize()"
        _load(self, key_deserializer=deserializer, value_deserializer=deserializer, interceptors="objects")
        super().__post_init__()

    def _check(self) -> None:
        super()._check()
        for interceptor in self.interceptors:
            if not any(hasattr(interceptor, m) for m in _CONSUMER_INTERCEPTS):
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

