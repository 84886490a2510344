"""confluent-kafka's calls about settings.

Source: confluent_kafka.admin.AdminClient, confluent-kafka 2.16.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from kafkacore import protocol as p
from kafkacore.admin import ConfigResource as EnginesResource
from kafkacore.admin import KafkaAdminClient as Engine
from kafkacore.admin.configs import KINDS
from kafkacore.compat.confluent.admin.base import AdminBase, Options, a_list, outcomes
from kafkacore.compat.confluent.admin.kinds import AlterConfigOpType, ConfigSource, ResourceType
from kafkacore.compat.confluent.admin.values import ConfigEntry, ConfigResource
from kafkacore.compat.confluent.kafka_error import local

_SOURCES = {
    "topic": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "dynamic_broker": ConfigSource.DYNAMIC_BROKER_CONFIG,
    "dynamic_default_broker": ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    "static_broker": ConfigSource.STATIC_BROKER_CONFIG,
    "default": ConfigSource.DEFAULT_CONFIG,
    "group": ConfigSource.GROUP_CONFIG,
}
_HAVE_SETTINGS = {ResourceType.TOPIC: "topic", ResourceType.BROKER: "broker", ResourceType.GROUP: "group"}


class ConfigAdmin(AdminBase):
    """The calls about settings."""

    def describe_configs(self, resources: list[ConfigResource], **kwargs: Any) -> dict[ConfigResource, Future[Any]]:
        """Settings in force.

        Args:
            resources: whose.
            **kwargs: request_timeout: seconds; broker: who is asked about what is not a broker's.

        Returns:
            By resource a future of ConfigEntry by name.
        """
        options = self._options("describe_configs", kwargs, broker=None)
        keys = _keys(resources)

        def work(engine: Engine) -> dict[ConfigResource, Any]:
            found = engine.describe_configs(_engines(keys).values(), include_synonyms=True, broker=_asked(options), timeout=options.left())
            return outcomes(found, keys, lambda entries: {name: _entry(entry) for name, entry in entries.items()})

        return self._each(keys, work)

    def alter_configs(self, resources: list[ConfigResource], **kwargs: Any) -> dict[ConfigResource, Future[Any]]:
        """Sets all settings of resources: what `set_config` does not name goes back to its default. Deprecated, as Kafka's request is.

        Args:
            resources: with `set_config`.
            **kwargs: request_timeout: seconds; validate_only: check only; broker: who is asked about what is not a broker's.

        Returns:
            By resource a future of None.
        """
        warnings.warn("alter_configs is deprecated: incremental_alter_configs changes what it names", DeprecationWarning, stacklevel=2)
        options = self._options("alter_configs", kwargs, validate_only=False, broker=None)
        keys = _keys(resources)
        configs = {
            _resource(each): [p.AlterableConfig(name=name, value=_text(value)) for name, value in each.set_config_dict.items()]
            for each in keys
        }

        def request(group: list[EnginesResource]) -> tuple[type, Callable[[int], Any]]:
            entries = [
                p.AlterConfigsResource(resource_type=KINDS[each.kind], resource_name=each.name, configs=configs[each]) for each in group
            ]
            made = p.AlterConfigsRequest(resources=entries, validate_only=options.validate_only)
            return p.AlterConfigsRequest, lambda version: made

        return self._each(keys, lambda engine: _altered(engine, keys, request, "AlterConfigs", options))

    def incremental_alter_configs(self, resources: list[ConfigResource], **kwargs: Any) -> dict[ConfigResource, Future[Any]]:
        """Changes settings; what is not named stays.

        Args:
            resources: with `incremental_configs`.
            **kwargs: request_timeout: seconds; validate_only: check only; broker: who is asked about what is not a broker's.

        Returns:
            By resource a future of None.
        """
        options = self._options("incremental_alter_configs", kwargs, validate_only=False, broker=None)
        keys = _keys(resources, TypeError)
        configs = {_resource(each): _alterations(each) for each in keys}

        def request(group: list[EnginesResource]) -> tuple[type, Callable[[int], Any]]:
            entries = [
                p.IncrementalAlterConfigsResource(resource_type=KINDS[each.kind], resource_name=each.name, configs=configs[each])
                for each in group
            ]
            made = p.IncrementalAlterConfigsRequest(resources=entries, validate_only=options.validate_only)
            return p.IncrementalAlterConfigsRequest, lambda version: made

        return self._each(keys, lambda engine: _altered(engine, keys, request, "IncrementalAlterConfigs", options))


def _altered(
    engine: Engine,
    keys: dict[ConfigResource, Any],
    request: Callable[[list[EnginesResource]], tuple[type, Callable[[int], Any]]],
    api_name: str,
    options: Options,
) -> dict[ConfigResource, Any]:
    wanted = _engines(keys).values()
    found = engine._ask_about(
        wanted, request, lambda response: response.responses, lambda _: None, api_name, options.left(), _asked(options)
    )
    return outcomes(found, keys)


def _keys(resources: Any, error: type[Exception] = ValueError) -> dict[ConfigResource, EnginesResource | None]:
    """By resource the engine's; None where the resource cannot have settings, which its future says."""
    given = a_list(resources, ConfigResource, "ConfigResource objects", error)
    return {each: _resource(each) for each in given}


