"""Older Kafkas played: tables and features as theirs, and clients that get along."""

import uuid

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore import protocol as p
from kafkacore.broker.emulation import EMULATIONS, capped
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.errors import Code, UsageError
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row
from tests.kit.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")

NEWER = [release for release, played in EMULATIONS.items() if played.versions is None]
"""Those that begin where Kafka 4 does; test_old_kafka.py has the others."""

KEYS = (0, 1, 2, 3, 8, 9, 15, 26, 27, 28, 35, 45, 57, 60, 66, 68, 69, 74, 80)
HIGHEST = {
    # kafka-clients 3.9.1 and 4.0.1, from their message definitions
    "3.9": dict(zip(KEYS, (11, 17, 9, 12, 9, 9, 5, 4, 1, 4, 4, 0, 1, 1, 1, 0, 0, 0, 0), strict=True)),
    "4.0": dict(zip(KEYS, (12, 17, 10, 13, 9, 9, 6, 5, 1, 5, 4, 0, 2, 2, 1, 1, 1, 0, 0), strict=True)),
    "4.3": {key: served.max_version for key, served in SERVED.items()},
}


@each_row("release", NEWER)
def test_the_table_ends_where_the_release_does(release):
    table = capped(API_VERSIONS, release)
    for key, (low, high) in table.items():
        assert low == API_VERSIONS[key][0]
        assert high == min(HIGHEST[release].get(key, SERVED[key].max_version), SERVED[key].max_version), key
    assert set(table) == set(SERVED)


def test_unknown_releases():
    with pytest.raises(UsageError, match=r"3\.9, 4\.0, 4\.3 are"):
        EmbeddedCluster(emulate="2.8")


# MetadataVersion's levels: 1 is 3.0-IV1, the oldest of Kafka 3.9; 7 is 3.3-IV3, the oldest of Kafka 4; 21, 25, 30 are 3.9-IV0, 4.0-IV3,
# 4.3-IV0, the newest of their releases. group.version and transaction.version begin with 4.0 (GroupVersion, TransactionVersion: levels that
# need metadata.version 4.0-IV0 and 4.0-IV2); Kafka 3.9 has them for tests alone. Of the features that this broker does not have
# (eligible.leader.replicas.version, kraft.version, share.version, streams.version) nothing is told.
SUPPORTED = {
    "3.9": {"metadata.version": (1, 21)},
    "4.0": {"metadata.version": (7, 25), "group.version": (0, 1), "transaction.version": (0, 2), "kraft.version": (0, 0)},
    "4.3": {"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2), "kraft.version": (0, 0)},
}
"""A Kafka may have kraft.version 1, voters that change; here is one controller."""


def versions_of(cluster, version):
    with Wire(cluster.bootstrap_servers) as wire:
        return wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)


@each_row("release", NEWER)
def test_features_of_a_release(release):
    supported = SUPPORTED[release]
    with EmbeddedCluster(emulate=release) as cluster:
        answer = versions_of(cluster, 4)
        assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == supported
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized == {name: (high, high) for name, (_, high) in supported.items() if high}
        assert {each.api_key: each.max_version for each in answer.api_keys}[0] == HIGHEST[release][0]
        assert [each.name for each in versions_of(cluster, 3).supported_features] == ["metadata.version"]
        beyond = {name: high + 1 for name, (_, high) in supported.items()} | ({"group.version": 1} if release == "3.9" else {})
        with Wire(cluster.bootstrap_servers) as wire:
            for name, level in beyond.items():
                wanted = p.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
                refused = wire.ask(p.UpdateFeaturesRequest(feature_updates=[wanted]), 1)
                assert (refused.error_code, "support" in refused.error_message) == (Code.INVALID_UPDATE_VERSION, True), refused


def test_other_levels_within_the_release():
    with EmbeddedCluster(emulate="4.0", features={"transaction.version": 1}) as cluster:
        answer = versions_of(cluster, 3)
        assert {each.name: each.max_version_level for each in answer.finalized_features}["transaction.version"] == 1
    for features in ({"transaction.version": 1}, {"metadata.version": 22}, {"none": 0}):
        with pytest.raises(UsageError, match="cannot have level"):
            EmbeddedCluster(emulate="3.9", features=features)


@pytest.mark.slow
def test_a_cluster_goes_on_as_an_older_one_in_processes(tmp_path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
    with EmbeddedCluster(data_dir=tmp_path, emulate="3.9", processes=True) as cluster:
        answer = versions_of(cluster, 4)
        assert [(each.name, each.max_version) for each in answer.supported_features] == [("metadata.version", 21)]
        assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [("metadata.version", 21)]


@each_row("release", NEWER)
def test_clients_get_along(release):
    """Ours and librdkafka's: records, a group, a transaction, settings."""
    with EmbeddedCluster(emulate=release, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        servers, topic = cluster.bootstrap_servers, "t"
        cluster.create_topic(topic)
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send_many(topic, [b"x"] * 10).result(timeout=60)
        transactional = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": uuid.uuid4().hex})
        transactional.init_transactions(20)
        transactional.begin_transaction()
        transactional.produce(topic, b"y")
        transactional.commit_transaction(20)
        with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            got = []
            while len(got) < 11:
                got += [record.value for records in consumer.poll(5).values() for record in records]
            assert got == [b"x"] * 10 + [b"y"]
        member = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
        try:
            member.subscribe([topic])
            assert len(member.consume(11, 20)) == 11
            member.commit(asynchronous=False)
        finally:
            member.close()
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            assert admin.describe_configs([("topic", topic)]).check()["topic", topic]["retention.ms"].value == "604800000"
            assert admin.list_group_offsets("g")[TopicPartition(topic, 0)].offset in (11, 12)  # before or after the marker
            assert [each.group_id for each in admin.list_groups()] == ["g"]
