"""What Java's Admin has beside topics, groups and settings, on the embedded broker and on Apache Kafka, with the same expectations."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkacore.admin import FeatureUpdate
from tests.kit.waiting import fresh, until


def joined(bootstrap_servers: str, group: str, topic: str, **settings: object) -> KafkaConsumer:
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest", **settings)
    until(consumer.assignment, "it has joined", consumer)
    return consumer


def test_members_are_removed(admin: KafkaAdminClient, bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic, group = make_topic(), fresh("g")
    with joined(bootstrap_servers, group, topic, group_protocol="classic") as consumer:
        [member] = admin.describe_groups([group])[group].members
        results = admin.remove_group_members(group, [member.member_id, "nobody"], reason="test")
        assert list(results) == [member.member_id]
        assert {item: type(error) for item, error in results.errors.items()} == {"nobody": errors.UnknownMemberId}
        assert member.member_id not in {each.member_id for each in admin.describe_groups([group])[group].members}
        until(lambda: admin.describe_groups([group])[group].members, "a member that runs joins again", consumer)
    assert dict(admin.remove_group_members(group)) == {}


def test_static_members_are_removed_by_their_instance(
    admin: KafkaAdminClient, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, group = make_topic(), fresh("g")
    with joined(bootstrap_servers, group, topic, group_protocol="classic", group_instance_id="one", session_timeout_ms=300_000):
        pass  # a static member keeps its place when it closes
    assert [each.instance_id for each in admin.describe_groups([group])[group].members] == ["one"]
    assert dict(admin.remove_group_members(group).check()) == {"one": None}
    assert admin.describe_groups([group])[group].members == []
    with pytest.raises(errors.UnknownMemberId):
        admin.remove_group_members(group, instances=["one"]).check()


def test_offsets_of_several_groups_in_one_call(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    groups = [fresh("g") for _ in range(3)]
    for nth, group in enumerate(groups):
        admin.alter_group_offsets(group, {(topic, 0): nth}).check()
    found = admin.list_groups_offsets({groups[0]: None, groups[1]: [(topic, 0), (topic, 1)], groups[2]: None, "not there": None}).check()
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    offsets = {group: {tp: at and at.offset for tp, at in of_group.items()} for group, of_group in found.items()}
    assert offsets == {groups[0]: {zero: 0}, groups[1]: {zero: 1, one: None}, groups[2]: {zero: 2}, "not there": {}}
    assert all(not of_group.errors for of_group in found.values())


def test_topics_by_their_ids(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    until(lambda: topic in admin.describe_topics([topic]), "the brokers follow the controller")
    described = admin.describe_topics([topic])[topic]
    nobody = uuid.uuid4().bytes
    results = admin.describe_topics_by_id([described.topic_id, nobody])
    assert dict(results) == {described.topic_id: described}
    assert isinstance(results.errors[nobody], errors.UnknownTopicId)
    gone = admin.delete_topics_by_id([described.topic_id, nobody])
    assert list(gone) == [described.topic_id]
    assert isinstance(gone.errors[nobody], errors.UnknownTopicId)
    until(lambda: topic not in admin.list_topics(), "the brokers follow the controller")
    for wrong in ([b"short"], b"0123456789abcdef"):
        with pytest.raises(errors.UsageError, match="16 bytes"):
            admin.describe_topics_by_id(wrong)


def test_a_producer_is_fenced_and_its_transaction_aborted(
    admin: KafkaAdminClient, bootstrap_servers: str, make_topic: Callable[..., str]
) -> None:
    topic, name = make_topic(), fresh("t")
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never seen").result(60)
    before = admin.describe_transactions([name])[name]
    assert before.state == "Ongoing"
    fenced = admin.fence_producers([name]).check()[name]
    assert (fenced.producer_id, fenced.producer_epoch) > (before.producer_id, before.producer_epoch)
    until(lambda: admin.describe_transactions([name])[name].state in ("CompleteAbort", "Empty"), "the brokers follow the controller")
    with pytest.raises(errors.KafkaError) as refused:
        producer.commit_transaction()
    assert refused.value.fatal, refused.value
    producer.close()
    admin.force_terminate_transaction(name)


def test_a_feature_is_changed_after_a_check_only(admin: KafkaAdminClient) -> None:
    level = admin.describe_features().finalized["metadata.version"].highest
    wrong = admin.update_features({"metadata.version": 30_000}, validate_only=True)
    assert list(wrong.errors) == ["metadata.version"]
    assert admin.describe_features().finalized["metadata.version"].highest == level
    with pytest.raises(errors.UsageError):
        admin.update_features({"metadata.version": FeatureUpdate(1, "sideways")})
    assert dict(admin.update_features({})) == {}


def test_the_quorum(admin: KafkaAdminClient) -> None:
    found = admin.describe_quorum()
    assert found.leader_id in {voter.replica_id for voter in found.voters}
    assert found.leader_epoch >= 0
    assert 0 < found.high_watermark <= max(voter.log_end_offset for voter in found.voters)


def test_brokers_that_do_not_run_are_listed_on_wish(admin: KafkaAdminClient) -> None:
    found = admin.describe_cluster(include_fenced_brokers=True)
    assert found.fenced_nodes == []
    assert admin.describe_cluster().fenced_nodes is None
    assert found.nodes == admin.describe_cluster().nodes


def test_directories_of_replicas(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    broker = admin.describe_cluster().nodes[0].id
    results = admin.describe_replica_log_dirs([(topic, 0, broker), (topic, 9, broker), (topic, 0, 99)])
    place = results[topic, 0, broker]
    assert place.current in admin.describe_log_dirs([broker])[broker]
    assert (place.future, results[topic, 9, broker].current) == (None, None)
    assert isinstance(results.errors[topic, 0, 99], errors.BrokerNotAvailable)
    moved = admin.alter_replica_log_dirs({(topic, 0, broker): place.current, (topic, 0, 99): "/nowhere"})
    assert list(moved) == [(topic, 0, broker)]
    assert isinstance(moved.errors[topic, 0, 99], errors.BrokerNotAvailable)
    with pytest.raises(errors.LogDirNotFound):
        admin.alter_replica_log_dirs({(topic, 0, broker): "/nowhere"}).check()


def test_offsets_in_tiered_storage(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    results = admin.list_offsets({(topic, 0): "earliest_local"})
    assert results[TopicPartition(topic, 0)].offset == 0
    assert admin.list_offsets({(topic, 0): "latest_tiered"})[TopicPartition(topic, 0)].offset == -1
