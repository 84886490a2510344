"""Kafka's settings: every name with its type, default and limits; how layers of them become the value in force; what may be altered.

Layers, the strongest first:

    topic or group override > broker, dynamic > all brokers, dynamic > broker, static (`BrokerConfig`) > Kafka's default

Which alterations are taken:

1. What Kafka refuses (unknown name, wrong type, out of limits, not dynamic) is refused with Kafka's words. [test_what_kafka_takes_is_taken,
   test_operations, test_limits_of_groups_are_the_brokers]
2. What the embedded broker implements is taken and obeyed. [test_what_is_obeyed_and_what_is_kept, test_altered_defaults_are_obeyed]
3. What only says how Kafka spends its threads, buffers and files (`HARMLESS`) is taken: no client could see whether it is obeyed.
   [test_what_is_obeyed_and_what_is_kept]
4. Everything else that Kafka takes is kept and described, as Kafka keeps what its plug-ins may want; it has no effect here, and the log
   says so. Security settings without a listener's prefix have none in Kafka either, but for listeners that are added.
   [test_what_has_no_effect_is_kept_and_shown_and_the_log_says_so, test_what_is_obeyed_and_what_is_kept]
5. What cannot be left without effect (`NOT_ALTERED`) can be set to the value in force alone. [test_what_kafka_takes_is_taken]

Source: org.apache.kafka.common.config.ConfigDef, kafka.server.{ConfigHelper, DynamicBrokerConfig}.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafkacore import config_broker_tables as tables
from kafkacore import errors
from kafkacore.config import BrokerConfig
from kafkacore.config_broker_tables import HARMLESS
from kafkacore.errors import ConfigError


class Resource(enum.IntEnum):
    """What settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(enum.IntEnum):
    """Where a value comes from. Source: DescribeConfigsResponse.ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(enum.IntEnum):
    """The type of a value. Source: DescribeConfigsResponse.ConfigType."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class ConfigKey(NamedTuple):
    """One setting.

    Attributes:
        name: Kafka's.
        type: of its value.
        default: as text; None for none.
        limits: as in the tables.
        link: as in the tables; "" for none.
    """

    name: str
    type: ConfigType
    default: str | None
    limits: str
    link: str

    @property
    def is_sensitive(self) -> bool:
        """Whether values are never shown."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> str:
        """Checks a value.

        Args:
            text: as a user wrote it.

        Returns:
            As Kafka writes it: without spaces around, truth values in small letters.

        Raises:
            InvalidConfiguration: in Kafka's words.

        Source: ConfigDef.parseType, ConfigDef.Range, ValidString, ValidList.
        """
        trimmed = text.strip()
        if self.type is ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise self._invalid(text, "Expected value to be either true or false")
            return trimmed.lower()
        if self.type in _BITS or self.type is ConfigType.DOUBLE:
            return self._parse_number(trimmed, text)
        if self.type is ConfigType.LIST:
            items = list(dict.fromkeys(item.strip() for item in trimmed.split(","))) if trimmed else []
            if "" in items:
                raise errors.InvalidConfiguration(f"Configuration '{self.name}' values must not be empty.")
            if self.limits == "replicas":
                self._check_replicas(items)
                return ",".join(items)
            for item in items:
                self._check_choice(item)
            return ",".join(items)
        self._check_choice(trimmed)
        return trimmed

    def _parse_number(self, trimmed: str, text: str) -> str:
        value: int | float
        try:
            value = float(trimmed) if self.type is ConfigType.DOUBLE else int(trimmed)
            if trimmed != trimmed.replace("_", "") or not trimmed.isascii():
                raise ValueError
            if self.type is not ConfigType.DOUBLE and not -(1 << _BITS[self.type]) <= value < 1 << _BITS[self.type]:
                raise ValueError
        except ValueError:
            raise self._invalid(text, f"Not a number of type {self.type.name}") from None
        ranges, _, other = self.limits.partition("|")
        low, _, high = ranges.partition("..")
        if other:
            if value != int(other) and not int(low) <= value <= int(high):
                raise self._invalid(trimmed, f"Value must be between {low} and {high} or equal to {other}")
        elif ranges != "*":
            if value < int(low):
                raise self._invalid(trimmed, f"Value must be at least {low}")
            if high and value > int(high):
                raise self._invalid(trimmed, f"Value must be no more than {high}")
        return str(value).replace("e+", "E").replace("e", "E")

    def _check_replicas(self, items: list[str]) -> None:
        """Source: org.apache.kafka.storage.internals.log.ThrottledReplicaListValidator."""
        if items != ["*"] and not all(_REPLICA.fullmatch(item) for item in items):
            raise self._invalid(
                f"[{', '.join(items)}]",
                f"{self.name} must be the literal '*' or a list of replicas in the following format:"
                " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )

    def _check_choice(self, value: str) -> None:
        if self.limits == "*":
            return
        choices = self.limits.removeprefix("~").split("/")
        if self.limits.startswith("~") and value.upper() in choices:
            return
        if value not in choices:
            raise self._invalid(value, f"String must be one of: {', '.join(choices)}")

    def _invalid(self, value: str, why: str) -> errors.InvalidConfiguration:
        return errors.InvalidConfiguration(f"Invalid value {value} for configuration {self.name}: {why}")


def _read(table: str) -> Mapping[str, ConfigKey]:
    keys = {}
    for row in table.split("\n"):
        if row:
            name, kind, default, limits, link = row.split(" ")
            text = None if default == "null" else "" if default == '""' else default
            keys[name] = ConfigKey(name, ConfigType[kind.upper()], text, limits, "" if link == "-" else link)
    return keys


@functools.cache
def broker_keys() -> Mapping[str, ConfigKey]:
    """All settings of a broker, by name."""
    return _read(tables.BROKER)


@functools.cache
def dynamic_keys() -> Mapping[str, ConfigKey]:
    """Settings that exist only while a broker runs, and are shown only where they are set."""
    return _read(tables.DYNAMIC_BROKER)


_OF_LISTENER = re.compile(r"listener\.name\.(?P<listener>[^.]*)\.(?P<name>.+)")
"""Source: DynamicBrokerConfig.LISTENER_CONFIG_REGEX."""
_OF_LISTENERS_OF_ALL = ("max.connection.creation.rate", "max.connections", "num.network.threads")
"""What may be set for a listener of all brokers at once. Source: DynamicBrokerConfig.CLUSTER_LEVEL_LISTENER_CONFIGS."""
_OF_MECHANISM = ("sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class", "sasl.server.callback.handler.class")
"""What stands behind the name of a mechanism. Source: DynamicBrokerConfig.LISTENER_MECHANISM_CONFIGS."""


def broker_key(name: str) -> ConfigKey:
    """A setting of a broker, also one with the prefix of a listener. One that Kafka does not know has no type: a plug-in may read it."""
    general = _general(name)
    key = broker_keys().get(general) or dynamic_keys().get(general)
    key = ConfigKey(name, ConfigType.UNKNOWN, None, "*", "") if key is None else key._replace(name=name)
    if _OF_LISTENER.fullmatch(name) is None or key.link == "fixed":
        return key
    return key._replace(link="cluster" if general in _OF_LISTENERS_OF_ALL else "broker")


AUTHORIZER_KEYS: Mapping[str, ConfigKey] = {
    name: ConfigKey(name, ConfigType.UNKNOWN, None, "*", "fixed") for name in ("super.users", "allow.everyone.if.no.acl.found")
}
"""What is read by the authorizer alone: no setting of Kafka's own, so it shows that they were set, without type and value."""


