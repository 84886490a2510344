"""`kafkacore transactions commit`: what the coordinator has committed and a partition lacks, and nothing else."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, TopicPartition
from kafkacore.admin import FeatureUpdate, ProducerDescription, TransactionDescription
from kafkacore.broker.txns import markers
from kafkacore.cli import transactions
from kafkacore.cli.app import run
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row
from tests.kit.waiting import until


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on stderr."""
    return capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def lost_markers(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Partitions whose markers are answered and not written, as a kill of Kafka right after a commit may leave it."""
    lost: set[tuple[str, int]] = set()
    append = markers.MarkerWriter._append_one

    def losing(writer: Any, marker: Any, target: tuple[str, int], done: Any) -> None:
        if target in lost:
            done(None)
        else:
            append(writer, marker, target, done)

    monkeypatch.setattr(markers.MarkerWriter, "_append_one", losing)
    return lost


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_whose_marker_is_missing_is_committed_and_never_aborted(
    version: int, lost_markers: set[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        cluster.create_topic("pay", partitions=2)
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.update_features({"transaction.version": FeatureUpdate(version, "safe_downgrade")}).check()
        lost_markers.add(("pay", 1))
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="payer") as producer:
            producer.init_transactions()
            with producer.transaction():
                for partition in (0, 1):
                    producer.send("pay", b"v", partition=partition)
            number = producer.statistics()["transactions"]["producer_id"]
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:  # version 1 answers before the markers
            until(lambda: admin.describe_transactions(["payer"])["payer"].state == "CompleteCommit")
        lost_markers.clear()

        def row() -> Any:
            assert run(["transactions", "open", "pay", "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        def read() -> int:
            assert run(["consume", "pay", "--from", "earliest", "-e", "--isolation", "read_committed"]) == 0
            return len(capsys.readouterr().out.split())

        (found,) = row()
        notes = ["holds readers back", "hangs", "its coordinator has committed it: `transactions commit`"]
        assert (found["partition"], found["transactional_id"], found["notes"]) == (1, "payer", notes)
        assert read() == 1
        for force in ([], ["-y"], ["--force"]):
            assert run(["transactions", "abort", "pay", "1", str(number), *force]) == 1
            said = failure(capsys)
            assert "nothing was done: the coordinator has committed" in said and f"transactions commit pay 1 {number}`" in said
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert run(["transactions", "commit", "pay", "1", str(number)]) == 1
        asked = capsys.readouterr()
        assert "not confirmed" in asked.err and "Commit the records of payer in pay-1 from offset 0 on?" in asked.out
        assert ("would look the same" in asked.out) is (version == 1)
        assert row() == [found]
        assert run(["transactions", "commit", "pay", "1", str(number), "--force"]) == 0
        said = f"committed the transaction of producer {number} in pay-1, from offset 0 on\n"
        assert capsys.readouterr().out == said and row() == [] and read() == 2
        assert run(["transactions", "commit", "pay", "1", str(number), "--force"]) == 1
        assert "has no open transaction" in failure(capsys)


def test_what_was_not_committed_is_not_committed(
    lost_markers: set[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    with EmbeddedCluster() as cluster:
        monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
        for name in ("aborted", "open", "earlier"):
            cluster.create_topic(name, partitions=1)

        def refused(topic: str, number: int, why: str) -> None:
            assert why in cli.fails("transactions", "commit", topic, "0", str(number), "--force")

        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="t") as producer:
            producer.init_transactions()
            number = producer.statistics()["transactions"]["producer_id"]
            for topic in ("aborted", "earlier"):
                lost_markers.add((topic, 0))
                producer.begin_transaction()
                producer.send(topic, b"v").result(30)
                producer.abort_transaction()
                refused(topic, number, "the coordinator says CompleteAbort")
                if topic == "aborted":
                    cli("transactions", "abort", topic, "0", str(number), "-y")
            producer.begin_transaction()
            producer.send("open", b"v").result(30)
            refused("open", number, "the coordinator says Ongoing")
            producer.commit_transaction()
            refused("earlier", number, "it is an older one")  # what the coordinator has committed since was another transaction
            cli("transactions", "abort", "earlier", "0", str(number), "-y")
        refused("open", 10**9, "has no open transaction")


@each_row(
    ("state", "why"),
    [
        ({}, ""),
        ({"producer_epoch": 6}, ""),
        ({"state": "PrepareCommit", "partitions": [TopicPartition("t", 0)]}, ""),
        ({"state": "PrepareCommit", "partitions": [TopicPartition("t", 1)]}, "is not in t-0"),
        ({"state": "PrepareAbort", "partitions": [TopicPartition("t", 0)]}, "says PrepareAbort"),
        ({"state": "Empty"}, "says Empty"),
        ({"producer_id": 8}, "gone on to producer 8"),
        ({"producer_epoch": 7}, "an older one"),
        ({"producer_epoch": 4}, "an older one"),
    ],
)
def test_which_open_transactions_were_committed(state: dict[str, Any], why: str) -> None:
    writer = ProducerDescription(7, 5, 0, 1_000, 3, 10)
    said = TransactionDescription("CompleteCommit", 7, 5, 60_000, 900, [])._replace(**state)
    for version in (1, 2):
        expected = "an older one" if version == 1 and said.producer_epoch == 6 else why
        found = transactions.why_not_committed(TopicPartition("t", 0), writer, said, version)
        assert bool(found) == bool(expected) and expected in found
