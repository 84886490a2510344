"""Kafka's tools that operate a cluster, with the same expectations of the embedded broker and of Apache Kafka."""

from __future__ import annotations

import re

import pytest

from tests.kit.java_tools import JavaTools
from tests.kit.waiting import fresh, until

CONFIG = "kafka.admin.ConfigCommand"
pytestmark = [pytest.mark.kafka, pytest.mark.kafka_at_length, pytest.mark.timeout(400)]


@pytest.fixture
def where(bootstrap_servers: str) -> tuple[str, str]:
    return "--bootstrap-server", bootstrap_servers


def told(java: JavaTools, words: str, *command: object, absent: bool = False) -> str:
    """What a tool says once it says some words, or no longer does: brokers follow their controller a moment later."""
    said: list[str] = []

    def look() -> bool:
        said[:] = [java.run(str(command[0]), *command[1:]).ok()]
        return (words in said[0]) is not absent

    until(look, f"{words!r} {'goes' if absent else 'comes'}")
    return said[0]


def test_features(java: JavaTools, where: tuple[str, str]) -> None:
    said = java.run("FeatureCommand", *where, "describe").ok()
    levels = dict(re.findall(r"Feature: (\S+)\s+SupportedMinVersion: .*FinalizedVersionLevel: (\S+)", said))
    assert levels["metadata.version"] == "4.3-IV0"
    assert (levels["group.version"], levels["transaction.version"]) == ("1", "2")
    refused = java.run("FeatureCommand", *where, "upgrade", "--feature", "transaction.version=9")
    assert refused.code == 1 and "only supports versions 0-2" in refused.out + refused.err
    said = java.run("FeatureCommand", *where, "downgrade", "--feature", "transaction.version=1", "--dry-run").ok()
    assert "transaction.version can be downgraded to 1" in said


def test_the_quorum(java: JavaTools, where: tuple[str, str]) -> None:
    said = java.run("MetadataQuorumCommand", *where, "describe", "--replication").ok().strip().splitlines()
    assert said[0].split()[0] == "NodeId" and said[1].split()[0] == "1" and said[1].split()[-1] == "Leader"
    said = dict(line.split(":", 1) for line in java.run("MetadataQuorumCommand", *where, "describe", "--status").ok().strip().splitlines())
    assert said["LeaderId"].strip() == "1" and int(said["HighWatermark"]) > 0


def test_quotas_of_users_and_addresses(java: JavaTools, where: tuple[str, str]) -> None:
    user, client = fresh("user"), fresh("client")
    both = (*where, "--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", client)
    java.run(CONFIG, *both, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50").ok()
    said = told(java, f"Quota configs for user-principal '{user}', client-id '{client}' are", CONFIG, *both, "--describe")
    assert "request_percentage=50.0" in said and "producer_byte_rate=1024.0" in said
    java.run(CONFIG, *both, "--alter", "--delete-config", "producer_byte_rate,request_percentage").ok()
    told(java, user, CONFIG, *both, "--describe", absent=True)
    address = (*where, "--entity-type", "ips", "--entity-name", "127.0.0.9")
    java.run(CONFIG, *address, "--alter", "--add-config", "connection_creation_rate=7").ok()
    told(java, "connection_creation_rate=7.0", CONFIG, *address, "--describe")
    java.run(CONFIG, *address, "--alter", "--delete-config", "connection_creation_rate").ok()
    refused = java.run(CONFIG, *address, "--alter", "--add-config", "connection_creation_rate=-7")
    assert refused.code == 1 and "must be greater than 0" in refused.out + refused.err


def test_passwords_of_users(java: JavaTools, where: tuple[str, str]) -> None:
    user = (*where, "--entity-type", "users", "--entity-name", fresh("user"))
    java.run(CONFIG, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]").ok()
    told(java, "SCRAM-SHA-256=iterations=8192", CONFIG, *user, "--describe")
    java.run(CONFIG, *user, "--alter", "--delete-config", "SCRAM-SHA-256").ok()
    told(java, "SCRAM", CONFIG, *user, "--describe", absent=True)


def test_settings_of_groups_and_subscriptions(java: JavaTools, where: tuple[str, str]) -> None:
    group = (*where, "--entity-type", "groups", "--entity-name", fresh("group"))
    java.run(CONFIG, *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000").ok()
    told(java, "consumer.session.timeout.ms=50000", CONFIG, *group, "--describe")
    java.run(CONFIG, *group, "--alter", "--delete-config", "consumer.session.timeout.ms").ok()
    name = fresh("metrics")
    java.run("ClientMetricsCommand", *where, "--alter", "--name", name, "--metrics", "a.,b.", "--interval", 10_000).ok()
    told(java, name, "ClientMetricsCommand", *where, "--list")
    told(java, "interval.ms=10000", "ClientMetricsCommand", *where, "--describe", "--name", name)
    java.run("ClientMetricsCommand", *where, "--delete", "--name", name).ok()
    told(java, name, "ClientMetricsCommand", *where, "--list", absent=True)


def test_the_cluster(java: JavaTools, where: tuple[str, str], bootstrap_servers: str) -> None:
    assert re.match(r"Cluster ID: \S{22}$", java.run("ClusterTool", "cluster-id", *where).ok().strip())
    said = java.run("ClusterTool", "list-endpoints", *where, "--include-fenced-brokers").ok().strip().splitlines()
    assert said[0].split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    assert said[1].split() == ["1", "127.0.0.1", bootstrap_servers.rpartition(":")[2], "null", "unfenced", "broker"]
