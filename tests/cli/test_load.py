"""`kafkacore load`: files of columns into topics."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from kafkacore.cli import frames
from kafkacore.cli.app import run
from tests.kit.clusters import embedded

NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)


def two_rows():
    return pa.table({"id": [1, 2], "name": ["a", None], "at": pa.array([NOON, NOON], pa.timestamp("ms", "UTC"))})


cluster = embedded()


@pytest.fixture
def load(cluster, capsys):
    def call(*arguments):
        status = run(["load", *map(str, arguments), "-b", cluster.bootstrap_servers])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def values(cluster, topic):
    return [json.loads(record.value) for record in sorted(cluster.records(topic), key=lambda r: (r.partition, r.offset))]


def test_each_kind_of_file(cluster, load, tmp_path):
    pa.parquet.write_table(two_rows(), tmp_path / "t.parquet")
    pa.csv.write_csv(two_rows().drop_columns("at"), tmp_path / "t.csv")
    (tmp_path / "t.jsonl").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": null}\n')
    for name in ("t.parquet", "t.csv", "t.jsonl"):
        topic = name.replace(".", "-")
        more = ["--timestamp", "at"] if name == "t.parquet" else []
        said = f"2 records of {tmp_path / name} sent to {topic}\n"
        assert load(tmp_path / name, topic, "--create", "--partitions", 3, *more) == (0, said, "")
        assert values(cluster, topic) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert {record.timestamp_ms for record in cluster.records("t-parquet")} == {int(NOON.timestamp() * 1000)}
    status, out, _ = load(tmp_path / "t.csv", "t-csv", "--create", "--json")  # that it is there is no failure
    assert status == 0 and json.loads(out)["records"] == 2 and sum(b - a for a, b in json.loads(out)["offsets"].values()) == 2


def test_columns_become_keys_headers_and_raw_values(cluster, load, tmp_path):
    pa.parquet.write_table(two_rows(), tmp_path / "t.parquet")
    cluster.create_topic("roles", partitions=1)
    assert load(tmp_path / "t.parquet", "roles", "-k", "id", "-v", "name", "-v", "id", "--no-nulls", "-H", "who=name")[0] == 0
    assert load(tmp_path / "t.parquet", "roles", "--format", "raw", "-v", "name")[0] == 0
    assert [(r.key, r.value, r.headers) for r in cluster.records("roles")] == [
        (b"1", b'{"name":"a","id":1}', (("who", b"a"),)),
        (b"2", b'{"id":2}', ()),
        (None, b"a", ()),
        (None, None, ()),
    ]


def test_keys_and_times_stay_in_the_objects_if_they_are_to(cluster, load, tmp_path):
    pa.parquet.write_table(two_rows(), tmp_path / "t.parquet")
    cluster.create_topic("kept", partitions=1)
    assert load(tmp_path / "t.parquet", "kept", "-k", "id", "--timestamp", "at", "--keep")[0] == 0
    assert [(r.key, json.loads(r.value)) for r in cluster.records("kept")] == [
        (b"1", {"id": 1, "name": "a", "at": "2026-05-01T12:00:00Z"}),
        (b"2", {"id": 2, "name": None, "at": "2026-05-01T12:00:00Z"}),
    ]
    status, _, err = load(tmp_path / "t.parquet", "kept", "-v", "id", "--keep")
    assert status == 2 and "--keep" in err


def test_rows_without_a_key(cluster, load, tmp_path):
    (tmp_path / "t.csv").write_text("id,name\na,x\n,y\n")
    cluster.create_topic("keyless", partitions=1)
    status, _, err = load(tmp_path / "t.csv", "keyless", "-k", "id")
    assert status == 1 and "row 1 has no key (column 'id'): --null-keys sends such rows as records without a key" in err
    assert load(tmp_path / "t.csv", "keyless", "-k", "id", "--null-keys")[0] == 0
    assert [(r.key, r.value) for r in cluster.records("keyless")][-2:] == [(b"a", b'{"name":"x"}'), (None, b'{"name":"y"}')]
    status, _, err = load(tmp_path / "t.csv", "keyless", "--null-keys")
    assert status == 2 and "is for --key" in err


def test_what_cannot_be_is_one_line(cluster, load, tmp_path):
    pa.parquet.write_table(two_rows(), tmp_path / "t.parquet")
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "latin.csv").write_bytes("id,name\n1,é\n".encode("latin-1"))
    cluster.create_topic("wrong", partitions=1)
    for arguments, status, text in (
        (["missing.parquet", "wrong"], 1, "missing.parquet: No such file"),
        ([tmp_path / "bad.jsonl", "wrong"], 1, "bad.jsonl: JSON parse error"),
        ([tmp_path / "t.xlsx", "wrong"], 1, "No such file"),
        ([tmp_path / "latin.csv", "wrong"], 1, "column 'name' is not UTF-8"),
        ([tmp_path / "t.parquet", "wrong", "--key", "nope"], 1, "no column 'nope': there are id, name, at"),
        ([tmp_path / "t.parquet", "wrong", "--key", "name"], 1, "row 1 has no key"),
        ([tmp_path / "t.parquet", "not-there"], 1, "--create creates it"),
        ([tmp_path / "t.parquet", "wrong", "--format", "raw"], 2, "--value"),
        ([tmp_path / "t.parquet", "wrong", "--format", "xml"], 2, "json or raw"),
        ([tmp_path / "t.parquet", "wrong", "--partitions", 2], 2, "--create"),
        ([tmp_path / "t.parquet", "wrong", "-H", "who"], 2, "KEY=VALUE"),
    ):
        found, out, err = load(*arguments, "-X", "max.block.ms=300") if status == 1 else load(*arguments)
        assert (found, out) == (status, "") and text in err.splitlines()[-1], (arguments, err)
        assert "Traceback" not in err
    assert cluster.records("wrong") == []


def test_text_of_json_lines_stays_as_it_is(cluster, load, tmp_path):
    cluster.create_topic("texts", partitions=1)
    rows = [
        {"at": "2024-01-01T00:00:00Z", "days": ["2024-01-01"], "in": {"at": "2024-01-01 12:00:00", "n": 1}, "n": 1.5},
        {"at": "no time", "days": [], "in": {"at": "2024-01-01", "n": None}, "n": 2.0},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load(tmp_path / "t.jsonl", "texts")[0] == 0
    assert [json.loads(r.value) for r in cluster.records("texts")] == rows


def test_a_file_that_breaks_off_says_what_is_there(cluster, load, tmp_path):
    cluster.create_topic("part", partitions=1)
    lines = [f'{{"id": {i}, "text": "{"x" * 100}"}}' for i in range(20_000)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines[:-1]) + '\n{"id": "no number"}\n')
    status, _, err = load(tmp_path / "t.jsonl", "part")
    there = len(cluster.records("part"))
    assert status == 1 and f"{there:,} records delivered to part before; kafkacore produce sends lines" in err and 0 < there < 20_000


def test_ctrl_c_says_what_is_there(cluster, load, tmp_path, monkeypatch):
    cluster.create_topic("interrupted", partitions=1)

    def rows(file, null):
        def batches():
            yield two_rows().to_batches()[0]
            raise KeyboardInterrupt

        return two_rows().schema, 2, batches()

    monkeypatch.setattr(frames, "_rows_of", rows)
    assert load(tmp_path / "t.parquet", "interrupted") == (130, "", "2 records delivered to interrupted\n")


def test_rows_that_the_broker_refuses_are_counted_and_the_command_fails(cluster, load, tmp_path):
    cluster.create_topic("small", partitions=1, config={"max.message.bytes": 300})
    (tmp_path / "t.csv").write_text("a\n" + "x" * 5000 + "\n" + "y" * 5000 + "\n")
    status, out, err = load(tmp_path / "t.csv", "small", "-X", "batch.size=1")
    assert (status, out) == (1, "") and err.startswith("kafkacore: 2 rows were not delivered, the first is row 0: MESSAGE_TOO_LARGE"), err
    assert err.endswith("; 0 records delivered to small\n") and cluster.records("small") == []
    (tmp_path / "t.csv").write_text("a\nshort\n" + "x" * 5000 + "\nlast\n")
    status, out, err = load(tmp_path / "t.csv", "small", "-X", "batch.size=1", "--json")
    assert (status, out) == (1, "") and err.startswith("kafkacore: 1 row was not delivered, the first is row 1: "), err
    assert err.endswith("; 2 records delivered to small\n") and values(cluster, "small") == [{"a": "short"}, {"a": "last"}]


def test_an_empty_text_of_a_csv_is_a_text_and_an_empty_field_is_null(cluster, load, tmp_path):
    cluster.create_topic("empty", partitions=1)
    (tmp_path / "t.csv").write_text('a,b,n\n"",x,1\n,"",\n"NA",null,3\n')
    assert load(tmp_path / "t.csv", "empty")[0] == 0
    assert values(cluster, "empty") == [{"a": "", "b": "x", "n": 1}, {"a": None, "b": "", "n": None}, {"a": "NA", "b": "null", "n": 3}]
    (tmp_path / "t.csv").write_text('a,n\nNA,1\n"-",-\n')
    cluster.create_topic("marked", partitions=1)
    assert load(tmp_path / "t.csv", "marked", "--null", "-")[0] == 0
    assert values(cluster, "marked") == [{"a": "NA", "n": 1}, {"a": "-", "n": None}]
    (tmp_path / "t.jsonl").write_text('{"a": 1}')
    status, _, err = load(tmp_path / "t.jsonl", "marked", "--null", "-")
    assert status == 2 and "--null" in err
