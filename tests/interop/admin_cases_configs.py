"""The comparisons of `admin_cases` that are about configs."""

from __future__ import annotations

from kafkacore import protocol as p
from tests.interop.admin_cases import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Cases,
    create,
    new,
)


def describe(*resources: tuple[int, str] | tuple[int, str, list[str] | None], synonyms: bool = True) -> p.DescribeConfigsRequest:
    return p.DescribeConfigsRequest(
        resources=[
            p.DescribeConfigsResource(resource_type=each[0], resource_name=each[1], configuration_keys=each[2] if len(each) == 3 else None)
            for each in resources
        ],
        include_synonyms=synonyms,
    )


def alter(*resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = False) -> p.IncrementalAlterConfigsRequest:
    return p.IncrementalAlterConfigsRequest(
        resources=[
            p.IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[p.IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def replace(kind: int, name: str, configs: dict[str, str | None], *, validate_only: bool = False) -> p.AlterConfigsRequest:
    return p.AlterConfigsRequest(
        resources=[
            p.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[p.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
        ],
        validate_only=validate_only,
    )


def cases(topic: str) -> Cases:
    """Of settings."""
    keys = ["retention.ms", "cleanup.policy", "max.message.bytes"]
    return {
        "configs-of-a-topic": [
            (create(new(topic, retention_ms="1000", segment_bytes="2000000")), 7),
            (describe((TOPIC, topic)), 4),
            (describe((TOPIC, topic), synonyms=False), 4),
            (describe((TOPIC, topic, ["retention.ms", "no.such", "cleanup.policy"])), 4),
            (describe((TOPIC, topic, [])), 4),
        ],
        "configs-in-every-version": [
            (create(new(topic, retention_ms="1000")), 7),
            *((describe((TOPIC, topic, ["retention.ms", "cleanup.policy"])), version) for version in range(1, 5)),
        ],
        "configs-of-what-is-not-there": [
            (describe((TOPIC, topic + "-missing")), 4),
            (describe((TOPIC, "a b")), 4),
            (describe((TOPIC, "")), 4),
            (describe((BROKER, "9")), 4),
            (describe((BROKER, "x")), 4),
            (describe((BROKER_LOGGER, "9")), 4),
            (describe((BROKER_LOGGER, "")), 4),
            (describe((CLIENT_METRICS, "")), 4),
            (describe((CLIENT_METRICS, topic)), 4),
            (describe((GROUP, "")), 4),
            (describe((99, "x")), 4),
            (describe((0, "x")), 4),
            (describe((1, "x")), 4),
            (describe(), 4),
        ],
        "configs-of-a-group": [(describe((GROUP, topic)), 4), (describe((GROUP, topic, ["consumer.session.timeout.ms"])), 4)],
        "cluster-wide-defaults": [
            (describe((BROKER, "", ["log.retention.ms"])), 4),
            (alter((BROKER, "", [("log.retention.ms", SET, "9000000")])), 1),
            (describe((BROKER, "")), 4),
            (describe((BROKER, "1", ["log.retention.ms"])), 4),
            (create(new(topic)), 7),
            (describe((TOPIC, topic, ["retention.ms"])), 4),
            (alter((BROKER, "1", [("log.retention.ms", SET, "8000000")])), 1),
            (describe((BROKER, "1", ["log.retention.ms", "log.retention.hours"])), 4),
            (describe((TOPIC, topic, ["retention.ms"])), 4),
            (alter((BROKER, "1", [("log.retention.ms", DELETE, None)])), 1),
            (alter((BROKER, "", [("log.retention.ms", DELETE, None)])), 1),
            (describe((TOPIC, topic, ["retention.ms"])), 4),
            (describe((BROKER, "")), 4),
        ],
        "alter-a-topic": [
            (create(new(topic)), 7),
            (alter((TOPIC, topic, [("retention.ms", SET, "5000"), ("max.message.bytes", SET, "2000")])), 1),
            (describe((TOPIC, topic, keys)), 4),
            (alter((TOPIC, topic, [("retention.ms", DELETE, None), ("cleanup.policy", APPEND, "compact")])), 0),
            (describe((TOPIC, topic, keys)), 4),
            (alter((TOPIC, topic, [("cleanup.policy", APPEND, "compact")])), 0),
            (describe((TOPIC, topic, keys)), 4),
            (alter((TOPIC, topic, [("cleanup.policy", SUBTRACT, "delete")])), 1),
            (describe((TOPIC, topic, keys)), 4),
            (alter((TOPIC, topic, [("max.message.bytes", SET, "3000")]), validate_only=True), 1),
            (describe((TOPIC, topic, keys)), 4),
            (alter((TOPIC, topic, [("retention.ms", DELETE, None)])), 1),
            (alter((TOPIC, topic, [])), 1),
            (alter(), 1),
        ],
        "alter-wrongly": [
            (create(new(topic)), 7),
            *(
                (alter((TOPIC, topic, [each])), 1)
                for each in [
                    ("retention.ms", SET, "soon"),
                    ("retention.ms", SET, None),
                    ("retention.ms", SET, ""),
                    ("retention.ms", APPEND, "5"),
                    ("retention.ms", SUBTRACT, "5"),
                    ("retention.ms", 9, "5"),
                    ("retention.ms", SET, "-2"),
                    ("no.such", SET, "5"),
                    ("no.such", DELETE, None),
                    ("no.such", APPEND, "x"),
                    ("", SET, "5"),
                    ("cleanup.policy", SET, "burn"),
                    ("cleanup.policy", APPEND, "burn"),
                    ("cleanup.policy", SUBTRACT, "compact"),
                    ("cleanup.policy", SUBTRACT, None),
                    ("segment.bytes", SET, "1"),
                    ("log.retention.ms", SET, "1"),
                ]
            ),
            (alter((TOPIC, topic, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])), 1),
            (alter((TOPIC, topic, [("retention.ms", SET, "1")]), (TOPIC, topic, [("retention.ms", SET, "2")])), 1),
            (alter((TOPIC, topic + "-missing", [("retention.ms", SET, "1")])), 1),
            (alter((TOPIC, "", [("retention.ms", SET, "1")])), 1),
            (alter((TOPIC, "a b", [("retention.ms", SET, "1")])), 1),
            (alter((99, "x", [("retention.ms", SET, "1")])), 1),
            (alter((0, "x", [("retention.ms", SET, "1")])), 1),
            (alter((BROKER, "9", [("log.retention.ms", SET, "100000")])), 1),
            (alter((BROKER, "x", [("log.retention.ms", SET, "100000")])), 1),
            (alter((BROKER, "1", [("node.id", SET, "5")])), 1),
            (alter((BROKER, "", [("node.id", SET, "5")])), 1),
            (alter((BROKER, "1", [("no.such", SET, "5")])), 1),
            (alter((BROKER, "", [("no.such", SET, "5")])), 1),
            (alter((BROKER, "1", [("log.retention.ms", SET, "soon")])), 1),
            (alter((BROKER, "", [("log.retention.ms", SET, "soon")])), 1),
            (alter((BROKER, "", [("listeners", SET, "PLAINTEXT://:1")])), 1),
            (alter((BROKER, "1", [("auto.create.topics.enable", SET, "false")])), 1),
            (alter((GROUP, "", [("consumer.session.timeout.ms", SET, "45000")])), 1),
            (alter((GROUP, topic, [("consumer.session.timeout.ms", SET, "1")])), 1),
            (alter((GROUP, topic, [("no.such", SET, "1")])), 1),
            (alter((CLIENT_METRICS, "", [("interval.ms", SET, "1000")])), 1),
            (alter((CLIENT_METRICS, topic, [("interval.ms", SET, "1")])), 1),
            (alter((CLIENT_METRICS, topic, [("no.such", SET, "1")])), 1),
            (alter((CLIENT_METRICS, topic, [("match", SET, "nonsense")])), 1),
            (alter((BROKER_LOGGER, "1", [("no.such.logger", SET, "DEBUG")])), 1),
            (alter((BROKER_LOGGER, "9", [("root", SET, "DEBUG")])), 1),
            (alter((BROKER_LOGGER, "1", [("root", SET, "LOUD")])), 1),
            (alter((BROKER_LOGGER, "1", [("root", DELETE, None)])), 1),
        ],
        "replace-a-topics-configs": [
            (create(new(topic, retention_ms="1000", max_message_bytes="5000")), 7),
            (replace(TOPIC, topic, {"retention.ms": "7000"}, validate_only=True), 2),
            (describe((TOPIC, topic, keys)), 4),
            (replace(TOPIC, topic, {"retention.ms": "7000"}), 2),
            (describe((TOPIC, topic, keys)), 4),
            (replace(TOPIC, topic, {}), 0),
            (describe((TOPIC, topic, keys)), 4),
            (replace(TOPIC, topic, {"retention.ms": "x"}), 1),
            (replace(TOPIC, topic, {"retention.ms": None}), 1),
            (replace(TOPIC, topic, {"no.such": "x"}), 1),
            (replace(TOPIC, topic + "-missing", {"retention.ms": "7000"}), 1),
            (replace(BROKER, "9", {}), 1),
            (replace(BROKER_LOGGER, "1", {}), 1),
            (replace(99, "1", {}), 1),
        ],
        "group-configs": [
            (alter((GROUP, topic, [("consumer.session.timeout.ms", SET, "50000")])), 1),
            (describe((GROUP, topic, ["consumer.session.timeout.ms"])), 4),
            (p.ListConfigResourcesRequest(resource_types=[GROUP]), 1),
            (alter((GROUP, topic, [("consumer.session.timeout.ms", DELETE, None)])), 1),
            (p.ListConfigResourcesRequest(resource_types=[GROUP]), 1),
        ],
        "client-metrics-configs": [
            (alter((CLIENT_METRICS, topic, [("interval.ms", SET, "60000"), ("metrics", SET, "a,b"), ("match", SET, "client_id=x.*")])), 1),
            (describe((CLIENT_METRICS, topic)), 4),
            (p.ListConfigResourcesRequest(), 0),
            (p.ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]), 1),
            (alter((CLIENT_METRICS, topic, [(key, DELETE, None) for key in ("interval.ms", "metrics", "match")])), 1),
            (p.ListConfigResourcesRequest(), 0),
        ],
        "list-config-resources": [
            (p.ListConfigResourcesRequest(resource_types=[BROKER]), 1),
            (p.ListConfigResourcesRequest(resource_types=[BROKER_LOGGER]), 1),
            (p.ListConfigResourcesRequest(resource_types=[99]), 1),
            (p.ListConfigResourcesRequest(resource_types=[0]), 1),
        ],
    }
