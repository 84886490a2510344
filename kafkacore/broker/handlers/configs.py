"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

A broker answers for its own settings and for its loggers; what is altered is checked here as far as only the broker can, and then passed
on to the controller.

Source: kafka.server.{ConfigHelper, ConfigAdminManager}.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkacore import errors
from kafkacore.broker import configs
from kafkacore.broker.authorizer import ALTER_CONFIGS, DESCRIBE_CONFIGS, GROUP, TOPIC
from kafkacore.broker.cluster import check_topic_name
from kafkacore.broker.config_docs import documentation
from kafkacore.broker.configs import BrokerLayers, Described, Operation, Resource, Source
from kafkacore.broker.controller.configs import NAME_TWICE, keys_of
from kafkacore.broker.controller.state import code_of
from kafkacore.broker.handlers.access import CLUSTER_REFUSED, GROUP_REFUSED, TOPIC_REFUSED, may, may_cluster
from kafkacore.broker.handlers.common import MALFORMED
from kafkacore.broker.limits import connection_limits
from kafkacore.broker.state import BrokerState, Call, Outcome, forward
from kafkacore.broker.topic_config import TOPIC_SETTINGS
from kafkacore.config_broker_tls import broker_contexts
from kafkacore.config_listeners import listeners_of
from kafkacore.errors import Code, ConfigError, KafkaError
from kafkacore.protocol import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafkacore.protocol.schema import Response

logger = logging.getLogger(__name__)

R = TypeVar("R", AlterConfigsResponse, IncrementalAlterConfigsResponse)

SERVED_BY_BROKERS = configs.SERVED_BROKER | {
    setting.broker_setting.replace("_", ".") for setting in TOPIC_SETTINGS.values() if setting.broker_setting is not None
}
"""What can be altered while a broker runs, and is obeyed."""

RESOURCE_TYPES: Mapping[int, int] = {Resource.TOPIC: TOPIC, Resource.GROUP: GROUP}
"""What an ACL must be for; the cluster for other settings."""
_OF_CLUSTER = (Code.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_REFUSED)
REFUSALS: Mapping[int, tuple[Code, str]] = {
    Resource.TOPIC: (Code.TOPIC_AUTHORIZATION_FAILED, TOPIC_REFUSED),
    Resource.GROUP: (Code.GROUP_AUTHORIZATION_FAILED, GROUP_REFUSED),
    Resource.BROKER: _OF_CLUSTER,
    Resource.BROKER_LOGGER: _OF_CLUSTER,
    Resource.CLIENT_METRICS: _OF_CLUSTER,
}

# ---- describing


def describe_configs(state: BrokerState, call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """DescribeConfigs v0-4: topics, this broker, the defaults of all brokers (the empty name), this broker's loggers, groups, client
    metrics. The documentation is ours (broker/config_docs.py). What is refused comes last."""
    results = []
    forbidden = []
    layers = state.config_layers()
    for wanted in request.resources:
        code, message, found = 0, "", []
        if not _is_allowed(state, call, DESCRIBE_CONFIGS, wanted.resource_type, wanted.resource_name):
            forbidden.append(_forbidden(wanted))
            continue
        try:
            found = _describe(state, layers, wanted.resource_type, wanted.resource_name, request.include_documentation)
        except KafkaError as error:
            code, message = code_of(error), error.message
        if wanted.configuration_keys:
            keys = frozenset(wanted.configuration_keys)
            found = [each for each in found if each.name in keys]
        if not request.include_synonyms:
            found = [each._replace(synonyms=[]) for each in found]
        if call.version == 0:
            found = [each._replace(is_default=each.config_source == Source.DEFAULT) for each in found]
        results.append(
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=wanted.resource_type,
                resource_name=wanted.resource_name,
                configs=found,
            )
        )
    return DescribeConfigsResponse(results=results + forbidden)


