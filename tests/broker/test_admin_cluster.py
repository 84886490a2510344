"""Administration of a cluster of several brokers: what belongs to one of them, what to all.

Moved partitions and elections are in tests/interop/test_accept_cluster.py.
"""

import logging

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, errors
from kafkacore import protocol as p
from kafkacore.admin import Append, ConfigResource
from tests.kit.clusters import embedded
from tests.kit.waiting import until
from tests.kit.wire import Wire

cluster = embedded(scope="function", brokers=3)


@pytest.fixture
def admin(cluster):
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10) as client:
        yield client


def setting(admin, resource, name):
    return admin.describe_configs([resource], names=[name]).check()[resource][name]


def test_a_broker_answers_for_its_own_settings(admin):
    one, two, everyone = ConfigResource("broker", "1"), ConfigResource("broker", "2"), ConfigResource("broker", "")
    found = admin.describe_configs([one, two]).check()
    assert [found[broker]["node.id"].value for broker in (one, two)] == ["1", "2"]
    assert found[one]["listeners"].value != found[two]["listeners"].value
    admin.alter_configs({everyone: {"log.retention.ms": "9000"}, two: {"log.retention.ms": "8000"}}).check()
    until(lambda: setting(admin, one, "log.retention.ms").value == "9000")
    assert setting(admin, one, "log.retention.ms").source == "dynamic_default_broker"
    until(lambda: setting(admin, two, "log.retention.ms").value == "8000")
    assert setting(admin, two, "log.retention.ms").source == "dynamic_broker"
    assert list(admin.describe_configs([everyone]).check()[everyone]) == ["log.retention.ms"]
    results = admin.alter_configs({one: {"listeners": "PLAINTEXT://:1"}, everyone: {"listeners": "PLAINTEXT://:1"}})
    assert isinstance(results.errors[one], errors.InvalidConfiguration)  # Kafka could, this broker cannot
    assert isinstance(results.errors[everyone], errors.InvalidRequest)
    assert set(admin.list_config_resources(["broker"])) == {("broker", str(node)) for node in (1, 2, 3)}


def test_altered_defaults_are_obeyed(admin, cluster):
    """A cluster-wide message.max.bytes holds for topics without their own, at once and on every broker."""
    admin.create_topics([NewTopic("t", 3, 1), NewTopic("own", 1, 1, configs={"max.message.bytes": "5000"})]).check()
    everyone = ConfigResource("broker", "")
    admin.alter_configs({everyone: {"message.max.bytes": "1000"}}).check()
    for node in (1, 2, 3):
        until(lambda node=node: setting(admin, ("broker", str(node)), "message.max.bytes").value == "1000")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for index in range(3):
            with pytest.raises(errors.RecordTooLarge):
                producer.send("t", b"x" * 2000, partition=index).result(timeout=60)
        assert producer.send("own", b"x" * 2000).result(timeout=60).offset == 0
        admin.alter_configs({everyone: {"message.max.bytes": None}}).check()
        for node in (1, 2, 3):
            until(lambda node=node: setting(admin, ("broker", str(node)), "message.max.bytes").value == "1048588")
        assert producer.send("t", b"x" * 2000, partition=0).result(timeout=60).offset == 0


def test_a_group_has_settings_of_its_own(admin, cluster):
    group = ConfigResource("group", "g")
    admin.alter_configs({group: {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}}).check()
    until(lambda: setting(admin, group, "consumer.heartbeat.interval.ms").value == "7000")
    assert setting(admin, group, "consumer.session.timeout.ms").source == "group"
    admin.create_topics(["t"]).check()

    def interval(name):
        found = admin._coordinators([name], 0, admin._deadline_ms(10))[name]
        if isinstance(found, errors.KafkaError):
            return None
        with Wire(cluster.bootstrap_servers.split(",")[found - 1]) as wire:
            asked = p.ConsumerGroupHeartbeatRequest(
                group_id=name, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
            )
            answer = wire.ask(asked, 1)
            return None if answer.error_code else answer.heartbeat_interval_ms

    until(lambda: interval("g") == 7000)
    until(lambda: interval("other") == 5000)
    results = admin.alter_configs({group: {"consumer.heartbeat.interval.ms": "1"}})
    assert "greater than or equal to group.consumer.min.heartbeat.interval.ms" in str(results.errors[group])
    assert admin.list_config_resources(["group"]) == [group]


def test_loggers_of_a_broker(admin):
    """Kafka's broker-loggers are the loggers of this package; they are the process's, and none is stored."""
    loggers = ConfigResource("broker_logger", "1")
    name = "kafkacore.broker.state"
    logger = logging.getLogger(name)
    assert logger.level == logging.NOTSET
    try:
        admin.alter_configs({loggers: {name: "TRACE"}}, validate_only=True).check()
        assert logger.level == logging.NOTSET
        admin.alter_configs({loggers: {name: "TRACE"}}).check()
        entry = setting(admin, loggers, name)
        assert (entry.value, entry.source, logger.level) == ("TRACE", "dynamic_broker_logger", 5)
        assert setting(admin, loggers, "root").value == "WARN"
        for wrong in ({name: "LOUD"}, {"no.such": "INFO"}, {"root": None}, {name: Append("INFO")}):
            assert admin.alter_configs({loggers: wrong}).errors
        admin.alter_configs({loggers: {name: None}}).check()
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


def test_brokers_that_are_away(admin, cluster):
    """DescribeCluster v2 names fenced brokers to clients that ask for them."""
    cluster.stop_broker(3)

    def brokers(include):
        with Wire(cluster.bootstrap_servers.split(",")[0]) as wire:
            answer = wire.ask(p.DescribeClusterRequest(include_fenced_brokers=include), 2)
            return {each.broker_id: each.is_fenced for each in answer.brokers}

    until(lambda: brokers(False) == {1: False, 2: False})
    assert brokers(True) == {1: False, 2: False, 3: True}