def _general(name: str) -> str:
    """A setting's name without the prefix of a listener."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return name
    return next((each for each in _OF_MECHANISM if match["name"].endswith(f".{each}")), match["name"])


@functools.cache
def topic_keys() -> Mapping[str, ConfigKey]:
    """All settings of a topic, by name."""
    return _read(tables.TOPIC)


@functools.cache
def group_keys() -> Mapping[str, ConfigKey]:
    """All settings of a group, by name."""
    return _read(tables.GROUP)


@functools.cache
def client_metrics_keys() -> Mapping[str, ConfigKey]:
    """All settings of a client metrics subscription, by name."""
    return _read(tables.CLIENT_METRICS)


UNITS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Settings that mean the same, the strongest first."""

_SAME = {name: group for group in UNITS for name in group}

_IMPLIED = {
    "log.retention.ms": "604800000",
    "log.roll.ms": "604800000",
    "log.roll.jitter.ms": "0",
    "log.flush.interval.ms": "9223372036854775807",
}
"""Defaults that Kafka keeps under another name, and `BrokerConfig` under this one."""


class Synonym(NamedTuple):
    """One layer's value of a setting; None where it is sensitive."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """A setting in force. `value` is None if it is not set, or if it is sensitive."""

    key: ConfigKey
    value: str | None
    source: Source
    read_only: bool
    synonyms: list[Synonym]


def setting_text(value: Any) -> str:
    """A value of `BrokerConfig` as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class BrokerLayers:
    """The layers of one broker's settings, by Kafka's names."""

    def __init__(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str], static: Mapping[str, str]) -> None:
        """Puts them together.

        Args:
            dynamic: set for this broker while it runs.
            dynamic_default: set for all brokers.
            static: what it was started with.
        """
        self.dynamic = dynamic
        self.dynamic_default = dynamic_default
        self.static = static
        self._inherited: dict[Source, list[Described]] = {}

    def synonyms(self, name: str) -> list[Synonym]:
        """The values of a setting by layer, the strongest first. Source: ConfigHelper.configSynonyms."""
        keys = broker_keys()
        general = _general(name)
        hidden = (AUTHORIZER_KEYS.get(name) or broker_key(name)).is_sensitive
        names = _SAME.get(name, tuple(dict.fromkeys((name, general))))
        found = []
        for layer, source in (
            (self.dynamic, Source.DYNAMIC_BROKER),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
            (self.static, Source.STATIC_BROKER),
        ):
            if layer:
                found += [Synonym(each, None if hidden else layer[each], source) for each in names if each in layer]
        for each in names:
            default = keys[each].default if each in keys else None
            if default is not None:
                found.append(Synonym(each, default, Source.DEFAULT))
        while found and found[0].name != name:  # Kafka leaves out what stands before the setting's own name
            del found[0]
        return found

    def value(self, name: str) -> str | None:
        """The value in force under this very name."""
        for layer in (self.dynamic, self.dynamic_default, self.static):
            if name in layer:
                return layer[name]
        return self.value(general) if (general := _general(name)) != name else broker_key(name).default

    def _keys(self) -> Iterable[ConfigKey]:
        """Those that each broker has, and those of single listeners that have a value."""
        yield from broker_keys().values()
        for name in sorted({*self.dynamic, *self.dynamic_default, *self.static} - broker_keys().keys()):
            yield AUTHORIZER_KEYS.get(name) or broker_key(name)

    def describe(self) -> Iterable[Described]:
        """All settings of the broker. Source: ConfigHelper.createBrokerConfigEntry."""
        for key in self._keys():
            synonyms = self.synonyms(key.name)
            yield Described(
                key,
                None if key.is_sensitive else self.value(key.name),
                synonyms[0].source if synonyms else Source.DEFAULT,
                key.link == "fixed" or not (key.name in broker_keys() or key.name in dynamic_keys()),  # so Kafka says of a listener's own
                synonyms,
            )

    def describe_defaults(self) -> Iterable[Described]:
        """The settings that all brokers share, as the resource with the empty name has them."""
        for name, value in self.dynamic_default.items():
            key = broker_key(name)
            synonym = Synonym(name, None if key.is_sensitive else value, Source.DYNAMIC_DEFAULT_BROKER)
            yield Described(key, synonym.value, synonym.source, key.link == "fixed", [synonym])

    def describe_topic(self, overrides: Mapping[str, str]) -> Iterable[Described]:
        """All settings of a topic. Source: ConfigHelper.createTopicConfigEntry."""
        return self._describe(topic_keys(), overrides, Source.TOPIC)

    def describe_group(self, overrides: Mapping[str, str]) -> Iterable[Described]:
        """All settings of a group. Source: ConfigHelper.createGroupConfigEntry."""
        for each in self._describe(group_keys(), overrides, Source.GROUP):
            if each.key.link or each.synonyms:
                yield each
            else:  # Kafka shows these their own default as a synonym
                yield each._replace(synonyms=[Synonym(each.key.name, each.value or "", Source.DEFAULT)])

    def describe_client_metrics(self, overrides: Mapping[str, str]) -> Iterable[Described]:
        """All settings of a client metrics subscription. Source: ConfigHelper.createClientMetricsConfigEntry."""
        return self._describe(client_metrics_keys(), overrides, Source.CLIENT_METRICS)

    def _describe(self, keys: Mapping[str, ConfigKey], overrides: Mapping[str, str], source: Source) -> Iterable[Described]:
        inherited = self._inherited.get(source)
        if inherited is None:
            inherited = self._inherited[source] = [self._without_override(key) for key in keys.values()]
        for each in inherited:
            text = overrides.get(each.key.name)
            if text is None:
                yield each
            else:
                value = each.key.parse(text)
                yield each._replace(value=value, source=source, synonyms=[Synonym(each.key.name, value, source), *each.synonyms])

    def _without_override(self, key: ConfigKey) -> Described:
        synonyms = self.synonyms(key.link) if key.link else []
        value = self.value(key.link) if key.link else None
        return Described(
            key, key.default if value is None else value, synonyms[0].source if synonyms else Source.DEFAULT, False, synonyms
        )


