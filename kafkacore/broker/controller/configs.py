"""Settings of topics, brokers, groups and client metrics subscriptions.

Brokers have checked their own settings before they pass a request on, since only they know what they were started with; here it is looked
whether the resource may have settings at all, and topics, groups and subscriptions are checked.

Source: org.apache.kafka.controller.{ConfigurationControlManager, ControllerConfigurationValidator}.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkacore import errors
from kafkacore.broker import configs
from kafkacore.broker.cluster import ImageDelta, check_topic_name
from kafkacore.broker.configs import BrokerLayers, ConfigKey, Operation, Resource
from kafkacore.broker.controller.state import ControllerState, Written, code_of
from kafkacore.broker.topic_config import TopicConfig
from kafkacore.errors import ConfigError, KafkaError
from kafkacore.protocol import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kafkacore.protocol.metadata_log import ConfigRecord, MetadataRecord

logger = logging.getLogger(__name__)

NAME_TWICE = "Each resource must appear at most once."


def keys_of(kind: int) -> Mapping[str, ConfigKey]:
    """The settings that resources of a type have.

    Raises:
        InvalidRequest: the type has none that can be altered.
    """
    if kind == Resource.TOPIC:
        return configs.topic_keys()
    if kind == Resource.BROKER:
        return configs.broker_keys()
    if kind == Resource.CLIENT_METRICS:
        return configs.client_metrics_keys()
    if kind == Resource.GROUP:
        return configs.group_keys()
    raise errors.InvalidRequest(f"Unknown resource type {kind}")


def incremental_alter_configs(
    state: ControllerState, request: IncrementalAlterConfigsRequest, version: int, now_ms: int
) -> Written:
    """IncrementalAlterConfigs v0-1."""

    def settings(wanted: IncrementalAlterConfigsResource) -> Mapping[str, str]:
        operations = [Operation(each.name, each.config_operation, each.value) for each in wanted.configs]
        configs.check_operations(operations)
        current = state.image.configs.get((wanted.resource_type, wanted.resource_name), {})
        return configs.apply_operations(keys_of(wanted.resource_type), current, operations)

    records, responses = _decide(state, request.resources, settings, IncrementalAlterConfigsResourceResponse)
    return Written([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))


def alter_configs(state: ControllerState, request: AlterConfigsRequest, version: int, now_ms: int) -> Written:
    """AlterConfigs v0-2: what is not named goes back to its default."""

    def settings(wanted: AlterConfigsResource) -> Mapping[str, str]:
        configs.check_operations([Operation(each.name, configs.SET, each.value) for each in wanted.configs])
        keys_of(wanted.resource_type)
        return {each.name: each.value or "" for each in wanted.configs}

    records, responses = _decide(state, request.resources, settings, AlterConfigsResourceResponse)
    return Written([] if request.validate_only else records, AlterConfigsResponse(responses=responses))


def _decide(
    state: ControllerState, resources: Sequence[Any], settings: Callable[[Any], Mapping[str, str]], item: Callable[..., Any]
) -> tuple[list[MetadataRecord], list[Any]]:
    """The records that alter what can be altered, and an answer for each resource.

    Args:
        state: the controller's.
        resources: of the request.
        settings: says what a resource's own settings are to be.
        item: makes an answer.
    """
    mentions = Counter((each.resource_type, each.resource_name) for each in resources)
    records: list[MetadataRecord] = []
    answers = []
    for wanted in resources:
        kind, name = wanted.resource_type, wanted.resource_name
        code, message = 0, None
        try:
            if mentions[kind, name] > 1:
                raise errors.InvalidRequest(NAME_TWICE)
            records += _changes(state, kind, name, settings(wanted))
        except KafkaError as error:
            code, message = code_of(error), error.message or None
        answers.append(item(error_code=code, error_message=message, resource_type=kind, resource_name=name))
    return records, answers


def _changes(state: ControllerState, kind: int, name: str, settings: Mapping[str, str]) -> Sequence[ConfigRecord]:
    """The records that give a resource these settings, all of them checked."""
    _check(state, kind, name, settings)
    current = state.image.configs.get((kind, name), {})
    gone = [ConfigRecord(resource_type=kind, resource_name=name, name=key, value=None) for key in current if key not in settings]
    new = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for key, value in settings.items()
        if current.get(key) != value
    ]
    return [*gone, *new]


def _check(state: ControllerState, kind: int, name: str, settings: Mapping[str, str]) -> None:
    image = state.image
    if kind == Resource.TOPIC:
        if not name:
            raise errors.InvalidRequest("Default topic resources are not allowed.")
        check_topic_name(name)
        TopicConfig.build(settings, image.config)
        if name not in image.topics:
            raise errors.UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    elif kind == Resource.BROKER:
        if name and not name.isdecimal():
            raise errors.InvalidRequest(f"Unable to parse broker name as a base 10 number: {name}")
    elif kind == Resource.CLIENT_METRICS:
        if not name:
            raise errors.InvalidRequest("Subscription name can't be empty")
        configs.check_client_metrics(settings)
    else:
        if not name:
            raise errors.InvalidRequest("Default group resources are not allowed.")
        defaults = image.configs.get((Resource.BROKER, ""), {})
        layers = BrokerLayers({}, defaults, configs.static_settings(state.config, {}))
        configs.check_group(settings, layers)


def track(state: ControllerState, delta: ImageDelta) -> None:
    """What was set for all brokers gives topics their defaults here, too: who may be elected depends on them."""
    if (Resource.BROKER, "") in delta.configs:
        try:
            state.image.set_config(configs.effective(state.config, state.image.configs.get((Resource.BROKER, ""), {})))
        except ConfigError as error:  # a broker that was started with other settings found nothing wrong with them
            logger.error("the altered settings of all brokers do not fit the controller's own: %s", error)
