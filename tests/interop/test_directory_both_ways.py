"""A data directory that goes from Apache Kafka 4.3.1 to the embedded brokers and back, and the other way: topics, settings, records and
quotas of all of them are there, and so is what the embedded controller does not act on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition
from kafkacore.testing import EmbeddedCluster
from tests.kit.free_ports import free_port
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 2000, "metadata.max.retention.bytes": 0}
"""So that what comes next has snapshots alone: the log before the last one is gone."""


def kafka_node(directory: Path, drops: tuple[str, ...] = (), **settings: Any) -> KafkaServer:
    """A node on the directories of an embedded cluster of one broker; `drops` are settings it is not to have."""
    layout = {"log_dirs": directory / f"broker-{settings.get('node_id', 1)}", "metadata_log_dir": directory / "controller"}
    node = KafkaServer(**{**layout, **settings})
    lines = node.properties.read_text().splitlines()
    node.properties.write_text("".join(f"{line}\n" for line in lines if line.partition("=")[0] not in drops))
    return node


def format_directory(node: KafkaServer, *options: str) -> None:
    node.tool("kafka.tools.StorageTool", "format", "-t", "kafkacoreTestsClusterQ", "-c", node.properties, *options)


@contextlib.contextmanager
def running(*nodes: KafkaServer) -> Iterator[str]:
    """Kafka nodes while the block lasts, stopped in order after it; the address of the last one."""
    try:
        for node in nodes:
            node.start()
        yield nodes[-1].bootstrap_servers
        for node in reversed(nodes):
            if node.process is not None and node.process.poll() is None:
                node.kill(signal.SIGTERM)
    finally:
        for node in nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def write(bootstrap: str, who: str) -> None:
    """A topic with settings, records, a quota and a change of every older topic."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        older = sorted(admin.list_topics())
        admin.create_topics([NewTopic(who, 3, 1, configs={"retention.ms": "700000000"}), NewTopic(f"{who}-gone", 1, 1)]).check()
        admin.delete_topics([f"{who}-gone"]).check()
        for name in older:
            admin.alter_configs({("topic", name): {"segment.bytes": "2000000"}}).check()
        admin.alter_client_quotas({(("user", who),): {"producer_byte_rate": 1e9}})
        until(lambda: frozenset({("user", who)}) in admin.describe_client_quotas(), "a Kafka's broker hears of it from its controller")
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for name in [*older, who]:
            for nth in range(30):
                producer.send(name, f"{who} {nth}".encode(), partition=nth % 3)
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id="the same") as producer:
        producer.init_transactions()
        for decision in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send(who, f"{who} in a transaction, {decision.__name__}".encode(), partition=0)
            decision()
    for protocol in ("classic", "consumer"):
        settings = {"group_id": f"{protocol}-{who}", "group_protocol": protocol, "auto_offset_reset": "earliest"}
        with KafkaConsumer(who, bootstrap_servers=bootstrap, **settings, enable_auto_commit=False) as consumer:
            until(lambda consumer=consumer: consumer.poll(1), "records for a member")
            consumer.commit()


def look(bootstrap: str) -> dict[str, Any]:
    """What a client sees."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        names = sorted(admin.list_topics())
        described = admin.describe_topics(names).check()
        ids = {name: each.topic_id for name, each in described.items()}
        settings = {
            name: {key: each.value for key, each in entries.items() if each.source == "topic"}
            for (_, name), entries in admin.describe_configs([("topic", name) for name in names]).check().items()
        }
        quotas = admin.describe_client_quotas()
        until(lambda: len(admin.list_groups()) == 2 * len(names), "the coordinator has loaded the groups of each writer")
        groups = {each.group_id: admin.list_group_offsets(each.group_id) for each in admin.list_groups()}
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        wanted = [TopicPartition(name, index) for name in names for index in range(3)]
        ends = consumer.end_offsets(wanted)
        consumer.assign([tp for tp in wanted if ends[tp]])
        records: dict[str, list[bytes]] = {name: [] for name in names}
        while any(consumer.position(tp) < ends[tp] for tp in wanted if ends[tp]):
            for tp, batch in consumer.poll(10).items():
                records[tp.topic] += [bytes(record.value or b"") for record in batch]
    values = {name: sorted(each) for name, each in records.items()}
    return {"ids": ids, "settings": settings, "quotas": quotas, "groups": groups, "records": values}


def expected(*writers: str) -> dict[str, list[bytes]]:
    """The records of each topic: its own writer's, and those of all later ones."""
    found = {who: [f"{each} {nth}".encode() for each in writers[at:] for nth in range(30)] for at, who in enumerate(writers)}
    return {who: sorted([*values, f"{who} in a transaction, commit_transaction".encode()]) for who, values in found.items()}