def static_settings(config: BrokerConfig, facts: Mapping[str, str]) -> Mapping[str, str]:
    """What a broker was started with: what was set, and where it differs from Kafka's default anyway.

    Args:
        config: its settings.
        facts: what is no setting of ours but one of Kafka's: its id, its listeners.
    """
    settings = {**(config.other_settings or {}), **facts}
    for field in config.names():
        name = field.replace("_", ".")
        value = getattr(config, field)
        key = AUTHORIZER_KEYS.get(name) or broker_keys().get(name)
        if key is None or value is None or name == "node.id":  # which is a fact: of several brokers each has its own
            continue
        text = setting_text(value)
        if name in AUTHORIZER_KEYS and not value and field not in config.given:
            continue
        default = _IMPLIED.get(name, key.default)
        if text != default or field in config.given:
            settings[name] = text
    for listener, own in (config.listener_name_settings or {}).items():
        settings |= {f"listener.name.{listener.lower()}.{name.replace('_', '.')}": setting_text(value) for name, value in own.items()}
    for listener, limit in (config.listener_name_max_connections or {}).items():
        settings[f"listener.name.{listener.lower()}.max.connections"] = str(limit)
    return settings


def check_started(config: BrokerConfig) -> None:
    """Checks what a broker is started with and has no field of its settings.

    Raises:
        ConfigError: Kafka would not start with it; in Kafka's words.
    """
    for name, text in (config.other_settings or {}).items():
        try:
            broker_key(name).parse(text)
        except errors.InvalidConfiguration as problem:
            raise ConfigError(problem.message) from None


