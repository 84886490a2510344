"""The image of a cluster: what records make of it, and what listeners are told."""

import copy
import dataclasses

import pytest

from kafkacore.broker.cluster import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    ClusterImage,
    ImageListener,
    PartitionRegistration,
)
from kafkacore.broker.image_jump import jump
from kafkacore.config import BrokerConfig
from kafkacore.errors import InternalError, UnknownTopicOrPartition
from kafkacore.protocol import metadata_log as m
from kafkacore.protocol.metadata_log import decode_record, encode_record
from kafkacore.types import Node
from tests.kit.rows import each_row

ID, OTHER_ID, ACL_ID = bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18))


class Recorder(ImageListener):
    def __init__(self):
        self.deltas = []

    def image_changed(self, delta):
        self.deltas.append(delta)


def registered(broker_id, epoch, **fields):
    endpoint = m.BrokerEndpoint(name="PLAINTEXT", host="h", port=9000 + broker_id)
    return m.RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, incarnation_id=ID, end_points=[endpoint], **fields)


def partition(index, topic_id=ID, replicas=(1, 2), **fields):
    values = {"isr": list(replicas), "leader": replicas[0], "leader_epoch": 0, "partition_epoch": 0, **fields}
    return m.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=list(replicas), **values)


EVERYTHING = [
    m.FeatureLevelRecord(name="metadata.version", feature_level=30),
    registered(1, 1, fenced=False, rack="a", features=[m.BrokerFeature(name="group.version", max_supported_version=1)]),
    registered(2, 2),
    m.TopicRecord(name="t", topic_id=ID),
    m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="7"),
    partition(0),
    partition(1, replicas=(2, 1), leader=-1, adding_replicas=[1], removing_replicas=[2], leader_recovery_state=1),
    m.ConfigRecord(resource_type=4, resource_name="", name="num.partitions", value="3"),
    m.ClientQuotaRecord(entity=[m.ClientQuotaEntity(entity_type="user", entity_name=None)], key="request_percentage", value=5.5),
    m.AccessControlEntryRecord(id=ACL_ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*", operation=3),
    m.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
    m.NoOpRecord(),
]


def image_of(records):
    image = ClusterImage(BrokerConfig(), "cluster")
    image.apply([decode_record(encode_record(record)) for record in records], len(records))
    return image


def contents(image):
    """All that an image says."""
    return {name: value for name, value in vars(image).items() if name not in ("listeners", "config")}


def test_records_make_an_image():
    image = image_of(EVERYTHING)
    assert image.next_offset == len(EVERYTHING)
    assert image.features == {"metadata.version": 30}
    assert (list(image.nodes), list(image.brokers), image.controller_id) == ([1], [1, 2], 1)
    assert (image.nodes[1].port, image.nodes[1].rack, image.brokers[1].features) == (9001, "a", {"group.version": (0, 1)})
    assert (image.is_active(1), image.is_active(2), image.is_active(3)) == (True, False, False)
    topic = image.topic("t")
    assert topic is image.topics_by_id[ID]
    assert topic.config.retention_ms == 7
    assert (image.partition("t", 0).leader, image.partition("t", 1).leader, image.partition("t", 1).reassigning) == (1, -1, True)
    assert image.configs == {(2, "t"): {"retention.ms": "7"}, (4, ""): {"num.partitions": "3"}}
    assert image.client_quotas == {frozenset({("user", None)}): {"request_percentage": 5.5}}
    assert image.acls[ACL_ID].principal == "User:a"
    assert image.next_producer_id == 1000
    for name, index in (("u", None), ("t", 2), ("t", -1)):
        with pytest.raises(UnknownTopicOrPartition) as refused:
            image.topic(name) if index is None else image.partition(name, index)
        assert (refused.value.topic, refused.value.partition) == (name, index)


def test_an_image_as_records_is_the_same_image():
    features = [m.BrokerFeature(name="group.version", min_supported_version=1, max_supported_version=2)]
    more = {"in_controlled_shutdown": True, "log_dirs": [ID], "cordoned_log_dirs": [OTHER_ID], "features": features}
    eligible = {"directories": [ID, OTHER_ID], "eligible_leader_replicas": [2], "last_known_elr": [1], "partition_epoch": 4}
    scram = m.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4_096)
    image = image_of([*EVERYTHING, registered(3, 3, fenced=False, **more), partition(2, leader_epoch=3, **eligible), scram])
    copy = image_of(list(image.records()))
    copy.next_offset = image.next_offset
    assert contents(copy) == contents(image)
    image.features |= {"a.version": 1, "z.version": 2}
    assert next(image.records()).name == "metadata.version"  # by which the others are read


