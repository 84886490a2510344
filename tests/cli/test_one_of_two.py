"""Commands about several of a thing, one of which fails: the other is done or shown, stderr names the one that failed, the status is 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore import protocol as p
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import Code
from kafkacore.records import BatchBuilder
from kafkacore.testing import EmbeddedCluster
from tests.kit.clusters import embedded
from tests.kit.commands import Commands
from tests.kit.waiting import until

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
cluster = embedded(
    {"good": [[b"a", b"b"], [b"c", b"d"]]}, config={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
)


@contextmanager
def with_answers(cluster: EmbeddedCluster, api: str, answer: Callable[[Any], Any]) -> Iterator[None]:
    """The broker's answers to an API are these."""
    cluster.control(api, answer)
    try:
        yield
    finally:
        cluster.control(api, None)


def denied_first(request: Any) -> tuple[Any, dict[int, int]]:
    """The topic of a request, and a code for each of its partitions: 0 is denied."""
    (topic,) = request.topics
    return topic, {each.partition_index: 0 if each.partition_index else DENIED for each in topic.partitions}


def one_end(request: p.ListOffsetsRequest) -> p.ListOffsetsResponse:
    topic, codes = denied_first(request)
    parts = [p.ListOffsetsPartitionResponse(partition_index=n, error_code=code, offset=2) for n, code in codes.items()]
    return p.ListOffsetsResponse(topics=[p.ListOffsetsTopicResponse(name=topic.name, partitions=parts)])


def commit_ones(at: str, group: str, *topics: str) -> None:
    with KafkaAdminClient(bootstrap_servers=at) as admin:
        admin.alter_group_offsets(group, {(topic, partition): 1 for topic in topics for partition in (0, 1)}).check()


def test_topics_are_altered(at: str, cli: Commands) -> None:
    found = cli.json("topics", "alter", "none", "good", "-c", "retention.ms=5000", "-p", "2", status=1)
    assert "topic none" in cli.err and "INVALID_PARTITIONS" in cli.err  # as many as it has
    assert found["altered"] == [] and list(found["failed"]) == ["none", "good"]
    cli("topics", "alter", "none", "good", "-c", "retention.ms=6000", status=1)
    assert cli.out == "altered good\n" and "[topic none" in cli.err and "good" not in cli.err
    assert cli.json("topics", "describe", "good", "--configs")["good"]["configs"]["retention.ms"]["value"] == "6000"


