"""The tables of settings, held against a running Apache Kafka: names, types, defaults, limits, what may be altered, and Kafka's words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore import errors
from kafkacore.broker import configs
from kafkacore.broker.configs import ConfigKey, ConfigType, Resource, Source
from kafkacore.testing import EmbeddedCluster
from tests.interop.admin_cases import create, new
from tests.interop.admin_cases_configs import SET, alter, describe, replace
from tests.interop.conftest import KAFKA_SETTINGS
from tests.kit.kafka_server import KafkaServer
from tests.kit.rows import each_row
from tests.kit.waiting import fresh
from tests.kit.wire import Wire

pytestmark = pytest.mark.kafka

STATIC = {"node.id", "process.roles", "controller.listener.names"}
"""Settings without a default: no broker runs without them."""


@pytest.fixture(scope="module")
def wire(real_kafka: KafkaServer) -> Iterator[Wire]:
    with Wire(real_kafka.bootstrap_servers, timeout_s=60) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(wire: Wire) -> str:
    name = fresh("configs")
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


@each_row("key", configs.topic_keys().values(), ids=lambda key: key.name)
def test_topic_settings_are_refused_in_the_same_words(wire: Wire, topic: str, key: ConfigKey) -> None:
    for value in wrong_values(key):
        answer = wire.ask(alter((Resource.TOPIC, topic, [(key.name, SET, value)]), validate_only=True), 1).responses[0]
        with pytest.raises(errors.InvalidConfiguration) as refused:
            configs.check_topic({key.name: value})
        assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_CONFIG, refused.value.message), value


@each_row("key", [key for key in configs.broker_keys().values() if key.link != "fixed"], ids=lambda key: key.name)
def test_dynamic_broker_settings_are_refused_in_the_same_words(wire: Wire, key: ConfigKey) -> None:
    for value in wrong_values(key):
        for name, per_broker in (("1", True), ("", False)):
            answer = wire.ask(alter((Resource.BROKER, name, [(key.name, SET, value)]), validate_only=True), 1).responses[0]
            with pytest.raises(errors.InvalidRequest) as refused:
                configs.check_broker({key.name: value}, [key.name], per_broker, {})
            assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_REQUEST, refused.value.message), (value, name)


def test_what_cannot_be_altered_is_refused_in_the_same_words(wire: Wire) -> None:
    for key in configs.broker_keys().values():
        if key.link == "fixed" or key.name in configs.PER_LISTENER:
            answer = wire.ask(alter((Resource.BROKER, "1", [(key.name, SET, key.default or "x")]), validate_only=True), 1).responses[0]
            with pytest.raises(errors.InvalidRequest) as refused:
                configs.check_broker({key.name: key.default or "x"}, [key.name], True, {})
            assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_REQUEST, refused.value.message), key.name


@each_row("key", configs.group_keys().values(), ids=lambda key: key.name)
def test_group_settings_are_refused_in_the_same_words(wire: Wire, key: ConfigKey) -> None:
    layers = configs.BrokerLayers({}, {}, {})
    for value in wrong_values(key):
        answer = wire.ask(alter((Resource.GROUP, "g", [(key.name, SET, value)]), validate_only=True), 1).responses[0]
        with pytest.raises(errors.InvalidConfiguration) as refused:
            configs.check_group({key.name: value}, layers)
        assert (answer.error_code, answer.error_message) == (errors.Code.INVALID_CONFIG, refused.value.message), value


# ---- what Kafka takes is taken here


BESIDE = {
    "config.providers": "",
    "cordoned.log.dirs": "",
    "max.connections.per.ip.overrides": "127.0.0.1:100",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "match": "client_id=a.*",
    "share.auto.offset.reset": "earliest",
}
"""Legal values that no rule finds."""
TAKEN_NOWHERE = {
    "ssl.engine.factory.class": "there is no such class to name",
    "listeners": "a broker here cannot open a port while it runs, and that Kafka's listeners are none of the embedded broker's",
    "listener.security.protocol.map": "as listeners",
}
DIFFERENT = {
    ("min.insync.replicas", True): "Kafka refuses it for one broker while eligible leader replicas are enabled (KIP-966)",
    ("log.cleaner.threads", None): "Kafka divides by it before it refuses 0",
    ("log.local.retention.ms", None): "Kafka compares it with the broker's retention, which tiered storage alone would need",
    ("log.local.retention.bytes", None): "as log.local.retention.ms",
}


def legal_values(key: ConfigKey) -> list[str]:
    """The default, and a value beside it that the table says is right."""
    values = [] if key.default is None else [key.default]
    low, _, high = key.limits.partition("|")[0].partition("..")
    if key.name in BESIDE:
        values.append(BESIDE[key.name])
    elif key.type is ConfigType.BOOLEAN:
        values += ["true", "false"]
    elif key.type in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT):
        default = int(key.default or "1000")
        highest = int(high) if high else {ConfigType.INT: 2**31, ConfigType.LONG: 2**63, ConfigType.SHORT: 2**15}[key.type] - 1
        values += [str(each) for each in (default - 1, default + 1) if (low == "*" or each >= int(low)) and each <= highest]
    elif key.type is ConfigType.DOUBLE:
        values.append("0.25")
    elif key.limits == "replicas":
        values += ["*", "0:1,1:1"]
    elif key.limits != "*":
        values += key.limits.removeprefix("~").split("/")
    elif key.type is ConfigType.STRING:
        values.append("x")
    return list(dict.fromkeys(values))


@pytest.fixture(scope="module")
def here() -> Iterator[Wire]:
    limits = {name.replace("_", "."): value for name, value in KAFKA_SETTINGS.items() if name.startswith("group_")}
    with EmbeddedCluster(config=limits) as cluster:
        with Wire(cluster.bootstrap_servers, timeout_s=60) as connection:
            assert connection.ask(create(new("configs")), 7).topics[0].error_code == 0
            yield connection


def resources_of(kind: Resource, topic: str, how: str) -> list[str]:
    """AlterConfigs of all brokers takes min.insync.replicas away from them, which Kafka refuses with eligible leader replicas (KIP-966)."""
    brokers = ["1", ""] if how == "incremental" else ["1"]
    return {Resource.TOPIC: [topic], Resource.GROUP: ["g"], Resource.CLIENT_METRICS: ["m"]}.get(kind, brokers)


def alter_incrementally(connection: Wire, kind: Resource, name: str, setting: str, value: str) -> int:
    code: int = connection.ask(alter((kind, name, [(setting, SET, value)]), validate_only=True), 1).responses[0].error_code
    return code


def alter_as_a_whole(connection: Wire, kind: Resource, name: str, setting: str, value: str) -> int:
    code: int = connection.ask(replace(kind, name, {setting: value}, validate_only=True), 2).responses[0].error_code
    return code


KINDS = [Resource.BROKER, Resource.TOPIC, Resource.GROUP, Resource.CLIENT_METRICS]


@pytest.mark.parametrize("how", ["incremental", "whole"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.lower())
def test_a_legal_value_of_every_setting_is_taken_as_kafka_takes_it(wire: Wire, here: Wire, topic: str, kind: Resource, how: str) -> None:
    keys = {
        Resource.BROKER: {**configs.broker_keys(), **configs.dynamic_keys()},
        Resource.TOPIC: configs.topic_keys(),
        Resource.GROUP: configs.group_keys(),
        Resource.CLIENT_METRICS: configs.client_metrics_keys(),
    }[kind]
    ask = alter_incrementally if how == "incremental" else alter_as_a_whole
    different = {}
    for key in keys.values():
        if key.name in TAKEN_NOWHERE or (key.name, None) in DIFFERENT:
            continue
        for value in legal_values(key):
            codes = []
            for connection, name_of_topic in ((wire, topic), (here, "configs")):
                codes += [ask(connection, kind, name, key.name, value) for name in resources_of(kind, name_of_topic, how)]
            half = len(codes) // 2
            for at, (theirs, ours) in enumerate(zip(codes[:half], codes[half:], strict=True)):
                if theirs != ours and (key.name, at == 0) not in DIFFERENT:
                    different[key.name, value, at] = theirs, ours
    assert different == {}


@pytest.mark.parametrize("name", ["some.plugin.setting", "listener.name.plaintext.max.connections", "listener.name.nobody.some.thing"])
def test_names_that_kafka_does_not_know_are_kept(wire: Wire, here: Wire, name: str) -> None:
    for connection in (wire, here):
        codes = [alter_incrementally(connection, Resource.BROKER, broker, name, "5") for broker in ("1", "")]
        assert codes == [0, errors.Code.INVALID_REQUEST if name.endswith(".thing") else 0]


STARTED_TOGETHER = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "metrics.recording.level": "DEBUG",
    "broker.rack": "r1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "num.replica.alter.log.dirs.threads": "2",
}
"""Values that agree with each other."""
NOT_STARTED_WITH = {
    # They need something else: files, classes, a quorum, tiered storage, a listener with passwords, other settings that agree.
    name
    for name in configs.broker_keys()
    if name.startswith(("ssl.", "sasl.", "controller.", "remote.", "listener", "advertised.", "inter.broker.", "security."))
    or name.endswith((".class", ".class.name", ".reporters", ".providers", ".dirs", ".dir", ".roles", ".id"))
}
LESS_HERE = {
    "connections.max.reauth.ms": "refused where no listener asks for passwords: it has no effect then",
    "queued.max.request.bytes": "less than socket.request.max.bytes: Kafka takes it, and reads no large request any more",
}


def test_a_broker_starts_with_what_kafka_starts_with(tmp_path: Path) -> None:
    """One start of Kafka with a value beside the default of every setting, and one of the embedded broker."""
    beside = {}
    for key in configs.broker_keys().values():
        if key.name in NOT_STARTED_WITH or key.name in LESS_HERE:
            continue
        values = [each for each in legal_values(key) if each != key.default]
        if values:
            beside[key.name] = values[-1]
    beside |= STARTED_TOGETHER
    with KafkaServer(**{name.replace(".", "_"): value for name, value in beside.items()}) as kafka:
        with Wire(kafka.bootstrap_servers, timeout_s=60) as connection:
            assert connection.ask(describe((Resource.BROKER, "1")), 4).results[0].error_code == 0
    with EmbeddedCluster(config=beside) as cluster, Wire(cluster.bootstrap_servers, timeout_s=60) as connection:
        shown = {entry.name: entry.value for entry in connection.ask(describe((Resource.BROKER, "1")), 4).results[0].configs}
    assert len(beside) > 150
    assert {name: shown[name] for name, value in beside.items() if shown[name] != value} == {}
