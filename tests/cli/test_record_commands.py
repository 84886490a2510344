"""`produce` and `consume`: records with keys, headers, partitions, times and tombstones, out and back without a loss."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.cli.app import run
from kafkacore.cli.options import json_line
from kafkacore.cli.record_text import ObjectReader, Sent, Wrong, as_json, from_json
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.commands import Commands
from tests.kit.reached import Reached
from tests.kit.rows import each_row

cluster = embedded()


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts bytes on standard input."""

    def put(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return put


def held(cluster: EmbeddedCluster, topic: str) -> list[tuple[object, ...]]:
    """All records of a topic, without their offsets."""
    records = sorted(cluster.records(topic), key=lambda r: (r.partition, r.offset))
    return [(r.partition, r.key, r.value, list(r.headers), r.timestamp_ms) for r in records]


_bytes = st.none() | st.sampled_from([b"", b"v"]) | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
_records = st.builds(
    Sent,
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3),
    partition=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**63 - 1),
)


@given(_records)
def test_every_record_comes_back_from_its_object(record: Sent) -> None:
    read = SimpleNamespace(topic="t", offset=7, **record._asdict())
    line = json_line(as_json(read)).encode()  # type: ignore[arg-type]
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert from_json(line) == record


calls = Reached("one call for several", "a call for each partition or none", "a call for each time or none")


@calls.by
@given(st.lists(_records | _records.map(lambda r: r._replace(partition=None)) | _records.map(lambda r: r._replace(timestamp_ms=None))))
def test_calls_keep_the_order(records: list[Sent]) -> None:
    several = [*itertools.pairwise(records)]
    calls("a call for each partition or none", any((a.partition is None) != (b.partition is None) for a, b in several))
    calls("a call for each time or none", any((a.timestamp_ms is None) != (b.timestamp_ms is None) for a, b in several))
    lines = [json_line(as_json(SimpleNamespace(topic="t", offset=7, **record._asdict()))).encode() for record in records]  # type: ignore[arg-type]
    found = []
    for call in ObjectReader(keep_partitions=True).calls(lines):
        count = len(call["values"])
        calls("one call for several", count > 1)
        columns = [call[name] or [none] * count for name, none in (("headers", []), ("partitions", None), ("timestamps_ms", None))]
        found += map(Sent, call["keys"], call["values"], *columns)
    assert found == records


