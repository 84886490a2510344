"""EmbeddedCluster and the pytest plugin, as users meet them."""

import errno
import inspect
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, ProducerRecord, errors
from kafkacore.admin import ConfigResource
from kafkacore.broker.handlers import API_VERSIONS
from kafkacore.broker.limits import log_memory_bytes
from kafkacore.broker.server import STOP_S_PER_PARTITION, Broker
from kafkacore.config import BrokerConfig
from kafkacore.config_authorizer import STANDARD_AUTHORIZER
from kafkacore.errors import ConfigError, IllegalStateError, UsageError
from kafkacore.testing import Drop, EmbeddedCluster
from kafkacore.testing.network import Network
from tests.kit.inside import brokers_of, thread_of
from tests.kit.rows import each_row

ROOT = Path(__file__).parent.parent


@each_row("api", [32, "DescribeConfigs", "describeconfigs"])
def test_an_api_is_controlled_by_its_number_or_its_name(api):
    broker = ConfigResource("broker", "1")
    with EmbeddedCluster() as cluster, KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        seen = []
        cluster.control(api, lambda request: seen.append(type(request).__name__))
        admin.describe_configs([broker]).check()
        cluster.control(api, None)
        admin.describe_configs([broker]).check()
        assert seen == ["DescribeConfigsRequest"]


@each_row(
    ("api", "problem"),
    [
        ("Fetsch", "'Fetsch' is no API: .* did you mean 'Fetch'?"),
        ("1", "'1' is no API: Kafka's name of one .* or its number"),
        (None, "None is no API"),
        (999, "API 999 is not served"),
    ],
)
def test_an_api_that_cannot_be_controlled_is_named(api, problem):
    with EmbeddedCluster() as cluster, pytest.raises(UsageError, match=problem):
        cluster.control(api, None)


@pytest.mark.parametrize("failing", [1, 2])
def test_close_ends_everything_and_then_raises_what_failed(tmp_path, monkeypatch, failing):
    cluster = EmbeddedCluster(brokers=3, data_dir=tmp_path, faults=True).start()
    members, network = brokers_of(cluster), cluster.network
    stops = {node_id: member.stop for node_id, member in members.items()}

    def fail(node_id):
        def stop(clean=True):
            stops[node_id](clean)
            raise errors.KafkaTimeoutError(f"broker {node_id} hangs")

        return stop

    for node_id in range(1, failing + 1):
        monkeypatch.setattr(members[node_id], "stop", fail(node_id))
    with pytest.raises(errors.KafkaTimeoutError if failing == 1 else ExceptionGroup) as raised:
        cluster.close()
    found = [raised.value] if failing == 1 else list(raised.value.exceptions)
    assert [str(error) for error in found] == [f"broker {node_id} hangs" for node_id in range(1, failing + 1)]
    assert not any(member.running for member in members.values())
    assert thread_of(network) is None
    monkeypatch.undo()
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as again:  # every directory, the controller's too, has been given back
        assert again.topics() == {}


def test_a_cluster_that_cannot_start_names_why_and_ends_what_runs(tmp_path, monkeypatch):
    cluster = EmbeddedCluster(brokers=2, data_dir=tmp_path)
    first, second = brokers_of(cluster).values()
    monkeypatch.setattr(second, "start", lambda: (_ for _ in ()).throw(OSError("no port")))
    stop = first.stop

    def fail(clean=True):
        stop(clean)
        raise errors.KafkaTimeoutError("broker 1 hangs")

    monkeypatch.setattr(first, "stop", fail)
    with pytest.raises(OSError, match="no port") as raised:
        cluster.start()
    assert raised.value.__notes__ == ["closing the cluster failed too: KafkaTimeoutError: broker 1 hangs"]
    assert not first.running


