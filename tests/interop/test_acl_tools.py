"""ACLs of the embedded broker, managed by Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkacore.admin import Acl, KafkaAdminClient
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools

ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with EmbeddedCluster(config=settings) as cluster:
        yield cluster.bootstrap_servers


def stored(where: str) -> list[Acl]:
    with KafkaAdminClient(bootstrap_servers=where) as admin:
        return sorted(admin.describe_acls())


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_kafkas_tool(java: JavaTools, secured: str) -> None:
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
