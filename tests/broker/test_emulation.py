"""Older Kafkas played: tables and features as theirs, and clients that get along."""


import uuid

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkacore import protocol as p
from kafkacore.broker.emulation import EMULATIONS, capped
from kafkacore.broker.handlers import API_VERSIONS, SERVED
from kafkacore.errors import UsageError
from kafkacore.testing import EmbeddedCluster
from tests.broker.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")

HIGHEST = {
    # kafka-clients 3.9.1 and 4.0.1, from their message definitions
    "3.9": {0: 11, 1: 17, 2: 9, 3: 12, 8: 9, 9: 9, 15: 5, 26: 4, 28: 4, 27: 1, 35: 4, 45: 0, 57: 1, 60: 1, 66: 1, 68: 0, 69: 0, 74: 0},
    "4.0": {0: 12, 1: 17, 2: 10, 3: 13, 8: 9, 9: 9, 15: 6, 26: 5, 28: 5, 27: 1, 35: 4, 45: 0, 57: 2, 60: 2, 66: 1, 68: 1, 69: 1, 74: 0},
    "4.3": {key: served.max_version for key, served in SERVED.items()},
}


@pytest.mark.parametrize("release", EMULATIONS)
def test_the_table_ends_where_the_release_does(release):
    table = capped(API_VERSIONS, release)
    for key, (low, high) in table.items():
        assert low == SERVED[key].min_version
        assert high == min(HIGHEST[release].get(key, SERVED[key].max_version), SERVED[key].max_version), key
    assert set(table) == set(SERVED)


def test_unknown_releases():
    with pytest.raises(UsageError, match=r"3\.9, 4\.0, 4\.3 are"):
        EmbeddedCluster(emulate="2.8")


@pytest.mark.parametrize(
    ("release", "features"),
    [
        ("3.9", {"metadata.version": 21}),
        ("4.0", {"metadata.version": 25, "group.version": 1, "transaction.version": 2}),
        ("4.3", {"metadata.version": 30, "group.version": 1, "transaction.version": 2}),
    ],
)
def test_features_of_a_release(release, features):
    with EmbeddedCluster(emulate=release) as cluster, Wire(cluster.bootstrap_servers) as wire:
        answer = wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert {each.name: each.max_version_level for each in answer.finalized_features} == features
        assert {each.api_key: each.max_version for each in answer.api_keys}[0] == HIGHEST[release][0]
    with EmbeddedCluster(emulate=release, features={"transaction.version": 1}) as cluster, Wire(cluster.bootstrap_servers) as wire:
        answer = wire.ask(p.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert {each.name: each.max_version_level for each in answer.finalized_features}["transaction.version"] == 1


@pytest.mark.parametrize("release", EMULATIONS)
def test_clients_get_along(release):
    """Ours and librdkafka's: records, a group, a transaction, settings."""
    with EmbeddedCluster(emulate=release, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        servers, topic = cluster.bootstrap_servers, "t"
        cluster.create_topic(topic)
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send_many(topic, [b"x"] * 10).result(timeout=20)
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


def test_the_command_line_plays_too(capsys):
    from kafkacore.cli.app import run

    assert run(["broker", "--emulate", "1.0"]) == 2
    assert "3.9, 4.0, 4.3" in capsys.readouterr().err
