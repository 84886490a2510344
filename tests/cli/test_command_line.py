"""The command line against an embedded broker: output for people and for machines, and one line for every failure."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, TopicPartition, protocol
from kafkacore.cli import transactions
from kafkacore.cli.app import run
from kafkacore.config_security import sasl_listener
from kafkacore.errors import Code, KafkaError
from kafkacore.testing import EmbeddedCluster
from tests.kit.free_ports import free_port
from tests.kit.rows import each_row


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def at(servers: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster, known to every command through the environment."""
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", servers)
    return servers


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a failed command leaves on stderr."""
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kafkacore: "), lines
    return lines[0]


@each_row(
    "command",
    [
        *("", "topics", "topics create", "topics alter", "groups", "groups reset", "produce", "consume", "cluster"),
        *("broker", "dump-log", "demo", "perf", "perf timers", "perf produce", "perf consume"),
        *("pipeline", "pipeline init", "pipeline run", "pipeline dry-run", "pipeline status"),
    ],
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage:" in shown
    assert re.search(r"--help +-h +Show this", shown)  # with no type: it takes no value


def test_topics_from_birth_to_death(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-a", "cli-b", "--partitions", "3"]) == 0
    assert run(["topics", "list", "--json"]) == 0
    assert {"cli-a", "cli-b"} <= set(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert run(["topics", "describe", "cli-a", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["cli-a"]
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all(p["first_offset"] == p["end_offset"] == 0 for p in described["partitions"])
    assert run(["topics", "describe", "cli-a"]) == 0
    assert "leader" in capsys.readouterr().out
    assert run(["topics", "create", "cli-a"]) == 1
    assert "cli-a" in failure(capsys)
    assert run(["topics", "delete", "cli-none"]) == 1  # without a question
    assert "cli-none" in failure(capsys)
    assert run(["topics", "delete", "cli-a", "cli-b", "--yes"]) == 0
    assert run(["topics", "describe", "cli-a"]) == 1
    capsys.readouterr()
    assert run(["topics", "list", "--json"]) == 0
    assert not {"cli-a", "cli-b"} & set(json.loads(capsys.readouterr().out))


def test_offsets_of_a_topic_by_time(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-offsets", "-p", "3"]) == 0
    with KafkaProducer(bootstrap_servers=at) as producer:
        for partition, count in ((0, 5), (2, 2)):
            for n in range(count):
                producer.send("cli-offsets", b"v", partition=partition, timestamp_ms=1_000 + n)
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.delete_records({TopicPartition("cli-offsets", 0): 3}).check()
    capsys.readouterr()
    for words, expected in (
        ([], "0:5 1:0 2:2"),
        (["--time", "-1"], "0:5 1:0 2:2"),
        (["--time", "-2"], "0:3 1:0 2:0"),
        (["--time", "earliest", "-p", "0,2"], "0:3 2:0"),
        (["--time", "-3", "--partitions", "0-1"], "0:4 1:-1"),
        (["--time", "1001"], "0:3 1:-1 2:1"),
    ):
        assert run(["topics", "offsets", "cli-offsets", *words]) == 0
        assert capsys.readouterr().out.split() == [f"cli-offsets:{each}" for each in expected.split()]
    assert run(["topics", "offsets", "cli-offsets", "--time", "1004", "-p", "0", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in ("topic", "partition", "offset", "timestamp_ms")} == {
        "topic": "cli-offsets",
        "partition": 0,
        "offset": 4,
        "timestamp_ms": 1004,
    }
    for words, status, text in (
        (["cli-none"], 1, "cli-none"),
        (["cli-offsets", "-p", "1,3,7"], 1, "no partition 3, 7: it has 0 to 2"),
        (["cli-offsets", "-p", "one"], 2, "0,2,5-7"),
        (["cli-offsets", "--time", "yesterday"], 2, "yesterday"),
        (["cli-offsets", "--time", "-4"], 2, "-4"),
    ):
        assert run(["topics", "offsets", *words]) == status
        assert text in failure(capsys)


def test_settings_of_topics(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-s", "-c", "retention.ms=5000"]) == 0
    assert run(["topics", "alter", "cli-s", "-c", "max.message.bytes=2000", "--delete-config", "retention.ms", "-p", "2"]) == 0
    assert capsys.readouterr().out.endswith("altered cli-s\n")
    assert run(["topics", "describe", "cli-s", "--configs", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["cli-s"]
    assert len(described["partitions"]) == 2
    assert described["configs"]["max.message.bytes"] == {"value": "2000", "source": "topic"}
    assert described["configs"]["retention.ms"] == {"value": "604800000", "source": "default"}
    assert run(["topics", "describe", "cli-s", "--configs"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("max.message.bytes") < shown.index("cleanup.policy")  # what was set comes first
    assert run(["topics", "alter", "cli-s", "-c", "retention.ms=soon"]) == 1
    assert "cli-s" in failure(capsys)
    assert run(["topics", "alter", "cli-s"]) == 2
    assert "nothing to change" in failure(capsys)
    assert run(["topics", "delete", "cli-s", "-y"]) == 0


def test_groups_from_birth_to_death(at: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["topics", "create", "cli-g", "-p", "2"]) == 0
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%d\n" % i for i in range(10)))
    assert run(["produce", "cli-g", str(lines)]) == 0
    assert run(["groups", "reset", "gg", "cli-g", "--to", "latest", "--execute"]) == 0
    capsys.readouterr()

    def offsets() -> dict[int, int]:
        assert run(["groups", "describe", "gg", "--json"]) == 0
        described = json.loads(capsys.readouterr().out)["gg"]
        assert (described["state"], described["members"]) == ("Empty", [])
        ends = {each["partition"]: each["end"] for each in described["offsets"]}
        assert sum(ends.values()) == 10
        return {each["partition"]: each["committed"] - ends[each["partition"]] for each in described["offsets"]}

    assert offsets() == {0: 0, 1: 0}
    assert run(["groups", "reset", "gg", "--by", "-1", "--execute"]) == 0
    assert "cli-g" in capsys.readouterr().out
    assert all(each >= -1 for each in offsets().values()) and -1 in offsets().values()
    assert run(["groups", "reset", "gg", "cli-g", "--to", "0", "--json"]) == 0
    assert {each["offset"] for each in json.loads(capsys.readouterr().out)} == {0}
    assert -1 in offsets().values()  # nothing was changed
    assert run(["groups", "reset", "gg", "--to", "earliest", "--execute"]) == 0
    assert run(["groups", "reset", "gg", "--to", "@0", "--execute"]) == 0
    capsys.readouterr()
    assert sum(offsets().values()) == -10
    assert run(["groups", "describe", "gg"]) == 0
    assert "Empty" in capsys.readouterr().out
    assert run(["groups", "list", "--json"]) == 0
    assert "gg" in {each["group_id"] for each in json.loads(capsys.readouterr().out)}
    assert run(["groups", "list", "--state", "Stable", "--json"]) == 0
    assert "gg" not in {each["group_id"] for each in json.loads(capsys.readouterr().out)}
    for wrong, status in (
        (["reset", "gg"], 2),
        (["reset", "gg", "--to", "0", "--by", "1"], 2),
        (["reset", "gg", "--to", "soon"], 2),
        (["reset", "none", "--by", "1"], 1),
        (["reset", "none", "cli-g", "--by", "1"], 1),
        (["describe", "none"], 1),
        (["delete", "none"], 1),
    ):
        assert run(["groups", *wrong]) == status, wrong
        assert failure(capsys)
    assert run(["groups", "delete", "gg", "-y"]) == 0
    assert run(["groups", "describe", "gg"]) == 1
    assert run(["topics", "delete", "cli-g", "-y"]) == 0


def test_lines_of_files_come_back(at: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = [b"key-%d|line %d" % (i % 5, i) for i in range(5000)]
    (tmp_path / "first").write_bytes(b"\n".join(lines[:3000]) + b"\n")
    (tmp_path / "second").write_bytes(b"\n".join(lines[3000:]))  # no newline at its end
    files = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert run(["topics", "create", "cli-lines", "-p", "2"]) == 0
    assert run(["produce", "cli-lines", *files, "-k", "|", "-c", "lz4", "--json"]) == 0
    summary = json.loads(capfdbinary.readouterr().out.splitlines()[-1])
    assert summary["records"] == 5000 and summary["bytes"] == sum(map(len, lines)) + 4999
    assert run(["consume", "cli-lines", "--from", "earliest", "--exit-at-end", "-k", "|"]) == 0
    got = capfdbinary.readouterr().out.splitlines()
    assert sorted(got) == sorted(lines)
    for key in range(5):  # order holds within a key
        mine = [line for line in lines if line.startswith(b"key-%d|" % key)]
        assert [line for line in got if line.startswith(b"key-%d|" % key)] == mine


def test_each_file_is_a_transaction(at: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "whole").write_bytes(b"a|1\nb|2\n")
    (tmp_path / "broken").write_bytes(b"c|3\n" + b"d|4\n" * 500_000 + b"no separator\n")
    assert run(["topics", "create", "cli-tx", "-p", "1"]) == 0
    command = ["produce", "cli-tx", "-k", "|", "--transactional-id", "cli"]
    capfdbinary.readouterr()
    assert run([*command, str(tmp_path / "whole"), "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out.splitlines()[-1])["transactions"] == 1
    assert run([*command, str(tmp_path / "whole"), str(tmp_path / "broken")]) == 1
    capfdbinary.readouterr()
    reading = ["consume", "cli-tx", "--from", "earliest", "--exit-at-end", "-k", "|"]
    assert run([*reading, "--isolation", "read_committed"]) == 0
    assert capfdbinary.readouterr().out.splitlines() == [b"a|1", b"b|2"] * 2
    assert run([*reading, "--isolation", "read_uncommitted"]) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) > 4
    assert run([*reading, "--isolation", "serializable"]) == 2


def test_transactions_are_listed_described_and_aborted(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-open", "-p", "2"]) == 0
    with KafkaProducer(bootstrap_servers=at, transactional_id="cli-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("cli-open", b"x", partition=1).result(30)
        producer_id = producer.statistics()["transactions"]["producer_id"]
        capsys.readouterr()
        assert run(["transactions", "list", "--state", "Ongoing", "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [(each["transactional_id"], each["producer_id"]) for each in listed] == [("cli-writer", producer_id)]
        assert run(["transactions", "describe", "cli-writer", "--json"]) == 0
        described = json.loads(capsys.readouterr().out)["cli-writer"]
        assert described["state"] == "Ongoing" and described["open_for_ms"] >= 0 and described["timeout_ms"] == 60_000
        assert described["partitions"] == [{"topic": "cli-open", "partition": 1}]
        assert run(["transactions", "open", "cli-open", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["partition"], row["first_offset"], row["transactional_id"]) == (1, 0, "cli-writer")
        assert row["notes"] == ["holds readers back"]
        for command in (["list"], ["describe", "cli-writer"], ["open", "cli-open"]):
            assert run(["transactions", *command]) == 0
            assert "cli-" in capsys.readouterr().out
        assert run(["transactions", "abort", "cli-open", "0", str(producer_id), "-y"]) == 1
        assert "no open transaction" in failure(capsys)
        assert run(["transactions", "abort", "cli-open", "1", str(producer_id), "-y"]) == 1
        assert "nothing was done: cli-open-1: the coordinator knows this transaction, so it does not hang" in failure(capsys)
        assert run(["transactions", "open", "cli-open", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [row]
        assert run(["transactions", "abort", "cli-open", "1", str(producer_id), "--force"]) == 0
        capsys.readouterr()
        assert run(["transactions", "open", "cli-open", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == []
    assert run(["transactions", "describe", "nobody"]) == 1
    assert "nobody" in failure(capsys)


def test_a_transaction_that_hangs_is_marked(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its partition has it open, and its coordinator has ended it."""
    with KafkaProducer(bootstrap_servers=at, transactional_id="cli-hanging") as producer, KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic("cli-hang", 1, 1)]).check()
        producer.init_transactions()
        with producer.transaction():
            producer.send("cli-hang", b"x", partition=0).result(30)
            tp = TopicPartition("cli-hang", 0)
            (writer,) = admin.describe_producers([tp])[tp]
            real = admin.list_transactions
            rows = transactions._open_in(admin, ["cli-hang"])
            assert rows[0]["notes"] == ["holds readers back"]
            admin.list_transactions = lambda **options: [  # type: ignore[method-assign]
                each for each in real(**options) if each.producer_id != writer.producer_id
            ]
            rows = transactions._open_in(admin, ["cli-hang"])
    assert rows[0]["notes"] == ["holds readers back", "hangs"]
    assert rows[0]["transactional_id"] is None