def _is_allowed(state: BrokerState, call: Call, operation: int, kind: int, name: str) -> bool:
    """Whether the client may do something to what has settings. A type that does not exist is refused by those who look at it."""
    if kind in REFUSALS:
        resource_type = RESOURCE_TYPES.get(kind)
        return may_cluster(state, call, operation) if resource_type is None else may(state, call, operation, resource_type, name)
    return True


def _forbidden(wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    code, message = REFUSALS[wanted.resource_type]
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=wanted.resource_type, resource_name=wanted.resource_name, configs=[]
    )


def _describe(
    state: BrokerState, layers: BrokerLayers, kind: int, name: str, documented: bool
) -> list[DescribeConfigsResourceResult]:
    overrides = state.cluster.configs.get((kind, name), {})
    described: Iterable[Described]
    if kind == Resource.TOPIC:
        check_topic_name(name)
        if name not in state.cluster.topics:
            raise errors.UnknownTopicOrPartition()
        described = layers.describe_topic(overrides)
    elif kind == Resource.BROKER:
        if name:
            _check_broker(state, name, "Broker", "expected {} or empty string, but received {}")
        described = layers.describe() if name else layers.describe_defaults()
    elif kind == Resource.BROKER_LOGGER:
        if not name:
            raise errors.InvalidRequest("Broker id must not be empty")
        _check_broker(state, name, "Broker", "expected {} but received {}")
        return [
            DescribeConfigsResourceResult(
                name=logger, value=level, read_only=False, config_source=Source.DYNAMIC_BROKER_LOGGER, is_sensitive=False, documentation=""
            )
            for logger, level in logger_levels().items()
        ]
    elif kind == Resource.CLIENT_METRICS:
        if not name:
            raise errors.InvalidRequest("Client metrics subscription name must not be empty")
        described = layers.describe_client_metrics(overrides)
    elif kind == Resource.GROUP:
        if not name:
            raise errors.InvalidRequest("Group name must not be empty")
        described = layers.describe_group(overrides)
    else:
        raise errors.InvalidRequest(MALFORMED)
    return [_entry(each, documentation(kind, each.key) if documented else None) for each in described]


def _entry(described: Described, told: str | None) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=described.key.name,
        value=described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.key.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in described.synonyms],
        config_type=described.key.type,
        documentation=told,
    )


def _check_broker(state: BrokerState, name: str, what: str, expected: str) -> None:
    """Refuses another broker's id, or what is none.

    Args:
        state: this broker's.
        name: of the resource.
        what: how Kafka calls it.
        expected: how Kafka says which id it wants, with places for both.
    """
    try:
        node_id = int(name)
    except ValueError:
        raise errors.InvalidRequest(f"{what} id must be an integer, but it is: {name}") from None
    if node_id != state.node_id:
        raise errors.InvalidRequest(f"Unexpected broker id, {expected.format(state.node_id, name)}")


def list_config_resources(state: BrokerState, call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """ListConfigResources v0-1: names of what has, or can have, settings; version 0 asks for client metrics alone."""
    if not may_cluster(state, call, DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    cluster = state.cluster
    names: dict[int, Iterable[str]] = {
        Resource.TOPIC: cluster.topics,
        Resource.BROKER: [str(node) for node in cluster.nodes],
        Resource.BROKER_LOGGER: [str(node) for node in cluster.nodes],
        Resource.CLIENT_METRICS: [name for kind, name in cluster.configs if kind == Resource.CLIENT_METRICS],
        Resource.GROUP: [name for kind, name in cluster.configs if kind == Resource.GROUP],
    }
    wanted = set(request.resource_types) if call.version >= 1 else {int(Resource.CLIENT_METRICS)}
    if not wanted <= set(names):
        return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in names
            if kind in wanted or not wanted
            for name in names[kind]
        ],
    )


# ---- loggers

ROOT_LOGGER = "root"
_PACKAGE = "kafkacore"
_LEVELS = {"DEBUG": 10, "ERROR": 40, "FATAL": 50, "INFO": 20, "TRACE": 5, "WARN": 30}
_LEVEL_NAMES = {number: name for name, number in _LEVELS.items()}


