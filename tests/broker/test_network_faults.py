"""What clients and brokers do on a bad network, and with clocks that are wrong."""

import socket
import time

import pytest

from kafkacore import KafkaProducer
from kafkacore import protocol as p
from kafkacore.clock import ManualClock
from kafkacore.errors import Code, KafkaError, UsageError
from kafkacore.testing import CLIENTS, CONTROLLER, EmbeddedCluster
from kafkacore.testing.network import Network
from tests.kit.batches import batch
from tests.kit.replicas import address_of, followers_of, in_step, read_numbers, write_numbers
from tests.kit.waiting import until
from tests.kit.wire import Wire, produce_request

QUICK = {"replica.lag.time.max.ms": 600, "replica.fetch.wait.max.ms": 100}


@pytest.fixture
def cluster():
    with EmbeddedCluster(brokers=3, config=QUICK, faults=True) as made:
        made.create_topic("t", partitions=1)
        yield made


def test_one_byte_at_a_time(cluster):
    cluster.network.trickle(1)
    assert write_numbers(cluster, 20) == list(range(20))
    cluster.network.trickle(7, peer=CLIENTS)
    assert read_numbers(cluster, 20) == list(range(20))
    until(lambda: in_step(cluster))


def test_a_delay_is_a_delay(cluster):
    with Wire(address_of(cluster, 1)) as wire:
        wire.ask(p.MetadataRequest(topics=[]), 12)
        cluster.network.delay(60, broker=1, peer=CLIENTS)
        before = time.monotonic()
        wire.ask(p.MetadataRequest(topics=[]), 12)
        assert time.monotonic() - before >= 0.115


def test_what_a_slow_way_holds_goes_on_at_once_when_the_network_heals():
    network = Network([1], ManualClock(1_000))  # which stands still
    far, outside = socket.socketpair()
    broker = network.join(1, CLIENTS, far)
    with broker, outside:
        outside.settimeout(20)
        network.throttle(1)
        broker.sendall(b"bytes")
        assert outside.recv(5) == b"b"  # the next one waits a second
        network.heal()
        got = b""
        while len(got) < 4:
            got += outside.recv(5)
        assert got == b"ytes"
        network.close()


def test_bytes_go_on_when_their_time_has_come():
    clock = ManualClock(1_000)
    network = Network([1], clock)
    ends = []
    for _ in range(2):
        far, outside = socket.socketpair()
        ends.append((network.join(1, CLIENTS, far), outside))
    (broker, outside), (_, cut) = ends

    def arrived(end=outside):
        for _ in range(3):  # the thread has been round
            network.heal(1, CONTROLLER)
        try:
            return end.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    network.throttle(200, 1, CLIENTS, "from")
    broker.sendall(b"abcdef")
    found = [arrived()]
    for ms in (9, 1, 9, 1):
        clock.advance(ms)
        found.append(arrived())
    assert found == [b"ab", None, b"cd", None, b"ef"]
    outside.sendall(b"the other way")
    assert arrived(broker) == b"the other way"
    network.heal()
    network.delay(50, 1, CLIENTS, "from")
    broker.sendall(b"x")
    found = [arrived()]
    for ms in (49, 1):
        clock.advance(ms)
        found.append(arrived())
    assert found == [None, None, b"x"]
    network.isolate(1, CLIENTS, "to")
    outside.sendall(b"held")
    broker.sendall(b"late")
    assert arrived() is None
    clock.advance(50)
    assert (arrived(broker), arrived()) == (None, b"late")
    network.heal(1, CLIENTS)
    assert arrived(broker) == b"held"
    network.cut(1, CONTROLLER)
    assert arrived(cut) is None
    network.heal()
    broker.sendall(b"last")
    broker.close()
    assert (arrived(), arrived(), arrived(cut)) == (b"last", b"", None)
    network.cut(1, CLIENTS)
    assert arrived(cut) == b""
    network.close()
    for end in (outside, cut, ends[1][0]):
        end.close()


