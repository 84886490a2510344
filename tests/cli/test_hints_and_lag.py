"""What may have been meant by a name that the cluster does not know; `groups lag`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, OffsetAndMetadata, TopicPartition, errors
from kafkacore.cli import groups, hints
from kafkacore.cli.app import run
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.create_topic("orders.v1", partitions=2)
        started.create_topic("pay", partitions=1)
        started.produce("orders.v1", [("k", f"v{n}") for n in range(10)])
        yield started


@pytest.fixture(autouse=True)
def at(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KAFKACORE_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    return cluster.bootstrap_servers


@each_row(
    ("words", "hint"),
    [
        ("topics delete order.v1 -y", "; did you mean orders.v1?"),
        ("topics describe ORDERS-V1", "; did you mean orders.v1?"),
        ("topics describe order.v1 payy", "; did you mean orders.v1 for order.v1, pay for payy?"),
        ("topics describe xyzzy", ""),
        ("topics offsets order.v1", "; did you mean orders.v1?"),
        ("topics alter order.v1 --partitions 9", "; did you mean orders.v1?"),
        ("consume order.v1 -e", "; did you mean orders.v1?"),
        ("consume order.v1 -e -X max.poll.records=5", "; did you mean orders.v1?"),
        ("produce order.v1 FILE -X max.block.ms=200", "; did you mean orders.v1?"),
        ("load FILE order.v1 -X max.block.ms=200", "; did you mean orders.v1?"),
        ("query 'select * from payy'", "; did you mean pay?"),
        ("perf consume order.v1 -n 1", "; did you mean orders.v1?"),
        ("consume orders.v1:1 -e", "; the topic is orders.v1, and --partition 1 says which partition, where a command takes one"),
        ("configs set retentionms=1 --topic pay", "; did you mean retention.ms?"),
        ("topics create new -c cleanup_policy=compact", "; did you mean cleanup.policy?"),
        ("topics create new -c nonsense=1", ""),
    ],
)
def test_what_may_have_been_meant(words: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    arguments = words.replace("FILE", str(tmp_path / "f.csv")).split() if "'" not in words else ["query", words.split("'")[1]]
    more = ["-X", "allow.auto.create.topics=false"] if words.startswith("produce") else []
    assert run([*arguments, *more]) == 1
    said = capsys.readouterr().err
    assert said.rstrip().endswith(hint or "]") and said.count("did you mean") == ("did you mean" in hint), said


def test_a_setting_that_brokers_keep_and_do_not_know(cluster: EmbeddedCluster, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    for whose in (["--broker-defaults"], ["--broker", "1"], ["--broker", "1", "--dry-run"]):
        assert run(["configs", "set", "log.retention.hour=1", "log.cleaner.threads=2", *whose]) == 0
        warning = "brokers keep log.retention.hour, and have no setting of that name; did you mean log.retention.hours?"
        said = [line for line in capsys.readouterr().err.splitlines() if "no effect here" not in line]  # the broker's own log
        assert said == [f"kafkacore: warning: {warning}"]
        assert run(["configs", "unset", "log.retention.hour", "log.cleaner.threads", *whose]) == 0
        assert "brokers keep" not in capsys.readouterr().err


def test_a_setting_that_is_unset_and_unknown(cluster: EmbeddedCluster, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["configs", "unset", "retentionms", "cleanup.policy", "--topic", "pay", "--topic", "orders.v1"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    what = "has no setting retentionms; did you mean retention.ms?"
    assert said == [f"kafkacore: warning: topic {topic} {what}" for topic in ("pay", "orders.v1")]
    assert run(["configs", "unset", "log.cleaner.threads", "--broker-defaults"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run(["configs", "unset", "log.retention.hour", "--broker", "1"]) == 0
    warning = "kafkacore: warning: broker 1 has no setting log.retention.hour; did you mean log.retention.hours?"
    assert warning in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_costs_no_more(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(KafkaAdminClient, "list_topics", lambda *_, **__: (_ for _ in ()).throw(errors.KafkaTimeoutError("late")))
    assert run(["consume", "order.v1", "-e"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "did you mean" not in said
    hints.begin()
    assert hints.hint(errors.UnknownTopicOrPartition("gone", topic="order.v1")) == ""  # nobody was asked yet


# ---- groups lag


def commit(at: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_group_offsets(group, {TopicPartition(*tp): OffsetAndMetadata(n) for tp, n in offsets.items()}).check()


def lines(text: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in text.splitlines()]
    return [row for row in rows if len(row) > 4]


def test_lag_of_groups(cluster: EmbeddedCluster, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    (used,) = {record.partition for record in cluster.records("orders.v1")}
    commit(at, "slow", {("orders.v1", used): 4, ("orders.v1", 1 - used): 0, ("pay", 0): 0})
    commit(at, "fast", {("orders.v1", used): 10})
    capsys.readouterr()
    assert run(["groups", "lag", "slow", "fast", "--json"]) == 0
    slow, fast = map(json.loads, capsys.readouterr().out.splitlines())
    assert (slow["group"], slow["lag"], fast["group"], fast["lag"]) == ("slow", 6, "fast", 0)
    assert {"topic": "orders.v1", "partition": used, "committed": 4, "end": 10, "lag": 6} in slow["partitions"]
    assert len(slow["partitions"]) == 3
    assert run(["groups", "lag"]) == 0
    found = lines(capsys.readouterr().out)
    assert found[0] == ["group", "topic", "partition", "committed", "end", "lag"]
    assert ["slow", "orders.v1", str(used), "4", "10", "6"] in found and ["slow", "in all", "", "", "", "6"] in found


def test_a_group_that_is_not_there_has_no_lag(
    cluster: EmbeddedCluster, at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(at, "there", {("pay", 0): 0})
    capsys.readouterr()
    assert run(["groups", "lag", "nowhere"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("nowhere") == 1 and "GROUP_ID_NOT_FOUND" in err
    assert run(["groups", "lag", "there", "nowhere", "--json"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["group"] for line in out.splitlines()] == ["there"] and "GROUP_ID_NOT_FOUND" in err

    def pause(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(groups, "pause", pause)
    assert run(["groups", "lag", "nowhere", "--watch", "1"]) == 130  # it may come
    assert "warning: nowhere: GROUP_ID_NOT_FOUND" in capsys.readouterr().err


def test_lag_is_watched_until_ctrl_c_and_over_failures(
    cluster: EmbeddedCluster, at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("watched", partitions=1)
    commit(at, "watcher", {("watched", 0): 0})
    rounds = 0
    real = KafkaAdminClient.list_groups_offsets

    def asked(admin: Any, *arguments: Any, **how: Any) -> Any:
        if rounds == 1:
            raise errors.KafkaTimeoutError("nobody answers")
        return real(admin, *arguments, **how)

    def pause(seconds: float) -> None:
        nonlocal rounds
        assert seconds == 2.5
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt
        cluster.produce("watched", ["a", "b"])

    monkeypatch.setattr(KafkaAdminClient, "list_groups_offsets", asked)
    monkeypatch.setattr(groups, "pause", pause)
    assert run(["groups", "lag", "watcher", "--watch", "2.5"]) == 130
    out, err = capsys.readouterr()
    assert [row for row in lines(out) if "watched" in row] == [
        ["watcher", "watched", "0", "0", "0", "0"],
        ["watcher", "watched", "0", "0", "4", "4", "+4"],
    ]
    assert err == "kafkacore: warning: nobody answers\n"
