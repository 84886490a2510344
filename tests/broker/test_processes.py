"""Brokers in processes of their own: SIGKILL, SIGTERM, SIGSTOP, the end of the parent, the shell."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacore import protocol as p
from kafkacore.broker.processes import _nursery
from kafkacore.errors import BrokerNotAvailable, UnknownTopicOrPartition, UsageError
from kafkacore.testing import Delay, Disconnect, EmbeddedCluster
from tests.kit.batches import batch
from tests.kit.inside import brokers_of, controller_of
from tests.kit.programs import ROOT, environment, run_python
from tests.kit.records import fill, read, values_of
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

pytestmark = pytest.mark.slow


def kafkacore_broker(*options):
    """`kafkacore broker` in a process of its own; it prints JSON."""
    command = [sys.executable, "-m", "kafkacore", "broker", "--processes", "--port", "0", "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment())


def wait_for_isr(cluster, topic, size):
    host = controller_of(cluster)
    assert host.wait_until(lambda state: len(state.image.partition(topic, 0).isr) == size, 30)


def test_brokers_are_processes_that_may_be_killed_stopped_and_suspended():
    with EmbeddedCluster(brokers=3, processes=True, config={"min.insync.replicas": 2}) as cluster:
        pids = {broker.pid for broker in brokers_of(cluster).values()}
        assert len(pids) == 3 and os.getpid() not in pids
        addresses = cluster.bootstrap_servers
        cluster.create_topic("t", partitions=1)
        assert cluster.topics() == {"t": 1} and sorted(cluster.isr("t", 0)) == [1, 2, 3]
        assert fill(cluster.bootstrap_servers, "t", [b"0", b"1"]) == [0, 1]
        first = cluster.leader("t", 0)
        cluster.kill_broker(first)
        assert cluster.leader("t", 0) not in (first, None) and first not in cluster.isr("t", 0)
        assert fill(cluster.bootstrap_servers, "t", [b"2"]) == [2]
        cluster.start_broker(first)
        assert cluster.bootstrap_servers == addresses
        wait_for_isr(cluster, "t", 3)
        second = cluster.leader("t", 0)
        cluster.stop_broker(second)  # SIGTERM: a controlled shutdown
        assert cluster.leader("t", 0) not in (second, None)
        cluster.start_broker(second)
        wait_for_isr(cluster, "t", 3)
        cluster.move_leader("t", 0, first)
        assert (cluster.leader("t", 0), cluster.high_watermark("t", 0)) == (first, 3)
        cluster.pause_broker(second)
        cluster.resume_broker(second)
        assert values_of(read(cluster.bootstrap_servers, "t", 3)) == [b"0", b"1", b"2"]
        assert [cluster.end_offset("t", 0, broker) for broker in (1, 2, 3)] == [3, 3, 3]
        assert cluster.high_watermark("t", 0, broker=first) == 3
        with pytest.raises(UnknownTopicOrPartition, match="'u'"):
            cluster.end_offset("u", 0, 1)
        cluster.kill_broker(3)
        with pytest.raises(BrokerNotAvailable, match="end_offset"):
            cluster.end_offset("t", 0, 3)
        with pytest.raises(UsageError, match="without"):
            cluster.jump_clock(1, 1)


def test_control_functions_of_this_process_stand_before_the_brokers_of_others(caplog):
    PRODUCE, METADATA, LIST_OFFSETS = 0, 3, 2
    with EmbeddedCluster(brokers=1, processes=True) as cluster:
        cluster.create_topic("t", partitions=1)
        seen = []

        def look(request):
            (topic,) = request.topic_data
            seen.append((os.getpid(), topic.topic_id, len(topic.partition_data[0].records) > 0))

        cluster.control(PRODUCE, look)
        assert fill(cluster.bootstrap_servers, "t", [b"0"]) == [0]
        assert seen == [(os.getpid(), controller_of(cluster).read(lambda image: image.topics["t"].topic_id), True)]
        # one answer is lost, the next connection is cut before its request is served, then a delay; the records are there once
        faults = iter([Disconnect(handle=True), Disconnect, Delay(20)])
        cluster.control(PRODUCE, lambda request: next(faults, None))
        assert fill(cluster.bootstrap_servers, "t", [b"1"]) == [1]
        assert next(faults, None) is None
        cluster.control(PRODUCE, None)
        with Wire(cluster.bootstrap_servers) as wire:
            cluster.control(METADATA, lambda request: p.MetadataResponse(brokers=[], cluster_id="fake", topics=[]))
            assert wire.ask(p.MetadataRequest(topics=None), 12).cluster_id == "fake"
            cluster.kill_broker(1)
            cluster.start_broker(1)
        with Wire(cluster.bootstrap_servers) as wire:  # the function outlives the process
            assert wire.ask(p.MetadataRequest(topics=None), 12).cluster_id == "fake"
            cluster.pause_broker(1)
            cluster.control(METADATA, None)  # nobody answers now
            cluster.resume_broker(1)
            assert wire.ask(p.MetadataRequest(topics=None), 12).cluster_id == cluster.cluster_id
        cluster.control(METADATA, lambda request: p.MetadataResponse(brokers=[], cluster_id="still", topics=[]))
        for wrong, reason in ((lambda request: "nonsense", "nonsense"), (lambda request: cluster.end_offset("t", 0, 1), "waits for this")):
            cluster.control(LIST_OFFSETS, wrong)
            with Wire(cluster.bootstrap_servers) as wire, pytest.raises((ConnectionError, EOFError)):
                wire.ask(p.ListOffsetsRequest(topics=[]), 7)
            assert reason in caplog.text
        cluster.control(LIST_OFFSETS, None)
        with Wire(cluster.bootstrap_servers) as wire:
            assert wire.ask(p.MetadataRequest(topics=None), 12).cluster_id == "still"
        cluster.control(METADATA, None)
        assert values_of(read(cluster.bootstrap_servers, "t", 2)) == [b"0", b"1"]
        with pytest.raises(UsageError, match="not served"):
            cluster.control(76, None)


def test_a_process_has_a_clock_that_jumps_and_no_network_of_ours():
    config = {"connections.max.idle.ms": -1}  # or the clock's jump ends the connection, if the broker looks before the next request
    with EmbeddedCluster(brokers=1, processes=True, faults=True, config=config) as cluster:
        cluster.create_topic("t", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
        with Wire(cluster.bootstrap_servers) as wire:

            def append_time():
                (answer,) = wire.ask(produce_request(batch(), acks=-1), 9).responses[0].partition_responses
                return answer.log_append_time_ms

            before = append_time()
            cluster.jump_clock(1, -3_600_000)
            after = append_time()
            assert -3_600_000 <= after - before < -3_500_000
            cluster.jump_clock(1, 7_200_000, asleep=True)
            assert append_time() - after >= 7_200_000
        with pytest.raises(ValueError, match="cannot sleep for -1 ms"):
            cluster.jump_clock(1, -1, asleep=True)
        with pytest.raises(UsageError, match="hold their sockets themselves"):
            cluster.network  # noqa: B018


def test_a_broker_that_hangs_loses_its_session_and_comes_back():
    config = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 100}
    with EmbeddedCluster(brokers=2, processes=True, config=config) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=2)
        leader = cluster.leader("t", 0)
        cluster.pause_broker(leader)
        assert controller_of(cluster).wait_until(lambda state: leader not in state.image.nodes, 30)
        assert cluster.leader("t", 0) == 3 - leader
        cluster.resume_broker(leader)
        wait_for_isr(cluster, "t", 2)


def test_a_data_directory_outlives_everybody(tmp_path):
    with EmbeddedCluster(brokers=2, processes=True, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=2)
        fill(cluster.bootstrap_servers, "t", [b"a", b"b"])
        for broker in (1, 2):
            cluster.kill_broker(broker)
        assert cluster.leader("t", 0) is None
        for broker in (1, 2):
            cluster.start_broker(broker)
        assert values_of(read(cluster.bootstrap_servers, "t", 2)) == [b"a", b"b"]
        cluster_id = cluster.cluster_id
    with EmbeddedCluster(brokers=2, data_dir=tmp_path) as cluster:  # the same directory, in threads
        assert cluster.cluster_id == cluster_id
        assert values_of(read(cluster.bootstrap_servers, "t", 2)) == [b"a", b"b"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"controller", "broker-1", "broker-2"}


def test_a_broker_that_cannot_start_says_why(tmp_path, capfd):
    with EmbeddedCluster(brokers=1, data_dir=tmp_path):
        pass
    (tmp_path / "broker-1" / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=1\n")
    with pytest.raises(BrokerNotAvailable, match="stderr"), EmbeddedCluster(brokers=1, processes=True, data_dir=tmp_path):
        pass
    assert "cluster.id" in capfd.readouterr().err


def is_alive(pid):
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it may be reaped between the two
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def children_of(pid):
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_shell_s_cluster_starts_a_broker_again_and_ends_with_its_process(tmp_path, how):
    with kafkacore_broker("--brokers", "2", "--data-dir", str(tmp_path)) as process:
        try:
            said = json.loads(process.stdout.readline())
            pid = said["pids"]["2"]
            os.kill(pid, signal.SIGKILL)
            assert json.loads(process.stdout.readline()) == {"ended": 2, "pid": pid}
            process.send_signal(signal.SIGHUP)
            again = json.loads(process.stdout.readline())
            assert again["started"] == 2 and again["pid"] != pid and is_alive(again["pid"])
            fill(said["bootstrap_servers"].split(",")[1], "t", [b"x"])
            (nursery,) = children_of(process.pid)
            children = [nursery, *children_of(nursery)]
            assert len(children) == 3
        except BaseException:
            process.kill()
            raise
        process.send_signal(how)
        assert process.wait(60) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    until(lambda: not any(map(is_alive, children)))
    assert [(tmp_path / f"broker-{node}" / ".kafka_cleanshutdown").exists() for node in (1, 2)] == [True, True]
    with EmbeddedCluster(brokers=2, data_dir=tmp_path) as cluster:
        assert values_of(read(cluster.bootstrap_servers, "t", 1)) == [b"x"]


FOREIGN = 'import pathlib; pathlib.Path("executed").touch(); raise SystemExit("a file of the working directory was executed")'
START = "from kafkacore.testing import EmbeddedCluster; EmbeddedCluster(processes=True).start().close(); print('served')"


def test_children_execute_no_file_of_the_working_directory(tmp_path):
    for module in ("json", "logging", "kafkacore"):  # of the standard library, and the package itself
        (tmp_path / f"{module}.py").write_text(FOREIGN)
    done = run_python("-P", "-c", START, cwd=tmp_path)
    assert not (tmp_path / "executed").exists()
    assert done.stdout == "served\n", done.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_a_start_forks_a_process_that_has_imported_everything():
    with EmbeddedCluster(brokers=1, processes=True) as cluster:
        first = _nursery._process.pid
        assert brokers_of(cluster)[1].pid in children_of(first)
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert _nursery._process.pid == first
        pid = brokers_of(cluster)[1].pid
        assert pid in children_of(first)
        for _ in range(200):  # many signals are as good as one
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until(lambda: not is_alive(pid))
        os.kill(first, signal.SIGKILL)
        until(lambda: not is_alive(first))
        cluster.start_broker(1)
        assert _nursery._process.pid != first
        cluster.create_topic("t", partitions=1)
        assert cluster.leader("t", 0) == 1