def test_standard_input(at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n\nfour\n")))
    assert run(["produce", "cli-stdin", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 4


def test_json_loses_nothing(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    with KafkaProducer(bootstrap_servers=at) as producer:
        producer.send("cli-json", b"\xff\xfe", key="ключ", headers=[("h", None)], timestamp_ms=1_700_000_000_000)
        producer.send("cli-json", None, key=b"gone", timestamp_ms=1_700_000_000_001)
    assert run(["consume", "cli-json", "--from", "earliest", "-n", "2", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["key"], first["value_base64"], first["timestamp_ms"]) == ("ключ", "//4=", 1_700_000_000_000)
    assert first["headers"] == [{"name": "h", "value": None}]
    assert (second["key"], second["value"], second["offset"]) == ("gone", None, 1)


def test_from_an_offset_and_no_more_than_asked(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    with KafkaProducer(bootstrap_servers=at) as producer:
        for i in range(100):
            producer.send("cli-offset", b"%d" % i)
    assert run(["consume", "cli-offset", "--from", "40", "-n", "5", "--json"]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [40, 41, 42, 43, 44]


def test_an_offset_that_a_partition_does_not_hold_is_its_nearest_and_told(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-short", "-p", "4"]) == 0
    with KafkaProducer(bootstrap_servers=at) as producer, KafkaAdminClient(bootstrap_servers=at) as admin:
        for partition, count in ((0, 8), (1, 3), (2, 9)):
            producer.send_many("cli-short", [b"%d" % i for i in range(count)], partitions=[partition] * count).result(60)
        admin.delete_records({TopicPartition("cli-short", 2): 7}).check()
    capsys.readouterr()

    def read(start: str, *more: str) -> tuple[dict[int, list[int]], str]:
        assert run(["consume", "cli-short", "--from", start, "--json", "-e", *more]) == 0
        shown = capsys.readouterr()
        offsets: dict[int, list[int]] = {}
        for record in map(json.loads, shown.out.splitlines()):
            offsets.setdefault(record["partition"], []).append(record["offset"])
        return offsets, shown.err

    offsets, told = read("5")
    assert offsets == {0: [5, 6, 7], 2: [7, 8]}
    assert told == (
        "kafkacore: cli-short has no offset 5 everywhere: partition 1 holds 0 to 2 and is read from 3 on;"
        " partition 2 holds 7 to 8 and is read from 7 on; partition 3 is empty and is read from 0 on\n"
    )
    assert read("5", "-p", "0") == ({0: [5, 6, 7]}, "")
    assert read("99999999999999999999", "-p", "0")[0] == {}
    assert read("8", "-p", "0") == ({}, "")  # the end is a place to read from


@each_row(
    ("command", "status", "words"),
    [
        (["consume", "t", "--from", "tomorrow"], 2, "earliest, latest, an offset, -N or @TIME"),
        (["consume", "t", "--format", "xml"], 2, "raw, json or a text"),
        (["produce", "t", "no-such-file"], 1, "no-such-file"),
        (["produce", "t", "-X", "lingerms=3"], 2, "linger"),
        (["produce", "t", "-X", "nonsense"], 2, "KEY=VALUE"),
        (["produce", "t", "-c", "rar"], 2, "rar"),
        (["topics", "list", "-b", "no-port:x"], 2, "no-port"),
        (["dump-log", "no-such-file"], 1, "no-such-file"),
        (["dump-log", "00000000000000000000.index"], 1, "00000000000000000000.index"),
        (["dump-log", "a.index"], 2, "the name of an index is the offset"),
        (["dump-log", "00000000000000000000.snapshot"], 2, "is a snapshot of producers; what can be shown is .log"),
        (["dump-log", "00000000000000000000.txnindex"], 2, "is an index of aborted transactions"),
        (["frobnicate"], 2, "frobnicate"),
        (["broker", "-p", "65535", "--brokers", "2"], 2, "above 65535"),
    ],
)
def test_bad_input_is_one_clear_line(at: str, capsys: pytest.CaptureFixture[str], command: list[str], status: int, words: str) -> None:
    assert run(command) == status
    assert words in failure(capsys)


def test_what_is_not_there_is_named_at_once(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["consume"], ["perf", "consume"], ["perf", "consume", "-g", "g"], ["topics", "describe"]):
        assert run([*command, "cli-never-made"]) == 1
        assert "There is no such topic (yet). [topic cli-never-made" in failure(capsys)
    assert run(["topics", "create", "cli-two", "-p", "2"]) == 0
    capsys.readouterr()
    assert run(["consume", "cli-two", "-p", "7"]) == 1
    assert "no partition 7, only 0 to 1" in failure(capsys)
    assert run(["topics", "create", "cli-one"]) == 0
    capsys.readouterr()
    assert run(["consume", "cli-one", "-p", "7"]) == 1
    assert failure(capsys).endswith("no partition 7, only 0")


def test_one_record_is_one_record(at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "line").write_bytes(b"a\n")
    assert run(["produce", "cli-single", str(tmp_path / "line")]) == 0
    assert capsys.readouterr().err.startswith("1 record, 2 bytes to cli-single in ")
    assert run(["consume", "cli-single", "--from", "earliest", "-e"]) == 0
    assert capsys.readouterr().err == "1 record of cli-single\n"
    assert run(["consume", "cli-single", "--from", "earliest", "-e", "-g", "cli-single"]) == 0
    assert capsys.readouterr().err == "1 record of cli-single, committed for group cli-single\n"
    assert run(["perf", "produce", "cli-single", "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 record, 100 bytes in ") and "(1 sample), ms" in shown


def test_a_line_without_its_separator_is_named(at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b"a|1\nb|2\nno separator\n")
    assert run(["produce", "cli-separator", str(tmp_path / "lines"), "-k", "|"]) == 1
    assert "line 3" in failure(capsys)


NOWHERE = [
    ["topics", "list", "-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"],
    ["topics", "describe", "t", "-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"],
    ["consume", "t", "-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"],
    ["produce", "t", "FILE", "-X", "max.block.ms=300"],
]


@pytest.mark.parametrize("command", NOWHERE, ids=" ".join)
def test_nobody_there_is_told_at_once_and_is_the_reason_in_the_end(
    capsys: pytest.CaptureFixture[str], command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "line").write_text("x")
    assert run([str(tmp_path / "line") if word == "FILE" else word for word in command] + ["-b", "127.0.0.1:1"]) == 1
    warning, failed = capsys.readouterr().err.splitlines()
    assert warning == "kafkacore: warning: connection to 127.0.0.1:1 failed: Connection refused; trying again"
    assert failed.removesuffix("; 0 records delivered before") == "kafkacore: no broker at 127.0.0.1:1 (Connection refused)"


@pytest.mark.parametrize(
    "command", [["cluster"], ["acls", "add", "--operation", "read", "--topic", "t", "--allow-principal", "a"]], ids=lambda words: words[0]
)
def test_no_controller_is_there(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    soon = ["-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"]
    for option, what in (("--bootstrap-controller", "controller"), ("--bootstrap-server", "broker")):
        assert run([*command, option, "127.0.0.1:1", *soon]) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"kafkacore: no {what} at 127.0.0.1:1 (Connection refused)"


@pytest.mark.parametrize("command", NOWHERE, ids=" ".join)
def test_a_name_that_no_name_server_knows_fails_at_once(
    capsys: pytest.CaptureFixture[str], command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "line").write_text("x")

    def unknown(host: str, *more: object, **how: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert run([str(tmp_path / "line") if word == "FILE" else word for word in command] + ["-b", "slip,of.the.pen:1"]) == 1
    assert failure(capsys) == (
        "kafkacore: cannot resolve host 'slip': Name or service not known; cannot resolve host 'of.the.pen': Name or service not known"
    )


def test_a_name_server_that_is_away_may_come_back(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(host: str, *more: object, **how: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    assert run(["topics", "list", "-X", "default.api.timeout.ms=300", "-b", "host"]) == 1
    assert "trying again" in capsys.readouterr().err


def test_a_broker_that_refuses_for_long_is_told_once_and_before_the_end(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacore.producer.retry_log.PATIENCE_MS", 200)
    (tmp_path / "lines").write_bytes(b"x\n" * 10)

    def full(request: protocol.ProduceRequest) -> protocol.ProduceResponse:
        (topic,) = request.topic_data
        refused = [
            protocol.PartitionProduceResponse(index=part.index, error_code=Code.KAFKA_STORAGE_ERROR, error_message="No space left")
            for part in topic.partition_data
        ]
        answer = protocol.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=refused)
        return protocol.ProduceResponse(responses=[answer])

    with EmbeddedCluster() as cluster:
        cluster.create_topic("cli-full")
        cluster.control("Produce", full)
        slow = ["-X", "delivery.timeout.ms=900", "-X", "request.timeout.ms=800", "-X", "retry.backoff.max.ms=100"]
        assert run(["produce", "cli-full", str(tmp_path / "lines"), "-b", cluster.bootstrap_servers, *slow]) == 1
    lines = capsys.readouterr().err.splitlines()
    waiting = [line for line in lines if "wait and are retried" in line]
    assert len(waiting) == 1 and lines[0] == waiting[0], lines
    assert re.match(r"kafkacore: warning: records for cli-full-0 .* KAFKA_STORAGE_ERROR \(56\): No space left \[.*broker 1", lines[0])
    assert lines[-1].startswith("kafkacore: 10 of the last 10 records were not delivered") and "No space left" in lines[-1]


def test_secrets_by_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLI_PASSWORD", "hush-and-hidden")
    (tmp_path / "password").write_text("hush-and-hidden\n")
    with EmbeddedCluster(config=sasl_listener({"alice": "hush-and-hidden"})) as cluster:
        command = ["topics", "list", "-b", cluster.bootstrap_servers, "-X", "security.protocol=SASL_PLAINTEXT"]
        command += ["-X", "sasl.mechanism=PLAIN", "-X", "default.api.timeout.ms=5000"]

        def listed(*settings: str) -> int:
            return run([*command, *(word for setting in settings for word in ("-X", setting))])

        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password='secret://env/CLI_PASSWORD';"
        assert listed("sasl.username=alice", "sasl.password=secret://env/CLI_PASSWORD") == 0
        assert listed("sasl.username=alice", f"sasl_password=secret://file{tmp_path}/password") == 0
        assert listed(f"sasl_jaas_config={jaas}") == 0
        capsys.readouterr()
        assert listed("sasl.username=bob", "sasl.password=secret://env/CLI_PASSWORD") == 1
        assert "bob" in (told := capsys.readouterr().err) and "hush" not in told
    for setting, why in (
        ("sasl.password=secret://env/CLI_NOWHERE", "the environment variable CLI_NOWHERE is not set"),
        ("sasl.username=secret://env/CLI_PASSWORD", "messages may show this one"),
        ("acks=secret://env/CLI_PASSWORD", "messages may show this one"),
    ):
        assert listed(setting) == 2
        assert why in (told := failure(capsys)) and "hush" not in told


def test_dump_log_shows_batches_and_refuses_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kafkacore.records import BatchBuilder

    builder = BatchBuilder(compression="zstd", producer_id=7, producer_epoch=1, base_sequence=0)
    for i in range(3):
        assert builder.append(b"value %d" % i, key=b"k", timestamp_ms=1_700_000_000_000)
    segment = bytes(builder.build())
    (tmp_path / "ok.log").write_bytes(segment)
    assert run(["dump-log", str(tmp_path / "ok.log"), "--records", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["records"], shown["compression"], shown["producer_id"]) == (3, "zstd", 7)
    assert [r["value"] for r in shown["content"]] == ["value 0", "value 1", "value 2"]
    assert run(["dump-log", str(tmp_path / "ok.log")]) == 0
    assert "zstd" in capsys.readouterr().out
    (tmp_path / "bad.log").write_bytes(segment[:-1] + bytes([segment[-1] ^ 1]))
    assert run(["dump-log", str(tmp_path / "bad.log"), "--json"]) == 1
    assert "bad.log" in failure(capsys)
    (tmp_path / "notes.txt").write_text("This is a text, not a log.")
    assert run(["dump-log", str(tmp_path / "notes.txt")]) == 1
    assert failure(capsys).endswith("notes.txt is not a Kafka log segment (unknown magic 110 at position 0)")


def test_dump_log_shows_the_entries_of_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.create_topic("t", configs={"index.interval.bytes": "1", "segment.bytes": "1048576"})
        for i in range(8):
            producer.send("t", bytes(200_000), timestamp_ms=1_700_000_000_000 + i).result(60)
    segments = sorted((tmp_path / "broker-1" / "t-0").glob("*.log"))
    assert len(segments) > 1
    shown = {}
    for suffix in (".log", ".index", ".timeindex"):
        assert run(["dump-log", "--json", *(str(each.with_suffix(suffix)) for each in segments)]) == 0
        shown[suffix] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    there = {(str(Path(each["file"]).stem), each["last_offset"], each["position"]) for each in shown[".log"]}
    indexed = {(str(Path(each["file"]).stem), each["offset"], each["position"]) for each in shown[".index"]}
    assert indexed == {each for each in there if each[2]}  # all but the first batch of each segment
    newest = {(each["last_offset"], each["max_timestamp_ms"]) for each in shown[".log"]}
    times = {(each["offset"], each["timestamp_ms"]) for each in shown[".timeindex"]}
    assert len(times) >= len(indexed) and times <= newest

    index = segments[1].with_suffix(".timeindex")
    index.write_bytes(index.read_bytes() + bytes(120))  # as a running Kafka leaves it
    assert run(["dump-log", str(index)]) == 0
    heading, columns, *lines = capsys.readouterr().out.splitlines()
    assert (heading, columns.split()) == (str(index), ["timestamp_ms", "offset"])
    assert [line.split()[:2] for line in lines] == [
        [str(each["timestamp_ms"]), str(each["offset"])] for each in shown[".timeindex"] if each["file"] == str(index)
    ]
    assert lines[0].endswith("Z") and "2023-11-14T22:13:20.0" in lines[0]
    for damaged in (b"\x01" * 16, index.read_bytes()[:-1]):
        index.write_bytes(damaged)
        assert run(["dump-log", str(index)]) == 1
        assert str(index) in failure(capsys)


def test_dump_log_of_records_names_no_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kafkacore.records import BatchBuilder

    builder = BatchBuilder()
    assert builder.append(b"v", timestamp_ms=1)
    (tmp_path / "a.log").write_bytes(bytes(builder.build()))
    assert run(["dump-log", str(tmp_path / "a.log"), "--records", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["content"]
    assert record == {"offset": 0, "timestamp_ms": 1, "key": None, "value": "v", "headers": []}
    assert run(["dump-log", str(tmp_path / "none.log")]) == 1
    assert "none.log" in failure(capsys)  # and no heading before it


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert run(["broker", "-p", str(port)]) == 1
        assert f"127.0.0.1:{port}: Address already in use" in failure(capsys)
        assert run(["broker", "-p", str(port - 1), "--brokers", "2", "--processes"]) == 1
        assert re.search(rf"127\.0\.0\.1:({port - 1}|{port}): Address already in use", failure(capsys))


@each_row(
    ("setting", "why"),
    [
        ("authorizer.class.name=com.example.Mine", "authorizer_class_name may be org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users=User:a", "super_users has no effect without authorizer_class_name"),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users must hold User:ANONYMOUS"),
    ],
)
def test_a_broker_that_could_not_authorize_does_not_start(capsys: pytest.CaptureFixture[str], setting: str, why: str) -> None:
    assert run(["broker", "-p", "0", "--set", setting]) == 2
    assert why in failure(capsys)


def test_a_broker_reads_kafkas_file_of_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    command = ["broker", "-p", "0", "--config", str(file)]
    assert run(command) == 2
    assert "server.properties is no file of settings" in failure(capsys)
    file.write_text("num.partitions = many\n")
    assert run(command) == 2
    assert "num_partitions must be" in failure(capsys)
    assert run([*command, "--set", "num.partitions=1", "--set", "super.users=User:a"]) == 2  # which counts more
    assert "super_users has no effect" in failure(capsys)


def test_a_broker_alone_on_the_directory_of_several_says_whose_data_it_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("broker-1", "broker-2", "broker-3", "broker-x"):
        (tmp_path / name).mkdir()
    command = ["broker", "-p", "0", "--data-dir", str(tmp_path), "--brokers", "2", "--set", "num.partitions=many"]
    assert run(command) == 2  # for the setting, so that nothing starts
    assert "broker 3, which --brokers 2 leaves out" in capsys.readouterr().err


def test_deleting_without_anybody_to_ask_says_how(at: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["topics", "create", "cli-ask"]) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    capsys.readouterr()
    assert run(["topics", "delete", "cli-ask"]) == 1
    assert "--yes" in capsys.readouterr().err
    assert run(["topics", "describe", "cli-ask", "--json"]) == 0


def test_a_group_with_members_is_not_reset(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    assert run(["topics", "create", "cli-inside"]) == 0
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": at, "group.id": "cli-members", "client.id": "somebody", "enable.auto.commit": False}
    )
    try:
        member.subscribe(["cli-inside"])
        for _ in range(100):
            member.poll(0.1)
            if member.assignment():
                break
        assert member.assignment()
        capsys.readouterr()
        assert run(["groups", "reset", "cli-members", "cli-inside", "--to", "earliest", "--execute"]) == 1
        assert "cli-members is Stable with 1 member (somebody): stop them first" in failure(capsys)
    finally:
        member.close()


@pytest.mark.slow
def test_the_demo_on_a_few_flights(at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "flights.png"
    assert run(["demo", "-b", at, "--limit", "20000", "--plot", str(plot), "--json", "--no-spark"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["records_equal"], summary["records_wrong"]) == (20_000, 0)
    assert plot.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_broker_as_a_process_of_its_own(tmp_path: Path) -> None:
    broker = subprocess.Popen([sys.executable, "-m", "kafkacore", "broker", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        address = json.loads(broker.stdout.readline())["bootstrap_servers"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        environment = {**os.environ, "KAFKACORE_BOOTSTRAP_SERVERS": address}
        command = [sys.executable, "-m", "kafkacore"]
        subprocess.run([*command, "produce", "t"], input=b"a\nb\n", env=environment, check=True, timeout=60)
        reading = [*command, "consume", "t", "--from", "earliest", "-n", "2"]
        done = subprocess.run(reading, env=environment, check=True, timeout=60, capture_output=True)
        assert sorted(done.stdout.split()) == [b"a", b"b"]
    finally:
        broker.send_signal(signal.SIGINT)
        assert broker.wait(60) == 0
        broker.stdout.close()


@pytest.mark.slow
def test_a_broker_whose_disk_fails_ends_with_one_line(tmp_path: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    command = [sys.executable, "-m", "kafkacore", "broker", "--port", "0", "--json", "--data-dir", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, preexec_fn=small_disk) as broker:  # type: ignore[call-overload]
        try:
            address = json.loads(broker.stdout.readline())["bootstrap_servers"]
            with KafkaProducer(bootstrap_servers=address, retries=0, enable_idempotence=False) as producer:
                failed = [producer.send("t", bytes(900_000), partition=0) for _ in range(3)][-1]
                with pytest.raises(KafkaError):
                    failed.result(60)
            assert broker.wait(60) == 1
            assert "the broker has stopped: all its log directories have failed" in broker.stderr.read().splitlines()[-1]
        finally:
            broker.kill()


def test_dump_log_shows_what_looks_like_markup_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kafkacore.records import BatchBuilder

    builder = BatchBuilder()
    assert builder.append(b"[red]:smile: [/nothing]", key=b"[bold]")
    (tmp_path / "a.log").write_bytes(bytes(builder.build()))
    assert run(["dump-log", str(tmp_path / "a.log"), "--records"]) == 0
    shown = capsys.readouterr().out
    assert "b'[red]:smile: [/nothing]'" in shown and "b'[bold]'" in shown


def test_names_of_others_have_no_effect_on_the_terminal(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = "g\x1b]0;PWNED\x07\x9b2J\u202e"
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic("cli-escapes", 1)]).check()
        admin.alter_group_offsets(group, {TopicPartition("cli-escapes", 0): 0}).check()
    capsys.readouterr()
    commands = [["groups", "list"], ["groups", "describe", group]]
    for command in (*commands, *([*command, "--json"] for command in commands)):
        assert run(command) == 0
        shown = capsys.readouterr()
        assert "PWNED" in shown.out
        assert not set("\x1b\x07\x9b\u202e") & set(shown.out + shown.err)
    assert run(["topics", "describe", group]) == 1
    assert "PWNED" in failure(capsys)


def test_what_worked_for_some_is_reported(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "part-a"]) == 0
    capsys.readouterr()
    assert run(["topics", "create", "part-a", "part-b"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "created part-b\n"
    assert "part-a" in shown.err and "part-b" not in shown.err
    assert run(["topics", "delete", "part-a", "part-none", "--yes", "--json"]) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["deleted"] == ["part-a"] and list(found["failed"]) == ["part-none"]
    assert "part-none" in shown.err
    assert run(["topics", "create", "part-b", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["created"] == []
    assert run(["topics", "delete", "part-b", "--yes"]) == 0


def test_offsets_are_moved_only_when_that_is_asked_for(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "cli-dry", "-p", "1"]) == 0
    capsys.readouterr()
    assert run(["groups", "reset", "cli-new", "cli-dry", "--to", "0"]) == 0
    shown = capsys.readouterr()
    assert "would be" in shown.out
    assert shown.err.splitlines() == [
        "there is no group cli-new: with these offsets there is one",
        "nothing was changed; --execute does it",
    ]
    assert run(["groups", "describe", "cli-new"]) == 1
    capsys.readouterr()
    assert run(["groups", "reset", "cli-new", "cli-dry", "--to", "0", "--execute"]) == 0
    assert capsys.readouterr().err == "there was no group cli-new: with these offsets there is one\n"
    assert run(["groups", "describe", "cli-new", "--json"]) == 0
    capsys.readouterr()
    assert run(["groups", "list", "--state", "Foo"]) == 2
    assert "'Foo' is not one of Assigning" in failure(capsys)
    assert run(["groups", "list", "--state", "empty", "--json"]) == 0
    assert "cli-new" in {each["group_id"] for each in json.loads(capsys.readouterr().out)}


def test_without_a_broker_at_the_default_address_the_command_that_starts_one_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr("kafkacore.cli.app.NOBODY_THERE", (f"127.0.0.1:{port} failed: Connection refused", f"127.0.0.1:{port} (Conn"))
    quick = ["-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"]
    assert run(["topics", "list", "-b", f"127.0.0.1:{port}", *quick]) == 1
    assert all(line.endswith("; `kafkacore broker` starts a broker there") for line in capsys.readouterr().err.splitlines())
    assert run(["topics", "list", "-b", "127.0.0.1:1", *quick]) == 1
    assert "starts a broker" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "redirected", "status", "said"),
    [
        (["topics", "list"], ">&-", 1, "standard output: Bad file descriptor"),
        (["--help"], ">&-", 1, "standard output: Bad file descriptor"),
        (["topics", "list"], ">/dev/full", 1, "No space left on device"),
        (["produce", "cli-closed"], "<&-", 1, "Bad file descriptor"),
        (["topics", "list"], "2>&-", 0, ""),
    ],
)
def test_closed_and_full_streams(at: str, words: list[str], redirected: str, status: int, said: str) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics(["cli-closed"])  # so that there is something to print
    command = f"exec {sys.executable} -m kafkacore {' '.join(words)} {redirected}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (status, bool(said))
    assert said in done.stderr


def test_records_before_a_bad_line_are_delivered_and_counted(at: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b"k|value of some length\n" * 100_000 + b"bad\n" + b"k|v\n" * 5)
    assert run(["topics", "create", "cli-before"]) == 0
    capsys.readouterr()
    assert run(["produce", "cli-before", str(tmp_path / "lines"), "-k", "|"]) == 1
    assert "line 100,001: no key separator '|' in it; 100,000 records delivered before" in failure(capsys)
    assert run(["topics", "offsets", "cli-before"]) == 0
    assert capsys.readouterr().out == "cli-before:0:100000\n"


def test_ctrl_c_says_what_was_delivered(at: str) -> None:
    """And what was typed before is delivered; no bar is drawn where lines are typed, on a terminal."""
    near, far = os.openpty()
    command = [sys.executable, "-m", "kafkacore", "produce", "cli-typed"]
    process = subprocess.Popen(command, stdin=far, stderr=far, stdout=subprocess.DEVNULL, start_new_session=True)
    os.close(far)
    shown = b""
    try:
        while b"Ctrl+D ends" not in shown:
            shown += os.read(near, 1000)
        os.write(near, b"one\ntwo\n")
        with KafkaAdminClient(bootstrap_servers=at) as admin:
            arrived, end = 0, time.monotonic() + 60
            while arrived < 2:
                assert time.monotonic() < end, shown
                found = admin.list_offsets({("cli-typed", 0): "latest"}).succeeded.values()
                arrived = max([each.offset for each in found], default=0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        while b"delivered" not in shown:
            shown += os.read(near, 1000)
    finally:
        process.kill()
        process.wait()
        os.close(near)
    assert b"each line is a record; Ctrl+D ends" in shown and b"2 records delivered to cli-typed" in shown
    assert "\u2501".encode() not in shown and b"0 records" not in shown  # the bar, and its count


def test_a_reader_of_new_records_says_that_it_waits(at: str) -> None:
    with KafkaProducer(bootstrap_servers=at) as producer:
        producer.send("cli-waits", b"old").result(30)
    command = [sys.executable, "-m", "kafkacore", "consume", "cli-waits"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == b"waiting for new records; --from earliest for those that are there\n"
    finally:
        process.kill()
        process.communicate()


def test_the_demo_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else real(name, *more))
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--limit", "200", "--no-spark"]) == 0
    shown = capsys.readouterr().out
    assert "all 200 records equal their source" in shown
    assert "no picture: it takes the package matplotlib, which is not installed" in shown
    assert run(["demo", "--limit", "200", "--plot", "p.png"]) == 1
    assert "--plot takes the package matplotlib" in failure(capsys)
    assert not [*tmp_path.iterdir()]


def test_a_dash_is_standard_input_beside_files(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic("dash", 1, 1)]).check()
    (tmp_path / "first").write_bytes(b"a\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b\nc\n")))
    assert run(["produce", "dash", "-b", at, str(tmp_path / "first"), "-"]) == 0
    capsys.readouterr()
    assert run(["consume", "dash", "-b", at, "--from", "earliest", "-n", "3"]) == 0
    assert capsys.readouterr().out.split() == ["a", "b", "c"]
    assert run(["produce", "dash", "-b", at, "-", "-"]) == 2
    assert "standard input can be read once" in failure(capsys)
