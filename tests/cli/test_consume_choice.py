"""`kafkacore consume`: where it ends, which records it prints, and values that a schema registry describes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest

from kafkacore import KafkaProducer
from kafkacore.cli.app import run
from kafkacore.decode.registry import prefix_of
from kafkacore.testing import EmbeddedCluster
from tests.kit.groups import committed_offsets
from tests.kit.rows import each_row

MAY_MS = 1_777_593_600_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.create_topic("t", partitions=2)
        with KafkaProducer(bootstrap_servers=started.bootstrap_servers) as producer:
            for n in range(10):
                value = json.dumps({"n": n, "name": "é" if n == 7 else "a"}, ensure_ascii=False) if n % 3 else f"plain {n}"
                how: dict[str, Any] = {"partition": n % 2, "timestamp_ms": MAY_MS + n * 1_000, "headers": [("h", b"%d" % n)]}
                producer.send("t", value, key=f"k{n % 4}", **how).result(30)
        yield started


@pytest.fixture
def consume(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str], str]]:
    def call(*words: str) -> tuple[int, list[str], str]:
        capsys.readouterr()
        status = run(["consume", *words, "-b", cluster.bootstrap_servers])
        out, err = capsys.readouterr()
        return status, sorted(out.splitlines()), err

    return call


NUMBERS = ["-f", "%p:%o\\n", "--from", "earliest"]


@each_row("group", [False, True])
@each_row(
    ("to", "offsets"),
    [
        ("2", "0:0 0:1 1:0 1:1"),
        ("99", "0:0 0:1 0:2 0:3 0:4 1:0 1:1 1:2 1:3 1:4"),
        ("latest", "0:0 0:1 0:2 0:3 0:4 1:0 1:1 1:2 1:3 1:4"),
        ("earliest", ""),
        ("-2", "0:0 0:1 0:2 1:0 1:1 1:2"),
        (f"@{MAY_MS + 4_000}", "0:0 0:1 1:0 1:1"),
        ("@2027-01-01", "0:0 0:1 0:2 0:3 0:4 1:0 1:1 1:2 1:3 1:4"),
    ],
)
def test_where_it_ends(cluster: EmbeddedCluster, consume: Any, to: str, offsets: str, group: bool) -> None:
    name = f"to{to}".replace("@", "-")
    status, out, _ = consume("t", *NUMBERS, "--to", to, *(["--group", name] if group else []))
    assert (status, out) == (0, offsets.split())
    if group:
        behind = {p: sum(each.startswith(f"{p}:") for each in out) for p in (0, 1)}
        assert {p: n for p, n in committed_offsets(cluster.bootstrap_servers, name).items() if n} == {p: n for p, n in behind.items() if n}


@each_row("words", [["-e"], ["--to", "3"], ["-e", "--json"]])
def test_an_end_without_a_beginning_says_that_nothing_is_read(consume: Any, words: list[str]) -> None:
    status, out, err = consume("t", *words)
    assert (status, out) == (0, []) and "--from earliest reads what is there" in err
    for more in (["--from", "earliest"], ["-X", "auto.offset.reset=earliest"]):
        status, out, err = consume("t", *words, *more)
        assert status == 0 and out and "--from" not in err


WANTED = [
    (["--key", "k1"], [1, 5, 9]),
    (["--key", "k"], []),
    (["--grep", "^plain [36]"], [3, 6]),
    (["--grep", "k3|é"], [3, 7]),
    (["--grep", "\\d\\d"], []),
    (["--filter", "json->>'name' = 'a'"], [1, 2, 4, 5, 8]),
    (["--filter", "(json->>'n')::int > 5 and _partition = 1"], [7]),
    (["--filter", "_timestamp < '2026-05-01 00:00:02'"], [0, 1]),
    (["--filter", "value like 'plain%' or _key = 'k0'"], [0, 3, 4, 6, 8, 9]),
    (["--filter", "_headers['h'] = '4' or _offset = 4 -- a comment"], [4, 8, 9]),
    (["--key", "k1", "--filter", "json is null", "--grep", "9"], [9]),
]


@each_row("group", [False, True])
@each_row(("words", "numbers"), WANTED)
def test_which_records_are_printed(cluster: EmbeddedCluster, consume: Any, words: list[str], numbers: list[int], group: bool) -> None:
    name = f"which{WANTED.index((words, numbers))}"
    status, out, err = consume("t", "-f", "%h\\n", "--from", "earliest", "-e", *words, *(["-g", name] if group else []))
    assert (status, out) == (0, [f"h={n}" for n in numbers]), err
    assert err.startswith(f"{len(numbers)} record")
    if group:
        assert committed_offsets(cluster.bootstrap_servers, name) == {0: 5, 1: 5}  # what was looked at and not wanted is done with


def test_a_member_commits_no_record_that_it_did_not_look_at(cluster: EmbeddedCluster, consume: Any) -> None:
    seen: list[str] = []
    for _ in range(3):
        status, out, _ = consume("t", "-f", "%h\\n", "--from", "earliest", "-e", "-g", "two", "-n", "2", "--filter", "json is not null")
        assert status == 0
        seen += out
    assert sorted(seen) == [f"h={n}" for n in (1, 2, 4, 5, 7, 8)]


@each_row(
    ("words", "says"),
    [
        (["--to", "5", "-e"], "--to"),
        (["--to", "soon"], "--to"),
        (["--grep", "("], "is no regular expression"),
        (["--filter", "bogus = 1"], 'column "bogus" not found'),
        (["--filter", "true; drop table x"], "--filter"),
        (["--filter", "exists (select * from read_csv('/etc/passwd'))"], "Cannot access file"),
        (["--filter", "("], "syntax error"),
        (["--value-format", "avro"], "--registry"),
        (["--registry", "http://127.0.0.1:1"], "--registry"),
        (["--registry", "http://127.0.0.1:1", "--value-format", "xml"], "--value-format"),
        (["--on-error", "null"], "--on-error"),
        (["--on-error", "x"], "--on-error"),
        (["--registry", "nowhere", "--value-format", "avro"], "--registry must be like https://host:8081"),
    ],
)
def test_what_cannot_be_is_one_line(consume: Any, words: list[str], says: str) -> None:
    end = [] if "--to" in words else ["-e"]
    status, out, err = consume("t", "--from", "earliest", *end, *words)
    assert (status, out, err.count("\n")) == (2, [], 1) and says in err, err


def test_an_expression_that_fails_says_so(consume: Any) -> None:
    status, out, err = consume("t", "--from", "earliest", "-e", "-p", "0", "--filter", "value::int > 0")
    assert (status, out, err.count("\n")) == (1, [], 1) and "--filter: Conversion Error" in err


# ---- schema registries

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "double"]}, {"name": "raw", "type": "bytes"}],
}


def avro(number: int, schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, value)
    return prefix_of(number) + data.getvalue()


def test_avro_of_keys_and_values(cluster: EmbeddedCluster, consume: Any, registry_server: Any) -> None:
    key, first = registry_server.add("avro-key", '"string"'), registry_server.add("avro-value", json.dumps(FLIGHT))
    later = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "int"}]}
    second = registry_server.add("avro-value", json.dumps(later))
    cluster.create_topic("avro", partitions=1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        row = {"carrier": "UA", "delay": 1.5, "raw": b"\x00"}
        for data in (avro(first, FLIGHT, row), avro(second, later, {**row, "delay": None, "gate": 7}), None, b"{}"):
            producer.send("avro", data, key=avro(key, "string", "é")).result(30)
    how = ["avro", "--from", "earliest", "--registry", registry_server.url, "--key-format", "avro", "--value-format", "avro"]
    lines = ['{"carrier":"UA","delay":1.5,"raw":"AA=="}', '{"carrier":"UA","delay":null,"raw":"AA==","gate":7}']
    status, out, err = consume(*how, "--to", "2", "-k", " ")
    assert (status, out) == (0, [f'"é" {line}' for line in lines]), err
    status, out, err = consume(*how, "--to", "3", "--json")
    assert status == 0, err
    found = [json.loads(line) for line in out]
    assert [(each["key"], each["value"]) for each in found] == [("é", json.loads(lines[0])), ("é", json.loads(lines[1])), ("é", None)]
    assert [each["offset"] for each in found] == [0, 1, 2]
    assert consume(*how, "-e", "--on-error", "skip", "--filter", "(json->>'gate')::int = 7")[:2] == (0, [lines[1]])
    status, out, err = consume(*how, "-e", "--on-error", "null", "--null", "NIL")
    assert (status, out) == (0, sorted([*lines, "NIL", "NIL"])) and "1 record could not be decoded" in err
    status, out, err = consume(*how, "-e", "-g", "avro-readers")
    assert (status, out) == (1, [*lines, ""][:0] or sorted([*lines, ""]))
    assert "the value cannot be decoded: not in the schema registry's wire format" in err and "partition 0, offset 3" in err
    assert committed_offsets(cluster.bootstrap_servers, "avro-readers") == {0: 3}  # it is the next one to read


def test_protobuf_and_json(cluster: EmbeddedCluster, consume: Any, registry_server: Any) -> None:
    import base64

    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="f.proto", syntax="proto3")
    message = file.message_type.add(name="Flight")
    message.field.add(name="carrier", number=1, type=9, label=1)
    proto = registry_server.add("proto-value", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    plain = registry_server.add("json-value", '{"type": "object"}', "JSON")
    for topic, value in (("proto", prefix_of(proto) + b"\x00\x0a\x02UA"), ("json", prefix_of(plain) + b'{"carrier": "UA"}')):
        cluster.create_topic(topic, partitions=1)
        cluster.produce(topic, [value])
        form = {"proto": "protobuf"}.get(topic, topic)
        status, out, err = consume(topic, "--from", "earliest", "-e", "--registry", registry_server.url, "--value-format", form)
        assert (status, out) == (0, ['{"carrier":"UA"}']), err
    cluster.produce("json", [prefix_of(plain) + b"{"])
    status, out, err = consume("json", "--from", "earliest", "-e", "--registry", registry_server.url, "--value-format", "json")
    assert status == 1 and out == ['{"carrier":"UA"}'] and "not JSON" in err and "1 record printed before" in err


def test_a_registry_that_does_not_know_a_schema_is_an_error(cluster: EmbeddedCluster, consume: Any, registry_server: Any) -> None:
    cluster.create_topic("unknown", partitions=1)
    cluster.produce("unknown", [prefix_of(4711) + b"x"])
    how = ["--registry", registry_server.url, "--value-format", "json", "-g", "unknown-readers"]
    status, out, err = consume("unknown", "--from", "earliest", "-e", *how)
    assert (status, out) == (1, []) and "4711" in err and "partition 0, offset 0" in err
    assert not any(committed_offsets(cluster.bootstrap_servers, "unknown-readers").values())


def test_a_replay_takes_headers(cluster: EmbeddedCluster, consume: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("again", partitions=1)
    _, out, _ = consume("t", "--from", "earliest", "--to", "1", "--json")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(out).encode())))
    assert run(["produce", "again", "--format", "json", "-H", "replayed=1", "-H", "h=2", "-b", cluster.bootstrap_servers]) == 0
    assert sorted(r.headers for r in cluster.records("again")) == [
        (("h", b"0"), ("replayed", b"1"), ("h", b"2")),
        (("h", b"1"), ("replayed", b"1"), ("h", b"2")),
    ]
