"""`kafkacore transactions commit` on Apache Kafka: the marker of a commit that a partition lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, TopicPartition
from kafkacore.cli.app import run
from kafkacore.protocol import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacore.records import BatchBuilder
from tests.kit.kafka_server import KafkaServer
from tests.kit.waiting import until
from tests.kit.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Kafka that takes records of a transaction without a question to its coordinator: so a partition has one open that has ended."""
    with KafkaServer(transaction_partition_verification_enable="false") as server:
        yield server.bootstrap_servers


def write(servers: str, tp: TopicPartition, transactional_id: str, producer_id: int, epoch: int) -> None:
    """A record of a transaction, behind its producer's back; from version 12 of Produce on the coordinator would be asked."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    builder.append(b"behind")
    rows = [PartitionProduceData(index=tp.partition, records=bytes(builder.build()))]
    topics = [TopicProduceData(name=tp.topic, partition_data=rows)]
    with Wire(servers) as wire:
        answer = wire.ask(ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics), 11)
    assert [found.error_code for topic in answer.responses for found in topic.partition_responses] == [0]


def test_a_commit_whose_marker_is_missing(servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", servers)
    tp = TopicPartition("pay", 1)
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("pay", 2, 1)]).check()
        with KafkaProducer(bootstrap_servers=servers, transactional_id="payer") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("pay", b"v", partition=0)
                at = producer.statistics()["transactions"]
                producer_id, epoch = at["producer_id"], at["producer_epoch"]
        until(lambda: admin.describe_transactions(["payer"]).check()["payer"].state == "CompleteCommit")
        write(servers, tp, "payer", producer_id, epoch)
        (open_there,) = admin.describe_producers([tp]).check()[tp]
        assert (open_there.producer_id, open_there.producer_epoch, open_there.transaction_start_offset) == (producer_id, epoch, 0)
        assert admin.describe_transactions(["payer"]).check()["payer"].producer_epoch == epoch + 1
    assert run(["transactions", "open", "pay", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["notes"] == ["holds readers back", "hangs", "its coordinator has committed it: `transactions commit`"]
    reading = ["consume", "pay", "--from", "earliest", "-e", "--isolation", "read_committed"]
    assert run(reading) == 0
    assert capsys.readouterr().out == "v\n"
    assert run(["transactions", "abort", "pay", "1", str(producer_id), "--force"]) == 1
    assert "the coordinator has committed the transaction of payer" in capsys.readouterr().err
    assert run(["transactions", "commit", "pay", "1", str(producer_id), "--force"]) == 0
    assert run(reading) == 0
    assert sorted(capsys.readouterr().out.split()[-2:]) == ["behind", "v"]
    assert run(["transactions", "open", "pay", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
