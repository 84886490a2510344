"""Settings of topics, brokers, groups and client metrics subscriptions.

Source: Kafka's KafkaAdminClient.{describeConfigs, incrementalAlterConfigs}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkacore import errors
from kafkacore.admin.base import AdminBase, Call, ItemResults
from kafkacore.config_text import SettingValue, setting_text
from kafkacore.net.coordinator import named
from kafkacore.protocol import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)

KINDS = {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}
_KIND_NAMES = {number: name for name, number in KINDS.items()}
SOURCES = {
    1: "topic",
    2: "dynamic_broker",
    3: "dynamic_default_broker",
    4: "static_broker",
    5: "default",
    6: "dynamic_broker_logger",
    7: "client_metrics",
    8: "group",
}
TYPES = {1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ConfigResource(NamedTuple):
    """What settings belong to: kind is topic, broker, broker_logger, group or client_metrics; the broker "" means all brokers."""

    kind: str
    name: str


class ConfigSynonym(NamedTuple):
    """One layer's value of a setting, under the name it has there; values of secrets are None."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting in force.

    Attributes:
        name: Kafka's.
        value: None for a secret, or for a setting without a value.
        source: topic, dynamic_broker, dynamic_default_broker, static_broker, default, dynamic_broker_logger, client_metrics or group.
        is_read_only: it cannot be altered while the broker runs.
        is_sensitive: no broker sends its value.
        type: boolean, string, int, short, long, double, list, class or password; unknown for brokers before 2.6.
        synonyms: the layers, the strongest first, if they were asked for.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    synonyms: list[ConfigSynonym]

    @property
    def is_default(self) -> bool:
        """True for a setting that was never set."""
        return self.source == "default"


class Append(NamedTuple):
    """A change: add to a list, separated by commas, what is not in it."""

    value: str


class Subtract(NamedTuple):
    """A change: take out of a list, separated by commas."""

    value: str


def _resource(given: Any) -> ConfigResource:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        example = f"('topic', {given!r})" if isinstance(given, str) else "('topic', 'orders') or ('broker', '1')"
        raise errors.UsageError(f"settings belong to a (kind, name) pair, as {example}, not to {given!r}")
    resource = ConfigResource(*given)
    if resource.kind not in KINDS:
        raise errors.UsageError(f"settings belong to one of {', '.join(KINDS)}, not to a {resource.kind!r}")
    return resource


def _entry(found: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        found.name,
        found.value,
        SOURCES.get(found.config_source, "unknown"),
        found.read_only,
        found.is_sensitive,
        TYPES.get(found.config_type, "unknown"),
        [ConfigSynonym(each.name, each.value, SOURCES.get(each.source, "unknown")) for each in found.synonyms],
    )


