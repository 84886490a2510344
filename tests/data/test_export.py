"""`kafkacore export`: pyarrow reads what it writes."""

from __future__ import annotations

import fcntl
import io

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
            cluster.create_topic("twenty", partitions=20)
            producer.send_many("twenty", [b"v"] * 60, partitions=list(range(20)) * 3).result(60)
            cluster.create_topic("flights", partitions=1)
            producer.send_many("flights", ['{"carrier": "UA", "delay": 1.5}', None, "{", '{"carrier": "AA"}']).result(60)
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
    assert run(["export", "t", str(tmp_path / "t.parquet"), "--last", "1", "--force", "-b", address]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "t.parquet")["offset"].to_pylist() == [2]


def test_some_answers_are_a_row_group(address, tmp_path):
    assert run(["export", "twenty", str(tmp_path / "twenty.parquet"), "-b", address]) == 0
    found = pyarrow.parquet.read_metadata(tmp_path / "twenty.parquet")
    assert [found.row_group(at).num_rows for at in range(found.num_row_groups)] == [48, 12]
    table = pyarrow.parquet.read_table(tmp_path / "twenty.parquet")
    assert table["partition"].to_pylist() == [p for p in range(20) for _ in range(3)]


def test_what_fails_leaves_no_file(address, tmp_path, capsys):
    assert run(["export", "t", str(tmp_path / "t.parquet"), "--text", "-b", address]) == 1
    assert "not UTF-8" in capsys.readouterr().err
    assert run(["export", "t", str(tmp_path / "t.xlsx"), "-b", address]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_refused_and_what_it_names_stays(address, tmp_path, capsys):
    real = tmp_path / "real"
    real.write_text("mine")
    (tmp_path / "t.parquet").symlink_to("real")
    (tmp_path / "new.parquet").symlink_to("not-there")
    for name, words in (("t", []), ("t", ["--force"]), ("new", [])):
        assert run(["export", "t", str(tmp_path / f"{name}.parquet"), *words, "-b", address]) == 2
        assert f"{name}.parquet is a link to " in capsys.readouterr().err
    assert real.read_text() == "mine" and not (tmp_path / "not-there").exists()
    (tmp_path / "other.parquet.part").symlink_to("real")  # where the rows go until they are complete
    assert run(["export", "t", str(tmp_path / "other.parquet"), "-b", address]) == 1
    assert "other.parquet.part is a link" in capsys.readouterr().err
    assert real.read_text() == "mine" and not (tmp_path / "other.parquet").exists()


def test_a_file_that_is_there_is_replaced_by_force_or_a_yes_alone(address, tmp_path, capsys, monkeypatch):
    file = tmp_path / "t.parquet"
    file.write_text("mine")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run(["export", "t", str(file), "-b", address]) == 2
    err = capsys.readouterr().err
    assert f"{file} is there already; --force replaces it" in err and err.count("\n") == 1
    for answer, status in (("n\n", 130), ("", 130), ("y\n", 0)):
        assert file.read_text() == "mine"
        typed = io.StringIO(answer)
        typed.isatty = lambda: True
        monkeypatch.setattr("sys.stdin", typed)
        assert run(["export", "t", str(file), "-b", address]) == status
        assert f"Replace {file}? [y/N]" in capsys.readouterr().out
    assert len(pyarrow.parquet.read_table(file)) == 3
    file.write_text("mine")
    assert run(["export", "t", str(file), "--force", "-b", address]) == 0
    assert len(pyarrow.parquet.read_table(file)) == 3


def test_two_exports_do_not_write_into_each_other(address, tmp_path, capsys):
    part = tmp_path / "t.parquet.part"
    part.write_bytes(b"left by a killed process, and longer than what is written now" * 1_000)
    with part.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert run(["export", "t", str(tmp_path / "t.parquet"), "-b", address]) == 1
        assert f"{part} is being written by another process" in capsys.readouterr().err
        assert part.stat().st_size > 10_000
    assert run(["export", "t", str(tmp_path / "t.parquet"), "-b", address]) == 0
    assert len(pyarrow.parquet.read_table(tmp_path / "t.parquet")) == 3 and not part.exists()


FLIGHTS = [("UA", 1.5, 0), (None, None, 1), (None, None, 2), ("AA", None, 3)]


@pytest.mark.parametrize(
    ("options", "expected", "says"),
    [
        (["--format", "json", "--schema", "carrier STRING, delay DOUBLE", "--on-error", "null"], FLIGHTS, "4 records of flights in "),
        (["--format", "json", "--on-error", "skip", "--schema", "@FILE"], [FLIGHTS[0], FLIGHTS[1], FLIGHTS[3]], "1 value could not"),
        (["--format", "json", "--last", "1"], [("AA", 3)], "1 record of flights in "),
    ],
)
def test_fields_of_values_are_columns(address, tmp_path, capsys, options, expected, says):
    file = tmp_path / "flights.parquet"
    (tmp_path / "columns").write_text("carrier STRING, delay DOUBLE")
    options = [each.replace("@FILE", f"@{tmp_path / 'columns'}") for each in options]
    assert run(["export", "flights", str(file), *options, "-b", address]) == 0
    assert says in capsys.readouterr().out
    table = pyarrow.parquet.read_table(file)
    names = [name for name in ("carrier", "delay", "_offset") if name in table.column_names]
    assert [tuple(row.values()) for row in table.select(names).to_pylist()] == expected


@pytest.mark.parametrize(
    "options",
    [
        ["--format", "xml"],
        ["--text", "--format", "json"],
        ["--schema", "a INT"],
        ["--on-error", "skip"],
        ["--format", "json", "--on-error", "x"],
    ],
)
def test_options_that_do_not_go_together(address, tmp_path, options):
    assert run(["export", "t", str(tmp_path / "t.parquet"), *options, "-b", address]) == 2


def test_a_value_that_cannot_be_decoded_leaves_no_file(address, tmp_path, capsys):
    assert run(["export", "flights", str(tmp_path / "f.parquet"), "--format", "json", "--schema", "carrier STRING", "-b", address]) == 1
    assert "offset 2" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
