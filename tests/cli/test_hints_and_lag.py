"""What may have been meant by a name that the cluster does not know; `groups lag`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, OffsetAndMetadata, TopicPartition, errors
from kafkacore.cli import groups, hints
from kafkacore.testing import EmbeddedCluster
from tests.kit.commands import Commands
from tests.kit.rows import each_row

pytestmark = pytest.mark.usefixtures("at")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.create_topic("orders.v1", partitions=2)
        started.create_topic("pay", partitions=1)
        started.produce("orders.v1", [("k", f"v{n}") for n in range(10)])
        yield started


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
def test_what_may_have_been_meant(words: str, hint: str, tmp_path: Path, cli: Commands) -> None:
    (tmp_path / "f.csv").write_text("a\n1\n")
    arguments = words.replace("FILE", str(tmp_path / "f.csv")).split() if "'" not in words else ["query", words.split("'")[1]]
    more = ["-X", "allow.auto.create.topics=false"] if words.startswith("produce") else []
    cli(*arguments, *more, status=1)
    said = cli.err
    assert said.rstrip().endswith(hint or "]") and said.count("did you mean") == ("did you mean" in hint), said


def test_a_setting_that_brokers_keep_and_do_not_know(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    for whose in (["--broker-defaults"], ["--broker", "1"], ["--broker", "1", "--dry-run"]):
        cli("configs", "set", "log.retention.hour=1", "log.cleaner.threads=2", *whose)
        warning = "brokers keep log.retention.hour, and have no setting of that name; did you mean log.retention.hours?"
        said = [line for line in cli.err.splitlines() if "no effect here" not in line]  # the broker's own log
        assert said == [f"kafkacore: warning: {warning}"]
        cli("configs", "unset", "log.retention.hour", "log.cleaner.threads", *whose)
        assert "brokers keep" not in cli.err


def test_a_setting_that_is_unset_and_unknown(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    cli("configs", "unset", "retentionms", "cleanup.policy", "--topic", "pay", "--topic", "orders.v1")
    said = [line for line in cli.err.splitlines() if "warning" in line]
    what = "has no setting retentionms; did you mean retention.ms?"
    assert said == [f"kafkacore: warning: topic {topic} {what}" for topic in ("pay", "orders.v1")]
    cli("configs", "unset", "log.cleaner.threads", "--broker-defaults")
    assert "warning" not in cli.err
    cli("configs", "unset", "log.retention.hour", "--broker", "1")
    warning = "kafkacore: warning: broker 1 has no setting log.retention.hour; did you mean log.retention.hours?"
    assert warning in cli.err


def test_a_cluster_that_does_not_answer_costs_no_more(monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    monkeypatch.setattr(KafkaAdminClient, "list_topics", lambda *_, **__: (_ for _ in ()).throw(errors.KafkaTimeoutError("late")))
    cli("consume", "order.v1", "-e", status=1)
    said = cli.err
    assert said.count("\n") == 1 and "did you mean" not in said
    hints.begin()
    assert hints.hint(errors.UnknownTopicOrPartition("gone", topic="order.v1")) == ""  # nobody was asked yet


# ---- groups lag


def commit_offsets(at: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_group_offsets(group, {TopicPartition(*tp): OffsetAndMetadata(n) for tp, n in offsets.items()}).check()


def table_rows(text: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in text.splitlines()]
    return [row for row in rows if len(row) > 4]


def test_lag_of_groups(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    (used,) = {record.partition for record in cluster.records("orders.v1")}
    commit_offsets(at, "slow", {("orders.v1", used): 4, ("orders.v1", 1 - used): 0, ("pay", 0): 0})
    commit_offsets(at, "fast", {("orders.v1", used): 10})
    slow, fast = map(json.loads, cli("groups", "lag", "slow", "fast", "--json").splitlines())
    assert (slow["group"], slow["lag"], fast["group"], fast["lag"]) == ("slow", 6, "fast", 0)
    assert {"topic": "orders.v1", "partition": used, "committed": 4, "end": 10, "lag": 6} in slow["partitions"]
    assert len(slow["partitions"]) == 3
    found = table_rows(cli("groups", "lag"))
    assert found[0] == ["group", "topic", "partition", "committed", "end", "lag"]
    assert ["slow", "orders.v1", str(used), "4", "10", "6"] in found and ["slow", "in all", "", "", "", "6"] in found


def test_a_group_that_is_not_there_has_no_lag(cluster: EmbeddedCluster, at: str, monkeypatch: pytest.MonkeyPatch, cli: Commands) -> None:
    commit_offsets(at, "there", {("pay", 0): 0})
    cli("groups", "lag", "nowhere", status=1)
    out, err = cli.out, cli.err
    assert out == "" and err.count("nowhere") == 1 and "GROUP_ID_NOT_FOUND" in err
    cli("groups", "lag", "there", "nowhere", "--json", status=1)
    out, err = cli.out, cli.err
    assert [json.loads(line)["group"] for line in out.splitlines()] == ["there"] and "GROUP_ID_NOT_FOUND" in err

    def pause(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(groups, "pause", pause)
    cli("groups", "lag", "nowhere", "--watch", "1", status=130)  # it may come
    assert "warning: nowhere: GROUP_ID_NOT_FOUND" in cli.err


def test_lag_is_watched_until_ctrl_c_and_over_failures(
    cluster: EmbeddedCluster, at: str, monkeypatch: pytest.MonkeyPatch, cli: Commands
) -> None:
    cluster.create_topic("watched", partitions=1)
    commit_offsets(at, "watcher", {("watched", 0): 0})
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
    cli("groups", "lag", "watcher", "--watch", "2.5", status=130)
    out, err = cli.out, cli.err
    assert [row for row in table_rows(out) if "watched" in row] == [
        ["watcher", "watched", "0", "0", "0", "0"],
        ["watcher", "watched", "0", "0", "4", "4", "+4"],
    ]
    assert err == "kafkacore: warning: nobody answers\n"
