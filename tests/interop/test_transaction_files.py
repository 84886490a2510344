"""What transactions leave in files: Kafka's DumpLogSegments reads ours, and finds in them what it finds in Kafka's; we read Kafka's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafkacore.broker.producers import AbortedTxn, ProducerStates
from kafkacore.testing import EmbeddedCluster
from tests.kit.java_tools import JavaTools
from tests.kit.kafka_server import KafkaServer
from tests.kit.rivals import confluent_producer, marked
from tests.kit.waiting import GUARD_S as WAIT_S
from tests.kit.waiting import fresh

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]


def write(servers: str, topic: str, names: tuple[str, str]) -> None:
    """Two producers whose transactions overlap; the first aborts twice, the second commits, then stays open."""
    first, second = (confluent_producer(servers, transactional_id=name) for name in names)
    for producer in (first, second):
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    send(first, topic, b"a", 3)  # 0-2
    send(second, topic, b"b", 2)  # 3-4
    first.abort_transaction(WAIT_S)  # 5
    marked(servers, topic, 5)
    first.begin_transaction()
    send(first, topic, b"c", 1)  # 6
    second.commit_transaction(WAIT_S)  # 7
    marked(servers, topic, 7)
    first.abort_transaction(WAIT_S)  # 8
    marked(servers, topic, 8)
    second.begin_transaction()
    send(second, topic, b"d" * 600_000, 2)  # 9-10: more than a segment, so that it rolls and leaves a snapshot


def send(producer: Any, topic: str, value: bytes, count: int) -> None:
    for _ in range(count):
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


EXPECTED_ABORTED = [(0, 5, 3), (6, 8, 9)]
"""First offset, last offset, last stable offset."""


def dumped(java: JavaTools, path: Path, *options: str) -> str:
    return java.run("DumpLogSegments", "--files", path, *options).ok()


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, str]:
    """The directory of a partition of the embedded broker, closed cleanly."""
    topic = fresh("files")
    with EmbeddedCluster(data_dir=tmp_path, config={"transaction.state.log.num.partitions": 1}) as cluster:
        cluster.create_topic(topic, configs={"segment.bytes": "1048576"})
        write(cluster.bootstrap_servers, topic, ("first", "second"))
    return tmp_path / "broker-1", topic


def moves(said: str, transactional_id: str) -> list[tuple[Any, ...]]:
    """What the records of a transactional id say, but for times and producer ids."""
    found = []
    for key, payload in re.findall(r"key: (\{.*?\}) payload: (\{.*\})$", said, re.MULTILINE):
        if json.loads(key)["data"]["transactionalId"] != transactional_id:
            continue
        record = json.loads(payload)
        value = record["data"]
        partitions = value["transactionPartitions"]
        found.append(
            (
                record["version"],
                value["transactionStatus"],
                value["producerEpoch"],
                value.get("previousProducerId") == value["producerId"],
                value.get("nextProducerId"),
                value.get("clientTransactionVersion"),
                value["transactionTimeoutMs"],
                None if partitions is None else [each["partitionIds"] for each in partitions],
                value["transactionStartTimestampMs"] > 0,
            )
        )
    return found


def test_our_transaction_log_tells_what_kafkas_tells(java: JavaTools, real_kafka: KafkaServer, ours: tuple[Path, str]) -> None:
    directory, _ = ours
    topic, names = fresh("files"), (fresh("first"), fresh("second"))
    java.run("TopicCommand", "--bootstrap-server", real_kafka.bootstrap_servers, "--create", "--topic", topic).ok()
    write(real_kafka.bootstrap_servers, topic, names)
    log = f"{0:020d}.log"
    said = dumped(java, directory / "__transaction_state-0" / log, "--transaction-log-decoder")
    paths = ",".join(str(path / log) for path in (real_kafka.directory / "data").glob("__transaction_state-*"))
    expected = dumped(java, Path(paths), "--transaction-log-decoder")
    for mine, theirs in zip(("first", "second"), names, strict=True):
        assert moves(said, mine) == moves(expected, theirs) != []


def test_we_read_kafkas_files(real_kafka: KafkaServer, java: JavaTools) -> None:
    topic = fresh("files")
    java.run(
        "TopicCommand",
        "--bootstrap-server",
        real_kafka.bootstrap_servers,
        *("--create", "--topic", topic, "--config", "segment.bytes=1048576"),
    ).ok()
    write(real_kafka.bootstrap_servers, topic, (fresh("first"), fresh("second")))
    directory = real_kafka.directory / "data" / f"{topic}-0"
    index = list(AbortedTxn.decode_all((directory / f"{0:020d}.txnindex").read_bytes()))
    assert [entry[1:] for entry in index] == EXPECTED_ABORTED
    assert b"".join(entry.encode() for entry in index) == (directory / f"{0:020d}.txnindex").read_bytes()
    (snapshot,) = directory.glob("*.snapshot")
    data = snapshot.read_bytes()
    states = ProducerStates.from_snapshot(data)
    assert states.first_unstable_offset() == 9
    assert sorted(entry.last_sequence for entry in states.entries.values()) == [2, 3]
    assert sorted(states.to_snapshot()) == sorted(data)  # the order of producers is free, and the CRC follows it
