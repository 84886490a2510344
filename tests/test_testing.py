"""EmbeddedCluster and the pytest plugin, as users meet them."""

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore import KafkaAdminClient, KafkaProducer, NewTopic, ProducerRecord, errors
from kafkacore.admin import ConfigResource
from kafkacore.broker.server import STOP_S_PER_PARTITION, Broker
from kafkacore.errors import ConfigError, IllegalStateError, UsageError
from kafkacore.testing import Drop, EmbeddedCluster
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
