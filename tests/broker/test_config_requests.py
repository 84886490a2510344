"""Requests about settings: who may send them, what each resource of one is answered, loggers, a controller that fails."""

import logging
from types import SimpleNamespace

import pytest
from controlling import submit
from test_acl_enforcement import Secured
from test_handlers import Bench

from kafkacore import errors
from kafkacore import protocol as p
from kafkacore.broker import authorizer as a
from kafkacore.broker.config_docs import METRICS
from kafkacore.errors import Code
from tests.interop.admin_cases import APPEND, BROKER, BROKER_LOGGER, CLIENT_METRICS, DELETE, GROUP, SET, SUBTRACT, TOPIC
from tests.interop.admin_cases_configs import alter, describe, replace

KINDS = [(TOPIC, "t"), (BROKER, "1"), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g")]
NO_CLUSTER = (Code.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
REFUSALS = [
    (Code.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    *[NO_CLUSTER] * 3,
    (Code.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
]


@pytest.fixture
def bench():
    made = Bench()
    made.topic("t", retention_ms="5")
    made.topic("u")
    return made


def said(response):
    """What each resource is answered."""
    rows = response.results if hasattr(response, "results") else response.responses
    return [(each.resource_type, each.resource_name, each.error_code, each.error_message) for each in rows]


def test_who_may_look_and_alter():
    bench = Secured()
    first, *others = said(bench.ask(describe(*KINDS, (99, "x")), 4))
    assert first[:3] == (99, "x", Code.INVALID_REQUEST)
    assert others == [(*each, *refusal) for each, refusal in zip(KINDS, REFUSALS, strict=True)]
    alterations = alter(*((kind, name, []) for kind, name in KINDS))
    logger = (BROKER_LOGGER, "1", Code.CLUSTER_AUTHORIZATION_FAILED, None)
    assert said(bench.ask(alterations, 1)) == [*others[:2], logger, *others[3:]]
    assert said(bench.ask(replace(GROUP, "g", {}), 2)) == [others[4]]
    for version in (0, 1):
        listed = bench.ask(p.ListConfigResourcesRequest(), version)
        assert (listed.error_code, listed.config_resources) == (Code.CLUSTER_AUTHORIZATION_FAILED, [])
    bench.allow(bench.entry(a.DESCRIBE_CONFIGS), bench.entry(a.ALTER_CONFIGS, "g", resource_type=a.GROUP))
    seen = [(*each, 0, "") for each in (KINDS[0], KINDS[4])]  # who may alter may look
    assert said(bench.ask(describe(*KINDS), 4)) == [*seen, *others[1:4]]
    assert [code for *_, code, _ in said(bench.ask(alterations, 1))] == [*(code for code, _ in REFUSALS[:4]), 0]
    bench.principal = "User:admin"
    assert [code for *_, code, _ in said(bench.ask(describe(*KINDS), 4))] == [0] * 5


def test_how_settings_are_described(bench):
    keys = ["retention.ms", "segment.ms"]
    wanted = describe((TOPIC, "t", keys), (CLIENT_METRICS, "m", ["interval.ms"]))
    own, inherited = sorted(bench.ask(wanted, 4).results[0].configs, key=lambda each: each.name)
    assert (own.name, own.value, own.config_source, own.config_type, own.documentation) == ("retention.ms", "5", 1, 5, None)
    assert [(each.name, each.value, each.source) for each in own.synonyms][:1] == [("retention.ms", "5", 1)]
    assert (inherited.config_source, own.read_only, own.is_sensitive) == (5, False, False)
    shown = bench.ask(wanted._replace(include_documentation=True, include_synonyms=False), 4)
    assert [[bool(each.documentation) for each in result.configs] for result in shown.results] == [[True, True], [True]]
    assert [each.documentation for each in shown.results[1].configs] == [METRICS]
    assert [each.synonyms for result in shown.results for each in result.configs] == [[], [], []]
    old = wanted._replace(include_synonyms=False)
    assert {each.name: each.is_default for each in bench.ask(old, 0).results[0].configs} == {"retention.ms": False, "segment.ms": True}
    for kind, name, message in (
        (TOPIC, "none", ""),
        (BROKER, "x", "Broker id must be an integer, but it is: x"),
        (BROKER, "2", "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER_LOGGER, "2", "Unexpected broker id, expected 1 but received 2"),
        (BROKER_LOGGER, "", "Broker id must not be empty"),
        (CLIENT_METRICS, "", "Client metrics subscription name must not be empty"),
        (GROUP, "", "Group name must not be empty"),
    ):
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if kind == TOPIC else Code.INVALID_REQUEST
        assert said(bench.ask(describe((kind, name)), 4)) == [(kind, name, code, message)]


def test_what_has_settings(bench):
    assert said(bench.ask(alter((GROUP, "g", [("share.isolation.level", SET, "read_committed")])), 1)) == [(GROUP, "g", 0, None)]
    assert said(bench.ask(alter((CLIENT_METRICS, "m", [("interval.ms", SET, "100")])), 1)) == [(CLIENT_METRICS, "m", 0, None)]
    every = [(TOPIC, "t"), (TOPIC, "u"), (BROKER, "1"), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g")]
    for kinds, version in (([], 1), ([TOPIC, GROUP], 1), ([], 0)):
        listed = bench.ask(p.ListConfigResourcesRequest(resource_types=kinds), version)
        wanted = [CLIENT_METRICS] if version == 0 else kinds or dict(KINDS)
        found = [(each.resource_type if version else CLIENT_METRICS, each.resource_name) for each in listed.config_resources]
        assert (listed.error_code, found) == (0, [each for each in every if each[0] in wanted])


def test_levels_of_loggers(bench):
    name = "kafkacore.tests.levels"
    logger = logging.getLogger(name)

    def level():
        ((entry,),) = ([each.value for each in result.configs] for result in bench.ask(describe((BROKER_LOGGER, "1", [name])), 4).results)
        return entry

    levels = {1: "TRACE", 5: "TRACE", 10: "DEBUG", 20: "INFO", 25: "INFO", 30: "WARN", 40: "ERROR", 50: "FATAL", 60: "FATAL"}
    for number, word in levels.items():
        logger.setLevel(number)
        assert level() == word
    other = logging.getLogger("other.tests.levels")
    assert other.name not in {each.name for each in bench.ask(describe((BROKER_LOGGER, "1")), 4).results[0].configs}
    for operation, code, message in (
        ((name, APPEND, "INFO"), Code.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ((name, SUBTRACT, "INFO"), Code.INVALID_REQUEST, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ((name, 9, "INFO"), Code.INVALID_REQUEST, "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource"),
        ((other.name, SET, "INFO"), Code.INVALID_CONFIG, f"Logger {other.name} does not exist!"),
        (("kafkacore.none", DELETE, None), Code.INVALID_CONFIG, "Logger kafkacore.none does not exist!"),
        (("root", DELETE, None), Code.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        (
            (name, SET, "LOUD"),
            Code.INVALID_CONFIG,
            f"Cannot set the log level of {name} to LOUD as it is not a supported log level."
            " Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
    ):
        wrong = alter((BROKER_LOGGER, "1", [("kafkacore", SET, "FATAL"), operation]))
        assert said(bench.ask(wrong, 1)) == [(BROKER_LOGGER, "1", code, message)]
    for node, message in (("x", "Node id must be an integer, but it is: x"), ("-1", "Unexpected node id. Expected 1, but received -1")):
        wrong = alter((BROKER_LOGGER, node, [(name, SET, "INFO")]))
        assert said(bench.ask(wrong, 1)) == [(BROKER_LOGGER, node, Code.INVALID_REQUEST, message)]
    assert (level(), logging.getLogger("kafkacore").level) == ("FATAL", logging.NOTSET)
    change = alter((BROKER_LOGGER, "1", [(name, SET, "DEBUG")]), validate_only=True)
    for request, then in ((change, "FATAL"), (change._replace(validate_only=False), "DEBUG")):
        assert (said(bench.ask(request, 1)), level()) == ([(BROKER_LOGGER, "1", 0, None)], then)
    bench.ask(alter((BROKER_LOGGER, "1", [(name, DELETE, None)])), 1)
    assert logger.level == logging.NOTSET


def test_each_resource_is_altered_or_not(bench, caplog):
    good, bad = (TOPIC, "t", [("retention.ms", SET, "7")]), (TOPIC, "u", [("retention.ms", SET, "x")])
    unparsed = "Invalid value x for configuration retention.ms: Not a number of type LONG"
    wrong = [
        (*bad[:2], Code.INVALID_CONFIG, unparsed),
        (BROKER, "x", Code.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (*good[:2], 0, None),
        (BROKER, "2", Code.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (GROUP, "", Code.INVALID_REQUEST, "Default group resources are not allowed."),
    ]
    before = dict(bench.cluster.configs)
    mixed = alter(bad, (BROKER, "x", []), good, (BROKER, "2", []), (GROUP, "", []), validate_only=True)
    assert said(bench.ask(mixed, 1)) == wrong
    assert bench.cluster.configs == before
    assert said(bench.ask(mixed._replace(validate_only=False), 1)) == wrong
    assert bench.cluster.configs == before | {(TOPIC, "t"): {"retention.ms": "7"}}
    twice = (Code.INVALID_REQUEST, "Each resource must appear at most once.")
    assert said(bench.ask(alter((BROKER, "1", []), good, good), 1)) == [(BROKER, "1", 0, None), *[(*good[:2], *twice)] * 2]
    loggers = (BROKER_LOGGER, "1")
    assert said(bench.ask(alter((*loggers, []), (*loggers, [])), 1)) == [(*loggers, *twice)] * 2
    settings = [("max.connections", SET, "7"), ("node.id", DELETE, None), ("b.plugin", SET, "x"), ("a.plugin", SET, "y")]
    assert said(bench.ask(alter((BROKER, "1", settings)), 1)) == [(BROKER, "1", 0, None)]
    assert bench.cluster.configs[BROKER, "1"] == {"max.connections": "7", "b.plugin": "x", "a.plugin": "y"}
    unused = "broker 1 keeps and shows altered settings that have no effect here: {}"
    for kind, name in ((BROKER, "1"), (BROKER, "")):
        assert said(bench.ask(replace(kind, name, {"max.connections": "8", "own.plugin": ""}), 2)) == [(kind, name, 0, None)]
        assert bench.cluster.configs[kind, name] == {"max.connections": "8", "own.plugin": ""}
    assert [each.getMessage() for each in caplog.records] == [unused.format("b.plugin, a.plugin"), *[unused.format("own.plugin")] * 2]
    limit = "max.connections.per.ip.overrides: 'h' is not of the form host:limit".replace(".", "_")
    for request in (replace(BROKER, "1", {"max.connections.per.ip.overrides": "h"}), replace(BROKER, "1", {"max.connections": None})):
        ((_, _, code, message),) = said(bench.ask(request, 2))
        assert (code, message) == (
            Code.INVALID_REQUEST,
            limit if "per.ip" in str(request) else "Null value not supported for : max.connections",
        )


def test_what_a_controller_answers(bench):
    link = bench.state.controller
    rows = [
        (TOPIC, "", {}, Code.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "none", {}, Code.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        (TOPIC, "t", {"no.such": "1"}, Code.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (BROKER, "1x", {}, Code.INVALID_REQUEST, "Unable to parse broker name as a base 10 number: 1x"),
        (BROKER, "12", {"max.connections": "9"}, 0, None),
        (BROKER, "", {"max.connections": "9"}, 0, None),
        (CLIENT_METRICS, "", {}, Code.INVALID_REQUEST, "Subscription name can't be empty"),
        (CLIENT_METRICS, "m", {"no.such": "1"}, Code.INVALID_REQUEST, "Unknown client metrics configuration: no.such"),
        (GROUP, "", {}, Code.INVALID_REQUEST, "Default group resources are not allowed."),
        (GROUP, "g", {"no.such": "1"}, Code.INVALID_CONFIG, "Unknown group config name: no.such"),
        (BROKER_LOGGER, "1", {}, Code.INVALID_REQUEST, "Unknown resource type 8"),
    ]
    expected = [(kind, name, code, message) for kind, name, _, code, message in rows]
    settings = [(kind, name, [(key, SET, value) for key, value in own.items()]) for kind, name, own, _, _ in rows]
    kept = {(BROKER, "12"): {"max.connections": "9"}, (BROKER, ""): {"max.connections": "9"}}
    before = dict(bench.cluster.configs)
    assert said(submit(link, alter(*settings, validate_only=True))) == expected
    assert bench.cluster.configs == before
    assert said(submit(link, alter(*settings))) == expected
    assert bench.cluster.configs == before | kept
    good = (GROUP, "g", [("share.delivery.count.limit", SET, "4")])
    assert [code for *_, code, _ in said(submit(link, alter(good, (GROUP, "h", []), good)))] == [
        Code.INVALID_REQUEST,
        0,
        Code.INVALID_REQUEST,
    ]
    for kind, name, own, code, message in rows:
        assert said(submit(link, replace(kind, name, own))) == [(kind, name, code, message)]
    assert said(submit(link, replace(TOPIC, "t", {"segment.ms": "7", "flush.ms": None}))) == [
        (TOPIC, "t", Code.INVALID_REQUEST, "Null value not supported for : flush.ms")
    ]
    both = replace(TOPIC, "t", {"segment.ms": "7", "flush.ms": "8"})
    for request, settings in ((both._replace(validate_only=True), {"retention.ms": "5"}), (both, {"segment.ms": "7", "flush.ms": "8"})):
        submit(link, request)
        assert bench.cluster.configs[TOPIC, "t"] == settings


def test_a_controller_that_fails(bench):
    request = alter((TOPIC, "t", []), (BROKER_LOGGER, "x", []), (TOPIC, "u", []))
    refused = (BROKER_LOGGER, "x", Code.INVALID_REQUEST, "Node id must be an integer, but it is: x")
    failure = errors.NotController("it moved")
    bench.state.controller = SimpleNamespace(submit=lambda request, version, answered: answered(failure))
    moved = (Code.NOT_CONTROLLER, "it moved")
    assert said(bench.ask(request, 1)) == [(TOPIC, "t", *moved), refused, (TOPIC, "u", *moved)]
    bench.state.controller = SimpleNamespace(submit=lambda request, version, answered: answered(p.MetadataResponse()))
    with pytest.raises(AssertionError, match="a late answer failed"):
        bench.ask(request, 1)
