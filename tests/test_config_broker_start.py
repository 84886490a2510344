"""A broker's settings as Kafka's server.properties has them: what they become, what is kept, what a warning says."""

import pytest

from kafkacore.broker.server import Broker
from kafkacore.config import BrokerConfig
from kafkacore.errors import ConfigError, UsageError
from kafkacore.testing import EmbeddedCluster
from tests.kit.rows import each_row

SERVER_PROPERTIES = r"""
# as in Kafka's config/server.properties
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=4
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.fixture
def properties(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(SERVER_PROPERTIES)
    return path


def test_kafkas_own_file(properties, caplog):
    config = BrokerConfig.from_file(properties, log_memory_max_bytes=0)
    assert config.listeners == ("PLAINTEXT://:9092",) and config.advertised_listeners == ("PLAINTEXT://localhost:9092",)
    assert (config.num_partitions, config.log_retention_ms, config.log_memory_max_bytes) == (4, 86_400_000, 0)
    assert config.other_settings["num.network.threads"] == "3" and config.other_settings["log.retention.hours"] == "24"
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "log.dirs=/tmp/kraft-combined-logs has no effect: data_dir (--data-dir) says where the logs are",
        "settings that have no effect on an embedded broker are kept:"
        " share.coordinator.state.topic.min.isr, share.coordinator.state.topic.replication.factor",
    ]


def test_a_misspelled_name_is_answered_with_any_setting_of_kafka(caplog):
    with caplog.at_level("WARNING"):
        BrokerConfig.from_user({"log.retention.hourz": "1", "num.network.thread": "3", "confluent.balancer.enable": "x"})
    said = "log.retention.hourz; did you mean log.retention.hours?; num.network.thread; did you mean num.network.threads?"
    assert f"unknown settings are kept, and nothing reads them: {said}; confluent.balancer.enable" in caplog.text


def test_a_cluster_of_a_file(properties):
    text = SERVER_PROPERTIES.replace(":9092", ":0").replace(":9093", ":0").replace("PLAINTEXT://:0", "PLAINTEXT://127.0.0.1:0")
    properties.write_text(text)
    with EmbeddedCluster(config=properties) as cluster:
        cluster.create_topic("t")
        assert cluster.topics() == {"t": 4} and cluster.bootstrap_servers.startswith("localhost:")


def test_settings_beside_a_file_count_more(properties):
    config = BrokerConfig.from_file(properties, num_partitions=7, listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners=None)
    assert (config.num_partitions, config.listeners) == (7, ("PLAINTEXT://127.0.0.1:0",))


@pytest.mark.parametrize("content", [b"a=\\u12", b"\xff\xfe", b"=x"])
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "server.properties"
    path.write_bytes(content)
    for each in (path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match=f"{each.name} is no file of settings"):
            BrokerConfig.from_file(each)


@each_row(
    ("given", "name", "value"),
    [
        ({"log.retention.hours": "2"}, "log_retention_ms", 7_200_000),
        ({"log.retention.hours": -1}, "log_retention_ms", -1),
        ({"log.retention.minutes": 3, "log.retention.hours": "2"}, "log_retention_ms", 180_000),
        ({"log.retention.hours": "2", "log.retention.ms": 5}, "log_retention_ms", 5),
        ({"log_roll_hours": "2"}, "log_roll_ms", 7_200_000),
        ({"log.roll.jitter.hours": "1"}, "log_roll_jitter_ms", 3_600_000),
        ({"listener.name.internal.max.connections": "5"}, "listener_name_max_connections", {"INTERNAL": 5}),
        ({"node.id": "7"}, "node_id", 7),
        ({"broker.id": "7"}, "node_id", 7),
        ({"broker.id": "7", "node.id": "7"}, "node_id", 7),
        ({"sasl.kerberos.kinit.cmd": "/bin/kinit"}, "other_settings", {"sasl.kerberos.kinit.cmd": "/bin/kinit"}),
        ({"metric.reporters": ["a.B", "c.D"]}, "other_settings", {"metric.reporters": "a.B,c.D"}),
        ({"num_io_threads": 3, "auto.leader.rebalance.enable": False}, "other_settings", {"num.io.threads": "3"}),
    ],
)
def test_what_becomes_of_a_setting(given, name, value):
    assert getattr(BrokerConfig.from_user(given), name) == value


@each_row(
    ("given", "why"),
    [
        ({"log.retention.hours": "x"}, "log.retention.hours must be a whole number"),
        ({"listener.name.a.max.connections": "-1"}, "must be a whole number of at least 0"),
        ({"num_thread": "3"}, "unknown setting 'num_thread'"),
        ({"node.id": "x"}, "node_id must be"),
        ({"broker.id": "-1"}, "node_id must"),
        ({"num.io.threads": object()}, "num.io.threads: a value is a text"),
    ],
)
def test_what_is_refused(given, why):
    with pytest.raises(ConfigError, match=why):
        BrokerConfig.from_user(given)


@pytest.mark.parametrize(
    ("given", "why"),
    [({"num.io.threads": "0"}, "Value must be at least 1"), ({"max.connections.per.ip.overrides": "h"}, "form host:limit")],
)
def test_a_value_that_kafka_would_not_start_with(given, why):
    with pytest.raises(ConfigError, match=why):
        Broker(BrokerConfig.from_user(given))


def test_what_is_kept_is_described():
    given = {"num.io.threads": "4", "some.plugin": "x", "node.id": "9", "listener.name.plaintext.max.connections": 50}
    with Broker(BrokerConfig.from_user(given)) as broker:
        found = {each.key.name: (each.value, each.source) for each in broker.call(lambda: list(broker.state.config_layers().describe()))}
    assert found["num.io.threads"] == ("4", 4) and found["some.plugin"] == (None, 4) and found["node.id"] == found["broker.id"] == ("9", 4)
    assert found["listener.name.plaintext.max.connections"] == ("50", 4)


@pytest.mark.parametrize("first", [0, 7])
def test_brokers_are_numbered_from_the_id_that_is_set(first, tmp_path):
    with EmbeddedCluster(brokers=2, data_dir=tmp_path, config={"node.id": first}, racks=["a", "b"]) as cluster:
        cluster.create_topic("t", partitions=2)
        assert sorted(cluster.isr("t", 0)) == [first, first + 1] and cluster.leader("t", 0) in (first, first + 1)
        cluster.stop_broker(first + 1)
        assert cluster.leader("t", 0) == cluster.leader("t", 1) == first
        cluster.start_broker(first + 1)
        with pytest.raises(UsageError, match=f"there is no broker {first + 2}"):
            cluster.stop_broker(first + 2)
    assert {f"broker-{first}", f"broker-{first + 1}", "controller"} == {each.name for each in tmp_path.iterdir()}