@pytest.mark.parametrize(
    ("quorum", "how"),
    [
        ("dynamic", signal.SIGTERM),
        pytest.param("static", signal.SIGKILL, marks=pytest.mark.kafka_at_length),
    ],
)
def test_from_kafka_to_here_and_back(quorum: str, how: signal.Signals, tmp_path: Path) -> None:
    drops = ("controller.quorum.voters",) if quorum == "dynamic" else ()
    more = {name.replace(".", "_"): value for name, value in SNAPSHOTS.items()} if how is signal.SIGTERM else {}
    node_id = 4 if quorum == "dynamic" else 1
    config = {**SNAPSHOTS, "node.id": node_id}
    node = kafka_node(tmp_path, drops, **more, node_id=node_id)
    if quorum == "dynamic":
        with node.properties.open("a") as file:
            file.write(f"controller.quorum.bootstrap.servers={node.bootstrap_controllers}\n")
    format_directory(node, *(["--standalone"] if quorum == "dynamic" else []))
    with running(node) as bootstrap:
        write(bootstrap, "kafka")
        before = look(bootstrap)
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            features = admin.describe_features().finalized
        if how is signal.SIGKILL:
            node.kill()
    for _ in range(2):  # the second time what was written here is read
        with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
            if "here" not in cluster.topics():
                assert look(cluster.bootstrap_servers) == before
                write(cluster.bootstrap_servers, "here")
                for nth in range(30):
                    cluster.create_topic(f"passing-{nth}", partitions=1)
                    cluster.delete_topic(f"passing-{nth}")
            seen = look(cluster.bootstrap_servers)
            assert seen["records"] == expected("kafka", "here")
    with running(node) as bootstrap:
        assert look(bootstrap) == seen
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            assert admin.describe_features().finalized == features
            assert [each.replica_id for each in admin.describe_quorum().voters] == [node_id]
        write(bootstrap, "kafka-again")
        seen = look(bootstrap)
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
        assert look(cluster.bootstrap_servers) == seen
        assert seen["records"] == expected("kafka", "here", "kafka-again")


def test_from_here_to_kafka_and_back(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path, config=SNAPSHOTS) as cluster:
        write(cluster.bootstrap_servers, "here")
        seen = look(cluster.bootstrap_servers)
    port = free_port()
    voters = f"3000@127.0.0.1:{port}"
    controller = kafka_node(
        tmp_path,
        ("advertised.listeners", "inter.broker.listener.name"),
        process_roles="controller",
        node_id=3000,
        controller_quorum_voters=voters,
        log_dirs=tmp_path / "controller",
        listeners=f"CONTROLLER://127.0.0.1:{port}",
    )
    controller.port = port
    broker = kafka_node(tmp_path, ("metadata.log.dir",), process_roles="broker", controller_quorum_voters=voters)
    lines = broker.properties.read_text().splitlines()
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{broker.port}"
    broker.properties.write_text("".join(f"{listeners if line.startswith('listeners=') else line}\n" for line in lines))
    with running(controller, broker) as bootstrap:
        assert look(bootstrap) == seen
        write(bootstrap, "kafka")
        seen = look(bootstrap)
    with EmbeddedCluster(data_dir=tmp_path, config=SNAPSHOTS) as cluster:
        assert look(cluster.bootstrap_servers) == seen
        assert seen["records"] == expected("here", "kafka")
