"""Topics: names, numbers, settings, placement, leaders."""

import pytest

from kafkacore import errors
from kafkacore.broker.cluster import ClusterImage, TopicConfig, TopicListener
from kafkacore.config import BrokerConfig
from kafkacore.types import Node


@pytest.fixture
def image():
    image = ClusterImage(BrokerConfig(num_partitions=3))
    image.register_broker(Node(1, "h", 1))
    return image


def test_defaults_come_from_the_broker(image):
    topic = image.create_topic("t")
    assert len(topic.partitions) == 3
    assert topic.config.max_message_bytes == 1_048_588
    assert topic.topic_id != bytes(16)
    assert image.topics_by_id[topic.topic_id] is topic


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\n"])
def test_bad_names_are_refused(image, name):
    with pytest.raises(errors.InvalidTopic):
        image.create_topic(name)


def test_dot_and_underscore_collide(image):
    image.create_topic("a.b")
    with pytest.raises(errors.InvalidTopic, match="collides"):
        image.create_topic("a_b")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"num_partitions": 0}, errors.InvalidPartitions),
        ({"num_partitions": -2}, errors.InvalidPartitions),
        ({"num_partitions": 2**31 - 1}, errors.PolicyViolation),
        ({"replication_factor": 0}, errors.InvalidReplicationFactor),
        ({"replication_factor": 2}, errors.InvalidReplicationFactor),
        ({"assignments": {0: [1]}, "num_partitions": 1}, errors.InvalidRequest),
        ({"assignments": {1: [1]}}, errors.InvalidReplicaAssignment),
        ({"assignments": {0: [2]}}, errors.InvalidReplicaAssignment),
        ({"assignments": {0: [1, 1]}}, errors.InvalidReplicaAssignment),
        ({"assignments": {0: []}}, errors.InvalidReplicaAssignment),
        ({"configs": {"cleanup.policy": "squeeze"}}, errors.InvalidConfiguration),
        ({"configs": {"retention.ms": "soon"}}, errors.InvalidConfiguration),
        ({"configs": {"retention.ms": "-2"}}, errors.InvalidConfiguration),
        ({"configs": {"retention.seconds": "1"}}, errors.InvalidConfiguration),
    ],
)
def test_bad_topics_are_refused_and_leave_nothing(image, arguments, error):
    with pytest.raises(error):
        image.create_topic("t", **arguments)
    assert image.topics == {}


def test_validate_only_changes_nothing(image):
    assert len(image.create_topic("t", 2, validate_only=True).partitions) == 2
    assert image.topics == {}


def test_partitions_can_be_added_never_taken(image):
    seen = []

    class Listener(TopicListener):
        def topic_changed(self, topic):
            seen.append(len(topic.partitions))

    image.listeners.append(Listener())
    image.create_topic("t", 2)
    image.create_partitions("t", 5)
    assert seen == [2, 5]
    for count in (5, 4, 0):
        with pytest.raises(errors.InvalidPartitions):
            image.create_partitions("t", count)
    with pytest.raises(errors.UnknownTopicOrPartition):
        image.create_partitions("u", 5)


def test_a_broker_that_comes_back_leads_in_a_new_epoch(image):
    partition = image.create_topic("t", 1).partitions[0]
    assert (partition.leader, partition.leader_epoch) == (1, 0)
    image.unregister_broker(1)
    assert (partition.leader, image.controller_id) == (-1, -1)
    image.register_broker(Node(1, "h", 1))
    assert (partition.leader, partition.leader_epoch) == (1, 1)


def test_settings_know_their_source():
    config = TopicConfig.build({"retention.ms": "-1", "segment.bytes": None}, BrokerConfig())
    sources = {name: (value, source) for name, value, source in config.describe()}
    assert sources["retention.ms"] == ("-1", 1)
    assert sources["segment.bytes"] == ("1073741824", 4)
    assert sources["cleanup.policy"] == ("delete", 5)


def test_producer_ids_are_never_given_twice(image):
    assert len({image.next_producer_id() for _ in range(100)}) == 100