def effective(config: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """A broker's settings with dynamic ones in their places.

    Args:
        config: what it was started with.
        layers: dynamic settings by Kafka's names, the weaker layer first.
    """
    known = {field for field in config.names() if not field.startswith(("sasl_", "ssl_"))} - _NOT_ALTERED_FIELDS
    changes: dict[str, Any] = {}
    of_listeners = {listener: {**own} for listener, own in (config.listener_name_settings or {}).items()}
    for layer in layers:
        changes |= {field: text for name, text in layer.items() if (field := name.replace(".", "_")) in known}
        for name, text in layer.items():
            match = _OF_LISTENER.fullmatch(name)
            if match is None:
                continue
            if match["name"] in PER_LISTENER:
                of_listeners.setdefault(match["listener"].upper(), {})[match["name"].replace(".", "_")] = text
                changes["listener_name_settings"] = of_listeners
            elif match["name"] == "max.connections":
                changes["listener_name_max_connections"] = changes.get(
                    "listener_name_max_connections", config.listener_name_max_connections or {}
                ) | {match["listener"].upper(): int(text)}
    return config.replace(**changes) if changes else config


def is_obeyed(name: str, served: Collection[str]) -> bool:
    """Whether altering a setting has the effect it has in Kafka, or one that no client sees.

    Args:
        name: of the setting.
        served: those without the prefix of a listener that are implemented.
    """
    match = _OF_LISTENER.fullmatch(name)
    return name in served or name in HARMLESS or (match is not None and match["name"] in PER_LISTENER | {"max.connections"})


# ---- altering

SERVED_GROUP = frozenset({"consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"})
"""The group settings that are implemented."""

SERVED_BROKER = frozenset(
    {
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "leader.replication.throttled.rate",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
)
"""The settings of a running broker that are implemented, besides those that give topics their defaults."""

NOT_ALTERED = frozenset({"cordoned.log.dirs", "listener.security.protocol.map", "listeners"})
"""What Kafka obeys at once and the embedded broker cannot: it has the listeners and places for replicas that it was started with."""
_NOT_ALTERED_FIELDS = {name.replace(".", "_") for name in NOT_ALTERED}

SET, DELETE, APPEND, SUBTRACT = range(4)


class Operation(NamedTuple):
    """One change of IncrementalAlterConfigs."""

    name: str
    kind: int
    value: str | None


def apply_operations(keys: Mapping[str, ConfigKey], current: Mapping[str, str], operations: Iterable[Operation]) -> dict[str, str]:
    """What a resource's own settings are after some changes.

    Args:
        keys: the settings that exist.
        current: the resource's own settings.
        operations: the changes; APPEND and SUBTRACT apply to Kafka's default where the resource has no value of its own.

    Returns:
        The new settings, unchecked.

    Raises:
        InvalidConfiguration: a list operation on what is no list.
        UnknownServer: no such operation; so does Kafka.

    Source: ConfigurationControlManager.incrementalAlterConfigResource.
    """
    settings = dict(current)
    for name, kind, value in operations:
        if kind == DELETE:
            settings.pop(name, None)
        elif kind == SET:
            settings[name] = value or ""
        elif kind in (APPEND, SUBTRACT):
            key = keys.get(name)
            if key is None or key.type is not ConfigType.LIST:
                operation = "APPEND" if kind == APPEND else "SUBTRACT"
                raise errors.InvalidConfiguration(f"Can't {operation} to key {name} because its type is not LIST.")
            own = settings.get(name)
            items = [item for item in ((key.default or "") if own is None else own).split(",") if item]
            for item in (value or "").split(","):
                if kind == APPEND and item not in items:
                    items.append(item)
                elif kind == SUBTRACT and item in items:
                    items.remove(item)
            settings[name] = ",".join(items)
        else:
            raise errors.UnknownServer()
    return settings


def check_operations(operations: Collection[Operation]) -> None:
    """Refuses changes that contradict each other or set nothing.

    Raises:
        InvalidRequest: in Kafka's words.

    Source: kafka.server.ConfigAdminManager.
    """
    if len({operation.name for operation in operations}) != len(operations):
        raise errors.InvalidRequest("Error due to duplicate config keys")
    empty = [operation.name for operation in operations if operation.kind != DELETE and operation.value is None]
    if empty:
        raise errors.InvalidRequest(f"Null value not supported for : {','.join(empty)}")


def check_topic(overrides: Mapping[str, str]) -> None:
    """Checks all own settings of a topic.

    Args:
        overrides: by Kafka's names.

    Raises:
        InvalidConfiguration: in Kafka's words where Kafka refuses it, too.

    Source: LogConfig.validate.
    """
    values = {}
    for name in overrides:
        if name not in topic_keys():
            raise errors.InvalidConfiguration(f"Unknown topic config name: {name}")
    for name, text in overrides.items():
        values[name] = topic_keys()[name].parse(text)
    low, high = (int(values.get(name, topic_keys()[name].default or "0")) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if low > high:
        raise errors.InvalidConfiguration(f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})")
    if values.get("remote.storage.enable") == "true":
        raise errors.InvalidConfiguration(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        )


PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""What Kafka lets change for one listener at a time. Source: DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS."""


def check_broker(settings: Mapping[str, str], changed: Collection[str], per_broker: bool, static: Mapping[str, str]) -> None:
    """Checks the dynamic settings of a broker, or of all.

    Args:
        settings: all of them, by Kafka's names.
        changed: those that are new.
        per_broker: they are one broker's.
        static: what the broker was started with.

    Raises:
        InvalidRequest: Kafka does not take it; in Kafka's words.
        InvalidConfiguration: it is one of `NOT_ALTERED`.

    Source: DynamicBrokerConfig.validate.
    """
    keys = {name: broker_key(name) for name in changed}
    fixed = [name for name in changed if keys[name].link == "fixed"]
    if fixed:
        raise errors.InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    secret = [name for name in changed if name in PER_LISTENER]
    if secret:
        raise errors.InvalidRequest(
            f"These security configs can be dynamically updated only per-listener using the listener prefix: [{', '.join(secret)}]"
        )
    values = {}
    for name in changed:
        try:
            values[name] = keys[name].parse(settings[name])
        except errors.InvalidConfiguration as error:
            raise errors.InvalidRequest(error.message) from None
    single = [name for name in changed if keys[name].link == "broker"]
    if single and not per_broker:
        raise errors.InvalidRequest(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(single)}]"
        )
    for name, value in values.items():
        in_force = static.get(name, keys[name].default)
        if name in NOT_ALTERED and value != in_force:
            raise errors.InvalidConfiguration(
                f"Invalid value {settings[name]} for configuration {name}: the embedded broker does not implement its alteration,"
                f" so its value stays {'null' if in_force is None else in_force}"
            )


_CLIENT_MATCHES = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_group(overrides: Mapping[str, str], layers: BrokerLayers) -> None:
    """Checks all own settings of a group.

    Args:
        overrides: by Kafka's names.
        layers: gives the limits that the broker sets.

    Raises:
        InvalidConfiguration: in Kafka's words where Kafka refuses it, too.

    Source: GroupConfig.validate.
    """
    values = {}
    for name in overrides:
        if name not in group_keys():
            raise errors.InvalidConfiguration(f"Unknown group config name: {name}")
    for name, text in overrides.items():
        values[name] = group_keys()[name].parse(text)
    for name, value in values.items():
        kind, _, rest = name.partition(".")
        for bound, word, is_wrong in (("min", "greater", int.__lt__), ("max", "less", int.__gt__)):
            limit = f"group.{kind}.{bound}.{rest}"
            if limit in broker_keys() and is_wrong(int(value), int(layers.value(limit) or "0")):
                raise errors.InvalidConfiguration(f"{name} must be {word} than or equal to {limit}")


def check_client_metrics(overrides: Mapping[str, str]) -> None:
    """Checks all own settings of a client metrics subscription. It is kept and nothing is pushed, as in a Kafka without a
    telemetry plug-in.

    Raises:
        InvalidRequest, InvalidConfiguration: in Kafka's words.

    Source: ClientMetricsConfigs.validate.
    """
    for name, text in overrides.items():
        if name not in client_metrics_keys():
            raise errors.InvalidRequest(f"Unknown client metrics configuration: {name}")
        value = client_metrics_keys()[name].parse(text)
        if name == "interval.ms" and not 100 <= int(value) <= 3_600_000:
            raise errors.InvalidRequest(f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)")
        if name == "match":
            for pattern in filter(None, value.split(",")):
                what, equals, expression = pattern.partition("=")
                try:
                    re.compile(expression.strip())
                except (re.error, OverflowError, RecursionError):
                    equals = ""
                if not equals or what.strip() not in _CLIENT_MATCHES:
                    raise errors.InvalidConfiguration(f"Illegal client matching pattern: {pattern}")
