"""The metadata log between this controller and Kafka 4.3.1: the same definitions, the same bytes, each reads the other's."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.kafka_server import KafkaServer, jar_directory
from tests.kit.rows import each_row

sys.path.append(str(Path(__file__).parent.parent / "broker"))
sys.path.append(str(Path(__file__).parent.parent / "protocol"))
from protocol_kit import BETWEEN_BROKERS, name_of, versions_of
from test_controller import Stage
from test_tables import compare

from kafkacore import KafkaAdminClient, NewTopic, protocol
from kafkacore.broker.cluster import ClusterImage, uuid_text
from kafkacore.broker.controller.replay import Replay
from kafkacore.config import BrokerConfig
from kafkacore.protocol.metadata_log import MetadataRecord, decode_record, encode_record
from kafkacore.protocol.schema import Versions
from kafkacore.records import read_batches
from tests.kit.inside import log_of
from tests.kit.java_tools import JavaTools

pytestmark = pytest.mark.kafka

MESSAGES = [getattr(protocol, name) for name in sorted(BETWEEN_BROKERS)] + list(MetadataRecord.RECORDS.values())
FILES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}
"""Definitions whose file has another name."""


def definitions(jar: str, folder: str) -> dict[str, Any]:
    found = {}
    (path,) = jar_directory().glob(f"{jar}-4*.jar")
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(f"common/{folder}/") and name.endswith(".json"):
                found[Path(name).stem] = json.loads(re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.M))
    return found


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    return definitions("kafka-clients", "message") | definitions("kafka-metadata", "metadata")


@each_row("kind", MESSAGES, ids=name_of)
def test_a_table_says_what_kafkas_definition_says(kind: Any, official: dict[str, Any]) -> None:
    theirs = official[FILES.get(kind.__name__, kind.__name__)]
    is_record = issubclass(kind, MetadataRecord)
    served = kind.MIN_VERSION if is_record else protocol.APIS[kind.API_KEY].oldest_served  # older ones Kafka no longer defines
    assert (served, kind.MAX_VERSION) == Versions.parse(theirs["validVersions"])
    assert kind.API_KEY == theirs["apiKey"]
    compare(kind, theirs, set(versions_of(kind)) - set(range(served)))


def test_no_record_is_missing() -> None:
    theirs = {each["name"] for each in definitions("kafka-metadata", "metadata").values()}
    assert theirs == {kind.__name__ for kind in MetadataRecord.RECORDS.values()}


def values_of(path: Path) -> Iterator[bytes]:
    for batch in read_batches(path.read_bytes()):
        if not batch.is_control:
            for record in batch.records():
                assert record.value is not None
                yield bytes(record.value)


def test_kafkas_own_log_is_read_byte_for_byte() -> None:
    """Every record Kafka wrote is decoded, encoded to the same bytes, and replayed to the cluster its clients see."""
    with KafkaServer() as kafka:
        with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("a", 3, 1, configs={"retention.ms": "7"}), NewTopic("b", 1, 1), NewTopic("c", 1, 1)]).check()
            admin.delete_topics(["b"]).check()
            admin.create_partitions({"c": 4}).check()
            described = {topic.name: topic for topic in admin.describe_topics(["a", "c"]).succeeded.values()}
        values = [value for path in sorted((kafka.directory / "data" / "__cluster_metadata-0").glob("*.log")) for value in values_of(path)]
    image = ClusterImage(BrokerConfig(), "theirs")
    kinds = set()
    replay = Replay()
    for nth, value in enumerate(values):
        record = decode_record(value)
        kinds.add(type(record).__name__)
        version = value[2]
        assert encode_record(record, version) == value, record
        image.apply(replay.records([record]), nth + 1)
    assert {"RegisterBrokerRecord", "BrokerRegistrationChangeRecord", "TopicRecord", "PartitionRecord", "ConfigRecord"} <= kinds
    assert {"FeatureLevelRecord", "RemoveTopicRecord", "RegisterControllerRecord"} <= kinds
    assert {"BeginTransactionRecord", "EndTransactionRecord"} <= kinds
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"a": 3, "c": 4}
    assert {name: topic.topic_id for name, topic in image.topics.items()} == {name: topic.topic_id for name, topic in described.items()}
    assert image.topics["a"].config.retention_ms == 7
    assert (list(image.nodes), image.features["metadata.version"]) == ([1], 30)


def test_kafkas_tool_reads_our_snapshot(java: JavaTools, tmp_path: Path) -> None:
    stage = Stage(directory=tmp_path, metadata_log_max_snapshot_interval_ms=1)
    stage.create("t", assignments=[[1, 2, 3], [2, 3, 1]], configs={"retention.ms": "7"})
    stage.clock.advance(1)
    stage.create("u", 1, 1)
    assert log_of(stage.host) is not None
    snapshots = log_of(stage.host).snapshots
    kinds = [type(record).__name__ for record in stage.image.records()]
    stage.host.close()
    said = java.run("DumpLogSegments", "--cluster-metadata-decoder", "--files", snapshots.path(snapshots.ids[-1])).ok()
    assert "isvalid: false" not in said and "Snapshot end offset" in said, said
    assert "SnapshotHeader" in said and "SnapshotFooter" in said
    found = [json.loads(line.partition("payload: ")[2]) for line in said.splitlines() if "payload: " in line]
    assert [each["type"] for each in found] == [
        re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Record")).upper() + "_RECORD" for name in kinds
    ]


def test_kafkas_tool_reads_our_log(java: JavaTools, tmp_path: Path) -> None:
    stage = Stage(directory=tmp_path)
    stage.create("t", assignments=[[1, 2, 3], [2, 3, 1]], configs={"retention.ms": "7"})
    stage.create("gone", 1, 1)
    topic_id = stage.image.topics["t"].topic_id
    stage.ask(protocol.DeleteTopicsRequest(topics=[protocol.DeleteTopicState(name="gone")]))
    stage.lose(1)
    stage.reassign([2, 3])
    stage.beat(3, want_shut_down=True)
    stage.ask(protocol.AllocateProducerIdsRequest(broker_id=2, broker_epoch=stage.epochs[2]))
    stage.ask(protocol.UnregisterBrokerRequest(broker_id=1))
    records = [record for _, batch in log_of(stage.host).batches() for record in batch] if log_of(stage.host) else []
    stage.host.close()
    (path,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    said = java.run("DumpLogSegments", "--cluster-metadata-decoder", "--files", path).ok()
    assert "isvalid: false" not in said
    found = [json.loads(line.partition("payload: ")[2]) for line in said.splitlines() if "payload: " in line]
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__.removesuffix("Record")).upper() + "_RECORD" for record in records]
    assert [each["type"] for each in found] == names
    assert len(set(names)) >= 10
    topic = next(each["data"] for each in found if each["type"] == "TOPIC_RECORD")
    assert topic == {"name": "t", "topicId": uuid_text(topic_id)}
    partitions = [each["data"] for each in found if each["type"] == "PARTITION_RECORD" and each["data"]["topicId"] == uuid_text(topic_id)]
    assert [(each["replicas"], each["isr"], each["leader"], each["leaderEpoch"]) for each in partitions] == [
        ([1, 2, 3], [1, 2, 3], 1, 0),
        ([2, 3, 1], [2, 3, 1], 2, 0),
    ]
    change = next(each["data"] for each in found if each["type"] == "PARTITION_CHANGE_RECORD")
    assert (change["partitionId"], change["leader"], change["isr"]) == (0, 2, [2, 3])
