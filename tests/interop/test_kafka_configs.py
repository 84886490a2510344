"""The tables of settings, held against a running Apache Kafka: names, types, defaults, limits, what may be altered, and Kafka's words."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kafkacore import errors
from kafkacore.broker import configs
from kafkacore.broker.configs import ConfigKey, ConfigType, Resource, Source
from tests.broker.wire import Wire
from tests.interop.admin_cases import create, new
from tests.interop.admin_cases_configs import SET, alter, describe
from tests.interop.kafka_server import KafkaServer

pytestmark = pytest.mark.kafka

STATIC = {"node.id", "process.roles", "controller.listener.names"}
"""Settings without a default: no broker runs without them."""


@pytest.fixture(scope="module")
def wire(real_kafka: KafkaServer) -> Iterator[Wire]:
    with Wire(real_kafka.bootstrap_servers, timeout_s=60) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(wire: Wire) -> str:
    name = f"configs-{uuid.uuid4().hex}"
    assert wire.ask(create(new(name)), 7).topics[0].error_code == 0
    while wire.ask(describe((Resource.TOPIC, name)), 4).results[0].error_code:
        pass  # the broker follows the controller
    return name


def test_a_broker_has_exactly_these_settings(wire: Wire) -> None:
    shown = {entry.name: entry for entry in wire.ask(describe((Resource.BROKER, "1")), 4).results[0].configs}
    keys = configs.broker_keys()
    internal = {"log.initial.task.delay.ms"}  # hidden by Kafka where it is not set, as the tests' Kafka sets it
    assert {name for name in shown if shown[name].config_type} - internal == set(keys)  # an unknown name kept by Kafka has no type
    for name, key in keys.items():
        entry = shown[name]
        defaults = [synonym.value for synonym in entry.synonyms if synonym.name == name and synonym.source == Source.DEFAULT]
        expected = [] if key.default is None else [None if key.is_sensitive else key.default]
        assert defaults == expected, name
        assert (entry.config_type, entry.is_sensitive, entry.read_only) == (key.type, key.is_sensitive, key.link == "fixed"), name
        if key.default is None and entry.value is not None and not entry.is_sensitive:
            assert entry.config_source == Source.STATIC_BROKER, name


@pytest.mark.parametrize("kind", [Resource.TOPIC, Resource.GROUP, Resource.CLIENT_METRICS], ids=lambda kind: kind.name.lower())
def test_other_resources_have_exactly_these_settings(wire: Wire, topic: str, kind: Resource) -> None:
    shown = wire.ask(describe((kind, topic)), 4).results[0].configs
    keys = {
        Resource.TOPIC: configs.topic_keys,
        Resource.GROUP: configs.group_keys,
        Resource.CLIENT_METRICS: configs.client_metrics_keys,
    }[kind]()
    assert {entry.name for entry in shown} == set(keys)
    for entry in shown:
        key = keys[entry.name]
        assert ConfigType(entry.config_type) == key.type, entry.name
        defaults = [synonym.value for synonym in entry.synonyms if synonym.source == Source.DEFAULT]
        if entry.config_source == Source.DEFAULT or not defaults:  # this Kafka may have been started with others
            defaults = [entry.value]
        assert key.default in defaults, entry.name
        linked = [synonym.name for synonym in entry.synonyms if synonym.name != entry.name]
        assert set(linked) <= {key.link}, entry.name


def wrong_values(key: ConfigKey) -> list[str]:
    """Values that the table says are refused."""
    if key.type in (ConfigType.CLASS, ConfigType.PASSWORD):
        return []
    if key.limits == "replicas":
        return ["x", "1:2,x", "1:", "*,1:2"]
    wrong = []
    if key.type is ConfigType.BOOLEAN:
        wrong.append("perhaps")
    elif key.type not in (ConfigType.STRING, ConfigType.LIST):
        wrong += ["many", "", "1x"]
        if key.type is not ConfigType.DOUBLE:
            wrong += ["1.5", str(2**63)]
        low, _, high = key.limits.partition("|")[0].partition("..")
        if low not in ("*", str(-(2**31))):
            wrong.append(f"{float(low) - 1}" if key.type is ConfigType.DOUBLE else f"{int(low) - 7}")
        if high:
            wrong.append(f"{float(high) + 1}" if key.type is ConfigType.DOUBLE else f"{int(high) + 1}")
    elif key.limits != "*":
        wrong += ["burn"]
        if key.type is ConfigType.LIST:
            wrong += [",", "delete,,compact"]
    return wrong


@pytest.mark.parametrize("key", configs.topic_keys().values(), ids=lambda key: key.name)
def test_topic_settings_are_refused_in_the_same_words(wire: Wire, topic: str, key: ConfigKey) -> None:
    for value in wrong_values(key):
        answer = wire.ask(alter((Resource.TOPIC, topic, [(key.name, SET, value)]), validate_only=True), 1).responses[0]
        with pytest.raises(errors.InvalidConfiguration) as refused:
            configs.check_topic({key.name: value})
        assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_CONFIG, refused.value.message), value


@pytest.mark.parametrize("key", [key for key in configs.broker_keys().values() if key.link != "fixed"], ids=lambda key: key.name)
def test_dynamic_broker_settings_are_refused_in_the_same_words(wire: Wire, key: ConfigKey) -> None:
    for value in wrong_values(key):
        for name, per_broker in (("1", True), ("", False)):
            answer = wire.ask(alter((Resource.BROKER, name, [(key.name, SET, value)]), validate_only=True), 1).responses[0]
            with pytest.raises(errors.InvalidRequest) as refused:
                configs.check_broker({key.name: value}, [key.name], per_broker, {})
            assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_REQUEST, refused.value.message), (value, name)


def test_what_cannot_be_altered_is_refused_in_the_same_words(wire: Wire) -> None:
    for key in configs.broker_keys().values():
        if key.link == "fixed" or key.name in configs._PER_LISTENER:
            answer = wire.ask(alter((Resource.BROKER, "1", [(key.name, SET, key.default or "x")]), validate_only=True), 1).responses[0]
            with pytest.raises(errors.InvalidRequest) as refused:
                configs.check_broker({key.name: key.default or "x"}, [key.name], True, {})
            assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_REQUEST, refused.value.message), key.name


@pytest.mark.parametrize("key", configs.group_keys().values(), ids=lambda key: key.name)
def test_group_settings_are_refused_in_the_same_words(wire: Wire, key: ConfigKey) -> None:
    layers = configs.BrokerLayers({}, {}, {})
    for value in wrong_values(key):
        answer = wire.ask(alter((Resource.GROUP, "g", [(key.name, SET, value)]), validate_only=True), 1).responses[0]
        with pytest.raises(errors.InvalidConfiguration) as refused:
            configs.check_group({key.name: value}, layers)
        assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_CONFIG, refused.value.message), value