def _resource(given: ConfigResource) -> EnginesResource | None:
    kind = _HAVE_SETTINGS.get(given.restype)
    if kind is None or (kind == "broker" and not given.name.isdecimal()):
        return None
    return EnginesResource(kind, given.name)


def _engines(keys: dict[ConfigResource, EnginesResource | None]) -> dict[ConfigResource, EnginesResource]:
    """The engine's resources.

    Raises:
        KafkaException: one of them cannot have settings.
    """
    found = {}
    for given, resource in keys.items():
        names = [entry.name for entry in given.incremental_configs]
        if len(set(names)) < len(names):
            raise local("_INVALID_ARG", f"a setting of {given} is changed twice")
        if resource is None and given.restype is ResourceType.BROKER:
            raise local("_INVALID_ARG", f"Expected an int32 broker_id for ConfigResource(type=BROKER, name={given.name})")
        if resource is None:
            raise local("_INVALID_ARG", f"settings belong to topics, brokers and groups, not to {given.restype.name}")
        found[given] = resource
    return found


def _asked(options: Options) -> int | None:
    return None if options.broker is None or options.broker < 0 else int(options.broker)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _alterations(resource: ConfigResource) -> list[p.IncrementalAlterableConfig]:
    if not resource.incremental_configs:
        raise ValueError("expected non-empty list of ConfigEntry to alter incrementally in incremental_configs field")
    for nth, entry in enumerate(resource.incremental_configs):
        if not isinstance(entry, ConfigEntry):
            raise TypeError(f"expected ConfigEntry type in incremental_configs field, index {nth}")
        if not isinstance(entry.incremental_operation, AlterConfigOpType):
            raise TypeError(f"the entry {entry.name} has no incremental_operation, an AlterConfigOpType")
        if entry.incremental_operation is not AlterConfigOpType.DELETE and not isinstance(entry.value, str):
            raise TypeError(f"Expected .value to be str type, not {type(entry.value).__name__}")
    return [
        p.IncrementalAlterableConfig(name=entry.name, config_operation=operation.value, value=entry.value)
        for entry, operation in _with_operations(resource.incremental_configs)
    ]


def _with_operations(entries: Iterable[ConfigEntry]) -> list[tuple[ConfigEntry, AlterConfigOpType]]:
    return [(entry, entry.incremental_operation) for entry in entries if entry.incremental_operation is not None]


def _entry(found: Any) -> ConfigEntry:
    """From the engine's; the source is a number, as confluent-kafka's."""

    def source(word: str) -> int:
        return _SOURCES.get(word, ConfigSource.UNKNOWN_CONFIG).value

    synonyms = {each.name: ConfigEntry(each.name, each.value, source(each.source), is_synonym=True) for each in found.synonyms}
    return ConfigEntry(
        found.name,
        found.value,
        source(found.source),
        is_read_only=found.is_read_only,
        is_default=found.is_default,
        is_sensitive=found.is_sensitive,
        synonyms=synonyms,
    )