def _logger(name: str) -> logging.Logger | None:
    """The logger Kafka's tools mean; root is the root of this package: what else the process logs is not the broker's."""
    if name == ROOT_LOGGER:
        return logging.getLogger(_PACKAGE)
    known = name.split(".")[0] == _PACKAGE and name in logging.Logger.manager.loggerDict
    return logging.getLogger(name) if known else None


def logger_levels() -> Mapping[str, str]:
    """The levels in force of this package's loggers, in Kafka's words."""
    names = sorted(name for name in logging.Logger.manager.loggerDict if name == _PACKAGE or name.startswith(_PACKAGE + "."))
    found = {}
    for name in [ROOT_LOGGER, *names]:
        logger = _logger(name)
        if logger is not None:
            level = logger.getEffectiveLevel()
            found[name] = next(word for number, word in sorted(_LEVEL_NAMES.items(), reverse=True) if level >= number or number == 5)
    return found


def _alter_loggers(operations: Iterable[Operation], validate_only: bool) -> None:
    """Sets levels of loggers, of which nothing is stored. Source: org.apache.kafka.server.logger.RuntimeLoggerManager."""
    changes = []
    for name, kind, value in operations:
        logger = _logger(name)
        if kind in (configs.APPEND, configs.SUBTRACT):
            word = "APPEND" if kind == configs.APPEND else "SUBTRACT"
            raise errors.InvalidRequest(f"{word} operation is not allowed for the BROKER_LOGGER resource")
        if kind not in (configs.SET, configs.DELETE):
            raise errors.InvalidRequest(f"Unknown operation type {kind} is not allowed for the BROKER_LOGGER resource")
        if logger is None:
            raise errors.InvalidConfiguration(f"Logger {name} does not exist!")
        if kind == configs.DELETE:
            if name == ROOT_LOGGER:
                raise errors.InvalidRequest("Removing the log level of the root logger is not allowed")
            changes.append((logger, logging.NOTSET))
        elif value in _LEVELS:
            changes.append((logger, _LEVELS[value]))
        else:
            raise errors.InvalidConfiguration(
                f"Cannot set the log level of {name} to {value} as it is not a supported log level."
                f" Valid log levels are {', '.join(sorted(_LEVELS))}"
            )
    if not validate_only:
        for logger, level in changes:
            logger.setLevel(level)


# ---- altering


class _Verdict(NamedTuple):
    """What this broker says of one resource: an error, or that it is done; None has the controller decide."""

    code: int
    message: str | None


def _judge(error: KafkaError) -> _Verdict:
    return _Verdict(code_of(error), error.message or None)