def test_a_cluster_takes_all_the_file_descriptors_it_may_have():
    code = (
        "import resource; soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE); resource.setrlimit(resource.RLIMIT_NOFILE, (200, 512))\n"
        "from kafkacore.testing import EmbeddedCluster\n"
        "with EmbeddedCluster(): print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = run("-c", code)
    assert (done.stdout, done.stderr) == ("(512, 512)\n", "")


def test_the_time_to_stop_grows_with_the_partitions():
    with EmbeddedCluster() as cluster:
        few = brokers_of(cluster)[1].stop_timeout_s()
        cluster.create_topic("t", partitions=100)
        assert brokers_of(cluster)[1].stop_timeout_s() == few + 100 * STOP_S_PER_PARTITION


def test_refusals_are_those_of_a_broker():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(errors.TopicExists):
            cluster.create_topic("t")
        for act in (
            lambda: cluster.delete_topic("u"),
            lambda: cluster.leader("u", 0),
            lambda: cluster.isr("t", 1),
            lambda: cluster.high_watermark("t", -1),
        ):
            with pytest.raises(errors.UnknownTopicOrPartition):
                act()
        cluster.move_leader("t", 0, broker=1)  # who leads already
        with pytest.raises(UsageError, match="no broker 2"):
            cluster.move_leader("t", 0, broker=2)
        with pytest.raises(UsageError, match="no broker 7"):
            cluster.stop_broker(7)


@each_row(
    ("arguments", "problem"),
    [
        ({"brokers": 0}, "at least one broker"),
        ({"brokers": 2, "racks": ["a"]}, "1 racks"),
        ({"brokers": 2, "api_versions": {18: (0, 4), 1: (4, 11)}}, "Fetch v12"),
    ],
)
def test_clusters_that_cannot_be(arguments, problem):
    with pytest.raises(UsageError, match=problem):
        EmbeddedCluster(**arguments)


def test_unknown_settings_are_refused_in_pythons_spelling_and_kept_with_a_warning_in_kafkas(caplog):
    with pytest.raises(ConfigError, match="did you mean num_partitions"):
        EmbeddedCluster(config={"num_partition": 1})
    assert EmbeddedCluster(config={"num.partition": 1}).config.num_partitions == 1
    assert caplog.text.count("unknown settings are kept, and nothing reads them: num.partition; did you mean num.partitions?") == 1


NEED_BROKERS = {
    "bootstrap_servers": lambda cluster: cluster.bootstrap_servers,
    "create_topic": lambda cluster: cluster.create_topic("t"),
    "delete_topic": lambda cluster: cluster.delete_topic("t"),
    "topics": lambda cluster: cluster.topics(),
    "produce": lambda cluster: cluster.produce("t", ["v"]),
    "records": lambda cluster: cluster.records("t"),
    "leader": lambda cluster: cluster.leader("t", 0),
    "isr": lambda cluster: cluster.isr("t", 0),
    "high_watermark": lambda cluster: cluster.high_watermark("t", 0),
    "end_offset": lambda cluster: cluster.end_offset("t", 0, broker=1),
    "move_leader": lambda cluster: cluster.move_leader("t", 0, broker=1),
    "stop_broker": lambda cluster: cluster.stop_broker(1),
    "kill_broker": lambda cluster: cluster.kill_broker(1),
    "start_broker": lambda cluster: cluster.start_broker(1),
    "pause_broker": lambda cluster: cluster.pause_broker(1),
    "resume_broker": lambda cluster: cluster.resume_broker(1),
}


def test_what_needs_brokers_says_that_there_are_none_yet_or_no_more():
    cluster = EmbeddedCluster()
    assert repr(cluster) == "<EmbeddedCluster, 1 broker: not started>"
    for act in NEED_BROKERS.values():
        with pytest.raises(IllegalStateError, match=r"^not started: use with, or start\(\)$"):
            act(cluster)
    with cluster:
        cluster.create_topic("t")
        assert (cluster.topics(), cluster.leader("t", 0)) == ({"t": 1}, 1)
        assert repr(cluster) == f"<EmbeddedCluster, 1 broker: {cluster.bootstrap_servers}>"
    assert repr(cluster) == "<EmbeddedCluster, 1 broker: closed>"
    for act in NEED_BROKERS.values():
        with pytest.raises(IllegalStateError, match=r"^closed: "):
            act(cluster)
    with cluster:  # serves again, on the same port
        assert cluster.topics() == {"t": 1}


@pytest.mark.parametrize("name", ["config", "configs"])
def test_settings_are_numbers_and_truth_values_under_either_name(name):
    settings = {"min.insync.replicas": 1, "auto.create.topics.enable": False, "log.cleaner.min.cleanable.ratio": 0.25}
    with EmbeddedCluster(**{name: settings}) as cluster:
        assert cluster.config.auto_create_topics_enable is False
        own = {"retention.ms": 1.5 * 3_600_000, "preallocate": True, "cleanup.policy": ["compact", "delete"]}
        own["min.cleanable.dirty.ratio"] = 0.1
        cluster.create_topic("t", **{name: own})
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("u", configs=own)]).check()
            admin.alter_configs({("topic", "u"): {"min.cleanable.dirty.ratio": 0.75, "preallocate": False}}).check()
            found = admin.describe_configs([("topic", "t"), ("topic", "u")]).check()
    shown = [{key: found["topic", topic][key].value for key in own} for topic in "tu"]
    expected = {"retention.ms": "5400000", "preallocate": "true", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.1"}
    assert shown == [expected, {**expected, "preallocate": "false", "min.cleanable.dirty.ratio": "0.75"}]


def test_records_go_in_and_come_out_in_one_call():
    with EmbeddedCluster(config={"num.partitions": 2}) as cluster:
        whole = ProducerRecord("t", "c", key="k", headers=[("h", b"1")], partition=1, timestamp_ms=5)
        sent = cluster.produce("t", ["a", ("k", b"b"), whole, None], value_serializer=lambda value: value)
        assert [each.topic for each in sent] == ["t"] * 4
        found = cluster.records("t")
        assert {(each.partition, each.offset) for each in found} == {(each.partition, each.offset) for each in sent}
        assert {(each.key, each.value) for each in found} == {(None, b"a"), (b"k", b"b"), (b"k", b"c"), (None, None)}
        assert [(each.partition, each.offset) for each in found] == sorted((each.partition, each.offset) for each in found)
        own = next(each for each in found if each.value == b"c")
        assert (own.partition, own.timestamp_ms, list(own.headers)) == (1, 5, [("h", b"1")])
        assert {each.value for each in cluster.records("t", value_deserializer=len)} == {1, None}
        assert cluster.produce("t", []) == []
        with pytest.raises(errors.UnknownTopicOrPartition):
            cluster.records("u")
        assert cluster.topics() == {"t": 2}  # not created by asking
        for wrong, problem in [
            ("abc", "not a single str"),
            ([("k", "v", "h")], "not a tuple of 3"),
            ([ProducerRecord("u", "v")], "the record is for topic 'u', and 't' is asked for"),
        ]:
            with pytest.raises(UsageError, match=problem):
                cluster.produce("t", wrong)
        cluster.control("Fetch", lambda request: Drop)
        with pytest.raises(errors.KafkaTimeoutError, match=r"the end was not reached within 0\.2 s: partition "):
            cluster.records("t", timeout=0.2)


def test_records_end_behind_the_marker_of_a_transaction():
    with EmbeddedCluster(config={"transaction.state.log.num.partitions": 1}) as cluster:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", "committed")
            with pytest.raises(ZeroDivisionError), producer.transaction():
                producer.send("t", "aborted").result(timeout=30)
                1 / 0  # noqa: B018
        assert [each.value for each in cluster.records("t", 60, isolation_level="read_committed")] == [b"committed"]
        assert [each.value for each in cluster.records("t", 60)] == [b"committed", b"aborted"]


def test_one_argument_under_two_names_is_given_once():
    with pytest.raises(UsageError, match="config and configs are two names of one argument"):
        EmbeddedCluster(config={}, configs={})
    with EmbeddedCluster() as cluster:
        with pytest.raises(UsageError, match="config and configs are two names of one argument"):
            cluster.create_topic("t", configs={}, config={})
        with pytest.raises(UsageError, match=r"retention\.ms: a value is a text, a number, a truth value or a list of texts, not object"):
            cluster.create_topic("t", configs={"retention.ms": object()})
        with pytest.raises(UsageError, match=r"configs is a mapping of settings, as \{'retention\.ms': 1000\}, not list"):
            cluster.create_topic("t", configs=["retention.ms=1"])
        assert cluster.topics() == {}


def test_a_fixed_port():
    with Broker() as free:
        port = free.port
    with EmbeddedCluster(port=port) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)