@each_row(
    ("line", "why"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"key": "a"}', "no value"),
        ('{"vlaue": "a"}', "a record has no vlaue"),
        ('{"value": 1}', "value is 1: a string or null"),
        ('{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        ('{"value_base64": "?"}', "value_base64"),
        (r'{"value": "\ud800"}', "value"),
        ('{"value": "a", "partition": "0"}', "partition is"),
        ('{"value": "a", "partition": 4294967296}', "partition is"),
        ('{"value": "a", "timestamp_ms": 1.5}', "timestamp_ms is"),
        ('{"value": "a", "timestamp_ms": true}', "timestamp_ms is"),
        ('{"value": "a", "headers": {"a": "b"}}', "headers is no list"),
        ('{"value": "a", "headers": [{"value": "b"}]}', "headers is no list"),
        ('{"value": "a", "headers": [{"name": "n", "value": 2}]}', "header n: value is 2"),
    ],
)
def test_what_is_no_record(line: str, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        from_json(line.encode())


def test_there_and_back(
    cluster: EmbeddedCluster, at: str, typed: Callable[[bytes], None], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("there", "back"):
        assert run(["topics", "create", name, "-p", "3"]) == 0
    objects = [
        {
            "key": "k",
            "value": "v",
            "partition": 2,
            "timestamp_ms": 5,
            "headers": [{"name": "h", "value": "é"}, {"name": "h", "value": None}],
        },
        {"key": "k", "value": None, "partition": 1, "timestamp_ms": 6},
        {"key": None, "value": "", "partition": 1, "timestamp_ms": 7},
        {"key_base64": "/w==", "value_base64": "AP8=", "partition": 0, "timestamp_ms": 8},
    ]
    typed("".join(json.dumps(each) + "\n" for each in objects).encode())
    assert run(["produce", "there", "--format", "json", "--keep-partitions"]) == 0
    assert held(cluster, "there") == [
        (0, b"\xff", b"\x00\xff", [], 8),
        (1, b"k", None, [], 6),
        (1, None, b"", [], 7),
        (2, b"k", b"v", [("h", "é".encode()), ("h", None)], 5),
    ]
    capsysbinary.readouterr()
    assert run(["consume", "there", "--from", "earliest", "-e", "--json"]) == 0
    printed = capsysbinary.readouterr().out
    typed(printed)
    assert run(["produce", "back", "--format", "json", "--keep-partitions"]) == 0
    assert held(cluster, "back") == held(cluster, "there")
    err = capsysbinary.readouterr().err
    assert b"sent as values" not in err and b"without --keep-partitions" not in err
    typed(printed)
    assert run(["produce", "back", "--json"]) == 0
    assert b"with --format json their keys, values and headers are" in capsysbinary.readouterr().err
    typed(b'{"topic":"mine"}\n')
    assert run(["produce", "back"]) == 0
    assert b"sent as values" not in capsysbinary.readouterr().err
    typed(printed)
    assert run(["produce", "single", "--format", "json"]) == 0  # a topic with one partition
    assert b"--keep-partitions" not in capsysbinary.readouterr().err
    assert sorted(each[4] for each in held(cluster, "single")) == [5, 6, 7, 8]


def test_a_replay_lets_keys_decide_unless_it_is_to_keep_partitions(
    cluster: EmbeddedCluster, at: str, typed: Callable[[bytes], None], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name, count in (("dead", 1), ("dead-2", 2), ("pay", 6)):
        cluster.create_topic(name, partitions=count)
        if name != "pay":
            cluster.produce(name, [(f"k{n}", f"v{n}") for n in range(60)])
    cluster.produce("pay", [(f"k{n}", f"v{n}") for n in range(60)])
    where = {r.key: r.partition for r in cluster.records("pay")}

    def replay(*words: str) -> tuple[list[tuple[bytes | None, int]], str]:
        assert run(["consume", "dead", "dead-2", "--from", "earliest", "-e", "--json"]) == 0
        typed(capsysbinary.readouterr().out)
        ends = {p: len([r for r in cluster.records("pay") if r.partition == p]) for p in range(6)}
        assert run(["produce", "pay", "--format", "json", *words]) == 0
        new = [(r.key, r.partition) for r in cluster.records("pay") if r.offset >= ends[r.partition]]
        assert len(new) == 120
        return new, capsysbinary.readouterr().err.decode()

    new, said = replay()
    assert all(where[key] == partition for key, partition in new)
    assert said.splitlines()[0] == "keys decide on partitions; --keep-partitions sends records to those that they came from"
    new, said = replay("-p", "-1")
    assert all(where[key] == partition for key, partition in new) and "--keep-partitions" not in said
    new, said = replay("--keep-partitions")
    assert {partition for _, partition in new} == {0, 1}
    assert said.splitlines()[:2] == [
        "dead has 1 partition, pay has 6: without --keep-partitions keys decide",
        "dead-2 has 2 partitions, pay has 6: without --keep-partitions keys decide",
    ]
    new, said = replay("-p", "3")
    assert {partition for _, partition in new} == {3} and "--keep-partitions" not in said


def test_lines_with_a_fixed_key_headers_partition_time_and_tombstones(
    cluster: EmbeddedCluster, at: str, typed: Callable[[bytes], None], cli: Commands
) -> None:
    cli("topics", "create", "lines", "-p", "2")
    typed(b"one\n\n")
    words = ["-H", "h=1", "-H", "h=a=b", "-p", "1", "--timestamp", "99"]
    cli("produce", "lines", "--key", "k", "--null", "", *words)
    headers = [("h", b"1"), ("h", b"a=b")]
    assert held(cluster, "lines") == [(1, b"k", b"one", headers, 99), (1, b"k", None, headers, 99)]
    typed(b"NULL:a\nb:NULL\n")
    cli("produce", "lines", "-k", ":", "--null", "NULL", "-p", "0", "--timestamp", "1")
    assert held(cluster, "lines")[:2] == [(0, None, b"a", [], 1), (0, b"b", None, [], 1)]
    assert cli("consume", "lines", "--from", "earliest", "-e", "-p", "0", "-k", ":", "--null", "NULL") == "NULL:a\nb:NULL\n"
    assert cli("consume", "lines", "--from", "earliest", "-e", "-p", "0", "-Z") == "a\nNULL\n"


def test_a_bad_object_names_its_line(cluster: EmbeddedCluster, at: str, tmp_path: Path, cli: Commands) -> None:
    (tmp_path / "in").write_text('{"value": "a"}\n{"value": "b", "partition": 0}\n{"value": 3}\n{"value": "d"}\n')
    cli("produce", "bad", str(tmp_path / "in"), "--format", "json", status=1)
    said = cli.err
    assert "line 3: value is 3" in said and "2 records delivered before" in said
    assert [each[2] for each in held(cluster, "bad")] == [b"a", b"b"]


@each_row(
    ("words", "why"),
    [
        (["--format", "xml"], "raw or json"),
        (["--format", "json", "--key", "a"], "the objects say it"),
        (["--format", "json", "-H", "a"], "NAME=VALUE"),
        (["--keep-partitions"], "is for --format json"),
        (["--format", "json", "--keep-partitions", "-p", "1"], "without --partition"),
        (["--key", "a", "-k", ":"], "either a key for all"),
        (["-H", "a"], "NAME=VALUE"),
        (["-Z"], "--null ''"),
    ],
)
def test_options_that_do_not_fit(words: list[str], why: str, at: str, cli: Commands) -> None:
    cli("produce", "never", *words, status=2)
    assert why in cli.err


def test_the_last_ones_and_those_since_a_time(cluster: EmbeddedCluster, at: str, typed: Callable[[bytes], None], cli: Commands) -> None:
    cli("topics", "create", "places", "-p", "3")
    minute = 60_000
    objects = [
        {"value": f"{p}{n}", "partition": p, "timestamp_ms": 1_777_593_600_000 + n * minute} for p in (0, 1) for n in range(4 - 3 * p)
    ]
    typed("".join(json.dumps(each) + "\n" for each in objects).encode())  # partition 0: 2026-05-01 from 00:00, 1: one record, 2: none
    cli("produce", "places", "--format", "json", "--keep-partitions")
    for words, expected in (
        (["--from", "-2"], "02 03 10"),
        (["-o", "-9"], "00 01 02 03 10"),
        (["--from", "-0"], ""),
        (["--from", "3"], "03"),
        (["--from", "@1777593720000"], "02 03"),
        (["-o", "s@1777593720001"], "03"),
        (["--from", "@2026-05-01T00:02"], "02 03"),
        (["--from", "@2026-05-01T02:02+02:00"], "02 03"),
        (["--from", "@2026-05-01"], "00 01 02 03 10"),
        (["--from", "@2027-05-01"], ""),
    ):
        for more in ([], ["--group", f"g{'-'.join(words)}"]):
            assert sorted(cli("consume", "places", *words, "-e", *more).split()) == expected.split(), (words, more)
    for word in ("-", "x", "@", "@yesterday", "@1969-12-31", "e@5", "-1.5", "9" * 5000, "@" + "9" * 30):
        cli("consume", "places", "--from", word, status=2)
        assert "--from" in cli.err


def test_templates(cluster: EmbeddedCluster, at: str, typed: Callable[[bytes], None], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    typed(
        b'{"key": "k", "value": "%s", "timestamp_ms": 5, "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": null}]}\n'
        b'{"value": null, "timestamp_ms": 6}\n'
    )
    assert run(["produce", "form", "--format", "json"]) == 0
    for template, expected in (
        (r"%k %s\n", b"k %s\n ~\n".replace(b" ~", b"~ ~")),
        ("%v", b"%s~"),
        (r"%t/%p@%o %T %K,%S\t%h%%\n", b"form/0@0 5 1,2\ta=1,b=~%\nform/0@1 6 -1,-1\t%\n"),
        ("%R", b"\0\0\0\2\xff\xff\xff\xff"),
    ):
        capsysbinary.readouterr()
        assert run(["consume", "form", "--from", "earliest", "-e", "-f", template, "--null", "~"]) == 0
        assert capsysbinary.readouterr().out == expected
    for words in (["-f", "%x"], ["-f", "50%"], ["-f", "k v"], ["-f", "%k", "--json"], ["-f", "%k", "-k", ":"]):
        assert run(["consume", "form", *words]) == 2
        assert b"--" in capsysbinary.readouterr().err


def test_the_cluster(cli: Commands) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        shown = cli.json("cluster", "-b", cluster.bootstrap_servers)
        assert {f"{each['host']}:{each['port']}" for each in shown["brokers"]} == set(cluster.bootstrap_servers.split(","))
        assert shown["cluster_id"] and shown["controller"] in [each["id"] for each in shown["brokers"]]
        table = cli("cluster", "-b", cluster.bootstrap_servers)
        assert shown["cluster_id"] in table and all(str(each["port"]) in table for each in shown["brokers"])