class ConfigsAdmin(AdminBase):
    """The calls about settings."""

    def describe_configs(
        self,
        resources: Iterable[tuple[str, str]],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> ItemResults[ConfigResource, dict[str, ConfigEntry]]:
        """Settings in force.

        Args:
            resources: (kind, name) pairs, as ("topic", "t") or ("broker", "1").
            names: only these settings; None for all.
            include_synonyms: tell the layers, too.
            broker: who is asked about what is not a broker's; None for any.
            timeout: seconds.

        Returns:
            By resource, the settings by name. Typical errors: UnknownTopicOrPartition, InvalidRequest.
        """
        wanted = [_resource(each) for each in resources]
        keys = None if names is None else list(names)

        def request(group: list[ConfigResource]) -> tuple[type, Callable[[int], Any]]:
            entries = [
                DescribeConfigsResource(resource_type=KINDS[kind], resource_name=name, configuration_keys=keys) for kind, name in group
            ]
            return DescribeConfigsRequest, lambda version: DescribeConfigsRequest(resources=entries, include_synonyms=include_synonyms)

        def value(item: Any) -> dict[str, ConfigEntry]:
            return {found.name: _entry(found) for found in item.configs}

        return self._ask_about(wanted, request, lambda response: response.results, value, "DescribeConfigs", timeout, broker)

    def alter_configs(
        self,
        changes: Mapping[tuple[str, str], Mapping[str, SettingValue | Append | Subtract]],
        *,
        validate_only: bool = False,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> ItemResults[ConfigResource, None]:
        """Changes settings; what is not named stays.

        Args:
            changes: by (kind, name) the new values: a text, a number, a truth value, a list of texts; None for the default; `Append` or
                `Subtract` for lists.
            validate_only: check only.
            broker: who is asked about what is not a broker's; None for any.
            timeout: seconds.

        Returns:
            By resource; each is changed as a whole or not at all. Typical errors: InvalidConfiguration, InvalidRequest,
            UnknownTopicOrPartition.
        """
        wanted = {_resource(each): alterations for each, alterations in changes.items()}

        def request(group: list[ConfigResource]) -> tuple[type, Callable[[int], Any]]:
            entries = [
                IncrementalAlterConfigsResource(
                    resource_type=KINDS[each.kind],
                    resource_name=each.name,
                    configs=[_alteration(name, change) for name, change in wanted[each].items()],
                )
                for each in group
            ]
            return IncrementalAlterConfigsRequest, lambda version: IncrementalAlterConfigsRequest(
                resources=entries, validate_only=validate_only
            )

        return self._ask_about(
            wanted, request, lambda response: response.responses, lambda _: None, "IncrementalAlterConfigs", timeout, broker, alters=True
        )

    def list_config_resources(self, kinds: Iterable[str] = (), *, timeout: float | None = None) -> list[ConfigResource]:
        """What has settings, or can have them.

        Args:
            kinds: topic, broker, broker_logger, group, client_metrics; none for all. Before Kafka 4.1 only client_metrics can be listed.
            timeout: seconds.
        """
        wanted = [KINDS[_resource((kind, "")).kind] for kind in kinds]

        def build(version: int) -> ListConfigResourcesRequest:
            if version == 0 and wanted != [KINDS["client_metrics"]]:
                raise errors.UnsupportedVersion("the broker lists client_metrics only", api="ListConfigResources")
            return ListConfigResourcesRequest(resource_types=wanted if version else [])

        response = self._ask(ListConfigResourcesRequest, build, self._timeout_ms(timeout))
        errors.raise_for(response.error_code, api="ListConfigResources")
        return [ConfigResource(_KIND_NAMES.get(each.resource_type, "unknown"), each.resource_name) for each in response.config_resources]

    def _ask_about(
        self,
        resources: Iterable[ConfigResource],
        request: Callable[[list[ConfigResource]], tuple[type, Callable[[int], Any]]],
        items: Callable[[Any], Iterable[Any]],
        value: Callable[[Any], Any],
        api_name: str,
        timeout: float | None,
        broker: int | None = None,
        *,
        alters: bool = False,
    ) -> ItemResults[ConfigResource, Any]:
        """Asks brokers about themselves and anyone, or `broker`, about the rest. The active controller alters what is any broker's, but for
        the levels of loggers, which no other node knows."""
        timeout_ms = self._timeout_ms(timeout)
        groups: dict[int | None, list[ConfigResource]] = {}
        for resource in dict.fromkeys(resources):
            node_id = broker
            if resource.kind in ("broker", "broker_logger") and resource.name:
                if not resource.name.isdecimal():
                    raise errors.UsageError(f"a broker's name is its id, not {resource.name!r}")
                if not (alters and self.config.asks_controllers and resource.kind == "broker"):
                    node_id = int(resource.name)
            groups.setdefault(node_id, []).append(resource)
        calls = []
        for node_id, group in groups.items():
            find = self._anyone if node_id is None else self._broker(node_id)
            calls.append(Call(self, *request(group), find, is_fixed=node_id is not None or self.config.asks_controllers))
        values: dict[ConfigResource, Any] = {}
        failed: dict[ConfigResource, errors.KafkaError] = {}
        for group, asked in zip(groups.values(), self._ask_all(calls, timeout_ms), strict=True):
            if asked.error is not None:
                failed |= dict.fromkeys(group, asked.error)
                continue
            silent = dict.fromkeys(group, None)
            for item in items(asked.response):
                resource = ConfigResource(_KIND_NAMES.get(item.resource_type, "unknown"), item.resource_name)
                if item.error_code:
                    topic = resource.name if resource.kind == "topic" else None
                    message = item.error_message if topic else named(f"{resource.kind} {resource.name}", item.error_message)
                    failed[resource] = errors.from_code(item.error_code, message, topic=topic, api=api_name)
                else:
                    values[resource] = value(item)
                silent.pop(resource, None)
            for resource in silent:
                what = f"the answer has no result for {resource.kind} {resource.name}"
                failed[resource] = errors.IncompleteAnswerError(what, api=api_name)
        return ItemResults(values, failed)


def _alteration(name: str, change: SettingValue | Append | Subtract) -> IncrementalAlterableConfig:
    if change is None:
        return IncrementalAlterableConfig(name=name, config_operation=_DELETE, value=None)
    if isinstance(change, Append):
        return IncrementalAlterableConfig(name=name, config_operation=_APPEND, value=change.value)
    if isinstance(change, Subtract):
        return IncrementalAlterableConfig(name=name, config_operation=_SUBTRACT, value=change.value)
    return IncrementalAlterableConfig(name=name, config_operation=_SET, value=setting_text(name, change))
