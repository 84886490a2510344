"""Commands that manage a cluster, on Apache Kafka: its brokers apply what the controller has decided a moment later."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafkacore import KafkaProducer
from kafkacore.cli.app import run
from tests.kit.waiting import GUARD_S, fresh, until_equal

pytestmark = pytest.mark.kafka_alone("tests/cli")


@pytest.fixture
def cli(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", bootstrap_servers)

    def call(*words: str) -> Any:
        capsys.readouterr()
        assert run([*words, "--json"]) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return call


def test_settings(cli: Any, make_topic: Callable[..., str]) -> None:
    topic, group = make_topic(), fresh("g")

    def there(*whose: str) -> dict[str, str]:
        (found,) = cli("configs", "describe", *whose)
        own = ("topic", "group")  # not what Kafka 4 has set for all brokers (min.insync.replicas)
        return {name: entry["value"] for name, entry in found["configs"].items() if entry["source"] in own}

    cli("configs", "set", "retention.ms=5000", "cleanup.policy=delete", "--topic", topic)
    until_equal(lambda: there("--topic", topic), {"retention.ms": "5000", "cleanup.policy": "delete"})
    cli("configs", "set", "--append", "cleanup.policy=compact", "--delete", "retention.ms", "--topic", topic)
    until_equal(lambda: there("--topic", topic), {"cleanup.policy": "delete,compact"})
    cli("configs", "set", "--topic", topic, "retention.ms=1", "--dry-run")
    assert cli("configs", "unset", "cleanup.policy", "--topic", topic)["unset"] == [{"kind": "topic", "name": topic}]
    until_equal(lambda: there("--topic", topic), {})
    cli("configs", "set", "consumer.session.timeout.ms=50000", "--group", group)
    until_equal(lambda: there("--group", group), {"consumer.session.timeout.ms": "50000"})
    cli("configs", "unset", "consumer.session.timeout.ms", "--group", group)
    assert {"topic", "broker"} <= {each["kind"] for each in cli("configs", "describe")}


def test_quotas_and_users(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = fresh("u")
    cli("quotas", "set", "producer_byte_rate=1e6", "--user", name, "--client-defaults")
    entity = {"entity": {"user": name, "client-id": None}, "quotas": {"producer_byte_rate": 1e6}}
    until_equal(lambda: cli("quotas", "describe", "--user", name), [entity])
    assert cli("quotas", "describe", "--user", name, "--strict") == []
    cli("quotas", "unset", "producer_byte_rate", "--user", name, "--client-defaults")
    until_equal(lambda: cli("quotas", "describe", "--user", name), [])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hush\n")))
    cli("users", "set", name, "--iterations", "5000")
    until_equal(
        lambda: [each for each in cli("users", "list") if each["user"] == name], [{"user": name, "mechanisms": {"SCRAM-SHA-512": 5000}}]
    )
    cli("users", "delete", name, "--yes")
    until_equal(lambda: [each for each in cli("users", "list") if each["user"] == name], [])


def test_trimming_and_forgetting(cli: Any, make_topic: Callable[..., str], bootstrap_servers: str) -> None:
    topic, group = make_topic(2), fresh("g")
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send_many(topic, [b"v"] * 10, partitions=[0] * 10).result(GUARD_S)
    done = cli("topics", "trim", topic, "--to", "-3", "--yes")
    assert done["trimmed"] == [{"topic": topic, "partition": 0, "first_offset": 7}]
    (first, second) = cli("topics", "describe", topic)[topic]["partitions"]
    assert [(each["first_offset"], each["end_offset"]) for each in (first, second)] == [(7, 10), (0, 0)]
    cli("groups", "reset", group, topic, "--to", "0", "--execute")
    offsets = cli("groups", "describe", group)[group]["offsets"]
    assert [(each["committed"], each["lag"]) for each in offsets] == [(7, 3), (0, 0)]
    cli("groups", "delete-offsets", group, f"{topic}:0", "--yes")
    assert [each["partition"] for each in cli("groups", "describe", group)[group]["offsets"]] == [1]
    cli("groups", "delete", group, "--yes")
