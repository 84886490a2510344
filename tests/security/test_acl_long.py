"""Long requests of which a half is refused: they are carried out in parts, and answered as the same in small requests would be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkacore import KafkaAdminClient
from kafkacore import protocol as p
from kafkacore.admin import Acl
from kafkacore.errors import Code
from kafkacore.net.sasl import PlainClient
from kafkacore.testing import EmbeddedCluster
from tests.kit.wire import Wire

COUNT = 4_000
GROUP, TOPIC = Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(users={"admin": "a", "alice": "b"}, super_users=["admin"]) as running:
        with KafkaAdminClient(**running.client_settings("admin")) as admin:
            operations = ("read", "delete")
            admin.create_acls(
                [Acl("topic", "own-", "User:alice", each, pattern_type="prefixed") for each in operations]
                + [Acl("group", "own", "User:alice", each, pattern_type="prefixed") for each in operations]
                + [Acl("transactional_id", "own", "User:alice", "write", pattern_type="prefixed")]
            ).check()
        for name in ("own-t", "other-t"):
            running.create_topic(name)
        yield running


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap_servers, timeout_s=60) as connection:
        connection.log_in(PlainClient("alice", "b"))
        for key_type, key in ((0, "own"), (1, "own")):
            assert connection.ask(p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4).coordinators[0].error_code == 0
        yield connection


def half_of_each(count: int = COUNT) -> list[str]:
    return [f"{'own' if nth % 2 else 'other'}-{nth}" for nth in range(count)]


def expected_codes(count: int = COUNT, allowed: int = 0) -> dict[str, int]:
    return {name: allowed if name.startswith("own") else TOPIC for name in half_of_each(count)}


def test_thousands_of_topics_in_an_offset_fetch(wire: Wire) -> None:
    wanted = [p.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in half_of_each()]
    found = wire.ask(p.OffsetFetchRequest(group_id="own", topics=wanted), 7)
    assert (found.error_code, len(found.topics)) == (0, COUNT)
    assert {topic.name: topic.partitions[0].error_code for topic in found.topics} == expected_codes()
    assert wire.ask(p.OffsetFetchRequest(group_id="other", topics=wanted), 7).error_code == GROUP


def test_thousands_of_topics_in_an_offset_fetch_of_several_groups(wire: Wire) -> None:
    topics = [p.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in half_of_each(600)]
    groups = [p.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in ("own-1", "other-1", "own-2", "other-2")]
    answer = wire.ask(p.OffsetFetchRequest(groups=groups), 9).groups
    assert [(group.group_id, group.error_code, len(group.topics)) for group in answer] == [
        ("own-1", 0, 600),
        ("other-1", GROUP, 0),
        ("own-2", 0, 600),
        ("other-2", GROUP, 0),
    ]
    for group in answer[::2]:
        assert {topic.name: topic.partitions[0].error_code for topic in group.topics} == expected_codes(600)


@pytest.mark.parametrize(("group", "allowed"), [("own", Code.UNKNOWN_TOPIC_OR_PARTITION), ("other", GROUP)])
def test_thousands_of_topics_in_a_commit(wire: Wire, group: str, allowed: int) -> None:
    part = [p.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [p.OffsetCommitRequestTopic(name=name, partitions=part) for name in half_of_each()]
    found = wire.ask(p.OffsetCommitRequest(group_id=group, topics=topics), 9).topics
    wanted = expected_codes(allowed=allowed) if group == "own" else dict.fromkeys(half_of_each(), GROUP)
    assert {topic.name: topic.partitions[0].error_code for topic in found} == wanted


@pytest.mark.parametrize("group", ["own", "other"])
def test_thousands_of_topics_in_an_offset_delete(wire: Wire, group: str) -> None:
    part = [p.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [p.OffsetDeleteRequestTopic(name=name, partitions=part) for name in half_of_each()]
    answer = wire.ask(p.OffsetDeleteRequest(group_id=group, topics=topics), 0)
    if group == "other":
        assert (answer.error_code, answer.topics) == (GROUP, [])
    else:
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == expected_codes(
            allowed=Code.UNKNOWN_TOPIC_OR_PARTITION
        )


def test_thousands_of_offsets_in_a_transaction(wire: Wire) -> None:
    part = [p.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [p.TxnOffsetCommitRequestTopic(name=name, partitions=part) for name in half_of_each()]
    for transactional_id, group, wanted in (
        ("own", "own", expected_codes(allowed=Code.UNKNOWN_TOPIC_OR_PARTITION)),
        ("own", "other", dict.fromkeys(half_of_each(), GROUP)),
        ("other", "own", dict.fromkeys(half_of_each(), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)),
    ):
        request = p.TxnOffsetCommitRequest(
            transactional_id=transactional_id, group_id=group, producer_id=1, producer_epoch=0, topics=topics
        )
        assert {topic.name: topic.partitions[0].error_code for topic in wire.ask(request, 3).topics} == wanted


def test_thousands_of_groups_and_ids(wire: Wire) -> None:
    def codes(found: list[Any], field: str) -> dict[str, int]:
        return {getattr(each, field): each.error_code for each in found}

    halves = {name: int(GROUP) if name.startswith("other") else 0 for name in half_of_each()}
    described = codes(wire.ask(p.DescribeGroupsRequest(groups=half_of_each()), 6).groups, "group_id")
    assert described == {name: code or Code.GROUP_ID_NOT_FOUND for name, code in halves.items()}
    described = codes(wire.ask(p.ConsumerGroupDescribeRequest(group_ids=half_of_each()), 1).groups, "group_id")
    assert described == {name: code or Code.GROUP_ID_NOT_FOUND for name, code in halves.items()}
    deleted = codes(wire.ask(p.DeleteGroupsRequest(groups_names=half_of_each()), 2).results, "group_id")
    assert deleted == {name: code or Code.GROUP_ID_NOT_FOUND for name, code in halves.items()}
    assert codes(wire.ask(p.FindCoordinatorRequest(coordinator_keys=half_of_each()), 6).coordinators, "key") == halves
    states = codes(wire.ask(p.DescribeTransactionsRequest(transactional_ids=half_of_each()), 0).transaction_states, "transactional_id")
    refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert states == {name: refused if code else Code.TRANSACTIONAL_ID_NOT_FOUND for name, code in halves.items()}


def test_who_may_not_have_a_coordinator_makes_none() -> None:
    with EmbeddedCluster(users={"admin": "a", "alice": "b"}, super_users=["admin"]) as running:
        with Wire(running.bootstrap_servers) as wire:
            wire.log_in(PlainClient("alice", "b"))
            for key_type in (0, 1):
                [found] = wire.ask(p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4).coordinators
                assert found.error_code == (GROUP, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)[key_type]
            request = p.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")
            assert wire.ask(request, 3).error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        with KafkaAdminClient(**running.client_settings("admin")) as admin:
            assert admin.list_topics(include_internal=True) == []


def test_thousands_of_topics_are_described(wire: Wire) -> None:
    wanted = [p.DescribeTopicPartitionsTopicRequest(name=name) for name in [*half_of_each(), "own-t", "other-t"]]
    found = wire.ask(p.DescribeTopicPartitionsRequest(topics=wanted), 0).topics
    codes = expected_codes(allowed=Code.UNKNOWN_TOPIC_OR_PARTITION) | {"own-t": 0, "other-t": TOPIC}
    assert {topic.name: topic.error_code for topic in found} == codes
    refused = [topic for topic in found if topic.error_code == TOPIC]
    assert found[-len(refused) :] == refused  # last, and without operations, ids or partitions
    assert not any(any(topic.topic_id) or topic.partitions or topic.topic_authorized_operations > 0 for topic in refused)
