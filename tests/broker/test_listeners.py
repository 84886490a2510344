"""Several listeners: which address each client is given, who may reach which, and what settings cannot mean."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkacore import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkacore.broker.server import Broker
from kafkacore.config import BrokerConfig
from kafkacore.config_listeners import Listener, hosts_in, is_everywhere, listeners_of, protocols_in, shifted, written
from kafkacore.errors import Code, ConfigError, KafkaTimeoutError, UsageError
from kafkacore.protocol import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from kafkacore.testing import EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.free_ports import free_port
from tests.kit.rows import each_row
from tests.kit.wire import Wire, produce_request

ROOT = Path(__file__).resolve().parents[2]
TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "advertised.listeners": "CLIENTS://localhost:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
"""The two differ in what clients are given: a name, and an address."""


def hosts(servers: str) -> set[str]:
    return {each.rpartition(":")[0] for each in servers.split(",")}


@pytest.fixture(scope="module")
def cluster() -> Any:
    with EmbeddedCluster(brokers=3, config={**TWO, "offsets.topic.num.partitions": 1}) as made:
        made.create_topic("t", partitions=1)
        yield made


@pytest.mark.parametrize(("listener", "host"), [("CLIENTS", "localhost"), ("internal", "127.0.0.1")])
def test_a_client_is_given_the_addresses_of_the_listener_it_came_in_by(cluster: EmbeddedCluster, listener: str, host: str) -> None:
    servers = cluster.listener(listener)
    expected = {(host, int(each.rpartition(":")[2])) for each in servers.split(",")}
    follower = next(each for each in range(1, 4) if each != cluster.leader("t", 0))
    with Wire("127.0.0.1:" + servers.split(",")[follower - 1].rpartition(":")[2]) as wire:
        metadata = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert {(each.host, each.port) for each in metadata.brokers} == expected
        described = wire.ask(DescribeClusterRequest(), 1)
        assert {(each.host, each.port) for each in described.brokers} == expected
        found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]
        assert (found.host, found.port) in expected
        refused = wire.ask(produce_request(batch([b"v"])), 10)
        assert refused.responses[0].partition_responses[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert [(each.host, each.port) in expected for each in refused.node_endpoints] == [True]


def test_the_first_listener_is_that_of_clients(cluster: EmbeddedCluster) -> None:
    assert cluster.bootstrap_servers == cluster.listener("CLIENTS")
    assert (hosts(cluster.listener("CLIENTS")), hosts(cluster.listener("INTERNAL"))) == ({"localhost"}, {"127.0.0.1"})
    with pytest.raises(UsageError, match="there is no listener 'PUBLIC'; there are CLIENTS, INTERNAL"):
        cluster.listener("PUBLIC")


@pytest.mark.parametrize("listener", ["CLIENTS", "INTERNAL"])
def test_a_group_works_by_each_listener(cluster: EmbeddedCluster, listener: str) -> None:
    servers, topic = cluster.listener(listener), f"groups-{listener}"
    with KafkaProducer(bootstrap_servers=servers) as producer:
        assert producer.send(topic, "v").result(timeout=60).offset == 0
    settings = {"group_id": f"readers-{listener}", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    with KafkaConsumer(topic, bootstrap_servers=servers, **settings) as consumer:
        assert next(iter(consumer)).value == b"v"
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        at = admin.describe_groups([settings["group_id"]]).check()[settings["group_id"]].coordinator
    assert (at.host, at.port) in {(each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in servers.split(",")}


def test_settings_are_described_as_they_are(cluster: EmbeddedCluster) -> None:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_configs([("broker", "1")]).check()["broker", "1"]
    assert {name: found[name].value for name in TWO} == TWO


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_broker_comes_back_on_all_its_ports(processes: bool) -> None:
    with EmbeddedCluster(brokers=2, config=TWO, processes=processes) as cluster:
        cluster.create_topic("t", partitions=1)
        before = cluster.listener("CLIENTS"), cluster.listener("INTERNAL")
        assert len({each for servers in before for each in servers.split(",")}) == 4
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert (cluster.listener("CLIENTS"), cluster.listener("INTERNAL")) == before
        with Wire("127.0.0.1:" + before[0].split(",")[0].rpartition(":")[2]) as wire:
            assert {each.host for each in wire.ask(MetadataRequest(topics=[]), 9).brokers} == {"localhost"}


def test_faults_of_the_network_meet_every_listener() -> None:
    with EmbeddedCluster(brokers=2, config=TWO, faults=True) as cluster:
        cluster.create_topic("t", partitions=1)
        for name in ("CLIENTS", "INTERNAL"):
            with KafkaProducer(bootstrap_servers=cluster.listener(name)) as producer:
                producer.send("t", b"v").result(timeout=60)
        assert sorted(cluster.isr("t", 0)) == [1, 2]


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address on loopback")
def test_beyond_loopback_only_when_asked_and_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with EmbeddedCluster() as cluster:
        assert not reaches("127.0.0.2", int(cluster.bootstrap_servers.rpartition(":")[2]))
    assert not caplog.messages
    with EmbeddedCluster(host="0.0.0.0", advertised_host="localhost") as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        assert (host, reaches("127.0.0.2", int(port))) == ("localhost", True)
        assert hosts(cluster.listener("INTERNAL")) == {"127.0.0.1"}
        with KafkaProducer(bootstrap_servers=f"127.0.0.2:{port}") as producer:
            assert producer.send("t", b"v").result(timeout=60).offset == 0
    beyond = "anyone who reaches this port reads and changes everything (PLAINTEXT)"
    warned = f"broker 1 listens on 0.0.0.0:{port}, beyond this machine: {beyond}"
    assert caplog.messages == [warned]
    caplog.clear()
    with EmbeddedCluster(host="0.0.0.0", advertised_host="localhost", users={"alice": "secret"}) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.listener("INTERNAL")) as admin, pytest.raises(KafkaTimeoutError):
            admin.list_topics(timeout=0.5)  # who is on this machine is asked, too
    assert [each.partition("machine: ")[2] for each in caplog.messages if "beyond" in each] == [
        "records, and passwords by PLAIN, can be read on their way (SASL_PLAINTEXT)"
    ]


def has_ipv6() -> bool:
    """Many containers have none, whatever their Python was built with."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6")