def test_testing_needs_no_pytest():
    code = "import sys; sys.modules['pytest'] = None; import kafkacore.testing"
    assert run("-c", code).returncode == 0


def test_an_interpreter_ends_with_a_cluster_still_running():
    code = "from kafkacore.testing import EmbeddedCluster; c = EmbeddedCluster().start(); c.create_topic('t'); print('up')"
    done = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let nobody bind beside a socket that does not listen")
@pytest.mark.parametrize("processes", [False, True])
def test_nothing_else_takes_the_port_of_a_stopped_broker(processes: bool) -> None:
    def is_taken(address: str) -> bool:
        host, port = address.split(":")
        with socket.socket() as other:
            try:
                other.bind((host, int(port)))
            except OSError as error:
                return error.errno == errno.EADDRINUSE
        return False

    with EmbeddedCluster(brokers=2, processes=processes) as cluster:
        address = cluster.bootstrap_servers.split(",")[1]
        for stop in (cluster.stop_broker, cluster.kill_broker):
            stop(2)
            stop(2)
            assert is_taken(address)
            cluster.start_broker(2)
            assert cluster.bootstrap_servers.split(",")[1] == address
            with KafkaAdminClient(bootstrap_servers=address) as admin:
                assert admin.list_topics() == []
        cluster.stop_broker(2)
    assert not is_taken(address)


