"""Kafka's tools on embedded brokers: they move replicas of three, and manage the ACLs of one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient
from kafkacore.admin import Acl
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import addresses, embedded
from tests.kit.java_tools import JavaTools
from tests.kit.rivals import confluent_producer, send_all
from tests.kit.waiting import until, until_equal

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

# Leaders move when the test wants it, and not after five minutes.
cluster = embedded(brokers=3, config={"auto.leader.rebalance.enable": "false"})
secured = addresses(config={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"})
ACLS = "org.apache.kafka.tools.AclCommand"


def test_replicas_are_moved(cluster: EmbeddedCluster, java: JavaTools, tmp_path: Path) -> None:
    topic, where = "moved", ("--bootstrap-server", cluster.bootstrap_servers)
    cluster.create_topic(topic, 3, 2)
    send_all(confluent_producer(cluster.bootstrap_servers), topic, [b"%d" % n for n in range(20)])
    plan, move = tmp_path / "topics.json", tmp_path / "move.json"
    plan.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    command = "reassign.ReassignPartitionsCommand"
    proposal = java.run(command, *where, "--topics-to-move-json-file", plan, "--broker-list", "1,2,3", "--generate").ok()
    wanted = json.loads(proposal.strip().splitlines()[-1])
    for partition in wanted["partitions"]:
        partition["replicas"] = [3, 1]
        partition["log_dirs"] = ["any", "any"]
    move.write_text(json.dumps(wanted))
    rates = "--throttle", 50_000_000, "--replica-alter-log-dirs-throttle", 50_000_000
    said = java.run(command, *where, "--reassignment-json-file", move, "--execute", *rates).ok()
    assert "The inter-broker throttle limit was set to 50000000 B/s" in said

    def throttles() -> set[str]:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as own:
            wanted = [("topic", topic), *(("broker", each) for each in "123")]
            found = [entry for entries in own.describe_configs(wanted).check().values() for entry in entries.values()]
            return {entry.name for entry in found if ".throttled." in entry.name and entry.value and not entry.is_default}

    names = {f"{side}.replication.throttled.{what}" for side in ("leader", "follower") for what in ("rate", "replicas")}
    until_equal(throttles, names)

    def done() -> bool:
        said = java.run(command, *where, "--reassignment-json-file", move, "--verify").ok()
        return len(re.findall(rf"Reassignment of partition {topic}-\d is completed", said)) == 3

    until(done, "the tool says that it is done")
    until_equal(throttles, set())  # the tool takes away what it has set
    described = "TopicCommand", *where, "--describe", "--topic", topic
    until(lambda: len(re.findall(r"Replicas: 3,1\s+Isr: (?:1,3|3,1)", java.run(*described).ok())) == 3, "both replicas are in sync")
    java.run("LeaderElectionCommand", *where, "--election-type", "preferred", "--all-topic-partitions").ok()
    until(lambda: java.run(*described, "--under-replicated-partitions").ok() == "", "all are in sync")
    said = java.run("LogDirsCommand", *where, "--describe", "--topic-list", topic).ok()
    brokers = json.loads(said.strip().splitlines()[-1])["brokers"]
    held = {
        broker["broker"]: {found["partition"] for log_dir in broker["logDirs"] for found in log_dir["partitions"]} for broker in brokers
    }
    assert held[1] == held[3] == {f"{topic}-{n}" for n in range(3)}


def stored(where: str) -> list[Acl]:
    with KafkaAdminClient(bootstrap_servers=where) as admin:
        return sorted(admin.describe_acls())


def test_acls(java: JavaTools, secured: str) -> None:
    where = "--bootstrap-server", secured
    said = java.run(ACLS, *where, "--add", "--allow-principal", "User:tool", "--consumer", "--topic", "in", "--group", "readers").ok()
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=in, patternType=LITERAL)`" in said
    java.run(
        ACLS,
        *where,
        "--add",
        "--deny-principal",
        "User:tool",
        "--deny-host",
        "10.0.0.1",
        "--operation",
        "Write",
        "--topic",
        "in",
        "--resource-pattern-type",
        "prefixed",
    ).ok()
    assert stored(secured) == [
        Acl("group", "readers", "User:tool", "read"),
        Acl("topic", "in", "User:tool", "describe"),
        Acl("topic", "in", "User:tool", "read"),
        Acl("topic", "in", "User:tool", "write", "10.0.0.1", "deny", "prefixed"),
    ]
    said = java.run(ACLS, *where, "--list", "--topic", "incoming", "--resource-pattern-type", "match").ok()
    assert "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=in, patternType=PREFIXED)`:" in said
    assert "(principal=User:tool, host=10.0.0.1, operation=WRITE, permissionType=DENY)" in said and "READ" not in said
    java.run(ACLS, *where, "--remove", "--topic", "in", "--resource-pattern-type", "any", "--force").ok()
    java.run(ACLS, *where, "--remove", "--group", "readers", "--force").ok()
    assert stored(secured) == []
    refused = java.run(ACLS, *where, "--add", "--allow-principal", "User:tool", "--operation", "Read", "--cluster", "--topic", "t")
    assert refused.code == 1 and stored(secured) == []