@each_row(("start", "end"), [([], EVERYTHING), (EVERYTHING, []), (EVERYTHING, EVERYTHING)])
def test_a_jump_takes_all_of_another_image_and_says_what_differs(start, end):
    image, heard = image_of(start), Recorder()
    image.listeners.append(heard)
    held = {name: value for name, value in vars(image).items() if isinstance(value, dict)}
    jump(image, image_of(end))
    assert contents(image) == contents(image_of(end))
    assert all(getattr(image, name) is value for name, value in held.items())
    (delta,) = heard.deltas
    differs = delta.configs, delta.brokers, delta.features, delta.quotas, delta.acls
    everything = {(2, "t"), (4, "")}, {1, 2}, {"metadata.version"}, {frozenset({("user", None)})}, {ACL_ID}
    assert differs == (everything if start != end else (set(),) * 5)
    assert [each.name for each in delta.created_topics] == (["t"] if not start else [])
    assert [each.name for each in delta.deleted_topics] == (["t"] if not end else [])
    assert [(each.index, each.before) for each in delta.partitions] == ([(0, None), (1, None)] if not start else [])


def test_names_that_are_alike_are_found_without_a_look_at_all_topics():
    class Unread(dict):
        def __iter__(self):
            raise AssertionError("all topics are looked at")

    config = BrokerConfig()
    image, target = ClusterImage(config, "c"), ClusterImage(config, "c")
    image.topics = Unread()
    names = {"a.b": bytes(15) + b"1", "a_b": bytes(15) + b"2", "ab": bytes(15) + b"3", "x_y.z": bytes(15) + b"4"}
    image.apply([m.TopicRecord(name=name, topic_id=topic_id) for name, topic_id in names.items()], 4)
    assert [image.topic_like(name) for name in ("a.b", "a_b", "x.y.z", "ab", "x_y", "c_d")] == ["a.b", "a.b", "x_y.z", None, None, None]
    image.apply([m.RemoveTopicRecord(topic_id=names["a.b"]), m.RemoveTopicRecord(topic_id=names["ab"])], 6)
    assert image.topic_like("a.b") == "a_b"
    image.topics = dict(image.topics.items())
    target.apply([m.TopicRecord(name="c.d", topic_id=ID)], 7)
    jump(image, target)
    assert [image.topic_like(name) for name in ("a.b", "x.y.z", "c_d")] == [None, None, "c.d"]


def test_what_was_registered_stays_what_it_was_for_those_who_hold_it():
    image = image_of(EVERYTHING)
    held = [image.brokers[1], image.nodes[1], image.partition("t", 0), image.partition("t", 1)]
    before = copy.deepcopy(held)
    image.apply(
        [
            m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1], leader=-1),
            m.PartitionChangeRecord(partition_id=1, topic_id=ID, replicas=[1], adding_replicas=[], removing_replicas=[], isr=[1]),
            m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1, fenced=1),
        ],
        16,
    )
    now = [image.brokers[1], image.nodes.get(1), image.partition("t", 0), image.partition("t", 1)]
    assert held == before
    assert all(each != old for each, old in zip(now, before, strict=True))


def test_a_broker_s_registration_changes():
    image = image_of(EVERYTHING)
    image.apply([m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1)], 13)
    assert (image.is_active(1), list(image.nodes)) == (False, [1])
    image.apply([m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1, log_dirs=[ID])], 14)
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown, image.brokers[1].log_dirs, image.nodes) == (
        True,
        True,
        (ID,),
        {},
    )
    image.apply([registered(1, 14), m.UnfenceBrokerRecord(id=1, epoch=14), m.FenceBrokerRecord(id=1, epoch=14)], 17)
    assert (image.brokers[1].active, image.brokers[1].in_controlled_shutdown) == (False, False)
    image.apply([m.UnregisterBrokerRecord(broker_id=1, broker_epoch=14)], 18)
    assert list(image.brokers) == [2]


def test_what_is_taken_away_is_gone():
    image = image_of(EVERYTHING)
    image.apply(
        [
            m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
            m.FeatureLevelRecord(name="metadata.version", feature_level=0),
            m.ClientQuotaRecord(entity=[m.ClientQuotaEntity(entity_type="user", entity_name=None)], key="request_percentage", remove=True),
            m.RemoveAccessControlEntryRecord(id=ACL_ID),
        ],
        20,
    )
    assert image.topic("t").config.retention_ms == 604_800_000
    assert (image.features, image.client_quotas, image.acls, list(image.configs)) == ({}, {}, {}, [(4, "")])


