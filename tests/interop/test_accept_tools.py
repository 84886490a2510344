"""Acceptance: Kafka's own command-line tools, with the same expectations of the embedded broker and of Apache Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.kit.java_tools import JavaTools
from tests.kit.rivals import confluent_producer, read_from_start, send_all
from tests.kit.waiting import fresh, until

MakeTopic = Callable[..., str]
CONFIG = "kafka.admin.ConfigCommand"
pytestmark = [pytest.mark.kafka, pytest.mark.kafka_at_length, pytest.mark.timeout(400)]


def test_topic_command(java: JavaTools, bootstrap_servers: str) -> None:
    name, where = fresh("t"), ("--bootstrap-server", bootstrap_servers)
    java.run(
        "TopicCommand", *where, "--create", "--topic", name, "--partitions", 3, "--replication-factor", 1, "--config", "retention.ms=9000"
    ).ok()
    # Kafka's controller answers before its broker shows what was created or deleted.
    until(lambda: name in java.run("TopicCommand", *where, "--list").ok().split(), "the topic")
    java.run("TopicCommand", *where, "--alter", "--topic", name, "--partitions", 5).ok()
    again = java.run("TopicCommand", *where, "--create", "--topic", name)
    assert again.code == 1 and "already exists" in again.out + again.err
    java.run("TopicCommand", *where, "--create", "--if-not-exists", "--topic", name).ok()
    java.run("TopicCommand", *where, "--delete", "--topic", name).ok()
    until(lambda: name not in java.run("TopicCommand", *where, "--list").ok().split(), "the topic is gone")
    assert java.run("TopicCommand", *where, "--describe", "--topic", name).code == 1


def test_console_producer_and_consumer(java: JavaTools, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, where = make_topic(), ("--bootstrap-server", bootstrap_servers)
    reader = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    lines = b"a:1,b:2\tk1\tv1\nc:3\tk2\tNULL\nd:4\tk3\tschl\xc3\xbcssel\n"
    options = [word for prop in reader for word in ("--reader-property", prop)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        java.run("ConsoleProducer", *where, "--topic", topic, "--compression-codec", codec, *options, stdin=lines).ok()
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.partition=true", "null.literal=NIL")
    options = [word for prop in shown for word in ("--formatter-property", prop)]
    said = java.run("consumer.ConsoleConsumer", *where, "--topic", topic, "--from-beginning", "--max-messages", 15, *options).ok()
    expected = [("a:1,b:2", "k1", "v1"), ("c:3", "k2", "NIL"), ("d:4", "k3", "schlüssel")] * 5
    assert said.splitlines() == [f"Partition:0\tOffset:{n}\t{h}\t{k}\t{v}" for n, (h, k, v) in enumerate(expected)]
    from_13 = ("--topic", topic, "--partition", 0, "--offset", 13, "--max-messages", 2)
    tail = java.run("consumer.ConsoleConsumer", *where, *from_13).ok()
    assert tail.splitlines() == ["null", "schlüssel"]


def events(said: str, name: str) -> list[dict[str, object]]:
    return [event for line in said.splitlines() if line.startswith("{") and (event := json.loads(line)).get("name") == name]


@pytest.mark.parametrize("protocol", ["CLASSIC", "CONSUMER"])
def test_verifiable_producer_and_consumer(java: JavaTools, bootstrap_servers: str, make_topic: MakeTopic, protocol: str) -> None:
    topic, group = make_topic(2), fresh("g")
    where = ("--bootstrap-server", bootstrap_servers, "--topic", topic)
    said = java.run("VerifiableProducer", *where, "--max-messages", 3000, "--repeating-keys", 7).ok()
    acked = events(said, "producer_send_success")
    assert len(acked) == 3000 and not events(said, "producer_send_error")
    said = java.run(
        "VerifiableConsumer",
        *where,
        "--group-id",
        group,
        "--max-messages",
        3000,
        "--group-protocol",
        protocol,
        "--reset-policy",
        "earliest",
        "--verbose",
    ).ok()
    read = events(said, "record_data")
    places = {(event["partition"], event["offset"]): (event["key"], event["value"]) for event in read}
    assert len(read) == len(places) == 3000
    assert {(event["partition"], event["offset"]): (event["key"], event["value"]) for event in acked} == places
    commits = events(said, "offsets_committed")
    assert commits and all(commit["success"] for commit in commits)


def test_get_offset_shell(java: JavaTools, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    for n in range(5):
        send_all(confluent_producer(bootstrap_servers), topic, [b"%d" % n], partition=1, timestamp=1_600_000_000_000 + n)
    for when, offsets in (("latest", (0, 5)), ("earliest", (0, 0)), (1_600_000_000_003, (None, 3)), ("max-timestamp", (None, 4))):
        said = java.run("GetOffsetShell", "--bootstrap-server", bootstrap_servers, "--topic", topic, "--time", when).ok()
        assert said.split() == [f"{topic}:{n}:{offset}" for n, offset in enumerate(offsets) if offset is not None], when


def test_transactions_command(java: JavaTools, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, transactional_id, where = make_topic(), fresh("tx"), ("--bootstrap-server", bootstrap_servers)
    producer = confluent_producer(bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"hanging", partition=0)
    producer.flush(30)
    rows = [line.split() for line in java.run("TransactionsCommand", *where, "list").ok().splitlines()]
    assert [row[3] for row in rows if row[0] == transactional_id] == ["Ongoing"]
    said = java.run("TransactionsCommand", *where, "describe", "--transactional-id", transactional_id).ok()
    assert f"{topic}-0" in said
    said = java.run("TransactionsCommand", *where, "describe-producers", "--topic", topic, "--partition", 0).ok()
    assert len(said.strip().splitlines()) == 2
    java.run("TransactionsCommand", *where, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0).ok()
    send_all(confluent_producer(bootstrap_servers), topic, [b"free"])
    (message,) = read_from_start(bootstrap_servers, topic, 1, isolation_level="read_committed")
    assert (message.value(), message.offset()) == (b"free", 2)


# ---- operating a cluster


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