USERS = {"a": "x", "b": "y"}
LOCAL = "PLAINTEXT://127.0.0.1:0"
TWO = {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "inter.broker.listener.name": "B"}
FREE = ("A://127.0.0.1:0", "B://127.0.0.1:0")
INTERNAL = ("PLAINTEXT:PLAINTEXT", "INTERNAL:PLAINTEXT")
SASL, SSL = {"security_inter_broker_protocol": "SASL_PLAINTEXT"}, {"security_inter_broker_protocol": "SSL"}
SASL_SSL = {"security_inter_broker_protocol": "SASL_SSL"}
REQUIRED = {"ssl_client_auth": "required"}


def supers(*names: str) -> dict[str, str]:
    return {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": ";".join(f"User:{name}" for name in names)}


@each_row(
    ("arguments", "settings"),
    [
        ({"brokers": 2}, {"default_replication_factor": 2}),
        ({"brokers": 5}, {"default_replication_factor": 3}),
        ({"brokers": 3, "config": {"default.replication.factor": 2}}, {"default_replication_factor": 2}),
        ({"brokers": 3, "config": {"default_replication_factor": 1}}, {}),
        ({"brokers": 2, "config": BrokerConfig(num_partitions=3)}, {"num_partitions": 3}),
        ({"users": USERS}, SASL),
        ({"users": USERS, "config": {"security.inter.broker.protocol": "PLAINTEXT", "num.partitions": 3}}, {**SASL, "num_partitions": 3}),
        ({"users": USERS, "config": BrokerConfig(num_partitions=3)}, {**SASL, "num_partitions": 3}),
        ({"users": USERS, "super_users": ["b", "a"]}, {**SASL, **supers("broker", "b", "a")}),
        ({"users": USERS, "super_users": []}, {**SASL, **supers("broker")}),
        (
            {"users": USERS, "super_users": ["a"], "config": BrokerConfig(num_partitions=3)},
            {**SASL, **supers("broker", "a"), "num_partitions": 3},
        ),
        ({"port": 9000}, {}),
        ({"host": "127.0.0.2", "port": 9000}, {"listeners": ("PLAINTEXT://127.0.0.2:9000",)}),
        (
            {"host": "0.0.0.0", "advertised_host": "h", "port": 5},
            {
                "listeners": ("PLAINTEXT://0.0.0.0:5", "INTERNAL://127.0.0.1:0"),
                "advertised_listeners": ("PLAINTEXT://h:5",),
                "listener_security_protocol_map": INTERNAL,
                "inter_broker_listener_name": "INTERNAL",
            },
        ),
        (
            {"users": USERS, "config": {**TWO, "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT"}},
            {
                "listeners": FREE,
                "listener_security_protocol_map": ("A:SASL_PLAINTEXT", "B:SASL_PLAINTEXT"),
                "inter_broker_listener_name": "B",
            },
        ),
        ({"tls": True}, SSL),
        ({"tls": "mutual"}, {**SSL, **REQUIRED}),
        ({"tls": "mutual", "config": BrokerConfig(num_partitions=3)}, {**SSL, **REQUIRED, "num_partitions": 3}),
        ({"tls": True, "config": {"security.inter.broker.protocol": "SSL"}}, SSL),
        ({"tls": True, "users": USERS}, SASL_SSL),
        ({"tls": "mutual", "users": USERS}, {**SASL_SSL, "listener_name_settings": {"SASL_SSL": REQUIRED}}),
        (
            {"tls": "mutual", "super_users": ["c"]},
            {**SSL, **REQUIRED, **supers(*(f"CN={each},OU=test,O=kafkacore" for each in ("broker", "c")))},
        ),
        (
            {"tls": "mutual", "users": USERS, "config": {**TWO, "listener.security.protocol.map": "A:SASL_SSL,B:PLAINTEXT"}},
            {
                "listeners": FREE,
                "listener_security_protocol_map": ("A:SASL_SSL", "B:PLAINTEXT"),
                "inter_broker_listener_name": "B",
                "listener_name_settings": {"A": REQUIRED},
            },
        ),
        (
            {"tls": True, "config": {**TWO, "listener.security.protocol.map": "A:SSL,B:PLAINTEXT"}},
            {"listeners": FREE, "listener_security_protocol_map": ("A:SSL", "B:PLAINTEXT"), "inter_broker_listener_name": "B"},
        ),
        ({"config": {"listeners": LOCAL}, "brokers": 2}, {"listeners": (LOCAL,), "default_replication_factor": 2}),
        ({"config": {"node.id": 7}}, {"node_id": 7}),
    ],
)
def test_what_arguments_make_of_the_settings(arguments, settings):
    if "tls" in arguments:
        pytest.importorskip("trustme")
    config, plain = EmbeddedCluster(**arguments).config, BrokerConfig()
    given = {name: getattr(config, name) for name in config.names() if getattr(config, name) != getattr(plain, name)}
    memory = given.pop("log_memory_max_bytes")
    assert memory == log_memory_bytes(plain) // arguments.get("brokers", 1)
    certificates = {name: given.pop(name) for name in [*given] if name.startswith(("ssl_keystore", "ssl_truststore"))}
    assert len(certificates) == (5 if "tls" in arguments else 0)
    assert ("sasl_jaas_config" in given) is ("users" in arguments)
    assert sorted(config.plain_users()[2] if given.pop("sasl_jaas_config", None) else "ab") in (["a", "b"], ["a", "b", "broker"])
    assert given == settings


TWICE = "host, advertised_host and port say what listeners in config says, too: leave one of them out"


@each_row(
    ("arguments", "problem"),
    [
        ({"brokers": -1}, "a cluster has at least one broker, not -1"),
        ({"brokers": 1, "racks": ["a", "b"]}, "2 racks are named for 1 brokers"),
        ({"tls": "both"}, "tls is True or \"mutual\", not 'both'"),
        ({"users": USERS, "config": {"sasl.jaas.config": "x"}}, "who is let in is said twice: by users, and by sasl.jaas.config in config"),
        ({"users": USERS, "config": {"sasl_jaas_config": "x"}}, "who is let in is said twice: by users, and by sasl.jaas.config in config"),
        (
            {"users": USERS, "config": BrokerConfig(**SSL, ssl_keystore_location="x")},
            "who is let in is said twice: by users, and by security.inter.broker.protocol in config",
        ),
        ({"users": USERS, "super_users": ["User:a"]}, "super_users are some of the users 'a', 'b', not 'User:a'; leave out \"User:\""),
        ({"users": USERS, "super_users": ["a", "c"]}, "super_users are some of the users 'a', 'b', not 'c'"),
        ({"super_users": ["a"]}, 'super_users needs users={"name": "password"} or tls="mutual": else every client is User:ANONYMOUS'),
        (
            {"tls": True, "super_users": ["a"]},
            'super_users needs users={"name": "password"} or tls="mutual": else every client is User:ANONYMOUS',
        ),
        (
            {"tls": True, "config": {"ssl.keystore.location": "x"}},
            "certificates are said twice: by tls, and by ssl.keystore.location in config",
        ),
        ({"host": ""}, "an empty host is every address of this machine: advertised_host has to name the one that clients reach"),
        ({"config": {"listeners": LOCAL}, "port": 3}, TWICE),
        ({"config": {"listeners": LOCAL}, "host": "h"}, TWICE),
        ({"config": {"listeners": LOCAL}, "advertised_host": "h"}, TWICE),
        (
            {
                "config": {
                    "node.id": 4,
                    "listeners": "PLAINTEXT://127.0.0.1:9000,A://127.0.0.1:9001",
                    "listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                },
                "brokers": 2,
            },
            "listeners: A of broker 4 and PLAINTEXT of broker 5 have the same port 9001",
        ),
        ({"data_dir": "here"}, "data_dir here is the log directory of a Kafka: move __cluster_metadata-0 to controller/, with a copy of"),
    ],
)
def test_arguments_that_contradict_each_other(arguments, problem, tmp_path, monkeypatch):
    if "tls" in arguments:
        pytest.importorskip("trustme")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here" / "__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    with pytest.raises((UsageError, ConfigError)) as refused:
        EmbeddedCluster(**arguments)
    assert refused.value.message.startswith(problem)


def test_what_clients_need():
    pytest.importorskip("trustme")
    with EmbeddedCluster(users=USERS) as cluster:
        where = {"bootstrap_servers": cluster.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        assert cluster.client_settings("b") == {**where, "sasl_username": "b", "sasl_password": "y"}
        for user in (None, "c"):
            with pytest.raises(UsageError, match=f"client_settings is for one of the users 'a', 'b', not {user!r}"):
                cluster.client_settings(user)
    both = {**TWO, "listener.security.protocol.map": "A:SASL_SSL,B:PLAINTEXT"}
    with EmbeddedCluster(users={"a": "x"}, tls="mutual", config=both, brokers=2) as cluster:
        found = cluster.client_settings()
        assert (found["sasl_username"], found["sasl_password"], found["security_protocol"]) == ("a", "x", "SASL_SSL")
        assert found["bootstrap_servers"] == cluster.bootstrap_servers == cluster.listener("a") != cluster.listener("B")
        assert [Path(found[f"ssl_{name}"]).name for name in ("cafile", "certfile", "keyfile")] == ["ca.pem", "0-a.pem", "0-a.key"]
        plain = {"bootstrap_servers": cluster.listener("B"), "security_protocol": "PLAINTEXT"}
        assert cluster.client_settings(listener="b") == plain
        with pytest.raises(UsageError, match="there is no listener 'c'; there are A, B"):
            cluster.listener("c")
        assert [each.value for each in cluster.produce("t", ["v"]) and cluster.records("t")] == [b"v"]
        assert cluster.processes() == {}
    assert not Path(found["ssl_cafile"]).exists()
    with EmbeddedCluster(tls=True) as cluster:
        assert sorted(cluster.client_settings()) == ["bootstrap_servers", "security_protocol", "ssl_cafile"]


def test_who_leads_and_what_is_where():
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2, configs={"min.insync.replicas": 2})
        first, second = cluster.isr("t", 1)
        (stranger,) = {1, 2, 3} - {first, second}
        assert (cluster.topics(), cluster.leader("t", 1)) == ({"t": 2}, first)
        cluster.produce("t", [ProducerRecord("t", "v", partition=1)] * 2)
        cluster.move_leader("t", 1, second)
        assert (cluster.leader("t", 1), sorted(cluster.isr("t", 1))) == (second, sorted((first, second)))
        assert [cluster.end_offset("t", 1, each) for each in (first, second)] == [2, 2]
        assert cluster.high_watermark("t", 1) == cluster.high_watermark("t", 1, second) == 2
        problem = rf"move_leader: broker {stranger} holds no replica of partition 1 of 't'; \[{second}, {first}\] do"
        with pytest.raises(UsageError, match=problem):
            cluster.move_leader("t", 1, stranger)
        cluster.stop_broker(first)
        assert cluster.isr("t", 1) == [second]
        with pytest.raises(errors.PreferredLeaderNotAvailable) as refused:
            cluster.move_leader("t", 1, first)
        assert (refused.value.topic, refused.value.partition) == ("t", 1)
        cluster.stop_broker(second)
        assert cluster.leader("t", 1) is None
        cluster.start_broker(second)
        assert (cluster.leader("t", 1), cluster.high_watermark("t", 1)) == (second, 2)
        cluster.delete_topic("t")
        assert cluster.topics() == {}


def test_what_calls_do_unless_they_are_told():
    found = {
        f"{kind.__name__}.{name}": given
        for kind in (EmbeddedCluster, Network)
        for name, call in inspect.getmembers(kind, inspect.isfunction)
        if (name == "__init__" or not name.startswith("_"))
        and (
            given := {
                p.name: p.default for p in inspect.signature(call).parameters.values() if p.default not in (p.empty, None, API_VERSIONS)
            }
        )
    }
    assert found == {
        "EmbeddedCluster.__init__": {"brokers": 1, "tls": False, "host": "127.0.0.1", "port": 0, "processes": False, "faults": False},
        "EmbeddedCluster.create_topic": {"partitions": -1, "replication_factor": -1},
        "EmbeddedCluster.jump_clock": {"asleep": False},
        "EmbeddedCluster.records": {"timeout": 30},
        **{f"Network.{name}": {"direction": "both"} for name in ("delay", "isolate", "throttle")},
        "Network.trickle": {"nbytes": 1, "direction": "both"},
    }
