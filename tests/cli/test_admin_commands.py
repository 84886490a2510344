"""configs, acls, quotas, users and topics describe: against an embedded broker."""

from __future__ import annotations

import io
import json
import logging
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, ProducerRecord
from kafkacore import protocol as p
from kafkacore.cli.app import run
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import Code
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded

cluster = embedded()


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """A broker's loggers are those of this process: they have their levels again after a test."""
    before = {logger: logger.level for logger in _loggers()}
    yield
    for logger in _loggers():
        logger.setLevel(before.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.items()
    return [logger for name, logger in known if name.startswith("kafkacore") and isinstance(logger, logging.Logger)]


@pytest.fixture
def cli(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line; the output, and what it says when it fails."""
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)

    def call(*words: str, status: int = 0) -> Any:
        capsys.readouterr()
        found = run(list(words))
        shown = capsys.readouterr()
        assert found == status, (words, shown)
        if status:
            (line,) = shown.err.splitlines()
            assert line.startswith("kafkacore: "), line
            return (json.loads(shown.out) if "--json" in words and shown.out else shown.out), line
        assert shown.err == ""
        return json.loads(shown.out) if "--json" in words else shown.out

    return call


# -- settings ---------------------------------------------------------------------------------------------------------------------


def settings_by_name(cli: Any, *words: str) -> dict[str, str]:
    """What is set, by name."""
    (found,) = cli("configs", "describe", *words, "--json")
    return {name: entry["value"] for name, entry in found["configs"].items()}


def test_settings_of_a_topic_are_set_added_to_and_unset(cli: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("conf")
    assert settings_by_name(cli, "--topic", "conf") == {}
    assert cli("configs", "describe", "--topic", "conf") == "topic conf: nothing is set\n"
    assert cli("configs", "set", "retention.ms=5000", "cleanup.policy=delete", "--topic", "conf", "--dry-run") == (
        "would have set retention.ms, cleanup.policy of topic conf\n"
    )
    assert settings_by_name(cli, "--topic", "conf") == {}
    cli("configs", "set", "retention.ms=5000", "cleanup.policy=delete", "--topic", "conf")
    done = cli("configs", "set", "--append", "cleanup.policy=compact", "--delete", "retention.ms", "--topic", "conf", "--json")
    assert done == {"set": [{"kind": "topic", "name": "conf"}], "failed": [], "dry_run": False}
    assert settings_by_name(cli, "--topic", "conf") == {"cleanup.policy": "delete,compact"}
    cli("configs", "set", "--subtract", "cleanup.policy=delete", "--topic", "conf")
    assert settings_by_name(cli, "--topic", "conf") == {"cleanup.policy": "compact"}
    assert "compact" in cli("configs", "describe", "--topic", "conf")
    every = settings_by_name(cli, "--topic", "conf", "--all")
    assert every["retention.ms"] == "604800000" and every["cleanup.policy"] == "compact"
    assert cli("configs", "unset", "cleanup.policy", "--topic", "conf") == "unset cleanup.policy of topic conf\n"
    assert settings_by_name(cli, "--topic", "conf") == {}


def test_settings_of_brokers_groups_loggers_and_metrics(cli: Any, cluster: EmbeddedCluster) -> None:
    cli("configs", "set", "log.retention.ms=70000", "--broker-defaults")
    assert settings_by_name(cli, "--broker-defaults") == {"log.retention.ms": "70000"}
    assert cli("configs", "set", "log.retention.ms=60000", "--broker", "1") == "set log.retention.ms of broker 1\n"
    assert settings_by_name(cli, "--broker", "1")["log.retention.ms"] == "60000"
    cli("configs", "set", "consumer.session.timeout.ms=50000", "--group", "readers")
    assert settings_by_name(cli, "--group", "readers") == {"consumer.session.timeout.ms": "50000"}
    cli("configs", "set", "interval.ms=1000", "--client-metrics", "all-clients")
    cli("configs", "set", "kafkacore.broker.log=ERROR", "--broker-logger", "1")
    assert settings_by_name(cli, "--broker-logger", "1")["kafkacore.broker.log"] == "ERROR"
    everything = {(each["kind"], each["name"]): set(each["configs"]) for each in cli("configs", "describe", "--json")}
    assert everything["broker", ""] == {"log.retention.ms"} and everything["group", "readers"]
    assert everything["client_metrics", "all-clients"] == {"interval.ms"}
    shown = cli("configs", "describe")
    assert "all brokers" in shown and "group readers" in shown
    cli("configs", "unset", "log.retention.ms", "--broker", "1", "--broker-defaults")
    assert settings_by_name(cli, "--broker-defaults") == {}


def test_a_cluster_that_lists_only_topics_is_described_all_the_same(cli: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("conf-old")
    cli("configs", "set", "retention.ms=1", "--topic", "conf-old")
    refused = p.ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION, config_resources=[])
    cluster.control("ListConfigResources", lambda _: refused)
    try:
        found = {(each["kind"], each["name"]) for each in cli("configs", "describe", "--json")}
    finally:
        cluster.control("ListConfigResources", None)
    assert {("topic", "conf-old"), ("broker", "1"), ("broker", "")} <= found


def test_settings_that_some_have_and_others_refuse(cli: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("conf-part")
    shown, why = cli("configs", "set", "retention.ms=9", "--topic", "conf-part", "--topic", "conf-none", "--json", status=1)
    assert shown["set"] == [{"kind": "topic", "name": "conf-part"}] and shown["failed"][0]["name"] == "conf-none"
    assert why.startswith("kafkacore: topic conf-none: UNKNOWN_TOPIC_OR_PARTITION")
    shown, why = cli("configs", "describe", "--topic", "conf-part", "--topic", "conf-none", "--json", status=1)
    assert [each["name"] for each in shown] == ["conf-part"] and "conf-none" in why
    assert "not a number" in cli("configs", "set", "retention.ms=x", "--topic", "conf-part", status=1)[1].lower()


# -- quotas -----------------------------------------------------------------------------------------------------------------------


def test_quotas(cli: Any) -> None:
    assert cli("quotas", "describe", "--json") == []
    assert cli("quotas", "set", "producer_byte_rate=1e6", "--user", "alice", "--dry-run").startswith(
        "would have set producer_byte_rate of user"
    )
    assert cli("quotas", "describe", "--json") == []
    assert cli("quotas", "set", "producer_byte_rate=1e6", "request_percentage=12.5", "--user", "alice", "--client-defaults") == (
        "set producer_byte_rate, request_percentage of user alice, default client-id\n"
    )
    cli("quotas", "set", "consumer_byte_rate=5", "--user-defaults")
    cli("quotas", "set", "connection_creation_rate=3", "--ip", "10.0.0.1")
    both = {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": 1e6, "request_percentage": 12.5}}
    assert cli("quotas", "describe", "--user", "alice", "--json") == [both]
    assert cli("quotas", "describe", "--user", "alice", "--strict", "--json") == []
    assert [each["entity"] for each in cli("quotas", "describe", "--user-defaults", "--json")] == [{"user": None}]
    assert len(cli("quotas", "describe", "--json")) == 3
    shown = cli("quotas", "describe")
    assert "user alice, default client-id" in shown and "1,000,000" in shown and "12.5" in shown
    done = cli("quotas", "unset", "producer_byte_rate", "request_percentage", "--user", "alice", "--client-defaults", "--json")
    assert done["unset"] == [{"entity": {"user": "alice", "client-id": None}}]
    cli("quotas", "unset", "consumer_byte_rate", "--user-defaults")
    cli("quotas", "unset", "connection_creation_rate", "--ip", "10.0.0.1")
    assert cli("quotas", "describe", "--json") == []
    assert "user a" in cli("quotas", "set", "no_such_rate=1", "--user", "a", status=1)[1]


# -- users ------------------------------------------------------------------------------------------------------------------------


def test_users(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLI_NEW_PASSWORD", "hush")
    assert cli("users", "list", "--json") == []
    assert cli("users", "set", "bob", "--password", "secret://env/CLI_NEW_PASSWORD", "--iterations", "5000") == (
        "set the password of bob (SCRAM-SHA-512)\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed\n")))
    cli("users", "set", "bob", "--mechanism", "scram-sha-256")
    assert cli("users", "list", "--json") == [{"user": "bob", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 5000}}]
    assert "bob" in cli("users", "list")
    shown, why = cli("users", "list", "bob", "eve", "--json", status=1)
    assert [each["user"] for each in shown] == ["bob"] and "eve" in why
    assert "add --yes" in cli("users", "delete", "bob", "--json", status=1)[1]
    done, why = cli("users", "delete", "bob", "eve", "--yes", "--mechanism", "SCRAM-SHA-256", "--json", status=1)
    assert done["deleted"] == [{"user": "bob", "mechanism": "SCRAM-SHA-256"}] and "eve" in why
    assert cli("users", "list", "--json") == [{"user": "bob", "mechanisms": {"SCRAM-SHA-512": 5000}}]
    assert cli("users", "delete", "bob", "-y") == "deleted the password of bob (SCRAM-SHA-512)\n"
    assert cli("users", "list", "--json") == []
    assert "eve" in cli("users", "delete", "eve", "-y", status=1)[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert "no password on standard input" in cli("users", "set", "bob", status=1)[1]


# -- access control ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}) as cluster:
        yield cluster


@pytest.fixture
def authorizer(secured: EmbeddedCluster, cli: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    """A cluster that has an authorizer and no ACL; the command line means it."""
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", secured.bootstrap_servers)
    yield secured
    if acl_entries(cli):
        cli("acls", "remove", "--all", "-y")


def acl_entries(cli: Any, *words: str) -> list[str]:
    return [
        " ".join((e["permission"], e["principal"], e["host"], e["operation"], e["resource_type"], e["resource_name"], e["pattern_type"]))
        for e in cli("acls", "list", *words, "--json")
    ]


def test_entries_are_added_listed_and_removed(cli: Any, authorizer: EmbeddedCluster) -> None:
    adding = ["acls", "add", "--allow-principal", "User:alice", "--operation", "Read,DescribeConfigs", "--topic", "flights"]
    assert len(cli(*adding, "--dry-run", "--json")["added"]) == 2 and not acl_entries(cli)
    assert cli(*adding).startswith("added 2 entries\n")
    denying = "--deny-principal bob --deny-host 10.0.0.1 --operation all --topic fl --resource-pattern-type Prefixed"
    cli("acls", "add", *denying.split())
    assert acl_entries(cli) == [
        "deny User:bob 10.0.0.1 all topic fl prefixed",
        "allow User:alice * describe_configs topic flights literal",
        "allow User:alice * read topic flights literal",
    ]
    assert len(acl_entries(cli, "--topic", "flights")) == 2
    assert len(acl_entries(cli, "--topic", "flights", "--resource-pattern-type", "match")) == 3
    assert acl_entries(cli, "--principal", "bob", "--principal", "eve") == ["deny User:bob 10.0.0.1 all topic fl prefixed"]
    assert "describe configs" in cli("acls", "list")
    assert cli("acls", "remove", "--topic", "flights", "--operation", "read", "--dry-run", "--json")["removed"]
    assert len(acl_entries(cli)) == 3
    assert "add --yes" in cli("acls", "remove", "--topic", "flights", "--json", status=1)[1]
    assert cli("acls", "remove", "--topic", "flights", "--operation", "read", "--yes").startswith("removed 1 entry\n")
    assert len(acl_entries(cli)) == 2
    assert "no entry is for what is named" in cli("acls", "remove", "--topic", "fl", "-y", status=1)[1]  # a prefixed one is not meant
    assert len(cli("acls", "remove", "--deny-principal", "bob", "--resource-pattern-type", "any", "-y", "--json")["removed"]) == 1
    cli("acls", "add", "--allow-principal", "eve", "--operation", "read", "--group", "g", "--resource-pattern-type", "prefixed")
    assert len(cli("acls", "remove", "--all", "-y", "--json")["removed"]) == 2
    assert acl_entries(cli) == []


def test_what_producers_and_consumers_do(cli: Any, authorizer: EmbeddedCluster) -> None:
    who = ["acls", "add", "--allow-principal", "User:svc"]
    cli(*who, "--producer", "--topic", "out", "--transactional-id", "tx", "--idempotent")
    assert {each.removeprefix("allow User:svc * ") for each in acl_entries(cli)} == {
        "write topic out literal",
        "describe topic out literal",
        "create topic out literal",
        "write transactional_id tx literal",
        "describe transactional_id tx literal",
        "idempotent_write cluster kafka-cluster literal",
    }
    cli("acls", "remove", "--all", "-y")
    cli(*who, "--producer", "--topic", "out", "--idempotent", "--resource-pattern-type", "prefixed")
    assert "allow User:svc * idempotent_write cluster kafka-cluster literal" in acl_entries(cli)
    assert "allow User:svc * write topic out prefixed" in acl_entries(cli)
    cli("acls", "remove", "--all", "-y")
    cli(*who, "--consumer", "--topic", "in", "--group", "readers", "--resource-pattern-type", "prefixed")
    assert {each.removeprefix("allow User:svc * ") for each in acl_entries(cli)} == {
        "read topic in prefixed",
        "describe topic in prefixed",
        "read group readers prefixed",
    }


def test_entries_that_are_refused(cli: Any, authorizer: EmbeddedCluster) -> None:
    def refuse(request: p.CreateAclsRequest) -> p.CreateAclsResponse:
        codes = [Code.INVALID_REQUEST if each.resource_name == "bad" else Code.NONE for each in request.creations]
        return p.CreateAclsResponse(results=[p.AclCreationResult(error_code=code, error_message="no" if code else "") for code in codes])

    authorizer.control("CreateAcls", refuse)
    adding = ["acls", "add", "--allow-principal", "User:a", "--operation", "read", "--topic", "good", "--topic", "bad"]
    shown, why = cli(*adding, status=1)
    assert shown.startswith("added 1 entry\n") and "allow User:a read on topic bad: INVALID_REQUEST" in why
    shown, why = cli(*adding, "--json", status=1)
    assert shown["added"][0]["resource_name"] == "good" and shown["failed"][0]["resource_name"] == "bad"
    authorizer.control("CreateAcls", None)


def test_a_cluster_without_an_authorizer_says_so(cli: Any) -> None:
    for words in (["list"], ["add", "--allow-principal", "a", "--operation", "read", "--topic", "t"], ["remove", "--topic", "t", "-y"]):
        assert "SECURITY_DISABLED" in cli("acls", *words, status=1)[1]


# -- topics -----------------------------------------------------------------------------------------------------------------------


def test_all_topics_are_described_and_some_of_their_partitions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)

        def call(*words: str, status: int = 0) -> Any:
            assert run(["topics", *words]) == status
            return json.loads(capsys.readouterr().out)

        cluster.create_topic("both", partitions=1, replication_factor=2)
        cluster.create_topic("one", partitions=2, replication_factor=1)
        found = call("describe", "--json")
        assert {name: len(info["partitions"]) for name, info in found.items()} == {"both": 1, "one": 2}
        assert call("describe", "--under-replicated", "--unavailable", "--json") == {}
        cluster.stop_broker(2)
        found = call("describe", "--under-replicated", "--json")
        assert found["both"]["partitions"][0]["isr"] == [1]
        one = call("describe", "one", "--json")["one"]
        gone = [each for each in one["partitions"] if each["leader"] < 0]
        assert [(each["first_offset"], each["end_offset"]) for each in gone] == [(None, None)]
        assert call("describe", "--unavailable", "--json") == {"one": {**one, "partitions": gone}}
        assert run(["topics", "describe", "one"]) == 0
        assert " - " in capsys.readouterr().out
        assert list(call("describe", "both", "none", "--json", status=1)) == ["both"]


def test_topics_that_are_there_already_or_not_any_more(cli: Any) -> None:
    assert cli("topics", "create", "once", "--json") == {"created": ["once"]}
    assert cli("topics", "create", "once", "twice", "--if-not-exists", "--json") == {"created": ["twice"]}
    assert cli("topics", "delete", "once", "never", "-y", "--if-exists", "--json") == {"deleted": ["once"]}
    assert cli("topics", "delete", "never", "--if-exists") == ""
    assert "twice" in cli("topics", "list") and "__" not in cli("topics", "list")


def test_the_commands_of_the_page_run(cli: Any, authorizer: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    lines = [shlex.split(line, comments=True) for line in page.partition("## Managing a cluster")[2].split("```")[1].splitlines()[1:]]
    assert len(lines) >= 14 and all(line[0] == "kafkacore" for line in lines)
    authorizer.create_topic("flights")
    with KafkaAdminClient(bootstrap_servers=authorizer.bootstrap_servers) as admin:
        admin.alter_group_offsets("readers", {("flights", 0): 0}).check()
    for line in lines:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a password\n")))
        cli(*line[1:])
    authorizer.delete_topic("flights")


def offsets_of_topic(cli: Any, topic: str) -> list[tuple[int, int]]:
    return [(each["first_offset"], each["end_offset"]) for each in cli("topics", "describe", topic, "--json")[topic]["partitions"]]


def test_a_topic_is_trimmed(
    cli: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("trim", partitions=3)
    now = int(time.time() * 1000)
    for partition, count in ((0, 10), (1, 4)):
        aged = [ProducerRecord("trim", b"v", partition=partition, timestamp_ms=now - 60_000 * (10 - n)) for n in range(count)]
        cluster.produce("trim", aged)
    assert "5" in cli("topics", "trim", "trim", "--to", "5", "--dry-run")
    assert cli("topics", "trim", "trim", "--to", "earliest", "--yes", "--json") == {"trimmed": [], "failed": [], "dry_run": False}
    assert offsets_of_topic(cli, "trim") == [(0, 10), (0, 4), (0, 0)]
    assert "add --yes" in cli("topics", "trim", "trim", "--to", "5", "--json", status=1)[1]
    assert cli("topics", "trim", "trim", "--to", "-9", "--yes", "-p", "0-1").endswith("deleted up to 1 record of trim\n")
    assert offsets_of_topic(cli, "trim") == [(1, 10), (0, 4), (0, 0)]
    done = cli("topics", "trim", "trim", "--to", "5", "--yes", "--json")
    assert [(each["partition"], each["first_offset"]) for each in done["trimmed"]] == [(0, 5), (1, 4)]  # the second one ends there
    cli("topics", "trim", "trim", "--to", "@-150s", "--yes")
    assert offsets_of_topic(cli, "trim") == [(8, 10), (4, 4), (0, 0)]
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("trimmed", {("trim", 0): 10}).check()
    for place in (["--to", "3"], ["--to", "-5"]):
        assert [each["offset"] for each in cli("groups", "reset", "trimmed", "trim", *place, "--json")][:1] == [8]
    cli("topics", "trim", "trim", "--to", "latest", "--yes")
    assert offsets_of_topic(cli, "trim") == [(10, 10), (4, 4), (0, 0)]
    assert "no partition 7" in cli("topics", "trim", "trim", "--to", "1", "-p", "7", status=1)[1]
    assert "--to" in cli("topics", "trim", "trim", "--to", "soon", status=2)[1]
    cluster.produce("trim", [ProducerRecord("trim", b"v", partition=2)])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(["topics", "trim", "trim", "--to", "latest"]) == 1  # nobody to ask
    assert "--yes does not ask" in capsys.readouterr().err
    assert offsets_of_topic(cli, "trim")[2] == (0, 1)


def test_offsets_of_a_group_are_forgotten(cli: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("forget", partitions=3)
    cluster.create_topic("keep", partitions=1)
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("forgetful", {("forget", 0): 0, ("forget", 1): 0, ("forget", 2): 0, ("keep", 0): 0}).check()

    def there() -> list[tuple[str, int]]:
        found = cli("groups", "describe", "forgetful", "--json")["forgetful"]["offsets"]
        return [(each["topic"], each["partition"]) for each in found]

    assert "nothing was done" in cli("groups", "delete-offsets", "forgetful", "other", "-y", status=1)[1]
    assert "neither TOPIC nor" in cli("groups", "delete-offsets", "forgetful", "forget:x", "-y", status=2)[1]
    done = cli("groups", "delete-offsets", "forgetful", "forget:0,2", "--yes", "--json")
    assert done["deleted"] == [{"topic": "forget", "partition": 0}, {"topic": "forget", "partition": 2}]
    assert there() == [("forget", 1), ("keep", 0)]
    assert cli("groups", "delete-offsets", "forgetful", "forget", "-y") == "deleted the offsets of forget-1\n"
    assert there() == [("keep", 0)]
    shown, why = cli("groups", "delete", "forgetful", "never", "-y", "--json", status=1)
    assert shown["deleted"] == ["forgetful"] and "never" in why
