"""Acceptance of three brokers: what clients and Kafka's tools see of replicas, leaders and reassignments.

A Kafka of three nodes would say the same; here the expectations stand for themselves, since one node of it is all the tests start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkacore import KafkaAdminClient
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.rivals import confluent_admin, confluent_consumer, confluent_producer, read_from_start, send_all, take
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh, until, until_equal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    # Leaders move when a test wants it, and not after five minutes.
    with EmbeddedCluster(brokers=3, config={"auto.leader.rebalance.enable": "false"}) as three:
        yield three


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> AdminClient:
    return confluent_admin(cluster.bootstrap_servers)


def make(cluster: EmbeddedCluster, partitions: int = 1, replicas: int = 3, **configs: str) -> str:
    name = fresh("t")
    cluster.create_topic(name, partitions, replicas, {key.replace("_", "."): value for key, value in configs.items()})
    return name


def seen(admin: AdminClient, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition."""
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    return [(p.leader.id, [node.id for node in p.replicas], sorted(node.id for node in p.isr)) for p in described.partitions]


def test_groups_and_transactions_survive_their_coordinator(cluster: EmbeddedCluster) -> None:
    topic, group, servers = make(cluster, partitions=2), fresh("g"), cluster.bootstrap_servers
    producer = confluent_producer(servers, transactional_id=fresh("tx"), socket_timeout_ms=3000, reconnect_backoff_max_ms=200)
    producer.init_transactions(WAIT_S)
    consumer = confluent_consumer(
        servers, group_id=group, socket_timeout_ms=3000, reconnect_backoff_max_ms=200, heartbeat_interval_ms=300, session_timeout_ms=45_000
    )
    consumer.subscribe([topic])
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=number % 2)
        if number:
            cluster.stop_broker(out := number % 3 + 1)  # each of them is out twice, the two coordinators too
        producer.commit_transaction(WAIT_S)
        (message,) = take(consumer, 1)
        assert message.value() == b"%d" % number
        until(lambda: _commits(consumer), "the group's coordinator takes a commit")
        if number:
            cluster.start_broker(out)
    committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=WAIT_S)
    assert all(place.offset in (5, 6) for place in committed)  # three records with a marker after each, the last one passed or not
    consumer.close()


def _commits(consumer: confluent_kafka.Consumer) -> bool:
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as exception:
        moving = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "_WAIT_COORD", "_TRANSPORT", "_TIMED_OUT")
        joining = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID")
        assert exception.args[0].name() in (*moving, *joining, "_NO_OFFSET"), exception
        return exception.args[0].name() == "_NO_OFFSET"
    return True


def test_a_partition_is_moved_while_it_is_written(cluster: EmbeddedCluster, admin: AdminClient) -> None:
    topic, servers = make(cluster, replicas=1), cluster.bootstrap_servers
    ((source, _, _),) = seen(admin, topic)
    target = source % 3 + 1
    producer = confluent_producer(servers, batch_num_messages=10, enable_idempotence=True)  # it may have to send again
    offsets = send_all(producer, topic, [b"%d" % n for n in range(500)])
    python = kafka.KafkaAdminClient(bootstrap_servers=servers)
    answer = python.alter_partition_reassignments({kafka.TopicPartition(topic, 0): [target]})
    assert "Error" not in str(answer).replace("NoError", ""), answer
    offsets += send_all(producer, topic, [b"%d" % n for n in range(500, 1000)])
    until(lambda: seen(admin, topic) == [(target, [target], [target])], "it has moved")
    assert python.list_partition_reassignments() == {}
    python.close()
    assert offsets == list(range(1000))
    assert [message.value() for message in read_from_start(servers, topic, 1000)] == [b"%d" % n for n in range(1000)]


@pytest.mark.kafka
def test_kafkas_tools_on_three_brokers(cluster: EmbeddedCluster, java: JavaTools, tmp_path: Path) -> None:
    topic, where = make(cluster, partitions=3, replicas=2), ("--bootstrap-server", cluster.bootstrap_servers)
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