def test_offsets_of_partitions_are_shown(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    with with_answers(cluster, "ListOffsets", one_end):
        cli("topics", "offsets", "good", status=1)
        assert cli.out == "good:1:2\n" and "good-0: TOPIC_AUTHORIZATION_FAILED" in cli.err
        (found,) = cli.json("topics", "offsets", "good", status=1)
    assert (found["partition"], found["offset"]) == (1, 2) and cli.err.count("\n") == 1


def test_partitions_are_trimmed(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    def answer(request: p.DeleteRecordsRequest) -> p.DeleteRecordsResponse:
        topic, codes = denied_first(request)
        parts = [p.DeleteRecordsPartitionResult(partition_index=n, low_watermark=1, error_code=code) for n, code in codes.items()]
        return p.DeleteRecordsResponse(topics=[p.DeleteRecordsTopicResult(name=topic.name, partitions=parts)])

    with with_answers(cluster, "DeleteRecords", answer):
        cli("topics", "trim", "good", "--to", "1", "-y", status=1)
        assert cli.out.endswith("deleted up to 1 record of good\n") and cli.err.startswith("kafkacore: good-0: TOPIC_AUTHORIZATION_FAILED")
        found = cli.json("topics", "trim", "good", "--to", "1", "-y", status=1)
    assert [each["partition"] for each in found["trimmed"]] == [1] and [each["partition"] for each in found["failed"]] == [0]


def test_offsets_of_a_group_are_moved(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    commit_ones(at, "moved", "good")

    def answer(request: p.OffsetCommitRequest) -> p.OffsetCommitResponse:
        topic, codes = denied_first(request)
        parts = [p.OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in codes.items()]
        return p.OffsetCommitResponse(topics=[p.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)])

    with with_answers(cluster, "OffsetCommit", answer):
        found = cli.json("groups", "reset", "moved", "--to", "latest", "--execute", status=1)
        assert found == [{"topic": "good", "partition": 1, "offset": 2}] and "good-0: TOPIC_AUTHORIZATION_FAILED" in cli.err
        cli("groups", "reset", "moved", "--to", "latest", "--execute", status=1)
        rows = [line.split() for line in cli.out.splitlines() if "good" in line]
        assert [row[3] for row in rows] == ["1"]


def test_offsets_of_a_group_are_forgotten(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    """Those of a topic that a member reads stay."""
    cluster.create_topic("read", partitions=2)
    commit_ones(at, "forgets", "good", "read")
    with KafkaConsumer(bootstrap_servers=at, group_id="forgets", enable_auto_commit=False) as member:
        member.subscribe(["read"])
        until(member.assignment, "it is a member", member)
        found = cli.json("groups", "delete-offsets", "forgets", "read:0", "good", "-y", status=1)
        assert [each["topic"] for each in found["failed"]] == ["read"] and "read-0: GROUP_SUBSCRIBED_TO_TOPIC" in cli.err
        assert [(each["topic"], each["partition"]) for each in found["deleted"]] == [("good", 0), ("good", 1)]
        left = cli.json("groups", "describe", "forgets")["forgets"]["offsets"]
    assert [(each["topic"], each["committed"]) for each in left] == [("read", 1), ("read", 1)]


def test_groups_are_described_and_their_lag_shown(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    for group in ("denied", "seen"):
        commit_ones(at, group, "good")

    def answer(request: p.OffsetFetchRequest) -> p.OffsetFetchResponse:
        parts = [p.OffsetFetchResponsePartitions(partition_index=n, committed_offset=1, error_code=DENIED if n else 0) for n in (0, 1)]
        topics = [p.OffsetFetchResponseTopics(name="good", partitions=parts)]
        groups = {"denied": {"topics": [], "error_code": Code.GROUP_AUTHORIZATION_FAILED}, "seen": {"topics": topics}}
        return p.OffsetFetchResponse(groups=[p.OffsetFetchResponseGroup(group_id=e.group_id, **groups[e.group_id]) for e in request.groups])

    with with_answers(cluster, "OffsetFetch", answer):
        found = cli.json("groups", "describe", "denied", "seen", status=1)
        assert {name: [row["committed"] for row in each["offsets"]] for name, each in found.items()} == {"denied": [], "seen": [1]}
        assert "denied: GROUP_AUTHORIZATION_FAILED" in cli.err and "seen, good-1: TOPIC_AUTHORIZATION_FAILED" in cli.err
        shown = cli.json("groups", "lag", "denied", "seen", status=1)
        assert (shown["group"], [(each["partition"], each["lag"]) for each in shown["partitions"]]) == ("seen", [(0, 1)])
        assert "denied: GROUP_AUTHORIZATION_FAILED" in cli.err and "seen, good-1: " in cli.err


def test_a_lag_that_is_not_known_is_not_left_out_without_a_word(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    commit_ones(at, "behind", "good")
    with with_answers(cluster, "ListOffsets", one_end):
        shown = cli.json("groups", "lag", "behind", status=1)
        assert [(each["partition"], each["lag"]) for each in shown["partitions"]] == [(1, 1)] and "partition good-0: TOPIC_AUTH" in cli.err
        rows = cli.json("groups", "describe", "behind", status=1)["behind"]["offsets"]
    assert [each["lag"] for each in rows] == [None, 1] and "partition good-0: TOPIC_AUTH" in cli.err


def test_transactions_are_described_and_looked_for(at: str, cli: Commands) -> None:
    with KafkaProducer(bootstrap_servers=at, transactional_id="writer") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("good", b"x", partition=1).result(30)
            assert list(cli.json("transactions", "describe", "nobody", "writer", status=1)) == ["writer"] and "nobody" in cli.err
            cli("transactions", "describe", "nobody", "writer", status=1)
            assert "writer" in cli.out and cli.err.count("\n") == 1
            (row,) = cli.json("transactions", "open", "none", "good", status=1)
            assert (row["topic"], row["partition"]) == ("good", 1) and "topic none" in cli.err
            cli("transactions", "open", "none", "good", status=1)
            assert "writer" in cli.out


def test_access_is_taken_away(cluster: EmbeddedCluster, at: str, cli: Commands) -> None:
    for topic in ("good", "bad"):
        cli("acls", "add", "--allow-principal", "User:a", "--operation", "read", "--topic", topic)

    def answer(request: p.DeleteAclsRequest) -> p.DeleteAclsResponse:
        acl = p.DeleteAclsMatchingAcl(
            resource_type=2, resource_name="good", pattern_type=3, principal="User:a", host="*", operation=3, permission_type=3
        )
        results = [
            p.DeleteAclsFilterResult(error_code=Code.INVALID_REQUEST, error_message="no", matching_acls=[])
            if each.resource_name_filter == "bad"
            else p.DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[acl])
            for each in request.filters
        ]
        return p.DeleteAclsResponse(filter_results=results)

    words = ["acls", "remove", "--allow-principal", "User:a", "--topic", "bad", "--topic", "good", "-y"]
    with with_answers(cluster, "DeleteAcls", answer):
        found = cli.json(*words, status=1)
        assert [each["resource_name"] for each in found["removed"]] == ["good"] and [each["resource_name"] for each in found["failed"]] == [
            "bad"
        ]
        cli(*words, status=1)
        assert cli.out.startswith("removed 1 entry\n") and "resource_name bad" in cli.err and "good" not in cli.err


def test_files_are_sent_and_shown(at: str, tmp_path: Path, cli: Commands) -> None:
    (tmp_path / "one").write_text('{"value": "a"}\n{"value": "b"}\n')
    (tmp_path / "two").write_text('{"value": "c"}\n{"value": 3}\n')
    cli("topics", "create", "sent")
    cli("produce", "sent", "--format", "json", str(tmp_path / "one"), str(tmp_path / "two"), status=1)
    said = cli.err.splitlines()[-1]
    assert f"{tmp_path / 'two'}, line 2: value is 3" in said and said.endswith("; 3 records delivered before")
    builder = BatchBuilder()
    assert builder.append(b"v")
    (tmp_path / "a.log").write_bytes(bytes(builder.build()))
    (tmp_path / "b.log").write_bytes(b"This is a text, not a log.")
    words = ["dump-log", "--json", str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    assert "b.log is not a Kafka log segment" in cli.fails(*words)
    assert json.loads(cli.out)["file"] == str(tmp_path / "a.log")


def test_topics_are_read_all_or_not(at: str, cli: Commands) -> None:
    cli("topics", "create", "one-partition")
    for more, said in ((["none"], "topic none"), (["one-partition", "-p", "1"], "topic one-partition has no partition 1")):
        assert said in cli.fails("consume", "good", *more, "--from", "earliest", "-e")
        assert cli.out == ""
