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
from tests.kit.rows import each_row
from tests.kit.wire import Wire

GROUP, TOPIC, ID = Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNKNOWN = Code.UNKNOWN_TOPIC_OR_PARTITION
NAMES = [f"{'own' if nth % 2 else 'other'}-{nth}" for nth in range(4_000)]


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


def expected(allowed: int = 0, refused: int = TOPIC) -> dict[str, int]:
    return {name: allowed if name.startswith("own") else refused for name in NAMES}


def by_topic(answer: Any) -> dict[str, int]:
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def requests_of_thousands() -> Iterator[tuple[Any, int, Any, Any]]:
    """A request and its version, what is looked at in the answer, and what that must be."""

    def topics(kind: Any, *partitions: Any, field: str = "partitions") -> list[Any]:
        return [kind(name=name, **{field: [*partitions]}) for name in NAMES]

    def named(items: str, name: str) -> Any:
        return lambda answer: {getattr(each, name): each.error_code for each in getattr(answer, items)}

    fetched = topics(p.OffsetFetchRequestTopic, 0, field="partition_indexes")
    yield p.OffsetFetchRequest(group_id="own", topics=fetched), 7, by_topic, expected()
    yield p.OffsetFetchRequest(group_id="other", topics=fetched), 7, lambda answer: answer.error_code, GROUP
    part = p.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    commit = topics(p.OffsetCommitRequestTopic, part)
    yield p.OffsetCommitRequest(group_id="own", topics=commit), 9, by_topic, expected(UNKNOWN)
    yield p.OffsetCommitRequest(group_id="other", topics=commit), 9, by_topic, expected(GROUP, GROUP)
    delete = topics(p.OffsetDeleteRequestTopic, p.OffsetDeleteRequestPartition(partition_index=0))
    yield p.OffsetDeleteRequest(group_id="own", topics=delete), 0, by_topic, expected(UNKNOWN)
    yield p.OffsetDeleteRequest(group_id="other", topics=delete), 0, lambda answer: (answer.error_code, answer.topics), (GROUP, [])
    offset = topics(p.TxnOffsetCommitRequestTopic, p.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1))
    for transactional_id, group, codes in (("own", "own", (UNKNOWN, TOPIC)), ("own", "other", (GROUP, GROUP)), ("other", "own", (ID, ID))):
        ids = {"transactional_id": transactional_id, "group_id": group, "producer_id": 1, "producer_epoch": 0}
        yield p.TxnOffsetCommitRequest(**ids, topics=offset), 3, by_topic, expected(*codes)
    absent = expected(Code.GROUP_ID_NOT_FOUND, GROUP)
    yield p.DescribeGroupsRequest(groups=NAMES), 6, named("groups", "group_id"), absent
    yield p.ConsumerGroupDescribeRequest(group_ids=NAMES), 1, named("groups", "group_id"), absent
    yield p.DeleteGroupsRequest(groups_names=NAMES), 2, named("results", "group_id"), absent
    yield p.FindCoordinatorRequest(coordinator_keys=NAMES), 6, named("coordinators", "key"), expected(0, GROUP)
    states = named("transaction_states", "transactional_id")
    yield p.DescribeTransactionsRequest(transactional_ids=NAMES), 0, states, expected(Code.TRANSACTIONAL_ID_NOT_FOUND, ID)


@each_row(("request_", "version", "seen", "wanted"), requests_of_thousands)
def test_thousands_in_a_request(wire: Wire, request_: Any, version: int, seen: Any, wanted: Any) -> None:
    assert seen(wire.ask(request_, version)) == wanted


def test_thousands_of_topics_in_an_offset_fetch_of_several_groups(wire: Wire) -> None:
    topics = [p.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in NAMES[:600]]
    groups = [p.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in ("own-1", "other-1", "own-2", "other-2")]
    answer = wire.ask(p.OffsetFetchRequest(groups=groups), 9).groups
    assert [(group.group_id, group.error_code) for group in answer] == [("own-1", 0), ("other-1", GROUP), ("own-2", 0), ("other-2", GROUP)]
    few = {name: code for name, code in expected().items() if name in NAMES[:600]}
    assert [by_topic(group) for group in answer] == [few, {}] * 2


def test_who_may_not_have_a_coordinator_makes_none() -> None:
    with EmbeddedCluster(users={"admin": "a", "alice": "b"}, super_users=["admin"]) as running:
        with Wire(running.bootstrap_servers) as wire:
            wire.log_in(PlainClient("alice", "b"))
            for key_type in (0, 1):
                [found] = wire.ask(p.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4).coordinators
                assert found.error_code == (GROUP, ID)[key_type]
            request = p.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g")
            assert wire.ask(request, 3).error_code == ID
        with KafkaAdminClient(**running.client_settings("admin")) as admin:
            assert admin.list_topics(include_internal=True) == []


def test_thousands_of_topics_are_described(wire: Wire) -> None:
    wanted = [p.DescribeTopicPartitionsTopicRequest(name=name) for name in [*NAMES, "own-t", "other-t"]]
    found = wire.ask(p.DescribeTopicPartitionsRequest(topics=wanted), 0).topics
    assert {topic.name: topic.error_code for topic in found} == expected(UNKNOWN) | {"own-t": 0, "other-t": TOPIC}
    refused = [topic for topic in found if topic.error_code == TOPIC]
    assert found[-len(refused) :] == refused  # last, and without operations, ids or partitions
    assert not any(any(topic.topic_id) or topic.partitions or topic.topic_authorized_operations > 0 for topic in refused)
