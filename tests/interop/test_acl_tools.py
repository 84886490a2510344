"""ACLs of the embedded broker, managed by Kafka's tool and by the admin clients of others."""

from __future__ import annotations

from collections.abc import Iterator

import kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourcePatternFilter
from kafka.errors import NoError

from kafkacore.admin import Acl, KafkaAdminClient
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools

ACLS = "org.apache.kafka.tools.AclCommand"
WAIT_S = 90


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


def test_confluent_kafka(secured: str) -> None:
    admin = AdminClient({"bootstrap.servers": secured})
    wanted = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.PREFIXED, "User:c", "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin.create_acls([wanted])[wanted].result(WAIT_S)
    meant = AclBindingFilter(ResourceType.ANY, "to", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY)
    assert admin.describe_acls(meant).result(WAIT_S) == [wanted]
    assert stored(secured) == [Acl("topic", "t", "User:c", "read", pattern_type="prefixed")]
    assert admin.delete_acls([meant])[meant].result(WAIT_S) == [wanted]
    assert stored(secured) == []


def test_kafka_python(secured: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=secured)
    try:
        pattern = ResourcePattern(kafka.admin.ResourceType.GROUP, "g", ACLResourcePatternType.LITERAL)
        wanted = ACL("User:k", "127.0.0.1", ACLOperation.READ, ACLPermissionType.DENY, pattern)
        assert admin.create_acls([wanted]) == {"succeeded": [wanted], "failed": []}
        any_pattern = ResourcePatternFilter(kafka.admin.ResourceType.ANY, None, ACLResourcePatternType.ANY)
        meant = ACLFilter("User:k", None, ACLOperation.ANY, ACLPermissionType.ANY, any_pattern)
        found, error = admin.describe_acls(meant)
        assert found == [wanted] and error is NoError
        assert stored(secured) == [Acl("group", "g", "User:k", "read", "127.0.0.1", "deny")]
        admin.delete_acls([meant])
        assert stored(secured) == []
    finally:
        admin.close()