def test_a_half_open_connection_and_a_cut_one(cluster):
    leader = cluster.leader("t", 0)
    with Wire(address_of(cluster, leader), timeout_s=60) as wire:
        wire.ask(p.MetadataRequest(topics=[]), 12)
        cluster.network.isolate(leader, CLIENTS, direction="from")  # requests arrive, answers do not
        wire.send(produce_request(batch(), acks=1), 9)
        until(lambda: cluster.end_offset("t", 0, leader) == 3)
        wire.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            wire.sock.recv(1)
        cluster.network.heal(leader)
        wire.sock.settimeout(60)
        _, answer = wire.receive(p.ProduceRequest, 9)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        cluster.network.cut(leader, CLIENTS)
        assert wire.closed_by_peer


def test_clocks_that_jump(cluster):
    leader = cluster.leader("t", 0)
    write_numbers(cluster, 5)
    cluster.jump_clock(leader, -7_200_000)
    with pytest.raises(KafkaError) as refused, KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send("t", b"from the future", partition=0).result(timeout=60)
    assert refused.value.code == Code.INVALID_TIMESTAMP
    cluster.jump_clock(leader, 7_200_000)
    assert write_numbers(cluster, 5, first=5) == list(range(5, 10))
    follower = followers_of(cluster)[0]
    cluster.jump_clock(follower, 3_600_000, asleep=True)
    cluster.jump_clock(leader, 60_000, asleep=True)  # longer than the lag time: still nobody is thrown out who goes on fetching
    assert write_numbers(cluster, 5, first=10) == list(range(10, 15))
    until(lambda: in_step(cluster))


def test_faults_are_asked_for_and_name_what_exists():
    with EmbeddedCluster() as plain:
        with pytest.raises(UsageError, match="faults=True"):
            plain.network.heal()
        with pytest.raises(UsageError, match="faults=True"):
            plain.jump_clock(1, 1)
    with EmbeddedCluster(faults=True) as cluster:
        with pytest.raises(UsageError, match="no broker 2"):
            cluster.network.isolate(1, 2)
        with pytest.raises(UsageError, match="direction"):
            cluster.network.isolate(1, direction="up")
        with pytest.raises(ValueError, match="cannot sleep for -1 ms"):
            cluster.jump_clock(1, -1, asleep=True)


def test_a_fault_is_on_the_ways_that_it_names():
    network = Network([1, 2])

    def cut():
        return {(one, other) for one in (1, 2) for other in (1, 2, CLIENTS, CONTROLLER) if network.is_cut(one, other)}

    every = {(1, 2), (2, 1)} | {(one, other) for one in (1, 2) for other in (CLIENTS, CONTROLLER)}
    try:
        for arguments, wanted in (
            ((), every),
            ((1,), every - {(2, CLIENTS), (2, CONTROLLER)}),
            ((1, CLIENTS), {(1, CLIENTS)}),
            ((None, 2), {(1, 2), (2, 1)}),
            ((None, CONTROLLER), {(1, CONTROLLER), (2, CONTROLLER)}),
            ((1, 2, "to"), {(1, 2), (2, 1)}),
            ((2, 2), set()),
        ):
            network.isolate(*arguments)
            assert cut() == wanted, arguments
            network.heal(1)
            assert cut() == wanted - {(1, 2), (2, 1), (1, CLIENTS), (1, CONTROLLER)}
            network.heal()
            assert cut() == set()
        network.isolate(1, 2, "to")
        network.delay(5, 1, 2, "to")
        assert network.is_cut(1, 2)  # one fault beside the other
        network.heal(2, 1)
        assert not network.is_cut(1, 2)
    finally:
        network.close()
        network.close()
    with pytest.raises(UsageError, match="the cluster is closed"):
        network.heal()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        with pytest.raises(OSError, match="the cluster is closed"):
            network.join(1, CLIENTS, far)
        assert far.fileno() == -1