@pytest.mark.parametrize("host", ["::1", ""])
def test_ipv6(host: str) -> None:
    with EmbeddedCluster(host=host, advertised_host="::1" if not host else None) as cluster:
        assert cluster.bootstrap_servers.startswith("[::1]:")
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        assert reaches("127.0.0.1", port) == (not host)  # every address: of both families
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.send("t", b"v").result(timeout=60).offset == 0


NAMED = {"listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}


@each_row(
    ("settings", "problem"),
    [
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "'PLAINTEXT://127.0.0.1' is not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:65536"}, "is not of the form NAME://host:port"),
        ({"listeners": "A://127.0.0.1:1,a://127.0.0.1:2"}, "A is there twice"),
        ({"listeners": "A://127.0.0.1:1"}, "no security protocol is defined for listener A: .* as A:PLAINTEXT"),
        ({"listeners": "SSL://127.0.0.1:1", "inter.broker.listener.name": "SSL"}, "listener SSL: ssl_keystore_location, or"),
        ({**NAMED}, "there is no listener PLAINTEXT; inter_broker_listener_name names the one for brokers, of A, B"),
        ({**NAMED, "inter.broker.listener.name": "C"}, "there is no listener C"),
        (
            {**NAMED, "inter.broker.listener.name": "A", "security.inter.broker.protocol": "SASL_PLAINTEXT"},
            "inter_broker_listener_name and security_inter_broker_protocol exclude each other",
        ),
        ({**NAMED, "listener.security.protocol.map": "A=PLAINTEXT"}, "'A=PLAINTEXT' is not of the form NAME:PROTOCOL"),
        ({**NAMED, "advertised.listeners": "C://x:1", "inter.broker.listener.name": "A"}, "C is not among the listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "as PLAINTEXT://192.168.1.5:9092: 0.0.0.0:9092 is every address"),
        ({"listeners": "PLAINTEXT://:9092"}, "is every address of this machine"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, r"\[::\]:9092 is every address"),
        ({"listeners": "PLAINTEXT://1.2.3.4:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "0.0.0.0:1 is every address"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://x:9092"}, "port 9092, and listeners leaves it to"),
        ({"advertised.listeners": "PLAINTEXT://x:1"}, "advertised_listeners has no effect without listeners"),
        ({"listener.security.protocol.map": "A:PLAINTEXT"}, "has no effect without listeners"),
        ({"inter.broker.listener.name": "A"}, "has no effect without listeners"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1", "security.inter.broker.protocol": "SASL_PLAINTEXT"}, "needs sasl_jaas_config"),
    ],
)
def test_listeners_that_cannot_be(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig.from_user(settings)


def test_one_port_twice_is_refused_but_for_the_two_families() -> None:
    both = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"}
    for other in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(ConfigError, match="A and B have the same port 9092"):
            BrokerConfig.from_user({**both, "listeners": f"A://127.0.0.1:9092,B://{other}:9092", "advertised.listeners": "B://x:9092"})
    three = "A://127.0.0.1:9091,B://127.0.0.1:9092,C://127.0.0.1:9092"
    with pytest.raises(ConfigError, match="B and C have the same port 9092"):
        BrokerConfig.from_user({**both, "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT", "listeners": three})
    config = BrokerConfig.from_user({**both, "listeners": "A://127.0.0.1:9092,B://[::1]:9092"})
    assert listeners_of(config) == (Listener("A", "127.0.0.1", 9092), Listener("B", "::1", 9092))


def test_the_ports_of_further_brokers_follow_those_of_the_first() -> None:
    config = BrokerConfig.from_user({"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://[fe80::1]:19092"})
    assert shifted(config, 2) == {"listeners": ("PLAINTEXT://0.0.0.0:9094",), "advertised_listeners": ("PLAINTEXT://[fe80::1]:19094",)}
    with pytest.raises(ConfigError, match="above 65535"):
        shifted(config, 50_000)
    with pytest.raises(ConfigError, match="B of broker 1 and A of broker 2 have the same port 9093"):
        EmbeddedCluster(brokers=2, config={**NAMED, "inter.broker.listener.name": "A"})
    for more in ({"host": "::1"}, {"port": 9092}, {"advertised_host": "x"}):
        with pytest.raises(UsageError, match="host, advertised_host and port say what listeners in config says"):
            EmbeddedCluster(config=TWO, **more)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="every address of this machine: advertised_host has to name the one"):
        EmbeddedCluster(host="0.0.0.0")


def test_a_port_in_use_leaves_none_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first, second = free_port(), taken.getsockname()[1]
        settings = {**NAMED, "inter.broker.listener.name": "A", "listeners": f"A://127.0.0.1:{first},B://127.0.0.1:{second}"}
        broker = Broker(BrokerConfig.from_user(settings))
        with pytest.raises(OSError, match="in use"):
            broker.start()
        assert not reaches("127.0.0.1", first)


def test_what_settings_say_of_hosts_ports_and_protocols() -> None:
    machines = {"localhost": True, "127.0.0.9": True, "::1": True, "0.0.0.0": False, "": False, "h": False, "192.168.0.1": False}
    assert {host: Listener("A", host, 1).is_local for host in machines} == machines
    assert [is_everywhere(host) for host in ("", "0.0.0.0", "::", "h", "127.0.0.1")] == [True, True, True, False, False]
    given = {"listeners": "A://h:1, B://[::1]:2,C://:3,D://0.0.0.0:4,bad", "advertised.listeners": ["A://x:1"]}
    assert [*dict.fromkeys(hosts_in(given))] == ["h", "::1", "x"]
    protocols = {"listeners": "a://h:1,B://i:2,C://j:1", "listener_security_protocol_map": "A:ssl,b:PLAINTEXT"}
    assert [protocols_in(each) for each in (protocols, {"listeners": "ssl://h:1"}, {})] == [
        {"A": "SSL", "B": "PLAINTEXT"},
        {"SSL": "SSL"},
        {},
    ]
    reported, own = Listener("A", "h", 1, "SSL", "x", 5), Listener("B", "::1", 0)
    assert written([reported, own]) == (("A://h:1", "B://[::1]:0"), ("A://x:5", "B://[::1]:0"))
    assert (reported.advertised, own.advertised, Listener("A", "h", 1, advertised_port=7).address) == (("x", 5), ("::1", 0), "h:7")
    config = BrokerConfig(
        listeners=("A://127.0.0.1:65534", "PLAINTEXT://[::1]:0"),
        advertised_listeners=("A://x:9",),
        listener_security_protocol_map=("A:PLAINTEXT", "PLAINTEXT:PLAINTEXT"),
    )
    moved = {"listeners": ("A://127.0.0.1:65535", "PLAINTEXT://[::1]:0"), "advertised_listeners": ("A://x:10",)}
    assert [shifted(config, by) for by in (0, 1)] == [{}, moved]
    with pytest.raises(ConfigError, match="listeners: so many brokers would need ports above 65535"):
        shifted(config, 2)