def incremental_alter_configs(
    state: BrokerState, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | Outcome:
    """IncrementalAlterConfigs v0-1: SET, DELETE, APPEND, SUBTRACT. Each resource is altered as a whole or not at all."""

    def look(wanted: IncrementalAlterConfigsResource) -> _Verdict | None:
        kind, name = wanted.resource_type, wanted.resource_name
        operations = [Operation(each.name, each.config_operation, each.value) for each in wanted.configs]
        configs.check_operations(operations)
        if kind == Resource.BROKER_LOGGER:
            if not may_cluster(state, call, ALTER_CONFIGS):
                return _Verdict(Code.CLUSTER_AUTHORIZATION_FAILED, None)
            _check_node(state, name)
            _alter_loggers(operations, request.validate_only)
            return _Verdict(0, None)
        if kind == Resource.BROKER:
            settings = configs.apply_operations(keys_of(kind), state.cluster.configs.get((kind, name), {}), operations)
            _check_broker_settings(state, name, settings, [each.name for each in operations if each.name in settings])
        return None

    return _alter(state, call, request, look, IncrementalAlterConfigsResponse, IncrementalAlterConfigsResourceResponse)


def alter_configs(state: BrokerState, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse | Outcome:
    """AlterConfigs v0-2: the settings named become all that the resource has of its own."""

    def look(wanted: AlterConfigsResource) -> _Verdict | None:
        configs.check_operations([Operation(each.name, configs.SET, each.value) for each in wanted.configs])
        if wanted.resource_type == Resource.BROKER:
            settings = {each.name: each.value or "" for each in wanted.configs}
            _check_broker_settings(state, wanted.resource_name, settings, list(settings))
        return None

    return _alter(state, call, request, look, AlterConfigsResponse, AlterConfigsResourceResponse)


def _alter(
    state: BrokerState, call: Call, request: Any, look: Callable[[Any], _Verdict | None], response: type[R], item: Callable[..., Any]
) -> R | Outcome:
    """Looks at each resource, and has the controller decide about those with which nothing is wrong so far. Who may not alter a resource
    hears of it where Kafka's controller would say it: after the broker's own checks.

    Args:
        state: this broker's.
        call: whom to answer.
        request: AlterConfigs or its newer form.
        look: says what this broker says of a resource, or raises it.
        response, item: the response's class, and that of its entries.
    """
    mentions = Counter((each.resource_type, each.resource_name) for each in request.resources)
    verdicts: list[_Verdict | None] = []
    for wanted in request.resources:
        try:
            if mentions[wanted.resource_type, wanted.resource_name] > 1:
                raise errors.InvalidRequest(NAME_TWICE)
            verdict = look(wanted)
            kind, name = wanted.resource_type, wanted.resource_name
            if verdict is None and kind != Resource.BROKER_LOGGER and not _is_allowed(state, call, ALTER_CONFIGS, kind, name):
                verdict = _Verdict(*REFUSALS[kind])
            verdicts.append(verdict)
        except KafkaError as error:
            verdicts.append(_judge(error))
    passed = [wanted for wanted, verdict in zip(request.resources, verdicts, strict=True) if verdict is None]

    def answer(result: Response | KafkaError | None) -> R:
        decided = iter(_decisions(result, len(passed)))
        entries = []
        for wanted, verdict in zip(request.resources, verdicts, strict=True):
            told = verdict or next(decided)
            entries.append(
                item(
                    error_code=told.code, error_message=told.message, resource_type=wanted.resource_type, resource_name=wanted.resource_name
                )
            )
        return response(responses=entries)

    if not passed:
        return answer(None)
    return forward(state, call, request._replace(resources=passed), call.version, answer)


def _decisions(result: Response | KafkaError | None, count: int) -> list[_Verdict]:
    """The controller's word on every resource that was passed on."""
    if result is None:
        return []
    if isinstance(result, KafkaError):
        return [_judge(result)] * count
    if not isinstance(result, (AlterConfigsResponse, IncrementalAlterConfigsResponse)):
        raise errors.InternalError(f"the controller answered with {type(result).__name__}")
    return [_Verdict(each.error_code, each.error_message) for each in result.responses]


def _check_node(state: BrokerState, name: str) -> None:
    if not name.lstrip("-").isdecimal():
        raise errors.InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if int(name) != state.node_id:
        raise errors.InvalidRequest(f"Unexpected node id. Expected {state.node_id}, but received {name}")


def _check_broker_settings(state: BrokerState, name: str, settings: Mapping[str, str], changed: list[str]) -> None:
    if name:
        _check_broker(state, name, "Node", "expected {}, but received {}")
    configs.check_broker(settings, changed, bool(name), state.config_layers().static)
    try:
        altered = configs.effective(state.static_config, settings)
        if any(name.startswith("listener.name.") for name in changed):
            broker_contexts(altered, listeners_of(altered))  # as Kafka looks into them first
        connection_limits(altered)
    except ConfigError as error:
        raise errors.InvalidRequest(str(error)) from None
    unused = [each for each in changed if not configs.is_obeyed(each, SERVED_BY_BROKERS)]
    if unused:
        logger.warning("broker %d keeps and shows altered settings that have no effect here: %s", state.node_id, ", ".join(unused))