def test_listeners_are_told_once_per_batch_what_was_before():
    image = image_of(EVERYTHING)
    recorder = Recorder()
    image.listeners.append(recorder)
    before = image.partition("t", 0)
    image.apply(
        [
            m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1]),
            m.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1),
            m.TopicRecord(name="u", topic_id=OTHER_ID),
            partition(0, OTHER_ID),
            m.ConfigRecord(resource_type=2, resource_name="u", name="retention.ms", value="1"),
        ],
        17,
    )
    (delta,) = recorder.deltas
    assert [(each.topic.name, each.index, each.before, each.now.leader) for each in delta.partitions] == [
        ("t", 0, before, -1),
        ("u", 0, None, 1),
    ]
    assert ([each.name for each in delta.created_topics], delta.deleted_topics, delta.configs) == (["u"], [], {(2, "u")})
    assert (delta.brokers, delta.features, delta.quotas, delta.acls) == (set(), set(), set(), set())


def test_a_topic_made_anew_in_one_batch_is_another_topic():
    image = image_of(EVERYTHING)
    recorder = Recorder()
    image.listeners.append(recorder)
    change = m.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1])
    image.apply([change, m.RemoveTopicRecord(topic_id=ID), m.TopicRecord(name="t", topic_id=OTHER_ID), partition(0, OTHER_ID)], 16)
    (delta,) = recorder.deltas
    assert ([each.topic_id for each in delta.deleted_topics], [each.topic_id for each in delta.created_topics]) == ([ID], [OTHER_ID])
    assert [(each.topic.topic_id, each.before) for each in delta.partitions] == [(OTHER_ID, None)]
    assert image.topic("t").config.overrides == {}
    stays = m.TopicRecord(name="w", topic_id=ACL_ID)
    image.apply([stays, m.TopicRecord(name="v", topic_id=ID), partition(0), m.RemoveTopicRecord(topic_id=ID)], 20)
    assert [topic.name for topic in recorder.deltas[1].created_topics] == ["w"]
    assert (recorder.deltas[1].deleted_topics, recorder.deltas[1].partitions) == ([], [])


@each_row(
    "record",
    [
        m.TopicRecord(name="t", topic_id=OTHER_ID),
        m.TopicRecord(name="u", topic_id=ID),
        m.RemoveTopicRecord(topic_id=OTHER_ID),
        partition(0, OTHER_ID),
        partition(1),
        partition(3),
        m.PartitionChangeRecord(partition_id=2, topic_id=ID),
        m.PartitionChangeRecord(partition_id=-1, topic_id=ID),
        m.FenceBrokerRecord(id=1, epoch=2),
        m.BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=1),
        m.UnregisterBrokerRecord(broker_id=3, broker_epoch=1),
        m.RemoveAccessControlEntryRecord(id=ID),
        m.RemoveUserScramCredentialRecord(name="a", mechanism=1),
        m.ClearElrRecord(topic_name="u"),
    ],
    ids=repr,
)
def test_a_record_that_contradicts_the_image_is_an_error(record):
    with pytest.raises(InternalError):
        image_of(EVERYTHING).apply([record], 13)


def test_what_a_record_changes_of_a_broker_and_nothing_else():
    endpoints = [m.BrokerEndpoint(name=name, host=f"h-{name}", port=port) for name, port in (("INSIDE", 1), ("OUTSIDE", 2))]
    image = image_of([m.RegisterBrokerRecord(broker_id=1, broker_epoch=1, incarnation_id=ID, end_points=endpoints, rack="r")])
    first = image.brokers[1]
    assert [first.node_at(name) for name in ("INSIDE", "OUTSIDE", "", "NONE")] == [
        Node(1, "h-INSIDE", 1, "r"),
        Node(1, "h-OUTSIDE", 2, "r"),
        Node(1, "h-INSIDE", 1, "r"),
        None,
    ]
    for fields, changed in (
        ({"fenced": 1}, {}),
        ({"fenced": -1}, {"fenced": False}),
        ({"in_controlled_shutdown": 1}, {"in_controlled_shutdown": True}),
        ({"log_dirs": [ID]}, {"log_dirs": (ID,)}),
        ({"cordoned_log_dirs": []}, {"cordoned_log_dirs": ()}),
        ({"cordoned_log_dirs": [ID]}, {"cordoned_log_dirs": (ID,)}),
        ({}, {}),
    ):
        before = image.brokers[1]
        delta = image.apply([m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, **fields)], 2)
        assert (image.brokers[1], delta.brokers) == (dataclasses.replace(before, **changed), {1})
    assert image.nodes == {1: Node(1, "h-INSIDE", 1, "r")} and not image.is_active(1)


