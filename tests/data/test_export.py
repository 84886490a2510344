"""`kafkacore export`: pyarrow reads what it writes."""

from __future__ import annotations

import pyarrow.parquet
import pytest

from kafkacore import KafkaProducer
from kafkacore.cli.app import run
from kafkacore.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send_many("t", ["a", None, b"\xff"], keys=["k"] * 3, headers=[("h", b"v")])
        yield cluster.bootstrap_servers


def test_pyarrow_reads_the_file(address, tmp_path, capsys):
    assert run(["export", "t", str(tmp_path / "t.parquet"), "-b", address]) == 0
    assert capsys.readouterr().out.startswith("3 records of t in ")
    rows = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["key"], row["value"], row["offset"], row["topic"]) for row in rows] == [
        (b"k", b"a", 0, "t"),
        (b"k", None, 1, "t"),
        (b"k", b"\xff", 2, "t"),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"v"}]
    assert run(["export", "t", str(tmp_path / "t.parquet"), "--last", "1", "-b", address]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet")["offset"].to_pylist() == [2]


def test_what_fails_leaves_no_file(address, tmp_path, capsys):
    assert run(["export", "t", str(tmp_path / "t.parquet"), "--text", "-b", address]) == 1
    assert "not UTF-8" in capsys.readouterr().err
    assert run(["export", "t", str(tmp_path / "t.xlsx"), "-b", address]) == 2
    assert list(tmp_path.iterdir()) == []
