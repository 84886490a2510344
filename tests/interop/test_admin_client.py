"""KafkaAdminClient on the embedded broker and on Apache Kafka, with the same expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafkacore.admin import Acl, AclFilter, Append, ConfigResource, ItemResults, Subtract
from tests.kit.waiting import fresh, until

confluent_kafka = pytest.importorskip("confluent_kafka")


# ---- settings


def test_settings_of_a_topic(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = ConfigResource("topic", make_topic(retention_ms=5000))
    found = admin.describe_configs([topic], include_synonyms=True).check()[topic]
    assert len(found) == 33
    retention = found["retention.ms"]
    assert (retention.value, retention.source, retention.type, retention.is_default) == ("5000", "topic", "long", False)
    assert (retention.is_read_only, retention.is_sensitive) == (False, False)
    assert [(each.name, each.value, each.source) for each in found["max.message.bytes"].synonyms] == [
        ("message.max.bytes", "1048588", "default")
    ]

    change = {"retention.ms": None, "cleanup.policy": Append("compact"), "max.message.bytes": "3000"}
    assert not admin.alter_configs({topic: change}, validate_only=True).errors
    assert admin.describe_configs([topic], names=["max.message.bytes"])[topic]["max.message.bytes"].value == "1048588"
    assert not admin.alter_configs({topic: change}).errors
    until(lambda: admin.describe_configs([topic])[topic]["max.message.bytes"].value == "3000", "the brokers follow the controller")
    found = admin.describe_configs([topic], names=["retention.ms", "cleanup.policy"])[topic]
    assert {name: entry.value for name, entry in found.items()} == {"retention.ms": "604800000", "cleanup.policy": "delete,compact"}
    admin.alter_configs({topic: {"cleanup.policy": Subtract("delete")}}).check()
    until(lambda: admin.describe_configs([topic])[topic]["cleanup.policy"].value == "compact", "the brokers follow the controller")


# ---- offsets, records, leaders


def test_deleting_records(admin: KafkaAdminClient, bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with KafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send_many(topic, [b"x"] * 10).result(timeout=60)
    here, gone = TopicPartition(topic, 0), TopicPartition(topic, 9)
    results = admin.delete_records({here: 4, gone: 1})
    assert results[here] == 4
    assert isinstance(results.errors[gone], errors.UnknownTopicOrPartition)
    assert admin.list_offsets({here: "earliest"})[here].offset == 4
    assert isinstance(admin.delete_records({here: 11}).errors[here], errors.OffsetOutOfRange)
    assert admin.delete_records({here: -1})[here] == 10


def test_leaders_and_replicas(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    tp = TopicPartition(make_topic(), 0)
    assert isinstance(admin.elect_leaders([tp]).errors[tp], errors.ElectionNotNeeded)
    assert isinstance(admin.elect_leaders([tp], election="unclean").errors[tp], errors.ElectionNotNeeded)
    missing = TopicPartition(tp.topic, 7)
    assert isinstance(admin.elect_leaders([missing]).errors[missing], errors.UnknownTopicOrPartition)
    with pytest.raises(errors.UsageError):
        admin.elect_leaders([tp], election="free")
    assert admin.list_partition_reassignments() == {}
    broker = admin.describe_cluster().nodes[0].id
    results = admin.alter_partition_reassignments({tp: [broker], missing: [broker]})
    assert list(results.succeeded) == [tp]
    assert isinstance(results.errors[missing], errors.UnknownTopicOrPartition)
    assert isinstance(admin.alter_partition_reassignments({tp: None}).errors[tp], errors.NoReassignmentInProgress)
    assert admin.list_partition_reassignments([tp, missing]) == {}


# ---- quotas, access


def test_acls_without_an_authorizer(admin: KafkaAdminClient) -> None:
    with pytest.raises(errors.SecurityDisabled):
        admin.describe_acls()
    acl = Acl("topic", "t", "User:a", "read")
    assert isinstance(admin.create_acls([acl]).errors[acl], errors.SecurityDisabled)
    every = AclFilter()
    assert isinstance(admin.delete_acls([every]).errors[every], errors.SecurityDisabled)
    with pytest.raises(errors.UsageError, match="an operation is one of"):
        admin.create_acls([acl._replace(operation="paint")])


# ---- groups


@pytest.fixture
def group(bootstrap_servers: str, make_topic: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """A group of one confluent-kafka consumer that has a partition, and its topic."""
    topic, name = make_topic(partitions=2), fresh("g")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.05) or consumer.assignment(), "a member has its partitions")
        yield name, topic
    finally:
        consumer.close()


def test_a_group_with_a_member(admin: KafkaAdminClient, group: tuple[str, str]) -> None:
    name, topic = group
    listed = {each.group_id: each for each in admin.list_groups()}
    assert listed[name][1:] == ("consumer", "Stable", "classic")
    assert name in {each.group_id for each in admin.list_groups(states=["Stable"], types=["classic"])}
    assert name not in {each.group_id for each in admin.list_groups(states=["Empty"])}
    missing = f"missing-{name}"
    results = admin.describe_groups([name, missing])
    assert isinstance(results.errors[missing], errors.GroupIdNotFound)
    described = results[name]
    assert (described.type, described.state, described.protocol_type, described.assignor) == ("classic", "Stable", "consumer", "range")
    (member,) = described.members
    assert member.partitions == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert (member.client_id, member.instance_id) == ("rdkafka", None)
    assert isinstance(admin.delete_groups([name]).errors[name], errors.GroupNotEmpty)
    tp = TopicPartition(topic, 0)
    assert isinstance(admin.alter_group_offsets(name, {tp: 3}).errors[tp], errors.UnknownMemberId)
    assert isinstance(admin.delete_group_offsets(name, [tp]).errors[tp], errors.GroupSubscribedToTopic)


def test_what_this_client_may_do(admin: KafkaAdminClient, group: tuple[str, str]) -> None:
    name, topic = group
    described = admin.describe_groups([name], include_authorized_operations=True)[name]
    assert described.authorized_operations == ["read", "delete", "describe", "describe_configs", "alter_configs"]
    assert admin.describe_groups([name])[name].authorized_operations is None
    of_topic = admin.describe_topics([topic], include_authorized_operations=True)[topic].authorized_operations
    assert of_topic == ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"]
    assert admin.describe_topics([topic])[topic].authorized_operations is None
    cluster = admin.describe_cluster(include_authorized_operations=True)
    assert cluster.authorized_operations is not None
    assert {"create", "alter", "describe", "cluster_action", "idempotent_write"} <= set(cluster.authorized_operations)
    assert admin.describe_cluster() == cluster._replace(controller=admin.describe_cluster().controller, authorized_operations=None)


def test_the_assignment_that_a_member_is_on_its_way_to(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic, name = make_topic(partitions=2), fresh("g")
    with KafkaConsumer(topic, bootstrap_servers=admin.config.bootstrap_servers, group_id=name, group_protocol="consumer") as consumer:
        until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, "a member has its partitions")
        (member,) = admin.describe_groups([name])[name].members
        assert member.target_partitions == member.partitions == [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def test_offsets_of_a_group(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic, name = make_topic(partitions=2), fresh("g")
    first, second, missing = (TopicPartition(topic, index) for index in (0, 1, 7))
    results = admin.alter_group_offsets(name, {first: 3, second: OffsetAndMetadata(5, 0, "note"), missing: 1})
    assert set(results.succeeded) == {first, second}
    assert isinstance(results.errors[missing], errors.UnknownTopicOrPartition)
    assert admin.list_group_offsets(name) == {first: OffsetAndMetadata(3), second: OffsetAndMetadata(5, 0, "note")}
    assert admin.list_group_offsets(name, [first, missing], require_stable=True) == {first: OffsetAndMetadata(3), missing: None}
    assert admin.describe_groups([name])[name].state == "Empty"
    deleted = admin.delete_group_offsets(name, [first])
    assert isinstance(deleted, ItemResults) and list(deleted.succeeded) == [first]
    assert admin.list_group_offsets(name) == {second: OffsetAndMetadata(5, 0, "note")}
    assert list(admin.delete_groups([name]).succeeded) == [name]
    assert isinstance(admin.delete_groups([name]).errors[name], errors.GroupIdNotFound)
    with pytest.raises(errors.GroupIdNotFound):
        admin.delete_group_offsets(name, [first])


# ---- transactions


def test_transactions(admin: KafkaAdminClient, bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    tp, name = TopicPartition(make_topic(), 0), fresh("x")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(tp.topic, b"x")
    assert producer.flush(90) == 0
    (listed,) = [each for each in admin.list_transactions() if each.transactional_id == name]
    assert listed.state == "Ongoing"
    assert listed in admin.list_transactions(states=["Ongoing"], producer_ids=[listed.producer_id])
    assert listed not in admin.list_transactions(states=["Empty"])
    assert listed in admin.list_transactions(pattern=name[:4] + ".*")
    assert listed not in admin.list_transactions(longer_than_ms=3_600_000)
    missing = f"missing-{name}"
    results = admin.describe_transactions([name, missing])
    assert isinstance(results.errors[missing], errors.TransactionalIdNotFound)
    described = results[name]
    assert (described.state, described.producer_id, described.partitions) == ("Ongoing", listed.producer_id, [tp])
    assert described.timeout_ms == 60_000 and described.start_time_ms > 0
    (state,) = admin.describe_producers([tp])[tp]
    assert (state.producer_id, state.producer_epoch) == (described.producer_id, described.producer_epoch)
    assert (state.last_sequence, state.transaction_start_offset) == (0, 0)
    assert admin.list_offsets({tp: "latest"}, read_committed=True)[tp].offset == 0
    admin.abort_transaction(tp, state.producer_id, state.producer_epoch, state.coordinator_epoch)
    assert admin.list_offsets({tp: "latest"}, read_committed=True)[tp].offset == 2
    (state,) = admin.describe_producers([tp])[tp]
    assert state.transaction_start_offset == -1