@each_row(
    ("fields", "changed"),
    [
        ({}, {}),
        ({"leader": 2}, {"leader": 2, "leader_epoch": 8}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 8}),
        ({"isr": [2]}, {"isr": [2]}),
        ({"isr": []}, {"isr": []}),
        ({"replicas": [2, 3, 1]}, {"replicas": [2, 3, 1], "directories": [OTHER_ID, MIGRATING_DIRECTORY, ID]}),
        ({"replicas": [2], "directories": [ACL_ID]}, {"replicas": [2], "directories": [ACL_ID]}),
        ({"directories": [ACL_ID]}, {}),  # one for two replicas
        ({"directories": [ACL_ID, ID]}, {"directories": [ACL_ID, ID]}),
        ({"adding_replicas": []}, {"adding_replicas": []}),
        ({"removing_replicas": [2]}, {"removing_replicas": [2]}),
        ({"leader_recovery_state": 0}, {"leader_recovery_state": 0}),
        ({"eligible_leader_replicas": [], "last_known_elr": []}, {"elr": [], "last_known_elr": []}),
    ],
)
def test_what_a_record_changes_of_a_partition_and_nothing_else(fields, changed):
    before = PartitionRegistration([1, 2], [1], 1, 7, 4, [1], [], 1, [ID, OTHER_ID], [2], [1])
    after = before.merge(m.PartitionChangeRecord(partition_id=0, topic_id=ID, **fields))
    assert after == dataclasses.replace(before, **{"partition_epoch": 5, **changed})


def test_which_replicas_are_out_of_reach():
    image = image_of([registered(1, 1, fenced=False, log_dirs=[ID]), registered(2, 2, log_dirs=[ID]), registered(3, 3, fenced=False)])
    image.apply([registered(4, 4, fenced=False, log_dirs=[ID, OTHER_ID])], 5)
    assert [image.default_directory(node) for node in (1, 3, 4, 9)] == [ID, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY]
    for directory, offline, leads in (
        (ID, [2, 9], [1, 3, 4]),
        (OTHER_ID, [1, 2, 9], [3, 4]),
        (LOST_DIRECTORY, [1, 2, 3, 4, 9], []),
        (UNASSIGNED_DIRECTORY, [2, 9], [1, 3, 4]),
        (MIGRATING_DIRECTORY, [2, 9], [1, 3, 4]),
    ):
        found = PartitionRegistration([1, 2, 3, 4, 9], [1], 1, directories=[directory] * 5)
        assert image.offline_replicas(found) == offline
        assert [node for node in range(10) if image.may_lead(node, found)] == leads
    assert found.directory(8) == MIGRATING_DIRECTORY


def test_counts_follow_what_partitions_say():
    image = image_of(EVERYTHING)
    assert (dict(image.led), dict(image.in_sync)) == ({1: 1, -1: 1}, {1: 2, 2: 2})
    image.apply([m.PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[2], leader=2)], 13)
    assert (+image.led, +image.in_sync) == ({1: 1, 2: 1}, {1: 1, 2: 2})
    image.apply([m.RemoveTopicRecord(topic_id=ID)], 14)
    assert (+image.led, +image.in_sync) == ({}, {})


def test_credentials_tokens_and_what_is_kept_for_a_kafka():
    scram = m.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4_096)
    token, controller = m.DelegationTokenRecord(token_id="x", owner="User:a"), m.RegisterControllerRecord(controller_id=7)
    records = [controller, m.ZkMigrationStateRecord(zk_migration_state=2), scram, token]
    image = image_of(records)
    assert (image.scram_credentials, image.delegation_tokens) == ({("a", 1): scram}, {"x": token})
    assert (image.controllers, image.zk_migration_state, list(image.records())) == ({7: controller}, 2, records)
    gone = [m.RemoveUserScramCredentialRecord(name="a", mechanism=1), *(m.RemoveDelegationTokenRecord(token_id=each) for each in "xy")]
    assert image.apply(gone, 9).image.next_offset == 9
    assert (image.scram_credentials, image.delegation_tokens) == ({}, {})
